"""OnlineRelease: what is paid for and what is not, restarts, refusals, and its whole law on a tiny domain."""

import itertools
import math

import numpy as np
import pytest

from quorate import Budget, BudgetSpent, Cost, Infeasible, InvalidInput
from quorate.core._noise import SystemNoise
from quorate.core.errors import LedgerRefused
from quorate.core.mechanisms import NoisySum
from quorate.core.mechanisms.above_threshold import AboveThreshold, distance_ballots
from quorate.models.concepts import Interval, Intervals, Threshold, Thresholds
from quorate.release import OnlineRelease, Workload
from quorate.release.engines.weights import LearnedWeights
from quorate.release.queries import Marginals, Prefixes, Rows


def normal(size, seed, shift=0.0):
    return np.random.default_rng(seed).normal(size=size) + shift


CUTS = [Threshold(cut) for cut in np.linspace(-2.5, 2.5, 60)]


def test_a_good_public_start_pays_for_the_opening_and_for_nothing_else():
    private, public = normal(130_000, 1), normal(20_000, 2)
    online = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public)
    opening = online.budget_.spent()
    answers = online.ask(CUTS)
    truth = np.array([query.predict(private).mean() for query in CUTS])
    # The public start errs by 0.007 at most: a crossing of one of the sixty has a chance of 6e-9.
    assert online.paid_ == 0
    assert not any(answer.paid for answer in answers)
    assert online.budget_.spent() == opening
    assert np.abs([answer.answer for answer in answers] - truth).max() < 0.05
    assert online.opening_epsilon_ <= 0.013  # at alpha 0.05 and 130,000 records


def test_a_bad_public_start_is_corrected_and_then_stands():
    private, public = normal(60_000, 1), normal(500, 2, shift=1.5)
    online = OnlineRelease(Thresholds(), epsilon=2.0, delta=1e-6, alpha=0.1).fit(private, public)
    before = online.budget_.spent().renyi
    first = online.ask([Threshold(0.5)])[0]
    assert first.paid  # it is off by 0.5
    truth = (private >= 0.5).mean()
    assert abs(first.answer - truth) < 10 * first.error + 0.05
    assert online.budget_.spent().renyi > before
    again = online.ask([Threshold(0.5)])[0]
    assert not again.paid
    assert again.answer == first.answer
    online.ask(CUTS)
    paid = online.paid_
    assert 1 <= paid <= 30
    spent = online.budget_.spent()
    answers = online.ask(CUTS)
    shares = np.array([query.predict(private).mean() for query in CUTS])
    assert np.abs([answer.answer for answer in answers] - shares).max() < 0.2
    assert online.budget_.spent().renyi - spent.renyi <= 5 * before + 1  # nearly all stand by now
    assert np.allclose(online.answer(CUTS), [answer.answer for answer in answers], atol=0.2)


def test_differences_of_queries_and_nothing_at_all_can_be_asked():
    private, public = normal(30_000, 1), normal(300, 2)
    online = OnlineRelease(Thresholds(both_directions=True), alpha=0.2).fit(private, public)
    down, up, none = online.ask([Threshold(0.0, upward=False), Threshold(0.0), Threshold(math.inf)])
    assert abs(down.answer + up.answer - 1) < 0.02
    assert none.answer == 0.0
    assert none.error == 0.0
    ranges = OnlineRelease(Intervals(), alpha=0.2).fit(private, public)
    assert 0.5 < ranges.ask([Interval(-1.0, 1.0)])[0].answer < 0.85


def test_workloads_are_asked_by_name():
    chance = np.random.default_rng(0)
    private = {"sex": chance.choice(["f", "m"], 20_000).tolist(), "age": chance.normal(40, 10, 20_000).tolist()}
    public = {"sex": ["f", "m", "f"] * 50, "age": chance.normal(40, 10, 150).tolist()}
    for workload, query in (
        (Workload.marginals(1), {"sex": "f"}),
        (Workload.thresholds("age", by="sex"), {"age": 40, "sex": "m"}),
        (Workload.expressions(["age < 40"]), "age < 40"),
    ):
        online = OnlineRelease(workload, epsilon=2.0, alpha=0.2).fit(private, public)
        [answer] = online.ask([query])
        assert 0.1 < answer.answer < 0.8


