"""EveryCandidate tries each candidate once, pays for all trials, and releases the best.

Claim: all trials together cost what their composition costs, and the best is one of them. PROOF.md, step 6.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from quorate.core.checks import check_count, check_delta, check_positive, set_validated
from quorate.core.errors import Infeasible
from quorate.core.mechanisms.selection.trials import Trial

__all__ = ["EveryCandidate", "best_of", "largest_trial"]

Outcome = TypeVar("Outcome")
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
        set_validated(self, candidates=check_count("candidates", self.candidates))

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, candidates: int, trial: type[Trial]) -> "EveryCandidate":
        """Return the EveryCandidate whose trials have the largest epsilon that (epsilon, delta) pays for."""
        delta, candidates = check_delta(delta, zero=False), check_count("candidates", candidates)

        def made(each: float) -> EveryCandidate:
            # half of delta for tail events: nothing to a Gaussian, a little to others, whose composition needs the rest
            return cls(candidates=candidates, trial=trial.one_of(2 * candidates, epsilon=each, delta=delta))

        return largest_trial(made, epsilon=epsilon, delta=delta)

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
    if (whole := make(high)).epsilon(delta=delta) <= epsilon:
        return whole
    while high - low > _CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if make(middle).epsilon(delta=delta) <= epsilon else (low, middle)
    return make(low)


def best_of(run: Callable[[int], tuple[float, Outcome]], candidates: Iterable[int]) -> Outcome:
    """Return what the highest score came with: the first of them, of equals. Proof: step 2."""
    best: tuple[float, Outcome] | None = None
    for candidate in candidates:
        one = run(candidate)
        if best is None or one[0] > best[0]:
            best = one
    assert best is not None
    return best[1]
