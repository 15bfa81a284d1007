"""Tables in memory, opened: every container becomes raw columns (`values`), each value by itself.

    NumPy arrays, sparse matrices, lists of rows    columns are numbered
    mappings from names to values                   lists, arrays, Arrow arrays
    tables of Arrow, and of all that stream it      by `__arrow_c_stream__`
    data frames of pandas and polars                column by column: their streams look for one type for all objects
                                                    of a column, and refuse some columns by one value

Whose rows they are (`Role`) decides what is refused and what an error may name. Names, types down to
`values.kind_of_type`, and the number of rows are public. Nothing else of a private table decides how it is opened, and
no value is a reason to refuse it.
"""

import shlex
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import check_choice
from quorate.core.errors import InvalidInput, QuorateError
from quorate.tables.values import is_readable, kind_of_type, object_texts, raw_column, read_numbers

_PLAIN = "fiub"  # kinds of NumPy types whose values are numbers
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)

Role = Literal["private", "public", "query"]

_SUBJECTS = {"private": "the private records", "public": "the public table", "query": "the queries"}


def subject(role: Role) -> str:
    """Return the name of these rows in an error."""
    return _SUBJECTS[role]


def refusal(role: Role, column: str, problem: str, *, row: int) -> InvalidInput:
    """Return the error for a value of a column. A private row is never named: neither its number nor its value."""
    index = "" if role == "private" else f", row {row + 1} (the first such row, counted from 1)"
    return InvalidInput(f"{subject(role)}, column {column!r}{index}: {problem}")


@contextmanager
def foreign(problem: str) -> Iterator[None]:
    """Raise an error that says `problem` for any exception of another library, whose text may hold private values."""
    try:
        yield
    except QuorateError:
        raise
    except Exception:
        raise InvalidInput(problem) from None


@contextmanager
def prefix_errors(prefix: str) -> Iterator[None]:
    """Prefix the text of an error with its subject."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{prefix}{error}") from None


def type_problem(source: str, column: Any, kind: object) -> str:
    """Return what is wrong with a column of a type that cannot be read."""
    return f"{source}, column {column!r}: values must be numbers, texts, dates or truth values, got {kind}"


@dataclass(frozen=True)
class OpenTable:
    """The raw columns of a table, by name, and the kind that the type of each shows: "number", "date" or "text"."""

    columns: dict[Any, pa.Array]
    kinds: dict[Any, str]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.rows, len(self.columns)

    def __len__(self) -> int:
        return self.rows


def is_frame(X: Any) -> bool:
    """Return whether this is a table with named columns: a data frame, an Arrow table or a record batch."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__"))


def is_arrow(X: Any) -> bool:
    """Return whether this is a table, a record batch or a column of Arrow."""
    return isinstance(X, pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray)


def is_object_column(X: Any, name: Any) -> bool:
    """Return whether a column of a frame holds Python objects, whose type says nothing of their values."""
    kind = X[name].dtype if hasattr(X, "iloc") or hasattr(X, "get_column") else None
    return kind == np.dtype(object) if hasattr(X, "iloc") else str(kind) == "Object"


def column_names(X: Any) -> list[Any]:
    """Return the names of the columns of a frame or a mapping."""
    if isinstance(X, Mapping):
        return list(X)
    if hasattr(X, "column_names"):
        return list(X.column_names)
    return list(X.columns)


def open_table(X: Any, names: Sequence[Any] | None = None, *, source: str = "the table") -> OpenTable:
    """Open the named columns of a frame or a mapping, all of them by default."""
    containers = _column_containers(X)
    spelled = {name: name for name in containers} if names is None else _spelled_names(containers, names, source)
    opened = {name: _open(column, containers[column], source) for name, column in spelled.items()}
    columns, kinds = ({name: part[index] for name, part in opened.items()} for index in (0, 1))
    if len(set(map(len, columns.values()))) > 1:
        raise InvalidInput(f"{source} must have columns of one length")
    return OpenTable(columns, kinds)


def _column_containers(X: Any) -> dict[Any, Any]:
    """Return the columns of a frame or a mapping by name, each in a container of its library."""
    if isinstance(X, Mapping):
        return dict(X)
    if hasattr(X, "iloc"):
        check_differ(X.columns)
        return {name: X.iloc[:, index] for index, name in enumerate(X.columns)}
    if hasattr(X, "get_column"):
        return {name: X.get_column(name) for name in X.columns}
    table = as_table(X)
    return dict(zip(table.column_names, table.columns, strict=True))


def _spelled_names(names: Iterable[Any], wanted: Sequence[Any], source: str) -> dict[Any, Any]:
    """Return the name by which each wanted column is given: numbers that name columns may be declared as texts."""
    by_text = {str(name): name for name in reversed(list(names))} | {name: name for name in names}
    spelled = {name: by_text.get(name, by_text.get(str(name))) for name in wanted}
    if lacking := [name for name, column in spelled.items() if column is None]:
        raise InvalidInput(
            f"{source} must have the columns {shown_names(lacking)}; its columns are {shown_names(list(names))}"
        )
    return spelled


