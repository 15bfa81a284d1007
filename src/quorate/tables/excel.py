"""Excel workbooks (.xlsx): the first sheet, whose first row that is not empty names the columns.

Each cell is read by itself, as what it shows or, of a formula, as the value that was saved with it. Cells beyond the
named columns are not read, and a row without any value is none.
"""

import importlib
import itertools
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from quorate.core.errors import InvalidInput
from quorate.tables.values import object_texts

__all__ = ["excel_header", "stream_excel"]

_ROWS = 2**14  # read together


def stream_excel(path: Path) -> Iterator[pa.Table]:
    """Yield the rows of a workbook as texts, some thousands at a time."""
    with closing(_workbook(path)) as book:
        rows = _rows(path, book)
        names = _names(path, rows)
        while part := _next_rows(rows, len(names)):
            yield pa.table([object_texts(column) for column in zip(*part, strict=True)], names=names)


def excel_header(path: Path) -> list[str]:
    """Return the names of the columns of a workbook."""
    with closing(_workbook(path)) as book:
        return _names(path, _rows(path, book))


def _workbook(path: Path) -> Any:
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        raise InvalidInput(f"{path}: reading Excel needs openpyxl; install it: pip install 'quorate[excel]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception:  # of zip, XML or openpyxl; the text of the error may hold values of private rows
        raise InvalidInput(f"{path}: not a readable .xlsx file; it may be damaged, encrypted or misnamed") from None


def _rows(path: Path, book: Any) -> Iterator[tuple[Any, ...]]:
    sheet = book.worksheets[0]
    sheet.reset_dimensions()  # which some programs write wrong
    try:
        for row in sheet.iter_rows(values_only=True):
            if any(value is not None for value in row):
                yield row
    except Exception:  # as above
        raise InvalidInput(f"{path}: not a readable .xlsx file; it may be damaged") from None


def _names(path: Path, rows: Iterator[tuple[Any, ...]]) -> list[str]:
    header = next(rows, ())
    names = ["" if name is None else str(name).strip() for name in header]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise InvalidInput(f"{path}: the first sheet is empty; its first row must name the columns")
    return names


def _next_rows(rows: Iterator[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    """Return the next rows, each with one value for each column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl warns of dates beyond its calendar, by value
        return [(row + (None,) * width)[:width] for row in itertools.islice(rows, _ROWS)]
