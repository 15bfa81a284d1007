"""What `quorate release` is asked about, and the queries that it is asked."""

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from quorate.concepts import Box, Boxes, Concept, Halfspace, Halfspaces, Hypothesis
from quorate.errors import InvalidInput
from quorate.release import Workload
from quorate.release.tables.values import read_columns, read_numbers

__all__ = ["Subject", "parse_queries"]


class Subject:
    """What `--workload` says: a workload of tables, or boxes or halfspaces over columns of numbers.

    >>> Subject.parse("marginals:2").names, Subject.parse("boxes:x,y").names
    ((), ('x', 'y'))
    """

    def __init__(self, about: Workload | Concept, names: tuple[str, ...] = ()) -> None:
        self.about, self.names = about, names

    @classmethod
    def parse(cls, text: str) -> "Subject":
        """Return the subject that one word says.

        >>> Subject.parse("halfspaces:x,y").about
        Halfspaces(features=2)
        """
        kind, _, rest = text.partition(":")
        if kind not in ("boxes", "halfspaces"):
            try:
                return cls(Workload.parse(text))
            except InvalidInput as error:
                raise InvalidInput(f"{error}; or boxes:COLUMN,... or halfspaces:COLUMN,COLUMN") from None
        names = tuple(name.strip() for name in rest.split(",") if name.strip())
        if not names or len(set(names)) != len(names):
            raise InvalidInput(f"{kind} are over different columns of numbers: {kind}:COLUMN,COLUMN, not {text!r}")
        return cls(Boxes(len(names)) if kind == "boxes" else Halfspaces(len(names)), names)

    def records(self, table: pa.Table) -> Any:
        """Return a table as the release takes it: as it is, or its columns as points; what is no number is NaN.

        >>> Subject.parse("boxes:x").records(pa.table({"x": ["1.5", "?"], "y": [0, 0]})).tolist()
        [[1.5], [nan]]
        """
        if not self.names:
            return table
        return np.stack([read_numbers(column) for column in read_columns(table, self.names).values()], axis=1)

    def public(self, table: pa.Table | None) -> Any:
        """Return public records; those of a class must be numbers, and an error may say which is not.

        >>> Subject.parse("boxes:x").public(pa.table({"x": [1.5]})).tolist()
        [[1.5]]
        """
        return None if table is None else self.records(table)


def parse_queries(texts: Sequence[str], about: Any) -> list[Any]:
    """Return queries as they are asked on the command line.

    An expression or a JSON object {"column": value} for a workload; "low:high,low:high" for boxes, with an end left
    out where there is none; "a,b>c" for the halfspace a*x + b*y > c.

    >>> parse_queries(["0:1,:2"], Boxes(2))
    [Box(lower=(0.0, -inf), upper=(1.0, 2.0))]
    >>> parse_queries(['{"age": 40}', "age < 40"], None)
    [{'age': 40}, 'age < 40']
    """
    if isinstance(about, Boxes):
        return [_box(text, about.features) for text in texts]
    if isinstance(about, Halfspaces):
        return [_halfspace(text, about.features) for text in texts]
    return [_named(text) for text in texts]


def _named(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        named = json.loads(text)
    except ValueError:
        raise InvalidInput(f'a query as a JSON object must be readable, such as {{"age": 40}}, not {text!r}') from None
    return {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}


def _box(text: str, features: int) -> Hypothesis:
    try:
        ends = [part.split(":") for part in text.split(",")]
        lower = tuple(float(low) if low.strip() else -np.inf for low, _ in ends)
        upper = tuple(float(high) if high.strip() else np.inf for _, high in ends)
    except ValueError:
        lower = upper = ()
    if len(lower) != features or any(not low <= high for low, high in zip(lower, upper, strict=True)):
        raise InvalidInput(f"a box is asked by its {features} sides, low:high,low:high, not {text!r}")
    return Box(lower, upper)


def _halfspace(text: str, features: int) -> Hypothesis:
    normal, _, offset = text.partition(">")
    try:
        level = tuple(Fraction(value.strip()) for value in normal.split(",")), Fraction(offset.strip())
    except (ValueError, ZeroDivisionError):
        level = (), Fraction(0)
    if len(level[0]) != features or not any(level[0]):
        raise InvalidInput(f"a halfspace is asked by {features} numbers and an offset, a,b>c, not {text!r}")
    return Halfspace(features=features, levels=(level,), otherwise=0)
