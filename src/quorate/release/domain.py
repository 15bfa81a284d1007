"""What a release is about: cells made of public things, the records' way to their cells, and names for the queries.

A domain is made before any private record is read. `seal` is the one place where private records become counts; from
there on they are sealed, and only a mechanism opens them.

A query of the cover or of the workload has a number. It is one of the queries that an engine answers, or one of them
without another that lies within it, or nothing at all (`NOTHING`).
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.ballots import Ballots
from quorate.core.checks import check_choice, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.points import Points, check_points
from quorate.models.concepts import Concept, Finite, Hypothesis
from quorate.models.saving.hypotheses import concept_document, concept_of
from quorate.release.cover import Cover, make_cover
from quorate.release.cover.base import read_points
from quorate.release.queries import NOTHING, Marginals, Queries, Rows, Whole
from quorate.release.queries.marginals import Truths
from quorate.release.workloads import BoundWorkload, Workload
from quorate.release.workloads.bound import Between, MarginalWorkload
from quorate.release.workloads.truths import ExpressionWorkload
from quorate.tables.results import make_table

MOST_LISTED = 2_000_000  # queries that are written out as a table

Released = TypeVar("Released")
Errors = Literal["largest", "mean", "weighted"]


class SealedCounts(Ballots):
    """Counts of private records by cells, or their codes, to be put to a mechanism and to nothing else."""

    __slots__ = ()

    def __init__(self, counts: Any) -> None:
        super().__init__(counts)

    def put_to(self, release: Callable[[Any], Released]) -> Released:
        """Hand the counts to a mechanism's release, and return what it released."""
        return super().put_to(release)

    def __len__(self) -> int:
        raise TypeError("counts are sealed and have no length: put them to a mechanism")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "<sealed counts>"


class Domain(ABC):
    """What `QueryRelease` and `OnlineRelease` need to know about a class of hypotheses or a workload.

    `asked` is the cover or the bound workload: what is asked has a number there, and an engine answers its `queries`.
    """

    asked: Cover | BoundWorkload

    @property
    def queries(self) -> Queries:
        """The queries that an engine answers."""
        return self.asked.queries

    @abstractmethod
    def identity(self) -> bytes:
        """Return what tells this domain from any other: public things alone."""

    @abstractmethod
    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and arrays of which `read_domain` makes the same domain, all of them public."""

    def seal(self, private: Any) -> tuple[SealedCounts, int]:
        """Return the private records by their cells, sealed, and how many there are, which is public."""
        counted = self._count(private)
        records = counted.records if isinstance(counted, Rows) else int(counted.sum())
        if records == 0:
            raise InvalidInput("private must hold at least one record")
        return SealedCounts(counted), records

    @abstractmethod
    def _count(self, private: Any) -> Whole | Rows:
        """Return private records by their cells."""

    def unread(self, private: Any) -> tuple[str, ...]:
        """Return the columns of the private table that no query can be about: their names are public."""
        return ()

    @abstractmethod
    def public(self) -> Floats | Rows | None:
        """Return the public records by their cells, or None where there are none."""

    @abstractmethod
    def find(self, asked: Any) -> Whole:
        """Return the numbers of what is asked."""

    def find_sums(self, asked: Any) -> tuple[Whole, Whole]:
        """Return numbers of queries, and where in them those begin that add up to each thing that is asked."""
        numbers = self.find(asked)
        return numbers, np.arange(len(numbers))

    def between(self, asked: Any) -> list[Between | None]:
        """Return for each thing that is asked the two queries between which it lies, None where it is one itself."""
        return []

    @abstractmethod
    def every(self) -> Any:
        """Return all queries, as `find` takes them, or refuse where they are too many for a list."""

    def parts(self, numbers: Whole) -> tuple[Whole, Whole]:
        """Return for each number the engine's query, and the one within it that does not belong, or `NOTHING`."""
        plus, minus = self.asked.parts(numbers)
        return np.asarray(plus, dtype=np.int64), np.asarray(minus, dtype=np.int64)

    def has_differences(self) -> bool:
        """Return whether some query has two parts: it errs as both of them."""
        return self.asked.has_differences

    @abstractmethod
    def describe(self, numbers: Whole, asked: Any) -> list[dict[str, Any]]:
        """Return a name for each of these queries, as columns of a tidy table."""

    @abstractmethod
    def share(self, beta: float) -> float:
        """Return the error of a query's projection, apart from the engine's: a bound from public records."""

    @abstractmethod
    def rows(self, places: Whole, support: Rows | None) -> Any:
        """Return records that lie in these cells, or on these rows of the support."""

    def held(self, cells: int, support: Rows | None) -> Truths | None:
        """Return which of so many cells, or of the rows of the support, can occur; None where all can."""
        return None


