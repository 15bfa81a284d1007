"""What each mechanism releases, implemented again from its definition, independently of the accounting code.

A `Release` is a conditional distribution: given votes and the value of the hidden threshold noise, the probability of
every outcome. It follows from the noise distributions, implemented again in this file, and the public parameters of a
mechanism (scales, margin, table, threshold), so a mistake in a proof or in a price cannot repeat itself here.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import (
    NO_QUORUM,
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    NoisyMax,
    Quorum,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.base import ThresholdMechanism

Votes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """The distribution of one outcome, given votes and the hidden threshold noise.

    `outcomes(votes)` has a row for each label, then one for no quorum (so that `NO_QUORUM`, which is -1, finds it), and
    a column for each value of the hidden noise. `law` holds the probabilities of those values. `covered_law` and
    `covered` are the same with the tail event of the claim left out. Mechanisms without hidden noise have one column.
    """

    teachers: int
    classes: int
    outcomes: Callable[[Votes], Floats]
    law: Floats
    covered_law: Floats
    covered: Callable[[Votes], Floats] | None = None  # None: what the claim leaves out is in `covered_law` alone
    no_quorums: int | None = None  # the run ends with this one; None: it never does
    redraws: bool = False  # whether a no-quorum redraws the hidden noise

    @classmethod
    def of_run(cls, mechanism: ThresholdMechanism, classes: int, **laws: Any) -> "Release":
        """Return the release of a threshold run, which ends with the mechanism's last no-quorum."""
        return cls(teachers=mechanism.teachers, classes=classes, no_quorums=mechanism.no_quorums, **laws)

    def covered_outcomes(self, votes: Votes) -> Floats:
        """Return `outcomes(votes)` without the tail event of the claim."""
        return self.outcomes(votes) if self.covered is None else self.covered(votes)


def all_votes(teachers: int, classes: int) -> list[Votes]:
    """Return all possible votes."""
    if classes == 1:
        return [(teachers,)]
    return [(first, *rest) for first in range(teachers + 1) for rest in all_votes(teachers - first, classes - 1)]


def neighbours(votes: Votes) -> list[Votes]:
    """Return the votes themselves and all votes with one ballot moved."""
    moved = [votes]
    for source, target in itertools.permutations(range(len(votes)), 2):
        if votes[source]:
            changed = list(votes)
            changed[source] -= 1
            changed[target] += 1
            moved.append(tuple(changed))
    return moved


def ballots_to_change(votes: Votes) -> int:
    """Return the distance of the stability test: max(0, ceil(gap / 2) - 1)."""
    second, first = sorted(votes)[-2:]
    return max(0, math.ceil((first - second) / 2) - 1)


def gaussian(scale: float, reach: int) -> Floats:
    """Return P(x) for x = -reach .. reach, where P(x) is proportional to exp(-x**2 / (2 scale**2)) on all integers."""
    radius = max(reach, math.ceil(40 * scale) + 2)
    points = np.arange(-radius, radius + 1)
    weights = np.exp(-((points / scale) ** 2) / 2)
    law: Floats = weights / weights.sum()
    return law[radius - reach : radius + reach + 1]


def laplace(scale: float, reach: int) -> Floats:
    """Return P(x) for x = -reach .. reach, where P(x) is proportional to exp(-abs(x) / scale) on all integers."""
    return np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale) * math.tanh(1 / (2 * scale))


class _Tails:
    """P(X <= t) and P(X > t), each summed from its own far end, for noise given on -reach .. reach."""

    def __init__(self, law: Floats) -> None:
        self._reach = law.size // 2
        self._below = np.concatenate([[0.0], np.cumsum(law)])
        self._above = np.concatenate([np.cumsum(law[::-1])[::-1], [0.0]])

    def _index(self, value: NDArray[np.int64] | int) -> NDArray[np.int64]:
        index: NDArray[np.int64] = np.clip(np.asarray(value) + self._reach + 1, 0, self._below.size - 1)
        return index

    def at_most(self, value: NDArray[np.int64] | int) -> Floats:
        return self._below[self._index(value)]

    def above(self, value: NDArray[np.int64] | int) -> Floats:
        return self._above[self._index(value)]