def test_it_ends_with_its_budget_and_says_so_before_it_draws():
    private, public = normal(20_000, 1), normal(50, 2, shift=50.0)  # public data that say nothing
    online = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.2).fit(private, public)
    while online.budget_.affordable(online.session_.answerer.mechanism.no_quorum_cost(online.budget_.order)):
        online.budget_.spend(online.budget_.remaining())
        break
    with pytest.raises(BudgetSpent, match="cannot pay for another answer"):
        online.ask([Threshold(0.0)])
    assert online.answer([Threshold(0.0)]).size == 1  # the model still answers
    free, refused = online.ask([Threshold(math.inf), Threshold(0.0)])  # a batch is answered in part
    assert free.answer == 0.0
    assert refused.refused
    assert math.isnan(refused.answer)
    online.close()
    with pytest.raises(BudgetSpent, match="has ended"):
        online.ask([Threshold(0.0)])


def test_a_ledger_carries_it_over_a_restart(tmp_path):
    private, public = normal(60_000, 1), normal(500, 2, shift=1.5)
    settings = {"epsilon": 2.0, "delta": 1e-6, "alpha": 0.1, "ledger": tmp_path / "ledger"}
    online = OnlineRelease(Thresholds(), **settings).fit(private, public)
    answers = online.ask(CUTS[10:40])
    noise, weights, paid = online.session_.answerer.run.threshold_noise, online.model_.weights.copy(), online.paid_
    online.close()
    spent = online.budget_.spent().renyi
    assert paid > 0
    again = OnlineRelease(Thresholds(), **settings).fit(private, public)
    assert again.session_.answerer.run.threshold_noise == noise
    assert np.array_equal(again.model_.weights, weights)
    assert again.paid_ == paid
    assert again.budget_.spent().renyi == spent  # the run is not paid for twice
    known = {answer.query: answer.answer for answer in answers if answer.paid}
    repeated = [answer for answer in again.ask(CUTS[10:40]) if answer.query in known]
    assert all(answer.answer == known[answer.query] for answer in repeated)
    # What looks like a crash: the first is not closed, and another goes on from the same ledger.
    third = OnlineRelease(Thresholds(), **settings).fit(private, public)
    assert third.budget_.spent().renyi >= spent
    assert third.session_.answerer.run.threshold_noise == noise
    third.close()
    again.close()
    with pytest.raises(LedgerRefused, match="belongs to another"):
        OnlineRelease(Thresholds(), **{**settings, "alpha": 0.2}).fit(private, public)
    with pytest.raises(LedgerRefused, match="belongs to another"):  # as many people as there were records
        OnlineRelease(Thresholds(), **settings).fit(private, public, groups=np.arange(len(private)))
    moved = normal(500, 3, shift=50.0)  # as many public points, elsewhere: what was measured was about other cuts
    with pytest.raises(LedgerRefused, match="belongs to another"):
        OnlineRelease(Thresholds(), **settings).fit(private, moved)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    for wrong, text in ((tmp_path / "full", "must be empty"), (tmp_path / "no" / "where", "cannot be")):
        with pytest.raises(InvalidInput, match=text):
            OnlineRelease(Thresholds(), **{**settings, "ledger": wrong}).fit(private, public)


