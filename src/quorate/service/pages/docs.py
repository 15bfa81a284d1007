"""The description of the API, rendered from its OpenAPI document: what can be asked, with what, and what comes back."""

from collections.abc import Mapping
from typing import Any

from quorate.service.pages.rendering import render

_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_DEPTH = 6  # of schemas shown inside one another


def docs_page(openapi: dict[str, Any]) -> str:
    """Return an OpenAPI document as one HTML page, everything on it and nothing to click open."""
    operations = [
        _operation(openapi, path, method, shared.get("parameters", []), shared[method])
        for path, shared in openapi.get("paths", {}).items()
        for method in _METHODS
        if method in shared
    ]
    parts: dict[str, list[dict[str, Any]]] = {}
    for place, operation in enumerate(operations, start=1):
        operation["anchor"] = f"operation-{place}"
        parts.setdefault(operation["part"], []).append(operation)
    about = {tag.get("name"): tag.get("description", "") for tag in openapi.get("tags", [])}
    return render(
        "docs.html",
        page="docs",
        info=_info(openapi),
        parts=parts,
        about=about,
        operations=operations,
        keys=_keys(openapi),
        shapes=_shapes(openapi),
    )


def _info(openapi: Mapping[str, Any]) -> dict[str, str]:
    info = openapi.get("info", {})
    return {name: str(info.get(name, "")) for name in ("title", "version", "description")}


def _keys(openapi: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return how a caller shows who it is."""
    schemes = openapi.get("components", {}).get("securitySchemes", {})
    resolved = [(name, _found(openapi, scheme)) for name, scheme in schemes.items()]
    return [
        {"kind": str(scheme.get("scheme", name)).capitalize(), "description": str(scheme.get("description", ""))}
        for name, scheme in resolved
    ]


def _shapes(openapi: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that have a name, so that many responses can point to one."""
    schemas = openapi.get("components", {}).get("schemas", {})
    return [
        {
            "name": str(name),
            "kind": _kind(openapi, schema),
            "description": str(_whole(openapi, schema).get("description", "")),
            "fields": _fields(openapi, schema, _DEPTH),
        }
        for name, schema in schemas.items()
    ]


def _operation(
    openapi: Mapping[str, Any], path: str, method: str, shared: list[Any], operation: Mapping[str, Any]
) -> dict[str, Any]:
    body = _found(openapi, operation.get("requestBody", {}))
    return {
        "path": path,
        "method": method,
        "part": str((operation.get("tags") or ["Operations"])[0]),
        "summary": str(operation.get("summary", "")),
        "description": str(operation.get("description", "")),
        "deprecated": bool(operation.get("deprecated", False)),
        "security": operation.get("security", openapi.get("security", [])),
        "parameters": [_parameter(openapi, given) for given in (*shared, *operation.get("parameters", []))],
        "body": _contents(openapi, body),
        "body_description": str(body.get("description", "")),
        "responses": [
            _response(openapi, str(status), given) for status, given in operation.get("responses", {}).items()
        ],
    }


def _parameter(openapi: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    parameter = _found(openapi, given)
    return {
        "name": str(parameter.get("name", "")),
        "where": str(parameter.get("in", "")),
        "needed": bool(parameter.get("required", False)),
        "kind": _kind(openapi, parameter.get("schema", {})),
        "description": str(parameter.get("description", "")),
    }


def _response(openapi: Mapping[str, Any], status: str, given: Mapping[str, Any]) -> dict[str, Any]:
    response = _found(openapi, given)
    headers = [
        {"name": str(name), "description": str(_found(openapi, header).get("description", ""))}
        for name, header in response.get("headers", {}).items()
    ]
    return {
        "status": status,
        "refusal": not status.startswith(("1", "2")),
        "description": str(response.get("description", "")),
        "headers": headers,
        "contents": _contents(openapi, response),
    }


def _contents(openapi: Mapping[str, Any], holder: Mapping[str, Any]) -> list[dict[str, Any]]:
    contents = []
    for media, content in holder.get("content", {}).items():
        schema = content.get("schema", {})
        examples = [_found(openapi, example).get("value") for example in content.get("examples", {}).values()]
        if "example" in content:
            examples = [content["example"], *examples]
        elif not examples and "example" in _found(openapi, schema):
            examples = [_found(openapi, schema)["example"]]
        reference = schema.get("$ref", "") if isinstance(schema, Mapping) else ""
        contents.append(
            {
                "media": str(media),
                "shape": str(reference).removeprefix("#/components/schemas/"),
                "kind": _kind(openapi, schema),
                "fields": _fields(openapi, schema, _DEPTH),
                "examples": examples,
            }
        )
    return contents


def _fields(openapi: Mapping[str, Any], given: Mapping[str, Any], depth: int) -> list[dict[str, Any]]:
    """Return the properties of an object, or of what an array holds, each with its own inside it."""
    schema = _whole(openapi, given)
    choices = [one for one in schema.get("anyOf", schema.get("oneOf", [])) if one.get("type") != "null"]
    if len(choices) == 1:  # this, or nothing
        return _fields(openapi, choices[0], depth - 1) if depth else []
    if schema.get("type") == "array" or "items" in schema:
        return _fields(openapi, schema.get("items", {}), depth - 1) if depth else []
    needed = schema.get("required", [])
    return [
        {
            "name": str(name),
            "needed": name in needed,
            "kind": _kind(openapi, inner),
            "description": str(_whole(openapi, inner).get("description", "")),
            "fields": _fields(openapi, inner, depth - 1) if depth else [],
        }
        for name, inner in schema.get("properties", {}).items()
    ]


def _kind(openapi: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return what a schema asks for, in a word or a few."""
    schema = _whole(openapi, given)
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    for name in ("oneOf", "anyOf"):
        if name in schema:
            return " or ".join(dict.fromkeys(_kind(openapi, choice) for choice in schema[name]))
    kinds = schema.get("type", "object" if "properties" in schema else "")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if kind == "array":
        return f"array of {_kind(openapi, schema.get('items', {})) or 'values'}"
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def _whole(openapi: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with what `allOf` adds to it."""
    schema = _found(openapi, given)
    if "allOf" not in schema:
        return schema
    whole: dict[str, Any] = {name: value for name, value in schema.items() if name != "allOf"}
    for part in schema["allOf"]:
        inner = _whole(openapi, part)
        whole = {**inner, **whole, "properties": {**inner.get("properties", {}), **whole.get("properties", {})}}
    return whole


def _found(openapi: Mapping[str, Any], given: Any) -> Mapping[str, Any]:
    """Return what a reference points to within the document; nothing outside it is ever read."""
    for _ in range(_DEPTH):
        if not isinstance(given, Mapping):
            return {}
        reference = given.get("$ref")
        if not isinstance(reference, str):
            return given
        target: Any = openapi
        for part in reference.removeprefix("#/").split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        given = target
    return {}
