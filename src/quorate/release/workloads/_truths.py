"""A list of boolean expressions as a workload."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.errors import InvalidInput
from quorate.release.queries import NOTHING, Marginals, Matrix, Rows, Whole
from quorate.release.workloads._bound import BoundWorkload
from quorate.release.workloads._columns import Columns
from quorate.release.workloads._expressions import (
    Comparison,
    Degrees,
    Expression,
    comparisons,
    evaluate_expression,
    parse_expression,
)
from quorate.release.workloads.constraints import check_comparison, truth_by_cell
from quorate.tables import Category, Number
from quorate.tables.columns import Kind
from quorate.tables.containers import prefix_errors
from quorate.tables.values import canonical_text

_MOST_CELLS = 1_000_000
_MOST_TRUTHS = 50_000_000  # cells times queries that are written out
_MOST_CODES = 2**29  # rows times queries: 4 GiB

Truths = NDArray[np.bool_]


class ExpressionWorkload(BoundWorkload):
    """Each expression is a query, answered exactly: columns are cut where the expressions compare them.

    The cells are those of the table of all columns that are named, and one row of truth values a query says which cells
    it counts. Where that is too large, each expression is a column of its own, and the queries are one-way marginals.
    """

    def __init__(self, texts: Sequence[str], declared: Columns | None) -> None:
        self.texts = tuple(texts)
        if not self.texts or isinstance(texts, str):
            raise InvalidInput("expressions must be a list of at least one text")
        self._parsed = [_parsed(number, text) for number, text in enumerate(self.texts)]
        columns = _columns(self._parsed, declared)
        cells = math.prod(columns.sizes)
        self._listed = cells <= _MOST_CELLS and cells * len(self.texts) <= _MOST_TRUTHS
        queries: Matrix | Marginals
        if self._listed:
            grid = np.unravel_index(np.arange(cells), columns.sizes)
            queries = Matrix(self._truths(columns, dict(zip(columns.names, grid, strict=True)).__getitem__))
        else:
            queries = Marginals((2,) * len(self.texts), [(column,) for column in range(len(self.texts))])
        super().__init__(columns, queries, len(self.texts))

    def _truths(self, columns: Columns, codes: Callable[[str], Whole]) -> Truths:
        def compare(comparison: Comparison) -> Degrees:
            truth = truth_by_cell(comparison, columns.cells[comparison.column])
            return np.where(truth > 0, 1, -1).astype(np.int8)[codes(comparison.column)]  # a missing value is false

        return np.array([evaluate_expression(expression, compare) > 0 for expression in self._parsed])

    def count(self, records: Any) -> Whole | Rows:
        """Return the number of rows in each cell, or for each row the expressions that it satisfies."""
        if self._listed:
            return super().count(records)
        rows = self.encode(records)
        if rows.records * len(self.texts) > _MOST_CODES:
            raise InvalidInput(f"{rows.records} rows and {len(self.texts)} expressions are too many; ask fewer at once")
        truths = self._truths(self.columns, lambda name: rows.narrow[:, self.columns.names.index(name)])
        return Rows(truths.T.view(np.uint8), (2,) * len(self.texts))

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the engine's query of each expression."""
        plus = np.asarray(numbers, dtype=np.int64)
        return plus if self._listed else 2 * plus + 1, np.full_like(plus, NOTHING)

    def _find(self, request: Any) -> int:
        """Return the number of the equivalent expression, regardless of spacing and notation."""
        wanted = parse_expression(request)
        if wanted not in self._parsed:
            raise InvalidInput("this expression is not among those of the workload")
        return self._parsed.index(wanted)

    def _find_name(self, text: str) -> int:
        return self._find(text)

    def decode(self, codes: ArrayLike) -> dict[str, list[Any]]:
        """Return values of the columns, or of the expressions where these are the columns."""
        rows = np.asarray(codes, dtype=np.int64)
        if self._listed:
            return super().decode(rows)
        return {text: [bool(code) for code in column] for text, column in zip(self.texts, rows.T, strict=True)}

    def _name(self, number: int) -> dict[str, Any]:
        return {"query": self.texts[number]}

    def _settings(self) -> dict[str, Any]:
        return {"kind": "expressions", "texts": list(self.texts)}


def _parsed(number: int, text: str) -> Expression:
    with prefix_errors(f"expression {number + 1}, "):
        return parse_expression(text)


def _columns(parsed: list[Expression], declared: Columns | None) -> Columns:
    """Return the columns of the expressions, cut at the constants of their comparisons."""
    compared: dict[str, list[Comparison]] = {}
    for number, expression in enumerate(parsed):
        for comparison in comparisons(expression):
            if declared is not None:
                with prefix_errors(f"expression {number + 1}: "):
                    check_comparison(comparison, declared.select([comparison.column]).cells[comparison.column])
            compared.setdefault(comparison.column, []).append(comparison)
    kinds = {name: _kind(name, listed, declared) for name, listed in compared.items()}
    return Columns(kinds) if declared is None else Columns(kinds, reading=declared.reading)


def _kind(name: str, comparisons: list[Comparison], declared: Columns | None) -> Kind:
    constants = [comparison.constant for comparison in comparisons]
    types = {type(constant) for constant in constants}
    if declared is None and types == {float, str}:
        raise InvalidInput(f"column {name!r} is compared with numbers and with texts: put all in quotes, or none")
    if types == {str} if declared is None else isinstance(declared.kinds[name], Category):
        return Category(list(dict.fromkeys(canonical_text(constant) for constant in constants)))
    return Number(cuts=sorted({cut for comparison in comparisons for cut in _cuts(comparison)}))


def _cuts(comparison: Comparison) -> Iterator[float]:
    """Yield the cuts at which a comparison changes; a cell includes its lower cut and excludes its upper one."""
    end = float(comparison.constant)
    following = math.nextafter(end, math.inf)
    if comparison.sign in ("<", ">=", "="):
        yield end
    if comparison.sign in ("<=", ">", "=") and math.isfinite(following):
        yield following
