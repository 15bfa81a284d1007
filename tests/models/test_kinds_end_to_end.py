"""Every kind of model from fit to SIGKILL: saved, asked by the command line in another process, served over HTTP to a
stock client, killed in the middle of traffic, served again. The same request gets the same answer, and no budget is
overspent.

All kinds go through one scenario together, which starts three processes; the tests then look at what came of each kind.
To add a kind, add it to `KINDS`.
"""

import json
import signal
import threading
import time
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from quorate import (
    AgnosticClassifier,
    ConformalClassifier,
    EverlastingClassifier,
    NeighbourClassifier,
    PrivateClassifier,
    PureClassifier,
    QueryRelease,
    SemiPrivateClassifier,
    StableClassifier,
    StudentClassifier,
    StudentFirstClassifier,
    UniversalClassifier,
    load,
    save,
)
from quorate.core.ledger import find_ledger
from quorate.models.concepts import Boxes, Thresholds
from quorate.models.saving import PrivateFolder, open_folder
from quorate.service import Settings
from support.forked import run_forked
from support.service_client import serving

triton = pytest.importorskip("tritonclient.http", reason="the stock client is not installed")
triton_errors = pytest.importorskip("tritonclient.utils")

X = np.random.default_rng(0).normal(size=(6000, 1))
Y = np.where(X[:, 0] > 0, "yes", "no")
PUBLIC = np.random.default_rng(1).normal(size=(200, 1))
CLASSES = ["no", "yes"]
SURE = [[3.0], [-3.0]]  # every model is sure of its answers to these
SHARES = {}  # of the model with scores: what was told of each query, before and after the kill
TRAFFIC = 4  # answers of each private model before the server is killed


def wrong_student():
    """Return a published student that is wrong between 0 and 2."""
    return LogisticRegression(C=1e6).fit(PUBLIC, np.where(PUBLIC[:, 0] > 2, "yes", "no"))


def votes(**more):
    return {"epsilon": 30.0, "delta": 1e-6, "teachers": 60, "queries": 12, "classes": CLASSES} | more


def concept(kind, **settings):
    return kind(Thresholds(), classes=CLASSES, **settings).fit(X, Y)


class Kind(NamedTuple):
    make: object
    ends: bool = False  # whether the budget ends within the queries that are asked here
    remembers: bool = True  # whether the same query of a caller is answered alike, whatever its id


KINDS = {
    "private": Kind(lambda: PrivateClassifier(aggregator="noisy_max", **votes()).fit(X, Y), ends=True),
    "scores": Kind(lambda: PrivateClassifier(scores=True, **votes()).fit(X, Y), ends=True),
    "quorum": Kind(
        lambda: PrivateClassifier(aggregator="quorum", no_quorums=2, **votes(teachers=120, epsilon=8.0)).fit(X, Y)
    ),
    "student-first": Kind(
        lambda: StudentFirstClassifier(
            wrong_student(), epsilon=8.0, delta=1e-8, teachers=200, dissents=8, no_quorums=2, classes=CLASSES
        ).fit(X, Y),
        ends=True,
    ),
    "agnostic": Kind(
        lambda: concept(AgnosticClassifier, epsilon=20.0, queries=12, teachers=60, aggregator="noisy_max"), ends=True
    ),
    "universal": Kind(lambda: concept(UniversalClassifier, epsilon=20.0, ballots=10, teachers=60)),
    "stable": Kind(lambda: concept(StableClassifier, gamma=0.1)),
    "pure": Kind(lambda: concept(PureClassifier, epsilon=500.0, queries=12), ends=True),
    "everlasting": Kind(
        lambda: EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=20).fit(X, Y),
        remembers=False,
    ),
    "neighbours": Kind(
        lambda: NeighbourClassifier(
            epsilon=100.0, delta=1e-6, radius=1.0, votes=50.0, metric="euclidean", classes=CLASSES
        ).fit(X, Y, public=PUBLIC)
    ),
    "student": Kind(
        lambda: StudentClassifier(LogisticRegression(), aggregator="noisy_max", **votes()).fit(X, Y, public=PUBLIC)
    ),
    "semi-private": Kind(
        lambda: SemiPrivateClassifier(Thresholds(), epsilon=20.0, classes=CLASSES).fit(X, Y, public=PUBLIC)
    ),
    "sets": Kind(lambda: ConformalClassifier(LogisticRegression().fit(X[:100], Y[:100]), 8.0).fit(X[100:], Y[100:])),
    "release": Kind(lambda: QueryRelease(Boxes(1), epsilon=4.0).fit(X, PUBLIC)),
    # OnlineRelease answers shares, and ends otherwise: tests/models/test_online_kind.py takes it through the same.
}
PRIVATE = [name for name in KINDS if name not in ("student", "semi-private", "sets", "release")]

