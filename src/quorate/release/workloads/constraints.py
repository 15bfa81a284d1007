"""Public constraints on a table: impossible combinations of cells, and orders and totals of numbers.

A constraint is a mapping that no record satisfies, {"age": "below 15", "marital": ["married", "widowed"]}, or a text
that every record satisfies: "if age < 15 then marital = 'single'", "child + 12 <= parent", "total = wages + other". A
missing or undeclared value violates no constraint, unless a mapping names the cell "other".
"""

import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.queries.marginals import Possible, Truths
from quorate.release.workloads._balances import Balances, Tied, holds_whole_numbers
from quorate.release.workloads._expressions import (
    Balance,
    Comparison,
    Degrees,
    Expression,
    comparisons,
    evaluate_expression,
    parse_constraint,
)
from quorate.tables.cells import Cells, DateCells, NumberCells
from quorate.tables.containers import prefix_errors

_MOST_CELLS = 20_000_000  # of the columns of one group
_MOST = 1_000  # constraints of one table

Table = tuple[tuple[int, ...], Truths]
_ORDERS: dict[str, Callable[[Any, float], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def check_constraints(constraints: Any) -> tuple[Any, ...]:
    """Return checked constraints as a tuple; refuse an unreadable one."""
    if isinstance(constraints, str | Mapping) or not isinstance(constraints, Sequence):
        raise InvalidInput('constraints must be a list, such as ["child < parent", {"age": "below 15", "sex": "f"}]')
    if len(constraints) > _MOST:
        raise InvalidInput(f"at most {_MOST} constraints may be declared, not {len(constraints)}")
    for number, constraint in enumerate(constraints):
        with prefix_errors(f"constraint {number + 1}: "):
            names_in(constraint)
    return tuple(dict(constraint) if isinstance(constraint, Mapping) else constraint for constraint in constraints)


def names_in(constraint: Any) -> set[str]:
    """Return the columns that a constraint names; refuse an unreadable constraint."""
    if isinstance(constraint, Mapping):
        if not constraint or not all(isinstance(name, str) for name in constraint):
            raise InvalidInput('a combination that cannot occur names columns and cells, as {"age": "below 15"} does')
        return set(constraint)
    condition, holds = parse_constraint(constraint)
    names = set() if condition is None else {comparison.column for comparison in comparisons(condition)}
    if isinstance(holds, Balance):
        return names | {name for name, _ in holds.factors}
    return names | {comparison.column for comparison in comparisons(holds)}


class Constraints:
    """Constraints on declared columns: the possible cells, and values in them that satisfy all constraints."""

    def __init__(self, constraints: Sequence[Any], cells: Mapping[str, Cells]) -> None:
        self._cells = dict(cells)
        self._numbers = {name: index for index, name in enumerate(cells)}
        self._sizes = tuple(column.size for column in cells.values())
        rules = [self._read_numbered(number, constraint) for number, constraint in enumerate(constraints, start=1)]
        tied = [rule for rule in rules if isinstance(rule, Tied)]
        self.balances = self._join_balances(tied)
        tables = [rule for rule in rules if not isinstance(rule, Tied)]
        tables += [(balances.members, ~balances.possible(self._sizes)) for balances in self.balances]
        parts = _together([set(columns) for columns, _ in tables])
        self.possible = Possible(tuple(self._group([tables[index] for index in part]) for part in parts))

    def keep(self, codes: Integers, values: dict[str, list[Any]]) -> None:
        """Replace values of records by values that satisfy orders and totals."""
        for balances in self.balances:
            is_bound, numbers = balances.draw(codes)
            for index, name in enumerate(balances.names):
                changed = np.flatnonzero(is_bound & ~balances.is_missing(index, codes[:, self._numbers[name]]))
                for row, number in zip(changed.tolist(), numbers[changed, index].tolist(), strict=True):
                    values[name][row] = balances.format_number(index, number)

    def _read_numbered(self, number: int, constraint: Any) -> Table | Tied:
        """Read a constraint; an error names its number in the list."""
        with prefix_errors(f"constraint {number}: "):
            return self._read_constraint(constraint)

    def _read_constraint(self, constraint: Any) -> Table | Tied:
        """Return the cells that a constraint excludes, or its order or total."""
        for name in names_in(constraint):
            if name not in self._cells:
                raise InvalidInput(f"column {name!r} is not declared; the columns are {', '.join(self._cells)}")
        if isinstance(constraint, Mapping):
            return self._combination(constraint)
        condition, holds = parse_constraint(constraint)
        if not isinstance(holds, Balance):
            parts = [part for part in (condition, holds) if part is not None]
            columns = self._named_columns(parts)
            truth = self._truth(holds, columns)
            return columns, np.asarray(
                (truth if condition is None else np.maximum(-self._truth(condition, columns), truth)) < 0
            )
        self._check_numbers(holds)
        columns = () if condition is None else self._named_columns([condition])
        return Tied(
            holds, columns, np.ones((), dtype=np.bool_) if condition is None else self._truth(condition, columns) > 0
        )

    def _combination(self, combination: Mapping[str, Any]) -> Table:
        columns = tuple(self._numbers[name] for name in combination)
        ruled_out = np.ones(self._shape(columns), dtype=np.bool_)
        for axis, (name, values) in enumerate(combination.items()):
            cells, mask = self._cells[name], np.zeros(self._cells[name].size, dtype=np.bool_)
            for value in values if isinstance(values, list | tuple) else [values]:
                with prefix_errors(f"column {name!r}: "):
                    mask[cells.code(value)] = True
            ruled_out &= _along(mask, axis, len(columns))
        return columns, ruled_out

    def _named_columns(self, parts: Sequence[Expression]) -> tuple[int, ...]:
        return tuple(sorted({self._numbers[comparison.column] for part in parts for comparison in comparisons(part)}))

    def _truth(self, part: Expression, columns: tuple[int, ...]) -> Degrees:
        """Return for each cell of these columns whether it satisfies an expression: 1, -1, or 0 where it is unknown."""

        def compare(comparison: Comparison) -> Degrees:
            truth = truth_by_cell(comparison, self._cells[comparison.column])
            axis = columns.index(self._numbers[comparison.column])
            return np.broadcast_to(_along(truth, axis, len(columns)), self._shape(columns))

        return evaluate_expression(part, compare)

    def _check_numbers(self, balance: Balance) -> None:
        """Refuse sums of columns that are not numeric, and of dates in different units."""
        kinds = [self._cells[name] for name, _ in balance.factors]
        for (name, _), cells in zip(balance.factors, kinds, strict=True):
            if not isinstance(cells, NumberCells):
                raise InvalidInput(f"column {name!r} holds categories: numbers are compared with each other")
        dates = [cells for cells in kinds if isinstance(cells, DateCells)]
        if dates and (len(dates) != len(kinds) or len({cells.unit for cells in dates}) > 1):
            raise InvalidInput("dates are compared with dates of the same unit, and not with numbers")
        if not all(holds_whole_numbers(cells) for cells in dates):
            raise InvalidInput("dates that are compared must be cut at whole units; declare a smaller unit")

    def _join_balances(self, tied: Sequence[Tied]) -> list[Balances]:
        """Return the orders and totals, those that share a column together."""
        numbers = {name: cells for name, cells in self._cells.items() if isinstance(cells, NumberCells)}
        parts = _together([{self._numbers[name] for name, _ in tie.balance.factors} for tie in tied])
        return [Balances([tied[index] for index in part], numbers, self._numbers) for part in parts]

    def _group(self, tables: Sequence[Table]) -> Table:
        """Return the columns of these tables together, and the mask of their cells that no table excludes."""
        columns = tuple(sorted({column for names, _ in tables for column in names}))
        mask = np.ones(self._shape(columns), dtype=np.bool_)
        for members, ruled_out in tables:
            order = sorted(range(len(members)), key=lambda index: members[index])
            spread = [self._sizes[column] if column in members else 1 for column in columns]
            mask &= ~ruled_out.transpose(order).reshape(spread)
        if not mask.any():
            raise InvalidInput(
                f"the constraints leave no record at all: no cells of {self._column_list(columns)} keep them"
            )
        return columns, mask

    def _shape(self, columns: Sequence[int]) -> list[int]:
        """Return the number of cells of each of these columns; refuse too large a table."""
        shape = [self._sizes[column] for column in columns]
        if math.prod(shape) > _MOST_CELLS:
            raise Infeasible(
                f"constraints tie together {math.prod(shape)} cells of {self._column_list(columns)}, more than "
                f"{_MOST_CELLS}; declare fewer cells of these columns, or fewer constraints"
            )
        return shape

    def _column_list(self, columns: Sequence[int]) -> str:
        return ", ".join(list(self._cells)[column] for column in columns)


def check_comparison(comparison: Comparison, cells: Cells) -> None:
    """Refuse a comparison of a column with a constant of another type."""
    column, constant = comparison.column, comparison.constant
    if isinstance(cells, DateCells):
        raise InvalidInput(f"column {column!r} holds dates: numbers and categories are compared with constants")
    if isinstance(cells, NumberCells):
        if not isinstance(constant, float):
            raise InvalidInput(f"column {column!r} holds numbers, and is compared with a text")
    elif comparison.sign != "=":
        raise InvalidInput(f"column {column!r} holds categories: compare it by =, != or in")
    else:
        with prefix_errors(f"column {column!r}: "):
            cells.code(constant)


def truth_by_cell(comparison: Comparison, cells: Cells) -> Degrees:
    """Return for each cell of a column whether it satisfies a comparison; the cell "other" is unknown."""
    check_comparison(comparison, cells)
    truth = np.full(cells.size, -1, dtype=np.int8)
    if isinstance(cells, NumberCells):
        truth[: cells.line] = _truth_of_numbers(comparison, cells)
        truth[cells.line :] = 0
    else:
        truth[cells.code(comparison.constant)] = 1
        truth[len(cells.values) :] = 0
    return truth


def _truth_of_numbers(comparison: Comparison, cells: NumberCells) -> Degrees:
    """Return 1 for each cell whose numbers all satisfy a comparison, -1 where none does; refuse a mixed cell."""
    end, cuts = float(comparison.constant), np.array(cells.values)
    low, below = np.array([-math.inf, *cuts]), np.nextafter(cuts, -math.inf)
    top = np.array([*(np.minimum(below, cuts - 1) if holds_whole_numbers(cells) else below), sys.float_info.max])
    if comparison.sign == "=":
        truth = np.where((low == end) & (top == end), 1, np.where((low <= end) & (end <= top), 0, -1))
    else:
        fulfilled = [_ORDERS[comparison.sign](edge, end) for edge in (low, top)]
        truth = np.sum(fulfilled, axis=0) - 1
    if not truth.all():
        cell = cells.name(int(np.flatnonzero(truth == 0)[0]))
        raise InvalidInput(
            f"column {comparison.column!r} has a cell, {cell!r}, of which some numbers fulfil {comparison.sign} "
            f"{end:g} and others do not: declare a cut there"
        )
    return truth.astype(np.int8)


def _along(values: Any, axis: int, axes: int) -> Any:
    return values.reshape([len(values) if index == axis else 1 for index in range(axes)])


def _together(sets: Sequence[set[int]]) -> Iterator[list[int]]:
    """Yield the indices of the connected components of sets that share elements."""
    remaining = list(range(len(sets)))
    while remaining:
        part = [remaining.pop(0)]
        seen = set(sets[part[0]])
        while near := [index for index in remaining if sets[index] & seen]:
            part += near
            remaining = [index for index in remaining if index not in near]
            seen.update(*(sets[index] for index in near))
        yield part
