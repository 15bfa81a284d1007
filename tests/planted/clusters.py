"""Deals and sums of a table that is read in parts, each with one mistake: what is read again, and what goes together.

The attacks are on the deal (parts are read again as after the death of a worker, or cut as for more workers, and each
record must go to the teacher that it had) and on sums over people, whose rows are in several parts of the table: one
person may move a sum by no more than its noise is for.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from planted.bug import Caught, PlantedBug, replaced, replacement_bug
from quorate.compute import blocks
from quorate.compute.ensemble import sources
from quorate.compute.ensemble.dealing import Dealer, Encoded, Seats
from quorate.compute.ensemble.sources import SpilledRows
from quorate.core.arrays import Floats, Integers
from quorate.models.linear._sums import GRID, PrivateSums

_ROWS, _TEACHERS = 400, 20


class DealsAnew(Dealer):
    """Draws the words of a part whenever it is read."""

    def notes(self, first: int, encoded: Encoded) -> Integers:
        return Dealer(os.urandom(32)).notes(first, encoded)  # the mistake


class DealsByCompany(Dealer):
    """Makes a word of the place of a row among those that are read together, not in the table."""

    def notes(self, first: int, encoded: Encoded) -> Integers:
        notes = super().notes(0, encoded)  # the mistake
        notes[:, 2] += first
        return notes


def owners_in_parts(dealer: Dealer, parts: int, again: int | None = None) -> list[Integers]:
    """Return the teacher of each record of a table that is read in so many parts; and of one part read `again`."""
    edges = [_ROWS * place // parts for place in range(parts + 1)]
    read = [_notes(dealer, start, stop) for start, stop in pairwise(edges)]
    dealt = [_owners(np.concatenate(read))]
    if again is not None:
        read[again] = _notes(dealer, edges[again], edges[again + 1])
        dealt.append(_owners(np.concatenate(read)))
    return dealt


def _notes(dealer: Dealer, start: int, stop: int) -> Integers:
    return dealer.notes(start, (np.zeros((stop - start, 1)), np.zeros(stop - start, dtype=np.int64), None))


def _owners(notes: Integers) -> Integers:
    order, owners, _ = Seats(_ROWS, _TEACHERS, 0, by_person=False).owners(notes[:, 0].view(np.uint64), 0)
    dealt = np.empty(_ROWS, dtype=np.int64)
    dealt[notes[order, 2]] = owners
    return dealt


def read_part_again(target: Dealer) -> Caught:
    """Lose a part with its worker, read it again, and see who has its records besides those who had them."""
    before, after = owners_in_parts(target, 4, again=1)
    twice = int((before != after).sum())
    return Caught("a lost part read again", f"{twice} of {_ROWS} records have a second teacher", found=twice > 0)


def cut_for_more_workers(target: Dealer) -> Caught:
    """Read the same table in four parts, and in seven."""
    (few,), (many,) = owners_in_parts(target, 4), owners_in_parts(target, 7)
    moved = int((few != many).sum())
    return Caught("other parts", f"{moved} of {_ROWS} records have another teacher", found=moved > 0)


def _people_cut_anywhere(X: Floats, notes: Integers) -> Iterator[blocks.Block]:
    """Cut a person's rows at the ends of blocks, as rows that are units of their own are cut."""
    order = np.lexsort((notes[:, 2], notes[:, 0]))
    for start in range(0, len(order), 4):
        rows = order[start : start + 4]  # the mistake
        yield X[rows], np.flatnonzero(np.append(True, np.diff(notes[rows, 0]) != 0))


def _people_of_one_part(X: Floats, notes: Integers) -> Iterator[blocks.Block]:
    """Take a person's rows in one part of the table for another person than those in the next."""
    apart = notes.copy()
    apart[:, 0] += notes[:, 2] // _PART  # the mistake
    yield from blocks.cut_people(X, apart)


class _Total:
    """Stands in for the noise: what was to be released is the sum itself."""

    def release(self, whole: Integers, *, squared_sensitivity: int, fraction: float) -> tuple[Integers, float]:
        return whole, 0.0


_PART = 10  # rows of a table that are read together


def _sum_of_people(X: Floats, names: list[str]) -> Floats:
    """Return the sum of clipped rows over people of a table that is read in parts, in units of GRID."""
    rows, total = SpilledRows(X.shape[1], memory=10**8, dealer=Dealer(b"1" * 32)), _Total()
    for start in range(0, len(X), _PART):
        part = names[start : start + _PART]
        known = sorted(set(part))
        numbers = np.array([known.index(name) for name in part])
        rows.add((X[start : start + _PART], np.zeros(len(part), dtype=np.int64), (known, numbers)), first=start)
    private = PrivateSums.of_blocks(rows, lambda X: (X, X[:, :1]), one_each=False)
    stand_in: Any = total
    mean, _ = private.release(lambda features, _: features, entries=2, radius=1.0, noisy=stand_in, fraction=1.0)
    rows.close()
    return np.asarray(mean * rows.count)


def move_people(twin: tuple[Any, str, Any]) -> Caught:
    """Replace all rows of one person, who has many of them in all parts, by opposite ones, and by fewer."""
    X, names = np.full((60, 2), 0.5), [f"person {place % 8}" for place in range(60)]
    mine = np.array([name == "person 3" for name in names])
    moved = 0.0
    with replaced(*twin):
        before = _sum_of_people(X, names)
        opposite = np.where(mine[:, None], -9.0, X)
        fewer = (
            X[~mine | (np.arange(60) < 20)],
            [name for place, name in enumerate(names) if not mine[place] or place < 20],
        )
        for other, whose in ((opposite, names), fewer):
            moved = max(moved, float(np.linalg.norm(_sum_of_people(other, whose) - before)))
    bound = 2.0 + 2 / GRID
    return Caught("replaced person", f"one person moved a sum by {moved:.2f}; the noise is for 2", found=moved > bound)


CLUSTERS = (
    replacement_bug("people_cut_anywhere", "replay", (sources, "cut_people"), _people_cut_anywhere, move_people),
    replacement_bug("people_of_one_part", "replay", (sources, "cut_people"), _people_of_one_part, move_people),
    PlantedBug("lost_part_dealt_anew", "state", DealsAnew, Dealer, read_part_again),
    PlantedBug("dealt_by_company", "state", DealsByCompany, Dealer, cut_for_more_workers),
)
