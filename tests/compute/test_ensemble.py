"""Records become ballots, one unit in one teacher; ballots stay sealed."""

import copy
import json
import logging
import os
import pickle
import random
import subprocess
import sys
import threading
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from quorate import Infeasible, InvalidInput
from quorate.compute.ensemble import Ensemble, deal_units
from quorate.compute.ensemble.dealing import _secret_permutation
from quorate.compute.ensemble.estimators import EstimatorTeachers, fit_estimators
from quorate.compute.learners import Deal
from quorate.core.ballots import Ballots
from quorate.core.estimator_calls import CALL, call_rows
from quorate.models.predictors.labels import class_codes, declared_classes
from quorate.tables.persons import unit_numbers
from support import isolation

PAIRS = 1000


# Units


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.data())
def test_every_unit_goes_to_one_teacher_and_chunks_differ_by_one_unit(names, data):
    units, count = unit_numbers(len(names), np.array(names))
    teachers = data.draw(st.integers(1, count))
    held_out = data.draw(st.integers(0, count - teachers))
    deal, held = deal_units(units, count, teachers=teachers, held_out=held_out)
    chunks = np.split(deal.rows, np.cumsum(deal.sizes)[:-1])
    owners = [{names[row] for row in chunk} for chunk in chunks]
    assert sum(len(owner) for owner in owners) == count - held_out  # nobody is in two chunks
    assert {len(owner) for owner in owners} <= {(count - held_out) // teachers, -(-(count - held_out) // teachers)}
    assert len({names[row] for row in held}) == held.size == held_out
    assert not {names[row] for row in held} & set().union(*owners)


def test_the_deal_is_a_uniform_permutation_of_positions():
    """Chi-square of where unit 0 sits, 2000 deals to 5 teachers: false alarm 1e-9."""
    from scipy.stats import chi2

    units, count = unit_numbers(20)
    seats = [int(np.repeat(np.arange(5), deal.sizes)[deal.rows == 0][0]) for deal, _ in
             (deal_units(units, count, teachers=5) for _ in range(2000))]  # fmt: skip
    observed = np.bincount(seats, minlength=5)
    assert ((observed - 400) ** 2 / 400).sum() < chi2.isf(1e-9, 4)


@pytest.mark.parametrize("names", [["a"], np.array([["a"]] * 3), np.array(["a"] * 4), []], ids=str)
def test_groups_of_another_shape_are_refused(names):
    with pytest.raises(InvalidInput, match="groups must"):
        unit_numbers(3, names)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "names",
    [
        [1.0, float("nan"), 2.0, None],
        np.array(["a", None, "b", float("nan")], dtype=object),
        np.array(["7", np.nan, "8", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan)),
        np.array(["7", None, "8", None], dtype=np.dtypes.StringDType(na_object=None)),
        np.array(["2024-05-31", "NaT", "2024-06-01", "NaT"], dtype="datetime64[D]"),
        np.array([1, complex("nan"), 2, 1j]),
        [7, [1], 8, "\ud800"],
        [7, (1, 2), 8, {}],
    ],
    ids=str,
)
def test_rows_that_name_nobody_belong_to_one_unknown_person(names):
    assert unit_numbers(4, names)[0].tolist() == [0, 1, 2, 1]
    assert unit_numbers(4, names)[1] == 3


def test_no_name_of_a_list_says_how_the_others_are_read():
    for names in ([2**53, 2**53 + 2, 0.5], [1, "1.5", 2], ["a", "a\0", 3], ["7", "-7", "0"], ["7.5", "7a", "0x7"]):
        assert unit_numbers(3, names)[0].tolist() == [0, 1, 2]
    for names in (
        [7, 8, "7"],
        ["7", "8", " 7 "],
        np.array(["7", "8", "7 "]),
        [7, 8, np.float32(7)],
        ["7", 8, Decimal("7.0")],
        [7, 8, "7.0"],
        np.array(["007", "+8", "7."]),
        ["000", "1", 0],
    ):
        assert unit_numbers(3, names)[0].tolist() == [0, 1, 0], "a person who is written in two ways is one"
    for names in (np.array([b"7", b"8", b"07"]), [b"7", b"8", " 7 "], np.array([b"7", "8", 7.0], dtype=object)):
        assert unit_numbers(3, names)[0].tolist() == [0, 1, 0], "bytes are texts too"
    assert unit_numbers(3, [7, 8, 7])[1] == 2
    assert unit_numbers(4, [True, 1, "1", "true"])[0].tolist() == [0, 1, 1, 0], "though Python takes True for 1"
    assert unit_numbers(3, [["a"], "b", None])[0].tolist() == [0, 1, 0], "a list is no name, and refuses nobody"


