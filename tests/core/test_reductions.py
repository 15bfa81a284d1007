"""From query release and from predictions to a hypothesis: claims, bounds, and the bugs that the same tests catch."""

import itertools
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from quorate import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisySum
from quorate.models.concepts import Intervals, Thresholds
from quorate.models.predictors import PrivateClassifier
from quorate.models.students import _tabulated as tabulated
from quorate.models.students._tabulated import (
    NO_ANSWER,
    TabulatedClassifier,
    ask_each_point,
    boosting_runs,
    vote_table,
)
from quorate.models.students.cover import QueryReleaseClassifier

# --- query release -----------------------------------------------------------------------------------------------


def _released(made, X, y, **given):
    """What a fit was about to release, without noise, and by which mechanism."""
    seen = []

    def releases(self, totals, *, budget=None):
        seen.append((self, list(totals)))
        return seen[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisySum, "releases", releases)
        made.fit(X, y, **given)
    ((noisy, totals),) = seen
    return noisy, np.array(totals)


def _data_sets(rows):
    every = list(itertools.product([0.0, 1.0, 2.0], (0, 1)))
    for data in itertools.product(every, repeat=rows):
        yield data, every


@pytest.mark.parametrize("concept", [Thresholds(both_directions=True), Intervals()])
def test_all_answers_together_move_no_more_than_is_paid_for(concept):
    """The Gaussian's divergence is order * (L2 change)**2 / (2 scale**2): here over all data sets of two rows."""
    made = QueryReleaseClassifier(concept, epsilon=1.0, delta=1e-6, classes=[0, 1])
    public = [[0.5], [1.5]]
    known = {}
    for data, _ in _data_sets(2):
        noisy, known[data] = _released(made, [[x] for x, _ in data], [label for _, label in data], public=public)
    moved = max(
        float(((known[data] - known[changed, *data[1:]]) ** 2).sum())
        for data, every in _data_sets(2)
        for changed in every
    )
    candidates = len(known[data])
    order = 8.0
    assert order * moved / (2 * noisy.scale**2) <= candidates * noisy.renyi(order) * (1 + 1e-9)
    assert noisy.epsilon(delta=1e-6, releases=candidates) <= 1.0 + 1e-9
    if concept.vc_dimension == 2 and isinstance(concept, Thresholds):
        assert moved == candidates  # a row can move every one of them: nothing cheaper would do
    # planted: the noise of one answer for all of them
    assert NoisySum.calibrate(epsilon=1.0, delta=1e-6, sensitivity=1).epsilon(delta=1e-6, releases=candidates) > 1.5


def test_rows_of_a_person_count_up_to_a_limit():
    made = QueryReleaseClassifier(Thresholds(), epsilon=1.0, delta=1e-6, classes=[0, 1], records_per_person=2)
    people = ["p"] * 5 + ["q"]
    noisy, totals = _released(made, [[0.0]] * 5 + [[2.0]], [1] * 5 + [1], groups=people, public=[[1.0]])
    assert noisy.sensitivity == 2
    assert totals.tolist() == [0, 3]


def test_the_best_candidate_is_found_and_the_excess_holds():
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(20_000, 1))
    y = np.where(X[:, 0] > 0.3, "yes", "no")
    public = np.linspace(0, 1, 21).reshape(-1, 1)
    made = QueryReleaseClassifier(Thresholds(), epsilon=1.0, delta=1e-6, classes=["no", "yes"])
    made.fit(X, y, public=public)
    true = Thresholds(both_directions=True).dichotomies(public).mistakes(X, (y == "yes").astype(int))
    assert made.mistakes_.shape == true.shape == (42,)  # 22 cuts, in two directions, of which two say the same
    bound = made.excess(beta=1e-9)
    assert np.abs(made.mistakes_ - true).max() <= bound / 2  # fails once in 10**9 fits
    assert 0 < bound < 1000  # and a cut that is 0.05 off makes 1000 mistakes
    assert made.score(X, y) > 0.95
    assert "(1, 1e-06)-differentially private under replacement of one row" in made.claim_
    assert made.spent_epsilon_ <= 1.0
    again = pickle.loads(pickle.dumps(made))
    assert (again.predict(X) == made.predict(X)).all()
    assert clone(made).get_params() == made.get_params()


