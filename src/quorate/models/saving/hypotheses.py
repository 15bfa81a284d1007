"""Classes of hypotheses, and hypotheses, as plain values that JSON can hold, and back."""

from collections.abc import Mapping
from typing import Any

from quorate.core.errors import InvalidInput
from quorate.models import concepts
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.saving.codecs import from_plain, to_plain

_LISTED = [value for value in map(vars(concepts).get, concepts.__all__) if isinstance(value, type)]
_OPEN = (concepts.Finite, concepts.Member)  # hold functions of their user, which no file keeps
CONCEPTS = tuple(kind for kind in _LISTED if issubclass(kind, Concept) and kind not in (Concept, *_OPEN))
HYPOTHESES = tuple(kind for kind in _LISTED if issubclass(kind, Hypothesis) and kind not in (Hypothesis, *_OPEN))


def concept_document(concept: Concept) -> dict[str, Any]:
    """Return a class of hypotheses as plain values that JSON can hold."""
    return _write(concept, CONCEPTS, "a model of {} cannot be written to a file")


def concept_of(document: Mapping[str, Any]) -> Concept:
    """Return the class of hypotheses that a document describes."""
    concept: Concept = _read(document, CONCEPTS)
    return concept


def document_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return a hypothesis as plain values that JSON can hold."""
    return _write(hypothesis, HYPOTHESES, "a {} cannot be written as a document")


def hypothesis_of(document: Mapping[str, Any]) -> Hypothesis:
    """Return the hypothesis that a document describes."""
    hypothesis: Hypothesis = _read(document, HYPOTHESES)
    return hypothesis


def _write(value: Any, classes: tuple[type, ...], refusal: str) -> dict[str, Any]:
    if type(value) not in classes:
        names = ", ".join(kind.__name__ for kind in classes)
        raise InvalidInput(f"{refusal.format(type(value).__name__)}; {names} can")
    document: dict[str, Any] = to_plain(value)
    return document


def _read(document: Mapping[str, Any], classes: tuple[type, ...]) -> Any:
    value = from_plain(document, *classes)
    if type(value) not in classes:
        raise InvalidInput(f"the manifest describes a {type(value).__name__}, which this version does not know here")
    return value
