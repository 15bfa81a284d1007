"""One column of a table as a block of numbers in [0, 1]: ramps between cuts for numbers, 0/1 columns for categories.

The features of a row depend on the block's cuts or categories and on that row alone. Cuts and categories come from
public rows, from declarations, or from a schema, whose noisy marginals also give the mean shares of blocks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import set_validated
from quorate.core.errors import InvalidInput
from quorate.tables._embedded import Embedded
from quorate.tables.columns import Category, Date, Number
from quorate.tables.containers import raw_values
from quorate.tables.dates import read_moments
from quorate.tables.learned import ColumnMarginal, LearnedFacts
from quorate.tables.reading import DEFAULT_READING, Reading
from quorate.tables.values import canonical_text, read_codes, read_numbers, read_texts

Column = Any  # a raw column (`quorate.tables.values`), or what `raw_values` takes: a column of a matrix, a list

MISSING = "nan"  # how a missing value is written as a category
_OTHER = "another"
_PIECES = 3  # cuts up to which a curve has pieces alone: no line below them, and none for values beyond
_CLEAR = 3.0  # deviations of the noise, by which missing values stand out
_SPREADS = 3.0  # from the centre of a number to the ends of its curve, where nothing else is known
_FEWEST_OF_CATEGORY, _LEAST_SHARE_OF_FEW = 2, 0.1  # of public rows, where they are so few that none is frequent
_ENDS = (0.005, 0.995)  # the public quantiles between which a straight line rises


@dataclass(frozen=True)
class Ramps:
    """A column of numbers: between two neighbouring cuts one number rises from 0 to 1. A missing value has its own.

    With a `line`, one more number rises all the way from its first end to its second: where the noise is too large to
    see a curve, a straight line is left.
    """

    name: str
    cuts: tuple[float, ...]
    missing: bool = False
    line: tuple[float, float] | None = None
    date: bool = False  # whether values are dates, in days since 1970

    @property
    def has_ends_alone(self) -> bool:
        """Whether only the ends are declared, between which the fit chooses how many cuts there are."""
        return len(self.cuts) == 2 and self.line is not None

    @property
    def names(self) -> list[str]:
        """The names of the numbers it becomes."""
        rising = [f"{self.name} from {cut:.6g}" for cut in self.cuts[:-1]]
        return [*([self.name] if self.line else []), *rising, *([f"{self.name} is missing"] if self.missing else [])]

    @property
    def points(self) -> tuple[float, ...]:
        """Values between which what it becomes is straight, as far as public rows or declared bounds go."""
        beyond = self.line is not None and self.line[0] > self.cuts[0]
        return tuple(sorted({*(self.cuts[1:-1] if beyond else self.cuts), *(self.line or ())}))

    def read(self, values: Column, reading: Reading = DEFAULT_READING) -> NDArray[Any]:
        """Return the values of a column as numbers, dates as days since 1970; NaN for what is neither.

        A number in a column of dates is one of days, as an estimator gets dates.
        """
        numbers = column_numbers(values, reading)
        if not self.date:
            return numbers
        days = read_moments(raw_values(values), "days", reading)
        return np.where(np.isnan(days), numbers, days)

    def encode(self, values: Column) -> Floats:
        """Return one row a value. A missing value has 0 in every ramp."""
        return self.spread(self.read(values))

    def spread(self, read: NDArray[Any]) -> Floats:
        """Return one row for each value that was read."""
        return spread_ramps((self,), read[:, None])

    def atoms(self) -> Floats:
        """Return what the values at the cuts and halfway between them become."""
        cuts = np.array(self.cuts)
        values = np.sort(np.concatenate([cuts, (cuts[1:] + cuts[:-1]) / 2]))
        return self.encode(np.append(values, np.nan) if self.missing else values)


def spread_ramps(blocks: tuple[Ramps, ...], values: Floats) -> Floats:
    """Return what the blocks make of their columns of `values`, side by side: all columns in a few passes."""
    low, high, source, missing = ramp_ends(blocks)
    ramps = values[:, source]
    with np.errstate(all="ignore"):  # a warning would tell of a value
        ramps -= low
        ramps /= high - low
    np.fmax(ramps, 0.0, out=ramps)  # 0 where a value is missing
    np.fmin(ramps, 1.0, out=ramps)
    if missing.size:
        ramps[:, missing] = np.isnan(values[:, source[missing]])
    return ramps


@lru_cache(maxsize=64)
def ramp_ends(blocks: tuple[Ramps, ...]) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return where each ramp begins and ends, of which column it is, and which of them say that a value is missing."""
    ends = [
        (low, high, index, missing)
        for index, block in enumerate(blocks)
        for low, high, missing in (
            *([(*block.line, False)] if block.line else []),
            *((low, high, False) for low, high in pairwise(block.cuts)),
            *([(0.0, 1.0, True)] if block.missing else []),
        )
    ]
    low, high, source, missing = (np.array(part) for part in zip(*ends, strict=True))
    return low, high, source, np.flatnonzero(missing)


