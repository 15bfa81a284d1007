"""Kinds of columns from a public table, or from a header alone. Private rows are never looked at to choose one."""

import math
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.checks import check_count
from quorate.concepts.line import cut_points
from quorate.errors import InvalidInput
from quorate.tables.columns import (
    MISSING_TEXTS,
    Category,
    Kind,
    NotANumber,
    Number,
    is_readable,
    numbers,
    texts,
    whole_array,
)
from quorate.tables.document import EXAMPLE
from quorate.tables.lenient import read_numbers

__all__ = ["classes_from_public", "cuts_from_public", "kinds_from_header", "kinds_from_public"]

MOST_CATEGORIES = 256  # a column with more different texts is a name or a number of a person, more often than not
_MARKS = ("?", "-", "--", ".", "*")  # what people write where a number is missing


def kinds_from_public(table: pa.Table, *, without: Collection[str], missing: Sequence[str]) -> dict[str, Kind]:
    """Return a kind for each column of a public table: numbers where all values are numbers, else categories."""
    return {name: _kind(name, table.column(name), missing) for name in table.column_names if name not in without}


def kinds_from_header(table: pa.Table, *, without: Collection[str], missing: Sequence[str]) -> dict[str, Kind]:
    """Return unscaled numbers for all columns: names and types alone are used, and a column of texts is refused."""
    for name in table.column_names:
        if name in without:
            continue
        kind = table.schema.field(name).type
        try:
            plain = is_readable(kind)
            if plain:
                numbers(whole_array(table.column(name)), missing=missing)
        except NotANumber:
            plain = False
        if not plain:
            raise InvalidInput(
                f"column {name!r} holds {'texts' if is_readable(kind) else kind}: how to turn it into numbers must be "
                "said in public, because choosing from private records would give something of them away. Pass a "
                "public table of the same columns (--public), leave the column out, or write a schema (--schema), a "
                f"JSON file such as\n{EXAMPLE}"
            )
    return {name: Number() for name in table.column_names if name not in without}


def classes_from_public(table: pa.Table, label: str, *, missing: Sequence[str]) -> tuple[str, ...]:
    """Return the classes that the label column of a public table shows."""
    if label not in table.column_names:
        raise InvalidInput(
            f"the classes of the label {label!r} must be declared (classes=..., --classes, or in the schema): they are "
            "not taken from private records, and the public table has no such column"
        )
    return tuple(_different(label, whole_array(table.column(label)), missing))


def _kind(name: str, column: pa.ChunkedArray, missing: Sequence[str]) -> Kind:
    if not is_readable(column.type):
        raise InvalidInput(
            f"column {name!r} is of type {column.type}: only numbers, texts and truth values can be encoded; turn it "
            "into one of them or leave it out"
        )
    values = whole_array(column)
    if pa.types.is_boolean(values.type):
        return Category(("false", "true"), missing="indicator" if values.null_count else "refuse")
    try:
        given = numbers(values, missing=missing)
    except NotANumber:
        _check_not_gaps(name, values, missing)
        gaps = texts(values, missing=missing).null_count
        return Category(_different(name, values, missing), missing="indicator" if gaps else "refuse")
    known = given[~np.isnan(given)]
    if not known.size:
        raise InvalidInput(f"column {name!r} has no value in the public table: leave it out, or declare it in a schema")
    with np.errstate(all="ignore"):
        centre, spread = float(known.mean()), float(known.std())
    if not (math.isfinite(centre) and math.isfinite(spread)):
        raise InvalidInput(f"column {name!r} holds numbers that are infinite or too large in the public table")
    missing_too = known.size < given.size
    return Number(centre=centre, spread=spread or 1.0, missing="indicator" if missing_too else "refuse")


def _check_not_gaps(name: str, values: pa.Array, missing: Sequence[str]) -> None:
    """Refuse numbers among which a mark stands for a missing value: as categories they would mean nothing."""
    try:
        given = numbers(values, missing=[*missing, *_MARKS])
    except NotANumber:
        return
    if np.isnan(given).all():
        return
    written = texts(values, missing=missing)
    mark = next(text for text in _MARKS if pc.any(pc.equal(written, text)).as_py())
    raise InvalidInput(
        f"column {name!r} holds numbers and {mark!r} in the public table: if that means a missing value, say so "
        "(missing_texts, --missing-texts); if not, declare the column in a schema"
    )


def cuts_from_public(name: str, column: pa.Array, *, bins: int | None) -> Kind:
    """Return a column as a release takes it: numbers cut between public values, or the categories that they show.

    Without `bins` every gap between neighbouring values is cut; with `bins`, into cells that hold about as many values.
    """
    if pa.types.is_boolean(column.type):
        return Category(("false", "true"))
    values = read_numbers(column)
    known = values[np.isfinite(values)]
    written = texts(column, missing=MISSING_TEXTS)
    if known.size and known.size >= len(written) - written.null_count:
        return Number(cuts=(cut_points(np.unique(known)) if bins is None else _binned(known, bins)).tolist())
    return Category(_different(name, column, MISSING_TEXTS))


def _binned(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return cuts between distinct values that leave about as many values in each of so many cells."""
    distinct, counts = np.unique(values, return_counts=True)
    cuts, bins = cut_points(distinct), check_count("bins", bins)
    if cuts.size < bins:
        return cuts
    shares = np.cumsum(counts)[:-1] / values.size
    wanted = np.searchsorted(shares, np.arange(1, bins) / bins)
    return np.asarray(cuts[np.unique(np.minimum(wanted, cuts.size - 1))])


def _different(name: str, values: pa.Array, missing: Sequence[str]) -> list[str]:
    different = pc.drop_null(pc.unique(texts(values, missing=missing))).to_pylist()
    if not different:
        raise InvalidInput(f"column {name!r} has no value in the public table: leave it out, or declare it in a schema")
    if len(different) > MOST_CATEGORIES:
        raise InvalidInput(
            f"column {name!r} has {len(different)} different texts in the public table, and at most {MOST_CATEGORIES} "
            "can be taken for categories: leave it out, or declare it in a schema"
        )
    return sorted(different)
