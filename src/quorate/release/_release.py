"""Answer every query of a class or a workload once, for one budget; afterwards querying has no privacy cost.

Claim: the fitted object is (epsilon, delta)-differentially private under replacement of one private record, or, with
`groups`, of all records of one person; how many there are is public, and public records are not protected. PROOF.md
has the proof.
"""

import math
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from quorate.core.arrays import Floats
from quorate.core.ballots import release_counts
from quorate.core.checks import check_choice, check_count, check_delta, check_positive, check_rate, warn_of_private
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Node, Total, budget_node, group_node
from quorate.core.progress import progress
from quorate.models.account import Account
from quorate.models.predictors.sklearn_compat import ShowsClaim
from quorate.models.saving import saving
from quorate.models.saving.contract import SavedModel, Spending, State
from quorate.release._saved import read_release, release_facts, spent_budget, write_release
from quorate.release.answers import as_counts, divide, name_between, split_requests, take_between, widen_ends
from quorate.release.auto_cuts import AutoCuts
from quorate.release.domain import Domain, SealedCounts, make_domain
from quorate.release.engines import Engine, Released, choose_engine
from quorate.release.engines.base import Public, around, half_interval, sum_runs, take_answers
from quorate.release.people import (
    PERSON,
    RECORD,
    Update,
    check_records_per_person,
    first_records,
    large_delta_notes,
    loss_for_each_record,
    release_claim,
)
from quorate.release.queries import Queries, Rows
from quorate.release.queries.base import NOTHING
from quorate.release.queries.marginals import clear_weights
from quorate.release.synthetic import MOST_ROWS, draw_records, fit_release, round_weights
from quorate.release.workloads import Columns
from quorate.release.workloads.groups import LineWorkload
from quorate.release.workloads.marginals import Errors, named_columns, target_column, weigh_queries
from quorate.tables.containers import shown_names
from quorate.tables.files import TableStream
from quorate.tables.results import Table, make_table

_HOPELESS_ERROR = 0.5  # of a share: to answer 1/2 everywhere errs no more


