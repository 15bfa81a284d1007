"""A client that keeps many connections busy and notes how long each answer took. Run as a process of its own."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["binary_request", "json_request", "main", "run_load", "table_request"]

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def json_request(model: str, X: np.ndarray, id: str, token: str = "") -> bytes:
    """Return a whole HTTP request for these rows, in JSON; `token` is the caller's, where keys are needed."""
    tensor = {"name": "features", "shape": list(X.shape), "datatype": "FP64", "data": X.ravel().tolist()}
    body = json.dumps({"id": id, "inputs": [tensor]}).encode()
    return _request(model, body, f"Authorization: Bearer {token}\r\n".encode() if token else b"")


def binary_request(model: str, X: np.ndarray, id: str) -> bytes:
    """Return a whole HTTP request for these rows, as binary tensors."""
    content = np.ascontiguousarray(X, dtype="<f8").tobytes()
    about = {"binary_data_size": len(content)}
    tensor = {"name": "features", "shape": list(X.shape), "datatype": "FP64", "parameters": about}
    head = json.dumps({"id": id, "inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return _request(model, head + content, b"Inference-Header-Content-Length: %d\r\n" % len(head))


def table_request(model: str, columns: dict[str, list[str]]) -> bytes:
    """Return a whole HTTP request for the rows of a table, all of them texts."""
    tensors = [
        {"name": name, "shape": [len(texts)], "datatype": "BYTES", "data": texts} for name, texts in columns.items()
    ]
    return _request(model, json.dumps({"inputs": tensors}).encode(), b"")


def _request(model: str, body: bytes, more: bytes) -> bytes:
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + more + b"\r\n" + body


class _Connection(asyncio.Protocol):
    """One connection: sends the next request as soon as the last is answered."""

    def __init__(self, take: Callable[[], tuple[int, bytes] | None], note: Callable[[int, float, int], None]) -> None:
        self._take, self._note = take, note
        self._transport: Any = None
        self._buffer, self._sent, self.waiting = b"", 0.0, -1
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        """Send the first request."""
        self._transport, self.done = transport, asyncio.get_running_loop().create_future()
        self._next()

    def _next(self) -> None:
        taken = self._take()
        if taken is None:
            self._transport.close()
            return
        self.waiting, request = taken
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Note the answer once it is whole."""
        self._buffer += data
        head = self._buffer.find(_END)
        if head < 0:
            return
        start = self._buffer.lower().index(_LENGTH) + len(_LENGTH)
        length = int(self._buffer[start : self._buffer.index(b"\r\n", start)])
        if len(self._buffer) >= head + len(_END) + length:
            self._note(self.waiting, time.perf_counter() - self._sent, int(self._buffer[9:12]))
            self._buffer = b""
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


async def run_load(port: int, requests: list[bytes], connections: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Send all requests over this many connections; return the seconds in all, of each, and the status of each."""
    left = iter(enumerate(requests))
    seconds, status = np.full(len(requests), np.nan), np.zeros(len(requests), dtype=int)

    def note(number: int, took: float, code: int) -> None:
        seconds[number], status[number] = took, code

    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    opened = [
        (await loop.create_connection(lambda: _Connection(lambda: next(left, None), note), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(one.done for one in opened if one.done is not None))
    return time.perf_counter() - began, seconds, status


def main() -> int:
    """Read what to send from standard input, send it, and write what was seen to standard output."""
    import uvloop

    told = json.loads(sys.stdin.buffer.readline())
    requests = [sys.stdin.buffer.read(length) for length in told["lengths"]]
    total, seconds, status = uvloop.run(run_load(told["port"], requests, told["connections"]))
    seen = json.dumps({"total": total, "seconds": seconds.tolist(), "status": status.tolist()})
    with open(sys.stdout.fileno(), "w", encoding="ascii", closefd=False) as out:  # one with a buffer, whatever -u says:
        out.write(seen)  # without it, what a pipe does not take at once is lost
    return 0


if __name__ == "__main__":
    sys.exit(main())
