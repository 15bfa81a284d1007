"""Replacing one unit: a row, a person of whom there is one row more or less, a query, a point of the pool."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from matrix.containers import Container
from matrix.subjects import Table

_FAR = 1e200  # as far as the container goes


class Replaced(NamedTuple):
    """The neighbouring table, and what was done to it, in words."""

    what: str
    table: Table


def replaced_rows(table: Table, container: Container, *, rows: int = 3, missing: bool) -> Iterator[Replaced]:
    """Yield neighbours with one row replaced: by an ordinary, a far or a finer value, or a missing one."""
    values = {"an ordinary one": 7.0, "a far one": _FAR}
    if container.name == "lists":
        values["a decimal one"] = 3.5
    if missing and container.decimal:
        values["a missing value"] = np.nan
    for number in range(rows):
        row = (3 + 7 * number) % len(table.y)
        for what, value in values.items():
            X, y, names = table.X.copy(), table.y.copy(), list(table.names)
            X[row], y[row], names[row] = value, 1 - y[row], f"name {row}"
            yield Replaced(f"row {row} by {what}", Table(X, y, names, table.people))


def replaced_people(table: Table, *, people: int = 2) -> Iterator[Replaced]:
    """Yield neighbours with all rows of one person replaced: by as many others, by one more, by one less."""
    for number in range(people):
        row = 2 * ((1 + 3 * number) % (len(table.y) // 2))  # the person's first
        for what, rows in (("as many rows", 2), ("one row more", 3), ("one row less", 1)):
            X = np.vstack([table.X[:row], np.full((rows, table.X.shape[1]), 8.0), table.X[row + 2 :]])
            y = np.concatenate([table.y[:row], np.zeros(rows, dtype=np.int64), table.y[row + 2 :]])
            people_ = np.concatenate([table.people[:row], np.full(rows, row // 2), table.people[row + 2 :]])
            names = [*table.names[:row], *(f"name {place}" for place in range(rows)), *table.names[row + 2 :]]
            yield Replaced(f"person {row // 2} by one with {what}", Table(X, y, names, people_))
