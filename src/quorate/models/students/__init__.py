"""Publishable models: trained on public points that private teachers labelled, or chosen privately."""

from quorate.models.students._classifier import StudentClassifier
from quorate.models.students.cover import QueryReleaseClassifier, SemiPrivateClassifier

__all__ = [
    "QueryReleaseClassifier",
    "SemiPrivateClassifier",
    "StudentClassifier",
]
