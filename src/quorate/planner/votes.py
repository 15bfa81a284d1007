"""Plans for private prediction by votes: the aggregator, the number of teachers, the forecast and feasible changes."""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

from quorate.core.checks import check_choice, check_count, check_delta, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.planner._comparison import compare_methods, published_bounds
from quorate.planner._teachers import (
    AGGREGATORS,
    LEAST_ROWS,
    Purpose,
    best_teachers,
    drafts,
    nearest_changes,
    open_drafts,
    smallest_teachers,
)
from quorate.planner.result import Candidate, Method, Plan
from quorate.planner.task import (
    DEFAULT_DISAGREEMENT,
    Calibrated,
    Draft,
    Expected,
    Task,
    VoteForecast,
    check_prior,
    few_rows_warning,
    least_agreement,
    rare_class_warning,
)

ON_NO_QUORUM = ("abstain", "random", "raise")
_CERTAIN = 0.999  # the largest share that a forecast states
_NO_QUORUM = ("quorum", "confident_max", "stability", "between_thresholds")  # do not answer every query
_BETTER_THAN_CHANCE = 0.1  # by how much agreement must exceed that of a guess to go without a warning
_NAMES = {
    "quorum": "Quorum",
    "noisy_max": "a noisy maximum",
    "noisy_shares": "noisy shares",
    "confident_max": "a confident noisy maximum",
    "sharp_majority": "a sharp majority",
    "soft_majority": "a soft majority",
    "stability": "the stability test",
    "between_thresholds": "two thresholds",
}


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
) -> Plan:
    """Plan private prediction: the aggregator, the number of teachers and what to expect.

    Reads nothing private.

    Parameters
    ----------
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records. 0 allows only
        sharp_majority and soft_majority.
    queries
        How many queries will be asked.
    records
        How many private records (or people) there are. The number of teachers is chosen; each gets at least 20.
    teachers
        The number of teachers, if it is already decided. Without it and without `records`, the plan takes the fewest
        teachers that answer 95 in 100.
    classes
        The number of labels; by default 2, or as many as the votes have columns.
    disagreement
        The mean share of teachers expected to vote against the plurality on a query; 0.1 by default.
    votes
        Counts of votes on public points (one row per point, one column per class) by any number of teachers, to use
        instead of a guess.
    aggregator
        How ballots become answers; "auto" takes the one with the most queries expected to be answered correctly.
    no_quorums
        How many queries may find no quorum before a run ends; chosen by default.
    answer_rate
        The share of queries that a feasible plan answers with the plurality label. Its answers must also be nearer to
        that label than to guesses: with two labels, 75% of them have it.
    on_no_quorum
        What a query without a quorum gets: nothing, or a random label, which costs no more and counts as an answer.
    features
        The number of encoded columns of a record. With `records`, the number of teachers is that which loses least to
        noise and to small chunks together, and votes are compared with a student and a linear model.
    public
        The number of public points, for a student, a linear model, or a hypothesis chosen with their help.
    teach
        Choose the number of teachers for a student that learns from the answers.
    scores
        Plan for the noisy share of votes for each class instead of a label.
    prior
        The declared shares of the classes. A warning says if one is too rare to win a majority.
    class_weight
        How teachers weight the classes.

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
    >>> [method.estimator for method in plan(records=30_000, teachers=800, features=50, public=5000).methods[:2]]
    ['PrivateLogisticRegression', 'StudentClassifier']
    >>> plan(teachers=1000, prior=[0.9, 0.1]).warnings[0]
    "a class of share 10% will rarely win a majority: use scores=True or class_weight=...or a linear model"
    """
    check_choice("on_no_quorum", on_no_quorum, ON_NO_QUORUM)
    task = _check_task(epsilon, delta, queries, classes, no_quorums, guess=on_no_quorum == "random")
    task, premise = _find_premise(task, disagreement, votes, declared=classes is not None)
    answer_rate, aggregator = check_rate("answer_rate", answer_rate), check_aggregator(aggregator, scores)
    features = None if features is None else check_count("features", features)
    records = None if records is None else check_count("records", records)
    methods = _compare(task, records=records, features=features, public=public)
    purpose = Purpose(columns=features, teach=teach, rate=answer_rate)
    forecast = premise.forecast
    count, assumption = _choose_teachers(aggregator, task, forecast, purpose, teachers=teachers, records=records)
    drafted, calibrated, expected = _choose_mechanism(aggregator, task, forecast, count)
    feasible = expected.right >= answer_rate and expected.agreement >= least_agreement(task.classes)
    rows = None if records is None else records // count
    figures = {
        **_describe_mechanism(drafted[0], calibrated, expected),
        "candidates": partial(_list_candidates, aggregator, task, forecast, count, drafted[0].aggregator),
        "teachers": count,
        "rows_per_teacher": rows,
        "on_no_quorum": on_no_quorum,
        "answer_rate": answer_rate,
        **_describe_target(task, premise, drafted),
    }
    keywords = {name: figures[name] for name in _SETTINGS}
    search: dict[str, Any] = {"rate": answer_rate, "records": records, "free": teachers is None}
    return Plan(
        family="votes",
        feasible=feasible,
        keywords=keywords | ({"no_quorums": "auto"} if keywords["no_quorums"] is None else {}),
        figures=figures,
        text=_text(figures, expected),
        premise=_PREMISES[premise.basis].format(f"{100 * premise.disagreement:.3g}% of the votes"),
        shortage="" if feasible else _shortage(figures),
        nearest=() if feasible else tuple(nearest_changes(aggregator, task, forecast, count, **search)),
        methods=methods,
        assumptions=(*premise.assumptions, *assumption, *_loses_more(drafted, expected)),
        warnings=_warnings(prior, task.classes, aggregator=aggregator, weighted=class_weight is not None, rows=rows),
        shown=("aggregator", "teachers", "epsilon", "delta", "queries"),
        bar=("queries expected to be answered with the teachers' plurality label", expected.right),
    )


