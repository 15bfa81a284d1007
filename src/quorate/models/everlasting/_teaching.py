"""From a labelled set to teachers: thresholds, stumps, directions and linear models in batches, all else by joblib."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from quorate.compute.ensemble import Ensemble
from quorate.compute.learners import Deal, DeviceName, batched_equivalent
from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible
from quorate.core.estimator_calls import asks_a_copy, call_rows
from quorate.core.rows import join_rows, take_rows
from quorate.models import concepts
from quorate.models.concepts import Concept, Stumps, Thresholds
from quorate.models.everlasting._cuts import CutTeachers, fit_cuts
from quorate.models.everlasting.directions import MeanDirection, fit_directions
from quorate.models.predictors.concept_classifier import ErmClassifier, fit_concept_teachers
from quorate.models.saving.contract import State
from quorate.models.saving.votes import put_teachers, read_teachers

_ENDLESS = 2**40  # rows of a chunk that has grown for long


class SteadyClassifier(ClassifierMixin, BaseEstimator):
    """An estimator that, where its rows cannot be fitted, votes for the class that most of them show.

    So no error speaks of the rows of a phase: they are other people's queries.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> "SteadyClassifier":
        """Fit the estimator and try it on its own rows."""
        self.classes_ = np.unique(y)
        self.majority_ = int(np.bincount(y).argmax())
        try:
            self.fitted_ = clone(self.estimator).fit(X, y)
            self.fitted_.predict(X[:1])
        except Exception:
            self.fitted_ = None
        return self

    def call_rows(self) -> int | None:
        """Return how many rows the estimator is asked with: this adds nothing to it."""
        return call_rows(self.estimator)

    def asks_a_copy(self) -> bool:
        """Return whether each query is put to a copy of the estimator."""
        return asks_a_copy(self.estimator)

    def predict(self, X: Any) -> Any:
        """Return the estimator's labels, or the class of most rows."""
        return np.full(len(X), self.majority_) if self.fitted_ is None else self.fitted_.predict(X)


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
    if not first and batched_equivalent(estimator) is None:
        estimator = SteadyClassifier(estimator)
    codes = np.maximum(codes, 0)
    hardware: dict[str, Any] = {"n_jobs": n_jobs, "backend": backend, "device": device}
    return Ensemble.fit(X, codes, deal, estimator=estimator, classes=classes, units=units, **hardware)


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


_OWN = [SteadyClassifier, ErmClassifier, MeanDirection, *(getattr(concepts, name) for name in concepts.__all__)]

# Types of this package that estimators and hypotheses are made of: they hold numbers, and loading them runs nothing.
TRUSTED = (
    "fractions.Fraction",
    "quorate.models.predictors.concept_classifier._Constant",
    *(f"{own_type.__module__}.{own_type.__qualname__}" for own_type in _OWN if isinstance(own_type, type)),
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
