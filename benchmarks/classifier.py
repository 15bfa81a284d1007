"""What noise and accounting add to the time of a prediction.

What scores from ballots are worth on UCI Bank Marketing, where one in eight says yes: medians over splits.

Two thirds of the records are private. Half of the others are public: by them the columns are encoded, and the prior is
declared. Of the rest, 1,000 are asked and judge. Settings are the defaults of `scores=True`, epsilon 4, delta 1e-5.
What the noise takes is the area under the curve of the teachers' vote shares without noise less that of the scores.

Prediction sets and intervals: their coverage over many data sets, and their size against those without privacy.

The tables are simulated, so that coverage is known without a test set: errors of a known law, and classes whose
centres are drawn once.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from scipy import special
from sklearn.linear_model import LinearRegression, LogisticRegression

from benchmarks.choices import auto_figures, teacher_figures
from benchmarks.figures import Figure, data_folder
from benchmarks.learners import learner_figures
from benchmarks.students import student_figures
from quorate.core.ballots import release_votes
from quorate.models.conformal import ConformalClassifier, ConformalRegressor

_BATCH = 1000


def _cpu(work: Callable[[Any], object], batches: list[Any]) -> float:
    """Return the CPU seconds of one query, over all batches."""
    start = time.process_time()
    for batch in batches:
        work(batch)
    return (time.process_time() - start) / sum(len(batch) for batch in batches)


def _predict(trees: list[Any], batch: Any) -> None:
    for tree in trees:
        tree.predict(batch)


def overhead_figures(quick: bool) -> Iterator[Figure]:
    """Measure 250 decision trees on two classes, in batches of 1000, with and without privacy: medians of rounds."""
    from sklearn.tree import DecisionTreeClassifier

    from quorate.models.predictors import PrivateClassifier

    rounds, size = (3, 2) if quick else (7, 10)
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40_000, 10))
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
    queries = rounds * size * _BATCH
    for aggregator, settings in (("quorum", {"no_quorums": queries // 4}), ("sharp_majority", {}), ("noisy_max", {})):
        classifier = PrivateClassifier(
            DecisionTreeClassifier(max_depth=8),
            epsilon=300.0,
            teachers=250,
            aggregator=aggregator,
            queries=queries,
            classes=[0, 1],
            **settings,  # type: ignore[arg-type]
        ).fit(X, y)
        teachers = classifier.session_.answerer.ensemble.electorate
        trees = [model for model, _ in teachers.fitted if model is not None]
        added, share = [], []
        for _ in range(rounds):
            batches = [generator.normal(size=(_BATCH, 10)) for _ in range(size)]
            bare = _cpu(partial(_predict, trees), batches)
            counted = _cpu(teachers.votes, batches)
            private = _cpu(classifier.predict, batches)
            added.append(private - counted)
            share.append(private / bare - 1)
        yield f"overhead.{aggregator}.microseconds_a_query", 1e6 * median(added), "us"
        yield f"overhead.{aggregator}.share_of_250_trees", median(share), "ratio"


_NAMES = ("area", "area_lost_to_noise", "balanced_accuracy", "balanced_accuracy.labels")
_ASKED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "queries": 1000, "classes": ["no", "yes"]}


def score_figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    path = data_folder() / "bank" / "bank-full.csv.gz"
    if not path.exists():
        yield from ((f"scores.bank.{name}", None, "share") for name in _NAMES)
        return
    from quorate.tables import read_table

    table = read_table(path, role="public")
    splits = [_split(table, np.random.default_rng()) for _ in range(3 if quick else 5)]
    for index, name in enumerate(_NAMES):
        yield f"scores.bank.{name}", median(values[index] for values in splits), "share"


def _split(table: Any, random: np.random.Generator) -> tuple[float, ...]:
    """Return the area under the curve, what noise takes of it, and balanced accuracies, with scores and with labels."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    from quorate.models.predictors import PrivateClassifier
    from quorate.tables import Schema

    order = random.permutation(len(table))
    private, public, rest = np.split(order, [len(order) * 2 // 3, len(order) * 5 // 6])
    schema = Schema.from_public(table.take(public), label="y", classes=["no", "yes"])
    X, y, queries = schema.encode(table, role="public"), schema.labels(table, role="public"), rest[: _ASKED["queries"]]
    prior = {label: float((y[public] == label).mean()) for label in ("no", "yes")}
    scored = PrivateClassifier(scores=True, threshold="balanced", prior=prior, **_ASKED)
    scored.fit(X[private], y[private], one_scale=schema.one_scale)
    labelled = PrivateClassifier(on_no_quorum="random", **_ASKED)
    labelled.fit(X[private], y[private], one_scale=schema.one_scale)
    true, area = y[queries] == "yes", float(roc_auc_score(y[queries] == "yes", scored.decision_function(X[queries])))
    counts = release_votes(scored.session_.answerer.ensemble, X[queries], lambda votes: votes)  # a bench may look
    return (
        area,
        float(roc_auc_score(true, counts[:, 1])) - area,
        *(
            float(balanced_accuracy_score(true, model.predict(X[queries]).labels == "yes"))
            for model in (scored, labelled)
        ),
    )


_ALPHA = 0.1


def held_out_figures(quick: bool) -> Iterator[Figure]:
    """Measure coverage at 2,000 units and epsilon 0.5, and sizes at 10,000 units."""
    coverage, _ = coverage_and_width(2000, 0.5, simulations=100 if quick else 1000)
    yield "conformal.coverage", coverage, "share"
    yield "conformal.coverage_at_most", coverage, "share"
    yield "conformal.set_size_over_not_private", set_sizes(10_000, 0.5, simulations=3 if quick else 20), "times"
    _, width = coverage_and_width(10_000, 0.5, simulations=20 if quick else 100)
    yield "conformal.width_over_not_private", width, "times"


def coverage_and_width(units: int, epsilon: float, *, simulations: int) -> tuple[float, float]:
    """Return the mean coverage of intervals, and their mean width over that without privacy, of normal errors."""
    random, model = np.random.default_rng(0), LinearRegression().fit([[0.0], [1.0]], [0.0, 0.0])
    rank, covered, wider = math.ceil((units + 1) * (1 - _ALPHA)), [], []
    for _ in range(simulations):
        X, y = random.normal(size=(units, 1)), random.normal(size=units)
        width = ConformalRegressor(model, epsilon, _ALPHA, largest_error=100.0).fit(X, y).width_
        covered.append(float(special.erf(width / math.sqrt(2))))
        wider.append(width / np.sort(np.abs(y))[rank - 1])
    return float(np.mean(covered)), float(np.mean(wider))


def set_sizes(units: int, epsilon: float, *, simulations: int) -> float:
    """Return the mean size of sets over that of sets without privacy, of six classes around random centres."""
    random = np.random.default_rng(1)
    centres = random.normal(size=(6, 4)) * 1.2

    def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(6, size=rows)
        return centres[labels] + random.normal(size=(rows, 4)), labels

    X, y = draw(3000)
    model, (new, _) = LogisticRegression(max_iter=1000).fit(X, y), draw(10_000)
    probabilities, sizes = model.predict_proba(new), []
    for _ in range(simulations):
        X, y = draw(units)
        scores = np.sort(1 - model.predict_proba(X)[np.arange(units), y])
        plain = 1 - probabilities <= scores[math.ceil((units + 1) * (1 - _ALPHA)) - 1]
        private = ConformalClassifier(model, epsilon, _ALPHA).fit(X, y)
        sizes.append((probabilities >= private.threshold_).sum() / plain.sum())
    return float(np.mean(sizes))


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of learners, the planner's choices, students, scores and prediction sets."""
    yield from learner_figures(quick)
    yield from overhead_figures(quick)
    yield from auto_figures(quick)
    yield from teacher_figures(quick)
    yield from student_figures(quick)
    yield from score_figures(quick)
    yield from held_out_figures(quick)
