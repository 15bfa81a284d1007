"""Classes of one's own that fail on private rows: what is answered keeps its law, and no error leaves.

The laws are enumerated through the code that answers: every subset, every choice, and both outcomes of a turned label.
"""

import itertools
import math
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from quorate.auditing import entropy_tape
from quorate.auditing._choices import choice_law
from quorate.core.answerers import OneByOne
from quorate.core.hypotheses.sealed import seal_candidates, seal_concept, unseal_hypothesis, works_alone
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.mechanisms.relabel import Relabel
from quorate.core.privacy import Cost
from quorate.core.session import Session
from quorate.models.concepts import Concept, Dichotomies, Hypothesis, Intervals, Stumps, Thresholds, check_concept
from quorate.models.predictors import (
    AgnosticClassifier,
    PureClassifier,
    StableClassifier,
    UniversalClassifier,
)
from quorate.models.predictors import (
    _pure as pure,
)
from quorate.models.predictors._pure import PureStable
from quorate.models.predictors._stable import StableChoice
from quorate.models.predictors._universal import choose_from_cover
from quorate.models.predictors.concept_classifier import fill_unit_rows
from quorate.models.students.cover import SemiPrivateClassifier

LINE = (0.0, 1.0, 2.0)
QUERIES = (-0.5, 0.5, 1.5)
BAD = 1.0  # the row on which classes below fail


def fail_on(points, bad=BAD):
    if (points == bad).any():
        warnings.warn("about a private row", stacklevel=2)
        raise ValueError("about a private row")


class Cut(Hypothesis):
    features = 1

    def __init__(self, cut, ways=frozenset()):
        self.cut, self.ways = cut, ways

    def _predict(self, points):
        labels = (points[:, 0] >= self.cut).astype(np.int64)
        bad = points[:, 0] == BAD
        if "predict" in self.ways:
            fail_on(points)
        if "query" in self.ways:
            fail_on(points, 0.5)
        if "seven" in self.ways:
            return np.where(bad, 7, labels)
        if "nan" in self.ways:
            return np.where(bad, np.nan, labels)
        if "text" in self.ways and bad.any():
            return "none"
        if "matrix" in self.ways and bad.any():
            return np.stack([labels, labels], axis=1)
        if "writes" in self.ways:
            points[:] = 0.0
        return labels


class Cuts(Dichotomies):
    features = 1

    def __init__(self, points, ways):
        distinct = np.unique(points[:, 0])
        self.ways, self.bad = ways, BAD in distinct
        self.cuts = [-math.inf, *((distinct[1:] + distinct[:-1]) / 2).tolist(), math.inf][: len(distinct) + 1]

    def __len__(self):
        if "endless" in self.ways and self.bad:
            return 2**70
        return len(self.cuts)

    def _candidate(self, index):
        if "candidate" in self.ways and self.bad and index == 1:
            raise KeyError("about a private row")
        made = Cut(self.cuts[index], self.ways)
        if "columns" in self.ways and self.bad:
            made.features = 2
        return None if "none" in self.ways and self.bad else made


class FastCuts(Cuts):
    """Counts its mistakes by itself, and fails where a row is bad."""

    def _mistakes(self, points, labels):
        count = np.array([np.count_nonzero((points[:, 0] >= cut) != labels) for cut in self.cuts])
        if "count" in self.ways:
            fail_on(points)
        bad = bool((points == BAD).any())
        if "floats" in self.ways and bad:
            return count + 0.5
        if "short" in self.ways and bad:
            return count[:-1]
        if "negative" in self.ways and bad:
            return count - 100
        if "sorts" in self.ways:
            points.sort(axis=0)
            labels.sort()
        return count

    def _tally(self, points, labels):
        raise RuntimeError("a tally of one's own is not asked for")


