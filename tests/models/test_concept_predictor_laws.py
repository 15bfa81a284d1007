"""Predictors on classes of hypotheses: their laws enumerated on tiny samples, and the bugs that this catches.

Enumeration drives the code that answers: the secret permutation and the private choice are replaced by each of their
outcomes in turn, and the outcomes are weighed by their exact probabilities.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from quorate import InvalidInput
from quorate.auditing._choices import choice_law
from quorate.compute.ensemble import deal_units, secret_subset
from quorate.core.mechanisms import SoftMajority
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy import relabelling_epsilon
from quorate.models.concepts import Finite, Intervals, Stumps, Thresholds
from quorate.models.predictors import AgnosticClassifier
from quorate.models.predictors._agnostic import RelabelledSample, plan_sample
from quorate.models.predictors._pure import PureRelabelling, PureStable
from quorate.models.predictors._stable import StableChoice, flip
from quorate.models.predictors._universal import choose_from_cover
from quorate.models.predictors.concept_classifier import UnitRows, fill_unit_rows, fit_concept_teachers

LINE = [0.0, 1.0, 2.0]
QUERIES = [-0.5, 0.5, 1.0, 1.5, 2.5]


class Caught(Exception):
    """Carries what a predictor was about to draw from."""


def _catch(self, tally, *args, **options):
    raise Caught(self, tally)


def records(data):
    """Return slots of one row each."""
    return fill_unit_rows(np.array([[x] for x, _ in data]), np.array([label for _, label in data]))


def chosen_from(ask, *, factor=1.0):
    """Yield each hypothesis that `ask` may draw by the exponential mechanism, with its probability."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("choose", "draw_choice"):
            patch.setattr(ExponentialChoice, name, _catch)
        with pytest.raises(Caught) as caught:
            ask()
    choice, tally = caught.value.args
    rate = float(choice.rate) * factor
    return list(choice_law(tally, rate).items())


def every_row(points=LINE):
    return list(itertools.product(points, (0, 1)))


def data_sets(units, points=LINE):
    """All data sets up to the order of their rows, which no law below depends on."""
    return list(itertools.combinations_with_replacement(every_row(points), units))


def neighbours(data, points=LINE):
    order = every_row(points).index
    for place in range(len(data)):
        for row in every_row(points):
            yield tuple(sorted((*data[:place], row, *data[place + 1 :]), key=order))


# Stable: by how much the probability of a label moves


def stable_law(choice, slots, *, subsets=None, factor=1.0):
    """Return the probability that each query is answered 1."""
    subsets = list(itertools.combinations(range(choice.units), choice.subset)) if subsets is None else subsets
    law = np.zeros(len(QUERIES))
    for units in subsets:
        for hypothesis, weight in chosen_from(
            lambda units=units: choice.draw_from(slots, np.array(units)), factor=factor
        ):
            law += weight * hypothesis.predict(QUERIES)
    return law / len(subsets)


def most_moved(choice, **bug):
    laws = {data: stable_law(choice, records(data), **bug) for data in data_sets(choice.units)}
    return max(np.abs(laws[data] - laws[other]).max() for data in laws for other in neighbours(data))


@pytest.mark.parametrize("concept", [Thresholds(), Thresholds(both_directions=True), Intervals(), Stumps(1)])
@pytest.mark.parametrize(("units", "subset", "epsilon"), [(3, 1, 2.0), (3, 2, 0.5), (4, 1, 1.0)])
def test_no_unit_moves_a_stable_prediction_by_more_than_its_gamma(concept, units, subset, epsilon):
    choice = StableChoice(concept=concept, units=units, subset=subset, epsilon=epsilon)
    assert most_moved(choice) <= choice.gamma


def test_a_missing_half_in_the_weights_is_caught():
    choice = StableChoice(concept=Thresholds(), units=3, subset=1, epsilon=2.0)
    assert most_moved(choice) > 0.7 * choice.gamma  # the test has power
    assert most_moved(choice, factor=2.0) > choice.gamma


