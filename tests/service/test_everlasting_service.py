"""An everlasting model behind HTTP: phases on the page, the owner's feed, and a count that no client can see."""

import io
import json
import re
import shutil
import signal
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the server's packages are not installed")

from quorate import InvalidInput
from quorate.core.mechanisms import NO_QUORUM
from quorate.core.requests import Request
from quorate.models.saving import load, save
from quorate.service import Settings
from quorate.service import _reading as reading
from quorate.service._app import make_app
from quorate.service._infer import Infer
from quorate.service._telemetry import Log
from quorate.service._worker import open_models
from quorate.service.model import Model
from support.everlasting_kills import SEATS, small
from support.service_client import features, in_process, serving

INFER = "/v2/models/m/infer"
CANARY = 7.123456789123456


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(reading, "_PATIENCE_SECONDS", 120.0)  # a busy machine takes longer


def saved(folder, probe=None, **changes):
    """Save a model and return tokens: of one who asks, of one who also reads the budget, and of the owner."""
    X = np.random.default_rng(0).normal(size=(360, 1))
    classifier = small(**changes).fit(X, (X[:, 0] >= 0).astype(int), probe=probe)
    save(classifier, folder)
    scopes = {"asker": ["ask"], "reader": ["ask", "budget"], "owner": ["admin"]}
    tokens = {name: classifier.session_.ledger.add_key(name, scopes=may) for name, may in scopes.items()}
    classifier.session_.close()
    return tokens


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@contextmanager
def served(folder, log=None, **told):
    """Serve the model in this process, and yield what asks it."""
    settings = Settings(models={"m": str(folder)}, **({"pace_ms": 0} | told))
    with in_process(make_app(open_models(settings), settings, log=Log(log or io.StringIO()))) as ask:
        yield ask


# --- What clients see ------------------------------------------------------------------------------------------------


def _drawn(X):
    """Find no quorum for points near 0, and agree on all others."""
    return np.where(np.abs(X[:, 0]) < 1, NO_QUORUM, X[:, 0] > 0)


def _world(ask, tokens, point):
    """One client asks about his point. Another asks, and looks at everything that she may see."""
    model, reader = ask.app.state.service.models["m"], bearer(tokens["reader"])
    model.session.answerer.phase._draw_outcomes = _drawn
    assert ask("POST", INFER, features(*[[point]] * 8), bearer(tokens["asker"])).status == 200
    paths = ("/budget/m", "/metrics", "/", "/v2/models/m", "/v2", "/v2/models/m/ready", "/feed/m", "/nowhere")
    seen = [ask("GET", path, headers=reader) for path in paths]
    for body in (features([2.0], id="x"), features([2.0], id="x"), features([3.0], id="x"), b"{", features([2.0] * 2)):
        seen.append(ask("POST", INFER, body, reader))
    seen += [ask("POST", "/feed/m", features([2.0]), reader), ask("GET", "/metrics", headers=reader)]
    hers = [_untimed(got.body.decode()) for got in seen], [(got.status, _timeless(got.headers)) for got in seen]
    owner = [ask("GET", path, headers=bearer(tokens["owner"])) for path in ("/budget/m", "/")]
    return hers, [got.body.decode() for got in owner], model.session.no_quorums


def _timeless(headers):
    """Leave out the length, since times in metrics are longer or not, and the id, which is drawn for each request."""
    return sorted(pair for pair in headers.items() if pair[0] not in ("content-length", "x-request-id"))


def _untimed(text):
    """Return what was said without the time of day and how long it took."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\+00:00)?", "now", text)
    timed = ("quorate_request_duration_seconds", "quorate_requests_created", "quorate_queries_created")
    return "\n".join(line for line in text.splitlines() if not line.startswith(timed))


def _two_worlds(folder, home):
    """Play two worlds that differ in one client's queries: 8 no-quorums, or none."""
    tokens = saved(folder)
    shutil.copytree(folder, home / "kept")
    shutil.copytree(home / "state", home / "kept state")
    for point in (0.0, 2.0):
        for path, kept in ((folder, "kept"), (home / "state", "kept state")):
            shutil.rmtree(path)
            shutil.copytree(home / kept, path)
        with served(folder) as ask:
            world = _world(ask, tokens, point)
        yield world


