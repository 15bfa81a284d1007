"""Calls to an estimator, each with one mistake: a ballot depends on other queries, other teachers or other threads.

The sound twins are the code that asks real teachers (`quorate/core/estimator_calls.py`).
Every attack is deterministic: where threads must meet, they wait for each other.
"""

import importlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import ThreadpoolController

from planted.bug import AnnouncingLock, Caught, PlantedBug, kind_bug, replaced
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core import estimator_calls
from quorate.core.estimator_calls import CALL, Calls, one_thread, silence

Context = Callable[[], AbstractContextManager[Any]]


class _PlacedByColumns(Calls):
    """Names a query by the way its columns are written: as floats, or as texts where one number is too large."""

    def __init__(self, X: Any, rows: int | None) -> None:
        large = [X[name].abs().max() > 2**53 for name in X]
        written = {
            name: X[name].astype("str" if is_large else "float64") for name, is_large in zip(X, large, strict=True)
        }
        super().__init__(X.assign(**written), rows)  # the mistake: places by how whole columns are written
        self._X = X
        self._calls = [(queries, self._call(queries)) for queries, _ in self._calls]


class _ByPlace:
    """Votes by the place in its call, as a product of matrices does in its last bit."""

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.arange(len(X)) % 2


def _beside_a_large_number(kind: type[Calls]) -> Caught:
    """Ask whole numbers with and without one in their column that no float holds."""
    pandas = importlib.import_module("pandas")
    numbers = np.arange(60, dtype=np.float64)
    ballots = [
        kind(pandas.DataFrame({"age": ages}), CALL).ballots(_ByPlace(), majority=0, classes=2)[: len(numbers)]
        for ages in (numbers, np.append(numbers, 2.0**60))
    ]
    return _compared("replay beside a large number", *ballots)


def _compared(attack: str, alone: NDArray[Any], together: NDArray[Any]) -> Caught:
    moved = int(np.count_nonzero(alone != together))
    return Caught(attack, f"{moved} of {alone.size} ballots differ in other company", found=moved > 0)


class _OneCallForAll(EstimatorTeachers):
    """Asks every estimator in calls of 256 rows, as though each answered row by row."""

    def __init__(self, fitted: Any, *, classes: int) -> None:
        super().__init__(fitted, classes=classes)
        self._rows, self._copied = CALL, False  # the mistake


class _NoCopies(EstimatorTeachers):
    """Asks one row at a time, but always the same object, which may have changed when it was asked before."""

    def __init__(self, fitted: Any, *, classes: int) -> None:
        super().__init__(fitted, classes=classes)
        self._copied = False  # the mistake


def _in_other_company(kind: type[EstimatorTeachers], estimator: Any) -> Caught:
    """Fit one teacher; ask queries alone, and after and beside others that are a thousand times as large."""
    X = np.abs(np.random.default_rng(1).normal(size=(120, 3)))
    teachers = kind([(estimator.fit(X, (X[:, 0] > 0.6).astype(int)), 0)], classes=2)
    queries = X[:12] * 0.9
    alone = np.concatenate([teachers.ballots(query[np.newaxis]) for query in queries])
    beside = teachers.ballots(np.concatenate([queries * 1000, queries]))[len(queries) :]
    return _compared("replay in other company", alone, beside)


def _looks_at_its_batch() -> Any:
    """Return an estimator that takes the mean of a call from all its rows."""
    return make_pipeline(FunctionTransformer(lambda X: X - X.mean(axis=0)), LogisticRegression())


def _remembers() -> Any:
    """Return an estimator whose generator goes on from call to call."""
    return DummyClassifier(strategy="stratified", random_state=np.random.RandomState(0))


class _KeepsHalves(Calls):
    """Keeps the halves of a call that failed, and asks later teachers about them as well."""

    def _fill(self, model: Any, queries: Any, call: Any, result: Any) -> None:
        if not any(queries is kept for kept, _ in self._calls):
            self._calls = [*self._calls, (queries, call)]  # the mistake
        super()._fill(model, queries, call, result)


