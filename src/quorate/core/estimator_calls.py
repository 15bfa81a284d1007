"""Putting queries to a model so that what it says of one is a function of the model and of that query.

A library of linear algebra sums by the shape of what it is given, and by the place of a row in it. So the shape of a
call is fixed, and so is the place of a query: a digest of the query says where it stands. Other queries of the
call stand in other places, and change nothing for a model that answers row by row. Three kinds are told apart by their
types, which are public:

    trees and forests of scikit-learn       compare and add value by value: any number of rows at once
    what is known to answer row by row, of  calls of 256 rows; places that are left are filled with a query of the call
    scikit-learn, XGBoost, LightGBM, CatBoost
    all else: other people's estimators,    calls of one row, to a copy of the model: nobody else is there, and nobody
    and scikit-learn's that look at the     was there before. An author whose estimator answers row by row, and does not
    whole of a batch (NMF, imputers that    change when it is asked, may say so, by a method `call_rows` that returns
    look at neighbours, manifolds)          256, or 1

A call that fails is halved, each half in the same places of a call of the same shape, until a query stands alone.
`compute/ensemble/PROOF.md` has the argument. While a model runs, warnings are silenced and the global random state is
isolated.
"""

import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from quorate.core.arrays import Integers
from quorate.core.rows import copy_rows, query_digests, take_rows

CALL = 256  # rows of a call whose shape is fixed
_KNOWN = ("quorate", "xgboost", "lightgbm", "catboost")  # packages whose models answer row by row
_MODULES = (  # of scikit-learn, all of whose estimators do (compute/ensemble/PROOF.md, step 6)
    "calibration",
    "compose",
    "discriminant_analysis",
    "dummy",
    "ensemble",
    "feature_extraction",
    "feature_selection",
    "frozen",
    "gaussian_process",
    "kernel_approximation",
    "linear_model",
    "metrics",
    "model_selection",
    "multiclass",
    "multioutput",
    "naive_bayes",
    "neighbors",
    "neural_network",
    "pipeline",
    "preprocessing",
    "random_projection",
    "semi_supervised",
    "svm",
    "tree",
)
_CLASSES = (  # and of its other modules, in which some do not
    "SimpleImputer",
    "MissingIndicator",
    "PCA",
    "IncrementalPCA",
    "KernelPCA",
    "TruncatedSVD",
    "FastICA",
    "FactorAnalysis",
    "KMeans",
    "MiniBatchKMeans",
    "FeatureAgglomeration",
)
_VALUES = (str, int, float, slice, np.ndarray, np.generic, np.ufunc)
_ROW_BY_ROW = (
    "DecisionTreeClassifier",
    "ExtraTreeClassifier",
    "RandomForestClassifier",
    "ExtraTreesClassifier",
    "HistGradientBoostingClassifier",
)


def call_rows(estimator: Any) -> int | None:
    """Return how many rows each call of this estimator has, or None where any number will do."""
    if hasattr(estimator, "call_rows"):
        rows: int | None = estimator.call_rows()
        return rows
    if not _answers_by_row(estimator):
        return 1
    return None if _home(estimator)[0] == "sklearn" and type(estimator).__name__ in _ROW_BY_ROW else CALL


def asks_a_copy(estimator: Any) -> bool:
    """Return whether each query is put to a copy, since the estimator may change when it is asked."""
    if hasattr(estimator, "asks_a_copy"):
        copied: bool = estimator.asks_a_copy()
        return copied
    return not hasattr(estimator, "call_rows") and call_rows(estimator) == 1


def _home(part: Any) -> list[str]:
    """Return the package of a part and the modules in it."""
    return type(part).__module__.split(".")


def _answers_by_row(part: Any) -> bool:
    """Return whether an estimator, or a setting of one, and all that are in it, are known to work row by row."""
    if part is None or isinstance(part, _VALUES):
        return True
    if isinstance(part, list | tuple | set | frozenset):
        return all(map(_answers_by_row, part))
    if isinstance(part, dict):
        return all(map(_answers_by_row, (*part.keys(), *part.values())))
    if isinstance(part, type):  # of numbers, as in dtype=
        return part.__module__ in ("builtins", "numpy")
    if not _answers_by_class(part):
        return False
    return not hasattr(part, "get_params") or all(map(_answers_by_row, part.get_params(deep=False).values()))


def _answers_by_class(part: Any) -> bool:
    """Return whether the class of a part is among those that were read and found to work row by row."""
    package, *modules = _home(part)
    if package == "sklearn":
        return (modules or [""])[0] in _MODULES or type(part).__name__ in _CLASSES
    return package in _KNOWN


