"""What operators see of a server: readiness, queues, requests under way, ledgers and the spending of keys."""

import re
import threading
import time

import numpy as np
import pytest
from fake_session import fake_model

from quorate import PrivateClassifier, load, save
from quorate.service import Model, Settings, make_app
from support.service_client import features, in_process

INFER = "/v2/models/m/infer"


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def figures(text):
    """Return the samples of the text format, by name and labels."""
    found = re.findall(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", text, flags=re.MULTILINE)
    return {(name, labels): float(value) for name, labels, value in found}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metrics") / "m"
    X, y = np.array([[0.0], [1.0]] * 2000), np.array([0, 1] * 2000)
    classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
    save(classifier.fit(X, y), folder)
    classifier.session_.close()
    return folder


def test_owners_see_who_spends_and_others_how_the_model_is(fitted):
    classifier = load(fitted, lease=0)
    ledger = classifier.session_.ledger
    ward, owner, watcher = (
        ledger.add_key(name, scopes=scopes)
        for name, scopes in (("ward", ("ask",)), ("owner", ("admin",)), ("watcher", ("budget",)))
    )
    model = Model.of("m", classifier)
    with in_process(make_app([model], Settings(models={"m": "m"}, pace_ms=0))) as ask:
        for number in range(3):
            assert ask("POST", INFER, features([float(number)]), bearer(ward)).status == 200
        of_owner, of_watcher = (
            figures(ask("GET", "/metrics", headers=bearer(key)).body.decode()) for key in (owner, watcher)
        )
    keys = {labels: value for (name, labels), value in of_owner.items() if name == "quorate_key_spent_ratio"}
    spent = 1 - of_owner["quorate_budget_left_ratio", 'model="m"']
    assert keys[f'key="{ward.split("_")[1]}",model="m"'] == pytest.approx(spent, rel=1e-6)
    assert spent > 0
    assert keys[f'key="{owner.split("_")[1]}",model="m"'] == 0
    assert of_owner["http_server_active_requests", ""] == 1  # the request for the metrics
    assert not {"quorate_key_spent_ratio", "http_server_active_requests"} & {name for name, _ in of_watcher}
    for seen in (of_owner, of_watcher):
        assert seen["quorate_ready", 'model="m"'] == 1
        assert seen["quorate_queued_requests", 'model="m"'] == 0
        assert 0 < seen["quorate_ledger_write_seconds", 'model="m"'] < 10


def test_queues_and_ledgers_that_fail_are_seen(monkeypatch):
    monkeypatch.setattr("quorate.service._batcher._BATCH_ROWS", 1)
    model = fake_model()
    with in_process(make_app([model], Settings(models={"m": "m"}, keys=False, pace_ms=0))) as ask:
        model.session.held.clear()

        def let_go():
            time.sleep(0.5)
            model.session.held.set()

        threading.Thread(target=let_go).start()
        body = features([1, 0, 0])
        *_, seen = ask.together(*[("POST", INFER, body)] * 5, ("GET", "/metrics"))
        model.ledger.probe = lambda: 1 / 0
        time.sleep(0.3)  # a probe is remembered
        broken = figures(ask("GET", "/metrics").body.decode())
    seen = figures(seen.body.decode())
    assert seen["http_server_active_requests", ""] == 6
    assert seen["quorate_queued_requests", 'model="m"'] >= 3
    assert seen["quorate_ready", 'model="m"'] == 1
    assert broken["quorate_ready", 'model="m"'] == 0
    assert broken["quorate_queued_requests", 'model="m"'] == 0


def test_times_of_a_ledger_with_secret_entries_are_its_owners():
    model = fake_model()
    model.hides_entries = True
    for token, scope in (("qk_a1_x", "admin"), ("qk_b2_y", "budget")):
        model.ledger.add(token, scope)
    with in_process(make_app([model], Settings(models={"m": "m"}, pace_ms=0))) as ask:
        owner, other = (
            figures(ask("GET", "/metrics", headers=bearer(key)).body.decode()) for key in ("qk_a1_x", "qk_b2_y")
        )
    assert ("quorate_ledger_write_seconds", 'model="m"') in owner
    assert ("quorate_ledger_write_seconds", 'model="m"') not in other
