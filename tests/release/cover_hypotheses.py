"""The hypothesis that a query of a cover is: the inverse of `find`, by which tests check it."""

import math
from fractions import Fraction
from functools import singledispatch

import numpy as np

from quorate.models.concepts import Box, Conjunction, Constant, Halfspace, Interval, Stump, Threshold
from quorate.release.cover._coordinates import (
    BoxCover,
    ConjunctionCover,
    FiniteCover,
    IntervalCover,
    StumpCover,
    ThresholdCover,
)
from quorate.release.cover._halfspaces import HalfspaceCover
from quorate.release.queries import NOTHING


def hypothesis_of(cover, number):
    """Return the hypothesis that a query of `cover.queries`, or a difference of two, is."""
    return Constant(features=cover.concept.features, label=0) if number == NOTHING else _hypothesis(cover, number)


def edge(axis, cell):
    """Return the lower end of a cell, from minus infinity for the first to infinity after the last."""
    if cell <= 0:
        return -np.inf
    return float(axis.cuts[cell - 1]) if cell < axis.cells else np.inf


@singledispatch
def _hypothesis(cover, number):
    raise TypeError(f"queries of {type(cover).__name__} have no hypotheses here")


@_hypothesis.register
def _(cover: ThresholdCover, number):
    cells = cover._axis.cells
    return Threshold(edge(cover._axis, cells - 1 - number % cells), upward=number < cells)


@_hypothesis.register
def _(cover: IntervalCover, number):
    first, last = cover.queries.pair(number)
    return Interval(edge(cover._axis, int(first)), edge(cover._axis, int(last) + 1))


@_hypothesis.register
def _(cover: BoxCover, number):
    bounds = cover.queries.bounds(number)
    pairs = [(axis, int(low), int(high)) for axis, (low, high) in zip(cover._axes, bounds, strict=True)]
    lower = tuple(edge(axis, low) for axis, low, _ in pairs)
    ends = (edge(axis, high + 1) for axis, _, high in pairs)
    return Box(lower, tuple(end if math.isinf(end) else math.nextafter(end, -math.inf) for end in ends))


@_hypothesis.register
def _(cover: ConjunctionCover, number):
    clique, codes = cover.queries.find(number)
    literals = tuple(zip(cover.queries.cliques[clique], codes, strict=True))
    return Conjunction(features=cover.concept.features, literals=literals)


@_hypothesis.register
def _(cover: StumpCover, number):
    if number == 0:
        return Constant(features=cover.concept.features, label=1)
    column, code = divmod(number - 1, 3)
    feature = int(np.searchsorted(cover._starts, column, side="right")) - 1
    cut = float(cover._axes[feature].cuts[column - cover._starts[feature]])
    return Stump(features=cover.concept.features, feature=feature, cut=cut, upward=code == 1)


@_hypothesis.register
def _(cover: FiniteCover, number):
    if number == 0:
        return Constant(features=cover.concept.features, label=1)
    column, code = divmod(number - 1, 3)
    assert code == 1, f"query {number} is no member of the list"
    return cover._members[column]


@_hypothesis.register
def _(cover: HalfspaceCover, number):
    lines = len(cover.lines)
    if number == lines:
        return Constant(features=2, label=1)
    line = number % (lines + 1)
    slope, intercept, turn = cover.lines.slopes[line], cover.lines.intercepts[line], 1 if number < lines else -1
    level = ((-slope * turn, Fraction(turn)), intercept * turn)
    return Halfspace(features=2, levels=(level,), otherwise=int(turn < 0))


def read_answers(domain, answers, numbers):
    """The answers of these numbers, given the answers of all queries of the engine: differences of two of them."""
    padded = np.append(answers, 0.0)  # `NOTHING` is the last place
    plus, minus = domain.parts(numbers)
    return padded[plus] - padded[minus]
