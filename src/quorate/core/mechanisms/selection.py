"""RandomStopping runs a secret random number of private trials and releases the best of them.

Claim (of any one pair of neighbours; each trial draws its candidate uniformly and is private as `trial` says, and the
score is part of what a trial releases): the best trial costs what one trial costs, plus a term for the choice that
grows with the logarithm of the number of trials, and not with the number. The number of trials must stay secret: the
claim does not hold against anyone who learns it. Proof: PROOF_selection.md.

The bound is ours: it holds for every distribution of the number of trials, a cap included, and is never above those of
Liu and Talwar (2019) and of Papernot and Steinke (2022) for their distributions.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, TypeVar

import numpy as np

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_rate, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.distributions import stable_up
from quorate.core.mechanisms.exponential import draw_below
from quorate.core.mechanisms.noisy_vector import discrete_loss, largest_length, smallest_excess
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import Budget, Cost, gaussian_renyi, pure_renyi
from quorate.core.privacy.cost import halve_interval

MOST_ENTRIES = 2**20  # that a Gaussian trial may release; proof: step 4
_UP = 1 + 1e-9  # far above the rounding of the few operations before it


def _below(points: Floats) -> Floats:
    """Return the probabilities that a standard Gaussian is below these places."""
    return _below_bytes(points.tobytes())


@lru_cache(maxsize=4)
def _below_bytes(points: bytes) -> Floats:
    probabilities = np.array([math.erfc(-point / math.sqrt(2)) / 2 for point in np.frombuffer(points).tolist()])
    probabilities.setflags(write=False)
    return probabilities


class Trial(Protocol):
    """A trial that is (epsilon, delta)-DP, and by what noise.

    `slack` is the probability of the tail event that `renyi` and `events` leave out, in one trial.
    """

    @property
    def epsilon(self) -> float:
        """The epsilon of one trial by itself."""

    @property
    def delta(self) -> float:
        """The delta of one trial by itself."""

    @property
    def slack(self) -> float:
        """The probability of a trial's tail event."""

    @classmethod
    def one_of(cls, trials: float, *, epsilon: float, delta: float) -> "Trial":
        """Return the trial of this epsilon of which so many, in the mean, may take place within `delta`."""

    def renyi(self, order: float) -> float:
        """Return the divergence of one trial at this order: an upper bound."""

    def events(self, points: Floats) -> tuple[Floats, Floats]:
        """Return bounds on the probabilities of an event under two neighbours: above for one, below for the other.

        Both fall along `points`, which run from -inf to inf. An event is as likely as the pair of some place says, or
        it tells the neighbours less well apart.
        """

    def composed(self, trials: int, *, delta: float) -> float:
        """Return the epsilon of so many trials, all of which are released, at `delta`."""


@dataclass(frozen=True)
class _Private:
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        validate_fields(self, delta=check_delta(self.delta))


class GaussianTrial(_Private):
    """A trial with discrete Gaussian noise, which `NoisyVector` or `NoisyVectors` calibrates for (epsilon, delta)."""

    slack = 0.0

    @classmethod
    def one_of(cls, trials: float, *, epsilon: float, delta: float) -> "GaussianTrial":
        """Return the trial of this epsilon and delta: Gaussian noise leaves no tail event out."""
        return cls(epsilon, delta)

    @cached_property
    def length(self) -> float:
        """By how much a unit moves what is released, in units of the noise: an upper bound."""
        return largest_length(epsilon=self.epsilon, delta=self.delta, entries=1) * _UP

    def renyi(self, order: float) -> float:
        """Return the divergence of one trial at this order: an upper bound."""
        return math.inf if order == math.inf else gaussian_renyi(scale=1 / self.length, order=order) * _UP

    def events(self, points: Floats) -> tuple[Floats, Floats]:
        """Return what a Gaussian allows, with a margin for the step to whole numbers: proof: step 4."""
        margin = math.exp(discrete_loss(MOST_ENTRIES))
        return np.minimum(1.0, _below(-points) * margin), _below(-(points + self.length)) / margin

    def composed(self, trials: int, *, delta: float) -> float:
        """Return the epsilon of so many trials, all of which are released, at `delta`: proof: step 6."""
        together = self.length * math.sqrt(check_count("trials", trials)) * _UP
        return smallest_excess(together, delta=delta, entries=trials * MOST_ENTRIES)