def test_nothing_a_client_sees_moves_with_the_number_of_no_quorums(tmp_path):
    """All bytes that another client may see are the same in both worlds; the owner sees the count."""
    (first, first_owner, met), (second, second_owner, unmet) = _two_worlds(tmp_path / "model", tmp_path)
    assert (met, unmet) == (8, 0)
    for one, other in zip(*(zip(*world, strict=True) for world in (first, second)), strict=True):
        assert one == other
    assert json.loads(first_owner[0])["no_quorums"] == 8
    assert json.loads(second_owner[0])["no_quorums"] == 0
    for text, count in ((first_owner[1], 8), (second_owner[1], 0)):
        assert f"<dt>no quorums in this phase, for you alone</dt><dd>{count}</dd>" in text


def _counts_outcomes(patch):
    patch.setattr(Model, "progress", None)
    patch.setattr(Model, "hides_outcomes", property(lambda model: False, lambda model, value: None), raising=False)


def _tells_everybody(patch):
    patch.setattr(reading, "is_owner", lambda caller: True)


def _tells_in_a_header(patch):
    right = Infer._respond

    def wrong(self, model, id, result, chosen):
        answer = right(self, model, id, result, chosen)
        answer.headers["x-left"] = str(100 - model.session.no_quorums)
        return answer

    patch.setattr(Infer, "_respond", wrong)


@pytest.mark.parametrize("plant", [_counts_outcomes, _tells_everybody, _tells_in_a_header])
def test_a_service_that_tells_the_count_is_caught(tmp_path, monkeypatch, plant):
    plant(monkeypatch)
    try:
        (first, *_), (second, *_) = _two_worlds(tmp_path / "model", tmp_path)
    except KeyError:  # the page cannot even be made
        return
    assert first != second


def test_without_keys_nobody_is_the_owner(tmp_path):
    saved(tmp_path / "model")
    with served(tmp_path / "model", keys=False) as ask:
        ask("POST", INFER, features([0.0], [2.0]))
        budget, page, metrics = (ask("GET", path) for path in ("/budget/m", "/", "/metrics"))
        feed = ask("POST", "/feed/m", features([2.0]))
    assert "no_quorums" not in budget.json
    assert "ledger" not in budget.json
    assert (budget.json["phase"], budget.json["seats_taken"]) == (1, 2)
    assert "for you alone" not in page.body.decode()
    assert b'outcome="asked"} 2.0' in metrics.body
    assert not re.search(rb'outcome="(no_quorum|answered|refused)"', metrics.body)
    assert b"quorate_budget_left_ratio{" not in metrics.body
    assert b'quorate_seats_taken{model="m"} 2.0' in metrics.body
    assert (feed.status, feed.code) == (403, "forbidden")


def test_the_page_shows_the_phase_the_seats_and_the_drift(tmp_path):
    tokens = saved(tmp_path / "model", probe=[[-3.0], [-2.0], [2.0], [3.0]])
    log, pages = io.StringIO(), []
    with served(tmp_path / "model", log) as ask:
        for rows in ([[2.0]] * 15, [[2.0]] * 15 + [[-2.0]] * (SEATS - 25)):
            ask("POST", INFER, features(*rows), bearer(tokens["asker"]))
            pages.append(ask("GET", "/", headers=bearer(tokens["reader"])).body.decode())
    first, second = pages
    assert "25.0%</strong> <span>of the seats of this phase taken" in first
    assert f"<dt>seats taken</dt><dd>15 of {SEATS}</dd>" in first
    assert "<dt>drift since phase 1, on 4 probe points</dt><dd>0.00%</dd>" in first
    assert "<dt>phase</dt><dd>2</dd>" in second
    assert f"<dt>seats taken</dt><dd>5 of {SEATS}</dd>" in second
    for page in (first, second):
        assert "budget left" not in page.lower()
        assert "budget spent" not in page
        assert "All answers are (60, 0.01)-differentially private" in page
        assert "Leases" not in page
    assert '"code":""' in log.getvalue()


# --- Requests --------------------------------------------------------------------------------------------------------


def test_ids_over_http_and_an_id_of_an_earlier_phase(tmp_path):
    tokens = saved(tmp_path / "model")
    asker = bearer(tokens["asker"])
    with served(tmp_path / "model") as ask:
        first, again = (ask("POST", INFER, features([2.0], id="a"), asker) for _ in range(2))
        ask("POST", INFER, features(*[[2.0]] * SEATS), asker)
        late, progress = ask("POST", INFER, features([2.0], id="a"), asker), ask.app.state.service.models["m"].progress
    assert first.body == again.body
    assert (late.status, late.code) == (409, "id_reused")
    assert "earlier phase" in late.json["error"]
    assert (progress["phase"], progress["seats_taken"]) == (2, 1)


