"""`quorate demo`: a complete example on a generated clinic."""

from pathlib import Path

__all__ = ["demo"]


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
    from quorate.cli.demo import run_demo

    return run_demo(records=records, queries=queries, epsilon=epsilon, delta=delta, out=out, as_json=json)
