"""Choices by votes or by mistakes, each with one mistake."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.attacks import CONFIDENCE, search
from planted.bug import Caught, kind_bug, twin_bug
from quorate.auditing._choices import audit_choice
from quorate.auditing._plays import SeededNoise
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import ExponentialChoice, NoisyMax, SoftMajority
from quorate.core.mechanisms.base import Counts
from quorate.core.mechanisms.noisy_max import draw_winners
from quorate.release.engines._marginals import misplaced

_CHOICES = 10_000  # plays: each is drawn exactly, one at a time, and these are enough


class WeightsOfWholeEpsilon(SoftMajority):
    """Samples a label with probability proportional to exp(epsilon * count): one ballot moves two counts."""

    @property
    def scale(self) -> float:
        """The mistake: half of what it should be."""
        return super().scale / 2


class ChoiceWithoutHalf(ExponentialChoice):
    """The exponential mechanism without its 1/2: a unit may move a mistake from one candidate to another."""

    @property
    def rate(self) -> Fraction:
        """The mistake: twice what it should be."""
        return 2 * super().rate


@dataclass(frozen=True, kw_only=True)
class NearestVotes(NoisyMax):
    """Votes of those neighbours that are near enough to have one; the last column counts those that are not."""

    def draw_labels(self, counts: Counts, noise: Any) -> NDArray[np.int64]:
        return draw_winners(counts[:, :-1], self.scale, noise)


@dataclass(frozen=True, kw_only=True)
class ZeroWhenNobodyVotes(NearestVotes):
    """Returns class 0, without any noise, where no neighbour votes."""

    def draw_labels(self, counts: Counts, noise: Any) -> NDArray[np.int64]:
        labels = super().draw_labels(counts, noise)
        return np.where(counts[:, :-1].any(axis=1), labels, 0)  # the mistake


@dataclass(frozen=True, kw_only=True)
class RaisesOnTie(NoisyMax):
    """Refuses to decide where the votes are tied: an error that one ballot causes, at no charge."""

    def draw_labels(self, counts: Counts, noise: Any) -> NDArray[np.int64]:
        top_two = np.partition(counts, -2, axis=1)[:, -2:]
        if (top_two[:, 0] == top_two[:, 1]).any():  # the mistake
            raise InvalidInput("the votes are tied; ask something else")
        return super().draw_labels(counts, noise)


def attack_choice(choice: ExponentialChoice, plays: int, seed: int) -> Caught:
    """Let the code choose between two candidates; one unit moves a mistake from the first to the second."""
    verdict = audit_choice(choice, plays=min(plays, _CHOICES), confidence=CONFIDENCE, seed=seed)
    evidence = (
        f"{verdict.attack}: epsilon is at least {verdict.lower_bound:.3f}, and {verdict.claim[0]:.3f} is claimed "
        f"({verdict.plays} plays, confidence 1 - 1e-9)"
    )
    return Caught("black-box game", evidence, found=verdict.lower_bound > verdict.claim[0])


def attack_exceptions(mechanism: NoisyMax) -> Caught:
    """Replay one tape of noise on neighbouring votes: whether an error comes must not depend on one ballot."""
    differ = [
        (first, second)
        for first, second in itertools.pairwise((zero, mechanism.teachers - zero) for zero in range(mechanism.teachers))
        if _raised(mechanism, first) != _raised(mechanism, second)
    ]
    evidence = f"{len(differ)} pairs of neighbouring votes of which one raises an error and the other does not"
    return Caught("replay on neighbours", evidence, found=bool(differ))


def _raised(mechanism: NoisyMax, votes: tuple[int, ...]) -> str:
    try:
        mechanism.draw_answers(np.array([votes]), None, SeededNoise(0))
    except Exception as error:  # whatever it is, the asker sees it
        return f"{type(error).__name__}: {error}"
    return ""


def both_sides(counts: Integers, guess: Integers) -> int:
    """Return the mistake: records that guesses lack and those they have too many, which one record moves by 2."""
    return int(np.abs(counts - guess).sum())


def attack_score(score: Callable[[Integers, Integers], int]) -> Caught:
    """Look for a table of three records, guesses and a replaced record that move a score by more than is charged, 1."""
    tables = [np.array(table) for table in itertools.product(range(4), repeat=3) if sum(table) == 3]
    guesses = [np.array(guess) for guess in itertools.product(range(5), repeat=3)]
    worst = 0
    for table, guess in itertools.product(tables, guesses):
        for left, entered in itertools.permutations(np.flatnonzero(table >= 0), 2):
            if table[left]:
                other = table.copy()
                other[left] -= 1
                other[entered] += 1
                worst = max(worst, abs(score(table, guess) - score(other, guess)))
    return Caught("all neighbours", f"a replaced record moves a score by {worst}, and 1 is charged", worst > 1)


CHOICES = (
    kind_bug("score_of_both_sides", "enumeration", both_sides, misplaced, attack_score),
    twin_bug("exponential_without_half", "game", ChoiceWithoutHalf, ExponentialChoice, attack_choice, epsilon=1.0),
    twin_bug(
        "weights_of_whole_epsilon",
        "enumeration",
        WeightsOfWholeEpsilon,
        SoftMajority,
        lambda target: search(target, classes=2, queries=1, orders=[2.0, 8.0]),
        teachers=12,
        epsilon_per_query=1.0,
    ),
    twin_bug(
        "zero_when_nobody_votes",
        "enumeration",
        ZeroWhenNobodyVotes,
        NearestVotes,
        lambda target: search(target, classes=3, queries=1, orders=[2.0, 8.0]),
        teachers=6,
        classes=3,
        scale=1.5,
    ),
    twin_bug("exception_on_tie", "replay", RaisesOnTie, NoisyMax, attack_exceptions, teachers=20, classes=2, scale=5.0),
)
