"""The page of a release: what was promised, what it cost, how good it is on simulated data. It loads nothing."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from quorate.errors import InvalidInput
from quorate.report.data import Claim
from quorate.report.page import check_installed
from quorate.report.plots import Plot
from quorate.report.release_plots import plot_crossover, plot_engines, plot_epsilon, plot_public_size, plot_truth

__all__ = ["ReleaseReport", "render_release", "write_release_report"]


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What the page of a release may show: public and released values, and figures from simulated data.

    `truth` has (true share, answer, low, high) of simulated records, and `errors` (epsilon, largest error measured on
    simulated records, expected one). `engines` are (name, expected error), `crossover` is (public records, private
    data alone, both, public data alone), `sizes` (public points, the cover's share, the engine's error). `answers`
    are rows of the released table. `source` says what was simulated.

    >>> ReleaseReport(title="A release", claim=Claim(epsilon=1.0, delta=1e-6)).answers
    ()
    """

    title: str
    claim: Claim
    planned: bool = False  # or released
    cards: Mapping[str, str] = field(default_factory=dict)
    bill: Mapping[str, Any] = field(default_factory=dict)
    engines: Sequence[tuple[str, float]] = ()
    engine: str = ""
    sentences: Sequence[str] = ()
    truth: Sequence[tuple[float, float, float, float]] = ()
    errors: Sequence[tuple[float, float, float]] = ()
    sizes: Sequence[tuple[float, float, float]] = ()
    crossover: Sequence[tuple[float, float, float, float]] = ()
    crossover_words: str = ""
    source: str = "simulated records"
    answers: Sequence[Mapping[str, Any]] = ()
    more: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)
    proofs: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def write_release_report(data: ReleaseReport, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` and return that path. A file that stands there is replaced.

    >>> import tempfile
    >>> data = ReleaseReport(title="A release", claim=Claim(epsilon=1.0, delta=1e-6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_release_report(data, Path(folder) / "report.html").name
    'report.html'
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInput(f"the folder {str(target.parent)!r} for the report does not exist; make it first")
    if target.is_dir():
        raise InvalidInput(f"{str(target)!r} is a folder; name a file for the report, such as report.html")
    target.write_text(render_release(data), encoding="utf-8")
    return target


def render_release(data: ReleaseReport) -> str:
    """Return the page as text.

    >>> page = render_release(ReleaseReport(title="Ages & wages", claim=Claim(epsilon=1.0, delta=1e-6)))
    >>> "<h1>Ages &amp; wages</h1>" in page
    True
    """
    check_installed()
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["figure"] = _figure
    environment.filters["words"] = lambda name: str(name).replace("_", " ")
    folder = resources.files("quorate.report")
    whole = folder.joinpath("page.html").read_text("utf-8")
    style = whole[whole.index("<style>") : whole.index("</style>")] + "</style>"  # one style for every page
    template = environment.from_string(folder.joinpath("release.html").read_text("utf-8"))
    return template.render(data=data, plots=_plots(data), style=style)


def _plots(data: ReleaseReport) -> dict[str, Plot | None]:
    return {
        "engines": plot_engines(data.engines, data.engine) if data.engines else None,
        "truth": plot_truth(data.truth, data.source) if data.truth else None,
        "errors": plot_epsilon(data.errors, data.source) if data.errors else None,
        "sizes": plot_public_size(data.sizes, data.source) if data.sizes else None,
        "crossover": plot_crossover(data.crossover, data.crossover_words) if data.crossover else None,
    }


def _figure(value: Any) -> str:
    """Return a number as people read it; anything else as its text."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.4g}".replace("e-0", "e-")
    return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.4g}"
