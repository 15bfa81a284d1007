"""Everlasting prediction: phases, seats, guarantees, and the game in which planted bugs are caught."""

import itertools
import math
import pickle
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from everlasting_game import ONE, Votes, excess, law_of
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from quorate import Infeasible, InvalidInput
from quorate.compute.ensemble import dealing
from quorate.compute.learners import Deal
from quorate.core.hypotheses.concept import usable_rows
from quorate.core.mechanisms import NO_QUORUM, Quorum
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.cutoff import CutoffRun, NoisyCutoff
from quorate.core.mechanisms.quorum import build_table, table_price
from quorate.core.privacy import Cost
from quorate.core.requests import REFUSED
from quorate.models.concepts import Intervals, Stumps, Thresholds
from quorate.models.everlasting import EverlastingClassifier, Guarantee
from quorate.models.everlasting._arrivals import Phase, Seats, deal_seats
from quorate.models.everlasting._teaching import CutTeachers, fit_cuts, teach
from quorate.models.everlasting._terms import boost_terms, votes_terms

# Ample room: at epsilon 8 and 4000 teachers a query at distance 1 from the boundary is answered, but for one in 10**12.
TARGET = {"epsilon": 8.0, "delta": 1e-5, "chunk": 5, "no_quorums": 300, "classes": [0, 1]}
ROWS = 20_000


def records(rows=ROWS, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, 1))
    return X, (X[:, 0] >= 0).astype(int)


def clear(rows, seed):
    """Queries far from the boundary, and their labels."""
    X, y = records(rows, seed)
    return X + np.where(y == 1, 0.3, -0.3)[:, np.newaxis], y


def fitted(estimator=None, **changes):
    estimator = Thresholds(both_directions=False) if estimator is None else estimator
    return EverlastingClassifier(estimator, **(TARGET | changes)).fit(*records())


# --- Behaviour -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator", [Thresholds(both_directions=False), Thresholds(both_directions=True), Stumps(1), LogisticRegression()]
)
def test_three_phases_answer_rightly_and_phases_are_counted_by_arrivals(estimator):
    classifier = fitted(estimator, chunk=10)
    for phase in (1, 2, 3):
        X, y = clear(ROWS, phase)
        for part in np.array_split(np.arange(ROWS), 7):
            made = classifier.predict(X[part])
            assert classifier.phase_ == phase
            assert made.answered.mean() > 0.99  # expected: all but one in a million
            assert (made.labels == y[part])[made.answered].mean() > 0.999
    assert classifier.seats_taken_ == ROWS
    classifier.predict([[1.0]])
    assert (classifier.phase_, classifier.seats_taken_) == (4, 1)


def test_a_batch_goes_through_phases():
    classifier = fitted(phase_size=6000)
    X, y = clear(15_000, 1)
    made = classifier.predict(X)
    assert (classifier.phase_, classifier.seats_taken_) == (3, 3000)
    assert (made.labels == y).mean() > 0.99


def test_growth_makes_later_phases_longer():
    classifier = fitted(growth=1.5, max_phase_size=50_000)
    X, _ = clear(30_000, 1)
    classifier.predict(X)
    assert classifier.phase_ == 1
    classifier.predict(X)
    assert (classifier.phase_, classifier.seats_taken_) == (2, 30_000)
    classifier.predict(X[:15_001])
    assert (classifier.phase_, classifier.seats_taken_) == (3, 1)
    assert classifier.session_.answerer.seats.free == 49_999


def test_any_estimator_and_persons():
    settings = {"epsilon": 60.0, "delta": 1e-2, "chunk": 20, "no_quorums": 2, "phase_size": 900}
    classifier = EverlastingClassifier(KNeighborsClassifier(n_neighbors=3), classes=["no", "yes"], **settings)
    X, y = records(6000)
    labels, people = np.where(y == 1, "yes", "no"), np.arange(6000) // 2
    classifier.fit(X, labels, groups=people)
    assert classifier.teachers_ == 150
    assert "all rows of one person" in classifier.claim_
    queries, right = clear(901, 1)
    made = classifier.predict(queries)
    assert classifier.phase_ == 2
    assert (made.labels == np.where(right == 1, "yes", "no")).mean() > 0.9


