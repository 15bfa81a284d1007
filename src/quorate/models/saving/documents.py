"""Parts of a model as plain values that JSON can hold, and back: teachers, mechanisms, hypotheses and their classes."""

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from quorate.compute import ensemble, learners
from quorate.core import mechanisms
from quorate.core.errors import InvalidInput
from quorate.models import concepts
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.saving.codecs import from_plain, to_plain

_ENDPOINT_SETTINGS = ("urls", "labels", "features", "call_rows", "seconds")
_SITES = "quorate.service.sites.coordinator"  # stands above this room: imported only for a folder that keeps sites
MECHANISMS = (  # that count ballots
    "BetweenThresholds",
    "ConfidentMax",
    "Dissent",
    "DistributedMax",
    "NoisyMax",
    "NoisyShares",
    "Quorum",
    "SharpMajority",
    "SoftMajority",
    "StabilityTest",
)


def mechanism_document(mechanism: Any) -> dict[str, Any]:
    """Return a mechanism as plain values."""
    return {"name": type(mechanism).__name__} | {part.name: getattr(mechanism, part.name) for part in fields(mechanism)}


def mechanism_of(document: Mapping[str, Any]) -> Any:
    """Return the mechanism that a document describes."""
    values = dict(document)
    name = values.pop("name")
    if name not in MECHANISMS:
        raise InvalidInput(f"the model is counted by {name!r}, which this version does not know")
    if name == "SoftMajority":
        return mechanisms.SoftMajority(teachers=values["teachers"], epsilon=values["epsilon_per_query"])
    if "table" in values:
        values["table"] = tuple(values["table"])
    return getattr(mechanisms, name)(**values)


def put_teachers(state: Any, teachers: "ensemble.Electorate") -> None:
    """Keep fitted teachers: plain arrays if they were fitted as one, addresses of those elsewhere, or estimators.

    Functions are code, which no file keeps, and an electorate that stands elsewhere is not ours to keep. Teachers on a
    cluster are brought here.
    """
    if isinstance(teachers, ensemble.ClusterTeachers):
        teachers = teachers.gathered()
    if isinstance(teachers, ensemble.EndpointTeachers):
        state.put_document("teachers", {name: getattr(teachers, name) for name in _ENDPOINT_SETTINGS})
    elif hasattr(teachers, "document"):  # sites of a federation: where they are, and the keys by which they are asked
        state.put_document("sites", teachers.document())
    elif isinstance(teachers, learners.Teachers):
        state.put_arrays("teachers", **teachers.arrays())
    elif isinstance(teachers, ensemble.EstimatorTeachers) and not isinstance(teachers, ensemble.FunctionTeachers):
        models, majorities = zip(*teachers.fitted, strict=True)
        parts = {"models": list(models), "majorities": list(majorities), "classes": teachers.classes}
        state.put_estimator("teachers", parts)
    else:
        raise InvalidInput(
            f"a model of {type(teachers).__name__} cannot be written to a file: its teachers were brought, and live in "
            "this program. Bring models on servers by their addresses, or open the model anew where it is needed; each "
            "opening has a budget of its own"
        )


def read_teachers(state: Any) -> "ensemble.Electorate":
    """Return the teachers that `put_teachers` kept."""
    if "teachers.npz" in state:
        return learners.teachers_from_arrays(state.arrays("teachers"))
    if "teachers.skops" in state:
        parts = state.estimator("teachers")
        fitted = list(zip(parts["models"], parts["majorities"], strict=True))
        return ensemble.EstimatorTeachers(fitted, classes=parts["classes"])
    if "teachers.json" in state:
        document = state.document("teachers")
        return ensemble.EndpointTeachers(document.pop("urls"), **document)
    sites: ensemble.Electorate = import_module(_SITES).Sites.from_document(state.document("sites"))
    return sites


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
