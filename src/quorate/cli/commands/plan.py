"""`quorate plan`: what is achievable, before any record is read."""

from pathlib import Path
from typing import Literal

from quorate.cli.options import PLAN_OPTIONS, ConceptName, refuse_idle


def plan(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    queries: int = 1000,
    records: int | None = None,
    teachers: int | None = None,
    classes: int | None = None,
    disagreement: float | None = None,
    votes: Path | None = None,
    aggregator: Literal[
        "auto",
        "quorum",
        "sharp_majority",
        "noisy_max",
        "confident_max",
        "soft_majority",
        "stability",
        "between_thresholds",
    ] = "auto",
    no_quorums: int | None = None,
    answer_rate: float = 0.5,
    on_no_quorum: Literal["abstain", "random"] = "abstain",
    scores: bool = False,
    prior: str | None = None,
    class_weight: Literal["balanced"] | None = None,
    concept: ConceptName | None = None,
    features: int | None = None,
    alpha: float = 0.1,
    public: int | None = None,
    json: bool = False,
) -> int:
    """Show what is achievable before any private record is read. Exit code 1 if it is less than asked for.

    Example: `quorate plan --records 100000 --queries 10000 --disagreement 0.05`

    Parameters
    ----------
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
        0 allows only sharp_majority and soft_majority.
    queries
        How many queries will be asked.
    records
        How many private records (or people) there are. The number of teachers is chosen; each gets at least 20.
    teachers
        The number of teachers, if it is already decided.
    classes
        The number of labels; by default 2, or as many as the votes have columns.
    disagreement
        The mean share of teachers expected to vote against the plurality on a query; 0.1 by default.
    votes
        A .npy or .csv file of vote counts on public points (one row per point, one column per class), to use instead of
        a guess.
    aggregator
        How ballots become answers; auto takes the one with the most queries expected to be answered correctly.
    no_quorums
        How many queries may find no quorum before a run ends; chosen by default.
    answer_rate
        A plan is feasible if this share of queries is answered with the plurality label, and if the share of answers
        with that label is at least halfway between guessing and certainty (75% with two labels).
    on_no_quorum
        What a query without a quorum gets: nothing, or a random label, which then counts as an answer.
    scores
        Plan for the noisy share of votes for each class instead of a label.
    prior
        The shares of the classes, separated by commas. A warning says if a class is too rare to win a majority.
    class_weight
        "balanced" if teachers weight the classes.
    concept
        A class of hypotheses: compare the methods of `quorate fit` on it instead, by bounds that always hold.
    features
        The number of encoded columns of a record. With --records, the number of teachers is the one that loses the
        least to noise and to small chunks together, and votes are compared with a student and a linear model. With
        --concept, it is the number of columns that the class reads, 1 by default.
    alpha
        With --concept, the target excess error over the best hypothesis.
    public
        The number of public points, for a student, a linear model, or a hypothesis chosen with their help. None by
        default.
    json
        Print one JSON object instead of tables.
    """
    arguments = locals()
    when = "without --concept" if concept is None else "with --concept"
    refuse_idle(plan, arguments, PLAN_OPTIONS[when], when)
    used = {name: arguments[name] for name in PLAN_OPTIONS[when].split() if name != "json"}
    from quorate.cli.plan import run_plan, run_plan_concept

    return run_plan(**used, as_json=json) if concept is None else run_plan_concept(**used, as_json=json)
