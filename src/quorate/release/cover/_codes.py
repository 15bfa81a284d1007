"""The covers of conjunctions, stumps and lists: records become rows of codes, and queries cells of marginals."""

import itertools
import math
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Points, which_finite
from quorate.models.concepts import Conjunction, Conjunctions, Constant, Finite, Hypothesis, Member, Stump, Stumps
from quorate.release.cover._axes import Axis
from quorate.release.cover.base import Cover, check_public, key_labels, read_points
from quorate.release.queries import NOTHING, Marginals, Rows, Whole

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
