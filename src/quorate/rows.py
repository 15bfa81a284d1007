"""One way in: rows of every container become one canonical form, by rules that `fit` takes from public things.

    float64 and float32, integers, bools, sparse, lists   -> a matrix of 64-bit floats, in C order, without -0.0
    pandas, polars, Arrow, for learners that need numbers -> the same
    pandas, polars, Arrow, for learners that take frames  -> a frame: columns in order, types as at fit, index 0, 1, ..

A value is converted by its column's type at fit and by nothing else: not by another row, a row of another caller, or
the container that it came in. Whatever is joined, dealt, cached or counted is in canonical form, so its value
does not depend on its neighbours. What has no canonical form is refused before anything is spent for it.
"""

import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput

__all__ = [
    "FrameForm",
    "as_frame",
    "canonical_and_finite",
    "canonical_matrix",
    "copy_rows",
    "in_blocks",
    "is_frame",
    "is_number",
    "join_rows",
    "named_columns",
    "named_rows",
    "query_digests",
    "row_digest",
    "take_rows",
    "usable_cores",
]

Result = TypeVar("Result")

_DIGEST = 16  # bytes
_BLOCK = 2**14  # rows converted together
_MANY = 2**16  # rows that are worth starting threads for
_EXACT = 2**53  # whole numbers up to it are floats as well
_FRAMES = ("pandas", "polars")  # in the order in which an Arrow table looks for one
_NUMBER = "number"  # a column of numbers, each frame's of its own type


@dataclass(frozen=True)
class FrameForm:
    """A data frame of pandas or polars whose columns keep the types that they had at fit; its rows are 0, 1, 2, ...

    A whole number stays one, and a query of 3.5 in such a column is refused. Categories are those declared at fit. A
    form that is published says of numbers no more than that they are.
    """

    library: str
    columns: tuple[Any, ...]
    types: tuple[Any, ...]

    @classmethod
    def of(cls, X: Any) -> "FrameForm":
        """Return the form of a frame; polars' categories are texts, for their codes would tell the order of rows."""
        library = _library(X)
        if len(set(X.columns)) < len(X.columns):
            raise InvalidInput("two columns have the same name; a query could not say which of them it means")
        types = [X[name].dtype for name in X.columns]
        if library == "polars":
            polars = importlib.import_module("polars")
            types = [polars.String if kind == polars.Categorical else kind for kind in types]
        return cls(library, tuple(X.columns), tuple(types))

    @classmethod
    def plain(cls, X: Any, columns: Sequence[Any], numbers: Sequence[bool]) -> "FrameForm":
        """Return a form for frames of X's library whose columns are 64-bit floats or texts, whatever types X has."""
        library = _library(X)
        if library == "polars":
            polars = importlib.import_module("polars")
            number, text = polars.Float64, polars.String
        else:
            number, text = np.dtype(np.float64), np.dtype(object)
        return cls(library, tuple(columns), tuple(number if is_one else text for is_one in numbers))

    @property
    def kinds(self) -> list[str]:
        """Whether each column holds numbers: "number", or "other"."""
        return ["number" if is_number(kind) else "other" for kind in self.types]

    def rows(self, X: Any) -> Any:
        """Return a frame that shares nothing with the one it came from: no index, no attributes, no other columns."""
        columns = {}
        for name, declared in zip(self.columns, self.types, strict=True):
            column = X[name]
            kind = self._own_type(X, column) if isinstance(declared, str) else declared
            if is_number(declared) and not is_number(column.dtype):
                raise InvalidInput(
                    f"column {name!r} held numbers when the teachers were fitted, and now holds something else"
                )
            try:
                convert = _pandas_column if self.library == "pandas" else _polars_column
                columns[name] = convert(column, kind)
            except Exception:  # of pandas or polars, which would repeat a value
                if kind == np.dtype(object):
                    raise InvalidInput(f"column {name!r} has values that are no text, number, time or date") from None
                raise InvalidInput(
                    f"column {name!r} was of the type {kind} when the teachers were fitted, and has values that are not"
                ) from None
        frames = importlib.import_module(self.library)
        return frames.DataFrame(columns) if columns else frames.DataFrame()

    def _own_type(self, X: Any, column: Any) -> Any:
        """Return the type that a column of numbers has, or that of floats where it is of another library."""
        if _library(X) == self.library:
            return column.dtype
        return np.dtype(np.float64) if self.library == "pandas" else importlib.import_module("polars").Float64

    def with_types_of(self, X: Any) -> "FrameForm":
        """Return a form of the same columns with the types that another frame has for them."""
        other = FrameForm.of(X)
        types = dict(zip(other.columns, other.types, strict=True))
        return FrameForm(other.library, self.columns, tuple(types[name] for name in self.columns))

    def with_any_numbers(self) -> "FrameForm":
        """Return a form that says of numbers that they are: one missing value makes floats of whole numbers."""
        return replace(self, types=tuple(_NUMBER if is_number(kind) else kind for kind in self.types))

    def with_categories_of(self, X: Any) -> "FrameForm":
        """Return a form with those categories alone that these rows show: a type lists what other rows hold as well.

        Those of polars become texts, of which none is refused.
        """
        return self._with_categories(lambda name, kind: _shown_categories(kind, X[name]))

    def with_any_categories(self) -> "FrameForm":
        """Return a form that knows no category: a column of them takes whatever comes, as it comes."""
        return self._with_categories(
            lambda name, kind: importlib.import_module("pandas").CategoricalDtype(ordered=None)
        )

    def _with_categories(self, of: Callable[[Any, Any], Any]) -> "FrameForm":
        """Return a form whose columns of categories have the type that `of` says."""
        types = [
            kind if getattr(kind, "categories", None) is None else of(name, kind) if self.library == "pandas" else None
            for name, kind in zip(self.columns, self.types, strict=True)
        ]
        text = importlib.import_module("polars").String if None in types else None
        return FrameForm(self.library, self.columns, tuple(text if kind is None else kind for kind in types))

    def described(self) -> dict[str, Any]:
        """Return the form as a manifest keeps it, or refuse: what could not be read back would be lost."""
        for name, kind in zip(self.columns, self.types, strict=True):
            one = FrameForm(self.library, (name,), (kind,))
            try:
                kept = FrameForm.from_described(json.loads(json.dumps(one._described()))) == one
            except (TypeError, ValueError):  # no JSON, or no type of that name
                kept = False
            if not kept:
                raise InvalidInput(f"column {name!r} is of a type that a model folder does not keep: {kind}")
        return self._described()

    def _described(self) -> dict[str, Any]:
        columns = [_described(name, kind) for name, kind in zip(self.columns, self.types, strict=True)]
        return {"kind": "frame", "library": self.library, "columns": columns}

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> "FrameForm":
        """Return the form that a manifest describes."""
        frames = _imported(described["library"])
        types = [_type_of(frames, column) for column in described["columns"]]
        return cls(described["library"], tuple(column["name"] for column in described["columns"]), tuple(types))


