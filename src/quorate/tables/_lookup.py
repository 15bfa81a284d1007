"""Encode columns of queries one by one, for a server: declared texts are looked up in tables that are built once.

The tables come from the schema, which is public, and never change. So the work of a request depends only on that
request, not on earlier ones.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables.columns import Category, Date, encode_features
from quorate.tables.containers import open_column
from quorate.tables.schema import Schema


class QueryEncoder:
    """Encodes columns of queries as `Schema.encode` does, but looks up declared texts."""

    def __init__(self, schema: Schema) -> None:
        self._columns, self._reading = dict(schema.columns), schema.reading
        self._tables: dict[str, tuple[dict[str, int], Floats]] = {}
        for name, kind in self._columns.items():
            if isinstance(kind, Category):
                gaps = self._reading.missing_texts if kind.missing == "indicator" else ()
                texts = list(dict.fromkeys([*kind.categories, *gaps]))  # all that the schema itself spells out
                self._tables[name] = {text: index for index, text in enumerate(texts)}, self._by_arrow(name, texts)
            with suppress(InvalidInput):  # "0" may mean no value
                # Arrow initialises at its first use, which is slow; do it before the first request.
                self._by_arrow(name, ["2000-01-01" if isinstance(kind, Date) else "0"])

    def encode(self, name: str, values: Sequence[str] | NDArray[Any]) -> Floats:
        """Return one row per value.

        `InvalidInput` names the column and the first row that the schema refuses.
        """
        if name in self._tables and isinstance(values, list):
            indices, rows = self._tables[name]
            row_numbers = [indices.get(text, -1) for text in values]
            if -1 not in row_numbers:
                return rows[row_numbers]
        return self._by_arrow(name, values)

    def _by_arrow(self, name: str, values: Sequence[str] | NDArray[Any]) -> Floats:
        return encode_features(self._columns[name], open_column(values), name, role="query", rules=self._reading)
