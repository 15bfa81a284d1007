"""AboveThreshold: distances as ballots, its claim by enumeration, bugs planted in it, and what it promises a caller."""

import numpy as np
import pytest

from planted.broken_releases import without_threshold_noise
from quorate import Budget, BudgetSpent, Infeasible, InvalidInput
from quorate.auditing import Query, claims_of, enumerate_outcomes, release_of, worst_cases
from quorate.core.mechanisms import NO_QUORUM
from quorate.core.mechanisms.above_threshold import AboveThreshold, distance_ballots
from quorate.core.mechanisms.dissent import half_gaps
from quorate.core.mechanisms.quorum import build_table


def tiny(records=3, crossings=2, *, order=4.0, price=1.5, threshold=2, scale=1.2):
    return AboveThreshold(
        teachers=2 * records,
        no_quorums=crossings,
        order=order,
        price=price,
        margin=threshold - records,
        threshold_scale=scale,
        table=build_table(order=order, price=price),
    )


def ballots(distance, records=3):
    return tuple(distance_ballots([distance], records=records)[0].tolist())


def test_a_distance_is_a_half_gap_and_one_step_is_one_ballot():
    for records in (1, 2, 5, 8):
        votes = distance_ballots(np.arange(records + 1), records=records)
        assert (votes.sum(axis=1) == 2 * records).all()
        assert (half_gaps(votes) == np.arange(records + 1) - records).all()
        assert (np.abs(np.diff(votes, axis=0)) == 1).all()


@pytest.mark.parametrize("wrong", [[-1], [4], [0.5], [[1]], ["1"]])
def test_what_is_no_distance_is_refused(wrong):
    with pytest.raises(InvalidInput, match="distances must"):
        distance_ballots(wrong, records=3)


def test_the_claim_holds_over_all_adaptive_interactions():
    above = tiny()
    release = release_of(above, classes=2)
    claims = claims_of(above, queries=3, orders=[above.order, 2.0, 8.0])
    findings = worst_cases(release, claims, queries=3, effort=200_000)
    assert findings
    assert not [finding for finding in findings if finding.violated]


def tree(pairs, crossings):
    """The same distances whatever was answered, on D and on its neighbour."""
    (first, second), *rest = pairs
    then = {} if not rest else {0: tree(rest, crossings), NO_QUORUM: tree(rest, crossings)}
    return Query(ballots(first), ballots(second), then)


def divergence(release, neighbour_release, pairs, order, crossings):
    outcomes = enumerate_outcomes(release, tree(pairs, crossings), on_neighbour=neighbour_release)
    return outcomes.renyi(order)


@pytest.mark.parametrize("pairs", [((2, 3), (1, 2), (3, 2)), ((1, 0), (1, 0), (1, 0)), ((0, 1), (3, 3), (2, 1))])
def test_a_run_costs_no_more_than_it_is_charged_by_a_second_method(pairs):
    above = tiny()
    release = release_of(above, classes=2)
    for order in (2.0, above.order, 12.0):
        assert divergence(release, release, pairs, order, 2) <= above.renyi(order) + 1e-9


def test_a_distance_that_moves_by_two_would_be_caught():
    above = tiny(crossings=3, price=0.4, scale=3.0)
    release = release_of(above, classes=2)
    doubled = release_of(tiny(crossings=3, price=0.4, scale=3.0, threshold=0), classes=2)  # as if moved by two more
    pairs = ((2, 3),) * 3
    assert divergence(release, release, pairs, above.order, 3) <= above.renyi(above.order)
    assert divergence(release, doubled, pairs, above.order, 3) > above.renyi(above.order)


def test_threshold_noise_left_out_would_be_caught():
    above = tiny(crossings=3, price=0.05, scale=1.0)
    release = release_of(above, classes=2)
    known = without_threshold_noise(release)
    pairs = ((2, 3), (2, 3), (2, 3))
    opening = above.opening_cost(above.order).renyi
    assert divergence(release, release, pairs, above.order, 3) <= above.renyi(above.order)
    worst = max(divergence(known, known, pair, above.order, 3) for pair in (pairs, ((1, 2),) * 3, ((3, 2),) * 3))
    assert worst > above.renyi(above.order) - opening  # it pays for the opening, and would not keep without


@pytest.mark.parametrize(("records", "alpha"), [(5_000, 0.05), (50_000, 0.05), (50_000, 0.01), (1_000_000, 0.02)])
def test_calibration_tells_near_from_far(records, alpha):
    far = int(alpha * records)
    above = AboveThreshold.calibrate(
        epsilon=1.0, delta=1e-6, records=records, near=far // 2, far=far, measurement=far / 7
    )
    assert above.distance() + records <= far
    assert above.standing_half_gap(standing=0.999) + records >= far // 2
    budget = Budget(epsilon=1.0, delta=1e-6, order=above.order, slack=0.0)
    budget.spend(above.opening_cost(above.order))
    assert budget.affordable(above.no_quorum_cost(above.order)) >= above.no_quorums


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(Infeasible, match="cannot tell a distance of 5 records from one of 10"):
        AboveThreshold.calibrate(epsilon=0.1, delta=1e-6, records=1000, near=5, far=10)
    with pytest.raises(InvalidInput, match="far must"):
        AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=1000, near=500, far=400)
    with pytest.raises(InvalidInput, match="at most records"):
        AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=1000, near=500, far=4000)
    with pytest.raises(InvalidInput, match="standing must"):
        AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=1000, near=0, far=400, standing=1.0)
    with pytest.raises(InvalidInput, match="twice"):
        AboveThreshold(**{**vars(tiny()), "teachers": 7})


def test_a_run_is_charged_before_it_draws_and_stops_with_its_budget():
    above = AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=50_000, near=1250, far=2500)
    budget = Budget(epsilon=1.0, delta=1e-6, order=above.order, slack=0.0)
    run = above.open(budget)
    opening = budget.spent()
    assert opening.renyi > 0
    assert run.answers(distance_ballots([0] * 100, records=50_000)).answered.all()
    assert budget.spent() == opening  # what stands is free
    crossed = run.answers(distance_ballots([50_000] * 3, records=50_000))
    assert (crossed.labels == NO_QUORUM).all()
    assert budget.spent().renyi >= opening.renyi + 3 * above.no_quorum_cost(above.order).renyi * (1 - 1e-9)
    poor = Budget(epsilon=1.0, delta=1e-6, order=above.order, slack=0.0)
    run = above.open(poor)
    poor.spend(poor.remaining())
    with pytest.raises(BudgetSpent):
        run.answers(distance_ballots([0], records=50_000))
