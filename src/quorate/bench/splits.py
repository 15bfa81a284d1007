"""UCI Adult, Bank Marketing and MNIST, dealt into private rows, public rows and judges.

Adult: the training records are private; a random half of the test file is public and unlabelled, the other half judges.
Bank: a random two thirds are private, and the rest is halved in the same way. MNIST: the 60,000 training images are
private; 9,000 random test images are public and unlabelled, as in PATE (Papernot et al. 2018), and the other 1,000
judge; features are learned from the public ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.bench.digit_features import DigitFeatures, upright
from quorate.bench.figures import data_folder
from quorate.core.arrays import Floats

__all__ = ["TABLES", "DigitSplit", "Split", "digit_splits", "random_halves", "split_of"]

TABLES = ("adult", "bank")
_BOUNDS = {  # what an owner may declare of numbers without looking at a row; categories are those of the documentation
    "adult": {
        "age": (17, 90),
        "fnlwgt": (0, 1_500_000),
        "education-num": (1, 16),
        "capital-gain": (0, 100_000),
        "capital-loss": (0, 5000),
        "hours-per-week": (1, 99),
    },
    "bank": {
        "age": (18, 95),
        "balance": (-10_000, 100_000),
        "day": (1, 31),
        "duration": (0, 5000),
        "campaign": (1, 60),
        "pdays": (-1, 900),
        "previous": (0, 300),
    },
}
_TARGETS = {"adult": ("income>50K", ">"), "bank": ("y", "yes")}
_DIGIT_JUDGES = 1000
_FILES = {"adult": ("train.csv.gz", "test.csv.gz"), "bank": ("bank-full.csv.gz",)}


@dataclass(frozen=True)
class Split:
    """One deal of a table. Labels of public rows are not there."""

    table: str
    private: Any
    labels: NDArray[np.bool_]
    public: Any
    judges: Any
    truth: NDArray[np.bool_]

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """How small and how large each number may be."""
        return _BOUNDS[self.table]

    @cached_property
    def categories(self) -> dict[str, list[str]]:
        """The values of every column that is no number."""
        frames = (self.private, self.public, self.judges)
        names = [name for name in self.private.columns if name not in self.bounds]
        return {name: sorted({value for frame in frames for value in frame[name].astype(str)}) for name in names}

    def declared(self) -> dict[str, Any]:
        """Return what may be declared of each column."""
        return {name: self.bounds.get(name) or self.categories[name] for name in self.private.columns}


def random_halves(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a random half of the rows, and of the other half."""
    order = np.random.default_rng().permutation(rows)
    return order[: rows // 2], order[rows // 2 :]


def split_of(table: str, number: int) -> Split | None:
    """Return one deal of a table; None where its files are absent."""
    folder = data_folder() / table
    if not (folder / _FILES[table][0]).exists():
        return None
    import pandas

    generator = np.random.default_rng(number)
    column, positive = _TARGETS[table]
    frames = [pandas.read_csv(folder / name, skipinitialspace=True) for name in _FILES[table]]
    if len(frames) == 1:
        order = generator.permutation(len(frames[0]))
        cut = len(order) * 2 // 3
        frames = [frames[0].iloc[order[:cut]], frames[0].iloc[order[cut:]]]
    private, rest = frames[0], frames[1].iloc[generator.permutation(len(frames[1]))]
    labels = [frame[column].str.startswith(positive).to_numpy() for frame in (private, rest)]
    private, rest = (frame.drop(columns=column).reset_index(drop=True) for frame in (private, rest))
    half = len(rest) // 2
    return Split(table, private, labels[0], rest[:half], rest[half:], labels[1][half:])


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
        known = features.fit_transform(rest[public])
        dealt = features.transform(private), arrays["y_train"][:images], known, features.transform(rest[judges])
        yield DigitSplit(*dealt, arrays["y_test"][judges])