class CoverDomain(Domain):
    """A class of hypotheses on the cells that public points define."""

    def __init__(self, concept: Concept, public: Any) -> None:
        self.concept = concept
        if public is None:
            raise InvalidInput("a class of hypotheses has its cells from public points: fit(private, public)")
        self.public_points: Points = check_points(public, features=concept.features, name="public")
        self.asked = self.cover = make_cover(concept, self.public_points)

    def identity(self) -> bytes:
        """Return the class and the public points. Members of a finite list are told apart by their number alone."""
        concept = self.concept
        name = f"Finite of {len(concept.members)}" if isinstance(concept, Finite) else repr(concept)
        return name.encode() + self.public_points.tobytes()

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the class and the public points."""
        return {"concept": concept_document(self.concept)}, {"public": self.public_points}

    def _count(self, private: Any) -> Whole | Rows:
        return self.cover.count(read_points(private, features=self.concept.features, name="private"))

    def public(self) -> Floats | Rows:
        """Return how many public points lie in each cell."""
        counted = self.cover.count(self.public_points)
        return counted if isinstance(counted, Rows) else counted.astype(np.float64)

    def find(self, asked: Any) -> Whole:
        """Return the numbers of the cover's queries that label the public points as these hypotheses do."""
        wanted = _hypotheses(asked)
        if not wanted:
            return np.empty(0, dtype=np.int64)
        return np.asarray(self.cover.project(wanted), dtype=np.int64)

    def every(self) -> list[Hypothesis]:
        """Return one hypothesis for each way in which the class labels the public points."""
        dichotomies = self.concept.dichotomies(self.public_points)
        if len(dichotomies) > MOST_LISTED:
            raise InvalidInput(f"{len(dichotomies)} queries are more than the {MOST_LISTED} that are listed; say which")
        return list(dichotomies)

    def describe(self, numbers: Whole, asked: Any) -> list[dict[str, Any]]:
        """Return the hypotheses as they were asked."""
        return [{"query": repr(one)} for one in _hypotheses(asked)]

    def share(self, beta: float) -> float:
        """Return the cover's own share of the error: that of answering a hypothesis by another of the cover."""
        return float(self.cover.share(beta))

    def rows(self, places: Whole, support: Rows | None) -> Points:
        """Return a point of each of these cells, or of these rows; NaN where it is the cell of what is no point."""
        if support is not None:
            return np.asarray(self.cover.centres(support.codes[places]), dtype=np.float64)  # type: ignore[call-arg]
        return np.asarray(self.cover.centres(), dtype=np.float64)[places]


