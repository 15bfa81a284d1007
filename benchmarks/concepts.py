"""What the theory of classes of hypotheses says, measured on the methods themselves, with their own noise.

The excess error of an answer is how much more often it is wrong than the best hypothesis. Where labels are right with
probability 1/2 + b, a wrong cut costs 2b for every point that it moves to the wrong side. The worst b shrinks like
1/sqrt(n): a sweep takes the worst of a ladder, which is what a bound over all distributions speaks of.

Private selection among the dichotomies of large point sets: time and memory; and the theory, measured.
"""

import itertools
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, peak_bytes
from quorate.models.concepts import Boxes, Concept, Halfspaces, Intervals, Stumps, Thresholds

_LADDER = (2.0, 5.0, 12.0, 30.0)  # b, in units of 1/sqrt(n); and 1/2: labels without noise

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Sweep:
    """The worst mean excess error of a method at each number of records."""

    method: str
    records: tuple[int, ...]
    errors: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope of the error against the records, both as logarithms."""
        return exponent(self.records, self.errors)


def exponent(sizes: Any, values: Any) -> float:
    """Return the power of `sizes` that fits the values best."""
    return round(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), 6)


def _points(concept: Concept, rows: int, generator: np.random.Generator) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return points and the label of the best hypothesis: a cut in the middle of a line, or of a square."""
    X = generator.uniform(-1, 1, size=(rows, concept.features))
    return X, X[:, 0] > 0


def _wrong(hypothesis: Any, concept: Concept) -> float:
    """Return the mass of points at which a hypothesis differs from the best one."""
    X, right = _points(concept, 4000, np.random.default_rng())
    if concept.features == 1:
        X = np.linspace(-1, 1, 20_000)[:, np.newaxis]
        right = X[:, 0] > 0
    return float(np.mean(hypothesis.predict(X) != right))


def _agnostic(concept: Concept, X: Numbers, y: Any) -> float:
    from quorate.models.predictors import AgnosticClassifier

    queries = 40
    settings: dict[str, Any] = {"aggregator": "sharp_majority", "classes": [0, 1]}  # one that answers every query
    classifier = AgnosticClassifier(concept, epsilon=1.0, delta=1e-6, queries=queries, **settings).fit(X, y)
    points, _ = _points(concept, queries, np.random.default_rng())
    points[:, 0] = (2 * np.arange(queries) + 1 + points[:, 0]) / queries - 1  # one in each stripe
    return float(np.mean(classifier.predict(points).labels != (points[:, 0] > 0)))


def _stable(concept: Concept, X: Numbers, y: Any) -> float:
    from quorate.models.predictors._stable import StableChoice
    from quorate.models.predictors.concept_classifier import fill_unit_rows

    choice = StableChoice.calibrate(concept, units=len(y), gamma=0.1, subset=_subset(concept, len(y)))
    return _wrong(choice.draw(fill_unit_rows(X, y)), concept)


def _pure(concept: Concept, X: Numbers, y: Any) -> float:
    from quorate.models.predictors import PureClassifier
    from quorate.models.predictors.concept_classifier import fill_unit_rows

    subset: Any = _subset(concept, len(y)) or "auto"
    scheme = PureClassifier(concept, epsilon=1.0, subset=subset, classes=[0, 1]).fit(X, y).scheme_
    wrong, turned = _wrong(scheme.choice.draw(fill_unit_rows(X, y)), concept), float(scheme.turned)
    return wrong * (1 - turned) + (1 - wrong) * turned


def _semi_private(concept: Concept, X: Numbers, y: Any) -> float:
    from quorate.models.students import SemiPrivateClassifier

    number = _subset(concept, len(y)) or 2 * math.isqrt(len(y))  # of the order of 1 / error
    public, _ = _points(concept, number, np.random.default_rng())
    classifier = SemiPrivateClassifier(concept, epsilon=1.0, classes=[0, 1]).fit(X, y, public=public)
    return _wrong(classifier.hypothesis_, concept)


METHODS: dict[str, Callable[[Concept, Numbers, Any], float]] = {
    "agnostic": _agnostic,
    "stable": _stable,
    "pure": _pure,
    "semi-private": _semi_private,
}


