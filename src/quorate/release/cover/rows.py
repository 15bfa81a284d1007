"""What covers over rows of codes have in common: one categorical column for each thing that is asked."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.errors import Infeasible
from quorate.core.hypotheses.points import Points
from quorate.release.cover.base import Cover, read_points
from quorate.release.queries import Marginals, Rows, Whole

__all__ = ["RowCover"]


class RowCover(Cover):
    """A cover whose cells are those of a table: records become rows of codes, and queries are cells of marginals."""

    queries: Marginals

    def count(self, records: Any) -> Rows:
        """Return the records as rows of codes: what an engine takes."""
        points = read_points(records, features=self.concept.features)
        return Rows(self._codes(points), self.queries.sizes)

    def locate(self, records: Any) -> Whole:
        """Return the number of each record's cell of the whole table, where that is small enough to be numbered."""
        if self.cells is None:
            raise Infeasible("this cover has too many cells to number: use count, which gives rows")
        return self.count(records).cell(range(len(self.queries.sizes)))

    def centres(self, codes: ArrayLike | None = None) -> Points:
        """Return a point for each row of codes, or for each cell of the whole table; NaN where a value is none."""
        if codes is None:
            if self.cells is None:
                raise Infeasible("this cover has too many cells to list: pass the codes of some rows")
            sizes = self.queries.sizes
            codes = np.stack(np.unravel_index(np.arange(self.cells), sizes), axis=1)
        return self._points(np.asarray(codes, dtype=np.int64))

    def _locate(self, points: Points) -> Any:
        raise AssertionError("records are counted as rows")

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        return [self._number(hypothesis) for hypothesis in hypotheses]

    @abstractmethod
    def _number(self, hypothesis: Any) -> int:
        """Return the query of a checked hypothesis."""

    @abstractmethod
    def _codes(self, points: Points) -> NDArray[np.int64]:
        """Return the codes of any records."""

    @abstractmethod
    def _points(self, codes: Whole) -> Points:
        """Return a point for each row of codes."""
