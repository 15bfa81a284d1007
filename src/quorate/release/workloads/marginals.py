"""All marginals of some order, and the error that they minimise."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from quorate.core.checks import check_choice, check_count, check_positive
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.domain import Domain
from quorate.release.queries import MOST_LISTED, Marginals, Queries, Rows, Whole
from quorate.release.queries.base import TableCounts
from quorate.release.workloads._bound import BoundWorkload, tidy_name
from quorate.release.workloads._columns import Columns, names_of

Errors = Literal["largest", "mean", "weighted"]
_TARGET_COST = 1.0 / 3.0  # of the marginals with a target, over that of all others
_ERRORS: tuple[Errors, ...] = ("largest", "mean", "weighted")


class MarginalWorkload(BoundWorkload):
    """Every cell of the table of each `order` columns, including the cells for undeclared values."""

    queries: Marginals

    def __init__(self, columns: Columns, order: int) -> None:
        self.order = check_count("order", order)
        if self.order > len(columns.names):
            raise InvalidInput(f"marginals of {order} columns need as many columns, not {len(columns.names)}")
        cells = cells_of_orders(columns.sizes, self.order)[self.order]
        if cells > MOST_LISTED:  # checked before any query is listed
            raise Infeasible(
                f"all marginals of {order} of these {len(columns.sizes)} columns are {cells} queries, above "
                f"{MOST_LISTED}; take a lower order, fewer columns or fewer cells of each"
            )
        queries = Marginals.of_order(columns.sizes, self.order, columns.possible)
        super().__init__(columns, queries, queries.count)

    def unread(self, table: Any) -> tuple[str, ...]:
        """Return the columns of a table that are not declared: marginals are of all columns."""
        return tuple(name for name in names_of(table) if name not in self.columns.names)

    def count(self, records: Any) -> Rows:
        """Return the rows by their codes."""
        return self.encode(records)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The marginals: engines measure them, and others of fewer columns."""
        return self.queries.cliques

    def _keep_counts(self, tables: Sequence[Whole]) -> Rows:
        return TableCounts(self.sizes, dict(zip(self.tables, tables, strict=True)))

    def _find(self, request: Any) -> int:
        codes = self._codes(request) if isinstance(request, Mapping) and len(request) == self.order else {}
        if not codes or any(len(cells) != 1 for cells in codes.values()):
            raise InvalidInput(
                "a query of this workload is a mapping such as {'column': value}, with values of at most "
                f"{self.order} columns"
            )
        clique = tuple(sorted(codes))
        return self.queries.number(self.queries.cliques.index(clique), [int(codes[column][0]) for column in clique])

    def _addends(self, request: Any) -> Whole | None:
        """Return the cells of the smallest table that add up to a request of fewer columns, or of several cells."""
        if not isinstance(request, Mapping) or not 0 < len(request) <= self.order:
            return None
        codes = self._codes(request)
        if len(codes) == self.order and all(len(cells) == 1 for cells in codes.values()):
            return None
        tables = [position for position, clique in enumerate(self.queries.cliques) if set(codes) <= set(clique)]
        position = min(tables, key=lambda table: math.prod(self.queries.shapes[table]))
        clique, shape = self.queries.cliques[position], self.queries.shapes[position]
        index = np.ix_(*(codes.get(column, np.arange(size)) for column, size in zip(clique, shape, strict=True)))
        return np.asarray(np.arange(math.prod(shape)).reshape(shape)[index].ravel() + self.queries.offsets[position])

    def beyond(self, request: Any) -> tuple[dict[int, Whole], list[Any]] | None:
        """Return the cells of a request of more columns than any marginal has, and the requests of its parts.

        None for any other request.
        """
        if not isinstance(request, Mapping) or len(request) <= self.order:
            return None
        parts = [dict(pairs) for pairs in itertools.combinations(request.items(), self.order)]
        return self._codes(request), parts

    def name_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of a request of several cells or of some columns, as one row of a tidy table."""
        return self._make_name(self._codes(request))

    def _name_sum(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self.name_request(request)

    def _codes(self, request: Mapping[str, Any]) -> dict[int, Whole]:
        """Return the cells of each column of a request: one for a value, several for a list of them or a range."""
        chosen = self.columns.select(list(request))
        return {self.columns.names.index(name): chosen.union(name, value) for name, value in request.items()}

    def _name(self, number: int) -> dict[str, Any]:
        clique, codes = self.queries.find(number)
        pairs = zip(self.queries.cliques[clique], codes, strict=True)
        return self._make_name({column: np.array([code]) for column, code in pairs})

    def _make_name(self, codes: Mapping[int, Whole]) -> dict[str, Any]:
        names = self.columns.names
        values = {names[column]: self.columns.name_union(names[column], codes[column]) for column in sorted(codes)}
        text = " and ".join(f"{name} = {value}" for name, value in values.items())  # a category may be a blank
        return tidy_name(text, dict.fromkeys(names, "") | values)

    def _settings(self) -> dict[str, Any]:
        return {"kind": "marginals", "order": self.order}


def cells_of_orders(sizes: Sequence[int], order: int) -> list[int]:
    """Return the total number of cells of all marginals of each order from 0 to `order`.

    They are symmetric polynomials of the sizes, so that no marginal is listed.
    """
    sums = [1] + [0] * order
    for size in sizes:
        for degree in range(order, 0, -1):
            sums[degree] += size * sums[degree - 1]
    return sums


def weigh_queries(
    domain: Domain, error: str, weights: Mapping[Any, float] | None = None, target: str | None = None
) -> Queries:
    """Return the queries of a domain with the error to minimise, from public values alone.

    `weights` has the weight of each marginal with a column, by its name, or of one marginal, by the names of its
    columns; those that are not named have 1. `target` is a column that a model is to predict.
    """
    check_choice("error", error, _ERRORS)
    weight_by_key = {} if weights is None else dict(weights)
    if (bool(weight_by_key) or target is not None) != (error == "weighted"):
        raise InvalidInput(
            "error_weights= and target= weigh the mean error: give one of them with error='weighted', and only then"
        )
    if error == "largest":
        return domain.queries
    if not isinstance(domain, MarginalWorkload):
        raise InvalidInput(f"error={error!r} is for marginals; other queries have their largest error made small")
    queries, index = domain.queries, {name: number for number, name in enumerate(domain.columns.names)}
    if target is not None:
        if domain.columns.names == (target,):
            raise InvalidInput(f"{target!r} is the only column: there is none to predict it from")
        [column] = _find_columns(target, index)
        weight_by_key[target] = weight_by_key.get(target, 1.0) * _weight_of_target(queries, column)
    factors = [(_find_columns(key, index), check_positive("weight", weight)) for key, weight in weight_by_key.items()]
    importance = [_importance(set(clique), factors) for clique in queries.cliques]
    return Marginals(queries.sizes, queries.cliques, importance, queries.possible)


def _importance(clique: set[int], factors: Sequence[tuple[set[int], float]]) -> float:
    """Return the weight of a marginal: the product of its own weight and those of its columns."""
    chosen = (factor for columns, factor in factors if columns == clique or (len(columns) == 1 and columns <= clique))
    return math.prod(chosen, start=1.0)


def target_column(domain: Domain, target: str) -> int:
    """Return the number of the column that a model is to predict."""
    assert isinstance(domain, MarginalWorkload)
    return domain.columns.names.index(target)


def _weight_of_target(queries: Marginals, target: int) -> float:
    """Return the weight of marginals with a target, so that they get about a third as much as all others together.

    The error of a marginal grows as its cells times its deviation d, at a cost of 1 / d**2: the least sum has
    deviations that go as (weight * cells)**(-1/3). With the weight `even` those of two kinds
    cost the same in all. With more for the target, columns that rise together come apart in synthetic records.
    """
    cells = np.array([float(np.prod(shape)) for shape in queries.shapes])
    beside = np.array([target in clique for clique in queries.cliques])
    if beside.all() or not beside.any():
        return 1.0
    ratio = float(len(beside) - beside.sum()) / float(beside.sum())
    even = float(ratio**1.5 * cells[~beside].mean() / cells[beside].mean())
    return float(max(1.0, even * _TARGET_COST**1.5))


def named_columns(weights: Mapping[Any, float] | None, target: str | None) -> set[Any]:
    """Return the names of the columns that weights or a target name."""
    return {name for key in (*(weights or ()), *filter(None, [target])) for name in _names_of_key(key)}


def _names_of_key(key: Any) -> Sequence[Any]:
    return [key] if isinstance(key, str) or not isinstance(key, Iterable) else list(key)


def _find_columns(key: Any, numbers: Mapping[str, int]) -> set[int]:
    """Return the numbers of the columns that a weight names."""
    names = _names_of_key(key)
    if not names or any(name not in numbers for name in names):
        raise InvalidInput(f"a weight names {key!r}, and the columns are {', '.join(numbers)}")
    return {numbers[name] for name in names}
