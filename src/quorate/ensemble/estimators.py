"""Teachers that are scikit-learn estimators: each fitted on its own rows, through joblib, and asked one by one."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.learners import Deal

__all__ = ["EstimatorTeachers", "Fitted", "fit_estimators", "take_rows"]

Integers = NDArray[np.int64]
Fitted = tuple[Any, int]  # a fitted estimator, or None, and the class that it votes for where it has nothing to say
_Tried = tuple[Any, int, bool]  # and whether its rows could not be fitted

_FITS = 50  # at least this many in one task: shipping a task costs a cluster about as much as a small fit
_BLOCK = 2**16  # queries put to one teacher at a time


def take_rows(X: Any, rows: Any) -> Any:
    """Return these rows of a matrix or a data frame.

    >>> take_rows(np.array([[1], [2], [3]]), [2, 0])
    array([[3],
           [1]])
    """
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _fit_one(estimator: Any, X: Any, codes: Integers, classes: int) -> _Tried:
    """Return the teacher of these rows. Whatever goes wrong with its rows stays with this one teacher."""
    counts = np.bincount(codes, minlength=classes) if codes.size else np.zeros(classes, dtype=np.int64)
    majority = int(counts.argmax())
    if np.count_nonzero(counts) < 2:
        return None, majority, False
    try:
        return estimator.fit(X, codes), majority, False
    except Exception:  # an error here would speak of one teacher's rows
        return None, majority, True


def _fit_some(estimator: Any, parts: Sequence[tuple[Any, Integers]], classes: int) -> list[_Tried]:
    from sklearn.base import clone  # noqa: PLC0415  scikit-learn takes a second to load

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a warning would speak of one teacher's rows
        return [_fit_one(clone(estimator), X, codes, classes) for X, codes in parts]


def fit_estimators(
    estimator: Any,
    X: Any,
    codes: Integers,
    deal: Deal,
    *,
    classes: int,
    n_jobs: int | None = None,
    backend: str | None = None,
) -> "EstimatorTeachers":
    """Fit one clone of the estimator for each chunk of the deal, on any joblib backend: "loky", "dask", "ray", ...

    A teacher whose rows show one class votes for it, and one without rows for class 0; so does one whose own rows
    cannot be fitted, with the class that most of them show. Only where more than half of all teachers fail is their
    owner told so.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, codes = np.array([[0.0], [1.0], [0.2], [0.8], [5.0]]), np.array([0, 1, 0, 1, 1])
    >>> deal = Deal.of([[0, 1], [2, 3], [4], []])
    >>> teachers = fit_estimators(KNeighborsClassifier(n_neighbors=1), X, codes, deal, classes=2)
    >>> teachers.votes(np.array([[0.1], [0.9]]))
    array([[3, 1],
           [1, 3]])
    """
    if backend == "ray":
        _register_ray()
    chunks = np.split(deal.rows, np.cumsum(deal.sizes)[:-1])

    def tasks(jobs: int) -> Iterator[Any]:
        size = max(_FITS, -(-len(chunks) // (4 * jobs))) if jobs > 1 else len(chunks)
        for start in range(0, len(chunks), size):
            parts = [(take_rows(X, rows), codes[rows]) for rows in chunks[start : start + size]]
            yield delayed(_fit_some)(estimator, parts, classes)

    with nullcontext() if backend is None else parallel_config(backend, n_jobs=-1 if n_jobs is None else n_jobs):
        found = Parallel(n_jobs=n_jobs)(tasks(effective_n_jobs(n_jobs)))
    tried = [teacher for part in found for teacher in part]
    if sum(failed for _, _, failed in tried) > len(tried) / 2:
        raise InvalidInput(
            "more than half of the teachers could not be fitted on their own rows: missing values, text, or too few "
            "rows for this estimator are the usual reasons. Give rows that are not private as public= to hear why"
        )
    return EstimatorTeachers([(model, majority) for model, majority, _ in tried], classes=classes)


def _register_ray() -> None:
    try:
        from ray.util.joblib import register_ray  # noqa: PLC0415
    except ImportError:
        raise InvalidInput("backend='ray' needs Ray: pip install 'quorate[ray]'") from None
    register_ray()


class EstimatorTeachers:
    """Fitted scikit-learn estimators that vote. Printing them shows only public numbers.

    >>> EstimatorTeachers([(None, 0), (None, 1)], classes=2)
    EstimatorTeachers(teachers=2, classes=2)
    """

    def __init__(self, fitted: Sequence[Fitted], *, classes: int) -> None:
        self.fitted, self.classes, self.teachers = list(fitted), classes, len(fitted)

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: one row a query, one column a class.

        >>> EstimatorTeachers([(None, 0), (None, 1), (None, 1)], classes=2).votes(np.zeros((1, 3)))
        array([[1, 2]])
        """
        counts = np.zeros((len(X), self.classes), dtype=np.int64)
        for start in range(0, len(X), _BLOCK):
            rows = slice(start, min(len(X), start + _BLOCK))
            self._count(take_rows(X, rows), counts[rows])
        return counts

    def ballots(self, X: Any) -> Integers:
        """Return the class that each teacher votes for: one row a query, one column a teacher.

        >>> EstimatorTeachers([(None, 0), (None, 1), (None, 1)], classes=2).ballots(np.zeros((1, 3)))
        array([[0, 1, 1]])
        """
        result = np.empty((len(X), self.teachers), dtype=np.int64)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for column, (model, majority) in enumerate(self.fitted):
                result[:, column] = self._ballots(model, majority, X)
        return result

    def _count(self, X: Any, counts: Integers) -> None:
        flat, offsets = counts.reshape(-1), np.arange(len(X)) * self.classes
        ones = np.zeros(len(X), dtype=np.int64)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for model, majority in self.fitted:
                ballots = self._ballots(model, majority, X)
                if self.classes == 2:
                    ones += ballots
                else:
                    flat[offsets + ballots] += 1
        if self.classes == 2:
            counts[:, 1], counts[:, 0] = ones, self.teachers - ones

    def _ballots(self, model: Any, majority: int, X: Any) -> Integers | int:
        if model is None:
            return majority
        try:
            codes = np.asarray(model.predict(X)).astype(np.int64, copy=False)
        except Exception:  # as above: the teacher votes all the same
            return majority
        if codes.shape != (len(X),):
            return majority
        if codes.min() >= 0 and codes.max() < self.classes:
            return codes
        return np.where((codes >= 0) & (codes < self.classes), codes, majority)

    def __repr__(self) -> str:
        return f"EstimatorTeachers(teachers={self.teachers}, classes={self.classes})"
