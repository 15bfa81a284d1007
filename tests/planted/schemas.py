"""Learned schemas with one mistake each: of the lists of texts by their exact law, of the rest by neighbours."""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from planted.bug import Caught, PlantedBug, kind_bug, replaced, replacement_bug
from planted.exact import ConstantNoise, compare_orders
from quorate.core.mechanisms import SparseHistogram
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.tables import learned
from quorate.tables.cut_tree import CutTree
from quorate.tables.features import learned_cuts
from quorate.tables.features.blocks import Categories, Ramps
from quorate.tables.learned import kinds_of_values

Lists = Sequence[Mapping[str, int]]
Laws = list[dict[Any, float]]

_EPSILON, _SCALE, _SLACK, _COLUMNS = 0.5, 3.0, 0.02, 2
_MANY = 40  # units: their key passes always
_RADIUS = 6  # deviations of the noise that are listed


def _laws(histogram: SparseHistogram, lists: Lists, keys: Sequence[tuple[int, str]]) -> Laws:
    """Return the law of what is published of each key: None where it is dropped."""
    radius = math.ceil(_RADIUS * histogram.scale)
    chances = gaussian_pmf(histogram.scale, radius)
    laws: Laws = [{} for _ in keys]
    for value, chance in zip(range(-radius, radius + 1), chances.tolist(), strict=True):
        source: Any = ConstantNoise(value)
        passed = histogram.draw_release(lists, (), None, source)
        for law, (place, key) in zip(laws, keys, strict=True):
            outcome = passed[place].get(key)
            law[outcome] = law.get(outcome, 0.0) + chance
    return laws


def exact_delta_of_lists(histogram: SparseHistogram, before: Lists, after: Lists, epsilon: float) -> float:
    """Return the delta between two neighbours, by the whole law of the keys that change."""
    keys = sorted(
        {
            (place, key)
            for place, (one, other) in enumerate(zip(before, after, strict=True))
            for key in {*one, *other}
            if one.get(key, 0) != other.get(key, 0)
        }
    )
    first, second = np.ones(1), np.ones(1)
    for one, other in zip(_laws(histogram, before, keys), _laws(histogram, after, keys), strict=True):
        outcomes = sorted({*one, *other}, key=lambda outcome: (outcome is not None, outcome))
        first = np.outer(first, [one.get(outcome, 0.0) for outcome in outcomes]).ravel()
        second = np.outer(second, [other.get(outcome, 0.0) for outcome in outcomes]).ravel()
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def neighbouring_lists(columns: int) -> list[tuple[Lists, Lists]]:
    """Return neighbours: every pattern of counts that change among three units, and where many others hold a key."""
    patterns = [
        ({"a": old, "b": new}, {"a": old - 1, "b": new + 1}) for old in (1, 2, 3) for new in (0, 1, 2) if old + new <= 3
    ]
    patterns.append(({"a": 1}, {"a": 1}))
    patterns.append(({"a": _MANY + 1, "b": _MANY}, {"a": _MANY, "b": _MANY + 1}))
    patterns.append(({"a": 1, "b": _MANY}, {"b": _MANY + 1}))
    patterns.append(({"b": _MANY + 1}, {"a": 1, "b": _MANY}))
    chosen = itertools.combinations_with_replacement(patterns, columns)
    return [([one for one, _ in pairs], [other for _, other in pairs]) for pairs in chosen]


class _ThresholdOfOneColumn(SparseHistogram):
    """Gives every column the whole slack."""

    @classmethod
    def for_slack(cls, *, columns: int, scale: float, slack: float) -> "SparseHistogram":
        """Take the threshold of one column: that is the mistake."""
        one = SparseHistogram.for_slack(columns=1, scale=scale, slack=slack)
        return cls(columns=columns, scale=scale, threshold=one.threshold)


class _SingleTextsKept(SparseHistogram):
    """Publishes every text that occurs."""

    def _passed(self, counts: Mapping[str, int], always: Any, source: Any) -> dict[str, int]:
        """Add noise and let all texts pass: that is the mistake."""
        keys = sorted(key for key, count in counts.items() if count > 0)
        noisy = source.gaussian(self.scale, len(keys)).tolist()
        return {key: max(counts[key] + more, 0) for key, more in zip(keys, noisy, strict=True)}


