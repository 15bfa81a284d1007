"""The client: frames in and out, requests lost and sent again, refusals in plain words. The application is our own."""

import asyncio
import gzip
import json
import socket
import threading
import time

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fake_session import fake_model

from quorate.core.errors import BudgetSpent, IdReused, InvalidInput, KeyClosed, ServerRefused, Unanswered
from quorate.models.predictors import Predictions
from quorate.service import Model, Settings, make_app
from quorate.service._inputs import MatrixInput, NamedInputs, SchemaInputs
from quorate.service._outputs import Outputs
from quorate.service.client import AsyncClient, Client
from quorate.service.client import _asking as asking_module
from quorate.service.client import _client as client_module
from quorate.service.client._asking import Answers, Queries
from quorate.tables import Category, Date, Number, Reading, Schema
from support.service_client import call, running

ROWS = [[1.0, 0, 0], [-1, 0, 0], [0, 0, 0], [2, 0, 0], [-3, 0, 0]]
LABELS = ["yes", "no", None, "yes", "no"]


class Wire(httpx.BaseTransport):
    """A server in a thread, and what happens to requests on the way to it and back: `trouble` says what, in turn."""

    def __init__(self, *models, trouble=(), **told):
        settings = Settings(
            models={model.name: model.name for model in models}, **{"keys": False, "pace_ms": 0, **told}
        )
        self._app, self.trouble, self.bodies = make_app(models, settings), list(trouble), []
        self._loop, self._ready, self._over = asyncio.new_event_loop(), threading.Event(), None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self):
        self._over = asyncio.Event()
        async with running(self._app):
            self._ready.set()
            await self._over.wait()

    def handle_request(self, request):
        body = request.read()
        if request.url.path.endswith("/infer"):
            self.bodies.append(body)
            happens = self.trouble.pop(0) if self.trouble else "nothing"
            if happens == "request lost":
                raise httpx.ConnectError("refused")
            if isinstance(happens, httpx.Response):
                return happens
        else:
            happens = "nothing"
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        asked = call(self._app, request.method, request.url.raw_path.decode(), body, headers)
        got = asyncio.run_coroutine_threadsafe(asked, self._loop).result(60)
        if happens == "response lost":
            raise httpx.ReadError("reset")
        return httpx.Response(got.status, headers=got.headers, content=got.body)

    def exchange(self, model):
        """Load another model."""

        async def load():
            model.batcher.start()
            self._app.state.service.models["m"] = model

        asyncio.run_coroutine_threadsafe(load(), self._loop).result(10)

    def ids(self):
        return [json.loads(body)["id"] for body in self.bodies]

    def close(self):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("QUORATE_KEY", raising=False)
    monkeypatch.setattr(asking_module, "_FIRST_WAIT", 0.001)


def client_of(*models, trouble=(), server=None, **told):
    wire = Wire(*models, trouble=trouble, **(server or {}))
    return Client("http://127.0.0.1:8900", transport=wire, **told), wire


def named_model(inputs, **told):
    model = fake_model(**told)
    return Model("m", session=model.session, inputs=inputs, outputs=Outputs(np.array(["no", "yes"])), claim="dp")


def refused(status, code, retry_after=None):
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return httpx.Response(status, json={"error": f"because of {code}", "code": code}, headers=headers)


def test_predictions_come_back_in_the_order_of_the_rows():
    client, wire = client_of(fake_model(), rows=2)
    with client:
        got = client.predict(ROWS)
    assert isinstance(got, Predictions)
    assert got.labels.tolist() == LABELS
    assert (got.answered.tolist(), got.no_quorum.tolist()) == (
        [True, True, False, True, True],
        [False, False, True, False, False],
    )
    assert (got.refused, got.spent, got.scores) == (0, None, None)
    assert len(wire.bodies) == 3
    assert len(set(wire.ids())) == 3


