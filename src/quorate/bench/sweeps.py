"""What the theory of classes of hypotheses says, measured on the methods themselves, with their own noise.

The excess error of an answer is how much more often it is wrong than the best hypothesis. Where labels are right with
probability 1/2 + b, a wrong cut costs 2b for every point that it moves to the wrong side. The worst b shrinks like
1/sqrt(n): a sweep takes the worst of a ladder, which is what a bound over all distributions speaks of.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.models.concepts import Concept, Thresholds

__all__ = [
    "METHODS",
    "Sweep",
    "answered_queries",
    "excess_sweep",
    "exponent",
    "plateau_errors",
    "plateau_records",
]

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
    asked, _ = _points(concept, queries, np.random.default_rng())
    asked[:, 0] = (2 * np.arange(queries) + 1 + asked[:, 0]) / queries - 1  # one in each stripe
    return float(np.mean(classifier.predict(asked).labels != (asked[:, 0] > 0)))


def _stable(concept: Concept, X: Numbers, y: Any) -> float:
    from quorate.models.predictors.stable_choice import StableChoice
    from quorate.models.predictors.unit_rows import fill_unit_rows

    choice = StableChoice.calibrate(concept, units=len(y), gamma=0.1, subset=_subset(concept, len(y)))
    return _wrong(choice.draw(fill_unit_rows(X, y)), concept)


def _pure(concept: Concept, X: Numbers, y: Any) -> float:
    from quorate.models.predictors import PureClassifier
    from quorate.models.predictors.unit_rows import fill_unit_rows

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
    place = X[:, 0]
    y = np.where(place < -2 * gamma, 0, np.where(place < 0, 1, np.where(place < 2 * gamma, 0, 1)))
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
    from quorate.models.predictors.concept_teachers import ErmClassifier

    X, y = plateau_records(records, gamma=gamma, features=concept.features)
    places = (2 * np.arange(queries) + 1) / queries - 1
    asked, told = plateau_records(queries, gamma=gamma, features=concept.features, places=places)
    shared: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "queries": queries, "teachers": teachers}
    shared |= {"classes": [0, 1], "aggregator": "quorum", "no_quorums": queries}
    classifiers: dict[str, Any] = {
        "subsample": PrivateClassifier(ErmClassifier(concept), **shared),
        "agnostic": AgnosticClassifier(concept, **shared),
    }
    return {
        name: float(np.mean(np.asarray(one.fit(X, y).predict(asked).tolist(), dtype=object) != told))
        for name, one in classifiers.items()
    }


def answered_queries(*, records: int, most: int = 2**24) -> dict[str, int]:
    """Return how many queries this many records of thresholds can answer where one label in five is wrong.

    A power of two: the largest for which nine in ten are expected to get the label of most teachers. Plain teachers
    disagree by a fifth; those on relabelled chunks by a fiftieth, and pay for relabelling. "published" is the stability
    test on plain teachers with its published constants. A teacher has 20 units or more; epsilon is 1, delta 1e-6.
    """
    from quorate.models.predictors.relabelled_sample import plan_sample
    from quorate.planner import plan
    from quorate.planner.literature import stability_teachers

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
