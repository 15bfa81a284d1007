"""Queries one at a time, each paid for only where the public or learned answer is clearly wrong.

Private multiplicative weights (Hardt and Rothblum 2010) with one threshold run: the model proposes an answer, the run
says whether it stands, and where it does not the count is measured and the model corrected.

Claim: all that `ask` ever returns, and the model, is (epsilon, delta)-differentially private under replacement of one
private record, or of one person with all records, for any adaptively chosen queries. PROOF.md, step 6, says why.
"""

import hashlib
import math
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from quorate.checks import check_delta, check_positive, check_rate
from quorate.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.ledger import Ledger
from quorate.mechanisms import NO_QUORUM, NoisySum
from quorate.mechanisms.above_threshold import AboveThreshold, distance_ballots
from quorate.mechanisms.orders import smallest_epsilon
from quorate.memory import Asked
from quorate.privacy import Budget
from quorate.privacy.claims import Claim
from quorate.process import check_process, process_identity
from quorate.release.domain import NOTHING, Domain, make_domain
from quorate.release.learned import LearnedWeights
from quorate.release.people import PERSON, RECORD, first_records
from quorate.release.queries import Rows
from quorate.session import release_counts

__all__ = ["OnlineAnswer", "OnlineRelease"]

Query = tuple[int, int]  # an engine's query, and the one within it that does not belong, or NOTHING

_BLEND = 0.1  # of alpha: the share of the uniform histogram in the start
_WITHIN = 3.2905  # scales that hold 99.9% of a Gaussian
_LEASE = 4  # crossings whose price is taken out of a ledger at a time: a crash loses no more
_LEDGER_FILE = "ledger.sqlite"
_CALLER = "online"  # under which a ledger keeps what was measured


@dataclass(frozen=True)
class OnlineAnswer:
    """The answer to one query: a share of the records, its error bar, and whether it was paid for.

    `error` is one standard deviation of a measured answer, and alpha for one that stands. Where the budget could not
    have paid, the query is `refused`, and answer and error are NaN.

    >>> OnlineAnswer(query="x >= 1", answer=0.5, error=0.05, paid=False).paid
    False
    """

    query: str
    answer: float
    error: float
    paid: bool
    refused: bool = False


