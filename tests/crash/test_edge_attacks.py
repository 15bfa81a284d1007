"""Attacks without a key on a real server: health probes are answered, callers are served, and memory is bounded."""

import http.client
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from edge_attacks import ATTACKS

from models import FEATURES, make_model
from quorate.core.ledger import Ledger
from quorate.models.saving import open_folder
from quorate.service import Settings
from support.service_client import features, serving

SECONDS, PROBES, MEMORY = 8.0, 30, 200 * 2**20
SLOWER = 3.0  # times a caller waits
SLOWEST = 2.0  # of a health probe: orchestrators wait for 3 seconds

pytestmark = pytest.mark.crash


def _ask(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    began = time.monotonic()
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        response.read()
        return response.status, time.monotonic() - began
    except OSError:
        return 0, time.monotonic() - began
    finally:
        connection.close()


def _memory(process):
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def _probe(port, token, seconds):
    """Return the statuses and times of health probes, and of a caller that asks for one answer again and again."""
    health, asked, end = [], [], time.monotonic() + seconds
    headers, body = {"authorization": f"Bearer {token}"}, features([1.0] * FEATURES, id="the-same")
    while time.monotonic() < end or len(asked) < PROBES // 3:
        health.append(_ask(port, "GET", "/v2/health/live"))
        asked.append(_ask(port, "POST", "/v2/models/model/infer", body, headers))
        time.sleep(0.02)
    return health, asked


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    home = tmp_path_factory.mktemp("edge")
    make_model(home / "model", units=2000)
    ledger = Ledger.open(home / "model" / "ledger.sqlite", fingerprint=open_folder(home / "model").fingerprint)
    token = ledger.add_key("caller")
    ledger.close()
    with serving(Settings(models={"model": str(home / "model")}, port=0), home / "log") as server:
        _probe(server.port, token, 2)
        yield server, token, _memory(server.process.pid)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_without_a_key_stops_nobody(attacked, name):
    server, token, before = attacked
    _, calm = _probe(server.port, token, 2)
    attack = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("edge_attacks.py")), name, str(server.port), str(SECONDS)],
        stdout=subprocess.PIPE,
    )
    try:
        time.sleep(1)
        health, asked = _probe(server.port, token, SECONDS - 2)
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
        "slowest": max(seconds for _, seconds in asked),
        "slowest probe": max(seconds for _, seconds in health),
        "memory": grown / 2**20,
        "answers": len(asked),
        "connections": opened,
    }
    print(name, {figure: round(value, 3) for figure, value in figures.items()})  # noqa: T201  with -rP
    assert {status for status, _ in health} == {200}
    assert {status for status, _ in asked} == {200}
    assert figures["slowest probe"] < SLOWEST
    assert figures["median"] < SLOWER
    assert grown < MEMORY
