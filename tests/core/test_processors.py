"""Two kinds of processors differ in the last bits of NumPy and BLAS. Nothing that is decided or charged may differ."""

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import processor_artefacts as artefacts
import pytest
from processors import LEVEL, SETTINGS, has_level

from quorate import InvalidInput
from quorate.core.mechanisms import BetweenThresholds, NoisyMax, PrivateQuantile, Quorum, RandomStopping, SharpMajority
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.between_thresholds import band_price
from quorate.core.mechanisms.confident_max import pass_laws
from quorate.core.mechanisms.distributions import _gaussian_total, stable_up
from quorate.core.mechanisms.noisy_max import binary_winner_renyi, winner_renyi
from quorate.core.mechanisms.selection import GaussianTrial
from quorate.core.mechanisms.sharp_majority import _cost
from quorate.core.privacy import Budget
from quorate.core.privacy.cost import exceeds
from quorate.models.saving.documents import MECHANISMS
from support.forked import Forked

SCRIPT = Path(artefacts.__file__)


# ---------------------------------------------------------------- what two kinds of processors make, side by side


def made_and_opened(home):
    """Return what either kind of processor made, and what it found in the models of the other."""
    one, two, state = home / "one", home / "two", {"QUORATE_STATE": str(home / "state")}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, SCRIPT, two, one], env=os.environ | threads | state | SETTINGS)
    program = "import sys; from processor_artefacts import main; main(*sys.argv[1:])"
    own = Forked(program, str(one), str(two), stdout=1, stderr=2, **state)
    try:
        assert (own.wait(300), other.wait(300)) == (0, 0)
    finally:
        own.send_signal(signal.SIGKILL)
        other.kill()
        other.wait()
    return [[json.loads((home / f"{name}.json").read_text()) for home in (one, two)] for name in ("made", "opened")]


@pytest.mark.skipif(not has_level(), reason=f"NumPy has no kernels of the level {LEVEL} here: nothing to compare")
def test_both_kinds_of_processors_decide_alike_and_open_the_models_of_the_other(tmp_path):
    (one, two), (by_one, by_two) = made_and_opened(tmp_path)
    assert one["laws"] != two["laws"]  # The kernels are others, or this test says nothing.
    for scale, law in one["laws"].items():
        assert np.allclose(law, two["laws"][scale], rtol=1e-14, atol=0.0)
    for name in ("refusals", "costs", "engines", "manifests"):
        assert one[name] == two[name], name
    for name in ("mechanisms", "plans"):
        for first, second in zip(one[name], two[name], strict=True):
            assert first == second, name
    assert {each["kind"] for each in one["mechanisms"]} >= {kind.__name__ for kind in MECHANISMS}
    assert one["models"]["claims"] == two["models"]["claims"]
    assert by_two == one["models"]
    assert by_one == two["models"]


# ---------------------------------------------------------------- the same with last bits moved at random, anywhere


MOVED = ("exp", "expm1", "log", "log1p", "logaddexp", "convolve")


def move_last_bits(patch, seed):
    """Let NumPy's functions return values that are off by up to two units in the last place, and forget old results."""
    chance = np.random.default_rng(seed)

    def moved(original):
        def function(*given, **named):
            value = np.asarray(original(*given, **named))
            other = value * (1.0 + chance.integers(-2, 3, size=value.shape) * 2.0**-53)
            exact = value == np.rint(value)  # exp(0) is 1 everywhere, and no kernel passes 1 where it must not
            return np.where(exact, value, np.where(value < 1, np.minimum(other, 1.0), other))

        function.accumulate = getattr(original, "accumulate", None)
        return function

    for name in MOVED:
        patch.setattr(np, name, moved(getattr(np, name)))
    for cached in (band_price, pass_laws, binary_winner_renyi, winner_renyi, _gaussian_total, _cost):
        cached.cache_clear()


