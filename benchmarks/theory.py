"""The page docs/reference/theory.md with its plots: what the theory of classes of hypotheses says, measured.

One command makes it: `python -m benchmarks.theory`. It takes some minutes, and every figure in it is
measured then, on the methods as they are.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.concepts import (
    METHODS,
    Sweep,
    answered_queries,
    excess_sweep,
    plateau_errors,
    semi_private_figures,
    stability_figures,
)
from quorate.models.concepts import Concept, Halfspaces, Thresholds
from quorate.planner._concepts import plan_concept
from quorate.report._pages import BLUE, GREEN, GREY, ORANGE, draw_plot, label_axis, label_log_axis, to_svg_file

_COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7")  # of Okabe and Ito
_SWEEPS: dict[str, tuple[Concept, dict[str, tuple[int, ...]], int]] = {
    "thresholds": (
        Thresholds(both_directions=False),
        {
            "agnostic": (20_000, 80_000, 320_000),
            "stable": (1000, 4000, 16_000),
            "pure": (1000, 4000, 16_000),
            "semi-private": (1000, 4000, 16_000, 64_000),
        },
        16,
    ),
    "halfspaces": (
        Halfspaces(2),
        {"stable": (1000, 3000, 8000), "pure": (1000, 3000, 8000), "semi-private": (1000, 3000, 8000)},
        6,
    ),
}
_GAMMAS = (0.05, 0.1, 0.15, 0.2)
_RECORDS = (20_000, 100_000, 500_000, 2_000_000)


def write_theory(folder: Path, *, quick: bool = False) -> Path:
    """Measure, and write theory.md and its plots into a folder. It needs matplotlib."""
    plots = folder / "theory"
    plots.mkdir(parents=True, exist_ok=True)
    parts = [
        _HEAD,
        *_excess(plots, quick),
        *_noise(plots, quick),
        *_queries(plots, quick),
        *_stability(quick),
        *_plan(),
    ]
    page = folder / "theory.md"
    page.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return page


_HEAD = """# The theory, measured

`python -m benchmarks.theory` measures every figure here on the current code, with
its own noise. The *excess error* of an answer is how much more often it is wrong than the best
hypothesis of the class. Epsilon is 1: for each answer of "pure", for 40 answers together of
"agnostic", and for the published hypothesis of "semi-private". Delta is 1e-6 where there is one, and
gamma is 0.1 for "stable".
"""

_EXCESS = """## Excess error against the number of records
Labels are right with probability 1/2 + b. For each number of records, b runs over a ladder of
values and the worst one counts, because a bound over all distributions must cover it. Such bounds
fall like n^(-1/2), up to logarithms. Terms of order 1/n make small samples steeper.
"""

_NOISE = """## When no hypothesis is right
Two thresholds are the best, each wrong on a share gamma of the points, and every threshold between
them is worse. Teachers on plain chunks (Bassily, Thakkar and Thakurta 2018) are split between the
two, and the region where they differ, 2 gamma, finds no quorum. Relabelling (Nandi and Bassily
2020) settles on one of them first. The table gives the share of queries that did not get the right
label. In print the share for plain teachers is bounded by 3 gamma. With enough teachers it is at
most 2 gamma: points at which half of them are wrong have at most twice their mean error.

On the line, epsilon is 4 for 100 queries and 200,000 records. In the plane, the same records are in
a thin strip, there are 20,000 of them, and epsilon is 32 for 40 queries, since only the dichotomies
of at most 950 points can be enumerated.

These settings were chosen so that the effect shows. With a fifth of the records on the line, or at
epsilon 4 in the plane, the relabelled sample was too small for a quorum, and relabelling gained
nothing or made things worse.

![share of queries without the right label](theory/noise.svg)
"""

_QUERIES = """## How many queries
The table gives the largest power of two for which nine in ten queries are expected to get the label
of most teachers, at epsilon 1. Plain teachers are assumed to disagree by a fifth, as with one wrong
label in five, and teachers on relabelled chunks by a fiftieth. Relabelling costs queries; the
section above shows what it buys.

