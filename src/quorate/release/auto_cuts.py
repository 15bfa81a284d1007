"""Find cuts for the undeclared numbers of a table privately, with a tenth of the budget of its marginals.

Each column has a `quorate.tables.cut_tree.CutTree`, whose cells are refined stage by stage by noisy counts. PROOF.md,
step 9.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import release_counts
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.release.domain import Domain, SealedCounts, make_domain
from quorate.release.engines import Released
from quorate.release.engines.base import Engine, MeasuringEngine
from quorate.release.queries import Queries
from quorate.release.workloads import Columns, Workload
from quorate.release.workloads.constraints import names_in
from quorate.release.workloads.marginals import cells_of_orders
from quorate.tables import Number
from quorate.tables.cells import OTHER
from quorate.tables.containers import open_columns, shown_names
from quorate.tables.cut_tree import STAGES, CutTree, Draw, grow_trees, most_cells
from quorate.tables.values import read_numbers

_FRACTIONS_SHARE = 0.005  # of the budget: detects columns of whole numbers
_STAGE_SHARE = 0.095 / STAGES  # of the budget: all cuts together widen the noise of the marginals by a twentieth
_CUTS_SHARE = _FRACTIONS_SHARE + STAGES * _STAGE_SHARE
_CELLS = 16  # between the ends of a number, unless the workload says how many
_CLEAR = 3.0  # deviations of the noise, above which a column counts as having fractions


def find_cuts(values: Sequence[Floats], draw: Draw, *, cells: int) -> list[tuple[float, ...]]:
    """Return at most `cells` + 1 cuts of each column of private numbers.

    Only `draw` reads the numbers: first the count of fractions in each column, then the counts of each stage of the
    open trees. Values that are not numbers count as missing.
    """
    fractions = np.array([int((line != np.floor(line)).sum()) for line in map(_finite, values)], dtype=np.int64)
    noisy, scale = draw(fractions, squared_sensitivity=len(values))  # proof: step 9
    trees = [
        CutTree(len(line), is_whole=bool(count <= _CLEAR * scale), most_cells=cells)
        for line, count in zip(values, noisy.tolist(), strict=True)
    ]
    grow_trees(trees, values, draw)  # proof: step 9
    return [tree.marginal().cuts for tree in trees]


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


@dataclass(frozen=True)
class AutoCuts:
    """A workload of marginals and its columns, some of them numbers without cuts."""

    workload: Workload
    columns: Columns

    @classmethod
    def of(cls, subject: Any, columns: Any, public: Any) -> "AutoCuts | None":
        """Return the workload with its uncut columns; None without any, or where private records cannot cut them."""
        if not isinstance(subject, Workload) or subject.kind != "marginals" or public is not None:
            return None
        declared = Columns.from_declaration(columns)
        if declared is None or not declared.uncut:
            return None
        for constraint in declared.constraints:
            if tied := names_in(constraint) & set(declared.uncut):
                raise InvalidInput(f"column {min(tied)!r} of a constraint must have declared cuts")
        return cls(subject, declared)

    @property
    def cells(self) -> int:
        """The number of cells of a numeric column between its ends."""
        return self.workload.bins or _CELLS

    def engine(self, wanted: str) -> str:
        """Return the engine for the rest of the budget, or refuse an unsuitable `wanted` one."""
        if wanted not in ("auto", "residual"):
            raise InvalidInput(f"the engine {wanted!r} needs the cuts of {self.columns.uncut[0]!r}: declare them")
        return "residual"

    def expected_errors(self, errors: Mapping[str, float]) -> dict[str, float]:
        """Return the error of the engine with the rest of the budget, from the engines' errors with all of it."""
        return {name: errors[name] / math.sqrt(1.0 - _CUTS_SHARE) for name in [self.engine("auto")] if name in errors}

    @property
    def widest(self) -> Columns:
        """The columns with the largest number of cells, so that every refusal precedes the first draw."""
        return self.columns.with_cuts({name: range(self.cells + 1) for name in self.columns.uncut})

    def check_requests(self, domain: Domain, queries: Sequence[Any]) -> None:
        """Refuse a query that names a cell of an uncut column, since that cell may not exist after the cuts."""
        for query in queries:
            cells = query if isinstance(query, Mapping) else domain.describe(domain.find([query]), [query])[0]
            for name in self.columns.uncut:
                if isinstance(cells.get(name), str) and cells[name] not in ("", OTHER):
                    raise InvalidInput(
                        f'column {name!r} has no cuts, and its cells no names yet: ask for a value, as {{"{name}": 0}}'
                    )

    def open(self, budget: Budget) -> NoisyVectors:
        """Charge the whole budget, for cuts and marginals together, before anything is drawn: proof: step 9."""
        assert self.workload.order is not None
        marginals = sum(cells_of_orders(self.widest.sizes, self.workload.order)[1:])
        return NoisyVectors(budget, entries=marginals + (1 + STAGES * most_cells()) * len(self.columns.uncut))

    def read(self, private: Any) -> dict[str, Any]:
        """Return the declared columns of private records, so that a stream can be counted twice."""
        return open_columns(private, self.columns.names)

    def release(
        self, private: dict[str, Any], engine: Engine, vectors: NoisyVectors, weigh: Callable[[Domain], Queries]
    ) -> tuple[Domain, Released]:
        """Find the cuts, count the records by them, and release the marginals with the rest of the budget."""
        assert isinstance(engine, MeasuringEngine)
        names, spent = self.columns.uncut, 0.0
        numbers = SealedCounts([read_numbers(private[name], self.columns.reading) for name in names])

        def draw(counts: Integers, *, squared_sensitivity: int) -> tuple[Integers, float]:
            nonlocal spent
            share = _STAGE_SHARE if spent else _FRACTIONS_SHARE
            fraction, spent = share / (1.0 - spent), spent + share
            return vectors.release(counts, squared_sensitivity=squared_sensitivity, fraction=fraction)

        cuts = release_counts(numbers, lambda lines: find_cuts(lines, draw, cells=self.cells))
        domain = make_domain(self.workload, None, self._cut(dict(zip(names, cuts, strict=True))))
        queries, (sealed, _) = weigh(domain), domain.seal(private)
        released = release_counts(sealed, lambda counted: engine.run_rest(queries, counted, vectors))
        notes = [f"cuts found with noise, for a tenth of the budget at most: {shown_names(names)}"]
        if hidden := [name for name, column_cuts in zip(names, cuts, strict=True) if not column_cuts]:
            notes.append(f"noise hid where the numbers are, so that synthetic ones say nothing: {shown_names(hidden)}")
        return domain, replace(released, notes=(*released.notes, *notes))

    def _cut(self, cuts_by_name: Mapping[str, Sequence[float]]) -> Columns:
        """Return the columns with these cuts. A closed number without cuts is cut at 0, since one cell has no query."""
        closed = {name for name, kind in self.columns.kinds.items() if isinstance(kind, Number) and kind.closed}
        return self.columns.with_cuts({name: cuts or [0.0] * (name in closed) for name, cuts in cuts_by_name.items()})
