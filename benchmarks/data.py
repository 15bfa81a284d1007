"""UCI Adult: as twelve columns of numbers to learn from, and as the codes of 7 or 15 columns to release.

The twelve columns follow fixed rules: age up to the mid-forties, schooling, hours, capital, managers and professionals
rather than service and manual work, married earners.

MNIST, dealt into private rows, public rows and judges: the 60,000 training images are private; 9,000 random test images
are public and unlabelled, as in PATE (Papernot et al. 2018), and the other 1,000 judge; features are learned from the
public ones.

Features of handwritten digits, learned from public images without labels.

Three steps. Digits are centred and set upright. Small patches are compared with typical ones found by k-means (Coates
and Ng 2012), the likeness is summed over a grid, and principal components are taken. A graph of nearest public
neighbours gives spectral coordinates, in which digits of one kind lie together; an image takes those of its neighbours.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import data_folder
from quorate.core.arrays import Floats
from quorate.core.rows import usable_cores
from quorate.release.queries import Marginals, Rows

_UPPER = ("Exec-managerial", "Prof-specialty")
_LOWER = ("Other-service", "Handlers-cleaners", "Farming-fishing", "Machine-op-inspct")


def read_adult(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return twelve columns of the records in this file, and whether each earns more than 50,000."""
    with gzip.open(path, "rt", newline="") as file:
        table = list(csv.DictReader(file, skipinitialspace=True))

    def number(name: str) -> NDArray[np.float64]:
        return np.array([float(row[name]) for row in table])

    def among(name: str, values: tuple[str, ...]) -> NDArray[np.float64]:
        return np.array([row[name] in values for row in table], dtype=np.float64)

    age, schooling = number("age"), (number("education-num") - 10) / 2.5
    gain, loss = number("capital-gain"), number("capital-loss")
    married = among("marital-status", ("Married-civ-spouse",))
    columns = [
        np.minimum(age, 45) / 10 - 3.7,
        ((age - 45) / 15) ** 2 - 1,
        schooling,
        (number("hours-per-week") - 40) / 12,
        np.log1p(gain) / 4,
        2.0 * (gain > 5000),
        np.log1p(loss) / 4,
        2 * married - 1,
        among("occupation", _UPPER),
        among("occupation", _LOWER),
        among("sex", ("Male",)),
        married * schooling,
    ]
    rich = np.array([row["income>50K"].startswith(">") for row in table], dtype=np.int64)
    return np.stack(columns, axis=1), rich


def adult_columns(folder: Path, name: str, part: str = "") -> tuple[tuple[int, ...], Any]:
    """Return the sizes of the columns and the codes of one file of Adult, in the order of its domain."""
    domain = json.loads((folder / f"{name}_domain.json").read_text())
    with gzip.open(folder / f"{name}{part}.csv.gz", "rt", newline="") as file:
        lines = csv.reader(file)
        header = next(lines)
        codes = np.array([[int(value) for value in line] for line in lines], dtype=np.int64)
    return tuple(domain.values()), codes[:, [header.index(column) for column in domain]]


def adult_split(folder: Path, split: int) -> tuple[Marginals, Rows, Rows]:
    """Return all 3-way marginals of the 7 columns, nine tenths of the records as private and the rest as public."""
    sizes, codes = adult_columns(folder, "adult7")
    dealt = np.random.default_rng(split).permutation(len(codes))
    public = len(codes) // 10
    return Marginals.of_order(sizes, 3), Rows(codes[dealt[public:]], sizes), Rows(codes[dealt[:public]], sizes)


def mean_distance(queries: Marginals, answers: Floats, truth: Floats) -> float:
    """Return the mean total variation distance of a marginal."""
    parts = np.split(np.abs(answers - truth), queries.offsets[1:-1])
    return float(np.mean([0.5 * part.sum() for part in parts]))


_DIGIT_JUDGES = 1000