def decisions():
    """Return costs, refusals and calibrations that NumPy's functions decide."""
    target = {"epsilon": 1.7, "delta": 1e-6}
    mechanisms = [
        Quorum.calibrate(**target, teachers=5000, no_quorums=12),
        BetweenThresholds.calibrate(epsilon=2.0, delta=1e-3, teachers=3600, no_quorums=2, calibration="paper"),
        NoisyMax.calibrate(**target, teachers=500, classes=2, queries=20),
        SharpMajority.calibrate(**target, teachers=501, queries=20),
        PrivateQuantile.calibrate(epsilon=1.0, cells=1000, units=5000, share=0.9),
        RandomStopping.calibrate(**target, candidates=3, trial=GaussianTrial),
    ]
    costs = {name: cost for name, cost in artefacts.costs().items() if "97.3" not in name}
    return artefacts.plain(
        [artefacts.refusals(), costs, [artefacts.describe_mechanism(mechanism) for mechanism in mechanisms]]
    )


def test_last_bits_of_numpy_decide_and_charge_nothing():
    found = []
    for seed in range(3):
        with pytest.MonkeyPatch.context() as patch:
            if seed:
                move_last_bits(patch, seed)
            law = artefacts.gaussian_pmf(6.0, 70)
            found.append((law.tobytes(), decisions()))
    assert len({law for law, _ in found}) == 3
    assert all(decided == found[0][1] for _, decided in found)
    with pytest.MonkeyPatch.context() as patch:  # forget what was computed of moved numbers
        move_last_bits(patch, 0)


def test_a_stable_number_is_an_upper_bound_that_hides_last_bits():
    values = np.exp(np.random.default_rng(0).uniform(-600, 600, size=2000)).tolist()
    for value in values:
        assert value <= stable_up(value) <= value * (1 + 2.0**-19)
        assert stable_up(stable_up(value)) == stable_up(value)
    neighbours = sum(stable_up(value) != stable_up(value * (1 + 2.0**-45)) for value in values)
    assert neighbours <= 1  # of 2000, where 2000 * 2**-25 are expected
    assert (stable_up(0.0), stable_up(math.inf)) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Quorum, {"epsilon": 1.0, "delta": 1e-6, "teachers": 5000, "no_quorums": 10}),
        (BetweenThresholds, {"epsilon": 2.0, "delta": 1e-3, "teachers": 3600, "no_quorums": 2, "calibration": "paper"}),
    ],
)
def test_a_slack_from_another_processor_is_accepted_and_a_smaller_one_is_not(kind, settings):
    """Models of the first release have a slack that is the tail itself, as the processor that made them computed it."""
    mechanism = kind.calibrate(**settings)  # which takes a second: not while tests are collected
    low, high = mechanism.slack * (1 - 2.0**-20), mechanism.slack
    with pytest.raises(InvalidInput, match="slack"):
        replace(mechanism, slack=low)
    while math.nextafter(low, 1.0) < high:
        middle = (low + high) / 2
        try:
            replace(mechanism, slack=middle)
            high = middle
        except InvalidInput:
            low = middle
    assert exceeds(high * (1 + 2.0**-39), high)
    assert not exceeds(high * (1 + 2.0**-44), high)


@pytest.mark.parametrize(("less", "accepted"), [(2.0**-19, True), (2.0**-17, False)])
def test_a_run_resumes_where_another_processor_charged_a_step_less(less, accepted):
    """NumPy computes the cost of a no-quorum between two thresholds; the opening has no such step."""
    between = BetweenThresholds.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, no_quorums=5)
    budget = Budget(epsilon=1.0, delta=1e-6, order=between.order, slack=between.slack)
    budget.spend(between.opening_cost(budget.order))
    cost = between.no_quorum_cost(budget.order)
    budget.spend(replace(cost, renyi=cost.renyi * (1 - less)), times=2)
    refusal = nullcontext() if accepted else pytest.raises(InvalidInput, match="must have paid")
    with refusal:
        Run(between, budget=budget, noise=None, threshold_noise=3, met=2)
