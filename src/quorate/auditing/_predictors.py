"""The games of fitted teachers that vote, and of everlasting prediction: real code on two neighbouring data sets.

What is released depends on the data through a few integers, so both worlds of a classifier are fitted once, on one
entropy tape, and the mechanism is then played on these many times.

Of everlasting prediction a noisy cutoff is played, and the mechanisms that a classifier really uses. The adversary
arranges how teachers vote: he chose the training set and all queries but one, and knows their labels. So he can put a
query at any distance, where one ballot, that of the challenged unit, moves it by one.

    a record    many queries at one distance in phase 1, and as many that the challenged ballot moves by one: how many
                more of the first find no quorum (they share the threshold noise, which so drops out)
    a query     ties until the cutoff is near; the challenge, a tie or a clear point, whose answer is not shown; then
                clear points, until the phase closes; then, in phase 2, the same as with a record: its seat is a ballot

How many of equal queries find no quorum is binomial, given the threshold noise; when a phase closes is geometric, given
the limit: these laws are drawn at once, from the tables of the mechanisms, instead of one arrival after the other.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from quorate.auditing._bounds import Bound, epsilon_lower_bound
from quorate.auditing._enumeration import Outcomes, Query
from quorate.auditing._laws import Votes, release_of
from quorate.auditing._plays import PlayNoise, SeededNoise, play
from quorate.auditing._verdict import CONFIDENCE, Attempt, Effort, Verdict, game
from quorate.auditing._votes import attacks_on, best_attack
from quorate.auditing.replay import entropy_tape, fitted_ensemble
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.cutoff import CutoffRun, NoisyCutoff
from quorate.models.everlasting import EverlastingClassifier, Guarantee, Terms
from quorate.models.predictors import PrivateClassifier

_MOST_VOTES = 64  # votes of an attack that are made of records; each takes a fit


@game(PrivateClassifier)
def audit_classifier(target: PrivateClassifier, effort: Effort) -> Verdict:
    """Fit a copy of the classifier on records that vote as an attacker wants, play what it releases, and judge it.

    Each teacher gets one record, whose label it then votes for, whatever it is asked; in the second world one record
    has another label. The claim is that of the classifier, for all answers together.
    """
    teachers = target.teachers_ if hasattr(target, "teachers_") else target.teachers
    if teachers == "auto":
        raise InvalidInput("an audit of a classifier takes a number of teachers, or a fitted classifier")
    classifier = clone(target).set_params(teachers=int(teachers), classes=[0, 1], holdout=0.0)
    mechanism = _fit_votes(classifier, (teachers, 0), effort.seed).mechanism_
    release = release_of(mechanism, classes=2)
    queries, claim = min(int(target.queries), 4), (float(target.epsilon), float(target.delta))
    candidates = list(attacks_on(release, queries=queries, epsilon=claim[0]))
    attack, exact = best_attack(release, candidates, delta=claim[1], confidence=effort.confidence, plays=effort.plays)
    if any(_count_ballots(classifier, votes, effort.seed) != votes for votes in _votes(attack.query)):
        raise InvalidInput("the teachers did not vote as their records say; the attack does not fit this estimator")
    noise = PlayNoise(effort.seed)
    first, second = (
        play(mechanism, attack.query, plays=effort.plays, neighbour=other, noise=noise) for other in (False, True)
    )
    return effort.judge_plays(
        f"PrivateClassifier ({type(mechanism).__name__})",
        [claim],
        first,
        second,
        attack=f"{attack.name}: records that make votes of {attack.query.votes} or of {attack.query.neighbour}",
        not_tested=f"more than {queries} queries in a game, data on which teachers differ in what they learnt, more "
        "than two classes, a person of several rows, and the estimate on held-out units",
        exact=exact,
    )


def _votes(query: Query) -> set[Votes]:
    """Return the votes that a tree may need, or the first of them where they are many."""
    votes, stack, seen = set[Votes](), [query], set[int]()
    while stack and len(votes) < _MOST_VOTES:
        node = stack.pop()
        if id(node) not in seen:  # a query that is reached on several ways is looked at once
            seen.add(id(node))
            votes |= {node.votes, node.neighbour}
            stack += node.then.values()
    return votes


def _fit_votes(classifier: PrivateClassifier, votes: Votes, seed: int) -> Any:
    labels = np.repeat([0, 1], votes)
    with entropy_tape(seed):
        return clone(classifier).fit(np.zeros((labels.size, 1)), labels)


def _count_ballots(classifier: PrivateClassifier, votes: Votes, seed: int) -> Votes:
    """Return the ballots that the real teachers cast, which only an audit may unseal."""
    ensemble = fitted_ensemble(_fit_votes(classifier, votes, seed))
    counts: Votes = ensemble.count(np.zeros((1, 1))).put_to(lambda counts: tuple(counts[0].tolist()))
    return counts


_MOST_RUNS = 200_000  # each play opens a real run of its own
_WORDS = 2.0**64
_RATES = (0.9, 0.7, 0.5, 0.3, 0.1, 0.03)  # at which queries of an attack find no quorum
_BINS = 40
_CLEAR_QUERIES = 400  # after the challenge


def closing_law(cutoff: NoisyCutoff, no_quorum: Sequence[bool]) -> np.ndarray:
    """Return the law of how many of these arrivals are let in, from the definition of the cutoff."""
    ratio = cutoff.ratio / 2**64
    steps = np.arange(cutoff.spread + 1)
    limits = cutoff.allowed + steps
    law = ratio**steps * np.where(steps < cutoff.spread, 1 - ratio, 1.0)  # the last step takes all that is left
    outcomes = np.asarray(no_quorum, dtype=np.int64)
    met = np.cumsum(outcomes) - outcomes
    missing = np.maximum(limits[:, np.newaxis] - met, 0)
    closes = ratio**missing  # fresh noise reaches what is missing
    stays = np.cumprod(1 - closes, axis=1)
    reached = np.concatenate([np.ones((limits.size, 1)), stays], axis=1)
    return np.asarray(law @ (reached * np.concatenate([closes, np.ones((limits.size, 1))], axis=1)))


@game(NoisyCutoff)
def audit_cutoff(target: NoisyCutoff, effort: Effort) -> Verdict:
    """Change one arrival's outcome, look when the phase closes, and return the verdict."""
    effort, noise = effort.limit_plays(_MOST_RUNS), PlayNoise(effort.seed)
    longest = min(3 * target.most, 60)
    pairs = []
    for met in {0, target.allowed // 2, max(0, target.allowed - 1), target.allowed}:
        rest = [True] * min(met, longest - 2)
        for tail in ([False] * 4, [False] * (longest - 1 - len(rest)), [True] * (longest - 1 - len(rest))):
            arrivals = [*rest, True, *tail]
            for changed in {0, sum(arrivals) - 1}:
                if arrivals[changed]:
                    pairs.append((arrivals, [*arrivals[:changed], False, *arrivals[changed + 1 :]]))
    worlds = effort.find_best_pair(pairs, lambda arrivals: closing_law(target, arrivals), delta=target.delta)
    first, second = (_closings(target, arrivals, effort.plays, noise) for arrivals in worlds)
    return effort.judge_plays(
        "NoisyCutoff",
        [(target.epsilon, target.delta)],
        first,
        second,
        attack=f"one no-quorum of {sum(worlds[0])} among {len(worlds[0])} arrivals taken away",
        not_tested="arrivals chosen by what was seen before, and more than 60 of them",
        exact=Outcomes.from_laws(*(closing_law(target, arrivals) for arrivals in worlds)),
    )


def _closings(cutoff: NoisyCutoff, outcomes: Sequence[bool], plays: int, noise: PlayNoise) -> np.ndarray:
    arrivals = np.array(outcomes)
    return np.array([CutoffRun(cutoff, noise=noise).admit(arrivals) for _ in range(plays)], dtype=np.int64)


def no_quorum_plays(quorum: Quorum, distances: Sequence[int], *, queries: int, plays: int, seed: int) -> Integers:
    """Return how many of equal queries find no quorum, for each of the distances: one row a play."""
    noise = SeededNoise(seed)
    threshold = noise.gaussian(quorum.threshold_scale, plays)
    table = np.array([float(level) for level in quorum.table]) / _WORDS
    met = [
        noise.generator.binomial(queries, table[quorum.table_levels(distance + threshold, 0)]) for distance in distances
    ]
    within: Integers = np.stack(met, axis=1)
    within[within.sum(axis=1) > quorum.no_quorums] = 0  # the run ended before: he learns nothing
    return within


def closing_plays(
    cutoff: NoisyCutoff, *, ties: int, hidden: int, clear_queries: int, plays: int, seed: int
) -> Integers:
    """Return how many clear queries are answered after these ties and a challenge that counts `hidden`.

    It is -1 where the phase closes earlier, and `clear_queries` where it does not close.
    """
    random = SeededNoise(seed).generator
    ratio = cutoff.ratio / _WORDS
    limit = cutoff.allowed + np.minimum(random.geometric(1 - ratio, plays) - 1, cutoff.spread)
    tails = np.array([float(tail) for tail in cutoff.tails[: cutoff.most + 2]]) / _WORDS
    with np.errstate(divide="ignore"):
        stays = np.log1p(-tails)
    sums = np.concatenate([[0.0], np.cumsum(stays[1:])])  # at j: all of 1 to j stay open
    missing = limit - ties
    opened = np.where(missing > 0, sums[np.minimum(limit, len(sums) - 1)] - sums[np.clip(missing, 0, None)], -np.inf)
    opened += np.where(missing > 0, stays[np.clip(missing, 0, len(stays) - 1)], 0.0)  # and at the challenge
    alive = np.log(random.random(plays)) < opened
    remaining = np.clip(missing - hidden, 0, len(tails) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        waits = np.floor(np.log(random.random(plays)) / stays[remaining])
    answered = np.where(
        tails[remaining] >= 1, 0, np.minimum(np.nan_to_num(waits, nan=0.0, posinf=clear_queries), clear_queries)
    )
    return np.where(alive, answered, -1).astype(np.int64)


def _binned(values: Sequence[Integers]) -> list[Integers]:
    """Return values cut into steps that the first tenth of the first world decides, and leave those plays out."""
    few = max(10, len(values[0]) // 10)
    steps = np.unique(np.quantile(values[0][:few], np.linspace(0, 1, _BINS)))
    return [np.searchsorted(steps, plays[few:], side="right") for plays in values]


def _distances(quorum: Quorum) -> list[int]:
    """Return distances at which queries find no quorum at some rates, at threshold noise 0."""
    table = np.array([float(level) for level in quorum.table]) / _WORDS
    return [quorum.margin + 2 * int(np.argmax(table <= rate)) for rate in _RATES if (table <= rate).any()]


def _voting(quorum: Quorum, *, room: int, plays: int, seed: int) -> tuple[list[Integers], int]:
    """Return no-quorums in the two worlds, at the distance that told them apart best in a trial of its own."""
    best, chosen = -1.0, 0

    def play_worlds(distance: int, count: int, start: int) -> list[Integers]:
        missed = float(quorum.table[int(quorum.table_levels(np.array([distance]), 0)[0])]) / _WORDS
        queries = max(1, int(room / max(missed, 1e-6)) // 2)
        worlds = [(distance, distance + moved) for moved in (0, 1)]
        met = [
            no_quorum_plays(quorum, pair, queries=queries, plays=count, seed=start + k) for k, pair in enumerate(worlds)
        ]
        return [counts[:, 0] - counts[:, 1] for counts in met]

    for distance in _distances(quorum):
        trial = _binned(play_worlds(distance, max(2000, plays // 20), seed))
        epsilon = epsilon_lower_bound(*trial, delta=0.0, confidence=0.9).epsilon
        best, chosen = (epsilon, distance) if epsilon > best else (best, chosen)
    return play_worlds(chosen, plays, seed + 2), chosen


def audit_terms(
    terms: Terms, *, plays: int = 1_000_000, confidence: float = CONFIDENCE, seed: int = 0
) -> tuple[Attempt, ...]:
    """Attack the claims of the terms: for a record, for a query, and for a point of the pool if there is one.

    The three attempts share the error that `confidence` leaves.
    """
    if plays < 1000:
        raise InvalidInput(f"plays must be at least 1000, got {plays!r}")
    confidence = 1 - (1 - confidence) / 3
    cutoff = terms.cutoff
    room = max(1, cutoff.allowed - int(4 / cutoff.epsilon))
    first, distance = _voting(terms.first, room=room, plays=plays, seed=seed)
    attempts = [
        _attempt(f"replace a record; queries at distance {distance}", _binned(first), terms.training, confidence)
    ]
    near = (1 - math.log(max(1.0, 1 / cutoff.epsilon))) / cutoff.epsilon  # where closing is as likely as not
    ties = max(0, cutoff.allowed + min(-1, round(near)))
    closing = [
        closing_plays(
            cutoff, ties=ties, hidden=hidden, clear_queries=_CLEAR_QUERIES, plays=plays, seed=seed + 10 + hidden
        )
        for hidden in (0, 1)
    ]
    second, distance = _voting(terms.later, room=room, plays=plays, seed=seed + 20)
    views = zip(_binned(closing), _binned(second), strict=True)
    jointly_seen = [np.stack(parts, axis=1) for parts in views]
    alone = _attempt("replace a query; when its phase closes", _binned(closing), terms.queries, confidence)
    teaches = terms.queries if terms.pool is None else terms.pool
    unit = "query" if terms.pool is None else "point of the pool"
    jointly = f"replace a {unit}; when its phase closes, and queries at distance {distance} in the next"
    return *attempts, alone, _attempt(jointly, jointly_seen, teaches, confidence)


def _attempt(attack: str, worlds: Sequence[Any], claim: Guarantee, confidence: float) -> Attempt:
    bound: Bound = epsilon_lower_bound(*worlds, delta=claim.delta, confidence=confidence)
    return Attempt(attack, bound.epsilon, bound.event, claim=(claim.epsilon, claim.delta))


@game(EverlastingClassifier)
def _audit_everlasting(target: EverlastingClassifier, effort: Effort) -> Verdict:
    attempts = audit_terms(target.terms_, plays=effort.plays, confidence=effort.confidence, seed=effort.seed)
    wanted = [attempt for attempt in attempts if effort.wants(attempt.attack)]
    if not wanted:
        raise InvalidInput(f"attacks must begin like one of: {'; '.join(attempt.attack for attempt in attempts)}")
    not_tested = "how teachers are taught (the deal and the seats are replayed in the tests), time, and memory"
    return effort.judge("EverlastingClassifier", wanted, not_tested=not_tested)
