"""Plans for private prediction: which aggregator, how many teachers, what to expect, what would have to change."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from quorate.checks import check_count, check_delta, check_positive, check_rate
from quorate.errors import InvalidInput
from quorate.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.planner.classes import check_prior, few_rows_warning, rare_class_warning
from quorate.planner.literature import PublishedBound, published_bounds
from quorate.planner.mechanisms.choose import AGGREGATORS, LEAST_ROWS, drafts, exact
from quorate.planner.mechanisms.forecast import DEFAULT_DISAGREEMENT, VoteForecast
from quorate.planner.mechanisms.nearest import nearest_changes
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task, least_agreement
from quorate.planner.mechanisms.teachers import Purpose, best_teachers, smallest_teachers
from quorate.planner.result import Change, plan_card
from quorate.planner.roads import Road, weigh_roads
from quorate.privacy import Budget

__all__ = ["ON_NO_QUORUM", "Candidate", "PrivatePlan", "plan"]

ON_NO_QUORUM = ("abstain", "random", "raise")
_CERTAIN = 0.999  # no more than this is said of an expectation
_NO_QUORUM = ("quorum", "confident_max", "stability", "between_thresholds")  # do not answer every query
_BETTER_THAN_CHANCE = 0.1  # by how much agreement must exceed that of a guess to go without a warning
NAMES = {
    "quorum": "Quorum",
    "noisy_max": "a noisy maximum",
    "noisy_shares": "noisy shares",
    "confident_max": "a confident noisy maximum",
    "sharp_majority": "a sharp majority",
    "soft_majority": "a soft majority",
    "stability": "the stability test",
    "between_thresholds": "two thresholds",
}


@dataclass(frozen=True)
class Candidate:
    """One aggregator and what it is expected to give."""

    aggregator: str
    noise: Mapping[str, float]
    no_quorums: int | None
    answered: float
    agreement: float
    right: float


@dataclass(frozen=True, kw_only=True)
class PrivatePlan:
    """What to run and what to expect. Calibrated by `quorate.plan` from public numbers alone.

    `answered` is the expected share of all queries that get an answer, `agreement` the share of those equal to the
    teachers' plurality, `right` their product. `mechanism` is calibrated and certified; `order` and `slack` are those
    of the budget that pays for it. `lasts` is the probability that the run or the budget does not end before the last
    query; with `on_no_quorum="random"` a label at random counts among the answers. `nearest` names changes that would
    lift `right` to the rate asked for, where it is below (`feasible` is False). `disagreement` is the share of votes
    against the plurality that all of this rests on, and `basis` who says so. `roads` compares votes with the other
    estimators of this package, the best first, where `records`, `features` and `public` were given.
    """

    aggregator: str
    teachers: int
    rows_per_teacher: int | None
    epsilon: float
    delta: float
    queries: int
    classes: int
    no_quorums: int | None
    mechanism: QueryMechanism | ThresholdMechanism
    order: float
    slack: float
    noise: Mapping[str, float]
    answered: float
    agreement: float
    right: float
    answer_rate: float
    feasible: bool
    candidates: tuple[Candidate, ...]
    published: tuple[PublishedBound, ...]
    assumptions: tuple[str, ...]
    nearest: tuple[Change, ...]
    on_no_quorum: str = "abstain"
    lasts: float | None = None
    roads: tuple[Road, ...] = ()
    warnings: tuple[str, ...] = ()
    disagreement: float | None = None
    basis: Literal["assumed", "given", "measured"] = "given"

    def open_budget(self) -> Budget:
        """Return a fresh budget of this epsilon and delta, at the order and slack that fit the mechanism."""
        return Budget(epsilon=self.epsilon, delta=self.delta, order=self.order, slack=self.slack)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of a `PrivateClassifier` that follows the plan."""
        named = ("epsilon", "delta", "queries", "teachers", "aggregator", "on_no_quorum")
        no_quorums = "auto" if self.no_quorums is None else self.no_quorums
        return {name: getattr(self, name) for name in named} | {"no_quorums": no_quorums}

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold; an infinite order becomes None."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "mechanism"}
        plain["order"] = self.order if math.isfinite(self.order) else None
        plain["noise"] = dict(self.noise)
        for name in ("candidates", "published", "nearest", "roads"):
            plain[name] = [asdict(entry) for entry in plain[name]]
        for name in ("assumptions", "warnings"):
            plain[name] = list(plain[name])
        return plain

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], mechanism: QueryMechanism | ThresholdMechanism) -> "PrivatePlan":
        """Return the plan that `as_dict` described, with its mechanism."""
        known = dict(described)
        known["order"] = math.inf if known["order"] is None else known["order"]
        kinds = (("candidates", Candidate), ("published", PublishedBound), ("nearest", Change), ("roads", Road))
        for name, kind in kinds:
            known[name] = tuple(kind(**entry) for entry in known.get(name, ()))  # the first release had no roads
        for name in ("assumptions", "warnings"):
            known[name] = tuple(known.get(name, ()))  # nor warnings
        return cls(mechanism=mechanism, **known)

    def lacking(self) -> str:
        """Return which of the two conditions of a feasible plan does not hold, by which figures."""
        parts, least = [], least_agreement(self.classes)
        if self.right < self.answer_rate:
            parts.append(
                f"only {self.right:.1%} of {self.queries:,} queries would be answered with the teachers' plurality "
                f"label, and {self.answer_rate:.0%} are asked for"
            )
        if self.agreement < least:
            parts.append(
                f"only {self.agreement:.1%} of the answers would be the teachers' plurality label, and {least:.0%} "
                "must be, halfway between guessing and certainty"
            )
        return "; and ".join(parts)

    def shortfall(self) -> str:
        """Return what is wrong with a plan that is not feasible, and what would do."""
        teachers = "one teacher" if self.teachers == 1 else f"{self.teachers:,} teachers"
        text = f"not feasible: with {teachers} {self.lacking()}"
        changes = "; ".join(change.sentence for change in self.nearest)
        return (
            f"{text}; any one of these would do: {changes}" if changes else f"{text}; no change of one number would do"
        )

    def _supposed(self) -> list[str]:
        """Return on what the forecast rests: how much the teachers disagree, and who says so."""
        if self.disagreement is None:  # a plan of the first release
            return []
        against = f"{100 * self.disagreement:.3g}% of the votes go against the plurality"
        said = {
            "assumed": f"This supposes that {against}, which is assumed and not measured.",
            "given": f"This supposes that {against}, as was given.",
            "measured": f"On public points {against}.",
        }
        return [said[self.basis]]

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        rows = f" of {self.rows_per_teacher:,} units each" if self.rows_per_teacher is not None else ""
        parts = [
            f"{self.teachers:,} teachers{rows} vote through {NAMES[self.aggregator]}.",
            f"Of {self.queries:,} queries about {self.answered:.1%} are expected to be answered, "
            f"{self.agreement:.1%} of those with the teachers' plurality label.",
            *self._supposed(),
            f"All of it together keeps epsilon = {self.epsilon:g}, delta = {self.delta:g}.",
        ]
        if self.agreement < (1 / self.classes) + _BETTER_THAN_CHANCE:
            parts.append(f"That is hardly better than guessing, which would agree {1 / self.classes:.0%} of the time.")
        if self.aggregator == "noisy_shares":
            deviation = self.noise["scale"] / self.teachers
            parts.append(f"An answer is the share of votes for each class, with a deviation of {deviation:.2g}.")
        parts += [f"Mind that {warning}." for warning in self.warnings]
        if self.no_quorums is not None:
            parts.append(
                f"Answers are free; the run ends with no-quorum number {self.no_quorums:,}, and every query after it "
                "is refused."
            )
        if self.lasts is not None and (self.no_quorums is not None or self.lasts < _CERTAIN):
            parts.append(f"With probability {min(self.lasts, _CERTAIN):.1%} all {self.queries:,} are reached.")
        if self.on_no_quorum == "random" and self.aggregator in _NO_QUORUM:
            parts.append("A query without a quorum gets a label at random, which counts as an answer here.")
        if not self.feasible:
            parts.append(f"This falls short: {self.lacking()}.")
            parts += [f"It would do to {change.sentence}." for change in self.nearest]
        if self.roads and self.roads[0].name != "votes":
            parts.append(f"Another road is likely to be better: {self.roads[0].sentence}.")
        return " ".join(parts)

    def _repr_html_(self) -> str:
        expected = ("queries expected to be answered with the teachers' plurality label", self.right)
        return plan_card(self, "aggregator", "teachers", "epsilon", "delta", "queries", bar=expected)


