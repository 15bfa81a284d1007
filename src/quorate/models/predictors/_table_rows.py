"""The rows of a table of any size, read once: written to the disk here, or dealt among the workers of a cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble.clusters import ClusterRows, ClusterTable
from quorate.compute.ensemble.dealing import Encoded
from quorate.compute.ensemble.sources import SpilledRows
from quorate.core.arrays import Integers
from quorate.core.checks import check_bytes
from quorate.core.progress import progress
from quorate.models.predictors.labels import known_codes
from quorate.tables import Schema
from quorate.tables.files import TableStream

_LEAST_MEMORY = 10**8  # bytes: a batch of rows of a wide table takes some ten million


@dataclass(frozen=True, repr=False)
class Encoding:
    """How rows of a table become numbers and codes, in this process or on a worker."""

    schema: Schema
    classes: NDArray[Any]

    def __call__(self, table: Any) -> Encoded:
        """Return the rows, their class numbers, and whose they are."""
        assert self.schema.label is not None
        order = known_codes(self.classes, list(self.schema.label.classes))
        codes = np.append(order, -1)[self.schema.label_codes(table)]
        return self.schema.encode(table), codes, _people(self.schema, table)


def deal_table(source: Any, encoding: Encoding, cluster: Any) -> ClusterRows:
    """Return the rows of a table that the workers of a cluster read and deal among themselves."""
    table = source if isinstance(source, ClusterTable) else ClusterTable(source, cluster)
    schema = encoding.schema
    return table.dealt(encoding, features=len(schema.feature_names), by_person=schema.groups is not None)


def spill_table(
    source: Any, encoding: Encoding, memory: int | str | None = None, spill: str | Path | None = None
) -> SpilledRows:
    """Return the rows of a table, read some at a time and written to the disk."""
    size = check_bytes("memory", "1GB" if memory is None else memory, least=_LEAST_MEMORY)
    stream = source if isinstance(source, TableStream) else TableStream(source)
    return spill_rows(stream, encoding, SpilledRows(len(encoding.schema.feature_names), memory=size, folder=spill))


def spill_rows(stream: TableStream, encoding: Encoding, rows: SpilledRows) -> SpilledRows:
    """Read a table and write its rows to the disk."""
    try:
        with progress("reading records"):
            for first, batch in stream.placed():
                rows.add(encoding(batch), first=first)
    except BaseException:
        rows.close()
        raise
    return rows


def _people(schema: Schema, table: Any) -> tuple[list[str], Integers] | None:
    """Return the names of the people in a table, and whose each row is; None where a row is a unit."""
    names = schema.people(table)
    if names is None:
        return None
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(numbers), np.array([numbers[name] for name in names], dtype=np.int64)
