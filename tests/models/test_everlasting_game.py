"""The game of everlasting prediction: sound rules keep the claim, and each mistake breaks it."""

import numpy as np
import pytest
from everlasting_enumeration import MISTAKES, EverlastingGame, Rules, majority, seated, small_quorum
from scipy.stats import binom

from quorate import InvalidInput
from quorate.auditing._bounds import epsilon_lower_bound
from quorate.auditing._laws import ballots_to_change
from quorate.auditing._predictors import audit_terms, closing_law, closing_plays, no_quorum_plays
from quorate.auditing._verdict import audit
from quorate.core.mechanisms import NO_QUORUM, Quorum
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.models.concepts import Thresholds
from quorate.models.everlasting import EverlastingClassifier, Guarantee
from quorate.models.everlasting._terms import votes_terms

CUTOFF = NoisyCutoff(epsilon=1.0, allowed=1, spread=3)  # delta 0.05
ROOMY = NoisyCutoff(epsilon=1.0, allowed=12, spread=3)


def game(quorum=None, cutoff=CUTOFF, *, seats=3, later=1, **settings):
    quorum = small_quorum(3, no_quorums=cutoff.most) if quorum is None else quorum
    return EverlastingGame(quorum, cutoff, seats=seats, later=later, **settings)


@pytest.mark.parametrize(
    ("challenge", "queries", "later"),
    [("record", [3, 2], 0), ("query", [3, 1], 0), ("query", [3, 1], 1), ("query", [3, 0], 1), ("query", [3, 0], 2)],
)
def test_sound_rules_keep_the_claim_whatever_is_asked(challenge, queries, later):
    """Both phases jointly: a query that is challenged in the first teaches the second."""
    played = game(later=later)
    for delta in (0.1, 0.3):
        claim = played.claim(challenge, delta=delta)
        assert played.worst(challenge, epsilon=claim, queries=queries) <= delta
    assert played.worst(challenge, epsilon=1e-6, queries=queries) > 0.01  # and it does move


def test_the_second_phase_tells_more_than_the_first_alone():
    alone, jointly = (game(later=later).worst("query", epsilon=1e-6, queries=[3, 0]) for later in (0, 1))
    assert alone < jointly


def test_a_record_pays_for_the_first_phase_alone():
    """What phase 2 says is computed from what phase 1 released: it adds nothing, at any epsilon."""
    script = [(3, 2), (2, 2), (3, 2)]
    for epsilon in (0.1, 1.0, 3.0):
        values = [game(later=later).worst("record", epsilon=epsilon, queries=[], script=script) for later in (0, 2)]
        assert values[0] == pytest.approx(values[1], abs=1e-9)


def test_the_exact_epsilon_lies_below_the_claim():
    played = game(later=0)
    exact = played.exact_epsilon("record", delta=0.1, queries=[3])
    assert 0.0 < exact < played.claim("record", delta=0.1)


SHARP = small_quorum(3, no_quorums=4, price=12.0)
WAVERING = small_quorum(5, no_quorums=4, price=30.0, margin=2, threshold_scale=0.7)

CATCHES = {
    "threshold redrawn after each no-quorum": (
        lambda: game(WAVERING, NoisyCutoff(epsilon=0.5, allowed=3, spread=12), seats=5, later=0),
        ("query", [(5, 5), (5, 2), (5, 5), (0, 0), (0, 0)]),
    ),
    "cutoff without noise": (lambda: game(SHARP, later=0), ("query", [(3, 1), (3, 3), (3, 3)])),
    "cutoff with noise on its threshold alone": (
        lambda: game(SHARP, NoisyCutoff(epsilon=0.1, allowed=1, spread=60), later=0),
        ("query", [(3, 1), (3, 3), (3, 3)]),
    ),
    "cache kept across phases": (lambda: game(cutoff=ROOMY), ("query", [(3, 0), (0, 0), (0, 0)])),
    "labels of no-quorum points taken from raw ballots": (
        lambda: game(cutoff=ROOMY),
        ("record", [(1, 2), (1, 2), (1, 2)]),
    ),
}


def test_each_mistake_has_a_catch():
    assert {*CATCHES, "dropped points shifting seats"} == MISTAKES.keys()  # the latter takes many teachers: below


@pytest.mark.parametrize("name", list(CATCHES))
def test_each_mistake_is_caught_and_the_sound_rules_are_not(name):
    make, (challenge, script) = CATCHES[name]
    sound = make()
    delta = sound.cutoff.delta + (0.1 if sound.later else 0.0)
    claim = sound.claim(challenge, delta=delta)
    assert sound.worst(challenge, epsilon=claim, queries=[], script=script) <= delta
    assert sound.with_rules(MISTAKES[name]).worst(challenge, epsilon=claim, queries=[], script=script) > 1.2 * delta


def test_an_adversary_who_may_choose_finds_a_bare_cutoff_himself():
    bare = game(SHARP, later=0).with_rules(Rules(bare_cutoff=True))
    assert bare.worst("query", epsilon=1.0, queries=[3, 1]) > 0.9


