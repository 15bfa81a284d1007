"""A hypothesis: a function from points to the labels 0 and 1."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.hypotheses.points import Labels, Points, check_queries

__all__ = ["Constant", "Hypothesis"]


class Hypothesis(ABC):
    """A hypothesis of a class; `predict` gives each point its label.

    Your own hypothesis sets the number of `features` it reads and defines `_predict(points)`.
    """

    features: int

    def predict(self, X: Any) -> Labels:
        """Return the label, 0 or 1, of each row."""
        return np.asarray(self._predict(check_queries(X, features=self.features)), dtype=np.int64)

    def predict_checked(self, points: Points) -> Any:
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
