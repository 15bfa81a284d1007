"""StableClassifier: gamma-uniformly stable predictions (Dagan and Feldman 2020, Theorem 1).

Claim: the probability of either label of a prediction changes by at most gamma when one unit's rows (a row, or a person
if `groups` are given) are replaced by others. This is uniform stability, and the same as (0, gamma)-differential
privacy of one prediction; m predictions together change by at most m * gamma. It bounds the effect of one unit; it is
not a budget: nothing is ever refused. PROOF_CONCEPTS.md, steps 6 to 8, has the proof.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import secret_subset
from quorate.core.answerers import OneByOne
from quorate.core.checks import check_count, check_positive, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.sealed import seal_concept
from quorate.core.ledger import LOST, LedgerView
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy import Cost
from quorate.core.privacy.claims import Node, stable_node
from quorate.core.privacy.cost import float_up, text_up
from quorate.core.session import Session
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.predictors.concept_classifier import ConceptClassifier, UnitRows

_DOWN = 1 - 1e-9


def check_gamma(gamma: object) -> float:
    """Return `gamma` as a float if it lies between 0 and 1, both excluded."""
    value = check_positive("gamma", gamma)
    if value >= 1:
        raise InvalidInput(f"gamma must be above 0 and below 1, not {gamma!r}")
    return value


def flip(label: int, probability: Fraction) -> int:
    """Return the label, or with this probability the other one: randomised response on one bit.

    The draw is exact, a whole number below another. PROOF_CONCEPTS.md, steps 10 and 13, says what it buys.
    """
    if not 0 <= probability <= 1 or label not in (0, 1):
        raise InvalidInput("flip takes a label, 0 or 1, and a probability")
    return label ^ (secrets.randbelow(probability.denominator) < probability.numerator)


@dataclass(frozen=True, kw_only=True)
class StableChoice:
    """A secret random subset of `subset` of the `units` defines the candidates; all units choose among them."""

    concept: Concept
    units: int
    subset: int
    epsilon: float
    rows: int = 1

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.subset > self.units:
            raise InvalidInput(f"subset must be at most units={self.units}, not {self.subset}")
        self.concept.check_size(self.subset * self.rows)

    @classmethod
    def calibrate(
        cls,
        concept: Concept,
        *,
        units: int,
        gamma: float,
        subset: int | None = None,
        rows: int = 1,
    ) -> "StableChoice":
        """Return the choice whose law moves by at most `gamma`.

        Half of gamma goes to the subset unless its size is given, and the rest to the exponential mechanism.
        """
        gamma, units = check_gamma(gamma), check_count("units", units)
        size = math.floor(Fraction(gamma) / 2 * units) if subset is None else check_count("subset", subset)
        if size < 1:
            needed = math.ceil(2 / Fraction(gamma))
            raise Infeasible(f"gamma={gamma:g} takes at least {needed} units, and there are {units}; raise gamma")
        rate = Fraction(size, units)
        if rate > Fraction(gamma) * Fraction(999_999, 1_000_000):
            raise Infeasible(
                f"a subset of {size} of {units} units alone moves a prediction by {float(rate):.3g}, which leaves "
                f"nothing of gamma={gamma:g}; take a smaller subset"
            )
        epsilon = 4 * math.atanh(float((Fraction(gamma) - rate) / (1 - rate))) * _DOWN  # proof: step 7
        choice = cls(concept=concept, units=units, subset=size, epsilon=epsilon, rows=rows)
        if choice.gamma > gamma:
            raise Infeasible(f"gamma={gamma:g} is too near to 1 to be kept; lower it")
        return choice

    @property
    def rate(self) -> float:
        """The share of units in the subset, rounded up."""
        return float_up(Fraction(self.subset, self.units))

    @property
    def gamma(self) -> float:
        """By how much the law of the hypothesis moves when one unit is replaced, at most, rounded up."""
        moved = self.rate + (1 - self.rate) * math.tanh(self.epsilon / 4)  # proof: step 7
        return min(1.0, moved * (1 + 1e-12))

    @property
    def mechanism(self) -> ExponentialChoice:
        """The choice among the candidates."""
        return ExponentialChoice(epsilon=self.epsilon, sensitivity=self.rows)  # proof: step 6

    def draw(self, records: UnitRows) -> Hypothesis:
        """Draw a hypothesis. It is no release: only what is computed from it may leave, as often as is accounted."""
        return self.draw_from(records, secret_subset(records.units, self.subset))

    def draw_from(self, records: UnitRows, units: NDArray[np.int64]) -> Hypothesis:
        """Draw a hypothesis among the candidates that these units define."""
        defining = records.points[records.places(units)]  # points alone, never a label: proof, step 6
        candidates = seal_concept(self.concept).dichotomies(defining)  # proof: step 0
        return self.mechanism.choose(candidates.tally(records.points, records.labels))


@dataclass(eq=False, repr=False)
class StableClassifier(ConceptClassifier):
    """A classifier of two classes whose every prediction is gamma-uniformly stable.

    Each prediction draws a new hypothesis: a secret random subset of the records defines the candidates, and the
    exponential mechanism on all records chooses among them.

    Parameters
    ----------
    concept
        A class of `quorate.models.concepts`; stumps over all features by default.
    gamma
        The most that one unit may change the probability of a label.
    classes
        Both labels. If not declared, the labels of `y` are used and become public.
    subset
        How many units define the candidates, or "auto": a share of gamma / 2, and no more than the class can
        enumerate. A smaller subset is faster and leaves more of gamma to the choice.
    records_per_person
        With `groups`: how many rows of each person are used, the first ones.

    >>> import numpy as np
    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(2000, 1))
    >>> classifier = StableClassifier(Thresholds(), gamma=0.1, classes=["low", "high"])
    >>> classifier.fit(X, np.where(X[:, 0] > 0.5, "low", "high")).predict([[0.1], [0.9]]).labels
    array(['high', 'low'], dtype='<U4')
    """

    _: KW_ONLY
    gamma: float = 0.1
    subset: int | Literal["auto"] = "auto"

    kind = "stable"
    charged = False
    saved_attributes = (*ConceptClassifier.saved_attributes, "choice_")
    saved_types = (*ConceptClassifier.saved_types, StableChoice)

    def fit(self, X: Any, y: Any, groups: Any = None) -> "StableClassifier":
        """Keep the records and calibrate the predictions. `groups` names the person of each row."""
        self.check_settings()
        records = self._records(X, y, groups)
        self.choice_ = StableChoice.calibrate(
            self.concept_,
            units=records.units,
            gamma=self.gamma,
            subset=stable_subset(
                self.concept_, self.subset, units=records.units, gamma=self.gamma, rows=records.row_limit
            ),
            rows=records.row_limit,
        )
        self.session_ = Session(self.answerer(records, None), None)
        return self

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: LedgerView) -> LedgerView:
        """Return the view without a guarantee for all predictions: each has a delta, and their number is open."""
        return replace(view, epsilon=0.0, delta=1.0, spent_epsilon=0.0)

    def answerer(self, records: UnitRows, ensemble: Any, folder: Path | None = None) -> OneByOne:
        """Return what draws a hypothesis for each query, from these records."""
        choice = self.choice_
        return OneByOne(lambda row: int(choice.draw(records).predict(row[None, :])[0]), Cost(0.0), records=records)

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_gamma(self.gamma)

    def claim_part(self) -> Node:
        """Return the choice by which each prediction is made."""
        return stable_node(self.stability_, self.choice_)

    @property
    def stability_(self) -> float:
        """The most that one unit can change the probability of a label: at most gamma."""
        return self.choice_.gamma

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence.

        >>> print(StableClassifier(gamma=0.5, classes=[0, 1]).fit([[0.0], [1.0]] * 30, [0, 1] * 30).claim_)
        each prediction is 0.5-uniformly stable: (0, 0.5)-differentially private under replacement of one row
        """
        prediction = f"each prediction is {text_up(self.stability_)}-uniformly stable:"
        return str(self._claim(0.0, self.stability_, subject=prediction))

    def spent_epsilon(self) -> float:
        """Return 0: the cost of all predictions together is a delta, `spent_delta`."""
        check_is_fitted(self)
        return 0.0

    def spent_delta(self) -> float:
        """Return how much one unit can change all predictions so far together: gamma for each, at most 1.

        It is 1 if the ledger was restored from an old copy, which does not know how many were drawn after the copy.

        >>> classifier = StableClassifier(gamma=0.1).fit([[0.0], [1.0]] * 100, [0, 1] * 100)
        >>> answers = classifier.predict([[0.0], [1.0], [1.0]])
        >>> round(classifier.spent_delta(), 6)
        0.2
        """
        check_is_fitted(self)
        ledger = self.session_.ledger
        draws = self.session_.answerer.drawn if ledger is None else ledger.count_answers()
        if ledger is not None and ledger.choice() == LOST:
            return 1.0
        return min(1.0, self.stability_ * draws)


def stable_subset(
    concept: Concept, subset: int | Literal["auto"], *, units: int, gamma: float, rows: int
) -> int | None:
    """Return the size of the subset where it is not gamma / 2 of the units: as given, or all that the class takes."""
    if subset != "auto":
        return check_count("subset", subset)
    wanted = int(gamma / 2 * units)
    size = concept.largest_set(max(1, wanted) * rows) // rows
    return max(1, size) if size < wanted else None
