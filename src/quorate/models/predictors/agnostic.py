"""AgnosticClassifier: private answers as good as the best hypothesis of a class, even if none is perfect.

Claim: all outputs of `predict` and `stream` together are (epsilon, delta)-differentially private under replacement of
one unit's rows (a row, or a person if `groups` are given). The number of units, the columns and the classes are public.

A secret sample of the units is relabelled by one privately chosen hypothesis of the class, which removes the label
noise; then teachers are fitted on disjoint chunks of it and vote. This is Algorithm 3 of Nandi and Bassily (2020),
with units dealt without replacement. PROOF_CONCEPTS.md, steps 1 to 4, proves the claim.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble, deal_units
from quorate.core.answerers import Votes
from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.ledger import LedgerView
from quorate.core.mechanisms import StabilityTest
from quorate.core.mechanisms.relabel import Relabel
from quorate.core.privacy import Budget
from quorate.core.session import Session
from quorate.models.concepts import Concept
from quorate.models.predictors.base import check_auto_counts, check_jobs
from quorate.models.predictors.concept_classifier import ConceptClassifier
from quorate.models.predictors.concept_teachers import (
    fit_concept_teachers,
    read_concept_teachers,
    write_concept_teachers,
)
from quorate.models.predictors.relabelled_sample import RelabelledSample, paper_inner, paper_no_quorums, plan_sample
from quorate.models.predictors.stable_choice import Calibration, check_calibration
from quorate.models.predictors.unit_rows import UnitRows
from quorate.models.saving.codecs import from_plain, mechanism_document, mechanism_of, to_plain
from quorate.models.saving.contract import State
from quorate.planner import plan

_DISAGREEMENT = 0.02  # of teachers on relabelled chunks, unless the caller knows better


@dataclass(eq=False, repr=False)
class AgnosticClassifier(ConceptClassifier):
    """A private classifier of two classes, for labels that no hypothesis fits perfectly.

    Parameters
    ----------
    concept
        A class of `quorate.models.concepts`; stumps over all features by default.
    epsilon, delta
        The total privacy loss allowed for all answers that will ever be given.
    queries
        The number of queries to plan for. A threshold mechanism may answer more.
    classes
        Both labels. If not declared, the labels of `y` are used and become public.
    teachers, aggregator, no_quorums, disagreement
        As for `PrivateClassifier`; the disagreement is that of teachers on relabelled chunks, which is small.
    rate, kappa
        The share of units that is sampled and the parameter of relabelling, or "auto": chosen from public numbers.
    rows_per_person
        With `groups`: how many rows of each person are used, the first ones. Each adds a term to the cost of
        relabelling.
    calibration, alpha, beta
        "tight", or "paper" for the published constants, which are set for an error of `alpha` with probability
        1 - `beta` and need very many records.
    n_jobs, backend
        For joblib, which fits the teachers.

    `budget_` pays for what runs on the sample. `spent_epsilon` returns the resulting total.

    >>> from quorate.models.concepts import Thresholds
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(size=(20_000, 1))
    >>> y = ((X[:, 0] > 0.5) ^ (generator.uniform(size=20_000) < 0.2)).astype(int)  # one label in five is wrong
    >>> classifier = AgnosticClassifier(Thresholds(), epsilon=3.0, delta=1e-6, queries=10, teachers=200, classes=[0, 1])
    >>> classifier.fit(X, y).predict([[0.1], [0.9]]).labels
    array([0, 1])
    """

    concept: Concept | None = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    queries: int = 1000
    classes: Any = None
    teachers: int | Literal["auto"] = "auto"
    aggregator: str = "auto"
    no_quorums: int | Literal["auto"] = "auto"
    disagreement: float | None = None
    rate: float | Literal["auto"] = "auto"
    kappa: float | Literal["auto"] = "auto"
    rows_per_person: int = 1
    calibration: Calibration = "tight"
    alpha: float = 0.1
    beta: float = 0.05
    n_jobs: int | None = None
    backend: str | None = None

    kind = "agnostic"
    saved_attributes = ("epsilon_", "delta_")

    def fit(self, X: Any, y: Any, groups: Any = None) -> "AgnosticClassifier":
        """Sample and relabel the units, fit the teachers and open the budget.

        `groups` names the person of each row.
        """
        self.check_settings()
        votes, budget = self.votes(self._records(X, y, groups))
        self.session_ = Session(votes, budget)
        return self

    def votes(self, records: UnitRows) -> tuple[Votes, Budget]:
        """Return what answers by ballots, and the budget that pays for it."""
        sample = self._sample(records)
        mechanism, budget = self._mechanism(sample)
        ensemble = self._ensemble(records, sample, mechanism.teachers)
        self.epsilon_, self.delta_, self.sample_ = float(self.epsilon), float(self.delta), sample
        self.mechanism_, self.teachers_ = mechanism, ensemble.teachers
        return Votes(ensemble, mechanism), budget

    def to_state(self) -> State:
        """Return what was calibrated, and a hypothesis for each teacher."""
        state = self.concept_state(sample=to_plain(self.sample_), mechanism=mechanism_document(self.mechanism_))
        state.put_document("teachers", write_concept_teachers(self.session_.answerer.ensemble))
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state; it spends from the ledger of its folder."""
        assert state.home is not None
        model = cls.from_concept_state(state)
        model.session_ = state.home.open_session(model.restore_votes(state, model.concept_))
        return model

    def restore_votes(self, state: State, concept: Concept) -> Votes:
        """Restore sample, mechanism and teachers from a state, and return what answers by ballots."""
        calibrated, ensemble = state.values["calibrated"], read_concept_teachers(concept, state.document("teachers"))
        self.concept_, self.sample_ = concept, from_plain(calibrated["sample"], RelabelledSample)
        self.mechanism_, self.teachers_ = mechanism_of(calibrated["mechanism"]), ensemble.teachers
        return Votes(ensemble, self.mechanism_)

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: LedgerView) -> LedgerView:
        """Return the view with the epsilon of the claim: the ledger counts what runs on the secret sample."""
        sample, epsilon = from_plain(values["calibrated"]["sample"], RelabelledSample), float(values["epsilon"])
        spent = min(epsilon, sample.spent(view.spent_epsilon))  # proof: step 3
        return replace(view, epsilon=epsilon, delta=float(values["delta"]), spent_epsilon=spent)

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta, zero=False)
        check_count("queries", self.queries)
        check_calibration(self.calibration)
        check_rate("alpha", self.alpha)
        check_rate("beta", self.beta)
        check_auto_counts(self, "teachers", "no_quorums")
        check_jobs(self.n_jobs)

    def _sample(self, records: UnitRows) -> RelabelledSample:
        if self.calibration == "paper":
            if records.most > 1:
                raise InvalidInput("the paper's constants are for one row a unit; use calibration='tight'")
            return paper_inner(
                units=records.units, epsilon=self.epsilon, delta=self.delta, queries=self.queries, alpha=self.alpha
            )
        return plan_sample(
            self.concept_,
            units=records.units,
            epsilon=self.epsilon,
            delta=self.delta,
            rate=None if self.rate == "auto" else self.rate,
            kappa=None if self.kappa == "auto" else self.kappa,
            rows=records.most,
        )

    def _mechanism(self, sample: RelabelledSample) -> tuple[Any, Budget]:
        """Return what will count the ballots, and the budget that pays for it: from public numbers alone."""
        if self.calibration == "paper":
            return self._printed(sample)
        planned = plan(
            epsilon=sample.epsilon,
            delta=sample.delta,
            queries=self.queries,
            classes=2,
            records=sample.sampled if self.teachers == "auto" else None,
            teachers=None if self.teachers == "auto" else self.teachers,
            aggregator=self.aggregator,
            no_quorums=None if self.no_quorums == "auto" else self.no_quorums,
            disagreement=_DISAGREEMENT if self.disagreement is None else self.disagreement,
        )
        if planned.teachers > sample.sampled:
            raise Infeasible(
                f"{sample.sampled} of {sample.units} units are sampled, fewer than teachers={planned.teachers}; "
                "lower teachers, raise epsilon, or bring more units"
            )
        if not planned.feasible and self.aggregator == "auto":
            raise Infeasible(
                f"only {planned.right:.0%} of {self.queries} queries are expected to be answered with the label of the "
                f"{planned.teachers} teachers, who share a sample of {sample.sampled} of the {sample.units} units, on "
                f"which an epsilon of {sample.epsilon:.3g} may be spent; bring more units, raise epsilon, or plan for "
                "fewer queries"
            )
        return planned.mechanism, planned.open_budget()

    def _printed(self, sample: RelabelledSample) -> tuple[Any, Budget]:
        """Return the stability test with the constants of Algorithms 3 and 5 of Nandi and Bassily (2020)."""
        cut_off = paper_no_quorums(queries=self.queries, alpha=self.alpha, beta=self.beta)
        scale = math.sqrt(32 * cut_off * math.log(2 / sample.delta)) / sample.epsilon
        needed = math.ceil(
            34 * math.sqrt(2) * scale * math.log(4 * self.queries * cut_off / min(sample.delta, self.beta / 2))
        )
        teachers = needed if self.teachers == "auto" else self.teachers
        if teachers > sample.sampled:
            units = math.ceil(teachers / sample.rate)
            raise Infeasible(
                f"the paper's constants ask for {teachers} teachers and sample {sample.sampled} units; that takes "
                f"at least {units} units, one for each teacher. Use calibration='tight'"
            )
        test = StabilityTest.calibrate(
            epsilon=sample.epsilon,
            delta=sample.delta,
            teachers=teachers,
            no_quorums=cut_off if self.no_quorums == "auto" else self.no_quorums,
            queries=self.queries,
            calibration="paper",
        )
        slack = test.run_cost(test.order).slack
        return test, Budget(epsilon=sample.epsilon, delta=sample.delta, order=test.order, slack=slack)

    def _ensemble(self, records: UnitRows, sample: RelabelledSample, teachers: int) -> Ensemble:
        """Return teachers fitted on disjoint chunks of a relabelled sample. Nothing of it is released here."""
        left_out = records.units - sample.sampled
        deal, _ = deal_units(
            records.owners, records.units, teachers=teachers, held_out=left_out
        )  # proof: steps 1 and 3
        positions = np.sort(deal.rows)
        relabel = Relabel(concept=self.concept_, kappa=sample.kappa)
        labels = np.full(len(records.labels), -1)
        relabelled = relabel.relabel(records.points[positions], records.labels[positions])  # proof: step 2
        labels[positions] = relabelled.labels
        return fit_concept_teachers(
            self.concept_, records.points, labels, deal, n_jobs=self.n_jobs, backend=self.backend
        )

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post: 0 while nothing is charged.

        It depends on the answers given, and holds at no more than twice this classifier's delta (core/privacy/PROOF.md,
        step 8). The guarantee, for any queries, is `claim_`.
        """
        check_is_fitted(self)
        return min(self.epsilon_, self.sample_.spent(float(self.budget_.spent_epsilon())))
