"""Small mechanisms whose whole output law can be enumerated, built through their constructors."""

import math
from dataclasses import dataclass

import numpy as np

from quorate.auditing import Release, claims_of, release_of
from quorate.auditing._enumeration import Mechanism
from quorate.core.mechanisms import (
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    NoisyMax,
    Quorum,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.quorum import build_table


def _weights(power: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return integers and the law proportional to exp(-abs(x / scale)**power / power) on them."""
    points = np.arange(-math.ceil(60 * scale) - 60, math.ceil(60 * scale) + 61)
    weights = np.exp(-(np.abs(points / scale) ** power) / power)
    return points, weights / weights.sum()


def gaussian_tail(scale: float, margin: int) -> float:
    points, law = _weights(2, scale)
    return float(law[points > margin].sum()) * (1 + 1e-6)


def laplace_tail(scale: float, margin: int) -> float:
    points, law = _weights(1, scale)
    return float(law[points > margin].sum()) * (1 + 1e-6)


def difference_tail(first: float, second: float, margin: int) -> float:
    """Return P(X - Y > margin) for Laplace noises, by convolution."""
    reach = math.ceil(60 * max(first, second))
    points = np.arange(-reach, reach + 1)
    one, two = (np.exp(-np.abs(points) / scale) * math.tanh(0.5 / scale) for scale in (first, second))
    return float(np.convolve(one, two)[np.arange(-2 * reach, 2 * reach + 1) > margin].sum()) * (1 + 1e-5)


def quorum(teachers: int, no_quorums: int, *, order: float, price: float, margin: int, scale: float) -> Quorum:
    return Quorum(
        teachers=teachers,
        no_quorums=no_quorums,
        order=order,
        price=price,
        margin=margin,
        threshold_scale=scale,
        slack=gaussian_tail(scale, margin),
        table=build_table(order=order, price=price),
    )


def dissent(teachers: int, dissents: int, *, order: float, price: float, margin: int, scale: float) -> Dissent:
    return Dissent(
        teachers=teachers,
        no_quorums=dissents,
        order=order,
        price=price,
        margin=margin,
        threshold_scale=scale,
        table=build_table(order=order, price=price),
    )


def stability(
    teachers: int, no_quorums: int, *, order: float, threshold: float, query: float, margin: int
) -> StabilityTest:
    return StabilityTest(
        teachers=teachers,
        no_quorums=no_quorums,
        order=order,
        threshold_scale=threshold,
        query_scale=query,
        margin=margin,
        slack=difference_tail(query, threshold, margin),
    )


def between(
    teachers: int,
    no_quorums: int,
    *,
    order: float,
    threshold: float,
    query: float,
    margin: int,
    cap: int,
    calibration: str = "tight",
) -> BetweenThresholds:
    return BetweenThresholds(
        teachers=teachers,
        no_quorums=no_quorums,
        order=order,
        threshold_scale=threshold,
        query_scale=query,
        margin=margin,
        cap=cap,
        slack=(gaussian_tail if calibration == "tight" else laplace_tail)(threshold, cap),
        calibration=calibration,
    )


@dataclass(frozen=True)
class Instance:
    """A mechanism, what is asked of it, and how near the worst interaction must come to the claim at orders[0]."""

    mechanism: Mechanism
    classes: int
    queries: int
    orders: tuple[float, ...]
    tightness: float

    @property
    def slack(self) -> float:
        run_cost = getattr(self.mechanism, "run_cost", None)
        return run_cost(self.mechanism.order).slack if run_cost else 0.0

    def release(self) -> Release:
        return release_of(self.mechanism, classes=self.classes)

    def claims(self):
        deltas = [self.slack + more for more in (1e-3, 0.05, 0.2)]
        return claims_of(self.mechanism, queries=self.queries, orders=self.orders, deltas=deltas)


INSTANCES = {
    "quorum, three no-quorums": Instance(
        quorum(15, 3, order=2.0, price=3.0, margin=3, scale=1.5), 2, 6, (2.0, 1.5, 8.0), 0.95
    ),
    "quorum, one no-quorum": Instance(quorum(25, 1, order=4.0, price=0.7, margin=7, scale=1.0), 2, 6, (4.0, 8.0), 0.5),
    "quorum, little noise": Instance(quorum(8, 2, order=3.0, price=8.9, margin=2, scale=0.67), 2, 4, (3.0, 6.0), 0.98),
    "quorum, three classes": Instance(quorum(10, 2, order=4.0, price=5.0, margin=1, scale=0.8), 3, 4, (4.0, 2.0), 0.75),
    "quorum, four classes": Instance(quorum(8, 1, order=4.0, price=5.0, margin=1, scale=0.8), 4, 3, (4.0,), 0.7),
    "dissent, three dissents": Instance(
        dissent(15, 3, order=2.0, price=3.0, margin=3, scale=1.5), 2, 5, (2.0, 8.0), 0.9
    ),
    "dissent, one dissent": Instance(dissent(21, 1, order=4.0, price=0.7, margin=4, scale=1.0), 2, 6, (4.0, 8.0), 0.6),
    "dissent, little noise": Instance(
        dissent(8, 2, order=3.0, price=8.9, margin=0, scale=0.67), 2, 4, (3.0, 6.0), 0.98
    ),
    "dissent, margin below 0": Instance(dissent(11, 2, order=4.0, price=2.0, margin=-2, scale=1.0), 2, 4, (4.0,), 0.8),
    "dissent, three classes": Instance(
        dissent(10, 2, order=4.0, price=5.0, margin=2, scale=0.8), 3, 4, (4.0, 2.0), 0.93
    ),
    "dissent, four classes": Instance(dissent(8, 1, order=4.0, price=5.0, margin=1, scale=0.8), 4, 3, (4.0,), 0.9),
    "stability": Instance(stability(15, 1, order=16.0, threshold=0.5, query=0.6, margin=3), 2, 6, (16.0, 4.0), 0.97),
    "stability, two epochs": Instance(
        stability(13, 2, order=8.0, threshold=1.0, query=1.2, margin=3), 2, 6, (8.0, 2.0), 0.65
    ),
    "stability, three classes": Instance(
        stability(10, 1, order=8.0, threshold=0.7, query=0.8, margin=2), 3, 4, (8.0,), 0.8
    ),
    "between, tight": Instance(
        between(17, 1, order=4.0, threshold=1.5, query=1.5, margin=8, cap=4), 2, 6, (4.0, 2.0), 0.5
    ),
    "between, tight, two no-quorums": Instance(
        between(16, 2, order=4.0, threshold=0.7, query=1.0, margin=7, cap=3), 2, 4, (4.0,), 0.35
    ),
    "between, paper": Instance(
        between(13, 1, order=16.0, threshold=0.5, query=0.6, margin=7, cap=3, calibration="paper"), 2, 6, (16.0,), 0.9
    ),
    "between, paper, two epochs": Instance(
        between(16, 2, order=8.0, threshold=0.5, query=0.6, margin=7, cap=3, calibration="paper"), 2, 4, (8.0,), 0.5
    ),
    "noisy max, two classes": Instance(NoisyMax(teachers=60, classes=2, scale=2.0), 2, 1, (2.0, 8.0, 16.0), 0.9999),
    "noisy max, three classes": Instance(NoisyMax(teachers=24, classes=3, scale=1.5), 3, 1, (2.0, 8.0, 16.0), 0.99),
    "noisy max, four classes": Instance(NoisyMax(teachers=10, classes=4, scale=1.0), 4, 1, (2.0, 6.0), 0.99),
    "noisy max, adaptive": Instance(NoisyMax(teachers=5, classes=3, scale=1.0), 3, 3, (2.0,), 0.98),
    "confident max, split": Instance(
        ConfidentMax(teachers=13, classes=3, threshold=6, test_scale=4.0, winner_scale=1.5), 3, 1, (8.0, 2.0), 0.9
    ),
    "confident max, joint": Instance(
        ConfidentMax(teachers=13, classes=3, threshold=6, test_scale=4.0, winner_scale=1.5, charge="joint"),
        3,
        1,
        (8.0, 2.0),
        0.9,
    ),
    "confident max, two classes": Instance(
        ConfidentMax(teachers=16, classes=2, threshold=9, test_scale=1.0, winner_scale=3.0, charge="joint"),
        2,
        2,
        (8.0, 2.0),
        0.999,
    ),
    "confident max, adaptive": Instance(
        ConfidentMax(teachers=5, classes=3, threshold=3, test_scale=2.0, winner_scale=1.5), 3, 3, (2.0,), 0.55
    ),
    "sharp majority, even": Instance(
        SharpMajority.calibrate(epsilon=3.0, delta=1e-3, teachers=12, queries=2), 2, 2, (2.0, 8.0), 0.9
    ),
    "sharp majority, odd": Instance(
        SharpMajority.calibrate(epsilon=3.0, delta=1e-3, teachers=11, queries=3), 2, 3, (2.0, 8.0), 0.9
    ),
    "sharp majority, pure": Instance(
        SharpMajority.calibrate(epsilon=2.0, delta=0.0, teachers=9, queries=2), 2, 2, (2.0, 8.0), 0.5
    ),
    "soft majority, two classes": Instance(SoftMajority(teachers=40, epsilon_per_query=0.5), 2, 1, (2.0, 8.0), 0.98),
    "soft majority, three classes": Instance(SoftMajority(teachers=12, epsilon_per_query=1.0), 3, 2, (2.0, 8.0), 0.9),
}
