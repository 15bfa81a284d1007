"""Models that may be published: trained on public points that private teachers have labelled."""

from quorate.students.classifier import StudentClassifier
from quorate.students.labelled import Labelled
from quorate.students.points import k_centre_points, margins, random_points

__all__ = ["Labelled", "StudentClassifier", "k_centre_points", "margins", "random_points"]
