"""A ballot is a function of its teacher and its query, whatever else is asked with it."""

import asyncio
import threading
import time
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import NMF
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from quorate import EverlastingClassifier, PrivateClassifier
from quorate.compute.ensemble.estimators import EstimatorTeachers, fit_estimators
from quorate.compute.learners import Deal
from quorate.core.ballots import Ballots
from quorate.core.estimator_calls import CALL, call_rows
from quorate.core.requests import Replies, Request
from quorate.models.concepts._finite import Member
from quorate.service._app import make_app
from quorate.service._settings import Settings
from quorate.service.model import Model
from support.service_client import call, features, running


class BatchNorm(ClassifierMixin, BaseEstimator):
    """Compares with the mean of the batch: no model should, and some do."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return (X[:, 0] >= X[:, 0].mean()).astype(int)


POLYNOMIAL = make_pipeline(PolynomialFeatures(2), LogisticRegression(class_weight="balanced"))
LEARNERS = {
    "tree": DecisionTreeClassifier(),
    "forest": RandomForestClassifier(3),
    "boosted": HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=4),
    "polynomial": POLYNOMIAL,
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "neighbours": KNeighborsClassifier(3),
    "kernel": SVC(),
    "network": MLPClassifier((4,), max_iter=3),
    "of the batch": BatchNorm(),
}
HOSTILE = np.array([[1e200, 0.0, 0.0], [1e300, -1e300, 1e300], [1e38, 1e38, 1e38], [5e-324, 0.0, 0.0]])


def teachers(estimator, chunks=6, rows=30):
    random = np.random.default_rng(3)
    X = random.normal(size=(chunks * rows, 3))
    y = (X[:, 0] + 0.5 * random.normal(size=len(X)) > 0).astype(int)
    return fit_estimators(estimator, X, y, Deal(np.arange(len(X)), np.full(chunks, rows)), classes=2)


def boundary(fitted, count):
    """Return queries on which some linear teacher is as good as undecided: the last bit decides."""
    random = np.random.default_rng(11)
    low, high = random.normal(size=(count, 3)) - 2, random.normal(size=(count, 3)) + 2
    model = next(model for model, _ in fitted.fitted if model is not None)
    for _ in range(60):
        middle = (low + high) / 2
        up = model.predict(middle) == 1
        low, high = np.where(up[:, np.newaxis], low, middle), np.where(up[:, np.newaxis], middle, high)
    return np.concatenate([low, high])


@pytest.mark.parametrize("learner", LEARNERS)
def test_company_decides_no_ballot(learner):
    fitted = teachers(LEARNERS[learner])
    random = np.random.default_rng(0)
    queries = np.concatenate([boundary(fitted, 20), random.normal(size=(60, 3))])
    if learner == "of the batch":
        queries = queries[:20]
    alone = np.concatenate([fitted.ballots(queries[[place]]) for place in range(len(queries))])
    for batch in range(4):
        company = random.normal(size=(int(random.integers(0, 700 if learner != "of the batch" else 20)), 3))
        hostile = HOSTILE[: int(random.integers(0, 5))]
        together = np.concatenate([queries, company, hostile])
        order = random.permutation(len(together))
        with threadpool_limits(limits=1 + batch % 2):
            ballots = fitted.ballots(together[order])[np.argsort(order)]
        assert (ballots[: len(queries)] == alone).all()


def test_a_row_that_fails_moves_no_other():
    """One query of 1e200 halved the batch, and with it the shape in which all others were summed."""
    fitted = teachers(POLYNOMIAL)
    near = boundary(fitted, 30)
    benign = np.concatenate([near, np.ones((1, 3))])
    beside = np.concatenate([near, np.full((1, 3), 1e200)])
    assert (fitted.ballots(benign)[:-1] == fitted.ballots(beside)[:-1]).all()


class Pickier(DecisionTreeClassifier):
    """Refuses what its rows have not prepared it for."""

    def call_rows(self):
        return CALL

    def predict(self, X):
        if (np.abs(X) > 3 + self.tree_.threshold[0]).any():
            raise ValueError("never seen")
        return super().predict(X)


def test_failures_of_one_teacher_are_its_own():
    fitted = teachers(Pickier(max_depth=2))
    queries = np.random.default_rng(5).normal(size=(300, 3)) * 2
    alone = np.concatenate([fitted.ballots(queries[[place]]) for place in range(len(queries))])
    assert (fitted.ballots(queries) == alone).all()
    for column, (model, majority) in enumerate(fitted.fitted):
        refused = (np.abs(queries) > 3 + model.tree_.threshold[0]).any(axis=1)
        assert (alone[refused, column] == majority).all()
        assert refused.any()


def test_shapes_of_calls_are_fixed():
    class Watcher(DecisionTreeClassifier):
        seen: ClassVar[set] = set()

        def call_rows(self):
            return CALL

        def predict(self, X):
            type(self).seen.add(X.shape)
            return super().predict(X)

    fitted = teachers(Watcher())
    for count in (1, 2, 255, 256, 257, 1000):
        fitted.votes(np.random.default_rng(count).normal(size=(count, 3)))
    assert Watcher.seen == {(CALL, 3)}


class ByPlace(DecisionTreeClassifier):
    """Answers by where a row stands, as a product of matrices does in its last bit."""

    def call_rows(self):
        return CALL

    def predict(self, X):
        return np.arange(len(X)) % 2


def test_a_query_stands_where_its_digest_says():
    fitted = teachers(ByPlace())
    queries = np.random.default_rng(0).normal(size=(600, 3))
    alone = np.concatenate([fitted.ballots(queries[[place]]) for place in range(len(queries))])
    assert 0.3 < alone.mean() < 0.7
    for count in (2, 17, 600):
        assert (fitted.ballots(queries[:count]) == alone[:count]).all()
        assert (fitted.ballots(queries[-count:][::-1]) == alone[-count:][::-1]).all()


def test_no_query_at_all():
    assert EstimatorTeachers([(None, 0)], classes=2).ballots(np.empty((0, 3))).shape == (0, 1)
    assert teachers(DecisionTreeClassifier()).votes(np.empty((0, 3))).shape == (0, 2)
    assert teachers(KNeighborsClassifier()).votes(np.empty((0, 3))).shape == (0, 2)


def test_members_of_a_list_label_a_point_by_itself():
    """A private row on which a member raises must not change the shape in which it sees the others."""
    weights = np.random.default_rng(1).normal(size=(8, 1))

    def linear(X):
        if not np.isfinite(X).all() or (np.abs(X) > 1e100).any():
            raise ValueError
        return (X @ weights).ravel() > 0

    member = Member(features=8, index=0, rule=linear)
    points = np.random.default_rng(2).normal(size=(400, 8))
    points -= (points @ weights) * weights.T / (weights**2).sum()  # on its boundary
    for other in (np.zeros((1, 8)), np.full((1, 8), 1e200)):
        first = member.predict(np.concatenate([other, points]))[1:]
        assert (first == member.predict(points)).all()


class Recorder:
    """Stands between an ensemble and its mechanism, and holds each query's votes against those it had before."""

    def __init__(self, ensemble):
        self._ensemble, self.votes, self.asked = ensemble, {}, 0
        ensemble.count = self.count

    def count(self, X):
        votes = self._ensemble.electorate.votes(X)
        for row, found in zip(X, votes, strict=True):
            assert (self.votes.setdefault(row.tobytes(), found) == found).all()
            self.asked += 1
        return Ballots(votes)


