"""`quorate neighbours`: what the owner of a model of neighbours does with it: insert, forget, look at wear."""

from pathlib import Path

from cyclopts import App

__all__ = ["neighbours"]

neighbours = App(name="neighbours")  # its help stands where it is registered


@neighbours.command(name="insert")
def _insert(folder: Path, table: Path, *, json: bool = False) -> int:
    """Insert records at once. A person that is there already is refused; one that was forgotten goes on as it was.

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
