"""From a table of private records to a folder that answers queries: `quorate fit`."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from quorate.errors import InvalidInput
from quorate.report import check_installed
from quorate.tables import MISSING_TEXTS, SCHEMA_FILE, Schema, read_table

if TYPE_CHECKING:
    from quorate.predictors import PrivateClassifier

__all__ = [
    "LEARNERS",
    "Tables",
    "check_new_file",
    "chosen_schema",
    "make_learner",
    "run_fit",
    "show_bill",
    "steps",
]

LEARNERS = ("logistic", "ridge", "centroid", "naive-bayes", "stump", "tree", "forest", "boosting")


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of a fit, and what is said of their columns: by `quorate fit`, whatever the method.

    >>> Tables(table=Path("x.csv"), label="outcome").public is None
    True
    """

    table: Path
    label: str | None = None
    classes: str | None = None
    public: Path | None = None
    schema: Path | None = None
    groups: str | None = None
    leave_out: str | None = None
    missing_texts: str | None = None

    def read(self, step: Callable[[], None]) -> tuple[Any, Any, Schema, list[Any]]:
        """Read the private and the public table, and say how their columns become numbers, and all labels: two steps.

        >>> Tables(table=Path("x.csv")).read(lambda: None)
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: x.csv: there is no such file
        """
        step()
        records = read_table(self.table, role="private")
        left_out = _listed(self.leave_out) or ()
        _check_named(records, label=self.label, groups=self.groups, leave_out=left_out)
        known = None if self.public is None else read_table(self.public, role="public")
        step()
        columns = chosen_schema(
            records,
            known,
            self.schema,
            label=self.label,
            classes=_listed(self.classes),
            groups=self.groups,
            leave_out=left_out,
            missing_texts=_listed(self.missing_texts) or (),
        )
        if columns.label is None:
            raise InvalidInput("which column holds the label must be said: --label COLUMN, or in the schema")
        return records, known, columns, list(columns.label.classes)


def run_fit(
    tables: Tables,
    *,
    learner: str,
    epsilon: float,
    delta: float,
    teachers: int | Literal["auto"],
    aggregator: str,
    queries: int,
    no_quorums: int | Literal["auto"],
    disagreement: float | None,
    holdout: float,
    jobs: int | None,
    out: Path,
    report: Path | None,
    as_json: bool,
) -> int:
    """Read the records, fit the teachers, write the model, and print what it promises. Nothing is answered yet.

    >>> settings = {"learner": "ridge", "teachers": "auto", "aggregator": "auto", "queries": 10, "no_quorums": "auto"}
    >>> settings |= {"epsilon": 1.0, "delta": 1e-6, "disagreement": None, "holdout": 0.0, "jobs": None}
    >>> settings |= {"report": None, "as_json": True}
    >>> run_fit(Tables(table=Path("x.csv")), out=Path("x"), **settings)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: x.csv: there is no such file
    """
    _check_new_folder(out)
    if report is not None:
        check_new_file(report, inputs=[tables.table, tables.public, tables.schema])
        check_installed()
    with steps(["reading", "encoding", "fitting", "saving"], quiet=as_json) as step:
        records, known, columns, declared = tables.read(step)
        encoded, labels, units = columns.encode(records), columns.labels(records), columns.units(records)
        points = None if known is None else columns.encode(known, role="public")
        step()
        from quorate.models import save
        from quorate.predictors import PrivateClassifier

        classifier = PrivateClassifier(
            make_learner(learner),
            epsilon=epsilon,
            delta=delta,
            teachers=teachers,
            aggregator=aggregator,
            queries=queries,
            classes=declared,
            no_quorums=no_quorums,
            disagreement=disagreement,
            holdout=holdout,
            n_jobs=jobs,
        ).fit(encoded, labels, groups=units, public=points, one_scale=columns.one_scale)
        step()
        save(classifier, out, extra={SCHEMA_FILE: columns.to_json().encode()})
    bill = _bill(classifier, columns, out)
    if report is not None:
        _write_report(classifier, bill, report)
    show_bill(f"The model in {out}", bill, as_json=as_json)
    if not as_json:
        Console(stderr=True).print(classifier.plan_.summary())
    return 0


def chosen_schema(
    records: Any,
    public: Any,
    schema: Path | None,
    *,
    label: str | None,
    classes: Sequence[str] | None,
    groups: str | None = None,
    leave_out: Sequence[str] = (),
    missing_texts: Sequence[str] = (),
) -> Schema:
    """Return the schema that is written, or learned from the public table, or else made of the header alone.

    >>> import pyarrow as pa
    >>> records = pa.table({"age": [30, 50], "ill": ["no", "yes"]})
    >>> chosen_schema(records, None, None, label="ill", classes=["no", "yes"]).feature_names
    ['age']
    """
    gaps = (*MISSING_TEXTS, *missing_texts)
    if schema is None:
        known, make = (records, Schema.numbers) if public is None else (public, Schema.from_public)
        return make(known, label=label, classes=classes, groups=groups, leave_out=leave_out, missing_texts=gaps)
    written = Schema.load(schema).without(leave_out).with_missing_texts(missing_texts)
    if groups is not None:
        written = written.with_groups(groups)
    if label is not None or classes is not None:
        column = label if label is not None else written.label.column if written.label is not None else None
        if column is None:
            raise InvalidInput("--classes says what the label may be, but not where it is: add --label COLUMN")
        written = written.with_label(column, classes)
    return written


