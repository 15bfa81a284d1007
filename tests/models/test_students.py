"""StudentClassifier: an ordinary classifier once fitted, that has seen public points and released labels alone."""

import contextlib
import itertools
import json
import pickle
import types
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from quorate import Budget, load, save
from quorate.auditing import entropy_tape
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.compute.learners import Deal, Teachers
from quorate.core.ballots import Ballots
from quorate.core.errors import InvalidInput, NoQuorum
from quorate.core.mechanisms.base import Run
from quorate.core.session import Session
from quorate.models.predictors import PrivateClassifier
from quorate.models.students import StudentClassifier
from quorate.models.students import _classifier as classifier
from quorate.models.students.points import k_centre_points, labels_of, margins, random_points, split_units
from quorate.tables.frames import FrameFormat

SECRET = 0.123456789  # stands in the private rows and nowhere else
PRIVATE = (Ballots, Budget, Deal, Ensemble, EstimatorTeachers, PrivateClassifier, Run, Session, Teachers)


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(8000, 2))
    y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
    X[:50, 1] = SECRET
    return X, y


@pytest.fixture(scope="module")
def public():
    return np.random.default_rng(1).normal(size=(600, 2))


def _made(**settings):
    known = {"epsilon": 2.0, "delta": 1e-6, "teachers": 200, "aggregator": "noisy_max", "queries": 200}
    return StudentClassifier(**(known | {"classes": ["no", "yes"]} | settings))


def _plain(**settings):
    """Return one with next to no noise, so that two fits on the same points agree."""
    return _made(epsilon=1e6, **settings)


# Noise is drawn and teachers are dealt anew in each fit: a student is right on 0.985 of the rows, give or take 0.012,
# and one that says always the same on half of them. The bar stands far from both.
LEARNED = 0.8


class Leaning(ClassifierMixin, BaseEstimator):
    """A teacher of every other kind: of one mind far from the line, exactly tied on it, however the rows were dealt.

    Teachers that learn are tied on the line on average only: one side found a quorum there once in two hundred fits.
    With a tie, only threshold noise past the margin is left: with `SURE`, below 1e-9.
    """

    kinds = itertools.cycle([-0.1, 0.1])

    def fit(self, X, y):
        self.lean_ = next(Leaning.kinds)
        return self

    def predict(self, X):
        return (np.asarray(X).sum(axis=1) + self.lean_ > 0).astype(np.int64)


SURE = {"epsilon": 4.0, "delta": 1e-9, "aggregator": "quorum", "no_quorums": 3}


@pytest.fixture(scope="module")
def fitted(records, public):
    return _made().fit(*records, public=public)


# What is published


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("mode", ["transfer", "label-private"])
def test_a_student_lists_no_category_of_a_private_record(mode, library, monkeypatch):
    """The type of a column of categories lists the values of all rows, also one that a single record has."""
    generator = np.random.default_rng(2)
    half, city = 400, generator.choice(["oslo", "rome"], size=800).astype(object)
    city[7] = "Secretville"
    x = generator.normal(size=800)
    kind = pd.CategoricalDtype(["Secretville", "rome", "oslo"])
    X = pd.DataFrame({"x": x, "city": pd.Series(city, dtype=kind)})
    if library == "polars":
        X = pl.DataFrame({"x": x, "city": pl.Series(city.tolist(), dtype=pl.Enum(list(kind.categories)))})
    monkeypatch.setattr(classifier, "split_units", lambda rows, groups: (np.arange(half), np.arange(half, rows)))
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    made = _plain(estimator=make_pipeline(encoder, LogisticRegression()), teachers=20, queries=40, mode=mode)
    public = {"public": X[half:]} if mode == "transfer" else {}
    with entropy_tape(1):  # else the noise makes a student of the wrong labels, once in hundreds of runs
        made.fit(X, np.where(x > 0, "yes", "no"), **public)
    assert b"Secretville" not in pickle.dumps(made)
    assert made.predict(X[:10]).tolist() == np.where(x[:10] > 0, "yes", "no").tolist()  # also of the record itself


