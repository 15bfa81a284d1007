"""The bars of the timing figures: a sound server fails by chance less than once in 1,000 runs, and a leak is seen."""

import math

import pytest

from quorate.bench.bars import BARS, bar_of
from quorate.bench.service import CALLER_PROBES, TIMED_ANSWERS

SOUND = {
    "service.timing.served.paced.auc_from_half": TIMED_ANSWERS,
    "service.timing.slow.paced.auc_from_half": TIMED_ANSWERS,  # whose delay the pace hides
    "service.callers.served.paced.rows512.auc_from_half": CALLER_PROBES,
    "service.callers.served.paced.rows4096.auc_from_half": CALLER_PROBES,
}
LEAKS = {
    "service.timing.slow.not_paced.auc_from_half": "service.timing.slow.paced.auc_from_half",
    "service.callers.remembering.not_paced.rows512.auc_from_half": "service.callers.served.paced.rows512.auc_from_half",
    "service.callers.remembering.not_paced.rows4096.auc_from_half": (
        "service.callers.served.paced.rows4096.auc_from_half"
    ),
}


def beyond(bar, arm):
    """Return how likely the area of two arms of this size is further from one half, where time tells nothing."""
    return math.erfc(bar / math.sqrt((2 * arm + 1) / (12 * arm * arm)) / math.sqrt(2))


@pytest.mark.parametrize("quick", [False, True])
def test_a_sound_server_fails_by_chance_less_than_once_in_a_thousand_runs(quick):
    bounded = {
        name for name, bar in BARS["service"].items() if name.endswith("auc_from_half") and bar and bar[0] == "<="
    }
    assert bounded == set(SOUND)
    assert sum(beyond(bar_of("service", name, quick=quick)[1], arms[quick]) for name, arms in SOUND.items()) < 1e-3


def test_the_bars_before_would_fail_by_chance():
    assert beyond(0.03, 150) > 0.3
    assert 2 * beyond(0.03, 1800) > 1 / 300


@pytest.mark.parametrize("quick", [False, True])
def test_a_leak_must_show_more_than_a_sound_server_may(quick):
    for leak, sound in LEAKS.items():
        assert bar_of("service", leak, quick=quick)[1] > bar_of("service", sound, quick=quick)[1]
