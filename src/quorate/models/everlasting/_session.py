"""The session of an everlasting classifier: an arrival is stored before its answer is returned.

Its state is an object, in memory or in a folder.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.batch import Batch
from quorate.core.checks import check_process
from quorate.core.errors import InvalidInput, QuorateError
from quorate.core.ledger import Ledger
from quorate.core.requests import REFUSED, Asked, KeptAnswers, Outcome, Query, Replies, Request
from quorate.core.rows import take_rows
from quorate.core.session import Session
from quorate.models.everlasting._arrivals import Arrivals
from quorate.models.everlasting._phase_folder import PhaseFolder

_BLOCK = 2**16  # rows of a batch in one transaction


@dataclass(frozen=True, slots=True, eq=False)
class Feed(Request):
    """Points that the owner trusts, for the next phase. Nothing about them is returned."""


class _NoAnswers(KeptAnswers):
    """A memory in this process that knows ids and no queries (PROOF.md, step 13)."""

    def takes_rows(self, X: Any) -> bool:
        return False  # each row arrives by itself

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        labels.update(answers)
        return super().keep({}, labels, requests)


class EverlastingSession(Session):
    """A session whose queries teach, in memory until `keep_in` moves it to a folder, which one process holds."""

    answerer: Arrivals
    block = sys.maxsize  # requests that are answered together are kept together, or not at all; proof: step 19

    def __init__(self, arrivals: Arrivals, folder: PhaseFolder | None = None) -> None:
        super().__init__(
            arrivals, None, ledger=None if folder is None else folder.ledger, memory=folder or _NoAnswers()
        )
        self.folder, self._numbers = folder, count()

    @property
    def progress(self) -> dict[str, Any]:
        """How far the phase has come, as far as it is stored. This is public."""
        return self.answerer.progress if self.folder is None else self.folder.progress

    @property
    def no_quorums(self) -> int:
        """How many arrivals of this phase found no quorum, only for the owner."""
        if self.folder is None:
            return self.answerer.phase.no_quorums
        return 0 if self.folder.kept is None else self.folder.kept.met

    @property
    def takes_feed(self) -> bool:
        """Whether points that the owner gives teach the next phase, rather than queries."""
        return self.answerer.terms.pool is not None

    def arrive(self, X: Any, *, feeds: bool = False, caller: str = "") -> NDArray[np.int64]:
        """Return a class number, `NO_QUORUM` or `REFUSED` for each row of a batch of any length."""
        labels = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(X), _BLOCK):
            block = take_rows(X, slice(start, start + _BLOCK))
            (reply,) = self.ask_all([Feed(block) if feeds else Request(block, caller)])
            if not isinstance(reply, Replies):
                raise reply
            labels.append(np.where(reply.refused, REFUSED, reply.labels))
        return np.concatenate(labels)

    def on_idle(self) -> None:
        """Open the next phase if all seats are taken; an idle server calls this."""
        check_process("this model", self.process)
        with self._lock:
            folder = self.folder
            stored = folder.kept if folder is not None and folder.in_step else None
            if folder is not None and stored is not None and stored.taken == stored.seats:
                with folder.undone():
                    self.answerer.advance()
                    folder.keep({}, {}, [])

    def check_unkept(self) -> None:
        """Refuse a session that has a folder: a phase continues in one place."""
        if self.ledger is not None:
            raise InvalidInput("this classifier has a folder already, and one phase in it; load it from there")

    def keep_in(self, path: Path, ledger: Ledger, *, features: int) -> None:
        """Move from memory to a folder: same phase, same seats, same noise.

        Waiting callers are answered from there.
        """
        with self._lock:
            self.check_unkept()  # another thread may have saved it meanwhile; proof: step 18
            folder = PhaseFolder(self.answerer, path, ledger, features=features, trusted=None)
            self.folder, self.ledger, self._memory = folder, ledger, folder
            self.answerer.move(ledger)  # from here on nothing is answered in memory, whatever happens next
            folder.begin()

    def close(self) -> None:
        """Close the ledger and the folder, so that another process may use the model."""
        with self._lock:
            if self.folder is not None:
                self.folder.close()

    def _describe_request(self, request: Request) -> Asked:
        """Return a request without a trace of its queries: each row has a name of its own."""
        body = (b"feed" if isinstance(request, Feed) else b"request") + request.body
        first = next(self._numbers) << 32
        keys = [(first + row).to_bytes(8) for row in range(len(request.X))]
        return Asked(request.caller, keys, request.id, body)

    def _guard(self, batch: Batch) -> AbstractContextManager[None]:
        requests = [batch.requests[index] for index in batch.waiting]
        self.answerer.arriving = [(len(request.X), isinstance(request, Feed)) for request in requests]
        return nullcontext() if self.folder is None else self.folder.undone()
