"""Bars of `quorate bench release`: every query of a class, answered with public data."""

from quorate.bench.figures import Bar

__all__ = ["RELEASE"]

RELEASE: dict[str, Bar | None] = {
    # UCI Adult, delta 1e-6, largest error over all marginals, median over three splits (27 releases of 7 columns).
    "release.adult7.epsilon1.largest_error": ("<=", 0.0020),
    "release.adult7.epsilon1.plain_largest_error": None,
    "release.adult7.epsilon01.largest_error": ("<=", 0.0101),
    "release.adult7.epsilon01.plain_largest_error": None,
    "release.adult15.epsilon1.plain_largest_error": None,
    "release.adult15.near.epsilon1.largest_error": ("<=", 0.0050),
    "release.adult15.shifted.epsilon1.largest_error": None,
    "release.adult15.shifted.epsilon1.over_plain": ("<=", 1.10),
    "release.adult15.far.epsilon1.largest_error": None,
    "release.adult15.far.epsilon1.over_plain": ("<=", 1.10),
    "release.adult15.epsilon01.plain_largest_error": None,
    "release.adult15.near.epsilon01.largest_error": ("<=", 0.0215),
    "release.adult15.shifted.epsilon01.largest_error": None,
    "release.adult15.shifted.epsilon01.over_plain": ("<=", 1.10),
    "release.adult15.far.epsilon01.largest_error": None,
    "release.adult15.far.epsilon01.over_plain": ("<=", 1.10),
    "release.adult15.far.refuted": (">=", 1.0),
    "release.adult.fit_seconds.slowest": ("<=", 10.0),
    # The error of synthetic records over the release's own; one query at a time on 130,000 records, alpha 0.05.
    **{f"release.synthetic.{name}_ratio": ("<=", 2.0) for name in ("thresholds", "boxes", "halfspaces", "adult")},
    "release.online.opening_epsilon": ("<=", 0.013),
    "release.online.paid_with_a_good_start": ("<=", 0.0),
    "release.online.largest_error": ("<=", 0.05),
    "release.online.payable": None,
    "release.online.queries_per_second": None,
    "release.online.paid_with_a_bad_start": None,
    "release.online.largest_error_bad_start": None,
    # Peers where they are installed (QUORATE_PEERS names their Pythons): add-remove neighbours, no public records.
    **{
        f"release.peer.{peer}.{epsilon}.{what}": None
        for peer in ("smartnoise_mst.adult7", "smartnoise_aim.adult7", "opendp_aim.adult7", "smartnoise_mst.adult15")
        for epsilon in ("epsilon1", "epsilon01")
        for what in ("largest_error", "seconds")
    },
    # Covers: 10^6 records and 10,000 public points on a line without bounds; the largest error over all thresholds or
    # intervals, and its two shares. 10^5 records in the plane, m public points. epsilon 1, delta 1e-6.
    "release.thresholds.largest_error": ("<=", 0.002),
    "release.thresholds.engine_error": None,
    "release.thresholds.cover_error": None,
    "release.thresholds.cover_error_bound": None,
    "release.thresholds.seconds": None,
    "release.intervals.largest_error": ("<=", 0.004),
    "release.intervals.engine_error": None,
    "release.intervals.cover_error": None,
    "release.intervals.cover_error_bound": None,
    "release.intervals.seconds": None,
    **{
        f"release.{name}.points{points}.{what}": ("<=", 0.01) if (points, what) == (40, "engine_error") else None
        for name, sizes in (("boxes", (10, 20, 40, 80, 160)), ("halfspaces", (10, 20, 40, 56)))
        for points in sizes
        for what in ("engine_error", "cover_error", "cells")
    },
    "release.boxes.cover_error_exponent": None,
    "release.boxes.most_public_points": None,
    "release.halfspaces.cover_error_exponent": None,
    "release.halfspaces.most_public_points": None,
    # Multiplicative weights over 10^7 cells and 105,000 marginal queries.
    "release.weights_many_cells.seconds": ("<=", 120.0),
    "release.weights_many_cells.peak_bytes": ("<=", 2.0**32),
    "release.weights_many_cells.largest_error": None,
    # Theorem 10 of Bassily et al. 2020: n**(-1/2) and about m**(-1). Bars leave room for the scatter of --quick.
    "release.exponent_of_records.weights": ("<=", -0.4),
    "release.exponent_of_records.auto": ("<=", -0.4),
    "release.exponent_of_public_points": ("<=", -0.6),
    # Theorem 13's stumps: public records needed to do as well as the private ones, times that error squared (a
    # constant), and what both together gain before it.
    "release.stumps.private_alone_error": None,
    "release.stumps.crossover_public_points": None,
    "release.stumps.crossover_times_error_squared": None,
    "release.stumps.gain_before_crossover": None,
}
