"""`quorate release --plan`: what can be achieved, before any private record is read."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from quorate.cli.release_tables import Subject
from quorate.errors import InvalidInput
from quorate.planner.release import ReleasePlan, plan_release
from quorate.release import Columns
from quorate.tables import read_table

__all__ = ["run_plan"]


def run_plan(
    subject: Subject,
    public: Path | None,
    columns: Columns | None,
    records: int | None,
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    report: Path | None,
    as_json: bool,
) -> int:
    """Plan from public numbers, print the plan, and write its page; exit code 1 where alpha is out of reach."""
    if records is None:
        raise InvalidInput("--plan reads no private record: --records says how many there are")
    known = 0 if public is None else subject.public(read_table(public, role="public"))
    planned = plan_release(
        subject.about, records=records, public=known, epsilon=epsilon, delta=delta, alpha=alpha, columns=columns
    )
    if report is not None:
        from quorate.report.plan_page import write_plan_report

        write_plan_report(planned, report)
    if as_json:
        print(json.dumps(planned.as_dict()))
    else:
        _show_plan(planned)
    return 0 if planned.feasible else 1


def _show_plan(planned: ReleasePlan) -> None:
    console = Console()
    console.print(planned.summary())
    table = Table("engine", "expected largest error", title="Expected", caption="* chosen by auto")
    for place, outlook in enumerate(planned.engines):
        table.add_row(outlook.engine + (" *" if place == 0 else ""), f"{outlook.error:.4g}")
    table.add_row("public records alone, if a fair sample", f"{planned.public_alone:.4g}")
    console.print(table)
    for sentence in planned.published:
        console.print(f"Beside it, as published: {sentence}.")
    if not planned.feasible:
        console.print(
            f"[bold]Not feasible[/bold]: {planned.error + planned.cover:.3g} is above alpha = {planned.alpha:g}."
        )
