"""Published hypotheses as nodes of an ONNX graph: from rows of numbers to the labels 0 and 1."""

from collections.abc import Callable
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.models.concepts import Box, Conjunction, Constant, Halfspace, Hypothesis, Interval
from quorate.models.export.graph import Graph

__all__ = ["rule_nodes"]

_LARGE = 2.0**1000  # of the numbers of a halfspace, as a float has them all


def rule_nodes(graph: Graph, rows: str, rule: Hypothesis) -> str:
    """Return the labels of rows, whole numbers in a vector."""
    kind = type(rule).__name__
    if kind not in _RULES:
        raise InvalidInput(f"a {kind} cannot be exported; {', '.join(sorted(_RULES))} can")
    return _RULES[kind](graph, rows, rule)


def _constant(graph: Graph, rows: str, rule: Constant) -> str:
    first = graph.node("Mul", graph.cast(_column(graph, rows, 0, "IsNaN"), "INT64"), graph.constant(np.array([0])))
    return graph.node("Add", first, graph.constant(np.array([rule.label])))


def _column(graph: Graph, rows: str, place: int, kind: str, *numbers: float) -> str:
    """Return a comparison of one column, a vector of truth values."""
    value = graph.node("Reshape", graph.columns(rows, [place]), graph.constant(np.array([-1])))
    return graph.node(kind, value, *(graph.constant(np.array([number])) for number in numbers))


def _cut(graph: Graph, rows: str, rule: Any) -> str:
    below = _column(graph, rows, getattr(rule, "feature", 0), "Less", rule.cut)
    return graph.cast(graph.node("Not", below) if rule.upward else below, "INT64")


def _interval(graph: Graph, rows: str, rule: Interval) -> str:
    above = graph.node("Not", _column(graph, rows, 0, "Less", rule.lower))
    return graph.cast(graph.node("And", above, _column(graph, rows, 0, "Less", rule.upper)), "INT64")


def _box(graph: Graph, rows: str, rule: Box) -> str:
    outside = graph.node("Or", graph.numbers("Less", rows, rule.lower), graph.numbers("Greater", rows, rule.upper))
    return _none(graph, outside)


def _conjunction(graph: Graph, rows: str, rule: Conjunction) -> str:
    if not rule.literals:
        return _constant(graph, rows, Constant(features=rule.features, label=1))
    places, values = zip(*rule.literals, strict=True)
    return _none(graph, graph.node("Not", graph.numbers("Equal", graph.columns(rows, places), values)))


def _none(graph: Graph, failing: str) -> str:
    """Return 1 where no condition of a row fails."""
    worst = graph.node("ReduceMax", graph.cast(failing, "INT64"), graph.constant(np.array([1])), keepdims=0)
    return graph.node("Sub", graph.constant(np.array([1])), worst)


def _halfspace(graph: Graph, rows: str, rule: Halfspace) -> str:
    """Return the side of each row. One nearer to a plane than its sum is exact counts as on it: the next level says."""
    label = _constant(graph, rows, Constant(features=rule.features, label=int(rule.otherwise)))
    for normal, offset in reversed(rule.levels):
        if any(abs(value) >= _LARGE for value in (*normal, offset)):
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


_RULES: dict[str, Callable[[Graph, str, Any], str]] = {
    "Box": _box,
    "Conjunction": _conjunction,
    "Constant": _constant,
    "Halfspace": _halfspace,
    "Interval": _interval,
    "Stump": _cut,
    "Threshold": _cut,
}
