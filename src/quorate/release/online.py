"""Answer queries one at a time, each paid for only if the public or learned answer is clearly wrong.

Private multiplicative weights (Hardt and Rothblum 2010) with one threshold run: the model proposes an answer, and the
run decides whether it stands; if not, the count is measured and the model corrected.

Claim: all results of `ask`, and the model, are together (epsilon, delta)-differentially private under replacement of
one private record, or of one person with all records, for any adaptively chosen queries. PROOF.md, step 6, has the
proof.
"""

import hashlib
import math
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from quorate.core.answerers import open_runs
from quorate.core.ballots import release_counts
from quorate.core.checks import check_delta, check_positive, check_rate
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import NO_QUORUM, Answers, NoisySum
from quorate.core.mechanisms.above_threshold import AboveThreshold, distance_ballots
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import charged_together
from quorate.core.privacy.claims import Claim
from quorate.core.requests import OWN_CALLER, REFUSED
from quorate.core.session import Session
from quorate.models.predictors.sklearn_compat import ShowsClaim
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import SavedModel, State
from quorate.release.domain import Domain, SealedCounts, make_domain, read_domain
from quorate.release.engines.weights import LearnedWeights, mask_query
from quorate.release.people import PERSON, RECORD, first_records
from quorate.release.queries import Rows
from quorate.release.queries.base import NOTHING

Query = tuple[int, int]  # an engine's query, and the one within it that does not belong, or NOTHING

EXACT, PROPOSED, MEASURED = 0, 1, 2  # how an answer came about
_ONE = 2**52  # shares are kept in these parts
_BLEND = 0.1  # of alpha: the share of the uniform histogram in the start
_WITHIN = 3.2905  # scales that hold 99.9% of a Gaussian
_LEASE = 4  # crossings whose price is taken out of a ledger at a time: a crash loses no more
_LEDGER_FILE = "ledger.sqlite"


