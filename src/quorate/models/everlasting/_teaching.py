"""From a labelled set to teachers: thresholds, stumps, directions and linear models in batches, all else by joblib.

Teachers that cut one feature in two are fitted all at once, and counted by sorting their cuts. They are empirical risk
minimisers of thresholds on a line and of decision stumps, in double precision.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import fit_estimators
from quorate.compute.learners import Deal, DeviceName, Teachers, batched_equivalent
from quorate.compute.learners.teachers import check_queries, padded_rows
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import cuts_between
from quorate.core.rows import join_rows, take_rows
from quorate.models import concepts
from quorate.models.concepts import Concept, Stumps, Thresholds
from quorate.models.everlasting.directions import MeanDirection, fit_directions
from quorate.models.predictors.concept_classifier import ErmClassifier, fit_concept_teachers
from quorate.models.saving.contract import State
from quorate.models.saving.documents import put_teachers, read_teachers

_CELLS = 2**22  # values sorted together


class CutTeachers(Teachers):
    """Each teacher votes 1 where its feature is at or above its cut, and 0 below; or the other way round."""

    kind = "cut"
    saved: ClassVar[dict[str, int]] = {"features": 0, "feature": 1, "cut": 1, "upward": 1}

    def __init__(self, feature: Any, cut: Any, upward: Any, *, features: int) -> None:
        self.feature = np.asarray(feature, dtype=np.int64)
        self.cut, self.upward = np.asarray(cut, dtype=np.float64), np.asarray(upward, dtype=np.bool_)
        if not self.feature.shape == self.cut.shape == self.upward.shape or self.cut.ndim != 1:
            raise InvalidInput("feature, cut and upward must be vectors, one entry for each teacher")
        self.teachers, self.classes, self.features = self.cut.size, 2, features
        self._columns = [(int(number), *self._sort_cuts(int(number))) for number in np.unique(self.feature)]

    def _sort_cuts(self, feature: int) -> tuple[Floats, Floats]:
        same_feature = self.feature == feature
        return np.sort(self.cut[same_feature & self.upward]), np.sort(self.cut[same_feature & ~self.upward])

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: a search in the sorted cuts of each feature."""
        queries = check_queries(X, features=self.features)
        ones = np.zeros(len(queries), dtype=np.int64)
        for feature, upward, downward in self._columns:
            values = queries[:, feature]
            ones += np.searchsorted(upward, values, side="right")
            if downward.size:
                ones += downward.size - np.searchsorted(downward, values, side="right")
        return np.stack([self.teachers - ones, ones], axis=1)

    def ballots(self, X: Any) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        queries = check_queries(X, features=self.features)
        ones: NDArray[np.bool_] = (queries[:, self.feature] >= self.cut) == self.upward
        return ones.astype(np.uint8)


def fit_cuts(concept: Thresholds | Stumps, X: Floats, codes: Integers, deal: Deal) -> CutTeachers:
    """Fit one empirical risk minimiser for each chunk of the deal; a row whose code is neither 0 nor 1 is left out.

    A teacher depends on its own rows, and on whether its number is odd. Among equally good cuts of the first feature
    that has one it takes the one in the middle. Upward thresholds whose rows show one class lie at the edge of their
    rows for odd teachers and beyond all numbers for even ones: each is a risk minimiser, and together they do not pull
    the majority to the more frequent class. Without rows odd teachers vote for class 1 and even ones for class 0: a
    phase with many empty seats has no opinion, rather than a wrong one.
    """
    both_directions = isinstance(concept, Stumps) or bool(concept.both_directions)
    numbers = np.arange(deal.teachers)
    feature, cut = np.zeros_like(numbers), np.where(numbers % 2 == 0, np.inf, -np.inf)
    upward = np.ones(deal.teachers, dtype=np.bool_)
    for who, rows in _blocks(deal, X.shape[1]):
        values, labels = X[rows], np.where(rows >= 0, codes[rows], -1)
        used = ((labels == 0) | (labels == 1)) & np.isfinite(values).all(axis=2)
        fewest = np.full(who.size, np.iinfo(np.int64).max)
        for column in range(X.shape[1]):
            best = _best_cuts(values[:, :, column], labels, used, both_directions=both_directions)
            better = (best[0] < fewest) & used.any(axis=1)
            fewest[better], feature[who[better]] = best[0][better], column
            cut[who[better]], upward[who[better]] = best[1][better], best[2][better]
        if not both_directions:
            odd = who % 2 == 1
            cut[who[odd]] = _edges(values[odd, :, 0], labels[odd], used[odd], cut[who[odd]])
    return CutTeachers(feature, cut, upward, features=X.shape[1])


