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
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble, deal_units
from quorate.core.answerers import Votes
from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible
from quorate.core.ledger import LedgerView
from quorate.core.mechanisms.relabel import Relabel
from quorate.core.privacy import Budget, amplify, amplify_inverse, relabelling_epsilon
from quorate.core.privacy.claims import Node, account_node, sample_node
from quorate.core.privacy.cost import float_down, float_up
from quorate.core.session import Session
from quorate.models.concepts import Concept
from quorate.models.predictors.concept_classifier import ConceptClassifier, UnitRows, fit_concept_teachers
from quorate.models.predictors.records import check_auto_counts, check_jobs, unless_auto
from quorate.models.saving.codecs import from_plain
from quorate.models.saving.documents import MECHANISMS
from quorate.planner import plan

_KAPPAS = (0.25, 0.5, 1.0, 2.0, 4.0)
_RATES = tuple(0.9 * 0.93**step for step in range(90))
_BALLOTS = 250  # teachers that a run of epsilon 1 takes, about: it weighs chunks against samples
_LEAST_INNER = 0.05  # of epsilon, for what is run on the sample
_BETA = 0.05
_DOWN = 1 - Fraction(1, 10**12)  # covers the rounding of both directions of `amplify`


@dataclass(frozen=True, kw_only=True)
class RelabelledSample:
    """`sampled` of `units` are taken, without replacement and secretly, and relabelled with parameter `kappa`.

    `epsilon` and `delta` are what may be run on the relabelled sample.
    """

    units: int
    sampled: int
    kappa: float
    epsilon: float
    delta: float
    rows: int = 1

    @property
    def rate(self) -> float:
        """The share of units that is sampled, rounded up."""
        return float_up(Fraction(self.sampled, self.units))

    def total(self, inner: float) -> tuple[float, float]:
        """Return (epsilon, delta) of all that is released when what runs on the sample has spent `inner` of epsilon."""
        term = relabelling_epsilon(kappa=self.kappa, rows=self.rows)  # proof: step 2
        sample_epsilon = float_up(Fraction(inner) + Fraction(term))
        return amplify(epsilon=sample_epsilon, delta=self.delta, rate=self.rate)  # proof: step 3

    def spent_epsilon(self, inner: float) -> float:
        """Return the epsilon of `total`, or 0 where nothing was run on the sample."""
        return 0.0 if inner == 0 else self.total(inner)[0]


def _inner(
    epsilon: float, delta: float, *, units: int, sampled: int, kappa: float, rows: int
) -> RelabelledSample | None:
    """Return what may be run on this sample under (epsilon, delta), or None where that is next to nothing."""
    rate = float_up(Fraction(sampled, units))
    sample_epsilon, inside = amplify_inverse(epsilon=epsilon, delta=delta, rate=rate)
    remaining = Fraction(sample_epsilon) - Fraction(relabelling_epsilon(kappa=kappa, rows=rows))
    if remaining < Fraction(_LEAST_INNER):
        return None
    sample = RelabelledSample(
        units=units,
        sampled=sampled,
        kappa=kappa,
        epsilon=float_down(remaining * _DOWN),
        delta=min(inside * float(_DOWN), 0.1),
        rows=rows,
    )
    total = sample.total(sample.epsilon)
    assert total[0] <= epsilon
    assert total[1] <= delta
    return sample


