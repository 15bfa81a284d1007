"""How much is lost by letting the planner choose: real votes, a public part to plan by, the rest to answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quorate.auditing.simulation import simulate
from quorate.bench.figures import Figure, data_folder
from quorate.core.arrays import Integers
from quorate.core.mechanisms import NO_QUORUM, ConfidentMax
from quorate.planner import PrivatePlan, plan

__all__ = ["Comparison", "auto_figures", "compare", "comparisons"]

_PUBLIC = 500  # rows that are given away to plan by
_SEED = 20260  # of the rows and of the simulated noise: the comparison can be repeated
_DELTA = 1e-5
_NAMED = ("quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority")


@dataclass(frozen=True)
class Comparison:
    """Shares answered and right, as measured: by the aggregator that was chosen, and by each."""

    data: str
    teachers: int
    epsilon: float
    queries: int
    chosen: str
    right: dict[str, float]

    @property
    def gap(self) -> float:
        """What the choice loses against the best single aggregator."""
        return max(self.right.values()) - self.right[self.chosen]


def _payable(planned: PrivatePlan, labels: Integers) -> int:
    """Return how many of these queries the budget of the plan pays for, asked one after the other."""
    mechanism = planned.mechanism
    if not isinstance(mechanism, ConfidentMax):
        return len(labels)
    query, answer = mechanism.query_cost(planned.order).renyi, mechanism.answer_cost(planned.order).renyi
    before = np.concatenate([[0.0], np.cumsum(query + answer * (labels >= 0))[:-1]])
    return int((before + query + answer <= planned.open_budget().capacity().renyi).sum())


def _right(planned: PrivatePlan, rows: Integers, seed: int) -> float:
    labels = simulate(planned.mechanism, rows, seed=seed).labels
    labels = labels[: _payable(planned, labels)]
    right = float((labels == rows[: len(labels)].argmax(axis=1)).sum())
    if planned.on_no_quorum == "random":
        right += float((labels == NO_QUORUM).sum()) / planned.classes
    return right / len(rows)


def compare(
    name: str,
    votes: Integers,
    *,
    epsilon: float,
    queries: int,
    repeats: int,
    named: tuple[str, ...] = _NAMED,
    on_no_quorum: str = "abstain",
) -> Comparison:
    """Plan by some of the rows, automatically and by name, and let each plan answer queries drawn from the others.

    All answer the same queries, `repeats` times over. A random label counts as right once in `classes` times.
    """
    generator = np.random.default_rng(_SEED)
    order = generator.permutation(len(votes))
    public, rest = votes[order[:_PUBLIC]], votes[order[_PUBLIC:]]
    teachers = int(votes[0].sum())
    target: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": _DELTA,
        "queries": queries,
        "teachers": teachers,
        "votes": public,
        "on_no_quorum": on_no_quorum,
    }
    able = [name for name in named if votes.shape[1] == 2 or name != "sharp_majority"]
    plans = {name: plan(**target, aggregator=name) for name in able}
    chosen = plan(**target).aggregator
    right = dict.fromkeys(plans, 0.0)
    for repeat in range(repeats):
        rows = rest[generator.choice(len(rest), size=queries, replace=queries > len(rest))]
        for aggregator, planned in plans.items():
            right[aggregator] += _right(planned, rows, _SEED + repeat) / repeats
    return Comparison(name, teachers, epsilon, queries, chosen, right)


def comparisons(name: str, path: Path, quick: bool, on_no_quorum: str = "abstain") -> Iterator[Comparison]:
    """Yield the comparisons on one file of votes, as they are and scaled up to more teachers."""
    if not path.exists():
        return
    votes = np.load(path, allow_pickle=False).astype(np.int64)
    epsilons = (2.0,) if quick or on_no_quorum == "random" else (0.5, 1.0, 2.0)  # where quorums matter
    for factor in (1, 4, 16):
        for epsilon in epsilons:
            for queries in (300, 1000) if quick else (300, 1000, 3000, 9000):
                repeats = max(6, (10_000 if quick else 60_000) // queries)
                yield compare(
                    name,
                    votes * factor,
                    epsilon=epsilon,
                    queries=queries,
                    repeats=repeats,
                    on_no_quorum=on_no_quorum,
                )


def auto_figures(quick: bool) -> Iterator[Figure]:
    """Yield the largest loss on either file of votes, in percent of the queries; None where the file is absent."""
    for name in ("mnist", "adult"):
        path = data_folder() / "pate2018" / f"{name}_250_teachers.npy"
        for figure, on_no_quorum in (("auto", "abstain"), ("auto.guessing", "random")):
            gaps = [compared.gap for compared in comparisons(name, path, quick, on_no_quorum)]
            yield f"{figure}.worst_gap_percent.{name}", 100 * max(gaps) if gaps else None, "percent"
