"""The predictors of the matrix: small instances of each, how they are fitted, and what is asked of them.

Sizes are small and epsilon is large, since nothing here is about noise: the tape draws the same on both sides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from matrix.learners import CONCEPTS, LEARNERS
from quorate.core.arrays import Floats
from quorate.models.concepts import Threshold
from quorate.models.everlasting import EverlastingClassifier
from quorate.models.predictors import (
    AgnosticClassifier,
    PrivateClassifier,
    PureClassifier,
    StableClassifier,
    StudentFirstClassifier,
    UniversalClassifier,
)
from quorate.models.selection import PrivateSearchCV
from quorate.models.students import SemiPrivateClassifier, StudentClassifier
from quorate.release import OnlineRelease, QueryRelease

_AGGREGATORS = (
    "noisy_max",
    "noisy_shares",
    "quorum",
    "soft_majority",
    "sharp_majority",
    "confident_max",
    "stability",
    "between_thresholds",
)


_DRAWN: dict[str, Any] = {"rows": 400, "ensemble": False, "rejects": True}  # answers that are drawn from tallies


@dataclass(frozen=True)
class Table:
    """Records before they are packed: whole numbers, labels, names of rows, and whose each row is."""

    X: Floats
    y: NDArray[np.int64]
    names: list[Any]
    people: NDArray[np.int64]


def base_table(rows: int, *, columns: int, seed: int = 0) -> Table:
    """Return this many rows of digits, two rows a person: small digits for one label, large ones for the other, mostly.

    So every learner can tell the labels apart, whichever columns it takes.
    """
    random = np.random.default_rng([seed, rows, columns])
    y = random.permutation(np.arange(rows) % 2)
    X = random.integers(0, 5, size=(rows, columns)) + 5 * (y[:, np.newaxis] ^ (random.random((rows, columns)) < 0.1))
    return Table(X.astype(np.float64), y, list(range(rows)), np.arange(rows) // 2)


@dataclass(frozen=True)
class Subject:
    """A predictor: how it is made of a learner, for which units and learners there are cells, and how it is asked."""

    name: str
    make: Callable[[Any], Any]
    learners: tuple[str, ...]
    units: tuple[str, ...] = ("row", "person")
    rows: int = 60
    columns: int = 3
    public: bool = False  # needs public points to be fitted
    holdout: bool = False  # a unit may be held out, and be a query
    saved: bool = False  # written to a folder after it is fitted, and loaded from there between queries
    ensemble: bool = True
    few: bool = False  # containers and learners in which it does nothing else than another subject
    release: bool = False
    rejects: bool = False  # draws from tallies by rejection, so that how many words it draws is not fixed
    phases: bool = False  # queries, or points, teach later ones
    pool: bool = False  # points that are fed teach
    relabels: bool = False  # a private choice labels the points of later phases: it may change every teacher
    settings: dict[str, Any] = field(default_factory=dict)  # set after fitting: nothing may come of it

    def learner(self, name: str) -> Any:
        """Return the learner of this name."""
        return (LEARNERS | CONCEPTS)[name]() if name != "none" else None

    def fit(self, model: Any, packed: Any, table: Table, groups: Any, public: Any) -> None:
        """Fit on packed records."""
        more = {} if groups is None else {"groups": groups}
        if self.public:
            more["public"] = public
        if self.release:
            model.fit(packed, **more)
        else:
            model.fit(packed, table.y, **more)

    def ask(self, model: Any, query: Any, number: int) -> str:
        """Ask one packed query, the next in `number`, and return what is released; a release is asked two, one new."""
        if isinstance(model, OnlineRelease):
            return repr(model.ask([Threshold(4.5), Threshold(number + 0.5)]))
        if isinstance(model, QueryRelease):
            return repr(model.answer([Threshold(4.5), Threshold(number + 0.5)]).to_pylist())
        told = model.predict(query)
        return repr((told.tolist(), getattr(told, "scores", None)))


def _private(aggregator: str, **settings: Any) -> Callable[[Any], Any]:
    chosen: dict[str, Any] = {
        "epsilon": 50.0,
        "delta": 1e-2,
        "teachers": 10,
        "queries": 12,
        "classes": [0, 1],
    } | settings
    return lambda learner: PrivateClassifier(learner, aggregator=aggregator, **chosen)


def _student_first(learner: Any) -> Any:
    table = base_table(40, columns=3, seed=9)
    student = DecisionTreeClassifier(max_depth=2).fit(table.X, table.y)
    chosen: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-2, "teachers": 10, "dissents": 4, "no_quorums": 2}
    return StudentFirstClassifier(student, learner, classes=[0, 1], **chosen)


def _student(learner: Any) -> Any:
    chosen: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-2, "teachers": 10, "queries": 12}
    return StudentClassifier(learner, GaussianNB(), aggregator="noisy_max", classes=[0, 1], **chosen)


def _search(concept: Any) -> Any:
    candidate = SemiPrivateClassifier(concept, classes=[0, 1])
    return PrivateSearchCV(candidate, {"points": [3, 10, None]}, epsilon=20.0, delta=1e-2)


def _everlasting(**settings: Any) -> Callable[[Any], Any]:
    """Return what makes a small everlasting classifier: twelve teachers, eighteen seats, so that half have one seat."""
    chosen: dict[str, Any] = {
        "epsilon": 200.0,
        "delta": 1e-2,
        "chunk": 5,
        "phase_size": 18,
        "no_quorums": 6,
        "classes": [0, 1],
    } | settings
    return lambda learner: EverlastingClassifier(learner, **chosen)


def _concept(kind: type, **settings: Any) -> Callable[[Any], Any]:
    return lambda concept: kind(concept, classes=[0, 1], **settings)


def _subjects() -> Sequence[Subject]:
    every, some, concepts = tuple(LEARNERS), ("logistic", "tree"), ("stumps",)
    asked, held = ("row", "person", "company"), (*some, "polynomial", "by-type", "fails", "onlooker")
    frozen = {"epsilon": 90.0, "delta": 0.5, "estimator": GaussianNB(), "teachers": 3, "classes": [0, 1, 2]}
    return (
        Subject("classifier", _private("noisy_max"), every, units=(*asked, "setting"), settings=frozen),
        Subject("classifier-holdout", _private("noisy_max", holdout=0.4, queries=4), held, holdout=True, rows=80),
        *(Subject(f"classifier-{name}", _private(name), some, few=True) for name in _AGGREGATORS[1:]),
        Subject("classifier-saved", _private("noisy_max"), some, saved=True, few=True),
        Subject("student-first", _student_first, (*some, "by-type", "onlooker"), few=True),
        Subject("student-first-saved", _student_first, some, saved=True, few=True),
        Subject("student", _student, (*some, "by-type", "onlooker"), public=True, ensemble=False, few=True),
        *_everlastings(every, some),
        *(
            Subject(f"{name}{'-saved' * saved}", make, concepts, saved=saved, few=saved, **shape)
            for name, make, shape in _concepts()
            for saved in (False, True)
        ),
        Subject("semi-private", _concept(SemiPrivateClassifier, epsilon=5.0), concepts, public=True, **_DRAWN),
        Subject("search", _search, concepts, public=True, few=True, **_DRAWN),
        *_releases(),
    )


def _concepts() -> Sequence[tuple[str, Callable[[Any], Any], dict[str, Any]]]:
    """Return the kinds that answer by a class of hypotheses from records in their folder."""
    pure: dict[str, Any] = {"epsilon": 200.0, "queries": 4}
    relabelled: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-2, "teachers": 10, "aggregator": "noisy_max"}
    return (
        ("agnostic", _concept(AgnosticClassifier, queries=6, **relabelled), _DRAWN),
        ("universal", _concept(UniversalClassifier, ballots=3, **relabelled), _DRAWN),
        ("stable", _concept(StableClassifier, gamma=0.4), _DRAWN),
        ("pure-stable", _concept(PureClassifier, **pure, method="stable"), _DRAWN),
        ("pure-relabel", _concept(PureClassifier, **pure, method="relabel"), _DRAWN),
        ("pure-realizable", _concept(PureClassifier, **pure, method="realizable"), {"rows": 200}),
    )


def _everlastings(every: tuple[str, ...], some: tuple[str, ...]) -> Sequence[Subject]:
    typed, taught = (*some, "by-type", "onlooker"), ("row", "person", "query", "company")
    changed = {"refresh": "pool", "growth": 3.0, "max_phase_size": 60, "phase_size": 40, "no_quorums": 14, "chunk": 2}
    changed |= {"epsilon": 90.0, "estimator": GaussianNB()}
    asked: dict[str, Any] = {"phases": True, "units": ("query",), "few": True}
    boosted = _everlasting(relabel="labelboost", phase_size="auto", epsilon=40.0)
    chosen: dict[str, Any] = {"phases": True, "units": ("row", "query"), "few": True, "rejects": True, "relabels": True}
    return (
        Subject("everlasting", _everlasting(), every, units=(*taught, "setting"), settings=changed, phases=True),
        Subject("everlasting-pool", _everlasting(refresh="pool"), typed, units=("row", "pool"), pool=True, phases=True),
        Subject("everlasting-growth", _everlasting(growth=1.6), some, **asked),
        Subject("everlasting-saved", _everlasting(), some, saved=True, **asked),
        Subject("everlasting-concepts", _everlasting(), ("stumps",), units=taught, phases=True),
        Subject("everlasting-labelboost", boosted, ("stumps",), **chosen),
    )


def _releases() -> Sequence[Subject]:
    shape: dict[str, Any] = {"columns": 1, "rows": 400, "public": True, "ensemble": False, "release": True}
    concepts, online = ("thresholds",), lambda one: OnlineRelease(one, epsilon=20.0, alpha=0.3)
    return (
        Subject("release-query", lambda one: QueryRelease(one, epsilon=5.0, engine="plain"), concepts, **shape),
        Subject("release-online", online, concepts, **shape),
        Subject("release-online-saved", online, concepts, saved=True, few=True, **shape),
    )


SUBJECTS: dict[str, Subject] = {subject.name: subject for subject in _subjects()}
