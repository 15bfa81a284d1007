"""An ONNX graph, and parts of models as its nodes: columns of linear models, hypotheses, trees and forests.

All numbers are 64-bit: a threshold of 32 bits would change labels. Columns compute what `quorate.tables.features`
computes, in the same order and with the same 64-bit numbers. Trees do without the operators that ONNX has for them,
which add up 32-bit numbers and change labels: all trees of a forest go down one level with each step. As in
scikit-learn, a row is rounded to 32 bits before it is compared with 64-bit thresholds, and the shares of trees are
added one by one.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra
from quorate.models.concepts import (
    Box,
    Conjunction,
    Constant,
    Halfspace,
    Hypothesis,
    Interval,
    Stump,
    Threshold,
)
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.blocks import Categories, Ramps, ramp_ends
from quorate.tables.features.combined import FourierFeatures, Interaction

OPSETS = {"": 18, "ai.onnx.ml": 3}
_IR_VERSION = 9  # of 2023: what runtimes of that year and later read
TREES = (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier)
_LARGEST = 2.0**1000  # number of a halfspace that a float holds with room for sums
_NO_TEXTS = (
    "columns of sentences, and hashed columns, cannot be exported: ONNX has no operator that hashes words. Ask the "
    "model where quorate is installed, or serve it"
)


def import_onnx(package: str = "onnx") -> Any:
    """Return a package of the extra `onnx`, or say how to install it."""
    return import_extra(package, "onnx", use="export to ONNX")


class Graph:
    """Nodes, constants, inputs and outputs. A value is known by its name."""

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: str, width: int) -> str:
        """Add an input of rows, "DOUBLE" or "STRING"."""
        self._inputs.append(self._value(name, kind, [None, width]))
        return name

    def output(self, name: str, value: str, kind: str, shape: list[int | None]) -> None:
        """Give a value out under a name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, kind, shape))

    def constant(self, values: Any) -> str:
        """Add an array of numbers, truth values or texts."""
        name, array = f"c{len(self._constants)}", np.asarray(values)
        array = array.astype(object) if array.dtype.kind in "US" else array
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **settings: Any) -> str:
        """Add a node with one output, and return its name."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **settings))
        return name

    def cast(self, value: str, kind: str) -> str:
        """Return a value as another type."""
        return self.node("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def columns(self, rows: str, numbers: Any) -> str:
        """Return some columns of rows."""
        return self.node("Gather", rows, self.constant(np.asarray(numbers, dtype=np.int64)), axis=1)

    def numbers(self, kind: str, value: str, numbers: Any) -> str:
        """Return a node of a value and constant 64-bit numbers."""
        return self.node(kind, value, self.constant(np.asarray(numbers, dtype=np.float64)))

    def model(self, facts: dict[str, str]) -> Any:
        """Return the model, with facts about it."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "quorate", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        file = helper.make_model(graph, opset_imports=opsets, producer_name="quorate", ir_version=_IR_VERSION)
        helper.set_model_props(file, facts)
        return file

    def _value(self, name: str, kind: str, shape: list[int | None]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, getattr(self._onnx.TensorProto, kind), shape)


def add_columns(graph: Graph, model: Any) -> str:
    """Add the inputs of a linear model and what its columns make of them; return the rows of numbers in [0, 1]."""
    columns = model.columns_
    if not isinstance(columns, AdditiveColumns):
        raise InvalidInput(_NO_TEXTS)
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
        raise InvalidInput(_NO_TEXTS)
    if model.form_ is None:
        if any(isinstance(block, Categories) for block in columns.blocks_):
            raise InvalidInput("categories in a matrix of numbers cannot be exported: fit the model on a data frame")
        rows = graph.input("X", "DOUBLE", model.n_features_in_)
        return [graph.columns(rows, [column]) for column in range(model.n_features_in_)]
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
    is_gap = graph.constant(np.isin(np.arange(len(source)), missing))
    return graph.node("Where", is_gap, graph.cast(graph.node("IsNaN", values), "DOUBLE"), rising)


