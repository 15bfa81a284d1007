"""What the service says of itself is true: readiness, causes, when to come again, whose turn it is, what is refused."""

import asyncio
import io
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from fake_session import FakeSession, fake_model

from quorate.core.errors import LedgerRefused, RateLimited
from quorate.core.ledger._shares import Key, allow
from quorate.core.requests import Request
from quorate.service import _app as app_module
from quorate.service._app import make_app
from quorate.service._batcher import RequestBatcher
from quorate.service._errors import Refused
from quorate.service._settings import Settings
from quorate.service._telemetry import Log
from quorate.service.model import Model
from support.service_client import features, in_process, running


def app_of(*models, log=None, keys=False, **told):
    settings = Settings(models={model.name: model.name for model in models}, keys=keys, pace_ms=0, **told)
    return make_app(models, settings, log=log)


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"])
def test_ready_is_what_a_probe_of_the_ledger_says(path):
    model, text = fake_model(), io.StringIO()
    log, wrong = Log(text), []

    def probe():
        if wrong:
            raise LedgerRefused("the disk of /srv/secret is full", cause=wrong[0])

    model.ledger.probe = probe

    got = []
    with in_process(app_of(model, log=log)) as ask:
        for cause in ("", "disk_full", "missing", ""):
            wrong[:] = [cause] if cause else []
            time.sleep(0.3)  # a probe counts for a moment
            got.append(ask("GET", path))
    assert [(one.status, one.code) for one in got[1:3]] == [(503, "not_ready")] * 2
    assert [got[0].status, got[3].status] == [200, 200]
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    assert [line["cause"] for line in lines if line.get("code") == "not_ready"] == ["disk_full", "missing"]
    assert "secret" not in text.getvalue()


def test_a_ledger_that_does_not_answer_is_not_waited_for():
    model, hung = fake_model(), threading.Event()
    model.ledger.probe = hung.wait
    model.ledger.view = hung.wait
    with in_process(app_of(model)) as ask:
        start = time.monotonic()
        got = ask.together(*(("GET", path) for path in ("/v2/health/ready", "/v2/health/ready", "/metrics")))
        waited = time.monotonic() - start
        hung.set()
        time.sleep(0.1)
        statuses, after = [one.status for one in got], ask("GET", "/v2/health/ready").status
    assert statuses == [503, 503, 200]
    assert waited < 30  # two seconds, and room for a busy machine: whoever waited for it would wait for ever
    assert after == 200


def test_a_stop_does_not_wait_for_a_ledger_that_hangs(monkeypatch):
    ended, model, hung = [], fake_model(), threading.Event()
    monkeypatch.setattr(app_module.os, "_exit", lambda status: ended.append(status) or hung.set())
    monkeypatch.setattr(app_module, "_END_SECONDS", 0.2)
    model.session.close = hung.wait

    async def main():
        async with running(app_of(model, stop_seconds=1)):
            pass

    start = time.monotonic()
    with pytest.raises((RuntimeError, AssertionError)):
        asyncio.run(main())
    assert ended == [1]
    assert time.monotonic() - start < 30  # a second and a bit; the ledger hangs until it is let go


def test_every_model_has_one_version():
    with in_process(app_of(fake_model())) as ask:
        paths = ["/v2/models/m/versions/1", "/v2/models/m/versions/1/ready", "/v2/models/m/versions/2"]
        got = [ask("GET", path) for path in paths]
        got += [ask("POST", f"/v2/models/m/versions/{number}/infer", features([1, 0, 0])) for number in (1, 2)]
    assert [one.status for one in got] == [200, 200, 404, 200, 404]
    assert got[0].json["versions"] == ["1"]


def test_a_refused_ledger_leaves_the_other_models_alone():
    good, keys = fake_model("good"), {}
    bad = Model.of_refused("bad", SimpleNamespace(find_key=keys.get, read_keys=lambda: None))
    good.ledger.add("qk_a_x", "admin")
    keys["qk_b_y"] = good.ledger.keys["qk_a_x"]
    asked = [("good", "qk_a_x"), ("bad", "qk_b_y"), ("bad", "qk_a_x"), ("nothing", "qk_a_x")]
    with in_process(app_of(good, bad, keys=True)) as ask:
        codes = [
            ask("POST", f"/v2/models/{name}/infer", features([1, 0, 0]), {"authorization": f"Bearer {token}"}).code
            for name, token in asked
        ]
        metrics = ask("GET", "/metrics", headers={"authorization": "Bearer qk_a_x"})
        ready = ask("GET", "/v2/health/ready")
    assert codes == ["", "ledger_refused", "unauthenticated", "unauthenticated"]
    assert (metrics.status, ready.status) == (200, 200)


# Whose turn it is.


class Recorded(FakeSession):
    """Writes down whose requests were answered together."""

    def __init__(self):
        super().__init__()
        self.callers = []

    def ask_all(self, requests):
        self.callers.append([request.caller for request in requests])
        return super().ask_all(requests)


def request_of(caller, number):
    return Request(np.array([[1.0, float(number), 0.0]]), caller=caller)


def test_callers_take_turns_and_a_greedy_one_does_not_crowd_others_out():
    session = Recorded()

    async def main():
        batcher = RequestBatcher(session.ask_all, limit=20)
        session.held.clear()
        batcher.start()
        first = batcher.ask(request_of("greedy", 0), rows=1)
        while not session.asking.is_set():
            await asyncio.sleep(0.01)
        waiting = [batcher.ask(request_of("greedy", 1 + number), rows=400) for number in range(20)]
        with pytest.raises(Refused) as refused:
            batcher.ask(request_of("greedy", 99), rows=1)
        late = [batcher.ask(request_of(name, number), rows=1) for name in ("a", "b") for number in range(3)]
        session.held.set()
        await asyncio.gather(first, *waiting, *late)
        await batcher.close()
        return refused.value

    refused = asyncio.run(main())
    assert refused.code == "overloaded"
    assert refused.retry_after >= 1
    assert session.callers[1][:6] == ["greedy", "a", "b", "greedy", "a", "b"]
    later = {caller for batch in session.callers[2:] for caller in batch}
    assert later == {"greedy"}  # the others were all answered in the first batch


def test_the_time_to_come_again_is_computed():
    async def main():
        batcher = RequestBatcher(lambda requests: time.sleep(0.5) or [1] * len(requests), limit=2)
        batcher.start()
        first = batcher.ask(request_of("a", 0), rows=1)
        await asyncio.sleep(0.1)
        await first
        held = [batcher.ask(request_of("a", 1), rows=1)]
        await asyncio.sleep(0.1)
        held += [batcher.ask(request_of("a", number), rows=10) for number in (2, 3)]
        with pytest.raises(Refused) as refused:
            batcher.ask(request_of("a", 9), rows=1)
        await asyncio.gather(*held)
        await batcher.close()
        return refused.value.retry_after

    assert asyncio.run(main()) in range(10, 61)  # 20 rows of half a second each, or more on a busy machine

    key = Key(id="k", name="k", scopes=("ask",), hash="", created=0.0, per_minute=1, minute=60, in_minute=1)
    state = type("State", (), {"keys": {"k": key}, "projects": {}})
    with pytest.raises(RateLimited) as limited:
        allow(state, "k", 1, 110.0)
    assert Refused.by(limited.value).retry_after == 10
    assert Refused.by(LedgerRefused("x", cause="database_unanswering", retry_after=0.4)).retry_after == 1
