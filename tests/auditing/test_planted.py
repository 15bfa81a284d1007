"""Every planted bug is caught, and its sound twin is not.

Plays are seeded, and everything else here is exact or a state: nothing in this file fails by chance, but for two forked
workers that draw the same 32 numbers (below 1e-90), and for eight threads that a machine holds up, ten times in a row,
for so long that no three of them meet within half a second.
"""

import io
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from planted import PLANTED
from planted.__main__ import catch_all
from planted.attacks import search
from planted.bug import Caught, PlantedBug
from planted.choices import WeightsOfWholeEpsilon
from planted.dealing import ChunksOverlap
from planted.exact import law_of_code
from planted.peers import epsilon_of_choice, epsilon_of_distance
from planted.restarts import RESTARTS
from planted.states import SharedAnswers
from planted.sums import ClippedSum, NoiseReused, SumOfAnything
from planted.thresholds import GapForDistance, RawGap, RedrawnEachQuery, small_quorum, small_stability
from quorate.auditing._laws import all_votes
from quorate.auditing._plays import SeededNoise
from quorate.compute.ensemble import Ensemble
from quorate.core.errors import IdReused, InvalidInput
from quorate.core.mechanisms import NoisyMax, NoisySum, SoftMajority, StabilityTest
from quorate.core.privacy import Budget
from quorate.core.requests import Asked, KeptAnswers
from support.enumeration_instances import INSTANCES, quorum

pytestmark = pytest.mark.attack

# Each way in which this field has gone wrong, as the audit's charter lists them, and the bug that stands for it.
WAYS = {
    "sensitivity off by 2": "sensitivity_half",
    "sensitivity off by 1.2": "sensitivity_off_by_1.2",
    "sensitivity off by 1.05": "sensitivity_off_by_1.05",
    "sensitivity off by 1.05, seen by plays alone": "count_off_by_1.05",
    "gap counted as sensitivity 1": "gap_for_distance",
    "missing 1/2 in the exponential mechanism": "exponential_without_half",
    "weights exp(eps * count)": "weights_of_whole_epsilon",
    "a record in two teachers": "record_in_two_teachers",
    "noise reused": "noise_reused",
    "seed repeated after fork": "seed_repeated_after_fork",
    "threshold redrawn per query": "threshold_redrawn_each_query",
    "no threshold noise": "no_threshold_noise",
    "noise not scaled with the cutoff": "noise_not_scaled_with_cutoff",
    "no cutoff": "no_cutoff",
    "noisy value released": "noisy_value_released",
    "data-dependent exception": "exception_on_tie",
    "NaN path": "nan_passes",
    "classes inferred": "classes_inferred",
    "scaler fitted on all data": "scaler_of_all_records",
    "budget reset on restart": "budget_reset_on_restart",
    "a hypothesis chosen twice": "hypothesis_chosen_again",
    "noise redrawn at a restart": "count_measured_again",
    "a threshold redrawn at a restart": "threshold_redrawn_at_restart",
    "what was spent, forgotten at a restart": "model_starts_anew",
    "what was answered, forgotten at a restart": "answers_forgotten",
    "what was met, forgotten at a restart": "no_quorums_forgotten",
    "double spend": "double_spend",
    "cache shared between tenants": "cache_shared_between_callers",
    "a lost part dealt anew": "lost_part_dealt_anew",
    "a deal that depends on company": "dealt_by_company",
    "class 0 without noise when no neighbour votes": "zero_when_nobody_votes",
}
GAMES = [bug for bug in PLANTED if bug.by == "game"]


def name(bug: PlantedBug) -> str:
    return bug.name


def test_every_way_is_planted():
    names = [bug.name for bug in PLANTED]
    assert len(names) == len(set(names))
    assert set(WAYS.values()) <= set(names)


