"""The bar each promised figure is held against: the one table of them."""

__all__ = ["BARS", "Bar"]

Bar = tuple[str, float]  # ("<=" or ">=", value)

BARS: dict[str, Bar | None] = {
    # Distance from changing at which 99 queries in 100 are answered: epsilon 1, delta 1e-6, c no-quorums allowed.
    "quorum.distance.c5": ("<=", 113 * 1.03),
    "quorum.distance.c20": ("<=", 231 * 1.03),
    "quorum.distance.c100": ("<=", 538 * 1.03),
    "quorum.distance.c1000": ("<=", 1744 * 1.03),
    "quorum.distance.epsilon2.c20": ("<=", 109 * 1.03),  # at delta 1e-5
    "quorum.calibrate_seconds.slowest": ("<=", 5.0),
    "quorum.answers_per_second": (">=", 5e6),
    "quorum.time_over_bare_argmax": None,
    "between_thresholds.distance.c5": ("<=", 141 * 1.03),
    "between_thresholds.distance.c20": ("<=", 298 * 1.03),
    "between_thresholds.distance.c100": ("<=", 708 * 1.03),
    "between_thresholds.distance.c1000": ("<=", 2292 * 1.03),
    "stability.distance.c20": None,
    "stability.paper_distance.c20": None,
    # The same distance for a noisy maximum that must answer every query.
    "noisy_max.distance.queries1000": ("<=", 333 * 1.03),
    "noisy_max.distance.queries100000": ("<=", 3333 * 1.03),
    # Share of the plain Gaussian cost order / scale**2 that the winner's name really costs, scale 40, order 8.
    "noisy_max.winner_share": ("<=", 0.6545),
    # PATE 2018's votes and noise, delta 1e-5, at the expected number of answers; holds for all data sets.
    "confident_max.epsilon.mnist": ("<=", 2.15),
    "confident_max.epsilon.adult": ("<=", 3.04),
    "noise.laplace_per_second": (">=", 1e5),
    "noise.gaussian_per_second": None,
    # `quorate bench classifier`: 10,000 logistic teachers of 50 rows and 20 features, 100,000 queries, one thread each.
    "learners.logistic_times_faster_than_a_loop": (">=", 25.0),
    "learners.ballots_equal_to_scikit_learn": (">=", 0.99),
    "learners.counting_share_of_bare_product": (">=", 0.5),
    "learners.counting_peak_bytes": ("<=", 2.0**30),
}
