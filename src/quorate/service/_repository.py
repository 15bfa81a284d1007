"""The model repository of a server: its models, and loading and unloading while it runs.

The owner of a model loads and unloads it. A model that is not loaded refuses queries, and holders of its keys get the
reason. Several worker processes share a folder of small command files, and each worker executes every command.
"""

import asyncio
import os
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.core.errors import LedgerRefused, QuorateError
from quorate.service._auth import Access
from quorate.service._errors import Refused
from quorate.service._identity import Identities
from quorate.service._settings import ORDERS, Settings
from quorate.service._shelf import Shelf
from quorate.service._telemetry import Log
from quorate.service.model import VERSION, Model

if TYPE_CHECKING:
    from quorate.service._worker import Folders

_GATHER_SHARE = 0.1  # of a pace: no answer leaves before the pace is over, and a ledger writes once for a batch

UNLOADED, _GONE = "unloaded", "gone"
_REASONS = {  # The reasons of an unavailable model, for holders of its keys.
    UNLOADED: "its owner has unloaded it",
    _GONE: "its folder is gone",
    "loading": "it is being loaded",
    "not_loaded": "it could not be loaded; the server's log says why",
}
_REFUSED = "its ledger is refused; 'quorate ledger verify' says why"


def is_unloaded(name: str) -> bool:
    """Return whether the latest order unloads this model: a worker that starts then does not open it."""
    try:
        return (Path(os.environ[ORDERS]) / name).read_text(encoding="ascii").startswith("unload")
    except (KeyError, OSError):
        return False


def refusal_of(model: Model) -> Refused:
    """Return the reason of an unavailable model, for holders of its keys."""
    if model.refused in _REASONS:
        return Refused("not_ready", f"this model does not answer: {_REASONS[model.refused]}", cause=model.refused)
    return Refused("ledger_refused", cause=model.refused)


class Repository:
    """Models by name, with their access control."""

    def __init__(self, models: Iterable[Model], settings: Settings, log: Log, source: "Folders | None" = None) -> None:
        self.models: dict[str, Model] = {}
        self._gather_seconds = _GATHER_SHARE * settings.pace_ms / 1000
        self.access = Access(required=settings.keys)
        self._identities = Identities(settings.identity) if settings.identity else None
        for model in models:
            self._install(model)
        self._source, self._log, self._seconds = source, log, settings.stop_seconds
        self._turn = asyncio.Lock()
        self.closing: dict[str, asyncio.Task[None]] = {}  # Unloaded models that still answer their queues.
        self._orders = Path(os.environ[ORDERS]) if ORDERS in os.environ else None
        self._followed: dict[str, str] = {}
        self._shelf = Shelf(settings.repository, taken=settings.models) if settings.repository else None

    def _install(self, model: Model) -> None:
        finder = decoy = model.find_key
        if self._identities is not None:
            finder, decoy = self._identities.finder(model), self._identities.finder(model, add=False)
        self.models[model.name] = model
        model.batcher.gather_seconds = self._gather_seconds
        self.access.register(model.name, finder, decoy=decoy, published=model.published)

    async def index(self, names: Collection[str], *, ready: bool = False) -> list[dict[str, str]]:
        """Return these models in the protocol's index format; with `ready`, only the ready models."""
        models = [model for name, model in self.models.items() if name in names]
        reasons = await asyncio.gather(*(_reason(model) for model in models))
        return [
            {
                "name": model.name,
                "version": VERSION,
                "state": "UNAVAILABLE" if reason else "READY",
                "reason": reason,
            }
            for model, reason in zip(models, reasons, strict=True)
            if not (ready and reason)
        ]

    async def load(self, name: str) -> None:
        """Load a model, again if it is loaded: its folder and its ledger are read and checked anew."""
        async with self._turn:
            await self._load(name)
            self._give_order(name, "load")

    async def unload(self, name: str) -> None:
        """Answer queued requests, return the lease, and refuse further requests."""
        async with self._turn:
            self._give_order(name, "unload")
            await self._unload(name, UNLOADED)

    async def _load(self, name: str) -> None:
        source = await self._unload(name, "loading")
        try:
            await self._open(source, name)
        except Exception as error:
            cause = error.cause if isinstance(error, LedgerRefused) else "not_loaded"
            self.models[name].refused = cause
            if isinstance(error, QuorateError):
                self._log.event("refused", model=name, cause=cause)
            else:
                self._log.failure(error, route="")
            raise refusal_of(self.models[name]) from None
        self._log.event("loaded", model=name)

    async def _open(self, source: "Folders", name: str) -> None:
        """Open a model and put it in its place, or close it where the rules for tokens do not fit it."""
        model = await asyncio.to_thread(source.open, name)
        model.batcher.start()
        try:
            self._install(model)
        except QuorateError:
            await model.close()
            raise

    async def _unload(self, name: str, cause: str) -> "Folders":
        """Put a model that answers nothing in the place of another, and close that."""
        if self._source is None:
            raise Refused("bad_request", "this server was given no folders to load models from")
        former = self.models[name]
        self._install(await asyncio.to_thread(self._source.closed, name, cause))
        if not former.refused:
            self.closing[name] = asyncio.create_task(self._close(former))
        if name in self.closing:
            # The task continues after the timeout.
            done, _ = await asyncio.wait([self.closing[name]], timeout=self._seconds)
            if not done:
                self.models[name].refused = UNLOADED
                raise Refused("not_ready", "this model still answers its queued requests; try again in a moment")
            del self.closing[name]
        self._log.event("unloaded", model=name)
        return self._source

    async def _close(self, model: Model) -> None:
        """Close a model. Where its ledger does not take the lease back, that stays charged."""
        try:
            await model.close()
        except Exception as error:
            self._log.failure(error, route="")

    # Commands to the other worker processes.

    def _give_order(self, name: str, order: str) -> None:
        if self._orders is not None:
            self._followed[name] = f"{order} {secrets.token_hex(8)}"
            draft = self._orders / f".{name}.{os.getpid()}"
            draft.write_text(self._followed[name], encoding="ascii")
            os.replace(draft, self._orders / name)

    async def follow(self) -> None:
        """Execute a command that another worker process received."""
        for name in list(self.models) if self._orders is not None else ():
            with suppress(OSError):
                order = (self._orders / name).read_text(encoding="ascii")  # type: ignore[operator]
                if order == self._followed.get(name):
                    continue
                async with self._turn:
                    self._followed[name] = order
                    with suppress(Refused):  # which the log has
                        await (self._load(name) if order.startswith("load") else self._unload(name, UNLOADED))

    # The folder of models.

    async def scan(self, *, at_once: bool = False) -> None:
        """Load models that came into the folder of models or were replaced there, and unload those that left it."""
        if self._shelf is None or self._source is None:
            return
        async with self._turn:
            for name, is_there in await asyncio.to_thread(self._shelf.changes, at_once=at_once):
                stays_out = at_once and is_unloaded(name)  # as its owner ordered another worker
                with suppress(Refused):  # which the log has
                    if name not in self.models:
                        self._install(await asyncio.to_thread(self._source.closed, name, UNLOADED))
                    if is_there and not stays_out:
                        await self._load(name)
                    elif not is_there:
                        await self._unload(name, _GONE)
                loaded = stays_out or not self.models[name].refused
                await asyncio.to_thread(self._shelf.settle, name, loaded=loaded)


async def _reason(model: Model) -> str:
    """Return why a model does not answer; nothing where it does."""
    if model.refused:
        return _REASONS.get(model.refused, _REFUSED)
    cause = await model.find_cause()
    return f"it does not answer just now: {cause}" if cause else ""
