"""Publishable models: trained on public points that private teachers labelled, or chosen privately."""

from quorate.students.classifier import StudentClassifier
from quorate.students.labelled import Labelled
from quorate.students.points import k_centre_points, margins, random_points
from quorate.students.released_errors import QueryReleaseClassifier
from quorate.students.semi_private import SemiPrivateClassifier
from quorate.students.tabulated import TabulatedClassifier

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