@pytest.mark.parametrize("happens", ["request lost", "response lost"])
def test_what_is_lost_is_sent_again_under_its_id_and_charged_once(happens):
    model = fake_model()
    client, wire = client_of(model, trouble=[happens, happens, "nothing", happens], rows=3)
    before = model.session.left
    with client:
        assert client.predict(ROWS).labels.tolist() == LABELS
    ids, bodies = wire.ids(), wire.bodies
    assert ids[0] == ids[1] == ids[2] != ids[3] == ids[4]
    assert bodies[0] == bodies[1] == bodies[2]
    assert before - model.session.left == len(ROWS)


def test_a_server_that_asks_to_come_again_is_asked_again_when_it_says():
    waits = [refused(503, "overloaded", 1), refused(409, "in_progress"), httpx.Response(502, text="<html>")]
    client, wire = client_of(fake_model(), trouble=waits)
    start = time.monotonic()
    with client:
        assert client.predict(ROWS).labels.tolist() == LABELS
    assert time.monotonic() - start >= 1
    assert len(set(wire.bodies)) == 1


def test_nobody_waits_longer_than_the_limit():
    client, _ = client_of(fake_model(), trouble=[refused(503, "ledger_refused", 600)], seconds=60)
    start = time.monotonic()
    with (
        client,
        pytest.raises(
            Unanswered, match="did not answer within 60 seconds: it said: because of ledger_refused"
        ) as error,
    ):
        client.predict(ROWS, id="batch-7")
    assert time.monotonic() - start < 60  # at once: it is told to come again in ten minutes
    assert error.value.id == "batch-7"
    client, _ = client_of(fake_model(), trouble=["request lost"] * 10**4, seconds=0.3)
    with client, pytest.raises(Unanswered, match="it could not be reached"):
        client.predict(ROWS)
    assert time.monotonic() - start < 60


def test_a_call_that_was_given_up_goes_on_under_its_id():
    model = fake_model()
    client, wire = client_of(model, trouble=["response lost", refused(503, "not_ready", 60)], seconds=30)
    with client:
        with pytest.raises(Unanswered) as error:
            client.predict(ROWS)
        spent = model.session.left
        assert client.predict(ROWS, id=error.value.id).labels.tolist() == LABELS
        assert model.session.left == spent
        assert len(set(wire.bodies)) == 1
        with pytest.raises(IdReused):
            client.predict([[9.0, 9, 9]] * 5, id=error.value.id)


def test_requests_become_smaller_where_the_server_takes_fewer_rows():
    client, wire = client_of(fake_model(), server={"row_limit": 2})
    with client:
        assert client.predict(ROWS).labels.tolist() == LABELS
    assert [len(json.loads(body)["inputs"][0]["data"]) // 3 for body in wire.bodies] == [5, 3, 2, 2, 1]


def test_a_rate_is_waited_for_once_and_then_asked_in_smaller_requests():
    trouble = [
        refused(429, "rate_limited", 0),
        refused(429, "rate_limited", 0),
        "nothing",
        refused(429, "rate_limited", 0),
    ]
    client, wire = client_of(fake_model(), trouble=trouble)
    with client:
        assert client.predict(ROWS).labels.tolist() == LABELS
    assert [len(json.loads(body)["inputs"][0]["data"]) // 3 for body in wire.bodies] == [5, 5, 3, 2, 2]


def test_what_the_budget_cannot_pay_for_is_refused_and_the_rest_is_answered():
    client, _ = client_of(fake_model(budget=3), rows=2)
    with client:
        got = client.predict(ROWS)
        assert got.labels.tolist() == [*LABELS[:2], None, None, None] or got.labels.tolist() == [
            *LABELS[:3],
            None,
            None,
        ]
        assert got.refused == 2
        assert client.ask(ROWS)["outcome"].to_pylist() == ["answered", "answered", "no_quorum", "refused", "refused"]
        with pytest.raises(BudgetSpent, match=r"127\.0\.0\.1 refused this: the model's privacy budget is spent"):
            client.predict([[7.0, 7, 7]])


def test_a_quota_is_used_to_its_last_row():
    left = [3]

    class Quota(Wire):
        def handle_request(self, request):
            if request.url.path.endswith("/infer"):
                rows = json.loads(request.read())["inputs"][0]["shape"][0]
                if rows > left[0]:
                    return refused(403, "quota_spent")
                left[0] -= rows
            return super().handle_request(request)

    with Client("http://127.0.0.1:8900", transport=Quota(fake_model())) as client:
        assert client.ask(ROWS)["outcome"].to_pylist() == ["answered", "answered", "no_quorum", "refused", "refused"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "unauthenticated", KeyClosed),
        (403, "forbidden", ServerRefused),
        (403, "share_spent", BudgetSpent),
        (400, "bad_tensor", InvalidInput),
        (409, "id_reused", IdReused),
        (404, "unknown_model", ServerRefused),
        (500, "internal", ServerRefused),
        (413, "too_large", ServerRefused),
    ],
)
def test_refusals_are_errors_in_plain_words(status, code, kind):
    client, wire = client_of(fake_model(), trouble=[refused(status, code)] * 5)
    with client, pytest.raises(kind, match=f"127.0.0.1 refused this: because of {code}") as error:
        client.predict([[1.0, 0, 0]])
    assert error.value.code == ("invalid_input" if code == "bad_tensor" else code)
    assert len(wire.bodies) == 1