def open_table_or_matrix(X: Any, *, source: str = "the table") -> OpenTable | Floats:
    """Open a table of any kind: a matrix of floats for an array of numbers, else raw columns.

    The columns of an array or a list are named by their numbers.
    """
    if is_frame(X):
        return open_table(X, source=source)
    array = _as_array(X)
    if array.ndim != 2:
        raise InvalidInput(f"{source} must be rows and columns, got an array of shape {array.shape}")
    if array.dtype.kind in _PLAIN:
        return _canonical(array)
    columns = {index: _array_column(array[:, index], index, source) for index in range(array.shape[1])}
    return OpenTable(columns, dict.fromkeys(columns, _numpy_kind(array.dtype)))


def open_columns(table: Any, names: Sequence[str], *, source: str = "the table") -> dict[Any, pa.Array]:
    """Return the raw columns of these names, of a frame, a mapping, or a matrix that has just these columns."""
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.shape[1] != len(names):
            raise InvalidInput(
                f"{source}, given as an array, must have one column for each of {shown_names(names)}, got shape "
                f"{table.shape}"
            )
        return {name: open_column(table[:, index], name=name, source=source) for index, name in enumerate(names)}
    return open_table(table, names, source=source).columns


def open_column(values: Any, *, name: Any = None, source: str = "the table") -> pa.Array:
    """Return one value a row as a raw column: an array, a list, a series of a data frame, an Arrow array."""
    return _open(name, values, source)[0]


def list_values(values: Any) -> list[Any]:
    """Return one value a row as a list of Python objects, of any container."""
    for method in ("to_pylist", "to_list", "tolist"):  # of Arrow, of polars and pandas, of NumPy
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


def raw_values(values: Any) -> pa.Array:
    """Return a raw column as it is, and one value a row of any other container as a raw column."""
    return values if isinstance(values, pa.Array) else open_column(values)


def open_matrix(X: Any, *, source: str = "the table") -> Floats:
    """Return rows of numbers as a matrix of 64-bit floats: NaN for what is missing or no number, and one zero.

    X is an array, a sparse matrix, a list of rows or a frame. Values are read by themselves, and none is refused.
    """
    if is_frame(X):
        opened = open_table(X, source=source)
        parts = [read_numbers(column) for column in opened.columns.values()]
        return np.stack(parts, axis=1) if parts else np.empty((0, 0))
    array = _as_array(X)
    if array.dtype.kind in _PLAIN:
        return _canonical(array)
    return read_numbers(_array_column(array.reshape(-1), None, source)).reshape(array.shape)


def _as_array(X: Any) -> NDArray[Any]:
    """Return an array, a filled sparse matrix or a list of rows as an array, of objects where values are none."""
    if hasattr(X, "toarray"):
        return np.asarray(X.toarray(order="C"))
    return _list_matrix(list(X)) if _is_untyped(X) else np.asarray(_without_mask(X))


def _is_untyped(X: Any) -> bool:
    """Return whether these are rows in a sequence without a type of its own: in it NumPy would look for one of all."""
    is_sequence = hasattr(X, "__getitem__") and hasattr(X, "__len__")
    is_typed = isinstance(X, str | bytes | memoryview | Mapping) or hasattr(X, "dtype") or hasattr(X, "__array__")
    return is_sequence and not is_typed


