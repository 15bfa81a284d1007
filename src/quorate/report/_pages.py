"""What pages say of a guarantee, and from a template and plots to one HTML file that loads nothing.

There is no script, picture, style sheet or font. Plots are SVG inside the page: their colours follow light and dark,
and their words can be read aloud.
"""

import html
import io
import math
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra

if TYPE_CHECKING:
    from jinja2 import Environment

import platform
from collections.abc import Iterable
from importlib import metadata

Points = tuple[tuple[float, float], ...]
_MECHANISMS = {  # The statement of each proof core/mechanisms/PROOF_<name>.md.
    "quorum": "answers are free; each no-quorum costs a fixed price",
    "noisy_max": "what the name of the noisy winner costs, and no more",
    "noisy_shares": "what noisy shares of the vote cost, and all made of them",
    "confident_max": "each query costs its test, each answer its winner",
    "sharp_majority": "what an answer costs, and that none is better at it",
    "soft_majority": "each query is epsilon-DP, with no delta",
    "stability": "an epoch up to a no-quorum has one cost, however many answers",
    "between_thresholds": "each no-quorum costs a fixed price; two classes",
    "noisy_vector": "what a vector of counts with discrete Gaussian noise costs",
    "laplace_sums": "what sums with discrete Laplace noise cost, and when keys appear",
    "exponential": "a choice by mistakes is epsilon-DP, and drawn exactly",
}
_PROOFS = {name: (f"core/mechanisms/PROOF_{name}.md", text) for name, text in _MECHANISMS.items()} | {
    "privacy": (
        "core/privacy/PROOF.md",
        "costs add up over adaptively chosen queries, and convert to (epsilon, delta)",
    ),
    "predictors": (
        "models/predictors/PROOF.md",
        "one unit is dealt to one teacher, and moves at most one ballot a query",
    ),
    "linear": ("models/linear/PROOF.md", "a unit moves each sum by a bounded length, and all else is made of the sums"),
    "engines": ("release/engines/PROOF.md", "what each engine measures, and what that costs"),
    "release": ("release/PROOF.md", "cells are public, counts are taken once, the engine pays, the rest is free"),
    "numbers": ("release/numbers/PROOF.md", "how far a unit moves all sums of all groups, and why intervals cover"),
    "check": (
        "models/evaluation/PROOF.md",
        "one unit moves two counts of each grid by one, and why the intervals cover",
    ),
    "hypotheses": (
        "models/students/PROOF_CONCEPTS.md",
        "a hypothesis is chosen among public candidates, by counts that a unit hardly moves",
    ),
    "relabelling": (
        "models/predictors/PROOF_CONCEPTS.md",
        "what relabelling, sampling, a stable choice and a turned label cost",
    ),
}
_RESTS_ON = {  # all but answers by ballots alone
    "linear": ("privacy", "linear"),
    "release": ("release", "engines", "noisy_vector"),
    "numbers": ("numbers", "noisy_vector", "privacy"),
    "numbers with Laplace noise": ("numbers", "laplace_sums", "privacy"),
    "check": ("check", "noisy_vector"),
    "concepts": ("hypotheses", "relabelling", "exponential"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """The guarantee, as it was fixed before any private record was read.

    `unit` is who is protected, `neighbours` what may change between the data sets that are compared, and
    `labels` says whether the set of labels was declared, or read from y and so not covered by the guarantee.
    """

    epsilon: float
    delta: float
    unit: str = "row"
    neighbours: str = "all records of one unit replaced by any others"
    labels: str = "declared"

    @classmethod
    def of_units(cls, epsilon: float, delta: float, unit: str) -> "Claim":
        """Return the guarantee of a release of this many records, or of those of this many people."""
        units = "all records of one person" if unit == "person" else "one private record"
        return cls(epsilon, delta, unit, f"{units} replaced by any other; their number is public")

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < math.inf and 0 <= self.delta < 1):
            raise InvalidInput(
                f"a claim needs a positive finite epsilon and a delta from 0 to below 1, "
                f"not {self.epsilon!r} and {self.delta!r}"
            )


def check_points(name: str, points: Iterable[Iterable[float]], width: int, shares: tuple[int, ...] = ()) -> None:
    """Refuse points that are not rows of so many finite numbers, or whose shares are not from 0 to 1."""
    rows = [tuple(point) for point in points]
    finite = bool(rows) and all(len(row) == width and all(math.isfinite(value) for value in row) for row in rows)
    if not finite or any(not 0 <= row[column] <= 1 for row in rows for column in shares):
        raise InvalidInput(
            f"{name} must hold at least one point of {width} finite numbers, with shares from 0 to 1; "
            "pass None to leave the section out"
        )


def proofs_for(aggregator: str | None = None) -> dict[str, str]:
    """Return the proofs behind an answer of this aggregator: files in the installed package with their statements.

    "linear", "release", "check" and "concepts" are for linear models, releases, private tests and classes of
    hypotheses.
    """
    keys = _RESTS_ON.get(aggregator or "", ("privacy", "predictors", aggregator))
    return {f"quorate/{_PROOFS[key][0]}": _PROOFS[key][1] for key in keys if key in _PROOFS}


def software_versions(packages: Sequence[str] = ("quorate", "opendp", "numpy", "scikit-learn")) -> dict[str, str]:
    """Return the versions of Python and of these packages, as far as they are installed."""
    versions = {"Python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def check_installed() -> None:
    """Refuse, before any work is done for a report, if the packages that make it are not installed."""
    for package in ("jinja2", "matplotlib"):
        import_extra(package, "report", use="a report")


class Page(ABC):
    """What one page shows, from public or released values alone."""

    @abstractmethod
    def render(self) -> str:
        """Return the page as text."""


def write_report(page: Page, path: str | os.PathLike[str]) -> Path:
    """Write a page to `path` and return that path. An existing file is replaced."""
    return write_page(page.render(), path)


def render(template: str, **values: Any) -> str:
    """Return a template of this package filled with values, each of them escaped."""
    check_installed()
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("quorate.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"figure": figure, "percent": percent, "words": words}
    return environment


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write the text of a page to `path` and return that path. An existing file is replaced."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInput(f"the folder {str(target.parent)!r} for the report does not exist; make it first")
    if target.is_dir():
        raise InvalidInput(f"{str(target)!r} is a folder; name a file for the report, such as report.html")
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"the report {str(target)!r} could not be written: {error.strerror}") from None
    return target


def figure(value: Any) -> str:
    """Return a number as people read it; nothing for None, and anything else as its text."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    if number.is_integer():
        return f"{int(number):,}" if abs(number) < 1e15 else f"{number:.4g}"
    if 1e4 <= abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:,.4g}".replace("e-0", "e-")


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.{digits}f}%"


def words(name: Any) -> str:
    """Return a name of the code as words."""
    return str(name).replace("_", " ")


def decimals_for(value: float) -> int:
    """Return how many decimals show two significant digits of a small number: from two to six."""
    return 6 if value <= 0 else min(6, max(2, 1 - math.floor(math.log10(value))))


# The colours of Okabe and Ito, told apart by colour-blind readers. The page gives each name a light and a dark value.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
INK, GREY, LINE, PAPER = "#111213", "#818283", "#c0c1c2", "#fdfcfb"
_VARIABLES = {
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
    INK: "currentColor",
    GREY: "var(--grey)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
}
_WIDTH, _HEIGHT = 4.0, 2.5  # inches: narrow, so that the letters are still read on a telephone
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and read aloud
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 3,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), LINE),
}
_TICKS_PER_DECADE = ((1.0, 2.0, 5.0), (1.0, 3.0))  # the first that leaves few enough labels on the axis
_LONGEST_NAME = 24  # letters of a row's name: the rest of the width is the plot's
_LABEL_WIDTH = 0.09  # of an axis: labels nearer than that touch


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with a text alternative. `source` names the origin of its figures.

    A `numbered` drawing shows its figures, so its text alternative is for screen readers alone.
    """

    name: str
    title: str
    description: str
    svg: str
    source: str = ""
    numbered: bool = False


def draw_plot(
    name: str,
    title: str,
    description: str,
    draw: Callable[[Any], None],
    *,
    source: str = "",
    height: float | None = None,
    numbered: bool = False,
) -> Plot:
    """Return what `draw` draws on axes, as a plot. `name` is part of every id, so that pages may hold several."""
    import matplotlib  # noqa: PLC0415
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that this font lacks: the reader's browser has it
        drawing = Figure(figsize=(_WIDTH, height or _HEIGHT), layout="constrained", facecolor="none")
        draw(drawing.add_subplot(facecolor="none"))
        stream = io.StringIO()
        FigureCanvasSVG(drawing).print_svg(stream, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    heading = f"{title} ({source})" if source else title
    svg = _to_inline_svg(stream.getvalue(), name, heading, description)
    return Plot(name, title, description, svg, source, numbered)


Bar = tuple[str, float, float | None, float | None, bool]


def plot_bars(name: str, title: str, description: str, bars: Sequence[Bar], *, source: str = "", **axis: Any) -> Plot:
    """Return bars with intervals: each has a name, a value, its low and high end, and whether noise hides its value.

    Noisy bars are grey. `axis` is what is set on the axes, such as `xlabel`.
    """

    def draw(axes: Any) -> None:
        for position, (_, value, low, high, is_noisy) in enumerate(bars):
            axes.barh(position, value, height=0.6, color=GREY if is_noisy else BLUE)
            if low is not None and high is not None:
                axes.plot([low, high], [position, position], color=ORANGE, linewidth=1.6)
        name_rows(axes, [bar[0] for bar in bars])
        axes.set(**axis)
        label_axis(axes.xaxis)

    return draw_plot(name, title, description, draw, source=source, height=0.7 + 0.24 * max(2, len(bars)))


def to_svg_file(svg: str) -> str:
    """Return a plot's drawing as a file: with its namespaces, and plain colours on white."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(variable, colour)
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg", f'<svg {namespaces} style="background:#fff"', 1)


def _to_inline_svg(svg: str, name: str, title: str, description: str) -> str:
    """Return the drawing as it stands in a page: its own ids, no addresses, colours by name, words to be read aloud."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    for opening in ('id="', 'href="#', "url(#"):
        body = re.sub(rf"\b{re.escape(opening)}", f"{opening}{name}-", body)
    for size in ("width", "height"):
        body = re.sub(rf'(<svg[^>]*?)\s{size}="[^"]*"', r"\1", body, count=1)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    words = (
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    opening = f'<svg role="img" aria-labelledby="{name}-title {name}-desc"'
    return re.sub(r"<svg([^>]*)>", lambda match: f"{opening}{match[1]}>{words}", body, count=1)


def label_axis(*axes: Any) -> None:
    """Label each axis at about five round values."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    for axis in axes:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(_format_tick)


def label_log_axis(axis: Any, values: Sequence[float], *, labels: int = 6, at_values: bool = False) -> None:
    """Make an axis logarithmic where all values are positive.

    It is labelled at about as many round values as `labels` says, or `at_values` where these are at most seven.
    """
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415

    if min(values) <= 0:
        label_axis(axis)
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    decades = math.log10(max(values) / min(values))
    ticks = next((ticks for ticks in _TICKS_PER_DECADE if decades * len(ticks) <= labels), (1.0,))
    axis.set_major_locator(LogLocator(subs=ticks, numticks=8))
    axis.set_major_formatter(_format_tick)
    axis.set_minor_formatter(NullFormatter())
    axis.axes.tick_params(axis=axis.axis_name, which="minor", length=0)
    if at_values and len(values) <= 7:
        ticks_at = _drop_touching(values)
        axis.set_ticks(ticks_at, [figure(value) for value in ticks_at])
        axis.axes.minorticks_off()


def _drop_touching(values: Sequence[float]) -> list[float]:
    """Return the positive values whose labels do not touch on a logarithmic axis, the ends among them."""
    low, high = min(values), max(values)
    gap = _LABEL_WIDTH * math.log(high / low)
    ticks = [low]
    for value in sorted(set(values))[1:-1]:
        if min(math.log(value / ticks[-1]), math.log(high / value)) > gap:
            ticks.append(value)
    return ticks if low == high else [*ticks, high]


def name_rows(axes: Any, names: Sequence[str], chosen: str = "", word: str = "") -> None:
    """Name the rows of a plot, the first on top, and mark the chosen one by a word."""
    labels = [_shorten(name) + (f" ({word})" if word and name == chosen else "") for name in names]
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def draw_lines(
    rows: Sequence[tuple[float, ...]], lines: Mapping[str, tuple[int, dict[str, str]]], *, xlabel: str, ylabel: str
) -> Callable[[Any], None]:
    """Return what draws lines against the first column of `rows`, on two logarithmic axes.

    `lines` gives each label the column of its values, and a style.
    """
    x = [row[0] for row in rows]

    def draw(axes: Any) -> None:
        for label, (column, style) in lines.items():
            axes.plot(x, [row[column] for row in rows], label=label, **style)
        label_log_axis(axes.xaxis, x, at_values=True)
        label_log_axis(axes.yaxis, [value for row in rows for value in row[1:]])
        axes.legend(loc="best")
        axes.set(xlabel=xlabel, ylabel=ylabel)

    return draw


def _shorten(name: str) -> str:
    if len(name) > _LONGEST_NAME:
        name = name.replace(" to below ", " to ")
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _format_tick(value: float, _position: int | None = None) -> str:
    return figure(float(f"{value:.6g}"))  # 0.30000000000000004 is 0.3
