"""The pictures of the documentation: `python -m benchmarks.pictures [NAME ...]` measures and draws them again.

Those of docs/concepts, docs/gallery and docs/benchmarks stand inside the pages, so that their colours follow light and
dark; the others are files of their own. A picture is named by a part of its path, such as `wear` or `howto`; without a
name all are drawn.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.charts import CHARTS
from benchmarks.classifier import coverage_and_width
from benchmarks.gallery import GALLERY, run_example
from benchmarks.needed import correct_probability
from benchmarks.release_covers import crossover, line_errors
from quorate.core.errors import RunEnded
from quorate.core.mechanisms import Quorum, SharpMajority
from quorate.core.privacy import Budget
from quorate.models.concepts import Thresholds
from quorate.models.knn import NeighbourClassifier
from quorate.models.selection import plan_search
from quorate.report._pages import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Plot,
    draw_lines,
    draw_plot,
    label_axis,
    label_log_axis,
    to_svg_file,
)

Curve = Sequence[tuple[int, float]]  # points of a number and a share

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

    description = (
        f"Every bar of one colour is at most {np.exp(epsilon):.2f} times as high as its neighbour of the other."
    )
    return draw_plot("neighbours", f"A noisy count at epsilon {epsilon:g}", description, draw)


def plot_belief() -> Plot:
    """Return how sure an attacker can become that somebody is in the data, by how sure they were before."""
    prior = np.linspace(0.0, 1.0, 101)
    colours = {0.1: GREY, 0.5: GREEN, 1.0: BLUE, 2.0: ORANGE}

    def draw(axes: Any) -> None:
        for epsilon, colour in colours.items():
            times = np.exp(epsilon) * prior
            axes.plot(prior, times / (times + 1 - prior), color=colour, label=f"epsilon {epsilon:g}")
        axes.set(xlabel="belief before", ylabel="belief after, at most")
        label_axis(axes.xaxis, axes.yaxis)
        axes.legend()

    description = "From one half: " + ", ".join(f"epsilon {e:g} to {1 / (1 + np.exp(-e)):.2f}" for e in colours) + "."
    return draw_plot("belief", "What all answers together can teach an attacker", description, draw)


def plot_quorum() -> Plot:
    """Return how often a query is answered correctly, by how many votes its label leads."""
    quorum = Quorum.calibrate(**_TARGET, no_quorums=100)
    majority = SharpMajority.calibrate(**_TARGET, queries=_QUERIES)
    votes = np.arange(0, 801, 20)

    def draw(axes: Any) -> None:
        for mechanism, colour, name in ((quorum, BLUE, "Quorum, 100 no-quorums"), (majority, ORANGE, "SharpMajority")):
            axes.plot(2 * votes, [correct_probability(mechanism, int(v)) for v in votes], color=colour, label=name)
        _finish(axes, xlabel="votes by which the first label leads the second", ylabel="answered correctly")

    description = (
        f"2,000 teachers, epsilon 1. A quorum answers no query at a lead of 0 and nearly all at "
        f"{2 * int(votes[-1]):,}; below, it mostly stays silent. A majority for {_QUERIES:,} queries always answers."
    )
    return draw_plot("quorum", "Who gets an answer", description, draw)


def _finish(axes: Any, **settings: Any) -> None:
    axes.set(**settings)
    label_axis(axes.yaxis)
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

    description = (
        f"Both are allowed epsilon 1. One query in {_UNCLEAR} is unclear. After {_QUERIES:,} queries the majority has "
        f"spent {spent['SharpMajority'][-1][1]:.2f} and the quorum {spent['Quorum'][-1][1]:.2f}."
    )
    return draw_plot("wear", "How a budget wears", description, draw)


def plot_search() -> Plot:
    """Return the epsilon that each trial of a search gets, by how many candidates there are."""
    numbers = (1, 2, 3, 4, 6, 8, 12, 20)

    def trials(method: Any) -> list[float]:
        return [plan_search(candidates=count, delta=1e-5, method=method).trial_epsilon for count in numbers]

    random, composed = trials("random stopping"), trials("composition")

    def draw(axes: Any) -> None:
        axes.plot(numbers, random, color=BLUE, marker="o", label="a secret random number of trials")
        axes.plot(numbers, composed, color=ORANGE, marker="o", label="one trial for each candidate")
        axes.set(xlabel="candidates", ylabel="epsilon of a trial", ylim=(0, 1.05))
        label_axis(axes.yaxis)
        axes.legend()

    description = (
        f"Linear models, epsilon 1 in all. Of {numbers[-1]} candidates each trial gets {random[-1]:.2f} by random "
        f"stopping and {composed[-1]:.2f} by composition."
    )
    return draw_plot("search", "What choosing leaves to each trial", description, draw)


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


_UNITS = (500, 1000, 2000, 5000, 10_000)  # held out
_EPSILONS = {0.25: ORANGE, 0.5: BLUE, 1.0: GREEN}


def measure_coverage(*, simulations: int = 200) -> dict[float, Curve]:
    """Return the coverage of intervals by held-out units, for three epsilons."""
    return {
        epsilon: [
            (units, coverage_and_width(units, epsilon, simulations=simulations)[0])
            for units in _UNITS
            if units * epsilon >= 250
        ]
        for epsilon in _EPSILONS
    }


def plot_coverage(curves: Mapping[float, Curve]) -> Plot:
    """Return the coverage of intervals that are asked to cover 90%, for each epsilon."""

    def draw(axes: Any) -> None:
        axes.axhline(0.9, color=GREY, linewidth=1.2)
        for epsilon, points in curves.items():
            axes.plot(*zip(*points, strict=True), color=_EPSILONS[epsilon], marker="o", label=f"epsilon {epsilon:g}")
        label_log_axis(axes.xaxis, [units for points in curves.values() for units, _ in points], at_values=True)
        axes.set(xlabel="held-out units", ylabel="coverage")
        label_axis(axes.yaxis)
        axes.legend()

    description = "; ".join(
        f"epsilon {epsilon:g}: {points[0][1]:.3f} at {points[0][0]:,}, {points[-1][1]:.3f} at {points[-1][0]:,}"
        for epsilon, points in curves.items()
    )
    return draw_plot(
        "coverage", "Coverage that was asked to be 0.9", f"{description}.", draw, source="simulated records"
    )


_PLANNED = {1000: ORANGE, 8000: BLUE}  # queries that are planned for
_BATCH = 500


def accuracy_as_records_wear(planned: int, *, records: int = 20_000, queries: int = 8000) -> list[tuple[int, float]]:
    """Return how many answers were right, batch by batch, on records of ten classes around centres of their own."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, size=records + 1000 + queries)
    X = 1.6 * generator.normal(size=(10, 8))[y] + generator.normal(size=(len(y), 8))
    model = NeighbourClassifier(queries=planned, records=records, classes=list(range(10)))
    model.fit(X[:records], y[:records], public=X[records : records + 1000])
    points, truth = X[records + 1000 :], y[records + 1000 :]
    return [
        (start + _BATCH, model.score(points[start : start + _BATCH], truth[start : start + _BATCH]))
        for start in range(0, queries, _BATCH)
    ]


