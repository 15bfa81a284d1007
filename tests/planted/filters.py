"""Neighbours with one mistake each in how a unit pays for its votes; `Units` and `Nearby` are sound."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught, kind_bug
from planted.neighbour_games import (
    BALLOT,
    QUERIES,
    RECORDS,
    game_terms,
    game_units,
    widest_change,
    widest_change_in_batches,
)
from quorate.auditing.replay import entropy_tape
from quorate.compute.learners.backends import choose_backend
from quorate.core.arrays import Integers
from quorate.core.errors import BudgetSpent, QuorateError
from quorate.core.mechanisms import Answers
from quorate.models.knn._ballots import Levels
from quorate.models.knn._kernel import Block, Kernel, Space, query_factors
from quorate.models.knn._session import Nearby
from quorate.models.knn._units import DeviceCounter, Units

_LEVELS = Levels(low=0.0, high=1.0, centre=0.5)
_FAR = np.full((64, 2), 500.0)  # queries that no record of the game is near


class _RefundOnForget(Units):
    """Gives a unit its budget back when it is forgotten: whoever comes and goes tells more each time."""

    def forget(self, names: Sequence[str], *, at: float = 0.0) -> list[int]:
        """Strike out what was spent: that is the mistake."""
        numbers = super().forget(names, at=at)
        self._spent[numbers] = 0
        return numbers


class _NumbersAsNames(Units):
    """Names a record by how many units there are, which may be the name of another."""

    def new_names(self, count: int) -> list[str]:
        """Take the next numbers, whoever has them or had them: that is the mistake."""
        return [str(number) for number in range(len(self._numbers), len(self._numbers) + count)]


class _VotesOfTheWorn(Units):
    """Charges a unit until its budget is spent, and lets it vote on."""

    def _charge(self, weights: NDArray[np.float32], prices: Integers, spent: Integers, together: int) -> None:
        """Charge for a copy of the weights, and leave them as they were: that is the mistake."""
        super()._charge(weights.copy(), prices, spent, together)


class _ChargedTogether(Units):
    """Charges every unit with the votes of all: one record decides when the others stop."""

    def _charge(self, weights: NDArray[np.float32], prices: Integers, spent: Integers, together: int) -> None:
        """Count the squares of all units as those of each: that is the mistake."""
        shared = np.broadcast_to(np.sqrt((weights**2).sum(axis=1, keepdims=True)), weights.shape).copy()
        super()._charge(shared, prices, spent, together)
        weights *= shared > 0


class _OnePrice(Units):
    """Charges for the weight of a vote, whatever it adds: a target at the end of the bounds pays like any other."""

    def _charge(self, weights: NDArray[np.float32], prices: Integers, spent: Integers, together: int) -> None:
        """Take the lowest price for all: that is the mistake."""
        super()._charge(weights, np.full_like(prices, self._prices.min()), spent, together)


class _PaysForOneOfAGroup(Units):
    """Charges a unit for a group of queries as if it were one: a large batch tells more of it than small ones."""

    def _charge(self, weights: NDArray[np.float32], prices: Integers, spent: Integers, together: int) -> None:
        """Take the heaviest vote of the group for all of them: that is the mistake."""
        heaviest = weights.reshape(-1, together, weights.shape[1]).max(axis=1)
        super()._charge(heaviest, prices, spent, 1)
        weights *= np.repeat(heaviest > 0, together, axis=0)


class _StaleCopy(DeviceCounter):
    """Sends the rows of a block to the device once: a record that was forgotten since is there, and votes."""

    def _records(self, block: Block) -> Any:
        """Take what is there, whatever has changed since: that is the mistake."""
        _, records = self._placed.get(block, (0, None))
        return super()._records(block) if records is None else records


class _QuietClass(Nearby):
    """Adds noise to the classes that somebody has voted for, and to no others."""

    def _noisy(self, counts: Integers) -> Integers:
        """Leave a count of nothing as it is: that is the mistake."""
        return np.where(counts == 0, 0, super()._noisy(counts))


class _RefusesForTheWorn(Nearby):
    """Refuses queries once a unit cannot pay for its vote: whoever asks learns that it is there."""

    def draw(self, X: Any) -> Answers:
        """Say that the budget is spent where a unit's is: that is the mistake."""
        answers = super().draw(X)
        if (self.units.spends() > self.terms.capacity).any():
            raise BudgetSpent("a record near this query has no budget left")
        return answers


def _space() -> Space:
    """Return the space in which rows of the game are points as they are."""
    space = Space("euclidean", np.zeros(2))
    return Space("euclidean", np.zeros(2), reach=float(space.length))


def _moved(units: type[Units]) -> Caught:
    """Look at every sequence of queries, insertions and deletions, and at how far the first record moves the counts."""
    widest, paid = widest_change(units, removed=[0]), game_terms().capacity
    evidence = f"one record moves the counts of a sequence by {widest} squares in all, and pays for {paid}"
    return Caught("exact enumeration", evidence, found=widest > paid)


