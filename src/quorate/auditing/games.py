"""What all games share: plays of two worlds, held against a claim at several deltas."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from quorate.auditing.attacks import exact_epsilon
from quorate.auditing.bounds import Bound, epsilon_lower_bound, expected_lower_bound
from quorate.auditing.enumeration import Outcomes
from quorate.auditing.verdict import Attempt, Effort

__all__ = ["DELTAS", "attempts_at", "laws_of", "most_telling"]

Pair = TypeVar("Pair", bound=tuple[Any, Any])

DELTAS = (1e-1, 1e-2, 1e-3)  # where a claim has a delta: below, a million plays see too little


def attempts_at(
    claims: Sequence[tuple[float, float]],
    first: Any,
    second: Any,
    *,
    attack: str,
    confidence: float,
    law: Outcomes | None = None,
    bound: Callable[..., Bound] = epsilon_lower_bound,
) -> list[Attempt]:
    """Return an attempt at each claim that says something, from the same plays: each has a share of the error.

    `law` is the pair of exact laws of what was seen, where it is known.
    """
    telling = [(epsilon, delta) for epsilon, delta in claims if 0 < epsilon < np.inf]
    error = (1 - confidence) / max(1, len(telling))
    attempts = []
    for epsilon, delta in telling:
        bounded = bound(first, second, delta=delta, confidence=1 - error)
        exact = None if law is None else exact_epsilon(law, delta)
        attempts.append(Attempt(attack, bounded.epsilon, bounded.event, claim=(epsilon, delta), exact=exact))
    return attempts


def most_telling(pairs: Iterable[Pair], law: Callable[..., Any], *, delta: float, effort: Effort) -> Pair:
    """Return the pair of worlds that so many plays should tell apart best, by the `law` of what is seen in each."""

    def expected(pair: Pair) -> float:
        first, second = (law(world) for world in pair)
        return expected_lower_bound(first, second, delta=delta, confidence=effort.confidence, plays=effort.plays)

    return max(pairs, key=expected)


def laws_of(first: Any, second: Any) -> Outcomes:
    """Return two laws over the same outcomes, numbered from 0, for enumeration to compare."""
    ones, others = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return Outcomes([(outcome,) for outcome in range(ones.size)], ones, ones, others)
