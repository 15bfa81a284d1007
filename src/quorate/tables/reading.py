"""The public rules by which a text is read as a number, a truth value or a missing one.

`Reading` states the rules; a schema carries one. Each text is read by itself. What can be read in one way only is read
so. What can be read in two ways is read as the rules declare it:

    1,234         a thousand, or 1.234 with decimal=","
    1.234         a little more than one, or a thousand with decimal=","
    05/06/2024    the 5th of June, or the 6th of May with date_order="mdy" (`dates`)

Signs and units are dropped and never change a number: 5% is 5, and 12 kg is 12. Multipliers (5k, 3 Mio, 2bn) are not
read: such a text is no number.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal

from quorate.core.checks import check_choice, set_validated
from quorate.core.errors import InvalidInput

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # "?" is a category like any other unless declared

_THOUSANDS = (",", ".", " ", "'", "’", "\u00a0", "\u2009", "\u202f")  # the last three are spaces that break no line
_SIGNS = ("$", "€", "£", "¥", "₹", "%", "‰", "°", "USD", "EUR", "GBP", "CHF", "JPY")
# Without m, M, k, K, t, b and B, which are multipliers as often as units. Owners declare those that they mean.
_UNITS = (
    "mg", "g", "kg", "Kg", "KG", "lb", "lbs", "oz", "mm", "cm", "km", "in", "ft", "mi", "ml", "mL", "cl", "dl", "l",
    "L", "ms", "s", "sec", "min", "h", "hr", "hrs", "hours", "days", "weeks", "months", "years", "yr", "yrs",
    "°C", "°F", "W", "kW", "kWh", "V", "Hz", "J", "kJ", "cal", "kcal", "bpm", "mmHg", "mg/dl", "mg/dL", "mmol/l",
    "mmol/L",
)  # fmt: skip
TRUTHS = ("false", "true")  # as every container writes a truth value: all readings have them
_TRUE = ("true", "yes", "y", "ja", "j", "oui", "si", "sí", "wahr", "vrai")
_FALSE = ("false", "no", "n", "nein", "non", "falsch", "faux")

PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE | re.ASCII)
_AMBIGUOUS = re.compile(r"[1-9]\d{0,2}[.,]\d{3}", re.ASCII)  # The mark is one of decimals or of thousands.
_BODY = re.compile(r"(\d[^eE]*|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_LONGEST = 100  # characters of a number with signs or marks: a longer text is none

Decimal = Literal[".", ","]
DateOrder = Literal["dmy", "mdy"]


@dataclass(frozen=True)
class Reading:
    """The public rules by which texts are read.

    missing_texts
        Texts that mean a missing value, unless a column declares one of them as a category.
    decimal
        The decimal mark, "." or ",", of a number that can be read in two ways, such as 1,234.
    thousands
        The marks that may stand between groups of three digits.
    signs
        Currency and percent signs that are dropped before or behind a number.
    units
        Units that are dropped behind a number, in these letters.
    true_texts, false_texts
        Words for 1 and 0, in any letters: as numbers, and in a category column that declares a pair of them. "true"
        and "false" are always among them, because that is how a truth value of any container is written.
    date_order
        Whether 05/06/2024 has the day first, "dmy", or the month, "mdy".
    compact_dates
        Whether eight digits are a date: 20241231.

    >>> reading = Reading()
    >>> [reading.number(text) for text in ("1,234.50", "1.234,50", "1,5", "€ 12", "7%", "3.5kg", "yes", "5k")]
    [1234.5, 1234.5, 1.5, 12.0, 7.0, 3.5, 1.0, nan]
    >>> [Reading(decimal=mark).number("1,234") for mark in ".,"]
    [1234.0, 1.234]
    """

    missing_texts: Sequence[str] = MISSING_TEXTS
    decimal: Decimal = "."
    thousands: Sequence[str] = _THOUSANDS
    signs: Sequence[str] = _SIGNS
    units: Sequence[str] = _UNITS
    true_texts: Sequence[str] = _TRUE
    false_texts: Sequence[str] = _FALSE
    date_order: DateOrder = "dmy"
    compact_dates: bool = False

    def __post_init__(self) -> None:
        for name in ("missing_texts", "thousands", "signs", "units", "true_texts", "false_texts"):
            set_validated(self, **{name: check_texts(name, getattr(self, name))})
        check_choice("decimal", self.decimal, (".", ","))
        check_choice("date_order", self.date_order, ("dmy", "mdy"))
        if not isinstance(self.compact_dates, bool):
            raise InvalidInput(f"compact_dates must be true or false, got {self.compact_dates!r}")
        if any(len(mark) != 1 or mark.isalnum() or mark in "+-" for mark in self.thousands):
            raise InvalidInput("thousands must be single characters that are no digits, letters or signs")
        if ambiguous := self._truth_words[True] & self._truth_words[False]:
            raise InvalidInput(f"a text must mean true or false, not both: {min(ambiguous)!r}")

    @classmethod
    def from_document(cls, schema: Mapping[str, Any]) -> "Reading":
        """Return the rules that the JSON object of a schema states; others have their defaults."""
        rules, keys = schema.get("reading", {}), [rule.name for rule in fields(cls) if rule.name != "missing_texts"]
        if not isinstance(rules, Mapping):
            raise InvalidInput(f'reading must be an object such as {{"decimal": ","}}, got {rules!r}')
        for key in rules:
            if key not in keys:
                raise InvalidInput(f"reading: {key!r} means nothing here; the keys are {', '.join(keys)}")
        return cls(**rules, missing_texts=schema.get("missing_texts", MISSING_TEXTS))

    def to_document(self) -> dict[str, Any]:
        """Return "missing_texts" and, under "reading", other rules that are not defaults, as a schema states them."""
        changed = {key: value for key, value in asdict(self).items() if value != getattr(DEFAULT_READING, key)}
        rules = {key: list(value) if isinstance(value, tuple) else value for key, value in changed.items()}
        rules.pop("missing_texts", None)
        return {"missing_texts": list(self.missing_texts)} | ({"reading": rules} if rules else {})

    def number(self, text: str) -> float:
        """Return the number that a text without surrounding blanks stands for, or NaN."""
        if PLAIN_NUMBER.fullmatch(text) and not self.has_two_readings(text):
            return float(text) + 0.0
        truth = self.truth(text)
        if truth is not None:
            return float(truth)
        return self._marked_number(text) if len(text) <= _LONGEST else math.nan

    def has_two_readings(self, text: str) -> bool:
        """Return whether a number that programs read with a point means thousands by these rules."""
        return self.decimal == "," and "." in self.thousands and bool(_AMBIGUOUS.fullmatch(text.lstrip("+-")))

    def truth(self, text: str) -> bool | None:
        """Return the truth value that a word means, or None."""
        word = text.casefold()
        return True if word in self._truth_words[True] else False if word in self._truth_words[False] else None

    @cached_property
    def missing_numbers(self) -> tuple[float, ...]:
        """The numbers among the texts that mean a missing value, such as -999."""
        numbers = (self.number(text) for text in self.missing_texts)
        return tuple(number for number in numbers if not math.isnan(number))

    def unit_of(self, text: str) -> str | None:
        """Return the sign or the unit behind a number, or None."""
        match = self._parts.fullmatch(text)
        return None if match is None else match["before"] or match["behind"] or None

    @cached_property
    def _truth_words(self) -> dict[bool, frozenset[str]]:
        listed = {True: self.true_texts, False: self.false_texts}
        return {
            truth: frozenset([TRUTHS[truth], *(text.casefold() for text in texts)]) for truth, texts in listed.items()
        }

    @cached_property
    def _parts(self) -> re.Pattern[str]:
        prefix, suffix = (_any_of(marks) for marks in (self.signs, (*self.signs, *self.units)))
        return re.compile(
            rf"(?P<sign>[+-]?)\s*(?P<before>{prefix})?\s*(?P<inner>[+-]?)(?P<body>[\d.,].*?)\s*(?P<behind>{suffix})?"
        )

    def _marked_number(self, text: str) -> float:
        """Return a number with signs, units or marks between its digits, or NaN."""
        match = self._parts.fullmatch(text.replace("\u2212", "-"))  # the minus of a typesetter
        if match is None or (match["sign"] and match["inner"]):
            return math.nan
        body = _BODY.fullmatch(match["body"])
        plain = None if body is None else self._plain_digits(body[1], with_exponent=body[2] is not None)
        if body is None or plain is None:
            return math.nan
        return float(f"{match['sign']}{match['inner']}{plain}{body[2] or ''}") + 0.0

    def _plain_digits(self, body: str, *, with_exponent: bool) -> str | None:
        """Return digits with at most a point among them, or None where marks do not stand as in a number."""
        marks = {mark for mark in body if not _DIGITS.fullmatch(mark)}
        decimal = self._decimal_mark(body, marks, with_exponent=with_exponent)
        integer, point, decimals = body.partition(decimal) if decimal else (body, "", "")
        if point and not _DIGITS.fullmatch(decimals) and (decimals or point == ","):
            return None
        if not self._is_grouped(integer, marks - {decimal}, with_exponent=with_exponent):
            return None
        return f"{''.join(_DIGITS.findall(integer)) or '0'}.{decimals or '0'}"

    def _decimal_mark(self, body: str, marks: set[str], *, with_exponent: bool) -> str | None:
        """Return the mark that stands before decimals, or None if there is none."""
        points = sorted(marks & {".", ","}, key=body.rfind)
        if not points or body.count(points[-1]) > 1:
            return None
        mark = points[-1]
        if len(marks) == 1 and not with_exponent and _AMBIGUOUS.fullmatch(body):
            return mark if mark == self.decimal or mark not in self.thousands else None
        return mark

    def _is_grouped(self, integer: str, marks: set[str], *, with_exponent: bool) -> bool:
        """Return whether there is no mark, or one that stands between groups of three digits."""
        if not marks:
            return True
        if len(marks) > 1 or with_exponent or not marks <= set(self.thousands):
            return False
        first, *groups = integer.split(min(marks))
        has_digits = all(_DIGITS.fullmatch(part) for part in (first, *groups))
        return has_digits and 1 <= len(first) <= 3 and all(len(group) == 3 for group in groups)


Rules = Reading | Iterable[str]  # the latter are texts that mean a missing value


def as_reading(rules: Rules) -> Reading:
    """Return rules as a `Reading`: texts are those that mean a missing value, beside the default rules."""
    return rules if isinstance(rules, Reading) else _default_with(tuple(rules))


@lru_cache(maxsize=64)
def _default_with(missing_texts: tuple[str, ...]) -> Reading:
    return Reading(missing_texts=missing_texts)


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, texts), key=len, reverse=True)) or r"(?!)"


def check_texts(name: str, values: object) -> tuple[str, ...]:
    """Return a list of texts, such as names of columns, as a tuple."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not all(isinstance(v, str) for v in values):
        raise InvalidInput(f"{name} must be a list of texts, not {values!r}")
    return tuple(values)


DEFAULT_READING = Reading()
