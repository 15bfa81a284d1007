"""One small instance of every mechanism, for the contracts that all of them keep."""

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

TEACHERS = 900


def instances():
    target = {"epsilon": 2.0, "delta": 1e-5, "teachers": TEACHERS}
    return {
        "quorum": Quorum.calibrate(**target, no_quorums=5),
        "stability": StabilityTest.calibrate(**target, no_quorums=5),
        "between_thresholds": BetweenThresholds.calibrate(**target, no_quorums=5),
        "dissent": Dissent.calibrate(**target, dissents=5),
        "between_thresholds_paper": BetweenThresholds.calibrate(
            epsilon=2.0, delta=1e-3, teachers=4 * TEACHERS, no_quorums=2, calibration="paper"
        ),
        "stability_paper": StabilityTest.calibrate(
            epsilon=3.0, delta=1e-3, teachers=4 * TEACHERS, no_quorums=2, queries=50, calibration="paper"
        ),
        "noisy_max": NoisyMax.calibrate(**target, classes=2, queries=100),
        "noisy_max_of_three": NoisyMax(teachers=TEACHERS, classes=3, scale=20.0),
        "confident_max": ConfidentMax.calibrate(**target, classes=2, queries=100),
        "sharp_majority": SharpMajority.calibrate(**target, queries=100),
        "soft_majority": SoftMajority.calibrate(**target, queries=100),
    }


INSTANCES = instances()
THRESHOLD = {"quorum", "dissent", "stability", "between_thresholds", "between_thresholds_paper", "stability_paper"}
