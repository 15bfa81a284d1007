"""The way in: from numbers that anybody may know to a plan."""

from dataclasses import replace
from typing import Any, Literal

from quorate.checks import check_count, check_delta, check_positive, check_rate
from quorate.errors import InvalidInput
from quorate.planner.choose import AGGREGATORS, LEAST_ROWS, drafts, exact, smallest_teachers
from quorate.planner.nearest import nearest_changes
from quorate.planner.outlook import DEFAULT_DISAGREEMENT, Outlook
from quorate.planner.published import published_bounds
from quorate.planner.result import Candidate, Plan, least_agreement
from quorate.planner.task import Draft, Expected, Made, Task

__all__ = ["ON_NO_QUORUM", "plan"]

ON_NO_QUORUM = ("abstain", "random", "raise")


def plan(
    *,
    epsilon: float,
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
) -> Plan:
    """Return which aggregator to use with how many teachers, and what to expect of it. Reads nothing private.

    `disagreement` is the mean share of teachers expected to vote against the plurality on a query; `votes` are counts
    of votes on public points (one row a point, one column a class), by any number of teachers, and say more.
    `aggregator="auto"` takes the one with the largest share of queries expected to be answered with the plurality's
    label; a name takes that one. Without `teachers` their number is chosen: from `records` at least 20 for each, else
    the fewest that answer 95 in 100. `no_quorums` is chosen unless given. With `on_no_quorum="random"` a query without
    a quorum gets a label at random, which costs no more than the no-quorum, and counts as answered. A plan whose share
    stays below `answer_rate`, or whose answers are nearer to guesses than to the plurality's label, is not feasible and
    says what would be.

    The outlook of a mere `disagreement` is a model: from query to query it follows a Beta law with concentration 4, and
    those who disagree agree on one rival. Votes of real teachers can be more even, or fall in two camps; and fewer
    records make teachers disagree more, which no plan can know. Give `votes` where there are any.

    >>> plan(teachers=1000, epsilon=1.0, delta=1e-6, queries=10_000, disagreement=0.001).aggregator
    'quorum'
    >>> guessing = plan(teachers=2000, epsilon=1.0, queries=100_000, votes=[[1400, 600]] * 2000, on_no_quorum="random")
    >>> guessing.aggregator, round(guessing.answered, 3)
    ('quorum', 1.0)
    >>> plan(teachers=1000, epsilon=1.0, queries=100, votes=[[240, 10], [20, 230]]).right > 0.99
    True
    """
    task, outlook, assumptions = _asked(
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
    if aggregator != "auto" and aggregator not in AGGREGATORS:
        raise InvalidInput(f"aggregator must be 'auto' or one of {', '.join(AGGREGATORS)}, not {aggregator!r}")
    count = _teachers(aggregator, task, outlook, teachers=teachers, records=records, assumptions=assumptions)
    drafted, made, expected = _chosen(aggregator, task, outlook, count)
    feasible = expected.right >= answer_rate and expected.agreement >= least_agreement(task.classes)
    assumptions += [
        f"{draft.aggregator} would answer {draft.expected.right:.1%} right if queries were exactly like this, but it "
        "loses more when they are not"
        for draft in drafted[1:]
        if draft.expected.right > expected.right + 0.001
    ]
    changes = nearest_changes(
        aggregator, task, outlook, count, rate=answer_rate, records=records, free=teachers is None
    )
    return Plan(
        aggregator=drafted[0].aggregator,
        teachers=count,
        rows_per_teacher=None if records is None else records // count,
        epsilon=task.epsilon,
        delta=task.delta,
        queries=task.queries,
        classes=task.classes,
        no_quorums=drafted[0].no_quorums,
        mechanism=made.mechanism,
        order=made.order,
        slack=made.slack,
        noise=_noise(drafted[0], made),
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
            disagreement=outlook.disagreement,
            rows=LEAST_ROWS,
            scale=next((draft.noise["scale"] for draft in drafted if draft.aggregator == "noisy_max"), None),
        ),
        assumptions=tuple(assumptions),
        nearest=() if feasible else tuple(changes),
    )


def _asked(
    *,
    epsilon: object,
    delta: object,
    queries: object,
    classes: object,
    disagreement: object,
    votes: Any,
    no_quorums: object,
) -> tuple[Task, Outlook, list[str]]:
    """Check what was asked and return it with the outlook and what had to be assumed."""
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
        outlook = Outlook.from_votes(votes)
        columns = int(outlook.copies.sum()) + 1
        if classes is not None and columns != task.classes:
            raise InvalidInput(f"votes must have one column for each of the {task.classes} classes, not {columns}")
        seen = f"queries are like the {outlook.evidence:,} public points: {outlook.disagreement:.1%} of votes against"
        return replace(task, classes=columns), outlook, [seen]
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
    return task, Outlook.from_disagreement(share, classes=task.classes), assumptions


def _teachers(
    aggregator: str,
    task: Task,
    outlook: Outlook,
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
        count = smallest_teachers(aggregator, task, outlook, most=None)
        assumptions.append(
            f"neither teachers nor records were given: {count:,} teachers need {count * LEAST_ROWS:,} records "
            f"at {LEAST_ROWS} each"
        )
        return count
    assumptions.append(f"a teacher learns well enough from {LEAST_ROWS} records or more")
    return smallest_teachers(aggregator, task, outlook, most=max(1, records // LEAST_ROWS))


def _chosen(aggregator: str, task: Task, outlook: Outlook, teachers: int) -> tuple[tuple[Draft, ...], Made, Expected]:
    """Return the drafts, the best one first, and what that one is and gives by its own certified noise."""
    drafted = drafts(aggregator, task, outlook, teachers)
    made, expected = _certified(drafted[0], task, outlook)
    if expected.worth < drafted[0].expected.worth - 0.01:  # a stand-in misjudged it: look again
        certified = [(*_certified(draft, task, outlook), draft) for draft in drafted]
        made, expected, best = max(certified, key=lambda each: each[1].worth)
        drafted = (best, *(draft for draft in drafted if draft is not best))
    return drafted, made, expected


def _certified(draft: Draft, task: Task, outlook: Outlook) -> tuple[Made, Expected]:
    made = draft.make()
    return made, exact(made, task, outlook)


def _noise(draft: Draft, made: Made) -> dict[str, float]:
    """Return the noise of the mechanism as made, under the names of its draft."""
    return {name: float(getattr(made.mechanism, name, value)) for name, value in draft.noise.items()}


def _candidate(draft: Draft) -> Candidate:
    expected = draft.expected
    return Candidate(
        draft.aggregator, dict(draft.noise), draft.no_quorums, expected.answered, expected.agreement, expected.right
    )
