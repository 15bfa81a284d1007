"""Classes of hypotheses, and hypotheses, as plain values that JSON can hold, and back."""

import math
from collections.abc import Mapping
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.models.concepts import (
    Box,
    Boxes,
    Concept,
    Conjunction,
    Conjunctions,
    Constant,
    Halfspace,
    Halfspaces,
    Hypothesis,
    Interval,
    Intervals,
    Stump,
    Stumps,
    Threshold,
    Thresholds,
)

__all__ = ["HYPOTHESES", "concept_document", "concept_of", "document_of", "hypothesis_of"]

HYPOTHESES: dict[str, Any] = {
    kind.__name__: kind for kind in (Box, Conjunction, Constant, Halfspace, Interval, Stump, Threshold)
}
_CONCEPTS: dict[str, Any] = {
    kind.__name__: kind for kind in (Boxes, Conjunctions, Halfspaces, Intervals, Stumps, Thresholds)
}


def concept_document(concept: Concept) -> dict[str, Any]:
    """Return a class of hypotheses as plain values that JSON can hold."""
    name = type(concept).__name__
    if _CONCEPTS.get(name) is not type(concept):
        raise InvalidInput(f"a model of {name} cannot be written to a file; {', '.join(_CONCEPTS)} can")
    return {"kind": name} | {key: _plain(getattr(concept, key)) for key in signature(type(concept)).parameters}


def concept_of(document: Mapping[str, Any]) -> Concept:
    """Return the class that a document describes."""
    values = dict(document)
    kind = _CONCEPTS.get(str(values.pop("kind", None)))
    if kind is None or set(values) != set(signature(kind).parameters):
        raise InvalidInput("the manifest describes a class of hypotheses that this version does not know")
    concept: Concept = kind(**values)
    return concept


def document_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return a hypothesis as plain values that JSON can hold."""
    name = type(hypothesis).__name__
    if HYPOTHESES.get(name) is not type(hypothesis):
        raise InvalidInput(f"a {name} cannot be written as a document; {', '.join(HYPOTHESES)} can")
    return {"kind": name} | {key: _plain(getattr(hypothesis, key)) for key in signature(type(hypothesis)).parameters}


def hypothesis_of(document: Mapping[str, Any]) -> Hypothesis:
    """Return the hypothesis that a document describes."""
    values = dict(document)
    name = str(values.pop("kind", None))
    if name not in HYPOTHESES:
        raise InvalidInput(f"the model is a hypothesis of kind {name!r}, which this version does not know")
    kind = HYPOTHESES[name]
    if set(values) != set(signature(kind).parameters):
        raise InvalidInput(f"the description of the {name} is damaged or was changed")
    hypothesis: Hypothesis = kind(**{key: _value(value) for key, value in values.items()})
    return hypothesis


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Fraction):
        return {"ratio": [str(value.numerator), str(value.denominator)]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(part) for part in value)
    if isinstance(value, dict):
        return Fraction(int(value["ratio"][0]), int(value["ratio"][1]))
    return float(value) if value in ("inf", "-inf") else value
