"""Queries of a table as the data frame that a model was fitted on, for models that were saved from Python."""

import importlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quorate.errors import InvalidInput
from quorate.rows import FrameForm
from quorate.tables.read import MISSING_TEXTS, NotANumber, is_text, numbers, refusal, shown_names, texts, whole_array

__all__ = ["frame_of"]


def frame_of(table: pa.Table, form: FrameForm) -> Any:
    """Return a table of queries as a data frame like the one that a model was fitted on; the model checks the rest.

    A CSV file holds texts alone: a column that held numbers is read as numbers, and a missing value is one there.
    """
    lacking = [name for name in form.columns if name not in table.column_names]
    if lacking:
        raise InvalidInput(
            f"the queries must have the columns {shown_names(lacking)}; their columns are "
            f"{shown_names(table.column_names)}"
        )
    columns = {}
    for name, kind in zip(form.columns, form.kinds, strict=True):
        values = whole_array(table.column(name))
        if kind == "number":
            try:
                columns[name] = numbers(_truths_as_numbers(values), missing=MISSING_TEXTS)
            except NotANumber as error:
                raise refusal("query", name, "a number is expected, not a text", row=error.row) from None
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
