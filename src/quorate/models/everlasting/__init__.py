"""Everlasting prediction: phases of answers, each taught by the one before; records and queries are both protected.

classifier   EverlastingClassifier: calibrates, deals the units, teaches phase 1
settings     its checked settings; public_state: its public state
session      the one session, with arrivals as its answerer
arrivals     the state: the open phase, its seats, and how it teaches the next one
phase_folder the state on disk: what is kept, and how a restart continues; seats_file: its points
terms        the public numbers: mechanisms, and what each kind of unit pays
phase        teachers, one Quorum run, one cutoff
seats        points by arrival number, with released labels
teaching     teachers from a labelled set
boosting     LabelBoost between phases
"""

from quorate.models.everlasting.classifier import EverlastingClassifier
from quorate.models.everlasting.session import EverlastingSession, Feed
from quorate.models.everlasting.terms import Guarantee, Terms

__all__ = [
    "EverlastingClassifier",
    "EverlastingSession",
    "Feed",
    "Guarantee",
    "Terms",
]
