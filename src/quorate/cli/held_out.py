"""Held-out private rows put to a published model: `quorate fit conformal` and `quorate check`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate.cli.commands.check import Tested
from quorate.cli.commands.fit_options import Budget, Epsilon, Output, Sets, Tables
from quorate.cli.fit import check_columns, published_model, read_tables
from quorate.cli.output import check_new_folder, check_report, show_bill, steps
from quorate.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Category, Schema

if TYPE_CHECKING:
    from quorate.held_out import ModelCheck

__all__ = ["run_check", "run_fit_conformal"]


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
        fitted = ConformalClassifier(**settings).fit(encoded, labels, groups=units)
        step()
        save(fitted, output.out, extra={SCHEMA_FILE: columns.to_json().encode()})
    assert columns.label is not None
    bill = {
        "folder": str(output.out),
        "model": str(folder.path),
        "claim": fitted.claim_,
        "covers": fitted.covers_,
        "epsilon": float(fitted.epsilon),
        "delta": 0.0,
        "alpha": float(fitted.alpha),
        "privacy_unit": fitted.unit_,
        "label": columns.label.column,
        "classes": fitted.classes_.tolist(),
        "units": fitted.quantile_.units,
        "rank": fitted.quantile_.rank,
        "threshold": fitted.threshold_,
        "epsilon_spent": fitted.spent_epsilon_,
    }
    show_bill(f"Sets in {output.out}", bill, as_json=output.json)
    return 0


def run_check(test: Tested, tables: Tables, budget: Budget) -> int:
    """Test the model, print what was found, and say whether the limits hold. Exit code 1 if one is not shown to."""
    check_report(test.report, inputs=[tables.table, tables.public, tables.schema])
    from quorate.held_out import check_model
    from quorate.models import load

    folder, tables = published_model(test.model, tables, option="quorate check")
    model, by = load(folder), test.by
    if test.min_auc is not None and (not hasattr(model, "predict_proba") or len(model.classes_) != 2):
        raise InvalidInput("--min-auc takes a model of two classes that says probabilities; this one does not")
    known = folder.schema()
    if by is not None and known is not None and by not in (*known.columns, *known.leave_out):
        left = f"{tables.leave_out},{by}" if tables.leave_out else by  # a column that the model does not read
        tables = replace(tables, leave_out=left)
    with steps(["reading", "encoding", "asking"], quiet=test.json) as step:
        records, _, columns, _ = read_tables(tables, step)
        check_columns(folder, columns)
        values = None if by is None else _declared(by, test.by_values, columns, records.column_names)
        step()
        found = check_model(
            model,
            columns.encode(records),
            columns.labels(records),
            groups=columns.units(records),
            by=None if by is None else _texts(records, by),
            by_values=values,
            confidence=test.confidence,
            **vars(budget),
        )
    if test.report is not None:
        from quorate.report.check import CheckReport, write_check_report

        write_check_report(CheckReport(check=found), test.report)
    failed = _failed(found, test)
    print(json.dumps(found.as_dict() | {"failed": failed}) if test.json else found.summary())
    for sentence in failed:
        print(f"quorate: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def _declared(by: str, given: str | None, columns: Schema, names: Sequence[str]) -> list[str]:
    """Return the groups that there are: as written, or as the schema declares them. None is read from the records."""
    if by not in names:
        raise InvalidInput(f"--by names {by!r}, and there is no such column")
    if given is not None:
        return [part.strip() for part in given.split(",")]
    kind = columns.columns.get(by)
    if not isinstance(kind, Category):
        raise InvalidInput(f"the values of {by!r} are not declared, and are not read from private records: --by-values")
    return list(kind.categories)


def _texts(records: Any, by: str) -> list[str]:
    return [str(value).strip() for value in records[by].to_pylist()]


def _failed(found: "ModelCheck", test: Tested) -> list[str]:
    """Return a sentence for each limit that the intervals do not show to hold."""
    sentences = []
    if test.max_error is not None and (high := found.measure("error").high) > test.max_error:
        sentences.append(f"the error is not shown to be at most {test.max_error:g}: its interval ends at {high:.4f}")
    if test.min_auc is not None and (low := found.measure("auc").low) < test.min_auc:
        sentences.append(f"the auc is not shown to be at least {test.min_auc:g}: its interval begins at {low:.4f}")
    return sentences
