"""What is saved can be loaded; what cannot be loaded safely is refused when it is saved, with the way out."""

import ast
import csv
import io
import json
import pickle
import re
import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, LabelEncoder, SplineTransformer, StandardScaler
from sklearn.random_projection import SparseRandomProjection
from sklearn.utils import Bunch, all_estimators

from quorate import BudgetSpent, InvalidInput, PrivateClassifier, StudentClassifier, load, save
from quorate.cli import main
from quorate.models.concepts import Thresholds
from quorate.models.predictors import UniversalClassifier
from quorate.models.saving.codecs import check_loads, from_skops, to_skops
from quorate.service import Settings
from support.forked import run_forked
from support.service_client import serving

X = np.random.default_rng(0).normal(size=(1200, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")
GAPS = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
FAR = np.array([[4.0, 0.0, 0.0], [-4.0, 0.0, 0.0]])
SETTINGS = {"epsilon": 30.0, "teachers": 12, "queries": 20, "aggregator": "noisy_max", "classes": ["no", "yes"]}
SERVE = """
import sys
from quorate.cli import main
sys.exit(main(["serve", sys.argv[1], "--port", "0", "--no-keys", "--workers", sys.argv[2]]))
"""


def clean(rows):
    """A function of one's own, in a module that others can import."""
    return np.nan_to_num(rows)


class Note:
    """What a learner of one's own may keep."""

    def __init__(self):
        self.text = "fitted"


class Unpickled:
    """What leaves a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return self.path.touch, ()


class Learner(LogisticRegression):
    """A learner of one's own, which keeps something of another type where it is fitted."""

    def fit(self, X, y):
        self.note_ = Note()
        return super().fit(X, y)


def votes_of(classifier):
    """What the teachers of a model say, before any noise."""
    return classifier.session_.answerer.ensemble.electorate.votes(X[:20])


def fitted(estimator, rows=X):
    return PrivateClassifier(estimator, **SETTINGS).fit(rows, Y)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(SimpleImputer(), LogisticRegression()),
        make_pipeline(
            SelectKBest(k=2), KBinsDiscretizer(quantile_method="averaged_inverted_cdf"), LogisticRegression()
        ),
        make_pipeline(FunctionTransformer(np.tanh), LogisticRegression()),
        MLPClassifier(hidden_layer_sizes=(3,), max_iter=20),
        CalibratedClassifierCV(LogisticRegression(), cv=2, method="isotonic"),
        KNeighborsClassifier(metric="manhattan"),
        VotingClassifier([("one", LogisticRegression()), ("two", LogisticRegression(C=0.1))]),
    ],
    ids=lambda estimator: type(estimator[0] if hasattr(estimator, "steps") else estimator).__name__,
)
def test_what_is_saved_loads_without_a_word(estimator, tmp_path):
    made = fitted(estimator)
    votes = votes_of(made)
    assert np.array_equal(votes_of(load(save(made, tmp_path / "model"))), votes)


def _made(kind):
    """Return a classifier of scikit-learn with its defaults, however it wants to be made."""
    learner = LogisticRegression()
    for given in ({}, {"estimator": learner}, {"estimators": [("one", learner), ("two", learner)]}):
        try:
            return kind(**given)
        except TypeError:
            continue
    raise AssertionError(kind)


def test_every_classifier_of_scikit_learn_with_its_defaults_can_be_saved():
    rows, codes = np.abs(X[:60]), (X[:60, 0] > 0).astype(int)  # some take no negative number
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = dict(all_estimators("classifier"))
        for name in (
            "ClassifierChain",
            "MultiOutputClassifier",
            "SelfTrainingClassifier",
        ):  # of several labels, or gaps
            kinds.pop(name)
        for name, kind in kinds.items():
            made = _made(kind)
            if "n_estimators" in made.get_params():
                made.set_params(n_estimators=3)
            content = to_skops(made.fit(rows, codes))
            check_loads({"estimator.skops": content})
            assert from_skops(content).predict(rows).tolist() == made.predict(rows).tolist(), name
    assert len(kinds) >= 35


