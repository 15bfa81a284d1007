"""`python -m benchmarks NAME [--quick] [--json]`: measure one bench against its bars; without a name, list them all.

The exit code is 1 if a figure misses its bar. Run it from the root of the repository.
"""

import argparse
import importlib
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from benchmarks.figures import BARS, Figure, bar_of, judge
from quorate.cli.output import redirect_output
from quorate.core.rows import usable_cores

BENCHES = {
    "mechanisms": "ballot counters: distances that they need, their costs and speeds",
    "classifier": "learners, the planner's choices, students, scores and prediction sets",
    "models": "linear models on five tables, texts and MNIST, with good, wrong and no public rows; peers if installed",
    "neighbours": "nearest neighbours on MNIST and Adult: accuracy, speed, wear and attacks",
    "concepts": "exact private choices: time, memory, and error against records",
    "service": "answers a second through HTTP, callers beside each other, servers in trouble, response times",
    "everlasting": "endless streams: the records that they take, drift and poison",
    "release": "marginals of Adult, thresholds, boxes and halfspaces, synthetic records; peers where installed",
    "numbers": "totals, means and medians by group: errors beside OpenDP's where installed, tails, coverage, scale",
    "text": "language models: a head start, prompts as teachers, what a writer's budget pays for",
    "audit": "how tight claims are, planted bugs, tracing, membership",
    "scale": "tables larger than memory, file readers, GPUs, clusters and sites",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the figures of one bench.")
    parser.add_argument("name", nargs="?", choices=BENCHES, help="the bench; without it, all are listed")
    parser.add_argument("--quick", action="store_true", help="the same figures at smaller sizes, in under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if options.name is None:
        print("\n".join(f"{name:12} {about}" for name, about in BENCHES.items()))
        return 0
    figures = _collect_figures(options.name, quick=options.quick, quiet=options.json)
    if options.json:
        print(json.dumps({"figures": figures, "machine": describe_machine()}, indent=2))
    else:
        _print_table(options.name, figures)
    return 1 if any(figure["holds"] is False for figure in figures) else 0


def measure(name: str, *, quick: bool) -> Iterator[Figure]:
    """Yield each figure of a bench as soon as it is measured."""
    yield from importlib.import_module(f"benchmarks.{name}").measure(quick)


def describe_machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "cores": usable_cores(),
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _collect_figures(name: str, *, quick: bool, quiet: bool) -> list[dict[str, Any]]:
    """Measure a bench behind a progress bar. What it prints goes to standard error."""
    figures = []
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=quiet or not console.is_terminal)
    with redirect_output(), bar as progress:
        task = progress.add_task(name, total=len(BARS[name]))
        for figure in measure(name, quick=quick):
            figures.append(judge(figure, bar_of(name, figure[0], quick=quick)))
            progress.advance(task)
    return figures


def _print_table(name: str, figures: list[dict[str, Any]]) -> None:
    numbers = [Column(title, no_wrap=True) for title in ("value", "unit", "bar", "holds")]
    table = Table(Column("figure", overflow="fold"), *numbers, title=f"benchmarks {name}")
    for figure in figures:
        value = "no data" if figure["value"] is None else f"{figure['value']:,.6g}"
        verdict = {True: "yes", False: "NO", None: "-"}[figure["holds"]]
        table.add_row(figure["name"], value, figure["unit"], figure["bar"] or "-", verdict)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
