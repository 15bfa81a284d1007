"""What to send next, and when: a call cut into requests, lost ones sent again, refused ones made smaller.

Nothing here reads or writes a connection. A call is a generator: it yields what to send or how long to wait, and is
sent what came back. `quorate.service.client.client` has the two ways to do that.

A request has an id of its own. Whatever happened to it, it is sent again with the same id and the same bytes: the
server keeps the answer of an id, and charges it once. A request that the server refused as too large, or as more than
the key may ask at once, was not charged; its rows are asked in smaller ones.
"""

import json
import math
import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from quorate.core.errors import (
    BudgetSpent,
    IdReused,
    InvalidInput,
    KeyClosed,
    LedgerRefused,
    QuorateError,
    QuotaSpent,
    RateLimited,
    ServerRefused,
    ShareSpent,
    Unanswered,
)
from quorate.service.client.answers import Answers
from quorate.service.client.queries import Queries

__all__ = ["Asking", "Exchanged", "Pause", "Reply", "Send", "Step"]

_AGAIN = frozenset({408, 425, 429, 502, 503, 504})  # statuses that are worth another try, whoever sent them
_LATER = frozenset({"in_progress"})  # and codes, of a status that is not
_SMALLER = frozenset({"too_large", "too_many_rows", "quota_spent"})  # worth a try with fewer rows, which cost nothing
_SPENT = frozenset({"budget_spent", "share_spent", "quota_spent"})
_WRONG = ("invalid_input", "bad_tensor", "not_finite", "bad_request", "bad_json", "bad_id")
_KINDS: dict[str, type[QuorateError]] = {
    **{kind.code: kind for kind in (BudgetSpent, ShareSpent, QuotaSpent, RateLimited, IdReused, KeyClosed)},
    "ledger_refused": LedgerRefused,
    **dict.fromkeys(_WRONG, InvalidInput),
}
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0  # seconds before a lost request is sent again


@dataclass(frozen=True, slots=True)
class Send:
    """A request to send, and how many seconds it may take."""

    method: str
    path: str
    seconds: float
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: a status, or 0 and what kept a response from coming. `final` says that trying again is no use."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    lost: str = ""
    final: bool = False

    def document(self) -> Any:
        """Return the JSON of the body, or nothing where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def code(self) -> str:
        """The server's name for a refusal."""
        document = self.document() if self.status not in (0, 200) else {}
        return str(document.get("code", "")) if isinstance(document, dict) else ""


Step = Send | Pause


class Exchanged(ServerRefused):
    """The answers are of another model than the one whose metadata were read: it was loaded in its place meanwhile."""


class Asking:
    """One call of a client: what it may take, and when it must be over."""

    def __init__(
        self,
        host: str,
        *,
        seconds: float,
        attempt_seconds: float,
        rows: int,
        id: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._clock, self._limit, self._attempt = host, clock, seconds, attempt_seconds
        self._end = clock() + seconds
        self._rows, self._id = rows, uuid.uuid4().hex if id is None else id
        if not (self._id.isascii() and self._id.isprintable() and " " not in self._id and 0 < len(self._id) <= 96):
            raise InvalidInput("an id must be 1 to 96 visible ASCII characters, such as a UUID")

    def document(self, path: str, method: str = "GET") -> Generator[Step, Reply, Any]:
        """Read a document of the server."""
        reply = yield from self._settled(method, path)
        if reply.status != 200:
            raise self._error(reply)
        return reply.document()

    def answers(self, model: Mapping[str, Any], X: Any) -> Generator[Step, Reply, Answers]:
        """Ask all rows. Those that the budget cannot pay for are refused; an error where all are."""
        queries, path = Queries(X, model), f"/v2/models/{model['name']}/infer"
        answers, spent = Answers(len(queries), model), None
        place, size, waited, told = 0, min(self._rows, len(queries)), False, 0
        while place < len(queries):
            stop = min(place + size, len(queries))
            body = queries.body(place, stop, id=f"{self._id}-{place}-{stop}")
            reply = yield from self._settled("POST", path, body, give_up=("rate_limited",))
            if reply.status == 200:
                answers.put(place, self._outputs(reply, answers, stop - place))
                place, waited, told = stop, False, told + stop - place
            elif reply.code == "rate_limited" and (size == 1 or not waited):
                yield self._pause(reply, 0)  # a minute may be enough for this many rows
                waited = True
            elif size > 1 and reply.code in (*_SMALLER, "rate_limited"):
                size = -(-size // 2)
            elif reply.code in _SPENT:  # what this caller asked before is still answered, unless it is rows that count
                spent = self._error(reply)
                place = len(queries) if reply.code == "quota_spent" else stop
            else:
                raise self._error(reply)
        if spent is not None and not told:
            raise spent
        return answers

    def _settled(
        self, method: str, path: str, body: bytes | None = None, *, give_up: tuple[str, ...] = ()
    ) -> Generator[Step, Reply, Reply]:
        """Send until something else comes back than a request to come again, whatever is lost meanwhile."""
        tries = 0
        while True:
            left = self._end - self._clock()
            reply = yield Send(method, path, max(0.05, min(self._attempt, left)), body)
            again = reply.status in _AGAIN or reply.code in _LATER or (reply.status == 0 and not reply.final)
            if not again or reply.code in give_up:
                if reply.status == 0:
                    raise self._unanswered(reply)
                return reply
            yield self._pause(reply, tries)
            tries += 1

    def _pause(self, reply: Reply, tries: int) -> Pause:
        """Return how long to wait: as the server says, or longer from one try to the next, and not in step with others.

        Where that is longer than is left, nobody waits.
        """
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(tries, 10)) * (0.5 + random.random())  # noqa: S311
        if reply.retry_after is not None:
            wait = reply.retry_after + min(wait, 0.25)
        if self._clock() + wait > self._end:
            raise self._unanswered(reply)
        return Pause(wait)

    def _outputs(self, reply: Reply, answers: Answers, rows: int) -> dict[str, list[Any]]:
        try:
            outputs = {one["name"]: _rows_of(one, rows) for one in reply.document()["outputs"]}
            known = answers.knows(outputs)
        except (KeyError, TypeError, ValueError):
            raise ServerRefused(f"{self._host} sent an answer that is none: is it a server of quorate?") from None
        if not known:
            raise Exchanged(f"{self._host} answers from another model than the one that it described; ask again")
        return outputs

    def _unanswered(self, reply: Reply) -> Unanswered:
        why = reply.lost or f"it said: {_sentence(reply)}"
        return Unanswered(
            f"{self._host} did not answer within {self._limit:g} seconds: {why}. Nothing is lost: asked again with "
            f"id={self._id!r}, what was answered is not charged again",
            id=self._id,
        )

    def _error(self, reply: Reply) -> QuorateError:
        text = f"{self._host} refused this: {_sentence(reply)}"
        kind = _KINDS.get(reply.code)
        return ServerRefused(text, code=reply.code, status=reply.status) if kind is None else kind(text)


def _sentence(reply: Reply) -> str:
    """Return what the server says of its refusal, or its status where something else has answered in its place."""
    document = reply.document()
    said = document.get("error") if isinstance(document, dict) else None
    return str(said) if said else f"status {reply.status}"


def _rows_of(output: Mapping[str, Any], rows: int) -> list[Any]:
    shape, data = output["shape"], output["data"]
    if shape[0] != rows or not isinstance(data, list) or len(data) != math.prod(shape):
        raise ValueError("an output has more or fewer rows than were asked")
    if len(shape) == 1:
        return data
    width = shape[1]
    return [data[place * width : (place + 1) * width] for place in range(rows)]
