"""Models of every kind in folders: the contract that they keep to, and published models behind HTTP."""

import asyncio
import errno
import json
import os
from importlib import import_module

import numpy as np
import pytest
from model_contract import check_model, closed
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from quorate import (
    AgnosticClassifier,
    ConformalClassifier,
    EverlastingClassifier,
    InvalidInput,
    PrivateClassifier,
    PrivateLogisticRegression,
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
from quorate.cli import main
from quorate.models.concepts import Box, Boxes, Finite, Thresholds
from quorate.models.saving import PrivateFolder, PublishedFolder, contract, folder
from quorate.models.saving.folder import open_private
from quorate.models.students import QueryReleaseClassifier
from quorate.tables import Number, Schema

X = np.random.default_rng(0).normal(size=(6000, 1))
Y = np.where(X[:, 0] > 0, "yes", "no")
PUBLIC = np.random.default_rng(1).normal(size=(200, 1))
QUERIES = [[3.0], [-3.0]]
SETTINGS = {"epsilon": 30.0, "delta": 1e-6, "teachers": 60, "queries": 40, "classes": ["no", "yes"]}


def student(**more):
    made = StudentClassifier(LogisticRegression(), **SETTINGS | {"aggregator": "noisy_max"} | more)
    return made.fit(X, Y, public=None if more.get("mode") == "label-private" else PUBLIC)


def hypothesis(kind=SemiPrivateClassifier, **more):
    return kind(Thresholds(), epsilon=20.0, classes=["no", "yes"], **more).fit(X, Y, public=PUBLIC)


VOTES = {"epsilon": 20.0, "queries": 10, "teachers": 60}
BALLOTS = {"epsilon": 20.0, "ballots": 5, "teachers": 60}


def student_first(student):
    target = {"epsilon": 8.0, "delta": 1e-8, "teachers": 200, "dissents": 5, "no_quorums": 2}
    return StudentFirstClassifier(student, classes=["no", "yes"], **target).fit(X, Y)


def concept(kind, **settings):
    return kind(Thresholds(), classes=["no", "yes"], **settings).fit(X, Y)


def switched(made):
    made.predict(np.linspace(-3, 3, 5)[:, np.newaxis], caller="another")
    assert made.switched_
    return made


KINDS = {
    "noisy max": (
        "classifier", PrivateFolder, lambda: PrivateClassifier(aggregator="noisy_max", **SETTINGS).fit(X, Y)
    ),
    "trees and a quorum": (
        "classifier",
        PrivateFolder,
        lambda: PrivateClassifier(
            DecisionTreeClassifier(max_depth=2), aggregator="quorum", no_quorums=2, **SETTINGS
        ).fit(X, Y),
    ),
    "scores": (
        "classifier",
        PrivateFolder,
        lambda: PrivateClassifier(
            scores=True, holdout=0.2, prior={"yes": 0.5, "no": 0.5}, class_weight={"yes": 2, "no": 1}, **SETTINGS
        ).fit(X, Y),
    ),
    "everlasting": (
        "everlasting",
        PrivateFolder,
        lambda: EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=20).fit(X, Y),
    ),
    "student first": ("student first", PrivateFolder, lambda: student_first(LogisticRegression().fit(X, Y))),
    "agnostic": ("agnostic", PrivateFolder, lambda: concept(AgnosticClassifier, epsilon=12.0, queries=40, teachers=60)),
    "universal": ("universal", PrivateFolder, lambda: concept(UniversalClassifier, **BALLOTS)),
    "stable": ("stable", PrivateFolder, lambda: concept(StableClassifier, gamma=0.1)),
    "pure": ("pure", PrivateFolder, lambda: concept(PureClassifier, epsilon=400.0, queries=10)),
    "student": ("student", PublishedFolder, student),
    "tree as student": (
        "student", PublishedFolder, lambda: student(student=DecisionTreeClassifier(), mode="label-private")
    ),
    "student of a stability test": (
        "student", PublishedFolder, lambda: student(aggregator="stability", no_quorums=5, teachers=200)
    ),
    "semi-private": ("published hypothesis", PublishedFolder, hypothesis),
    "query release classifier": (
        "published hypothesis", PublishedFolder, lambda: hypothesis(QueryReleaseClassifier, delta=1e-6)
    ),
    "linear": (
        "linear model",
        PublishedFolder,
        lambda: PrivateLogisticRegression(epsilon=4.0, classes=["no", "yes"]).fit(X, Y, public=PUBLIC),
    ),
    "sets": ("conformal", PublishedFolder, lambda: ConformalClassifier(LogisticRegression().fit(X, Y), 8.0).fit(X, Y)),
    "sets over a student": ("conformal", PublishedFolder, lambda: ConformalClassifier(student(), 8.0).fit(X, Y)),
    "release": ("query release", PublishedFolder, lambda: QueryRelease(Boxes(1), epsilon=4.0).fit(X, PUBLIC)),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_keeps_the_contract(name, tmp_path):
    kind, access, fit = KINDS[name]
    table = tmp_path / "queries.csv"
    table.write_text("query\n0.5:\n:-0.5\n" if name == "release" else "x\n3.0\n-3.0\n")
    answers = check_model(fit(), tmp_path / "model", kind=kind, access=access, queries=QUERIES, table=table)
    if name == "release":
        shares = [row["answer"] for row in answers]
        assert shares == pytest.approx([(X > 0.5).mean(), (X < -0.5).mean()], abs=0.05)  # the cover's own error
    else:
        assert answers == ["yes", "no"]


OTHERS = {
    "hypothesis first": lambda: student_first(hypothesis()),
    "published student first": lambda: student_first(student()),
    "linear model first": lambda: student_first(
        PrivateLogisticRegression(epsilon=4.0, classes=["no", "yes"]).fit(X, Y, public=PUBLIC)
    ),
    "agnostic noisy max": lambda: concept(AgnosticClassifier, **VOTES, aggregator="noisy_max"),
    "universal that has chosen": lambda: switched(concept(UniversalClassifier, **BALLOTS)),
    "pure relabelling": lambda: concept(PureClassifier, epsilon=300.0, method="relabel", queries=6),
    "pure realizable": lambda: concept(PureClassifier, epsilon=40.0, method="realizable", queries=10, teachers=60),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_come_back(name, tmp_path):
    """What was asked before saving is remembered, and what is asked after loading is answered and paid for."""
    made = OTHERS[name]()
    first = made.predict(QUERIES).tolist()
    claim, spent = made.claim_, made.spent_epsilon()
    loaded = load(save(made, tmp_path / "model"))
    assert loaded.predict(QUERIES).tolist() == first == ["yes", "no"]
    assert (loaded.claim_, loaded.spent_epsilon()) == (claim, spent)
    assert loaded.predict([[2.5], [-2.5]]).tolist() == ["yes", "no"]
    assert spent <= loaded.spent_epsilon() <= loaded.epsilon_
    if isinstance(made, UniversalClassifier):
        assert loaded.hypothesis_ == made.hypothesis_
        assert loaded.spent_epsilon() == spent
    made.session_.close()
    closed(loaded)


def test_a_published_student_holds_no_private_row_and_no_teacher(tmp_path):
    canary = 8765.4321000001
    rows = np.append(X, [[canary]] * 3, axis=0)
    made = StudentClassifier(DecisionTreeClassifier(), LogisticRegression(), aggregator="noisy_max", **SETTINGS)
    folder = save(made.fit(rows, np.append(Y, ["yes"] * 3), public=PUBLIC), tmp_path / "model")
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert np.float64(canary).tobytes() not in content
    assert b"8765.43" not in content
    assert b"DecisionTree" not in content  # what the teachers were


def test_models_that_cannot_be_kept_say_so(tmp_path):
    class Mine(PrivateClassifier):
        """It would come back as another class."""

    with pytest.raises(InvalidInput, match="a Mine cannot be saved"):
        save(Mine(aggregator="noisy_max", **SETTINGS).fit(X, Y), tmp_path / "model")
    own = Finite([lambda X: X[:, 0] > 0, lambda X: X[:, 0] > 1], features=1)
    for made in (
        StableClassifier(own, gamma=0.5).fit(X, Y),
        AgnosticClassifier(own, epsilon=12.0, queries=4, teachers=60).fit(X, Y),
    ):
        with pytest.raises(InvalidInput, match="a model of Finite cannot be written to a file"):
            save(made, tmp_path / "model")
        assert made.predict(QUERIES).tolist() == ["yes", "no"]  # it goes on in memory
    paper = AgnosticClassifier(Thresholds(), epsilon=20.0, teachers=60, queries=4, aggregator="stability")
    with pytest.raises(InvalidInput, match="redraws its threshold and cannot be kept in a file"):
        save(paper.fit(X, Y), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_private_folder_that_could_not_be_written_can_be_used_again(tmp_path, monkeypatch):
    whole, written = folder.write_new, []

    def full(path, content, **options):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        whole(path, content, **options)

    monkeypatch.setattr(folder, "write_new", full)
    made = PrivateClassifier(aggregator="noisy_max", **SETTINGS).fit(X, Y)
    with pytest.raises(InvalidInput, match="No space left on device; nothing of it is there, and a classifier in mem"):
        save(made, tmp_path / "model")
    assert written
    assert not any((tmp_path / "model").iterdir())
    monkeypatch.undo()
    save(made, tmp_path / "model")


def test_a_private_folder_that_somebody_else_writes_at_once_keeps_what_is_theirs(tmp_path, monkeypatch):
    whole, taken = folder.write_new, tmp_path / "model" / "teachers.npz"

    def meanwhile(path, content, **options):
        if path.name == taken.name:
            taken.write_text("theirs")
        whole(path, content, **options)

    monkeypatch.setattr(folder, "write_new", meanwhile)
    made = PrivateClassifier(aggregator="noisy_max", **SETTINGS).fit(X, Y)
    with pytest.raises(InvalidInput, match="File exists"):
        save(made, tmp_path / "model")
    assert [path.name for path in taken.parent.iterdir()] == [taken.name]
    assert taken.read_text() == "theirs"


def test_a_kind_that_is_not_known_is_refused(tmp_path):
    folder = save(hypothesis(), tmp_path / "model")
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"published hypothesis"', '"poem"'))
    with pytest.raises(InvalidInput, match="names the kind 'poem', which this version does not know"):
        load(folder)
    for broken, message in (
        (text.replace("SemiPrivateClassifier", "PrivateClassifier"), "does not know"),
        (text.replace('"candidates"', '"candidate"'), "damaged"),
        (text.replace('"format": 1', '"format": 2'), "has format 2; this version reads 1"),
    ):
        (folder / "manifest.json").write_text(broken)
        with pytest.raises(InvalidInput, match=message):
            load(folder)


def test_every_class_of_a_kind_stands_where_a_folder_looks_for_it():
    """A kind is found by its package alone: whoever loads a folder has imported nothing of it."""
    packages = {kind: import_module(package) for kind, package in contract._PACKAGES.items()}
    for package in packages.values():
        for name in package.__all__:
            getattr(package, name)  # some are imported when they are asked for
    for name, known in contract._CLASSES.items():
        assert getattr(packages[known.kind], name) is known
    assert {known.kind for known in contract._CLASSES.values()} == set(packages)


def test_extra_files_are_no_part_of_a_model(tmp_path):
    """A file that travels with a model is never read as a part of it, whatever its name is."""
    folder = save(hypothesis(), tmp_path / "model", extra={"student.skops": b"mine", "teachers.json": b"{"})
    assert load(folder).predict(QUERIES).tolist() == ["yes", "no"]
    assert (folder / "student.skops").read_bytes() == b"mine"


def test_a_published_model_has_no_ledger(tmp_path, capsys):
    folder = save(hypothesis(), tmp_path / "model")
    with pytest.raises(InvalidInput, match="it has no ledger, and anybody may ask it"):
        open_private(folder)
    assert main(["keys", "add", str(folder), "alice"]) == 1
    assert main(["ledger", "show", str(folder)]) == 1
    assert capsys.readouterr().err.count("it has no ledger, and anybody may ask it") == 2


# Behind HTTP.


def test_published_models_are_served_to_everybody_and_private_ones_to_those_with_a_key(tmp_path):
    pytest.importorskip("uvicorn", reason="the server's packages are not installed")
    from quorate.service import Settings
    from quorate.service._app import make_app
    from quorate.service._worker import open_models
    from support.service_client import call, features, running

    schema = Schema({"x": Number()}).to_json().encode()
    folders = {
        "student": save(student(), tmp_path / "student"),
        "rule": save(hypothesis(), tmp_path / "rule", extra={"schema.json": schema}),
        "private": save(KINDS["noisy max"][2](), tmp_path / "private"),
    }
    claims = {name: load(folders[name]).claim_ for name in ("student", "rule")}
    settings = Settings(models={name: str(folder) for name, folder in folders.items()}, pace_ms=0, workers=1)
    rule = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP64", "data": [3.0, -3.0]}]}

    async def work():
        app = make_app(open_models(settings), settings)
        async with running(app):
            asked = await call(app, "POST", "/v2/models/student/infer", features(*QUERIES))
            ruled = await call(app, "POST", "/v2/models/rule/infer", json.dumps(rule).encode())
            wrong = await call(app, "POST", "/v2/models/student/infer", features([1.0, 2.0]))
            about = [await call(app, "GET", f"/v2/models/{name}") for name in claims]
            others = [
                await call(app, "POST", "/v2/models/private/infer", features(*QUERIES)),
                await call(app, "GET", "/budget/student"),
                await call(app, "GET", "/"),
                await call(app, "GET", "/metrics"),
            ]
            return asked, ruled, wrong, about, others

    asked, ruled, wrong, about, others = asyncio.run(work())
    for reply in (asked, ruled):
        outputs = {output["name"]: output["data"] for output in reply.json["outputs"]}
        assert outputs["label"] == ["yes", "no"]
        assert outputs["outcome"] == ["answered", "answered"]
    assert (wrong.status, wrong.code) == (400, "bad_tensor")
    assert [one.json["parameters"]["claim"] for one in about] == list(claims.values())
    assert [one.status for one in others] == [401, 403, 401, 401]


def test_a_release_is_served_to_everybody(tmp_path):
    pytest.importorskip("uvicorn", reason="the server's packages are not installed")
    from quorate.service import Settings
    from quorate.service._app import make_app
    from quorate.service._worker import open_models
    from support.service_client import call, running

    made = KINDS["release"][2]()
    settings = Settings(models={"m": str(save(made, tmp_path / "release"))}, pace_ms=0)
    asked = [Box((0.5,), (np.inf,)), Box((-np.inf,), (-0.5,)), Box((1e9,), (2e9,))]

    def request(*texts, outputs=None):
        tensor = {"name": "query", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
        return json.dumps({"inputs": [tensor], **({"outputs": outputs} if outputs else {})}).encode()

    async def work():
        app = make_app(open_models(settings), settings)
        async with running(app):
            path = "/v2/models/m/infer"
            told = await call(app, "POST", path, request("0.5:", ":-0.5", "1e9:2e9"))
            wrong = [await call(app, "POST", path, request(text)) for text in ("", "1", "2:1", "0:1,0:1")]
            label = await call(app, "POST", path, request(":", outputs=[{"name": "label"}]))
            return told, wrong, label, await call(app, "GET", "/v2/models/m")

    told_, wrong, label, about = asyncio.run(work())
    outputs = {output["name"]: output["data"] for output in told_.json["outputs"]}
    expected = made.answer(asked).to_pydict()
    assert outputs["answer"] == expected["answer"]
    assert outputs["error"] == [-1.0 if error is None else error for error in expected["error"]]
    assert [(one.status, one.code) for one in wrong] == [(400, "invalid_input")] * 4
    assert (label.status, label.code) == (400, "bad_request")
    assert about.json["parameters"]["claim"] == made.claim_
