"""The samplers: their law, their integers, their independence after fork, and that nothing can seed them."""

import copy
import math
import os
import pickle
import threading
from collections import OrderedDict

import numpy as np
import pytest
from scipy import stats

from planted.bug import run_together
from quorate import InvalidInput, WrongProcess
from quorate.auditing._plays import SeededNoise
from quorate.core._noise import SystemNoise, system_noise

DRAWS = {"laplace": 310_000, "gaussian": 155_000}  # a scale two per cent off is missed less than once in a million runs


def chi_square(draws, law, support):
    """Return the p-value of these draws under a law on `support`, a range; cells of fewer than 20 expected are pooled.

    Where the pool is smaller than that, it joins the smallest cell: alone it would raise an alarm far too often.
    """
    inside = draws[(draws >= support[0]) & (draws <= support[-1])]
    observed = np.bincount(inside - support[0], minlength=len(support)).astype(float)
    expected = np.array(law) * draws.size
    common = expected >= 20
    observed = np.append(observed[common], draws.size - observed[common].sum())
    expected = np.append(expected[common], draws.size - expected[common].sum())
    if expected[-1] < 20:
        assert expected[-1] > 1e-6 or observed[-1] == 0
        smallest = expected[:-1].argmin()
        observed[smallest] += observed[-1]
        expected[smallest] += expected[-1]
        observed, expected = observed[:-1], expected[:-1]
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


def law_of(kind, scale, support):
    weights = np.exp(-np.abs(support) / scale) if kind == "laplace" else np.exp(-(support**2) / (2 * scale**2))
    wide = np.arange(-int(60 * scale) - 10, int(60 * scale) + 11)
    total = np.exp(-np.abs(wide) / scale).sum() if kind == "laplace" else np.exp(-(wide**2) / (2 * scale**2)).sum()
    return weights / total


def scale_test(kind, scale, draws):
    """Return the p-value of these draws for a scale, by the mean of what says all about it: sizes, or squares."""
    wide = np.arange(-int(60 * scale) - 10, int(60 * scale) + 11)
    power, law = (1 if kind == "laplace" else 2), law_of(kind, scale, wide)
    mean, squares = (np.abs(wide) ** power) @ law, (np.abs(wide) ** (2 * power)) @ law
    found = (np.abs(draws) ** power).mean()
    return 2 * stats.norm.sf(abs(found - mean) * math.sqrt(draws.size / (squares - mean**2)))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_draws_have_the_stated_scale_and_not_one_two_per_cent_off(kind, false_alarm):
    scale, support = 7.3, np.arange(-90, 91)
    draws = getattr(system_noise, kind)(scale, DRAWS[kind])
    assert draws.dtype == np.int64
    assert draws.size == DRAWS[kind]
    assert chi_square(draws, law_of(kind, scale, support), support) > false_alarm
    assert scale_test(kind, scale, draws) > false_alarm
    for wrong in (0.98, 1.02):
        assert scale_test(kind, scale * wrong, draws) < false_alarm


@pytest.mark.parametrize(
    ("kind", "scale"), [("laplace", 0.4), ("gaussian", 0.6), ("laplace", 50.0), ("gaussian", 30.0)]
)
def test_other_scales(kind, scale, false_alarm):
    support = np.arange(-int(12 * scale) - 3, int(12 * scale) + 4)
    draws = getattr(system_noise, kind)(scale, 50_000)
    assert chi_square(draws, law_of(kind, scale, support), support) > false_alarm


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_seeded_twin_has_the_same_law(kind, false_alarm):
    scale, support = 7.3, np.arange(-90, 91)
    draws = getattr(SeededNoise(3), kind)(scale, DRAWS[kind])
    assert chi_square(draws, law_of(kind, scale, support), support) > false_alarm


def test_choice_is_the_exponential_mechanism(false_alarm):
    scores, scale, draws = [3, 2, 0, 5], 2.0, 10_000
    weights = np.exp(np.array(scores) / scale)
    seen = np.array([system_noise.choice(scores, scale) for _ in range(draws)])
    assert chi_square(seen, weights / weights.sum(), np.arange(4)) > false_alarm
    without_half = np.exp(np.array(scores) / (scale / 2))
    assert chi_square(seen, without_half / without_half.sum(), np.arange(4)) < false_alarm


def test_words_are_uniform(false_alarm):
    words = system_noise.words(1_000_000)
    for byte in range(8):
        counts = np.bincount(((words >> np.uint64(8 * byte)) & np.uint64(255)).astype(int), minlength=256)
        assert stats.chisquare(counts).pvalue > false_alarm


