"""PureClassifier: a few answers with pure differential privacy, from a class of hypotheses.

Claim: all answers together are (epsilon, 0)-differentially private under replacement of one unit's rows (a row, or a
person if `groups` are given); each of the `queries` planned for costs the same. The number of units, the columns and
the classes are public. PROOF_CONCEPTS.md, steps 8 and 10 to 14, has the proof.
"""

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import Ensemble, deal_units
from quorate.core.answerers import Answerer, OneByOne, Votes
from quorate.core.ballots import release_votes
from quorate.core.checks import check_choice, check_count, check_positive, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import SoftMajority
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.claims import Node, account_node
from quorate.core.privacy.cost import float_up
from quorate.core.session import Session
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.predictors._stable import StableChoice, flip
from quorate.models.predictors.concept_classifier import NO_LABEL, ConceptClassifier, UnitRows, fit_concept_teachers
from quorate.models.predictors.records import check_auto_counts, check_jobs, unless_auto

_UP = 1 + 1e-12
_MOST = 500.0  # of epsilon that is made use of: its exponential is still a float
_REACHES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12, 0.08)  # of the scale, tried for the reach
_CLEAR = 4  # ballots for each unit of scale (or 1/epsilon) and of log(1/error): three in four agree then


@dataclass(frozen=True, kw_only=True)
class PureRelabelling:
    """The public numbers of one answer of method "relabel" (Dagan and Feldman 2020, Theorem 2): it is `log_factor`-DP.

    `subset` of the `units` define the candidates; weights fall e-fold with `scale` mistaken units, and so does the
    weight of a label with `scale` ballots (in print both are eta * n). Two hypotheses that agree on a random subset
    differ on at most `reach` other units, but for a probability `miss`.
    """

    concept: Concept
    units: int
    subset: int
    scale: float
    reach: int
    teachers: int
    rows: int = 1

    def __post_init__(self) -> None:
        units, reach = check_count("units", self.units, least=2), check_count("reach", self.reach, least=0)
        validate_fields(self, units=units, reach=reach, scale=check_positive("scale", self.scale))
        if self.subset >= self.units:
            raise InvalidInput(f"subset must be below units={self.units}, not {self.subset}")
        if self.teachers > self.units:
            raise InvalidInput(f"teachers must be at most units={self.units}, not {self.teachers}")

    @classmethod
    def calibrate(
        cls, concept: Concept, *, units: int, epsilon: float, teachers: int | None = None, rows: int = 1
    ) -> "PureRelabelling":
        """Return the numbers with the smallest error to be expected among those that keep epsilon."""
        units, epsilon = check_count("units", units, least=2), min(check_positive("epsilon", epsilon), _MOST)
        arguments: Any = {"teachers": teachers, "rows": check_count("rows", rows)}
        schemes = [
            scheme
            for step in range(120)
            for share in _REACHES
            if (
                scheme := _attempt(
                    concept, units=units, epsilon=epsilon, scale=3.3 / epsilon * 1.1**step, share=share, **arguments
                )
            )
            is not None
        ]
        best = min(schemes, key=lambda scheme: scheme.error, default=None)
        if best is None or best.error >= 0.5:
            raise Infeasible(
                f"{units} units are too few for relabelling at epsilon={epsilon:g}; method='stable' takes far fewer"
            )
        return best

    @property
    def growth(self) -> int:
        """The number of labelings, at most, that the class gives to all other units."""
        return self.concept.growth((self.units - 1) * self.rows)

    @property
    def log_miss(self) -> float:
        """The logarithm of a bound on the probability that a random subset tells too few hypotheses apart."""
        remaining = self.units - 1
        pairs = 2 * math.log(self.growth) - math.log(2)
        missed = (self.reach + 1) * math.log1p(-(self.subset - 1) / remaining)  # proof: step 11
        return min(0.0, pairs + missed + 1e-9 * (pairs - missed))

    @property
    def log_factor(self) -> float:
        """Ln F, rounded up: the epsilon of one answer."""
        odds = math.log(self.subset / (self.units - self.subset))
        grown = self.rows * math.log(4) + 3 * (self.reach + 1) / self.scale  # proof: step 12
        exponent = grown + odds
        either = max(0.0, exponent) + math.log1p(math.exp(-abs(exponent)))  # log(1 + exp(exponent))
        return (either + 3 / self.scale) * _UP

    @property
    def flip_probability(self) -> Fraction:
        """With what probability the answer is turned, so that nothing is left to a delta: rounded up."""
        rate = float_up(Fraction(self.subset, self.units))
        rest = max(math.exp(self.log_miss) * rate * _UP, 2.0**-900)  # never 0, nor so small that it rounds to it
        return Fraction(min(0.5, rest / (math.expm1(self.log_factor) + 2 * rest) * _UP))  # proof: step 13

    @property
    def error(self) -> float:
        """About how much worse than the best hypothesis an answer is to be expected: a rule of thumb."""
        dimension, share = max(1, self.concept.vc_dimension), self.scale / self.units
        chosen = share * math.log(self.concept.growth(self.subset * self.rows))
        cover = dimension / self.subset
        chunks = 4 * dimension * self.teachers / self.units
        outvoted = math.exp(-self.teachers / (_CLEAR * self.scale))
        return chosen + cover + chunks + outvoted + float(self.flip_probability)

    @property
    def choice(self) -> StableChoice:
        """The choice of the hypothesis by which all units are relabelled."""
        epsilon = math.nextafter(2 / self.scale, 0)  # proof: step 12
        return StableChoice(concept=self.concept, units=self.units, subset=self.subset, epsilon=epsilon, rows=self.rows)

    @property
    def majority(self) -> SoftMajority:
        """The mechanism that counts the ballots of the answer."""
        return SoftMajority(
            teachers=self.teachers, epsilon_per_query=math.nextafter(1 / self.scale, 0)
        )  # proof: step 12

    def draw(self, records: UnitRows, row: NDArray[np.float64], **fitting: Any) -> int:
        """Draw the answer to one query. It must be charged `log_factor` before."""
        label = self.count_vote(records, self.choice.draw(records), row, **fitting)
        return flip(label, self.flip_probability)  # proof: step 13

    def count_vote(self, records: UnitRows, hypothesis: Hypothesis, row: NDArray[np.float64], **fitting: Any) -> int:
        """Relabel all units, fit teachers on disjoint chunks and put the query to their vote."""
        used = records.labels != NO_LABEL
        labels = np.full(len(records.labels), NO_LABEL)
        labels[used] = hypothesis.predict(records.points[used])
        deal, _ = deal_units(records.owners, records.units, teachers=self.teachers)
        ensemble = fit_concept_teachers(self.concept, records.points, labels, deal, **fitting)
        return int(release_votes(ensemble, row[np.newaxis, :], self.majority.answers).labels[0])


