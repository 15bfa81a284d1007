"""The base of classifiers by secret ballot: settings, teachers that are brought, the plan, the budget, the folder."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Electorate, Ensemble
from quorate.compute.ensemble.clusters import ClusterTeachers
from quorate.compute.ensemble.electorate import as_electorate
from quorate.core.answerers import Votes
from quorate.core.ballots import release_votes
from quorate.core.checks import check_choice, check_count, check_delta, check_positive
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.ledger import LedgerView
from quorate.core.mechanisms import NoisyShares, NoisyVector
from quorate.core.privacy.budget import to_quanta
from quorate.core.privacy.claims import Node, account_node, releases_node, restate_claim, sum_node
from quorate.core.privacy.cost import float_down
from quorate.core.session import Session
from quorate.models.predictors.base import ScoredClassifier, Scoring, TeacherSettings, Threshold, check_threshold
from quorate.models.predictors.labels import declared_classes
from quorate.models.predictors.records import allows_missing, check_auto_counts, check_jobs, check_records, is_auto
from quorate.models.saving.contract import Outputs, Spending, State
from quorate.models.saving.documents import MECHANISMS, put_teachers, read_teachers
from quorate.planner import Plan, plan
from quorate.planner.task import by_class, check_prior, takes_class_weight
from quorate.planner.trial import LearnerChoice, Trial
from quorate.planner.votes import ON_NO_QUORUM

ESTIMATE_SHARE = 0.1  # of epsilon and of delta, where units are held out
# Settings of teachers that are fitted here.
_OF_A_FIT = ("estimator", "teachers", "holdout", "class_weight", "n_jobs", "backend", "device")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Released rates, with the standard deviation of their noise, and what they cost.

    `error` is the mean share of teachers that are wrong on a unit held out, `disagreement` the mean share that vote
    against the plurality. `shares` are those of the classes among the units held out, `share_deviation` is that of the
    noise of each.
    """

    error: float
    disagreement: float
    deviation: float
    held_out: int
    epsilon: float
    delta: float
    shares: tuple[float, ...] = ()
    share_deviation: float = 0.0

    @property
    def pessimistic(self) -> float:
        """The disagreement to plan with: two deviations more, and never more than half of the votes.

        No-quorums that were planned and not met are not spent; a run that ends early is the worse mistake.
        """
        return min(0.5, self.disagreement + 2 * self.deviation)


def estimate_noise(held_out: int, teachers: int, *, epsilon: float, delta: float) -> NoisyVector:
    """Return the noise of both sums and of the counts of labels."""
    square = max(held_out, teachers) ** 2
    return NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(square, square, 2))


