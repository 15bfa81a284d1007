"""Survey weights: each record counts as many times as its weight says, up to a declared bound.

A weighted total is the sum of the weight, and of the weight times the distance of a value from the middle of its
bounds. Both are numbers of one record, so they are summed as any other column is: proof: step 10.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.release.numbers._estimates import Answers, NoisySums, ratio_answers, total_answers
from quorate.release.numbers._layout import SummedColumn
from quorate.tables.columns import Date, Kind, Number


def _declared_bounds(kind: Kind | None) -> tuple[float, float] | None:
    """Return the bounds of a column of numbers, None where they are not declared."""
    if not isinstance(kind, Number) or isinstance(kind, Date) or kind.low is None or kind.high is None:
        return None
    return float(kind.low), float(kind.high)


@dataclass(frozen=True)
class Weighting:
    """The column of weights with its bound, and the columns with totals and means."""

    weight: str
    bound: float
    columns: tuple[SummedColumn, ...]

    @classmethod
    def of(cls, weight: str | None, names: Sequence[str], kinds: Mapping[str, Kind]) -> "Weighting | None":
        """Return the weighting by this column; None without one. All bounds must be declared."""
        if weight is None:
            return None
        bounds = _declared_bounds(kinds.get(weight))
        if bounds is None or bounds[0] < 0 or bounds[1] <= 0:
            raise InvalidInput(
                f"weights names {weight!r}, whose bound must be declared in columns: Number(low=0, high=...)"
            )
        columns = []
        for name in dict.fromkeys(name for name in names if name != weight):
            own, ends = kinds.get(name), _declared_bounds(kinds.get(name))
            if ends is None:
                raise InvalidInput(f"with weights, column {name!r} must be a Number with low and high")
            columns.append(SummedColumn(name, *ends, isinstance(own, Number) and own.closed))
        return cls(weight, bounds[1], tuple(columns))

    def _names_of(self, column: SummedColumn) -> tuple[str, str]:
        """Return the names of the summed products of a column, and of the weights of its values."""
        return f"{column.name} times {self.weight}", f"{self.weight} of {column.name}"

    def kinds(self) -> dict[str, Number]:
        """Return declarations of all columns that are summed."""
        kinds = {self.weight: Number(low=0.0, high=self.bound, closed=True)}
        for column in self.columns:
            product, weights = self._names_of(column)
            reach = self.bound * column.half
            kinds[product] = Number(low=-reach, high=reach, closed=True)
            if not column.closed:
                kinds[weights] = kinds[self.weight]
        return kinds

    def values(self, raw: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return what each record adds, from its weight and its values; without a weight it adds nothing."""
        weights = np.clip(np.nan_to_num(raw[self.weight], nan=0.0), 0.0, self.bound)
        values = {self.weight: weights}
        for column in self.columns:
            product, own = self._names_of(column)
            numbers = np.clip(raw[column.name], column.low, column.high)
            if column.closed:
                numbers = np.where(np.isnan(numbers), column.low, numbers)
            is_there = ~np.isnan(numbers)
            values[product] = np.where(is_there, weights * (numbers - column.middle), 0.0)
            values[own] = np.where(is_there, weights, 0.0)
        return values

    def answers(
        self, totals: Sequence[str], means: Sequence[str], sums: Mapping[str, tuple[NoisySums, SummedColumn]]
    ) -> dict[str, Answers]:
        """Return the totals of weights, and weighted totals and means.

        Parameters
        ----------
        totals, means
            The columns of each.
        sums
            The noisy sums of each summed column, with its bounds.
        """
        own = {column.name: column for column in self.columns}
        noisy, weight = sums[self.weight]
        answers = {f"total {self.weight}": noisy.totals(weight)}
        parts = {}
        for name, column in own.items():
            product, weights = self._names_of(column)
            first, bounds = sums[product]
            second, range_of_weights = sums[weights if weights in sums else self.weight]
            parts[name] = first.sum_with_variance(bounds), second.sum_with_variance(range_of_weights)
        law = noisy.law
        answers |= {f"total {name}": total_answers(*parts[name], own[name], law) for name in totals if name in own}
        return answers | {f"mean {name}": ratio_answers(*parts[name], own[name], law) for name in means if name in own}
