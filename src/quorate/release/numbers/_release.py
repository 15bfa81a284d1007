"""Counts, totals, means and quantiles of all groups of a table, released once for one budget.

Claim: the fitted object is (epsilon, delta)-differentially private under replacement of one record, or, with `groups`,
of all records of one person. PROOF.md has the proof.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from quorate.core.ballots import release_counts
from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy.claims import Claim, Node, Total, budget_node
from quorate.core.progress import progress
from quorate.models.account import Account
from quorate.models.predictors.sklearn_compat import ShowsClaim
from quorate.models.saving import saving
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import SavedModel, Spending, State
from quorate.release._saved import spent_budget
from quorate.release.domain import SealedCounts
from quorate.release.numbers._conditions import parse_conditions
from quorate.release.numbers._estimates import Answers
from quorate.release.numbers._keys import GroupIndex, KeyColumn, find_whole_dates, key_texts
from quorate.release.numbers._layout import Layout
from quorate.release.numbers._lookups import Lookups
from quorate.release.numbers._measured import MeasuredColumns, choose_noise
from quorate.release.numbers._published import Published, Statistics, plain_rows, release_sums
from quorate.release.numbers._quantiles import release_probes
from quorate.release.numbers._rows import PrivateRows
from quorate.release.numbers._sql import read_sql
from quorate.release.people import PERSON, RECORD, large_delta_notes
from quorate.release.workloads import Columns
from quorate.tables.columns import Category, Kind, Number, Sentences
from quorate.tables.document import kind_from_document
from quorate.tables.reading import DEFAULT_READING, Reading
from quorate.tables.results import Table, make_table
from quorate.tables.schema import Schema

_ANSWER_COLUMNS = ("measure", "answer", "low", "high", "note")
_SIZES = (30, 100, 1000)  # of groups, for a plan


class GroupRelease(SavedModel, ShowsClaim, BaseEstimator):
    """Numbers of each group: records, people, totals, means and quantiles, with 95% intervals, published once.

    Parameters
    ----------
    by
        The columns that name groups: a name or several. "visited:month" is the month of a column of dates; the parts
        are day, week, month, quarter and year. A `Category`, a `Number` with cuts, or a part of a `Date` with bounds,
        declared in `columns`, has public groups: all combinations are released, also empty ones. If a column is not
        declared, a group is released if its noisy number of records (with `groups`, of people) passes a threshold that
        a group of one unit hardly ever passes. All other groups are one row, "other".
    totals, means, medians
        Columns of which to release totals, means and medians: a name or several.
    quantiles
        Further quantiles: {"stay": [0.25, 0.75]}.
    columns
        Declarations of columns: a mapping from names to `Number`, `Category` and `Date`, a `Schema`, or a
        `quorate.release.Columns`. Totals and means clip values to `low` and `high` of a `Number`; without them, bounds
        are found for a twentieth of the budget. Quantiles begin with its `cuts`; without them, cuts are found for a
        twentieth. A fiftieth says whether nearly all of its values are whole numbers, or multiples of 10 or 100.
        `closed` says that every record has a value, which makes totals more exact.
    where
        Conditions that records must meet to count: [("age", ">=", 18), ("region", "in", ["north", "south"])]. The
        operators are =, !=, <, <=, >, >=, in, not in, missing and present; texts such as "2024-05-01" are dates after
        <, <=, > and >=. How many records meet them stays private.
    weights
        The column of survey weights, declared as a `Number` with `low` 0 or more and `high`, the bound at which weights
        are clipped. Totals and means of columns with declared bounds are then weighted, and the total of the weights is
        released too; numbers of records are not weighted.
    epsilon, delta
        The privacy loss allowed. All of it is spent by `fit`. If there are no quantiles and all bounds are declared,
        noise is Laplace noise where that is less; with declared groups, delta is then 0, and may be given as 0.
    groups_per_person, records_per_person
        With `groups`, the largest numbers of groups and of records of a person that count; in each group at most
        records_per_person / groups_per_person. Noise grows with both. By default a person counts once.
    account
        An `Account`, or its folder: a total that this release draws on, with others about the same people.

    After `fit`: `published_` has the noisy sums, `claim_` the guarantee, `unit_` whether the record or the person is
    protected, `units_` the public number of units, `notes_` what was found with noise, `budget_` the account,
    `delta_` that of the claim and `seconds_` the duration. No private record and no exact sum is kept.

    >>> rng = np.random.default_rng(0)
    >>> visits = {"region": rng.choice(["north", "south"], 20_000), "cost": rng.gamma(2.0, 100.0, 20_000)}
    >>> release = GroupRelease("region", means="cost", columns={"cost": Number(low=0, high=1000)}).fit(visits)
    >>> [(row["region"], row["measure"]) for row in release.answer().to_pylist()][2:4]
    [('south', 'records'), ('south', 'mean cost')]
    >>> abs(release.answer(["mean cost"])["answer"][0].as_py() - 200) < 20
    True
    """

    kind = "group release"
    spending = Spending(published=True, chargeable=True)
    inputs = "queries"
    outputs = "released numbers"
    summary = "Numbers by group, released privately."

    def __init__(
        self,
        by: Any = (),
        *,
        totals: Any = (),
        means: Any = (),
        medians: Any = (),
        quantiles: Mapping[str, Any] | None = None,
        columns: Any = None,
        where: Any = (),
        weights: str | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        groups_per_person: int = 1,
        records_per_person: int | None = None,
        account: Any = None,
    ) -> None:
        self.by, self.totals, self.means, self.medians, self.quantiles = by, totals, means, medians, quantiles
        self.columns, self.where, self.weights, self.epsilon, self.delta = columns, where, weights, epsilon, delta
        self.groups_per_person, self.records_per_person, self.account = groups_per_person, records_per_person, account

    read_sql = staticmethod(read_sql)

    @classmethod
    def from_sql(cls, text: str, **settings: Any) -> "GroupRelease":
        """Return the release that one SELECT describes; it is fitted to a table afterwards.

        Parameters
        ----------
        text
            A query of one table: columns, count(*), sum, avg, median and approx_quantile, WHERE of comparisons joined
            by AND, and GROUP BY of columns or date_trunc('month', column). Everything else is refused.
        settings
            All other settings, such as columns and epsilon.

        >>> GroupRelease.from_sql("SELECT region, avg(age) FROM visits GROUP BY region").means
        ['age']
        """
        query = cls.read_sql(text)
        if query.pop("groups") is not None:
            raise InvalidInput("SQL here must not count people; pass the people to fit(groups=...)")
        return cls(**query, **settings)

    def fit(self, private: Any, groups: Any = None) -> "GroupRelease":
        """Sum the private records by group, and release all sums at once.

        Parameters
        ----------
        private
            The private records: a data frame, a mapping, an Arrow table, or a `TableStream`, which may be larger than
            memory.
        groups
            The person of each record: the name of a column, or one value a record. The person, not the record, is then
            protected. The first `groups_per_person` groups of each person count, and in each its first records.
        """
        began = time.perf_counter()
        account = None if self.account is None else Account.of(self.account)
        epsilon, delta = check_positive("epsilon", self.epsilon), check_delta(self.delta)
        epsilon, delta = (epsilon, delta) if account is None else account.whole(epsilon, delta)
        kinds, reading = read_declarations(self.columns)
        statistics, keys = self._statistics(), self._key_columns(kinds)
        index, columns = GroupIndex(keys), MeasuredColumns(statistics, kinds, self.weights)
        layout = self._layout(columns, index, is_person=groups is not None)
        unit = RECORD if groups is None else PERSON
        where = parse_conditions(self.where)
        rows = PrivateRows(private, [*(key.column for key in keys), *columns.names], groups, reading, where)
        if groups is not None and layout.groups_per_unit * layout.records_per_group == 1:
            columns.notes.append(
                "each person counts once, with the first record: totals leave out all other records of a person; "
                "groups_per_person and records_per_person (--groups-per-person) let more of them count"
            )
        columns.notes += [f"records count where {' and '.join(map(str, where))}"] * bool(where)
        chosen = choose_noise(columns, layout, index, epsilon=epsilon, delta=delta)
        units = rows.count_units()
        _refuse_hopeless(chosen.halves()["records"], units, epsilon)
        columns.notes += large_delta_notes(chosen.budget.delta, units)
        spends = {"epsilon": epsilon, "delta": chosen.budget.delta}
        charge: AbstractContextManager[Any] = (
            nullcontext() if account is None else account.charge_during(**spends, unit=unit)
        )
        with charge, progress("releasing numbers by group"):
            sums, cuts = columns.find(rows, chosen.vectors, chosen.layout, index)  # proof: step 6
            exact = rows.sum_groups(index, chosen.layout, sums, columns.weighting)  # proof: steps 2, 3, 10
            first: Published = release_counts(
                SealedCounts(exact), lambda counted: release_sums(counted, index, chosen.layout, chosen.noise)
            )
            first = replace(first, cuts=tuple(cuts), parents=index.parents, weighting=columns.weighting)
            published = _release_quantiles(first, statistics, rows, index, chosen.vectors)
        if not published.keys:
            columns.notes.append(
                "no group is large enough; name fewer columns, or parts of dates such as visited:month"
            )
        columns.notes += [
            f"groups by {name} are texts that look like dates; {name}:month groups them by months"
            for name in find_whole_dates(published.keys, keys)
        ]
        total = getattr(account, "total", None)
        self.budget_, self.delta_ = spent_budget(**spends), chosen.budget.delta
        self._keep(published, statistics, unit=unit, units=units, notes=columns.notes, total=total)
        self.claim_part_, self.seconds_ = budget_node(chosen.budget), time.perf_counter() - began
        return self

    def _statistics(self) -> Statistics:
        """Return what is released of each group."""
        totals, means, medians = (_names(name, getattr(self, name)) for name in ("totals", "means", "medians"))
        levels = [(name, 0.5) for name in medians]
        for name, listed in (self.quantiles or {}).items():
            values = [listed] if isinstance(listed, int | float) else list(listed)
            levels += [(str(name), check_rate("a quantile", value)) for value in values]
        return Statistics(totals, means, tuple(dict.fromkeys(levels)))

    def _key_columns(self, kinds: Mapping[str, Kind]) -> list[KeyColumn]:
        names = _names("by", self.by)
        for name in names:
            if name in _ANSWER_COLUMNS:
                raise InvalidInput(f"by must not name a column {name!r}, which the answers have; rename the column")
        return [KeyColumn.parse(name, kinds) for name in names]

    def _layout(self, columns: MeasuredColumns, index: GroupIndex, *, is_person: bool) -> Layout:
        """Return the public weights of the release."""
        most_groups = check_count("groups_per_person", self.groups_per_person)
        records = most_groups if self.records_per_person is None else self.records_per_person
        records = check_count("records_per_person", records)
        if not is_person and records > 1:
            raise InvalidInput("groups_per_person and records_per_person require groups, which names the people")
        if records % most_groups:
            raise InvalidInput(
                f"records_per_person must be a multiple of groups_per_person, got {records} and {most_groups}"
            )
        layout = Layout(
            sums=columns.sums,
            groups_per_unit=most_groups if index.columns else 1,
            records_per_group=records // most_groups,
            declared=index.is_declared,
        )
        if not index.is_declared:
            _ = layout.other_weights  # refuses weights that no record could have
        return layout

    def _keep(
        self, published: Published, statistics: Statistics, *, unit: str, units: int, notes: Sequence[str], total: Any
    ) -> None:
        """Set the fitted attributes, after `fit` and for a loaded release."""
        self.published_, self.statistics_, self.unit_, self.units_ = published, statistics, unit, units
        self.notes_, self.total_, self.by_ = tuple(notes), total, _names("by", self.by)
        self.claim_, self._lookups = self._claim(), Lookups(self._answers_by)

    def _claim(self) -> str:
        layout, is_person = self.published_.layout, self.unit_ == PERSON
        conditions = []
        if is_person and layout.groups_per_unit * layout.records_per_group > 1:
            conditions.append(
                f"at most {layout.groups_per_unit} groups of each person count, with {layout.records_per_group} "
                "records in each"
            )
        if self.total_ is not None:
            conditions.append(str(self.total_))
        replaced = f"all records of one of {self.units_} people" if is_person else f"one of {self.units_} records"
        return str(Claim(self.epsilon, self.delta_, replaced, "the whole release is", tuple(conditions)))

    def answer(self, measures: Sequence[str] | None = None, *, by: Any = None) -> Table:
        """Return a tidy table: the columns of `by`, `measure`, `answer`, `low` and `high` (95%), and `note`.

        Each interval holds for the sums of what counts (values clipped to their bounds, records of people up to their
        limits) with probability 0.95, for every table. `answer` is missing where the noise leaves none, and `note` says
        so. The last row of each measure is for all groups that are not published, if groups were not declared.

        Parameters
        ----------
        measures
            Which measures to return, by name, such as "total cost"; by default all of them.
        by
            Coarser groups: some of the columns, or longer parts of their dates, such as "visited:year" for months, or
            a level of a declared hierarchy: "region:1" is the parent of each region (`Category(..., parents={...})`).
            Numbers of all published groups are added up, at no privacy cost; there are no people and no quantiles.
        """
        names = self.by_ if by is None else _names("by", by)
        published, answers = self._answers_by(names)
        wanted = list(answers if measures is None else measures)
        if not set(wanted) <= set(answers):
            raise InvalidInput(f"measures must be among {', '.join(answers)}, got {', '.join(wanted)}")
        return self._tidy({name: answers[name] for name in wanted}, plain_rows(published, names, key_texts))

    def _answers_by(self, names: tuple[str, ...]) -> tuple[Published, dict[str, Answers]]:
        """Return the published groups by these columns, and the answers of each measure."""
        check_is_fitted(self, "published_")
        published, statistics = self.published_, self.statistics_
        if names != self.by_:
            published, statistics = published.merge(self.by_, names), replace(statistics, quantiles=())
        return published, published.answers(statistics, self.units_ if self.unit_ == RECORD else math.inf)

    def ask(self, queries: Sequence[Any]) -> Table:
        """Return answers to single questions as a table: `measure`, `answer`, `low`, `high` and `note`.

        Parameters
        ----------
        queries
            Mappings such as {"measure": "total cost", "region": "north", "visited:month": "2024-02"}. Published groups
            are added up over columns that a query does not name. The groups that are not published are "other".

        >>> visits = {"region": ["north"] * 5000, "cost": [1.0] * 5000}
        >>> answers = GroupRelease("region").fit(visits).ask([{"measure": "records", "region": "north"}])
        >>> abs(answers["answer"][0].as_py() - 5000) < 100
        True
        """
        check_is_fitted(self, "published_")
        return self._lookups.ask(queries)

    def _tidy(self, answers: Mapping[str, Answers], keys: Mapping[str, list[Any]]) -> Table:
        """Return answers as rows: all measures of a group, then those of the next."""
        parts = list(answers.values())
        figures = {
            "answer": np.stack([part.answers for part in parts], axis=1).ravel(),
            "low": np.stack([part.low for part in parts], axis=1).ravel(),
            "high": np.stack([part.high for part in parts], axis=1).ravel(),
        }
        table: dict[str, Any] = {name: [text for text in texts for _ in parts] for name, texts in keys.items()}
        table["measure"] = [*answers] * len(parts[0].notes)
        table |= figures
        table["note"] = list(itertools.chain.from_iterable(zip(*(part.notes for part in parts), strict=True)))
        gaps = {name: ~np.isfinite(figure) for name, figure in figures.items()}
        return make_table(table, missing=gaps)

    def plan(self, sizes: Sequence[int] = _SIZES, *, is_person: bool = False) -> Table:
        """Return the expected interval of each measure for groups of some sizes. Nothing is read and nothing is spent.

        `half_width` is half the width of the 95% interval: of a median in ranks as a share of the group, and otherwise
        in the measure's own unit; without declared bounds, in units of half their distance (`unit` says which).

        Parameters
        ----------
        sizes
            Numbers of records of a group.
        is_person
            Whether people will be protected.
        """
        kinds, _ = read_declarations(self.columns)
        statistics, index = self._statistics(), GroupIndex(self._key_columns(kinds))
        columns = MeasuredColumns(statistics, kinds, self.weights)
        layout = self._layout(columns, index, is_person=is_person)
        chosen = choose_noise(columns, layout, index, epsilon=self.epsilon, delta=self.delta)
        levels = [level for _, level in statistics.quantiles]
        rows = [
            {"group of": size, **row}
            for size in (check_count("size", size) for size in sizes)
            for row in columns.expected(chosen.halves(size, levels), has_people=layout.has_people)
        ]
        return make_table({name: [row[name] for row in rows] for name in rows[0]})

    def _facts(self) -> dict[str, Any]:
        counted = "records" if self.unit_ == RECORD else "people"
        return {"groups": len(self.published_.keys), counted: self.units_}

    def save(self, folder: str | Path) -> Path:
        """Write the release to a new folder, for `load`. The folder contains nothing private."""
        return saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> "GroupRelease":
        """Return the release from a folder, as it was after `fit`."""
        release: GroupRelease = saving.load(folder, kind=cls.kind)
        return release

    def claim_part(self) -> Node:
        """Return everything that was released."""
        return self.claim_part_

    def to_state(self) -> State:
        """Return noisy sums and public facts, for a folder."""
        check_is_fitted(self, "published_")
        state = State(
            {
                "claim": self.claim_,
                "claim_part": self.claim_part_,
                "epsilon": self.budget_.epsilon,
                "delta": self.budget_.delta,
                "unit": self.unit_,
                "units": self.units_,
                "by": list(self.by_),
                "statistics": to_plain(self.statistics_),
                "notes": list(self.notes_),
                "total": to_plain(self.total_),
            }
        )
        self.published_.put(state)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the release of a state, as it was after `fit`."""
        values, published = state.values, Published.of(state)
        release = cls(tuple(values["by"]), epsilon=float(values["epsilon"]), delta=float(values["delta"]))
        statistics = cast("Statistics", from_plain(values["statistics"], Statistics))
        if not published.fits(statistics) or values["unit"] not in (RECORD, PERSON):
            raise InvalidInput("the sums of a release must match its groups and measures; the folder is damaged")
        total = from_plain(values["total"], Total)
        release.budget_, release.delta_ = spent_budget(release.epsilon, release.delta), release.delta
        release._keep(
            published, statistics, unit=values["unit"], units=int(values["units"]), notes=values["notes"], total=total
        )
        release.claim_part_, release.seconds_ = values["claim_part"], 0.0
        return release

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return the groups, the noise and the clipping, as lines of the page."""
        published, counted = self.published_, "Records" if self.unit_ == RECORD else "People"
        facts = [f"Groups by {', '.join(self.by_) or 'nothing'}: {len(published.keys)}. {counted}: {self.units_}."]
        if published.least_units is not None:
            facts.append(
                f"Groups appear above a noisy number of {published.least_units:.1f} {counted.lower()}; all others are "
                'together in the row "other".'
            )
        facts += [f"{column.name} was clipped to {column.low:g} and {column.high:g}." for column in published.sums]
        return [*facts, *(f"Note: {note}." for note in self.notes_)]


def read_declarations(columns: Any) -> tuple[dict[str, Kind], Reading]:
    """Return declared columns of any form by name, and the rules that read texts."""
    if columns is None:
        return {}, DEFAULT_READING
    if isinstance(columns, Schema):
        return dict(columns.columns), columns.reading
    if isinstance(columns, Columns):
        return dict(columns.kinds), columns.reading
    if not isinstance(columns, Mapping):
        raise InvalidInput(f"columns must map names to declarations, got a {type(columns).__name__}")
    return {
        str(name): kind if isinstance(kind, Number | Category | Sentences) else kind_from_document(str(name), kind)
        for name, kind in columns.items()
    }, DEFAULT_READING


def _names(setting: str, value: Any) -> tuple[str, ...]:
    """Return names of columns from one name or several."""
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise InvalidInput(f"{setting} must be different names of columns, got {value!r}")
    return names


def _refuse_hopeless(half: float, units: int, epsilon: float) -> None:
    """Refuse a release of which no number of records would say anything, by public numbers alone."""
    if half >= units:
        raise Infeasible(
            f"at epsilon = {epsilon:g} the interval of a number of records is +-{half:,.0f}, and there are {units:,}: "
            "no number would say anything; raise epsilon"
        )


def _release_quantiles(
    published: Published, statistics: Statistics, rows: PrivateRows, index: GroupIndex, vectors: NoisyVectors | None
) -> Published:
    """Return the release with the quantiles of its groups, for all that the vectors have left."""
    targets = published.targets(statistics)
    if not targets or vectors is None:
        return published
    numbers = {key: number for number, key in enumerate(index.keys)}
    chosen = np.array([numbers[key] for key in published.keys], dtype=np.int64)

    def count_values(points: Sequence[tuple[str, Any]]) -> SealedCounts:
        return SealedCounts(rows.count_values(index, published.layout, chosen, points))

    probes = release_probes(count_values, targets, published.sizes, vectors, layout=published.layout)
    return replace(published, probes=probes)
