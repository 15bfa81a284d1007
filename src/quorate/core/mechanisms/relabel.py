"""Relabel gives all rows the labels of one hypothesis, chosen among the dichotomies of the rows' own points.

Claim (replace-one units of r labelled and s unlabelled rows): if whatever is run on the relabelled rows is
(epsilon, delta)-DP, or has a Renyi divergence of D, then run after relabelling it is (epsilon + term, delta)-DP, or has
a divergence of D + term. The term is r 2 ln(1 + e^(kappa/2)) + s ln 4. The labels themselves must not be released: they
may be used inside a mechanism that is charged, and nowhere else.
Proof: PROOF_relabel.md. The construction is LabelBoost (Beimel, Nissim and Stemmer 2015; Nandi and Bassily 2020).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.checks import check_count, check_positive, set_validated
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import (
    Concept,
    Hypothesis,
    Labels,
    Mask,
    Points,
    Tally,
    check_labels,
    check_points,
    which_labelled,
)
from quorate.core.hypotheses.sealed import seal_concept, works_alone
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy import Budget, Cost, relabelling_epsilon
from quorate.core.privacy.cost import float_up

_UNUSABLE = -1
_LEAST, _MOST = 1e-100, 2.0**40  # kappa: so that terms and bounds are numbers

Change = Literal["labelled", "unlabelled"]


class Relabelled:
    """New labels of rows, for use inside a mechanism only.

    Its repr shows nothing and it cannot be copied.

    `labels` are for the labelled rows and `unlabelled` for the others, in their order; -1 marks a row that could not be
    used because a value was missing or not declared, or because its label was neither 0 nor 1.
    """

    __slots__ = ("labels", "unlabelled")

    def __init__(self, labels: NDArray[np.int64], unlabelled: NDArray[np.int64]) -> None:
        self.labels, self.unlabelled = labels, unlabelled

    def __repr__(self) -> str:
        return "<sealed labels>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("relabelled rows cannot be copied, pickled or stored: use them inside of a mechanism")


@dataclass(frozen=True, kw_only=True)
class Relabel:
    """Relabelling by a class of hypotheses; `kappa` is the parameter of the choice among its dichotomies.

    >>> from quorate.models.concepts import Thresholds
    >>> relabel = Relabel(concept=Thresholds(), kappa=1.0)
    >>> round(relabel.epsilon(0.5), 4)
    2.4482
    >>> X, y = [float(x) for x in range(200)], [int(x >= 100) for x in range(200)]
    >>> new = relabel.relabel(X, y, unlabelled=[-5.0, 300.0])
    >>> new.unlabelled
    array([0, 1])
    """

    concept: Concept
    kappa: float

    def __post_init__(self) -> None:
        if not isinstance(self.concept, Concept):
            raise InvalidInput(f"concept must be a class of quorate.models.concepts, got {type(self.concept).__name__}")
        set_validated(self, kappa=check_positive("kappa", self.kappa))
        if not _LEAST <= self.kappa <= _MOST:
            raise InvalidInput(f"kappa must lie between 1e-100 and 2**40, got {self.kappa!r}")

    def epsilon(self, inner: float, *, change: Change = "labelled", rows: int = 1) -> float:
        """Return the epsilon of an `inner`-DP mechanism that is run on relabelled rows; its delta stays as it is."""
        term = self.relabelling_cost(change=change, rows=rows).renyi
        return math.nextafter(check_positive("inner", inner) + term, math.inf)

    def relabelling_cost(self, *, change: Change = "labelled", rows: int = 1) -> Cost:
        """Return what relabelling adds, at every order, to the cost of a mechanism that is run on the result."""
        return Cost(relabelling_epsilon(kappa=self.kappa, change=change, rows=rows))

    def relabel(
        self,
        X: Any,
        y: Any,
        *,
        unlabelled: Any = (),
        budget: Budget | None = None,
        rows: int = 1,
        rows_unlabelled: int = 1,
    ) -> Relabelled:
        """Return the rows with the labels of one hypothesis, the term charged to `budget` if there is one.

        What is run on them must be charged to the same budget. `rows` is the largest number of labelled rows of one
        unit, and `rows_unlabelled` that of unlabelled rows: both are charged. Set `rows_unlabelled=0` if the unlabelled
        rows are public, or if a unit has one row, labelled or not: a labelled row costs more, and is charged.
        """
        unit = check_count("rows", rows), check_count("rows_unlabelled", rows_unlabelled, least=0)
        return self.draw_relabelled(X, y, unlabelled, budget=budget, unit=unit, noise=system_noise)

    def _unit_cost(self, rows: int, rows_unlabelled: int) -> Cost:
        """Return the term of a unit with these numbers of rows of both kinds, rounded up."""
        cost = self.relabelling_cost(rows=rows)
        if rows_unlabelled == 0:
            return cost
        other = self.relabelling_cost(change="unlabelled", rows=rows_unlabelled)
        return Cost(float_up(Fraction(cost.renyi) + Fraction(other.renyi)))  # proof: step 5

    def draw_relabelled(
        self, X: Any, y: Any, unlabelled: Any, *, budget: Budget | None, unit: tuple[int, int], noise: NoiseSource
    ) -> Relabelled:
        """Charge for the labels, draw the hypothesis that gives them with this noise, and return them."""
        labelled, codes, unlabelled_points = self._check_rows(X, y, unlabelled)
        if budget is not None:
            budget.spend(self._unit_cost(unit[0], min(unit[1], len(unlabelled_points))))  # charge, then draw
        # A row that cannot be used must not define candidates, whatever the reason is, nor have a label of the one that
        # is chosen (proof: step 4). It keeps its place: how many rows can be used is private, and decides no refusal.
        used, free = self._usable(labelled) & which_labelled(codes), self._usable(unlabelled_points)
        tally = self.private_tally(_without(labelled, used), codes, _without(unlabelled_points, free))
        chosen = ExponentialChoice(epsilon=self.kappa).draw_choice(tally, None, noise)  # proof: step 1
        return Relabelled(_labels(chosen, labelled, used), _labels(chosen, unlabelled_points, free))

    def _check_rows(self, X: Any, y: Any, unlabelled: Any) -> tuple[Points, Labels, Points]:
        features = self.concept.features
        labelled = check_points(X, features=features)
        codes = check_labels(y, rows=len(labelled))
        return labelled, codes, check_points(unlabelled, features=features, name="unlabelled")

    def _usable(self, points: Points) -> Mask:
        """Return which rows are points of the class, and such that it does not fail on them: each by itself."""
        usable = seal_concept(self.concept).usable(points)
        usable[usable] = works_alone(self.concept, points[usable])  # proof: step 4
        return usable

    def private_tally(self, labelled: Points, labels: Labels, unlabelled: Points) -> Tally:
        """Return the candidates: the dichotomies of all points together, by their mistakes on the labelled ones."""
        every = np.concatenate([labelled, unlabelled])  # proof: step 2
        return seal_concept(self.concept).dichotomies(every).tally(labelled, labels)


def _without(points: Points, usable: Mask) -> Points:
    """Return the points with nothing in the places of rows that cannot be used."""
    return np.where(usable[:, np.newaxis], points, np.nan)


def _labels(chosen: Hypothesis, points: Points, usable: Mask) -> Labels:
    labels = np.full(len(points), _UNUSABLE, dtype=np.int64)
    labels[usable] = chosen.predict(points[usable])
    return labels
