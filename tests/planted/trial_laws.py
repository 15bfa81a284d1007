"""The best of a random number of trials, enumerated: every number of trials, every sequence of their outcomes.

The code itself says what is released, for every word that it can draw; probabilities come in afterwards. So one
enumeration serves for any two laws of a trial.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import RandomStopping
from quorate.core.mechanisms.distributions import excess

__all__ = ["Released", "best_law", "epsilon_trials", "released_best", "worst_log_ratio", "worst_renyi"]

_SHARES = np.concatenate([10.0 ** np.arange(-6, -1), np.linspace(0.02, 0.98, 49), 1 - 10.0 ** np.arange(-2.0, -7, -1)])
_SMALL = (1e-9, 1e-3, 0.05, 0.2)  # probabilities of the middle outcome


class _OneWord:
    """A source whose first word is given; a mechanism of one candidate asks for no other."""

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return the word, if any is asked for."""
        return np.full(size, self._word, dtype=np.uint64)


@dataclass(frozen=True)
class Released:
    """What may be released, and the ways to it: counts of the outcomes of trials, and the share of the words."""

    results: tuple[Any, ...]
    ways: tuple[tuple[NDArray[np.int64], Floats], ...]

    def law(self, trial: Floats) -> Floats:
        """Return the probability of each result, where these are the probabilities of a trial's outcomes."""
        return np.array([float(shares @ np.prod(trial**counts, axis=1)) for counts, shares in self.ways])


def released_best(stopping: RandomStopping, scores: Sequence[int]) -> Released:
    """Run a mechanism of one candidate on every word and every sequence of outcomes, which have these scores."""
    total = sum(stopping.weights)
    if stopping.candidates != 1 or total & (total - 1):
        raise InvalidInput("what is enumerated has one candidate, and weights that add up to a power of 2")
    ways: dict[Any, dict[tuple[int, ...], float]] = defaultdict(lambda: defaultdict(float))
    for word in range(total):
        for result, counts in _results(stopping, word, scores):
            ways[result][counts] += 1 / total
    return Released(
        tuple(ways),
        tuple((np.array(list(one)), np.array(list(one.values()))) for one in ways.values()),
    )


def _results(stopping: RandomStopping, word: int, scores: Sequence[int]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Yield what is released on one word, and the counts of outcomes, for every sequence that it asks for."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        given = pending.pop()
        asked = iter(given)

        def run(_: int, asked: Iterator[int] = asked) -> tuple[float, int]:
            outcome = next(asked)
            return float(scores[outcome]), outcome

        try:
            result = stopping.draw_best(run, None, _OneWord(word))  # type: ignore[arg-type]
        except StopIteration:  # it runs one more trial: each of its outcomes
            pending += [(*given, outcome) for outcome in range(len(scores))]
            continue
        yield result, tuple(given.count(outcome) for outcome in range(len(scores)))


def best_law(law: Floats, trial: Floats) -> Floats:
    """Return the law of the best of k trials, k by this law, whose outcomes have rising scores: by a formula."""
    upto = np.concatenate([[0.0], np.cumsum(trial)])
    powers = upto[:, np.newaxis] ** np.arange(1, law.size + 1)
    return np.asarray(np.diff(powers @ law))


@cache
def epsilon_trials(epsilon: float) -> tuple[tuple[Floats, Floats], ...]:
    """Return pairs of laws of three outcomes whose ratios are within epsilon, to its ends: both ways round.

    The middle one may be rare. It is the one by which a bound for the best of many trials is met.
    """
    pairs, factor = [], math.exp(epsilon)
    for low, middle in itertools.product(_SHARES, _SMALL):
        least = max(low / factor, 1 - (1 - low) * factor)
        first = np.array([low * (1 - middle), middle, (1 - low) * (1 - middle)])
        for share in (least, min(low * factor, 1 - (1 - low) / factor)):
            for ratio in (1 / factor, factor):
                rest = np.array([share, 1 - share]) * (1 - middle * ratio)
                second = np.array([rest[0], middle * ratio, rest[1]])
                ratios = second / first
                if ratios.min() >= (1 - 1e-12) / factor and ratios.max() <= factor * (1 + 1e-12):
                    pairs += [(first, second), (second, first)]
    return tuple(pairs)


def worst_log_ratio(released: Released, pairs: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the largest log ratio of any result under these pairs of laws of a trial."""
    return max(float(np.max(np.log(released.law(first) / released.law(second)))) for first, second in pairs)


def worst_renyi(laws: Sequence[tuple[Floats, Floats]], order: float) -> float:
    """Return the largest Renyi divergence, at this order, between the laws of any of these pairs."""
    return max(math.log1p(float(excess(first, second, order).sum())) / (order - 1) for first, second in laws)