@pytest.mark.parametrize("mode", ["transfer", "label-private"])
def test_a_student_does_not_tell_by_its_types_that_a_value_of_a_record_is_missing(mode, monkeypatch, tmp_path):
    """In pandas one missing value makes floats of a column of whole numbers, and the folder named the type."""
    generator = np.random.default_rng(2)
    half, ages = 400, generator.integers(18, 90, size=800).tolist()
    monkeypatch.setattr(classifier, "split_units", lambda rows, groups: (np.arange(half), np.arange(half, rows)))
    estimator = make_pipeline(SimpleImputer(), DecisionTreeClassifier(max_depth=2))
    public = {"public": pd.DataFrame({"age": ages[half:]})} if mode == "transfer" else {}
    published = []
    for first in (ages[0], None):
        X = pd.DataFrame({"age": [first, *ages[1:]]})
        made = _plain(estimator=estimator, teachers=20, queries=40, mode=mode)
        made.fit(X, np.where(np.array(ages) > 50, "yes", "no"), **public)
        folder = save(made, tmp_path / str(first))
        published.append(json.loads((folder / "manifest.json").read_text())["form"])
        asked = pd.DataFrame({"age": [20, 89]})
        assert load(folder).predict(asked).tolist() == load(folder).predict(asked.astype(float)).tolist()
        with pytest.raises(InvalidInput, match=r"column 'age', row 1 .*a number is expected"):
            load(folder).predict(pd.DataFrame({"age": ["twenty"]}))
    assert published[0] == published[1]


def test_private_rows_have_the_types_of_public_points():
    """What is a text, a truth value or a date says the public frame: a type of the private one may be of one record."""
    x = np.random.default_rng(0).normal(size=600)
    public = pd.DataFrame({"x": x[:200], "city": pd.Categorical(["oslo", "rome"] * 100)})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    for city in (["oslo", "rome"] * 200, ["oslo", 7] * 200):  # texts, and objects
        X = pd.DataFrame({"x": x[200:], "city": city})
        made = _plain(estimator=make_pipeline(encoder, LogisticRegression()), teachers=20, queries=40)
        made.fit(X, np.where(x[200:] > 0, "yes", "no"), public=public)
        assert made.form_ == FrameFormat("pandas", ("x", "city"), ("number", "text"))
    students = []
    for rows in (X, X.astype({"x": str}), X.astype({"x": object, "city": "category"}), pl.from_pandas(X.astype(str))):
        with entropy_tape(1):
            made.fit(rows, np.where(x[200:] > 0, "yes", "no"), public=public)
        students.append(made.predict_proba(public).tobytes())
    assert len(set(students)) == 1  # whatever types the private frame has


# scikit-learn manners


def test_a_student_is_an_ordinary_classifier(records, public, fitted):
    X, y = records
    assert fitted.score(X[50:], y[50:]) > LEARNED
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.predict_proba(public).shape == (600, 2)
    assert set(fitted.predict(public)) == {"no", "yes"}
    assert isinstance(fitted.student_, LogisticRegression)
    assert 0 < fitted.spent_epsilon_ <= 2.0
    assert fitted.plan_.teachers == 200
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(public) == fitted.predict(public)).all()
    assert clone(fitted).get_params() == fitted.get_params()


def test_labelled_says_what_was_asked_and_answered(public, fitted):
    made = fitted.labelled_
    assert made.rows.size == np.unique(made.rows).size == 200
    assert made.rows.max() < 600
    assert made.answered.all()
    assert made.labels.shape == made.points.shape == (200,)
    right = np.where(public.sum(axis=1) > 0, "yes", "no")[made.points]
    assert (made.labels == right).mean() > 0.9  # 0.984; 20 wrong ones of 200 come by chance once in 10**9 fits


def test_the_student_is_what_its_labels_make_it(public, fitted):
    """Who has `labelled_` and the public points has the student: nothing else went into it."""
    made = fitted.labelled_
    order = np.argsort(made.points)
    rebuilt = LogisticRegression().fit(public[made.points[order]], made.labels[order])
    assert (rebuilt.coef_ == fitted.student_.coef_).all()


def test_claim_says_what_is_protected(records, public, fitted):
    assert "replacement of one row; the public points are not protected" in fitted.claim_
    half = _made(mode="label-private", teachers=100, classes=None).fit(*records)
    assert "replacement of the labels of one row" in half.claim_
    assert "label set was read from y" in half.claim_
    before = half.claim_
    assert half.set_params(epsilon=0.01, classes=["no", "yes"]).claim_ == before  # of the fit, not of the wish


# Nothing private hangs on the fitted object


