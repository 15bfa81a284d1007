"""Teachers that are scikit-learn estimators: each fitted on its own rows, through joblib, and asked one by one.

Nothing that one teacher does reaches another: it gets copies of its rows and of the queries, and randomness of its own.
"""

import importlib
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.learners import Deal

__all__ = ["EstimatorTeachers", "Fitted", "fit_estimators", "join_rows", "take_rows"]

Integers = NDArray[np.int64]
Fitted = tuple[Any, int]  # a fitted estimator, or None, and the class that it votes for where it has nothing to say
_Tried = tuple[Any, int, bool]  # and whether its rows could not be fitted
_Chunk = tuple[Any, Integers, int]  # rows, codes, and the seed of the teacher's own randomness

_FITS = 50  # at least this many in one task: shipping a task costs a cluster about as much as a small fit
_BLOCK = 2**16  # queries put to one teacher at a time


def take_rows(X: Any, rows: Any) -> Any:
    """Return these rows of a matrix or a data frame.

    >>> take_rows(np.array([[1], [2], [3]]), [2, 0])
    array([[3],
           [1]])
    """
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def join_rows(parts: Sequence[Any]) -> Any:
    """Return matrices or data frames of the same columns as one.

    >>> join_rows([np.array([[1]]), np.array([[2]])])
    array([[1],
           [2]])
    """
    if len(parts) == 1:
        return parts[0]
    if not parts or isinstance(parts[0], np.ndarray):
        return np.concatenate(parts) if parts else np.empty((0, 0))
    frames = importlib.import_module(type(parts[0]).__module__.partition(".")[0])  # pandas or polars, which made them
    return frames.concat(parts)


def _copy(X: Any) -> Any:
    """Return a copy that an estimator may change, as some do."""
    return X.copy() if hasattr(X, "copy") else X.clone()


class _Silence:
    """Lets no warning out: it would speak of one teacher's rows. Threads share the filters: the last restores them."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._filters: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._filters.__exit__(None, None, None)


_silence = _Silence()
_generators = threading.RLock()  # whoever seeds the global generators has them for itself


@contextmanager
def _global_randomness() -> Iterator[Callable[[int], None]]:
    """Yield what seeds the global generators, before each teacher; leave them as they were found."""
    with _generators:
        before = np.random.get_state(), random.getstate()  # noqa: NPY002

        def seed(value: int) -> None:
            np.random.seed(value)  # noqa: NPY002
            random.seed(value)

        try:
            yield seed
        finally:
            np.random.set_state(before[0])  # noqa: NPY002
            random.setstate(before[1])


def _own(estimator: Any, seed: int) -> Any:
    """Return a clone that says nothing and whose randomness, where it was left open, is its own."""
    from sklearn.base import clone  # noqa: PLC0415  scikit-learn takes a second to load

    made = clone(estimator)
    settings = made.get_params()
    own = {name: seed for name, value in settings.items() if _is(name, "random_state") and value is None}
    quiet = {name: 0 for name, value in settings.items() if _is(name, "verbose") and value}
    return made.set_params(**own, **quiet)


def _is(name: str, setting: str) -> bool:
    return name.rpartition("__")[2] == setting


def _fit_one(estimator: Any, chunk: _Chunk, classes: int) -> _Tried:
    """Return the teacher of these rows. Whatever goes wrong with its rows stays with this one teacher."""
    X, codes, seed = chunk
    counts = np.bincount(codes, minlength=classes) if codes.size else np.zeros(classes, dtype=np.int64)
    majority = int(counts.argmax())
    if np.count_nonzero(counts) < 2:
        return None, majority, False
    try:
        return _own(estimator, seed).fit(X, codes), majority, False
    except Exception:  # an error here would speak of one teacher's rows
        return None, majority, True


def _fit_some(estimator: Any, chunks: Sequence[_Chunk], classes: int, parent: int) -> list[_Tried]:
    elsewhere = os.getpid() != parent
    if elsewhere:
        warnings.simplefilter("ignore")  # for as long as this worker lives; the parent has silenced itself
    found = []
    with np.errstate(all="ignore"), _global_randomness() as seed:
        for chunk in chunks:
            seed(chunk[2])
            found.append(_fit_one(estimator, chunk, classes))
    return found


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
    seeds = np.frombuffer(os.urandom(4 * len(chunks)), dtype=np.uint32) // 2  # by position, and secret

    def tasks(jobs: int) -> Iterator[Any]:
        size = max(_FITS, -(-len(chunks) // (4 * jobs))) if jobs > 1 else len(chunks)
        for start in range(0, len(chunks), size):
            part = range(start, min(len(chunks), start + size))
            dealt = [(_copy(take_rows(X, chunks[j])), codes[chunks[j]], int(seeds[j])) for j in part]
            yield delayed(_fit_some)(estimator, dealt, classes, os.getpid())

    named = nullcontext() if backend is None else _named(backend, n_jobs)
    with named, _silence():
        found = Parallel(n_jobs=n_jobs)(tasks(effective_n_jobs(n_jobs)))
    tried = [teacher for part in found for teacher in part]
    if sum(failed for _, _, failed in tried) > len(tried) / 2:
        raise InvalidInput(
            "more than half of the teachers could not be fitted on their own rows: missing values, text, or too few "
            "rows for this estimator are the usual reasons. Give rows that are not private as public= to hear why"
        )
    return EstimatorTeachers([(model, majority) for model, majority, _ in tried], classes=classes)


def _named(backend: str, n_jobs: int | None) -> Any:
    try:
        return parallel_config(backend, n_jobs=-1 if n_jobs is None else n_jobs)
    except ValueError as error:
        raise InvalidInput(f"backend must be one that joblib knows: {error}") from None


def _register_ray() -> None:
    try:
        from ray.util.joblib import register_ray  # noqa: PLC0415
    except ImportError:
        raise InvalidInput("backend='ray' needs Ray: pip install 'quorate[ray]'") from None
    register_ray()


def _read_only(X: Any) -> Any:
    """Return a copy of a matrix that cannot be written to; a data frame is copied for each teacher instead."""
    if not isinstance(X, np.ndarray):
        return X
    own = X.copy()
    own.flags.writeable = False
    return own


def _predicted(model: Any, X: Any) -> Integers | None:
    """Return one number for each query, or None where there is none: the teacher votes all the same."""
    try:
        codes = np.asarray(model.predict(X)).astype(np.int64, copy=False)
    except Exception:  # it would speak of one teacher's rows
        return None
    return codes if codes.shape == (len(X),) else None


def _draws_nothing(estimator: Any) -> bool:
    """Return whether all parts are scikit-learn's own, which draw from their `random_state` alone, or from nothing."""
    parts = [estimator, *estimator.get_params(deep=True).values()]
    return all(_is_plain(part) or type(part).__module__.partition(".")[0] == "sklearn" for part in parts)


