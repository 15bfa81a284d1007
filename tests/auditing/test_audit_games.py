"""Games on real mechanisms: plays are those of real runs, sound claims stand, false ones fall, tight ones look tight.

False alarms: every game here is played at a confidence of 1 - 1e-9, and there are fewer than 100 of them, so that one
run in 10**7 at most would flag a sound claim; the seeds are fixed, so that a run repeats the one before it.
"""

from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

import quorate
from quorate.auditing import Query, enumerate_outcomes, epsilon_lower_bound, release_of
from quorate.auditing._plays import STOPPED, PlayNoise, play
from quorate.auditing._predictors import _votes, closing_law
from quorate.auditing._sums import NoisyCount
from quorate.auditing._verdict import Attempt, Effort
from quorate.auditing._votes import attacks_on, audit_votes, best_attack
from quorate.auditing.targets import TARGETS, make_target
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import (
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    ExponentialChoice,
    NoisyMax,
    NoisySum,
    Quorum,
    Relabel,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.base import QueryMechanism, Run, ThresholdMechanism
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Cost
from quorate.models.concepts import Thresholds
from quorate.models.predictors import PrivateClassifier

pytestmark = pytest.mark.attack

CONFIDENCE = 1 - 1e-9
LONG_RUN = {"epsilon": 20.0, "delta": 1e-2, "teachers": 60, "no_quorums": 3}
ON_VOTES = {  # those that answer with labels; the law of noisy shares is held in test_noisy_shares.py
    name: made
    for name in TARGETS
    if isinstance(made := make_target(name), QueryMechanism | ThresholdMechanism) and name != "noisy_shares"
}
ON_VOTES |= {
    "quorum, three no-quorums": Quorum.calibrate(**LONG_RUN),
    "stability, three no-quorums": StabilityTest.calibrate(**LONG_RUN),  # which redraws its threshold
}


def _again(pair, times):
    node = Query(*pair)
    for _ in range(times - 1):
        node = Query(*pair, dict.fromkeys([-1, 0, 1], node))
    return node


def _one_by_one(mechanism, votes, times, noise):
    """Return what a real run, or the mechanism itself, answers to the same query asked again and again."""
    if not isinstance(mechanism, ThresholdMechanism):
        return [int(mechanism.draw_answers(np.array([votes]), None, noise).labels[0]) for _ in range(times)]
    run, seen = Run(mechanism, budget=None, noise=noise), []
    for _ in range(times):
        if run.no_quorums_left == 0:
            seen.append(STOPPED)
            continue
        answer = run.answer(votes)
        seen.append(-1 if answer is None else answer)
    return seen


@pytest.mark.parametrize("name", ON_VOTES)
def test_a_play_is_a_real_run_draw_for_draw(name):
    mechanism = ON_VOTES[name]
    teachers = mechanism.teachers
    for lead in (teachers // 2, teachers - teachers // 4):
        pair = (lead, teachers - lead), (lead - 1, teachers - lead + 1)
        for seed in range(15):
            for other in (False, True):
                played = play(mechanism, _again(pair, 4), plays=1, neighbour=other, noise=PlayNoise(seed))[0].tolist()
                real = _one_by_one(mechanism, pair[other], 4, PlayNoise(seed))
                assert played == real


def _follows(counts, law):
    """Hold counts against a law by the exact binomial tails of each, which share one false alarm in 10**9."""
    plays, law = counts.sum(), np.minimum(law, 1.0)
    tails = np.minimum(stats.binom.cdf(counts, plays, law), stats.binom.sf(counts - 1, plays, law))
    assert 2 * tails.min() * counts.size > 1e-9


@pytest.mark.parametrize("name", ON_VOTES)
def test_plays_follow_the_enumerated_law(name):
    """Each history of three queries is seen as often as it should be in 20,000 plays: one false alarm in 10**9."""
    mechanism = ON_VOTES[name]
    teachers, plays = mechanism.teachers, 20_000
    lead = teachers * 5 // 8
    tree = _again(((lead, teachers - lead), (lead - 1, teachers - lead + 1)), 3)
    law = enumerate_outcomes(release_of(mechanism, classes=2), tree)
    rows = play(mechanism, tree, plays=plays, neighbour=False, noise=PlayNoise(11))
    seen = {}
    for row in rows.tolist():
        history = tuple(outcome for outcome in row if outcome != STOPPED)
        seen[history] = seen.get(history, 0) + 1
    assert set(seen) <= set(law.histories)
    _follows(np.array([seen.get(history, 0) for history in law.histories]), law.whole)


def test_a_cutoff_closes_as_enumerated():
    from quorate.auditing._predictors import _closings

    cutoff, arrivals, plays = NoisyCutoff(epsilon=0.5, allowed=2, spread=4), [True, False, True, True, False], 20_000
    law = closing_law(cutoff, arrivals)
    assert law.sum() == pytest.approx(1.0)
    _follows(np.bincount(_closings(cutoff, arrivals, plays, PlayNoise(5)), minlength=law.size), law)


@pytest.mark.parametrize("name", list(TARGETS))
def test_sound_claims_stand(name):
    plays = {
        "relabel": 1000,
        "exponential_choice": 4000,
        "private_quantile": 4000,
        "noisy_cutoff": 5000,
    }.get(name, 8000)
    verdict = quorate.audit(make_target(name), plays=plays, confidence=CONFIDENCE, seed=3)
    assert not verdict.violated
    assert verdict.lower_bound <= verdict.claim[0]
    assert verdict.not_tested
    assert verdict.exact is None or verdict.lower_bound <= verdict.exact * (1 + 1e-9)


@pytest.mark.parametrize(
    ("target", "least"),
    [
        (NoisyCount(epsilon=0.5), 0.95),
        (NoisyCount(epsilon=2.0), 0.95),
        (NoisyMax(teachers=20, classes=2, scale=2.0), 0.85),
        (SharpMajority.calibrate(epsilon=1.0, delta=1e-2, teachers=20, queries=1), 0.85),
    ],
)
def test_tight_claims_are_shown_tight(target, least):
    assert least <= quorate.audit(target, plays=1_000_000, confidence=CONFIDENCE).ratio <= 1


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_a_soft_majority_is_shown_tight(epsilon):
    assert 0.85 <= quorate.audit(SoftMajority(teachers=20, epsilon_per_query=epsilon), plays=1_000_000).ratio <= 1


def test_a_noisy_sum_is_shown_to_need_what_enumeration_says():
    """Of the epsilon that its law has, at least 95% is shown; the rest of the gap is the conversion from one order."""
    verdict = quorate.audit(NoisySum(sensitivity=1, scale=0.7), plays=1_000_000, deltas=(1e-1, 1e-2))
    assert all(0.95 * attempt.exact <= attempt.lower_bound <= attempt.exact for attempt in verdict.attempts)
    assert all(attempt.exact <= attempt.claim[0] for attempt in verdict.attempts)


def test_relabelling_is_shown_to_need_much_of_its_term():
    """A row on either side of all others: as the others lead more, the whole term is needed, by ever rarer outcomes."""
    verdict = quorate.audit(make_target("relabel"), plays=2000)
    assert verdict.lower_bound > 0.35 * verdict.claim[0]
    assert 0.65 * verdict.claim[0] < verdict.exact <= verdict.claim[0]


def test_all_votes_of_a_tree_are_made_of_records():
    last = Query((3, 7), (4, 6))
    tree = Query((5, 5), (4, 6), {0: Query((5, 5), (4, 6), {0: last, 1: last})})  # the second asks what the first did
    assert _votes(tree) == {(5, 5), (4, 6), (3, 7)}


class HalfTheNoise(NoisyMax):
    """Draws with half of the scale that it claims."""

    def draw_labels(self, counts, noise):
        return NoisyMax(teachers=self.teachers, classes=self.classes, scale=self.scale / 2).draw_labels(counts, noise)


class ForgetsTheThreshold(StabilityTest):
    """Leaves out the noise on the threshold."""

    def draw_threshold_noise(self, noise):
        return 0


def test_a_false_claim_falls():
    verdict = quorate.audit(HalfTheNoise(teachers=20, classes=2, scale=2.0), plays=100_000, confidence=CONFIDENCE)
    assert verdict.lower_bound > verdict.claim[0]


def test_a_run_without_threshold_noise_falls():
    sound = make_target("stability")
    broken = ForgetsTheThreshold(**{field.name: getattr(sound, field.name) for field in fields(sound)})
    assert not audit_votes(sound, plays=100_000).violated
    verdict = audit_votes(broken, plays=100_000)
    assert verdict.lower_bound > verdict.claim[0]


class LoudSum(NoisySum):
    """Draws with a third of the scale that it claims."""

    def draw_releases(self, totals, budget, noise):
        return NoisySum(sensitivity=self.sensitivity, scale=self.scale / 3).draw_releases(totals, budget, noise)


class LoudVector(NoisyVector):
    """Draws with a third of the scales that it claims."""

    def draw_release(self, parts, budget, noise):
        scales = tuple(scale / 3 for scale in self.scales)
        quiet = NoisyVector(squared_sensitivities=self.squared_sensitivities, scales=scales)
        return quiet.draw_release(parts, budget, noise)


class ForgetsItsTerm(Relabel):
    """Charges nothing for relabelling."""

    def relabelling_cost(self, *, change="labelled", rows=1):
        return Cost(0.0)


class LoudCutoff(NoisyCutoff):
    """Closes with a quarter of the noise that it claims."""

    @property
    def ratio(self):
        return NoisyCutoff(epsilon=4 * self.epsilon, allowed=1, spread=1).ratio


class LoudClassifier(PrivateClassifier):
    """Is fitted with four times the epsilon that it claims."""

    def fit(self, X, y):
        claimed, self.epsilon = self.epsilon, 4 * self.epsilon
        super().fit(X, y)
        self.epsilon = claimed
        return self


ASKED = {"epsilon": 1.0, "delta": 1e-3, "teachers": 60, "queries": 1, "classes": [0, 1]}


@pytest.mark.parametrize(
    ("broken", "sound", "plays"),
    [
        (LoudSum(sensitivity=1, scale=2.0), NoisySum(sensitivity=1, scale=2.0), 20_000),
        (
            LoudVector(squared_sensitivities=(2,), scales=(4.0,)),
            NoisyVector(squared_sensitivities=(2,), scales=(4.0,)),
            20_000,
        ),
        (ForgetsItsTerm(concept=Thresholds(), kappa=4.0), Relabel(concept=Thresholds(), kappa=4.0), 1000),
        (
            LoudCutoff(epsilon=0.5, allowed=2, spread=12),
            NoisyCutoff(epsilon=0.5, allowed=2, spread=12),
            10_000,
        ),
        (
            LoudClassifier(aggregator="soft_majority", **ASKED),
            PrivateClassifier(aggregator="soft_majority", **ASKED),
            20_000,
        ),
    ],
    ids=lambda target: type(target).__name__,
)
def test_every_game_can_find_a_claim_false(broken, sound, plays):
    """By plays: what enumeration says of the law that was written down does not count here."""
    found, stands = (quorate.audit(target, plays=plays, confidence=CONFIDENCE) for target in (broken, sound))
    assert any(attempt.lower_bound > attempt.claim[0] for attempt in found.attempts)
    assert not stands.violated


def test_the_worst_attack_is_no_better_than_the_claim_and_is_found():
    soft = SoftMajority(teachers=9, epsilon_per_query=1.0)
    release = release_of(soft, classes=2)
    attacks = list(attacks_on(release, queries=2, epsilon=2.0))
    _, exact = best_attack(release, attacks, delta=0.0, confidence=0.9, plays=10**6)
    assert 1.5 < exact <= 2.0


def test_epsilon_of_a_law_is_where_delta_is_met():
    law = enumerate_outcomes(release_of(NoisyMax(teachers=9, classes=2, scale=2.0), classes=2), Query((5, 4), (4, 5)))
    for delta in (0.0, 0.01, 0.1):
        epsilon = law.two_sided_epsilon(delta)
        assert max(law.delta(epsilon), law.swap().delta(epsilon)) == pytest.approx(delta, abs=1e-9)


def test_epsilon_is_infinite_where_the_neighbour_cannot_follow():
    from quorate.auditing._enumeration import Outcomes

    law = Outcomes([(0,), (1,)], np.array([0.9, 0.1]), np.array([0.9, 0.1]), np.array([1.0, 0.0]))
    assert law.epsilon(0.05) == float("inf")
    assert law.epsilon(0.1) == 0


@pytest.mark.parametrize("claims", [1, 3])
def test_claims_share_the_error(claims, monkeypatch):
    errors = []

    def watched(first, second, *, delta, confidence):
        errors.append(1 - confidence)
        return epsilon_lower_bound(first, second, delta=delta, confidence=confidence)

    monkeypatch.setattr("quorate.auditing._votes.epsilon_lower_bound", watched)
    audit_votes(make_target("noisy_max"), plays=1000, confidence=0.99, deltas=(0.1, 0.01, 0.001)[:claims])
    assert sum(errors) == pytest.approx(0.01)
    effort, worlds = Effort(plays=1000, confidence=0.98), ([0, 1] * 500, [1, 0] * 500)
    effort.judge_plays("it", [(1.0, 0.0)] * claims, *worlds, attack="", not_tested="all", bound=watched)
    assert sum(errors) == pytest.approx(0.03)
    assert len(errors) == 2 * claims


def test_a_claim_that_enumeration_breaks_is_told_before_one_that_plays_come_closer_to():
    """The best attempt by plays is not the one whose exact law breaks its claim."""
    near, broken = Attempt("near", 0.9, claim=(1.0, 0.1), exact=1.0), Attempt("far", 0.5, claim=(1.0, 0.01), exact=1.5)
    verdict = Effort(plays=10).judge("it", [near, broken], not_tested="the rest")
    assert verdict.violated
    assert verdict.claim == (1.0, 0.01)


def test_attacks_can_be_named():
    soft = SoftMajority(teachers=9, epsilon_per_query=1.0)
    assert audit_votes(soft, plays=1000, attacks=["worst tree"]).attack.startswith("worst tree of 1 query")
    assert audit_votes(soft, plays=1000, attacks="worst tree").attack.startswith("worst tree of 1 query")
    with pytest.raises(InvalidInput, match="no attack"):
        audit_votes(soft, plays=1000, attacks=["psychic"])
    with pytest.raises(InvalidInput, match="no attack"):
        audit_votes(soft, plays=1000, attacks="psychic one")


def test_no_attack_at_all_is_no_verdict():
    with pytest.raises(InvalidInput, match="no attack on it was played"):
        Effort(plays=10).judge("it", [], not_tested="all")


@pytest.mark.parametrize("plays", [-3, 0, 9, 2.5])
def test_too_few_plays_are_refused_before_the_game(plays):
    with pytest.raises(InvalidInput, match="plays"):
        quorate.audit(make_target("noisy_max"), plays=plays)


@pytest.mark.parametrize(
    "target",
    [
        ExponentialChoice(epsilon=1.0, sensitivity=90),  # more than the records that the game usually has
        Relabel(concept=Thresholds(), kappa=2000.0),  # whose weights are all below the smallest number
        NoisyMax(teachers=1, classes=2, scale=2.0),
    ],
    ids=lambda target: type(target).__name__,
)
def test_extreme_mechanisms_are_audited_too(target):
    verdict = quorate.audit(target, plays=100)
    assert not verdict.violated
    assert 0 <= verdict.exact <= verdict.claim[0] * (1 + 1e-9)


def test_what_no_attack_is_known_for_is_said():
    with pytest.raises(InvalidInput, match="no attack is known for dict"):
        quorate.audit({})


def test_a_game_of_your_own_is_played():
    class Mine:
        pass

    @quorate.audit.register(Mine)
    def _(target, *, plays):  # a game takes the options that it knows
        return Effort(plays=plays).judge("Mine", [Attempt("mine", 0.5, claim=(1.0, 0.0))], not_tested="all")

    assert quorate.audit(Mine(), plays=10).plays == 10
    with pytest.raises(TypeError, match="seed"):
        quorate.audit(Mine(), plays=10, seed=1)


def test_a_verdict_can_be_had_again():
    verdicts = [quorate.audit(make_target("noisy_max"), plays=5000, seed=4) for _ in range(2)]
    assert verdicts[0] == verdicts[1]


def _random_targets(random):
    """One sound instance of every kind, with parameters drawn at random."""
    epsilon, delta = float(random.uniform(0.5, 5.0)), float(10 ** random.uniform(-4, -1.5))
    teachers = int(random.integers(20, 45))
    run = {"epsilon": max(2.0, epsilon), "delta": delta, "teachers": 80, "no_quorums": int(random.integers(1, 3))}
    yield NoisyCount(epsilon=epsilon)
    yield NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=int(random.integers(1, 20)))
    yield NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(int(random.integers(1, 6)),))
    yield SoftMajority(teachers=teachers, epsilon_per_query=epsilon)
    yield SharpMajority.calibrate(epsilon=epsilon, delta=delta, teachers=teachers, queries=1)
    yield NoisyMax(teachers=teachers, classes=int(random.integers(2, 4)), scale=float(random.uniform(1.0, 6.0)))
    yield ConfidentMax(
        teachers=teachers,
        classes=2,
        threshold=teachers * 2 // 3,
        test_scale=float(random.uniform(2, 8)),
        winner_scale=float(random.uniform(1, 4)),
    )
    yield Quorum.calibrate(**run)
    yield StabilityTest.calibrate(**run | {"epsilon": max(4.0, epsilon)})
    yield BetweenThresholds.calibrate(**run)
    yield Dissent.calibrate(**{("dissents" if name == "no_quorums" else name): value for name, value in run.items()})
    yield ExponentialChoice(epsilon=epsilon, sensitivity=int(random.integers(1, 4)))
    yield NoisyCutoff(epsilon=epsilon, allowed=int(random.integers(1, 6)), spread=int(random.integers(2, 12)))
    yield Relabel(concept=Thresholds(), kappa=float(random.uniform(0.2, 2.0)))


@pytest.mark.long
@pytest.mark.parametrize("repeat", range(43))
def test_sound_mechanisms_stand_in_602_audits(repeat):
    """14 mechanisms, 43 repeats, parameters at random: one false alarm in 10**6 runs at most."""
    for target in _random_targets(np.random.default_rng(repeat)):
        slow = {Relabel: 1000, ExponentialChoice: 5000, NoisyCutoff: 20_000}  # drawn one at a time
        asked = {"queries": 2} if isinstance(target, ThresholdMechanism) else {}
        plays = slow.get(type(target), 100_000)
        verdict = quorate.audit(target, plays=plays, confidence=CONFIDENCE, seed=repeat, **asked)
        assert not verdict.violated, verdict
