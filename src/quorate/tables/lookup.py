"""The columns of queries encoded one by one, for a server: declared texts are looked up in tables that are made once.

The tables come from the schema, which is public, and never change. What a request costs is therefore a function of that
request: it is the same whatever others have asked before.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.tables.kinds import Category, Kind
from quorate.tables.schema import Schema

__all__ = ["QueryEncoder"]

Matrix = NDArray[np.float64]


class QueryEncoder:
    """Encodes columns of queries as `Schema.encode` does, without the detour by a table for texts that are declared.

    >>> from quorate.tables import Number
    >>> encoder = QueryEncoder(Schema({"age": Number(low=0, high=100), "sex": Category(["f", "m"])}))
    >>> encoder.encode("sex", ["m", "f"]).tolist(), encoder.encode("sex", [" m", "x"]).tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]])
    """

    def __init__(self, schema: Schema) -> None:
        self._columns, self._missing = dict(schema.columns), tuple(schema.missing_texts)
        self._tables: dict[str, tuple[dict[str, int], Matrix]] = {}
        for name, kind in self._columns.items():
            if isinstance(kind, Category):
                texts = _declared(kind, self._missing)
                self._tables[name] = {text: place for place, text in enumerate(texts)}, self._by_arrow(name, texts)
            with suppress(InvalidInput):  # "0" may mean no value
                # Arrow loads what it needs at its first use, and that takes a while: no caller's request is the first.
                self._by_arrow(name, ["0"])

    def encode(self, name: str, values: Sequence[str] | NDArray[Any]) -> Matrix:
        """Return one row a value. `InvalidInput` names the column and the first row that the schema refuses.

        >>> from quorate.tables import Number
        >>> QueryEncoder(Schema({"age": Number()})).encode("age", np.array([3, 4])).tolist()
        [[3.0], [4.0]]
        """
        if name in self._tables and isinstance(values, list):
            places, rows = self._tables[name]
            found = [places.get(text, -1) for text in values]
            if -1 not in found:
                return rows[found]
        return self._by_arrow(name, values)

    def _by_arrow(self, name: str, values: Sequence[str] | NDArray[Any]) -> Matrix:
        kind: Kind = self._columns[name]
        return kind.encode(pa.array(values), name, role="query", missing=self._missing)


def _declared(kind: Category, missing: Sequence[str]) -> list[str]:
    """Return the texts that the schema itself spells out: the categories, and what means no value where that may be."""
    return list(dict.fromkeys([*kind.categories, *(missing if kind.missing == "indicator" else ())]))
