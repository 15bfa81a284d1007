"""The service without a network: routes, keys, refusals, ids, groups, pacing, logs. A fake session answers."""

import asyncio
import base64
import io
import json
import logging
import threading
import time

import numpy as np
import pytest
from fake_session import fake_model
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from quorate import PrivateClassifier
from quorate.core.errors import BudgetSpent, InvalidInput, LedgerRefused
from quorate.service import Model, Settings, make_app
from quorate.service._batcher import RequestBatcher
from quorate.service._errors import PROBLEMS, Refused, code_of, error_body
from quorate.service._http import Departure, Pace
from quorate.service._inputs import SchemaInputs
from quorate.service._openapi import ROUTES
from quorate.service._telemetry import LineFormatter, Log, log_config
from quorate.tables import Category, Schema
from support.service_client import LOCAL, call, features, in_process, running

INFER = "/v2/models/m/infer"


def app_of(*models, log=None, **told):
    told = {"keys": False, "pace_ms": 0, **told}
    settings = Settings(models={model.name: model.name for model in models}, **told)
    return make_app(models, settings, log=Log(log or io.StringIO()))


def served(*models, **told):
    """Serve models, or a fake one, and yield what asks them."""
    return in_process(app_of(*(models or [fake_model()]), **told))


def test_answers_in_json():
    with served() as ask:
        got = ask("POST", INFER, features([1, 0, 0], [-1, 0, 0], [0, 0, 0], id="a"))
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    assert got.json == {
        "model_name": "m",
        "model_version": "1",
        "id": "a",
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [3], "data": ["yes", "no", ""]},
            {"name": "index", "datatype": "INT64", "shape": [3], "data": [1, 0, -1]},
            {"name": "outcome", "datatype": "BYTES", "shape": [3], "data": ["answered", "answered", "no_quorum"]},
        ],
    }


def test_answers_in_bytes_and_only_what_is_asked_for():
    body = features([1, 0, 0], outputs=[{"name": "index", "parameters": {"binary_data": True}}, {"name": "label"}])
    with served() as ask:
        got = ask("POST", INFER, body)
    length = int(got.headers["inference-header-content-length"])
    document = json.loads(got.body[:length])
    assert [tensor["name"] for tensor in document["outputs"]] == ["index", "label"]
    assert np.frombuffer(got.body[length:], np.int64).tolist() == [1]
    assert document["outputs"][1]["data"] == ["yes"]


def test_every_route_answers_and_head_too():
    nowhere = ["/nothing", "/v2/models", "/v2/models//infer", "/v2/models/m/infer/", "/v2/models/a/b/infer"]
    with served() as ask:
        for route in ROUTES:
            path = route.path.replace("{name}", "m").replace("{version}", "1").replace("{id}", "1")
            own = ("share", "budget", "dashboard", "metrics", "list_keys", "audit")
            if route.method == "GET" and route.endpoint not in own:
                assert [ask(method, path).status for method in ("GET", "HEAD")] == [200, 200], path
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "GET" if route.method == "POST" else "POST"):
                got = ask(method, path)
                assert (got.status, got.code) == (405, "method_not_allowed"), path
        for code, paths in (
            ("not_found", nowhere),
            ("unknown_model", ["/v2/models/other", "/budget/other", "/v2/models/other/ready"]),
        ):
            for path in paths:
                got = ask("GET", path)
                assert (got.status, got.code) == (404, code), path


def test_the_document_describes_every_route_and_every_code():
    with served() as ask:
        document = ask("GET", "/openapi.json").json
    assert set(document["paths"]) == {route.path for route in ROUTES}
    codes = document["components"]["schemas"]["Error"]["properties"]["code"]["enum"]
    assert set(codes) == set(PROBLEMS)
    told = json.dumps(document["paths"])
    assert ">>>" not in json.dumps(document)
    for code in set(PROBLEMS) - {"unauthenticated", "forbidden", "not_found", "method_not_allowed"}:
        assert f"`{code}`" in told, code


def test_every_refusal_has_a_sentence_to_act_on():
    for code, problem in PROBLEMS.items():
        assert 400 <= problem.status < 600, code
        assert len(problem.sentence) > 30, code
        assert problem.retry_after is not None or problem.status not in (429, 503), code


