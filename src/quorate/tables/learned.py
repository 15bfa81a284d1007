"""Learn the kinds, categories, ranges and cuts of private columns from noisy counts.

Claim (replace-one units): the learned schema is covered by the budget of its `NoisyVectors`, including their slack.
Names of columns and the number of units are public; the container type of a column decides nothing. Proof: PROOF.md.

kinds of values -> lists of texts that pass a threshold -> cells of numbers and dates, refined stage by stage
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyVectors, SparseHistogram
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Claim, replaced
from quorate.tables.columns import Category, Date, Kind, Number, Text
from quorate.tables.containers import open_columns, shown_names
from quorate.tables.cut_tree import STAGES, USUAL_PARTS, CutTree, NumberMarginal, grow_trees, most_cells
from quorate.tables.dates import DateUnit, read_moments
from quorate.tables.persons import person_names
from quorate.tables.reading import DEFAULT_READING, Reading
from quorate.tables.values import read_numbers, read_texts

_KINDS_NOISE = 1 / 25  # of the units: the scale of the noise that is enough to tell kinds apart
_KINDS_SHARES = (0.02, 0.2)  # the least and the largest share of the schema's budget for kinds
_TEXTS_SHARES = (0.1, 0.65)  # of what is left after the kinds, where there are numbers too
_FREQUENT = 0.05  # of the units: a category of this size is to be found
_SURE = 3.0  # deviations of the noise, by which its count is to pass the threshold
_CLEAR = 3.0  # deviations of the noise, by which a kind or a gap stands out
_CLEAR_FRACTIONS = 4.0  # the same of fractions: whole numbers that are taken for them have cuts between whole numbers
_SLACK_SHARE = 0.3  # of delta, for texts that a single unit holds
_LARGEST_THRESHOLD = 0.3  # of the units: above it nearly all categories would be hidden
_BLURRED = 0.2  # of the units in other texts than those found: the owner is told
_MODEL_SHARES = (0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.25, 0.4)  # of a model's budget, tried in this order
_NUMBER_NOISE = 0.01  # of the units: the scale at which deciles are off by one or two points
PUBLIC_FACTS = "the names of the columns and the number of units are public"
_DATE_UNIT: DateUnit = "days"
_SENTENCE_BLANKS = 5  # a text with as many gaps between words is a sentence


@dataclass(frozen=True)
class ColumnMarginal:
    """The noisy number of units in each cell of a column.

    counts
        Of a number or date: below the first cut, between cuts, and from the last cut on. Of a category: of each
        category in its order, then of all other texts.
    missing
        The noisy number of units without a value.
    scale
        The scale of the noise of one count.
    means
        Of a number or date: the mean value between each cut and the next, as far as the noisy counts tell.
    """

    counts: tuple[float, ...]
    missing: float
    scale: float
    means: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        set_validated(self, counts=tuple(float(count) for count in self.counts))
        set_validated(self, means=tuple(float(mean) for mean in self.means))
        set_validated(self, missing=float(self.missing), scale=float(self.scale))


@dataclass(frozen=True)
class LearnedFacts:
    """The guarantee of a learned schema and its noisy marginals, by column."""

    claim: str
    epsilon: float
    delta: float
    units: int
    marginals: Mapping[str, ColumnMarginal]
    notes: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, document: Any) -> "LearnedFacts":
        """Return the facts that a JSON object describes."""
        try:
            marginals = {str(name): ColumnMarginal(**described) for name, described in document["marginals"].items()}
            claim, notes = str(document["claim"]), tuple(str(note) for note in document.get("notes", ()))
            numbers = float(document["epsilon"]), float(document["delta"]), int(document["units"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidInput(
                '"learned" must have claim, epsilon, delta, units and marginals, as Schema.from_private writes them'
            ) from None
        return cls(claim, *numbers, marginals, notes)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that describes these facts."""
        marginals = {
            name: asdict(marginal) | {"counts": list(marginal.counts), "means": list(marginal.means)}
            for name, marginal in self.marginals.items()
        }
        return vars(self) | {"marginals": marginals, "notes": list(self.notes)}


