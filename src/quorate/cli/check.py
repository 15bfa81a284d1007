"""`quorate check`: a private test of a published model on held-out records, which conformal sets read as well."""

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts import Group, Parameter

from quorate.cli.options import Names, Trusted, options_from, with_options
from quorate.cli.output import check_report, show
from quorate.cli.predict import rows_of_model
from quorate.cli.reading import Data, Tables, check_column_names, read_data, target_column
from quorate.core.errors import InvalidInput
from quorate.core.progress import progress
from quorate.models.evaluation import ModelCheck, check_model
from quorate.models.saving import PublishedFolder, load, open_folder
from quorate.tables import SCHEMA_FILE, Category, Label, Number, Schema
from quorate.tables.cells import OTHER
from quorate.tables.containers import open_columns
from quorate.tables.values import read_codes


@Parameter(name="*", group=Group("Test", sort_key=0))
@dataclass(frozen=True)
class Test:
    """The model to test, the groups, and the limits that it must meet.

    Parameters
    ----------
    model
        The folder of a published classifier. Its schema encodes the table, unless another is given. Or the folder of a
        release of marginals: then the test is of a classifier of --label that learns from its synthetic records.
    by
        A column: figures are also given for each of its values.
    by_values
        The values of that column, separated by commas; read from the schema if it declares them.
    max_error
        The test passes if the upper end of the error's interval is at most this share.
    min_auc
        The test passes if the lower end of the interval of the area under the curve is at least this share.
    report
        An HTML page to write, with the figures and a plot of the calibration.
    json
        Print one JSON object instead of text.
    """

    model: Path
    _: KW_ONLY
    by: str | None = None
    by_values: Names = ()
    max_error: float | None = None
    min_auc: float | None = None
    report: Path | None = None
    json: bool = False


