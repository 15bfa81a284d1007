"""Features of handwritten digits, learned from public images without labels.

Three steps. Digits are centred and set upright. Small patches are compared with typical ones found by k-means (Coates
and Ng 2012), the likeness is summed over a grid, and principal components are taken. A graph of nearest public
neighbours gives spectral coordinates, in which digits of one kind lie together; an image takes those of its neighbours.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.rows import usable_cores

__all__ = ["DigitFeatures", "upright"]

Images = NDArray[np.float32]

_SIDE = 28
_PATCH = 8
_PAD = 2
_GRID = 4
_NEIGHBOURS = 10
_COMPONENTS = 100
_GRAPH = 80  # components that neighbours are found by
_CONTRAST = 0.7  # of a patch that typical ones are learned from
_SPECTRAL = 49
_BLOCK = 50  # images worked on together: more would not fit a processor's cache


def upright(images: Images) -> Images:
    """Return images whose ink is centred and, by a shear, does not lean."""
    lines, middle, out = np.arange(_SIDE, dtype=np.float32), (_SIDE - 1) / 2, np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        part = images[start : start + _BLOCK]
        ink = part.sum(axis=(1, 2)) + 1e-6
        column, row = part.sum(axis=1) @ lines / ink, part.sum(axis=2) @ lines / ink
        down, right = lines - row[:, None], lines - column[:, None]
        lean = np.einsum("nij,ni,nj->n", part, down, right) / np.maximum((part.sum(axis=2) * down**2).sum(axis=1), 1e-6)
        y = (lines + (row - middle)[:, None])[:, :, None] + 0 * lines
        x = lines + (column - middle)[:, None, None] + lean[:, None, None] * (lines - middle)[:, None]
        out[start : start + _BLOCK] = _between(part, y, x)
    return out


def _between(images: Images, y: Images, x: Images) -> Images:
    """Return the images at these places, interpolated between pixels and empty outside."""
    padded = np.pad(images, ((0, 0), (1, 2), (1, 2)))
    which = np.arange(len(images))[:, None, None]
    y, x = np.clip(y, -1, _SIDE) + 1, np.clip(x, -1, _SIDE) + 1
    top, left = y.astype(np.int64), x.astype(np.int64)
    low, far = y - top, x - left
    upper = (1 - far) * padded[which, top, left] + far * padded[which, top, left + 1]
    lower = (1 - far) * padded[which, top + 1, left] + far * padded[which, top + 1, left + 1]
    return ((1 - low) * upper + low * lower).astype(np.float32)


class DigitFeatures:
    """Features learned from public images; `transform` gives those of any other image."""

    def __init__(self, *, stride: int = 1, patches: int = 96) -> None:
        self.stride, self.patches = stride, patches

    def fit_transform(self, images: Images) -> NDArray[np.float64]:
        """Learn patches, components and the graph from images that are public, and return their features."""
        self._learn_patches(images)
        pooled = self._pooled(images)
        self._mean = pooled.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov((pooled - self._mean).T))
        kept = slice(-1, -1 - min(_COMPONENTS, len(values)), -1)
        self._components = (vectors[:, kept] / np.maximum(values[kept], 1e-9) ** 0.25).astype(np.float32)
        self._scale = 1.0
        self._scale = float(self._projected(pooled).std())
        rows = self._projected(pooled)
        self._learn_graph(rows)
        return self._joined(rows, *self._neighbours.kneighbors())  # of each point, itself left out

    def transform(self, images: Images) -> NDArray[np.float64]:
        """Return the features of other images: spectral coordinates, then principal components at half their weight."""
        rows = self._projected(self._pooled(images))
        return self._joined(rows, *self._neighbours.kneighbors(rows[:, :_GRAPH]))

    def _projected(self, pooled: NDArray[np.float32]) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = (pooled - self._mean) @ self._components / self._scale
        return rows

    def _joined(self, rows: NDArray[np.float32], apart: Any, nearest: Any) -> NDArray[np.float64]:
        spectral = _average(self._coordinates, apart, nearest, self._reach)
        return np.hstack([spectral, 0.5 * rows]).astype(np.float64)

    def _windows(self, images: Images) -> NDArray[np.float32]:
        """Return (images, rows, columns, pixels of a patch), each patch with mean 0 and variance about 1."""
        padded = np.pad(images, ((0, 0), (_PAD, _PAD), (_PAD, _PAD)))
        view = np.lib.stride_tricks.sliding_window_view(padded, (_PATCH, _PATCH), axis=(1, 2))
        view = view[:, :: self.stride, :: self.stride]
        windows = view.reshape(*view.shape[:3], -1)
        windows = windows - windows.mean(axis=3, keepdims=True)
        even: NDArray[np.float32] = windows / np.sqrt(windows.var(axis=3, keepdims=True) + 0.01)
        return even

    def _learn_patches(self, images: Images) -> None:
        from sklearn.cluster import MiniBatchKMeans

        chance = np.random.default_rng()
        some = self._windows(images[chance.permutation(len(images))[:1000]])
        some = some.reshape(-1, some.shape[-1])[:: max(1, 4 // self.stride**2)]
        some = some[some.std(axis=1) > _CONTRAST]  # not the empty corners
        self._centre = some.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov((some - self._centre).T))
        self._whiten = ((vectors / np.sqrt(values + 0.1)) @ vectors.T).astype(np.float32)
        white = (some - self._centre) @ self._whiten
        kmeans = MiniBatchKMeans(self.patches, n_init=3, max_iter=60, batch_size=4096).fit(white)
        self._typical = kmeans.cluster_centers_.astype(np.float32)

    def _pooled(self, images: Images) -> NDArray[np.float32]:
        """Return how alike the patches of each part of the grid are to each typical one: more than to most, or 0."""
        blocks = [images[start : start + _BLOCK] for start in range(0, len(images), _BLOCK)]
        with ThreadPoolExecutor(usable_cores()) as threads:
            return np.concatenate(list(threads.map(self._pooled_block, blocks)))

    def _pooled_block(self, images: Images) -> NDArray[np.float32]:
        windows = self._windows(images)
        shape = windows.shape[:3]
        white = (windows.reshape(-1, windows.shape[3]) - self._centre) @ self._whiten
        squares = (white**2).sum(axis=1)[:, None] + (self._typical**2).sum(axis=1) - 2 * white @ self._typical.T
        apart = np.sqrt(np.maximum(squares, 0))
        alike = np.maximum(apart.mean(axis=1, keepdims=True) - apart, 0).reshape(*shape, -1)
        edges = np.linspace(0, shape[1], min(_GRID, shape[1]) + 1).astype(np.int64)[:-1]
        sums = np.add.reduceat(np.add.reduceat(alike, edges, axis=1), edges, axis=2)
        return np.sqrt(sums.reshape(len(sums), -1))

    def _learn_graph(self, rows: NDArray[np.float32]) -> None:
        from sklearn.neighbors import NearestNeighbors
        from sklearn.utils.extmath import randomized_svd

        self._neighbours: Any = NearestNeighbors(n_neighbors=_NEIGHBOURS, algorithm="brute").fit(rows[:, :_GRAPH])
        apart, nearest = self._neighbours.kneighbors()
        self._reach = apart[:, -1]
        graph = self._neighbours.kneighbors_graph()
        graph.data = _likeness(apart, nearest, self._reach).ravel()
        graph = graph.maximum(graph.T)
        root = np.sqrt(np.asarray(graph.sum(axis=1)).ravel())
        scaled = graph.multiply(1 / root[:, None]).multiply(1 / root[None, :]).tocsr()
        scaled.setdiag(1.0)  # so that no eigenvalue is far below 0, and singular vectors are eigenvectors
        number = min(_SPECTRAL + 1, len(rows))
        vectors, values, _ = randomized_svd(
            scaled, number, n_oversamples=30, n_iter=25, power_iteration_normalizer="QR"
        )
        vectors = vectors[:, 1:] / root[:, None]  # all but the constant one
        # Coordinates that change slowly along the graph tell the kinds apart: they weigh more.
        weights = np.maximum(values[1:] - 1, 0) ** 5 / _average(vectors, apart, nearest, self._reach).std(axis=0)
        self._coordinates = vectors * weights


def _likeness(
    apart: NDArray[np.float64], nearest: NDArray[np.int64], reach: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how near each neighbour is, from 1 at no distance, measured by the reach of both points."""
    near: NDArray[np.float64] = np.exp(-(apart**2) / np.maximum(apart[:, -1:] * reach[nearest], 1e-12))
    return near


def _average(
    values: NDArray[np.float64], apart: NDArray[np.float64], nearest: NDArray[np.int64], reach: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean of the neighbours' values, the nearer ones weighing more."""
    weights = _likeness(apart, nearest, reach)
    mean: NDArray[np.float64] = np.einsum("nm,nmr->nr", weights / weights.sum(axis=1, keepdims=True), values[nearest])
    return mean