def plan_sample(
    concept: Concept,
    *,
    units: int,
    epsilon: float,
    delta: float,
    rate: float | None = None,
    kappa: float | None = None,
    rows: int = 1,
) -> RelabelledSample:
    """Return the sample with the smallest error to be expected, unless `rate` and `kappa` say what to take.

    The error is that of a sample of its size, plus what relabelling loses, plus that of teachers on their chunks: a
    rule of thumb that decides on accuracy alone. The guarantee holds whatever is chosen.
    """
    units, rows = check_count("units", units), check_count("rows", rows)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    largest = concept.largest_set(units * rows) // rows
    rates = _RATES if rate is None else (check_rate("rate", rate),)
    kappas = _KAPPAS if kappa is None else (check_positive("kappa", kappa),)
    sizes = {min(largest, int(share * units)) for share in rates} - {0}
    samples = [
        sample
        for sampled in sizes
        for parameter in kappas
        if (sample := _inner(epsilon, delta, units=units, sampled=sampled, kappa=parameter, rows=rows)) is not None
    ]
    if not samples:
        raise Infeasible(
            f"no sample of {units} units leaves an epsilon to run on it at epsilon={epsilon:g}, with a unit of up to "
            f"{rows} rows that are relabelled; raise epsilon, or take a smaller rate or kappa, or fewer rows a person"
        )
    return min(samples, key=lambda sample: _error(concept, sample))


def _error(concept: Concept, sample: RelabelledSample) -> float:
    """Return about how much worse than the best hypothesis the answers will be."""
    dimension, rows = max(1, concept.vc_dimension), sample.sampled
    relabelling = 2 / sample.kappa * math.log(concept.growth(rows * sample.rows) / _BETA) / rows
    chunks = dimension * _BALLOTS / sample.epsilon / rows
    return math.sqrt((dimension + math.log(1 / _BETA)) / rows) + relabelling + chunks


_DISAGREEMENT = 0.02  # of teachers on relabelled chunks, unless the caller knows better


@dataclass(eq=False, repr=False)
class RelabellingClassifier(ConceptClassifier):
    """Teachers on a relabelled secret sample: what agnostic and universal classifiers have in common."""

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    teachers: int | Literal["auto"] = "auto"
    aggregator: str = "auto"
    no_quorums: int | Literal["auto"] = "auto"
    disagreement: float | None = None
    rate: float | Literal["auto"] = "auto"
    kappa: float | Literal["auto"] = "auto"
    n_jobs: int | None = None
    backend: str | None = None

    saved_attributes = (*ConceptClassifier.saved_attributes, "epsilon_", "delta_", "sample_", "mechanism_")
    saved_types = (*ConceptClassifier.saved_types, RelabelledSample, *MECHANISMS)

    def _fit_teachers(self, records: UnitRows, *, epsilon: float, queries: int) -> tuple[Ensemble, Budget]:
        """Sample, relabel and fit within this epsilon; return the teachers, and the budget that pays for ballots."""
        sample = plan_sample(
            self.concept_,
            units=records.units,
            epsilon=epsilon,
            delta=self.delta,
            rate=unless_auto(self.rate),
            kappa=unless_auto(self.kappa),
            rows=records.row_limit,
        )
        self.mechanism_, budget = self._mechanism(sample, queries)
        ensemble = self._ensemble(records, sample, self.mechanism_.teachers)
        self.epsilon_, self.delta_, self.sample_ = float(self.epsilon), float(self.delta), sample
        return ensemble, budget

    def claim_part(self) -> Node:
        """Return the account that pays for ballots, and the sample on which the teachers were fitted."""
        answers = account_node(self.budget_, [self.mechanism_], ledger=True)
        return sample_node(self.epsilon_, self.delta_, self.sample_, answers)

    @property
    def teachers_(self) -> int:
        """The number of teachers."""
        teachers: int = self.mechanism_.teachers
        return teachers

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta, zero=False)
        check_auto_counts(self, "teachers", "no_quorums")
        check_jobs(self.n_jobs)

    def _mechanism(self, sample: RelabelledSample, queries: int) -> tuple[Any, Budget]:
        """Return what will count the ballots, and the budget that pays for it: from public numbers alone."""
        planned = plan(
            epsilon=sample.epsilon,
            delta=sample.delta,
            queries=queries,
            classes=2,
            records=sample.sampled if self.teachers == "auto" else None,
            teachers=unless_auto(self.teachers),
            aggregator=self.aggregator,
            no_quorums=unless_auto(self.no_quorums),
            disagreement=_DISAGREEMENT if self.disagreement is None else self.disagreement,
        )
        if planned.teachers > sample.sampled:
            raise Infeasible(
                f"{sample.sampled} of {sample.units} units are sampled, fewer than teachers={planned.teachers}; "
                "lower teachers, raise epsilon, or bring more units"
            )
        if not planned.feasible and self.aggregator == "auto":
            raise Infeasible(
                f"only {planned.right:.0%} of {queries} queries are expected to be answered with the label of the "
                f"{planned.teachers} teachers, who share a sample of {sample.sampled} of the {sample.units} units, on "
                f"which an epsilon of {sample.epsilon:.3g} may be spent; bring more units, raise epsilon, or plan for "
                "fewer queries"
            )
        return planned.mechanism, planned.open_budget()

    def _ensemble(self, records: UnitRows, sample: RelabelledSample, teachers: int) -> Ensemble:
        """Return teachers fitted on disjoint chunks of a relabelled sample. Nothing of it is released here."""
        units, left_out = records.units, records.units - sample.sampled
        deal, _ = deal_units(records.owners, units, teachers=teachers, held_out=left_out)  # proof: steps 1 and 3
        positions = np.sort(deal.rows)
        relabel = Relabel(concept=self.concept_, kappa=sample.kappa)
        labels = np.full(len(records.labels), -1)
        relabelled = relabel.relabel(records.points[positions], records.labels[positions])  # proof: step 2
        labels[positions] = relabelled.labels
        return fit_concept_teachers(
            self.concept_, records.points, labels, deal, n_jobs=self.n_jobs, backend=self.backend
        )


