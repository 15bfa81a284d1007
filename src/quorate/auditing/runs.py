"""Small runs of everything that releases, on made-up data, to be held against what is charged (`_charges`).

A run is a function from a data set to what it shows. Neighbours are extreme: a unit that is in the first cell, class or
corner of everything becomes one in the last. Engines are run on counts, between all pairs of a few cells.
"""

import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from quorate.auditing._charges import Comparison, Play, Played, compare_charges, interrupted_at_release
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Budget
from quorate.models.account import Account
from quorate.models.concepts import Threshold, Thresholds
from quorate.models.conformal import ConformalClassifier, ConformalRegressor
from quorate.models.evaluation import check_model
from quorate.models.fitting import fit
from quorate.models.knn import NeighbourClassifier, NeighbourRegressor
from quorate.models.linear import PrivateLinearRegression, PrivateLogisticRegression, PrivatePoissonRegression
from quorate.models.predictors import (
    AgnosticClassifier,
    PrivateClassifier,
    PureClassifier,
    StableClassifier,
    StudentFirstClassifier,
    UniversalClassifier,
)
from quorate.models.saving import load, save
from quorate.models.selection import PrivateSearchCV
from quorate.models.students import QueryReleaseClassifier, SemiPrivateClassifier, StudentClassifier
from quorate.models.text import PrivateWriter
from quorate.release import Columns, GroupRelease, GrowingRelease, OnlineRelease, QueryRelease, Workload
from quorate.release.engines import ENGINES
from quorate.release.queries import BoxRanges, Levels, Marginals, Matrix, Prefixes, Queries, Ranges, Rows
from quorate.tables import Category, Number
from quorate.tables.features import AdditiveColumns

_EPSILON, _DELTA = 1.0, 1e-6
_TERMS: dict[str, Any] = {"epsilon": _EPSILON, "delta": _DELTA}
_CLAIM = _EPSILON, _DELTA
_ROWS = 400


@dataclass(frozen=True)
class Subject:
    """What is played, on which data set, and its neighbours."""

    play: Play
    first: Any
    others: Sequence[Any]
    records: int = 1  # of a unit, where a mechanism states the sensitivity of one: two votes are replaced

    def compare(self, *, seed: int = 0) -> Comparison:
        """Play it on the data set and all neighbours, and return the worst comparison."""
        return compare_charges(self.play, self.first, *self.others, seed=seed, records=self.records)


# --- engines of releases -------------------------------------------------------------------------------------------


