"""What was asked and answered before: a caller that repeats a query gets its answer again, for nothing.

This is also a defence: noisy answers to one query, drawn over and over, would average the noise away.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["KeptAnswers", "Memory", "query_digests"]

_KEPT = 2**20  # answers kept in a process; a query whose answer was dropped is asked, and paid for, again


class Memory(Protocol):
    """Where answers are kept: in this process, or in a `quorate.ledger.Ledger`.

    >>> from quorate.ledger import Ledger
    >>> {"recall", "remember"} <= set(vars(Ledger))
    True
    """

    def recall(self, caller: str, queries: Iterable[bytes]) -> dict[bytes, int]:
        """Return the answers known."""

    def remember(self, caller: str, answers: Mapping[bytes, int]) -> None:
        """Keep answers, before they leave."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes from asking for a while."""


class KeptAnswers:
    """Answers kept in this process, the oldest dropped first.

    >>> kept = KeptAnswers()
    >>> kept.remember("a", {b"query": 1})
    >>> kept.recall("a", [b"query"]), kept.recall("b", [b"query"])
    ({b'query': 1}, {})
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, bytes], int] = {}

    def recall(self, caller: str, queries: Iterable[bytes]) -> dict[bytes, int]:
        """Return the answers known to this caller.

        >>> KeptAnswers().recall("a", [b"query"])
        {}
        """
        known = self._answers
        return {query: known[caller, query] for query in queries if (caller, query) in known}

    def alone(self) -> AbstractContextManager[None]:
        """Do nothing: no other process asks here.

        >>> with KeptAnswers().alone():
        ...     pass
        """
        return nullcontext()

    def by_caller(self) -> dict[str, dict[bytes, int]]:
        """Return all answers, caller by caller.

        >>> KeptAnswers().by_caller()
        {}
        """
        found: dict[str, dict[bytes, int]] = {}
        for (caller, query), label in self._answers.items():
            found.setdefault(caller, {})[query] = label
        return found

    def remember(self, caller: str, answers: Mapping[bytes, int]) -> None:
        """Keep answers, and drop the oldest where there are too many.

        >>> KeptAnswers().remember("a", {})
        """
        self._answers.update(((caller, query), label) for query, label in answers.items())
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]


def query_digests(X: Any) -> list[bytes]:
    """Return what tells one query from another: 16 bytes for each row in canonical form.

    Numbers count as 64-bit floats, so that 1 and 1.0 are one query, and 0.0 and -0.0, and all nans; whole numbers that
    such a float cannot hold count as they are. Rows of a data frame count by the names and values of their columns.

    >>> query_digests(np.array([[1, 0]])) == query_digests(np.array([[1.0, -0.0]]))
    True
    """
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        canonical = _canonical(X)
        rows = canonical.view(np.uint8).reshape(len(X), -1)
        kind = canonical.dtype.char.encode()
        named: Iterable[bytes] = (kind + row.tobytes() for row in rows)
    else:
        columns = [str(name) for name in X.columns]
        values = zip(*(_canonical(np.asarray(X[name])).tolist() for name in X.columns), strict=True)
        named = (repr((columns, row)).encode() for row in values)
    return [hashlib.blake2b(name, digest_size=16).digest() for name in named]


def _canonical(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as floats, equal ones alike; whole numbers beyond 2**53 and what is no number stay as they are."""
    if values.dtype.kind not in "fiub":
        return values
    if values.dtype.kind in "iu" and values.size and max(abs(int(values.max())), abs(int(values.min()))) > 2**53:
        return np.ascontiguousarray(values)
    floats = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats
