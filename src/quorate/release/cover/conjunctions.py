"""The cover of conjunctions: the cells of the contingency table, and its marginals of every order."""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import Infeasible
from quorate.core.hypotheses.points import Points
from quorate.models.concepts import Conjunction, Conjunctions, Constant, Hypothesis
from quorate.release.cover.base import check_public
from quorate.release.cover.rows import RowCover
from quorate.release.queries import NOTHING, Marginals, Whole

__all__ = ["ConjunctionCover"]

_MOST = 2**24  # conjunctions


class ConjunctionCover(RowCover):
    """Every conjunction is a query: the domain is finite, so public points are not needed, and the share is 0.

    A value that is not declared has the last code of its column. It fulfils no literal of that column; literals of
    other columns are not touched by it.
    """

    kind = Conjunction

    def __init__(self, concept: Conjunctions, public: Any) -> None:
        points = check_public(concept, public)
        columns = range(concept.features)
        sizes = tuple(count + 1 for count in concept.categories)
        every = math.prod(size + 1 for size in sizes)
        if every > _MOST:
            raise Infeasible(f"these columns have {every} conjunctions, above {_MOST}; take marginals of a few columns")
        cliques = [each for order in range(len(sizes) + 1) for each in itertools.combinations(columns, order)]
        self._cliques = {clique: place for place, clique in enumerate(cliques)}
        self._categories = np.array(concept.categories)
        super().__init__(concept, len(points), Marginals(sizes, cliques))

    def _codes(self, points: Points) -> NDArray[np.int64]:
        with np.errstate(invalid="ignore"):
            declared = (points >= 0) & (points < self._categories) & (points == np.floor(points))
        return np.where(declared, np.where(declared, points, 0).astype(np.int64), self._categories)

    def _points(self, codes: Whole) -> Points:
        return np.where(codes < self._categories, codes.astype(np.float64), np.nan)

    def _number(self, hypothesis: Any) -> int:
        if isinstance(hypothesis, Constant):
            return 0 if hypothesis.label else NOTHING
        fixed: dict[int, int] = {}
        for column, value in hypothesis.literals:
            if fixed.setdefault(column, value) != value or not 0 <= value < self._categories[column]:
                return NOTHING  # two values at once, or one that no point has
        columns = tuple(sorted(fixed))
        return self.queries.number(self._cliques[columns], [fixed[column] for column in columns])

    def _hypothesis(self, number: int) -> Hypothesis:
        clique, codes = self.queries.find(number)
        literals = tuple(zip(self.queries.cliques[clique], codes, strict=True))
        return Conjunction(features=self.concept.features, literals=literals)
