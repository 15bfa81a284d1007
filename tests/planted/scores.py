"""Scores of the vote, each with one mistake: noise for one count where two move, weights that all records make."""

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from planted.attacks import judge
from planted.bug import Caught, PlantedBug
from quorate.auditing._enumeration import claims_of
from quorate.auditing._sums import share_outcomes
from quorate.auditing.replay import Replay, replay
from quorate.core.mechanisms import NoisyShares, NoisySum
from quorate.core.privacy import Cost, gaussian_renyi
from quorate.models.predictors import PrivateClassifier


class ChargedForOneCount(NoisyShares):
    """Charges for one count that moves by 1, and with three classes two of them do."""

    def query_cost(self, order: float) -> Cost:
        return Cost(gaussian_renyi(scale=self.scale, order=order))  # the mistake

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        return NoisySum(sensitivity=1, scale=self.scale).epsilon(delta=delta, releases=queries)


class WeighedByAll(PrivateClassifier):
    """Balances the classes by their shares among all records: one of them moves every teacher."""

    def fit(self, X: Any, y: Any, *arguments: Any, **options: Any) -> "WeighedByAll":
        counts = np.bincount(y, minlength=2)
        self.class_weight = (len(y) / (2 * np.maximum(counts, 1))).tolist()  # the mistake
        super().fit(X, y, *arguments, **options)
        return self


def attack_charge(target: NoisyShares) -> Caught:
    """Enumerate the answers to a query of three classes on which one ballot moves."""
    outcomes = share_outcomes(target, (13, 13, 14), (14, 12, 14))
    claims = claims_of(target, queries=1, orders=[2.0, 8.0, 32.0], deltas=[1e-6, 1e-3])
    return judge([outcomes], claims)


def attack_weights(target: PrivateClassifier) -> Caught:
    """Replay one tape of noise on two data sets that differ in one record, and look at who votes otherwise."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(600, 1)), np.arange(600) % 12 == 0
    codes, queries = y.astype(np.int64), np.linspace(-2, 2, 60)[:, np.newaxis]
    other = codes.copy()
    other[1] = 1
    found: Replay = replay(lambda: target, (X, codes), (X, other), queries)
    evidence = "; ".join(found.forbidden) or "the ballots of one teacher differ at most"
    return Caught("replay on neighbours", evidence, found=not found.sound)


def _classifier(kind: type[PrivateClassifier]) -> PrivateClassifier:
    settings: dict[str, Any] = {"epsilon": 50.0, "teachers": 20, "queries": 200, "classes": [0, 1], "scores": True}
    return kind(LogisticRegression(), class_weight="balanced", **settings)


SCORES = (
    PlantedBug(
        "scores_for_one_count",
        "enumeration",
        lambda: ChargedForOneCount(teachers=40, classes=3, scale=1.5),
        lambda: NoisyShares(teachers=40, classes=3, scale=1.5),
        attack_charge,
    ),
    PlantedBug(
        "classes_weighed_by_all",
        "replay",
        lambda: _classifier(WeighedByAll),
        lambda: _classifier(PrivateClassifier),
        attack_weights,
    ),
)
