"""Classes of hypotheses: the dichotomies of each on a point set, and the mistakes that they make."""

from quorate.core.hypotheses.concept import Concept, Dichotomies
from quorate.core.hypotheses.hypothesis import Constant, Hypothesis, Tally
from quorate.models.concepts.boxes import Box, Boxes
from quorate.models.concepts.check import check_concept
from quorate.models.concepts.conjunctions import Conjunction, Conjunctions
from quorate.models.concepts.finite import Finite, Member
from quorate.models.concepts.halfspaces import Halfspace, Halfspaces
from quorate.models.concepts.stumps import Stump, Stumps
from quorate.models.concepts.thresholds import Interval, Intervals, Threshold, Thresholds

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
