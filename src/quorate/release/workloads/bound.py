"""A workload on known columns: queries, their names, and where a record belongs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quorate.core.errors import InvalidInput
from quorate.release.queries import Numbered, Queries, Rows, Whole
from quorate.release.workloads.columns import Columns

__all__ = ["Between", "BoundWorkload", "check_asked", "tidy_name"]

_OURS = {"query", "asked", "answer", "error", "low", "high", "gap"}  # columns of a tidy table that are not the user's


@dataclass(frozen=True)
class Between:
    """What is asked at ends that are no cuts: it lies between two queries, the one within the other.

    `weight` is the share of what lies between them that is taken to belong, if values spread evenly between two cuts.
    """

    inner: int
    outer: int
    weight: float


class BoundWorkload(Numbered, ABC):
    """What is asked of a table whose columns are known. It holds public things alone.

    The workload's queries have numbers from 0 to `count_queries` - 1. Each is one of the engine's `queries`, or one of
    them less another: `parts` says which.
    """

    def __init__(self, columns: Columns, queries: Queries, count_queries: int) -> None:
        self.columns, self.queries, self.count_queries = columns, queries, count_queries
        self.possible = columns.possible  # constraints that cannot be kept are refused here, before anything is paid

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column has."""
        return self.columns.sizes

    def encode(self, table: Any) -> Rows:
        """Return the codes of each row. No value raises."""
        return self.columns.encode(table)

    def unread(self, table: Any) -> tuple[str, ...]:
        """Return the columns of a table that are asked about by nobody because nobody has declared them."""
        return ()

    @abstractmethod
    def count(self, table: Any) -> "Whole | Rows":
        """Return what an engine takes: how many rows each cell has, or the rows themselves by their codes."""

    @abstractmethod
    def find(self, asked: Any) -> int:
        """Return the number of the query that is asked for."""

    def answers_itself(self, asked: Any) -> bool:
        """Return whether this very query is answered, and not one near it."""
        return True

    def between(self, asked: Any) -> Between | None:
        """Return the two queries between which lies what is asked, None where it is a query itself."""
        return None

    def summed(self, asked: Any) -> Whole | None:
        """Return the numbers of the queries that add up to what is asked, None where it is one of them itself."""
        return None

    def describe_sum(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of what queries add up to."""
        return {}

    @abstractmethod
    def _name(self, number: int) -> dict[str, Any]:
        """Return the name of one query, as one row of a tidy table."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return what is needed beside the columns to make this workload again."""

    def describe(self, numbers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """Return the names of all queries, or of some, one row a query with the same columns."""
        which = range(self.count_queries) if numbers is None else [int(number) for number in numbers]
        if numbers is not None and any(not 0 <= number < self.count_queries for number in which):
            raise InvalidInput(f"a query of this workload has a number from 0 to {self.count_queries - 1}")
        return [self._name(number) for number in which]

    def cell_codes(self, cells: ArrayLike) -> Whole:
        """Return the codes of cells of the whole table, by their numbers."""
        return np.stack(np.unravel_index(np.asarray(cells, dtype=np.int64), self.sizes), axis=-1)

    def decode(self, codes: ArrayLike) -> dict[str, list[Any]]:
        """Return a value for each code, column by column."""
        return self.columns.decode(np.asarray(codes, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object from which this is made again. It holds public things alone."""
        return {"workload": self._settings(), "columns": self.columns.to_dict()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "BoundWorkload":
        """Return the workload that `to_dict` has described."""
        from quorate.release.workloads.workload import Workload  # noqa: PLC0415  (it makes these)

        if not isinstance(document, Mapping) or set(document) != {"workload", "columns"}:
            raise InvalidInput('a workload on columns is an object with "workload" and "columns"')
        asked = document["workload"]
        if isinstance(asked, Mapping) and asked.get("kind") in ("thresholds", "ranges"):
            asked = {"apart": False, **asked}  # as releases before 0.2 have it, which did not say so
        return Workload.from_dict(asked).bind(columns=Columns.from_dict(document["columns"]))


def tidy_name(text: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a query as a row of a tidy table; a column that is called like one of ours is in its text."""
    return {"query": text, **{name: value for name, value in named.items() if name not in _OURS}}


def check_asked(asked: Any, names: Iterable[str]) -> Mapping[str, Any]:
    """Return what is asked as a mapping from columns, or refuse it."""
    expected = list(names)
    if not isinstance(asked, Mapping) or set(asked) != set(expected):
        given = ", ".join(map(str, asked)) if isinstance(asked, Mapping) else repr(asked)
        raise InvalidInput(f"a query of this workload says {', '.join(expected)}, not {given}")
    return asked