class QueryRelease(SavedModel, ShowsClaim, BaseEstimator):
    """Answers to all thresholds, ranges, boxes, halfspaces, marginals or expressions, published once.

    Public data define the cells, the private records are counted in them, and an engine releases the counts with noise.
    Later queries are answered from the release and need no budget.

    Parameters
    ----------
    subject
        A class of hypotheses of `quorate.models.concepts`, or a workload of `quorate.release.Workload`.
    epsilon, delta
        The privacy loss allowed. All of it is spent by `fit`.
    engine
        One of `quorate.release.engines.ENGINES`, or "auto": the one with the smallest expected error, by public numbers
        alone.
    columns
        The declared columns of a table, a `quorate.release.Columns`: for a workload without public records, or if
        categories should not be read from them. For marginals, `fit` finds the cuts of a `Number` declared without
        cuts and, of a table without declared columns and public records, all that its columns hold.
    records_per_person
        With `groups`, the largest number of records of a person that count. For any number, each person counts once.
    error
        Which error to keep small: "largest", the largest error of all answers; "mean", the mean total variation of a
        marginal; "weighted", the same with weights. The last two are for marginals.
    error_weights
        With error="weighted": {"income": 3.0} for each marginal with a column, {("age", "sex"): 5.0} for one of them.
    target
        With error="weighted": the column that a model will predict from synthetic records. Synthetic records draw it
        from their other columns, by the marginals of pairs with it.
    account
        An `Account`, or its folder: a total that this release draws on, with others about the same people.

    After `fit`: `engine_` is the engine used, `claim_` the guarantee, `unit_` whether the record or the person is
    protected, `budget_` the account, `records_` the number of private records counted, `notes_` what the engine reports
    about its run, `seconds_` its duration, and `update_` the update of a growing release, if any. Error bars of fitted
    tables are computed on first use. No private record and no exact count is kept.

    >>> import numpy as np
    >>> from quorate.models.concepts import Threshold, Thresholds
    >>> private, public = np.random.default_rng(0).normal(size=(2, 20_000))
    >>> release = QueryRelease(Thresholds(), epsilon=1.0, delta=1e-6).fit(private, public[:200])
    >>> [share] = release.answer([Threshold(0.0)])["answer"].to_pylist()
    >>> 0.4 < share < 0.6
    True
    >>> release.synthetic(1000).shape
    (1000, 1)
    """

    kind = "query release"
    spending = Spending(published=True, chargeable=True)
    inputs = "queries"
    outputs = "released shares"
    summary = "Answers to counting queries, released privately."

    def __init__(
        self,
        subject: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        engine: str = "auto",
        columns: Any = None,
        records_per_person: int = 1,
        error: Errors = "largest",
        error_weights: Mapping[Any, float] | None = None,
        target: str | None = None,
        account: Any = None,
    ) -> None:
        self.subject, self.epsilon, self.delta, self.engine, self.columns = subject, epsilon, delta, engine, columns
        self.records_per_person = records_per_person
        self.error, self.error_weights, self.target, self.account = error, error_weights, target, account

    def fit(self, private: Any, public: Any = None, groups: Any = None) -> "QueryRelease":
        """Count the private records in public cells, and release the counts through the engine.

        `private` may be a `quorate.tables.files.TableStream`, which is read once in batches that are counted and
        dropped; all of a column without cuts, or of a table of which nothing is declared, stays in memory. Or it is a
        `quorate.compute.ensemble.clusters.ClusterTable`, which the workers of a cluster read and count.
        `groups` names the person of each record. The person, not the record, is then protected, and the first
        `records_per_person` records of each person are counted, as evenly as their number allows. Each person counts
        once: answers are shares of people, or means over people of the shares of their records.

        Anything that can be refused is refused before anything is spent.
        """
        began = time.perf_counter()
        warn_of_private(public, private)
        account = None if self.account is None else Account.of(self.account)
        epsilon, delta = self._check_loss(account)
        per_person = check_records_per_person(self.records_per_person, groups)
        counted = self._count(private, public, groups, per_person)
        domain, queries, auto_cuts = counted.domain, counted.queries, counted.auto_cuts
        loss = loss_for_each_record(epsilon, delta, per_person)
        engine, expected = self._choose(queries, auto_cuts, domain.public(), counted.records, loss)
        budget = Budget(epsilon=loss[0], delta=loss[1], slack=0.0 if auto_cuts is None else auto_cuts.slack(loss[1]))
        unit = RECORD if groups is None else PERSON
        vectors = None if auto_cuts is None else auto_cuts.open(budget, counted.records)
        # The account is charged before anything is drawn. proof: step 8
        with (
            _charge_during(account, epsilon, delta, unit),
            progress(f"releasing {queries.count:,} queries by {engine.name}"),
        ):
            if auto_cuts is not None and vectors is not None:
                domain, released = auto_cuts.release(  # proof: step 9
                    counted.private, engine, vectors, self._weigh, slack=budget.slack
                )
            else:
                released = release_counts(  # proof: step 3
                    counted.sealed, lambda counts: engine.run(queries, counts, public=domain.public(), budget=budget)
                )
        units, total = counted.records // per_person, getattr(account, "total", None)
        released = replace(released, notes=(*released.notes, *self._notes_of(domain, released, counted.unread, units)))
        self.keep_release(domain, released, units, expected, unit=unit, total=total)
        self.claim_part_ = budget_node(budget)
        if per_person > 1:
            self.claim_part_ = group_node(epsilon, delta, per_person, self.claim_part_)
        self.budget_ = budget if per_person == 1 else spent_budget(epsilon, delta)
        self.seconds_ = time.perf_counter() - began
        return self

    def _count(self, private: Any, public: Any, groups: Any, per_person: int) -> "_Counted":
        """Return the private records by the cells of public declarations, and all refusals that need no engine."""
        weighed = named_columns(self.error_weights, self.target)
        is_read = hasattr(private, "header")  # in parts, here or on a cluster
        header = private.header if is_read else private
        auto_cuts = AutoCuts.of(self.subject, self.columns, public, table=header, weighed=weighed)
        columns = self.columns if auto_cuts is None else auto_cuts.widest
        domain = make_domain(self.subject, public, columns)  # proof: step 1
        queries = self._weigh(domain)
        if groups is not None and is_read:
            raise InvalidInput(
                f"groups must come with a table in memory, got a {type(private).__name__}; pass "
                "quorate.tables.read_table"
            )
        if auto_cuts is not None and is_read and not isinstance(private, TableStream):
            raise InvalidInput("a cluster counts columns that are declared: give cuts of every number (columns=)")
        private = private if groups is None else first_records(private, groups, per_person)
        unread = domain.unread(header)
        private = private if auto_cuts is None else auto_cuts.read(private)
        in_parts = auto_cuts is None and is_read
        sealed, records = domain.seal_parts(private) if in_parts else domain.seal(private)  # proof: step 2
        return _Counted(domain, queries, auto_cuts, private, sealed, records, unread)

    def _check_loss(self, account: Account | None) -> tuple[float, float]:
        epsilon, delta = check_positive("epsilon", self.epsilon), check_delta(self.delta, zero=False)
        return (epsilon, delta) if account is None else account.whole(epsilon, delta)

    def _choose(
        self, queries: Queries, auto_cuts: AutoCuts | None, public: Public, records: int, loss: tuple[float, float]
    ) -> tuple[Engine, float]:
        """Return the engine and its expected error; refuse an unsuitable engine by public values alone."""
        name = self.engine if auto_cuts is None else auto_cuts.engine(self.engine)
        settings: dict[str, Any] = {"records": records, "epsilon": loss[0], "delta": loss[1], "public": public}
        engine = choose_engine(queries, engine=name, **settings)
        expected = engine.expected_error(queries, **settings)
        if not math.isfinite(expected):
            raise Infeasible(
                f"engine {engine.name!r} cannot answer these {queries.count} queries"
                + (" without public records" if public is None else "")
                + f" at epsilon = {self.epsilon:g} and delta = {self.delta:g}; raise epsilon, or ask fewer"
                + (", or leave engine='auto'" if self.engine != "auto" else "")
            )
        if name == "auto" and expected >= _HOPELESS_ERROR:
            raise Infeasible(
                f"at epsilon = {self.epsilon:g} the expected largest error of a share is {expected:.2g}, so that the "
                f"release would say nothing; raise epsilon, or name an engine to have it anyway"
            )
        return engine, expected

    def _notes_of(self, domain: Domain, released: Released, unread: tuple[str, ...], units: int) -> list[str]:
        notes = [f"columns that are neither declared nor public, and left out: {shown_names(unread)}"] if unread else []
        columns = getattr(domain, "columns", None)  # a class of hypotheses has none
        if "refuted_column" in released.details and columns is not None:
            column = columns.names[int(released.details["refuted_column"])]
            notes.append(f"column {column!r} differs most from the public records")
        return notes + large_delta_notes(self.delta, units)

    def _weigh(self, domain: Domain) -> Queries:
        return weigh_queries(domain, self.error, self.error_weights, self.target)

    def keep_release(
        self,
        domain: Domain,
        released: Released,
        records: int,
        expected: float,
        *,
        unit: str,
        update: Update | None = None,
        total: Total | None = None,
    ) -> None:
        """Set the fitted attributes: after `fit`, for a loaded release, and for an update of a growing one."""
        if self.target is not None and released.model is not None:  # which synthetic records depend on
            released = replace(
                released, details=released.details | {"target": float(target_column(domain, self.target))}
            )
        self.domain_, self.released_ = domain, released
        self._fitted: tuple[Floats, Rows | None] | None = None
        self.engine_, self.records_, self._foreseen = released.engine, records, float(expected)
        self.notes_, self.unit_, self.update_ = tuple(released.notes), unit, update
        self.total_ = total
        self.claim_ = release_claim(
            self.epsilon,
            self.delta,
            unit=unit,
            records_per_person=self.records_per_person,
            records=records,
            updates=None if update is None else update.updates,
            total=total,
        )

    def answer(self, queries: Any = None, *, band: float | None = None, counts: bool = False) -> Table:
        """Return a tidy table: names of queries, `answer`, `error` (one standard deviation), `low` and `high` (95%).

        `low` and `high` follow from the measured counts and their noise: their coverage does not depend on how well a
        model or public data fit. `error` estimates the error of the answer. It may be much smaller than the width of
        the interval, and is missing where the engine has no estimate. The interval does not include the cover's own
        error; `error_bound` does.

        Parameters
        ----------
        queries
            Hypotheses of the class, or names, expressions or numbers of the workload; by default all of the workload.
            Marginals also answer queries on fewer columns, and of several cells, by adding cells up: {"age": [18, 65]}
            is everything between two cuts, {"region": ["north", "west"]} both. What they say of more columns is read
            off the fitted table, with a warning. Thresholds and ranges with ends between
            cuts lie between two queries: `query` names both, `asked` is the request, and `gap` is the difference of the
            two. The answer assumes values spread evenly between cuts; `low` and `high` do not.
        band
            A probability, say 0.95, with which `low` and `high` hold for *all* answers together, not each for itself.
        counts
            Whether to return numbers of records (with `groups`, of people) in place of shares, rounded to the power of
            ten that is not above the error.

        >>> from quorate.models.concepts import Threshold, Thresholds
        >>> release = QueryRelease(Thresholds()).fit([1.0, 2.0, 3.0] * 3000, [0.5, 1.5, 2.5])
        >>> release.answer([Threshold(1.7)]).column_names
        ['query', 'answer', 'error', 'low', 'high']
        """
        check_is_fitted(self, "released_")
        requests = self.domain_.every() if queries is None else queries
        measured, beyond = split_requests(self.domain_, requests)
        names, bars = self._answer_measured(measured, band)
        for index, request in beyond.items():
            names.insert(index, self.domain_.name_request(request))
            joint = self._answer_beyond(request, band)
            bars = {name: np.insert(values, index, joint[name]) for name, values in bars.items()}
        keys = dict.fromkeys(key for name in names for key in name)  # the keys of all rows, in order
        columns: dict[str, Any] = {key: [name.get(key) for name in names] for key in keys}
        figures = as_counts(bars, self.records_) if counts else bars
        return make_table(columns | figures, missing={name: np.isnan(bars[name]) for name in bars})

    def _answer_measured(
        self, requests: Any, band: float | None, times: float = 1.0
    ) -> tuple[list[dict[str, Any]], dict[str, Floats]]:
        """Return names and figures of requests that measured queries answer."""
        if isinstance(requests, list) and not requests:
            return [], {name: np.empty(0) for name in ("answer", "error", "low", "high")}
        numbers, starts = self.domain_.find_sums(requests)
        names = self.domain_.describe(numbers[starts], requests)
        bars = self.bars(numbers, starts, band=band, times=times)
        moved = {index: near for index, near in enumerate(self.domain_.between(requests)) if near is not None}
        if moved:
            inner = self.bars(np.array([near.inner for near in moved.values()]), band=band, times=times)
            take_between(bars, inner, moved)
            name_between(names, self.domain_, moved)
        return names, bars

    def _answer_beyond(self, request: Mapping[str, Any], band: float | None) -> dict[str, float]:
        """Return the figures of a request of more columns than were measured together, read off the fitted table.

        Its share is at most that of any of its parts, which bounds it; the fitted table has no other error bars.
        """
        model = self.released_.model
        if model is None:
            raise InvalidInput(
                f"a query of {len(request)} columns is not measured, and this release has no fitted table"
            )
        warnings.warn(
            f"{len(request)} columns were not measured together: the answer is read off a table fitted to fewer, "
            "and only its upper end is known",
            stacklevel=3,
        )
        codes, parts = self.domain_.beyond(request) or ({}, [])
        columns = sorted(codes)
        table = model.table(columns).reshape([model.sizes[column] for column in columns])
        times = 1.0 if band is not None else 2.0 * len(parts)  # ends of a band hold together as they are
        high = float(self.bars(*self.domain_.find_sums(parts), band=band, times=times)["high"].min())
        answer = float(table[np.ix_(*(codes[column] for column in columns))].sum())
        return {"answer": min(answer, high), "error": math.nan, "low": 0.0, "high": high}

    def compare(self, queries: Any, others: Any, *, by: Literal["difference", "ratio"] = "difference") -> Table:
        """Return how the answers of queries differ from those of others, one by one, with 95% intervals.

        Each interval follows from two that hold together, whatever the errors of both answers have in common. A ratio
        whose lower number may be 0 has no upper end.

        Parameters
        ----------
        queries, others
            As many queries each, as `answer` takes them.
        by
            "difference", the answer less the other one; or "ratio", the answer over the other one.

        >>> from quorate.release import Workload
        >>> census = {"sex": ["f", "m", "m"] * 2000, "job": ["yes", "no", "yes"] * 2000}
        >>> columns = {"sex": ["f", "m"], "job": ["yes", "no"]}
        >>> release = QueryRelease(Workload.marginals(2), columns=columns).fit(census)
        >>> [ratio] = release.compare({"sex": "m"}, {"sex": "f"}, by="ratio")["answer"].to_pylist()
        >>> 1.9 < ratio < 2.1
        True
        """
        check_is_fitted(self, "released_")
        check_choice("by", by, ("difference", "ratio"))
        sides = [self._compared(requests) for requests in (queries, others)]
        if len(sides[0][0]) != len(sides[1][0]):
            raise InvalidInput(f"as many others as queries are compared, not {len(sides[1][0])} and {len(sides[0][0])}")
        (names, first, low, high), (other_names, second, other_low, other_high) = sides
        combine = np.subtract if by == "difference" else divide
        figures = {
            "answer": combine(first, second),
            "low": combine(low, other_high),
            "high": combine(high, other_low),
        }
        named = {"query": names, "compared": other_names}
        return make_table(named | figures, missing={name: ~np.isfinite(values) for name, values in figures.items()})

    def _compared(self, requests: Any) -> tuple[list[str], Floats, Floats, Floats]:
        """Return names, answers and ends of requests, which hold with 97.5% each."""
        names, bars = self._answer_measured(requests, None, times=2.0)
        return [name["query"] for name in names], bars["answer"], bars["low"], bars["high"]

    def bars(
        self, numbers: Any, starts: Any = None, *, band: float | None = None, times: float = 1.0
    ) -> dict[str, Floats]:
        """Return the columns of `answer` for queries by their numbers; NaN where the engine has no figure.

        `starts` holds the start of each run of queries, for sums over runs. Intervals miss `times` less often than 95%
        ones, so that as many hold together.
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        starts = np.arange(len(numbers)) if starts is None else starts
        answers, deviations = self.read(numbers)
        shares, errors = sum_runs(answers, starts), np.sqrt(sum_runs(deviations**2, starts))
        low, high = widen_ends(*self._ends(numbers, starts, shares, errors, band), times)
        return {
            "answer": np.clip(shares, 0, 1),
            "error": np.minimum(errors, 1.0),  # of a share
            "low": np.clip(low, 0, 1),
            "high": np.clip(high, 0, 1),
        }

    def _ends(
        self, numbers: Any, starts: Any, shares: Floats, errors: Floats, band: float | None
    ) -> tuple[Floats, Floats]:
        """Return ends that hold for each answer with 95%, or for all together with `band`: PROOF.md, step 5.

        Where unbiased answers are kept, ends follow from these and their noise, for any model and public data.
        """
        beta = None if band is None else 1.0 - check_rate("band", band)
        if beta is not None and not self.has_error_bars:
            raise InvalidInput(f"band= is not available for engine {self.engine_!r}: it has no noise estimate")
        if self.released_.unbiased is not None:
            parts = self.domain_.parts(numbers)
            return self.released_.ends(self.domain_.queries, shares, parts, starts, records=self.records_, beta=beta)
        if beta is None:
            return around(shares, shares, half_interval(errors))
        half = self.engine_error_bound(beta) * sum_runs(np.ones(len(numbers)), starts)
        return shares - half, shares + half

    def _facts(self) -> dict[str, Any]:
        counted = "private records" if self.unit_ == RECORD else "people"
        facts = {"engine": self.engine_, counted: self.records_, "queries": self.domain_.queries.count}
        return facts | {"expected largest error of the engine": self.expected_error_}

    def read(self, numbers: Any) -> tuple[Floats, Floats]:
        """Return the answers of queries by their numbers, and their standard deviations, NaN without an estimate."""
        check_is_fitted(self, "released_")
        plus, minus = self.domain_.parts(np.asarray(numbers, dtype=np.int64))
        shares = self._answers(plus) - self._answers(minus)
        errors = self.released_.errors
        if errors is None:
            return np.clip(shares, 0.0, 1.0), np.where((plus == NOTHING) & (minus == NOTHING), 0.0, np.nan)
        return np.clip(shares, 0.0, 1.0), np.hypot(take_answers(errors, plus), take_answers(errors, minus))

    def _answers(self, numbers: Any) -> Floats:
        """Return the released answers; the empty query is 0."""
        shares, is_query = np.zeros(len(numbers)), numbers != NOTHING
        if is_query.any():
            shares[is_query] = self.released_.some(self.domain_.queries, numbers[is_query])
        return shares

    def synthetic(self, rows: int | None = None) -> Any:
        """Return synthetic records that answer the queries as the release does.

        Their number is `rows`, by default that of the private records. A class of hypotheses has points of cells, a
        workload a table. They are post-processing and cost no privacy. With the default number of rows, their answers
        are mostly within twice the release's own error. If the noise is very small, in tables of many columns and some
        hundred thousand records, the largest error of synthetic records is that of the fitted model, which `answer`
        corrects by the measured counts.

        >>> from quorate.models.concepts import Thresholds
        >>> QueryRelease(Thresholds()).fit([1.0, 2.0, 3.0] * 3000, [0.5, 1.5, 2.5]).synthetic(30).shape
        (30, 1)
        """
        check_is_fitted(self, "released_")
        wanted = min(self.records_, MOST_ROWS) if rows is None else check_count("rows", rows, most=MOST_ROWS)
        domain, released = self.domain_, self.released_
        if released.model is not None:
            return domain.rows(np.arange(wanted), draw_records(domain.queries, released, wanted))
        if released.weights is None and self._fitted is None:
            self._fitted = fit_release(domain, released, self.records_)
        weights, support = self._fitted or (released.weights, released.support)
        assert weights is not None
        mask = domain.mask_possible(len(weights), support)
        weights = weights if mask is None else clear_weights(weights, mask)
        counts = round_weights(domain.queries, weights, wanted, support=support)
        return domain.rows(np.repeat(np.arange(len(counts)), counts), support)

    def quantiles(self, cells: int) -> Columns:
        """Return a declaration of the thresholds' column whose cells hold equally many records by the release."""
        check_is_fitted(self, "released_")
        if not isinstance(bound := self.domain_, LineWorkload):
            raise InvalidInput("quantiles requires a workload of thresholds of one column, without groups")
        return bound.even_columns(self.read(np.arange(bound.count_queries))[0], check_count("cells", cells, least=2))

    def error_bound(self, beta: float = 0.05) -> float:
        """Return a bound on the largest error over all queries that holds with probability 1 - beta.

        Each of two parts takes half of beta: the engine's part, over the queries of the cover or workload, and the
        cover's own, over all hypotheses.
        """
        check_is_fitted(self, "released_")
        beta = check_rate("beta", beta)
        return min(1.0, self.engine_error_bound(beta / 2) + self.domain_.share(beta / 2))

    def engine_error_bound(self, beta: float = 0.05) -> float:
        """Return a bound on the engine's own part of the error of any answer, with probability 1 - beta."""
        check_is_fitted(self, "released_")
        beta = check_rate("beta", beta)
        parts = 2 if self.domain_.has_differences else 1  # PROOF.md, step 5
        if not self.has_error_bars:
            return min(1.0, 2 * parts * self.expected_error_)
        return min(1.0, parts * self.released_.error_bound(self.domain_.queries, beta))

    @property
    def has_error_bars(self) -> bool:
        """Whether the engine knows the noise of its answers, so that `engine_error_bound` is a proved bound."""
        check_is_fitted(self, "released_")
        return self.released_.has_bars

    @property
    def expected_error_(self) -> float:
        """The expected largest error of the engine, from the release or the forecast."""
        return self.released_.expected_error(self._foreseen)

    def save(self, folder: str | Path) -> Path:
        """Write the release to a new folder, for `load`. The folder contains nothing private."""
        return saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> "QueryRelease":
        """Return the release from a folder, as it was after `fit`."""
        release: QueryRelease = saving.load(folder, kind=cls.kind)
        return release

    def publish(self, folder: str | Path, *, extra: dict[str, bytes] | None = None) -> Path:
        """Save the release with its answers as a table, for readers without this package."""
        return saving.save(self, folder, extra=extra, answers=True)

    def claim_part(self) -> Node:
        """Return everything that was released."""
        part: Node = self.claim_part_
        return part

    def to_state(self, *, answers: bool = False) -> State:
        """Return the state of the release; with `answers` also the table of answers."""
        return write_release(self, answers=answers)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the release of a state, as it was after `fit`."""
        return read_release(cls, state)

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return the engine, the number of records, and the expected errors, as lines of the page."""
        return release_facts(self)


@dataclass(frozen=True, repr=False)
class _Counted:
    """The private records of a fit, sealed by cells, and what is public about them."""

    domain: Domain
    queries: Queries
    auto_cuts: AutoCuts | None
    private: Any  # the records themselves, for cuts that are found with noise
    sealed: SealedCounts
    records: int
    unread: tuple[str, ...]


def _charge_during(account: Account | None, epsilon: float, delta: float, unit: str) -> AbstractContextManager[Any]:
    return nullcontext() if account is None else account.charge_during(epsilon=epsilon, delta=delta, unit=unit)
