"""A plot as SVG that stands inside the page: its colours follow light and dark, its words can be read aloud."""

import html
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["BLUE", "GREEN", "GREY", "INK", "LINE", "ORANGE", "PAPER", "Plot", "draw_plot", "standing_alone"]

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


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with the words that stand for it where it cannot be seen. `source` says where its figures come from.

    Where the drawing is `numbered`, its figures stand in it, and the words are for those who cannot see it alone.
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
    height: float = _HEIGHT,
) -> Plot:
    """Return what `draw` draws on axes, as a plot. `name` is part of every id, so that pages may hold several."""
    import matplotlib  # noqa: PLC0415
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that this font lacks: the reader's browser has it
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
        draw(figure.add_subplot(facecolor="none"))
        stream = io.StringIO()
        no_words = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(stream, metadata=no_words)
    heading = f"{title} ({source})" if source else title
    return Plot(name, title, description, _inline(stream.getvalue(), name, heading, description), source)


def standing_alone(svg: str) -> str:
    """Return a plot's drawing as a file of its own: with its namespaces, and plain colours on white."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(variable, colour)
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg", f'<svg {names} style="background:#fff"', 1)


def _inline(svg: str, name: str, title: str, description: str) -> str:
    """Return the drawing as it stands in a page: own ids, no addresses, colours by name, words to be read aloud."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", body, count=1)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    words = (
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(description)}</desc>'
    )
    opening = f'<svg role="img" aria-labelledby="{name}-title {name}-desc"'
    return re.sub(r"<svg([^>]*)>", lambda match: f"{opening}{match[1]}>{words}", body, count=1)
