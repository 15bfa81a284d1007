"""The files of teachers, and the classes of mechanisms and hypotheses that a manifest may describe."""

from importlib import import_module
from typing import Any

from quorate.compute import ensemble, learners
from quorate.core import mechanisms
from quorate.core.errors import InvalidInput
from quorate.models import concepts
from quorate.models.concepts import Concept, Hypothesis

_ENDPOINT_SETTINGS = ("urls", "labels", "features", "call_rows", "seconds")
_SITES = "quorate.service.sites.coordinator"  # stands above this room: imported only for a folder that keeps sites
MECHANISMS = (  # that count ballots
    mechanisms.BetweenThresholds,
    mechanisms.ConfidentMax,
    mechanisms.Dissent,
    mechanisms.DistributedMax,
    mechanisms.NoisyMax,
    mechanisms.NoisyShares,
    mechanisms.Quorum,
    mechanisms.SharpMajority,
    mechanisms.SoftMajority,
    mechanisms.StabilityTest,
)
_LISTED = [value for value in map(vars(concepts).get, concepts.__all__) if isinstance(value, type)]
_OPEN = (concepts.Finite, concepts.Member)  # hold functions of their user, which no file keeps
CONCEPTS = tuple(kind for kind in _LISTED if issubclass(kind, Concept) and kind not in (Concept, *_OPEN))
HYPOTHESES = tuple(kind for kind in _LISTED if issubclass(kind, Hypothesis) and kind not in (Hypothesis, *_OPEN))


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
