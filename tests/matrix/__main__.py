"""`python -m matrix`, run from `tests/`: replace one unit, for every predictor, container and learner of the matrix."""

import argparse
import json
import sys
from collections import Counter
from typing import Any

from rich.console import Console

from matrix import matrix_cells, run_cell

_SHOWN = 3  # sentences of a violated cell; all of them are in --json


def run_neighbours(cells: str = "*", *, quick: bool = False, list_cells: bool = False, as_json: bool = False) -> int:
    """Run the cells that match the pattern, or list them, and return 1 where one is violated."""
    chosen = matrix_cells(cells, quick=quick)
    if list_cells:
        listed = [str(cell) for cell in chosen]
        print(json.dumps({"cells": listed}) if as_json else "\n".join(listed))  # noqa: T201
        return 0
    console, outcomes = Console(stderr=True, quiet=as_json), []
    with console.status("") as status:
        for number, cell in enumerate(chosen):
            status.update(f"replacing a unit, cell {number + 1} of {len(chosen)}: {cell}")
            outcomes.append(run_cell(cell))
    if as_json:
        records = [{"cell": str(one.cell), "status": one.status, "said": list(one.said)} for one in outcomes]
        print(json.dumps({"cells": records}))  # noqa: T201
    else:
        _show(Console(), outcomes)
    return int(not all(one.passed for one in outcomes))


def _show(console: Console, outcomes: list[Any]) -> None:
    """Print what is violated, what was refused or skipped and why, and how many cells there were of each kind."""
    plain: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}
    for one in outcomes:
        if not one.passed:
            console.print(f"VIOLATED {one.cell}", **plain)
            for text in one.said[:_SHOWN]:
                console.print(f"  {text}", **plain)
            if len(one.said) > _SHOWN:
                console.print(f"  and {len(one.said) - _SHOWN} more", **plain)
    for status, what in (("refused", "refused alike for both"), ("skipped", "skipped")):
        for reason, number in Counter(one.said[0] for one in outcomes if one.status == status).most_common():
            console.print(f"{number} {'cell' if number == 1 else 'cells'} {what}: {reason}", **plain)
    kinds = Counter(one.status for one in outcomes)
    counted = ", ".join(f"{kinds[status]} {status}" for status in ("sound", "refused", "skipped", "violated"))
    console.print(f"Neighbour matrix: {len(outcomes)} cells; {counted}.", **plain)


def main() -> int:
    """Read the options and run the cells."""
    parser = argparse.ArgumentParser(prog="python -m matrix", description=__doc__)
    parser.add_argument("cells", nargs="?", default="*", help="a pattern such as 'everlasting*/pandas*/*/query'")
    parser.add_argument("--quick", action="store_true", help="only the cells of the fast test suite")
    parser.add_argument("--list", action="store_true", help="list the cells without running them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    return run_neighbours(options.cells, quick=options.quick, list_cells=options.list, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
