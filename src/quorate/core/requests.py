"""What comes to a session and what leaves it, and what is remembered of both: a repeated query gets its answer again.

A caller that repeats a query pays nothing. This is also a defence: noisy answers to one query, drawn over and over,
would average the noise away.
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
REFUSED = -2  # in an outcome: the budget could not pay for the query, and it was not put to the vote

OWN_CALLER = "online"  # under which a model keeps what it goes on from: a ledger never forgets it

_KEPT = 2**20  # answers kept in a process; a query whose answer was dropped is asked, and paid for, again
_MANY = 256  # rows of a request from which on it is faster to look all of them up at once


Query = tuple[str, bytes]  # who asked, and the digest of what
Outcome = list[int]  # a label for each query of a request, NO_QUORUM or REFUSED


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a memory knows it: its caller, digests of its queries, its id and the digest of it all."""

    caller: str
    queries: Sequence[bytes]
    id: str | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class SetAside:
    """What is set aside of a caller's share: no-quorums, and cost in quanta of divergence; None where it has no limit.

    `spent` says that the share itself is used up, and not only what others have set aside of it.
    """

    no_quorums: int | None
    cost: int | None
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """What is known of a request before anything is drawn: answers to some of its queries, or its whole outcome.

    `reserved` is set aside for its caller, where that has a share of its own.
    """

    answers: Mapping[bytes, int]
    outcome: Outcome | None = None
    reserved: SetAside | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a batch of queries would cost now. Nothing was asked, and nothing is spent.

    Of the `queries`, those that this caller asked before and those that stand twice in the batch are `repeated`, and
    free. At least `payable` of the others can be paid for, which takes at most the share `takes` of the whole budget;
    the share `left` is left of it. Where only no-quorums are paid for, more are answered if the teachers agree.

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
        """How many queries may be refused, at most."""
        return self.queries - self.repeated - self.payable

    def __str__(self) -> str:
        new = self.queries - self.repeated
        text = f"{self.queries:,} queries: {self.repeated:,} free repetitions, {new:,} new."
        count = "All" if not self.refused else f"At least {self.payable:,}"
        text += f" {count} new ones can be paid for, with at most {self.takes:.2%} of the budget"
        text += f", of which {self.left:.2%} is left"
        return text if not self.refused else f"{text}. Up to {self.refused:,} may be refused"


