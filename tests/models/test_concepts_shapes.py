"""Boxes, conjunctions and halfspaces against brute force: general position, ties, grids, lines and planes."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from quorate import Infeasible, InvalidInput
from quorate.models.concepts import Boxes, Conjunctions, Halfspace, Halfspaces, Intervals, Thresholds, check_concept
from quorate.models.concepts.hyperplanes import ExactPoints


def in_a_box(points, labels):
    """Whether the smallest box around the ones holds no zero."""
    if not labels.any():
        return True
    ones, zeros = points[labels == 1], points[labels == 0]
    return not ((zeros >= ones.min(axis=0)) & (zeros <= ones.max(axis=0))).all(axis=1).any()


def in_a_conjunction(points, labels):
    """Whether the longest conjunction that all ones satisfy is false for all zeros."""
    if not labels.any():
        return True
    ones, zeros = points[labels == 1], points[labels == 0]
    fixed = (ones == ones[0]).all(axis=0)
    return not (zeros[:, fixed] == ones[0][fixed]).all(axis=1).any()


def in_a_halfspace(points, labels):
    """Whether a linear programme finds a hyperplane with all ones above and all zeros below."""
    if len(points) == 0:
        return True
    signs = 2 * labels - 1
    rows = -signs[:, np.newaxis] * np.hstack([points, np.ones((len(points), 1))])
    return linprog(np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None)).status == 0


def grids(dimension, most, high=2):
    rows = st.lists(st.tuples(*[st.integers(0, high)] * dimension), max_size=most)
    return rows.map(lambda rows: np.array(rows, dtype=float).reshape(-1, dimension))


@settings(max_examples=12)
@given(grids(1, 6, 5), grids(2, 6, 3), grids(3, 5, 2))
def test_boxes(line, plane, space):
    for points in (line, plane, space):
        check_concept(Boxes(points.shape[1]), points, realizable=in_a_box)


def test_boxes_shatter_four_points_of_the_plane():
    cross = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]])
    assert len(Boxes(2).dichotomies(cross)) == 16
    check_concept(Boxes(2), np.vstack([cross, [[0.0, 0.0]]]), realizable=in_a_box)
    assert len(Boxes(1).dichotomies([1.0, 2.0, 5.0])) == len(Intervals().dichotomies([1.0, 2.0, 5.0]))


def test_boxes_end_at_the_largest_number_there_is():
    largest = np.finfo(float).max
    points = np.array([[0.0, 0.0], [largest, largest], [-largest, largest]])
    check_concept(Boxes(2), points, realizable=in_a_box)
    assert Boxes(2).dichotomies(points).tally(points, [0, 1, 1]).counts[0] == 1


def test_boxes_of_a_hundred_points():
    numbers = np.random.default_rng(0)
    X = numbers.random((100, 2))
    y = ((X > 0.3) & (X < 0.8)).all(axis=1).astype(int)
    dichotomies = Boxes(2).dichotomies(X)
    assert 500_000 < len(dichotomies) < Boxes(2).growth(100)
    tally = dichotomies.tally(X, y)
    assert tally.counts.sum() == len(dichotomies)
    assert tally.counts[0] == 1
    assert (tally.pick(3, 17).predict(X) != y).sum() == 3
    with pytest.raises(Infeasible, match="300 points may have more than"):
        Boxes(2).dichotomies(numbers.random((300, 2)))


@settings(max_examples=12)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_conjunctions(categories, data):
    rows = data.draw(st.lists(st.tuples(*[st.integers(0, count - 1) for count in categories]), max_size=6))
    points = np.array(rows, dtype=float).reshape(-1, len(categories))
    check_concept(Conjunctions(categories), points, realizable=in_a_conjunction)


def test_conjunctions_leave_out_values_that_are_not_declared():
    boolean = Conjunctions([2, 2])
    assert len(boolean.dichotomies([[0, 1], [7, 1], [0.5, 0], [-1, 0]])) == 2
    assert boolean.dichotomies([[0, 1]]).tally([[0, 1], [7, 1]], [1, 1]).counts.tolist() == [1, 1]
    assert boolean.usable([[0, 1], [7, 1], [0.5, 0], [-1, 0], [math.nan, 0]]).tolist() == [True] + [False] * 4
    check_concept(boolean, [[0, 1], [1, 1], [7, 1], [0.5, 0], [-1, 0]])
    assert boolean.vc_dimension == 2
    shattered = np.eye(4)
    assert len(Conjunctions([2] * 4).dichotomies(shattered)) == 16
    with pytest.raises(Infeasible, match="take fewer columns or merge rare values"):
        Conjunctions([2] * 16)
    with pytest.raises(InvalidInput, match="categories must"):
        Conjunctions([])
    with pytest.raises(InvalidInput, match="categories must"):
        Conjunctions([0])


@settings(max_examples=10)
@given(grids(1, 5), grids(2, 6), grids(3, 5, 1))
def test_halfspaces_of_grids(line, plane, space):
    for points in (line, plane, space):
        check_concept(Halfspaces(points.shape[1]), points, realizable=in_a_halfspace)


@pytest.mark.parametrize(("dimension", "count"), [(1, 5), (2, 6), (3, 6), (4, 6)])
def test_halfspaces_in_general_position_reach_covers_count(dimension, count):
    points = np.random.default_rng(dimension).random((count, dimension))
    dichotomies = Halfspaces(dimension).dichotomies(points)
    assert len(dichotomies) == Halfspaces(dimension).growth(count)
    assert len({tuple(halfspace.predict(points)) for halfspace in dichotomies}) == len(dichotomies)
    assert all(in_a_halfspace(points, halfspace.predict(points)) for halfspace in dichotomies)


@pytest.mark.parametrize(
    "points",
    [
        [[0, 0, 0], [1, 1, 1], [2, 2, 2], [5, 5, 5]],  # on a line in space
        [[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1], [0.5, 0.5, 1]],  # on a plane in space
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]],  # four on a plane, one off it
        [[3, 3, 3]],
        [[3, 3, 3], [3, 3, 3]],
    ],
)
def test_halfspaces_of_points_in_fewer_dimensions(points):
    check_concept(Halfspaces(3), points, realizable=in_a_halfspace)


def test_halfspaces_tell_points_apart_that_floats_hardly_can():
    """Three points that are within one rounding of a line: the middle one is off it, by the smallest step there is."""
    step = math.nextafter(1.0, 2.0) - 1.0
    bent = np.array([[0.0, 0.0], [1.0, 1.0 + step], [2.0, 2.0], [0.1, 7.0]])
    straight = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.1, 7.0]])
    assert len(Halfspaces(2).dichotomies(bent)) == 14
    assert len(Halfspaces(2).dichotomies(straight)) == 12
    for points in (bent, straight):
        check_concept(Halfspaces(2), points)
    huge = np.array([[0.0, 0.0], [1e300, 1e300], [2e300, 2e300], [1e-300, 0.0], [0.0, 1e-310]])
    check_concept(Halfspaces(2), huge)


HUGE = np.array([[1.7e308, 1.0e308], [1.0e308, 1.7e308], [0.0, 0.0], [1.7e308, 1.7e308]])


def test_halfspaces_of_points_near_the_largest_number_there_is():
    """A hyperplane through such points may have an offset that no float holds."""
    dichotomies = Halfspaces(2).dichotomies(HUGE)
    shown = {tuple(halfspace.predict(HUGE).tolist()) for halfspace in dichotomies}
    assert len(shown) == len(dichotomies) == 14
    assert all(repr(halfspace).endswith(">") or halfspace.levels == () for halfspace in dichotomies)
    check_concept(Halfspaces(2), HUGE)
    diagonal = Halfspace(features=2, levels=(((Fraction(1), Fraction(1)), Fraction(27 * 10**307)),), otherwise=0)
    assert repr(diagonal) == "<Halfspace: label 1 where (1, 1) * x > 2.70000e+308, and 0 finer levels>"
    assert diagonal.predict([[1.7e308, 1.1e308], [1.7e308, 0.9e308], [5e-324, 1.7e308]]).tolist() == [1, 0, 0]
    steep = Halfspace(features=1, levels=(((Fraction(10**400),), Fraction(10**400)),), otherwise=0)
    assert steep.predict([0.5, 1.0, math.nextafter(1.0, 2.0)]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("odd", [[1e-31, 1.0], [1e31, -1.0], [1e300, 1e200], [5e-324, 1.7e308], [1e18, 3e17]])
def test_one_odd_row_does_not_make_all_of_them_slow(odd, monkeypatch):
    """What floats leave open grows with the planes and the points that the row is part of, and not with all."""
    opened = []
    settle = ExactPoints._settle
    monkeypatch.setattr(
        ExactPoints, "_settle", lambda self, *given: (opened.append(given[2].size), settle(self, *given))[1]
    )
    points = np.random.default_rng(0).normal(size=(60, 2))
    plain = len(Halfspaces(2).dichotomies(points))
    points[17] = odd
    assert len(Halfspaces(2).dichotomies(points)) == plain
    assert sum(opened) < 3 * 60**2  # of about 60**3 / 2
    opened.clear()
    cover = Halfspaces(2).dichotomies(np.random.default_rng(1).normal(size=(20, 2)))
    assert cover.tally(points, np.arange(60) % 2).counts.sum() == len(cover)
    assert sum(opened) < 3 * 190


@given(
    st.lists(
        st.tuples(
            *[st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.0, 1.0, 1e-170]))] * 2
        ),
        min_size=3,
        max_size=5,
        unique=True,
    )
)
def test_signs_are_exact_whatever_the_numbers_are(points):
    """Also with a huge point first, and with products that no float holds."""
    exact = [[Fraction(value) for value in point] for point in points]
    planes = np.array([(i, j) for i in range(len(points)) for j in range(len(points)) if i != j])
    found = ExactPoints(np.array(points)).signs(planes)
    for (i, j), signs in zip(planes.tolist(), found.tolist(), strict=True):
        across = exact[j][1] - exact[i][1], exact[i][0] - exact[j][0]
        heights = [across[0] * (x - exact[i][0]) + across[1] * (y - exact[i][1]) for x, y in exact]
        assert signs == [(height > 0) - (height < 0) for height in heights]


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 2), min_size=3, max_size=3, unique=True))
def test_signs_are_those_of_fractions(points):
    a, b, c = [[Fraction(value) for value in point] for point in points]
    exact = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    found = ExactPoints(np.array(points)).signs(np.array([[0, 1]]))[0]
    assert found.tolist()[:2] == [0, 0]
    assert found[2] in ((exact < 0) - (exact > 0), (exact > 0) - (exact < 0))
    assert (found[2] == 0) == (exact == 0)


def test_halfspaces_of_many_points_and_of_others_than_their_own():
    numbers = np.random.default_rng(0)
    X = numbers.random((120, 2))
    y = (X.sum(axis=1) > 1).astype(int)
    dichotomies = Halfspaces(2).dichotomies(X)
    assert len(dichotomies) == 120 * 119 + 2
    tally = dichotomies.tally(X, y)
    assert tally.counts[0] == 1
    assert (tally.pick(4, 3).predict(X) != y).sum() == 4
    new = numbers.random((500, 2))
    many = dichotomies.mistakes(new, (new.sum(axis=1) > 1).astype(int))
    for index in (0, 1, 77, 5000, 14281):
        assert many[index] == (dichotomies[index].predict(new) != (new.sum(axis=1) > 1)).sum()
    with pytest.raises(Infeasible, match="the hyperplanes through 3 of 1000 points take"):
        Halfspaces(3).dichotomies(numbers.random((1000, 3)))


def test_a_line_is_a_threshold_in_both_directions():
    points = np.array([1.0, 2.0, 4.0])
    shown = [
        {tuple(h.predict(points).tolist()) for h in concept.dichotomies(points)}
        for concept in (Halfspaces(1), Thresholds(both_directions=True))
    ]
    assert shown[0] == shown[1]


def test_a_halfspace_says_where_it_lies():
    halfspace = Halfspaces(2).fit_erm([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 0, 1])
    assert repr(halfspace).startswith("<Halfspace: label 1 where (")
    assert repr(Halfspace(features=2, levels=(), otherwise=1)) == "Halfspace(features=2, otherwise=1)"
    assert halfspace.predict([[0, 0], [0, 1], [1, 0], [1, 1]]).tolist() == [0, 0, 0, 1]
