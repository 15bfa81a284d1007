"""`quorate audit`: attacks on every claim."""

from pathlib import Path

__all__ = ["audit"]


def audit(
    *names: str,
    plays: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    planted: bool = False,
    report: Path | None = None,
    json: bool = False,
    cells: str = "*",
    quick: bool = False,
    list: bool = False,
) -> int:
    """Attack the privacy claims of this package, and report how close the attacks came. Exit code 1 if one is broken.

    Example: `quorate audit quorum noisy_max --plays 100000 --report audit.html`

    Parameters
    ----------
    names
        What to attack: mechanisms and predictors by name; by default all of them. Or "neighbours" alone: the neighbour
        matrix, in which one unit is replaced for every predictor, container and learner.
    plays
        How often each game is played in each of its two worlds.
    confidence
        The probability, for each target, that a sound claim is not reported as broken.
    planted
        Also attack the deliberately broken twins: each must be caught, and its sound twin must not.
    report
        An HTML page to write: claim, lower bound, ratio, the attack that came closest, what was not tested.
    json
        Print one JSON object instead of tables.
    cells
        For the neighbour matrix: only the cells that match this pattern, such as "everlasting*/pandas*/*/query".
    quick
        For the neighbour matrix: only the cells of the fast test suite.
    list
        List the cells of the neighbour matrix without running them.
    """
    from quorate.cli.audit import run_audit
    from quorate.cli.neighbours import run_neighbours
    from quorate.core.errors import InvalidInput

    if "neighbours" in names:
        if len(names) > 1 or planted or report is not None:
            raise InvalidInput("neighbours is an audit of its own: name it alone, without --planted or --report")
        return run_neighbours(cells, quick=quick, list_cells=list, as_json=json)
    if quick or list or cells != "*":
        raise InvalidInput("--cells, --quick and --list are for `quorate audit neighbours`")
    return run_audit(names, plays=plays, confidence=confidence, planted=planted, report=report, as_json=json)
