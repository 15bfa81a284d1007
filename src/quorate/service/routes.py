"""The addresses of the service, in one table: what answers them, who may ask, and what they are for."""

from typing import NamedTuple

__all__ = ["ROUTES", "Route", "find_route"]


class Route(NamedTuple):
    """An address. `scope` is what a key must have: None for an open address, "" for any key of the model.

    >>> ROUTES[0].template, ROUTES[0].scope
    ('/v2/models/{name}/infer', 'ask')
    """

    template: str
    method: str
    handler: str
    scope: str | None
    part: str
    summary: str


ROUTES = (
    Route("/v2/models/{name}/infer", "POST", "infer", "ask", "Inference", "Ask a model: queries in, labels out"),
    Route("/v2/health/live", "GET", "live", None, "Health", "Whether the server runs"),
    Route("/v2/health/ready", "GET", "ready", None, "Health", "Whether the server answers for all its models"),
    Route("/v2", "GET", "server", None, "Inference", "The server's name, version and extensions of the protocol"),
    Route("/v2/models/{name}", "GET", "model", "", "Inference", "A model's inputs, outputs, classes and guarantee"),
    Route("/v2/models/{name}/ready", "GET", "model_ready", "", "Health", "Whether a model answers"),
    Route("/budget/{name}", "GET", "budget", "budget", "Owner", "What a model may spend, has spent and has left"),
    Route("/metrics", "GET", "metrics", "budget", "Owner", "Numbers for Prometheus"),
    Route(
        "/feed/{name}", "POST", "feed", "admin", "Owner", "Give an everlasting model points that teach its next phase"
    ),
    Route("/docs", "GET", "docs", None, "Description", "This description, as a page"),
    Route("/openapi.json", "GET", "openapi", None, "Description", "This description, as an OpenAPI document"),
    Route("/", "GET", "dashboard", "budget", "Owner", "The dashboard: budgets, answers, keys, refusals, ledgers"),
)

_EXACT = {route.template: route for route in ROUTES if "{name}" not in route.template}
_NAMED = [(route.template.partition("{name}"), route) for route in ROUTES if "{name}" in route.template]


def find_route(path: str) -> tuple[Route | None, str]:
    """Return the route of a path and the name of the model in it.

    >>> find_route("/v2/models/clinic/infer")[1], find_route("/nowhere")
    ('clinic', (None, ''))
    """
    for (prefix, _, suffix), route in _NAMED:
        if path.startswith(prefix) and path.endswith(suffix):
            name = path[len(prefix) : len(path) - len(suffix)]
            if name and "/" not in name:
                return route, name
    return _EXACT.get(path), ""
