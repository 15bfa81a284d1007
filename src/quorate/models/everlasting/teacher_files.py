"""The teachers of a phase as files, without pickle."""

from collections.abc import Sequence
from typing import Any

from quorate.compute.ensemble import Ensemble
from quorate.models import concepts
from quorate.models.everlasting.cuts import CutTeachers
from quorate.models.everlasting.directions import DirectionTeachers, MeanDirection
from quorate.models.everlasting.teaching import SteadyClassifier
from quorate.models.predictors.concept_teachers import ErmClassifier
from quorate.models.saving.codecs import arrays_from, arrays_of, teacher_files, teachers_from

__all__ = ["TRUSTED", "arrays_from", "arrays_of", "ensemble_files", "ensemble_from"]

_KINDS: dict[str, Any] = {
    "cut": CutTeachers,
    "direction": DirectionTeachers,
}  # that this folder fits; learners know the others
_OWN = [SteadyClassifier, ErmClassifier, MeanDirection, *(getattr(concepts, name) for name in concepts.__all__)]

# Types of this package that estimators and hypotheses are made of: they hold numbers, and loading them runs nothing.
TRUSTED = (
    "fractions.Fraction",
    "quorate.models.predictors.concept_teachers._Constant",
    *(f"{one.__module__}.{one.__qualname__}" for one in _OWN if isinstance(one, type)),
)


def ensemble_files(ensemble: Ensemble) -> dict[str, bytes]:
    """Return the files of an ensemble."""
    return teacher_files(ensemble.fitted)


def ensemble_from(contents: dict[str, bytes], trusted: Sequence[str] | None = None) -> Ensemble:
    """Return the ensemble of these files."""
    arrays = arrays_from(contents["teachers.npz"]) if "teachers.npz" in contents else {}
    kind = _KINDS.get(str(arrays.get("kind")))
    if kind is not None:
        return Ensemble(kind.from_arrays(arrays))
    return Ensemble(teachers_from(contents, [*TRUSTED, *(trusted or ())]))