class Memory(Protocol):
    """Where answers are kept: in this process, or in a `quorate.core.ledger.Ledger`."""

    def recall(self, caller: str, queries: Iterable[bytes]) -> Mapping[Query, int]:
        """Return the answers that this caller was given to these queries. Nothing is counted."""

    def admit(self, requests: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Return what is known of each request, or why it is refused; the ids of the others are taken by this."""

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Keep fresh answers, add to `labels` those that stand, and return the outcomes of requests that end here."""

    def withdraw(self, requests: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Undo the admission of requests of which nothing leaves, but for what callers may have `used`.

        Their rows stay `counted`, or are counted no more.
        """


def outcome_of(request: Asked, labels: Mapping[Query, int]) -> Outcome:
    """Return the outcome of a request: what is not known was refused."""
    return [labels.get((request.caller, query), REFUSED) for query in request.queries]


def reused(request: Asked) -> IdReused:
    """Return the error for an id that was used before, for something else."""
    return IdReused(
        "this id was used for another request: a request has an id of its own, and keeps it when it is sent again"
    )


class KeptAnswers:
    """Answers kept in this process, the oldest dropped first.

    Rows of a few columns are their own names, and need no digest until a ledger takes the answers over. Those of large
    requests are kept as arrays.
    """

    def __init__(self) -> None:
        self._answers: dict[Query, int] = {}
        self._outcomes: dict[tuple[str, str], tuple[bytes, Outcome]] = {}
        self._rows: AnsweredRows | None = None

    def names(self, X: Any) -> list[bytes]:
        """Return the rows themselves where they are short, with a byte before that no digest has room for."""
        return named_rows(X) if _is_narrow(X) else query_digests(X)

    def takes_rows(self, X: Any) -> bool:
        """Return whether these queries are best looked up all at once, in `rows`."""
        return len(X) >= _MANY and _is_narrow(X) and (self._rows is None or self._rows.columns == X.shape[1])

    def rows(self, columns: int) -> AnsweredRows:
        """Return all answers to rows of so many columns as one table."""
        if self._rows is None:
            self._rows = AnsweredRows(columns=columns, unknown=REFUSED)
        self._rows.drop_oldest(_KEPT)
        few = {query: label for query, label in self._answers.items() if len(query[1]) == 8 * columns + 1}
        self._rows.take_over((caller, name[1:], label) for (caller, name), label in few.items())
        for query in few:
            del self._answers[query]
        return self._rows

    def recall(self, caller: str, queries: Iterable[bytes]) -> Mapping[Query, int]:
        """Return the answers that this caller was given to these queries."""
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
        """Return what is known of each request, or why it is refused."""
        bodies: dict[tuple[str, str], bytes] = {}  # in this group
        return [self._admit(request, bodies) for request in requests]

    def _admit(self, request: Asked, bodies: dict[tuple[str, str], bytes]) -> Admitted | QuorateError:
        earlier = None if request.id is None else self._outcomes.get((request.caller, request.id))
        if earlier is not None and earlier[0] != request.body:
            return reused(request)
        if request.id is not None and bodies.setdefault((request.caller, request.id), request.body) != request.body:
            return reused(request)
        return Admitted(self._recall(request.caller, request.queries), None if earlier is None else earlier[1])

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Keep answers and outcomes, and drop the oldest where there are too many."""
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
        """Do nothing: here an id is taken when its outcome is kept, and rows are not counted."""

    def answers(self) -> Mapping[Query, int]:
        """Return all answers, for a memory that takes them over and knows queries by their digests."""
        answers = {(caller, row_digest(name)): label for (caller, name), label in self._answers.items()}
        of_rows = () if self._rows is None else self._rows.answers()
        return answers | {(caller, row_digest(b"d" + row)): label for caller, row, label in of_rows}


def _is_narrow(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and 0 < X.shape[1] <= WIDEST


_LONGEST = 200  # characters of a caller's name or an id


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Checked queries, who asks, and the id that the client gave them, with a digest of all that came with it."""

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
    """Refuse what cannot be the name of who asks."""
    _check_text("caller", caller)
    if caller == OWN_CALLER:
        raise InvalidInput(f"caller must not be {OWN_CALLER!r}: a model keeps its own state under that name")


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What a request was answered: class numbers (or of scores: numbers that stand for shares), `NO_QUORUM` for none.

    `refused` marks what was not asked. `spent` is what the requests that were answered together have cost. `told` is
    what a published model says beyond class numbers.
    """

    labels: NDArray[np.int64]
    refused: NDArray[np.bool_]
    spent: Cost
    told: Any = None


def rows_of(requests: Sequence[Request], positions: Sequence[tuple[int, int]]) -> Any:
    """Return these rows, each named by its request and its number there, in order, as one matrix or data frame."""
    if len(requests) == 1 and len(positions) == len(requests[0].X):
        return requests[0].X  # all of it, and nothing twice
    parts = groupby(positions, key=lambda position: position[0])
    return join_rows([take_rows(requests[position].X, [row for _, row in rows]) for position, rows in parts])


def firsts_of(requests: Sequence[Asked]) -> list[int]:
    """Return for each request the first one that is the same by caller, id and body, which may be itself."""
    seen: dict[tuple[str, str, bytes], int] = {}
    return [
        index if request.id is None else seen.setdefault((request.caller, request.id, request.body), index)
        for index, request in enumerate(requests)
    ]


def replies_of(result: Admitted | QuorateError, spent: Cost, ended: BudgetSpent | None) -> Replies | QuorateError:
    """Return the replies of an outcome, or why there is none."""
    if isinstance(result, QuorateError):
        return result
    return replies_to(np.array(result.outcome, dtype=np.int64), spent, ended)


def replies_to(labels: NDArray[np.int64], spent: Cost, ended: BudgetSpent | None) -> Replies | BudgetSpent:
    """Return the replies for labels of one's own, with `REFUSED` among them; where all are refused, why they were."""
    refused = labels == REFUSED
    if ended is not None and refused.all():
        return ended
    labels[refused] = NO_QUORUM
    return Replies(labels=labels, refused=refused, spent=spent)
