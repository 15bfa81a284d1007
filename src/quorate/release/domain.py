"""The domain of a release: cells and queries from public values, and the rule that maps a record to its cell.

A domain is built before any private record is read. Only `seal` turns private records into counts. The counts are
sealed, and only a mechanism opens them. A class of hypotheses becomes a `quorate.release.cover.Cover` on public points,
a workload a `quorate.release.workloads.BoundWorkload` on known columns.

A query of a domain has a number. It is one of the `queries` that an engine answers, or the difference of two of them,
or empty (`NOTHING`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats
from quorate.core.ballots import Ballots
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import Concept
from quorate.release.queries import NOTHING, Queries, Rows, Whole
from quorate.release.queries.marginals import Truths

MOST_IN_TABLE = 2_000_000  # queries that are written out as a table

Released = TypeVar("Released")


class SealedCounts(Ballots):
    """Counts of private records by cells, or their codes, which only a mechanism may read."""

    __slots__ = ()

    def __init__(self, counts: Any) -> None:
        super().__init__(counts)

    def put_to(self, release: Callable[[Any], Released]) -> Released:
        """Pass the counts to a mechanism's release, and return its result."""
        return super().put_to(release)

    def __len__(self) -> int:
        raise TypeError("counts are sealed and have no length: put them to a mechanism")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "<sealed counts>"


@dataclass(frozen=True)
class Between:
    """A request with ends between cuts: it lies between an inner and an outer query.

    `weight` is its share of their difference if values spread evenly between two cuts.
    """

    inner: int
    outer: int
    weight: float


class Domain(ABC):
    """The cells, queries and names of a release. It holds public values alone."""

    queries: Queries
    has_differences = False  # whether a query may be the difference of two of `queries`, with the errors of both

    @abstractmethod
    def identity(self) -> bytes:
        """Return bytes that identify the domain, from public values."""

    @abstractmethod
    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and arrays from which `read_domain` makes the same domain."""

    @abstractmethod
    def count(self, records: Any) -> Whole | Rows:
        """Return the counts of cells, or the records as codes, in the form that an engine takes."""

    def seal(self, private: Any) -> tuple[SealedCounts, int]:
        """Return the private records by their cells, sealed, and their public number."""
        counts = self.count(private)
        records = counts.records if isinstance(counts, Rows) else int(counts.sum())
        if records == 0:
            raise InvalidInput("private must hold at least one record")
        return SealedCounts(counts), records

    def seal_parts(self, private: Any) -> tuple[SealedCounts, int]:
        """Return the records of a table that is read in parts by their cells, sealed, and their public number."""
        return self.seal(private)

    def unread(self, table: Any) -> tuple[str, ...]:
        """Return the columns of a table that no query can use; their names are public."""
        return ()

    @abstractmethod
    def public(self) -> Floats | Rows | None:
        """Return the public records by their cells, or None where there are none."""

    @abstractmethod
    def find(self, requests: Any) -> Whole:
        """Return the number of the query that each request names."""

    def find_sums(self, requests: Any) -> tuple[Whole, Whole]:
        """Return query numbers, and the start of each request's run among them; a request is the sum of its run."""
        numbers = self.find(requests)
        return numbers, np.arange(len(numbers))

    def between(self, requests: Any) -> list[Between | None]:
        """Return the two queries that bracket each request, or None if it is a query itself."""
        return []

    def beyond(self, request: Any) -> tuple[dict[int, Whole], list[Any]] | None:
        """Return the cells and the answerable parts of a request of more columns than were measured together."""
        return None

    def name_request(self, request: Any) -> dict[str, Any]:
        """Return the name of a request that no query has, as one row of a tidy table."""
        raise InvalidInput("this workload has no queries of more columns than it measures")

    @abstractmethod
    def every(self) -> Any:
        """Return all queries, as `find` takes them; refuse more than a table may list."""

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the two of `queries` whose difference each number is; the second is `NOTHING` if there is none."""
        plus = np.asarray(numbers, dtype=np.int64)
        return plus, np.full_like(plus, NOTHING)

    @abstractmethod
    def describe(self, numbers: Any, requests: Any) -> list[dict[str, Any]]:
        """Return a name for each of these queries, as columns of a tidy table."""

    def share(self, beta: float = 0.05) -> float:
        """Return a bound on the error of a query's projection, beside the engine's: 0 if queries are their own."""
        return 0.0

    @abstractmethod
    def rows(self, cells: Whole, support: Rows | None) -> Any:
        """Return records that lie in these cells, or on these rows of the support."""

    def mask_possible(self, cells: int, support: Rows | None) -> Truths | None:
        """Return a mask of the possible cells, or rows of the support; None if all are possible."""
        return None


def check_listable(queries: int) -> None:
    """Refuse to list more queries than fit in a table."""
    if queries > MOST_IN_TABLE:
        raise InvalidInput(f"at most {MOST_IN_TABLE} queries can be listed, got {queries}; name the queries")


def as_list(requests: Any) -> list[Any]:
    """Return one request, or several, as a list."""
    is_single = isinstance(requests, str | Mapping | int) or not isinstance(requests, Iterable)
    return [requests] if is_single else list(requests)


def make_domain(subject: Any, public: Any, columns: Any = None) -> Domain:
    """Return the domain of a class of hypotheses or of a workload, made of public values alone."""
    if isinstance(subject, Concept):
        from quorate.release.cover import make_cover  # noqa: PLC0415  workloads need no classes of hypotheses

        if public is None:
            raise InvalidInput("a class of hypotheses requires public points; call fit(private, public)")
        return make_cover(subject, public)
    from quorate.release.workloads import BoundWorkload, Workload  # noqa: PLC0415  they derive from Domain

    if isinstance(subject, Workload):
        subject = subject.bind(public=public, columns=columns)
    if not isinstance(subject, BoundWorkload):
        raise InvalidInput(
            "subject must be a class of hypotheses (quorate.models.concepts) or a workload (quorate.release.Workload), "
            f"got {type(subject).__name__}"
        )
    domain = copy(subject)
    domain.keep_public(None if public is None else domain.count(public))
    return domain


def read_domain(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[Any, Domain]:
    """Return the subject and the domain of `Domain.to_state`."""
    if "concept" in values:
        from quorate.models.saving.codecs import from_plain  # noqa: PLC0415
        from quorate.models.saving.documents import CONCEPTS  # noqa: PLC0415

        concept = from_plain(values["concept"], *CONCEPTS)
        return concept, make_domain(concept, arrays["public"])
    from quorate.release.workloads import BoundWorkload  # noqa: PLC0415

    domain = BoundWorkload.from_state(values["workload"], arrays)
    return domain, domain