_SETTINGS = ("epsilon", "delta", "queries", "teachers", "aggregator", "on_no_quorum", "no_quorums")  # of the estimator
_PREMISES = {
    "assumed": "This supposes that {} go against the plurality, which is assumed and not measured.",
    "given": "This supposes that {} go against the plurality, as was given.",
    "measured": "On public points {} go against the plurality.",
}


def _describe_mechanism(chosen: Draft, calibrated: Calibrated, expected: Expected) -> dict[str, Any]:
    noise = {name: float(getattr(calibrated.mechanism, name, value)) for name, value in chosen.noise.items()}
    return {
        "aggregator": chosen.aggregator,
        "no_quorums": chosen.no_quorums,
        "mechanism": calibrated.mechanism,
        "order": calibrated.order,
        "slack": calibrated.slack,
        "noise": noise,
        "answered": expected.answered,
        "agreement": expected.agreement,
        "right": expected.right,
        "lasts": expected.lasts,
    }


def _describe_target(task: Task, premise: "_Premise", drafted: tuple[Draft, ...]) -> dict[str, Any]:
    """Return the figures of the target, and the bounds from the literature for it."""
    return {
        "epsilon": task.epsilon,
        "delta": task.delta,
        "queries": task.queries,
        "classes": task.classes,
        "published": partial(
            published_bounds,
            epsilon=task.epsilon,
            delta=task.delta,
            queries=task.queries,
            disagreement=premise.forecast.disagreement,
            rows=LEAST_ROWS,
            scale=next((draft.noise["scale"] for draft in drafted if draft.aggregator == "noisy_max"), None),
        ),
        "disagreement": premise.disagreement,
        "basis": premise.basis,
    }


def _list_candidates(
    aggregator: str, task: Task, forecast: VoteForecast, teachers: int, chosen: str
) -> tuple[Candidate, ...]:
    """Return the forecasts of the mechanisms that were not chosen, the best one first."""
    return tuple(
        Candidate(
            draft.aggregator,
            dict(draft.noise),
            draft.no_quorums,
            draft.expected.answered,
            draft.expected.agreement,
            draft.expected.right,
        )
        for draft in drafts(aggregator, task, forecast, teachers)
        if draft.aggregator != chosen
    )


