"""Decision stumps: one feature, one cut."""

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.checks import check_count, set_validated
from quorate.core.hypotheses.concept import (
    Concept,
    Constant,
    Dichotomies,
    Hypothesis,
    Labels,
    Mask,
    Points,
    cuts_between,
    mistakes_upward,
)
from quorate.models.concepts._thresholds import Threshold


@dataclass(frozen=True, kw_only=True)
class Stump(Hypothesis):
    """A stump: label 1 if one feature is at or above the cut and 0 below; reversed unless `upward`."""

    features: int
    feature: int
    cut: float
    upward: bool = True

    def _predict(self, points: Points) -> Any:
        return (points[:, self.feature] >= self.cut) == self.upward


@dataclass(frozen=True)
class Stumps(Concept):
    """All stumps over this many features, in both directions, and the two constants.

    With `binary` every feature is 0 or 1, which leaves far fewer stumps: growth and VC dimension are smaller. A row
    with any other value is left out.

    >>> Stumps(features=2).fit_erm([[5.0, 1.0], [5.0, 2.0], [5.0, 3.0]], [1, 0, 0])
    Stump(features=2, feature=1, cut=1.5, upward=False)
    """

    features: int
    binary: bool = False

    def __post_init__(self) -> None:
        set_validated(self, features=check_count("features", self.features), binary=bool(self.binary))

    @property
    def vc_dimension(self) -> int:
        """The largest d whose middle binomial coefficient is at most twice the number of features (Gey 2018).

        One feature cuts out at most two subsets of each size of a point set, one from above and one from below, and a
        shattered set has binomial(d, d // 2) subsets of its middle size. For binary features an upper bound: at most
        the logarithm of the number of stumps.
        """
        dimension = 1
        while math.comb(dimension + 1, (dimension + 1) // 2) <= 2 * self.features:
            dimension += 1
        return min(dimension, (2 * self.features + 2).bit_length() - 1) if self.binary else dimension

    @property
    def dual_vc_dimension(self) -> int:
        """The number of features: cuts on different axes cross, and with two on one axis some cell is empty."""
        return self.features

    def _growth(self, points: int) -> int:
        splits = self.features * (1 if self.binary else max(0, points - 1))
        return 1 if points == 0 else 2 + 2 * splits

    def _usable(self, points: Points) -> Mask:
        return ((points == 0) | (points == 1)).all(axis=1) if self.binary else super()._usable(points)

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Splits(points)


class _Splits(Dichotomies):
    """The constants, then each way in which a feature splits the points, upward and downward in turn.

    Two features that split the points alike count once, as the first of them.
    """

    def __init__(self, points: Points) -> None:
        self.features = points.shape[1]
        self._constants = min(2, len(points) + 1)
        self._splits = DistinctSplits(np.array(points.T, order="C"))  # a copy: the caller may change the points
        self._cuts, self._places = self._splits.new()
        self._starts = np.cumsum([0, *(cuts.size for cuts in self._cuts)])

    def __len__(self) -> int:
        return self._constants + 2 * int(self._starts[-1])

    def _candidate(self, index: int) -> Hypothesis:
        if index < self._constants:
            return Constant(features=self.features, label=index)
        split, downward = divmod(index - self._constants, 2)
        feature = int(np.searchsorted(self._starts, split, side="right")) - 1
        cut = float(self._cuts[feature][split - self._starts[feature]])
        return Stump(features=self.features, feature=feature, cut=cut, upward=not downward)

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        rows = len(labels)
        mistakes = np.empty(len(self), dtype=np.int32 if rows < 2**31 else np.int64)
        mistakes[: self._constants] = [np.count_nonzero(labels == 1), np.count_nonzero(labels == 0)][: self._constants]
        upward, downward = mistakes[self._constants :: 2], mistakes[self._constants + 1 :: 2]
        columns = np.ascontiguousarray(points.T)
        same = np.array_equal(columns, self._splits.columns)  # then their order is known
        for feature, cuts in enumerate(self._cuts):
            part = slice(self._starts[feature], self._starts[feature + 1])
            if same:
                lead = np.cumsum(2 * labels[self._splits.orders[feature]] - 1)
                upward[part] = lead[self._places[feature]] + np.count_nonzero(labels == 0)
            else:
                upward[part] = mistakes_upward(cuts, columns[feature], labels)
        np.subtract(rows, upward, out=downward)
        return mistakes


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
    """The cuts of each feature whose split of the rows no earlier feature makes.

    A split's hash is the sum of random words of the rows on the side without the first row. Equal sums are only
    a suspicion: each is confirmed on the rows themselves, and if two different splits share a sum, new words are
    drawn. So the result is exact, and does not depend on the words.
    """

    def __init__(self, columns: Points) -> None:
        self.columns, self._rows = columns, columns.shape[1]
        self.orders: list[NDArray[np.int32]] = []
        self._places: list[NDArray[np.int32]] = []  # positions in a feature's order that a cut follows
        self._cuts: list[NDArray[np.float64]] = []
        for column in columns:
            order = np.argsort(column)
            ordered = column[order]
            cut_rows = np.flatnonzero(ordered[1:] != ordered[:-1])
            self.orders.append(order.astype(np.int32))
            self._places.append(cut_rows.astype(np.int32))
            self._cuts.append(cuts_between(ordered[cut_rows], ordered[cut_rows + 1]))
        self._starts = np.cumsum([0, *(cuts.size for cuts in self._cuts)])

    def new(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int32]]]:
        """Return for each feature the cuts whose split is new, and the positions in its order that they follow."""
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
        return cuts, [cut_rows[new[part]] for cut_rows, part in zip(self._places, parts, strict=True)]

    def _marks(self) -> list[Marks]:
        """Return the sum of words of every split, feature by feature."""
        words = np.frombuffer(os.urandom(8 * self._rows), dtype=np.uint64)
        total, marks = words.sum(dtype=np.uint64), []
        for feature, (order, cut_rows) in enumerate(zip(self.orders, self._places, strict=True)):
            mark = np.cumsum(words[order], dtype=np.uint64)[cut_rows]
            turn = self._turn(feature)
            np.subtract(total, mark[turn:], out=mark[turn:])
            marks.append(mark)
        return marks

    def _turn(self, feature: int) -> int:
        """Return the first cut that has the first row below it: from there on the side without it is the upper one."""
        first = np.flatnonzero(self.orders[feature] == 0)
        return int(np.searchsorted(self._places[feature], first[0])) if first.size else 0

    def _runs(self, feature: int, marks: Marks) -> Iterator[_Run]:
        turn, cut_rows, start = self._turn(feature), self._places[feature], int(self._starts[feature])
        yield _Run(cut_rows[:turn] + 1, marks[:turn], start, 1)
        yield _Run((self._rows - 1 - cut_rows[turn:])[::-1], marks[turn:][::-1], start + cut_rows.size - 1, -1)

    def _copies(self, marks: list[Marks]) -> Iterator[int]:
        """Yield features that split the rows just as an earlier one does, in its order or in reverse."""
        earlier: dict[tuple[int, int], int] = {}
        for feature, cut_rows in enumerate(self._places):
            mixed = marks[feature] * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
            original = earlier.setdefault((cut_rows.size, int(mixed.sum(dtype=np.uint64))), feature)
            if original < feature and any(
                self._same(original, self._places[original], feature, order) for order in (cut_rows, cut_rows[::-1])
            ):
                yield feature

    def _where(self, splits: Integers) -> tuple[Integers, Integers]:
        """Return the feature and the position of splits, by their number over all features."""
        feature = np.searchsorted(self._starts, splits, side="right").astype(np.int64) - 1
        return feature, np.concatenate(self._places)[splits].astype(np.int64)

    def _confirmed(self, first: Integers, second: Integers) -> bool:
        if first.size == 0:
            return True
        (feature, here), (other, there) = self._where(first), self._where(second)
        feature_pairs = feature * len(self.orders) + other
        order = np.argsort(feature_pairs, kind="stable")
        for among in np.split(order, np.flatnonzero(np.diff(feature_pairs[order])) + 1):
            if not self._same(int(feature[among[0]]), here[among], int(other[among[0]]), there[among]):
                return False
        return True

    def _same(self, feature: int, here: Places, other: int, there: Places) -> bool:
        """Return whether the rows up to `here` in one feature are those up to `there` in the other, or the rest."""
        rank = np.empty(self._rows, dtype=np.int32)
        rank[self.orders[other]] = np.arange(self._rows)
        met = rank[self.orders[feature]]
        highest, lowest = np.maximum.accumulate(met)[here], np.minimum.accumulate(met)[here]
        alike = (here == there) & (highest <= there)
        opposite = (here + there == self._rows - 2) & (lowest > there)
        return bool((alike | opposite).all())


