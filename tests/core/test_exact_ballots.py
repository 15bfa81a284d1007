"""A ballot is a function of its teacher and its query, to the last bit, whatever else is asked with it.

Queries are sought where this is hardest: between two neighbouring floats, on which a teacher votes differently.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_limits

from planted.batches import SummedInAnyOrder
from quorate.compute.learners import (
    BatchedCentroid,
    BatchedLogistic,
    BatchedNaiveBayes,
    BatchedQuadratic,
    BatchedRidge,
    BatchedTree,
    Deal,
    teachers_from_arrays,
)
from quorate.compute.learners.linear import NEVER, LinearTeachers, gridded_coefficients, gridded_queries
from support.devices import needs_torch, on

LEARNERS = {
    "logistic": BatchedLogistic(),
    "ridge": BatchedRidge(),
    "centroid": BatchedCentroid(),
    "naive_bayes": BatchedNaiveBayes(),
    "quadratic": BatchedQuadratic(),
    "stump": BatchedTree(max_depth=1),
    "tree": BatchedTree(max_depth=4),
}
CASES = [(name, classes) for name in sorted(LEARNERS) for classes in (2, 5)]
STRANGE = [0.0, -0.0, 5e-324, 1e-300, -1e-310, 1.0, 2.0**26 + 1, 1e38, -3e38, 1e200, -1e308, 0.1]


def fitted(name, classes, *, features=20, teachers=40, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(teachers * 30, features))
    y = (X @ random.normal(size=(features, classes))).argmax(axis=1)
    deal = Deal(np.arange(len(X)), np.full(teachers, 30))
    return LEARNERS[name].fit(X, y, deal, classes=classes)


def near_ties(teachers, *, queries=96, seed=0, among=None):
    """Pairs of queries as close to a teacher's boundary as floats come, one on each side of it."""
    if among is None:
        among = np.random.default_rng(seed).normal(size=(queries + 1, teachers.features))
    low, high = among[:-1], among[1:]
    own = np.arange(len(low)), np.arange(len(low)) % teachers.teachers
    before, after = teachers.ballots(low)[own], teachers.ballots(high)[own]
    differ = before != after
    for _ in range(70):
        middle = low / 2 + high / 2
        same = (teachers.ballots(middle)[own] == before)[:, np.newaxis]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    assert differ.sum() > len(low) // 5
    return np.concatenate([low[differ], high[differ]])


def hard_queries(teachers, *, seed=0):
    random = np.random.default_rng(seed)
    strange = random.choice(STRANGE, size=(24, teachers.features))
    return np.concatenate([near_ties(teachers, seed=seed), strange, random.normal(size=(24, teachers.features))])


def count(ballots, classes):
    return np.stack([(ballots == label).sum(axis=1) for label in range(classes)], axis=1)


def moved(teachers, queries, *, seed=0):
    """How many ballots change when the queries are asked alone, or in another order, other company or other blocks."""
    random, whole = np.random.default_rng(seed), teachers.ballots(queries)
    changed = sum(np.count_nonzero(teachers.ballots(queries[i : i + 1]) != whole[i]) for i in range(len(queries)))
    for _ in range(6):
        strangers = random.choice(STRANGE, size=(int(random.integers(0, 300)), teachers.features))
        everybody = np.concatenate([queries, strangers])
        memory = int(random.choice([1024, 10**5, 10**6, 2**28]))
        most = len(everybody) if memory > 1024 else 60  # blocks of one score each are slow
        order = random.permutation(len(everybody))[: int(random.integers(1, most + 1))]
        asked = order[order < len(queries)]
        ballots = on(teachers, memory=memory).ballots(everybody[order])[order < len(queries)]
        votes = on(teachers, memory=memory).votes(everybody[order])[order < len(queries)]
        changed += np.count_nonzero(ballots != whole[asked])
        changed += np.count_nonzero(votes != count(whole[asked], teachers.classes))
    return changed


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_a_ballot_does_not_depend_on_company_order_or_blocks(name, classes):
    teachers = fitted(name, classes)
    assert moved(teachers, hard_queries(teachers)) == 0


