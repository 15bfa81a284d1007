"""Everlasting prediction played through phases, and what came of it: shares, drift, seconds.

Points of the line are uniform on the unit interval, and the boundary is at its middle; drift is measured in mass.

Everlasting prediction: how many records it takes, how often it abstains and errs, how far it drifts, how fast it is.

Everything is drawn afresh, with real noise, so that figures vary a little from run to run. Every epsilon and delta is
that of a record and that of a query, cutoff included. A run "works" if no query is refused, at most one in five finds
no quorum, and few answers are wrong.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data import read_adult
from benchmarks.figures import Figure, data_folder
from quorate.core.errors import Infeasible
from quorate.models.concepts import Thresholds
from quorate.models.everlasting import EverlastingClassifier
from quorate.models.everlasting.directions import MeanDirection

_PROBES = 4001
_BATCH = 50_000
_TAU = 1.1e10  # the tau of GenericBBL must be above this


@dataclass(frozen=True)
class Course:
    """What came of several phases: shares over all of their queries, and the largest drift that was met."""

    queries: int
    no_quorum: int
    refused: int
    wrong: int
    drift: float
    seconds: float

    @property
    def no_quorum_percent(self) -> float:
        """Queries without a quorum, in percent of those that were not refused."""
        return 100 * self.no_quorum / max(1, self.queries - self.refused)

    @property
    def error_percent(self) -> float:
        """Wrong answers, in percent of all answers."""
        return 100 * self.wrong / max(1, self.queries - self.refused - self.no_quorum)


def run_phases(
    classifier: EverlastingClassifier,
    draw: Callable[[int], tuple[Any, Any]],
    *,
    records: int,
    phases: int,
    drift: Callable[[EverlastingClassifier], float] = lambda _: 0.0,
) -> Course:
    """Fit on fresh records and ask through several phases, in batches; `draw` gives points with their labels."""
    start = time.perf_counter()
    arrivals = classifier.fit(*draw(records)).session_.answerer
    counts, largest = np.zeros(4, dtype=np.int64), 0.0
    for _ in range(phases):
        remaining = arrivals.seats.free or arrivals.next_size()
        while remaining:
            X, truth = draw(min(_BATCH, remaining))
            remaining -= len(X)
            predictions = classifier.predict(X)
            answered = predictions.answered
            wrong = int(np.count_nonzero(predictions.labels[answered].astype(np.int64) != truth[answered]))
            counts += len(X), int(predictions.no_quorum.sum()), predictions.refused, wrong
        largest = max(largest, drift(classifier))
    queries, no_quorum, refused, wrong = counts.tolist()
    return Course(queries, no_quorum, refused, wrong, drift=largest, seconds=time.perf_counter() - start)


def line_points(rows: int) -> Any:
    """Return uniform points of the unit interval."""
    return np.random.default_rng().random((rows, 1))


def line_truth(X: Any) -> Any:
    """Return which points lie in the upper half."""
    return (X[:, 0] >= 0.5).astype(np.int64)


def line_drift(classifier: EverlastingClassifier) -> float:
    """Return how far the boundary of the majority lies from the middle: the owner's look at his own teachers."""
    probes = np.linspace(0.3, 0.7, _PROBES)[:, np.newaxis]
    ahead = classifier.session_.answerer.ensemble.count(probes).put_to(lambda votes: votes[:, 1] > votes[:, 0])
    return abs(0.7 - 0.4 * float(ahead.mean()) - 0.5)


def line_course(*, records: int, phases: int, **settings: Any) -> Course:
    """Play phases of thresholds on the unit interval; each has as many queries as records, unless they grow."""

    def draw(rows: int) -> tuple[Any, Any]:
        X = line_points(rows)
        return X, line_truth(X)

    chosen: dict[str, Any] = {"delta": 1e-6, "chunk": 3, "classes": [0, 1]} | settings
    classifier = EverlastingClassifier(Thresholds(both_directions=False), **chosen)
    return run_phases(classifier, draw, records=records, phases=phases, drift=line_drift)