class _PaidAsAdded(SparseHistogram):
    """Has the noise of one text in each column."""

    @classmethod
    def for_slack(cls, *, columns: int, scale: float, slack: float) -> "SparseHistogram":
        """Take noise for a unit that is added, which moves one count: that is the mistake."""
        sound = SparseHistogram.for_slack(columns=columns, scale=scale / math.sqrt(2), slack=slack)
        return cls(columns=columns, scale=sound.scale, threshold=sound.threshold)


class _RowOrder(SparseHistogram):
    """Publishes texts in the order in which rows have them."""

    def _passed(self, counts: Mapping[str, int], always: Any, source: Any) -> dict[str, int]:
        """Keep the order of the rows: that is the mistake."""
        passed = super()._passed(counts, always, source)
        return {key: passed[key] for key in counts if key in passed}


def _enumerate_lists(kind: type[SparseHistogram]) -> Caught:
    """Compare the exact delta of all small neighbours, and the chance of single texts, with what is claimed."""
    claimed = SparseHistogram.for_slack(columns=_COLUMNS, scale=_SCALE, slack=_SLACK).delta(epsilon=_EPSILON)
    histogram = kind.for_slack(columns=_COLUMNS, scale=_SCALE, slack=_SLACK)
    worst = max(exact_delta_of_lists(histogram, *pair, _EPSILON) for pair in neighbouring_lists(_COLUMNS))
    single = 1.0 - (1.0 - _single_chance(histogram)) ** _COLUMNS
    evidence = f"delta is {worst:.4f} of {claimed:.4f}; a single text passes with {single:.4f} of {_SLACK}"
    return Caught("enumeration of small tables", evidence, found=worst > claimed or single > _SLACK)


def _single_chance(histogram: SparseHistogram) -> float:
    [law] = _laws(histogram, [{"a": 1}, {}], [(0, "a")])
    return 1.0 - law.get(None, 0.0)


def _compare_orders(kind: type[SparseHistogram]) -> Caught:
    histogram = kind(columns=1, scale=1.0, threshold=5)
    return compare_orders(lambda counts, source: histogram.draw_release([counts], (), None, source)[0])


class _Told:
    """Stands for `NoisyVectors`: it says what it was told, or the counts themselves, and keeps what it was asked."""

    def __init__(self, told: list[NDArray[np.int64]] | None) -> None:
        self._told, self.asked = told, list[tuple[NDArray[np.int64], int]]()

    def scale(self, *, squared_sensitivity: int, fraction: float) -> float:
        return math.sqrt(squared_sensitivity / fraction) * 1e-3

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[NDArray[np.int64], float]:
        part = np.asarray(part, dtype=np.int64)
        self.asked.append((part, squared_sensitivity))
        told = part if self._told is None else self._told[len(self.asked) - 1]
        return told, self.scale(squared_sensitivity=squared_sensitivity, fraction=fraction)


def told_schema(rows: Mapping[str, Sequence[Any]], told: list[NDArray[np.int64]] | None) -> tuple[Any, _Told]:
    """Learn columns from rows, where all releases say what was told; return the kinds and what was asked."""
    vectors = _Told(told)
    columns = {name: pa.array(values, type=pa.large_string()) for name, values in rows.items()}
    units = len(next(iter(columns.values())))
    stand_in: Any = vectors
    found = learned.learn_columns(columns, stand_in, units=units, slack=1e-7)
    return found, vectors


CUT_BLOCKS = {"x": Ramps("x", (0.0, 8.0), line=(0.0, 8.0)), "y": Categories("y", ("oak", "elm"))}


def told_cuts(rows: Mapping[str, Sequence[Any]], told: list[NDArray[np.int64]] | None) -> tuple[Any, _Told]:
    """Learn cuts of declared columns as `told_schema` learns columns."""
    vectors = _Told(told)
    read = {name: block.read(pa.array(rows[name], type=pa.large_string())) for name, block in CUT_BLOCKS.items()}
    stand_in: Any = vectors
    return repr(learned_cuts.learn_cuts(CUT_BLOCKS, read, stand_in, units=len(read["x"]), share=0.1)), vectors


