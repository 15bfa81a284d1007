"""The curves of an additive model: what each column adds, with bands of two standard deviations."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from quorate.models.linear.curves import Curve
from quorate.report.axes import named_rows, plain
from quorate.report.drawing import BLUE, GREY, Plot, draw_plot
from quorate.report.words import figure

__all__ = ["plot_curves"]

_MOST = 24  # plots of a page
_ROWS = 30  # categories of a plot
_BAND = 2.0  # standard deviations


def plot_curves(curves: Sequence[Curve]) -> list[Plot]:
    """Return a plot of each curve of the first output, those that differ most first."""
    ranked = sorted(curves, key=lambda curve: min(curve.effects[0]) - max(curve.effects[0]))
    return [_plot(f"curve-{place}", curve) for place, curve in enumerate(ranked[:_MOST])]


def _plot(name: str, curve: Curve) -> Plot:
    effects, bands = curve.effects[0], [_BAND * deviation for deviation in curve.deviations[0]]
    low, high = (choose(range(len(effects)), key=effects.__getitem__) for choose in (min, max))
    description = f"It adds {effects[low]:+.2f} at {_said(curve.values[low])} and {effects[high]:+.2f} at "
    description += f"{_said(curve.values[high])}."
    title = f"What {curve.column} adds"
    if curve.numeric:
        return draw_plot(name, title, description, lambda axes: _draw_numbers(axes, curve, bands))
    rows = sorted(range(len(effects)), key=lambda place: -effects[place])[:_ROWS]
    return draw_plot(
        name,
        title,
        description,
        lambda axes: _draw_categories(axes, curve, bands, rows),
        height=0.8 + 0.22 * max(2, len(rows)),
    )


def _draw_numbers(axes: Any, curve: Curve, bands: Sequence[float]) -> None:
    effects = curve.effects[0]
    below, above = ([e + way * b for e, b in zip(effects, bands, strict=True)] for way in (-1, 1))
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.fill_between(curve.values, below, above, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(curve.values, effects, color=BLUE)
    axes.set(xlabel=curve.column, ylabel="adds")
    if isinstance(curve.values[0], datetime):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

        places = AutoDateLocator(maxticks=5)
        axes.xaxis.set_major_locator(places)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(places))
    else:
        plain(axes.xaxis)
    plain(axes.yaxis)


def _draw_categories(axes: Any, curve: Curve, bands: Sequence[float], rows: Sequence[int]) -> None:
    axes.axvline(0.0, color=GREY, linewidth=0.8)
    effects, errors = [curve.effects[0][row] for row in rows], [bands[row] for row in rows]
    axes.errorbar(effects, range(len(rows)), xerr=errors, color=BLUE, linestyle="none", marker="o", capsize=2)
    named_rows(axes, [str(curve.values[row]) for row in rows], "", "")
    axes.set(xlabel="adds")
    plain(axes.xaxis)


def _said(value: float | str | datetime) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat()
    return value if isinstance(value, str) else figure(value)
