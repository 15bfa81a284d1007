"""Classes of hypotheses, and hypotheses, as plain values that JSON can hold, and back."""

from collections.abc import Mapping
from typing import Any, cast

from quorate.core.errors import InvalidInput
from quorate.models import concepts
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.saving.codecs import from_plain, to_plain

_LISTED = [value for value in map(vars(concepts).get, concepts.__all__) if isinstance(value, type)]
_OPEN = (concepts.Finite, concepts.Member)  # hold functions of their user, which no file keeps
CONCEPTS = tuple(kind for kind in _LISTED if issubclass(kind, Concept) and kind not in (Concept, *_OPEN))
HYPOTHESES = tuple(kind for kind in _LISTED if issubclass(kind, Hypothesis) and kind not in (Hypothesis, *_OPEN))


def document_of(rule: Concept | Hypothesis) -> dict[str, Any]:
    """Return a class of hypotheses, or a hypothesis, as plain values that JSON can hold."""
    classes = CONCEPTS if isinstance(rule, Concept) else HYPOTHESES
    if type(rule) not in classes:
        names = ", ".join(kind.__name__ for kind in classes)
        raise InvalidInput(f"a model of {type(rule).__name__} cannot be written to a file; {names} can")
    document: dict[str, Any] = to_plain(rule)
    return document


def concept_of(document: Mapping[str, Any]) -> Concept:
    """Return the class of hypotheses that a document describes."""
    return cast("Concept", _read(document, CONCEPTS))


def hypothesis_of(document: Mapping[str, Any]) -> Hypothesis:
    """Return the hypothesis that a document describes."""
    return cast("Hypothesis", _read(document, HYPOTHESES))


def _read(document: Mapping[str, Any], classes: tuple[type, ...]) -> Any:
    value = from_plain(document, *classes)
    if type(value) not in classes:
        raise InvalidInput(f"the manifest describes a {type(value).__name__}, which this version does not know here")
    return value
