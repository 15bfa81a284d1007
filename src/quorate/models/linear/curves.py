"""What each column of an additive model adds to its linear predictor, with how far noise and sampling may move it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables.features import AdditiveColumns, HashedColumns
from quorate.tables.features.additive import OfSentences

_NONE = "none of them"


@dataclass(frozen=True)
class Curve:
    """One column: at each of `values` what it adds, compared with the average row, and a standard deviation of that.

    `effects` and `deviations` have a row for each output. Between two numbers, or two dates, the curve is straight.
    """

    column: str
    values: tuple[float | str | datetime, ...]
    effects: tuple[tuple[float, ...], ...]
    deviations: tuple[tuple[float, ...], ...]

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers or dates."""
        return not isinstance(self.values[0], str)


def curves_of(
    columns: AdditiveColumns | HashedColumns, weights: Floats, covariances: Floats, centre: Floats, scale: float = 1.0
) -> tuple[Curve, ...]:
    """Return the curve of every column but texts. Weights have a row for each output, and no intercept."""
    if not isinstance(columns, AdditiveColumns):
        return ()
    curves = []
    for name, values, points, part in _points(columns):
        moved = points - centre[part]
        effects = scale * weights[:, part] @ moved.T
        variances = np.einsum("pi,oij,pj->op", moved, covariances[:, part, part], moved)
        deviations = scale * np.sqrt(np.maximum(variances, 0.0))
        curves.append(Curve(name, values, *(tuple(map(tuple, rows.tolist())) for rows in (effects, deviations))))
    return tuple(curves)


def _points(columns: AdditiveColumns) -> Iterator[tuple[str, tuple[Any, ...], Floats, slice]]:
    """Yield the name of each column, values of it, what they become, and where that stands among all columns."""
    first = 0
    for group in columns.joined_:
        blocks = [columns.blocks_[index] for index in group]
        block, width = blocks[0], sum(len(member.names) for member in blocks)
        part = slice(first, first + width)
        first += width
        if len(group) > 1:
            names = [member.name for member in blocks]
            yield " ".join(names), (*names, _NONE), np.eye(width + 1)[:, :-1], part
        elif not isinstance(block, OfSentences):
            yield block.name, block.points, block.encode(block.points), part


def curves_from(documents: list[dict[str, Any]]) -> tuple[Curve, ...]:
    """Return the curves that documents describe."""
    curves = []
    for document in documents:
        effects, deviations = (tuple(map(tuple, document[part])) for part in ("effects", "deviations"))
        curve = Curve(str(document["column"]), tuple(document["values"]), effects, deviations)
        if not curve.values or {len(row) for row in (*effects, *deviations)} != {len(curve.values)}:
            raise InvalidInput("the curves of the model are damaged or were changed")
        curves.append(curve)
    return tuple(curves)
