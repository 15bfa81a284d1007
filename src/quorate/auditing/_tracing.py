"""Tracing: who is in the data, from statistics alone (Dwork et al. 2015; Bassily et al. 2020, section 4).

Every person has p answers of -1 or 1 to public questions, the decision stumps. Each question has its own mean in the
population, which the attacker knows, and the owner releases the means of n people. A person is scored by how well their
row agrees with what sets the released means apart from the population's. With exact means and p far above n nearly
every member scores above nearly every stranger.

Under (epsilon, delta)-DP for one record replaced, no score finds a larger share of members than e^epsilon times the
share of false alarms, plus delta.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.auditing._bounds import proportion_at_least, proportion_at_most
from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput

Rows = NDArray[np.int8]
Release = Callable[[Rows], Floats]

_BLOCK = 256  # strangers scored together


def area_under_curve(first: Floats, second: Floats) -> float:
    """Return the probability that one of the first is below one of the second, ties counted half."""
    _, inverse, counts = np.unique(np.concatenate([first, second]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    above = ranks[first.size :].sum() - second.size * (second.size + 1) / 2
    return float(above / (first.size * second.size))


@dataclass(frozen=True, eq=False)
class Roc:
    """Scores of members of the data and of others."""

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

        The threshold is chosen on one half of the scores and counted on the other. Scores are counted as independent.
        Those of membership inference are, by the coins that were tossed, where nothing leaks; where something does,
        those of one model hang together a little. When tracing, those of strangers are, given what was released, and
        those of members nearly, the more people there are.
        """
        if min(self.members.size, self.others.size) < 8:
            raise InvalidInput("at least 8 members and 8 others are needed")
        error = (1 - check_rate("confidence", confidence)) / 2
        alarms, hits = Roc(self.members[::2], self.others[::2]).curve()
        cuts = np.unique(np.concatenate([self.members[::2], self.others[::2]]))[::-1]
        best = int((hits[1:] - math.exp(epsilon) * (alarms[1:] + 2 / self.others.size)).argmax())
        members, strangers = self.members[1::2], self.others[1::2]
        least_hits = proportion_at_least(int((members >= cuts[best]).sum()), members.size, error=error)
        false = proportion_at_most(int((strangers >= cuts[best]).sum()), strangers.size, error=error)
        return float(least_hits - math.exp(epsilon) * false - delta)


class Population:
    """Independent answers of -1 or 1, each with a mean of its own, drawn from `seed`."""

    def __init__(self, *, stumps: int, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self.means: Floats = self._generator.uniform(-1, 1, size=check_count("stumps", stumps))

    def draw(self, people: int) -> Rows:
        """Return the rows of this many people."""
        chance = ((1 + self.means) / 2).astype(np.float32)
        uniforms = self._generator.random(size=(people, chance.size), dtype=np.float32)
        return np.where(uniforms < chance, np.int8(1), np.int8(-1))


def trace(
    release: Release, *, stumps: int = 10_000, people: int = 100, strangers: int = 2000, repeats: int = 1, seed: int = 0
) -> Roc:
    """Release the means of this many people, and score them and as many strangers against the release.

    Each repeat draws the population, the people and the strangers anew.
    """
    people, strangers = check_count("people", people, least=2), check_count("strangers", strangers, least=2)
    members, scores = [], []
    for repeat in range(check_count("repeats", repeats)):
        population = Population(stumps=stumps, seed=int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0]))
        rows = population.draw(people)
        means = population.means
        direction = np.clip(np.asarray(release(rows), dtype=np.float64), -1, 1) - means
        members.append((rows - means) @ direction)
        for start in range(0, strangers, _BLOCK):
            block = population.draw(min(_BLOCK, strangers - start))
            scores.append(block @ direction - means @ direction)
    return Roc(np.concatenate(members), np.concatenate(scores))
