"""The covers of classes that look at coordinates: thresholds, intervals, boxes, stumps, conjunctions, and of lists.

Axes are cut halfway between neighbouring public values. For stumps, conjunctions and lists records become rows of
codes, and queries cells of marginals.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Points, cut_points, which_finite
from quorate.models.concepts import (
    Box,
    Boxes,
    Conjunction,
    Conjunctions,
    Constant,
    Finite,
    Hypothesis,
    Interval,
    Intervals,
    Member,
    Stump,
    Stumps,
    Threshold,
    Thresholds,
)
from quorate.release.cover.base import CellCover, Cover, check_public, key_labels, read_points
from quorate.release.queries import NOTHING, BoxRanges, Marginals, Prefixes, Ranges, Rows, Whole
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


_MOST = 2**24  # conjunctions
_MOST_CODES = 2**29  # of all rows together: 4 GiB
_MOST_COLUMNS = 2**17


class RowCover(Cover):
    """A cover whose cells are those of a table: records become rows of codes, and queries are cells of marginals."""

    queries: Marginals

    def count(self, records: Any) -> Rows:
        """Return the records as rows of codes: what an engine takes."""
        points, columns = read_points(records, features=self.concept.features), len(self.queries.sizes)
        if len(points) * columns > _MOST_CODES:
            raise Infeasible(
                f"{len(points)} records of {columns} columns have more than {_MOST_CODES} codes; pass fewer public "
                "points, fewer features or a shorter list"
            )
        return Rows(self._codes(points), self.queries.sizes)

    def rows(self, cells: Whole, support: Rows | None) -> Points:
        """Return a point of each of these cells of the whole table, or rows; NaN where a value is none."""
        if support is not None:
            return self.points_of(support.codes[cells])
        return self.points_of(np.stack(np.unravel_index(cells, self.queries.sizes), axis=1))

    @abstractmethod
    def points_of(self, codes: Whole) -> Points:
        """Return a point for each row of codes; NaN where a value is none."""

    @abstractmethod
    def _codes(self, points: Points) -> NDArray[np.int64]:
        """Return the codes of any records."""


class ConjunctionCover(RowCover):
    """Every conjunction is a query: the domain is finite, so public points are not needed, and the share is 0.

    A value that is not declared has the last code of its column. It fulfils no literal of that column; literals of
    other columns are not touched by it.
    """

    kind = Conjunction

    def __init__(self, concept: Conjunctions, public: Any) -> None:
        points = check_public(concept, public)
        columns = range(concept.features)
        sizes = tuple(count + 1 for count in concept.categories)
        every = math.prod(size + 1 for size in sizes)
        if every > _MOST:
            raise Infeasible(f"these columns have {every} conjunctions, above {_MOST}; take marginals of a few columns")
        cliques = [clique for order in range(len(sizes) + 1) for clique in itertools.combinations(columns, order)]
        self._cliques = {clique: index for index, clique in enumerate(cliques)}
        self._categories = np.array(concept.categories)
        super().__init__(concept, points, Marginals(sizes, cliques))

    def _codes(self, points: Points) -> NDArray[np.int64]:
        with np.errstate(invalid="ignore"):
            declared = (points >= 0) & (points < self._categories) & (points == np.floor(points))
        return np.where(declared, np.where(declared, points, 0).astype(np.int64), self._categories)

    def points_of(self, codes: Whole) -> Points:
        """Return a point for each row of codes; NaN where a value is none."""
        return np.where(codes < self._categories, codes.astype(np.float64), np.nan)

    def _number(self, hypothesis: Any) -> int:
        if isinstance(hypothesis, Constant):
            return 0 if hypothesis.label else NOTHING
        fixed: dict[int, int] = {}
        for column, value in hypothesis.literals:
            if fixed.setdefault(column, value) != value or not 0 <= value < self._categories[column]:
                return NOTHING  # two values at once, or one that no point has
        columns = tuple(sorted(fixed))
        return self.queries.number(self._cliques[columns], [fixed[column] for column in columns])


class StumpCover(RowCover):
    """For each cut a column that is 1 at and above it, 0 below, and 2 where there is no value; the first query is all.

    A feature is cut halfway between neighbours among its public values; a binary one at a half. The query 1 + 3 j is
    what lies below cut j, and 2 + 3 j what lies at or above it. What has no value there is in neither of them.
    """

    kind = Stump

    def __init__(self, concept: Stumps, public: Any) -> None:
        points = check_public(concept, public)
        binary = np.array([0.0, 1.0])
        self._axes = [Axis(binary if concept.binary else column) for column in points.T]
        self._binary = concept.binary
        self._starts = np.cumsum([0, *(axis.cuts.size for axis in self._axes)])
        columns = int(self._starts[-1])
        if columns > _MOST_COLUMNS:
            raise Infeasible(
                f"{concept.features} features have {columns} cuts between {len(points)} public points, above "
                f"{_MOST_COLUMNS}; pass fewer public points, or round them"
            )
        cliques = [(), *((column,) for column in range(columns))]
        super().__init__(concept, points, Marginals((3,) * max(1, columns), cliques))

    def _codes(self, points: Points) -> NDArray[np.int64]:
        codes = np.full((len(self.queries.sizes), len(points)), 2, dtype=np.int64)
        for feature, axis in enumerate(self._axes):
            values = points[:, feature]
            usable = (values == 0) | (values == 1) if self._binary else np.isfinite(values)
            for index, cut in enumerate(axis.cuts, start=self._starts[feature]):
                codes[index, usable] = values[usable] >= cut
        return codes.T

    def points_of(self, codes: Whole) -> Points:
        """Return a point for each row of codes; NaN where a value is none."""
        points = np.full((len(codes), len(self._axes)), np.nan)
        for feature, axis in enumerate(self._axes):
            part = codes[:, self._starts[feature] : self._starts[feature + 1]]
            points[:, feature] = axis.values[(part == 1).sum(axis=1)]
            points[(part == 2).any(axis=1), feature] = np.nan
        return points

    def _number(self, hypothesis: Any) -> int:
        if isinstance(hypothesis, Constant):
            return 0 if hypothesis.label else NOTHING
        axis = self._axes[hypothesis.feature]
        below = int(axis.below(hypothesis.cut))
        if below in (0, axis.cells):
            return 0 if (below == 0) == hypothesis.upward else NOTHING
        return 1 + 3 * int(self._starts[hypothesis.feature] + below - 1) + int(hypothesis.upward)


class FiniteCover(RowCover):
    """For each kind of member a column with its label, and 2 for a record with a missing value; the first query is all.

    Members that label all public points alike are one query: the first of them. The cells are not known from the list
    alone, so a representative point is known only for the public ones' rows of codes.
    """

    concept: Finite
    kind = Hypothesis

    def __init__(self, concept: Finite, public: Any) -> None:
        points = check_public(concept, public)
        kinds: dict[bytes, int] = {}
        self._members: list[Member] = []
        self._kind: list[int] = []
        for index in range(len(concept.members)):
            member = concept.member(index)
            kind = kinds.setdefault(key_labels(member.label_points(points)), len(self._members))
            if kind == len(self._members):
                self._members.append(member)
            self._kind.append(kind)
        self._kinds_by_labels = kinds
        cliques = [(), *((column,) for column in range(len(self._members)))]
        super().__init__(concept, points, Marginals((3,) * len(self._members), cliques))

    def _codes(self, points: Points) -> NDArray[np.int64]:
        usable = which_finite(points)
        codes = np.full((len(self._members), len(points)), 2, dtype=np.int64)
        for column, member in enumerate(self._members):
            codes[column, usable] = member.label_points(points[usable])
        return codes.T

    def points_of(self, codes: Whole) -> Points:
        """Return a point for each row of codes; NaN where a value is none."""
        points_by_codes = {
            tuple(row): point
            for row, point in zip(self._codes(self.public_points).tolist(), self.public_points, strict=True)
        }
        missing = np.full(self.concept.features, np.nan)
        return np.array([points_by_codes.get(tuple(row), missing) for row in codes.tolist()]).reshape(
            -1, self.concept.features
        )

    def _has_rule(self, member: Member) -> bool:
        """Return whether a member is of this very list."""
        members = self.concept.members
        return 0 <= member.index < len(members) and members[member.index] is member.rule

    def _number(self, hypothesis: Any) -> int:
        if isinstance(hypothesis, Constant):
            return 0 if hypothesis.label else NOTHING
        if isinstance(hypothesis, Member) and self._has_rule(hypothesis):
            return 2 + 3 * self._kind[hypothesis.index]
        kind = self._kinds_by_labels.get(key_labels(hypothesis.label_points(self.public_points)))
        if kind is None:
            raise InvalidInput("this query labels the public points as no member of the list does")
        return 2 + 3 * kind
