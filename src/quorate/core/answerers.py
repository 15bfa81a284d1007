"""What a session may have in it: a secret ballot, or answers that are drawn from the records one by one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.core.ballots import BallotSource, release_votes, release_votes_each
from quorate.core.errors import BudgetSpent, InvalidInput, RunEnded
from quorate.core.mechanisms import Answers
from quorate.core.mechanisms.base import QueryMechanism, Run, ThresholdMechanism
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import charged_together

if TYPE_CHECKING:
    from quorate.core.ledger import Ledger

Mechanism = QueryMechanism | ThresholdMechanism


class Answerer(Protocol):
    """What answers new queries: it knows how many it can pay for, draws them, and can go on after a restart.

    State that an answer depends on, such as the noise of a run or a hypothesis, is in the ledger before `draw` returns.
    An answerer that can prepare the next queries meanwhile also has `draws`, which takes blocks of rows as they are
    needed and yields answers, in parts of any size, up to the first row that has none.
    """

    def open(self, budget: Budget | None, ledger: "Ledger | None") -> None:
        """Begin to answer from this budget: anew, or with the state that the ledger has from an earlier session."""

    def affordable(self, limit: int) -> int:
        """Return how many of so many queries may be drawn, at least 1; raise `BudgetSpent` or `RunEnded` for none."""

    def draw(self, X: Any) -> Answers:
        """Charge for these queries and answer them; where the budget or the run ends among them, the first of them.

        A query that is refused while others after it are answered has the label `REFUSED`.
        """

    def row_cost(self) -> Cost:
        """Return the most that one query may cost now."""

    @property
    def stops_at_last_no_quorum(self) -> bool:
        """Whether each no-quorum costs `row_cost` and nothing else does, and `draw` ends where the budget does."""

    def move(self, ledger: "Ledger") -> None:
        """Leave the state in a ledger, with which a copy of this answerer will go on. Draw nothing more here."""

    def close(self) -> None:
        """Let go of what stands outside this process: an electorate's connections. Draw nothing more."""


