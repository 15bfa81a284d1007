"""Teachers that stand elsewhere: functions and servers that one brings, and electorates of other kinds."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest

from quorate import InvalidInput, PrivateClassifier, load, save
from quorate.compute.ensemble import Electorate, Ensemble
from quorate.compute.ensemble.electorate import EndpointTeachers, FunctionTeachers, as_electorate
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.compute.learners.linear import LinearTeachers
from quorate.core.answerers import Votes
from quorate.core.mechanisms import NoisyMax, Quorum
from quorate.core.privacy import Budget
from quorate.core.session import Session

PUBLIC = np.array([[0.5, -0.5], [1.0, 2.0]])
SETTINGS = {"epsilon": 4.0, "queries": 20, "aggregator": "noisy_max"}


def above(cut):
    return lambda X: np.where(X[:, 0] > cut, "ill", "well")


class Counted:
    """An electorate of one's own, as a cluster would be: it says how often it was closed."""

    teachers, classes = 500, 2

    def __init__(self, error=None):
        self.closed, self.error = 0, error

    def votes(self, X):
        if self.error is not None:
            raise self.error
        ones = np.where(np.asarray(X)[:, 0] > 0, 480, 20)
        return np.stack([500 - ones, ones], axis=1)

    def close(self):
        self.closed += 1


class Ahead(Counted):
    """Counts the next queries before it hands out the votes on those before, as a GPU does, in parts of its own."""

    def votes_each(self, batches):
        before = None
        for X in batches:
            for part in np.array_split(X, 3):
                votes = self.votes(part)
                if before is not None:
                    yield before
                before = votes
        if before is not None:
            yield before


def test_all_local_teachers_are_electorates():
    for one in (LinearTeachers(np.zeros((3, 1, 2)), classes=2), EstimatorTeachers([(None, 0)], classes=2), Counted()):
        assert isinstance(one, Electorate)
        assert (Ensemble(one).teachers, Ensemble(one).classes) == (one.teachers, 2)


def test_an_electorate_of_ones_own_answers_and_is_closed_with_its_session():
    electorate = Counted()
    made = PrivateClassifier.from_teachers(electorate, classes=["no", "yes"], public=PUBLIC, **SETTINGS)
    assert made.predict([[1.0, 0.0], [-1.0, 0.0]]).tolist() == ["yes", "no"]
    assert "replacement of all that one teacher has learned from" in made.claim_
    made.session_.close()
    assert electorate.closed == 1


def test_where_an_electorate_cannot_answer_nothing_is_charged():
    electorate = Counted(error=InvalidInput("the cluster is gone"))
    made = PrivateClassifier.from_teachers(electorate, classes=[0, 1], public=PUBLIC, **SETTINGS)
    with pytest.raises(InvalidInput, match="gone"):
        made.predict([[1.0, 0.0]])
    assert made.spent_epsilon() == 0
    electorate.error = None
    assert made.predict([[1.0, 0.0]]).tolist() == [1]


@pytest.mark.parametrize("electorate", [Counted, Ahead])
@pytest.mark.parametrize("affords", [1, 150, 401, 2000])
def test_answers_stand_by_their_queries_and_are_paid_for_once_wherever_the_budget_ends(electorate, affords):
    mechanism = NoisyMax(teachers=500, classes=2, scale=20.0)
    budget = Budget(epsilon=50.0, delta=1e-6)
    each = mechanism.query_cost(budget.order)
    budget.spend(each, times=budget.affordable(each) - affords)
    session = Session(Votes(Ensemble(electorate()), mechanism), budget)
    session.block = 16
    X = np.random.default_rng(0).permutation(np.arange(-500, 500) + 0.5)[:, np.newaxis]
    told, answered = session.ask(X), min(affords, 1000)
    assert told.refused.tolist() == [row >= answered for row in range(1000)]
    assert (told.labels[:answered] == (X[:answered, 0] > 0)).all()
    assert budget.affordable(each) == affords - answered
    assert told.spent.renyi == pytest.approx(each.renyi * answered)
    assert (session.ask(X[:answered]).labels == told.labels[:answered]).all()  # at no cost
    assert budget.affordable(each) == affords - answered


@pytest.mark.parametrize("electorate", [Counted, Ahead])
def test_a_run_that_ends_among_queries_that_are_counted_ahead_answers_none_of_them(electorate):
    mechanism = Quorum.calibrate(epsilon=4.0, delta=1e-6, teachers=500, no_quorums=3)
    whole = mechanism.run_cost(mechanism.order)
    budget = Budget(epsilon=5.0, delta=1e-6, order=mechanism.order, slack=whole.slack)
    session = Session(Votes(Ensemble(electorate()), mechanism), budget)
    session.block = 16
    X = np.arange(1.0, 1001.0)[:, np.newaxis]
    X[[3, 100, 400, 401], 0] *= -1
    session.answerer.ensemble.electorate.votes = lambda X: np.where(X > 0, [[0, 500]], [[250, 250]])
    told = session.ask(X)
    assert (told.labels[:400] == np.where(X[:400, 0] > 0, 1, -1)).all()
    assert told.refused.tolist() == [False] * 401 + [True] * 599
    assert budget.spent().renyi == pytest.approx(whole.renyi)


