"""Declarations of columns, and their encoding as numbers for learners.

A declaration is public. Each value is read (`values`) and encoded independently of other rows. Here columns become
numbers; `cells` encodes them for releases.
"""

import itertools
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_choice, check_count, check_positive, set_validated
from quorate.core.errors import InvalidInput
from quorate.tables._embedded import Embedded
from quorate.tables.containers import Role, refusal
from quorate.tables.dates import DateUnit, check_unit, declared_moment, read_moments
from quorate.tables.reading import MISSING_TEXTS, Rules, as_reading
from quorate.tables.values import canonical_text, read_codes, read_numbers, read_texts

Missing = Literal["refuse", "indicator"]
Unknown = Literal["other", "refuse"]


@dataclass(frozen=True)
class Number:
    """A column of numbers with its public facts.

    Learners get it scaled: by `centre` and `spread`, by the bounds `low` and `high`, or not at all. A missing value of
    a query is refused, and a missing value of a private record counts as 0 (the centre). `missing="indicator"` adds an
    indicator column for both. A release counts the cells between `cuts` and a cell of non-numbers. A `closed` column
    has no such cell, and non-numbers count in the lowest cell. A release of marginals finds missing cuts with noise.
    Synthetic numbers go from `low` to `high` if these lie beyond the cuts; `spans` has, for each cell, the
    range of synthetic numbers, or more points: as many numbers lie between any two neighbouring ones.

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
    closed: bool = False
    spans: Sequence[Sequence[float]] | None = None

    def __post_init__(self) -> None:
        _check_scaling((self.centre, self.spread), (self.low, self.high))
        for name in ("centre", "low", "high"):
            if getattr(self, name) is not None:
                set_validated(self, **{name: _finite(name, getattr(self, name))})
        if self.spread is not None:
            set_validated(self, spread=check_positive("spread", self.spread))
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidInput(f"low must be below high, not {self.low:g} and {self.high:g}")
        _check_options(self)
        if self.cuts is not None:
            set_validated(self, cuts=_rising(self.cuts))
        if self.spans is not None:
            set_validated(self, spans=_within(self.spans, self.cuts))


@dataclass(frozen=True)
class Date(Number):
    """A column of dates, or of dates with times: a `Number` of units since the beginning of 1970, in UTC.

    `low`, `high`, `centre` and `cuts` may be written as dates. Learners get it scaled as any number, so it needs bounds
    that are known in public, or a centre and a spread.

    >>> from quorate.tables import Schema
    >>> schema = Schema({"visited": Date(low="2024-01-01", high="2024-12-31")})
    >>> schema.encode(pa.table({"visited": ["2024-01-01", "2024-07-01T12:00", "2031-05-05"]})).round(3).tolist()
    [[-1.0], [0.0], [1.0]]
    """

    unit: DateUnit = "days"

    def __post_init__(self) -> None:
        unit = check_unit(self.unit)
        for name in ("centre", "low", "high"):
            set_validated(self, **{name: declared_moment(getattr(self, name), unit)})
        if isinstance(self.cuts, Iterable) and not isinstance(self.cuts, str):
            set_validated(self, cuts=[declared_moment(cut, unit) for cut in self.cuts])
        if isinstance(self.spans, Sequence) and all(isinstance(span, list | tuple) for span in self.spans):
            set_validated(self, spans=[[declared_moment(end, unit) for end in span] for span in self.spans])
        super().__post_init__()
        if (self.centre, self.low, self.cuts) == (None, None, None):
            raise InvalidInput(
                'a date needs bounds that are known in public, as in {"kind": "date", "low": "2020-01-01", "high": '
                '"2025-12-31"}, or for a release cuts, as in {"kind": "date", "cuts": ["2024-01-01", "2024-07-01"]}'
            )


@dataclass(frozen=True)
class Category:
    """A column of texts from a declared list.

    Learners get one 0/1 column for each category; a text that is not on the list is all zeros, or with
    `unknown="refuse"` a query with it is refused. A release counts one cell for each, and one for everything else,
    unless the column is `closed`: then any other value counts as the first. `missing` is as for `Number`. `parents` is
    a public hierarchy, {"county 1": "north", "north": "country"}: every category has a parent, and so may a parent; all
    have as many above them. Learners do not use it.

    >>> from quorate.tables import Schema
    >>> Schema({"colour": Category(["red", "green"])}).encode(pa.table({"colour": ["green", "blue"]})).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    categories: Sequence[str]
    missing: Missing = "refuse"
    unknown: Unknown = "other"
    closed: bool = False
    parents: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        set_validated(
            self,
            categories=tuple(canonical_text(value) for value in _check_list("categories", self.categories, minimum=1)),
        )
        _check_options(self)
        check_choice("unknown", self.unknown, get_args(Unknown))
        if self.parents is not None:
            set_validated(self, parents=_check_parents(tuple(self.categories), self.parents))


