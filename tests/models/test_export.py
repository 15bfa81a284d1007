"""Published models for other programs: an ONNX file says the same labels, a card states the guarantee."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import quorate as qr
from quorate.cli import main
from quorate.models.concepts import Boxes, Conjunctions, Halfspaces, Intervals, Thresholds
from quorate.models.export import to_onnx, write_card
from quorate.models.students.points import Labelled
from quorate.tables import Schema, read_table
from quorate.tables.features import AdditiveColumns

DRAW = np.random.default_rng(0)
X, PUBLIC, NEW = DRAW.normal(size=(4000, 2)), DRAW.normal(size=(500, 2)), 2 * DRAW.normal(size=(10_000, 2))
Y = np.where(X[:, 0] + abs(X[:, 1]) > 1, "yes", "no")
GAPS = np.where(DRAW.uniform(size=NEW.shape) < 0.05, np.nan, NEW)


@pytest.fixture
def runtime():
    pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
    return pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


def asked(runtime, model, feed):
    """Return what the exported file says, by the names of its outputs."""
    session = runtime.InferenceSession(to_onnx(model))
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feed), strict=True))


def same(runtime, model, rows, feed=None):
    """Return whether labels are equal, all of them, and probabilities to the last digits."""
    said = asked(runtime, model, {"X": rows} if feed is None else feed)
    if "probabilities" in said:
        assert np.allclose(said["probabilities"], model.predict_proba(rows), rtol=1e-12, atol=1e-12)
    return np.array_equal(said["label"], model.predict(rows))


def named(rows):
    """Return rows as a frame with a column of texts."""
    sex = np.where(rows[:, 1] > 0.5, "f", np.where(rows[:, 1] < -1, "x", "m"))
    return pd.DataFrame({"age": rows[:, 0], "sex": sex})


def test_linear_models_say_the_same_labels_with_all_their_columns(runtime):
    both = {"classes": ["no", "yes"]}
    gaps = np.where(DRAW.uniform(size=PUBLIC.shape) < 0.1, np.nan, PUBLIC)
    every = AdditiveColumns(crosses=[(0, 1)], waves=16)
    for model, y in (
        (qr.PrivateLogisticRegression(**both), Y),
        (qr.PrivateLogisticRegression(epsilon=8.0, columns=every, classes=[0, 1, 2]), np.digitize(X[:, 0], [-1, 1])),
        (qr.PrivateLogisticRegression(epsilon=8.0), np.c_[X[:, 0] > 0, X[:, 1] > 0].astype(int)),
        (qr.PrivateLogisticRegression(columns=AdditiveColumns(cuts=1), **both), Y),
    ):
        assert same(runtime, model.fit(X, y, public=gaps), GAPS)
    columns = AdditiveColumns(crosses=[("age", "sex")])
    model = qr.PrivateLogisticRegression(columns=columns, **both).fit(named(X), Y, public=named(PUBLIC))
    rows = named(GAPS)
    feed = {"age": rows[["age"]].to_numpy(), "sex": rows[["sex"]].to_numpy().astype(object)}
    assert same(runtime, model, rows, feed)


def test_regressions_say_the_same_values(runtime):
    for model, y in (
        (qr.PrivateLinearRegression(bounds=(-5, 5)), 2 * X[:, 0]),
        (qr.PrivatePoissonRegression(largest=20), DRAW.poisson(np.exp(X[:, 0]))),
    ):
        fitted = model.fit(X, y, public=PUBLIC)
        said = asked(runtime, fitted, {"X": NEW})["value"]
        assert np.allclose(said, fitted.predict(NEW), rtol=1e-12)


@pytest.mark.parametrize(
    ("concept", "labels", "settings"),
    [
        (None, [0, 1], {}),
        (Halfspaces(2), [0, 1], {"points": 40}),
        (Boxes(2), [False, True], {"points": 20}),
        (Thresholds(), [0.0, 1.0], {}),
        (Intervals(), ["in", "out"], {"points": 100}),
    ],
)
def test_hypotheses_say_the_same_labels_also_on_their_own_edges(runtime, concept, labels, settings):
    width = 1 if isinstance(concept, Thresholds | Intervals) else 2
    y = np.array(labels)[(X[:, 0] > 0.3).astype(int)]
    rule = qr.SemiPrivateClassifier(concept, epsilon=8.0, classes=labels, **settings)
    rule.fit(X[:, :width], y, public=PUBLIC[:, :width])
    beside = [] if isinstance(concept, Halfspaces) else [np.nextafter(PUBLIC, 9), np.nextafter(PUBLIC, -9)]
    rows = np.vstack([NEW, PUBLIC, *beside])[:, :width]  # a row nearer to a plane than sums are exact counts as on it
    assert same(runtime, rule, np.ascontiguousarray(rows))


def test_conjunctions_say_the_same_labels(runtime):
    rows = DRAW.integers(0, 3, size=(10_000, 3)).astype(float)
    y = ((rows[:, 0] == 1) & (rows[:, 2] == 0)).astype(int)
    rule = qr.SemiPrivateClassifier(Conjunctions([3, 3, 3]), epsilon=8.0, classes=[0, 1]).fit(rows, y, public=rows[:60])
    assert same(runtime, rule, rows)


def student_of(estimator, y=Y):
    """A student that was trained on so many released labels."""
    model = qr.StudentClassifier(
        student=estimator, epsilon=20.0, teachers=50, queries=300, classes=np.unique(y).tolist()
    )
    return model.fit(X, y, public=PUBLIC)


@pytest.mark.parametrize("estimator", [
    LogisticRegression(),
    RidgeClassifier(),
    GaussianNB(),
    make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler(), LogisticRegression()),
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(15, min_samples_leaf=3, random_state=0),
    ExtraTreesClassifier(10, random_state=0),
], ids=lambda estimator: type(estimator).__name__)  # fmt: skip
def test_students_say_the_same_labels(runtime, estimator):
    student = student_of(estimator)
    rows = NEW.copy()
    trees = getattr(student.student_, "estimators_", [student.student_])
    cuts = np.concatenate(
        [one.tree_.threshold[one.tree_.feature == 0] for one in trees if hasattr(one, "tree_")] or [[]]
    )
    edges = np.concatenate([cuts, np.nextafter(cuts, 9), np.nextafter(cuts, -9)])[: len(rows)]
    rows[: len(edges), 0] = edges  # of which 64 bits tell more apart than the 32 that scikit-learn's trees see
    assert same(runtime, student, rows)


def test_a_threshold_in_32_bits_would_say_another_label(runtime):
    """Why numbers have 64 bits: the row next to the cut would fall to the other side."""
    rule = qr.SemiPrivateClassifier(epsilon=8.0, classes=[0, 1]).fit(X, (X[:, 0] > 0.3).astype(int), public=PUBLIC)
    cut, upward = rule.hypothesis_.cut, rule.hypothesis_.upward
    edge = np.full((1, 2), np.nextafter(cut, -9))
    assert (
        int((np.float32(edge[0, 0]) >= np.float32(cut)) == upward) != rule.predict(edge)[0]
    )  # once in 2**29 it is not
    assert same(runtime, rule, edge)


def test_a_file_says_what_is_claimed(runtime):
    model = qr.PrivateLogisticRegression(classes=["no", "yes"]).fit(X, Y, public=PUBLIC)
    facts = runtime.InferenceSession(to_onnx(model)).get_modelmeta().custom_metadata_map
    assert facts["claim"] == model.claim_
    assert json.loads(facts["classes"]) == ["no", "yes"]
    search = qr.PrivateSearchCV([qr.PrivateLogisticRegression(classes=["no", "yes"])], epsilon=2.0)
    found = runtime.InferenceSession(to_onnx(search.fit(X, Y, public=PUBLIC))).get_modelmeta()
    assert "the best of private trials" in found.custom_metadata_map["claim"]


def test_what_would_say_other_labels_or_is_private_is_refused(runtime):
    private = qr.PrivateClassifier(epsilon=8.0, teachers=50, queries=10, classes=["no", "yes"]).fit(X, Y)
    with pytest.raises(qr.InvalidInput, match="must stay with its budget"):
        to_onnx(private)
    with pytest.raises(qr.InvalidInput, match="a student of type HistGradientBoostingClassifier"):
        to_onnx(student_of(HistGradientBoostingClassifier(max_iter=5)))
    with pytest.raises(qr.InvalidInput, match="a student of type Pipeline"):
        to_onnx(student_of(make_pipeline(StandardScaler(), DecisionTreeClassifier())))
    texts = pd.DataFrame({"note": np.where(X[:, 0] > 0, "has a fever", "has a cold and a cough")})
    words = AdditiveColumns(declared={"note": "text"})
    model = qr.PrivateLogisticRegression(columns=words, classes=["no", "yes"]).fit(texts, Y)
    with pytest.raises(qr.InvalidInput, match="no operator that hashes words"):
        to_onnx(model)


# Cards.


def saved(tmp_path, model):
    return qr.save(model, tmp_path / "model")


@pytest.mark.parametrize("model", [
    qr.PrivateLinearRegression(bounds=(0, 1)),
    qr.SemiPrivateClassifier(classes=["no", "yes"]),
    qr.StudentClassifier(student=LogisticRegression(), epsilon=20.0, teachers=50, queries=100, classes=["no", "yes"]),
], ids=lambda model: type(model).__name__)  # fmt: skip
def test_a_card_states_the_guarantee_and_the_model_comes_back_both_ways(tmp_path, model):
    y = (X[:, 0] > 0).astype(float) if isinstance(model, qr.PrivateLinearRegression) else Y
    model.fit(X, y, public=PUBLIC)
    card = write_card(saved(tmp_path, model), tmp_path / "hub", license="cc-by-4.0")
    text = (card / "README.md").read_text()
    head = dict(re.findall(r"^(\w+): (.*)$", text.split("---")[1], re.MULTILINE))
    assert {name: json.loads(value) for name, value in head.items()} == {
        "license": "cc-by-4.0",
        "library_name": "quorate",
        "pipeline_tag": (task := f"tabular-{'regression' if hasattr(model, 'bounds') else 'classification'}"),
        "tags": ["quorate", "sklearn", "skops", "differential-privacy", task],
        "metrics": [],
    }
    flat = re.sub(r"\s+", " ", text)
    assert f"{model.claim_[0].upper()}{model.claim_[1:]}." in flat
    assert "Anybody." in flat
    assert "costs no further privacy" in flat
    types = re.findall(r"trusted=(\[.*?\])", text)
    assert bool(types) != isinstance(model, qr.StudentClassifier)  # a student is scikit-learn's own
    loaded = skops.io.load(card / "published.skops", trusted=json.loads(types[0].replace("'", '"')) if types else None)
    for again in (loaded, qr.load(card)):
        assert np.array_equal(again.predict(NEW), model.predict(NEW))
    assert not any(isinstance(value, Labelled) for value in vars(loaded).values())  # nor anything else of the fit


def test_the_command_writes_both_and_refuses_what_is_private(tmp_path, capsys, runtime):
    model = qr.PrivateLogisticRegression(classes=["no", "yes"]).fit(X, Y, public=PUBLIC)
    folder = str(saved(tmp_path, model))
    command = ["export", folder, "--onnx", str(tmp_path / "model.onnx"), "--card", str(tmp_path / "card"), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["claim"] == model.claim_
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert np.array_equal(session.run(["label"], {"X": NEW})[0], model.predict(NEW))
    assert (tmp_path / "card" / "README.md").exists()
    for arguments, text in (
        ([folder], "nothing to write"),
        ([folder, "--card", folder], "is not an empty folder"),
        ([folder, "--onnx", str(tmp_path)], "it is a folder"),
    ):
        assert main(["export", *arguments]) == 1
        assert text in capsys.readouterr().err


def test_a_model_of_the_command_line_takes_rows_as_its_schema_encodes_them(tmp_path, runtime):
    rows = named(X).assign(answer=Y)
    for name, part in (("private", rows), ("public", named(PUBLIC)), ("new", named(NEW))):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    folder, file = tmp_path / "model", tmp_path / "model.onnx"
    fit = [
        "fit",
        "linear",
        str(tmp_path / "private.csv"),
        "--public",
        str(tmp_path / "public.csv"),
        "--label",
        "answer",
    ]
    assert main([*fit, "--classes", "no,yes", "--out", str(folder), "--json"]) == 0
    assert main(["export", str(folder), "--onnx", str(file), "--json"]) == 0
    session = runtime.InferenceSession(file)
    schema = Schema.from_bytes(session.get_modelmeta().custom_metadata_map["schema"].encode(), "schema.json")
    encoded = schema.encode(read_table(tmp_path / "new.csv", role="query"))
    assert np.array_equal(session.run(["label"], {"X": encoded})[0], qr.load(folder).predict(encoded))


def test_a_private_folder_and_a_release_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    private = qr.PrivateClassifier(epsilon=8.0, teachers=50, queries=10, classes=["no", "yes"]).fit(X, Y)
    qr.save(private, tmp_path / "private")
    release = qr.QueryRelease(Thresholds()).fit(X[:, 0], PUBLIC[:, 0])
    qr.save(release, tmp_path / "release")
    for name, text in (("private", "is private: it holds teachers"), ("release", "is a table of answers")):
        for option in ("--card", "--onnx"):
            assert main(["export", str(tmp_path / name), option, str(tmp_path / "out")]) == 1
            assert text in capsys.readouterr().err
            assert not (tmp_path / "out").exists()


def test_a_changed_model_is_not_exported(tmp_path):
    model = qr.PrivateLinearRegression(bounds=(0, 1)).fit(X, X[:, 0] > 0, public=PUBLIC)
    folder = saved(tmp_path, model)
    (folder / "GUARANTEE.md").write_text("epsilon is 0")
    with pytest.raises(qr.InvalidInput, match="was changed"):
        write_card(folder, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


# MLflow.


@pytest.mark.filterwarnings("ignore")  # of MLflow
def test_mlflow_keeps_published_models_alone(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    import mlflow

    from quorate.models import mlflow as flavour

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
    model = qr.PrivateLogisticRegression(classes=["no", "yes"]).fit(named(X), Y, public=named(PUBLIC))
    flavour.save_model(model, tmp_path / "kept")
    rows = named(NEW[:100])
    assert np.array_equal(mlflow.pyfunc.load_model(str(tmp_path / "kept")).predict(rows), model.predict(rows))
    again = flavour.load_model(str(tmp_path / "kept"))
    assert again.claim_ == model.claim_
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert mlflow.models.Model.load(str(tmp_path / "kept")).metadata["quorate"]["claim"] == model.claim_
    with mlflow.start_run():
        logged = flavour.log_model(tmp_path / "kept" / "data" / "model", "risk")
    assert flavour.load_model(logged.model_uri).claim_ == model.claim_
    private = qr.PrivateClassifier(epsilon=8.0, teachers=50, queries=10, classes=["no", "yes"]).fit(X, Y)
    online = qr.OnlineRelease(Thresholds(), epsilon=1.0).fit(X[:, 0], PUBLIC[:, 0])
    for answering in (private, online):
        with pytest.raises(qr.InvalidInput, match="each copy that is handed out would spend it again"):
            flavour.save_model(answering, tmp_path / "private")
    assert private.predict(X[:1]).answered.all()  # from the budget in memory, which was not moved
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    qr.save(private, tmp_path / "folder")
    with pytest.raises(qr.InvalidInput, match="is private"):
        flavour.save_model(tmp_path / "folder", tmp_path / "private")
    assert not (tmp_path / "private").exists()


def test_without_mlflow_it_is_said_how_to_install_it(tmp_path, monkeypatch):
    from quorate.models import mlflow as flavour

    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    monkeypatch.setitem(__import__("sys").modules, "mlflow.pyfunc", None)
    with pytest.raises(qr.InvalidInput, match=r"pip install '.*\[mlflow\]'"):
        flavour.save_model(qr.SemiPrivateClassifier(), tmp_path / "kept")  # before anything else is looked at


def test_without_onnx_it_is_said_how_to_install_it(monkeypatch):
    model = qr.PrivateLogisticRegression(classes=["no", "yes"]).fit(X, Y, public=PUBLIC)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(qr.InvalidInput, match=r"pip install '.*\[onnx\]'"):
        to_onnx(model)
