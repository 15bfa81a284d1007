"""Marginals measured once, before anything is made of them: for tests of the engines that go on from there."""

from quorate.release.engines._marginals import marginal_measurement
from quorate.release.engines.base import measure_once


def measure_marginals(queries, private, budget, noise=None):
    """Measure the marginals of the best strategy, and return what was measured, as shares."""
    return measure_once(
        lambda deviation: marginal_measurement(queries, deviation, lambda measured, records: measured),
        private,
        budget,
        noise,
    )
