"""How clear a vote must be: one definition, held against simulated mechanisms and the table of the reference."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.needed import correct_probability, votes_needed
from conftest import FALSE_ALARM
from quorate import Infeasible, InvalidInput
from quorate.auditing._plays import simulate
from quorate.core.mechanisms import (
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    NoisyMax,
    NoisyShares,
    Quorum,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)

TARGET = {"epsilon": 4.0, "delta": 1e-5}
PLAYS = 3000


def cases(teachers):
    target = TARGET | {"teachers": teachers}
    return [
        Quorum.calibrate(**target, no_quorums=3),
        BetweenThresholds.calibrate(**target, no_quorums=3),
        StabilityTest.calibrate(**target, no_quorums=3),
        Dissent.calibrate(**target, dissents=3),
        SharpMajority.calibrate(**target, queries=50),
        NoisyMax.calibrate(**target, queries=50, classes=2),
        SoftMajority(teachers=teachers, epsilon_per_query=0.3),
    ]


@pytest.mark.parametrize("teachers", [pytest.param(500, marks=pytest.mark.long), 501])
def test_the_probability_is_that_of_a_fresh_run(teachers):
    for mechanism in cases(teachers):
        votes = votes_needed(mechanism, rate=0.8)
        probability = correct_probability(mechanism, votes)
        assert correct_probability(mechanism, votes - 1) < 0.8 <= probability
        behind = (teachers - (2 * votes - teachers % 2)) // 2
        row = [[behind, teachers - behind]]  # a Dissent's student has the first column
        labels = [int(simulate(mechanism, row, seed=seed).labels[0]) for seed in range(PLAYS)]
        seen = sum(label == (-1 if isinstance(mechanism, Dissent) else 1) for label in labels)
        low, high = (tail(FALSE_ALARM / 20, PLAYS, probability) for tail in (binom.ppf, binom.isf))
        assert low <= seen <= high, type(mechanism).__name__


def test_threshold_noise_is_counted():
    """At threshold noise 0 the stability test answered 99 in 100 where, over all noise, it answers 97.4."""
    stability = StabilityTest.calibrate(epsilon=1.0, delta=1e-6, teachers=6000, no_quorums=20)
    assert stability.answer_probability(stability.distance()) >= 0.99
    assert correct_probability(stability, stability.distance() + 1) == pytest.approx(0.974, abs=1e-3)
    assert correct_probability(stability, votes_needed(stability)) >= 0.99


def test_the_table_of_the_mechanisms():
    target = {"epsilon": 1.0, "delta": 1e-6, "teachers": 8000}
    one_query = {"epsilon": 1.0, "delta": 1e-6, "teachers": 100, "queries": 1}
    made = {
        "Quorum": Quorum.calibrate(**target, no_quorums=20),
        "StabilityTest": StabilityTest.calibrate(**target, no_quorums=20),
        "BetweenThresholds": BetweenThresholds.calibrate(**target, no_quorums=20),
        "Dissent": Dissent.calibrate(**target, dissents=20),
        "SharpMajority": SharpMajority.calibrate(**one_query),
        "SoftMajority": SoftMajority.calibrate(**one_query),
    }
    table = Path(__file__).parents[2].joinpath("docs", "reference", "mechanisms.md").read_text()
    for name, mechanism in made.items():
        (cell,) = re.findall(rf"^\| `{name}` \| [^|]+ \| ([^|]+) \|", table, flags=re.MULTILINE)
        assert int(cell.split()[0].replace(",", "")) == votes_needed(mechanism), name
    few, many = (
        NoisyShares.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, classes=2, queries=queries).deviation
        for queries in (1000, 100_000)
    )
    assert f"for 1,000 queries have a deviation of {few:.1g}, for 100,000 one of {many:.1g}" in table


def test_refusals():
    confident = ConfidentMax(teachers=100, classes=2, threshold=60, test_scale=4.0, winner_scale=1.0)
    with pytest.raises(InvalidInput, match="depends on more than the lead"):
        votes_needed(confident)
    with pytest.raises(Infeasible, match=r"rate=0.99 is out of reach with teachers=10"):
        votes_needed(SoftMajority(teachers=10, epsilon_per_query=0.01))
    assert np.isclose(correct_probability(NoisyMax(teachers=10, classes=2, scale=300.0), 1), 0.5, atol=0.01)
