"""What is declared of classes before any record is read: their shares and weights; and what is to be said of rare ones.

A teacher votes for the class that it finds most likely. A class of share 10% is seldom that, however well the teachers
rank: with labels alone, everybody is answered with the common class.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from quorate.core.errors import InvalidInput

_SUM = 1e-6  # by how much shares may miss 1, for those who round them
_RARE = 0.4  # of an equal share: below, a class is rare (with two classes, below a fifth of the records)
_EACH = 5  # records of each class that a teacher learns from, at least
_FEW = 10.0  # records of a class in a teacher's chunk below which it hardly wins a ballot, whatever it weighs


def by_class(name: str, values: Any, classes: Sequence[Any]) -> tuple[float, ...]:
    """Return one positive number for each class, in the order of the classes, of a mapping or of a sequence."""
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
    if abs(math.fsum(shares) - 1) > _SUM:
        raise InvalidInput(f"prior must be shares that sum to 1, and these sum to {math.fsum(shares):g}")
    return shares


def few_rows_warning(classes: int, *, rows: int | None) -> str | None:
    """Return what to say where a teacher has fewer records than a few of each class, or None.

    >>> few_rows_warning(26, rows=21)
    'a teacher has 21 records for 26 classes, and hardly learns them from fewer than 130: use fewer teachers'
    """
    if rows is None or rows >= _EACH * classes:
        return None
    has = "1 record" if rows == 1 else f"{rows} records"
    return (
        f"a teacher has {has} for {classes} classes, and hardly learns them from fewer than {_EACH * classes}: "
        "use fewer teachers"
    )


def rare_class_warning(prior: Sequence[float], *, weighted: bool, rows: int | None) -> str | None:
    """Return what to say to who asks for labels where a class is rare, or None where nothing is to be said.

    `weighted` says that teachers weigh classes; `rows` is how many records each of them has, if that is known.
    """
    share = min(prior)
    rare = f"a class of share {100 * share:.2g}%"
    if share >= _RARE / len(prior) or (weighted and (rows is None or share * rows >= _FEW)):
        return None
    if not weighted:
        remedy = "use scores=True or class_weight='balanced' (--scores, --class-weight), or a linear model"
        return f"{rare} will rarely win a majority: {remedy}"
    return (
        f"{rare} has about {share * (rows or 0):.0f} of the {rows} records of a teacher, and will "
        "rarely win a majority even with class_weight: use scores=True (--scores), fewer teachers or a linear model"
    )


def takes_class_weight(estimator: Any) -> bool:
    """Return whether the estimator, or one in it, weighs classes."""
    return bool(_weight_names(estimator))


def _weight_names(estimator: Any) -> list[str]:
    return [name for name in estimator.get_params() if name.rpartition("__")[2] == "class_weight"]


def weigh_classes(estimator: Any, weights: Literal["balanced"] | tuple[float, ...]) -> Any:
    """Return the estimator with these weights of its classes, which teachers know by their numbers.

    "balanced" weights are made by each teacher of its own rows.
    """
    names = _weight_names(estimator)
    if not names:
        raise InvalidInput(
            f"{type(estimator).__name__} takes no class_weight; LogisticRegression, trees and forests do"
        )
    value = weights if weights == "balanced" else dict(enumerate(weights))
    return estimator.set_params(**dict.fromkeys(names, value))
