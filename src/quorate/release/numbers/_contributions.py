"""The exact sums of private groups: which records of a person count, and what each adds to its group."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.release.numbers._layout import FINE_BITS, SummedColumn, Weights


def choose_records(
    people: Integers, groups: Integers, *, groups_per_unit: int, records_per_group: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which records count, and which of them are the first of their person in their group.

    Of each person the first groups that it is in count, and its first records in each. The choice depends on the
    records of that person alone, in their order.
    """
    width = int(groups.max(initial=0)) + 1
    pairs, first, pair_of = np.unique(people * width + groups, return_index=True, return_inverse=True)
    owners = pairs // width
    order = np.lexsort((first, owners))  # groups of a person in the order of its records: proof: step 2
    ranks = np.empty(len(pairs), dtype=np.int64)
    ranks[order] = _positions(owners[order])
    by_pair = np.argsort(pair_of.ravel(), kind="stable")
    turns = np.empty(len(people), dtype=np.int64)
    turns[by_pair] = _positions(pair_of.ravel()[by_pair])
    chosen = (ranks[pair_of.ravel()] < groups_per_unit) & (turns < records_per_group)
    return chosen, chosen & (turns == 0)


def _positions(runs: Integers) -> Integers:
    """Return the position of each element within its run of equal elements."""
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1])[: len(runs)])
    lengths = np.diff(np.append(starts, len(runs)))
    return np.asarray(np.arange(len(runs)) - np.repeat(starts, lengths))


class GroupSums:
    """Exact sums by group number; arrays grow with the groups. Values at a bound are 2**30, so all sums are exact."""

    def __init__(self, sums: Sequence[SummedColumn]) -> None:
        self.sums = tuple(sums)
        self.values = np.zeros((0, 2 + 2 * len(sums)), dtype=np.int64)  # people, records, sums and missing values

    def add(self, groups: Integers, values: Mapping[str, Floats], first_of_person: NDArray[np.bool_] | None) -> None:
        """Add records of these groups. `first_of_person` marks a person's first record in its group."""
        self._grow(int(groups.max(initial=-1)) + 1)
        width, line = len(self.values), self.values.T
        line[1] += np.bincount(groups, minlength=width)
        line[0] += np.bincount(groups if first_of_person is None else groups[first_of_person], minlength=width)
        for index, column in enumerate(self.sums):
            fine, is_missing = fine_values(values[column.name], column)
            line[2 + index] += np.bincount(groups, weights=fine, minlength=width).astype(np.int64)
            line[2 + len(self.sums) + index] += np.bincount(groups[is_missing], minlength=width)

    def resize(self, groups: int) -> None:
        """Keep one row for each of this number of groups, all that have records among them."""
        self._grow(groups)
        self.values = self.values[:groups]

    def _grow(self, groups: int) -> None:
        if groups > len(self.values):
            empty = np.zeros(
                (max(groups, 2 * len(self.values)) - len(self.values), self.values.shape[1]), dtype=np.int64
            )
            self.values = np.concatenate([self.values, empty])

    def weigh(self, chosen: Integers, weights: Weights) -> Integers:
        """Return the entries of groups with weights: people, records, sums and missing values."""
        count = len(self.sums)
        people = [chosen[:, :1] * weights.people] if weights.people else []
        parts = [*people, chosen[:, 1:2] * weights.records, _coarse(chosen[:, 2 : 2 + count], weights.sums)]
        return np.concatenate([*parts, chosen[:, 2 + count :] * weights.sums], axis=1)


def _coarse(fine: Integers, weight: int) -> Integers:
    """Return exact sums times a weight in units of 2**30, rounded down once, without overflow: proof: step 3."""
    rest: Integers = (fine & (2**FINE_BITS - 1)) * weight
    return (fine >> FINE_BITS) * weight + (rest >> FINE_BITS)


def fine_values(numbers: Floats, column: SummedColumn) -> tuple[Floats, NDArray[np.bool_]]:
    """Return values clipped and centred as whole numbers up to 2**30, and which are missing.

    A missing value of a closed column counts as the lower bound; of another column it adds nothing.
    """
    is_missing = np.isnan(numbers)
    if column.closed:
        numbers, is_missing = np.where(is_missing, column.low, numbers), np.zeros_like(is_missing)
    scaled = (
        np.clip(np.where(is_missing, column.middle, numbers), column.low, column.high) - column.middle
    ) / column.half
    return np.rint(np.clip(scaled, -1.0, 1.0) * 2.0**FINE_BITS), is_missing  # proof: step 3
