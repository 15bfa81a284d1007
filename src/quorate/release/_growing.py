"""Release a growing table after each update, about all records so far, for one budget over all updates.

Claim: all results of `update` together are (epsilon, delta)-differentially private under replacement of one record by
another of the same update, or, with `records_per_person`, of all records of one person by as many others in the same
updates. The number of updates is declared, and how many records each update counts is public. PROOF.md, step 7, has the
proof.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.ballots import release_counts
from quorate.core.checks import check_count, check_delta, check_positive, check_process, process_identity
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Node, Total, growing_node
from quorate.core.progress import html_card
from quorate.models.account import Account
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import SavedModel, State
from quorate.models.saving.folder import PrivateFolder
from quorate.release._release import QueryRelease
from quorate.release._running_sums import RunningSums, best_running_sums
from quorate.release._saved import spent_budget
from quorate.release._update_files import KeptUpdate, UpdateFiles
from quorate.release.domain import Domain, SealedCounts, make_domain, read_domain
from quorate.release.engines import ENGINES, expected_errors
from quorate.release.engines.base import Measurement, MeasuringEngine, Planned, check_private, histogram_scale
from quorate.release.people import PERSON, RECORD, Counted, Update, release_claim
from quorate.release.workloads.marginals import Errors, weigh_queries

_SETTINGS = ("epsilon", "delta", "updates", "engine", "records_per_person", "error", "target")

_LARGEST = 2**60  # entries that are measured


@dataclass(frozen=True)
class Plan:
    """The measurements and the noise of every update, fixed by the first update from public numbers alone."""

    engine: str
    planned: Planned
    noise: float
    sums: RunningSums
    mechanism: NoisyVector


class GrowingRelease(SavedModel):
    """Releases of a table that grows by updates, such as months, with one budget for all of them.

    Each update adds new records and returns a `QueryRelease` about all records so far, which may be published. Its
    noise is nearly the same after every update. For 24 updates it is 1.83 times that of a single release with the whole
    budget: within half a per cent of the least noise of any factorisation of the running sums.

    Parameters
    ----------
    subject
        A class of hypotheses of `quorate.models.concepts`, or a workload of `quorate.release.Workload`.
    updates
        The largest number of updates. More are refused.
    epsilon, delta
        The privacy loss allowed for all updates together. All of it is charged before the first is drawn.
    engine
        "auto" or the name of an engine that measures once: "levels", "plain", "prefix", "residual", "reweighting".
    columns, public
        Public declarations and records, as for `QueryRelease`. They stay the same for all updates.
    records_per_person
        None: the record is protected, even if a person has more than one. A number k: the person is protected, and the
        first k records of each person are counted, over all updates; `groups` then names the person of each record in
        each update.
    error, error_weights, target
        Which error to keep small, as for `QueryRelease`.
    account
        An `Account`, or its folder: a total that all updates together draw on once, before the first.
    domain
        The cells and queries of a loaded release. Leave it out otherwise.

    `updates_` lists the updates so far; `claim_` is the guarantee, `unit_` the unit of privacy, `budget_` the account.

    >>> from quorate.release import Workload
    >>> growing = GrowingRelease(Workload.marginals(1), updates=24, columns={"kind": ["a", "b"]})
    >>> january = growing.update("2024-01", {"kind": ["a"] * 3000 + ["b"] * 1000})
    >>> february = growing.update("2024-02", {"kind": ["b"] * 4000})
    >>> [share] = february.answer([{"kind": "a"}])["answer"].to_pylist()
    >>> january.records_, february.records_, 0.3 < share < 0.45
    (4000, 8000, True)
    >>> growing.update("2024-02", {"kind": []}).answer() == february.answer()  # what was answered is answered again
    True
    """

    kind = "growing release"
    inputs = "queries"
    outputs = "released shares"
    served = False
    own_files = ("update-",)

    def __init__(
        self,
        subject: Any,
        *,
        updates: int,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        engine: str = "auto",
        columns: Any = None,
        public: Any = None,
        records_per_person: int | None = None,
        error: Errors = "largest",
        error_weights: Mapping[Any, float] | None = None,
        target: str | None = None,
        account: Any = None,
        domain: Domain | None = None,
    ) -> None:
        self.subject, self.engine = subject, engine
        self.updates, self.records_per_person = check_count("updates", updates), records_per_person
        self.epsilon, self.delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        self.account = None if account is None else Account.of(account)
        self.total_ = None if self.account is None else self.account.total
        if self.account is not None:
            self.epsilon, self.delta = self.account.whole(self.epsilon, self.delta)
        if engine != "auto" and not isinstance(ENGINES.get(engine), MeasuringEngine):
            names = ", ".join(
                name for name, candidate in sorted(ENGINES.items()) if isinstance(candidate, MeasuringEngine)
            )
            raise InvalidInput(f"engine must be 'auto' or one of {names}, got {engine!r}")
        records_counted = 1 if records_per_person is None else check_count("records_per_person", records_per_person)
        self.error, self.error_weights, self.target = error, error_weights, target
        self.domain_ = make_domain(subject, public, columns) if domain is None else domain
        self.queries_ = weigh_queries(self.domain_, error, error_weights, target)
        self.budget_ = Budget(epsilon=self.epsilon, delta=self.delta, slack=0.0)
        self.unit_ = RECORD if records_per_person is None else PERSON
        self._counted = Counted(records_counted)
        self._store: UpdateFiles | None = None
        self._kept: list[KeptUpdate] = []
        self._process, self._lock = process_identity(), threading.Lock()
        self.plan_: Plan | None = None

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence."""
        terms: dict[str, Any] = {"records_per_person": self._counted.records_per_person, "total": self.total_}
        return release_claim(self.epsilon, self.delta, unit=self.unit_, updates=self.updates, **terms)

    @property
    def updates_(self) -> list[str]:
        """The names of the updates so far."""
        return [update.name for update in self._kept]

    @property
    def has_folder(self) -> bool:
        """Whether updates are kept in a folder."""
        return self._store is not None

    def update(self, name: str, private: Any, groups: Any = None) -> QueryRelease:
        """Count new records and return the release about all records so far.

        Each update has its own name, such as "2024-01". Repeating a name returns the same release again: the records
        that are passed with it are not read. More updates than declared are refused.
        """
        check_process("this release", self._process)
        with self._lock:  # another thread would draw the same number again: proof: step 7
            return self._update(name, private, groups)

    def check_movable(self) -> None:
        """Refuse a release without an update, and one that has a folder."""
        if self.plan_ is None:
            raise InvalidInput("a growing release cannot be saved before its first update; call update first")
        if self._store is not None:
            raise InvalidInput("this release has a folder already; load it from there")

    def claim_part(self) -> Node:
        """Return the measurements of all declared updates, whose number the folder's ledger limits."""
        assert self.plan_ is not None
        return {**self._claim_part(self.plan_), "ledger": True}

    def to_state(self) -> State:
        """Return the subject, the guarantee and the measurements; each update is in a separate file."""
        plan, weights = self.plan_, self.error_weights
        assert plan is not None
        about, arrays = self.domain_.to_state()
        values = {
            "claim": self.claim_,
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "error_weights": None if weights is None else list(weights.items()),
            "unit": self.unit_,
            "updates": self.updates,
            "records_per_person": self._counted.records_per_person,
            "total": to_plain(self.total_),
            "plan": {"engine": plan.engine, "planned": plan.planned, "noise": plan.noise},
            "mechanism": to_plain(plan.mechanism),
            "about": about,
        }
        state = State(values)
        state.put_arrays("public", **arrays, running_sums=plan.sums.coefficients)
        return state

    def move_to(self, folder: PrivateFolder) -> None:
        """Continue from a new folder, which has a file of each update. The whole account is charged."""
        with self._lock:  # an update during the move would be missing from the folder, and drawn again from there
            self.check_movable()
            ledger = folder.create_ledger(self.budget_)
            store = UpdateFiles(folder.path, ledger)
            for number, update in enumerate(self._kept, start=1):
                store.keep(number, update)
            self.budget_, self._store = ledger.budget(), store

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the release of a state, with all updates that were released."""
        assert state.home is not None
        values, arrays = state.values, state.arrays("public")
        sums = RunningSums(arrays.pop("running_sums"))
        subject, domain = read_domain(values["about"], arrays)
        weights = values["error_weights"]
        weights = weights and {tuple(key) if isinstance(key, list) else key: weight for key, weight in weights}
        release = cls(subject, **values["settings"], error_weights=weights, domain=domain)
        release.total_ = from_plain(values["total"], Total)
        plan = values["plan"]
        mechanism = from_plain(values["mechanism"], NoisyVector)
        release.plan_ = Plan(plan["engine"], from_plain(plan["planned"]), plan["noise"], sums, mechanism)
        release.budget_, release._store = state.home.ledger.budget(), UpdateFiles(state.home.path, state.home.ledger)
        release._kept = release._store.read()
        for update in release._kept:
            update.people.put_to(release._counted.remember)
        return release

    def _update(self, name: str, private: Any, groups: Any) -> QueryRelease:
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput('name must be a text that names one update, such as "2024-01"')
        if name in self.updates_:
            return self._make_release(self.updates_.index(name) + 1)
        self._check_new(groups)
        counted, people = (private, None) if groups is None else self._counted.choose(private, groups)
        sealed, records = self._seal(counted, people)
        is_first = self.plan_ is None
        plan = self.plan_ or self._make_plan(records)
        measurement = self._check_measurement(plan, records)
        vectors = sealed.put_to(lambda data: SealedCounts(self._vectors(measurement, data)))
        if is_first and self.account is not None:
            self.account.charge(epsilon=self.epsilon, delta=self.delta, unit=self.unit_)  # proof: step 8
        noisy = self._draw(plan, vectors, budget=self.budget_ if is_first else None)  # charged once: proof: step 7
        update = KeptUpdate(name, records, noisy, vectors, SealedCounts(people))
        if self._store is not None:
            self._store.keep(len(self._kept) + 1, update)  # before its answers leave
        self.plan_ = plan
        self._counted.remember(people)  # First, since an interruption here must not let people be counted again.
        self._kept.append(update)
        return self._make_release(len(self._kept))

    def _check_new(self, groups: Any) -> None:
        """Refuse an update beyond those declared, and one with groups where none were declared."""
        if len(self._kept) == self.updates:
            raise BudgetSpent(f"all {self.updates} declared updates are released; start another release")
        if (groups is None) != (self.records_per_person is None):
            raise InvalidInput("groups= must be given exactly where records_per_person was declared")

    def _check_measurement(self, plan: Plan, records: int) -> Measurement:
        """Return the planned measurement; refuse an unpaid one, and counts too large to be exact."""
        measurement = self._measurement(plan)
        if self._paid(measurement, plan.sums) != plan.mechanism.squared_sensitivities:  # proof: step 7
            raise InvalidInput(
                "this version of quorate measures other queries than the earlier updates have paid for; continue "
                "with the version that began this release, or start another"
            )
        if measurement.largest * int(plan.sums.coefficients.max()) * self._records(records) >= _LARGEST:
            raise Infeasible("counts must stay below 2**60 to be measured exactly; use fewer records or cells")
        return measurement

    def close(self) -> None:
        """Close the folder, if there is one."""
        if self._store is not None:
            self._store.close()

    def _seal(self, private: Any, people: NDArray[np.uint8] | None) -> tuple[SealedCounts, int]:
        """Return the records by their cells, sealed, and their number; an update may bring no new person."""
        if people is not None and len(people) == 0:
            return SealedCounts(None), 0
        return self.domain_.seal(private)

    def _records(self, new: int = 0) -> int:
        return sum(update.records for update in self._kept) + new

    def _make_plan(self, records: int) -> Plan:
        """Return the plan for updates of the size of the first."""
        if not records:
            raise InvalidInput("the first update must hold at least one record")
        sums = best_running_sums(self.updates)
        public, total = self.domain_.public(), records * self.updates
        settings: dict[str, Any] = {"records": total, "epsilon": self.epsilon, "delta": self.delta, "public": public}
        names = expected_errors(self.queries_, **settings) if self.engine == "auto" else [self.engine]
        usable = [name for name in names if isinstance(ENGINES[name], MeasuringEngine)]
        if not usable:
            raise Infeasible("no engine can answer these queries after every update; ask for fewer queries")
        engine = ENGINES[usable[0]]
        assert isinstance(engine, MeasuringEngine)
        alone = histogram_scale(self.epsilon, self.delta, 2 * sums.squared_length * self._counted.records_per_person**2)
        scale = alone * sums.deviation(self.updates)
        measurement = engine.measurement(self.queries_, public, scale / total)
        mechanism = NoisyVector.for_budget(
            self.budget_, squared_sensitivities=self._paid(measurement, sums), shares=measurement.shares
        )
        return Plan(engine.name, measurement.planned, scale / total, sums, mechanism)

    def _paid(self, measurement: Measurement, sums: RunningSums) -> tuple[int, ...]:
        """Return the squared sensitivity of each part of all updates together, for a record or a person."""
        inflated = sums.squared_length * self._counted.records_per_person**2  # proof: step 7
        return tuple(square * inflated for square in measurement.squares)

    def _claim_part(self, plan: Plan) -> Node:
        squares, weights = self._measurement(plan).squares, plan.sums.coefficients.tolist()
        alone = NoisyVector(squared_sensitivities=squares, scales=plan.mechanism.scales)  # of one update
        releases = alone.describe([len(part) for part in self._kept[0].noisy])
        rows = self._counted.records_per_person
        return growing_node(self.epsilon, self.delta, releases, weights=weights, rows=rows)

    def _measurement(self, plan: Plan) -> Measurement:
        engine = ENGINES[plan.engine]
        assert isinstance(engine, MeasuringEngine)
        return engine.measurement(self.queries_, self.domain_.public(), plan.noise, plan.planned)

    def _vectors(self, measurement: Measurement, data: Any) -> list[Integers]:
        """Return the vectors of an update's records; an update without records has zeros."""
        if data is None:
            return [np.zeros(len(part), dtype=np.int64) for part in self._kept[0].noisy]
        return measurement.vectors(check_private(self.queries_, data))

    def _draw(self, plan: Plan, vectors: SealedCounts, *, budget: Budget | None) -> list[NDArray[np.int64]]:
        """Return the noisy measurements after an update."""

        def draw_noisy(last: list[Integers]) -> list[NDArray[np.int64]]:
            previous = [update.vectors.put_to(list) for update in self._kept]
            return plan.mechanism.draw_release(plan.sums.measure([*previous, last]), budget, None)

        return release_counts(vectors, draw_noisy)  # proof: step 7

    def _make_release(self, number: int) -> QueryRelease:
        """Return the release about all records up to an update: post-processing of the measurements."""
        plan, updates = self.plan_, self._kept[:number]
        assert plan is not None
        records, grown = sum(update.records for update in updates), plan.sums.deviation(number)
        released = self._measurement(plan).finish(
            plan.sums.estimate([update.noisy for update in updates]),
            [scale * grown for scale in plan.mechanism.scales],
            records,
        )
        expected = ENGINES[plan.engine].expected_error(
            self.queries_, records=records, epsilon=self.epsilon, delta=self.delta, public=self.domain_.public()
        )
        expected = min(1.0, expected * grown * math.sqrt(plan.sums.squared_length) * self._counted.records_per_person)
        release = QueryRelease(
            self.subject,
            epsilon=self.epsilon,
            delta=self.delta,
            engine=plan.engine,
            records_per_person=self._counted.records_per_person,
            error=self.error,
            error_weights=self.error_weights,
            target=self.target,
        )
        update = Update(updates[-1].name, number, self.updates)
        release.keep_release(
            self.domain_, released, records, expected, unit=self.unit_, update=update, total=self.total_
        )
        release.claim_part_ = self._claim_part(plan)
        release.budget_ = spent_budget(self.epsilon, self.delta, order=self.budget_.order)
        release.seconds_ = 0.0
        return release

    def __reduce__(self) -> NoReturn:
        raise TypeError("a GrowingRelease cannot be copied or pickled: a copy would draw its updates a second time")

    def _repr_html_(self) -> str:
        facts = {"updates made": len(self._kept), "updates declared": self.updates, "records": self._records()}
        sentence = f"{self.claim_[:1].upper()}{self.claim_[1:]}."
        return html_card(
            "GrowingRelease", facts, bar=("updates made", len(self._kept) / self.updates), lines=[sentence]
        )
