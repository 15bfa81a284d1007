"""Excel workbooks and queries to databases: the names of their columns, and their rows in batches of texts.

Errors do not repeat what a library or a database says, because it may name a value.
"""

import importlib
import itertools
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra
from quorate.tables.containers import foreign
from quorate.tables.csv_files import empty_texts
from quorate.tables.values import object_texts

_ROWS = 2**14  # read together
DATABASE = re.compile(r"(duckdb|postgres|postgresql):(.*?)[?&]query=(.+)", re.DOTALL)
_POSTGRES_TEXTS = (
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "timetz",
    "interval",
)  # Python's types cannot hold distant dates.

# Table functions of DuckDB that read files and databases with declared types. All others are refused.
_TYPED_SCAN = re.compile(
    r"(seq|table|index|parquet|iceberg|delta|postgres|mysql)_scan|read_parquet|range|generate_series"
)

Result = tuple[pa.Table, Iterator[pa.Table]]  # a header without rows, and the rows


def _object_tables(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> Iterator[pa.Table]:
    """Yield rows of Python objects as texts, some thousands at a time, each with one value for each name."""
    width = len(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl warns of dates beyond its calendar, by value
        while part := [(*row, *(None,) * width)[:width] for row in itertools.islice(rows, _ROWS)]:
            yield pa.table([object_texts(column) for column in zip(*part, strict=True)], names=names)


@contextmanager
def open_excel(path: Path) -> Iterator[Result]:
    """Give the header of the first sheet of a workbook, and its rows up to the last that has a value."""
    openpyxl = import_extra("openpyxl", "excel", use=f"{path}: reading Excel")
    unreadable = f"{path}: not a readable .xlsx file; it may be damaged, encrypted or misnamed"
    with foreign(unreadable), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    with closing(book):
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # which some programs write wrong
        rows = _without_margins(_sheet_rows(path, sheet))
        names = ["" if name is None else str(name).strip() for name in next(rows, ())]
        while names and not names[-1]:
            names.pop()
        if not names:
            raise InvalidInput(f"{path}: the first sheet is empty; its first row must name the columns")
        yield empty_texts(names), _object_tables(names, rows)


def _without_margins(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows without those before the first and behind the last that have a value.

    An empty row between others is a record with all values missing. Dropping it would shift the later rows.
    """
    empty: int | None = None  # rows since the last that has a value; None before the first
    for row in rows:
        if any(value is not None for value in row):
            yield from ((),) * (empty or 0)
            yield row
            empty = 0
        elif empty is not None:
            empty += 1


def _sheet_rows(path: Path, sheet: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row, with "" for a cell whose value does not fit its type, on which openpyxl raises."""
    parser_class = importlib.import_module("openpyxl.worksheet._reader").WorkSheetParser

    class Parser(parser_class):  # type: ignore[misc, valid-type]
        col_counter: int

        def parse_cell(self, element: Any) -> Any:
            column = self.col_counter
            try:
                return super().parse_cell(element)
            except Exception:  # by a value; without it, what is left is the place of the cell
                self.col_counter = column
                element.attrib.pop("s", None)
                for part in list(element):
                    element.remove(part)
                return super().parse_cell(element) | {"value": ""}

    book = sheet.parent
    names = ("_date_formats", "_timedelta_formats", "_shared_strings", "_get_source", "_get_row")
    parts: list[Any] = [getattr(sheet, name, getattr(book, name, None)) for name in names]
    dates, spans, strings, open_source, row_of = parts
    with foreign(f"{path}: not a readable .xlsx file; it may be damaged"), open_source() as source:
        parser = Parser(source, strings, data_only=True, epoch=book.epoch, date_formats=dates, timedelta_formats=spans)
        previous = 0
        for number, cells in parser.parse():
            yield from ((),) * (number - previous - 1)  # rows that the file does not have, since they are empty
            yield row_of(cells, values_only=True)
            previous = number


@contextmanager
def open_query(address: str) -> Iterator[Result]:
    """Give the header of a query, and its rows. Connections only read."""
    match = DATABASE.fullmatch(address)
    assert match is not None
    system, query = match[1], unquote(match[3])
    library = import_extra("duckdb" if system == "duckdb" else "psycopg", "sql", use=f"{system}:...: a query")
    result = _duckdb(library, unquote(match[2]), query) if system == "duckdb" else _postgres(library, match[2], query)
    with foreign(f"{system}: the query failed; try it in the database's own shell"), result as opened:
        yield opened


@contextmanager
def _duckdb(duckdb: Any, path: str, query: str) -> Iterator[Result]:
    if path and not Path(path).is_file():
        raise InvalidInput(f"{path}: there is no such database")
    with closing(duckdb.connect(path or ":memory:", read_only=bool(path))) as connection:
        connection.execute("SET python_enable_replacements = false")  # a name in a query means no Python variable
        _check_query(duckdb, connection, query)
        rows = connection.sql(query)
        # Older versions of DuckDB have another name for it.
        read = rows.to_arrow_reader if hasattr(rows, "to_arrow_reader") else rows.fetch_arrow_reader
        reader = read(_ROWS)
        yield reader.schema.empty_table(), (pa.Table.from_batches([batch]) for batch in reader)


def _check_query(duckdb: Any, connection: Any, query: str) -> None:
    """Refuse a query that is not one SELECT, or that reads files whose values decide their columns and types."""
    statements = connection.extract_statements(query)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise InvalidInput("duckdb: the query must be one SELECT statement")
    plans = connection.execute(f"EXPLAIN (FORMAT json) {statements[0].query}").fetchall()
    scans = {scan for _, plan in plans for scan in _table_functions(json.loads(plan))}
    if untyped := [scan for scan in scans if _TYPED_SCAN.fullmatch(scan) is None]:
        raise InvalidInput(
            f"duckdb: {', '.join(sorted(untyped))} lets values decide columns and types, and one of them could "
            "change all others; give a CSV file by its path, and other files as Parquet"
        )


def _table_functions(plan: Any) -> Iterator[str]:
    """Yield the names of the table functions in a plan of DuckDB, those behind views and in subqueries too."""
    for node in plan:
        details = node.get("extra_info")
        if isinstance(details, dict) and "Function" in details:
            yield str(details["Function"]).strip().lower()
        yield from _table_functions(node.get("children", ()))


@contextmanager
def _postgres(psycopg: Any, location: str, query: str) -> Iterator[Result]:
    texts = importlib.import_module("psycopg.types.string").TextLoader
    with psycopg.connect("postgresql://" + location.lstrip("/")) as connection:
        connection.read_only = True
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET DateStyle TO ISO")
        with connection.cursor(name="quorate") as cursor:
            for kind in _POSTGRES_TEXTS:
                cursor.adapters.register_loader(kind, texts)
            cursor.itersize = _ROWS
            cursor.execute(query)
            names = [column.name for column in cursor.description]
            yield empty_texts(names), _object_tables(names, iter(cursor))
