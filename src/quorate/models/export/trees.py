"""Decision trees and forests of scikit-learn as nodes of an ONNX graph, which say the same label for every row.

The operators that ONNX has for trees add up 32-bit numbers, which changes labels. Here all trees of a forest go down
one level with each step. As in scikit-learn, a row is rounded to 32 bits before it is compared with 64-bit thresholds,
and the shares of trees are added one by one.
"""

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from quorate.models.export.graph import Graph

__all__ = ["TREES", "tree_shares"]

TREES = (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier)


def tree_shares(graph: Graph, rows: str, model: Any) -> str:
    """Return the share of each class for each row."""
    trees = [one.tree_ for one in getattr(model, "estimators_", [model])]
    nodes = _Nodes(trees)
    rounded = graph.cast(graph.cast(rows, "FLOAT"), "DOUBLE")
    missing = graph.node("IsNaN", rounded)
    tables = {name: graph.constant(values) for name, values in vars(nodes).items() if name != "roots"}
    first = graph.node("Mul", graph.cast(graph.columns(missing, [0]), "INT64"), graph.constant(np.array([[0]])))
    place = graph.node("Add", first, graph.constant(nodes.roots))  # a node for each row and tree
    for _ in range(max(tree.max_depth for tree in trees)):
        feature, cut, left, right, lost = (
            graph.node("Gather", tables[name], place) for name in ("feature", "cut", "left", "right", "lost")
        )
        value = graph.node("GatherElements", rounded, feature, axis=1)
        gone = graph.node("GatherElements", missing, feature, axis=1)
        above = graph.node("Or", gone, graph.node("Greater", value, cut))
        below = graph.node("Or", graph.node("Not", above), graph.node("And", gone, lost))
        place = graph.node("Where", below, left, right)
    shares = graph.node("Gather", tables["shares"], place)
    total = ""
    for tree in range(len(trees)):
        one = graph.node("Gather", shares, graph.constant(np.int64(tree)), axis=1)
        total = graph.node("Add", total, one) if total else one
    return total if len(trees) == 1 else graph.numbers("Div", total, len(trees))


class _Nodes:
    """The nodes of all trees in one list; a leaf leads to itself."""

    def __init__(self, trees: list[Any]) -> None:
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
        self.roots = starts.astype(np.int64)
        self.feature = np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int64)
        self.cut = np.concatenate([tree.threshold for tree in trees]).astype(np.float64)
        self.lost = np.concatenate([tree.missing_go_to_left for tree in trees]).astype(np.bool_)
        own = np.arange(len(self.feature))
        ends = np.concatenate([tree.children_left < 0 for tree in trees])
        self.left, self.right = (
            np.where(
                ends,
                own,
                np.concatenate([getattr(tree, name) + start for tree, start in zip(trees, starts, strict=True)]),
            )
            for name in ("children_left", "children_right")
        )
        shares = np.concatenate([tree.value[:, 0, :] for tree in trees])
        self.shares = shares / shares.sum(axis=1, keepdims=True)