def test_a_subset_that_is_not_random_is_caught():
    """If the same units always define the candidates, replacing one of them may take the best candidate away."""
    choice = StableChoice(concept=Thresholds(), units=20, subset=2, epsilon=1.0)
    others = [(2.0, 1), *[(0.0, 0)] * 9, *[(2.0, 1)] * 9]
    laws = [stable_law(choice, records([(x, 0), *others]), subsets=[(0, 1)]) for x in (0.0, 2.0)]
    assert np.abs(laws[0] - laws[1]).max() > choice.gamma
    laws = [stable_law(choice, records([(x, 0), *others])) for x in (0.0, 2.0)]
    assert np.abs(laws[0] - laws[1]).max() <= choice.gamma


def test_a_person_with_two_rows_counts_as_one_unit():
    """With two rows a person the weights must be half as steep: the sensitivity off by a factor of two is caught."""
    places = list(itertools.product(every_row(), repeat=2))
    base = [((0.0, 0), (2.0, 1))]

    def worst(rows):
        choice = StableChoice(concept=Thresholds(), units=2, subset=1, epsilon=2.0, rows=rows)
        law = []
        for person in places:
            X = np.array([[x] for x, _ in (*person, *base[0])])
            slots = UnitRows(X, np.array([label for _, label in (*person, *base[0])]), row_limit=2)
            law.append(stable_law(choice, slots, subsets=[(1,)]))  # the other person defines the candidates
        tight = math.tanh(choice.epsilon / 4)
        return max(np.abs(one - other).max() for one in law for other in law), tight

    moved, bound = worst(2)
    assert moved <= bound * (1 + 1e-9)
    moved, bound = worst(1)
    assert moved > bound


def test_stability_on_ten_thousand_records_stays_below_gamma():
    """A coupled Monte-Carlo estimate: the same subsets for both neighbours, and exact laws given the subset.

    The mean is about 0.012, a quarter of gamma, and the deviation of a mean of 400 differences is about 0.002.
    """
    units, gamma = 10_000, 0.05
    generator = np.random.default_rng(0)
    X = generator.uniform(size=units)
    y = ((X > 0.5) ^ (generator.uniform(size=units) < 0.3)).astype(np.int64)
    choice = StableChoice.calibrate(Thresholds(), units=units, gamma=gamma)
    other_X, other_y = X.copy(), y.copy()
    other_X[0], other_y[0] = 0.5, 1 - y[0]
    queries, moved = np.linspace(0.4, 0.6, 41), []
    for _ in range(400):
        units_in = secret_subset(units, choice.subset)
        laws = []
        for points, labels in ((X, y), (other_X, other_y)):
            candidates = Thresholds().dichotomies(points[units_in])
            scores = -float(choice.mechanism.rate) * candidates.mistakes(points, labels)
            weights = np.exp(scores - scores.max())
            cuts = np.array([candidate.cut for candidate in candidates])
            laws.append((cuts[:, np.newaxis] <= queries).T @ weights / weights.sum())
        moved.append(laws[0] - laws[1])
    assert np.abs(np.mean(moved, axis=0)).max() <= gamma


def test_gamma_is_used_up_and_never_exceeded():
    for units, gamma in itertools.product((50, 997, 10**6), (0.05, 0.3, 0.9)):
        choice = StableChoice.calibrate(Thresholds(), units=units, gamma=gamma)
        assert 0.999 * gamma < choice.gamma <= gamma
        assert choice.epsilon >= 2 * gamma * (1 - 1 / (units * gamma / 2))


def test_all_subsets_are_equally_likely():
    """Chi-squared with 9 degrees of freedom: above 60 with probability below 1e-8."""
    counts = {}
    for _ in range(5000):
        drawn = tuple(secret_subset(5, 2).tolist())
        counts[drawn] = counts.get(drawn, 0) + 1
    assert len(counts) == 10
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 60


# Agnostic: the whole way from records to an answer


def permuted(patch, permutation):
    patch.setattr("quorate.compute.ensemble.dealing._secret_permutation", lambda count: np.array(permutation))


