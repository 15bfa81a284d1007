"""The page of a model: what was promised, planned, asked, answered and paid."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorate.report.curves import plot_curves
from quorate.report.data import ReportData
from quorate.report.drawing import Plot
from quorate.report.model_plots import (
    plot_accuracy,
    plot_agreement,
    plot_answer_rate,
    plot_candidates,
    plot_shares,
    plot_spending,
)
from quorate.report.rendering import check_installed, render, write_page
from quorate.report.words import figure, percent, words

__all__ = ["render_report", "write_report"]

_SHARES = {"answered", "agreement", "right", "answer_rate", "lasts", "disagreement"}
_PLAN_WORDS = {
    "rows_per_teacher": "units for each teacher",
    "no_quorums": "no-quorums allowed",
    "answered": "expected to be answered",
    "agreement": "of those, with the plurality's label",
    "right": "answered with the plurality's label",
    "answer_rate": "least share asked for",
    "lasts": "chance that no planned query is refused",
    "disagreement": "votes against the plurality",
    "basis": "who says so",
    "published": "published bounds",
    "nearest": "what would do",
}


def write_report(data: ReportData, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` and return that path. A file that stands there is replaced."""
    return write_page(render_report(data), path)


def render_report(data: ReportData) -> str:
    """Return the page as text."""
    check_installed()
    return render(
        "model.html",
        data=data,
        plan=_plan_rows(data.plan),
        plots=_plots(data),
        curves=plot_curves(data.curves or ()),
        cards=_cards(data),
        growth=f"{math.exp(min(data.claim.epsilon, 700.0)):.3g}",
    )


def _plots(data: ReportData) -> dict[str, Plot | None]:
    bars, chosen = _candidates(data.plan)
    return {
        "spending": plot_spending(data.spending, data.claim) if data.spending else None,
        "answer_rate": plot_answer_rate(data.answer_rate) if data.answer_rate else None,
        "accuracy": plot_accuracy(data.accuracy) if data.accuracy else None,
        "agreement": plot_agreement(data.agreement) if data.agreement else None,
        "candidates": plot_candidates(bars, chosen) if bars else None,
        "labels": _plot_labels(data.label_counts) if data.label_counts else None,
    }


def _plot_labels(counts: Mapping[str, int]) -> Plot:
    total = sum(counts.values())
    shares = [(str(name), count / max(1, total)) for name, count in counts.items()]
    return plot_shares("labels", "Labels of the released answers", shares, source=f"{total:,} answers")


def _cards(data: ReportData) -> dict[str, str]:
    """Return the few figures that stand on top."""
    cards = {}
    if data.spending:
        asked, spent = data.spending[-1]
        cards["queries asked"] = figure(asked)
        cards["epsilon spent so far, ex post"] = f"{spent:.3g} of {data.claim.epsilon:g}"
    if data.label_counts and data.spending:
        answered = sum(data.label_counts.values())
        cards["answered"] = percent(answered / max(1.0, data.spending[-1][0]))
    if data.plan and data.plan.get("teachers") is not None:
        cards["teachers"] = figure(data.plan["teachers"])
    return cards


def _plan_rows(plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the plan as it is tabled: shares as percentages; what is empty, plotted or said above is left out."""
    rows: dict[str, Any] = {}
    for name, value in (plan or {}).items():
        if name in {"candidates", "epsilon", "delta"} or value is None or value in ("", [], {}, ()):
            continue
        shown: Any = percent(value) if name in _SHARES and _is_share(value) else value
        if isinstance(value, bool):
            shown = "yes" if value else "no"
        if isinstance(value, list | tuple):
            shown = [_sentence(entry) for entry in value]
        rows[_PLAN_WORDS.get(name, words(name))] = words(value) if name == "aggregator" else shown
    return rows


def _sentence(entry: Any) -> Any:
    if not isinstance(entry, Mapping) or "sentence" not in entry:
        return entry
    return f"{entry['citation']}: {entry['sentence']}" if entry.get("citation") else entry["sentence"]


def _candidates(plan: Mapping[str, Any] | None) -> tuple[list[dict[str, Any]], str]:
    """Return the bars of the plan and of its alternatives, best first, and the name of the chosen one."""
    if not plan or not plan.get("candidates"):
        return [], ""
    bars: dict[str, dict[str, Any]] = {}
    for candidate in (plan, *plan["candidates"]):
        name, answered, right = words(candidate.get("aggregator")), candidate.get("answered"), candidate.get("right")
        if _is_share(answered) and _is_share(right):
            bars.setdefault(name, {"name": name, "answered": answered, "right": right})
    best = sorted(bars.values(), key=lambda bar: -bar["right"])
    return best, words(plan.get("aggregator"))


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
