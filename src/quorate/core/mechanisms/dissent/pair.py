"""A Dissent and a Quorum for the same teachers on one budget: who gets how much of it, from public numbers alone."""

import math
from dataclasses import asdict

import numpy as np

from quorate.core.checks import check_count, check_delta, check_positive
from quorate.core.errors import Infeasible
from quorate.core.mechanisms.base import too_few_teachers
from quorate.core.mechanisms.dissent.calibrate import RATE, Settings, best_settings, half_gaps_needed, settings_within
from quorate.core.mechanisms.dissent.mechanism import Dissent
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile
from quorate.core.mechanisms.quorum import Quorum
from quorate.core.mechanisms.quorum.calibrate import Settings as QuorumSettings
from quorate.core.mechanisms.quorum.table import build_table, levels_needed
from quorate.core.privacy import to_capacity

__all__ = ["calibrate_with_quorum"]

_SLACK = 0.1  # of delta, for the tail event of Quorum
_OPENINGS = (0.03, 0.06, 0.12, 0.2, 0.3, 0.45)  # shares of a run's capacity given to its opening
_POWER = 0.6  # what a capacity buys falls about like this power of it
_STEPS = 4


def calibrate_with_quorum(
    *, epsilon: float, delta: float, teachers: int, dissents: int, no_quorums: int
) -> tuple[Dissent, Quorum]:
    """Return a Dissent and a Quorum of one order whose whole runs fit one budget of (epsilon, delta) together.

    The split makes the larger of two numbers small: the half-gap from which a dissent is reported and the distance
    from which a query is answered, each in 99 runs of 100. Open the budget with the order of both and the slack of the
    Quorum.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    teachers, dissents = check_count("teachers", teachers), check_count("dissents", dissents)
    no_quorums = check_count("no_quorums", no_quorums)
    first, second = _split(epsilon, delta, dissents, no_quorums)
    quorum = Quorum(
        teachers=teachers,
        no_quorums=no_quorums,
        table=build_table(order=second.order, price=second.price),
        **asdict(second),
    )
    if quorum.answer_probability((teachers + 1) // 2 - 1) < 0.5:
        raise too_few_teachers(quorum, 2 * quorum.distance() + 1)
    return Dissent.from_settings(first, teachers=teachers, dissents=dissents), quorum


def _split(epsilon: float, delta: float, dissents: int, no_quorums: int) -> tuple[Settings, QuorumSettings]:
    """Return the settings of both for the best share tried.

    The logarithm of the ratio of the two numbers falls almost in a line with log(share / (1 - share)), so a few steps
    of the secant method bring it close to 0.
    """
    rest, slack = delta * (1 - _SLACK), delta * _SLACK
    order = best_settings(epsilon=epsilon, delta=rest, dissents=max(dissents, no_quorums)).order
    capacity = to_capacity(epsilon, delta=rest, order=order)
    tried: list[tuple[float, float]] = []  # log odds of the share, log ratio of the two numbers
    best: tuple[float, Settings, QuorumSettings] | None = None
    odds = math.log(_dissent(capacity, order, dissents)[0] / _quorum(capacity, order, no_quorums, slack)[0]) / _POWER
    for _ in range(_STEPS):
        share = 1 / (1 + math.exp(-min(max(odds, -5.0), 5.0)))
        half_gap, first = _dissent(capacity * share, order, dissents)
        distance, second = _quorum(capacity * (1 - share), order, no_quorums, slack)
        if best is None or max(half_gap, distance) < best[0]:
            best = max(half_gap, distance), first, second
        tried.append((odds, math.log(half_gap / distance)))
        if abs(tried[-1][1]) < 0.01:
            break
        odds += tried[-1][1] / _slope(tried)
    assert best is not None
    return best[1], best[2]


def _slope(tried: list[tuple[float, float]]) -> float:
    """Return how fast the log ratio falls with the log odds, kept within reason."""
    if len(tried) < 2 or tried[-1][0] == tried[-2][0]:
        return _POWER
    fall = (tried[-2][1] - tried[-1][1]) / (tried[-1][0] - tried[-2][0])
    return min(max(fall, _POWER / 3), _POWER * 3)


def _dissent(capacity: float, order: float, dissents: int) -> tuple[float, Settings]:
    """Return the smallest half-gap that this capacity can buy, and the settings that do."""
    kept = _affordable(capacity, order, dissents)
    needed = half_gaps_needed(kept)
    winner = int(np.argmin(needed))
    return max(1.0, needed[winner]), kept[winner]


def _quorum(capacity: float, order: float, no_quorums: int, slack: float) -> tuple[float, QuorumSettings]:
    """Return the smallest distance that this capacity and this slack can buy, and the settings that do."""
    kept, start = [], []
    for settings in _affordable(capacity, order, no_quorums):  # charged as a run of Dissent is, with a slack besides
        scale = settings.threshold_scale
        margin = gaussian_tail_quantile(scale, slack)
        kept.append(QuorumSettings(order, scale, margin, gaussian_tail(scale, margin), settings.price))
        start.append(float(margin + gaussian_tail_quantile(scale, 1 - RATE)))
    prices, first = np.array([settings.price for settings in kept]), np.array(start)
    needed = first + 2 * levels_needed(np.full(prices.shape, order), prices, miss=1 - RATE, start=first) - 1
    winner = int(needed.argmin())
    return max(1.0, float(needed[winner])), kept[winner]


def _affordable(capacity: float, order: float, paid: int) -> list[Settings]:
    tried = [settings_within(capacity, order=order, opening=share, dissents=paid) for share in _OPENINGS]
    kept = [settings for settings in tried if settings is not None]
    if not kept:
        raise Infeasible(
            f"two runs, one of them with {paid} outcomes to pay for, leave too little for each; raise epsilon"
        )
    return kept
