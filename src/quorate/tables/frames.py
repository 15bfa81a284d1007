"""Rows of a table, as a data frame or numbers, for a model that was saved from Python without a schema."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.rows import FrameForm
from quorate.tables.columns import Number
from quorate.tables.lenient import read_columns, read_numbers
from quorate.tables.read import (
    MISSING_TEXTS,
    NotANumber,
    Role,
    is_text,
    numbers,
    refusal,
    shown_names,
    subject,
    texts,
    whole_array,
)
from quorate.tables.schema import Schema

__all__ = ["frame_of", "matrix_of"]


def matrix_of(
    table: pa.Table, names: Sequence[str], features: int, *, missing: bool, role: Role = "query"
) -> NDArray[np.float64]:
    """Return a table as the matrix that a model takes: these columns, or all of them if they have no names.

    A missing value is nan if the model takes missing values, and is refused otherwise. No private value is refused: one
    that is not a number counts as missing.
    """
    given = list(names) or table.column_names
    if len(given) != features:
        raise InvalidInput(f"{subject(role)} must have {features} columns, as the records had, not {len(given)}")
    if role == "private":
        columns = read_columns(table, given, whose=subject(role))
        return np.stack([read_numbers(_truths_as_numbers(columns[name])) for name in given], axis=1)
    kind = Number(missing="indicator" if missing else "refuse")
    encoded = Schema(dict.fromkeys(given, kind)).encode(table, role=role)
    return encoded if kind.missing == "refuse" else np.where(encoded[:, 1::2] == 1, np.nan, encoded[:, ::2])


def frame_of(table: pa.Table, form: FrameForm, *, role: Role = "query") -> Any:
    """Return a table as a data frame like the one that a model was fitted on; the model checks the rest.

    A CSV file contains only texts: a column that held numbers is read as numbers. Missing values stay missing, and a
    private value that is not a number counts as missing.
    """
    lacking = [name for name in form.columns if name not in table.column_names]
    if lacking:
        raise InvalidInput(
            f"{subject(role)} must have the columns {shown_names(lacking)}; their columns are "
            f"{shown_names(table.column_names)}"
        )
    columns = {}
    for name, kind in zip(form.columns, form.kinds, strict=True):
        values = whole_array(table.column(name))
        if kind == "number" and role == "private":
            columns[name] = read_numbers(_truths_as_numbers(values))
        elif kind == "number":
            try:
                columns[name] = numbers(_truths_as_numbers(values), missing=MISSING_TEXTS)
            except NotANumber as error:
                raise refusal(role, name, "a number is expected, not a text", row=error.row) from None
        else:
            columns[name] = (texts(values, missing=MISSING_TEXTS) if is_text(values.type) else values).to_pylist()
    return importlib.import_module(form.library).DataFrame(columns)


def _truths_as_numbers(values: pa.Array) -> pa.Array:
    """Return texts with 1 and 0 in place of true and false, as a file has them where a frame had truth values."""
    if not is_text(values.type):
        return values
    lowered = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    for word, digit in (("true", "1"), ("false", "0")):
        values = pc.if_else(pc.equal(lowered, word), digit, values)
    return values
