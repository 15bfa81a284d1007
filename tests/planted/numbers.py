"""Numbers by group with one mistake each: keys by their exact law, sums by all neighbours of tiny tables."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught, PlantedBug, kind_bug, replaced, replacement_bug
from planted.exact import ConstantNoise, compare_orders
from quorate.core.mechanisms import LaplaceSums, NoisyVectors, SparseSums
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.core.privacy import Budget
from quorate.release import GroupRelease
from quorate.release.numbers import _measured, _noise, _quantiles, _rows
from quorate.release.numbers._bounds import FoundBounds, find_steps
from quorate.release.numbers._layout import UNIT, Layout
from quorate.release.numbers._quantiles import quantile_sensitivity
from quorate.tables import Category, Number

_EPSILON, _DELTA, _SLACK, _KEYS = 1.0, 0.05, 0.02, 2
_RADIUS = 6  # deviations of the noise that are listed


Table = Mapping[str, int]  # heads of keys; each unit outside of published keys counts once in the row of others
Law = dict[tuple[Any, ...], float]


def _no_sums(keys: Sequence[str]) -> NDArray[np.int64]:
    return np.zeros(1, dtype=np.int64)


def _outcomes(mechanism: SparseSums, heads: Table, key: str) -> dict[int | None, float]:
    """Return the law of what is published of a key: None where it is dropped."""
    radius = math.ceil(_RADIUS * mechanism.scale)
    chances = gaussian_pmf(mechanism.scale, radius)
    law: dict[int | None, float] = {}
    for value, chance in zip(range(-radius, radius + 1), chances.tolist(), strict=True):
        source: Any = ConstantNoise(value)
        outcome = mechanism.draw_release(heads, _no_sums, source)[0].get(key)
        law[outcome] = law.get(outcome, 0.0) + chance
    return law


def _law(mechanism: SparseSums, heads: Table, keys: Sequence[str]) -> Law:
    """Return the law of what is published of these keys and of the number of units in others."""
    radius = math.ceil(_RADIUS * mechanism.scale)
    chances = gaussian_pmf(mechanism.scale, radius).tolist()
    law: Law = {}
    for outcome in itertools.product(*(_outcomes(mechanism, heads, key).items() for key in keys)):
        passed = tuple(value for value, _ in outcome)
        chance = math.prod(part for _, part in outcome)
        others = sum(heads.get(key, 0) for key, value in zip(keys, passed, strict=True) if value is None)
        for value, part in zip(range(-radius, radius + 1), chances, strict=True):
            law[*passed, others + value] = law.get((*passed, others + value), 0.0) + chance * part
    return law


_NEIGHBOURS: tuple[tuple[Table, Table], ...] = (
    ({"a": 1, "b": 1}, {"c": 1}),
    ({"c": 1}, {"a": 1, "b": 1}),
    ({"a": 1, "b": 30}, {"b": 31}),
    ({"a": 2, "b": 1}, {"a": 1, "b": 2}),
    ({"a": 2, "b": 2}, {"a": 1, "b": 1, "c": 1}),
)


def _enumerate_keys(kind: type[SparseSums]) -> Caught:
    """Compare the exact delta of small neighbours, and the chance of keys of a single unit, with the budget."""
    budget = Budget(epsilon=_EPSILON, delta=_DELTA, slack=_SLACK)
    square = 4 + _KEYS**2  # of heads, and of others, where a unit of two keys counts twice
    vectors = NoisyVectors(budget, entries=square)
    scale = vectors.charge_thresholded(squared_sensitivity=square, fraction=1.0, slack=_SLACK)
    mechanism = kind.for_slack(head=1, keys_per_unit=_KEYS, squared_sensitivity=square, scale=scale, slack=_SLACK)
    worst = 0.0
    for one, other in _NEIGHBOURS:
        keys = sorted({*one, *other})
        first, second = _law(mechanism, one, keys), _law(mechanism, other, keys)
        excess = (chance - math.exp(_EPSILON) * second.get(outcome, 0.0) for outcome, chance in first.items())
        worst = max(worst, sum(max(part, 0.0) for part in excess))
    single = 1.0 - _outcomes(mechanism, {"a": 1}, "a")[None] ** _KEYS
    evidence = f"delta is {worst:.4f} of {_DELTA}; a single unit's key passes with {single:.4f} of {_SLACK}"
    return Caught("enumeration of small tables", evidence, found=worst > _DELTA or single > _SLACK)


def _compare_orders(kind: type[SparseSums]) -> Caught:
    mechanism = kind(head=1, keys_per_unit=1, squared_sensitivity=2, scale=1.0, threshold=5)
    return compare_orders(lambda heads, source: mechanism.draw_release(heads, _no_sums, source)[0])


def _enumerate_laplace(kind: type[LaplaceSums]) -> Caught:
    """Compare the largest log ratio outside of keys of a single unit, and the chance of these, with the claim."""
    budget = Budget(epsilon=_EPSILON, delta=_DELTA, order=math.inf, slack=_SLACK)
    mechanism = kind.for_budget(budget, sensitivity=2 * _KEYS + 2 * _KEYS, head=1, keys_per_unit=_KEYS, slack=_SLACK)
    ratio, worst = math.exp(-1 / mechanism.scale), -math.inf
    radius = math.ceil(2 * mechanism.threshold)

    def chance(value: int) -> float:
        return (1 - ratio) / (1 + ratio) * ratio ** abs(value)

    def outcomes(head: int) -> dict[int | None, float]:
        law: dict[int | None, float] = {}
        for value in range(-radius, radius + 1):
            source: Any = ConstantNoise(value)
            outcome = mechanism.draw_keys({"a": head}, _no_sums, None, source)[0].get("a")
            law[outcome] = law.get(outcome, 0.0) + chance(value)
        law[None] = 1 - sum(part for outcome, part in law.items() if outcome is not None)
        return law

    for one, other in _NEIGHBOURS:  # the worst outcome of a product is one of the worst outcomes of its parts
        moved = 0.0
        for key in {*one, *other}:
            first, second = (outcomes(heads[key]) if key in heads else {None: 1.0} for heads in (one, other))
            moved += max(math.log(part / second[outcome]) for outcome, part in first.items() if outcome in second)
        others = abs(sum(one.values()) - sum(other.values())) + 2 * _KEYS  # at most, in the row of others
        worst = max(worst, moved + others / mechanism.scale)
    single = 1.0 - outcomes(1)[None] if len(outcomes(1)) > 1 else 0.0
    passed = 1.0 - (1.0 - single) ** _KEYS
    evidence = f"epsilon is {worst:.3f} of {_EPSILON}; a single unit's key passes with {passed:.4f} of {_SLACK}"
    return Caught("enumeration of small tables", evidence, found=worst > _EPSILON or passed > _SLACK)


class _LaplaceOfOneKey(LaplaceSums):
    """Gives every key of a unit the whole slack."""

    @classmethod
    def for_budget(cls, budget: Any, *, keys_per_unit: int = 1, **settings: Any) -> "LaplaceSums":
        """Take the threshold of one key: that is the mistake."""
        return cls(**{**vars(LaplaceSums.for_budget(budget, **settings)), "keys_per_unit": keys_per_unit})


class _LaplaceHeadForgotten(LaplaceSums):
    """Leaves what a unit adds to the head out of the threshold."""

    @classmethod
    def for_budget(cls, budget: Any, *, head: int = 1, **settings: Any) -> "LaplaceSums":
        """Take the threshold above 0 and not above the head: that is the mistake."""
        sound = LaplaceSums.for_budget(budget, head=head, **settings)
        return cls(**{**vars(sound), "threshold": sound.threshold - head})


class _ThresholdOfOneKey(SparseSums):
    """Gives every key of a unit the whole slack."""

    @classmethod
    def for_slack(cls, *, keys_per_unit: int, **settings: Any) -> "SparseSums":
        """Take the threshold of one key: that is the mistake."""
        one = SparseSums.for_slack(keys_per_unit=1, **settings)
        return cls(**{**vars(one), "keys_per_unit": keys_per_unit})


class _HeadForgotten(SparseSums):
    """Leaves what a unit adds to the head out of the threshold."""

    @classmethod
    def for_slack(cls, *, head: int, **settings: Any) -> "SparseSums":
        """Take the threshold above 0 and not above the head: that is the mistake."""
        sound = SparseSums.for_slack(head=head, **settings)
        return cls(**{**vars(sound), "threshold": sound.threshold - head})


class _RowOrder(SparseSums):
    """Publishes keys in the order in which rows have them."""

    def _passed(self, heads: Mapping[str, int], source: Any) -> dict[str, int]:
        """Keep the order of the rows: that is the mistake."""
        passed = super()._passed(heads, source)
        return {key: passed[key] for key in heads if key in passed}


# --- Sums of tiny tables ---------------------------------------------------------------------------------------------


class _Recorder:
    """Stands for `NoisyVectors`: it returns given vectors, or exact ones, and records what it was asked."""

    replies: ClassVar[list[Any]] = []

    def __init__(self, budget: Any, *, entries: int) -> None:
        self.entries, self.asked = entries, list[tuple[Any, int]]()

    def scale(self, *, squared_sensitivity: int, fraction: float) -> float:
        return math.sqrt(squared_sensitivity / fraction) * 1e-3

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[Any, float]:
        part = np.asarray(part, dtype=np.int64)
        self.asked.append((part, squared_sensitivity))
        reply = part if len(self.asked) > len(self.replies) else self.replies[len(self.asked) - 1]
        return reply, self.scale(squared_sensitivity=squared_sensitivity, fraction=fraction)


class _RecordedSums(SparseSums):
    """Hands out exact heads and the function of sums, with the claimed squared sensitivity."""

    seen: tuple[Any, Any, int, int] | None = None

    @classmethod
    def release_within(cls, vectors: Any, heads: Any, sums: Any, **settings: Any) -> Any:
        """Record what is to be released, and publish no key."""
        _RecordedSums.seen = (heads, sums, settings["squared_sensitivity"], settings["head"])
        mechanism = SparseSums(
            head=1, keys_per_unit=1, squared_sensitivity=settings["squared_sensitivity"], scale=1.0, threshold=2
        )
        return {}, sums(()), mechanism


class _RecordedLaplace(LaplaceSums):
    """Hands out exact numbers, with the claimed sum of absolute changes."""

    def release(self, vector: Any, *, budget: Any = None) -> Any:
        """Return exact numbers."""
        return vector

    def release_keys(self, heads: Any, sums: Any, *, budget: Any = None) -> Any:
        """Record what is to be released, and publish no key."""
        _RecordedSums.seen = (heads, sums, self.sensitivity, self.head)
        return {}, sums(())


GAUSSIAN, LAPLACE = False, True


@contextmanager
def recorded(is_laplace: bool = GAUSSIAN) -> Iterator[None]:
    """Replace noise by records of what would be released."""
    with (
        replaced(_measured, "NoisyVectors", _Recorder),
        replaced(_noise, "SparseSums", _RecordedSums),
        replaced(_noise, "LaplaceSums", _RecordedLaplace),
        replaced(_measured, "prefers_laplace", lambda *terms, **loss: is_laplace),
    ):
        yield


_RECORDS = (("a", 0.0), ("a", 10.0), ("b", 10.0), ("c", None))
_GROUPS = "abcd"
_REST = [("x", "a", 3.0), ("y", "b", 7.0), ("y", "b", 2.0)]
_NUMBER = {"low": 0.0, "high": 10.0, "cuts": [2.0, 5.0]}


def _tables(most: int) -> list[dict[str, list[Any]]]:
    """Return tables in which one person has each sequence of up to `most` records, among the records of others."""
    persons = [person for size in range(1, most + 1) for person in itertools.product(_RECORDS, repeat=size)]
    if most > 1:  # four records, of which two count in each of two groups
        persons += [tuple((group, value) for group in pair * 2) for pair in ("ab", "cd") for value in (0.0, 10.0)]
    tables = []
    for person in persons:
        rows = [_REST[0], *(("p", group, value) for group, value in person), *_REST[1:]]
        columns = [list(column) for column in zip(*rows, strict=True)]
        tables.append(dict(zip(("who", "g", "v"), columns, strict=True)) | {"w": columns[2]})
    return tables


def _vectors_of(table: Any, settings: Mapping[str, Any], *, declared: bool, by_person: bool, is_laplace: bool) -> Any:
    """Return the function from published groups to all weighted entries, and the claimed square, or sum."""
    columns: dict[str, Any] = {"v": Number(**_NUMBER), "w": Number(**_NUMBER, closed=True)}
    if declared:
        columns["g"] = Category(list(_GROUPS), closed=True)
    release = GroupRelease("g", totals="v", means="w", columns=columns, epsilon=500.0, **settings)
    with recorded(is_laplace):
        release.fit(table, groups="who" if by_person else None)
    if declared:
        entries, layout = release.published_.entries, release.published_.layout
        return (lambda published: entries.ravel()), layout.sensitivity if is_laplace else layout.squared_sensitivity
    assert _RecordedSums.seen is not None
    heads, sums, square, _ = _RecordedSums.seen
    texts = {key: f'["{key}"]' for key in _GROUPS}
    exact = {key: heads.get(texts[key], 0) for key in _GROUPS}

    def vector(published: Sequence[str]) -> NDArray[np.int64]:
        present = [key for key in published if texts[key] in heads]
        rest = sums([texts[key] for key in present])
        own = rest[: len(rest) - len(sums([]))].reshape(len(present), -1) if present else np.zeros((0, 1))
        rows = dict(zip(present, own, strict=True))
        parts = [np.append(rows.get(key, []), np.zeros(_WIDTH))[:_WIDTH] for key in published]
        return np.concatenate([[exact[key] for key in _GROUPS], *parts, rest[own.size * (len(present) > 0) :]])

    return vector, square


_WIDTH = 16  # more than the entries of a group


LIMITS = ({}, {"groups_per_person": 2}, {"records_per_person": 2}, {"groups_per_person": 2, "records_per_person": 4})


def largest_move(
    settings: Mapping[str, Any], *, declared: bool, by_person: bool = True, most: int = 3, is_laplace: bool = GAUSSIAN
) -> float:
    """Return the largest move of all entries for tiny neighbours and all published groups, by the claimed one.

    It is the squared length of the move where noise is Gaussian, and otherwise the sum of absolute values.
    """
    vectors = [
        _vectors_of(table, settings, declared=declared, by_person=by_person, is_laplace=is_laplace)
        for table in _tables(most if by_person else 1)
    ]
    square = vectors[0][1]
    worst = 0.0
    subsets = [()] if declared else [s for size in range(5) for s in itertools.combinations(_GROUPS, size)]
    for published in subsets:
        points = np.array([vector(published) for vector, _ in vectors], dtype=np.float64)
        moves = np.abs(points[:, None] - points[None, :])
        worst = max(worst, float((moves if is_laplace else moves**2).sum(axis=2).max()))
    return worst / square


class _Rounds(_Recorder):
    """Answers nothing but zeros, so that the points of all rounds are the same for every table."""

    latest: ClassVar[Any] = None

    def __init__(self, budget: Any, *, entries: int) -> None:
        super().__init__(budget, entries=entries)
        _Rounds.latest = self

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[Any, float]:
        exact, scale = super().release(part, squared_sensitivity=squared_sensitivity, fraction=fraction)
        return np.zeros_like(exact), scale


def largest_round(
    settings: Mapping[str, Any], *, by_person: bool = True, releases: slice = slice(-_quantiles.ROUNDS, None)
) -> float:
    """Return the largest squared move of a round of quantiles for tiny neighbours, by the claimed one."""
    columns = {"v": Number(**_NUMBER), "g": Category(list(_GROUPS), closed=True)}
    rounds: list[list[Any]] = []
    for table in _tables(2 if by_person else 1):
        with replaced(_measured, "NoisyVectors", _Rounds):
            release = GroupRelease("g", quantiles={"v": [0.5]}, columns=columns, **settings)
            release.fit(table, groups="who" if by_person else None)
        rounds.append(_Rounds.latest.asked[releases])
    worst = 0.0
    for answers in zip(*rounds, strict=True):
        points = np.array([exact for exact, _ in answers], dtype=np.float64)
        distances = ((points[:, None] - points[None, :]) ** 2).sum(axis=2)
        worst = max(worst, float(distances.max()) / answers[0][1])
    return worst


def _enumerate_rounds(twin: tuple[Any, str, Any]) -> Caught:
    """Compare the largest move of rounds of quantiles of tiny tables with the claimed one."""
    with replaced(*twin):
        worst = max(largest_round(settings) for settings in LIMITS)
    return Caught("enumeration of tiny tables", f"a person moved a round by {worst:.2f} of the claim", found=worst > 1)


def _enumerate_steps(twin: tuple[Any, str, Any]) -> Caught:
    """Compare the largest move of steps and counts between declared cuts with the claimed one."""
    with replaced(*twin):
        worst = largest_round({}, releases=slice(1))
    return Caught("enumeration of tiny tables", f"a person moved steps by {worst:.2f} of the claim", found=worst > 1)


def _enumerate_moves(twin: tuple[Any, str, Any]) -> Caught:
    """Compare the largest move of sums of tiny tables with the claimed one, under both noises."""
    with replaced(*twin):
        worst = max(
            largest_move(settings, declared=declared, most=2, is_laplace=is_laplace)
            for settings in LIMITS
            for declared in (True, False)
            for is_laplace in (GAUSSIAN, LAPLACE)
        )
    return Caught("enumeration of tiny tables", f"a person moved sums by {worst:.2f} of the claim", found=worst > 1)


def _replace_row(twin: tuple[Any, str, Any]) -> Caught:
    """Replace a row, give both tables the same noisy cells, and compare the bounds."""
    tables = ({"v": [1.0] * 40 + [3.0] * 40}, {"v": [1.0] * 40 + [3.0] * 39 + [9e6]})
    with replaced(*twin), replaced(_measured, "NoisyVectors", _Recorder):
        first = GroupRelease((), means="v").fit(tables[0])
        with replaced(_Recorder, "replies", [_cells(tables[0])]):
            second = GroupRelease((), means="v").fit(tables[1])
    bounds = [(column.low, column.high) for release in (first, second) for column in release.published_.sums]
    return Caught("replaced row", f"bounds were {bounds}", found=bounds[0] != bounds[1])


def _cells(table: Mapping[str, list[float]]) -> Any:
    from quorate.release.numbers._bounds import count_cells

    return count_cells(np.array(table["v"]))


def _all_records(people: Any, groups: Any, **limits: int) -> Any:
    """Let all records of a person count in all of its groups: that is the mistake."""
    pairs = people * (int(groups.max(initial=0)) + 1) + groups
    first = np.zeros(len(people), dtype=np.bool_)
    first[np.unique(pairs, return_index=True)[1]] = True
    return np.ones(len(people), dtype=np.bool_), first


def _range_of_values(values: Sequence[NDArray[np.float64]], draw: Callable[..., Any], **settings: Any) -> Any:
    """Take the smallest and the largest value: that is the mistake."""
    draw(np.zeros(1, dtype=np.int64), squared_sensitivity=2)
    return [FoundBounds(float(np.nanmin(column)), float(np.nanmax(column)), 0.0) for column in values]


def _steps_alone(values: Any, cuts: Any, draw: Callable[..., Any]) -> Any:
    """Pay for the steps and not for the counts between declared cuts: that is the mistake."""
    square = 2 * len(values)
    return find_steps(values, cuts, lambda counts, **_: draw(counts, squared_sensitivity=square))


def _added_units(*facts: Any) -> int:
    """Return the squared length of added units, not of replaced ones: that is the mistake."""
    return quantile_sensitivity(*facts) // 2


_LIGHT_RECORDS = property(lambda self: replace(_WEIGHTS(self), records=UNIT // 4))
_FULL_OTHERS = property(lambda self: self.weights)
_PEOPLE_ONCE = property(
    lambda self: replace(_OTHERS(self), people=math.isqrt(self.records_per_group**2 * self._rest_square // 4))
)
_OTHERS: Callable[[Layout], Any] = vars(Layout)["other_weights"].fget
_WEIGHTS: Callable[[Layout], Any] = vars(Layout)["weights"].fget


def _bug(name: str, kind: type[SparseSums], attack: Any, by: Any = "enumeration") -> PlantedBug:
    return kind_bug(name, by, kind, SparseSums, attack)


NUMBERS = (
    kind_bug("laplace_threshold_of_one_key", "enumeration", _LaplaceOfOneKey, LaplaceSums, _enumerate_laplace),
    kind_bug("laplace_head_forgotten", "enumeration", _LaplaceHeadForgotten, LaplaceSums, _enumerate_laplace),
    _bug("threshold_of_one_key", _ThresholdOfOneKey, _enumerate_keys),
    _bug("head_forgotten", _HeadForgotten, _enumerate_keys),
    _bug("keys_in_row_order", _RowOrder, _compare_orders, "replay"),
    replacement_bug("person_in_all_groups", "enumeration", (_rows, "choose_records"), _all_records, _enumerate_moves),
    replacement_bug("light_records", "enumeration", (Layout, "weights"), _LIGHT_RECORDS, _enumerate_moves),
    replacement_bug("others_in_full", "enumeration", (Layout, "other_weights"), _FULL_OTHERS, _enumerate_moves),
    replacement_bug(
        "laplace_others_in_full", "enumeration", (Layout, "_other_laplace_weights"), _FULL_OTHERS, _enumerate_moves
    ),
    replacement_bug("others_people_once", "enumeration", (Layout, "other_weights"), _PEOPLE_ONCE, _enumerate_moves),
    replacement_bug(
        "rounds_of_added_units", "enumeration", (_quantiles, "quantile_sensitivity"), _added_units, _enumerate_rounds
    ),
    replacement_bug(
        "counts_between_cuts_unpaid", "enumeration", (_measured, "find_steps"), _steps_alone, _enumerate_steps
    ),
    replacement_bug("bounds_of_values", "replay", (_measured, "find_bounds"), _range_of_values, _replace_row),
)
