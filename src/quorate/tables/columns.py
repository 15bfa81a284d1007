"""Columns: how their values are read, how one is declared, and how it is encoded as numbers for learners.

All of a declaration is public. Each value is converted and encoded on its own, whatever the other rows hold. `cells`
encodes a declared column as cells for releases.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.checks import check_positive, set_validated
from quorate.errors import InvalidInput

__all__ = [
    "CLIP",
    "LARGEST",
    "MISSING_TEXTS",
    "Category",
    "Kind",
    "Label",
    "Missing",
    "NotANumber",
    "Number",
    "Role",
    "canonical_text",
    "check_role",
    "check_type",
    "coded",
    "encode_features",
    "feature_names",
    "is_readable",
    "numbers",
    "refusal",
    "shown_names",
    "subject",
    "texts",
    "unscaled",
    "whole_array",
]

Role = Literal["private", "public", "query"]

_SUBJECTS = {"private": "the private records", "public": "the public table", "query": "the queries"}


def check_role(role: object) -> Role:
    """Return `role` if it is one."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"role must be 'private', 'public' or 'query', not {role!r}")


def subject(role: Role) -> str:
    """Return how an error calls these rows."""
    return _SUBJECTS[role]


def refusal(role: Role, column: str, problem: str, *, row: int) -> InvalidInput:
    """Return the error for a value of a column. A private row is never named: neither its number nor its value."""
    place = "" if role == "private" else f", row {row + 1} (the first such row, counted from 1)"
    return InvalidInput(f"{subject(role)}, column {column!r}{place}: {problem}")


MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # "?" is a category like any other unless told

_EXACT = 2.0**53  # whole numbers below it are told apart by a 64-bit float


class NotANumber(Exception):
    """A text in this row is not a number. The caller decides how much of that an error may say."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row


def is_readable(kind: pa.DataType) -> bool:
    """Say whether values of this Arrow type can be read: numbers, texts, truth values, and dictionaries of them."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return numeric or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_text(kind)