def plan(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    queries: int = 1000,
    records: int | None = None,
    teachers: int | None = None,
    classes: int | None = None,
    disagreement: float | None = None,
    votes: Any = None,
    aggregator: str = "auto",
    no_quorums: int | None = None,
    answer_rate: float = 0.5,
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain",
    features: int | None = None,
    public: int | None = None,
    teach: bool = False,
    scores: bool = False,
    prior: Any = None,
    class_weight: Any = None,
) -> PrivatePlan:
    """Return which aggregator to use with how many teachers, and what to expect of it. Reads nothing private.

    `disagreement` is the mean share of teachers expected to vote against the plurality on a query; `votes` are counts
    of votes on public points (one row a point, one column a class), by any number of teachers, and say more.
    `aggregator="auto"` takes the one with the largest share of queries expected to be answered with the plurality's
    label; a name takes that one. Without `teachers` their number is chosen. From `records` each gets at least 20; where
    `features`, the number of columns after encoding, is given too, the number of teachers that loses least to noise and
    to small chunks together is taken, with `teach` for a student that learns from the answers. Without `records` it is
    the fewest that answer 95 in 100. `no_quorums` is chosen unless given. With `on_no_quorum="random"` a query without
    a quorum gets a label at random, which costs no more than the no-quorum, and counts as answered. A plan whose share
    stays below `answer_rate`, or whose answers are nearer to guesses than to the plurality's label, is not feasible and
    says what would be. Given `records`, `features` and `public`, how many public points there are (0 for none), `roads`
    compares votes with a student, a linear model and one hypothesis.

    `scores` plans for noisy shares of the vote in place of labels; a plan with labels warns where the `prior`, the
    declared shares of the classes, has a class so rare that it will hardly win a majority (`class_weight` says whether
    teachers weigh the classes).

    The forecast from a mere `disagreement` is a model: from query to query it follows a Beta law with concentration 4,
    and those who disagree agree on one rival. Votes of real teachers can be more even, or fall in two camps; and fewer
    records make teachers disagree more, which no plan can know. Give `votes` where there are any.

    >>> plan(teachers=1000, epsilon=1.0, delta=1e-6, queries=10_000, disagreement=0.001).aggregator
    'quorum'
    >>> guessing = plan(teachers=2000, epsilon=1.0, queries=100_000, votes=[[1400, 600]] * 2000, on_no_quorum="random")
    >>> guessing.aggregator, round(guessing.answered, 3)
    ('quorum', 1.0)
    >>> plan(teachers=1000, epsilon=1.0, queries=100, votes=[[240, 10], [20, 230]]).right > 0.99
    True
    >>> [road.estimator for road in plan(records=30_000, teachers=800, features=50, public=5000).roads[:2]]
    ['PrivateLogisticRegression', 'StudentClassifier']
    >>> plan(teachers=1000, prior=[0.9, 0.1]).warnings[0]
    "a class of share 10% will rarely win a majority: use scores=True, class_weight='balanced' or a linear model"
    """
    task, forecast, assumptions = _asked(
        epsilon=epsilon,
        delta=delta,
        queries=queries,
        classes=classes,
        disagreement=disagreement,
        votes=votes,
        no_quorums=no_quorums,
    )
    if on_no_quorum not in ON_NO_QUORUM:
        raise InvalidInput(f"on_no_quorum must be one of {', '.join(ON_NO_QUORUM)}, not {on_no_quorum!r}")
    task = replace(task, guess=on_no_quorum == "random")
    answer_rate = check_rate("answer_rate", answer_rate)
    aggregator = _aggregator(aggregator, scores)
    if aggregator != "auto" and aggregator not in AGGREGATORS:
        raise InvalidInput(f"aggregator must be 'auto' or one of {', '.join(AGGREGATORS)}, not {aggregator!r}")
    features = None if features is None else check_count("features", features)
    roads = _roads(task, records=records, features=features, public=public)
    purpose = Purpose(columns=features, teach=teach, rate=answer_rate)
    count = _teachers(aggregator, task, forecast, purpose, teachers=teachers, records=records, assumptions=assumptions)
    drafted, calibrated, expected = _chosen(aggregator, task, forecast, count)
    feasible = expected.right >= answer_rate and expected.agreement >= least_agreement(task.classes)
    assumptions += [
        f"{draft.aggregator} would answer {draft.expected.right:.1%} right if queries were exactly like this, but it "
        "loses more when they are not"
        for draft in drafted[1:]
        if draft.expected.right > expected.right + 0.001
    ]
    rows = None if records is None else records // count
    warnings = _warnings(prior, task.classes, aggregator=aggregator, weighted=class_weight is not None, rows=rows)
    changes = nearest_changes(
        aggregator, task, forecast, count, rate=answer_rate, records=records, free=teachers is None
    )
    return PrivatePlan(
        aggregator=drafted[0].aggregator,
        teachers=count,
        rows_per_teacher=rows,
        epsilon=task.epsilon,
        delta=task.delta,
        queries=task.queries,
        classes=task.classes,
        no_quorums=drafted[0].no_quorums,
        mechanism=calibrated.mechanism,
        order=calibrated.order,
        slack=calibrated.slack,
        noise=_noise(drafted[0], calibrated),
        answered=expected.answered,
        agreement=expected.agreement,
        right=expected.right,
        answer_rate=answer_rate,
        feasible=feasible,
        on_no_quorum=on_no_quorum,
        lasts=expected.lasts,
        candidates=tuple(_candidate(draft) for draft in drafted[1:]),
        published=published_bounds(
            epsilon=task.epsilon,
            delta=task.delta,
            queries=task.queries,
            disagreement=forecast.disagreement,
            rows=LEAST_ROWS,
            scale=next((draft.noise["scale"] for draft in drafted if draft.aggregator == "noisy_max"), None),
        ),
        assumptions=tuple(assumptions),
        nearest=() if feasible else tuple(changes),
        roads=roads,
        warnings=warnings,
        disagreement=forecast.disagreement
        if votes is not None
        else DEFAULT_DISAGREEMENT
        if disagreement is None
        else float(disagreement),
        basis="measured" if votes is not None else "assumed" if disagreement is None else "given",
    )


