"""`quorate fit`: from private records to a model, with one subcommand for each method.

All methods read, fit, save, print and report in the same way. `fit_methods` has the estimator of each.
"""

import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import App, Group, Parameter
from rich.console import Console

from quorate.cli.fit_methods import METHODS, Method, options_of_method
from quorate.cli.named import make_concept, make_learner
from quorate.cli.options import listed, two_numbers
from quorate.cli.output import (
    Keys,
    answers_as_csv,
    check_apart,
    check_new_folder,
    check_report,
    printed_aside,
    show_bill,
)
from quorate.cli.reading import (
    Data,
    Tables,
    charge_and_fit,
    check_label,
    describe_columns,
    read_data,
    show_problems,
)
from quorate.cli.signatures import with_options
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.progress import progress
from quorate.models.saving import save
from quorate.tables import SCHEMA_FILE, Schema, read_table
from quorate.tables.files import TableStream, is_folder_or_pattern
from quorate.tables.problems import Problem, add_problems, file_problems, find_problems

__all__ = ["TARGET_FILE", "fit"]

ANSWERS_FILE, CLAIM_FILE = "answers.csv", "claim.json"
TARGET_FILE = "target.txt"  # in the folder of neighbours: the column of the numbers to predict
_QUERIES = 100  # of a concept method, planned for by default
_CHUNK = 10  # units of an everlasting teacher without a plan
_PROBES = 100  # public points that are asked when a phase opens, and show its drift
_FOLDS = 3  # of public rows, each judged by a model of the others
_CONCEPT_PROOFS = {
    "quorate/models/students/PROOF_CONCEPTS.md": "a hypothesis is chosen among public candidates, by counts that a unit "
    "hardly moves",
    "quorate/models/predictors/PROOF_CONCEPTS.md": "what relabelling, sampling, a stable choice and a turned label cost",
    "quorate/core/mechanisms/PROOF_exponential.md": "a choice by mistakes is epsilon-DP, and drawn exactly",
}
_FIGURES = {  # of the bill, by the attribute of a fitted model that has them
    "chosen_.why": "learner",
    "plan_.aggregator": "aggregator",
    "plan_.trial_epsilon": "trial_epsilon",
    "plan_.naive_epsilon": "naive_epsilon",
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
    json
        Print one JSON object instead of a table.
    """

    out: Path
    json: bool = False


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


@dataclass
class _Fitted:
    """A fitted model with its data, what else the bill says, and what else its folder contains."""

    model: Any
    data: Data
    notes: dict[str, Any] = field(default_factory=dict)
    trusted: list[str] | None = None
    is_learned: bool = False  # the model has learned its own schema


def __getattr__(name: str) -> Any:
    """Make the command of a method when it is called for: its estimator takes a second to import."""
    method_name = name.removeprefix("fit ")
    if method_name not in METHODS:
        raise AttributeError(name)
    method = METHODS[method_name]
    without = ("" if "memory" in method.extra.split() else "more ") + ("" if method.reports else "report")

    @with_options(options_of_method(method), without=without)
    def run(tables: Tables, *more: _MoreFiles, output: Output, report: _Report = None, **settings: Any) -> int:
        return _run(method_name, tables, more, output, report=report, settings=settings)

    return run


fit = App(name="fit", help_format="markdown")
for _name, _method in METHODS.items():
    fit.command(
        f"quorate.cli.fit:fit {_name}", name=_name, help=_method.help, sort_key=0 if _name == "subsample" else 1
    )


def _run(
    name: str, tables: Tables, more: tuple[Path, ...], output: Output, *, report: Path | None, settings: dict[str, Any]
) -> int:
    """Read the records, fit the method, answer the queries of --ask, save, and print what the model promises."""
    ask = settings.pop("ask", None)
    check_new_folder(output.out)
    check_report(report, inputs=[tables.table, tables.public, tables.schema, ask])
    with _open_stream([tables.table, *more], tables, settings) as stream:
        fitted = (
            _fit_stream(stream, tables, settings) if stream is not None else _fit_table(name, tables, settings, ask)
        )
    model, data = fitted.model, fitted.data
    answers, outcomes = (None, []) if ask is None else _ask(model, data.schema, ask)
    bill = {"folder": str(output.out), "method": name} | _bill(model, data) | fitted.notes
    if ask is not None:
        counts = Counter(outcomes)
        bill |= {"queries": len(outcomes)} | {kind: counts[kind] for kind in ("answered", "no_quorum", "refused")}
    if ask is None or name == "semi-private":
        _save(fitted, output.out)
    else:  # the answers are covered by the claim; the model would be private
        output.out.mkdir(parents=True, exist_ok=True)
        (output.out / CLAIM_FILE).write_text(json.dumps(bill, indent=1), encoding="utf-8")
    if answers is not None:
        (output.out / ANSWERS_FILE).write_text(answers, encoding="utf-8")
    if report is not None:
        _write_report(METHODS[name], fitted, bill, report)
    show_bill(f"The model in {output.out}", bill, as_json=output.json)
    if not output.json and hasattr(getattr(model, "plan_", None), "summary"):
        console = Console(stderr=True)
        console.print(model.plan_.summary())
        for sentence in getattr(model.plan_, "assumptions", ()):
            console.print(f"Assumed: {sentence}.")
    return 1 if bill.get("refused") else 0


def _save(fitted: _Fitted, out: Path) -> None:
    schema, model = fitted.data.schema, fitted.model
    extra = {} if schema is None or fitted.is_learned else {SCHEMA_FILE: schema.to_json().encode()}
    if extra and schema.label is None and hasattr(model, "session_"):
        extra[TARGET_FILE] = fitted.data.label.encode()
    save(model, out, extra=extra, trusted=fitted.trusted)
    if hasattr(model, "session_"):
        model.session_.close()  # the next command opens the folder


def _fit_table(name: str, tables: Tables, settings: dict[str, Any], ask: Path | None) -> _Fitted:
    """Read the whole table, and fit."""
    method, account = METHODS[name], settings.pop("account", None)
    trusted = listed(settings.pop("trusted", "")) or None
    classes = method.classes()
    if name == "semi-private" and tables.public is None:
        raise InvalidInput("quorate fit semi-private needs public points: add --public TABLE")
    if name in ("student-first", "conformal"):
        from quorate.cli.check import check_columns, open_published, read_held_out
        from quorate.models.saving import load

        option = "student" if name == "student-first" else "model"
        folder, tables = open_published(settings[option], tables, option=f"--{option}")
        settings[option] = load(folder, trusted=trusted)
        if name == "conformal":
            classes = classes[:1] if hasattr(settings[option], "classes_") else classes[1:]
    estimator = _choose_estimator(method, classes, settings)
    is_learned = name == "linear" and tables.public is None and tables.schema is None
    with progress("reading the table"):
        if name == "conformal":
            data = read_held_out(folder, settings["model"], tables)
        else:
            number = name in ("linear", "neighbours") and estimator is not classes[0]
            data = read_data(tables, number=number, several=name == "linear")
        if name == "student-first":
            check_columns(folder, data.schema)
        if is_learned:
            data.X = data.records.select(list(data.schema.columns))
    if settings.get("queries", 0) is None:
        settings["queries"] = _QUERIES if ask is None else max(1, len(read_table(ask, role="query")))
    arguments, notes = _constructor_arguments(name, estimator, data, settings, is_learned=is_learned)
    model = estimator(**arguments)
    charge_and_fit(model, account, data.X, data.y, **_fit_arguments(name, estimator, data))
    if "concept" in settings:
        notes["concept"] = settings["concept"]
    if is_learned:
        notes["columns_hidden_by_noise"] = list(model.schema_.learned.notes)
    elif name in ("linear", "search", "semi-private") and data.schema.label is not None:
        notes |= _compare_with_public_rows(model, data)
    return _Fitted(model, data, notes, trusted, is_learned=is_learned)


def _choose_estimator(method: Method, classes: list[Any], settings: Mapping[str, Any]) -> Any:
    """Return the first estimator that has all parameters that were given."""
    defaults = {option.name: option.default for option in options_of_method(method)}
    extra = method.extra.split()
    given = [name for name, value in settings.items() if name not in extra and value != defaults[name]]
    parameters = [inspect.signature(estimator).parameters for estimator in classes]
    for estimator, known in zip(classes, parameters, strict=True):
        if all(name in known for name in given):
            return estimator
    conflicts = [f"--{name.replace('_', '-')}" for name in given if not all(name in known for known in parameters)]
    if len(conflicts) > 1:
        raise InvalidInput(f"{' and '.join(conflicts)} do not go together: leave one out")
    raise InvalidInput(f"{conflicts[0]} does not apply to this model: leave it out")


def _constructor_arguments(
    name: str, estimator: Any, data: Data, settings: dict[str, Any], *, is_learned: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of an estimator that options and tables give, and notes for the bill."""
    parameters = inspect.signature(estimator).parameters
    arguments = {option: value for option, value in settings.items() if option in parameters}
    notes: dict[str, Any] = {}
    if data.classes is not None and "classes" in parameters:
        arguments["classes"] = data.classes
    if "bounds" in arguments:
        arguments["bounds"] = two_numbers(arguments["bounds"])
    if "rows_per_person" in arguments and data.units is None:
        arguments["rows_per_person"] = 1
    if "learner" in settings:
        arguments["estimator"] = make_learner(settings["learner"])
    if settings.get("concept") is not None:
        arguments["concept" if "concept" in parameters else "estimator"] = make_concept(
            settings["concept"], data.X.shape[1]
        )
    if "prior" in arguments:
        arguments |= _class_arguments(arguments, data)
    if name in ("linear", "search"):
        from quorate.cli.fit_linear import linear_arguments

        arguments |= linear_arguments(name, data, settings, is_learned=is_learned)
    if name == "everlasting":
        chosen, plan = _plan_everlasting(arguments, data)
        arguments |= chosen
        notes = {} if plan is None else {"expected_no_quorum": plan.no_quorum_rate, "expected_error": plan.error}
        notes["plan"] = None if plan is None else plan.as_dict()
    return arguments, notes


def _class_arguments(arguments: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """Return prior and weights of the classes: as given, or the shares of a public table that has labels."""
    labels = {str(label): label for label in data.schema.label.classes}
    chosen = {}
    for name in ("prior", "class_weight"):
        text = arguments[name]
        value = _numbers_by_class(name, text) if text and "=" in text else text
        chosen[name] = (
            {labels.get(key, key): number for key, number in value.items()} if isinstance(value, dict) else value
        )
    if chosen["class_weight"] == "none":
        chosen["class_weight"] = None
    if arguments["prior"] is None and (public := data.public_labels) is not None:
        counts = {label: max(public.tolist().count(label), 0.5) for label in labels.values()}
        chosen["prior"] = {label: count / sum(counts.values()) for label, count in counts.items()}
    return chosen


def _numbers_by_class(option: str, text: str) -> dict[str, float]:
    """Return "no=0.9,yes=0.1" as numbers by class."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    try:
        return {label.strip(): float(number) for label, _, number in pairs}
    except ValueError:
        shown = option.replace("_", "-")
        raise InvalidInput(f"--{shown} must be a number for each class, as in no=0.9,yes=0.1, got {text!r}") from None


def _plan_everlasting(arguments: Mapping[str, Any], data: Data) -> tuple[dict[str, Any], Any]:
    """Return chunk size and no-quorums, planned where they are "auto" and public data allow it, and the plan."""
    from quorate.models.everlasting.plan import CHUNKS, plan_everlasting

    chunk, no_quorums = arguments["chunk"], arguments["no_quorums"]
    chosen = {"chunk": _CHUNK if chunk == "auto" else chunk, "no_quorums": no_quorums}
    if "auto" not in (chunk, no_quorums):
        return chosen, None
    labels, epsilon = data.public_labels, arguments["epsilon"]
    epsilon = min(epsilon, arguments["query_epsilon"] or epsilon)  # some phases have no more
    count = len(data.y) if data.units is None else int(np.unique(data.units).size)
    try:
        plan = plan_everlasting(
            arguments["estimator"],
            sample=None if labels is None else (data.points, labels),
            chunks=CHUNKS if chunk == "auto" else (chunk,),
            phases=0,
            records=count,
            epsilon=epsilon,
            delta=arguments["delta"],
        )
    except InvalidInput:  # no sample, or one that is too small
        return chosen, None
    return {"chunk": plan.chunk, "no_quorums": plan.no_quorums if no_quorums == "auto" else no_quorums}, plan


def _fit_arguments(name: str, estimator: Any, data: Data) -> dict[str, Any]:
    """Return what `fit` takes beside rows and labels, as far as it does."""
    if name in ("student-first", "conformal"):  # public rows have taught the model that they correct
        known: dict[str, Any] = {"groups": data.units, "one_scale": getattr(data.schema, "one_scale", False)}
    else:
        lasting = name == "neighbours"  # later inserts name the same people
        people = data.schema.people(data.records, lasting=True) if lasting else data.units
        labels = data.public_labels
        known = {"groups": people, "public": data.points, "public_labels": labels, "public_targets": labels}
        known["one_scale"] = data.schema.one_scale
        known["probe"] = None if data.points is None else data.points[:_PROBES]
    parameters = inspect.signature(estimator.fit).parameters
    return {option: value for option, value in known.items() if option in parameters}


@contextmanager
def _open_stream(paths: list[Path], tables: Tables, settings: dict[str, Any]) -> Iterator[Any]:
    """Yield a table that is read in parts, here or on a cluster, and close it; None for a table that is read whole."""
    cluster = settings.pop("cluster", None)
    if cluster is not None:
        from quorate.compute.ensemble.clusters import ClusterTable

        with printed_aside(), closing(ClusterTable(paths, cluster)) as table:
            yield table
    elif "memory" in settings and (len(paths) > 1 or settings["memory"] or is_folder_or_pattern(paths[0])):
        yield TableStream(paths, **tables.file_settings())
    elif settings.get("spill") is not None:
        raise InvalidInput("--spill needs --memory: it is where rows wait that do not fit into memory")
    else:
        yield None


def _fit_stream(stream: Any, tables: Tables, settings: dict[str, Any]) -> _Fitted:
    """Fit teachers while the table is read, some rows at a time. Only its header is looked at before."""
    if settings.pop("account") is not None:
        raise InvalidInput("--account takes a table that is read whole: one file, without --memory and --cluster")
    if tables.read_classes:
        raise InvalidInput("--read-classes reads a whole table first; name the --classes of one that is read once")
    for path in getattr(stream, "paths", ()):
        check_apart(Path(path), tables.public)
    reading = {name: settings.pop(name) for name in ("memory", "spill")}
    public, schema = describe_columns(tables, stream.header)
    label = check_label(schema)
    data = Data(None, public, schema, label.column, None, list(label.classes))
    data.units = None
    (estimator,) = METHODS["subsample"].classes()
    arguments, _ = _constructor_arguments("subsample", estimator, data, settings, is_learned=False)
    problems: list[Problem] = []
    if isinstance(stream, TableStream):  # on a cluster no record reaches this process
        stream.observe = lambda batch: problems.extend(find_problems(schema, batch))
    model = estimator(**arguments).fit_table(stream, schema, public=public, **reading)
    if isinstance(stream, TableStream):
        show_problems([*file_problems(stream.found), *add_problems(problems)])
    return _Fitted(model, data)


def _ask(model: Any, schema: Schema, path: Path) -> tuple[str, list[str]]:
    """Answer a table of queries; return the answers as CSV, and their outcomes."""
    table = read_table(path, role="query")
    rows = schema.encode(table, role="query")
    try:
        predictions = model.predict(rows)
        labels = np.asarray(getattr(predictions, "labels", predictions)).tolist()
        outcomes = list(getattr(predictions, "outcomes", ["answered"] * len(labels)))
    except BudgetSpent:
        labels, outcomes = [None] * len(rows), ["refused"] * len(rows)
    return answers_as_csv(labels, outcomes, {}, Keys.of(table, None)), outcomes


def _bill(model: Any, data: Data) -> dict[str, Any]:
    """Return what is told of a fitted model."""
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
        from quorate.models.concepts.words import rule_text

        rule = rule_text(model.hypothesis_, model.classes_.tolist(), data.schema.condition)
        bill |= {"rule": rule, "hypothesis": repr(model.hypothesis_)}
    if hasattr(model, "progress_"):
        bill["seats_of_the_first_phase"] = model.progress_["seats"]
    bill |= _epsilons(model)
    if hasattr(getattr(model, "plan_", None), "as_dict"):
        bill["plan"] = model.plan_.as_dict()
    return bill


def _epsilons(model: Any) -> dict[str, Any]:
    """Return the guarantee in numbers, and what is spent of it."""
    if hasattr(model, "gamma"):  # stable: each answer adds to delta, and there is no epsilon
        return {"epsilon": None, "delta": model.spent_delta()}
    if hasattr(model, "cutoff_epsilon"):  # everlasting: the budget is that of a phase
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
    return min(value, sys.float_info.max) if isinstance(value, float) else value


def _compare_with_public_rows(model: Any, data: Data) -> dict[str, Any]:
    """Return the accuracy of a published model on labelled public rows, and that of these rows alone; warn if less.

    The model is released, so that this costs nothing. A row is judged by a model of other rows.
    """
    labels = data.public_labels
    if labels is None or len(set(labels.tolist())) < 2 or min(Counter(labels.tolist()).values()) < _FOLDS:
        return {}
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    right = float(np.mean(np.asarray(model.predict(data.points)) == labels))
    folds = cross_val_predict(LogisticRegression(max_iter=1000), data.points, labels, cv=_FOLDS)
    alone = float(np.mean(folds == labels))
    if alone > right + 2 * np.sqrt(alone * (1 - alone) / len(labels)):
        text = f"a logistic regression of public rows alone is right on {alone:.1%} of them, and this model on"
        print(f"quorate: {text} {right:.1%}: public rows alone would do better", file=sys.stderr)
    return {"right_on_public_rows": right, "right_by_public_rows_alone": alone}


def _write_report(method: Method, fitted: _Fitted, bill: dict[str, Any], path: Path) -> None:
    from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report

    model, curves = fitted.model, {}
    if hasattr(model, "curves_"):
        from quorate.cli.fit_linear import named_curves

        names = None if fitted.is_learned else fitted.data.schema
        two = bill["classes"][1] if len(bill.get("classes", ())) == 2 else None
        curves = {
            "curves": model.curves_ if names is None else named_curves(model.curves_, names),
            "curves_of": None if two is None else f"the log odds of {two!r}",
        }
    declared = getattr(model, "multilabel_", False) or getattr(model, "classes", ()) is not None
    proofs = _CONCEPT_PROOFS if method.proofs == "concepts" else proofs_for(method.proofs or bill.get("aggregator"))
    notes = [f"The claim in full: {bill['claim']}."]
    if method.proofs is None:
        notes.append("No query has been answered yet; the plan says what to expect.")
    if curves and model.coef_.ndim == 2 and len(model.coef_) > 1:
        notes.append("The curves are those of the first of its outputs.")
    results = {name: value for name, value in bill.items() if not isinstance(value, dict | list) and value is not None}
    data = ReportData(
        title=method.title,
        claim=Claim(
            bill["epsilon"],
            bill["delta"],
            bill["privacy_unit"],
            labels="declared" if declared else "read from y, and public",
        ),
        plan=bill.get("plan"),
        results={name: value for name, value in results.items() if name not in ("claim", "folder")},
        proofs=proofs,
        software=software_versions(),
        notes=tuple(notes),
        **curves,
    )
    write_report(data, path)