class ApproximateTrial(_Private):
    """A trial of which nothing is known but that it is (epsilon, delta)-DP."""

    @property
    def slack(self) -> float:
        """The probability of a trial's tail event: its delta."""
        return self.delta

    @classmethod
    def one_of(cls, trials: float, *, epsilon: float, delta: float) -> "ApproximateTrial":
        """Return the trial of this epsilon, and of the share of delta that the number of trials leaves to each."""
        return cls(epsilon, delta / (trials * _UP**2))

    def renyi(self, order: float) -> float:
        """Return the divergence of one trial, its tail event left out, at this order: an upper bound."""
        return pure_renyi(self.epsilon, order=order)

    def events(self, points: Floats) -> tuple[Floats, Floats]:
        """Return what epsilon allows: proof: step 5."""
        likely, rest = _below(-points), _below(points)
        factor = math.exp(min(self.epsilon, 700.0)) * _UP
        return likely, np.maximum(likely / factor, 1 - factor * rest)

    def composed(self, trials: int, *, delta: float) -> float:
        """Return the epsilon of so many trials, all of which are released, at `delta`: proof: step 6."""
        slack, plain = self.slack * check_count("trials", trials) * _UP, self.epsilon * trials * _UP
        if slack > check_delta(delta):
            return math.inf
        if slack >= delta * (1 - 1e-6):  # what is left for a conversion is of no use
            return plain
        return min(plain, smallest_epsilon(lambda order: self.renyi(order) * trials * _UP, delta=delta, slack=slack)[0])


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
        validate_fields(self, weights=weights)

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

            def build(trial_epsilon: float) -> RandomStopping:
                sized = trial.one_of(mean, epsilon=trial_epsilon, delta=delta)
                return cls(candidates=candidates, weights=weights, trial=sized)

            return largest_trial(build, epsilon=epsilon, delta=delta)

        possible = [largest(weights) for weights in laws if weights]
        enough = _ALIKE * max(stopping.trial.epsilon for stopping in possible)
        return min(
            (stopping for stopping in possible if stopping.trial.epsilon >= enough),
            key=lambda stopping: stopping.mean_trials,
        )

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
        bound = self.trial.renyi(math.inf) + stable_up(max(0.0, float(np.max(first - second)) + 2 * _MARGIN))
        if check_order(order) == math.inf:
            return bound
        chosen = float(np.max(order * first - (order - 1) * second)) + 2 * order * _MARGIN  # proof: step 3
        return min(bound, self.trial.renyi(order) + stable_up(max(0.0, chosen)) / (order - 1))

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
        remainder = draw_below(sum(self.weights), noise)
        for number, weight in enumerate(self.weights, start=1):
            remainder -= weight
            if remainder < 0:
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
    longest = max(2, math.ceil(-_MOST * candidates * math.log1p(-tried)))
    if longest > _LONGEST:
        raise Infeasible(
            f"{candidates} candidates may take {longest} trials, above {_LONGEST}; name fewer, or lower tried"
        )
    # (k + 1) ... (k + shape - 1), up to a factor. NumPy's functions would give other weights on other processors.
    ways = [math.fsum(math.log(number + step) for step in range(1, shape)) for number in range(1, longest + 1)]

    def law(stop: float) -> list[float]:
        log_stop = math.log1p(-stop)
        logs = [way + number * log_stop for number, way in enumerate(ways, start=1)]
        top = max(logs)
        weights = [math.exp(log - top) for log in logs]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    low, high = 1e-9, 1 - 1e-9  # a smaller chance of stopping means more trials
    if _tried(law(low), candidates) < tried:
        return ()
    low, _ = halve_interval(low, high, lambda stop: _tried(law(stop), candidates) >= tried, steps=60)
    return tuple(int(weight * _UNIT) for weight in law(low))


