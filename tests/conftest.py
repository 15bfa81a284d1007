"""Shared constants of the suite."""

import atexit
import gc
import importlib.util
import json
import os
import shutil
import tempfile
from importlib.resources import files

import pytest
from hypothesis import settings

from benchmarks.figures import data_folder
from support.private_postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures of the whole suite

# Every statistical test may raise a false alarm with this probability; with fewer than 100 of them a run of the suite
# fails by chance less than once in ten million.
FALSE_ALARM = 1e-9

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-sandbox"]  # the pages are ours, and a root user has no sandbox

# What ledgers leave outside their folders is left in a folder that goes with the tests.
os.environ["QUORATE_STATE"] = tempfile.mkdtemp(prefix="quorate-state-")
atexit.register(shutil.rmtree, os.environ["QUORATE_STATE"], ignore_errors=True)

# A machine that runs several tests at once may take longer than a server would wait for its database.
os.environ.setdefault("QUORATE_DATABASE_SECONDS", "60")

settings.register_profile("suite", deadline=None, max_examples=60, derandomize=True)  # the same examples every time
settings.register_profile("search", deadline=None, max_examples=300)  # other ones every time: `make audit`
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Tests of servers mostly wait. They come first, so that one worker waits while the others use the cores.
WAITING = ("browser", "everlasting_service", "federation", "kinds_end_to_end", "nearest_service", "service", "sites")


# Modules and thousands of tests are kept to the end: the collector need not look at them, neither now nor later.
gc.disable()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.path.stem.removeprefix("test_").startswith(WAITING))


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def false_alarm():
    return FALSE_ALARM


@pytest.fixture(scope="module")
def browser():
    """A browser that is on this machine already: nothing is downloaded."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser test")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine: no browser test")
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=150_000)
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core, which finds what a keyboard or a screen reader would stumble over."""
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: no page was looked at by it")
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def no_frame_library(monkeypatch):
    """Neither pandas nor polars is installed, as after `pip install .`."""
    find_spec = importlib.util.find_spec

    def find_others(name, *package):
        return None if name in ("pandas", "polars") else find_spec(name, *package)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)


@pytest.fixture
def pate_votes():
    folder = data_folder() / "pate2018"
    if not folder.is_dir():
        pytest.skip(
            f"the vote files of PATE 2018 are not here ({folder}); set QUORATE_DATA to the folder that holds pate2018/"
        )
    return folder


@pytest.fixture
def nursery(_nursery):
    """The process that servers are forked from, with nobody left in its queue by the test before."""
    _nursery.drain()
    return _nursery


@pytest.fixture(scope="session")
def _nursery(tmp_path_factory):
    pytest.importorskip("uvicorn", reason="the server's packages are not installed")
    from nursery import Nursery

    made = Nursery(tmp_path_factory.mktemp("nursery") / "log")
    yield made
    made.stop()


@pytest.fixture
def run_json(capsys):
    """Return a function that runs a command with --json, checks its exit code, and returns what it prints."""

    def run(command, *arguments, code=0):
        from quorate.cli import main

        capsys.readouterr()
        assert main([*command.split(), *map(str, arguments), "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run