def _without_mask(values: Any) -> Any:
    """Return a masked array of NumPy as objects, None where it is masked, whatever stands there; all else as it is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    plain = np.array(values, dtype=object)
    plain[np.ma.getmaskarray(values)] = None
    return plain


def _canonical(array: NDArray[Any]) -> Floats:
    with np.errstate(all="ignore"):  # a long double beyond all floats is infinite, and nobody is warned of it
        matrix = np.asarray(array, dtype=np.float64, order="C") + 0.0
    matrix[np.isnan(matrix)] = np.nan
    return matrix


def _open(name: Any, values: Any, source: str) -> tuple[pa.Array, str]:
    """Return a raw column, and its kind by the type that it came in."""
    values = _without_mask(values)
    kind = getattr(values, "dtype", None)
    if hasattr(kind, "categories") and hasattr(kind, "ordered"):  # of pandas
        return _pandas_categories(values), "text"
    if isinstance(kind, np.dtype) or not _has_arrow_type(values):
        array = np.asarray(values) if kind is not None else _list_column(_listed_objects(values, name, source))
        if array.ndim != 1:
            raise InvalidInput(f"{source}, column {name!r}: one value a row is expected, got shape {array.shape}")
        return _array_column(array, name, source), _numpy_kind(array.dtype)
    arrow = _arrow_column(values)
    if arrow is None:  # refused by a value: each is read by itself
        return object_texts(_listed_objects(values, name, source)), _series_kind(kind)
    readable = kind_of_type(arrow.type)
    if readable is None:
        raise InvalidInput(type_problem(source, name, arrow.type))
    return raw_column(arrow), readable


def _pandas_categories(values: Any) -> pa.Array:
    """Return the values of a pandas category, each category read by itself.

    Arrow would look for one type for all of them, and private values list the categories. So the kind is text, whatever
    they are.
    """
    categories = getattr(values, "cat", values)
    codes, listed = np.asarray(categories.codes), np.asarray(categories.categories, dtype=object).tolist()
    return object_texts(listed).take(pa.array(codes, mask=codes < 0))


def _has_arrow_type(values: Any) -> bool:
    """Return whether a container declares an Arrow type. In any other Arrow would look for one for all values.

    Of the types of pandas these are Arrow's own, numbers with a mask, texts, and moments with a time zone. All others,
    such as periods, are read value by value, as in the column of objects that one odd value makes of them.
    """
    kind = getattr(values, "dtype", None)
    if hasattr(values, "iloc") or type(kind).__module__.partition(".")[0] == "pandas":
        is_masked = getattr(getattr(kind, "numpy_dtype", None), "kind", "O") in _PLAIN
        return is_masked or any(hasattr(kind, name) for name in ("pyarrow_dtype", "storage", "tz"))
    declared = ("__arrow_c_stream__", "__arrow_array__")
    return isinstance(values, pa.Array | pa.ChunkedArray) or any(hasattr(values, name) for name in declared)


def _arrow_column(values: Any) -> Any:
    """Return the values as Arrow has them, or None where their library has Python objects, or refuses one by value."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if str(getattr(values, "dtype", "")) == "Object":  # of polars, whose stream is of their addresses
        return None
    try:
        return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    except Exception:  # of any library; its text would name a value
        return None


def _listed_objects(values: Any, name: Any, source: str) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise InvalidInput(f"{source}, column {name!r}: one value a row is expected")
    return list_values(values)


def _series_kind(kind: Any) -> str:
    """Return the kind of a type of polars or pandas that Arrow does not take, such as whole numbers of 128 bits."""
    if hasattr(kind, "tz"):
        return "date"
    return "number" if getattr(kind, "is_numeric", bool)() or getattr(kind, "_is_numeric", False) is True else "text"


def _array_column(array: NDArray[Any], name: Any, source: str) -> pa.Array:
    kind = array.dtype.kind
    if kind in _PLAIN:
        with np.errstate(all="ignore"):
            plain = array.astype(np.float64 if kind == "f" else array.dtype.newbyteorder("="))
        return raw_column(pa.array(np.ascontiguousarray(plain)))
    if kind == "M":
        return raw_column(pa.array(array.astype("datetime64[us]")))
    if kind == "m":
        return raw_column(pa.array(array.astype("timedelta64[us]")))
    if kind in "OUSTc":
        return object_texts(array.astype(object).tolist() if kind != "S" else array.tolist())
    raise InvalidInput(type_problem(source, name, array.dtype))


def _numpy_kind(kind: np.dtype[Any]) -> str:
    return "number" if kind.kind in "fiubmc" else "date" if kind.kind == "M" else "text"


def _list_column(values: Sequence[Any]) -> NDArray[Any]:
    """Return a list as an array of one type if all its values are of it, else of objects.

    Left to itself NumPy would look for one type for all: a 2.5 would make a float of a long whole number beside it.
    """
    types = {type(value) for value in values}
    if len(types) == 1 and types <= {bool, int, float}:
        plain = np.asarray(values)
        if plain.dtype.kind in ("f" if types == {float} else "iub"):  # whole numbers may be too large for one type
            return plain
    return _objects(values)


def _list_matrix(rows: Sequence[Any]) -> NDArray[Any]:
    """Return a list of rows as an array: of numbers if all values are numbers, else of objects.

    NumPy would make numbers of what has an `__array__`, unless a text is beside it.
    """
    if rows and not any(isinstance(row, list | tuple | np.ndarray) for row in rows):
        return _objects(rows)  # of one dimension
    if all(map(_holds_numbers, rows)):
        with suppress(ValueError, OverflowError):  # rows have different lengths
            plain = np.asarray(rows)
            if plain.dtype.kind in _PLAIN:
                return plain
    return _object_matrix(rows)


def _holds_numbers(row: Any) -> bool:
    """Return whether a row of a list holds plain numbers alone, and none behind a mask."""
    if isinstance(row, np.ndarray):
        return row.dtype.kind in _PLAIN and not isinstance(row, np.ma.MaskedArray)
    return all(issubclass(kind, _NUMBERS) for kind in set(map(type, row))) if isinstance(row, list | tuple) else False


