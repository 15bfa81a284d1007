"""The parts that benches are made of, on small sizes: what a bench prints rests on them."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.choices import Comparison, comparisons
from benchmarks.classifier import score_figures
from benchmarks.concepts import (
    Sweep,
    answered_queries,
    excess_sweep,
    exponent,
    plateau_errors,
    plateau_records,
    semi_private_figures,
)
from benchmarks.data import DigitFeatures, read_adult, upright
from benchmarks.everlasting import Course, halfspace_course, line_course, line_truth
from benchmarks.figures import judge
from benchmarks.learners import CountingFigures, FittingFigures
from benchmarks.needed import correct_probability, votes_needed
from benchmarks.release_covers import Stage, crossover, exponent_crossing, line_errors, most_public_points, plane_errors
from benchmarks.scale_distributed import expected_accuracy
from benchmarks.serving import binary_request, json_request, table_request
from benchmarks.students import student_figures
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
from quorate.models.concepts import Boxes, Thresholds


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (Comparison("adult", 250, 1.0, 300, "quorum", {"noisy_max": 0.75, "quorum": 0.5}).gap, 0.25),
        (Stage(points=10, public=0.3, private=0.1, both=0.05).gain, 2.0),
        (Course(queries=200, no_quorum=2, refused=100, wrong=1, drift=0.001, seconds=1.0).no_quorum_percent, 2.0),
        (Course(queries=200, no_quorum=0, refused=0, wrong=1, drift=0.001, seconds=1.0).error_percent, 0.5),
        (FittingFigures(batch_seconds=0.5, loop_seconds=20.0, agreement=0.999).times_faster, 40.0),
        (CountingFigures(count_seconds=2.0, product_seconds=1.5, peak_bytes=10**8).speed_share, 0.75),
        (Sweep("stable", (100, 400), (0.2, 0.1)).exponent, -0.5),
        (exponent([1, 10, 100], [2.0, 20.0, 200.0]), 1.0),
        (exponent_crossing([10, 100], [1.0, 0.1], 0.5), 20.0),
    ],
)
def test_figures_follow_from_what_was_measured(figure, expected):
    assert figure == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "bar", "holds"),
    [(1.0, ("<=", 1.0), True), (1.1, ("<=", 1.0), False), (0.9, (">=", 1.0), False), (None, ("<=", 1.0), None)],
)
def test_a_figure_is_judged_by_its_bar(value, bar, holds):
    assert judge(("some.figure", value, "s"), bar)["holds"] is holds
    assert judge(("some.figure", value, "s"), None)["holds"] is None


def test_covers_err_little_where_public_points_are_many():
    assert line_errors(Thresholds(), records=1000, points=50, world=0).of_engine < 0.2
    assert plane_errors(Boxes(2), records=1000, points=5, world=0, asked=50).of_engine < 0.5
    assert most_public_points(Boxes(3)) == 271
    few, many = crossover(features=5, records=500, points=(10, 1000), seeds=1)
    assert few.public > many.public


def test_everlasting_courses_answer_most_queries_correctly():
    assert line_truth(np.array([[0.2], [0.7]])).tolist() == [0, 1]
    course = line_course(records=10_000, phases=2, epsilon=8.0, no_quorums=100, chunk=3, delta=1e-5)
    assert course.error_percent < 20
    assert halfspace_course(dimensions=2, records=5000, phases=1, epsilon=16.0, no_quorums=100).error_percent < 30


def test_sweeps_of_theory():
    assert excess_sweep("semi-private", Thresholds(), (100, 1000), repeats=2).records == (100, 1000)
    X, y = plateau_records(1000, gamma=0.2, features=1)
    assert y[(X[:, 0] > -0.4) & (X[:, 0] < 0.0)].mean() == 1.0
    errors = plateau_errors(Thresholds(), records=8000, gamma=0.2, queries=20, teachers=100)
    assert sorted(errors) == ["agnostic", "subsample"]
    assert answered_queries(records=20_000, most=64)["published"] == 0


def test_the_exact_share_of_a_semi_private_choice():
    figures = {name: value for name, value, _ in semi_private_figures(True)}
    assert figures == {"semi_private.exact_share_of_epsilon": pytest.approx(0.72, abs=0.005)}


def test_digits_are_set_upright_and_have_features():
    leaning = np.zeros((1, 28, 28), dtype=np.float32)
    leaning[0, np.arange(6, 20), np.arange(2, 16)] = 1.0
    assert upright(leaning).sum(axis=1)[0].argmax() in (13, 14)
    images = np.random.default_rng(0).random((80, 28, 28)).astype(np.float32)
    features = DigitFeatures(stride=8, patches=4)
    assert features.fit_transform(images).shape == (80, features.transform(images[:3]).shape[1])


def test_requests_are_those_of_the_protocol():
    path = [b"POST", b"/v2/models/m/infer"]
    assert json_request("m", np.zeros((1, 2)), "7").split(b" ")[:2] == path
    assert table_request("m", {"town": ["north"]}).split(b" ")[:2] == path
    assert b"Inference-Header-Content-Length" in binary_request("m", np.zeros((1, 2)), "7")


def test_figures_whose_data_are_absent_have_no_value(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_DATA", str(tmp_path))
    assert [value for _, value, _ in student_figures(quick=True)] == [None] * 6
    assert [value for _, value, _ in score_figures(quick=True)] == [None] * 4
    assert next(comparisons("absent", tmp_path / "absent.npy", True), None) is None


def test_rows_of_adult_become_twelve_numbers(tmp_path):
    header = "age,education-num,marital-status,occupation,sex,capital-gain,capital-loss,hours-per-week,income>50K"
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(f"{header}\n39, 13, Divorced, ?, Male, 0, 0, 40, >50K.".encode()))
    rows, rich = read_adult(path)
    assert rows.shape == (1, 12)
    assert rich.tolist() == [1]


def test_what_is_judged_is_written_as_json_whatever_measured_it():
    judged = judge(("name", np.float64(0.5), "share"), (">=", 0.4))
    assert json.loads(json.dumps(judged)) == judged
    assert judged["holds"] is True


@pytest.mark.parametrize(("zeros", "scale"), [(20, 1.0), (19, 0.5), (15, 3.0), (40, 2.0), (0, 2.0)])
def test_the_expected_accuracy_is_that_of_many_draws(zeros, scale):
    """False alarms: below 1e-6. With a scale of 0.5 ties are frequent, and class 0 wins them."""
    draws = 4000
    votes = np.tile([zeros, 40 - zeros], (draws, 1))
    truth = np.arange(draws) % 4 == 0
    right = (NoisyMax(teachers=40, classes=2, scale=scale).answers(votes).labels == truth).mean()
    expected = expected_accuracy(votes, truth.astype(np.int64), deviation=scale)
    assert abs(right - expected) <= 6 * np.sqrt(expected * (1 - expected) / draws) + 1e-9


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
