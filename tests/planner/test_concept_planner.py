"""Bounds of the planner for classes of hypotheses: held against simulation, exact laws and the real methods."""

import inspect
import itertools
import json
import math
from functools import partial

import numpy as np
import pytest

from quorate import InvalidInput
from quorate.models.concepts import Intervals, Stumps, Thresholds
from quorate.models.students import SemiPrivateClassifier
from quorate.planner import _concept_bounds as concept_bounds
from quorate.planner._concept_bounds import (
    agnostic,
    ballot_error,
    choice_excess,
    consistent_error,
    cover_deviation,
    deviation,
    net_error,
    pure_relabel,
    pure_stable,
    sauer_growth,
    semi_private,
    stable,
    subsample,
    universal,
)
from quorate.planner._concepts import plan_concept

GROWTH = sauer_growth(1)


def _log_growth(concept):
    return lambda points: math.log(concept.growth(points))


# --- the parts ---------------------------------------------------------------------------------------------------


def _largest_gap(x, y):
    """How much the error of a threshold exceeds its share of mistakes, at most, where labels are fair coins."""
    order = np.argsort(x)
    mistakes = (y == 0).sum() + np.concatenate([[0], np.cumsum(2 * y[order] - 1)])
    return 0.5 - mistakes.min() / len(y)


@pytest.mark.parametrize("rows", [50, 500, 5000])
def test_deviation_holds_for_fair_coins_and_is_of_their_order(rows):
    generator = np.random.default_rng(0)
    mean = np.mean(
        [_largest_gap(generator.uniform(size=rows), generator.integers(0, 2, size=rows)) for _ in range(200)]
    )
    assert mean <= deviation(GROWTH, rows) <= 8 * mean
    assert deviation(GROWTH, rows) / 10 < mean  # planted: a bound ten times smaller would be caught


def test_cover_deviation_holds_for_independent_candidates():
    generator = np.random.default_rng(0)
    for count in (1, 10, 1000):
        gaps = 0.5 - generator.binomial(400, 0.5, size=(500, count)).min(axis=1) / 400
        assert gaps.mean() <= cover_deviation(math.log(count), 400) + 4 * 0.025 / math.sqrt(500)


def test_choice_excess_bounds_the_exact_mean_and_weights_without_the_half_show():
    generator = np.random.default_rng(0)
    for count in (2, 30, 1000):
        for _ in range(20):
            mistakes = generator.integers(0, 300, size=count)
            weights = np.exp(-0.5 * 0.4 * (mistakes - mistakes.min()))
            mean = float((weights * mistakes).sum() / weights.sum() - mistakes.min())
            assert mean <= choice_excess(math.log(count), epsilon=0.4, rows=300) * 300
    ladder = np.repeat(np.arange(0, 60), np.exp(0.2 * np.arange(0, 60)).astype(int))  # as bad as it gets
    weights = np.exp(-0.2 * ladder)
    mean = float((weights * ladder).sum() / weights.sum())
    bound = choice_excess(math.log(ladder.size), epsilon=0.4, rows=1)
    assert 0.4 * bound < mean <= bound


@pytest.mark.parametrize("points", [30, 300])
def test_nets_and_consistent_hypotheses(points):
    """Two thresholds that agree on the points differ between two neighbours of them, at most by the largest gap."""
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(size=(500, points)), axis=1)
    gaps = np.diff(x, axis=1, prepend=0.0, append=1.0)
    assert gaps.max(axis=1).mean() <= net_error(GROWTH, points)
    above = np.array([row[row >= 0.5].min(initial=1.0) - row[row < 0.5].max(initial=0.0) for row in x])
    assert above.mean() <= consistent_error(GROWTH, points) <= net_error(GROWTH, points)


def test_growth():
    for dimension in (1, 2, 5, 40):
        log_growth = sauer_growth(dimension)
        assert math.isclose(log_growth(dimension), dimension * math.log(2))
        exact = math.log(sum(math.comb(500, size) for size in range(dimension + 1)))
        assert exact <= log_growth(500) + 1e-9


# --- the methods -------------------------------------------------------------------------------------------------