def halfspace_course(estimator: Any = None, *, dimensions: int, records: int, phases: int, **settings: Any) -> Course:
    """Play phases of a halfspace through the origin among Gaussian points, at epsilon 2; one-row directions teach."""
    slope = np.ones(dimensions)

    def draw(rows: int) -> tuple[Any, Any]:
        X = np.random.default_rng().normal(size=(rows, dimensions))
        return X, (X @ slope >= 0).astype(np.int64)

    chosen: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "chunk": 1, "classes": [0, 1]} | settings
    classifier = EverlastingClassifier(MeanDirection() if estimator is None else estimator, **chosen)
    return run_phases(classifier, draw, records=records, phases=phases)


_ABSTAINED = 20.0  # percent of queries without quorum, at most, where it works


def _course_figures(name: str, course: Course, *more: str) -> Iterator[Figure]:
    yield f"everlasting.{name}.no_quorum_percent", course.no_quorum_percent, "percent"
    yield f"everlasting.{name}.error_percent", course.error_percent, "percent"
    yield f"everlasting.{name}.refused", course.refused, "queries"
    units = {"drift": "mass", "seconds": "s", "queries": "queries"}
    yield from ((f"everlasting.{name}.{figure}", getattr(course, figure), units[figure]) for figure in more)


def _threshold_figures(quick: bool) -> Iterator[Figure]:
    """Phases grow to twice (eight times) the number of records: the boundary then comes to rest (PROOF.md, step 17).

    The fewer the records, the faster phases must grow; the first ones then have more queries without quorum. With
    `quick` there are two phases, too few to grow: the smaller run has phases of one size.
    """
    phases = 2 if quick else 30
    large: dict[str, Any] = {"epsilon": 1.0, "no_quorums": 3500, "chunk": 15, "growth": 1.1, "max_phase_size": 600_000}
    small: dict[str, Any] = {"epsilon": 1.0, "no_quorums": 5200, "chunk": 6, "growth": 1.3, "max_phase_size": 800_000}
    if quick:
        small = {"epsilon": 1.0, "no_quorums": 2700, "chunk": 3}
    course = line_course(records=300_000, phases=phases, **large)
    yield from _course_figures("thresholds.n300000", course, "drift", "seconds", "queries")
    yield from _course_figures(
        "thresholds.n100000", line_course(records=100_000, phases=phases, **small), "drift", "queries"
    )
    for records, no_quorums, chunk in ((300_000, 3400, 15), (100_000, 2700, 3)):  # phases of one size: it walks
        even = line_course(records=records, phases=phases, epsilon=1.0, no_quorums=no_quorums, chunk=chunk)
        yield from _course_figures(f"thresholds.even.n{records}", even, "drift", "seconds", "queries")


def _smallest(
    name: str, play: Callable[[int], Course], ladder: Sequence[int], *, error_percent: float
) -> Iterator[Figure]:
    """Go down a ladder of sizes as long as they work."""
    smallest, at = None, None
    for records in ladder:
        try:
            course = play(records)
        except Infeasible:
            break
        if course.refused or course.no_quorum_percent > _ABSTAINED or course.error_percent > error_percent:
            break
        smallest, at = float(records), course.no_quorum_percent
    yield f"everlasting.{name}", smallest, "records"
    yield f"everlasting.{name}.no_quorum_percent", at, "percent"


def _smallest_figures(quick: bool) -> Iterator[Figure]:
    """Ten phases; a phase has about as many no-quorums whatever its size, so they are the same down the ladder."""
    ladders = {
        1.0: (3300, (40_000, 30_000, 25_000, 20_000)),
        2.0: (1150, (10_000, 8000, 7000, 6000)),
        4.0: (420, (3000, 2500, 2000, 1700)),
    }
    for epsilon, (no_quorums, ladder) in ladders.items():

        def play(records: int, epsilon: float = epsilon, no_quorums: int = no_quorums) -> Course:
            return line_course(records=records, phases=3 if quick else 10, epsilon=epsilon, no_quorums=no_quorums)

        name = f"thresholds.smallest_n.epsilon{epsilon:g}"
        yield from _smallest(name, play, ladder[:1] if quick else ladder, error_percent=0.1)


