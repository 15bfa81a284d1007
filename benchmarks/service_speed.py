"""The CPU time that a server takes for an answer: private, published, and beside an application that only echoes.

Times are CPU seconds of the server's processes, from the kernel, so that clients and other work on the machine weigh
little; the least of several rounds counts.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure
from benchmarks.serving import Served, json_request, send, serving

_FEATURES, _CONNECTIONS = 20, 64
_PACE = 20.0
_ROUNDS = (5, 3)  # in a whole run and in a quick one
_SINGLES = (4000, 1500)  # of a round


def speed_figures(private: Path, published: Path, quick: bool) -> Iterator[Figure]:
    """Measure the CPU time of single fresh answers, and how many more two workers give than one."""
    kinds: dict[str, dict[str, Any]] = {
        "echo": {"folders": [private], "kind": "echo"},
        "private": {"folders": [private]},
        "published": {"folders": [published]},
        "two_workers": {"folders": [private], "workers": 2},
    }
    cpu = {}
    for kind, options in kinds.items():
        with serving(**options, pace=_PACE) as server:
            name = published.name if kind == "published" else private.name
            _cpu_of_answer(server, name, quick)  # warm
            cpu[kind] = min(_cpu_of_answer(server, name, quick) for _ in range(_ROUNDS[quick]))
    for kind, seconds in cpu.items():
        yield f"service.cpu_milliseconds.{kind}", 1000 * seconds, "ms"
    yield "service.cpu_over_echo.private", cpu["private"] / cpu["echo"], "ratio"
    yield "service.cpu_over_private.published", cpu["published"] / cpu["private"], "ratio"
    yield "service.cpu_over_private.two_workers", cpu["two_workers"] / cpu["private"], "ratio"


def _cpu_of_answer(server: Served, name: str, quick: bool) -> float:
    requests = [json_request(name, _query(), f"{number}-{os.urandom(6).hex()}") for number in range(_SINGLES[quick])]
    before = cpu_seconds(server.process.pid)
    send(server.port, requests, _CONNECTIONS)
    return (cpu_seconds(server.process.pid) - before) / len(requests)


def _query() -> np.ndarray:
    X = np.random.default_rng().normal(size=(1, _FEATURES))
    X[:, 0] = np.sign(X[:, 0]) * 8
    return X


def cpu_seconds(process: int) -> float:
    """Return the CPU time of the threads of a process, and of its children, that live."""
    threads = list(Path(f"/proc/{process}/task").iterdir())
    own = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    return own / 1e9 + sum(cpu_seconds(int(child)) for child in children)


def echo(port: int) -> None:
    """Serve an application that answers with the body of the request."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def infer(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    async def ready(request: Request) -> Response:
        return Response(b"{}")

    routes = [Route("/v2/models/{name}/infer", infer, methods=["POST"]), Route("/v2/health/ready", ready)]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, access_log=False, log_level="error")


if __name__ == "__main__":
    echo(int(sys.argv[1]))
