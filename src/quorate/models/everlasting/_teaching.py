"""From a labelled set to teachers: thresholds, stumps, directions and linear models in batches, all else by joblib."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import fit_estimators
from quorate.compute.learners import Deal, DeviceName, batched_equivalent
from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible
from quorate.core.rows import join_rows, take_rows
from quorate.models import concepts
from quorate.models.concepts import Concept, Stumps, Thresholds
from quorate.models.everlasting._cuts import CutTeachers, fit_cuts
from quorate.models.everlasting.directions import MeanDirection, fit_directions
from quorate.models.predictors.concept_classifier import ErmClassifier, fit_concept_teachers
from quorate.models.saving.contract import State
from quorate.models.saving.votes import put_teachers, read_teachers

_ENDLESS = 2**40  # rows of a chunk that has grown for long


def teach(
    estimator: Any,
    X: Any,
    codes: Integers,
    deal: Deal,
    *,
    classes: int,
    units: int | None = None,
    first: bool = True,
    n_jobs: int | None = None,
    backend: str | None = None,
    device: DeviceName = "auto",
) -> Ensemble:
    """Return one teacher for each chunk of the deal: each depends on its own rows, and votes even without any.

    In the `first` phase the rows are the owner's, who is told if they cannot be fitted. `units` is the public number of
    people, or of seats, empty ones too; each row is a unit unless told.
    """
    if isinstance(estimator, Thresholds | Stumps):
        return Ensemble(fit_cuts(estimator, X, codes, deal))  # proof: step 2
    if type(estimator) is MeanDirection and classes == 2:
        return Ensemble(fit_directions(estimator, X, codes, deal))  # proof: step 2
    X, codes, deal = _with_made_up_rows(X, codes, deal, classes=classes)
    if isinstance(estimator, Concept):
        return fit_concept_teachers(estimator, X, codes, deal, n_jobs=n_jobs, backend=backend)
    codes = np.maximum(codes, 0)
    fitting: dict[str, Any] = {"classes": classes, "n_jobs": n_jobs, "backend": backend}
    if not first and batched_equivalent(estimator) is None:  # no error speaks of rows that are other people's queries
        return Ensemble(fit_estimators(estimator, X, codes, deal, **fitting))
    return Ensemble.fit(X, codes, deal, estimator=estimator, units=units, device=device, **fitting)


def _with_made_up_rows(X: Any, codes: Integers, deal: Deal, *, classes: int) -> tuple[Any, Integers, Deal]:
    """Give each teacher without rows a made-up one, of the class of its number: it votes for that class, whatever.

    So many empty seats mean no opinion, rather than a wrong one (PROOF.md, step 3).
    """
    absent = np.flatnonzero(deal.sizes == 0)
    if absent.size == 0:
        return X, codes, deal
    # A chunk of one class is not fitted, and in a data frame, whose columns are of any type, its row is not looked at.
    plain = isinstance(X, np.ndarray)
    added = np.zeros((absent.size, X.shape[1])) if plain else take_rows(X, np.zeros(absent.size, dtype=np.int64))
    rows = np.insert(deal.rows, np.cumsum(deal.sizes)[absent], len(codes) + np.arange(absent.size))
    sizes = np.maximum(deal.sizes, 1)
    return join_rows([X, added]), np.concatenate([codes, absent % classes]), Deal(rows, sizes)


_OWN = [ErmClassifier, MeanDirection, *(getattr(concepts, name) for name in concepts.__all__)]

# Types of this package that estimators and hypotheses are made of: they hold numbers, and loading them runs nothing.
TRUSTED = (
    "fractions.Fraction",
    *(f"{own_type.__module__}.{own_type.__qualname__}" for own_type in _OWN if isinstance(own_type, type)),
)


def ensemble_files(ensemble: Ensemble) -> dict[str, bytes]:
    """Return the files of an ensemble."""
    state = State({})
    put_teachers(state, ensemble.electorate)
    return state.files


def ensemble_from(contents: dict[str, bytes], trusted: Sequence[str] | None = None) -> Ensemble:
    """Return the ensemble of these files."""
    state = State({}, contents, trusted=[*TRUSTED, *(trusted or ())])
    arrays = state.arrays("teachers") if "teachers.npz" in state else {}
    return Ensemble(CutTeachers.from_arrays(arrays) if str(arrays.get("kind")) == "cut" else read_teachers(state))


def check_chunks(settings: Mapping[str, Any], concept: Any, *, teachers: int, size: int) -> None:
    """Refuse a class of hypotheses whose teachers would get more rows than it takes, now or in a later phase.

    How many seats a teacher has is public. How many of them are taken is not: no later phase may be the first to fail.
    """
    if not isinstance(concept, Concept) or isinstance(concept, Thresholds | Stumps):
        return
    growth, limit = settings["growth"], settings["max_phase_size"]
    largest = size if growth == 1 or limit is None else max(size, limit)
    concept.check_size(-(-largest // teachers))
    if growth > 1 and limit is None:
        try:
            concept.check_size(_ENDLESS)
        except Infeasible:
            raise Infeasible(
                f"with growth={growth} chunks grow without end, and this class does not take so many rows; "
                "give max_phase_size"
            ) from None
