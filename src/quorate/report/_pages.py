"""From a template to one HTML file that loads nothing: no script, no picture, no style sheet, no font."""

import math
import os
from functools import cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra

if TYPE_CHECKING:
    from jinja2 import Environment


def check_installed() -> None:
    """Refuse, before any work is done for a report, if the packages that make it are not installed."""
    for package in ("jinja2", "matplotlib"):
        import_extra(package, "report", use="a report")


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
    """Write a page to `path` and return that path. An existing file is replaced."""
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
