"""How a column is declared: as numbers or as categories. All of a declaration is public.

`features` encodes a declared column as numbers for learners; `cells` encodes it as cells for releases.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.checks import check_positive, set_validated
from quorate.errors import InvalidInput
from quorate.tables.roles import Role, refusal
from quorate.tables.values import canonical_text, coded

__all__ = ["Category", "Kind", "Label", "Missing", "Number"]

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