def test_a_function_of_ones_own_is_refused_where_it_is_saved_and_the_text_says_what_to_do(tmp_path):
    made = fitted(make_pipeline(FunctionTransformer(clean), LogisticRegression()), GAPS)
    folder = tmp_path / "model"
    with pytest.raises(InvalidInput, match=r"would be refused: test_saved_types\.clean") as refused:
        save(made, folder)
    assert not folder.exists()
    assert made.predict(FAR[:1]).tolist() == ["yes"]  # it goes on in memory
    named = ast.literal_eval(re.search(r"trusted=(\[.*\])", str(refused.value))[1])
    save(made, folder, trusted=named)
    with pytest.raises(InvalidInput, match=r"--trusted test_saved_types\.clean"):
        load(folder)
    assert load(folder, trusted=named).predict(FAR).tolist() == ["yes", "no"]
    queries = tmp_path / "queries.csv"
    queries.write_text("a,b,c\n4,0,\n-4,,0\n")
    answers = tmp_path / "answers.csv"
    assert main(["predict", str(folder), str(queries), "--out", str(answers)]) == 1
    assert not answers.exists()
    assert main(["predict", str(folder), str(queries), "--out", str(answers), "--trusted", ",".join(named)]) == 0
    told = csv.DictReader(answers.read_text().splitlines())
    assert [one["answer"] for one in told] == ["yes", "no"]


def test_a_refusal_names_the_types_of_all_files(tmp_path):
    named = [f"{__name__}.{kind.__name__}" for kind in (Learner, Note)]  # one is in the file of the teachers alone
    made = fitted(Learner())
    with pytest.raises(InvalidInput) as refused:
        save(made, tmp_path / "model")
    assert f"trusted={named}" in str(refused.value)
    folder = save(made, tmp_path / "model", trusted=named)
    with pytest.raises(InvalidInput) as refused:
        load(folder)
    assert f"trusted={named}" in str(refused.value)
    assert load(folder, trusted=named).predict(FAR).tolist() == ["yes", "no"]


@pytest.mark.parametrize("loader", ["ConstructorFromReduceNode", "FunctionNode", "ObjectNode", "TypeNode"])
def test_a_forged_file_cannot_name_code_to_run(loader):
    content = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
    forged = {"__class__": "system", "__module__": "os", "__loader__": loader, "content": content, "protocol": 2}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("schema.json", json.dumps(forged))
    with pytest.raises(InvalidInput, match=r"not known to be safe: os\.system"):
        from_skops(file.getvalue())


def calling(method, inner):
    """Return a forged model of known types alone, which calls a method of `inner` where it is asked."""
    stacked = StackingClassifier([("one", LogisticRegression())])
    stacked.estimators_, stacked.stack_method_, stacked.classes_ = [inner], [method], np.array([0, 1])
    stacked.final_estimator_ = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    stacked._label_encoder = LabelEncoder().fit([0, 1])
    return make_pipeline(FunctionTransformer(np.isfinite), stacked)


@pytest.mark.parametrize(
    ("forged", "named"),
    [
        (make_pipeline(StandardScaler(), StandardScaler(), memory="cache"), "pipeline.Pipeline.memory"),
        (calling("fit", LogisticRegression()), "_stacking.StackingClassifier.stack_method_"),
        (calling("tofile", np.zeros(1)), "_stacking.StackingClassifier.stack_method_"),
        (CountVectorizer(input="filename"), "text.CountVectorizer.input"),
        (GridSearchCV(FeatureUnion([]), {"one__memory": ["cache"]}), "dict.memory"),
        (FixedThresholdClassifier(LogisticRegression(), response_method="fit"), "FixedThresholdClassifier.response_"),
    ],
)
def test_a_forged_file_of_known_types_reaches_no_file_and_calls_no_method_by_name(forged, named):
    for hidden in (forged, {"fitted": [forged]}, np.array([forged, None], dtype=object), Bunch(one=(forged,))):
        content = to_skops(hidden)
        with pytest.raises(InvalidInput, match=named):
            from_skops(content)
        with pytest.raises(InvalidInput, match=named):
            check_loads({"estimator.skops": content})


