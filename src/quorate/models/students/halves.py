"""Label-private learning: one half of the units keeps its labels, the other lends its features as public points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import deal_units
from quorate.core.errors import Infeasible, InvalidInput
from quorate.tables.persons import unit_numbers

Rows = NDArray[np.int64]


def split_units(rows: int, groups: Any = None) -> tuple[Rows, Rows]:
    """Return the rows that keep their labels and the rows that lose them: halves of the units, by a secret permutation.

    Positions are permuted; no label and no feature has a say (PROOF.md, step 4).
    """
    units, count = unit_numbers(rows, groups)
    if count < 2:
        raise Infeasible(f"mode='label-private' splits the units in two halves, and there is {count}")
    deal, _ = deal_units(units, count, teachers=2)
    kept = int(deal.sizes[0])
    return np.sort(deal.rows[:kept]), np.sort(deal.rows[kept:])


def labels_of(y: Any, rows: Rows) -> Any:
    """Return the labels of these rows; the labels of no other row are looked at, not even for their type."""
    if y is None:
        raise InvalidInput("y is missing: one label is needed for each row of X")
    if hasattr(y, "iloc"):
        return y.iloc[rows].tolist()
    if hasattr(y, "to_pylist"):  # of Arrow, whose values are no plain ones
        return y.take(rows).to_pylist()
    if isinstance(y, np.ndarray):
        kept = y[rows].tolist()  # as if there had never been others: a type is wide enough for all
        return kept if y.dtype == object else np.array(kept)
    return [y[row] for row in rows.tolist()]
