"""Trying an estimator on rows that nobody owns, so that its complaints can be heard.

A teacher's own failure is never told, since it may speak of its rows. A setting that no rows could satisfy must be
told, and is found out here first.
"""

from typing import Any

import numpy as np

from quorate.errors import InvalidInput
from quorate.quiet import silence

__all__ = ["probe"]


def probe(estimator: Any, X: Any, *, rows: int, classes: int, public: Any = None) -> None:
    """Refuse an estimator that cannot be fitted on public rows, or on made-up ones where X is a matrix of numbers.

    Only the shape and the type of `X` are looked at. A data frame without `public` rows is not tried.
    """
    from sklearn.base import clone  # noqa: PLC0415  scikit-learn takes a second to load

    if public is not None:
        made_up = public
    elif isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        made_up = np.random.default_rng(0).normal(size=(max(rows, 2 * classes), X.shape[1])).astype(X.dtype)
    else:
        return
    codes = np.arange(len(made_up)) % classes
    with silence():
        try:
            clone(estimator).fit(made_up, codes).predict(made_up[:1])
        except Exception as error:
            kind = f"{type(error).__name__}: {error}"
            raise InvalidInput(
                f"the estimator does not take rows like these (tried on rows that are not private) - {kind}"
            ) from error
