"""What private logistic regression reaches on UCI Adult, Bank Marketing and MNIST: medians over splits (`splits.py`).

Columns are automatic and include all of the table. The public rows of one sex, or of people over 45, are those of the
public half; where nothing is public, bounds and categories are declared, and so they are where the public rows are
wrong: those of another table under the names of this one, numbers that are shifted, columns that are exchanged, or
columns that are drawn independently of each other. A quick run takes one split and fewer figures.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np

from quorate.bench.figures import Figure, peak_bytes
from quorate.bench.model_peers import model_peer_figures
from quorate.bench.splits import Split, digit_splits, split_of
from quorate.bench.texts import text_figures

__all__ = ["linear_figures"]

Run = tuple[float, float, float]  # the AUC, the accuracy and the balanced accuracy

_DELTA = 1e-5
_SPLITS = 5
_EPSILONS = {"adult": (4.0, 1.0, 0.25, 0.05), "bank": (4.0, 1.0, 0.25)}
_NOTHING_PUBLIC = (4.0, 1.0, 0.25)
_DIGIT_EPSILON = 0.3
_DIGIT_RIDGE = 0.01  # compared with 0.1 on training images that were left out
_PARTS: dict[str, Callable[[Any], Any]] = {
    "women": lambda table: table[table["sex"] == "Female"],
    "men": lambda table: table[table["sex"] == "Male"],
    "over_45": lambda table: table[table["age"] > 45],
}
_WRONG_EPSILONS = (1.0, 0.25)
_WRONG_SPLITS = 3


def _as_it_is(public: Any) -> Any:
    return public


def _is_number(column: Any) -> bool:
    return column.dtype.kind in "fiub"


def _of_the_bank(public: Any) -> Any:
    """Return rows of Bank in the columns of Adult: numbers in those of numbers, texts in those of texts."""
    bank = split_of("bank", 0)
    assert bank is not None
    rows = bank.public[: len(public)]
    numbers, texts = cycle(bank.bounds), cycle(bank.categories)
    taken = {name: rows[next(numbers if _is_number(public[name]) else texts)] for name in public}
    return type(public)(taken)


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


def linear_figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    known: dict[str, list[Run]] = {}
    ours: dict[str, float | None] = {}
    for name, runs in _roads(quick):
        known[name] = runs
        for measure, value, unit in _medians(runs):
            ours[f"{name}.{measure}"] = value
            yield f"{name}.{measure}", value, unit
        road = next((f"wrong_{wrong}" for wrong in _WRONG if f".wrong_{wrong}." in name), None)
        if road is not None:  # what is lost against no public rows, split by split
            pairs = zip(known[name.replace(road, "nothing_public")], runs, strict=False)
            lost = [tuple(np.subtract(without, run)) for without, run in pairs]
            yield from ((f"{name}.{measure}_lost", value, unit) for measure, value, unit in _medians(lost)[:2])
    yield from _digit_figures(quick)
    yield from model_peer_figures(ours, quick)
    yield from _size_figures(quick)
    yield from text_figures(quick)


def _roads(quick: bool) -> Iterator[tuple[str, list[Run]]]:
    """Yield the name of each road and its runs, one a split."""
    splits = 1 if quick else _SPLITS
    for table, epsilons in _EPSILONS.items():
        for epsilon in epsilons:
            yield f"linear.{table}.epsilon{epsilon:g}", _runs(table, epsilon, _as_it_is, splits)
        for epsilon in _NOTHING_PUBLIC:
            yield f"linear.{table}.nothing_public.epsilon{epsilon:g}", _runs(table, epsilon, None, splits)
    for part, chosen in _PARTS.items():
        yield f"linear.adult.public_{part}.epsilon1", _runs("adult", 1.0, chosen, splits)
    for epsilon in _WRONG_EPSILONS:
        for wrong, changed in _WRONG.items():
            runs = _runs("adult", epsilon, changed, min(splits, _WRONG_SPLITS), declared=True)
            yield f"linear.adult.wrong_{wrong}.epsilon{epsilon:g}", runs


def _runs(
    table: str, epsilon: float, public: Callable[[Any], Any] | None, splits: int, *, declared: bool = False
) -> list[Run]:
    """Return a run for each split. `public` says which rows of the public half are public; None if there are none."""
    dealt = [split for seed in range(splits) if (split := split_of(table, seed)) is not None]
    return [_run(split, epsilon, public, declared=declared or public is None) for split in dealt]


def _medians(runs: Sequence[Sequence[float]]) -> list[Figure]:
    measures = (("auc", ""), ("accuracy_percent", "%"), ("balanced_percent", "%"))
    return [
        (measure, median(run[place] for run in runs) if runs else None, unit)
        for place, (measure, unit) in enumerate(measures)
    ]


def _run(split: Split, epsilon: float, public: Callable[[Any], Any] | None, *, declared: bool) -> Run:
    """Return the AUC, the accuracy, and the balanced accuracy where a class counts for its share."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    from quorate.models.linear import PrivateLogisticRegression
    from quorate.tables.features import AdditiveColumns

    columns = AdditiveColumns(declared=split.declared()) if declared else None
    model = PrivateLogisticRegression(epsilon=epsilon, delta=_DELTA, classes=[False, True], columns=columns)
    model.fit(split.private, split.labels, public=None if public is None else public(split.public))
    score = model.decision_function(split.judges)
    prior = model.predict_proba(split.public)[:, 1].mean()  # released, so that the threshold is free
    balanced = balanced_accuracy_score(split.truth, score > np.log(prior / (1 - prior)))
    right = float(np.mean((score > 0) == split.truth))
    return float(roc_auc_score(split.truth, score)), 100 * right, 100 * float(balanced)


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
        model = PrivateLogisticRegression(epsilon=_DIGIT_EPSILON, delta=_DELTA, classes=list(range(10)))
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
    before = time.perf_counter()
    PrivateLogisticRegression(classes=[False, True]).fit(X, y, public=X[:2000] + 0.0)
    return time.perf_counter() - before, float(peak_bytes())
