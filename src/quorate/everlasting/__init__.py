"""Everlasting prediction: phases of answers, each taught by the one before; records and queries are both protected.

classifier   EverlastingClassifier, which goes from phase to phase
terms        the public numbers: mechanisms, and what each kind of unit pays
phase        teachers, one Quorum run, one cutoff
seats        points by arrival number, with released labels
teaching     teachers from a labelled set; `cuts` are thresholds and stumps in a batch
boosting     LabelBoost between phases
"""

from quorate.everlasting.classifier import EverlastingClassifier
from quorate.everlasting.terms import Guarantee, Terms

__all__ = ["EverlastingClassifier", "Guarantee", "Terms"]
