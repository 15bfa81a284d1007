"""A hypothesis: a function from points to the labels 0 and 1."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.points import Labels, Points, check_queries


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
