"""Conditions that records must meet to count: comparisons of a column with public values."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.tables.dates import declared_moment, read_moments
from quorate.tables.reading import Reading
from quorate.tables.values import canonical_text, read_numbers, read_texts

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS = (*_ORDERS, "=", "!=", "in", "not in", "missing", "present")
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with public values. A missing value meets "missing" alone, as in SQL."""

    column: str
    operator: str
    values: tuple[float | str, ...] = ()

    @classmethod
    def parse(cls, condition: Any) -> "Condition":
        """Return the condition of a tuple: (column, operator, value), or (column, "missing")."""
        is_listed = isinstance(condition, tuple | list) and len(condition) > 1
        column, sign, *rest = condition if is_listed else (None, None)
        values = _plain_values(rest)
        needed = {"missing": 0, "present": 0, "in": len(values), "not in": len(values)}.get(str(sign), 1)
        is_known = isinstance(column, str) and sign in OPERATORS
        if not is_known or len(values) != needed or not all(isinstance(value, float | str) for value in values):
            raise InvalidInput(
                f"where must have conditions such as ('age', '>=', 18), with one of {', '.join(OPERATORS)}; "
                f"got {condition!r}"
            )
        if sign in _ORDERS and isinstance(values[0], str):
            declared_moment(values[0], "days")  # refuses a text that is no date
        return cls(str(column), str(sign), values)

    def __str__(self) -> str:
        return " ".join([self.column, self.operator, *map(canonical_text, self.values)])

    def is_met(self, column: Any, reading: Reading) -> Flags:
        """Return whether each value of a raw column meets the condition. No value raises."""
        if self.operator in _ORDERS:
            [bound] = self.values
            if isinstance(bound, str):
                numbers, limit = read_moments(column, "days", reading), declared_moment(bound, "days")
            else:
                numbers, limit = read_numbers(column, reading), bound
            with np.errstate(invalid="ignore"):
                return np.asarray(_ORDERS[self.operator](numbers, limit), dtype=np.bool_)
        texts = read_texts(column, reading.missing_texts)
        present = texts.is_valid().to_numpy(zero_copy_only=False)
        if self.operator in ("missing", "present"):
            return np.asarray(present == (self.operator == "present"))
        numbers = read_numbers(column, reading)
        is_listed = np.isin(numbers, [value for value in self.values if isinstance(value, float)])
        coded = texts.dictionary_encode()
        wanted = {value for value in self.values if isinstance(value, str)}
        listed = np.array([*(text in wanted for text in coded.dictionary.to_pylist()), False], dtype=np.bool_)
        is_listed |= listed[coded.indices.fill_null(len(listed) - 1).to_numpy(zero_copy_only=False)]
        return np.asarray(is_listed if self.operator in ("=", "in") else present & ~is_listed)


def _plain_values(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values that follow an operator, also where they are in a list; numbers become floats."""
    values = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple | set) else operands
    return tuple(float(value) if isinstance(value, int | float) else value for value in values)


def parse_conditions(conditions: Iterable[Any]) -> tuple[Condition, ...]:
    """Return the conditions of `where`."""
    return tuple(map(Condition.parse, conditions))
