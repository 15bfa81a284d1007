"""Who is dealt to whom: the privacy unit is a row, or a person, and each goes to one teacher by a secret permutation.

Positions are permuted, never contents, so that a neighbouring data set (one unit's rows replaced by others) differs
in the rows of one teacher alone.
"""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Integers, without_mask
from quorate.checks import check_count
from quorate.errors import Infeasible, InvalidInput
from quorate.learners import Deal
from quorate.tables.read import person_text

__all__ = ["deal_units", "unit_numbers"]


def unit_numbers(rows: int, groups: Any = None) -> tuple[Integers, int]:
    """Return the unit that each row belongs to, numbered as they first appear, and how many units there are.

    Without `groups` every row is a unit of its own. Names are told apart as texts: 7, "7.0", " 7 " and b"07" are one
    person.
    """
    rows = check_count("rows", rows)
    if groups is None:
        return np.arange(rows), rows
    given = _names(groups)
    if given.ndim != 1 or given.shape[0] != rows:
        raise InvalidInput(f"groups must name the person of each of the {rows} rows, not be of shape {given.shape}")
    if given.dtype.kind in "ST":  # bytes may be padded; of texts that may be missing, NumPy takes a gap for any other
        given = given.astype(object)
    if (given.dtype.kind in "fc" and np.isnan(given).any()) or (given.dtype.kind in "mM" and np.isnat(given).any()):
        raise InvalidInput("groups must name a person for every row: some are missing")
    if given.dtype.kind == "O":
        seen: dict[tuple[type, Any], int] = {}  # True is equal to 1, and is another name
        if any(_missing(name) for name in given.tolist()):
            raise InvalidInput("groups must name a person for every row: some are missing")
        try:
            units = np.array(
                [seen.setdefault((name.__class__, name), len(seen)) for name in given.tolist()], dtype=np.int64
            )
        except TypeError:  # a list, or what else cannot be compared
            raise InvalidInput("groups must name each person by a text or a number") from None
        return _one_form(units, [name for _, name in seen])
    names, first, inverse = np.unique(given, return_index=True, return_inverse=True)
    number, order = np.empty(first.size, dtype=np.int64), np.argsort(first)
    number[order] = np.arange(first.size)
    if given.dtype.kind in "UT":
        return _one_form(number[inverse], names[order].tolist())
    return number[inverse], int(first.size)


def _one_form(units: Integers, names: list[Any]) -> tuple[Integers, int]:
    """Return the units of rows, given the different names in their order, where a name may be written in two ways."""
    seen: dict[str, int] = {}
    number = np.array([seen.setdefault(person_text(name), len(seen)) for name in names], dtype=np.int64)
    return number[units], len(seen)


def _names(groups: Any) -> NDArray[Any]:
    """Return names as they are given: in a plain list, none of them says of which type the others are read."""
    if not isinstance(groups, list | tuple):
        return np.asarray(without_mask(groups))
    names = np.empty(len(groups), dtype=object)
    for place, name in enumerate(groups):
        names[place] = name
    return names


def _missing(name: Any) -> bool:
    """Return whether this is None, or a value that is not even equal to itself: a nan, or what a data frame misses."""
    try:
        return name is None or bool(name != name)  # noqa: PLR0124
    except TypeError:  # pandas' NA does not say
        return True


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