def random_halves(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a random half of the rows, and of the other half."""
    order = np.random.default_rng().permutation(rows)
    return order[: rows // 2], order[rows // 2 :]


@dataclass(frozen=True)
class DigitSplit:
    """Features of digits. Labels of public ones are not there."""

    private: Floats
    labels: NDArray[np.int64]
    public: Floats
    judges: Floats
    truth: NDArray[np.int64]


def digit_splits(quick: bool, *, splits: int = 3) -> Iterator[DigitSplit]:
    """Yield random deals of MNIST, or a small one with coarse features; none where its file is absent.

    No image judges twice: ten splits have all 10,000 for judges.
    """
    path = data_folder() / "mnist" / "mnist.npz"
    if not path.exists():
        return
    with np.load(path) as file:
        arrays = {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    images, points = (24_000, 4000) if quick else (60_000, 9000)
    private = upright(arrays["x_train"][:images].astype(np.float32) / 255)
    rest = upright(arrays["x_test"].astype(np.float32) / 255)
    order = np.random.default_rng().permutation(len(rest))
    for _ in range(1 if quick else splits):
        order = np.roll(order, _DIGIT_JUDGES)  # the next thousand comes last
        public, judges = order[:-_DIGIT_JUDGES][:points], order[-_DIGIT_JUDGES:]
        features = DigitFeatures(stride=2, patches=48) if quick else DigitFeatures()
        public_features = features.fit_transform(rest[public])
        dealt = (
            features.transform(private),
            arrays["y_train"][:images],
            public_features,
            features.transform(rest[judges]),
        )
        yield DigitSplit(*dealt, arrays["y_test"][judges])


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
    top, column_before = y.astype(np.int64), x.astype(np.int64)
    low, across = y - top, x - column_before
    upper = (1 - across) * padded[which, top, column_before] + across * padded[which, top, column_before + 1]
    lower = (1 - across) * padded[which, top + 1, column_before] + across * padded[which, top + 1, column_before + 1]
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
        ranking = slice(-1, -1 - min(_COMPONENTS, len(values)), -1)
        self._components = (vectors[:, ranking] / np.maximum(values[ranking], 1e-9) ** 0.25).astype(np.float32)
        self._scale = 1.0
        self._scale = float(self._project(pooled).std())
        rows = self._project(pooled)
        self._learn_graph(rows)
        return self._join(rows, *self._neighbours.kneighbors())  # of each point, itself left out

    def transform(self, images: Images) -> NDArray[np.float64]:
        """Return the features of other images: spectral coordinates, then principal components at half their weight."""
        rows = self._project(self._pooled(images))
        return self._join(rows, *self._neighbours.kneighbors(rows[:, :_GRAPH]))

    def _project(self, pooled: NDArray[np.float32]) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = (pooled - self._mean) @ self._components / self._scale
        return rows

    def _join(self, rows: NDArray[np.float32], apart: Any, nearest: Any) -> NDArray[np.float64]:
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
        distances = np.sqrt(np.maximum(squares, 0))
        alike = np.maximum(distances.mean(axis=1, keepdims=True) - distances, 0).reshape(*shape, -1)
        edges = np.linspace(0, shape[1], min(_GRID, shape[1]) + 1).astype(np.int64)[:-1]
        sums = np.add.reduceat(np.add.reduceat(alike, edges, axis=1), edges, axis=2)
        return np.sqrt(sums.reshape(len(sums), -1))

    def _learn_graph(self, rows: NDArray[np.float32]) -> None:
        from sklearn.neighbors import NearestNeighbors
        from sklearn.utils.extmath import randomized_svd

        self._neighbours: Any = NearestNeighbors(n_neighbors=_NEIGHBOURS, algorithm="brute").fit(rows[:, :_GRAPH])
        distances, nearest = self._neighbours.kneighbors()
        self._reach = distances[:, -1]
        graph = self._neighbours.kneighbors_graph()
        graph.data = _likeness(distances, nearest, self._reach).ravel()
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
        weights = np.maximum(values[1:] - 1, 0) ** 5 / _average(vectors, distances, nearest, self._reach).std(axis=0)
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
