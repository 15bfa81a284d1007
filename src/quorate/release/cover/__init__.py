"""The public cover of a class: one query for each dichotomy of the public points, and the cells of these queries.

    make_cover          the cover of a class of hypotheses on public points
    parse_hypothesis    a box or a halfspace from a text
    Cover cells and queries; maps records to cells and hypotheses to queries

Public points alone decide the cells and the queries. Exact comparisons put each record into a cell, independently of
all others. A record that is not a point of the class (a missing or infinite value) goes to a separate cell.
"""

from typing import Any

from quorate.core.errors import InvalidInput
from quorate.models.concepts import Boxes, Concept, Conjunctions, Finite, Halfspaces, Intervals, Stumps, Thresholds
from quorate.release.cover._coordinates import (
    BoxCover,
    ConjunctionCover,
    FiniteCover,
    IntervalCover,
    StumpCover,
    ThresholdCover,
    parse_box,
)
from quorate.release.cover._halfspaces import HalfspaceCover, parse_halfspace
from quorate.release.cover.base import Cover

__all__ = ["Cover", "make_cover", "parse_hypothesis"]

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
    names = ", ".join(kind.__name__ for kind in _COVERS)
    raise InvalidInput(f"queries can be released for {names}, not for {type(concept).__name__}")


def parse_hypothesis(text: str, concept: Concept) -> Any:
    """Parse a box or halfspace from text; return the text of any other class unchanged."""
    if isinstance(concept, Boxes):
        return parse_box(text, concept.features)
    return parse_halfspace(text, concept.features) if isinstance(concept, Halfspaces) else text
