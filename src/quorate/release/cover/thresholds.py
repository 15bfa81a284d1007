"""The cover of thresholds: the line cut between public points."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quorate.concepts import Constant, Hypothesis, Threshold, Thresholds
from quorate.concepts.points import Points
from quorate.errors import InvalidInput
from quorate.release.cover.axis import Axis
from quorate.release.cover.base import NOTHING, Cover, Whole, check_public
from quorate.release.cover.shares import gap_share
from quorate.release.queries import Prefixes

__all__ = ["ThresholdCover"]


class ThresholdCover(Cover):
    """Cells are numbered from the top, so that what lies above a cut is a prefix; the last one is no part of the line.

    Query j < m is all that lies at or above the lower end of cell j, for m cells on the line. In both directions the
    query m + j is what lies below it: all, less the query j.

    >>> cover = ThresholdCover(Thresholds(both_directions=True), [1.0, 2.0, 3.0])
    >>> cover.project([Threshold(1.5), Threshold(1.5, upward=False)])
    array([1, 4])
    >>> cover.read(cover.queries.answers(cover.count([0.0, 2.0, 9.0])), [1, 4])
    array([2., 1.])
    """

    def __init__(self, concept: Thresholds, public: Any) -> None:
        points = check_public(concept, public)
        self._axis, self._both = Axis(points[:, 0]), concept.both_directions
        super().__init__(concept, len(points), Prefixes(self._axis.cells + 1))

    @property
    def has_differences(self) -> bool:
        """Whether there are downward thresholds: all, less what lies above.

        >>> ThresholdCover(Thresholds(), [1.0]).has_differences
        False
        """
        return self._both

    def _locate(self, points: Points) -> Any:
        return self._axis.cells - 1 - self._axis.locate(points[:, 0])

    def _kinds(self) -> tuple[type, ...]:
        return (Threshold,)

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
        """Return the prefix that a query is, or the two whose difference it is.

        >>> ThresholdCover(Thresholds(both_directions=True), [1.0, 2.0, 3.0]).parts([1, 4])
        (array([1, 2]), array([-1,  1]))
        """
        plus = np.asarray(numbers, dtype=np.int64)
        cells = self._axis.cells
        turned = plus >= cells
        return np.where(turned, cells - 1, plus), np.where(turned, plus - cells, NOTHING)

    def hypothesis(self, number: int) -> Hypothesis:
        """Return the threshold that a query is.

        >>> ThresholdCover(Thresholds(), [1.0, 2.0]).hypothesis(0)
        Threshold(cut=1.5, upward=True)
        """
        if number == NOTHING:
            return Constant(features=1, label=0)
        cells = self._axis.cells
        return Threshold(self._axis.edge(cells - 1 - number % cells), upward=number < cells)

    def centres(self) -> Points:
        """Return the public values, from the top.

        >>> ThresholdCover(Thresholds(), [1.0, 2.0]).centres().tolist()
        [[2.0], [1.0], [nan]]
        """
        return np.append(self._axis.values[::-1], np.nan)[:, np.newaxis]

    def share(self, beta: float = 0.05) -> float:
        """Return what the largest gap between public points holds.

        >>> round(ThresholdCover(Thresholds(), range(1000)).share(), 4)
        0.0099
        """
        return gap_share(self.points, beta)


def _plain(hypothesis: Any) -> tuple[float, bool]:
    if isinstance(hypothesis, Constant):
        return (-np.inf if hypothesis.label else np.inf), True
    return hypothesis.cut, hypothesis.upward
