"""What engines release, by its exact law: every neighbour of tiny data sets, every outcome, and planted bugs."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from quorate import Budget
from quorate.core.mechanisms import ExponentialChoice
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.release.engines import weights as weights_module
from quorate.release.engines._marginals import ResidualEngine
from quorate.release.engines._plain import PlainEngine
from quorate.release.engines._prefix import PrefixEngine
from quorate.release.engines._reweighting import ReweightingEngine
from quorate.release.engines.weights import Rounds, WeightsEngine, _Steps
from quorate.release.queries import BoxRanges, Marginals, Matrix, Prefixes, Ranges, Rows

# ---------------------------------------------------------------- engines that measure once


class Recorder:
    """A noise source that keeps what it is asked for and draws nothing."""

    def gaussian(self, scale, size):
        return np.zeros(size, dtype=np.int64)


def measured_by(engine, queries, data, public, monkeypatch):
    """The mechanism that an engine runs, and the vectors that it puts to it."""
    seen = []
    original = NoisyVector.draw_release

    def record(self, parts, budget, noise):
        seen.append((self, [np.asarray(part) for part in parts]))
        return original(self, parts, budget, noise)

    with monkeypatch.context() as patch:
        patch.setattr(NoisyVector, "draw_release", record)
        budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
        engine._run(queries, data, public, budget, Recorder())
    [found] = seen
    return found


def tables(sizes, records):
    """Every data set of so many records, up to their order."""
    cells = list(itertools.product(*map(range, sizes)))
    return [Rows(list(chosen), sizes) for chosen in itertools.combinations_with_replacement(cells, records)]


def histograms(cells, records):
    return [
        np.bincount(chosen, minlength=cells)
        for chosen in itertools.combinations_with_replacement(range(cells), records)
    ]


def neighbours(one, two):
    """Whether two data sets differ in one record at most."""
    if isinstance(one, Rows):
        sizes = range(len(one.sizes))
        one, two = (np.bincount(rows.cell(sizes), minlength=math.prod(rows.sizes)) for rows in (one, two))
    return int(np.abs(np.asarray(one) - np.asarray(two)).sum()) <= 2


SMALL = Marginals((2, 3), [(0,), (1,), (0, 1)])
PUBLIC = Rows([[0, 0], [1, 2], [0, 1]], (2, 3))
MEASURING = [
    ("plain marginals", PlainEngine(), SMALL, tables((2, 3), 2)),
    ("plain prefixes", PlainEngine(), Prefixes(4), histograms(4, 2)),
    ("plain ranges", PlainEngine(), Ranges(4), histograms(4, 2)),
    ("plain boxes", PlainEngine(), BoxRanges((2, 2)), histograms(4, 2)),
    ("plain matrix", PlainEngine(), Matrix([[True, False, True], [True, True, False]]), histograms(3, 2)),
    ("residual", ResidualEngine(), SMALL, tables((2, 3), 2)),
    ("prefix", PrefixEngine(), Prefixes(6), histograms(6, 2)),
    ("prefix ranges", PrefixEngine(), Ranges(9), histograms(9, 2)),
    ("prefix of lines", PrefixEngine(), Prefixes(3, lines=2), histograms(6, 2)),
    ("prefix ranges of lines", PrefixEngine(), Ranges(3, lines=3), histograms(9, 2)),
    ("prefix boxes", PrefixEngine(), BoxRanges((5, 3)), histograms(15, 2)),
    ("reweighting", ReweightingEngine(), SMALL, tables((2, 3), 2)),
]


def worst_ratio(pairs):
    """The largest sum over parts of (change / scale)**2, over the one that the mechanism is charged for."""
    worst = 0.0
    for (mechanism, one), (_, two) in pairs:
        moved = [int(((first - second) ** 2).sum()) for first, second in zip(one, two, strict=True)]
        told = sum(square / scale**2 for square, scale in zip(moved, mechanism.scales, strict=True))
        squares = mechanism.squared_sensitivities
        claimed = sum(square / scale**2 for square, scale in zip(squares, mechanism.scales, strict=True))
        worst = max(worst, told / claimed)
    return worst


@pytest.mark.parametrize(("name", "engine", "queries", "data"), MEASURING, ids=[case[0] for case in MEASURING])
def test_every_neighbour_is_within_the_sensitivity_that_is_charged(name, engine, queries, data, monkeypatch):
    found = [measured_by(engine, queries, one, PUBLIC, monkeypatch) for one in data]
    assert len({mechanism for mechanism, _ in found}) == 1  # noise does not depend on the data
    pairs = [
        (found[one], found[two])
        for one, two in itertools.combinations(range(len(data)), 2)
        if neighbours(data[one], data[two])
    ]
    assert len(pairs) > 3
    assert (0.7 if name == "prefix boxes" else 0.99) < worst_ratio(pairs) <= 1 + 1e-12  # held, and reached or nearly


def test_a_sensitivity_that_is_too_small_is_found(monkeypatch):
    halved = Prefixes(6)
    monkeypatch.setattr(Prefixes, "sensitivity", property(lambda self: 2))
    monkeypatch.setattr("quorate.release.engines._plain._factors", lambda queries: {"queries": 1.0})
    data = histograms(6, 2)
    found = [measured_by(PlainEngine(), halved, one, None, monkeypatch) for one in data]
    pairs = [
        (found[one], found[two])
        for one, two in itertools.combinations(range(len(data)), 2)
        if neighbours(data[one], data[two])
    ]
    assert worst_ratio(pairs) > 2


# ---------------------------------------------------------------- what follows the measurement is a function of it


class Aimed:
    """A noise source that makes every measurement come out as it is told, whatever the data."""

    def __init__(self, counts):
        self.counts, self.place = counts, 0

    def gaussian(self, scale, size):
        self.place += size
        return self.counts[self.place - size : self.place]


def replayed(engine, queries, data, other, public, monkeypatch):
    """What is released on two data sets when the noise makes up for their difference."""
    _, one = measured_by(engine, queries, data, public, monkeypatch)
    _, two = measured_by(engine, queries, other, public, monkeypatch)
    target = np.concatenate(one) + 3
    results = []
    for rows, parts in ((data, one), (other, two)):
        budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
        results.append(engine._run(queries, rows, public, budget, Aimed(target - np.concatenate(parts))))
    return results


class FittedOnPrivate(ReweightingEngine):
    """A planted bug: the weights start from private records, ten times each, instead of public ones."""

    def _run(self, queries, data, public, budget, noise):
        return super()._run(queries, data, Rows(np.repeat(data.codes, 10, axis=0), data.sizes), budget, noise)


def same(one, two):
    fields = ("answers", "errors", "weights")
    return all(np.array_equal(getattr(one, field), getattr(two, field)) for field in fields)


@pytest.mark.parametrize(
    ("engine", "queries"),
    [(PlainEngine(), SMALL), (ResidualEngine(), SMALL), (ReweightingEngine(), SMALL), (PrefixEngine(), Prefixes(6))],
    ids=lambda case: getattr(case, "name", ""),
)
def test_nothing_but_the_measurement_is_used(engine, queries, monkeypatch):
    generator = np.random.default_rng(3)
    if isinstance(queries, Prefixes):
        one, two = generator.multinomial(500, np.ones(6) / 6), generator.multinomial(500, np.ones(6) / 6)
    else:
        one, two = (
            Rows(np.stack([generator.integers(0, size, 500) for size in (2, 3)], axis=1), (2, 3)) for _ in range(2)
        )
    assert same(*replayed(engine, queries, one, two, PUBLIC, monkeypatch))


@pytest.mark.parametrize("branch", ["trusted", "repaired", "refuted"])
def test_every_branch_of_reweighting_uses_nothing_but_the_measurement(branch, monkeypatch):
    chance = np.random.default_rng(4)
    queries = Marginals((2, 8), [(0,), (1,), (0, 1)])

    def rows(records, shares):
        return Rows(np.stack([chance.integers(0, 2, records), chance.choice(8, records, p=shares)], axis=1), (2, 8))

    fair = np.full(8, 0.125)
    rare = np.array([*np.full(7, 0.92 / 7), 0.08])  # of the last kind public records have none
    known = (
        np.array([*np.full(7, 1 / 7), 0.0]) if branch == "repaired" else np.eye(8)[0] if branch == "refuted" else fair
    )
    shares = rare if branch == "repaired" else fair
    one, two = (rows(501, shares) for _ in range(2))  # few: public records then err far less than noise alone
    releases = replayed(ReweightingEngine(), queries, one, two, rows(20_000, known), monkeypatch)
    assert same(*releases)
    for released in releases:
        assert (released.weights is None) == (branch == "refuted")
        assert (released.details["repaired"] > 0) == (branch == "repaired")


def test_public_weights_fitted_on_private_data_are_found(monkeypatch):
    generator, queries = np.random.default_rng(3), Marginals((2, 8), [(0,), (1,), (0, 1)])
    one = Rows(generator.integers(0, (2, 8), size=(301, 2)), (2, 8))  # few, so that public records would be used
    two = Rows(np.concatenate([1 - one.codes[:1] % 2, one.codes[1:]]), (2, 8))
    assert not same(*replayed(FittedOnPrivate(), queries, one, two, one, monkeypatch))


# ---------------------------------------------------------------- multiplicative weights, outcome by outcome


class Script:
    """Decisions taken one after the other, each with its probability; unscripted ones are the first there are."""

    def __init__(self, decisions):
        self.decisions, self.taken, self.options, self.chance = decisions, 0, [], 1.0

    def decide(self, law):
        place = self.decisions[self.taken] if self.taken < len(self.decisions) else 0
        self.taken += 1
        self.options.append(len(law))
        self.chance *= law[place]
        return place


RADIUS = 9


class ScriptedGaussian:
    def __init__(self, script):
        self.script = script

    def gaussian(self, scale, size):
        assert size == 1
        values = np.arange(-RADIUS, RADIUS + 1)
        law = np.exp(-(values**2) / (2 * scale**2))
        return values[[self.script.decide((law / law.sum()).tolist())]]


def scripted_choice(self, tally, budget, noise):
    """The law that the exponential mechanism states (and that its own tests confirm), decided by the script."""
    budget.spend(self.choice_cost(budget.order))
    chosen = []
    for mistakes in np.flatnonzero(tally.counts):
        chosen += [(mistakes, rank) for rank in range(int(tally.counts[mistakes]))]
    chosen.sort(key=lambda candidate: tally.pick(*candidate))
    law = np.array([math.exp(-float(self.rate) * mistakes) for mistakes, _ in chosen])
    return tally.pick(*chosen[noise.script.decide((law / law.sum()).tolist())])


def released_law(engine, queries, data, public, plan, monkeypatch):
    """The probability of everything that may be released, by running the engine on every outcome of its draws."""
    law = defaultdict(float)
    with monkeypatch.context() as patch:
        patch.setattr(ExponentialChoice, "draw_choice", scripted_choice)
        patch.setattr(weights_module, "plan_rounds", lambda *a, **k: plan)
        waiting = [[]]
        while waiting:
            decisions = waiting.pop()
            script = Script(decisions)
            budget = Budget(epsilon=200.0, delta=0.1)
            released = engine._run(queries, data, public, budget, ScriptedGaussian(script))
            spent = budget.spent()
            law[tuple(np.round(released.weights, 9))] += script.chance
            for place in range(len(decisions), len(script.options)):
                filled = decisions + [0] * (place - len(decisions))
                waiting += [[*filled, option] for option in range(1, script.options[place])]
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-9)
    return law, spent.renyi, budget.order


def divergence(one, two, order):
    """The Renyi divergence of two laws, infinite where one has an outcome of some probability that the other lacks."""
    total = 0.0
    for outcome, chance in one.items():
        if chance < 1e-13:
            continue
        if two.get(outcome, 0.0) <= 1e-30:
            return math.inf
        total += chance**order * two[outcome] ** (1 - order)
    return math.log(total) / (order - 1)


def worst_divergence(engine, queries, pairs, plan, monkeypatch, public=None, order=3.0):
    """The largest divergence over neighbours and both directions, and what is charged for it at the same order."""
    choice, noisy = (
        ExponentialChoice(epsilon=plan.epsilon),
        NoisyVector(squared_sensitivities=(1,), scales=(plan.scale,)),
    )
    charged = plan.rounds * (choice.renyi(order) + noisy.renyi(order))
    worst = 0.0
    for data in pairs:
        laws = [released_law(engine, queries, one, public, plan, monkeypatch) for one in data]
        for _, spent, at in laws:
            assert spent == pytest.approx(plan.rounds * (choice.renyi(at) + noisy.renyi(at)), rel=1e-6)
        worst = max(worst, divergence(laws[0][0], laws[1][0], order), divergence(laws[1][0], laws[0][0], order))
    return worst, charged


PLAN = Rounds(1, 2.0, 1.4, 0.1)
QUERIES = Matrix([[True, False, False], [True, True, False], [False, False, True]])
PAIRS = [
    (np.array([3, 0, 0]), np.array([2, 0, 1])),
    (np.array([1, 2, 0]), np.array([0, 2, 1])),
    (np.array([1, 1, 1]), np.array([1, 0, 2])),
]


@pytest.mark.parametrize("public", [None, np.array([1.0, 2.0, 1.0])], ids=["uniform start", "public start"])
def test_the_law_of_a_round_is_within_what_is_charged(public, monkeypatch):
    worst, charged = worst_divergence(WeightsEngine(), QUERIES, PAIRS, PLAN, monkeypatch, public)
    assert 0.4 * charged < worst <= charged


def test_the_law_of_two_rounds_is_within_what_is_charged(monkeypatch):
    monkeypatch.setitem(globals(), "RADIUS", 5)
    plan = Rounds(2, 2.0, 0.7, 0.1)
    worst, charged = worst_divergence(
        WeightsEngine(), Prefixes(2), [(np.array([2, 0]), np.array([1, 1]))], plan, monkeypatch
    )
    assert 0.2 * charged < worst <= charged


class DoubledScores(_Steps):
    """A planted bug: scores of +-1 queries, which a record moves by 2/n, with the noise for 1/n."""

    def choose(self, answers):
        return _Steps(2 * self.counts, 2 * self.records, self.plan, self.budget, self.noise).choose(answers)


class NoNoise(_Steps):
    """A planted bug: the chosen query is measured without noise."""

    def measure(self, query):
        super().measure(query)
        return float(self.counts[query]) / self.records


class PrivateStart(WeightsEngine):
    """A planted bug: the weights start from the private histogram."""

    def _run(self, queries, data, public, budget, noise):
        return super()._run(queries, data, np.asarray(data, dtype=float), budget, noise)


@pytest.mark.parametrize("bug", ["no noise", "a private start"])
def test_planted_bugs_are_found(bug, monkeypatch):
    if bug == "no noise":
        monkeypatch.setattr(weights_module, "_Steps", NoNoise)
    engine = PrivateStart() if bug == "a private start" else WeightsEngine()
    worst, charged = worst_divergence(engine, QUERIES, PAIRS, PLAN, monkeypatch)
    assert worst > charged


def test_scores_of_twice_the_sensitivity_are_found(monkeypatch):
    """Every measurement comes out alike, so that the law is that of the choice alone; at order 50 nothing hides."""
    pairs, plan = [*PAIRS, (np.array([9, 0, 0]), np.array([8, 0, 1]))], Rounds(1, 3.0, 1.4, 0.1)
    limit = ExponentialChoice(epsilon=plan.epsilon).renyi(50.0)
    found = {}
    for steps in (_Steps, DoubledScores):
        told = type(steps.__name__, (steps,), {"measure": lambda self, query: 0.4 + 0.1 * query})
        monkeypatch.setattr(weights_module, "_Steps", told)
        laws = [[choices_law(data, plan, monkeypatch) for data in pair] for pair in pairs]
        found[steps] = max(divergence(*order, 50.0) for pair in laws for order in (pair, pair[::-1]))
    assert found[_Steps] <= limit < found[DoubledScores]


def choices_law(data, plan, monkeypatch):
    """The law of what is released when nothing but the choice is random."""
    law = defaultdict(float)
    with monkeypatch.context() as patch:
        patch.setattr(ExponentialChoice, "draw_choice", scripted_choice)
        patch.setattr(weights_module, "plan_rounds", lambda *a, **k: plan)
        for decision in range(QUERIES.count):
            script = Script([decision])
            budget = Budget(epsilon=200.0, delta=0.1)
            released = WeightsEngine()._run(QUERIES, data, None, budget, ScriptedGaussian(script))
            law[tuple(np.round(released.weights, 9))] += script.chance
    return law
