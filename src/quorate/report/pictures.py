"""The pictures of docs/concepts: what epsilon, a quorum, wear and a search look like.

`python -m quorate.report.pictures docs/concepts` draws them again. They stand inside the pages, so that their colours
follow light and dark.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from quorate.core.errors import RunEnded
from quorate.core.mechanisms import Quorum, SharpMajority
from quorate.core.mechanisms.needed import correct_probability
from quorate.core.privacy import Budget
from quorate.models.selection import plan_search
from quorate.report.axes import plain
from quorate.report.drawing import BLUE, GREEN, GREY, ORANGE, Plot, draw_plot

__all__ = ["draw_pictures", "plot_belief", "plot_neighbours", "plot_quorum", "plot_search", "plot_wear"]

_TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "teachers": 2000}
_QUERIES = 1000
_UNCLEAR = 25  # one query in so many finds no quorum


def plot_neighbours(epsilon: float = 0.5) -> Plot:
    """Return the law of a noisy count on two data sets that differ in one person."""
    values = np.arange(22, 42)
    base = np.exp(-epsilon)

    def law(count: int) -> Any:
        return (1 - base) / (1 + base) * base ** np.abs(values - count)

    def draw(axes: Any) -> None:
        axes.bar(values - 0.18, law(31), width=0.36, color=BLUE, label="with you: the count is 31")
        axes.bar(values + 0.18, law(30), width=0.36, color=ORANGE, label="without you: it is 30")
        axes.set(xlabel="released number", ylabel="probability", ylim=(0, 0.36))
        axes.legend(loc="upper left")

    told = f"Every bar of one colour is at most {np.exp(epsilon):.2f} times as high as its neighbour of the other."
    return draw_plot("neighbours", f"A noisy count at epsilon {epsilon:g}", told, draw)


def plot_belief() -> Plot:
    """Return how sure an attacker can become that somebody is in the data, by how sure they were before."""
    before = np.linspace(0.0, 1.0, 101)
    colours = {0.1: GREY, 0.5: GREEN, 1.0: BLUE, 2.0: ORANGE}

    def draw(axes: Any) -> None:
        for epsilon, colour in colours.items():
            times = np.exp(epsilon) * before
            axes.plot(before, times / (times + 1 - before), color=colour, label=f"epsilon {epsilon:g}")
        axes.set(xlabel="belief before", ylabel="belief after, at most")
        plain(axes.xaxis)
        plain(axes.yaxis)
        axes.legend()

    told = "From one half: " + ", ".join(f"epsilon {e:g} to {1 / (1 + np.exp(-e)):.2f}" for e in colours) + "."
    return draw_plot("belief", "What all answers together can teach an attacker", told, draw)


def plot_quorum() -> Plot:
    """Return how often a query is answered correctly, by how many votes its label leads."""
    quorum = Quorum.calibrate(**_TARGET, no_quorums=100)
    majority = SharpMajority.calibrate(**_TARGET, queries=_QUERIES)
    votes = np.arange(0, 801, 20)

    def draw(axes: Any) -> None:
        for mechanism, colour, name in ((quorum, BLUE, "Quorum, 100 no-quorums"), (majority, ORANGE, "SharpMajority")):
            axes.plot(2 * votes, [correct_probability(mechanism, int(v)) for v in votes], color=colour, label=name)
        _finish(axes, xlabel="votes by which the first label leads the second", ylabel="answered correctly")

    told = (
        f"2,000 teachers, epsilon 1. A quorum answers no query at a lead of 0 and nearly all at "
        f"{2 * int(votes[-1]):,}; below, it mostly stays silent. A majority for {_QUERIES:,} queries always answers."
    )
    return draw_plot("quorum", "Who gets an answer", told, draw)


def _finish(axes: Any, **settings: Any) -> None:
    axes.set(**settings)
    plain(axes.yaxis)
    axes.legend(loc="lower right")


def plot_wear() -> Plot:
    """Return the epsilon spent by queries: a quorum wears by its no-quorums, a majority by every answer."""
    quorum = Quorum.calibrate(**_TARGET, no_quorums=100)
    majority = SharpMajority.calibrate(**_TARGET, queries=_QUERIES)
    counts = range(1, _QUERIES + 1, 10)
    by_answers = [(count, majority.epsilon(delta=_TARGET["delta"], queries=count)) for count in counts]
    spent = {"SharpMajority": by_answers, "Quorum": _spent_by_run(quorum)}

    def draw(axes: Any) -> None:
        for (name, curve), colour in zip(spent.items(), (ORANGE, BLUE), strict=True):
            axes.plot(*zip(*curve, strict=True), color=colour, label=name)
        axes.axhline(_TARGET["epsilon"], color=GREY, linewidth=1.2)
        _finish(axes, xlabel="queries", ylabel="epsilon spent, ex post", ylim=(0, 1.1))

    told = (
        f"Both are allowed epsilon 1. One query in {_UNCLEAR} is unclear. After {_QUERIES:,} queries the majority has "
        f"spent {spent['SharpMajority'][-1][1]:.2f} and the quorum {spent['Quorum'][-1][1]:.2f}."
    )
    return draw_plot("wear", "How a budget wears", told, draw)


def plot_search() -> Plot:
    """Return the epsilon that each trial of a search gets, by how many candidates there are."""
    numbers = (1, 2, 3, 4, 6, 8, 12, 20)

    def trials(method: Any) -> list[float]:
        return [plan_search(candidates=one, delta=1e-5, method=method).trial_epsilon for one in numbers]

    random, each = trials("random stopping"), trials("composition")

    def draw(axes: Any) -> None:
        axes.plot(numbers, random, color=BLUE, marker="o", label="a secret random number of trials")
        axes.plot(numbers, each, color=ORANGE, marker="o", label="one trial for each candidate")
        axes.set(xlabel="candidates", ylabel="epsilon of a trial", ylim=(0, 1.05))
        plain(axes.yaxis)
        axes.legend()

    told = (
        f"Linear models, epsilon 1 in all. Of {numbers[-1]} candidates each trial gets {random[-1]:.2f} by random "
        f"stopping and {each[-1]:.2f} by composition."
    )
    return draw_plot("search", "What choosing leaves to each trial", told, draw)


def _spent_by_run(quorum: Quorum) -> list[tuple[int, float]]:
    budget = Budget(epsilon=1.0, delta=1e-6, order=quorum.order, slack=quorum.slack)
    run = quorum.open(budget)
    curve = [(0, budget.spent_epsilon())]
    for query in range(_QUERIES):
        try:
            run.answer([1000, 1000] if query % _UNCLEAR == _UNCLEAR - 1 else [2000, 0])
        except RunEnded:
            break
        curve.append((query + 1, budget.spent_epsilon()))
    return curve


def draw_pictures(folder: Path) -> list[Path]:
    """Write the pictures as files that a page takes in as they are."""
    target = folder / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in (plot_neighbours(), plot_belief(), plot_quorum(), plot_wear(), plot_search()):
        paths.append(target / f"{plot.name}.svg")
        paths[-1].write_text(f"{plot.svg.strip()}\n", encoding="utf-8")
    return paths


if __name__ == "__main__":
    for path in draw_pictures(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/concepts")):
        sys.stdout.write(f"{path}\n")
