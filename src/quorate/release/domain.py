"""What a release is about: cells made of public things, the records' way to their cells, and names for the queries.

A domain is made before any private record is read. `seal` is the one place where private records become counts; from
there on they are sealed, and only a mechanism opens them.

What is asked has a number of its own: a query of the cover or of the workload. It is one of the queries that an engine
answers, or one of them without another that lies within it, or nothing at all (`NOTHING`).
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.concepts import Concept, Finite, Hypothesis
from quorate.concepts.points import Points, check_points
from quorate.errors import InvalidInput
from quorate.release.cover import make_cover
from quorate.release.cover.base import read_points
from quorate.release.queries import Floats, Queries, Rows
from quorate.release.sealed import SealedCounts
from quorate.release.workloads import BoundWorkload, Workload
from quorate.release.workloads.truths import ExpressionWorkload

__all__ = ["MOST_LISTED", "NOTHING", "CoverDomain", "Domain", "TableDomain", "make_domain"]

NOTHING = -1  # the number of a query that no record fulfils, and of the part that a query does not have
MOST_LISTED = 2_000_000  # queries that are written out as a table

Numbers = NDArray[np.int64]


class Domain(Protocol):
    """What `QueryRelease` and `OnlineRelease` need to know about a class of hypotheses or a workload.

    >>> from quorate.concepts import Thresholds
    >>> CoverDomain(Thresholds(), [1.0, 2.0]).queries.cells is None
    False
    """

    queries: Queries

    @abstractmethod
    def identity(self) -> bytes:
        """Return what tells this domain from any other: public things alone."""

    @abstractmethod
    def seal(self, private: Any) -> tuple[SealedCounts, int]:
        """Return the private records by their cells, sealed, and how many there are, which is public."""

    @abstractmethod
    def public(self) -> Floats | Rows | None:
        """Return the public records by their cells, or None where there are none."""

    @abstractmethod
    def find(self, asked: Any) -> Numbers:
        """Return the numbers of what is asked."""

    @abstractmethod
    def every(self) -> Any:
        """Return all queries, as `find` takes them, or refuse where they are too many for a list."""

    @abstractmethod
    def parts(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return for each number the engine's query, and the one within it that does not belong, or `NOTHING`."""

    @abstractmethod
    def has_differences(self) -> bool:
        """Return whether some query has two parts: it errs as both of them."""

    @abstractmethod
    def describe(self, numbers: Numbers, asked: Any) -> list[dict[str, Any]]:
        """Return a name for each of these queries, as columns of a tidy table."""

    @abstractmethod
    def share(self, beta: float) -> float:
        """Return the error of a query's projection, apart from the engine's: a bound from public records."""

    @abstractmethod
    def rows(self, places: Numbers, support: Rows | None) -> Any:
        """Return records that lie in these cells, or on these rows of the support."""


