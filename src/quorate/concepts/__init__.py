"""Classes of hypotheses: the dichotomies of each on a point set, and the mistakes that they make."""

from quorate.concepts.boxes import Box, Boxes
from quorate.concepts.check import check_concept
from quorate.concepts.concept import Concept, Dichotomies
from quorate.concepts.conjunctions import Conjunction, Conjunctions
from quorate.concepts.finite import Finite, Member
from quorate.concepts.halfspaces import Halfspace, Halfspaces
from quorate.concepts.hypothesis import Constant, Hypothesis
from quorate.concepts.intervals import Interval, Intervals
from quorate.concepts.stumps import Stump, Stumps
from quorate.concepts.tally import Tally
from quorate.concepts.thresholds import Threshold, Thresholds

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
