"""Extensions of Starlette's request and response: the caller, a bounded body, and the departure time of an answer.

The time of a request may depend on its content, on the margin of its vote, on the noise, or on other requests.
With a pace, an answer leaves a whole number of paces after the last byte of its request came, and only that number can
be seen. The clock starts when the body is complete, before anything of it is read, and not when the answer is ready, so
the instant at which an answer leaves does not depend on when it was ready, short of a whole pace. All that follows from
the body leaves by this clock: answers, refusals of what was sent (a bad number, an unknown column, a wrong shape), of
the queue and of the vote (a spent budget, a quota), and failures. What is refused before the body is read follows from
the address, the headers and the key alone, and leaves at once.
"""

import asyncio
import math
import os
import time
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from quorate.service._auth import CHALLENGES, OWNER, Caller
from quorate.service._errors import Refused, error_body
from quorate.service.model import Model

_CONTEXT = "quorate"  # the key of a request's scope
_ID_BYTES, _IDS = 8, 512  # of an id, and how many are drawn together

_ORDER_BYTES, _ORDER_SECONDS = 4096, 2.0  # of a body that orders something, which comes with its headers

Order = TypeVar("Order", bound=msgspec.Struct)

_ids: list[str] = []  # for the next requests


def _new_id() -> str:
    """Return an id that cannot be guessed. Ids are drawn in bulk, because each draw waits for other threads."""
    if not _ids:
        block = os.urandom(_ID_BYTES * _IDS).hex()
        _ids.extend(block[start : start + 2 * _ID_BYTES] for start in range(0, len(block), 2 * _ID_BYTES))
    return _ids.pop()


@dataclass(slots=True)
class Context:
    """State of a request while it is answered, for its endpoint, the logs and the metrics."""

    headers: dict[bytes, bytes]
    started: float = field(default_factory=time.perf_counter)
    model: Model | None = None  # that the path names
    caller: Caller = OWNER
    callers: dict[str, Caller] = field(default_factory=dict)  # as whom each model knows the caller, if none is named
    departure: "Departure | None" = None  # Set once the body of a paced request is complete.
    status: int = 0  # of the response, once it has started
    code: str = ""  # of the refusal, if it was one
    cause: str = ""  # and the class of what caused it
    rows: int = 0  # Requested rows.
    id: str = field(default_factory=_new_id)  # The log never holds the client's own id.

    @property
    def named_model(self) -> Model:
        """The model that the path names, on routes that name one."""
        assert self.model is not None
        return self.model


def open_context(scope: Any) -> Context:
    """Return a new context for a request, and keep it in its scope."""
    context = scope[_CONTEXT] = Context(dict(scope["headers"]))
    return context


def context_of(request: Request) -> Context:
    """Return the context of a request."""
    context: Context = request.scope[_CONTEXT]
    return context


async def read_body(request: Request, *, limit: int, seconds: float) -> bytes:
    """Return the body, if it is not too large and comes in time."""
    length = context_of(request).headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18 or int(length) > limit:
        raise Refused("too_large")
    message = await request.receive()
    if message["type"] == "http.request" and not message.get("more_body") and len(message["body"]) <= limit:
        body: bytes = message["body"]  # A complete body needs neither a timer nor a copy.
        return body
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                if message["type"] != "http.request":
                    raise Refused("too_slow", "the client went away before its request was complete")
                parts.append(message["body"])
                size += len(message["body"])
                if size > limit:
                    raise Refused("too_large")
                if not message.get("more_body"):
                    return b"".join(parts)
                message = await request.receive()
    except TimeoutError:
        raise Refused("too_slow") from None


async def read_order(request: Request, kind: type[Order]) -> Order:
    """Return the body of a request that orders something, which may be empty."""
    body = await read_body(request, limit=_ORDER_BYTES, seconds=_ORDER_SECONDS)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError:
        raise Refused("bad_request", "the body asks for something that this server does not do") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("bad_json") from None


def json_response(document: Any) -> Response:
    """Return a document as JSON."""
    return Response(msgspec.json.encode(document), media_type="application/json")


def page_response(page: str, policy: str) -> Response:
    """Return a page for people, under a Content-Security-Policy."""
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer", "x-frame-options": "DENY"}
    return HTMLResponse(page, headers=headers)


def refusal_response(refused: Refused) -> Response:
    """Return a refusal."""
    response = Response(error_body(refused.code, refused.sentence), refused.status, media_type="application/json")
    if refused.retry_after is not None:
        response.headers["retry-after"] = str(refused.retry_after)
    if refused.status == 401:
        for challenge in CHALLENGES:
            response.headers.append("www-authenticate", challenge)
    return response


class Pace:
    """A pace in seconds; 0 for none."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def round_up(self, elapsed: float) -> float:
        """Return a time for logs and metrics: in whole paces, or in milliseconds without a pace."""
        if self.seconds > 0:
            return max(1, math.ceil(elapsed / self.seconds - 1e-9)) * self.seconds
        return math.ceil(elapsed * 1000) / 1000

    def departure(self) -> "Departure":
        """Set the clock for an answer. Needs a running event loop."""
        return Departure(self.seconds)


class Departure:
    """The clock of one answer: it ticks every pace from now on, and the answer leaves at the first tick once ready.

    `async with` leaves its block by the clock, also where that raises.
    """

    __slots__ = ("_arrival", "_loop", "_ready", "_seconds", "_timer", "ticks")

    def __init__(self, seconds: float) -> None:
        self.ticks, self._seconds = 0, seconds
        self._ready: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if seconds > 0:
            self._loop = asyncio.get_running_loop()
            self._arrival = self._loop.time()
            self._set_timer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None or isinstance(error, Exception):  # and not where the request itself was given up
                await self.wait()
        finally:
            self.cancel()

    async def wait(self) -> None:
        """Wait for the next tick; without a pace, not at all."""
        if self._timer is not None:
            passed = int((self._loop.time() - self._arrival) / self._seconds)
            if passed > self.ticks:  # A busy loop missed these ticks.
                self._timer.cancel()
                self.ticks = passed
                self._set_timer()
            self._ready = self._loop.create_future()
            await self._ready

    def cancel(self) -> None:
        """Stop the clock of an answer that will not leave."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self._timer = self._loop.call_at(self._arrival + (self.ticks + 1) * self._seconds, self._tick)

    def _tick(self) -> None:
        self.ticks += 1
        if self._ready is None:
            self._set_timer()
        elif not self._ready.done():
            self._ready.set_result(None)
