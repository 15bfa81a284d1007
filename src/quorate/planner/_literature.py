"""Bounds from the literature, with their published constants, for comparison with a plan."""

import math

from quorate.planner.result import PublishedBound

_FAILURE = 0.05  # the probability beta with which the published guarantee of accuracy may fail


def stability_teachers(*, epsilon: float, delta: float, queries: int, disagreement: float) -> tuple[int, int]:
    """Return (teachers, no-quorums) that Bassily, Thakkar and Thakurta (2018, Section 3) ask for.

    T = 3 (g m + sqrt(g m log(m / b) / 2)) no-quorums for m queries, an error g of a teacher and b = 0.05;
    lambda = sqrt(32 T log(2 / delta)) / epsilon; k = 34 sqrt(2) lambda log(4 m T / min(delta, b / 2)).
    """
    expected = disagreement * queries
    cutoff = max(1, math.ceil(3 * (expected + math.sqrt(expected * math.log(queries / _FAILURE) / 2))))
    scale = math.sqrt(32 * cutoff * math.log(2 / delta)) / epsilon
    smallest = min(delta, _FAILURE / 2)
    return math.ceil(34 * math.sqrt(2) * scale * math.log(4 * queries * cutoff / smallest)), cutoff


def pate_epsilon(*, scale: float, queries: int, delta: float) -> float:
    """Return the epsilon of the plain cost order / scale**2 a query, at the best order (Papernot et al. 2018)."""
    ratio = queries / scale**2
    return ratio + 2 * math.sqrt(ratio * math.log(1 / delta))


def published_bounds(
    *, epsilon: float, delta: float, queries: int, disagreement: float, rows: int, scale: float | None
) -> tuple[PublishedBound, ...]:
    """Return the bounds that apply; `rows` is the least a teacher learns from, `scale` the noise of a noisy maximum."""
    if delta == 0:
        return ()
    teachers, cutoff = stability_teachers(epsilon=epsilon, delta=delta, queries=queries, disagreement=disagreement)
    bounds = [
        PublishedBound(
            "teachers",
            float(teachers),
            "Bassily, Thakkar and Thakurta 2018",
            f"the stability test with the published constants needs {teachers:,} teachers ({teachers * rows:,} records "
            f"at {rows} each) and {cutoff:,} no-quorums for these queries and this disagreement",
        )
    ]
    if scale is not None:
        stated = pate_epsilon(scale=scale, queries=queries, delta=delta)
        bounds.append(
            PublishedBound(
                "epsilon",
                stated,
                "Papernot et al. 2018",
                f"plain accounting of a noisy maximum (order / scale**2 a query) would state epsilon = {stated:.3g} "
                f"for the noise of scale {scale:.4g} that keeps epsilon = {epsilon:g} here",
            )
        )
    return tuple(bounds)
