"""Prediction sets: the labels that a published classifier finds likely enough."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from quorate.models.conformal.classifier import ROUNDING, ConformalModel
from quorate.models.evaluation.rows import classes_of, first_rows, model_rows, private_rows, probabilities_by_row
from quorate.models.predictors.labels import class_codes
from quorate.tables.schema import Schema

_SUREST, _LEAST = 1 - 1e-4, 1e-5  # probabilities between which the grid has its cells, evenly on the log-odds


@dataclass(eq=False, repr=False)
class ConformalClassifier(ConformalModel, ClassifierMixin, BaseEstimator):
    """Prediction sets of a published classifier, with coverage of at least 1 - alpha.

    A set contains every label whose probability under the model is at least `threshold_`, one number chosen privately
    on held-out rows. It may be published. Sets are small where the model is sure. They may be empty if 1 - alpha is
    below the model's accuracy: then no label is as likely as the true one usually is.

    Parameters
    ----------
    model
        Any fitted classifier that was published or is public. Without `predict_proba`, a set is one label or all.
    epsilon
        The privacy loss. There is no delta.
    alpha
        The share of new units whose set may miss their label.
    cells
        The size of the public grid of thresholds; by default chosen from the number of units and epsilon.
    per_person
        With `groups`: whether coverage is for all rows of a new person together ("all": a person counts by the row on
        which the model does worst), or for the person's first row ("first").

    `threshold_` is the released number, `claim_` the privacy guarantee, `covers_` the coverage guarantee, `coverage_`
    the proved probability. Nothing else of the private rows is kept.

    >>> from sklearn.linear_model import LogisticRegression
    >>> draw = np.random.default_rng(0)
    >>> X = draw.normal(size=(6000, 1))
    >>> y = np.where(X[:, 0] + draw.normal(size=6000) > 0, "yes", "no")
    >>> published = LogisticRegression().fit(X[:1000], y[:1000])  # stands for a model that was published
    >>> sets = ConformalClassifier(published, epsilon=1.0, alpha=0.1).fit(X[1000:], y[1000:])
    >>> sets.predict_set([[-4.0], [0.0], [4.0]])  # a column for each of classes_
    array([[ True, False],
           [ True,  True],
           [False,  True]])
    """

    model: Any = None
    epsilon: float = 1.0
    alpha: float = 0.1
    cells: int | Literal["auto"] = "auto"
    per_person: Literal["all", "first"] = "all"

    kind = "conformal"
    outputs = "label sets"

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return coverage and model, and the released threshold."""
        return [*super().page_facts(schema), f"Threshold: {self.threshold_:.6g}."]

    def fit(self, X: Any, y: Any, groups: Any = None, schema: Schema | None = None) -> "ConformalClassifier":
        """Release the threshold from held-out private rows, none of which the model has seen.

        `schema` declares the columns of a data frame for a model that does not show in which it takes texts.
        """
        self._check_settings(groups)
        self._forget()
        self.classes_ = classes_of(self.model)
        rows = private_rows(self, self.model, X, schema)
        units, first, count = first_rows(len(rows), groups, y)
        grid = self._levels(count)
        self._open(grid, count, groups)
        codes = class_codes(self.classes_, y)
        given = probabilities_by_row(self.model, rows)[np.arange(len(codes)), codes]
        given[codes < 0] = 0.0  # a label that is missing, or that the model does not know, is the least likely
        cells = np.searchsorted(-grid, -given)  # the first level that is not above: proof: step 1
        self._release(cells, units, first)
        return self

    def _levels(self, units: int) -> NDArray[np.float64]:
        """Return the public grid: probabilities from high to low, and 0, which every label reaches."""
        if not hasattr(self.model, "predict_proba"):
            return np.array([1.0, 0.0])
        high, low = (math.log(share / (1 - share)) for share in (_SUREST, _LEAST))
        return np.append(1 / (1 + np.exp(-np.linspace(high, low, self._grid_cells(units) - 1))), 0.0)

    @property
    def threshold_(self) -> float:
        """The least probability under the model of a label in a set."""
        check_is_fitted(self, "cell_")
        return float(self.grid_[self.cell_])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the model's own labels. Nothing is spent."""
        return np.asarray(self.model.predict(model_rows(self.model, self.checked(X))))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the model's probability of each of `classes_`; 1 for its label if it predicts labels only."""
        rows = model_rows(self.model, self.checked(X))
        if hasattr(self.model, "predict_proba"):
            return np.asarray(self.model.predict_proba(rows))
        return np.eye(self.classes_.size)[class_codes(self.classes_, np.asarray(self.model.predict(rows)))]

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Return the set of each row: whether each of `classes_` is in it. Nothing is spent."""
        given = np.nan_to_num(self.predict_proba(X))  # no number is the least, as in `fit`: proof: step 4
        return np.asarray(given >= self.threshold_ - ROUNDING)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # filled, as every container becomes a matrix
        tags.non_deterministic = True
        return tags
