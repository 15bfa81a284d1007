"""Classes of hypotheses, and hypotheses, as plain values that JSON can hold, and back."""

import math
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.models import concepts
from quorate.models.concepts import Concept, Hypothesis

__all__ = ["HYPOTHESES", "concept_document", "concept_of", "document_of", "hypothesis_of"]

HYPOTHESES = ("Box", "Conjunction", "Constant", "Halfspace", "Interval", "Stump", "Threshold")
_CONCEPTS = {  # by their settings
    "Boxes": ("features",),
    "Conjunctions": ("categories",),
    "Halfspaces": ("features",),
    "Intervals": (),
    "Stumps": ("features", "binary"),
    "Thresholds": ("both_directions",),
}


def concept_document(concept: Concept) -> dict[str, Any]:
    """Return a class of hypotheses as plain values that JSON can hold."""
    name = type(concept).__name__
    if name not in _CONCEPTS or type(concept) is not getattr(concepts, name):
        raise InvalidInput(f"a model of {name} cannot be written to a file; {', '.join(_CONCEPTS)} can")
    return {"kind": name} | {key: _plain(getattr(concept, key)) for key in _CONCEPTS[name]}


def concept_of(document: dict[str, Any]) -> Concept:
    """Return the class that a document describes."""
    values = dict(document)
    name = values.pop("kind", None)
    if name not in _CONCEPTS or set(values) != set(_CONCEPTS[name]):
        raise InvalidInput("the manifest describes a class of hypotheses that this version does not know")
    concept: Concept = getattr(concepts, name)(**values)
    return concept


def document_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return a hypothesis as plain values that JSON can hold."""
    name = type(hypothesis).__name__
    if name not in HYPOTHESES or type(hypothesis) is not getattr(concepts, name):
        raise InvalidInput(f"a {name} cannot be written as a document; {', '.join(HYPOTHESES)} can")
    values = {part.name: _plain(getattr(hypothesis, part.name)) for part in fields(hypothesis) if part.init}  # type: ignore[arg-type]
    return {"kind": name, **values}


def hypothesis_of(document: dict[str, Any]) -> Hypothesis:
    """Return the hypothesis that a document describes."""
    values = dict(document)
    name = values.pop("kind", None)
    if name not in HYPOTHESES:
        raise InvalidInput(f"the model is a hypothesis of kind {name!r}, which this version does not know")
    kind = getattr(concepts, name)
    if set(values) != {part.name for part in fields(kind) if part.init}:
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
