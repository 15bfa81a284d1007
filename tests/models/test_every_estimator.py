"""What every estimator keeps to: settings that cannot be, private values of any kind, persons, claims, scikit-learn.

To add an estimator, add it to `FITS`.
"""

import inspect
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

import quorate as qr
from quorate import Infeasible, InvalidInput
from quorate.auditing import entropy_tape
from quorate.models.concepts import Thresholds
from quorate.models.students import QueryReleaseClassifier

X = np.linspace(-1, 1, 600)[:, np.newaxis]
Y = (X[:, 0] > 0).astype(int)
PUBLIC = np.linspace(-1, 1, 120)[:, np.newaxis] + 0.001
FAR = [[-0.9], [0.9]]
PUBLISHED = LogisticRegression().fit(PUBLIC, (PUBLIC[:, 0] > 0).astype(int))
BALLOTS = {"teachers": 20, "aggregator": "noisy_max"}
FITS = {  # of each estimator: what it is made of, and what its fit takes beside rows and labels
    qr.AgnosticClassifier: ({"concept": Thresholds(), "epsilon": 20.0, "queries": 3, **BALLOTS}, {}),
    qr.ConformalClassifier: ({"model": PUBLISHED}, {}),
    qr.ConformalRegressor: ({"model": LinearRegression().fit(PUBLIC, PUBLIC[:, 0]), "largest_error": 9.0}, {}),
    qr.EverlastingClassifier: ({"estimator": Thresholds(), "epsilon": 60.0, "delta": 1e-2, "chunk": 6}, {}),
    qr.NeighbourClassifier: ({"radius": 0.5, "votes": 3.0, "metric": "cosine"}, {}),
    qr.NeighbourRegressor: ({"radius": 0.5, "votes": 3.0, "metric": "cosine", "bounds": (0, 1)}, {}),
    qr.PrivateClassifier: ({"epsilon": 20.0, "queries": 3, **BALLOTS}, {}),
    qr.PrivateLinearRegression: ({"bounds": (0, 1)}, {"public": PUBLIC}),
    qr.PrivateLogisticRegression: ({}, {"public": PUBLIC}),
    qr.PrivatePoissonRegression: ({"largest": 5}, {"public": PUBLIC}),
    qr.PrivateSearchCV: ({"estimator": [qr.PrivateLogisticRegression(classes=[0, 1])] * 2}, {"public": PUBLIC}),
    qr.PureClassifier: ({"concept": Thresholds()}, {}),
    qr.SemiPrivateClassifier: ({"concept": Thresholds()}, {"public": PUBLIC}),
    qr.StableClassifier: ({"concept": Thresholds()}, {}),
    qr.StudentClassifier: ({"teachers": 20, "epsilon": 8.0}, {"public": PUBLIC}),
    qr.StudentFirstClassifier: ({"student": PUBLISHED, "teachers": 200, "epsilon": 8.0}, {}),
    qr.UniversalClassifier: ({"concept": Thresholds(), "epsilon": 30.0, "ballots": 3, **BALLOTS}, {}),
    QueryReleaseClassifier: ({"concept": Thresholds(), "delta": 1e-6}, {"public": PUBLIC}),
}
COUNTS = (0, -3, 2.5, math.nan, "many")
NO_CHOICE = ("nothing of it", 7)
WRONG = {
    **dict.fromkeys(("teachers", "queries", "dissents", "ballots", "chunk", "records"), COUNTS),
    **dict.fromkeys(("no_quorums", "records_per_person", "subset", "phase_size"), COUNTS),
    **dict.fromkeys(("aggregator", "method", "mode", "on_no_quorum", "metric", "kernel", "per_person"), NO_CHOICE),
    **dict.fromkeys(("scoring", "device", "relabel", "refresh"), NO_CHOICE),
    "epsilon": (0, -1.0, math.nan, math.inf, "1", True),
    "delta": (-0.1, 1.0, 1.5, math.nan, "none"),
    "largest": (0, -3, math.nan, "many"),
    "gamma": (0, 1, 1.5, math.nan, "much"),
    "alpha": (0, -0.1, 1, math.nan, "most"),
    "beta": (0, 1, 2),
    "share": (-0.1, 1.5, math.nan),
    "points": (0, -3, 2.5, "nearest"),
    "miscoverage": (0.0, 1.0, -1.0, math.nan),
    "largest_error": (0.0, -1.0, math.nan),
    "bounds": (None, 5, (0,), (0, 1, 2), (5, 0), (0, math.inf), ("low", "high")),
    "holdout": (-0.1, 0.9, "some"),
    "held_out": (0.0, 1.0),
    "classes": (["yes"], ["yes", "yes"], "yes,no", 2),
    "concept": ("thresholds", 7),
    "n_jobs": (0,),
}
CASES = [
    (kind, name, value) for kind in FITS for name in inspect.signature(kind).parameters for value in WRONG.get(name, ())
]


