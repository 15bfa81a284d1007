"""What neighbours with individual accounting reach on MNIST and UCI Adult, how fast they are, and what a game finds.

MNIST is dealt by `splits.py` ten times, so that every test image judges once; the judges are asked last, after public
points that have worn the records by then. Accuracies are means over all judges, other figures over three splits. Adult:
the training records are private, a random half of the test file is public, the other half judges, of neighbours and of
a student alike; medians over splits. Labels of public points are never read. A quick run takes fewer splits, fewer
images and smaller sizes.
"""

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

import numpy as np

from benchmarks.data import DigitSplit, digit_splits, random_halves, read_adult
from benchmarks.figures import Figure, data_folder, import_planted
from benchmarks.students import adult_student
from quorate.auditing import audit, trace
from quorate.compute.learners.backends import choose_backend
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import one_thread
from quorate.models.knn import NeighbourClassifier
from quorate.models.knn._ballots import Terms
from quorate.models.knn._choice import TOP, rank_of
from quorate.models.knn._kernel import Kernel, Shape
from quorate.models.knn._units import Units

_DELTA = 1e-5
_MNIST_SPLITS = 10  # every test image judges once
_MNIST_LOOKED_AT = 3  # splits on which more is looked at than accuracy
_MNIST_QUERIES = (2000, 10_000)
_MNIST = ("points_lost_by_churn", "worn_percent.queries2000", "epsilon_over_global", "epsilon_over_global.epsilon1")
_ADULT = ("accuracy_percent.queries2000", "points_over_student", "points_over_student.worst_split")
_ADULT_QUERIES = 2000
_NOISY = 0.25  # an epsilon at which noise decides about accuracy; at 1 how far a query reaches does as well
_REACHES = tuple(2.0**-power for power in range(1, 10))  # shares of public points, tried with one account for all
_MOST = 64.0  # how many times as much epsilon one account for all may need


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    yield from _mnist_figures(quick)
    yield from _adult_figures(quick)
    yield from _speed_figures(quick)
    yield from _gpu_figures(quick)
    yield from _attack_figures(quick)


def _mnist_figures(quick: bool) -> Iterator[Figure]:
    right, looked_at, judges = list[tuple[float, ...]](), list[tuple[float, ...]](), 0
    for split in digit_splits(quick, splits=_MNIST_SPLITS):
        right.append(tuple(_ask_judges(_digit_model(split, queries), split, queries) for queries in _MNIST_QUERIES))
        judges += len(split.judges)
        if len(looked_at) < _MNIST_LOOKED_AT:
            looked_at.append(_digit_run(split))
    accuracies: list[Any] = np.mean(right, axis=0).tolist() if right else [None] * len(_MNIST_QUERIES)
    for queries, accuracy in zip(_MNIST_QUERIES, accuracies, strict=True):
        name = f"neighbours.mnist.accuracy_percent.queries{queries}"
        yield name, accuracy, "%"
        error = None if accuracy is None else math.sqrt(accuracy * (100 - accuracy) / judges)
        yield f"{name}.standard_error", error, "points"
    means: list[Any] = np.mean(looked_at, axis=0).tolist() if looked_at else [None] * len(_MNIST)
    for name, mean in zip(_MNIST, means, strict=True):
        unit = "epsilon/epsilon" if "over_global" in name else "points" if "points" in name else "%"
        yield f"neighbours.mnist.{name}", mean, unit


def _digit_model(split: DigitSplit, queries: int, epsilon: float = 1.0) -> NeighbourClassifier:
    model = NeighbourClassifier(
        epsilon=epsilon, delta=_DELTA, queries=queries, records=len(split.private), classes=list(range(10))
    )
    return model.fit(split.private, split.labels, public=split.public)


def _ask_judges(model: NeighbourClassifier, split: DigitSplit, queries: int) -> float:
    """Ask public points until the judges are the last of so many queries, and return how many per cent are right."""
    warm_up = queries - len(split.judges)
    model.predict(split.public[np.arange(warm_up) % len(split.public)], caller="public")
    return 100 * model.score(split.judges, split.truth)


