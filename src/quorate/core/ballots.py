"""Sealed vote counts, and who counts them: private values that only a mechanism can open."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["BallotSource", "Ballots"]

Released = TypeVar("Released")


class Ballots:
    """Vote counts of a batch of queries, to be put to a mechanism and to nothing else.

    They have a length and no other public property: no value, no text, no JSON, no pickle, no copy, no array.
    """

    __slots__ = ("_seal",)

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._seal: Callable[[], NDArray[np.int64]] = lambda: counts  # not an attribute that a walk would print

    def put_to(self, release: Callable[[NDArray[np.int64]], Released]) -> Released:
        """Hand the counts to a mechanism's `answers`, and return what it released."""
        return release(self._seal())

    def __len__(self) -> int:
        return len(self._seal())

    def __repr__(self) -> str:
        return "<sealed ballots>"

    def __format__(self, specification: str) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("ballots cannot be copied, pickled or stored: put them to a mechanism")

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("ballots are sealed and are not an array: put them to a mechanism")

    def __iter__(self) -> NoReturn:
        raise TypeError("ballots are sealed and cannot be read one by one: put them to a mechanism")

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("ballots are sealed and cannot be compared: put them to a mechanism")


class BallotSource(Protocol):
    """Teachers that vote on queries. Replacing the rows of one unit changes at most one vote on each query."""

    @property
    def fitted(self) -> Any:
        """The fitted teachers, for the owner's model files. They are private."""

    def count(self, X: Any) -> Ballots:
        """Count the votes of every teacher on these queries."""

    def count_each(self, batches: Iterable[Any]) -> Iterator[Ballots]:
        """Yield the ballots of each batch in order."""

    def close(self) -> None:
        """Close connections to teachers outside this process."""
