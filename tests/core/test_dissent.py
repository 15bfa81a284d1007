"""Dissent: its claim by enumeration, bugs planted in it, its law against real draws, and what it promises a caller."""

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
from test_enumeration import is_broken, search

from planted import broken_releases
from quorate import Budget, Infeasible, InvalidInput
from quorate.auditing import Release, claims_of, release_of, worst_cases
from quorate.auditing._enumeration import DeltaClaim, RenyiClaim, SlackClaim
from quorate.auditing._laws import all_votes, neighbours
from quorate.auditing._plays import SeededNoise
from quorate.auditing._worst_case import Game
from quorate.core.mechanisms import NO_QUORUM, Dissent, Quorum
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.dissent import calibrate_with_quorum, half_gaps
from quorate.core.mechanisms.distributions import gaussian_tail_quantile
from support.enumeration_instances import INSTANCES, Instance, dissent, quorum

DISSENTS = [name for name in INSTANCES if name.startswith("dissent")]  # test_enumeration checks their claims


# ---------------------------------------------------------------- the half-gap


@pytest.mark.parametrize(("teachers", "classes"), [(9, 2), (8, 2), (7, 3), (8, 3), (5, 4), (6, 4)])
def test_one_ballot_moves_the_half_gap_by_at_most_one(teachers, classes):
    reached, doubled = 0, 0
    for votes in all_votes(teachers, classes):
        changed = np.array(neighbours(votes))
        moved = np.abs(half_gaps(changed) - half_gaps(np.array([votes])))
        leads = changed[:, 1:].max(axis=1) - changed[:, 0]
        reached, doubled = max(reached, moved.max()), max(doubled, np.abs(leads - leads[0]).max())
    assert reached == 1
    assert doubled == 2  # the lead itself moves by two: it may not be used in place of the half-gap


def test_the_half_gap_says_who_has_more_ballots():
    for votes in all_votes(7, 3):
        behind = max(votes[1:]) > votes[0]
        assert (half_gaps(np.array([votes]))[0] >= 1) == behind
        assert half_gaps(np.array([votes]))[0] == math.ceil((max(votes[1:]) - votes[0]) / 2)


# ---------------------------------------------------------------- the claim


def test_the_slack_is_zero_and_the_law_is_not_cut():
    for name in DISSENTS:
        instance = INSTANCES[name]
        assert instance.slack == 0.0
        (claim,) = (claim for claim in instance.claims() if isinstance(claim, SlackClaim))
        assert claim.limit == 0.0
        assert (instance.release().covered_law == instance.release().law).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_calibrated_dissent_keeps_its_target(classes):
    made = Dissent.calibrate(epsilon=4.0, delta=1e-2, teachers=25, dissents=2)
    claims = [DeltaClaim(epsilon=4.0, limit=1e-2), *claims_of(made, queries=3, orders=[made.order, 2.0])]
    findings = worst_cases(release_of(made, classes=classes), claims, queries=3, effort=300_000)
    assert not [finding for finding in findings if finding.violated]
    assert findings[1].share > 0.5  # something was at stake