def check_type(whose: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column of a type that cannot be read."""
    if not is_readable(kind):
        raise InvalidInput(f"{whose}, column {column!r}: values must be numbers, texts or truth values, not {kind}")


def shown_names(names: Sequence[Any]) -> str:
    """Return names of columns for an error, the first 20 of them."""
    return ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")


def whole_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with dictionaries and views turned into plain values."""
    if pa.types.is_dictionary(column.type):
        plain = column.type.value_type
        parts = [_plain(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(parts, type=pa.large_string() if _is_textual(plain) else plain)
    column = _plain(column)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def texts(column: pa.Array, *, missing: Iterable[str] = ()) -> pa.Array:
    """Return values as texts without blanks around them, and null where a value is missing.

    A whole number is written as one whatever its type: 5 and 5.0 are the same text.
    """
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        written = _written(column.cast(pa.float64()))
    elif _is_text(column.type):
        written = pc.utf8_trim_whitespace(column)
    else:
        written = column.cast(pa.large_string())
    values = pa.array(list(missing), type=written.type)
    return pc.if_else(pc.is_in(written, value_set=values), pa.scalar(None, written.type), written)


def numbers(column: pa.Array, *, missing: Iterable[str] = ()) -> NDArray[np.float64]:
    """Return values as 64-bit floats, and NaN where a value is missing. A text that is no number is `NotANumber`."""
    if _is_text(column.type):
        column = _parsed(texts(column, missing=missing))
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    plain: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return plain


def coded(
    values: pa.Array, known: Sequence[str], missing: Iterable[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the place of each value among the known texts (-1: not there), and which values are missing."""
    written = texts(values, missing=set(missing) - set(known))
    places = pc.index_in(written, value_set=pa.array(known, type=written.type), skip_nulls=True)
    codes = pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, pc.is_null(written).to_numpy(zero_copy_only=False)


def canonical_text(value: object) -> str:
    """Return how `texts` would write a value, so that what a schema declares meets what a table holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    return str(value).strip()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_textual(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_null(kind))


def _plain(column: Any) -> Any:
    """Return texts in the one layout that all functions of Arrow know; other values as they are."""
    return column.cast(pa.large_string()) if _is_textual(column.type) else column


def _written(column: pa.Array) -> pa.Array:
    plain = column.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        whole = (np.floor(plain) == plain) & (np.abs(plain) < _EXACT)
    integers = pa.array(np.where(whole, plain, 0.0).astype(np.int64)).cast(pa.large_string())
    decimals = pa.array(plain, mask=np.isnan(plain)).cast(pa.large_string())
    return pc.if_else(pa.array(whole), integers, decimals)


def _parsed(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        raise NotANumber(_first_wrong(column)) from None


def _first_wrong(column: pa.Array) -> int:
    """Return the first row whose text is no number, knowing that there is one: by halving."""
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            column.slice(start, middle - start).cast(pa.float64())
        except pa.ArrowInvalid:
            stop = middle
        else:
            start = middle
    return start


Missing = Literal["refuse", "indicator"]


@dataclass(frozen=True)
class Number:
    """A column of numbers, with what is known about it in public.

    Learners get it scaled: by `centre` and `spread`, by the bounds `low` and `high`, or not at all. A missing value is
    refused, or with `missing="indicator"` marked in a column of its own. A release counts the cells between `cuts`.

    >>> from quorate.tables import Schema
    >>> Schema({"age": Number(low=0, high=100, cuts=[18, 65])}).encode(pa.table({"age": [25, 250]})).tolist()
    [[-0.5], [1.0]]
    >>> from quorate.release import Columns
    >>> Columns({"age": Number(low=0, high=100, cuts=[18, 65])}).encode({"age": [25, 250, None]}).codes.tolist()
    [[1], [2], [3]]
    """

    centre: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    missing: Missing = "refuse"
    cuts: Sequence[float] | None = None

    def __post_init__(self) -> None:
        scaled, bounded = (self.centre, self.spread), (self.low, self.high)
        if (None in scaled and scaled != (None, None)) or (None in bounded and bounded != (None, None)):
            raise InvalidInput("a number needs both of centre and spread, or both of low and high, or none of them")
        if scaled != (None, None) and bounded != (None, None):
            raise InvalidInput("a number is scaled by centre and spread or by low and high, not by both")
        for name in ("centre", "low", "high"):
            if getattr(self, name) is not None:
                set_validated(self, **{name: _finite(name, getattr(self, name))})
        if self.spread is not None:
            set_validated(self, spread=check_positive("spread", self.spread))
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidInput(f"low must be below high, not {self.low:g} and {self.high:g}")
        set_validated(self, missing=_check_missing(self.missing))
        if self.cuts is not None:
            set_validated(self, cuts=_rising(self.cuts))


@dataclass(frozen=True)
class Category:
    """A column of texts from a declared list.

    Learners get one 0/1 column for each category; a text that is not on the list is all zeros. A release counts one
    cell for each, and one for everything else. `missing` is as for `Number`.

    >>> from quorate.tables import Schema
    >>> Schema({"colour": Category(["red", "green"])}).encode(pa.table({"colour": ["green", "blue"]})).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    categories: Sequence[str]
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        set_validated(
            self, categories=tuple(canonical_text(value) for value in _listed("categories", self.categories, least=1))
        )
        set_validated(self, missing=_check_missing(self.missing))


Kind = Number | Category


@dataclass(frozen=True)
class Label:
    """The column that holds the label, and all its classes, in the order of their codes.

    >>> Label("income", ["low", "high"]).codes(pa.array(["high", "low"]), role="private")
    array([1, 0])
    """

    column: str
    classes: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise InvalidInput(f"the label's column must be a column name, not {self.column!r}")
        classes = _listed("classes", self.classes, least=2)
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in classes)
        set_validated(self, classes=classes if whole else tuple(canonical_text(value) for value in classes))

    def codes(self, values: pa.Array, *, role: Role, missing: Iterable[str] = (), start: int = 0) -> NDArray[np.int64]:
        """Return the code of each label. An undeclared label is refused, and the error does not repeat it."""
        codes, absent = coded(values, [canonical_text(value) for value in self.classes], missing)
        if absent.any():
            raise refusal(role, self.column, "a label is missing", row=start + int(absent.argmax()))
        if (codes < 0).any():
            shown = ", ".join(repr(value) for value in self.classes)
            problem = f"a label is not among the declared classes {shown}"
            raise refusal(role, self.column, problem, row=start + int((codes < 0).argmax()))
        return codes


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidInput(f"{name} must be a finite number, not {value!r}")
    return float(value)


def _check_missing(value: object) -> Missing:
    if value == "refuse":
        return "refuse"
    if value == "indicator":
        return "indicator"
    raise InvalidInput(f'missing must be "refuse" or "indicator", not {value!r}')


def _rising(values: object) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"cuts must be a list of rising numbers, not {values!r}")
    cuts = list(values)
    if not all(isinstance(cut, int | float | np.number) and not isinstance(cut, bool) for cut in cuts):
        raise InvalidInput("cuts must be a list of rising numbers")
    rising = all(low < high for low, high in itertools.pairwise(cuts))
    if not rising or not all(math.isfinite(cut) for cut in cuts):
        raise InvalidInput("cuts must be finite numbers, each larger than the one before")
    return tuple(float(cut) for cut in cuts)


def _listed(name: str, values: object, *, least: int) -> tuple[Any, ...]:
    """Return a list of texts, numbers or truth values that all differ once written as text."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} must be a list of at least {least}, not {values!r}")
    listed = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not all(isinstance(value, str | int | float) for value in listed):
        raise InvalidInput(f"{name} must be texts or numbers")
    written = [canonical_text(value) for value in listed]
    if len(listed) < least:
        raise InvalidInput(f"{name} must be a list of at least {least}, not of {len(listed)}")
    if len(set(written)) < len(written):
        twice = next(text for place, text in enumerate(written) if text in written[:place])
        raise InvalidInput(f"{name} must differ: {twice!r} appears twice")
    return listed


CLIP = 10.0  # spreads away from the centre: wide enough for all but the strangest values
LARGEST = 1e38  # of a number that is not scaled: the learners leave out rows beyond it

Matrix = NDArray[np.float64]

_NO_VALUE = {
    "private": 'a value is missing; leave such records out, or declare "missing": "indicator" for this column in the '
    "schema",
    "public": "a value is missing; fill it in or leave the row out",
    "query": "a value is missing; fill it in or leave the query out",
}


def feature_names(kind: Kind, column: str) -> list[str]:
    """Return the names of the features that a column becomes."""
    values = [column] if isinstance(kind, Number) else [f"{column}={value}" for value in kind.categories]
    return [*values, f"{column} is missing"] if kind.missing == "indicator" else values


def encode_features(
    kind: Kind, values: pa.Array, column: str, *, role: Role, missing: Iterable[str] = (), start: int = 0
) -> Matrix:
    """Return one row of features for each value.

    `missing` lists the texts that mean no value; a category that the column declares is never one of them. `start` is
    the number of the first row, for errors. A missing value has the feature 0 of a number, as at its centre.
    """
    if isinstance(kind, Number):
        try:
            given = numbers(values, missing=missing)
        except NotANumber as error:
            raise refusal(role, column, "a number is expected, not a text", row=start + error.row) from None
        absent = np.isnan(given)
    else:
        codes, absent = coded(values, kind.categories, missing)
    if kind.missing == "refuse" and absent.any():
        raise refusal(role, column, _NO_VALUE[role], row=start + int(absent.argmax()))
    if isinstance(kind, Number):
        if role != "private" and np.isinf(given).any():
            raise refusal(role, column, "a number must be finite", row=start + int(np.isinf(given).argmax()))
        features = np.where(absent, 0.0, _scaled(kind, given))[:, np.newaxis]
    else:
        features = np.zeros((len(codes), len(kind.categories)))
        known = np.flatnonzero(codes >= 0)
        features[known, codes[known]] = 1.0
    return np.column_stack([features, absent]) if kind.missing == "indicator" else features


def _scaled(kind: Number, given: Matrix) -> Matrix:
    with np.errstate(all="ignore"):
        if kind.centre is not None and kind.spread is not None:
            return np.clip((given - kind.centre) / kind.spread, -CLIP, CLIP)
        if kind.low is not None and kind.high is not None:
            middle, half = kind.low / 2 + kind.high / 2, kind.high / 2 - kind.low / 2
            return np.clip((np.clip(given, kind.low, kind.high) - middle) / half, -1.0, 1.0)
        return np.clip(given, -LARGEST, LARGEST)


def unscaled(kind: Number, value: float) -> float:
    """Return the number that a column has where its feature has this value."""
    if kind.centre is not None and kind.spread is not None:
        return kind.centre + kind.spread * value
    if kind.low is not None and kind.high is not None:
        return kind.low / 2 + kind.high / 2 + (kind.high / 2 - kind.low / 2) * value
    return value
