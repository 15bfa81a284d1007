"""Publishable models: trained on public points that private teachers labelled, or chosen privately."""

from quorate.models.students.classifier import StudentClassifier
from quorate.models.students.cover import QueryReleaseClassifier, SemiPrivateClassifier
from quorate.models.students.points import Labelled, k_centre_points, margins, random_points
from quorate.models.students.tabulated import TabulatedClassifier

__all__ = [
    "Labelled",
    "QueryReleaseClassifier",
    "SemiPrivateClassifier",
    "StudentClassifier",
    "TabulatedClassifier",
    "k_centre_points",
    "margins",
    "random_points",
]