def _walk(thing, seen):
    """Yield everything that can be reached from this object."""
    if id(thing) in seen or isinstance(thing, type | types.ModuleType | types.FunctionType):
        return
    seen[id(thing)] = thing
    yield thing
    parts = []
    if isinstance(thing, dict):
        parts = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts = list(thing)
    elif isinstance(thing, np.ndarray) and thing.dtype == object:
        parts = thing.ravel().tolist()
    if isinstance(thing, np.ndarray) and thing.base is not None:
        parts.append(thing.base)
    parts += list(getattr(thing, "__dict__", {}).values())
    for kind in type(thing).__mro__:
        slots = getattr(kind, "__slots__", ())
        parts += [
            getattr(thing, name) for name in ([slots] if isinstance(slots, str) else slots) if hasattr(thing, name)
        ]
    for part in parts:
        yield from _walk(part, seen)


def _private_parts(thing):
    for part in _walk(thing, {}):
        if isinstance(part, PRIVATE):
            yield part
        if isinstance(part, np.ndarray) and part.dtype.kind == "f" and (part == SECRET).any():
            yield part


@pytest.mark.parametrize("settings", [{}, {"points": "margin"}, {"student": KNeighborsClassifier()}, {"epsilon": 20.0}])
def test_nothing_private_is_left(records, public, settings):
    made = _made(**settings).fit(*records, public=public)
    assert list(_private_parts(made)) == []


def test_the_walk_finds_what_is_planted(records, public):
    made = _made().fit(*records, public=public)
    for planted in (PrivateClassifier(teachers=200, aggregator="noisy_max").fit(*records), records[0][:60]):
        made.notes_ = {"kept": [planted]}
        assert list(_private_parts(made))


# Which points


def _spy(monkeypatch):
    """Return the batches that are put to the teachers."""
    batches, ask = [], PrivateClassifier.predict

    def predict(self, X, caller=""):
        batches.append(np.asarray(X))
        return ask(self, X, caller=caller)

    monkeypatch.setattr(PrivateClassifier, "predict", predict)
    return batches


def test_margin_asks_where_the_student_is_least_sure(records, public, monkeypatch):
    batches = _spy(monkeypatch)
    order = np.random.default_rng(7).permutation(600)  # which 40 come first decides how good the first student is
    monkeypatch.setattr(classifier, "random_points", lambda among, number: order[np.isin(order, among)][:number])
    made = _plain(points="margin").fit(*records, public=public)
    assert [len(batch) for batch in batches] == [40] * 5
    assert np.unique(made.labelled_.rows).size == 200
    away = [np.abs(batch.sum(axis=1)).mean() for batch in batches]
    assert away[1] < 0.7 * away[0]
    first = made.labelled_.rows[:40]  # the second batch follows from the labels of the first
    order = np.argsort(first)
    student = LogisticRegression().fit(public[first[order]], made.labelled_.labels[:40][order])
    left = np.setdiff1d(np.arange(600), first)
    assert set(made.labelled_.rows[40:80]) == set(left[np.argsort(margins(student, public[left]))[:40]])


def test_margin_goes_on_at_random_while_one_label_is_known(records, monkeypatch):
    batches = _spy(monkeypatch)
    public = np.random.default_rng(2).uniform(2, 3, size=(50, 2))
    made = _plain(points="margin", queries=50).fit(*records, public=public)
    assert len(batches) == 5
    assert made.predict([[-3.0, -3.0]]) == ["yes"]


def test_k_centre_covers_better_than_chance():
    X = np.random.default_rng(0).normal(size=(2000, 2)) * [1.0, 100.0]

    scaled = X / X.std(axis=0)

    def radius(chosen):
        return np.linalg.norm(scaled[:, None] - scaled[chosen], axis=2).min(axis=1).max()

    chosen = k_centre_points(X, 60)
    assert np.unique(chosen).size == 60
    assert radius(chosen) < 0.5 * np.median([radius(random_points(np.arange(2000), 60)) for _ in range(15)])


def test_k_centre_is_within_twice_the_best_on_a_line():
    X = np.repeat(np.arange(10.0), 30)[:, None]
    chosen = k_centre_points(X, 10)
    assert sorted(X[chosen, 0].tolist()) == list(range(10))
    assert k_centre_points(X, 200).size == 10  # no more distinct points than that


def test_no_more_points_than_there_are(records, public):
    assert _made(queries=1000).fit(*records, public=public[:100]).labelled_.rows.size == 100


def test_points_alike_are_planned_for_once(records, public):
    """Copies of a point are answered alike and paid for once, and the plan knows: noise is that of distinct points."""
    made, alike = (
        _made(queries=600).fit(*records, public=rows) for rows in (public, np.repeat(public[:100], 6, axis=0))
    )
    assert made.plan_.queries == 600
    assert alike.plan_.queries == 100
    assert alike.labelled_.rows.size == 600
    labels = dict(zip(alike.labelled_.points.tolist(), alike.labelled_.labels.tolist(), strict=True))
    assert all(labels[row] == labels[row - row % 6] for row in range(600))
    assert 1.9 < alike.spent_epsilon_ <= 2.0


