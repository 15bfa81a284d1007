"""Tables and what is known about them in public: from files and frames to numbers.

    read_table, as_table    a table from a CSV, Parquet or Arrow file, or from a pandas or polars frame
    Schema                  which columns, of which kind, encoded how; from a JSON file or from a public table
    Number, Category        the kinds of columns
    Label                   the column with the label, and its classes
    QueryEncoder            the columns of queries encoded by a schema, as a server does it

The numbers of a row depend on the schema and on that row alone. Nothing is ever learned from private records here, and
an error about them names a column, never a row, a value or a count.
"""

from quorate.tables.frames import as_table
from quorate.tables.kinds import Category, Label, Number
from quorate.tables.lookup import QueryEncoder
from quorate.tables.read import SUFFIXES, read_table
from quorate.tables.schema import MISSING_TEXTS, SCHEMA_FILE, Schema

__all__ = [
    "MISSING_TEXTS",
    "SCHEMA_FILE",
    "SUFFIXES",
    "Category",
    "Label",
    "Number",
    "QueryEncoder",
    "Schema",
    "as_table",
    "read_table",
]
