"""Commands and exit codes: 0 done, 1 refused (the message says why), 2 wrong usage."""

import sys
from collections.abc import Sequence
from typing import Literal

from cyclopts import App, CycloptsError

from quorate import __version__
from quorate.errors import QuorateError

__all__ = ["app", "bench", "demo", "main"]

app = App(
    name="quorate",
    help="Answers from sensitive data by secret ballot, with a differential-privacy guarantee that is true.",
    version=__version__,
)


@app.command
def demo(
    *, teachers: int = 2000, queries: int = 2000, epsilon: float = 1.0, delta: float = 1e-6, json: bool = False
) -> int:
    """Let a simulated ensemble answer queries through Quorum, and show what it costs.

    Parameters
    ----------
    teachers
        How many teachers vote. Their votes are simulated; nothing private is read.
    queries
        How many queries are asked.
    epsilon
        The privacy loss allowed in all.
    delta
        The probability with which epsilon may fail.
    json
        Print one JSON object instead of a table.
    """
    from quorate.cli.demo import run_demo

    return run_demo(teachers=teachers, queries=queries, epsilon=epsilon, delta=delta, as_json=json)


@app.command
def bench(name: Literal["mechanisms", "classifier"], *, quick: bool = False, json: bool = False) -> int:
    """Measure the figures this project promises, each against its bar. Exit code 1 if one does not hold.

    Parameters
    ----------
    name
        Which set of figures.
    quick
        The same figures on smaller sizes, in under a minute.
    json
        Print one JSON object instead of a table.
    """
    from quorate.cli.bench import run_bench

    return run_bench(name, quick=quick, as_json=json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    >>> main(["--version"])
    0.1.0
    0
    """
    try:
        result = app(
            list(arguments) if arguments is not None else None,
            exit_on_error=False,
            print_error=True,
            result_action="return_value",
        )
    except CycloptsError:
        return 2
    except QuorateError as error:
        print(f"quorate: {error}", file=sys.stderr)
        return 1
    return result if isinstance(result, int) else 0