BOUNDS = {
    "subsample": lambda n, epsilon=1.0: subsample(n, log_growth=GROWTH, epsilon=epsilon, delta=1e-6, queries=10),
    "agnostic": lambda n, epsilon=1.0: agnostic(n, log_growth=GROWTH, epsilon=epsilon, delta=1e-6, queries=10),
    "universal": lambda n, epsilon=1.0: universal(n, log_growth=GROWTH, epsilon=epsilon, delta=1e-6),
    "semi-private": lambda n, epsilon=1.0: semi_private(n, log_growth=GROWTH, epsilon=epsilon, public=1000),
    "pure-stable": lambda n, epsilon=1.0: pure_stable(n, log_growth=GROWTH, epsilon=epsilon, queries=1),
    "pure-relabel": lambda n, epsilon=1.0: pure_relabel(n, log_growth=GROWTH, epsilon=epsilon, queries=1),
    "pure-realizable": lambda n, epsilon=1.0: subsample(n, log_growth=GROWTH, epsilon=epsilon, queries=1),
    "stable": lambda n, epsilon=1.0: stable(n, log_growth=GROWTH, gamma=0.1 * epsilon),
}


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_more_records_and_more_epsilon_never_hurt(name):
    bound = BOUNDS[name]
    errors = [min(1.0, bound(10**power).error) for power in range(1, 11)]
    assert all(later <= earlier * 1.02 for earlier, later in itertools.pairwise(errors))
    assert errors[0] >= 0.5
    assert errors[-1] < 0.05
    assert bound(10**7, epsilon=2.0).error <= bound(10**7).error * 1.02
    assert bound(1).error >= 0.5


def test_shapes_of_the_bounds():
    """Over two decades: 1/n where labels are right, 1/sqrt(n) where they are not; logarithms make both flatter."""

    def slope(name, low, high):
        return math.log(BOUNDS[name](10**high).error / BOUNDS[name](10**low).error) / math.log(10 ** (high - low))

    assert -1.0 < slope("pure-realizable", 6, 8) < -0.8
    assert -1.0 < slope("subsample", 6, 8) < -0.8
    assert -0.6 < slope("pure-stable", 6, 8) < -0.35
    assert -0.6 < slope("stable", 7, 9) < -0.45


def test_a_vote_holds_for_the_worst_teachers():
    """A share f of the teachers is wrong everywhere it can be; the soft majority's law is known exactly."""
    for teachers, error, epsilon, queries in ((50, 0.02, 1.0, 1), (400, 0.05, 0.5, 3)):
        rows = teachers * 10
        learned = partial(lambda error, rows: error if rows >= 10 else 1.0, error)
        bound = ballot_error(learned, rows=rows, epsilon=epsilon, delta=0.0, queries=queries)
        k = bound.settings["teachers"]
        worst = 0.0
        for wrong in range(k + 1):  # this many are wrong on a mass error * k / wrong, nobody elsewhere
            mass = min(1.0, error * k / wrong) if wrong else 0.0
            chance = [1 / (1 + math.exp(epsilon / queries * (k - 2 * w) / 2)) for w in (wrong, 0)]
            worst = max(worst, mass * chance[0] + (1 - mass) * chance[1])
        assert worst <= bound.error


def test_semi_private_keeps_its_bound_on_fair_coins_and_on_noise():
    """Real choices, real noise; the mean of 40 is below the bound by far more than its own scatter."""
    generator = np.random.default_rng(0)
    for bias in (0.02, 0.1, 0.4):
        bound = semi_private(2000, log_growth=_log_growth(Thresholds()), epsilon=1.0, public=200)
        excess = []
        for _ in range(40):
            X = generator.uniform(size=(2000, 1))
            y = ((X[:, 0] > 0.5) ^ (generator.uniform(size=2000) < 0.5 - bias)).astype(int)
            public = generator.uniform(size=(bound.settings["points"], 1))
            made = SemiPrivateClassifier(Thresholds(), classes=[0, 1]).fit(X, y, public=public)
            excess.append(2 * bias * abs(min(max(made.hypothesis_.cut, 0.0), 1.0) - 0.5))
        assert np.mean(excess) <= bound.error


# --- the plan ----------------------------------------------------------------------------------------------------


