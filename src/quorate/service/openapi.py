"""The service described as an OpenAPI document, made from the tables that it runs by: routes, refusals, datatypes."""

from typing import Any

import msgspec

from quorate import __version__
from quorate.service.codec import DATATYPES, ChangeBody, RequestBody
from quorate.service.documents import DOCUMENTS, IndexRequest, LoadRequest
from quorate.service.errors import PROBLEMS
from quorate.service.releases import OnlineOutputs
from quorate.service.routes import ROUTES, RouteInfo
from quorate.service.sets import IntervalOutputs, SetOutputs
from quorate.service.settings import Settings
from quorate.service.tensors import LabelsOutputs, ScoreOutputs

_ABOUT = """Answers from private records, with a differential-privacy guarantee. The inference part is the Open
Inference Protocol, version 2, with its extensions for binary tensors and the model repository. An `id`, or the header
`Idempotency-Key`, makes a request safe to repeat: the same bytes under the same id get the same bytes back, and are
paid for once. Answers leave {pace}."""

_ASKED = (  # codes that only asking can meet
    *(
        "bad_http",
        "bad_json",
        "bad_request",
        "bad_tensor",
        "not_finite",
        "bad_id",
        "invalid_input",
        "cross_site",
        "budget_spent",
    ),
    *(
        "share_spent",
        "share_in_use",
        "quota_spent",
        "too_slow",
        "id_reused",
        "in_progress",
        "too_large",
        "too_many_rows",
        "headers_too_large",
        "unsupported_encoding",
    ),
    *("rate_limited", "overloaded", "stopping", "not_ready", "ledger_refused", "site_refused", "cluster_lost"),
)

_ORDERS = ("bad_json", "bad_request", "cross_site", "too_slow", "too_large", "headers_too_large")
_ORDERED = {"index": IndexRequest, "load": LoadRequest, "unload": LoadRequest}  # whose body may be empty

_OUTPUTS = (ScoreOutputs, SetOutputs, LabelsOutputs, IntervalOutputs, OnlineOutputs)  # which have all names there are

_ASKED_EXAMPLE = {
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "inputs": [{"name": "features", "shape": [1, 3], "datatype": "FP64", "data": [0.5, -1.0, 2.25]}],
}
_ANSWERED_EXAMPLE = {
    "model_name": "clinic",
    "model_version": "1",
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "outputs": [
        {"name": "label", "datatype": "BYTES", "shape": [1], "data": ["yes"]},
        {"name": "index", "datatype": "INT64", "shape": [1], "data": [1]},
        {"name": "outcome", "datatype": "BYTES", "shape": [1], "data": ["answered"]},
    ],
}
_PARAMETERS = {
    "name": "the name of a model: that of its folder",
    "version": "the version of a model; each has one, and it is 1",
    "Idempotency-Key": "the id of this request, before that of its body: sent again, it is charged once",
    "Inference-Header-Content-Length": "how many bytes of the body are JSON; the rest are binary tensors",
}


def openapi_document(settings: Settings) -> dict[str, Any]:
    """Return the document."""
    described, schemas = _schemas()
    pace = f"in steps of {settings.pace_ms:g} ms" if settings.pace_ms else "as soon as they are there"
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Quorate", "version": __version__, "description": _ABOUT.format(pace=pace)},
        "paths": {},
        "components": {
            "schemas": {**schemas, "Error": _error_schema()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key, as 'quorate keys add' prints it."},
                "password": {"type": "http", "scheme": "basic", "description": "Any user name, and a key as password."},
            },
        },
    }
    for route in ROUTES:
        document["paths"].setdefault(route.path, {})[route.method.lower()] = _operation(route, settings, described)
    return document