@settings(max_examples=settings.default.max_examples // 3)
@given(
    case=st.sampled_from(CASES),
    features=st.integers(1, 24),
    teachers=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    strange=st.lists(st.sampled_from(STRANGE) | st.floats(allow_nan=False, allow_infinity=False), max_size=30),
)
def test_whatever_the_shape_and_the_values(case, features, teachers, seed, strange):
    made = fitted(*case, features=features, teachers=teachers, seed=seed)
    random = np.random.default_rng(seed)
    queries = random.normal(size=(12, features))
    queries.ravel()[random.permutation(queries.size)[: len(strange)]] = strange[: queries.size]
    assert moved(made, queries, seed=seed) == 0


@pytest.mark.parametrize(("name", "classes"), [case for case in CASES if case[0] not in ("stump", "tree")])
def test_a_ballot_does_not_depend_on_threads(name, classes):
    teachers = fitted(name, classes, teachers=300)
    queries = hard_queries(teachers)
    seen = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            seen.append((teachers.ballots(queries), teachers.votes(queries)))
    assert (seen[0][0] == seen[1][0]).all()
    assert (seen[0][1] == seen[1][1]).all()


@needs_torch
@pytest.mark.parametrize(("name", "classes"), CASES)
def test_both_libraries_cast_the_same_ballots(name, classes):
    teachers = fitted(name, classes)
    queries = hard_queries(teachers)
    whole = teachers.ballots(queries)
    assert (on(teachers, device="torch").ballots(queries) == whole).all()
    assert (on(teachers, device="torch").votes(queries) == count(whole, classes)).all()
    alone = [on(teachers, device="torch").ballots(query[np.newaxis])[0] for query in queries]
    assert (np.stack(alone) == whole).all()


@pytest.mark.parametrize("classes", [2, 5])
def test_a_hundred_thousand_queries(classes):
    teachers = fitted("logistic", classes, teachers=60)
    random = np.random.default_rng(3)
    ties = near_ties(teachers, queries=1000)
    queries = np.concatenate([ties, random.normal(size=(100_000 - len(ties), 20))])
    whole = teachers.ballots(queries)
    assert (teachers.votes(queries) == count(whole, classes)).all()
    order, start = random.permutation(len(queries)), 0
    while start < len(order):
        part = order[start : start + int(random.integers(1, 4097))]
        assert (teachers.ballots(queries[part]) == whole[part]).all()
        start += part.size
    alone = [*range(len(ties)), *range(len(ties), len(queries), 20)]
    assert all((teachers.ballots(queries[i : i + 1])[0] == whole[i]).all() for i in alone)


@pytest.mark.parametrize("classes", [2, 5])
def test_counting_leaves_the_settings_of_numpy_as_they_were(classes):
    teachers, before = fitted("logistic", classes), (np.getbufsize(), np.geterr())
    teachers.votes(np.ones((1000, 20)))
    teachers.ballots(np.ones((1000, 20)))
    assert (np.getbufsize(), np.geterr()) == before


def test_sums_in_any_order_are_caught():
    """The same queries move ballots of teachers whose scores are multiplied as they come."""
    random = np.random.default_rng(0)
    broken = SummedInAnyOrder(random.normal(size=(40, 1, 21)), classes=2)
    queries, whole = near_ties(broken), broken.ballots(near_ties(broken))
    assert any((broken.ballots(queries[i : i + 1])[0] != whole[i]).any() for i in range(len(queries)))


# ---------------------------------------------------------------------------------------------------------------------
# Sums are exact


@pytest.mark.parametrize("features", [1, 3, 20, 300])
def test_one_unit_decides(features):
    """Whole numbers of full size, and an intercept within a unit of the score: Python's integers say who wins."""
    random = np.random.default_rng(features)
    most = 2**27 // features
    weights = random.integers(-most, most + 1, size=(50, features))
    queries = random.integers(-(2**26) + 1, 2**26, size=(50, features))
    products = [[int(np.dot(row.astype(object), query.astype(object))) for row in weights] for query in queries]
    bars = np.array([products[i][i] for i in range(50)])
    for unit in (-1, 0, 1):
        scores = np.concatenate([weights, (unit - bars)[:, np.newaxis]], axis=1).astype(np.float64)
        teachers = LinearTeachers(scores[:, np.newaxis], classes=2)
        assert (teachers.arrays()["scores"][:, 0] == scores).all()
        expected = [[value - int(bar) + unit > 0 for value, bar in zip(row, bars, strict=True)] for row in products]
        assert (teachers.ballots(queries) == np.array(expected)).all()
        assert (np.diag(teachers.ballots(queries)) == (unit > 0)).all()


@pytest.mark.parametrize("never", [None, 0, 1])
@pytest.mark.parametrize("features", [1, 20, 300])
def test_one_unit_decides_between_classes(features, never):
    """Whole numbers, and intercepts that make classes equal, or a unit apart: Python's integers say who wins."""
    random = np.random.default_rng(features)
    most = 2**25 // features
    weights = random.integers(-most, most + 1, size=(40, 4, features)).astype(object)
    queries = random.integers(-(2**26) + 1, 2**26, size=(40, features)).astype(object)
    own = [weights[i] @ queries[i] for i in range(40)]
    bars = np.array(own) + random.integers(-1, 2, size=(40, 4))
    exact = np.stack([weights @ query - bars for query in queries])
    scores = np.concatenate([weights, -bars[:, :, np.newaxis]], axis=2).astype(np.float64)
    if never is not None:
        scores[:, never], scores[:, never, -1], exact[:, :, never] = 0.0, -1e300, -(2**80)
    teachers = LinearTeachers(scores, classes=4)
    ballots = teachers.ballots(queries.astype(np.float64))
    assert (ballots == exact.argmax(axis=2)).all()  # the lowest of equals
    assert len(np.unique(np.diag(ballots))) == (4 if never is None else 3)
    assert (teachers.votes(queries.astype(np.float64)) == count(ballots, 4)).all()
    long = np.tile(queries.astype(np.float64), (30, 1))  # rows along which NumPy loops without a copy
    assert (teachers.ballots(long) == np.tile(ballots, (30, 1))).all()
    assert (teachers.votes(long) == np.tile(count(ballots, 4), (30, 1))).all()
    again = teachers_from_arrays(teachers.arrays())
    assert again.arrays()["scores"].tobytes() == teachers.arrays()["scores"].tobytes()


def lowest_bit(values):
    """The largest power of 2 of which all values are multiples."""
    steps = [Fraction(1, value.denominator) * (value.numerator & -value.numerator) for value in values if value]
    return min(steps, default=Fraction(1))


FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1.0, 1.0) | st.sampled_from(STRANGE)