def _hidden(law: Callable[[float, int], Floats], scale: float, *, needed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """Return values of the threshold noise and their law, out to where what is left is below 1e-16.

    Where some votes need noise of a size to have all outcomes, the law goes that far, or to the smallest double: else
    an outcome would be rare on one data set and impossible on its neighbour.
    """
    reach = math.ceil(10 * scale) + 24 if law is gaussian else math.ceil(37 * scale) + 1
    reach = max(reach, min(needed, math.ceil(38 * scale) + 1))
    return np.arange(-reach, reach + 1), law(scale, reach)


def _query_tails(mechanism: StabilityTest | BetweenThresholds, values: int) -> _Tails:
    """Return the tails of the noise on a query, out to where no value of the hidden noise needs more."""
    reach = values + mechanism.margin + math.ceil(45 * mechanism.query_scale)
    return _Tails(laplace(mechanism.query_scale, reach))


def _top(votes: Votes) -> int:
    return votes.index(max(votes))


def _table_law(table: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the probabilities of no quorum and of an answer at each level of a table in units of 2**-64."""
    words = 2**64
    return np.array([level / words for level in table]), np.array([(words - level) / words for level in table])


@singledispatch
def release_of(mechanism: object, *, classes: int) -> Release:
    """Return the distribution of what this mechanism releases for votes on this many classes.

    >>> release_of(NoisyMax(teachers=3, classes=2, scale=1.0), classes=2).outcomes((0, 3)).round(3).ravel()
    array([0.035, 0.965, 0.   ])
    """
    raise InvalidInput(f"no release is written down for {type(mechanism).__name__}")


@release_of.register
def _quorum(mechanism: Quorum, *, classes: int) -> Release:
    noise, law = _hidden(gaussian, mechanism.threshold_scale)
    missed, answered = _table_law(mechanism.table)

    def outcomes(votes: Votes) -> Floats:
        beyond = ballots_to_change(votes) - (mechanism.margin - noise)
        level = np.clip(-(-beyond // 2), 0, len(missed) - 1)  # level i at 2i - 1 and 2i past the threshold
        rows = np.zeros((classes + 1, noise.size))
        rows[_top(votes)], rows[NO_QUORUM] = answered[level], missed[level]
        return rows

    covered_law = np.where(noise > mechanism.margin, 0.0, law)
    return Release.of_run(mechanism, classes, outcomes=outcomes, law=law, covered_law=covered_law)


@release_of.register
def _dissent(mechanism: Dissent, *, classes: int) -> Release:
    needed = mechanism.teachers // 2 + 2 - mechanism.margin  # for all teachers against the student, who yet stands
    noise, law = _hidden(gaussian, mechanism.threshold_scale, needed=needed)
    missed, stood = _table_law(mechanism.table)

    def outcomes(votes: Votes) -> Floats:
        short = mechanism.margin + noise - math.ceil((max(votes[1:]) - votes[0]) / 2)
        level = np.clip(-(-short // 2), 0, len(missed) - 1)  # level i at 2i - 1 and 2i short of the margin
        rows = np.zeros((classes + 1, noise.size))
        rows[0], rows[NO_QUORUM] = stood[level], missed[level]  # the student's label is label 0
        return rows

    return Release.of_run(mechanism, classes, outcomes=outcomes, law=law, covered_law=law)


@release_of.register
def _stability(mechanism: StabilityTest, *, classes: int) -> Release:
    noise, law = _hidden(laplace, mechanism.threshold_scale)
    query = _query_tails(mechanism, noise.size)

    def outcomes(votes: Votes) -> Floats:
        largest = mechanism.margin + noise - ballots_to_change(votes)  # noise on the distance that is no quorum yet
        rows = np.zeros((classes + 1, noise.size))
        rows[_top(votes)], rows[NO_QUORUM] = query.above(largest), query.at_most(largest)
        return rows

    def covered(votes: Votes) -> Floats:
        rows = outcomes(votes)
        if ballots_to_change(votes) == 0:
            rows[_top(votes)] = 0.0
        return rows

    laws = {"law": law, "covered_law": law}
    return Release.of_run(mechanism, classes, outcomes=outcomes, covered=covered, redraws=True, **laws)


@release_of.register
def _between(mechanism: BetweenThresholds, *, classes: int = 2) -> Release:
    paper = mechanism.calibration == "paper"
    noise, law = _hidden(laplace if paper else gaussian, mechanism.threshold_scale)
    query = _query_tails(mechanism, noise.size)
    half = mechanism.teachers / 2

    def outcomes(votes: Votes) -> Floats:
        # label 0 where v + x < half - h + mu, label 1 where v + x > half + h - mu; where both hold, no quorum
        zero_below = np.ceil(half - mechanism.margin + noise).astype(np.int64) - 1 - votes[1]
        one_above = np.floor(half + mechanism.margin - noise).astype(np.int64) - votes[1]
        rows = np.zeros((classes + 1, noise.size))
        rows[0], rows[1] = (
            query.at_most(np.minimum(zero_below, one_above)),
            query.above(np.maximum(zero_below, one_above)),
        )
        rows[NO_QUORUM] = _between_tails(query, np.minimum(zero_below, one_above), np.maximum(zero_below, one_above))
        return rows

    covered_law = np.where(noise > mechanism.cap, 0.0, law)
    return Release.of_run(mechanism, classes, outcomes=outcomes, law=law, covered_law=covered_law, redraws=paper)


def _between_tails(query: _Tails, low: NDArray[np.int64], high: NDArray[np.int64]) -> Floats:
    """Return P(low < X <= high), as a difference of the smaller tails."""
    return np.where(low + high > 0, query.above(low) - query.above(high), query.at_most(high) - query.at_most(low))


def _winner(votes: Votes, scale: float) -> Floats:
    """Return the probability that each label has the largest noisy count, the first of those that tie."""
    reach, fewest = math.ceil(38 * scale) + 1, min(votes)
    law = gaussian(scale, reach)
    tails = _Tails(law)
    values = np.arange(fewest - reach, max(votes) + reach + 1)
    at_most = np.array([tails.at_most(values - count) for count in votes])
    below = np.array([tails.at_most(values - count - 1) for count in votes])
    rows = []
    for label, count in enumerate(votes):
        here = np.zeros(values.size)
        here[count - fewest : count - fewest + law.size] = law
        rows.append(here @ (below[:label].prod(axis=0) * at_most[label + 1 :].prod(axis=0)))
    return np.array(rows)


def _memoryless(teachers: int, classes: int, row: Callable[[Votes], Floats]) -> Release:
    """Return a release without hidden noise from the probabilities of the labels and of no quorum."""
    return Release(
        teachers=teachers,
        classes=classes,
        outcomes=lambda votes: row(votes)[:, np.newaxis],
        law=np.ones(1),
        covered_law=np.ones(1),
    )


@release_of.register
def _noisy_max(mechanism: NoisyMax, *, classes: int) -> Release:
    def row(votes: Votes) -> Floats:
        return np.append(_winner(votes, mechanism.scale), 0.0)

    return _memoryless(mechanism.teachers, classes, row)


@release_of.register
def _sharp_majority(mechanism: SharpMajority, *, classes: int = 2) -> Release:
    def row(votes: Votes) -> Floats:
        behind = mechanism.table[min(abs(votes[1] - votes[0]) // 2, len(mechanism.table) - 1)] / 2**64
        return np.array([1 - behind, behind, 0.0] if votes[0] >= votes[1] else [behind, 1 - behind, 0.0])

    return _memoryless(mechanism.teachers, classes, row)


@release_of.register
def _confident_max(mechanism: ConfidentMax, *, classes: int) -> Release:
    test = _Tails(gaussian(mechanism.test_scale, math.ceil(38 * mechanism.test_scale) + 1))

    def row(votes: Votes) -> Floats:
        needed = mechanism.threshold - max(votes)
        return np.append(test.above(needed) * _winner(votes, mechanism.winner_scale), test.at_most(needed))

    return _memoryless(mechanism.teachers, classes, row)


@release_of.register
def _soft_majority(mechanism: SoftMajority, *, classes: int) -> Release:
    def row(votes: Votes) -> Floats:
        weights = np.exp((np.array(votes) - max(votes)) * (mechanism.epsilon_per_query / 2))
        return np.append(weights / weights.sum(), 0.0)

    return _memoryless(mechanism.teachers, classes, row)