class _FailsOn:
    """A teacher that has not seen numbers above its limit, and refuses them."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def predict(self, X: Any) -> NDArray[np.int64]:
        if X.max() > self._limit:
            raise ValueError
        return np.zeros(len(X), dtype=np.int64)


class _Watches:
    """A teacher that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def predict(self, X: Any) -> NDArray[np.int64]:
        self.given.append(X.tobytes())
        return np.zeros(len(X), dtype=np.int64)


def _after_one_that_fails(kind: type[Calls]) -> Caught:
    """Compare what a teacher is given after one that fails on a query and after one that does not."""
    given = []
    for limit in (100.0, 30.0):
        calls, watches = kind(np.arange(40.0)[:, np.newaxis], CALL), _Watches()
        for teacher in (_FailsOn(limit), watches):
            calls.ballots(teacher, majority=0, classes=2)
        given.append(watches.given)
    evidence = f"{len(given[0])} calls, and {len(given[1])} after a teacher that fails on some"
    return Caught("replay after a teacher that fails", evidence, found=given[0] != given[1])


_libraries = ThreadpoolController()


@contextmanager
def _limited_by_each() -> Iterator[None]:
    """Limit the whole process, and lift the limit when this thread is done."""
    with _libraries.limit(limits=1):  # the mistake: another thread may hold the limit, or still be counting
        yield


@contextmanager
def _silenced_by_each() -> Iterator[None]:
    """Silence the whole process, and put the filters back when this thread is done."""
    with warnings.catch_warnings():  # the mistake: another thread may still be inside
        warnings.simplefilter("ignore")
        yield


def _as_first_leaves(context: Context, look: Callable[[], None]) -> None:
    """Enter in two threads, let the first leave, and look from the second, which is still inside."""
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    lock = AnnouncingLock()

    def first() -> None:
        with context():
            first_in.set()
            lock.wait_until_contended_or(second_in.is_set)
        first_out.set()

    def second() -> None:
        first_in.wait()
        with context():
            second_in.set()
            first_out.wait()
            look()

    threads = [threading.Thread(target=work) for work in (first, second)]
    with replaced(estimator_calls, "_threads", lock):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _count_threads(limit: Context) -> Caught:
    """Look at the threads of linear algebra where another thread has just left the limit, and after all have."""
    linear = _libraries.select(user_api="blas")
    seen: list[int] = []
    with linear.limit(limits=2):
        _as_first_leaves(limit, lambda: seen.extend(_threads(linear)))
        left = _threads(linear)
    evidence = f"{max(seen)} threads where 1 is allowed, and {max(left)} afterwards where 2 were set"
    return Caught("threads that meet", evidence, found={*seen} != {1} or {*left} != {2})


def _threads(linear: ThreadpoolController) -> list[int]:
    return [library["num_threads"] for library in linear.info()]


def _hear_a_warning(quiet: Context) -> Caught:
    """Warn where another thread has just left the silence, and again after all have."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        _as_first_leaves(quiet, lambda: warnings.warn("of a private row", stacklevel=2))
        inside = len(heard)
        warnings.warn("of the program", stacklevel=2)
        after = len(heard) - inside
    evidence = f"{inside} warnings heard inside the silence, and {after} of 1 after it"
    return Caught("threads that meet", evidence, found=(inside, after) != (0, 1))


def _bug(name: str, by: Any, twins: tuple[Any, Any], attack: Callable[[Any], Caught]) -> PlantedBug:
    broken, sound = twins
    return kind_bug(name, by, broken, sound, attack)


CALLS = (
    _bug("placed_by_its_column", "replay", (_PlacedByColumns, Calls), _beside_a_large_number),
    _bug(
        "whole_batch_seen",
        "replay",
        (_OneCallForAll, EstimatorTeachers),
        lambda target: _in_other_company(target, _looks_at_its_batch()),
    ),
    _bug(
        "earlier_queries_remembered",
        "replay",
        (_NoCopies, EstimatorTeachers),
        lambda target: _in_other_company(target, _remembers()),
    ),
    _bug("failed_call_remembered", "replay", (_KeepsHalves, Calls), _after_one_that_fails),
    _bug("thread_limit_lifted_by_another", "state", (_limited_by_each, one_thread), _count_threads),
    _bug("silence_lifted_by_another", "state", (_silenced_by_each, silence), _hear_a_warning),
)
