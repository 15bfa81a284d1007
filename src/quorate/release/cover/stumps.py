"""The cover of stumps: one column of codes for each cut of each feature."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import Infeasible
from quorate.core.hypotheses.points import Points
from quorate.models.concepts import Constant, Hypothesis, Stump, Stumps
from quorate.release.cover.axis import Axis
from quorate.release.cover.base import check_public
from quorate.release.cover.rows import RowCover
from quorate.release.queries import NOTHING, Marginals, Whole

__all__ = ["StumpCover"]

_MOST_CODES = 2**29  # of all rows together: 4 GiB
_MOST_COLUMNS = 2**17


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
        super().__init__(concept, len(points), Marginals((3,) * max(1, columns), cliques))

    def _codes(self, points: Points) -> NDArray[np.int64]:
        columns = len(self.queries.sizes)
        if len(points) * columns > _MOST_CODES:
            raise Infeasible(
                f"{len(points)} records and {columns} cuts have more than {_MOST_CODES} codes; "
                "pass fewer public points, or fewer features"
            )
        codes = np.full((columns, len(points)), 2, dtype=np.int64)
        for feature, axis in enumerate(self._axes):
            values = points[:, feature]
            usable = (values == 0) | (values == 1) if self._binary else np.isfinite(values)
            for place, cut in enumerate(axis.cuts, start=self._starts[feature]):
                codes[place, usable] = values[usable] >= cut
        return codes.T

    def _points(self, codes: Whole) -> Points:
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

    def _hypothesis(self, number: int) -> Hypothesis:
        if number == 0:
            return Constant(features=self.concept.features, label=1)
        column, code = divmod(number - 1, 3)
        feature = int(np.searchsorted(self._starts, column, side="right")) - 1
        cut = float(self._axes[feature].cuts[column - self._starts[feature]])
        return Stump(features=self.concept.features, feature=feature, cut=cut, upward=code == 1)