def _text(figures: dict[str, Any], expected: Expected) -> str:
    aggregator, queries, no_quorums = figures["aggregator"], figures["queries"], figures["no_quorums"]
    rows, guess = figures["rows_per_teacher"], 1 / figures["classes"]
    units = "" if rows is None else f" of {rows:,} units each"
    sentences = [
        f"{figures['teachers']:,} teachers{units} vote through {_NAMES[aggregator]}.",
        f"Of {queries:,} queries about {expected.answered:.1%} are expected to be answered, {expected.agreement:.1%} "
        "of those with the teachers' plurality label.",
        f"All of it together keeps epsilon = {figures['epsilon']:g}, delta = {figures['delta']:g}.",
    ]
    if expected.agreement < guess + _BETTER_THAN_CHANCE:
        sentences.append(f"That is hardly better than guessing, which would agree {guess:.0%} of the time.")
    if aggregator == "noisy_shares":
        deviation = figures["noise"]["scale"] / figures["teachers"]
        sentences.append(f"An answer is the share of votes for each class, with a deviation of {deviation:.2g}.")
    if no_quorums is not None:
        sentences.append(
            f"Answers are free; the run ends with no-quorum number {no_quorums:,}, and every query after it is refused."
        )
    if no_quorums is not None or expected.lasts < _CERTAIN:
        sentences.append(f"With probability {min(expected.lasts, _CERTAIN):.1%} all {queries:,} are reached.")
    if figures["on_no_quorum"] == "random" and aggregator in _NO_QUORUM:
        sentences.append("A query without a quorum gets a label at random, which counts as an answer here.")
    return " ".join(sentences)


def _shortage(figures: dict[str, Any]) -> str:
    count, threshold = figures["teachers"], least_agreement(figures["classes"])
    teachers, parts = "one teacher" if count == 1 else f"{count:,} teachers", []
    if figures["right"] < figures["answer_rate"]:
        parts.append(
            f"only {figures['right']:.1%} of {figures['queries']:,} queries would be answered with the teachers' "
            f"plurality label, and {figures['answer_rate']:.0%} are asked for"
        )
    if figures["agreement"] < threshold:
        parts.append(
            f"only {figures['agreement']:.1%} of the answers would be the teachers' plurality label, and "
            f"{threshold:.0%} must be, halfway between guessing and certainty"
        )
    return f"with {teachers} {'; and '.join(parts)}"


def _loses_more(drafted: tuple[Draft, ...], expected: Expected) -> list[str]:
    """Return warnings about mechanisms with a better forecast that were not chosen."""
    return [
        f"{draft.aggregator} would answer {draft.expected.right:.1%} correctly if queries were exactly like this, "
        "but it loses more when they differ"
        for draft in drafted[1:]
        if draft.expected.right > expected.right + 0.001
    ]


def check_aggregator(aggregator: str, scores: bool) -> str:
    """Return the aggregator to plan for; scores always use `noisy_shares`."""
    if scores and aggregator not in ("auto", "noisy_shares"):
        raise InvalidInput(f"aggregator must be 'auto' or 'noisy_shares' for scores, got {aggregator!r}")
    if aggregator not in ("auto", *AGGREGATORS):
        raise InvalidInput(f"aggregator must be 'auto' or one of {', '.join(AGGREGATORS)}, got {aggregator!r}")
    return "noisy_shares" if scores else aggregator


def _warnings(prior: Any, classes: int, *, aggregator: str, weighted: bool, rows: int | None) -> tuple[str, ...]:
    texts = [few_rows_warning(classes, rows=rows)]
    if prior is not None and aggregator != "noisy_shares":
        texts.append(rare_class_warning(check_prior(prior, range(classes)), weighted=weighted, rows=rows))
    return tuple(text for text in texts if text is not None)


def _compare(task: Task, *, records: int | None, features: int | None, public: int | None) -> tuple[Method, ...]:
    """Return the methods to compare with votes, if records and features are known."""
    public = None if public is None else check_count("public", public, least=0)
    if public is None or features is None or records is None:
        return ()
    return compare_methods(task, records=records, features=features, public=public)


def _check_task(
    epsilon: object, delta: object, queries: object, classes: object, no_quorums: object, *, guess: bool
) -> Task:
    return Task(
        epsilon=check_positive("epsilon", epsilon),
        delta=check_delta(delta),
        queries=check_count("queries", queries),
        classes=2 if classes is None else check_count("classes", classes, least=2),
        no_quorums=None if no_quorums is None else check_count("no_quorums", no_quorums),
        guess=guess,
    )


