"""Servers for benches, each a process of its own, and clients of them: a load of requests, or one caller with a key."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Caller", "Served", "send", "serving"]

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
    """Serve models: as `quorate serve` does, or a twin of `bench/service.py`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = [str(folder) for folder in folders]
    command = ["-m", "quorate", "serve", *places, "--port", str(port), "--pace", str(pace)]
    command += ["--workers", str(workers), "--keys" if keys else "--no-keys"]
    if kind != "served":
        command = ["-m", "quorate.bench.service", kind, str(port), str(pace), *places]
    process = subprocess.Popen(  # noqa: S603  this program
        [sys.executable, *command],
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
    told = {"port": port, "connections": connections, "lengths": [len(request) for request in requests]}
    client = subprocess.run(
        [sys.executable, "-m", "quorate.bench.load"],
        input=json.dumps(told).encode() + b"\n" + b"".join(requests),
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
