"""Who is dealt to whom: the privacy unit is a row, or a person, and each goes to one teacher by a secret permutation.

Positions are permuted, never contents, so that a neighbouring data set (one unit's rows replaced by others) differs
in the rows of one teacher alone.
"""

import os
from typing import Any

import numpy as np

from quorate.compute.learners import Deal
from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput
from quorate.tables.persons import person_names

__all__ = ["deal_units", "unit_numbers"]


def unit_numbers(rows: int, groups: Any = None) -> tuple[Integers, int]:
    """Return the unit that each row belongs to, numbered as they first appear, and how many units there are.

    Without `groups` every row is a unit of its own. `quorate.tables.persons` says which names are one person: 7, "7.0",
    " 7 " and b"07" are. Rows without a name belong to one unknown person.
    """
    rows = check_count("rows", rows)
    if groups is None:
        return np.arange(rows), rows
    shape = np.shape(groups) if hasattr(groups, "shape") or hasattr(groups, "dtype") else (len(groups),)
    if shape != (rows,):
        raise InvalidInput(f"groups must name the person of each of the {rows} rows, not be of shape {shape}")
    units, names = person_names(groups)
    return units, len(names)


def _secret_permutation(count: int) -> Integers:
    """Return a random order from the operating system's randomness. It does not depend on any record.

    Words that are equal would favour one order of the two, so that all are drawn again.
    """
    while True:
        words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        order = np.argsort(words, kind="stable")
        drawn = words[order]
        if (drawn[1:] != drawn[:-1]).all():
            return order


def deal_units(units: Integers, count: int, *, teachers: int, held_out: int = 0) -> tuple[Deal, Integers]:
    """Deal units to teachers evenly by a secret permutation, and return the deal and the rows that are held out.

    The first `held_out` units of the permutation go to nobody; one row of each of them, its first, is returned.
    """
    teachers, held_out = check_count("teachers", teachers), check_count("held_out", held_out, least=0)
    if teachers + held_out > count:
        raise Infeasible(
            f"{count} units cannot be dealt to teachers={teachers}"
            + (f" with {held_out} held out" if held_out else "")
            + ": each teacher needs at least one"
        )
    seat = np.empty(count, dtype=np.int64)
    seat[_secret_permutation(count)] = np.arange(count)
    owner = np.where(seat < held_out, -1, (seat - held_out) % teachers)
    deal = Deal.by_assignment(owner[units], teachers=teachers)
    if held_out == 0:
        return deal, np.empty(0, dtype=np.int64)
    _, first = np.unique(units, return_index=True)
    return deal, first[seat < held_out]
