"""What private linear models reach: medians over splits (`tables.py`). A quick run takes one split and fewer figures.

Five tables by three roads, few rows, odd columns and peers: `model_tables.py`. Texts and their embeddings: `texts.py`.
Here: Adult with smaller budgets and with wrong public rows, MNIST, and the time of a million rows.

The public rows of one sex, or of people over 45, are those of the public half. Where public rows are wrong, bounds and
categories are declared beside them: they are those of another table under the names of this one, numbers that are
shifted, columns that are exchanged, or columns that are drawn independently of each other.
"""

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np

from benchmarks.data import digit_splits
from benchmarks.figures import Figure, peak_bytes
from benchmarks.model_tables import DELTA, SPLITS, road_figures, run_linear, table_figures
from benchmarks.tables import split_of
from benchmarks.texts import text_figures

_SMALL_EPSILONS = {"adult": (0.25, 0.05), "bank": (0.25,)}
_DIGIT_EPSILON = 0.3
_DIGIT_RIDGE = 0.01  # compared with 0.1 on training images that were left out
_PARTS: dict[str, Callable[[Any], Any]] = {
    "women": lambda table: table[table["sex"] == "Female"],
    "men": lambda table: table[table["sex"] == "Male"],
    "over_45": lambda table: table[table["age"] > 45],
}
_WRONG_EPSILONS = (1.0, 0.25)
_WRONG_SPLITS = 3


def _is_number(column: Any) -> bool:
    return column.dtype.kind in "fiub"


def _of_the_bank(public: Any) -> Any:
    """Return rows of Bank in the columns of Adult: numbers in those of numbers, texts in those of texts."""
    bank = split_of("bank", 0)
    assert bank is not None
    rows = bank.public[: len(public)]
    numbers, texts = cycle(bank.bounds), cycle(bank.categories)
    columns = {name: rows[next(numbers if _is_number(public[name]) else texts)] for name in public}
    return type(public)(columns)


def _exchanged(public: Any) -> Any:
    """Return rows whose columns have moved on by one, numbers among numbers and texts among texts."""
    numbers = [name for name in public if _is_number(public[name])]
    texts = [name for name in public if name not in numbers]
    moved = {old: new for names in (numbers, texts) for old, new in zip(names, names[1:] + names[:1], strict=True)}
    return public.rename(columns=moved)[list(public)]


def _shifted(public: Any) -> Any:
    """Return rows whose numbers are three times as large and more."""
    numbers = [name for name in public if _is_number(public[name])]
    return public.assign(**{name: 3 * public[name] + public[name].std() for name in numbers})


def _independent(public: Any) -> Any:
    """Return rows whose columns are drawn independently of each other: every mean is right."""
    generator = np.random.default_rng(0)
    return public.assign(**{name: generator.permutation(public[name].to_numpy()) for name in public})


_WRONG: dict[str, Callable[[Any], Any]] = {
    "bank": _of_the_bank,
    "exchanged": _exchanged,
    "shifted": _shifted,
    "independent": _independent,
}


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    yield from table_figures(quick)
    yield from _public_figures(quick)
    yield from _digit_figures(quick)
    yield from _size_figures(quick)
    yield from text_figures(quick)


def _public_figures(quick: bool) -> Iterator[Figure]:
    """Yield figures of smaller budgets, of a part of the public rows, and of wrong ones. A quick run has epsilon 1."""
    splits = 1 if quick else SPLITS
    for table, epsilons in _SMALL_EPSILONS.items():
        for epsilon in epsilons:
            runs = _runs(table, epsilon, "public", 0 if quick else splits)
            yield from road_figures(f"linear.{table}.epsilon{epsilon:g}", table, runs)
    for part, chosen in _PARTS.items():
        runs = _runs("adult", 1.0, "public", splits, chosen)
        yield from road_figures(f"linear.adult.public_{part}.epsilon1", "adult", runs)
    for epsilon in _WRONG_EPSILONS:
        splits = int(epsilon == 1.0) if quick else _WRONG_SPLITS
        nothing = _runs("adult", epsilon, "declared", splits)
        for wrong, changed in _WRONG.items():
            about = f"linear.adult.wrong_{wrong}.epsilon{epsilon:g}"
            runs = _runs("adult", epsilon, "wrong", splits, changed)
            yield from road_figures(about, "adult", runs)
            lost = [tuple(np.subtract(without, run)) for without, run in zip(nothing, runs, strict=True)]
            for index, (measure, unit) in enumerate((("auc", ""), ("accuracy_percent", "%"))):
                yield f"{about}.{measure}_lost", median(run[index] for run in lost) if lost else None, unit


def _runs(
    table: str, epsilon: float, road: str, splits: int, changed: Callable[[Any], Any] | None = None
) -> list[tuple[float, ...]]:
    """Return a run for each split; `changed` makes its public rows from those of the public half."""
    dealt = [split for seed in range(splits) if (split := split_of(table, seed)) is not None]
    return [run_linear(split, epsilon, road, None if changed is None else changed(split.public)) for split in dealt]


def _digit_figures(quick: bool) -> Iterator[Figure]:
    """Yield how many digits are told right by the model as it comes, and by one that it teaches.

    The other one is a logistic regression of all classes together on public images, as the model labels them: what is
    published may label whatever is public, for nothing more.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from quorate.models.linear import PrivateLogisticRegression

    reached, taught = [], []
    for split in digit_splits(quick):
        model = PrivateLogisticRegression(epsilon=_DIGIT_EPSILON, delta=DELTA, classes=list(range(10)))
        model.fit(split.private, split.labels, public=split.public)
        reached.append(100 * float(model.score(split.judges, split.truth)))
        student = make_pipeline(StandardScaler(), LogisticRegression(C=_DIGIT_RIDGE, max_iter=1000))
        student.fit(split.public, model.predict(split.public))
        taught.append(100 * float(student.score(split.judges, split.truth)))
    for name, values in (("accuracy_percent", reached), ("taught_percent", taught)):
        yield f"linear.mnist.epsilon{_DIGIT_EPSILON:g}.{name}", median(values) if values else None, "%"


def _size_figures(quick: bool) -> Iterator[Figure]:
    """Yield how long a million rows of 100 columns take with the default columns, and how much memory."""
    seconds, memory = (None, None) if quick else _million_rows()
    yield "linear.million_rows.seconds", seconds, "s"
    yield "linear.million_rows.peak_bytes", memory, "bytes"


def _million_rows() -> tuple[float, float]:
    from quorate.models.linear import PrivateLogisticRegression

    generator = np.random.default_rng(0)
    X = generator.normal(size=(1_000_000, 100))
    y = X[:, 0] + X[:, 1] + generator.normal(size=len(X)) > 0
    start = time.perf_counter()
    PrivateLogisticRegression(classes=[False, True]).fit(X, y, public=X[:2000] + 0.0)
    return time.perf_counter() - start, float(peak_bytes())
