"""plan_release: expected errors, sizes needed, when public data cannot help; and the guide's own code."""

import math
from pathlib import Path

import numpy as np
import pytest

from quorate import Infeasible, InvalidInput
from quorate.models.concepts import Boxes, Conjunctions, Finite, Halfspaces, Intervals, Stumps, Thresholds
from quorate.release import Columns, QueryRelease, Workload
from quorate.release.cover import make_cover
from quorate.release.plan import plan_release, stand_in_points

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "concept",
    [Thresholds(), Intervals(), Boxes(2), Halfspaces(2), Conjunctions([2, 3, 2]), Stumps(features=30, binary=True)],
)
def test_a_plan_is_made_of_public_numbers_for_every_class(concept):
    plan = plan_release(concept, records=50_000, public=15, epsilon=1.0, delta=1e-6, alpha=0.1)
    assert plan.engine == plan.engines[0].engine
    assert [one.error for one in plan.engines] == sorted(one.error for one in plan.engines)
    assert 0 < plan.error <= 1
    assert 0 <= plan.cover <= 1
    assert plan.private_needed is None or plan.private_needed >= 1
    assert plan.as_dict()["feasible"] == plan.feasible
    assert "Theorem 10" in plan.published[0]
    assert str(plan.records) in plan.summary()


def test_what_is_planned_is_what_is_run():
    private = np.random.default_rng(1).normal(size=50_000)
    public = np.random.default_rng(2).normal(size=300)
    plan = plan_release(Thresholds(), records=50_000, public=public, epsilon=1.0, delta=1e-6)
    release = QueryRelease(Thresholds(), epsilon=1.0, delta=1e-6).fit(private, public)
    assert release.engine_ == plan.engine
    assert math.isclose(release.expected_error_, plan.error)
    truth = release.domain_.queries.answers(release.domain_.count(private)) / 50_000
    found = release.released_.some(release.domain_.queries, np.arange(release.domain_.queries.count))
    assert np.abs(found - truth).max() < 6 * plan.error


def test_more_records_more_epsilon_and_more_public_points_help():
    def plan(**changes):
        settings = {"records": 20_000, "public": 100, "epsilon": 1.0, "delta": 1e-6, "alpha": 0.02} | changes
        return plan_release(Thresholds(), **settings)

    base = plan()
    assert plan(records=200_000).error < base.error
    assert plan(epsilon=4.0).error < base.error
    assert plan(public=2000).cover < base.cover
    needed = base.private_needed
    assert plan(records=needed).error <= 0.01
    assert plan(records=needed // 2).error > 0.01
    assert plan(public=base.public_needed).cover <= 0.0101
    assert plan(epsilon=0.5).private_needed > needed  # like 1 / epsilon
    assert not base.feasible
    assert "public records bring the cover's own part" in base.summary()


def test_each_change_that_a_plan_names_is_enough_by_itself():
    settings = {"records": 3_000, "public": 2_000, "alpha": 0.02}
    short = plan_release(Thresholds(), **settings)
    [change] = short.nearest
    assert (short.feasible, change.parameter) == (False, "records")
    assert plan_release(Thresholds(), **settings | {"records": change.value}).feasible
    both = plan_release(Thresholds(), **settings | {"records": 2_000, "public": 100})
    assert both.nearest == ()  # more private records alone leave the cover's own part
    assert "It would do" not in both.summary()


def test_public_data_cannot_help_stumps():
    few = plan_release(Stumps(features=1_000, binary=True), records=100, public=0, alpha=0.05)
    assert "public data cannot help" in few.summary()
    assert "too few of both" in few.summary()
    many = plan_release(Stumps(features=50, binary=True), records=200, public=5_000, alpha=0.05)
    assert many.public_alone < many.error
    assert "they alone answer" in many.summary()


def test_workloads_are_planned_from_declared_columns_or_public_records():
    columns = Columns.from_dict({"sex": ["f", "m"], "region": ["n", "s", "w"]})
    plan = plan_release(Workload.marginals(2), records=10_000, columns=columns)
    assert plan.cover == 0
    assert plan.public == 0
    assert {one.engine for one in plan.engines} >= {"plain", "residual"}
    public = {"sex": ["f", "m"] * 50, "region": ["n", "s", "w", "n"] * 25}
    assert plan_release(Workload.marginals(2), records=10_000, public=public).public == 100


def test_bad_plans_are_refused():
    with pytest.raises(InvalidInput):
        plan_release(Thresholds(), records=0, public=10)
    with pytest.raises(InvalidInput):
        plan_release(Thresholds(), records=10, public=10, alpha=2.0)
    with pytest.raises(InvalidInput):
        plan_release(Workload.marginals(1), records=10)
    with pytest.raises(Infeasible):
        plan_release(Halfspaces(2), records=10, public=5000)


def test_stand_ins_are_spread_evenly_and_always_the_same():
    points = stand_in_points(Thresholds(), 100)
    gaps = np.diff(np.sort(np.concatenate([[0.0], points[:, 0], [1.0]])))
    assert gaps.max() < 0.03
    assert np.array_equal(points, stand_in_points(Thresholds(), 100))
    codes = stand_in_points(Conjunctions([2, 3]), 60)
    assert set(codes[:, 1]) == {0.0, 1.0, 2.0}


def test_a_class_whose_queries_are_all_their_own_needs_no_public_points():
    for concept in (Conjunctions([2, 3]), Stumps(features=3, binary=True)):
        plan = plan_release(concept, records=100_000, public=0, alpha=0.1)
        assert plan.cover == 0.0
        assert plan.public_needed is None
        assert plan.feasible


def test_the_public_points_that_are_said_to_be_needed_are_enough():
    rules = [lambda X, cut=cut: X[:, 0] > cut for cut in (0.2, 0.4, 0.6)]
    for concept in (Thresholds(), Intervals(), Boxes(1), Stumps(features=2), Finite(rules, features=1)):
        needed = plan_release(concept, records=100_000, public=5, alpha=0.2).public_needed
        cover = make_cover(concept, stand_in_points(concept, needed))
        assert 0.08 < cover.share(0.05) <= 0.1


def test_a_plan_for_numbers_without_cuts_is_that_of_the_most_cells_and_of_nine_tenths_of_the_budget():
    columns = {"wage": {"kind": "number"}, "sex": ["f", "m"]}
    settings = {"records": 5_000, "epsilon": 1.0, "delta": 1e-6}
    plan = plan_release(Workload.marginals(2, bins=4), columns=columns, **settings)
    cut = plan_release(Workload.marginals(2), columns=columns | {"wage": {"cuts": [1, 2, 3, 4, 5]}}, **settings)
    [residual] = [one.error for one in cut.engines if one.engine == "residual"]
    assert (plan.engine, plan.queries, len(plan.engines)) == ("residual", cut.queries, 1)
    assert plan.error == pytest.approx(residual / 0.9**0.5)
    assert "finds cuts" in plan.summary()
    assert plan_release(Workload.marginals(2, bins=4), columns=columns, **settings | {"records": 50}).private_needed
