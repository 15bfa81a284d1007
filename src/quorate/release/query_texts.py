"""Queries of a release as texts: on the command line and over HTTP."""

import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.models.concepts import Box, Boxes, Halfspace, Halfspaces, Hypothesis

__all__ = ["parse_queries"]

_DIGITS = 2000  # of a number: 1e999999999 would take all of the memory
_SHOWN = 200  # letters of a query that cannot be read


def parse_queries(texts: Sequence[str], about: Any) -> list[Any]:
    """Return the queries that these texts say.

    An expression or a JSON object {"column": value} for a workload; "low:high,low:high" for boxes, with an end left
    out where there is none; "a,b>c" for the halfspace a*x + b*y > c.
    """
    if isinstance(about, Boxes):
        return [_box(text, about.features) for text in texts]
    if isinstance(about, Halfspaces):
        return [_halfspace(text, about.features) for text in texts]
    return [_named(text) for text in texts]


def _named(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        named = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f'a query as a JSON object must be readable, such as {{"age": 40}}, not {text[:_SHOWN]!r}'
        ) from None
    return {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}


def _exact(text: str) -> Fraction:
    """Return a number as it is written, if it has no more digits than are computed with in no time."""
    if "/" in text:
        return Fraction(text.strip())
    number = Decimal(text.strip())
    if not number.is_finite() or len(number.as_tuple().digits) + abs(number.adjusted()) > _DIGITS:
        raise ValueError
    return Fraction(number)


def _box(text: str, features: int) -> Hypothesis:
    try:
        ends = [part.split(":") for part in text.split(",")]
        lower = tuple(float(low) if low.strip() else -np.inf for low, _ in ends)
        upper = tuple(float(high) if high.strip() else np.inf for _, high in ends)
    except ValueError:
        lower = upper = ()
    if len(lower) != features or any(not low <= high for low, high in zip(lower, upper, strict=True)):
        raise InvalidInput(f"a box is asked by its {features} sides, low:high,low:high, not {text!r}")
    return Box(lower, upper)


def _halfspace(text: str, features: int) -> Hypothesis:
    normal, _, offset = text.partition(">")
    try:
        level = tuple(_exact(value) for value in normal.split(",")), _exact(offset)
    except (ValueError, ArithmeticError):
        level = (), Fraction(0)
    if len(level[0]) != features or not any(level[0]):
        raise InvalidInput(f"a halfspace is asked by {features} numbers and an offset, a,b>c, not {text!r}")
    return Halfspace(features=features, levels=(level,), otherwise=0)
