"""The unit of privacy of a release, a record or a person with up to k records, and its claim in words."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.privacy.claims import Claim, Total
from quorate.tables.containers import is_arrow, take_arrow_rows
from quorate.tables.persons import lasting_names, unit_numbers

RECORD, PERSON = "record", "person"  # the unit of privacy
_DIGEST = 16  # bytes
_OPEN = "public records are not protected"


def large_delta_notes(delta: float, units: int) -> list[str]:
    """Return what a reader must know of a delta above one over the public number of units."""
    if delta * units <= 1.0:
        return []
    return [f"delta = {delta:g} is above 1 / {units}: this claim allows to publish a record as it is"]


def check_records_per_person(records_per_person: Any, groups: Any) -> int:
    """Return the number of records that count for each person; more than 1 requires groups."""
    checked = check_count("records_per_person", records_per_person)
    if groups is None and checked > 1:
        raise InvalidInput("records_per_person says how many records of a person count: groups= says whose they are")
    return checked


def first_records(private: Any, groups: Any, records_per_person: int = 1) -> Any:
    """Return this many records of each person: the first ones, repeated where a person has fewer.

    The selection depends on this person's records alone. It is not random, so that a run continues after a restart with
    the same records.
    """
    units, people = unit_numbers(_rows_of(private), groups)
    order = np.argsort(units, kind="stable")
    counts = np.bincount(units, minlength=people)
    available = np.minimum(counts, records_per_person)
    starts = np.cumsum(counts) - counts
    return _take_records(
        private, np.concatenate([order[starts + turn % available] for turn in range(records_per_person)])
    )


class Counted:
    """The count of each person's records over several updates, of which the first `records_per_person` are used."""

    def __init__(self, records_per_person: int) -> None:
        self.records_per_person = records_per_person
        self._times: dict[bytes, int] = {}

    def choose(self, private: Any, groups: Any) -> tuple[Any, NDArray[np.uint8]]:
        """Return the counted records, and the digest of each record's person."""
        units, people = unit_numbers(_rows_of(private), groups)  # by their texts, as digests are
        first = np.unique(units, return_index=True)[1]
        names = lasting_names(groups)  # 7, 7.0 and " 007 " are one in every update, as everywhere
        digests = [hashlib.sha256(names[index].encode()).digest()[:_DIGEST] for index in first.tolist()]
        previous = np.array([self._times.get(digest, 0) for digest in digests])
        order = np.argsort(units, kind="stable")
        counts = np.bincount(units, minlength=people)
        turns = np.empty(len(units), dtype=np.int64)  # number of earlier records of the same person
        turns[order] = np.arange(len(units)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = np.flatnonzero(previous[units] + turns < self.records_per_person)
        digest_rows = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, _DIGEST)
        return _take_records(private, chosen), digest_rows[units[chosen]]

    def remember(self, digests: NDArray[np.uint8] | None) -> None:
        """Add one to the count of a person for each occurrence of its digest."""
        if digests is None:
            return
        for row, times in zip(*np.unique(digests, axis=0, return_counts=True), strict=True):
            self._times[row.tobytes()] = self._times.get(row.tobytes(), 0) + int(times)


def _rows_of(private: Any) -> int:
    """Return the number of records, at least one."""
    columns = list(private.values()) if isinstance(private, Mapping) else [private]
    try:
        rows = {_num_samples(column) for column in columns}
    except TypeError:
        raise InvalidInput("private must be a table or a list of records") from None
    if len(rows) != 1 or 0 in rows:
        raise InvalidInput("private must hold at least one record, and as many values in each column")
    return int(rows.pop())


def _take_records(private: Any, chosen: NDArray[np.int64]) -> Any:
    if isinstance(private, Mapping):
        return {name: _take_records(column, chosen) for name, column in private.items()}
    return take_arrow_rows(private, chosen) if is_arrow(private) else _safe_indexing(private, chosen)


def loss_for_each_record(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """Return the epsilon and delta of one record that give (epsilon, delta) for `records` records, rounded down.

    By group privacy, (e, d) for one replaced record gives (k e, d (1 + exp(e) + ... + exp((k - 1) e))) for k records.
    """
    if records == 1:
        return epsilon, delta
    record_epsilon = epsilon / records * (1 - 1e-9)  # proof: step 2
    if epsilon > 700:  # the sum below overflows, and leaves a record no delta
        raise Infeasible("epsilon is too large for several records of a person; lower it, or let one of each count")
    return record_epsilon, delta / math.fsum(math.exp(turn * record_epsilon) for turn in range(records)) * (1 - 1e-9)


@dataclass(frozen=True)
class Update:
    """An update of a growing release: its name, its number from 1, and the declared number of updates."""

    name: str
    number: int
    updates: int


def release_claim(
    epsilon: float,
    delta: float,
    *,
    unit: str,
    records_per_person: int,
    records: int = 0,
    updates: int | None = None,
    total: Total | None = None,
) -> str:
    """Return the claim of a release of this many records, or of all `updates` of a growing release."""
    if updates is None:
        replaced = f"one of {records} private records" if unit == RECORD else f"all records of one of {records} people"
        released, counting, conditions = "the whole release is", "each person count", list[str]()
    else:
        replaced = "one record of one update" if unit == RECORD else "all records of one person, in the same updates"
        released, counting = f"all {updates} updates together are", "each person count over all updates"
        conditions = ["how many records each update counts is public"]
    if records_per_person > 1:
        conditions.append(f"up to {records_per_person} records of {counting}")
    if total is not None:
        conditions.append(str(total))
    return str(Claim(epsilon, delta, unit=replaced, what=released, conditions=(*conditions, _OPEN)))