@dataclass(frozen=True)
class Categories:
    """A column of texts: a 0/1 number for each category, and one for every other text."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        set_validated(self, values=tuple(canonical_text(value) for value in self.values))

    @property
    def names(self) -> list[str]:
        """The names of the numbers it becomes."""
        return [*(f"{self.name}={value}" for value in self.values), f"{self.name} is another"]

    @property
    def points(self) -> tuple[str, ...]:
        """One value of each kind."""
        return (*self.values, _OTHER)

    def read(self, values: Column, reading: Reading = DEFAULT_READING) -> NDArray[Any]:
        """Return the place of each value among the categories; every other text has the last one."""
        codes = read_codes(raw_values(values), self.values, reading).astype(np.int32)
        missing = self.values.index(MISSING) if MISSING in self.values else len(self.values)
        codes[codes < 0] = missing
        return codes

    def encode(self, values: Column) -> Floats:
        """Return one row a value."""
        return self.spread(self.read(values))

    def spread(self, read: NDArray[Any]) -> Floats:
        """Return one row for each value that was read."""
        encoded = np.zeros((len(read), len(self.values) + 1))
        encoded[np.arange(len(read)), read] = 1.0
        return encoded

    def atoms(self) -> Floats:
        """Return what each category becomes."""
        return np.eye(len(self.values) + 1)


Block = Ramps | Categories


def column_numbers(values: Column, reading: Reading = DEFAULT_READING) -> Floats:
    """Return the values of a column as floats, with NaN for non-numbers."""
    plain = isinstance(values, np.ndarray) and values.dtype.kind == "f" and not reading.missing_numbers
    return values.astype(np.float64, copy=False) if plain else read_numbers(raw_values(values), reading)


def column_texts(values: Column) -> list[str]:
    """Return the values of a column as texts; a missing one is "nan"."""
    return [MISSING if text is None else text for text in read_texts(raw_values(values), ()).to_pylist()]


def ramps_from_public(name: str, values: Floats, *, cuts: int, rare: int) -> Ramps:
    """Return ramps with cuts at quantiles of public values, and one more on either side for values beyond them.

    A value that many rows share gets cuts of its own; the quantiles of the other values are then added.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise InvalidInput(f"column {name!r} has no number in the public rows: leave it out or declare its bounds")
    distinct, count = np.unique(finite, return_counts=True)
    missing = bool(finite.size < values.size)
    if len(distinct) <= 2:
        low, high = float(distinct[0]), float(distinct[-1])
        return Ramps(name, (low, high if high > low else low + 1.0), missing)
    if cuts <= _PIECES:  # a few straight pieces, clipped where public values become few
        pieces = np.unique(np.quantile(finite, np.linspace(*_ENDS, cuts + 1)))
        return Ramps(name, tuple(pieces.tolist() if len(pieces) > 1 else distinct[[0, -1]].tolist()), missing)
    indices = np.linspace(0.0, 1.0, cuts + 1)
    shared = distinct[count >= finite.size / cuts]
    chosen = [distinct[[0, -1]], shared]
    if len(distinct) <= cuts:
        chosen.append(distinct)
    else:
        chosen.append(np.quantile(finite, indices[1:-1], method="lower"))
        unshared = finite[~np.isin(finite, shared)]
        parts = min(cuts // 2, unshared.size // (2 * rare))
        if shared.size and parts:
            chosen.append(np.quantile(unshared, np.linspace(0.0, 1.0, parts + 1), method="lower"))
    low, high = (float(value) for value in np.quantile(finite, _ENDS))
    line = (low, high) if low < high else (float(distinct[0]), float(distinct[-1]))
    half = (distinct[-1] - distinct[0]) / 2
    chosen.append(np.array([distinct[0] - half, distinct[-1] + half]))
    return Ramps(name, tuple(np.unique(np.concatenate(chosen)).tolist()), missing, line)


def categories_from_public(name: str, values: Column, *, rare: int) -> Categories:
    """Return the categories that at least `rare` public rows show, or the most frequent ones.

    None is kept of a column of which every text is in few rows, such as ids: they say nothing about other rows.
    """
    distinct, count = np.unique(column_texts(values), return_counts=True)
    limit = max(int(count.max()), _FEWEST_OF_CATEGORY, math.ceil(len(values) * _LEAST_SHARE_OF_FEW))
    threshold = min(rare, limit)
    return Categories(name, tuple(distinct[count >= threshold].tolist()))


def declared_block(name: str, declared: Any, *, cuts: int | None) -> Block:
    """Return the block of a declared column: (low, high), a longer list of cuts, or a list of categories.

    Without `cuts`, a number of which the ends are declared has no others.
    """
    if isinstance(declared, Ramps | Categories):
        return declared if cuts is None else _with_cuts(declared, cuts)
    values = list(declared) if isinstance(declared, Sequence | np.ndarray) and not isinstance(declared, str) else []
    if values and all(isinstance(value, str) for value in values):
        return Categories(name, tuple(dict.fromkeys(canonical_text(value) for value in values)))
    numbers = _finite_numbers(values)
    if numbers.size < 2:
        raise InvalidInput(f"declare column {name!r} as (low, high), as a list of cuts or as a list of categories")
    ramps = Ramps(name, tuple(numbers.tolist()), line=(float(numbers[0]), float(numbers[-1])))
    return ramps if cuts is None else _with_cuts(ramps, cuts)


def _with_cuts(block: Block, cuts: int) -> Block:
    """Return a block with so many cuts between its ends, if these are all that is declared."""
    if not isinstance(block, Ramps) or not block.has_ends_alone:
        return block
    between = partial(np.linspace, num=cuts + 1) if block.date else partial(_cuts_between, cuts=cuts)
    return replace(block, cuts=tuple(between(*block.cuts).tolist()), line=block.line if cuts > 1 else None)


def _finite_numbers(values: list[Any]) -> Floats:
    """Return the distinct numbers of a list, sorted, or none if one of its values is no finite number."""
    try:
        numbers = np.unique(np.array(values, dtype=np.float64))
    except (TypeError, ValueError):
        return np.empty(0)
    return numbers if np.isfinite(numbers).all() else np.empty(0)


def check_input_names(columns: Any, given: Any) -> None:
    """Refuse names of input columns that are not those of fitted columns, as scikit-learn's transformers do."""
    if given is None:
        return
    names, known = list(given), getattr(columns, "feature_names_in_", None)
    if known is not None and names != list(known):
        raise InvalidInput("input_features is not equal to feature_names_in_")
    number = getattr(columns, "n_features_in_", len(names))
    if number != len(names):
        raise InvalidInput(f"input_features should have length equal to the number of columns, {number}")


def _cuts_between(low: float, high: float, *, cuts: int) -> Floats:
    """Return cuts of a number of which the ends are all that is known: even ones, and finer ones towards 0.

    How large a value may be says little about how large values are. Each of the finer cuts is half as far from 0 as the
    one before it, `cuts` times, so that a column with a long tail has cuts among its values.
    """
    if cuts <= _PIECES:
        return np.linspace(low, high, cuts + 1)
    halves = max(abs(low), abs(high)) / 2.0 ** np.arange(1, cuts + 1)
    finer = np.concatenate([-halves, [0.0], halves])
    finer = finer[(finer > low) & (finer < high)]
    even = np.linspace(low, high, max(cuts // 2, cuts - len(finer)) + 1)
    is_clear = np.abs(even[:, None] - np.append(finer, [low, high])).min(axis=1) > (high - low) / (2 * cuts)
    return np.unique(np.concatenate([[low, high], finer, even[is_clear]]))


def block_from_document(document: dict[str, Any]) -> Block:
    """Return the block that a document describes."""
    if set(document) == {"name", "values"}:
        return Categories(str(document["name"]), tuple(map(str, document["values"])))
    if set(document) != {"name", "cuts", "missing", "line", "date"}:
        raise InvalidInput("a block of columns is described that this version does not know")
    line = None if document["line"] is None else (float(document["line"][0]), float(document["line"][1]))
    cuts = tuple(map(float, document["cuts"]))
    return Ramps(str(document["name"]), cuts, bool(document["missing"]), line, bool(document["date"]))


def block_of_kind(name: str, kind: Any, learned: LearnedFacts | None) -> Any:
    """Return the block of a declared kind: ramps, categories, "text", or the kind itself where it is embedded."""
    marginal = None if learned is None else learned.marginals.get(name)
    if isinstance(kind, Category):
        missing = kind.missing == "indicator" if marginal is None else _has_missing(marginal)
        extra = [MISSING] if missing and MISSING not in kind.categories else []
        return Categories(name, (*kind.categories, *extra))
    if isinstance(kind, Number):
        return _ramps(name, kind, kind.missing == "indicator" if marginal is None else _has_missing(marginal))
    return kind if isinstance(kind, Embedded) else "text"


def _has_missing(marginal: ColumnMarginal) -> bool:
    return marginal.missing > _CLEAR * marginal.scale


def _ramps(name: str, kind: Number, missing: bool) -> Ramps:
    is_date = isinstance(kind, Date)
    if kind.cuts is not None and len(kind.cuts) > 1:
        cuts = tuple(kind.cuts)
        return Ramps(name, cuts, missing, (cuts[0], cuts[-1]) if len(cuts) > 2 else None, is_date)
    if kind.low is not None and kind.high is not None:
        ends = (kind.low, kind.high)
    elif kind.centre is not None and kind.spread is not None:
        ends = (kind.centre - _SPREADS * kind.spread, kind.centre + _SPREADS * kind.spread)
    else:
        raise InvalidInput(f"column {name!r} must have cuts, bounds, or a centre and a spread")
    return Ramps(name, ends, missing, ends, is_date)


def shares_of_blocks(
    blocks: Mapping[str, Any], marginals: Mapping[str, ColumnMarginal]
) -> dict[str, tuple[Floats, float]]:
    """Return the mean shares of each block whose marginal is known, and their standard deviation.

    The units between two cuts are divided between these by their mean value, or in halves where it is not known.
    """
    shares = {}
    for name, marginal in marginals.items():
        block, total = blocks.get(name), sum(marginal.counts) + marginal.missing
        if total <= 0 or not isinstance(block, Ramps | Categories) or getattr(block, "has_ends_alone", False):
            continue
        counts = np.array(marginal.counts)
        corners = _of_ramps(block, counts, marginal) if isinstance(block, Ramps) else _of_texts(block, counts, marginal)
        shares[name] = corners / total, marginal.scale / total
    return shares


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
    corners[-2 if block.values[-1] == MISSING else -1] += marginal.missing
    return corners
