"""Requests to a session, its replies, and the memory of both: a repeated query gets its earlier answer.

A caller that repeats a query pays nothing. This is also a defence, because the average of many noisy answers to one
query would have little noise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.core._answer_cache import WIDEST, AnsweredRows
from quorate.core.errors import BudgetSpent, IdReused, InvalidInput, QuorateError
from quorate.core.privacy import Cost
from quorate.core.rows import join_rows, named_rows, query_digests, row_digest, take_rows

NO_QUORUM = -1  # in place of a label: the teachers did not agree
REFUSED = -2  # in an outcome: the budget could not pay for the query, and no votes were counted

OWN_CALLER = "online"  # Reserved caller name for the model's own state; a ledger never compacts its answers.

_KEPT = 2**20  # answers kept in a process; a query whose answer was dropped is charged again
_MANY = 256  # rows; above this number it is faster to look up a request as one array


Query = tuple[str, bytes]  # the caller, and the digest of the query
Outcome = list[int]  # a label for each query of a request, NO_QUORUM or REFUSED


@dataclass(frozen=True, slots=True)
class Asked:
    """The identity of a request for a memory: its caller, the digests of its queries, its id and the whole digest."""

    caller: str
    queries: Sequence[bytes]
    id: str | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class SetAside:
    """The part of a caller's share that is reserved for a request; None for a limit that the share does not have.

    Attributes
    ----------
    no_quorums
        The number of no-quorums.
    cost
        The cost, in quanta of divergence.
    spent
        Whether the share is used up, rather than reserved for the caller's other requests.
    """

    no_quorums: int | None
    cost: int | None
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """An admitted request: the remembered answers to its queries, or its outcome if it was answered before.

    `reserved` is the reservation of a caller with a share of the budget, and None for other callers.
    """

    answers: Mapping[bytes, int]
    outcome: Outcome | None = None
    reserved: SetAside | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """The present cost of a batch of queries. A quote asks nothing and spends nothing.

    If only no-quorums are charged, more queries than `payable` are answered when the teachers agree.

    Attributes
    ----------
    queries
        The number of queries in the batch.
    repeated
        The number that is free: queries that this caller asked before, and repetitions within the batch.
    payable
        The number of new queries that the budget surely pays for.
    takes
        The largest share of the whole budget that the payable queries cost.
    left
        The share of the whole budget that is left now.

    >>> print(Quote(queries=600, repeated=100, payable=400, takes=0.4, left=0.41))
    600 queries: 100 free repetitions, 500 new. At least 400 new ones can be paid for, with at most 40.00% of the \
    budget, of which 41.00% is left. Up to 100 may be refused
    """

    queries: int
    repeated: int
    payable: int
    takes: float
    left: float

    @property
    def refused(self) -> int:
        """The largest number of queries that may be refused."""
        return self.queries - self.repeated - self.payable

    def __str__(self) -> str:
        new = self.queries - self.repeated
        text = f"{self.queries:,} queries: {self.repeated:,} free repetitions, {new:,} new."
        count = "All" if not self.refused else f"At least {self.payable:,}"
        text += f" {count} new ones can be paid for, with at most {self.takes:.2%} of the budget"
        text += f", of which {self.left:.2%} is left"
        return text if not self.refused else f"{text}. Up to {self.refused:,} may be refused"


class Memory(Protocol):
    """The interface of a store of answers: in this process, or in a `quorate.core.ledger.Ledger`."""

    def recall(self, caller: str, queries: Iterable[bytes]) -> Mapping[Query, int]:
        """Return the answers that this caller received to these queries, without counting them as requests."""

    def admit(self, requests: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Register each request and its id, and return it with its remembered answers, or the error that refuses it."""

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Keep new answers, add the kept ones to `labels`, and return the outcomes of these completed requests."""

    def withdraw(self, requests: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Undo the admission of requests that get no answer.

        Parameters
        ----------
        requests
            The requests.
        used
            The part of each caller's share that may have been used, which stays charged.
        counted
            Whether the rows still count against the callers' quotas and rates.
        """


def outcome_of(request: Asked, labels: Mapping[Query, int]) -> Outcome:
    """Return the outcome of a request; a query without a label was refused."""
    return [labels.get((request.caller, query), REFUSED) for query in request.queries]


def id_reused_error() -> IdReused:
    """Return the error for an id of an earlier, different request."""
    return IdReused("id must be new for a new request; repeat an id only to send the same request again")


