"""The page of an audit: every claim, how close an attack came to it, and what was not tested."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorate.auditing import Verdict
from quorate.report._pages import percent, render, write_page


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The contents of the page; `replays` has (name, words, sound)."""

    verdicts: Sequence[Verdict]
    replays: Sequence[tuple[str, str, bool]] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    title: str = "Audit of every claim"

    @property
    def violated(self) -> int:
        """How many claims an attack showed to be false."""
        return sum(verdict.violated for verdict in self.verdicts)


def write_audit_report(data: AuditReport, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` and return that path. An existing file is replaced."""
    return write_page(render_audit(data), path)


def render_audit(data: AuditReport) -> str:
    """Return the page as text."""
    verdicts = sorted(data.verdicts, key=lambda verdict: -verdict.ratio)
    return render("audit.html", data=data, cards=_cards(data), claims=[_claim(verdict) for verdict in verdicts])


def _claim(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict with what its bar needs: how much of the claim was shown, and where the exact figure stands."""
    exact = None if verdict.exact is None else _width(verdict.exact, verdict.claim[0])
    attack = _width(verdict.lower_bound, verdict.claim[0])
    return {"verdict": verdict, "share": _of_claim(verdict.ratio), "shown": attack, "exact": exact}


def _width(epsilon: float, claimed: float) -> str:
    return percent(epsilon / claimed if epsilon < claimed else 1.0)


def _of_claim(ratio: float) -> str:
    return percent(ratio, 0) if ratio < 10 else "over 1,000%"


def _cards(data: AuditReport) -> dict[str, str]:
    cards = {"claims attacked": str(len(data.verdicts)), "shown to be false": str(data.violated)}
    if data.verdicts:
        closest = max(data.verdicts, key=lambda verdict: verdict.ratio)
        cards["closest to its claim"] = _of_claim(closest.ratio)
        cards["plays of each world"] = f"{max(verdict.plays for verdict in data.verdicts):,}"
    if data.replays:
        cards["replays sound"] = f"{sum(sound for _, _, sound in data.replays)} of {len(data.replays)}"
    return cards
