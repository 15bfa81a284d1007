"""A batch of requests on its way through a session, in three steps: `admit`, `draw`, `keep`.

A request that came twice with one id is answered once. Requests of callers with a share of the budget are drawn one by
one, since each pays from its own share; all other new queries are drawn together, in blocks that are kept one by one.
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
        What the memory knows of each request: its caller, the names of its queries, its id.
    answerer, budget
        Who draws answers, and what pays for them.
    memory, ledger
        Where answers are kept; the ledger is None where they are kept in this process alone.
    block
        How many queries are drawn before their answers are kept.
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
        self._shares: dict[int, SetAside] = {}  # by request: what is set aside for a caller with a share
        self._labels: dict[Query, int] = {}  # recalled, or drawn and kept
        self._unkept: dict[Query, int] = {}  # drawn and not kept yet
        self._recalled = 0
        self._refusals: dict[int | None, BudgetSpent] = {}  # by part: why it was cut short
        self._tally = Tally(budget)

    def admit(self) -> None:
        """Register the requests, and recall the answers that their callers were given before."""
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
        """Draw answers to the queries that have none; a draw that fails lets go of the whole batch."""
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
        """Keep the answers and the outcomes of the requests, with what each caller has used."""
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
        """Return the reply to each request, or why it has none."""
        waiting = set(self.waiting)

        def reply(first: int) -> Replies | QuorateError:
            refusal = self._refusals.get(first if first in self._shares else None) if first in waiting else None
            return replies_of(self._results[first], self.spent, refusal)

        return [reply(first) for first in self._firsts]

    def _first_positions(self) -> dict[Query, tuple[int, int]]:
        """Return the request and the row where each query stands first."""
        positions: dict[Query, tuple[int, int]] = {}
        for index in self.waiting:
            for row, query in enumerate(self.asked[index].queries):
                positions.setdefault((self.asked[index].caller, query), (index, row))
        return positions

    def _parts(self, positions: Mapping[Query, tuple[int, int]]) -> dict[int | None, list[Query]]:
        """Return the new queries that are drawn together: by request for callers with a share, None for the others."""
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
        """Withdraw the whole batch where a draw fails: its other requests may be asked again.

        Answers that were drawn before are kept, so that they are not paid for twice. Rows of a request that fails alone
        are counted; else no quota and no rate would limit them.
        """
        try:
            yield
        except LedgerRefused:
            raise  # the ledger would not take this either
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
        """Draw answers block by block, each kept before the next is drawn, and return those of the last block."""
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
            start += len(answers.labels)  # the rest is drawn next: answers may cost less than was set aside for them
        return unkept


def is_about_one(error: Exception) -> bool:
    """Return whether an error may be about one request: an invalid query, or an exception in user code.

    Other errors of ours are about all requests: a ledger, or a site, that cannot be used.
    """
    return not isinstance(error, QuorateError) or isinstance(error, InvalidInput)


def advance_progress(answers: Answers) -> None:
    """Advance the progress bar, where there is one."""
    if (line := LINE.get()) is not None:
        line.advance(len(answers.labels))


def explain_end(error: QuorateError) -> BudgetSpent:
    """Return the end of a budget or of a run as the error that callers see."""
    kind = type(error) if isinstance(error, BudgetSpent) else BudgetSpent
    return kind(f"{error}. Queries answered before can be asked again")
