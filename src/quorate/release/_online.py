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

from quorate.core.checks import check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.ledger import LEDGER_FILE, Ledger
from quorate.core.mechanisms import NoisySum
from quorate.core.mechanisms.above_threshold import AboveThreshold
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Claim, Node, account_node
from quorate.core.session import Session
from quorate.models.predictors.sklearn_compat import ShowsClaim
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import SavedModel, State
from quorate.release.domain import Domain, SealedCounts, make_domain, read_domain
from quorate.release.engines.weights import LearnedWeights
from quorate.release.people import PERSON, RECORD, first_records
from quorate.release.proposals import EXACT, MEASURED, Proposals, read_labels, rows_of_numbers
from quorate.release.queries import Rows

_BLEND = 0.1  # of alpha: the share of the uniform histogram in the start
_WITHIN = 3.2905  # scales that hold 99.9% of a Gaussian
_LEASE = 4  # crossings that the ledger charges at a time; a crash loses at most these


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
        The declared columns of a table, as for `QueryRelease`.
    ledger
        A folder for the budget, the run's secret noise and the answers given, so that the release continues after a
        restart with the same records. It belongs to the owner and is secret. Without it, everything is kept in memory.
        `save` also keeps the counts of the records: a saved model does not need the records.

    After `fit`: `payable_` is the number of paid answers that the budget allows, `opening_epsilon_` the cost of the
    opening alone (PROOF.md, step 6), `paid_` the number of answers paid for, `model_` the learned public model, `unit_`
    the unit of privacy, `budget_` the budget and `claim_` the guarantee.

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
            raise InvalidInput("an online release requires public records; call fit(private, public)")
        counts, records = domain.seal(private if groups is None else first_records(private, groups))
        distance = math.floor(alpha * records)
        if distance < 2:
            raise Infeasible(f"alpha={alpha:g} of {records} records must be at least 2 records; raise alpha")
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

    def claim_part(self) -> Node:
        """Return the account that pays for the opening, and for crossings with a measurement of each."""
        answers, budget = self.session_.answerer, self.budget_
        measurement = answers.measurement, {"measurement": answers.measurement.release_cost(budget.order)}
        return account_node(budget, [answers.mechanism, measurement], ledger=True)

    def to_state(self) -> State:
        """Return the subject, the mechanism and the exact counts, which only the owner may read."""
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
            "measurement": to_plain(answers.measurement),
            "about": about,
        }
        state = State(values)
        state.put_arrays("public", **arrays)
        state.put_arrays("counts", **answers.counts.put_to(_count_arrays))  # nothing is released here
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the release of a state; it spends from its folder's ledger and replays the measurements kept there."""
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
        """Return a session in memory, or one that continues from the folder of a ledger."""
        if self.ledger is None:
            return Session(answers, budget)
        public = repr((float(self.epsilon), float(self.delta), float(self.alpha), self.records_, self.unit_)).encode()
        fingerprint = hashlib.sha256(public + self.domain_.identity()).hexdigest()  # of public values alone
        path = Path(self.ledger) / LEDGER_FILE
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
        """The public model, learned from released counts."""
        check_is_fitted(self, "session_")
        model: LearnedWeights = self.session_.answerer.model
        return model

    @property
    def paid_(self) -> int:
        """The number of answers paid for."""
        check_is_fitted(self, "session_")
        return len(self.session_.answerer.measured)

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
            newly_paid.discard(query)  # a query that occurs twice in a batch is paid for once
        return answers

    def read(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Decode the labels of a session to shares and their errors."""
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
    """Return sealed counts as arrays, only for the owner's file."""
    if isinstance(counts, Rows):
        return {"codes": counts.codes, "sizes": np.array(counts.sizes, dtype=np.int64), "weights": counts.weights}
    return {"counts": counts}


def _measurement(distance: int) -> NoisySum:
    """Return the noise that distinguishes a count from another at this `distance`."""
    return NoisySum(sensitivity=1, scale=max(distance / (2 * _WITHIN), 1e-6))


def _check_folder(folder: Path) -> None:
    """Create the folder of a ledger, readable by its owner alone; refuse a folder with other content."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LEDGER_FILE).exists():
        raise InvalidInput(f"{folder} must be empty or hold the ledger of a release; name a new folder")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be the folder of a ledger: {error.strerror}") from None