def _subset(concept: Concept, records: int) -> int | None:
    """Return how many units define candidates: few where their dichotomies are many."""
    return None if concept.features == 1 else math.isqrt(records // 2)


def _excess(method: str, concept: Concept, records: int, bias: float) -> float:
    """Return the excess error of one fit: exact where one hypothesis answers, else over some queries."""
    generator = np.random.default_rng()
    X, right = _points(concept, records, generator)
    y = (right ^ (generator.uniform(size=records) > 0.5 + bias)).astype(np.int64)
    return 2 * bias * METHODS[method](concept, X, y)


def excess_sweep(method: str, concept: Concept, sizes: tuple[int, ...], *, repeats: int = 10) -> Sweep:
    """Return the worst mean excess error of a method at each number of records.

    Every answer has epsilon 1, or for "stable" gamma 0.1; "agnostic" shares epsilon 1 among 40 queries.
    """
    errors = []
    for records in sizes:
        ladder = sorted({0.5, *(min(0.5, step / math.sqrt(records)) for step in _LADDER)})
        means = [np.mean([_excess(method, concept, records, bias) for _ in range(repeats)]) for bias in ladder]
        errors.append(float(max(means)))
    return Sweep(method, sizes, tuple(errors))


def plateau_records(
    rows: int, *, gamma: float, features: int, places: Numbers | None = None
) -> tuple[Numbers, NDArray[np.int64]]:
    """Return records of which two very different hypotheses are the best, each wrong with probability gamma.

    From left to right: zeros; ones of mass gamma; zeros of mass gamma; ones. A cut at either end of the middle is wrong
    on one of its halves, and a cut in between is worse than both. `places` may say where the records stand.
    """
    X = np.random.default_rng().uniform(-1, 1, size=(rows, features))
    if places is not None:
        X[:, 0] = places
    X[:, 1:] *= 0.01  # in the plane: a thin strip, so that only the first feature tells labels apart
    x = X[:, 0]
    y = np.where(x < -2 * gamma, 0, np.where(x < 0, 1, np.where(x < 2 * gamma, 0, 1)))
    return X, y.astype(np.int64)


def plateau_errors(
    concept: Concept,
    *,
    records: int,
    gamma: float,
    queries: int = 100,
    teachers: int = 600,
    epsilon: float = 4.0,
) -> dict[str, float]:
    """Return how often teachers on plain chunks, and on relabelled ones, do not give the label of `plateau_records`.

    Half of the plain teachers take one best hypothesis and half the other, so that the whole middle, 2 gamma, finds no
    quorum or a coin's answer. Relabelling settles on one of the two first.
    """
    from quorate.models.predictors import AgnosticClassifier, PrivateClassifier
    from quorate.models.predictors.concept_classifier import ErmClassifier

    X, y = plateau_records(records, gamma=gamma, features=concept.features)
    grid = (2 * np.arange(queries) + 1) / queries - 1
    points, expected = plateau_records(queries, gamma=gamma, features=concept.features, places=grid)
    shared: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "queries": queries, "teachers": teachers}
    shared |= {"classes": [0, 1], "aggregator": "quorum", "no_quorums": queries}
    classifiers: dict[str, Any] = {
        "subsample": PrivateClassifier(ErmClassifier(concept), **shared),
        "agnostic": AgnosticClassifier(concept, **shared),
    }
    return {
        name: float(np.mean(np.asarray(classifier.fit(X, y).predict(points).tolist(), dtype=object) != expected))
        for name, classifier in classifiers.items()
    }


def answered_queries(*, records: int, most: int = 2**24) -> dict[str, int]:
    """Return how many queries this many records of thresholds can answer where one label in five is wrong.

    A power of two: the largest for which nine in ten are expected to get the label of most teachers. Plain teachers
    disagree by a fifth; those on relabelled chunks by a fiftieth, and pay for relabelling. "published" is the stability
    test on plain teachers with its published constants. A teacher has 20 units or more; epsilon is 1, delta 1e-6.
    """
    from quorate.models.predictors._agnostic import plan_sample
    from quorate.planner import plan
    from quorate.planner._comparison import stability_teachers

    sample = plan_sample(Thresholds(), units=records, epsilon=1.0, delta=1e-6)
    fixed = {"aggregator": "sharp_majority"}  # the best of all here, and the fastest to plan
    inner = {"records": sample.sampled, "epsilon": sample.epsilon, "delta": sample.delta, "disagreement": 0.02, **fixed}
    plain = {"records": records, "epsilon": 1.0, "delta": 1e-6, "disagreement": 0.2, **fixed}

    def published(queries: int) -> bool:
        return stability_teachers(epsilon=1.0, delta=1e-6, queries=queries, disagreement=0.2)[0] * 20 <= records

    return {
        "agnostic": _largest(lambda queries: plan(queries=queries, **inner).right >= 0.9, most),  # type: ignore[arg-type]
        "subsample": _largest(lambda queries: plan(queries=queries, **plain).right >= 0.9, most),  # type: ignore[arg-type]
        "published": _largest(published, most),
    }