def rows_of_numbers(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of a domain's queries as rows of a request."""
    return (numbers - NOTHING).reshape(-1, 1)


def _label(share: float, how: int) -> int:
    """Return an answer as a session keeps it: one whole number."""
    return (round(share * _ONE) << 2) + how


def read_labels(labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the shares that labels say, and how they came about."""
    return (labels >> 2) / _ONE, labels & 3


class Proposals:
    """The `Answerer` of an online release. Where there is a ledger, it has what was measured before `draw` returns."""

    def __init__(
        self,
        domain: Domain,
        counts: SealedCounts,
        records: int,
        *,
        model: LearnedWeights,
        mechanism: AboveThreshold,
        measurement: NoisySum,
    ) -> None:
        self.domain, self.counts, self.records = domain, counts, records
        self.model, self.mechanism, self.measurement = model, mechanism, measurement
        self.known: dict[Query, float] = {}
        self.measured: list[tuple[int, int, int]] = []  # queries with their noisy counts, in the order of learning
        self.paid: list[Query] = []  # those that this process has paid for
        self.run: Run
        self._budget: Budget
        self._ledger: Ledger | None = None

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Open the run, or go on with the one that the ledger has, and with what was measured in it."""
        assert budget is not None
        self._budget, self._ledger = budget, ledger
        (self.run,) = open_runs([self.mechanism], budget, ledger)
        if ledger is not None:
            if ledger.run() is None:
                ledger.keep_run(self.run.threshold_noise)
            self.catch_up()

    stops_at_last_no_quorum = False  # a crossing is measured, which costs too

    def affordable(self, most: int) -> int:
        """Return all of them: each is refused by itself, and what was measured before costs nothing."""
        return most

    def draw(self, X: Any) -> Answers:
        """Answer queries one after the other; raise `BudgetSpent` where not one of them can be answered."""
        labels, ended, previous = list[int](), None, len(self.paid)
        for query in zip(*(part.tolist() for part in self.domain.parts(X[:, 0] + NOTHING)), strict=True):
            try:
                labels.append(self._answer_query(query))
            except BudgetSpent as error:
                ended = error
                labels.append(REFUSED)
        if ended is not None and set(labels) == {REFUSED}:
            raise ended
        spent = self.row_cost().times(len(self.paid) - previous)
        return Answers(labels=np.array(labels, dtype=np.int64), spent=spent)

    def move(self, ledger: Ledger) -> None:
        """End the run here, and leave its secret noise and what was measured in the ledger."""
        ledger.keep_run(self.run.end())
        for index, values in enumerate(self.measured):
            ledger.keep({(OWN_CALLER, key): value for key, value in zip(_keys(index), values, strict=True)}, {}, [])

    def close(self) -> None:
        """Do nothing: all of it is in this process."""

    def proposed(self, query: Query) -> float:
        """Return what the model says: it has seen public records and released counts alone."""
        return 0.0 if query[0] == NOTHING else self.model.answer(*query)

    def count(self, counts: Any, query: Query) -> int:
        """Return how many private records a query holds: a whole number, which one record moves by at most 1."""
        if isinstance(counts, Rows):
            return int(mask_query(self.domain.queries, *query, counts).sum())
        return int(counts[mask_query(self.domain.queries, *query, None)].sum())

    def learn(self, query: Query, noisy: int) -> float:
        """Take in a released count, and return the share that it says."""
        share = min(max(noisy / self.records, 0.0), 1.0)
        self.known[query] = share
        self.measured.append((*query, noisy))
        self.model.learn(query[0], share, query[1])
        return share

    def row_cost(self) -> Cost:
        """Return what a paid answer costs: a crossing and a measurement."""
        order = self._budget.order
        return charged_together(self.mechanism.no_quorum_cost(order), self.measurement.release_cost(order))

    def _answer_query(self, query: Query) -> int:
        if query[0] == NOTHING:
            return _label(0.0, EXACT)
        if query in self.known:
            return _label(self.known[query], MEASURED)
        if self.run.no_quorums_left == 0:
            raise BudgetSpent(
                f"the run has ended: it was closed, or has met its {self.mechanism.no_quorums} paid answers"
            )
        crossing, order = self.mechanism.no_quorum_cost(self._budget.order), self._budget.order
        # Both, before either: a crossing is always measured. proof: step 6
        if not self._budget.acquire(crossing, self.measurement.release_cost(order), most=1):
            raise BudgetSpent("the budget cannot pay for another answer, which any query may turn out to need")
        proposal = self.proposed(query)
        if release_counts(self.counts, lambda counts: self._stands(counts, query, proposal)):
            return _label(proposal, PROPOSED)
        noisy = release_counts(
            self.counts, lambda counts: self.measurement.release(self.count(counts, query), budget=self._budget)
        )
        self._keep(query, noisy)
        self.paid.append(query)
        return _label(self.learn(query, noisy), MEASURED)

    def _stands(self, counts: Any, query: Query, proposal: float) -> bool:
        """Return what the run releases: whether the proposal stands."""
        distance = abs(self.count(counts, query) - round(proposal * self.records))  # proof: step 6
        ballots = distance_ballots(np.array([min(distance, self.records)]), records=self.records)
        return bool(self.run.answers(ballots).labels[0] != NO_QUORUM)

    # --- What was measured, in a ledger ------------------------------------------------------------------------------

    def _keep(self, query: Query, noisy: int) -> None:
        """Put what was measured on the disk before it leaves, where there is a ledger.

        Another process may have kept a measurement at the same place, and the ledger keeps the first: that one is
        learned, and the next place is tried.
        """
        while self._ledger is not None:
            self.catch_up()
            index, values = len(self.measured), (*query, noisy)
            self._ledger.keep(
                {(OWN_CALLER, key): value for key, value in zip(_keys(index), values, strict=True)}, {}, []
            )
            if self._at(index) == values:
                return

    def catch_up(self) -> None:
        """Learn what the ledger holds and this process does not know: from before a restart, or from another one."""
        while (values := self._at(len(self.measured))) is not None:
            self.learn(values[:2], values[2])

    def _at(self, index: int) -> tuple[int, int, int] | None:
        """Return what the ledger keeps at a place: a query, what is left out of it, and its noisy count."""
        assert self._ledger is not None
        keys = _keys(index)
        values = self._ledger.recall(OWN_CALLER, keys)  # not `admit`, which would end what is set aside for who asks
        if len(values) < len(keys):
            return None
        number, without, noisy = (values[OWN_CALLER, key] for key in keys)
        return number, without, noisy


def _keys(index: int) -> list[bytes]:
    """Return the keys of a measurement in a ledger: of its query, of what is left out of that, and of its count."""
    kinds = ("query", "without", "count")
    return [hashlib.blake2b(f"{kind} {index}".encode(), digest_size=16).digest() for kind in kinds]


@dataclass(frozen=True)
class OnlineAnswer:
    """The answer to one query: a share of the records, its error bar, and whether it was paid for.

    `error` is one standard deviation of a measured answer, and alpha for one that stands. If the budget could not have
    paid, the query is `refused`, and answer and error are NaN.
    """

    query: str
    answer: float
    error: float
    paid: bool
    refused: bool = False


class OnlineRelease(SavedModel, ShowsClaim, BaseEstimator):
    """Answer queries one at a time; pay only if public data and earlier answers are clearly wrong.

    Parameters
    ----------
    subject
        A class of hypotheses of `quorate.models.concepts`, or a workload of `quorate.release`.
    epsilon, delta
        The privacy loss allowed for all answers together; delta must be above 0.
    alpha
        How far from the truth an unpaid answer may be. A model that errs by less than half of it is hardly ever
        measured; one that errs by more than alpha is corrected 99 times in 100.
    columns
        What is declared about the columns of a table, as for `QueryRelease`.
    ledger
        A folder for the budget, the run's secret noise and the answers given, so that the release continues after a
        restart with the same records. It belongs to the owner and is secret. Without it, everything is kept in memory.
        `save` also keeps the counts of the records: a saved model does not need the records.

    After `fit`: `payable_` is the number of paid answers that the budget allows, `opening_epsilon_` the cost of the
    opening by itself (PROOF.md, step 6), `paid_` the number of answers paid for, `model_` what was learned, `unit_`
    what is protected, `budget_` the budget and `claim_` the guarantee.

    >>> import numpy as np
    >>> from quorate.models.concepts import Threshold, Thresholds
    >>> private, public = np.random.default_rng(0).normal(size=(2, 40_000))
    >>> online = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public[:1000])
    >>> [answer] = online.ask([Threshold(0.0)])
    >>> 0.4 < answer.answer < 0.6
    True
    """

    session_: Session

    kind = "online release"
    inputs = "queries"
    outputs = "online shares"

    def __init__(
        self,
        subject: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        alpha: float = 0.05,
        columns: Any = None,
        ledger: str | Path | None = None,
    ) -> None:
        self.subject, self.epsilon, self.delta, self.alpha = subject, epsilon, delta, alpha
        self.columns, self.ledger = columns, ledger

    def fit(self, private: Any, public: Any, groups: Any = None) -> "OnlineRelease":
        """Count the private records in cells that public data define, and open the run.

        Only the opening is paid.

        With `groups`, which names the person of each record, the person is protected, and the first record of each
        counts.
        """
        epsilon, delta = check_positive("epsilon", self.epsilon), check_delta(self.delta, zero=False)
        alpha = check_rate("alpha", self.alpha)
        if self.ledger is not None:
            _check_folder(Path(self.ledger))
        domain = make_domain(self.subject, public, self.columns)
        if domain.public() is None:
            raise InvalidInput("an online release starts from public records: fit(private, public)")
        counts, records = domain.seal(private if groups is None else first_records(private, groups))
        distance = math.floor(alpha * records)
        if distance < 2:
            raise Infeasible(f"alpha={alpha:g} of {records} records is less than 2 of them; ask for less precision")
        mechanism = AboveThreshold.calibrate(
            epsilon=epsilon,
            delta=delta,
            records=records,
            near=distance // 2,
            far=distance,
            measurement=_measurement(distance).scale,
        )
        budget = Budget(epsilon=epsilon, delta=delta, order=mechanism.order, slack=0.0)
        answers = self.prepare(domain, counts, records, mechanism, unit=RECORD if groups is None else PERSON)
        self.session_ = self._session(answers, budget)
        return self

    def prepare(
        self, domain: Domain, counts: SealedCounts, records: int, mechanism: AboveThreshold, *, unit: str
    ) -> Proposals:
        """Set the public part of a fit and return the answerer: for `fit`, and for a release that is loaded."""
        self.domain_, self.records_, self.unit_, self.alpha_ = domain, records, unit, float(self.alpha)
        self.payable_ = mechanism.no_quorums
        self.opening_epsilon_ = smallest_epsilon(lambda order: mechanism.opening_cost(order).renyi, delta=self.delta)[0]
        protected = "one record" if unit == RECORD else "all records of one person"
        self.claim_ = str(Claim(self.epsilon, self.delta, unit=protected, what="all answers together are"))
        self._lock = threading.Lock()
        start = domain.public()
        assert start is not None
        model = LearnedWeights.from_public(domain.queries, start, blend=_BLEND * self.alpha_)
        measurement = _measurement(math.floor(self.alpha_ * records))
        return Proposals(domain, counts, records, model=model, mechanism=mechanism, measurement=measurement)

    def to_state(self) -> State:
        """Return what the release is about and its mechanism, and the exact counts, which are the owner's alone."""
        answers, budget = self.session_.answerer, self.budget_
        about, arrays = self.domain_.to_state()
        values = {
            "claim": self.claim_,
            "epsilon": budget.epsilon,  # of the fit: parameters may have been changed since
            "delta": budget.delta,
            "alpha": self.alpha_,
            "unit": self.unit_,
            "records": self.records_,
            "mechanism": to_plain(answers.mechanism),
            "about": about,
        }
        state = State(values)
        state.put_arrays("public", **arrays)
        state.put_arrays("counts", **answers.counts.put_to(_count_arrays))  # nothing is released here
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the release of a state; it spends from the ledger of its folder, and learns again what that kept."""
        assert state.home is not None
        values, counts = state.values, state.arrays("counts")
        subject, domain = read_domain(values["about"], state.arrays("public"))
        release = cls(subject, **{name: values[name] for name in ("epsilon", "delta", "alpha")})
        mechanism = from_plain(values["mechanism"], AboveThreshold)
        sealed = SealedCounts(
            Rows(counts["codes"], counts["sizes"].tolist(), counts["weights"])
            if "codes" in counts
            else counts["counts"]
        )
        answers = release.prepare(domain, sealed, int(values["records"]), mechanism, unit=values["unit"])
        release.session_ = state.home.open_session(answers)
        return release

    def _session(self, answers: Proposals, budget: Budget) -> Session:
        """Return a session in memory, or one that goes on from the folder of a ledger."""
        if self.ledger is None:
            return Session(answers, budget)
        public = repr((float(self.epsilon), float(self.delta), float(self.alpha), self.records_, self.unit_)).encode()
        fingerprint = hashlib.sha256(public + self.domain_.identity()).hexdigest()  # of public things alone
        path = Path(self.ledger) / _LEDGER_FILE
        ledger = (
            Ledger.open(path, fingerprint=fingerprint)
            if path.exists()
            else Ledger.create(path, budget, fingerprint=fingerprint)
        )
        return Session(answers, ledger.budget(lease=_LEASE), ledger=ledger)

    @property
    def budget_(self) -> Budget:
        """The budget that pays."""
        check_is_fitted(self, "session_")
        assert self.session_.budget is not None
        return self.session_.budget

    @property
    def model_(self) -> LearnedWeights:
        """What was learned from released counts: public."""
        check_is_fitted(self, "session_")
        model: LearnedWeights = self.session_.answerer.model
        return model

    @property
    def paid_(self) -> int:
        """How many answers were paid for."""
        return len(self.model_.corrections)

    def _bar(self) -> tuple[str, float] | None:
        return "budget left", self.budget_.remaining().renyi / self.budget_.capacity().renyi

    def ask(self, queries: Any, *, caller: str = "") -> list[OnlineAnswer]:
        """Answer queries one after the other. Raises `BudgetSpent` if not one of them could be answered.

        A query is refused if the budget could not pay for it, even if its answer might have been free. If the budget
        ends within a batch, part of it is answered. A query that this caller repeats gets the same answer, at no
        privacy cost.
        """
        check_is_fitted(self, "session_")
        numbers = self.domain_.find(queries)
        names = [str(name["query"]) for name in self.domain_.describe(numbers, queries)]
        requested = list(zip(*(part.tolist() for part in self.domain_.parts(numbers)), strict=True))
        with self._lock:
            paid = self.session_.answerer.paid
            previous = len(paid)
            replies = self.session_.ask(rows_of_numbers(numbers), caller=caller)
            newly_paid = set(paid[previous:])
        shares, errors = self.read(replies.labels)
        answers = []
        for name, query, share, error, refused in zip(names, requested, shares, errors, replies.refused, strict=True):
            answers.append(
                OnlineAnswer(name, math.nan, math.nan, paid=False, refused=True)
                if refused
                else OnlineAnswer(name, float(share), float(error), paid=query in newly_paid)
            )
            newly_paid.discard(query)  # a query that stands twice in a batch is paid for once
        return answers

    def read(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the shares and their errors that the labels of a session say."""
        shares, how = read_labels(labels)
        measured = self.session_.answerer.measurement.scale / self.records_
        return shares, np.select([how == EXACT, how == MEASURED], [0.0, measured], self.alpha_)

    def answer(self, queries: Any) -> NDArray[np.float64]:
        """Return the model's answers, unchecked. Nothing is spent, and nothing is promised about their error."""
        check_is_fitted(self, "session_")
        answers, parts = self.session_.answerer, self.domain_.parts(self.domain_.find(queries))
        with self._lock:
            return np.array([answers.proposed((int(plus), int(minus))) for plus, minus in zip(*parts, strict=True)])

    def close(self) -> None:
        """End the run and close the ledger, if there is one. Nothing is answered after that."""
        check_is_fitted(self, "session_")
        with self._lock:
            self.session_.answerer.run.end()
            self.session_.close()


def _count_arrays(counts: Any) -> dict[str, NDArray[Any]]:
    """Return sealed counts as arrays, for the owner's file and for nothing else."""
    if isinstance(counts, Rows):
        return {"codes": counts.codes, "sizes": np.array(counts.sizes, dtype=np.int64), "weights": counts.weights}
    return {"counts": counts}


def _measurement(distance: int) -> NoisySum:
    """Return the noise of a count that must be told from one that is `distance` away."""
    return NoisySum(sensitivity=1, scale=max(distance / (2 * _WITHIN), 1e-6))


def _check_folder(folder: Path) -> None:
    """Make the folder of a ledger, for its owner's eyes alone; refuse one that holds something else."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _LEDGER_FILE).exists():
        raise InvalidInput(f"{folder} holds something else than the ledger of a release; name a new or empty folder")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be the folder of a ledger: {error.strerror}") from None
