"""Tracing: who is in the data, told from statistics alone (Dwork et al. 2015; Bassily et al. 2020, section 4).

Every person has p answers of -1 or 1 to public questions, the decision stumps. The question j has its own mean in the
population, which the attacker knows, and the owner releases the means of n people. A person is scored by how well their
row agrees with what sets the released means apart from the population's. With exact means and p far above n nearly
every member scores above nearly every stranger. If what was released is (epsilon, delta)-differentially private then no
score whatever finds a share of members above e^epsilon times the share of strangers that it finds, plus delta.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.auditing.bounds import proportion_at_least, proportion_at_most
from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisySum
from quorate.release import Columns, QueryRelease, Workload
from quorate.tables import Number

__all__ = ["Population", "Traced", "exact_means", "noisy_means", "released_means", "trace"]

Rows = NDArray[np.int8]
Release = Callable[[Rows], Floats]

_BLOCK = 256  # strangers scored together


class Population:
    """Independent answers of -1 or 1, each with a mean of its own, drawn from `seed`."""

    def __init__(self, *, stumps: int, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self.means: Floats = self._generator.uniform(-1, 1, size=check_count("stumps", stumps))

    def draw(self, people: int) -> Rows:
        """Return the rows of this many people."""
        chance = ((1 + self.means) / 2).astype(np.float32)
        drawn = self._generator.random(size=(people, chance.size), dtype=np.float32)
        return np.where(drawn < chance, np.int8(1), np.int8(-1))


@dataclass(frozen=True, eq=False)
class Traced:
    """The scores of members and of strangers."""

    members: Floats
    strangers: Floats

    def hits(self, *, false_alarms: float) -> float:
        """Return the share of members that score above all but this share of strangers."""
        return float((self.members > self._threshold(false_alarms)).mean())

    def _threshold(self, false_alarms: float) -> float:
        allowed = math.floor(check_rate("false_alarms", false_alarms) * self.strangers.size)
        return float(np.sort(self.strangers)[::-1][min(allowed, self.strangers.size - 1)])

    def excess(self, *, epsilon: float, delta: float, confidence: float) -> float:
        """Return by how much, with this confidence, members are found beyond what (epsilon, delta) allows: at most 0.

        The threshold is chosen on one half of the scores and counted on the other. Scores are counted as independent:
        given what was released those of strangers are, and those of members nearly, the more people there are.
        """
        if min(self.members.size, self.strangers.size) < 8:
            raise InvalidInput("at least 8 members and 8 strangers are needed")
        error = (1 - check_rate("confidence", confidence)) / 2
        ones, others = self.members[::2], self.strangers[::2]
        cuts = np.unique(np.concatenate([ones, others]))
        shares = 1 - np.searchsorted(np.sort(ones), cuts, side="right") / ones.size
        alarms = 1 - np.searchsorted(np.sort(others), cuts, side="right") / others.size
        cut = cuts[int((shares - math.exp(epsilon) * (alarms + 1 / others.size)).argmax())]
        ones, others = self.members[1::2], self.strangers[1::2]
        hits = proportion_at_least(int((ones > cut).sum()), ones.size, error=error)
        misses = proportion_at_most(int((others > cut).sum()), others.size, error=error)
        return float(hits - math.exp(epsilon) * misses - delta)


def exact_means(rows: Rows) -> Floats:
    """Return the mean answer to each question: no privacy at all."""
    means: Floats = rows.mean(axis=0, dtype=np.float64)
    return means


def noisy_means(*, epsilon: float, delta: float) -> Release:
    """Return the release of all means together within (epsilon, delta), with discrete Gaussian noise on the sums."""

    def release(rows: Rows) -> Floats:
        sums = rows.sum(axis=0, dtype=np.int64)
        # replacing one person moves every sum by 2 at most
        noisy = NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=2, releases=rows.shape[1])
        return np.array(noisy.releases(sums.tolist()), dtype=np.float64) / len(rows)

    return release


def released_means(*, epsilon: float, delta: float, engine: str = "plain") -> Release:
    """Return the release of all means by a `QueryRelease` of this engine."""

    def release(rows: Rows) -> Floats:
        names = [str(number) for number in range(rows.shape[1])]
        columns = Columns({name: Number(cuts=[0.0]) for name in names})
        query_release = QueryRelease(
            Workload.marginals(1), epsilon=epsilon, delta=delta, engine=engine, columns=columns
        )
        query_release.fit({name: rows[:, number].astype(np.float64) for number, name in enumerate(names)})
        shares = query_release.read(np.arange(3 * len(names)))[0].reshape(len(names), 3)  # below 0, above 0, missing
        return shares[:, 1] - shares[:, 0]

    return release


def trace(
    release: Release, *, stumps: int = 10_000, people: int = 100, strangers: int = 2000, repeats: int = 1, seed: int = 0
) -> Traced:
    """Release the means of this many people, and score them and as many strangers against the release.

    Each repeat draws the population, the people and the strangers anew.
    """
    people, strangers = check_count("people", people, least=2), check_count("strangers", strangers, least=2)
    members, others = [], []
    for repeat in range(check_count("repeats", repeats)):
        population = Population(stumps=stumps, seed=int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0]))
        rows = population.draw(people)
        means = population.means
        direction = np.clip(np.asarray(release(rows), dtype=np.float64), -1, 1) - means
        members.append((rows - means) @ direction)
        for start in range(0, strangers, _BLOCK):
            drawn = population.draw(min(_BLOCK, strangers - start))
            others.append(drawn @ direction - means @ direction)
    return Traced(np.concatenate(members), np.concatenate(others))