def _check_parents(categories: tuple[str, ...], parents: Any) -> dict[str, str]:
    """Return a hierarchy in which all categories have as many above them."""
    if not isinstance(parents, Mapping) or not parents:
        raise InvalidInput('parents must be an object such as {"county 1": "north", "county 2": "north"}')
    above = {canonical_text(child): canonical_text(parent) for child, parent in parents.items()}
    level = tuple(dict.fromkeys(categories))
    nodes: set[str] = set()
    while any(name in above for name in level):
        lacking = [name for name in level if name not in above]
        if lacking:
            raise InvalidInput(f"parents must say what {lacking[0]!r} belongs to, as they do for others beside it")
        nodes |= set(level)
        level = tuple(dict.fromkeys(above[name] for name in level))
        if nodes & set(level):
            raise InvalidInput(f"{min(nodes & set(level))!r} stands on two levels of the hierarchy")
    if set(above) - nodes:
        raise InvalidInput(f"parents name {min(set(above) - nodes)!r}, which no category belongs to")
    return above


@dataclass(frozen=True)
class Text:
    """A column of sentences, such as notes.

    Learners get counts of words in `buckets`, chosen by a public hash, so no vocabulary is learned from records. The
    numbers of a row are from 0 to 1, and their squares add up to 1. A missing text has no words.

    >>> from quorate.tables import Schema
    >>> Schema({"note": Text(buckets=4)}).encode(pa.table({"note": ["chest pain, chest", None]})).round(2).tolist()
    [[0.0, 0.0, 0.45, 0.89], [0.0, 0.0, 0.0, 0.0]]
    """

    buckets: int = 256

    def __post_init__(self) -> None:
        set_validated(self, buckets=check_count("buckets", self.buckets))


Sentences = Text | Embedded
Kind = Number | Category | Sentences


@dataclass(frozen=True)
class Label:
    """The column that holds the label, and all its classes, in the order of their codes.

    >>> from quorate.tables.containers import open_column
    >>> Label("income", ["low", "high"]).codes(open_column(["high", "low", None]), role="private")
    array([ 1,  0, -1])
    """

    column: str
    classes: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise InvalidInput(f"the label's column must be a column name, not {self.column!r}")
        classes = _check_list("classes", self.classes, minimum=2)
        are_whole = all(isinstance(value, int) and not isinstance(value, bool) for value in classes)
        set_validated(self, classes=classes if are_whole else tuple(canonical_text(value) for value in classes))

    def codes(self, values: pa.Array, *, role: Role, rules: Rules = MISSING_TEXTS, start: int = 0) -> Integers:
        """Return the place of each label of a raw column among the classes; -1 for a private label that is not there.

        A public label that is missing or not declared is refused, and so is one of a query; the error does not repeat
        it.
        """
        codes = read_codes(values, [canonical_text(value) for value in self.classes], rules)
        is_class = (codes >= 0) & (codes < len(self.classes))
        if role != "private" and not is_class.all():
            listed = ", ".join(repr(value) for value in self.classes)
            first = int((~is_class).argmax())
            problem = "a label is missing" if codes[first] < 0 else f"a label must be one of the classes {listed}"
            raise refusal(role, self.column, problem, row=start + first)
        return np.where(is_class, codes, -1)


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidInput(f"{name} must be a finite number, not {value!r}")
    return float(value)


def _check_options(kind: "Number | Category") -> None:
    check_choice("missing", kind.missing, get_args(Missing))
    if not isinstance(kind.closed, bool):
        raise InvalidInput(f"closed must be true or false, not {kind.closed!r}")


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


