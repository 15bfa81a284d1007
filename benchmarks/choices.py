"""How much is lost by letting the planner choose: real votes, a public part to plan by, the rest to answer.

How many teachers, and of which kind: the default against a grid, and trees against lines where no line will do.

The default number of teachers knows the number of records, columns and queries, and epsilon. On UCI Adult and UCI Bank
Marketing it is held against the best of a grid of teachers and learners, and so is what was chosen on the labels of the
public part, which nothing else reads. Two generated tables have labels that no linear score tells apart. Columns are
one-hot and scaled by the public part. Noise is that of the planned mechanism, simulated on all judges, so that gaps of
half a point can be seen. Medians over splits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, data_folder
from quorate.auditing._plays import simulate
from quorate.compute.learners import Deal, batched_equivalent
from quorate.core.arrays import Integers
from quorate.core.mechanisms import NO_QUORUM, ConfidentMax
from quorate.planner import Plan, plan
from quorate.planner.task import Task
from quorate.planner.trial import Goal, candidates, choose_learner

_PUBLIC = 500  # rows that are given away to plan by
_SEED = 20260  # of the rows and of the simulated noise: the comparison can be repeated
_DELTA = 1e-5
_NAMED = ("quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority")


@dataclass(frozen=True)
class Comparison:
    """Shares answered and right, as measured: by the aggregator that was chosen, and by each."""

    data: str
    teachers: int
    epsilon: float
    queries: int
    chosen: str
    right: dict[str, float]

    @property
    def gap(self) -> float:
        """What the choice loses against the best single aggregator."""
        return max(self.right.values()) - self.right[self.chosen]


def _payable(planned: Plan, labels: Integers) -> int:
    """Return how many of these queries the budget of the plan pays for, asked one after the other."""
    mechanism = planned.mechanism
    if not isinstance(mechanism, ConfidentMax):
        return len(labels)
    query, answer = mechanism.query_cost(planned.order).renyi, mechanism.answer_cost(planned.order).renyi
    paid_before = np.concatenate([[0.0], np.cumsum(query + answer * (labels >= 0))[:-1]])
    return int((paid_before + query + answer <= planned.open_budget().capacity().renyi).sum())


def _right(planned: Plan, rows: Integers, seed: int) -> float:
    labels = simulate(planned.mechanism, rows, seed=seed).labels
    labels = labels[: _payable(planned, labels)]
    right = float((labels == rows[: len(labels)].argmax(axis=1)).sum())
    if planned.on_no_quorum == "random":
        right += float((labels == NO_QUORUM).sum()) / planned.classes
    return right / len(rows)


def compare(
    name: str,
    votes: Integers,
    *,
    epsilon: float,
    queries: int,
    repeats: int,
    named: tuple[str, ...] = _NAMED,
    on_no_quorum: str = "abstain",
) -> Comparison:
    """Plan by some of the rows, automatically and by name, and let each plan answer queries drawn from the others.

    All answer the same queries, `repeats` times over. A random label counts as right once in `classes` times.
    """
    generator = np.random.default_rng(_SEED)
    order = generator.permutation(len(votes))
    public, rest = votes[order[:_PUBLIC]], votes[order[_PUBLIC:]]
    teachers = int(votes[0].sum())
    target: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": _DELTA,
        "queries": queries,
        "teachers": teachers,
        "votes": public,
        "on_no_quorum": on_no_quorum,
    }
    able = [name for name in named if votes.shape[1] == 2 or name != "sharp_majority"]
    plans = {name: plan(**target, aggregator=name) for name in able}
    chosen = plan(**target).aggregator
    right = dict.fromkeys(plans, 0.0)
    for repeat in range(repeats):
        rows = rest[generator.choice(len(rest), size=queries, replace=queries > len(rest))]
        for aggregator, planned in plans.items():
            right[aggregator] += _right(planned, rows, _SEED + repeat) / repeats
    return Comparison(name, teachers, epsilon, queries, chosen, right)


def comparisons(name: str, path: Path, quick: bool, on_no_quorum: str = "abstain") -> Iterator[Comparison]:
    """Yield the comparisons on one file of votes, as they are and scaled up to more teachers."""
    if not path.exists():
        return
    votes = np.load(path, allow_pickle=False).astype(np.int64)
    epsilons = (2.0,) if quick or on_no_quorum == "random" else (0.5, 1.0, 2.0)  # where quorums matter
    for factor in (1, 4, 16):
        for epsilon in epsilons:
            for queries in (300, 1000) if quick else (300, 1000, 3000, 9000):
                repeats = max(6, (10_000 if quick else 60_000) // queries)
                yield compare(
                    name,
                    votes * factor,
                    epsilon=epsilon,
                    queries=queries,
                    repeats=repeats,
                    on_no_quorum=on_no_quorum,
                )


def auto_figures(quick: bool) -> Iterator[Figure]:
    """Yield the largest loss on either file of votes, in percent of the queries; None where the file is absent."""
    for name in ("mnist", "adult"):
        path = data_folder() / "pate2018" / f"{name}_250_teachers.npy"
        for figure, on_no_quorum in (("auto", "abstain"), ("auto.guessing", "random")):
            gaps = [compared.gap for compared in comparisons(name, path, quick, on_no_quorum)]
            yield f"{figure}.worst_gap_percent.{name}", 100 * max(gaps) if gaps else None, "percent"


_TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "queries": 1000}
_GRID = (100, 300, 1000, 3000)
_TABLES = {"adult": "income>50K", "bank": "y"}


@dataclass(frozen=True)
class _Split:
    """Private records, public points and their labels, and judges."""

    X: Any
    y: Integers
    public: Any
    known: Integers
    judges: Any
    labels: Integers

    def planned(self, *, teach: bool) -> int:
        """Return the default number of teachers, for answers or for a student."""
        rows, columns = self.X.shape
        return int(plan(**_TARGET, records=rows, features=columns, teach=teach).teachers)

    def chosen(self, *, teach: bool) -> tuple[Any, int]:
        """Return the learner and the number of teachers that do best on public points and their labels."""
        goal = Goal(Task(**_TARGET, classes=2), "auto", records=len(self.X), teach=teach)
        choice = choose_learner(candidates(None), self.public, self.known, goal)
        assert choice.teachers is not None
        return candidates(None)[choice.learner], choice.teachers


@cache
def _mechanism(teachers: int) -> Any:
    """Return the mechanism that a plan takes for so many teachers."""
    return plan(**_TARGET, teachers=teachers).mechanism


def _worth(split: _Split, learner: Any, student: Any, *, teachers: int, seed: int) -> tuple[float, float, float]:
    """Return the accuracy of noisy answers, and the accuracy and the area under the curve of a student of others."""
    from sklearn.base import clone
    from sklearn.metrics import roc_auc_score

    batched = batched_equivalent(learner)
    assert batched is not None
    random = np.random.default_rng(seed)
    owner = random.permutation(len(split.X)) % teachers
    fitted = batched.fit(split.X, split.y, Deal.by_assignment(owner, teachers=teachers), classes=2, one_scale=True)
    mechanism = _mechanism(teachers)
    answers = simulate(mechanism, fitted.votes(split.judges), seed=seed).labels
    queries = split.public[random.permutation(len(split.public))[: _TARGET["queries"]]]
    taught = simulate(mechanism, fitted.votes(queries), seed=seed + 1).labels
    accuracy = float((answers == split.labels).mean())
    is_labelled = taught >= 0
    if np.unique(taught[is_labelled]).size < 2:
        return accuracy, float((split.labels == taught.max()).mean()), 0.5
    taught_student = clone(student).fit(queries[is_labelled], taught[is_labelled])
    area = roc_auc_score(split.labels, taught_student.predict_proba(split.judges)[:, 1])
    return accuracy, float(taught_student.score(split.judges, split.labels)), float(area)


def _rings(seed: int, rows: int = 40_000) -> _Split:
    """Return a table whose label depends on the distance from a centre in two of eight columns."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 8))
    return _split_generated(random, X, 4 * (np.hypot(X[:, 0], X[:, 1]) - 1.2) + 0.5 * X[:, 2])


