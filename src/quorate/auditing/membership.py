"""Membership inference: was this record in the training data? Told from what a model answers about it.

The attack is the likelihood-ratio test with shadow models (Carlini et al. 2022). A coin decides, for each model and
target, whether the target is in the training data or replaced by another record. The shadows teach how confident models
are about members and about others; the ratio of the two laws is the score. Each model is a victim once, with the other
half as its shadows. With poison (Tramer et al. 2022), wrongly labelled copies of each target are in every training set.

Under (epsilon, delta)-DP for one record replaced, no score finds a larger share of members than e^epsilon times the
share of false alarms, plus delta.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.auditing.bounds import proportion_at_least, proportion_at_most
from quorate.auditing.timing import area_under_curve
from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput

__all__ = ["Roc", "Targets", "attack_membership", "confidences", "make_targets", "scores_of"]

Mask = NDArray[np.bool_]
Train = Callable[[Floats, Integers], Callable[[Floats], Any]]

_LEAST_SPREAD = 0.05  # of a confidence: shadows that all agree are not evidence without end


@dataclass(frozen=True, eq=False)
class Roc:
    """Scores of trials in which the target was a member and of trials in which it was not."""

    members: Floats
    others: Floats

    @property
    def area(self) -> float:
        """The area under the curve: 0.5 where the scores tell nothing, 1 where they tell all."""
        return area_under_curve(self.others, self.members)

    def hits(self, *, false_alarms: float) -> float:
        """Return the share of members found at this share of false alarms: the true-positive rate."""
        allowed = math.floor(check_rate("false_alarms", false_alarms) * self.others.size)
        cut = np.sort(self.others)[::-1][min(allowed, self.others.size - 1)]
        return float((self.members > cut).mean())

    def curve(self) -> tuple[Floats, Floats]:
        """Return the shares of false alarms and of hits, for every threshold."""
        cuts = np.unique(np.concatenate([self.members, self.others]))[::-1]
        shares = [1 - np.searchsorted(np.sort(x), cuts, side="left") / x.size for x in (self.others, self.members)]
        return np.concatenate([[0.0], shares[0]]), np.concatenate([[0.0], shares[1]])

    def excess(self, *, epsilon: float, delta: float, confidence: float) -> float:
        """Return by how much, with this confidence, hits exceed e^epsilon times false alarms plus delta: at most 0.

        The threshold is chosen on one half of the trials and counted on the other. Trials are counted as independent.
        Where nothing leaks they are, by the coins that were tossed; where something does, those of one model hang
        together a little.
        """
        if min(self.members.size, self.others.size) < 8:
            raise InvalidInput("at least 8 trials of either kind are needed")
        error = (1 - check_rate("confidence", confidence)) / 2
        alarms, hits = Roc(self.members[::2], self.others[::2]).curve()
        cuts = np.unique(np.concatenate([self.members[::2], self.others[::2]]))[::-1]
        best = int((hits[1:] - math.exp(epsilon) * (alarms[1:] + 2 / self.others.size)).argmax())
        ones, others = self.members[1::2], self.others[1::2]
        least_hits = proportion_at_least(int((ones >= cuts[best]).sum()), ones.size, error=error)
        false = proportion_at_most(int((others >= cuts[best]).sum()), others.size, error=error)
        return float(least_hits - math.exp(epsilon) * false - delta)


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
    given = np.asarray(answers)
    if given.ndim == 1:
        return np.where(given < 0, 0.0, np.where(given == labels, 1.0, -1.0))
    own = given[np.arange(len(labels)), labels]
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(own) - np.log(1 - own)
    return np.clip(odds, -10.0, 10.0)


def scores_of(confidence: Floats, member: Mask) -> Roc:
    """Return the likelihood-ratio scores: one row a model, one column a target; each half is scored by the other."""
    law = _log_share if np.isin(confidence, (-1.0, 0.0, 1.0)).all() else _log_density
    scores = np.zeros(confidence.shape)
    halves = slice(0, len(member) // 2), slice(len(member) // 2, None)
    for victims, shadows in (halves, halves[::-1]):
        laws = [law(confidence[victims], confidence[shadows], one[shadows]) for one in (member, ~member)]
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
    known = np.maximum(counts, 1)
    mean = (chosen * shadows).sum(axis=0) / known
    spread = np.sqrt(np.maximum((chosen * (shadows - mean) ** 2).sum(axis=0) / known, _LEAST_SPREAD**2))
    return np.where(counts >= 2, -np.log(spread) - ((seen - mean) / spread) ** 2 / 2, np.nan)


def attack_membership(train: Train, targets: Targets, *, models: int = 32, seed: int = 0) -> Roc:
    """Train this many models and return how well their answers tell members from others.

    `train` takes records and labels and returns what answers queries: probabilities, or labels.
    """
    generator = np.random.default_rng(seed)
    member = generator.random((check_count("models", models, least=4), len(targets.y))) < 0.5
    rows = [confidences(train(*targets.data(one))(targets.X), targets.y) for one in member]
    return scores_of(np.array(rows), member)