def _halfspace_figures(quick: bool) -> Iterator[Figure]:
    """Directions of one row each; and for comparison logistic teachers of 8, which need no known centre."""
    from sklearn.linear_model import LogisticRegression

    course = halfspace_course(dimensions=5, records=200_000, phases=1 if quick else 10, no_quorums=3500)
    yield from _course_figures("halfspaces5.n200000", course, "seconds")
    logistic = LogisticRegression(C=10.0, fit_intercept=False)
    records, no_quorums = (60_000, 12_000) if quick else (200_000, 11_700)
    other = halfspace_course(logistic, dimensions=5, records=records, phases=1, chunk=8, no_quorums=no_quorums)
    yield from _course_figures("halfspaces5.logistic", other)
    ladders = {
        5: (3500, (20_000, 17_000, 14_000)),
        10: (7400, (45_000, 35_000, 30_000)),
        20: (15_500, (75_000, 60_000)),
    }
    for dimensions, (no_quorums, ladder) in ladders.items():

        def play(records: int, dimensions: int = dimensions, no_quorums: int = no_quorums) -> Course:
            phases = 1 if quick else 5
            return halfspace_course(dimensions=dimensions, records=records, phases=phases, no_quorums=no_quorums)

        name = f"halfspaces{dimensions}.smallest_n"
        yield from _smallest(name, play, ladder[:1] if quick else ladder, error_percent=0.5)


def _stream_figures(
    name: str, classifier: Any, data: tuple[Any, Any], *, records: int, phases: int
) -> Iterator[Figure]:
    """Fit on some rows and ask from the others, as many in each phase; what came of the first and of the last."""
    X, y = data
    order = np.random.default_rng().permutation(len(y))
    private, rest = order[:records], order[records:]
    classifier.fit(X[private], y[private])
    for phase in range(1, phases + 1):
        queries = np.random.default_rng().choice(rest, size=records)
        answers = classifier.predict(X[queries])
        right = answers.labels[answers.answered].astype(np.int64) == y[queries][answers.answered]
        when = {1: "first", phases: "last"}.get(phase)
        if when is not None:
            yield f"everlasting.{name}.answered_percent.{when}", 100 * float(answers.answered.mean()), "percent"
            accuracy = 100 * float(right.mean()) if right.size else None
            yield f"everlasting.{name}.accuracy_percent.{when}", accuracy, "percent"


def _real_figures(quick: bool) -> Iterator[Figure]:
    """Zeros and ones of MNIST at epsilon 4, and UCI Adult at epsilon 8.

    The digits are two clusters with little between: directions of one image keep them apart from phase to phase. The
    labels of Adult are noisy and one class is rare. Points near the boundary are left out, most of them of the rare
    class, so that from phase to phase teachers lean to the other, until all say the same: that is to be seen here.
    """
    from sklearn.neighbors import NearestCentroid

    digits, adult = data_folder() / "mnist" / "mnist.npz", data_folder() / "adult"
    shared = {"delta": 1e-6, "classes": [0, 1]}
    for name, there in (("digits.epsilon4", digits.is_file()), ("adult.epsilon8", adult.is_dir())):
        if not there:
            for figure in ("answered_percent", "accuracy_percent"):
                yield from ((f"everlasting.{name}.{figure}.{when}", None, "percent") for when in ("first", "last"))
        elif name.startswith("digits"):
            classifier = EverlastingClassifier(MeanDirection(), epsilon=4.0, chunk=1, no_quorums=200, **shared)  # type: ignore[arg-type]
            yield from _stream_figures(
                name, classifier, _zeros_and_ones(digits), records=6000, phases=2 if quick else 10
            )
        else:
            parts = [read_adult(adult / part) for part in ("train.csv.gz", "test.csv.gz")]
            X, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
            X = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
            centroids = NearestCentroid()
            classifier = EverlastingClassifier(centroids, epsilon=8.0, chunk=24, no_quorums=3000, **shared)  # type: ignore[arg-type]
            yield from _stream_figures(name, classifier, (X, y), records=24_000, phases=2 if quick else 10)