def _categories(graph: Graph, block: Categories, read: str) -> str:
    other = len(block.values)
    keys = {"keys_strings": list(block.values), "values_int64s": list(range(other)), "default_int64": other}
    codes = graph.node("LabelEncoder", read, domain="ai.onnx.ml", **keys)
    flat = graph.node("Reshape", codes, graph.constant(np.array([-1])))
    return graph.node("Gather", graph.constant(np.eye(other + 1)), flat, axis=0)


def _together(graph: Graph, part: Interaction | FourierFeatures, values: Sequence[str]) -> str:
    if isinstance(part, Interaction):
        first, second = (
            _spread(graph, block, values[column])
            for block, column in zip((part.first, part.second), part.places, strict=True)
        )
        first = graph.node("Unsqueeze", first, graph.constant(np.array([2])))
        second = graph.node("Unsqueeze", second, graph.constant(np.array([1])))
        return graph.node("Flatten", graph.node("Mul", first, second), axis=1)
    terms = part.terms()
    lines = _ramps(graph, part.lines, [values[column] for column in part.places])
    steps = graph.node("Round", graph.numbers("Mul", lines, terms.scale))
    along = graph.numbers("Div", graph.numbers("MatMul", steps, terms.directions), terms.steps)
    waves = graph.node("Cos", graph.numbers("Add", along, terms.phases))
    return graph.numbers("Div", graph.numbers("Add", waves, 1.0), 2.0)


def add_rule(graph: Graph, rows: str, rule: Hypothesis) -> str:
    """Return the labels of rows, whole numbers in a vector."""
    write = _RULES.get(type(rule))
    if write is None:
        names = ", ".join(kind.__name__ for kind in _RULES)
        raise InvalidInput(f"a {type(rule).__name__} cannot be exported; {names} can")
    return write(graph, rows, rule)


def _constant(graph: Graph, rows: str, rule: Constant) -> str:
    first = graph.node(
        "Mul", graph.cast(_compare_column(graph, rows, 0, "IsNaN"), "INT64"), graph.constant(np.array([0]))
    )
    return graph.node("Add", first, graph.constant(np.array([rule.label])))


def _compare_column(graph: Graph, rows: str, column: int, kind: str, *numbers: float) -> str:
    value = graph.node("Reshape", graph.columns(rows, [column]), graph.constant(np.array([-1])))
    return graph.node(kind, value, *(graph.constant(np.array([number])) for number in numbers))


def _cut(graph: Graph, rows: str, rule: Any) -> str:
    below = _compare_column(graph, rows, getattr(rule, "feature", 0), "Less", rule.cut)
    return graph.cast(graph.node("Not", below) if rule.upward else below, "INT64")


def _interval(graph: Graph, rows: str, rule: Interval) -> str:
    above = graph.node("Not", _compare_column(graph, rows, 0, "Less", rule.lower))
    return graph.cast(graph.node("And", above, _compare_column(graph, rows, 0, "Less", rule.upper)), "INT64")


def _box(graph: Graph, rows: str, rule: Box) -> str:
    outside = graph.node("Or", graph.numbers("Less", rows, rule.lower), graph.numbers("Greater", rows, rule.upper))
    return _all_hold(graph, outside)


def _conjunction(graph: Graph, rows: str, rule: Conjunction) -> str:
    if not rule.literals:
        return _constant(graph, rows, Constant(features=rule.features, label=1))
    columns, values = zip(*rule.literals, strict=True)
    return _all_hold(graph, graph.node("Not", graph.numbers("Equal", graph.columns(rows, columns), values)))


def _all_hold(graph: Graph, failing: str) -> str:
    worst = graph.node("ReduceMax", graph.cast(failing, "INT64"), graph.constant(np.array([1])), keepdims=0)
    return graph.node("Sub", graph.constant(np.array([1])), worst)