def test_more_teachers_than_units():
    with pytest.raises(Infeasible, match="4 units cannot be dealt to teachers=5: each teacher needs at least one"):
        deal_units(*unit_numbers(4), teachers=5)


# Sealed


def test_ballots_do_not_leave():
    ballots = Ballots(np.array([[123, 877], [456, 544]]))
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s %r", (ballots, ballots), None).getMessage()
    shown = [
        repr(ballots),
        str(ballots),
        f"{ballots}",
        f"{ballots!s:>30}",
        record,
        repr([ballots]),
    ]
    assert not any(secret in text for text in shown for secret in ("123", "877", "456", "544"))
    assert not hasattr(ballots, "__dict__")
    for leak in (
        lambda: pickle.dumps(ballots),
        lambda: copy.copy(ballots),
        lambda: copy.deepcopy(ballots),
        lambda: json.dumps(ballots),
        lambda: np.asarray(ballots),
        lambda: list(ballots),
        lambda: ballots == ballots,
        lambda: {ballots},
        lambda: ballots[0],
    ):
        with pytest.raises(TypeError):
            leak()


# Teachers


def test_a_chunk_with_one_class_or_none_still_votes():
    X, codes = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 2, 2])
    deal = Deal.of([[0, 1], [2, 3], []])
    for estimator in (LogisticRegression(), DecisionTreeClassifier()):
        ensemble = Ensemble.fit(X, codes, deal, estimator=estimator, classes=3)
        assert ensemble.electorate.ballots(np.array([[0.0], [1.0]])).tolist() == [[0, 2, 0], [1, 2, 0]]


class Picky(DecisionTreeClassifier):
    """Fails where its rows are unusual, at fit or at predict, loudly."""

    def fit(self, X, y):
        if (X > 100).any():
            raise RuntimeError(f"cannot take {X.max()}")
        warnings.warn("fitted", stacklevel=1)
        self.odd_ = (X > 50).any()
        return super().fit(X, y)

    def predict(self, X):
        if self.odd_:
            raise RuntimeError("cannot answer")
        return super().predict(X)


def test_a_teacher_that_fails_votes_for_its_majority_and_nobody_hears_of_it(capfd, recwarn):
    X = np.array([[0.0], [1.0], [0.0], [101.0], [0.0], [60.0], [70.0]])
    codes = np.array([0, 1, 0, 1, 1, 0, 1])
    deal = Deal.of([[0, 1], [2, 3], [4, 5, 6]])
    teachers = fit_estimators(Picky(), X, codes, deal, classes=2)
    assert teachers.ballots(np.array([[0.0], [1.0]])).tolist() == [[0, 0, 1], [1, 0, 1]]
    assert teachers.votes(np.array([[0.0], [1.0]])).tolist() == [[2, 1], [1, 2]]
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


class Rambling(DecisionTreeClassifier):
    """Answers with numbers that are no classes, or too many."""

    def predict(self, X):
        return np.full(len(X) + self.max_depth - 1, 17)


def test_one_query_does_not_decide_the_ballot_of_another():
    """A tree refuses 1e300; the other queries of its batch are answered as if it were not there."""
    X = np.random.default_rng(0).normal(size=(400, 2))
    deal, _ = deal_units(*unit_numbers(400), teachers=20)
    ensemble = Ensemble.fit(X, (X[:, 0] > 0).astype(int), deal, estimator=DecisionTreeClassifier(), classes=2)
    queries = X[:60].copy()
    alone = ensemble.electorate.ballots(queries)
    queries[31] = 1e300
    together = ensemble.electorate.ballots(queries)
    others = np.arange(60) != 31
    assert (alone[others] == together[others]).all()
    assert (ensemble.electorate.votes(queries)[others] == ensemble.electorate.votes(X[:60])[others]).all()


