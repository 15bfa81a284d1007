"""Two hosts on one PostgreSQL ledger are upgraded one after the other, while callers go on: nothing is lost or charged.

The version before comes from this repository's history. A host of it also starts again between hosts of this version,
as it would in an upgrade that is taken back half-way.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from contextlib import ExitStack, contextmanager
from io import BytesIO
from shutil import copytree

import pytest

from quorate.core.ledger import find_ledger
from quorate.models.saving import open_folder
from support.documents import ROOT
from support.service_client import features

pytestmark = pytest.mark.crash

PREVIOUS = "d4b80e74"  # the version before: set this to the last release when there is one
QUERIES = 2000
INFER = "/v2/models/clinic/infer"
_FIT = f"""
import sys, numpy as np
from quorate import PrivateClassifier, save
X = np.array([[0.0], [1.0]] * 2000)
told = dict(epsilon=20.0, delta=1e-6, teachers=200, queries={QUERIES}, aggregator="noisy_max", classes=[0, 1])
model = PrivateClassifier(**told)
save(model.fit(X, np.array([0, 1] * 2000)), sys.argv[1])
"""


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Return where the sources of the version before and of this one are."""
    made = subprocess.run(["git", "archive", PREVIOUS, "src"], cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("the history of this repository is not here")
    home = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
        archive.extractall(home, filter="data")
    return {"old": home / "src", "new": ROOT / "src"}


class Host:
    """A host with a copy of the folder, its own marks, and a version that may change."""

    def __init__(self, home, versions):
        self.folder, self._home, self._versions = home / "clinic", home, versions
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def run(self, version, *words, check=False):
        code = "import sys; from quorate.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, *map(str, words)]
        return subprocess.run(command, env=self._environment(version), capture_output=True, text=True, check=check)

    def _environment(self, version):
        told = {"PYTHONPATH": str(self._versions[version]), "QUORATE_STATE": str(self._home / "state")}
        return os.environ | told | {"PYTHONWARNINGS": "ignore"}

    @contextmanager
    def serving(self, version):
        command = [sys.executable, "-m", "quorate", "serve", str(self.folder), "--port", str(self.port), "--pace", "0"]
        with (self._home / f"{version}.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._environment(version), stdout=log, stderr=log)
        try:
            end = time.monotonic() + 120
            while self.ask("GET", "/v2/health/ready")[0] != 200:
                assert process.poll() is None, (self._home / f"{version}.log").read_text()
                assert time.monotonic() < end
                time.sleep(0.2)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0

    def ask(self, method, path, body=None, token=""):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {"authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()


class Caller:
    """Asks the hosts in turn and keeps every answer by its id."""

    def __init__(self, token):
        self.token, self.answers = token, {}

    def go_on(self, hosts, count):
        for number in range(count):
            id = f"query-{len(self.answers)}"
            body = features([float(len(self.answers))], id=id)
            status, answer = hosts[number % len(hosts)].ask("POST", INFER, body, self.token)
            assert status == 200, answer
            self.answers[id] = body, answer

    def repeat_all(self, hosts):
        for number, (body, answer) in enumerate(self.answers.values()):
            assert hosts[number % len(hosts)].ask("POST", INFER, body, self.token) == (200, answer)


def test_hosts_are_upgraded_one_after_the_other(versions, tmp_path, postgres_url):
    first, second = hosts = [Host(tmp_path / name, versions) for name in ("first", "second")]
    for host in hosts:
        host.folder.parent.mkdir()
    environment = first._environment("old")
    subprocess.run([sys.executable, "-c", _FIT, str(first.folder)], env=environment, check=True, capture_output=True)
    token = first.run("old", "keys", "add", first.folder, "Ward 3", "--unlimited", check=True).stdout.strip()
    first.run("old", "ledger", "move", first.folder, postgres_url, check=True)
    copytree(first.folder, second.folder)
    caller = Caller(token)
    with second.serving("old"):
        with first.serving("old"):
            caller.go_on(hosts, 30)
        caller.go_on([second], 10)
        with first.serving("new"):
            caller.go_on(hosts, 30)
            caller.repeat_all([first])  # what the version before answered
            made = first.run(
                "new", "keys", "add", first.folder, "Ward 4", "--budget", "0.01", check=True
            ).stdout.strip()
            time.sleep(2.5)
            other = Caller(made)
            other.go_on([second], 1)  # the version before knows the new key
            second.run("old", "keys", "revoke", second.folder, made.split("_")[1], check=True)
            time.sleep(2.5)
            assert first.ask("POST", INFER, features([1.0]), made)[0] == 401
            caller.go_on(hosts, 20)
    with ExitStack() as running:
        running.enter_context(first.serving("new"))
        with second.serving("old"):  # it is taken back half-way: it replays what both versions wrote
            caller.go_on(hosts, 20)
        running.enter_context(second.serving("new"))
        caller.go_on(hosts, 20)
        caller.repeat_all(hosts)
    for version, host in (("new", first), ("new", second), ("old", second)):
        report = host.run(version, "ledger", "verify", host.folder, "--json")
        assert json.loads(report.stdout)["problems"] == [], report.stderr
    ledger = find_ledger(first.folder, fingerprint=open_folder(first.folder).fingerprint)
    state, answered = ledger.state(), len(caller.answers) + 1
    unit, rest = divmod(state.spent[0], answered)
    assert (state.leases, rest) == ({}, 0)  # every answer was charged once, and nothing else
    assert unit * QUERIES <= state.capacity[0] < unit * (QUERIES + 20)
    assert sum(key.used for key in state.keys.values()) >= answered
