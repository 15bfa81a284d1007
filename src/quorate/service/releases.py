"""Releases as they are served: texts of queries in, shares of the private records out.

query     BYTES [-1], in: each as `--ask` of `quorate release` takes it
answer    FP64 [-1], out: the share of the private records
error     FP64 [-1], out: one standard deviation; -1 where the engine does not know it
outcome   BYTES [-1], out, of an online release: answered or refused (the budget cannot pay); read it first

What was published is answered at no cost. An online release answers from its budget, through its session.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.release import OnlineRelease, QueryRelease
from quorate.release.answers import parse_queries
from quorate.release.online import rows_of_numbers
from quorate.release.queries.base import NOTHING
from quorate.service.codec import Tensor
from quorate.service.errors import Refused
from quorate.service.tensors import ColumnOutputs, Flags, Numbers, TensorInfo


class QueryInput:
    """Texts of queries, which become the numbers that the release knows them by."""

    names: Sequence[str] = ("query",)

    def __init__(self, release: QueryRelease | OnlineRelease) -> None:
        self._release = release

    def described(self) -> list[TensorInfo]:
        """Return the one tensor."""
        return [TensorInfo("query", "BYTES", [-1])]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.int64]:
        """Return the numbers of the queries, one a row."""
        if "query" not in tensors:
            raise Refused("bad_request", "all inputs of this model must be sent, and they are 'query'")
        tensor = tensors["query"]
        texts = [text for text in tensor.values if isinstance(text, str)]  # and not a null, or numbers
        if len(texts) < len(tensor.values) or tensor.shape[1:] not in ([], [1]):
            raise Refused("bad_tensor", "input 'query' takes texts, in the shape [rows] or [rows, 1]")
        try:
            asked = parse_queries(texts, self._release.subject)
            numbers = self._release.domain_.find(asked)
            moved = any(self._release.domain_.between(asked))
        except InvalidInput:
            raise Refused("invalid_input", "a query is none of this release, or cannot be read") from None
        if moved:  # the answer says nothing of the query that it would be about
            raise Refused("invalid_input", "an end of a query is no cut of this release: ask at its cuts")
        return rows_of_numbers(numbers)  # from 0 up: below 0 would not be an answer


class ShareOutputs(ColumnOutputs):
    """The answers of a release, by the numbers of queries."""

    names = ("answer", "error", "low", "high")

    def __init__(self, release: QueryRelease) -> None:
        super().__init__()
        self._release = release

    def read(self, labels: Numbers, refused: Flags, told: Any) -> tuple[Numbers, Any]:
        """Return the shares, their errors and their 95% intervals; -1 stands where a figure is not known."""
        bars = self._release.bars(labels + NOTHING)
        return labels, {name: np.where(np.isnan(bars[name]), -1.0, bars[name]) for name in self.names}


class OnlineOutputs(ColumnOutputs):
    """The answers of an online release, as its session has them; -1 stands where a query was refused."""

    names = ("answer", "error", "outcome")

    def __init__(self, release: OnlineRelease) -> None:
        super().__init__()
        self._release = release

    def read(self, labels: Numbers, refused: Flags, told: Any) -> tuple[Numbers, Any]:
        """Return the shares and their errors, for what was not refused."""
        shares, errors = self._release.read(np.maximum(labels, 0))
        return labels, {"answer": np.where(refused, -1.0, shares), "error": np.where(refused, -1.0, errors)}