class Votes:
    """Answers by a secret ballot: an ensemble, and the mechanism that counts for it."""

    def __init__(self, ensemble: BallotSource, mechanism: Mechanism) -> None:
        declared = getattr(ensemble.electorate, "mechanism", None)  # to those who pay for the counts
        if declared is not None and declared != mechanism:  # service/sites/PROOF.md, step 3
            raise InvalidInput(
                "sites have priced another mechanism than the one that would count their ballots: make this model anew "
                "with FederatedClassifier.from_sites, or 'quorate site join'"
            )
        self.ensemble, self.mechanism = ensemble, mechanism
        self.run: Run | None = None
        self._budget: Budget

    def open(self, budget: Budget | None, ledger: "Ledger | None") -> None:
        """Open the run of a threshold mechanism, or go on with the one whose secret noise the ledger has."""
        assert budget is not None
        self._budget = budget
        if isinstance(self.mechanism, ThresholdMechanism):
            (self.run,) = open_runs([self.mechanism], budget, ledger)

    def row_cost(self) -> Cost:
        """Return what a no-quorum of a run costs, or a query and its answer."""
        order = self._budget.order
        if isinstance(self.mechanism, ThresholdMechanism):
            return self.mechanism.no_quorum_cost(order)
        return charged_together(self.mechanism.query_cost(order), self.mechanism.answer_cost(order))

    @property
    def stops_at_last_no_quorum(self) -> bool:
        """Whether each no-quorum is paid for, and nothing else is. A run that redraws ends where its budget does."""
        return isinstance(self.mechanism, ThresholdMechanism) and not self.mechanism.redraws

    def affordable(self, limit: int) -> int:
        """Return how many queries may be counted, so that no ballot is counted in vain."""
        if isinstance(self.mechanism, ThresholdMechanism):
            if self.run is not None and self.run.no_quorums_left == 0:
                raise RunEnded(f"the run has met its {self.mechanism.no_quorums} no-quorums")
            return limit
        return _payable(self._budget, self.row_cost(), max(1, self._paid_by_others(limit)))

    def _paid_by_others(self, limit: int) -> int:
        """Return how many of so many queries those could pay for who price the counts: they pay for all, or for none.

        At least 1 is asked for nevertheless: by now they may be able to pay, or else they say who cannot.
        """
        payable = getattr(self.ensemble.electorate, "payable", None)  # sites have it
        return limit if payable is None else min(limit, int(payable()))

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many of so many new queries are sure to be paid for, and what they cost at most."""
        if self.run is not None:
            return self.run.quote(limit)
        assert isinstance(self.mechanism, QueryMechanism)
        order, limit = self._budget.order, self._paid_by_others(limit)
        return _quote(self._budget, self.mechanism.query_cost(order) + self.mechanism.answer_cost(order), limit)

    def draw(self, X: Any) -> Answers:
        """Count the ballots, and release what the mechanism makes of them."""
        return release_votes(self.ensemble, X, self._release)

    def draws(self, batches: Iterable[Any]) -> Iterator[Answers]:
        """Do so with batches in turn, up to the first query that has no answer. The next may be counted meanwhile."""
        return release_votes_each(self.ensemble, batches, self._release)

    def _release(self, votes: NDArray[np.int64]) -> Answers:
        if self.run is not None:
            return self.run.answers(votes)
        assert isinstance(self.mechanism, QueryMechanism)
        return self.mechanism.answers(votes, budget=self._budget)

    def move(self, ledger: "Ledger") -> None:
        """End the run here, and leave its secret noise in the ledger."""
        if self.run is not None:
            ledger.keep_run(self.run.end())

    def close(self) -> None:
        """Let go of what the electorate has open."""
        self.ensemble.close()


class OneByOne:
    """Answers that are drawn from the records anew for every query, each at the same cost, or at none without a budget.

    `draw` must not fail: an answer in its place would have another law, and an error would speak of the records.
    `records` are those that it reads, for a folder to keep; `drawn` counts the answers of this process.
    """

    stops_at_last_no_quorum = False

    def __init__(self, draw: Callable[[NDArray[np.float64]], int], cost: Cost, *, records: Any = None) -> None:
        self.cost, self.records, self.drawn = cost, records, 0
        self._draw = draw
        self._budget: Budget | None = None

    def open(self, budget: Budget | None, ledger: "Ledger | None") -> None:
        """Answer from this budget; there is no other state."""
        self._budget = budget

    def row_cost(self) -> Cost:
        """Return what each answer costs."""
        return Cost(0.0) if self._budget is None else self.cost

    def affordable(self, limit: int) -> int:
        """Return how many answers the budget can pay for."""
        return limit if self._budget is None else _payable(self._budget, self.cost, limit)

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many of so many new queries can be paid for, and what they cost."""
        return (limit, Cost(0.0)) if self._budget is None else _quote(self._budget, self.cost, limit)

    def draw(self, X: Any) -> Answers:
        """Charge for all, then draw them one by one."""
        if self._budget is not None:
            self._budget.spend(self.cost, times=len(X))
        self.drawn += len(X)
        labels = np.array([self._draw(row) for row in X], dtype=np.int64)
        return Answers(labels=labels, spent=self.cost.times(len(X)))

    def move(self, ledger: "Ledger") -> None:
        """Leave nothing: the budget and the answers are all there is."""

    def close(self) -> None:
        """Do nothing: all of it is in this process."""


def open_runs(mechanisms: Sequence[ThresholdMechanism], budget: Budget, ledger: "Ledger | None") -> list[Run]:
    """Return the runs of these mechanisms: those whose secret noises the ledger has, or new ones that are paid for."""
    noises = () if ledger is None else ledger.runs()
    if len(noises) != len(mechanisms) or any(mechanism.redraws for mechanism in mechanisms):
        return [mechanism.open(budget) for mechanism in mechanisms]
    runs = zip(mechanisms, noises, strict=True)
    return [mechanism.resume(budget, threshold_noise=noise) for mechanism, noise in runs]


def _payable(budget: Budget, cost: Cost, limit: int) -> int:
    if payable := budget.acquire(cost, limit=limit):
        return payable
    raise BudgetSpent("the budget cannot pay for another query")


def _quote(budget: Budget, cost: Cost, limit: int) -> tuple[int, Cost]:
    payable = min(limit, budget.affordable(cost))
    return payable, cost.times(payable)
