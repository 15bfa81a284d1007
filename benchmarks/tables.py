"""Five public tables, dealt into private rows, public rows without labels, and rows that judge.

Adult: the training records are private; a random half of the test file is public, the other half judges. Bank
Marketing, default of credit cards, bike sharing and abalone: a random two thirds are private, and the rest is halved in
the same way. The last two have numbers as targets.
"""

import bz2
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import data_folder

_BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    # What an owner may declare of numbers without looking at a row; categories are those of the documentation.
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
        "balance": (-10_000, 150_000),
        "day": (1, 31),
        "duration": (0, 5000),
        "campaign": (1, 60),
        "pdays": (-1, 900),
        "previous": (0, 300),
    },
    "credit": {
        "LIMIT_BAL": (0, 1_000_000),
        "AGE": (18, 90),
        **{f"PAY_{month}": (-2, 9) for month in (0, 2, 3, 4, 5, 6)},
        **{f"BILL_AMT{month}": (-200_000, 1_000_000) for month in range(1, 7)},
        **{f"PAY_AMT{month}": (0, 1_000_000) for month in range(1, 7)},
    },
    "bike": {
        "season": (1, 4),
        "yr": (0, 1),
        "mnth": (1, 12),
        "hr": (0, 23),
        "holiday": (0, 1),
        "weekday": (0, 6),
        "workingday": (0, 1),
        "weathersit": (1, 4),
        "temp": (0, 1),
        "hum": (0, 1),
        "windspeed": (0, 1),
    },
    "abalone": {f"column{number}": (-1, 1) for number in range(1, 9)},
}
_TARGETS = {  # the column, and how a positive label begins
    "adult": ("income>50K", ">"),
    "bank": ("y", "yes"),
    "credit": ("default", "Y"),
    "bike": ("cnt", None),
    "abalone": ("rings", None),
}
TABLES = tuple(_TARGETS)
TARGET_BOUNDS = {"bike": (0.0, 1000.0), "abalone": (0.0, 30.0)}  # of numbers, declared as those of the columns
_FILES = {
    "adult": ("train.csv.gz", "test.csv.gz"),
    "bank": ("bank-full.csv.gz",),
    "credit": ("credit.csv.gz",),
    "bike": ("hour.csv.gz",),
    "abalone": ("abalone.svmlight.bz2",),
}
_UNUSED = {"credit": ["ID"], "bike": ["instant", "dteday", "casual", "registered"]}


@dataclass(frozen=True)
class Split:
    """One deal of a table. Labels of public rows are not there."""

    table: str
    private: Any
    labels: NDArray[Any]
    public: Any
    judges: Any
    truth: NDArray[Any]

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """How small and how large each number may be."""
        return _BOUNDS[self.table]

    @property
    def target_bounds(self) -> tuple[float, float] | None:
        """How small and how large a target may be; None where it is a label."""
        return TARGET_BOUNDS.get(self.table)

    @cached_property
    def categories(self) -> dict[str, list[str]]:
        """The values of every column that is no number."""
        frames = (self.private, self.public, self.judges)
        names = [name for name in self.private.columns if name not in self.bounds]
        return {name: sorted({value for frame in frames for value in frame[name].astype(str)}) for name in names}

    def declared(self) -> dict[str, Any]:
        """Return what may be declared of each column."""
        return {name: self.bounds.get(name) or self.categories[name] for name in self.private.columns}

    def prefix(self, rows: int) -> "Split":
        """Return the same deal with the first private rows alone."""
        return replace(self, private=self.private[:rows], labels=self.labels[:rows])


def split_of(table: str, number: int) -> Split | None:
    """Return one deal of a table; None where its files are absent."""
    paths = [data_folder() / table / name for name in _FILES[table]]
    if not paths[0].exists():
        return None
    generator = np.random.default_rng(number)
    column, positive = _TARGETS[table]
    frames = [_read(path).drop(columns=_UNUSED.get(table, [])) for path in paths]
    if len(frames) == 1:
        order = generator.permutation(len(frames[0]))
        cut = len(order) * 2 // 3
        frames = [frames[0].iloc[order[:cut]], frames[0].iloc[order[cut:]]]
    private, rest = frames[0], frames[1].iloc[generator.permutation(len(frames[1]))]
    labels = [_targets(frame[column], positive) for frame in (private, rest)]
    private, rest = (frame.drop(columns=column).reset_index(drop=True) for frame in (private, rest))
    half = len(rest) // 2
    return Split(table, private, labels[0], rest[:half], rest[half:], labels[1][half:])


def _targets(column: Any, positive: str | None) -> NDArray[Any]:
    labels = column.to_numpy(float) if positive is None else column.str.startswith(positive).to_numpy()
    return np.asarray(labels)


def _read(path: Path) -> Any:
    import pandas

    if path.name.endswith(".svmlight.bz2"):
        from sklearn.datasets import load_svmlight_file

        with bz2.open(path) as file:
            rows, target = load_svmlight_file(file)
        names = [f"column{number}" for number in range(1, rows.shape[1] + 1)]
        return pandas.DataFrame(rows.toarray(), columns=names).assign(rings=target)
    return pandas.read_csv(path, skipinitialspace=True, encoding="utf-8-sig").rename(columns=str.strip)
