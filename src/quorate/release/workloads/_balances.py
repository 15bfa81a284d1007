"""Numeric columns under orders and totals: their possible cells, and values that satisfy the constraints.

Numbers are counted in whole units of a power of 2, so that sums are exact. A column whose cuts are all whole numbers
holds whole numbers. Bounds are tightened until nothing more follows from any one of the orders and totals; then columns
are drawn one after the other, each within what the others leave, and bounds tightened again. For a chain of orders, or
one total, that never fails. Where several are entangled it may, and is tried again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.queries.marginals import Truths
from quorate.release.workloads._expressions import Balance
from quorate.tables.cells import DateCells, NumberCells

_MOST_CELLS = 1_000_000  # of the columns that are tied together
_FINER = 10  # a cell has at least 2**10 units
_LARGEST, _ENDLESS = 2**50, 2**55  # units of a number; stands for a missing end
_MOST_FACTORS = 32  # of one order or total: with them, sums of ends stay below 2**63
_ROUNDS, _TRIES = 60, 10  # of tightening, and of drawing


@dataclass(frozen=True)
class Tied:
    """An order or a total, and the cells of other columns where it applies; without such columns it always applies."""

    balance: Balance
    conditions: tuple[int, ...]
    active: Truths  # over the cells of the columns of the condition

    def is_binding(self, codes: Integers) -> Truths:
        """Return the mask of records to which it applies."""
        return np.asarray(self.active[tuple(codes[:, column] for column in self.conditions)])


def holds_whole_numbers(cells: NumberCells) -> bool:
    """Return whether all cuts of a column are whole numbers, so that its values are."""
    return all(cut.is_integer() for cut in cells.values)


class Balances:
    """Orders and totals that share columns: `columns` are the numeric ones, `members` also those of the conditions."""

    def __init__(self, tied: Sequence[Tied], cells: Mapping[str, NumberCells], numbers: Mapping[str, int]) -> None:
        self.tied = tuple(tied)
        self.names = tuple(dict.fromkeys(name for tie in tied for name, _ in tie.balance.factors))
        self.columns = tuple(numbers[name] for name in self.names)
        self.members = tuple(sorted({*self.columns, *(column for tie in tied for column in tie.conditions)}))
        self._cells = [cells[name] for name in self.names]
        self._whole = [holds_whole_numbers(cells_of_column) for cells_of_column in self._cells]
        self._power = self._finest()
        self._steps = np.array([2**self._power if is_whole else 1 for is_whole in self._whole])
        self._ends = list(map(self._ends_of, self._cells, self._steps.tolist()))
        self._limits = [row for tie in tied for row in self._rows(tie)]

    def _finest(self) -> int:
        """Return the power of 2 by which units are smaller than 1."""
        widths = [
            float(np.diff(column.values).min()) if len(column.values) > 1 else 1.0
            for column, is_whole in zip(self._cells, self._whole, strict=True)
            if not is_whole
        ]
        return max(0, _FINER - math.floor(math.log2(min(widths)))) if widths else 0

    def _ends_of(self, cells: NumberCells, step: int) -> Integers:
        """Return the ends of each cell, and those within which values usually lie, in units: four rows."""
        cuts = [math.ceil(cut * 2**self._power / step) * step for cut in cells.values]
        if any(abs(cut) > _LARGEST for cut in cuts):
            raise Infeasible("the numbers of a constraint are too far apart to be added up exactly; move the cuts")
        lows, highs = [-_ENDLESS, *cuts], [*(cut - step for cut in cuts), _ENDLESS]
        usual_lows, usual_highs = list(lows), list(highs)
        if cuts:
            width = max(step, (cuts[-1] - cuts[0] or 2 * step) // max(1, len(cuts) - 1) // step * step)
            usual_lows[0], usual_highs[-1] = cuts[0] - width, cuts[-1] + width - step
        else:
            usual_lows[0] = usual_highs[0] = 0
        other = [] if cells.closed else [(-_ENDLESS, _ENDLESS, 0, 0)]
        return np.array([*zip(lows, highs, usual_lows, usual_highs, strict=True), *other], dtype=np.int64).T

    def _rows(self, tied: Tied) -> list[tuple[NDArray[np.int64], int, Tied]]:
        """Return the constraints as sums with an upper limit, in units."""
        balance = tied.balance
        factors = np.zeros(len(self.names), dtype=np.int64)
        for name, factor in balance.factors:
            factors[self.names.index(name)] = factor
        if np.abs(factors).sum() > _MOST_FACTORS:
            raise InvalidInput(f"an order or total takes at most {_MOST_FACTORS} terms")
        limit = balance.limit * 2**self._power
        if abs(limit) > _LARGEST or (balance.sign == "=" and not limit.is_integer()):
            raise InvalidInput(f"{balance.limit:g} is no number that columns can be off by exactly")
        if balance.sign == "=":
            return [(factors, int(limit), tied), (-factors, -int(limit), tied)]
        return [(factors, math.floor(limit) if balance.sign == "<=" else math.ceil(limit) - 1, tied)]

    def possible(self, sizes: Sequence[int]) -> Truths:
        """Return the cells of `members` with values that satisfy all constraints; one draw of each cell is stored."""
        shape = [sizes[column] for column in self.members]
        if math.prod(shape) > _MOST_CELLS:
            raise Infeasible(
                f"orders and totals tie together {math.prod(shape)} cells of columns, more than {_MOST_CELLS}; declare "
                "fewer cells of these columns"
            )
        codes = np.zeros((math.prod(shape), len(sizes)), dtype=np.int64)
        codes[:, self.members] = np.stack(np.unravel_index(np.arange(len(codes)), shape), axis=1)
        low, high = self._tightened(*self._bounds(codes), self._binding_limits(codes))
        open_cells = np.flatnonzero((low <= high).all(axis=1))
        values, succeeded = self._draw_again(codes[open_cells], np.random.default_rng(4))
        mask = np.zeros(len(codes), dtype=np.bool_)
        mask[open_cells[succeeded]] = True
        self._shape = shape
        self._places = np.cumsum(mask) - 1
        self._witnesses = values[succeeded]
        return mask.reshape(shape)

    def draw(self, codes: Integers) -> tuple[Truths, Floats]:
        """Return the mask of bound records and satisfying numbers of all columns, the same in every call."""
        is_bound = np.asarray(self._binding_limits(codes).any(axis=1))
        some = codes[is_bound]
        values = np.zeros((len(codes), len(self.names)), dtype=np.int64)
        new_values, succeeded = self._draw_again(some, np.random.default_rng(5))
        if not succeeded.all():
            cells = np.ravel_multi_index(tuple(some[~succeeded][:, column] for column in self.members), self._shape)
            new_values[~succeeded] = self._witnesses[self._places[cells]]
        values[is_bound] = new_values
        return is_bound, values / 2.0**self._power

    def format_number(self, index: int, number: float) -> object:
        """Return a number of a column as synthetic records have it."""
        cells = self._cells[index]
        if isinstance(cells, DateCells):
            return cells.format_number(number)
        return int(number) if self._whole[index] else number

    def is_missing(self, index: int, codes: Integers) -> Truths:
        """Return the mask of a column's codes that are not numbers."""
        return np.asarray(codes == self._cells[index].line)

    def _binding_limits(self, codes: Integers) -> Truths:
        """Return for each record and limit whether the limit applies; it does not where a number is missing."""
        missing = np.stack([self.is_missing(index, codes[:, column]) for index, column in enumerate(self.columns)])
        return np.stack(
            [
                tied.is_binding(codes) & ~missing[np.flatnonzero(factors)].any(axis=0)
                for factors, _, tied in self._limits
            ],
            axis=1,
        )

    def _bounds(self, codes: Integers, usual: bool = False) -> tuple[Integers, Integers]:
        rows = (2, 3) if usual else (0, 1)
        ends = [
            [column_ends[row][codes[:, column]] for column_ends, column in zip(self._ends, self.columns, strict=True)]
            for row in rows
        ]
        return np.stack(ends[0], axis=1), np.stack(ends[1], axis=1)

    def _tightened(self, low: Integers, high: Integers, binding: Truths) -> tuple[Integers, Integers]:
        """Return the ends after nothing more follows from any one limit: a lower one above the upper has no values."""
        low, high = low.copy(), high.copy()
        for _ in range(_ROUNDS):
            previous = low.copy(), high.copy()
            for number, (factors, limit, _) in enumerate(self._limits):
                self._tighten(low, high, factors, limit, binding[:, number])
            if (previous[0] == low).all() and (previous[1] == high).all():
                break
        return low, high

    def _tighten(self, low: Integers, high: Integers, factors: NDArray[np.int64], limit: int, binding: Truths) -> None:
        used = np.flatnonzero(factors)
        minima = {index: factors[index] * (low if factors[index] > 0 else high)[:, index] for index in used}
        for index in used:
            rest = sum((minima[other] for other in used if other != index), np.zeros(len(low), dtype=np.int64))
            is_finite = binding & (rest > -_ENDLESS // 2) & (rest < _ENDLESS // 2)
            factor, step = int(factors[index]), int(self._steps[index])
            if factor > 0:
                end = (limit - rest) // factor // step * step
                high[:, index] = np.where(is_finite, np.minimum(high[:, index], end), high[:, index])
            else:
                end = -((limit - rest) // -factor // step * step)
                low[:, index] = np.where(is_finite, np.maximum(low[:, index], end), low[:, index])

    def _draw_again(self, codes: Integers, chance: np.random.Generator) -> tuple[Integers, Truths]:
        """Return values of records and a mask of the successful draws, after a few tries."""
        values = np.zeros((len(codes), len(self.names)), dtype=np.int64)
        succeeded = np.zeros(len(codes), dtype=np.bool_)
        for number in range(_TRIES):
            failed = np.flatnonzero(~succeeded)
            if not failed.size:
                break
            values[failed], succeeded[failed] = self._draw(codes[failed], chance, 4**number - 1)
        return values, succeeded

    def _draw(self, codes: Integers, chance: np.random.Generator, wider: int) -> tuple[Integers, Truths]:
        """Return one draw; cells without an end are taken to be so many times wider than they usually are."""
        binding = self._binding_limits(codes)
        low, high = self._tightened(*self._bounds(codes), binding)
        first, last = self._bounds(codes, usual=True)
        width = wider * np.clip(last - first, self._steps, _LARGEST >> 2 * _TRIES)
        first, last = np.where(low <= -_ENDLESS, first - width, first), np.where(high >= _ENDLESS, last + width, last)
        for index in self._order():
            step = int(self._steps[index])
            begin, end = _overlap(low[:, index], high[:, index], first[:, index], last[:, index])
            choices = np.maximum((end - begin) // step + 1, 1)
            values = begin + step * np.floor(chance.random(len(codes)) * choices).astype(np.int64)
            low[:, index] = high[:, index] = values
            low, high = self._tightened(low, high, binding)
        within, beyond = self._bounds(codes)
        succeeded = (low == high).all(axis=1) & (within <= low).all(axis=1) & (low <= beyond).all(axis=1)
        for number, (factors, limit, _) in enumerate(self._limits):
            succeeded &= ~binding[:, number] | (low @ factors <= limit)
        return low, succeeded

    def _order(self) -> list[int]:
        """Return the columns in the order in which they are drawn: totals after what they are the totals of."""
        totals = set()
        for tie in self.tied:
            for sign in (-1, 1):
                alone = [name for name, factor in tie.balance.factors if factor == sign]
                same_sign = [name for name, factor in tie.balance.factors if factor * sign > 0]
                if tie.balance.sign == "=" and len(alone) == len(same_sign) == 1 and len(tie.balance.factors) > 2:
                    totals.add(alone[0])
        return sorted(range(len(self.names)), key=lambda index: self.names[index] in totals)


def _overlap(low: Integers, high: Integers, first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """Return the ends of what both intervals share; where that is nothing, a stretch of the first near the second."""
    begin, end = np.maximum(low, first), np.minimum(high, last)
    width = last - first
    above, below = low > last, high < first
    begin = np.where(above, low, np.where(below, np.maximum(low, high - width), begin))
    end = np.where(above, np.minimum(high, low + width), np.where(below, high, end))
    return begin, end
