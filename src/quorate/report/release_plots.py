"""The plots of a release, drawn as those of every report are."""

from collections.abc import Sequence
from typing import Any

from quorate.report.plots import _BLUE, _GREEN, _INK, _LINE, _ORANGE, Plot, _plot

__all__ = ["plot_crossover", "plot_engines", "plot_epsilon", "plot_public_size", "plot_truth"]

_MOST_POINTS = 800  # drawn one by one


def plot_engines(engines: Sequence[tuple[str, float]], chosen: str) -> Plot:
    """Return the expected largest error of each engine as bars, the smallest on top.

    >>> plot_engines([("prefix", 0.002), ("plain", 0.004)], "prefix").description
    'Expected largest error: prefix 0.002, plain 0.004. Used: prefix.'
    """
    best = sorted(engines, key=lambda one: one[1])
    rows = best[::-1]

    def draw(axes: Any) -> None:
        places = range(len(rows))
        colours = [_ORANGE if name == chosen else _BLUE for name, _ in rows]
        axes.barh(places, [error for _, error in rows], height=0.7, color=colours)
        names = [name.replace("_", " ") + (" (used)" if name == chosen else "") for name, _ in rows]
        axes.set_yticks(places, names)
        errors = [error for _, error in rows]
        if min(errors) > 0 and max(errors) > 8 * min(errors):
            axes.set_xscale("log")
            axes.set_xlim(min(errors) / 2, None)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set(xlabel="expected largest error")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)

    words = ", ".join(f"{name.replace('_', ' ')} {error:.3g}" for name, error in best)
    text = f"Expected largest error: {words}. Used: {chosen.replace('_', ' ')}."
    return _plot("engines", "The engines, before the run", text, draw, height=0.9 + 0.32 * len(rows))


def plot_truth(points: Sequence[tuple[float, float, float, float]], source: str) -> Plot:
    """Return answers against the truth, with error bars where they are known.

    >>> plot_truth([(0.5, 0.52, 0.5, 0.54), (0.1, 0.1, 0.08, 0.12)], "simulated").description
    'Largest difference between an answer and the truth: 0.02, over 2 queries.'
    """
    worst = max(abs(point[1] - point[0]) for point in points)
    step = max(1, -(-len(points) // _MOST_POINTS))
    shown = sorted(points)[::step]

    def draw(axes: Any) -> None:
        low, high = min(point[0] for point in points), max(point[0] for point in points)
        axes.plot([low, high], [low, high], color=_LINE, linewidth=1.2)
        truth, answers = [point[0] for point in shown], [point[1] for point in shown]
        below = [max(0.0, point[1] - point[2]) for point in shown]
        above = [max(0.0, point[3] - point[1]) for point in shown]
        axes.errorbar(truth, answers, yerr=[below, above], fmt="none", ecolor=_LINE, elinewidth=0.8, zorder=1)
        axes.plot(truth, answers, color=_BLUE, linestyle="none", marker="o", markersize=2.6, zorder=2)
        axes.set(xlabel="true share", ylabel="answer")

    text = f"Largest difference between an answer and the truth: {worst:.3g}, over {len(points):,} queries."
    return _plot("truth", f"Answers against the truth ({source})", text, draw)


def plot_epsilon(points: Sequence[tuple[float, float, float]], source: str) -> Plot:
    """Return the largest error against epsilon, measured and expected.

    >>> plot_epsilon([(0.1, 0.02, 0.021), (1.0, 0.002, 0.0021)], "simulated").description
    'Largest error: 0.02 at epsilon 0.1, 0.002 at epsilon 1.'
    """
    rows = sorted(points)
    epsilons, measured, expected = ([row[place] for row in rows] for place in range(3))

    def draw(axes: Any) -> None:
        axes.plot(epsilons, expected, color=_GREEN, linestyle="--", label="expected")
        axes.plot(epsilons, measured, color=_BLUE, marker="o", markersize=3, label="measured")
        _logarithmic(axes, epsilons, [*measured, *expected])
        axes.set(xlabel="epsilon", ylabel="largest error")
        axes.legend(loc="upper right")

    text = (
        f"Largest error: {measured[0]:.3g} at epsilon {epsilons[0]:g}, {measured[-1]:.3g} at epsilon {epsilons[-1]:g}."
    )
    return _plot("epsilon", f"Largest error against epsilon ({source})", text, draw)


def plot_public_size(points: Sequence[tuple[float, float, float]], source: str) -> Plot:
    """Return the cover's own share and the engine's error against the number of public points.

    >>> plot_public_size([(10, 0.3, 0.002), (100, 0.04, 0.003)], "simulated").description
    'With 100 public points the cover itself errs by 0.04 and the engine by 0.003.'
    """
    rows = sorted(points)
    sizes, cover, engine = ([row[place] for row in rows] for place in range(3))

    def draw(axes: Any) -> None:
        axes.plot(sizes, cover, color=_ORANGE, marker="s", markersize=3, label="the cover's own")
        axes.plot(sizes, engine, color=_BLUE, marker="o", markersize=3, label="the engine's")
        _logarithmic(axes, sizes, [*cover, *engine])
        axes.set(xlabel="public points", ylabel="error")
        axes.legend(loc="upper right")

    text = (
        f"With {sizes[-1]:,.0f} public points the cover itself errs by {cover[-1]:.3g} and the engine by "
        f"{engine[-1]:.3g}."
    )
    return _plot("public-size", f"Two parts of the error ({source})", text, draw)


def plot_crossover(points: Sequence[tuple[float, float, float, float]], words: str) -> Plot:
    """Return the error of stumps against public records: private data alone, public data alone, and both.

    >>> plot_crossover([(10, 0.05, 0.05, 0.3), (1000, 0.05, 0.03, 0.03)], "64 columns").name
    'crossover'
    """
    rows = sorted(points)
    sizes, private, both, public = ([row[place] for row in rows] for place in range(4))

    def draw(axes: Any) -> None:
        axes.plot(sizes, private, color=_ORANGE, linestyle="--", label="private alone")
        axes.plot(sizes, public, color=_GREEN, linestyle=":", label="public alone")
        axes.plot(sizes, both, color=_BLUE, marker="o", markersize=3, label="both")
        _logarithmic(axes, sizes, [*private, *both, *public])
        axes.set(xlabel="public records", ylabel="largest error")
        axes.legend(loc="lower left")

    first = next((size for size, one, other in zip(sizes, public, private, strict=True) if one < other), None)
    text = (
        "Public data alone never do as well as private data here."
        if first is None
        else f"Up to about {first:,.0f} public records private data alone do better; beyond, public data alone do."
    )
    return _plot("crossover", f"Stumps: when public data help ({words})", text, draw)


def _logarithmic(axes: Any, across: Sequence[float], up: Sequence[float]) -> None:
    if min(across) > 0:
        axes.set_xscale("log")
        ticks = across if len(across) <= 7 else None
        if ticks is not None:
            axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
            axes.minorticks_off()
    if min(up) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.tick_params(colors=_INK)
