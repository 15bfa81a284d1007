"""`quorate demo`: a complete example on generated records."""

from json import dumps
from pathlib import Path

from rich.console import Console

from quorate.cli.output import check_report, show_bill, show_step
from quorate.core.checks import check_count, check_delta, check_positive
from quorate.core.progress import progress
from quorate.report import write_report


def demo(
    *,
    records: int = 200_000,
    queries: int = 10_000,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    out: Path = Path("quorate-demo.html"),
    json: bool = False,
) -> int:
    """Run a complete example on a generated clinic: plan, fit, ask, compare, report. Nothing private is read.

    Parameters
    ----------
    records
        How many visits the clinic has, about five for every three people. The person is the privacy unit.
    queries
        How many queries are asked.
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    out
        The report, one HTML file. A file of this name is replaced.
    json
        Print one JSON object, with the contents of the report, instead of tables.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    records, queries = check_count("records", records), check_count("queries", queries)
    check_report(out)
    from quorate.report.demo import run_job  # only now: what it needs takes a second to load

    console = Console(quiet=json, highlight=False)
    with progress("running the example", left="Interrupted: nothing private was read."):
        data = run_job(
            records=records, queries=queries, epsilon=epsilon, delta=delta, say=console.print, step=show_step
        )
        path = write_report(data, out)
    if json:
        print(dumps({"report": str(path), **data.as_dict()}))
        return 0
    show_bill("Asked, answered, paid", data.results or {}, as_json=False, is_result=True)
    console.print("True outcomes are known here because everybody is made up.\n")
    console.print(f"The report: {path}", soft_wrap=True)
    return 0