@pytest.mark.parametrize(
    ("code", "body", "headers"),
    [
        ("bad_json", b"{", {}),
        ("bad_request", b"{}", {}),
        ("bad_tensor", features([1, 2]), {}),
        ("too_large", b"[" * 20_000, {}),
        ("too_large", b"{}", {"content-length": "99999999999999999999999"}),
        ("too_large", b"{}", {"content-length": "many"}),
        ("too_many_rows", features(*[[1, 2, 3]] * 9), {}),
        ("unsupported_encoding", b"{}", {"content-encoding": "gzip"}),
        ("bad_request", b"{}", {"inference-header-content-length": "-1"}),
        ("bad_request", b"{}", {"inference-header-content-length": "1e3"}),
        ("bad_id", features([1, 2, 3]), {"idempotency-key": ""}),
        ("bad_id", features([1, 2, 3]), {"idempotency-key": "\xe9"}),
    ],
)
def test_refused_before_anything_is_asked(code, body, headers):
    model = fake_model()
    with served(model, body_limit=10_000, row_limit=8) as ask:
        got = ask("POST", INFER, body, headers)
    assert (got.status, got.code) == (PROBLEMS[code].status, code)
    assert set(got.json) == {"error", "code"}
    assert model.session.groups == []
    assert [refusal.code for refusal in model.ledger.noted] == [code]


def test_a_body_in_many_parts_is_bounded_and_timed():
    body, sent = features([1, 2, 3]), []

    async def send(message):
        sent.append(message)

    async def receive():
        sent.append(None)
        return {"type": "http.request", "body": b" ", "more_body": True} if len(sent) < 3 else await asyncio.sleep(9)

    with served(body_limit=2000, body_seconds=1) as ask:
        assert ask("POST", INFER, parts=[body[:20], body[20:]]).status == 200
        assert ask("POST", INFER, parts=[b" " * 900] * 3 + [body]).code == "too_large"
        scope = {"type": "http", "method": "POST", "path": INFER, "headers": [(b"host", b"localhost")]}
        ask.run(ask.app(scope, receive, send))
    assert sent[-2]["status"] == 408


def test_the_budgets_end_is_told_without_a_number():
    with served(fake_model(budget=2)) as ask:
        partly = ask("POST", INFER, features([1, 0, 0], [2, 0, 0], [3, 0, 0]))
        spent, again = (ask("POST", INFER, features([number, 0, 0])) for number in (4, 1))
    assert partly.json["outputs"][2]["data"] == ["answered", "answered", "refused"]
    assert partly.json["outputs"][1]["data"] == [1, 1, -2]
    assert (spent.status, spent.code) == (403, "budget_spent")
    assert b"12345" not in spent.body
    assert again.json["outputs"][2]["data"] == ["answered"]


def test_a_thousand_retries_are_one_byte_string_and_one_charge():
    model = fake_model(budget=100)
    retry = ("POST", INFER, features([1, 0, 0], [0, 0, 0], id="retry"))
    with served(model) as ask:
        got = [one for _ in range(10) for one in ask.together(*[retry] * 100)]
    assert len(got) == 1000
    assert len({(one.status, one.body, tuple(one.headers.items())) for one in got}) == 1
    assert model.session.left == 98


def test_an_id_belongs_to_one_request():
    model = fake_model(budget=100)
    others = [
        (features([2, 0, 0], id="a"), {}),
        (features([1, 0, 0], id="a", outputs=[{"name": "label"}]), {}),
        (features([1, 0, 0], id="a", parameters={"binary_data_output": True}), {}),
        (features([1, 0, 0], id="a", parameters={"priority": 1}), {}),
        (
            features([1, 0, 0], id="a") + b" ",
            {"inference-header-content-length": str(len(features([1, 0, 0], id="a")))},
        ),
        (features([3, 0, 0], id="b"), {"idempotency-key": "a"}),
    ]
    with served(model) as ask:
        assert ask("POST", INFER, features([1, 0, 0], id="a")).status == 200
        for place, other in enumerate(others):
            got = ask("POST", INFER, *other)
            assert (got.status, got.code) in {(409, "id_reused"), (400, "bad_tensor")}, place
    assert model.session.left == 99


