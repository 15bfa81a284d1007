"""`quorate fit tested`: a linear model and its private test under one guarantee, as `quorate.fit` makes them."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from quorate.cli.fit import Output
from quorate.cli.options import options_from, parse_bounds, with_options
from quorate.cli.output import check_new_folder, show_bill
from quorate.cli.reading import Tables, read_data, show_learned_problems, warn_of_delta
from quorate.core.errors import InvalidInput
from quorate.models import fitting

_TYPES = {"bounds": str | None, "test_share": float | Literal["auto"]}
_HELPS = {
    "bounds": "The lowest and the highest value of a label that is a number, as in 0,120. The model is then a "
    "regression.",
}


@with_options(
    options_from([fitting.fit], skip="table label classes groups public schema leave_out", types=_TYPES, helps=_HELPS)
)
def fit_tested(tables: Tables, *, output: Output, **settings: Any) -> int:
    """Fit a model on some rows, or people, and test it on the others."""
    check_new_folder(output.out)
    if tables.schema is None and (tables.texts or tables.missing_texts or tables.gaps):
        raise InvalidInput("--texts, --missing-texts and --gaps need a schema (--schema)")
    bounds = settings.pop("bounds")
    is_learned = tables.public is None and tables.schema is None
    data = read_data(tables, number=bounds is not None, leave_ids=True, is_learned=is_learned)
    warn_of_delta(settings["delta"], data.records, data.units)
    used = {*data.schema.columns, data.label, data.schema.groups}
    fitted = fitting.fit(
        data.records,
        data.label,
        classes=data.classes,
        bounds=None if bounds is None else parse_bounds(bounds),
        groups=data.schema.groups,
        public=data.public,
        schema=None if tables.schema is None else data.schema,
        leave_out=[name for name in data.records.column_names if name not in used],
        **settings,
    )
    if is_learned:
        show_learned_problems(fitted.model.schema_, data.records)
    fitted.save(output.out)
    if output.json:
        show_bill(f"The model in {output.out}", _bill(fitted, output.out), as_json=True)
    else:
        print(f"{fitted.summary()}\nThe model in {output.out} may be published.", file=sys.stderr)
    return 0


def _bill(fitted: fitting.FittedTable, out: Path) -> dict[str, Any]:
    """Return the figures of a fitted model and of its test."""
    bill: dict[str, Any] = {
        "folder": str(out),
        "method": "tested",
        "label": fitted.label,
        "columns": list(fitted.columns),
        "units": fitted.units,
        "test_units": fitted.test_units,
        "claim": fitted.claim,
        "epsilon": fitted.model.epsilon,
        "delta": fitted.model.delta,
    }
    if fitted.intervals is not None:
        bill["width"] = fitted.intervals.width_
    if fitted.check is not None:
        answer, constant = fitted.constant_error()
        bill |= {"classes": fitted.model.classes_.tolist(), "error": asdict(fitted.check.measure("error"))}
        bill |= {"constant_answer": answer, "constant_error": asdict(constant)}
        if len(bill["classes"]) == 2:
            bill["auc"] = asdict(fitted.check.measure("auc"))
    return bill
