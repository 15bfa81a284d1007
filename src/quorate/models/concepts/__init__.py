"""Concept classes: enumerate the dichotomies of a class on a point set and count their mistakes."""

from quorate.core.hypotheses.concept import Concept, Constant, Dichotomies, Hypothesis, Tally
from quorate.models.concepts._boxes import Box, Boxes, Conjunction, Conjunctions
from quorate.models.concepts._check import check_concept
from quorate.models.concepts._finite import Finite, Member
from quorate.models.concepts._halfspaces import Halfspace, Halfspaces
from quorate.models.concepts._thresholds import Interval, Intervals, Threshold, Thresholds
from quorate.models.concepts.stumps import Stump, Stumps

__all__ = [
    "Box",
    "Boxes",
    "Concept",
    "Conjunction",
    "Conjunctions",
    "Constant",
    "Dichotomies",
    "Finite",
    "Halfspace",
    "Halfspaces",
    "Hypothesis",
    "Interval",
    "Intervals",
    "Member",
    "Stump",
    "Stumps",
    "Tally",
    "Threshold",
    "Thresholds",
    "check_concept",
]