def test_the_header_comes_before_the_field():
    model = fake_model(budget=100)
    with served(model) as ask:
        for number, key in ((1, "k"), (2, "l")):
            got = ask("POST", INFER, features([number, 0, 0], id="a"), {"idempotency-key": key})
            assert got.json["id"] == "a"
    assert set(model.session.ids) == {("", "k"), ("", "l")}


# Keys.


def keyed(*scopes):
    model = fake_model()
    model.ledger.add("qk_a1_x", *scopes)
    return model


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def basic(token):
    return {"authorization": "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()}


@pytest.mark.parametrize(
    ("scopes", "allowed"), [(("ask",), {"infer"}), (("budget",), {"metrics"}), (("admin",), {"infer", "metrics"})]
)
@pytest.mark.parametrize("header", [bearer, basic])
def test_a_key_may_do_what_its_scopes_say(scopes, allowed, header):
    with served(keyed(*scopes), keys=True) as ask:
        headers = header("qk_a1_x")
        assert ask("GET", "/v2/models/m", headers=headers).status == 200
        for name, request in (("infer", ("POST", INFER, features([1, 0, 0]))), ("metrics", ("GET", "/metrics", b""))):
            assert ask(*request, headers).status == (200 if name in allowed else 403)


def test_without_a_valid_key_nothing_is_told():
    wrong = [
        {},
        bearer(""),
        bearer("qk_a1_y"),
        bearer("x" * 10_000),
        basic("qk_a1_y"),
        {"authorization": "Basic %%%"},
        {"authorization": "Basic " + base64.b64encode(b"\xff\xff").decode()},
        {"authorization": "Bearer \xe9"},
        {"authorization": "Digest x"},
        {"authorization": ""},
    ]
    paths = ["/", "/metrics", "/budget/m", "/v2/models/m", "/v2/models/m/ready", "/budget/other", "/v2/models/other"]

    with served(keyed("admin"), keys=True) as ask:
        for headers in wrong:
            got = [ask("POST", INFER, features([1, 0, 0]), headers)]
            got += [ask("GET", path, headers=headers) for path in paths]
            assert len({(one.status, one.body) for one in got}) == 1, headers
            assert (got[0].status, got[0].code) == (401, "unauthenticated")
            assert "Basic" in got[0].headers["www-authenticate"]
        assert ask("GET", "/v2/health/ready").status == 200
        for other in ("/budget/other", "/v2/models/other"):  # nobody can list models by what they are told
            assert ask("GET", other, headers=bearer("qk_a1_x")).code == "unauthenticated"


def test_a_key_of_one_model_is_none_of_another():
    first, second = keyed("admin"), fake_model("n")
    second.ledger.add("qk_b2_y", "budget")
    with served(first, second, keys=True) as ask:
        assert ask("POST", INFER, features([1, 0, 0]), bearer("qk_a1_x")).status == 200
        assert ask("GET", "/v2/models/n", headers=bearer("qk_a1_x")).status == 401
        assert ask("POST", INFER, features([1, 0, 0]), bearer("qk_b2_y")).status == 401
        mine, theirs = (ask("GET", "/metrics", headers=bearer(key)).body.decode() for key in ("qk_a1_x", "qk_b2_y"))
    assert 'quorate_queries_total{model="m",outcome="answered"} 1.0' in mine
    assert 'model="m"' not in theirs


@pytest.mark.parametrize(("unknown", "status"), [("other", 200), ("refuse", 400)])
def test_categories_that_a_model_does_not_know_are_counted_answered_or_refused(unknown, status):
    wards = json.dumps({"inputs": [{"name": "ward", "shape": [3], "datatype": "BYTES", "data": ["a", "z", "y"]}]})

    line = 'quorate_unknown_categories_total{column="ward",model="m"} 2.0'
    for hidden in (False, True):
        model = fake_model()
        model.inputs = SchemaInputs(Schema({"ward": Category(["a", "b"], unknown=unknown)}))
        model.hides_outcomes = hidden
        with served(model) as ask:
            assert ask("POST", INFER, wards.encode()).status == status
            metrics = ask("GET", "/metrics").body.decode()
        # The queries of an everlasting model are secret.
        assert (line in metrics, "column=" in metrics) == (not hidden, not hidden)


def test_the_session_learns_who_asks():
    model = keyed("ask")
    with served(model, keys=True) as ask:
        ask("POST", INFER, features([1, 0, 0], id="k"), bearer("qk_a1_x"))
    assert set(model.session.ids) == {("a1", "k")}


def test_a_revoked_key_stops_working_soon():
    model = keyed("ask")
    with served(model, keys=True) as ask:
        assert ask("POST", INFER, features([1, 0, 0]), bearer("qk_a1_x")).status == 200
        del model.ledger.keys["qk_a1_x"]
        access = ask.app.state.service.access
        access._callers = {place: (caller, 0.0) for place, (caller, _) in access._callers.items()}
        assert ask("POST", INFER, features([1, 0, 0]), bearer("qk_a1_x")).status == 401


def test_strangers_leave_nothing_behind():
    with served(keyed("ask"), keys=True) as ask:
        for number in range(50):
            assert ask("POST", INFER, features([1, 0, 0]), bearer(f"qk_{number}_x")).status == 401
        assert ask.app.state.service.access._callers == {}


@pytest.mark.parametrize(
    ("keys", "headers", "allowed"),
    [
        (False, {}, True),
        (False, {"host": "localhost:8000"}, True),
        (False, {"host": "[::1]:8000"}, True),
        (False, {"host": "elsewhere.example:8000"}, False),
        (False, {"host": "127.0.0.1.elsewhere.example"}, False),
        (True, {"host": "elsewhere.example:8000"}, True),
        (True, {"origin": "http://127.0.0.1:8000"}, True),
        (True, {"origin": "http://127.0.0.1:8001"}, False),
        (True, {"origin": "null"}, False),
        (True, {"sec-fetch-site": "same-origin"}, True),
        (True, {"sec-fetch-site": "cross-site"}, False),
        (True, {"sec-fetch-site": "same-site"}, False),
    ],
)
def test_pages_of_other_sites_cannot_ask(keys, headers, allowed):
    with served(keyed("ask"), keys=keys) as ask:
        got = ask("POST", INFER, features([1, 0, 0]), LOCAL | bearer("qk_a1_x") | headers)
    assert (got.status, got.status == 403 and got.code) == ((200, False) if allowed else (403, "cross_site"))


def test_a_server_without_keys_stays_on_loopback():
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        with pytest.raises(InvalidInput, match="without keys a server listens on loopback alone"):
            Settings(models={"m": "m"}, host=host, keys=False)
        assert Settings(models={"m": "m"}, host=host).keys
    for wrong in ({"models": {}}, {"models": {"a/b": "m"}}, {"pace_ms": -1}, {"workers": 0}, {"pace_ms": float("nan")}):
        with pytest.raises(InvalidInput):
            Settings(**({"models": {"m": "m"}} | wrong))


# Groups and pacing.


def test_what_queues_up_is_asked_together_and_too_much_is_refused():
    model = fake_model()
    model.batcher._limit = 20

    async def main(app):
        model.session.held.clear()
        first = asyncio.create_task(call(app, "POST", INFER, features([1, 0, 0])))
        assert await asyncio.to_thread(model.session.asking.wait, 60)
        rest = [asyncio.create_task(call(app, "POST", INFER, features([2, n, 0]))) for n in range(25)]
        while sum(one.done() for one in rest) < 5:
            await asyncio.sleep(0.01)
        model.session.held.set()
        return [await one for one in (first, *rest)]

    with served(model) as ask:
        got = ask.run(main(ask.app))
    assert [one.status for one in got] == [200] * 21 + [503] * 5
    assert {one.code for one in got[21:]} == {"overloaded"}
    assert got[-1].headers["retry-after"] == "1"
    assert model.session.groups == [1, 20]


def test_a_stop_answers_what_is_queued_and_closes_the_session():
    model = fake_model()

    async def main():
        app = app_of(model)
        async with running(app):
            model.session.held.clear()
            queued, ask = [], model.batcher.ask
            model.batcher.ask = lambda *given, **named: queued.append(given) or ask(*given, **named)
            asked = [asyncio.create_task(call(app, "POST", INFER, features([n, 0, 0]))) for n in range(1, 6)]
            while len(queued) < 5:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.2, model.session.held.set)
        late = await call(app, "POST", INFER, features([9, 0, 0]))
        return [(await one).status for one in asked], late.code, (await call(app, "GET", "/v2/health/ready")).code

    assert asyncio.run(main()) == ([200] * 5, "stopping", "not_ready")
    assert model.session.closed


