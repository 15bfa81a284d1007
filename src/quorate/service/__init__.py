"""A model behind HTTP: the Open Inference Protocol, keys, limits, metrics and pages.

    Settings      which models, where to listen, with what limits
    serve         run a server until it receives a stop signal
    make_app      the service as an ASGI application, for other servers
    Model         a fitted model with its queue, session and ledger

The path of a request: `edge` (limits on a connection) -> `app` (a Starlette route, a key) -> `infer` -> `codec` and
`inputs` (checked queries) -> `batcher` (many requests, one vote) -> `quorate.core.session` -> `outputs` and `codec`
(answers to bytes) -> `http` (when they leave).
"""

from quorate.service._app import make_app
from quorate.service._run import serve
from quorate.service._settings import Settings
from quorate.service.model import Model

__all__ = ["Model", "Settings", "make_app", "serve"]
