"""The trust boundary: sealed counts of private records go into a mechanism, and only its release comes out.

Data cross the boundary in `release_votes`, `release_votes_each` and `release_counts`, and nowhere else.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.core.mechanisms import Answers

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
    def electorate(self) -> Any:
        """The fitted teachers, for the owner's model files. They are private."""

    def count(self, X: Any) -> Ballots:
        """Count the votes of every teacher on these queries."""

    def count_each(self, batches: Iterable[Any]) -> Iterator[Ballots]:
        """Yield the ballots of each batch in order."""

    def close(self) -> None:
        """Close connections to teachers outside this process."""


def release_votes(ensemble: BallotSource, X: Any, release: Callable[[NDArray[np.int64]], Released]) -> Released:
    """Count the votes on these queries, hand them to a mechanism's `release`, and return what it releases."""
    return ensemble.count(X).put_to(release)


def release_votes_each(
    ensemble: BallotSource, batches: Iterable[Any], release: Callable[[NDArray[np.int64]], Answers]
) -> Iterator[Answers]:
    """Release the votes on each batch in order, up to the first query without an answer."""
    for ballots in ensemble.count_each(batches):
        answers = ballots.put_to(release)
        yield answers
        if len(answers.labels) < len(ballots):
            return


def release_counts(counts: Ballots, release: Callable[[Any], Released]) -> Released:
    """Hand sealed counts of private records to a mechanism's `release`, and return what it releases."""
    return counts.put_to(release)