@with_options(
    options_from(
        [check_model],
        skip="model X y groups by by_values bins schema",
        types={"account": Path | None},
        helps={
            "account": "The folder of an account, made by `quorate ledger account`, that this test draws on.",
        },
    )
)
def check(test: Test, tables: Tables, *, trusted: Trusted = (), **settings: Any) -> int:
    """Test a published classifier on held-out private records: error, recalls, auc and calibration, by group.

    The guarantee covers everything that is printed. Exit code 1 if a given limit is not shown to hold.

    Example: `quorate check rule later.csv --label outcome --epsilon 1 --by sex --max-error 0.2 --report check.html`
    """
    check_report(test.report, inputs=[tables.table, tables.public, tables.schema])
    folder, tables, model = _open_tested(test, tables, list(trusted) or None)
    if test.min_auc is not None and (not hasattr(model, "predict_proba") or len(model.classes_) != 2):
        raise InvalidInput("--min-auc needs a model of two classes with probabilities")
    with progress("reading the table"):
        data = read_held_out(folder, model, _without_groups(test.by, folder, tables))
        if test.by is not None:
            values = _find_group_values(test.by, test.by_values, data)
            settings |= {"by": _groups(data.records, test.by, values), "by_values": values}
    check = check_model(model, data.X, data.y, groups=data.units, **settings)
    if test.report is not None:
        from quorate.report import write_report
        from quorate.report.trust import CheckReport

        write_report(CheckReport(check=check), test.report)
    failed = _failed_limits(check, test)
    show(check.as_dict() | {"failed": failed}, check.summary(), as_json=test.json)
    for sentence in failed:
        print(f"quorate: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def _without_groups(by: str | None, folder: PublishedFolder, tables: Tables) -> Tables:
    """Return the tables without the column of groups, if the model does not read it."""
    schema = folder.schema()
    features = folder.manifest.get("feature_names", ()) if schema is None else (*schema.columns, *schema.leave_out)
    if by is None or by in features or by in tables.leave_out:
        return tables
    return replace(tables, leave_out=(*tables.leave_out, by))


def _open_tested(test: Test, tables: Tables, trusted: list[str] | None) -> tuple[PublishedFolder, Tables, Any]:
    """Return the folder of the model, the tables as it reads them, and the model.

    A release is tested by a classifier that learns from its synthetic records.
    """
    folder = open_folder(test.model)
    if isinstance(folder, PublishedFolder) and folder.kind == "query release":
        from quorate.release.utility import learn_from

        return folder, tables, learn_from(load(folder), _label(tables))
    folder, tables = open_published(test.model, tables, option="quorate check")
    return folder, tables, load(folder, trusted=trusted)


def open_published(path: Path, tables: Tables, *, option: str) -> tuple[PublishedFolder, Tables]:
    """Open the folder of a published model. Its schema reads the tables unless another is named."""
    folder = open_folder(path)
    if not isinstance(folder, PublishedFolder) or folder.kind == "query release":
        why = "" if isinstance(folder, PublishedFolder) else ", which answers from a budget and is not published"
        raise InvalidInput(
            f"{option} takes the folder of a published classifier or regression; {folder.path} holds a "
            f"{folder.kind}{why}"
        )
    if folder.schema() is not None and tables.schema is None and tables.public is None:
        tables = replace(tables, schema=folder.path / SCHEMA_FILE)
    return folder, tables


def check_columns(folder: PublishedFolder, schema: Schema) -> None:
    """Refuse a table whose encoding differs from the training data of the published model."""
    trained = folder.schema()
    if trained is not None and list(trained.columns.items()) != list(schema.columns.items()):
        raise InvalidInput(f"the {folder.kind} was trained on columns that are encoded differently; omit --schema")


def read_held_out(folder: PublishedFolder, model: Any, tables: Tables) -> Data:
    """Read held-out records by the schema of the model, or by another; without one, as the model was fitted."""
    if folder.kind == "query release":
        records, label = tables.read(), _label(tables)
        check_column_names(records, label=[label], groups=[tables.groups])
        rows, labels = model.encode(records)
        return _with_rows(Data(records, None, None, label, labels), rows, tables)
    described = (tables.schema, tables.public, tables.classes, tables.texts, tables.missing_texts, tables.gaps)
    if folder.schema() is None and not any(described):
        return _read_by_model(folder, model, tables)
    is_classifier = hasattr(model, "classes_")
    if not is_classifier:
        _label(tables)
    data = read_data(tables, number=not is_classifier)
    check_columns(folder, data.schema)
    return data


def _read_by_model(folder: PublishedFolder, model: Any, tables: Tables) -> Data:
    """Read held-out records by the columns that the model knows; its classes are those of the label."""
    records, label = tables.read(), _label(tables)
    check_column_names(records, label=[label], groups=[tables.groups], leave_out=tables.leave_out)
    unread = [name for name in (label, tables.groups, *tables.leave_out) if name is not None]
    rows = rows_of_model(folder, records.drop_columns(unread), role="private")
    if not hasattr(model, "classes_"):
        return _with_rows(Data(records, None, None, label, target_column(records, label)), rows, tables)
    values = open_columns(records, [label], source="the private records")[label]
    codes = Label(label, model.classes_.tolist()).codes(values, role="private")
    labels = np.array([*model.classes_.tolist(), None], dtype=object)[codes]
    return _with_rows(Data(records, None, None, label, labels), rows, tables)


def _with_rows(data: Data, rows: Any, tables: Tables) -> Data:
    """Return rows that are already encoded as data without a schema."""
    schema = Schema({data.label: Number()}, groups=tables.groups)
    data.X, data.units = rows, None if tables.groups is None else schema.units(data.records)
    return data


def _label(tables: Tables) -> str:
    if tables.label is None:
        raise InvalidInput("name the column that the model predicts: --label COLUMN")
    return tables.label


def _find_group_values(by: str, values: Sequence[str], data: Data) -> list[str]:
    """Return the groups: as given, or as the schema declares them. They are never read from the records."""
    if by not in data.records.column_names:
        raise InvalidInput(f"--by names {by!r}, and there is no such column")
    if values:
        return list(values)
    kind = None if data.schema is None else data.schema.columns.get(by)
    if not isinstance(kind, Category):
        raise InvalidInput(f"the values of {by!r} are not declared, and are not read from private records: --by-values")
    return list(kind.categories)


def _groups(records: Any, by: str, values: Sequence[str]) -> list[str]:
    """Return the group of each record, each read by itself, as categories are; "other" where it is not declared."""
    column = open_columns(records, [by], source="the private records")[by]
    names = np.array([*values, OTHER], dtype=object)
    codes = read_codes(column, values)
    return [str(name) for name in names[np.where(codes < 0, len(values), codes)]]


def _failed_limits(check: ModelCheck, test: Test) -> list[str]:
    """Return a sentence for each limit that the intervals do not show to hold."""
    sentences = []
    if test.max_error is not None and (high := check.measure("error").high) > test.max_error:
        sentences.append(f"the error is not shown to be at most {test.max_error:g}: its interval ends at {high:.4f}")
    if test.min_auc is not None and (low := check.measure("auc").low) < test.min_auc:
        sentences.append(f"the auc is not shown to be at least {test.min_auc:g}: its interval begins at {low:.4f}")
    return sentences