@pytest.mark.parametrize("looks", [0, 1])
def test_two_processes_over_one_ledger_forget_no_measurement(looks, tmp_path, monkeypatch):
    """Each is told by the ledger what the other has measured, when it keeps its own; a restart knows all of it.

    Also where the other's measurement comes to the ledger just after it was looked at.
    """
    private, public = normal(60_000, 1), normal(500, 2, shift=1.5)
    settings = {"epsilon": 2.0, "delta": 1e-6, "alpha": 0.1, "ledger": tmp_path / "ledger"}
    first, second = (OnlineRelease(Thresholds(), **settings).fit(private, public) for _ in range(2))
    answers, left = second.session_.answerer, [None] * looks
    look = answers.catch_up
    monkeypatch.setattr(answers, "catch_up", lambda: left.pop() if left else look())
    told = {}
    for online, cut in ((first, 0.5), (second, 0.0), (first, -0.7), (second, 1.2)):
        [answer] = online.ask([Threshold(cut)])
        if answer.paid:
            told[cut] = answer.answer
    assert len(told) >= 2  # the first of each: both models are off by 0.5 there
    assert list(second.model_.corrections.items())[:2] == list(first.model_.corrections.items())[:2]
    first.close()
    second.close()
    again = OnlineRelease(Thresholds(), **settings).fit(private, public)
    assert again.paid_ == len(told)
    for cut, answer in told.items():
        [repeated] = again.ask([Threshold(cut)])
        assert (repeated.answer, repeated.paid) == (answer, False)
    again.close()


@pytest.mark.parametrize(
    ("settings", "private", "public", "error", "text"),
    [
        ({"delta": 0.0}, [1.0] * 100, [1.0], InvalidInput, "delta"),
        ({"alpha": 0.0}, [1.0] * 100, [1.0], InvalidInput, "alpha"),
        ({"alpha": 0.01}, [1.0] * 100, [1.0], Infeasible, "at least 2 records"),
        ({"alpha": 0.05}, [1.0] * 1000, [1.0], Infeasible, "cannot tell"),
        ({}, [1.0] * 100, None, InvalidInput, "public"),
        ({}, [], [1.0], InvalidInput, "at least one"),
    ],
)
def test_bad_input_is_refused_before_anything_is_paid(settings, private, public, error, text, monkeypatch):
    monkeypatch.setattr(Budget, "spend", lambda *rest, **named: pytest.fail("something was paid"))
    with pytest.raises(error, match=text):
        OnlineRelease(Thresholds(), **settings).fit(private, public)


def test_it_cannot_be_copied_into_a_file():
    online = OnlineRelease(Thresholds(), alpha=0.5).fit([1.0, 2.0] * 5000, [1.5])
    import pickle

    with pytest.raises(TypeError):
        pickle.dumps(online)
    assert "array" not in repr(online)


# ---------------------------------------------------------------- the model


def test_learned_weights_agree_with_what_was_released():
    rows = Rows([[0, 0], [0, 1], [1, 0], [1, 1]], sizes=(2, 2))
    learned = LearnedWeights.from_public(Marginals((2, 2), [(0,), (1,)]), rows, blend=0.1)
    learned.remember(0, 0.7)
    learned.remember(2, 0.4)
    learned.agree()
    assert math.isclose(learned.answer(0), 0.7, abs_tol=1e-6)
    assert math.isclose(learned.answer(2), 0.4, abs_tol=1e-6)
    assert math.isclose(learned.weights.sum(), 1.0)
    line = LearnedWeights.from_public(Prefixes(3), np.array([1.0, 0.0, 0.0]), blend=0.0)
    line.correct(0, 0.5)  # all of the weight is there: nothing can be done
    assert line.answer(0) == 1.0
    line = LearnedWeights.from_public(Prefixes(3), np.zeros(3), blend=0.1)
    assert math.isclose(line.answer(0), 1 / 3)


# ---------------------------------------------------------------- the whole law, on a tiny domain


def pmf(scale, reach):
    points = np.arange(-reach, reach + 1)
    weights = np.exp(-(points**2) / (2 * scale**2))
    return points, weights / weights.sum()