def test_a_pool_teaches_and_queries_do_not():
    classifier = fitted(refresh="pool", phase_size=5000)
    X, y = clear(12_000, 1)
    assert (classifier.predict(X).labels == y).mean() > 0.99
    assert (classifier.phase_, classifier.seats_taken_) == (1, 0)
    classifier.feed(X[:7000])
    assert (classifier.phase_, classifier.seats_taken_) == (2, 2000)
    assert (classifier.predict(X).labels == y).mean() > 0.99
    assert classifier.terms_.pool == Guarantee(8.0, 1e-5)
    assert classifier.terms_.queries.epsilon == classifier.terms_.cutoff.epsilon


@pytest.mark.parametrize("refresh", ["queries", "pool"])
def test_labelboost_answers_through_phases(refresh):
    classifier = fitted(relabel="labelboost", refresh=refresh, no_quorums=20, labelled=0.2)
    size = classifier.progress_["seats"]
    X, y = clear(size, 1)
    for phase in (1, 2, 3):
        made = classifier.predict(X[:2000])
        assert (made.labels == y[:2000]).mean() > 0.95
        (classifier.predict if refresh == "queries" else classifier.feed)(X[2000 * (refresh == "queries") :])
        assert (classifier.phase_, classifier.seats_taken_) == (phase, size)


def test_a_closed_phase_refuses_until_its_seats_are_taken():
    classifier = fitted(phase_size=10_000, no_quorums=50)
    made = classifier.predict(np.linspace(-0.1, 0.1, 5000)[:, np.newaxis])  # the boundary is within 0.02 of 0
    assert 0 < made.no_quorum.sum() <= classifier.terms_.cutoff.most
    assert made.refused > 100
    X, _ = clear(5000, 1)
    assert classifier.predict(X).refused == 5000
    assert classifier.phase_ == 1
    made = classifier.predict(X)  # 5000 empty or wrong seats, 5000 refused: the new teachers know little
    assert (classifier.phase_, made.refused < 5000) == (2, True)


def test_streaming_and_score():
    classifier = fitted()
    assert list(classifier.stream([[3.0], [-3.0]])) == [1, 0]
    assert classifier.score([[3.0], [-3.0]], [1, 0]) == 1.0
    assert classifier.seats_taken_ == 4


def test_answers_tell_nothing_that_moves_with_the_count():
    classifier = fitted()
    made = [classifier.predict(np.full((100, 1), x)) for x in (0.0, 3.0)]
    assert [one.spent for one in made] == [Cost(0.0), Cost(0.0)]
    assert set(vars(classifier)) - set(clone(classifier).__dict__) == {
        *("n_features_in_", "classes_", "unit_", "declared_", "teachers_", "terms_"),
        *("form_", "types_are_public_", "settings_", "estimator_", "account_", "session_"),
    }
    assert "no_quorum" not in repr(classifier.session_.answerer.phase)
    assert repr(classifier.session_.answerer.seats) == "<sealed seats>"


def test_copies_are_refused():
    classifier = fitted()
    with pytest.raises(TypeError, match="private points"):
        pickle.dumps(classifier.session_.answerer.seats)
    with pytest.raises(TypeError, match="secret limit"):
        pickle.dumps(classifier.session_.answerer.phase._cutoff)


