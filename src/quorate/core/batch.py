"""A batch of requests, which a session answers in three steps: `admit`, `draw`, `keep`.

A request that arrives twice under one id is answered once. A caller with a share of the budget pays from that share, so
its requests are drawn separately. All other new queries are drawn together, in blocks; each block is kept before the
next is drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from quorate.core.answerers import Answerer
from quorate.core.errors import BudgetSpent, InvalidInput, LedgerRefused, QuorateError, RunEnded
from quorate.core.ledger.budget import Allowance, LeasedBudget, Tally
from quorate.core.mechanisms import Answers
from quorate.core.privacy import Budget, Cost
from quorate.core.progress import LINE
from quorate.core.requests import (
    REFUSED,
    Admitted,
    Asked,
    Memory,
    Query,
    Replies,
    Request,
    SetAside,
    firsts_of,
    replies_of,
    rows_of,
)
from quorate.core.rows import take_rows

if TYPE_CHECKING:
    from quorate.core.ledger import Ledger

Payer = Tally | Allowance


class Batch:
    """Requests that a session answers together.

    Parameters
    ----------
    requests
        The requests, in the order of their replies.
    asked
        The caller, the id and the digests of the queries of each request, for the memory.
    answerer, budget
        The answerer that draws answers, and the budget that pays for them.
    memory, ledger
        The store of answers. The ledger is None if answers are kept in this process alone.
    block
        The number of queries that are drawn before their answers are kept.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        asked: Sequence[Asked],
        *,
        answerer: Answerer,
        budget: Budget | None,
        memory: Memory,
        ledger: "Ledger | None",
        block: int,
    ) -> None:
        self.requests, self.asked = requests, asked
        self.waiting: list[int] = []  # indices of the requests that need new answers
        self.spent = Cost(0.0)
        self._answerer, self._budget, self._memory, self._ledger, self._block = answerer, budget, memory, ledger, block
        self._firsts = firsts_of(asked)
        self._results: dict[int, Admitted | QuorateError] = {}
        self._shares: dict[int, SetAside] = {}  # by request: the reservation of a caller with a share
        self._labels: dict[Query, int] = {}  # recalled, or drawn and kept
        self._unkept: dict[Query, int] = {}  # drawn and not kept yet
        self._recalled = 0
        self._refusals: dict[int | None, BudgetSpent] = {}  # by part: the error that ended it early
        self._tally = Tally(budget)

    def admit(self) -> None:
        """Register the requests and recall the answers that their callers received before."""
        unique = [index for index, first in enumerate(self._firsts) if index == first]
        admitted = self._memory.admit([self.asked[index] for index in unique])
        self._results = dict(zip(unique, admitted, strict=True))
        for index, result in self._results.items():
            if not isinstance(result, Admitted) or result.outcome is not None:
                continue
            self.waiting.append(index)
            caller = self.asked[index].caller
            self._labels |= {(caller, query): label for query, label in result.answers.items()}
            if result.reserved is not None and isinstance(self._budget, LeasedBudget):  # else nothing is paid for
                self._shares[index] = result.reserved
        self._recalled = len(self._labels)

    def draw(self) -> None:
        """Draw answers to the unanswered queries; a draw that fails withdraws the whole batch."""
        positions = self._first_positions()
        for part, queries in self._parts(positions).items():
            payer = self._tally if part is None else self._open_allowance(part)
            with self._withdraw_on_failure(payer):
                X = rows_of(self.requests, [positions[query] for query in queries])
                labels = self._draw_blocks(part, X, queries, payer)
            self._unkept |= labels
            if isinstance(payer, Allowance):
                self._tally.include(payer.caller, payer.used)

    def keep(self) -> None:
        """Keep the answers, the outcomes of the requests and the use of each caller's share."""
        if not self.waiting:
            return
        requests = [self.asked[index] for index in self.waiting]
        if self._ledger is None or self._memory is not self._ledger:
            outcomes = self._memory.keep(self._unkept, self._labels, requests)
        else:
            used = self._tally.used({request.caller for request in requests})
            kept_before = len(self._labels) - self._recalled  # block by block
            outcomes = self._ledger.keep(self._unkept, self._labels, requests, used=used, kept_before=kept_before)
        for index, outcome in zip(self.waiting, outcomes, strict=True):
            self._results[index] = outcome if isinstance(outcome, QuorateError) else Admitted({}, outcome)

    def replies(self) -> list[Replies | QuorateError]:
        """Return the reply to each request, or its error."""
        waiting = set(self.waiting)

        def reply(first: int) -> Replies | QuorateError:
            refusal = self._refusals.get(first if first in self._shares else None) if first in waiting else None
            return replies_of(self._results[first], self.spent, refusal)

        return [reply(first) for first in self._firsts]

    def _first_positions(self) -> dict[Query, tuple[int, int]]:
        """Return the first request and row at which each query occurs."""
        positions: dict[Query, tuple[int, int]] = {}
        for index in self.waiting:
            for row, query in enumerate(self.asked[index].queries):
                positions.setdefault((self.asked[index].caller, query), (index, row))
        return positions

    def _parts(self, positions: Mapping[Query, tuple[int, int]]) -> dict[int | None, list[Query]]:
        """Group the new queries into parts: one for each request of a caller with a share, None for all others."""
        parts: dict[int | None, list[Query]] = {}
        for query, (index, _) in positions.items():
            if query not in self._labels:
                parts.setdefault(index if index in self._shares else None, []).append(query)
        return parts

    def _open_allowance(self, index: int) -> Allowance:
        assert self._ledger is not None
        return Allowance(self._ledger, self._budget, self.asked[index].caller, self._shares[index])

    @contextmanager
    def _withdraw_on_failure(self, payer: Payer) -> Iterator[None]:
        """Withdraw the whole batch if a draw fails, so that its other requests can be asked again.

        Answers that were already drawn are kept, so that nobody pays for them twice. The rows of a request that fails
        alone still count against its quota and rate; otherwise failing requests would have no limit.
        """
        try:
            yield
        except LedgerRefused:
            raise  # The ledger would refuse the withdrawal too.
        except Exception as error:
            if isinstance(payer, Allowance):
                self._tally.include(payer.caller, payer.at_risk)
            if self._unkept:
                self._memory.keep(self._unkept, self._labels, [])
            group = [self.asked[index] for index in self.waiting]
            counted = len(group) == 1 and is_about_one(error)
            self._memory.withdraw(group, self._tally.used({request.caller for request in group}), counted=counted)
            raise

    def _draw_blocks(self, part: int | None, X: Any, queries: list[Query], payer: Payer) -> dict[Query, int]:
        """Draw answers block by block, keep each block before the next, and return the answers of the last block."""
        unkept, start = dict[Query, int](), 0
        while start < len(queries):
            if len(unkept) >= self._block or (unkept and isinstance(payer, Tally)):
                self._memory.keep(unkept, self._labels, [])
                unkept = {}
            stop = min(len(queries), start + self._block)
            try:
                answers: Answers = payer.draw(self._answerer, take_rows(X, slice(start, stop)), queries[start:stop])
            except (BudgetSpent, RunEnded) as error:
                self._refusals[part] = explain_end(error)
                break
            advance_progress(answers)
            pairs = zip(queries[start:], answers.labels.tolist(), strict=False)
            unkept |= {query: label for query, label in pairs if label != REFUSED}
            self.spent += answers.spent or Cost(0.0)
            start += len(answers.labels)  # Answers may cost less than was reserved, so the rest is tried next.
        return unkept


def is_about_one(error: Exception) -> bool:
    """Return whether one request may have caused an error: an invalid query, or an exception in user code.

    All other errors of this package concern every request, such as a ledger or a site that cannot be used.
    """
    return not isinstance(error, QuorateError) or isinstance(error, InvalidInput)


def advance_progress(answers: Answers) -> None:
    """Advance the progress bar, if one is shown."""
    if (line := LINE.get()) is not None:
        line.advance(len(answers.labels))


def explain_end(error: QuorateError) -> BudgetSpent:
    """Return the error that callers see when a budget or a run ends."""
    kind = type(error) if isinstance(error, BudgetSpent) else BudgetSpent
    return kind(f"{error}. Queries answered before can be asked again")
