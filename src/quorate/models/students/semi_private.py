"""A semi-private learner (Beimel, Nissim and Stemmer 2013; Alon, Bassily and Moran 2019).

A class of hypotheses has finitely many dichotomies on some public points. One hypothesis for each of them is a
candidate, and the exponential mechanism chooses among the candidates by their mistakes on the private rows.

Claim, mode="semi-private": the fitted object is epsilon-differentially private under replacement of one unit's rows (a
row, or a person if `groups` are given). The public points are not protected.

Claim, mode="label-private": no public points are needed. The labels of every unit are protected: replacing one unit's
labels is epsilon-differentially private. The features are not protected: they define the candidates.

PROOF_CONCEPTS.md, steps 1 to 4, has the proof. Once fitted, predictions cost nothing more.
"""

import math
from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from quorate.core.checks import check_rate
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.models.concepts import Dichotomies, Hypothesis
from quorate.models.predictors.unit_rows import UnitRows
from quorate.models.students.cover import CoverClassifier


@dataclass(eq=False, repr=False, kw_only=True)
class SemiPrivateClassifier(CoverClassifier):
    """A publishable classifier of two classes: one hypothesis, chosen privately by its mistakes.

    Parameters
    ----------
    concept
        The class of hypotheses, from `quorate.models.concepts`; stumps over all features by default.
    epsilon, delta
        The privacy loss allowed. One choice needs no delta: the claim has delta = 0, whatever delta is given.
    classes
        Both labels. If not declared, they are read from `y` and become public.
    points
        How many of the public points, chosen at random, define the candidates; all of them by default. More points come
        closer to the best hypothesis of the class, but leave more candidates to choose from.
    rows_per_person
        With `groups`: how many rows of each person count, the first ones. Each mistake then weighs that much less.
    mode
        "semi-private" needs `public` points; "label-private" uses the features of the records themselves. The top of
        this module states what is then protected.

    `hypothesis_` is the chosen hypothesis, `candidates_` the number of candidates, `claim_` the guarantee. Nothing else
    of the private rows is kept.

    >>> import numpy as np
    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(5000, 1))
    >>> y = np.where(X[:, 0] > 0.25, "yes", "no")
    >>> public = np.linspace(0, 1, 101).reshape(-1, 1)
    >>> made = SemiPrivateClassifier(Thresholds(), epsilon=1.0, classes=["no", "yes"]).fit(X, y, public=public)
    >>> made.predict([[0.1], [0.4]])
    array(['no', 'yes'], dtype='<U3')
    """

    kind = "published hypothesis"

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
        """Bound the mistakes beyond the fewest of all candidates, with probability 1 - beta.

        The bound is computed from public numbers (PROOF_CONCEPTS.md, step 4). It does not include rows that do not
        count.
        """
        check_is_fitted(self, "hypothesis_")
        surplus = math.log(self.candidates_) - math.log(check_rate("beta", beta))
        return math.ceil(surplus / float(self._choice().rate) * (1 + 1e-12))
