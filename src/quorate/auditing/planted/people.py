"""Releases that protect people, with one mistake each: a person has more records than are paid for."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from quorate.auditing.planted.bug import Caught, PlantedBug
from quorate.auditing.planted.guards import replaced
from quorate.mechanisms.noisy_vector import NoisyVector
from quorate.release import QueryRelease, Workload
from quorate.release import release as release_module

__all__ = ["PEOPLE", "replace_a_person"]

_PEOPLE, _RECORDS, _COUNTED = 50, 8, 4
_EPSILON, _DELTA = 1.0, 1e-6

Twin = tuple[str, Callable[..., Any]]  # a function of the release's module, and what stands in for it


def _for_one_record(epsilon: float, delta: float, most: int) -> tuple[float, float]:
    """Pay for one record of a person, however many are counted: that is the mistake."""
    return epsilon, delta


def _all_records(private: Any, groups: Any, most: int = 1) -> Any:
    """Count all records of everybody: that is the mistake."""
    return private


def _measured(cell: str) -> tuple[NoisyVector, list[np.ndarray]]:
    """Return what a release of visits puts to its mechanism, where the first person's are all of one kind."""
    seen: list[tuple[NoisyVector, list[np.ndarray]]] = []
    original = NoisyVector.draw_release

    def record(self: NoisyVector, parts: Any, budget: Any, noise: Any) -> Any:
        seen.append((self, [np.asarray(part) for part in parts]))
        return original(self, parts, budget, noise)

    visits = {"kind": [cell] * _RECORDS + ["b"] * (_PEOPLE - 1) * _RECORDS}
    with replaced(NoisyVector, "draw_release", record):
        QueryRelease(
            Workload.marginals(1),
            columns={"kind": ["a", "b"]},
            engine="plain",
            epsilon=_EPSILON,
            delta=_DELTA,
            records_per_person=_COUNTED,
        ).fit(visits, groups=np.repeat(np.arange(_PEOPLE), _RECORDS))
    [found] = seen
    return found


def replace_a_person(twin: Twin) -> Caught:
    """Replace all visits of one person, and compute the exact delta of what Gaussian noise then tells at epsilon."""
    name, stand_in = twin
    with replaced(release_module, name, stand_in):
        (mechanism, one), (_, other) = _measured("a"), _measured("b")
    moved = [float(((first - second) ** 2).sum()) for first, second in zip(one, other, strict=True)]
    distance = math.sqrt(sum(square / scale**2 for square, scale in zip(moved, mechanism.scales, strict=True)))
    near, far = (float(log_ndtr(sign * distance / 2 - _EPSILON / distance)) for sign in (1, -1))
    delta = math.exp(near) - math.exp(_EPSILON + far)  # Balle and Wang 2018, theorem 8
    evidence = f"a replaced person has a delta of {delta:.1e} at epsilon {_EPSILON:g}; claimed: {_DELTA:g}"
    return Caught("replaced person", evidence, found=delta > _DELTA)


def _bug(name: str, what: str, function: str, broken: Callable[..., Any]) -> PlantedBug:
    sound = getattr(release_module, function)
    return PlantedBug(
        name,
        what,
        "enumeration",
        lambda: (function, broken),
        lambda: (function, sound),
        lambda twin, plays, seed: replace_a_person(twin),
    )


PEOPLE = (
    _bug("pays_for_one_record", "several records of a person, paid as one", "loss_for_each_record", _for_one_record),
    _bug("all_records_of_a_person", "all records of a person, paid as a few", "first_records", _all_records),
)
