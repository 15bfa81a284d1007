"""From the tables of `quorate fit` to a fitted model: which estimator, which columns, and which arguments."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from quorate.cli.fit_methods import METHODS, Method
from quorate.cli.options import make_concept, make_learner, parse_bounds
from quorate.cli.output import check_apart, redirect_output
from quorate.cli.reading import (
    Data,
    Tables,
    charge_and_fit,
    check_label,
    describe_columns,
    read_data,
    show_learned_problems,
    show_problems,
)
from quorate.core.errors import InvalidInput
from quorate.core.progress import progress
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.linear.curves import Curve
from quorate.models.linear.model import LEARNED
from quorate.tables import Category, Date, Number, Schema, Text
from quorate.tables.columns import feature_names, unscaled
from quorate.tables.dates import moment_of
from quorate.tables.features import AdditiveColumns
from quorate.tables.files import TableStream, is_folder_or_pattern
from quorate.tables.look import Problem, add_problems, file_problems, find_problems
from quorate.tables.reading import DEFAULT_READING

TARGET_FILE = "target.txt"  # in the folder of neighbours: the column of the numbers to predict
_CHUNK = 10  # units of an everlasting teacher without a plan
_PROBES = 100  # Public points queried at the start of a phase, to show its drift.


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
    account, trusted = settings.pop("account", None), list(settings.pop("trusted", ())) or None
    is_learned = name == "linear" and tables.public is None and tables.schema is None
    with progress("reading the table"):
        estimator, data = _read(name, tables, settings, trusted, is_learned=is_learned)
    if is_learned:
        data.X = data.records.select(list(data.schema.columns))
    arguments = _constructor_arguments(estimator, data, settings)
    notes, plan = {"concept": settings["concept"]} if "concept" in settings else {}, None
    if name in ("linear", "search"):
        arguments |= linear_arguments(name, data, settings, is_learned=is_learned)
    if name == "everlasting":
        chosen, plan = _plan_everlasting(arguments, data)
        arguments |= chosen
        notes["plan"] = None if plan is None else plan.as_dict()
    model = charge_and_fit(estimator(**arguments), account, data.X, data.y, **_fit_arguments(name, estimator, data))
    if is_learned:
        show_learned_problems(model.schema_, data.records)
        notes["columns_hidden_by_noise"] = list(model.schema_.learned.notes)
    return Fitted(model, data, notes, trusted, is_learned=is_learned, plan=plan or getattr(model, "plan_", None))


def _read(
    name: str, tables: Tables, settings: dict[str, Any], trusted: list[str] | None, *, is_learned: bool
) -> tuple[Any, Data]:
    """Return the estimator that the options choose, and the data as it takes them."""
    method, classes = METHODS[name], METHODS[name].classes()
    if name == "semi-private" and tables.public is None:
        raise InvalidInput("quorate fit semi-private needs public points: add --public TABLE")
    if name not in ("student-first", "conformal"):
        estimator = _choose_estimator(method, classes, settings)
        number = name in ("linear", "neighbours") and estimator is not classes[0]
        several = name == "linear"
        return estimator, read_data(tables, number=number, several=several, is_learned=is_learned)
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
        arguments["bounds"] = parse_bounds(arguments["bounds"])
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
    except InvalidInput:  # The sample is missing or too small.
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

        with redirect_output(), closing(ClusterTable(paths, cluster)) as table:
            yield table
    elif "memory" in settings and (len(paths) > 1 or settings["memory"] or is_folder_or_pattern(paths[0])):
        yield TableStream(paths, **tables.file_settings())
    elif settings.get("spill") is not None:
        raise InvalidInput("--spill needs --memory: it is where rows wait that do not fit into memory")
    else:
        yield None


def fit_stream(name: str, stream: Any, tables: Tables, settings: dict[str, Any]) -> Fitted:
    """Fit a model while the table is read, some rows at a time. Only its header is looked at before."""
    if settings.pop("account") is not None:
        raise InvalidInput("--account takes a table that is read whole: one file, without --memory and --cluster")
    if tables.read_classes:
        raise InvalidInput("--read-classes reads a whole table first; name the --classes of one that is read once")
    reading = {"memory": settings.pop("memory"), "spill": settings.pop("spill")}
    model, data = _describe_stream(name, stream, tables, settings)
    if name == "linear":
        reading["label"] = data.label
    problems: list[Problem] = []
    is_local = isinstance(stream, TableStream)  # on a cluster no record reaches this process
    if is_local:
        stream.observe = lambda batch: problems.extend(find_problems(data.schema, batch))
    model.fit_table(stream, data.schema, public=data.public, **reading)
    if is_local:
        show_problems([*file_problems(stream.irregularities), *add_problems(problems)])
    return Fitted(model, data, is_learned=name == "linear", plan=getattr(model, "plan_", None))


def _describe_stream(name: str, stream: Any, tables: Tables, settings: dict[str, Any]) -> tuple[Any, Data]:
    """Return the unfitted model, and what is public of the table."""
    method, classes = METHODS[name], METHODS[name].classes()
    estimator = classes[0] if name == "subsample" else _choose_estimator(method, classes, settings)
    target = tables.label if estimator in classes[1:] else None
    public, schema = describe_columns(tables, stream.header, targets=[] if target is None else [target])
    if target is None:
        label = check_label(schema)
        data = Data(None, public, schema, label.column, None, list(label.classes))
    else:
        data = Data(None, public, schema, target, None)
    arguments = _constructor_arguments(estimator, data, settings)
    if name == "linear":
        arguments["columns"] = _streamed_columns(settings, schema, public)
    return estimator(**arguments), data


def _streamed_columns(settings: Mapping[str, Any], schema: Schema, public: Any) -> AdditiveColumns | None:
    """Return the columns of a linear model of a table that is read in parts; None for those of the schema alone."""
    crosses = [tuple(pair.split(":")) for pair in settings["cross"].split(",")] if settings["cross"] else None
    if crosses is not None and not all(len(pair) == 2 and {*pair} <= {*schema.columns} for pair in crosses):
        raise InvalidInput(f"--cross must be pairs of columns, as in age:sex,age:ward, got {settings['cross']!r}")
    chosen = {"cuts": settings["cuts"], "crosses": crosses, "waves": settings["waves"]}
    if chosen == {"cuts": None, "crosses": None, "waves": 0}:
        return None
    columns = AdditiveColumns() if public is not None else AdditiveColumns.from_schema(schema)
    columns.set_params(**chosen)
    return columns


def linear_arguments(name: str, data: Data, settings: Mapping[str, Any], *, is_learned: bool) -> dict[str, Any]:
    """Return the columns of a linear model, or the model and the candidates of a search."""
    if is_learned:
        if settings["cuts"] is not None or settings["cross"] or settings["waves"]:
            raise InvalidInput("--cuts, --cross and --waves need a public table (--public) or a schema (--schema)")
        if data.schema.reading != DEFAULT_READING or Text() in data.schema.columns.values():
            raise InvalidInput("--texts and --missing-texts need a public table (--public) or a schema (--schema)")
        return {"columns": LEARNED}
    columns = AdditiveColumns(declared=_declare_columns(data.schema) if data.public is None else None)
    if name == "search":
        model = PrivateLogisticRegression(columns=columns, classes=data.classes)
        return {"estimator": model, "param_grid": {"columns__cuts": _numbers(settings["cuts"])}}
    crosses = _crosses(settings["cross"], data.schema)
    return {"columns": columns.set_params(cuts=settings["cuts"], crosses=crosses, waves=settings["waves"])}


def _crosses(text: str, schema: Schema) -> list[tuple[int, ...]] | None:
    """Return the pairs of encoded columns for pairs of columns of the table."""
    if not text:
        return None
    positions: dict[str, list[int]] = {}
    for column, kind in schema.columns.items():
        first = sum(map(len, positions.values()))
        positions[column] = list(range(first, first + len(feature_names(kind, column))))
    pairs = [tuple(pair.split(":")) for pair in text.split(",")]
    if not all(len(pair) == 2 and set(pair) <= set(positions) for pair in pairs):
        raise InvalidInput(f"--cross must be pairs of columns, as in age:sex,age:ward, got {text!r}")
    return [position for pair in pairs for position in product(*(positions[column] for column in pair))]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"--cuts must be whole numbers, as in 1,4,8, got {text!r}") from None


def _declare_columns(schema: Schema) -> list[Any]:
    """Return what a schema that says how large every number may be declares of the encoded columns."""
    from quorate.tables.features.blocks import Ramps

    declarations: list[Any] = []
    for name, kind in schema.columns.items():
        flags = [Ramps(feature, (0.0, 1.0)) for feature in feature_names(kind, name)]
        if isinstance(kind, Category):
            declarations += flags
        elif isinstance(kind, Number) and kind.low is not None:
            declarations += [(-1.0, 1.0), *flags[1:]]  # what `low` and `high` become
        else:
            raise InvalidInput(
                f"the bounds of {name!r} are not known: pass public rows (--public), or a schema (--schema) with low "
                "and high for every number"
            )
    return declarations


def rename_curves(curves: tuple[Curve, ...], schema: Schema) -> tuple[Curve, ...]:
    """Return the curves with the names and the units of the table's columns."""
    features = [
        (column, name, kind if name == column else None)
        for column, kind in schema.columns.items()
        for name in feature_names(kind, column)
    ]
    renamed, first = [], 0
    for curve in curves:
        column, name, kind = features[first]
        if curve.numeric and isinstance(kind, Number):
            renamed.append(replace(curve, column=column, values=_as_in_table(kind, curve.values)))
        elif curve.numeric:  # a category by itself, or the mark of missing values: 0 or 1
            renamed.append(replace(curve, column=name))
        else:
            group = features[first : first + len(curve.values) - 1]
            columns = list(
                dict.fromkeys(name for name, _, _ in group)
            )  # more than one where no public row has two marks
            texts = [text.removeprefix(f"{column}=") if len(columns) == 1 else text for _, text, _ in group]
            renamed.append(replace(curve, column=" and ".join(columns), values=(*texts, curve.values[-1])))
        first += 1 if curve.numeric else len(curve.values) - 1
    return tuple(renamed)


def _as_in_table(kind: Number, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return encoded values as they were before they were scaled: numbers, or dates."""
    numbers = [unscaled(kind, value) for value in values]
    if isinstance(kind, Date):
        moments = [moment_of(number, kind.unit) for number in numbers]
        return tuple(numbers if None in moments else moments)
    return tuple(numbers)
