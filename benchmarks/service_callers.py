"""Callers beside each other, through real HTTP: one who burns its share, many with shares, one who is greedy."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure
from benchmarks.private_postgres import PrivateServer, find_binaries
from benchmarks.serving import ROOT, Caller, json_request, send, serving

_FEATURES, _TEACHERS = 3, 1000
_CALLERS, _WORKERS = 64, 4
_BURNER = {"quota": 5000, "no_quorums": 20}  # the share of who burns it
_SERVED = 5  # models of one server: each worker holds a connection to the database of each
_REPEATS = (20, 1)  # models that 64 callers ask, in a whole run and in a quick one
_PACE = 20.0


def caller_figures(quick: bool) -> Iterator[Figure]:
    """Measure what callers can do to each other."""
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as home:
        yield from _burner_figures(Path(home) / "burnt")
        for store in ("sqlite", "postgres"):
            off = _off_shares(Path(home) / store, store, _REPEATS[quick])
            yield f"service.shares.{store}.callers_off_share", None if off is None else off[0], "callers"
            yield f"service.shares.{store}.totals_off", None if off is None else off[1], "ledgers"
        yield "service.greedy.others_p99_ratio", _greedy_ratio(Path(home) / "greedy", quick), "ratio"


def small_model(folder: Path, *, no_quorums: int, url: str | None = None) -> tuple[Path, Any]:
    """Fit a small model by quorum, save it, and return its folder and what its budget was when it was opened."""
    from quorate.core.ledger import move
    from quorate.models.predictors import PrivateClassifier
    from quorate.models.saving import open_folder, save

    X = np.random.default_rng(0).normal(size=(10 * _TEACHERS, _FEATURES))
    classifier = PrivateClassifier(
        epsilon=8.0,
        delta=1e-6,
        teachers=_TEACHERS,
        aggregator="quorum",
        queries=10**6,
        no_quorums=no_quorums,
        classes=[0, 1],
    ).fit(X, (X[:, 0] > 0).astype(int))
    save(classifier, folder)
    if url is not None:
        move(folder, url, fingerprint=open_folder(folder).fingerprint).close()
    return folder, classifier


@contextmanager
def _ledger(folder: Path) -> Iterator[Any]:
    """Open the ledger of a model as its owner."""
    from quorate.core.ledger import find_ledger
    from quorate.models.saving import open_folder

    ledger = find_ledger(folder, fingerprint=open_folder(folder).fingerprint)
    try:
        yield ledger
    finally:
        ledger.close()


def _rows(count: int, *, clear: bool) -> np.ndarray:
    X = np.random.default_rng().normal(size=(count, _FEATURES))
    X[:, 0] = np.sign(X[:, 0]) * (8 if clear else 1e-4)
    if not clear:
        X[:, 1:] *= 1e-3
    return X


def _threads(works: list[Callable[[], None]]) -> None:
    """Run these at once, each in a thread, and raise what one of them raises."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# --- One who burns its share ------------------------------------------------------------------------------------------


def _burner_figures(folder: Path) -> Iterator[Figure]:
    """Let one caller ask on the boundary as fast as it can, while others ask what teachers agree on."""
    small_model(folder, no_quorums=500)
    with _ledger(folder) as ledger:
        burner = ledger.add_key("burner", **_BURNER)
        other_tokens = [ledger.add_key(f"other {number}") for number in range(4)]
    over, answered, queries = threading.Event(), [0], [0]

    def burn(port: int) -> None:
        caller, refused = Caller(port, folder.name, burner), 0
        while refused < 50:  # and it goes on after its share is spent
            status, _ = caller.ask(_rows(20, clear=False))
            refused += status == 403
        over.set()

    def ask(port: int, token: str) -> None:
        caller = Caller(port, folder.name, token)
        while not over.is_set():
            status, reply = caller.ask(_rows(1, clear=True))
            queries[0] += 1
            answered[0] += status == 200 and "refused" not in dumps(reply)

    with serving([folder], pace=0.0, keys=True) as server:
        _threads([partial(burn, server.port), *(partial(ask, server.port, token) for token in other_tokens)])
    with _ledger(folder) as ledger:
        met = {key.name: key.met for key in ledger.view().keys}
    yield "service.burner.no_quorums_off_share", abs(met["burner"] - _BURNER["no_quorums"]), "no-quorums"
    yield "service.burner.others_answered", answered[0] / queries[0], "share"


# --- Many with shares -------------------------------------------------------------------------------------------------


def _off_shares(home: Path, store: str, repeats: int) -> tuple[int, int] | None:
    """Have 64 callers spend their shares at four workers; return how many shares, and how many totals, are not exact.

    None where there is no PostgreSQL on this machine.
    """
    home.mkdir()
    if store == "sqlite":
        return _spend_shares([_shared_model(home / f"shared{number}", None) for number in range(repeats)])
    binaries = find_binaries()
    if binaries is None:
        return None
    database = PrivateServer(binaries)
    try:
        urls = [database.database() for _ in range(repeats)]
        return _spend_shares([_shared_model(home / f"shared{number}", url) for number, url in enumerate(urls)])
    finally:
        database.stop()


