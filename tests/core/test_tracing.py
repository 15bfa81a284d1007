"""Who is in the data, told from released means: exact ones give everybody away, private ones nobody.

The noise is real. A test of private means fails by chance with probability below 1e-8: the bound that it checks holds
in expectation, and intervals of confidence 1 - 1e-9 stand around what was counted.
"""

import numpy as np
import pytest

from planted.traced import exact_means, noisy_means, released_means
from quorate.auditing._tracing import Population, Roc, trace
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisySum

CONFIDENCE = 1 - 1e-9


def test_exact_means_give_members_away():
    traced = trace(exact_means)  # 10,000 stumps, 100 people
    assert traced.hits(false_alarms=0.01) >= 0.5
    assert traced.excess(epsilon=1.0, delta=1e-6, confidence=CONFIDENCE) > 0.3


def test_noisy_means_stay_within_what_epsilon_allows():
    traced = trace(noisy_means(epsilon=1.0, delta=1e-6), repeats=3)
    assert traced.excess(epsilon=1.0, delta=1e-6, confidence=CONFIDENCE) <= 0
    assert traced.hits(false_alarms=0.01) < 0.2  # 0.027 is allowed, 0.01 is seen, of 300


@pytest.mark.parametrize(
    ("engine", "stumps", "repeats"), [pytest.param("plain", 10_000, 1, marks=pytest.mark.long), ("residual", 500, 3)]
)
def test_query_release_stays_within_what_epsilon_allows(engine, stumps, repeats):
    traced = trace(released_means(epsilon=1.0, delta=1e-6, engine=engine), stumps=stumps, repeats=repeats)
    assert traced.excess(epsilon=1.0, delta=1e-6, confidence=CONFIDENCE) <= 0
    assert traced.hits(false_alarms=0.01) < 0.3


@pytest.mark.parametrize("means", [noisy_means, released_means])
def test_little_noise_is_seen_to_leak(means):
    """The attack has power through noise too: at epsilon 500 the claim of epsilon 1 is refuted."""
    traced = trace(means(epsilon=500.0, delta=1e-6))
    assert traced.excess(epsilon=1.0, delta=1e-6, confidence=CONFIDENCE) > 0


def test_understated_noise_is_seen_to_leak():
    """Noise for one mean, added to all ten thousand of them: the sensitivity of the whole vector forgotten."""

    def broken(rows):
        sums = rows.sum(axis=0, dtype=np.int64)
        noisy = NoisySum.calibrate(epsilon=1.0, delta=1e-6, sensitivity=2)
        return np.array(noisy.releases(sums.tolist())) / len(rows)

    assert trace(broken, strangers=1000).excess(epsilon=1.0, delta=1e-6, confidence=CONFIDENCE) > 0


def test_strangers_score_alike_whether_means_are_exact_or_not():
    traced = trace(exact_means, stumps=2000, people=50, strangers=1000)
    assert abs(traced.others.mean()) < 6 * traced.others.std() / np.sqrt(1000) + 1e-9


def test_population_repeats_itself_and_has_its_means():
    people = Population(stumps=50, seed=3)
    rows = people.draw(4000)
    assert (rows == Population(stumps=50, seed=3).draw(4000)).all()
    assert np.abs(rows.mean(axis=0) - people.means).max() < 0.13  # seeded: always the same


def test_few_scores_are_refused():
    with pytest.raises(InvalidInput, match="at least 8"):
        Roc(np.zeros(4), np.zeros(4)).excess(epsilon=1.0, delta=0.0, confidence=0.9)
