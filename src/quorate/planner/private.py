"""Plans for private prediction: aggregator, number of teachers, forecast, and changes that would make it feasible."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.planner.classes import check_prior, few_rows_warning, rare_class_warning
from quorate.planner.literature import PublishedBound, published_bounds
from quorate.planner.mechanisms.choose import AGGREGATORS, LEAST_ROWS, drafts, exact
from quorate.planner.mechanisms.forecast import DEFAULT_DISAGREEMENT, VoteForecast
from quorate.planner.mechanisms.nearest import nearest_changes
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task, least_agreement
from quorate.planner.mechanisms.teachers import Purpose, best_teachers, smallest_teachers
from quorate.planner.roads import Road, weigh_roads
from quorate.planner.votes import Candidate, PrivatePlan

__all__ = ["ON_NO_QUORUM", "plan"]

ON_NO_QUORUM = ("abstain", "random", "raise")


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
    """Plan private prediction: the aggregator, the number of teachers and what to expect.

    Reads nothing private.

    `disagreement` is the mean share of teachers expected to vote against the plurality on a query; `votes`, which are
    more informative, are counts of votes on public points (one row per point, one column per class) by any number of
    teachers. `aggregator="auto"` chooses the one with the largest share of queries expected to be answered with the
    plurality label; a name uses that one. Without `teachers`, their number is chosen: each gets at least 20 `records`;
    with `features` too, the number of columns after encoding, the plan takes the number of teachers that loses least to
    noise and to small chunks together (with `teach`, for a student that learns from the answers). Without `records`, it
    takes the fewest teachers that answer 95 in 100. `no_quorums` is chosen unless given. With `on_no_quorum="random"` a
    query without a quorum gets a random label, which costs no more than the no-quorum, and counts as answered. A plan
    is not feasible if its share stays below `answer_rate`, or if its answers are nearer to guesses than to the
    plurality label; it then says what would be feasible. Given `records`, `features` and `public`, the number of public
    points (0 for none), `roads` compares votes with a student, a linear model and one hypothesis.

    `scores` plans for noisy shares of the vote instead of labels. A plan with labels warns if the `prior`, the declared
    shares of the classes, has a class so rare that it will hardly win a majority (`class_weight` says whether teachers
    weight the classes).

    The forecast from `disagreement` alone is a model: over queries it follows a Beta distribution with concentration 4,
    and teachers that disagree agree on one rival. Votes of real teachers can be more even, or fall into two camps; and
    fewer records make teachers disagree more, which no plan can know. Give `votes` if you have any.

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
    "a class of share 10% will rarely win a majority: use scores=True or class_weight=...or a linear model"
    """
    if on_no_quorum not in ON_NO_QUORUM:
        raise InvalidInput(f"on_no_quorum must be one of {', '.join(ON_NO_QUORUM)}, not {on_no_quorum!r}")
    task = _task(epsilon, delta, queries, classes, no_quorums, guess=on_no_quorum == "random")
    task, supposed = _supposed(task, disagreement, votes, declared=classes is not None)
    forecast, assumptions = supposed.forecast, list(supposed.assumptions)
    answer_rate, aggregator = check_rate("answer_rate", answer_rate), _aggregator(aggregator, scores)
    features = None if features is None else check_count("features", features)
    roads = _roads(task, records=records, features=features, public=public)
    purpose = Purpose(columns=features, teach=teach, rate=answer_rate)
    count = _teachers(aggregator, task, forecast, purpose, teachers=teachers, records=records, assumptions=assumptions)
    drafted, calibrated, expected = _chosen(aggregator, task, forecast, count)
    feasible = expected.right >= answer_rate and expected.agreement >= least_agreement(task.classes)
    rows = None if records is None else records // count
    changes = (
        ()
        if feasible
        else nearest_changes(
            aggregator, task, forecast, count, rate=answer_rate, records=records, free=teachers is None
        )
    )
    return PrivatePlan(
        teachers=count,
        rows_per_teacher=rows,
        epsilon=task.epsilon,
        delta=task.delta,
        queries=task.queries,
        classes=task.classes,
        **_told(drafted, calibrated, expected),
        answer_rate=answer_rate,
        feasible=feasible,
        on_no_quorum=on_no_quorum,
        published=_published(task, forecast, drafted),
        assumptions=(*assumptions, *_loses_more(drafted, expected)),
        nearest=tuple(changes),
        roads=roads,
        warnings=_warnings(prior, task.classes, aggregator=aggregator, weighted=class_weight is not None, rows=rows),
        disagreement=supposed.disagreement,
        basis=supposed.basis,
    )


def _told(drafted: tuple[Draft, ...], calibrated: Calibrated, expected: Expected) -> dict[str, Any]:
    """Return what a plan says of the mechanism that was chosen, and of the others."""
    return {
        "aggregator": drafted[0].aggregator,
        "no_quorums": drafted[0].no_quorums,
        "mechanism": calibrated.mechanism,
        "order": calibrated.order,
        "slack": calibrated.slack,
        "noise": _noise(drafted[0], calibrated),
        "answered": expected.answered,
        "agreement": expected.agreement,
        "right": expected.right,
        "lasts": expected.lasts,
        "candidates": tuple(_candidate(draft) for draft in drafted[1:]),
    }


def _loses_more(drafted: tuple[Draft, ...], expected: Expected) -> list[str]:
    """Return which mechanisms would do better on queries just like this, and were not taken."""
    return [
        f"{draft.aggregator} would answer {draft.expected.right:.1%} right if queries were exactly like this, but it "
        "loses more when they are not"
        for draft in drafted[1:]
        if draft.expected.right > expected.right + 0.001
    ]


def _published(task: Task, forecast: VoteForecast, drafted: tuple[Draft, ...]) -> tuple[PublishedBound, ...]:
    """Return what the literature promises for the same task."""
    return published_bounds(
        epsilon=task.epsilon,
        delta=task.delta,
        queries=task.queries,
        disagreement=forecast.disagreement,
        rows=LEAST_ROWS,
        scale=next((draft.noise["scale"] for draft in drafted if draft.aggregator == "noisy_max"), None),
    )


def _aggregator(aggregator: str, scores: bool) -> str:
    """Return the aggregator to plan for: scores have one of their own."""
    if scores and aggregator not in ("auto", "noisy_shares"):
        raise InvalidInput(f"scores are counted by the aggregator 'noisy_shares' alone, not by {aggregator!r}")
    if aggregator not in ("auto", *AGGREGATORS):
        raise InvalidInput(f"aggregator must be 'auto' or one of {', '.join(AGGREGATORS)}, not {aggregator!r}")
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


def _task(epsilon: object, delta: object, queries: object, classes: object, no_quorums: object, *, guess: bool) -> Task:
    """Check what was asked, and return it."""
    return Task(
        epsilon=check_positive("epsilon", epsilon),
        delta=check_delta(delta),
        queries=check_count("queries", queries),
        classes=2 if classes is None else check_count("classes", classes, least=2),
        no_quorums=None if no_quorums is None else check_count("no_quorums", no_quorums),
        guess=guess,
    )


@dataclass(frozen=True)
class _Supposed:
    """What a plan rests on: how much teachers disagree, who says so, and what had to be assumed."""

    forecast: VoteForecast
    disagreement: float
    basis: Literal["assumed", "given", "measured"]
    assumptions: tuple[str, ...]


def _supposed(task: Task, disagreement: Any, votes: Any, *, declared: bool) -> tuple[Task, _Supposed]:
    """Return the task, whose classes votes may tell, and what its plan rests on."""
    if votes is not None:
        if disagreement is not None:
            raise InvalidInput("give votes or disagreement, not both: votes say how much the teachers disagree")
        forecast = VoteForecast.from_votes(votes)
        columns = int(forecast.copies.sum()) + 1
        if declared and columns != task.classes:
            raise InvalidInput(f"votes must have one column for each of the {task.classes} classes, not {columns}")
        seen = f"queries are like the {forecast.evidence:,} public points: {forecast.disagreement:.1%} of votes against"
        return replace(task, classes=columns), _Supposed(forecast, forecast.disagreement, "measured", (seen,))
    assumptions = []
    if disagreement is None:
        assumptions.append(f"disagreement was not given: {DEFAULT_DISAGREEMENT} is assumed")
    given = DEFAULT_DISAGREEMENT if disagreement is None else disagreement
    share = 0.0 if given == 0 else check_rate("disagreement", given)
    if share > 0.5:
        raise InvalidInput(f"disagreement must be at most 0.5, half of the votes, not {disagreement!r}")
    if task.classes > 2:
        assumptions.append("all who disagree vote for one rival label, the worst case for more than two classes")
    assumptions.append("disagreement differs from query to query like a Beta law of concentration 4")
    forecast = VoteForecast.from_disagreement(share, classes=task.classes)
    return task, _Supposed(forecast, share, "assumed" if disagreement is None else "given", tuple(assumptions))


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
