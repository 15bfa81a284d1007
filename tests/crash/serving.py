"""What forked processes do: serve with the real application and HTTP server, save a model, move a ledger."""

import importlib
from pathlib import Path

_NEEDED = (
    "models",
    "quorate.service._worker",
    "skops.io",
    "sklearn.linear_model",
    "psycopg",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)


def warm_up():
    """Import everything a server needs, and open nothing."""
    for name in _NEEDED:
        importlib.import_module(name)


def serve(folder, *, listening, ready, lease=20, pace=0.0, keys=False):
    """Serve the model of this folder, under the folder's name, from a socket that listens already."""
    import uvicorn

    from quorate.service import Settings, make_app
    from quorate.service._telemetry import log_config
    from quorate.service._worker import open_models

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            ready()

    settings = Settings.of(folder, keys=keys, pace_ms=pace, lease=lease)
    app = make_app(open_models(settings), settings)
    config = uvicorn.Config(app, log_config=log_config(), access_log=False, ws="none", lifespan="on")
    Server(config).run(sockets=[listening])


def save(folder, *, listening, ready, units):
    """Fit a model and save it."""
    from models import make_model

    ready()
    make_model(Path(folder), units=units)


def move(folder, *, listening, ready, url):
    """Move the ledger of a model into a database."""
    from models import move_ledger

    ready()
    move_ledger(Path(folder), url)