# Asks every model by the command line, in a process that has fitted none of them.
COMMAND_LINE = """
import json, sys
from quorate.cli import main
for folder in json.loads(sys.argv[1]):
    table = sys.argv[3] if folder.endswith("release") else sys.argv[2]
    code = main(["predict", folder, table, "--json"])
    sys.stdout.write(f"{code}\\n")
"""


def ask(client, name, rows, *, id=""):
    """Ask a model with the stock client, and return what it says: labels, or shares of a release."""
    if name == "release":
        texts = np.array([f"{low}:" for (low,) in rows], dtype=object)
        tensor = triton.InferInput("query", [len(rows)], "BYTES")
        tensor.set_data_from_numpy(texts)
        return client.infer(name, [tensor], request_id=id).as_numpy("answer").tolist()
    tensor = triton.InferInput("features", [len(rows), 1], "FP64")
    tensor.set_data_from_numpy(np.array(rows))
    result = client.infer(name, [tensor], request_id=id)
    if name == "scores":
        for row, shares in zip(rows, result.as_numpy("scores").tolist(), strict=True):
            SHARES.setdefault(tuple(row), []).append(shares)
    labels, outcomes = result.as_numpy("label").tolist(), result.as_numpy("outcome").tolist()
    return [label.decode() if out == b"answered" else out.decode() for label, out in zip(labels, outcomes, strict=True)]


def query(name, number):
    """Return a query that no other number has; the student is wrong about its own."""
    return [(1.0 if name == "student-first" else 3.0) + number / 1000]


def connected(server):
    return triton.InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=120, connection_timeout=120)


def send_traffic(server, name, answers, sent):
    """Ask new queries one by one until the server is gone; keep what was sent, and what was answered."""
    client = connected(server)
    for place in range(1000):
        id, row = f"{name}-{place}", query(name, place)
        sent[id] = row
        try:
            (answers[id],) = ask(client, name, [row], id=id)
        except Exception:  # its budget is spent, or the server is gone: the client has an error for each way
            return


class Story(NamedTuple):
    """What came of a kind."""

    folder: object
    by_command: list
    first: list  # over HTTP
    sent: dict  # by id, while the server was killed
    answered: dict
    again: list  # after the kill: the first queries
    resent: list  # all that was sent before, twice
    later: list  # until the budget ends


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    home = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORATE_STATE", str(home / "state"))
        folders = {name: saved(kind, home / name) for name, kind in KINDS.items()}
        by_command = asked_by_command(folders, home)
        settings = Settings(models={name: str(path) for name, path in folders.items()}, port=0, keys=False, pace_ms=0)
        with serving(settings, home / "first log") as server:
            client = connected(server)
            first = {name: ask(client, name, SURE) for name in KINDS}
            sent, answered = killed_in_traffic(server)
        with serving(settings, home / "second log") as server:
            client = connected(server)
            again = {name: ask(client, name, SURE) for name in KINDS}
            resent = {
                name: [[attempt(client, name, row, id) for id, row in sent[name].items()] for _ in range(2)]
                for name in PRIVATE
            }
            later = {
                name: [attempt(client, name, query(name, 500 + n), f"late-{n}") for n in range(40)] for name in PRIVATE
            }
        yield {
            name: Story(
                folders[name],
                by_command[name],
                first[name],
                sent.get(name),
                answered.get(name),
                again[name],
                resent.get(name),
                later.get(name),
            )
            for name in KINDS
        }


def saved(kind, folder):
    made = kind.make()
    save(made, folder)
    if hasattr(made, "session_"):
        made.session_.close()
    return folder


def asked_by_command(folders, home):
    (home / "queries.csv").write_text("x\n3.0\n-3.0\n")
    (home / "release.csv").write_text("query\n3.0:\n-3.0:\n")
    told = [json.dumps([str(path) for path in folders.values()]), str(home / "queries.csv"), str(home / "release.csv")]
    status, shown, errors = run_forked(COMMAND_LINE, *told)
    lines = shown.splitlines()
    assert (status, lines[1::2]) == (0, ["0"] * len(folders)), errors
    return {name: json.loads(line)["answers"] for name, line in zip(folders, lines[::2], strict=True)}