def test_a_key_is_sent_and_never_shown(monkeypatch):
    model = fake_model()
    model.ledger.add("qk_me_secret", "ask")
    monkeypatch.setenv("QUORATE_KEY", "qk_me_secret")
    client, _ = client_of(model, server={"keys": True})
    with client:
        assert "secret" not in repr(client)
        assert client.predict(ROWS).labels.tolist() == LABELS
    keyless, _ = client_of(model, server={"keys": True}, key="")
    with keyless, pytest.raises(InvalidInput, match=r"asks for a key: .*--key-file"):
        keyless.predict(ROWS)
    other, _ = client_of(model, server={"keys": True}, key="qk_no_wrong", model="m")
    with other, pytest.raises(KeyClosed) as error:
        other.predict(ROWS)
    assert "wrong" not in str(error.value)
    with pytest.raises(InvalidInput, match=r"would be readable on the way to triage\.example\.org"):
        Client("http://triage.example.org")
    Client("http://triage.example.org", insecure=True).close()
    Client("https://triage.example.org").close()
    for url in ("triage.example.org", "ftp://triage.example.org", "https://me:you@triage.example.org"):
        with pytest.raises(InvalidInput, match="a server is named by its address"):
            Client(url)


def test_data_frames_in_and_out():
    inputs = NamedInputs(["a", "b", "c"])
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"], index=list("vwxyz"))
    client, _ = client_of(named_model(inputs))
    with client:
        got = client.ask(frame[["c", "a", "b"]])
        assert list(got.index) == list("vwxyz")
        assert [None if pd.isna(one) else one for one in got["answer"]] == LABELS
        assert got["outcome"].tolist() == ["answered", "answered", "no_quorum", "answered", "answered"]
        in_polars = client.ask(pl.from_pandas(frame))
        assert isinstance(in_polars, pl.DataFrame)
        assert in_polars["answer"].to_list() == LABELS
        assert client.ask(pa.Table.from_pandas(frame, preserve_index=False))["answer"].to_pylist() == LABELS
        assert client.predict(np.array(ROWS)).labels.tolist() == LABELS
        for wrong, told in (
            (frame.drop(columns="b"), "must have the columns 'b'"),
            (frame.assign(d=1), r"does not know these columns of the queries: 'd'; leave them out"),
            (frame.assign(a="x"), "column 'a'.* a number is expected, not a text"),
            (frame.assign(a=np.inf), "all numbers of column 'a' must be finite"),
            (np.zeros((2, 2)), "one column for each of 'a', 'b', 'c'"),
            (frame[:0], "at least 1 row"),
        ):
            with pytest.raises(InvalidInput, match=told):
                client.ask(wrong)