def is_frame(X: Any) -> bool:
    """Return whether these are named columns: of pandas, polars or Arrow."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__")


def as_frame(X: Any, *, each: bool = False) -> Any:
    """Return an Arrow table as a frame of pandas, or of polars where only that is installed; all else as it is.

    A missing value makes floats of the whole numbers of its column, and cuts long ones short: for whoever reads `each`
    value by itself they stay whole, as objects.
    """
    if type(X).__module__.partition(".")[0] != "pyarrow" or not hasattr(X, "column_names"):
        return X
    for library in _FRAMES:
        if importlib.util.find_spec(library) is not None:
            pandas = library == "pandas"
            return X.to_pandas(integer_object_nulls=each) if pandas else _imported("polars").from_arrow(X)
    raise InvalidInput("an Arrow table becomes a data frame first: install pandas or polars")


def in_blocks(work: Callable[[slice], Result], rows: int, *, block: int) -> list[Result]:
    """Return what `work` makes of each block of rows, in their order; on several threads where there are many rows."""
    parts = [slice(start, min(start + block, rows)) for start in range(0, rows, block)]
    threads = 1 if rows < _MANY else usable_cores(most=8)
    if threads == 1:
        return [work(part) for part in parts]
    each = -(-len(parts) // threads)  # handing over every block by itself would take as long as the work on some
    shares = [parts[start : start + each] for start in range(0, len(parts), each)]
    with ThreadPoolExecutor(threads) as pool:
        made = pool.map(lambda share: [work(part) for part in share], shares)
        return [one for results in made for one in results]


def usable_cores(most: int | None = None) -> int:
    """Return how many cores this process may use, by its affinity and its container's quota, or `most` if fewer help.

    >>> 1 <= usable_cores(most=2) <= 2
    True
    """
    from joblib import cpu_count  # noqa: PLC0415  # a tenth of a second, for who counts cores alone

    cores = int(cpu_count())
    return cores if most is None else min(most, cores)


def canonical_matrix(X: Any) -> NDArray[np.float64]:
    """Return numbers as 64-bit floats in C order, with one zero and one nan. A sparse matrix is filled, once."""
    return canonical_and_finite(X)[0]


def canonical_and_finite(X: Any) -> tuple[NDArray[np.float64], bool]:
    """Return the canonical matrix, and whether all its numbers are surely finite: sums tell, but for an overflow."""
    if hasattr(X, "toarray"):
        given = matrix = np.asarray(X.toarray(order="C"), dtype=np.float64)
    else:
        given = np.asarray(X, dtype=np.float64, order="C")
        matrix = np.empty_like(given)

    def put(part: slice) -> bool:
        rows = np.add(given[part], 0.0, out=matrix[part])
        with np.errstate(all="ignore"):
            finite = bool(np.isfinite(rows.sum()))
        if not finite:
            np.copyto(rows, np.nan, where=np.isnan(rows))
        return finite

    return matrix, all(in_blocks(put, len(matrix), block=_BLOCK))


def named_columns(X: Any, names: Any) -> Any:
    """Return a matrix as a data frame with these names, for a model that was trained on one."""
    if not isinstance(X, np.ndarray):
        return X
    from pandas import DataFrame  # noqa: PLC0415  only for models that know names

    return DataFrame(X, columns=names)


def take_rows(X: Any, rows: Any) -> Any:
    """Return these rows of a matrix or a data frame. A row does not keep the number that it had."""
    return X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]


def copy_rows(X: Any) -> Any:
    """Return rows that an estimator may change, as some do."""
    return X.copy() if hasattr(X, "copy") else X.clone()


def join_rows(parts: Sequence[Any]) -> Any:
    """Return matrices or data frames in one canonical form as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts or isinstance(parts[0], np.ndarray):
        return np.concatenate(parts) if parts else np.empty((0, 0))
    library = _library(parts[0])
    frames = importlib.import_module(library)
    return frames.concat(parts, ignore_index=True) if library == "pandas" else frames.concat(parts)


