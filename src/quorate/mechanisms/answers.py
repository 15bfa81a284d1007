"""What leaves a mechanism."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.privacy import Cost

__all__ = ["NO_QUORUM", "Answers"]

NO_QUORUM = -1


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers to a batch of queries.

    `labels` holds a class index for each query put to the vote, `NO_QUORUM` where none was reached; `answered` is the
    mask of the others. `refused` counts the queries at the end of the batch that were not put to the vote, because
    the run or the budget had ended. `spent` is what the batch cost, at the order of the budget or of the run that paid;
    None where no budget paid.
    """

    labels: NDArray[np.int64]
    spent: Cost | None
    refused: int = 0

    @property
    def answered(self) -> NDArray[np.bool_]:
        """The mask of the queries that reached a quorum."""
        return np.not_equal(self.labels, NO_QUORUM)
