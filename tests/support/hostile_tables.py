"""Hostile tables: every pair of sources, kinds of columns and odd values, with one row changed.

`ODD` are values that somebody's record may hold. `SOURCES` pack the values of a column into a container, as its library
would. `READERS` are the ways in which columns are read behind the gate; each returns one item a row, comparable by
equality. `broken_cells` yields the cells in which a second row moved when one row was changed, or in which a row is
read otherwise in company than alone.
"""

import csv
import datetime as dt
import itertools
import math
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from quorate.core.errors import InvalidInput
from quorate.core.rows import query_digests
from quorate.release import Columns
from quorate.tables import Category, Date, FrameFormat, Label, Number, Schema, Text, read_table
from quorate.tables.containers import open_column, open_matrix, open_table
from quorate.tables.features import AdditiveColumns
from quorate.tables.learned import kinds_of_values
from quorate.tables.persons import name_persons
from quorate.tables.reading import DEFAULT_READING, Reading
from quorate.tables.values import read_texts

ODD: tuple[Any, ...] = (
    None, math.nan, math.inf, -math.inf, True, False, 0, -0.0, 1, 1.0, 2, 3.5, -7, 2**53 + 1, 10**17 + 1, 2**63, 10**30,
    1e-300, 1e300, 5e-324, np.float32(0.1), np.int8(3), np.bool_(True), np.float64("nan"), np.longdouble(1) / 3,
    Decimal("0.10"), Decimal("1.123456789012345678901"), Decimal("NaN"), Decimal("1E+40"), Fraction(1, 3), 1 + 0j,
    1 + 2j,
    "", " ", "NA", "nan", "NULL", "x", "a", " a ", "A", "12a", "1", "1.0", "01", "+1", "1e5", "1e999", "0x10", "1_000",
    "1,5", "1.234,5", "$5", "5%", "5 kg", "true", "TRUE", "yes", "é", "e\u0301", "\u00a0a\u00a0", "\x00", "\x1f",
    "\ud800", "\u2028",
    "a\nb", 'a"b', "a,b", "a;b", "=1+1", "9" * 400, "2024-05-31", "2024-05-31T08:30:00", "2024-05-31 00:00",
    "31.05.2024",
    "05/31/2024", "9999-12-31", "10000-01-01", "2024-02-30", b"a", b"\xffSECRET", bytearray(b"b"), dt.date(2024, 5, 31),
    dt.datetime(2024, 5, 31), dt.datetime(2024, 5, 31, 8, 30, 0, 1), dt.datetime(2024, 5, 31, 8, tzinfo=dt.UTC),
    dt.datetime(2024, 5, 31, 8, tzinfo=dt.timezone(dt.timedelta(hours=-7))), dt.date(1, 1, 1), dt.time(8, 30),
    dt.timedelta(days=3), np.datetime64("2024-05-31"), np.datetime64("NaT"), np.timedelta64(5, "s"),
    pd.Timestamp("2024-05-31"),
    pd.NaT, pd.NA, uuid.UUID(int=1), [1], (1, 2), {"a": 1}, object(), "a" * 5000,
    10**400, -(10**400), "1" * 700, "9" * 800 + ".5", "0." + "0" * 400 + "1", 2**64, "1.234", "+1.234", "Infinity",
    "-nan",
    "\u0661\u0662", "\ufeff1", "20240531", np.datetime64("20000-01-01"), np.datetime64(10**15, "s"), np.str_("1.0"),
    np.bytes_(b"2"), "false", "ja", "nein", "FALSE",
)  # fmt: skip

