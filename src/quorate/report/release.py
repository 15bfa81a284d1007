"""The page of a release: what was promised, what it cost, how good it is on simulated data."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorate.report.data import Claim
from quorate.report.drawing import Plot
from quorate.report.model_plots import plot_shares
from quorate.report.release_plots import (
    plot_answers,
    plot_engines,
    plot_epsilon,
    plot_truth,
)
from quorate.report.rendering import check_installed, render, write_page
from quorate.report.words import decimals_for, figure, words

__all__ = ["ReleaseReport", "render_release", "write_release_report"]

_SAID_ABOVE = {"epsilon", "delta", "privacy_unit"}  # by the guarantee
_MOST_COLUMNS = 12  # plots of columns on a page


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What the page of a release may show: public and released values, and figures from simulated data.

    `truth` has (true share, answer, low, high) of simulated records, and `errors` (epsilon, largest error measured on
    simulated records, expected one). `engines` are (name, expected error), `answers` rows of the released table,
    `shares` each column with the released share of each of its values. `source` says what was simulated, `utility` in
    sentences what the release is worth.
    """

    title: str
    claim: Claim
    planned: bool = False  # or released
    cards: Mapping[str, str] = field(default_factory=dict)
    bill: Mapping[str, Any] = field(default_factory=dict)
    engines: Sequence[tuple[str, float]] = ()
    engine: str = ""
    sentences: Sequence[str] = ()
    truth: Sequence[tuple[float, float, float, float]] = ()
    errors: Sequence[tuple[float, float, float]] = ()
    source: str = "simulated records"
    utility: Sequence[str] = ()
    shares: Sequence[tuple[str, Sequence[tuple[str, float]]]] = ()
    answers: Sequence[Mapping[str, Any]] = ()
    more: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)
    proofs: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def write_release_report(data: ReleaseReport, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` and return that path. A file that stands there is replaced."""
    return write_page(render_release(data), path)


def render_release(data: ReleaseReport) -> str:
    """Return the page as text."""
    check_installed()
    return render(
        "release.html",
        data=data,
        cards=data.cards,
        bill={name: value for name, value in data.bill.items() if name not in _SAID_ABOVE},
        pictures=_pictures(data),
        plots=_plots(data),
        answers=_answer_rows(data.answers),
        timing={name: f"{seconds:.3g} s" for name, seconds in data.timing.items()},
    )


def _plots(data: ReleaseReport) -> list[Plot]:
    """Return the plots there are figures for; one engine alone has nothing to be compared with."""
    drawn = [
        plot_truth(data.truth, data.source) if data.truth else None,
        plot_epsilon(data.errors, data.source) if data.errors else None,
        plot_engines(data.engines, data.engine) if len(data.engines) > 1 else None,
    ]
    return [plot for plot in drawn if plot is not None]


def _pictures(data: ReleaseReport) -> list[Plot]:
    """Return what was released as bars: the columns one by one, or else the answers."""
    if data.shares:
        return [
            plot_shares(f"column-{place}", f"Shares by {words(column)}", values)
            for place, (column, values) in enumerate(data.shares[:_MOST_COLUMNS])
        ]
    return [plot_answers(data.answers, data.more)] if data.answers else []


def _answer_rows(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the table of answers as text, with as many decimals in every row as the errors are worth."""
    errors = [row["error"] for row in answers if row.get("error")]
    decimals = decimals_for(min(errors, default=0.0))
    return [
        {name: f"{value:.{decimals}f}" if isinstance(value, float) else figure(value) for name, value in row.items()}
        for row in answers
    ]
