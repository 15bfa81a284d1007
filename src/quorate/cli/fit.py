"""Fit a model on a table of private records. Each method is a subcommand with its own options.

What columns hold is never read off private records. It comes from a public table with the same columns (--public) or
from a schema (--schema). Without both, a linear model learns it with noise, and other methods take numbers alone.

Example: `quorate fit linear visits.csv --label outcome --classes ill,well --out model`
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import App, Group, Parameter
from rich.console import Console

from quorate.cli.fit_methods import METHODS, Method
from quorate.cli.fit_models import TARGET_FILE, Fitted, fit_stream, fit_table, open_stream, rename_curves
from quorate.cli.options import AsJson, options_from, parse_bounds, with_options
from quorate.cli.output import check_new_folder, check_report, show_bill
from quorate.cli.reading import Data, Tables, read_data, show_learned_problems, warn_of_delta
from quorate.core.errors import InvalidInput
from quorate.models.saving import save
from quorate.tables import SCHEMA_FILE

if TYPE_CHECKING:
    from quorate.models.fitting import FittedTable

_FIGURES = {  # of the bill, by the attribute of a fitted model that has them
    "chosen_.why": "learner",
    "plan_.aggregator": "aggregator",
    "plan_.method": "search_method",
    "plan_.candidates": "candidates",
    "plan_.trial_epsilon": "trial_epsilon",
    "plan_.naive_epsilon": "naive_epsilon",
    "plan_.right": "expected_right",
    "plan_.error": "expected_error",
    "unit_": "privacy_unit",
    "n_features_in_": "features",
    "queries": "queries_planned",
    "coef_.size": "coefficients",
    "shift_": "public_rows_differ_by",
    "quantile_.units": "units",
    "terms_.replaced_epsilon": "replaced_epsilon",
    "terms_.votes": "votes_of_a_unit",
    "terms_.noise": "noise_in_votes",
    "terms_.cutoff.allowed": "no_quorums_a_phase",
    "terms_.queries.epsilon": "query_epsilon",
    "best_score_": "score",
} | {
    name: name.rstrip("_")
    for name in (
        *("claim_", "covers_", "teachers_", "stability_", "candidates_", "excess", "dissents", "no_quorums", "alpha"),
        *("threshold_", "width_", "radius", "chunk", "relabel", "refresh", "schema_share_"),
    )
}


@Parameter(name="*", group=Group("Output", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go.

    Parameters
    ----------
    out
        The folder to write; it must be new or empty.
    """

    out: Path
    json: AsJson = False


_TESTED_TYPES = {"bounds": str | None, "test_share": float | Literal["auto"]}
_TESTED_HELPS = {
    "bounds": "The lowest and the highest value of a label that is a number, as in 0,120. The model is then a "
    "regression.",
}
_Report = Annotated[
    Path | None, Parameter(group="Output", help="An HTML page to write, with the guarantee and the results.")
]
_MoreFiles = Annotated[
    Path,
    Parameter(
        group="Tables",
        help="More files of the same table, folders of them, or patterns: all are read as one, some rows at a time.",
    ),
]


def __getattr__(name: str) -> Any:
    """Make the command of a method when it is called for: its estimator takes a second to import."""
    method_name = name.removeprefix("fit ")
    if method_name == "tested":
        from quorate.models import fitting

        skip = "table label classes groups public schema leave_out"
        return with_options(options_from([fitting.fit], skip=skip, types=_TESTED_TYPES, helps=_TESTED_HELPS))(
            _fit_tested
        )
    if method_name not in METHODS:
        raise AttributeError(name)
    options = METHODS[method_name].options()
    names = {option.name for option in options}
    without = ("" if "memory" in names else "files ") + ("" if "epsilon" in names else "report")

    @with_options(options, without=without)
    def run(tables: Tables, *files: _MoreFiles, output: Output, report: _Report = None, **settings: Any) -> int:
        return _run(method_name, tables, files, output, report=report, settings=settings)

    return run


