"""The input of estimators: a matrix of floats, or a data frame of floats and texts.

A model that was fitted on a data frame has a `FrameFormat`: the library, the names of the columns and whether each is
a number, a date or a text. Records of a fit and queries become frames of that format, value by value, whatever frame
they come in. The kinds come from a schema, from public rows or from a published model. Only a fit without these takes
them from the types of the private columns, which are then public, and the claim says so. Nothing finer is taken from
private records: neither categories nor the difference between whole numbers and floats.
"""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables.columns import Category, Date, encode_features
from quorate.tables.containers import OpenTable, Role, column_names, is_frame, open_column, open_table, refusal, subject
from quorate.tables.dates import DateUnit, read_moments
from quorate.tables.reading import DEFAULT_READING, MISSING_TEXTS, Reading, Rules, as_reading
from quorate.tables.values import read_numbers, read_texts

if TYPE_CHECKING:
    from quorate.tables.schema import Schema

ColumnKind = Literal["number", "date", "text"]
_FRAME_LIBRARIES = ("pandas", "polars")  # neither is a dependency
_DATES_IN: DateUnit = "days"  # since the beginning of 1970: how an estimator gets dates


@dataclass(frozen=True)
class FrameFormat:
    """The format of the data frames that an estimator sees: 64-bit floats and texts, rows numbered from 0.

    Dates are days since the beginning of 1970, in UTC. A missing number or date is NaN, a missing text None or NaN, as
    the library has it.
    """

    library: str
    columns: tuple[Any, ...]
    kinds: tuple[ColumnKind, ...]
    reading: Reading = DEFAULT_READING

    @classmethod
    def of(cls, X: Any) -> "FrameFormat":
        """Return the format for the columns of a frame, by their names and types alone."""
        opened = open_table(X)
        return cls(_library(X), tuple(opened.columns), tuple(opened.kinds.values()))  # type: ignore[arg-type]

    @classmethod
    def of_public(cls, public: Any, X: Any) -> "FrameFormat | None":
        """Return the format of a private frame's columns by the types that public rows have, or None without any."""
        if not is_frame(public):
            return None
        names = column_names(X)
        kinds = open_table(public, names, source="the public table").kinds
        return cls.of_kinds(X, names, [kinds[name] for name in names])  # type: ignore[misc]

    @classmethod
    def of_kinds(
        cls, X: Any, columns: Sequence[Any], kinds: Sequence[ColumnKind], reading: Reading = DEFAULT_READING
    ) -> "FrameFormat":
        """Return the format for frames of X's library whose columns are declared."""
        return cls(_library(X), tuple(columns), tuple(kinds), reading)

    def kind_of(self, name: Any) -> ColumnKind:
        """Return the kind of a column."""
        return self.kinds[self.columns.index(name)]

    def read(self, X: Any, *, role: Role = "query") -> Any:
        """Return rows as a frame of this format; a private value that cannot be read is missing.

        A query whose number or date cannot be read is refused.
        """
        return self._frame(self._read_columns(X, role))

    def read_opened(self, X: Any, *, role: Role = "query") -> OpenTable:
        """Return the columns of `read`, without a frame around them."""
        return open_table(self._read_columns(X, role))

    def _read_columns(self, X: Any, role: Role) -> dict[Any, Any]:
        opened = open_table(X, self.columns, source=subject(role))
        pairs = zip(self.columns, self.kinds, strict=True)
        return {name: read_column(name, opened.columns[name], kind, role, self.reading) for name, kind in pairs}

    def _frame(self, columns: Mapping[Any, Any]) -> Any:
        frames = _imported(self.library)
        if self.library == "pyarrow":
            return pa.table(
                {
                    name: pa.array(values, pa.string() if isinstance(values, list) else pa.float64())
                    for name, values in columns.items()
                }
            )
        if self.library == "polars":
            types = {True: frames.String, False: frames.Float64}
            series = {
                name: frames.Series(values, dtype=types[isinstance(values, list)]) for name, values in columns.items()
            }
            return frames.DataFrame(series)
        text = "str" if int(frames.__version__.partition(".")[0]) >= 3 else object
        return frames.DataFrame(
            {
                name: frames.Series(_with_nan(values), dtype=text) if isinstance(values, list) else values
                for name, values in columns.items()
            }
        )

    def to_document(self) -> dict[str, Any]:
        """Return the format as a manifest keeps it."""
        for name in self.columns:
            if not isinstance(name, str | int):
                raise InvalidInput(f"columns must be named by texts or numbers to be saved, got {name!r}")
        pairs = zip(self.columns, self.kinds, strict=True)
        rules = {} if self.reading == DEFAULT_READING else {"reading": self.reading.to_document()}
        columns = [{"name": name, "kind": kind} for name, kind in pairs]
        return {"kind": "frame", "library": self.library, "columns": columns, **rules}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "FrameFormat":
        """Return the format that a manifest describes."""
        _imported(document["library"])
        kinds = tuple(column["kind"] for column in document["columns"])
        if not set(kinds) <= {"number", "date", "text"}:
            raise InvalidInput("the columns of the model are damaged or were changed")
        names = tuple(column["name"] for column in document["columns"])
        return cls(document["library"], names, kinds, Reading.from_document(document.get("reading", {})))