def _largest(does: Callable[[int], bool], most: int) -> int:
    """Return the largest power of two up to `most` for which it does, or 0; it does for all smaller ones then."""
    low, high = -1, most.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if does(2**middle) else (low, middle)
    return 2**low if low >= 0 else 0


_SELECTIONS: dict[str, tuple[Concept, int]] = {
    "thresholds": (Thresholds(both_directions=True), 1_000_000),
    "stumps": (Stumps(features=100), 100_000),
    "intervals": (Intervals(), 100_000),
    "boxes": (Boxes(2), 100),
    "halfspaces": (Halfspaces(2), 500),
}
_GROWING = ("thresholds", "stumps", "intervals")


def _select(concept: Concept, rows: int) -> tuple[float, float, int]:
    """Return the seconds, the CPU seconds and the peak memory of one exact choice by the labels of this many points."""
    from quorate.core.mechanisms.exponential import ExponentialChoice

    generator = np.random.default_rng()
    X = generator.normal(size=(rows, concept.features))
    y = ((X[:, 0] > 0) ^ (generator.uniform(size=rows) < 0.2)).astype(int)
    start, cpu = time.perf_counter(), time.process_time()
    ExponentialChoice(epsilon=1.0).choose(concept.dichotomies(X).tally(X, y))
    return time.perf_counter() - start, time.process_time() - cpu, peak_bytes()


