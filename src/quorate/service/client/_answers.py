"""The answers to all rows of a call: as labels, as columns, and as a data frame of the same library as the queries."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quorate.models.predictors import Predictions
from quorate.tables.results import make_frame

_ANSWER = ("label", "value", "labels", "answer")  # the output that is the answer, by the kind of the model
_LISTED = "set"  # the output that holds a JSON list a row
_REFUSED = -2


class Answers:
    """Rows of outputs, in the order of the queries. Whole requests may have been refused: their rows are None.

    >>> model = {"parameters": {"classes": ["no", "yes"]}}
    >>> answers = Answers(3, model)
    >>> answers.fill(0, {"label": ["yes", ""], "index": [1, -1], "outcome": ["answered", "no_quorum"]})
    >>> answers.columns()
    {'answer': ['yes', None, None], 'outcome': ['answered', 'no_quorum', 'refused']}
    """

    def __init__(self, rows: int, model: Mapping[str, Any]) -> None:
        self._rows, self._classes = rows, list(model.get("parameters", {}).get("classes") or ())
        self._texts = [str(label) for label in self._classes]
        self._outputs: dict[str, list[Any]] = {}
        self._filled = [False] * rows

    def knows(self, outputs: Mapping[str, list[Any]]) -> bool:
        """Return whether each label matches the class of its index; a mismatch means that the model was replaced."""
        pairs = zip(outputs.get("index", ()), outputs.get("label", ()), strict=False)
        return all(index < 0 or self._texts[index : index + 1] == [str(label)] for index, label in pairs)

    def fill(self, start: int, outputs: Mapping[str, list[Any]]) -> None:
        """Take the outputs of the rows from `start` on."""
        for name, values in outputs.items():
            self._outputs.setdefault(name, [None] * self._rows)[start : start + len(values)] = values
            self._filled[start : start + len(values)] = [True] * len(values)

    @property
    def outcomes(self) -> list[str]:
        """What became of each query: answered, no_quorum or refused."""
        outcomes = self._outputs.get("outcome") or [None] * self._rows
        rows = zip(outcomes, self._filled, strict=True)
        return [(outcome or "answered") if filled else "refused" for outcome, filled in rows]

    def columns(self) -> dict[str, list[Any]]:
        """Return the answer and the outcome of each query, and the model's other outputs, None where not answered."""
        outcomes = self.outcomes
        answers = next((self._outputs[name] for name in _ANSWER if name in self._outputs), [None] * self._rows)
        columns = {"answer": _where_answered(answers, outcomes), "outcome": outcomes}
        for name, values in self._outputs.items():
            if name not in (*_ANSWER, "index", "outcome"):
                columns |= self._expand(name, _where_answered(values, outcomes))
        return columns

    def _expand(self, name: str, values: list[Any]) -> dict[str, list[Any]]:
        if name == _LISTED:
            return {name: [None if text is None else json.loads(text) for text in values]}
        if name != "scores":
            return {name: values}
        width = next((len(row) for row in values if row is not None), 0)
        classes = self._classes if len(self._classes) == width else range(width)
        columns = zip(*([None] * width if row is None else row for row in values), strict=True)
        return {f"score_{label}": list(column) for label, column in zip(classes, columns, strict=True)}

    def predictions(self) -> Any:
        """Return `Predictions` of a classifier, or the answers of another model as an array with nan for no answer.

        `spent` is None, because only the owner may see the cost of the queries.
        """
        if "index" not in self._outputs:
            return np.array([np.nan if answer is None else answer for answer in self.columns()["answer"]])
        codes = np.array([_REFUSED if code is None else code for code in self._outputs["index"]], dtype=np.int64)
        scores = None
        if "scores" in self._outputs:
            no_scores = [0.0] * len(self._classes)
            scores = np.array([no_scores if row is None else row for row in self._outputs["scores"]])
        classes, refused = np.array(self._classes), codes == _REFUSED
        return replace(
            Predictions.of(np.maximum(codes, -1), classes=classes, refused=refused, scores=scores), spent=None
        )

    def frame_like(self, X: Any) -> Any:
        """Return the columns as a frame of the library that the queries came in, with the index of a pandas frame.

        Queries that were no data frame get an Arrow table.
        """
        columns = self.columns()
        if hasattr(X, "iloc"):
            return make_frame(columns, "pandas", index=X.index)
        return make_frame(columns, "polars" if hasattr(X, "get_column") else "arrow")


def _where_answered(values: list[Any], outcomes: list[str]) -> list[Any]:
    rows = zip(values, outcomes, strict=True)
    return [value if outcome == "answered" else None for value, outcome in rows]