@pytest.mark.parametrize(("caught", "flagged"), [(True, False), (False, False), (True, True)])
def test_a_missed_bug_or_a_flagged_twin_is_exit_code_1(caught, flagged):
    bug = PlantedBug(
        "loud", "replay", lambda: caught, lambda: flagged, lambda says: Caught("listening", "heard", found=says)
    )
    out = io.StringIO()
    assert catch_all([bug], out=out) == int(flagged or not caught)
    assert f"{int(caught)} of 1 planted bugs caught, {int(not flagged)} of 1 sound twins cleared" in out.getvalue()
    assert ("FLAGGED" in out.getvalue(), "MISSED" in out.getvalue()) == (flagged, not caught)


def test_the_readme_says_about_how_many_bugs_are_planted():
    readme = Path(__file__).parents[2] / "README.md"
    [number] = re.findall(r"more than\s+(\d+)\s+planted\s+bugs", readme.read_text())
    assert int(number) < len(PLANTED) <= int(number) + 30


def test_the_guide_says_how_many_bugs_each_attack_catches():
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "audits.md").read_text()
    said = re.search(
        r"(\d+)\s+are\s+caught\s+by\s+games.*?(\d+)\s+by\s+enumeration\s+and\s+(\d+)\s+by\s+replay.*?"
        r"(\d+)\s+by\s+attacks\s+on\s+state",
        guide,
        re.DOTALL,
    )
    kinds = Counter(bug.by for bug in PLANTED)
    assert said is not None
    assert [int(number) for number in said.groups()] == [kinds[by] for by in ("game", "enumeration", "replay", "state")]
    assert f"{len(RESTARTS)} of the attacks on state start a small model" in guide


@pytest.mark.parametrize("bug", PLANTED, ids=name)
def test_bug_is_caught_and_twin_is_not(bug):
    plays = 1_000_000 if bug.name == "count_off_by_1.05" else 400_000
    caught = bug.catch(plays)
    assert caught.found, caught
    assert caught.attack
    assert caught.evidence
    cleared = bug.clear(plays)
    assert not cleared.found, cleared


@pytest.mark.long
@pytest.mark.parametrize("bug", GAMES, ids=name)
def test_game_catches_twenty_times_of_twenty(bug):
    assert all(bug.catch(1_000_000, seed=seed).found for seed in range(20))
    assert not any(bug.clear(1_000_000, seed=seed).found for seed in range(20))


@pytest.mark.long
@pytest.mark.parametrize("bug", [bug for bug in PLANTED if bug.by == "state"], ids=name)
def test_attack_on_state_catches_twenty_times_of_twenty(bug):
    assert all(bug.catch().found for _ in range(20))
    assert not any(bug.clear().found for _ in range(20))


# ---------------------------------------------------------------- the twins differ in the mistake alone


def test_a_sum_that_lets_nan_through_is_the_sound_one_on_numbers():
    for values in ([1.4, 2.6], [50.0, -3.5], []):
        twins = [kind(NoisySum(sensitivity=20, scale=40.0), bound=10) for kind in (ClippedSum, SumOfAnything)]
        released = [twin.release(values, SeededNoise(3)) for twin in twins]
        assert released[0] == released[1]


def test_sums_that_reuse_noise_are_charged_like_the_sound_ones():
    spent = []
    for kind in (NoisySum, NoiseReused):
        budget = Budget(epsilon=1.0, delta=1e-6)
        kind(sensitivity=1, scale=100.0).releases([10, 30, 60], budget=budget)
        spent.append(budget.spent())
    assert spent[0] == spent[1]


def test_a_shared_memory_knows_requests_by_their_ids_like_the_sound_one():
    for kind in (KeptAnswers, SharedAnswers):
        memory = kind()
        memory.keep({("a", b"x"): 1}, {}, [Asked("a", [b"x"], id="7", body=b"one")])
        again, another = memory.admit(
            [Asked("a", [b"x"], id="7", body=b"one"), Asked("a", [b"y"], id="7", body=b"two")]
        )
        assert again.outcome == [1]
        assert isinstance(another, IdReused)


