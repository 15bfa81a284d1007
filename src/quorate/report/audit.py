"""The page of an audit: every claim, how close an attack came to it, and what was not tested. It loads nothing."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from quorate.audit import Verdict
from quorate.errors import InvalidInput
from quorate.report.page import check_installed

__all__ = ["AuditReport", "render_audit", "write_audit_report"]


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What the page shows.

    `planted` has (name, what, attack, evidence, caught, twin cleared), `replays` (name, words, sound).

    >>> AuditReport(verdicts=()).violated
    0
    """

    verdicts: Sequence[Verdict]
    replays: Sequence[tuple[str, str, bool]] = ()
    planted: Sequence[tuple[str, str, str, str, bool, bool]] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    title: str = "Audit of every claim"

    @property
    def violated(self) -> int:
        """How many claims an attack showed to be false.

        >>> AuditReport(verdicts=()).violated
        0
        """
        return sum(verdict.violated for verdict in self.verdicts)


def write_audit_report(data: AuditReport, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` and return that path. A file that stands there is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audit_report(AuditReport(verdicts=()), Path(folder) / "audit.html").name
    'audit.html'
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInput(f"the folder {str(target.parent)!r} for the report does not exist; make it first")
    if target.is_dir():
        raise InvalidInput(f"{str(target)!r} is a folder; name a file for the report, such as audit.html")
    target.write_text(render_audit(data), encoding="utf-8")
    return target


def render_audit(data: AuditReport) -> str:
    """Return the page as text.

    >>> "<h1>Audit of every claim</h1>" in render_audit(AuditReport(verdicts=()))
    True
    """
    check_installed()
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["figure"] = lambda value: f"{value:.4g}"
    environment.filters["percent"] = lambda share: f"{100 * min(share, 9.99):.0f}%"
    environment.filters["words"] = lambda name: str(name).replace("_", " ")
    folder = resources.files("quorate.report")
    whole = folder.joinpath("page.html").read_text("utf-8")
    style = whole[whole.index("<style>") : whole.index("</style>")]  # one style for every page; the template adds to it
    template = environment.from_string(folder.joinpath("audit.html").read_text("utf-8"))
    verdicts = sorted(data.verdicts, key=lambda verdict: -verdict.ratio)
    return template.render(data=data, verdicts=verdicts, cards=_cards(data), style=style)


def _cards(data: AuditReport) -> dict[str, str]:
    cards = {"claims attacked": str(len(data.verdicts)), "shown to be false": str(data.violated)}
    if data.verdicts:
        closest = max(data.verdicts, key=lambda verdict: verdict.ratio)
        cards["closest to its claim"] = f"{100 * closest.ratio:.0f}%"
        cards["plays of each world"] = f"{max(verdict.plays for verdict in data.verdicts):,}"
    if data.planted:
        cards["planted bugs caught"] = f"{sum(bug[4] for bug in data.planted)} of {len(data.planted)}"
    if data.replays:
        cards["replays sound"] = f"{sum(one[2] for one in data.replays)} of {len(data.replays)}"
    return cards
