"""Publishable models: trained on public points that private teachers labelled, or chosen privately."""

from quorate.models.students._classifier import StudentClassifier
from quorate.models.students.cover import QueryReleaseClassifier, SemiPrivateClassifier
from quorate.models.students.points import Labelled, k_centre_points, margins, random_points

__all__ = [
    "Labelled",
    "QueryReleaseClassifier",
    "SemiPrivateClassifier",
    "StudentClassifier",
    "k_centre_points",
    "margins",
    "random_points",
]