class OnlineRelease(BaseEstimator):
    """Answers one query at a time within alpha, and pays only for those that public data and earlier answers miss.

    Parameters
    ----------
    subject
        A class of hypotheses of `quorate.concepts`, or a workload of `quorate.release`.
    epsilon, delta
        The privacy loss allowed for all answers together; delta must be above 0.
    alpha
        How far from the truth an unpaid answer may be. A model that errs by less than half of it is hardly ever paid
        for; one that errs by more is corrected 99 times in 100.
    columns
        What is declared about the columns of a table, as for `QueryRelease`.
    ledger
        A folder to keep the budget in, the run's secret noise and what was measured, so that it goes on after a restart
        with the same records. It is the owner's, and secret. Without it, all is kept in memory.

    After `fit`: `payable_` says how many paid answers the budget allows, `opening_epsilon_` what the opening costs by
    itself (PROOF.md, step 6), `paid_` how many answers were paid for, `model_` what was learned, `unit_` what is
    protected, `budget_`, `claim_`.

    >>> import numpy as np
    >>> from quorate.concepts import Threshold, Thresholds
    >>> private, public = np.random.default_rng(0).normal(size=(2, 40_000))
    >>> online = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public[:1000])
    >>> [answer] = online.ask([Threshold(0.0)])
    >>> 0.4 < answer.answer < 0.6
    True
    """

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
        """Count the private records by cells that public data define, and open the run. Only the opening is paid.

        With `groups`, which says whose record each is, the person is protected, and the first record of each counts.

        >>> from quorate.concepts import Thresholds
        >>> OnlineRelease(Thresholds(), alpha=0.5).fit([1.0, 2.0] * 5000, [1.5]).paid_
        0
        """
        epsilon, delta = check_positive("epsilon", self.epsilon), check_delta(self.delta, zero=False)
        alpha = check_rate("alpha", self.alpha)
        if self.ledger is not None:
            _check_folder(Path(self.ledger))
        domain = make_domain(self.subject, public, self.columns)
        start = domain.public()
        if start is None:
            raise InvalidInput("an online release starts from public records: fit(private, public)")
        counts, records = domain.seal(private if groups is None else first_records(private, groups))
        far = math.floor(alpha * records)
        if far < 2:
            raise Infeasible(f"alpha={alpha:g} of {records} records is less than 2 of them; ask for less precision")
        measurement = NoisySum(sensitivity=1, scale=max(far / (2 * _WITHIN), 1e-6))
        mechanism = AboveThreshold.calibrate(
            epsilon=epsilon, delta=delta, records=records, near=far // 2, far=far, measurement=measurement.scale
        )
        self.domain_: Domain = domain
        self.records_, self.payable_ = records, mechanism.no_quorums
        self.model_ = LearnedWeights(domain.queries, start, blend=_BLEND * alpha)
        self.opening_epsilon_ = smallest_epsilon(lambda order: mechanism.opening_cost(order).renyi, delta=delta)[0]
        self.unit_ = RECORD if groups is None else PERSON
        unit = "one record" if groups is None else "all records of one person"
        self.claim_ = str(Claim(epsilon, delta, unit=unit, what="all answers together are"))
        self._counts, self._measurement, self._mechanism, self._alpha = counts, measurement, mechanism, alpha
        self._known: dict[Query, float] = {}
        self._lock, self._process = threading.Lock(), process_identity()
        self._open(Budget(epsilon=epsilon, delta=delta, order=mechanism.order, slack=0.0))
        return self

    @property
    def paid_(self) -> int:
        """How many answers were paid for.

        >>> from quorate.concepts import Thresholds
        >>> OnlineRelease(Thresholds(), alpha=0.5).fit([1.0, 2.0] * 5000, [1.5]).paid_
        0
        """
        check_is_fitted(self, "model_")
        return len(self.model_.corrections)

    def ask(self, queries: Any) -> list[OnlineAnswer]:
        """Answer queries one after the other. Raises `BudgetSpent` where not one of them could be answered.

        A query that could not be paid for if it had to be is refused; a batch that meets the end is answered in part.

        A query that was measured before has its measured answer again, at no privacy cost.

        >>> from quorate.concepts import Threshold, Thresholds
        >>> online = OnlineRelease(Thresholds(), alpha=0.5).fit([1.0, 2.0] * 5000, [1.5, 1.6, 1.7])
        >>> len(online.ask([Threshold(1.55), Threshold(1.65)]))
        2
        """
        check_is_fitted(self, "model_")
        check_process("this release", self._process)
        numbers = self.domain_.find(queries)
        names = [str(name["query"]) for name in self.domain_.describe(numbers, queries)]
        plus, minus = self.domain_.parts(numbers)
        answers, ended = list[OnlineAnswer](), None
        with self._lock:
            for one, other, name in zip(plus, minus, names, strict=True):
                try:
                    answers.append(self._ask((int(one), int(other)), name))
                except BudgetSpent as error:
                    ended = error
                    answers.append(OnlineAnswer(name, math.nan, math.nan, paid=False, refused=True))
        if ended is not None and all(answer.refused for answer in answers):
            raise ended
        return answers

    def answer(self, queries: Any) -> NDArray[np.float64]:
        """Return what the model says, unchecked: nothing is spent, and nothing is promised about its error.

        >>> from quorate.concepts import Threshold, Thresholds
        >>> OnlineRelease(Thresholds(), alpha=0.5).fit([1.0, 2.0] * 5000, [1.5]).answer([Threshold(9.0)])
        array([...])
        """
        check_is_fitted(self, "model_")
        numbers = self.domain_.find(queries)
        plus, minus = self.domain_.parts(numbers)
        with self._lock:
            return np.array([self._proposed(int(one), int(other)) for one, other in zip(plus, minus, strict=True)])

    def close(self) -> None:
        """Let go of the ledger, if there is one. Nothing is answered after that.

        >>> from quorate.concepts import Thresholds
        >>> OnlineRelease(Thresholds(), alpha=0.5).fit([1.0, 2.0] * 5000, [1.5]).close()
        """
        check_is_fitted(self, "model_")
        with self._lock:
            self.budget_.return_unused(all=True)
            self._run.end()
            if self._kept is not None:
                self._kept.close()

    def _open(self, budget: Budget) -> None:
        """Open the run, or go on with the one that the ledger kept, and with what was measured in it."""
        self._kept: Ledger | None = None
        self.budget_ = budget
        if self.ledger is None:
            self._run = self._mechanism.open(budget)
            return
        path, fingerprint = Path(self.ledger) / _LEDGER_FILE, self._fingerprint()
        self._kept = (
            Ledger.open(path, fingerprint=fingerprint)
            if path.exists()
            else Ledger.create(path, budget, fingerprint=fingerprint)
        )
        self.budget_ = self._kept.budget(lease=_LEASE)
        noise = self._kept.run()
        if noise is None:
            self._run = self._mechanism.open(self.budget_)
            self._kept.keep_run(self._run.threshold_noise)
        else:
            self._run = self._mechanism.resume(self.budget_, threshold_noise=noise)
        self._catch_up()

    def _ask(self, query: Query, name: str) -> OnlineAnswer:
        if query[0] == NOTHING:
            return OnlineAnswer(name, 0.0, 0.0, paid=False)
        if query in self._known:
            return OnlineAnswer(name, self._known[query], self._measurement.scale / self.records_, paid=False)
        if self._run.no_quorums_left == 0:
            raise BudgetSpent(f"the run has ended: it was closed, or has met its {self.payable_} paid answers")
        crossing = self._mechanism.no_quorum_cost(self.budget_.order)
        measuring = self._measurement.release_cost(self.budget_.order)
        if self.budget_.affordable(crossing, measuring) < 1:  # both, before either: a crossing is always measured
            raise BudgetSpent("the budget cannot pay for another answer, which any query may turn out to need")
        proposal = self._proposed(*query)
        if release_counts(self._counts, lambda counts: self._stands(counts, query, proposal)):
            return OnlineAnswer(name, proposal, self._alpha, paid=False)
        noisy = release_counts(
            self._counts,
            lambda counts: self._measurement.release(self._count(counts, query), budget=self.budget_),
        )
        self._keep(query, noisy)
        return OnlineAnswer(name, self._learn(query, noisy), self._measurement.scale / self.records_, paid=True)

    def _proposed(self, number: int, without: int) -> float:
        return 0.0 if number == NOTHING else self.model_.answer(number, without)

    def _stands(self, counts: Any, query: Query, proposal: float) -> bool:
        """Return what the run releases: whether the proposal stands."""
        distance = abs(self._count(counts, query) - round(proposal * self.records_))  # proof: step 6
        ballots = distance_ballots(np.array([min(distance, self.records_)]), records=self.records_)
        return bool(self._run.answers(ballots).labels[0] != NO_QUORUM)

    def _count(self, counts: Any, query: Query) -> int:
        """Return how many private records a query holds: a whole number, which one record moves by at most 1."""
        if isinstance(counts, Rows):
            return int(LearnedWeights.mask(self.domain_.queries, *query, counts).sum())
        return int(counts[LearnedWeights.mask(self.domain_.queries, *query, None)].sum())

    def _learn(self, query: Query, noisy: int) -> float:
        share = min(max(noisy / self.records_, 0.0), 1.0)
        self._known[query] = share
        self.model_.correct(query[0], share, query[1])
        return share

    def _keep(self, query: Query, noisy: int) -> None:
        """Put what was measured on the disk before it leaves, where there is a ledger.

        Another process may have kept a measurement at the same place, and the ledger keeps the first: that one is
        learned, and the next place is tried.
        """
        while self._kept is not None:
            self._catch_up()
            place = len(self.model_.corrections)
            values = (*query, noisy)
            self._kept.keep({(_CALLER, key): value for key, value in zip(_keys(place), values, strict=True)}, {}, [])
            if self._measured(place) == values:
                return

    def _catch_up(self) -> None:
        """Learn what the ledger holds and this process does not know: from before a restart, or from another one."""
        while (known := self._measured(len(self.model_.corrections))) is not None:
            number, without, noisy = known
            self._learn((number, without), noisy)

    def _measured(self, place: int) -> tuple[int, int, int] | None:
        """Return what the ledger keeps at a place: a query, what is left out of it, and its noisy count."""
        assert self._kept is not None
        keys = _keys(place)
        [admitted] = self._kept.admit([Asked(_CALLER, keys)])
        known = getattr(admitted, "known", {})
        if not all(key in known for key in keys):
            return None
        number, without, noisy = (int(known[key]) for key in keys)
        return number, without, noisy

    def _fingerprint(self) -> str:
        """Return what tells this release from another, made of public things alone."""
        public = repr((float(self.epsilon), float(self.delta), float(self.alpha), self.records_, self.unit_)).encode()
        return hashlib.sha256(public + self.domain_.identity()).hexdigest()


def _check_folder(folder: Path) -> None:
    """Make the folder of a ledger, for its owner's eyes alone; refuse one that holds something else."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _LEDGER_FILE).exists():
        raise InvalidInput(f"{folder} holds something else than the ledger of a release; name a new or empty folder")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be the folder of a ledger: {error.strerror}") from None


def _keys(place: int) -> list[bytes]:
    """Return the keys of a measurement in a ledger: of its query, of what is left out of that, and of its count."""
    kinds = ("query", "without", "count")
    return [hashlib.blake2b(f"{kind} {place}".encode(), digest_size=16).digest() for kind in kinds]
