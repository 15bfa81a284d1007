"""Counts of private records, sealed: only a mechanism opens them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble.ballots import Ballots
from quorate.release.queries import Rows

__all__ = ["SealedCounts"]

Counted = NDArray[np.int64] | Rows
Released = TypeVar("Released")


class SealedCounts(Ballots):
    """Counts of private records by cells, or their codes, to be put to a mechanism and to nothing else.

    >>> SealedCounts(np.array([3, 4]))
    <sealed counts>
    """

    __slots__ = ()

    def __init__(self, counts: Counted) -> None:
        super().__init__(counts)  # type: ignore[arg-type]

    def put_to(self, release: Callable[[Any], Released]) -> Released:
        """Hand the counts to a mechanism's release, and return what it released.

        >>> from quorate.mechanisms import NoisySum
        >>> SealedCounts(np.array([3, 4])).put_to(lambda counts: NoisySum(sensitivity=1, scale=0.1).release(counts[0]))
        3
        """
        return super().put_to(release)

    def __len__(self) -> int:
        raise TypeError("counts are sealed and have no length: put them to a mechanism")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "<sealed counts>"
