"""Attacks without a key on a real server: health probes are answered, callers are served, and memory is bounded."""

import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from models import FEATURES, make_model
from quorate.core.ledger import Ledger
from quorate.models.saving import open_folder
from quorate.service import Settings
from quorate.service.sites import Keys
from support import edge_attacks
from support.edge_attacks import ATTACKS, TLS_ATTACKS
from support.service_client import features, serving

SECONDS, PROBES, MEMORY = 8.0, 30, 200 * 2**20
SLOWER = 3.0  # times a caller waits
SLOWEST = 2.0  # of a health probe: orchestrators wait for 3 seconds

pytestmark = pytest.mark.crash


def _ask(server, method, path, body=None, headers=None):
    began = time.monotonic()
    try:
        return server.request(method, path, body, headers, seconds=20).status, time.monotonic() - began
    except OSError:
        return 0, time.monotonic() - began


def _memory(process):
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def _probe(server, token, seconds):
    """Return the statuses and times of health probes, and of a caller that asks for one answer again and again."""
    health, asked, end = [], [], time.monotonic() + seconds
    headers, body = {"authorization": f"Bearer {token}"}, features([1.0] * FEATURES, id="the-same")
    while time.monotonic() < end or len(asked) < PROBES // 3:
        health.append(_ask(server, "GET", "/v2/health/live"))
        asked.append(_ask(server, "POST", "/v2/models/model/infer", body, headers))
        time.sleep(0.02)
    return health, asked


@contextmanager
def _attacked(home, **options):
    make_model(home / "model", units=2000)
    ledger = Ledger.open(home / "model" / "ledger.sqlite", fingerprint=open_folder(home / "model").fingerprint)
    token = ledger.add_key("caller")
    ledger.close()
    with serving(Settings(models={"model": str(home / "model")}, port=0, **options), home / "log") as server:
        _probe(server, token, 2)
        yield server, token, _memory(server.process.pid)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    with _attacked(tmp_path_factory.mktemp("edge")) as attacked:
        yield attacked


@pytest.fixture(scope="module")
def attacked_by_tls(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "server"
    Keys.make(keys, "server")
    files = {"tls": str(keys / "certificate.pem"), "tls_key": str(keys / "key.pem")}
    with _attacked(tmp_path_factory.mktemp("edge"), **files) as attacked:
        yield attacked


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_without_a_key_stops_nobody(attacked, name):
    _attack(*attacked, name)


@pytest.mark.parametrize("name", TLS_ATTACKS)
def test_an_attack_on_tls_stops_nobody(attacked_by_tls, name):
    _attack(*attacked_by_tls, name)


def _attack(server, token, before, name):
    _, calm = _probe(server, token, 2)
    attack = subprocess.Popen(
        [sys.executable, edge_attacks.__file__, name, str(server.port), str(SECONDS)],
        stdout=subprocess.PIPE,
    )
    try:
        time.sleep(1)
        health, asked = _probe(server, token, SECONDS - 2)
        grown = _memory(server.process.pid) - before
        opened = int(attack.communicate(timeout=60)[0])
    finally:
        attack.kill()
        attack.wait()
    assert attack.returncode == 0
    assert opened >= 4
    figures = {
        "median": statistics.median(seconds for _, seconds in asked)
        / statistics.median(seconds for _, seconds in calm),
        "p99": np.quantile([seconds for _, seconds in asked], 0.99)
        / np.quantile([seconds for _, seconds in calm], 0.99),
        "slowest": max(seconds for _, seconds in asked),
        "slowest probe": max(seconds for _, seconds in health),
        "memory": grown / 2**20,
        "answers": len(asked),
        "connections": opened,
    }
    print(name, {figure: round(float(value), 3) for figure, value in figures.items()})  # noqa: T201  with -rP
    assert {status for status, _ in health} == {200}
    assert {status for status, _ in asked} == {200}
    assert figures["slowest probe"] < SLOWEST
    assert figures["median"] < SLOWER
    assert grown < MEMORY
