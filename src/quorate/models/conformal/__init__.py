"""Conformal prediction sets and intervals from one private quantile of the scores of held-out units.

A score measures how badly the model did on a row. It is rounded up to a public grid. The quantile of the scores of
held-out units is released once, by the exponential mechanism; everything after that is post-processing.

Claim: the fitted object is epsilon-differentially private under replacement of one unit's rows (a row, or a person if
`groups` are given). The model is taken as public: its cost is not counted here.

Coverage: the set, or the interval, of a new unit contains its label with probability at least 1 - miscoverage, over the
held-out units, the new unit and the noise, if the new unit is exchangeable with the held-out ones and the model has
seen none of them. Nothing is assumed about the model or the distribution of the data. The proof is in PROOF.md.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from quorate.core.arrays import Integers
from quorate.core.ballots import Ballots, release_counts
from quorate.core.checks import check_choice, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import PrivateQuantile
from quorate.core.privacy.claims import Claim, Node, releases_node, replaced
from quorate.models.evaluation.rows import (
    check_published,
    classes_of,
    first_rows,
    model_rows,
    private_rows,
    probabilities_by_row,
    values_by_row,
)
from quorate.models.predictors.labels import class_codes, target_numbers
from quorate.models.predictors.records import check_records, forget_fit
from quorate.models.predictors.sklearn_compat import KeepsPublished
from quorate.models.saving.contract import SavedModel, Spending, State
from quorate.tables.schema import Schema

__all__ = ["ConformalClassifier", "ConformalRegressor"]

ROUNDING = 1e-9  # widens sets, so that floating-point noise in the model's probabilities decides nothing
_FEWEST_CELLS, _MOST_CELLS = 100, 10_000


@dataclass(eq=False, repr=False)
class _ConformalModel(SavedModel, KeepsPublished, BaseEstimator, ABC):
    """A published model and a public grid of scores, of which one cell is released."""

    model: Any = None
    epsilon: float = 1.0
    miscoverage: float = 0.1
    per_person: Literal["all", "first"] = "all"

    spending = Spending(published=True, chargeable=True)
    summary = "Sets or intervals around the answers of a published model, as wide as private records ask for."
    saved_attributes = ("claim_", "covers_", "spent_epsilon_", "cell_", "quantile_")
    saved_types = (PrivateQuantile,)
    _published = "model"

    def fit(self, X: Any, y: Any, groups: Any = None, schema: Schema | None = None) -> Self:
        """Release one cell of the grid from held-out private rows, none of which the model has seen.

        `groups` names the person of each row, if the person is protected. `schema` declares the columns of a data
        frame, for a model that does not show which of them hold text.
        """
        forget_fit(self)
        self._check_settings(groups)
        rows = private_rows(self, self.model, X, schema)
        units, first, count = first_rows(len(rows), groups, y)
        grid = self._make_grid(count)
        self.quantile_ = PrivateQuantile.calibrate(  # refuses too few units before anything is scored
            epsilon=self.epsilon, cells=len(grid), units=count, share=1 - self.miscoverage
        )
        self.grid_, self.coverage_ = grid, self.quantile_.coverage()
        self.unit_ = "row" if groups is None else "person"
        self.covers_ = self._describe_coverage()  # computed now, since settings may change after the fit
        cells = self._score_rows(rows, y)
        if self.per_person == "first":
            scores = cells[first]
        else:
            scores = np.zeros(count, dtype=np.int64)
            np.maximum.at(scores, units, cells)  # proof: step 2
        counts = Ballots(np.bincount(scores, minlength=len(grid)))
        self.cell_ = release_counts(counts, self.quantile_.release)  # proof: step 3
        self.spent_epsilon_ = float(self.epsilon)
        conditions = ("the model is taken as public",)
        self.claim_ = str(Claim(self.epsilon, 0.0, unit=replaced(self.unit_), conditions=conditions))
        return self

    def _check_settings(self, groups: Any) -> None:
        check_published(self.model)
        check_positive("epsilon", self.epsilon)
        if check_rate("miscoverage", self.miscoverage) == 1:
            raise InvalidInput("miscoverage must be below 1: sets that hold the label with probability 0 are empty")
        check_choice("per_person", self.per_person, ("all", "first"))
        if groups is None and self.per_person != "all":
            raise InvalidInput(f"per_person={self.per_person!r} requires groups=, the person of each row")

    @abstractmethod
    def _make_grid(self, units: int) -> NDArray[np.float64]:
        """Return the public grid of scores, the best first."""

    @abstractmethod
    def _score_rows(self, rows: Any, y: Any) -> Integers:
        """Return the cell of the grid in which the score of each row lies."""

    def _grid_cells(self, units: int) -> int:
        """Return the number of cells of the grid, from public numbers: as many as the noise can resolve."""
        return int(min(max(units * self.epsilon / 2, _FEWEST_CELLS), _MOST_CELLS))

    def _describe_coverage(self) -> str:
        subject = "row holds its label"
        if self.unit_ == "person":
            all_rows = self.per_person == "all"
            subject = "person holds the label of every row" if all_rows else "person's first row holds it"
        chance = f"with probability at least {1 - self.miscoverage:g}, over held-out units and noise"
        return f"{chance}, what is said of a new {subject}"

    def _released_score(self) -> float:
        check_is_fitted(self, "cell_")
        return float(self.grid_[self.cell_])

    def claim_part(self) -> Node:
        """Return the one choice of a cell."""
        return releases_node(self.spent_epsilon_, 0.0, [self.quantile_.choice.describe()])

    def to_state(self) -> State:
        """Return settings, the grid and its released cell, and the model behind the sets or intervals."""
        check_is_fitted(self, "cell_")
        state = State(self.fitted_values())
        state.put_arrays("grid", grid=self.grid_)
        state.put_model("model", self.model)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the sets or intervals of a state, as they were after `fit`."""
        sets = cls.from_fitted_values(state.values, model=state.model("model"))
        sets.grid_ = state.arrays("grid")["grid"]
        if not (sets.grid_.shape == (sets.quantile_.cells,) and 0 <= sets.cell_ < sets.quantile_.cells):
            raise InvalidInput("the released cell is outside the grid; the model is not loaded")
        sets.coverage_ = sets.quantile_.coverage()
        return sets

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return the coverage guarantee, and the claim of the model behind the sets or intervals."""
        claim = getattr(self.model, "claim_", None)
        origin = f"Its own claim: {claim}. For people whose rows served for both, the epsilons add up."
        origin = "What it claims is said by who published it." if claim is None else origin
        return [f"Coverage: {self.covers_}.", f"Model: {type(self.model).__name__}. {origin}"]

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that the model takes, or raise an error."""
        check_is_fitted(self, "cell_")
        return check_records(self, X, estimator=self.model, reset=False, frames=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # filled, as every container becomes a matrix
        tags.non_deterministic = True
        return tags


_GRID_ENDS = (1 - 1e-4, 1e-5)  # probabilities between which the cells are spaced evenly on the log-odds


@dataclass(eq=False, repr=False)
class ConformalClassifier(ClassifierMixin, _ConformalModel):
    """Prediction sets of a published classifier, with coverage of at least 1 - miscoverage.

    A set contains every label whose probability under the model is at least `threshold_`, one number chosen privately
    on held-out rows. It may be published. Sets are small where the model is sure. They may be empty if the coverage is
    below the model's accuracy: then no label is as likely as the true one usually is.

    Parameters
    ----------
    model
        Any fitted classifier that was published or is public. Without `predict_proba`, a set is one label or all.
    epsilon
        The privacy loss. There is no delta.
    miscoverage
        The share of new units whose set may miss their label.
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
    >>> sets = ConformalClassifier(published, epsilon=1.0, miscoverage=0.1).fit(X[1000:], y[1000:])
    >>> sets.predict_set([[-4.0], [0.0], [4.0]])  # a column for each of classes_
    array([[ True, False],
           [ True,  True],
           [False,  True]])
    """

    kind = "conformal"
    outputs = "label sets"

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return coverage and model, and the released threshold."""
        return [*super().page_facts(schema), f"Threshold: {self.threshold_:.6g}."]

    def _check_settings(self, groups: Any) -> None:
        super()._check_settings(groups)
        self.classes_ = classes_of(self.model)

    def _make_grid(self, units: int) -> NDArray[np.float64]:
        """Return probabilities from high to low, and 0, which every label reaches."""
        if not hasattr(self.model, "predict_proba"):
            return np.array([1.0, 0.0])
        sure, unsure = logit(_GRID_ENDS)
        return np.append(expit(np.linspace(sure, unsure, self._grid_cells(units) - 1)), 0.0)

    def _score_rows(self, rows: Any, y: Any) -> Integers:
        codes = class_codes(self.classes_, y)
        probabilities = probabilities_by_row(self.model, rows)[np.arange(len(codes)), codes]
        probabilities[codes < 0] = 0.0  # a label that is missing or outside the model's classes is the least likely
        return np.searchsorted(-self.grid_, -probabilities)  # the first level that is not above: proof: step 1

    @property
    def threshold_(self) -> float:
        """The least probability under the model of a label in a set."""
        return self._released_score()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the model's own labels. Nothing is spent."""
        return np.asarray(self.model.predict(model_rows(self.model, self.check_queries(X))))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the model's probability of each of `classes_`; 1 for its label if it predicts labels only."""
        rows = model_rows(self.model, self.check_queries(X))
        if hasattr(self.model, "predict_proba"):
            return np.asarray(self.model.predict_proba(rows))
        return np.eye(self.classes_.size)[class_codes(self.classes_, np.asarray(self.model.predict(rows)))]

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Return the set of each row: whether each of `classes_` is in it. Nothing is spent."""
        probabilities = np.nan_to_num(self.predict_proba(X))  # NaN counts as 0, as in `fit`: proof: step 4
        return np.asarray(probabilities >= self.threshold_ - ROUNDING)


_SMALLEST_WIDTH = 1e-4  # of the largest error; smaller errors share one cell


@dataclass(eq=False, repr=False)
class ConformalRegressor(RegressorMixin, _ConformalModel):
    """Prediction intervals around a published regressor, with coverage of at least 1 - miscoverage.

    An interval is the model's value plus and minus `width_`, one number chosen privately on held-out rows. It may be
    published.

    Parameters
    ----------
    model
        Any fitted regressor that was published or is public.
    epsilon
        The privacy loss. There is no delta.
    miscoverage
        The share of new units whose interval may miss their value.
    largest_error
        A public number: errors above it are not distinguished, and if the quantile lies among them, intervals are
        unbounded. It may be a hundred times too large at no cost: widths are a geometric grid from a ten thousandth of
        it.
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
    >>> bands = ConformalRegressor(published, epsilon=1.0, miscoverage=0.1, largest_error=100.0).fit(X[1000:], y[1000:])
    >>> low, high = bands.predict_interval([[1.0]])[0]
    >>> bool(1.0 < low < 1.6 and 4.4 < high < 5.0)  # 3 plus and minus 1.645 would be exact
    True
    """

    largest_error: float | None = None

    kind = "conformal"
    outputs = "intervals"

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return coverage and model, and the released width."""
        return [*super().page_facts(schema), f"Half width: {self.width_:.6g}."]

    def _check_settings(self, groups: Any) -> None:
        super()._check_settings(groups)
        if self.largest_error is None:
            raise InvalidInput("largest_error must be a public upper bound for most errors, got None")
        check_positive("largest_error", self.largest_error)

    def _make_grid(self, units: int) -> NDArray[np.float64]:
        """Return widths from small to large, and infinity, which no error exceeds."""
        assert self.largest_error is not None
        smallest = _SMALLEST_WIDTH * self.largest_error
        return np.append(np.geomspace(smallest, self.largest_error, self._grid_cells(units) - 1), np.inf)

    def _score_rows(self, rows: Any, y: Any) -> Integers:
        targets, predicted = target_numbers(y), values_by_row(self.model, rows)
        with np.errstate(all="ignore"):  # a warning would reveal a value: proof: step 1
            errors = np.abs(targets - predicted)
        return np.searchsorted(self.grid_, np.nan_to_num(errors, nan=np.inf))  # rounded up: proof: step 1

    @property
    def width_(self) -> float:
        """How far an interval extends from the model's value on either side."""
        return self._released_score()

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the model's own values. Nothing is spent."""
        values = self.model.predict(model_rows(self.model, self.check_queries(X)))
        return np.asarray(values, dtype=np.float64).reshape(-1)

    def predict_interval(self, X: Any) -> NDArray[np.float64]:
        """Return the lower and the upper end of each row's interval. Nothing is spent."""
        values = self.predict(X)
        beyond = self.width_ * (1 + ROUNDING) + ROUNDING * np.abs(values)
        with np.errstate(invalid="ignore"):
            ends = np.column_stack([values - beyond, values + beyond])
        return np.where(np.isnan(ends), [-np.inf, np.inf], ends)  # where the model returns NaN: proof: step 4
