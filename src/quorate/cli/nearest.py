"""`quorate fit neighbours`, and what its owner does with it later: insert, forget, look at wear."""

import time
from pathlib import Path
from typing import Any

from quorate.cli.commands.fit_options import Budget, Neighbours, Output, Tables
from quorate.cli.fit import public_labels, read_tables
from quorate.cli.options import listed
from quorate.cli.output import check_new_folder, show_bill, steps
from quorate.errors import InvalidInput
from quorate.models import load, open_folder, save
from quorate.neighbours import NeighbourClassifier
from quorate.tables import SCHEMA_FILE, Schema, read_table

__all__ = ["run_fit_neighbours", "run_forget", "run_forgotten", "run_insert", "run_wear"]

_KIND = "neighbours"


def run_fit_neighbours(tables: Tables, budget: Budget, neighbours: Neighbours, output: Output) -> int:
    """Read the records, choose radius and noise by the public table, write the folder, and print what it promises."""
    check_new_folder(output.out)
    with steps(["reading", "encoding", "fitting", "saving"], quiet=output.json) as step:
        records, known, columns, declared = read_tables(tables, step)
        encoded, labels, people = columns.encode(records), columns.labels(records), columns.people(records)
        points = None if known is None else columns.encode(known, role="public")
        step()
        model = NeighbourClassifier(classes=declared, **vars(budget), **vars(neighbours))
        model.fit(encoded, labels, groups=people, public=points, public_labels=public_labels(columns, known))
        step()
        save(model, output.out, extra={SCHEMA_FILE: columns.to_json().encode()})
    model.session_.close()  # whoever asks next opens the folder
    show_bill(f"The model in {output.out}", _bill(model, columns, output.out), as_json=output.json)
    return 0


def run_insert(folder: Path, table: Path, *, as_json: bool) -> int:
    """Insert the records of a table, encoded as those of the fit were, and print the names of their units."""
    opened = open_folder(folder)
    schema = opened.schema()
    if schema is None or schema.label is None:
        raise InvalidInput(f"{folder} does not say how a table is read: insert from Python, NeighbourClassifier.insert")
    records = read_table(table, role="private")
    encoded, labels, people = schema.encode(records), schema.labels(records), schema.people(records)
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
        model.forget(listed(names))
    finally:
        model.session_.close()
    show_bill("Forgotten", {"forgotten": len(listed(names))}, as_json=as_json)
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


def _bill(model: NeighbourClassifier, columns: Schema, out: Path) -> dict[str, Any]:
    assert columns.label is not None
    plan = model.plan_
    return {
        "folder": str(out),
        "method": "neighbours",
        "claim": model.claim_,
        "privacy_unit": model.unit_,
        "label": columns.label.column,
        "classes": model.classes_.tolist(),
        "features": model.n_features_in_,
        "epsilon": model.epsilon_,
        "delta": model.delta_,
        "replaced_epsilon": model.terms_.replaced_epsilon(),
        "votes_of_a_unit": model.terms_.votes,
        "noise_in_votes": model.terms_.noise,
        "radius": None if plan is None else plan.radius,
        "expected_right": None if plan is None else plan.right,
        "expected_spoilt_by_noise": None if plan is None else plan.spoilt,
        "plan": None if plan is None else plan.as_dict(),
    }
