"""Any list of predicates or fitted classifiers, as a class of hypotheses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.checks import check_count, set_validated
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import CALL, call_rows
from quorate.core.hypotheses.concept import Concept, Dichotomies, Hypothesis, Points, say_by_row


@dataclass(frozen=True, kw_only=True)
class Member(Hypothesis):
    """A member of a finite class: a function from points to labels, or a classifier with `predict`.

    A row on which the rule raises, or returns anything but 0 and 1, gets the label 0: the row may be private, and an
    error would reveal something about it.
    """

    features: int
    index: int
    rule: Any

    def _predict(self, points: Points) -> Any:
        ask: Callable[[Points], Any] = getattr(self.rule, "predict", self.rule)
        rows = call_rows(self.rule) if hasattr(self.rule, "get_params") else CALL
        return say_by_row(ask, points, rows=rows).astype(np.int64)


@dataclass(frozen=True, init=False)
class Finite(Concept):
    """A class given as a list of functions from points to labels 0 and 1, or of fitted classifiers.

    The members must be public: a classifier fitted on private rows is not. The label of a point must depend on that
    point alone, not on other rows of the matrix. Each member is tried on one row of zeros, and refused if it returns no
    label.

    >>> from functools import partial
    >>> rules = [partial(np.less, 2.0), partial(np.less, 5.0)]
    >>> finite = Finite([lambda X, rule=rule: rule(X[:, 0]) for rule in rules], features=1)
    >>> finite.fit_erm([1.0, 3.0, 6.0], [0, 0, 1]).index
    1
    """

    members: tuple[Any, ...]
    features: int

    def __init__(self, members: Sequence[Any], *, features: int) -> None:
        set_validated(self, members=tuple(members), features=check_count("features", features))
        if not self.members:
            raise InvalidInput("members must name at least one hypothesis")
        for index, member in enumerate(self.members):
            if not callable(getattr(member, "predict", member)):
                raise InvalidInput(
                    f"member {index} must be a function or have a predict method, not {type(member).__name__}"
                )
            _check_member(index, member, self.features)

    @property
    def vc_dimension(self) -> int:
        """An upper bound: the logarithm of the number of members, in base 2, rounded down."""
        return len(self.members).bit_length() - 1

    def _growth(self, points: int) -> int:
        return len(self.members) if points >= len(self.members).bit_length() else int(2**points)

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Members([self.member(index) for index in range(len(self.members))], points)

    def member(self, index: int) -> Member:
        """Return a member of the list by its index."""
        return Member(features=self.features, index=index, rule=self.members[index])


def _check_member(index: int, member: Any, features: int) -> None:
    """Refuse a rule that fails on a row of zeros, which is no private record."""
    try:
        labels = np.asarray(getattr(member, "predict", member)(np.zeros((1, features))))
        is_label = labels.shape in ((1,), (1, 1)) and labels.ravel()[0] in (0, 1)
    except Exception as error:
        raise InvalidInput(
            f"hypothesis {index} of the list fails on a row of {features} zeros, with {type(error).__name__}: pass "
            "functions of a matrix of points, or fitted classifiers"
        ) from error
    if not is_label:
        raise InvalidInput(f"hypothesis {index} of the list must give one label, 0 or 1, for each row")


class _Members(Dichotomies):
    """The first member for each row of labels that occurs."""

    def __init__(self, members: list[Member], points: Points) -> None:
        self.features = members[0].features
        labels: dict[bytes, Member] = {}
        for member in members:
            labels.setdefault(np.packbits(member.label_points(points).astype(np.bool_)).tobytes(), member)
        self._chosen = list(labels.values())

    def __len__(self) -> int:
        return len(self._chosen)

    def _candidate(self, index: int) -> Hypothesis:
        return self._chosen[index]
