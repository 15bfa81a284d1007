"""Teachers that point one way: the sum of their rows, those of class 0 turned round. One row is enough for a teacher.

For halfspaces through a known centre, and points that lie around it evenly. There a teacher of one row votes for the
right side with a probability that grows linearly with the angle to the boundary, so that as many teachers as there are
rows tell more than the same rows in fewer and better teachers (PROOF.md, step 16).
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.compute.learners import Deal, Teachers
from quorate.compute.learners.backends import choose_backend
from quorate.compute.learners.linear import gridded_coefficients, gridded_queries
from quorate.compute.learners.teachers import LARGEST, check_arrays, check_queries
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import one_thread
from quorate.core.rows import usable_cores

_HIGH, _WIDE = 104, 384  # teachers and queries of one product: few enough for a cache


class MeanDirection(ClassifierMixin, BaseEstimator):
    """Two classes on the two sides of a hyperplane through `centre` (public; the origin unless given).

    Its normal is the mean of the rows seen from the centre, those of the first class turned round: right where points
    lie evenly around the centre (scale and turn them by public numbers first), and not in general.

    >>> MeanDirection().fit([[1.0, 0.2], [-2.0, 0.3]], ["yes", "no"]).predict([[3.0, 0.0], [-1.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    def __init__(self, centre: Any = None) -> None:
        self.centre = centre

    def fit(self, X: Any, y: Any) -> "MeanDirection":
        """Add up the rows."""
        X = validate_data(self, X, dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size > 2:
            raise InvalidInput(f"a direction tells two classes apart, not {self.classes_.size}")
        side = np.where(codes == self.classes_.size - 1, 1.0, -1.0)
        self.normal_ = (side[:, np.newaxis] * (X - _centre(self, X.shape[1]))).mean(axis=0)
        return self

    def predict(self, X: Any) -> Any:
        """Return the class of the side that each row lies on."""
        check_is_fitted(self, "normal_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        above = (X - _centre(self, X.shape[1])) @ self.normal_ >= 0
        return self.classes_[np.where(above, self.classes_.size - 1, 0)]


def _centre(estimator: MeanDirection, features: int) -> Floats:
    centre = np.zeros(features) if estimator.centre is None else np.asarray(estimator.centre, dtype=np.float64)
    if centre.shape != (features,) or not np.isfinite(centre).all():
        raise InvalidInput(f"centre must be {features} finite numbers, one for each feature")
    return centre


class DirectionTeachers(Teachers):
    """Each teacher votes 1 on the side of the centre that its normal points to. One without a normal votes by parity.

    Lengths do not matter. Normals and queries are rounded to grids, on which products are summed exactly: a ballot is a
    function of its teacher and its query to the last bit (`compute/learners/PROOF.md`, steps 1 to 3).
    """

    def __init__(self, normals: Any, *, centre: Any) -> None:
        self._normals = np.ascontiguousarray(normals, dtype=np.float64)
        self._centre = np.asarray(centre, dtype=np.float64)
        if self._normals.ndim != 2 or self._centre.shape != self._normals.shape[1:] or len(self._normals) < 1:
            raise InvalidInput("normals must be a matrix, one row a teacher, and the centre as long as a row")
        if not (np.isfinite(self._normals).all() and np.isfinite(self._centre).all()):
            raise InvalidInput("normals and centre must be finite numbers")
        self.teachers, self.features = self._normals.shape
        self.classes = 2
        self._gridded = gridded_coefficients(self._normals[:, np.newaxis])[:, 0]
        self._pointing = self._normals.any(axis=1)
        # Teachers without rows: odd ones vote 1, even ones 0. In the products they are 1 with every query.
        self._zeros = int(np.count_nonzero(np.flatnonzero(~self._pointing) % 2 == 0))

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class; blocks of queries are counted by several threads."""
        queries = self._grid_queries(X)
        parts = [queries[start : start + _WIDE] for start in range(0, len(queries), _WIDE)]
        if len(parts) < 2:
            below = [self._below(part) for part in parts]
        else:  # threads of their own would make those of a product of matrices wait for each other
            with one_thread(), ThreadPoolExecutor(usable_cores(most=8)) as pool:
                below = list(pool.map(self._below, parts))
        against = np.concatenate([np.empty(0, dtype=np.int64), *below]).astype(np.int64)
        ones = self.teachers - against - self._zeros
        return np.stack([self.teachers - ones, ones], axis=1)

    def _grid_queries(self, X: Any) -> Floats:
        queries = np.clip(check_queries(X, features=self.features), -LARGEST, LARGEST)
        return gridded_queries(np.clip(queries - self._centre, -LARGEST, LARGEST))

    def _below(self, queries: Floats) -> Integers:
        """Return how many normals point away from each query."""
        backend, across = choose_backend("cpu"), np.ascontiguousarray(queries.T)
        below, room = np.zeros(len(queries), dtype=np.int64), np.empty((_HIGH, len(queries)))
        for top in range(0, self.teachers, _HIGH):
            part = self._gridded[top : top + _HIGH]
            below += backend.count(backend.product(part, across, out=room[: len(part)]) < 0)
        return below

    def ballots(self, X: Any) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        ballots = (self._grid_queries(X) @ self._gridded.T >= 0).astype(np.uint8)
        absent = np.flatnonzero(~self._pointing)
        ballots[:, absent] = absent % 2
        return ballots

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays. They are private."""
        return {"kind": np.array("direction"), "normals": self._normals, "centre": self._centre}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "DirectionTeachers":
        """Return the teachers that `arrays` describe."""
        check_arrays(arrays, kind="direction", axes={"normals": 2, "centre": 1})
        return cls(arrays["normals"], centre=arrays["centre"])


def fit_directions(estimator: MeanDirection, X: Any, codes: Integers, deal: Deal) -> DirectionTeachers:
    """Fit one direction for each chunk, of its own rows; a row whose code is neither 0 nor 1 is left out."""
    rows = np.asarray(X, dtype=np.float64)[deal.rows]
    centre = _centre(estimator, rows.shape[1])
    used = ((codes[deal.rows] == 0) | (codes[deal.rows] == 1)) & (np.abs(rows) <= LARGEST).all(axis=1)
    side = np.where(used, 2.0 * codes[deal.rows] - 1.0, 0.0)
    turned = np.where(used[:, np.newaxis], rows - centre, 0.0) * side[:, np.newaxis]
    owner = np.repeat(np.arange(deal.teachers), deal.sizes)
    columns = [np.bincount(owner, weights=column, minlength=deal.teachers) for column in turned.T]
    return DirectionTeachers(np.stack(columns, axis=1), centre=centre)  # proof: step 2