def _crossed(seed: int, rows: int = 40_000) -> _Split:
    """Return a table in which the effect of one column has another sign in each half of another."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 8))
    return _split_generated(random, X, np.where(X[:, 1] > 0.3, 4 * X[:, 0], -2 * X[:, 0] - 2) + 0.5 * X[:, 2])


def _split_generated(random: np.random.Generator, X: NDArray[np.float64], score: NDArray[np.float64]) -> _Split:
    y = (random.random(len(X)) < 1 / (1 + np.exp(-score))).astype(np.int64)
    private, public = 3 * len(X) // 4, 7 * len(X) // 8
    return _Split(X[:private], y[:private], X[private:public], y[private:public], X[public:], y[public:])


def _read(folder: Path, name: str, seed: int) -> _Split:
    """Return Adult as it is split, the test file in halves; Bank in halves, the second in halves again."""
    from quorate.tables import Schema, read_table

    label, random = _TABLES[name], np.random.default_rng(seed)
    if name == "adult":
        private, rest = (read_table(folder / name / f"{part}.csv.gz", role="public") for part in ("train", "test"))
    else:
        table = read_table(folder / name / "bank-full.csv.gz", role="public")
        order = random.permutation(table.num_rows)
        private, rest = (table.take(part) for part in np.array_split(order, 2))
    public, judges = (rest.take(part) for part in np.array_split(random.permutation(rest.num_rows), 2))
    y, public_labels, labels = (_codes(table[label].to_pylist()) for table in (private, public, judges))
    private, public, judges = (table.drop_columns([label]) for table in (private, public, judges))
    schema = Schema.from_public(public, leave_out=["fnlwgt"] if name == "adult" else [])
    points, judged = (schema.encode(part, role="public") for part in (public, judges))
    return _Split(schema.encode(private), y, points, public_labels, judged, labels)


def _codes(values: list[Any]) -> Integers:
    return np.array([">" in value or value == "yes" for value in values], dtype=np.int64)


def teacher_figures(quick: bool) -> Iterator[Figure]:
    """Yield what trees gain on generated tables, then what the default loses on real ones: None without the data."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    line, tree = LogisticRegression(), DecisionTreeClassifier(max_depth=4, min_samples_leaf=5)
    balanced = LogisticRegression(class_weight="balanced")
    for make in (_rings, _crossed):
        forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
        gains = [_gains(make(seed), (line, tree), forest, seed) for seed in range(1 if quick else 5)]
        yield f"trees.vote_gain_points.{make.__name__[1:]}", 100 * median(gain[0] for gain in gains), "points"
        yield f"trees.student_auc_gain.{make.__name__[1:]}", median(gain[1] for gain in gains), "auc"
        yield f"chosen.vote_gain_points.{make.__name__[1:]}", 100 * median(gain[2] for gain in gains), "points"
    for name in _TABLES:
        has_data = (data_folder() / name).exists()
        splits = [_read(data_folder(), name, seed) for seed in range((1 if quick else 5) * has_data)]
        gaps = _gaps(splits, (line, balanced, tree)) if has_data else (None,) * 4
        for purpose, gap in zip(("vote", "student", "chosen.vote", "chosen.student"), gaps, strict=True):
            yield f"teachers.gap_points.{purpose}.{name}", gap, "points"


