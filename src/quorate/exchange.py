"""What comes to a session and what leaves it: checked queries with who asks them, and their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import BudgetSpent, InvalidInput, QuorateError
from quorate.mechanisms import NO_QUORUM
from quorate.memory import REFUSED, Admitted, Asked
from quorate.privacy import Cost
from quorate.rows import join_rows, take_rows

__all__ = ["Replies", "Request", "firsts_of", "replies_of", "rows_of"]

_LONGEST = 200  # characters of a caller's name or an id


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Checked queries, who asks, and the id that the client gave them, with a digest of all that came with it."""

    X: Any
    caller: str = ""
    id: str | None = None
    body: bytes = b""

    def __post_init__(self) -> None:
        for name, text in (("caller", self.caller), ("id", self.id or "")):
            if not isinstance(text, str) or len(text) > _LONGEST or not (text.isprintable() and text.isascii()):
                raise InvalidInput(f"{name} must be a text of at most {_LONGEST} printable ASCII characters")


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What a request was answered: class numbers, `NO_QUORUM` where there was none; `refused` marks what was not asked.

    `spent` is what the requests that were answered together have cost.
    """

    labels: NDArray[np.int64]
    refused: NDArray[np.bool_]
    spent: Cost


def rows_of(requests: Sequence[Request], places: Sequence[tuple[int, int]]) -> Any:
    """Return these rows, each named by its request and its number there, in order, as one matrix or data frame."""
    if len(requests) == 1 and len(places) == len(requests[0].X):
        return requests[0].X  # all of it, and nothing twice
    parts = groupby(places, key=lambda place: place[0])
    return join_rows([take_rows(requests[place].X, [row for _, row in rows]) for place, rows in parts])


def firsts_of(asked: Sequence[Asked]) -> list[int]:
    """Return for each request the first one that is the same by caller, id and body, which may be itself."""
    seen: dict[tuple[str, str, bytes], int] = {}
    return [
        place if one.id is None else seen.setdefault((one.caller, one.id, one.body), place)
        for place, one in enumerate(asked)
    ]


def replies_of(result: Admitted | QuorateError, spent: Cost, ended: BudgetSpent | None) -> Replies | QuorateError:
    """Return the replies of an outcome, or why there is none."""
    if isinstance(result, QuorateError):
        return result
    labels = np.array(result.outcome, dtype=np.int64)
    refused = labels == REFUSED
    if ended is not None and refused.all():
        return ended
    return Replies(labels=np.where(refused, NO_QUORUM, labels), refused=refused, spent=spent)