def _suspects(runs: list[_Run], rows: int) -> tuple[Integers, Integers]:
    """Return pairs of splits with equal hashes: each later split of a group with its predecessor.

    Equal splits have sides of equal size, so sizes are processed in small batches to save memory.
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


Condition = Callable[[int, float], str]  # a feature and a cut, as "age >= 40"


def named_condition(names: Sequence[Any] | None) -> Condition:
    """Return the function that formats a condition on a feature, by its name or by its number."""
    return lambda feature, cut: f"{f'feature {feature}' if names is None else names[feature]} >= {cut:.6g}"


def rule_text(hypothesis: Hypothesis, classes: Sequence[Any], condition: Condition) -> str:
    """Return a threshold, stump or constant as a sentence with its class names; return other hypotheses as their repr.

    >>> rule_text(Threshold(1.5, upward=False), ["no", "yes"], named_condition(["age"]))
    'no where age >= 1.5, and yes elsewhere'
    >>> rule_text(Threshold(-math.inf), ["no", "yes"], named_condition(["age"]))
    'always yes'
    """
    if isinstance(hypothesis, Constant):
        return f"always {classes[hypothesis.label]}"
    if not isinstance(hypothesis, Threshold | Stump):
        return repr(hypothesis)
    feature = hypothesis.feature if isinstance(hypothesis, Stump) else 0
    above, below = (classes[1], classes[0]) if hypothesis.upward else (classes[0], classes[1])
    if math.isinf(hypothesis.cut):
        return f"always {above if hypothesis.cut < 0 else below}"
    return f"{above} where {condition(feature, hypothesis.cut)}, and {below} elsewhere"