def online_law(private, public, queries, monkeypatch, *, spoiled=False):
    """The exact law of all that two queries are answered, by going through every draw of noise.

    Every noise is drawn from a tape: the threshold, each word, each measurement. A word is what its level makes of it:
    "stands" or "crosses", each with its probability.
    """
    tape, laws = [], []
    mechanism = tiny()

    def gaussian(self, scale, size):
        assert size == 1
        reach = 4
        return np.array([draw("noise", pmf(scale, reach))])

    def draw(kind, law):
        place = len(laws)
        laws.append((kind, law))
        return law[0][tape[place]] if place < len(tape) else law[0][0]

    def decide(self, counts, noise):
        def rule(queries_, threshold):
            half_gap = counts[:, 1] - counts[:, 0] + 1 >> 1
            level = self.table_levels(half_gap.copy(), threshold)[0]
            crosses = self.table[int(level)] / 2**64
            return np.array([draw("word", (np.array([-1, 0]), np.array([crosses, 1 - crosses])))])

        return rule

    monkeypatch.setattr(SystemNoise, "gaussian", gaussian)
    monkeypatch.setattr(AboveThreshold, "draw_decisions", decide)
    monkeypatch.setattr(AboveThreshold, "calibrate", classmethod(lambda cls, **rest: mechanism))
    monkeypatch.setattr(NoisySum, "__init__", measured_at(1.0))
    monkeypatch.setattr(SystemNoise, "reset", SystemNoise.reset)
    found = {}
    stack = [[]]
    while stack:  # every path through the draws
        tape = stack.pop()
        laws.clear()
        start = private if spoiled else public
        online = OnlineRelease(Thresholds(), epsilon=50.0, delta=0.5, alpha=1.0).fit(private, start)
        outcome = tuple((round(answer.answer, 9), answer.paid) for answer in online.ask(queries))
        for place in range(len(tape), len(laws)):
            for choice in range(1, len(laws[place][1][0])):
                stack.append([*tape, *([0] * (place - len(tape))), choice])
        chosen = [*tape, *([0] * (len(laws) - len(tape)))]
        chance = math.prod(law[1][choice] for choice, (_, law) in zip(chosen, laws, strict=True))
        found[outcome] = found.get(outcome, 0.0) + chance
    return found, online.budget_.order


def measured_at(scale):
    def made(self, *, sensitivity, scale=scale, **rest):
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "scale", 1.0)

    return made


def tiny():
    from quorate.core.mechanisms.quorum import build_table

    return AboveThreshold(
        teachers=6,
        no_quorums=2,
        order=2.5,
        price=1.2,
        margin=2 - 3,
        threshold_scale=1.0,
        table=build_table(order=2.5, price=1.2),
    )


def divergence(first, second, order):
    total = sum(p**order * second.get(key, 0.0) ** (1 - order) for key, p in first.items() if key in second)
    lost = sum(p for key, p in first.items() if key not in second)
    return math.log(total) / (order - 1) if lost < 1e-12 else math.inf


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(([0.0, 0.0, 2.0], [0.0, 2.0, 2.0]), marks=pytest.mark.long),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 9.0]),
    ],
)
def test_the_whole_interaction_costs_no_more_than_is_charged(pair, monkeypatch):
    public, queries = [0.0, 1.0, 2.0], [Threshold(0.5), Threshold(1.5)]
    laws = [online_law(private, public, queries, monkeypatch) for private in pair]
    order = laws[0][1]
    mechanism, measuring = tiny(), NoisySum(sensitivity=1, scale=1.0)
    charged = mechanism.renyi(order) + 2 * measuring.renyi(order)
    assert math.isclose(sum(laws[0][0].values()), 1.0, rel_tol=1e-9)
    for first, second in ((0, 1), (1, 0)):
        assert (
            divergence(laws[first][0], laws[second][0], order) <= charged * 1.05 + 1e-6
        )  # noise is cut off at 4 scales


def test_a_start_from_private_records_is_caught(monkeypatch):
    queries = [Threshold(0.5), Threshold(1.5)]
    pair = ([0.0, 0.0, 2.0], [0.0, 2.0, 2.0])
    laws = [online_law(private, None, queries, monkeypatch, spoiled=True) for private in pair]
    order = laws[0][1]
    charged = tiny().renyi(order) + 2 * NoisySum(sensitivity=1, scale=1.0).renyi(order)
    assert max(divergence(laws[0][0], laws[1][0], order), divergence(laws[1][0], laws[0][0], order)) > charged