class Own(Concept):
    """Thresholds of one's own, which fail in the ways that are named."""

    features, vc_dimension = 1, 1

    def __init__(self, *ways):
        self.ways = frozenset(ways)

    def _dichotomies(self, points):
        if "dichotomies" in self.ways:
            fail_on(points)
        if "together" in self.ways and len(np.unique(points)) > 1:
            raise RuntimeError("about two private rows")
        if "nothing" in self.ways and (points == BAD).any():
            return None
        if "other columns" in self.ways and (points == BAD).any():
            return Thresholds().dichotomies(points[:, 0]) if len(points) > 1 else Stumps(2).dichotomies([[1.0, 2.0]])
        kind = FastCuts if self.ways & {"count", "floats", "short", "negative", "sorts"} else Cuts
        return kind(points, self.ways)

    def _usable(self, points):
        if "usable" in self.ways:
            fail_on(points)
        return np.ones(len(points), dtype=np.bool_)


WAYS = [
    "sound",
    "predict",
    "query",
    "seven",
    "nan",
    "text",
    "matrix",
    "writes",
    "endless",
    "candidate",
    "columns",
    "none",
    "other columns",
    "count",
    "floats",
    "short",
    "negative",
    "sorts",
    "dichotomies",
    "together",
    "nothing",
    "usable",
]


def ways_in_turn(first):
    """Return all ways; the fast suite has every sixth, since the exact law of each takes a second."""
    return [pytest.param(way, marks=[] if place % 6 == first else [pytest.mark.long]) for place, way in enumerate(WAYS)]


class Asked(Exception):
    """Carries what was about to be chosen from."""


def answer_law(made, slots, query):
    """Return the probability that the answer of a PureStable, or of a StableChoice, is 1: exactly, but for floats."""
    choice = made.choice if isinstance(made, PureStable) else made
    draw = made.draw if isinstance(made, PureStable) else lambda s, row: int(made.draw(s).predict(row[np.newaxis])[0])
    fresh = Session(OneByOne(lambda row: draw(slots, row), Cost(0.0)), None)
    law, subsets = 0.0, list(itertools.combinations(range(slots.units), choice.subset))
    for units in subsets:
        for chosen, weight in chosen_by(fresh, np.array([query]), units):
            turned = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    "quorate.models.predictors._stable.secret_subset", lambda *_, units=units: np.array(units)
                )
                patch.setattr(ExponentialChoice, "choose", lambda *_, chosen=chosen, **__: chosen)
                patch.setattr(pure, "flip", lambda label, p, turned=turned: turned.append(p) or label)
                label = int(fresh.answerer.draw(np.array([[query]])).labels[0])
            rest = float(turned[0]) if turned else 0.0
            law += weight * (1 - rest if label else rest)
    return law / len(subsets)


def chosen_by(fresh, row, units):
    """Return each hypothesis that may be chosen, with its probability; [(None, 1)] where none is asked for."""
    seen = []

    def choose(self, tally, **_):
        seen.append((self, tally))
        raise Asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quorate.models.predictors._stable.secret_subset", lambda *_: np.array(units))
        patch.setattr(ExponentialChoice, "choose", choose)
        with suppress(Asked):
            fresh.answerer.draw(row[np.newaxis])
    if not seen:
        return [(None, 1.0)]
    mechanism, tally = seen[0]
    return list(choice_law(tally, float(mechanism.rate)).items())


def slots_of(data):
    return fill_unit_rows(np.array([[x] for x, _ in data]), np.array([label for _, label in data]))


def every_pair(units):
    rows = list(itertools.product(LINE, (0, 1)))
    for rest in itertools.combinations_with_replacement(rows, units - 1):
        yield from itertools.combinations([(row, *rest) for row in rows], 2)


def laws_of(made, units):
    laws = {}
    for pair in every_pair(units):
        for data in pair:
            key = tuple(sorted(data))
            if key not in laws:
                laws[key] = [answer_law(made, slots_of(data), query) for query in QUERIES]
    return laws


@pytest.mark.parametrize("way", ways_in_turn(0))
def test_no_record_moves_a_prediction_by_more_than_gamma_however_the_class_fails(way):
    choice = StableChoice(concept=Own(way), units=3, subset=1, epsilon=2.0)
    laws = laws_of(choice, 3)
    moved = max(
        abs(one - other)
        for pair in every_pair(3)
        for one, other in zip(*(laws[tuple(sorted(data))] for data in pair), strict=True)
    )
    assert moved <= choice.gamma


