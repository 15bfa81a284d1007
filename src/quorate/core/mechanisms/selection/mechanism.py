"""RandomStopping runs a secret random number of private trials and releases the best of them.

Claim (of any one pair of neighbours; each trial draws its candidate uniformly and is private as `trial` says, and the
score is part of what a trial releases): the best trial costs what one trial costs, plus a term for the choice that
grows with the logarithm of the number of trials, and not with the number. The number of trials must stay secret: the
claim does not hold against anyone who learns it. Proof: PROOF.md.

The bound is ours: it holds for every distribution of the number of trials, a cap included, and is never above those of
Liu and Talwar (2019) and of Papernot and Steinke (2022) for their distributions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_delta, check_order, check_rate, set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.exponential.exact import draw_below
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.mechanisms.rounding import stable_up
from quorate.core.mechanisms.selection.every import best_of, largest_trial
from quorate.core.mechanisms.selection.trials import Trial
from quorate.core.noise import NoiseSource, system_noise
from quorate.core.privacy import Budget, Cost

__all__ = ["RandomStopping", "negative_binomial"]

_SHAPES = (1, 2, 4)  # of negative binomial laws that are compared: 1 is the geometric
_ALIKE = 0.97  # trials this close to the largest are as good, and the law of fewer trials is taken
_MOST = 5.2  # trials a candidate, times the logarithm of 1 / (1 - tried): 12 candidates' worth for nine in ten
_LONGEST = 2**12  # trials at most: 340 candidates, tried with probability 0.9
_UNIT = 2.0**60  # what the weights of a law add up to, about
_PLACES = np.concatenate(  # where slopes are compared: close together where they differ much
    [
        [-np.inf],
        np.linspace(-14.0, -6.0, 256),
        np.linspace(-6.0, 4.0, 2**15)[1:],
        np.linspace(4.0, 9.0, 256)[1:],
        [np.inf],
    ]
)
_MARGIN = 1e-9  # of a logarithm, far above the rounding of a sum of positive terms

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, kw_only=True)
class RandomStopping:
    """The best of k trials, with k = 1, 2, ... drawn in proportion to `weights`, whole numbers.

    >>> from quorate.core.mechanisms.selection import GaussianTrial
    >>> stopping = RandomStopping.calibrate(epsilon=1.0, delta=1e-6, candidates=8, trial=GaussianTrial)
    >>> round(stopping.trial.epsilon, 2), round(stopping.trial.composed(8, delta=1e-6), 2)  # each alone, eight composed
    (0.51, 1.57)
    >>> stopping.best(lambda candidate: (-abs(candidate - 5), candidate)) in range(8)
    True
    """

    candidates: int
    weights: tuple[int, ...]
    trial: Trial

    def __post_init__(self) -> None:
        weights = tuple(check_count("a weight", weight, least=0) for weight in self.weights)
        if not weights or weights[0] < 1:
            raise InvalidInput("one trial alone must be possible: the first weight is at least 1")
        set_validated(self, candidates=check_count("candidates", self.candidates), weights=weights)

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, candidates: int, trial: type[Trial], tried: float = 0.9
    ) -> "RandomStopping":
        """Return the RandomStopping whose trials have the largest epsilon, among a few distributions.

        `tried` is the probability that a given candidate, such as the best one, is tried at least once.
        """
        delta = check_delta(delta, zero=False)
        laws = [negative_binomial(shape, candidates=candidates, tried=tried) for shape in _SHAPES]

        def largest(weights: tuple[int, ...]) -> RandomStopping:
            mean = _mean(weights)

            def made(each: float) -> RandomStopping:
                one = trial.one_of(mean, epsilon=each, delta=delta)
                return cls(candidates=candidates, weights=weights, trial=one)

            return largest_trial(made, epsilon=epsilon, delta=delta)

        possible = [largest(weights) for weights in laws if weights]
        enough = _ALIKE * max(one.trial.epsilon for one in possible)
        return min((one for one in possible if one.trial.epsilon >= enough), key=lambda one: one.mean_trials)

    @property
    def tried(self) -> float:
        """The probability with which a given candidate is tried at least once."""
        total = sum(self.weights)
        return _tried([weight / total for weight in self.weights], self.candidates)

    @property
    def mean_trials(self) -> float:
        """The mean number of trials."""
        return _mean(self.weights)

    @property
    def most_trials(self) -> int:
        """The largest possible number of trials."""
        return len(self.weights)

    @property
    def slack(self) -> float:
        """An upper bound on the probability that the tail event of any trial occurs. Proof: step 5."""
        return self.trial.slack * self.mean_trials * (1 + _MARGIN)

    def renyi(self, order: float) -> float:
        """Return an upper bound on the cost of the best trial at this order."""
        first, second = self._slopes
        most = self.trial.renyi(math.inf) + stable_up(max(0.0, float(np.max(first - second)) + 2 * _MARGIN))
        if check_order(order) == math.inf:
            return most
        chosen = float(np.max(order * first - (order - 1) * second)) + 2 * order * _MARGIN  # proof: step 3
        return min(most, self.trial.renyi(order) + stable_up(max(0.0, chosen)) / (order - 1))

    def release_cost(self, order: float) -> Cost:
        """Return the cost of the best trial."""
        return Cost(self.renyi(order), self.slack)

    def epsilon(self, *, delta: float) -> float:
        """Return the epsilon of the best trial at `delta`."""
        if self.slack > check_delta(delta):
            return math.inf
        plain = self.renyi(math.inf)
        if self.slack >= delta * (1 - 1e-6):  # what is left for a conversion is of no use
            return plain
        return min(plain, smallest_epsilon(self.renyi, delta=delta, slack=self.slack)[0])

    def best(self, run: Callable[[int], tuple[float, Outcome]], *, budget: Budget | None = None) -> Outcome:
        """Run trials, each by the number of its candidate, and return the result with the best score.

        `run` returns the score and the result of one private trial. The number of trials is not kept, and `run` must
        not reveal it.
        """
        return self.draw_best(run, budget, system_noise)

    def draw_best(
        self, run: Callable[[int], tuple[float, Outcome]], budget: Budget | None, noise: NoiseSource
    ) -> Outcome:
        """Charge for the best trial, draw the number of trials and their candidates with this noise, and run them."""
        if budget is not None:
            budget.spend(self.release_cost(budget.order))  # charge, then draw
        return best_of(run, [draw_below(self.candidates, noise) for _ in range(self.draw_number(noise))])

    def draw_number(self, noise: NoiseSource) -> int:
        """Draw the secret number of trials, exactly in proportion to the weights: proof: step 1."""
        left = draw_below(sum(self.weights), noise)
        for number, weight in enumerate(self.weights, start=1):
            left -= weight
            if left < 0:
                return number
        raise AssertionError("a number below the sum of all weights is below a sum of some")

    @cached_property
    def _slopes(self) -> tuple[Floats, Floats]:
        """Return bounds on the logarithm of the law's slope at the events of each interval of places: proof: step 3."""
        likely, other = self.trial.events(_PLACES)
        law = np.array(self.weights, dtype=np.float64) / sum(self.weights)
        law = law * np.exp(np.arange(1, law.size + 1) * math.log1p(-self.trial.slack))  # proof: step 5
        law /= law.sum()
        return _log_slope(law, likely[:-1]), _log_slope(law, other[1:])


