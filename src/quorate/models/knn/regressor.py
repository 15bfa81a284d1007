"""Private means of the records near a query: the claim and the accounting of `NeighbourClassifier`, for numbers."""

from typing import Any, Literal

import numpy as np
from sklearn.base import RegressorMixin

from quorate.compute.learners import DeviceName
from quorate.core.arrays import Floats
from quorate.core.checks import check_bounds
from quorate.models.knn.ballots import Levels
from quorate.models.knn.kernel import Shape
from quorate.models.knn.model import NeighbourModel
from quorate.models.knn.points import Metric
from quorate.models.predictors.labels import target_numbers


class NeighbourRegressor(RegressorMixin, NeighbourModel):
    """A regressor by the noisy mean target of the records near a query, weighted by their distance.

    The mean comes from two noisy sums. `bounds` are the lowest and the highest target: values beyond them are clipped.
    Declare them; they must not be read from the private records. A target far from the centre moves the answer more,
    and its unit pays more. The centre is the mean of public targets, or the middle of the bounds; if few records are
    near, the answer is close to it. The other parameters are those of `NeighbourClassifier`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2))
    >>> y = 100 * np.sin(3 * X[:, 0]) + rng.normal(size=20_000)
    >>> model = NeighbourRegressor(epsilon=1.0, records=19_000, queries=100, metric="euclidean", bounds=(-110, 110))
    >>> model.fit(X[1000:], y[1000:], public=X[:1000], public_targets=y[:1000]).score(X[:100], y[:100]) > 0.9
    True
    """

    kind = "neighbours"
    outputs = "noisy values"
    saved_attributes = ("bounds_", "centre_", "declared_")

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[float, float] = (0.0, 1.0),
        queries: int = 1000,
        records: int | None = None,
        radius: float | None = None,
        share: float | Literal["auto"] = "auto",
        votes: float | Literal["auto"] = "auto",
        kernel: Shape = "linear",
        metric: Metric = "cosine",
        device: DeviceName = "auto",
    ) -> None:
        self.epsilon, self.delta, self.bounds, self.queries, self.records = epsilon, delta, bounds, queries, records
        self.radius, self.share, self.votes, self.kernel, self.metric = radius, share, votes, kernel, metric
        self.device = device

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_targets: Any = None
    ) -> "NeighbourRegressor":
        """Plan on public rows, insert the records, and open the budget, all of which is charged at once.

        The arguments are those of `NeighbourClassifier`; targets of public rows determine the centre and guide the
        choice of the share.
        """
        self.check_settings()
        self._forget("session_", "plan_")
        self.bounds_ = low, high = check_bounds(self.bounds)
        shown = None if public_targets is None else np.clip(np.nan_to_num(target_numbers(public_targets)), low, high)
        self.centre_ = (low + high) / 2 if shown is None else float(shown.mean())
        self.declared_ = True
        return self._fit_units(X, y, self.ballot(), groups=groups, public=public, known=shown)

    def partial_fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_targets: Any = None
    ) -> "NeighbourRegressor":
        """Insert records, fitting first if nothing was fitted before."""
        if not hasattr(self, "session_"):
            return self.fit(X, y, groups=groups, public=public, public_targets=public_targets)
        self.insert(X, y, ids=groups)
        return self

    def ballot(self) -> Levels:
        """Return the kind of vote: for the level of a target."""
        low, high = self.bounds_  # of the fit: what is set later does not change what levels stand for
        return Levels(low=low, high=high, centre=self.centre_)

    def predict(self, X: Any, caller: str = "") -> Floats:
        """Return the noisy mean of targets near each query, within the bounds.

        A query that this `caller` asked before gets the same answer again.
        """
        return self.read(self._asked(X, caller)[1].labels)

    def read(self, answers: Any) -> Floats:
        """Return the values that answers of the session stand for."""
        ballot = self.session_.answerer.ballot
        assert isinstance(ballot, Levels)
        return ballot.values(answers)
