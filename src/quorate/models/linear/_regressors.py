"""Private least squares and Poisson regression, with the claim of `PrivateLogisticRegression`. See PROOF.md."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from quorate.core.arrays import Floats
from quorate.core.checks import check_bounds, check_positive
from quorate.models.linear._families import Gaussian, Poisson
from quorate.models.linear.model import LinearModel, refuse_weights
from quorate.models.predictors.labels import target_numbers
from quorate.tables.features import AdditiveColumns, HashedColumns
from quorate.tables.schema import Schema


class _Regressor(RegressorMixin, LinearModel):
    """The base of both regressions: a target that is clipped to declared bounds and scaled."""

    def _keep(self, weights: Floats, deviations: Floats) -> None:
        self.coef_, self.intercept_ = weights[1:], float(weights[0])
        self.coef_deviations_ = deviations[1:]
        self.claim_ = self._claim()


class PrivateLinearRegression(_Regressor):
    """Publishable least squares from a few noisy sums of private rows and from public rows.

    `bounds` are the lowest and the highest target: values beyond them are clipped. Declare them; they must not be read
    from the private records. The other parameters are those of `PrivateLogisticRegression`.

    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(50_000, 2)), rng.normal(size=(1000, 2))
    >>> y = 3 * X[:, 0] + X[:, 1] ** 2 + rng.normal(size=50_000)
    >>> model = PrivateLinearRegression(epsilon=1.0, bounds=(-10, 15)).fit(X, y, public=public)
    >>> model.score(X, y) > 0.85  # 0.92 is all there is to know
    True
    """

    kind = "linear model"

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[float, float] = (0.0, 1.0),
        columns: AdditiveColumns | HashedColumns | Schema | str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.columns = columns

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, sample_weight: Any = None
    ) -> "PrivateLinearRegression":
        """Fit on private rows, with the geometry of `public` rows. The whole budget is spent."""
        refuse_weights(sample_weight)
        low, high = check_bounds(self.bounds)
        targets = (np.clip(np.nan_to_num(target_numbers(y)), low, high) - low) / (high - low)
        problem = {"family": Gaussian(), "outputs": 1, "start": 0.5, "variance": 0.25}
        fitted = self._fit_rows(X, targets[:, None], groups=groups, public=public, **problem)
        weights = fitted.weights[0] * (high - low)
        weights[0] += low
        self._draw(fitted, high - low)
        self._keep(weights, fitted.deviations[0] * (high - low))
        return self

    def predict(self, X: Any) -> Floats:
        """Return the expected targets, within the bounds. Nothing is spent."""
        return np.clip(self._predictor(X), *self.bounds)


class PrivatePoissonRegression(_Regressor):
    """Publishable Poisson regression from a few noisy sums of private rows and from public rows.

    `largest` is the largest count: larger ones are clipped. Declare it; it must not be read from the private records.
    The other parameters are those of `PrivateLogisticRegression`.

    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.uniform(size=(20_000, 2)), rng.uniform(size=(1000, 2))
    >>> y = rng.poisson(np.exp(2 * X[:, 0]))
    >>> model = PrivatePoissonRegression(epsilon=1.0, largest=20).fit(X, y, public=public)
    >>> busy, quiet = model.predict([[0.9, 0.5], [0.1, 0.5]])
    >>> print(5 < busy < 7, 0.8 < quiet < 1.8)
    True True
    """

    kind = "linear model"

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        largest: float = 10.0,
        columns: AdditiveColumns | HashedColumns | Schema | str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.largest = largest
        self.columns = columns

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, sample_weight: Any = None
    ) -> "PrivatePoissonRegression":
        """Fit on private rows, with the geometry of `public` rows. The whole budget is spent."""
        refuse_weights(sample_weight)
        largest = check_positive("largest", self.largest)
        targets = np.clip(np.nan_to_num(target_numbers(y)), 0.0, largest) / largest
        problem = {"family": Poisson(largest), "outputs": 1, "start": 0.5}
        fitted = self._fit_rows(X, targets[:, None], groups=groups, public=public, **problem)
        self._draw(fitted)
        self._keep(fitted.weights[0], fitted.deviations[0])
        return self

    def predict(self, X: Any) -> Floats:
        """Return the expected counts. Nothing is spent."""
        return np.asarray(Poisson(self.largest).mean(self._predictor(X)) * self.largest)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True  # a count below 0 is read as 0
        return tags
