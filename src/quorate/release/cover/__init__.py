"""The public cover of a class: one query for each way in which the class labels the public points, and its cells.

    make_cover          the cover of a class of hypotheses on public points
    Cover               cells, queries, and where a record and a new hypothesis belong
    NOTHING             the number of a query that no point fulfils

Public points alone decide what the cells and the queries are. A record is put into a cell by exact comparisons, each by
itself, and whatever it is: one that is no point of the class (a missing or infinite value) has a cell of its own.
"""

from typing import Any

from quorate.core.errors import InvalidInput
from quorate.models.concepts import Boxes, Concept, Conjunctions, Finite, Halfspaces, Intervals, Stumps, Thresholds
from quorate.release.cover.axes import BoxCover, IntervalCover, ThresholdCover
from quorate.release.cover.base import Cover
from quorate.release.cover.codes import ConjunctionCover, FiniteCover, StumpCover
from quorate.release.cover.halfspaces import HalfspaceCover
from quorate.release.queries import NOTHING

__all__ = ["NOTHING", "Cover", "make_cover"]

_COVERS: dict[type[Concept], Any] = {
    Thresholds: ThresholdCover,
    Intervals: IntervalCover,
    Boxes: BoxCover,
    Halfspaces: HalfspaceCover,
    Conjunctions: ConjunctionCover,
    Stumps: StumpCover,
    Finite: FiniteCover,
}


def make_cover(concept: Concept, public_points: Any) -> Cover:
    """Return the cover of a class on public points. Never pass private ones: cells and queries show them.

    The same class and points, in whatever order, give the same cover.
    """
    for kind, make in _COVERS.items():
        if isinstance(concept, kind):
            cover: Cover = make(concept, public_points)
            return cover
    known = ", ".join(kind.__name__ for kind in _COVERS)
    raise InvalidInput(f"queries can be released for {known}, not for {type(concept).__name__}")
