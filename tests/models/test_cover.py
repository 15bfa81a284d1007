"""Learners over a public cover: exact laws over all small data sets, planted bugs, behaviour as estimators."""

import itertools
import math
import pickle
import struct

import numpy as np
import pytest
from sklearn.base import clone

from quorate import Infeasible, InvalidInput
from quorate.auditing._choices import choice_law
from quorate.core.mechanisms import NoisySum
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.models.concepts import Boxes, Conjunctions, Halfspaces, Intervals, Stumps, Thresholds
from quorate.models.predictors.concept_classifier import UnitRows
from quorate.models.students import cover
from quorate.models.students.cover import QueryReleaseClassifier, SemiPrivateClassifier

SECRET = 0.123456789  # stands in the private rows and nowhere else
LINE = [0.0, 1.0, 2.0]
SQUARE = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (2.0, 1.0)]


class Caught(Exception):
    """Carries what a fit was about to draw from."""


def _choose(self, tally, *, budget=None):
    raise Caught(self, tally)


def law(made, X, y, *, rate=None, **given):
    """The exact law of what a fit chooses: its own tally and rate, caught where it would draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExponentialChoice, "choose", _choose)
        with pytest.raises(Caught) as caught:
            made.fit(X, y, **given)
    choice, tally = caught.value.args
    return choice_law(tally, choice.rate if rate is None else rate)


def loss(here, there):
    if here.keys() != there.keys():
        return math.inf
    return max(math.log(here[chosen] / there[chosen]) for chosen in here)


def laws_of(made, points, rows, **given):
    every = list(itertools.product(points, (0, 1)))
    laws = {}
    for data in itertools.product(every, repeat=rows):
        X = np.array([x for x, _ in data], dtype=float).reshape(rows, -1)
        laws[data] = law(made, X, [label for _, label in data], **given)
    return laws, every


def worst(made, points, rows, **given):
    """The largest loss over all data sets of this many rows when the first row is replaced."""
    laws, every = laws_of(made, points, rows, **given)
    return max(loss(laws[data], laws[changed, *data[1:]]) for data in laws for changed in every)


def _made(concept, **settings):
    return SemiPrivateClassifier(concept, **({"epsilon": 2.0, "classes": [0, 1]} | settings))


CLASSES = [
    (Thresholds(both_directions=True), LINE, [[0.5], [1.5], [1.5], [9.0]]),
    (Intervals(), LINE, [[-1.0], [0.5], [1.5]]),
    (Stumps(features=2), SQUARE, [[0.5, 0.5], [1.0, 0.2], [0.0, 3.0]]),
    (Conjunctions([3, 2]), SQUARE, [[0.0, 0.0], [1.0, 1.0]]),
    (Boxes(2), SQUARE, [[0.5, 0.5], [1.0, 0.2], [0.0, 3.0]]),
    (Halfspaces(2), SQUARE, [[0.5, 0.5], [1.0, 0.2], [0.0, 3.0]]),
]


@pytest.mark.parametrize(("concept", "points", "public"), CLASSES, ids=lambda value: type(value).__name__)
def test_the_claim_bounds_all_small_data_sets_and_is_not_idle(concept, points, public):
    found = worst(_made(concept), points, 2, public=public)
    assert 0.5 * 2.0 < found <= 2.0 + 1e-9


def test_three_rows_and_a_small_epsilon():
    assert worst(_made(Intervals(), epsilon=0.1), LINE, 3, public=[[-1.0], [0.5], [1.5]]) <= 0.1 + 1e-9


def test_planted_weights_without_the_half_are_caught():
    made = _made(Thresholds(both_directions=True))
    public = [[0.5], [1.5], [9.0]]
    assert worst(made, LINE, 2, public=public, rate=2 * 2.0 / 2) > 2.0 + 0.5


class OnPrivatePoints(SemiPrivateClassifier):
    """Planted: the private points define the candidates too."""

    def fit(self, X, y, groups=None, public=None):
        return super().fit(X, y, groups=groups, public=np.concatenate([X, public]))


def test_planted_candidates_of_the_private_points_are_caught():
    planted = OnPrivatePoints(Thresholds(), epsilon=2.0, classes=[0, 1])
    assert worst(planted, LINE, 2, public=[[0.5], [1.5]]) == math.inf


# People of up to three rows each: the first person's rows are replaced by any others, fewer or more of them.
EVERY = [(0.0, 0), (0.0, 1), (2.0, 0), (2.0, 1)]
ROWS = [rows for size in (1, 2, 3) for rows in itertools.product(EVERY, repeat=size)]


def worst_person(made, **given):
    def data(rows):
        known = [*rows, (0.0, 0), (2.0, 1)]
        return np.array([[x] for x, _ in known]), [label for _, label in known], ["p"] * len(rows) + ["q", "q"]

    laws = []
    for rows in ROWS:
        X, y, groups = data(rows)
        laws.append(law(made, X, y, groups=groups, public=[[1.0], [3.0]], **given))
    return max(loss(a, b) for a, b in itertools.permutations(laws, 2))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_person_of_many_rows_is_one_unit(most):
    found = worst_person(_made(Thresholds(both_directions=True), records_per_person=most))
    assert 1.0 < found <= 2.0 + 1e-9


def test_planted_rows_beyond_those_that_count_are_caught(monkeypatch):
    monkeypatch.setattr(cover, "fill_unit_rows", lambda X, y, *, groups, row_limit: UnitRows(X, y, row_limit=1))
    assert worst_person(_made(Thresholds(both_directions=True))) > 2.0 + 0.5


def test_planted_sensitivity_of_one_row_is_caught():
    made = _made(Thresholds(both_directions=True), records_per_person=2)
    assert worst_person(made, rate=2.0 / 2) > 2.0 + 0.5


def test_labels_alone_are_protected_where_the_features_are_the_points():
    made = _made(Stumps(features=2), mode="label-private")
    laws, _ = laws_of(made, SQUARE, 3)
    changed = [loss(laws[data], laws[(data[0][0], 1 - data[0][1]), *data[1:]]) for data in laws]
    assert 1.0 < max(changed) <= 2.0 + 1e-9
    moved = [loss(laws[data], laws[(SQUARE[3], data[0][1]), *data[1:]]) for data in laws]
    assert max(moved) == math.inf  # features are not protected, as the claim says


def test_the_excess_is_respected_by_the_exact_law():
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(300, 1))
    y = (generator.uniform(size=300) < np.where(X[:, 0] > 0.4, 0.8, 0.1)).astype(int)
    public = np.linspace(0, 1, 40).reshape(-1, 1)
    for epsilon, beta in itertools.product((0.2, 2.0), (0.01, 0.5)):
        made = _made(Intervals(), epsilon=epsilon)
        chosen = law(made, X, y, public=public)
        mistakes = {one: int((one.predict(X) != y).sum()) for one in chosen}
        bound = made.fit(X, y, public=public).excess(beta=beta)
        too_many = sum(p for one, p in chosen.items() if mistakes[one] >= min(mistakes.values()) + bound)
        assert too_many <= beta


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(20_000, 2))
    y = np.where(X[:, 0] > 0.2, "yes", "no")
    X[:50, 1] = SECRET
    return X, y


@pytest.fixture(scope="module")
def public():
    return np.random.default_rng(1).uniform(-1, 1, size=(400, 2))


@pytest.fixture(scope="module")
def fitted(records, public):
    return SemiPrivateClassifier(Stumps(features=2), epsilon=1.0, classes=["no", "yes"]).fit(*records, public=public)


def test_it_is_an_ordinary_classifier(records, public, fitted):
    """The excess is below 2 ln(1600e9) = 57 mistakes with probability 1 - 1e-9; public points are 0.005 apart."""
    X, y = records
    assert fitted.score(X, y) > 0.95
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.candidates_ == 2 + 2 * 2 * 399
    assert fitted.spent_epsilon_ == 1.0
    assert fitted.excess(beta=0.05) == math.ceil(2 * math.log(fitted.candidates_ / 0.05))
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(public) == fitted.predict(public)).all()
    assert clone(fitted).get_params() == fitted.get_params()
    assert "replacement of one row; the public points are not protected" in fitted.claim_
    assert "(1, 0)-differentially private" in fitted.claim_


def test_no_private_value_is_kept(fitted):
    spilled = pickle.dumps(fitted)
    assert struct.pack("<d", SECRET) not in spilled
    assert struct.pack(">d", SECRET) not in spilled
    assert len(spilled) < 5000  # nor anything of their size


def test_few_of_the_public_points(records, public):
    made = SemiPrivateClassifier(Boxes(2), points=20, classes=["no", "yes"])
    made.fit(*records, public=public)
    assert made.candidates_ <= Boxes(2).growth(20)
    with pytest.raises(Infeasible):
        SemiPrivateClassifier(Boxes(2), classes=["no", "yes"]).fit(*records, public=public)
    assert not hasattr(SemiPrivateClassifier(), "hypothesis_")


def test_label_private_needs_no_public_points(records):
    X, y = records
    made = SemiPrivateClassifier(epsilon=1.0, mode="label-private").fit(X[:2000], y[:2000])
    assert made.score(X, y) > 0.9
    assert "the labels of one row; the features are not protected; the label set was read from y" in made.claim_


@pytest.mark.parametrize(
    ("settings", "given", "text"),
    [
        ({}, {}, "needs public points"),
        ({"mode": "label-private"}, {"public": [[1.0]]}, "leave public out"),
        ({"records_per_person": 2}, {"public": [[1.0]]}, "records_per_person requires groups"),
        ({"classes": [0, 1, 2]}, {"public": [[1.0]]}, "tells two classes apart, not 3"),
        ({"concept": Stumps(features=2)}, {"public": [[1.0]]}, "concept reads 2 features and X has 1"),
        ({}, {"public": [[float("nan")]]}, "NaN"),
        ({}, {"public": [[1.0]], "groups": ["a"]}, "groups must name the person of each"),
    ],
)
def test_refusals_come_before_anything_is_drawn(settings, given, text, monkeypatch):
    monkeypatch.setattr(ExponentialChoice, "choose", _choose)
    made = SemiPrivateClassifier(**({"concept": Thresholds(), "classes": [0, 1]} | settings))
    with pytest.raises(ValueError, match=text):
        made.fit([[1.0], [2.0]], [0, 1], **given)
    assert not hasattr(made, "hypothesis_")


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
