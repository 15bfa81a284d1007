"""The cover of intervals: the line cut between public points, and every run of cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from quorate.concepts import Constant, Hypothesis, Interval, Intervals
from quorate.concepts.points import Points
from quorate.release.cover.axis import Axis
from quorate.release.cover.base import NOTHING, Cover, check_public
from quorate.release.cover.shares import gap_share
from quorate.release.queries import Ranges

__all__ = ["IntervalCover"]


class IntervalCover(Cover):
    """Cells from the bottom to the top; the last one is no part of the line. Queries are runs of cells.

    >>> cover = IntervalCover(Intervals(), [1.0, 2.0, 3.0])
    >>> cover.project([Interval(1.2, 2.9), Interval(1.2, 1.4)])
    array([ 4, -1])
    >>> cover.queries.members(4)
    slice(1, 2, None)
    """

    queries: Ranges

    def __init__(self, concept: Intervals, public: Any) -> None:
        points = check_public(concept, public)
        self._axis = Axis(points[:, 0])
        super().__init__(concept, len(points), Ranges(self._axis.cells + 1))

    def _locate(self, points: Points) -> Any:
        return self._axis.locate(points[:, 0])

    def _kinds(self) -> tuple[type, ...]:
        return (Interval,)

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        ends = np.array([_plain(hypothesis) for hypothesis in hypotheses], dtype=np.float64).reshape(-1, 2)
        first, last = self._axis.below(ends[:, 0]), self._axis.below(ends[:, 1]) - 1
        numbers = np.full(len(ends), NOTHING)
        some = first <= last
        numbers[some] = self.queries.number(first[some], last[some])
        return numbers

    def hypothesis(self, number: int) -> Hypothesis:
        """Return the interval that a query is.

        >>> IntervalCover(Intervals(), [1.0, 2.0, 3.0]).hypothesis(4)
        Interval(lower=1.5, upper=2.5)
        """
        if number == NOTHING:
            return Constant(features=1, label=0)
        first, last = self.queries.pair(number)
        return Interval(self._axis.edge(int(first)), self._axis.edge(int(last) + 1))

    def centres(self) -> Points:
        """Return the public values.

        >>> IntervalCover(Intervals(), [1.0, 2.0]).centres().tolist()
        [[1.0], [2.0], [nan]]
        """
        return np.append(self._axis.values, np.nan)[:, np.newaxis]

    def share(self, beta: float = 0.05) -> float:
        """Return what two of the largest gaps between public points hold: an interval has two ends.

        >>> round(IntervalCover(Intervals(), range(1000)).share(), 4)
        0.0197
        """
        return gap_share(self.points, beta, gaps=2)


def _plain(hypothesis: Any) -> tuple[float, float]:
    if isinstance(hypothesis, Constant):
        return (-np.inf, np.inf) if hypothesis.label else (np.inf, np.inf)
    return hypothesis.lower, hypothesis.upper
