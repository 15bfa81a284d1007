"""Models that are listed, loaded and unloaded while a server runs; and what it sends is what its types say."""

import asyncio
import io
import json
import shutil
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from fake_session import fake_model

from quorate import PrivateClassifier, load, save
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import find_ledger
from quorate.models.saving import open_folder
from quorate.service import Settings
from quorate.service._app import make_app
from quorate.service._auth import OWNER, Access
from quorate.service._documents import DOCUMENTS
from quorate.service._openapi import ROUTES
from quorate.service._reading import model_view
from quorate.service._settings import ORDERS
from quorate.service._telemetry import Log
from quorate.service._worker import Folders, open_models
from quorate.service.model import Model
from support.service_client import call, features, in_process, running, serving

INDEX, LOAD, UNLOAD = "/v2/repository/index", "/v2/repository/models/{}/load", "/v2/repository/models/{}/unload"


class Shelf:
    """A source of fake models, each of which keeps its keys; `wrong` is raised where one is opened."""

    def __init__(self, *names):
        self.models = {name: fake_model(name) for name in names}
        self.opened, self.wrong = 0, None
        for name, model in self.models.items():
            model.ledger.add(f"qk_{name}_owner", "admin")
            model.ledger.add(f"qk_{name}_caller", "ask")

    def open(self, name):
        if self.wrong is not None:
            raise self.wrong
        self.opened += 1
        made = fake_model(name)
        made.ledger.keys = self.models[name].ledger.keys
        self.models[name] = made
        return made

    def closed(self, name, cause):
        return Model.of_refused(name, self.models[name].ledger, cause=cause)


@contextmanager
def asking(shelf, *models, **told):
    """Serve these models, or all of a shelf, and yield a function that sends a request with a key."""
    settings = Settings(models=dict.fromkeys(shelf.models, "."), **{"pace_ms": 0, **told})
    app = make_app(models or list(shelf.models.values()), settings, log=Log(io.StringIO()), source=shelf)
    with in_process(app) as ask:

        def send(path, token=None, body=b"", method="POST"):
            return ask(method, path, body, bearer(token))

        send.run, send.app = ask.run, app
        yield send


def bearer(token):
    return {} if token is None else {"authorization": f"Bearer {token}"}


def infer(name):
    return f"/v2/models/{name}/infer"


def test_a_key_lists_the_models_that_it_opens():
    with asking(Shelf("a", "b")) as ask:
        assert ask(INDEX, "qk_a_caller").json == [{"name": "a", "version": "1", "state": "READY", "reason": ""}]
        assert ask(INDEX, "qk_c_other").status == 401
        assert ask(INDEX).json == []
        assert ask(INDEX, "qk_a_caller", b"{").code == "bad_json"


def test_everybody_lists_what_was_published(tmp_path):
    class Answers:
        classes_ = np.array([0, 1])
        n_features_in_ = 3
        claim_ = "dp"
        inputs, outputs = "rows", "labels"

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    shelf, published = Shelf("a"), Model.of_published("open", Answers())
    with asking(shelf, *shelf.models.values(), published) as ask:
        assert [one["name"] for one in ask(INDEX).json] == ["open"]
        assert ask(UNLOAD.format("open")).code == "forbidden"


def test_the_owner_unloads_and_loads_and_nobody_else():
    shelf, body = Shelf("a", "b"), features([1, 0, 0])
    with asking(shelf) as ask:
        codes = [ask(UNLOAD.format("a"), token).code for token in (None, "qk_a_caller", "qk_b_owner")]
        assert codes == ["unauthenticated", "forbidden", "unauthenticated"]
        assert ask(infer("a"), "qk_a_caller", body).status == 200
        closing = shelf.models["a"].session
        unloaded = ask(UNLOAD.format("a"), "qk_a_owner", b'{"parameters": {"unload_dependents": false}}')
        assert (closing.closed, unloaded.status, unloaded.json) == (True, 200, {})
        told = ask(infer("a"), "qk_a_caller", body)
        assert (told.status, told.code, told.headers["retry-after"]) == (503, "not_ready", "1")
        assert "its owner has unloaded it" in told.json["error"]
        listed, ready = (ask(INDEX, "qk_a_owner", order).json for order in (b"", b'{"ready": true}'))
        assert (listed[0]["state"], ready) == ("UNAVAILABLE", [])
        assert ask(infer("b"), "qk_b_caller", body).status == 200
        assert ask(LOAD.format("a"), "qk_a_owner").status == 200
        assert ask(infer("a"), "qk_a_caller", body).status == 200
        assert ask(LOAD.format("a"), "qk_a_owner", b'{"parameters": {"config": "{}"}}').code == "bad_request"
    assert shelf.opened == 1