def _moved_by_names(units: type[Units]) -> Caught:
    """Look at a record that is named, worn out and forgotten, and at whether the next one without a name votes."""
    counts, paid = [], game_terms().capacity
    for there in (True, False):
        game = game_units(units)
        if there:
            game.insert(["6"], [1], RECORDS[:1], np.array([0]))
        before = [game.count(QUERIES[:1]).put_to(np.ravel) for _ in range(3)]
        if there:
            game.forget(["6"])
        game.insert(game.new_names(1), [1], RECORDS[:1], np.array([0]))
        counts.append(np.concatenate([*before, *(game.count(QUERIES[:1]).put_to(np.ravel) for _ in range(3))]))
    moved = int(((counts[0] - counts[1]) ** 2).sum())
    evidence = f"one record moves the counts by {moved} squares in all, and pays for {paid}"
    return Caught("exact enumeration", evidence, found=moved > paid)


def _left_on_device(counter: type[DeviceCounter]) -> Caught:
    """Put records on a device, forget one, and look at what the next count would take. NumPy stands in for the device.

    What is counted of these rows needs PyTorch; which rows are taken does not.
    """
    device = replace(choose_backend("cpu"), put=np.array)  # a copy, as one on a device is
    kernel = Kernel(shape="flat", squared_radius=400, top=3)
    count = counter(device, kernel, capacity=game_terms().capacity, table=BALLOT.table, persons=False)
    block = Block(2, len(RECORDS))
    block.add(block.reserve(len(RECORDS)), RECORDS, np.zeros(len(RECORDS), dtype=np.int64), np.arange(1, 6))
    count._records(block)
    block.clear(slice(0, 1))
    there = count._records(block)
    near = query_factors(RECORDS[:1], np.array([400], dtype=np.float32)) @ there.factors > 0
    evidence = "a record that was forgotten is among those that vote" if near[0, 0] else "who was forgotten is gone"
    return Caught("a count after a deletion", evidence, found=bool(near[0, 0]))


def _moved_in_batches(units: type[Units]) -> Caught:
    """Look at batches that are paid for two queries at a time, and at how far the first record moves the counts."""
    widest, paid = widest_change_in_batches(units), game_terms().capacity
    evidence = f"one record moves the counts of two batches by {widest} squares in all, and pays for {paid}"
    return Caught("exact enumeration", evidence, found=widest > paid)


def _moved_by_targets(units: type[Units]) -> Caught:
    """Look at every sequence of queries where votes are for targets, and at how far the first record moves the sums."""
    widest, paid = widest_change(units, removed=[0], churn=False, ballot=_LEVELS), game_terms(ballot=_LEVELS).capacity
    evidence = f"one record moves the sums of a sequence by {widest} squares in all, and pays for {paid}"
    return Caught("exact enumeration", evidence, found=widest > paid)


def _silent(answerer: type[Nearby], _plays: int, seed: int) -> Caught:
    """Ask where no record votes, and look for classes without noise."""
    with entropy_tape(seed):
        told = [answerer(_space(), game_units(), game_terms(), BALLOT).draw(_FAR).labels for _ in range(2)]
    ones = int(sum(labels.sum() for labels in told))
    return Caught("far queries on a tape", f"{ones} of 128 labels far from all records are not the first", not ones)


def _seen(answerer: type[Nearby], _plays: int, seed: int) -> Caught:
    """Ask the same queries with and without a record, and compare how many replies there are."""
    replies = []
    for without in (None, 0):
        with entropy_tape(seed):
            asked = answerer(_space(), game_units(without=without), game_terms(), BALLOT)
            replies.append(sum(_replied(asked) for _ in range(6)))
    evidence = f"{replies[0]} of 6 queries were answered with the record there, and {replies[1]} without it"
    return Caught("replay on neighbours", evidence, found=replies[0] != replies[1])


def _replied(answerer: Nearby) -> int:
    try:
        return len(answerer.draw(QUERIES[:1]).labels)
    except QuorateError:
        return 0


FILTERS = (
    kind_bug("refund_on_forget", "enumeration", _RefundOnForget, Units, _moved),
    kind_bug("name_of_another", "enumeration", _NumbersAsNames, Units, _moved_by_names),
    kind_bug("stale_copy_on_device", "state", _StaleCopy, DeviceCounter, _left_on_device),
    kind_bug("votes_of_the_worn", "enumeration", _VotesOfTheWorn, Units, _moved),
    kind_bug("charged_together", "enumeration", _ChargedTogether, Units, _moved),
    kind_bug("one_price_for_targets", "enumeration", _OnePrice, Units, _moved_by_targets),
    kind_bug("pays_for_one_of_a_group", "enumeration", _PaysForOneOfAGroup, Units, _moved_in_batches),
    kind_bug("quiet_class", "replay", _QuietClass, Nearby, _silent),
    kind_bug("refuses_for_the_worn", "replay", _RefusesForTheWorn, Nearby, _seen),
)
