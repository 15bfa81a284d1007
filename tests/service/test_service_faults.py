"""A real model whose ledger cannot be written, or is gone: nothing is answered meanwhile, and nothing is lost after."""

import contextlib
import fcntl
import http.client
import json
import os
import resource
import signal
import threading
import time

import numpy as np
import pytest

from quorate import PrivateClassifier, load, save
from quorate.core.ledger import find_ledger
from quorate.core.privacy.budget import to_quanta
from quorate.models.saving import open_folder
from quorate.service import Settings
from support.forked import Forked
from support.service_client import features, serving

QUERIES = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model, asked by each test in turn."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(4000, 3))
    classifier = PrivateClassifier(
        epsilon=30.0, delta=1e-6, teachers=200, queries=QUERIES, classes=[0, 1], aggregator="noisy_max"
    )
    return save(classifier.fit(X, (X[:, 0] > 0).astype(int)), tmp_path_factory.mktemp("faults") / "model")


def no_room(process):
    """Let the process write no file beyond its first bytes, as on a disk without room; return what ends that."""
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (2**14, before[1]))
    return lambda: resource.prlimit(process, resource.RLIMIT_FSIZE, before)


def gone(folder):
    """Take the ledger away; return what puts it back."""
    os.rename(folder / "ledger.sqlite", folder / "elsewhere")
    return lambda: os.rename(folder / "elsewhere", folder / "ledger.sqlite")


def until(server, status):
    """Wait until readiness has this status."""
    began = time.monotonic()
    while server.request("GET", "/v2/health/ready").status != status:
        assert time.monotonic() - began < 120
        time.sleep(0.02)


@pytest.mark.parametrize(("fault", "cause"), [("no_room", "storage"), ("gone", "missing")])
def test_readiness_is_true_and_nothing_is_answered_unpaid(folder, tmp_path, fault, cause):
    told = Settings(models={"m": str(folder)}, port=0, keys=False, pace_ms=0, lease=5)

    def ask(number):
        body = features([8.0, float(number), 0.0], id=f"{fault} {number}".replace(" ", "-"))
        return server.request("POST", "/v2/models/m/infer", body)

    with serving(told, tmp_path / "log") as server:
        first = [ask(number) for number in range(12)]  # the log of the ledger grows beyond the limit
        assert {got.status for got in first} == {200}
        mend = no_room(server.process.pid) if fault == "no_room" else gone(folder)
        try:
            until(server, 503)  # the bench holds it to 2 s
            again = ask(0)  # what was answered before is answered where it can be read
            assert again.body == first[0].body if fault == "no_room" else again.status == 503
            refused = [ask(number) for number in (100, 101, 101)]
            assert [(got.status, got.code) for got in refused] == [(503, "ledger_refused")] * 3
            assert all(int(got.headers["retry-after"]) >= 1 for got in refused)
        finally:
            mend()
        until(server, 200)
        assert ask(0).body == first[0].body
        assert [ask(number).status for number in (100, 101, 101)] == [200] * 3
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.written().splitlines() if line.startswith("{")]
    assert {line["cause"] for line in lines if line.get("code") == "not_ready"} == {cause}
    ledger = find_ledger(folder, fingerprint=open_folder(folder).fingerprint)  # reads and checks all of it
    assert ledger.view().leases == ()
    session = load(folder).session_
    spent = ledger.state().spent[0] / to_quanta(session.answerer.row_cost())[0]
    assert ledger.count_answers() <= spent <= ledger.count_answers() + 2 * (5 + 3)  # leases, and what was refused
    session.close()
    ledger.close()


def test_a_lock_that_another_process_holds_does_not_keep_callers_waiting(folder, tmp_path):
    """An ask is refused within a limit, and the same id is answered and charged once when the lock is free again."""
    settings = Settings(models={"m": str(folder)}, port=0, keys=False, pace_ms=0, lease=0)
    body = features([8.0, 900.0, 0.0], id="locked-900")
    with serving(settings, tmp_path / "log") as server, open(folder / "ledger.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            began = time.monotonic()
            refused = server.request("POST", "/v2/models/m/infer", body)
            waited = time.monotonic() - began
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
        assert (refused.status, refused.code) == (503, "ledger_refused")
        assert 4 < waited < 100  # five seconds, and room for a busy machine: the lock is not let go before
        assert int(refused.headers["retry-after"]) >= 1
        until(server, 200)
        first, again = (server.request("POST", "/v2/models/m/infer", body) for _ in range(2))
        assert (first.status, again.body) == (200, first.body)
        assert server.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_ends_in_ten_seconds_while_another_process_holds_the_lock(folder, tmp_path, monkeypatch, workers):
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "4")
    settings = Settings(models={"m": str(folder)}, port=0, keys=False, pace_ms=0, lease=5, workers=workers)
    with serving(settings, tmp_path / "log") as server, open(folder / "ledger.lock") as lock:
        assert server.request("POST", "/v2/models/m/infer", features([8.0, 901.0, workers])).status == 200
        fcntl.flock(lock, fcntl.LOCK_EX)
        asking = threading.Thread(target=lambda: _ask_in_vain(server, features([8.0, 902.0, workers])))
        asking.start()
        time.sleep(0.3)
        began = time.monotonic()
        status = server.stop()
        took = time.monotonic() - began
        fcntl.flock(lock, fcntl.LOCK_UN)
        asking.join(60)
    assert took < 10
    assert status in (0, 1)  # 1 where a lease could not be returned
    ledger = find_ledger(folder, fingerprint=open_folder(folder).fingerprint)
    assert ledger.verify().sound
    ledger.close_store()


def _ask_in_vain(server, body):
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.request("POST", "/v2/models/m/infer", body)


def test_a_server_that_still_loads_its_models_stops_at_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "60")
    settings = Settings(models={"m": str(folder)}, port=0, keys=False)
    code = "import sys; from quorate.service import Settings, serve; sys.exit(serve(Settings.from_json(sys.argv[1])))"
    with open(folder / "ledger.lock") as lock, open(tmp_path / "log", "wb") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = Forked(code, settings.to_json(), stdout=log.fileno(), stderr=log.fileno())
        time.sleep(2.0)  # It waits for the lock.
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)  # long before the lock would be given up


def test_nothing_is_served_where_no_mark_can_be_kept_outside(folder, tmp_path, monkeypatch):
    """A folder that is put back would spend its budget again, and nothing would show it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "file" / "state"))
    settings = {"models": {"m": str(folder)}, "port": 0, "keys": False, "pace_ms": 0, "lease": 0}
    with pytest.raises(AssertionError, match="--no-outside-mark"), serving(Settings(**settings), tmp_path / "log"):
        pass
    with serving(Settings(**settings, outside_mark=False), tmp_path / "log") as server:
        assert server.request("POST", "/v2/models/m/infer", features([8.0, 903.0, 0.0])).status == 200


def test_the_log_says_when_the_state_folder_is_new(folder, tmp_path, monkeypatch):
    """At each start, that is a state folder that does not last, and an old copy would not show."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    settings = Settings(models={"m": str(folder)}, port=0, keys=False, lease=0)
    events = []
    for number in range(2):
        with serving(settings, tmp_path / f"log {number}") as server:
            server.stop()
        events.append("new_mark" in server.written())
    assert events == [True, False]