@settings(max_examples=200)
@given(data=st.data(), columns=st.integers(1, 40))
def test_every_sum_is_a_whole_number_that_a_float_holds(data, columns):
    rows = st.lists(FLOATS, min_size=columns, max_size=columns)
    score = gridded_coefficients(np.array([[data.draw(rows), data.draw(rows)]]))
    query = gridded_queries(np.clip([data.draw(rows)], -1e76, 1e76))
    across = [Fraction(value) for value in query[0].tolist()]
    steps = lowest_bit([Fraction(value) for value in score.ravel().tolist()]) * lowest_bit(across)
    assert steps >= Fraction(1, 2**1000)
    for coefficients in score[0].tolist():
        largest = sum(abs(Fraction(value)) for value in coefficients) * max(abs(value) for value in across)
        assert largest <= 2**53 * steps
        assert largest < Fraction(2) ** 1023
    assert (gridded_coefficients(score) == score).all()
    assert (gridded_queries(query) == query).all()


@settings(max_examples=100)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_rounding_is_no_coarser_than_it_must_be(values):
    exact = np.array([values])
    finest = 2.0**-500  # no grid has smaller steps
    assert np.abs(gridded_queries(exact) - exact).max() <= 2.0**-26 * np.abs(exact).max() + finest
    assert np.abs(gridded_coefficients(exact[np.newaxis])[0] - exact).max() <= 2.0**-26 * np.abs(exact).sum() + finest


