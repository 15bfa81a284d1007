"""The paths through the house: how many of our modules one job visits, in the order of docs/reference/architecture.md.

A module counts once a function of it is entered; importing it does not count. Raising a ceiling takes a reason.
"""

import asyncio
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import quorate
from quorate import PrivateClassifier
from quorate.models.saving import save

pytest.importorskip("uvicorn", reason="the server's packages are not installed")

from quorate.service import Settings, make_app
from quorate.service._telemetry import Log
from quorate.service._worker import open_models
from support.service_client import call, features, running

PACKAGE = str(Path(quorate.__file__).parent)
CEILINGS = {"request": 32, "predict": 48, "linear fit": 34, "classifier fit": 31, "release fit": 35}
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "architecture.md").read_text()
PATHS = {job: line.split(" -> ") for job, line in re.findall(r"^    (\w+): (.+)$", PAGE, flags=re.MULTILINE)}


@contextmanager
def visits():
    """Yield the modules of the package that any new thread enters, in order, and whether to record them."""
    entered, recording = dict[str, None](), [False]

    def see(frame, event, _):
        if recording[0] and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.setdefault(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))

    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield entered, recording
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@pytest.fixture
def requested(tmp_path, monkeypatch):
    """The modules that one request enters, in order, once the server has answered another.

    What the server does by the clock is put off: on a busy machine it would fall into the request.
    """
    clocks = ("_app._NOTES_SECONDS", "_app._FOLLOW_SECONDS", "_app._STALL_SECONDS", "_app._KEYS_SECONDS")
    for clock in (*clocks, "_auth._KEPT_SECONDS"):
        monkeypatch.setattr(f"quorate.service.{clock}", 600.0)
    monkeypatch.setattr("quorate.service._batcher._IDLE_SECONDS", 600.0)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    X = np.random.default_rng(0).normal(size=(2000, 3))
    classifier = PrivateClassifier(epsilon=2.0, teachers=100, aggregator="quorum", queries=20, classes=[0, 1])
    save(classifier.fit(X, (X[:, 0] > 0).astype(int)), tmp_path / "m")
    classifier.session_.close()
    settings = Settings(models={"m": str(tmp_path / "m")}, pace_ms=5)

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
        return list(entered)

    return asyncio.run(main())


_JOBS = """
import contextlib, io, json, sys, threading
import numpy as np
from quorate import PrivateClassifier
from quorate.cli import main
from quorate.models.linear import PrivateLogisticRegression
from quorate.release import QueryRelease, Workload
package = sys.argv[1]
X = np.random.default_rng(0).normal(size=(4000, 3))
labels = np.where(X[:, 0] > 0, "ill", "well")
rows = [",".join(f"{value:.3f}" for value in row) for row in X]
for name in ("visits", "survey"):
    with open(f"{name}.csv", "w") as file:
        file.write("a,b,c,y\\n" + "".join(f"{row},{label}\\n" for row, label in zip(rows, labels)))
for number in (0, 1):
    with open(f"new{number}.csv", "w") as file:
        file.write("a,b,c\\n" + "\\n".join(rows[number::1999]) + "\\n")
fit = ["visits.csv", "--label", "y", "--classes", "ill,well", "--epsilon", "8", "--no-quorums", "60", "--out"]
release = ["release", "visits.csv", "--workload", "thresholds:a", "--public", "survey.csv", "--out"]
jobs = {
    "fit": lambda n: ["fit", "subsample", "--aggregator", "quorum", *fit, f"m{n}"],
    "predict": lambda n: ["predict", "m0", f"new{n}.csv"],
    "release": lambda n: [*release, f"r{n}"],
    "arrive": lambda n: ["fit", "everlasting", "--chunk", "5", *fit, f"e{n}"],
    "everlasting": lambda n: ["predict", "e0", f"new{n}.csv"],
}

codes, workload = (X[:, 0] > 0).astype(int), Workload.marginals(2)
table = {name: np.random.default_rng(0).choice(list("abc"), 4000) for name in "xyz"}
public = {name: values[:400] for name, values in table.items()}
fits = {
    "linear fit": lambda n: PrivateLogisticRegression(epsilon=1.0 + n, classes=[0, 1]).fit(X, codes, public=X[:400]),
    "classifier fit": lambda n: PrivateClassifier(epsilon=2.0 + n, queries=20, classes=[0, 1]).fit(X, codes),
    "release fit": lambda n: QueryRelease(workload, epsilon=1.0 + n).fit(table, public=public),
}

def run(work, profile):
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            work()
    except SystemExit as ended:
        assert not ended.code, work
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

seen = {}
jobs = {job: lambda n, arguments=arguments: main(arguments(n)) for job, arguments in jobs.items()}
for job, work in {**jobs, **fits}.items():
    entered = seen[job] = []

    def see(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            name = frame.f_code.co_filename[len(package) + 1:]
            if name not in entered:
                entered.append(name)

    run(lambda: work(0), None)  # imports what the job needs
    run(lambda: work(1), see)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def entered(tmp_path_factory):
    """The modules that each job enters, in order."""
    home = tmp_path_factory.mktemp("jobs")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "QUORATE_STATE": str(home / "state")}
    command = [sys.executable, "-c", _JOBS, PACKAGE]
    ran = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True, env=environment)
    return json.loads(ran.stdout.splitlines()[-1])


def test_five_paths_are_drawn():
    assert sorted(PATHS) == ["everlasting", "fit", "predict", "release", "request"]


@pytest.mark.parametrize("job", PATHS)
def test_a_path_has_a_dozen_stops_that_exist_and_none_twice(job):
    stops = PATHS[job]
    assert len(stops) <= 12
    assert all(importlib.util.find_spec(f"quorate.{stop}") for stop in stops)
    for place, stop in enumerate(stops):
        others = stops[:place] + stops[place + 1 :]
        assert not any(other == stop or other.startswith(f"{stop}.") for other in others), stop


def check_order(stops, modules):
    """Each stop is entered, and for the first time after the one before it."""
    names = [module.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for module in modules]
    places = [
        next((place for place, name in enumerate(names) if name == stop or name.startswith(f"{stop}.")), None)
        for stop in stops
    ]
    assert None not in places, (stops[places.index(None)], names)
    assert places == sorted(places), list(zip(stops, places, strict=True))


@pytest.mark.parametrize("job", [job for job in PATHS if job != "request"])
def test_a_job_takes_the_path_that_is_drawn(entered, job):
    check_order(PATHS[job], entered[job])


def test_a_request_takes_the_path_that_is_drawn_and_visits_few_modules(requested):
    assert len(requested) <= CEILINGS["request"], "\n".join(requested)
    check_order(PATHS["request"], requested)


@pytest.mark.parametrize("job", [job for job in CEILINGS if job != "request"])
def test_a_job_visits_few_modules(entered, job):
    assert len(entered[job]) <= CEILINGS[job], "\n".join(entered[job])