BASES: dict[str, tuple[Any, ...]] = {
    "whole": (1, 2, 3, 4, 5, 2),
    "floats": (0.5, 1.25, -3.0, 4.0, 2.5, 1.0),
    "tenths": (0.1, 0.2, 0.3, 1.1, 2.7, 0.7),
    "texts": ("a", "b", "a", "c", "b", "a"),
    "digits": ("1", "2", "3", "1", "2", "3"),
    "truths": (True, False, True, True, False, False),
    "dates": ("2024-01-01", "2024-05-31", "2023-12-31", "2024-01-02", "2024-02-29", "2024-01-01"),
    "days": tuple(dt.date(2024, 1, day) for day in (1, 5, 9, 2, 5, 7)),
    "moments": tuple(dt.datetime(2024, 1, day, 5, tzinfo=dt.UTC) for day in (1, 5, 9, 2, 5, 7)),
    "three decimals": (1.234, 2.345, -3.125, 4.567, 1.001, 2.5),
    "decimals": tuple(map(Decimal, ("1.234", "2.10", "3", "1.2345", "0.001", "7"))),
    "compact": (20240531, 20240101, 20231231, 20240102, 20240229, 20240101),
    "words": ("ja", "nein", "ja", "nein", "true", "false"),
    "long": (2**53 + 1, 10**17 + 1, 3, 4, 2**60 + 1, 2),
}


def _as_list(values: Sequence[Any]) -> Any:
    return {"x": list(values)}


def _as_objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return {"x": array}


def _as_array(values: Sequence[Any]) -> Any:
    return {"x": np.array(list(values))}


def _pandas(values: Sequence[Any]) -> Any:
    return pd.DataFrame({"x": list(values)})


def _pandas_objects(values: Sequence[Any]) -> Any:
    return pd.DataFrame({"x": pd.Series(_as_objects(values)["x"], dtype=object)})


def _as_deque(values: Sequence[Any]) -> Any:
    return {"x": deque(values)}


def _as_dict_values(values: Sequence[Any]) -> Any:
    return {"x": dict(enumerate(values)).values()}


def _pandas_array(values: Sequence[Any]) -> Any:
    return {"x": pd.array(_as_objects(values)["x"], dtype=object)}


def _pandas_nullable(values: Sequence[Any]) -> Any:
    return _pandas(values).convert_dtypes()


def _pandas_category(values: Sequence[Any]) -> Any:
    return pd.DataFrame({"x": pd.Categorical(list(values))})


def _pandas_index(values: Sequence[Any]) -> Any:
    return _pandas(values).set_index(pd.Index(range(len(values), 0, -1)))


def _polars(values: Sequence[Any]) -> Any:
    if any(isinstance(value, Decimal) and not value.is_finite() for value in values):
        raise ValueError("polars panics")
    return pl.DataFrame({"x": pl.Series(list(values), strict=False)})


def _arrow(values: Sequence[Any]) -> Any:
    return pa.table({"x": pa.array(list(values))})


def _arrow_dictionary(values: Sequence[Any]) -> Any:
    return pa.table({"x": pa.array(list(values)).dictionary_encode()})


def _arrow_decimal(values: Sequence[Any]) -> Any:
    return pa.table({"x": pa.array([None if v is None else Decimal(str(v)) for v in values])})


def _arrow_chunks(values: Sequence[Any]) -> Any:
    column = pa.array(list(values))
    return pa.table({"x": pa.chunked_array([column[:2], column[2:]])})


def _record_batch(values: Sequence[Any]) -> Any:
    return pa.record_batch({"x": pa.array(list(values))})


def _unquoted_csv(values: Sequence[Any]) -> Any:
    """Write each value by itself and quote only what must be: then a value may be the first bytes of a block."""
    texts = [text or "" for text in read_texts(open_column(list(values)), ()).to_pylist()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("x", "y"), *((text, "") for text in texts)])
        return read_table(path, role="private").select(["x"])


def _file(suffix: str, write: Callable[[pa.Table, Path], Any]) -> Callable[[Sequence[Any]], Any]:
    def pack(values: Sequence[Any]) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"table{suffix}")
            write(_arrow(values), path)
            return read_table(path, role="private")

    return pack