class TableDomain(Domain):
    """A workload on a table whose columns are known in public."""

    def __init__(self, bound: BoundWorkload, public: Any = None) -> None:
        self.asked = self.bound = bound
        self._public: Floats | Rows | None = None
        self._names: dict[str, int] | None = None
        if public is not None:
            counted = bound.count(public)
            self._public = counted if isinstance(counted, Rows) else counted.astype(np.float64)

    def identity(self) -> bytes:
        """Return the workload, its columns and the public records."""
        known = self._public
        public = b"" if known is None else known.codes.tobytes() if isinstance(known, Rows) else known.tobytes()
        return json.dumps(self.bound.to_dict(), sort_keys=True).encode() + public

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the workload with its columns, and the public records as they were counted."""
        known, workload = self._public, {"workload": self.bound.to_dict()}
        if isinstance(known, Rows):
            return workload, {"public": known.codes, "public_weights": known.weights}
        return workload, {} if known is None else {"public_weights": known}

    @classmethod
    def from_state(cls, workload: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "TableDomain":
        """Return the domain of `to_state`."""
        domain = cls(BoundWorkload.from_dict(workload))
        domain._public = arrays.get("public_weights")
        if "public" in arrays:
            domain._public = Rows(arrays["public"], domain.bound.sizes, arrays["public_weights"])
        return domain

    def unread(self, private: Any) -> tuple[str, ...]:
        """Return the columns of the private table that are neither declared nor in the public one."""
        return self.bound.unread(private)

    def _count(self, private: Any) -> Whole | Rows:
        return self.bound.count(private)

    def public(self) -> Floats | Rows | None:
        """Return the public records by their codes or cells."""
        return self._public

    def find(self, asked: Any) -> Whole:
        """Return the numbers of the queries that these numbers, names or expressions say."""
        numbers = np.array([self._number(one) for one in _as_list(asked)], dtype=np.int64)
        if numbers.size and not (numbers.min() >= NOTHING and numbers.max() < self.bound.count_queries):
            raise InvalidInput(f"a query of this workload has a number from 0 to {self.bound.count_queries - 1}")
        return numbers

    def find_sums(self, asked: Any) -> tuple[Whole, Whole]:
        """Return the numbers that add up to each thing asked: of a marginal of fewer columns, the cells of a table.

        Of what lies between two queries, the larger one.
        """
        parts = None if isinstance(asked, np.ndarray) else [self._parts_of(one) for one in _as_list(asked)]
        if parts is None or all(part is None for part in parts):
            return super().find_sums(asked)
        pairs = zip(parts, _as_list(asked), strict=True)
        lists = [self.find([one]) if part is None else part for part, one in pairs]
        return np.concatenate(lists), np.cumsum([0, *map(len, lists[:-1])])

    def _parts_of(self, one: Any) -> Whole | None:
        near = self.bound.between(one)
        return self.bound.summed(one) if near is None else np.array([near.outer], dtype=np.int64)

    def between(self, asked: Any) -> list[Between | None]:
        """Return for each thing that is asked the two queries between which it lies, None where it is one itself."""
        return [] if isinstance(asked, np.ndarray) else [self.bound.between(one) for one in _as_list(asked)]

    def _number(self, one: Any) -> int:
        if isinstance(one, int | np.integer) and not isinstance(one, bool):
            return int(one)
        if isinstance(one, str) and not isinstance(self.bound, ExpressionWorkload):
            return self._find_name(one)
        return int(self.bound.find(one))

    def _find_name(self, text: str) -> int:
        """Return the number of the query of this name, as `describe` gives it."""
        if self._names is None:
            self._names = {row["query"]: number for number, row in enumerate(self.bound.describe())}
        if text not in self._names:
            first = next(iter(self._names))
            raise InvalidInput(
                f"no query of this workload is called {text!r}; they are called as {first!r} is, and one can be asked "
                'by its values: {"column": value}'
            )
        return self._names[text]

    def every(self) -> Whole:
        """Return the numbers of all queries of the workload."""
        if self.bound.count_queries > MOST_LISTED:
            raise InvalidInput(
                f"{self.bound.count_queries} queries are more than the {MOST_LISTED} that are listed; say which"
            )
        return np.arange(self.bound.count_queries, dtype=np.int64)

    def describe(self, numbers: Whole, asked: Any) -> list[dict[str, Any]]:
        """Return the tidy names of these queries; `asked` is what was asked, where a query near it is answered."""
        named = self.bound.describe(numbers)
        for name, one in zip(named, _as_list(asked), strict=True):
            if self.bound.summed(one) is not None:
                name.update(self.bound.describe_sum(one))
            elif not self.bound.answers_itself(one):
                name["asked"] = json.dumps(one)
        return named

    def share(self, beta: float) -> float:
        """Return 0: a workload's queries are answered themselves."""
        return 0.0

    def held(self, cells: int, support: Rows | None) -> Truths | None:
        """Return which of so many cells, or of the rows of the support, keep the constraints; None without any."""
        if (possible := self.bound.possible) is None:
            return None
        return possible.records(self.bound.cell_codes(np.arange(cells)) if support is None else support.codes)

    def rows(self, places: Whole, support: Rows | None) -> Any:
        """Return records of these cells, or of these rows, as a table."""
        codes = self.bound.cell_codes(places) if support is None else support.codes[places]
        return make_table(self.bound.decode(codes))


def make_domain(subject: Any, public: Any, columns: Any = None) -> Domain:
    """Return the domain of a class of hypotheses or of a workload, made of public things alone."""
    if isinstance(subject, Concept):
        return CoverDomain(subject, public)
    if isinstance(subject, Workload):
        return TableDomain(subject.bind(public=public, columns=columns), public)
    if isinstance(subject, BoundWorkload):
        return TableDomain(subject, public)
    raise InvalidInput(
        "subject must be a class of hypotheses (quorate.models.concepts) or a workload (quorate.release.Workload), got "
        f"{type(subject).__name__}"
    )