class Chatty(DecisionTreeClassifier):
    """Warns of its rows, from whatever thread it is fitted in."""

    def fit(self, X, y):
        warnings.warn(f"mean {X.mean()}", stacklevel=1)
        return super().fit(X, y)


def test_classifiers_in_two_threads_are_silent_and_leave_the_filters_alone():
    X = np.random.default_rng(0).normal(size=(200, 2))
    deal, _ = deal_units(*unit_numbers(200), teachers=20)
    ensembles = [fit_estimators(Chatty(), X, (X[:, 0] > 0).astype(int), deal, classes=2) for _ in range(2)]
    for ensemble in ensembles:
        for model in filter(None, (model for model, _ in ensemble.fitted)):  # a chunk of one class has none
            model.predict = lambda X, model=model: [warnings.warn("mean", stacklevel=1), model.apply(X) % 2][1]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before, state = list(warnings.filters), np.random.get_state()[1].tolist()  # noqa: NPY002
        threads = [threading.Thread(target=lambda e=e: [e.votes(X[:20]) for _ in range(15)]) for e in ensembles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert warnings.filters == before
        assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    assert not seen


def test_threads_are_silent_too():
    X = np.random.default_rng(0).normal(size=(900, 2))
    deal, _ = deal_units(*unit_numbers(900), teachers=150)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        fit_estimators(Chatty(), X, (X[:, 0] > 0).astype(int), deal, classes=2, n_jobs=4, backend="threading")
        assert warnings.filters == before
    assert not seen


def test_how_many_rows_a_teacher_is_asked_with():
    for estimator, rows in (
        (DecisionTreeClassifier(), None),
        (RandomForestClassifier(2), None),
        (make_pipeline(StandardScaler(), RandomForestClassifier(2)), CALL),
        (make_pipeline(FunctionTransformer(np.sqrt), DecisionTreeClassifier()), CALL),  # value by value
        (make_pipeline(FunctionTransformer(lambda X: X), DecisionTreeClassifier()), 1),
        (make_pipeline(StandardScaler(), Chatty()), 1),
        (Chatty(), 1),
    ):
        assert call_rows(estimator) == rows


@pytest.mark.parametrize("depth", [1, 2])
def test_a_ballot_that_is_no_class_is_counted_for_the_majority(depth):
    X, codes = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 1])
    teachers = fit_estimators(Rambling(max_depth=depth), X, codes, Deal.of([[0, 1, 2]]), classes=2)
    assert teachers.votes(np.zeros((2, 1))).tolist() == [[0, 1], [0, 1]]


def test_a_setting_that_no_rows_could_satisfy_is_told():
    X, codes = np.zeros((20, 2)), np.arange(20) % 2
    deal, _ = deal_units(*unit_numbers(20), teachers=4)
    with pytest.raises(InvalidInput, match=r"tried on rows that are not private.*n_neighbors"):
        Ensemble.fit(X, codes, deal, estimator=KNeighborsClassifier(n_neighbors=-3), classes=2)


@pytest.mark.filterwarnings("error")
def test_many_classes_are_no_surprise():
    """scikit-learn asks whether so many are a regression: by labels that may be private, or of a header by none."""
    known, labels = declared_classes(range(25), np.arange(25))
    assert known.tolist() == labels.tolist()
    known, labels = declared_classes(None, np.arange(25))
    assert known.tolist() == labels.tolist()


# Isolation


def _codes(y, classes=(0, 1, 2)):
    known, labels = declared_classes(classes, y)
    return class_codes(known, labels)


def _ballots(estimator, *, prepare=lambda X: X, classes=(0, 1, 2), deal=None, groups=False):
    def ballots(X, y, names):
        made = deal or (lambda X, names: deal_units(*unit_numbers(len(X), names if groups else None), teachers=12)[0])
        ensemble = Ensemble.fit(prepare(X), _codes(y, classes), made(X, names), estimator=estimator, classes=3)
        return ensemble.electorate.ballots(isolation.QUERIES)

    return ballots


