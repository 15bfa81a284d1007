"""`quorate demo` and `quorate bench`: a complete example on a generated clinic, and all promised figures, measured."""

from pathlib import Path
from typing import Any, Literal

__all__ = ["bench", "demo"]


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


def bench(
    name: Literal[
        "mechanisms",
        "classifier",
        "concepts",
        "models",
        "neighbours",
        "service",
        "everlasting",
        "release",
        "scale",
        "audit",
    ],
    *,
    quick: bool = False,
    json: bool = False,
) -> int:
    """Measure the figures that this project promises, each against its target. Exit code 1 if one does not hold.

    Parameters
    ----------
    name
        Which set of figures.
    quick
        The same figures at smaller sizes, in under a minute.
    json
        Print one JSON object instead of a table.
    """
    from json import dumps

    from quorate.bench.run import machine

    figures = _measured(name, quick=quick, quiet=json)
    if json:
        print(dumps({"figures": figures, "machine": machine()}, indent=2))
    else:
        _show(name, figures)
    return 1 if any(figure["holds"] is False for figure in figures) else 0


def _measured(name: str, *, quick: bool, quiet: bool) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import Progress

    from quorate.bench.bars import BARS
    from quorate.bench.run import measure
    from quorate.cli.output import printed_aside

    figures = []
    console = Console(stderr=True)
    shown = Progress(console=console, transient=True, disable=quiet or not console.is_terminal)
    with printed_aside(), shown as progress:
        task = progress.add_task(name, total=len(BARS[name]))
        for figure in measure(name, quick=quick):
            figures.append(figure)
            progress.advance(task)
    return figures


def _show(name: str, figures: list[dict[str, Any]]) -> None:
    """Print a table. A figure whose data are absent is shown as such."""
    from rich.console import Console
    from rich.table import Column, Table

    numbers = [Column(title, no_wrap=True) for title in ("value", "unit", "bar", "holds")]
    table = Table(Column("figure", overflow="fold"), *numbers, title=f"quorate bench {name}")
    for figure in figures:
        value = "no data" if figure["value"] is None else f"{figure['value']:,.6g}"
        verdict = {True: "yes", False: "NO", None: "-"}[figure["holds"]]
        table.add_row(figure["name"], value, figure["unit"], figure["bar"] or "-", verdict)
    Console().print(table)