def test_every_estimator_is_tried():
    public = [getattr(qr, name) for name in qr.__all__]
    estimators = {value for value in public if isinstance(value, type) and hasattr(value, "predict")}
    assert estimators - {qr.PromptClassifier} <= set(FITS)  # whose records are texts


@pytest.mark.parametrize(("kind", "name", "value"), CASES, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_a_value_that_cannot_be_is_refused_by_its_name(kind, name, value):
    settings, given = FITS[kind]
    model = kind(**settings | {name: value})
    with pytest.raises((InvalidInput, Infeasible), match=rf"\b{name}\b"):
        model.fit(X, Y, **given)
    assert not any(hasattr(model, part) for part in ("session_", "coef_", "cell_", "hypothesis_", "student_"))


# --- Private values ---------------------------------------------------------------------------------------------------


def fitted(kind, X, y, classes=(0, 1), **more):
    """Return the estimator, fitted on a tape."""
    settings, given = FITS[kind]
    if "classes" in inspect.signature(kind).parameters:
        settings = {"classes": classes} | settings
    with entropy_tape(3):
        return kind(**settings).fit(X, y, **given, **more)


def answers_of(model):
    """Return what a model says of a few rows, on a tape."""
    with entropy_tape(4):
        return np.asarray(model.predict(FAR)).tolist()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", ["a diagnosis", None, [1], b"\xff", "1e999"], ids=repr)
@pytest.mark.parametrize("kind", FITS, ids=lambda kind: kind.__name__)
def test_no_private_value_is_refused_or_warned_of(kind, odd):
    """Whatever cannot be read is read alike: neither another row nor an answer shows which of the values it is."""
    rows, labels = X.astype(object), Y.astype(object)
    missing = rows.copy()
    rows[7, 0], missing[7, 0] = odd, None if odd != "1e999" else math.inf
    expected = answers_of(fitted(kind, missing, Y))
    for given in (rows, rows.tolist()):
        assert answers_of(fitted(kind, given, Y)) == expected
    other = labels.copy()
    labels[9], other[9] = odd, "another" if odd != "1e999" else math.inf
    assert answers_of(fitted(kind, X, labels)) == answers_of(fitted(kind, X, other))


@pytest.mark.parametrize("kind", FITS, ids=lambda kind: kind.__name__)
def test_errors_of_a_fit_repeat_no_value(kind):
    secret = np.full(X.shape, 0.123456789)
    for rows, labels in ((secret, Y[:-1]), (np.stack([secret, secret]), Y)):
        with pytest.raises(ValueError, match=r"inconsistent|dim|2D|shape") as raised:
            fitted(kind, rows, labels)
        assert "0.12" not in str(raised.value)


# --- Estimators of scikit-learn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FITS, ids=lambda kind: kind.__name__)
def test_it_is_an_estimator_whose_claim_says_what_is_protected(kind):
    settings, given = FITS[kind]
    model = kind(**settings)
    assert repr(clone(model).get_params()) == repr(model.get_params())
    assert model.fit(X, Y, **given) is model
    assert model.unit_ == "row"
    assert "one row" in model.claim_ or "each prediction" in model.claim_
    if model.get_params().get("classes", 0) is None:
        assert "label set was read from y and counts as public" in model.claim_
    before = model.claim_
    model.set_params(epsilon=77.0) if "epsilon" in settings else model.set_params()
    assert model.claim_ == before  # of the fit, not of the wish
    people = clone(kind(**settings)).fit(X, Y, groups=np.arange(len(X)) // 2, **given)
    assert people.unit_ == "person"
    assert "person" in people.claim_


CONTAINERS = {
    "lists": (np.ndarray.tolist, list),
    "a sparse matrix": (sparse.csr_array, pl.Series),
    "pandas": (lambda rows: pd.DataFrame(rows, columns=["dose"]), lambda labels: pd.Series(labels, dtype="Int64")),
    "polars": (lambda rows: pl.DataFrame({"dose": rows[:, 0]}), pl.Series),
    "arrow": (lambda rows: pa.table({"dose": rows[:, 0]}), lambda labels: pa.chunked_array([labels])),
}


@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")  # which the published models do not have
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", FITS, ids=lambda kind: kind.__name__)
def test_records_come_in_any_container(kind, container):
    """On one tape: the same model, which knows the names of columns and asks for them."""
    rows_in, labels_in = CONTAINERS[container]
    people = (np.arange(len(X)) // 2).tolist()
    settings, given = FITS[kind]
    given = {name: rows_in(rows) for name, rows in given.items()}
    with entropy_tape(3):
        model = kind(**settings).fit(rows_in(X), labels_in(Y.tolist()), groups=labels_in(people), **given)
    expected = answers_of(fitted(kind, X, Y, classes=None, groups=people))
    with entropy_tape(4):
        assert np.asarray(model.predict(rows_in(np.array(FAR)))).tolist() == expected
    if container in ("pandas", "polars", "arrow"):
        assert model.feature_names_in_.tolist() == ["dose"]
        with pytest.raises(ValueError, match="feature names"):
            model.predict(pd.DataFrame({"size": [0.5]}))