BAD = [
    ({"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
    ({"query_epsilon": -1.0}, "query_epsilon must be a positive finite number"),
    ({"delta": 0.0}, "delta must be above 0 and below 1"),
    ({"query_delta": 1.0}, "delta must be above 0 and below 1"),
    ({"cutoff_epsilon": 9.0}, "cutoff_epsilon must be below the 8 of a query"),
    ({"chunk": 0}, "chunk must be a whole number of at least 1"),
    ({"chunk": 10**6}, "20000 units are too few for a teacher of chunk=1000000"),
    ({"no_quorums": 0.5}, "no_quorums must be a whole number"),
    ({"phase_size": 10}, "phase_size=10 is too small for 4000 teachers"),
    ({"growth": 0.5}, "growth must be at least 1"),
    ({"max_phase_size": 0}, "max_phase_size must be a whole number"),
    ({"relabel": "ballots"}, "relabel must be one of votes, labelboost"),
    ({"refresh": "never"}, "refresh must be one of queries, pool"),
    ({"estimator": LinearRegression()}, "estimator must be a classifier or a class of quorate.models.concepts"),
    ({"estimator": "thresholds"}, "estimator must be a classifier"),
    ({"estimator": Stumps(2)}, "the concept reads 2 features and X has 1"),
    ({"classes": [0, 1, 2]}, "tells two classes apart, not 3"),
    ({"relabel": "labelboost", "estimator": LogisticRegression()}, "estimator must be of quorate.models.concepts"),
    ({"relabel": "labelboost", "growth": 2.0}, "rows as units, growth=1"),
    ({"relabel": "labelboost", "labelled": 0.0}, "labelled must be above 0"),
    ({"relabel": "labelboost", "cutoff_epsilon": 7.9}, "leaves nothing for the votes"),
    ({"relabel": "labelboost", "chunk": 10**6}, "20000 rows are too few for a teacher of chunk=1000000"),
    ({"chunk": 5000}, "even a unanimous ballot would mostly find no quorum"),
]


@pytest.mark.parametrize(("changes", "text"), BAD)
def test_bad_settings_are_refused(changes, text):
    with pytest.raises((InvalidInput, Infeasible), match=text):
        EverlastingClassifier(**({"estimator": Thresholds(both_directions=False)} | TARGET | changes)).fit(*records())


def test_bad_queries_are_refused_and_take_no_seat():
    classifier = fitted()
    with pytest.raises(ValueError, match="NaN"):
        classifier.predict([[np.nan]])
    assert classifier.seats_taken_ == 0
    with pytest.raises(InvalidInput, match="only queries teach"):
        classifier.feed([[1.0]])


# --- Teachers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concept", [Thresholds(both_directions=False), Thresholds(both_directions=True), Stumps(3)])
def test_cuts_make_as_few_mistakes_as_the_class_can(concept):
    random = np.random.default_rng(1)
    for _ in range(30):
        X = random.integers(0, 6, size=(60, concept.features)).astype(float)
        y = random.integers(-1, 2, size=60)
        X[random.random(X.shape) < 0.03] = np.nan
        deal = Deal.by_assignment(random.integers(-1, 9, size=60), teachers=9)
        teachers = fit_cuts(concept, X, y, deal)
        for teacher, rows in enumerate(np.split(deal.rows, np.cumsum(deal.sizes)[:-1])):
            points, labels = usable_rows(X[rows], y[rows], features=concept.features)
            if labels.size:
                best = np.count_nonzero(concept.fit_erm(points, labels).predict(points) != labels)
                assert np.count_nonzero(teachers.ballots(points)[:, teacher] != labels) == best
        queries = np.nan_to_num(X)
        assert (teachers.votes(queries)[:, 1] == teachers.ballots(queries).sum(axis=1)).all()
        again = CutTeachers.from_arrays(teachers.arrays())
        assert (again.votes(queries) == teachers.votes(queries)).all()


def test_a_teacher_without_rows_votes_and_other_concepts_have_teachers():
    X, y = np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 0])
    for estimator in (Thresholds(both_directions=False), Intervals(), LogisticRegression(), KNeighborsClassifier(1)):
        ensemble = teach(estimator, X, y, Deal.of([[0, 1, 2], [], []]), classes=2, first=False)
        assert ensemble.count(X).put_to(lambda votes: votes.sum(axis=1).tolist()) == [3, 3, 3]
    for estimator in (
        Thresholds(both_directions=False),
        LogisticRegression(),
    ):  # nobody knows anything: no majority, rather than a wrong one
        ensemble = teach(estimator, X, y, Deal.of([[]] * 10), classes=2, first=False)
        assert ensemble.count(X).put_to(lambda votes: votes.tolist()) == [[5, 5]] * 3


