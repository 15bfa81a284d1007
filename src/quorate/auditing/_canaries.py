"""Audit one fit: records that a coin chose, guesses which of the two they are, and what so many right guesses show.

Each of m canaries is a pair of records. A fair coin says which of the two is in the table, for each canary on its own.
From all that was released, an attacker guesses r of the coins. How many right guesses a claim allows: PROOF.md, by the
bound of Mahloujifar, Melis and Chaudhuri (2024), which sharpens Steinke, Nasr and Jagielski (2023).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import clone

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.noisy_vector import largest_length, smallest_excess
from quorate.models.knn import NeighbourClassifier
from quorate.release import QueryRelease, Workload
from quorate.release.queries import Marginals

_HALVINGS = 40
_FEATURES, _RADIUS = 64, 0.3  # directions at random in so many dimensions are further apart than that
Inverse = Callable[[float], float]  # of the function g of PROOF.md


def gaussian_curve(length: float) -> Inverse:
    """Return the inverse of g for a Gaussian that a replaced record moves by this length."""
    return lambda probability: float(ndtr(ndtri(probability) - length)) if probability > 0 else 0.0


def tail_bound(correct: int, *, guesses: int, canaries: int, curve: Inverse) -> float:
    """Return an upper bound on the probability of at least so many right guesses, rounded up."""
    if not 0 <= correct <= guesses <= canaries:
        raise InvalidInput("the right guesses are a part of the guesses, and these of the canaries")
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _is_possible(middle, correct, guesses, canaries, curve) else (low, middle)
    return high


def _is_possible(tail: float, correct: int, guesses: int, canaries: int, curve: Inverse) -> bool:
    """Return whether the recursion stays below 1 (PROOF.md, step 3)."""
    above = 0.0  # R(c + 1) + ... + R(r)
    for count in range(correct, 0, -1):
        right = min(1.0, (count * tail + above) / canaries)
        above += tail
        tail = max(tail, (above + canaries * curve(right)) / (guesses - count + 1))
        if tail > 1.0:
            return False
    return True


class OneFit(NamedTuple):
    """What the guesses of one fit show: a lower bound on epsilon at the claimed delta, of Gaussian noise."""

    canaries: int
    guesses: int
    correct: int
    chance: float  # of so many right guesses, at most, if the claim is true
    lower_bound: float
    claim: tuple[float, float]

    @property
    def violated(self) -> bool:
        """Whether epsilon is above the claim."""
        return self.lower_bound > self.claim[0]


def judge_guesses(
    scores: Floats, coins: Integers, *, epsilon: float, delta: float, confidence: float = 0.95, share: float = 0.3
) -> OneFit:
    """Guess the coins whose scores are the largest, whatever their sign, and return what the right guesses show.

    The claim is that of Gaussian noise, which is stronger than (epsilon, delta): that a replaced record moves what is
    released by at most the length that (epsilon, delta) allows. A sound model is above its claim with a probability of
    at most 1 - confidence.

    Parameters
    ----------
    scores
        One number a canary: positive where the first record seems to be in the table.
    coins
        1 where the first record is in the table, -1 where the second is.
    epsilon, delta
        The claim.
    confidence
        The probability with which the lower bound holds.
    share
        The share of canaries that is guessed, fixed before the scores are seen.

    >>> draw = np.random.default_rng(0)
    >>> coins = draw.choice([-1, 1], 1000)
    >>> judge_guesses(draw.normal(size=1000) + 3 * coins, coins, epsilon=1.0, delta=1e-6).violated
    True
    >>> judge_guesses(draw.normal(size=1000), coins, epsilon=1.0, delta=1e-6).lower_bound
    0.0
    """
    guesses = max(1, round(check_rate("share", share) * len(coins)))
    chosen = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    correct = int((np.sign(scores[chosen]) == np.asarray(coins)[chosen]).sum())

    def chance(length: float) -> float:
        return tail_bound(correct, guesses=guesses, canaries=len(coins), curve=gaussian_curve(length))

    low, high = 0.0, 8.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) <= 1 - confidence else (low, middle)
    lower_bound = smallest_excess(low, delta=delta, entries=1) if low > 0 else 0.0
    claimed = largest_length(epsilon=epsilon, delta=delta, entries=1)
    return OneFit(len(coins), guesses, correct, chance(claimed), lower_bound, (epsilon, delta))


def audit_release_once(
    release: QueryRelease | None = None,
    *,
    canaries: int = 1000,
    records: int = 20_000,
    confidence: float = 0.95,
    draw: Any = None,
) -> OneFit:
    """Fit a release once, on a table with canaries, with its real noise, and return what guesses show.

    Each canary has two cells of its own in a table of two columns, and one record, which a coin puts into one of them.
    The attacker knows all other records. A fit with less noise than it claims is found with few canaries where epsilon
    is large, and not where it is small: a thousand guesses show little of an epsilon of 1.

    Parameters
    ----------
    release
        Settings of a release: epsilon, delta and engine count. By default epsilon is 4.
    canaries, records
        The number of pairs, and of all records.
    confidence
        The probability with which a sound release is not reported.
    draw
        A generator for the table and the coins, never for noise.

    >>> found = audit_release_once(canaries=200, records=2000, confidence=1 - 1e-9)
    >>> found.guesses, found.violated
    (60, False)
    """
    release = (
        QueryRelease(Workload.marginals(2), epsilon=4.0, delta=1e-6, engine="plain") if release is None else release
    )
    canaries, draw = check_count("canaries", canaries), np.random.default_rng() if draw is None else draw
    side = math.isqrt(2 * canaries - 1) + 1
    bystanders = draw.integers(0, side**2, check_count("records", records) - canaries)
    cells, coins = draw.permutation(side**2)[: 2 * canaries].reshape(2, canaries), draw.choice([-1, 1], canaries)
    table = np.concatenate([bystanders, np.where(coins > 0, *cells)])
    values = [str(value) for value in range(side)]
    fitted = clone(release).set_params(subject=Workload.marginals(2), columns={"row": values, "column": values})
    fitted.fit({"row": (table // side).astype(str), "column": (table % side).astype(str)})
    counts = np.asarray(fitted.released_.unbiased) * records
    numbers = _cell_numbers(fitted, side)
    rest = counts[numbers] - np.bincount(bystanders, minlength=side**2)
    scores = rest[cells[0]] - rest[cells[1]]
    claim = {"epsilon": float(release.epsilon), "delta": float(release.delta)}
    return judge_guesses(scores, coins, confidence=confidence, **claim)


def _cell_numbers(fitted: QueryRelease, side: int) -> Integers:
    """Return the numbers of the queries that count each cell of both columns."""
    queries = fitted.domain_.queries
    assert isinstance(queries, Marginals)
    positions = np.arange(side**2)
    cells = positions // side * queries.sizes[1] + positions % side
    return np.asarray(queries.offsets[-2] + cells, dtype=np.int64)


def audit_neighbours_once(
    model: NeighbourClassifier | None = None,
    *,
    canaries: int = 1000,
    records: int = 20_000,
    confidence: float = 0.95,
    draw: Any = None,
) -> OneFit:
    """Fit a neighbour classifier once, ask at each canary until it is worn out, and return what guesses show.

    A coin chooses the label of each canary. Other records share its place, half of each class: the noisy share then
    tells the votes. The claim is the one for a unit that is replaced.

    Parameters
    ----------
    model
        Settings of a classifier: epsilon, delta and votes count. By default epsilon is 3, and a record has one vote.
    canaries, records
        The number of pairs, and of all records.
    confidence
        The probability with which a sound model is not reported.
    draw
        A generator for the records and the coins, never for noise.

    >>> found = audit_neighbours_once(canaries=100, records=200, confidence=1 - 1e-9)
    >>> found.guesses, found.violated
    (30, False)
    """
    model = NeighbourClassifier(epsilon=3.0, delta=1e-6, votes=1.0) if model is None else model
    canaries, draw = check_count("canaries", canaries), np.random.default_rng() if draw is None else draw
    points, coins = draw.normal(size=(canaries, _FEATURES)), draw.choice([-1, 1], canaries)
    places = np.arange(check_count("records", records) - canaries) // 2 % canaries  # in pairs, one of each class
    X, y = np.concatenate([points, points[places]]), np.concatenate([coins, np.arange(len(places)) % 2 * 2 - 1])
    fitted = clone(model).set_params(radius=_RADIUS, metric="cosine", classes=[-1, 1], scores=True).fit(X, y)
    turns = range(1, math.ceil(fitted.terms_.votes) + 1)  # a query of another length is a new one, in the same place
    scores = np.sum([fitted.predict_proba(turn * points)[:, 1] - 0.5 for turn in turns], axis=0)
    claim = {"epsilon": fitted.terms_.replaced_epsilon(), "delta": float(model.delta)}
    return judge_guesses(scores, coins, confidence=confidence, **claim)
