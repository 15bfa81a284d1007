"""Tables that are handed out: answers, synthetic records, what commands write. Nothing here reads a private value."""

import importlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra

_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that no .xlsx file may hold
_MOST_EXCEL_ROWS = 2**20 - 1  # below the names of the columns

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


def excel_bytes(table: Table) -> bytes:
    """Return a table as the content of an .xlsx file. Texts stay texts: none becomes a formula.

    >>> excel_bytes(make_table({"region": ["=1+1"], "cost": [2.5]}))[:2]
    b'PK'
    """
    openpyxl = import_extra("openpyxl", "excel", use="writing Excel")
    if table.num_rows > _MOST_EXCEL_ROWS:
        raise InvalidInput(f"an Excel sheet must have at most {_MOST_EXCEL_ROWS:,} rows, got {table.num_rows:,}")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()

    def make_cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        cell = openpyxl.cell.WriteOnlyCell(sheet, _UNWRITABLE.sub("\ufffd", value))
        cell.data_type = "s"
        return cell

    sheet.append([make_cell(name) for name in table.column_names])
    for batch in table.to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sheet.append([make_cell(value) for value in row])
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()