def test_points_that_were_refused_are_not_listed(records, monkeypatch):
    """A run that ends in the middle: what was not put to the vote is neither asked nor answered."""
    monkeypatch.setattr(classifier, "random_points", lambda among, number: among[:number])
    public = np.concatenate([np.full((50, 2), 3.0) + np.arange(50)[:, None], np.zeros((300, 2))])
    public[50:, 0] = np.linspace(-1e-3, 1e-3, 300)
    public[50:, 1] = -public[50:, 0]
    made = _made(estimator=Leaning(), queries=350, **SURE).fit(*records, public=public)
    assert (~made.labelled_.answered).sum() == 3
    assert made.labelled_.rows.size < 350
    assert (made.labelled_.labels == "yes").all()


# Label-private

KEPT, LENT = np.arange(0, 8000, 2), np.arange(1, 8000, 2)


class Poison(str):
    """A label that must not be looked at. It notes who does, for no error of a label leaves the gate."""

    __slots__ = ()
    seen: ClassVar[list[str]] = []

    def _read(self, *anything):
        self.seen.append("a label of the second half was read")
        raise AssertionError

    __eq__ = __ne__ = __lt__ = __gt__ = __hash__ = __str__ = __repr__ = __array__ = __len__ = _read
    strip = isascii = encode = __iter__ = _read


def _poisoned(y, rows):
    labels = y.tolist()
    for row in rows.tolist():
        labels[row] = Poison("yes")
    Poison.seen.clear()
    return labels


def test_labels_of_the_second_half_are_never_read(records, monkeypatch):
    X, y = records
    monkeypatch.setattr(classifier, "split_units", lambda rows, groups: (KEPT, LENT))
    made = _plain(mode="label-private").fit(X, _poisoned(y, LENT))
    assert made.score(X[50:], y[50:]) > LEARNED
    assert (made.labelled_.labels == y[made.labelled_.points]).mean() > 0.9
    assert np.isin(made.labelled_.rows, LENT).all()
    assert not Poison.seen
    monkeypatch.setattr(classifier, "split_units", lambda rows, groups: (LENT, KEPT))  # a planted bug: halves swapped
    with contextlib.suppress(NoQuorum, AssertionError):
        _plain(mode="label-private").fit(X, _poisoned(y, LENT))
    assert len(Poison.seen) >= len(LENT)


@pytest.mark.parametrize("halves", [(KEPT, LENT), (LENT, KEPT)])
def test_classes_that_are_read_are_those_of_both_halves(records, monkeypatch, halves):
    X, y = records
    labels = y.tolist()
    labels[LENT[0]] = "perhaps"
    monkeypatch.setattr(classifier, "split_units", lambda rows, groups: halves)
    made = _plain(mode="label-private", classes=None).fit(X, labels)
    assert made.classes_.tolist() == ["no", "perhaps", "yes"]


@pytest.mark.parametrize("container", [np.asarray, pd.Series, list])
def test_other_labels_in_the_second_half_change_nothing(records, monkeypatch, container):
    X, y = records
    monkeypatch.setattr(classifier, "split_units", lambda rows, groups: (KEPT, LENT))
    monkeypatch.setattr(classifier, "random_points", lambda among, number: among[:number])
    turned = y.copy()
    turned[LENT] = np.where(y[LENT] == "yes", "no", "yes")
    one, other = (_plain(mode="label-private").fit(X, container(labels)) for labels in (y, turned))
    # Teachers are dealt anew each time, so that points near the border may change; a label read would turn most.
    assert (one.labelled_.labels == other.labelled_.labels).mean() > 0.9
    assert (one.predict(X) == other.predict(X)).mean() > 0.9
    turned = np.where(y == "yes", "no", "yes")  # the check can fail: labels of the first half do count
    assert (_plain(mode="label-private").fit(X, container(turned)).predict(X) == one.predict(X)).mean() < 0.1


def test_the_type_of_a_label_in_the_second_half_changes_nothing():
    assert labels_of([1, 0, "text", 1], np.array([0, 1, 3])) == [1, 0, 1]


