"""One mechanism answering votes of a small simulated ensemble, with its cost."""

import json

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from quorate.checks import check_count
from quorate.mechanisms import Quorum
from quorate.mechanisms.answers import NO_QUORUM
from quorate.privacy import Budget

__all__ = ["run_demo", "simulated_votes"]

_CLASSES = ("healthy", "watch", "treat")
_NO_QUORUMS = 50
_HARD = 0.01  # share of the queries on which the teachers are split


def simulated_votes(teachers: int, queries: int) -> np.ndarray:
    """Return made-up votes: clear on most queries, split on a few. Different every time; nothing private is read.

    >>> simulated_votes(100, 5).sum(axis=1)
    array([100, 100, 100, 100, 100])
    """
    generator = np.random.default_rng()
    right = generator.integers(0, len(_CLASSES), size=queries)
    skill = np.where(generator.random(queries) < _HARD, 0.4, generator.uniform(0.93, 1.0, size=queries))
    shares = np.repeat(((1 - skill) / 2)[:, None], len(_CLASSES), axis=1)
    shares[np.arange(queries), right] = skill
    return generator.multinomial(teachers, shares)


def run_demo(*, teachers: int, queries: int, epsilon: float, delta: float, as_json: bool) -> int:
    """Calibrate a Quorum, ask it, and print the answers and the bill.

    >>> run_demo(teachers=2000, queries=10, epsilon=1.0, delta=1e-6, as_json=True)
    {"teachers": 2000, ...
    """
    console = Console(quiet=as_json)
    console.print(f"[bold]{teachers} simulated teachers[/bold] vote on {queries} queries; nothing private is read.")
    quorum = Quorum.calibrate(epsilon=epsilon, delta=delta, teachers=teachers, no_quorums=_NO_QUORUMS)
    budget = Budget(epsilon=epsilon, delta=delta, order=quorum.order, slack=quorum.slack)
    run = quorum.open(budget)
    console.print(
        f"Quorum for epsilon = {epsilon:g}, delta = {delta:g}: answers are free, {_NO_QUORUMS} no-quorums are allowed, "
        f"and a label is answered (99 times in 100) from {quorum.distance()} ballots away from changing.\n"
    )
    votes = simulated_votes(teachers, check_count("queries", queries))
    labels: list[int] = []
    for start in track(range(0, queries, 100), description="asking", console=console, transient=True):
        if run.no_quorums_left == 0:
            break
        labels += run.answers(votes[start : start + 100]).labels.tolist()
    bill = _bill(teachers, queries, np.array(labels, dtype=np.int64), votes, budget)
    if as_json:
        print(json.dumps(bill))
    else:
        _show(console, bill, labels[:8])
    return 0


def _bill(teachers: int, queries: int, labels: np.ndarray, votes: np.ndarray, budget: Budget) -> dict[str, float]:
    answered = labels != NO_QUORUM
    agree = labels[answered] == votes[: labels.size].argmax(axis=1)[answered]
    noisy = 100 * float(agree.mean()) if agree.size else 100.0
    return {
        "teachers": teachers,
        "queries": queries,
        "answered": int(answered.sum()),
        "no_quorum": int((~answered).sum()),
        "refused": queries - labels.size,
        "agreement_with_plurality_percent": noisy,
        "epsilon_allowed": budget.epsilon,
        "epsilon_spent": budget.spent_epsilon(),
        "delta": budget.delta,
        "budget_left_percent": 100 * budget.remaining().renyi / budget.capacity().renyi,
    }


def _show(console: Console, bill: dict[str, float], first: list[int]) -> None:
    named = ", ".join("no quorum" if label == NO_QUORUM else _CLASSES[label] for label in first)
    console.print(f"The first answers: {named}, ...\n")
    table = Table(title="The bill", show_header=False)
    for name, value in bill.items():
        table.add_row(name.replace("_", " "), f"{value:,.4g}" if isinstance(value, float) else f"{value:,}")
    console.print(table)
    console.print("Every answer was drawn with exact noise. Proof: mechanisms/quorum/PROOF.md.")