def selection_figures(quick: bool) -> Iterator[Figure]:
    """Measure an exact choice in a process of its own for each class, and how its CPU time grows over a decade.

    n log n has an exponent of about 1.1 over these decades; caches that a larger set outgrows add to it.
    """
    share = 10 if quick else 1
    spawn = multiprocessing.get_context("spawn")
    for name, (concept, rows) in _SELECTIONS.items():
        size = rows // share if name in _GROWING else rows
        with spawn.Pool(1) as pool:
            runs = [pool.apply(_select, (concept, size)) for _ in range(1 if quick else 3)]
        seconds, peak = min(run[0] for run in runs), max(run[2] for run in runs)
        yield f"concepts.select_seconds.{name}", seconds, "s"
        yield f"concepts.select_peak_bytes.{name}", float(peak), "bytes"
    for name in _GROWING:
        concept, rows = _SELECTIONS[name]
        sizes = [int(rows // share / 10 * 10 ** (step / 4)) for step in range(5)]
        _select(concept, sizes[0])  # what is loaded once is not counted
        times = [min(_select(concept, size)[1] for _ in range(3)) for size in sizes]
        yield f"concepts.select_exponent.{name}", exponent(sizes, times), "power of n"


def semi_private_figures(quick: bool) -> Iterator[Figure]:
    """Measure the exact loss of a published hypothesis over all small data sets, as a share of epsilon."""
    from quorate.core.mechanisms.exponential import ExponentialChoice

    cover = Thresholds(both_directions=True).dichotomies([0.5, 1.5])
    rate, rows = float(ExponentialChoice(epsilon=2.0).rate), 2 if quick else 4
    every = list(itertools.product([0.0, 1.0, 2.0], (0, 1)))
    laws = {}
    for data in itertools.product(every, repeat=rows):
        weights = np.exp(-rate * cover.mistakes([x for x, _ in data], [label for _, label in data]))
        laws[data] = np.log(weights / weights.sum())
    worst = max(float((laws[data] - laws[changed, *data[1:]]).max()) for data in laws for changed in every)
    yield "semi_private.exact_share_of_epsilon", worst / 2.0, "ratio"


def stability_figures(quick: bool) -> Iterator[Figure]:
    """Measure by how much one record moves a prediction of `StableClassifier`, as a share of gamma.

    Exactly over all data sets of a few rows and all subsets; and on 10,000 records by the mean over random subsets of
    the exact probability given the subset, the same subsets for both neighbours.
    """
    from quorate.models.predictors._stable import StableChoice
    from quorate.planner._concepts import plan_concept

    rows = 3 if quick else 4
    choice = StableChoice.calibrate(Thresholds(), units=rows, gamma=0.6, subset=1)
    every = list(itertools.product([0.0, 1.0, 2.0], (0, 1)))
    subsets = [np.array(chosen) for chosen in itertools.combinations(range(rows), choice.subset)]
    chances = {data: _chances(choice, data, subsets, [0.0, 1.0, 2.0]) for data in itertools.product(every, repeat=rows)}
    moved = max(
        float(np.abs(chances[data] - chances[changed, *data[1:]]).max()) for data in chances for changed in every
    )
    yield "stable.exact_share_of_gamma", moved / choice.gamma, "ratio"
    generator = np.random.default_rng()
    choice = StableChoice.calibrate(Thresholds(), units=10_000, gamma=0.1)
    x = generator.uniform(-1, 1, size=10_000)
    here = [(float(value), int((value > 0) ^ (generator.uniform() < 0.2))) for value in x]
    subsets_drawn = [generator.permutation(10_000)[: choice.subset] for _ in range(20 if quick else 200)]
    there = [(0.0, 1 - here[0][1]), *here[1:]]  # moved to where it matters most, with the other label
    points = np.linspace(-0.05, 0.05, 21).tolist()
    moved = float(
        np.abs(_chances(choice, here, subsets_drawn, points) - _chances(choice, there, subsets_drawn, points)).max()
    )
    yield "stable.sampled_share_of_gamma", moved / choice.gamma, "ratio"
    planned = plan_concept(records=10**6, vc_dimension=3, gamma=0.1, alpha=0.1, queries=1).methods[-1]
    assert planned.needed is not None
    assert planned.least is not None
    yield "stable.records_over_lower_bound", planned.needed / planned.least, "ratio"


def _chances(choice: Any, data: Any, subsets: Any, places: list[float]) -> Any:
    """Return the mean over subsets of the exact probability that a prediction at each place is 1."""
    X, y = np.array([[x] for x, _ in data]), np.array([label for _, label in data])
    rate = float(choice.mechanism.rate)
    chances = []
    for subset in subsets:
        candidates = choice.concept.dichotomies(X[subset])
        mistakes = candidates.mistakes(X, y)
        weights = np.exp(-rate * (mistakes - mistakes.min()))
        says = np.array([candidate.predict(places) for candidate in candidates])
        chances.append(weights @ says / weights.sum())
    return np.mean(chances, axis=0)


def theory_figures(quick: bool) -> Iterator[Figure]:
    """Measure how the excess error falls with records, what label noise costs, and how many queries are answered."""
    line, plane = Thresholds(both_directions=False), Halfspaces(2)
    sweeps: list[tuple[str, str, Concept, tuple[int, ...], tuple[int, int]]] = [  # with repeats, in full and quick
        ("thresholds", "agnostic", line, (20_000, 320_000), (16, 6)),
        ("thresholds", "stable", line, (1000, 4000, 16_000), (60, 10)),
        ("thresholds", "pure", line, (1000, 4000, 16_000), (60, 10)),
        ("thresholds", "semi-private", line, (1000, 4000, 16_000), (100, 20)),
        ("halfspaces", "stable", plane, (1000, 8000), (8, 3)),
        ("halfspaces", "pure", plane, (1000, 8000), (8, 3)),
        ("halfspaces", "semi-private", plane, (1000, 8000), (8, 3)),
    ]
    for name, method, concept, sizes, repeats in sweeps:
        sweep = excess_sweep(method, concept, sizes, repeats=repeats[quick])
        yield f"theory.excess_exponent.{name}.{method.replace('-', '_')}", sweep.exponent, "power of n"
        yield f"theory.excess_at_most_records.{name}.{method.replace('-', '_')}", sweep.errors[-1], "error"
    runs = [plateau_errors(line, records=200_000, gamma=0.2) for _ in range(1 if quick else 5)]
    for method in ("subsample", "agnostic"):
        yield f"theory.noise20.{method}_over_gamma", float(np.mean([run[method] for run in runs])) / 0.2, "ratio"
    for method, queries in answered_queries(records=1_000_000).items():
        yield f"theory.queries_of_1e6_records.{method}", float(queries), "queries"


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of private selection, stability and theory."""
    yield from selection_figures(quick)
    yield from semi_private_figures(quick)
    yield from stability_figures(quick)
    yield from theory_figures(quick)
