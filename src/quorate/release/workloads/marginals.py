"""All marginals of some order."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.queries import MOST_LISTED, Marginals, Rows, Whole
from quorate.release.workloads.bound import BoundWorkload, tidy_name
from quorate.release.workloads.columns import Columns, names_of

__all__ = ["MarginalWorkload", "cells_of_orders"]


class MarginalWorkload(BoundWorkload):
    """Every cell of the table of each `order` columns, the cells of what is not declared among them."""

    queries: Marginals

    def __init__(self, columns: Columns, order: int) -> None:
        self.order = check_count("order", order)
        if self.order > len(columns.names):
            raise InvalidInput(f"marginals of {order} columns need as many columns, not {len(columns.names)}")
        _check_size(columns.sizes, self.order)
        queries = Marginals.of_order(columns.sizes, self.order, columns.possible)
        super().__init__(columns, queries, queries.count)

    def unread(self, table: Any) -> tuple[str, ...]:
        """Return the columns of a table that are not declared: marginals are of all columns."""
        return tuple(name for name in names_of(table) if name not in self.columns.names)

    def count(self, table: Any) -> Rows:
        """Return the rows by their codes."""
        return self.encode(table)

    def find(self, asked: Any) -> int:
        """Return the number of the query for a value of each of its columns."""
        if not isinstance(asked, Mapping) or len(asked) != self.order:
            raise InvalidInput(
                "a query of this workload is a mapping such as {'column': value}, with values of at most "
                f"{self.order} columns"
            )
        codes = self._codes(asked)
        clique = tuple(sorted(codes))
        return self.queries.number(self.queries.cliques.index(clique), [codes[column] for column in clique])

    def summed(self, asked: Any) -> Whole | None:
        """Return the cells of a table that add up to what is asked of fewer columns: those of the smallest table."""
        if not isinstance(asked, Mapping) or not 0 < len(asked) < self.order:
            return None
        codes = self._codes(asked)
        tables = [place for place, clique in enumerate(self.queries.cliques) if set(codes) <= set(clique)]
        place = min(tables, key=lambda table: math.prod(self.queries.shapes[table]))
        index = tuple(codes.get(column, slice(None)) for column in self.queries.cliques[place])
        cells = np.arange(math.prod(self.queries.shapes[place])).reshape(self.queries.shapes[place])
        return np.asarray(cells[index].ravel() + self.queries.offsets[place])

    def describe_sum(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of what is asked of fewer columns than a table has."""
        return self._named(self._codes(asked))

    def _codes(self, asked: Mapping[str, Any]) -> dict[int, int]:
        chosen = self.columns.select(list(asked))
        return {self.columns.names.index(name): chosen.code(name, value) for name, value in asked.items()}

    def _name(self, number: int) -> dict[str, Any]:
        clique, codes = self.queries.find(number)
        return self._named(dict(zip(self.queries.cliques[clique], codes, strict=True)))

    def _named(self, codes: Mapping[int, int]) -> dict[str, Any]:
        names = self.columns.names
        said = {names[column]: self.columns.cells[names[column]].name(codes[column]) for column in sorted(codes)}
        text = " and ".join(f"{name} = {value}" for name, value in said.items())  # a category may be a blank
        return tidy_name(text, dict.fromkeys(names, "") | said)

    def _settings(self) -> dict[str, Any]:
        return {"kind": "marginals", "order": self.order}


def cells_of_orders(sizes: Sequence[int], order: int) -> list[int]:
    """Return how many cells all marginals of no column, of one, and so on up to `order` have.

    They are symmetric polynomials of the sizes: no marginal is listed.
    """
    sums = [1] + [0] * order
    for size in sizes:
        for degree in range(order, 0, -1):
            sums[degree] += size * sums[degree - 1]
    return sums


def _check_size(sizes: tuple[int, ...], order: int) -> None:
    """Refuse more queries than can be listed, before any is."""
    queries = cells_of_orders(sizes, order)[order]
    if queries > MOST_LISTED:
        raise Infeasible(
            f"all marginals of {order} of these {len(sizes)} columns are {queries} queries, above {MOST_LISTED}; "
            "take a lower order, fewer columns or fewer cells of each"
        )
