"""Scores of the vote, each with one mistake: noise for one count where two move, weights that all records make."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from planted.attacks import judge
from planted.bug import Caught, maker_bug, twin_bug
from quorate.auditing._enumeration import Outcomes, claims_of
from quorate.auditing._laws import Votes, gaussian
from quorate.auditing.replay import Replay, replay
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyShares, NoisySum
from quorate.core.privacy import Cost, gaussian_renyi
from quorate.models.predictors import PrivateClassifier

_SCALES = 12  # of noise that are enumerated: what is beyond has a probability below 1e-30
_MOST = 2_000_000  # combinations of noise


class _EveryNoise:
    """Gives every combination of noises once, as one query's draws after another's."""

    def __init__(self, grid: NDArray[np.int64]) -> None:
        self._grid = grid

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        if size != self._grid.size:
            raise InvalidInput("the mechanism draws other noise than is enumerated")
        return self._grid.ravel()


def share_outcomes(mechanism: NoisyShares, votes: Votes, neighbour: Votes) -> Outcomes:
    """Return the exact distributions of the answer to one query, for these votes and for those of a neighbour.

    The code is run on every combination of noises, and answers are counted by their probability: a mistake in the
    projection, the grid or its numbering shows in the distribution.
    """
    draws = 1 if mechanism.classes == 2 else mechanism.classes
    reach = math.ceil(_SCALES * mechanism.scale) + 1
    if (2 * reach + 1) ** draws > _MOST:
        raise InvalidInput("too many combinations of noise to enumerate; take a smaller scale or fewer classes")
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * draws, indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1)
    law = gaussian(mechanism.scale, reach + 1)
    answers, chances = [], []
    for counts in (votes, neighbour):  # noisy counts are the same for both: the noise makes up for the moved ballot
        noises = grid + (np.array(votes) - np.array(counts))[-draws:]
        noise: Any = _EveryNoise(noises)
        answers.append(mechanism.draw_labels(np.tile(np.array(counts), (len(grid), 1)), noise))
        chances.append(np.prod(law[noises + reach + 1], axis=1))
    _, codes = np.unique(np.concatenate(answers), return_inverse=True)
    size, parts = int(codes.max()) + 1, np.split(codes.ravel(), 2)
    laws = (np.bincount(part, weights=law, minlength=size) for part, law in zip(parts, chances, strict=True))
    return Outcomes.from_laws(*laws)


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
    twin_bug(
        "scores_for_one_count",
        "enumeration",
        ChargedForOneCount,
        NoisyShares,
        attack_charge,
        teachers=40,
        classes=3,
        scale=1.5,
    ),
    maker_bug("classes_weighed_by_all", "replay", _classifier, WeighedByAll, PrivateClassifier, attack_weights),
)
