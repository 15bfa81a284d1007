"""The addresses of the service, in one table: what answers them, who may ask, and what they are for."""

from typing import NamedTuple


class RouteInfo(NamedTuple):
    """An address. `scope` is what a key must have: None for an open address, "" for any key of the model."""

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
    RouteInfo("/share/{name}", "GET", "share", "ask", "Inference", "What this key may have, and what it has had"),
    RouteInfo(
        "/v2/models/{name}/versions/{version}/infer", "POST", "infer", "ask", "Inference", "Ask a version of a model"
    ),
    RouteInfo(
        "/v2/models/{name}/versions/{version}", "GET", "model", "", "Inference", "What a version takes and gives"
    ),
    RouteInfo(
        "/v2/models/{name}/versions/{version}/ready", "GET", "model_ready", "", "Health", "Whether a version answers"
    ),
    RouteInfo("/v2/repository/index", "POST", "index", None, "Inference", "The models that this key opens"),
    RouteInfo(
        "/v2/repository/models/{name}/load", "POST", "load", "admin", "Owner", "Load a model, again if it is loaded"
    ),
    RouteInfo("/v2/repository/models/{name}/unload", "POST", "unload", "admin", "Owner", "Unload a model"),
    RouteInfo("/budget/{name}", "GET", "budget", "budget", "Owner", "What a model may spend, has spent and has left"),
    RouteInfo("/metrics", "GET", "metrics", "budget", "Owner", "Numbers for Prometheus"),
    RouteInfo(
        "/feed/{name}", "POST", "feed", "admin", "Owner", "Give an everlasting model points that teach its next phase"
    ),
    RouteInfo("/insert/{name}", "POST", "insert", "admin", "Owner", "Take records into a model of neighbours"),
    RouteInfo("/forget/{name}", "POST", "forget", "admin", "Owner", "Forget units of a model of neighbours"),
    RouteInfo("/docs", "GET", "docs", None, "Description", "This description, as a page"),
    RouteInfo("/openapi.json", "GET", "openapi", None, "Description", "This description, as an OpenAPI document"),
    RouteInfo("/", "GET", "dashboard", "budget", "Owner", "The dashboard: budgets, answers, keys, refusals, ledgers"),
)