def read_domain(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[Any, Domain]:
    """Return the subject and the domain of `Domain.to_state`."""
    if "concept" in values:
        concept = concept_of(values["concept"])
        return concept, CoverDomain(concept, arrays["public"])
    domain = TableDomain.from_state(values["workload"], arrays)
    return domain.bound, domain


def _as_list(asked: Any) -> list[Any]:
    return [asked] if isinstance(asked, str | Mapping | int) or not isinstance(asked, Iterable) else list(asked)


def _hypotheses(asked: Any) -> list[Hypothesis]:
    wanted = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, Hypothesis) else [asked]
    if not all(isinstance(one, Hypothesis) for one in wanted):
        raise InvalidInput("ask hypotheses of the class, such as those of quorate.models.concepts")
    return wanted


ERRORS: tuple[Errors, ...] = ("largest", "mean", "weighted")


def weigh_queries(
    domain: Domain, error: str, weights: Mapping[Any, float] | None = None, target: str | None = None
) -> Queries:
    """Return the queries of a domain, told which error is to be small: public things alone.

    `weights` has the weight of each marginal with a column, by its name, or of one marginal, by the names of its
    columns; those that are not named have 1. `target` is a column that a model is to predict.
    """
    check_choice("error", error, ERRORS)
    named = {} if weights is None else dict(weights)
    if (bool(named) or target is not None) != (error == "weighted"):
        raise InvalidInput(
            "error_weights= and target= weigh the mean error: give one of them with error='weighted', and only then"
        )
    if error == "largest":
        return domain.queries
    asked = domain.asked
    if not isinstance(asked, MarginalWorkload):
        raise InvalidInput(f"error={error!r} is for marginals; other queries have their largest error made small")
    index = {name: number for number, name in enumerate(asked.columns.names)}
    if target is not None:
        if asked.columns.names == (target,):
            raise InvalidInput(f"{target!r} is the only column: there is none to predict it from")
        [column] = _columns(target, index)
        named[target] = named.get(target, 1.0) * _weight_of_target(asked.queries, column)
    factors = [(_columns(key, index), check_positive("weight", weight)) for key, weight in named.items()]
    importance = [_importance(set(clique), factors) for clique in asked.queries.cliques]
    return Marginals(asked.queries.sizes, asked.queries.cliques, importance, asked.queries.possible)


def _importance(clique: set[int], factors: Sequence[tuple[set[int], float]]) -> float:
    """Return the weight of a marginal: the product of those of its columns, and of its own."""
    own = (factor for columns, factor in factors if columns == clique or (len(columns) == 1 and columns <= clique))
    return math.prod(own, start=1.0)


def target_column(domain: Domain, target: str) -> int:
    """Return the number of the column that a model is to predict."""
    asked = domain.asked
    assert isinstance(asked, MarginalWorkload)
    return asked.columns.names.index(target)


def _weight_of_target(queries: Marginals, target: int) -> float:
    """Return the weight of marginals with a target, so that they get about as much of the budget as all others.

    A model needs to know how the target goes with each column, and how the columns go together, both about as well. The
    error of a marginal grows as its cells times its deviation d, at a cost of 1 / d**2: the least sum has deviations
    that go as (weight * cells)**(-1/3). Those of two kinds cost the same in all if this weight is that of the first.
    """
    cells = np.array([float(np.prod(shape)) for shape in queries.shapes])
    beside = np.array([target in clique for clique in queries.cliques])
    if beside.all() or not beside.any():
        return 1.0
    ratio = float(len(beside) - beside.sum()) / float(beside.sum())
    return max(1.0, float(ratio**1.5 * cells[~beside].mean() / cells[beside].mean()))


def _columns(key: Any, place: Mapping[str, int]) -> set[int]:
    """Return the numbers of the columns that a weight names."""
    names: Sequence[Any] = [key] if isinstance(key, str) or not isinstance(key, Iterable) else list(key)
    lacking = [name for name in names if name not in place]
    if lacking or not names:
        raise InvalidInput(f"a weight names {key!r}, and the columns are {', '.join(place)}")
    return {place[name] for name in names}
