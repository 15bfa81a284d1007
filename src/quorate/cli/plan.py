"""`quorate plan`: what is achievable, with alternatives and published bounds, before any record is read."""

from json import dumps
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from quorate.cli.options import AggregatorName, AsJson, ConceptName, make_concept, refuse_idle
from quorate.core.errors import InvalidInput
from quorate.planner import Plan, plan_concept
from quorate.planner import plan as plan_votes

_CONCEPT_OPTIONS = {"concept", "features", "alpha", "public", "records", "epsilon", "delta", "queries"}


def read_votes(path: Path) -> NDArray[np.int64]:
    """Return the counts in a .npy or .csv file, one row a public point and one column a class."""
    if path.suffix not in (".npy", ".csv"):
        raise InvalidInput(f"votes must be a .npy or a .csv file of whole numbers, not {path.name!r}")
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        return np.loadtxt(path, delimiter=",", dtype=np.int64, ndmin=2)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"votes could not be read from {path.name!r}: {error}") from None


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
    aggregator: AggregatorName | Literal["auto", "stability"] = "auto",
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
    json: AsJson = False,
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
        How teachers weight the classes.
    concept
        A class of hypotheses: compare the methods of `quorate fit` on it instead, by bounds that always hold.
    features
        The number of encoded columns of a record. With --records, the number of teachers is the one that loses the
        least to noise and to small chunks together, and votes are compared with a student and a linear model. With
        --concept, it is the number of columns that the class reads, 1 by default.
    alpha
        With --concept, the target excess error over the best hypothesis.
    public
        The number of public points, for a student, a linear model, or a hypothesis chosen with their help.
    """
    arguments = {name: value for name, value in locals().items() if name != "json"}
    unused = {"alpha"} if concept is None else set(arguments) - _CONCEPT_OPTIONS
    refuse_idle(plan, arguments | {"json": json}, unused, f"{'without' if concept is None else 'with'} --concept")
    planned = make_plan(**{name: value for name, value in arguments.items() if name not in unused})
    if json:
        print(dumps(planned.as_dict()))
    elif concept is None:
        _show(Console(), planned)
    else:
        _show_methods(Console(), planned)
    return 0 if planned.feasible else 1


def make_plan(
    *,
    concept: ConceptName | None = None,
    votes: Path | None = None,
    prior: str | None = None,
    public: int | None = None,
    **options: Any,
) -> Plan:
    """Plan votes, or methods on a class of hypotheses, with `options` of `quorate.plan` or `plan_concept`."""
    if concept is not None:
        if options["records"] is None:
            raise InvalidInput("a plan for a class of hypotheses needs the number of records: --records")
        kind = make_concept(concept, options.pop("features") or 1)
        return plan_concept(concept=kind, public=public or 0, **options)
    shares = None if prior is None else prior.split(",")
    if shares is not None and options.get("classes") is None and votes is None:
        options["classes"] = len(shares)
    return plan_votes(votes=None if votes is None else read_votes(votes), prior=shares, public=public or 0, **options)


def _show(console: Console, planned: Plan) -> None:
    console.print(planned.summary().split(" This falls short")[0] + "\n")
    console.print(_comparison(planned))
    if planned.methods:
        console.print(_compare_methods(planned))
        for method in planned.methods:
            console.print(f"{method.name}: {method.reason}.")
    for sentence in planned.assumptions:
        console.print(f"Assumed: {sentence}.")
    if planned.published:
        console.print("\n[bold]Beside it, as published[/bold]")
        for bound in planned.published:
            console.print(f"{bound.citation}: {bound.sentence}.")
    if planned.feasible:
        return
    console.print(f"\n[bold]Not feasible[/bold]: {planned.shortage}.")
    if not planned.nearest:
        console.print("No change of one number alone would do.")
        return
    table = Table("any one of these would do", "answered and right", title="Nearest feasible")
    for change in planned.nearest:
        table.add_row(change.sentence, f"{change.right:.1%}")
    console.print(table)


def _comparison(planned: Plan) -> Table:
    """Return what each aggregator would give. Only the noise of the chosen one is shown: 80 columns hold no more."""
    columns = [
        Column(title, justify="right") for title in ("answered", "of those, plurality", "of all queries", "no-quorums")
    ]
    noise = ", ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in planned.noise.items())
    caption = f"* chosen, with {noise}"
    table = Table(Column("aggregator", no_wrap=True), *columns, title="Expected: plurality labels", caption=caption)
    for rank, candidate in enumerate([planned, *planned.candidates]):
        table.add_row(
            f"[bold]{candidate.aggregator}[/bold] *" if rank == 0 else candidate.aggregator,
            f"{candidate.answered:.1%}",
            f"{candidate.agreement:.1%}",
            f"{candidate.right:.1%}",
            "-" if candidate.no_quorums is None else f"{candidate.no_quorums:,}",
        )
    return table


def _compare_methods(planned: Plan) -> Table:
    caption = (
        "on a reference table: normal columns, a linear truth. Where the truth is not linear, votes of trees can win"
    )
    columns = (Column("method", no_wrap=True), Column("with", no_wrap=True), Column("expected error", justify="right"))
    table = Table(*columns, title="Methods", caption=caption)
    for method in planned.methods:
        error = f"at most {method.error:.1%}" if method.is_bound else f"{method.error:.1%}"
        table.add_row(method.name, method.estimator, error)
    return table


def _show_methods(console: Console, planned: Plan) -> None:
    table = Table(
        Column("method", no_wrap=True),
        "excess error at most",
        f"records for {planned.alpha:g}",
        "guarantee",
        title=f"{planned.records:,} records, VC dimension {planned.vc_dimension}",
        caption="* best here. The bounds hold for every law of the records: real data do better",
    )
    for rank, method in enumerate(planned.methods):
        table.add_row(
            f"[bold]{method.name}[/bold] *" if rank == 0 else method.name,
            f"{method.error:.3g}",
            "no number" if method.needed is None else f"{method.needed:,}",
            method.reason,
        )
    console.print(table)
    for sentence in planned.assumptions:
        console.print(f"Assumed: {sentence}.")
