"""The addresses of the service, and its OpenAPI document, made from the tables that it runs by.

`ROUTES` lists for each address its endpoint, the required scope and a summary.
"""

from typing import Any, NamedTuple

import msgspec

from quorate import __version__
from quorate.service._codec import DATATYPES, ChangeBody, RequestBody
from quorate.service._documents import (
    DOCUMENTS,
    ExtensionOrder,
    IndexRequest,
    KeyChange,
    KeyOrder,
    LoadRequest,
    Nothing,
    ProjectOrder,
    RotationOrder,
)
from quorate.service._errors import PROBLEMS
from quorate.service._outputs import OUTPUT_NAMES
from quorate.service._settings import Settings


class RouteInfo(NamedTuple):
    """An address. `scope` is the required scope: None for an open address, "" for any key of the model."""

    path: str
    method: str
    endpoint: str
    scope: str | None
    part: str
    summary: str


ROUTES = (
    RouteInfo("/v2/models/{name}/infer", "POST", "infer", "ask", "Inference", "Ask a model: queries in, labels out"),
    RouteInfo("/v2/health/live", "GET", "live", None, "Health", "Whether the server runs"),
    RouteInfo("/v2/health/ready", "GET", "ready", None, "Health", "Whether the server answers for all its models"),
    RouteInfo("/v2", "GET", "server", None, "Inference", "The server's name, version and extensions of the protocol"),
    RouteInfo("/v2/", "GET", "server", None, "Inference", "The same, with a slash at the end"),
    RouteInfo("/v2/models/{name}", "GET", "model", "", "Inference", "A model's inputs, outputs, classes and guarantee"),
    RouteInfo("/v2/models/{name}/ready", "GET", "model_ready", "", "Health", "Whether a model answers"),
    RouteInfo("/share/{name}", "GET", "share", "ask", "Inference", "The limits of this key and its use"),
    RouteInfo(
        "/v2/models/{name}/versions/{version}/infer", "POST", "infer", "ask", "Inference", "Ask a version of a model"
    ),
    RouteInfo(
        "/v2/models/{name}/versions/{version}", "GET", "model", "", "Inference", "The inputs and outputs of a version"
    ),
    RouteInfo(
        "/v2/models/{name}/versions/{version}/ready", "GET", "model_ready", "", "Health", "Whether a version answers"
    ),
    RouteInfo("/v2/repository/index", "POST", "index", None, "Inference", "The models that this key opens"),
    RouteInfo(
        "/v2/repository/models/{name}/load", "POST", "load", "admin", "Owner", "Load a model, again if it is loaded"
    ),
    RouteInfo("/v2/repository/models/{name}/unload", "POST", "unload", "admin", "Owner", "Unload a model"),
    RouteInfo("/budget/{name}", "GET", "budget", "budget", "Owner", "The budget of a model: total, spent and left"),
    RouteInfo("/metrics", "GET", "metrics", "budget", "Owner", "Numbers for Prometheus"),
    RouteInfo(
        "/feed/{name}", "POST", "feed", "admin", "Owner", "Give an everlasting model points that teach its next phase"
    ),
    RouteInfo("/insert/{name}", "POST", "insert", "admin", "Owner", "Take records into a model of neighbours"),
    RouteInfo("/forget/{name}", "POST", "forget", "admin", "Owner", "Forget units of a model of neighbours"),
    RouteInfo("/keys/{name}", "GET", "list_keys", "keys", "Keys", "The keys, projects and proposals of a model"),
    RouteInfo("/keys/{name}/add", "POST", "add_key", "keys", "Keys", "Make a key"),
    RouteInfo("/keys/{name}/{id}/change", "POST", "change_key", "keys", "Keys", "Change the share of a key"),
    RouteInfo("/keys/{name}/{id}/rotate", "POST", "rotate_key", "keys", "Keys", "Replace the secret of a key"),
    RouteInfo("/keys/{name}/{id}/revoke", "POST", "revoke_key", "keys", "Keys", "Revoke a key"),
    RouteInfo("/keys/{name}/{id}/extend", "POST", "extend_key", "keys", "Keys", "Let a key open other models too"),
    RouteInfo("/projects/{name}", "POST", "set_project", "keys", "Keys", "Make a project, or change its share"),
    RouteInfo(
        "/proposals/{name}/{id}/approve", "POST", "approve", "keys", "Keys", "Make a change that another proposed"
    ),
    RouteInfo("/proposals/{name}/{id}/reject", "POST", "reject", "keys", "Keys", "Drop a change that was proposed"),
    RouteInfo("/audit/{name}", "GET", "audit", "keys", "Keys", "Who changed keys, shares and the ledger"),
    RouteInfo("/docs", "GET", "docs", None, "Description", "This description, as a page"),
    RouteInfo("/openapi.json", "GET", "openapi", None, "Description", "This description, as an OpenAPI document"),
    RouteInfo("/", "GET", "dashboard", "budget", "Owner", "The dashboard: budgets, answers, keys, refusals, ledgers"),
)


