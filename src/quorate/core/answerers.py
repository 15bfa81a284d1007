"""Answerers draw the answers of a session: by a vote of teachers, or from the records one query at a time.

A journal keeps what some of them have released.
"""

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


class Answerer(ABC):
    """The interface of objects that charge for new queries and draw their answers.

    An answerer continues after a restart: the state of an answer, such as the noise of a run or a hypothesis, is in
    the ledger before `draw` returns. An answerer that can prepare later queries while it draws also has `draws`. That
    method takes blocks of rows lazily and yields answers, in parts of any size, up to the first unanswered row.
    """

    @abstractmethod
    def open(self, budget: Budget | None, ledger: "Ledger | None") -> None:
        """Start answering from this budget; restore the state of an earlier session if the ledger has one."""

    @abstractmethod
    def affordable(self, limit: int) -> int:
        """Return how many queries, from 1 to `limit`, can be drawn; raise `BudgetSpent` or `RunEnded` if none can."""

    @abstractmethod
    def draw(self, X: Any) -> Answers:
        """Charge for these queries and answer them, up to the one at which the budget or the run ends.

        A refused query that precedes an answered one has the label `REFUSED`.
        """

    @abstractmethod
    def row_cost(self) -> Cost:
        """Return the most that one query may cost now."""

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many of `limit` new queries are sure to be answered, and their largest cost: none by default."""
        return 0, Cost(0.0)

    @property
    def stops_at_last_no_quorum(self) -> bool:
        """Whether each no-quorum costs `row_cost` and nothing else does, and `draw` ends where the budget does."""
        return False

    def move(self, ledger: "Ledger") -> None:  # noqa: B027  many keep all of it in the ledger anyway
        """Write the state to a ledger, for a copy of this answerer to continue from. Draw nothing more here."""

    def close(self) -> None:  # noqa: B027  many have nothing open
        """Close connections of the electorate to other processes. Draw nothing more."""


class Prepaid(Answerer):
    """An answerer whose queries are all paid for before they come: none is refused for what it costs."""

    def row_cost(self) -> Cost:
        """Return nothing."""
        return Cost(0.0)

    def affordable(self, limit: int) -> int:
        """Return all of them."""
        return limit

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return all of them, at no further cost."""
        return limit, Cost(0.0)


class Votes(Answerer):
    """An answerer that counts the votes of an ensemble and releases the result through a mechanism.

    Parameters
    ----------
    ensemble
        The teachers, which return sealed counts.
    mechanism
        The mechanism that releases an answer from the counts. It must be the one that the electorate declares, if any.
    """

    def __init__(self, ensemble: BallotSource, mechanism: Mechanism) -> None:
        # Sites of a federation pay for the counts themselves, so they price a mechanism beforehand.
        declared = getattr(ensemble.electorate, "mechanism", None)
        if declared is not None and declared != mechanism:  # service/sites/PROOF.md, step 3
            raise InvalidInput(
                "the mechanism must be the one that the sites priced; create this model with "
                "FederatedClassifier.from_sites or 'quorate site join'"
            )
        self.ensemble, self.mechanism = ensemble, mechanism
        self.run: Run | None = None
        self._budget: Budget

    def open(self, budget: Budget | None, ledger: "Ledger | None") -> None:
        """Open the run of a threshold mechanism, or resume the run whose secret noise is in the ledger."""
        assert budget is not None
        self._budget = budget
        if isinstance(self.mechanism, ThresholdMechanism):
            (self.run,) = open_runs([self.mechanism], budget, ledger)

    def row_cost(self) -> Cost:
        """Return the cost of a no-quorum of a run, or that of a query with its answer."""
        order = self._budget.order
        if isinstance(self.mechanism, ThresholdMechanism):
            return self.mechanism.no_quorum_cost(order)
        return charged_together(self.mechanism.query_cost(order), self.mechanism.answer_cost(order))

    @property
    def stops_at_last_no_quorum(self) -> bool:
        """Whether no-quorums are all that is charged. A run that redraws its threshold noise ends with its budget."""
        return isinstance(self.mechanism, ThresholdMechanism) and not self.mechanism.redraws

    def affordable(self, limit: int) -> int:
        """Return how many queries can be paid for, so that no ballot is counted without an answer."""
        if isinstance(self.mechanism, ThresholdMechanism):
            if self.run is not None and self.run.no_quorums_left == 0:
                raise RunEnded(f"the run has met its {self.mechanism.no_quorums} no-quorums")
            return limit
        return _payable(self._budget, self.row_cost(), max(1, self._paid_by_others(limit)))

    def _paid_by_others(self, limit: int) -> int:
        """Return how many queries, at most `limit`, the sites of a federation can pay for.

        The caller still draws one query if the result is 0. A site may have budget again by then, and otherwise its
        refusal names it.
        """
        payable = getattr(self.ensemble.electorate, "payable", None)
        return limit if payable is None else min(limit, int(payable()))

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many of `limit` new queries the budget surely pays for, and their largest cost."""
        if self.run is not None:
            return self.run.quote(limit)
        assert isinstance(self.mechanism, QueryMechanism)
        order, limit = self._budget.order, self._paid_by_others(limit)
        return _quote(self._budget, self.mechanism.query_cost(order) + self.mechanism.answer_cost(order), limit)

    def draw(self, X: Any) -> Answers:
        """Count the ballots and release the mechanism's answers."""
        return release_votes(self.ensemble, X, self._release)

    def draws(self, batches: Iterable[Any]) -> Iterator[Answers]:
        """Yield the answers of each batch, up to the first unanswered query. The next batch may be counted ahead."""
        return release_votes_each(self.ensemble, batches, self._release)

    def _release(self, votes: NDArray[np.int64]) -> Answers:
        if self.run is not None:
            return self.run.answers(votes)
        assert isinstance(self.mechanism, QueryMechanism)
        return self.mechanism.answers(votes, budget=self._budget)

    def move(self, ledger: "Ledger") -> None:
        """End the run in this process and write its secret noise to the ledger."""
        if self.run is not None:
            ledger.keep_run(self.run.end())

    def close(self) -> None:
        """Close the connections of the electorate."""
        self.ensemble.close()


