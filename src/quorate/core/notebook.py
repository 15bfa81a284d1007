"""What a notebook shows of budgets, plans, models and answers: a small card of HTML, in the reader's own colours."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_CELL = "text-align:left;padding:.1em 1em .1em 0;vertical-align:top"


def html_card(
    title: str, facts: Mapping[str, Any], *, bar: tuple[str, float] | None = None, lines: Iterable[str] = ()
) -> str:
    """Return a title, a bar (what it measures, and a share from 0 to 1), facts by name, and lines of text.

    >>> "50.0%" in html_card("Budget", {"epsilon": 1.0}, bar=("left", 0.5))
    True
    """
    rows = "".join(
        f'<tr><th style="{_CELL};font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(_format(value))}</td></tr>'
        for name, value in facts.items()
    )
    text = "".join(f'<p style="margin:.3em 0;max-width:50em">{escape(line)}</p>' for line in lines)
    table = f'<table style="border:0;margin:.3em 0">{rows}</table>' if rows else ""
    return (
        '<div style="border:1px solid currentColor;border-radius:.4em;padding:.5em 1em;display:inline-block">'
        f"<strong>{escape(title)}</strong>{'' if bar is None else _bar(*bar)}{table}{text}</div>"
    )


def _bar(measures: str, share: float) -> str:
    part = min(1.0, max(0.0, share))
    return (
        f'<div role="meter" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{100 * part:.1f}" '
        f'aria-label="{escape(measures)}" style="border:1px solid currentColor;height:.6em;width:20em;margin:.4em 0">'
        f'<div style="background:currentColor;opacity:.6;height:100%;width:{100 * part:.1f}%"></div></div>'
        f"<div>{escape(measures)}: {100 * part:.1f}%</div>"
    )


def _format(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
