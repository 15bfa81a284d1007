"""Small classifiers with one mistake each: one unit reaches what other teachers are given, or what everybody sees.

The sound twin of all of them is `SmallClassifier`, and the attack is a cell of the neighbour matrix.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import clone

from matrix import run_case
from matrix.containers import CONTAINERS
from matrix.subjects import Subject
from matrix.trials import Case
from planted.bug import Caught, PlantedBug, kind_bug
from planted.small import Chunk, SmallClassifier


class _TypesOfTheJoin(SmallClassifier):
    """Takes queries of any type: those of the joined frame are for all teachers."""

    def check_queries(self, X: Any) -> Any:
        """Check the container, and leave the types: that is the mistake."""
        return X if hasattr(X, "iloc") else super().check_queries(X)


class _MadeUpRows(SmallClassifier):
    """Gives a teacher without rows one that is made up, of another type than the records."""

    def teach(self, X: Any, labels: Any, units: Any, count: int) -> None:
        absent = int((labels < 0).sum())
        if absent:
            X = np.concatenate([X, np.zeros((absent, X.shape[1]))])  # the mistake: float64, whatever the records are
        super().teach(X, labels, units, count)


class _HalvedForAll(SmallClassifier):
    """Asks about a whole batch, and halves it where one row cannot be answered."""

    def ask(self, model: Any, label: int, X: Any) -> Any:
        """Ask about all rows in one call; that the others are then asked in another batch is the mistake."""
        if model is None or len(X) == 1:
            return super().ask(model, label, X)
        try:
            return np.asarray(model.predict(X))
        except Exception:
            middle = len(X) // 2
            return np.concatenate([self.ask(model, label, part) for part in (X[:middle], X[middle:])])


class _PositionsPassedOn(SmallClassifier):
    """Leaves the rows of a teacher the numbers that they have among all rows."""

    def chunk(self, X: Any, rows: Any) -> Any:
        """Return the rows with their index: that is the mistake."""
        return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


class _ReadsSettings(SmallClassifier):
    """Looks up who teaches when it is asked."""

    def taught_by_queries(self) -> bool:
        """Return what the setting says now: that is the mistake."""
        return bool(self.refresh == "queries")


class _TriesAllAgain(SmallClassifier):
    """Fits all teachers a second time where one could not be fitted."""

    def fit_all(self, chunks: list[Chunk]) -> list[tuple[Any, int]]:
        """Fit, and again: that others are fitted again is the mistake."""
        fitted = super().fit_all(chunks)
        failed = any(model is None and np.unique(y).size > 1 for (model, _), (_, y) in zip(fitted, chunks, strict=True))
        return super().fit_all(chunks) if failed else fitted


class _TriedOnAsManyRows(SmallClassifier):
    """Tries the estimator on made-up rows, as many as a teacher has: with people, their number is not public."""

    def try_out(self, X: Any, *, rows: int) -> None:
        """Try it on the number of rows of a teacher: the mistake, since the number of units was meant."""
        made_up = np.arange(2.0 * len(X)).reshape(-1, 2)[: len(X) // 4]
        clone(self.estimator).fit(np.repeat(made_up[:, :1], X.shape[1], axis=1), np.arange(len(made_up)) % 2)


class _SharedGenerator(SmallClassifier):
    """Lets all teachers draw from one generator, one after the other."""

    def seed(self, place: int) -> None:
        """Go on where the teacher before ended: that is the mistake."""


class _WarnsOfARow(SmallClassifier):
    """Lets the warnings of an estimator out."""

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Silence nothing: that is the mistake."""
        yield


class _LogsAFailure(SmallClassifier):
    """Says in the log that a teacher could not be fitted."""

    def fit_one(self, X: Any, y: Any) -> tuple[Any, int]:
        """Fit, and write a line where it failed: that is the mistake."""
        model, label = super().fit_one(X, y)
        if model is None and np.unique(y).size > 1:
            logging.getLogger("quorate").debug("a teacher could not be fitted")
        return model, label


class _TypesOfTheValues(SmallClassifier):
    """Reads the type of a list off its values."""

    def typed(self, X: Any) -> Any:
        """Take whole numbers for integers, where all are: that is the mistake."""
        return super().typed(np.array(X))


class _TakesAnyContainer(SmallClassifier):
    """Takes a matrix as a query of a classifier that was fitted on a data frame."""

    def check_queries(self, X: Any) -> Any:
        """Check the types where the container is right, and say nothing where it is not: that is the mistake."""
        return super().check_queries(X) if hasattr(X, "iloc") != isinstance(self.kinds_, np.dtype) else X


def in_the_matrix(kind: type[SmallClassifier], container: str, learner: str, unit: str) -> Caught:
    """Run one cell of the neighbour matrix on a small classifier."""
    subject = Subject(kind.__name__, kind, (learner,), rows=36, settings={"refresh": "pool"}, phases=True)
    outcome = run_case(Case(subject, learner, CONTAINERS[container]), unit)
    said = outcome.said[0] if outcome.said else "nothing differed that must not"
    return Caught(f"neighbour matrix, {container}, {learner}, {unit}", said, found=not outcome.passed)


def _bug(name: str, kind: type[SmallClassifier], *cell: str) -> PlantedBug:
    return kind_bug(name, "replay", kind, SmallClassifier, lambda target: in_the_matrix(target, *cell))


NEIGHBOURS = (
    _bug("frames_joined_before_types", _TypesOfTheJoin, *("pandas", "onlooker", "query")),
    _bug("made_up_rows_of_another_type", _MadeUpRows, *("float32", "tree", "query")),
    _bug("batch_halved_for_all", _HalvedForAll, *("int64", "counts-rows", "company")),
    _bug("index_positions_passed_on", _PositionsPassedOn, *("pandas", "onlooker", "person")),
    _bug("settings_read_after_fit", _ReadsSettings, *("float64", "tree", "setting")),
    _bug("all_tried_again", _TriesAllAgain, *("float64", "fails", "row")),
    _bug("tried_on_as_many_rows", _TriedOnAsManyRows, *("float64", "tree", "person")),
    _bug("generator_shared", _SharedGenerator, *("float64", "tree", "row")),
    _bug("warning_let_out", _WarnsOfARow, *("float64", "tree", "row")),
    _bug("failure_logged", _LogsAFailure, *("float64", "fails", "row")),
    _bug("types_of_the_values", _TypesOfTheValues, *("lists", "onlooker", "row")),
    _bug("any_container_taken", _TakesAnyContainer, *("pandas", "onlooker", "query")),
)