def test_a_session_that_breaks_says_nothing_of_it():
    model, log = fake_model(), io.StringIO()

    def breaks(requests):
        raise KeyError("canary")

    with served(model, log=log) as ask:
        works, answers = model.batcher._ask_all, []
        for model.batcher._ask_all in (breaks, lambda requests: [], works):
            answers.append(ask("POST", INFER, features([1, 0, 0])))
    broken, short, after = answers
    assert (broken.status, broken.code, short.code, after.status) == (500, "internal", "internal", 200)
    assert b"canary" not in broken.body
    assert "canary" not in log.getvalue()
    assert '"event":"failure","route":"/v2/models/{name}/infer","kind":"KeyError"' in log.getvalue()


def test_a_session_with_nothing_to_do_is_idled():
    idled = threading.Event()

    async def main():
        batcher = RequestBatcher(lambda requests: requests, idle=idled.set)
        batcher.start()
        assert await asyncio.to_thread(idled.wait, 60)
        idled.clear()

        def breaks():
            idled.set()
            raise OSError

        batcher._idle = breaks
        assert await asyncio.to_thread(idled.wait, 60)
        asked = await batcher.ask("still there", rows=1)
        await batcher.close()
        return asked

    assert asyncio.run(main()) == "still there"


def test_the_queue_is_bounded_in_rows_too():
    async def main():
        go = threading.Event()
        batcher = RequestBatcher(lambda requests: [go.wait(60) for _ in requests])
        batcher.start()
        asked = [batcher.ask("large", rows=2**15)]
        while batcher._waiting:
            await asyncio.sleep(0.01)
        asked += [batcher.ask("large", rows=2**15) for _ in range(2)]
        with pytest.raises(Refused, match="overloaded"):
            batcher.ask("one more", rows=1)
        go.set()
        got = [await one for one in asked]
        got.append(await batcher.ask("now", rows=1))
        await batcher.close()
        return got

    assert asyncio.run(main()) == [True] * 4