def _mean(weights: tuple[int, ...]) -> float:
    return sum(number * weight for number, weight in enumerate(weights, start=1)) / sum(weights)


def _tried(law: Sequence[float], candidates: int) -> float:
    missed = 1 - 1 / candidates
    return 1 - math.fsum(weight * missed**number for number, weight in enumerate(law, start=1))


def _log_slope(law: Floats, points: Floats) -> Floats:
    """Return the logarithm of the sum of k law[k] place**(k - 1), by Horner's rule: all terms are positive."""
    slope = np.zeros_like(points)
    for number in range(law.size, 0, -1):
        slope = slope * points + number * law[number - 1]
    return np.asarray(np.log(slope))


_CLOSE = 1e-3  # to the largest trial, relatively


class _Selection(Protocol):
    def epsilon(self, *, delta: float) -> float: ...


Made = TypeVar("Made", bound=_Selection)


@dataclass(frozen=True, kw_only=True)
class EveryCandidate:
    """One trial for each candidate, all paid for.

    >>> from quorate.core.mechanisms.selection import GaussianTrial
    >>> both = EveryCandidate.calibrate(epsilon=1.0, delta=1e-6, candidates=4, trial=GaussianTrial)
    >>> round(both.trial.epsilon, 2)
    0.48
    """

    candidates: int
    trial: Trial

    def __post_init__(self) -> None:
        validate_fields(self)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, candidates: int, trial: type[Trial]) -> "EveryCandidate":
        """Return the EveryCandidate whose trials have the largest epsilon that (epsilon, delta) pays for."""
        delta, candidates = check_delta(delta, zero=False), check_count("candidates", candidates)

        def build(trial_epsilon: float) -> EveryCandidate:
            # half of delta for tail events: nothing to a Gaussian, a little to others, whose composition needs the rest
            return cls(candidates=candidates, trial=trial.one_of(2 * candidates, epsilon=trial_epsilon, delta=delta))

        return largest_trial(build, epsilon=epsilon, delta=delta)

    @property
    def tried(self) -> float:
        """The probability with which a given candidate is tried."""
        return 1.0

    @property
    def mean_trials(self) -> float:
        """How many trials there are."""
        return float(self.candidates)

    @property
    def most_trials(self) -> int:
        """How many trials there are."""
        return self.candidates

    def epsilon(self, *, delta: float) -> float:
        """Return the epsilon of the best trial at `delta`, which is that of all of them."""
        return self.trial.composed(self.candidates, delta=delta)

    def best(self, run: Callable[[int], tuple[float, Outcome]]) -> Outcome:
        """Run a trial of each candidate, by its number, and return the result with the best score, first on ties."""
        return best_of(run, range(self.candidates))


def largest_trial(make: Callable[[float], Made], *, epsilon: float, delta: float) -> Made:
    """Return what `make` makes of the largest epsilon of a trial that was seen to keep (epsilon, delta)."""
    high, low = check_positive("epsilon", epsilon), epsilon / 2
    while make(low).epsilon(delta=delta) > epsilon:
        high, low = low, low / 2
        if low < 1e-6 * epsilon:
            raise Infeasible(f"epsilon={epsilon:g} leaves nothing for each trial; name fewer candidates")
    if (largest := make(high)).epsilon(delta=delta) <= epsilon:
        return largest
    while high - low > _CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if make(middle).epsilon(delta=delta) <= epsilon else (low, middle)
    return make(low)


def best_of(run: Callable[[int], tuple[float, Outcome]], candidates: Iterable[int]) -> Outcome:
    """Return what the highest score came with: the first of them, of equals. Proof: step 2."""
    best: tuple[float, Outcome] | None = None
    for candidate in candidates:
        result = run(candidate)
        if best is None or result[0] > best[0]:
            best = result
    assert best is not None
    return best[1]