class KeptAnswers:
    """A memory in this process, which drops the oldest answers first.

    Rows of a few columns serve as their own keys and get a digest only when a ledger takes over the answers. Rows of
    large requests are kept as arrays.
    """

    def __init__(self) -> None:
        self._answers: dict[Query, int] = {}
        self._outcomes: dict[tuple[str, str], tuple[bytes, Outcome]] = {}
        self._rows: AnsweredRows | None = None

    def names(self, X: Any) -> list[bytes]:
        """Return the bytes of short rows after a prefix byte, so that none is as long as a digest; else the digests."""
        return named_rows(X) if _is_narrow(X) else query_digests(X)

    def takes_rows(self, X: Any) -> bool:
        """Return whether these queries should be looked up as one array, in `rows`."""
        return len(X) >= _MANY and _is_narrow(X) and (self._rows is None or self._rows.columns == X.shape[1])

    def rows(self, columns: int) -> AnsweredRows:
        """Return the table of all answers to rows of this number of columns."""
        if self._rows is None:
            self._rows = AnsweredRows(columns=columns, unknown=REFUSED)
        self._rows.drop_oldest(_KEPT)
        few = {query: label for query, label in self._answers.items() if len(query[1]) == 8 * columns + 1}
        self._rows.enter_answers((caller, name[1:], label) for (caller, name), label in few.items())
        for query in few:
            del self._answers[query]
        return self._rows

    def recall(self, caller: str, queries: Iterable[bytes]) -> Mapping[Query, int]:
        """Return the answers that this caller received to these queries."""
        return {(caller, query): label for query, label in self._recall(caller, list(queries)).items()}

    def _recall(self, caller: str, queries: Sequence[bytes]) -> dict[bytes, int]:
        recalled = {query: self._answers[caller, query] for query in queries if (caller, query) in self._answers}
        if self._rows is not None:
            size = 8 * self._rows.columns + 1
            missing = [query for query in queries if query not in recalled and len(query) == size]
            labels = self._rows.find(caller, [query[1:] for query in missing]).tolist()
            recalled |= {query: label for query, label in zip(missing, labels, strict=True) if label != REFUSED}
        return recalled

    def admit(self, requests: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Return each request with its remembered answers, or the error that refuses it."""
        bodies: dict[tuple[str, str], bytes] = {}  # of this batch
        return [self._admit(request, bodies) for request in requests]

    def _admit(self, request: Asked, bodies: dict[tuple[str, str], bytes]) -> Admitted | QuorateError:
        earlier = None if request.id is None else self._outcomes.get((request.caller, request.id))
        if earlier is not None and earlier[0] != request.body:
            return id_reused_error()
        if request.id is not None and bodies.setdefault((request.caller, request.id), request.body) != request.body:
            return id_reused_error()
        return Admitted(self._recall(request.caller, request.queries), None if earlier is None else earlier[1])

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Keep answers and outcomes, and drop the oldest beyond the limit."""
        self._answers.update(answers)
        labels.update(answers)
        outcomes = [outcome_of(request, labels) for request in requests]
        for request, outcome in zip(requests, outcomes, strict=True):
            if request.id is not None and set(outcome) != {REFUSED}:
                self._outcomes[request.caller, request.id] = request.body, outcome
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]
        while len(self._outcomes) > _KEPT:
            del self._outcomes[next(iter(self._outcomes))]
        return list(outcomes)

    def withdraw(self, requests: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Do nothing: this memory registers an id with its outcome, and counts no rows."""

    def answers(self) -> Mapping[Query, int]:
        """Return all answers by digest, for the memory that takes them over."""
        answers = {(caller, row_digest(name)): label for (caller, name), label in self._answers.items()}
        of_rows = () if self._rows is None else self._rows.answers()
        return answers | {(caller, row_digest(b"d" + row)): label for caller, row, label in of_rows}


def _is_narrow(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and 0 < X.shape[1] <= WIDEST


_LONGEST = 200  # characters of a caller's name or an id


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request to a session.

    Parameters
    ----------
    X
        The checked queries, in canonical form.
    caller
        The name of the caller.
    id
        The id that the client chose, or None.
    body
        The digest of the whole request, which detects an id that is reused for another request.
    """

    X: Any
    caller: str = ""
    id: str | None = None
    body: bytes = b""

    def __post_init__(self) -> None:
        check_caller(self.caller)
        _check_text("id", self.id or "")


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or len(text) > _LONGEST or not (text.isprintable() and text.isascii()):
        raise InvalidInput(f"{name} must be a text of at most {_LONGEST} printable ASCII characters")


def check_caller(caller: object) -> None:
    """Refuse an invalid or reserved name of a caller."""
    _check_text("caller", caller)
    if caller == OWN_CALLER:
        raise InvalidInput(f"caller must not be {OWN_CALLER!r}, which is reserved for the model; choose another name")


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """The reply to a request.

    Attributes
    ----------
    labels
        The class number of each query, or the number of its shares for a model with scores; `NO_QUORUM` without one.
    refused
        Whether each query was refused.
    spent
        The cost of the whole batch that this request was part of.
    told
        The further answer of a published model, such as probabilities.
    """

    labels: NDArray[np.int64]
    refused: NDArray[np.bool_]
    spent: Cost
    told: Any = None


def rows_of(requests: Sequence[Request], positions: Sequence[tuple[int, int]]) -> Any:
    """Return the rows at these positions, each a pair of request and row, in order, as one matrix or data frame."""
    if len(requests) == 1 and len(positions) == len(requests[0].X):
        return requests[0].X  # Every row is needed once, so no copy is made.
    parts = groupby(positions, key=lambda position: position[0])
    return join_rows([take_rows(requests[position].X, [row for _, row in rows]) for position, rows in parts])


def firsts_of(requests: Sequence[Asked]) -> list[int]:
    """Return for each request the index of the first request with the same caller, id and body."""
    seen: dict[tuple[str, str, bytes], int] = {}
    return [
        index if request.id is None else seen.setdefault((request.caller, request.id, request.body), index)
        for index, request in enumerate(requests)
    ]


def replies_of(result: Admitted | QuorateError, spent: Cost, ended: BudgetSpent | None) -> Replies | QuorateError:
    """Return the replies of an outcome, or the error of the request."""
    if isinstance(result, QuorateError):
        return result
    return replies_to(np.array(result.outcome, dtype=np.int64), spent, ended)


def replies_to(labels: NDArray[np.int64], spent: Cost, ended: BudgetSpent | None) -> Replies | BudgetSpent:
    """Return the replies for labels, some of which may be `REFUSED`; if all are, return the error `ended`."""
    refused = labels == REFUSED
    if ended is not None and refused.all():
        return ended
    labels[refused] = NO_QUORUM
    return Replies(labels=labels, refused=refused, spent=spent)