def negative_binomial(shape: int, *, candidates: int, tried: float) -> tuple[int, ...]:
    """Return the weights of a negative binomial law, without 0 and capped, by which a candidate is tried with `tried`.

    Weights are whole numbers; the law is what they say. They are none where the cap is too low for this shape.
    """
    candidates = check_count("candidates", candidates)
    if check_rate("tried", tried) == 1:
        raise InvalidInput("tried must be below 1: a random number of trials may always leave a candidate out")
    most = max(2, math.ceil(-_MOST * candidates * math.log1p(-tried)))
    if most > _LONGEST:
        raise Infeasible(
            f"{candidates} candidates may take {most} trials, above {_LONGEST}; name fewer, or lower tried"
        )
    # (k + 1) ... (k + shape - 1), up to a factor. NumPy's functions would give other weights on other processors.
    ways = [math.fsum(math.log(number + step) for step in range(1, shape)) for number in range(1, most + 1)]

    def law(stop: float) -> list[float]:
        each = math.log1p(-stop)
        logs = [way + number * each for number, way in enumerate(ways, start=1)]
        top = max(logs)
        weights = [math.exp(log - top) for log in logs]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    low, high = 1e-9, 1 - 1e-9  # a smaller chance of stopping means more trials
    if _tried(law(low), candidates) < tried:
        return ()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tried(law(middle), candidates) >= tried else (low, middle)
    return tuple(int(weight * _UNIT) for weight in law(low))


def _mean(weights: tuple[int, ...]) -> float:
    return sum(number * weight for number, weight in enumerate(weights, start=1)) / sum(weights)


def _tried(law: Sequence[float], candidates: int) -> float:
    missed = 1 - 1 / candidates
    return 1 - math.fsum(weight * missed**number for number, weight in enumerate(law, start=1))


def _log_slope(law: Floats, places: Floats) -> Floats:
    """Return the logarithm of the sum of k law[k] place**(k - 1), by Horner's rule: all terms are positive."""
    slope = np.zeros_like(places)
    for number in range(law.size, 0, -1):
        slope = slope * places + number * law[number - 1]
    return np.asarray(np.log(slope))
