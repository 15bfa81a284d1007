"""What a vote adds to the vector that gets noise, what its unit pays, and what is read of the noisy vector.

A table of whole numbers has a row for each label: what a vote of weight 1 adds. The square of that row's length is its
price: a unit pays the square of its weight times the price (PROOF.md, step 3). All that `answers` makes of noisy
vectors is free. An answer is one whole number of at least 0, which memories and ledgers keep. `Terms` fix what a unit
may spend and the noise that this takes: whole numbers, from public numbers, at the fit.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_delta, check_positive, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyVector
from quorate.core.mechanisms.noisy_shares import nearest_points, numbers_of, points_of, steps_for
from quorate.core.mechanisms.noisy_vector import ROUNDING_VARIANCE, largest_length, smallest_excess
from quorate.models.predictors.labels import class_codes, declared_classes, target_numbers

_STEPS = 2**20  # into which a share is cut; fewer where there are many classes
_LEVELS = 127  # of a target, on either side of the centre
_COUNTED = 64  # what a vote adds to the sum of weights, where targets are averaged
_SPREAD = 0.5  # of targets around the centre, in parts of the reach: how far a mean of little weight is believed
_FINE = 2**30  # steps in which a value is kept


class Ballot(ABC):
    """A table of what votes add, a row for each code of a label, and what follows from it."""

    table: Integers

    @property
    def counting_table(self) -> Integers:
        """The table with one more row, of zeros, for records that have no vote."""
        return np.vstack([self.table, np.zeros_like(self.table[:1])])

    @property
    def no_vote(self) -> int:
        """The code of a record that has no vote: its label or one of its values cannot be read."""
        return len(self.table)

    @abstractmethod
    def codes(self, labels: Any) -> Integers:
        """Return the row of the table for each label; `no_vote` for one that is missing or not declared."""

    @abstractmethod
    def answers(self, noisy: Integers, scale: float) -> Integers:
        """Return what the noisy vectors of queries say, with noise of this scale."""

    @cached_property
    def prices(self) -> Integers:
        """The square of what a vote of weight 1 adds, by label."""
        return np.asarray((self.table**2).sum(axis=1), dtype=np.int64)

    @property
    def replacement(self) -> int:
        """By how much squares grow where a unit is replaced by another: more where votes can have opposite signs."""
        return 4 if (self.table < 0).any() else 2  # proof: step 7

    def changes(self, squares: int) -> int:
        """Return how many numbers votes of these squares can change at most: each changes some, and has a price."""
        moved = np.count_nonzero(self.table, axis=1)
        entries_per_price = max(Fraction(int(some), int(price)) for some, price in zip(moved, self.prices, strict=True))
        return math.ceil(squares * entries_per_price)  # proof: step 5


class Labels(Ballot):
    """A vote for a class. Of two classes the lead of the second is counted, which is one number with one noise.

    >>> Labels([0, 1]).table.tolist(), Labels([0, 1, 2]).table.tolist()
    ([[-1], [1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    """

    def __init__(self, classes: Any) -> None:
        self.names = np.asarray(classes)
        self.classes = len(self.names)
        self.table = np.array([[-1], [1]]) if self.classes == 2 else np.eye(self.classes, dtype=np.int64)

    def codes(self, labels: Any) -> Integers:
        """Return the class number of each label."""
        codes = class_codes(self.names, declared_classes(self.names, labels)[1])
        return np.where(codes < 0, self.no_vote, codes)

    def contrast(self, scale: float) -> float:
        """Return the deviation of the noise on the difference between the votes for two classes."""
        return scale if self.classes == 2 else scale * math.sqrt(2)

    def answers(self, noisy: Integers, scale: float) -> Integers:
        """Return the class of the largest noisy count; of two, the one that the noisy lead speaks for."""
        if self.classes == 2:
            return np.asarray(noisy > 0, dtype=np.int64).ravel()
        return np.asarray(noisy.argmax(axis=1), dtype=np.int64)


class Shares(Labels):
    """A vote for a class, of which noisy shares are told. Of two classes lead and total are counted.

    The lead counts double, so that labels suffer less from the noise of the total: by an eighth, against `Labels`.
    Counts are taken as at least 0 in a way that keeps their order: what is far below the noise becomes nothing.

    >>> Shares([0, 1]).table.tolist()
    [[1, -2], [1, 2]]
    >>> shares = Shares([0, 1, 2])
    >>> shares.shares(shares.answers(np.array([[900, 100, 0]]), scale=1.0)).round(3).tolist()
    [[0.899, 0.1, 0.001]]
    """

    def __init__(self, classes: Any) -> None:
        super().__init__(classes)
        if self.classes == 2:
            self.table = np.array([[1, -2], [1, 2]])

    @property
    def steps(self) -> int:
        """Into how many steps a share is cut."""
        return steps_for(_STEPS, self.classes)

    def contrast(self, scale: float) -> float:
        """Return the deviation of the noise on the difference between the votes for two classes."""
        return scale / 2 if self.classes == 2 else super().contrast(scale)

    def answers(self, noisy: Integers, scale: float) -> Integers:
        """Return the number of the point of a grid that is nearest to the shares of the noisy counts."""
        counts = np.asarray(noisy, dtype=np.float64)
        if self.classes == 2:
            total, lead = counts[:, 0], counts[:, 1] / 2
            counts = np.stack([total - lead, total + lead], axis=1) / 2
        positive = np.logaddexp(0.0, counts / scale)
        shares = positive / positive.sum(axis=1, keepdims=True)
        if self.classes == 2:
            return np.asarray(np.rint(shares[:, 1] * _STEPS), dtype=np.int64)
        fine = np.rint(shares * 2**40).astype(np.int64)
        return numbers_of(nearest_points(fine, 2**40, self.steps), self.steps)

    def shares(self, answers: Any) -> Floats:
        """Return the share of each class, one row an answer, each at least 0 and together 1."""
        if self.classes == 2:
            second = self.excess(answers)
            return np.stack([1.0 - second, second], axis=1)
        return points_of(np.asarray(answers, dtype=np.int64), self.steps, self.classes) / self.steps

    def excess(self, answers: Any) -> Floats:
        """Return the share of the second of two classes."""
        return np.asarray(answers, dtype=np.int64) / _STEPS


class Levels(Ballot):
    """A target, as one of 255 levels around a public centre. Votes add up to a sum of weights and one of targets.

    Targets are clipped to public bounds. One near the centre moves less than one at the end, and pays less.

    >>> levels = Levels(low=0.0, high=250.0, centre=100.0)
    >>> levels.codes([-5.0, 100.0, 250.0, float("nan")]).tolist(), levels.table[[42, 127, 254]].tolist()
    ([42, 127, 254, 42], [[64, -85], [64, 0], [64, 127]])
    >>> levels.values(levels.answers(np.array([[64_000, 127_000], [0, 500]]), scale=100.0)).round(1).tolist()
    [250.0, 100.0]
    """

    def __init__(self, *, low: float, high: float, centre: float) -> None:
        if not (math.isfinite(high - low) and low < high):
            raise InvalidInput(f"bounds must be finite numbers, the lower one first, not {(low, high)!r}")
        self.low, self.high, self.centre = low, high, min(max(centre, low), high)
        self.reach = max(high - self.centre, self.centre - low)
        levels = np.arange(-_LEVELS, _LEVELS + 1)
        self.table = np.stack([np.full_like(levels, _COUNTED), levels], axis=1)

    def codes(self, labels: Any) -> Integers:
        """Return the level of each target. What is no number counts as 0."""
        targets = np.clip(np.nan_to_num(target_numbers(labels)), self.low, self.high)
        return np.rint(_LEVELS * ((targets - self.centre) / self.reach)).astype(np.int64) + _LEVELS

    def answers(self, noisy: Integers, scale: float) -> Integers:
        """Return the mean target of each query on a fine grid, drawn to the centre where the noise is large."""
        means, _ = self.means(noisy[:, 0] / _COUNTED, noisy[:, 1] / _LEVELS, scale)
        return np.rint((np.clip(means, -1.0, 1.0) + 1) * _FINE).astype(np.int64)

    def means(self, weights: Floats, sums: Floats, scale: float) -> tuple[Floats, Floats]:
        """Return mean targets by sums of weights and targets, in parts of the reach, and the deviations of their noise.

        A mean of weight W is believed by W^2 to W^2 + n^2/s^2, where n is the noise of the sum and s the spread of
        targets that is taken for granted.
        """
        weights, noise = np.maximum(weights, 0.0), scale / _LEVELS
        divisor = weights**2 + (noise / _SPREAD) ** 2
        mean = weights * sums / divisor
        of_weights = mean * scale / _COUNTED  # what the noise of the sum of weights does
        return mean, weights * np.hypot(noise, of_weights) / divisor

    def values(self, answers: Any) -> Floats:
        """Return the values of answers, within the bounds."""
        relative = np.asarray(answers, dtype=np.int64) / _FINE - 1
        return np.asarray(np.clip(self.centre + self.reach * relative, self.low, self.high))

    def targets(self, codes: Integers) -> NDArray[np.float32]:
        """Return targets of these codes in parts of the reach."""
        return ((codes - _LEVELS) / _LEVELS).astype(np.float32)


_REPORTS = 16  # of wear, that are paid for at the fit
_REPORTED = 64  # reports of wear take at most this part of what answers take
_MOST = 2.0**62  # of what a unit may spend: sums are kept as 64-bit numbers
_UP = 1 + 2.0**-40


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The guarantee, and what it comes to in whole numbers.

    A unit may spend `capacity` on answers: the sum of the squares of what its votes add. A vote of full weight takes
    `full` of it. Each of `reports` reports of wear counts the unit with the weight `reported`. Noise has this `scale`
    everywhere. A unit changes at most `entries` of the numbers that are released. Where it is replaced by another, what
    is moved is `replacement` times as much.

    >>> from quorate.models.knn._ballots import Labels
    >>> terms = Terms.calibrate(epsilon=1.0, delta=1e-5, votes=30.0, top=32, ballot=Labels(range(10)))
    >>> terms.capacity == 30 * terms.full, round(terms.replaced_epsilon(), 2)
    (True, 1.47)
    """

    epsilon: float
    delta: float
    full: int
    capacity: int
    reports: int
    reported: int
    scale: float
    entries: int
    replacement: int

    def __post_init__(self) -> None:
        validate_fields(self, delta=check_delta(self.delta, zero=False))

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, votes: float, top: int, ballot: Ballot) -> "Terms":
        """Return the terms of the least noise by which a unit may cast this many votes of full weight."""
        full = top**2 * int(ballot.prices.max())
        if check_positive("votes", votes) > _MOST / full:
            raise InvalidInput(f"votes must be at most {math.floor(_MOST / full):,}, not {votes:g}")
        capacity = max(1, math.floor(votes * full))
        reported = max(1, math.isqrt(capacity // (_REPORTED * _REPORTS)))
        squares = capacity + _REPORTS * reported**2  # proof: step 4
        entries = ballot.changes(capacity) + _REPORTS  # proof: step 5
        length = largest_length(epsilon=epsilon, delta=delta, entries=entries)
        if length <= 0:
            raise Infeasible("this epsilon and delta allow no votes; raise epsilon, or plan for fewer votes of a unit")
        scale = math.sqrt(squares / length**2 + ROUNDING_VARIANCE) * _UP
        if scale > 2.0**40:
            raise Infeasible(
                "this takes noise of a scale above 2**40; raise epsilon, or plan for fewer votes of a unit"
            )
        return cls(
            epsilon=epsilon,
            delta=delta,
            full=full,
            capacity=capacity,
            reports=_REPORTS,
            reported=reported,
            scale=scale,
            entries=entries,
            replacement=ballot.replacement,
        )

    @property
    def squares(self) -> int:
        """All that one unit may ever move what is released: the sum of the squares of whole numbers."""
        return self.capacity + self.reports * self.reported**2

    @property
    def votes(self) -> float:
        """How many votes of full weight a unit may cast."""
        return self.capacity / self.full

    @property
    def mechanism(self) -> NoisyVector:
        """What adds noise to a vector of counts."""
        return NoisyVector(squared_sensitivities=(self.squares,), scales=(self.scale,))

    def replaced_epsilon(self) -> float:
        """Return the epsilon, at the same delta, where a unit is replaced by another, not added or removed."""
        squares = self.replacement * self.squares  # proof: step 7
        length = math.sqrt(squares / (self.scale**2 - ROUNDING_VARIANCE)) * _UP
        return smallest_excess(length, delta=self.delta, entries=2 * self.entries)