def named_matrix(X: Any, names: Sequence[Any]) -> Any:
    """Return a matrix as a pandas frame with these names, for a model that was trained on one; a frame as it is."""
    return _imported("pandas").DataFrame(X, columns=names) if isinstance(X, np.ndarray) else X


def query_matrix(
    table: pa.Table, names: Sequence[str], features: int, *, missing: bool, role: Role = "query"
) -> NDArray[np.float64]:
    """Return a table as the matrix that a model takes: these columns, or all of them if they have no names.

    A missing value is NaN if the model takes missing values. In a query it is refused otherwise. A private value that
    is no number is missing, and none is refused.
    """
    chosen = list(names) or table.column_names
    if len(chosen) != features:
        raise InvalidInput(f"{subject(role)} must have {features} columns, as the records had, got {len(chosen)}")
    opened = open_table(table, chosen, source=subject(role))
    columns = [read_column(name, opened.columns[name], "number", role) for name in chosen]
    matrix: Floats = np.stack(columns, axis=1)
    for index, name in enumerate(chosen):
        wrong = np.isnan(matrix[:, index]) & (not missing) | np.isinf(matrix[:, index])
        if role != "private" and wrong.any():
            first = int(wrong.argmax())
            problem = "a number must be finite" if np.isinf(matrix[first, index]) else "a value is missing"
            raise refusal(role, name, f"{problem}; fill it in or leave the query out", row=first)
    return matrix


def read_column(name: Any, column: pa.Array, kind: ColumnKind, role: Role, rules: Rules = MISSING_TEXTS) -> Any:
    """Return the values of a raw column: floats, or a list of texts with None for missing ones.

    A number or a date of a query that cannot be read is refused; a private one is missing.
    """
    if kind == "text":
        return read_texts(column, ()).to_pylist()
    values = read_numbers(column, rules)
    if kind == "date":
        moments = read_moments(column, _DATES_IN, rules)
        values = np.where(np.isnan(moments), values, moments)  # a number in a column of dates is one of days
    if role != "private" and np.isnan(values).any():
        present = pc.is_valid(read_texts(column, as_reading(rules).missing_texts)).to_numpy(zero_copy_only=False)
        wrong = np.isnan(values) & present
        if wrong.any():
            expected = "a number" if kind == "number" else "a date or a number"
            raise refusal(role, name, f"{expected} is expected, not a text", row=int(wrong.argmax()))
    return values


def _with_nan(texts: list[str | None]) -> list[Any]:
    return [np.nan if text is None else text for text in texts]


def _library(X: Any) -> str:
    """Return the library whose frames an estimator gets: that of X, one that is installed, or else pyarrow."""
    library = type(X).__module__.partition(".")[0]
    if library in _FRAME_LIBRARIES:
        return library
    if hasattr(X, "iloc"):  # a subclass of pandas' frame
        return "pandas"
    return next((library for library in _FRAME_LIBRARIES if importlib.util.find_spec(library) is not None), "pyarrow")


def _imported(library: str) -> Any:
    if library not in (*_FRAME_LIBRARIES, "pyarrow"):
        raise InvalidInput(f"the model was fitted on frames of {library!r}, which this version does not know")
    try:
        return importlib.import_module(library)
    except ImportError:
        raise InvalidInput(f"this model was fitted on data frames of {library}: install it") from None


class QueryEncoder:
    """Encodes columns of queries one by one, as `Schema.encode` does, but looks up declared texts.

    The tables come from the schema, which is public, and never change. So the work of a request depends only on that
    request, not on earlier ones.
    """

    def __init__(self, schema: "Schema") -> None:
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
