"""Learn the kinds, categories, ranges and cuts of private columns from noisy counts.

Claim (replace-one units): what is learned is covered by the budget of the `NoisyVectors` that pay for it, its slack
included. Names of columns, their container types and the number of units are public. Proof: PROOF.md.

kinds of values -> lists of texts that pass a threshold -> cells of numbers and dates, refined stage by stage
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import NoisyVectors, SparseHistogram
from quorate.core.privacy import Budget
from quorate.tables.columns import Category, Date, Kind, Number, Text
from quorate.tables.containers import shown_names
from quorate.tables.cut_tree import STAGES, CutTree, NumberMarginal, most_cells
from quorate.tables.learned_facts import ColumnMarginal
from quorate.tables.private_values import DATE_UNIT, ValueKind, count_texts, kinds_of_values, read_line

__all__ = [
    "LearnedColumns",
    "check_learnable",
    "choose_share",
    "entries_of_schema",
    "first_rows",
    "learn_columns",
    "slack_for_texts",
]

_KINDS_NOISE = 1 / 25  # of the units: the scale of the noise that is enough to tell kinds apart
_KINDS_SHARES = (0.02, 0.2)  # the least and the largest share of the schema's budget for kinds
_TEXTS_SHARES = (0.1, 0.65)  # of what is left after the kinds, where there are numbers too
_FREQUENT = 0.05  # of the units: a category of this size is to be found
_SURE = 3.0  # deviations of the noise, by which its count is to pass the threshold
_CLEAR = 3.0  # deviations of the noise, by which a kind, a fraction or a gap stands out
_SLACK_SHARE = 0.3  # of delta, for texts that a single unit holds
_LARGEST_THRESHOLD = 0.3  # of the units: above it nearly all categories would be hidden
_BLURRED = 0.2  # of the units in other texts than those found: the owner is told
_MODEL_SHARES = (0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.25, 0.4)  # of a model's budget, tried in this order
_NUMBER_NOISE = 0.01  # of the units: the scale at which deciles are off by one or two points


@dataclass(frozen=True)
class LearnedColumns:
    """Kinds and marginals of columns; and of those that the noise hid, whether they hold texts."""

    kinds: dict[str, Kind]
    marginals: dict[str, ColumnMarginal]
    hidden: dict[str, bool]
    units: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What the owner should know, from released values alone."""
        notes = []
        if self.hidden:
            notes.append(f"the noise hid these columns: {shown_names(list(self.hidden))}; declare them")
        if blurred := [name for name in self.kinds if self._is_blurred(name)]:
            notes.append(f"the noise hid many categories of these columns: {shown_names(blurred)}; declare them")
        return tuple(notes)

    def _is_blurred(self, name: str) -> bool:
        marginal = self.marginals.get(name)
        return (
            marginal is not None
            and isinstance(self.kinds[name], Category)
            and marginal.counts[-1] - _CLEAR * marginal.scale > _BLURRED * self.units
        )


def slack_for_texts(delta: float) -> float:
    """Return the part of delta that is set aside for texts of a single unit."""
    return delta * _SLACK_SHARE


def entries_of_schema(columns: int) -> int:
    """Return how many entries the releases of a schema have at most."""
    return columns * (len(ValueKind) + 2 + STAGES * most_cells())


def choose_share(vectors: NoisyVectors, *, units: int, columns: int, slack: float) -> float:
    """Return which part of a model's budget its schema takes: the least that finds frequent categories and deciles.

    All of it depends on public numbers. Where even the largest part would hide nearly everything, it is refused.
    """
    for share in _MODEL_SHARES:
        plan = _Plan(vectors, share, units=units, slack=slack)
        if plan.is_good(columns):
            return share
    plan.check(columns)
    return share


def check_learnable(units: int, columns: int, *, epsilon: float, delta: float) -> None:
    """Refuse so few units that the schema of a model of this budget would hide nearly everything."""
    slack = slack_for_texts(delta)
    budget = Budget(epsilon=epsilon, delta=delta, slack=slack)
    vectors = NoisyVectors(budget, entries=entries_of_schema(columns))
    choose_share(vectors, units=units, columns=columns, slack=slack)