def _halfspace(graph: Graph, rows: str, rule: Halfspace) -> str:
    """Return the side of each row. One nearer to a plane than its sum is exact counts as on it: the next level says."""
    label = _constant(graph, rows, Constant(features=rule.features, label=int(rule.otherwise)))
    for normal, offset in reversed(rule.levels):
        if any(abs(value) >= _LARGEST for value in (*normal, offset)):
            raise InvalidInput("a halfspace with numbers beyond 64-bit floats cannot be exported")
        weights = np.array([float(value) for value in normal])
        value = graph.numbers("Sub", graph.numbers("MatMul", rows, weights), float(offset))
        size = graph.numbers(
            "Add", graph.numbers("MatMul", graph.node("Abs", rows), np.abs(weights)), abs(float(offset))
        )
        error = graph.numbers("Add", graph.numbers("Mul", size, 2.0**-50 * (weights.size + 2)), 1e-300)
        side = graph.cast(graph.numbers("Greater", value, 0.0), "INT64")
        label = graph.node("Where", graph.node("Greater", graph.node("Abs", value), error), side, label)
    return label


_RULES: dict[type[Hypothesis], Callable[[Graph, str, Any], str]] = {
    Box: _box,
    Conjunction: _conjunction,
    Constant: _constant,
    Halfspace: _halfspace,
    Interval: _interval,
    Stump: _cut,
    Threshold: _cut,
}


def add_trees(graph: Graph, rows: str, model: Any) -> str:
    """Return the share of each class for each row of a tree or a forest."""
    trees = [estimator.tree_ for estimator in getattr(model, "estimators_", [model])]
    nodes = _Nodes(trees)
    rounded = graph.cast(graph.cast(rows, "FLOAT"), "DOUBLE")
    missing = graph.node("IsNaN", rounded)
    tables = {name: graph.constant(values) for name, values in vars(nodes).items() if name != "roots"}
    first = graph.node("Mul", graph.cast(graph.columns(missing, [0]), "INT64"), graph.constant(np.array([[0]])))
    node = graph.node("Add", first, graph.constant(nodes.roots))  # a node for each row and tree
    for _ in range(max(tree.max_depth for tree in trees)):
        feature, cut, lower, upper, missing_is_lower = (
            graph.node("Gather", tables[name], node) for name in ("feature", "cut", "left", "right", "lost")
        )
        value = graph.node("GatherElements", rounded, feature, axis=1)
        gone = graph.node("GatherElements", missing, feature, axis=1)
        above = graph.node("Or", gone, graph.node("Greater", value, cut))
        below = graph.node("Or", graph.node("Not", above), graph.node("And", gone, missing_is_lower))
        node = graph.node("Where", below, lower, upper)
    shares = graph.node("Gather", tables["shares"], node)
    total = ""
    for tree in range(len(trees)):
        votes = graph.node("Gather", shares, graph.constant(np.int64(tree)), axis=1)
        total = graph.node("Add", total, votes) if total else votes
    return total if len(trees) == 1 else graph.numbers("Div", total, len(trees))


class _Nodes:
    """The nodes of all trees in one list; a leaf leads to itself."""

    def __init__(self, trees: list[Any]) -> None:
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
        self.roots = starts.astype(np.int64)
        self.feature = np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int64)
        self.cut = np.concatenate([tree.threshold for tree in trees]).astype(np.float64)
        self.lost = np.concatenate([tree.missing_go_to_left for tree in trees]).astype(np.bool_)
        itself = np.arange(len(self.feature))
        leaves = np.concatenate([tree.children_left < 0 for tree in trees])
        self.left, self.right = (
            np.where(
                leaves,
                itself,
                np.concatenate([getattr(tree, name) + start for tree, start in zip(trees, starts, strict=True)]),
            )
            for name in ("children_left", "children_right")
        )
        shares = np.concatenate([tree.value[:, 0, :] for tree in trees])
        self.shares = shares / shares.sum(axis=1, keepdims=True)
