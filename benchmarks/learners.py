"""How much faster a batch is than a loop, and how close counting comes to the bare matrix product.

Times are CPU seconds of one thread, the median of several runs, so that other work on the machine weighs on both sides
of a ratio alike. The data are generated.
"""

import contextlib
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TypeVar

import numpy as np

from benchmarks.figures import Figure
from quorate.compute.learners._batched import BatchedLogistic, BatchedQuadratic
from quorate.compute.learners._tree import BatchedTree
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import Deal, Learner, Matrix

_Result = TypeVar("_Result")

_SHAPES = ((104, 384), (128, 512), (256, 128), (1024, 256))  # teachers by queries: blocks of the bare product


@dataclass(frozen=True)
class FittingFigures:
    """Logistic teachers fitted as a batch, against scikit-learn's fitted one after the other."""

    batch_seconds: float  # CPU time for all teachers
    loop_seconds: float  # CPU time for all teachers, scaled up from those that were fitted
    agreement: float  # share of equal ballots

    @property
    def times_faster(self) -> float:
        """How many times faster the batch is."""
        return self.loop_seconds / self.batch_seconds


@dataclass(frozen=True)
class CountingFigures:
    """Ballots of linear teachers counted, against the matrix product alone."""

    count_seconds: float
    product_seconds: float  # of the fastest among several block shapes
    peak_bytes: int  # of memory while counting: the queries, the teachers, the result and all that is in between

    @property
    def speed_share(self) -> float:
        """The speed of counting as a share of the speed of the bare product."""
        return self.product_seconds / self.count_seconds


def fitting_figures(
    *,
    teachers: int = 10_000,
    rows: int = 50,
    features: int = 20,
    loop: int = 300,
    queries: int = 1000,
    repeats: int = 3,
) -> FittingFigures:
    """Return the figures of that many binary teachers; scikit-learn fits the first `loop` of them."""
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    X, slope = random.normal(size=(teachers * rows, features)), random.normal(size=features)
    y = (random.random(len(X)) < 1 / (1 + np.exp(-X @ slope))).astype(np.int64)
    y[::rows], y[1::rows] = 0, 1  # a loop of scikit-learn's needs both classes in every chunk
    points = random.normal(size=(queries, features))
    deal = Deal(np.arange(len(X)), np.full(teachers, rows))
    chunks = [slice(start, start + rows) for start in range(0, min(loop, teachers) * rows, rows)]
    with _one_thread():
        batch, fitted = _timed(lambda: BatchedLogistic().fit(X, y, deal, classes=2, device="cpu"), repeats)
        one_by_one, models = _timed(lambda: [LogisticRegression().fit(X[c], y[c]) for c in chunks], repeats)
    ballots = np.stack([model.predict(points) for model in models], axis=1)
    agreement = float((fitted.ballots(points)[:, : len(chunks)] == ballots).mean())
    return FittingFigures(batch, one_by_one * teachers / len(chunks), agreement)


def seconds_over_logistic(*learners: Learner, teachers: int = 500, rows: int = 60, features: int = 20) -> list[float]:
    """Return how many times the CPU time of logistic teachers others of the same shape take to fit."""
    random = np.random.default_rng(0)
    X = random.normal(size=(teachers * rows, features))
    y = (X[:, 0] + random.normal(size=len(X)) > 0).astype(np.int64)
    deal = Deal(np.arange(len(X)), np.full(teachers, rows))
    with _one_thread():
        first, *others = (
            _timed(partial(learner.fit, X, y, deal, classes=2, device="cpu"), 3)[0]
            for learner in (BatchedLogistic(), *learners)
        )
    return [seconds / first for seconds in others]


def counting_figures(
    *,
    teachers: int = 10_000,
    queries: int = 100_000,
    features: int = 20,
    classes: int = 2,
    slices: int = 1,
    repeats: int = 3,
) -> CountingFigures:
    """Return the figures of counting that many queries against that many teachers."""
    random = np.random.default_rng(0)
    points, scores = random.normal(size=(queries, features)), 1 if classes == 2 else classes
    fitted = LinearTeachers(random.normal(size=(teachers, scores, features + 1)), classes=classes, slices=slices)
    fitted.device = "cpu"
    table = random.normal(size=(teachers * scores, features))
    products = [partial(_bare_product, table, points, *shape) for shape in _SHAPES]
    with _one_thread():
        counted, *product = _timed_in_turn([lambda: fitted.votes(points), *products], repeats)
    tracemalloc.start()
    fitted.votes(points)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return CountingFigures(counted, min(product), peak + points.nbytes + fitted.arrays()["scores"].nbytes)


def _bare_product(table: Matrix, asked: Matrix, high: int, wide: int) -> None:
    room = np.empty((high, wide))
    for start in range(0, len(asked), wide):
        across = asked[start : start + wide].T.copy()
        for top in range(0, len(table), high):
            part = table[top : top + high]
            np.matmul(part, across, out=room[: len(part), : across.shape[1]])


def _timed_in_turn(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median of each: in turn, so that what the machine does meanwhile weighs on all alike."""
    times = [[_timed(work, 1)[0] for work in works] for _ in range(repeats)]
    return [median(seconds) for seconds in zip(*times, strict=True)]


def _timed(work: Callable[[], _Result], repeats: int) -> tuple[float, _Result]:
    times = []
    for _ in range(max(1, repeats)):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return median(times), result


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Keep the matrix library to one thread, with the package that scikit-learn brings along for that."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def learner_figures(quick: bool) -> Iterator[Figure]:
    """Measure fitting and counting: as promised, or with `quick` on fewer teachers and queries."""
    fitting = fitting_figures(teachers=2000, loop=60, queries=300) if quick else fitting_figures()
    yield "learners.logistic_times_faster_than_a_loop", fitting.times_faster, "ratio"
    yield "learners.ballots_equal_to_scikit_learn", fitting.agreement, "share"
    tree, quadratic = seconds_over_logistic(BatchedTree(4, 5), BatchedQuadratic(), teachers=100 if quick else 500)
    yield "learners.tree_seconds_over_logistic", tree, "ratio"
    yield "learners.quadratic_seconds_over_logistic", quadratic, "ratio"
    counting = counting_figures(teachers=2000, queries=20_000) if quick else counting_figures()
    yield "learners.counting_share_of_bare_product", counting.speed_share, "ratio"
    yield "learners.counting_peak_bytes", float(counting.peak_bytes), "bytes"
    wide = counting_figures(teachers=2000, queries=20_000, slices=2)
    yield "learners.counting_share_of_bare_product.any_scale", wide.speed_share, "ratio"