def company(count, seed=0):
    """Yield batches of random sizes whose rows come again and again, in other places and company."""
    random = np.random.default_rng(seed)
    queries = np.concatenate([random.normal(size=(count, 3)), HOSTILE, -HOSTILE])
    for most in (1, 64, 4096):
        order, start = random.permutation(len(queries)), 0
        if most == 1:
            order = order[:200]
        while start < len(order):
            size = int(random.integers(1, most + 1))
            yield queries[order[start : start + size]]
            start += size


def asked_by_strangers(learner, count):
    """Ask through `ask_all`, each batch as requests of several callers, so that nothing is remembered."""
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 3))
    classifier = private(learner)
    classifier.fit(X, (X[:, 0] > 0).astype(int))
    recorder = Recorder(classifier.session_.answerer.ensemble)
    for number, batch in enumerate(company(count)):
        parts = [part for part in np.array_split(batch, 3) if len(part)]
        requests = [Request(part, caller=f"{number}-{place}") for place, part in enumerate(parts)]
        assert all(isinstance(reply, Replies) for reply in classifier.session_.ask_all(requests))
    return recorder


@pytest.mark.parametrize(
    "learner", [LogisticRegression(), LEARNERS["tree"], POLYNOMIAL], ids=["logistic", "tree", "polynomial"]
)
def test_votes_through_a_session_do_not_depend_on_company(learner):
    recorder = asked_by_strangers(learner, 300)
    assert recorder.asked > 2 * len(recorder.votes) > 600


def everlasting(learner):
    """Return a classifier whose first phase takes all that is asked here."""
    settings = {"chunk": 100, "phase_size": 10**6, "no_quorums": 10**5, "classes": [0, 1]}
    return EverlastingClassifier(learner, epsilon=1e6, delta=1e-2, **settings)


def private(learner):
    return PrivateClassifier(learner, teachers=15, epsilon=1e6, delta=1e-2, queries=10**6, aggregator="noisy_max")


