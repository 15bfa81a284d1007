"""What is common to learners and to fitted teachers, whatever their kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.learners.backends import Backend, choose_backend
from quorate.learners.blocks import Chunks
from quorate.learners.deal import Deal
from quorate.learners.inputs import MEMORY, check_memory

__all__ = ["BackendName", "Learner", "Teachers", "check_arrays"]

BackendName = Literal["numpy", "torch", "auto"]


class Teachers(ABC):
    """Fitted teachers: plain arrays that can be counted and saved. Printing them shows only public numbers."""

    teachers: int
    classes: int
    features: int

    @abstractmethod
    def votes(self, X: Any, *, backend: BackendName = "numpy", memory: int = MEMORY) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class."""

    @abstractmethod
    def ballots(self, X: Any, *, backend: BackendName = "numpy", memory: int = MEMORY) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays. They are private."""

    def __repr__(self) -> str:
        shown = f"teachers={self.teachers}, classes={self.classes}, features={self.features}"
        return f"{type(self).__name__}({shown})"


class Learner(ABC):
    """A description of how each teacher is fitted, on its own rows alone."""

    def fit(
        self,
        X: Any,
        y: Any,
        deal: Deal,
        *,
        classes: int,
        backend: BackendName = "numpy",
        memory: int = MEMORY,
        one_scale: bool = False,
    ) -> Teachers:
        """Return one fitted teacher for each chunk of the deal; `y` holds codes from 0 to `classes` - 1.

        A teacher depends on its own rows and on nothing else, to the last bit. Rows with a feature that is missing or
        beyond `LARGEST`, or with a label that was not declared, are left out. A teacher whose rows show one class
        always votes for it, and one without rows for class 0. No private value causes an error. Where it is public
        that columns are of about `one_scale`, linear ballots are counted with one product instead of three.
        """
        arrays, chunks = choose_backend(backend), Chunks(X, y, deal, classes=classes)
        with np.errstate(all="ignore"):
            return self._fit_chunks(arrays, chunks, memory=check_memory(memory), one_scale=one_scale)

    @abstractmethod
    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, memory: int, one_scale: bool) -> Teachers:
        """Return the teachers of these chunks."""


def check_arrays(arrays: Mapping[str, NDArray[Any]], *, kind: str, axes: Mapping[str, int]) -> None:
    """Refuse arrays that do not describe teachers of this kind: `axes` says how many each of them must have."""
    right = "kind" in arrays and str(arrays["kind"]) == kind
    for name, number in axes.items():
        right = right and name in arrays and arrays[name].dtype.kind in "fiub" and arrays[name].ndim == number
    if not right:
        raise InvalidInput(f"arrays must be of the kind {kind!r} and hold numbers as {', '.join(axes)}")
