"""Kinds of columns, and how a value of each becomes numbers. All they know was declared or came from a public table."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.checks import check_positive, set_validated
from quorate.errors import InvalidInput
from quorate.tables.roles import Role, refusal
from quorate.tables.values import NotANumber, canonical_text, numbers, texts

__all__ = ["CLIP", "LARGEST", "Category", "Kind", "Label", "Missing", "Number"]

CLIP = 10.0  # spreads away from the centre: wide enough for all but the strangest values
LARGEST = 1e38  # of a number that is not scaled: the learners leave out rows beyond it

Missing = Literal["refuse", "indicator"]
Matrix = NDArray[np.float64]

_NO_VALUE = {
    "private": 'a value is missing; leave such records out, or declare "missing": "indicator" for this column in the '
    "schema",
    "public": "a value is missing; fill it in or leave the row out",
    "query": "a value is missing; fill it in or leave the query out",
}


@dataclass(frozen=True)
class Number:
    """A column of numbers, scaled by what is known in public: `centre` and `spread`, or `low` and `high`, or nothing.

    With a centre and a spread it becomes (value - centre) / spread, clipped at `CLIP`; with bounds it is clipped to
    them and becomes -1 to 1. `missing="indicator"` adds a column that is 1 where the value is missing; the value itself
    is then 0, as it is at the centre.

    >>> Number(centre=40, spread=10).encode(pa.array([30, 1000]), "age", role="query").tolist()
    [[-1.0], [10.0]]
    >>> Number(low=0, high=100).encode(pa.array(["25", "250"]), "hours", role="query").tolist()
    [[-0.5], [1.0]]
    """

    centre: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    missing: Missing = "refuse"

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

    @property
    def width(self) -> int:
        """How many columns it becomes.

        >>> Number(missing="indicator").width
        2
        """
        return 1 + (self.missing == "indicator")

    def feature_names(self, column: str) -> list[str]:
        """Return the names of the columns it becomes.

        >>> Number(missing="indicator").feature_names("age")
        ['age', 'age is missing']
        """
        return [column, *_indicator(self.missing, column)]

    def encode(
        self, values: pa.Array, column: str, *, role: Role, missing: Iterable[str] = (), start: int = 0
    ) -> Matrix:
        """Return one row a value. `missing` are texts that mean no value; `start` is the number of the first row.

        >>> Number(missing="indicator").encode(pa.array([3.0, None]), "age", role="private").tolist()
        [[3.0, 0.0], [0.0, 1.0]]
        """
        try:
            given = numbers(values, missing=missing)
        except NotANumber as error:
            raise refusal(role, column, "a number is expected, and a text is none", row=start + error.row) from None
        absent = np.isnan(given)
        if self.missing == "refuse" and absent.any():
            raise refusal(role, column, _NO_VALUE[role], row=start + int(absent.argmax()))
        if role != "private" and np.isinf(given).any():
            raise refusal(role, column, "a number must be finite", row=start + int(np.isinf(given).argmax()))
        encoded = np.zeros((len(given), self.width))
        encoded[:, 0] = np.where(absent, 0.0, self._scaled(given))
        if self.missing == "indicator":
            encoded[:, 1] = absent
        return encoded

    def _scaled(self, given: Matrix) -> Matrix:
        with np.errstate(all="ignore"):
            if self.centre is not None and self.spread is not None:
                return np.clip((given - self.centre) / self.spread, -CLIP, CLIP)
            if self.low is not None and self.high is not None:
                middle, half = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
                return np.clip((np.clip(given, self.low, self.high) - middle) / half, -1.0, 1.0)
            return np.clip(given, -LARGEST, LARGEST)


@dataclass(frozen=True)
class Category:
    """A column of texts from a declared list, one 0/1 column for each. A text that is not on the list is all zeros.

    >>> Category(["red", "green"]).encode(pa.array(["green", "blue"]), "colour", role="query").tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    categories: Sequence[str]
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        set_validated(
            self, categories=tuple(canonical_text(value) for value in _listed("categories", self.categories, least=1))
        )
        set_validated(self, missing=_check_missing(self.missing))

    @property
    def width(self) -> int:
        """How many columns it becomes.

        >>> Category(["red", "green"]).width
        2
        """
        return len(self.categories) + (self.missing == "indicator")

    def feature_names(self, column: str) -> list[str]:
        """Return the names of the columns it becomes.

        >>> Category(["red", "green"]).feature_names("colour")
        ['colour=red', 'colour=green']
        """
        return [*(f"{column}={value}" for value in self.categories), *_indicator(self.missing, column)]

    def encode(
        self, values: pa.Array, column: str, *, role: Role, missing: Iterable[str] = (), start: int = 0
    ) -> Matrix:
        """Return one row a value. A text that means no value is a category all the same where the list names it.

        >>> Category(["?", "x"]).encode(pa.array([" ?", "x"]), "mark", role="query", missing=["?"]).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        codes, absent = _coded(values, self.categories, missing)
        if self.missing == "refuse" and absent.any():
            raise refusal(role, column, _NO_VALUE[role], row=start + int(absent.argmax()))
        encoded = np.zeros((len(codes), self.width))
        known = np.flatnonzero(codes >= 0)
        encoded[known, codes[known]] = 1.0
        if self.missing == "indicator":
            encoded[:, -1] = absent
        return encoded


Kind = Number | Category


@dataclass(frozen=True)
class Label:
    """The column that holds the label, and all the classes there are, in the order of their codes.

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
        """Return the code of each label. One that was not declared is refused, and not repeated.

        >>> Label("income", ["low", "high"]).codes(pa.array(["high", "secret"]), role="private")
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: the private records, column 'income': a label is not among the declared classes ...
        """
        codes, absent = _coded(values, [canonical_text(value) for value in self.classes], missing)
        if absent.any():
            raise refusal(role, self.column, "a label is missing", row=start + int(absent.argmax()))
        if (codes < 0).any():
            shown = ", ".join(repr(value) for value in self.classes)
            problem = f"a label is not among the declared classes {shown}"
            raise refusal(role, self.column, problem, row=start + int((codes < 0).argmax()))
        return codes


def _coded(
    values: pa.Array, known: Sequence[str], missing: Iterable[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the place of each value among the known ones (-1: not there), and which values are missing."""
    written = texts(values, missing=set(missing) - set(known))
    places = pc.index_in(written, value_set=pa.array(known, type=written.type), skip_nulls=True)
    codes = pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, pc.is_null(written).to_numpy(zero_copy_only=False)


def _indicator(missing: Missing, column: str) -> list[str]:
    return [f"{column} is missing"] if missing == "indicator" else []


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


def _listed(name: str, values: object, *, least: int) -> tuple[Any, ...]:
    """Return a list of texts, numbers or truth values that all differ once written as text."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} must be a list of at least {least}, not {values!r}")
    found = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not all(isinstance(value, str | int | float) for value in found):
        raise InvalidInput(f"{name} must be texts or numbers")
    written = [canonical_text(value) for value in found]
    if len(found) < least:
        raise InvalidInput(f"{name} must be a list of at least {least}, not of {len(found)}")
    for place, text in enumerate(written):
        if text in written[:place]:
            raise InvalidInput(f"{name} must differ: {text!r} stands twice")
    return found
