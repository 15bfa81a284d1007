"""Boxes whose sides are parallel to the axes, and conjunctions of values of categorical columns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.checks import check_count, set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import (
    LISTED,
    Concept,
    Constant,
    Dichotomies,
    Hypothesis,
    Labels,
    Mask,
    Points,
    lead_below,
    sauer,
)

Corner = tuple[float, ...]


@dataclass(frozen=True)
class Box(Hypothesis):
    """A box: label 1 if every coordinate lies between its lower and its upper end, both included."""

    lower: Corner
    upper: Corner

    @property
    def features(self) -> int:  # type: ignore[override]
        """The number of coordinates."""
        return len(self.lower)

    def _predict(self, points: Points) -> Any:
        return ((points >= np.array(self.lower)) & (points <= np.array(self.upper))).all(axis=1)


@dataclass(frozen=True)
class Boxes(Concept):
    """All axis-parallel boxes, including the empty one.

    Each representative is the smallest box of its dichotomy.

    >>> Boxes(2).fit_erm([[0, 0], [1, 2], [2, 1], [5, 1]], [0, 1, 1, 0])
    Box(lower=(1.0, 1.0), upper=(2.0, 2.0))
    """

    features: int

    def __post_init__(self) -> None:
        set_validated(self, features=check_count("features", self.features))

    @property
    def vc_dimension(self) -> int:
        """Twice the number of dimensions: the outermost points on each side enclose all others."""
        return 2 * self.features

    def check_size(self, rows: int) -> None:
        """Raise an error if this many rows have too many dichotomies."""
        if sauer(rows, self.vc_dimension) > LISTED:
            raise Infeasible(
                f"{rows} points may have more than {LISTED} boxes in {self.features} dimensions; pass fewer points"
            )

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _SmallestBoxes(np.unique(points, axis=0))


class _Slab(NamedTuple):
    """A range in every dimension but the last, and the points inside it."""

    lower: Corner
    upper: Corner
    members: Points  # of the points that define the boxes
    rows: Integers  # indices of the labelled rows


class _SmallestBoxes(Dichotomies):
    """The empty box, and the smallest box around each set of points that a box can cut out.

    A box is the smallest of its kind if a point of it lies on each of its sides. Slab by slab: for a range in each
    dimension but the last, the box runs in the last one from the a-th to the b-th value in the slab. It has a point on
    each side of the slab just if b reaches the next such point from a on, side by side: all b from `reach[a]`.
    """

    def __init__(self, points: Points) -> None:
        self._points, self.features = points, points.shape[1]
        sizes, self._ranges = [0], []
        for slab in self._slabs(np.empty((0, self.features))):
            values, reach = _ends(slab)
            sizes.append(int((values.size - reach).sum()))
            self._ranges.append((slab.lower, slab.upper))
        self._sizes = np.cumsum(sizes)

    def __len__(self) -> int:
        return 1 + int(self._sizes[-1])

    def _slabs(self, rows: Points) -> Iterator[_Slab]:
        if len(self._points) == 0:
            return
        pending = [_Slab((), (), self._points, np.arange(len(rows)))]
        for dimension in range(self.features - 1):
            pending = [part for slab in pending for part in _cut(slab, dimension, rows)]
        yield from pending

    def _candidate(self, index: int) -> Hypothesis:
        if index == 0:
            return Box((np.inf,) * self.features, (-np.inf,) * self.features)
        slab = int(np.searchsorted(self._sizes, index - 1, side="right")) - 1
        lower, upper = self._ranges[slab]
        leading = self._points[:, :-1]
        inside = ((leading >= np.array(lower)) & (leading <= np.array(upper))).all(axis=1)
        values, reach = _ends(_Slab(lower, upper, self._points[inside], np.empty(0, dtype=np.int64)))
        low, high = (ends[index - 1 - self._sizes[slab]] for ends in _pairs(reach))
        return Box((*lower, float(values[low])), (*upper, float(values[high])))

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        mistakes = np.empty(len(self), dtype=np.int32 if len(labels) < 2**31 else np.int64)
        mistakes[0] = ones = np.count_nonzero(labels == 1)
        for slab, start, end in zip(self._slabs(points), self._sizes[:-1], self._sizes[1:], strict=True):
            values, reach = _ends(slab)
            last, row_labels = points[slab.rows, -1], labels[slab.rows]
            below, upto = lead_below(values, last, row_labels), lead_below(values, last, row_labels, side="right")
            low, high = _pairs(reach)
            mistakes[1 + start : 1 + end] = ones - (upto[high] - below[low])
        return mistakes


def _cut(slab: _Slab, dimension: int, rows: Points) -> Iterator[_Slab]:
    """Yield the slab cut down to each range of this dimension between two of its own values."""
    here, there = slab.members[:, dimension], rows[slab.rows, dimension]
    values = np.unique(here)
    for low in values:
        above, above_rows = here >= low, there >= low
        for high in values[values >= low]:
            yield _Slab(
                (*slab.lower, float(low)),
                (*slab.upper, float(high)),
                slab.members[above & (here <= high)],
                slab.rows[above_rows & (there <= high)],
            )


def _ends(slab: _Slab) -> tuple[NDArray[np.float64], Integers]:
    """Return the values in the last dimension, and for each as lower end the first upper end that touches all sides."""
    values, value_numbers = np.unique(slab.members[:, -1], return_inverse=True)
    reach = np.arange(values.size)
    for dimension in range(len(slab.lower)):
        for side in (slab.lower[dimension], slab.upper[dimension]):
            touching = np.full(values.size, values.size)
            touched = value_numbers[slab.members[:, dimension] == side]
            touching[touched] = touched
            reach = np.maximum(reach, np.minimum.accumulate(touching[::-1])[::-1])
    return values, reach


def _pairs(reach: Integers) -> tuple[Integers, Integers]:
    """Return all pairs of a lower end and an upper end that is at least its reach."""
    sizes = reach.size - reach
    low = np.repeat(np.arange(reach.size), sizes)
    starts = np.cumsum(sizes) - sizes
    return low, np.arange(low.size) - starts[low] + reach[low]


_LARGEST_CUBE = 2**24  # cells, of eight bytes each


@dataclass(frozen=True, kw_only=True)
class Conjunction(Hypothesis):
    """A conjunction: label 1 if each named column has the named value."""

    features: int
    literals: tuple[tuple[int, int], ...]

    def _predict(self, points: Points) -> Any:
        columns, values = [column for column, _ in self.literals], [value for _, value in self.literals]
        return (points[:, columns] == np.array(values, dtype=np.float64)).all(axis=1)


@dataclass(frozen=True, init=False)
class Conjunctions(Concept):
    """All conjunctions of literals "this column has this value", and the constant 0.

    `categories` is the number of values of each column, which is public; values are coded from 0. A column of two
    values has both literals, so these are the Boolean conjunctions. A row with any other value is left out.

    >>> X = [[0, 0], [0, 1], [1, 2], [1, 1]]
    >>> Conjunctions([2, 3]).fit_erm(X, [0, 0, 0, 1]).literals
    ((0, 1), (1, 1))
    """

    categories: tuple[int, ...]
    features: int

    def __init__(self, categories: Sequence[int]) -> None:
        counts = tuple(check_count("categories", count) for count in categories)
        set_validated(self, categories=counts, features=len(counts))
        if not counts:
            raise InvalidInput("categories must name at least one column")
        if self._cells() > _LARGEST_CUBE:
            raise Infeasible(
                f"conjunctions over these columns are {self._cells()}, above {_LARGEST_CUBE}; "
                "take fewer columns or merge rare values"
            )

    @property
    def vc_dimension(self) -> int:
        """The number of columns with two values or more, and at least 2 (at least 1 if there is none).

        In a shattered set of three points or more, each point is excluded by its own column, in which all others agree
        (Natschlaeger and Schmitt 1996 for Boolean columns).
        """
        telling = sum(count > 1 for count in self.categories)
        return max(2, telling) if telling else 1

    def _cells(self) -> int:
        return math.prod(count + 1 for count in self.categories)

    def _growth(self, points: int) -> int:
        return min(self._cells() + 1, 1 << min(points, 64))

    def _usable(self, points: Points) -> Mask:
        counts = np.array(self.categories, dtype=np.float64)
        declared: Mask = ((points >= 0) & (points < counts) & (points == np.floor(points))).all(axis=1)
        return declared

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Patterns(self.categories, points)


class _Patterns(Dichotomies):
    """The constant 0, and for each other dichotomy its longest conjunction.

    A pattern fixes some columns and leaves the others free: a cell of a cube whose axes have one entry for each value
    and a last one for "free". Its extent is the set of points that it covers. Extents that are not empty belong one
    to one to the patterns that cannot be made longer without losing a point.
    """

    def __init__(self, categories: tuple[int, ...], points: Points) -> None:
        self._categories, self.features = categories, len(categories)
        covered = self._cube(points, None)
        longest = covered > 0
        for axis, count in enumerate(categories):
            moved, maximal = np.moveaxis(covered, axis, 0), np.moveaxis(longest, axis, 0)
            maximal[count] &= moved[:count].max(axis=0) < moved[count]
        self._chosen = np.flatnonzero(longest)

    def __len__(self) -> int:
        return 1 + self._chosen.size

    def _candidate(self, index: int) -> Hypothesis:
        if index == 0:
            return Constant(features=self.features, label=0)
        cell = np.unravel_index(int(self._chosen[index - 1]), [count + 1 for count in self._categories])
        fixed = [(column, int(value)) for column, value in enumerate(cell) if value < self._categories[column]]
        return Conjunction(features=self.features, literals=tuple(fixed))

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        lead = self._cube(points, 2 * labels - 1)
        return np.count_nonzero(labels == 1) - np.append(0, lead.ravel()[self._chosen])

    def _cube(self, points: Points, weights: Integers | None) -> Integers:
        """Return for each pattern the sum of weights over the rows it covers, or the number of distinct ones."""
        shape = tuple(count + 1 for count in self._categories)
        cells = np.ravel_multi_index(tuple(points.astype(np.int64).T), shape)
        cube = np.zeros(math.prod(shape), dtype=np.int64)
        if weights is None:
            cube[cells] = 1
        else:
            np.add.at(cube, cells, weights)
        cube = cube.reshape(shape)
        for axis, count in enumerate(self._categories):
            moved = np.moveaxis(cube, axis, 0)
            moved[count] = moved[:count].sum(axis=0)
        return cube
