"""The columns of a linear model as nodes of an ONNX graph: ramps, categories, their products, and waves.

Each node computes what `quorate.tables.features` computes, in the same order and with the same 64-bit numbers.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.models.export.graph import Graph
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.blocks import Categories, Ramps, ramp_ends
from quorate.tables.features.crosses import Cross
from quorate.tables.features.waves import Waves

__all__ = ["encoded_columns"]

_TEXTS = (
    "columns of sentences, and hashed columns, cannot be exported: ONNX has no operator that hashes words. Ask the "
    "model where quorate is installed, or serve it"
)


def encoded_columns(graph: Graph, model: Any) -> str:
    """Add the inputs of a linear model and what its columns make of them; return the rows of numbers in [0, 1]."""
    columns = model.columns_
    if not isinstance(columns, AdditiveColumns):
        raise InvalidInput(_TEXTS)
    values = _inputs(graph, model, columns)
    parts = []
    for ramps, run in groupby(zip(columns.blocks_, values, strict=True), key=lambda pair: isinstance(pair[0], Ramps)):
        blocks, read = zip(*run, strict=True)
        if ramps:
            parts.append(_ramps(graph, blocks, read))
        else:
            parts += [_categories(graph, block, column) for block, column in zip(blocks, read, strict=True)]
    parts += [_together(graph, part, values) for part in columns.together_]
    return graph.node("Concat", *parts, axis=1)


def _inputs(graph: Graph, model: Any, columns: AdditiveColumns) -> list[str]:
    """Add one matrix, or an input for each column of a frame; return each column as its block reads it."""
    if not all(isinstance(block, Ramps | Categories) for block in columns.blocks_):
        raise InvalidInput(_TEXTS)
    if model.form_ is None:
        if any(isinstance(block, Categories) for block in columns.blocks_):
            raise InvalidInput("categories in a matrix of numbers cannot be exported: fit the model on a data frame")
        rows = graph.input("X", "DOUBLE", model.n_features_in_)
        return [graph.columns(rows, [place]) for place in range(model.n_features_in_)]
    kinds = ["DOUBLE" if isinstance(block, Ramps) else "STRING" for block in columns.blocks_]
    return [graph.input(str(name), kind, 1) for name, kind in zip(columns.names_, kinds, strict=True)]


def _spread(graph: Graph, block: Any, read: str) -> str:
    return _ramps(graph, (block,), (read,)) if isinstance(block, Ramps) else _categories(graph, block, read)


def _ramps(graph: Graph, blocks: Sequence[Ramps], read: Sequence[str]) -> str:
    """Return what `spread_ramps` does."""
    low, high, source, missing = ramp_ends(tuple(blocks))
    values = graph.columns(graph.node("Concat", *read, axis=1), source)
    rising = graph.numbers("Div", graph.numbers("Sub", values, low), high - low)
    zeros = graph.constant(np.zeros(1))
    rising = graph.node("Where", graph.node("IsNaN", rising), zeros, rising)
    rising = graph.node("Clip", rising, graph.constant(np.float64(0)), graph.constant(np.float64(1)))
    if not missing.size:
        return rising
    says = graph.constant(np.isin(np.arange(len(source)), missing))
    return graph.node("Where", says, graph.cast(graph.node("IsNaN", values), "DOUBLE"), rising)


def _categories(graph: Graph, block: Categories, read: str) -> str:
    """Return a 0/1 number for each category, and one for every other text."""
    other = len(block.values)
    keys = {"keys_strings": list(block.values), "values_int64s": list(range(other)), "default_int64": other}
    places = graph.node("LabelEncoder", read, domain="ai.onnx.ml", **keys)
    flat = graph.node("Reshape", places, graph.constant(np.array([-1])))
    return graph.node("Gather", graph.constant(np.eye(other + 1)), flat, axis=0)


def _together(graph: Graph, part: Cross | Waves, values: Sequence[str]) -> str:
    if isinstance(part, Cross):
        first, second = (
            _spread(graph, block, values[place])
            for block, place in zip((part.first, part.second), part.places, strict=True)
        )
        first = graph.node("Unsqueeze", first, graph.constant(np.array([2])))
        second = graph.node("Unsqueeze", second, graph.constant(np.array([1])))
        return graph.node("Flatten", graph.node("Mul", first, second), axis=1)
    terms = part.terms()
    lines = _ramps(graph, part.lines, [values[place] for place in part.places])
    whole = graph.node("Round", graph.numbers("Mul", lines, terms.scale))
    along = graph.numbers("Div", graph.numbers("MatMul", whole, terms.directions), terms.steps)
    waves = graph.node("Cos", graph.numbers("Add", along, terms.phases))
    return graph.numbers("Div", graph.numbers("Add", waves, 1.0), 2.0)
