"""From a template to one HTML file that loads nothing: no script, no picture, no style sheet, no font."""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.core.errors import InvalidInput
from quorate.report.words import figure, percent, words

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["check_installed", "render", "write_page"]


def check_installed() -> None:
    """Refuse, before any work is done for a report, if the packages that make it are not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415
        import matplotlib  # noqa: F401, PLC0415
    except ImportError as error:
        raise InvalidInput(
            "a report needs matplotlib and jinja2; install them: pip install 'quorate[report]'"
        ) from error


def render(template: str, **values: Any) -> str:
    """Return a template of this package filled with values, each of them escaped."""
    check_installed()
    return _environment().get_template(template).render(**values)


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page to `path` and return that path. A file that stands there is replaced."""
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


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("quorate.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"figure": figure, "percent": percent, "words": words}
    return environment
