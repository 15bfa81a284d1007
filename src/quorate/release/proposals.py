"""The answerer of an online release: a model proposes, a threshold run tests, and rejected answers are measured."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.answerers import Answerer, open_runs
from quorate.core.ballots import release_counts
from quorate.core.errors import BudgetSpent
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import NO_QUORUM, Answers, NoisySum
from quorate.core.mechanisms.above_threshold import AboveThreshold, distance_ballots
from quorate.core.mechanisms.base import Run
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import charged_together
from quorate.core.requests import OWN_CALLER, REFUSED
from quorate.release.domain import Domain, SealedCounts
from quorate.release.engines.weights import LearnedWeights, mask_query
from quorate.release.queries import Rows
from quorate.release.queries.base import NOTHING

Query = tuple[int, int]  # a query of the engine, and the query excluded from it, or NOTHING

EXACT, PROPOSED, MEASURED = 0, 1, 2  # the origin of an answer
_ONE = 2**52  # shares are kept in these parts


def rows_of_numbers(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of a domain's queries as rows of a request."""
    return (numbers - NOTHING).reshape(-1, 1)


def _label(share: float, how: int) -> int:
    """Encode an answer as one whole number, for a session."""
    return (round(share * _ONE) << 2) + how


def read_labels(labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Decode labels to shares and the origins of the answers."""
    return (labels >> 2) / _ONE, labels & 3


class Proposals(Answerer):
    """The answerer of an online release. A ledger records every measurement before `draw` returns."""

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
        """Open the run, or continue the ledger's run with its measurements."""
        assert budget is not None
        self._budget, self._ledger = budget, ledger
        (self.run,) = open_runs([self.mechanism], budget, ledger)
        if ledger is not None:
            if ledger.run() is None:
                ledger.keep_run(self.run.threshold_noise)
            self.catch_up()

    def affordable(self, limit: int) -> int:
        """Return all queries: each is refused separately, and earlier measurements are free."""
        return limit

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
        """End the run here, and leave its secret noise and measurements in the ledger."""
        ledger.keep_run(self.run.end())
        for index, values in enumerate(self.measured):
            ledger.keep({(OWN_CALLER, key): value for key, value in zip(_keys(index), values, strict=True)}, {}, [])

    def proposed(self, query: Query) -> float:
        """Return the model's answer, which depends on public records and released counts alone."""
        return 0.0 if query[0] == NOTHING else self.model.answer(*query)

    def count(self, counts: Any, query: Query) -> int:
        """Return the number of private records in a query, which one record changes by at most 1."""
        if isinstance(counts, Rows):
            return int(mask_query(self.domain.queries, *query, counts).sum())
        return int(counts[mask_query(self.domain.queries, *query, None)].sum())

    def learn(self, query: Query, noisy: int) -> float:
        """Learn a released count, and return its share."""
        share = min(max(noisy / self.records, 0.0), 1.0)
        self.known[query] = share
        self.measured.append((*query, noisy))
        self.model.remember(query[0], share, query[1])
        self.model.agree()
        return share

    def row_cost(self) -> Cost:
        """Return the cost of a paid answer: a crossing and a measurement."""
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
        if not self._budget.acquire(crossing, self.measurement.release_cost(order), limit=1):
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
        """Return whether the proposal stands, as the run releases it."""
        distance = abs(self.count(counts, query) - round(proposal * self.records))  # proof: step 6
        ballots = distance_ballots(np.array([min(distance, self.records)]), records=self.records)
        return bool(self.run.answers(ballots).labels[0] != NO_QUORUM)

    # --- Measurements in a ledger ----------------------------------------------------------------------------------

    def _keep(self, query: Query, noisy: int) -> None:
        """Write a measurement to the ledger, if there is one, before its answer leaves.

        Another process may have written a measurement under the same key. The ledger keeps the first one: it is
        learned, and the next key is tried.
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
        """Learn the ledger's measurements from before a restart or from another process."""
        while (values := self._at(len(self.measured))) is not None:
            self.learn(values[:2], values[2])

    def _at(self, index: int) -> tuple[int, int, int] | None:
        """Return the ledger's measurement at an index: a query, the query excluded from it, and the noisy count."""
        assert self._ledger is not None
        keys = _keys(index)
        values = self._ledger.recall(OWN_CALLER, keys)  # not `admit`, which would release the caller's reservation
        if len(values) < len(keys):
            return None
        number, without, noisy = (values[OWN_CALLER, key] for key in keys)
        return number, without, noisy


def _keys(index: int) -> list[bytes]:
    """Return the ledger keys of a measurement: of its query, of the excluded query, and of its count."""
    kinds = ("query", "without", "count")
    return [hashlib.blake2b(f"{kind} {index}".encode(), digest_size=16).digest() for kind in kinds]
