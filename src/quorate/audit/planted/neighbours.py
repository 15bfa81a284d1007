"""Small classifiers in phases with one mistake each: one unit reaches what other teachers are given, or what is seen.

`SmallClassifier` does by itself what the predictors here promise, in the plainest way: types are fixed when it is
fitted, every teacher gets rows numbered from 0, every query is put to a teacher in a call of its own. Each mistake
overrides one step. The attack is a cell of the neighbour matrix.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from quorate.audit.matrix import run_case
from quorate.audit.matrix.containers import CONTAINERS
from quorate.audit.matrix.subjects import Subject
from quorate.audit.matrix.trials import Case
from quorate.audit.planted.bug import Caught, PlantedBug
from quorate.ensemble import deal_units, unit_numbers
from quorate.errors import InvalidInput
from quorate.predictors.predictions import Predictions

__all__ = ["NEIGHBOURS", "SmallClassifier", "in_the_matrix"]

_TEACHERS, _SEATS = 6, 14
Chunk = tuple[Any, Any]  # rows and labels of one teacher


class _Teachers:
    """Fitted estimators, or None, with the label that each names where it has nothing to say."""

    def __init__(self, fitted: list[tuple[Any, int]], owner: "SmallClassifier") -> None:
        self.fitted, self.teachers, self._owner = fitted, len(fitted), owner

    def ballots(self, X: Any) -> Any:
        return np.stack([self._owner.ask(model, label, X) for model, label in self.fitted], axis=1)


class SmallClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of six teachers whose queries teach the next six. It has no noise: nothing of it may be used.

    >>> X = np.arange(36.0)[:, np.newaxis]
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> made = SmallClassifier(DecisionTreeClassifier()).fit(X, (X[:, 0] > 16).astype(int))
    >>> made.predict([[1.0], [30.0]]).tolist(), made.seats_taken_
    ([0, 1], 2)
    """

    def __init__(self, estimator: Any, *, refresh: str = "queries") -> None:
        self.estimator = estimator
        self.refresh = refresh

    def fit(self, X: Any, y: Any, groups: Any = None) -> "SmallClassifier":
        """Fix the types, deal the units, fit the teachers.

        >>> SmallClassifier(None).refresh
        'queries'
        """
        self.refresh_, self.classes_, self.seats_taken_, self._size = self.refresh, np.array([0, 1]), 0, _SEATS
        X = self.typed(X)
        units, count = unit_numbers(len(y), groups)
        self.try_out(X, rows=count // _TEACHERS)
        self.teachers_, self._arrived, self._labels = _TEACHERS, list[Any](), list[int]()
        self.teach(X, np.asarray(y), units, count)
        return self

    def teach(self, X: Any, labels: Any, units: Any, count: int) -> None:
        """Deal units to teachers, those without a label to nobody, and fit.

        >>> SmallClassifier.teach.__name__
        'teach'
        """
        deal, _ = deal_units(units, count, teachers=_TEACHERS)
        chunks = np.split(deal.rows, np.cumsum(deal.sizes)[:-1])
        chunks = [rows[labels[rows] >= 0] for rows in chunks]
        teachers = _Teachers(self.fit_all([(self.chunk(X, rows), labels[rows]) for rows in chunks]), self)
        self.session_ = SimpleNamespace(ensemble=SimpleNamespace(fitted=teachers))

    def fit_all(self, chunks: list[Chunk]) -> list[tuple[Any, int]]:
        """Fit each teacher on its own chunk.

        >>> SmallClassifier(None).fit_all([])
        []
        """
        found = []
        for place, (X, y) in enumerate(chunks):
            self.seed(place)
            found.append(self.fit_one(X, y))
        return found

    def seed(self, place: int) -> None:
        """Give the teacher at this place a generator of its own.

        >>> SmallClassifier.seed.__name__
        'seed'
        """
        np.random.seed(place)  # noqa: NPY002  an estimator without a seed draws from it

    def fit_one(self, X: Any, y: Any) -> tuple[Any, int]:
        """Fit one teacher; one that cannot be fitted names the label of most of its rows.

        >>> SmallClassifier(None).fit_one(np.zeros((1, 1)), np.array([1]))
        (None, 1)
        """
        label = int(np.bincount(y, minlength=2).argmax())
        if np.unique(y).size < 2:
            return None, label
        with self.silence():
            try:
                return clone(self.estimator).fit(X, y), label
            except Exception:
                return None, label

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Let no warning out: it would speak of one teacher's rows.

        >>> with SmallClassifier(None).silence():
        ...     warnings.warn("a value is large", stacklevel=1)
        """
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield

    def try_out(self, X: Any, *, rows: int) -> None:
        """Do nothing: an estimator can be tried on made-up rows, whose number must be public.

        >>> SmallClassifier(None).try_out(np.zeros((1, 1)), rows=1)
        """

    def typed(self, X: Any) -> Any:
        """Return records, and keep their types for the queries.

        >>> SmallClassifier(None).typed([[1, 2]])
        array([[1., 2.]])
        """
        self.kinds_ = X.dtypes if hasattr(X, "iloc") else getattr(X, "dtype", np.dtype(np.float64))
        return X if hasattr(X, "iloc") else np.asarray(X, dtype=self.kinds_)

    def checked(self, X: Any) -> Any:
        """Return queries of the types of the records, or refuse them.

        >>> made = SmallClassifier(None)
        >>> made.typed(np.zeros((1, 1), dtype=np.float32)).dtype, made.checked([[1.5]]).dtype
        (dtype('float32'), dtype('float32'))
        """
        framed = not isinstance(self.kinds_, np.dtype)
        if framed != hasattr(X, "iloc"):
            raise InvalidInput("queries come in a container like that of the records")
        try:
            cast = X.astype(self.kinds_) if framed else np.asarray(X).astype(self.kinds_)
        except (TypeError, ValueError):
            raise InvalidInput("queries are of the types of the records") from None
        if framed and not (np.asarray(cast, dtype=object) == np.asarray(X, dtype=object)).all():
            raise InvalidInput("a query has values that the types of the records do not hold")
        return cast

    def chunk(self, X: Any, rows: Any) -> Any:
        """Return the rows of one teacher, numbered from 0.

        >>> SmallClassifier(None).chunk(np.array([[1.0], [2.0]]), [1])
        array([[2.]])
        """
        return X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]

    def ask(self, model: Any, label: int, X: Any) -> Any:
        """Return the ballots of one teacher, asked about one query at a time.

        >>> SmallClassifier(None).ask(None, 1, np.zeros((2, 1)))
        array([1, 1])
        """
        with self.silence():
            return np.array([_said(model, self.chunk(X, [row]), label)[0] for row in range(len(X))])

    def predict(self, X: Any) -> Predictions:
        """Answer by majority; the queries take seats.

        >>> SmallClassifier.predict.__name__
        'predict'
        """
        X = self.checked(X)
        if self.seats_taken_ >= _SEATS:
            self._next_phase()
        ones = self.session_.ensemble.fitted.ballots(X).sum(axis=1)
        labels = np.where(ones * 2 == _TEACHERS, -1, ones * 2 > _TEACHERS).astype(np.int64)
        if self.taught_by_queries():
            self._arrived.append(X)
            self._labels += labels.tolist()
            self.seats_taken_ += len(labels)
        return Predictions.of(labels, classes=self.classes_, refused=np.zeros(len(labels), dtype=np.bool_))

    def feed(self, X: Any) -> "SmallClassifier":
        """Refuse: only queries teach here.

        >>> SmallClassifier(None).feed([])
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: queries teach, and nothing else
        """
        raise InvalidInput("queries teach, and nothing else")

    def taught_by_queries(self) -> bool:
        """Return whether queries teach, as was said when it was fitted.

        >>> SmallClassifier.taught_by_queries.__name__
        'taught_by_queries'
        """
        return bool(self.refresh_ == "queries")

    def _next_phase(self) -> None:
        arrived, labels = self.join(self._arrived), np.array(self._labels)
        self._arrived, self._labels, self.seats_taken_ = [], [], 0
        self.teach(arrived, labels, np.arange(len(labels)), len(labels))

    def join(self, parts: list[Any]) -> Any:
        """Return all arrivals as one; their types are those of the records already.

        >>> SmallClassifier(None).join([np.zeros((1, 1)), np.ones((1, 1))]).shape
        (2, 1)
        """
        if not hasattr(parts[0], "iloc"):
            return np.concatenate(parts)
        import pandas as pd  # noqa: PLC0415

        return pd.concat(parts, ignore_index=True)


def _said(model: Any, X: Any, label: int) -> Any:
    """Return what a teacher says of these rows, or its label where it can say nothing."""
    try:
        return np.asarray(model.predict(X)) if model is not None else np.full(len(X), label)
    except Exception:
        return np.full(len(X), label)


class _TypesOfTheJoin(SmallClassifier):
    """Takes queries of any type: those of the joined frame are for all teachers."""

    def checked(self, X: Any) -> Any:
        """Check the container, and leave the types: that is the mistake."""
        return X if hasattr(X, "iloc") else super().checked(X)


class _MadeUpRows(SmallClassifier):
    """Gives a teacher without rows one that is made up, of another type than the records."""

    def teach(self, X: Any, labels: Any, units: Any, count: int) -> None:
        """Add a made-up row for each point without a label."""
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
        """Try it on so many rows for each teacher as there are rows: the mistake, where units were meant."""
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

    def checked(self, X: Any) -> Any:
        """Check the types where the container is right, and say nothing where it is not: that is the mistake."""
        return super().checked(X) if hasattr(X, "iloc") != isinstance(self.kinds_, np.dtype) else X


def in_the_matrix(kind: type[SmallClassifier], container: str, learner: str, unit: str) -> Caught:
    """Run one cell of the neighbour matrix on a small classifier.

    >>> in_the_matrix(SmallClassifier, "float64", "tree", "row").found
    False
    """
    subject = Subject(kind.__name__, kind, (learner,), rows=36, settings={"refresh": "pool"}, phases=True)
    outcome = run_case(Case(subject, learner, CONTAINERS[container]), unit)
    said = outcome.said[0] if outcome.said else "nothing differed that must not"
    return Caught(f"neighbour matrix, {container}, {learner}, {unit}", said, found=not outcome.passed)


def _bug(name: str, what: str, kind: type[SmallClassifier], *cell: str) -> PlantedBug:
    return PlantedBug(
        name,
        what,
        "replay",
        lambda: kind,
        lambda: SmallClassifier,
        lambda target, plays, seed: in_the_matrix(target, *cell),
    )


NEIGHBOURS = (
    _bug(
        "frames_joined_before_types",
        "frames of all queries joined before their types are fixed: one query decides what every teacher sees",
        _TypesOfTheJoin,
        *("pandas", "onlooker", "query"),
    ),
    _bug(
        "made_up_rows_of_another_type",
        "made-up rows of another type than the records, so that one empty seat changes the type of all",
        _MadeUpRows,
        *("float32", "tree", "query"),
    ),
    _bug(
        "batch_halved_for_all",
        "a batch halved for all where one row cannot be answered: a ballot depends on its company",
        _HalvedForAll,
        *("int64", "counts-rows", "company"),
    ),
    _bug(
        "index_positions_passed_on",
        "the index of all rows passed on: one row more of one person moves everybody's",
        _PositionsPassedOn,
        *("pandas", "onlooker", "person"),
    ),
    _bug(
        "settings_read_after_fit",
        "a setting looked up when it is used, so that it can be changed under a claim that stays",
        _ReadsSettings,
        *("float64", "tree", "setting"),
    ),
    _bug(
        "all_tried_again",
        "all teachers fitted again where one fails: the work depends on one unit",
        _TriesAllAgain,
        *("float64", "fails", "row"),
    ),
    _bug(
        "tried_on_as_many_rows",
        "an estimator tried on as many rows as there are, where only the number of people is public",
        _TriedOnAsManyRows,
        *("float64", "tree", "person"),
    ),
    _bug(
        "generator_shared",
        "one generator for all teachers: one that is not fitted moves the draws of all that follow",
        _SharedGenerator,
        *("float64", "tree", "row"),
    ),
    _bug(
        "warning_let_out",
        "a warning that an estimator gives about the rows of one teacher",
        _WarnsOfARow,
        *("float64", "tree", "row"),
    ),
    _bug(
        "failure_logged",
        "a line in the log that says that a teacher could not be fitted",
        _LogsAFailure,
        *("float64", "fails", "row"),
    ),
    _bug(
        "types_of_the_values",
        "the type of a matrix read off its values: one decimal number changes what all teachers see",
        _TypesOfTheValues,
        *("lists", "onlooker", "row"),
    ),
    _bug(
        "any_container_taken",
        "a query taken in another container than the records', on which every later phase fails",
        _TakesAnyContainer,
        *("pandas", "onlooker", "query"),
    ),
)
