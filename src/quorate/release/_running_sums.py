"""Running sums over the updates of a growing table, measured with the least noise.

They are measured through a factorisation of their matrix A = B C, with C lower triangular: after
update t, row t of C times the counts so far is measured, with noise of one scale, and row t of B makes the running sum
of it. Its noise is the length of a row of B times the longest column of C. The best choice minimises the longest row
(the gamma-2 norm: Fichtenberger, Henzinger, Upadhyay 2023): 1.82 for 24 updates, where the square root of A has 2.07
and a binary tree more.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

MOST_UPDATES = 240
_ROUNDS = 100  # of the search; 50 come within a thousandth of the optimum
_BETTER = 1 - 1e-9  # of the largest variance: less is no improvement, but rounding
_UNIT = 2**8  # whole numbers in one: more would cost noise by the count of entries that a record changes


@dataclass(frozen=True)
class RunningSums:
    """A lower triangular matrix of whole numbers; row t weights the counts of the updates after update t."""

    coefficients: Integers

    def __post_init__(self) -> None:
        matrix = self.coefficients
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.dtype == np.int64
        if not (square and np.array_equal(matrix, np.tril(matrix)) and bool((np.diag(matrix) > 0).all())):
            raise InvalidInput("matrix must be lower triangular, of whole numbers, without 0 on its diagonal")

    @property
    def updates(self) -> int:
        """The number of updates."""
        return len(self.coefficients)

    @property
    def squared_length(self) -> int:
        """The largest sum of squares of a column, which scales the squared sensitivity of all updates together."""
        return max(sum(int(term) ** 2 for term in column) for column in self.coefficients.T)

    def measure(self, months: list[list[Integers]]) -> list[Integers]:
        """Return the exact weighted sums of these updates' vectors, to be measured after the last one."""
        row = self.coefficients[len(months) - 1]
        pairs = [(int(weight), parts) for weight, parts in zip(row, months, strict=False)]
        return [sum(weight * parts[index] for weight, parts in pairs) for index in range(len(months[0]))]  # type: ignore[misc]

    def estimate(self, measured: list[list[NDArray[np.int64]]]) -> list[Floats]:
        """Return the sums over all updates so far, from the measurements after each."""
        row = self._rows[len(measured) - 1]
        return [
            sum((weight * parts[index] for weight, parts in zip(row, measured, strict=False)), np.zeros(1))
            for index in range(len(measured[0]))
        ]

    def deviation(self, update: int) -> float:
        """Return the deviation of a running sum after this update, the first being 1, for noise of deviation 1."""
        return float(np.sqrt((self._rows[update - 1] ** 2).sum()))

    @property
    def _rows(self) -> Floats:
        sums = np.tril(np.ones(self.coefficients.shape))
        return np.asarray(np.linalg.solve(self.coefficients.T.astype(np.float64), sums.T).T)


@lru_cache(maxsize=8)
def best_running_sums(updates: int) -> RunningSums:
    """Return the factorisation whose largest noise is the least, in whole numbers.

    For given weights of the updates the Gram matrix X of C that makes the weighted sum of squared deviations least is
    a fixed point (Denisov, McMahan, Rush, Smith, Thakurta 2022); weights grow where the deviation is large.
    """
    if check_count("updates", updates) > MOST_UPDATES:
        raise InvalidInput(f"updates must be at most {MOST_UPDATES}, got {updates}; release less often")
    sums = np.tril(np.ones((updates, updates)))
    weights, columns = np.full(updates, 1.0 / updates), np.ones(updates)
    best, gram = np.inf, np.eye(updates)
    for _ in range(_ROUNDS):
        root = np.sqrt(columns)
        values, vectors = np.linalg.eigh(root[:, None] * (sums.T @ (weights[:, None] * sums)) * root)
        square_root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        columns = np.diag(square_root).copy()
        candidate = square_root / np.sqrt(np.outer(columns, columns))
        variances = np.diag(sums @ np.linalg.solve(candidate, sums.T)) * np.diag(candidate).max()
        if variances.max() < _BETTER * best:
            best, gram = float(variances.max()), candidate
        weights = weights * variances / (weights @ variances)
    upper = np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]  # lower triangular, and its Gram matrix is `gram`
    return RunningSums(np.tril(np.rint(_UNIT * upper)).astype(np.int64))