def _most_changed(ballots, monkeypatch, *, pairs=PAIRS, groups=False, enough=None):
    generator, tape, most, moved = np.random.default_rng(5), isolation.Tape(3), 0, 0
    for _ in range(0, pairs, isolation.NEIGHBOURS):
        sets = isolation.neighbours(generator, groups=groups)
        counts = [changed.size for changed in isolation.changed_teachers(ballots, sets, tape, monkeypatch)]
        most, moved = max(most, *counts), moved + np.count_nonzero(counts)
        if enough is not None and most > enough:
            break
    return most, moved


@pytest.mark.parametrize(
    ("estimator", "groups", "pairs"),
    [
        pytest.param(LogisticRegression(), True, 300, id="logistic-people"),
        pytest.param(GaussianNB(), False, 300, id="naive_bayes-rows"),
        pytest.param(LogisticRegression(), True, PAIRS, marks=pytest.mark.long, id="logistic-people-all"),
        pytest.param(GaussianNB(), False, PAIRS, marks=pytest.mark.long, id="naive_bayes-rows-all"),
        pytest.param(LogisticRegression(), False, PAIRS, marks=pytest.mark.long, id="logistic-rows"),
        pytest.param(GaussianNB(), True, PAIRS, marks=pytest.mark.long, id="naive_bayes-people"),
    ],
)
def test_a_neighbour_changes_the_ballots_of_one_teacher_at_most(estimator, groups, pairs, monkeypatch):
    most, moved = _most_changed(_ballots(estimator, groups=groups), monkeypatch, pairs=pairs, groups=groups)
    assert most == 1
    assert moved > pairs // 2  # and not because nothing ever changes


def test_isolation_of_estimators_through_joblib(monkeypatch):
    most, moved = _most_changed(_ballots(DecisionTreeClassifier(max_depth=2, random_state=0)), monkeypatch, pairs=200)
    assert most == 1
    assert moved > 50


class Forgetful(DecisionTreeClassifier):
    """Draws from the global generators, more or less often by its rows, and changes the queries it is given."""

    def fit(self, X, y):
        self.shift_ = np.random.normal(size=1 + len(y)).sum() + random.random()  # noqa: NPY002
        return super().fit(X, y)

    def predict(self, X):
        np.random.normal(size=int(abs(self.shift_)))  # noqa: NPY002  as many draws as its rows say
        X += 0.3 * np.random.normal() + 0.3 * random.random()  # noqa: NPY002
        X -= self.shift_
        X *= 1 + self.tree_.value.mean()
        return super().predict(X)


FORKED = {"n_jobs": 2, "backend": "multiprocessing"}
IN_PLACE = make_pipeline(StandardScaler(copy=False), DecisionTreeClassifier())


@pytest.mark.parametrize(
    ("estimator", "jobs"),
    [
        pytest.param(Forgetful(), {}, id="forgetful"),
        pytest.param(RandomForestClassifier(2), {}, id="forest"),
        pytest.param(IN_PLACE, {}, id="in place"),
        pytest.param(Forgetful(), FORKED, id="forgetful, forked"),
        pytest.param(RandomForestClassifier(2), FORKED, id="forest, forked", marks=pytest.mark.long),
        pytest.param(IN_PLACE, FORKED, id="in place, forked", marks=pytest.mark.long),
    ],
)
def test_teachers_share_no_randomness_and_no_memory(estimator, jobs, monkeypatch):
    def ballots(X, y, names):
        deal, _ = deal_units(*unit_numbers(len(X)), teachers=12)
        queries = isolation.QUERIES[:16].copy()  # such an estimator is asked about one at a time
        return fit_estimators(estimator, X, _codes(y), deal, classes=3, **jobs).ballots(queries)

    most, moved = _most_changed(ballots, monkeypatch, pairs=5 if jobs else 25)
    assert most == 1 or (jobs and most <= 1)
    assert moved or jobs


def _by_contents(X, names):
    seed = abs(hash(X.tobytes())) % 2**32
    owner = np.random.default_rng(seed).permutation(len(X)) % isolation.TEACHERS
    return Deal.by_assignment(owner, teachers=isolation.TEACHERS)