# --- Accounting ------------------------------------------------------------------------------------------------------


def test_what_each_unit_pays_adds_up():
    terms = votes_terms(
        teachers=4000,
        arrivals=20_000,
        no_quorums=100,
        training=Guarantee(2.0, 1e-5),
        queries=Guarantee(1.5, 1e-6),
        refresh="queries",
    )
    cutoff = terms.cutoff
    assert terms.first.no_quorums == terms.later.no_quorums == cutoff.most == cutoff.allowed + cutoff.spread
    assert terms.first.epsilon(delta=1e-5) <= 2.0
    assert cutoff.epsilon + terms.later.epsilon(delta=1e-6 - cutoff.delta) <= 1.5
    assert cutoff.delta <= 1e-7
    for phase in (1, 2, 9):
        budget, quorum = terms.budget(phase), terms.quorum(phase)
        budget.spend(quorum.opening_cost(quorum.order))
        assert budget.affordable(quorum.no_quorum_cost(quorum.order)) >= cutoff.most


def test_labelboost_pays_what_the_formula_says():
    training, queries = Guarantee(4.0, 1e-5), Guarantee(3.0, 1e-6)
    for refresh in ("queries", "pool"):
        terms, teachers, arrivals = boost_terms(
            rows=50_000, chunk=5, no_quorum_rate=0.002, training=training, queries=queries, refresh=refresh
        )
        kappa, first, labelled, points = terms.boost
        assert (first, points) == (5 * teachers / 50_000, 5 * teachers / arrivals)
        voting, delta = terms.voting
        assert terms.first.epsilon(delta=delta) <= voting
        pre = voting + math.log(1 + labelled * ((1 + math.exp(kappa / 2)) ** 2 - 1))
        point = math.log(1 + points * (4 * math.exp(pre) - 1))
        paid = terms.queries.epsilon if refresh == "queries" else terms.pool.epsilon
        extra = terms.cutoff.epsilon if refresh == "queries" else 0.0
        assert terms.training.epsilon == pytest.approx(math.log(1 + first * (math.exp(pre) - 1)))
        assert paid == pytest.approx(extra + point)
        assert terms.training.epsilon <= 4.0
        assert terms.training.delta <= 1e-5
        assert paid <= 3.0
        assert (terms.queries if refresh == "queries" else terms.pool).delta <= 1e-6


# --- The cutoff, exactly ---------------------------------------------------------------------------------------------


def views(cutoff, outcomes, hidden, *, limit_law, tail):
    """Return the exact law of where the phase closes, given outcomes of which one is hidden."""
    law = dict.fromkeys(range(len(outcomes) + 1), Fraction(0))
    for limit, weight in limit_law.items():
        met, open_still = 0, weight
        for place, outcome in enumerate(outcomes):
            closes = tail(limit - met)
            law[place] += open_still * closes
            open_still *= 1 - closes
            met += outcome
        law[len(outcomes)] += open_still
    return law


def laws(cutoff):
    """Return the law of the limit and the tail of the fresh noise, as coded."""
    ratio = Fraction(cutoff.ratio, ONE)
    limits = {cutoff.allowed + j: (1 - ratio) * ratio**j for j in range(cutoff.spread)}
    limits[cutoff.allowed + cutoff.spread] = ratio**cutoff.spread

    def tail(missing):
        tails = cutoff.tails
        return Fraction(tails[min(max(missing, 0), len(tails) - 1)], ONE)

    return limits, tail


