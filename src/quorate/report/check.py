"""The page of a private test of a model: its figures by group, with their intervals, and its calibration."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorate.models.evaluation import ModelCheck
from quorate.report.axes import named_rows, plain
from quorate.report.data import Claim, software_versions
from quorate.report.drawing import BLUE, GREY, ORANGE, Plot, draw_plot
from quorate.report.rendering import check_installed, render, write_page
from quorate.report.words import percent

__all__ = ["CheckReport", "render_check", "write_check_report"]

_MOST_ROWS = 24  # figures of a plot; the table has all
_PROOFS = {
    "quorate/models/evaluation/PROOF.md": "one unit moves two counts of each grid by one, and why the intervals cover",
    "quorate/core/mechanisms/PROOF_noisy_vector.md": "what counts with discrete Gaussian noise cost",
}


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What the page shows: released figures alone."""

    check: ModelCheck
    title: str = "A private test of a model"
    software: Mapping[str, str] = field(default_factory=software_versions)
    proofs: Mapping[str, str] = field(default_factory=lambda: _PROOFS)

    @property
    def claim(self) -> Claim:
        """The guarantee of the test."""
        return Claim(epsilon=self.check.epsilon, delta=self.check.delta, unit=self.check.unit)

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know of the figures."""
        return (
            f"{self.check.claim[0].upper()}{self.check.claim[1:]}.",
            f"Each interval covers with a probability of at least {percent(self.check.confidence, 0)}, by itself; it "
            "counts the noise and that the records are a sample. Intervals are wide rather than wrong.",
            "A probability is rounded to its bin before the area under the curve (auc) is computed.",
            "Figures of which the noise leaves nothing to say are left out.",
        )


def write_check_report(data: CheckReport, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` and return that path. A file that stands there is replaced."""
    return write_page(render_check(data), path)


def render_check(data: CheckReport) -> str:
    """Return the page as text."""
    check_installed()
    check, error = data.check, data.check.measure("error")
    rows = [
        {"name": one.said} | {end: f"{getattr(one.interval, end):.3f}" for end in ("estimate", "low", "high")}
        for one in check.measures
        if one.interval.says
    ]
    cards = {"held-out units": f"{check.units:,}", "error": percent(error.estimate), "at most": percent(error.high)}
    plots = [_plot_measures(check), *([_plot_calibration(check)] if check.calibration else [])]
    return render("check.html", data=data, rows=rows, cards=cards, plots=plots)


def _plot_measures(check: ModelCheck) -> Plot:
    """Return the figures with their intervals, in the order of the table."""
    shown = [one for one in check.measures if one.interval.says][:_MOST_ROWS]

    def draw(axes: Any) -> None:
        for place, one in enumerate(shown):
            axes.plot([one.interval.low, one.interval.high], [place, place], color=BLUE, linewidth=2.0)
            axes.plot([one.interval.estimate], [place], color=BLUE, marker="o", markersize=5)
        named_rows(axes, [one.said for one in shown], "", "")
        axes.set(xlim=(0, 1))
        plain(axes.xaxis)

    described = ", ".join(f"{one.said} {one.interval.estimate:.3f}" for one in shown)
    title = f"Figures and {percent(check.confidence, 0)} intervals"
    source = "held-out records, with noise"
    return draw_plot("measures", title, f"{described}.", draw, source=source, height=0.6 + 0.26 * max(2, len(shown)))


def _plot_calibration(check: ModelCheck) -> Plot:
    """Return how often it was so, with intervals, against what the model said."""
    shown = [row for row in check.calibration if row.group == "all" and row.seen.says]
    wrong = sum(not row.calibrated for row in shown)

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, zorder=1)
        for row in shown:
            middle, colour = (row.low + row.high) / 2, BLUE if row.calibrated else ORANGE
            axes.plot([middle, middle], [row.seen.low, row.seen.high], color=colour, linewidth=1.2, zorder=2)
            axes.plot([row.low, row.high], [row.seen.estimate] * 2, color=colour, linewidth=2.4, zorder=3)
        axes.set(xlabel="probability that the model said", ylabel="how often it was so", xlim=(0, 1), ylim=(0, 1))
        plain(axes.xaxis)
        plain(axes.yaxis)

    description = f"{len(shown)} bins of probabilities; in {wrong} of them the interval misses what the model said."
    return draw_plot("calibration", "Calibration", description, draw, source="held-out records, with noise")