def test_a_forged_cache_of_pickles_is_not_read(tmp_path):
    """Known types alone ran code: a stack called `fit` of a pipeline, whose cache held somebody's pickle."""
    inner = make_pipeline(StandardScaler(), StandardScaler(), memory=str(tmp_path / "cache"))
    model = calling("fit_transform", inner)
    content = to_skops(calling("fit_transform", inner))
    model.predict([[1.0]])
    (kept,) = (tmp_path / "cache").rglob("output.pkl")
    kept.write_bytes(pickle.dumps(Unpickled(tmp_path / "ran")))
    with pytest.raises(InvalidInput, match=r"Pipeline\.memory"):
        from_skops(content).predict([[2.0]])
    assert not (tmp_path / "ran").exists()


def test_a_cache_of_ones_own_is_named_to_be_saved(tmp_path):
    made = fitted(make_pipeline(StandardScaler(), LogisticRegression(), memory=str(tmp_path / "cache")))
    with pytest.raises(InvalidInput) as refused:
        save(made, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    named = ast.literal_eval(re.search(r"trusted=(\[.*\])", str(refused.value))[1])
    folder = save(made, tmp_path / "model", trusted=named)
    with pytest.raises(InvalidInput, match=r"Pipeline\.memory"):
        load(folder)
    assert load(folder, trusted=named).predict(FAR).tolist() == ["yes", "no"]


def test_words_of_a_vocabulary_are_no_settings():
    words = CountVectorizer().fit(["memory input", "input"])
    assert from_skops(to_skops(words)).vocabulary_ == words.vocabulary_


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_server_does_not_say_that_it_listens_before_its_models_are_loaded(tmp_path, workers):
    made = fitted(make_pipeline(FunctionTransformer(clean), LogisticRegression()))
    folder = save(made, tmp_path / "model", trusted=[f"{__name__}.clean"])
    status, _, errors = run_forked(SERVE, str(folder), workers)
    assert status == 1
    assert "listening" not in errors
    assert "--trusted test_saved_types.clean" in errors


def test_a_server_is_told_whom_to_trust(tmp_path):
    made = fitted(make_pipeline(FunctionTransformer(clean), LogisticRegression()))
    folder = save(made, tmp_path / "model", trusted=[f"{__name__}.clean"])
    settings = Settings(models={"own": str(folder)}, port=0, keys=False, trusted=(f"{__name__}.clean",))
    with serving(settings, tmp_path / "log") as server:
        body = b'{"inputs": [{"name": "features", "shape": [1, 3], "datatype": "FP64", "data": [4.0, null, 0.0]}]}'
        got = server.request("POST", "/v2/models/own/infer", body, {})
        assert got.json["outputs"][0]["data"] == ["yes"]


@pytest.mark.parametrize("module", ["__main__", __name__])
def test_what_no_other_process_could_find_is_refused(module, tmp_path, monkeypatch):
    def own(rows):
        return rows

    own.__module__ = module
    made = fitted(make_pipeline(FunctionTransformer(own), LogisticRegression()))
    text = "of the running script or notebook" if module == "__main__" else "within a function, is not found again"
    with pytest.raises(InvalidInput, match=text):
        save(made, tmp_path / "model", trusted=[f"{module}.own"])
    assert not (tmp_path / "model").exists()


def test_a_published_student_is_checked_too(tmp_path):
    learner = make_pipeline(FunctionTransformer(clean), LogisticRegression())
    made = StudentClassifier(learner, epsilon=30.0, teachers=12, queries=40, aggregator="noisy_max").fit(
        X, Y, public=X[:200]
    )
    with pytest.raises(InvalidInput, match="loading it would be refused"):
        save(made, tmp_path / "student")
    assert not (tmp_path / "student").exists()
    folder = save(made, tmp_path / "student", trusted=[f"{__name__}.clean"])
    assert load(folder, trusted=[f"{__name__}.clean"]).predict(FAR).tolist() == ["yes", "no"]


FILLING = make_pipeline(SimpleImputer(), LogisticRegression())


@pytest.mark.parametrize(
    "estimator",
    [
        FILLING,
        make_pipeline("passthrough", StandardScaler(), SimpleImputer(), LogisticRegression()),
        make_pipeline(make_column_transformer((SimpleImputer(), [0]), (SimpleImputer(), [1, 2])), LogisticRegression()),
        make_pipeline(FeatureUnion([("one", SimpleImputer()), ("two", SimpleImputer())]), LogisticRegression()),
        make_pipeline(FunctionTransformer(clean), LogisticRegression()),
        VotingClassifier([("one", FILLING), ("two", FILLING)]),
        BaggingClassifier(FILLING, 2),
        CalibratedClassifierCV(FILLING, cv=2),
        GridSearchCV(FILLING, {"logisticregression__C": [1.0]}, cv=2),
    ],
    ids=range(9),
)
def test_imputing_inside_the_estimator_takes_arrays_with_gaps(estimator):
    assert fitted(estimator, GAPS).predict([[4.0, np.nan, 0.0]]).tolist() == ["yes"]


HALF = FeatureUnion([("one", SimpleImputer()), ("two", SplineTransformer())])


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), make_pipeline(HALF, LogisticRegression())], ids=["plain", "half"]
)
def test_gaps_that_nobody_fills_are_refused_in_queries_alone(estimator):
    """No private gap is refused: its row is left out by the teacher that has it."""
    made = fitted(estimator, GAPS)
    with pytest.raises(ValueError, match="NaN"):
        made.predict([[4.0, np.nan, 0.0]])
    assert made.spent_epsilon() == 0
    assert made.predict([[4.0, 0.0, 0.0]]).tolist() == ["yes"]