def plot_nearest(curves: Mapping[int, Curve]) -> Plot:
    """Return the accuracy of answers against how many were given before, for each number of planned queries."""

    def draw(axes: Any) -> None:
        for planned, points in curves.items():
            axes.plot(*zip(*points, strict=True), color=_PLANNED[planned], label=f"planned for {planned:,} queries")
        axes.set(xlabel="queries answered", ylabel="share right", ylim=(0.0, 1.0))
        label_axis(axes.xaxis)
        axes.legend()

    description = "; ".join(
        f"planned for {planned:,} queries: {points[0][1]:.2f} of the first {points[0][0]:,} right, {points[-1][1]:.2f} "
        f"of the last, after {points[-1][0]:,}"
        for planned, points in curves.items()
    )
    return draw_plot("wear", "Answers as records wear out", f"{description}.", draw, source="generated records")


_POINTS = (10, 30, 100, 300, 1000, 3000)  # public
_LINE_RECORDS = 100_000  # of the thresholds
_FEATURES, _STUMP_RECORDS = 100, 2000  # binary columns and records of the stumps


def measure_public_sizes() -> list[tuple[float, float, float]]:
    """Return public points, the cover's error and the engine's, for thresholds over simulated records."""
    runs = [line_errors(Thresholds(), records=_LINE_RECORDS, points=size, world=size) for size in _POINTS]
    return [(run.points, run.of_cover, run.of_engine) for run in runs]


