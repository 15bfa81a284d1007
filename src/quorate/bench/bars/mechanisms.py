"""Bars of `quorate bench mechanisms`: ballot counters and their noise."""

from quorate.bench.figures import Bar

__all__ = ["MECHANISMS"]

MECHANISMS: dict[str, Bar | None] = {
    # Epsilon 1, delta 1e-6, c no-quorums allowed. `votes_needed`: votes beyond one half at which 99 queries in 100 are
    # answered correctly, over all noise. `distance`: ballots that may change where 99 in 100 are answered at threshold
    # noise 0, one less than the votes beyond one half.
    "quorum.distance.c5": ("<=", 113 * 1.03),
    "quorum.distance.c20": ("<=", 231 * 1.03),
    "quorum.distance.c100": ("<=", 538 * 1.03),
    "quorum.distance.c1000": ("<=", 1744 * 1.03),
    "quorum.distance.epsilon2.c20": ("<=", 109 * 1.03),  # at delta 1e-5
    "quorum.votes_needed.c5": ("<=", 113 * 1.03),
    "quorum.votes_needed.c20": ("<=", 231 * 1.03),
    "quorum.votes_needed.c100": ("<=", 538 * 1.03),
    "quorum.votes_needed.c1000": ("<=", 1744 * 1.03),
    "quorum.calibrate_seconds.slowest": ("<=", 5.0),
    "quorum.answers_per_second": (">=", 5e6),
    "quorum.time_over_bare_argmax": None,
    "between_thresholds.distance.c5": ("<=", 141 * 1.03),
    "between_thresholds.distance.c20": ("<=", 298 * 1.03),
    "between_thresholds.distance.c100": ("<=", 708 * 1.03),
    "between_thresholds.distance.c1000": ("<=", 2292 * 1.03),
    "between_thresholds.votes_needed.c5": ("<=", 141 * 1.03),
    "between_thresholds.votes_needed.c20": ("<=", 298 * 1.03),
    "between_thresholds.votes_needed.c100": ("<=", 708 * 1.03),
    "between_thresholds.votes_needed.c1000": ("<=", 2292 * 1.03),
    "stability.distance.c20": None,
    "stability.votes_needed.c20": None,
    "stability.paper_distance.c20": None,
    "stability.paper_votes_needed.c20": None,
    "dissent.votes_needed.c20": ("<=", 211 * 1.03),
    # The same for a noisy maximum that must answer every query: ten classes (distance) or two (votes needed).
    "noisy_max.distance.queries1000": ("<=", 333 * 1.03),
    "noisy_max.distance.queries100000": ("<=", 3333 * 1.03),
    "noisy_max.votes_needed.queries1000": ("<=", 333 * 1.03),
    "noisy_max.votes_needed.queries100000": ("<=", 3333 * 1.03),
    # The same between two classes.
    "sharp_majority.distance.queries1000": ("<=", 210.0),
    "sharp_majority.distance.queries100000": ("<=", 2000.0),
    "sharp_majority.votes_needed.queries1000": ("<=", 210.0),
    "sharp_majority.votes_needed.queries100000": ("<=", 2000.0),
    "soft_majority.votes_needed.queries1": None,
    "sharp_majority.distance_over_noisy_max.queries100000": ("<=", 0.75),
    # Share of the plain Gaussian cost order / scale**2 that the winner's name really costs, scale 40, order 8.
    "noisy_max.winner_share": ("<=", 0.6545),
    # PATE 2018's votes and noise, delta 1e-5, at the expected number of answers; holds for all data sets.
    "confident_max.epsilon.mnist": ("<=", 2.15),
    "confident_max.epsilon.adult": ("<=", 3.04),
    "noise.laplace_per_second": (">=", 1e5),
    "noise.gaussian_per_second": None,
}
