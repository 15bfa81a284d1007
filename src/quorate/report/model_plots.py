"""The plots of a model's page: what was planned, paid, answered, and measured on public points."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quorate.report.axes import logarithmic_at, named_rows, plain
from quorate.report.data import Accuracy, Agreement, Claim, Points
from quorate.report.drawing import BLUE, GREEN, GREY, INK, ORANGE, PAPER, Plot, draw_plot
from quorate.report.words import percent

__all__ = [
    "plot_accuracy",
    "plot_agreement",
    "plot_answer_rate",
    "plot_candidates",
    "plot_shares",
    "plot_spending",
]

_MOST_ROWS = 12  # of a plot of shares: the rest are one row


def plot_spending(points: Points, claim: Claim) -> Plot:
    """Return epsilon spent so far (ex post) over queries asked, with the line that it may not pass."""
    asked, spent = _columns(points if points[0][0] == 0 else [(0, 0.0), *points])

    def draw(axes: Any) -> None:
        axes.axhline(claim.epsilon, color=ORANGE, linestyle="--")
        axes.annotate(
            f"allowed: {claim.epsilon:g}", (0, claim.epsilon), (3, -12), textcoords="offset points", color=ORANGE
        )
        axes.plot(asked, spent, color=BLUE, marker="o")
        axes.set(xlabel="queries asked", ylabel="epsilon spent", xlim=(0, None))
        axes.set_ylim(0, 1.08 * max(claim.epsilon, *spent))
        plain(axes.xaxis)

    description = f"After {asked[-1]:,.0f} queries {spent[-1]:.3g} of epsilon {claim.epsilon:g} was spent, ex post."
    return draw_plot("spending", "Budget spent over queries", description, draw)


def plot_answer_rate(points: Points) -> Plot:
    """Return the share of each batch that was answered."""
    asked, shares = _columns(points)

    def draw(axes: Any) -> None:
        axes.plot(asked, [100 * share for share in shares], color=GREEN, marker="o", clip_on=False)
        axes.set(xlabel="queries asked", ylabel="answered, % of the batch", xlim=(0, None))
        axes.set_ylim(max(0, 10 * int((100 * min(shares) - 2) // 10)), 101)
        plain(axes.xaxis)

    description = f"Batch by batch, from {percent(min(shares))} to {percent(max(shares))} of the queries were answered."
    return draw_plot("answer-rate", "Answer rate over queries", description, draw)


def plot_accuracy(accuracy: Accuracy) -> Plot:
    """Return accuracy and answer rate against epsilon."""
    rows = sorted(accuracy.points)
    epsilons, right, answered = ([row[place] for row in rows] for place in range(3))

    def draw(axes: Any) -> None:
        axes.plot(epsilons, [100 * share for share in right], color=BLUE, marker="o", label="right, % of the answers")
        axes.plot(
            epsilons,
            [100 * share for share in answered],
            color=GREEN,
            marker="s",
            linestyle="--",
            label="answered, % of the queries",
        )
        logarithmic_at(axes.xaxis, epsilons)
        axes.set(xlabel="epsilon", ylabel="%", ylim=(0, 104))
        axes.legend(loc="best")

    first, best = rows[0], rows[-1]
    description = (
        f"At epsilon {best[0]:g}, {percent(best[2])} of the queries are answered and {percent(best[1])} of the "
        f"answers are right; at epsilon {first[0]:g}, {percent(first[2])} and {percent(first[1])}."
    )
    return draw_plot("accuracy", "Accuracy against epsilon", description, draw, source=accuracy.source)


def plot_agreement(agreement: Agreement) -> Plot:
    """Return the histogram of the plurality's share on public points."""
    counts, bins = agreement.counts, len(agreement.counts)
    total = max(1, sum(counts))
    first = next((place for place, count in enumerate(counts) if count), 0)

    def draw(axes: Any) -> None:
        places = [100 * place / bins for place in range(bins)]
        heights = [100 * count / total for count in counts]
        axes.bar(places, heights, width=0.92 * 100 / bins, align="edge", color=BLUE)
        axes.set(xlabel="share of the plurality, %", ylabel="% of the public points")
        axes.set_xlim(min(50, 100 * first / bins), 100)

    clear = sum(counts[-(-9 * bins // 10) :]) / total
    description = f"On {percent(clear)} of the public points at least nine teachers in ten agree."
    return draw_plot("agreement", "Agreement on public points", description, draw, source=agreement.source)


def plot_candidates(bars: Sequence[Mapping[str, Any]], chosen: str) -> Plot:
    """Return the planned alternatives as bars; each has a `name`, and shares `right` and `answered`."""

    def draw(axes: Any) -> None:
        places = range(len(bars))
        axes.barh(places, [100 * bar["answered"] for bar in bars], height=0.7, color=GREY)
        colours = [ORANGE if bar["name"] == chosen else BLUE for bar in bars]
        axes.barh(places, [100 * bar["right"] for bar in bars], height=0.7, color=colours)
        for place, bar in enumerate(bars):
            inside = bar["right"] > 0.2  # there is room for the figure within the bar
            end = bar["right"] if inside else bar["answered"]
            axes.annotate(
                percent(bar["right"]),
                (100 * end, place),
                (-4 if inside else 4, 0),
                textcoords="offset points",
                ha="right" if inside else "left",
                va="center",
                color=PAPER if inside else INK,
            )
        named_rows(axes, [bar["name"] for bar in bars], chosen, "chosen")
        axes.set(xlabel="% of queries (grey: another label)", xlim=(0, 100))

    shown = ", ".join(f"{bar['name']} {percent(bar['right'])}" for bar in bars)
    description = (
        f"Expected share of all queries answered with the teachers' plurality label: {shown}. Chosen: {chosen}."
    )
    return draw_plot(
        "candidates", "The plan and its alternatives", description, draw, height=0.7 + 0.28 * max(2, len(bars))
    )


def plot_shares(name: str, title: str, shares: Sequence[tuple[str, float]], *, source: str = "") -> Plot:
    """Return shares that add up to a whole, as bars in the order given; the smallest of many become one row."""
    rows = list(shares)
    if len(rows) > _MOST_ROWS:
        kept = sorted(range(len(rows)), key=lambda place: -rows[place][1])[: _MOST_ROWS - 1]
        rest = sum(share for place, (_, share) in enumerate(rows) if place not in kept)
        rows = [rows[place] for place in sorted(kept)] + [(f"{len(shares) - len(kept)} others", rest)]
    most = max(1e-9, *(share for _, share in rows))

    def draw(axes: Any) -> None:
        axes.barh(range(len(rows)), [100 * share for _, share in rows], height=0.7, color=BLUE)
        for place, (_, share) in enumerate(rows):
            end = (100 * max(0.0, share), place)
            axes.annotate(percent(share), end, (4, 0), textcoords="offset points", va="center", color=INK)
        named_rows(axes, [name for name, _ in rows], "", "")
        axes.set(xlabel="%", xlim=(0, 122 * most))  # room for the longest bar's figure
        plain(axes.xaxis)

    description = ", ".join(f"{name} {percent(share)}" for name, share in rows)
    plot = draw_plot(name, title, f"{description}.", draw, source=source, height=0.55 + 0.2 * max(2, len(rows)))
    return replace(plot, numbered=True)


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [point[0] for point in points], [point[1] for point in points]
