"""The teachers of a vote as a part of a model's state: arrays, estimators, or the addresses of those elsewhere."""

from importlib import import_module

from quorate.compute.ensemble import Electorate
from quorate.compute.ensemble.clusters import ClusterTeachers
from quorate.compute.ensemble.electorate import FunctionTeachers
from quorate.compute.ensemble.endpoints import EndpointTeachers
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.compute.learners import Teachers, teachers_from_arrays
from quorate.core.errors import InvalidInput
from quorate.models.saving.contract import State

__all__ = ["put_teachers", "read_teachers"]

_ENDPOINT_SETTINGS = ("urls", "labels", "features", "call_rows", "seconds")


def put_teachers(state: State, teachers: Electorate) -> None:
    """Keep fitted teachers: plain arrays if they were fitted as one, addresses of those elsewhere, or estimators.

    Functions are code, which no file keeps, and an electorate that stands elsewhere is not ours to keep. Teachers on a
    cluster are brought here.
    """
    if isinstance(teachers, ClusterTeachers):
        teachers = teachers.gathered()
    if isinstance(teachers, EndpointTeachers):
        state.put_document("teachers", {name: getattr(teachers, name) for name in _ENDPOINT_SETTINGS})
    elif hasattr(teachers, "document"):  # sites of a federation: where they are, and the keys by which they are asked
        state.put_document("sites", teachers.document())
    elif isinstance(teachers, Teachers):
        state.put_arrays("teachers", **teachers.arrays())
    elif isinstance(teachers, EstimatorTeachers) and not isinstance(teachers, FunctionTeachers):
        models, majorities = zip(*teachers.fitted, strict=True)
        parts = {"models": list(models), "majorities": list(majorities), "classes": teachers.classes}
        state.put_estimator("teachers", parts)
    else:
        raise InvalidInput(
            f"a model of {type(teachers).__name__} cannot be written to a file: its teachers were brought, and live in "
            "this program. Bring models on servers by their addresses, or open the model anew where it is needed; each "
            "opening has a budget of its own"
        )


def read_teachers(state: State) -> Electorate:
    """Return the teachers that `put_teachers` kept."""
    if "teachers.npz" in state:
        return teachers_from_arrays(state.arrays("teachers"))
    if "teachers.skops" in state:
        parts = state.estimator("teachers")
        return EstimatorTeachers(list(zip(parts["models"], parts["majorities"], strict=True)), classes=parts["classes"])
    if "teachers.json" in state:
        document = state.document("teachers")
        return EndpointTeachers(document.pop("urls"), **document)
    sites: Electorate = import_module("quorate.service.sites.coordinator").Sites.from_document(state.document("sites"))
    return sites
