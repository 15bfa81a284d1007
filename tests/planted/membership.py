"""Attacks on what is answered: membership inference with shadow models, and timing.

Membership inference is the likelihood-ratio test with shadow models (Carlini et al. 2022). A coin decides, for each
model and target, whether the target is in the training data or replaced by another record. The shadows teach how
confident models are about members and about others; the ratio of the two laws is the score. Each model is a victim
once, with the other half as its shadows. With poison (Tramer et al. 2022), wrongly labelled copies of each target are
in every training set.

Timing asks two kinds of queries in a random order, so that whatever else the machine does falls on both alike. The area
under the curve is 0.5 where time tells nothing.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.auditing._tracing import Roc, area_under_curve
from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput

Ask = Callable[[Any], object]
Mask = NDArray[np.bool_]
Train = Callable[[Floats, Integers], Callable[[Floats], Any]]

_LEAST_SPREAD = 0.05  # of a confidence: shadows that all agree are not evidence without end


@dataclass(frozen=True, eq=False)
class Timing:
    """Seconds that answers to two kinds of queries took."""

    first: Floats
    second: Floats

    @property
    def area(self) -> float:
        """The area under the curve: from 0.5, where the times tell nothing, to 0 or 1, where they tell all."""
        return area_under_curve(self.first, self.second)

    def tells(self, *, confidence: float) -> bool:
        """Return whether the area is further from 0.5 than chance explains (Mann and Whitney 1947)."""
        first, second = self.first.size, self.second.size
        deviation = math.sqrt((first + second + 1) / (12 * first * second))
        sides = NormalDist().inv_cdf(1 - (1 - check_rate("confidence", confidence)) / 2)
        return abs(self.area - 0.5) > sides * deviation


def attack_timing(ask: Ask, first: Sequence[Any], second: Sequence[Any], *, warm: int = 20, seed: int = 0) -> Timing:
    """Ask queries of both kinds one by one, in a random order, and return how long each answer took."""
    queries = [*first, *second]
    for query in queries[: check_count("warm", warm, least=0)]:
        ask(query)
    seconds = np.empty(len(queries))
    for index in np.random.default_rng(seed).permutation(len(queries)).tolist():
        query = queries[index]  # before the clock: a list looks up its first 257 entries at another speed
        start = time.perf_counter()
        ask(query)
        seconds[index] = time.perf_counter() - start
    return Timing(seconds[: len(first)], seconds[len(first) :])


@dataclass(frozen=True, eq=False)
class Targets:
    """Records that are attacked, the ones that take their places, and the rest of the data, which stays."""

    X: Floats
    y: Integers
    others: Floats
    other_labels: Integers
    rest: Floats
    rest_labels: Integers
    poison: int = 0  # wrongly labelled copies of each target that the attacker has put into the data

    def data(self, members: Mask) -> tuple[Floats, Integers]:
        """Return a training set in which these targets are members and the others are replaced."""
        X = np.where(members[:, np.newaxis], self.X, self.others)
        y = np.where(members, self.y, self.other_labels)
        copies, wrong = np.repeat(self.X, self.poison, axis=0), np.repeat(1 - self.y, self.poison)
        return np.concatenate([X, self.rest, copies]), np.concatenate([y, self.rest_labels, wrong])


def make_targets(*, records: int, targets: int, features: int, poison: int = 0, seed: int = 0) -> Targets:
    """Return records of two classes around two centres; the targets have unlikely labels.

    A record with a usual label leaves few traces; one with an unusual label is remembered, if anything is.
    """
    records, targets = check_count("records", records), check_count("targets", targets)
    if targets > records:
        raise InvalidInput(f"{targets} targets are more than the {records} records")
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(records + targets, check_count("features", features)))
    y = (X[:, 0] + 0.5 * generator.normal(size=len(X)) > 0).astype(np.int64)
    y[:targets] = (X[:targets, 0] <= 0).astype(np.int64)
    first, second = slice(0, targets), slice(targets, 2 * targets)
    return Targets(X[first], y[first], X[second], y[second], X[2 * targets :], y[2 * targets :], poison)


def confidences(answers: Any, labels: Integers) -> Floats:
    """Return how confident answers are in these labels, as log odds where they are probabilities, cut at -10 and 10.

    Answers are probabilities (a matrix, one column a class) or labels (numbers, -1 where there is no quorum).
    """
    values = np.asarray(answers)
    if values.ndim == 1:
        return np.where(values < 0, 0.0, np.where(values == labels, 1.0, -1.0))
    chance = values[np.arange(len(labels)), labels]
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(chance) - np.log(1 - chance)
    return np.clip(odds, -10.0, 10.0)


def scores_of(confidence: Floats, member: Mask) -> Roc:
    """Return the likelihood-ratio scores: one row a model, one column a target; each half is scored by the other."""
    law = _log_share if np.isin(confidence, (-1.0, 0.0, 1.0)).all() else _log_density
    scores = np.zeros(confidence.shape)
    halves = slice(0, len(member) // 2), slice(len(member) // 2, None)
    for victims, shadows in (halves, halves[::-1]):
        laws = [law(confidence[victims], confidence[shadows], chosen[shadows]) for chosen in (member, ~member)]
        scores[victims] = np.nan_to_num(laws[0] - laws[1], nan=0.0)  # too few shadows of one kind say nothing
    return Roc(scores[member], scores[~member])


def _log_share(seen: Floats, shadows: Floats, chosen: Mask) -> Floats:
    """Return the log share of the same answer among the chosen shadows, drawn towards a third."""
    share = np.zeros(seen.shape)
    for answer in (-1.0, 0.0, 1.0):
        alike = (chosen & (shadows == answer)).sum(axis=0)
        share += np.where(seen == answer, (alike + 0.5) / (chosen.sum(axis=0) + 1.5), 0.0)
    return np.log(share)


def _log_density(seen: Floats, shadows: Floats, chosen: Mask) -> Floats:
    """Return the log density under the chosen shadows: a Gaussian for each target."""
    counts = chosen.sum(axis=0)
    weights = np.maximum(counts, 1)
    mean = (chosen * shadows).sum(axis=0) / weights
    spread = np.sqrt(np.maximum((chosen * (shadows - mean) ** 2).sum(axis=0) / weights, _LEAST_SPREAD**2))
    return np.where(counts >= 2, -np.log(spread) - ((seen - mean) / spread) ** 2 / 2, np.nan)


def attack_membership(train: Train, targets: Targets, *, models: int = 32, seed: int = 0) -> Roc:
    """Train this many models and return how well their answers tell members from others.

    `train` takes records and labels and returns what answers queries: probabilities, or labels.
    """
    generator = np.random.default_rng(seed)
    member = generator.random((check_count("models", models, least=4), len(targets.y))) < 0.5
    rows = [confidences(train(*targets.data(members))(targets.X), targets.y) for members in member]
    return scores_of(np.array(rows), member)
