"""The plots of a release's page: its engines before the run, and its errors on simulated records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quorate.report.axes import logarithmic, logarithmic_at, named_rows, plain
from quorate.report.drawing import BLUE, GREEN, GREY, LINE, ORANGE, Plot, draw_plot
from quorate.report.words import words

__all__ = ["draw_lines", "plot_answers", "plot_engines", "plot_epsilon", "plot_truth"]

_MOST_POINTS = 800  # drawn one by one
_MOST_ANSWERS = 12  # drawn as bars


def plot_engines(engines: Sequence[tuple[str, float]], chosen: str) -> Plot:
    """Return the expected largest error of each engine, the smallest on top."""
    best = [(words(name), error) for name, error in sorted(engines, key=lambda one: one[1])]
    used, errors = words(chosen), [error for _, error in best]

    def draw(axes: Any) -> None:
        logarithmic(axes.xaxis, errors, labels=4)
        for place, (name, error) in enumerate(best):
            colour = ORANGE if name == used else BLUE
            axes.axhline(place, color=LINE, linewidth=0.8)
            axes.plot([error], [place], color=colour, marker="D" if name == used else "o", markersize=7)
            axes.annotate(f"{error:.3g}", (error, place), (7, 2), textcoords="offset points")
        named_rows(axes, [name for name, _ in best], used, "used")
        axes.margins(x=0.25)  # room for the last figure
        axes.set_xlabel("largest error, share of records")

    shown = ", ".join(f"{name} {error:.3g}" for name, error in best)
    description = f"Expected largest error: {shown}. Used: {used}."
    return draw_plot("engines", "The engines, before the run", description, draw, height=0.75 + 0.3 * len(best))


def plot_answers(answers: Sequence[Mapping[str, Any]], more: int) -> Plot:
    """Return answers as bars with their intervals, where they are known."""
    shown = answers[:_MOST_ANSWERS]

    def draw(axes: Any) -> None:
        for place, row in enumerate(shown):
            axes.barh(place, row["answer"], height=0.6, color=BLUE)
            if row.get("low") is not None and row.get("high") is not None:
                axes.plot([row["low"], row["high"]], [place, place], color=ORANGE, linewidth=1.6)
        named_rows(axes, [str(row["query"]) for row in shown], "", "")
        axes.set(xlabel="share of the records", xlim=(0, None))
        plain(axes.xaxis)

    least, most = (choose(shown, key=lambda row: row["answer"]) for choose in (min, max))
    rest = len(answers) - len(shown) + more
    description = f"From {least['answer']:.3g} ({least['query']}) to {most['answer']:.3g} ({most['query']})" + (
        f"; {rest:,} more were released." if rest else "."
    )
    return draw_plot("answers", "Answers and 95% intervals", description, draw, height=0.7 + 0.24 * max(2, len(shown)))


def plot_truth(points: Sequence[tuple[float, float, float, float]], source: str) -> Plot:
    """Return how far answers are from the truth, with error bars where they are known."""
    worst = max(abs(point[1] - point[0]) for point in points)
    step = max(1, -(-len(points) // _MOST_POINTS))
    shown = sorted(points)[::step]

    def draw(axes: Any) -> None:
        truth = [point[0] for point in shown]
        off = [point[1] - point[0] for point in shown]
        below = [max(0.0, point[1] - point[2]) for point in shown]
        above = [max(0.0, point[3] - point[1]) for point in shown]
        axes.errorbar(truth, off, yerr=[below, above], fmt="none", ecolor=GREY, elinewidth=0.6, alpha=0.5, zorder=1)
        axes.axhline(0, color=ORANGE, linewidth=1.2, zorder=2)
        axes.plot(truth, off, color=BLUE, linestyle="none", marker="o", markersize=2.4, zorder=3)
        axes.set(xlabel="true answer, share of the records", ylabel="answer less truth")
        plain(axes.xaxis)
        plain(axes.yaxis)

    description = f"Largest difference between an answer and the truth: {worst:.3g}, over {len(points):,} queries."
    return draw_plot("truth", "Answers against the truth", description, draw, source=source)


def plot_epsilon(points: Sequence[tuple[float, float, float]], source: str) -> Plot:
    """Return the largest error against epsilon, measured and expected."""
    rows = sorted(points)
    lines = {"expected": (2, {"color": GREEN, "linestyle": "--"}), "measured": (1, {"color": BLUE, "marker": "o"})}
    draw = draw_lines(rows, lines, xlabel="epsilon", ylabel="largest error, share of records")
    first, last = rows[0], rows[-1]
    description = f"Largest error: {first[1]:.3g} at epsilon {first[0]:g}, {last[1]:.3g} at epsilon {last[0]:g}."
    return draw_plot("epsilon", "Largest error against epsilon", description, draw, source=source)


def draw_lines(
    rows: Sequence[tuple[float, ...]], lines: Mapping[str, tuple[int, dict[str, str]]], *, xlabel: str, ylabel: str
) -> Callable[[Any], None]:
    """Return what draws lines, each a place in a row and a style, against the first figure of a row; both axes log."""
    across = [row[0] for row in rows]

    def draw(axes: Any) -> None:
        for label, (place, style) in lines.items():
            axes.plot(across, [row[place] for row in rows], label=label, **style)
        logarithmic_at(axes.xaxis, across)
        logarithmic(axes.yaxis, [error for row in rows for error in row[1:]])
        axes.legend(loc="best")
        axes.set(xlabel=xlabel, ylabel=ylabel)

    return draw