def test_release_refuses_what_cannot_be_done():
    with pytest.raises(InvalidInput, match="delta"):
        QueryReleaseClassifier(Thresholds(), delta=0.0).fit([[0.0], [1.0]], [0, 1], public=[[0.5]])
    points = np.random.default_rng(0).normal(size=(20_000, 1))
    with pytest.raises(Infeasible, match="listed"):
        QueryReleaseClassifier(Intervals(), classes=[0, 1]).fit(points, np.zeros(20_000, int), public=points)


# --- predictions -------------------------------------------------------------------------------------------------


def test_asking_in_a_fixed_order_can_be_wrong_everywhere_and_in_a_random_order_is_not():
    """Hypothesis number i is wrong at point i alone: each has an error of 1/200 (PROOF_CONCEPTS.md, step 6)."""
    domain = np.arange(200).reshape(-1, 1)

    def ask(points):
        return (points[:, 0] == np.arange(len(points))).astype(int)  # the right label is 0

    assert ask_each_point(ask, domain, order=np.arange(200)).mean() == 1.0
    # the number of fixed points of a random order is about Poisson(1): 15 or more come once in 10**12
    assert ask_each_point(ask, domain).mean() < 15 / 200


def test_the_mean_error_over_all_orders_is_the_mean_error_of_the_hypotheses():
    hypotheses = np.array([[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]])
    domain = np.arange(4).reshape(-1, 1)
    found = [
        ask_each_point(lambda points: hypotheses[np.arange(4), points[:, 0]], domain, order=np.array(order)).mean()
        for order in itertools.permutations(range(4))
    ]
    assert math.isclose(np.mean(found), hypotheses.mean())


@pytest.mark.parametrize("beta", [0.3, 0.05, 1e-4])
def test_runs_are_enough_for_a_good_majority(beta):
    runs = boosting_runs(beta=beta)
    assert binom.cdf(math.ceil(5 / 8 * runs) - 1, runs, 3 / 4) <= beta
    assert binom.cdf(math.ceil(7 / 8 * 300) - 1, 300, 5 / 8) > 0.99  # as printed: seven eighths of 104 ln(1/0.05)


@pytest.mark.parametrize(("share", "factor"), [(5 / 8, 40), (9 / 16, 72)])
def test_the_factor_of_the_majority_is_reached_and_not_passed(share, factor):
    """Bad runs are wrong everywhere; good ones put their error of 8 alpha where it hurts most."""
    runs, points, alpha = 320, 1000, 0.001
    good = int(share * runs)
    needed = runs // 2 - (runs - good)
    wrong = np.ones((runs, points), dtype=np.int64)
    wrong[:good] = 0
    budget = np.full(good, int(8 * alpha * points))
    for point in range(points):
        chosen = np.argsort(-budget, kind="stable")[:needed]
        if budget[chosen].min() == 0:
            break
        budget[chosen] -= 1
        wrong[chosen, point] = 1
    table = vote_table(1 - wrong, classes=2)  # ties go to class 0, which is the wrong one
    error = float((table == 0).mean())
    assert 0.8 * factor * alpha <= error <= factor * alpha


def test_a_vote_without_answers_and_with_ties():
    answers = np.array([[NO_ANSWER, 2, 0], [NO_ANSWER, 2, 1], [NO_ANSWER, NO_ANSWER, NO_ANSWER]])
    assert vote_table(answers, classes=3).tolist() == [0, 2, 0]


class Teller(ClassifierMixin, BaseEstimator):
    """A predictor that keeps which rows and how many queries it was given."""

    seen: list = []  # noqa: RUF012

    def __init__(self, queries=1, classes=None):
        self.queries = queries
        self.classes = classes

    def fit(self, X, y, groups=None):
        self.claim_ = "told"
        Teller.seen.append((X[:, 0].tolist(), self.queries, list(self.classes), groups))
        return self

    def predict(self, X):
        return np.array([None if x == 3 else "b" if x > 1 else "a" for x in X[:, 0]], dtype=object)


