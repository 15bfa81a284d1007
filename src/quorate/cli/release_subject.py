"""What `quorate release` is asked about."""

from typing import Any

import numpy as np
import pyarrow as pa

from quorate.concepts import Boxes, Concept, Halfspaces
from quorate.errors import InvalidInput
from quorate.release import Workload
from quorate.tables.lenient import read_columns, read_numbers

__all__ = ["Subject"]


class Subject:
    """What `--workload` says: a workload of tables, or boxes or halfspaces over columns of numbers."""

    def __init__(self, about: Workload | Concept, names: tuple[str, ...] = ()) -> None:
        self.about, self.names = about, names

    @classmethod
    def parse(cls, text: str) -> "Subject":
        """Return the subject that one word says."""
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
        """Return a table as the release takes it: as it is, or its columns as points; what is no number is NaN."""
        if not self.names:
            return table
        return np.stack([read_numbers(column) for column in read_columns(table, self.names).values()], axis=1)

    def public(self, table: pa.Table | None) -> Any:
        """Return public records; those of a class must be numbers, and an error may say which is not."""
        return None if table is None else self.records(table)
