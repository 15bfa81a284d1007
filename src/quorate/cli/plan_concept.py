"""Which method on a class of hypotheses, in a table: what each is sure to keep, and the records that it takes."""

import json
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from quorate.cli.named import make_concept
from quorate.cli.options import ConceptName
from quorate.errors import InvalidInput
from quorate.planner import ConceptPlan, plan_concept

__all__ = ["run_plan_concept"]


def run_plan_concept(
    concept: ConceptName, *, features: int, records: int | None, as_json: bool = False, **options: Any
) -> int:
    """Plan, print, and return 1 where no method is sure to keep alpha. Other `options` are `plan_concept`'s."""
    if records is None:
        raise InvalidInput("a plan for a class of hypotheses needs the number of records: --records")
    made = plan_concept(concept=make_concept(concept, features), records=records, **options)
    if as_json:
        print(json.dumps(made.as_dict()))
    else:
        _show(Console(), made)
    return 0 if made.feasible else 1


def _show(console: Console, made: ConceptPlan) -> None:
    table = Table(
        Column("method", no_wrap=True),
        "excess error at most",
        f"records for {made.alpha:g}",
        "guarantee",
        title=f"{made.records:,} records, VC dimension {made.vc_dimension}",
        caption="* best here. The bounds hold for every law of the records: real data do better",
    )
    for place, method in enumerate(made.methods):
        table.add_row(
            f"[bold]{method.name}[/bold] *" if place == 0 else method.name,
            f"{method.error:.3g}",
            "no number" if method.needed is None else f"{method.needed:,}",
            method.guarantee,
        )
    console.print(table)
    for sentence in made.assumptions:
        console.print(f"Assumed: {sentence}.")