def worst(cutoff, arrivals, limits, tail):
    """Return the smallest delta at the cutoff's epsilon, over all outcomes of the others and all places."""
    found, factor = Fraction(0), Fraction(math.exp(cutoff.epsilon) * (1 + 2**-50))
    for others in itertools.product((0, 1), repeat=arrivals - 1):
        for hidden in range(arrivals):
            worlds = [
                views(cutoff, [*others[:hidden], own, *others[hidden:]], hidden, limit_law=limits, tail=tail)
                for own in (0, 1)
            ]
            for one, other in (worlds, worlds[::-1]):
                found = max(found, sum(max(Fraction(0), one[place] - factor * other[place]) for place in one))
    return float(found)


@pytest.mark.parametrize(("epsilon", "allowed", "spread"), [(0.7, 1, 2), (0.3, 2, 3), (1.5, 1, 1), (0.1, 3, 2)])
def test_the_cutoff_keeps_its_claim_and_its_planted_bugs_do_not(epsilon, allowed, spread):
    cutoff = NoisyCutoff(epsilon=epsilon, allowed=allowed, spread=spread)
    limits, tail = laws(cutoff)
    assert sum(limits.values()) == 1
    assert 0 < worst(cutoff, 6, limits, tail) <= cutoff.delta
    bare = {allowed: Fraction(1)}

    def at_the_limit(missing):
        return Fraction(missing <= 0)

    assert worst(cutoff, 6, bare, at_the_limit) == 1.0  # no noise
    noisy_limit = NoisyCutoff(epsilon=0.1, allowed=1, spread=30)  # delta 0.05
    long = laws(noisy_limit)[0]
    assert worst(noisy_limit, 5, long, at_the_limit) > 1.5 * noisy_limit.delta  # noise on the threshold alone


def test_the_fresh_noise_alone_is_not_enough():
    cutoff = NoisyCutoff(epsilon=0.7, allowed=1, spread=8)  # delta 0.0037
    _, tail = laws(cutoff)
    assert worst(cutoff, 7, {cutoff.allowed: Fraction(1)}, tail) > 10 * cutoff.delta


def test_a_repeat_from_a_cache_must_count_again():
    """The challenge found no quorum and is repeated. From a cache, the repeat shows it, and must count as if asked."""
    cutoff = NoisyCutoff(epsilon=0.3, allowed=2, spread=30)  # delta 0.0001
    limits, tail = laws(cutoff)
    factor = Fraction(math.exp(cutoff.epsilon) * (1 + 2**-50))
    for again, caught in ((0, True), (1, False)):
        repeated = views(cutoff, [1, *[0] * 4, again, 0, 0], 0, limit_law=limits, tail=tail)
        another = views(cutoff, [0, *[0] * 4, 1, 0, 0], 0, limit_law=limits, tail=tail)
        beyond = [
            sum(max(Fraction(0), one[place] - factor * other[place]) for place in one)
            for one, other in ((repeated, another), (another, repeated))
        ]
        assert (max(beyond) > 10 * cutoff.delta) == caught
        assert caught or max(beyond) <= cutoff.delta


def test_tails_and_ratio_in_whole_numbers():
    for epsilon in (2.0**-12, 0.01, 0.08, 1.0, 40.0):
        cutoff = NoisyCutoff(epsilon=epsilon, allowed=1, spread=5)
        assert cutoff.ratio < ONE
        assert math.log(cutoff.ratio / ONE) >= -epsilon * (1 + 1e-12)
        tails = cutoff.tails[:5000]
        assert tails[0] == ONE
        assert all(low * ONE >= high * cutoff.ratio for high, low in itertools.pairwise(tails))
        assert cutoff.tails[-1] * cutoff.ratio > (cutoff.tails[-1] - 1) * ONE  # what holds for all beyond
        assert cutoff.delta >= (cutoff.ratio / ONE) ** 5


def test_the_cutoff_as_drawn_has_its_law():
    cutoff = NoisyCutoff(epsilon=math.log(2), allowed=1, spread=2)
    outcomes = [1, 0, 1]
    drawn = law_of(lambda tree: opened(cutoff, tree).admit(outcomes))
    limits, tail = laws(cutoff)
    exact = views(cutoff, outcomes, 0, limit_law=limits, tail=tail)
    assert drawn == pytest.approx({place: float(weight) for place, weight in exact.items() if weight})