_ABOUT = """Answers from private records, with a differential-privacy guarantee. The inference part is the Open
Inference Protocol, version 2, with its extensions for binary tensors and the model repository. An `id`, or the header
`Idempotency-Key`, makes a request safe to repeat: the same bytes under the same id get the same bytes back, and are
paid for once. Answers leave {pace}."""

_BODIES = {  # The type of a body by its endpoint; the body of a repository request may be empty.
    "infer": RequestBody,
    "feed": RequestBody,
    "insert": ChangeBody,
    "forget": ChangeBody,
    "index": IndexRequest,
    "load": LoadRequest,
    "unload": LoadRequest,
    "add_key": KeyOrder,
    "change_key": KeyChange,
    "rotate_key": RotationOrder,
    "revoke_key": Nothing,
    "extend_key": ExtensionOrder,
    "set_project": ProjectOrder,
    "approve": Nothing,
    "reject": Nothing,
}
_BODY_CODES = ("bad_http", "bad_json", "bad_request", "cross_site", "too_slow", "too_large", "headers_too_large")
_QUERY_CODES = (  # that only queries can meet
    *("bad_tensor", "not_finite", "bad_id", "invalid_input", "too_many_rows", "unsupported_encoding", "id_reused"),
    *("budget_spent", "share_spent", "share_in_use", "quota_spent", "rate_limited", "in_progress", "overloaded"),
    *("stopping", "not_ready", "ledger_refused", "site_refused", "cluster_lost"),
)
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_QUERY_EXAMPLE = {
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "inputs": [{"name": "features", "shape": [1, 3], "datatype": "FP64", "data": [0.5, -1.0, 2.25]}],
}
_ANSWER_EXAMPLE = {
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
    "name": "the name of a model, which is the name of its folder",
    "version": "the version of a model; each has one, and it is 1",
    "id": "the id of a key, or of a proposal",
    "after": "the last entry of the audit trail that is known already",
    "Idempotency-Key": "the id of this request, which overrides the id in the body; a repeated request is charged once",
    "Inference-Header-Content-Length": "how many bytes of the body are JSON; the rest are binary tensors",
}

Schema = dict[str, Any]


def openapi_document(settings: Settings) -> dict[str, Any]:
    """Return the document."""
    references, schemas = _schemas()
    pace = f"in steps of {settings.pace_ms:g} ms" if settings.pace_ms else "as soon as they are ready"
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, settings, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quorate", "version": __version__, "description": _ABOUT.format(pace=pace)},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _error_schema()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key, as 'quorate keys add' prints it."},
                "password": {"type": "http", "scheme": "basic", "description": "Any user name, and a key as password."},
            },
        },
    }


def _schemas() -> tuple[dict[Any, Schema], dict[str, Any]]:
    """Return how the type of each endpoint's body and response is referred to, and the schemas of all types."""
    kinds = {("body", name): kind for name, kind in _BODIES.items()}
    kinds |= {("response", name): kind for name, kind in DOCUMENTS.items()}
    references, schemas = msgspec.json.schema_components(kinds.values(), ref_template="#/components/schemas/{name}")
    for schema in schemas.values():  # their docstrings hold examples for Python
        schema["description"] = schema.get("description", "").partition(">>>")[0].strip()
    tensor = schemas["RequestedTensor"]["properties"]
    tensor["datatype"] = {"type": "string", "enum": list(DATATYPES)}
    tensor["shape"] = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 2}
    tensor["data"] = {"type": "array", "description": "the elements, flat or nested as the shape is", "items": {}}
    schemas["RequestedOutput"]["properties"]["name"] = {"type": "string", "enum": list(OUTPUT_NAMES)}
    return dict(zip(kinds, references, strict=True)), schemas