class _Bootstrap(DecisionTreeClassifier):
    """Every teacher also sees rows drawn from everybody's."""

    everybody = None

    def call_rows(self):
        return CALL

    def fit(self, X, y):
        rows, codes = type(self).everybody
        drawn = np.random.default_rng(len(X)).integers(0, len(rows), size=30)
        return super().fit(np.concatenate([X, rows[drawn]]), np.concatenate([y, codes[drawn]]))


def _bootstrapped(X, y, names):
    _Bootstrap.everybody = X, _codes(y)
    return _ballots(_Bootstrap())(X, y, names)


LEAKS = {
    "a global scaler": _ballots(LogisticRegression(), prepare=lambda X: StandardScaler().fit_transform(X)),
    "a shuffle seeded by the data": _ballots(LogisticRegression(), deal=_by_contents),
    "a bootstrap": _bootstrapped,
    "rows where people are the units": _ballots(LogisticRegression(), groups=False),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_planted_leaks_are_caught(leak, monkeypatch):
    groups = leak.startswith("rows")
    most, _ = _most_changed(LEAKS[leak], monkeypatch, pairs=200, groups=groups, enough=1)
    assert most > 1


def test_inferred_classes_are_caught(monkeypatch):
    """Labels "a" and "c" are common; a neighbour that shows a "b" moves the number of every "c"."""

    def ballots(X, y, names):
        known, labels = declared_classes(None, np.array(["a", "c", "b"])[y])
        deal, _ = deal_units(*unit_numbers(len(X)), teachers=12)
        ensemble = Ensemble.fit(X, class_codes(known, labels), deal, estimator=LogisticRegression(), classes=3)
        return ensemble.electorate.ballots(isolation.QUERIES)

    most, _ = _most_changed(ballots, monkeypatch, pairs=200, enough=1)
    assert most > 1


# Backends


@pytest.mark.parametrize("backend", ["loky", "threading", None])
def test_backends_fit_the_same_teachers(backend):
    generator = np.random.default_rng(0)
    X, codes = generator.normal(size=(600, 3)), generator.integers(0, 2, size=600)
    deal, _ = deal_units(*unit_numbers(600), teachers=120)
    estimator = DecisionTreeClassifier(max_depth=3, random_state=0)
    plain = fit_estimators(estimator, X, codes, deal, classes=2)
    made = fit_estimators(estimator, X, codes, deal, classes=2, n_jobs=2, backend=backend)
    assert (made.ballots(X[:50]) == plain.ballots(X[:50])).all()


@pytest.mark.long
@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_real_cluster_fits_the_same_teachers(backend, package):
    pytest.importorskip(package, reason=f"{package} is not installed")
    script = Path(__file__).with_name("cluster_fit.py")
    paths = os.pathsep.join([str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(script), backend],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert "fitted elsewhere" in done.stdout, done.stderr[-2000:]


def test_ray_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.util.joblib", None)
    with pytest.raises(InvalidInput, match=r"backend='ray' needs ray; install it: pip install '.*\[ray\]'"):
        fit_estimators(
            DecisionTreeClassifier(), np.zeros((2, 1)), np.array([0, 1]), Deal.of([[0, 1]]), classes=2, backend="ray"
        )


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(2, 4))
def test_votes_are_the_count_of_ballots(queries, classes):
    generator = np.random.default_rng(queries)
    fitted = [(None, int(label)) for label in generator.integers(0, classes, size=30)]
    teachers = EstimatorTeachers(fitted, classes=classes)
    X = generator.normal(size=(queries, 2))
    counted = np.stack([(teachers.ballots(X) == label).sum(axis=1) for label in range(classes)], axis=1)
    assert (teachers.votes(X) == counted).all()


def test_equal_random_words_are_drawn_again(monkeypatch):
    """A tie in the secret order would favour one of two orders."""
    draws = iter([bytes(8) * 3, np.array([3, 1, 2], dtype=np.uint64).tobytes()])
    monkeypatch.setattr("quorate.compute.ensemble.dealing.os.urandom", lambda size: next(draws))
    assert _secret_permutation(3).tolist() == [1, 2, 0]