def test_a_key_of_the_model_before_does_not_open_the_one_that_is_loaded():
    """The folder may hold another model by now. To its ledger this caller would be nobody, who has no limit."""
    shelf, body = Shelf("a"), features([1, 0, 0])
    with asking(shelf) as ask:
        assert ask(infer("a"), "qk_a_caller", body).status == 200
        shelf.models["a"].ledger.keys.pop("qk_a_caller")
        shelf.models["a"].ledger.add("qk_new_caller", "ask")
        assert ask(LOAD.format("a"), "qk_a_owner").status == 200
        assert [ask(infer("a"), token, body).status for token in ("qk_a_caller", "qk_new_caller")] == [401, 200]


def test_who_is_looked_up_while_a_model_is_exchanged_is_looked_up_again():
    held, looked = threading.Event(), threading.Event()

    def before(token):
        looked.set()
        held.wait(10)
        return SimpleNamespace(id="a", scopes=("admin",), revoked=False)

    async def main():
        access = Access()
        access.register("a", before)
        asked = asyncio.create_task(access.caller("a", "qk_a_a"))
        await asyncio.to_thread(looked.wait, 10)
        access.register("a", lambda token: None)
        held.set()
        return await asked, await access.caller("a", "qk_a_a")

    assert asyncio.run(main()) == (None, None)


def test_without_keys_nobody_is_the_owner():
    with asking(Shelf("a"), keys=False) as ask:
        assert [ask(path.format("a")).code for path in (LOAD, UNLOAD)] == ["forbidden", "forbidden"]


def test_the_page_verifies_the_ledger_that_is_loaded():
    """And not the one that a model of the same name had a moment ago."""
    seen = []
    with asking(shelf := Shelf("a")) as ask:
        for verification in ("first", "second"):
            ledger = shelf.models["a"].ledger
            ledger.activity = ledger.refusals = lambda limit: []
            ledger.verify = lambda verification=verification: verification
            seen.append(ask.run(model_view(shelf.models["a"], OWNER, at=0.0)).verification)
            ask(LOAD.format("a"), "qk_a_owner")
    assert seen == ["first", "second"]


async def send(app, path, token, body=b""):
    return await call(app, "POST", path, body, bearer(token))


def test_what_is_queued_is_answered_before_a_model_is_unloaded():
    shelf = Shelf("a")
    session = shelf.models["a"].session
    session.held = threading.Event()

    async def work(app):
        asked = asyncio.create_task(send(app, infer("a"), "qk_a_caller", features([1, 0, 0])))
        assert await asyncio.to_thread(session.asking.wait, 60)
        unloading = asyncio.create_task(send(app, UNLOAD.format("a"), "qk_a_owner"))
        while "unloaded" not in (await send(app, INDEX, "qk_a_owner")).json[0]["reason"]:  # a thread brings it about
            await asyncio.sleep(0.01)
        late = await send(app, infer("a"), "qk_a_caller", features([2, 0, 0]))
        session.held.set()
        return (await asked).status, (await unloading).status, late.code

    with asking(shelf) as ask:
        assert ask.run(work(ask.app)) == (200, 200, "not_ready")


def test_a_model_that_takes_long_to_close_gives_its_lease_back_all_the_same():
    """It is unloaded at once. Nothing is loaded in its place while it still answers, and a stop waits for it."""
    shelf = Shelf("a")
    session = shelf.models["a"].session
    session.held = threading.Event()

    async def work(app):
        asked = asyncio.create_task(send(app, infer("a"), "qk_a_caller", features([1, 0, 0])))
        await asyncio.to_thread(session.asking.wait, 10)
        unloaded = await send(app, UNLOAD.format("a"), "qk_a_owner")
        listed = await send(app, INDEX, "qk_a_owner")
        loading = asyncio.create_task(send(app, LOAD.format("a"), "qk_a_owner"))
        await asyncio.sleep(0.05)
        assert not shelf.opened
        session.held.set()
        return unloaded, listed.json[0]["reason"], (await asked).status, (await loading).status, session.closed

    with asking(shelf, stop_seconds=1) as ask:
        unloaded, reason, *rest = ask.run(work(ask.app))
    assert (unloaded.status, unloaded.code) == (503, "not_ready")
    assert (reason, rest) == ("its owner has unloaded it", [200, 200, True])


