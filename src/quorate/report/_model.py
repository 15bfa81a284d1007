"""The page of a model: its guarantee, plan, queries, answers and cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quorate.models.linear.curves import Curve
from quorate.planner.result import to_json_values
from quorate.report._pages import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAPER,
    Claim,
    Page,
    Plot,
    Points,
    check_installed,
    check_points,
    draw_plot,
    figure,
    label_axis,
    name_rows,
    percent,
    render,
    words,
)

_SHARES = {"answered", "agreement", "right", "answer_rate", "lasts", "disagreement"}
_PLAN_WORDS = {
    "rows_per_teacher": "units for each teacher",
    "no_quorums": "no-quorums allowed",
    "answered": "expected to be answered",
    "agreement": "of those, with the plurality's label",
    "right": "answered with the plurality's label",
    "answer_rate": "least share asked for",
    "lasts": "chance that no planned query is refused",
    "disagreement": "votes against the plurality",
    "basis": "who says so",
    "published": "published bounds",
    "nearest": "what would do",
}
SHARE_ROWS = 12  # of a plot of shares: the rest are one row
_CURVES = 24  # plots of curves on a page
_CATEGORIES = 30  # of a curve
_BAND_DEVIATIONS = 2.0


@dataclass(frozen=True, slots=True)
class ReportData(Page):
    """The data of a report: *public or released values only*.

    The caller vouches for the values. May stand here: parameters and plans made without private records; released
    answers and what can be counted from them (answers, no-quorums, labels); what the budget was charged for them, as
    long as the no-quorums themselves were released; figures measured on public points with public models, or simulated.
    May not stand here: votes, margins or agreement of teachers that saw private records, accuracy on private records,
    counts of private labels, and any epsilon computed from private votes.

    A section that is None is left out of the page.

    `plan` is what `Plan.as_dict()` returns; `spending` holds points of (queries asked so far, epsilon spent so far),
    one for each batch; `answer_rate` points of (queries asked so far, share of that batch answered); `curves` are those
    of a linear model (`curves_`), and `curves_of` what they add up to; `results` any further figures by name, and
    `headline` those that stand first on the page; `notes` what a reader must know to judge them.
    """

    title: str
    claim: Claim
    plan: Mapping[str, Any] | None = None
    results: Mapping[str, float | int | str] | None = None
    headline: Mapping[str, str] | None = None
    spending: Points | None = None
    answer_rate: Points | None = None
    label_counts: Mapping[str, int] | None = None
    curves: tuple[Curve, ...] | None = None
    curves_of: str | None = None
    proofs: Mapping[str, str] | None = None
    software: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.spending is not None:
            check_points("spending", self.spending, 2)
        if self.answer_rate is not None:
            check_points("answer_rate", self.answer_rate, 2, shares=(1,))

    def as_dict(self) -> dict[str, Any]:
        """Return the same as plain dictionaries, lists, texts and numbers, for JSON."""
        document: dict[str, Any] = to_json_values(self)
        return document

    def render(self) -> str:
        """Return the page as text."""
        check_installed()
        bars, chosen = _rank_candidates(self.plan)
        plots = {
            "spending": _plot_spending(self.spending, self.claim) if self.spending else None,
            "answer_rate": _plot_answer_rate(self.answer_rate) if self.answer_rate else None,
            "candidates": _plot_candidates(bars, chosen) if bars else None,
            "labels": _plot_labels(self.label_counts) if self.label_counts else None,
        }
        return render(
            "model.html",
            data=self,
            plan=_plan_rows(self.plan),
            plots=plots,
            curves=plot_curves(self.curves or ()),
            cards=_cards(self),
            growth=f"{math.exp(min(self.claim.epsilon, 700.0)):.3g}",
        )


def _cards(data: ReportData) -> dict[str, str]:
    cards = dict(data.headline or {})
    if data.spending:
        queries, spent = data.spending[-1]
        cards["queries asked"] = figure(queries)
        cards["epsilon spent so far, ex post"] = f"{spent:.3g} of {data.claim.epsilon:g}"
        if data.label_counts:
            cards["answered"] = percent(sum(data.label_counts.values()) / max(1.0, queries))
    if not data.headline and data.plan and data.plan.get("teachers") is not None:
        cards["teachers"] = figure(data.plan["teachers"])
    return cards


def _plan_rows(plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the table of the plan, without entries that are empty or shown elsewhere on the page."""
    return {
        _PLAN_WORDS.get(name, words(name)): words(value) if name == "aggregator" else _plan_value(name, value)
        for name, value in (plan or {}).items()
        if name not in {"candidates", "epsilon", "delta"} and value not in (None, "", [], {}, ())
    }