@pytest.mark.parametrize("way", ways_in_turn(3))
def test_a_pure_answer_keeps_its_epsilon_however_the_class_fails(way):
    """Found in an attack: where the class failed the label was 0, and was never turned."""
    made = PureStable.calibrate(Own(way), units=3, epsilon=1.0, subset=1)
    laws, worst = laws_of(made, 3), 0.0
    for pair in every_pair(3):
        for one, other in zip(*(laws[tuple(sorted(data))] for data in pair), strict=True):
            assert min(one, other, 1 - one, 1 - other) > 0
            worst = max(worst, abs(math.log(one / other)), abs(math.log((1 - one) / (1 - other))))
    assert worst <= 1.0 + 1e-9


def test_the_law_of_a_class_that_does_not_fail_is_that_of_the_package():
    own, known = (
        PureStable.calibrate(concept, units=3, epsilon=1.0, subset=2) for concept in (Own("sound"), Thresholds())
    )
    for data in itertools.islice(every_pair(3), 0, None, 7):
        for one in data:
            for query in (-0.5, 0.25, 2.5):
                laws = [answer_law(made, slots_of(one), query) for made in (own, known)]
                assert laws[0] == pytest.approx(laws[1])


def test_an_answer_of_a_class_that_always_fails_is_turned_as_often_as_it_must_be():
    class Broken(Own):
        def _dichotomies(self, points):
            raise RuntimeError("on everything")

    made = PureStable.calibrate(Broken(), units=3, epsilon=1.0, subset=1)
    assert answer_law(made, slots_of([(0.0, 0), (1.0, 1), (2.0, 1)]), 0.5) == pytest.approx(float(made.turned))


# ---------------------------------------------------------------- nothing leaves


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.long)])  # half of the kinds in turn, or all
@pytest.mark.parametrize("way", WAYS)
def test_no_error_and_no_warning_leaves_when_queries_are_answered(way, step):
    X = np.repeat([[0.0], [2.0], [3.0]], 40, axis=0)
    y = (X[:, 0] > 1).astype(int)
    makers = (
        lambda: StableClassifier(Own(way), gamma=0.5, classes=[0, 1]),
        lambda: PureClassifier(Own(way), epsilon=20.0, queries=3, classes=[0, 1]),
        lambda: PureClassifier(Own(way), epsilon=60.0, queries=3, classes=[0, 1], method="relabel"),
        lambda: PureClassifier(Own(way), epsilon=20.0, queries=3, classes=[0, 1], method="realizable"),
        lambda: AgnosticClassifier(Own(way), epsilon=20.0, queries=3, teachers=40, classes=[0, 1]),
        lambda: UniversalClassifier(Own(way), epsilon=40.0, ballots=2, teachers=40, classes=[0, 1]),
    )
    for make in makers[WAYS.index(way) % step :: step]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = make().fit(X, y)
            assert set(made.predict([[-1.0], [1.0], [5.0]]).tolist()) <= {0, 1, None}


def asked_of(concept, X, y):
    """Return what a classifier of this class answers, with all randomness from one tape."""
    with entropy_tape(5):
        return StableClassifier(concept, gamma=0.5).fit(X, y).predict([[0.0], [2.0], [5.0]]).tolist()


@pytest.mark.parametrize(
    "way", ["predict", "seven", "nan", "text", "matrix", "dichotomies", "candidate", "nothing", "none"]
)
def test_rows_on_which_a_class_fails_count_as_zeros_and_refuse_nobody(way):
    X = np.repeat([[0.0], [1.0], [2.0]], 30, axis=0)
    y = (X[:, 0] > 1).astype(int)
    assert asked_of(Own(way), X, y) == asked_of(Own(way), np.where(X == 1.0, 0.0, X), y)
    assert works_alone(Own(way), np.array([[0.0], [1.0], [2.0]])).tolist() == [True, False, True]


def test_a_row_that_a_class_cannot_judge_is_not_usable():
    X = np.repeat([[0.0], [1.0], [2.0]], 30, axis=0)
    y = (X[:, 0] > 1).astype(int)
    assert asked_of(Own("usable"), X, y) == asked_of(Own("usable"), np.where(X == 1.0, 0.0, X), y)
    assert seal_concept(Own("usable")).usable([0.0, 1.0, 2.0]).tolist() == [True, False, True]