def make_learner(name: str) -> Any:
    """Return the scikit-learn estimator that each teacher is a copy of. Those before "tree" are fitted as one array.

    >>> make_learner("ridge")
    RidgeClassifier()
    """
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import NearestCentroid
    from sklearn.tree import DecisionTreeClassifier

    makers: dict[str, Callable[[], Any]] = {
        "logistic": LogisticRegression,
        "ridge": RidgeClassifier,
        "centroid": NearestCentroid,
        "naive-bayes": GaussianNB,
        "stump": lambda: DecisionTreeClassifier(max_depth=1),
        "tree": lambda: DecisionTreeClassifier(max_depth=6, min_samples_leaf=2),
        "forest": lambda: RandomForestClassifier(n_estimators=10, max_depth=8),
        # Not the histogram kind: its threads cost more than they bring on chunks of a hundred rows.
        "boosting": lambda: GradientBoostingClassifier(n_estimators=20, max_depth=2),
    }
    if name not in makers:
        raise InvalidInput(f"learner must be one of {', '.join(LEARNERS)}, not {name!r}")
    return makers[name]()


def check_new_file(path: Path, *, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a file that could not be written, or that is read, before anything is done for it.

    >>> check_new_file(Path("no such folder/answers.csv"))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder/answers.csv cannot be written: there is no folder no such folder
    """
    try:
        if path.is_dir():
            raise InvalidInput(f"{path} cannot be written: it is a folder")
    except OSError as error:  # a name that is too long
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
    if any(read is not None and read.resolve() == path.resolve() for read in inputs):
        raise InvalidInput(f"{path} cannot be written: it is read")
    if not path.parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput(f"{path} cannot be written: permission denied")


_SHOWN = {"epsilon_spent": "epsilon spent so far, ex post"}  # it depends on the answers: privacy/PROOF.md, step 8


def show_bill(title: str, bill: dict[str, Any], *, as_json: bool) -> None:
    """Print figures: one JSON object on standard output, or a table on standard error for people.

    >>> show_bill("The bill", {"answered": 3}, as_json=True)
    {"answered": 3}
    """
    if as_json:
        print(json.dumps(bill))
        return
    table = Table(title=escape(title), show_header=False)
    for name, value in bill.items():
        if not isinstance(value, dict | list):
            shown = f"{value:,.4g}" if isinstance(value, float) else str(value)
            table.add_row(_SHOWN.get(name, name.replace("_", " ")), escape(shown))
    Console(stderr=True).print(table)


@contextmanager
def steps(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; what is yielded is called when the next of the named steps begins.

    >>> with steps(["reading", "fitting"], quiet=True) as step:
    ...     step()
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(names[0], total=len(names))
        rest = iter(names)
        started = False

        def step() -> None:
            nonlocal started
            progress.update(task, description=next(rest), advance=1 if started else 0)
            started = True

        yield step


def _check_named(records: Any, *, label: str | None, groups: str | None, leave_out: Sequence[str]) -> None:
    """Refuse options that name a column which is not there: names are public."""
    for option, names in (("--label", [label]), ("--groups", [groups]), ("--leave-out", leave_out)):
        for name in names:
            if name and name not in records.column_names:
                columns = ", ".join(repr(column) for column in records.column_names)
                raise InvalidInput(f"{option} names {name!r}, and there is no such column; the columns are {columns}")


def _check_new_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} exists and is not an empty folder: a model is never overwritten; choose another")
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise InvalidInput(f"{folder} cannot be made: {near} is no folder that can be written to")


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _bill(classifier: "PrivateClassifier", plan: Schema, folder: Path) -> dict[str, Any]:
    assert plan.label is not None
    return {
        "folder": str(folder),
        "claim": classifier.claim_,
        "epsilon": classifier.epsilon_,
        "delta": classifier.delta_,
        "privacy_unit": classifier.unit_,
        "label": plan.label.column,
        "classes": classifier.classes_.tolist(),
        "features": classifier.n_features_in_,
        "teachers": classifier.teachers_,
        "aggregator": classifier.plan_.aggregator,
        "queries_planned": classifier.queries,
        "epsilon_spent": classifier.spent_epsilon(),
        "plan": classifier.plan_.as_dict(),
    }


def _write_report(classifier: "PrivateClassifier", bill: dict[str, Any], path: Path) -> None:
    from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report

    data = ReportData(
        title="A private model",
        claim=Claim(epsilon=classifier.epsilon_, delta=classifier.delta_, unit=classifier.unit_),  # classes: declared
        plan=bill["plan"],
        results={name: bill[name] for name in ("label", "features", "queries_planned", "epsilon_spent")},
        proofs=proofs_for(bill["aggregator"]),
        software=software_versions(),
        notes=("No query has been answered yet; the plan says what to expect.",),
    )
    write_report(data, path)