class CoverDomain:
    """A class of hypotheses on the cells that public points define.

    >>> from quorate.concepts import Threshold, Thresholds
    >>> domain = CoverDomain(Thresholds(), [1.0, 2.0, 3.0])
    >>> len(domain.find([Threshold(1.5)]))
    1
    """

    def __init__(self, concept: Concept, public: Any) -> None:
        self.concept = concept
        if public is None:
            raise InvalidInput("a class of hypotheses has its cells from public points: fit(private, public)")
        self.public_points: Points = check_points(public, features=concept.features, name="public")
        self.cover = make_cover(concept, self.public_points)
        self.queries: Queries = self.cover.queries

    def identity(self) -> bytes:
        """Return the class and the public points. Members of a finite list are told apart by their number alone.

        >>> from quorate.concepts import Thresholds
        >>> CoverDomain(Thresholds(), [1.0]).identity() == CoverDomain(Thresholds(), [2.0]).identity()
        False
        """
        concept = self.concept
        name = f"Finite of {len(concept.members)}" if isinstance(concept, Finite) else repr(concept)
        return name.encode() + self.public_points.tobytes()

    def seal(self, private: Any) -> tuple[SealedCounts, int]:
        """Return how many private points lie in each cell, sealed.

        >>> from quorate.concepts import Thresholds
        >>> CoverDomain(Thresholds(), [1.0, 2.0]).seal([0.5, 1.5, float("nan")])
        (<sealed counts>, 3)
        """
        points = read_points(private, features=self.concept.features, name="private")
        if len(points) == 0:
            raise InvalidInput("private must hold at least one record")
        return SealedCounts(self.cover.count(points)), len(points)

    def public(self) -> Floats | Rows:
        """Return how many public points lie in each cell.

        >>> from quorate.concepts import Thresholds
        >>> float(CoverDomain(Thresholds(), [1.0, 2.0]).public().sum())
        2.0
        """
        counted = self.cover.count(self.public_points)
        return counted if isinstance(counted, Rows) else counted.astype(np.float64)

    def find(self, asked: Any) -> Numbers:
        """Return the numbers of the cover's queries that label the public points as these hypotheses do.

        >>> from quorate.concepts import Threshold, Thresholds
        >>> len(CoverDomain(Thresholds(), [1.0, 2.0]).find([Threshold(1.5), Threshold(0.0)]))
        2
        """
        wanted = _hypotheses(asked)
        if not wanted:
            return np.empty(0, dtype=np.int64)
        return np.asarray(self.cover.project(wanted), dtype=np.int64)

    def every(self) -> list[Hypothesis]:
        """Return one hypothesis for each way in which the class labels the public points.

        >>> from quorate.concepts import Thresholds
        >>> len(CoverDomain(Thresholds(), [1.0, 2.0]).every())
        3
        """
        found = self.concept.dichotomies(self.public_points)
        if len(found) > MOST_LISTED:
            raise InvalidInput(f"{len(found)} queries are more than the {MOST_LISTED} that are listed; say which")
        return list(found)

    def parts(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return the engine's query for each, and the one that is taken away from it.

        >>> from quorate.concepts import Threshold, Thresholds
        >>> domain = CoverDomain(Thresholds(), [1.0, 2.0])
        >>> [len(part) for part in domain.parts(domain.find([Threshold(1.5)]))]
        [1, 1]
        """
        plus, minus = self.cover.parts(numbers)
        return np.asarray(plus, dtype=np.int64), np.asarray(minus, dtype=np.int64)

    def has_differences(self) -> bool:
        """Return whether some hypothesis is answered by the difference of two queries.

        >>> from quorate.concepts import Thresholds
        >>> CoverDomain(Thresholds(), [1.0, 2.0]).has_differences()
        False
        """
        return self.cover.has_differences

    def describe(self, numbers: Numbers, asked: Any) -> list[dict[str, Any]]:
        """Return the hypotheses as they were asked.

        >>> from quorate.concepts import Threshold, Thresholds
        >>> CoverDomain(Thresholds(), [1.0]).describe(np.array([0]), [Threshold(0.5)])
        [{'query': 'Threshold(cut=0.5, upward=True)'}]
        """
        return [{"query": repr(one)} for one in _hypotheses(asked)]

    def share(self, beta: float) -> float:
        """Return the cover's own share of the error: that of answering a hypothesis by another of the cover.

        >>> from quorate.concepts import Thresholds
        >>> 0 < CoverDomain(Thresholds(), [1.0, 2.0, 3.0]).share(0.05) <= 1
        True
        """
        return float(self.cover.share(beta))

    def rows(self, places: Numbers, support: Rows | None) -> Points:
        """Return a point of each of these cells, or of these rows; NaN where it is the cell of what is no point.

        >>> from quorate.concepts import Thresholds
        >>> CoverDomain(Thresholds(), [1.0, 2.0]).rows(np.array([1, 1]), None).shape
        (2, 1)
        """
        if support is not None:
            return np.asarray(self.cover.centres(support.codes[places]), dtype=np.float64)  # type: ignore[call-arg]
        return np.asarray(self.cover.centres(), dtype=np.float64)[places]


class TableDomain:
    """A workload on a table whose columns are known in public.

    >>> workload = Workload.marginals(1)
    >>> from quorate.release import Columns
    >>> domain = TableDomain(workload.bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
    >>> domain.queries.count
    3
    """

    def __init__(self, bound: BoundWorkload, public: Any = None) -> None:
        self.bound = bound
        self.queries: Queries = bound.queries
        self._public: Floats | Rows | None = None
        self._names: dict[str, int] | None = None
        if public is not None:
            counted = bound.count(public)
            self._public = counted if isinstance(counted, Rows) else counted.astype(np.float64)

    def identity(self) -> bytes:
        """Return the workload, its columns and the public records.

        >>> bound = Workload.marginals(1).bind(columns={"sex": ["f", "m"]})
        >>> TableDomain(bound, {"sex": ["f"]}).identity() == TableDomain(bound, {"sex": ["m"]}).identity()
        False
        """
        known = self._public
        public = b"" if known is None else known.codes.tobytes() if isinstance(known, Rows) else known.tobytes()
        return json.dumps(self.bound.to_dict(), sort_keys=True).encode() + public

    def remember(self, public: Floats | Rows) -> None:
        """Take public records that were counted before: for a release that is read from a file.

        >>> from quorate.release import Columns
        >>> domain = TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
        >>> domain.remember(Rows([[0]], sizes=(3,)))
        """
        self._public = public

    def seal(self, private: Any) -> tuple[SealedCounts, int]:
        """Return the private records by their codes or cells, sealed.

        >>> from quorate.release import Columns
        >>> domain = TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
        >>> domain.seal({"sex": ["f", "f", "?"]})
        (<sealed counts>, 3)
        """
        counted = self.bound.count(private)
        records = counted.records if isinstance(counted, Rows) else int(counted.sum())
        if records == 0:
            raise InvalidInput("private must hold at least one record")
        return SealedCounts(counted), records

    def public(self) -> Floats | Rows | None:
        """Return the public records by their codes or cells.

        >>> from quorate.release import Columns
        >>> bound = Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]}))
        >>> TableDomain(bound, {"sex": ["f", "m"]}).public()
        Rows(2 records, 1 columns)
        """
        return self._public

    def find(self, asked: Any) -> Numbers:
        """Return the numbers of the queries that these numbers, names or expressions say.

        >>> from quorate.release import Columns
        >>> domain = TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
        >>> domain.find([{"sex": "m"}, 0])
        array([1, 0])
        """
        wanted = [asked] if isinstance(asked, str | Mapping | int) or not isinstance(asked, Iterable) else list(asked)
        numbers = np.array([self._number(one) for one in wanted], dtype=np.int64)
        if numbers.size and not (numbers.min() >= NOTHING and numbers.max() < self.bound.count_queries):
            raise InvalidInput(f"a query of this workload has a number from 0 to {self.bound.count_queries - 1}")
        return numbers

    def _number(self, one: Any) -> int:
        if isinstance(one, int | np.integer) and not isinstance(one, bool):
            return int(one)
        if isinstance(one, str) and not isinstance(self.bound, ExpressionWorkload):
            return self._named(one)
        return int(self.bound.find(one))

    def _named(self, text: str) -> int:
        """Return the number of the query of this name, as `describe` gives it."""
        if self._names is None:
            self._names = {row["query"]: number for number, row in enumerate(self.bound.describe())}
        if text not in self._names:
            first = next(iter(self._names))
            raise InvalidInput(f"no query of this workload is called {text!r}; they are called as {first!r} is")
        return self._names[text]

    def every(self) -> Numbers:
        """Return the numbers of all queries of the workload.

        >>> from quorate.release import Columns
        >>> TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]}))).every()
        array([0, 1, 2])
        """
        if self.bound.count_queries > MOST_LISTED:
            raise InvalidInput(
                f"{self.bound.count_queries} queries are more than the {MOST_LISTED} that are listed; say which"
            )
        return np.arange(self.bound.count_queries, dtype=np.int64)

    def parts(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return the engine's query for each, and the one that is taken away from it.

        >>> from quorate.release import Columns
        >>> domain = TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
        >>> domain.parts(np.array([1]))
        (array([1]), array([-1]))
        """
        plus, minus = self.bound.parts(numbers)
        return np.asarray(plus, dtype=np.int64), np.asarray(minus, dtype=np.int64)

    def has_differences(self) -> bool:
        """Return whether some query of the workload is answered by the difference of two.

        >>> TableDomain(Workload.marginals(1).bind(columns={"sex": ["f", "m"]})).has_differences()
        False
        """
        return self.bound.has_differences

    def describe(self, numbers: Numbers, asked: Any) -> list[dict[str, Any]]:
        """Return the tidy names of these queries.

        >>> from quorate.release import Columns
        >>> domain = TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
        >>> domain.describe(np.array([1]), None)
        [{'query': 'sex = m', 'sex': 'm'}]
        """
        return self.bound.describe(numbers)

    def share(self, beta: float) -> float:
        """Return 0: a workload's queries are answered themselves.

        >>> from quorate.release import Columns
        >>> TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]}))).share(0.05)
        0.0
        """
        return 0.0

    def rows(self, places: Numbers, support: Rows | None) -> Any:
        """Return records of these cells, or of these rows, as a table.

        >>> from quorate.release import Columns
        >>> domain = TableDomain(Workload.marginals(1).bind(columns=Columns.from_dict({"sex": ["f", "m"]})))
        >>> domain.rows(np.array([1]), Rows([[0], [1]], sizes=(3,))).to_pydict()
        {'sex': ['m']}
        """
        return pa.table(self.bound.decode(self.bound.cell_codes(places) if support is None else support.codes[places]))


def make_domain(subject: Any, public: Any, columns: Any = None) -> Domain:
    """Return the domain of a class of hypotheses or of a workload, made of public things alone.

    >>> from quorate.concepts import Thresholds
    """
    if isinstance(subject, Concept):
        return CoverDomain(subject, public)
    if isinstance(subject, Workload):
        return TableDomain(subject.bind(public=public, columns=columns), public)
    if isinstance(subject, BoundWorkload):
        return TableDomain(subject, public)
    raise InvalidInput(
        f"a release is about a class of hypotheses (quorate.concepts) or a workload (quorate.release.Workload), not "
        f"{type(subject).__name__}"
    )


def _hypotheses(asked: Any) -> list[Hypothesis]:
    wanted = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, Hypothesis) else [asked]
    if not all(isinstance(one, Hypothesis) for one in wanted):
        raise InvalidInput("ask hypotheses of the class, such as those of quorate.concepts")
    return wanted
