"""A server in trouble: disks that fill up, databases that stop or hang, floods of connections, a year of entries."""

import asyncio
import contextlib
import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure
from benchmarks.private_postgres import PrivateServer, find_binaries
from benchmarks.service_callers import small_model
from benchmarks.serving import ROOT, Served, json_request, send, serving

_SILENT, _FLOODS = 2000, 200
_SECONDS = (60.0, 6.0)  # of a flood, in a whole run and in a quick one
_PACE = 20.0
_MOST = 15.0  # seconds for which something is waited for
_ENTRIES = (10**7, 10**6)  # that were compacted
_PART = 10_000
_DISK = "size=48m"

Change = Callable[[], None]


def operation_figures(quick: bool) -> Iterator[Figure]:
    """Measure how soon a server says that it is not ready, and stops; what floods do to it; and how soon it starts."""
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as home:
        for fault in ("disk_full", "ledger_gone", "database_stopped", "database_hung"):
            with _fault(fault, Path(home) / fault) as trouble:
                figures = _fault_figures(*trouble) if trouble is not None else [None] * 4
            for name, value in zip(("not_ready", "ready_again", "longest_wait", "stop"), figures, strict=True):
                yield f"service.{fault}.{name}_seconds", value, "s"
        yield "service.flood.p99_ratio", _flood_ratio(Path(home) / "flooded", _SECONDS[quick], quick), "ratio"
        yield "service.start_seconds.compacted", _start_seconds(Path(home) / "compacted", _ENTRIES[quick]), "s"


# --- Faults -----------------------------------------------------------------------------------------------------------


@contextmanager
def _fault(name: str, folder: Path) -> Iterator[tuple[Path, Change, Change] | None]:
    """Give a model, what breaks its ledger and what mends it; None where this machine cannot do that."""
    if name == "disk_full":
        with _small_disk(folder) as mounted:
            yield None if mounted is None else _disk_full(small_model(mounted / "model", no_quorums=500)[0])
    elif name == "ledger_gone":
        model, _ = small_model(folder / "model", no_quorums=500)
        there, gone = model / "ledger.sqlite", model / "gone"
        yield model, lambda: os.rename(there, gone), lambda: os.rename(gone, there)
    elif (binaries := find_binaries()) is None:
        yield None
    else:
        database = PrivateServer(binaries)
        try:
            model, _ = small_model(folder / "model", no_quorums=500, url=database.database())
            if name == "database_stopped":
                yield model, database.halt, database.start
            else:
                yield model, lambda: database.signal(signal.SIGSTOP), lambda: database.signal(signal.SIGCONT)
        finally:
            database.stop()


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    """Give a folder on a small disk of its own, where this user may mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", _DISK, "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603
    except OSError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)  # noqa: S603, S607


def _disk_full(folder: Path) -> tuple[Path, Change, Change]:
    filler = folder.parent / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**12))

    return folder, fill, filler.unlink


def _fault_figures(folder: Path, breaks: Change, mends: Change) -> list[float]:
    """Return the seconds until the server says that it is not ready, then ready again; then, broken anew, for which a
    request waits at most, and until it stops.
    """
    with serving([folder], pace=_PACE) as server:
        breaks()
        not_ready = server.until(False, most=_MOST)
        mends()
        ready = server.until(True, most=_MOST)
        breaks()
        longest = float(send(server.port, _requests(folder.name, 400), 16, status=None)[1].max())
        stop = server.stop()
        mends()
    return [not_ready, ready, longest, stop]


# --- Floods -----------------------------------------------------------------------------------------------------------


def _flood_ratio(folder: Path, seconds: float, quick: bool) -> float:
    """Return the p99 of a client that does no wrong in a flood, over its p99 when it is quiet."""
    small_model(folder, no_quorums=500)
    with serving([folder], pace=_PACE) as server:
        _time_requests(server, folder.name, seconds=2.0)  # warm
        quiet = _time_requests(server, folder.name, seconds=5.0 if quick else 20.0)
        code = "import sys; from benchmarks.service_operation import flood; flood(int(sys.argv[1]))"
        process = subprocess.Popen([sys.executable, "-c", code, str(server.port)], cwd=ROOT)  # noqa: S603  this program
        try:
            time.sleep(2)
            flooded = _time_requests(server, folder.name, seconds=seconds)
        finally:
            process.kill()
            process.wait()
    return float(np.quantile(flooded, 0.99) / np.quantile(quiet, 0.99))


def _time_requests(server: Served, model: str, *, seconds: float) -> np.ndarray:
    """Ask for so long over 4 connections, and return how long each answer took."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        took.append(send(server.port, _requests(model, 200), 4)[1])
    return np.concatenate(took)


def _requests(model: str, number: int) -> list[bytes]:
    """Return so many requests of one row each, far from the boundary, with ids that are new."""
    X = np.random.default_rng().normal(size=(number, 1, 3))
    X[:, 0, 0] = 8.0
    return [json_request(model, row, f"{index}-{os.urandom(6).hex()}") for index, row in enumerate(X)]


def flood(port: int) -> None:
    """Hold silent connections, and send headers without end, for as long as this process lives."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_flood(port))


async def _flood(port: int) -> None:
    await asyncio.gather(*(_silent(port) for _ in range(_SILENT)), *(_headers(port) for _ in range(_FLOODS)))


async def _silent(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.read()  # until the server closes it
            writer.close()
        await asyncio.sleep(1)


async def _headers(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v2/health/live HTTP/1.1\r\n")
            for number in itertools.count():
                writer.write(b"x-%d: %s\r\n" % (number, b"a" * 1000))
                await writer.drain()
                await asyncio.sleep(0.05)
                if writer.transport.is_closing():
                    break


# --- A year of entries ------------------------------------------------------------------------------------------------


def _start_seconds(folder: Path, entries: int) -> float:
    """Return how long it takes to read and check a ledger after so many entries, which were compacted.

    What a compaction leaves is written here as it writes it: to grow so many entries takes the better part of an hour.
    """
    from quorate.core.ledger import Ledger
    from quorate.core.ledger._parts import MAC_BYTES, Part, add_parts
    from quorate.core.ledger._rules import to_json
    from quorate.core.ledger._store import SQLiteStore, read_key
    from quorate.core.ledger.chain import Change, Head, Witness
    from quorate.core.privacy import Budget

    folder.mkdir()
    ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="bench")
    head, key = Head(), read_key(folder)
    head.seq, head.mac, head.state = entries, os.urandom(32).hex(), ledger.state()
    ledger.close_store()
    hashes = [os.urandom(MAC_BYTES * _PART) for _ in range(entries // _PART)]
    parts = [
        (Part.of(1 + number * _PART, head.state.at, answers=0, rows=[], macs=macs), macs)
        for number, macs in enumerate(hashes)
    ]
    store = SQLiteStore(folder / "ledger.sqlite")
    with store.transaction("bench") as statements:
        statements.run("DELETE FROM quorate_entry")
        change = Change(statements, "bench", key, head)
        digest = add_parts(statements, "bench", [], parts)
        body = {"through": entries, "head": head.mac, "state": to_json(head.state), "parts": digest, "lost": None}
        change.append("compacted", body | {"forgotten": entries, "answers_forgotten": 0})
        change.write()
    store.close()
    Witness(folder, "bench", key).write(change.mark(), anew=True)
    began = time.perf_counter()
    Ledger.open(folder / "ledger.sqlite", fingerprint="bench").close_store()
    return time.perf_counter() - began
