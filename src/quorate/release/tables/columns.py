"""What is known in public about the columns of a table."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.checks import check_count
from quorate.concepts.line import cut_points
from quorate.errors import Infeasible, InvalidInput
from quorate.release.queries import Rows
from quorate.release.tables.kinds import Categories, Cuts, Kind
from quorate.release.tables.values import read_columns, read_numbers
from quorate.tables.document import read_document
from quorate.tables.infer import MOST_CATEGORIES
from quorate.tables.schema import MISSING_TEXTS
from quorate.tables.values import is_readable, texts

__all__ = ["BINS", "Columns"]

BINS = 10  # cells of a column of numbers, where every gap between public values would be too many
_MOST_CODES = 2**29  # of one table: 4 GiB


class Columns:
    """Columns with their kinds, in an order. Each has a last code for what is not declared or missing.

    >>> columns = Columns({"sex": Categories(["f", "m"]), "age": Cuts([18, 65])})
    >>> columns.encode({"age": [30, "?"], "sex": ["m", "x"]}).codes.tolist()
    [[1, 1], [2, 3]]
    """

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = dict(kinds)
        for name, kind in self.kinds.items():
            if not isinstance(name, str) or not name or not isinstance(kind, Categories | Cuts):
                raise InvalidInput(f"columns must map names to Categories(...) or Cuts(...), not {name!r} to {kind!r}")
        if not self.kinds:
            raise InvalidInput("at least one column must be declared")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and list(self.kinds.items()) == list(other.kinds.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Columns({', '.join(f'{name}: {kind.size} codes' for name, kind in self.kinds.items())})"

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Columns":
        """Return columns as a JSON object declares them: a list is one of categories.

        >>> Columns.from_dict({"sex": ["f", "m"], "age": {"cuts": [18, 65]}})
        Columns(sex: 3 codes, age: 4 codes)
        """
        if not isinstance(document, Mapping):
            raise InvalidInput('columns must be an object such as {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}')
        return cls({name: _declared(name, given) for name, given in document.items()})

    @classmethod
    def load(cls, path: str | Path) -> "Columns":
        """Read columns from a JSON file.

        >>> Columns.load("nowhere.json")
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: nowhere.json: there is no such file
        """
        return cls.from_dict(read_document(path))

    @classmethod
    def from_public(
        cls,
        public: Any,
        *,
        declared: "Columns | Mapping[str, Any] | None" = None,
        names: Sequence[str] | None = None,
        bins: int | None = None,
    ) -> "Columns":
        """Return columns as *public* rows show them; what is declared stays. Never pass private rows.

        A column of texts has the public texts for categories. A column of numbers is cut halfway between each two
        neighbouring public values, or with `bins` into so many cells that hold about as many of them each.

        >>> Columns.from_public({"sex": ["f", "m", "f"], "age": [30, 40, 50]}).kinds["age"]
        Cuts(values=(35.0, 45.0))
        """
        known = declared if isinstance(declared, Columns) else cls.from_dict(declared) if declared else None
        given = dict(known.kinds) if known else {}
        wanted = list(dict.fromkeys([*given, *_names(public)])) if names is None else list(names)
        found = read_columns(public, [name for name in wanted if name not in given], whose="the public table")
        return cls({name: given[name] if name in given else _from_public(name, found[name], bins) for name in wanted})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns.

        >>> Columns({"age": Cuts([18])}).names
        ('age',)
        """
        return tuple(self.kinds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column has.

        >>> Columns({"age": Cuts([18])}).sizes
        (3,)
        """
        return tuple(kind.size for kind in self.kinds.values())

    def select(self, names: Sequence[str]) -> "Columns":
        """Return some of the columns.

        >>> Columns.from_dict({"sex": ["f", "m"], "age": {"cuts": [18]}}).select(["age"])
        Columns(age: 3 codes)
        """
        lacking = [name for name in names if name not in self.kinds]
        if lacking:
            raise InvalidInput(f"column {lacking[0]!r} is not declared; the columns are {', '.join(self.kinds)}")
        return Columns({name: self.kinds[name] for name in names})

    def encode(self, table: Any) -> Rows:
        """Return the codes of each row. No value raises; only a column that is not there, or of a type like dates.

        >>> Columns({"age": Cuts([18])}).encode(np.array([[3.0], [np.nan]])).codes.tolist()
        [[0], [2]]
        """
        columns = read_columns(table, self.names)
        count = len(next(iter(columns.values())))
        if count * len(columns) > _MOST_CODES:
            raise Infeasible(f"{count} rows of {len(columns)} columns are more than fit; declare fewer columns")
        codes = np.empty((len(columns), count), dtype=np.int64)
        for place, (name, kind) in enumerate(self.kinds.items()):
            codes[place] = kind.codes(columns[name])
        return Rows(codes.T, self.sizes)

    def decode(self, codes: NDArray[np.int64]) -> dict[str, list[Any]]:
        """Return a value for each code, column by column: of a cell without bounds one near its end.

        >>> Columns.from_dict({"sex": ["f", "m"]}).decode(np.array([[1], [2]]))
        {'sex': ['m', None]}
        """
        given = np.asarray(codes, dtype=np.int64).reshape(-1, len(self.kinds))
        values = {}
        for place, (name, kind) in enumerate(self.kinds.items()):
            centres = [kind.centre(code) for code in range(kind.size)]
            values[name] = [centres[code] for code in given[:, place].tolist()]
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that declares these columns.

        >>> Columns({"age": Cuts([18])}).to_dict()
        {'age': {'cuts': [18.0]}}
        """
        return {name: kind.to_dict() for name, kind in self.kinds.items()}

    def save(self, path: str | Path) -> None:
        """Write the columns to a JSON file, to be read and changed by hand.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Columns({"age": Cuts([18])}).save(f"{folder}/columns.json")
        ...     Columns.load(f"{folder}/columns.json") == Columns({"age": Cuts([18])})
        True
        """
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _declared(name: str, given: Any) -> Kind:
    try:
        if isinstance(given, Sequence) and not isinstance(given, str):
            return Categories(given)
        if isinstance(given, Mapping) and set(given) == {"categories"}:
            return Categories(given["categories"])
        if isinstance(given, Mapping) and set(given) == {"cuts"}:
            return Cuts(given["cuts"])
    except InvalidInput as error:
        raise InvalidInput(f"column {name!r}: {error}") from None
    raise InvalidInput(f'column {name!r}: expected {{"categories": [...]}} or {{"cuts": [...]}}, not {given!r}')


def _names(table: Any) -> list[str]:
    if isinstance(table, Mapping):
        return list(table)
    found = getattr(table, "columns", None)
    if hasattr(table, "column_names"):
        found = table.column_names
    if found is None:
        raise InvalidInput("the public table must have names: a pandas or polars frame, an Arrow table or a mapping")
    return [str(name) for name in found]


def _from_public(name: str, column: pa.Array, bins: int | None) -> Kind:
    assert is_readable(column.type)
    if pa.types.is_boolean(column.type):
        return Categories(["false", "true"])
    values = read_numbers(column)
    known = np.unique(values[np.isfinite(values)])
    written = texts(column, missing=MISSING_TEXTS)
    if known.size and np.isfinite(values).sum() >= len(written) - written.null_count:
        return Cuts((cut_points(known) if bins is None else _binned(values[np.isfinite(values)], bins)).tolist())
    different = sorted(set(written.drop_null().to_pylist()))
    if not different:
        raise InvalidInput(f"column {name!r} has no value in the public table: declare it, or leave it out")
    if len(different) > MOST_CATEGORIES:
        raise InvalidInput(
            f"column {name!r} has {len(different)} different texts in the public table, and at most {MOST_CATEGORIES} "
            "can be taken for categories: declare them, or leave the column out"
        )
    return Categories(different)


def _binned(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return cuts between distinct values that leave about as many values in each of so many cells."""
    distinct, counts = np.unique(values, return_counts=True)
    cuts, bins = cut_points(distinct), check_count("bins", bins)
    if cuts.size < bins:
        return cuts
    shares = np.cumsum(counts)[:-1] / values.size
    wanted = np.searchsorted(shares, np.arange(1, bins) / bins)
    return np.asarray(cuts[np.unique(np.minimum(wanted, cuts.size - 1))])
