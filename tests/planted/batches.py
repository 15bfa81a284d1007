"""Teachers whose ballots depend on what else is in the batch.

The attack is a replay: queries on a teacher's boundary, asked alone and in company. No ballot may differ.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught, PlantedBug
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import Matrix


class SummedInAnyOrder(LinearTeachers):
    """Multiplies scores by queries as they come: a product of another shape is summed in another order."""

    def __init__(self, scores: Any, *, classes: int) -> None:
        super().__init__(scores, classes=classes)
        self._given = np.array(scores, dtype=np.float64)  # the mistake: coefficients on no grid

    def ballots(self, X: Any) -> NDArray[Any]:
        queries = np.asarray(X, dtype=np.float64)
        across = np.append(queries, np.ones((len(queries), 1)), axis=1)  # the mistake: queries on no grid
        return np.asarray(across @ self._given[:, 0].T > 0).astype(np.uint8)


def replay_in_company(target: LinearTeachers) -> Caught:
    """Ask queries as close to a teacher's boundary as floats come: each alone, some together, and all together."""
    queries = _on_boundaries(target)
    together = target.ballots(queries)
    for size in (1, 2, 7, 64):
        parts = [target.ballots(queries[start : start + size]) for start in range(0, len(queries), size)]
        moved = int(np.count_nonzero(np.concatenate(parts) != together))
        if moved:
            said = f"{moved} of {together.size} ballots differ between batches of {size} and of {len(queries)}"
            return Caught("replay in other company", said, found=True)
    return Caught("replay in other company", f"{together.size} ballots were the same in all batches", found=False)


def _scores() -> Matrix:
    return np.random.default_rng(0).normal(size=(64, 1, 21))


def _on_boundaries(target: LinearTeachers) -> Matrix:
    """Return queries that are neighbouring floats of some on which a teacher votes differently: found by halving."""
    low, high = np.random.default_rng(1).normal(size=(2, 16 * target.teachers, target.features))
    own = np.arange(len(low)), np.arange(len(low)) % target.teachers
    before = target.ballots(low)[own]
    for _ in range(60):
        middle = low / 2 + high / 2
        same = (target.ballots(middle)[own] == before)[:, np.newaxis]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    boundary: Matrix = high
    return boundary


BATCHES = (
    PlantedBug(
        "ballot_depends_on_company",
        "replay",
        lambda: SummedInAnyOrder(_scores(), classes=2),
        lambda: LinearTeachers(_scores(), classes=2),
        replay_in_company,
    ),
)
