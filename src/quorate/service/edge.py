"""The edge of the server: limits on connections and headers, before anything of a request is read.

A connection has so many seconds until its headers are complete, and its headers so many bytes. Where there are as many
connections as may be, a new one takes the place of the one that has been idle for longest: who opens many and sends
nothing does not keep others out. The limits are those of `quorate.service.settings`.
"""

import asyncio
import os
from functools import lru_cache
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quorate.service.errors import error_body
from quorate.service.settings import ENVIRONMENT, Settings

_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@lru_cache(maxsize=1)
def _settings(text: str) -> Settings:
    return Settings.from_json(text)


class EdgeProtocol(HttpToolsProtocol):
    """One connection, within limits."""

    idle: ClassVar[dict["EdgeProtocol", None]] = {}  # connections without a request under way, the longest idle first

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = _settings(os.environ[ENVIRONMENT])
        self._bytes = 0  # of headers that are not complete
        self._received = 0  # bytes since then, with those that are being read
        self._in_headers = True
        self._refused: bytes | None = None  # a refusal, which comes after the answers to earlier requests
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a connection, in the place of an idle one where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connection_limit:
            oldest = next(iter(self.idle), None)
            if oldest is None:
                self._refuse(503, "overloaded")
                return
            oldest.end()
        self._rest()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self.idle.pop(self, None)
        self._stop_waiting()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close a connection that has nothing under way."""
        self.idle.pop(self, None)
        self._stop_waiting()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on, unless the headers have become too large."""
        if self._refused is not None:
            return
        self._received = self._bytes + len(data)
        super().data_received(data)
        if self._in_headers and self._refused is None and not self.transport.is_closing():
            self._bytes += len(data)
            if self._bytes > self._limits.header_limit:
                self._refuse(431, "headers_too_large")
            elif self._timer is None:
                self._wait()

    def on_message_begin(self) -> None:
        """Begin with the headers of a request."""
        if self._refused is not None:  # what follows it on the connection is not answered either
            return
        super().on_message_begin()
        self._in_headers, self._bytes = True, 0

    def on_headers_complete(self) -> None:
        """Begin with the rest of a request, which has limits of its own."""
        if self._refused is not None:
            return
        self._stop_waiting()
        self._in_headers = False
        self.idle.pop(self, None)
        if self._received > self._limits.header_limit:  # with what else came: else there is nothing to add up
            size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            if size > self._limits.header_limit:
                self._refuse(431, "headers_too_large")
                return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Read a part of a body, unless its request was refused."""
        if self._refused is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End with a request, unless it was refused."""
        if self._refused is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Rest, until the next request, or refuse the last one now that those before it are answered."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._answered():
            return
        if self._refused is None:
            self._rest()
        else:
            self._say_refused()

    def _answered(self) -> bool:
        """Return whether every request so far has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _rest(self) -> None:
        self.idle.pop(self, None)
        self.idle[self] = None

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self._limits.header_seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._bytes:
            self._refuse(408, "too_slow")
        else:
            self.end()

    def _refuse(self, status: int, code: str) -> None:
        """Say why, in one piece, and close: once earlier requests of the connection have their answers."""
        body = error_body(code)
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self._refused = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self._stop_waiting()
        if self._answered():
            self._say_refused()

    def _say_refused(self) -> None:
        assert self._refused is not None
        self.transport.write(self._refused)
        self.end()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP: in its turn, unless it is the body of the request under way, which never ends."""
        if self._answered() or not self.cycle.more_body:
            self._refuse(400, "bad_http")
        else:
            super().send_400_response(msg)
