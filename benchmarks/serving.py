"""Servers for benches, each a process of its own, and clients of them: a load of requests, or one caller with a key.

A client that keeps many connections busy and notes how long each answer took. Run as a process of its own.
"""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]  # of the checkout: where `python -m benchmarks` runs
_START_SECONDS = 120.0


class Served:
    """A server that runs."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.port, self.process = port, process

    def ready(self, *, seconds: float = 5.0) -> bool:
        """Return whether it says that it is ready."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request("GET", "/v2/health/ready", headers={"Connection": "close"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def until(self, ready: bool, *, most: float) -> float:
        """Return how many seconds it takes until the server says that it is ready, or that it is not."""
        began = time.monotonic()
        while self.ready() != ready:
            if time.monotonic() - began > most:
                return float("inf")
            time.sleep(0.02)
        return time.monotonic() - began

    def stop(self, *, most: float = 60.0) -> float:
        """Send SIGTERM and return how many seconds the server takes to end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(most)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return float("inf")
        return time.monotonic() - began


@contextmanager
def serving(
    folders: Sequence[Path],
    *,
    pace: float,
    kind: str = "served",
    workers: int = 1,
    keys: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """Serve models: as `quorate serve` does, or a twin of `benchmarks/service.py`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = [str(folder) for folder in folders]
    command = ["-m", "quorate", "serve", *paths, "--port", str(port), "--pace", str(pace)]
    command += ["--workers", str(workers), "--keys" if keys else "--no-keys"]
    if kind == "echo":
        command = ["-m", "benchmarks.service_speed", str(port)]
    elif kind != "served":
        command = ["-m", "benchmarks.service", kind, str(port), str(pace), *paths]
    process = subprocess.Popen(  # noqa: S603  this program
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | dict(environment or {}),
    )
    server = Served(port, process)
    try:
        _wait(server)
        yield server
    finally:
        if process.poll() is None:
            server.stop()


def _wait(server: Served) -> None:
    end = time.monotonic() + _START_SECONDS
    while server.process.poll() is None and time.monotonic() < end:
        if server.ready():
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


def send(
    port: int, requests: Sequence[bytes], connections: int, *, status: int | None = 200
) -> tuple[float, np.ndarray]:
    """Send requests from a process of its own; return the seconds in all and of each.

    All must be answered with this status; None where any will do.
    """
    job = {"port": port, "connections": connections, "lengths": [len(request) for request in requests]}
    client = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving"],
        cwd=ROOT,
        input=json.dumps(job).encode() + b"\n" + b"".join(requests),
        stdout=subprocess.PIPE,
        check=True,
    )
    seen = json.loads(client.stdout)
    if status is not None and set(seen["status"]) != {status}:
        raise RuntimeError(f"the server answered with {sorted(set(seen['status']))}")
    return seen["total"], np.array(seen["seconds"])


class Caller:
    """One caller with a key, on a connection of its own."""

    def __init__(self, port: int, model: str, token: str) -> None:
        self._path, self._headers = f"/v2/models/{model}/infer", {"Authorization": f"Bearer {token}"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, X: np.ndarray) -> tuple[int, dict[str, Any]]:
        """Ask these rows, and return the status and what was said."""
        tensor = {"name": "features", "shape": list(X.shape), "datatype": "FP64", "data": X.ravel().tolist()}
        self._connection.request("POST", self._path, json.dumps({"inputs": [tensor]}), self._headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


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
        job = self._take()
        if job is None:
            self._transport.close()
            return
        self.waiting, request = job
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
    queue = iter(enumerate(requests))
    seconds, status = np.full(len(requests), np.nan), np.zeros(len(requests), dtype=int)

    def note(number: int, took: float, code: int) -> None:
        seconds[number], status[number] = took, code

    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    opened = [
        (await loop.create_connection(lambda: _Connection(lambda: next(queue, None), note), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(connection.done for connection in opened if connection.done is not None))
    return time.perf_counter() - began, seconds, status


def main() -> int:
    """Read what to send from standard input, send it, and write what was seen to standard output."""
    import uvloop

    job = json.loads(sys.stdin.buffer.readline())
    requests = [sys.stdin.buffer.read(length) for length in job["lengths"]]
    total, seconds, status = uvloop.run(run_load(job["port"], requests, job["connections"]))
    seen = json.dumps({"total": total, "seconds": seconds.tolist(), "status": status.tolist()})
    with open(sys.stdout.fileno(), "w", encoding="ascii", closefd=False) as out:  # one with a buffer, whatever -u says:
        out.write(seen)  # without it, what a pipe does not take at once is lost
    return 0


if __name__ == "__main__":
    sys.exit(main())