def test_what_was_answered_before_an_electorate_failed_is_kept_and_nothing_else_is_paid_for():
    electorate, fails = Ahead(), InvalidInput("the cluster is gone")
    mechanism, budget = NoisyMax(teachers=500, classes=2, scale=20.0), Budget(epsilon=50.0, delta=1e-6)
    session, each = Session(Votes(Ensemble(electorate), mechanism), budget), mechanism.query_cost(budget.order)
    session.block, before = 64, budget.affordable(each)
    X, votes = np.arange(1.0, 301.0)[:, np.newaxis], electorate.votes

    def until_300(X):
        electorate.error = fails if X.max() == 300 else None
        return votes(X)

    electorate.votes = until_300
    with pytest.raises(InvalidInput, match="gone"):
        session.ask(X)
    paid = before - budget.affordable(each)
    assert 64 <= paid < 300
    session.ask(X[:paid])
    assert before - budget.affordable(each) == paid


def test_what_goes_wrong_with_one_function_is_a_ballot_of_its_place_and_changes_no_other():
    def fails(X):
        raise RuntimeError("my rows say so")

    wrong = [fails, lambda X: ["nobody"] * len(X), lambda X: "ill", lambda X: X, lambda X: None, lambda X: [[]] * 9]
    sound = [above(cut) for cut in np.linspace(-1, 1, 20)]
    X = np.random.default_rng(0).normal(size=(50, 2))
    alone = FunctionTeachers(sound, labels=["ill", "well"]).ballots(X)
    for place, one in enumerate(wrong):
        teachers = FunctionTeachers([*sound[:place], one, *sound[place:]], labels=["ill", "well"])
        ballots = teachers.ballots(X)
        assert (ballots[:, place] == place % 2).all()
        assert (np.delete(ballots, place, axis=1) == alone).all()
        assert (teachers.votes(X)[:, 1] == ballots.sum(axis=1)).all()


def test_a_function_that_writes_into_its_rows_or_draws_at_random_reaches_no_other():
    def spoils(X):
        X[:] = 99.0
        return ["ill"] * len(X)

    def draws(X):
        return np.where(np.random.random(len(X)) < 0.5, "ill", "well")  # noqa: NPY002

    X = np.random.default_rng(0).normal(size=(64, 2))
    alone = FunctionTeachers([above(0.0), draws], labels=["ill", "well"])
    alone.query_seed = 7
    among = FunctionTeachers([spoils, draws, above(0.0)], labels=["ill", "well"])
    among.query_seed = 7
    assert (among.ballots(X)[:, 1:] == alone.ballots(X)[:, ::-1]).all()


def test_functions_may_take_frames_of_texts():
    notes = pd.DataFrame({"note": ["chest pain", "a cold"]})
    prompts = [lambda X: ["ill" if "pain" in note else "well" for note in X["note"]]] * 300
    made = PrivateClassifier.from_teachers(prompts, classes=["ill", "well"], public=notes, **SETTINGS)
    assert made.predict(pd.DataFrame({"note": ["no pain", "all fine"]})).tolist() == ["ill", "well"]


@pytest.mark.parametrize(
    ("teachers", "settings", "text"),
    [
        ([], {}, "teachers must be a list of functions"),
        ("https://one.example.org/v2/models/m", {}, "teachers must be a list of functions"),
        ([above(0.0), "https://one.example.org/v2/models/m"], {}, "teachers must be a list of functions"),
        ([lambda X: 1 / 0] * 3, {}, "at least half of the teachers must return"),
        ([above(0.0)] * 300, {"holdout": 0.1}, "holdout is a setting of teachers that are fitted here"),
        (Counted(), {"classes": [1, 2, 3]}, "labels must have 2 classes"),
        (["https://one.example.org/models/m"], {}, "a teacher's address ends in /v2/models/"),
        (["https://me:word@one.example.org/v2/models/m"], {}, "no password in it"),
        (["https://a.org:99999/v2/models/m"], {}, "valid host and port"),
        (["http://127.0.0.1:9/v2/models/m"] * 2, {}, "two teachers have one address"),
        (["https://a.org/v2/models/m", "https://A.org:443/v2/models/m"], {}, "two teachers have one address"),
    ],
)
def test_what_cannot_be_is_refused(teachers, settings, text):
    with pytest.raises(InvalidInput, match=text):
        PrivateClassifier.from_teachers(
            teachers, **({"classes": ["ill", "well"], "public": PUBLIC} | SETTINGS | settings)
        )


