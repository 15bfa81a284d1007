"""Models of neighbours with less noise than is charged for: found by who was in the data, from answers alone."""

from dataclasses import replace
from typing import Any

from planted.bug import Caught, kind_bug
from planted.membership import attack_membership, make_targets
from planted.traced import neighbour_means
from quorate.auditing import trace
from quorate.auditing.replay import entropy_tape
from quorate.models.knn import NeighbourClassifier, NeighbourRegressor
from quorate.models.knn._estimators import NeighbourModel

_LESS = 200.0  # times less noise
_DELTA, _SURE = 1e-6, 1 - 1e-9


class _LittleNoise(NeighbourModel):
    """Has less noise than units are charged for, as the public code of Private-kNN has."""

    def open(self, *given: Any, **named: Any) -> None:
        """Draw noise of a small part of the scale: that is the mistake."""
        self.terms_ = replace(self.terms_, scale=self.terms_.scale / _LESS)
        super().open(*given, **named)


class _LoudClassifier(_LittleNoise, NeighbourClassifier):
    """Shares of votes with little noise."""


class _LoudRegressor(_LittleNoise, NeighbourRegressor):
    """Means of votes with little noise."""


def _traced(make: type[NeighbourRegressor], _plays: int, seed: int) -> Caught:
    """Release the means of a thousand questions, and look for the people whose answers they are made of."""
    with entropy_tape(seed):
        means = neighbour_means(epsilon=1.0, delta=_DELTA, make=make)
        traced = trace(means, stumps=1000, people=50, strangers=800, seed=seed)
    excess = traced.excess(epsilon=1.0, delta=_DELTA, confidence=_SURE)
    return Caught("tracing", f"members exceed what the claim allows by {excess:.2f}", found=excess > 0)


def _inferred(make: type[NeighbourClassifier], _plays: int, seed: int) -> Caught:
    """Ask about records with unlikely labels, and tell those that are there from those that are not."""
    targets = make_targets(records=100, targets=20, features=4, seed=1)
    claimed = NeighbourClassifier(epsilon=0.5, delta=_DELTA, radius=0.1, votes=4.0, classes=[0, 1], scores=True)

    def train(X: Any, y: Any) -> Any:
        return make(**claimed.get_params(deep=False)).fit(X, y).predict_proba

    with entropy_tape(seed):
        roc = attack_membership(train, targets, models=30)
        terms = claimed.fit(targets.rest, targets.rest_labels).terms_
    excess = roc.excess(epsilon=terms.replaced_epsilon(), delta=_DELTA, confidence=_SURE)
    return Caught("membership inference", f"hits exceed what the claim allows by {excess:.2f}", found=excess > 0)


NEAREST = (
    kind_bug("means_with_little_noise", "replay", _LoudRegressor, NeighbourRegressor, _traced),
    kind_bug("shares_with_little_noise", "replay", _LoudClassifier, NeighbourClassifier, _inferred),
)
