"""Columns and curves of the linear models of `quorate fit`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from quorate.cli.reading import Data
from quorate.core.errors import InvalidInput
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.linear.model import LEARNED
from quorate.tables import Category, Date, Number, Schema, Text
from quorate.tables.columns import feature_names, unscaled
from quorate.tables.dates import moment_of
from quorate.tables.features import AdditiveColumns
from quorate.tables.reading import DEFAULT_READING

if TYPE_CHECKING:
    from quorate.models.linear.curves import Curve


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
    """Return the pairs of encoded columns that stand for pairs of columns of the table."""
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


def named_curves(curves: tuple["Curve", ...], schema: Schema) -> tuple["Curve", ...]:
    """Return the curves with the names of the table's columns, and numbers as they stand in the table."""
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