@dataclass(frozen=True)
class _Premise:
    """The premise of a plan: the disagreement of teachers, its evidence, and the assumptions."""

    forecast: VoteForecast
    disagreement: float
    basis: Literal["assumed", "given", "measured"]
    assumptions: tuple[str, ...]


def _find_premise(task: Task, disagreement: Any, votes: Any, *, declared: bool) -> tuple[Task, _Premise]:
    """Return the task, with the number of classes that `votes` have, and the premise of its plan."""
    if votes is not None:
        if disagreement is not None:
            raise InvalidInput("votes already show the disagreement of the teachers; leave disagreement out")
        forecast = VoteForecast.from_votes(votes)
        columns = int(forecast.copies.sum()) + 1
        if declared and columns != task.classes:
            raise InvalidInput(f"votes must have one column for each of the {task.classes} classes, got {columns}")
        seen = f"queries are like the {forecast.evidence:,} public points: {forecast.disagreement:.1%} of votes against"
        return replace(task, classes=columns), _Premise(forecast, forecast.disagreement, "measured", (seen,))
    assumptions = []
    if disagreement is None:
        assumptions.append(f"disagreement was not given: {DEFAULT_DISAGREEMENT} is assumed")
    supposed = DEFAULT_DISAGREEMENT if disagreement is None else disagreement
    share = 0.0 if supposed == 0 else check_rate("disagreement", supposed)
    if share > 0.5:
        raise InvalidInput(f"disagreement must be at most 0.5, half of the votes, got {disagreement!r}")
    if task.classes > 2:
        assumptions.append("all who disagree vote for one rival label, the worst case for more than two classes")
    assumptions.append("disagreement differs from query to query like a Beta law of concentration 4")
    forecast = VoteForecast.from_disagreement(share, classes=task.classes)
    return task, _Premise(forecast, share, "assumed" if disagreement is None else "given", tuple(assumptions))


def _choose_teachers(
    aggregator: str,
    task: Task,
    forecast: VoteForecast,
    purpose: Purpose,
    *,
    teachers: int | None,
    records: int | None,
) -> tuple[int, list[str]]:
    """Return the number of teachers, declared or chosen, and the assumptions behind it."""
    if teachers is not None:
        teachers = check_count("teachers", teachers)
        if records is not None and teachers > records:
            raise InvalidInput(f"teachers must be at most records={records}, one record each, got {teachers}")
        few = records is not None and records // teachers < LEAST_ROWS
        return teachers, [
            f"teachers of fewer than {LEAST_ROWS} records still disagree no more than this"
        ] if few else []
    if records is None:
        count = smallest_teachers(aggregator, task, forecast, most=None)
        needed = f"{count:,} teachers need {count * LEAST_ROWS:,} records at {LEAST_ROWS} each"
        return count, [f"neither teachers nor records were given: {needed}"]
    best = best_teachers(aggregator, task, forecast, purpose, records=records)
    if best is not None:
        columns = f"teachers that learn from {purpose.columns} columns"
        return best, [f"{columns} lose accuracy to small chunks as simulated ones do"]
    count = smallest_teachers(aggregator, task, forecast, most=max(1, records // LEAST_ROWS))
    return count, [f"a teacher learns well enough from {LEAST_ROWS} records or more"]


@lru_cache(maxsize=64)
def _choose_mechanism(
    aggregator: str, task: Task, forecast: VoteForecast, teachers: int
) -> tuple[tuple[Draft, ...], Calibrated, Expected]:
    """Return the drafts, the best one first, with its calibrated mechanism and certified expectation."""
    drafted = open_drafts(aggregator, task, forecast, teachers)
    calibrated, expected = drafted[0].certify()
    if expected.worth < drafted[0].expected.worth - 0.01:
        # The approximate noise of the draft was too optimistic, so all drafts are certified.
        drafted = drafts(aggregator, task, forecast, teachers)
        certified = [(*draft.certify(), draft) for draft in drafted]
        calibrated, expected, best = max(certified, key=lambda certification: certification[1].worth)
        drafted = (best, *(draft for draft in drafted if draft is not best))
    return drafted, calibrated, expected