def test_halves_keep_a_person_whole():
    groups = np.random.default_rng(0).integers(0, 40, size=300)
    kept, lent = split_units(300, groups)
    assert sorted([*kept, *lent]) == list(range(300))
    assert not set(groups[kept]) & set(groups[lent])
    assert abs(np.unique(groups[kept]).size - np.unique(groups[lent]).size) <= 1
    assert any(not np.array_equal(split_units(300)[0], split_units(300)[0]) for _ in range(3))


def test_persons_are_units_of_both_halves(records):
    X, y = records
    groups = np.repeat(np.arange(4000), 2)
    made = _plain(mode="label-private", teachers=100).fit(X, y, groups=groups)
    assert "labels of one person" in made.claim_
    assert made.score(X[50:], y[50:]) > LEARNED
    assert (made.labelled_.labels == y[made.labelled_.points]).mean() > 0.9
    with pytest.raises(InvalidInput, match="at most records=2000"):
        _made(mode="label-private", teachers=3000).fit(X, y, groups=groups)


# Too few answers


def test_one_label_makes_a_constant_student(records, public):
    made = _plain().fit(records[0], np.full(8000, "yes"), public=public)  # with noise, one in 10,000 answers is "no"
    assert set(made.predict(public)) == {"yes"}
    assert made.predict_proba(public[:1]).tolist() == [[0.0, 1.0]]


def test_no_answer_is_an_error_that_says_so(records):
    made = _made(estimator=Leaning(), **SURE)
    with pytest.raises(NoQuorum, match="none of the 3 points asked found a quorum"):
        made.fit(*records, public=np.linspace(-1e-3, 1e-3, 100)[:, None] * [1.0, -1.0])
    assert made.labelled_.rows.size == 3
    assert made.spent_epsilon_ > 0
    assert not hasattr(made, "student_")


class Fussy(LogisticRegression):
    """A student that is content in the trial and fails on the labels that were paid for."""

    calls = 0

    def fit(self, X, y):
        Fussy.calls += 1
        if Fussy.calls > 1:
            raise ValueError("not these")
        return super().fit(X, y)


@pytest.mark.parametrize(("points", "labels"), [("random", 200), ("margin", 40)])
def test_labels_survive_a_student_that_fails(records, public, monkeypatch, points, labels):
    monkeypatch.setattr(Fussy, "calls", 0)
    made = _made(student=Fussy(), points=points)
    with pytest.raises(ValueError, match="not these") as caught:
        made.fit(*records, public=public)
    assert "labelled_" in caught.value.__notes__[0]
    assert made.labelled_.labels.size == labels
    assert made.spent_epsilon_ > 0


# Refusals, before anything is spent

WITH_A_GAP = np.array([[0.0, np.nan]] * 10)


@pytest.mark.parametrize(
    ("settings", "points", "text"),
    [
        ({}, None, "needs public points"),
        ({"mode": "label-private"}, np.zeros((5, 2)), "makes its own public points"),
        ({}, np.zeros((5, 3)), "3 features"),
        ({}, np.zeros((0, 2)), "0 sample"),
        ({}, WITH_A_GAP, "NaN"),
        ({"student": LinearSVC(C=-1.0)}, np.zeros((9, 2)), "the student does not take the public points"),
        ({"student": KNeighborsClassifier(n_neighbors=99)}, np.zeros((9, 2)), "the student does not take"),
        ({"points": "margin", "student": RidgeClassifier()}, np.zeros((9, 2)), None),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(records, settings, points, text, monkeypatch):
    opened = []
    monkeypatch.setattr(PrivateClassifier, "_open", lambda self, *parts: opened.append(self))
    made = _made(**settings)
    if text is None:  # the spy itself: settings that are sound do get that far
        with pytest.raises(AttributeError):
            made.fit(*records, public=points)
        assert opened
        return
    with pytest.raises(ValueError, match=text):
        made.fit(*records, public=points)
    assert not opened


def test_margin_needs_a_student_that_can_be_unsure(records, public):
    class Sure(KNeighborsClassifier):
        predict_proba = property()

    with pytest.raises(InvalidInput, match="needs a student with predict_proba or decision_function"):
        _made(points="margin", student=Sure()).fit(*records, public=public)


def test_k_centre_needs_numbers():
    frame = pd.DataFrame({"kind": ["a", "b"] * 20})
    model = make_pipeline(OneHotEncoder(), LogisticRegression())
    with pytest.raises(InvalidInput, match="needs a matrix of numbers"):
        _made(estimator=model, points="k-centre", teachers=2).fit(frame, ["no", "yes"] * 20, public=frame)