class OneByOne(Answerer):
    """An answerer that draws each answer from the records independently, at one fixed cost.

    Parameters
    ----------
    draw
        Draws the label of one row. It must not fail: an error would reveal something about the records, and a
        substitute answer would have another distribution.
    cost
        The cost of one answer. Answers are free if the session has no budget.
    records
        The records that `draw` reads, which a saved model stores.

    Attributes
    ----------
    drawn
        The number of answers that this process has drawn.
    """

    def __init__(self, draw: Callable[[NDArray[np.float64]], int], cost: Cost, *, records: Any = None) -> None:
        self.cost, self.records, self.drawn = cost, records, 0
        self._draw = draw
        self._budget: Budget | None = None

    def open(self, budget: Budget | None, ledger: "Ledger | None") -> None:
        """Set the budget, which is the only state."""
        self._budget = budget

    def row_cost(self) -> Cost:
        """Return the cost of one answer, zero without a budget."""
        return Cost(0.0) if self._budget is None else self.cost

    def affordable(self, limit: int) -> int:
        """Return how many answers the budget can pay for."""
        return limit if self._budget is None else _payable(self._budget, self.cost, limit)

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many of `limit` new queries the budget pays for, and their cost."""
        return (limit, Cost(0.0)) if self._budget is None else _quote(self._budget, self.cost, limit)

    def draw(self, X: Any) -> Answers:
        """Charge for all queries, then draw their answers one by one."""
        if self._budget is not None:
            self._budget.spend(self.cost, times=len(X))
        self.drawn += len(X)
        labels = np.array([self._draw(row) for row in X], dtype=np.int64)
        return Answers(labels=labels, spent=self.cost.times(len(X)))


def open_runs(mechanisms: Sequence[ThresholdMechanism], budget: Budget, ledger: "Ledger | None") -> list[Run]:
    """Resume the runs whose secret noises are in the ledger; otherwise open new runs and charge the budget."""
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


class Journal:
    """Lines of plain values: in memory, and in a file where there is one.

    >>> journal = Journal()
    >>> journal.add([[1.5, "a"]])
    >>> journal.lines()
    [[1.5, 'a']]
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._read = path, 0
        self._lines: list[Any] = []

    def add(self, lines: Iterable[Any]) -> None:
        """Add lines, and return when they are on the disk."""
        if self._path is None:
            self._lines += lines
            return
        content = "".join(f"\n{json.dumps(line)}\n" for line in lines)  # after a line that was cut off, a new one
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "a", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def copied(self, path: Path) -> "Journal":
        """Return a journal with the same lines in a new file."""
        copied = Journal(path)
        copied.add(self.lines())
        return copied

    def lines(self) -> list[Any]:
        """Return all lines, with those that other processes have added."""
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
                file.seek(self._read)
                content = file.read()
                complete = content.rpartition(b"\n")[0]
                self._read += len(complete)
                for line in complete.splitlines():
                    with contextlib.suppress(ValueError):
                        self._lines.append(json.loads(line))
        return self._lines