def test_a_model_whose_ledger_takes_nothing_back_is_unloaded_and_loaded():
    shelf = Shelf("a")

    def close():
        raise LedgerRefused("the ledger went back while it was in use")

    with asking(shelf) as ask:
        for path in (LOAD, UNLOAD):
            shelf.models["a"].session.close = close
            assert ask(path.format("a"), "qk_a_owner").status == 200
        assert ask(INDEX, "qk_a_owner").json[0]["reason"] == "its owner has unloaded it"


def test_a_model_that_was_refused_is_loaded_once_its_ledger_is_sound():
    shelf = Shelf("a", "b")
    refused = shelf.closed("a", "refused_at_start")
    shelf.wrong = LedgerRefused("rolled back at /srv/secret", cause="not_sound")
    with asking(shelf, refused, shelf.models["b"]) as ask:
        first = ask(LOAD.format("a"), "qk_a_owner")
        assert (first.status, first.code) == (503, "ledger_refused")
        assert "quorate ledger verify" in ask(INDEX, "qk_a_owner").json[0]["reason"]
        shelf.wrong = InvalidInput("no folder /srv/secret")
        second = ask(LOAD.format("a"), "qk_a_owner")
        assert (second.status, second.code) == (503, "not_ready")
        assert b"secret" not in first.body + second.body
        shelf.wrong = None
        assert ask(LOAD.format("a"), "qk_a_owner").status == 200
        assert ask(infer("a"), "qk_a_caller", features([1, 0, 0])).status == 200


def test_what_one_worker_is_told_the_others_do(tmp_path, monkeypatch):
    monkeypatch.setenv(ORDERS, str(tmp_path))
    first, second = Shelf("a"), Shelf("a")
    settings = Settings(models={"a": "."}, pace_ms=0, workers=2)

    async def main():
        apps = [
            make_app(list(one.models.values()), settings, log=Log(io.StringIO()), source=one) for one in (first, second)
        ]
        key, seen = {"authorization": "Bearer qk_a_owner"}, []
        async with running(apps[0]), running(apps[1]):
            for path, wanted in ((UNLOAD, 503), (LOAD, 200), (UNLOAD, 503)):
                assert (await call(apps[0], "POST", path.format("a"), headers=key)).status == 200
                for _ in range(3000):
                    await asyncio.sleep(0.02)
                    got = await call(apps[1], "POST", infer("a"), features([1, 0, 0]), key)
                    if got.status == wanted:
                        break
                seen.append(got.status)
            late = make_app(
                [fake_model("a")], settings, log=Log(io.StringIO()), source=second
            )  # a worker that was replaced
            async with running(late):
                for _ in range(3000):
                    await asyncio.sleep(0.02)
                    if late.state.service.models["a"].refused:
                        break
                return (
                    seen,
                    (await call(late, "GET", "/v2/health/ready")).status,
                    late.state.service.models["a"].refused,
                )

    assert asyncio.run(main()) == ([503, 200, 503], 200, "unloaded")


def test_a_worker_that_is_replaced_does_not_open_what_was_unloaded(tmp_path, monkeypatch):
    """Its folder may be away: a worker that could not start would end the whole server."""
    monkeypatch.setenv(ORDERS, str(tmp_path))
    settings = Settings(models={"a": str(tmp_path / "nowhere")}, workers=2)
    with pytest.raises(InvalidInput):
        open_models(settings)
    (tmp_path / "a").write_text("unload 0123")
    assert [model.refused for model in open_models(settings)] == ["unloaded"]
    (tmp_path / "a").write_text("load 4567")
    with pytest.raises(InvalidInput):
        open_models(settings)


# With real folders, and the stock client.


def _saved(folder):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    made = PrivateClassifier(epsilon=20.0, delta=1e-6, teachers=100, queries=500, classes=["no", "yes"])
    save(made.fit(X, y), folder)
    return find_ledger(folder, fingerprint=open_folder(folder).fingerprint)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("repository") / "model"


