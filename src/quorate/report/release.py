"""The page of a release: its guarantee, its cost, and its accuracy on simulated records.

Simulated records are synthetic records from the release. Their true answers are not secret, so the engine can be run on
them again at several epsilons and compared with the truth. This spends nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import QuorateError
from quorate.release import QueryRelease
from quorate.release.engines import ENGINES, expected_errors
from quorate.release.people import RECORD
from quorate.release.utility import Utility, release_again
from quorate.release.workloads.marginals import MarginalWorkload
from quorate.report._model import SHARE_ROWS, plot_shares
from quorate.report._pages import (
    BLUE,
    GREEN,
    GREY,
    LINE,
    ORANGE,
    Claim,
    Page,
    Plot,
    check_installed,
    decimals_for,
    draw_lines,
    draw_plot,
    figure,
    label_axis,
    label_log_axis,
    name_rows,
    percent,
    plot_bars,
    proofs_for,
    render,
    software_versions,
    words,
)
from quorate.tables import Number

_STATED_ABOVE = {"epsilon", "delta", "privacy_unit"}  # by the guarantee
_NOT_TABLED = {"notes", "claim", "seconds"}
_COLUMN_PLOTS = 12
_ORDERED_ROWS = 48  # of the bars of a column of numbers or dates, whose cells are not lumped together
_PAIRS, _PAIR_ROWS, _PAIR_COLUMNS = 3, 40, 12  # tables of two columns, and their sizes
_SHADES = 6  # of the cells of such a table
_ANSWER_BARS = 12
_ANSWER_ROWS = 20
_TRUTH_POINTS = 800
_EPSILONS = (0.1, 0.3, 1.0, 3.0)  # of the plot of errors against epsilon
_SIMULATED_ROWS = 200_000
_PATIENCE = 5.0  # seconds of a run that is repeated for the plot against epsilon


@dataclass(frozen=True)
class PairTable:
    """The released shares of two columns together: one row for each of `row_names`."""

    rows: str
    columns: str
    row_names: Sequence[str]
    column_names: Sequence[str]
    shares: Sequence[Sequence[float]]

    def lines(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Return each row with its name, and for each cell the percentage and the shade."""
        largest = max(1e-9, *(max(row) for row in self.shares))
        return [
            (name, [(percent(share), round((_SHADES - 1) * max(share, 0.0) / largest)) for share in row])
            for name, row in zip(self.row_names, self.shares, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class ReleaseReport(Page):
    """The data of a release's page: public and released values, and figures from simulated data.

    `truth` has (true share, answer, low, high) of simulated records, and `errors` (epsilon, largest error measured on
    simulated records, expected one). `engines` are (name, expected error), `answers` rows of the released table, of
    which `answers_left_out` more were released. `shares` has each column with the released share of each of its values,
    and whether these have an order; `pairs` the pairs of columns that depend on each other most. `source` says what was
    simulated, `utility` in sentences what the release is worth.
    """

    title: str
    claim: Claim
    cards: Mapping[str, str] = field(default_factory=dict)
    bill: Mapping[str, Any] = field(default_factory=dict)
    engines: Sequence[tuple[str, float]] = ()
    engine: str = ""
    truth: Sequence[tuple[float, float, float, float]] = ()
    errors: Sequence[tuple[float, float, float]] = ()
    source: str = "simulated records"
    utility: Sequence[str] = ()
    shares: Sequence[tuple[str, Sequence[tuple[str, float]], bool]] = ()
    pairs: Sequence[PairTable] = ()
    answers: Sequence[Mapping[str, Any]] = ()
    answers_left_out: int = 0
    proofs: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=software_versions)
    notes: Sequence[str] = ()

    def render(self) -> str:
        """Return the page as text. One engine alone has nothing to be compared with."""
        check_installed()
        plots = [
            _plot_truth(self.truth, self.source) if self.truth else None,
            _plot_epsilon(self.errors, self.source) if self.errors else None,
            _plot_engines(self.engines, self.engine) if len(self.engines) > 1 else None,
        ]
        return render(
            "release.html",
            data=self,
            cards=self.cards,
            bill={name: value for name, value in self.bill.items() if name not in _STATED_ABOVE},
            released=_plot_answers_or_columns(self),
            plots=[plot for plot in plots if plot],
            answers=_answer_rows(self.answers),
        )


def release_bill(release: QueryRelease) -> dict[str, Any]:
    """Return the figures of a release: public or released, except `seconds`, which only its owner may see."""
    queries = release.domain_.queries
    return {
        "claim": release.claim_,
        "privacy_unit": release.unit_,
        "epsilon": release.budget_.epsilon,
        "delta": release.budget_.delta,
        "epsilon_spent": release.budget_.spent_epsilon(),
        "records": release.records_,
        "queries": queries.count,
        "cells": queries.cells,
        "engine": release.engine_,
        "expected_error": release.expected_error_,
        "engine_error_bound": release.engine_error_bound(0.025),
        "cover_error_bound": release.domain_.share(0.025),
        "seconds": release.seconds_,
        "notes": list(release.notes_),
    }


def report_release(release: QueryRelease, utility: Utility | None = None) -> ReleaseReport:
    """Return the page of a release, with its utility where that was measured."""
    bill, budget, queries = release_bill(release), release.budget_, release.domain_.queries
    truth, errors = _measure_errors(release)
    outlook = expected_errors(
        queries,
        records=release.records_,
        epsilon=budget.epsilon,
        delta=budget.delta,
        public=release.domain_.public(),
    )
    answers, answers_left_out = _first_answers(release)
    cards = {
        "queries answered": f"{queries.count:,}",
        "private records" if release.unit_ == RECORD else "people": f"{release.records_:,}",
        "expected largest error": percent(release.expected_error_, 2),
    }
    if cover := release.domain_.share(0.05):  # a workload has none
        cards["error of the cover, at most"] = percent(cover, 2)
    return ReleaseReport(
        title="A private release of answers",
        claim=Claim.of_units(budget.epsilon, budget.delta, release.unit_),
        cards=cards,
        bill={name: value for name, value in bill.items() if name not in _NOT_TABLED and value is not None},
        engines=list(outlook.items()),
        engine=release.engine_,
        truth=truth,
        errors=errors,
        utility=() if utility is None else utility.summary().splitlines(),
        source="synthetic records, made of what was released",
        shares=_column_shares(release),
        pairs=_dependent_pairs(release),
        answers=answers,
        answers_left_out=answers_left_out,
        proofs=proofs_for("release"),
        notes=(f"{release.claim_[0].upper()}{release.claim_[1:]}.", *release.notes_),
    )


def _column_shares(release: QueryRelease) -> list[tuple[str, list[tuple[str, float]], bool]]:
    """Return each column of marginals with the share of each value, added up, and whether the values have an order."""
    workload = release.domain_
    if not isinstance(workload, MarginalWorkload):
        return []
    queries, columns, shares = workload.queries, workload.columns, []
    for column, name in enumerate(columns.names):
        clique = next(number for number, members in enumerate(queries.cliques) if column in members)
        answers, _ = release.read(np.arange(queries.offsets[clique], queries.offsets[clique + 1]))
        rest = tuple(axis for axis, member in enumerate(queries.cliques[clique]) if member != column)
        sums = answers.reshape(queries.shapes[clique]).sum(axis=rest)
        named_shares = [(columns.cells[name].name(code), float(share)) for code, share in enumerate(sums)]
        shares.append((name, named_shares, isinstance(columns.kinds[name], Number)))
    return shares


def _dependent_pairs(release: QueryRelease) -> list[PairTable]:
    """Return the marginals of two columns that lie farthest from independence, by released answers, as tables."""
    workload = release.domain_
    if not isinstance(workload, MarginalWorkload):
        return []
    queries, names, pairs = workload.queries, workload.columns.names, []
    for number, (clique, shape) in enumerate(zip(queries.cliques, queries.shapes, strict=True)):
        if len(clique) != 2 or min(shape) > _PAIR_COLUMNS or max(shape) > _PAIR_ROWS:
            continue
        answers, _ = release.read(np.arange(queries.offsets[number], queries.offsets[number + 1]))
        shares, members = answers.reshape(shape), list(clique)
        if shape[1] > _PAIR_COLUMNS:
            shares, members = shares.T, members[::-1]
        expected = np.outer(shares.sum(axis=1), shares.sum(axis=0)) / max(float(shares.sum()), 1e-9)
        distance = float(((shares - expected) ** 2 / np.maximum(expected, 1 / release.records_)).sum())
        pairs.append((distance / (min(shape) - 1 or 1), [names[member] for member in members], shares))
    pairs.sort(key=lambda pair: -pair[0])
    cells = workload.columns.cells
    labels = {name: [cells[name].name(code) for code in range(cells[name].size)] for name in names}
    return [
        PairTable(rows, columns, labels[rows], labels[columns], shares.tolist())
        for _, (rows, columns), shares in pairs[:_PAIRS]
    ]


def _simulate(release: QueryRelease, *, epsilon: float) -> tuple[Floats, Floats, tuple[Floats, Floats], float]:
    """Run the same release on its own synthetic records: return true shares, answers, their intervals, the seconds."""
    rows = min(release.records_, _SIMULATED_ROWS)
    records = release.synthetic(rows)
    queries = release.domain_.queries
    again = release_again(release, records, epsilon=epsilon)
    numbers = np.arange(queries.count)
    if queries.count > _SIMULATED_ROWS:
        numbers = np.unique(np.linspace(0, queries.count - 1, _SIMULATED_ROWS).astype(np.int64))
    truth = again.domain_.seal(records)[0].put_to(lambda counts: queries.some(numbers, counts)) / rows  # nobody's
    answers, (low, high) = again.released_.some(queries, numbers), again.released_.intervals(queries, rows)
    ends = (low[numbers], high[numbers]) if low.size else (answers, answers)  # too many to list: no noise is known
    return truth, answers, ends, again.seconds_


def _measure_errors(release: QueryRelease) -> tuple[list[Any], list[Any]]:
    """Return points of answers against the truth, and of the largest error against epsilon."""
    truth, answers, ends, seconds = _simulate(release, epsilon=release.budget_.epsilon)
    step = max(1, len(truth) // (2 * _TRUTH_POINTS))
    low, high = (np.where(np.isnan(end), answers, end) for end in ends)
    points = [tuple(map(float, point)) for point in np.stack([truth, answers, low, high], axis=1)[::step]]
    errors = []
    if seconds <= _PATIENCE:
        settings: dict[str, Any] = {"delta": release.budget_.delta, "public": release.domain_.public()}
        settings["records"] = min(release.records_, _SIMULATED_ROWS)
        for epsilon in sorted({*_EPSILONS, release.budget_.epsilon}):
            try:
                truth, answers, _, _ = _simulate(release, epsilon=epsilon)
            except QuorateError:  # too small an epsilon for this engine
                continue
            engine = ENGINES[release.engine_]
            expected = engine.expected_error(release.domain_.queries, epsilon=epsilon, **settings)
            errors.append((epsilon, float(np.abs(truth - answers).max()), expected))
    return points, errors


def _first_answers(release: QueryRelease) -> tuple[list[dict[str, Any]], int]:
    try:
        queries = release.domain_.every()
    except QuorateError:
        return [], 0
    table = release.answer(queries[:_ANSWER_ROWS])
    rows = table.select(["query", "answer", "error", "low", "high"]).to_pylist()
    return rows, max(0, len(queries) - len(rows))


def _answer_rows(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the table of answers as text, with as many decimals in every row as the errors are worth."""
    errors = [row["error"] for row in answers if row.get("error")]
    decimals = decimals_for(min(errors, default=0.0))
    return [
        {name: f"{value:.{decimals}f}" if isinstance(value, float) else figure(value) for name, value in row.items()}
        for row in answers
    ]


def _plot_answers_or_columns(data: ReleaseReport) -> list[Plot]:
    """Return bars of the release: of its columns, or else of its answers."""
    if data.shares:
        return [
            plot_shares(
                f"column-{number}", f"Shares by {words(column)}", values, limit=_ORDERED_ROWS if ordered else SHARE_ROWS
            )
            for number, (column, values, ordered) in enumerate(data.shares[:_COLUMN_PLOTS])
        ]
    return [_plot_answers(data.answers, data.answers_left_out)] if data.answers else []


def _plot_engines(engines: Sequence[tuple[str, float]], engine: str) -> Plot:
    ranked = [(words(name), error) for name, error in sorted(engines, key=lambda pair: pair[1])]
    used = words(engine)

    def draw(axes: Any) -> None:
        label_log_axis(axes.xaxis, [error for _, error in ranked], labels=4)
        for row, (name, error) in enumerate(ranked):
            colour, marker = (ORANGE, "D") if name == used else (BLUE, "o")
            axes.axhline(row, color=LINE, linewidth=0.8)
            axes.plot([error], [row], color=colour, marker=marker, markersize=7)
            axes.annotate(f"{error:.3g}", (error, row), (7, 2), textcoords="offset points")
        name_rows(axes, [name for name, _ in ranked], used, "used")
        axes.margins(x=0.25)  # room for the last figure
        axes.set_xlabel("largest error, share of records")

    errors = ", ".join(f"{name} {error:.3g}" for name, error in ranked)
    description = f"Expected largest error: {errors}. Used: {used}."
    return draw_plot("engines", "The engines, before the run", description, draw, height=0.75 + 0.3 * len(ranked))


def _plot_answers(answers: Sequence[Mapping[str, Any]], left_out: int) -> Plot:
    rows = answers[:_ANSWER_BARS]
    bars = [(str(row["query"]), row["answer"], row.get("low"), row.get("high"), False) for row in rows]
    smallest, largest = (choose(rows, key=lambda row: row["answer"]) for choose in (min, max))
    rest = len(answers) - len(rows) + left_out
    description = (
        f"From {smallest['answer']:.3g} ({smallest['query']}) to {largest['answer']:.3g} ({largest['query']})"
        + (f"; {rest:,} more were released." if rest else ".")
    )
    axis: dict[str, Any] = {"xlabel": "share of the records", "xlim": (0, None)}
    return plot_bars("answers", "Answers and 95% intervals", description, bars, **axis)


def _plot_truth(points: Sequence[tuple[float, float, float, float]], source: str) -> Plot:
    """Return how far answers are from the truth, with error bars where they are known."""
    worst = max(abs(answer - true) for true, answer, _, _ in points)
    step = max(1, -(-len(points) // _TRUTH_POINTS))
    rows = sorted(points)[::step]

    def draw(axes: Any) -> None:
        truth = [true for true, _, _, _ in rows]
        errors = [answer - true for true, answer, _, _ in rows]
        below = [max(0.0, answer - low) for _, answer, low, _ in rows]
        above = [max(0.0, high - answer) for _, answer, _, high in rows]
        axes.errorbar(truth, errors, yerr=[below, above], fmt="none", ecolor=GREY, elinewidth=0.6, alpha=0.5, zorder=1)
        axes.axhline(0, color=ORANGE, linewidth=1.2, zorder=2)
        axes.plot(truth, errors, color=BLUE, linestyle="none", marker="o", markersize=2.4, zorder=3)
        axes.set(xlabel="true answer, share of the records", ylabel="answer less truth")
        label_axis(axes.xaxis, axes.yaxis)

    description = f"Largest difference between an answer and the truth: {worst:.3g}, over {len(points):,} queries."
    return draw_plot("truth", "Answers against the truth", description, draw, source=source)


def _plot_epsilon(points: Sequence[tuple[float, float, float]], source: str) -> Plot:
    rows = sorted(points)
    lines = {"expected": (2, {"color": GREEN, "linestyle": "--"}), "measured": (1, {"color": BLUE, "marker": "o"})}
    draw = draw_lines(rows, lines, xlabel="epsilon", ylabel="largest error, share of records")
    first, last = rows[0], rows[-1]
    description = f"Largest error: {first[1]:.3g} at epsilon {first[0]:g}, {last[1]:.3g} at epsilon {last[0]:g}."
    return draw_plot("epsilon", "Largest error against epsilon", description, draw, source=source)
