"""One small instance of every mechanism, for the contracts that all of them keep."""

from functools import cache

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

TARGET = {"epsilon": 2.0, "delta": 1e-5, "teachers": 900}
LARGE = {"delta": 1e-3, "teachers": 3600, "no_quorums": 2, "calibration": "paper"}
MAKERS = {
    "quorum": lambda: Quorum.calibrate(**TARGET, no_quorums=5),
    "stability": lambda: StabilityTest.calibrate(**TARGET, no_quorums=5),
    "between_thresholds": lambda: BetweenThresholds.calibrate(**TARGET, no_quorums=5),
    "dissent": lambda: Dissent.calibrate(**TARGET, dissents=5),
    "between_thresholds_paper": lambda: BetweenThresholds.calibrate(epsilon=2.0, **LARGE),
    "stability_paper": lambda: StabilityTest.calibrate(epsilon=3.0, queries=50, **LARGE),
    "noisy_max": lambda: NoisyMax.calibrate(**TARGET, classes=2, queries=100),
    "noisy_max_of_three": lambda: NoisyMax(teachers=900, classes=3, scale=20.0),
    "confident_max": lambda: ConfidentMax.calibrate(**TARGET, classes=2, queries=100),
    "sharp_majority": lambda: SharpMajority.calibrate(**TARGET, queries=100),
    "soft_majority": lambda: SoftMajority.calibrate(**TARGET, queries=100),
}
THRESHOLD = {"quorum", "dissent", "stability", "between_thresholds", "between_thresholds_paper", "stability_paper"}


@cache
def mechanism_case(name):
    """Return the instance of this name, calibrated once."""
    return MAKERS[name]()