def _aggregator(aggregator: str, scores: bool) -> str:
    """Return the aggregator to plan for: scores have one of their own."""
    if scores and aggregator not in ("auto", "noisy_shares"):
        raise InvalidInput(f"scores are counted by the aggregator 'noisy_shares' alone, not by {aggregator!r}")
    return "noisy_shares" if scores else aggregator


def _warnings(prior: Any, classes: int, *, aggregator: str, weighted: bool, rows: int | None) -> tuple[str, ...]:
    texts = [few_rows_warning(classes, rows=rows)]
    if prior is not None and aggregator != "noisy_shares":
        texts.append(rare_class_warning(check_prior(prior, range(classes)), weighted=weighted, rows=rows))
    return tuple(text for text in texts if text is not None)


def _roads(task: Task, *, records: int | None, features: int | None, public: int | None) -> tuple[Road, ...]:
    """Return the roads beside votes, where enough is known."""
    public = None if public is None else check_count("public", public, least=0)
    if public is None or features is None or records is None:
        return ()
    return weigh_roads(task, records=check_count("records", records), features=features, public=public)


def _asked(
    *,
    epsilon: object,
    delta: object,
    queries: object,
    classes: object,
    disagreement: object,
    votes: Any,
    no_quorums: object,
) -> tuple[Task, VoteForecast, list[str]]:
    """Check what was asked and return it with the forecast and what had to be assumed."""
    task = Task(
        epsilon=check_positive("epsilon", epsilon),
        delta=check_delta(delta),
        queries=check_count("queries", queries),
        classes=2 if classes is None else check_count("classes", classes, least=2),
        no_quorums=None if no_quorums is None else check_count("no_quorums", no_quorums),
    )
    if votes is not None:
        if disagreement is not None:
            raise InvalidInput("give votes or disagreement, not both: votes say how much the teachers disagree")
        forecast = VoteForecast.from_votes(votes)
        columns = int(forecast.copies.sum()) + 1
        if classes is not None and columns != task.classes:
            raise InvalidInput(f"votes must have one column for each of the {task.classes} classes, not {columns}")
        seen = f"queries are like the {forecast.evidence:,} public points: {forecast.disagreement:.1%} of votes against"
        return replace(task, classes=columns), forecast, [seen]
    assumptions = []
    if disagreement is None:
        disagreement = DEFAULT_DISAGREEMENT
        assumptions.append(f"disagreement was not given: {DEFAULT_DISAGREEMENT} is assumed")
    share = 0.0 if disagreement == 0 else check_rate("disagreement", disagreement)
    if share > 0.5:
        raise InvalidInput(f"disagreement must be at most 0.5, half of the votes, not {disagreement!r}")
    if task.classes > 2:
        assumptions.append("all who disagree vote for one rival label, the worst case for more than two classes")
    assumptions.append("disagreement differs from query to query like a Beta law of concentration 4")
    return task, VoteForecast.from_disagreement(share, classes=task.classes), assumptions


