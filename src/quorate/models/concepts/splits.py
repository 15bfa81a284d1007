"""The different ways in which features split rows in two at a cut."""

import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.hypotheses.line import cuts_between
from quorate.core.hypotheses.points import Points

_AT_ONCE = 2**17  # marks sorted together: they fit the cache

Places = NDArray[np.integer[Any]]
Marks = NDArray[np.uint64]


class _Run(NamedTuple):
    """Splits of one feature by the size of the side without the first row, in rising order."""

    sizes: Places
    marks: Marks
    start: int  # the number of the first of them; the next ones follow in steps
    step: int

    def numbers(self, part: slice) -> Integers:
        return self.start + self.step * np.arange(part.start, part.stop)


class DistinctSplits:
    """Which cuts split the rows in a way that no earlier feature does, for columns of values.

    A split is known by the sum of random words of the rows on the side without the first row. Equal sums are only
    a suspicion: each is confirmed on the rows themselves, and if two different splits share a sum, new words are
    drawn. So the result is exact, and does not depend on the words.
    """

    def __init__(self, columns: Points) -> None:
        self.columns, self._rows = columns, columns.shape[1]
        self.orders: list[NDArray[np.int32]] = []
        self._places: list[NDArray[np.int32]] = []  # in the order of a feature, after which there is a cut
        self._cuts: list[NDArray[np.float64]] = []
        for column in columns:
            order = np.argsort(column)
            ordered = column[order]
            places = np.flatnonzero(ordered[1:] != ordered[:-1])
            self.orders.append(order.astype(np.int32))
            self._places.append(places.astype(np.int32))
            self._cuts.append(cuts_between(ordered[places], ordered[places + 1]))
        self._starts = np.cumsum([0, *(cuts.size for cuts in self._cuts)])

    def new(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int32]]]:
        """Return for each feature the cuts whose split is new, and the places in its order that they come after."""
        parts = [slice(start, end) for start, end in itertools.pairwise(self._starts)]
        while True:
            marks, runs = self._marks(), list[_Run]()
            new, copies = np.ones(self._starts[-1], dtype=np.bool_), set(self._copies(marks))
            for feature, part in enumerate(parts):
                if feature in copies:
                    new[part] = False
                else:
                    runs += self._runs(feature, marks[feature])
            first, second = _suspects(runs, self._rows)
            if self._confirmed(first, second):
                break
        new[second] = False
        cuts = [cuts[new[part]] for cuts, part in zip(self._cuts, parts, strict=True)]
        return cuts, [places[new[part]] for places, part in zip(self._places, parts, strict=True)]

    def _marks(self) -> list[Marks]:
        """Return the sum of words of every split, feature by feature."""
        words = np.frombuffer(os.urandom(8 * self._rows), dtype=np.uint64)
        total, marks = words.sum(dtype=np.uint64), []
        for feature, (order, places) in enumerate(zip(self.orders, self._places, strict=True)):
            mark = np.cumsum(words[order], dtype=np.uint64)[places]
            turn = self._turn(feature)
            np.subtract(total, mark[turn:], out=mark[turn:])
            marks.append(mark)
        return marks

    def _turn(self, feature: int) -> int:
        """Return the first cut that has the first row below it: from there on the side without it is the upper one."""
        first = np.flatnonzero(self.orders[feature] == 0)
        return int(np.searchsorted(self._places[feature], first[0])) if first.size else 0

    def _runs(self, feature: int, marks: Marks) -> Iterator[_Run]:
        turn, places, start = self._turn(feature), self._places[feature], int(self._starts[feature])
        yield _Run(places[:turn] + 1, marks[:turn], start, 1)
        yield _Run((self._rows - 1 - places[turn:])[::-1], marks[turn:][::-1], start + places.size - 1, -1)

    def _copies(self, marks: list[Marks]) -> Iterator[int]:
        """Yield features that split the rows just as an earlier one does, in its order or in reverse."""
        earlier: dict[tuple[int, int], int] = {}
        for feature, places in enumerate(self._places):
            mixed = marks[feature] * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
            known = earlier.setdefault((places.size, int(mixed.sum(dtype=np.uint64))), feature)
            if known < feature and any(
                self._same(known, self._places[known], feature, order) for order in (places, places[::-1])
            ):
                yield feature

    def _where(self, splits: Integers) -> tuple[Integers, Integers]:
        """Return the feature and the place of splits that are numbered through."""
        feature = np.searchsorted(self._starts, splits, side="right").astype(np.int64) - 1
        return feature, np.concatenate(self._places)[splits].astype(np.int64)

    def _confirmed(self, first: Integers, second: Integers) -> bool:
        """Return whether each pair is the same split of the rows."""
        if first.size == 0:
            return True
        (one, here), (other, there) = self._where(first), self._where(second)
        both = one * len(self.orders) + other
        order = np.argsort(both, kind="stable")
        for among in np.split(order, np.flatnonzero(np.diff(both[order])) + 1):
            if not self._same(int(one[among[0]]), here[among], int(other[among[0]]), there[among]):
                return False
        return True

    def _same(self, one: int, here: Places, other: int, there: Places) -> bool:
        """Return whether the rows up to each place `here` are those up to `there` in the other feature, or the rest."""
        rank = np.empty(self._rows, dtype=np.int32)
        rank[self.orders[other]] = np.arange(self._rows)
        met = rank[self.orders[one]]
        highest, lowest = np.maximum.accumulate(met)[here], np.minimum.accumulate(met)[here]
        alike = (here == there) & (highest <= there)
        opposite = (here + there == self._rows - 2) & (lowest > there)
        return bool((alike | opposite).all())


def _suspects(runs: list[_Run], rows: int) -> tuple[Integers, Integers]:
    """Return pairs of splits that share their mark: each split but the first of its kind, after the one before.

    Equal splits have sides of equal size, so a few sizes are looked at together, and not all splits at once.
    """
    nothing = np.empty(0, dtype=np.int64)
    first, second = [nothing], [nothing]
    total = sum(run.marks.size for run in runs)
    width = max(1, _AT_ONCE * rows // max(1, total))
    edges = np.arange(1, rows + width, width)
    ends = [np.searchsorted(run.sizes, edges) for run in runs]
    for block in range(edges.size - 1):
        parts = [slice(end[block], end[block + 1]) for end in ends]
        marks = np.concatenate([run.marks[part] for run, part in zip(runs, parts, strict=True)])
        ordered = np.sort(marks)
        if not (ordered[1:] == ordered[:-1]).any():
            continue
        numbers = np.concatenate([run.numbers(part) for run, part in zip(runs, parts, strict=True)])
        order = np.lexsort((numbers, marks))  # equal marks side by side, in the order of features
        again = np.flatnonzero(marks[order][1:] == marks[order][:-1])
        first.append(numbers[order][again])
        second.append(numbers[order][again + 1])
    return np.concatenate(first), np.concatenate(second)