def _attempt(
    concept: Concept, *, units: int, epsilon: float, scale: float, share: float, teachers: int | None, rows: int
) -> PureRelabelling | None:
    """Return the largest subset that keeps epsilon with this scale and this share of it for the reach, if there is."""
    reach, remaining = math.floor(share * scale), epsilon * (1 - 1e-9) - 3 / scale
    if remaining <= 0 or scale > units / 4:
        return None
    odds = math.expm1(remaining) * math.exp(-rows * math.log(4) - 3 * (reach + 1) / scale)
    largest = concept.largest_set(units * rows) // rows
    subset = min(int(odds / (1 + odds) * units), units - 1, largest)
    if subset < 2:
        return None
    wanted = math.ceil(_CLEAR * scale * math.log(units / scale)) if teachers is None else teachers
    wanted = max(wanted, math.ceil(units / largest))  # or a chunk would be more than the class can go through
    scheme = PureRelabelling(
        concept=concept,
        units=units,
        subset=subset,
        scale=scale,
        reach=reach,
        teachers=min(units, wanted),
        rows=rows,
    )
    return scheme if scheme.log_factor <= epsilon else None


_SHARES = tuple(0.5 * 0.9**step for step in range(140))


def check_alpha(alpha: object) -> float:
    """Return `alpha` as a float if it is a probability with which a label may be turned: above 0 and below 1/2."""
    value = check_positive("alpha", alpha)
    if value >= 0.5:
        raise InvalidInput(f"alpha must be 'auto', or above 0 and below 0.5, not {alpha!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class PureStable:
    """A stable choice, and the probability with which its label is turned."""

    choice: StableChoice
    turned: Fraction

    @property
    def epsilon(self) -> float:
        """The epsilon of one answer, rounded up: the smaller of two bounds."""
        turned, rate = float(self.turned), self.choice.rate
        moved = math.log1p((1 - 2 * turned) * self.choice.gamma / turned)  # proof: step 10, first bound
        parts = max(self.choice.epsilon, math.log1p((1 - 2 * turned) * rate / turned))  # proof: step 10, second bound
        return min(moved, parts) * (1 + 1e-12)

    @classmethod
    def calibrate(
        cls,
        concept: Concept,
        *,
        units: int,
        epsilon: float,
        alpha: float | None = None,
        subset: int | None = None,
        rows: int = 1,
    ) -> "PureStable":
        """Return the choice and the probability that keep epsilon; `alpha` is the latter, where it is given."""
        units, epsilon = check_count("units", units), min(check_positive("epsilon", epsilon), _MOST)
        grown, inner = math.expm1(epsilon) * (1 - 1e-9), epsilon * (1 - 1e-9)
        if subset is not None:
            sizes = {check_count("subset", subset)}
        elif alpha is not None:
            sizes = {int(check_alpha(alpha) * grown / (1 - 2 * alpha) * units)}
        else:
            sizes = {int(share * units) for share in _SHARES}
        largest = concept.largest_set(units * rows) // rows
        schemes = [
            cls(
                choice=StableChoice(concept=concept, units=units, subset=size, epsilon=inner, rows=rows),
                turned=_flip_probability(Fraction(size, units), grown),
            )
            for size in {min(size, units, largest) for size in sizes} - {0}
        ]
        if not schemes:
            raise Infeasible(f"{units} units are too few for epsilon={epsilon:g}; raise epsilon or alpha")
        best = min(schemes, key=lambda scheme: scheme.error)
        if best.epsilon > epsilon:
            raise Infeasible(f"epsilon={epsilon:g} cannot be kept with a subset of {best.choice.subset} units")
        return best

    @property
    def error(self) -> float:
        """About how much worse than the best hypothesis an answer is to be expected: a rule of thumb."""
        choice = self.choice
        dimension, rows = max(1, choice.concept.vc_dimension), choice.subset * choice.rows
        cover = dimension / choice.subset
        chosen = math.log(choice.concept.growth(rows)) / float(choice.mechanism.rate) / (choice.units * choice.rows)
        return float(self.turned) + cover + chosen

    def draw(self, records: UnitRows, row: NDArray[np.float64]) -> int:
        """Draw the answer to one query. It must be charged `epsilon` before."""
        return flip(int(self.choice.draw(records).predict(row[np.newaxis, :])[0]), self.turned)


def _flip_probability(rate: Fraction, grown: float) -> Fraction:
    """Return how often a label must be turned so that a subset of this rate is covered for: q / (F - 1 + 2 q), up."""
    return Fraction(float_up(rate / (Fraction(grown) + 2 * rate)))  # proof: step 10


_METHODS = ("stable", "relabel", "realizable")
_ALPHA = 0.05  # aimed at by method="realizable" unless given


@dataclass(eq=False, repr=False)
class PureClassifier(ConceptClassifier):
    """A classifier of two classes whose answers satisfy pure differential privacy: there is no delta.

    Parameters
    ----------
    concept
        A class of `quorate.models.concepts`; stumps over all features by default.
    epsilon
        The total privacy loss allowed.
    method
        "stable": choose a hypothesis afresh for every answer by the stable method, and flip its label now and then.
        "relabel": relabel all records by such a choice and let teachers vote on the answer; asymptotically better, for
        very many records. "realizable": teachers on disjoint chunks and a soft majority; for labels that some
        hypothesis fits.
    queries
        How many answers share epsilon.
    classes
        Both labels. If not declared, the labels of `y` are used and become public.
    alpha
        For "stable", the probability that a label is flipped; for "realizable", the target error; or "auto".
    subset, teachers
        How many units define the candidates of "stable", and how many teachers vote; or "auto".
    records_per_person
        With `groups`: how many rows of each person are used, the first ones.
    n_jobs, backend
        As for `PrivateClassifier`.

    >>> import numpy as np
    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(20_000, 1))
    >>> classifier = PureClassifier(Thresholds(), epsilon=3.0, method="realizable", queries=2, classes=[0, 1])
    >>> classifier.fit(X, (X[:, 0] > 0.5).astype(int)).claim_  # there is no delta
    '(3, 0)-differentially private under replacement of one row'
    """

    _: KW_ONLY
    epsilon: float = 1.0
    method: Literal["stable", "relabel", "realizable"] = "stable"
    queries: int = 1
    alpha: float | Literal["auto"] = "auto"
    subset: int | Literal["auto"] = "auto"
    teachers: int | Literal["auto"] = "auto"
    n_jobs: int | None = None
    backend: str | None = None

    kind = "pure"
    saved_attributes = (
        *(*ConceptClassifier.saved_attributes, "epsilon_", "delta_", "epsilon_per_query_"),
        *("scheme_", "mechanism_"),  # None for the one that is not used
    )
    saved_types = (*ConceptClassifier.saved_types, PureStable, PureRelabelling, StableChoice, SoftMajority)

    def fit(self, X: Any, y: Any, groups: Any = None) -> "PureClassifier":
        """Calibrate one answer and open the budget. `groups` names the person of each row."""
        self.check_settings()
        records = self._records(X, y, groups)
        self.epsilon_, self.delta_ = float(self.epsilon), 0.0
        # A whole number of quanta, rounded down: as many answers as were planned fit the budget.
        majority = SoftMajority.calibrate(epsilon=self.epsilon_, teachers=1, queries=self.queries)
        self.epsilon_per_query_ = epsilon = majority.epsilon_per_query
        self.scheme_: Any = None
        self.mechanism_: Any = None
        shared: dict[str, Any] = {"units": records.units, "epsilon": epsilon, "rows": records.row_limit}
        ensemble = None
        if self.method == "realizable":
            ensemble = self._realizable(records, epsilon)
        elif self.method == "stable":
            alpha, subset = unless_auto(self.alpha), unless_auto(self.subset)
            self.scheme_ = PureStable.calibrate(self.concept_, alpha=alpha, subset=subset, **shared)
        else:
            self.scheme_ = PureRelabelling.calibrate(self.concept_, teachers=unless_auto(self.teachers), **shared)
        self.session_ = Session(self.answerer(records, ensemble), Budget(epsilon=self.epsilon_, delta=0.0))
        return self

    def answerer(self, records: UnitRows, ensemble: Ensemble | None, folder: Path | None = None) -> Answerer:
        """Return what draws an answer to each query from these records, or puts it to the vote."""
        scheme, cost = self.scheme_, Cost(self.epsilon_per_query_)
        if ensemble is not None:
            return Votes(ensemble, self.mechanism_)
        fitting = {} if isinstance(scheme, PureStable) else {"n_jobs": self.n_jobs, "backend": self.backend}
        return OneByOne(lambda row: scheme.draw(records, row, **fitting), cost, records=records)  # proof: step 8

    def claim_part(self) -> Node:
        """Return the account that pays for answers."""
        answered = {"query": Cost(self.epsilon_per_query_)}
        payer = self.mechanism_ if self.scheme_ is None else (self.scheme_, answered)
        return account_node(self.budget_, [payer], ledger=True)

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_choice("method", self.method, _METHODS)
        check_positive("epsilon", self.epsilon)
        check_count("queries", self.queries)
        if self.alpha != "auto":
            check_alpha(self.alpha)
            if self.subset != "auto" and self.method == "stable":
                raise InvalidInput("alpha= chooses a subset, and subset= is one: give one of them")
        check_auto_counts(self, "subset", "teachers")
        check_jobs(self.n_jobs)

    def _realizable(self, records: UnitRows, epsilon: float) -> Ensemble:
        """Return teachers on disjoint chunks whose soft majority answers (proof: step 14)."""
        alpha = _ALPHA if self.alpha == "auto" else self.alpha
        wanted = math.ceil(_CLEAR * math.log(1 / alpha) / epsilon) if self.teachers == "auto" else self.teachers
        if wanted > records.units:
            raise Infeasible(
                f"{wanted} teachers are needed for epsilon={epsilon:g} a query, and there are {records.units} units; "
                "raise epsilon, plan for fewer queries, or bring more units"
            )
        deal, _ = deal_units(records.owners, records.units, teachers=wanted)
        self.mechanism_ = SoftMajority(teachers=wanted, epsilon_per_query=epsilon)
        return fit_concept_teachers(
            self.concept_, records.points, records.labels, deal, n_jobs=self.n_jobs, backend=self.backend
        )
