"""The plots of a report, as SVG that stands inside the page, in colours that follow light and dark."""

import html
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quorate.report.data import Accuracy, Agreement, Claim, Points

__all__ = ["Plot", "plot_accuracy", "plot_agreement", "plot_answer_rate", "plot_candidates", "plot_spending"]

# The colours of Okabe and Ito, told apart by colour-blind readers. The page gives each name a light and a dark value.
_BLUE, _ORANGE, _GREEN = "#0072b2", "#d55e00", "#009e73"
_INK, _LINE = "#111213", "#c0c1c2"
_COLOURS = {
    _BLUE: "var(--blue)",
    _ORANGE: "var(--orange)",
    _GREEN: "var(--green)",
    _INK: "currentColor",
    _LINE: "var(--line)",
}
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and read aloud
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), _LINE),
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with the words that stand for it where it cannot be seen.

    >>> Plot(name="spending", title="Budget", description="A line.", svg="<svg></svg>").name
    'spending'
    """

    name: str
    title: str
    description: str
    svg: str


def plot_spending(points: Points, claim: Claim) -> Plot:
    """Return epsilon spent over queries asked, with the line that it may not pass.

    >>> plot_spending(((100, 0.2), (200, 0.5)), Claim(epsilon=1.0, delta=1e-6)).description
    'After 200 queries 0.5 of epsilon 1 was spent.'
    """
    asked, spent = _columns(points if points[0][0] == 0 else [(0, 0.0), *points])

    def draw(axes: Any) -> None:
        axes.axhline(claim.epsilon, color=_ORANGE, linestyle="--")
        axes.annotate(
            f"allowed: {claim.epsilon:g}", (0, claim.epsilon), (2, -11), textcoords="offset points", color=_ORANGE
        )
        axes.plot(asked, spent, color=_BLUE)
        axes.set(
            xlabel="queries asked", ylabel="epsilon spent", xlim=(0, None), ylim=(0, 1.08 * max(claim.epsilon, *spent))
        )
        _thousands(axes.xaxis)

    words = f"After {asked[-1]:,.0f} queries {spent[-1]:.3g} of epsilon {claim.epsilon:g} was spent."
    return _plot("spending", "Budget spent over queries", words, draw)


def plot_answer_rate(points: Points) -> Plot:
    """Return the share of each batch that was answered.

    >>> plot_answer_rate(((100, 0.95), (200, 0.97))).description
    'Batch by batch, from 95.0% to 97.0% of the queries were answered.'
    """
    asked, shares = _columns(points)
    percent = [100 * share for share in shares]

    def draw(axes: Any) -> None:
        axes.plot(asked, percent, color=_GREEN, marker="o", markersize=3)
        lowest = min(percent)
        axes.set(xlabel="queries asked", ylabel="answered, % of the batch", xlim=(0, None))
        axes.set_ylim(max(0, 10 * int((lowest - 2) // 10)), 101)
        _thousands(axes.xaxis)

    words = f"Batch by batch, from {min(percent):.1f}% to {max(percent):.1f}% of the queries were answered."
    return _plot("answer-rate", "Answer rate over queries", words, draw)


def plot_accuracy(accuracy: Accuracy) -> Plot:
    """Return accuracy and answer rate against epsilon.

    >>> plot_accuracy(Accuracy(points=((0.5, 0.9, 0.8), (1.0, 0.94, 0.95)), source="simulated")).name
    'accuracy'
    """
    rows = sorted(accuracy.points)
    epsilons, right, answered = ([row[place] for row in rows] for place in range(3))

    def draw(axes: Any) -> None:
        axes.plot(
            epsilons, [100 * value for value in right], color=_BLUE, marker="o", markersize=3, label="right, of answers"
        )
        axes.plot(
            epsilons,
            [100 * value for value in answered],
            color=_GREEN,
            marker="s",
            markersize=3,
            linestyle="--",
            label="answered",
        )
        if min(epsilons) > 0:
            axes.set_xscale("log")
            axes.set_xticks(epsilons, [f"{value:g}" for value in epsilons])
            axes.minorticks_off()
        axes.set(xlabel="epsilon", ylabel="%", ylim=(0, 104))
        axes.legend(loc="lower right")

    best = rows[-1]
    words = (
        f"At epsilon {best[0]:g}, {100 * best[2]:.1f}% of the queries are answered and {100 * best[1]:.1f}% of the "
        f"answers are right; at epsilon {rows[0][0]:g}, {100 * rows[0][2]:.1f}% and {100 * rows[0][1]:.1f}%."
    )
    return _plot("accuracy", f"Accuracy against epsilon ({accuracy.source})", words, draw)


def plot_agreement(agreement: Agreement) -> Plot:
    """Return the histogram of the plurality's share on public points.

    >>> plot_agreement(Agreement.of([0.95, 1.0, 0.6, 1.0], source="simulated")).description
    'On 75.0% of the public points at least nine teachers in ten agree.'
    """
    counts, bins = agreement.counts, len(agreement.counts)
    total = max(1, sum(counts))
    first = next((place for place, count in enumerate(counts) if count), 0)

    def draw(axes: Any) -> None:
        places = [100 * place / bins for place in range(bins)]
        heights = [100 * count / total for count in counts]
        axes.bar(places, heights, width=0.92 * 100 / bins, align="edge", color=_BLUE)
        axes.set(xlabel="share of the plurality, %", ylabel="% of the public points")
        axes.set_xlim(min(50, 100 * first / bins), 100)

    clear = sum(counts[-(-9 * bins // 10) :]) / total
    words = f"On {100 * clear:.1f}% of the public points at least nine teachers in ten agree."
    return _plot("agreement", f"Agreement on public points ({agreement.source})", words, draw)


def plot_candidates(bars: Sequence[Mapping[str, Any]], chosen: str) -> Plot:
    """Return the planned alternatives as bars; each has a `name`, and shares `right` and `answered`.

    >>> plot_candidates([{"name": "quorum", "right": 0.93, "answered": 0.97}], "quorum").description
    "Expected share of all queries answered with the teachers' plurality label: quorum 93.0%. Chosen: quorum."
    """
    rows = list(bars)[::-1]

    def draw(axes: Any) -> None:
        places = range(len(rows))
        answered = [100 * row["answered"] for row in rows]
        right = [100 * row["right"] for row in rows]
        axes.barh(places, answered, height=0.7, color=_LINE, label="answered")
        colours = [_ORANGE if row["name"] == chosen else _BLUE for row in rows]
        axes.barh(places, right, height=0.7, color=colours, label="right")
        axes.set_yticks(places, [row["name"] + (" (chosen)" if row["name"] == chosen else "") for row in rows])
        axes.set(xlabel="right, % of queries (grey: answered)", xlim=(0, 100))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)

    shown = ", ".join(f"{row['name']} {100 * row['right']:.1f}%" for row in bars)
    words = f"Expected share of all queries answered with the teachers' plurality label: {shown}. Chosen: {chosen}."
    return _plot("candidates", "The plan and its alternatives", words, draw, height=0.9 + 0.32 * len(rows))


def _plot(name: str, title: str, description: str, draw: Callable[[Any], None], height: float = 2.7) -> Plot:
    import matplotlib  # noqa: PLC0415
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that this font lacks: the reader's browser has it
        figure = Figure(figsize=(4.8, height), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        axes.grid(visible=True, linewidth=0.6)
        draw(axes)
        stream = io.StringIO()
        no_words = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(stream, metadata=no_words)
    return Plot(name, title, description, _inline(stream.getvalue(), name, title, description))


def _inline(svg: str, name: str, title: str, description: str) -> str:
    """Return the drawing as it stands in a page: own ids, no addresses, colours by name, words to be read aloud."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", body, count=1)
    for colour, variable in _COLOURS.items():
        body = body.replace(colour, variable)
    words = (
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    opening = f'<svg role="img" aria-labelledby="{name}-title {name}-desc"'
    return re.sub(r"<svg([^>]*)>", lambda found: f"{opening}{found[1]}>{words}", body, count=1)


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [point[0] for point in points], [point[1] for point in points]


def _thousands(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_major_locator(_ticks())


def _ticks() -> Any:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    return MaxNLocator(nbins=5, integer=True)