class _Plan:
    """How the share of a schema is divided, by public numbers and noisy kinds."""

    def __init__(self, vectors: NoisyVectors, share: float, *, units: int, slack: float) -> None:
        self.units, self.slack = units, slack
        self._unit_variance = vectors.scale(squared_sensitivity=1, fraction=share) ** 2  # of a count, for all of it

    def kinds_share(self, columns: int) -> float:
        """Return the share of the kinds."""
        needed = 2 * columns * self._unit_variance / (_KINDS_NOISE * self.units) ** 2
        return min(max(needed, _KINDS_SHARES[0]), _KINDS_SHARES[1])

    def texts_share(self, texts: int, numbers: int, left: float) -> float:
        """Return the share of the texts of what is left after the kinds."""
        if not numbers or not texts:
            return 1.0 if texts else 0.0
        wanted = _FREQUENT * self.units / (self._deviations(texts) + _SURE)
        needed = 2 * texts * self._unit_variance / wanted**2 / left
        return min(max(needed, _TEXTS_SHARES[0]), _TEXTS_SHARES[1])

    def _deviations(self, texts: int) -> float:
        return NormalDist().inv_cdf(1 - self.slack / texts)

    def _threshold(self, columns: int) -> float:
        """Return the count that a category needs, as a share of the units, if half of the columns are texts."""
        texts = max(1, columns // 2)
        left = 1 - self.kinds_share(columns)
        scale = math.sqrt(2 * texts * self._unit_variance / (left * self.texts_share(texts, columns - texts, left)))
        return scale * (self._deviations(texts) + _SURE) / self.units

    def _number_noise(self, columns: int) -> float:
        """Return the noise of a count of numbers, as a share of the units, if half of the columns are texts."""
        texts = max(1, columns // 2)
        numbers = max(columns - texts, 1)
        left = (1 - self.kinds_share(columns)) * (1 - _TEXTS_SHARES[1])
        return math.sqrt(2 * numbers * self._unit_variance / left) / self.units

    def is_good(self, columns: int) -> bool:
        """Return whether frequent categories and deciles are found."""
        return self._threshold(columns) <= _FREQUENT * 1.001 and self._number_noise(columns) <= _NUMBER_NOISE

    def check(self, columns: int) -> None:
        """Refuse a schema of which nearly everything would be hidden."""
        threshold = self._threshold(columns)
        if threshold > _LARGEST_THRESHOLD:
            raise Infeasible(
                f"a schema of {columns} columns cannot be learned from {self.units} units at this epsilon and delta: a "
                f"category would need {threshold:.0%} of the units to be found. Declare the columns you know "
                "(declared={...}, with categories of texts and bounds of numbers), leave others out, or raise epsilon"
            )


class _Purse:
    """The share of a schema, taken from the vectors part by part."""

    def __init__(self, vectors: NoisyVectors, share: float) -> None:
        self._vectors, self._all, self._spent = vectors, share, 0.0

    def fraction(self, part: float) -> float:
        """Return the fraction of what the vectors have left that is this part of the schema's share."""
        left = 1.0 - self._spent
        taken = min(part * self._all, left)
        self._spent += taken
        return 1.0 if self._spent >= 1.0 - 1e-12 else taken / left

    def release(self, counts: Integers, *, squared_sensitivity: int, part: float) -> tuple[Floats, float]:
        """Return counts with noise, and its scale."""
        noisy, scale = self._vectors.release(
            counts, squared_sensitivity=squared_sensitivity, fraction=self.fraction(part)
        )
        return noisy.astype(np.float64), scale

    def release_texts(self, lists: Sequence[Mapping[str, int]], *, slack: float, part: float) -> Any:
        """Return the texts that pass, with the number of units without one, and the mechanism."""
        known = [("",)] * len(lists)
        return SparseHistogram.release_within(
            self._vectors, lists, slack=slack, fraction=self.fraction(part), known=known
        )


def learn_columns(
    columns: Mapping[str, pa.Array],
    vectors: NoisyVectors,
    *,
    units: int,
    slack: float,
    share: float = 1.0,
    sentences: Sequence[str] = (),
) -> LearnedColumns:
    """Learn private columns, which have one row for each unit, for a share of what these vectors have left.

    `slack` of their budget pays for texts of a single unit; `sentences` are columns that are declared as such.
    """
    names = [name for name in columns if name not in sentences]
    kinds: dict[str, Kind] = {name: Text() for name in columns if name in sentences}
    if not names:
        return LearnedColumns(kinds, {}, {}, units)
    plan, purse = _Plan(vectors, share, units=units, slack=slack), _Purse(vectors, share)
    plan.check(len(names))
    for_kinds = plan.kinds_share(len(names))
    told = _learn_kinds([columns[name] for name in names], purse, for_kinds)
    groups = {kind: [name for name, one in zip(names, told, strict=True) if one == kind] for kind in set(told)}
    kinds |= {name: Text() for name in groups.get("sentence", [])}
    texts = groups.get("text", [])
    lines = [name for name, one in zip(names, told, strict=True) if one in ("whole", "fraction", "date")]
    for_texts = (1 - for_kinds) * plan.texts_share(len(texts), len(lines), 1 - for_kinds)
    learned = _learn_texts({name: columns[name] for name in texts}, purse, for_texts, plan)
    seen = dict(zip(names, told, strict=True))
    learned |= _learn_numbers({name: columns[name] for name in lines}, seen, purse, 1 - for_kinds - for_texts, units)
    kinds |= {name: kind for name, (kind, _) in learned.items()}
    ordered = {name: kinds[name] for name in columns if name in kinds}
    marginals = {name: marginal for name, (_, marginal) in learned.items()}
    hidden = {name: _holds_texts(seen[name], columns[name]) for name in columns if name not in ordered}
    return LearnedColumns(ordered, marginals, hidden, units)


def _holds_texts(told: str, column: pa.Array) -> bool:
    """Return whether a column that the noise hid is one of texts: by its noisy kind, or else by its public type."""
    return told == "text" or (told == "hidden" and pa.types.is_large_string(column.type))


def _learn_kinds(columns: Sequence[pa.Array], purse: _Purse, part: float) -> list[str]:
    """Return for each column "whole", "fraction", "date", "text", "sentence" or "hidden": the plurality above noise."""
    counts = [np.bincount(kinds_of_values(column), minlength=len(ValueKind)) for column in columns]
    noisy, scale = purse.release(  # proof: step 1
        np.concatenate(counts).astype(np.int64), squared_sensitivity=2 * len(columns), part=part
    )
    return [_plurality(one, scale) for one in noisy.reshape(len(columns), len(ValueKind))]


def _plurality(noisy: Floats, scale: float) -> str:
    numbers = noisy[ValueKind.WHOLE] + noisy[ValueKind.FRACTION]
    votes = {
        "number": numbers,
        "date": noisy[ValueKind.DATE],
        "text": noisy[ValueKind.TEXT] + noisy[ValueKind.TRUTH],
        "sentence": noisy[ValueKind.SENTENCE],
    }
    winner = max(votes, key=lambda kind: votes[kind])
    if votes[winner] <= _CLEAR * scale:
        return "hidden"
    if winner != "number":
        return winner
    fractions = noisy[ValueKind.FRACTION]
    return "fraction" if fractions > min(_CLEAR * scale, numbers / 2) else "whole"


def _learn_texts(
    columns: Mapping[str, pa.Array], purse: _Purse, part: float, plan: _Plan
) -> dict[str, tuple[Kind, ColumnMarginal]]:
    """Return the categories of columns of texts; a column of which none passes is left out."""
    if not columns:
        return {}
    passed, histogram = purse.release_texts(  # proof: step 2
        [count_texts(column) for column in columns.values()], slack=plan.slack, part=part
    )
    learned: dict[str, tuple[Kind, ColumnMarginal]] = {}
    for name, found in zip(columns, passed, strict=True):
        missing = max(float(found.pop("")), 0.0)
        if found:
            counts = [float(count) for count in found.values()]
            counts.append(max(plan.units - missing - sum(counts), 0.0))
            marginal = ColumnMarginal(tuple(counts), missing, histogram.scale)
            learned[name] = Category(tuple(found), missing="indicator"), marginal
    return learned


def _learn_numbers(
    columns: Mapping[str, pa.Array], told: Mapping[str, str], purse: _Purse, part: float, units: int
) -> dict[str, tuple[Kind, ColumnMarginal]]:
    """Return ranges and cuts of columns of numbers and dates; a column that the noise hides is left out."""
    dates = {name: told[name] == "date" for name in columns}
    trees = {name: CutTree(units, is_whole=told[name] == "whole", is_date=dates[name]) for name in columns}
    values = {name: read_line(column, is_date=dates[name]) for name, column in columns.items()}
    for stage in range(STAGES):
        open_ = [name for name, tree in trees.items() if tree.is_open]
        square = sum(trees[name].squared_sensitivity for name in open_)
        if not square:
            break
        counts = [trees[name].count(values[name]) for name in open_]
        each = part / (STAGES - stage)  # of the stages that are not needed, the others have nothing
        part -= each
        noisy, scale = purse.release(np.concatenate(counts), squared_sensitivity=square, part=each)  # proof: step 3
        parts = np.split(noisy, np.cumsum([len(one) for one in counts])[:-1])
        for name, one in zip(open_, parts, strict=True):
            trees[name].update(one, scale)
    learned: dict[str, tuple[Kind, ColumnMarginal]] = {}
    for name, tree in trees.items():
        found = tree.marginal()
        if len(found.cuts) > 1:
            learned[name] = _number_kind(found, is_date=dates[name]), _marginal(found)
    return learned


def _number_kind(found: NumberMarginal, *, is_date: bool) -> Kind:
    low, high = found.cuts[0], found.cuts[-1]
    if is_date:
        return Date(low=low, high=high, cuts=found.cuts, missing="indicator", unit=DATE_UNIT)
    return Number(low=low, high=high, cuts=found.cuts, missing="indicator")


def _marginal(found: NumberMarginal) -> ColumnMarginal:
    return ColumnMarginal(found.counts, max(found.missing, 0.0), found.scale, found.means)


def first_rows(units: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the first row of each unit: the row that stands for a person, by a rule about its own rows alone."""
    return None if units is None else np.unique(units, return_index=True)[1].astype(np.int64)
