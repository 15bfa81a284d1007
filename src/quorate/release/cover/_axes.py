"""The covers of thresholds, intervals and boxes: axes cut halfway between neighbouring public values."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Points, cut_points
from quorate.models.concepts import Box, Boxes, Constant, Hypothesis, Interval, Intervals, Threshold, Thresholds
from quorate.release.cover.base import CellCover, check_public
from quorate.release.queries import NOTHING, BoxRanges, Prefixes, Ranges, Whole
from quorate.release.queries.base import check_cells

Values = NDArray[np.float64]
_MOST_DIMENSIONS = 3


class Axis:
    """A line without bounds, cut halfway between neighbours among the public values: each cell has one of them.

    A value at a cut belongs to the cell above it. With no public value there is one cell, as if 0 were public.
    """

    def __init__(self, values: Values) -> None:
        self.values = np.unique(values) if values.size else np.zeros(1)
        self.cuts = cut_points(self.values)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(self.values.size)

    def locate(self, values: Values) -> Integers:
        """Return the cell of each value."""
        return np.asarray(np.searchsorted(self.cuts, values, side="right"), dtype=np.int64)

    def below(self, bounds: Any, *, included: bool = False) -> Integers:
        """Return the number of public values below each bound, or at and below it where `included` is true."""
        ends = np.asarray(bounds, dtype=np.float64)
        if np.isnan(ends).any():
            raise InvalidInput("the ends of a query must be numbers or infinite, got NaN")
        return np.asarray(np.searchsorted(self.values, ends, side="right" if included else "left"), dtype=np.int64)


class ThresholdCover(CellCover):
    """The cover of thresholds. Cells are numbered from the top, so that a query is a prefix; the last is off the line.

    Query j < m is all that lies at or above the lower end of cell j, for m cells on the line. In both directions the
    query m + j is what lies below it: all, less the query j.
    """

    kind = Threshold

    def __init__(self, concept: Thresholds, public: Any) -> None:
        points = check_public(concept, public)
        self._axis = Axis(points[:, 0])
        self.has_differences = bool(concept.both_directions)  # downward thresholds are all, less those above
        super().__init__(concept, points, Prefixes(self._axis.cells + 1))

    def _locate(self, points: Points) -> Any:
        return self._axis.cells - 1 - self._axis.locate(points[:, 0])

    def _check(self, hypothesis: Any) -> None:
        super()._check(hypothesis)
        if isinstance(hypothesis, Threshold) and not hypothesis.upward and not self.has_differences:
            raise InvalidInput("a downward threshold requires Thresholds(both_directions=True)")

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        plain = [_cut_and_direction(hypothesis) for hypothesis in hypotheses]
        cuts = np.array([cut for cut, _ in plain], dtype=np.float64)
        upward = np.array([up for _, up in plain], dtype=np.bool_)
        cells, below = self._axis.cells, self._axis.below(cuts)
        number = cells - 1 - below  # -1 is `NOTHING`, where all public values lie below
        downward = np.where(below == cells, cells - 1, np.where(below == 0, NOTHING, cells + number))
        return np.where(upward, number, downward)

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the prefix of a query, or the two prefixes whose difference it is."""
        plus = np.asarray(numbers, dtype=np.int64)
        cells = self._axis.cells
        turned = plus >= cells
        return np.where(turned, cells - 1, plus), np.where(turned, plus - cells, NOTHING)

    def centres(self) -> Points:
        """Return the public values, from the top."""
        return np.append(self._axis.values[::-1], np.nan)[:, np.newaxis]


def _cut_and_direction(hypothesis: Any) -> tuple[float, bool]:
    if isinstance(hypothesis, Constant):
        return (-np.inf if hypothesis.label else np.inf), True
    return hypothesis.cut, hypothesis.upward


