"""From private records and a published student to a folder that answers queries: `quorate fit student-first`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.cli.commands.fit_options import Budget, Charged, Output, Tables, Trusting
from quorate.cli.commands.method_options import StudentFirst
from quorate.cli.fit import read_tables, shown_model
from quorate.cli.named import make_learner
from quorate.cli.output import check_new_folder, show_bill, steps
from quorate.core.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Schema

if TYPE_CHECKING:
    from quorate.models.saving import PublishedFolder

__all__ = ["check_columns", "published_model", "run_fit_student_first"]


def run_fit_student_first(
    tables: Tables, budget: Budget, teachers: StudentFirst, trusting: Trusting, output: Output, *, charged: Charged
) -> int:
    """Fit the teachers who correct a published student, write the model, and print what it promises."""
    check_new_folder(output.out)
    from quorate.models.predictors import StudentFirstClassifier
    from quorate.models.saving import load, save

    folder, tables = published_model(teachers.student, tables, option="--student")
    with steps(["reading", "encoding", "fitting", "saving"], quiet=output.json) as step:
        records, _, columns, declared = read_tables(tables, step)
        check_columns(folder, columns)
        encoded, labels, units = columns.encode(records), columns.labels(records), columns.units(records)
        step()
        settings = vars(budget) | vars(teachers) | {"student": load(folder, trusted=trusting.types)}
        learner, jobs = make_learner(settings.pop("learner")), settings.pop("jobs")
        classifier = StudentFirstClassifier(estimator=learner, classes=declared, n_jobs=jobs, **settings)
        charged.fit(classifier, encoded, labels, groups=units, one_scale=columns.one_scale)
        step()
        save(classifier, output.out, extra={SCHEMA_FILE: columns.to_json().encode()}, trusted=trusting.types)
    shown = shown_model(classifier, columns, output.out)
    bill = shown | {"student": str(folder.path), "dissents": teachers.dissents, "no_quorums": teachers.no_quorums}
    show_bill(f"The model in {output.out}", bill, as_json=output.json)
    return 0


def published_model(
    path: Path, tables: Tables, *, option: str, what: str = "classifier"
) -> tuple["PublishedFolder", Tables]:
    """Open the folder of a published model, by whose schema the tables are read unless another is named."""
    from quorate.models.saving import PublishedFolder, open_folder

    folder = open_folder(path)
    if not isinstance(folder, PublishedFolder) or folder.kind == "query release":
        asked = "" if isinstance(folder, PublishedFolder) else ", which answers from a budget and is not published"
        raise InvalidInput(
            f"{option} takes the folder of a published {what}; {folder.path} holds a {folder.kind}{asked}"
        )
    if folder.schema() is not None and tables.schema is None and tables.public is None:
        tables = replace(tables, schema=folder.path / SCHEMA_FILE)
    return folder, tables


def check_columns(folder: "PublishedFolder", columns: Schema) -> None:
    """Refuse a table that is encoded otherwise than what the published model was trained on."""
    known = folder.schema()
    if known is not None and list(known.columns.items()) != list(columns.columns.items()):
        raise InvalidInput(f"the {folder.kind} was trained on columns that are encoded differently; omit --schema")
