"""`quorate neighbours`: for the owner of a model of neighbours: plan, insert, forget, estimate wear."""

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
    """Forecast the answers as records wear out, from a public table alone. Exit code 1 if noise spoils half of them.

    Example: `quorate neighbours plan survey.csv --label outcome --records 50000 --queries 2000`

    Parameters
    ----------
    public
        A public table whose rows are like the records.
    records
        About how many private records (or people) there will be.
    queries
        The number of queries to plan for.
    epsilon
        The total privacy loss allowed, if one unit is added or removed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    label
        The column with the label, if the table has it. Without it, the share of right answers cannot be forecast.
    bounds
        The label is a number between these two, such as 0,250.
    leave_out
        Columns that no query has, such as names of people, separated by commas.
    scores
        Plan for noisy shares of the votes, not only for labels.
    kernel
        Whether weights fall with the squared distance, or are all equal within the radius.
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
    """Insert records, with immediate effect.

    A person that was forgotten continues with the budget that was left. If a person is already there, its records stay
    as they are, all others are inserted, and the exit code is 1.

    If the unit is a row, each row becomes a new unit: a table that is inserted twice counts twice and reveals twice.

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
    """Forget persons, or rows by their numbers: their records are removed at once. No budget is refunded.

    If some are not there, all others are forgotten, and the exit code is 1.

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
    """List the forgotten units and when, for the owner's records of deletion requests.

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
