"""How many of our own modules one request and one prediction visit: what a reader must open to follow them.

The ceilings only ever fall. A module counts once a function of it is entered; importing it does not count.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import quorate
from quorate import PrivateClassifier
from quorate.models import save

pytest.importorskip("uvicorn", reason="the server's packages are not installed")

from quorate.service import Settings, make_app
from quorate.service.telemetry import Log
from quorate.service.worker import open_models
from service_client import call, features, running

PACKAGE = str(Path(quorate.__file__).parent)
REQUEST, PREDICT = 30, 40  # modules visited, at most


@contextmanager
def visits():
    """Yield a set that collects, while it is not closed, the modules of the package that any new thread enters."""
    entered, recording = set(), [False]

    def see(frame, event, _):
        if recording[0] and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))

    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield entered, recording
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    X = np.random.default_rng(0).normal(size=(2000, 3))
    made = PrivateClassifier(epsilon=2.0, teachers=100, aggregator="quorum", queries=20, classes=[0, 1])
    save(made.fit(X, (X[:, 0] > 0).astype(int)), tmp_path / "m")
    made.session_.close()
    return tmp_path / "m"


def test_a_request_visits_few_modules(saved):
    settings = Settings(models={"m": str(saved)}, pace_ms=5)

    async def main():
        with visits() as (entered, recording):
            models = open_models(settings)
            headers = {"authorization": f"Bearer {models[0].ledger.add_key('reader')}"}
            async with running(make_app(models, settings, log=Log(io.StringIO()))) as app:
                for point in (1.0, 2.0):  # the first takes a lease and looks its key up
                    recording[0] = point == 2.0
                    got = await call(app, "POST", "/v2/models/m/infer", features([point, 0, 0], id=str(point)), headers)
                    recording[0] = False
                    assert got.status == 200
        return entered

    entered = asyncio.run(main())
    assert {"service/app.py", "service/infer.py", "session.py", "ledger/ledger.py"} <= entered
    assert len(entered) <= REQUEST, sorted(entered)


_PREDICT = """
import json, sys, threading
from quorate.cli import main
package, folder, *tables = sys.argv[1:]
seen = set()

def see(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(package):
        seen.add(frame.f_code.co_filename[len(package) + 1:])

for table in tables:
    if table == tables[-1]:  # the ones before it have imported all that a prediction needs
        threading.setprofile(see)
        sys.setprofile(see)
    try:
        main(["predict", folder, table])
    except SystemExit as ended:
        assert not ended.code, ended.code
sys.setprofile(None)
print(json.dumps(sorted(seen)))
"""


def test_a_prediction_by_the_command_line_visits_few_modules(saved, tmp_path):
    tables = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for place, table in enumerate(tables):
        table.write_text(f"0,1,2\n{1.0 + place},0.0,0.0\n{-1.0 - place},0.0,0.0\n")
    ran = subprocess.run(
        [sys.executable, "-c", _PREDICT, PACKAGE, str(saved), *map(str, tables)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    entered = json.loads(ran.stdout.splitlines()[-1])
    assert {"session.py", "ledger/ledger.py"} <= set(entered)
    assert len(entered) <= PREDICT, "\n".join(entered)