def test_the_owner_feeds_a_pool(tmp_path):
    tokens = saved(tmp_path / "model", refresh="pool")
    owner, body = bearer(tokens["owner"]), features([2.0], [3.0], id="f")
    with served(tmp_path / "model") as ask:
        refused = ask("POST", "/feed/m", features([2.0]), bearer(tokens["asker"]))
        fed, again = (ask("POST", "/feed/m", body, owner) for _ in range(2))
        ask("POST", INFER, features([2.0]), owner)
        taken = ask.app.state.service.models["m"].progress["seats_taken"]
    assert (refused.status, refused.code) == (403, "forbidden")
    assert (fed.status, fed.json, again.json) == (200, {"fed": 2}, {"fed": 2})
    assert taken == 2
    tokens = saved(tmp_path / "other")
    with served(tmp_path / "other") as ask:
        got = ask("POST", "/feed/m", features([2.0]), bearer(tokens["owner"]))
    assert (got.status, got.code) == (400, "invalid_input")
    assert "refresh='pool'" in got.json["error"]


def test_quotas_count_refused_rows_too(tmp_path):
    """A refused query has taken its seat. What a key has left does not tell who was refused."""
    tokens = saved(tmp_path / "model")
    classifier = load(tmp_path / "model")
    token = classifier.session_.ledger.add_key("few", quota=4)
    classifier.session_.answerer.phase._cutoff._closed = True
    classifier.predict([[2.0]])
    classifier.session_.close()
    with served(tmp_path / "model") as ask:
        first, second, third = (ask("POST", INFER, features([2.0], [2.0]), bearer(token)) for _ in range(3))
    assert first.json["outputs"][2]["data"] == second.json["outputs"][2]["data"] == ["refused", "refused"]
    assert (third.status, third.code) == (403, "quota_spent")
    assert tokens


def test_no_point_is_in_a_log(tmp_path):
    tokens = saved(tmp_path / "model")
    log, asker = io.StringIO(), bearer(tokens["asker"])
    with served(tmp_path / "model", log) as ask:
        got = [ask("POST", INFER, features([CANARY], id="c"), asker)]
        ask.app.state.service.models["m"].session.folder._file.path.unlink()
        got += [ask("POST", INFER, features(row), asker) for row in ([CANARY], [CANARY] * 2)]
    assert [one.status for one in got] == [200, 503, 400]
    assert str(CANARY)[:6] not in log.getvalue() + "".join(one.body.decode() for one in got)


# --- Serving ---------------------------------------------------------------------------------------------------------


def test_one_worker_serves(tmp_path):
    saved(tmp_path / "model")
    with pytest.raises(InvalidInput, match="one process asks at a time; serve it with 1 worker"):
        open_models(Settings(models={"m": str(tmp_path / "model")}, workers=2))


def test_a_model_in_memory_has_the_same_session():
    made = small()
    model = Model.of("m", made)
    (reply,) = model.session.ask_all([Request(np.full((3, 1), 2.0), id="a", body=b"1")])
    assert (reply.labels.tolist(), model.progress, model.ledger) == ([1, 1, 1], made.progress_, None)
    (again,) = model.session.ask_all([Request(np.full((3, 1), 2.0), id="a", body=b"1")])  # an id is answered once
    assert (again.labels.tolist(), made.seats_taken_, model.session.no_quorums) == ([1, 1, 1], 3, 0)
    model.session.close()


def test_a_server_that_was_killed_goes_on(tmp_path):
    tokens = saved(tmp_path / "model")
    told = Settings(models={"m": str(tmp_path / "model")}, port=0, pace_ms=5)
    with serving(told, tmp_path / "log") as server:
        first = server.request("POST", INFER, features([2.0], [-2.0], id="a"), bearer(tokens["asker"]))
        assert first.status == 200
        server.stop(signal.SIGKILL)
    with serving(told, tmp_path / "log") as server:
        again = server.request("POST", INFER, features([2.0], [-2.0], id="a"), bearer(tokens["asker"]))
        assert again.body == first.body
        budget = server.request("GET", "/budget/m", headers=bearer(tokens["reader"])).json
        assert (budget["phase"], budget["seats_taken"]) == (1, 2)
        assert server.stop() == 0