@dataclass(frozen=True)
class LearnedColumns:
    """Kinds and marginals of columns, and the names of those that the noise hid."""

    kinds: dict[str, Kind]
    marginals: dict[str, ColumnMarginal]
    hidden: tuple[str, ...]
    units: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the owner, from released values alone."""
        notes = []
        if self.hidden:
            notes.append(f"the noise hid these columns: {shown_names(self.hidden)}; declare them")
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

    def texts_share(self, texts: int, numbers: int, after_kinds: float) -> float:
        """Return the share of the texts of what is left after the kinds."""
        if not numbers or not texts:
            return 1.0 if texts else 0.0
        wanted = _FREQUENT * self.units / (self._deviations(texts) + _SURE)
        needed = 2 * texts * self._unit_variance / wanted**2 / after_kinds
        return min(max(needed, _TEXTS_SHARES[0]), _TEXTS_SHARES[1])

    def _deviations(self, texts: int) -> float:
        return NormalDist().inv_cdf(1 - self.slack / texts)

    def _threshold(self, columns: int) -> float:
        """Return the count that a category needs, as a share of the units, if half of the columns are texts."""
        texts = max(1, columns // 2)
        after_kinds = 1 - self.kinds_share(columns)
        share = after_kinds * self.texts_share(texts, columns - texts, after_kinds)
        scale = math.sqrt(2 * texts * self._unit_variance / share)
        return scale * (self._deviations(texts) + _SURE) / self.units

    def _number_noise(self, columns: int) -> float:
        """Return the noise of a count of numbers, as a share of the units, if half of the columns are texts."""
        texts = max(1, columns // 2)
        numbers = max(columns - texts, 1)
        share = (1 - self.kinds_share(columns)) * (1 - _TEXTS_SHARES[1])
        return math.sqrt(2 * numbers * self._unit_variance / share) / self.units

    def is_good(self, columns: int) -> bool:
        """Return whether frequent categories and deciles are found."""
        return self._threshold(columns) <= _FREQUENT * 1.001 and self._number_noise(columns) <= _NUMBER_NOISE

    def check(self, columns: int) -> None:
        """Refuse a schema whose noise would hide nearly everything."""
        threshold = self._threshold(columns)
        if threshold > _LARGEST_THRESHOLD:
            share = f"would need {threshold:.0%} of the units to be found" if threshold < 1 else "would never be found"
            raise Infeasible(
                f"a schema of {columns} columns cannot be learned from {self.units} units at this epsilon and delta: a "
                f"category {share}. Declare the columns you know "
                "(declared={...}, --schema: categories of texts, bounds of numbers), leave others out, or raise epsilon"
            )


class Purse:
    """The share of the budget that columns are learned with, taken from the vectors part by part."""

    def __init__(self, vectors: NoisyVectors, share: float) -> None:
        self._vectors, self._all, self._spent = vectors, share, 0.0

    def fraction(self, part: float) -> float:
        """Return the fraction of what the vectors have left that is this part of the schema's share."""
        unspent = 1.0 - self._spent
        spending = min(part * self._all, unspent)
        self._spent += spending
        return 1.0 if self._spent >= 1.0 - 1e-12 else spending / unspent

    def release(self, counts: Integers, *, squared_sensitivity: int, part: float) -> tuple[Floats, float]:
        """Return counts with noise, and its scale."""
        noisy, scale = self._vectors.release(
            counts, squared_sensitivity=squared_sensitivity, fraction=self.fraction(part)
        )
        return noisy.astype(np.float64), scale

    def release_texts(self, lists: Sequence[Mapping[str, int]], *, slack: float, part: float) -> Any:
        """Return the texts that pass, with the number of units without one, and the mechanism."""
        fraction, public_texts = self.fraction(part), [("",)] * len(lists)
        return SparseHistogram.release_within(self._vectors, lists, slack=slack, fraction=fraction, known=public_texts)


def learn_private_table(
    table: Any,
    names: Sequence[str],
    *,
    epsilon: float,
    delta: float,
    groups: str | None,
    sentences: Sequence[str],
    reading: Reading,
) -> tuple[LearnedColumns, LearnedFacts]:
    """Learn these columns of private records with a budget of their own. With `groups` people count by first rows."""
    rows = None
    if groups is not None:
        rows = first_rows(person_names(private_columns(table, [groups])[groups], reading.missing_texts)[0])
    columns = private_columns(table, names, rows)
    units = len(rows) if rows is not None else len(next(iter(columns.values()), ()))
    if not names or units < 1:
        raise InvalidInput("from_private needs at least 1 row and 1 column that is not declared")
    slack = slack_for_texts(delta)
    budget = Budget(epsilon=epsilon, delta=delta, slack=slack)
    vectors = NoisyVectors(budget, entries=entries_of_schema(len(names)))  # proof: step 4
    learned = learn_columns(columns, vectors, units=units, slack=slack, sentences=sentences, reading=reading)
    unit = replaced("row" if groups is None else "person")
    claim = Claim(epsilon, delta, unit=unit, conditions=(PUBLIC_FACTS,))
    return learned, LearnedFacts(str(claim), epsilon, delta, units, learned.marginals, learned.notes)


