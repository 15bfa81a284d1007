"""`quorate release --plan`: what can be achieved, before any private record is read."""

import json

from rich.console import Console
from rich.table import Table

from quorate.cli.commands.release_options import ReleaseOptions
from quorate.cli.release_tables import Subject
from quorate.core.errors import InvalidInput
from quorate.release import Columns
from quorate.release.plan import ReleasePlan, plan_release
from quorate.tables import read_table

__all__ = ["run_plan"]


def run_plan(subject: Subject, columns: Columns | None, options: ReleaseOptions) -> int:
    """Plan from public numbers, print the plan, and write its page; exit code 1 where alpha is out of reach."""
    records, public, output = options.planned.records, options.records.public, options.output
    if records is None:
        raise InvalidInput("--plan reads no private record: --records says how many there are")
    known = 0 if public is None else subject.public(read_table(public, role="public"))
    settings = {"epsilon": options.spending.epsilon, "delta": options.spending.delta, "alpha": options.online.alpha}
    planned = plan_release(subject.about, records=records, public=known, columns=columns, **settings)
    if output.report is not None:
        from quorate.report.plan_page import write_plan_report

        write_plan_report(planned, output.report)
    if output.json:
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
    if planned.public:
        table.add_row("public records alone, if a fair sample", f"{planned.public_alone:.4g}")
    console.print(table)
    for sentence in planned.published:
        console.print(f"Beside it, as published: {sentence}.")
    if not planned.feasible:
        console.print(
            f"[bold]Not feasible[/bold]: {planned.error + planned.cover:.3g} is above alpha = {planned.alpha:g}."
        )
