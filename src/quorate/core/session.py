"""The session: sealed ballots go into a mechanism, answers come out, and the budget is charged in between.

    requests -> Batch.admit -> Batch.draw [ charge -> count -> release ] -> Batch.keep -> replies

Read this first, then `batch` (the three steps), `answerers` (who charges and draws) and `ballots` (the trust boundary).
An answerer charges before it draws. If the budget is in a ledger, the charge is on disk before the draw, and an answer
is on disk before it is returned. Queries are checked before they come here; they are refused only because of the
budget, their id or their caller's limits.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from quorate.core.answerers import Answerer
from quorate.core.batch import Batch, advance_progress, explain_end
from quorate.core.checks import check_process, process_identity
from quorate.core.errors import BudgetSpent, QuorateError, RunEnded
from quorate.core.ledger.budget import LeasedBudget
from quorate.core.mechanisms import Answers
from quorate.core.privacy import Budget, Cost
from quorate.core.requests import Asked, KeptAnswers, Memory, Quote, Replies, Request, check_caller, replies_to
from quorate.core.rows import query_digests

if TYPE_CHECKING:
    from quorate.core.ledger import Ledger

Result = TypeVar("Result")

_LARGEST_BLOCK = 2**16  # queries: enough to fill a GPU, and few enough that answers start before all are counted


class Session:
    """An answerer, the budget that pays for its answers, and the ledger that stores both.

    >>> import numpy as np
    >>> from quorate.core.answerers import Votes
    >>> from quorate.compute.ensemble.estimators import EstimatorTeachers
    >>> from quorate.core.mechanisms import NoisyMax
    >>> from quorate.compute.ensemble import Ensemble
    >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 100, classes=2))
    >>> votes = Votes(ensemble, NoisyMax(teachers=100, classes=2, scale=10.0))
    >>> session = Session(votes, Budget(epsilon=1.0, delta=1e-6))
    >>> replies = session.ask(np.zeros((3, 1)))
    >>> replies.labels, replies.spent == votes.mechanism.query_cost(session.budget.order)  # asked once, for all three
    (array([1, 1, 1]), True)
    """

    block = 8192  # queries counted together; a small block wastes few counts if the budget ends within it

    def __init__(
        self, answerer: Answerer, budget: Budget | None, *, ledger: "Ledger | None" = None, memory: Memory | None = None
    ) -> None:
        self.answerer: Any = answerer
        self.budget, self.ledger = budget, ledger
        self._memory: Memory = memory or ledger or KeptAnswers()
        self._moved = False
        self._lock = threading.Lock()
        self.process = process_identity()
        answerer.open(budget, ledger)

    def ask(self, X: Any, *, caller: str = "") -> Replies:
        """Answer a batch of checked queries; a query that this caller repeats gets the same answer, at no privacy cost.

        If the budget ends within the batch, the queries before the end are answered. A large batch is remembered
        without a copy, so do not change it afterwards.

        Parameters
        ----------
        X
            The queries, in canonical form.
        caller
            The name of the caller. Answers are remembered for each caller separately.

        Raises
        ------
        BudgetSpent
            If the budget cannot pay for any of the queries.
        """
        request, memory = Request(X, caller), self._memory_of_rows(X)
        if memory is None:
            (reply,) = self.ask_all([request])
        else:
            reply = self._one_at_a_time(lambda: self._ask_rows(request, memory))
        if isinstance(reply, Replies):
            return reply
        raise reply

    def quote(self, X: Any, *, caller: str = "") -> Quote:
        """Return the present cost of a batch of checked queries, without asking them."""
        check_caller(caller)
        memory = self._memory_of_rows(X)
        queries = set[bytes]() if memory else set(self._names(X))
        check_process("this model", self.process)
        with self._lock:  # During a draw the charge precedes the answer, so the quote would count the query twice.
            self._check_location()
            if memory is None:
                new = len(queries) - len(self._memory.recall(caller, queries))
            else:
                with memory.rows(X.shape[1]).entered(caller, X) as rows:
                    new = len(rows.new)
            payable, cost = self.answerer.quote(new)
            if self.budget is None:
                return Quote(len(X), len(X) - new, payable, takes=0.0, left=1.0)
            capacity = self.budget.capacity().renyi
            return Quote(len(X), len(X) - new, payable, cost.renyi / capacity, self.budget.remaining().renyi / capacity)

    def ask_all(self, requests: Sequence[Request]) -> list[Replies | QuorateError]:
        """Answer requests together, with one count and one write. A failed request gets its error as its reply."""
        batch = Batch(
            requests,
            [self._describe_request(request) for request in requests],
            answerer=self.answerer,
            budget=self.budget,
            memory=self._memory,
            ledger=self.ledger,
            block=self.block,
        )
        return self._one_at_a_time(lambda: self._answer(batch))

    def _answer(self, batch: Batch) -> list[Replies | QuorateError]:
        batch.admit()
        with self._guard(batch):
            batch.draw()
            batch.keep()
        return batch.replies()

    def _guard(self, batch: Batch) -> AbstractContextManager[None]:
        """Return a context for drawing and keeping; a subclass with more state undoes its changes there on failure."""
        return nullcontext()

    def move(self, make: "Callable[[Budget | None], Ledger]") -> "Session":
        """Return a session that continues from the ledger that `make` creates; this one answers no more.

        Parameters
        ----------
        make
            Creates the ledger for the budget. Without a budget it gets None, and the account is never charged.
        """
        with self._lock:
            self._check_location()
            ledger = make(self.budget)
            self._moved = True
            self.answerer.move(ledger)
            if isinstance(self._memory, KeptAnswers) and (answers := self._memory.answers()):
                ledger.keep(answers, {}, [])
        budget = None if self.budget is None else ledger.budget()
        return type(self)(copy.copy(self.answerer), budget, ledger=ledger)

    def on_idle(self) -> None:
        """Return leased budget that other processes wait for; an idle server calls this."""
        if isinstance(self.budget, LeasedBudget):
            self.budget.on_idle()

    def close(self) -> None:
        """Return leased budget, and close the ledger and the connections of the answerer."""
        with self._lock:
            self.answerer.close()
            if self.budget is not None:
                self.budget.return_unused(all=True)
            if self.ledger is not None:
                self.ledger.close()

    def _check_location(self) -> None:
        if self._moved:
            raise BudgetSpent("this model was saved to a folder and no longer answers; load it from there")

    def _one_at_a_time(self, answer: Callable[[], Result]) -> Result:
        """Run `answer` under the lock of the session, then return unused budget."""
        check_process("this model", self.process)
        with self._lock:
            self._check_location()
            try:
                return answer()
            finally:
                if self.budget is not None:
                    self.budget.return_unused()

    def _memory_of_rows(self, X: Any) -> KeptAnswers | None:
        """Return the memory that looks up all these rows at once, or None if they are looked up by digest."""
        # A leased budget records the use of each caller, which the lookup of whole matrices does not.
        memory = None if isinstance(self.budget, LeasedBudget) else self._memory
        return memory if isinstance(memory, KeptAnswers) and memory.takes_rows(X) else None

    def _ask_rows(self, request: Request, memory: KeptAnswers) -> Replies | BudgetSpent:
        """Answer many rows from the memory of this process."""
        X, spent, ended = request.X, Cost(0.0), None
        with memory.rows(X.shape[1]).entered(request.caller, X) as rows:
            new, done = X if len(rows.new) == len(X) else X[rows.new], 0
            try:
                while done < len(new):  # Answers may cost less than was reserved, so the rest is tried again.
                    for answers in self._draws(self._payable_blocks(new[done:])):
                        rows.answer(answers.labels)
                        spent, done = spent + (answers.spent or Cost(0.0)), done + len(answers.labels)
                        advance_progress(answers)
            except (BudgetSpent, RunEnded) as error:
                ended = explain_end(error)
            labels = rows.labels()
        return replies_to(labels, spent, ended)

    def _payable_blocks(self, X: Any) -> Iterator[Any]:
        """Yield blocks of rows that the budget pays for. Blocks grow, so few rows are counted without an answer."""
        start, block = 0, self.block
        while start < len(X):
            stop = start + self.answerer.affordable(min(block, len(X) - start))
            yield X[start:stop]
            start, block = stop, min(2 * block, max(block, _LARGEST_BLOCK))

    def _draws(self, blocks: Iterator[Any]) -> Iterator[Answers]:
        """Yield answers to these rows, in order, up to the first unanswered row."""
        if hasattr(self.answerer, "draws"):
            yield from self.answerer.draws(blocks)
            return
        for X in blocks:
            answers = self.answerer.draw(X)
            yield answers
            if len(answers.labels) < len(X):
                return

    def _names(self, X: Any) -> list[bytes]:
        """Return the bytes by which the memory distinguishes queries."""
        return self._memory.names(X) if isinstance(self._memory, KeptAnswers) else query_digests(X)

    def _describe_request(self, request: Request) -> Asked:
        """Return the caller, the query digests and the id of a request, for the memory."""
        return Asked(request.caller, self._names(request.X), request.id, request.body)
