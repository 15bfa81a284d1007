"""The contract of a class of hypotheses, checked by brute force on a small point set."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import Concept, Dichotomies, Labels, Mask, Points, check_queries, sauer

_MOST_POINTS = 12  # all labelings of these are looked at
_LABELINGS = 32  # of a larger set
_ODD = (0.5, -1.0, 2.0**31, float(np.finfo(np.float64).max), 5e-324)  # values that a private row may have

Row = tuple[int, ...]


def check_concept(concept: Concept, X: Any, *, realizable: Callable[[Points, Labels], bool] | None = None) -> None:
    """Raise AssertionError, with the reason, unless the class keeps its contract on these points (at most 12).

    Checked: representatives are distinct and cover all dichotomies; repeating and reordering points changes nothing;
    the dichotomies of a subset of the points are those of the whole, restricted; Sauer's bound and the growth bound
    hold; mistakes, tallies and picks agree with counting one by one, also on points other than those that define the
    candidates, and of another number; the exponential mechanism has the same probabilities from the tally as from a
    list; the empirical risk minimiser has the fewest mistakes; a row that is not `usable`, which is decided for each
    row by itself, defines no candidate and makes no mistake. `realizable(points, labels)` is an optional independent
    test of whether some hypothesis gives the distinct points these labels.

    >>> from quorate.models.concepts import Thresholds
    >>> check_concept(Thresholds(), [1.0, 2.0, 2.0, 5.0])
    >>> check_concept(Thresholds(), [1.0, 2.0], realizable=lambda points, labels: True)
    Traceback (most recent call last):
    ...
    AssertionError: dichotomies: (1, 0) is realizable and missing
    """
    points = check_queries(X, features=concept.features)
    if len(points) > _MOST_POINTS:
        raise InvalidInput(f"check_concept takes at most {_MOST_POINTS} points, not {len(points)}")
    odd = np.concatenate([points, np.repeat(np.array(_ODD)[:, np.newaxis], concept.features, axis=1)])
    usable = _check_usable(concept, odd)
    points, used, unused = points[usable[: len(points)]], odd[usable], odd[~usable]
    distinct = np.unique(points, axis=0)
    rows = _rows(concept.dichotomies(distinct), distinct)
    _check_bounds(concept, distinct, rows)
    if realizable is not None:
        for row in itertools.product((0, 1), repeat=len(distinct)):
            expected, there = bool(realizable(distinct, np.array(row, dtype=np.int64))), row in rows
            _require(there or not expected, f"dichotomies: {row} is realizable and missing")
            _require(expected or not there, f"dichotomies: {row} is listed and not realizable")
    _check_repeats(concept, distinct, rows)
    _check_parts(concept, distinct, rows)
    _check_unused(concept, distinct, unused, rows)
    for defining in (points, points[::2]):
        _check_counts(concept.dichotomies(defining), defining, points)
    _check_counts(concept.dichotomies(points), points, used[-8:], labelings=3)
    for row in used:
        extended = np.concatenate([distinct, row[np.newaxis]])
        count, bound = len(concept.dichotomies(extended)), concept.growth(len(extended))
        _require(
            count <= bound, f"growth: {count} dichotomies pass growth({len(extended)}), with a row that can be used"
        )
    for labels in _labelings(len(distinct)):
        _check_erm(concept, distinct, labels, rows)


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def _labelings(count: int, limit: int = _LABELINGS) -> Iterator[Labels]:
    """Yield all labelings of a few points, or some of them, spread by an odd step."""
    every = 2**count
    for number in range(min(every, limit)):
        code = number * 0x9E3779B1 % every
        yield np.array([code >> bit & 1 for bit in range(count)], dtype=np.int64)


def _rows(dichotomies: Dichotomies, points: Points) -> set[Row]:
    """Return the labels that the representatives give, and check that all rows of labels differ."""
    listed = [tuple(candidate.predict(points).tolist()) for candidate in dichotomies]
    for labels, times in Counter(listed).items():
        _require(times == 1, f"dichotomies: {labels} has {times} representatives")
        _require(set(labels) <= {0, 1}, f"predict: labels must be 0 and 1, not {labels}")
    return set(listed)


def _check_bounds(concept: Concept, distinct: Points, rows: set[Row]) -> None:
    count, dimension = len(distinct), concept.vc_dimension
    _require(len(rows) <= sauer(count, dimension), f"vc_dimension: {len(rows)} dichotomies pass Sauer's bound")
    _require(len(rows) <= concept.growth(count), f"growth: {len(rows)} dichotomies pass growth({count})")
    _require(concept.growth(count) <= sauer(count, dimension), "growth: larger than Sauer's bound")
    _require(concept.growth(0) == len(concept.dichotomies(distinct[:0])) == 1, "growth: no points have one dichotomy")
    for size in range(dimension + 1, min(count, dimension + 2) + 1):
        for chosen in itertools.combinations(range(count), size):
            restricted = {tuple(row[index] for index in chosen) for row in rows}
            _require(len(restricted) < 2**size, f"vc_dimension: {dimension}, and {size} points are shattered")


def _check_usable(concept: Concept, points: Points) -> Mask:
    """Return which rows are usable, and check that this depends on each row alone."""
    usable = concept.usable(points)
    _require(usable.shape == (len(points),), "usable: not one answer for each row")
    alone = [bool(concept.usable(row[np.newaxis])[0]) for row in points]
    _require(usable.tolist() == alone, "usable: what is said of a row depends on the others")
    _require(not concept.usable(points * np.nan).any(), "usable: a row with a missing value can be used")
    return usable


def _check_unused(concept: Concept, distinct: Points, unused: Points, rows: set[Row]) -> None:
    """Compare candidates and mistakes with those of the usable rows alone."""
    dichotomies, labels = concept.dichotomies(distinct), np.arange(len(distinct)) % 2
    for row in unused:
        extended, extended_labels = np.concatenate([distinct, row[np.newaxis]]), np.append(labels, 1)
        _require(_rows(concept.dichotomies(extended), distinct) == rows, "dichotomies: a row that is not usable counts")
        counts = (
            dichotomies.tally(points, y).counts.tolist()
            for points, y in ((distinct, labels), (extended, extended_labels))
        )
        _require(next(counts) == next(counts), "tally: a row that is not usable counts")
        counted = (
            dichotomies.mistakes(points, y).tolist() for points, y in ((distinct, labels), (extended, extended_labels))
        )
        _require(next(counted) == next(counted), "mistakes: a row that is not usable counts")


def _check_repeats(concept: Concept, distinct: Points, rows: set[Row]) -> None:
    again = np.concatenate([distinct[::-1], distinct, distinct[:1]])
    dichotomies = concept.dichotomies(again)
    _require(len(dichotomies) == len(rows), "dichotomies: repeated points change their number")
    _require(_rows(dichotomies, distinct) == rows, "dichotomies: repeated or reordered points change them")
    spoiled = np.concatenate([distinct, np.full((1, concept.features), np.nan)])
    _require(_rows(concept.dichotomies(spoiled), distinct) == rows, "dichotomies: a row with a missing value counts")


def _check_parts(concept: Concept, distinct: Points, rows: set[Row]) -> None:
    for left_out in range(len(distinct)):
        part = np.delete(distinct, left_out, axis=0)
        expected = {row[:left_out] + row[left_out + 1 :] for row in rows}
        labelled = _rows(concept.dichotomies(part), part)
        _require(labelled == expected, "dichotomies: those of a part of the points are not those of all, restricted")


def _check_counts(dichotomies: Dichotomies, defining: Points, points: Points, labelings: int = _LABELINGS) -> None:
    """Compare mistakes, tallies and picks with the predictions of each candidate, for many labelings."""
    names = [tuple(candidate.predict(defining).tolist()) for candidate in dichotomies]
    predicted = np.array([candidate.predict(points) for candidate in dichotomies]).reshape(len(names), len(points))
    for labels in _labelings(len(points), labelings):
        expected = (predicted != labels).sum(axis=1)
        counted = dichotomies.mistakes(points, labels)
        _require(counted.tolist() == expected.tolist(), "mistakes: not those of the candidates")
        tally = dichotomies.tally(points, labels)
        counts = np.bincount(expected, minlength=len(labels) + 1)
        _require(tally.counts.tolist() == counts.tolist(), "tally: counts are not those of the candidates")
        picked = [(m, tally.pick(m, rank)) for m in range(counts.size) for rank in range(counts[m])]
        law = Counter({tuple(hypothesis.predict(defining).tolist()): math.exp(-m / 2) for m, hypothesis in picked})
        listed = Counter({name: math.exp(-m / 2) for name, m in zip(names, expected.tolist(), strict=True)})
        _require(law == listed, "tally: picks do not reach every candidate once, at its own number of mistakes")
    spoiled = np.concatenate([points, points[:1], np.full((1, points.shape[1]), np.inf)])
    extra = np.concatenate([labels, np.full(min(1, len(labels)), 7), [0]])
    counted = dichotomies.tally(spoiled, extra).counts
    _require(counted[: counts.size].tolist() == counts.tolist(), "tally: a row that cannot be used counts")


def _check_erm(concept: Concept, points: Points, labels: Labels, rows: set[Row]) -> None:
    mistakes = int((concept.fit_erm(points, labels).predict(points) != labels).sum())
    fewest = min(sum(a != b for a, b in zip(row, labels.tolist(), strict=True)) for row in rows)
    _require(mistakes == fewest, f"fit_erm: {mistakes} mistakes where {fewest} are possible")
