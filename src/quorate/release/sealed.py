"""Counts of private records, sealed: only a mechanism opens them."""

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble.ballots import Ballots
from quorate.release.queries import Rows

__all__ = ["SealedCounts"]

Counted = NDArray[np.int64] | Rows


class SealedCounts(Ballots):
    """Counts of private records by cells, or their codes, to be put to a mechanism and to nothing else."""

    __slots__ = ()

    def __init__(self, counts: Counted) -> None:
        super().__init__(counts)  # type: ignore[arg-type]

    def __len__(self) -> int:
        raise TypeError("counts are sealed and have no length: put them to a mechanism")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "<sealed counts>"