class Calls:
    """Queries as they are put to each of many models: the rows of each call, and which query stands where."""

    def __init__(self, X: Any, rows: int | None) -> None:
        self._X, self._rows = X, rows
        if rows is None:
            self._places = np.arange(len(X))
            groups = [self._places]
        else:
            self._places = np.array(
                [int.from_bytes(digest[:8], "big") % rows for digest in query_digests(X)], dtype=np.int64
            )
            groups = _groups(self._places, rows)
        self._calls = [(queries, self._call(queries)) for queries in groups if len(queries)]

    def ballots(self, model: Any, majority: int, classes: int) -> Integers:
        """Return what one model says of each query; where it fails, or names no class, the majority's class."""
        result = np.full(len(self._X), majority, dtype=np.int64)
        for queries, call in self._calls:
            self._fill(model, queries, call, result)
        result[(result < 0) | (result >= classes)] = majority
        return result

    def values(self, model: Any, width: int) -> NDArray[np.float64]:
        """Return the numbers, `width` of them, that one model says of each query; nan where it fails."""
        result = np.full((len(self._X), width), np.nan)
        for queries, call in self._calls:
            self._fill(model, queries, call, result)
        return result

    def _fill(self, model: Any, queries: Integers, call: Any, result: NDArray[Any]) -> None:
        """Put what a model says of these queries; where it fails on a call, each half has one of the same shape."""
        values = _predicted(model, call, result)
        if values is not None:
            result[queries] = values if self._rows is None else values[self._places[queries]]
        elif len(queries) > 1:
            for half in np.array_split(queries, 2):
                self._fill(model, half, self._call(half), result)

    def _call(self, queries: Integers) -> Any:
        """Return the rows of a call: each query in its place, and the first of them in all that are left."""
        placed = queries
        if self._rows is not None and len(queries):
            placed = np.full(self._rows, queries[0])
            placed[self._places[queries]] = queries
        rows = take_rows(self._X, placed)
        if isinstance(rows, np.ndarray):
            rows.flags.writeable = False  # a model that changes what it is given gets a copy
        return rows


def _groups(positions: Integers, rows: int) -> list[Integers]:
    """Return which queries are asked together: no two that have the same place."""
    groups: list[list[int]] = []
    counts = np.zeros(rows, dtype=np.int64)
    for query, index in enumerate(positions.tolist()):
        if counts[index] == len(groups):
            groups.append([])
        groups[counts[index]].append(query)
        counts[index] += 1
    return [np.array(group, dtype=np.int64) for group in groups]


def _predicted(model: Any, X: Any, like: NDArray[Any]) -> NDArray[Any] | None:
    """Return what a model says of each row of a call, in the form of `like`, or None where it says nothing."""
    if len(X) == 0:
        return like[:0]
    values = _tried(model, X, like) if isinstance(X, np.ndarray) else None
    return _tried(model, copy_rows(X), like) if values is None else values


def _tried(model: Any, X: Any, like: NDArray[Any]) -> NDArray[Any] | None:
    try:
        values = np.asarray(model.predict(X)).astype(like.dtype, copy=False)
    except Exception:  # it would speak of one teacher's rows
        return None
    return values if values.shape == (len(X), *like.shape[1:]) else None


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Return the libraries of linear algebra in this process; finding them takes a millisecond."""
    return ThreadpoolController()


_threads = threading.RLock()  # the limit is the whole process's: who leaves first would lift it for all


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: how it shares out the rows of a call is then the same everywhere."""
    with _threads:
        _take_control()
        with _libraries().limit(limits=1):
            yield


def _take_control() -> None:
    """Let this thread set limits: threadpoolctl silently ignores all but the thread that set one first."""
    openblas: Any = threadpoolctl.OpenBLASController
    openblas.clear_controlling_thread(force=True)  # proof: step 6 of compute/ensemble/PROOF.md


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


silence = _Silence()
_generators = threading.RLock()  # held while the global generators are seeded


@contextmanager
def global_randomness() -> Iterator[Callable[[int], None]]:
    """Yield what seeds the global generators, before each teacher; leave them as they were found."""

    def seed(value: int) -> None:
        np.random.seed(value)  # noqa: NPY002
        random.seed(value)

    with _generators, keep_randomness():
        yield seed


@contextmanager
def keep_randomness() -> Iterator[None]:
    """Leave the global generators as they were found; threads may seed them in between, as teachers do."""
    with _generators:
        states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        with _generators:
            np.random.set_state(states[0])  # noqa: NPY002
            random.setstate(states[1])
