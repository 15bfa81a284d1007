"""Prediction sets and intervals as they are served: what they say beyond a label.

Over a classifier, beside `label`, `index` and `outcome`:

    set       BYTES [-1]: the labels in the set of each query, as a JSON list

Of a regressor:

    value     FP64 [-1]: what the model says

and over one, beside it:

    low       FP64 [-1]: the lower end of the interval; the smallest number there is where it has none
    high      FP64 [-1]: the upper end; the largest number there is where it has none
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.models.conformal import ConformalRegressor
from quorate.service.codec import Values
from quorate.service.tensors import ColumnOutputs, Flags, Numbers, Outputs, TensorInfo


class SetOutputs(Outputs):
    """The labels of a classifier, and the set of each query."""

    names = (*Outputs.names, "set")

    def described(self) -> list[TensorInfo]:
        """Return the four tensors."""
        return [*super().described(), TensorInfo("set", "BYTES", [-1])]

    def tensor(self, name: str, index: Numbers, told: Any) -> tuple[str, Values]:
        """Return the datatype and the values of one tensor."""
        if name != "set":
            return super().tensor(name, index, told)
        return "BYTES", [json.dumps(self.classes[row].tolist()) for row in told]


class ValueOutputs(ColumnOutputs):
    """The values of a regressor: what a published one has told, or what `values` makes of the answers of a session."""

    names = ("value",)

    def __init__(self, values: Callable[[Numbers], Any] | None = None) -> None:
        super().__init__()
        self._values = values

    def read(self, labels: Numbers, refused: Flags, told: Any) -> tuple[Numbers, Any]:
        """Return the value of each query by its name."""
        return labels, {"value": told if self._values is None else self._values(labels)}


class IntervalOutputs(ColumnOutputs):
    """The values of a regressor, and the interval of each query."""

    names = ("value", "low", "high")

    def read(self, labels: Numbers, refused: Flags, told: Any) -> tuple[Numbers, Any]:
        """Return value, lower and upper end of each query by their names."""
        return labels, dict(zip(self.names, np.ascontiguousarray(np.transpose(told)), strict=True))


def told_intervals(model: ConformalRegressor, X: Any) -> NDArray[np.float64]:
    """Return value, lower and upper end of each query."""
    return np.nan_to_num(np.column_stack([model.predict(X), model.predict_interval(X)]))
