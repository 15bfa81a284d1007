"""Explanations where scikit-learn's tools expect something that privacy does not allow.

`cross_val_score` and `GridSearchCV` fit a copy of an estimator for each fold and each setting. Every fit opens a
budget, and seeing the results of several fits costs all of their budgets. Scorers look for `predict_proba`, which a
classifier that votes does not have unless `scores` is set.
"""

import functools
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, NoReturn

from quorate.core.progress import html_card

NO_SCORES = (
    "an answer is a label, and votes are not released. PrivateClassifier(scores=True) answers with noisy shares of the "
    "vote, PrivateLogisticRegression with probabilities"
)


class Without:
    """A method that a classifier does not have, with the reason: `hasattr` is False, and the error says why."""

    def __init__(self, reason: str) -> None:
        self._reason, self._name = reason, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}: {self._reason}")


class CountedCopies:
    """An estimator that says so, once, where a second copy of it is fitted. It stands before `BaseEstimator`."""

    epsilon: float

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()  # type: ignore[misc]
        vars(copy)["_fits"] = vars(self).setdefault("_fits", [])  # one list for all copies
        return copy

    def _count_fit(self) -> None:
        """Count a fit among those of all copies, where there are any (`_fits`), and warn of the second."""
        fits = vars(self)["_fits"]
        fits.append(1)
        if len(fits) == 2:
            epsilon = getattr(self, "epsilon", None)
            amount = "" if epsilon is None else f", epsilon = {epsilon:g},"
            warnings.warn(
                f"copies of one {type(self).__name__} are fitted, as by cross-validation or a grid search: each opens "
                f"a budget of its own{amount} and they add up. docs/howto/evaluating.md says how to do without",
                UserWarning,
                stacklevel=4,
            )


class KeepsPublished:
    """An estimator with a setting that is a published model: a copy has the same one, fitted as it is.

    `clone` would make an unfitted copy of it, and no fold of a cross-validation could be fitted. It stands before
    `BaseEstimator`.
    """

    _published: str  # the name of the setting

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()  # type: ignore[misc]
        setattr(copy, self._published, getattr(self, self._published))
        return copy


class ShowsClaim:
    """An estimator that shows its guarantee, and what is left of its budget, below scikit-learn's diagram of it."""

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle and (claim := getattr(self, "claim_", None)) is not None:
            sentence = f"{claim[:1].upper()}{claim[1:]}."
            bundle["text/html"] += html_card("The guarantee", self._facts(), bar=self._bar(), lines=[sentence])
        return bundle

    def _facts(self) -> dict[str, Any]:
        """Return what else is shown, by name."""
        return {}

    def _bar(self) -> tuple[str, float] | None:
        """Return what a bar shows, and how full it is; None for no bar."""
        return None


class _OnlyWith:
    """A method that there is only where a check holds of its object."""

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], bool], setting: str) -> None:
        functools.update_wrapper(self, method)  # type: ignore[arg-type]
        self._method, self._check, self._setting = method, check, setting

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self._method
        if not self._check(instance):
            name = self._method.__name__
            raise AttributeError(f"{owner.__name__} has no {name} without {self._setting}: {NO_SCORES}")
        return MethodType(self._method, instance)


def only_with(check: Callable[[Any], bool], setting: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for a method that gives scores, and is there only with this setting."""
    return lambda method: _OnlyWith(method, check, setting)