def learn_columns(
    columns: Mapping[str, pa.Array],
    vectors: NoisyVectors,
    *,
    units: int,
    slack: float,
    share: float = 1.0,
    sentences: Sequence[str] = (),
    reading: Reading = DEFAULT_READING,
    most_cells: int | None = None,
    most_parts: int = USUAL_PARTS,
) -> LearnedColumns:
    """Learn private columns, which have one row for each unit, for a share of what these vectors have left.

    `slack` of their budget pays for texts of a single unit; `sentences` are columns that are declared as such; numbers
    have at most `most_cells` cells between their ends, or else at most `most_parts` parts of equal size.
    """
    undeclared = {name: columns[name] for name in columns if name not in sentences}
    kinds: dict[str, Kind] = dict.fromkeys(set(columns) - set(undeclared), Text())
    if not undeclared:
        return LearnedColumns(kinds, {}, (), units)
    plan, purse = _Plan(vectors, share, units=units, slack=slack), Purse(vectors, share)
    plan.check(len(undeclared))
    kinds_part = plan.kinds_share(len(undeclared))
    winners = dict(zip(undeclared, _learn_kinds(list(undeclared.values()), purse, kinds_part, reading), strict=True))
    kinds |= dict.fromkeys(_names_of(winners, "sentence"), Text())
    texts, numbers = _names_of(winners, "text"), _names_of(winners, "whole", "fraction", "date")
    texts_part = (1 - kinds_part) * plan.texts_share(len(texts), len(numbers), 1 - kinds_part)
    learned = _learn_texts({name: columns[name] for name in texts}, purse, texts_part, plan, reading)
    trees = {
        name: CutTree(
            units,
            is_whole=winners[name] == "whole",
            is_date=winners[name] == "date",
            most_cells=most_cells,
            most_parts=most_parts,
        )
        for name in numbers
    }
    learned |= _learn_numbers(columns, trees, purse, 1 - kinds_part - texts_part, reading)
    kinds |= {name: kind for name, (kind, _) in learned.items()}
    ordered = {name: kinds[name] for name in columns if name in kinds}
    marginals = {name: marginal for name, (_, marginal) in learned.items()}
    return LearnedColumns(ordered, marginals, tuple(name for name in columns if name not in kinds), units)


def _names_of(winners: Mapping[str, str], *kinds: str) -> list[str]:
    """Return the columns that one of these kinds has won."""
    return [name for name, winner in winners.items() if winner in kinds]


def _learn_kinds(columns: Sequence[pa.Array], purse: Purse, part: float, reading: Reading) -> list[str]:
    """Return for each column "whole", "fraction", "date", "text", "sentence" or "hidden": the plurality above noise."""
    counts = [np.bincount(kinds_of_values(column, reading), minlength=len(ValueKind)) for column in columns]
    noisy, scale = purse.release(  # proof: step 1
        np.concatenate(counts).astype(np.int64), squared_sensitivity=2 * len(columns), part=part
    )
    return [_plurality(votes, scale) for votes in noisy.reshape(len(columns), len(ValueKind))]


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
    return "fraction" if fractions > min(_CLEAR_FRACTIONS * scale, numbers / 2) else "whole"


def _learn_texts(
    columns: Mapping[str, pa.Array], purse: Purse, part: float, plan: _Plan, reading: Reading
) -> dict[str, tuple[Kind, ColumnMarginal]]:
    """Return the categories of columns of texts; a column of which none passes is left out."""
    if not columns:
        return {}
    passed, histogram = purse.release_texts(  # proof: step 2
        [count_texts(column, reading) for column in columns.values()], slack=plan.slack, part=part
    )
    learned: dict[str, tuple[Kind, ColumnMarginal]] = {}
    for name, categories in zip(columns, passed, strict=True):
        missing = max(float(categories.pop("")), 0.0)
        if categories:
            counts = [float(count) for count in categories.values()]
            counts.append(max(plan.units - missing - sum(counts), 0.0))
            marginal = ColumnMarginal(tuple(counts), missing, histogram.scale)
            learned[name] = Category(tuple(categories), missing="indicator"), marginal
    return learned


