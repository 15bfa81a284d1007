"""One worker process: reads its settings, loads the models, and makes the application. uvicorn calls `application`."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from starlette.applications import Starlette

from quorate.errors import InvalidInput, QuorateError
from quorate.models import PublishedFolder, load, open_folder
from quorate.service.app import make_app
from quorate.service.model import Model
from quorate.service.settings import ENVIRONMENT, PARENT, Settings
from quorate.service.telemetry import Log

__all__ = ["STARTUP_FAILURE", "application", "open_models"]

STARTUP_FAILURE = 3  # the exit status at which uvicorn does not start a worker again

_WATCH_SECONDS = 0.5


def application() -> Starlette:
    """Return the application for the settings in the environment, or end the process with a sentence."""
    try:
        settings = Settings.from_json(os.environ.get(ENVIRONMENT, "{}"))
        if settings.workers > 1:
            threading.Thread(target=_end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
        return make_app(open_models(settings), settings)
    except QuorateError as error:
        sys.stderr.write(f"quorate: {error}\n")
        sys.stderr.flush()
    except Exception as error:  # a defect: started again, it would fail again
        log = Log()
        log.failure(error, route="")
        log.flush()
    sys.exit(STARTUP_FAILURE)


def _end_with(parent: int) -> None:
    """Stop this worker cleanly when its parent is gone: nobody else would."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def open_models(settings: Settings) -> list[Model]:
    """Load every model, each with a lease of its own; if one cannot be loaded, the others give theirs back."""
    models: list[Model] = []
    try:
        for name, folder in settings.models.items():
            models.append(_open(name, Path(folder), settings))
    except BaseException:
        for model in models:
            model.session.close()
        raise
    return models


def _open(name: str, folder: Path, settings: Settings) -> Model:
    opened = open_folder(folder)
    if settings.workers > 1 and opened.kind == "everlasting":
        raise InvalidInput(
            f"{folder} is an everlasting model, which one process asks at a time; serve it with 1 worker, and others "
            "from a server of their own"
        )
    schema, classifier = opened.schema(), load(opened, trusted=list(settings.trusted), lease=settings.lease)
    if isinstance(opened, PublishedFolder):  # by its type: what is private is never answered for free
        return Model.of_published(name, classifier, schema=schema, queue_limit=settings.queue_limit)
    try:
        return Model.of(name, classifier, schema=schema, queue_limit=settings.queue_limit)
    except (InvalidInput, AttributeError):
        classifier.session_.close()
        raise
