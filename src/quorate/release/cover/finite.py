"""The cover of a list: one column of codes for each way in which its members label the public points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.points import Points, which_finite
from quorate.models.concepts import Constant, Finite, Hypothesis, Member
from quorate.release.cover.base import check_public
from quorate.release.cover.rows import RowCover
from quorate.release.queries import NOTHING, Marginals, Whole

__all__ = ["FiniteCover"]

_MOST_CODES = 2**29  # of all rows together: 4 GiB


class FiniteCover(RowCover):
    """For each kind of member a column with its label, and 2 for a record with a missing value; the first query is all.

    Members that label all public points alike are one query: the first of them. The cells are not known from the list
    alone, so a representative point is known only for the public ones' rows of codes.
    """

    concept: Finite
    kind = Hypothesis

    def __init__(self, concept: Finite, public: Any) -> None:
        points = check_public(concept, public)
        self._public = points
        kinds: dict[bytes, int] = {}
        self._members: list[Member] = []
        self._kind: list[int] = []
        for index in range(len(concept.members)):
            member = concept.member(index)
            kind = kinds.setdefault(_key(member.predict_checked(points)), len(self._members))
            if kind == len(self._members):
                self._members.append(member)
            self._kind.append(kind)
        self._kinds_by_labels = kinds
        cliques = [(), *((column,) for column in range(len(self._members)))]
        super().__init__(concept, len(points), Marginals((3,) * len(self._members), cliques))

    def _codes(self, points: Points) -> NDArray[np.int64]:
        if len(points) * len(self._members) > _MOST_CODES:
            raise Infeasible(
                f"{len(points)} records and {len(self._members)} queries have more than {_MOST_CODES} codes; "
                "pass a shorter list"
            )
        usable = which_finite(points)
        codes = np.full((len(self._members), len(points)), 2, dtype=np.int64)
        for column, member in enumerate(self._members):
            codes[column, usable] = member.predict_checked(points[usable])
        return codes.T

    def _points(self, codes: Whole) -> Points:
        known = {tuple(row): point for row, point in zip(self._codes(self._public).tolist(), self._public, strict=True)}
        missing = np.full(self.concept.features, np.nan)
        return np.array([known.get(tuple(row), missing) for row in codes.tolist()]).reshape(-1, self.concept.features)

    def _number(self, hypothesis: Any) -> int:
        if isinstance(hypothesis, Constant):
            return 0 if hypothesis.label else NOTHING
        if isinstance(hypothesis, Member) and any(hypothesis.rule is rule for rule in self._rule(hypothesis.index)):
            return 2 + 3 * self._kind[hypothesis.index]
        kind = self._kinds_by_labels.get(_key(hypothesis.predict_checked(self._public)))
        if kind is None:
            raise InvalidInput("this query labels the public points as no member of the list does")
        return 2 + 3 * kind

    def _rule(self, index: int) -> tuple[Any, ...]:
        return self.concept.members[index : index + 1]

    def _hypothesis(self, number: int) -> Hypothesis:
        if number == 0:
            return Constant(features=self.concept.features, label=1)
        column, code = divmod(number - 1, 3)
        if code != 1:
            raise InvalidInput(f"query {number} is no member of the list")
        return self._members[column]


def _key(labels: Any) -> bytes:
    return np.packbits(np.asarray(labels).astype(np.bool_)).tobytes()
