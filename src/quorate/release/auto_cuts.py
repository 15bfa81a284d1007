"""Find what marginals need to know of a table with noise, for a part of their budget: cuts, or whole columns.

`AutoCuts` finds the cuts of numbers and dates that are declared without any. Each has a tree (`tables.cut_tree`), whose
cells are refined stage by stage by noisy counts. `AutoColumns` learns the kinds, categories and cuts of all columns of
a table of which nothing is declared (`quorate.tables.learned`). PROOF.md, step 9.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import release_counts
from quorate.core.checks import is_named_id, warn_of_id
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.release.domain import Domain, SealedCounts, make_domain
from quorate.release.engines import Released
from quorate.release.engines.base import Engine, MeasuringEngine
from quorate.release.queries import Queries
from quorate.release.workloads import Columns, Workload
from quorate.release.workloads.constraints import names_in
from quorate.release.workloads.marginals import MarginalWorkload, cells_of_orders
from quorate.tables import Category, ColumnMarginal, Date, Number
from quorate.tables.cells import OTHER
from quorate.tables.columns import Kind
from quorate.tables.containers import column_names, is_frame, open_columns, shown_names
from quorate.tables.cut_tree import STAGES, CutTree, Draw, grow_trees, most_cells
from quorate.tables.dates import read_moments
from quorate.tables.files import TableStream
from quorate.tables.learned import choose_share, entries_of_schema, learn_columns, slack_for_texts
from quorate.tables.values import read_numbers

_FRACTIONS_SHARE = 0.005  # of the budget: detects columns of whole numbers
_STAGE_SHARE = 0.095 / STAGES  # of the budget: all cuts together widen the noise of the marginals by a twentieth
_CUTS_SHARE = _FRACTIONS_SHARE + STAGES * _STAGE_SHARE
_CELLS = 16  # between the ends of a number, unless the workload says how many
_CLEAR = 3.0  # deviations of the noise, above which a column counts as having fractions
_TAIL = 0.2  # of the numbers: cuts beyond which no more are tell how the tail goes on
_HEAVY = 0.5  # rise of the logarithm with a Gaussian deviation: with more, numbers double within one and a half
_WIDE = 0.25  # rise of the logarithm over a cell: in narrower ones numbers are spread evenly
_POINTS, _FINER = 16, 16  # steps into which a cell of a tail is divided, and each step for its mean
_MOST_CATEGORIES = 60  # of a learned column; rarer ones count as "other"


def find_cuts(
    values: Sequence[Floats], draw: Draw, *, cells: int, dates: Collection[int] = ()
) -> list[tuple[float, ...]]:
    """Return at most `cells` + 1 cuts of each column of private numbers; `dates` are those of days.

    Only `draw` reads the numbers: first the count of fractions in each column, then the counts of each stage of the
    open trees. Values that are not numbers count as missing.
    """
    fractions = np.array([int((line != np.floor(line)).sum()) for line in map(_finite, values)], dtype=np.int64)
    noisy, scale = draw(fractions, squared_sensitivity=len(values))  # proof: step 9
    trees = [
        CutTree(
            len(line),
            is_whole=bool(count <= _CLEAR * scale) and column not in dates,
            is_date=column in dates,
            most_cells=cells,
        )
        for column, (line, count) in enumerate(zip(values, noisy.tolist(), strict=True))
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
    def of(
        cls, subject: Any, columns: Any, public: Any, *, table: Any = None, weighed: Collection[Any] = ()
    ) -> "AutoCuts | None":
        """Return the workload with what is to be found; None if there is nothing, or private records cannot tell it.

        Where nothing is declared, the names of the columns of the private `table` are read. `weighed` are the columns
        that weights or a target name.
        """
        if not isinstance(subject, Workload) or subject.kind != "marginals" or public is not None:
            return None
        declared = Columns.from_declaration(columns)
        if declared is None:
            return AutoColumns.of_names(subject, table, weighed)
        _refuse_tied(declared)
        return cls(subject, declared) if declared.uncut else None

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

    def slack(self, delta: float) -> float:
        """Return the part of delta that is set aside for texts of a single record."""
        return 0.0

    def open(self, budget: Budget, records: int) -> NoisyVectors:
        """Charge the whole budget, for cuts and marginals together, before anything is drawn: proof: step 9."""
        return NoisyVectors(budget, entries=self._entries() + (1 + STAGES * most_cells()) * len(self.columns.uncut))

    def _entries(self) -> int:
        """Return how many entries the marginals have at most."""
        assert self.workload.order is not None
        return sum(cells_of_orders(self.widest.sizes, self.workload.order)[1:])

    def read(self, private: Any) -> dict[str, Any]:
        """Return the declared columns of private records, those of a stream in memory: they are read several times."""
        names = self.columns.names
        return open_columns(private.read(names) if isinstance(private, TableStream) else private, names)

    def release(
        self,
        private: dict[str, Any],
        engine: Engine,
        vectors: NoisyVectors,
        weigh: Callable[[Domain], Queries],
        *,
        slack: float = 0.0,
    ) -> tuple[Domain, Released]:
        """Find the cuts or columns, count the records, and release the marginals with the rest of the budget."""
        assert isinstance(engine, MeasuringEngine)
        columns, notes = self._find(private, vectors, slack)
        domain = make_domain(self.workload, None, columns)
        queries, (sealed, _) = weigh(domain), domain.seal(private)
        released = release_counts(sealed, lambda counted: engine.run_rest(queries, counted, vectors))
        columns, guessed = spread_tails(domain, released, len(private[self.columns.names[0]]))
        if guessed:
            notes.append(f"guessed as the tail of a log-normal law, beyond the outermost cuts: {shown_names(guessed)}")
        return make_domain(self.workload, None, columns), replace(released, notes=(*released.notes, *notes))

    def _find(self, private: dict[str, Any], vectors: NoisyVectors, slack: float) -> tuple[Columns, list[str]]:
        """Return the columns with the cuts that were found, and notes about them."""
        names, spent = self.columns.uncut, 0.0
        units = [kind.unit if isinstance(kind := self.columns.kinds[name], Date) else None for name in names]
        dates = {column for column, unit in enumerate(units) if unit == "days"}
        reading = self.columns.reading
        numbers = SealedCounts(
            [
                read_numbers(private[name], reading) if unit is None else read_moments(private[name], unit, reading)
                for name, unit in zip(names, units, strict=True)
            ]
        )

        def draw(counts: Integers, *, squared_sensitivity: int) -> tuple[Integers, float]:
            nonlocal spent
            share = _STAGE_SHARE if spent else _FRACTIONS_SHARE
            fraction, spent = share / (1.0 - spent), spent + share
            return vectors.release(counts, squared_sensitivity=squared_sensitivity, fraction=fraction)

        cuts = release_counts(numbers, lambda lines: find_cuts(lines, draw, cells=self.cells, dates=dates))
        notes = [f"cuts found with noise, for a tenth of the budget at most: {shown_names(names)}"]
        if hidden := [name for name, column_cuts in zip(names, cuts, strict=True) if not column_cuts]:
            notes.append(f"noise hid where the numbers are, so that synthetic ones say nothing: {shown_names(hidden)}")
        return self._cut(dict(zip(names, cuts, strict=True))), notes

    def _cut(self, cuts_by_name: Mapping[str, Sequence[float]]) -> Columns:
        """Return the columns with these cuts. A closed number without cuts is cut at 0, since one cell has no query."""
        closed = {name for name, kind in self.columns.kinds.items() if isinstance(kind, Number) and kind.closed}
        return self.columns.with_cuts({name: cuts or [0.0] * (name in closed) for name, cuts in cuts_by_name.items()})


@dataclass(frozen=True)
class AutoColumns(AutoCuts):
    """A workload of marginals on a table of which the names of the columns are public, and nothing else is known.

    `columns` declares each as a number without cuts, which stands for what it will be. `weighed` columns are kept,
    though the noise may hide them.
    """

    weighed: Collection[Any] = ()

    @classmethod
    def of_names(cls, subject: Workload, table: Any, weighed: Collection[Any]) -> "AutoColumns | None":
        """Return the workload with the columns of a private table, of which the names are read; None without names."""
        if not is_frame(table) and not isinstance(table, Mapping):
            return None
        names = [name for name in column_names(table) if isinstance(name, str)]
        for name in filter(is_named_id, names):
            warn_of_id(name, "is released, at the cost of all other columns")
        return cls(subject, Columns({name: Number() for name in names}), weighed)

    @property
    def cells(self) -> int:
        """The largest number of cells of a column: that of a category."""
        return max(super().cells, _MOST_CATEGORIES)

    def expected_errors(self, errors: Mapping[str, float]) -> dict[str, float]:
        """Refuse a forecast: how many cells there will be is not known before they are learned."""
        raise InvalidInput("the cells of columns that nobody has declared cannot be planned: declare columns=")

    def check_requests(self, domain: Domain, queries: Sequence[Any]) -> None:
        """Refuse every query, since no cell is known before the columns are learned."""
        raise InvalidInput(
            "no column is declared, and their cells have no names yet: release first, then ask the folder"
        )

    def slack(self, delta: float) -> float:
        """Return the part of delta that is set aside for texts of a single record."""
        return slack_for_texts(delta)

    def open(self, budget: Budget, records: int) -> NoisyVectors:
        """Charge the whole budget, for columns and marginals together, before anything is drawn: proof: step 9."""
        vectors = NoisyVectors(budget, entries=self._entries() + entries_of_schema(len(self.columns.names)))
        choose_share(vectors, units=records, columns=len(self.columns.names), slack=budget.slack)  # refuses too few
        return vectors

    def _find(self, private: dict[str, Any], vectors: NoisyVectors, slack: float) -> tuple[Columns, list[str]]:
        """Return the columns that were learned, and notes about them."""
        units = len(private[self.columns.names[0]])
        share = choose_share(vectors, units=units, columns=len(private), slack=slack)
        cells = super().cells
        learned = release_counts(
            SealedCounts(private),
            lambda columns: learn_columns(columns, vectors, units=units, slack=slack, share=share, most_cells=cells),
        )
        kinds = {name: _cut_kind(kind, learned.marginals.get(name)) for name, kind in learned.kinds.items()}
        found_kinds = {name: kind for name, kind in kinds.items() if kind is not None}
        columns = self._with_needed(found_kinds)
        notes = [f"columns learned with noise, for {share:.0%} of the budget: {shown_names(list(found_kinds))}"]
        if left_out := [name for name in self.columns.names if name not in columns]:
            notes.append(f"sentences, or columns that the noise hid, and left out: {shown_names(left_out)}")
        if hidden := [name for name in columns if name not in found_kinds]:
            notes.append(f"sentences, or columns that the noise hid, and kept without content: {shown_names(hidden)}")
        return Columns(columns), notes

    def _with_needed(self, learned: Mapping[str, Kind]) -> dict[str, Kind]:
        """Add hidden columns without which the marginals would be refused after the draws: proof: step 9."""
        needed = {*learned, *self.weighed}
        for name in self.columns.names:
            fewest = max(self.workload.order or 0, 2 * bool(self.weighed))  # a target is predicted from another column
            if len(needed.intersection(self.columns.names)) < fewest:
                needed.add(name)
        return {name: learned.get(name, Number(cuts=[0.0])) for name in self.columns.names if name in needed}


def spread_tails(domain: Domain, released: Released, records: int) -> tuple[Columns, list[str]]:
    """Return the columns with public points over which synthetic numbers of each cell are spread, and heavy ones.

    All of it is post-processing of released shares. In the upper half, and in the lower one below 0, the logarithm of a
    number is taken to rise evenly with the Gaussian quantile of its rank from cut to cut, and so beyond the last.
    """
    assert isinstance(domain, MarginalWorkload)
    assert released.answers is not None
    guessed, kinds = list[str](), dict(domain.columns.kinds)
    for column, (name, kind) in enumerate(domain.columns.kinds.items()):
        if (
            type(kind) is not Number
            or kind.cuts is None
            or len(kind.cuts) < 2
            or (kind.low, kind.spans) != (None, None)
        ):
            continue
        cuts = np.array(kind.cuts)
        measured = domain.queries.column_shares(released.answers, column)
        assert measured is not None
        shares = measured[: len(cuts) + 1]
        spans, is_heavy = _spread_line(cuts, shares / max(shares.sum(), 1e-300), records)
        kinds[name] = replace(kind, spans=spans)
        guessed += [name] * is_heavy
    return Columns(kinds, constraints=domain.columns.constraints, reading=domain.columns.reading), guessed


def _spread_line(cuts: Floats, shares: Floats, records: int) -> tuple[list[list[float]], bool]:
    """Return the points of each cell of a line, and whether a heavy tail is guessed at either end."""
    above, is_heavy_above = _spread_tail(cuts, shares, records)
    below, is_heavy_below = _spread_tail(-cuts[::-1], shares[::-1], records)
    spans = [
        [float(low), float(high)] for low, high in pairwise([2 * cuts[0] - cuts[1], *cuts, 2 * cuts[-1] - cuts[-2]])
    ]
    if spans[0][0] < 0.0 < cuts[0]:
        spans[0][0] = 0.0  # no cut is below 0, where a fiftieth of the numbers would have one
    for index, points in above.items():
        spans[index] = points
    for index, points in below.items():
        spans[len(cuts) - index] = [-point for point in reversed(points)]
    return spans, is_heavy_above or is_heavy_below


def _spread_tail(cuts: Floats, shares: Floats, records: int) -> tuple[dict[int, list[float]], bool]:
    """Return the points of the cells of an upper tail by the cell, and whether it is heavy."""
    beyond = np.cumsum(shares[::-1])[-2::-1]  # the share of the numbers above each cut
    tail = np.flatnonzero((cuts > 0.0) & (beyond <= 0.5) & (beyond > 0.5 / records))
    if len(tail) < 2 or tail[-1] != len(cuts) - 1:
        return {}, False
    scores, logs = ndtri(1.0 - beyond[tail]), np.log(cuts[tail])
    points = {}
    for (low, high), (first, last), index in zip(pairwise(scores), pairwise(logs), tail[1:].tolist(), strict=False):
        if last - first > _WIDE and high > low:
            normal_places = ndtri(1.0 - np.linspace(ndtr(-low), ndtr(-high), _POINTS))
            inner = np.exp(first + (last - first) * (normal_places - low) / (high - low))
            points[index] = np.clip(np.maximum.accumulate(inner), cuts[index - 1], cuts[index]).tolist()
    outer = beyond[tail] <= max(_TAIL, float(np.sort(beyond[tail])[1]))
    weights = np.exp(-(scores[outer] ** 2) / 2.0)  # of scores whose shares have the same noise
    away = scores[outer] - np.average(scores[outer], weights=weights)
    if not away.any():
        return {}, False
    slope = float((weights * away) @ logs[outer]) / float((weights * away) @ away)
    shares_above = beyond[-1] * (1.0 - np.arange(_POINTS * _FINER) / (_POINTS * _FINER))
    ranks = ndtri(1.0 - np.maximum(shares_above, 0.5 / records))
    law = cuts[-1] * np.exp(slope * (ranks - scores[-1]))
    steps = law[::_FINER]
    last = max(2.0 * float(law[-_FINER:].mean()) - steps[-1], steps[-1])  # the last step has the mean of the law
    points[len(cuts)] = np.maximum.accumulate([*steps, last]).tolist()
    return points, slope > _HEAVY


def _refuse_tied(columns: Columns) -> None:
    """Refuse a constraint about a number without cuts."""
    for constraint in columns.constraints:
        if tied := names_in(constraint) & set(columns.uncut):
            raise InvalidInput(f"column {min(tied)!r} of a constraint must have declared cuts")


def _cut_kind(kind: Kind, marginal: ColumnMarginal | None) -> Kind | None:
    """Return a learned kind as one whose cells can be counted; None for a column of sentences."""
    if isinstance(kind, Category):
        assert marginal is not None
        ranks = np.argsort([-count for count in marginal.counts[: len(kind.categories)]], kind="stable")[
            :_MOST_CATEGORIES
        ]
        return Category([kind.categories[rank] for rank in sorted(ranks.tolist())])
    if isinstance(kind, Date):
        return Date(cuts=kind.cuts, unit=kind.unit)
    return Number(cuts=kind.cuts) if isinstance(kind, Number) else None