def _zeros_and_ones(path: Any) -> tuple[Any, Any]:
    """Return small images of two digits along 40 principal axes; these and the centre are of unlabelled test images."""
    with np.load(path) as file:
        images, digits, public, which = (file[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    chosen = images[digits <= 1], public[which <= 1]
    X, public_images = (
        part.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(part), -1) / 255.0 for part in chosen
    )
    axes = np.linalg.eigh(np.cov(public_images.T))[1][:, -40:]
    return (X - public_images.mean(axis=0)) @ axes, digits[digits <= 1].astype(np.int64)


def _poison_figures(quick: bool) -> Iterator[Figure]:
    """One query in twenty lies just above the boundary; how far it moves in ten phases of as many as there are records.

    With a pool, points that the owner trusts come in beside the queries; without poison the boundary moves as far.
    """
    phases, size = (2, 50_000) if quick else (10, 100_000)
    for name, refresh, share in (("queries", "queries", 20), ("pool", "pool", 20), ("none", "pool", 0)):
        classifier = EverlastingClassifier(
            Thresholds(both_directions=False),
            epsilon=4.0,
            delta=1e-6,
            chunk=20,
            no_quorums=1200,
            refresh=refresh,  # type: ignore[arg-type]
            classes=[0, 1],
        )
        X = line_points(size)
        classifier.fit(X, line_truth(X))
        largest = 0.0
        for _ in range(phases):
            queries = line_points(size)
            queries[: size // share if share else 0] = 0.53
            classifier.predict(np.random.default_rng().permutation(queries))
            if refresh == "pool":
                classifier.feed(line_points(size))
            classifier.predict(line_points(1))
            largest = max(largest, line_drift(classifier))
        yield f"everlasting.poisoned.{name}.drift", largest, "mass"


def _boost_figures(quick: bool) -> Iterator[Figure]:
    """LabelBoost with its tight accounting, and the published labels with the same records, on the line."""
    shared = {"epsilon": 2.0, "chunk": 5}
    for relabel, no_quorums in (("labelboost", 4000), ("votes", 1400)):
        course = line_course(
            records=400_000, phases=1 if quick else 3, no_quorums=no_quorums, relabel=relabel, **shared
        )
        yield from _course_figures(f"{relabel}.epsilon2.n400000", course, "drift")

    def play(records: int) -> Course:
        return line_course(records=records, phases=1 if quick else 3, no_quorums=4000, relabel="labelboost", **shared)

    ladder = (200_000, 150_000, 100_000, 75_000, 60_000, 50_000)
    yield from _smallest("labelboost.smallest_n.epsilon2", play, ladder[2:3] if quick else ladder, error_percent=0.1)
    paper = _published_records(vc_dimension=1, epsilon=1.0, delta=1e-6, alpha=0.05, beta=0.05)
    yield "everlasting.published_n.epsilon1", paper, "records"


def _published_records(*, vc_dimension: int, epsilon: float, delta: float, alpha: float, beta: float) -> float:
    """Return the n of GenericBBL (Naor, Nissim, Stemmer and Yan 2023, section 5), logarithms to base 2.

    For error 6 alpha with probability 1 - 4 beta, at epsilon below 1 and alpha, beta and delta below 1/16; epsilon = 1
    is taken as the limit.
    """
    learning = 8 * vc_dimension * math.log2(26 / alpha) + 4 * math.log2(4 / beta)
    chances = math.log2(1 / delta) * math.log2(8 * learning / (epsilon * alpha**2 * beta * delta)) ** 2
    return 8 * _TAU / (alpha**3 * epsilon**2) * learning**2 * chances * (3 + math.exp(epsilon + 4))


def measure(quick: bool) -> Iterator[Figure]:
    """Measure all of it; quickly, with fewer phases."""
    parts = _threshold_figures, _smallest_figures, _halfspace_figures, _real_figures, _poison_figures, _boost_figures
    for part in parts:
        yield from part(quick)