def _check_scaling(scaled: tuple[Any, Any], bounded: tuple[Any, Any]) -> None:
    """Refuse half of a scaling, or two of them."""
    if (None in scaled and scaled != (None, None)) or (None in bounded and bounded != (None, None)):
        raise InvalidInput("a number needs both of centre and spread, or both of low and high, or none of them")
    if scaled != (None, None) and bounded != (None, None):
        raise InvalidInput("a number is scaled by centre and spread or by low and high, not by both")


def _within(spans: object, cuts: Sequence[float] | None) -> tuple[tuple[float, ...], ...]:
    """Return for each cell that cuts leave the points over which its values are spread."""
    cells = list(itertools.pairwise((-math.inf, *(cuts or ()), math.inf)))
    listed = _points_in(spans)
    if cuts is None or len(listed) != len(cells):
        raise InvalidInput("spans must be lists of points, one for each cell between the cuts and beyond them")
    spread = tuple(tuple(_finite("a point of a span", point) for point in points) for points in listed)
    for (low, high), points in zip(cells, spread, strict=True):
        if not (low <= points[0] < high and points[-1] <= high and list(points) == sorted(points)):
            raise InvalidInput("each of the spans must lie within its cell, its points in rising order")
    return spread


def _points_in(spans: object) -> Sequence[Any]:
    """Return a list of lists of points, or an empty one for anything else."""
    is_listed = isinstance(spans, list | tuple) and all(isinstance(span, list | tuple) for span in spans)
    return spans if is_listed and all(len(span) > 1 for span in spans) else []  # type: ignore[attr-defined,return-value]


def _check_list(name: str, values: object, *, minimum: int) -> tuple[Any, ...]:
    """Return a list of texts, numbers or truth values that all differ once written as text."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} must be a list of at least {minimum}, not {values!r}")
    listed = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not all(isinstance(value, str | int | float) for value in listed):
        raise InvalidInput(f"{name} must be texts or numbers")
    written = [canonical_text(value) for value in listed]
    if len(listed) < minimum:
        raise InvalidInput(f"{name} must be a list of at least {minimum}, not of {len(listed)}")
    if len(set(written)) < len(written):
        twice = next(text for index, text in enumerate(written) if text in written[:index])
        raise InvalidInput(f"{name} must differ: {twice!r} appears twice")
    return listed


CLIP = 10.0  # spreads away from the centre: wide enough for all but the strangest values
LARGEST = 1e38  # of a number that is not scaled: the learners leave out rows beyond it


_NO_VALUE = {
    "public": "a value is missing; fill it in or leave the row out",
    "query": "a value is missing; fill it in or leave the query out",
}


def feature_names(kind: Kind, column: str) -> list[str]:
    """Return the names of the features that a column becomes."""
    if isinstance(kind, Text):
        return [f"{column} word {bucket}" for bucket in range(kind.buckets)]
    if isinstance(kind, Embedded):
        return [f"{column} embedded {place}" for place in range(kind.width)]
    values = [column] if isinstance(kind, Number) else [f"{column}={value}" for value in kind.categories]
    return [*values, f"{column} is missing"] if kind.missing == "indicator" else values


def encode_features(
    kind: Kind, values: pa.Array, column: str, *, role: Role, rules: Rules = MISSING_TEXTS, start: int = 0
) -> Floats:
    """Return one row of features for each value of a raw column.

    `rules` say how texts are read; a category that the column declares never means a missing value. `start` is the
    number of the first row, for errors. A missing value has the feature 0 of a number, as at its centre, and of
    every category. No private value is refused: one that cannot be read is missing.
    """
    if isinstance(kind, Text):
        return _words(kind, values, rules)
    if isinstance(kind, Embedded):
        return kind.embed(read_texts(values, as_reading(rules).missing_texts).to_pylist())
    if isinstance(kind, Category):
        features, absent = _flags(kind, values, column, role=role, rules=rules, start=start)
    else:
        numbers = _read(kind, values, column, role=role, rules=rules, start=start)
        absent = np.isnan(numbers)
        features = np.where(absent, 0.0, _scale_numbers(kind, numbers))[:, np.newaxis]
    if kind.missing == "indicator":
        return np.column_stack([features, absent])
    if role != "private" and absent.any():
        raise refusal(role, column, _NO_VALUE[role], row=start + int(absent.argmax()))
    return features


def unknown_values(kind: Kind, values: pa.Array, rules: Rules = MISSING_TEXTS) -> NDArray[np.bool_]:
    """Return which values of a raw column are texts that a category does not list; False for columns of other kinds."""
    if not isinstance(kind, Category):
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(read_codes(values, kind.categories, rules) == len(kind.categories))


def unreadable_values(kind: Kind, values: pa.Array, rules: Rules = MISSING_TEXTS) -> NDArray[np.bool_]:
    """Return which values of a raw column are given and cannot be read as this kind: they count as missing."""
    if not isinstance(kind, Number):
        return np.zeros(len(values), dtype=np.bool_)
    present = pc.is_valid(read_texts(values, as_reading(rules).missing_texts)).to_numpy(zero_copy_only=False)
    return np.asarray(np.isnan(read_values(kind, values, rules)) & present)


def read_values(kind: Number, values: pa.Array, rules: Rules = MISSING_TEXTS) -> Floats:
    """Return the values of a raw column of numbers or dates, with NaN for missing and unreadable values."""
    if isinstance(kind, Date):
        return read_moments(values, kind.unit, rules)
    return read_numbers(values, rules)


def _read(kind: Number, values: pa.Array, column: str, *, role: Role, rules: Rules, start: int) -> Floats:
    """Return the values of a column of numbers or dates; refuse unreadable values of a query."""
    numbers = read_values(kind, values, rules)
    if role == "private":
        return numbers
    wrong = (
        unreadable_values(kind, values, rules) if np.isnan(numbers).any() else np.zeros(len(numbers), dtype=np.bool_)
    )
    if wrong.any():
        expected = "a date is expected, written as 2024-05-31" if isinstance(kind, Date) else "a number is expected"
        raise refusal(role, column, f"{expected}, not a text", row=start + int(wrong.argmax()))
    if np.isinf(numbers).any():
        raise refusal(role, column, "a number must be finite", row=start + int(np.isinf(numbers).argmax()))
    return numbers


def _flags(
    kind: Category, values: pa.Array, column: str, *, role: Role, rules: Rules, start: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return a 0/1 column for each category, and which values are missing."""
    codes = read_codes(values, kind.categories, rules)
    unknown = codes == len(kind.categories)
    if role == "query" and kind.unknown == "refuse" and unknown.any():
        problem = "a category that the model does not know"
        raise refusal(role, column, problem, row=start + int(unknown.argmax()))
    present = np.flatnonzero((codes >= 0) & ~unknown)
    features = np.zeros((len(codes), len(kind.categories)))
    features[present, codes[present]] = 1.0
    return features, codes < 0


