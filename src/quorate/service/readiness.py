"""Whether a model answers now: its thread runs, and its ledger takes a write that is synced.

A probe is made when somebody asks, at most a few times a second, and one at a time. Who asks waits a limited time for
it: a ledger that does not answer is as good as none.
"""

import asyncio
import time
from typing import Any

from quorate.core.errors import LedgerRefused
from quorate.service.batcher import RequestBatcher

_KEPT_SECONDS = 0.25  # for which a probe counts
_WAIT_SECONDS = 1.5


class Readiness:
    """Whether one model answers. `ledger` is None for a model that was published."""

    def __init__(self, batcher: RequestBatcher, ledger: Any) -> None:
        self._batcher, self._ledger = batcher, ledger
        self._cause, self._known_until = "", 0.0
        self._probing: asyncio.Task[None] | None = None

    async def cause(self) -> str:
        """Return the class of what keeps the model from answering; nothing where it answers."""
        if not self._batcher.answering:
            return "not_answering"
        if self._ledger is None or time.monotonic() < self._known_until:
            return self._cause
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())
        done, _ = await asyncio.wait([self._probing], timeout=_WAIT_SECONDS)
        return self._cause if done else "ledger_unanswering"

    async def _probe(self) -> None:
        try:
            await asyncio.to_thread(self._ledger.probe)
            self._cause = ""
        except LedgerRefused as error:
            self._cause = error.cause
        except Exception as error:  # whatever it is, the model is not ready, and its type says more than nothing
            self._cause = type(error).__name__
        self._known_until = time.monotonic() + _KEPT_SECONDS
