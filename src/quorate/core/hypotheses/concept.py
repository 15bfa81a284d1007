"""Classes of hypotheses (functions from points to the labels 0 and 1), tallies of mistakes, and checks of points.

Values of private rows are no reason for an error: a row that has a missing or infinite value, or one that the class
does not declare, or a label other than 0 and 1, is left out without a word. So replacing one row still moves each
number of mistakes by at most 1. Shapes and types are refused, and they may come from values: turn rows into numbers,
row by row, before they come here. Points whose labels are asked for belong to the caller, and are refused.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.estimator_calls import CALL, Calls, one_thread, silence

Points = NDArray[np.float64]
Values = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


def check_points(X: Any, *, features: int, name: str = "X") -> Points:
    """Return `X` as a matrix of 64-bit floats with this many columns; one column may be given as a plain list."""
    values = np.asarray(X)
    shaped = values[:, np.newaxis] if values.ndim == 1 and features == 1 else values
    if values.size == 0 and values.ndim == 1:
        shaped = np.empty((0, features))
    if shaped.ndim != 2 or shaped.shape[1] != features or shaped.dtype.kind not in "fiub":
        raise InvalidInput(
            f"{name} must be a matrix of numbers with {features} columns, got {values.dtype} of shape {values.shape}"
        )
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(shaped, dtype=np.float64)


def check_queries(X: Any, *, features: int) -> Points:
    """Return points to be labelled, or refuse them where a value is missing or infinite."""
    queries = check_points(X, features=features)
    if not np.isfinite(queries).all():
        raise InvalidInput("X must be finite numbers: fill in or leave out missing and infinite values first")
    return queries


def which_finite(points: Points) -> Mask:
    """Return which rows have finite values only."""
    return np.asarray(np.isfinite(points).all(axis=1))


def check_labels(y: Any, *, rows: int) -> Labels:
    """Return `y` as one whole number for each row; which numbers they are is not looked at."""
    labels = np.asarray(y)
    if labels.shape != (rows,) or (labels.dtype.kind not in "iub" and labels.size > 0):
        raise InvalidInput(
            f"y must be {rows} whole numbers, 0 or 1, one for each row of X, got {labels.dtype} of shape {labels.shape}"
        )
    return labels.astype(np.int64)


def which_labelled(labels: Labels) -> Mask:
    """Return which labels are 0 or 1."""
    return np.asarray((labels == 0) | (labels == 1))


def usable_rows(
    X: Any, y: Any, *, features: int, usable: Callable[[Points], Mask] = which_finite
) -> tuple[Points, Labels]:
    """Return the rows that are usable points and have a label, and their labels."""
    points = check_points(X, features=features)
    labels = check_labels(y, rows=len(points))
    used = usable(points) & which_labelled(labels)
    return (points, labels) if used.all() else (points[used], labels[used])


def say_by_row(ask: Callable[[Points], Any], points: Points, *, rows: int | None = CALL) -> Mask:
    """Return of which rows `ask` says 1, each by itself: not of one on which it raises, or says anything but 0 and 1.

    It is asked in calls of a fixed shape, so that no row changes how another is summed
    (`quorate.core.estimator_calls`).
    """
    with one_thread(), silence():
        mask: Mask = Calls(points, rows).ballots(_Asked(ask), majority=0, classes=2) == 1
        return mask


class _Asked:
    """A function of rows as a model: 1, or something else, of each."""

    def __init__(self, ask: Callable[[Points], Any]) -> None:
        self._ask = ask

    def predict(self, X: Points) -> Any:
        values = np.asarray(self._ask(X))
        return values.reshape(len(X)) == 1 if values.shape in ((len(X),), (len(X), 1)) else values


def cuts_between(low: Values, high: Values) -> Values:
    """Return for low < high a number halfway, above `low` and at most `high`: `x >= cut` tells the two apart."""
    middle = low / 2 + high / 2
    return np.where((middle > low) & (middle <= high), middle, high)


def cut_points(values: Values) -> Values:
    """Return one cut between each two neighbours among the distinct values, in rising order."""
    distinct = np.unique(values)
    return cuts_between(distinct[:-1], distinct[1:])


def lead_below(cuts: Values, values: Values, labels: Integers, *, side: Literal["left", "right"] = "left") -> Integers:
    """Return for each cut how many more ones than zeros lie below it, or at and below it where `side` is right."""
    order = np.argsort(values)
    lead = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(2 * labels[order] - 1, out=lead[1:])
    return lead[np.searchsorted(values[order], cuts, side=side)]  # left: a value at a cut is not below it


def mistakes_upward(cuts: Values, values: Values, labels: Integers) -> Any:
    """Return for each cut the mistakes of saying 1 at and above it and 0 below."""
    return np.count_nonzero(labels == 0) + lead_below(cuts, values, labels)


class Hypothesis(ABC):
    """A hypothesis of a class; `predict` gives each point its label.

    Your own hypothesis sets the number of `features` it reads and defines `_predict(points)`.
    """

    features: int

    def predict(self, X: Any) -> Labels:
        """Return the label, 0 or 1, of each row."""
        return np.asarray(self._predict(check_queries(X, features=self.features)), dtype=np.int64)

    def label_points(self, points: Points) -> Any:
        """Return the labels of points that were already checked, as `_predict` gives them."""
        return self._predict(points)

    @abstractmethod
    def _predict(self, points: Points) -> Any:
        """Return the labels of checked points, as whole numbers or booleans."""


@dataclass(frozen=True, kw_only=True)
class Constant(Hypothesis):
    """The hypothesis that gives all points one label."""

    features: int
    label: int

    def _predict(self, points: Points) -> Any:
        return np.full(len(points), self.label)


Counts = NDArray[np.int64]


class Tally(ABC):
    """Candidates grouped by their number of mistakes on one labelled set.

    `counts[m]` is the number of candidates that make m mistakes, and `pick(m, rank)` is the one of this rank among
    them: a uniform rank is a uniform choice. A tally is as private as the labels it was made from: its repr shows
    nothing, it cannot be copied, and only a mechanism should read it.
    """

    counts: Counts

    def pick(self, mistakes: int, rank: int) -> Hypothesis:
        """Return the candidate of this rank, from 0, among those that make this many mistakes."""
        if not (0 <= mistakes < self.counts.size and 0 <= rank < self.counts[mistakes]):
            raise InvalidInput("pick takes a number of mistakes that occurs and a rank below its count")
        return self._pick(int(mistakes), int(rank))

    @abstractmethod
    def _pick(self, mistakes: int, rank: int) -> Hypothesis:
        """Return the candidate; both numbers are in range."""

    def __repr__(self) -> str:
        return "<sealed tally>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a tally cannot be copied, pickled or stored: put it to a mechanism")


class ListedTally(Tally):
    """A tally from the mistakes of every candidate, one by one."""

    def __init__(
        self, mistakes: NDArray[np.integer[Any]], candidate: Callable[[int], Hypothesis], *, rows: int
    ) -> None:
        self.counts = np.bincount(mistakes, minlength=rows + 1)
        self._mistakes, self._candidate = mistakes, candidate

    def _pick(self, mistakes: int, rank: int) -> Hypothesis:
        return self._candidate(int(np.flatnonzero(self._mistakes == mistakes)[rank]))


LISTED = 2**26  # candidates that are listed one by one, at most


def sauer(points: int, dimension: int) -> int:
    """Bound the dichotomies of a class of this VC dimension on this many points (Sauer 1972)."""
    return sum(math.comb(points, size) for size in range(min(points, dimension) + 1))


class Dichotomies(ABC):
    """The candidates on a point set: one representative of each way in which the class labels the points.

    Representatives depend only on the points, never on a label. `tally` and `mistakes` take any labelled points, not
    only those that define the candidates. Your own subclass defines `__len__`, `_candidate(index)` and, if there is a
    fast way, `_mistakes(points, labels)` or `_tally(points, labels)`.

    >>> from quorate.models.concepts import Intervals
    >>> dichotomies = Intervals().dichotomies([1.0, 2.0])
    >>> [candidate.predict([1.0, 2.0]).tolist() for candidate in dichotomies]
    [[0, 0], [1, 0], [1, 1], [0, 1]]
    """

    features: int
    usable: Callable[[Points], Mask] = staticmethod(which_finite)  # replaced by that of the class, by its dichotomies

    @abstractmethod
    def __len__(self) -> int:
        """Return how many dichotomies there are."""

    @abstractmethod
    def _candidate(self, index: int) -> Hypothesis:
        """Return the representative of this index, which is in range."""

    def __getitem__(self, index: int) -> Hypothesis:
        if not 0 <= index < len(self):
            raise IndexError("there are not so many dichotomies")
        return self._candidate(int(index))

    def __iter__(self) -> Iterator[Hypothesis]:
        return (self._candidate(index) for index in range(len(self)))

    def tally(self, X: Any, y: Any) -> Tally:
        """Count the candidates by their mistakes on labelled points."""
        return self._tally(*self._rows(X, y))

    def mistakes(self, X: Any, y: Any) -> Labels:
        """Return the number of mistakes of every candidate, in order."""
        if len(self) > LISTED:
            raise Infeasible(f"more than {LISTED} candidates are not listed; use tally, which counts them")
        return np.asarray(self._mistakes(*self._rows(X, y)), dtype=np.int64)

    @property
    def counts_mistakes(self) -> bool:
        """Whether these candidates define their own way to count mistakes."""
        return getattr(self._mistakes, "__func__", None) is not Dichotomies._mistakes

    def mistakes_on(self, points: Points, labels: Labels) -> Any:
        """Return the mistakes on labelled points that were checked before, just as `_mistakes` gives them."""
        return self._mistakes(points, labels)

    def _rows(self, X: Any, y: Any) -> tuple[Points, Labels]:
        return usable_rows(X, y, features=self.features, usable=self.usable)

    def _tally(self, points: Points, labels: Labels) -> Tally:
        return ListedTally(self._mistakes(points, labels), self._candidate, rows=len(labels))

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        mistakes = [np.count_nonzero(self[index].label_points(points) != labels) for index in range(len(self))]
        return np.array(mistakes, dtype=np.int64)


class Concept(ABC):
    """A class of hypotheses with finite VC dimension.

    Your own class sets the number of `features` it reads and its `vc_dimension`, and defines `_dichotomies(points)`,
    which returns one representative of each dichotomy of the points; points may be repeated. If not every row of finite
    values is a point of the class, it also defines `_usable(points)`. Test it with `check_concept`.

    >>> from quorate.models.concepts import Thresholds
    >>> Thresholds().vc_dimension, Thresholds(both_directions=True).vc_dimension
    (1, 2)
    """

    features: int

    @property
    @abstractmethod
    def vc_dimension(self) -> int:
        """The VC dimension, or an upper bound if the class says so. It holds for all usable rows."""

    @property
    def dual_vc_dimension(self) -> int | None:
        """The VC dimension of the points as functions of the hypotheses, or None if unknown."""
        return None

    def for_learning(self) -> "Concept":
        """Return the class that a learner uses: this one, unless the class leaves a choice to the learner."""
        return self

    def growth(self, points: int) -> int:
        """Return the largest number of dichotomies of this many points: exact for the class, or Sauer's bound.

        It holds for all usable rows; the others are left out and have no dichotomies.
        """
        points = check_count("points", points, least=0)
        return min(self._growth(points), sauer(points, self.vc_dimension))

    def usable(self, X: Any) -> Mask:
        """Return which rows of `X` are points of the class: finite values, and declared ones if it declares any.

        All other rows are always left out: they define no candidates and make no mistakes.
        """
        points = check_points(X, features=self.features)
        usable = which_finite(points)
        if usable.all():
            return np.asarray(self._usable(points), dtype=np.bool_)
        usable[usable] = self._usable(points[usable])
        return usable

    def dichotomies(self, X: Any) -> Dichotomies:
        """Return one representative of each dichotomy of the distinct points of `X`.

        >>> from quorate.models.concepts import Thresholds
        >>> len(Thresholds().dichotomies([1.0, 2.0, 2.0]))
        3
        """
        points = check_points(X, features=self.features)
        self.check_size(len(points))
        usable = self.usable(points)
        candidates = self._dichotomies(points if usable.all() else points[usable])
        candidates.usable = self.usable  # what is no point of the class is nobody's mistake either
        return candidates

    def fit_erm(self, X: Any, y: Any) -> Hypothesis:
        """Return a hypothesis with the fewest mistakes on these rows. It is not private: nothing is charged.

        >>> from quorate.models.concepts import Thresholds
        >>> Thresholds().fit_erm([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1])
        Threshold(cut=2.5, upward=True)
        """
        tally = self.dichotomies(X).tally(X, y)
        return tally.pick(int(np.flatnonzero(tally.counts)[0]), 0)

    @abstractmethod
    def _dichotomies(self, points: Points) -> Dichotomies:
        """Return the candidates for checked points."""

    def _usable(self, points: Points) -> Mask:
        """Return which of these rows of finite values are points of the class: each by itself, and without an error."""
        return np.ones(len(points), dtype=np.bool_)

    def check_size(self, rows: int) -> None:
        """Raise an error if this many rows have too many dichotomies.

        The number is public; which are usable is not.
        """
        check_count("rows", rows, least=0)

    def largest_set(self, rows: int) -> int:
        """Return the largest number of rows, up to `rows`, whose dichotomies the class can enumerate."""
        low, high = 0, rows + 1
        while high - low > 1:
            middle = (low + high) // 2 if low else rows
            try:
                self.check_size(middle)
            except Infeasible:
                high = middle
                low = max(low, 1)
            else:
                low = middle
        return low

    def _growth(self, points: int) -> int:
        """Return a bound of the class's own on the number of dichotomies."""
        return sauer(points, self.vc_dimension)
