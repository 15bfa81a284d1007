"""The edge of the server: limits on what one connection may cost before a request is authenticated.

uvicorn limits neither the time and size of headers, nor trailers, nor how long a client may take to read its answer.
A connection is `waiting` while its client must act next: send headers or a body, read an answer, or send the next
request. Each wait has a time limit. At the connection limit a new connection replaces the one with the longest wait, so
idle clients cannot block others. Trailers of a chunked body count towards the header limit and are dropped, so a
trailer never becomes a header. The limits come from `quorate.service._settings`.
"""

import asyncio
import os
from functools import lru_cache
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quorate.service._errors import PROBLEMS, error_body
from quorate.service._settings import ENVIRONMENT, Settings

_PIPELINE_LIMIT = 16  # requests of a connection that wait for the answer to an earlier one
_SLICE_BYTES = 8192
_HEADER_COUNT, _URL_BYTES = 100, 2048  # Each header and each step of a path costs far more than its bytes.
_DISCARD_BYTES, _DISCARD_SECONDS = 2**18, 0.1  # how much of a refused body is read in how long
_GRACE_SECONDS = 1.0  # The application refuses a slow body first; this cuts off the rest.


@lru_cache(maxsize=1)
def _settings(text: str) -> Settings:
    return Settings.from_json(text)


class EdgeProtocol(HttpToolsProtocol):
    """One connection, within limits."""

    waiting: ClassVar[dict["EdgeProtocol", None]] = {}  # Connections in the order of their waits.

    def __init__(self, *arguments: Any, limits: Settings | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = _settings(os.environ[ENVIRONMENT]) if limits is None else limits
        self._overhead = 0  # bytes of the message under way that are not its body
        self._received = 0  # these, and all that came with the bytes that are being read
        self._body_bytes = 0  # among the bytes that are being read
        self._in_headers, self._complete = True, False
        self._discarded = 0  # bytes of a body whose request has its answer, since reading was paused
        self._refusal: bytes | None = None  # Sent after the answers to earlier requests.
        self._timer: asyncio.TimerHandle | None = None  # for the client to send
        self._read_timer: asyncio.TimerHandle | None = None  # for the client to read

    # --- The connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, in the place of the longest waiting connection where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connection_limit:
            oldest = next(iter(self.waiting), None)
            if oldest is None:
                self._refuse("overloaded")
                return
            oldest.end()
        self._wait(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_waiting()
        self._stop_read_timer()
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def end(self) -> None:
        """Close a connection; at once, if its client does not read its answer or has an unfinished request."""
        self._stop_waiting()
        self.waiting.pop(self, None)
        if self.transport.get_write_buffer_size() or not self._has_answered():
            self.transport.abort()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the time limit for the client to read its answer."""
        super().pause_writing()
        self.waiting[self] = None
        self._read_timer = self.loop.call_later(self._limits.body_seconds, self.end)

    def resume_writing(self) -> None:
        """End the wait after the client has read its answer."""
        super().resume_writing()
        self._stop_read_timer()
        if self._timer is None and not self._has_answered():
            self.waiting.pop(self, None)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _wait(self, seconds: float | None = None) -> None:
        """Wait for the client up to this many seconds; uvicorn limits the time between two requests."""
        self._stop_waiting()
        if self not in self.connections:  # it was lost while an earlier request was answered
            return
        self.waiting[self] = None
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self._end_late)

    def _stop_waiting(self) -> None:
        if not self.flow.write_paused:
            self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_late(self) -> None:
        self._timer = None
        if self._overhead and self._in_headers and self._refusal is None:
            self._refuse("too_slow")
        else:
            self.end()

    # --- Requests ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read on in slices, so that a flood of tiny chunks is refused before the parser has seen all of it."""
        for start in range(0, len(data), _SLICE_BYTES):
            if self._refusal is not None or self.transport.is_closing():
                return
            self._receive(data[start : start + _SLICE_BYTES])

    def _receive(self, data: bytes) -> None:
        """Read on, unless the headers or trailers have become too large."""
        self._received, self._body_bytes = self._overhead + len(data), 0
        super().data_received(data)
        if self._complete and self._has_answered() and self._timer is None and self.timeout_keep_alive_task is None:
            self._wait(self._limits.header_seconds)  # Bytes that begin no request ended the wait for one.
        if self._complete or self._refusal is not None or self.transport.is_closing():
            return
        self._overhead += len(data) - self._body_bytes
        if self._overhead > self._limits.header_limit:
            self._refuse("headers_too_large")
        elif self._timer is None:  # The rest of a request that has come whole is not waited for.
            body_seconds = self._limits.body_seconds + _GRACE_SECONDS
            self._wait(self._limits.header_seconds if self._in_headers else body_seconds)

    def on_message_begin(self) -> None:
        """Begin with the headers of a request; after a refusal, nothing more on the connection is answered."""
        if self._refusal is None:
            super().on_message_begin()
            self._in_headers, self._complete, self._overhead = True, False, 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address, unless it is longer than any of ours."""
        if self._refusal is None:
            super().on_url(url)
            if len(self.url) > _URL_BYTES:
                self._refuse("headers_too_large")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, unless there are too many; drop a trailer."""
        if self._in_headers and self._refusal is None:
            super().on_header(name, value)
            if len(self.headers) > _HEADER_COUNT:
                self._refuse("headers_too_large")

    def on_headers_complete(self) -> None:
        """Begin with the body of a request."""
        if self._refusal is not None:
            return
        self._in_headers = False
        if self._received > self._limits.header_limit:  # with what else came: else there is nothing to add up
            size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            if size > self._limits.header_limit:
                self._refuse("headers_too_large")
                return
        if len(self.pipeline) >= _PIPELINE_LIMIT:
            self._refuse("overloaded")
            return
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Read a part of a body."""
        self._body_bytes += len(body)
        if self._refusal is None:
            super().on_body(body)
            if self._has_answered():
                self._discard(len(body))

    def _discard(self, size: int) -> None:
        """Read the rest of a body slowly: its client should get its answer, and others should not wait."""
        self._discarded += size
        if self._discarded > _DISCARD_BYTES:
            self._discarded = 0
            self.flow.pause_reading()
            self.loop.call_later(_DISCARD_SECONDS, self.flow.resume_reading)

    def on_message_complete(self) -> None:
        """End with reading a request: from here on its client waits for us."""
        if self._refusal is None:
            self._complete = True
            self._stop_waiting()
            super().on_message_complete()
            if self._has_answered():  # before its body had come
                self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request, or send the refusal that waited for the answers before it."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait(self._limits.body_seconds)  # for the client to read the answer
        elif self._has_answered():
            if self._refusal is not None:
                self._send_refusal()
            elif self._complete:
                self._wait()
            elif not self._in_headers:
                self._wait(self._limits.body_seconds)  # The rest of the body is discarded.

    def _has_answered(self) -> bool:
        """Return whether every request so far has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, code: str) -> None:
        """Say why, in one piece, and close: once earlier requests of the connection have their answers."""
        body, status = error_body(code), HTTPStatus(PROBLEMS[code].status)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self._refusal = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self._stop_waiting()
        if self._has_answered():
            self._send_refusal()
        elif self.cycle.more_body and not self._in_headers:  # the body of the request under way never ends
            if self.pipeline or self.cycle.response_started:  # so this would be read as the answer to another one
                self.transport.abort()
            else:
                self._send_refusal()

    def _send_refusal(self) -> None:
        assert self._refusal is not None
        self.transport.write(self._refusal)
        self.transport.close()
        self._wait(self._limits.body_seconds)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        self._refuse("bad_http")
