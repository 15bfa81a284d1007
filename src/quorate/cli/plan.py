"""What is achievable, in tables: a plan with its alternatives and published bounds, or methods on a class."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from quorate.cli.named import make_concept
from quorate.cli.options import ConceptName
from quorate.core.errors import InvalidInput
from quorate.planner import Plan, plan, plan_concept


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


def run_plan(
    *,
    votes: Path | None = None,
    prior: str | None = None,
    public: int | None = None,
    as_json: bool = False,
    **options: Any,
) -> int:
    """Plan, print, and return 1 where the plan is not feasible. The other `options` are those of `quorate.plan`."""
    shares = None if prior is None else prior.split(",")
    if shares is not None and options.get("classes") is None and votes is None:
        options["classes"] = len(shares)
    planned = plan(votes=None if votes is None else read_votes(votes), prior=shares, public=public or 0, **options)
    if as_json:
        print(json.dumps(planned.as_dict()))
    else:
        _show(Console(), planned)
    return 0 if planned.feasible else 1


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


def run_plan_concept(
    concept: ConceptName,
    *,
    features: int | None,
    records: int | None,
    public: int | None,
    as_json: bool = False,
    **options: Any,
) -> int:
    """Plan, print, and return 1 where no method is sure to keep alpha. Other `options` are `plan_concept`'s."""
    if records is None:
        raise InvalidInput("a plan for a class of hypotheses needs the number of records: --records")
    kind = make_concept(concept, 1 if features is None else features)
    planned = plan_concept(concept=kind, records=records, public=public or 0, **options)
    if as_json:
        print(json.dumps(planned.as_dict()))
    else:
        _show_methods(Console(), planned)
    return 0 if planned.feasible else 1


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
