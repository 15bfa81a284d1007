"""One worker process: reads its settings, loads the models, and makes the application. uvicorn calls `application`."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from quorate.core.errors import InvalidInput, LedgerRefused, QuorateError
from quorate.core.ledger import Ledger, find_ledger
from quorate.models.saving import PrivateFolder, PublishedFolder, class_of, load, open_folder
from quorate.service._app import make_app
from quorate.service._repository import UNLOADED, is_unloaded
from quorate.service._settings import ENVIRONMENT, PARENT, Settings
from quorate.service._shelf import check_writers
from quorate.service._telemetry import Log, traces_to
from quorate.service.model import Model

STARTUP_FAILURE = 3  # the exit status at which uvicorn does not start a worker again

_WATCH_SECONDS = 0.5


def application() -> Starlette:
    """Return the application for the settings in the environment, or end the process with a sentence."""
    try:
        settings = Settings.from_json(os.environ.get(ENVIRONMENT, "{}"))
        if settings.workers > 1:
            threading.Thread(target=_end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
        log = Log()
        app = make_app(
            open_models(settings, log),
            settings,
            log=log,
            source=Folders(settings, log),
            traces=traces_to(settings.traces),
        )
        gc.collect()
        gc.freeze()  # Models and libraries stay: each collection of garbage would walk over them again.
        return app
    except QuorateError as error:
        sys.stderr.write(f"quorate: {error}\n")
        sys.stderr.flush()
    except Exception as error:  # a defect: started again, it would fail again
        log = Log()
        log.failure(error, route="")
        log.flush()
    sys.exit(STARTUP_FAILURE)


def _end_with(parent: int) -> None:
    """Stop this worker cleanly when its parent has died."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def open_models(settings: Settings, log: Log | None = None) -> list[Model]:
    """Load every model with its lease; if one fails to load, return the leases of the others.

    Among several models, a model with an invalid ledger is served as refused, and the others are served normally.
    """
    models: list[Model] = []
    folders = Folders(settings, log)
    try:
        for name in settings.models:
            try:
                # The owner of an unloaded model may replace its folder at this moment.
                models.append(folders.closed(name, UNLOADED) if is_unloaded(name) else folders.open(name))
            except LedgerRefused as error:
                if len(settings.models) == 1:
                    raise
                models.append(folders.closed(name, "refused_at_start"))
                if log is not None:
                    log.event("refused", model=name, cause=error.cause)
        if models and all(model.refused not in ("", UNLOADED) for model in models):
            raise LedgerRefused("the ledger of every model is refused; `quorate ledger verify` says why")
    except BaseException:
        for model in models:
            if not model.refused:
                model.session.close()
        raise
    return models


class Folders:
    """The folders of the models, as a server opens them."""

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self._settings, self._log = settings, log

    def closed(self, name: str, cause: str) -> Model:
        """Return an unavailable model with the keys of its ledger, so that holders get the reason and may load it."""
        return Model.of_refused(name, _FolderKeys(self._path(name)), cause=cause)

    def open(self, name: str) -> Model:
        """Load a model with its lease, or raise `LedgerRefused` for an unsound ledger."""
        folder, settings = self._path(name), self._settings
        opened = open_folder(folder)
        model_class = class_of(opened)
        if settings.workers > 1 and model_class.spending.one_process:
            raise InvalidInput(
                f"{folder} is a model of kind {opened.kind}, which one process asks at a time; serve it with 1 worker, "
                "and others from a server of their own"
            )
        if not model_class.served:
            raise InvalidInput(f"{folder} is a {opened.kind}, which is the owner's: serve what its updates published")
        if isinstance(opened, PrivateFolder):
            _check_folder(folder)
        trusted, outside = list(settings.trusted), settings.outside_mark
        schema, classifier = opened.schema(), load(opened, trusted=trusted, lease=settings.lease, outside_mark=outside)
        if isinstance(opened, PublishedFolder):  # By type, so that a private model is never served free of charge.
            return Model.of_published(name, classifier, schema=schema, queue_limit=settings.queue_limit)
        try:
            self._check_outside(name, classifier)
            if settings.cluster:
                _check_placed(folder, classifier).place_teachers(settings.cluster)
            return Model.of(name, classifier, schema=schema, queue_limit=settings.queue_limit, folder=opened)
        except (QuorateError, AttributeError):
            classifier.session_.close()
            raise

    def _path(self, name: str) -> Path:
        """Return the folder of a model: one that was named, or one in the folder of models."""
        folder = self._settings.models.get(name)
        return Path(self._settings.repository) / name if folder is None else Path(folder)

    def _check_outside(self, name: str, classifier: Any) -> None:
        """Refuse a model whose folder could be rolled back unseen, before a caller is told that it answers."""
        ledger = getattr(classifier.session_, "ledger", None)
        if ledger is not None and not ledger.check_outside() and self._log is not None:
            self._log.event("new_mark", model=name)  # At every start: the state folder does not last.


def _check_placed(folder: Path, classifier: Any) -> Any:
    """Return a classifier whose teachers can be placed on a cluster, or refuse another model."""
    if not hasattr(classifier, "place_teachers"):
        raise InvalidInput(f"{folder} is a {type(classifier).__name__}, which is not counted on a cluster")
    return classifier


class _FolderKeys:
    """The keys of a refused ledger. The file is not kept open, because its owner may repair or replace it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ledger: Ledger | None = None  # as it was when its keys were last read

    def read_keys(self) -> None:
        """Read the keys. `LedgerRefused` where the ledger cannot be read."""
        try:
            opened = open_folder(self._folder)
        except InvalidInput as error:
            raise LedgerRefused(str(error), cause="missing") from None
        ledger = find_ledger(self._folder, fingerprint=opened.fingerprint, verify=False)
        try:
            ledger.read_keys()
        finally:
            ledger.close_store()
        self._ledger = ledger

    def find_key(self, token: str) -> Any:
        """Return the key of this token; None also where the ledger cannot be read."""
        return self._look_up(lambda ledger: ledger.find_key(token))

    def find_subject(self, issuer: str, subject: str) -> Any:
        """Return the key of a subject of an issuer of tokens; None also where the ledger cannot be read."""
        return self._look_up(lambda ledger: ledger.find_subject(issuer, subject))

    def _look_up(self, find: Callable[[Ledger], Any]) -> Any:
        try:
            if self._ledger is None:
                self.read_keys()
            assert self._ledger is not None
            return find(self._ledger)
        except LedgerRefused:
            return None
        finally:
            if self._ledger is not None:
                self._ledger.close_store()


def _check_folder(folder: Path) -> None:
    """Refuse a private folder whose files other users could exchange, or that lie outside it."""
    for path in (folder, *folder.iterdir()):
        if path != folder and path.is_symlink():
            raise InvalidInput(f"{path} must be a file in the model's folder, got a link; move the file here")
        with contextlib.suppress(FileNotFoundError):  # such as a draft that has got its name meanwhile
            check_writers(path.stat(), path, folder)
