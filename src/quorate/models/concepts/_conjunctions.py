"""Conjunctions of literals over categorical columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.checks import check_count, set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Concept, Constant, Dichotomies, Hypothesis
from quorate.core.hypotheses.points import Labels, Mask, Points

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