def _blocks(deal: Deal, features: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield teachers whose chunks have about the same size, and their rows; -1 fills a chunk up."""
    starts, heights = np.cumsum(deal.sizes) - deal.sizes, padded_rows(deal.sizes)
    for height in np.unique(heights[heights > 0]).tolist():
        alike = np.flatnonzero(heights == height)
        height_limit = max(1, _CELLS // (height * features))
        for start in range(0, alike.size, height_limit):
            who = alike[start : start + height_limit]
            seats = np.arange(height)
            is_row = seats < deal.sizes[who, np.newaxis]
            rows = deal.rows[np.where(is_row, starts[who, np.newaxis] + seats, 0)]
            yield who, np.where(is_row, rows, -1)


def _edges(values: Floats, labels: Integers, used: NDArray[np.bool_], cut: Floats) -> Floats:
    """Return the cuts with those of chunks of one class moved to the edge of their rows."""
    lowest = np.where(used, values, np.inf).min(axis=1)
    highest = np.where(used, values, -np.inf).max(axis=1)
    ones, zeros = (used & (labels == 1)).any(axis=1), (used & (labels == 0)).any(axis=1)
    cut = np.where(ones & ~zeros, lowest, cut)
    with np.errstate(over="ignore"):  # above the largest number comes infinity; no warning speaks of a row
        return np.where(zeros & ~ones, np.nextafter(highest, np.inf), cut)


def _best_cuts(
    values: Floats, labels: Integers, used: NDArray[np.bool_], *, both_directions: bool
) -> tuple[Integers, Floats, NDArray[np.bool_]]:
    """Return the fewest mistakes of each chunk, the cut that makes them, and whether it is upward."""
    chunks, height = values.shape
    ordered = np.where(used, values, np.inf)
    order = np.argsort(ordered, axis=1, kind="stable")
    ordered = np.take_along_axis(ordered, order, axis=1)
    ones = np.take_along_axis(used & (labels == 1), order, axis=1)
    sizes, zeros = used.sum(axis=1), np.count_nonzero(used & (labels == 0), axis=1)
    # Mistakes of "1 from place c on", for c = 0 to the height: one more for each 1 below, one less for each 0.
    mistakes = np.zeros((chunks, height + 1), dtype=np.int64)
    np.cumsum(np.where(ones, 1, -1), axis=1, out=mistakes[:, 1:])
    mistakes += zeros[:, np.newaxis]
    positions = np.arange(height + 1)
    bars = np.concatenate([np.full((chunks, 1), -np.inf), ordered, np.full((chunks, 1), np.inf)], axis=1)
    is_cut = ((bars[:, :-1] < bars[:, 1:]) | (positions == 0)) & (positions <= sizes[:, np.newaxis])
    never = height + 1
    up = np.where(is_cut | (positions == sizes[:, np.newaxis]), mistakes, never)
    inner = is_cut & (positions > 0) & (positions < sizes[:, np.newaxis])
    down = np.where(inner, sizes[:, np.newaxis] - mistakes, never) if both_directions else np.full_like(up, never)
    upward = up.min(axis=1) <= down.min(axis=1)
    score = np.where(upward[:, np.newaxis], up, down)
    fewest = score.min(axis=1)
    equal = score == fewest[:, np.newaxis]
    middle = (equal.sum(axis=1) - 1) // 2
    position = (np.cumsum(equal, axis=1) > middle[:, np.newaxis]).argmax(axis=1)
    low, high = bars[np.arange(chunks), position], bars[np.arange(chunks), position + 1]
    high = np.where(position == sizes, np.inf, high)
    cut = np.where(position == 0, -np.inf, high)
    between = np.isfinite(low) & np.isfinite(high)
    cut[between] = cuts_between(low[between], high[between])
    return fewest, np.where(position == sizes, np.where(sizes == 0, np.inf, cut), cut), upward


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
    return Ensemble(read_teachers(state))


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