def test_a_phase_never_has_more_no_quorums_than_the_most():
    cutoff = NoisyCutoff(epsilon=2.0, allowed=2, spread=3)
    for _ in range(200):
        run = cutoff.open()
        assert 0 <= run.admit(np.ones(30, dtype=bool)) <= 5
        assert run.closed
        assert run.admit([False]) == 0


def test_an_epsilon_beyond_the_tables_of_a_cutoff_is_refused():
    with pytest.raises(InvalidInput, match="between 2"):
        NoisyCutoff(epsilon=41.0, allowed=1, spread=1)


# --- The game: the challenge among the queries -----------------------------------------------------------------------

TEACHERS = 21
TIE, CLEAR, MIDDLE = 10.0, 21.0, 16.0  # votes for class 1: distance 0, 10, and 5


def small_quorum(cls=Quorum, *, scale=0.01, margin=3, table=(ONE, 16)):
    """A Quorum that is nearly deterministic given its threshold noise: what it costs plays no part in these games."""
    return cls(
        teachers=TEACHERS,
        no_quorums=50,
        order=2.0,
        price=table_price(table, order=2.0),
        margin=margin,
        threshold_scale=scale,
        slack=0.5,
        table=table,
    )


class Redrawing(Quorum):
    """Planted: the threshold noise is redrawn after each no-quorum."""

    redraws = True


class Bare(CutoffRun):
    """Planted: a cutoff without noise."""

    def _steps(self):
        return 0

    def _admit(self, outcomes):
        before = self._met + np.cumsum(outcomes) - outcomes
        closing = np.flatnonzero(before >= self._limit)
        let_in = int(closing[0]) if closing.size else outcomes.size
        self._met += int(np.count_nonzero(outcomes[:let_in]))
        self._closed = closing.size > 0
        return let_in


class NoisyLimit(Bare):
    """Planted: a cutoff with noise on its threshold alone."""

    _steps = CutoffRun._steps


class NeverCloses:
    closed = False

    def admit(self, outcomes):
        return len(outcomes)


def opened(cutoff, tree, kind=CutoffRun):
    """A cutoff whose limit is drawn by words that matter by the ratio alone, and the rest by the tails alone."""
    gate = kind(cutoff, noise=tree.source([cutoff.ratio]))
    gate._noise = tree.source(list(cutoff.tails[: cutoff.most + 1]))
    return gate


def play(queries, challenge, *, cutoff=None, kind=CutoffRun, quorum=None):
    """Return the law of all outcomes but the challenged one; `challenge` is (place, point)."""
    quorum = small_quorum() if quorum is None else quorum
    place, point = challenge

    def once(tree):
        run = Run(quorum, budget=None, noise=tree.source(list(quorum.table)))
        gate = NeverCloses() if cutoff is None else opened(cutoff, tree, kind)
        phase = Phase(Votes(TEACHERS), run, gate)
        asked = [*queries[:place], point, *queries[place:]]
        seen = [int(phase.ask(np.array([[one]]))[0]) for one in asked]
        return tuple(seen[:place] + seen[place + 1 :])

    return law_of(once)


GAMES = [((TIE, CLEAR, CLEAR), 1), ((TIE, TIE, CLEAR), 1), ((CLEAR, TIE, TIE), 0), ((TIE, TIE, TIE), 2)]
CUTOFF = NoisyCutoff(epsilon=math.log(2), allowed=1, spread=3)  # delta 1/8


@pytest.mark.parametrize(("queries", "place"), GAMES)
def test_a_query_is_protected_by_the_cutoff_of_its_phase(queries, place):
    worlds = [play(queries, (place, point), cutoff=CUTOFF) for point in (CLEAR, TIE)]
    assert all(math.isclose(sum(world.values()), 1.0) for world in worlds)
    assert excess(*worlds, CUTOFF.epsilon) <= CUTOFF.delta + 1e-12


