"""Linear models of tables of any size: rows are read once, encoded, and wait on disk or on the workers of a cluster.

Every release of the fit is then a sum over blocks of these rows (`compute.blocks`): the same whole numbers as of rows
in memory, so that the same draws give the same model. PROOF.md, step 2.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from quorate.compute.blocks import AddBlock, Blocks
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.models.linear._engine import Fitted
from quorate.models.linear._sums import PrivateSums
from quorate.tables import Schema
from quorate.tables.containers import as_table, check_columns
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.additive import OfSentences
from quorate.tables.features.blocks import Ramps

if TYPE_CHECKING:
    from quorate.compute.ensemble.clusters import ClusterTable
    from quorate.compute.ensemble.dealing import Encoded
    from quorate.tables.files import TableStream


@dataclass(frozen=True)
class Target:
    """What is predicted from a table: a column, one number for each of its rows, and the targets that this means."""

    column: str
    read: Callable[[Any], Floats]  # of a table
    expand: Callable[[Floats], Floats]  # a column of targets for each output
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class _ReadRows:
    """How rows of a table become what the columns read, with the target behind it, here or on a worker."""

    columns: AdditiveColumns
    names: tuple[str, ...]
    target: Target
    schema: Schema

    def __call__(self, table: Any) -> "Encoded":
        """Return the rows, codes that say nothing, and whose they are."""
        from quorate.compute.ensemble.dealing import people_of  # noqa: PLC0415

        table = as_table(table)
        read = self.columns.read(table.select(list(self.names)))
        X = np.column_stack([*read, self.target.read(table)]).astype(np.float64, copy=False)
        return X, np.zeros(len(X), dtype=np.int64), people_of(self.schema, table)


def _values_of(columns: AdditiveColumns, X: Floats) -> list[NDArray[Any]]:
    """Return what the columns have read of these rows: numbers, or places among categories."""
    return [
        X[:, number] if isinstance(block, Ramps) else X[:, number].astype(np.int32)
        for number, block in enumerate(columns.blocks_)
    ]


def _encode(columns: AdditiveColumns, target: Target, X: Floats) -> tuple[Floats, Floats]:
    return columns.spread(_values_of(columns, X)), target.expand(X[:, -1])


def _add_first_rows(
    columns: AdditiveColumns, function: Callable[[Mapping[Any, Any]], Integers], X: Floats, firsts: Integers
) -> Integers:
    """Return what a function says of the first row of each unit."""
    with np.errstate(all="ignore"):
        return function(dict(zip(columns.names_, _values_of(columns, X[firsts]), strict=True)))


def _count_first_rows(blocks: Blocks, columns: AdditiveColumns, function: Any, entries: int) -> Integers:
    add: AddBlock = partial(_add_first_rows, columns, function)
    return blocks.map_add(add, entries)


class FitsTables:
    """A linear model that is also fitted on a table of any size."""

    columns: Any
    offset: Any

    if TYPE_CHECKING:  # the rest of a linear model

        def __getattr__(self, name: str) -> Any: ...

    @abstractmethod
    def _target(self, schema: Schema, label: str | None) -> Target:
        """Return what is predicted, and keep its classes."""

    @abstractmethod
    def _problem(self) -> dict[str, Any]:
        """Return what is fitted, besides the columns."""

    @abstractmethod
    def _keep(self, fitted: Fitted, conditions: tuple[str, ...] = ()) -> Self:
        """Keep what was fitted."""

    def fit_table(
        self,
        source: Any,
        schema: Schema,
        *,
        label: str | None = None,
        public: Any = None,
        memory: int | str | None = None,
        spill: str | Path | None = None,
        cluster: Any = None,
    ) -> Self:
        """Fit from a table of any size, which is read once, some ten thousand rows at a time. This spends the budget.

        Parameters
        ----------
        source
            A file, a folder or a pattern of CSV, Parquet or Arrow files, several of them, a query to a database
            ("postgresql://host/clinic?query=SELECT ...", "duckdb:clinic.db?query=SELECT ..."), a
            `pyarrow.dataset.Dataset` or a `quorate.tables.files.TableStream`.
        schema
            What the columns hold, their label or not, and the column of people if these are protected. It is public and
            must be complete: bounds or cuts of each number, categories of each text. Between bounds, cuts are learned.
        label
            The column to predict; by default that of the schema.
        public
            A table of rows that are not private, with the same columns, as for `fit`. It then says how columns are cut.
        memory
            About how many bytes to use beside the program, 1GB by default. Of people, a 128th of all encoded rows must
            fit in.
        spill
            The folder where encoded rows wait until the fit ends, by default the system's temporary folder: in files
            that have no name, that nobody else can read, and that are gone when the call ends, however it ends.
        cluster
            The address of a Dask scheduler or of a Ray cluster, "local", "ray" or a `distributed.Client`. Its workers
            then read the files, keep the encoded rows and add them up; no row reaches this process.

        The model is that of `fit` on the same rows with `columns=schema`, bit for bit if the noise is the same.

        >>> import tempfile
        >>> import pyarrow as pa, pyarrow.parquet
        >>> from quorate.models.linear import PrivateLogisticRegression
        >>> from quorate.tables import Label, Number
        >>> schema = Schema({"age": Number(low=0, high=100)}, label=Label("ill", ["no", "yes"]))
        >>> ages = np.arange(20_000) % 100
        >>> table = pa.table({"age": ages, "ill": np.where(ages > 50, "yes", "no")})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pyarrow.parquet.write_table(table, Path(folder, "visits.parquet"))
        ...     model = PrivateLogisticRegression(epsilon=2.0).fit_table(folder, schema)
        >>> model.predict(pa.table({"age": [20, 80]})).tolist()
        ['no', 'yes']
        """
        self._forget_fit()
        target = self._target(schema, label)
        names = [name for name in schema.columns if name != target.column]
        with _close_on_error(_open_table(source, cluster, memory, spill)) as table:
            return self._fit_opened(table, schema, target, names, public=public, memory=memory, spill=spill)

    def _fit_opened(
        self, table: Any, schema: Schema, target: Target, names: list[str], *, public: Any, memory: Any, spill: Any
    ) -> Self:
        _check_header(table.header, schema, names, target)
        header = table.header.select(names)
        public = None if public is None else as_table(public).select(names)
        encoded_public = None if public is None else self._public_rows(public, wide=False)
        rows = self._private_rows(header, encoded_public, wide=False)
        self._check_offset(rows)
        columns = self._declare_offset(self._columns_of(schema, names, header, public), len(names))
        encoding = _ReadRows(_fit_reader(columns, encoded_public), tuple(names), target, schema)
        with closing(_read_blocks(table, encoding, memory, spill)) as blocks:
            if not blocks.count:
                raise InvalidInput("the table has no rows")
            self.unit_ = "row" if schema.groups is None else "person"
            problem = self._problem()
            sizes = {"units": blocks.count, "epsilon": self.epsilon, "outputs": problem["outputs"]}
            count = partial(_count_first_rows, blocks, encoding.columns)
            noisy = self._fit_columns(columns, header, rows, encoded_public, None, count=count, **sizes)
            encode = partial(_encode, self.columns_, target)
            private = PrivateSums.of_blocks(blocks, encode, one_each=schema.groups is None)
            return self._keep(self._fit_sums(private, encoded_public, noisy, problem), target.conditions)

    def _columns_of(self, schema: Schema, names: list[str], header: Any, public: Any) -> AdditiveColumns:
        """Return unfitted columns: those of the model, or what the schema declares where there are no public rows."""
        if self.columns is not None or public is not None:
            columns = self._unfitted_columns(header, public)
        else:
            features = schema if list(schema.columns) == names else schema.without([*{*schema.columns} - {*names}])
            if features.open_ranges:
                raise InvalidInput(
                    f"fit_table needs bounds or cuts of the columns {', '.join(map(repr, features.open_ranges))}: "
                    "declare them, or learn them first: Schema.from_private"
                )
            columns = AdditiveColumns.from_schema(features)
        if not isinstance(columns, AdditiveColumns):
            raise InvalidInput("fit_table takes columns that are declared or public: an AdditiveColumns or a Schema")
        return columns


def _open_table(source: Any, cluster: Any, memory: Any, spill: Any) -> "ClusterTable | TableStream":
    """Return a table that is read in parts, here or on a cluster."""
    from quorate.compute.ensemble.clusters import ClusterTable  # noqa: PLC0415  models in memory do not load it
    from quorate.tables.files import TableStream  # noqa: PLC0415

    if cluster is None and not isinstance(source, ClusterTable):
        return source if isinstance(source, TableStream) else TableStream(source)
    if not (memory is None and spill is None):
        raise InvalidInput("memory and spill are about this machine; on a cluster they are settings of the workers")
    return source if isinstance(source, ClusterTable) else ClusterTable(source, cluster)


@contextmanager
def _close_on_error(table: Any) -> Iterator[Any]:
    """Let go of a cluster that was joined for this table, where it is not fitted."""
    try:
        yield table
    except BaseException:
        if hasattr(table, "close"):
            table.close()
        raise


def _read_blocks(table: Any, encoding: _ReadRows, memory: Any, spill: Any) -> Any:
    """Read the table, and return its encoded rows where they wait."""
    from quorate.compute.ensemble.clusters import ClusterTable  # noqa: PLC0415
    from quorate.compute.ensemble.sources import BUCKETS, spill_table  # noqa: PLC0415

    features, by_person = len(encoding.names) + 1, encoding.schema.groups is not None
    if isinstance(table, ClusterTable):
        return table.dealt(encoding, features=features, by_person=by_person, together=False)
    ranges = BUCKETS if by_person else 1
    return spill_table(table, encoding, features, memory=memory, spill=spill, ranges=ranges)


def _check_header(header: Any, schema: Schema, names: list[str], target: Target) -> None:
    """Refuse a table that lacks columns or has others, by its header alone."""
    needed = [*names, target.column, *([] if schema.groups is None else [schema.groups])]
    label = [] if schema.label is None else [schema.label.column]
    check_columns(header, needed, "private", unused=[*schema.leave_out, *label])


def _fit_reader(columns: AdditiveColumns, public: Any) -> AdditiveColumns:
    """Return columns that read values as the fitted ones will, wherever those are cut."""
    reader: AdditiveColumns = clone(columns).fit(public)
    if any(isinstance(block, OfSentences) for block in reader.blocks_):
        raise InvalidInput("fit_table takes no columns of sentences; leave them out of the schema")
    return reader
