"""Small functions below the classifiers, each by an example that can be checked by hand."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from quorate import InvalidInput
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.hypotheses.line import lead_below, mistakes_upward
from quorate.core.hypotheses.points import (
    check_labels,
    check_points,
    check_queries,
    say_by_row,
    which_finite,
    which_labelled,
)
from quorate.models.concepts import Halfspaces, Intervals, Stumps, Thresholds
from quorate.models.concepts.hyperplanes import (
    ExactPoints,
    check_partitions,
    cofactors,
    columns_within,
    find_partitions,
    first_rows,
)
from quorate.models.concepts.stumps import DistinctSplits
from quorate.models.predictors._agnostic import RelabelledSample, paper_no_quorums
from quorate.models.predictors._stable import StableChoice, check_calibration, check_gamma, flip, stable_subset
from quorate.models.predictors._voting import Estimate, estimate_rates
from quorate.models.predictors.labels import without_values
from quorate.models.predictors.records import allows_missing, check_matrix, takes_frames
from quorate.models.saving.codecs import array_from
from quorate.models.saving.votes import mechanism_of
from quorate.models.students._classifier import try_student
from quorate.models.students._tabulated import boosting_runs, vote_table

LINE, LABELS = np.array([1.0, 2.0, 3.0]), np.array([0, 1, 1])


def test_counting_along_a_line():
    assert mistakes_upward(np.array([1.5, 2.5]), LINE, LABELS).tolist() == [0, 1]
    assert lead_below(np.array([1.5, 2.5]), LINE, LABELS).tolist() == [-1, 0]
    assert lead_below(np.array([1.0]), LINE, np.array([1, 0, 0]), side="right").tolist() == [1]
    cuts, _ = DistinctSplits(np.array([[1.0, 2.0, 3.0], [-5.0, -6.0, -6.0]])).new()
    assert [cut.tolist() for cut in cuts] == [[1.5, 2.5], []]  # the second tells row 1 apart, as 1.5 does in the first


def test_planes_through_exact_points():
    assert cofactors(np.array([[[1, 0, 0], [0, 1, 0]]])).tolist() == [[0, 0, 1]]
    assert ExactPoints(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 5.0]])).spanning_columns() == [1]
    assert ExactPoints(np.array([[0.0, 0.0], [0.5, 0.0]])).normals(np.array([[0, 1]])).tolist() == [[0, -1]]
    assert columns_within(ExactPoints(np.array([[0.0, 0.0], [0.0, 1.0]])), np.array([0, 1])) == [1]
    square = ExactPoints(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    assert find_partitions(square).bits.shape == (7, 1)
    assert first_rows(np.array([[1, 2], [3, 4], [1, 2]], dtype=np.uint8)).tolist() == [0, 1]
    check_partitions(500, 2)


def test_points_and_labels():
    assert check_points([1, 2], features=1).tolist() == [[1.0], [2.0]]
    with pytest.raises(InvalidInput, match=r"with 3 columns, not int64 of shape \(1, 2\)"):
        check_points([[1, 2]], features=3)
    assert check_queries([0.5], features=1).tolist() == [[0.5]]
    assert check_labels([True, False], rows=2).tolist() == [1, 0]
    assert which_finite(np.array([[1.0], [np.nan], [np.inf]])).tolist() == [True, False, False]
    assert which_labelled(np.array([1, 0, 7])).tolist() == [True, True, False]
    said = say_by_row(lambda rows: [1 / x for x in rows[:, 0].tolist()], np.array([[1.0], [0.0], [1.0]]))
    assert said.tolist() == [True, False, True]


def test_what_classes_know_of_themselves():
    assert Intervals().dual_vc_dimension == 2
    for concept in (Thresholds(), Stumps(3), Halfspaces(2)):
        assert concept.dual_vc_dimension >= 1
    assert Thresholds().largest_set(10**6) == 10**6
    assert 100 < Halfspaces(2).largest_set(10**6) < 10**4
    assert stable_subset(Thresholds(), "auto", units=10**6, gamma=0.1, rows=1) is None
    assert stable_subset(Halfspaces(2), "auto", units=10**6, gamma=0.1, rows=1) < 5000


def test_inputs():
    assert check_matrix(LogisticRegression(), [[True, -0.0]], reset=True).tolist() == [[1.0, 0.0]]
    assert not takes_frames(LogisticRegression())
    assert allows_missing(HistGradientBoostingClassifier())
    assert "Smith" not in without_values("could not convert string to float: 'Smith, 1987'")
    with pytest.raises(InvalidInput, match=r"does not take the public points \(tried with made-up labels\)"):
        try_student(LinearSVC(C=-1.0), np.zeros((9, 1)), np.array([0, 1]))
    check_calibration("paper")
    assert check_gamma(0.1) == 0.1


def test_numbers_of_calibrations():
    assert StableChoice(concept=Thresholds(), units=10, subset=1, epsilon=0.4).gamma == pytest.approx(0.1897, abs=1e-4)
    sample = RelabelledSample(units=1000, sampled=100, kappa=1.0, epsilon=0.9, delta=1e-5)
    assert sample.rate == 0.1
    assert sample.spent_epsilon(0.0) == 0.0 < sample.total(0.0)[0]
    assert sample.spent_epsilon(0.5) == sample.total(0.5)[0]
    assert paper_no_quorums(queries=100, alpha=0.1, beta=0.05) == 6
    assert (flip(1, Fraction(0)), flip(0, Fraction(1))) == (1, 1)
    assert boosting_runs(beta=0.05) == 96
    assert vote_table(np.array([[0, 1, -1], [1, 1, -1], [1, 0, -1]]), classes=2).tolist() == [1, 1, 0]


def test_rates_are_estimated_and_planned_with_caution():
    ensemble = Ensemble(EstimatorTeachers([(None, 0)] * 900 + [(None, 1)] * 100, classes=2))
    made = estimate_rates(ensemble, np.zeros((1000, 1)), np.zeros(1000, dtype=np.int64), epsilon=1.0, delta=1e-6)
    assert abs(made.error - 0.1) < 0.1  # its deviation is 0.005
    told = Estimate(error=0.1, disagreement=0.05, deviation=0.01, held_out=9, epsilon=0.1, delta=1e-7)
    assert told.pessimistic == pytest.approx(0.07)


def test_documents():
    assert array_from({"values": [1, 2], "type": "<i8"}).tolist() == [1, 2]
    with pytest.raises(InvalidInput, match="is counted by 'Guess', which this version does not know"):
        mechanism_of({"name": "Guess"})
