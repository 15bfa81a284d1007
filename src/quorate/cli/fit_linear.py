"""From a table of private records to a linear model that may be published: `quorate fit linear` and `fit search`.

A label is one of several classes, or a number (`--bounds`, `--largest`), or there are several of two classes each.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.cli.commands.fit_options import Budget, Charged, Output, ReportedOutput, Tables
from quorate.cli.commands.method_options import Columns, Target, Trials
from quorate.cli.fit import (
    beside_public_rows,
    read_features,
    read_tables,
    target_column,
    told_labels,
)
from quorate.cli.options import listed, two_numbers
from quorate.cli.output import check_new_folder, check_report, show_bill, steps
from quorate.core.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Category, Date, Number, Schema
from quorate.tables.columns import feature_names, unscaled
from quorate.tables.containers import open_columns
from quorate.tables.dates import moment_of
from quorate.tables.results import make_table
from quorate.tables.values import read_numbers

if TYPE_CHECKING:
    from quorate.models.linear.curves import Curve

__all__ = ["run_fit_linear", "run_fit_search"]


def run_fit_linear(
    tables: Tables, budget: Budget, target: Target, columns: Columns, output: ReportedOutput, *, charged: Charged
) -> int:
    """Read the records, fit a model of the label's family, write it, and print what it promises."""
    check_report(output.report, inputs=[tables.table, tables.public, tables.schema])
    family = _family(target)
    learned = tables.public is None and tables.schema is None
    if learned and columns != Columns():
        raise InvalidInput("--cuts, --cross and --waves take a public table (--public) or a schema (--schema)")

    def make(made: Any, schema: Schema, classes: Any) -> Any:
        if not learned:
            made.set_params(cuts=columns.cuts, crosses=_crosses(columns.cross, schema), waves=columns.waves)
        known = {} if classes is None else {"classes": classes}
        return family(columns=made, **known, **vars(budget))

    fitted = _fitted_learned if learned else _fitted
    model, schema, beside = fitted(make, tables, output, target, charged=charged)
    bill = _bill(model, tables, schema, output) | {"public_rows_differ_by": model.shift_} | beside
    if output.report is not None:
        curves = model.curves_ if learned else _named_curves(model.curves_, schema)
        _write_report(model, curves, bill, output.report)
    show_bill(f"The linear model in {output.out}", bill, as_json=output.json)
    return 0


def run_fit_search(tables: Tables, budget: Budget, trials: Trials, output: Output) -> int:
    """Read the records, try logistic regressions with more or fewer cuts, write the best, and print what it cost."""
    settings = vars(trials) | vars(budget)
    cuts = _numbers(settings.pop("cuts"))

    def make(columns: Any, _schema: Schema, classes: Any) -> Any:
        from quorate.models.linear import PrivateLogisticRegression
        from quorate.models.selection import PrivateSearchCV

        model = PrivateLogisticRegression(columns=columns, classes=classes)
        return PrivateSearchCV(model, {"columns__cuts": cuts}, **settings)

    search, schema, beside = _fitted(make, tables, output)
    plan = search.plan_
    bill = _bill(search.best_estimator_, tables, schema, output) | {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "cuts": search.best_params_["columns__cuts"],
        "score": search.best_score_,
        "scoring": trials.scoring,
        "method": plan.method,
        "candidates": plan.candidates,
        "trial_epsilon": plan.trial_epsilon,
        "naive_epsilon": plan.naive_epsilon,
    }
    bill |= beside
    show_bill(f"The linear model in {output.out}", bill, as_json=output.json)
    return 0


def _family(target: Target) -> Callable[..., Any]:
    """Return what makes an unfitted model for such a label."""
    from quorate.models.linear import PrivateLinearRegression, PrivateLogisticRegression, PrivatePoissonRegression

    if target.bounds is not None and target.largest is not None:
        raise InvalidInput("the label is a number (--bounds) or a count (--largest), not both")
    if target.bounds is not None:
        return partial(PrivateLinearRegression, bounds=two_numbers(target.bounds))
    if target.largest is not None:
        return partial(PrivatePoissonRegression, largest=target.largest)
    return PrivateLogisticRegression


