"""Prediction intervals: a published regressor's value, plus and minus a width that its errors determine."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from quorate.core.checks import check_positive
from quorate.core.errors import InvalidInput
from quorate.models.conformal.classifier import ROUNDING, ConformalModel
from quorate.models.evaluation.rows import first_rows, model_rows, private_rows, values_by_row
from quorate.models.predictors.labels import target_numbers
from quorate.tables.schema import Schema

_SMALLEST = 1e-4  # of the largest error: errors below are not told apart


@dataclass(eq=False, repr=False)
class ConformalRegressor(ConformalModel, RegressorMixin, BaseEstimator):
    """Prediction intervals around a published regressor, with coverage of at least 1 - alpha.

    An interval is the model's value plus and minus `width_`, one number chosen privately on held-out rows. It may be
    published.

    Parameters
    ----------
    model
        Any fitted regressor that was published or is public.
    epsilon
        The privacy loss. There is no delta.
    alpha
        The share of new units whose interval may miss their value.
    largest_error
        A public number: errors above it are not distinguished, and if the quantile lies among them, intervals are
        unbounded. It may be a hundred times too large at no cost: widths are a geometric grid from a ten thousandth of
        it.
    cells
        The size of the grid of widths; by default chosen from the number of units and epsilon.
    per_person
        With `groups`: whether coverage is for all rows of a new person together ("all"), or for the person's first row
        ("first").

    `width_` is the released number, `claim_` the privacy guarantee, `covers_` the coverage guarantee, `coverage_` the
    proved probability. Nothing else of the private rows is kept.

    >>> from sklearn.linear_model import LinearRegression
    >>> draw = np.random.default_rng(0)
    >>> X = draw.normal(size=(6000, 1))
    >>> y = 3 * X[:, 0] + draw.normal(size=6000)
    >>> published = LinearRegression().fit(X[:1000], y[:1000])  # stands for a model that was published
    >>> bands = ConformalRegressor(published, epsilon=1.0, alpha=0.1, largest_error=100.0).fit(X[1000:], y[1000:])
    >>> low, high = bands.predict_interval([[1.0]])[0]
    >>> bool(1.0 < low < 1.6 and 4.4 < high < 5.0)  # 3 plus and minus 1.645 would be exact
    True
    """

    model: Any = None
    epsilon: float = 1.0
    alpha: float = 0.1
    largest_error: float | None = None
    cells: int | Literal["auto"] = "auto"
    per_person: Literal["all", "first"] = "all"

    kind = "conformal"
    outputs = "intervals"

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return coverage and model, and the released width."""
        return [*super().page_facts(schema), f"Half width: {self.width_:.6g}."]

    def fit(self, X: Any, y: Any, groups: Any = None, schema: Schema | None = None) -> "ConformalRegressor":
        """Release the width from held-out private rows, none of which the model has seen.

        `schema` declares the columns of a data frame for a model that does not show in which it takes texts.
        """
        self._check_settings(groups)
        if self.largest_error is None:
            raise InvalidInput("largest_error must be a public number that errors hardly exceed: there is no default")
        largest = check_positive("largest_error", self.largest_error)
        self._forget()
        rows = private_rows(self, self.model, X, schema)
        units, first, count = first_rows(len(rows), groups, y)
        grid = np.append(np.geomspace(_SMALLEST * largest, largest, self._grid_cells(count) - 1), np.inf)
        self._open(grid, count, groups)
        targets, said = target_numbers(y), values_by_row(self.model, rows)
        with np.errstate(all="ignore"):  # a warning would tell of a value: proof: step 1
            errors = np.abs(targets - said)
        cells = np.searchsorted(grid, np.nan_to_num(errors, nan=np.inf))  # rounded up: proof: step 1
        self._release(cells, units, first)
        return self

    @property
    def width_(self) -> float:
        """How far an interval extends from the model's value on either side."""
        check_is_fitted(self, "cell_")
        return float(self.grid_[self.cell_])

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the model's own values. Nothing is spent."""
        values = self.model.predict(model_rows(self.model, self.checked(X)))
        return np.asarray(values, dtype=np.float64).reshape(-1)

    def predict_interval(self, X: Any) -> NDArray[np.float64]:
        """Return the lower and the upper end of each row's interval. Nothing is spent."""
        values = self.predict(X)
        beyond = self.width_ * (1 + ROUNDING) + ROUNDING * np.abs(values)
        with np.errstate(invalid="ignore"):
            ends = np.column_stack([values - beyond, values + beyond])
        return np.where(np.isnan(ends), [-np.inf, np.inf], ends)  # where the model says no number: proof: step 4

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # filled, as every container becomes a matrix
        tags.non_deterministic = True
        return tags