def test_columns_of_a_schema_are_sent_as_it_reads_them():
    columns = {
        "age": Number(missing="indicator"),
        "job": Category(["NA", "5"]),
        "day": Date(low="2020-01-01", high="2025-12-31"),
    }
    inputs = SchemaInputs(Schema(columns, reading=Reading(missing_texts=("", "-9"))))
    about = named_model(inputs).metadata()
    day = pd.Timestamp("2024-05-31")
    frame = pd.DataFrame({"age": ["41", "-9", ""], "job": [5.0, 5, 5], "day": [day, day, None]})
    sent = json.loads(Queries(frame, about).body(0, 3, id="a"))["inputs"]
    assert [one["data"] for one in sent] == [
        [41.0, None, None],
        ["5", "5", "5"],
        ["2024-05-31", "2024-05-31", None],  # a moment at midnight is that date, in every container
    ]
    assert [one["datatype"] for one in sent] == ["FP64", "BYTES", "BYTES"]


def test_outputs_of_every_kind_become_columns():
    scored = Answers(2, {"parameters": {"classes": ["no", "yes"]}})
    scored.fill(0, {"label": ["yes"], "index": [1], "outcome": ["answered"], "scores": [[0.25, 0.75]]})
    assert scored.columns() == {
        "answer": ["yes", None],
        "outcome": ["answered", "refused"],
        "score_no": [0.25, None],
        "score_yes": [0.75, None],
    }
    assert scored.predictions().scores.tolist() == [[0.25, 0.75], [0.0, 0.0]]
    assert scored.predictions().refused == 1
    several = Answers(1, {"parameters": {"classes": [0, 1]}})
    several.fill(0, {"labels": [[1, 0, 1]], "scores": [[0.9, 0.1, 0.8]]})
    assert several.columns() == {
        "answer": [[1, 0, 1]],
        "outcome": ["answered"],
        **{f"score_{place}": [score] for place, score in enumerate((0.9, 0.1, 0.8))},
    }
    assert several.predictions().tolist() == [[1, 0, 1]]
    sets = Answers(1, {"parameters": {"classes": ["no", "yes"]}})
    sets.fill(0, {"label": ["no"], "index": [0], "outcome": ["answered"], "set": ['["no"]']})
    assert sets.columns()["set"] == [["no"]]
    released = Answers(2, {"parameters": {"classes": []}})
    released.fill(0, {"answer": [0.5, -1.0], "error": [0.1, -1.0], "outcome": ["answered", "refused"]})
    assert released.columns() == {"answer": [0.5, None], "outcome": ["answered", "refused"], "error": [0.1, None]}
    assert released.predictions()[0] == 0.5


def test_a_model_that_is_loaded_in_the_place_of_another_is_read_anew():
    """Its classes may have another order: a number that was read by the old ones would be a wrong label."""
    session = fake_model().session
    models = [Model("m", session=session, inputs=MatrixInput(3), outputs=Outputs(np.array(classes)), claim="dp")
              for classes in (["no", "yes"], ["yes", "no"], [7, 8, 9])]  # fmt: skip
    wire = Wire(models[0])
    with Client("http://127.0.0.1:8900", transport=wire, rows=2) as client:
        assert client.predict(ROWS).labels.tolist() == LABELS
        wire.exchange(models[1])
        assert client.predict(ROWS).labels.tolist() == ["no", "yes", None, "no", "yes"]
        wire.exchange(models[2])
        assert client.ask(pd.DataFrame(ROWS))["answer"].tolist()[:2] == [8, 7]
    assert 10**9 - session.left == len(ROWS)


def test_a_proxy_of_the_environment_does_not_get_a_key_that_stays_on_this_machine(monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        port = closed.getsockname()[1]
        closed.close()
        with Client(f"http://127.0.0.1:{port}", key="qk_me_secret", seconds=0.1) as client, pytest.raises(Unanswered):
            client.models()
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_redirect_is_not_followed_and_gets_no_key():
    elsewhere = httpx.Response(307, headers={"location": "http://elsewhere.example.org/v2/models/m/infer"})
    client, wire = client_of(fake_model(), trouble=[elsewhere], key="qk_me_secret")
    with client, pytest.raises(ServerRefused, match="status 307"):
        client.predict(ROWS)
    assert len(wire.bodies) == 1


def test_an_answer_that_is_garbled_on_the_way_is_asked_for_again():
    garbled = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))
    client, wire = client_of(fake_model(), trouble=[garbled])
    with client:
        assert client.predict(ROWS).labels.tolist() == LABELS
    assert len(set(wire.bodies)) == 1 < len(wire.bodies)