def _error_schema() -> Schema:
    return {
        "type": "object",
        "required": ["error", "code"],
        "properties": {
            "error": {"type": "string", "description": "the problem and a remedy"},
            "code": {"type": "string", "enum": list(PROBLEMS)},
        },
    }


def _operation(route: RouteInfo, settings: Settings, references: dict[Any, Schema]) -> dict[str, Any]:
    content, refusals = _response_content(route, references), _refusals(_codes(route, settings))
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [route.part],
        "summary": route.summary,
        "responses": {"200": {"description": "as asked", "content": content}, **refusals},
    }
    if route.scope is not None and settings.keys:
        operation["security"] = [{"key": []}, {"password": []}]
        operation["description"] = f"Needs a key with the scope {route.scope!r}." if route.scope else "Needs a key."
    if route.endpoint in _BODIES:
        content = {"application/json": {"schema": references["body", route.endpoint]}}
        if _takes_queries(route):
            content |= _BINARY
        if _BODIES[route.endpoint] is RequestBody:
            content["application/json"]["example"] = _QUERY_EXAMPLE
        operation["requestBody"] = {"required": _takes_queries(route), "content": content}
    parameters = [
        _parameter(name, {"type": "string"}, where="path", required=True)
        for name in ("name", "version", "id")
        if f"{{{name}}}" in route.path
    ]
    if route.endpoint == "audit":
        parameters.append(_parameter("after", {"type": "integer", "minimum": 0}, where="query"))
    if _takes_queries(route):
        parameters.append(_parameter("Idempotency-Key", {"type": "string", "pattern": "^[\\x21-\\x7e]{1,128}$"}))
        parameters.append(_parameter("Inference-Header-Content-Length", {"type": "integer", "minimum": 0}))
    return operation | ({"parameters": parameters} if parameters else {})


def _takes_queries(route: RouteInfo) -> bool:
    return issubclass(_BODIES.get(route.endpoint, object), RequestBody)


def _codes(route: RouteInfo, settings: Settings) -> set[str]:
    """Return the codes of refusals that a route can meet."""
    codes = {"internal"}
    if route.endpoint in _BODIES:
        codes |= {*_BODY_CODES, *(_QUERY_CODES if _takes_queries(route) else ())}
    if "{name}" in route.path:
        codes |= {"unknown_model", "not_ready", "ledger_refused"}
    if route.scope == "keys":
        codes |= {"rate_limited", "forbidden"}
    if route.endpoint == "ready":
        codes.add("not_ready")
    if route.scope is not None and settings.keys:
        codes |= {"unauthenticated", "forbidden"}
    if not settings.keys:
        codes.add("cross_site")
    return codes


def _operation_id(route: RouteInfo) -> str:
    """Return a name for an operation, which differs for each address of an endpoint."""
    if route.path.endswith("/") and route.path != "/":
        return f"{route.endpoint}_slash"
    return f"{route.endpoint}_version" if "{version}" in route.path else route.endpoint


def _parameter(name: str, schema: Schema, *, where: str = "header", required: bool = False) -> dict[str, Any]:
    parameter = {"name": name, "in": where, "description": _PARAMETERS[name], "schema": schema}
    return parameter | ({"required": True} if required else {})


def _response_content(route: RouteInfo, references: dict[Any, Schema]) -> dict[str, Any]:
    if route.endpoint in ("docs", "dashboard", "metrics"):
        return {"text/plain" if route.endpoint == "metrics" else "text/html": {"schema": {"type": "string"}}}
    schema = references.get(("response", route.endpoint), {"type": "object"})
    if route.endpoint == "infer":
        return {"application/json": {"schema": schema, "example": _ANSWER_EXAMPLE}, **_BINARY}
    return {"application/json": {"schema": schema}}


def _refusals(codes: set[str]) -> dict[str, Any]:
    """Return the refusals by status, each with its codes and what they mean."""
    by_status: dict[str, list[str]] = {}
    for code, problem in PROBLEMS.items():
        if code in codes:
            by_status.setdefault(str(problem.status), []).append(f"`{code}`: {problem.sentence}.")
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": " ".join(lines), "content": content} for status, lines in by_status.items()}