fit = App(name="fit", help_format="markdown")
fit.command(
    "quorate.cli.fit:fit tested",
    name="tested",
    help="Fit a model that may be published and test it privately, both under one guarantee. Nothing but the table is "
    "needed.\n\nExample: `quorate fit tested visits.csv --label outcome --classes ill,well --out model`",
    sort_key=-1,
)
for _rank, (_name, _method) in enumerate(METHODS.items()):
    fit.command(f"quorate.cli.fit:fit {_name}", name=_name, help=_method.help, sort_key=_rank)


def _run(
    name: str, tables: Tables, files: tuple[Path, ...], output: Output, *, report: Path | None, settings: dict[str, Any]
) -> int:
    """Read the records, fit the method, save, and print what the model promises."""
    check_new_folder(output.out)
    check_report(report, inputs=[tables.table, tables.public, tables.schema])
    with open_stream([tables.table, *files], tables, settings) as stream:
        fitted = fit_stream(name, stream, tables, settings) if stream else fit_table(name, tables, settings)
        bill = {"folder": str(output.out), "method": name} | _bill(fitted.model, fitted.data) | fitted.notes
        _save(fitted, output.out)
    if report is not None:
        _write_report(METHODS[name], fitted, bill, report)
    show_bill(f"The model in {output.out}", bill, as_json=output.json)
    if not output.json:
        _show_plan(fitted.plan)
    return 0


def _fit_tested(tables: Tables, *, output: Output, report: _Report = None, **settings: Any) -> int:
    """Fit a model on some rows, or people, and test it on the others."""
    from quorate.models import fitting

    check_new_folder(output.out)
    check_report(report, inputs=[tables.table, tables.public, tables.schema])
    _refuse_schema_options(tables)
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
    if report is not None:
        _write_tested_report(fitted, report, is_declared=bounds is not None or data.classes is not None)
    if output.json:
        show_bill(f"The model in {output.out}", _tested_bill(fitted, output.out), as_json=True)
    else:
        print(f"{fitted.summary()}\nThe model in {output.out} may be published.", file=sys.stderr)
    return 0


def _refuse_schema_options(tables: Tables) -> None:
    if tables.schema is None and (tables.texts or tables.missing_texts or tables.gaps):
        raise InvalidInput("--texts, --missing-texts and --gaps need a schema (--schema)")


def _show_plan(plan: Any) -> None:
    console = Console(stderr=True)
    if hasattr(plan, "summary"):
        console.print(plan.summary())
    for sentence in getattr(plan, "assumptions", ()):
        console.print(f"Assumed: {sentence}.")


def _save(fitted: Fitted, out: Path) -> None:
    schema, model = fitted.data.schema, fitted.model
    extra = {} if schema is None or fitted.is_learned else {SCHEMA_FILE: schema.to_json().encode()}
    if extra and schema.label is None and hasattr(model, "session_"):
        extra[TARGET_FILE] = fitted.data.label.encode()
    save(model, out, extra=extra, trusted=fitted.trusted)
    if hasattr(model, "session_"):
        model.session_.close()  # the next command opens the folder


def _bill(model: Any, data: Data) -> dict[str, Any]:
    """Return the facts about a fitted model."""
    best = getattr(model, "best_estimator_", model)  # of a search
    bill: dict[str, Any] = {"label": data.label}
    for path, name in _FIGURES.items():
        for owner in (model, best):
            value = _find_figure(owner, path)
            if value is not None:
                bill.setdefault(name, value)
    if hasattr(best, "classes_"):
        bill["classes"] = best.classes_.tolist()
    if hasattr(model, "best_params_"):
        bill |= {"cuts": model.best_params_["columns__cuts"], "scoring": model.scoring or "accuracy"}
    if hasattr(model, "hypothesis_") and hasattr(model, "candidates_"):
        from quorate.models.concepts.stumps import rule_text

        rule = rule_text(model.hypothesis_, model.classes_.tolist(), data.schema.condition)
        bill |= {"rule": rule, "hypothesis": repr(model.hypothesis_)}
    if hasattr(model, "progress_"):
        bill["seats_of_the_first_phase"] = model.progress_["seats"]
    bill |= _epsilons(model)
    if hasattr(getattr(model, "plan_", None), "as_dict"):
        bill["plan"] = model.plan_.as_dict()
    return bill