def _gains(split: _Split, learners: tuple[Any, Any], student: Any, seed: int) -> tuple[float, float, float]:
    """Return by how much trees beat lines, each with its best number of the grid: answers, and the student's area.

    Then by how much the answers of what was chosen on public labels beat those of lines.
    """
    line, tree = (
        np.max([_worth(split, learner, student, teachers=count, seed=seed) for count in _GRID], axis=0)
        for learner in learners
    )
    learner, teachers = split.chosen(teach=False)
    chosen = _worth(split, learner, student, teachers=teachers, seed=seed)
    return float(tree[0] - line[0]), float(tree[2] - line[2]), chosen[0] - float(line[0])


def _gaps(splits: list[_Split], learners: tuple[Any, ...]) -> tuple[float, ...]:
    """Return by how many points the default is worse than the best of the grid: answers, and a student's.

    Then the same for what was chosen on public labels.
    """

    def typical(used: list[tuple[Any, int]]) -> NDArray[np.float64]:
        dealt = enumerate(zip(splits, used, strict=True))
        worth = [
            _worth(split, learner, learner, teachers=count, seed=seed) for seed, (split, (learner, count)) in dealt
        ]
        return 100 * np.median(worth, axis=0)

    grid = [[(learner, count)] * len(splits) for learner in learners for count in _GRID]
    best = np.max([typical(used) for used in grid], axis=0)
    purposes = ((0, False), (1, True))
    default = [typical([(learners[0], split.planned(teach=teach)) for split in splits])[i] for i, teach in purposes]
    chosen = [typical([split.chosen(teach=teach) for split in splits])[i] for i, teach in purposes]
    return tuple(float(best[index % 2] - value) for index, value in enumerate([*default, *chosen]))
