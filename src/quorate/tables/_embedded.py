"""Columns of sentences that a public model, the embedder, turns into vectors: one text at a time.

The vector of a text is a function of that text: the embedder gets one text a call, cut at a public length, with linear
algebra on one thread. It is no part of a schema's file, which names it.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, set_validated
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import one_thread, silence

Embedder = Callable[[Sequence[str]], Any]

_EMBEDDERS: dict[str, Embedder] = {}


def register_embedder(name: str, model: Embedder) -> None:
    """Register an embedder in this process, for schemas and models that were saved with its name.

    Parameters
    ----------
    name
        The name that schemas give as `embedder`.
    model
        A function from a list of texts to a matrix with one row a text.

    >>> import pyarrow as pa
    >>> from quorate.tables import Schema
    >>> register_embedder("lengths", lambda texts: [[len(text), 4] for text in texts])
    >>> saved = {"columns": {"note": {"kind": "embedded", "embedder": "lengths", "width": 2}}}
    >>> Schema.from_document(saved).encode(pa.table({"note": ["tea"]})).tolist()
    [[0.6, 0.8]]
    """
    if not isinstance(name, str) or not name or not callable(model):
        raise InvalidInput("an embedder must have a name and be a function from a list of texts to a matrix")
    _EMBEDDERS[name] = model


@dataclass(frozen=True)
class Embedded:
    """A column of sentences that become vectors by a public model.

    Parameters
    ----------
    embedder
        The name of the model, which is all that a saved schema holds of it.
    width
        The length of its vectors.
    model
        A function from a list of texts to a matrix, such as a sentence embedding. It is called with one text at a time,
        so that the vector of a row never depends on other rows. By default it is the one of this name that
        `register_embedder` has made known.
    characters
        The length at which each text is cut.

    Vectors are scaled to length 1. A missing text, and one on which the model fails, has zeros.

    >>> import pyarrow as pa
    >>> from quorate.tables import Schema
    >>> def count_letters(texts):  # a stand-in for an embedding
    ...     return [[text.count("a"), text.count("e")] for text in texts]
    >>> schema = Schema({"note": Embedded("letters", 2, model=count_letters)})
    >>> schema.encode(pa.table({"note": ["a bee", "ache", None]})).round(2).tolist()
    [[0.45, 0.89], [0.71, 0.71], [0.0, 0.0]]
    >>> schema.to_document()["columns"]
    {'note': {'kind': 'embedded', 'embedder': 'letters', 'width': 2, 'characters': 2000}}
    """

    embedder: str
    width: int
    characters: int = 2000
    model: Embedder | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.embedder, str) or not self.embedder:
            raise InvalidInput(f"embedder must be the name of a model, got {self.embedder!r}")
        if self.model is not None and not callable(self.model):
            raise InvalidInput("model must be a function from a list of texts to a matrix")
        for name in ("width", "characters"):
            set_validated(self, **{name: check_count(name, getattr(self, name))})

    def embed(self, texts: Sequence[str | None]) -> Floats:
        """Return the vector of each text."""
        model = _EMBEDDERS.get(self.embedder) if self.model is None else self.model
        if model is None:
            raise InvalidInput(
                f"the embedder {self.embedder!r} is not known in this process; call register_embedder first"
            )
        check = _check_vectors if isinstance(model, Hashable) else _check_vectors.__wrapped__
        check(model, self.width)
        vectors = np.zeros((len(texts), self.width))
        with silence(), one_thread():
            for row, text in enumerate(texts):
                vector = self._vector(model, (text or "")[: self.characters])
                vectors[row] = 0.0 if text is None else vector
        return vectors

    def _vector(self, model: Embedder, text: str) -> Any:
        """Return the vector of a text, with length 1; zeros where the model fails."""
        try:
            values = np.asarray(model([text]), dtype=np.float64)
        except Exception:  # it would tell of the text
            return 0.0
        if values.shape != (1, self.width) or not np.isfinite(values).all():
            return 0.0
        with np.errstate(all="ignore"):  # a warning would tell of the text
            values = values[0] / max(np.abs(values).max(), np.finfo(np.float64).tiny)
            return values / np.sqrt(max(np.square(values).sum(), 1.0))


@lru_cache(maxsize=16)
def _check_vectors(model: Embedder, width: int) -> None:
    """Refuse an embedder whose vector of a public text has another length: no private text decides this."""
    shape = np.shape(model(["text"]))
    if shape != (1, width):
        raise InvalidInput(f"the embedder must return a matrix of 1 row and {width} columns for a text, got {shape}")