def _tested_bill(fitted: "FittedTable", out: Path) -> dict[str, Any]:
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


def _epsilons(model: Any) -> dict[str, Any]:
    """Return the guarantee in numbers, and the spent part of it."""
    if hasattr(model, "gamma"):  # Each answer of a stable model adds to delta alone.
        return {"epsilon": None, "delta": model.spent_delta()}
    if hasattr(model, "cutoff_epsilon"):  # An everlasting model has a budget per phase.
        return {"epsilon": model.terms_.training.epsilon, "delta": model.terms_.training.delta}
    epsilon, delta = getattr(model, "epsilon_", model.epsilon), getattr(model, "delta_", getattr(model, "delta", 0.0))
    spent = getattr(model, "spent_epsilon_", None) or _find_figure(model, "spent_epsilon")
    return {"epsilon": float(epsilon), "delta": float(delta)} | ({} if spent is None else {"epsilon_spent": spent})


def _find_figure(owner: Any, path: str) -> Any:
    """Return the number or text at a path of attributes, or None; infinity becomes the largest number, for JSON."""
    try:
        value = attrgetter(path)(owner)
    except AttributeError:
        return None
    value = value() if callable(value) else value
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return min(value, sys.float_info.max)
    return value if isinstance(value, str | int) and value != "auto" else None


def _write_report(method: Method, fitted: Fitted, bill: dict[str, Any], path: Path) -> None:
    from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report

    model = getattr(fitted.model, "best_estimator_", fitted.model)  # of a search
    is_declared = getattr(model, "multilabel_", False) or getattr(model, "classes", ()) is not None
    labels = "declared" if is_declared else "read from y, and public"
    notes = [f"The claim in full: {bill['claim']}."]
    if method.proofs is None:
        notes.append("No query has been answered yet; the plan says what to expect.")
    elif method.proofs == "linear" and bill["coefficients"] > np.shape(model.coef_)[-1]:
        notes.append("The curves are those of the first of its outputs.")
    data = ReportData(
        title=method.title,
        claim=Claim(bill["epsilon"], bill["delta"], bill["privacy_unit"], labels=labels),
        plan=bill["plan"] if "aggregator" in bill else None,
        results={name: value for name, value in bill.items() if isinstance(value, str | int | float)},
        proofs=proofs_for(method.proofs or bill.get("aggregator")),
        software=software_versions(),
        notes=tuple(notes),
        **(_curves(model.curves_, fitted, bill) if hasattr(model, "curves_") else {}),
    )
    write_report(data, path)


def _curves(curves: Any, fitted: Fitted, bill: Mapping[str, Any]) -> dict[str, Any]:
    """Return the curves of a linear model for its report, with the names of the table's columns."""
    classes = bill.get("classes", ())
    return {
        "curves": curves if fitted.is_learned else rename_curves(curves, fitted.data.schema),
        "curves_of": f"the log odds of {classes[1]!r}" if len(classes) == 2 else None,
    }


def _write_tested_report(fitted: "FittedTable", path: Path, *, is_declared: bool) -> None:
    """Write the page of a model and its private test."""
    from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report

    model = fitted.model
    classes: Any = getattr(model, "classes_", ())
    headline = None
    if fitted.check is not None:
        answer, constant = fitted.constant_error()
        error = fitted.check.measure("error")
        headline = {
            "right, by the private test": f"{1 - error.estimate:.1%}",
            f"right if always {answer!r}": f"{1 - constant.estimate:.1%}",
        }
    data = ReportData(
        title=f"A linear model of {fitted.label}",
        claim=Claim(
            model.epsilon, model.delta, model.unit_, labels="declared" if is_declared else "read from y, and public"
        ),
        headline=headline,
        results={"fitted on units": fitted.units, "tested on others": fitted.test_units},
        proofs={**proofs_for("linear"), **proofs_for("check")},
        software=software_versions(),
        curves=model.curves_,
        curves_of=f"the log odds of {str(classes[1])!r}" if len(classes) == 2 else None,
        notes=tuple(fitted.summary().splitlines()),
    )
    write_report(data, path)