@pytest.fixture(scope="module")
def keys(folder):
    ledger = _saved(folder)
    made = {"owner": ledger.add_key("owner", scopes=["admin"]), "caller": ledger.add_key("caller")}
    ledger.close_store()
    return made


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_stock_client_loads_and_unloads_in_every_worker(folder, keys, tmp_path, workers):
    triton = pytest.importorskip("tritonclient.http", reason="the stock client is not installed")
    errors = pytest.importorskip("tritonclient.utils")
    owner = {"Authorization": f"Bearer {keys['owner']}"}
    with serving(
        Settings(models={"model": str(folder)}, port=0, workers=workers, pace_ms=0), tmp_path / "log"
    ) as server:

        def client():
            return triton.InferenceServerClient(f"127.0.0.1:{server.port}")

        def ready():
            """Return what a few connections, which meet both workers, are told."""
            told = set()
            for _ in range(1 if workers == 1 else 12):
                with suppress(errors.InferenceServerException):
                    told.add(client().is_model_ready("model", model_version="1", headers=owner))
            return told

        def becomes(state):
            end, told = time.monotonic() + 120, set()
            while time.monotonic() < end and told != {state}:
                time.sleep(0.2)
                told = ready()
            return told == {state}

        index = client().get_model_repository_index(headers=owner)
        assert index == [{"name": "model", "version": "1", "state": "READY", "reason": ""}]
        client().unload_model("model", headers=owner)
        assert becomes(False)
        ledger = find_ledger(folder, fingerprint=open_folder(folder).fingerprint)
        assert ledger.view().leases == ()  # the model is nobody's, and its owner may ask it from the folder
        ledger.close_store()
        client().load_model("model", headers=owner)
        assert becomes(True)
        tensor = triton.InferInput("features", [1, 3], "FP64")
        tensor.set_data_from_numpy(np.array([[3.0, 0, 0]]))
        caller = {"Authorization": f"Bearer {keys['caller']}"}
        for _ in range(4):
            result = client().infer("model", [tensor], model_version="1", headers=caller)
            assert result.as_numpy("outcome").tolist() in ([b"answered"], [b"no_quorum"])
        with pytest.raises(errors.InferenceServerException, match="lacks the scope"):
            client().unload_model("model", headers=caller)


def test_a_ledger_that_is_mended_is_loaded(folder, keys, tmp_path):
    """A ledger that is gone is found again with its keys, and nothing of a model that is not loaded is held open."""
    other = tmp_path / "other"
    _saved(other)
    ledger, hidden = folder / "ledger.sqlite", folder / "hidden.sqlite"
    ledger.rename(hidden)
    settings = Settings(models={"model": str(folder), "other": str(other)}, pace_ms=0)
    models = open_models(settings)
    try:
        assert [model.refused for model in models] == ["refused_at_start", ""]
        assert models[0].find_key(keys["owner"]) is None
        hidden.rename(ledger)
        assert models[0].find_key(keys["owner"]).name == "owner"
        asyncio.run(models[0].read_keys())
        again = Folders(settings).open("model")
        assert not again.refused
        again.session.close()
        moved = tmp_path / "moved"
        folder.rename(moved)
        new = _saved(folder).add_key("new owner", scopes=["admin"])  # another model, with a ledger of its own
        asyncio.run(models[0].read_keys())
        assert models[0].find_key(new).name == "new owner"
        assert models[0].find_key(keys["owner"]) is None
        shutil.rmtree(folder)
        moved.rename(folder)
    finally:
        models[1].session.close()
    load(folder).session_.close()


# Types.


def test_what_is_sent_is_what_the_types_say():
    model = fake_model("m")
    view = model.ledger.view()
    view.leases = (SimpleNamespace(share=0.25),)
    model.ledger.view = lambda: view
    shelf = Shelf("m")
    model.ledger.keys = shelf.models["m"].ledger.keys
    with asking(shelf, model) as ask:
        for route in sorted(ROUTES, key=lambda route: route.endpoint == "unload"):
            own = ("share", "feed", "insert", "forget")  # which have real keys and models in tests of their own
            if route.endpoint in DOCUMENTS and route.endpoint not in own and route.scope != "keys":
                body = features([1, 0, 0], id="a") if route.endpoint == "infer" else b""
                got = ask(route.path.format(name="m", version="1"), "qk_m_owner", body, route.method)
                assert got.status == 200, (route.path, got.body)
                msgspec.json.decode(got.body, type=DOCUMENTS[route.endpoint])  # nothing is missing, and nothing more


def test_the_document_refers_to_every_type():
    document = make_app([fake_model("m")], Settings(models={"m": "m"})).state.service.openapi
    for path, methods in document["paths"].items():
        for operation in methods.values():
            content = operation["responses"]["200"]["content"]
            if "application/json" in content and operation["operationId"] != "openapi":
                assert "$ref" in json.dumps(content["application/json"]["schema"]), path
    assert len({one["operationId"] for methods in document["paths"].values() for one in methods.values()}) == len(
        ROUTES
    )
