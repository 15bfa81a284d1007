"""NoisyVectors: releases chosen one after another stay within the budget's epsilon and delta, by exact enumeration."""

import copy
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from quorate import Budget, BudgetSpent, InvalidInput
from quorate.auditing._plays import PlayNoise
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVectors

PLACES = np.arange(-80, 81)
FIRST = 0.4  # the share of the first release; the second takes a share that depends on it
SECOND = {False: 0.5, True: 1.0}


def budget(epsilon=1.0, delta=1e-2):
    return Budget(epsilon=epsilon, delta=delta, slack=0.0)


def gaussian(mean, scale):
    law = np.exp(-((PLACES - mean) ** 2) / (2 * scale**2))
    return law / law.sum()


def transcripts(moved, scales):
    """The law of two releases where the second one's share, and so its noise, depends on the sign of the first."""
    first, second = scales
    law = gaussian(moved, first)
    rows = [law[place] * gaussian(moved, second[bool(PLACES[place] > 0)]) for place in range(len(PLACES))]
    return np.array(rows)


def scales_of(epsilon, delta):
    """The scales that NoisyVectors gives the two releases."""
    first, second = 0.0, {}
    for positive, fraction in SECOND.items():
        noisy = NoisyVectors(budget(epsilon, delta), entries=2)
        _, first = noisy.release(np.array([0]), squared_sensitivity=1, fraction=FIRST)
        second[positive] = noisy.scale(squared_sensitivity=1, fraction=fraction)
    return first, second


def excess(epsilon, scales):
    """The smallest delta for this epsilon, enumerated, over both directions."""
    one, other = transcripts(0, scales), transcripts(1, scales)
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((one, other), (other, one)))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.5, 1e-3), (2.0, 1e-4)])
def test_an_adaptive_transcript_is_within_epsilon_and_delta(epsilon, delta):
    assert excess(epsilon, scales_of(epsilon, delta)) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.5, 1e-3)])
def test_the_enumeration_catches_shares_that_are_not_taken_off(epsilon, delta):
    first, second = scales_of(epsilon, delta)
    whole = NoisyVectors(budget(epsilon, delta), entries=2).scale(squared_sensitivity=1, fraction=1.0)
    assert excess(epsilon, (whole, dict.fromkeys(second, whole))) > delta
    assert first > whole


def test_all_of_the_budget_is_charged_before_anything_is_released():
    account = budget()
    NoisyVectors(account, entries=3)
    assert account.remaining().renyi == 0
    with pytest.raises(BudgetSpent):
        NoisyVectors(account, entries=3)


def test_shares_never_add_up_to_more_than_one():
    noisy = NoisyVectors(budget(), entries=100)
    precisions = []
    for _ in range(50):
        _, scale = noisy.release(np.array([0]), squared_sensitivity=100, fraction=0.3)
        precisions.append(100 / (scale**2 - 1.5625))
    whole = NoisyVectors(budget(), entries=100).scale(squared_sensitivity=100, fraction=1.0)
    assert sum(precisions) <= 100 / (whole**2 - 1.5625) * (1 + 1e-9)
    noisy.release(np.array([0]), squared_sensitivity=100, fraction=1.0)
    with pytest.raises(BudgetSpent):
        noisy.release(np.array([0]), squared_sensitivity=100, fraction=1.0)


def test_more_entries_than_were_said_are_refused():
    noisy = NoisyVectors(budget(), entries=3)
    noisy.release(np.zeros(2, dtype=int), squared_sensitivity=1, fraction=0.5)
    with pytest.raises(InvalidInput, match="1 are left"):
        noisy.release(np.zeros(2, dtype=int), squared_sensitivity=1, fraction=0.5)
    with pytest.raises(InvalidInput, match="at most 1"):
        noisy.release(np.zeros(1, dtype=int), squared_sensitivity=1, fraction=1.5)
    with pytest.raises(InvalidInput, match="delta above 0"):
        NoisyVectors(Budget(epsilon=1.0, delta=0.0), entries=1)


def test_every_release_has_the_noise_that_it_says():
    """4,000 draws each: the mean square over the squared scale has a deviation of 0.022, and fails beyond six of it."""
    noisy = NoisyVectors(budget(), entries=12_000)
    part = np.arange(4000) * 10**6
    for sensitivity, fraction in ((100, 0.2), (10_000, 0.5), (400, 1.0)):
        released, scale = noisy.release(part, squared_sensitivity=sensitivity, fraction=fraction)
        noise = (released - part) / scale
        assert abs(np.mean(noise**2) - 1) < 6 * math.sqrt(2 / 4000)
        assert abs(noise.mean()) < 6 / math.sqrt(4000)
        assert abs(np.mean(noise[1:] * noise[:-1])) < 6 / math.sqrt(4000)  # an entry has its own


def test_a_release_is_the_part_and_draws_of_its_scale():
    part = np.arange(50)
    with entropy_tape(7) as drawn:
        noisy = NoisyVectors(budget(), entries=100)
        released, scales = zip(
            *(noisy.release(part, squared_sensitivity=9, fraction=fraction) for fraction in (0.3, 1.0)), strict=True
        )
    assert [draw for draw in drawn if draw[0] == "gaussian"] == [("gaussian", 50)] * 2
    tape = PlayNoise(7)
    for one, scale in zip(released, scales, strict=True):
        assert np.array_equal(one - part, tape.gaussian(scale, 50))


def test_a_copy_is_refused():
    noisy = NoisyVectors(budget(), entries=3)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a second time"):
            copied(noisy)


def test_releases_at_the_same_time_take_different_shares(monkeypatch):
    noisy = NoisyVectors(budget(), entries=64)
    share = NoisyVectors._share

    def slow(self, fraction):
        taken = share(self, fraction)
        time.sleep(0.002)  # long enough for another thread to come in where none is kept out
        return taken

    monkeypatch.setattr(NoisyVectors, "_share", slow)
    with ThreadPoolExecutor(8) as pool:
        scales = list(
            pool.map(lambda _: noisy.release(np.array([0]), squared_sensitivity=100, fraction=0.1)[1], range(16))
        )
    assert len(set(scales)) == 16
    assert noisy.entries == 48