def test_every_unit_is_in_one_sample_and_its_rows_stay_together():
    Teller.seen.clear()
    X = np.arange(30.0).reshape(-1, 1)
    groups = np.repeat(np.arange(10), 3)
    made = TabulatedClassifier(Teller(), runs=4).fit(X, ["a", "b"] * 15, groups=groups, domain=[[0.0], [2.0], [3.0]])
    rows = [set(given) for given, *_ in Teller.seen]
    assert sum(map(len, rows)) == 30
    assert set().union(*rows) == set(X[:, 0])
    for given, queries, classes, people in Teller.seen:
        assert queries == 3
        assert classes == ["a", "b"]
        assert list(people) == [int(x) // 3 for x in given]
        assert all({3.0 * person, 3.0 * person + 1, 3.0 * person + 2} <= set(given) for person in people)
    assert sorted(len(given) // 3 for given in rows) == [2, 2, 3, 3]
    assert made.table_.tolist() == ["a", "b", "a"]  # no run says anything of the third: the first class
    assert "told; the points of the domain are public; the label set was read from y" in made.claim_


def _shared(units, count, *, teachers):
    """Planted: every row in every sample."""
    return SimpleNamespace(rows=np.tile(np.arange(units.size), teachers), sizes=np.full(teachers, units.size)), None


def _by_row(units, count, *, teachers):
    """Planted: rows are dealt, whoever they belong to."""
    return tabulated_deal(np.arange(units.size), units.size, teachers=teachers)


tabulated_deal = tabulated.deal_units


@pytest.mark.parametrize("planted", [_shared, _by_row])
def test_planted_samples_that_share_a_unit_are_caught(planted, monkeypatch):
    monkeypatch.setattr(tabulated, "deal_units", planted)
    with pytest.raises(AssertionError):
        test_every_unit_is_in_one_sample_and_its_rows_stay_together()


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    X = generator.integers(0, 4, size=(6000, 2)).astype(float)
    y = np.where(X.sum(axis=1) > 3, "yes", "no")
    domain = np.array(list(itertools.product(range(4), repeat=2)), dtype=float)
    predictor = PrivateClassifier(epsilon=4.0, teachers=60, aggregator="sharp_majority")
    made = TabulatedClassifier(predictor, runs=5, classes=["no", "yes"])
    return made.fit(X, y, domain=np.concatenate([domain, domain]))


def test_a_table_is_an_ordinary_classifier(table):
    assert table.domain_.shape == (16, 2)
    corners = table.predict([[0.0, 0.0], [3.0, 3.0], [-0.0, 0.0]])
    assert corners.tolist() == ["no", "yes", "no"]  # 60 teachers of one mind, epsilon 4 for 16 queries: below 1e-9
    assert "(4, 1e-06)" in table.claim_
    assert "the points of the domain are public" in table.claim_
    again = pickle.loads(pickle.dumps(table))
    assert (again.predict(table.domain_) == table.table_).all()
    with pytest.raises(InvalidInput, match="not of the domain"):
        table.predict([[0.5, 0.5]])
    assert clone(table).get_params(deep=False).keys() == table.get_params(deep=False).keys()


def test_tables_refuse_what_cannot_be_done():
    with pytest.raises(InvalidInput, match="a finite domain is needed"):
        TabulatedClassifier().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(Infeasible, match="each teacher needs at least one"):
        TabulatedClassifier(Teller(), runs=3).fit([[0.0], [1.0]], [0, 1], domain=[[0.0]])
    with pytest.raises(InvalidInput, match="runs must be a whole number"):
        TabulatedClassifier(Teller(), runs=0).fit([[0.0], [1.0]], [0, 1], domain=[[0.0]])
    with pytest.raises(ValueError, match="inconsistent"):
        TabulatedClassifier(Teller(), runs=1).fit([[0.0], [1.0]], [0, 1, 1], domain=[[0.0]])
