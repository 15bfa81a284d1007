"""StableClassifier: gamma-uniformly stable predictions (Dagan and Feldman 2020, Theorem 1).

Claim: the probability of either label of a prediction changes by at most gamma when one unit's rows (a row, or a person
if `groups` are given) are replaced by others. This is uniform stability, and the same as (0, gamma)-differential
privacy of one prediction; m predictions together change by at most m * gamma. It bounds the effect of one unit; it is
not a budget: nothing is ever refused. PROOF_CONCEPTS.md, steps 6 to 8, has the proof.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

from sklearn.utils.validation import check_is_fitted

from quorate.core.answerers import OneByOne
from quorate.core.checks import check_count
from quorate.core.ledger import LOST, LedgerView
from quorate.core.privacy import Cost
from quorate.core.privacy.cost import text_up
from quorate.core.session import Session
from quorate.models.concepts import Concept
from quorate.models.predictors.concept_classifier import ConceptClassifier
from quorate.models.predictors.stable_choice import Calibration, StableChoice, check_gamma
from quorate.models.predictors.unit_rows import UnitRows
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import State
from quorate.models.saving.hypotheses import CONCEPTS


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
    rows_per_person
        With `groups`: how many rows of each person are used, the first ones.
    calibration
        "tight", or "paper" for the published constants, which are more conservative than necessary.

    >>> import numpy as np
    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(2000, 1))
    >>> classifier = StableClassifier(Thresholds(), gamma=0.1, classes=["low", "high"])
    >>> classifier.fit(X, np.where(X[:, 0] > 0.5, "low", "high")).predict([[0.1], [0.9]]).labels
    array(['high', 'low'], dtype='<U4')
    """

    concept: Concept | None = None
    _: KW_ONLY
    gamma: float = 0.1
    classes: Any = None
    subset: int | Literal["auto"] = "auto"
    rows_per_person: int = 1
    calibration: Calibration = "tight"

    kind = "stable"

    def fit(self, X: Any, y: Any, groups: Any = None) -> "StableClassifier":
        """Keep the records and calibrate the predictions. `groups` names the person of each row."""
        self.check_settings()
        records = self._records(X, y, groups)
        self.choice_ = StableChoice.calibrate(
            self.concept_,
            units=records.units,
            gamma=self.gamma,
            subset=stable_subset(self.concept_, self.subset, units=records.units, gamma=self.gamma, rows=records.most),
            rows=records.most,
            calibration=self.calibration,
        )
        self.session_ = Session(self.answerer(records), None)
        return self

    def to_state(self) -> State:
        """Return what was calibrated, and the records."""
        state = self.concept_state(choice=to_plain(self.choice_))
        state.put_arrays("records", **self.session_.answerer.records.to_arrays())
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state; its answers are kept in the ledger, whose account is not charged."""
        assert state.home is not None
        model = cls.from_concept_state(state)
        model.choice_ = from_plain(state.values["calibrated"]["choice"], StableChoice, *CONCEPTS)
        answerer = model.answerer(UnitRows.from_arrays(state.arrays("records")))
        model.session_ = state.home.open_session(answerer, charged=False)
        return model

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: LedgerView) -> LedgerView:
        """Return the view without a guarantee for all predictions: each has a delta, and their number is open."""
        return replace(view, epsilon=0.0, delta=1.0, spent_epsilon=0.0)

    def answerer(self, records: UnitRows) -> OneByOne:
        """Return what draws a hypothesis for each query, from these records."""
        choice = self.choice_
        return OneByOne(lambda row: int(choice.draw(records).predict(row[None, :])[0]), Cost(0.0), records=records)

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_gamma(self.gamma)

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
        return str(self._claim(0.0, self.stability_, what=prediction))

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
        draws = self.session_.answerer.drawn if ledger is None else ledger.answers_kept()
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