def _plan_value(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return [_to_sentence(entry) for entry in value]
    return percent(value) if name in _SHARES and _is_share(value) else value


def _to_sentence(entry: Any) -> Any:
    if not isinstance(entry, Mapping) or "sentence" not in entry:
        return entry
    return f"{entry['citation']}: {entry['sentence']}" if entry.get("citation") else entry["sentence"]


def _rank_candidates(plan: Mapping[str, Any] | None) -> tuple[list[dict[str, Any]], str]:
    """Return the bars of the plan and of its alternatives, best first, and the name of the chosen one."""
    if not plan or not plan.get("candidates"):
        return [], ""
    bars: dict[str, dict[str, Any]] = {}
    for candidate in (plan, *plan["candidates"]):
        name, answered, right = words(candidate.get("aggregator")), candidate.get("answered"), candidate.get("right")
        if _is_share(answered) and _is_share(right):
            bars.setdefault(name, {"name": name, "answered": answered, "right": right})
    return sorted(bars.values(), key=lambda bar: -bar["right"]), words(plan.get("aggregator"))


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _plot_spending(points: Points, claim: Claim) -> Plot:
    queries, spent = zip(*(points if points[0][0] == 0 else [(0, 0.0), *points]), strict=True)

    def draw(axes: Any) -> None:
        axes.axhline(claim.epsilon, color=ORANGE, linestyle="--")
        axes.annotate(
            f"allowed: {claim.epsilon:g}", (0, claim.epsilon), (3, -12), textcoords="offset points", color=ORANGE
        )
        axes.plot(queries, spent, color=BLUE, marker="o")
        axes.set(xlabel="queries asked", ylabel="epsilon spent", xlim=(0, None))
        axes.set_ylim(0, 1.08 * max(claim.epsilon, *spent))
        label_axis(axes.xaxis)

    description = f"After {queries[-1]:,.0f} queries {spent[-1]:.3g} of epsilon {claim.epsilon:g} was spent, ex post."
    return draw_plot("spending", "Budget spent over queries", description, draw)


def _plot_answer_rate(points: Points) -> Plot:
    queries, shares = zip(*points, strict=True)

    def draw(axes: Any) -> None:
        axes.plot(queries, [100 * share for share in shares], color=GREEN, marker="o", clip_on=False)
        axes.set(xlabel="queries asked", ylabel="answered, % of the batch", xlim=(0, None))
        axes.set_ylim(max(0, 10 * int((100 * min(shares) - 2) // 10)), 101)
        label_axis(axes.xaxis)

    description = f"Batch by batch, from {percent(min(shares))} to {percent(max(shares))} of the queries were answered."
    return draw_plot("answer-rate", "Answer rate over queries", description, draw)


def _plot_candidates(bars: Sequence[Mapping[str, Any]], chosen: str) -> Plot:
    """Return the planned alternatives as bars; each has a `name`, and shares `right` and `answered`."""

    def draw(axes: Any) -> None:
        rows = range(len(bars))
        axes.barh(rows, [100 * bar["answered"] for bar in bars], height=0.7, color=GREY)
        colours = [ORANGE if bar["name"] == chosen else BLUE for bar in bars]
        axes.barh(rows, [100 * bar["right"] for bar in bars], height=0.7, color=colours)
        for row, bar in enumerate(bars):
            inside = bar["right"] > 0.2  # there is room for the figure within the bar
            end = bar["right"] if inside else bar["answered"]
            axes.annotate(
                percent(bar["right"]),
                (100 * end, row),
                (-4 if inside else 4, 0),
                textcoords="offset points",
                ha="right" if inside else "left",
                va="center",
                color=PAPER if inside else INK,
            )
        name_rows(axes, [bar["name"] for bar in bars], chosen, "chosen")
        axes.set(xlabel="% of queries (grey: another label)", xlim=(0, 100))

    rates = ", ".join(f"{bar['name']} {percent(bar['right'])}" for bar in bars)
    description = (
        f"Expected share of all queries answered with the teachers' plurality label: {rates}. Chosen: {chosen}."
    )
    height = 0.7 + 0.28 * max(2, len(bars))
    return draw_plot("candidates", "The plan and its alternatives", description, draw, height=height)


def _plot_labels(counts: Mapping[str, int]) -> Plot:
    total = sum(counts.values())
    shares = [(str(name), count / max(1, total)) for name, count in counts.items()]
    return plot_shares("labels", "Labels of the released answers", shares, source=f"{total:,} answers")


def plot_shares(
    name: str, title: str, shares: Sequence[tuple[str, float]], *, source: str = "", limit: int = SHARE_ROWS
) -> Plot:
    """Return shares that add up to a whole, as bars in their order; of more than `limit`, the smallest become one."""
    rows = list(shares)
    if len(rows) > limit:
        large = sorted(range(len(rows)), key=lambda row: -rows[row][1])[: limit - 1]
        rest = sum(share for row, (_, share) in enumerate(rows) if row not in large)
        rows = [rows[row] for row in sorted(large)] + [(f"{len(shares) - len(large)} others", rest)]
    longest = max(1e-9, *(share for _, share in rows))

    def draw(axes: Any) -> None:
        axes.barh(range(len(rows)), [100 * share for _, share in rows], height=0.7, color=BLUE)
        for row, (_, share) in enumerate(rows):
            end = (100 * max(0.0, share), row)
            axes.annotate(percent(share), end, (4, 0), textcoords="offset points", va="center", color=INK)
        name_rows(axes, [name for name, _ in rows])
        axes.set(xlabel="%", xlim=(0, 122 * longest))  # room for the longest bar's figure
        label_axis(axes.xaxis)

    description = ", ".join(f"{name} {percent(share)}" for name, share in rows)
    height = 0.55 + 0.2 * max(2, len(rows))
    return draw_plot(name, title, f"{description}.", draw, source=source, height=height, numbered=True)


def plot_curves(curves: Sequence[Curve]) -> list[Plot]:
    """Return a plot of each curve of the first output of an additive model, those that differ most first."""
    ranked = sorted(curves, key=lambda curve: min(curve.effects[0]) - max(curve.effects[0]))
    return [_plot_curve(f"curve-{rank}", curve) for rank, curve in enumerate(ranked[:_CURVES])]


def _plot_curve(name: str, curve: Curve) -> Plot:
    effects, bands = curve.effects[0], [_BAND_DEVIATIONS * deviation for deviation in curve.deviations[0]]
    low, high = (choose(range(len(effects)), key=effects.__getitem__) for choose in (min, max))
    ends = " and ".join(f"{effects[end]:+.2f} at {_format_value(curve.values[end])}" for end in (low, high))
    rows = sorted(range(len(effects)), key=lambda row: -effects[row])[:_CATEGORIES]

    def draw(axes: Any) -> None:
        if curve.numeric:
            _draw_numbers(axes, curve, bands)
        else:
            _draw_categories(axes, curve, bands, rows)

    height = None if curve.numeric else 0.8 + 0.22 * max(2, len(rows))
    return draw_plot(name, f"What {curve.column} adds", f"It adds {ends}.", draw, height=height)


def _draw_numbers(axes: Any, curve: Curve, bands: Sequence[float]) -> None:
    effects = curve.effects[0]
    lower, upper = ([e + sign * b for e, b in zip(effects, bands, strict=True)] for sign in (-1, 1))
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.fill_between(curve.values, lower, upper, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(curve.values, effects, color=BLUE)
    axes.set(xlabel=curve.column, ylabel="adds")
    if isinstance(curve.values[0], datetime):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

        locator = AutoDateLocator(maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    else:
        label_axis(axes.xaxis)
    label_axis(axes.yaxis)


def _draw_categories(axes: Any, curve: Curve, bands: Sequence[float], rows: Sequence[int]) -> None:
    axes.axvline(0.0, color=GREY, linewidth=0.8)
    effects, errors = [curve.effects[0][row] for row in rows], [bands[row] for row in rows]
    axes.errorbar(effects, range(len(rows)), xerr=errors, color=BLUE, linestyle="none", marker="o", capsize=2)
    name_rows(axes, [str(curve.values[row]) for row in rows])
    axes.set(xlabel="adds")
    label_axis(axes.xaxis)


def _format_value(value: float | str | datetime) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat()
    return value if isinstance(value, str) else figure(value)
