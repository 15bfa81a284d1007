"""Held-out private rows put to a published model: `quorate fit conformal` and `quorate check`."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quorate.cli.commands.check import Tested
from quorate.cli.commands.fit_options import Budget, Charged, Epsilon, Output, Tables, Trusting
from quorate.cli.commands.method_options import Sets
from quorate.cli.fit import check_named, read_features, read_private, read_tables, target_column
from quorate.cli.fit_student_first import check_columns, published_model
from quorate.cli.options import listed
from quorate.cli.output import check_new_folder, check_report, show_bill, steps
from quorate.core.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Category, Label, Number, Schema
from quorate.tables.cells import OTHER
from quorate.tables.containers import open_columns

if TYPE_CHECKING:
    from quorate.models.evaluation import ModelCheck
    from quorate.models.saving import PublishedFolder
from quorate.tables.values import read_codes

__all__ = ["run_check", "run_fit_conformal"]


class _HeldOut(NamedTuple):
    """Held-out records as a published model takes them; `schema` is how, unless the model was saved without one."""

    records: Any
    rows: Any
    labels: Any
    units: Any
    label: str
    schema: Schema | None


def run_fit_conformal(
    tables: Tables, budget: Epsilon, sets: Sets, trusting: Trusting, output: Output, *, charged: Charged
) -> int:
    """Release the threshold of sets or the width of intervals, write them with their model, and print the promise."""
    check_new_folder(output.out)
    from quorate.models.evaluation import ConformalClassifier, ConformalRegressor
    from quorate.models.saving import load, save

    folder, tables = published_model(sets.model, tables, option="--model", what="classifier or regression")
    model = load(folder, trusted=trusting.types)
    settings = vars(sets) | vars(budget) | {"model": model}
    kind: Any = ConformalRegressor
    if hasattr(model, "classes_"):
        kind, largest = ConformalClassifier, settings.pop("largest_error")
        if largest is not None:
            raise InvalidInput(
                "--largest-error is for a regression, whose intervals have a width; this is a classifier"
            )
    with steps(["reading", "encoding", "asking", "saving"], quiet=output.json) as step:
        held = _held_out(folder, model, tables, step)
        step()
        fitted = charged.fit(kind(**settings), held.rows, held.labels, groups=held.units)
        step()
        extra = {} if held.schema is None else {SCHEMA_FILE: held.schema.to_json().encode()}
        save(fitted, output.out, extra=extra, trusted=trusting.types)
    show_bill(
        f"{'Intervals' if kind is ConformalRegressor else 'Sets'} in {output.out}",
        _bill(fitted, folder, held, output),
        as_json=output.json,
    )
    return 0


def _bill(fitted: Any, folder: "PublishedFolder", held: _HeldOut, output: Output) -> dict[str, Any]:
    sets = hasattr(fitted, "classes_")
    return {
        "folder": str(output.out),
        "model": str(folder.path),
        "claim": fitted.claim_,
        "covers": fitted.covers_,
        "epsilon": float(fitted.epsilon),
        "delta": 0.0,
        "alpha": float(fitted.alpha),
        "privacy_unit": fitted.unit_,
        "label": held.label,
        **({"classes": fitted.classes_.tolist()} if sets else {}),
        "units": fitted.quantile_.units,
        "rank": fitted.quantile_.rank,
        **({"threshold": fitted.threshold_} if sets else {"width": _finite(fitted.width_)}),
        "epsilon_spent": fitted.spent_epsilon_,
    }


def _finite(width: float) -> float:
    """Return the largest number there is for a width without an end: JSON has no infinity."""
    return min(width, sys.float_info.max)


def run_check(test: Tested, tables: Tables, budget: Budget, trusting: Trusting, *, charged: Charged) -> int:
    """Test the model, print what was found, and say whether the limits hold. Exit code 1 if one is not shown to."""
    check_report(test.report, inputs=[tables.table, tables.public, tables.schema])
    from quorate.models.evaluation import check_model

    folder, tables, model = _tested(test, tables, trusting)
    by = test.by
    if test.min_auc is not None and (not hasattr(model, "predict_proba") or len(model.classes_) != 2):
        raise InvalidInput("--min-auc takes a model of two classes with probabilities; this one is not")
    known = folder.schema()
    features = folder.manifest.get("feature_names", ()) if known is None else (*known.columns, *known.leave_out)
    if by is not None and by not in features and by not in listed(tables.leave_out or ""):
        left = f"{tables.leave_out},{by}" if tables.leave_out else by  # a column that the model does not read
        tables = replace(tables, leave_out=left)
    with steps(["reading", "encoding", "asking"], quiet=test.json) as step:
        held = _held_out(folder, model, tables, step)
        values = None if by is None else _declared(by, test.by_values, held.schema, held.records.column_names)
        step()
        found = check_model(
            model,
            held.rows,
            held.labels,
            groups=held.units,
            by=None if by is None else _groups(held.records, by, values or []),
            by_values=values,
            confidence=test.confidence,
            **vars(budget),
            **vars(charged),
        )
    if test.report is not None:
        from quorate.report.check import CheckReport, write_check_report

        write_check_report(CheckReport(check=found), test.report)
    failed = _failed(found, test)
    print(json.dumps(found.as_dict() | {"failed": failed}) if test.json else found.summary())
    for sentence in failed:
        print(f"quorate: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def _tested(test: Tested, tables: Tables, trusting: Trusting) -> tuple["PublishedFolder", Tables, Any]:
    """Return the model that is tested, its folder, and the tables as it reads them.

    Of a release, that is a classifier that learns from its synthetic records.
    """
    from quorate.models.saving import PublishedFolder, load, open_folder
    from quorate.release.utility import learn_from

    folder = open_folder(test.model)
    if isinstance(folder, PublishedFolder) and folder.kind == "query release":
        return folder, tables, learn_from(load(folder), _label(tables))
    folder, tables = published_model(test.model, tables, option="quorate check")
    return folder, tables, load(folder, trusted=trusting.types)


def _held_out(folder: "PublishedFolder", model: Any, tables: Tables, step: Callable[[], None]) -> _HeldOut:
    """Read held-out records by the schema of the model, or by another; without one, as the model was fitted."""
    if folder.kind == "query release":
        return _held_out_of_release(model, tables, step)
    described = (tables.schema, tables.public, tables.classes, tables.texts, tables.missing_texts)
    if folder.schema() is None and described == (None,) * len(described) and not tables.gaps:
        return _held_out_as_fitted(folder, model, tables, step)
    if hasattr(model, "classes_"):
        records, _, schema, _ = read_tables(tables, step)
        assert schema.label is not None
        label, labels = schema.label.column, schema.labels(records)
    else:
        label = _label(tables)
        records, _, schema = read_features(tables, step, targets=[label])
        labels = target_column(records, label)
    check_columns(folder, schema)
    return _HeldOut(records, schema.encode(records), labels, schema.units(records), label, schema)


def _held_out_of_release(model: Any, tables: Tables, step: Callable[[], None]) -> _HeldOut:
    """Read held-out records by the columns of a release: no value of theirs is refused."""
    step()
    records, label = read_private(tables), _label(tables)
    check_named(records, label=[label], groups=[tables.groups])
    step()
    rows, labels = model.encode(records)
    units = None if tables.groups is None else Schema({label: Number()}, groups=tables.groups).units(records)
    return _HeldOut(records, rows, labels, units, label, None)


def _held_out_as_fitted(folder: "PublishedFolder", model: Any, tables: Tables, step: Callable[[], None]) -> _HeldOut:
    """Read held-out records by the columns that the model knows; its classes are those of the label."""
    from quorate.cli.predict import rows_of_model

    step()
    records, label = read_private(tables), _label(tables)
    left_out = listed(tables.leave_out) if tables.leave_out else []
    check_named(records, label=[label], groups=[tables.groups], leave_out=left_out)
    step()
    others = [name for name in (label, tables.groups, *left_out) if name is not None]
    rows = rows_of_model(folder, records.drop_columns(others), role="private")
    units = None if tables.groups is None else Schema({label: Number()}, groups=tables.groups).units(records)
    if not hasattr(model, "classes_"):
        return _HeldOut(records, rows, target_column(records, label), units, label, None)
    values = open_columns(records, [label], whose="the private records")[label]
    codes = Label(label, model.classes_.tolist()).codes(values, role="private")
    labels = np.array([*model.classes_.tolist(), None], dtype=object)[codes]
    return _HeldOut(records, rows, labels, units, label, None)


def _label(tables: Tables) -> str:
    if tables.label is None:
        raise InvalidInput("name the column that the model predicts: --label COLUMN")
    return tables.label


def _declared(by: str, given: str | None, columns: Schema | None, names: Sequence[str]) -> list[str]:
    """Return the groups that there are: as written, or as the schema declares them. None is read from the records."""
    if by not in names:
        raise InvalidInput(f"--by names {by!r}, and there is no such column")
    if given is not None:
        return [part.strip() for part in given.split(",")]
    kind = None if columns is None else columns.columns.get(by)
    if not isinstance(kind, Category):
        raise InvalidInput(f"the values of {by!r} are not declared, and are not read from private records: --by-values")
    return list(kind.categories)


def _groups(records: Any, by: str, values: Sequence[str]) -> list[str]:
    """Return the group of each record, each read by itself, as categories are; "other" where it is not declared."""
    column = open_columns(records, [by], whose="the private records")[by]
    names = np.array([*values, OTHER], dtype=object)
    codes = read_codes(column, values)
    return [str(name) for name in names[np.where(codes < 0, len(values), codes)]]


def _failed(found: "ModelCheck", test: Tested) -> list[str]:
    """Return a sentence for each limit that the intervals do not show to hold."""
    sentences = []
    if test.max_error is not None and (high := found.measure("error").high) > test.max_error:
        sentences.append(f"the error is not shown to be at most {test.max_error:g}: its interval ends at {high:.4f}")
    if test.min_auc is not None and (low := found.measure("auc").low) < test.min_auc:
        sentences.append(f"the auc is not shown to be at least {test.min_auc:g}: its interval begins at {low:.4f}")
    return sentences
