"""The columns of additive models: a curve for every number, a level for every category."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, is_named_id, warn_of_id
from quorate.core.errors import InvalidInput
from quorate.tables._embedded import Embedded
from quorate.tables.containers import OpenTable, is_frame, open_table_or_matrix
from quorate.tables.features._vectors import Vectors
from quorate.tables.features.blocks import (
    Block,
    Categories,
    Column,
    Ramps,
    block_from_document,
    block_of_kind,
    categories_from_public,
    check_input_names,
    column_numbers,
    declared_block,
    ramps_from_public,
    shares_of_blocks,
    spread_ramps,
)
from quorate.tables.features.combined import (
    FourierFeatures,
    Interaction,
    Side,
    make_fourier_features,
    make_interactions,
    make_side,
)
from quorate.tables.features.words import Words, number_for, words_from_public
from quorate.tables.reading import DEFAULT_READING, Reading
from quorate.tables.schema import Schema

OfSentences = Words | Vectors  # what a column of sentences becomes

_CUTS = 8
_MOST_CUTS = 24  # where numbers are few: each hour of a day has its own
_MOST_COLUMNS = 600  # of numbers: what public rows tell of more takes minutes
_ROWS_OF_CUT = 40  # public rows between two of more than `_CUTS` cuts
_FINE_COLUMNS = 300  # of numbers, up to which there are more than `_CUTS` cuts
_STRAIGHT = 3  # columns of a number beside those between its cuts: a line, and one beyond either end
_WORK = 5e10  # units times squared columns: about ten seconds on two cores


class AdditiveColumns(TransformerMixin, BaseEstimator):
    """Columns in [0, 1] from *public* rows or declared bounds. Never fit them on private records: nothing is charged.

    Parameters
    ----------
    cuts
        The number of parts into which the values of a numeric column are cut, each with about equally many public rows.
        The default is 24 for few numeric columns, 8 for many, and fewer if the fit would take too long.
    rare
        A category with fewer public rows than this is merged into the others.
    declared
        Public facts by column name (or number, for a matrix): `(low, high)`, a longer list of cuts, a list of
        categories, "text" for a column of sentences, or an `Embedded` for their vectors. With all columns declared,
        `fit(None)` needs no rows. A linear model without public rows learns where between `low` and `high` to cut, for
        a part of its budget, unless `cuts` are given.

    crosses
        Pairs of columns that interact, such as `[("age", "sex")]`. Each pair adds the products of the features of both
        columns, with numeric columns in two pieces. Choose pairs by public knowledge. By default a model of one
        output chooses them by a noisy sum of its residuals, within its own budget; `crosses=()` adds none.
    waves
        The number of random Fourier features of all numeric columns together; "auto" takes as many as the noise allows.
        Use them for tables with unknown interactions of numbers.

    reading
        The rules by which texts are read as numbers, dates and missing values; by default those of `Reading()`.
    shares
        The known means of declared columns by name: the shares of the cuts or categories (missing values last) and
        their standard deviation. They cost nothing more; `from_schema` takes them from noisy marginals.

    A linear model of these columns adds up one curve or level for each column of the table, as explainable boosting
    machines do. Unseen texts share one column, and so do numbers beyond the public ones on either side: a group that
    the public rows miss can still be distinguished.

    >>> import pandas
    >>> public = pandas.DataFrame({"age": [20, 30, 40, 50], "sex": ["f", "m", "f", "f"]})
    >>> columns = AdditiveColumns(cuts=2, rare=1).fit(public)
    >>> columns.get_feature_names_out().tolist()
    ['age from 20.15', 'age from 35', 'sex=f', 'sex=m', 'sex is another']
    >>> columns.transform(pandas.DataFrame({"age": [40], "sex": ["x"]})).round(2)
    array([[1.  , 0.34, 0.  , 0.  , 1.  ]])
    """

    def __init__(
        self,
        *,
        cuts: int | None = None,
        rare: int = 20,
        declared: Any = None,
        crosses: Any = None,
        waves: Any = 0,
        shares: Any = None,
        reading: Reading | None = None,
    ) -> None:
        self.cuts = cuts
        self.rare = rare
        self.declared = declared
        self.crosses = crosses
        self.waves = waves
        self.shares = shares
        self.reading = reading

    @property
    def rules(self) -> Reading:
        """The rules by which texts are read."""
        return DEFAULT_READING if self.reading is None else self.reading

    def uncut(self) -> dict[Any, Block]:
        """Return the declared blocks whose shares are not known, if private counts may say where to cut some of them.

        There are none where `cuts` are given or a column is one of texts.
        """
        declared, known = self._declarations(), self.shares or {}
        if self.cuts is not None or any(isinstance(value, str | Embedded) for value in declared.values()):
            return {}
        blocks = {
            name: declared_block(str(name), value, cuts=None) for name, value in declared.items() if name not in known
        }
        return blocks if any(map(_declared_cut, blocks.values())) else {}

    def with_learned(self, learned: Mapping[Any, tuple[Block, tuple[Floats, float]]]) -> "AdditiveColumns":
        """Return unfitted columns in which these blocks are declared, with their mean shares."""
        blocks = {name: block for name, (block, _) in learned.items()}
        shares = {name: share for name, (_, share) in learned.items()}
        parts = {"declared": self._declarations() | blocks, "shares": (self.shares or {}) | shares}
        return AdditiveColumns(**{**self.get_params(), **parts})

    @classmethod
    def from_schema(cls, schema: Schema) -> "AdditiveColumns":
        """Return unfitted columns of a schema's declarations: cuts or bounds of numbers, categories, rules for reading.

        A schema that was learned from private rows hands its noisy marginals on: a model then does not measure the
        means of these columns again. Columns that the schema leaves out are not among them.

        >>> from quorate.tables import Category, Number
        >>> schema = Schema({"age": Number(cuts=[20, 40, 60]), "sex": Category(["f", "m"])})
        >>> columns = AdditiveColumns.from_schema(schema)
        >>> columns.fit(None).get_feature_names_out().tolist()
        ['age', 'age from 20', 'age from 40', 'sex=f', 'sex=m', 'sex is another']
        """
        blocks = {name: block_of_kind(name, kind, schema.learned) for name, kind in schema.columns.items()}
        marginals = None if schema.learned is None else schema.learned.marginals
        shares = None if marginals is None else shares_of_blocks(blocks, marginals)
        return cls(
            declared=blocks, shares=shares, reading=None if schema.reading == DEFAULT_READING else schema.reading
        )

    def fit(
        self, X: Any, y: Any = None, *, units: int = 0, epsilon: float = 1.0, outputs: int = 1
    ) -> "AdditiveColumns":
        """Choose cuts and categories from public rows; declared columns are used as declared.

        `units`, a public number, and `epsilon` are those with which a model of these columns will be fitted; `outputs`
        is its number of classes or labels.
        """
        rare, declared = check_count("rare", self.rare), self._declarations()
        X = None if X is None else self._table(X, reset=True)
        names = list(declared) if X is None else names_of(X)
        numbers = self._count_numbers(X, names, declared)
        cuts, even = self._numbers_of_cuts(numbers, units * outputs, 0 if X is None else X.shape[0])
        number = number_for(units, epsilon, 0 if X is None else len(X))

        def block(name: Any) -> Any:
            column = None if X is None else column_of(X, name)
            if isinstance(declared.get(name), str) and declared[name] == "text":
                return words_from_public(str(name), column, number=number)
            if isinstance(declared.get(name), Embedded):
                return Vectors.of(str(name), declared[name], column)
            if name in declared:
                return declared_block(str(name), declared[name], cuts=even)
            return self._from_public(str(name), column, numeric=_is_numeric(X, name), cuts=cuts, rare=rare)

        self.blocks_ = [block(name) for name in names]
        self.names_ = names
        count = number if self.waves == "auto" else check_count("waves", self.waves, least=0)
        self.together_: list[Interaction | FourierFeatures] = [
            *make_interactions(self.blocks_, names, self.crosses),
            *make_fourier_features(self.blocks_, count),
        ]
        self.joined_ = _join_blocks(self.blocks_, names, X)
        self._know(names)
        return self

    def _numbers_of_cuts(self, numbers: int, units: int, public_rows: int) -> tuple[int, int]:
        """Return how many parts public rows cut a number into, and how many there are between declared ends."""
        if self.cuts is not None:
            return check_count("cuts", self.cuts), self.cuts
        cuts = cuts_for(numbers, units)
        return min(cuts, max(_CUTS, public_rows // _ROWS_OF_CUT)), min(cuts, _CUTS)

    @staticmethod
    def _count_numbers(X: Any, names: list[Any], declared: Mapping[Any, Any]) -> int:
        """Return how many columns are cut, and warn of those that are named as ids are."""
        cut = {name: _declared_cut(declared[name]) if name in declared else _is_cut(X, name) for name in names}
        for name in names:
            if name not in declared and is_named_id(name) and cut[name]:
                warn_of_id(name)
        return sum(cut.values())

    def _table(self, X: Any, *, reset: bool) -> OpenTable | Floats:
        """Return the rows opened, and learn their columns or check them."""
        if isinstance(X, OpenTable):
            return X
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return open_table_or_matrix(X)
        return open_table_or_matrix(validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False))

    def _know(self, names: list[Any]) -> None:
        """Keep what scikit-learn asks about columns: how many there are, and their names where all are texts."""
        self.n_features_in_ = len(names)
        self.__dict__.pop("feature_names_in_", None)
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _from_public(self, name: str, values: Column, *, numeric: bool, cuts: int, rare: int) -> Block:
        if numeric:
            return ramps_from_public(name, column_numbers(values, self.rules), cuts=cuts, rare=rare)
        return categories_from_public(name, values, rare=rare)

    def _declarations(self) -> dict[Any, Any]:
        if self.declared is None:
            return {}
        return dict(self.declared if isinstance(self.declared, Mapping) else enumerate(self.declared))

    def transform(self, X: Any) -> Floats:
        """Return one row of numbers in [0, 1] for each row, as an array or in the container of `set_output`."""
        check_is_fitted(self, "blocks_")
        return self.encode(self._table(X, reset=False))

    def encode(self, X: Any) -> Floats:
        """Return the result of `transform`, always as an array, for checked columns. No row is refused."""
        X = X if isinstance(X, OpenTable) else open_table_or_matrix(X)
        ramps = tuple(block for block in self.blocks_ if isinstance(block, Ramps))
        is_matrix = isinstance(X, np.ndarray) and X.dtype == np.float64 and X.shape[1:] == (len(ramps),)
        is_matrix = is_matrix and not self.rules.missing_numbers
        if is_matrix and len(ramps) == len(self.blocks_) and not self.together_:
            return spread_ramps(ramps, X)  # columns that stand together as they are
        return self.spread(self.read(X))

    def read(self, X: Any) -> list[NDArray[Any]]:
        """Return the values of each column as its block reads them: numbers, or places among the categories."""
        check_is_fitted(self, "blocks_")
        X = X if isinstance(X, OpenTable) else open_table_or_matrix(X)
        if X.shape[1] != len(self.names_):
            raise InvalidInput(f"rows must have {len(self.names_)} columns, got {X.shape[1]}")
        columns = [column_of(X, name, index) for index, name in enumerate(self.names_)]
        return [
            block.read(values) if isinstance(block, OfSentences) else block.read(values, self.rules)
            for block, values in zip(self.blocks_, columns, strict=True)
        ]

    def spread(self, read: Sequence[NDArray[Any]]) -> Floats:
        """Return the rows of numbers for values that were read, all of them or some."""
        parts = []
        for ramps, run in groupby(zip(self.blocks_, read, strict=True), key=lambda pair: isinstance(pair[0], Ramps)):
            blocks, columns = zip(*run, strict=True)
            if ramps:  # neighbours are spread together
                parts.append(spread_ramps(blocks, np.stack(columns, axis=1)))
            else:
                parts += [block.spread(column) for block, column in zip(blocks, columns, strict=True)]
        parts += [part.spread(read) for part in self.together_]
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that `transform` makes."""
        check_is_fitted(self, "blocks_")
        check_input_names(self, input_features)
        names = [name for part in (*self.blocks_, *self.together_) for name in part.names]
        return np.array(_make_unique(names), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value has a column of its own, or is 0 in all
        tags.input_tags.string = True
        return tags

    def atoms(self) -> list[Floats]:
        """Return rows that each block of columns may become by itself.

        0/1 columns side by side, of which no public row has two, are one block: the categories of one column.
        """
        atoms: list[Floats] = []
        for group in self.joined_:
            block = self.blocks_[group[0]]
            if isinstance(block, OfSentences):
                atoms += block.atoms()
            else:
                atoms.append(block.atoms() if len(group) == 1 else np.eye(len(group) + 1)[:, 1:])
        return atoms + [values for part in self.together_ for values in part.atoms()]

    def known_shares(self) -> tuple[Floats, float] | None:
        """Return the known mean shares of all blocks side by side and their standard deviation, or None."""
        if self.shares is None or self.together_ or any(name not in self.shares for name in self.names_):
            return None
        parts = [self.shares[name] for name in self.names_]
        return np.concatenate([part for part, _ in parts]), float(np.sqrt(np.mean([off**2 for _, off in parts])))

    def sides(self, means: Floats, pieces: int, *, numbers_alone: bool = False) -> list[Side]:
        """Return the columns that may interact, in at most so many pieces; `means` are those of all features.

        There are none where crosses or waves are declared.
        """
        if self.together_ or self.crosses is not None:
            return []
        starts = np.cumsum([0, *(len(block.names) for block in self.blocks_)])
        kinds = Ramps if numbers_alone else Ramps | Categories
        positions = [position for position, block in enumerate(self.blocks_) if isinstance(block, kinds)]
        sides = [
            make_side(self.blocks_, position, int(starts[position]), means, pieces=pieces) for position in positions
        ]
        return [side for side in sides if side is not None]

    def families(self) -> NDArray[np.int64]:
        """Return a number for each column, equal for those that are shrunk together; all straight lines have 0."""
        together: list[int] = []
        for group in self.joined_:
            block, number = self.blocks_[group[0]], max(together, default=0) + 1
            if isinstance(block, OfSentences):
                together += (number + block.octaves).tolist()
                continue
            line = isinstance(block, Ramps) and block.line is not None
            width = len(block.names) if len(group) == 1 else len(group)
            together += [0] * line + [number] * (width - line)
        for part in self.together_:
            together += [max(together) + 1] * len(part.names)
        return np.array(together, dtype=np.int64)

    def document(self) -> dict[str, Any]:
        """Return what `transform` needs as plain values, beside `arrays`."""
        names = [name if isinstance(name, str) else int(name) for name in self.names_]
        blocks = [block.document() if isinstance(block, OfSentences) else asdict(block) for block in self.blocks_]
        rules = {} if self.reading is None else {"reading": self.reading.to_document()}
        return {"names": names, "blocks": blocks, **self._together(), **rules}

    def _together(self) -> dict[str, Any]:
        """Return the pairs of columns that are crossed, and the number of waves."""
        return {
            "crosses": [asdict(part) for part in self.together_ if isinstance(part, Interaction)],
            "waves": sum(part.number for part in self.together_ if isinstance(part, FourierFeatures)),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `transform` needs as arrays: those of sentences, by the place of their column."""
        texts = [(index, block) for index, block in enumerate(self.blocks_) if isinstance(block, OfSentences)]
        return {f"{index}_{part}": values for index, block in texts for part, values in block.arrays().items()}

    @classmethod
    def from_document(
        cls, document: dict[str, Any], arrays: Mapping[str, NDArray[Any]] = MappingProxyType({})
    ) -> "AdditiveColumns":
        """Return fitted columns from what `document` and `arrays` returned."""
        columns = cls(reading=Reading.from_document(document["reading"]) if "reading" in document else None)
        columns.names_ = list(document["names"])
        parts: list[dict[str, NDArray[Any]]] = [{} for _ in document["blocks"]]
        for key, values in arrays.items():
            index, _, part = key.partition("_")
            parts[int(index)][part] = values
        columns.blocks_ = [
            _block_of_sentences(block, kept) if {"drawn", "embedder"} & set(block) else block_from_document(block)
            for block, kept in zip(document["blocks"], parts, strict=True)
        ]
        if len(columns.names_) != len(columns.blocks_):
            raise InvalidInput("the columns of the model are damaged or were changed")
        crosses = [_interaction_from(pair) for pair in document.get("crosses", [])]
        waves = make_fourier_features(columns.blocks_, int(document.get("waves", 0)))
        columns.together_ = [*crosses, *waves]
        columns.joined_ = [[index] for index in range(len(columns.blocks_))]
        columns._know(columns.names_)
        return columns


def _block_of_sentences(document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Words | Vectors:
    return (Words if "drawn" in document else Vectors).from_document(document, arrays)


def names_of(X: OpenTable | Floats) -> list[Any]:
    """Return the names of the columns of a table, or the numbers of a matrix's."""
    return list(X.columns) if isinstance(X, OpenTable) else list(range(X.shape[1]))


def column_of(X: OpenTable | Floats, name: Any, position: int = 0) -> Column:
    """Return the values of a column: by its name, or by its position where the rows have no such names."""
    if isinstance(X, OpenTable):
        return X.columns[name] if name in X.columns else list(X.columns.values())[position]
    return X[:, position if isinstance(name, str) else name]


def _interaction_from(document: Mapping[str, Any]) -> Interaction:
    first, second = (block_from_document(document[side]) for side in ("first", "second"))
    indices, codes = (tuple(document[part]) for part in ("places", "codes"))
    return Interaction((int(indices[0]), int(indices[1])), first, second, (tuple(codes[0]), tuple(codes[1])))


def _make_unique(names: list[str]) -> list[str]:
    """Return names of which no two are alike, as data frames ask for: cuts may be alike to six digits."""
    seen: Counter[str] = Counter()
    unique_names = []
    for name in names:
        seen[name] += 1
        unique_names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique_names


def cuts_for(numbers: int, units: int) -> int:
    """Return the number of parts of each numeric column; the work on a unit is quadratic in the total."""
    most = math.sqrt(_WORK / max(units, 1))
    share = min(_MOST_COLUMNS, most) / max(numbers, 1)
    if share < 2 * _STRAIGHT + 1:
        return min(_STRAIGHT, max(1, int(share)))
    fine = int(min(_FINE_COLUMNS, most) / max(numbers, 1)) - _STRAIGHT
    return max(min(_CUTS, int(share) - _STRAIGHT), min(_MOST_CUTS, fine))


def fineness_for(numbers: int, units: int) -> dict[str, Any]:
    """Return how finely learned cuts divide a column: into how many cells, or parts where there is room for many."""
    cuts = cuts_for(numbers, units)
    return {"most_parts": cuts} if cuts >= _CUTS else {"most_cells": cuts}


def _declared_cut(declared: Any) -> bool:
    """Return whether `cuts` cut a declared column: one with two ends."""
    if isinstance(declared, Ramps):
        return declared.has_ends_alone
    return isinstance(declared, Sequence) and len(declared) == 2 and not isinstance(declared[0], str)


def _is_numeric(X: OpenTable | Floats, name: Any) -> bool:
    """Return whether a column of public rows holds numbers, by its type."""
    return isinstance(X, np.ndarray) or X.kinds[name] == "number"


def _is_cut(X: OpenTable | Floats, name: Any) -> bool:
    """Return whether `cuts` apply to a public column: numbers with more than two distinct values."""
    return _is_numeric(X, name) and len(np.unique(column_numbers(column_of(X, name)))) > 2


def _join_blocks(blocks: list[Block], names: list[Any], X: Any) -> list[list[int]]:
    """Return which blocks go together: 0/1 columns side by side of which no public row has two."""
    groups: list[list[int]] = []
    filled = np.zeros(0)
    for index, (block, name) in enumerate(zip(blocks, names, strict=True)):
        if X is not None and isinstance(block, Ramps) and block.cuts == (0.0, 1.0) and not block.missing:
            column = column_numbers(column_of(X, name))
            if filled.size and (filled + column).max() <= 1:
                groups[-1].append(index)
                filled = filled + column
                continue
            filled = column
        else:
            filled = np.zeros(0)
        groups.append([index])
    return groups
