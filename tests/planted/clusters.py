"""Deals of a table that is read in parts, each with one mistake: what a worker reads again, and who reads with whom.

The attack is on the deal: parts are read again as after the death of a worker, or cut as for more workers. Each record
must go to the teacher that it had.
"""

import os
from itertools import pairwise

import numpy as np

from planted.bug import Caught, PlantedBug
from quorate.compute.ensemble.dealing import Dealer, Encoded, Seats
from quorate.core.arrays import Integers

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


CLUSTERS = (
    PlantedBug("lost_part_dealt_anew", "state", DealsAnew, Dealer, read_part_again),
    PlantedBug("dealt_by_company", "state", DealsByCompany, Dealer, cut_for_more_workers),
)
