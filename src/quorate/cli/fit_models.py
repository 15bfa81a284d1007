"""From the tables of `quorate fit` to a fitted model: which estimator, and which arguments."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorate.cli.fit_methods import METHODS, Method
from quorate.cli.options import make_concept, make_learner, split_list, two_numbers
from quorate.cli.output import check_apart, printed_aside
from quorate.cli.reading import Data, Tables, charge_and_fit, check_label, describe_columns, read_data, show_problems
from quorate.core.errors import InvalidInput
from quorate.core.progress import progress
from quorate.tables.files import TableStream, is_folder_or_pattern
from quorate.tables.problems import Problem, add_problems, file_problems, find_problems

TARGET_FILE = "target.txt"  # in the folder of neighbours: the column of the numbers to predict
_CHUNK = 10  # units of an everlasting teacher without a plan
_PROBES = 100  # public points that are asked when a phase opens, and show its drift


@dataclass
class Fitted:
    """A fitted model with its data, and notes for the bill."""

    model: Any
    data: Data
    notes: dict[str, Any] = field(default_factory=dict)
    trusted: list[str] | None = None
    is_learned: bool = False  # the model has learned its own schema
    plan: Any = None


def fit_table(name: str, tables: Tables, settings: dict[str, Any]) -> Fitted:
    """Read the whole table, and fit."""
    account, trusted = settings.pop("account", None), split_list(settings.pop("trusted", "")) or None
    with progress("reading the table"):
        estimator, data = _read(name, tables, settings, trusted)
    is_learned = name == "linear" and tables.public is None and tables.schema is None
    if is_learned:
        data.X = data.records.select(list(data.schema.columns))
    arguments = _constructor_arguments(estimator, data, settings)
    notes, plan = {"concept": settings["concept"]} if "concept" in settings else {}, None
    if name in ("linear", "search"):
        from quorate.cli.fit_linear import linear_arguments

        arguments |= linear_arguments(name, data, settings, is_learned=is_learned)
    if name == "everlasting":
        chosen, plan = _plan_everlasting(arguments, data)
        arguments |= chosen
        notes["plan"] = None if plan is None else plan.as_dict()
    model = charge_and_fit(estimator(**arguments), account, data.X, data.y, **_fit_arguments(name, estimator, data))
    if is_learned:
        notes["columns_hidden_by_noise"] = list(model.schema_.learned.notes)
    return Fitted(model, data, notes, trusted, is_learned=is_learned, plan=plan or getattr(model, "plan_", None))


def _read(name: str, tables: Tables, settings: dict[str, Any], trusted: list[str] | None) -> tuple[Any, Data]:
    """Return the estimator that the options choose, and the data as it takes them."""
    method, classes = METHODS[name], METHODS[name].classes()
    if name == "semi-private" and tables.public is None:
        raise InvalidInput("quorate fit semi-private needs public points: add --public TABLE")
    if name not in ("student-first", "conformal"):
        estimator = _choose_estimator(method, classes, settings)
        number = name in ("linear", "neighbours") and estimator is not classes[0]
        return estimator, read_data(tables, number=number, several=name == "linear")
    from quorate.cli.check import check_columns, open_published, read_held_out
    from quorate.models.saving import load

    option = "student" if name == "student-first" else "model"
    folder, tables = open_published(settings[option], tables, option=f"--{option}")
    settings[option] = load(folder, trusted=trusted)
    if name == "conformal":
        classes = classes[:1] if hasattr(settings[option], "classes_") else classes[1:]
        return _choose_estimator(method, classes, settings), read_held_out(folder, settings[option], tables)
    data = read_data(tables)
    check_columns(folder, data.schema)
    return classes[0], data


def _choose_estimator(method: Method, classes: list[Any], settings: Mapping[str, Any]) -> Any:
    """Return the first estimator that has the parameters of all options with another value than their default."""
    options = [option for option in method.options() if option.name not in method.extra.split()]
    changed = {option.name for option in options if settings[option.name] != option.default}
    lacking = [changed - set(inspect.signature(estimator).parameters) for estimator in classes]
    if set() in lacking:
        return classes[lacking.index(set())]
    conflicts = sorted(f"--{name.replace('_', '-')}" for name in set.union(*lacking))
    if len(conflicts) > 1:
        raise InvalidInput(f"{' and '.join(conflicts)} do not go together: leave one out")
    raise InvalidInput(f"{conflicts[0]} does not apply to this model: leave it out")


def _constructor_arguments(estimator: Any, data: Data, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator that options and tables give."""
    parameters = inspect.signature(estimator).parameters
    arguments = {option: value for option, value in settings.items() if option in parameters}
    if data.classes is not None and "classes" in parameters:
        arguments["classes"] = data.classes
    if "bounds" in arguments:
        arguments["bounds"] = two_numbers(arguments["bounds"])
    if "records_per_person" in arguments and data.units is None:
        arguments["records_per_person"] = 1
    if "prior" in arguments:
        arguments |= _class_arguments(arguments, data)
    if "learner" in settings:
        arguments["estimator"] = make_learner(settings["learner"])
    if settings.get("concept") is not None:
        concept = make_concept(settings["concept"], data.X.shape[1])
        arguments["concept" if "concept" in parameters else "estimator"] = concept
    return arguments


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
        raise InvalidInput(
            f"--{option.replace('_', '-')} must be a number for each class, as in no=0.9,yes=0.1, got {text!r}"
        ) from None


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
        arguments: dict[str, Any] = {"groups": data.units, "one_scale": getattr(data.schema, "one_scale", False)}
    else:
        is_lasting = name == "neighbours"  # later inserts name the same people
        labels = data.public_labels
        arguments = {
            "groups": data.schema.people(data.records, lasting=True) if is_lasting else data.units,
            "public": data.points,
            "public_labels": labels,
            "public_targets": labels,
            "one_scale": data.schema.one_scale,
            "probe": None if data.points is None else data.points[:_PROBES],
        }
    parameters = inspect.signature(estimator.fit).parameters
    return {option: value for option, value in arguments.items() if option in parameters}


@contextmanager
def open_stream(paths: list[Path], tables: Tables, settings: dict[str, Any]) -> Iterator[Any]:
    """Yield a table that is read in parts, here or on a cluster, and close it; None for a table that is read whole."""
    for path in paths:
        check_apart(path, tables.public)
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


def fit_stream(stream: Any, tables: Tables, settings: dict[str, Any]) -> Fitted:
    """Fit teachers while the table is read, some rows at a time. Only its header is looked at before."""
    if settings.pop("account") is not None:
        raise InvalidInput("--account takes a table that is read whole: one file, without --memory and --cluster")
    if tables.read_classes:
        raise InvalidInput("--read-classes reads a whole table first; name the --classes of one that is read once")
    memory, spill = settings.pop("memory"), settings.pop("spill")
    public, schema = describe_columns(tables, stream.header)
    label = check_label(schema)
    data = Data(None, public, schema, label.column, None, list(label.classes))
    (estimator,) = METHODS["subsample"].classes()
    arguments = _constructor_arguments(estimator, data, settings)
    problems: list[Problem] = []
    is_local = isinstance(stream, TableStream)  # on a cluster no record reaches this process
    if is_local:
        stream.observe = lambda batch: problems.extend(find_problems(schema, batch))
    model = estimator(**arguments).fit_table(stream, schema, public=public, memory=memory, spill=spill)
    if is_local:
        show_problems([*file_problems(stream.irregularities), *add_problems(problems)])
    return Fitted(model, data, plan=model.plan_)
