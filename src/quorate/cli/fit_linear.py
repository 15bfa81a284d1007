"""From a table of private records to a linear model that may be published: `quorate fit linear`."""

from typing import Any

from quorate.cli.commands.fit_options import Budget, Output, Tables
from quorate.cli.fit import beside_public_rows, read_tables
from quorate.cli.output import check_new_folder, show_bill, steps
from quorate.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Category, Number, Schema
from quorate.tables.columns import feature_names

__all__ = ["run_fit_linear"]


def run_fit_linear(tables: Tables, budget: Budget, output: Output) -> int:
    """Read the records, fit a logistic regression, write it, and print what it promises."""
    check_new_folder(output.out)
    with steps(["reading", "encoding", "fitting", "saving"], quiet=output.json) as step:
        records, known, schema, declared = read_tables(tables, step)
        encoded, labels, units = schema.encode(records), schema.labels(records), schema.units(records)
        points = None if known is None else schema.encode(known, role="public")
        step()
        from quorate.linear import PrivateLogisticRegression
        from quorate.models import save

        columns = _declared(schema) if points is None else None
        model = PrivateLogisticRegression(classes=declared, columns=columns, **vars(budget))
        model.fit(encoded, labels, groups=units, public=points)
        step()
        save(model, output.out, extra={SCHEMA_FILE: schema.to_json().encode()})
    bill = _bill(model, schema) | {"folder": str(output.out)} | beside_public_rows(model, points, schema, known)
    show_bill(f"The linear model in {output.out}", bill, as_json=output.json)
    return 0


def _declared(schema: Schema) -> Any:
    """Return the columns of a schema that says how large every number may be."""
    from quorate.features import AdditiveColumns
    from quorate.features.blocks import Ramps

    declared: list[Any] = []
    for name, kind in schema.columns.items():
        flags = [Ramps(feature, (0.0, 1.0)) for feature in feature_names(kind, name)]
        if isinstance(kind, Category):
            declared += flags
        elif isinstance(kind, Number) and kind.low is not None:
            declared += [(-1.0, 1.0), *flags[1:]]  # what `low` and `high` become
        else:
            raise InvalidInput(
                f"how large {name!r} may be is not known: pass public rows (--public), or a schema (--schema) with low "
                "and high for every number"
            )
    return AdditiveColumns(declared=declared)


def _bill(model: Any, schema: Schema) -> dict[str, Any]:
    assert schema.label is not None
    return {
        "claim": model.claim_,
        "epsilon": float(model.epsilon),
        "delta": float(model.delta),
        "privacy_unit": model.unit_,
        "label": schema.label.column,
        "classes": model.classes_.tolist(),
        "features": model.n_features_in_,
        "coefficients": int(model.coef_.size),
        "public_rows_differ_by": model.shift_,
    }