def test_a_cutoff_without_noise_is_caught():
    worlds = [play((CLEAR, CLEAR), (0, point), cutoff=CUTOFF, kind=Bare) for point in (CLEAR, TIE)]
    assert excess(*worlds, CUTOFF.epsilon) > 0.999


def test_a_cutoff_with_noise_on_its_threshold_alone_is_caught():
    cutoff = NoisyCutoff(epsilon=0.1, allowed=1, spread=60)  # delta 0.0025
    worlds = [play((CLEAR,), (0, point), cutoff=cutoff, kind=NoisyLimit) for point in (CLEAR, TIE)]
    assert excess(*worlds, cutoff.epsilon) > 20 * cutoff.delta


def test_a_threshold_that_is_redrawn_after_a_no_quorum_is_caught():
    settings = {"scale": 0.6, "margin": 5}
    for kind, caught in ((Quorum, False), (Redrawing, True)):
        quorum = small_quorum(kind, **settings)
        worlds = [play((MIDDLE, MIDDLE), (1, point), quorum=quorum) for point in (CLEAR, TIE)]
        assert (excess(*worlds, 1.0) > 0.1) == caught
        if not caught:  # other answers of the phase do not depend on the challenged one at all
            assert excess(*worlds, 0.0) < 1e-9


class Cached:
    """A phase behind a cache. Planted, if it outlives the phase, or if repeats are not counted by the cutoff."""

    def __init__(self, phase, kept):
        self.phase, self.kept = phase, kept

    def ask(self, point):
        if point not in self.kept:
            self.kept[point] = int(self.phase.ask(np.array([[point]]))[0])
        return self.kept[point]


@pytest.mark.parametrize(("kept_across", "caught"), [(False, False), (True, True)])
def test_a_cache_that_is_kept_across_phases_is_caught(kept_across, caught):
    """The teachers of phase 2 see point 4 otherwise; the challenge in phase 1 was point 4 or another."""

    def once(tree, challenge):
        first, kept = small_quorum(), {}
        run = Run(first, budget=None, noise=tree.source(list(first.table)))
        Cached(Phase(Votes(TEACHERS), run, NeverCloses()), kept).ask(challenge)
        run = Run(first, budget=None, noise=tree.source(list(first.table)))
        later = Cached(Phase(Votes(TEACHERS, moved=17), run, NeverCloses()), kept if kept_across else {})
        return later.ask(4.0)

    worlds = [law_of(lambda tree, point=point: once(tree, point)) for point in (4.0, 20.0)]
    assert (excess(*worlds, 1.0) > 0.999) == caught
    assert caught or excess(*worlds, 0.0) < 1e-9


# --- The game: the challenge among the records -----------------------------------------------------------------------


def test_a_training_unit_is_protected_by_the_quorum_and_the_cutoff_adds_nothing():
    table = build_table(order=3.0, price=0.8)[:3]
    quorum = Quorum(
        teachers=9,
        no_quorums=2,
        order=3.0,
        price=table_price(table, order=3.0),
        margin=3,
        threshold_scale=1.0,
        slack=0.01,
        table=table,
    )
    cutoff = NoisyCutoff(epsilon=1.0, allowed=1, spread=1)
    assert cutoff.most == quorum.no_quorums

    def world(moved, queries):
        def once(tree):
            run = Run(quorum, budget=None, noise=tree.source(list(quorum.table)))
            phase = Phase(Votes(9, moved), run, opened(cutoff, tree))
            seats = Seats(len(queries))
            for one in queries:
                point = np.array([[one]])
                seats.take(point, phase.ask(point))
            return tuple(seats.since(0)[1].tolist())  # all that the next phase is taught: a function of what was seen

        return law_of(once)

    for queries in ((4.0, 4.0), (7.0, 4.0)):
        worlds = world(0, queries), world(1, queries)
        for delta in (0.1, 0.2):
            assert excess(*worlds, quorum.epsilon(delta=delta)) <= delta


# --- Replays: one seat, one teacher ----------------------------------------------------------------------------------