def _object_matrix(rows: Sequence[Any]) -> NDArray[Any]:
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in rows}
    if len(widths) != 1 or -1 in widths:
        raise InvalidInput("a list of rows must have the same number of values in every row")
    objects = np.empty((len(rows), widths.pop()), dtype=object)
    for index, row in enumerate(rows):
        objects[index] = _objects(list(row))
    return objects


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    objects = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        objects[index] = value
    return objects


def as_table(frame: Any) -> pa.Table:
    """Return a frame or a mapping as an Arrow table. The index of a pandas frame is left out.

    >>> as_table(pa.record_batch({"age": [39, 50]})).column_names
    ['age']
    >>> as_table([[39], [50]])
    Traceback (most recent call last):
    ...
    quorate.core.errors.InvalidInput: a table must be a data frame or an Arrow table, with __arrow_c_stream__, got list
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return pa.table([_plain_layout(column) for column in check_names(frame).columns], names=frame.column_names)
    if hasattr(frame, "iloc") or hasattr(frame, "get_column") or isinstance(frame, Mapping):
        check_names(pa.schema([(str(name), pa.null()) for name in column_names(frame)]).empty_table())
        return pa.table({str(name): column for name, column in open_table(frame).columns.items()})
    if not hasattr(frame, "__arrow_c_stream__"):
        raise InvalidInput(
            f"a table must be a data frame or an Arrow table, with __arrow_c_stream__, got {type(frame).__name__}"
        )
    unreadable = "a table must be a data frame or an Arrow table; this one's columns cannot be read"
    with foreign(unreadable), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        table = pa.table(frame)
    return as_table(table)


def take_arrow_rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """Return these rows of a table, a record batch or a column of Arrow."""
    plain = _plain_layout(X) if isinstance(X, pa.Array | pa.ChunkedArray) else as_table(X)
    return plain.take(pa.array(rows))


def _plain_layout(column: Any) -> Any:
    """Return an Arrow column whose rows can be taken: one of a dictionary or of views as plain values, others as is.

    Arrow takes no rows of views. It joins the dictionaries of the parts of a column first, and fails where there are
    more values than the type of its indices counts: one value would decide that.
    """
    kind = column.type
    is_view = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    if not is_readable(kind) or not (is_view or pa.types.is_dictionary(kind)):
        return column
    if kind_of_type(kind) == "text":
        return raw_column(column)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([chunk.dictionary.take(chunk.indices) for chunk in chunks], type=kind.value_type)


def single_column(table: Any) -> Any:
    """Return the only column of a frame in the container of its library."""
    return next(iter(_column_containers(table).values()))


def check_names(table: pa.Table) -> pa.Table:
    """Return the table if it has columns, all have names and no name appears twice."""
    names = table.column_names
    if not names:
        raise InvalidInput("a table must have at least 1 column")
    for index, name in enumerate(names):
        if not name.strip():
            raise InvalidInput(
                f"column {index + 1} has no name; if it is the index of a pandas frame, write it with index=False"
            )
    check_differ(names)
    return table


def check_columns(table: pa.Table, needed: Sequence[str], role: Role, *, unused: Sequence[str] | None = None) -> None:
    """Refuse a table that lacks columns, or has columns of types that cannot be read. All problems are told at once.

    With `unused`, columns that are neither needed nor among these are refused too.
    """
    check_choice("role", role, get_args(Role))
    names, rows = table.column_names, subject(role)
    lacking = [name for name in needed if name not in names]
    problems = []
    if lacking:
        noun = "column" if unused is None else "columns"
        problems.append(f"{rows} must have the {noun} {shown_names(lacking)}; the columns are {shown_names(names)}")
    if unused is not None:
        problems += _undeclared_problems(table, {*needed, *unused}, role)
    fields = [table.schema.field(name) for name in needed if name not in lacking]
    problems += [type_problem(rows, field.name, field.type) for field in fields if not is_readable(field.type)]
    if problems:
        raise InvalidInput(". ".join(problems))


def _undeclared_problems(table: pa.Table, declared_names: Collection[str], role: Role) -> list[str]:
    names = [name for name in table.column_names if name not in declared_names]
    if not names:
        return []
    declared = "" if role == "query" else ' or name them under "leave_out" in the schema'
    return [
        f"the schema does not know these columns of {subject(role)}: {shown_names(names)}; leave them out "
        f"(--leave-out {shlex.quote(','.join(names))}){declared}"
    ]


def check_differ(names: Sequence[Any]) -> None:
    """Refuse names of columns of which two are the same."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"column names must differ: {name!r} appears twice")
        seen.add(name)


def shown_names(names: Sequence[Any]) -> str:
    """Return names of columns for an error, the first 20 of them."""
    return ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
