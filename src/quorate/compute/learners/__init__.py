"""Batched learners: all teachers are fitted as one array, each on its own rows, and counted in blocks.

    Deal                    which rows belong to which teacher
    batched_equivalent      from a scikit-learn estimator to its batched learner, or None
    Batched...              the learners: `fit(X, y, deal, classes=...)` returns teachers
    Teachers                `votes(queries)` counts their ballots; `arrays()` is their complete state

A teacher depends on its own rows alone, to the last bit: not on the other chunks, on their number, or on how the work
is cut into blocks. A ballot depends on its teacher and its query alone, to the last bit: not on the batch (PROOF.md).
No private value decides whether an error or a warning is raised.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "BatchedCentroid",
    "BatchedLogistic",
    "BatchedNaiveBayes",
    "BatchedQuadratic",
    "BatchedRidge",
    "BatchedTree",
    "Deal",
    "DeviceName",
    "Teachers",
    "batched_equivalent",
    "count_coefficients",
    "joined_teachers",
    "teachers_from_arrays",
]

if TYPE_CHECKING:
    from quorate.compute.learners._batched import (
        BatchedLogistic,
        BatchedQuadratic,
        batched_equivalent,
        count_coefficients,
        joined_teachers,
    )
    from quorate.compute.learners._losses import BatchedCentroid, BatchedNaiveBayes, BatchedRidge
    from quorate.compute.learners._tree import BatchedTree
    from quorate.compute.learners.teachers import Deal, DeviceName, Teachers, teachers_from_arrays
else:
    __getattr__ = import_on_use(__name__, __file__)
