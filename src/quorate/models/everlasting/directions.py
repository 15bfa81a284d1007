"""Teachers that point one way: the sum of their rows, those of class 0 turned round. One row is enough for a teacher.

For halfspaces through a known centre, and points that lie around it evenly. There a teacher of one row votes for the
right side with a probability that grows linearly with the angle to the boundary, so that as many teachers as there are
rows tell more than the same rows in fewer and better teachers (PROOF.md, step 16).
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.compute.learners import Deal
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import LARGEST
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput


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
        above = (X - _centre(self, X.shape[1])) @ self.normal_ > 0
        return self.classes_[np.where(above, self.classes_.size - 1, 0)]


def _centre(estimator: MeanDirection, features: int) -> Floats:
    centre = np.zeros(features) if estimator.centre is None else np.asarray(estimator.centre, dtype=np.float64)
    if centre.shape != (features,) or not (np.abs(centre) <= LARGEST).all():
        raise InvalidInput(f"centre must be {features} finite numbers, one for each feature")
    return centre


def fit_directions(estimator: MeanDirection, X: Any, codes: Integers, deal: Deal) -> LinearTeachers:
    """Fit one direction for each chunk, of its own rows; a row whose code is neither 0 nor 1 is left out.

    A teacher without a direction, as one without rows, votes for class 1 if its number is odd, and else for class 0.
    """
    rows = np.asarray(X, dtype=np.float64)[deal.rows]
    centre = _centre(estimator, rows.shape[1])
    used = ((codes[deal.rows] == 0) | (codes[deal.rows] == 1)) & (np.abs(rows) <= LARGEST).all(axis=1)
    side = np.where(used, 2.0 * codes[deal.rows] - 1.0, 0.0)
    turned = np.where(used[:, np.newaxis], rows - centre, 0.0) * side[:, np.newaxis]
    owner = np.repeat(np.arange(deal.teachers), deal.sizes)
    columns = [np.bincount(owner, weights=column, minlength=deal.teachers) for column in turned.T]
    normals = np.stack(columns, axis=1)  # proof: step 2
    parity = np.where(np.arange(deal.teachers) % 2 == 1, 1.0, -1.0)
    intercepts = np.where(normals.any(axis=1), -(normals * centre).sum(axis=1), parity)  # each of its own normal
    return LinearTeachers(np.column_stack([normals, intercepts])[:, np.newaxis], classes=2)