def _learn_numbers(
    columns: Mapping[str, pa.Array], trees: Mapping[str, CutTree], purse: Purse, part: float, reading: Reading
) -> dict[str, tuple[Kind, ColumnMarginal]]:
    """Return ranges and cuts of the columns with trees, numbers and dates; one that the noise hides is left out."""

    def draw(counts: Integers, *, squared_sensitivity: int) -> tuple[Floats, float]:
        return purse.release(counts, squared_sensitivity=squared_sensitivity, part=part / STAGES)  # proof: step 3

    values = [
        read_moments(columns[name], _DATE_UNIT, reading) if tree.is_date else read_numbers(columns[name], reading)
        for name, tree in trees.items()
    ]
    grow_trees(list(trees.values()), values, draw)
    learned: dict[str, tuple[Kind, ColumnMarginal]] = {}
    for name, tree in trees.items():
        line = tree.marginal()
        if len(line.cuts) > 1:
            marginal = ColumnMarginal(line.counts, max(line.missing, 0.0), line.scale, line.means)
            learned[name] = _number_kind(line, is_date=tree.is_date), marginal
    return learned


def _number_kind(line: NumberMarginal, *, is_date: bool) -> Kind:
    declared: dict[str, Any] = {
        "low": line.cuts[0],
        "high": line.cuts[-1],
        "cuts": line.cuts,
        "missing": "indicator",
    }
    return Date(**declared, unit=_DATE_UNIT) if is_date else Number(**declared)


def first_rows(units: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the first row of each unit: the row that stands for a person, by a rule about its own rows alone."""
    return None if units is None else np.unique(units, return_index=True)[1].astype(np.int64)


class ValueKind(IntEnum):
    """What a value is, read by itself."""

    MISSING = 0
    WHOLE = 1
    FRACTION = 2
    DATE = 3
    TRUTH = 4
    TEXT = 5
    SENTENCE = 6


def private_columns(table: Any, names: Sequence[str], rows: NDArray[np.int64] | None = None) -> dict[str, pa.Array]:
    """Return raw columns of private records, or some of their rows. No value is refused."""
    columns = open_columns(table, names, source="the private records")
    return columns if rows is None else {name: column.take(pa.array(rows)) for name, column in columns.items()}


def kinds_of_values(column: pa.Array, reading: Reading = DEFAULT_READING) -> Integers:
    """Return the `ValueKind` of each value of a raw column."""
    if pa.types.is_large_string(column.type):
        coded = column.dictionary_encode()
        distinct = np.append(_kinds_of_texts(coded.dictionary, reading), ValueKind.MISSING)
        indices = pc.fill_null(coded.indices, len(distinct) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(distinct[indices], dtype=np.int64)
    if pa.types.is_timestamp(column.type):
        return np.where(np.isnan(read_moments(column, _DATE_UNIT)), ValueKind.MISSING, ValueKind.DATE).astype(np.int64)
    return _kinds_of_numbers(read_numbers(column, reading))


def _kinds_of_numbers(numbers: Floats) -> Integers:
    kinds = np.where(numbers == np.floor(numbers), ValueKind.WHOLE, ValueKind.FRACTION)
    return np.where(np.isnan(numbers), ValueKind.MISSING, kinds).astype(np.int64)


def _kinds_of_texts(texts: pa.Array, reading: Reading) -> Integers:
    written = read_texts(texts, reading.missing_texts)
    blanks = pc.fill_null(pc.count_substring_regex(written, r"\s+"), 0).to_numpy()
    kinds = np.where(blanks >= _SENTENCE_BLANKS, ValueKind.SENTENCE, ValueKind.TEXT).astype(np.int64)
    numbers, moments = read_numbers(texts, reading), read_moments(texts, _DATE_UNIT, reading)
    kinds = np.where(np.isnan(moments), kinds, ValueKind.DATE)
    kinds = np.where(np.isnan(numbers), kinds, _kinds_of_numbers(numbers))
    truth = np.array([text is not None and reading.truth(text) is not None for text in written.to_pylist()], np.bool_)
    kinds = np.where(truth, ValueKind.TRUTH, kinds)
    return np.where(pc.is_null(written).to_numpy(zero_copy_only=False), ValueKind.MISSING, kinds).astype(np.int64)


def count_texts(column: pa.Array, reading: Reading = DEFAULT_READING) -> dict[str, int]:
    """Return how often each text occurs in a private column, and under "" how many values are missing."""
    counted = read_texts(column, reading.missing_texts).value_counts()
    pairs = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    return {"" if text is None else text: int(count) for text, count in pairs}
