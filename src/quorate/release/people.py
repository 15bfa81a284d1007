"""As many records for each person, so that replacing a person replaces that many records."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from quorate.ensemble import unit_numbers
from quorate.errors import Infeasible, InvalidInput

__all__ = ["PERSON", "RECORD", "first_records", "loss_for_each_record"]

RECORD, PERSON = "record", "person"  # the unit of privacy


def first_records(private: Any, groups: Any, most: int = 1) -> Any:
    """Return `most` records of each person: the first of theirs, over and over again where they have fewer.

    Which ones are kept depends on this person's records alone. They are not drawn at random, so that a run that goes on
    after a restart goes on with the same records.
    """
    columns = list(private.values()) if isinstance(private, Mapping) else [private]
    try:
        rows = {_num_samples(column) for column in columns}
    except TypeError:
        raise InvalidInput("private must be a table or a list of records") from None
    if len(rows) != 1 or 0 in rows:
        raise InvalidInput("private must hold at least one record, and as many values in each column")
    units, people = unit_numbers(rows.pop(), groups)
    order = np.argsort(units, kind="stable")
    counts = np.bincount(units, minlength=people)
    kept = np.minimum(counts, most)
    starts = np.cumsum(counts) - counts
    chosen = np.concatenate([order[starts + turn % kept] for turn in range(most)])
    if isinstance(private, Mapping):
        return {name: _safe_indexing(column, chosen) for name, column in private.items()}
    return _safe_indexing(private, chosen)


def loss_for_each_record(epsilon: float, delta: float, most: int) -> tuple[float, float]:
    """Return the epsilon and delta for one record that make (epsilon, delta) for `most` of them, rounded down.

    By group privacy what is (e, d) for one replaced record is (k e, d (1 + exp(e) + ... + exp((k - 1) e))) for k.
    """
    if most == 1:
        return epsilon, delta
    each = epsilon / most * (1 - 1e-9)  # proof: step 2
    if epsilon > 700:  # the sum below is no float, and the delta of a record none
        raise Infeasible("epsilon is too large for several records of a person; lower it, or let one of each count")
    return each, delta / math.fsum(math.exp(turn * each) for turn in range(most)) * (1 - 1e-9)
