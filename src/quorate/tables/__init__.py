"""Tables and their public schema: from files and frames to numbers, and to cells.

    read_table, as_table    a table from a CSV, Parquet or Arrow file, or from a pandas or polars frame
    frame_of, matrix_of     a table in the form that a model saved without a schema was fitted on
    Number, Date,           how a column is declared; `columns` encodes it for learners, `cells` for releases
    Category, Text
    Label                   the column with the label, and its classes
    Schema                  the columns, their kinds and encoding; from a JSON file or from a public table
    QueryEncoder            encodes the columns of queries by a schema, for a server

The encoding of a row depends only on the declaration and on that row. Nothing is ever learned from private records
here, and an error about them names a column, never a row, a value or a count.
"""

from quorate.tables.columns import Category, Date, Label, Number, Text
from quorate.tables.frames import frame_of, matrix_of
from quorate.tables.lookup import QueryEncoder
from quorate.tables.read import MISSING_TEXTS, SUFFIXES, as_table, read_table
from quorate.tables.schema import SCHEMA_FILE, Schema

__all__ = [
    "MISSING_TEXTS",
    "SCHEMA_FILE",
    "SUFFIXES",
    "Category",
    "Date",
    "Label",
    "Number",
    "QueryEncoder",
    "Schema",
    "Text",
    "as_table",
    "frame_of",
    "matrix_of",
    "read_table",
]
