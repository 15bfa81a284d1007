"""Axes of plots: few ticks, labels that do not touch, numbers as people read them."""

import math
from collections.abc import Sequence
from typing import Any

from quorate.report.words import figure

__all__ = ["apart", "logarithmic", "logarithmic_at", "named_rows", "plain"]

_BETWEEN = ((1.0, 2.0, 5.0), (1.0, 3.0))  # where a logarithmic axis is labelled in each decade
_LONGEST = 24  # letters of a row's name: the rest of the width is the plot's
_CLOSE = 0.09  # of an axis: labels nearer than that touch


def plain(axis: Any) -> None:
    """Label an axis at five round places or so."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(_label)


def logarithmic(axis: Any, values: Sequence[float], labels: int = 6) -> None:
    """Make an axis logarithmic where all values are positive, with about as many labels as asked for."""
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415

    if min(values) <= 0:
        plain(axis)
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    decades = math.log10(max(values) / min(values))
    between = next((places for places in _BETWEEN if decades * len(places) <= labels), (1.0,))
    axis.set_major_locator(LogLocator(subs=between, numticks=8))
    axis.set_major_formatter(_label)
    axis.set_minor_formatter(NullFormatter())
    axis.axes.tick_params(axis=axis.axis_name, which="minor", length=0)


def logarithmic_at(axis: Any, values: Sequence[float]) -> None:
    """Make an axis logarithmic and label it at the values themselves, where they are few and positive."""
    logarithmic(axis, values)
    if min(values) > 0 and len(values) <= 7:
        shown = apart(values)
        axis.set_ticks(shown, [figure(value) for value in shown])
        axis.axes.minorticks_off()


def apart(values: Sequence[float]) -> list[float]:
    """Return those of some positive values whose labels do not touch on a logarithmic axis, the ends among them."""
    ends = min(values), max(values)
    least = _CLOSE * math.log(ends[1] / ends[0])
    kept = [ends[0]]
    for value in sorted(set(values))[1:-1]:
        if min(math.log(value / kept[-1]), math.log(ends[1] / value)) > least:
            kept.append(value)
    return kept if ends[0] == ends[1] else [*kept, ends[1]]


def named_rows(axes: Any, names: Sequence[str], chosen: str, word: str) -> None:
    """Name the rows of a plot, the first on top, and mark the chosen one by a word."""
    shown = [_short(name) + (f" ({word})" if name == chosen else "") for name in names]
    axes.set_yticks(range(len(names)), shown)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _short(name: str) -> str:
    """Return a name that leaves room for the plot; a cell that is too long is named by both its ends alone."""
    if len(name) > _LONGEST:
        name = name.replace(" to below ", " to ")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _label(value: float, _place: int | None = None) -> str:
    return figure(float(f"{value:.6g}"))  # 0.30000000000000004 is 0.3
