"""Declared shares and weights of classes, and warnings about rare classes, before any record is read.

A teacher votes for the class that it finds most likely. A class with a share of 10% rarely is the most likely one, even
if the teachers rank well. So answers that are labels name the common class for almost every query.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from quorate.core.errors import InvalidInput

_SUM_TOLERANCE = 1e-6  # between 1 and the sum of declared shares, which people round
_RARE_SHARE = 0.4  # of an equal share; with two classes, a class of less than a fifth of the records is rare
_LEAST_RECORDS = 5  # of each class in a teacher's chunk
_FEW_RECORDS = 10.0  # of a class in a teacher's chunk; below this it rarely wins a vote, even with a large weight


def by_class(name: str, values: Any, classes: Sequence[Any]) -> tuple[float, ...]:
    """Return the positive number of each class, in the order of `classes`, from a mapping or a sequence."""
    if isinstance(values, Mapping):
        if set(values) != set(classes):
            raise InvalidInput(f"{name} must name each class once: {', '.join(map(str, classes))}")
        values = [values[label] for label in classes]
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, one for each class, got {values!r}") from None
    if len(numbers) != len(classes) or not all(0 < number < math.inf for number in numbers):
        raise InvalidInput(f"{name} must be {len(classes)} positive numbers, one for each class, got {values!r}")
    return numbers


def check_prior(prior: Any, classes: Sequence[Any]) -> tuple[float, ...]:
    """Return declared shares of the classes, which must sum to 1."""
    shares = by_class("prior", prior, classes)
    if abs(math.fsum(shares) - 1) > _SUM_TOLERANCE:
        raise InvalidInput(f"prior must be shares that sum to 1, got a sum of {math.fsum(shares):g}")
    return shares


def few_rows_warning(classes: int, *, rows: int | None) -> str | None:
    """Return a warning if a teacher has fewer than a few records of each class, else None.

    >>> few_rows_warning(26, rows=21)
    'a teacher has 21 records for 26 classes, and hardly learns them from fewer than 130: use fewer teachers'
    """
    if rows is None or rows >= _LEAST_RECORDS * classes:
        return None
    has = "1 record" if rows == 1 else f"{rows} records"
    return (
        f"a teacher has {has} for {classes} classes, and hardly learns them from fewer than "
        f"{_LEAST_RECORDS * classes}: use fewer teachers"
    )


def rare_class_warning(prior: Sequence[float], *, weighted: bool, rows: int | None) -> str | None:
    """Return a warning if answers are labels and a class of this declared prior is rare, else None.

    `weighted` says whether teachers weight the classes, `rows` how many records each of them has, if that is known.
    """
    share = min(prior)
    rare = f"a class of share {100 * share:.2g}%"
    if share >= _RARE_SHARE / len(prior) or (weighted and (rows is None or share * rows >= _FEW_RECORDS)):
        return None
    if not weighted:
        remedy = "use scores=True or class_weight='balanced' (--scores, --class-weight), or a linear model"
        return f"{rare} will rarely win a majority: {remedy}"
    return (
        f"{rare} has about {share * (rows or 0):.0f} of the {rows} records of a teacher, and will "
        "rarely win a majority even with class_weight: use scores=True (--scores), fewer teachers or a linear model"
    )


def takes_class_weight(estimator: Any) -> bool:
    """Return whether the estimator, or a part of it, takes class weights."""
    return bool(_weight_names(estimator))


def _weight_names(estimator: Any) -> list[str]:
    return [name for name in estimator.get_params() if name.rpartition("__")[2] == "class_weight"]


def weigh_classes(estimator: Any, weights: Literal["balanced"] | tuple[float, ...]) -> Any:
    """Return a copy of the estimator with these class weights, by class number.

    With "balanced", each teacher computes the weights from its own rows.
    """
    names = _weight_names(estimator)
    if not names:
        raise InvalidInput(
            f"{type(estimator).__name__} takes no class_weight; LogisticRegression, trees and forests do"
        )
    value = weights if weights == "balanced" else dict(enumerate(weights))
    return estimator.set_params(**dict.fromkeys(names, value))