![queries against records](theory/queries.svg)
"""

_STABILITY = """## Stability
One record moves a prediction of `StableClassifier` by at most {exact:.2f} gamma, exactly, over all
data sets of a few rows, and by {sampled:.2f} gamma between two neighbours of 10,000 records. A
published hypothesis (`SemiPrivateClassifier`) loses at most {published:.2f} epsilon over all small
data sets. Every stable learner needs at least (d - 1)/(8 gamma alpha) records. The table sets that
beside the bound with explicit constants that the planner uses, for d = 3:
"""

_PLAN = """## What the planner says
`plan_concept` compares the methods by bounds that hold for every distribution. These are far above
what is measured here. VC dimension 1, a million records, epsilon 1, best first:
"""


def _excess(plots: Path, quick: bool) -> list[str]:
    parts = [_EXCESS]
    for name, (concept, methods, repeats) in _SWEEPS.items():
        sweeps = [
            excess_sweep(method, concept, sizes, repeats=2 if quick else repeats) for method, sizes in methods.items()
        ]
        _draw(plots / f"excess-{name}.svg", _excess_axes, sweeps)
        parts += [f"### {name.capitalize()}", f"![excess error of {name}](theory/excess-{name}.svg)", ""]
        rows = [
            [sweep.method, f"{n:,}", f"{error:.4f}", f"{sweep.exponent:.2f}" if n == sweep.records[-1] else ""]
            for sweep in sweeps
            for n, error in zip(sweep.records, sweep.errors, strict=True)
        ]
        parts += [_table(["method", "records", "excess error", "power of n"], rows), ""]
    return parts


def _noise(plots: Path, quick: bool) -> list[str]:
    line: dict[str, Any] = {"concept": Thresholds(both_directions=False), "records": 200_000}
    means = {gamma: _mean_errors(1 if quick else 5, gamma=gamma, **line) for gamma in _GAMMAS}
    _draw(plots / "noise.svg", _noise_axes, means)
    plane: dict[str, Any] = {"concept": Halfspaces(2), "records": 20_000, "queries": 40, "teachers": 60}
    rows = [["thresholds", f"{gamma:g}", *(f"{share:.3f}" for share in shares)] for gamma, shares in means.items()]
    shares = _mean_errors(1 if quick else 3, gamma=0.2, epsilon=32.0, **plane)
    rows.append(["halfspaces", "0.2", *(f"{share:.3f}" for share in shares)])
    return [_NOISE, _table(["class", "gamma", "plain teachers", "after relabelling"], rows), ""]


def _mean_errors(runs: int, **settings: Any) -> tuple[float, float]:
    """Return the mean errors of plain teachers and of relabelled ones."""
    errors = [plateau_errors(**settings) for _ in range(runs)]
    return fmean(run["subsample"] for run in errors), fmean(run["agnostic"] for run in errors)


def _queries(plots: Path, quick: bool) -> list[str]:
    sizes = _RECORDS[:2] if quick else _RECORDS
    answered = [answered_queries(records=records) for records in sizes]
    _draw(plots / "queries.svg", _queries_axes, (sizes, answered))
    rows = [
        [f"{records:,}", f"{method['agnostic']:,}", f"{method['subsample']:,}", f"{method['published']:,}"]
        for records, method in zip(sizes, answered, strict=True)
    ]
    return [
        _QUERIES,
        _table(["records", "after relabelling", "plain teachers", "plain, published constants"], rows),
        "",
    ]


def _stability(quick: bool) -> list[str]:
    figures = {name: value for name, value, _ in (*stability_figures(quick), *semi_private_figures(quick))}
    rows = []
    for gamma in (0.01, 0.1):
        for alpha in (0.05, 0.1):
            method = plan_concept(records=10**6, vc_dimension=3, gamma=gamma, alpha=alpha, queries=1).methods[-1]
            rows.append([f"{gamma:g}", f"{alpha:g}", f"{method.least:,}", f"{method.needed:,}"])
    return [
        _STABILITY.format(
            exact=figures["stable.exact_share_of_gamma"],
            sampled=figures["stable.sampled_share_of_gamma"],
            published=figures["semi_private.exact_share_of_epsilon"],
        ),
        _table(["gamma", "alpha", "records needed at least", "records that suffice"], rows),
        "",
    ]


def _plan() -> list[str]:
    rows = []
    for settings in (
        {"queries": 1},
        {"queries": 1000},
        {"queries": 1000, "public": 2000},
        {"queries": 1000, "realizable": True},
    ):
        planned = plan_concept(records=10**6, vc_dimension=1, alpha=0.1, **settings)  # type: ignore[arg-type]
        text = ", ".join(name if value is True else f"{name} {value:,}" for name, value in settings.items())
        rows += [
            [
                text if index == 0 else "",
                method.name,
                f"{method.error:.3f}",
                f"{method.needed:,}" if method.needed else "-",
            ]
            for index, method in enumerate(planned.methods)
        ]
    return [
        _PLAN,
        _table(["given", "method", "guaranteed excess error", "records for 0.1"], rows),
    ]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _draw(path: Path, fill: Callable[[Any, Any], None], data: Any) -> None:
    """Write one plot as a file of its own. It carries no date, so that only new figures change it."""

    def draw(axes: Any) -> None:
        fill(axes, data)
        axes.legend()

    plot = draw_plot(path.stem, path.stem.replace("-", " "), "The page has the figures in a table.", draw, height=3.0)
    path.write_text(to_svg_file(plot.svg), encoding="utf-8")


def _excess_axes(axes: Any, sweeps: list[Sweep]) -> None:
    for sweep in sweeps:
        colour = _COLOURS[tuple(METHODS).index(sweep.method)]
        axes.plot(sweep.records, sweep.errors, "o-", color=colour, label=f"{sweep.method} ({sweep.exponent:.2f})")
    low, high = min(sweep.records[0] for sweep in sweeps), max(sweep.records[-1] for sweep in sweeps)
    top = max(sweep.errors[0] for sweep in sweeps)
    axes.plot([low, high], [top, top * (high / low) ** -0.5], "--", color=GREY, label="power -0.5")
    label_log_axis(axes.xaxis, [low, high], labels=4)
    label_log_axis(axes.yaxis, [error for sweep in sweeps for error in sweep.errors])
    axes.set(xlabel="records", ylabel="worst excess error")


def _noise_axes(axes: Any, means: dict[float, tuple[float, float]]) -> None:
    curves = zip(("plain teachers", "after relabelling"), zip(*means.values(), strict=True), _COLOURS, strict=False)
    for label, shares, colour in curves:
        axes.plot(_GAMMAS, shares, "o-", color=colour, label=label)
    for times in (1, 2, 3):
        axes.plot(_GAMMAS, [times * gamma for gamma in _GAMMAS], ":", color=GREY)
        axes.annotate(f"{times} gamma", (_GAMMAS[-1], times * _GAMMAS[-1]))
    axes.set(xlabel="gamma: error of the best hypothesis", ylabel="share without the right label")
    label_axis(axes.xaxis, axes.yaxis)


def _queries_axes(axes: Any, data: tuple[Sequence[int], list[dict[str, int]]]) -> None:
    sizes, payable = data
    for method, colour in zip(("agnostic", "subsample", "published"), _COLOURS, strict=False):
        axes.plot(sizes, [max(queries[method], 0.5) for queries in payable], "o-", color=colour, label=method)
    label_log_axis(axes.xaxis, sizes, labels=4)
    label_log_axis(axes.yaxis, [max(count, 0.5) for queries in payable for count in queries.values()])
    axes.set(xlabel="records", ylabel="queries (0 is drawn as 0.5)")


if __name__ == "__main__":
    print(write_theory(Path("docs/reference"), quick="--quick" in sys.argv))