def _teachers(
    aggregator: str,
    task: Task,
    forecast: VoteForecast,
    purpose: Purpose,
    *,
    teachers: int | None,
    records: int | None,
    assumptions: list[str],
) -> int:
    """Return the number of teachers: the one given, or one chosen."""
    if records is not None:
        records = check_count("records", records)
    if teachers is not None:
        teachers = check_count("teachers", teachers)
        if records is not None and teachers > records:
            raise InvalidInput(f"teachers must be at most records={records}, one record each, not {teachers}")
        if records is not None and records // teachers < LEAST_ROWS:
            assumptions.append(f"teachers of fewer than {LEAST_ROWS} records still disagree no more than this")
        return teachers
    if records is None:
        count = smallest_teachers(aggregator, task, forecast, most=None)
        assumptions.append(
            f"neither teachers nor records were given: {count:,} teachers need {count * LEAST_ROWS:,} records "
            f"at {LEAST_ROWS} each"
        )
        return count
    best = best_teachers(aggregator, task, forecast, purpose, records=records)
    if best is not None:
        assumptions.append(
            f"teachers that learn from {purpose.columns} columns lose accuracy to small chunks as simulated ones do"
        )
        return best
    assumptions.append(f"a teacher learns well enough from {LEAST_ROWS} records or more")
    return smallest_teachers(aggregator, task, forecast, most=max(1, records // LEAST_ROWS))


def _chosen(
    aggregator: str, task: Task, forecast: VoteForecast, teachers: int
) -> tuple[tuple[Draft, ...], Calibrated, Expected]:
    """Return the drafts, the best one first, and what that one is and gives by its own certified noise."""
    drafted = drafts(aggregator, task, forecast, teachers)
    calibrated, expected = _certified(drafted[0], task, forecast)
    if expected.worth < drafted[0].expected.worth - 0.01:  # a stand-in misjudged it: look again
        certified = [(*_certified(draft, task, forecast), draft) for draft in drafted]
        calibrated, expected, best = max(certified, key=lambda each: each[1].worth)
        drafted = (best, *(draft for draft in drafted if draft is not best))
    return drafted, calibrated, expected


def _certified(draft: Draft, task: Task, forecast: VoteForecast) -> tuple[Calibrated, Expected]:
    calibrated = draft.make()
    return calibrated, exact(calibrated, task, forecast)


def _noise(draft: Draft, calibrated: Calibrated) -> dict[str, float]:
    """Return the noise of the mechanism as calibrated, under the names of its draft."""
    return {name: float(getattr(calibrated.mechanism, name, value)) for name, value in draft.noise.items()}


def _candidate(draft: Draft) -> Candidate:
    expected = draft.expected
    return Candidate(
        draft.aggregator, dict(draft.noise), draft.no_quorums, expected.answered, expected.agreement, expected.right
    )
