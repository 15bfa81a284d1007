"""The covers of thresholds and of intervals: the line cut between public points."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.points import Points
from quorate.models.concepts import Constant, Hypothesis, Interval, Intervals, Threshold, Thresholds
from quorate.release.cover.axis import Axis
from quorate.release.cover.base import Cover, check_public
from quorate.release.queries import NOTHING, Prefixes, Ranges, Whole

__all__ = ["IntervalCover", "ThresholdCover"]


class ThresholdCover(Cover):
    """Cells are numbered from the top, so that what lies above a cut is a prefix; the last one is no part of the line.

    Query j < m is all that lies at or above the lower end of cell j, for m cells on the line. In both directions the
    query m + j is what lies below it: all, less the query j.
    """

    kind = Threshold

    def __init__(self, concept: Thresholds, public: Any) -> None:
        points = check_public(concept, public)
        self._axis, self._both = Axis(points[:, 0]), bool(concept.both_directions)
        super().__init__(concept, len(points), Prefixes(self._axis.cells + 1))

    @property
    def has_differences(self) -> bool:
        """Whether there are downward thresholds: all, less what lies above."""
        return self._both

    def _locate(self, points: Points) -> Any:
        return self._axis.cells - 1 - self._axis.locate(points[:, 0])

    def _check(self, hypothesis: Any) -> None:
        super()._check(hypothesis)
        if isinstance(hypothesis, Threshold) and not hypothesis.upward and not self._both:
            raise InvalidInput("a downward threshold is a query of Thresholds(both_directions=True) only")

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        plain = [_plain(hypothesis) for hypothesis in hypotheses]
        cuts = np.array([cut for cut, _ in plain], dtype=np.float64)
        upward = np.array([up for _, up in plain], dtype=np.bool_)
        cells, below = self._axis.cells, self._axis.below(cuts)
        number = cells - 1 - below  # -1, which is `NOTHING`, where all lie below
        downward = np.where(below == cells, cells - 1, np.where(below == 0, NOTHING, cells + number))
        return np.where(upward, number, downward)

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the prefix that a query is, or the two whose difference it is."""
        plus = np.asarray(numbers, dtype=np.int64)
        cells = self._axis.cells
        turned = plus >= cells
        return np.where(turned, cells - 1, plus), np.where(turned, plus - cells, NOTHING)

    def _hypothesis(self, number: int) -> Hypothesis:
        cells = self._axis.cells
        return Threshold(self._axis.edge(cells - 1 - number % cells), upward=number < cells)

    def centres(self) -> Points:
        """Return the public values, from the top."""
        return np.append(self._axis.values[::-1], np.nan)[:, np.newaxis]


def _plain(hypothesis: Any) -> tuple[float, bool]:
    if isinstance(hypothesis, Constant):
        return (-np.inf if hypothesis.label else np.inf), True
    return hypothesis.cut, hypothesis.upward


class IntervalCover(Cover):
    """Cells from the bottom to the top; the last one is no part of the line. Queries are runs of cells."""

    queries: Ranges
    kind = Interval

    def __init__(self, concept: Intervals, public: Any) -> None:
        points = check_public(concept, public)
        self._axis = Axis(points[:, 0])
        super().__init__(concept, len(points), Ranges(self._axis.cells + 1))

    def _locate(self, points: Points) -> Any:
        return self._axis.locate(points[:, 0])

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        ends = np.array([_ends(hypothesis) for hypothesis in hypotheses], dtype=np.float64).reshape(-1, 2)
        first, last = self._axis.below(ends[:, 0]), self._axis.below(ends[:, 1]) - 1
        numbers = np.full(len(ends), NOTHING)
        some = first <= last
        numbers[some] = self.queries.number(first[some], last[some])
        return numbers

    def _hypothesis(self, number: int) -> Hypothesis:
        first, last = self.queries.pair(number)
        return Interval(self._axis.edge(int(first)), self._axis.edge(int(last) + 1))

    def centres(self) -> Points:
        """Return the public values."""
        return np.append(self._axis.values, np.nan)[:, np.newaxis]


def _ends(hypothesis: Any) -> tuple[float, float]:
    if isinstance(hypothesis, Constant):
        return (-np.inf, np.inf) if hypothesis.label else (np.inf, np.inf)
    return hypothesis.lower, hypothesis.upper