def fitted(classifier, slots, sample, teachers, hypothesis):
    """Return the votes on the queries where this hypothesis relabels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExponentialChoice, "draw_choice", lambda *_: hypothesis)
        ensemble = classifier._ensemble(slots, sample, teachers)
    return ensemble.count(np.array(QUERIES)[:, np.newaxis]).put_to(lambda counts: counts)


def unfitted(concept):
    classifier = AgnosticClassifier(concept)
    classifier.concept_ = concept
    return classifier


def soft_majority(votes, epsilon):
    weights = np.exp(votes / SoftMajority(teachers=int(votes[0].sum()), epsilon_per_query=epsilon).scale)
    return weights / weights.sum(axis=1, keepdims=True)


def agnostic_law(sample, teachers, data):
    """Return the law of the answer to one query, over all permutations and all hypotheses that may relabel."""
    classifier, slots, law = unfitted(Thresholds()), records(data), np.zeros((len(QUERIES), 2))
    permutations = list(itertools.permutations(range(len(data))))
    for permutation in permutations:
        with pytest.MonkeyPatch.context() as patch:
            permuted(patch, permutation)
            for hypothesis, weight in chosen_from(lambda: classifier._ensemble(slots, sample, teachers)):
                law += weight * soft_majority(fitted(classifier, slots, sample, teachers, hypothesis), sample.epsilon)
    return law / len(permutations)


@pytest.mark.parametrize(
    ("sampled", "teachers", "kappa", "epsilon"),
    [(2, 2, 2.0, 1.0), (3, 3, 1.0, 4.0), (3, 3, 6.0, 4.0), (1, 1, 4.0, 2.0)],
)
def test_an_agnostic_answer_keeps_its_claim_on_all_small_data_sets(sampled, teachers, kappa, epsilon):
    sample = RelabelledSample(units=3, sampled=sampled, kappa=kappa, epsilon=epsilon, delta=1e-9)
    laws = {data: agnostic_law(sample, teachers, data) for data in data_sets(3)}
    loss = max(np.abs(np.log(laws[data] / laws[other])).max() for data in laws for other in neighbours(data))
    claim = sample.total(epsilon)[0]
    assert loss <= claim
    if kappa == 6.0:  # here the labels alone say more than the votes' own epsilon: without its term the claim is broken
        assert loss > claim - relabelling_epsilon(kappa=kappa)


def most_ballots_moved(*, by_row=False):
    """Return how many ballots move when one of three persons is replaced and relabelled rows of the others stay."""
    classifier, most = unfitted(Thresholds()), 0
    sample = RelabelledSample(units=3, sampled=3, kappa=1.0, epsilon=1.0, delta=1e-9, rows=2)
    common = [(0.0, 0), (2.0, 1), (1.0, 0), (2.0, 0)]
    hypotheses = [Thresholds().fit_erm(LINE, labels) for labels in ([0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1])]
    groups = {}  # by the labels that common rows get: whichever hypothesis is drawn on either side
    for permutation in itertools.permutations(range(6 if by_row else 3)):
        if by_row and permutation[0] > 1:
            continue  # enough of them to see it
        for person in itertools.product(every_row(), repeat=2):
            rows = [*person, *common]
            slots = UnitRows(
                np.array([[x] for x, _ in rows]), np.array([y for _, y in rows]), row_limit=1 if by_row else 2
            )
            one = RelabelledSample(units=6, sampled=6, kappa=1.0, epsilon=1.0, delta=1e-9) if by_row else sample
            for hypothesis in hypotheses:
                with pytest.MonkeyPatch.context() as patch:
                    permuted(patch, permutation)
                    votes = fitted(classifier, slots, one, 3, hypothesis)
                shown = permutation, tuple(hypothesis.predict([x for x, _ in common]).tolist())
                groups.setdefault(shown, []).append(votes[:, 1])
        if by_row and len(groups) > 40:
            break
    for votes in groups.values():
        most = max(most, int((np.max(votes, axis=0) - np.min(votes, axis=0)).max()))
    return most


def test_a_unit_moves_one_ballot_and_a_unit_in_two_chunks_is_caught():
    assert most_ballots_moved() == 1
    assert most_ballots_moved(by_row=True) == 2


def test_every_sample_and_every_seat_is_equally_likely():
    seen = {}
    slots = fill_unit_rows(np.arange(4.0)[:, np.newaxis], np.array([0, 0, 1, 1]))
    sample = RelabelledSample(units=4, sampled=2, kappa=1.0, epsilon=1.0, delta=1e-9)
    for permutation in itertools.permutations(range(4)):
        with pytest.MonkeyPatch.context() as patch:
            permuted(patch, permutation)
            patch.setattr(
                "quorate.models.predictors._agnostic.fit_concept_teachers",
                lambda *given, **_: (given[3].rows, given[3].sizes),
            )
            rows, sizes = unfitted(Thresholds())._ensemble(slots, sample, 2)
        assert sizes.tolist() == [1, 1]
        seen[tuple(rows.tolist())] = seen.get(tuple(rows.tolist()), 0) + 1
    assert len(seen) == 12
    assert set(seen.values()) == {2}


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_planned_sample_keeps_the_target(epsilon, rows):
    sample = plan_sample(Thresholds(), units=50_000, epsilon=epsilon, delta=1e-6, rows=rows)
    before = sample.epsilon + rows * 2 * math.log1p(math.exp(sample.kappa / 2))
    share = Fraction(sample.sampled, sample.units)
    assert math.log1p(float(share) * math.expm1(before)) <= epsilon  # the formula, written a second time
    assert float(share) * sample.delta <= 1e-6
    assert sample.total(sample.epsilon)[0] == pytest.approx(epsilon, rel=1e-6)


# Pure: one answer, without a delta


def largest_loss(laws):
    return max(np.abs(np.log(laws[data] / laws[other])).max() for data in laws for other in neighbours(data))


def turned(law, probability):
    """Return the law of both labels after a label is turned with this probability."""
    ones = float(probability) + (1 - 2 * float(probability)) * law
    return np.stack([1 - ones, ones], axis=1)


def pure_stable_loss(made, *, probability=None, **bug):
    often = made.turned if probability is None else probability
    units = made.choice.units
    return largest_loss(
        {data: turned(stable_law(made.choice, records(data), **bug), often) for data in data_sets(units)}
    )


@pytest.mark.parametrize("concept", [Thresholds(), Intervals()])
@pytest.mark.parametrize(("units", "subset", "epsilon"), [(3, 1, 1.0), (3, 2, 1.0), (4, 2, 2.0)])
def test_a_pure_stable_answer_keeps_its_epsilon_on_all_small_data_sets(concept, units, subset, epsilon):
    made = PureStable.calibrate(concept, units=units, epsilon=epsilon, subset=subset)
    assert 0.4 * epsilon < pure_stable_loss(made) <= made.epsilon <= epsilon


def test_bugs_of_the_pure_stable_answer_are_caught():
    made = PureStable.calibrate(Thresholds(), units=4, epsilon=2.0, subset=2)
    assert pure_stable_loss(made, factor=2.0) > 2.0  # weights without the half
    assert pure_stable_loss(made, probability=Fraction(0)) > 2.0  # a label that is never turned
    choice = StableChoice(concept=Thresholds(), units=4, subset=2, epsilon=1.0)
    printed = PureStable(choice=choice, turned=Fraction(1, 4))
    assert pure_stable_loss(printed) <= printed.epsilon


def test_both_bounds_of_the_pure_stable_answer():
    """Worst cases, written down: the subset decides all, or nothing, and the mechanism uses all of its epsilon."""
    for units, subset, epsilon, often in itertools.product((10, 100), (1, 3), (0.1, 1.0, 4.0), (0.01, 0.1, 0.4)):
        choice = StableChoice(concept=Thresholds(), units=units, subset=subset, epsilon=epsilon)
        made, rate = PureStable(choice=choice, turned=Fraction(often)), subset / units
        for start in np.linspace(0, 1, 200):
            # Under the neighbour label 1 has probability `start`; under the other at most this, by the mechanism alone.
            most = min(math.exp(epsilon) * start, 1 - math.exp(-epsilon) * (1 - start))
            moved = min(start + math.tanh(epsilon / 4), most)
            here, there = rate + (1 - rate) * moved, (1 - rate) * start
            assert math.log((often + (1 - 2 * often) * here) / (often + (1 - 2 * often) * there)) <= made.epsilon


def relabelling_law(made, data, *, factor=1.0, vote=1.0):
    """Return the law of both labels before the label is turned: all subsets, hypotheses and deals."""
    slots, law, known = records(data), np.zeros((len(QUERIES), 2)), {}
    subsets = list(itertools.combinations(range(made.units), made.subset))
    for units in subsets:
        drawn = chosen_from(lambda units=units: made.choice.draw_from(slots, np.array(units)), factor=factor)
        for hypothesis, weight in drawn:
            labels = tuple(hypothesis.predict(slots.points[:, 0]).tolist())
            if labels not in known:
                known[labels] = voted_law(made, slots, labels, vote)
            law += weight * known[labels]
    return law / len(subsets)


def voted_law(made, slots, labels, vote):
    permutations, law = list(itertools.permutations(range(made.units))), np.zeros((len(QUERIES), 2))
    for permutation in permutations:
        with pytest.MonkeyPatch.context() as patch:
            permuted(patch, permutation)
            deal, _ = deal_units(slots.owners, slots.units, teachers=made.teachers)
        ensemble = fit_concept_teachers(made.concept, slots.points, np.array(labels), deal)
        votes = ensemble.count(np.array(QUERIES)[:, np.newaxis]).put_to(lambda counts: counts)
        law += soft_majority(votes, made.majority.epsilon_per_query * vote)
    return law / len(permutations)


@pytest.mark.parametrize(("scale", "reach", "subset"), [(3.0, 0, 1), (1.0, 1, 2), (0.3, 0, 2)])
def test_a_relabelled_answer_keeps_its_epsilon_on_all_small_data_sets(scale, reach, subset):
    made = PureRelabelling(concept=Thresholds(), units=3, subset=subset, scale=scale, reach=reach, teachers=3)
    laws = {data: relabelling_law(made, data) for data in data_sets(3)}
    rest = math.exp(made.log_miss) * subset / 3
    for data, law in laws.items():
        for other in neighbours(data):
            assert (law <= math.exp(made.log_factor) * laws[other] + rest).all()  # steps 11 and 12
    often = float(made.flip_probability)
    assert largest_loss({data: often + (1 - 2 * often) * law for data, law in laws.items()}) <= made.log_factor
    assert (1 - 2 * often) * rest <= (math.exp(made.log_factor) - 1) * often  # step 13: all that is left is covered for


def test_bugs_of_the_relabelled_answer_are_caught():
    """Two constants are candidates of every subset, so that a unit counts in the weights alone: at most 3 / scale."""
    concept = Finite([lambda X: np.zeros(len(X)), lambda X: np.ones(len(X))], features=1)
    made = PureRelabelling(concept=concept, units=10, subset=1, scale=0.3, reach=0, teachers=10)

    def loss(*, factor=1.0, vote=1.0):
        laws = []
        for ones in (4, 5):
            slots, law = records([(0.0, int(unit < ones)) for unit in range(10)]), np.zeros(2)
            for hypothesis, weight in chosen_from(
                lambda slots=slots: made.choice.draw_from(slots, np.array([0])), factor=factor
            ):
                votes = 10 * np.eye(2)[hypothesis.predict([0.0])]
                law += weight * soft_majority(votes, made.majority.epsilon_per_query * vote)[0]
            laws.append(law)
        return np.abs(np.log(laws[0] / laws[1])).max()

    assert 0.5 * 3 / made.scale < loss() <= 3 / made.scale
    assert loss(factor=2.0) > 3 / made.scale  # weights without the half


@pytest.mark.parametrize(("subset", "reach"), [(3, 3), (4, 4), (5, 2)])
def test_how_often_a_subset_tells_too_few_hypotheses_apart(subset, reach):
    """Exactly, for the thresholds on eleven other points, and against the bound."""
    made = PureRelabelling(concept=Thresholds(), units=12, subset=subset, scale=9.0, reach=reach, teachers=3)
    missed, drawn = 0, list(itertools.combinations(range(11), subset - 1))
    rows = [tuple(int(point >= cut) for point in range(11)) for cut in range(12)]
    for chosen in drawn:
        missed += any(
            all(one[place] == other[place] for place in chosen)
            and sum(a != b for a, b in zip(one, other, strict=True)) > reach
            for one, other in itertools.combinations(rows, 2)
        )
    assert 0 < missed / len(drawn) <= math.exp(made.log_miss)


def test_a_planned_relabelling_keeps_epsilon():
    for units, epsilon in itertools.product((10**4, 10**6), (0.5, 1.0, 4.0)):
        made = PureRelabelling.calibrate(Thresholds(), units=units, epsilon=epsilon)
        rate, stretch = made.subset / units, (made.reach + 1) / made.scale
        grown = (1 + 4 * math.exp(3 * stretch) * rate / (1 - rate)) * math.exp(3 / made.scale)
        assert math.log(grown) <= made.log_factor <= epsilon  # the formula, written a second time
        for weight in (made.choice.epsilon / 2, made.majority.epsilon_per_query):  # the formula is about e-fold weights
            assert 0.999 < weight * made.scale <= 1
        assert made.error < 0.2
    printed = PureRelabelling(concept=Thresholds(), units=1000, subset=10, scale=100.0, reach=99, teachers=9)
    eta = 0.1
    r = 1 + 1 / (eta * 1000)
    assert math.exp(printed.log_factor) <= (1 + 4 * math.exp(3 * r) * 0.01 / 0.99) * math.exp(3 / (eta * 1000))


def within(frequency, probability, draws):
    """Whether a frequency is within seven deviations: it is not with probability below 1e-11."""
    return abs(frequency - probability) <= 7 * math.sqrt(max(probability * (1 - probability), 1 / draws) / draws)


def test_what_is_drawn_follows_the_enumerated_laws():
    data, draws = ((0.0, 0), (0.0, 1), (1.0, 0), (2.0, 1)), 3000
    slots, row, place = records(data), np.array([1.5]), QUERIES.index(1.5)
    choice = StableChoice(concept=Thresholds(), units=4, subset=2, epsilon=2.0)
    law = stable_law(choice, slots)[place]
    drawn = sum(int(choice.draw(slots).predict([1.5])[0]) for _ in range(draws))
    assert within(drawn / draws, law, draws)
    made = PureStable(choice=choice, turned=Fraction(1, 5))
    drawn = sum(made.draw(slots, row) for _ in range(draws))
    assert within(drawn / draws, turned(np.array([law]), 0.2)[0, 1], draws)
    relabelled = PureRelabelling(concept=Thresholds(), units=4, subset=2, scale=0.5, reach=0, teachers=2)
    law = relabelling_law(relabelled, data)[place, 1]
    drawn = sum(relabelled.draw(slots, row) for _ in range(800))
    often = float(relabelled.flip_probability)
    assert within(drawn / 800, often + (1 - 2 * often) * law, 800)


def test_a_label_is_turned_as_often_as_stated():
    drawn = sum(flip(0, Fraction(1, 7)) for _ in range(7000))
    assert within(drawn / 7000, 1 / 7, 7000)
    with pytest.raises(InvalidInput, match="flip takes a label"):
        flip(2, Fraction(1, 2))


# A hypothesis from a public cover


def cover_law(data, *, rows=1, epsilon=1.0, factor=1.0):
    slots = records(data)
    return chosen_from(
        lambda: choose_from_cover(Thresholds(), slots.points, slots.labels, [0.5, 1.5], epsilon=epsilon, rows=rows),
        factor=factor,
    )


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_hypothesis_from_a_public_cover_is_pure(factor):
    laws = {data: cover_law(data, factor=factor) for data in data_sets(3)}
    loss = 0.0
    for data, law in laws.items():
        for other in neighbours(data):
            there = dict(laws[other])
            assert there.keys() == dict(law).keys()
            loss = max(loss, *(math.log(weight / there[one]) for one, weight in law))
    assert (loss <= 1.0) == (factor == 1.0)  # weights without the half are caught


def test_two_rows_of_a_person_need_half_the_slope():
    def loss(rows):
        laws = []
        for person in itertools.product(every_row(), repeat=2):
            laws.append(dict(cover_law((*person, (1.0, 0)), rows=rows)))
        return max(math.log(one[h] / other[h]) for one in laws for other in laws for h in one)

    assert loss(2) <= 1.0 < loss(1)