def test_what_is_needed_is_enough_and_not_much_more():
    made = plan_concept(records=10**5, vc_dimension=1, queries=10, alpha=0.1, public=1000, realizable=True, gamma=0.1)
    assert {method.name for method in made.methods} == set(BOUNDS)
    bounds = dict(BOUNDS)
    bounds["pure-stable"] = lambda n: pure_stable(n, log_growth=GROWTH, epsilon=1.0, queries=10)
    bounds["pure-relabel"] = lambda n: pure_relabel(n, log_growth=GROWTH, epsilon=1.0, queries=10)
    bounds["pure-realizable"] = lambda n: subsample(n, log_growth=GROWTH, epsilon=1.0, queries=10)
    for method in made.methods:
        assert method.needed is not None
        assert bounds[method.name](method.needed).error <= 0.1
        assert bounds[method.name](int(method.needed * 0.95)).error > 0.1 * 0.999
        assert method.error == min(1.0, bounds[method.name](10**5).error)


@pytest.mark.parametrize(
    ("given", "best"),
    [
        ({"records": 10**5, "queries": 10**6, "public": 3000}, "semi-private"),  # a published hypothesis answers all
        ({"records": 10**5, "queries": 1, "delta": 0.0}, "pure-stable"),
        ({"records": 10**5, "queries": 1, "delta": 0.0, "realizable": True}, "pure-realizable"),
        ({"records": 10**8, "queries": 1000, "realizable": True}, "subsample"),
        ({"records": 10**8, "queries": 1000}, "agnostic"),
        ({"records": 10**10, "queries": 10**9}, "universal"),
    ],
)
def test_who_wins(given, best):
    made = plan_concept(vc_dimension=1, **given)
    assert made.best == best
    assert made.feasible
    assert made.methods[0].error == min(method.error for method in made.methods)


def test_stability_is_another_kind_of_promise():
    made = plan_concept(records=10**6, vc_dimension=5, gamma=0.01, alpha=0.05, queries=1)
    stable_method = made.methods[-1]
    assert stable_method.name == "stable"  # never the winner: it has no epsilon
    assert stable_method.least == math.ceil(4 / (8 * 0.01 * 0.05)) < stable_method.needed


def test_a_class_knows_its_growth_better_than_its_dimension_does():
    named = plan_concept(records=10**5, concept=Stumps(features=50), queries=1)
    plain = plan_concept(records=10**5, vc_dimension=Stumps(features=50).vc_dimension, queries=1)
    assert named.vc_dimension == plain.vc_dimension
    assert named.methods[0].error < plain.methods[0].error
    assert plan_concept(records=10**5, concept=Intervals()).vc_dimension == 2


def test_it_says_when_nothing_is_feasible_and_is_plain_json():
    made = plan_concept(records=100, vc_dimension=10, epsilon=0.1)
    assert not made.feasible
    assert made.methods[0].error == 1.0
    assert all(method.needed > 100 for method in made.methods)
    assert json.loads(json.dumps(made.as_dict()))["best"] == made.best
    assert "no number of records" not in made.summary()
    few = plan_concept(records=10**6, vc_dimension=10, alpha=1e-4, public=10)
    assert {method.name: method.needed for method in few.methods}[
        "semi-private"
    ] is None  # ten public points are no cover
    assert "no number of records would do" in few.summary()


def test_refusals():
    for given in ({}, {"vc_dimension": 1, "concept": Thresholds()}):
        with pytest.raises(InvalidInput, match="vc_dimension= or concept="):
            plan_concept(records=100, **given)
    with pytest.raises(InvalidInput, match="concept must be a class of"):
        plan_concept(records=100, concept="stumps")
    for name, value in (("records", 0), ("alpha", 0.0), ("epsilon", -1.0), ("public", -1), ("vc_dimension", 0)):
        with pytest.raises(InvalidInput, match=name):
            plan_concept(**({"records": 100, "vc_dimension": 1} | {name: value}))


def test_planted_relabelling_for_nothing_is_caught(monkeypatch):
    """Were the term left out, the bound would fall below what is possible at this rate: the same epsilon, no price."""
    honest = agnostic(10**5, log_growth=GROWTH, epsilon=0.5, delta=1e-6, queries=1).error
    monkeypatch.setattr(concept_bounds, "relabelling_epsilon", lambda *, kappa: 0.0)
    planted = agnostic(10**5, log_growth=GROWTH, epsilon=0.5, delta=1e-6, queries=1).error
    assert planted < 0.9 * honest


def test_no_argument_could_carry_a_record():
    assert set(inspect.signature(plan_concept).parameters) == {
        "records", "vc_dimension", "concept", "epsilon", "delta", "queries", "alpha", "public", "realizable", "gamma",
    }  # fmt: skip
