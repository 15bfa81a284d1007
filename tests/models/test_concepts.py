"""Every class of hypotheses against brute force, at the edges, and the bugs that the contract must catch."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Dichotomies, cut_points, cuts_between, sauer
from quorate.models.concepts import (
    Concept,
    Constant,
    Finite,
    Intervals,
    Stump,
    Stumps,
    Threshold,
    Thresholds,
    check_concept,
)
from quorate.models.concepts._thresholds import _Cuts, correlate, difference_counts, pair_of_rank

LINES = [[], [4.0], [1.0, 1.0, 1.0], [3.0, 1.0, 2.0, 2.0, 5.0], [0.0, -0.0, 1.0], [1.0, np.nextafter(1.0, 2.0)]]


def by_runs(most, *, start=None):
    """Whether labels along a line change at most so often (and from 0 to 1 first)."""

    def realizable(points, labels):
        order = np.argsort(points[:, 0])
        changes = np.flatnonzero(np.diff(labels[order]))
        return changes.size <= most and (start is None or changes.size < most or labels[order][0] == start)

    return realizable


def as_stumps(points, labels):
    """Whether one feature tells the labels apart, tried one cut at a time."""
    if len(set(labels.tolist())) < 2:
        return True
    for column in points.T:
        for cut in column:
            if ((column >= cut) == labels).all() or ((column < cut) == labels).all():
                return True
    return False


@pytest.mark.parametrize("points", LINES)
@pytest.mark.parametrize(
    ("concept", "realizable"),
    [
        (Thresholds(), by_runs(1, start=0)),
        (Thresholds(both_directions=True), by_runs(1)),
        (Intervals(), by_runs(2, start=0)),
        (Stumps(features=1), by_runs(1)),
    ],
)
def test_classes_on_a_line(concept, realizable, points):
    check_concept(concept, points, realizable=realizable)


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=6))
def test_stumps_with_tied_values_and_equal_columns(rows):
    points = np.array(rows, dtype=float).reshape(-1, 3)
    check_concept(Stumps(features=3), points, realizable=as_stumps)
    check_concept(Stumps(features=4), np.hstack([points, -2 * points[:, :1]]), realizable=as_stumps)
    check_concept(Stumps(features=3, binary=True), points > 1, realizable=as_stumps)


def test_stumps_of_columns_that_copy_each_other():
    """Copies, reversals and monotone images of columns, with and without ties, add no dichotomy."""
    numbers = np.random.default_rng(0)
    for values in (numbers.random((60, 3)), numbers.integers(0, 9, (60, 3)).astype(float)):
        points = np.hstack([values, -values, np.exp(values[:, :2]), values[:, ::-1], np.ones((60, 1)), values > 0.5])
        dichotomies = Stumps(features=points.shape[1]).dichotomies(points)
        splits = {tuple(column >= cut) for column in points.T for cut in column}
        every = splits | {tuple(~np.array(split)) for split in splits}
        assert len(dichotomies) == len(every)
        assert {tuple(stump.predict(points) == 1) for stump in dichotomies} == every
        y = numbers.integers(0, 2, 60)
        shown = [(stump.predict(points) != y).sum() for stump in dichotomies]
        assert dichotomies.mistakes(points, y).tolist() == shown
        assert dichotomies.mistakes(points[::-1], y[::-1]).tolist() == shown


def test_candidates_do_not_change_with_the_array_they_were_made_from():
    for concept in (Thresholds(), Intervals(), Stumps(features=1)):
        X, y = np.array([[3.0], [1.0], [2.0]]), np.array([1, 0, 1])
        dichotomies = concept.dichotomies(X)
        before = [repr(candidate) for candidate in dichotomies]
        X[:] = [[1.0], [9.0], [0.0]]
        assert [repr(candidate) for candidate in dichotomies] == before
        shown = [int((candidate.predict(X) != y).sum()) for candidate in dichotomies]
        assert dichotomies.mistakes(X, y).tolist() == shown


def test_stumps_shatter_what_their_dimension_says():
    """Two features cut out all eight subsets of three points, three features all sixteen of four."""
    three = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]])
    assert len(Stumps(features=2).dichotomies(three)) == 8
    assert Stumps(features=2).vc_dimension == 3
    best = max(
        len(Stumps(features=3).dichotomies(np.argsort([a, b, c], axis=1).T.astype(float)))
        for a, b, c in itertools.product(itertools.permutations(range(4)), repeat=3)
        if a == (0, 1, 2, 3) and b < c
    )
    assert (best, Stumps(features=3).vc_dimension) == (16, 4)


def test_stumps_do_not_trust_a_sum_of_words(monkeypatch):
    """Words that make different splits look alike are found out, and drawn again."""
    draws = iter([bytes(8 * 6), b"\x01" * 8 * 6])
    real = np.random.default_rng(0).bytes
    monkeypatch.setattr("quorate.models.concepts.stumps.os.urandom", lambda size: next(draws, None) or real(size))
    points = np.random.default_rng(1).random((6, 3))
    assert len(Stumps(features=3).dichotomies(points)) == len(
        {tuple(h.predict(points)) for h in Stumps(features=3).dichotomies(points)}
    )
    assert next(draws, None) is None


def rules():
    return [lambda X, k=k: X[:, 0] > k for k in (0, 1, 1, 2)] + [Constant(features=2, label=1)]


def test_finite_lists():
    finite = Finite(rules(), features=2)
    points = [[0.5, 0], [0.5, 0], [1.5, 0], [2.5, 1]]
    check_concept(finite, points)
    assert finite.vc_dimension == 2
    assert [member.index for member in finite.dichotomies(points)] == [0, 1, 3]
    assert finite.growth(1000) == 5
    with pytest.raises(InvalidInput, match="members must"):
        Finite([], features=1)
    with pytest.raises(InvalidInput, match="member 0 must"):
        Finite([3], features=1)
    with pytest.raises(InvalidInput, match="hypothesis 0 of the list must give one label, 0 or 1, for each row"):
        Finite([lambda X: X[:, 0] + 2], features=1)
    with pytest.raises(InvalidInput, match="hypothesis 1 of the list fails on a row of 2 zeros, with IndexError"):
        Finite([*rules(), lambda X: X[:, 2] > 0][-2:], features=2)


def test_finite_takes_fitted_classifiers():
    from sklearn.tree import DecisionTreeClassifier

    X, y = np.random.default_rng(0).random((50, 2)), np.arange(50) % 2
    trees = [DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X, y) for depth in (1, 2, 3)]
    check_concept(Finite(trees, features=2), X[:8])


def strict(X):
    """A rule that takes one matrix or none, as many classifiers do."""
    if (X[:, 0] > 1e38).any():
        raise ValueError("a value is too large")
    return X[:, 0] > 1


def test_a_member_that_fails_on_a_private_row_says_0_there_and_nothing_else():
    from sklearn.tree import DecisionTreeClassifier

    numbers = np.random.default_rng(0)
    X = numbers.random((50, 2))
    y = (X[:, 0] > 0.5).astype(int)
    members = [
        DecisionTreeClassifier(random_state=0).fit(X, y),  # reads rows as 32-bit floats, and raises where they overflow
        strict,
        lambda X: X[:, 0] * 1e300 * 1e300 > 1,  # warns
        lambda X: np.where(X[:, 0] > 1e38, 7, X[:, 0] > 1),
        lambda X: np.where(X[:, 0] > 1e38, np.nan, X[:, 0] > 1),
        lambda X: None if len(X) > 1 and X[:, 0].max() > 1e38 else X[:, 0] > 1,
    ]
    finite = Finite(members, features=2)
    rows = np.vstack([X[:4] + 0.6, [[1e39, 0.0]], X[4:8] + 0.6])
    others = np.delete(rows, 4, axis=0)
    for member in (finite.member(index) for index in range(len(members))):
        assert np.delete(member.predict(rows), 4).tolist() == member.predict(others).tolist()
        assert member.predict(others).any()
    assert [finite.member(index).predict(rows)[4] for index in range(5)] == [0, 0, 1, 0, 0]
    assert finite.dichotomies(rows).tally(rows, np.ones(9, dtype=int)).counts.sum() > 1
    check_concept(finite, rows)


def test_dimensions_and_growth():
    assert [Stumps(features=p).vc_dimension for p in (1, 2, 3, 5, 6, 9, 10, 18)] == [2, 3, 4, 5, 5, 5, 6, 7]
    assert Thresholds().growth(10**6) == 10**6 + 1
    assert Intervals().growth(10**5) == 1 + 10**5 * (10**5 + 1) // 2
    assert Stumps(features=100).growth(10**5) == 2 + 200 * (10**5 - 1)
    assert Stumps(features=100, binary=True).growth(10**5) == 202
    assert [sauer(n, 2) for n in range(5)] == [1, 2, 4, 7, 11]
    with pytest.raises(InvalidInput, match="points must"):
        Intervals().growth(-1)
    assert [concept.dual_vc_dimension for concept in (Thresholds(), Intervals(), Stumps(features=3))] == [1, 2, 3]


def test_refusals_speak_of_shapes_and_not_of_values():
    with pytest.raises(InvalidInput, match="X must"):
        Stumps(features=2).dichotomies([[1.0]])
    with pytest.raises(InvalidInput, match="y must"):
        Thresholds().fit_erm([1.0], [0.5])
    with pytest.raises(InvalidInput, match="X must"):
        Threshold(1.0).predict([math.nan])
    with pytest.raises(Infeasible, match="candidates are not listed; use tally"):
        Intervals().dichotomies(np.arange(20_000.0)).mistakes([1.0], [1])
    with pytest.raises(InvalidInput, match="check_concept takes at most 12 points, not 13"):
        check_concept(Thresholds(), np.arange(13.0))
    with pytest.raises(IndexError):
        Thresholds().dichotomies([1.0])[2]


def test_rows_that_cannot_be_used_are_left_out_without_a_word():
    X, y = [[1.0], [math.nan], [2.0], [math.inf], [3.0]], [0, 1, 1, 0, 5]
    tally = Thresholds().dichotomies(X).tally(X, y)
    assert tally.counts.tolist() == [1, 3, 0]  # two rows are left, and three points
    assert len(Thresholds().dichotomies(X)) == 4
    assert Thresholds().fit_erm(X, y).cut == 1.5


def test_a_tally_says_nothing_by_accident():
    tally = Thresholds().dichotomies([1.0, 2.0]).tally([1.0], [1])
    assert repr(tally) == f"{tally}" == "<sealed tally>"
    for spill in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a tally cannot be copied, pickled or stored"):
            spill(tally)
    with pytest.raises(InvalidInput, match="pick takes a number of mistakes that occurs"):
        tally.pick(0, 5)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_cut_tells_its_neighbours_apart(a, b):
    low, high = min(a, b), max(a, b)
    if low < high:
        cut = cuts_between(np.array([low]), np.array([high]))[0]
        assert low < cut <= high
    assert cut_points(np.array([low, high])).size == (low < high)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=300))
def test_pairs_by_their_difference(steps):
    values = np.cumsum(steps)
    late, early = np.triu_indices(values.size, 1)[::-1]
    expected = values[late] - values[early]
    lowest, highest = int(expected.min(initial=0)), int(expected.max(initial=0))
    counts = difference_counts(values, lowest=lowest, highest=highest)
    assert counts.tolist() == np.bincount(expected - lowest, minlength=highest - lowest + 1).tolist()
    some = int(values[-1] - values[0]) if values.size > 1 else None
    if some is not None:
        pairs = {pair_of_rank(values, some, rank) for rank in range(int(counts[some - lowest]))}
        assert pairs == {
            (i, j) for i, j, t in zip(early.tolist(), late.tolist(), expected.tolist(), strict=True) if t == some
        }


def test_correlations_are_exact_where_a_double_would_not_be():
    numbers = np.random.default_rng(0)
    left, right = numbers.integers(0, 2**22, 600), numbers.integers(2**24, 2**25, 500)
    assert correlate(left, right).tolist() == np.convolve(left[::-1], right).tolist()
    assert correlate(right, left).tolist() == np.convolve(right[::-1], left).tolist()


def test_intervals_of_many_points_are_all_counted():
    numbers = np.random.default_rng(0)
    x = numbers.random(30_000)
    y = (x > 0.5).astype(int)
    dichotomies = Intervals().dichotomies(x)
    tally = dichotomies.tally(x, y)
    assert tally.counts.sum() == len(dichotomies) == 1 + 30_000 * 30_001 // 2
    mistakes = int(np.flatnonzero(tally.counts > 1000)[5])
    for rank in (0, 500, int(tally.counts[mistakes]) - 1):
        assert (tally.pick(mistakes, rank).predict(x) != y).sum() == mistakes


# Planted bugs: a class that is right but for one thing, and what the contract says of it.


class Planted(Concept):
    """Thresholds with one thing replaced."""

    features = 1
    vc_dimension = 1

    def __init__(self, **replaced):
        self._replaced = replaced
        for name in ("vc_dimension", "growth", "fit_erm"):
            if name in replaced:
                setattr(self, name, replaced[name])

    def _dichotomies(self, points):
        made = _Cuts(points[:, 0], both_directions=False)
        for name, value in self._replaced.items():
            if name.startswith("_"):
                setattr(made, name, value(made) if callable(value) else value)
        return made


class Repeating(Dichotomies):
    features = 1

    def __init__(self, points, extra):
        self._points, self._extra = points, extra

    def __len__(self):
        return len(_Cuts(self._points[:, 0], both_directions=False)) + self._extra

    def _candidate(self, index):
        cuts = _Cuts(self._points[:, 0], both_directions=False)
        return cuts[min(index, len(cuts) - 1)]


class ListedTwice(Planted):
    def _dichotomies(self, points):
        return Repeating(points, 1)


class LeftOut(Planted):
    def _dichotomies(self, points):
        return Repeating(points, -1 if len(points) else 0)


class CountsPoints(Planted):
    """One candidate for each point, not for each distinct one."""

    def _dichotomies(self, points):
        return Repeating(points, len(points) - len(np.unique(points)))


class TiesGoDown(Planted):
    """Mistakes counted as if a value at a cut were below it."""

    def _dichotomies(self, points):
        made = _Cuts(points[:, 0], both_directions=False)
        made._cuts = np.append(np.unique(points[:, 0]), math.inf)
        made._mistakes = lambda rows, labels: np.array(
            [((rows[:, 0] > cut).astype(int) != labels).sum() for cut in made._cuts]
        )
        return made


class NanCounts(Planted):
    def dichotomies(self, X):
        return self._dichotomies(np.nan_to_num(np.asarray(X, dtype=float).reshape(-1, 1), nan=77.0))


class SameOne(Planted):
    """Every rank picks the first candidate of its level."""

    def _dichotomies(self, points):
        made = super()._dichotomies(points)
        honest = made._tally

        def tally(rows, labels):
            counted = honest(rows, labels)
            pick = counted._pick
            counted._pick = lambda mistakes, rank: pick(mistakes, 0)
            return counted

        made._tally = tally
        return made


class OffByOne(Planted):
    def _dichotomies(self, points):
        made = super()._dichotomies(points)
        honest = made._mistakes
        made._mistakes = lambda rows, labels: np.minimum(honest(rows, labels) + (made._cuts == math.inf), len(labels))
        return made


class JudgedTogether(Planted):
    """A row can be used unless another is larger."""

    def _usable(self, points):
        return points[:, 0] >= points.max(initial=0)


class StillCounted(Planted):
    """Declares whole numbers, and counts the mistakes on others."""

    def _usable(self, points):
        return points[:, 0] == np.floor(points[:, 0])

    def dichotomies(self, X):
        made = super().dichotomies(X)
        del made.usable
        return made


class StillDefining(Planted):
    """Declares whole numbers, and makes candidates of others."""

    def _usable(self, points):
        return points[:, 0] == np.floor(points[:, 0])

    def dichotomies(self, X):
        return Thresholds().dichotomies(X)


class Promised(Stumps):
    """Binary, and takes what is not."""

    def _usable(self, points):
        return np.ones(len(points), dtype=bool)


class Overflows(Planted):
    """Mistakes are those of another hypothesis where a value is large."""

    def _dichotomies(self, points):
        made = super()._dichotomies(points)
        honest = made._mistakes
        made._mistakes = lambda rows, labels: honest(np.where(rows > 1e300, -1.0, rows), labels)
        return made


@pytest.mark.parametrize(
    ("planted", "points", "says"),
    [
        (JudgedTogether(), [1.0, 2.0], "what is said of a row depends on the others"),
        (StillCounted(), [1.0, 2.0], "a row that is not usable counts"),
        (StillDefining(), [1.0, 2.0], r"a row that is not usable counts|\(1, 1\) has 2 representatives"),
        (Promised(features=1, binary=True), [0.0, 1.0], r"pass growth\(3\), with a row that can be used"),
        (Overflows(), [1.0, 2.0], "mistakes: not those of the candidates"),
    ],
)
def test_planted_bugs_with_rows_that_no_one_expects_are_caught(planted, points, says):
    with pytest.raises(AssertionError, match=says):
        check_concept(planted, points)


def test_binary_stumps_leave_out_what_is_not_0_or_1():
    stumps = Stumps(features=2, binary=True)
    X = [[0, 1], [1, 1], [0.5, 1], [3, 0], [-1, 0], [math.nan, 0]]
    assert stumps.usable(X).tolist() == [True, True, False, False, False, False]
    dichotomies = stumps.dichotomies(X)
    assert len(dichotomies) == 4 <= stumps.growth(2)
    assert dichotomies.tally(X, [0, 1, 1, 1, 1, 1]).counts.tolist() == [1, 2, 1]
    assert dichotomies.mistakes(X, [0, 1, 1, 1, 1, 1]).sum() == 4
    assert stumps.fit_erm(X, [0, 1, 0, 0, 1, 1]).feature == 0
    many = np.random.default_rng(0).random((200, 2))
    assert len(stumps.dichotomies(many)) == 1 <= stumps.growth(200)
    check_concept(stumps, [[0, 1], [1, 1], [0.5, 1], [3, 0]])


@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (ListedTwice(), "has 2 representatives"),
        (LeftOut(), "those of a part of the points|no points have one dichotomy"),
        (CountsPoints(), "repeated points change their number|has . representatives"),
        (TiesGoDown(), "mistakes: not those of the candidates"),
        (NanCounts(), "a row with a missing value counts|has 2 representatives"),
        (SameOne(), "picks do not reach every candidate once"),
        (OffByOne(), "mistakes: not those of the candidates"),
        (Planted(vc_dimension=0), "pass Sauer's bound"),
        (Planted(growth=lambda points: min(points, 1) + (points == 0)), r"pass growth\(4\)"),
        (Planted(fit_erm=lambda X, y: Threshold(math.inf)), "fit_erm: 2 mistakes where 1 are possible"),
    ],
)
def test_planted_bugs_are_caught(planted, says):
    check_concept(Planted(), [1.0, 2.0, 2.0, 3.0, 7.0])
    with pytest.raises(AssertionError, match=says):
        check_concept(planted, [1.0, 2.0, 2.0, 3.0, 7.0])


def test_the_second_opinion_catches_a_class_that_is_too_large_or_too_small():
    with pytest.raises(AssertionError, match="is listed and not realizable"):
        check_concept(Thresholds(both_directions=True), [1.0, 2.0], realizable=by_runs(1, start=0))
    with pytest.raises(AssertionError, match="is realizable and missing"):
        check_concept(Thresholds(), [1.0, 2.0], realizable=by_runs(1))


def test_a_stump_is_the_first_feature_that_splits_so():
    X = [[1.0, 5.0], [2.0, 6.0]]
    assert Stumps(features=2).fit_erm(X, [0, 1]) == Stump(features=2, feature=0, cut=1.5)