@pytest.mark.parametrize("way", ["predict", "seven", "dichotomies", "usable", "nothing"])
def test_relabelling_leaves_out_a_row_on_which_the_class_fails_and_no_other(way):
    X, y = [0.0] * 20 + [1.0] * 3 + [2.0] * 20, [0] * 20 + [1] * 3 + [1] * 20
    new = Relabel(concept=Own(way), kappa=50.0).relabel(X, y, unlabelled=[1.0, 5.0])
    assert new.labels.tolist() == [0] * 20 + [-1] * 3 + [1] * 20
    assert new.unlabelled.tolist() == [-1, 1]


@pytest.mark.parametrize("way", ["predict", "seven", "count", "floats", "candidate", "sound", "sorts"])
def test_a_cover_is_chosen_from_whatever_private_rows_do(way):
    X, y = np.array([[0.0]] * 50 + [[1.0]] + [[2.0]] * 50), [0] * 50 + [0] + [1] * 50
    before = X.copy()
    hypothesis, _ = choose_from_cover(Own(way), X, y, [0.0, 1.5], epsilon=5.0)
    assert isinstance(hypothesis, Cut)  # as its class made it
    assert hypothesis.predict([2.0, -2.0]).tolist() == [1, 0]
    made = SemiPrivateClassifier(Own(way), epsilon=5.0, classes=[0, 1]).fit(X, y, public=[[0.0], [1.5]])
    assert isinstance(made.hypothesis_, Cut)
    assert np.array_equal(X, before)


def test_errors_about_public_points_are_told():
    with pytest.raises((ValueError, UserWarning), match="about a private row"):
        choose_from_cover(Own("dichotomies"), [0.0], [0], [1.0], epsilon=1.0)
    with pytest.raises((ValueError, UserWarning), match="about a private row"):
        check_concept(Own("predict"), [0.0, 1.0, 2.0])


@pytest.mark.parametrize("others", [1, pytest.param(2, marks=pytest.mark.long)])
def test_one_row_moves_the_mistakes_of_a_failing_class_by_one_at_most(others):
    for way in WAYS:
        candidates = seal_concept(Own(way)).dichotomies([0.0, 2.0])
        rows = list(itertools.product((*LINE, math.nan), (0, 1, 7)))
        for rest in itertools.combinations(rows, others):
            counts = [
                candidates.mistakes([[x] for x, _ in (row, *rest)], [label for _, label in (row, *rest)])
                for row in rows
            ]
            assert np.ptp(counts, axis=0).max() <= 1, way


def test_classes_of_the_package_are_what_they_were():
    for concept in (Thresholds(), Intervals()):
        assert seal_concept(concept) is concept
        candidates = concept.dichotomies([1.0, 2.0])
        assert seal_candidates(candidates) is candidates
        assert unseal_hypothesis(candidates[0]) == candidates[0]

    class Mine(Intervals):
        """Somebody else's, with the candidates of the package: too many to be listed, and counted all the same."""

    points = np.arange(12_000.0)
    tally = seal_concept(Mine()).dichotomies(points).tally(points, np.zeros(12_000, dtype=int))
    assert tally.counts.sum() == 12_000 * 12_001 // 2 + 1


class Calling:
    """A class that does something before it lists its dichotomies."""

    def __init__(self, do):
        self.do = do

    def dichotomies(self, points):
        self.do()
        return Thresholds().dichotomies(points)


def test_warnings_of_a_class_of_ones_own_are_silent_whoever_leaves_first():
    """A filter of the owner that makes errors of warnings would make the class fail on a row, by who else is there."""
    started, inside, left = threading.Event(), threading.Event(), threading.Event()

    def first():
        started.set()
        inside.wait(60)

    def second():
        inside.set()
        left.wait(60)
        warnings.warn("of a private row", stacklevel=1)

    row = np.zeros((1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(works_alone, Calling(first), row)
            started.wait(60)
            other = pool.submit(works_alone, Calling(second), row)
            assert one.result(60).all()
            left.set()
            assert other.result(60).all()
        assert warnings.filters == before
