"""Lists of queries by their structure: each says the same as the matrix of truth values that it stands for."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.release_covers import largest_answer
from quorate import Infeasible, InvalidInput
from quorate.release.queries import BoxRanges, Marginals, Matrix, Prefixes, Queries, Ranges, Rows


def dense(queries):
    """The matrix that a list stands for, from the members of each query."""
    table = np.zeros((queries.count, queries.cells), dtype=bool)
    for query in range(queries.count):
        table[query, queries.members(query)] = True
    return table


def by_hand(queries):
    """The same matrix from the definition, without a line of the code under test."""
    if isinstance(queries, Prefixes):
        return np.kron(
            np.eye(queries.lines, dtype=bool), np.tril(np.ones((queries.length, queries.length), dtype=bool))
        )
    if isinstance(queries, Ranges):
        place = np.arange(queries.length)
        one = np.array([(first <= place) & (place <= last) for first in place for last in place if first <= last])
        return np.kron(np.eye(queries.lines, dtype=bool), one)
    if isinstance(queries, BoxRanges):
        sides = [by_hand(Ranges(size)) for size in queries.shape]
        return np.array([functools.reduce(np.kron, rows) for rows in itertools.product(*sides)])
    codes = np.array(list(itertools.product(*map(range, queries.sizes))))
    found = []
    for clique in queries.cliques:
        for values in itertools.product(*(range(queries.sizes[column]) for column in clique)):
            found.append((codes[:, list(clique)] == values).all(axis=1))
    return np.array(found)


CASES = [
    Prefixes(1),
    Prefixes(7),
    Prefixes(4, lines=3),
    Prefixes(1, lines=2),
    Ranges(5, lines=2),
    Ranges(4, lines=3),
    Ranges(1, lines=2),
    Ranges(1),
    Ranges(2),
    Ranges(9),
    BoxRanges((4,)),
    BoxRanges((3, 4)),
    BoxRanges((2, 3, 2)),
    Marginals((2, 3), [(0,), (1,), (1, 0)]),
    Marginals.of_order((2, 3, 1, 2), 2),
    Marginals((3, 2), [()]),
]


@pytest.mark.parametrize("queries", CASES, ids=repr)
def test_structure_equals_the_matrix(queries):
    assert isinstance(queries, Queries)
    table = by_hand(queries)
    assert (dense(queries) == table).all()
    assert queries.count == len(table)
    generator = np.random.default_rng(1)
    weights, values = generator.normal(size=queries.cells), generator.normal(size=queries.count)
    written = Matrix(table)
    for mine, theirs in (
        (queries.answers(weights), written.answers(weights)),
        (queries.spread(values), written.spread(values)),
        (largest_answer(queries, weights), largest_answer(written, weights)),
    ):
        assert mine == pytest.approx(theirs, abs=1e-9)
    which = generator.integers(0, queries.count, size=20)
    assert queries.some(which, weights) == pytest.approx(written.answers(weights)[which], abs=1e-9)


@pytest.mark.parametrize("queries", CASES, ids=repr)
def test_the_sensitivity_is_the_largest_distance_of_two_columns(queries):
    table = by_hand(queries).astype(int)
    found = max(
        int(((table[:, one] - table[:, two]) ** 2).sum())
        for one, two in itertools.product(range(queries.cells), repeat=2)
    )
    assert queries.sensitivity >= found
    assert queries.sensitivity == found or isinstance(queries, Marginals)  # columns that cannot differ all at once
    assert Matrix(by_hand(queries)).sensitivity == found


def test_a_sensitivity_that_is_bounded_lies_above_the_exact_one(monkeypatch):
    kinds = (lambda: BoxRanges((4, 3)), lambda: Matrix(by_hand(BoxRanges((4, 3)))))
    exact_ones = [made().sensitivity for made in kinds]
    monkeypatch.setattr("quorate.release.queries._listed._PAIRS", 1)
    for made, exact in zip(kinds, exact_ones, strict=True):
        assert made().sensitivity >= exact


@settings(max_examples=60, deadline=None)
@given(
    cells=st.integers(1, 3000),
    lines=st.integers(1, 5),
    numbers=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_ranges_are_numbered_back_and_forth(cells, lines, numbers):
    queries = Ranges(cells, lines)
    which = np.array([int(number * queries.count) for number in numbers])
    first, last = queries.pair(which)
    assert ((first >= 0) & (first <= last) & (last < cells * lines)).all()
    assert (first // cells == last // cells).all()
    assert (queries.number(first, last) == which).all()


def test_the_ends_of_a_very_long_list_are_numbered_right():
    queries = Ranges(2_000_000)
    first, last = queries.pair([0, queries.count - 1, queries.count - 2, queries.count - 3])
    assert first.tolist() == [0, 1_999_999, 1_999_998, 1_999_998]
    assert last.tolist() == [0, 1_999_999, 1_999_999, 1_999_998]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    seed=st.integers(0, 10**6),
    order=st.integers(1, 2),
)
def test_rows_and_whole_tables_answer_alike(sizes, seed, order):
    generator = np.random.default_rng(seed)
    codes = np.stack([generator.integers(0, size, 30) for size in sizes], axis=1)
    rows = Rows(codes, sizes, generator.uniform(size=30))
    queries = Marginals.of_order(sizes, order)
    whole = np.bincount(rows.cell(range(len(sizes))), rows.weights, minlength=queries.cells)
    assert queries.answers(rows) == pytest.approx(queries.answers(whole))
    assert queries.answers(rows.merged()) == pytest.approx(queries.answers(rows))
    values = generator.normal(size=queries.count)
    assert queries.spread(values, rows) == pytest.approx(queries.spread(values)[rows.cell(range(len(sizes)))])
    for query in generator.integers(0, queries.count, 5):
        clique, found = queries.find(int(query))
        assert queries.number(clique, found) == query


def test_what_is_too_long_is_not_written_out():
    with pytest.raises(Infeasible, match="50015001 ranges are more than the"):
        Ranges(10_001).answers(np.zeros(10_001))
    assert largest_answer(Ranges(10_001), np.ones(10_001)) == 10_001
    queries = Marginals((100,) * 9, [(0,)])
    assert queries.cells is None
    with pytest.raises(Infeasible, match="give Rows"):
        queries.answers(np.zeros(3))
    with pytest.raises(Infeasible, match="give Rows"):
        queries.spread(np.zeros(100))
    assert queries.answers(Rows(np.zeros((5, 9), dtype=int), (100,) * 9))[0] == 5


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Prefixes(0), "cells must be a whole number of at least 1"),
        (lambda: Matrix([[1, 0]]), "table of truth values"),
        (lambda: Marginals((2,), [(1,)]), "different columns from 0 to 0"),
        (lambda: Marginals((2,), []), "at least one clique"),
        (lambda: Rows([[2]], (2,)), "declare every category"),
        (lambda: Rows([[0.5]], (2,)), "whole numbers"),
        (lambda: Rows([[0]], (2,), [np.nan]), "finite numbers"),
        (lambda: Prefixes(3).answers([1, 2]), "3 numbers, one a cell"),
        (lambda: Prefixes(3).answers([1, 2, np.nan]), "finite"),
        (lambda: Prefixes(3).some([3], [1, 2, 3]), "from 0 to 2"),
        (lambda: Ranges(3).number(2, 1), "must not lie beyond"),
        (lambda: Marginals((2,), [(0,)]).answers(Rows([[0]], (3,))), r"sizes \(3,\)"),
    ],
)
def test_refusals_say_what_was_expected(made, text):
    with pytest.raises(InvalidInput, match=text):
        made()


def test_rows_print_no_record():
    assert repr(Rows([[1, 2]], (3, 3))) == "Rows(1 records, 2 columns)"
