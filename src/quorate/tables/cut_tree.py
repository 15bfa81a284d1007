"""Cells of one private column of numbers or dates, refined stage by stage where noisy counts show many units.

The first cells are public: powers of two of both signs from 2**-40 to 2**50 and 0, or decades of dates. Each stage
counts the units in all present cells, and those without a number. What is known of the counts is then made consistent
(a cell has what its parts have, all have the public number of units, nothing is below 0), and cells that seem to hold
many units are divided for the next stage. A cell that is not divided is counted again, so no stage is lost for it.

A unit is in one cell of a stage, or has no number. Replacing it moves two counts by 1: PROOF.md, step 3. All
else is post-processing of noisy counts. Floats are divided in their order as whole numbers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers

NEXT_TO_0 = 5e-324
_DIGITS = 17  # of a decimal: as many tell any two floats apart
_TOP = np.uint64(2**63)

Keys = NDArray[np.uint64]


def keys_of_numbers(values: Floats) -> Keys:
    """Return whole numbers in the order of the values, without non-numbers."""
    bits = (values[~np.isnan(values)] + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))).view(np.uint64) ^ _TOP


def number_of_key(key: int) -> float:
    """Return the number of a key."""
    bits = np.array([key], dtype=np.uint64) ^ _TOP
    signed = bits.view(np.int64)
    return float((signed ^ ((signed >> 63) & np.int64(2**63 - 1))).view(np.float64)[0])


def halve_range(low: float, high: float) -> float:
    """Return the end that divides a range between two finite floats into halves with as many floats each.

    Between two powers of two the halves have one width. It is `low` itself for two neighbouring floats.
    """
    return number_of_key((_key(low) + _key(high)) // 2)


def shortest_decimal(low: float, width: float) -> float:
    """Return the number of fewest decimals that is not below `low` and less than `width` above it.

    The number next to 0 stays, so that 0 has a cell of its own.
    """
    if not math.isfinite(low) or low == NEXT_TO_0:
        return low
    with localcontext(Context()):  # not the caller's, which may have fewer digits, or raise where some are lost
        lower, upper = Decimal(repr(low)), Decimal(repr(low)) + Decimal(width)
        first = max(lower.adjusted(), upper.adjusted()) + 1
        for index in range(first, first - _DIGITS, -1):
            number = lower.scaleb(-index).to_integral_value(ROUND_CEILING).scaleb(index)
            if number < upper:
                return float(number) + 0.0  # -0.0 becomes 0.0
    return low


_HALVINGS = 7  # After each stage but the last, cells of many units are divided into halves.
STAGES = _HALVINGS + 1
_POWERS = (-40, -10, -4, 0, 4, 8, 12, 16, 20, 24, 32, 50)
_YEARS = (1800, 1900, 1940, 1960, 1970, 1980, 1990, 2000, 2005, 2010, 2015, 2020, 2025, 2030, 2050, 2100)
_DIVIDED_SHARE = 0.05  # of the units that share no value with many: a cell with more is divided
_SHARED = 0.2  # of the units: as many share a value if a cell of one value has more
_MOST_DIVIDED = 20  # cells of a stage
_LEAST_STAGES = 2  # also of a column that has no cell to divide: its counts would else be those of one stage
_EVEN_CELLS = 8  # between the declared ends of a column, beside the powers of two among them
_CLEAR = 2.0  # deviations of the noise that a cell must hold to be divided
_CLEAR_END = 2.5  # deviations of the noise, by which the numbers beyond an end stand out
_CLEAR_FIRST = 4.0  # the same of the first cells, where no ends are declared: a false one may be far from all numbers
_GROWTH = 1.25  # from one such cut to the next: with less the tail is not heavy
_LAST_NARROW = 1.05  # times the last cut: a cell that ends further off tells nothing of where the numbers end
_TAIL_CUTS = 4  # beyond the last share of `_QUANTILES`, each at half of what the one before leaves
_CLEAR_TAIL = 6.0  # deviations of the noise that are left beyond such a cut
_OWN_CELL_SHARE = 0.08  # of the numbers: a cell with more keeps both of its ends as cuts
_NARROW = 1 / 32  # The relative width of a cell whose units seem to share one number.
_FIRST_SHARE, _LAST_SHARE = 0.02, 0.98  # of the numbers, at which they are cut
USUAL_PARTS = 10  # of equal size into which numbers are cut at least
_CLEAR_PART = 8.0  # deviations of the noise that each of more parts holds
_FARTHEST_SHARE = 0.004  # one more cut on either side, between declared ends
_CLEAR_FARTHEST = 2.0  # deviations of the noise that lie beyond such a cut
_BELOW = 1 / 4  # of the width of a narrow cell, by which its lower end is moved to a number of fewer decimals
_TOLERANCE = 0.01  # of rank, by which a cut is moved to a number of fewer decimals
_ROUNDED_UP = 1 + 1e-9  # so that a share at the end of a cell is not taken for the last of that cell by rounding
_MOST_WHOLE = 64  # whole numbers of a cell up to which each of them is taken for as frequent as the others


@dataclass(frozen=True)
class NumberMarginal:
    """Cuts of a column and the noisy number of units in the cells that they leave, both beyond the ends included."""

    cuts: tuple[float, ...]
    counts: tuple[float, ...]
    means: tuple[float, ...]  # of the numbers between two cuts, as far as finer cells tell
    missing: float
    scale: float  # of the noise of one count


@dataclass(eq=False)
class _Cell:
    """A range [low, high) of numbers, with what noisy counts say of it."""

    low: float
    high: float
    parts: "list[_Cell]" = field(default_factory=list)
    weighted: float = 0.0  # noisy counts over their variances
    precision: float = 0.0
    estimate: float = 0.0
    variance: float = math.inf
    units: float = 0.0

    def leaves(self) -> "Iterator[_Cell]":
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


def most_cells() -> int:
    """Return how many counts a column has at most in one stage, a public number."""
    return 2 * len(_POWERS) + len(_YEARS) + _EVEN_CELLS + 5 + _MOST_DIVIDED * _HALVINGS


class CutTree:
    """The cells of one column: public and noisy values alone.

    Numbers are cut near the deciles, or into as many as `most_parts` parts of equal size that stand out of the noise.
    With `most_cells`, cuts leave at most so many cells between both ends of the numbers, for a release of marginals.
    With declared `ends`, the first cells are between these.

    >>> values = np.random.default_rng(0).normal(size=20_000)
    >>> tree = CutTree(units=20_000)
    >>> while tree.is_open:
    ...     tree.update(tree.count(values).astype(float), scale=1.0)
    >>> [round(cut, 2) for cut in tree.marginal().cuts]
    [-3.0, -1.3, -0.87, -0.5, -0.28, 0.0, 0.24, 0.52, 0.82, 1.3, 2.0]
    """

    def __init__(
        self,
        units: int,
        *,
        is_whole: bool = False,
        is_date: bool = False,
        most_cells: int | None = None,
        most_parts: int = USUAL_PARTS,
        ends: tuple[float, float] | None = None,
    ) -> None:
        self._units, self._is_whole, self.is_date, self._most_cells = units, is_whole, is_date, most_cells
        self._most_parts = most_parts
        first = _first_ends(is_whole=is_whole, is_date=is_date)
        self._has_ends = ends is not None
        first = first if ends is None else _first_ends_between(*ends, first, is_whole=is_whole)
        self._numbers = [_Cell(low, high) for low, high in pairwise([-math.inf, *first, math.inf])]
        self._missing = _Cell(math.nan, math.nan)
        self._root = _Cell(-math.inf, math.inf, parts=[*self._numbers, self._missing])
        self._precision, self._stage, self.is_open = 0.0, 0, True

    @property
    def squared_sensitivity(self) -> int:
        """The squared length by which a replaced unit moves the counts of the next stage, 0 if there is none."""
        return 2 if self.is_open else 0  # proof: step 3

    @property
    def entries(self) -> int:
        """How many counts the next stage has."""
        return len(self._leaves()) + 1

    def count(self, values: Floats) -> Integers:
        """Return how many of the private numbers are in each cell, and how many values are none."""
        if not self.is_open:
            return np.zeros(0, dtype=np.int64)
        numbers = values[~np.isnan(values)]
        inner = np.array([cell.low for cell in self._leaves()[1:]])
        cells = np.searchsorted(inner, numbers, side="right")
        counts = np.bincount(cells, minlength=len(inner) + 1).astype(np.int64)
        return np.append(counts, len(values) - len(numbers)).astype(np.int64)

    def update(self, noisy: Floats, scale: float) -> None:
        """Take the noisy counts of a stage, and divide the cells that hold many units."""
        if not self.is_open:
            return
        for cell, count in zip([*self._leaves(), self._missing], noisy.tolist(), strict=True):
            cell.weighted += count / scale**2
            cell.precision += 1 / scale**2
        self._precision += 1 / scale**2
        _combine(self._root)
        _distribute(self._root, float(self._units))
        self.is_open = self._stage < _HALVINGS and self._divide(scale)
        self._stage += 1

    def _divide(self, scale: float) -> bool:
        """Divide the cells of many units into halves, and return whether there are any."""
        middles = {cell: self._middle_of(cell) for cell in self._leaves()}
        shared = sum(
            cell.units for cell, middle in middles.items() if middle is None and cell.units > _SHARED * self._units
        )
        minimum = max(_DIVIDED_SHARE * (self._units - shared), _CLEAR * scale)
        heavy = [(cell, middle) for cell, middle in middles.items() if middle is not None and cell.units > minimum]
        for cell, middle in sorted(heavy, key=lambda pair: -pair[0].units)[:_MOST_DIVIDED]:
            cell.parts = [_Cell(cell.low, middle), _Cell(middle, cell.high)]
        return bool(heavy) or self._stage + 1 < _LEAST_STAGES

    def _middle_of(self, cell: _Cell) -> float | None:
        """Return the end that divides a cell into halves, or None if it is not divided."""
        if not (math.isfinite(cell.low) and math.isfinite(cell.high)):
            return None
        middle = (cell.low + cell.high) / 2 if self.is_date else halve_range(cell.low, cell.high)
        if self._is_whole:  # A half without a whole number would be empty.
            middle = float(np.ceil(middle))
            return middle if np.ceil(cell.low) < middle <= _last_below(cell.high, is_whole=True) else None
        return middle if cell.low < middle < cell.high else None

    def _leaves(self) -> list[_Cell]:
        return [leaf for cell in self._numbers for leaf in cell.leaves()]

    def marginal(self, cuts: Sequence[float] = ()) -> NumberMarginal:
        """Return the units between these cuts.

        Without any, cuts are near quantiles, and frequent values have cells of their own.
        """
        scale = self._precision**-0.5
        cells = _without_noisy_ends(self._numbers, scale, clear=_CLEAR_END if self._has_ends else _CLEAR_FIRST)
        line = _Line(cells, is_whole=self._is_whole, is_date=self.is_date)
        if not line.cells or line.total <= _CLEAR_END * scale:
            return NumberMarginal((), (), (), self._missing.units, scale)
        cuts = cuts or self._cuts(line, scale)
        below = [line.units_below(cut) for cut in cuts]
        counts = np.diff([0.0, *below, line.total])
        means = tuple(line.mean_between(low, high) for low, high in pairwise(cuts))
        return NumberMarginal(tuple(cuts), tuple(counts.tolist()), means, self._missing.units, scale)

    def _parts(self, line: "_Line", scale: float) -> int:
        """Return into how many parts numbers are cut: more than the usual ones stand out of the noise."""
        return max(min(self._most_parts, int(line.total / (_CLEAR_PART * scale))), USUAL_PARTS)

    def _cuts(self, line: "_Line", scale: float) -> list[float]:
        is_free = self._is_whole and self._most_cells is None
        every = line.whole_numbers(self._parts(line, scale)) if is_free else []
        return every or self._spread_cuts(line, scale)

    def _spread_cuts(self, line: "_Line", scale: float) -> list[float]:
        """Return cuts between parts and around frequent values."""
        cuts = self._even_cuts(line, scale)
        for cell in line.cells:
            if cell.units >= _OWN_CELL_SHARE * line.total:
                cuts |= {line.cut_before(cell), cell.high}
        if self._is_whole:
            cuts = {float(np.ceil(cut)) for cut in cuts if math.isfinite(cut)}
        chosen = sorted({cut + 0.0 for cut in cuts if math.isfinite(cut)})
        if self._most_cells is not None:
            self._drop_cuts(chosen, line, self._most_cells + 1)
        return chosen if len(chosen) != 1 else [chosen[0], chosen[0] + max(1.0, abs(chosen[0]) * 2.0**-20)]

    @staticmethod
    def _drop_cuts(cuts: list[float], line: "_Line", number: int) -> None:
        """Remove cuts down to this number, each time the cut between the two cells with the fewest units."""
        while len(cuts) > number:
            below = [line.units_below(cut) for cut in cuts]
            pairs = [upper - lower for lower, upper in zip(below, below[2:], strict=False)]
            del cuts[int(np.argmin(pairs)) + 1]

    def _even_cuts(self, line: "_Line", scale: float) -> set[float]:
        """Return cuts between parts; with `most_cells`, near so many shares, and ever further out in the tail."""
        first, last = _FIRST_SHARE, _LAST_SHARE
        if self._most_cells is None:
            parts = self._parts(line, scale)
            beyond = max(_FARTHEST_SHARE, _CLEAR_FARTHEST * scale / line.total)
            farthest = (beyond, 1 - beyond) if self._has_ends and 2 * beyond <= first else ()
            return {line.cut_near(share) for share in (first, *(k / parts for k in range(1, parts)), last, *farthest)}
        tail = self._tail_shares(line, scale)
        inner = max(self._most_cells - len(tail), 2)
        shares = [first, *(index / inner for index in range(1, inner)), last, *tail]
        cuts, cell = {line.cut_near(share) for share in shares}, line.cell_at(last)
        is_end = cell.high <= _LAST_NARROW * abs(line.cut_near(last)) or _whole_ends(cell) is not None
        return cuts | {cell.high} if self.is_date or is_end else cuts

    def _tail_shares(self, line: "_Line", scale: float) -> list[float]:
        """Return shares beyond `_LAST_SHARE`, while the noise allows and numbers grow by much."""
        shares, last = list[float](), _LAST_SHARE
        while len(shares) < _TAIL_CUTS and not self.is_date:
            share, cut = (1.0 + last) / 2.0, line.cut_near(last)
            if (1.0 - share) * line.total < _CLEAR_TAIL * scale or not 0.0 < _GROWTH * cut < line.cut_near(share):
                break
            shares.append(last := share)
        return shares


Lines = Sequence[Floats]  # of private numbers, one for each column
Count = Callable[[Callable[[Lines], Integers], int], Integers]  # sums what a function says of the lines of all blocks

# A paid release: it adds noise to counts of a keyword `squared_sensitivity`, and returns the scale of the noise too.
Draw = Callable[..., tuple[Any, float]]


def grow_trees(trees: Sequence[CutTree], count: Lines | Count, draw: Draw) -> None:
    """Count the private numbers of all columns whose trees are open, stage by stage, until none is.

    `count` has the numbers of each column, or adds up what a function returns for those of each block of units. All
    that depends on the numbers comes from `draw`.
    """
    while growing := [(place, tree) for place, tree in enumerate(trees) if tree.is_open]:
        add = partial(_count_lines, growing)
        sizes = [tree.entries for _, tree in growing]
        counts = count(add, sum(sizes)) if callable(count) else add(count)
        square = sum(tree.squared_sensitivity for _, tree in growing)
        noisy, scale = draw(counts, squared_sensitivity=square)  # proof: step 3
        for (_, tree), part in zip(growing, np.split(noisy, np.cumsum(sizes)[:-1]), strict=True):
            tree.update(part, scale)


def _count_lines(growing: Sequence[tuple[int, CutTree]], lines: Lines) -> Integers:
    return np.concatenate([tree.count(lines[place]) for place, tree in growing])


class _Line:
    """The cells of a column in their order, and the shares of units below a value."""

    def __init__(self, cells: Sequence[_Cell], *, is_whole: bool, is_date: bool) -> None:
        self.cells, self._is_whole, self._is_date = cells, is_whole, is_date
        self._below = np.cumsum([0.0, *(cell.units for cell in self.cells)])
        self.total = float(self._below[-1])

    def cut_near(self, share: float) -> float:
        """Return the number of fewest decimals that about this share of the numbers is below."""
        low, high = (self._quantile(min(max(share + off, 0.0), 1.0)) for off in (-_TOLERANCE, _TOLERANCE))
        if not (math.isfinite(low) and math.isfinite(high)):
            return self._quantile(share)
        if high - low <= (2.0 if self._is_whole else 0.0):
            return self._quantile(share)
        return shortest_decimal(low, high - low)

    def cell_at(self, share: float) -> _Cell:
        """Return the cell in which this share of the numbers is reached; the next one if a cell ends just there."""
        index = int(np.searchsorted(self._below, share * self.total * _ROUNDED_UP, side="right")) - 1
        return self.cells[min(max(index, 0), len(self.cells) - 1)]

    def whole_numbers(self, most: int) -> list[float]:
        """Return all whole numbers from the first cell to the last one, or none if they are one alone or too many."""
        first, last = np.ceil(self.cells[0].low), _last_below(self.cells[-1].high, is_whole=True)
        return np.arange(first, last + 1).tolist() if 0 < last - first < most else []

    def _quantile(self, share: float) -> float:
        cell = self.cell_at(share)
        below = float(self._below[self.cells.index(cell)])
        return self._inside(cell, (share * self.total - below) / max(cell.units, 1e-300))

    def cut_before(self, cell: _Cell) -> float:
        """Return a number of few decimals at the lower end of a cell of many units, or a little below it."""
        width = cell.high - cell.low
        if not math.isfinite(width) or width > abs(cell.low) * _NARROW or _whole_ends(cell) is not None:
            return cell.low
        short = shortest_decimal(cell.low - width * _BELOW, width * _BELOW)
        return short if short <= cell.low else cell.low

    def frequent_value(self, cell: _Cell) -> float:
        """Return the number that many units of a narrow cell seem to share: that of fewest decimals."""
        width = cell.high - cell.low
        if not math.isfinite(width) or width > abs(cell.low) * _NARROW or _whole_ends(cell) is not None:
            return cell.low
        return shortest_decimal(cell.low, width)

    def units_below(self, value: float) -> float:
        """Return how many units are below a value, with those of its cell spread over the cell."""
        below = 0.0
        for cell in self.cells:
            if cell.high <= value:
                below += cell.units
            elif cell.low < value:
                below += cell.units * self._share_below(cell, value)
        return below

    def mean_between(self, low: float, high: float) -> float:
        """Return the mean of the numbers from one cut to the next, where each finer cell is taken to be even."""
        total, units = 0.0, 0.0
        for cell in self.cells:
            first, last = max(cell.low, low), min(cell.high, high)
            if first < last:
                inside = self.units_below(last) - self.units_below(first)
                total, units = total + inside * self._middle(cell, first, last), units + inside
        return min(max(total / units, low), high) if units > 0 else self._middle(None, low, high)

    def _middle(self, cell: _Cell | None, low: float, high: float) -> float:
        if cell is not None and cell.units >= _OWN_CELL_SHARE * self.total:
            shared = self.frequent_value(cell)
            if cell.low < shared < high:
                return max(shared, low)
        if not self._is_date and low >= 1 and high > 2 * low:
            return (high - low) / math.log(high / low)  # as many numbers between any two powers of two
        if self._is_whole:
            return (math.ceil(low) + max(math.ceil(high) - 1.0, math.ceil(low))) / 2
        return (low + high) / 2

    def _inside(self, cell: _Cell, share: float) -> float:
        """Return the number that this share of a cell is below."""
        share = min(max(share, 0.0), 1.0)
        ends = _whole_ends(cell) if self._is_whole else None
        if ends is not None:
            return min(ends[0] + math.floor(share * (ends[1] - ends[0] + 1)), ends[1])
        if not (math.isfinite(cell.low) and math.isfinite(cell.high)):
            return cell.high if math.isinf(cell.low) else cell.low
        if cell.units >= _OWN_CELL_SHARE * self.total and (shared := self.frequent_value(cell)) > cell.low:
            return shared
        if self._is_date:
            return cell.low + share * (cell.high - cell.low)
        first, last = (_key(end) for end in (cell.low, cell.high))
        number = number_of_key(first + int(share * (last - 1 - first)))
        return float(np.round(number)) if self._is_whole else number

    def _share_below(self, cell: _Cell, value: float) -> float:
        """Return which share of a cell is below a value inside it."""
        ends = _whole_ends(cell) if self._is_whole else None
        if ends is not None:
            return min(max((math.ceil(value) - ends[0]) / (ends[1] - ends[0] + 1), 0.0), 1.0)
        if not (math.isfinite(cell.low) and math.isfinite(cell.high)):
            return 0.5
        if self._is_date:
            return (value - cell.low) / (cell.high - cell.low)
        first, last, key = (_key(end) for end in (cell.low, cell.high, value))
        return (key - first) / max(last - first, 1)


def _without_noisy_ends(first: Sequence[_Cell], noise: float, *, clear: float) -> list[_Cell]:
    """Return the leaves of the first cells without those at either end that noise may have filled.

    `clear` is how many deviations of the noise the units beyond an end of the first cells must exceed.

    Unbiased estimates of the first cells are added up from an end on: units, which are not below 0, would add up where
    there is nothing but noise.
    """
    rising = clear * noise * np.sqrt(np.arange(1, len(first) + 1))
    cells = [leaf for cell in _trim(first, [cell.estimate for cell in first], rising) for leaf in cell.leaves()]
    return _trim(cells, [cell.units for cell in cells], np.full(len(cells), _CLEAR_END * noise))


def _trim(cells: Sequence[_Cell], counts: Sequence[float], minimum: Floats) -> list[_Cell]:
    """Return the cells without those at either end whose counts, added up from there on, do not exceed a minimum."""
    sums = np.cumsum(counts), np.cumsum(counts[::-1])
    above, below = (np.maximum.accumulate(line > minimum) for line in sums)
    return [cell for cell, keep in zip(cells, above & below[::-1], strict=True) if keep]


def _key(number: float) -> int:
    return int(keys_of_numbers(np.array([number]))[0])


def _first_ends(*, is_whole: bool, is_date: bool) -> list[float]:
    if is_date:
        return [float((date(year, 1, 1) - date(1970, 1, 1)).days) for year in _YEARS]
    powers = [2.0**power for power in _POWERS if power >= 0 or not is_whole]
    return [*(-power for power in reversed(powers)), 0.0, *([] if is_whole else [NEXT_TO_0]), *powers]


def _first_ends_between(low: float, high: float, ends: Sequence[float], *, is_whole: bool) -> list[float]:
    """Return the first ends of cells between declared ends: those of any column that are among them, and even ones."""
    even = np.linspace(low, high, _EVEN_CELLS + 1)
    inner = {float(end) + 0.0 for end in (np.ceil(even) if is_whole else even)}
    return sorted(end for end in {*inner, *ends, low, high} if low <= end <= high)


def _combine(cell: _Cell) -> None:
    """Combine the counts of a cell with those of its parts, from the leaves on: least squares."""
    if not cell.parts:
        cell.variance = 1 / cell.precision if cell.precision else math.inf
        cell.estimate = cell.weighted / cell.precision if cell.precision else 0.0
        return
    for part in cell.parts:
        _combine(part)
    variance = sum(part.variance for part in cell.parts)
    precision = cell.precision + 1 / variance
    cell.estimate = (cell.weighted + sum(part.estimate for part in cell.parts) / variance) / precision
    cell.variance = 1 / precision


def _distribute(cell: _Cell, units: float) -> None:
    """Divide the units of a cell among its parts: the nearest numbers to the estimates that are not below 0."""
    cell.units = units
    if not cell.parts:
        return
    estimates = np.array([part.estimate for part in cell.parts])
    variances = np.array([part.variance for part in cell.parts])
    active = np.ones(len(estimates), dtype=np.bool_)
    shares = estimates
    while True:
        over = (estimates[active].sum() - units) / variances[active].sum()
        shares = np.where(active, estimates - over * variances, 0.0)
        if (shares[active] >= 0.0).all():
            break
        active &= shares > 0.0
        if not active.any():
            shares = np.full(len(estimates), units / len(estimates))
            break
    for part, share in zip(cell.parts, np.maximum(shares, 0.0).tolist(), strict=True):
        _distribute(part, share)


def _last_below(high: float, *, is_whole: bool) -> float:
    """Return the largest number below an end, or the largest whole one."""
    return math.ceil(high) - 1.0 if is_whole and math.isfinite(high) else float(np.nextafter(high, -math.inf))


def _whole_ends(cell: _Cell) -> tuple[float, float] | None:
    """Return the first and the last whole number of a cell that has a few."""
    if not (math.isfinite(cell.low) and math.isfinite(cell.high)):
        return None
    first, last = float(np.ceil(cell.low)), _last_below(cell.high, is_whole=True)
    return (first, last) if 0 <= last - first < _MOST_WHOLE else None