SOURCES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "list": _as_list,
    "objects": _as_objects,
    "array": _as_array,
    "pandas": _pandas,
    "pandas objects": _pandas_objects,
    "pandas array": _pandas_array,
    "deque": _as_deque,
    "dict values": _as_dict_values,
    "pandas nullable": _pandas_nullable,
    "pandas category": _pandas_category,
    "pandas index": _pandas_index,
    "polars": _polars,
    "arrow": _arrow,
    "arrow dictionary": _arrow_dictionary,
    "arrow decimal": _arrow_decimal,
    "arrow chunks": _arrow_chunks,
    "record batch": _record_batch,
    "parquet": _file(".parquet", pyarrow.parquet.write_table),
    "feather": _file(".feather", pyarrow.feather.write_feather),
    "csv": _file(".csv", pyarrow.csv.write_csv),
    "unquoted csv": _unquoted_csv,
}


def _rows_of(matrix: Any) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(matrix)]


def _encoded(kind: Any, reading: Reading = DEFAULT_READING) -> Callable[[Any], list[Any]]:
    schema = Schema({"x": kind}, reading=reading)
    return lambda table: _rows_of(schema.encode(_framed(table)))


def _framed(table: Any) -> Any:
    """Return mappings as a table of raw columns; frames as they are."""
    return pa.table(open_table(table).columns) if isinstance(table, dict) else table


def _labels(table: Any) -> list[Any]:
    label = Label("x", ["a", "b", "1", "2"])
    return label.codes(open_table(table).columns["x"], role="private").tolist()


def _cells(kind: Any) -> Callable[[Any], list[Any]]:
    columns = Columns({"x": kind})
    return lambda table: columns.encode(table).codes[:, 0].tolist()


def _additive(declared: Any) -> Callable[[Any], list[Any]]:
    columns = AdditiveColumns(declared={"x": declared}).fit(None)
    return lambda table: _rows_of(columns.encode(open_table(table)))


def _frame(numeric: bool) -> Callable[[Any], list[Any]]:
    form = FrameFormat("pandas", ("x",), ("number" if numeric else "text",))
    return lambda table: query_digests(form.read(table, role="private"))


READINGS = {
    "decimal commas": Reading(decimal=","),
    "own words": Reading(true_texts=("ja",), false_texts=("nein",)),
    "own marks": Reading(missing_texts=("", "2", "true", "1.234", "2024-05-31")),
    "months first": Reading(date_order="mdy", compact_dates=True),
}
_READ = {
    "number": Number(missing="indicator"),
    "category": Category(["a", "b", "1", "2", "true", "1.234"], missing="indicator"),
    "date": Date(low="2020-01-01", high="2025-01-01", missing="indicator"),
}


def _undeclared(table: Any) -> list[Any]:
    form = FrameFormat.of(_framed(table))
    return [(form.kinds, digest) for digest in query_digests(form.read(_framed(table), role="private"))]


READERS: dict[str, Callable[[Any], list[Any]]] = {
    **{f"{kind}, {name}": _encoded(_READ[kind], reading) for kind in _READ for name, reading in READINGS.items()},
    "undeclared": _undeclared,
    "learned kind": lambda table: kinds_of_values(open_table(table).columns["x"]).tolist(),
    "number": _encoded(Number(low=0, high=10)),
    "number, gaps": _encoded(Number(centre=1, spread=2, missing="indicator")),
    "number, plain": _encoded(Number()),
    "date": _encoded(Date(low="2020-01-01", high="2025-01-01", missing="indicator")),
    "category": _encoded(Category(["a", "b", "1", "2", "true"])),
    "category, gaps": _encoded(Category(["a", "1", "2.5"], missing="indicator")),
    "text": _encoded(Text(buckets=8)),
    "label": _labels,
    "person": lambda table: name_persons(open_table(table).columns["x"]),
    "number cells": _cells(Number(cuts=[0, 2, 4])),
    "category cells": _cells(Category(["a", "b", "1", "2"])),
    "date cells": _cells(Date(cuts=["2024-01-01", "2024-03-01"])),
    "ramps": _additive((0.0, 5.0)),
    "levels": _additive(["a", "b", "1", "2"]),
    "words": _additive("text"),
    "frame of numbers": _frame(True),
    "frame of texts": _frame(False),
    "matrix": lambda table: _rows_of(
        open_matrix(np.asarray(list(open_table(table).columns["x"].to_pylist()), dtype=object)[:, None])
    ),
}

