"""The output tensors of a model: what each query was answered.

    label     the class: BYTES, INT64, FP64 or BOOL, as the classes are
    index     INT64: the number of the class among the sorted classes, -1 for no quorum, -2 for refused
    outcome   BYTES: answered, no_quorum or refused (the budget ended before this query, or its phase is closed)

Where a query was not answered, `label` is an empty text, or a number that is no class (`metadata` says which), or
false; read `outcome` first. Responses are not padded: whoever asks is told the outcome anyway, and nobody else reads
it where the connection is encrypted, but the length of a response can tell an eavesdropper one class from another.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.service.codec import ResponseTensor, listed
from quorate.service.datatypes import Values
from quorate.service.errors import Refused
from quorate.service.inputs import TensorInfo

__all__ = ["OUTPUTS", "Outputs"]

OUTPUTS = ("label", "index", "outcome")

_OUTCOMES = ("refused", "no_quorum", "answered")


class Outputs:
    """The answers of a classifier with these classes, as tensors.

    >>> outputs = Outputs(np.array(["no", "yes"]))
    >>> answers = outputs.written(np.array([1, -1]), np.array([False, False]), [("label", False), ("index", False)])
    >>> answers[0].values, answers[1].values
    (['yes', ''], array([ 1, -1]))
    """

    names: Sequence[str] = OUTPUTS

    def __init__(self, classes: NDArray[Any]) -> None:
        self.classes = classes
        self._texts: list[str] | None = None
        self._numbers: NDArray[Any] = classes
        self.unanswered: Any
        kind = classes.dtype.kind
        if kind in "iu":
            self.datatype, self.unanswered = "INT64", _no_class(classes.astype(np.int64))
        elif kind == "f":
            self.datatype, self.unanswered = "FP64", _no_class(classes.astype(np.float64))
        elif kind == "b":
            self.datatype, self.unanswered = "BOOL", False
        else:
            self.datatype, self.unanswered = "BYTES", ""
            self._texts = [str(label) for label in classes.tolist()] + [""]  # the last stands for no answer
        if self._texts is None:
            dtype = {"INT64": np.int64, "FP64": np.float64, "BOOL": np.bool_}[self.datatype]
            self._numbers = np.array([*classes.tolist(), self.unanswered], dtype=dtype)

    def described(self) -> list[TensorInfo]:
        """Return the three tensors.

        >>> [tensor.datatype for tensor in Outputs(np.array([5, 7])).described()]
        ['INT64', 'INT64', 'BYTES']
        """
        return [
            TensorInfo(name, datatype, [-1])
            for name, datatype in zip(OUTPUTS, (self.datatype, "INT64", "BYTES"), strict=True)
        ]

    def chosen(self, asked: Sequence[tuple[str, bool]] | None, *, binary: bool) -> Sequence[tuple[str, bool]]:
        """Return the outputs to send, all of them where none is asked for. An unknown one is refused.

        >>> Outputs(np.array([0, 1])).chosen(None, binary=False)
        [('label', False), ('index', False), ('outcome', False)]
        """
        if asked is None:
            return [(name, binary) for name in self.names]
        if any(name not in self.names for name, _ in asked):
            raise Refused("bad_request", f"the outputs of a model are {listed(self.names)}; another was asked for")
        return asked

    def written(
        self, labels: NDArray[np.int64], refused: NDArray[np.bool_], chosen: Sequence[tuple[str, bool]]
    ) -> list[ResponseTensor]:
        """Return the chosen tensors of class numbers, in the order chosen.

        >>> Outputs(np.array([-1, 1])).written(np.array([-1]), np.array([True]), [("label", False)])[0].values
        array([-2])
        """
        made: list[ResponseTensor] = []
        index = np.where(refused, -2, labels)
        for name, binary in chosen:
            if name == "label":
                made.append(ResponseTensor(name, self.datatype, self._labels(index), binary))
            elif name == "index":
                made.append(ResponseTensor(name, "INT64", index, binary))
            else:
                made.append(ResponseTensor(name, "BYTES", [_OUTCOMES[min(i, 0) + 2] for i in index.tolist()], binary))
        return made

    def _labels(self, index: NDArray[np.int64]) -> Values:
        places = np.maximum(index, -1)
        if self._texts is not None:
            return [self._texts[place] for place in places.tolist()]
        numbers: NDArray[Any] = self._numbers[places]
        return numbers


def _no_class(classes: NDArray[Any]) -> Any:
    """Return -1, or a number below all classes where that is one."""
    return -1 if -1 not in classes else classes.min().item() - 1