@dataclass(eq=False, repr=False)
class AgnosticClassifier(RelabellingClassifier):
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
    records_per_person
        With `groups`: how many rows of each person are used, the first ones. Each adds a term to the cost of
        relabelling.
    n_jobs, backend
        As for `PrivateClassifier`.

    `budget_` pays for what runs on the sample. `spent_epsilon` returns the resulting total.

    >>> from quorate.models.concepts import Thresholds
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(size=(20_000, 1))
    >>> y = ((X[:, 0] > 0.5) ^ (generator.uniform(size=20_000) < 0.2)).astype(int)  # one label in five is wrong
    >>> classifier = AgnosticClassifier(Thresholds(), epsilon=3.0, delta=1e-6, queries=10, teachers=200, classes=[0, 1])
    >>> classifier.fit(X, y).predict([[0.1], [0.9]]).labels
    array([0, 1])
    """

    _: KW_ONLY
    queries: int = 1000

    kind = "agnostic"

    def fit(self, X: Any, y: Any, groups: Any = None) -> "AgnosticClassifier":
        """Sample and relabel the units, fit the teachers and open the budget.

        `groups` names the person of each row.
        """
        self.check_settings()
        check_count("queries", self.queries)
        records = self._records(X, y, groups)
        ensemble, budget = self._fit_teachers(records, epsilon=self.epsilon, queries=self.queries)
        self.session_ = Session(self.answerer(records, ensemble), budget)
        return self

    def answerer(self, records: UnitRows | None, ensemble: Ensemble, folder: Path | None = None) -> Votes:
        """Return what puts queries to the vote of these teachers."""
        return Votes(ensemble, self.mechanism_)

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: LedgerView) -> LedgerView:
        """Return the view with the epsilon of the claim: the ledger counts what runs on the secret sample."""
        sample, epsilon = from_plain(values["sample"], RelabelledSample), float(values["epsilon"])
        spent = min(epsilon, sample.spent_epsilon(view.spent_epsilon))  # proof: step 3
        return replace(view, epsilon=epsilon, delta=float(values["delta"]), spent_epsilon=spent)

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post: 0 while nothing is charged.

        It depends on the answers given, and holds at no more than twice this classifier's delta (core/privacy/PROOF.md,
        step 8). The guarantee, for any queries, is `claim_`.
        """
        check_is_fitted(self)
        return min(self.epsilon_, self.sample_.spent_epsilon(float(self.budget_.spent_epsilon())))
