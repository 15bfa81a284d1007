"""A ballot is a function of its teacher and its query: the same alone, in any batch, in any order, beside anything."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from matrix.subjects import base_table
from matrix.trials import Case
from matrix.watch import told
from quorate.auditing.replay import entropy_tape, fitted_ensemble
from quorate.core.arrays import Floats

_STEPS, _PARTS = 14, 16  # cuts, after which two numbers are neighbours among floating-point numbers
_HOSTILE = {"1e200": 1e200, "a missing value": np.nan, "2000": 2000.0, "-1e30": -1e30}


def company_differences(case: Case) -> tuple[list[str], str]:
    """Return in words which company changes a ballot, and why nothing was asked where that is so."""
    table = base_table(case.subject.rows, columns=case.subject.columns)
    predictor = case.unfitted()
    with threadpool_limits(1), entropy_tape(case.seed), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            case.subject.fit(predictor, case.container.pack(table.X, table.names), table, None, None)
            asked = _Asked(case, predictor)
            queries = _queries(asked, case)
        except Exception as error:
            return [], told(error)
        alone = np.vstack([asked.ballots(query[np.newaxis]) for query in queries])
        differing = []
        for what, ballots in _companies(asked, queries):
            wrong = int((ballots != alone[-len(ballots) :]).sum())
            if wrong:
                differing.append(f"{wrong} of {ballots.size} ballots are other ones {what} than alone")
    return differing, ""


class _Asked:
    """A fitted predictor, asked with rows that are packed in its container."""

    def __init__(self, case: Case, predictor: Any) -> None:
        self._case, self._made = case, predictor
        self._fitted = fitted_ensemble(predictor).electorate
        self.batched = hasattr(self._fitted, "arrays")  # quick to ask

    def ballots(self, X: Floats) -> NDArray[Any]:
        packed = self._case.container.pack(X, list(range(len(X))))
        return self.of(packed)

    def of(self, packed: Any) -> NDArray[Any]:
        return np.asarray(self._fitted.ballots(self._made.check_queries(packed)))

    def packed_otherwise(self, X: Floats) -> Iterator[tuple[str, Any]]:
        """Yield the same numbers in another order of memory, in a wider type, in lists, under other names."""
        packed = self._case.container.pack(X, list(range(len(X))))
        if isinstance(packed, np.ndarray):
            yield "a matrix by columns", np.asfortranarray(packed)
            yield "every second row of a matrix", np.repeat(packed, 2, axis=0)[::2]
            if packed.dtype.kind != "b":
                yield "a matrix of float64", packed.astype(np.float64)
                yield "lists", packed.tolist()
        elif hasattr(packed, "iloc"):
            yield "a data frame with other names of rows", packed.set_axis([f"row {row}" for row in range(len(X))])


def _queries(asked: _Asked, case: Case) -> Floats:
    """Return ordinary queries, and such as lie on the boundary of a teacher, to the last bit."""
    ordinary = base_table(24, columns=case.subject.columns, seed=11).X
    if not case.container.decimal:
        return ordinary
    decimal = np.arange(case.subject.columns) % 3 == 1 if case.container.frame else np.ones(case.subject.columns, bool)
    most = 40 if asked.batched else 8
    return np.vstack([ordinary[:6], *_on_the_boundary(asked, ordinary, decimal, most=most)])


def _on_the_boundary(asked: _Asked, ordinary: Floats, decimal: NDArray[np.bool_], *, most: int) -> Iterator[Floats]:
    """Yield both ends of ever finer cuts, for some teachers, between two queries that it tells apart."""
    random = np.random.default_rng(5)
    low = ordinary.copy()
    high = np.where(decimal, random.uniform(0, 9, size=low.shape), low)
    first, second = asked.ballots(low), asked.ballots(high)
    rows, teachers = np.nonzero(first != second)
    some = np.arange(len(rows))[:: max(1, len(rows) // most)]
    if not some.size:
        return
    rows, teachers = rows[some], teachers[some]
    low, high, label = low[rows], high[rows], first[rows, teachers]
    shares = np.arange(_PARTS + 1)[:, np.newaxis, np.newaxis] / _PARTS
    for _ in range(_STEPS):
        between = low + (high - low) * shares
        ballots = asked.ballots(between.reshape(-1, low.shape[1])).reshape(_PARTS + 1, len(rows), -1)
        other = ballots[:, np.arange(len(rows)), teachers] != label
        first_other = np.maximum(np.where(other.any(axis=0), other.argmax(axis=0), _PARTS), 1)
        low, high = between[first_other - 1, np.arange(len(rows))], between[first_other, np.arange(len(rows))]
    yield low
    yield high


def _companies(asked: _Asked, queries: Floats) -> Iterator[tuple[str, NDArray[Any]]]:
    yield "in one batch", asked.ballots(queries)
    random = np.random.default_rng(6)
    for _ in range(6 if asked.batched else 2):
        order = random.permutation(len(queries))
        cuts = np.sort(random.integers(1, len(queries), size=random.integers(1, 12)))
        ballots = np.vstack([asked.ballots(part) for part in np.split(queries[order], cuts) if len(part)])
        back = np.empty_like(ballots)
        back[order] = ballots
        yield "in batches of another order", back
    for what, value in _HOSTILE.items():
        hostile = np.full((1, queries.shape[1]), value)
        some = queries if asked.batched else queries[-8:]
        try:
            beside = [asked.ballots(np.vstack([query[np.newaxis], hostile]))[:1] for query in some]
            all_of_them = asked.ballots(np.vstack([queries[:5], hostile, queries[5:]]))
        except (TypeError, ValueError):  # refused, in any company
            continue
        yield f"beside a row of {what}", np.vstack(beside)
        yield f"in a batch with a row of {what}", np.delete(all_of_them, 5, axis=0)
    for what, packed in asked.packed_otherwise(queries):
        yield f"as {what}", asked.of(packed)
