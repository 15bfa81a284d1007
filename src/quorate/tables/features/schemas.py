"""Blocks of columns from the kinds of a schema, and their mean shares from its noisy marginals."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables import Category, ColumnMarginal, Date, LearnedFacts, Number
from quorate.tables.features.blocks import Categories, Ramps

__all__ = ["block_of_kind", "shares_of_blocks"]

_MISSING_TEXT = "nan"  # as features write a missing value of a column of texts
_CLEAR = 3.0  # deviations of the noise, by which missing values stand out
_SPREADS = 3.0  # from the centre of a number to the ends of its curve, where nothing else is known


def block_of_kind(name: str, kind: Any, learned: LearnedFacts | None) -> Any:
    """Return the block of a declared kind: ramps, categories, or "text"."""
    marginal = None if learned is None else learned.marginals.get(name)
    if isinstance(kind, Category):
        missing = kind.missing == "indicator" if marginal is None else _has_missing(marginal)
        more = [_MISSING_TEXT] if missing and _MISSING_TEXT not in kind.categories else []
        return Categories(name, (*kind.categories, *more))
    if isinstance(kind, Number):
        return _ramps(name, kind, kind.missing == "indicator" if marginal is None else _has_missing(marginal))
    return "text"


def _has_missing(marginal: ColumnMarginal) -> bool:
    return marginal.missing > _CLEAR * marginal.scale


def _ramps(name: str, kind: Number, missing: bool) -> Ramps | tuple[float, float]:
    if kind.cuts is not None and len(kind.cuts) > 1:
        cuts = tuple(kind.cuts)
        return Ramps(name, cuts, missing, (cuts[0], cuts[-1]) if len(cuts) > 2 else None, isinstance(kind, Date))
    if kind.low is not None and kind.high is not None:
        return kind.low, kind.high
    if kind.centre is not None and kind.spread is not None:
        return kind.centre - _SPREADS * kind.spread, kind.centre + _SPREADS * kind.spread
    raise InvalidInput(f"column {name!r} must have cuts, bounds, or a centre and a spread")


def shares_of_blocks(
    blocks: Mapping[str, Any], marginals: Mapping[str, ColumnMarginal]
) -> dict[str, tuple[Floats, float]]:
    """Return the mean shares of each block whose marginal is known, and their standard deviation.

    The units between two cuts are divided between these by their mean value, or in halves where it is not known.
    """
    found = {}
    for name, marginal in marginals.items():
        block, total = blocks.get(name), sum(marginal.counts) + marginal.missing
        if total <= 0 or not isinstance(block, Ramps | Categories):
            continue
        counts = np.array(marginal.counts)
        corners = _of_ramps(block, counts, marginal) if isinstance(block, Ramps) else _of_texts(block, counts, marginal)
        found[name] = corners / total, marginal.scale / total
    return found


def _of_ramps(block: Ramps, counts: Floats, marginal: ColumnMarginal) -> Floats:
    cuts = np.array(block.cuts)
    with np.errstate(all="ignore"):
        high = np.clip((np.array(marginal.means or cuts[:-1]) - cuts[:-1]) / np.diff(cuts), 0.0, 1.0)
    high = np.nan_to_num(high, nan=0.5) if marginal.means else np.full(len(cuts) - 1, 0.5)
    corners: Floats = np.append(counts[1:-1] * (1 - high), 0.0) + np.append(0.0, counts[1:-1] * high)
    corners[0] += counts[0]
    corners[-1] += counts[-1]
    if block.missing:
        return np.append(corners, marginal.missing)
    corners[0] += marginal.missing  # all ramps of a missing value are 0, as they are at the first cut
    return corners


def _of_texts(block: Categories, counts: Floats, marginal: ColumnMarginal) -> Floats:
    corners = np.zeros(len(block.values) + 1)
    corners[: len(counts) - 1] = counts[:-1]
    corners[-1] = counts[-1]
    corners[-2 if block.values[-1] == _MISSING_TEXT else -1] += marginal.missing
    return corners
