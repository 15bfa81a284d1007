"""One worker process: reads its settings, loads the models, and makes the application. uvicorn calls `application`."""

import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path

from starlette.applications import Starlette

from quorate.errors import InvalidInput, LedgerRefused, QuorateError
from quorate.ledger import Ledger
from quorate.ledger.place import place_of
from quorate.models import PrivateFolder, PublishedFolder, load, open_folder
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
        log = Log()
        return make_app(open_models(settings, log), settings, log=log)
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


def open_models(settings: Settings, log: Log | None = None) -> list[Model]:
    """Load every model, each with a lease of its own; if one cannot be loaded, the others give theirs back.

    Where several are served, one whose ledger is refused is served as refused, and the others go on.
    """
    models: list[Model] = []
    try:
        for name, folder in settings.models.items():
            try:
                models.append(_open(name, Path(folder), settings))
            except LedgerRefused as error:
                if len(settings.models) == 1:
                    raise
                models.append(_refused(name, Path(folder)))
                if log is not None:
                    log.event("refused", model=name, cause=error.cause)
        if all(model.refused for model in models):
            raise LedgerRefused("the ledger of every model is refused; `quorate ledger verify` says why")
    except BaseException:
        for model in models:
            if not model.refused:
                model.session.close()
        raise
    return models


def _refused(name: str, folder: Path) -> Model:
    """Return a model that answers nothing, with the keys of its ledger, if they can be read: who has one is told."""
    place = place_of(folder)
    try:
        ledger = Ledger.unchecked(place, fingerprint=open_folder(folder).fingerprint, folder=folder)
        ledger.read_keys()
    except LedgerRefused:
        return Model.of_refused(name)
    return Model.of_refused(name, find_key=ledger.find_key)


def _open(name: str, folder: Path, settings: Settings) -> Model:
    opened = open_folder(folder)
    if settings.workers > 1 and opened.kind == "everlasting":
        raise InvalidInput(
            f"{folder} is an everlasting model, which one process asks at a time; serve it with 1 worker, and others "
            "from a server of their own"
        )
    if isinstance(opened, PrivateFolder):
        _check_mode(folder)
    schema, classifier = opened.schema(), load(opened, trusted=list(settings.trusted), lease=settings.lease)
    if isinstance(opened, PublishedFolder):  # by its type: what is private is never answered for free
        return Model.of_published(name, classifier, schema=schema, queue_limit=settings.queue_limit)
    try:
        return Model.of(name, classifier, schema=schema, queue_limit=settings.queue_limit)
    except (InvalidInput, AttributeError):
        classifier.session_.close()
        raise


def _check_mode(folder: Path) -> None:
    """Refuse a private folder that everybody may write to: whoever can exchange its files can exchange its ledger."""
    if os.stat(folder).st_mode & stat.S_IWOTH:
        raise InvalidInput(f"{folder} may be written by everybody on this machine; close it: chmod go-w {folder}")
