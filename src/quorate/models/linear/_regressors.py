"""Private least squares and Poisson regression, with the claim of `PrivateLogisticRegression`. See PROOF.md."""

from abc import abstractmethod
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from quorate.core.arrays import Floats
from quorate.core.checks import check_bounds, check_positive
from quorate.core.errors import InvalidInput
from quorate.models.linear._engine import Fitted
from quorate.models.linear._families import Gaussian, Poisson
from quorate.models.linear._tables import Target
from quorate.models.linear.model import LinearModel, refuse_weights
from quorate.models.predictors.labels import target_numbers
from quorate.tables.features import AdditiveColumns, HashedColumns
from quorate.tables.schema import Schema


class _Regressor(RegressorMixin, LinearModel):
    """The base of both regressions: a target that is clipped to declared bounds and scaled."""

    @abstractmethod
    def _scaling(self) -> tuple[float, float]:
        """Return the lowest and the highest target."""

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None, sample_weight: Any = None) -> Self:
        """Fit on private rows, with the geometry of `public` rows. The whole budget is spent."""
        refuse_weights(sample_weight)
        targets = _scale_targets(*self._scaling(), target_numbers(y))
        return self._keep(self._fit_rows(X, targets[:, None], groups=groups, public=public, **self._problem()))

    def _target(self, schema: Schema, label: str | None) -> Target:
        name = schema.label.column if label is None and schema.label is not None else label
        if name is None:
            raise InvalidInput("label must name the column to predict, got None")
        return Target(name, partial(_read_targets, name, *self._scaling()), _as_column)

    def _keep(self, fitted: Fitted, conditions: tuple[str, ...] = ()) -> Self:
        low, high = self._units_of_weights()
        width = high - low
        weights, deviations = fitted.weights[0] * width, fitted.deviations[0] * width
        weights[0] += low
        self._draw(fitted, width)
        self.coef_, self.intercept_ = weights[1:], float(weights[0])
        self.coef_deviations_ = deviations[1:]
        self.claim_ = self._claim(*conditions)
        return self

    def _units_of_weights(self) -> tuple[float, float]:
        """Return where the intercept begins, and where a weight of 1 ends: those of the targets."""
        return self._scaling()


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

    def _scaling(self) -> tuple[float, float]:
        low, high = check_bounds(self.bounds)
        return low, high

    def _problem(self) -> dict[str, Any]:
        return {"family": Gaussian(), "outputs": 1, "start": 0.5, "variance": 0.25}

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

    def _scaling(self) -> tuple[float, float]:
        return 0.0, check_positive("largest", self.largest)

    def _units_of_weights(self) -> tuple[float, float]:
        return 0.0, 1.0  # of a logarithm

    def _problem(self) -> dict[str, Any]:
        return {"family": Poisson(check_positive("largest", self.largest)), "outputs": 1, "start": 0.5}

    def predict(self, X: Any) -> Floats:
        """Return the expected counts. Nothing is spent."""
        return np.asarray(Poisson(self.largest).mean(self._predictor(X)) * self.largest)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True  # a count below 0 is read as 0
        return tags


def _scale_targets(low: float, high: float, targets: Floats) -> Floats:
    """Return targets from 0 to 1, clipped to their bounds; what is no number counts as 0."""
    return np.asarray((np.clip(np.nan_to_num(targets), low, high) - low) / (high - low))


def _read_targets(name: str, low: float, high: float, table: Any) -> Floats:
    return _scale_targets(low, high, target_numbers(table[name]))


def _as_column(targets: Floats) -> Floats:
    return targets[:, None]
