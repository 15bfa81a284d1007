"""A trial chooses the learner and the number of teachers on public rows. No private record is read.

One half of the public rows is dealt to committees of teachers, each with as many rows as a real teacher will have. They
vote on the other half. The effect of noise on these votes is computed as for a plan of the real teachers. Unlabelled
rows get simulated labels by several laws, and the learner that does well under most of them is chosen.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

from quorate.compute.learners import Deal, batched_equivalent
from quorate.core.arrays import Floats, Integers
from quorate.planner._teachers import AGGREGATORS, LEAST_ROWS, SLOW, Purpose, best_draft, best_teachers, is_enough
from quorate.planner.task import DEFAULT_DISAGREEMENT, Draft, Task, VoteForecast, weigh_classes

CANDIDATES: dict[str, Callable[[], Any]] = {  # the first is the default
    "logistic": LogisticRegression,
    "balanced-logistic": lambda: LogisticRegression(class_weight="balanced"),
    "tree": lambda: DecisionTreeClassifier(max_depth=4, min_samples_leaf=5),
    "quadratic": lambda: make_pipeline(PolynomialFeatures(include_bias=False), LogisticRegression()),
}

_COMMITTEE = 64  # teachers that vote for all
_LEAST_PUBLIC = 200  # rows
_MOST_TAUGHT, _MOST_JUDGES = 20_000, 2_000  # public rows that teach, and that judge
_MOST_COEFFICIENTS = 1000  # of a teacher that is tried
_SURE = 2.0  # standard errors by which another learner must beat the first
_FEWEST = 16  # teachers
_STEPS = (2.0, 1.41)  # between numbers of teachers that are tried
_STUDENTS, _LEVELS = 4, 8  # how often noise is drawn for one; groups of queries by how clear their pluralities are
_RATE = 0.5  # of the queries, that a plan must answer
_LAWS = 6
_STRENGTH = 2.5  # of a simulated law: about one label in six is against it


@dataclass(frozen=True)
class Goal:
    """The purpose of the answers, in public numbers. With `balanced`, all classes count equally."""

    task: Task
    aggregator: str
    records: int
    teachers: int | None = None
    teach: bool = False
    balanced: bool = False

    @property
    def measure(self) -> str:
        """The measure by which learners are compared."""
        if self.aggregator == "noisy_shares":
            return "area under the curve"
        of = "a student's " if self.teach else ""
        return f"{of}balanced accuracy" if self.balanced else f"{of}accuracy"


@dataclass(frozen=True)
class Trial:
    """A candidate with its best number of teachers, and the value of its answers in the trial."""

    learner: str
    teachers: int
    worth: float


@dataclass(frozen=True)
class LearnerChoice:
    """The chosen learner, its number of teachers, and the trials. All of it is public."""

    learner: str
    teachers: int | None  # None if no number is feasible or nothing was tried; then the plan decides
    labels: Literal["public", "simulated", "none"]
    measure: str
    tried: tuple[Trial, ...]

    @property
    def why(self) -> str:
        """The reason, in one sentence."""
        if not self.tried:
            return f"{self.learner}: nothing was tried, which takes {_LEAST_PUBLIC} public rows and learners in batches"
        trials = ", ".join(f"{trial.learner} {trial.worth:.3f} ({trial.teachers:,} teachers)" for trial in self.tried)
        rows = "public rows and their labels" if self.labels == "public" else "public rows with simulated labels"
        return f"{self.learner}, tried on {rows}; expected {self.measure}: {trials}"


def candidates(weights: Any) -> dict[str, Any]:
    """Return the estimators to try, by name, each with these class weights if there are any."""
    estimators = {name: make() for name, make in CANDIDATES.items()}
    if weights is None:
        return estimators
    return {name: weigh_classes(estimators[name], weights) for name in estimators if name != "balanced-logistic"}


def choose_learner(estimators: Mapping[str, Any], X: Any, labels: Integers | None, goal: Goal) -> LearnerChoice:
    """Choose one of these estimators on public rows; the first one unless another is clearly better.

    `labels` are the class numbers of the rows, or None. An estimator without a batched equivalent, or with too many
    coefficients, is not tried. The choice is deterministic.

    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> goal = Goal(Task(epsilon=1.0, delta=1e-6, queries=100, classes=2), "sharp_majority", records=20_000)
    >>> choose_learner(candidates(None), X, (np.hypot(X[:, 0], X[:, 1]) > 1).astype(np.int64), goal).learner
    'quadratic'
    """
    first = next(iter(estimators))
    learners = {} if X is None or len(X) < _LEAST_PUBLIC else _batched_learners(estimators, X.shape[1])
    if first not in learners:
        return LearnerChoice(first, goal.teachers, "none", goal.measure, ())
    laws = _simulate_laws(X, goal.task.classes) if labels is None else [labels]
    parts = [_Public(X, codes, goal) for codes in laws]
    trials = [_try_learner(name, learner, parts, goal, climb=labels is not None) for name, learner in learners.items()]
    best = max(trials, key=lambda trial: trial.worth)
    error = _standard_error(learners, trials[0], best, parts) * (math.sqrt(2) if goal.teach else 1.0)
    if best.worth <= trials[0].worth + _SURE * error:
        best = trials[0]
    source: Literal["public", "simulated"] = "simulated" if labels is None else "public"
    feasible = goal.teachers or _plan_teachers(learners[best.learner].coefficients(X.shape[1]), goal)
    return LearnerChoice(best.learner, None if feasible is None else best.teachers, source, goal.measure, tuple(trials))


def _batched_learners(estimators: Mapping[str, Any], columns: int) -> dict[str, Any]:
    """Return the batched learners of the estimators, without those that have too many coefficients."""
    first = next(iter(estimators))
    learners = {name: batched_equivalent(estimator) for name, estimator in estimators.items()}
    return {
        name: learner
        for name, learner in learners.items()
        if learner is not None and (name == first or learner.coefficients(columns) <= _MOST_COEFFICIENTS)
    }


class _Public:
    """Public rows with labels: some teach committees, the others judge them."""

    def __init__(self, X: Floats, labels: Integers, goal: Goal) -> None:
        order = np.random.default_rng(0).permutation(len(X))
        judges, taught = np.split(order, [min(len(order) // 2, _MOST_JUDGES)])
        self.judges, self.labels, self._goal = X[judges], labels[judges], goal
        self._X, self._y = X[taught[:_MOST_TAUGHT]], labels[taught[:_MOST_TAUGHT]]
        self._counted: dict[Any, Integers] = {}

    @cached_property
    def most_rows(self) -> int:
        """The most rows of a teacher at which the teachers of a committee have mostly different rows."""
        return max(1, len(self._X) // 2)

    def votes(self, learner: Any, teachers: int) -> Integers:
        """Return the votes of a committee whose teachers are as large as each of `teachers` real ones."""
        rows = min(self.most_rows, self._goal.records // teachers)
        if (learner, rows) not in self._counted:
            random = np.random.default_rng(rows)  # the same rows for every learner
            chunks = np.concatenate([random.permutation(len(self._X))[:rows] for _ in range(_COMMITTEE)])
            deal = Deal(np.arange(chunks.size), np.full(_COMMITTEE, rows))
            classes = self._goal.task.classes
            fitted = learner.fit(self._X[chunks], self._y[chunks], deal, classes=classes)
            self._counted[learner, rows] = fitted.votes(self.judges)
        return self._counted[learner, rows]

    def worth(self, learner: Any, teachers: int) -> float:
        """Return the value of the noisy answers of this number of teachers."""
        goal, votes = self._goal, self.votes(learner, teachers)
        aggregator = "auto" if goal.aggregator in SLOW else goal.aggregator
        draft = best_draft(aggregator, goal.task, VoteForecast.from_votes(votes), teachers)
        if draft.aggregator == "noisy_shares":
            return _area(votes, self.labels, draft.noise["scale"] / teachers)
        if goal.teach:
            return self._taught(learner, votes, draft, teachers)
        parts = _counted_alike(self.labels, goal)
        shares = [_right(draft, goal.task, votes[part], self.labels[part], teachers) for part in parts]
        return sum(shares) / len(shares)

    def _taught(self, learner: Any, votes: Integers, draft: Draft, teachers: int) -> float:
        """Return the accuracy of students that learn from noisy votes on part of the judges, on the rest of them.

        One tree is less accurate than the vote of many, and wrong labels mislead a student that weights a rare class
        more than one that does not. Only a trial shows by how much.
        """
        classes = self._goal.task.classes
        labelled = min(len(votes) // 2, self._goal.task.queries)
        answered, right = _chances(draft, self._goal.task, votes[:labelled], teachers)
        parts, shares = _counted_alike(self.labels[labelled:], self._goal), []
        for seed in range(_STUDENTS):
            random = np.random.default_rng(seed)
            turned = random.integers(1, classes, size=labelled) * (random.random(labelled) >= right)
            rows = np.flatnonzero(random.random(labelled) < answered)
            released = ((votes[:labelled].argmax(axis=1) + turned) % classes)[rows]
            student = learner.fit(self.judges[rows], released, Deal.of([range(rows.size)]), classes=classes)
            correct = student.ballots(self.judges[labelled:])[:, 0] == self.labels[labelled:]
            shares += [float(correct[part].mean()) for part in parts]
        return sum(shares) / len(shares)


def _counted_alike(labels: Integers, goal: Goal) -> list[Any]:
    """Return the groups of judges that count equally: the classes if the goal is balanced, else one group."""
    return [labels == code for code in np.unique(labels)] if goal.balanced else [labels >= 0]


def _chances(draft: Draft, task: Task, votes: Integers, teachers: int) -> tuple[Floats, Floats]:
    """Return for each query the probabilities of an answer and of the plurality's label.

    Queries with pluralities of similar size are computed together.
    """
    answered, right = np.ones(len(votes)), np.ones(len(votes))
    order = np.argsort(votes.max(axis=1), kind="stable")
    for part in np.array_split(order, min(_LEVELS, len(order))):
        drafted = AGGREGATORS[draft.aggregator](task, VoteForecast.from_votes(votes[part]), teachers)
        if drafted is not None:
            answered[part], right[part] = drafted.expected.answered, drafted.expected.agreement
    return answered, right


def _right(draft: Draft, task: Task, votes: Integers, labels: Integers, teachers: int) -> float:
    """Return the share of queries that are answered correctly.

    With two classes, noise that changes a wrong label corrects it. With more, the new label counts as an error too.
    """
    plurality, total = votes.argmax(axis=1) == labels, 0.0
    for right in (True, False):
        part = votes[plurality == right]
        drafted = AGGREGATORS[draft.aggregator](task, VoteForecast.from_votes(part), teachers) if len(part) else None
        if drafted is not None:
            expected = drafted.expected
            mended = expected.answered - expected.right if task.classes == 2 else 0.0
            total += len(part) * (expected.right if right else mended)
    return total / len(votes)


def _area(votes: Integers, labels: Integers, deviation: float) -> float:
    """Return the mean area under the curve of shares with normal noise, each class against the others."""
    areas = []
    levels = np.arange(_COMMITTEE + 1) / _COMMITTEE
    above = ndtr((levels[:, np.newaxis] - levels) / (math.sqrt(2) * deviation))
    for code in np.unique(labels):
        members, rest = (
            np.bincount(votes[part, code], minlength=_COMMITTEE + 1) for part in (labels == code, labels != code)
        )
        areas.append(float(members @ above @ rest) / max(1, int(members.sum() * rest.sum())))
    return sum(areas) / len(areas)


def _try_learner(name: str, learner: Any, parts: list[_Public], goal: Goal, *, climb: bool) -> Trial:
    """Return a candidate with the plan's number of teachers or, with `climb`, the best number near it."""
    worths: dict[int, float] = {}

    def worth(teachers: int) -> float:
        if teachers not in worths:
            worths[teachers] = sum(part.worth(learner, teachers) for part in parts) / len(parts)
        return worths[teachers]

    planned = goal.teachers or _plan_teachers(learner.coefficients(parts[0].judges.shape[1]), goal)
    best = planned or max(1, goal.records // (5 * LEAST_ROWS))
    if climb and goal.teachers is None and planned is not None:
        best = _climb(best, worth, goal, fewest=max(_FEWEST, -(-goal.records // (parts[0].most_rows + 1))))
    return Trial(name, best, worth(best))


def _climb(best: int, worth: Callable[[int], float], goal: Goal, *, fewest: int) -> int:
    """Return the best number of teachers near this one.

    A number is skipped if its plan is not feasible, or if its teachers have more rows than the public rows allow.
    """
    if best < fewest:
        return best
    for factor in (factor for step in _STEPS for factor in (step, 1 / step)):
        rival = round(best * factor)
        while fewest <= rival <= max(1, goal.records // LEAST_ROWS) and _is_feasible(rival, goal):
            if worth(rival) <= worth(best):
                break
            best, rival = rival, round(rival * factor)
    return best


def _forecast(goal: Goal) -> VoteForecast:
    return VoteForecast.from_disagreement(DEFAULT_DISAGREEMENT, classes=goal.task.classes)


@lru_cache(maxsize=64)
def _plan_teachers(columns: int, goal: Goal) -> int | None:
    """Return the number of teachers that a plan chooses for this number of columns; None if none is feasible."""
    purpose = Purpose(columns=columns, teach=goal.teach, rate=_RATE)
    return best_teachers(goal.aggregator, goal.task, _forecast(goal), purpose, records=goal.records)


@lru_cache(maxsize=256)
def _is_feasible(teachers: int, goal: Goal) -> bool:
    return is_enough(best_draft(goal.aggregator, goal.task, _forecast(goal), teachers), goal.task, _RATE)


def _standard_error(learners: Mapping[str, Any], first: Trial, best: Trial, parts: list[_Public]) -> float:
    """Return the approximate standard error of the difference between two candidates, over judges and laws."""
    differ = 0.0
    for part in parts:
        labels, rivals = (part.votes(learners[trial.learner], trial.teachers).argmax(axis=1) for trial in (first, best))
        differ += float((labels != rivals).mean())
    return math.sqrt(differ / len(parts) / len(parts[0].judges))


def _simulate_laws(X: Floats, classes: int) -> list[Integers]:
    """Return labels by laws of three kinds in turn: linear, steps of single columns, products of two columns."""
    random = np.random.default_rng(0)
    spread = X.std(axis=0)
    scaled = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return [_labels(random, scaled, kind % 3, classes) for kind in range(_LAWS)]


def _labels(random: np.random.Generator, scaled: Floats, kind: int, classes: int) -> Integers:
    rows, columns = scaled.shape
    scores = np.empty((rows, classes))
    for label in range(classes):
        if kind == 0:
            score = scaled @ random.normal(size=columns)
        else:
            first, second = random.integers(columns, size=(2, 4))
            cuts = random.normal(size=(2, 4)) / 2
            steps, second_steps = np.sign(scaled[:, first] - cuts[0]), np.sign(scaled[:, second] - cuts[1])
            score = (steps if kind == 1 else steps * second_steps) @ random.normal(size=4)
        spread = float(score.std())
        scores[:, label] = _STRENGTH * score / (spread or 1.0)
    labels: Integers = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    return labels