def _read(tables: Tables, target: Target, step: Callable[[], None]) -> tuple[Any, Any, Schema, list[Any] | None, Any]:
    """Read the tables; return records, public rows, the schema, the classes of one label, and the labels."""
    names = [] if tables.label is None else listed(tables.label)
    number = target != Target()
    if len(names) < 2 and not number:
        records, known, schema, classes = read_tables(tables, step)
        return records, known, schema, classes, schema.labels(records)
    if number and (len(names) != 1 or tables.classes is not None):
        raise InvalidInput("--bounds and --largest take one --label, a column of numbers, and no --classes")
    if tables.read_classes:
        raise InvalidInput("--read-classes is for one label that is a class")
    records, known, schema = read_features(tables, step, targets=names)
    if number:
        _check_numbers(known, names[0])
        return records, known, schema, None, target_column(records, names[0])
    values = ["0", "1"] if tables.classes is None else listed(tables.classes)
    if len(values) != 2:
        raise InvalidInput(f"several labels take two --classes, the second for a label that is set, not {len(values)}")
    flags = {name: schema.with_label(name, values).label_codes(records) == 1 for name in names}
    return records, known, schema, None, make_table({name: column.astype(np.int64) for name, column in flags.items()})


def _check_numbers(public: Any, name: str) -> None:
    """Refuse a target of which the public table, where it has it, shows not one number."""
    if public is not None and name in public.column_names:
        shown = read_numbers(open_columns(public, [name], whose="the public table")[name])
        if shown.size and np.isnan(shown).all():
            raise InvalidInput(
                f"--bounds and --largest take a label that is a number, but column {name!r} has no numbers in the "
                "public table: leave both out for a label of classes"
            )


def _fitted(
    make: Callable[[Any, Schema, Any], Any],
    tables: Tables,
    output: Output,
    target: Target = Target(),  # noqa: B008  frozen
    *,
    charged: Charged = Charged(),  # noqa: B008  frozen
) -> tuple[Any, Schema, dict[str, Any]]:
    """Read the tables, fit and save what `make` makes of columns and classes.

    Return it, the schema, and for the bill how it compares with public rows alone.
    """
    check_new_folder(output.out)
    with steps(["reading", "encoding", "fitting", "saving"], quiet=output.json) as step:
        records, known, schema, declared, labels = _read(tables, target, step)
        encoded, units = schema.encode(records), schema.units(records)
        points = None if known is None else schema.encode(known, role="public")
        step()
        from quorate.models.saving import save
        from quorate.tables.features import AdditiveColumns

        model = make(AdditiveColumns(declared=_declared(schema) if points is None else None), schema, declared)
        charged.fit(model, encoded, labels, groups=units, public=points)
        step()
        save(model, output.out, extra={SCHEMA_FILE: schema.to_json().encode()})
    return model, schema, {} if schema.label is None else beside_public_rows(model, points, schema, known)


def _fitted_learned(
    make: Callable[[Any, Schema, Any], Any], tables: Tables, output: Output, target: Target, *, charged: Charged
) -> tuple[Any, Schema, dict[str, Any]]:
    """Fit a model that learns its columns within its own budget: nothing but the table is known of them."""
    check_new_folder(output.out)
    with steps(["reading", "preparing", "fitting", "saving"], quiet=output.json) as step:
        records, _, schema, declared, labels = _read(tables, target, step)
        step()
        from quorate.models.linear.model import LEARNED
        from quorate.models.saving import save

        model = make(LEARNED, schema, declared)
        charged.fit(model, records.select(list(schema.columns)), labels, groups=schema.units(records))
        step()
        save(model, output.out)
    told = {"schema_share": model.schema_share_, "columns_hidden_by_noise": list(model.schema_.learned.notes)}
    return model, schema, told


