"""`quorate fit`: from private records to a model."""

from pathlib import Path
from typing import Literal

from quorate.cli.options import FIT_OPTIONS, refuse_idle

__all__ = ["fit"]


def fit(
    table: Path,
    *,
    out: Path,
    label: str | None = None,
    classes: str | None = None,
    public: Path | None = None,
    schema: Path | None = None,
    groups: str | None = None,
    leave_out: str | None = None,
    missing_texts: str | None = None,
    learner: Literal[
        "logistic", "ridge", "centroid", "naive-bayes", "stump", "tree", "forest", "boosting", "direction"
    ] = "logistic",
    epsilon: float = 1.0,
    delta: float = 1e-6,
    teachers: int | Literal["auto"] = "auto",
    aggregator: Literal[
        "auto", "quorum", "noisy_max", "confident_max", "soft_majority", "sharp_majority", "between_thresholds"
    ] = "auto",
    queries: int = 1000,
    no_quorums: int | Literal["auto"] = "auto",
    disagreement: float | None = None,
    holdout: float = 0.0,
    jobs: int | None = None,
    method: Literal[
        "subsample", "agnostic", "universal", "stable", "pure", "semi-private", "everlasting"
    ] = "subsample",
    concept: Literal["stumps", "thresholds", "intervals", "boxes", "halfspaces", "conjunctions"] | None = None,
    gamma: float = 0.1,
    points: int | None = None,
    rows_per_person: int = 1,
    ask: Path | None = None,
    chunk: int | Literal["auto"] = "auto",
    growth: float = 1.0,
    most_seats: int | None = None,
    refresh: Literal["queries", "pool"] = "queries",
    relabel: Literal["votes", "labelboost"] = "votes",
    query_epsilon: float | None = None,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Fit teachers on a table of private records and write a model that `quorate predict` can ask.

    How columns become numbers is never learned from private records. It comes from a public table of the same columns
    (--public), or from a schema (--schema); a table of numbers needs neither.

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow or .feather.
    out
        The folder for the model; it must be new or empty. It holds the budget.
    label
        The column to predict. May stand in the schema.
    classes
        All labels there are, separated by commas. Taken from the public table or the schema if they show them.
    public
        A table of public records of the same columns, by which they are encoded.
    schema
        A JSON file that says how each column is encoded.
    groups
        The column that says whose row it is. The person, not the row, is then protected.
    leave_out
        Columns not to use, separated by commas.
    missing_texts
        Texts that mean a missing value, separated by commas, such as "?". An empty text, NA and NaN always do.
    learner
        What each teacher is. The first five are fitted all at once and fast. "direction" is for method "everlasting".
    epsilon
        The privacy loss allowed for all answers together.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    teachers
        How many teachers the records are dealt to.
    aggregator
        The mechanism that counts the ballots.
    queries
        How many queries are planned for.
    no_quorums
        How many queries may end without a quorum, for mechanisms that pay for those alone.
    disagreement
        The mean share of teachers expected to vote against the plurality, if it is known.
    holdout
        The share of units kept from all teachers to estimate their disagreement privately, for a tenth of the budget.
    jobs
        How many processes fit teachers that are not fitted all at once; -1 takes every core.
    method
        How records become answers. "subsample" fits teachers on them as they are. "everlasting" does so too, answers
        without an end, and lets queries teach the teachers of later queries. The others use a class of hypotheses
        of two labels: "semi-private" chooses one hypothesis among those that the public table tells apart, which may be
        published; "agnostic", "universal", "stable" and "pure" answer the queries of --ask in the same command and keep
        nothing.
    concept
        The class of hypotheses, stumps unless given, for every method but "subsample"; "everlasting" may take one in
        place of a learner.
    gamma
        By how much one unit may move a prediction of method "stable".
    points
        How many rows of the public table, at random, define the candidates of method "semi-private".
    rows_per_person
        With --groups, how many rows of a person are used, for every method but "subsample".
    ask
        The queries, a table, for methods that answer in the same command. Answers stand in answers.csv in the folder.
    chunk
        For "everlasting": how many units a teacher has.
    growth
        For "everlasting": how many times more queries each phase takes than the one before.
    most_seats
        For "everlasting": how many queries a phase takes at most, with --growth above 1.
    refresh
        For "everlasting": what teaches the next phase: the queries, or a pool of points that the owner feeds.
    relabel
        For "everlasting": "votes" teaches with released labels, "labelboost" with those of a chosen hypothesis.
    query_epsilon
        For "everlasting": the privacy loss allowed for one query; that of the records unless given.
    report
        An HTML page to write, with the guarantee and the plan.
    json
        Print one JSON object instead of a table.
    """
    refuse_idle(fit, locals(), FIT_OPTIONS[method], f"with --method {method}")
    from quorate.cli.fit import Tables, run_fit

    tables = Tables(
        table=table,
        label=label,
        classes=classes,
        public=public,
        schema=schema,
        groups=groups,
        leave_out=leave_out,
        missing_texts=missing_texts,
    )
    if method == "everlasting":
        from quorate.cli.fit_everlasting import run_fit_everlasting

        return run_fit_everlasting(
            tables,
            learner=learner,
            concept=concept,
            epsilon=epsilon,
            delta=delta,
            query_epsilon=query_epsilon,
            chunk=chunk,
            no_quorums=no_quorums,
            growth=growth,
            most_seats=most_seats,
            relabel=relabel,
            refresh=refresh,
            jobs=jobs,
            out=out,
            as_json=json,
        )
    if method != "subsample":
        from quorate.cli.fit_concept import run_fit_concept

        return run_fit_concept(
            tables,
            method=method,
            concept=concept or "stumps",
            epsilon=epsilon,
            delta=delta,
            gamma=gamma,
            points=points,
            rows_per_person=rows_per_person,
            ask=ask,
            out=out,
            report=report,
            as_json=json,
        )
    return run_fit(
        tables,
        learner=learner,
        epsilon=epsilon,
        delta=delta,
        teachers=teachers,
        aggregator=aggregator,
        queries=queries,
        no_quorums=no_quorums,
        disagreement=disagreement,
        holdout=holdout,
        jobs=jobs,
        out=out,
        report=report,
        as_json=json,
    )
