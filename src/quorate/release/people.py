"""One record for each person, so that replacing a person replaces one record."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from quorate.ensemble import unit_numbers
from quorate.errors import InvalidInput

__all__ = ["PERSON", "RECORD", "first_records"]

RECORD, PERSON = "record", "person"  # the unit of privacy


def first_records(private: Any, groups: Any) -> Any:
    """Return the first record of each person, in the order in which people first appear.

    Which one is kept depends on this person's records alone. It is not drawn at random, so that a run that goes on
    after a restart goes on with the same records.
    """
    columns = list(private.values()) if isinstance(private, Mapping) else [private]
    try:
        rows = {_num_samples(column) for column in columns}
    except TypeError:
        raise InvalidInput("private must be a table or a list of records") from None
    if len(rows) != 1 or 0 in rows:
        raise InvalidInput("private must hold at least one record, and as many values in each column")
    units, _ = unit_numbers(rows.pop(), groups)
    first = np.unique(units, return_index=True)[1]
    if isinstance(private, Mapping):
        return {name: _safe_indexing(column, first) for name, column in private.items()}
    return _safe_indexing(private, first)
