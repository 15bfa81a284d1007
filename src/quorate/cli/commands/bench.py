"""`quorate bench`: promised figures against their bars."""

from typing import Literal

__all__ = ["bench"]


def bench(
    name: Literal["mechanisms", "classifier", "concepts", "service", "everlasting", "release", "audit"],
    *,
    quick: bool = False,
    json: bool = False,
) -> int:
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
    from quorate.bench.mechanisms import run_bench

    return run_bench(name, quick=quick, as_json=json)
