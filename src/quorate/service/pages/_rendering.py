"""Templates to pages, and the page of the API from its OpenAPI document.

Every value is escaped. The style alone is not, for its hash must match.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from functools import cache, partial
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

STYLE = resources.files("quorate.service.pages").joinpath("style.css").read_text("utf-8")
STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

# A ballot with its mark. A page without an icon makes the browser ask for one.
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect x='1.5' y='1.5' width='13' height='13' rx='3' fill='%230072b2'/%3E"
    "%3Cpath d='M4.6 8.3l2.4 2.5 4.5-5.4' fill='none' stroke='%23fff' stroke-width='1.8'/%3E%3C/svg%3E"
)

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src '{STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(template: str, **values: Any) -> str:
    """Return a template filled with values, as a whole HTML document."""
    return _environment().get_template(template).render(style=Markup(STYLE), icon=_ICON, **values)  # noqa: S704


def figure(value: float) -> str:
    """Return a number as people read it."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}".replace("e-0", "e-")


def format_remaining(share: float) -> str:
    """Return the remaining share as a percentage with two decimals, rounded down so that it is never overstated."""
    exact = Decimal(repr(float(share))) * 100
    return str(min(max(exact, Decimal(0)), Decimal(100)).quantize(Decimal("0.01"), rounding=ROUND_DOWN))


def moment(at: float) -> str:
    """Return a time of the clock (UTC) as people read it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("quorate.service.pages"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["figure"] = figure
    environment.filters["compact"] = _compact
    environment.filters["moment"] = moment
    environment.filters["iso"] = lambda at: datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    environment.filters["percent"] = lambda share: f"{100 * share:.2f}%"
    environment.filters["short"] = lambda text: text if len(text) <= 12 else f"{text[:12]}…"
    environment.filters["pretty"] = _pretty
    environment.filters["phrase"] = _phrase
    environment.filters["prose"] = _prose
    return environment


def _compact(count: int) -> str:
    """Return a round number in few letters, for the side of a plot."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 10 * size or count == size:
            return f"{count / size:g}{letter}"
    return f"{count:,}"


def _pretty(value: Any) -> str:
    """Return JSON, indented, with a list of plain values on one line. No text in JSON holds a bare line break."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s*\]", lambda match: "[" + re.sub(r",\n\s+", ", ", match[1]) + "]", text)


def _phrase(text: str) -> Markup:
    """Return a text with `code` marked as such, and nothing else of Markdown."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped first


def _prose(text: str) -> Markup:
    """Return paragraphs of phrases."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]
    return Markup("").join(Markup("<p>{}</p>").format(_phrase(part)) for part in parts)


_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_DEPTH = 6  # of schemas shown inside one another

Document = Mapping[str, Any]


def docs_page(openapi: dict[str, Any]) -> str:
    """Return an OpenAPI document as one HTML page, everything on it and nothing to click open."""
    operations = [
        {"path": path, "method": method, **methods[method]}
        for path, methods in openapi.get("paths", {}).items()
        for method in _METHODS
        if method in methods
    ]
    parts: dict[str, list[dict[str, Any]]] = {}
    for number, operation in enumerate(operations, start=1):
        operation["anchor"] = f"operation-{number}"
        parts.setdefault(str((operation.get("tags") or ["Operations"])[0]), []).append(operation)
    return render(
        "docs.html",
        page="docs",
        info=openapi.get("info", {}),
        parts=parts,
        operations=operations,
        components=openapi.get("components", {}),
        resolve=partial(_resolve, openapi),
        kind=partial(_kind, openapi),
        fields=partial(_fields, openapi, depth=_DEPTH),
    )


def _fields(openapi: Document, reference: Any, depth: int) -> list[dict[str, Any]]:
    """Return the properties of an object, or of what an array holds, each with its own inside it."""
    schema = _resolve(openapi, reference)
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) == 1:  # this, or nothing
        return _fields(openapi, choices[0], depth - 1) if depth else []
    if "items" in schema:
        return _fields(openapi, schema["items"], depth - 1) if depth else []
    return [
        {
            "name": str(name),
            "required": name in schema.get("required", []),
            "kind": _kind(openapi, inner),
            "description": str(_resolve(openapi, inner).get("description", "")),
            "fields": _fields(openapi, inner, depth - 1) if depth else [],
        }
        for name, inner in schema.get("properties", {}).items()
    ]


def _kind(openapi: Document, reference: Any) -> str:
    """Return a short description of a JSON schema."""
    schema = _resolve(openapi, reference)
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(openapi, choice) for choice in schema["anyOf"]))
    kinds = schema.get("type", "object" if "properties" in schema else "")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if kind == "array":
        return f"array of {_kind(openapi, schema.get('items', {})) or 'values'}"
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def _resolve(openapi: Document, reference: Any) -> Document:
    """Return the target of a reference within the document; references outside it are never read."""
    for _ in range(_DEPTH):
        if not isinstance(reference, Mapping):
            return {}
        path = reference.get("$ref")
        if not isinstance(path, str):
            return reference
        target: Any = openapi
        for part in path.removeprefix("#/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        reference = target
    return {}