def test_every_record_has_two_teachers_where_chunks_overlap(monkeypatch):
    deals = []

    def noted(X, codes, deal, **settings):
        deals.append(deal)
        return fit(X, codes, deal, **settings)

    fit = Ensemble.fit
    monkeypatch.setattr("planted.dealing.Ensemble.fit", noted)
    X, y = np.arange(100.0)[:, np.newaxis], np.arange(100) % 2
    ChunksOverlap(epsilon=2.0, teachers=20, queries=2, aggregator="noisy_max", classes=[0, 1]).fit(X, y)
    assert np.bincount(deals[-1].rows).tolist() == [2] * 100
    assert deals[-1].sizes.tolist() == [10] * 20
    for chunk in np.split(deals[-1].rows, 20):
        assert np.unique(chunk).size == 10  # nobody twice in one chunk


def test_one_threshold_noise_for_the_whole_run_is_sound():
    """It looks like a bug, a noise that several no-quorums share, and is none."""
    three = quorum(15, 3, order=2.0, price=3.0, margin=3, scale=1.5)
    assert not three.redraws
    for sound, orders in ((three, [2.0, 8.0]), (small_quorum(), [4.0, 8.0])):
        assert not search(sound, classes=2, queries=5, orders=orders).found
    assert search(small_quorum(RedrawnEachQuery), classes=2, queries=4, orders=[4.0]).found


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_published_mistakes_need_twice_their_epsilon(epsilon):
    for sound, mistakes, needed in (
        (SoftMajority, [WeightsOfWholeEpsilon], epsilon_of_choice),
        (StabilityTest, [GapForDistance, RawGap], epsilon_of_distance),
    ):
        assert 0.99 < needed(sound, epsilon=epsilon).ratio <= 1 + 1e-6
        for mistake in mistakes:
            assert needed(mistake, epsilon=epsilon).ratio == pytest.approx(2, abs=0.01)


TOO_LARGE = {"noisy max, four classes", *(name for name in INSTANCES if name.startswith("confident max"))}


@pytest.mark.parametrize("name", [name for name in INSTANCES if name not in TOO_LARGE])
def test_code_run_on_all_noise_has_the_law_that_is_written_down(name):
    """The law that the enumeration searches was written from the definition: the code itself has the same one."""
    instance = INSTANCES[name]
    ran, written = law_of_code(instance.mechanism, classes=instance.classes), instance.release()
    assert ran.law == pytest.approx(written.law, rel=1e-12, abs=0)
    votes = all_votes(instance.mechanism.teachers, instance.classes)
    for place in np.unique(np.linspace(0, len(votes) - 1, 7).astype(int)):
        rows, expected = ran.outcomes(votes[place]), written.outcomes(votes[place])
        assert rows == pytest.approx(expected, rel=1e-9, abs=1e-250)


def test_too_much_noise_to_enumerate_is_refused():
    with pytest.raises(InvalidInput, match="too many to enumerate"):
        law_of_code(NoisyMax(teachers=5, classes=6, scale=5.0), classes=6).outcomes((5, 0, 0, 0, 0, 0))


def test_a_wrong_line_of_code_is_in_its_law():
    class Upside(NoisyMax):
        def draw_labels(self, counts, noise):
            return super().draw_labels(counts[:, ::-1], noise)

    right, wrong = (law_of_code(kind(teachers=4, classes=2, scale=1.0), classes=2) for kind in (NoisyMax, Upside))
    assert right.outcomes((4, 0))[0, 0] > 0.9 > 0.1 > wrong.outcomes((4, 0))[0, 0]


def test_wrong_scores_of_a_choice_are_in_its_law():
    class Doubled(SoftMajority):
        def draw_labels(self, counts, noise):
            return super().draw_labels(2 * counts, noise)

    assert search(Doubled(teachers=12, epsilon_per_query=1.0), classes=2, queries=1, orders=[2.0]).found


def test_a_wrong_threshold_noise_is_in_its_law():
    class Halved(StabilityTest):
        def draw_threshold_noise(self, noise):
            return super().draw_threshold_noise(noise) // 4

    assert search(small_stability(Halved), classes=2, queries=5, orders=[16.0]).found