@pytest.mark.parametrize("aggregator", ["auto", "noisy_max", "quorum"])
def test_a_score_that_cannot_be_paid_for_costs_nothing(aggregator, tmp_path):
    made = PrivateClassifier(epsilon=8.0, teachers=100, queries=20, aggregator=aggregator, classes=["no", "yes"])
    made.fit(X, Y)
    before = made.spent_epsilon()
    with pytest.raises(BudgetSpent, match=r"1,200 new queries .* the budget is for 20 of them: none was asked"):
        made.score(X, Y)
    assert made.spent_epsilon() == before
    clear = np.flatnonzero(np.abs(X[:, 0]) > 1)[:10]  # on which the teachers agree
    assert made.score(X[clear], Y[clear]) == made.score(X[clear], Y[clear])
    again = load(save(made, tmp_path / "model"))
    before = again.spent_epsilon()
    with pytest.raises(BudgetSpent, match=r"1,190 new queries"):
        again.score(X, Y)
    assert again.spent_epsilon() == before
    assert again.session_.ledger.verify().problems == ()


def test_a_universal_classifier_scores_any_number():
    points = np.linspace(0, 1, 3000)[:, np.newaxis]
    labels = (points[:, 0] > 0.5).astype(int)
    made = UniversalClassifier(Thresholds(), epsilon=8.0, ballots=10).fit(points, labels)
    assert 0 < made.score(points[::100], labels[::100]) <= 1  # 30 queries, and 10 ballots


def test_a_sparse_matrix_that_cannot_be_filled_is_refused_before_it_is():
    wide = scipy.sparse.csr_array((1200, 10**7))
    with pytest.raises(InvalidInput, match=r"1,200 x 10,000,000, would not fit.*SparseRandomProjection"):
        fitted(None, wide)
    made = fitted(None, scipy.sparse.csr_array(X))
    with pytest.raises(InvalidInput, match="would not fit"):
        made.predict(wide)
    assert made.predict(scipy.sparse.csr_array(FAR)).tolist() == ["yes", "no"]


def test_the_projection_that_the_refusal_names_does_not_look_at_the_records():
    one, other = (scipy.sparse.random_array((50, 400), density=0.1, rng=seed, format="csr") for seed in (1, 2))
    maps = [SparseRandomProjection(16, random_state=0).fit(rows).components_.toarray() for rows in (one[:1], other)]
    assert np.array_equal(*maps)