def killed_in_traffic(server):
    sent, answered = ({name: {} for name in PRIVATE} for _ in range(2))
    threads = [
        threading.Thread(target=send_traffic, args=(server, name, answered[name], sent[name])) for name in PRIVATE
    ]
    for thread in threads:
        thread.start()
    for name in PRIVATE:
        while len(answered[name]) < TRAFFIC:
            assert any(thread.is_alive() for thread in threads), (name, answered[name])
            time.sleep(0.01)
    server.stop(signal.SIGKILL)
    for thread in threads:
        thread.join(120)
    return sent, answered


def attempt(client, name, row, id):
    try:
        (answer,) = ask(client, name, [row], id=id)
    except triton_errors.InferenceServerException as error:
        return f"refused: {error}"
    return answer


def ledger_of(folder):
    return find_ledger(folder, fingerprint=open_folder(folder).fingerprint)


@pytest.mark.parametrize("name", KINDS)
def test_a_model_answers_everywhere_alike(name, stories):
    story = stories[name]
    if name == "release":
        told = [row["answer"] for row in story.by_command]
        assert story.first == story.again == pytest.approx(told)
        return
    assert story.by_command == story.first == story.again == ["yes", "no"]


@pytest.mark.parametrize("name", PRIVATE)
def test_what_was_sent_before_the_kill_is_answered_as_it_was(name, stories):
    """A request whose answer had left gets it again; one that was being answered is answered once."""
    story = stories[name]
    assert len(story.answered) >= TRAFFIC
    assert story.resent[0] == story.resent[1]
    resent = dict(zip(story.sent, story.resent[0], strict=True))
    assert {id: resent[id] for id in story.answered} == story.answered


@pytest.mark.parametrize("name", PRIVATE)
def test_no_budget_is_overspent(name, stories):
    story = stories[name]
    ledger, refused = ledger_of(story.folder), [one for one in story.later if one.startswith("refused")]
    assert ledger.verify().sound
    view = ledger.view()
    assert (view.spent.renyi, view.spent.slack) <= (view.capacity.renyi, view.capacity.slack)
    assert view.spent_epsilon <= view.epsilon
    assert bool(refused) == KINDS[name].ends
    model = load(story.folder)
    if KINDS[name].remembers:
        assert model.predict(SURE).tolist() == ["yes", "no"]
    if hasattr(model, "spent_epsilon"):
        assert model.spent_epsilon() <= getattr(model, "epsilon_", 0.0)  # a stable model has no epsilon
    if name == "pure":  # every answer that was kept was paid for, and a crash gave none of it back
        assert ledger.count_answers() * model.epsilon_per_query_ <= view.spent.renyi * (1 + 1e-12)
        assert ledger.count_answers() <= model.queries
    if name == "stable":
        assert view.spent.renyi == 0
        assert model.spent_delta() == min(1.0, model.stability_ * ledger.count_answers())
    model.session_.close()


def test_scores_are_the_same_before_and_after_a_kill(stories):
    assert stories["scores"].again == ["yes", "no"]
    answered = {row: told for row, told in SHARES.items() if sum(told[0])}  # zeros stand for refused
    assert len(answered) >= TRAFFIC
    assert all(one == told[0] for told in answered.values() for one in told)
    assert max(len(told) for told in answered.values()) >= 3
    assert len({tuple(told[0]) for told in answered.values()}) > 1  # they have noise


def test_the_hypothesis_of_a_universal_model_is_chosen_once(stories):
    folder = stories["universal"].folder
    model, ledger = load(folder), ledger_of(folder)
    assert Counter(entry.event.kind for entry in ledger.entries())["chosen"] == 1
    assert model.switched_
    assert model.predict([[2.7], [-2.7]]).answered.all()
    model.session_.close()


def test_a_corrected_student_remembers_its_corrections(stories):
    story = stories["student-first"]
    model = load(story.folder)
    points, labels = model.corrections_
    corrected = [story.sent[id] for id, answer in story.answered.items() if answer == "yes"]  # the student says no
    assert len(corrected) >= TRAFFIC - 2
    assert all(row in points.tolist() for row in corrected)
    assert (labels == "yes").all()
    model.session_.close()


def test_private_and_published_kinds_are_told_apart(stories):
    for name, story in stories.items():
        assert isinstance(open_folder(story.folder), PrivateFolder) == (name in PRIVATE)
