"""The main job on generated records: what `quorate demo` checks first, and what it prints."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from quorate.cli.output import check_report
from quorate.core.checks import check_count, check_delta, check_positive
from quorate.report import ReportData, write_report

__all__ = ["run_demo"]


def run_demo(*, records: int, queries: int, epsilon: float, delta: float, out: Path, as_json: bool) -> int:
    """Do the whole job on generated visits to a clinic, and name the report that was written."""
    check_positive("epsilon", epsilon)
    check_delta(delta)
    records, queries = check_count("records", records), check_count("queries", queries)
    check_report(out)
    from quorate.report.demo.job import run_job  # only now: what it needs takes a second to load

    console = Console(quiet=as_json, highlight=False)
    with _progress(console, quiet=as_json) as step:
        data = run_job(records=records, queries=queries, epsilon=epsilon, delta=delta, say=console.print, step=step)
        step("writing the report")
        path = write_report(data, out)
    if as_json:
        print(json.dumps({"report": str(path), **data.as_dict()}))
        return 0
    _show(console, data)
    console.print(f"The report: {path}", soft_wrap=True)
    return 0


@contextmanager
def _progress(console: Console, *, quiet: bool) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        now: dict[str, TaskID] = {}

        def step(description: str, share: float | None = None) -> None:
            if description not in now:
                for done in now.values():
                    progress.remove_task(done)
                now.clear()
                now[description] = progress.add_task(description, total=None if share is None else 1.0)
            progress.update(now[description], completed=share or 0.0)

        yield step


def _show(console: Console, data: ReportData) -> None:
    table = Table(title="Asked, answered, paid", show_header=False)
    for name, value in (data.results or {}).items():
        table.add_row(
            name, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        )
    console.print(table)
    console.print("True outcomes are known here because everybody is made up.\n")
