"""Subsample and aggregate: any learner on disjoint chunks, any mechanism on their ballots.

Claim: each unit (a row, or a person if `groups` are given) is dealt to one chunk by position. All outputs of `predict`
and `stream` together are (epsilon, delta)-differentially private under replacement of one unit's rows by others. The
number of units, the columns (names, types and, in a data frame, categories) and the classes are public. The proof is
in PROOF.md.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.sources import RowsInMemory, Units
from quorate.compute.learners import DeviceName
from quorate.compute.learners.backends import choose_backend
from quorate.core.answerers import Votes
from quorate.core.checks import check_choice, check_count, check_delta, check_positive, warn_of_private
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.ledger import LedgerView
from quorate.core.mechanisms import NoisyShares
from quorate.core.privacy.cost import float_down
from quorate.core.session import Session
from quorate.models.predictors.base import (
    Predictions,
    allows_missing,
    check_auto_counts,
    check_jobs,
    check_records,
    fill_missing,
    is_auto,
)
from quorate.models.predictors.estimate import ESTIMATE_SHARE, Estimate, estimate_rates
from quorate.models.predictors.labels import class_codes, declared_classes
from quorate.models.predictors.scores import Scoring, Threshold, check_threshold
from quorate.models.predictors.sklearn_compat import only_with
from quorate.models.predictors.sources import OtherSources
from quorate.models.saving.codecs import (
    from_plain,
    mechanism_document,
    mechanism_of,
    put_teachers,
    read_teachers,
    to_plain,
)
from quorate.models.saving.contract import Outputs, Spending, State
from quorate.planner import ON_NO_QUORUM, Plan, plan
from quorate.planner.classes import by_class, check_prior, takes_class_weight, weigh_classes
from quorate.planner.trial import LearnerChoice, Trial, coefficients
from quorate.tables.frames import FrameFormat


def _gives_scores(classifier: "PrivateClassifier") -> bool:
    return classifier.scores or classifier.aggregator == "noisy_shares"


@dataclass(eq=False, repr=False)
class PrivateClassifier(OtherSources):
    """A classifier whose answers are all differentially private, with a total that is never overdrawn.

    Parameters
    ----------
    estimator
        Any scikit-learn classifier; `LogisticRegression()` by default. Each teacher is a clone of it. "auto" tries
        candidates on public rows; `chosen_.why` explains the choice.
    epsilon, delta
        The total privacy loss allowed for all answers that will ever be given.
    teachers
        The number of teachers, or "auto": planned from the number of units.
    aggregator
        "quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority", "stability", "between_thresholds",
        "noisy_shares" (set by `scores`), or "auto": the one that is expected to answer most queries correctly, chosen
        without reading the records. With `on_no_quorum="random"` a random label counts as an answer, so that every
        query is scored.
    queries
        The number of queries to plan for. A threshold mechanism may answer more.
    classes
        All labels that may occur. If not declared, the labels of `y` are used and become public.
    no_quorums
        How many queries may end without a quorum (threshold mechanisms), or "auto".
    disagreement
        The mean share of teachers expected to vote against the plurality, if known. It guides the plan.
    holdout
        The share of units, 0 to 0.5, kept from all teachers to estimate their disagreement privately, for a tenth of
        the budget. The estimate guides the plan; `estimate_.shares` are the noisy shares of the classes.
    scores
        Answer with the noisy share of votes for each class instead of a label; each query is paid for once. This adds
        `predict_proba` and `decision_function`; `predict` derives its labels from the same shares.
    threshold
        With `scores`: the noisy share at or above which `predict` answers with the second of two classes (0.5 by
        default), or "balanced": the class whose share exceeds its `prior` most.
    prior
        The declared shares of the classes, by class or in their order, or "holdout" to use the estimate. "balanced"
        compares with it, and `fit` warns if a class is too rare to win a majority.
    class_weight
        "balanced", a weight for each class, or None, passed to every teacher, which balances its own rows. "auto" is
        "balanced" with `scores` if the estimator takes weights, and None for labels. Balanced teachers spread the
        shares of a rare class, so that they rise above the noise.
    on_no_quorum
        "abstain" (None in the labels), "random" (a label drawn uniformly) or "raise". The choice does not change the
        cost of a query. After the last no-quorum of the run, queries are refused, not guessed.
    n_jobs
        How many processes fit teachers that are not fitted as one array; -1 for one on each core.
    backend
        The joblib backend that fits them: "loky", "dask", "ray" or "threading".
    device
        For teachers that are fitted as one array: where they are fitted and their ballots counted. "cpu", "cuda" for a
        GPU, or "auto": a GPU if there is one. Ballots are the same on every device. The device is not saved.

    Fitting opens the budget. Fitting again, here or in a copy, opens another: answering from both costs both.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> classifier = PrivateClassifier(epsilon=2.0, delta=1e-6, teachers=400, queries=100, classes=["no", "yes"])
    >>> answers = classifier.fit(X, y).predict([[3.0, 0.0], [-3.0, 0.0]])
    >>> answers.labels, answers.answered
    (array(['yes', 'no'], dtype='<U3'), array([ True,  True]))
    """

    estimator: Any = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    teachers: int | Literal["auto"] = "auto"
    aggregator: str = "auto"
    queries: int = 1000
    classes: Any = None
    no_quorums: int | Literal["auto"] = "auto"
    disagreement: float | None = None
    holdout: float = 0.0
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain"
    scores: bool = False
    threshold: Threshold = None
    prior: Any = None
    class_weight: Any = "auto"
    n_jobs: int | None = None
    backend: str | None = None
    device: DeviceName = "auto"

    kind = "classifier"
    spending = Spending(chargeable=True)
    saved_attributes = ("epsilon_", "delta_")

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        public: Any = None,
        public_votes: Any = None,
        *,
        public_labels: Any = None,
        one_scale: bool = False,
        teach: bool = False,
    ) -> "PrivateClassifier":
        """Deal the units, fit the teachers, plan the mechanism and open the budget.

        `groups` names the person of each row and makes the person the privacy unit. `public` rows, which are not
        private, are used to try an estimator that takes data frames before it sees a private row, and for "auto". If
        `public_labels` are given, learners (unless one is given) and numbers of teachers are tried on these rows;
        otherwise "auto" tries learners with simulated labels. The disagreement of teachers of the planned size on
        labelled public rows guides the plan; a warning says if public rows alone would do better. `public_votes`,
        counts of votes on public points by teachers that saw no private row, guide the plan instead.
        `one_scale` declares that all columns have about the same scale, as those of a schema do, so that ballots of
        linear teachers are counted three times as fast; this must be known without reading the records. `teach`
        declares that the answers are labels for a student, whose mistakes average out: fewer teachers are planned, and
        each learns from more rows.
        """
        warn_of_private(public, X)
        labels = self._begin(self.classes, y)
        X = check_records(self, X, estimator=self.estimator_, reset=True, form=FrameFormat.of_public(public, X))
        check_consistent_length(X, labels)
        self.unit_, self.declared_ = "row" if groups is None else "person", self.classes is not None
        rows = RowsInMemory(X, class_codes(self.classes_, labels), groups)
        guides = {"public": public, "public_labels": public_labels, "public_votes": public_votes}
        return self._fit_units(rows, one_scale=one_scale, teach=teach, **guides)

    def _begin(self, classes: Any, y: Any) -> Any:
        """Forget an earlier fit, settle the classes and the estimator, and return the labels."""
        self.check_settings()
        choose_backend(self.device)  # or raise an error, before anything is read
        self._forget("session_", "estimate_", "chosen_")
        self.classes_, labels = declared_classes(classes, y)
        self.estimator_ = clone(self._estimator())  # what is set later changes nothing of this fit
        if isinstance(self.threshold, int | float) and len(self.classes_) > 2:
            raise InvalidInput("threshold is a number for two classes; for more it is None or 'balanced'")
        if (weights := self._class_weight()) is not None:
            self.estimator_ = weigh_classes(self.estimator_, weights)  # proof: step 10
        return labels

    def _fit_units(
        self, rows: Units, *, public: Any, public_labels: Any, public_votes: Any, one_scale: bool, teach: bool
    ) -> Self:
        """Plan from the number of units, deal and fit them, estimate what is asked for, open the budget."""
        held_out = int(rows.count * self.holdout)
        units = rows.count - held_out
        guide = self._public_rows(public, public_labels)
        self._choose(guide, records=units, held_out=held_out, teach=teach)
        facts: dict[str, Any] = {"features": coefficients(self.estimator_, rows.features), "teach": teach}
        if self.chosen_ is not None and self.chosen_.teachers is not None:
            facts["teachers"] = self.chosen_.teachers
        if public_votes is not None:
            facts |= {"votes": public_votes, "disagreement": None}
        planned = self._guided(held_out, facts | {"records": units}, guide)
        ensemble, held_rows, codes = rows.ensemble(
            teachers=planned.teachers,
            held_out=held_out,
            estimator=self.estimator_,
            classes=len(self.classes_),
            n_jobs=self.n_jobs,
            backend=self.backend,
            device=self.device,
            public=public,
            one_scale=one_scale,
        )
        self.estimate_ = None
        if held_out:
            self.estimate_ = self._estimate(ensemble, held_rows, codes)
            first, planned = planned, self._plan_with(self.estimate_, held_out, planned.teachers)
            self._warn([text for text in planned.warnings if text not in first.warnings])
        self.epsilon_, self.delta_ = float(self.epsilon), float(self.delta)
        self._open(ensemble, planned)
        return self

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        check_count("queries", self.queries)
        estimator = self._estimator()
        if not hasattr(estimator, "fit") or not is_classifier(estimator):
            kind = repr(estimator) if isinstance(estimator, str) else type(estimator).__name__
            raise InvalidInput(f"estimator must be a classifier, whose predictions are labels, not {kind}")
        check_jobs(self.n_jobs)
        check_auto_counts(self, "teachers", "no_quorums")
        check_choice("on_no_quorum", self.on_no_quorum, ON_NO_QUORUM)
        if self.threshold is not None:
            check_threshold(self.threshold, scores=_gives_scores(self), prior=self.prior)
        self._check_holdout()

    def _check_holdout(self) -> None:
        if self._prior_is("holdout") and not self.holdout:
            raise InvalidInput("prior='holdout' is estimated on units held out: set holdout, a share of the units")
        if not isinstance(self.holdout, int | float) or not 0 <= self.holdout <= 0.5:
            raise InvalidInput(f"holdout must be a share from 0 to 0.5, not {self.holdout!r}")
        if self.holdout and self.delta == 0:
            raise InvalidInput("holdout estimates rates with Gaussian noise and needs a delta above 0")

    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None or is_auto(self.estimator) else self.estimator

    def _prior_is(self, word: str) -> bool:
        return isinstance(self.prior, str) and self.prior == word

    def _prior(self) -> tuple[float, ...] | None:
        """Return the shares of the classes: declared, or estimated; None where they are not known."""
        if self._prior_is("holdout"):
            estimate: Estimate | None = getattr(self, "estimate_", None)
            return None if estimate is None else estimate.shares
        return None if self.prior is None else check_prior(self.prior, self.classes_.tolist())

    def _class_weight(self) -> Any:
        """Return the weights that teachers give to classes, or None for none."""
        weight = self.class_weight
        if weight is None or not isinstance(weight, str):
            return None if weight is None else by_class("class_weight", weight, self.classes_.tolist())
        check_choice("class_weight", weight, ("auto", "balanced"))
        balanced = weight == "balanced" or (_gives_scores(self) and takes_class_weight(self._estimator()))
        return "balanced" if balanced else None

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a label, or noisy shares of the vote."""
        return "vote shares" if isinstance(self.mechanism_, NoisyShares) else "labels"

    def to_state(self) -> State:
        """Return settings, plan and mechanism, the teachers, and the estimator, unless the teachers were brought."""
        state = State(
            {
                **self.fitted_values(),
                "mechanism": mechanism_document(self.mechanism_),
                "plan": self.plan_.as_dict(),
                "estimate": to_plain(self.estimate_),
                "chosen": to_plain(self.chosen_),
            }
        )
        put_teachers(state, self.session_.answerer.ensemble.fitted)
        if self.estimator_ is not None:
            state.put_estimator("estimator", self.estimator_)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state; it spends from the ledger of its folder."""
        assert state.home is not None
        values = state.values
        estimator = state.estimator("estimator") if "estimator.skops" in state else None
        model = cls.from_fitted_values(values, estimator=estimator)
        model.estimator_ = None if estimator is None else clone(estimator)  # what is set later reaches the other
        model.estimate_ = from_plain(values["estimate"], Estimate)
        model.chosen_ = from_plain(values["chosen"], LearnerChoice, Trial)
        ensemble, mechanism = Ensemble(read_teachers(state)), mechanism_of(values["mechanism"])
        model.plan_ = Plan.from_dict(values["plan"], mechanism)
        model.mechanism_, model.teachers_ = mechanism, ensemble.teachers
        model.session_ = state.home.open_session(Votes(ensemble, mechanism))
        return model

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: LedgerView) -> LedgerView:
        """Return the view with the epsilon of the claim; the estimate on units held out is spent of it too."""
        estimate, epsilon = values.get("estimate"), float(values["epsilon"])
        spent = view.spent_epsilon + (0.0 if estimate is None else estimate["epsilon"])  # proof: step 7
        return replace(view, epsilon=epsilon, delta=float(values["delta"]), spent_epsilon=min(epsilon, spent))

    def saved_settings(self) -> dict[str, Any]:
        """Return the plain settings; what was declared about the classes is in their order."""
        prior, weight = self.prior, self.class_weight
        if prior is not None and not self._prior_is("holdout"):
            prior = list(check_prior(prior, self.classes_.tolist()))
        if weight is not None and not isinstance(weight, str):
            weight = list(by_class("class_weight", weight, self.classes_.tolist()))
        declared = {"prior": prior, "class_weight": weight}
        return {name: declared.get(name, value) for name, value in super().saved_settings().items()}

    def _shares(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return (epsilon, delta) of the estimate and of the answers; together they are at most what was allowed."""
        first = ESTIMATE_SHARE * self.epsilon, ESTIMATE_SHARE * self.delta
        rest = Fraction(self.epsilon) - Fraction(first[0]), Fraction(self.delta) - Fraction(first[1])
        return first, (float_down(rest[0]), float_down(rest[1]))

    def _answer_budget(self, held_out: int) -> tuple[float, float]:
        """Return (epsilon, delta) of the answers."""
        return self._shares()[1] if held_out else (self.epsilon, self.delta)

    def _plan(self, held_out: int, *, must: bool = True, **facts: Any) -> Plan:
        """Return the plan from public numbers; one that is not feasible is refused if it must be."""
        epsilon, delta = self._answer_budget(held_out)
        settings: dict[str, Any] = {"disagreement": self.disagreement, "prior": self._prior()}
        settings |= {name: getattr(self, name) for name in ("teachers", "no_quorums") if getattr(self, name) != "auto"}
        planned = plan(
            epsilon=epsilon,
            delta=delta,
            queries=self.queries,
            classes=len(self.classes_),
            aggregator=self.aggregator,
            on_no_quorum=self.on_no_quorum,
            scores=self.scores,
            class_weight=self._class_weight(),
            **(settings | facts),
        )
        if must and not planned.feasible and self.aggregator == "auto":
            raise Infeasible(planned.shortfall())
        return planned

    def _plan_with(self, estimate: Estimate, held_out: int, teachers: int) -> Plan:
        try:
            return self._plan(held_out, teachers=teachers, disagreement=estimate.pessimistic)
        except Infeasible as error:
            raise Infeasible(
                f"{error}. (Planned for a disagreement of {estimate.pessimistic:.3f}: {estimate.disagreement:.3f} was "
                f"estimated on units held out, and twice the deviation of {estimate.deviation:.3f} added. The estimate "
                f"is paid for, epsilon = {estimate.epsilon:g}, and fitting again pays for another; it takes more "
                "teachers, or no holdout)"
            ) from None

    def _estimate(self, ensemble: Ensemble, X: Any, codes: NDArray[np.int64]) -> Estimate:
        epsilon, delta = self._shares()[0]
        rows = X if allows_missing(self.estimator_) else fill_missing(X)
        return estimate_rates(ensemble, rows, codes, epsilon=epsilon, delta=delta)

    def _open(self, ensemble: Ensemble, planned: Plan) -> None:
        self.plan_, self.mechanism_, self.teachers_ = planned, planned.mechanism, ensemble.teachers
        self.session_ = Session(Votes(ensemble, planned.mechanism), planned.open_budget())

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post, at this classifier's delta.

        It depends on the answers given (a no-quorum is paid for) and bounds what these answers reveal if querying stops
        now. The guarantee, for any queries, is `claim_`. See core/privacy/PROOF.md, step 8.

        >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
        >>> classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
        >>> answers = classifier.predict([[1.0], [0.0], [1.0]])  # one query is a repetition, and free
        >>> spent = classifier.spent_epsilon()
        >>> repeated = classifier.predict([[0.0]])
        >>> 0 < spent == classifier.spent_epsilon() < 2.0
        True
        """
        estimate = None if not hasattr(self, "session_") else self.estimate_
        return super().spent_epsilon() + (0.0 if estimate is None else estimate.epsilon)

    @only_with(_gives_scores, "scores=True")
    def predict_proba(self, X: Any, caller: str = "") -> NDArray[np.float64]:
        """Return the noisy share of votes for each class, one row per query.

        Shares are at least 0, and each row sums to 1. A query is paid for once, whichever methods use it; a row is nan
        if the budget could not pay for it. Shares of votes rank queries; they are not calibrated probabilities.

        >>> X = np.linspace(-1, 1, 20_000)[:, np.newaxis]
        >>> classifier = PrivateClassifier(epsilon=4.0, teachers=500, queries=10, classes=[0, 1], scores=True)
        >>> shares = classifier.fit(X, (X[:, 0] > 0).astype(int)).predict_proba([[-0.9], [0.9]])
        >>> shares.round(1).tolist(), classifier.predict([[0.9]]).scores.tolist() == shares[1:].tolist()
        ([[1.0, 0.0], [0.0, 1.0]], True)
        """
        return self.scoring().probabilities(self._asked(X, caller)[1].labels)

    @only_with(_gives_scores, "scores=True")
    def decision_function(self, X: Any, caller: str = "") -> NDArray[np.float64]:
        """Return how far the noisy share of the second of two classes exceeds the threshold.

        For more classes, return the value that ranks each class: its share, or its share over its prior with
        threshold="balanced". `predict` returns the class of the largest value, or the second of two classes if the
        excess is at least 0.
        """
        return self.scoring().decisions(self._asked(X, caller)[1].labels)

    def scoring(self) -> Scoring:
        """Return how scores become labels, from the current threshold and prior."""
        check_is_fitted(self)
        if not isinstance(self.mechanism_, NoisyShares):
            raise InvalidInput("this model was fitted for labels; set scores=True and fit it again")
        threshold = self.threshold
        return Scoring(self.mechanism_, threshold, self._prior() if threshold == "balanced" else None)

    def _predictions(self, queries: Any, codes: NDArray[np.int64], **batch: Any) -> Predictions:
        if not isinstance(self.mechanism_, NoisyShares):
            return super()._predictions(queries, codes, **batch)
        scoring = self.scoring()
        scores = scoring.probabilities(codes)
        return Predictions.of(scoring.labels(codes), classes=self.classes_, scores=scores, **batch)

    def checked(self, X: Any) -> Any:
        """Return queries in the form that teachers take, or say what is wrong with them. Nothing is asked."""
        check_is_fitted(self)
        if _gives_scores(self):
            self.scoring()  # what cannot be read is not asked
        missing = False if self.estimator_ is None else None  # teachers that were brought get whole rows
        return check_records(self, X, estimator=self.estimator_, reset=False, missing=missing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = allows_missing(self._estimator())
        return tags