def test_a_ledger_that_cannot_be_read_is_told_by_its_code():
    model = fake_model()

    def view():
        raise LedgerRefused("/secret/place is missing")

    model.ledger.view = view
    with served(model) as ask:
        got, page, metrics = (ask("GET", path) for path in ("/budget/m", "/", "/metrics"))
    assert metrics.status == 200
    assert b"quorate_budget_left_ratio{" not in metrics.body
    assert (got.status, got.code) == (503, "ledger_refused")
    assert b"secret" not in got.body
    assert page.status == 200  # and says why, to its owner
    assert b"/secret/place is missing" in page.body


def test_models_fitted_on_frames_take_a_tensor_a_column():
    pandas = pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    jobs = generator.choice(["clerk", "nurse"], size=2000)
    numbers = pandas.DataFrame({"age": generator.normal(size=2000), "height": generator.normal(size=2000)})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["job"]), remainder="passthrough")
    told = {"epsilon": 200.0, "teachers": 20, "queries": 20, "aggregator": "noisy_max", "classes": [False, True]}
    plain = PrivateClassifier(**told).fit(numbers, numbers["age"] > 0)
    mixed = PrivateClassifier(make_pipeline(encoder, LogisticRegression()), **told)
    mixed.fit(numbers.assign(job=jobs), numbers["age"] > 0)
    ages = {"name": "age", "shape": [2], "datatype": "FP64", "data": [3.0, -3.0]}
    heights = {"name": "height", "shape": [2, 1], "datatype": "INT8", "data": [0, 0]}
    job = {"name": "job", "shape": [2], "datatype": "BYTES", "data": ["nurse", "canary"]}
    requests = (
        ("plain", [heights, ages]),
        ("mixed", [job, heights, ages]),
        ("mixed", [job, heights, ages | {"datatype": "BYTES", "data": ["canary", "1"]}]),
    )
    with served(Model.of("plain", plain), Model.of("mixed", mixed)) as ask:
        about = ask("GET", "/v2/models/mixed").json["inputs"]
        first, second, wrong = (
            ask("POST", f"/v2/models/{name}/infer", json.dumps({"inputs": inputs}).encode())
            for name, inputs in requests
        )
    assert [(tensor["name"], tensor["datatype"]) for tensor in about] == [
        ("age", "FP64"), ("height", "FP64"), ("job", "BYTES")
    ]  # fmt: skip
    for got in (first, second):
        assert got.json["outputs"][0] == {"name": "label", "datatype": "BOOL", "shape": [2], "data": [True, False]}
    assert (wrong.status, wrong.code) == (400, "invalid_input")
    assert b"canary" not in wrong.body