class IntervalCover(CellCover):
    """The cover of intervals: cells from the bottom to the top, the last off the line. Queries are runs of cells."""

    queries: Ranges
    kind = Interval

    def __init__(self, concept: Intervals, public: Any) -> None:
        points = check_public(concept, public)
        self._axis = Axis(points[:, 0])
        super().__init__(concept, points, Ranges(self._axis.cells + 1))

    def _locate(self, points: Points) -> Any:
        return self._axis.locate(points[:, 0])

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        ends = np.array([_ends(hypothesis) for hypothesis in hypotheses], dtype=np.float64).reshape(-1, 2)
        first, last = self._axis.below(ends[:, 0]), self._axis.below(ends[:, 1]) - 1
        numbers = np.full(len(ends), NOTHING)
        some = first <= last
        numbers[some] = self.queries.number(first[some], last[some])
        return numbers

    def centres(self) -> Points:
        """Return the public values."""
        return np.append(self._axis.values, np.nan)[:, np.newaxis]


def _ends(hypothesis: Any) -> tuple[float, float]:
    if isinstance(hypothesis, Constant):
        return (-np.inf, np.inf) if hypothesis.label else (np.inf, np.inf)
    return hypothesis.lower, hypothesis.upper


class BoxCover(CellCover):
    """A grid cut halfway between neighbouring public coordinates, axis by axis; the last axis has a slot more.

    The slot is for records that are not points: only its last cell is used. A box goes to the box of cells whose public
    coordinates it holds, on each axis by itself: so it labels the public points alike, and errs less than the smallest
    box around them would.
    """

    queries: BoxRanges
    kind = Box

    def __init__(self, concept: Boxes, public: Any) -> None:
        if concept.features > _MOST_DIMENSIONS:
            raise Infeasible(
                f"boxes must have at most {_MOST_DIMENSIONS} dimensions, got {concept.features}; take fewer columns"
            )
        points = check_public(concept, public)
        self._axes = [Axis(column) for column in points.T]
        sizes = [axis.cells for axis in self._axes]
        self._shape = (*sizes[:-1], sizes[-1] + 1)
        check_cells(math.prod(self._shape), f"boxes in {concept.features} dimensions on {len(points)} public points")
        super().__init__(concept, points, BoxRanges(self._shape))

    def _locate(self, points: Points) -> Any:
        indices = tuple(axis.locate(column) for axis, column in zip(self._axes, points.T, strict=True))
        return np.ravel_multi_index(indices, self._shape)

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        lower = np.array([_box_ends(hypothesis)[0] for hypothesis in hypotheses]).reshape(-1, len(self._axes))
        upper = np.array([_box_ends(hypothesis)[1] for hypothesis in hypotheses]).reshape(-1, len(self._axes))
        first = [axis.below(ends) for axis, ends in zip(self._axes, lower.T, strict=True)]
        last = [axis.below(ends, included=True) - 1 for axis, ends in zip(self._axes, upper.T, strict=True)]
        numbers = np.full(len(hypotheses), NOTHING)
        some = np.logical_and.reduce([low <= high for low, high in zip(first, last, strict=True)])
        numbers[some] = self.queries.number([low[some] for low in first], [high[some] for high in last])
        return numbers

    def centres(self) -> Points:
        """Return for each cell the public coordinates that it holds."""
        values = [axis.values for axis in self._axes]
        values[-1] = np.append(values[-1], np.nan)
        grid = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(values))
        grid[np.isnan(grid).any(axis=1)] = np.nan
        return grid


def _box_ends(hypothesis: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if isinstance(hypothesis, Constant):
        ends = (np.inf,) * hypothesis.features
        below = tuple(-end for end in ends)
        return (below, ends) if hypothesis.label else (ends, below)
    return hypothesis.lower, hypothesis.upper


def parse_box(text: str, features: int) -> Hypothesis:
    """Return the box that a text such as "low:high,low:high" says."""
    try:
        ends = [part.split(":") for part in text.split(",")]
        lower = tuple(float(low) if low.strip() else -np.inf for low, _ in ends)
        upper = tuple(float(high) if high.strip() else np.inf for _, high in ends)
    except ValueError:
        lower = upper = ()
    if len(lower) != features or any(not low <= high for low, high in zip(lower, upper, strict=True)):
        raise InvalidInput(f"a box must have {features} sides, such as low:high,low:high, got {text!r}")
    return Box(lower, upper)