def estimate_rates(ensemble: Ensemble, X: Any, codes: NDArray[np.int64], *, epsilon: float, delta: float) -> Estimate:
    """Release the rates and the shares within (epsilon, delta), from one row and one label of each unit held out.

    The idea is Remark 1 of Bassily, Thakkar and Thakurta (2018). Mistakes of the *majority* may jump from 0 to 1 with
    one teacher; the mean over teachers does not. With k teachers and H units held out, a unit that a teacher was fitted
    on moves each sum by at most H (one ballot a query), and a unit held out by at most k (its own query). Only a unit
    held out moves the counts of labels, from one to another.
    """
    held_out, teachers = len(codes), ensemble.teachers
    noisy = estimate_noise(held_out, teachers, epsilon=epsilon, delta=delta)
    labelled = np.flatnonzero(codes >= 0)  # a row without a label counts as one that every teacher has wrong

    def release(votes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        wrong = teachers * held_out - votes[labelled, codes[labelled]].sum(keepdims=True)
        minority = teachers * held_out - votes.max(axis=1).sum(keepdims=True)
        counts = np.bincount(codes[labelled], minlength=ensemble.classes)
        return noisy.release([wrong, minority, counts])  # proof: step 7

    wrong, minority, labels = release_votes(ensemble, X, release)
    cast = teachers * held_out
    counts = np.maximum(labels, 0.5)  # so that no share is 0, whatever the noise
    return Estimate(
        error=min(1.0, max(0.0, int(wrong[0]) / cast)),
        disagreement=min(1.0, max(0.0, int(minority[0]) / cast)),
        deviation=noisy.scales[0] / cast,
        held_out=held_out,
        epsilon=epsilon,
        delta=delta,
        shares=tuple((counts / counts.sum()).tolist()),
        share_deviation=noisy.scales[2] / held_out,
    )


@dataclass(eq=False, repr=False)
class VotingClassifier(TeacherSettings, ScoredClassifier):
    """A classifier whose teachers vote on each query, until its budget is spent. `PrivateClassifier` fits them."""

    _: KW_ONLY
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain"
    scores: bool = False
    threshold: Threshold = None
    prior: Any = None
    class_weight: Any = "auto"

    spending = Spending(chargeable=True)
    saved_attributes: ClassVar[tuple[str, ...]] = ("epsilon_", "delta_", "estimate_", "chosen_", "mechanism_")
    saved_types = (Estimate, LearnerChoice, Trial, *MECHANISMS)

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
            check_threshold(self.threshold, scores=self.gives_scores(), prior=self.prior)
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
        balanced = weight == "balanced" or (self.gives_scores() and takes_class_weight(self._estimator()))
        return "balanced" if balanced else None

    def gives_scores(self) -> bool:
        """Return whether answers are noisy shares of the vote rather than labels."""
        return self.scores or self.aggregator == "noisy_shares"

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a label, or noisy shares of the vote."""
        return "vote shares" if isinstance(self.mechanism_, NoisyShares) else "labels"

    def claim_part(self) -> Node:
        """Return the account that pays for answers, and the estimate on units held out."""
        return self._with_estimate(account_node(self.budget_, self.mechanisms(), ledger=True))

    def spent_claim(self) -> Node:
        """Return the same for teachers that answer no more."""
        spent = to_quanta(self.budget_.spent())
        return self._with_estimate(account_node(self.budget_, self.mechanisms(), ledger=False, spent=spent))

    def _with_estimate(self, answers: Node) -> Node:
        estimate: Estimate | None = self.estimate_
        if estimate is None:
            return answers
        share = {"epsilon": estimate.epsilon, "delta": estimate.delta}
        noisy = estimate_noise(estimate.held_out, self.teachers_, **share)
        held_out = releases_node(**share, releases=noisy.describe((1, 1, len(self.classes_))))
        return restate_claim(sum_node(held_out, answers), self.epsilon_, self.delta_)

    def mechanisms(self) -> list[Any]:
        """Return the mechanisms that the budget pays."""
        return [self.mechanism_]

    def to_state(self) -> State:
        """Return settings, plan and mechanism, the teachers, and the estimator, unless the teachers were brought."""
        state = State({**self.fitted_values(), "plan": self.plan_.as_dict()})
        put_teachers(state, self.session_.answerer.ensemble.electorate)
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
        ensemble = Ensemble(read_teachers(state))
        model.plan_, model.teachers_ = Plan.from_dict(values["plan"], model.mechanism_), ensemble.teachers
        model.session_ = state.home.open_session(Votes(ensemble, model.mechanism_))
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

    def _open(self, ensemble: Ensemble, planned: Plan) -> None:
        self.plan_, self.mechanism_, self.teachers_ = planned, planned.mechanism, ensemble.teachers
        self.session_ = Session(Votes(ensemble, planned.mechanism), planned.open_budget())

    @classmethod
    def from_teachers(
        cls,
        teachers: Electorate | Sequence[Any],
        *,
        classes: Any,
        public: Any,
        call_rows: int = 1,
        seconds: float = 30.0,
        **settings: Any,
    ) -> Self:
        """Return a classifier whose teachers you bring: networks, prompts with their own examples, remote models.

        `teachers` are functions from rows to labels, or addresses of models that speak the Open Inference Protocol, or
        an `Electorate`, whose class numbers are positions in the sorted `classes`. No record may have reached more than
        one of them: you must ensure this. The claim protects everything that one teacher has learned from. `public` are
        a few rows that are not private: they show which columns queries have, and each teacher is tried on the first.

        A function gets `call_rows` queries in each call, a matrix of 64-bit floats or a data frame. With more than one,
        you promise that it answers row by row and that calls do not change it (`quorate.core.estimator_calls`). A
        teacher that raises, names no class, or whose server does not answer within `seconds`, votes for a class that
        depends only on its position among the teachers. `settings` are those of the constructor.

        >>> X = np.random.default_rng(0).normal(size=(3, 2))
        >>> rules = [lambda rows, cut=cut: np.where(rows[:, 0] > cut, "ill", "well") for cut in np.linspace(-1, 1, 300)]
        >>> from quorate import PrivateClassifier
        >>> made = PrivateClassifier.from_teachers(rules, classes=["ill", "well"], public=X, epsilon=2.0, queries=10)
        >>> made.predict([[9.0, 0.0], [-9.0, 0.0]]).tolist(), made.unit_
        (['ill', 'well'], 'teacher')
        """
        classifier = cls(classes=classes, **settings)
        rows = classifier._begin_brought(public, settings)
        labels = classifier.classes_.tolist()
        electorate = as_electorate(teachers, labels=labels, public=rows, call_rows=call_rows, seconds=seconds)
        classifier._open_brought(electorate, classifier._plan(0, teachers=electorate.teachers))
        return classifier

    def _begin_brought(self, public: Any, settings: Iterable[str]) -> Any:
        """Settle the classes and the columns for teachers that are brought, and return the public rows as they are."""
        for name in _OF_A_FIT:
            if name in settings:
                raise InvalidInput(
                    f"{name} is a setting of teachers that are fitted here; those that you bring are made"
                )
        self.check_settings()
        self.classes_, _ = declared_classes(self.classes, np.asarray(self.classes))
        self.estimator_: Any = None
        self.chosen_: LearnerChoice | None = None
        self.estimate_: Estimate | None = None
        return check_records(self, public, estimator=None, reset=True, frames=True, missing=False, role="public")

    def _open_brought(self, electorate: Electorate, planned: Plan) -> None:
        self._warn(planned.warnings)
        self.unit_, self.declared_ = "teacher", True
        self.epsilon_, self.delta_ = float(self.epsilon), float(self.delta)
        self._open(Ensemble(electorate), planned)

    def place_teachers(self, cluster: Any) -> None:
        """Move the fitted teachers to a cluster, which counts their ballots from now on.

        `cluster` is as for `fit_table`. The answers are the same. Teachers that you brought, and those already on a
        cluster, stay where they are.
        """
        answerer = self.session_.answerer
        answerer.ensemble = Ensemble(ClusterTeachers.placed(answerer.ensemble.electorate, cluster))

    def _warn(self, texts: Iterable[str]) -> None:
        """Say what is wrong with a plan before its budget is opened."""
        for text in texts:
            warnings.warn(text, UserWarning, stacklevel=6)

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post, at this classifier's delta.

        It depends on the answers given (a no-quorum is paid for) and bounds what these answers reveal if querying stops
        now. The guarantee, for any queries, is `claim_`. See core/privacy/PROOF.md, step 8.

        >>> from quorate import PrivateClassifier
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

    def scoring(self) -> Scoring:
        """Return how scores become labels, from the current threshold and prior."""
        check_is_fitted(self)
        if not isinstance(self.mechanism_, NoisyShares):
            raise InvalidInput("this model was fitted for labels; set scores=True and fit it again")
        threshold = self.threshold
        return Scoring(self.mechanism_, threshold, self._prior() if threshold == "balanced" else None)

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that teachers take, or say what is wrong with them. Nothing is asked."""
        check_is_fitted(self)
        if self.gives_scores():
            self.scoring()  # what cannot be read is not asked
        missing = False if self.estimator_ is None else None  # teachers that were brought get whole rows
        return check_records(self, X, estimator=self.estimator_, reset=False, missing=missing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = allows_missing(self._estimator())
        return tags
