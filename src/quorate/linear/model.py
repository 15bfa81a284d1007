"""What the linear models share: columns, units, the budget, the claim, and predictions that cost nothing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.ensemble import unit_numbers
from quorate.errors import InvalidInput
from quorate.features import AdditiveColumns
from quorate.linear.engine import Fitted, Problem, entries_of, fit
from quorate.linear.sums import PrivateSums
from quorate.mechanisms import NoisyVectors
from quorate.predictors.base import check_records
from quorate.privacy import Budget
from quorate.privacy.claims import Claim, replaced
from quorate.rows import take_rows

__all__ = ["LinearModel", "refuse_weights"]

Array = NDArray[np.float64]
_NO_WEIGHTS = (
    "sample_weight is refused: a weight that depends on private records would change how much one of them can move the "
    "released sums. Where a person has several rows, name the person in groups"
)


def refuse_weights(sample_weight: Any) -> None:
    """Refuse sample weights, with the reason."""
    if sample_weight is not None:
        raise InvalidInput(_NO_WEIGHTS)


class LinearModel(BaseEstimator):
    """A generalised linear model of columns that are made from public rows. Subclasses say which family it is."""

    epsilon: float
    delta: float
    columns: Any

    def _fit_rows(self, X: Any, targets: Array, *, groups: Any, public: Any, **problem: Any) -> Fitted:
        """Fit weights on private rows; `problem` says what is fitted, besides the columns."""
        for name in ("coef_", "intercept_", "coef_deviations_", "shift_", "claim_", "columns_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        columns = self._columns()
        if public is None and columns.declared is None:
            raise InvalidInput(
                "without public rows the columns must be declared: columns=AdditiveColumns(declared=...), with (low, "
                "high), cuts or categories for each, or fit(X, y, public=...)"
            )
        X = check_records(self, X, estimator=_MissingAllowed(), reset=True, frames=True)
        known = None if public is None else check_records(self, public, estimator=_MissingAllowed(), reset=False)
        check_consistent_length(X, targets)
        units, number = unit_numbers(len(X), groups)
        self.columns_ = columns.fit(known)
        if len(self.columns_.names_) != self.n_features_in_:
            raise InvalidInput(f"{len(self.columns_.names_)} columns are declared, and X has {self.n_features_in_}")
        self.unit_ = "row" if groups is None else "person"
        encode = self.columns_.transform
        private = PrivateSums(lambda rows: encode(take_rows(X, rows)), targets, units, number, one_each=groups is None)
        described = Problem(atoms=self.columns_.atoms(), together=self.columns_.families(), **problem)
        budget = Budget(epsilon=self.epsilon, delta=self.delta, slack=0.0)
        noisy = NoisyVectors(budget, entries=entries_of(described))  # proof: step 3
        fitted = fit(described, private, None if known is None else encode(known), noisy)  # proof: step 4
        self.shift_ = fitted.shift
        return fitted

    def _columns(self) -> AdditiveColumns:
        if self.columns is None:
            return AdditiveColumns()
        if not isinstance(self.columns, AdditiveColumns):
            raise InvalidInput(f"columns must be an AdditiveColumns, not a {type(self.columns).__name__}")
        columns: AdditiveColumns = clone(self.columns)
        return columns

    def _claim(self, *conditions: str) -> str:
        open_ = () if self.shift_ is None else ("the public rows are not protected",)
        return str(Claim(self.epsilon, self.delta, unit=replaced(self.unit_), conditions=(*open_, *conditions)))

    def checked(self, X: Any) -> Any:
        """Return queries as the model takes them, or say what is wrong with them."""
        check_is_fitted(self, "coef_")
        return check_records(self, X, estimator=_MissingAllowed(), reset=False)

    def _predictor(self, X: Any) -> Array:
        """Return the linear predictor of each row and output."""
        rows = self.checked(X)
        return np.asarray(self.columns_.transform(rows) @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True  # filled, as every container becomes a matrix
        tags.non_deterministic = True
        return tags


class _MissingAllowed(BaseEstimator):
    """Says that missing values may come: the columns have a place for them."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