# ---------------------------------------------------------------- the two private steps, each with its price


def heard(private, public, subject, queries, monkeypatch):
    """The distances that are put to the run, and the counts that are put to the measurement."""
    distances, counts = [], []

    def noted(given, *, records):
        distances.append(int(given[0]))
        return distance_ballots(given, records=records)

    with monkeypatch.context() as patch:
        patch.setattr("quorate.release.proposals.distance_ballots", noted)
        online = OnlineRelease(subject, epsilon=5.0, delta=1e-3, alpha=0.9).fit(private, public)
        monkeypatch.setattr(
            online.session_.answerer, "learn", lambda query, noisy: 0.5
        )  # the same model for every data set
        online.ask(queries)
        numbers = online.domain_.find(queries)
        for query in zip(*(part.tolist() for part in online.domain_.parts(numbers)), strict=True):
            counts.append(
                online.session_.answerer.counts.put_to(
                    lambda held, query=query: online.session_.answerer.count(held, query)
                )
            )
    return np.array(distances), np.array(counts)


def test_one_record_moves_each_distance_and_each_count_by_one_at_most(monkeypatch):
    line = [np.concatenate([normal(400, 1), [extra]]) for extra in (-9.0, 0.1, 9.0, math.nan)]
    sexes = [{"sex": ["f", "m", "m"] * 100 + [extra]} for extra in ("f", "m", "?")]
    both = Thresholds(both_directions=True)
    down = [*CUTS[::6], *(Threshold(cut, upward=False) for cut in (-1.0, 0.0, 1.0))]
    cases = [
        (line, normal(40, 2, shift=1.0), both, down),
        (line, normal(40, 2), Intervals(), [Interval(-1.0, 1.0), Interval(0.0, 9.0)]),
        (sexes, {"sex": ["f", "f", "m"]}, Workload.marginals(1), [{"sex": "f"}, {"sex": "m"}, {"sex": "other"}]),
    ]
    for data, public, subject, queries in cases:
        found = [heard(private, public, subject, queries, monkeypatch) for private in data]
        moved = [
            np.abs(a - b).max() for (one, _), (two, _) in itertools.combinations(found, 2) for a, b in [(one, two)]
        ]
        counted = [np.abs(one - two).max() for (_, one), (_, two) in itertools.combinations(found, 2)]
        assert max(moved) == 1
        assert max(counted) == 1


def test_a_paid_answer_costs_a_crossing_and_a_measurement_and_both_are_charged():
    online = OnlineRelease(Thresholds(), epsilon=2.0, delta=1e-6, alpha=0.1).fit(normal(60_000, 1), normal(500, 2, 1.5))
    order, opening = online.budget_.order, online.budget_.spent().renyi
    assert online.ask([Threshold(0.5)])[0].paid  # it is off by 0.5
    each = (
        online.session_.answerer.mechanism.no_quorum_cost(order).renyi
        + online.session_.answerer.measurement.release_cost(order).renyi
    )
    assert opening >= online.session_.answerer.mechanism.opening_cost(order).renyi
    assert math.isclose(online.budget_.spent().renyi - opening, each, rel_tol=1e-6)


def test_where_a_crossing_could_be_paid_and_its_measurement_not_nothing_is_drawn(monkeypatch):
    online = OnlineRelease(Thresholds(), epsilon=2.0, delta=1e-6, alpha=0.1).fit(normal(60_000, 1), normal(500, 2, 1.5))
    crossing = online.session_.answerer.mechanism.no_quorum_cost(online.budget_.order)
    online.budget_.spend(Cost(online.budget_.remaining().renyi - crossing.renyi * (1 + 1e-4)))
    assert online.budget_.affordable(crossing) == 1
    monkeypatch.setattr(type(online.session_.answerer.run), "answers", lambda *rest: pytest.fail("the run was asked"))
    with pytest.raises(BudgetSpent, match="cannot pay for another answer"):
        online.ask([Threshold(0.5)])
