"""Answers as a tidy table: sums of cells, numbers of records in place of shares, the columns of rows."""

from typing import Any

import numpy as np

from quorate.arrays import Floats

__all__ = ["added", "as_counts", "keys_of"]


def added(values: Floats, starts: Any) -> Floats:
    """Return the sums of runs of values."""
    return values if len(starts) == len(values) else np.asarray(np.add.reduceat(values, starts))


def as_counts(bars: dict[str, Floats], records: int) -> dict[str, Any]:
    """Return shares as numbers of records, rounded to what the noise allows: ends outwards."""
    errors = np.nan_to_num(bars["error"]) * records
    unit = 10.0 ** np.floor(np.log10(np.maximum(errors, 1.0)))
    ways = {"answer": np.rint, "low": np.floor, "high": np.ceil}
    rounded = {name: way(np.nan_to_num(bars[name]) * records / unit) * unit for name, way in ways.items()}
    limited = {name: np.minimum(values, records).astype(np.int64) for name, values in rounded.items()}
    return {
        "answer": limited["answer"],
        "error": bars["error"] * records,
        "low": limited["low"],
        "high": limited["high"],
    }


def keys_of(names: list[dict[str, Any]]) -> list[str]:
    """Return the columns of a tidy table: those that any row has, in order."""
    keys: dict[str, None] = {}
    for name in names:
        keys.update(dict.fromkeys(name))
    return list(keys)
