"""Columns encoded as numbers for learners: each value by the declaration of its column alone."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.tables.columns import Kind, Number
from quorate.tables.roles import Role, refusal
from quorate.tables.values import NotANumber, coded, numbers

__all__ = ["CLIP", "LARGEST", "encode_features", "feature_names"]

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