def test_a_hostile_server_breaks_nothing(monkeypatch):
    """Neither nesting, nor terminal escapes, nor a bomb reaches the caller as anything but a sentence."""
    monkeypatch.setattr(client_module, "_MAX_REPLY_BYTES", 10_000)
    nested = httpx.Response(400, content=b"[" * 5000)
    client, _ = client_of(fake_model(), trouble=[nested])
    with client, pytest.raises(ServerRefused, match="status 400"):
        client.predict(ROWS)
    escapes = httpx.Response(400, json={"error": "\x1b]0;owned\x07" + "a" * 5000, "code": "odd"})
    client, _ = client_of(fake_model(), trouble=[escapes])
    with client, pytest.raises(ServerRefused) as refused:
        client.predict(ROWS)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1200
    named = httpx.Response(200, json=[{"name": "\x1b]0;owned\x07"}, {"name": "b"}])
    client = Client("http://localhost:1", transport=httpx.MockTransport(lambda request: named))
    with client, pytest.raises(InvalidInput, match="say which model") as refused:
        client.predict(ROWS)
    assert str(refused.value).isprintable()
    deep = [{"name": "set", "shape": [5], "data": ["[" * 100_000] * 5}]
    client, _ = client_of(fake_model(), trouble=[httpx.Response(200, json={"outputs": deep})])
    monkeypatch.setattr(client_module, "_MAX_REPLY_BYTES", 10**7)
    with client, pytest.raises(ServerRefused, match="check that it is a Quorate server"):
        client.ask(ROWS)
    monkeypatch.setattr(client_module, "_MAX_REPLY_BYTES", 10_000)
    large = httpx.Response(200, content=b" " * 20_000)
    client, wire = client_of(fake_model(), trouble=[large])
    with client, pytest.raises(Unanswered, match="larger than any"):
        client.predict(ROWS)
    assert len(wire.bodies) == 1
    bomb = httpx.Response(
        200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(gzip.compress(bytes(10**7)))
    )
    client, _ = client_of(fake_model(), trouble=[bomb])
    with client:
        assert client.predict(ROWS).labels.tolist() == LABELS


def test_something_else_than_a_server_of_ours_is_told():
    odd = [
        httpx.Response(200, json={"outputs": [{"name": "label", "shape": [5], "data": ["no"] * 6}]}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"outputs": [{"name": "label", "shape": [9], "data": []}]}),
    ]
    for response in odd:
        client, _ = client_of(fake_model(), trouble=[response])
        with client, pytest.raises(ServerRefused, match="must have the outputs"):
            client.predict(ROWS)


def test_the_same_with_asyncio():
    model = fake_model()
    settings = Settings(models={"m": "m"}, keys=False, pace_ms=0)

    class Trouble(httpx.ASGITransport):
        lost = 2

        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            if request.url.path.endswith("/infer") and self.lost:
                self.lost -= 1
                raise httpx.ReadError("reset")
            return response

    async def work():
        app = make_app([model], settings)
        async with running(app), AsyncClient("http://127.0.0.1:8900", transport=Trouble(app), rows=4) as client:
            got = await asyncio.gather(client.predict(ROWS), client.ask(pd.DataFrame(ROWS)), client.models())
            return *got, await client.metadata()

    labels, frame, models, about = asyncio.run(work())
    assert labels.labels.tolist() == LABELS
    assert frame["outcome"].tolist()[2] == "no_quorum"
    assert [one["name"] for one in models] == ["m"]
    assert about["name"] == "m"
    assert 10**9 - model.session.left == len(ROWS)
