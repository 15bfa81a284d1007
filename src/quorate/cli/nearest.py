"""`quorate fit neighbours`, what is planned before it, and what its owner does later: insert, forget, look at wear."""

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from quorate.cli.commands.fit_options import Budget, Output, Tables
from quorate.cli.commands.method_options import Neighbours
from quorate.cli.fit import public_labels, read_features, read_tables, target_column
from quorate.cli.options import listed, two_numbers
from quorate.cli.output import check_new_folder, show_bill, steps
from quorate.core.errors import InvalidInput
from quorate.models.knn import NeighbourClassifier, NeighbourRegressor, plan_neighbours
from quorate.models.knn.model import NeighbourModel
from quorate.models.saving import load, open_folder, save
from quorate.tables import SCHEMA_FILE, Schema, read_table

__all__ = ["run_fit_neighbours", "run_forget", "run_forgotten", "run_insert", "run_plan_neighbours", "run_wear"]

_KIND = "neighbours"
_TARGET_FILE = "target.txt"  # in the folder of a regressor: which column its targets are in


def run_fit_neighbours(tables: Tables, budget: Budget, neighbours: Neighbours, output: Output) -> int:
    """Read the records, choose radius and noise by the public table, write the folder, and print what it promises."""
    check_new_folder(output.out)
    settings = vars(budget) | vars(neighbours)
    bounds = settings.pop("bounds")
    with steps(["reading", "encoding", "fitting", "saving"], quiet=output.json) as step:
        model: NeighbourClassifier | NeighbourRegressor
        if bounds is None:
            records, known, columns, declared = read_tables(tables, step)
            model, labels = NeighbourClassifier(classes=declared, **settings), columns.labels(records)
            shown, extra = {"public_labels": public_labels(columns, known)}, {}
        else:
            name = _target_named(tables, scores=settings.pop("scores"))
            records, known, columns = read_features(tables, step, targets=[name])
            model, labels = NeighbourRegressor(bounds=two_numbers(bounds), **settings), target_column(records, name)
            shown, extra = {"public_targets": _known_targets(known, name)}, {_TARGET_FILE: name.encode()}
        encoded, people = columns.encode(records), columns.people(records, lasting=True)
        points = None if known is None else columns.encode(known, role="public")
        step()
        model.fit(encoded, labels, groups=people, public=points, **shown)
        step()
        save(model, output.out, extra={SCHEMA_FILE: columns.to_json().encode()} | extra)
    model.session_.close()  # whoever asks next opens the folder
    label = columns.label.column if columns.label is not None else tables.label
    show_bill(f"The model in {output.out}", _bill(model, label, output.out), as_json=output.json)
    return 0


def _target_named(tables: Tables, *, scores: bool) -> str:
    """Return the column of the targets, or say what does not go with them."""
    if tables.label is None or tables.classes is not None or tables.read_classes or scores:
        raise InvalidInput("--bounds takes one --label, a column of numbers, and neither classes nor --scores")
    return tables.label


def _known_targets(public: Any, name: str) -> Any:
    """Return the targets of the public table; None where it has none."""
    return None if public is None or name not in public.column_names else target_column(public, name)


def run_plan_neighbours(
    public: Path, *, label: str | None, bounds: str | None, leave_out: str | None, as_json: bool, **options: Any
) -> int:
    """Plan by a public table, print what to expect as records wear out, and return 1 where noise spoils too much."""
    table, without = read_table(public, role="public"), [] if leave_out is None else listed(leave_out)
    if bounds is None:
        columns = Schema.from_public(table, label=label, leave_out=without)
        known = None if label is None else columns.labels(table, role="public")
    else:
        columns = Schema.from_public(table, leave_out=without if label is None else [*without, label])
        known, options["bounds"] = None if label is None else target_column(table, label), two_numbers(bounds)
    planned = plan_neighbours(columns.encode(table, role="public"), known, **options)
    if as_json:
        print(json.dumps({"feasible": planned.feasible} | planned.as_dict()))
        return 0 if planned.feasible else 1
    console, expected = Console(), "off by" if bounds is not None else "right"
    console.print(planned.summary())
    lines = Table(Column("queries", justify="right"), Column("worn out", justify="right"), title="As records wear out")
    if known is not None:
        lines.add_column(expected, justify="right")
    for queries, worn, then in planned.forecast:
        told = [] if then is None else [f"{then:.3g}" if bounds is not None else f"{then:.1%}"]
        lines.add_row(f"{queries:,}", f"{worn:.0%}", *told)
    console.print(lines)
    return 0 if planned.feasible else 1


def run_insert(folder: Path, table: Path, *, as_json: bool) -> int:
    """Insert the records of a table, encoded as those of the fit were, and print the names of their units."""
    opened = open_folder(folder)
    schema, target = opened.schema(), opened.contents.get(_TARGET_FILE)
    if schema is None or (schema.label is None and target is None):
        raise InvalidInput(f"{folder} has no schema for a table: insert from Python, NeighbourClassifier.insert")
    records = read_table(table, role="private")
    labels = schema.labels(records) if target is None else target_column(records, target.decode())
    encoded, people = schema.encode(records), schema.people(records, lasting=True)
    model = load(opened, kind=_KIND)
    try:
        names = model.insert(encoded, labels, ids=people)
    finally:
        model.session_.close()
    show_bill("Inserted", {"inserted": len(names), "names": names}, as_json=as_json)
    return 0


def run_forget(folder: Path, names: str, *, as_json: bool) -> int:
    """Forget units by their names."""
    model = load(folder, kind=_KIND)
    try:
        forgotten = model.forget(listed(names))
    finally:
        model.session_.close()
    show_bill("Forgotten", {"forgotten": forgotten}, as_json=as_json)
    return 0


def run_forgotten(folder: Path, *, as_json: bool) -> int:
    """Print who was forgotten, and when."""
    model = load(folder, kind=_KIND)
    try:
        lines = model.forgotten()
    finally:
        model.session_.close()
    told = [{"name": name, "at": _written(at)} for name, at in lines]
    if as_json:
        show_bill("", {"forgotten": told}, as_json=True)
    else:
        print("\n".join(f"{one['name']}\t{one['at']}" for one in told))
    return 0


def run_wear(folder: Path, *, as_json: bool) -> int:
    """Release an estimate of wear, which the fit has paid for, and print it."""
    model = load(folder, kind=_KIND)
    try:
        wear = model.wear()
    finally:
        model.session_.close()
    show_bill("Wear", vars(wear) | {"worn_share": wear.share}, as_json=as_json, asked=True)
    return 0


def _written(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _bill(model: NeighbourModel, label: str | None, out: Path) -> dict[str, Any]:
    plan = model.plan_
    return {
        "folder": str(out),
        "method": "neighbours",
        "claim": model.claim_,
        "privacy_unit": model.unit_,
        "label": label,
        **({"classes": model.classes_.tolist()} if isinstance(model, NeighbourClassifier) else {}),
        "features": model.n_features_in_,
        "epsilon": model.epsilon_,
        "delta": model.delta_,
        "replaced_epsilon": model.terms_.replaced_epsilon(),
        "votes_of_a_unit": model.terms_.votes,
        "noise_in_votes": model.terms_.noise,
        "radius": model.radius,
        "share_of_public_rows": None if plan is None else plan.share,
        "expected_right": None if plan is None else plan.right,
        "expected_error": None if plan is None else plan.error,
        "expected_spoilt_by_noise": None if plan is None else plan.spoilt,
        "plan": None if plan is None else plan.as_dict(),
    }
