"""Models that come into a folder while a server runs, change there and leave it."""

import io
import json
import shutil
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from quorate import InvalidInput, PrivateClassifier, save
from quorate.core.ledger import find_ledger
from quorate.models.saving import open_folder
from quorate.service import Settings, make_app
from quorate.service._shelf import Shelf
from quorate.service._telemetry import Log
from quorate.service._worker import Folders, open_models
from support.service_client import features, in_process, serving


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Three models that answer, each with a key; tests take copies, and marks of their own."""
    home = tmp_path_factory.mktemp("fitted")
    X, y = np.array([[0.0], [1.0]] * 2000), np.array([0, 1] * 2000)
    keys = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORATE_STATE", str(home / "state"))
        for name in ("first", "second", "third"):
            made = PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
            save(made.fit(X, y), home / name)
            ledger = find_ledger(home / name, fingerprint=open_folder(home / name).fingerprint)
            keys[name] = ledger.add_key(name)
            ledger.close()
    return home, keys


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


@contextmanager
def asking(shelf, keys, *, log=None, **told):
    settings = Settings(models={}, repository=str(shelf), pace_ms=0, lease=0, **told)
    log = Log(log or io.StringIO())
    app = make_app(open_models(settings), settings, log=log, source=Folders(settings, log))
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.setattr("quorate.service._app._SCAN_SECONDS", 3600.0)  # Tests look by themselves.
        ask = running.enter_context(in_process(app))

        def send(name, key=None):
            headers = {"authorization": f"Bearer {keys[key or name]}"}
            return ask("POST", f"/v2/models/{name}/infer", features([1.0]), headers)

        def look(times=2):
            for _ in range(times):
                ask.run(app.state.service.repository.scan())

        send.look, send.run, send.service, send.log = look, ask.run, app.state.service, log
        yield send


def test_models_come_are_replaced_and_leave(fitted, shelf):
    home, keys = fitted
    shutil.copytree(home / "first", shelf / "one")
    with asking(shelf, keys) as ask:
        assert ask("one", "first").status == 200
        assert ask("two", "second").status == 401
        shutil.copytree(home / "second", shelf / "two")
        ask.look()
        assert [ask("one", "first").status, ask("two", "second").status] == [200, 200]
        before = ask.service.models["one"]
        ask.look(3)
        assert ask.service.models["one"] is before  # its ledger has changed, and the model has not
        shutil.rmtree(shelf / "two")
        shutil.copytree(home / "third", shelf / "two")
        ask.look()
        assert [ask("two", key).status for key in ("second", "third")] == [401, 200]
        shutil.rmtree(shelf / "two")
        ask.look()
        assert ask("two", "third").status == 401
        assert ask("one", "first").status == 200


def test_a_copy_that_is_under_way_is_left_alone(fitted, shelf):
    home, keys = fitted
    log = io.StringIO()
    with asking(shelf, keys, log=log) as ask:
        source, folder = shutil.copytree(home / "first", shelf.parent / "source"), shelf / "one"
        entries = source / "ledger.sqlite-wal"  # of a ledger that is in use; one that is no log is passed over
        entries.write_bytes(entries.read_bytes() if entries.exists() and entries.stat().st_size else b"no log")
        folder.mkdir()
        shutil.copy2(source / "manifest.json", folder)
        for path in sorted(source.iterdir()):
            if path.name not in ("manifest.json", "ledger.sqlite-shm"):
                ask.look(1)
                shutil.copy2(path, folder)
                assert "one" not in ask.service.models
        ask.look()
        assert ask("one", "first").status == 200
        ask.log.flush()
    events = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    assert "refused" not in events


def test_a_model_that_cannot_be_loaded_stops_no_other_and_is_tried_when_it_changes(fitted, shelf):
    home, keys = fitted
    shutil.copytree(home / "first", shelf / "one")
    shutil.copytree(home / "second", shelf / "two")
    (shelf / "one" / "manifest.json").write_text("{}")
    log = io.StringIO()
    with asking(shelf, keys, log=log) as ask:
        assert [ask("one", "first").status, ask("two", "second").status] == [401, 200]
        ask.look(4)
        ask.log.flush()
        assert log.getvalue().count('"refused"') == 1  # it is not tried again and again
        shutil.copy2(home / "first" / "manifest.json", shelf / "one")
        ask.look()
        assert ask("one", "first").status == 200


def test_a_second_copy_of_a_served_model_spends_nothing(fitted, shelf):
    home, keys = fitted
    shutil.copytree(home / "first", shelf / "one")
    with asking(shelf, keys) as ask:
        assert ask("one", "first").status == 200
        shutil.copytree(home / "first", shelf / "two")  # as it was before that answer
        ask.look()
        assert ask("two", "first").status != 200
        assert ask("one", "first").status == 200


def test_what_is_no_model_is_not_looked_into(fitted, shelf, tmp_path):
    home, _ = fitted
    shutil.copytree(home / "first", tmp_path / "elsewhere")
    (shelf / "link").symlink_to(tmp_path / "elsewhere")
    shutil.copytree(home / "first", shelf / ".incoming")
    shutil.copytree(home / "first", shelf / "a b")
    (shelf / "empty").mkdir()
    (shelf / "file").write_text("")
    shutil.copytree(home / "first", shelf / "named")
    assert Shelf(shelf, taken=["named"]).changes(at_once=True) == []
    shelf.chmod(0o777)
    with pytest.raises(InvalidInput, match="written by everybody"):
        Shelf(shelf, taken=[])
    for wrong in (tmp_path / "none", shelf / "file"):
        with pytest.raises(InvalidInput, match="must be a folder of models"):
            Shelf(wrong, taken=[])
    with pytest.raises(InvalidInput, match="at least 1 model"):
        Settings(models={})


def test_a_repository_that_its_group_may_write_to_is_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o770)
    monkeypatch.setattr("os.getegid", lambda: tmp_path.stat().st_gid + 1)
    with pytest.raises(InvalidInput, match="written by its group"):
        Shelf(tmp_path, taken=())


def test_a_folder_that_is_away_for_a_while_takes_no_model_away(fitted, shelf):
    home, keys = fitted
    shutil.copytree(home / "first", shelf / "one")
    with asking(shelf, keys) as ask:
        shelf.rename(shelf.with_name("away"))
        ask.look()
        shelf.with_name("away").rename(shelf)
        ask.look()
        assert ask("one", "first").status == 200


def test_two_workers_take_a_model_that_comes(fitted, shelf, tmp_path):
    home, keys = fitted
    told = Settings(models={}, repository=str(shelf), port=0, workers=2, lease=0)
    with serving(told, tmp_path / "log") as server:
        shutil.copytree(home / "second", shelf / ".incoming")
        (shelf / ".incoming").rename(shelf / "two")
        headers, statuses = {"authorization": f"Bearer {keys['second']}"}, []
        for _ in range(200):
            statuses.append(server.request("POST", "/v2/models/two/infer", features([1.0]), headers).status)
            if statuses[-12:] == [200] * 12:
                break
            time.sleep(0.1)
        assert set(statuses) <= {200, 401, 503}
        assert statuses[-12:] == [200] * 12
