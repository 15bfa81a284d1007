"""What models learn from synthetic records: UCI Adult at epsilon 1, held against models that saw the real table."""

import csv
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from quorate.bench.figures import Figure, data_folder
from quorate.core.arrays import Floats
from quorate.release import Columns, QueryRelease, Workload
from quorate.tables import Category, Number

__all__ = ["AREAS", "NUMBERS", "Table", "learned_areas", "learning_figures", "read_table", "release_adult"]

TARGET = "income>50K"
AREAS = ("logistic", "boosted")
_RELEASES = 5
_ROWS = 100_000  # three times as many as the table has: the more, the less chance is in what is drawn
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")

Table = Mapping[str, list[Any]]


def learning_figures(quick: bool) -> Iterator[Figure]:
    """Yield the area under the curve of two models on Adult's test rows: learned from real and from synthetic rows."""
    folder = data_folder() / "adult"
    if not folder.exists():
        for name in AREAS:
            yield from ((f"release.learning.{name}.{end}", None, "share") for end in ("real", "synthetic", "lost"))
        return
    train, test = read_table(folder / "train.csv.gz"), read_table(folder / "test.csv.gz")
    real = learned_areas(train, test)
    runs = [learned_areas(release_adult(train, test), test) for _ in range(1 if quick else _RELEASES)]
    for name in AREAS:
        reached = median(run[name] for run in runs)
        yield f"release.learning.{name}.real", real[name], "share"
        yield f"release.learning.{name}.synthetic", reached, "share"
        yield f"release.learning.{name}.lost", real[name] - reached, "share"


def release_adult(train: Table, test: Table) -> Table:
    """Return synthetic records of the table, at epsilon 1.

    Nothing is known of numbers but that none is below 0: the release finds their cuts. Categories are those that the
    table's documentation lists: all that either file has.
    """
    kinds: dict[str, Any] = {}
    for name in train:
        if name in NUMBERS:
            kinds[name] = Number(closed=True)
        else:
            kinds[name] = Category(sorted({*train[name], *test[name]}), closed=True)
    release = QueryRelease(Workload.marginals(2), columns=Columns(kinds), error="weighted", target=TARGET)
    rows = release.fit(train).synthetic(_ROWS).to_pydict()
    return {name: [max(0, value) for value in rows[name]] if name in NUMBERS else rows[name] for name in rows}


def read_table(path: Path) -> Table:
    """Return the columns of a file of Adult: numbers, and texts."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    texts = {name: [row[name].rstrip(".") for row in rows] for name in rows[0]}
    return {name: [float(text) for text in column] if name in NUMBERS else column for name, column in texts.items()}


def learned_areas(train: Table, test: Table) -> dict[str, float]:
    """Return the area under the curve, on the test rows, of each model that has learned from these rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    labels = [np.array([value.startswith(">") for value in table[TARGET]]) for table in (train, test)]
    learned = {"logistic": (LogisticRegression(max_iter=500, C=0.1), _spread(train, test))}
    names = [name for name in train if name != TARGET]
    coded = [np.stack([_coded(one, train, test, name) for name in names], axis=1) for one in (train, test)]
    learned["boosted"] = (HistGradientBoostingClassifier(random_state=0, max_iter=100), coded)
    areas = {}
    for name, (model, (rows, asked)) in learned.items():
        model.fit(rows, labels[0])
        areas[name] = float(roc_auc_score(labels[1], model.predict_proba(asked)[:, 1]))
    return areas


def _coded(table: Table, train: Table, test: Table, name: str) -> Floats:
    if name in NUMBERS:
        return np.array(table[name], dtype=np.float64)
    places = {value: place for place, value in enumerate(sorted({*train[name], *test[name]}))}
    return np.array([places[value] for value in table[name]], dtype=np.float64)


def _spread(train: Table, test: Table) -> list[Floats]:
    """Return both tables with a column for each category, and numbers of mean 0 and deviation 1 in the first."""
    parts: list[list[Floats]] = [[], []]
    for name in train:
        if name == TARGET:
            continue
        pair = [_coded(table, train, test, name) for table in (train, test)]
        if name in NUMBERS:
            scaled = [np.log1p(values) if "capital" in name else values for values in pair]
            middle, width = scaled[0].mean(), scaled[0].std() or 1.0
            columns = [((values - middle) / width)[:, None] for values in scaled]
        else:
            columns = [np.eye(int(max(values.max() for values in pair)) + 1)[values.astype(int)] for values in pair]
        for part, column in zip(parts, columns, strict=True):
            part.append(column)
    return [np.concatenate(part, axis=1) for part in parts]
