"""Every setting of every estimator: a value that cannot be is refused by its name, and no model answers after it."""

import inspect
import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import quorate as qr
from quorate import Infeasible, InvalidInput
from quorate.models.concepts import Thresholds
from quorate.models.students import QueryReleaseClassifier

X = np.linspace(-1, 1, 300)[:, np.newaxis]
Y = (X[:, 0] > 0).astype(int)
PUBLIC = np.linspace(-1, 1, 120)[:, np.newaxis] + 0.001
PUBLISHED = LogisticRegression().fit(PUBLIC, (PUBLIC[:, 0] > 0).astype(int))
FITS = {  # of each estimator: what it is made of, and what its fit takes beside rows and labels
    qr.AgnosticClassifier: ({"concept": Thresholds()}, {}),
    qr.ConformalClassifier: ({"model": PUBLISHED}, {}),
    qr.ConformalRegressor: ({"model": LinearRegression().fit(PUBLIC, PUBLIC[:, 0]), "largest_error": 9.0}, {}),
    qr.EverlastingClassifier: ({"estimator": Thresholds(), "epsilon": 8.0}, {}),
    qr.NeighbourClassifier: ({"radius": 0.5, "votes": 3.0, "metric": "cosine"}, {}),
    qr.NeighbourRegressor: ({"radius": 0.5, "votes": 3.0, "metric": "cosine", "bounds": (0, 1)}, {}),
    qr.PrivateClassifier: ({"teachers": 20, "epsilon": 8.0}, {}),
    qr.PrivateLinearRegression: ({"bounds": (0, 1)}, {"public": PUBLIC}),
    qr.PrivateLogisticRegression: ({}, {"public": PUBLIC}),
    qr.PrivatePoissonRegression: ({"largest": 5}, {"public": PUBLIC}),
    qr.PrivateSearchCV: ({"estimator": [qr.PrivateLogisticRegression(), qr.PrivateLogisticRegression()]}, {}),
    qr.PureClassifier: ({"concept": Thresholds()}, {}),
    qr.SemiPrivateClassifier: ({"concept": Thresholds()}, {"public": PUBLIC}),
    qr.StableClassifier: ({"concept": Thresholds()}, {}),
    qr.StudentClassifier: ({"teachers": 20, "epsilon": 8.0}, {"public": PUBLIC}),
    qr.StudentFirstClassifier: ({"student": PUBLISHED, "teachers": 200, "epsilon": 8.0}, {}),
    qr.UniversalClassifier: ({"concept": Thresholds(), "epsilon": 8.0}, {}),
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
    estimators = {value for value in map(vars(qr).get, qr.__all__) if isinstance(value, type) and hasattr(value, "fit")}
    assert estimators <= set(FITS)


@pytest.mark.parametrize(("kind", "name", "value"), CASES, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_a_value_that_cannot_be_is_refused_by_its_name(kind, name, value):
    settings, given = FITS[kind]
    model = kind(**settings | {name: value})
    with pytest.raises((InvalidInput, Infeasible), match=rf"\b{name}\b"):
        model.fit(X, Y, **given)
    assert not any(hasattr(model, part) for part in ("session_", "coef_", "cell_", "hypothesis_", "student_"))
