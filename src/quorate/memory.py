"""What was asked and answered before: a caller that repeats a query gets its answer again, at no cost.

This is also a defence: noisy answers to one query, drawn over and over, would average the noise away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quorate.errors import IdReused, QuorateError

__all__ = [
    "REFUSED",
    "Admitted",
    "Asked",
    "KeptAnswers",
    "Memory",
    "Outcome",
    "Query",
    "outcome_of",
    "reused",
]

REFUSED = -2  # in an outcome: the budget could not pay for the query, and it was not put to the vote

_KEPT = 2**20  # answers kept in a process; a query whose answer was dropped is asked, and paid for, again


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
class Admitted:
    """What is known of a request before anything is drawn: answers to some of its queries, or its whole outcome."""

    known: Mapping[bytes, int]
    outcome: Outcome | None = None


class Memory(Protocol):
    """Where answers are kept: in this process, or in a `quorate.ledger.Ledger`."""

    def admit(self, asked: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Return what is known of each request, or why it is refused; the ids of the others are taken by this."""

    def keep(
        self, fresh: Mapping[Query, int], known: dict[Query, int], asked: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Keep fresh answers, add to `known` those that stand, and return the outcomes of requests that end here."""


def outcome_of(asked: Asked, known: Mapping[Query, int]) -> Outcome:
    """Return the outcome of a request: what is not known was refused."""
    return [known.get((asked.caller, query), REFUSED) for query in asked.queries]


def reused(asked: Asked) -> IdReused:
    """Return the error for an id that was used before, for something else."""
    return IdReused(
        "this id was used for another request: a request has an id of its own, and keeps it when it is sent again"
    )


class KeptAnswers:
    """Answers kept in this process, the oldest dropped first."""

    def __init__(self) -> None:
        self._answers: dict[Query, int] = {}
        self._outcomes: dict[tuple[str, str], tuple[bytes, Outcome]] = {}

    def admit(self, asked: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Return what is known of each request, or why it is refused."""
        taken: dict[tuple[str, str], bytes] = {}  # in this group
        return [self._admit(one, taken) for one in asked]

    def _admit(self, one: Asked, taken: dict[tuple[str, str], bytes]) -> Admitted | QuorateError:
        before = None if one.id is None else self._outcomes.get((one.caller, one.id))
        if before is not None and before[0] != one.body:
            return reused(one)
        if one.id is not None and taken.setdefault((one.caller, one.id), one.body) != one.body:
            return reused(one)
        known = {
            query: self._answers[one.caller, query] for query in one.queries if (one.caller, query) in self._answers
        }
        return Admitted(known, None if before is None else before[1])

    def keep(
        self, fresh: Mapping[Query, int], known: dict[Query, int], asked: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Keep answers and outcomes, and drop the oldest where there are too many."""
        self._answers.update(fresh)
        known.update(fresh)
        outcomes = [outcome_of(one, known) for one in asked]
        for one, outcome in zip(asked, outcomes, strict=True):
            if one.id is not None and set(outcome) != {REFUSED}:
                self._outcomes[one.caller, one.id] = one.body, outcome
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]
        while len(self._outcomes) > _KEPT:
            del self._outcomes[next(iter(self._outcomes))]
        return list(outcomes)

    def answers(self) -> Mapping[Query, int]:
        """Return all answers, for a memory that takes them over."""
        return self._answers