def _spend_shares(models: list[tuple[Path, dict[str, int], int]]) -> tuple[int, int]:
    """Serve some models at a time, have all callers spend their shares, and count what is not exact."""
    for start in range(0, len(models), _SERVED):
        batch = models[start : start + _SERVED]
        with serving([folder for folder, _, _ in batch], pace=0.0, workers=_WORKERS, keys=True) as server:
            for folder, shares, _ in batch:
                _threads([partial(_spend, server.port, folder.name, token) for token in shares])
    return _off(models)


def _shared_model(folder: Path, url: str | None) -> tuple[Path, dict[str, int], int]:
    """Return a model, the share of each of 64 keys, and what is spent before anybody asks."""
    limits = [1 + number % 7 for number in range(_CALLERS)]
    small_model(folder, no_quorums=sum(limits) + 100, url=url)
    with _ledger(folder) as ledger:
        shares = {ledger.add_key(f"{number}", no_quorums=share): share for number, share in enumerate(limits)}
        return folder, shares, ledger.state().spent[0]


def _spend(port: int, model: str, token: str) -> None:
    """Ask on the boundary until the share is spent."""
    caller = Caller(port, model, token)
    while True:
        status, reply = caller.ask(_rows(1, clear=False))
        if reply.get("code") == "share_spent":
            return
        if status not in (200, 429):
            raise RuntimeError(f"the server answered with {status} {reply.get('code')}")
        if status == 429:
            time.sleep(0.05)


def _off(models: list[tuple[Path, dict[str, int], int]]) -> tuple[int, int]:
    """Return how many shares are not used exactly, and how many ledgers do not add up to them."""
    from quorate.core.privacy.budget import to_quanta
    from quorate.models.saving import load

    callers = totals = 0
    for folder, shares, before in models:
        classifier = load(folder)
        unit = to_quanta(classifier.session_.answerer.row_cost())[0]
        classifier.session_.close()
        with _ledger(folder) as ledger:
            state = ledger.state()
            no_quorums_by_caller = _count_no_quorums(ledger)
        for token, share in shares.items():
            id = token.split("_")[1]
            callers += not state.keys[id].met == no_quorums_by_caller.get(id, 0) == share
        totals += state.spent[0] != before + unit * sum(shares.values())
    return callers, totals


def _count_no_quorums(ledger: Any) -> Mapping[str, int]:
    """Return how many no-quorums each caller was told."""
    from quorate.core.requests import NO_QUORUM

    statement = "SELECT caller, count(*) FROM quorate_answer WHERE ledger = ? AND label = ? GROUP BY caller"
    with ledger.change() as change:
        return dict(change.statements.run(statement, (change.ledger, NO_QUORUM)))


# --- One who is greedy ------------------------------------------------------------------------------------------------


def _greedy_ratio(folder: Path, quick: bool) -> float:
    """Return the others' p99 while one key repeats itself at full speed, over their p99 when it is quiet."""
    small_model(folder, no_quorums=500)
    count = 400 if quick else 2000
    with _ledger(folder) as ledger:
        greedy, *other_tokens = (ledger.add_key(f"{number}") for number in range(9))

    def requests() -> list[bytes]:
        return [
            json_request(folder.name, _rows(1, clear=True), f"{number}-{os.urandom(6).hex()}", other_tokens[number % 8])
            for number in range(count)
        ]

    with serving([folder], pace=_PACE, keys=True) as server:
        send(server.port, requests(), 8)  # warm
        _, quiet = send(server.port, requests(), 8)
        with _repeating(server.port, json_request(folder.name, _rows(1, clear=True), "again", greedy)):
            _, beside = send(server.port, requests(), 8)
    return float(np.quantile(beside, 0.99) / np.quantile(quiet, 0.99))


@contextmanager
def _repeating(port: int, request: bytes) -> Iterator[None]:
    """Send one request again and again over 64 connections, as fast as they are answered."""
    code = "import sys; from benchmarks.service_callers import repeat; repeat(int(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", code, str(port)], cwd=ROOT, stdin=subprocess.PIPE)  # noqa: S603  this program
    assert process.stdin is not None
    try:
        process.stdin.write(request)
        process.stdin.close()
        time.sleep(2)
        yield
    finally:
        process.kill()
        process.wait()


def repeat(port: int) -> None:
    """Read a request and send it for as long as this process lives."""
    import asyncio

    from benchmarks.serving import run_load

    request = sys.stdin.buffer.read()
    while True:
        asyncio.run(run_load(port, [request] * 2000, 64))
