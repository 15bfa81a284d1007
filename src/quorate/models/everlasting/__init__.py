"""Everlasting prediction: phases of answers, each taught by the one before; records and queries are both protected.

classifier   EverlastingClassifier: checks its settings, calibrates, deals the units, teaches phase 1; its public state
arrivals     the state: the open phase, its seats in memory and in a file, and how it teaches the next one
phase_folder the state on disk, how a restart continues, and the session, with arrivals as its answerer
terms        the public numbers: mechanisms, and what each kind of unit pays
teaching     teachers from a labelled set, and their files; cuts and directions are fitted as arrays
plan         what to expect, from public or simulated points
"""

from quorate.models.everlasting._classifier import EverlastingClassifier
from quorate.models.everlasting._phase_folder import Feed
from quorate.models.everlasting._terms import Guarantee, Terms

__all__ = [
    "EverlastingClassifier",
    "Feed",
    "Guarantee",
    "Terms",
]