def _histograms(cells: int) -> tuple[Any, list[Any]]:
    """Return counts of all cells, and those in which a record of the first moves to each other cell, and so on."""
    base, moved = np.full(cells, 40) + 5 * np.arange(cells), []
    for source, target in itertools.permutations(range(cells), 2):
        if source in (0, cells // 2, cells - 1):
            moved.append(base.copy())
            moved[-1][source] -= 1
            moved[-1][target] += 1
    return base, moved


def _run_engine(engine: str, queries: Queries, public: Any = None) -> Subject:
    def play(data: Any) -> Played:
        budget = Budget(**_TERMS, slack=0.0)
        released = ENGINES[engine].run(queries, data, public=public, budget=budget)
        return Played((np.asarray(released.answers).tolist(), released.notes), _CLAIM)

    if not isinstance(queries, Marginals):
        assert queries.cells is not None
        return Subject(play, *_histograms(queries.cells))
    return Subject(play, *_tables(queries.sizes))


def _tables(sizes: Sequence[int]) -> tuple[Rows, list[Rows]]:
    """Return records whose columns depend on each other in part, and those of which one moves to another cell."""
    random = np.random.default_rng(0)
    shared, own = random.random((10 * _ROWS, 1)), random.random((10 * _ROWS, len(sizes)))
    codes = (np.where(own < 0.7, shared, random.random(own.shape)) * sizes).astype(np.int64)
    others = []
    for source in range(6):
        replaced = codes.copy()
        replaced[source] = (codes[source] + 1) % sizes  # in every column
        others.append(Rows(replaced, list(sizes)))
    return Rows(codes, list(sizes)), others


def _measure_queries(queries: Queries) -> Subject:
    """Return the run that measures all queries at the sensitivity that they state, as the plain engine may."""

    def play(counts: Any) -> Played:
        noisy = NoisyVector.for_budget(Budget(**_TERMS, slack=0.0), squared_sensitivities=(queries.sensitivity,))
        answers = np.rint(queries.answers(counts.astype(np.float64))).astype(np.int64)
        return Played(noisy.release([answers], budget=Budget(**_TERMS, slack=0.0)))

    assert queries.cells is not None
    return Subject(play, *_histograms(queries.cells))


_QUERIES: dict[str, Queries] = {
    "prefixes": Prefixes(6),
    "prefixes_by_group": Prefixes(2, lines=6),
    "ranges": Ranges(7),
    "ranges_by_group": Ranges(3, lines=2),
    "boxes": BoxRanges((3, 4)),
    "matrix": Matrix(np.tril(np.ones((5, 5), dtype=np.bool_))),
    "hierarchy": Levels([np.arange(8) // 4, np.arange(8) // 2, np.arange(8)]),
}
_MARGINALS = Marginals((3, 3, 3), [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
_PUBLIC = Rows(np.random.default_rng(1).integers(0, 3, size=(60, 3)), [3, 3, 3])


# --- whole releases ------------------------------------------------------------------------------------------------


def _swap(table: Mapping[str, Any], rows: Any, **values: Any) -> dict[str, Any]:
    """Return the table with these values in some rows."""
    swapped = {name: np.array(column) for name, column in table.items()}
    for name, value in values.items():
        swapped[name][rows] = value
    return swapped


def _visits(people: int = 1) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "region": random.choice(["east", "north", "south"], _ROWS).astype("<U8"),
        "cost": random.uniform(0.0, 100.0, _ROWS).round(2),
        "age": random.integers(18, 90, _ROWS),
        "stay": random.integers(0, 30, _ROWS),
        "person": np.arange(_ROWS) // people,
    }


_COLUMNS = {"cost": Number(low=0, high=100, cuts=[25.0, 50.0, 75.0]), "age": Number(low=0, high=100)}
_REGION = Category(["east", "north", "south"])
_DECLARED = {"region": _REGION, **_COLUMNS}


def _by_group(*, people: int = 1, columns: Mapping[str, Any] = _COLUMNS, **settings: Any) -> Subject:
    visits, is_person = _visits(people), people > 1
    rows = slice(0, people)

    def play(table: Any) -> Played:
        release = GroupRelease("region", columns=Columns(columns), **_TERMS, **settings)
        release.fit(
            {name: table[name] for name in ("region", "cost", "age", "stay")},
            groups=table["person"] if is_person else None,
        )
        return Played((release.answer().to_pylist(), release.notes_), None if "region" not in columns else _CLAIM)

    start = _swap(visits, rows, region="north", cost=100.0, age=90, stay=0)
    ends = (("south", 0.0, 18), ("south", 100.0, 90), ("north", 0.0, 90), ("a village", 100.0, 90))
    neighbours = [_swap(visits, rows, region=region, cost=cost, age=age, stay=29) for region, cost, age in ends]
    return Subject(play, start, neighbours)


def _grow(people: int) -> Subject:
    """Return six updates of a table, in which a person has as many records as count, all of one kind."""

    def play(updates: Any) -> Played:
        growing = GrowingRelease(
            Workload.marginals(1),
            updates=6,
            columns={"kind": ["a", "b"]},
            engine="plain",
            records_per_person=people if people > 1 else None,
            **_TERMS,
        )
        answers = [
            growing.update(str(month), {"kind": kinds}, groups=names if people > 1 else None).answer().to_pylist()
            for month, (kinds, names) in enumerate(updates)
        ]
        return Played(answers, _CLAIM, [growing.budget_])

    def updates(kind: str) -> list[Any]:
        months = []
        for month in range(6):
            count = people if month == 0 or people > 1 else 0  # a person is in every update, with all the records
            always = "7.0" if month % 2 else "007"  # as one file or another writes the number of a person
            names = [always] * count + [f"{month}-{number}" for number in range(60)]
            months.append(([kind] * count + ["a", "b"] * 30, names))
        return months

    return Subject(play, updates("a"), [updates("b")])


def _ask_online(private: Any) -> Played:
    online = OnlineRelease(Thresholds(), epsilon=4.0, delta=_DELTA, alpha=0.15)
    online.fit(private, np.linspace(0.0, 0.2, 50))  # public records that are far off: most queries are measured
    answers = [online.ask([Threshold(cut)]) for cut in (0.1, 0.3, 0.5, 0.7, 0.9)]
    return Played((answers, online.paid_), (4.0, _DELTA))


def _release_table(records: int = 1, **settings: Any) -> Subject:
    """Return a release of marginals whose cuts are found, of records or of people with some."""
    table = _visits(records)

    def play(table: Any) -> Played:
        release = QueryRelease(Workload.marginals(2), columns=Columns({"cost": Number(), "age": Number()}), **_TERMS)
        release.set_params(**settings)
        if records > 1:
            release.set_params(columns=Columns({"cost": Number(cuts=[50.0]), "age": Number(cuts=[50])}), engine="plain")
        release.fit({name: table[name] for name in ("cost", "age")}, groups=table["person"] if records > 1 else None)
        return Played((release.answer().to_pylist(), release.notes_), _CLAIM)

    neighbours = [_swap(table, slice(0, records), cost=cost, age=age) for cost, age in ((0.0, 90), (99.75, 18))]
    return Subject(play, _swap(table, slice(0, records), cost=100.0, age=18), neighbours, records=records)


def _learn_columns() -> Subject:
    """Return a release of a table of which nothing is declared: kinds, texts, cuts and marginals are measured."""
    texts = {"city": np.array(["Bonn", "Kiel"] * 3000), "sex": np.array(["f", "m"] * 3000)}
    table = texts | {"whole": np.array([7688, 15024] * 3000)}

    def play(table: Any) -> Played:
        release = QueryRelease(Workload.marginals(1), **_TERMS).fit(table)
        return Played((release.answer().to_pylist(), release.notes_), _CLAIM)

    return Subject(play, table, [_swap(table, 0, city="Kiel", sex="m", whole=15024), _swap(table, 0, city="Rome")])


# --- models --------------------------------------------------------------------------------------------------------


def _points(rows: int = _ROWS, features: int = 2, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    return X, (X[:, 0] + 0.3 * random.normal(size=rows) > 0).astype(np.int64)


_FAR = 50.0


def _supervised(play: Callable[[Any, Any], Played], *, labels: Sequence[Any] = (0, 1), rows: int = _ROWS) -> Subject:
    """Return a run on rows of which the first becomes far, near, or one with the other label."""
    X, y = _points(rows)
    start, target = X.copy(), y.astype(type(labels[0]))
    start[0], target[0] = (_FAR, _FAR), labels[0]
    neighbours = []
    for point, label in (((_FAR, _FAR), labels[-1]), ((-_FAR, _FAR), labels[0]), ((0.0, 0.0), labels[-1])):
        moved, changed = start.copy(), target.copy()
        moved[0], changed[0] = point, label
        neighbours.append((moved, changed))
    return Subject(lambda data: play(*data), (start, target), neighbours)


def _fit_linear(kind: Any, **settings: Any) -> Callable[[Any, Any], Played]:
    public, queries = _points(seed=1)[0], _points(5, seed=2)[0]

    def play(X: Any, y: Any) -> Played:
        model = kind(epsilon=4.0, delta=1e-3, **settings).fit(X, y, public=public)
        return Played(model.predict(queries).tolist(), (4.0, 1e-3))

    return play


def _vote(kind: Any, **settings: Any) -> Callable[[Any, Any], Played]:
    queries = _points(12, seed=2)[0]
    defaults: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-3, "teachers": 20, "classes": [0, 1]}

    def play(X: Any, y: Any) -> Played:
        model = kind(**(defaults | settings))
        if kind is StudentClassifier:
            model.fit(X, y, public=_points(60, seed=3)[0])
            return Played(model.predict(queries).tolist())
        model.fit(X, y)
        set_aside = None if "holdout" not in settings else (20.0, 1e-3)  # where a part goes to an estimate at the fit
        return Played((model.predict(queries).tolist(), repr(model.budget_.spent())), set_aside=set_aside)

    return play


def _student_first(**settings: Any) -> Any:
    return StudentFirstClassifier(LogisticRegression().fit(*_points(40, seed=5)), dissents=3, no_quorums=2, **settings)


def _choose(X: Any, y: Any) -> Played:
    model = SemiPrivateClassifier(Thresholds(), epsilon=_EPSILON, classes=[0, 1])
    model.fit(X[:, :1], y, public=np.linspace(-2, 2, 9).reshape(-1, 1))
    return Played(model.predict([[0.0]]).tolist(), (_EPSILON, 0.0))


def _count_mistakes(X: Any, y: Any) -> Played:
    model = QueryReleaseClassifier(Thresholds(), **_TERMS, classes=[0, 1])
    model.fit(X[:, :1], y, public=np.linspace(-2, 2, 9).reshape(-1, 1))
    return Played(model.predict([[0.0]]).tolist(), _CLAIM)


def _fit_table(X: Any, y: Any) -> Played:
    tables = [dict(zip(("first", "second"), rows.T, strict=True)) for rows in (X, _points(seed=1)[0])]
    fitted = fit(tables[0] | {"label": y}, "label", epsilon=2.0, delta=1e-3, classes=[0, 1], public=tables[1])
    return Played(repr(fitted), (2.0, 1e-3))


def _concept(kind: Any, set_aside: tuple[float, float] | None = None, **settings: Any) -> Subject:
    """Return a run on rows of which one has another label: candidates are made of all points, and stay the same."""

    def play(y: Any) -> Played:
        model = kind(Thresholds(), classes=[0, 1], **settings).fit(X, y)
        return Played(model.predict([[0.1]]).tolist(), set_aside=set_aside)

    X, y = _points(features=1)
    neighbours = [np.where(np.arange(_ROWS) == row, 1 - y, y) for row in (0, _ROWS // 2)]
    return Subject(play, y, neighbours)


def _calibrate(kind: Any, published: Any, **settings: Any) -> Callable[[Any, Any], Played]:
    def play(X: Any, y: Any) -> Played:
        model = kind(published, epsilon=_EPSILON, miscoverage=0.3, **settings).fit(X, y)
        return Played(model.cell_, (_EPSILON, 0.0))

    return play


def _test(X: Any, y: Any) -> Played:
    published = LogisticRegression().fit(*_points(seed=1))
    check = check_model(published, X, y, **_TERMS)
    return Played(repr(check), _CLAIM)


def _search(X: Any, y: Any) -> Played:
    candidate = PrivateLogisticRegression(classes=[0, 1])
    search = PrivateSearchCV(candidate, {"columns": [None, AdditiveColumns(cuts=2)]}, epsilon=8.0, delta=1e-3)
    search.fit(X, y, public=_points(seed=1)[0])
    return Played(
        (search.best_params_, search.predict([[0.0, 0.0]]).tolist()), (8.0, 1e-3), budgets=[], set_aside=(8.0, 1e-3)
    )


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _draw_on_account(X: Any, y: Any) -> Played:
    """Draw a release and a model on one account, each time opened anew, until it refuses."""
    with _folder() as home:
        Account(home / "account", epsilon=1.0, delta=1e-5).close()
        answers = []
        for _ in range(3):
            account = Account(home / "account")
            release = QueryRelease(Workload.marginals(1), columns={"kind": ["0", "1"]}, epsilon=0.4, delta=1e-6)
            try:
                account.fit(release.set_params(engine="plain"), {"kind": [str(int(label)) for label in y]})
                answers.append(release.answer().to_pylist())
            except BudgetSpent:
                answers.append([])
            spent = account.ledger.budget().spent()
            account.close()
    return Played(answers, budgets=[], set_aside=(spent.renyi, spent.slack))


# --- models of nearest records: each unit pays for its own votes ---------------------------------------------------

_NEAR: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-3, "radius": 0.5, "votes": 8.0}
_PLACE = [[1.0, 0.0]]  # of the record that comes and goes; all others point away, and queries of any length do not


def _neighbours(kind: Any, *, is_replaced: bool = False, is_saved: bool = False, **settings: Any) -> Subject:
    """Return a run that asks at the place of a record until it is worn out, and for all reports of wear.

    A saved model is interrupted at every second release, and opened again.
    """

    def play(data: Any) -> Played:
        model = kind(**_NEAR, **settings).fit(*data)
        terms = model.terms_
        claim = (terms.replaced_epsilon() if is_replaced else terms.epsilon), terms.delta
        if is_saved:
            return Played(_ask_and_crash(model), claim, budgets=[], set_aside=claim)
        answers = [model.predict([[1.0 + turn, 0.0]]).tolist() for turn in range(int(terms.votes) + 2)]
        answers += [repr(model.session_.wear()) for _ in range(terms.reports)]
        return Played(answers, claim)

    random = np.random.default_rng(0)
    ends = settings["classes"] if "classes" in settings else settings["bounds"]
    X = np.concatenate([_PLACE, random.normal(size=(30, 2)) - [9.0, 0.0]])
    y = np.asarray(ends)[[0, *random.integers(0, 2, 30) * (len(ends) - 1)]]
    flipped = y.copy()
    flipped[0] = ends[-1]
    gone = (X, flipped) if is_replaced else (X[1:], y[1:])
    return Subject(play, (X, y), [gone], records=2 if is_replaced else 1)


def _ask_and_crash(model: Any) -> list[Any]:
    steps = []
    with _folder() as home:
        save(model, home / "model")
        model.session_.close()  # it would go on with the file
        for turn in range(int(model.terms_.votes) + 4):
            opened = load(home / "model")
            with interrupted_at_release():
                opened.predict([[1.0 + turn, 0.0]])
            opened.session_.close()
        steps.append("asked")
    return steps


class _Words:
    """A stand-in for a language model of two words and an end, which repeats those of its prompt."""

    end = 0

    def __init__(self, prompts: Sequence[str] = (), public: bool = False) -> None:
        self._counts = [[-9, prompt.count("tea"), prompt.count("jam")] for prompt in prompts]
        self.start, self.append, self.decode = _Words, lambda token: None, str

    def log_probabilities(self, tokens: Any = slice(None)) -> Any:
        """Return the log probabilities of these words, one row a prompt."""
        return np.array([[x - np.logaddexp.reduce(row) for x in row] for row in self._counts])[:, tokens]


def _write(texts: Sequence[str]) -> Played:
    settings: dict[str, Any] = {"tokens": 3, "batch": 50, "candidates": 2, "free_share": 0.0, "temperature": 0.1}
    writer = PrivateWriter(_Words(), epsilon=9.0, delta=_DELTA, **settings)
    return Played(writer.fit(texts).write(2), (9.0, _DELTA))


_RELABELLED: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-2, "teachers": 10, "aggregator": "noisy_max"}
_LOGISTIC = LogisticRegression().fit(*_points(seed=1))
_LEAST_SQUARES = LinearRegression().fit(*_points(seed=1))

_ENGINES = {
    "plain": ("prefixes_by_group", "ranges", "matrix"),
    "prefix": ("prefixes", "prefixes_by_group", "ranges", "boxes"),
    "levels": ("hierarchy",),
    "weights": ("ranges",),
}
_VOTES: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("noisy_max", "noisy_shares", "confident_max", "soft_majority", "sharp_majority")},
    "quorum": {"no_quorums": 3},
}
_NUMBERS = np.linspace(0, 1, 600)


def _supervise(make: Callable[..., Callable[[Any, Any], Played]], *arguments: Any, **settings: Any) -> Subject:
    """Return a supervised run; `labels` and `rows` are those of the data."""
    data = {name: settings.pop(name) for name in ("labels", "rows") if name in settings}
    return _supervised(make(*arguments, **settings), **data)


RUNS: dict[str, Callable[[], Subject]] = {
    **{f"queries_{name}": partial(_measure_queries, queries) for name, queries in _QUERIES.items()},
    **{
        f"engine_{engine}_{name}": partial(_run_engine, engine, _QUERIES[name])
        for engine, names in _ENGINES.items()
        for name in names
    },
    **{f"engine_{name}": partial(_run_engine, name, _MARGINALS) for name in ("plain", "residual")},
    "engine_adaptive": partial(_run_engine, "adaptive", Marginals.of_order((8, 8, 2, 2, 2, 2, 2, 2), 3)),
    "engine_reweighting": partial(_run_engine, "reweighting", _MARGINALS, _PUBLIC),
    "release_with_cuts": _release_table,
    "release_learned": _learn_columns,
    "release_of_people": partial(_release_table, 4, records_per_person=4),
    "groups": partial(_by_group, columns=_DECLARED, totals="cost", means="age", medians="cost"),
    "groups_counted": partial(_by_group, columns=_DECLARED, totals="cost"),
    "groups_of_people": partial(_by_group, people=4, records_per_person=4, totals="cost"),
    "groups_found": partial(_by_group, totals="cost"),
    "groups_with_bounds": partial(_by_group, columns={"region": _REGION}, totals=("cost", "age", "stay")),
    "growing": partial(_grow, 1),
    "growing_people": partial(_grow, 3),
    "online": partial(Subject, _ask_online, _NUMBERS, [np.append(_NUMBERS[1:], 1.0)]),
    "logistic": partial(_supervise, _fit_linear, PrivateLogisticRegression, classes=[0, 1]),
    "logistic_three": partial(_supervise, _fit_linear, PrivateLogisticRegression, classes=[0, 1, 2], labels=(0, 2)),
    "least_squares": partial(_supervise, _fit_linear, PrivateLinearRegression, bounds=(-3, 3), labels=(-9.0, 9.0)),
    "poisson": partial(_supervise, _fit_linear, PrivatePoissonRegression, largest=20, labels=(0, 90)),
    **{
        f"votes_{name}": partial(_supervise, _vote, PrivateClassifier, aggregator=name, queries=12, **settings)
        for name, settings in _VOTES.items()
    },
    "votes_held_out": partial(
        _supervise, _vote, PrivateClassifier, aggregator="noisy_max", queries=12, holdout=0.3, teachers=15
    ),
    "student": partial(_supervise, _vote, StudentClassifier, aggregator="noisy_max", queries=40),
    "student_first": partial(_supervise, _vote, _student_first),
    "semi_private": partial(_supervised, _choose),
    "mistakes": partial(_supervised, _count_mistakes),
    "fit": partial(_supervised, _fit_table, rows=2000),
    "stable": partial(_concept, StableClassifier, gamma=0.4, set_aside=(4 * math.atanh(0.4), 0.0)),
    "pure_stable": partial(_concept, PureClassifier, epsilon=20.0, queries=4, method="stable"),
    "pure_relabel": partial(_concept, PureClassifier, epsilon=200.0, queries=4, method="relabel"),
    "agnostic": partial(_concept, AgnosticClassifier, queries=6, set_aside=(20.0, 1e-2), **_RELABELLED),
    "universal": partial(_concept, UniversalClassifier, ballots=3, set_aside=(20.0, 1e-2), **_RELABELLED),
    "conformal_sets": partial(_supervise, _calibrate, ConformalClassifier, _LOGISTIC),
    "conformal_intervals": partial(
        _supervise, _calibrate, ConformalRegressor, _LEAST_SQUARES, largest_error=10.0, labels=(-9.0, 9.0)
    ),
    "writer": partial(Subject, _write, ["tea tea"] * 100, [["jam jam", *["tea tea"] * 99]]),
    "check_model": partial(_supervised, _test, rows=2000),
    "search": partial(_supervised, _search, rows=2000),
    "account": partial(_supervised, _draw_on_account),
    "nearest": partial(_neighbours, NeighbourClassifier, classes=[0, 1, 2]),
    "nearest_two": partial(_neighbours, NeighbourClassifier, classes=[0, 1]),
    "nearest_scores": partial(_neighbours, NeighbourClassifier, classes=[0, 1], scores=True),
    "nearest_numbers": partial(_neighbours, NeighbourRegressor, bounds=(0, 1)),
    "nearest_replaced": partial(_neighbours, NeighbourClassifier, classes=[0, 1], is_replaced=True),
    "nearest_after_crashes": partial(_neighbours, NeighbourClassifier, classes=[0, 1], is_saved=True),
}


def compare_run(name: str, *, seed: int = 0) -> Comparison:
    """Play the run of this name on neighbours, and return what moved and what was charged."""
    if name not in RUNS:
        raise InvalidInput(f"no run is called {name!r}; there are {', '.join(RUNS)}")
    return RUNS[name]().compare(seed=seed)