def test_a_request_that_fails_fails_for_its_own_caller():
    """What is asked together would otherwise fail together: a caller would see what another has sent."""

    def ask_all(requests):
        if 13 in requests:
            raise ValueError("the student does not take it")
        return [f"answer to {request}" for request in requests]

    first, second, third = batched(ask_all, [(number, 1) for number in (12, 13, 14)])
    assert (first, third) == ("answer to 12", "answer to 14")
    assert isinstance(second, ValueError)


def test_one_request_may_be_larger_than_a_group():
    sizes = batched(lambda requests: [len(requests)] * len(requests), [(n, 3000) for n in range(5)] + [(5, 10_000)])
    assert max(sizes) == 1


def batched(ask_all, requests):
    """Return what a batcher answers to these requests, each with its number of rows."""

    async def main():
        batcher = RequestBatcher(ask_all)
        batcher.start()
        asked = [batcher.ask(request, rows=rows) for request, rows in requests]
        got = [await one for one in asked]
        await batcher.close()
        return got

    return asyncio.run(main())


def test_a_pace_counts_whole_steps():
    pace = Pace(0.02)
    paces = [pace.round_up(seconds) / 0.02 for seconds in (0.0, 0.0199, 0.02, 0.0201, 0.04, 0.041)]
    assert paces == pytest.approx([1, 1, 1, 2, 2, 3])
    assert Pace(0.0).round_up(0.0212) == pytest.approx(0.022)


@pytest.mark.parametrize(("work", "ticks"), [(0.0, 1), (0.06, 1), (0.14, 2), (0.23, 3)])
def test_an_answer_leaves_at_the_first_tick_after_it_is_ready(work, ticks):
    async def main():
        started = time.perf_counter()
        departure = Departure(0.1)
        await asyncio.sleep(work)
        await departure.wait()
        return departure.ticks, time.perf_counter() - started

    got, elapsed = asyncio.run(main())
    assert got >= ticks  # more only on a machine that stood still
    assert elapsed >= 0.1 * got - 0.002


def test_all_that_follows_from_a_body_is_paced_and_other_refusals_are_not():
    broken = fake_model("broken")
    broken.batcher._ask_all = lambda requests: 1 / 0
    at_once = {
        "not_found": ("/v2/nothing", b"{}", {}),
        "unsupported_encoding": (INFER, b"{}", {"content-encoding": "gzip"}),
        "bad_id": (INFER, b"{}", {"idempotency-key": ""}),
        "too_large": (INFER, b"{}", {"content-length": "many"}),
    }
    paced = {
        "": (INFER, features([1, 0, 0], id="a"), {}),
        "id_reused": (INFER, features([2, 0, 0], id="a"), {}),
        "budget_spent": (INFER, features([2, 0, 0]), {}),
        "bad_json": (INFER, b"{", {}),
        "bad_request": (INFER, b"{}", {}),
        "bad_tensor": (INFER, features([1, 2]), {}),
        "too_many_rows": (INFER, features(*[[1, 2, 3]] * 9), {}),
        "internal": ("/v2/models/broken/infer", features([1, 0, 0]), {}),
    }

    times = {}
    with served(fake_model(budget=1), broken, pace_ms=150, row_limit=8) as ask:
        for code, (path, body, headers) in (paced | at_once).items():
            for _ in range(1 if code in paced else 20):  # one of them meets no pause of this machine
                started = time.perf_counter()
                assert ask("POST", path, body, headers).code == code
                times[code] = min(time.perf_counter() - started, times.get(code, 1e9))
    assert min(times[code] for code in paced) > 0.148, times
    assert max(times[code] for code in at_once) < 0.148, times


