"""One HTTP request as the service sees it, and what is sent back."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from quorate.service.auth import CHALLENGES, OWNER, Caller
from quorate.service.errors import Refused, error_body
from quorate.service.model import Model
from quorate.service.pace import Departure
from quorate.service.routes import Route

__all__ = ["Answer", "Call", "json_answer", "page_answer", "refusal_answer"]

_JSON = (b"content-type", b"application/json")
_PLAIN = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class Call:
    """A request: its headers, the route it takes, and who makes it, as far as that is known yet.

    >>> call = Call({"method": "GET", "path": "/v2", "headers": [(b"host", b"localhost")]}, receive=None)
    >>> call.headers[b"host"], call.caller.id
    (b'localhost', '')
    """

    __slots__ = (
        "_receive",
        "caller",
        "departure",
        "headers",
        "known",
        "method",
        "model",
        "name",
        "path",
        "route",
        "started",
    )

    def __init__(self, scope: Any, receive: Any) -> None:
        self.started = time.perf_counter()
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self.route: Route | None = None
        self.name = ""  # of the model, as the path has it
        self.model: Model | None = None
        self.caller: Caller = OWNER
        self.departure: Departure | None = None  # of the answer, once the body of what is paced is there
        self.known: dict[str, Caller] = {}  # the models that know this caller, where the route names none

    async def body(self, *, limit: int, seconds: float) -> bytes:
        """Return the body, if it is not too large and comes in time.

        >>> async def receive():
        ...     return {"type": "http.request", "body": b"{}"}
        >>> asyncio.run(Call({"method": "POST", "path": "/", "headers": []}, receive).body(limit=10, seconds=1.0))
        b'{}'
        """
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > limit:
            raise Refused("too_large")
        message = await self._receive()
        if not message.get("more_body") and message["type"] == "http.request":
            return self._within(message["body"], limit)
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
                    message = await self._receive()
        except TimeoutError:
            raise Refused("too_slow") from None

    @staticmethod
    def _within(body: bytes, limit: int) -> bytes:
        if len(body) > limit:
            raise Refused("too_large")
        return body


@dataclass(slots=True)
class Answer:
    """What is sent back, and what logs and metrics say of it.

    >>> Answer(200, b"{}").code
    ''
    """

    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    code: str = ""
    rows: int = 0

    def sent_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as they are sent.

        >>> Answer(200, b"{}").sent_headers()[0]
        (b'content-length', b'2')
        """
        return [(b"content-length", b"%d" % len(self.body)), *self.headers, *_PLAIN]


def json_answer(document: Any, status: int = 200) -> Answer:
    """Return a document as JSON.

    >>> json_answer({"live": True}).body
    b'{"live":true}'
    """
    return Answer(status, msgspec.json.encode(document), [_JSON])


def page_answer(page: str, policy: str) -> Answer:
    """Return a page for people, under a Content-Security-Policy.

    >>> page_answer("<p>", "default-src 'none'").headers[0]
    (b'content-type', b'text/html; charset=utf-8')
    """
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode("ascii")),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
    ]
    return Answer(200, page.encode(), headers)


def refusal_answer(refused: Refused) -> Answer:
    """Return a refusal.

    >>> refusal_answer(Refused("overloaded")).headers
    [(b'content-type', b'application/json'), (b'retry-after', b'1')]
    """
    headers = [_JSON]
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after))
    if refused.status == 401:
        headers += [(b"www-authenticate", challenge.encode("ascii")) for challenge in CHALLENGES]
    return Answer(refused.status, error_body(refused.code, refused.sentence), headers, refused.code)
