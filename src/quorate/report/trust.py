"""The pages of a private test of a model and of an audit: figures with intervals, and how close attacks came."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quorate.models.evaluation import ModelCheck
from quorate.report._pages import (
    BLUE,
    GREY,
    ORANGE,
    Claim,
    Page,
    Plot,
    check_installed,
    draw_plot,
    label_axis,
    percent,
    plot_bars,
    proofs_for,
    render,
    software_versions,
)

if TYPE_CHECKING:
    from quorate.auditing import Verdict

_PLOT_ROWS = 24  # figures of a plot; the table has all
_SOURCE = "held-out records, with noise"


@dataclass(frozen=True, kw_only=True)
class CheckReport(Page):
    """The data of the page: released figures alone."""

    check: ModelCheck
    title: str = "A private test of a model"
    software: Mapping[str, str] = field(default_factory=software_versions)
    proofs: Mapping[str, str] = field(default_factory=lambda: proofs_for("check"))

    @property
    def claim(self) -> Claim:
        """The guarantee of the test."""
        return Claim(epsilon=self.check.epsilon, delta=self.check.delta, unit=self.check.unit)

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the interpretation of the figures."""
        return (
            f"{self.check.claim[0].upper()}{self.check.claim[1:]}.",
            f"Each interval covers with a probability of at least {percent(self.check.confidence, 0)}, by itself; it "
            "counts the noise and that the records are a sample. Intervals are wide rather than wrong.",
            "A probability is rounded to its bin before the area under the curve (auc) is computed.",
            "Figures of which the noise leaves nothing to say are left out.",
        )

    def render(self) -> str:
        """Return the page as text."""
        check_installed()
        check, error = self.check, self.check.measure("error")
        rows = [
            {"name": measure.title}
            | {end: f"{getattr(measure.interval, end):.3f}" for end in ("estimate", "low", "high")}
            for measure in check.measures
            if measure.interval.says
        ]
        cards = {"held-out units": f"{check.units:,}", "error": percent(error.estimate), "at most": percent(error.high)}
        plots = [_plot_measures(check), *([_plot_calibration(check)] if check.calibration else [])]
        return render("check.html", data=self, rows=rows, cards=cards, plots=plots)


def _plot_measures(check: ModelCheck) -> Plot:
    measures = [measure for measure in check.measures if measure.interval.says][:_PLOT_ROWS]
    intervals = [(measure.title, measure.interval) for measure in measures]
    description = ", ".join(f"{title} {interval.estimate:.3f}" for title, interval in intervals)
    bars = [(title, interval.estimate, interval.low, interval.high, False) for title, interval in intervals]
    title = f"Figures and {percent(check.confidence, 0)} intervals"
    return plot_bars("measures", title, f"{description}.", bars, source=_SOURCE, xlim=(0, 1))


def _plot_calibration(check: ModelCheck) -> Plot:
    bins = [row for row in check.calibration if row.group == "all" and row.seen.says]
    wrong = sum(not row.calibrated for row in bins)

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, zorder=1)
        for row in bins:
            middle, colour = (row.low + row.high) / 2, BLUE if row.calibrated else ORANGE
            axes.plot([middle, middle], [row.seen.low, row.seen.high], color=colour, linewidth=1.2, zorder=2)
            axes.plot([row.low, row.high], [row.seen.estimate] * 2, color=colour, linewidth=2.4, zorder=3)
        axes.set(xlabel="probability that the model said", ylabel="how often it was so", xlim=(0, 1), ylim=(0, 1))
        label_axis(axes.xaxis, axes.yaxis)

    description = f"{len(bins)} bins of probabilities; in {wrong} of them the interval misses what the model said."
    return draw_plot("calibration", "Calibration", description, draw, source=_SOURCE)


@dataclass(frozen=True, kw_only=True)
class AuditReport(Page):
    """The contents of the page; `replays` has (name, words, sound)."""

    verdicts: "Sequence[Verdict]"
    replays: Sequence[tuple[str, str, bool]] = ()
    software: Mapping[str, str] = field(default_factory=software_versions)
    title: str = "Audit of every claim"

    @property
    def violated(self) -> int:
        """How many claims an attack showed to be false."""
        return sum(verdict.violated for verdict in self.verdicts)

    def render(self) -> str:
        """Return the page as text."""
        verdicts = sorted(self.verdicts, key=lambda verdict: -verdict.ratio)
        return render("audit.html", data=self, cards=_cards(self), claims=[_claim(verdict) for verdict in verdicts])


def _claim(verdict: "Verdict") -> dict[str, Any]:
    """Return a verdict with what its bar needs: how much of the claim was shown, and where the exact figure stands."""
    exact = None if verdict.exact is None else _width(verdict.exact, verdict.claim[0])
    attack = _width(verdict.lower_bound, verdict.claim[0])
    return {"verdict": verdict, "share": _of_claim(verdict.ratio), "shown": attack, "exact": exact}


def _width(epsilon: float, claimed: float) -> str:
    return percent(epsilon / claimed if epsilon < claimed else 1.0)


def _of_claim(ratio: float) -> str:
    return percent(ratio, 0) if ratio < 10 else "over 1,000%"


def _cards(data: AuditReport) -> dict[str, str]:
    cards = {"claims attacked": str(len(data.verdicts)), "shown to be false": str(data.violated)}
    if data.verdicts:
        closest = max(data.verdicts, key=lambda verdict: verdict.ratio)
        cards["closest to its claim"] = _of_claim(closest.ratio)
        cards["plays of each world"] = f"{max(verdict.plays for verdict in data.verdicts):,}"
    if data.replays:
        cards["replays sound"] = f"{sum(sound for _, _, sound in data.replays)} of {len(data.replays)}"
    return cards
