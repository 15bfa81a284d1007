"""Training the student, which sees public rows and released labels alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from quorate.core.errors import InvalidInput
from quorate.core.isolation import silence
from quorate.core.rows import take_rows

_TRIED = 200  # rows of a trial, and at least this many for each class


def try_student(student: Any, public: Any, classes: NDArray[Any], *, told: bool = True) -> Any:
    """Fit a copy on public rows with made-up labels, so that what it refuses is said before anything is spent.

    Where the rows are not public after all, what it says of them is not `told`.
    """
    rows = take_rows(public, np.arange(min(len(public), _TRIED * len(classes))))
    with silence():
        try:
            tried = clone(student).fit(rows, classes[np.arange(len(rows)) % len(classes)])
            tried.predict(take_rows(rows, np.arange(1)))
        except Exception as error:
            kind = f"{type(error).__name__}: {error}" if told else type(error).__name__
            raise InvalidInput(
                f"the student does not take the public points (tried with made-up labels) - {kind}"
            ) from (error if told else None)
    return tried


def train(student: Any, rows: Any, labels: NDArray[Any]) -> Any:
    """Return a copy of the student fitted on these rows; where they show one label, one that always says it."""
    if (labels == labels[0]).all():
        return DummyClassifier(strategy="most_frequent").fit(rows, labels)
    try:
        return clone(student).fit(rows, labels)
    except Exception as error:
        error.add_note("The labels are paid for and are kept in `labelled_`: another student can be fitted on them.")
        raise
