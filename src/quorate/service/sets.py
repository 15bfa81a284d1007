"""Prediction sets and intervals as they are served: what they say beyond a label.

Over a classifier, beside `label`, `index` and `outcome`:

    set       BYTES [-1]: the labels in the set of each query, as a JSON list

Over a regressor:

    value     FP64 [-1]: what the model says
    low       FP64 [-1]: the lower end of the interval; the smallest number there is where it has none
    high      FP64 [-1]: the upper end; the largest number there is where it has none
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.held_out import ConformalRegressor
from quorate.service.codec import ResponseTensor, Values
from quorate.service.tensors import Outputs, TensorInfo

__all__ = ["IntervalOutputs", "SetOutputs"]


class SetOutputs(Outputs):
    """The labels of a classifier, and the set of each query."""

    names = (*Outputs.names, "set")

    def described(self) -> list[TensorInfo]:
        """Return the four tensors."""
        return [*super().described(), TensorInfo("set", "BYTES", [-1])]

    def tensor(self, name: str, index: NDArray[np.int64], told: Any) -> tuple[str, Values]:
        """Return the datatype and the values of one tensor."""
        if name != "set":
            return super().tensor(name, index, told)
        return "BYTES", [json.dumps(self.classes[row].tolist()) for row in told]


class IntervalOutputs(Outputs):
    """The values of a regressor, and the interval of each query."""

    names = ("value", "low", "high")

    def __init__(self, model: ConformalRegressor) -> None:
        super().__init__(np.zeros(0))
        self._model = model

    def told(self, X: Any) -> NDArray[np.float64]:
        """Return value, lower and upper end of each query."""
        return np.nan_to_num(np.column_stack([self._model.predict(X), self._model.predict_interval(X)]))

    def described(self) -> list[TensorInfo]:
        """Return the three tensors."""
        return [TensorInfo(name, "FP64", [-1]) for name in self.names]

    def written(
        self,
        labels: NDArray[np.int64],
        refused: NDArray[np.bool_],
        chosen: Sequence[tuple[str, bool]],
        told: Any = None,
    ) -> list[ResponseTensor]:
        """Return the chosen tensors."""
        known = dict(zip(self.names, np.ascontiguousarray(np.transpose(told)), strict=True))
        return [ResponseTensor(name, "FP64", known[name], binary) for name, binary in chosen]