_WORD = re.compile(r"\w+")


def _words(kind: Text, values: pa.Array, rules: Rules) -> Floats:
    """Return how often words of each bucket occur in each text, by the length of the row."""
    features = np.zeros((len(values), kind.buckets))
    for row, text in enumerate(read_texts(values, as_reading(rules).missing_texts).to_pylist()):
        for word in _WORD.findall((text or "").lower()):
            features[row, zlib.crc32(word.encode("utf-8", "replace")) % kind.buckets] += 1.0
    lengths = np.sqrt(np.square(features).sum(axis=1, keepdims=True))
    return features / np.where(lengths > 0, lengths, 1.0)


def _scale_numbers(kind: Number, numbers: Floats) -> Floats:
    with np.errstate(all="ignore"):
        if kind.centre is not None and kind.spread is not None:
            return np.clip((numbers - kind.centre) / kind.spread, -CLIP, CLIP)
        if kind.low is not None and kind.high is not None:
            middle, half = kind.low / 2 + kind.high / 2, kind.high / 2 - kind.low / 2
            return np.clip((np.clip(numbers, kind.low, kind.high) - middle) / half, -1.0, 1.0)
        return np.clip(numbers, -LARGEST, LARGEST)


def unscaled(kind: Number, value: float) -> float:
    """Return the number that a column has where its feature has this value."""
    if kind.centre is not None and kind.spread is not None:
        return kind.centre + kind.spread * value
    if kind.low is not None and kind.high is not None:
        return kind.low / 2 + kind.high / 2 + (kind.high / 2 - kind.low / 2) * value
    return value