def test_small_rules_and_bad_games():
    assert majority([1, NO_QUORUM, 0]) == 0
    with pytest.raises(InvalidInput, match="seats=4 must be a multiple of teachers=3"):
        game(seats=4)
    with pytest.raises(InvalidInput, match="delta must"):
        game().claim("query", delta=0.01)
    with pytest.raises(InvalidInput, match="votes of 3 queries, not of 1"):
        game().worst("query", epsilon=1.0, queries=[], script=[(3, 3)])


@pytest.mark.parametrize(("name", "caught"), [(None, False), ("dropped points shifting seats", True)])
def test_dropped_points_that_shift_seats_are_caught(name, caught):
    """Labels take turns, and teacher number t has seat t and votes for whether its label is t's turn.

    Other queries are far from the boundary and answered. The challenge is, too, or it is a tie and dropped: if all
    others then move up by a seat, every teacher changes its mind, where one may.
    """
    rules = Rules() if name is None else MISTAKES[name]
    quorum = Quorum.calibrate(epsilon=4.0, delta=1e-5, teachers=1001, no_quorums=20)
    worlds = []
    for world, outcome in enumerate((0, NO_QUORUM)):
        seats = ()
        for place in range(1001):
            seats = seated(seats, outcome if place == 0 else place % 2, raw=0, rules=rules)
        votes = sum(label == place % 2 for place, label in enumerate(seats))
        distance = ballots_to_change((1001 - votes, votes))
        missed = no_quorum_plays(quorum, [distance], queries=1, plays=100_000, seed=world)[:, 0]
        worlds.append(np.where(missed == 1, NO_QUORUM, int(2 * votes > 1001)))
    bound = epsilon_lower_bound(*worlds, delta=1e-5, confidence=1 - 1e-9)
    assert (bound.epsilon > 4.0) == caught


# --- Plays -----------------------------------------------------------------------------------------------------------


def test_many_plays_never_pass_the_claim():
    """A million of them in `quorate audit`; here fewer. A false alarm has probability 1e-9 for each of three claims."""
    for refresh in ("queries", "pool"):
        terms = votes_terms(
            teachers=5000,
            arrivals=5000,
            no_quorums=20,
            training=Guarantee(4.0, 1e-5),
            queries=Guarantee(4.0, 1e-5),
            refresh=refresh,
        )
        found = audit_terms(terms, plays=100_000)
        assert len(found) == 3
        assert all(attempt.lower_bound <= attempt.claim[0] for attempt in found)
        assert found[1].lower_bound > 0.5 * terms.cutoff.epsilon  # and the cutoff's own share is nearly met
        assert found[2].lower_bound > 0.1


def test_plays_catch_a_claim_that_is_too_small():
    """The cutoff is drawn at twice the epsilon that is claimed for it."""
    cutoff = NoisyCutoff(epsilon=1.0, allowed=5, spread=20)
    worlds = [closing_plays(cutoff, ties=5, hidden=h, clear_queries=50, plays=200_000, seed=h) for h in (0, 1)]
    bound = epsilon_lower_bound(*worlds, delta=1e-6, confidence=1 - 1e-9)
    assert 0.5 < bound.epsilon <= 1.0


def test_closing_as_played_has_the_law_of_the_cutoff():
    cutoff = NoisyCutoff(epsilon=0.7, allowed=3, spread=4)
    outcomes = np.array([True] * 3 + [True] + [False] * 6)
    exact = closing_law(cutoff, outcomes)
    exact = np.concatenate([[exact[:4].sum()], exact[4:]])
    drawn = np.array([cutoff.open().admit(outcomes) for _ in range(10_000)])
    real = np.where(drawn < 4, -1, drawn - 4)
    played = closing_plays(cutoff, ties=3, hidden=1, clear_queries=6, plays=200_000, seed=5)
    for value, chance in zip(range(-1, 7), exact, strict=True):
        assert _tail(int((real == value).sum()), real.size, chance) > 1e-10
        assert _tail(int((played == value).sum()), played.size, chance) > 1e-10


def _tail(seen: int, many: int, chance: float) -> float:
    """The probability of a count at least as far out, on its own side, as this one."""
    return float(min(binom.cdf(seen, many, chance), binom.sf(seen - 1, many, chance)))


def test_no_quorums_as_played_have_the_law_of_a_run():
    quorum = Quorum.calibrate(epsilon=4.0, delta=1e-4, teachers=400, no_quorums=60)
    distance = quorum.margin + 6
    votes = [[200 - distance - 1, 200 + distance + 1]] * 50
    real = np.array([(quorum.open().answers(votes).labels == NO_QUORUM).sum() for _ in range(2000)])
    played = no_quorum_plays(quorum, [distance], queries=50, plays=50_000, seed=3)[:, 0]
    spread = max(real.std(), 0.5)
    assert abs(real.mean() - played.mean()) < 7 * spread / np.sqrt(2000)


def test_a_fitted_classifier_is_audited():
    X = np.random.default_rng(0).normal(size=(20_000, 1))
    made = EverlastingClassifier(
        Thresholds(both_directions=False), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60, classes=[0, 1]
    )
    made.fit(X, (X[:, 0] > 0).astype(int))
    verdict = audit(made, plays=20_000)
    assert not verdict.violated
    assert verdict.target == "EverlastingClassifier"
    assert audit(made, plays=20_000, attacks=["replace a record"]).attempts[0].claim == (8.0, 1e-5)
    with pytest.raises(InvalidInput, match="at least 1000"):
        audit(made, plays=10)
