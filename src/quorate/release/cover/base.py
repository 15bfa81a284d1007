"""The base of covers, and bounds on the disagreement of hypotheses that agree on a public sample."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import Points, check_points
from quorate.models.concepts import (
    Boxes,
    Concept,
    Conjunctions,
    Constant,
    Finite,
    Hypothesis,
    Intervals,
    Stumps,
    Thresholds,
)
from quorate.models.saving.codecs import to_plain
from quorate.release.domain import Domain, as_list, check_listable
from quorate.release.queries import Queries, Rows, Whole
from quorate.release.queries.base import check_whole
from quorate.tables.containers import open_column, open_matrix
from quorate.tables.values import object_texts, read_numbers

_GHOSTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)  # sizes of the ghost sample, in eighths of the sample


def cover_share(concept: Concept, points: int, beta: float) -> float:
    """Return a bound on how much of the population a hypothesis and its query of the cover differ on."""
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    if isinstance(concept, Conjunctions) or (isinstance(concept, Stumps) and concept.binary):
        return 0.0  # every hypothesis is a query
    if isinstance(concept, Finite):
        return list_share(len(concept.members), points, beta)
    if isinstance(concept, Thresholds | Stumps):
        return gap_share(points, beta / concept.features)
    if isinstance(concept, Intervals | Boxes):  # two ends on each axis
        return gap_share(points, beta / concept.features, gaps=2 * concept.features)
    return pair_share(concept, points, beta)


def gap_share(points: int, beta: float, gaps: int = 1) -> float:
    """Bound the population share of the largest gap between this many points of a line, with probability 1 - beta.

    A gap that holds more than g has none of the points in it. By symmetry each of the points + 1 gaps between
    independent points holds more than g with probability (1 - g)**points, and ties only make gaps smaller. A hypothesis
    can err on `gaps` gaps, each at most the largest.
    """
    largest = -math.expm1(math.log(beta / (points + 1)) / points) if points else 1.0
    return min(1.0, gaps * largest)


def list_share(members: int, points: int, beta: float) -> float:
    """Bound the disagreement of any two of this many hypotheses that agree on all points.

    A pair that differs on more than g agrees on all points with probability (1 - g)**points at most.
    """
    pairs = math.comb(members, 2)
    if pairs == 0:
        return 0.0
    return min(1.0, -math.expm1(math.log(min(1.0, beta / pairs)) / points)) if points else 1.0


def pair_share(concept: Concept, points: int, beta: float) -> float:
    """Bound the disagreement of two hypotheses of a class that agree on all points, by its growth function.

    By a ghost sample (Haussler and Welzl 1987) of a size g of our choice (Komlos, Pach and Woeginger 1992): if a pair
    differs on a share k/g and agrees on the points, then with probability 1/2 at least k points of the ghost lie where
    it differs, and none of the sample. Given both samples together, that has probability (g choose k) over (points + g
    choose k) at most for one pair, and there are no more kinds of pairs than pairs of dichotomies.
    """
    return min([1.0, *(_ghost_share(concept, points, beta, max(1, points * eighths // 8)) for eighths in _GHOSTS)])


def _ghost_share(concept: Concept, points: int, beta: float, ghost: int) -> float:
    """Return k/g for the least k that makes the probability of a bad pair at most beta, 1 where there is none."""
    pairs = math.comb(concept.growth(points + ghost), 2) + 1
    allowed = math.log(beta) - math.log(2) - _log(pairs)
    low, high = 0, ghost + 1  # the probability falls with k: `low` is too few
    while high - low > 1:
        middle = (low + high) // 2
        chance = _log_falling(ghost, middle) - _log_falling(points + ghost, middle)
        low, high = (low, middle) if chance <= allowed else (middle, high)
    return high / ghost if high <= ghost else 1.0


def _log_falling(size: int, factors: int) -> float:
    """Return the logarithm of the falling factorial size (size - 1) ... of this many factors."""
    return math.lgamma(size + 1) - math.lgamma(size - factors + 1)


def _log(value: int) -> float:
    """Return the logarithm of a whole number of any length, rounded up."""
    return math.log(value) * (1 + 1e-12)


class Cover(Domain):
    """The cells and queries of a class on public points.

    A query of the cover stands for all hypotheses that label the public points as it does.
    """

    kind: type[Hypothesis]  # of the hypotheses that belong to the class, beside constants

    def __init__(self, concept: Concept, public_points: Points, queries: Queries) -> None:
        self.concept, self.public_points, self.queries = concept, public_points, queries

    def identity(self) -> bytes:
        """Return bytes of the class and the public points. The number of a finite list's member is its identity."""
        concept = self.concept
        name = f"Finite of {len(concept.members)}" if isinstance(concept, Finite) else repr(concept)
        return name.encode() + self.public_points.tobytes()

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the class and the public points."""
        return {"concept": to_plain(self.concept)}, {"public": self.public_points}

    def public(self) -> Floats | Rows:
        """Return the number of public points in each cell."""
        counts = self.count(self.public_points)
        return counts if isinstance(counts, Rows) else counts.astype(np.float64)

    def find(self, requests: Any) -> Whole:
        """Return the number of the query that labels the public points as each hypothesis does."""
        hypotheses = as_list(requests)
        for hypothesis in hypotheses:
            self._check(hypothesis)
        return np.asarray(self._project(hypotheses) if hypotheses else [], dtype=np.int64)

    def _project(self, hypotheses: Sequence[Any]) -> Any:
        """Return the queries of checked hypotheses."""
        return [self._number(hypothesis) for hypothesis in hypotheses]

    def _number(self, hypothesis: Any) -> int:
        """Return the query of a checked hypothesis, where `_project` does not return those of all at once."""
        raise NotImplementedError

    def every(self) -> list[Hypothesis]:
        """Return one hypothesis for each way in which the class labels the public points."""
        dichotomies = self.concept.dichotomies(self.public_points)
        check_listable(len(dichotomies))
        return list(dichotomies)

    def describe(self, numbers: Any, requests: Any) -> list[dict[str, Any]]:
        """Return the hypotheses as they were requested."""
        return [{"query": repr(hypothesis)} for hypothesis in as_list(requests)]

    def share(self, beta: float = 0.05) -> float:
        """Return a bound on the cover's own error.

        With probability 1 - beta over public points that come from where the records come from, no hypothesis differs
        from its query of the cover on more than this share of that population. 1.0 where there is no bound.
        """
        return float(cover_share(self.concept, len(self.public_points), beta))

    def _check(self, hypothesis: Any) -> None:
        kinds: tuple[type[Any], ...] = (self.kind, Constant)
        if not isinstance(hypothesis, kinds) or hypothesis.features != self.concept.features:
            names = " or ".join(kind.__name__ for kind in kinds)
            raise InvalidInput(
                f"a query of {type(self.concept).__name__} must be a {names} over {self.concept.features} features, "
                f"not {type(hypothesis).__name__}"
            )


class CellCover(Cover):
    """A cover with numbered cells; the last cell is for records that are not points of the class."""

    @property
    def cells(self) -> int:
        """The number of cells, with the cell for records that are not points of the class."""
        return check_whole(self.queries.cells)

    def locate(self, records: Any) -> Whole:
        """Return the cell number of each record. No value of a record raises an error."""
        points = read_points(records, features=self.concept.features)
        usable = self.concept.usable(points)
        cells = np.full(len(points), self.cells - 1, dtype=np.int64)
        cells[usable] = self._locate(points if usable.all() else points[usable])
        return cells

    def count(self, records: Any) -> Whole:
        """Return the number of records in each cell."""
        return np.bincount(self.locate(records), minlength=self.cells)

    @abstractmethod
    def centres(self) -> Points:
        """Return a point of each cell; NaN for the last cell."""

    def rows(self, cells: Whole, support: Rows | None) -> Points:
        """Return a point of each of these cells; NaN for the last cell."""
        return np.asarray(self.centres(), dtype=np.float64)[cells]

    @abstractmethod
    def _locate(self, points: Points) -> Any:
        """Return the cells of points of the class."""


def read_points(records: Any, *, features: int, name: str = "private") -> Points:
    """Return records as points, each value parsed independently; a value that is not a number becomes NaN.

    A record of a list must have one value for each feature to be a point.
    """
    if isinstance(records, list | tuple) and not _is_matrix(records, features):
        values = np.array([_point(record, features) for record in records], dtype=np.float64).reshape(-1, features)
    elif len(getattr(records, "shape", (0, 0))) == 1:
        values = read_numbers(open_column(records, name=name))
    else:
        values = open_matrix(records, source=f"the {name} table")
    return check_points(values, features=features, name=name) + 0.0


def check_public(concept: Concept, public: Any) -> Points:
    """Return the public points of a class; rows with a missing, infinite or undeclared value are refused."""
    points = check_points(public, features=concept.features, name="public")
    usable = concept.usable(points)
    if not usable.all():
        raise InvalidInput(
            f"public row {int((~usable).argmax()) + 1} is no point of {type(concept).__name__}: a value is missing, "
            "infinite or not declared; fill it in or leave the row out"
        )
    return points + 0.0  # a copy without minus zero, so that equal points have equal names


def _is_matrix(records: list[Any] | tuple[Any, ...], features: int) -> bool:
    """Return whether each record of a list has one value for each feature."""
    return bool(records) and all(_is_row(record) and len(record) == features for record in records)


def _is_row(record: Any) -> bool:
    return isinstance(record, list | tuple) or (isinstance(record, np.ndarray) and record.ndim == 1)


def _point(record: Any, features: int) -> list[float]:
    values = list(record) if _is_row(record) else [record]
    return read_numbers(object_texts(values)).tolist() if len(values) == features else [math.nan] * features


def key_labels(labels: Any) -> bytes:
    """Return labels of the public points as a key of a mapping."""
    return np.packbits(np.asarray(labels).astype(np.bool_)).tobytes()