def query_digests(X: Any) -> list[bytes]:
    """Return what tells one query from another: 16 bytes for each row in canonical form."""
    if len(X) == 0:
        return []
    if isinstance(X, np.ndarray):
        named = named_rows(X)
    else:
        columns = [str(name) for name in X.columns]
        values = zip(*(_plain_values(X[name]) for name in X.columns), strict=True)
        named = [repr((columns, row)).encode() for row in values]
    return [blake2b(name, digest_size=_DIGEST).digest() for name in named]


def named_rows(X: NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row of a matrix, after one that says so: what the digest of the row is made of."""
    rows = np.ascontiguousarray(X).view(np.uint8).reshape(len(X), -1)
    return [b"d" + row.tobytes() for row in rows]


def row_digest(name: bytes) -> bytes:
    """Return the digest of a named row; a digest is returned as it is."""
    return name if len(name) == _DIGEST else blake2b(name, digest_size=_DIGEST).digest()


def _plain_values(column: Any) -> list[Any]:
    """Return values as a digest names them, each by itself: none says how another of its column is written."""
    kind = column.dtype
    if isinstance(kind, np.dtype) and (kind.kind in "fb" or (kind.kind in "iu" and kind.itemsize < 8)):
        numbers: list[Any] = canonical_matrix(column.to_numpy()).tolist()
        return numbers
    return [float(value) if isinstance(value, bool) else _plain(value) for value in column.to_list()]


def _plain(value: Any) -> Any:
    """Return a value such that equal numbers are alike (1 and 1.0, 0.0 and -0.0, all nans), and so are equal texts."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return float(value) if abs(int(value)) <= _EXACT else int(value)
    if isinstance(value, float | np.floating):
        return math.nan if math.isnan(value) else float(value) + 0.0
    return str(value) if isinstance(value, str) else value


def _library(X: Any) -> str:
    library = type(X).__module__.partition(".")[0]
    if library in _FRAMES:
        return library
    if hasattr(X, "iloc"):  # a subclass of pandas' frame: its rows are kept as pandas
        return "pandas"
    raise InvalidInput(f"records come as numbers or as a data frame of pandas or polars, not as {type(X).__name__}")


def _imported(library: str) -> Any:
    if library not in _FRAMES:
        raise InvalidInput(f"the model was fitted on frames of {library!r}, which this version does not know")
    try:
        return importlib.import_module(library)
    except ImportError:
        raise InvalidInput(f"this model was fitted on data frames of {library}: install it") from None


def is_number(kind: Any) -> bool:
    """Return whether a type of a pandas or polars column, or what a form says of it, is one of numbers."""
    if isinstance(kind, str):
        return kind == _NUMBER
    if hasattr(kind, "is_numeric"):
        return bool(kind.is_numeric()) or str(kind) == "Boolean"
    return getattr(kind, "kind", "O") in "fiub"


def _pandas_column(column: Any, kind: Any) -> Any:
    """Return a column as this type, value by value, or raise."""
    pandas = importlib.import_module("pandas")
    values = column if isinstance(column, pandas.Series) else pandas.Series(column.to_list())
    values = values.reset_index(drop=True)
    if isinstance(kind, np.dtype) and kind.kind in "iub":
        whole = values.to_numpy(dtype=np.float64 if values.dtype.kind == "f" else None)
        with np.errstate(invalid="ignore"):
            converted = whole.astype(kind)
        if not np.array_equal(converted, whole):
            raise ValueError
        return pandas.Series(converted, dtype=kind)
    if isinstance(kind, np.dtype) and kind.kind == "f":
        converted = values.to_numpy(dtype=kind, na_value=np.nan) + kind.type(0.0)
        converted[np.isnan(converted)] = np.nan
        return pandas.Series(converted, dtype=kind)
    if kind == np.dtype(object):
        plain = values.astype(object)
        plain = plain.where(plain.notna(), np.nan)
        if not all(pandas.api.types.is_scalar(value) for value in plain.tolist()):  # teachers would share a list
            raise ValueError
        return pandas.Series([_plain(value) for value in plain.tolist()], dtype=object)
    if isinstance(kind, pandas.StringDtype):
        _check_texts(values[values.notna()].tolist())
        return values.astype(object).astype(kind)
    if is_number(kind) and kind.kind == "f":
        return (values.astype(kind) + 0.0).astype(kind)  # one zero
    if getattr(kind, "categories", None) is not None:  # another category is missing
        values = values.where(values.isin(kind.categories))
    return values.astype(kind)


def _check_texts(values: Iterable[Any]) -> None:
    """Raise where a value that is there is no text: 3 would be read as "3", or as "3.0" in a column with a 2.5."""
    if not all(isinstance(value, str) for value in values):
        raise ValueError


def _polars_column(column: Any, kind: Any) -> Any:
    polars = importlib.import_module("polars")
    if kind == polars.String:
        texts = column.to_list() if isinstance(column, polars.Series) else column.where(column.notna(), None).to_list()
        texts = [None if text != text else text for text in texts]  # noqa: PLR0124  a nan
        _check_texts(text for text in texts if text is not None)
        return polars.Series(texts, dtype=kind)
    values = column if isinstance(column, polars.Series) else polars.Series(column.tolist(), strict=False)
    converted = values.cast(kind, strict=True)
    if kind.is_integer() and values.dtype.is_float() and not (converted.cast(values.dtype) == values).all():
        raise ValueError
    if kind.is_float():  # one zero; what is missing stays missing
        return converted.zip_with(
            (converted != 0).fill_null(True), polars.zeros(len(converted), dtype=kind, eager=True)
        )
    return converted


def _listed_categories(kind: Any) -> list[Any] | None:
    """Return the categories of a type, or None where it has none."""
    categories = getattr(kind, "categories", None)
    if categories is None:
        return None
    listed: list[Any] = categories.tolist() if hasattr(categories, "tolist") else categories.to_list()
    return listed


def _shown_categories(kind: Any, column: Any) -> Any:
    """Return a type of the categories that a column shows, in the order that its own type has for them, if any."""
    shown = {value for value in column.to_list() if value is not None and value == value}  # noqa: PLR0124  no nan
    own = _listed_categories(column.dtype)
    listed = sorted(shown, key=str) if own is None else [value for value in own if value in shown]
    return importlib.import_module("pandas").CategoricalDtype(listed, ordered=kind.ordered)


def _described(name: Any, kind: Any) -> dict[str, Any]:
    listed = _listed_categories(kind)
    if listed is None:
        return {"name": name, "type": str(kind)}
    return {"name": name, "type": "category", "categories": listed, "ordered": bool(getattr(kind, "ordered", False))}


def _type_of(frames: Any, column: Mapping[str, Any]) -> Any:
    """Return the type that a manifest names."""
    if column["type"] == _NUMBER:
        return _NUMBER
    pandas = frames.__name__ == "pandas"
    if "categories" in column:
        return (
            frames.CategoricalDtype(column["categories"], ordered=column["ordered"])
            if pandas
            else frames.Enum(column["categories"])
        )
    if pandas:
        return frames.api.types.pandas_dtype(column["type"])
    kind = getattr(frames, column["type"].partition("(")[0], None)
    if not isinstance(kind, type) or not issubclass(kind, frames.DataType) or "(" in column["type"]:
        raise InvalidInput(f"column {column['name']!r} is of a polars type that a model folder does not keep")
    return kind
