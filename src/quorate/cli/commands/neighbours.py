"""`quorate neighbours`: what the owner of a model of neighbours does with it: plan, insert, forget, look at wear."""

from pathlib import Path
from typing import Literal

from cyclopts import App

__all__ = ["neighbours"]

neighbours = App(name="neighbours")  # its help stands where it is registered


@neighbours.command(name="plan")
def _plan(
    public: Path,
    *,
    records: int,
    queries: int = 1000,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    label: str | None = None,
    bounds: str | None = None,
    leave_out: str | None = None,
    scores: bool = False,
    kernel: Literal["linear", "flat"] = "linear",
    metric: Literal["cosine", "euclidean"] = "euclidean",
    json: bool = False,
) -> int:
    """Say how good answers will be as records wear out, by a public table alone. Exit code 1 if noise spoils half.

    Example: `quorate neighbours plan survey.csv --label outcome --records 50000 --queries 2000`

    Parameters
    ----------
    public
        A table whose rows are like the records, and not secret.
    records
        About how many private records (or people) there will be.
    queries
        How many queries are planned for.
    epsilon
        The privacy loss allowed in all, if one unit is added or removed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    label
        The column with the label, if the table has it: without, nobody knows how many answers will be right.
    bounds
        The label is a number between these two, as in 0,250.
    leave_out
        Columns that no query has, such as names of people, separated by commas.
    scores
        Plan for noisy shares of the votes, not for labels alone.
    kernel
        Whether weights fall with the squared distance, or are all alike within the radius.
    metric
        Whether distances are between directions or between rows.
    json
        Print one JSON object.
    """
    given = {name: value for name, value in locals().items() if name not in ("public", "json")}
    from quorate.cli.nearest import run_plan_neighbours

    return run_plan_neighbours(public, as_json=json, **given)


@neighbours.command(name="insert")
def _insert(folder: Path, table: Path, *, json: bool = False) -> int:
    """Insert records at once. A person that was forgotten goes on as it was; one that is there already stays as it is.

    All others are inserted then, and the exit code is 1.

    Where the unit is a row, each row becomes a new unit: a table that is inserted twice counts, and tells, twice.

    Example: `quorate neighbours insert model new.csv`

    Parameters
    ----------
    folder
        The model, as `quorate fit neighbours` wrote it. No server may have it open.
    table
        The records, with the same columns as those of the fit.
    json
        Print one JSON object.
    """
    from quorate.cli.nearest import run_insert

    return run_insert(folder, table, as_json=json)


@neighbours.command(name="forget")
def _forget(folder: Path, names: str, *, json: bool = False) -> int:
    """Forget persons, or rows by their numbers, at once: their records leave the folder. No budget comes back.

    Where some are not there, all others are forgotten, and the exit code is 1.

    Example: `quorate neighbours forget model p17,p20`

    Parameters
    ----------
    folder
        The model, as `quorate fit neighbours` wrote it. No server may have it open.
    names
        Whom to forget, separated by commas.
    json
        Print one JSON object.
    """
    from quorate.cli.nearest import run_forget

    return run_forget(folder, names, as_json=json)


@neighbours.command(name="forgotten")
def _forgotten(folder: Path, *, json: bool = False) -> int:
    """List who was forgotten, and when: for the owner's records of deletion requests.

    Example: `quorate neighbours forgotten model --json`

    Parameters
    ----------
    folder
        The model, as `quorate fit neighbours` wrote it. No server may have it open.
    json
        Print one JSON object.
    """
    from quorate.cli.nearest import run_forgotten

    return run_forgotten(folder, as_json=json)


@neighbours.command(name="wear")
def _wear(folder: Path, *, json: bool = False) -> int:
    """Estimate how many units are worn out. The estimate is released with noise; the fit has paid for 16 of them.

    Example: `quorate neighbours wear model`

    Parameters
    ----------
    folder
        The model, as `quorate fit neighbours` wrote it. No server may have it open.
    json
        Print one JSON object.
    """
    from quorate.cli.nearest import run_wear

    return run_wear(folder, as_json=json)
