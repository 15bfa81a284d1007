"""Bars of `quorate bench audit`: how close attacks come, and that planted bugs are caught."""

from quorate.bench.figures import Bar

__all__ = ["AUDIT"]

AUDIT: dict[str, Bar | None] = {
    # What games of 10^6 plays show of a claim (Laplace count at epsilon 0.5; worst pair of votes), and what the same
    # game needs exactly.
    "audit.measured_over_claimed.noisy_count": (">=", 0.95),
    "audit.measured_over_claimed.noisy_count.exact": None,
    "audit.measured_over_claimed.soft_majority": (">=", 0.85),
    "audit.measured_over_claimed.soft_majority.exact": None,
    "audit.measured_over_claimed.noisy_max": (">=", 0.85),
    "audit.measured_over_claimed.noisy_max.exact": None,
    "audit.measured_over_claimed.quorum": None,
    "audit.measured_over_claimed.quorum.exact": None,
    "audit.measured_over_claimed.stability": None,
    "audit.measured_over_claimed.stability.exact": None,
    # Planted bugs: all caught, 20 of 20 (1 of 1 with --quick), and no sound twin flagged.
    "audit.planted.bugs": (">=", 22.0),
    "audit.planted.caught_share": (">=", 1.0),
    "audit.planted.sound_twins_flagged": ("<=", 0.0),
    # Exact epsilon over the claimed one, of sound mechanisms and of two published mistakes.
    "audit.exact_over_claimed.soft_majority": ("<=", 1.0 + 1e-6),
    "audit.exact_over_claimed.weights_of_whole_epsilon": None,
    "audit.exact_over_claimed.stability": ("<=", 1.0 + 1e-6),
    "audit.exact_over_claimed.gap_for_distance": None,
    # Members traced at 1% false alarms: 10,000 stumps, 100 people; and what is beyond e^epsilon times the alarms.
    "audit.tracing.exact.hits_at_1_percent": (">=", 0.5),
    "audit.tracing.noisy.hits_at_1_percent": None,
    "audit.tracing.noisy.excess_over_epsilon_1": ("<=", 0.0),
    "audit.tracing.query_release.hits_at_1_percent": None,
    "audit.tracing.query_release.excess_over_epsilon_1": ("<=", 0.0),
    # Members found at 0.1% false alarms: 2000 records, shadow models, none or three poisoned copies of each target.
    "audit.membership.forest.plain.hits_at_0_1_percent": (">=", 0.5),
    "audit.membership.forest.plain.area": None,
    "audit.membership.forest.poisoned.hits_at_0_1_percent": (">=", 0.5),
    "audit.membership.forest.poisoned.area": None,
    "audit.membership.tree.plain.hits_at_0_1_percent": None,
    "audit.membership.tree.plain.area": (">=", 0.8),
    "audit.membership.tree.poisoned.hits_at_0_1_percent": None,
    "audit.membership.tree.poisoned.area": (">=", 0.8),
    "audit.membership.private.plain.hits_at_0_1_percent": None,
    "audit.membership.private.plain.area": None,
    "audit.membership.private.plain.excess_over_epsilon_1": ("<=", 0.0),
    "audit.membership.private.poisoned.hits_at_0_1_percent": None,
    "audit.membership.private.poisoned.area": None,
    "audit.membership.private.poisoned.excess_over_epsilon_1": ("<=", 0.0),
    "audit.membership.student.plain.hits_at_0_1_percent": None,
    "audit.membership.student.plain.area": None,
    "audit.membership.student.plain.excess_over_epsilon_1": ("<=", 0.0),
    "audit.membership.student.poisoned.hits_at_0_1_percent": None,
    "audit.membership.student.poisoned.area": None,
    "audit.membership.student.poisoned.excess_over_epsilon_1": ("<=", 0.0),
    # Close and clear votes told apart by the time of `predict` in one process, without a server's pace; with a delay.
    "audit.timing.predict.auc_from_half": None,
    "audit.timing.delayed.auc_from_half": (">=", 0.1),
}
