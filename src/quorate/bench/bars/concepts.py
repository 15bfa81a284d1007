"""Bars of `quorate bench concepts`: classes of hypotheses."""

from quorate.bench.figures import Bar

__all__ = ["CONCEPTS"]

CONCEPTS: dict[str, Bar | None] = {
    # `quorate bench concepts`: an exact private choice by the labels of 10^6 points (thresholds), 10^5 x 100 (stumps),
    # 10^5 (intervals), 100 in the plane (boxes), 500 in the plane (halfspaces); the power of n over the last decade.
    "concepts.select_seconds.thresholds": ("<=", 5.0),
    "concepts.select_seconds.stumps": ("<=", 5.0),
    "concepts.select_seconds.intervals": ("<=", 5.0),
    "concepts.select_seconds.boxes": ("<=", 5.0),
    "concepts.select_seconds.halfspaces": ("<=", 5.0),
    "concepts.select_peak_bytes.thresholds": ("<=", 2.0**31),
    "concepts.select_peak_bytes.stumps": ("<=", 2.0**31),
    "concepts.select_peak_bytes.intervals": ("<=", 2.0**31),
    "concepts.select_peak_bytes.boxes": ("<=", 2.0**31),
    "concepts.select_peak_bytes.halfspaces": ("<=", 2.0**31),
    "concepts.select_exponent.thresholds": ("<=", 1.25),
    "concepts.select_exponent.stumps": ("<=", 1.25),
    "concepts.select_exponent.intervals": ("<=", 1.25),
    # Worst loss over all small data sets as a share of what is claimed.
    "semi_private.exact_share_of_epsilon": ("<=", 1.0 + 1e-9),
    "stable.exact_share_of_gamma": ("<=", 1.0 + 1e-9),
    "stable.sampled_share_of_gamma": ("<=", 1.0),
    "stable.records_over_lower_bound": None,
    # Worst mean excess error over a ladder of label noise: about n^(-1/2); measured -0.5 to -0.85. The bars leave room
    # for the scatter of --quick; the halfspaces are few and reported only.
    "theory.excess_exponent.thresholds.agnostic": ("<=", -0.15),
    "theory.excess_exponent.thresholds.stable": ("<=", -0.2),
    "theory.excess_exponent.thresholds.pure": ("<=", -0.2),
    "theory.excess_exponent.thresholds.semi_private": ("<=", -0.2),
    "theory.excess_exponent.halfspaces.stable": None,
    "theory.excess_exponent.halfspaces.pure": None,
    "theory.excess_exponent.halfspaces.semi_private": None,
    "theory.excess_at_most_records.thresholds.agnostic": None,
    "theory.excess_at_most_records.thresholds.stable": None,
    "theory.excess_at_most_records.thresholds.pure": None,
    "theory.excess_at_most_records.thresholds.semi_private": None,
    "theory.excess_at_most_records.halfspaces.stable": None,
    "theory.excess_at_most_records.halfspaces.pure": None,
    "theory.excess_at_most_records.halfspaces.semi_private": None,
    # Two best hypotheses, each wrong on a share 0.2: queries that do not get the right label, over 0.2.
    "theory.noise20.subsample_over_gamma": (">=", 1.6),
    "theory.noise20.agnostic_over_gamma": ("<=", 1.3),
    "theory.queries_of_1e6_records.agnostic": None,
    "theory.queries_of_1e6_records.subsample": None,
    "theory.queries_of_1e6_records.published": None,
}