def test_an_answer_that_kept_the_loop_busy_leaves_at_a_whole_pace_too():
    async def main():
        began = time.perf_counter()
        async with Departure(0.1) as departure:
            time.sleep(0.13)
        return departure.ticks, time.perf_counter() - began

    ticks, elapsed = asyncio.run(main())
    assert ticks >= 2  # more only on a machine that stood still
    assert elapsed >= 0.1 * ticks - 0.002


def _told_apart(pace_ms, each=12):
    """Return by how many seconds two kinds of queries differ, if the session takes 50 ms longer over one.

    The fastest of each kind are compared: a machine that is busy only adds to the time of some.
    """
    model = fake_model()
    answered = model.session.ask_all

    def slower_without_a_quorum(requests):
        if requests[0].X[0, 0] == 0:
            time.sleep(0.05)
        return answered(requests)

    model.batcher._ask_all = slower_without_a_quorum
    times = {0: [], 1: []}
    with served(model, pace_ms=pace_ms) as ask:
        for n in range(2 * each):
            started = time.perf_counter()
            ask("POST", INFER, features([n % 2, n, 0]))
            times[n % 2].append(time.perf_counter() - started)
    return min(times[0]) - min(times[1])


def test_time_tells_nothing_where_there_is_a_pace():
    assert _told_apart(0) > 0.025
    assert abs(_told_apart(80)) < 0.025  # unless all twelve of one kind wait that long for this machine


# Logs.


def test_a_log_line_has_these_fields_and_no_others():
    log = io.StringIO()
    with served(keyed("ask"), keys=True, pace_ms=20, log=log) as ask:
        ask("POST", INFER, features([1, 0, 0], id="secret-id"), bearer("qk_a1_x"))
        ask("GET", "/canary?secret=1", headers=bearer("qk_a1_x"))
        ask("GET", "/v2/models/canary")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    asked, lost, unknown = [line for line in lines if line["event"] == "request"]
    fields = {"time", "event", "route", "model", "status", "code", "milliseconds", "key", "request", "rows"}
    assert set(asked) == fields
    assert asked["rows"] == 1
    assert (asked["route"], asked["model"], asked["key"]) == ("/v2/models/{name}/infer", "m", "a1")
    assert asked["milliseconds"] % 20 == 0
    assert (lost["route"], lost["status"], lost["key"]) == ("", 404, None)
    assert (unknown["route"], unknown["model"], unknown["status"]) == ("/v2/models/{name}", "", 401)
    for word in ("secret", "canary", "qk_"):
        assert word not in log.getvalue()


def test_a_log_that_nobody_reads_stops_nothing():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "no space left")

    log = Log(Full())
    for _ in range(5000):
        log.event("request")
    log.flush()
    assert len(log._lines) == 0
    kept = io.StringIO()
    log._stream = kept
    for _ in range(5000):
        log.event("request")
    log.flush()
    assert '"event":"log_lines_dropped","lines":904' in kept.getvalue()


def test_what_other_packages_log_is_cut_to_its_template():
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "failed for %s", ("Smith",), None)
    line = json.loads(LineFormatter().format(record))
    assert (line["event"], line["level"], line["text"]) == ("server", "error", "failed for %s")
    assert log_config()["loggers"]["uvicorn.access"]["handlers"] == []


def test_a_failure_is_logged_by_its_type_alone():
    stream = io.StringIO()
    log = Log(stream)
    log.failure(ValueError("a secret"), route="/")
    log.flush()
    line = json.loads(stream.getvalue())
    assert (line["event"], line["kind"], line["where"]) == ("failure", "ValueError", "unknown")
    assert "secret" not in stream.getvalue()


def test_errors_have_codes_and_bodies_of_the_table():
    assert [
        code_of(error) for error in (BudgetSpent("..."), InvalidInput("..."), Refused("bad_id"), KeyError("age"))
    ] == [*("budget_spent", "invalid_input", "bad_id", "internal")]
    assert error_body("stopping") == b'{"error":"this server is stopping; ask again in a moment","code":"stopping"}'


def test_settings_survive_their_way_to_a_worker():
    settings = Settings(models={"clinic": "/srv/clinic"}, port=8080)
    assert Settings.from_json(settings.to_json()) == settings
    with pytest.raises(InvalidInput, match="two folders have the same name"):
        Settings.of("a/clinic", "b/clinic")
