"""Teachers from the plain arrays that they were saved as."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.learners.linear import LinearTeachers
from quorate.learners.stump_teachers import StumpTeachers
from quorate.learners.teachers import Teachers

__all__ = ["teachers_from_arrays"]


def teachers_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Teachers:
    """Return the teachers whose `arrays()` these are, whatever their kind."""
    kind = str(arrays["kind"]) if "kind" in arrays else None
    if kind == "linear":
        return LinearTeachers.from_arrays(arrays)
    if kind == "stump":
        return StumpTeachers.from_arrays(arrays)
    raise InvalidInput(f"arrays must be of the kind 'linear' or 'stump', not {kind!r}")
