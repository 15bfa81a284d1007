"""From query release to a hypothesis (Beimel, Nissim and Stemmer 2013; Bassily et al. 2020, Lemma 17).

Releasing the number of rows that h gets wrong, for every h of a cover, yields a learner: take the h with the smallest
released number. Here every number is released with its own noise, which is the simplest way. It costs more than
choosing one hypothesis (SemiPrivateClassifier), and reveals more: the errors of all candidates.

Claim: the fitted object, `mistakes_` included, is (epsilon, delta)-differentially private under replacement of one
unit's rows, or of one unit's labels with mode="label-private". PROOF_CONCEPTS.md, steps 1, 2 and 5, has the proof.
"""

import math
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate.core.checks import check_rate
from quorate.core.mechanisms import NoisySum
from quorate.models.concepts import Dichotomies, Hypothesis
from quorate.models.predictors.unit_rows import UnitRows
from quorate.models.saving.contract import State
from quorate.models.students.cover import CoverClassifier


class QueryReleaseClassifier(CoverClassifier):
    """The best of all candidates, released with the noisy number of mistakes of each.

    The parameters are those of `SemiPrivateClassifier`; delta must be above 0. `mistakes_` has the released number for
    each candidate, in the order of `concept.dichotomies(public)`; noise may make it negative. `hypothesis_` is the
    first candidate with the smallest number.

    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(5000, 1))
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> made = QueryReleaseClassifier(Thresholds(), epsilon=1.0, delta=1e-6, classes=[0, 1])
    >>> made.fit(X, y, public=np.linspace(0, 1, 11).reshape(-1, 1)).predict([[0.1], [0.9]])
    array([0, 1])
    >>> made.mistakes_.shape  # eleven public points tell 22 thresholds apart, in both directions
    (22,)
    """

    kind = "published hypothesis"

    def to_state(self) -> State:
        """Return the state of the hypothesis, and the released mistakes."""
        state = super().to_state()
        state.values = {**state.values, "mistakes": self.mistakes_.tolist()}
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state, as it was after `fit`."""
        model = super().from_state(state)
        model.mistakes_ = np.array(state.values["mistakes"], dtype=np.int64)
        return model

    def _noisy(self, candidates: int) -> NoisySum:
        return NoisySum.calibrate(
            epsilon=self.epsilon, delta=self.delta, sensitivity=self.rows_per_person, releases=candidates
        )

    def _check_settings(self, groups: Any, public: Any) -> None:
        super()._check_settings(groups, public)
        self._noisy(1)

    def _select(self, candidates: Dichotomies, rows: UnitRows) -> tuple[Hypothesis, float]:
        noisy = self._noisy(len(candidates))
        mistakes = noisy.releases(candidates.mistakes(rows.points, rows.labels).tolist())  # proof: step 5
        self.mistakes_ = np.array(mistakes, dtype=np.int64)
        spent = min(float(self.epsilon), noisy.epsilon(delta=self.delta, releases=len(candidates)))
        return candidates[int(np.argmin(self.mistakes_))], spent

    def excess(self, *, beta: float = 0.05) -> int:
        """Bound the mistakes beyond the fewest of all candidates, with probability 1 - beta."""
        check_is_fitted(self, "hypothesis_")
        tails = math.log(2 * self.candidates_) - math.log(check_rate("beta", beta))
        return math.ceil(2 * self._noisy(self.candidates_).scale * math.sqrt(2 * tails) * (1 + 1e-12))
