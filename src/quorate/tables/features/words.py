"""Thousands of sparse counts (words of a text, codes of a visit) as a few dozen numbers in [0, 1].

Public rows decide the kept words, their weights, and the directions of largest variation. Without public rows the
directions are signs drawn from a fixed seed. The features of a row depend on these and on that row alone, to the last
bit: all sums are of whole numbers that a double represents. Proof: models/linear/PROOF.md, step 2.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import log1p
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.core.arrays import Floats
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.tables.containers import open_matrix, raw_values
from quorate.tables.features.blocks import check_input_names
from quorate.tables.values import read_texts

BUCKETS = 2**16  # columns beyond so many share one, and so do words
_STEPS = 2.0**10  # of a count: with at most 2**17 squares of 2**36 steps a sum has 53 bits
_LARGEST = 2.0**4  # a count, and a weight
_ROWS, _DIRECTIONS = 2.0**16, 2.0**20  # steps of a row's entry and of a direction's: 2**17 products have 53 bits
_FEWEST, _MOST = 16, 200
_SPREAD = 6.0  # standard deviations of public rows between 0 and 1
_RARE = 2  # public rows that show a word, at least
_FARTHEST = 1e300  # of a private value that is asked about: beyond the end of every ramp too


@dataclass(frozen=True, eq=False)
class Words:
    """Words or codes, each counted: `number` values that say what a row is about.

    `places` are the kept words, `weights` how much each counts, `directions` has a row for each. Where they are
    `drawn`, all words are kept and the directions are signs from a fixed seed.
    """

    name: str
    number: int
    places: NDArray[np.int64]
    weights: Floats
    directions: NDArray[np.int32]  # whole numbers of steps
    centre: Floats
    scale: Floats
    drawn: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the numbers it becomes."""
        return [f"{self.name} about {index}" for index in range(self.number)]

    @cached_property
    def _whole_directions(self) -> Floats:
        return self.directions.astype(np.float64)

    def read(self, values: Any) -> sparse.csr_array:
        """Return the kept words of each row, weighted, as a row of length 1. Values are texts, or rows of counts."""
        counts = _steps_of(as_counts(values))[:, self.places]
        counts.data = np.rint(counts.data * self.weights[counts.indices])
        squares = sparse.csr_array((counts.data**2, counts.indices, counts.indptr), shape=counts.shape).sum(axis=1)
        length = np.sqrt(np.maximum(squares, 1.0))
        counts.data = np.rint(counts.data / np.repeat(length, np.diff(counts.indptr)) * _ROWS)
        return counts

    def spread(self, read: sparse.csr_array) -> Floats:
        """Return a row of numbers in [0, 1] for each row that was read."""
        # proof: step 2 of models/linear/PROOF.md
        along = np.asarray(read @ self._whole_directions) / (_ROWS * _DIRECTIONS)
        return np.asarray(np.clip(0.5 + (along - self.centre) * self.scale, 0.0, 1.0))

    def encode(self, values: Any) -> Floats:
        """Return a row of numbers in [0, 1] for each value."""
        return self.spread(self.read(values))

    def atoms(self) -> list[Floats]:
        """Return values of each direction, about as far apart as those of usual rows."""
        return [np.array([[0.25], [0.5], [0.75]])] * self.number

    @property
    def octaves(self) -> NDArray[np.int64]:
        """Which directions are shrunk together: the first, the next two, the next four."""
        return np.log2(np.arange(1, self.number + 1)).astype(np.int64) * (not self.drawn)

    def document(self) -> dict[str, Any]:
        """Return the plain values among its parts."""
        return {"name": self.name, "number": self.number, "drawn": self.drawn}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays among its parts; signs are drawn again."""
        return {} if self.drawn else {part: getattr(self, part) for part in _ARRAYS}

    @classmethod
    def from_document(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "Words":
        """Return the words that `document` and `arrays` describe."""
        name, number = str(document["name"]), int(document["number"])
        if document["drawn"]:
            return _draw_words(name, number)
        parts: Any = [np.asarray(arrays[part]) for part in _ARRAYS]
        words = cls(name, number, *parts)
        sizes = {len(words.places), len(words.weights), len(words.directions)}
        widths = {(number,), words.centre.shape, words.scale.shape, words.directions.shape[1:]}
        if len(sizes) > 1 or len(widths) > 1 or not _within(words):
            raise InvalidInput("the columns of the model are damaged or were changed")
        return words


_ARRAYS = ("places", "weights", "directions", "centre", "scale")


def _within(words: Words) -> bool:
    """Return whether the parts of words are as large as the sums allow."""
    indices = words.places
    return bool(
        indices.dtype.kind == "i"
        and ((indices >= 0) & (indices < BUCKETS)).all()
        and (np.abs(words.weights) <= _LARGEST).all()
        and words.directions.dtype.kind == "i"
        and (np.abs(words.directions) <= _DIRECTIONS).all()
        and np.isfinite(words.centre).all()
        and np.isfinite(words.scale).all()
    )


def number_for(units: int, epsilon: float, public_rows: int) -> int:
    """Return how many numbers words become: more units and less noise tell more directions apart."""
    limit = max(_FEWEST, public_rows // 8) if public_rows else _MOST
    return int(min(max(math.sqrt(units * epsilon), _FEWEST), _MOST, limit))


def words_from_public(name: str, public: Any, *, number: int) -> Words:
    """Return words whose directions are those along which public rows differ most; None draws signs."""
    if public is None:
        return _draw_words(name, number)
    counts = _steps_of(as_counts(public))
    rows, document_counts = counts.shape[0], np.bincount(counts.indices, minlength=BUCKETS)
    indices = np.flatnonzero((document_counts >= _RARE) & (document_counts < rows))
    if len(indices) <= number or rows <= number:
        raise InvalidInput(f"the public rows are too few, or too alike, to tell {number} directions of {name!r}")
    weights = np.minimum(np.log((1 + rows) / (1 + document_counts[indices])), _LARGEST)
    nowhere = np.zeros((len(indices), number), dtype=np.int32)
    start = Words(name, number, indices, weights, nowhere, np.zeros(number), np.ones(number))
    public_rows = start.read(public) / _ROWS
    _, _, turned = randomized_svd(public_rows, n_components=number, random_state=0)
    directions = np.rint(turned.T * _DIRECTIONS).astype(np.int32)
    along = public_rows @ directions / _DIRECTIONS
    scale = 1 / (_SPREAD * np.maximum(along.std(axis=0), 1e-6))
    return Words(name, number, indices, weights, directions, along.mean(axis=0), scale)


def _draw_words(name: str, number: int) -> Words:
    """Return words whose directions are signs from a fixed seed: a row of length 1 has numbers of variance 1."""
    every, directions = np.arange(BUCKETS), (_signs(BUCKETS, number) * _DIRECTIONS).astype(np.int32)
    ones = np.ones(number)
    return Words(name, number, every, np.ones(BUCKETS), directions, 0 * ones, ones / _SPREAD, drawn=True)


def _signs(rows: int, columns: int) -> Floats:
    """Return signs from a fixed seed, the same in every version. They hide nothing: proof, step 4."""
    bits = np.random.PCG64(0).random_raw(-(-rows * columns // 64)).astype("<u8").view(np.uint8)
    return np.unpackbits(bits)[: rows * columns].reshape(rows, columns).astype(np.float64) * 2 - 1


def as_counts(values: Any) -> sparse.csr_array:
    """Return rows of counts as a sparse matrix of their own, and a raw column of texts as counts of hashed words."""
    if sparse.issparse(values) or (isinstance(values, np.ndarray) and values.ndim == 2):
        if values.dtype.kind not in "fiub":
            raise InvalidInput("rows of counts are numbers")
        return _added_up(values)
    hashed = HashingVectorizer(n_features=BUCKETS, alternate_sign=False, norm=None, dtype=np.float64)
    return sparse.csr_array(hashed.transform([text or "" for text in read_texts(raw_values(values), ()).to_pylist()]))


def finite_numbers(values: Any) -> Any:
    """Return private rows as numbers, each by itself: what is none is missing, none is infinite, and none refused.

    Rows of a sparse matrix stay sparse.
    """
    if not sparse.issparse(values):
        return np.clip(open_matrix(values), -_FARTHEST, _FARTHEST)
    counts = as_counts(values)
    counts.data = np.clip(counts.data, -_FARTHEST, _FARTHEST)
    return counts


def _added_up(values: Any) -> sparse.csr_array:
    """Return rows in which equal places are added up, the smallest value first: models/linear/PROOF.md, step 2.

    Scipy sorts all rows where one of them is not sorted, and adds floats in the order that the sorting leaves.
    """
    counts = sparse.coo_array(values)
    row, column = counts.coords
    with np.errstate(all="ignore"):  # a warning would tell of a value
        data = counts.data.astype(np.float64)
    if not ((np.diff(row) > 0) | ((np.diff(row) == 0) & (np.diff(column) > 0))).all():
        order = np.lexsort((data, column, row))
        row, column, data = row[order], column[order], data[order]
    starts = np.searchsorted(row, np.arange(counts.shape[0] + 1))
    rows = sparse.csr_array((data, column.copy(), starts), shape=counts.shape)
    rows.sum_duplicates()  # sorted already: it adds from left to right
    return rows


def _steps_of(counts: sparse.csr_array) -> sparse.csr_array:
    """Return the logarithms of counts as whole numbers of steps, by bucket; what is no number counts as 0."""
    with np.errstate(all="ignore"):  # a warning would tell of a value
        size = np.fmin(np.nan_to_num(log1p(np.abs(counts.data))), _LARGEST)
        steps = np.rint(np.copysign(size, counts.data) * _STEPS)
    rows = sparse.csr_array((steps, counts.indices % BUCKETS, counts.indptr.copy()), shape=(counts.shape[0], BUCKETS))
    rows.sum_duplicates()  # of whole numbers
    rows.data = np.clip(rows.data, -_LARGEST * _STEPS, _LARGEST * _STEPS)
    return rows


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
