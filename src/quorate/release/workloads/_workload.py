"""The queries on a table, before its columns are declared."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.release.queries import NOTHING, Marginals, Matrix, Rows, Whole
from quorate.release.workloads._bound import BoundWorkload
from quorate.release.workloads._columns import BINS, Columns
from quorate.release.workloads._expressions import (
    Comparison,
    Degrees,
    Expression,
    comparisons,
    evaluate_expression,
    parse_expression,
)
from quorate.release.workloads.constraints import check_comparison, truth_by_cell
from quorate.release.workloads.groups import HierarchyWorkload, LineWorkload
from quorate.release.workloads.marginals import MarginalWorkload
from quorate.tables import Category, Number, Schema
from quorate.tables.columns import Kind
from quorate.tables.containers import prefix_errors
from quorate.tables.values import canonical_text

_KINDS = ("marginals", "thresholds", "ranges", "hierarchy", "expressions")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """All marginals of some order, thresholds, ranges or the hierarchy of a column, or a list of boolean expressions.

    `bind` attaches its columns, from declarations and public rows.

    >>> bound = Workload.thresholds("age", by=["sex"]).bind(public={"age": [20, 30, 40], "sex": ["f", "m", "f"]})
    >>> bound.describe()[0]["query"], bound.count_queries
    ('age < 25 and sex = f', 9)
    """

    kind: Literal["marginals", "thresholds", "ranges", "hierarchy", "expressions"]
    order: int | None = None
    column: str | None = None
    by: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    bins: int | None = None

    @classmethod
    def marginals(cls, order: int, *, bins: int | None = None) -> "Workload":
        """Return all marginals of `order` columns. Public rows cut a numeric column into `bins` cells.

        Without public rows, a number without cuts has at most this many cells and one beyond each end.
        """
        return cls(kind="marginals", order=check_count("order", order), bins=_bins(bins))

    @classmethod
    def thresholds(cls, column: str, by: Sequence[str] | str = (), *, bins: int | None = None) -> "Workload":
        """Return the shares of each group below each cut; without `bins`, cuts separate all public values."""
        return cls(kind="thresholds", column=_column(column), by=_by(by), bins=_bins(bins))

    @classmethod
    def ranges(cls, column: str, by: Sequence[str] | str = (), *, bins: int | None = None) -> "Workload":
        """Return the shares of each group between each two cuts of a column."""
        return cls(kind="ranges", column=_column(column), by=_by(by), bins=_bins(bins))

    @classmethod
    def hierarchy(cls, column: str, by: Sequence[str] | str = ()) -> "Workload":
        """Return the shares of each group in each node of a column's `parents`; the answers add up."""
        return cls(kind="hierarchy", column=_column(column), by=_by(by))

    @classmethod
    def expressions(cls, texts: Sequence[str]) -> "Workload":
        """Return a list of boolean expressions over columns, each answered exactly."""
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise InvalidInput("expressions must be a list of at least one text")
        return cls(kind="expressions", texts=tuple(texts))

    @classmethod
    def parse(cls, text: str) -> "Workload":
        """Parse a workload from a word of the command line; `expressions:FILE` has one expression a line."""
        kind, _, rest = text.partition(":")
        column, _, by = rest.partition(":")
        groups = tuple(name for name in by.split(",") if name)
        if kind == "marginals" and rest.isdecimal():
            return cls.marginals(int(rest))
        if kind in ("thresholds", "ranges", "hierarchy") and column:
            workload: Workload = getattr(cls, kind)(column, groups)
            return workload
        if kind == "expressions" and rest:
            return cls.expressions(_lines(Path(rest)))
        raise InvalidInput(
            "a workload is marginals:ORDER, thresholds:COLUMN[:BY,...], ranges:COLUMN[:BY,...], "
            f"hierarchy:COLUMN[:BY,...] or expressions:FILE, not {text!r}"
        )

    def bind(self, public: Any = None, columns: Columns | Schema | Mapping[str, Any] | None = None) -> BoundWorkload:
        """Return this workload on declared columns; undeclared columns are inferred from public rows."""
        declared = Columns.from_declaration(columns)
        if self.kind == "expressions":
            if declared is not None and declared.constraints:
                raise InvalidInput("expressions cut columns where they compare them, and keep no constraints")
            return ExpressionWorkload(self.texts, self._expression_columns(public, declared))
        if public is None and declared is None:
            raise InvalidInput(
                "columns must be declared or read off public rows: pass columns= (--columns), such as "
                '{"sex": ["f", "m"], "age": {"kind": "number"}}, or public= (--public)'
            )
        if self.kind == "marginals":
            return self._bind_marginals(public, declared)
        assert self.column is not None
        if self.kind == "hierarchy":
            return HierarchyWorkload(self._hierarchy_columns(public, declared), self.column, self.by)
        return LineWorkload(self._line_columns(public, declared), self.column, self.by, self.kind)

    def _bind_marginals(self, public: Any, declared: Columns | None) -> MarginalWorkload:
        assert self.order is not None
        if public is not None:
            bins = BINS if self.bins is None else self.bins
            declared = Columns.from_public(public, declared=declared, bins=bins, codes=True)
        assert declared is not None
        return MarginalWorkload(declared, self.order)

    def _hierarchy_columns(self, public: Any, declared: Columns | None) -> Columns:
        """Return the group columns and the column of the hierarchy, whose parents must be declared."""
        assert self.column is not None
        if declared is None or self.column not in declared.kinds:
            raise InvalidInput(f"the hierarchy of {self.column!r} must be declared: Category([...], parents={{...}})")
        names = [*self.by, self.column]
        if public is None or set(names) <= set(declared.kinds):
            return declared.select(names)
        return Columns.from_public(public, declared=declared, names=names, bins=BINS, codes=True)

    def _expression_columns(self, public: Any, declared: Columns | None) -> Columns | None:
        """Return the columns of expressions, which compare dates as texts."""
        if public is None:
            return declared
        return Columns.from_public(public, declared=declared, bins=BINS, dates=False)

    def _line_columns(self, public: Any, declared: Columns | None) -> Columns:
        """Return the group columns with few cells each, and the column itself, cut between all public values."""
        assert self.column is not None
        names = [*self.by, self.column]
        if public is None:
            assert declared is not None
            return declared.select(names)
        kinds = {} if declared is None else dict(declared.kinds)
        if lacking := [name for name in self.by if name not in kinds]:
            kinds |= Columns.from_public(public, names=lacking, bins=BINS, codes=True).kinds
        if self.column not in kinds:
            kinds |= Columns.from_public(public, names=[self.column], bins=self.bins).kinds
        ordered = {name: kinds[name] for name in names}
        if declared is None:
            return Columns(ordered)
        return Columns(ordered, constraints=declared.constraints_on(names), reading=declared.reading)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that describes this workload."""
        settings = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items() if value}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Workload":
        """Return the workload that a JSON object describes."""
        kind = document.get("kind") if isinstance(document, Mapping) else None
        if kind not in _KINDS:
            raise InvalidInput(f'a workload needs a "kind", one of {", ".join(_KINDS)}, not {kind!r}')
        make = getattr(cls, str(kind))
        settings = {name: value for name, value in document.items() if name != "kind"}
        try:
            signature(make).bind(**settings)
        except TypeError as error:
            raise InvalidInput(f"a workload of {kind}: {error}") from None
        workload: Workload = make(**settings)
        return workload


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: texts must be encoded as UTF-8") from None
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _column(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"column must be the name of a column, not {name!r}")
    return name


def _by(names: Sequence[str] | str) -> tuple[str, ...]:
    columns = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) and name for name in columns) or len(set(columns)) != len(columns):
        raise InvalidInput(f"by must be different names of columns, not {names!r}")
    return columns


def _bins(bins: int | None) -> int | None:
    return None if bins is None else check_count("bins", bins, least=2)


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