def test_functions_are_not_saved_and_nothing_is_written(tmp_path):
    made = PrivateClassifier.from_teachers([above(0.0)] * 300, classes=["ill", "well"], public=PUBLIC, **SETTINGS)
    with pytest.raises(InvalidInput, match="cannot be written to a file: its teachers were brought"):
        save(made, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert made.predict([[9.0, 0.0]]).tolist() == ["ill"]  # it goes on from its own budget


class Models(BaseHTTPRequestHandler):
    """Many models on one server: /v2/models/N says "ill" above N / 10; some are of the sort that fails."""

    def do_GET(self):
        self._send({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tensor = body["inputs"][0]
        name = self.path.split("/")[3]
        self.server.asked.append(name)
        X = np.array(tensor["data"]).reshape(tensor["shape"])
        if name == "slow":
            self.server.wait.wait(20)
        if name == "endless":
            return self._send({"outputs": ["ill" * 1000]})
        if name == "rude":  # it says more than it was asked, on a connection that another could be given next
            document = json.dumps({"outputs": [{"name": "y", "data": ["well"] * len(X)}]}).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(document)}\r\n\r\n".encode()
            return self.wfile.write(2 * (head + document))
        if name == "broken":
            return self._send({"error": "no"}, 500)
        if name == "picky" and (X[:, 1] > 0).any():
            return self._send({"error": "no such row"}, 400)
        cut = float(name) / 10 if name.isdecimal() else 0.0
        labels = ["ill" if value > cut else "well" for value in X[:, 0]]
        return self._send({"outputs": [{"name": "y", "shape": [len(X)], "datatype": "BYTES", "data": labels}]})

    def _send(self, document, status=200):
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    pytest.importorskip("httpx", reason="httpx is not installed")
    served = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    served.asked, served.wait = [], threading.Event()
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield served
    served.wait.set()
    served.shutdown()
    served.server_close()
    thread.join()


def address(server, name):
    return f"http://127.0.0.1:{server.server_address[1]}/v2/models/{name}"


def endpoints(server, names, **options):
    urls = [address(server, name) for name in names]
    return EndpointTeachers(urls, labels=["ill", "well"], features=2, **options)


def test_servers_vote_each_by_itself_and_failures_stay_with_one(server):
    X = np.random.default_rng(0).normal(size=(20, 2))
    names = ["0", "5", "broken", "slow", "picky", "9"]
    for rows in (1, 256):
        teachers = endpoints(server, names, call_rows=rows, seconds=3.0)  # a busy machine took longer than 0.3
        ballots = teachers.ballots(X)
        for place, cut in ((0, 0.0), (1, 0.5), (5, 0.9)):
            assert (ballots[:, place] == (X[:, 0] <= cut)).all()
        assert (ballots[:, 2] == 0).all()  # the class of their places
        assert (ballots[:, 3] == 1).all()
        assert (ballots[:, 4] == np.where(X[:, 1] > 0, 0, X[:, 0] <= 0)).all()  # it refuses some rows, and those alone
        teachers.close()
    assert server.asked.count("slow") == 2, "once in each batch"


def test_what_one_server_leaves_on_its_connection_is_read_by_no_other_teacher(server, monkeypatch):
    """Connections are kept; one that two teachers of a host shared would carry what the first says beyond its reply."""
    monkeypatch.setattr(Models, "protocol_version", "HTTP/1.1")
    X = np.full((1, 2), 9.0)
    for _ in range(20):
        teachers = endpoints(server, ["rude", "0", "1", "2"], seconds=5.0)
        monkeypatch.setattr("quorate.compute.ensemble.electorate._AT_ONCE", 1)  # one after the other
        assert teachers.ballots(X)[0, 1:].tolist() == [0, 0, 0]
        teachers.close()


def test_an_answer_without_an_end_is_none(server, monkeypatch):
    monkeypatch.setattr("quorate.compute.ensemble.electorate._LARGEST", 2000)
    teachers = endpoints(server, ["0", "endless"])
    assert teachers.ballots(np.full((1, 2), 9.0)).tolist() == [[0, 1]]
    teachers.close()


def test_a_proxy_of_the_environment_is_not_told_what_goes_to_the_loopback(server, monkeypatch):
    monkeypatch.setenv("QUORATE_TEACHERS_KEY", "secret")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    teachers = endpoints(server, ["0", "5"])
    assert teachers.silent_on(PUBLIC) == 0
    teachers.close()


def test_a_model_of_servers_is_saved_by_addresses_and_goes_on(server, tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    urls = [address(server, str(place)) for place in range(120)]
    made = PrivateClassifier.from_teachers(urls, classes=["ill", "well"], public=PUBLIC, call_rows=256, **SETTINGS)
    folder = save(made, tmp_path / "model")
    assert made.predict([[20.0, 0.0]]).tolist() == ["ill"]
    made.session_.close()
    loaded = load(folder)
    assert loaded.predict([[20.0, 0.0], [-1.0, 0.0]]).tolist() == ["ill", "well"]
    assert loaded.claim_ == made.claim_
    assert "estimator.skops" not in {path.name for path in folder.iterdir()}
    loaded.session_.close()


def test_a_key_does_not_cross_a_network_in_the_clear(monkeypatch):
    pytest.importorskip("httpx", reason="httpx is not installed")
    monkeypatch.setenv("QUORATE_TEACHERS_KEY", "secret")
    with pytest.raises(InvalidInput, match="readable on the way"):
        as_electorate(["http://one.example.org/v2/models/m"], labels=[0, 1], public=PUBLIC)
