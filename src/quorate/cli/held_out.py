"""Held-out private rows put to a published model: `quorate fit conformal`."""

from quorate.cli.commands.fit_options import Epsilon, Output, Sets, Tables
from quorate.cli.fit import check_columns, published_model, read_tables
from quorate.cli.output import check_new_folder, show_bill, steps
from quorate.tables import SCHEMA_FILE

__all__ = ["run_fit_conformal"]


def run_fit_conformal(tables: Tables, budget: Epsilon, sets: Sets, output: Output) -> int:
    """Release the threshold of prediction sets, write them with their model, and print what they promise."""
    check_new_folder(output.out)
    from quorate.held_out import ConformalClassifier
    from quorate.models import load, save

    folder, tables = published_model(sets.model, tables, option="--model")
    with steps(["reading", "encoding", "asking", "saving"], quiet=output.json) as step:
        records, _, columns, _ = read_tables(tables, step)
        check_columns(folder, columns)
        encoded, labels, units = columns.encode(records), columns.labels(records), columns.units(records)
        step()
        settings = vars(sets) | vars(budget) | {"model": load(folder)}
        made = ConformalClassifier(**settings).fit(encoded, labels, groups=units)
        step()
        save(made, output.out, extra={SCHEMA_FILE: columns.to_json().encode()})
    assert columns.label is not None
    bill = {
        "folder": str(output.out),
        "model": str(folder.path),
        "claim": made.claim_,
        "covers": made.covers_,
        "epsilon": float(made.epsilon),
        "delta": 0.0,
        "alpha": float(made.alpha),
        "privacy_unit": made.unit_,
        "label": columns.label.column,
        "classes": made.classes_.tolist(),
        "units": made.quantile_.units,
        "rank": made.quantile_.rank,
        "threshold": made.threshold_,
        "epsilon_spent": made.spent_epsilon_,
    }
    show_bill(f"Sets in {output.out}", bill, as_json=output.json)
    return 0