def test_every_draw_is_handed_out_once():
    """Small and large requests are served from one buffer, without overlap; the small ones in order."""
    from quorate.core._noise import _Buffer

    made = iter(range(10**6))
    buffer = _Buffer(lambda zeros: [next(made) for _ in zeros])
    small = np.concatenate([buffer.take(size) for size in (1, 0, 5, 100, 4096, 3, 8000, 1)])
    assert (small == np.arange(12_206)).all()
    large = np.concatenate([small, *(buffer.take(size) for size in (50_000, 3, 8192, 20_000, 7))])  # all cores draw
    assert large.size == np.unique(large).size == 90_408
    assert large.max() < 90_408 + 4096  # and hardly any is drawn for nothing


def test_draws_of_all_cores_are_independent(false_alarm):
    """Threads that began with the same state would repeat each other, block by block."""
    drawn = system_noise.gaussian(1e6, 16 * 4096).reshape(16, 4096)
    largest = np.abs(np.corrcoef(drawn))[np.triu_indices(16, 1)].max()
    assert stats.norm.sf(largest * np.sqrt(4096)) * 2 * 120 > false_alarm
    assert np.unique(drawn).size > 0.95 * drawn.size


def _forked(count, draw):
    """Return what `draw` gives in this process and in `count` forked children."""
    ends, children = [os.pipe() for _ in range(count)], []
    for _, write in ends:
        child = os.fork()
        if child == 0:
            try:
                os.write(write, draw().astype(np.int64).tobytes())
            finally:
                os._exit(0)
        os.close(write)
        children.append(child)
    results = [draw()]
    for (read, _), child in zip(ends, children, strict=True):
        with os.fdopen(read, "rb") as pipe:
            results.append(np.frombuffer(pipe.read(), dtype=np.int64))
        os.waitpid(child, 0)
    return results


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_forked_workers_never_repeat_a_block(kind):
    noise = SystemNoise()
    draw = getattr(noise, kind)
    draw(1e6, 1)  # the buffer holds draws that a naive child would repeat
    assert noise._buffers[kind, 1e6]._ready.size > 0
    blocks = _forked(4, lambda: draw(1e6, 50))
    assert all(block.size == 50 for block in blocks)
    for one, other in ((a, b) for i, a in enumerate(blocks) for b in blocks[:i]):
        assert (one == other).sum() <= 1  # at this scale two draws agree with probability below 1e-6


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_buffer_without_the_guard_is_caught_by_the_same_test(monkeypatch):
    monkeypatch.setattr(SystemNoise, "reset", lambda self: None)
    noise = SystemNoise.__new__(SystemNoise)
    noise._lock, noise._buffers = threading.Lock(), OrderedDict()
    noise.laplace(1e6, 1)
    first, second = _forked(1, lambda: noise.laplace(1e6, 5))
    assert (first == second).all()


def test_a_child_with_its_parents_process_number_is_refused(monkeypatch):
    """In a new process namespace a child may keep the number, and OpenSSL's generator would not seed itself anew."""
    system_noise.laplace(3.0, 1)
    monkeypatch.setattr("quorate.core.checks._forks", [10**6])  # as if forked, with the number kept
    for draw in (lambda: system_noise.laplace(3.0, 1), lambda: system_noise.choice([1, 2], 1.0)):
        with pytest.raises(WrongProcess, match="its parent's process number"):
            draw()


def test_threads_never_share_a_draw():
    noise = SystemNoise()
    drawn = run_together(4, lambda: [noise.laplace(2.0**40, 20) for _ in range(50)])
    values = np.concatenate([draw for draws in drawn for draw in draws])
    assert values.size == 4000
    # At this scale two of the draws are equal by chance once in 500,000 runs, two pairs of them once in 10**11. Threads
    # that share a request share all of its 20 draws.
    assert np.unique(values).size >= 3999


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_source_cannot_be_duplicated(duplicate):
    with pytest.raises(TypeError, match="repeat its draws"):
        duplicate(system_noise)


@pytest.mark.parametrize(
    ("scale", "size", "text"),
    [
        (0.0, 1, "scale must be a positive finite number"),
        (math.inf, 1, "scale must be a positive finite number"),
        (2.0**41, 1, "scale must be at most 2**40"),
        (1.0, -1, "size must be a whole number of at least 0"),
        (1.0, 1.5, "size must be a whole number of at least 0"),
    ],
)
def test_bad_requests(scale, size, text):
    with pytest.raises(InvalidInput) as caught:
        system_noise.laplace(scale, size)
    assert text in str(caught.value)
    with pytest.raises(InvalidInput, match="at least one candidate"):
        system_noise.choice([], 1.0)


def test_few_scales_are_kept():
    noise = SystemNoise()
    for step in range(200):
        noise.laplace(1.0 + step, 1)
    assert len(noise._buffers) <= 128