def test_rounding_up_to_a_power_of_2_is_rounded_once():
    """A largest coefficient that is rounded up to 2**27 steps must not make the steps of the next rounding larger."""
    scores = np.array([[[1.0 - 2.0**-40, 0.0], [3 * 2.0**-27, 0.0], [0.5, 0.5]]])
    once = gridded_coefficients(scores)
    assert once[0, :2, 0].tolist() == [1.0, 3 * 2.0**-27]
    assert (gridded_coefficients(once) == once).all()


def test_a_class_with_the_intercept_never_gets_no_ballot():
    scores = np.random.default_rng(0).normal(size=(30, 4, 6))
    scores[::3, 1], scores[::3, 1, -1] = 0.0, NEVER
    queries = np.random.default_rng(1).choice([*STRANGE, 3.0, -2.0], size=(200, 5))
    ballots = LinearTeachers(scores, classes=4, slices=2).ballots(queries)
    assert not (ballots[:, ::3] == 1).any()
    assert (ballots == 1).any()


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1.0, 1e9, 1e38])
def test_constant_teachers_vote_alike_for_queries_of_any_size(size):
    deal = Deal.of([[0, 1], [2, 3], []])
    for name, learner in LEARNERS.items():
        teachers = learner.fit([[1.0], [2.0], [3.0], [4.0]], [1, 1, 0, 0], deal, classes=2)
        assert (teachers.ballots([[size], [-size]]) == [1, 0, 0]).all(), name


# ---------------------------------------------------------------------------------------------------------------------
# What rounding costs


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_ballots_are_those_of_exact_arithmetic_where_columns_are_of_one_size(size):
    """The unrounded scores as fractions; a teacher may differ where its score is below 1e-6 of its terms."""
    random = np.random.default_rng(5)
    scores = random.normal(size=(40, 1, 11)) * [*[1.0] * 10, size]
    queries = size * random.normal(size=(100, 10))
    ballots = LinearTeachers(scores, classes=2).ballots(queries)
    terms = np.array([[Fraction(value) for value in row] for row in scores[:, 0].tolist()])
    asked = np.array([[Fraction(value) for value in row] + [Fraction(1)] for row in queries.tolist()])
    exact = asked @ terms.T
    clear = np.abs(exact) > 1e-6 * (np.abs(asked) @ np.abs(terms.T))
    assert clear.mean() > 0.999
    assert ((ballots == 1) == (exact > 0))[clear.astype(bool)].all()


@pytest.mark.parametrize(("middle", "spread"), [(2020.0, 2.0), (1e6, 1.0), (-3e5, 0.1)])
def test_naive_bayes_of_values_far_from_zero(middle, spread):
    """The squares cancel all but the last digits of each other."""
    random = np.random.default_rng(6)
    y = random.integers(0, 3, size=2000)
    X = middle + spread * (random.normal(size=(2000, 3)) + 0.7 * y[:, np.newaxis])
    deal = Deal(np.arange(2000), np.full(20, 100))
    teachers = BatchedNaiveBayes().fit(X, y, deal, classes=3)
    queries = X[::20]
    loop = [GaussianNB().fit(X[rows], y[rows]).predict(queries) for rows in np.split(deal.rows, 20)]
    assert (teachers.ballots(queries) == np.stack(loop, axis=1)).mean() > 0.995
    scores = teachers.arrays()["scores"]
    terms = np.array([[[Fraction(value) for value in row] for row in teacher] for teacher in scores.tolist()])
    asked = [[*map(Fraction, row), *(Fraction(value) ** 2 for value in row), Fraction(1)] for row in queries.tolist()]
    exact = np.array([(terms * np.array(row)).sum(axis=2) for row in asked])
    assert (exact.argmax(axis=2) == teachers.ballots(queries)).mean() > 0.995
    assert moved(teachers, near_ties(teachers, among=queries)) == 0
