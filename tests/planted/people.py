"""Releases with one mistake each: a person, or a record, moves more than is paid for."""

import importlib
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from planted.attacks import DELTA, EPSILON, judge_distance
from planted.bug import Caught, PlantedBug, replaced, replacement_bug
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.release import QueryRelease, Workload
from quorate.release import _release as release_module
from quorate.release import people as people_module
from quorate.tables import containers as containers_module
from quorate.tables import dates as dates_module
from quorate.tables.dates import read_moment
from quorate.tables.values import raw_column

_PEOPLE, _RECORDS, _COUNTED = 50, 8, 4

Twin = tuple[ModuleType, str, Callable[..., Any]]  # a module, one of its functions, and what stands in for it


def _for_one_record(epsilon: float, delta: float, most: int) -> tuple[float, float]:
    """Pay for one record of a person, however many are counted: that is the mistake."""
    return epsilon, delta


def _all_records(private: Any, groups: Any, most: int = 1) -> Any:
    """Count all records of everybody: that is the mistake."""
    return private


def _by_value(rows: int, groups: Sequence[Any]) -> tuple[Any, int]:
    """Take a person who is written in two ways for two people: that is the mistake."""
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(name, len(seen)) for name in groups]), len(seen)


def _as_floats(values: Any) -> Any:
    """Make floats of a column of whole numbers in which one is missing: that is the mistake."""
    if not values.isna().any():
        return pa.array(values)
    return pa.array(values.to_numpy(dtype=np.float64, na_value=np.nan), from_pandas=True)


def _of_one_type(values: Any) -> pa.Array:
    """Let Arrow look for one type for all categories: that is the mistake."""
    categories = pa.array(values.cat.categories, from_pandas=True)
    return raw_column(categories.take(pa.array(np.asarray(values.cat.codes))).cast(pa.timestamp("us")))


def _to_the_microsecond(text: str, unit: Any, *rules: Any) -> float:
    """Take a moment that is written with nanoseconds for no date: that is the mistake."""
    return math.nan if len(text.partition(".")[2]) > 6 else read_moment(text, unit, *rules)


def _measured(records: Any, columns: Any, groups: Any = None, most: int = 1) -> tuple[NoisyVector, list[np.ndarray]]:
    """Return what a release puts to its mechanism."""
    seen: list[tuple[NoisyVector, list[np.ndarray]]] = []
    original = NoisyVector.draw_release

    def record(self: NoisyVector, parts: Any, budget: Any, noise: Any) -> Any:
        seen.append((self, [np.asarray(part) for part in parts]))
        return original(self, parts, budget, noise)

    settings: dict[str, Any] = {"engine": "plain", "epsilon": EPSILON, "delta": DELTA, "records_per_person": most}
    with replaced(NoisyVector, "draw_release", record):
        QueryRelease(Workload.marginals(1), columns=columns, **settings).fit(records, groups=groups)
    [found] = seen
    return found


def _told(name: str, one: tuple[NoisyVector, list[np.ndarray]], other: tuple[NoisyVector, list[np.ndarray]]) -> Caught:
    """Compute the exact delta of what Gaussian noise tells of two neighbours at epsilon."""
    mechanism, counts = one
    moved = [float(((first - second) ** 2).sum()) for first, second in zip(counts, other[1], strict=True)]
    distance = math.sqrt(sum(square / scale**2 for square, scale in zip(moved, mechanism.scales, strict=True)))
    return judge_distance(name, distance, "two neighbours")


def replace_a_person(twin: Twin) -> Caught:
    """Replace all visits of one person, whose name is a number in one and a text in the next."""
    names: list[Any] = np.repeat(np.arange(_PEOPLE), _RECORDS).tolist()
    names[:_RECORDS:2] = ["0"] * (_RECORDS // 2)
    with replaced(*twin):
        one, other = (
            _measured(
                {"kind": [cell] * _RECORDS + ["b"] * (_PEOPLE - 1) * _RECORDS}, {"kind": ["a", "b"]}, names, _COUNTED
            )
            for cell in "ab"
        )
    return _told("replaced person", one, other)


def lose_a_number(twin: Twin) -> Caught:
    """Take the number of one record out of a column of long ones, which pandas keeps as whole numbers."""
    frames, long = importlib.import_module("pandas"), 2**53
    columns = {"code": [str(long), str(long + 1)]}
    with replaced(*twin):
        one, other = (
            _measured(frames.DataFrame({"code": frames.array([first] + [long + 1] * 99, dtype="Int64")}), columns)
            for first in (long, None)
        )
    return _told("missing number", one, other)


def write_a_moment(twin: Twin, kept: str, odd: Any) -> Caught:
    """Replace the moment of one record by an odd one, in a column that pandas keeps as categories or texts."""
    frames, noon = importlib.import_module("pandas"), datetime(2024, 5, 31, 12)
    columns = {"at": {"kind": "date", "cuts": ["2024-05-31T08:30"]}}
    with replaced(*twin):
        one, other = (
            _measured(frames.DataFrame({"at": frames.Series([first] + [noon] * 99).astype(kept)}), columns)
            for first in (noon, odd)
        )
    return _told("replaced moment", one, other)


def _bug(
    name: str, of: tuple[ModuleType, str], broken: Callable[..., Any], attack: Any = replace_a_person
) -> PlantedBug:
    return replacement_bug(name, "enumeration", of, broken, attack)


def _writes(as_dtype: str, moment: Any) -> Callable[[Twin], Caught]:
    return lambda twin: write_a_moment(twin, as_dtype, moment)


_NANOSECONDS = np.datetime64("2024-05-31T08:00:00.000000001")

PEOPLE = (
    _bug("pays_for_one_record", (release_module, "loss_for_each_record"), _for_one_record),
    _bug("all_records_of_a_person", (release_module, "first_records"), _all_records),
    _bug("two_names_of_a_person", (people_module, "unit_numbers"), _by_value),
    _bug("numbers_cut_short", (containers_module, "_arrow_column"), _as_floats, lose_a_number),
    _bug(
        "categories_of_one_type",
        (containers_module, "_pandas_categories"),
        _of_one_type,
        _writes("category", date(2024, 5, 31)),
    ),
    _bug(
        "nanoseconds_are_no_date", (dates_module, "read_moment"), _to_the_microsecond, _writes("string", _NANOSECONDS)
    ),
)