@pytest.fixture
def known_deal(monkeypatch):
    """The secret permutation is the same in both worlds, as the proof couples them."""

    def permutation(count):
        return np.random.default_rng(count).permutation(count)

    monkeypatch.setattr(dealing, "_secret_permutation", permutation)


class Shifting(Seats):
    """Planted: points that were dropped give their seat to the next."""

    __slots__ = ()

    def take(self, X, labels):
        super().take(X[labels >= 0], labels[labels >= 0])


def taught(kind, released, challenge, point):
    """Return the ballots of each teacher of the next phase, given what was released and what was challenged."""
    X, labels = released
    X, labels = X.copy(), labels.copy()
    X[challenge], labels[challenge] = point
    seats = kind(len(labels))
    seats.take(X, labels)
    X, labels = seats.since(0)
    deal = deal_seats(labels, teachers=100)
    probes = np.linspace(-3, 3, 41)[:, np.newaxis]
    return fit_cuts(Thresholds(both_directions=False), X, labels, deal).ballots(probes)


@pytest.mark.parametrize(("kind", "caught"), [(Seats, False), (Shifting, True)])
def test_dropped_points_keep_their_seat(known_deal, kind, caught):
    X, labels = records(500)
    labels = labels.copy()
    labels[::7] = NO_QUORUM
    labels[490:] = REFUSED
    outcomes = [(2.0, 1), (-0.3, 0), (-0.1, NO_QUORUM), (1.0, REFUSED)]
    for challenge in (3, 250, 480):
        for one, other in itertools.combinations(outcomes, 2):
            ballots = [taught(kind, (X, labels), challenge, outcome) for outcome in (one, other)]
            changed = int((ballots[0] != ballots[1]).any(axis=0).sum())
            if not caught:
                assert changed <= 1
            elif (one[1] < 0) != (other[1] < 0) and challenge < 400:
                assert changed > 5


@pytest.mark.parametrize("caught", [False, True])
def test_labels_of_no_quorum_points_are_not_taken_from_raw_ballots(caught):
    """One moved ballot turns every narrow majority. What was released is the same; what teaches must be, too."""
    quorum, queries = small_quorum(), np.full((40, 1), 10.0)
    sets = []
    for moved in (0, 1):
        phase = Phase(Votes(TEACHERS, moved), quorum.open(), NeverCloses())
        labels = phase.ask(queries)
        assert (labels == NO_QUORUM).all()
        if caught:
            raw = Votes(TEACHERS, moved).count(queries).put_to(lambda votes: votes.argmax(axis=1))
            labels = np.where(labels == NO_QUORUM, raw, labels)
        seats = Seats(40)
        seats.take(queries, labels)
        sets.append(seats.since(0)[1])
    assert ((sets[0] != sets[1]).sum() > 1) == caught


def test_what_comes_after_the_close_is_void():
    """Outcomes that were drawn in the same block and never shown leave nothing behind."""
    cutoff = NoisyCutoff(epsilon=3.0, allowed=2, spread=2)
    for _ in range(50):
        phase = Phase(Votes(TEACHERS), small_quorum().open(), cutoff.open())
        labels = phase.ask(np.array([[TIE]] * 20 + [[CLEAR]] * 20))
        shown = np.flatnonzero(labels != REFUSED)
        assert shown.size <= cutoff.most
        assert (shown == np.arange(shown.size)).all()
        assert (phase.ask(np.array([[CLEAR]] * 3)) == REFUSED).all()


def test_the_claim_about_a_pool_is_a_whole_sentence():
    """It once read "(1, 1e-06)-so"."""
    guarantee = SimpleNamespace(epsilon=1.0, delta=1e-6)
    terms = SimpleNamespace(training=guarantee, queries=guarantee, pool=guarantee)
    text = EverlastingClassifier.claim_.fget(SimpleNamespace(unit_="row", terms_=terms, declared_=True, account_=None))
    assert "-so" not in text
    assert text.count("(1, 1e-06)-differentially private under replacement of one ") == 3
    assert text.endswith("under replacement of one point of the pool.")
