"""The gate: every table enters here, value by value, by public rules.

    Reading         the public rules by which texts are numbers, dates, truth values or missing
    values          one column: each value read by itself as a number, a moment, a text or a code
    containers      arrays, lists, mappings and data frames become raw columns
    files, sources  CSV, Parquet, Arrow and Excel files, folders, addresses and queries, whole or in batches
    persons         one canonical name for all spellings of a person's name
    columns         Number, Date, Category, Text, Label: how a column is declared, and its features for learners
    embedded        Embedded: a column of sentences that a public model turns into vectors
    cells           the same columns as cells for releases
    Schema          the columns, their kinds and encoding; from a JSON file or a public table, or learned with noise
    LearnedFacts    the claim and the noisy marginals of a learned schema
    FrameFormat     the data frames that an estimator sees: floats and texts
    QueryEncoder    encodes the columns of queries by a schema, for a server

The encoding of a row depends on public declarations and on that row alone, bit for bit (PROOF.md). A private value
never causes an error or a warning and never decides a type; an unreadable value counts as missing. Errors about private
records name a column, never a row, a value or a count. Only `Schema.from_private` learns from private records, and it
pays for that.
"""

from quorate.tables._embedded import Embedded, register_embedder
from quorate.tables.columns import Category, Date, Label, Number, Text
from quorate.tables.containers import as_table
from quorate.tables.files import read_table
from quorate.tables.frames import FrameFormat, QueryEncoder
from quorate.tables.learned import ColumnMarginal, LearnedFacts
from quorate.tables.reading import MISSING_TEXTS, Reading
from quorate.tables.schema import SCHEMA_FILE, Schema

__all__ = [
    "MISSING_TEXTS",
    "SCHEMA_FILE",
    "Category",
    "ColumnMarginal",
    "Date",
    "Embedded",
    "FrameFormat",
    "Label",
    "LearnedFacts",
    "Number",
    "QueryEncoder",
    "Reading",
    "Schema",
    "Text",
    "as_table",
    "read_table",
    "register_embedder",
]