def _schemas() -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """Return how each type of a body is referred to, and the schemas that this refers to."""
    bodies = {"asked": RequestBody, "changed": ChangeBody}
    kinds = {**bodies, **{f"{name}_asked": kind for name, kind in _ORDERED.items()}, **DOCUMENTS}
    references, schemas = msgspec.json.schema_components(kinds.values(), ref_template="#/components/schemas/{name}")
    for schema in schemas.values():  # their docstrings hold examples for Python
        schema["description"] = schema.get("description", "").partition(">>>")[0].strip()
    tensor = schemas["RequestedTensor"]["properties"]
    tensor["datatype"] = {"type": "string", "enum": list(DATATYPES)}
    tensor["shape"] = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 2}
    tensor["data"] = {"type": "array", "description": "the elements, flat or nested as the shape is", "items": {}}
    outputs = dict.fromkeys(name for kind in _OUTPUTS for name in kind.names)
    schemas["RequestedOutput"]["properties"]["name"] = {"type": "string", "enum": list(outputs)}
    return dict(zip(kinds, references, strict=True)), schemas


def _error_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["error", "code"],
        "properties": {
            "error": {"type": "string", "description": "what is wrong and what to do"},
            "code": {"type": "string", "enum": list(PROBLEMS)},
        },
    }


def _operation(route: RouteInfo, settings: Settings, described: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    asks = route.endpoint in ("infer", "feed", "insert", "forget")
    codes = [*(_ASKED if asks else _ORDERS if route.endpoint in _ORDERED else ()), "internal"]
    if "{name}" in route.path:
        codes += ["unknown_model", "not_ready", "ledger_refused"]
    if route.endpoint == "ready":
        codes.append("not_ready")
    if route.scope is not None and settings.keys:
        codes += ["unauthenticated", "forbidden"]
    if not settings.keys and not asks:
        codes.append("cross_site")
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [route.part],
        "summary": route.summary,
        "responses": {"200": {"description": "as asked", "content": _content(route, described)}, **_refusals(codes)},
    }
    if route.scope is not None and settings.keys:
        operation["security"] = [{"key": []}, {"password": []}]
        operation["description"] = f"Needs a key with the scope {route.scope!r}." if route.scope else "Needs a key."
    parameters = []
    for name in ("name", "version"):
        if f"{{{name}}}" in route.path:
            parameters.append(_parameter(name, {"type": "string"}, place="path", required=True))
    if asks:
        changes = route.endpoint in ("insert", "forget")
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": described["changed"]}
                if changes
                else {"schema": described["asked"], "example": _ASKED_EXAMPLE},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        }
        visible = {"type": "string", "pattern": "^[\\x21-\\x7e]{1,128}$"}
        parameters.append(_parameter("Idempotency-Key", visible))
        parameters.append(_parameter("Inference-Header-Content-Length", {"type": "integer", "minimum": 0}))
    if route.endpoint in _ORDERED:
        schema = described[f"{route.endpoint}_asked"]
        operation["requestBody"] = {"required": False, "content": {"application/json": {"schema": schema}}}
    return operation | ({"parameters": parameters} if parameters else {})


def _operation_id(route: RouteInfo) -> str:
    """Return a name for an operation; one that stands at two addresses has two."""
    if route.path.endswith("/") and route.path != "/":
        return f"{route.endpoint}_slash"
    return f"{route.endpoint}_version" if "{version}" in route.path else route.endpoint


def _parameter(name: str, schema: dict[str, Any], *, place: str = "header", required: bool = False) -> dict[str, Any]:
    parameter = {"name": name, "in": place, "description": _PARAMETERS[name], "schema": schema}
    return parameter | ({"required": True} if required else {})


def _content(route: RouteInfo, described: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if route.endpoint in ("docs", "dashboard"):
        return {"text/html": {"schema": {"type": "string"}}}
    if route.endpoint == "metrics":
        return {"text/plain": {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": described.get(route.endpoint, {"type": "object"})}}
    if route.endpoint == "infer":
        content["application/json"]["example"] = _ANSWERED_EXAMPLE
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return content


def _refusals(codes: list[str]) -> dict[str, Any]:
    """Return the refusals by status, each with its codes and what they mean."""
    by_status: dict[str, Any] = {}
    for code, problem in PROBLEMS.items():
        if code in codes:
            lines = by_status.setdefault(str(problem.status), [])
            lines.append(f"`{code}`: {problem.sentence}.")
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": " ".join(lines), "content": content} for status, lines in by_status.items()}
