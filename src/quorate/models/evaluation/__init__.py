"""Test a published model privately on held-out rows: error, recalls, area under the curve, calibration, by group.

Each unit is counted once, by the first of its rows, in a cell of two public grids:

    (group, label, wrong or right)           for error rates and recalls
    (group, label, bin of the probability)   for the area under the curve and calibration; with more than two classes
                                             (group, wrong or right, bin of the largest probability)

Claim: the counts are released once, with exact discrete Gaussian noise, and are (epsilon, delta)-differentially private
under replacement of one unit's rows. Everything else is post-processing. PROOF.md proves this and the coverage of the
intervals.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length

from quorate.core.arrays import Integers
from quorate.core.ballots import Ballots, release_counts
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVector
from quorate.core.privacy.claims import Claim, replaced
from quorate.core.rows import take_rows
from quorate.models.account import Account
from quorate.models.evaluation.measures import ModelCheck, ReleasedCounts
from quorate.models.evaluation.rows import (
    check_published,
    classes_of,
    count_cells,
    first_rows,
    labels_by_row,
    private_rows,
    probabilities_by_row,
)
from quorate.models.predictors.labels import class_codes
from quorate.tables.containers import open_column
from quorate.tables.schema import Schema
from quorate.tables.values import read_texts

__all__ = ["ModelCheck", "check_model"]


OTHER = "other"  # the group of units whose group is not declared
_FARTHEST = 4.0  # log-odds at which the first bin ends and the last one begins
_SHARES = (1.0, 2.0)  # of the budget of both grids; the second has more cells, whose noise adds up


def check_model(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    groups: Any = None,
    by: Any = None,
    by_values: Sequence[Any] | None = None,
    bins: int = 20,
    confidence: float = 0.95,
    account: Any = None,
    schema: Schema | None = None,
) -> ModelCheck:
    """Test a published classifier privately on held-out rows, before it is published or used.

    Parameters
    ----------
    model
        Any fitted classifier that was published or is public. Without `predict_proba` there is no auc and no
        calibration.
    X, y
        Private rows that the model has not seen, and their labels.
    epsilon, delta
        The privacy loss allowed for all figures together.
    groups
        The person of each row, if the person is protected: the first row of each person counts.
    by
        The group of each row, such as its region, for figures by group.
    by_values
        All groups; others are counted as "other". If not declared, they are read from `by` and become public.
    bins
        The number of bins of probabilities, an even number. The auc is that of the probability rounded to its bin.
    confidence
        The least coverage of each interval.
    account
        An `Account`, or its folder: a total that this test draws on, with models about the same people.
    schema
        Which columns of a data frame hold numbers, dates or texts, for a model that does not show it.

    >>> from sklearn.linear_model import LogisticRegression
    >>> draw = np.random.default_rng(0)
    >>> X = draw.normal(size=(22_000, 1))
    >>> y = (X[:, 0] + draw.logistic(size=22_000) > 0).astype(int)
    >>> published = LogisticRegression().fit(X[:2000], y[:2000])  # stands for a model that was published
    >>> error = check_model(published, X[2000:], y[2000:], epsilon=1.0).measure("error")
    >>> 0.28 < error.low < error.estimate < error.high < 0.34
    True
    """
    bins = _check_settings(model, bins, confidence)
    if account is not None:
        account = Account.of(account)
        epsilon, delta = account.whole(epsilon, delta)
    classes = classes_of(model)
    names, group_numbers = _named_groups(by, by_values)
    columns: Any = BaseEstimator()
    rows = private_rows(columns, model, X, schema)
    _, first, units = first_rows(len(rows), groups, y)
    labels = class_codes(classes, y)[first]
    check_consistent_length(X, by)
    where = np.zeros(units, dtype=np.int64) if by is None else group_numbers[first]
    edges = 1 / (1 + np.exp(-np.linspace(-_FARTHEST, _FARTHEST, bins - 1)))
    parts = _grids(model, take_rows(rows, first), labels, where, groups=len(names), edges=edges)
    noisy = NoisyVector.calibrate(
        epsilon=epsilon, delta=delta, squared_sensitivities=(2,) * len(parts), shares=_SHARES[: len(parts)]
    )
    if account is not None:
        account.charge(epsilon=epsilon, delta=delta, unit="record" if groups is None else "person")
    tables = _release_tables(noisy, parts)
    released = ReleasedCounts(
        groups=names,
        classes=[str(label) for label in classes.tolist()],
        labels=tables[0],
        bins=tables[1] if len(tables) == 2 else None,
        scales=noisy.scales,
        units=units,
        miss=1 - confidence,
    )
    unit = "row" if groups is None else "person"
    conditions = {
        "the model is taken as public": True,
        "the groups were read from by and count as public": by is not None and by_values is None,
        "" if account is None else str(account.total): account is not None,
    }
    open_ = tuple(text for text, holds in conditions.items() if holds)
    return ModelCheck(
        claim=str(Claim(epsilon, delta, unit=replaced(unit), conditions=open_)),
        epsilon=float(epsilon),
        delta=float(delta),
        unit=unit,
        units=units,
        confidence=float(confidence),
        scales=noisy.scales,
        measures=tuple(released.measures()),
        calibration=tuple(released.calibration(edges)),
        counts=tuple(tables),
    )


def _grids(
    model: Any, rows: Any, labels: Integers, where: Integers, *, groups: int, edges: NDArray[np.float64]
) -> list[Integers]:
    """Return counts by group, label and correctness, and by group, label and bin if the model has probabilities."""
    classes = classes_of(model)
    right = (labels_by_row(model, rows) == labels).astype(np.int64)
    parts = [count_cells((groups, classes.size, 2), where, labels, right)]
    if hasattr(model, "predict_proba"):
        probabilities, is_binary = probabilities_by_row(model, rows), classes.size == 2
        bin_of = np.searchsorted(edges, probabilities[:, 1] if is_binary else probabilities.max(axis=1), side="right")
        outcome = labels if is_binary else np.where(labels < 0, -1, right)
        parts.append(count_cells((groups, 2, len(edges) + 1), where, outcome, bin_of))
    return parts


def _check_settings(model: Any, bins: int, confidence: float) -> int:
    check_published(model)
    if check_rate("confidence", confidence) == 1:
        raise InvalidInput("confidence must be below 1, got 1; take 0.95")
    if check_count("bins", bins, least=4) % 2:
        raise InvalidInput(f"bins must be an even number, got {bins}")
    return int(bins)


def _named_groups(by: Any, values: Sequence[Any] | None) -> tuple[list[str], Integers]:
    if by is None:
        if values is not None:
            raise InvalidInput("by_values requires by")
        return ["all"], np.empty(0, dtype=np.int64)
    texts = _texts(by)  # proof: step 2: each alone, since a missing value turns integers into floats
    declared = sorted(set(texts)) if values is None else _texts(list(values))
    if len(set(declared)) != len(declared) or {"all", OTHER} & set(declared):
        raise InvalidInput("by_values must name each group once, without the reserved names 'all' and 'other'")
    names = declared if values is None else [*declared, OTHER]
    number = {name: position for position, name in enumerate(declared)}
    return names, np.array([number.get(value, len(declared)) for value in texts], dtype=np.int64)


def _texts(values: Any) -> list[str]:
    """Convert each value to text by itself; a missing value becomes "nan"."""
    return ["nan" if text is None else text for text in read_texts(open_column(values, name="by"), ()).to_pylist()]


def _release_tables(noisy: NoisyVector, parts: Sequence[Integers]) -> list[Integers]:
    """Release all counts at once, sealed until they meet the noise."""
    ends = np.cumsum([part.size for part in parts])[:-1]
    sealed = Ballots(np.concatenate([part.reshape(-1) for part in parts]))
    released = release_counts(sealed, lambda counts: noisy.release(np.split(counts, ends)))  # proof: step 3
    return [flat.reshape(part.shape) for flat, part in zip(released, parts, strict=True)]
