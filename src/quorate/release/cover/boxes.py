"""The cover of boxes: the grid of all coordinates of public points, and every box of its cells."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from quorate.core.errors import Infeasible
from quorate.core.hypotheses.points import Points
from quorate.models.concepts import Box, Boxes, Constant, Hypothesis
from quorate.release.cover.axis import Axis
from quorate.release.cover.base import Cover, check_cells, check_public
from quorate.release.queries import NOTHING, BoxRanges

__all__ = ["BoxCover"]

_MOST_DIMENSIONS = 3


class BoxCover(Cover):
    """A grid cut halfway between neighbouring public coordinates, axis by axis; the last axis has a slot more.

    The slot is for what is no point: only its last cell is used. A box goes to the box of cells whose public
    coordinates it holds, on each axis by itself: so it labels the public points alike, and errs less than the smallest
    box around them would.
    """

    queries: BoxRanges
    kind = Box

    def __init__(self, concept: Boxes, public: Any) -> None:
        if concept.features > _MOST_DIMENSIONS:
            raise Infeasible(
                f"boxes are covered in up to {_MOST_DIMENSIONS} dimensions, not {concept.features}; take fewer columns"
            )
        points = check_public(concept, public)
        self._axes = [Axis(column) for column in points.T]
        sizes = [axis.cells for axis in self._axes]
        self._shape = (*sizes[:-1], sizes[-1] + 1)
        check_cells(math.prod(self._shape), f"boxes in {concept.features} dimensions on {len(points)} public points")
        super().__init__(concept, len(points), BoxRanges(self._shape))

    def _locate(self, points: Points) -> Any:
        places = tuple(axis.locate(column) for axis, column in zip(self._axes, points.T, strict=True))
        return np.ravel_multi_index(places, self._shape)

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        lower = np.array([_plain(hypothesis)[0] for hypothesis in hypotheses]).reshape(-1, len(self._axes))
        upper = np.array([_plain(hypothesis)[1] for hypothesis in hypotheses]).reshape(-1, len(self._axes))
        first = [axis.below(ends) for axis, ends in zip(self._axes, lower.T, strict=True)]
        last = [axis.below(ends, included=True) - 1 for axis, ends in zip(self._axes, upper.T, strict=True)]
        numbers = np.full(len(hypotheses), NOTHING)
        some = np.logical_and.reduce([low <= high for low, high in zip(first, last, strict=True)])
        numbers[some] = self.queries.number([low[some] for low in first], [high[some] for high in last])
        return numbers

    def _hypothesis(self, number: int) -> Hypothesis:
        bounds = self.queries.bounds(number)
        pairs = [(axis, int(low), int(high)) for axis, (low, high) in zip(self._axes, bounds, strict=True)]
        lower = tuple(axis.edge(low) for axis, low, _ in pairs)
        ends = (axis.edge(high + 1) for axis, _, high in pairs)
        return Box(lower, tuple(end if math.isinf(end) else math.nextafter(end, -math.inf) for end in ends))

    def centres(self) -> Points:
        """Return for each cell the public coordinates that it holds."""
        values = [axis.values for axis in self._axes]
        values[-1] = np.append(values[-1], np.nan)
        grid = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(values))
        grid[np.isnan(grid).any(axis=1)] = np.nan
        return grid


def _plain(hypothesis: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if isinstance(hypothesis, Constant):
        ends = (np.inf,) * hypothesis.features
        below = tuple(-end for end in ends)
        return (below, ends) if hypothesis.label else (ends, below)
    return hypothesis.lower, hypothesis.upper
