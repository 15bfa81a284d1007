"""The teachers of a phase as files, without pickle."""

from collections.abc import Sequence
from typing import Any

from quorate.compute.ensemble import Ensemble
from quorate.models import concepts
from quorate.models.everlasting.cuts import CutTeachers
from quorate.models.everlasting.directions import DirectionTeachers, MeanDirection
from quorate.models.everlasting.teaching import SteadyClassifier
from quorate.models.predictors.concept_teachers import ErmClassifier
from quorate.models.saving.codecs import put_teachers, read_teachers
from quorate.models.saving.contract import State

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
    state = State({})
    put_teachers(state, ensemble.fitted)
    return state.files


def ensemble_from(contents: dict[str, bytes], trusted: Sequence[str] | None = None) -> Ensemble:
    """Return the ensemble of these files."""
    state = State({}, contents, trusted=[*TRUSTED, *(trusted or ())])
    arrays = state.arrays("teachers") if "teachers.npz" in state else {}
    kind = _KINDS.get(str(arrays.get("kind")))
    return Ensemble(read_teachers(state) if kind is None else kind.from_arrays(arrays))
