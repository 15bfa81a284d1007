"""Steps that several learners share, each done for many chunks at once and for each chunk by itself."""

from quorate.compute.learners.backends import Array, Backend

_TRACE = 1e-12  # of a diagonal: far above rounding, far below what moves a ballot
_TINY = 1e-300


def centred(features: Array, weights: Array) -> tuple[Array, Array]:
    """Return each chunk's features less their own mean, and that mean. Filling stays zero."""
    rows = weights.sum(axis=1)[:, None, None]
    mean = (weights[:, None, :] @ features) / (rows + (rows == 0))
    return (features - mean) * weights[:, :, None], mean[:, 0, :]


def row_space(backend: Backend, features: Array) -> tuple[Array, Array | None]:
    """Return features with no more columns than rows, and the orthonormal basis that leads back, if one was needed.

    A penalised linear model of few rows and many features lies in the span of its rows; turning the axes into that
    span changes neither the penalty nor the scores.
    """
    if features.shape[2] <= features.shape[1]:
        return features, None
    basis, upper = backend.orthogonal(features.swapaxes(1, 2))
    return upper.swapaxes(1, 2), basis


def damped_solve(backend: Backend, matrices: Array, right: Array, penalties: Array | float = 0.0) -> Array:
    """Solve many symmetric systems whose diagonals are first raised by the penalties and by a trace of themselves.

    So a singular matrix gives a finite solution instead of an error. The matrices are changed in place.
    """
    size = matrices.shape[1]
    diagonals = matrices.reshape(-1, size * size)[:, :: size + 1]
    diagonals[:] = (diagonals + penalties) * (1.0 + _TRACE) + _TINY
    return backend.solve(matrices, right)
