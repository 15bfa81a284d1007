"""A semi-private learner (Beimel, Nissim and Stemmer 2013; Alon, Bassily and Moran 2019).

The ways in which a class of hypotheses can label some public points are finitely many. One hypothesis for each of them
is a candidate, and the exponential mechanism chooses among the candidates by their mistakes on the private rows.

Claim, mode="semi-private": what is left after `fit` is epsilon-differentially private under replacement of one unit's
rows (a row, or a person where `groups` are given). The public points are not protected.

Claim, mode="label-private": no public points are needed. The labels of every unit are protected: replacing one unit's
labels is epsilon-differentially private. The features are not protected: they define the candidates.

PROOF_CONCEPTS.md, steps 1 to 4, says why. Once fitted, nothing more is spent, whatever is predicted.
"""

import math
from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from quorate.checks import check_rate
from quorate.concepts import Dichotomies, Hypothesis
from quorate.mechanisms.exponential import ExponentialChoice
from quorate.predictors.unit_rows import UnitRows
from quorate.students.cover import CoverClassifier

__all__ = ["SemiPrivateClassifier"]


@dataclass(eq=False, repr=False, kw_only=True)
class SemiPrivateClassifier(CoverClassifier):
    """An ordinary classifier of two classes that may be published: one hypothesis, privately chosen by its mistakes.

    Parameters
    ----------
    concept
        The class of hypotheses, of `quorate.concepts`; stumps over all features unless given.
    epsilon, delta
        The privacy loss allowed. One choice needs no delta: the claim is that of delta = 0, whatever is allowed.
    classes
        Both labels. If they are not declared they are read from y, and count as public.
    points
        How many of the public points, chosen at random, define the candidates; all of them unless given. More points
        come closer to the best hypothesis of the class, and leave more candidates to choose from.
    rows_per_person
        With `groups`: how many rows of a person count, the first ones. Each mistake then weighs so much less.
    mode
        "semi-private" asks for `public` points; "label-private" takes the features of the records themselves. What is
        protected then is said at the top of this module.

    `hypothesis_` is what was chosen, `candidates_` among how many, `claim_` the guarantee. Nothing else of the private
    rows is kept.

    >>> import numpy as np
    >>> from quorate.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(5000, 1))
    >>> y = np.where(X[:, 0] > 0.25, "yes", "no")
    >>> public = np.linspace(0, 1, 101).reshape(-1, 1)
    >>> made = SemiPrivateClassifier(Thresholds(), epsilon=1.0, classes=["no", "yes"]).fit(X, y, public=public)
    >>> made.predict([[0.1], [0.4]])
    array(['no', 'yes'], dtype='<U3')
    """

    delta: float = 0.0

    def _choice(self) -> ExponentialChoice:
        return ExponentialChoice.calibrate(epsilon=self.epsilon, delta=self.delta, sensitivity=self.rows_per_person)

    def _check_settings(self, groups: Any, public: Any) -> None:
        super()._check_settings(groups, public)
        self._choice()

    def _select(self, candidates: Dichotomies, rows: UnitRows) -> tuple[Hypothesis, float]:
        choice = self._choice()
        return choice.choose(candidates.tally(rows.points, rows.labels)), choice.epsilon()  # proof: step 3

    def _claimed_delta(self) -> float:
        return 0.0

    def excess(self, *, beta: float = 0.05) -> int:
        """Return how many mistakes above the fewest of all candidates were made, with probability 1 - beta at most.

        The bound is made of public numbers (PROOF_CONCEPTS.md, step 4); rows that do not count are not among them.
        """
        check_is_fitted(self, "hypothesis_")
        surplus = math.log(self.candidates_) - math.log(check_rate("beta", beta))
        return math.ceil(surplus / float(self._choice().rate) * (1 + 1e-12))
