"""What private logistic regression reaches on UCI Adult and Bank Marketing: medians over five splits.

Adult: the training records are private; a random half of the test file is public and unlabelled, the other half judges.
Bank: a random two thirds are private, and the rest is halved in the same way. Columns are automatic and include all of
the table. The public rows of one sex, or of people over 45, are those of the public half; where nothing is public,
bounds and categories are declared. Labels of public rows are never read. A quick run takes one split and fewer figures.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from quorate.bench.figures import Figure, data_folder, peak_bytes
from quorate.bench.texts import text_figures

__all__ = ["linear_figures"]

_DELTA = 1e-5
_SPLITS = 5
_EPSILONS = {"adult": (1.0, 0.25, 0.05), "bank": (1.0, 0.25)}
_NOTHING = "nothing"  # public
_PARTS: dict[str, Callable[[Any], Any]] = {
    "women": lambda table: table["sex"] == "Female",
    "men": lambda table: table["sex"] == "Male",
    "over_45": lambda table: table["age"] > 45,
}
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
_FILES = {"adult": ("train.csv.gz", "test.csv.gz"), "bank": ("bank-full.csv.gz",)}


def linear_figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    for table, epsilons in _EPSILONS.items():
        for epsilon in epsilons:
            yield from _figures(f"linear.{table}.epsilon{epsilon:g}", table, epsilon, None, quick)
    for part, chosen in _PARTS.items():
        yield from _figures(f"linear.adult.public_{part}.epsilon1", "adult", 1.0, chosen, quick)
    for table in _BOUNDS:
        yield from _figures(f"linear.{table}.nothing_public.epsilon1", table, 1.0, _NOTHING, quick)
    yield from _size_figures(quick)
    yield from text_figures(quick)


def _figures(name: str, table: str, epsilon: float, chosen: Any, quick: bool) -> Iterator[Figure]:
    folder = data_folder() / table
    runs = []
    if (folder / _FILES[table][0]).exists():
        runs = [_run(folder, table, epsilon, chosen, seed) for seed in range(1 if quick else _SPLITS)]
    for place, (measure, unit) in enumerate((("auc", ""), ("accuracy_percent", "%"), ("balanced_percent", "%"))):
        yield f"{name}.{measure}", median(run[place] for run in runs) if runs else None, unit


def _run(folder: Path, table: str, epsilon: float, chosen: Any, seed: int) -> tuple[float, float, float]:
    """Return the AUC, the accuracy, and the balanced accuracy where a class counts for its share."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    from quorate.linear import PrivateLogisticRegression

    private, y, rest, labels = _tables(folder, table, np.random.default_rng(seed))
    half = len(rest) // 2
    public, judges = rest[:half], rest[half:]
    columns = _declared(table, private, rest) if chosen == _NOTHING else None
    model = PrivateLogisticRegression(epsilon=epsilon, delta=_DELTA, classes=[False, True], columns=columns)
    if chosen == _NOTHING:
        model.fit(private, y)
    else:
        model.fit(private, y, public=public if chosen is None else public[chosen(public)])
    score, truth = model.decision_function(judges), labels[half:]
    prior = model.predict_proba(public)[:, 1].mean()  # released, so that the threshold is free
    balanced = balanced_accuracy_score(truth, score > np.log(prior / (1 - prior)))
    right = float(np.mean((score > 0) == truth))
    return float(roc_auc_score(truth, score)), 100 * right, 100 * float(balanced)


def _tables(folder: Path, table: str, generator: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Return the private rows and labels, and the rest in random order."""
    import pandas

    column, positive = _TARGETS[table]
    frames = [pandas.read_csv(folder / name, skipinitialspace=True) for name in _FILES[table]]
    if len(frames) == 1:
        order = generator.permutation(len(frames[0]))
        cut = len(order) * 2 // 3
        frames = [frames[0].iloc[order[:cut]], frames[0].iloc[order[cut:]]]
    private, rest = frames[0], frames[1].iloc[generator.permutation(len(frames[1]))]
    labels = [frame[column].str.startswith(positive).to_numpy() for frame in (private, rest)]
    drop = [frame.drop(columns=column).reset_index(drop=True) for frame in (private, rest)]
    return drop[0], labels[0], drop[1], labels[1]


def _declared(table: str, private: Any, rest: Any) -> Any:
    """Return columns of which only the bounds of numbers and the names of categories are known."""
    from quorate.features import AdditiveColumns

    known = {
        name: _BOUNDS[table].get(name) or sorted({*private[name].astype(str), *rest[name].astype(str)})
        for name in private.columns
    }
    return AdditiveColumns(declared=known)


def _size_figures(quick: bool) -> Iterator[Figure]:
    """Yield how long a million rows of 100 columns take with the default columns, and how much memory."""
    seconds, memory = (None, None) if quick else _million_rows()
    yield "linear.million_rows.seconds", seconds, "s"
    yield "linear.million_rows.peak_bytes", memory, "bytes"


def _million_rows() -> tuple[float, float]:
    from quorate.linear import PrivateLogisticRegression

    generator = np.random.default_rng(0)
    X = generator.normal(size=(1_000_000, 100))
    y = X[:, 0] + X[:, 1] + generator.normal(size=len(X)) > 0
    before = time.perf_counter()
    PrivateLogisticRegression(classes=[False, True]).fit(X, y, public=X[:2000] + 0.0)
    return time.perf_counter() - before, float(peak_bytes())
