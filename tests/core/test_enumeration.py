"""Every claimed cost against exact enumeration, and the enumeration against planted bugs and against real releases."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from conftest import FALSE_ALARM
from planted import broken_releases
from quorate.auditing import Query, claims_of, enumerate_outcomes, release_of, worst_cases
from quorate.auditing._enumeration import DeltaClaim, Outcomes, RenyiClaim, SlackClaim, measure_claim
from quorate.auditing._laws import all_votes, neighbours
from quorate.auditing._worst_case import Game, ascend
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import (
    NO_QUORUM,
    BetweenThresholds,
    ConfidentMax,
    NoisyMax,
    Quorum,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.above_threshold import AboveThreshold
from support.enumeration_instances import INSTANCES, Instance, between, dissent, quorum, stability

THRESHOLD = [name for name in INSTANCES if name.startswith(("quorum", "stability", "between"))]


def search(instance: Instance, *, release=None, claims=None, effort=300_000, starts=8):
    """The one check: the worst interaction found for each claim. Sound releases and bugs go through it alike."""
    release = instance.release() if release is None else release
    claims = instance.claims() if claims is None else claims
    return worst_cases(release, claims, queries=instance.queries, effort=effort, starts=starts)


def is_broken(instance: Instance, *, release=None, claims=None, **effort) -> bool:
    """Whether a claim is violated, other than one about the probability of the tail event. The first is enough."""
    release = instance.release() if release is None else release
    named = [claim for claim in claims or instance.claims() if not isinstance(claim, SlackClaim)]
    return any(search(instance, release=release, claims=[claim], **effort)[0].violated for claim in named)


# ---------------------------------------------------------------- sound mechanisms


@pytest.mark.parametrize("name", INSTANCES)
def test_no_interaction_breaks_a_claim(name):
    instance = INSTANCES[name]
    findings = search(instance)
    assert not [finding for finding in findings if finding.violated]
    assert findings[0].claim.order == instance.orders[0]
    assert findings[0].share >= instance.tightness
    release = instance.release()
    for finding in findings:  # the readable engine agrees with the fast one, and the other direction holds as well
        again = measure_claim(finding.claim, enumerate_outcomes(release, finding.query))
        assert again == pytest.approx(finding.measured, rel=1e-9, abs=1e-12)
        reverse = measure_claim(finding.claim, enumerate_outcomes(release, finding.query.reverse()))
        assert reverse <= finding.claim.limit * (1 + 1e-9) + 1e-10


@pytest.mark.long
@pytest.mark.parametrize("name", THRESHOLD)
def test_no_interaction_breaks_a_claim_at_length(name):
    instance = replace(INSTANCES[name], queries=6)
    assert not [finding for finding in search(instance, effort=20_000_000, starts=64) if finding.violated]


def test_soft_majority_is_pure():
    soft = SoftMajority(teachers=40, epsilon_per_query=0.7)
    for classes in (2, 3):
        game = Game(release_of(soft, classes=classes), ("whole", "neighbour"))
        assert not game.exhaust(DeltaClaim(epsilon=0.7, limit=0.0), queries=1).violated
        assert game.exhaust(DeltaClaim(epsilon=0.69, limit=0.0), queries=1).violated


CALIBRATED = {
    "quorum": lambda: Quorum.calibrate(epsilon=4.0, delta=1e-2, teachers=41, no_quorums=2),
    "stability": lambda: StabilityTest.calibrate(epsilon=4.0, delta=1e-2, teachers=61, no_quorums=2),
    "between": lambda: BetweenThresholds.calibrate(epsilon=4.0, delta=1e-2, teachers=51, no_quorums=2),
    "noisy max": lambda: NoisyMax.calibrate(epsilon=2.0, delta=1e-2, teachers=30, classes=2, queries=2),
    "confident max": lambda: ConfidentMax.calibrate(epsilon=2.0, delta=1e-2, teachers=30, classes=2, queries=2),
    "soft majority": lambda: SoftMajority.calibrate(epsilon=2.0, delta=1e-2, teachers=30, queries=2),
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_calibrated_mechanisms_keep_their_target(name):
    mechanism = CALIBRATED[name]()
    epsilon = 4.0 if name in ("quorum", "stability", "between") else 2.0
    claims = [DeltaClaim(epsilon=epsilon, limit=1e-2), *claims_of(mechanism, queries=2, orders=[3.0])]
    findings = worst_cases(release_of(mechanism, classes=2), claims, queries=2, effort=10_000_000)
    assert not [finding for finding in findings if finding.violated]
    assert findings[1].measured > 0  # something was at stake


@pytest.mark.parametrize(
    "mechanism",
    [
        quorum(25, 1, order=4.0, price=0.8, margin=3, scale=2.0),
        quorum(25, 1, order=20.0, price=2.0, margin=3, scale=2.0),
        between(31, 1, order=4.0, threshold=1.5, query=1.5, margin=8, cap=4),
        between(31, 1, order=12.0, threshold=1.5, query=3.0, margin=9, cap=2),
    ],
    ids=["quorum 4", "quorum 20", "between 4", "between 12"],
)
def test_price_of_a_no_quorum_is_attained(mechanism):
    """With the threshold noise known on D and one higher on D', an answer is free and a no-quorum costs the price."""
    release = release_of(mechanism, classes=2)
    price = mechanism.no_quorum_cost(mechanism.order).renyi
    covered = np.flatnonzero(release.covered_law)
    worst, cheaper = [], []
    for column in covered[covered > release.law.size // 2 - 4]:
        here, there = (broken_releases.fix_noise(release, column + more) for more in (0, 1))
        game = Game(here, ("covered", "neighbour"), on_neighbour=there)
        for per_no_quorum, found in ((price, worst), (price * 0.999, cheaper)):
            claim = RenyiClaim(order=mechanism.order, limit=0.0, per_no_quorum=per_no_quorum)
            found.append(game.exhaust(claim, queries=1))
    assert not [finding for finding in worst if finding.violated]
    assert [finding for finding in cheaper if finding.violated]


RUNS = ("quorum", "stability", "between tight", "between paper")


def random_instance(kind: str, generator: np.random.Generator) -> Instance:
    order = float(generator.choice([1.2, 2, 3, 4, 8, 16] if kind in RUNS else [1.2, 2, 3, 4, 8]))
    classes = 2 if kind.startswith("between") else int(generator.choice([2, 3, 4]))
    teachers = int(generator.integers(3, {2: 24, 3: 14, 4: 8}[classes]))
    no_quorums, one, two = int(generator.integers(1, 4)), *np.exp(generator.uniform(-0.7, 1.3, 2))
    two *= 1.02 if abs(one - two) < 0.01 * two else 1.0  # StabilityTest rounds the slack of equal scales up
    margin = int(generator.integers(0, teachers // 4 + 2))
    queries = int(generator.integers(1, 7))
    if kind == "quorum":
        price = float(np.exp(generator.uniform(-2, 1.5))) * (order - 1)
        mechanism = quorum(teachers, no_quorums, order=order, price=price, margin=margin, scale=one)
    elif kind == "stability":
        no_quorums, margin = min(no_quorums, 2), margin + 1
        mechanism = stability(
            teachers, no_quorums, order=order, threshold=one, query=two, margin=margin + math.ceil(one + two)
        )
    elif kind.startswith("between"):
        mechanism = between(
            teachers,
            no_quorums,
            order=order,
            threshold=one,
            query=two,
            margin=margin + 2 + int(generator.integers(4, 7)),
            cap=margin + 2,
            calibration=kind.split()[1],
        )
    else:
        queries = int(generator.choice([1, 1, 1, 2]))
        makers = {
            "noisy max": lambda: NoisyMax(teachers=teachers, classes=classes, scale=one),
            "confident max": lambda: ConfidentMax(
                teachers=teachers,
                classes=classes,
                threshold=int(generator.integers(0, teachers + 2)),
                test_scale=one,
                winner_scale=two,
                charge=str(generator.choice(["split", "joint"])),
            ),
            "soft majority": lambda: SoftMajority(teachers=teachers, epsilon_per_query=one),
        }
        mechanism = makers[kind]()
    return Instance(mechanism, classes, queries, (order, 2.5), 0.0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [*RUNS, "noisy max", "confident max", "soft majority"])
def test_random_mechanisms_keep_their_claims(kind, seed):
    generator = np.random.default_rng(seed)
    for _ in range(25):
        instance = random_instance(kind, generator)
        if instance.slack + 0.2 < 1:
            assert not [finding for finding in search(instance, starts=4) if finding.violated], instance


def test_many_teachers_against_a_student_leave_no_outcome_impossible():
    """Where the law of the threshold noise ended early, an outcome was rare on D, impossible on D', and cost inf."""
    above = AboveThreshold.calibrate(epsilon=6.0, delta=1e-2, records=40, near=10, far=30)
    findings = worst_cases(release_of(above, classes=2), claims_of(above, queries=2, orders=[above.order]), queries=2)
    assert not [finding for finding in findings if finding.violated]
    assert 0 < findings[0].measured < math.inf


# ---------------------------------------------------------------- planted bugs

BROKEN_RELEASES = [
    ("quorum, three no-quorums", broken_releases.gap_of_sensitivity_one),
    ("quorum, three no-quorums", broken_releases.raw_gap),
    ("quorum, three no-quorums", broken_releases.without_threshold_noise),
    ("quorum, three classes", broken_releases.gap_of_sensitivity_one),
    ("quorum, three classes", broken_releases.raw_gap),
    ("quorum, one no-quorum", broken_releases.gap_of_sensitivity_one),
    ("quorum, one no-quorum", broken_releases.redrawn_each_query),
    ("quorum, four classes", broken_releases.redrawn_each_query),
    ("quorum, little noise", broken_releases.redrawn_after_no_quorum),
    ("stability", broken_releases.gap_of_sensitivity_one),
    ("stability", broken_releases.raw_gap),
    ("stability", broken_releases.without_threshold_noise),
    ("stability", broken_releases.redrawn_each_query),
    ("stability, two epochs", broken_releases.gap_of_sensitivity_one),
    ("between, tight", broken_releases.without_threshold_noise),
    ("between, tight", broken_releases.redrawn_each_query),
    ("between, tight, two no-quorums", broken_releases.lead_for_votes),
    ("between, paper", broken_releases.without_threshold_noise),
    ("between, paper", broken_releases.redrawn_each_query),
    ("between, paper", broken_releases.lead_for_votes),
    ("dissent, three dissents", broken_releases.gap_for_half_gap),
    ("dissent, three classes", broken_releases.gap_for_half_gap),
    ("dissent, four classes", broken_releases.gap_for_half_gap),
    ("dissent, one dissent", broken_releases.redrawn_each_query),
    ("dissent, three classes", broken_releases.redrawn_each_query),
    ("dissent, little noise", broken_releases.redrawn_after_no_quorum),
    ("dissent, three classes", broken_releases.redrawn_after_no_quorum),
    ("dissent, three dissents", broken_releases.without_threshold_noise),
    ("dissent, margin below 0", broken_releases.without_threshold_noise),
    ("dissent, four classes", broken_releases.without_threshold_noise),
    ("dissent, little noise", broken_releases.top_label_for_the_students),
    ("dissent, three classes", broken_releases.top_label_for_the_students),
]


@pytest.mark.parametrize(("name", "bug"), BROKEN_RELEASES, ids=lambda value: getattr(value, "__name__", value))
def test_broken_release_is_found(name, bug):
    instance = INSTANCES[name]
    assert is_broken(instance, release=bug(instance.release()))


UNEXCUSED = [
    *BROKEN_RELEASES[:3],
    ("quorum, one no-quorum", broken_releases.redrawn_each_query),
    ("quorum, little noise", broken_releases.redrawn_after_no_quorum),
    ("stability", broken_releases.gap_of_sensitivity_one),
    ("stability", broken_releases.raw_gap),
    ("stability", broken_releases.without_threshold_noise),
    ("stability", broken_releases.redrawn_each_query),
    ("between, tight", broken_releases.without_threshold_noise),
    ("between, paper", broken_releases.without_threshold_noise),
    ("between, paper", broken_releases.redrawn_each_query),
    ("between, paper", broken_releases.lead_for_votes),
]


@pytest.mark.parametrize(("name", "bug"), UNEXCUSED, ids=lambda value: getattr(value, "__name__", value))
def test_no_other_tail_event_excuses_the_bug(name, bug):
    """Whatever part of the law of D is left out, as long as it is no likelier than the slack, the cost is exceeded."""
    instance = INSTANCES[name]
    release = bug(instance.release())
    claims = [claim for claim in instance.claims() if isinstance(claim, RenyiClaim) and claim.per_no_quorum == 0]
    shares = [
        enumerate_outcomes(release, found.query).renyi(found.claim.order, removed=instance.slack) / found.claim.limit
        for found in search(instance, release=release, claims=claims)
    ]
    assert max(shares) > 1.02


CHEAP = [name for name in INSTANCES if name != "between, tight, two no-quorums"]  # at half of it no tree was found


@pytest.mark.parametrize("name", CHEAP)
def test_half_of_the_cost_is_found_false(name):
    instance = INSTANCES[name]
    assert is_broken(instance, claims=[broken_releases.half_cost(claim) for claim in instance.claims()])


@pytest.mark.parametrize(
    "instance",
    [
        INSTANCES["quorum, three no-quorums"],
        Instance(quorum(13, 2, order=2.0, price=2.0, margin=2, scale=2.5), 3, 4, (2.0,), 0.0),
        INSTANCES["dissent, three dissents"],
        Instance(dissent(13, 2, order=2.0, price=2.0, margin=2, scale=2.5), 3, 4, (2.0,), 0.0),
    ],
    ids=["quorum", "quorum, three classes", "dissent", "dissent, three classes"],
)
def test_table_of_another_order_is_found(instance):
    """The table is made for order 2, and the claim at order 8 is made with the same price."""
    assert not is_broken(instance)
    claims = claims_of(broken_releases.at_order(instance.mechanism, 8.0), queries=instance.queries, orders=[8.0])
    assert is_broken(instance, claims=claims)


def test_band_priced_at_another_order_is_found():
    instance = INSTANCES["between, tight"]
    low, order = instance.mechanism.no_quorum_cost(2.0).renyi, 8.0
    opening = instance.mechanism.opening_cost(order).renyi
    price = low * (2.0 - 1) / (order - 1)
    claims = [
        RenyiClaim(order=order, limit=opening + price),
        RenyiClaim(order=order, limit=opening, per_no_quorum=price),
    ]
    assert is_broken(instance, claims=claims)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("noisy max, two classes", NoisyMax(teachers=60, classes=2, scale=2.0 / math.sqrt(2))),
        ("noisy max, three classes", NoisyMax(teachers=24, classes=3, scale=1.5 / math.sqrt(2))),
        (
            "confident max, split",
            ConfidentMax(teachers=13, classes=3, threshold=6, test_scale=4.0, winner_scale=1.5 / math.sqrt(2)),
        ),
        (
            "confident max, joint",
            ConfidentMax(teachers=13, classes=3, threshold=6, test_scale=0.1, winner_scale=1.5, charge="joint"),
        ),
        ("soft majority, two classes", SoftMajority(teachers=40, epsilon_per_query=1.0)),
        ("soft majority, three classes", SoftMajority(teachers=12, epsilon_per_query=2.0)),
    ],
    ids=["noise for one count", "noise for one count of three", "winner's noise", "no test noise", "weight", "weights"],
)
def test_too_little_noise_is_found(name, wrong):
    """Noise for a change of one count where two change; a test without noise; votes weighted by epsilon, not half."""
    instance = INSTANCES[name]
    assert is_broken(instance, release=release_of(wrong, classes=instance.classes))


def test_free_winner_is_found():
    """Charging the test alone, as if the winner's name came with it."""
    instance = INSTANCES["confident max, split"]
    claims = [replace(claim, per_answer=0.0) for claim in instance.claims() if getattr(claim, "per_answer", 0.0) > 0]
    assert claims
    assert is_broken(instance, claims=claims)


@pytest.mark.parametrize("name", ["quorum, three no-quorums", "stability, two epochs", "between, paper, two epochs"])
def test_short_slack_is_found(name):
    instance = INSTANCES[name]
    (claim,) = (claim for claim in instance.claims() if isinstance(claim, SlackClaim))
    (finding,) = search(instance, claims=[replace(claim, limit=claim.limit * 0.9)])
    assert finding.violated


# ---------------------------------------------------------------- real releases


def chain(batch, classes):
    """The queries of a batch one after the other, whatever the outcomes."""
    query = None
    for votes in reversed(batch):
        then = {} if query is None else dict.fromkeys([*range(classes), NO_QUORUM], query)
        query = Query(tuple(votes), tuple(votes), then)
    return query


_CELL = 30  # draws that a cell is expected to have, at least


def alarm(counts, probabilities) -> float:
    """Return the chance that draws of these probabilities fit as badly as the counts; rare cells are put together.

    Where a cell has 10 draws, Pearson's sum passes its quantile of 1e-9 with probability 5e-8; where it has 30, 1e-8.
    """
    total = counts.sum()
    if (counts[probabilities * total < 1e-30] > 0).any():
        return 0.0
    rare = probabilities * total < _CELL
    seen = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(probabilities[~rare], probabilities[rare].sum()) * total
    if expected[-1] < _CELL:  # too few to be a cell of their own: they join the largest
        seen[expected.argmax()] += seen[-1]
        expected[expected.argmax()] += expected[-1]
        seen, expected = seen[:-1], expected[:-1]
    return float(stats.chi2.sf((((seen - expected) ** 2) / expected).sum(), df=max(1, len(seen) - 1)))


def histories(mechanism, batch, draws):
    """Return how often each history came out of the real mechanism."""
    seen: dict[tuple[int, ...], int] = {}
    if hasattr(mechanism, "open"):
        rows = (tuple(mechanism.open().answers(np.array(batch)).labels.tolist()) for _ in range(draws))
    else:
        labels = mechanism.answers(np.tile(batch, (draws, 1))).labels.reshape(draws, len(batch))
        rows = (tuple(row) for row in labels.tolist())
    for row in rows:
        seen[row] = seen.get(row, 0) + 1
    return seen


def fit(seen, outcomes: Outcomes) -> float:
    place = {history: number for number, history in enumerate(outcomes.histories)}
    if not seen.keys() <= place.keys():
        return 0.0
    counts = np.zeros(len(place))
    for history, count in seen.items():
        counts[place[history]] = count
    return alarm(counts, outcomes.whole)


RELEASES = {
    "quorum": (quorum(15, 2, order=4.0, price=2.0, margin=2, scale=1.5), [(3, 12), (7, 8), (0, 15), (11, 4)]),
    "quorum, three classes": (
        quorum(15, 2, order=4.0, price=2.0, margin=1, scale=1.0),
        [(3, 11, 1), (5, 5, 5), (0, 3, 12), (13, 2, 0)],
    ),
    "dissent": (dissent(15, 2, order=4.0, price=2.0, margin=3, scale=1.5), [(5, 10), (8, 7), (2, 13), (11, 4)]),
    "dissent, three classes": (
        dissent(15, 3, order=4.0, price=2.0, margin=3, scale=1.0),
        [(5, 9, 1), (5, 5, 5), (4, 2, 9), (7, 4, 4)],
    ),
    "stability": (
        stability(15, 2, order=4.0, threshold=1.5, query=2.0, margin=4),
        [(2, 13), (15, 0), (6, 9), (3, 12)],
    ),
    "stability, three classes": (
        stability(15, 3, order=4.0, threshold=1.5, query=2.0, margin=4),
        [(2, 13, 0), (0, 0, 15), (6, 8, 1), (12, 3, 0)],
    ),
    "between, tight": (
        between(21, 2, order=4.0, threshold=1.5, query=1.5, margin=7, cap=3),
        [(3, 18), (19, 2), (4, 17), (11, 10)],
    ),
    "between, paper": (
        between(20, 2, order=4.0, threshold=1.5, query=1.5, margin=7, cap=3, calibration="paper"),
        [(3, 17), (18, 2), (4, 16), (10, 10)],
    ),
    "noisy max": (NoisyMax(teachers=15, classes=2, scale=1.5), [(7, 8)]),
    "noisy max, ties": (NoisyMax(teachers=15, classes=3, scale=1.0), [(6, 3, 6)]),
    "noisy max, four classes": (NoisyMax(teachers=15, classes=4, scale=2.0), [(3, 5, 4, 3)]),
    "confident max": (
        ConfidentMax(teachers=15, classes=3, threshold=8, test_scale=2.0, winner_scale=1.5),
        [(4, 7, 4)],
    ),
    "soft majority": (SoftMajority(teachers=15, epsilon_per_query=0.5), [(7, 8)]),
    "soft majority, three classes": (SoftMajority(teachers=15, epsilon_per_query=0.8), [(4, 5, 6)]),
}


def assert_follows(name, draws):
    mechanism, batch = RELEASES[name]
    classes = len(batch[0])
    seen = histories(mechanism, batch, draws)
    release, query = release_of(mechanism, classes=classes), chain(batch, classes)
    assert fit(seen, enumerate_outcomes(release, query)) > FALSE_ALARM
    return seen, release, query


def imposters(name, release):
    """Return laws that the draws must not fit: a power check for the comparison."""
    if name.startswith(("quorum", "stability")):
        return [broken_releases.gap_of_sensitivity_one(release), broken_releases.redrawn_each_query(release)]
    if name.startswith("between"):
        return [broken_releases.lead_for_votes(release), broken_releases.redrawn_each_query(release)]
    if name.startswith("dissent"):
        ahead = replace(release, outcomes=lambda votes: release.outcomes((votes[0] + 2, *votes[1:])))
        return [broken_releases.gap_for_half_gap(release), broken_releases.redrawn_each_query(release), ahead]
    if name == "noisy max, ties":  # the last of those that tie wins
        return [replace(release, outcomes=lambda votes: release.outcomes(votes[::-1])[[2, 1, 0, 3]])]
    return [replace(release, outcomes=lambda votes: release.outcomes((votes[0] + 1, votes[1] - 1, *votes[2:])))]


@pytest.mark.parametrize("name", RELEASES)
def test_real_releases_follow_the_enumerated_law(name):
    seen, release, query = assert_follows(name, 4500)
    for imposter in imposters(name, release):
        assert fit(seen, enumerate_outcomes(imposter, query)) < FALSE_ALARM


@pytest.mark.long
@pytest.mark.parametrize("name", RELEASES)
def test_real_releases_follow_the_enumerated_law_closely(name):
    assert_follows(name, 200_000)


# ---------------------------------------------------------------- the engines themselves


@pytest.mark.parametrize("name", ["quorum, little noise", "stability, three classes", "between, paper, two epochs"])
def test_ascent_comes_near_the_best_of_all_trees(name):
    instance = replace(INSTANCES[name], queries=3)
    claim = instance.claims()[0]
    game = Game(instance.release(), claim.measures)
    best = game.exhaust(claim, queries=3).measured
    climbed = ascend(game, claim, queries=3).measured
    assert 0.97 * best <= climbed <= best * (1 + 1e-9)


def test_probabilities_sum_to_one():
    for instance in INSTANCES.values():
        release = instance.release()
        for votes in all_votes(release.teachers, release.classes)[::7]:
            np.testing.assert_allclose(release.outcomes(votes).sum(axis=0), 1.0, rtol=0, atol=1e-12)
            assert (release.covered_outcomes(votes) <= release.outcomes(votes)).all()
        assert release.law.sum() == pytest.approx(1.0, abs=1e-14)


def test_one_query_by_hand():
    soft = SoftMajority(teachers=2, epsilon_per_query=2.0)
    outcomes = enumerate_outcomes(release_of(soft, classes=2), Query((2, 0), (1, 1)))
    likely = 1 / (1 + math.exp(-2.0))
    np.testing.assert_allclose(outcomes.whole, [likely, 1 - likely])
    assert outcomes.delta(0.0) == pytest.approx(likely - 0.5)
    assert outcomes.renyi(2.0) == pytest.approx(math.log(2 * likely**2 + 2 * (1 - likely) ** 2))


def test_a_run_ends_with_its_last_no_quorum():
    mechanism = quorum(9, 2, order=2.0, price=1.0, margin=2, scale=1.0)
    outcomes = enumerate_outcomes(release_of(mechanism, classes=2), chain([(4, 5)] * 5, 2))
    assert outcomes.histories[-1] == (NO_QUORUM, NO_QUORUM)
    assert outcomes.whole.sum() == pytest.approx(1.0)


def test_the_best_part_is_no_worse_than_the_covered_one():
    instance = INSTANCES["quorum, three no-quorums"]
    finding = search(instance)[0]
    outcomes = enumerate_outcomes(instance.release(), finding.query)
    assert outcomes.renyi(2.0, removed=instance.slack) <= outcomes.renyi(2.0) * (1 + 1e-9)
    assert outcomes.renyi(2.0, removed=0.0) >= outcomes.renyi(2.0)


def test_neighbours_move_one_ballot():
    assert sorted(neighbours((2, 0, 1))) == [(1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 1, 0), (3, 0, 0)]
    with pytest.raises(InvalidInput, match="at most one ballot moved"):
        Query((3, 0), (1, 2))


def test_unknown_mechanisms_are_refused():
    with pytest.raises(InvalidInput, match="no release is written down for int"):
        release_of(3, classes=2)
