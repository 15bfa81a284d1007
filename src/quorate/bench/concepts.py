"""Private selection among the dichotomies of large point sets: time and memory; and the theory, measured."""

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from quorate.bench.figures import Figure, peak_bytes
from quorate.bench.sweeps import answered_queries, excess_sweep, exponent, plateau_errors
from quorate.models.concepts import Boxes, Concept, Halfspaces, Intervals, Stumps, Thresholds

__all__ = ["selection_figures", "semi_private_figures", "stability_figures", "theory_figures"]

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
    from quorate.models.predictors.stable_choice import StableChoice
    from quorate.planner.concepts import plan_concept

    rows = 3 if quick else 4
    choice = StableChoice.calibrate(Thresholds(), units=rows, gamma=0.6, subset=1)
    every = list(itertools.product([0.0, 1.0, 2.0], (0, 1)))
    subsets = [np.array(chosen) for chosen in itertools.combinations(range(rows), choice.subset)]
    shown = {data: _chances(choice, data, subsets, [0.0, 1.0, 2.0]) for data in itertools.product(every, repeat=rows)}
    moved = max(float(np.abs(shown[data] - shown[changed, *data[1:]]).max()) for data in shown for changed in every)
    yield "stable.exact_share_of_gamma", moved / choice.gamma, "ratio"
    generator = np.random.default_rng()
    choice = StableChoice.calibrate(Thresholds(), units=10_000, gamma=0.1)
    x = generator.uniform(-1, 1, size=10_000)
    here = [(float(place), int((place > 0) ^ (generator.uniform() < 0.2))) for place in x]
    drawn = [generator.permutation(10_000)[: choice.subset] for _ in range(20 if quick else 200)]
    there = [(0.0, 1 - here[0][1]), *here[1:]]  # moved to where it matters most, with the other label
    places = np.linspace(-0.05, 0.05, 21).tolist()
    moved = float(np.abs(_chances(choice, here, drawn, places) - _chances(choice, there, drawn, places)).max())
    yield "stable.sampled_share_of_gamma", moved / choice.gamma, "ratio"
    planned = plan_concept(records=10**6, vc_dimension=3, gamma=0.1, alpha=0.1, queries=1).method("stable")
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
    sweeps: list[tuple[str, str, Concept, tuple[int, ...], int]] = [
        ("thresholds", "agnostic", Thresholds(both_directions=False), (20_000, 320_000), 6 if quick else 16),
        ("thresholds", "stable", Thresholds(both_directions=False), (1000, 4000, 16_000), 10 if quick else 60),
        ("thresholds", "pure", Thresholds(both_directions=False), (1000, 4000, 16_000), 10 if quick else 60),
        ("thresholds", "semi-private", Thresholds(both_directions=False), (1000, 4000, 16_000), 20 if quick else 100),
        ("halfspaces", "stable", Halfspaces(2), (1000, 8000), 3 if quick else 8),
        ("halfspaces", "pure", Halfspaces(2), (1000, 8000), 3 if quick else 8),
        ("halfspaces", "semi-private", Halfspaces(2), (1000, 8000), 3 if quick else 8),
    ]
    for name, method, concept, sizes, repeats in sweeps:
        sweep = excess_sweep(method, concept, sizes, repeats=repeats)
        yield f"theory.excess_exponent.{name}.{method.replace('-', '_')}", sweep.exponent, "power of n"
        yield f"theory.excess_at_most_records.{name}.{method.replace('-', '_')}", sweep.errors[-1], "error"
    runs = [
        plateau_errors(Thresholds(both_directions=False), records=200_000, gamma=0.2) for _ in range(1 if quick else 5)
    ]
    for method in ("subsample", "agnostic"):
        yield f"theory.noise20.{method}_over_gamma", float(np.mean([run[method] for run in runs])) / 0.2, "ratio"
    for method, queries in answered_queries(records=1_000_000).items():
        yield f"theory.queries_of_1e6_records.{method}", float(queries), "queries"