def _digit_run(split: DigitSplit) -> tuple[float, ...]:
    """Return what churn costs on one split, how many records are worn, and epsilon against one account for all."""
    model = _digit_model(split, 2000)
    right = _ask_judges(model, split, 2000)
    worn = 100 * model.wear().share
    churned = _digit_model(split, 2000)
    gone = np.random.default_rng(0).permutation(len(split.private))[: len(split.private) // 10]
    churned.forget(gone)
    churned.insert(split.private[gone], split.labels[gone])
    lost = right - _ask_judges(churned, split, 2000)
    return lost, worn, _epsilon_over_global(split, _NOISY), _epsilon_over_global(split, 1.0)


def _epsilon_over_global(split: DigitSplit, epsilon: float) -> float:
    """Return this epsilon over the one at which one account for all records answers the last 1,000 of 2,000 as well.

    Every query then costs every record a vote of full weight, and no record wears out. One account has the kernel and
    the reach that turn out best for it, at each epsilon. Accuracies are means over draws of the noise.
    """
    model = _digit_model(split, 2000, epsilon)
    units, points = model.session_.answerer.units, model.space_.points
    units.count(points(split.public[np.arange(1000) % len(split.public)]))
    wanted = _expected(units.count(points(split.judges)).put_to(np.copy), model.terms_.scale, split.truth)
    unworn = [_unfiltered(model, split, shape, share) for shape in get_args(Shape) for share in _REACHES]
    low, high = epsilon, _MOST * epsilon
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        terms = Terms.calibrate(epsilon=middle, delta=_DELTA, votes=2000.0, top=TOP, ballot=model.ballot())
        reached = max(_expected(counts, terms.scale, split.truth) for counts in unworn)
        low, high = (low, middle) if reached >= wanted else (middle, high)
    return epsilon / high


def _expected(counts: Any, scale: float, truth: Any) -> float:
    """Return the share of right answers, on average over draws of noise: normal numbers, since nobody is answered."""
    chance = np.random.default_rng(0)
    noisy = (counts + scale * chance.standard_normal(counts.shape) for _ in range(20))
    return float(np.mean([(draw.argmax(axis=1) == truth).mean() for draw in noisy]))


def _unfiltered(model: NeighbourClassifier, split: DigitSplit, shape: Shape, share: float) -> Any:
    """Return the votes on the judges of records none of which ever wears out, as far as this share of public points."""
    anchors = model.kernel_.anchors
    assert anchors is not None
    kernel = Kernel(shape=shape, anchors=anchors, rank=rank_of(share, len(anchors)), top=TOP)
    units = Units(kernel, capacity=2**62, features=split.private.shape[1], table=model.ballot().table, persons=False)
    names = [str(number) for number in range(len(split.private))]
    units.insert(names, [1] * len(names), model.space_.points(split.private), split.labels)
    return units.count(model.space_.points(split.judges)).put_to(np.copy)


def _adult_figures(quick: bool) -> Iterator[Figure]:
    folder = data_folder() / "adult"
    if not (folder / "train.csv.gz").exists():
        yield from ((f"neighbours.adult.{name}", None, "points" if "points" in name else "%") for name in _ADULT)
        return
    X, y = read_adult(folder / "train.csv.gz")
    rest, labels = read_adult(folder / "test.csv.gz")
    runs = [_adult_run(X, y, rest, labels) for _ in range(5 if quick else 15)]
    right, over = zip(*runs, strict=True)
    for name, value in zip(_ADULT, (median(right), median(over), min(over)), strict=True):
        yield f"neighbours.adult.{name}", value, "points" if "points" in name else "%"


def _adult_run(X: Any, y: Any, rest: Any, labels: Any) -> tuple[float, float]:
    """Return the accuracy on all judges of one split, and by how many points it exceeds that of a student of votes.

    2,000 judges differ from other 2,000 by .8 points. So all are asked, each 2,000 of them of a model of their own, and
    the student has the same public rows and the same judges.
    """
    public, judges = random_halves(len(rest))
    judges = judges[: len(judges) // _ADULT_QUERIES * _ADULT_QUERIES]
    right = []
    for some in judges.reshape(-1, _ADULT_QUERIES):
        model = NeighbourClassifier(epsilon=1.0, delta=_DELTA, queries=len(some), records=len(X), classes=[0, 1])
        right.append(100 * model.fit(X, y, public=rest[public]).score(rest[some], labels[some]))
    student = adult_student(1.0).fit(X, y, public=rest[public])
    return fmean(right), fmean(right) - 100 * student.score(rest[judges], labels[judges])


def _speed_figures(quick: bool) -> Iterator[Figure]:
    rows, queries = (100_000, 256) if quick else (1_000_000, 2048)
    generator = np.random.default_rng(0)
    X = generator.normal(size=(rows + queries, 64))
    y = generator.integers(0, 10, size=rows)
    model = NeighbourClassifier(epsilon=1.0, radius=1.1, votes=100.0, classes=list(range(10)))
    model.fit(X[:rows], y)
    model.predict(X[rows : rows + 64], caller="first")
    start, used = time.perf_counter(), time.process_time()
    model.predict(X[rows:])
    seconds, used = time.perf_counter() - start, time.process_time() - used
    yield "neighbours.queries_per_second", queries / seconds * rows / 1_000_000, "/s"
    yield "neighbours.cpu_over_product", used / (_product_seconds(X.shape[1] + 2) * rows * queries), "ratio"
    with tempfile.TemporaryDirectory() as home:
        yield from _churn_figures(model, X[rows:], Path(home) / "model")


def _gpu_figures(quick: bool) -> Iterator[Figure]:
    """Yield how fast a GPU answers, and how much of what it counts and charges is as on the CPU: None without one."""
    try:
        there = choose_backend("cuda").name == "torch"
    except InvalidInput:
        there = False
    rows, queries = (100_000, 2048) if quick else (1_000_000, 16_384)
    second, equal = _gpu_run(rows, queries) if there else (None, None)
    yield "neighbours.gpu.queries_per_second", None if second is None else second * rows / 1_000_000, "/s"
    yield "neighbours.gpu.counts_equal", equal, "share"


def _gpu_run(rows: int, queries: int) -> tuple[float, float]:
    """Return queries a second of `predict` on a GPU, and the share of counts and charges that are as on the CPU."""
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(rows + queries, 64)), generator.integers(0, 10, size=rows)
    near: dict[str, Any] = {"epsilon": 1.0, "radius": 1.1, "votes": 100.0, "classes": list(range(10))}
    model, beside = (NeighbourClassifier(**near, device=device) for device in ("cuda", "cpu"))
    model.fit(X[:rows], y).predict(X[rows : rows + 64], caller="first")
    start = time.perf_counter()
    model.predict(X[rows:])
    second = queries / (time.perf_counter() - start)
    points, same = model.space_.points(X[rows : rows + 256]), list[Any]()
    for fitted in (model.fit(X[:20_000], y[:20_000]), beside.fit(X[:20_000], y[:20_000])):
        units = fitted.session_.answerer.units
        same.append(np.concatenate([units.count(points).put_to(np.copy).ravel(), units.spends()]))
    return second, float((same[0] == same[1]).mean())


def _product_seconds(inner: int) -> float:
    """Return the processor's time for the product alone, for a pair of a record and a query with so many factors."""
    queries, records = np.ones((256, inner), dtype=np.float32), np.ones((inner, 512), dtype=np.float32)
    out, times = np.empty((256, 512), dtype=np.float32), list[float]()
    with one_thread():  # as records are counted, a block a thread; idle threads would use the processor too
        for _ in range(9):
            start = time.process_time()
            for _ in range(50):
                np.matmul(queries, records, out=out)
            times.append((time.process_time() - start) / (50 * out.size))
    return median(times)


def _churn_figures(model: NeighbourClassifier, X: Any, folder: Path) -> Iterator[Figure]:
    """Yield how long an insertion and a deletion take until they are on the disk."""
    from quorate.models.saving import save

    save(model, folder)
    inserted, forgotten = list[float](), list[float]()
    for index in range(50):
        start = time.perf_counter()
        names = model.insert(X[index : index + 1], [0])
        middle = time.perf_counter()
        model.forget(names)
        inserted.append(middle - start)
        forgotten.append(time.perf_counter() - middle)
    model.session_.close()
    yield "neighbours.insert_ms", 1000 * median(inserted), "ms"
    yield "neighbours.forget_ms", 1000 * median(forgotten), "ms"


def _attack_figures(quick: bool) -> Iterator[Figure]:
    """Yield what a game shows at the claim's delta, and what membership inference and tracing find beyond a claim.

    Both of these replace a person: their claims are for that.
    """
    near: dict[str, Any] = {"radius": 0.5, "votes": 4.0, "classes": [0, 1]}
    verdict = audit(NeighbourClassifier(epsilon=1.0, delta=_DELTA, **near), plays=100_000 if quick else 1_000_000)
    yield "neighbours.game.epsilon_lower_bound", verdict.lower_bound, "epsilon"
    model = NeighbourClassifier(epsilon=1.0, delta=_DELTA, **near, scores=True)

    def train(X: Any, y: Any) -> Any:
        return model.fit(X, y).predict_proba

    membership = import_planted("membership")
    targets = membership.make_targets(records=2000, targets=40 if quick else 100, features=8, seed=1)
    roc = membership.attack_membership(train, targets, models=24 if quick else 160)
    claim = {"epsilon": model.terms_.replaced_epsilon(), "delta": _DELTA}
    yield "neighbours.membership.area", roc.area, "share"
    yield "neighbours.membership.excess_over_claim", roc.excess(**claim, confidence=1 - 1e-9), "share"
    means = import_planted("traced").neighbour_means(epsilon=1.0, delta=1e-6)
    traced = trace(means, stumps=1000, people=50, strangers=1000, repeats=2 if quick else 20)
    yield "neighbours.tracing.hits_at_1_percent", traced.hits(false_alarms=0.01), "share"
    excess = traced.excess(epsilon=1.0, delta=1e-6, confidence=1 - 1e-9)
    yield "neighbours.tracing.excess_over_claim", excess, "share"