# A library that cannot hold an odd value beside the others rewrites them all before the gate sees them: these sources
# make other texts of numbers (5.0 of 5), which texts that are read as they are then show.
REWRITING = ("array", "polars", "pandas category", "arrow decimal", "csv")
AS_THEY_ARE = ("list", "objects", "pandas objects", "pandas array", "deque", "dict values")  # hold any Python object
AS_WRITTEN = ("text", "words", "frame of texts", "undeclared")


def cells() -> list[tuple[str, str, str, int]]:
    """Return all cells: source, base, reader, and the number of the odd value.

    Long whole numbers stand in containers alone that make no floats of them.
    """
    every = itertools.product(SOURCES, BASES, READERS, range(len(ODD)))
    return [cell for cell in every if cell[1] != "long" or cell[0] in AS_THEY_ARE]


def packed(source: str, values: Sequence[Any]) -> Any:
    """Return the values in a container, or None where its library refuses them."""
    try:
        table = SOURCES[source](values)
        unreadable = isinstance(table, pl.DataFrame) and isinstance(table["x"].dtype, pl.List | pl.Struct | pl.Array)
        return None if unreadable or _has_nested(table) else table
    except InvalidInput:
        raise
    except Exception:  # of the library, before the gate sees anything
        return None


def _has_nested(table: Any) -> bool:
    return isinstance(table, pa.Table | pa.RecordBatch) and pa.types.is_nested(table.schema.field("x").type)


def moved_rows(source: str, base: str, reader: str, odd: int) -> list[int] | None:
    """Return the rows, beside the changed one, that are read otherwise once one row is odd; None for no such table.

    Where a source keeps every value as it is, the changed row must also be read in company as it is alone.
    """
    values, place = list(BASES[base]), 3
    changed = [*values[:place], ODD[odd], *values[place + 1 :]]
    before, after = packed(source, values), packed(source, changed)
    if before is None or after is None or _is_rewritten(source, base, reader, before, after):
        return None
    first, second = READERS[reader](before), READERS[reader](after)
    moved = [row for row in range(len(values)) if row != place and first[row] != second[row]]
    is_kept = source in (*AS_THEY_ARE, "unquoted csv") and reader != "undeclared"
    return moved + [place] * (is_kept and READERS[reader](packed(source, [ODD[odd]]))[0] != second[place])


def _is_rewritten(source: str, base: str, reader: str, before: Any, after: Any) -> bool:
    """Return whether the library gave other rows another value before the gate: a float for a long whole number."""
    if source in REWRITING and reader in AS_WRITTEN and base not in ("texts", "digits", "dates"):
        return True
    if source == "pandas category" and base in ("whole", "floats", "tenths"):
        return True  # pandas takes True and 1 for one category
    if source == "csv" and base == "decimals":
        return True  # Arrow writes all with the digits of the longest
    by_spelling = base in ("truths", "days", "moments") or reader.endswith(("decimal commas", "own marks"))
    if source in REWRITING and by_spelling and _type(before) != _type(after):
        return True  # the library has made texts of numbers and dates, or numbers of truth values
    # Nothing public says what this column holds: its type does, the claim says so, and one value may decide it.
    return reader == "undeclared" and FrameFormat.of(_framed(before)).kinds != FrameFormat.of(_framed(after)).kinds


def _type(table: Any) -> Any:
    values = table["x"]
    return getattr(values, "dtype", getattr(values, "type", None))


def broken_cells(chosen: Sequence[tuple[str, str, str, int]]) -> Iterator[str]:
    """Yield a sentence for each cell in which a second row moved."""
    for source, base, reader, odd in chosen:
        moved = moved_rows(source, base, reader, odd)
        if moved:
            yield f"{source}, {base}, {reader}, {ODD[odd]!r:.60}: rows {moved} moved"
