"""Marginals of a table whose numbers have no cuts yet: these are found first, for a tenth of the same budget."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.core.session import release_counts
from quorate.release.cuts import LEVELS, entries_of_level, find_cuts
from quorate.release.domain import Domain, SealedCounts, make_domain
from quorate.release.engines import Released
from quorate.release.engines.base import Engine, MeasuringEngine
from quorate.release.queries import Queries
from quorate.release.workloads import Columns, Workload
from quorate.release.workloads.bound import cells_of_orders
from quorate.release.workloads.constraints import names_in
from quorate.tables import Number
from quorate.tables.cells import OTHER
from quorate.tables.containers import open_columns, shown_names
from quorate.tables.values import read_numbers

__all__ = ["Uncut"]

_FOR_CUTS = 0.1  # of the budget, the same for each level: it widens the noise of the marginals by a twentieth
_CELLS = 16  # between the ends of a number, unless the workload says how many


@dataclass(frozen=True)
class Uncut:
    """A workload of marginals and its columns, some of them numbers without cuts."""

    workload: Workload
    columns: Columns

    @classmethod
    def of(cls, subject: Any, columns: Any, public: Any) -> "Uncut | None":
        """Return what is to be cut; None where nothing is, or where private records do not say how."""
        if not isinstance(subject, Workload) or subject.kind != "marginals" or public is not None or columns is None:
            return None
        declared = columns if isinstance(columns, Columns) else Columns.from_dict(columns)
        if not declared.uncut:
            return None
        for one in declared.constraints:
            if tied := names_in(one) & set(declared.uncut):
                raise InvalidInput(f"a constraint is about {min(tied)!r}, which has no cuts: declare them")
        return cls(subject, declared)

    @property
    def cells(self) -> int:
        """How many cells a number gets between its ends."""
        return self.workload.bins or _CELLS

    def engine(self, wanted: str) -> str:
        """Return the engine that measures with what is left, or refuse another that is wanted."""
        if wanted not in ("auto", "residual"):
            raise InvalidInput(f"the engine {wanted!r} needs the cuts of {self.columns.uncut[0]!r}: declare them")
        return "residual"

    def expected_errors(self, errors: Mapping[str, float]) -> dict[str, float]:
        """Return the error of the engine that measures with what is left, by those that engines make with all of it."""
        return {name: errors[name] / math.sqrt(1.0 - _FOR_CUTS) for name in [self.engine("auto")] if name in errors}

    @property
    def widest(self) -> Columns:
        """The columns with as many cells as there may be: what these can be refused for is known before any draw."""
        return self.columns.with_cuts({name: range(self.cells + 1) for name in self.columns.uncut})

    def check_asked(self, domain: Domain, queries: Sequence[Any]) -> None:
        """Refuse a query of the widest domain that names a cell of a number without cuts: it may not be found."""
        for one in queries:
            said = one if isinstance(one, Mapping) else domain.describe(domain.find([one]), [one])[0]
            for name in self.columns.uncut:
                if isinstance(said.get(name), str) and said[name] not in ("", OTHER):
                    raise InvalidInput(
                        f'column {name!r} has no cuts, and its cells no names yet: ask for a value, as {{"{name}": 0}}'
                    )

    def open(self, budget: Budget) -> NoisyVectors:
        """Take all of a budget, for cuts and marginals together, before anything is drawn: proof: step 9."""
        assert self.workload.order is not None
        marginals = sum(cells_of_orders(self.widest.sizes, self.workload.order)[1:])
        return NoisyVectors(budget, entries=marginals + LEVELS * entries_of_level() * len(self.columns.uncut))

    def read(self, private: Any) -> dict[str, pa.Array]:
        """Return the declared columns of private records, to be counted twice: a stream of them is read once."""
        return open_columns(private, self.columns.names)

    def release(
        self, private: dict[str, pa.Array], engine: Engine, vectors: NoisyVectors, weigh: Callable[[Domain], Queries]
    ) -> tuple[Domain, Released]:
        """Find the cuts, count the records by them, and release the marginals with the rest of the budget."""
        assert isinstance(engine, MeasuringEngine)
        names, level = self.columns.uncut, itertools.count()
        numbers = SealedCounts([read_numbers(private[name]) for name in names])

        def draw(counts: Integers, *, squared_sensitivity: int) -> tuple[Integers, float]:
            fraction = 1.0 / (LEVELS / _FOR_CUTS - next(level))  # of what is left: the same for each level
            return vectors.release(counts, squared_sensitivity=squared_sensitivity, fraction=fraction)

        cuts = release_counts(numbers, lambda held: find_cuts(held, draw, cells=self.cells))
        domain = make_domain(self.workload, None, self._cut(dict(zip(names, cuts, strict=True))))
        queries, (sealed, _) = weigh(domain), domain.seal(private)
        released = release_counts(sealed, lambda counted: engine.run_rest(queries, counted, vectors))
        notes = [f"cuts found with noise, for a tenth of the budget at most: {shown_names(names)}"]
        if hidden := [name for name, found in zip(names, cuts, strict=True) if not found]:
            notes.append(f"noise hid where the numbers are, so that synthetic ones say nothing: {shown_names(hidden)}")
        return domain, replace(released, notes=(*released.notes, *notes))

    def _cut(self, found: Mapping[str, Sequence[float]]) -> Columns:
        """Return the columns with these cuts. A closed number that has none is cut at 0: one cell is no question."""
        closed = {name for name, kind in self.columns.kinds.items() if isinstance(kind, Number) and kind.closed}
        return self.columns.with_cuts({name: cuts or [0.0] * (name in closed) for name, cuts in found.items()})