def _is_plain(part: Any) -> bool:
    return part is None or isinstance(part, str | int | float | list | tuple | dict | np.ndarray | np.generic)


class EstimatorTeachers:
    """Fitted scikit-learn estimators that vote. Printing them shows only public numbers.

    A ballot depends on one teacher and one query: what a teacher cannot answer in a batch, it is asked row by row.

    >>> EstimatorTeachers([(None, 0), (None, 1)], classes=2)
    EstimatorTeachers(teachers=2, classes=2)
    """

    def __init__(self, fitted: Sequence[Fitted], *, classes: int) -> None:
        self.fitted, self.classes, self.teachers = list(fitted), classes, len(fitted)
        one = next((model for model, _ in self.fitted if model is not None), None)  # all are clones of one estimator
        self._known = one is None or _draws_nothing(one)

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
        for column, ballots in enumerate(self._each(X)):
            result[:, column] = ballots
        return result

    def _each(self, X: Any) -> Iterator[Integers | int]:
        """Yield the ballots of one teacher after the other; each finds the global generators seeded by its place."""
        secret = int.from_bytes(os.urandom(4), "big")
        X = _read_only(X)
        with _silence(), _global_randomness() as seed:
            for place, (model, majority) in enumerate(self.fitted):
                if not self._known:
                    seed((secret + place) % 2**32)
                yield self._ballots(model, majority, X)

    def _count(self, X: Any, counts: Integers) -> None:
        flat, offsets = counts.reshape(-1), np.arange(len(X)) * self.classes
        ones = np.zeros(len(X), dtype=np.int64)
        for ballots in self._each(X):
            if self.classes == 2:
                ones += ballots
            else:
                flat[offsets + ballots] += 1
        if self.classes == 2:
            counts[:, 1], counts[:, 0] = ones, self.teachers - ones

    def _ballots(self, model: Any, majority: int, X: Any) -> Integers | int:
        if model is None:
            return majority
        codes = _predicted(model, X) if isinstance(X, np.ndarray) else None
        if codes is None:
            codes = _predicted(model, _copy(X))  # one that changes what it is given, or a data frame
        if codes is None:
            return self._one_by_one(model, majority, X)
        if codes.min() >= 0 and codes.max() < self.classes:
            return codes
        return np.where((codes >= 0) & (codes < self.classes), codes, majority)

    def _one_by_one(self, model: Any, majority: int, X: Any) -> Integers:
        """Halve a batch that cannot be answered, so that one query never decides the ballot of another."""
        if len(X) == 1:
            return np.array([majority], dtype=np.int64)
        middle = len(X) // 2
        parts = (take_rows(X, slice(None, middle)), take_rows(X, slice(middle, None)))
        return np.concatenate([np.broadcast_to(self._ballots(model, majority, part), len(part)) for part in parts])

    def __repr__(self) -> str:
        return f"EstimatorTeachers(teachers={self.teachers}, classes={self.classes})"
