"""The columns of a wide sparse matrix, words or codes, as a few dozen numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.core.arrays import Floats
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.tables.features.blocks import check_input_names
from quorate.tables.features.words import Words, number_for, words_from_public


class HashedColumns(TransformerMixin, BaseEstimator):
    """Numbers in [0, 1] from many sparse counts, by *public* rows. Never fit them on private records.

    Parameters
    ----------
    number
        How many numbers. By default it is chosen from public numbers: units, epsilon and public rows.

    Counts become logarithms, with more weight on columns that few public rows have; each row is scaled to length 1 and
    projected on the directions in which public rows differ most. `fit(None)` draws random directions: expect little of
    them. If there are more than 65,536 columns, some share a place.

    >>> generator = np.random.default_rng(0)
    >>> counts = sparse.csr_array(generator.poisson(0.01, size=(500, 20_000)))
    >>> HashedColumns(number=20).fit(counts).transform(counts[:3]).shape
    (3, 20)
    """

    declared = ()  # nothing need be declared where no public rows are given

    def __init__(self, *, number: int | None = None) -> None:
        self.number = number

    def fit(self, X: Any, y: Any = None, *, units: int = 0, epsilon: float = 1.0, outputs: int = 1) -> "HashedColumns":
        """Choose directions from public rows, or draw them at random if there are none (X is None)."""
        X = None if X is None else self._counts(X, reset=True)
        public_rows = 0 if X is None else X.shape[0]
        number = number_for(units, epsilon, public_rows) if self.number is None else check_count("number", self.number)
        self.words_ = words_from_public("words", X, number=number)
        return self

    def _counts(self, X: Any, *, reset: bool) -> Any:
        """Return rows of counts, sparse or not, and learn how many columns they have or check it."""
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)

    def transform(self, X: Any) -> Floats:
        """Return one row of numbers in [0, 1] for each row, as an array or in the container of `set_output`."""
        check_is_fitted(self, "words_")
        return self.encode(self._counts(X, reset=False))

    def encode(self, X: Any) -> Floats:
        """Return what `transform` does, always as an array, of rows whose columns were checked."""
        return self.spread(self.read(X))

    def read(self, X: Any) -> sparse.csr_array:
        """Return the rows as their words are read."""
        check_is_fitted(self, "words_")
        return self.words_.read(X)

    def spread(self, read: sparse.csr_array) -> Floats:
        """Return the rows of numbers for rows that were read, all of them or some."""
        return self.words_.spread(read)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that `transform` makes."""
        check_is_fitted(self, "words_")
        check_input_names(self, input_features)
        return np.array(self.words_.names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True  # what is no number counts as 0
        return tags

    def atoms(self) -> list[Floats]:
        """Return rows that the columns may become."""
        return self.words_.atoms()

    def families(self) -> NDArray[np.int64]:
        """Return a number for each column, equal for those that are shrunk together."""
        return 1 + self.words_.octaves

    def document(self) -> dict[str, Any]:
        """Return what `transform` needs as plain values, beside `arrays`."""
        return {"words": self.words_.document()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `transform` needs as arrays."""
        return self.words_.arrays()

    @classmethod
    def from_document(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "HashedColumns":
        """Return fitted columns from what `document` and `arrays` returned."""
        if set(document) != {"words"}:
            raise InvalidInput("the columns of the model are damaged or were changed")
        columns = cls()
        columns.words_ = Words.from_document(document["words"], arrays)
        return columns
