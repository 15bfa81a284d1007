"""Insert and forget records of a model of neighbours, and estimate how many are worn out.

Example: `quorate neighbours forget model p17,p20`
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter as SignatureParameter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from quorate.cli.fit_methods import METHODS
from quorate.cli.fit_models import TARGET_FILE
from quorate.cli.options import AsJson, Names, options_from, parse_bounds, split_list, with_options
from quorate.cli.output import show, show_bill, show_plan
from quorate.cli.reading import FileOptions, show_problems, target_column
from quorate.core.errors import InvalidInput
from quorate.models.knn import NeighbourClassifier, plan_neighbours
from quorate.models.saving import Folder, load, open_folder
from quorate.tables import Schema, read_table
from quorate.tables.csv_records import Irregularities
from quorate.tables.look import find_problems

neighbours = App(name="neighbours", help_format="markdown")

NeighbourFolder = Annotated[
    Path, Parameter(help="The model, as `quorate fit neighbours` wrote it. No server may have it open.")
]


@contextmanager
def _open_model(folder: Path | Folder) -> Iterator[Any]:
    model = load(folder, kind="neighbours")
    try:
        yield model
    finally:
        model.session_.close()


@neighbours.command(name="plan")
@with_options(
    options_from(
        [NeighbourClassifier],
        skip="radius share votes classes device",
        defaults={"metric": "euclidean", "records": SignatureParameter.empty},
        types={"records": int},
        helps=METHODS["neighbours"].helps,
    )
)
def _plan(
    public: Path,
    *,
    label: str | None = None,
    bounds: str | None = None,
    leave_out: Names = (),
    files: FileOptions = FileOptions(),
    json: AsJson = False,
    **settings: Any,
) -> int:
    """Forecast the answers as records wear out, from a public table alone. Exit code 1 if noise spoils half of them.

    Example: `quorate neighbours plan survey.csv --label outcome --records 50000 --queries 2000`

    Parameters
    ----------
    public
        A public table whose rows are like the records.
    label
        The column with the label, if the table has it. Without it, the share of right answers cannot be forecast.
    bounds
        The label is a number between these two, such as 0,250.
    leave_out
        Columns that no query has, such as names of people, separated by commas.
    """
    table, without = read_table(public, role="public", **files.file_settings()), list(leave_out)
    if bounds is None:
        schema = Schema.from_public(table, label=label, leave_out=without)
        labels = None if label is None else schema.labels(table, role="public")
    else:
        schema = Schema.from_public(table, leave_out=without if label is None else [*without, label])
        labels, settings["bounds"] = None if label is None else target_column(table, label), parse_bounds(bounds)
    plan = plan_neighbours(schema.encode(table, role="public"), labels, **settings)
    measure = None if labels is None else "right" if bounds is None else "off by"
    forecast = [
        {"queries": queries, "worn out": worn} | ({} if measure is None else {measure: value})
        for queries, worn, value in plan.forecast
    ]
    return show_plan(plan, as_json=json, forecast=forecast)


@neighbours.command(name="insert")
def _insert(folder: NeighbourFolder, table: Path, *, files: FileOptions = FileOptions(), json: AsJson = False) -> int:
    """Insert records, with immediate effect.

    A person that was forgotten continues with the budget that was left. If a person is already there, its records stay
    as they are, all others are inserted, and the exit code is 1.

    If the unit is a row, each row becomes a new unit: a table that is inserted twice counts twice and reveals twice.

    Example: `quorate neighbours insert model new.csv`

    Parameters
    ----------
    table
        The records, with the same columns as those of the fit.
    """
    opened = open_folder(folder)
    schema, target = opened.schema(), opened.contents.get(TARGET_FILE)
    if schema is None or (schema.label is None and target is None):
        raise InvalidInput(f"{folder} has no schema for a table: insert from Python, NeighbourClassifier.insert")
    irregularities = Irregularities()
    records = read_table(table, role="private", irregularities=irregularities, **files.file_settings())
    show_problems(find_problems(schema, records, irregularities))
    labels = schema.labels(records) if target is None else target_column(records, target.decode())
    rows, people = schema.encode(records), schema.people(records, lasting=True)
    with _open_model(opened) as model:
        names = model.insert(rows, labels, ids=people)
    return show_bill("Inserted", {"inserted": len(names), "names": names}, as_json=json)


@neighbours.command(name="forget")
def _forget(folder: NeighbourFolder, names: str, *, json: AsJson = False) -> int:
    """Forget persons, or rows by their numbers: their records are removed at once. No budget is refunded.

    If some are not there, all others are forgotten, and the exit code is 1.

    Example: `quorate neighbours forget model p17,p20`

    Parameters
    ----------
    names
        Whom to forget, separated by commas.
    """
    with _open_model(folder) as model:
        count = model.forget(split_list(names))
    return show_bill("Forgotten", {"forgotten": count}, as_json=json)


@neighbours.command(name="forgotten")
def _list_removed_units(folder: NeighbourFolder, *, json: AsJson = False) -> int:
    """List the forgotten units and when, for the owner's records of deletion requests.

    Example: `quorate neighbours forgotten model --json`
    """
    with _open_model(folder) as model:
        times = [(name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))) for name, at in model.forgotten()]
    figures = {"forgotten": [{"name": name, "at": at} for name, at in times]}
    return show(figures, "\n".join(f"{name}\t{at}" for name, at in times), as_json=json)


@neighbours.command(name="wear")
def _wear(folder: NeighbourFolder, *, json: AsJson = False) -> int:
    """Estimate how many units are worn out. The estimate is released with noise; the fit has paid for 16 of them.

    Example: `quorate neighbours wear model`
    """
    with _open_model(folder) as model:
        wear = model.wear()
    return show_bill("Wear", vars(wear) | {"worn_share": wear.share}, as_json=json, is_result=True)
