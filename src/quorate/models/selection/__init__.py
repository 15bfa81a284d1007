"""A private search: candidates are fitted and scored in private trials, and the best one is released.

    units -> a part that fits and a part that scores, by a secret permutation
    a secret number of trials: a candidate -> fitted on the first part -> scored on the second
    the best of them -> `best_estimator_`, `best_params_`, `best_score_`

Claim: the fitted object is (epsilon, delta)-differentially private under replacement of one unit's rows (a row, or a
person if `groups` are given), all trials included. Public rows are not protected. The proof is in PROOF.md. The
duration of `fit` reveals the number of trials, which must stay secret: only the owner of the records may see it.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.compute.ensemble import deal_units
from quorate.core.checks import check_rate
from quorate.core.errors import Infeasible, InvalidInput, NoQuorum
from quorate.core.estimator_calls import keep_randomness, silence
from quorate.core.mechanisms.selection import MOST_ENTRIES
from quorate.core.privacy.claims import LABELS_READ, Claim, replaced, unverified_node
from quorate.core.progress import hidden_progress, progress
from quorate.core.rows import take_rows
from quorate.models.predictors.labels import as_vector, declared_classes
from quorate.models.predictors.records import check_matrix, forget_fit
from quorate.models.saving.contract import SavedModel
from quorate.models.selection._trials import Method, Scoring, choose_selection, plan_of, plan_search, scoring_of
from quorate.models.students.points import labels_of
from quorate.tables.containers import as_table, is_arrow, is_frame, open_matrix, take_arrow_rows
from quorate.tables.features.words import as_counts
from quorate.tables.persons import unit_numbers

__all__ = ["PrivateSearchCV", "plan_search"]


_OWN = ("epsilon", "delta", "classes")  # set for each trial by the search

Method_ = TypeVar("Method_")


def _chosen_has(name: str) -> Callable[[Method_], Method_]:
    has: Callable[[Method_], Method_] = available_if(lambda self: hasattr(getattr(self, "best_estimator_", None), name))
    return has


class _Release(NamedTuple):
    """What a trial released."""

    candidate: int
    model: Any
    score: float


@dataclass(eq=False, repr=False)
class PrivateSearchCV(SavedModel, BaseEstimator):
    """Choose the best of several publishable models by private scores on held-out rows.

    (epsilon, delta) covers all trials and the choice. If public rows have labels, choose on those first: that costs
    nothing.

    Parameters
    ----------
    estimator
        A publishable model: a private linear model, a `StudentClassifier` or a `SemiPrivateClassifier`. In a list of
        such models, each is a candidate as it is.
    param_grid
        Settings to try, as for scikit-learn's `GridSearchCV`; none with a list of models. The candidates are public,
        and must not be read from the private records.
    epsilon, delta
        The guarantee of the fitted object.
    scoring
        "accuracy" (the default), "balanced_accuracy", "neg_brier_score" or "roc_auc", which is the noisiest;
        "neg_mean_squared_error" for regressions.
    held_out
        The share of units for scoring. They are not used for fitting.
    tried
        The probability that a given candidate is tried at least once, if trials are drawn at random.
    method
        "random stopping" draws a secret number of trials, each of a random candidate, and costs little more than one of
        them. "composition" tries each candidate once and pays for each. "auto" takes the one that leaves more budget
        for a trial, by public numbers: mostly composition for two candidates, and random stopping for more.
    largest_error
        For regressions: larger errors count as this one.

    `best_estimator_` is the chosen model, with `best_params_` (`best_index_` in a list) and `best_score_`: the private
    score by which it was chosen, which is optimistic as the best of several. `plan_` has the budget of each trial,
    `naive_epsilon_` the cost of one such trial of each candidate by composition, `method_` the method used. The number
    of trials is not kept: the guarantee needs it to be secret.

    >>> from quorate import PrivateLogisticRegression
    >>> from quorate.tables.features import AdditiveColumns
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(8000, 2)), rng.normal(size=(500, 2))
    >>> y = (abs(X[:, 0]) > 1).astype(int)  # no straight line tells these apart
    >>> model = PrivateLogisticRegression(columns=AdditiveColumns(), classes=[0, 1])
    >>> search = PrivateSearchCV(model, {"columns__cuts": [1, 8]}, epsilon=2.0).fit(X, y, public=public)
    >>> search.best_params_, search.method_
    ({'columns__cuts': 8}, 'composition')
    """

    estimator: Any
    param_grid: Any = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    scoring: str | None = None
    held_out: float = 0.2
    tried: float = 0.9
    method: Method = "auto"
    largest_error: float | None = None

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None) -> "PrivateSearchCV":
        """Try candidates on private rows, with the public rows that they need, and keep the best.

        This spends the whole budget.
        """
        forget_fit(self)
        candidates, settings = self._candidates()
        y = as_vector(y)
        chosen = choose_selection(
            self.method,
            candidates=len(candidates),
            epsilon=self.epsilon,
            delta=self.delta,
            gaussian=all(candidate.spending.gaussian for candidate in candidates),
            tried=self.tried,
        )
        self.plan_ = plan_of(chosen, epsilon=self.epsilon, delta=self.delta)
        scoring = scoring_of(self.scoring, candidates[0], self.largest_error)
        conditions = self._declare(candidates, y, scoring)
        _check_public(public)
        trials = _Trials(candidates, chosen.trial.epsilon, chosen.trial.delta, scoring, public)
        trials.deal(X, y, groups, held_out=check_rate("held_out", self.held_out))
        self.unit_ = "row" if groups is None else "person"
        with progress("searching"):
            best = chosen.best(trials.run)  # proof: step 4
        if best is None:
            raise NoQuorum("the best of all trials has found nothing, and all was paid for; raise epsilon")
        self._keep(best, settings, conditions)
        return self

    def _candidates(self) -> tuple[list[Any], list[dict[str, Any]]]:
        if isinstance(self.estimator, list | tuple):
            if self.param_grid is not None or not self.estimator:
                raise InvalidInput("a list of models is searched as it is: give one model or more, and no param_grid")
            settings: list[dict[str, Any]] = [{} for _ in self.estimator]
            candidates = [clone(model) for model in self.estimator]
        else:
            settings = list(ParameterGrid({} if self.param_grid is None else self.param_grid))
            _check_names(self.estimator, {name for values in settings for name in values})
            candidates = [clone(self.estimator).set_params(**clone(values, safe=False)) for values in settings]
        _check_candidates(candidates)
        return candidates, settings

    def _declare(self, candidates: list[Any], y: Any, scoring: Scoring) -> tuple[str, ...]:
        """Tell all candidates the same classes; return on what the claim depends."""
        if is_regressor(candidates[0]):
            return ()
        declared = [candidate.classes for candidate in candidates if candidate.classes is not None]
        classes, _ = declared_classes(declared[0] if declared else None, y)
        if scoring.name == "roc_auc" and len(classes) != 2:
            raise InvalidInput(f"scoring='roc_auc' is for two classes, and there are {len(classes)}")
        for candidate in candidates:
            candidate.set_params(classes=classes.tolist())
        return () if declared else (LABELS_READ,)

    def _keep(self, best: "_Release", settings: list[dict[str, Any]], conditions: tuple[str, ...]) -> None:
        """Keep what was released. The chosen model says what the whole search has cost, and not its own trial."""
        model = best.model
        choice = f"the best of private trials of {len(settings)} candidates, which are all paid for"
        open_ = [text for text in model.claim_.split("; ")[1:] if text != LABELS_READ]
        claim = Claim(self.epsilon, self.delta, unit=replaced(self.unit_), conditions=(choice, *open_, *conditions))
        self.claim_ = model.claim_ = str(claim)
        unknown = "what the choice among private trials costs is not recomputed here"
        model.claim_part_ = unverified_node(unknown, epsilon=float(self.epsilon), delta=float(self.delta))
        if hasattr(model, "spent_epsilon_"):
            model.spent_epsilon_ = float(self.epsilon)
        self.best_estimator_, self.best_score_ = model, best.score
        self.best_index_, self.best_params_ = best.candidate, settings[best.candidate]
        self.method_ = self.plan_.method

    def saved_model(self) -> SavedModel:
        """Return the chosen model, which is saved in place of the search."""
        chosen: Any = getattr(self, "best_estimator_", self)
        return cast("SavedModel", chosen)

    @property
    def naive_epsilon_(self) -> float:
        """The cost of one such trial of each candidate by composition."""
        check_is_fitted(self, "best_estimator_")
        return float(self.plan_.naive_epsilon)

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels of the chosen model."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.classes_)

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the chosen model; missing before `fit`, as scikit-learn requires."""
        return int(self.best_estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of its columns, if they have names."""
        return np.asarray(self.best_estimator_.feature_names_in_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of the chosen model. Nothing is spent."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict(X))

    @_chosen_has("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the chosen model. Nothing is spent."""
        return np.asarray(self.best_estimator_.predict_proba(X))

    @_chosen_has("decision_function")
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log odds of the chosen model. Nothing is spent."""
        return np.asarray(self.best_estimator_.decision_function(X))

    def score(self, X: Any, y: Any) -> float:
        """Return the model's own score on rows that are not private.

        Nothing is spent, and nothing is protected.
        """
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        first = self.estimator[0] if isinstance(self.estimator, list | tuple) else self.estimator
        tried = get_tags(first)
        for name in ("estimator_type", "target_tags", "input_tags", "classifier_tags", "regressor_tags"):
            setattr(tags, name, getattr(tried, name))
        tags.non_deterministic = True
        return tags


class _Trials:
    """The private rows in two parts, and what a trial does with them. It is a local variable of `fit`."""

    def __init__(self, candidates: list[Any], epsilon: float, delta: float, scoring: Scoring, public: Any) -> None:
        self._candidates, self._scoring = candidates, scoring
        self._epsilon, self._delta, self._public = epsilon, delta, public

    def deal(self, X: Any, y: Any, groups: Any, *, held_out: float) -> None:
        """Deal the units to the part that fits and the part that scores: proof: step 1.

        A frame keeps its types: candidates read its values by declarations or by public rows.
        """
        rows = as_table(X) if is_frame(X) and not (hasattr(X, "iloc") or hasattr(X, "get_column")) else X
        if not hasattr(rows, "shape"):
            rows = open_matrix(rows)
        if len(rows.shape) != 2 or rows.shape[1] < 1:
            raise InvalidInput(f"X must be a table of rows and columns, not an array of shape {rows.shape}")
        rows = as_counts(rows) if sparse.issparse(rows) else rows  # each row added up by itself
        check_consistent_length(rows, y)
        units, count = unit_numbers(rows.shape[0], groups)
        scoring = round(count * held_out)
        if not 0 < scoring < count:
            raise Infeasible(f"held_out={held_out:g} leaves one of both parts of {count} units empty")
        deal, scored = deal_units(units, count, teachers=1, held_out=scoring)
        fitted = np.sort(deal.rows)
        take = partial(take_arrow_rows if is_arrow(rows) else take_rows, rows)
        self._fitted = take(fitted), labels_of(y, fitted)
        self._scored = take(scored), labels_of(y, scored)
        self._people = {} if groups is None else {"groups": labels_of(groups, fitted)}

    def run(self, number: int) -> tuple[float, _Release | None]:
        """Fit a candidate on one part and score it on the other. What fails has the worst score: proof: step 3."""
        try:
            with silence(), keep_randomness(), hidden_progress():  # alike for every trial, uncounted: proof: step 3
                model = self._fit(_copied(self._candidates[number]))
                score = self._scoring.score(model, *self._scored, epsilon=self._epsilon, delta=self._delta)
        except (InvalidInput, Infeasible):  # decided from public values
            raise
        except Exception:
            return -math.inf, None
        return score, _Release(number, model, score)

    def _fit(self, model: Any) -> Any:
        model.set_params(epsilon=self._epsilon, delta=self._delta)
        public = {} if self._public is None else {"public": self._public}
        model.fit(*self._fitted, **self._people, **public)
        if model.spending.gaussian and model.entries_ > MOST_ENTRIES:  # proof: step 2
            raise InvalidInput(f"a candidate with more than {MOST_ENTRIES} released numbers is not searched")
        return model


def _check_names(estimator: Any, names: set[str]) -> None:
    """Refuse a grid that varies what the search sets, or settings of a part that the model does not have."""
    if names & set(_OWN):
        raise InvalidInput(f"param_grid cannot vary {', '.join(_OWN)}: the search sets them")
    for part, _, name in sorted(name.partition("__") for name in names if "__" in name):
        if getattr(estimator, part, estimator) is None:
            model = type(estimator).__name__
            raise InvalidInput(
                f"param_grid sets {part}__{name}, and {part} of the {model} is None: give it one, as in "
                f"{model}({part}={'AdditiveColumns()' if part == 'columns' else '...'})"
            )


def _check_candidates(candidates: list[Any]) -> None:
    """Refuse candidates that are not alike, or that one trial of several may not fit."""
    for candidate in candidates:
        _check_candidate(candidate)
    if len({is_regressor(candidate) for candidate in candidates}) > 1:
        raise InvalidInput("candidates are all classifiers, or all regressions: their scores are compared")


def _check_candidate(model: Any) -> None:
    """Refuse a model whose claim does not cover all that one of several fits leaves."""
    if not (isinstance(model, SavedModel) and model.spending.searchable):
        raise InvalidInput(
            f"a {type(model).__name__} is not searched: a candidate is a linear model or a student that may be "
            "published"
        )
    if getattr(model, "mode", None) == "label-private":
        raise InvalidInput("mode='label-private' protects labels alone; a search protects whole rows")
    if getattr(model, "holdout", 0):  # proof: step 3
        raise InvalidInput(
            "holdout stops a fit by what it has estimated, which would end the search: leave it at 0, and say the "
            "disagreement if it is known"
        )


def _check_public(public: Any) -> None:
    """Refuse public rows that no candidate could read: within a trial nothing would be said of them."""
    if public is not None and not is_frame(public) and not sparse.issparse(public):
        check_matrix(BaseEstimator(), public, missing=True, reset=True, role="public")


def _copied(model: Any) -> Any:
    """Return a copy that knows nothing of others: `clone` counts the fits of all copies, and so the trials.

    So it does in a setting that is a model itself, a student for example: a deep copy has a count of its own.
    """
    settings = model.get_params(deep=False)
    return type(model)(**{name: deepcopy(clone(value, safe=False)) for name, value in settings.items()})