@pytest.mark.parametrize(("order", "price", "margin"), [(4.0, 0.8, 5), (20.0, 2.0, 3)])
def test_the_price_of_a_dissent_is_attained(order, price, margin):
    """With the threshold noise known on D and one higher on D', standing is free and a dissent costs the price."""
    made = dissent(21, 1, order=order, price=price, margin=margin, scale=2.0)
    release, each = release_of(made, classes=2), made.no_quorum_cost(order).renyi
    cheaper = []
    for column in range(release.law.size // 2 - 5, release.law.size // 2 + 6):
        here, there = (broken_releases.fix_noise(release, column + more) for more in (0, 1))
        game = Game(here, ("covered", "neighbour"), on_neighbour=there)
        claim = RenyiClaim(order=order, limit=0.0, per_no_quorum=each)
        assert not game.exhaust(claim, queries=1).violated
        cheaper.append(game.exhaust(replace(claim, per_no_quorum=each * 0.999), queries=1).violated)
    assert any(cheaper)


def random_dissent(generator):
    classes = int(generator.choice([2, 3, 4]))
    teachers = int(generator.integers(3, {2: 20, 3: 11, 4: 7}[classes]))
    order = float(generator.choice([1.2, 2.0, 4.0, 8.0, 16.0]))
    made = dissent(
        teachers,
        int(generator.integers(1, 4)),
        order=order,
        price=float(np.exp(generator.uniform(-2, 1.5))) * (order - 1),
        margin=int(generator.integers(-teachers // 2, teachers // 2 + 2)),
        scale=float(np.exp(generator.uniform(-0.7, 1.0))),
    )
    return Instance(made, classes, int(generator.integers(1, 6)), (order, 2.5), 0.0)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_random_dissents_keep_their_claims(seed):
    generator = np.random.default_rng(seed)
    for _ in range(8 if seed == 0 else 60):
        instance = random_dissent(generator)
        findings = search(instance, effort=30_000, starts=4)
        assert not [finding for finding in findings if finding.violated], instance


# ---------------------------------------------------------------- planted bugs


DEAR = [name for name in DISSENTS if name != "dissent, one dissent"]  # where a dissent costs as much as the opening


@pytest.mark.parametrize("name", DEAR)
def test_half_the_price_is_found(name):
    """The opening is charged in full, each dissent by half."""
    instance = INSTANCES[name]
    claims = [replace(claim, per_no_quorum=claim.per_no_quorum / 2) for claim in as_charged(instance)]
    assert is_broken(instance, claims=claims)


def as_charged(instance):
    """The claims about the cost as it is charged from outcome to outcome."""
    return [claim for claim in instance.claims() if isinstance(claim, RenyiClaim) and claim.per_no_quorum > 0]


# ---------------------------------------------------------------- usefulness


@pytest.mark.parametrize(
    ("epsilon", "delta", "dissents"), [(1.0, 1e-6, 5), (1.0, 1e-6, 100), (2.0, 1e-5, 20), (4.0, 1e-2, 2)]
)
def test_calibration_lets_the_student_stand_and_reports_clear_dissent(epsilon, delta, dissents):
    """Over the noise of a run as well: 99 runs of 100 are within the reach that the margin allows for."""
    made = Dissent.calibrate(epsilon=epsilon, delta=delta, teachers=5000, dissents=dissents)
    assert made.epsilon(delta=delta) <= epsilon
    release = release_of(made, classes=2)
    noise = np.arange(release.law.size) - release.law.size // 2

    def share_of_runs(half_gap, outcome):
        rate = release.outcomes(broken_releases.votes_at_half_gap(half_gap, 2))[outcome]
        return release.law[rate >= 0.99 - 1e-12].sum()

    assert noise[release.law.argmax()] == 0
    assert share_of_runs(0, 0) >= 0.99
    assert share_of_runs(-1, 0) >= 0.99
    assert share_of_runs(made.distance(), NO_QUORUM) >= 0.99
    assert share_of_runs(made.distance() - 1, NO_QUORUM) < 0.99  # not one ballot later than stated
    assert made.standing_probability(-(5000 // 2)) > 1 - 1e-9


@pytest.mark.parametrize("dissents", [5, 20])
def test_a_dissent_is_reported_about_where_a_quorum_answers(dissents):
    """Without slack, but with an allowance for the noise on both sides, it takes about as many ballots."""
    made = Dissent.calibrate(epsilon=1.0, delta=1e-6, teachers=5000, dissents=dissents)
    other = Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=5000, no_quorums=dissents)
    assert made.distance() <= other.distance()


def test_a_lower_standing_costs_fewer_ballots():
    target = {"epsilon": 1.0, "delta": 1e-6, "teachers": 5000, "dissents": 20}
    distances = [Dissent.calibrate(**target, standing=rate).distance() for rate in (0.5, 0.9, 0.99, 0.9999)]
    assert distances == sorted(distances)
    assert distances[0] < distances[-1] / 2


def test_traffic_costs_what_is_said():
    """The lead at which one query in a million is dissented from, by the law and by count."""
    made = Dissent.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, dissents=100)
    assert made.standing_half_gap() == 0
    lead = made.standing_half_gap(standing=1 - 1e-6, run_rate=0.5)
    assert made.standing_probability(lead) >= 1 - 1e-6 > made.standing_probability(lead + 1)
    release = release_of(made, classes=2)
    worse = made.standing_half_gap(standing=1 - 1e-6)
    assert release.law[release.outcomes(broken_releases.votes_at_half_gap(worse, 2))[NO_QUORUM] <= 1e-6].sum() >= 0.99
    assert (
        release.law[release.outcomes(broken_releases.votes_at_half_gap(worse + 1, 2))[NO_QUORUM] <= 1e-6].sum() < 0.99
    )


def test_rates_of_a_distance():
    made = Dissent.calibrate(epsilon=2.0, delta=1e-5, teachers=900, dissents=5)
    assert made.distance(dissent_rate=1.0, run_rate=0.5) == made.margin
    assert made.distance(dissent_rate=0.5) < made.distance() < made.distance(run_rate=0.999999)
    with pytest.raises(Infeasible, match="run_rate=1 is out of reach"):
        made.distance(run_rate=1.0)


# ---------------------------------------------------------------- what it promises its caller


@pytest.fixture
def made():
    return dataclasses.replace(MADE)


MADE = Dissent.calibrate(epsilon=2.0, delta=1e-5, teachers=900, dissents=5)


def test_costs_need_a_finite_order(made):
    with pytest.raises(InvalidInput, match="charged at a finite order; open the budget at one, with delta above 0"):
        made.open(Budget(epsilon=1.0, delta=0.0))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"margin": 2**41}, r"margin must be at most 2\*\*40"),
        ({"margin": -(2**41)}, "margin must be a whole number of at least -1099511627776"),
        ({"price": MADE.price * 0.9}, "table costs more than price"),
        ({"order": MADE.order * 2}, "table costs more than price"),
        ({"table": MADE.table[1:]}, "table must fall strictly from"),
        ({"table": (*MADE.table, MADE.table[-1])}, "table must fall strictly from"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_parameters_are_refused(changed, message):
    with pytest.raises(InvalidInput, match=message):
        replace(MADE, **changed)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"delta": 0.0}, InvalidInput, "delta must be above 0 and below 1"),
        ({"standing": 0.0}, InvalidInput, "standing must be above 0 and at most 1"),
        ({"standing": 1.0}, Infeasible, "standing=1 is out of reach"),
        ({"standing": 1 - 1e-13}, Infeasible, "is out of reach: the table ends at"),
        ({"teachers": 100}, Infeasible, r"it takes at least \d+ teachers for this target"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_targets_are_refused(changed, error, message):
    with pytest.raises(error, match=message):
        Dissent.calibrate(**{"epsilon": 1.0, "delta": 1e-6, "teachers": 2000, "dissents": 20, **changed})


def test_the_teachers_that_a_refusal_asks_for_are_enough():
    with pytest.raises(Infeasible) as caught:
        Dissent.calibrate(epsilon=1.0, delta=1e-6, teachers=100, dissents=20)
    needed = int(str(caught.value).split("at least ")[1].split()[0])
    made = Dissent.calibrate(epsilon=1.0, delta=1e-6, teachers=needed, dissents=20)
    assert made.distance() <= (needed + 1) // 2


# ---------------------------------------------------------------- with a Quorum on one budget


@pytest.mark.parametrize(("dissents", "no_quorums"), [(5, 5), (50, 10), (1, 20)])
def test_both_runs_are_paid_in_full_from_one_budget(dissents, no_quorums):
    first, second = calibrate_with_quorum(
        epsilon=1.0, delta=1e-6, teachers=20_000, dissents=dissents, no_quorums=no_quorums
    )
    assert first.order == second.order
    budget = Budget(epsilon=1.0, delta=1e-6, order=first.order, slack=second.slack)
    runs = [Run(made, budget=budget, noise=SeededNoise(1)) for made in (first, second)]  # a tie finds a quorum in 3e-8
    assert (runs[0].answers([[0, 20_000]] * dissents).labels == NO_QUORUM).all()
    assert (runs[1].answers([[10_000, 10_000]] * no_quorums).labels == NO_QUORUM).all()
    assert budget.spent_epsilon() <= 1.0
    assert budget.remaining().renyi < 0.02 * budget.capacity().renyi  # and little is left over


def test_the_split_is_worth_its_search():
    """Neither of the two needs many more ballots than the other, and fewer than with half of the budget each."""
    target = {"epsilon": 1.0, "delta": 1e-6, "teachers": 20_000}
    first, second = calibrate_with_quorum(**target, dissents=100, no_quorums=5)
    in_most_runs = second.distance() + gaussian_tail_quantile(second.threshold_scale, 0.01)
    assert abs(first.distance() - in_most_runs) <= 0.05 * first.distance()
    half = {"epsilon": 0.5, "delta": 0.5e-6, "teachers": 20_000}
    assert first.distance() < Dissent.calibrate(**half, dissents=100).distance()


def test_too_few_teachers_for_both():
    with pytest.raises(Infeasible, match=r"it takes at least \d+ teachers"):
        calibrate_with_quorum(epsilon=1.0, delta=1e-6, teachers=100, dissents=20, no_quorums=5)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_two_runs_together_cost_the_sum_of_both(classes):
    """Two queries, each put to Dissent and, if it dissents, to Quorum: the exact law with both noises summed out."""
    first, second = (
        dissent(8, 2, order=3.0, price=3.0, margin=1, scale=0.5),
        quorum(8, 2, order=3.0, price=3.0, margin=2, scale=0.5),
    )
    one, two = release_of(first, classes=classes), release_of(second, classes=classes)
    everything = [(votes, other) for votes in all_votes(8, classes) for other in neighbours(votes)]
    generator = np.random.default_rng(1)
    pairs = [(pair, pair) for pair in everything]
    pairs += [[everything[i] for i in generator.integers(len(everything), size=2)] for _ in range(1500)]
    worst = 0.0
    for asked in pairs:
        here, there = (both_runs(one, two, [pair[side] for pair in asked], cut=side == 0) for side in (0, 1))
        kept = here > 0
        moment = (here[kept] ** 3 * there[kept] ** -2.0).sum()
        worst = max(worst, math.log(moment) / 2)
    claim = first.renyi(3.0) + second.renyi(3.0)
    assert 0.65 * claim < worst <= claim
    assert worst > max(first.renyi(3.0), second.renyi(3.0))  # neither run is free


def both_runs(one: Release, two: Release, batch, *, cut: bool) -> np.ndarray:
    """The probabilities of all that both runs say about two queries; with `cut`, off the tail event of Quorum."""
    asked = [one.outcomes(votes)[[0, NO_QUORUM]] for votes in batch]
    put = [two.outcomes(votes) for votes in batch]
    law = two.covered_law if cut else two.law
    stood = np.einsum("im,jm,m->ij", *asked, one.law)  # 0: stands, 1: dissent
    return np.concatenate(
        [
            [stood[0, 0] * law.sum()],
            stood[1, 0] * (put[0] @ law),
            stood[0, 1] * (put[1] @ law),
            (stood[1, 1] * np.einsum("im,jm,m->ij", *put, law)).ravel(),
        ]
    )