_COLUMNS_OF_A_SCHEMA = (
    {"x": ["1", "2", "300"], "y": ["7", "7", "7"]},
    {"x": ["oak", "2", "300"], "y": ["8", "7", "7"]},
)
_COLUMNS_OF_CUTS = ({"x": ["1", "2", "3"], "y": ["oak"] * 3}, {"x": ["4.5", "2", "3"], "y": ["elm", "oak", "oak"]})


def _replace_rows(twin: tuple[Any, str, Any], learn: Any = told_schema, tables: Any = _COLUMNS_OF_A_SCHEMA) -> Caught:
    """Replace a row, tell both tables the draws of the first, and compare what moves with what is paid."""
    over, differ = 0.0, False
    with replaced(*twin):
        for one, other in itertools.permutations(tables):
            first, asked = learn(one, None)
            try:
                second, again = learn(other, [part for part, _ in asked.asked])
            except (IndexError, ValueError):  # it asks for other counts than those it was told
                differ = True
                continue
            differ |= first != second or len(asked.asked) != len(again.asked)
            for (part, square), (moved, _) in zip(asked.asked, again.asked, strict=False):
                if len(part) == len(moved):
                    over = max(over, float(((part - moved) ** 2).sum()) / max(square, 1))
    evidence = f"a replaced row moved a release by {over:.2f} times what was paid; other output: {differ}"
    return Caught("replaced row", evidence, found=differ or over > 1)


def _unpaid_kinds(columns: Sequence[pa.Array], purse: Any, part: float, reading: Any) -> list[str]:
    """Take the kind of a column from its first row: that is the mistake."""
    purse.fraction(part)
    return ["whole" if kinds_of_values(column)[0] == 1 else "hidden" for column in columns]


def _unpaid_fractions(numbers: Mapping[Any, Any], count: Any, purse: Any, part: float) -> dict[Any, bool]:
    """Look whether private numbers are whole, without noise: that is the mistake."""
    purse.fraction(part)

    def find(values: Any) -> Any:
        return np.array([np.count_nonzero(values[name] != np.rint(values[name])) for name in numbers])

    return {name: not fractions for name, fractions in zip(numbers, count(find, len(numbers)), strict=True)}


def _half_paid_categories(blocks: Any, count: Any, purse: Any, part: float, **sizes: Any) -> Any:
    """Pay for categories as if a unit were added: that is the mistake."""

    def release(counts: Any, *, squared_sensitivity: int, part: float) -> Any:
        return purse.release(counts, squared_sensitivity=squared_sensitivity // 2, part=part)

    half: Any = SimpleNamespace(release=release)
    return _count_categories(blocks, count, half, part, **sizes)


_count_categories = learned_cuts.count_categories
_replace_declared = partial(_replace_rows, learn=told_cuts, tables=_COLUMNS_OF_CUTS)
_CELLS_PAID_ONCE = property(lambda self: 1 if self.is_open else 0)


def _bug(name: str, kind: type[SparseHistogram], attack: Any, by: Any = "enumeration") -> PlantedBug:
    return kind_bug(name, by, kind, SparseHistogram, attack)


SCHEMAS = (
    _bug("threshold_not_divided", _ThresholdOfOneColumn, _enumerate_lists),
    _bug("single_texts_kept", _SingleTextsKept, _enumerate_lists),
    _bug("texts_paid_as_added", _PaidAsAdded, _enumerate_lists),
    _bug("texts_in_row_order", _RowOrder, _compare_orders, "replay"),
    replacement_bug("kinds_unpaid", "replay", (learned, "_learn_kinds"), _unpaid_kinds, _replace_rows),
    # Cells of numbers paid for as if a unit were added.
    replacement_bug("cells_paid_as_added", "replay", (CutTree, "squared_sensitivity"), _CELLS_PAID_ONCE, _replace_rows),
    replacement_bug("fractions_unpaid", "replay", (learned_cuts, "find_whole"), _unpaid_fractions, _replace_declared),
    replacement_bug(
        "categories_paid_as_added",
        "replay",
        (learned_cuts, "count_categories"),
        _half_paid_categories,
        _replace_declared,
    ),
)
