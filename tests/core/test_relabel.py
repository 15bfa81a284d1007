"""Relabelling: its term against all small data sets, of several classes; and the bugs that the same test catches."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest

from quorate import Budget, BudgetSpent, InvalidInput
from quorate.auditing._choices import choice_law
from quorate.auditing._plays import SeededNoise
from quorate.core.mechanisms import relabel as relabel_module
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.mechanisms.relabel import Relabel
from quorate.models.concepts import Conjunctions, Finite, Halfspaces, Intervals, Stumps, Thresholds

KEEP = 0.3  # epsilon of the randomised response by which the changed row's label is shown


def law(relabel, labelled, unlabelled, rate=None):
    """The exact law of the labels that all rows get, from the tally that the mechanism draws from."""
    X = np.array([x for x, _ in labelled], dtype=float).reshape(len(labelled), -1)
    y = np.array([label for _, label in labelled])
    T = np.array(unlabelled, dtype=float).reshape(len(unlabelled), X.shape[1])
    tally = relabel.private_tally(X, y, T)
    rate = float(ExponentialChoice(epsilon=relabel.kappa).rate) if rate is None else rate
    shown = {}
    for chosen, probability in choice_law(tally, rate).items():
        labels = (*chosen.predict(X).tolist(), *chosen.predict(T).tolist())
        shown[labels] = shown.get(labels, 0.0) + probability
    return shown


def loss(here, there, place):
    """The largest log ratio when all labels are shown but that of the changed row, which is shown by a noisy coin."""
    coin = 1 / (1 + math.exp(-KEEP))

    def shown(law):
        out = {}
        for labels, probability in law.items():
            for said in (0, 1):
                key = (*labels[:place], said, *labels[place + 1 :])
                out[key] = out.get(key, 0.0) + probability * (coin if said == labels[place] else 1 - coin)
        return out

    here, there = shown(here), shown(there)
    if here.keys() != there.keys():
        return math.inf
    return max(math.log(here[key] / there[key]) for key in here)


def worst_labelled(relabel, points, rows, unlabelled=(), rate=None):
    every = list(itertools.product(points, (0, 1)))
    laws = {data: law(relabel, data, unlabelled, rate) for data in itertools.product(every, repeat=rows)}
    return max(loss(laws[data], laws[changed, *data[1:]], 0) for data in laws for changed in every)


def worst_unlabelled(relabel, points, rows):
    every = list(itertools.product(points, (0, 1)))
    worst = 0.0
    for data in itertools.product(every, repeat=rows):
        laws = [law(relabel, data, (x,)) for x in points]
        worst = max(worst, *(loss(a, b, rows) for a, b in itertools.permutations(laws, 2)))
    return worst


LINE = [0.0, 1.0, 2.0]
SQUARE = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (2.0, 1.0)]


@pytest.mark.parametrize("kappa", [0.5, 6.0])
@pytest.mark.parametrize(
    ("concept", "points", "rows"),
    [
        (Thresholds(both_directions=True), LINE, 3),
        (Intervals(), LINE, 3),
        (Stumps(features=2), SQUARE, 3),
        (Conjunctions([3, 2]), SQUARE, 3),
    ],
)
def test_the_term_bounds_all_small_data_sets_and_is_not_idle(concept, points, rows, kappa):
    relabel = Relabel(concept=concept, kappa=kappa)
    worst = worst_labelled(relabel, points, rows)
    assert 0.4 * relabel.epsilon(KEEP) < worst <= relabel.epsilon(KEEP) + 1e-9
    worst = worst_unlabelled(relabel, points, rows)
    assert 0.3 * relabel.epsilon(KEEP, change="unlabelled") < worst
    assert worst <= relabel.epsilon(KEEP, change="unlabelled") + 1e-9


def test_planted_weights_without_the_half_are_caught():
    relabel = Relabel(concept=Thresholds(both_directions=True), kappa=6.0)
    assert worst_labelled(relabel, LINE, 3, rate=6.0) > relabel.epsilon(KEEP)


class OfTheLabelledAlone(Relabel):
    """Planted: the dichotomies of S, not of S and T."""

    def private_tally(self, labelled, labels, unlabelled):
        return self.concept.dichotomies(labelled).tally(labelled, labels)


def test_planted_dichotomies_of_the_labelled_rows_alone_are_caught():
    """One labelled row moves the representative between it and its neighbour, and with it labels of other rows."""
    honest = Relabel(concept=Thresholds(), kappa=1.0)
    planted = OfTheLabelledAlone(concept=Thresholds(), kappa=1.0)
    others = (0.8, 1.2, 2.3)
    assert worst_labelled(honest, LINE, 2, others) <= honest.epsilon(KEEP) + 1e-9
    assert worst_labelled(planted, LINE, 2, others) > planted.epsilon(KEEP)


class Watched(Relabel):
    """Keeps what the candidates are made from."""

    seen: list = []  # noqa: RUF012

    def private_tally(self, labelled, labels, unlabelled):
        self.seen.append((labelled.ravel().tolist(), labels.tolist(), unlabelled.ravel().tolist()))
        return super().private_tally(labelled, labels, unlabelled)


def test_a_row_whose_label_is_none_defines_no_candidates():
    """In a group it would weigh 2, where a labelled row weighs at most 1 + exp(-kappa/2): PROOF.md, step 4."""
    Watched(concept=Thresholds(), kappa=1.0).relabel([1.0, 2.0, 3.0], [0, 9, 1], unlabelled=[5.0, math.nan])
    labelled, _, _ = Watched.seen.pop()
    assert [x for x in labelled if not math.isnan(x)] == [1.0, 3.0]
    kappa = 8.0
    usable = [math.exp(-kappa / 2), 1.0, 1 + math.exp(-kappa / 2)]
    term = Relabel(concept=Thresholds(), kappa=kappa).relabelling_cost().renyi / 2
    assert max(abs(math.log(a / b)) for a, b in itertools.product(usable, repeat=2)) <= term
    assert max(abs(math.log(a / 2)) for a in usable) > term


class Fixed:
    """In place of the choice: the candidate of a given rank, and the counts for the next time."""

    counts, place = None, None

    def __call__(self, *, epsilon):
        return self

    def draw_choice(self, tally, budget, noise):
        self.counts = tally.counts.tolist()
        return tally.pick(*(self.place or (int(np.flatnonzero(tally.counts)[0]), 0)))


def released_law(relabel, labelled, unlabelled, monkeypatch):
    """The exact law of all that relabelling puts out, -1 included, by putting out each candidate in turn."""
    fixed = Fixed()
    monkeypatch.setattr(relabel_module, "ExponentialChoice", fixed)
    X, y = np.array([x for x, _ in labelled]), np.array([label for _, label in labelled])
    T, weights = np.array(unlabelled).reshape(len(unlabelled), X.shape[1]), {}
    relabel.relabel(X, y, unlabelled=T)
    for mistakes, count in enumerate(fixed.counts):
        for rank in range(count):
            fixed.place = mistakes, rank
            new = relabel.relabel(X, y, unlabelled=T)
            shown = (*new.labels.tolist(), *new.unlabelled.tolist())
            weights[shown] = weights.get(shown, 0.0) + math.exp(-relabel.kappa / 2 * mistakes)
    return {shown: weight / sum(weights.values()) for shown, weight in weights.items()}


def released_loss(here, there, places):
    """The largest log ratio when the labels of these rows are shown by a noisy coin of three sides, and all others."""

    def shown(law):
        out, odds = {}, math.exp(KEEP)
        for labels, probability in law.items():
            for said in itertools.product((-1, 0, 1), repeat=len(places)):
                key, share = list(labels), probability
                for place, label in zip(places, said, strict=True):
                    share *= (odds if label == labels[place] else 1) / (odds + 2)
                    key[place] = label
                out[tuple(key)] = out.get(tuple(key), 0.0) + share
        return out

    here, there = shown(here), shown(there)
    return math.inf if here.keys() != there.keys() else max(math.log(here[key] / there[key]) for key in here)


class Forgets(Conjunctions):
    """Planted: a row with a value that is not declared defines no candidate, and is relabelled all the same."""

    def usable(self, X):
        return np.isfinite(X).all(axis=1)

    def dichotomies(self, X):
        return Conjunctions(self.categories).dichotomies(X)


ODD = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 5.0)]


def worst_released(relabel, points, monkeypatch):
    """The worst loss over one changed row, labelled and unlabelled, with others that cannot be used among them."""
    every, odd = list(itertools.product(points, (0, 1, 9))), points[-1]
    labelled = unlabelled = 0.0
    for other in every:
        laws = [released_law(relabel, [row, other, (odd, 1)], (odd,), monkeypatch) for row in every]
        labelled = max(labelled, *(released_loss(a, b, [0]) for a, b in itertools.permutations(laws, 2)))
        laws = [released_law(relabel, [other, ((1.0, 0.0), 1), (odd, 1)], (x,), monkeypatch) for x in points]
        unlabelled = max(unlabelled, *(released_loss(a, b, [3]) for a, b in itertools.permutations(laws, 2)))
    return labelled, unlabelled


@pytest.mark.parametrize(
    ("concept", "points"),
    [
        (Conjunctions([2, 2]), ODD),
        (Stumps(features=2, binary=True), ODD),
        (Stumps(features=2), [*ODD[:3], (math.nan, 1.0)]),
    ],
)
def test_the_term_holds_with_rows_that_cannot_be_used(concept, points, monkeypatch):
    relabel = Relabel(concept=concept, kappa=2.0)
    labelled, unlabelled = worst_released(relabel, points, monkeypatch)
    assert 0.3 < labelled <= relabel.epsilon(KEEP) + 1e-9
    assert 0.3 < unlabelled <= relabel.epsilon(KEEP, change="unlabelled") + 1e-9


def test_planted_relabelling_of_values_that_are_not_declared_is_caught(monkeypatch):
    planted = Relabel(concept=Forgets([2, 2]), kappa=2.0)
    assert worst_released(planted, ODD, monkeypatch)[0] == math.inf


def test_values_that_are_not_declared_are_marked():
    relabel = Relabel(concept=Conjunctions([2, 2]), kappa=50.0)
    new = relabel.relabel([[1, 0], [1, 1], [1, 5], [0.5, 0]], [1, 1, 1, 1], unlabelled=[[0, 1], [7, 1]])
    assert new.labels[2:].tolist() == [-1, -1]
    assert new.unlabelled[1] == -1
    new = Relabel(concept=Stumps(features=1, binary=True), kappa=50.0).relabel([0.0, 1.0, 3.0], [0, 1, 1])
    assert new.labels.tolist() == [0, 1, -1]


def test_no_finite_row_makes_relabelling_fail():
    largest = np.finfo(float).max
    X = np.array([[1.7e308, 1.0e308], [0.0, 0.0], [1.0, 0.0], [1e308, 1.7e308], [5e-324, -largest], [largest, largest]])
    y = np.array([1, 0, 0, 1, 0, 1])
    for _ in range(40):
        Relabel(concept=Halfspaces(2), kappa=50.0).relabel(X, y)

    def strict(X):
        if (np.abs(X) > 1e38).any():
            raise ValueError("a value is too large")
        return X[:, 0] > 0.5

    new = Relabel(concept=Finite([strict], features=2), kappa=1.0).relabel(X, y)
    assert new.labels.tolist() == [0, 0, 1, 0, 0, 0]


def test_a_unit_pays_for_its_rows_of_both_kinds(monkeypatch):
    relabel = Relabel(concept=Intervals(), kappa=0.1)
    labelled, unlabelled = 2 * math.log1p(math.exp(0.05)), math.log(4)

    def spent(*, given, **unit):
        budget = Budget(epsilon=100.0, delta=0.0)
        relabel.relabel([1.0, 2.0], [0, 1], unlabelled=given, budget=budget, **unit)
        return budget.spent().renyi

    assert spent(given=()) == pytest.approx(labelled)
    assert spent(given=(), rows=2, rows_unlabelled=5) == pytest.approx(2 * labelled)
    assert spent(given=[3.0] * 9, rows_unlabelled=0) == pytest.approx(labelled)
    assert spent(given=[3.0] * 9) == pytest.approx(labelled + unlabelled)
    assert spent(given=[3.0] * 9, rows=3, rows_unlabelled=6) == pytest.approx(3 * labelled + 6 * unlabelled)
    with pytest.raises(InvalidInput, match="rows_unlabelled must"):
        relabel.relabel([1.0], [0], rows_unlabelled=-1)

    rest = [((0.0,), 0), ((20.0,), 0)]  # and one unit of one labelled and six unlabelled rows
    here = released_law(relabel, [*rest, ((10.0,), 1)], [(10.0,)] * 6, monkeypatch)
    there = released_law(relabel, [*rest, ((9.0,), 0)], [(1 + i / 2,) for i in range(6)], monkeypatch)
    alone = [{(0, 0): 0.0, (0, 1): 0.0, (1, 0): 0.0, (1, 1): 0.0} for _ in range(2)]
    for law, marginal in zip((here, there), alone, strict=True):
        for labels, probability in law.items():
            marginal[labels[:2]] += probability
    loss = max(abs(math.log(alone[0][key] / alone[1][key])) for key in alone[0])
    assert labelled < loss <= labelled + 6 * unlabelled


def test_rows_that_cannot_be_used_are_marked():
    relabel = Relabel(concept=Thresholds(), kappa=50.0)
    new = relabel.relabel([1.0, math.nan, 2.0, 3.0], [0, 1, 1, 9], unlabelled=[0.0, math.inf, 9.0])
    assert new.labels.tolist() == [0, -1, 1, -1]
    assert new.unlabelled.tolist() == [0, -1, 1]


def test_relabelled_rows_say_nothing_by_accident():
    new = Relabel(concept=Thresholds(), kappa=1.0).relabel([1.0], [0])
    assert repr(new) == f"{new}" == "<sealed labels>"
    for spill in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="relabelled rows cannot be copied, pickled or stored"):
            spill(new)


def test_relabelling_is_charged_before_it_is_drawn():
    relabel = Relabel(concept=Thresholds(), kappa=1.0)
    budget = Budget(epsilon=3.0, delta=0.0)
    relabel.relabel([1.0], [0], budget=budget)
    assert budget.spent().renyi == pytest.approx(2 * math.log1p(math.exp(0.5)))
    with pytest.raises(BudgetSpent):
        relabel.relabel([1.0], [0], budget=budget)
    with pytest.raises(BudgetSpent):
        relabel.relabel([1.0], [0], budget=Budget(epsilon=3.0, delta=0.0), rows=2)


def test_refusals():
    with pytest.raises(InvalidInput, match="concept must"):
        Relabel(concept="thresholds", kappa=1.0)
    for kappa in (1.7e308, 1e13, 1e-300):
        with pytest.raises(InvalidInput, match="kappa must"):
            Relabel(concept=Thresholds(), kappa=kappa)
    for kappa in (1e-100, 2.0**40):
        assert math.isfinite(Relabel(concept=Thresholds(), kappa=kappa).relabelling_cost(rows=10**6).renyi)
    with pytest.raises(InvalidInput, match="unlabelled must"):
        Relabel(concept=Thresholds(), kappa=1.0).relabel([1.0], [0], unlabelled=[["a"]])
    with pytest.raises(InvalidInput, match="change must"):
        Relabel(concept=Thresholds(), kappa=1.0).epsilon(1.0, change="both")


def test_utility_holds_as_often_as_it_says():
    numbers = np.random.default_rng(0)
    relabel = Relabel(concept=Intervals(), kappa=1.0)
    bound = 2 * math.log(Intervals().growth(700) / 1e-9)  # PROOF_relabel.md: the utility of step 5, at beta 1e-9
    for seed in range(30):
        x = numbers.random(400)
        y = ((x > 0.2) & (x < 0.6)).astype(int)
        new = relabel.draw_relabelled(x, y, numbers.random(300), budget=None, unit=(1, 1), noise=SeededNoise(seed))
        assert (new.labels != y).sum() <= bound