def _crosses(text: str | None, schema: Schema) -> list[tuple[int, int]] | None:
    """Return the pairs of encoded columns that stand for pairs of columns of the table."""
    if text is None:
        return None
    places: dict[str, list[int]] = {}
    for column, kind in schema.columns.items():
        first = sum(map(len, places.values()))
        places[column] = list(range(first, first + len(feature_names(kind, column))))
    pairs = [tuple(pair.split(":")) for pair in text.split(",")]
    if not all(len(pair) == 2 and set(pair) <= set(places) for pair in pairs):
        raise InvalidInput(f"--cross takes pairs of columns, as in age:sex,age:ward, not {text!r}")
    return [(one, other) for pair in pairs for one, other in product(*(places[column] for column in pair))]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"--cuts takes whole numbers, as in 1,4,8, not {text!r}") from None


def _declared(schema: Schema) -> list[Any]:
    """Return what a schema that says how large every number may be declares of the encoded columns."""
    from quorate.tables.features.blocks import Ramps

    declared: list[Any] = []
    for name, kind in schema.columns.items():
        flags = [Ramps(feature, (0.0, 1.0)) for feature in feature_names(kind, name)]
        if isinstance(kind, Category):
            declared += flags
        elif isinstance(kind, Number) and kind.low is not None:
            declared += [(-1.0, 1.0), *flags[1:]]  # what `low` and `high` become
        else:
            raise InvalidInput(
                f"the bounds of {name!r} are not known: pass public rows (--public), or a schema (--schema) with low "
                "and high for every number"
            )
    return declared


def _write_report(model: Any, curves: tuple["Curve", ...], bill: dict[str, Any], path: Path) -> None:
    from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report

    data = ReportData(
        title="A linear model",
        claim=Claim(model.epsilon, model.delta, model.unit_, labels=told_labels(model)),
        curves=curves,
        curves_of=f"the log odds of {bill['classes'][1]!r}" if len(bill.get("classes", ())) == 2 else None,
        proofs=proofs_for("linear"),
        software=software_versions(),
        notes=(
            f"The claim in full: {model.claim_}.",
            f"The model predicts {bill['label']!r}, with {bill['coefficients']} coefficients.",
            *(
                ("The curves are those of the first of its outputs.",)
                if model.coef_.ndim == 2 and len(model.coef_) > 1
                else ()
            ),
        ),
    )
    write_report(data, path)


def _named_curves(curves: tuple["Curve", ...], schema: Schema) -> tuple["Curve", ...]:
    """Return the curves with the names of the table's columns, and numbers as they stand in the table."""
    features = [
        (column, name, kind if name == column else None)
        for column, kind in schema.columns.items()
        for name in feature_names(kind, column)
    ]
    named, first = [], 0
    for curve in curves:
        column, name, kind = features[first]
        if isinstance(kind, Number):
            named.append(replace(curve, column=column, values=_as_in_table(kind, curve.values)))
        elif curve.numeric:  # a category by itself, or the mark of missing values: 0 or 1
            named.append(replace(curve, column=name))
        else:
            group = features[first : first + len(curve.values) - 1]
            columns = list(dict.fromkeys(one for one, _, _ in group))  # more than one where no public row has two marks
            texts = [text.removeprefix(f"{column}=") if len(columns) == 1 else text for _, text, _ in group]
            named.append(replace(curve, column=" and ".join(columns), values=(*texts, curve.values[-1])))
        first += 1 if curve.numeric else len(curve.values) - 1
    return tuple(named)


def _as_in_table(kind: Number, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return encoded values as they were before they were scaled: numbers, or dates."""
    numbers = [unscaled(kind, value) for value in values]
    if isinstance(kind, Date):
        moments = [moment_of(number, kind.unit) for number in numbers]
        return tuple(numbers if None in moments else moments)
    return tuple(numbers)


def _bill(model: Any, tables: Tables, schema: Schema, output: Output) -> dict[str, Any]:
    return {
        "claim": model.claim_,
        "epsilon": float(model.epsilon),
        "delta": float(model.delta),
        "privacy_unit": model.unit_,
        "label": tables.label if schema.label is None else schema.label.column,
        **({"classes": model.classes_.tolist()} if hasattr(model, "classes_") else {}),
        "features": model.n_features_in_,
        "coefficients": int(model.coef_.size),
        "folder": str(output.out),
    }