def plot_public_size(points: Sequence[tuple[float, float, float]], source: str) -> Plot:
    """Return the cover's own share and the engine's error against the number of public points."""
    rows = sorted(points)
    lines = {
        "the cover's own": (1, {"color": ORANGE, "marker": "s"}),
        "the engine's": (2, {"color": BLUE, "marker": "o"}),
    }
    draw = draw_lines(rows, lines, xlabel="public points", ylabel="error, share of records")
    size, cover, engine = rows[-1]
    description = f"With {size:,.0f} public points the cover itself errs by {cover:.3g} and the engine by {engine:.3g}."
    return draw_plot("public-size", "Two parts of the error", description, draw, source=source)


def measure_crossover() -> list[tuple[float, float, float, float]]:
    """Return public records, and the errors of stumps with private data alone, both, and public data alone."""
    stages = crossover(features=_FEATURES, records=_STUMP_RECORDS, points=_POINTS, seeds=3)
    return [(stage.points, stage.private, stage.both, stage.public) for stage in stages]


def plot_crossover(points: Sequence[tuple[float, float, float, float]], source: str) -> Plot:
    """Return the error of stumps against public records: private data alone, public data alone, and both."""
    rows = sorted(points)
    lines = {
        "private alone": (1, {"color": ORANGE, "linestyle": "--"}),
        "public alone": (3, {"color": GREEN, "linestyle": ":"}),
        "both": (2, {"color": BLUE, "marker": "o"}),
    }
    draw = draw_lines(rows, lines, xlabel="public records", ylabel="largest error")
    return draw_plot("crossover", "Stumps: when public data help", _crossing(rows), draw, source=source)


def _crossing(rows: Sequence[tuple[float, float, float, float]]) -> str:
    """Say where public data alone (the last figure of a row) begin to do better than private data alone."""
    if rows[0][3] < rows[0][1]:
        return "Public data alone do better than private data alone, however few they are here."
    for smaller, larger in pairwise(rows):
        if larger[3] < larger[1]:
            return (
                f"Public data alone overtake private data alone between {smaller[0]:,.0f} and {larger[0]:,.0f} "
                "public records."
            )
    return "Public data alone never do as well as private data alone here."


def _draw_public_sizes() -> Plot:
    source = f"simulated records ({_LINE_RECORDS:,} of a heavy-tailed law, thresholds, epsilon 1)"
    return plot_public_size(measure_public_sizes(), source)


def _draw_crossover() -> Plot:
    source = f"{_FEATURES} binary columns, {_STUMP_RECORDS:,} private records, epsilon 1"
    return plot_crossover(measure_crossover(), source)


def _draw_example(name: str) -> Plot:
    return GALLERY[name](run_example(name))


PICTURES: dict[str, Callable[[], Plot]] = {
    "concepts/pictures/neighbours.svg": plot_neighbours,
    "concepts/pictures/belief.svg": plot_belief,
    "concepts/pictures/quorum.svg": plot_quorum,
    "concepts/pictures/wear.svg": plot_wear,
    "concepts/pictures/search.svg": plot_search,
    "howto/conformal/coverage.svg": lambda: plot_coverage(measure_coverage()),
    "howto/neighbours/wear.svg": lambda: plot_nearest({n: accuracy_as_records_wear(n) for n in _PLANNED}),
    "howto/release/public-size.svg": _draw_public_sizes,
    "howto/release/stumps.svg": _draw_crossover,
    **{f"benchmarks/{name}.svg": draw for name, draw in CHARTS.items()},
    **{f"gallery/{name}.svg": partial(_draw_example, name) for name in GALLERY},
}
_OUTSIDE = "howto/"  # drawn as files of their own


def draw_pictures(docs: Path, names: Sequence[str] = ("",)) -> list[Path]:
    """Draw the pictures whose path contains one of the names, and return their files."""
    files = []
    for name, draw in PICTURES.items():
        if any(part in name for part in names):
            svg = draw().svg
            files.append(docs / name)
            files[-1].parent.mkdir(parents=True, exist_ok=True)
            inline = not name.startswith(_OUTSIDE)
            files[-1].write_text(f"{svg.strip()}\n" if inline else to_svg_file(svg), encoding="utf-8")
    return files


if __name__ == "__main__":
    for file in draw_pictures(Path("docs"), sys.argv[1:] or ("",)):
        print(file)
