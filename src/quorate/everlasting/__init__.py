"""Everlasting prediction: phases of answers, each taught by the one before; records and queries are both protected.

classifier   EverlastingClassifier, which goes from phase to phase
settings     what it is told, checked; shown: what everybody may know of it
terms        the public numbers: mechanisms, and what each kind of unit pays
phase        teachers, one Quorum run, one cutoff
seats        points by arrival number, with released labels
teaching     teachers from a labelled set; `cuts` are thresholds and stumps in a batch
boosting     LabelBoost between phases
planning     what to expect, and how large a chunk; `outlook` is its arithmetic
session      what a folder keeps, and how a restart goes on; folder: who holds it
"""

from quorate.everlasting.classifier import EverlastingClassifier
from quorate.everlasting.outlook import EverlastingPlan
from quorate.everlasting.planning import plan_everlasting
from quorate.everlasting.session import EverlastingSession, Feed
from quorate.everlasting.terms import Guarantee, Terms

__all__ = [
    "EverlastingClassifier",
    "EverlastingPlan",
    "EverlastingSession",
    "Feed",
    "Guarantee",
    "Terms",
    "plan_everlasting",
]
