"""Templates to pages. Every value is escaped; the style alone is not, for its hash must match."""

import json
import math
import re
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from quorate.service.pages.style import ICON, STYLE

__all__ = ["figure", "moment", "percent_left", "render"]


def render(template: str, **values: Any) -> str:
    """Return a template filled with values, as a whole HTML document."""
    return _environment().get_template(template).render(style=Markup(STYLE), icon=ICON, **values)  # noqa: S704


def figure(value: float) -> str:
    """Return a number as people read it."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}".replace("e-0", "e-")


def percent_left(share: float) -> str:
    """Return what is left as a percentage with two decimals, rounded down: nobody counts on more than there is."""
    exact = Decimal(repr(float(share))) * 100
    return str(min(max(exact, Decimal(0)), Decimal(100)).quantize(Decimal("0.01"), rounding=ROUND_DOWN))


def moment(at: float) -> str:
    """Return a time of the clock (UTC) as people read it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("quorate.service.pages"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters["figure"] = figure
    made.filters["compact"] = _compact
    made.filters["moment"] = moment
    made.filters["iso"] = lambda at: datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    made.filters["percent"] = lambda share: f"{100 * share:.2f}%"
    made.filters["short"] = lambda text: text if len(text) <= 12 else f"{text[:12]}…"
    made.filters["pretty"] = _pretty
    made.filters["phrase"] = _phrase
    made.filters["prose"] = _prose
    return made


def _compact(count: int) -> str:
    """Return a round number in few letters, for the side of a plot."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 10 * size or count == size:
            return f"{count / size:g}{letter}"
    return f"{count:,}"


def _pretty(value: Any) -> str:
    """Return JSON, indented, with a list of plain values on one line. No text in JSON holds a bare line break."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s*\]", lambda found: "[" + re.sub(r",\n\s+", ", ", found[1]) + "]", text)


def _phrase(text: str) -> Markup:
    """Return a text with `code` marked as such, and nothing else of Markdown."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped first


def _prose(text: str) -> Markup:
    """Return paragraphs of phrases."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]
    return Markup("").join(Markup("<p>{}</p>").format(_phrase(part)) for part in parts)
