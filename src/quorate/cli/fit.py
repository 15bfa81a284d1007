"""From a table of private records to a folder that answers queries: `quorate fit subsample`."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from quorate.cli.commands.fit_options import Budget, Charged, Reading, ReportedOutput, Tables
from quorate.cli.commands.method_options import Teachers
from quorate.cli.named import make_learner
from quorate.cli.options import listed
from quorate.cli.output import check_apart, check_new_folder, check_report, printed_aside, show_bill, steps
from quorate.core.errors import InvalidInput
from quorate.tables import MISSING_TEXTS, SCHEMA_FILE, Label, Schema, read_table
from quorate.tables.containers import open_columns
from quorate.tables.csv_records import Irregularities
from quorate.tables.files import TableStream, is_folder_or_pattern
from quorate.tables.problems import OWNER_ALONE, Problem, find_problems
from quorate.tables.values import distinct_texts, read_numbers

if TYPE_CHECKING:
    from quorate.compute.ensemble.clusters import ClusterTable
    from quorate.models.predictors import PrivateClassifier

__all__ = [
    "beside_public_rows",
    "check_label",
    "check_named",
    "chosen_schema",
    "classes_of_records",
    "public_labels",
    "read_features",
    "read_private",
    "read_tables",
    "run_fit",
    "show_problems",
    "shown_model",
    "target_column",
    "told_labels",
]

_FOLDS = 3  # of public rows, each judged by a model of the others


def read_tables(tables: Tables, step: Callable[[], None]) -> tuple[Any, Any, Schema, list[Any] | None]:
    """Read the private and the public table: two steps.

    Return both, how their columns become numbers, and the classes; None in their place where they were read from the
    records, so that whoever is fitted reads them too and says so.
    """
    records, known, columns = read_features(tables, step)
    label = check_label(columns)
    return records, known, columns, None if tables.read_classes else list(label.classes)


def check_label(columns: Schema) -> Label:
    """Return the label of a schema, or say that it must be named."""
    if columns.label is None:
        raise InvalidInput("name the column with the label: --label COLUMN, or in the schema")
    return columns.label


def classes_of_records(records: Any, label: str) -> list[str]:
    """Return the labels that private records show. They are public from then on."""
    return distinct_texts(records[label])


def _classes(tables: Tables, records: Any) -> list[str] | None:
    """Return the classes as they are named, or as the records show them if that is asked for."""
    if not tables.read_classes:
        return None if tables.classes is None else listed(tables.classes)
    if tables.classes is not None or tables.label is None:
        raise InvalidInput("--read-classes reads the labels of --label COLUMN; it takes no --classes")
    return classes_of_records(records, tables.label)


def read_features(tables: Tables, step: Callable[[], None], *, targets: Sequence[str] = ()) -> tuple[Any, Any, Schema]:
    """Read the private and the public table, and say how their columns become numbers: two steps.

    `targets` are columns to predict that are not classes of one label. The schema has them among those left out.
    """
    step()
    found = Irregularities()
    records = read_private(tables, found)
    known, columns = _described(tables, records, step, targets=targets)
    problems = find_problems(columns, records, found)
    if known is None and tables.schema is None:  # nothing says what the columns hold, so that no value of them is wrong
        problems = [problem for problem in problems if problem.column not in columns.columns]
    show_problems(problems)
    return records, known, columns


def read_private(tables: Tables, found: Irregularities | None = None) -> Any:
    """Read the private table."""
    return read_table(tables.table, role="private", encoding=tables.encoding, skip_last=tables.skip_last, found=found)


def show_problems(problems: Sequence[Problem]) -> None:
    """Tell the owner all problems of the records at once, on standard error."""
    if problems:
        print("\n".join([f"quorate: {OWNER_ALONE}", *(f"  {problem}" for problem in problems)]), file=sys.stderr)


def _described(
    tables: Tables, records: Any, step: Callable[[], None], *, targets: Sequence[str] = ()
) -> tuple[Any, Schema]:
    """Read the public table, and say how the columns of these records become numbers."""
    label = None if targets else tables.label
    left_out, sentences, absent = (
        listed(text) if text else [] for text in (tables.leave_out, tables.texts, tables.missing_texts)
    )
    check_named(records, label=[label, *targets], groups=[tables.groups], leave_out=left_out, texts=sentences)
    check_apart(tables.table, tables.public)
    known = None if tables.public is None else read_table(tables.public, role="public", encoding=tables.encoding)
    step()
    columns = chosen_schema(
        records,
        known,
        tables.schema,
        label=label,
        classes=None if targets else _classes(tables, records),
        groups=tables.groups,
        leave_out=list(dict.fromkeys([*left_out, *targets])),
        texts=sentences,
        missing_texts=absent,
    )
    return known, columns.with_gaps() if tables.gaps else columns


def target_column(records: Any, name: str) -> Any:
    """Return a column of private numbers to predict, each read by itself: what is no number is nan."""
    return read_numbers(open_columns(records, [name], whose="the private records")[name])


def run_fit(
    tables: Tables,
    budget: Budget,
    teachers: Teachers,
    output: ReportedOutput,
    *,
    charged: Charged = Charged(),  # noqa: B008  frozen
    more: Sequence[Path] = (),
    reading: Reading = Reading(),  # noqa: B008  frozen
) -> int:
    """Read the records, fit the teachers, write the model, and print what it promises. Nothing is answered yet.

    A table of several files, or with a bound on memory, is read as a stream.
    """
    check_new_folder(output.out)
    check_report(output.report, inputs=[tables.table, tables.public, tables.schema])
    for private in more:
        check_apart(private, tables.public)
    progress = steps(["reading", "encoding", "fitting", "saving"], quiet=output.json)
    with progress as step, _opened([tables.table, *more], reading, tables) as stream:
        from quorate.models.saving import save

        make = partial(_classifier, budget, teachers)
        if stream is None:
            classifier, columns = _fitted_in_memory(tables, make, step, charged)
        elif charged.account is not None:
            raise InvalidInput("--account takes a table that is read whole: one file, without --memory and --cluster")
        else:
            classifier, columns = _fitted_from_stream(stream, reading, tables, make, step)
        step()
        save(classifier, output.out, extra={SCHEMA_FILE: columns.to_json().encode()})
    bill = _bill(classifier, columns, output.out)
    if output.report is not None:
        _write_report(classifier, bill, output.report)
    show_bill(f"The model in {output.out}", bill, as_json=output.json)
    if not output.json:
        console = Console(stderr=True)
        console.print(classifier.plan_.summary())
        for sentence in classifier.plan_.assumptions:
            console.print(f"Assumed: {sentence}.")
    return 0


@contextmanager
def _opened(paths: Sequence[Path], reading: Reading, tables: Tables) -> Iterator["TableStream | ClusterTable | None"]:
    """Give a table that is read in parts, here or on a cluster, which is let go of at the end; None for any other."""
    if reading.cluster is not None:
        from quorate.compute.ensemble.clusters import ClusterTable

        with printed_aside(), closing(ClusterTable(paths, reading.cluster)) as table:
            yield table
    elif len(paths) > 1 or reading.memory is not None or is_folder_or_pattern(paths[0]):
        yield TableStream(paths, encoding=tables.encoding, skip_last=tables.skip_last)
    elif reading.spill is not None:
        raise InvalidInput("--spill says where rows wait that do not fit into memory: give --memory too")
    else:
        yield None


def _fitted_in_memory(
    tables: Tables, make: Callable[..., "PrivateClassifier"], step: Callable[[], None], charged: Charged
) -> tuple["PrivateClassifier", Schema]:
    """Read the whole table, and fit."""
    records, known, columns, declared = read_tables(tables, step)
    encoded, labels, units = columns.encode(records), columns.labels(records), columns.units(records)
    points = None if known is None else columns.encode(known, role="public")
    step()
    classifier = make(columns, known, declared)
    guides = {"public": points, "public_labels": public_labels(columns, known)}
    options = {"groups": units, "one_scale": columns.one_scale, **guides}
    return charged.fit(classifier, encoded, labels, **options), columns


def _fitted_from_stream(
    stream: "TableStream | ClusterTable",
    reading: Reading,
    tables: Tables,
    make: Callable[..., "PrivateClassifier"],
    step: Callable[[], None],
) -> tuple["PrivateClassifier", Schema]:
    """Fit while the table is read, some rows at a time. Only its header is looked at before."""
    if tables.read_classes:
        raise InvalidInput("--read-classes reads a whole table first; name the --classes of one that is read once")
    step()
    known, columns = _described(tables, stream.header, step)
    label = check_label(columns)
    step()
    classifier = make(columns, known, list(label.classes))
    made = classifier.fit_table(stream, columns, public=known, memory=reading.memory, spill=reading.spill)
    return made, columns


def _classifier(budget: Budget, teachers: Teachers, columns: Schema, known: Any, declared: Any) -> "PrivateClassifier":
    from quorate.models.predictors import PrivateClassifier

    settings = vars(budget) | vars(teachers) | _declared_of_classes(teachers, columns, known)
    learner, jobs = make_learner(settings.pop("learner")), settings.pop("jobs")
    return PrivateClassifier(learner, classes=declared, n_jobs=jobs, **settings)


def _declared_of_classes(teachers: Teachers, columns: Schema, public: Any) -> dict[str, Any]:
    """Return the prior and the weights of the classes: as given, or the shares of a public table that has labels."""
    prior, weight = (
        _numbers_by_class("--prior", teachers.prior),
        _numbers_by_class("--class-weight", teachers.class_weight),
    )
    assert columns.label is not None
    labels = {str(label): label for label in np.asarray(columns.label.classes).tolist()}
    weight = None if weight == "none" else weight
    given = {
        name: {labels.get(text, text): number for text, number in value.items()} if isinstance(value, dict) else value
        for name, value in (("prior", prior), ("class_weight", weight))
    }
    labelled = public_labels(columns, public)
    if prior is None and labelled is not None:
        known = labelled.tolist()
        counts = {label: max(known.count(label), 0.5) for label in labels.values()}
        given["prior"] = {label: count / sum(counts.values()) for label, count in counts.items()}
    return given


def public_labels(columns: Schema, public: Any) -> Any:
    """Return the labels of the public table; None where it has none."""
    assert columns.label is not None
    shown = public is not None and columns.label.column in public.column_names
    return columns.labels(public, role="public") if shown else None


def beside_public_rows(model: Any, points: Any, columns: Schema, public: Any) -> dict[str, Any]:
    """Return how often a published model is right on labelled public rows, and one of these rows alone; say if less.

    The model is released, so that this costs nothing. A row is judged by a model of other rows.
    """
    labels = public_labels(columns, public)
    if labels is None or min(Counter(labels.tolist()).values()) < _FOLDS or len(set(labels.tolist())) < 2:
        return {}
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    right = float(np.mean(np.asarray(model.predict(points)) == labels))
    alone = float(np.mean(cross_val_predict(LogisticRegression(max_iter=1000), points, labels, cv=_FOLDS) == labels))
    if alone > right + 2 * np.sqrt(alone * (1 - alone) / len(labels)):
        text = (
            f"a logistic regression of public rows alone is right on {alone:.1%} of them, and this model on {right:.1%}"
        )
        print(f"quorate: {text}: public rows alone would do better", file=sys.stderr)
    return {"right_on_public_rows": right, "right_by_public_rows_alone": alone}


def _numbers_by_class(option: str, text: str | None) -> Any:
    """Return a word as it is, and "no=0.9,yes=0.1" as numbers by class."""
    if text is None or "=" not in text:
        return text
    pairs = [part.rpartition("=") for part in text.split(",")]
    try:
        return {label.strip(): float(number) for label, _, number in pairs}
    except ValueError:
        raise InvalidInput(f"{option} takes a number for each class, as in no=0.9,yes=0.1, not {text!r}") from None


def chosen_schema(
    records: Any,
    public: Any,
    schema: Path | None,
    *,
    label: str | None,
    classes: Sequence[str] | None,
    groups: str | None = None,
    leave_out: Sequence[str] = (),
    texts: Sequence[str] = (),
    missing_texts: Sequence[str] = (),
) -> Schema:
    """Return the schema that is written, or learned from the public table, or else made of the header alone."""
    gaps = (*MISSING_TEXTS, *missing_texts)
    if schema is None:
        known, make = (records, Schema.numbers) if public is None else (public, Schema.from_public)
        named: dict[str, Any] = {"leave_out": leave_out, "texts": texts, "missing_texts": gaps}
        return make(known, label=label, classes=classes, groups=groups, **named)
    written = Schema.load(schema).without(leave_out).with_texts(texts).with_missing_texts(missing_texts)
    if groups is not None:
        written = written.with_groups(groups)
    if label is not None or classes is not None:
        column = label if label is not None else written.label.column if written.label is not None else None
        if column is None:
            raise InvalidInput("--classes says what the label may be, but not where it is: add --label COLUMN")
        written = written.with_label(column, classes)
    return written


def check_named(records: Any, **named: Sequence[str | None]) -> None:
    """Refuse options that name columns which are not there, all at once: names are public."""
    wrong = [
        f"--{option.replace('_', '-')} names {name!r}, and there is no such column"
        for option, names in named.items()
        for name in names
        if name and name not in records.column_names
    ]
    if wrong:
        columns = ", ".join(repr(column) for column in records.column_names)
        raise InvalidInput(f"{'; '.join(wrong)}; the columns are {columns}")


def _bill(classifier: "PrivateClassifier", plan: Schema, folder: Path) -> dict[str, Any]:
    shown = shown_model(classifier, plan, folder)
    chosen = {} if classifier.chosen_ is None else {"learner": classifier.chosen_.why}
    return shown | chosen | {"aggregator": classifier.plan_.aggregator, "plan": classifier.plan_.as_dict()}


def shown_model(classifier: "PrivateClassifier", plan: Schema, folder: Path) -> dict[str, Any]:
    """Return what is told of a model that was fitted into a folder."""
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
        "queries_planned": classifier.queries,
        "epsilon_spent": classifier.spent_epsilon(),
    }


def told_labels(model: Any) -> str:
    """Return for a report where the set of labels is from."""
    declared = getattr(model, "multilabel_", False) or getattr(model, "classes", ()) is not None
    return "declared" if declared else "read from y, and public"


def _write_report(classifier: "PrivateClassifier", bill: dict[str, Any], path: Path) -> None:
    from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report

    data = ReportData(
        title="A private model",
        claim=Claim(classifier.epsilon_, classifier.delta_, classifier.unit_, labels=told_labels(classifier)),
        plan=bill["plan"],
        results={name: bill[name] for name in ("label", "features", "queries_planned", "epsilon_spent")},
        proofs=proofs_for(bill["aggregator"]),
        software=software_versions(),
        notes=("No query has been answered yet; the plan says what to expect.",),
    )
    write_report(data, path)