def asked_over_http(classifier, count):
    """Ask through a server, eight requests at a time."""
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 3))
    recorder = Recorder(classifier.fit(X, (X[:, 0] > 0).astype(int)).session_.answerer.ensemble)
    settings = Settings(models={"m": "m"}, keys=False, pace_ms=0.0, body_limit=2**24, row_limit=4096)

    async def main():
        async with running(make_app([Model.of("m", classifier)], settings)) as app:
            batches = list(company(count))
            while batches:
                sent = [batches.pop() for _ in range(min(8, len(batches)))]
                bodies = [features(*batch.tolist()) for batch in sent]
                got = await asyncio.gather(*(call(app, "POST", "/v2/models/m/infer", body) for body in bodies))
                assert all(one.status == 200 for one in got)

    asyncio.run(main())
    return recorder


@pytest.mark.parametrize("make", [private, everlasting])
def test_votes_through_http_do_not_depend_on_company(make):
    assert len(asked_over_http(make(POLYNOMIAL), 150).votes) == 158


@pytest.mark.long
@pytest.mark.parametrize("learner", [LogisticRegression(), LEARNERS["tree"], POLYNOMIAL])
@pytest.mark.parametrize("make", [private, everlasting])
def test_a_hundred_thousand_queries_through_http(make, learner):
    assert len(asked_over_http(make(learner), 100_000).votes) == 100_008


@pytest.mark.long
@pytest.mark.parametrize(
    "learner", [LogisticRegression(), GaussianNB(), *LEARNERS.values()], ids=["logistic", "naive Bayes", *LEARNERS]
)
def test_a_hundred_thousand_queries_in_random_company(learner):
    """Alone, in random batches of up to 64 and up to 4,096, in random order: a query has the same votes each time."""
    count = 3_000 if call_rows(learner) == 1 else 100_000
    recorder = asked_by_strangers(learner, count)
    assert len(recorder.votes) == count + 2 * len(HOSTILE)


class Counter(BatchNorm):
    """Votes by how often it was asked, which it keeps deep inside."""

    def fit(self, X, y):
        self.asked_ = [0]
        return super().fit(X, y)

    def predict(self, X):
        self.asked_[0] += 1
        return np.full(len(X), self.asked_[0] % 2)


WHOLE = {
    "a mean in scikit-learn": make_pipeline(NMF(2, solver="mu", max_iter=50), LogisticRegression()),
    "draws that go on": make_pipeline(IterativeImputer(sample_posterior=True, max_iter=2), LogisticRegression()),
    "a generator that goes on": DummyClassifier(strategy="stratified", random_state=np.random.RandomState(0)),
    "hidden in a grid": GridSearchCV(Pipeline([("last", LogisticRegression())]), {"last": [BatchNorm()]}, cv=2),
    "a counter": Counter(),
}


@pytest.mark.parametrize("learner", WHOLE)
def test_estimators_that_look_at_a_batch_or_remember_are_asked_alone(learner):
    rng = np.random.default_rng(1)
    X = np.abs(rng.normal(size=(120, 3)))
    X[::7, 1] = np.nan if learner == "draws that go on" else 1.0
    deal = Deal.of([list(range(place, 120, 3)) for place in range(3)])
    teachers = fit_estimators(WHOLE[learner], X, (X[:, 0] > 0.6).astype(int), deal, classes=2)
    assert call_rows(teachers.fitted[0][0]) == 1
    queries = X[:12] * 0.9
    alone = np.concatenate([teachers.ballots(row[np.newaxis]) for row in queries])
    for company in (queries * 1000, X[20:29]):
        assert np.array_equal(teachers.ballots(np.concatenate([company, queries]))[len(company) :], alone)
    assert np.array_equal(teachers.ballots(queries), alone)


def test_linear_algebra_keeps_to_one_thread_while_anybody_counts():
    """Whoever leaves first does not lift the limit for those who are still counting, nor leave it behind."""
    seen, started = [], threading.Event()

    class Slow:
        def call_rows(self):
            return 1

        def predict(self, X):
            started.set()
            time.sleep(0.05)
            seen.extend(one["num_threads"] for one in threadpool_info())
            return np.zeros(len(X))

    before = [one["num_threads"] for one in threadpool_info()]
    counting = [EstimatorTeachers([(Slow(), 0)] * length, classes=2) for length in (2, 4)]
    threads = [threading.Thread(target=one.votes, args=(np.zeros((1, 1)),)) for one in counting]
    for thread in threads:
        thread.start()
        started.wait()
    for thread in threads:
        thread.join()
    assert set(seen) == {1}
    assert [one["num_threads"] for one in threadpool_info()] == before


def test_a_limit_that_another_thread_has_set_is_taken_over():
    """From threadpoolctl 3.8 on, a second thread that limits OpenBLAS changes nothing, and is not told."""
    seen = []

    class Looks:
        def call_rows(self):
            return 1

        def predict(self, X):
            seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
            return np.zeros(len(X))

    counting = EstimatorTeachers([(Looks(), 0)], classes=2)
    with threadpool_limits(limits=2, user_api="blas"):
        thread = threading.Thread(target=counting.votes, args=(np.zeros((1, 1)),))
        thread.start()
        thread.join()
        assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {2}
    assert set(seen) == {1}
