"""Tables that are handed out: answers, synthetic records, what commands write. Nothing here reads a private value."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from quorate.core.errors import InvalidInput

Table: TypeAlias = pa.Table


def make_table(columns: Mapping[str, Any], *, missing: Mapping[str, Any] | None = None) -> Table:
    """Return columns as an Arrow table; `missing` says for some of them which values are."""
    masked = {name: pa.array(columns[name], mask=mask) for name, mask in (missing or {}).items()}
    return pa.table(dict(columns) | masked)


def make_frame(columns: Mapping[str, Any], library: Literal["pandas", "polars", "arrow"], *, index: Any = None) -> Any:
    """Return columns as a data frame of a library, or as an Arrow table."""
    if library == "arrow":
        return make_table(columns)
    try:
        frames = importlib.import_module(library)
    except ModuleNotFoundError:
        raise InvalidInput(f"a data frame of {library} needs {library}: install it, or ask for 'arrow'") from None
    return frames.DataFrame(columns) if index is None else frames.DataFrame(columns, index=index)


def write_csv(table: Table, path: Path) -> None:
    """Write a table as a CSV file."""
    pyarrow.csv.write_csv(table, path)


def parquet_bytes(table: Table) -> bytes:
    """Return a table as the content of a Parquet file."""
    written = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, written)
    content: bytes = written.getvalue().to_pybytes()
    return content
