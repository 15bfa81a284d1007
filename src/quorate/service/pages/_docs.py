"""The description of the API, rendered from its OpenAPI document: what can be asked, with what, and what comes back."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from quorate.service.pages._rendering import render

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
    """Return what a schema asks for, in a word or a few."""
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
    """Return what a reference points to within the document; nothing outside it is ever read."""
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
