"""The session: ballots go into a mechanism, answers come out, and the budget is charged in between. Read this first.

    requests -> admitted -> new queries -> [ reserved -> drawn -> settled ] by the answerer -> kept -> replies

Data cross the trust boundary, in both directions, in `release_votes`: sealed ballots go into a mechanism, and its
release comes out. `release_votes_each` does the same with many batches. `answerers.Votes` uses both; answerers with
counts of private records use `release_counts` instead. An answerer charges before it draws. If the budget is in a
ledger, the charge is on disk before the draw, and an answer is on disk before it is returned. Queries are checked
before they come here; they are refused only because of the budget, their id or their caller's limits.
"""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.core.ballots import Ballots, BallotSource
from quorate.core.checks import check_process, process_identity
from quorate.core.errors import BudgetSpent, InvalidInput, LedgerRefused, QuorateError, RunEnded
from quorate.core.ledger import Ledger
from quorate.core.ledger.budget import Allowance, LeasedBudget, Tally
from quorate.core.mechanisms import Answers
from quorate.core.privacy import Budget, Cost
from quorate.core.progress import LINE
from quorate.core.requests import (
    REFUSED,
    Admitted,
    Asked,
    KeptAnswers,
    Memory,
    Outcome,
    Query,
    Quote,
    Replies,
    Request,
    SetAside,
    check_caller,
    firsts_of,
    replies_of,
    replies_to,
    rows_of,
)
from quorate.core.rows import query_digests, take_rows

__all__ = [
    "Answerer",
    "Replies",
    "Request",
    "Session",
    "is_about_one",
    "release_counts",
    "release_votes",
    "release_votes_each",
]

Released = TypeVar("Released")
Told = TypeVar("Told")

_MOST = 2**16  # queries of a block at most: enough for a GPU, and so few that most are answered while it counts others


def release_votes(ensemble: BallotSource, X: Any, release: Callable[[NDArray[np.int64]], Released]) -> Released:
    """Count the ballots on these queries, hand them to a mechanism's `release`, and return what it releases."""
    return ensemble.count(X).put_to(release)


def release_votes_each(
    ensemble: BallotSource, batches: Iterable[Any], release: Callable[[NDArray[np.int64]], Answers]
) -> Iterator[Answers]:
    """Do so with batches of queries, one after the other, up to the first query that has no answer."""
    for ballots in ensemble.count_each(batches):
        answers = ballots.put_to(release)
        yield answers
        if len(answers.labels) < len(ballots):
            return


def release_counts(counts: Ballots, release: Callable[[Any], Released]) -> Released:
    """Hand sealed counts of private records to a mechanism's `release`, and return what it releases."""
    return counts.put_to(release)


def is_about_one(error: Exception) -> bool:
    """Return whether an error may be about one request of a group: a query that is none, or somebody's code failed.

    Other errors of ours are about all requests: a ledger, or a site, that cannot be used.
    """
    return not isinstance(error, QuorateError) or isinstance(error, InvalidInput)


class Answerer(Protocol):
    """What answers new queries: it knows how many it can pay for, draws them, and can go on after a restart.

    State that an answer depends on, such as the noise of a run or a hypothesis, is in the ledger before `draw` returns.
    An answerer that can prepare the next queries meanwhile also has `draws`, which takes blocks of rows as they are
    needed and yields answers, in parts of any size, up to the first row that has none.
    """

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Begin to answer from this budget: anew, or with the state that the ledger has from an earlier session."""

    def affordable(self, most: int) -> int:
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

    def move(self, ledger: Ledger) -> None:
        """Leave the state in a ledger, with which a copy of this answerer will go on. Draw nothing more here."""

    def close(self) -> None:
        """Let go of what stands outside this process: an electorate's connections. Draw nothing more."""


class Session:
    """An answerer, the budget that pays for it, and the place where both are kept.

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

    block = 8192  # queries answered together: a budget that ends does not leave a million ballots counted in vain

    def __init__(
        self, answerer: Answerer, budget: Budget | None, *, ledger: Ledger | None = None, memory: Memory | None = None
    ) -> None:
        self.answerer: Any = answerer
        self.budget, self.ledger = budget, ledger
        self._memory: Memory = memory or ledger or KeptAnswers()
        self._moved = False
        self._lock = threading.Lock()
        self.process = process_identity()
        answerer.open(budget, ledger)

    def ask(self, X: Any, *, caller: str = "") -> Replies:
        """Answer a batch of checked queries; a query that this caller repeats gets the same answer, at no cost.

        Raises `BudgetSpent` if not one query could be answered; if the budget ends within the batch, part of it is
        answered. A batch of many rows is remembered without a copy: do not change it afterwards.
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
        """Return what a batch of checked queries would cost now, without asking anything."""
        check_caller(caller)
        memory = self._memory_of_rows(X)
        queries = set[bytes]() if memory else set(self._names(X))
        check_process("this model", self.process)
        with self._lock:  # what is being drawn is charged before it is kept, and would be counted twice
            self._check_not_moved()
            if memory is None:
                new = len(queries) - len(self._memory.recall(caller, queries))
            else:
                with memory.rows(X.shape[1]).entered(caller, X) as rows:
                    new = len(rows.new)
            payable, cost = self.answerer.quote(new)
            if self.budget is None:
                return Quote(len(X), len(X) - new, payable, takes=0.0, left=1.0)
            whole = self.budget.capacity().renyi
            return Quote(len(X), len(X) - new, payable, cost.renyi / whole, self.budget.remaining().renyi / whole)

    def ask_all(self, requests: Sequence[Request]) -> list[Replies | QuorateError]:
        """Answer requests together: count and keep all at once. An error of one request is returned in its place."""
        asked = [self._asked(request) for request in requests]
        firsts = firsts_of(asked)  # a request that came twice is answered once
        alone = [place for place, first in enumerate(firsts) if place == first]

        def answer() -> list[Replies | QuorateError]:
            results = dict(zip(alone, self._memory.admit([asked[place] for place in alone]), strict=True))
            spent, ended = self._answer(requests, asked, results)
            return [replies_of(results[first], spent, ended.get(first)) for first in firsts]

        return self._one_at_a_time(answer)

    def move(self, make: Callable[[Budget | None], Ledger]) -> "Session":
        """Return a session that continues from the ledger that `make` creates for the budget; this one answers no more.

        If there is no budget, `make` gets None, and its ledger's account is not charged.
        """
        with self._lock:
            self._check_not_moved()
            ledger = make(self.budget)
            self._moved = True
            self.answerer.move(ledger)
            if isinstance(self._memory, KeptAnswers) and (answers := self._memory.answers()):
                ledger.keep(answers, {}, [])
        budget = None if self.budget is None else ledger.budget()
        return type(self)(copy.copy(self.answerer), budget, ledger=ledger)

    def on_idle(self) -> None:
        """Return leased budget that others wait for; an idle server calls this."""
        if isinstance(self.budget, LeasedBudget):
            self.budget.on_idle()

    def close(self) -> None:
        """Return leased budget, and close the ledger and what the answerer has open."""
        with self._lock:
            self.answerer.close()
            if self.budget is not None:
                self.budget.return_unused(all=True)
            if self.ledger is not None:
                self.ledger.close()

    def _check_not_moved(self) -> None:
        if self._moved:
            raise BudgetSpent("this model has moved into a folder, and its budget with it: ask the one that is there")

    def _one_at_a_time(self, answer: Callable[[], Told]) -> Told:
        """Let nobody else be answered meanwhile, and return afterwards what was not used."""
        check_process("this model", self.process)
        with self._lock:
            self._check_not_moved()
            try:
                return answer()
            finally:
                if self.budget is not None:
                    self.budget.return_unused()

    def _memory_of_rows(self, X: Any) -> KeptAnswers | None:
        """Return the memory that looks these queries up all at once, or None where they are looked up by digests."""
        memory = None if isinstance(self.budget, LeasedBudget) else self._memory  # a lease is used for somebody
        return memory if isinstance(memory, KeptAnswers) and memory.takes_rows(X) else None

    def _ask_rows(self, request: Request, memory: KeptAnswers) -> Replies | BudgetSpent:
        """Answer many rows from the memory of this process."""
        X, spent, ended = request.X, Cost(0.0), None
        with memory.rows(X.shape[1]).entered(request.caller, X) as rows:
            new, done = X if len(rows.new) == len(X) else X[rows.new], 0
            try:
                while done < len(new):  # the rest is asked again: answers may cost less than was set aside for them
                    for answers in self._draws(self._payable_blocks(new[done:])):
                        rows.answer(answers.labels)
                        spent, done = spent + (answers.spent or Cost(0.0)), done + len(answers.labels)
                        _advance(answers)
            except (BudgetSpent, RunEnded) as error:
                ended = _told(error)
            labels = rows.labels()
        return replies_to(labels, spent, ended)

    def _payable_blocks(self, X: Any) -> Iterator[Any]:
        """Yield rows that can be paid for. Blocks grow: little is counted in vain, beside what was answered before."""
        start, block = 0, self.block
        while start < len(X):
            stop = start + self.answerer.affordable(min(block, len(X) - start))
            yield X[start:stop]
            start, block = stop, min(2 * block, max(block, _MOST))

    def _draws(self, blocks: Iterator[Any]) -> Iterator[Answers]:
        """Yield answers to these rows, in their order, up to the first row that has none."""
        if hasattr(self.answerer, "draws"):
            yield from self.answerer.draws(blocks)
            return
        for X in blocks:
            answers = self.answerer.draw(X)
            yield answers
            if len(answers.labels) < len(X):
                return

    def _names(self, X: Any) -> list[bytes]:
        """Return what the memory tells one query from another by."""
        return self._memory.names(X) if isinstance(self._memory, KeptAnswers) else query_digests(X)

    def _asked(self, request: Request) -> Asked:
        """Return a request as the memory knows it."""
        return Asked(request.caller, self._names(request.X), request.id, request.body)

    def _answer(
        self, requests: Sequence[Request], asked: Sequence[Asked], results: dict[int, Admitted | QuorateError]
    ) -> tuple[Cost, dict[int, BudgetSpent | None]]:
        """Answer what is new, put the outcomes in place of what was admitted, and return why any was cut short."""
        waiting = {place: one for place, one in results.items() if isinstance(one, Admitted) and one.outcome is None}
        if not waiting:
            return Cost(0.0), {}
        known = {
            (asked[place].caller, query): label for place, one in waiting.items() for query, label in one.known.items()
        }
        first: dict[Query, tuple[int, int]] = {}  # where each query stands first
        for place in waiting:
            for row, query in enumerate(asked[place].queries):
                first.setdefault((asked[place].caller, query), (place, row))
        held: dict[int, SetAside] = {}
        if isinstance(self.budget, LeasedBudget):  # without a budget nothing is paid for, and no share is used up
            held = {place: one.held for place, one in waiting.items() if one.held is not None}
        parts: dict[int | None, list[Query]] = {}  # what is drawn together; who has a share is drawn for apart
        for one, (place, _) in first.items():
            if one not in known:
                parts.setdefault(place if place in held else None, []).append(one)
        recalled = len(known)
        fresh, spent, ended = dict[Query, int](), Cost(0.0), dict[int | None, BudgetSpent | None]()
        tally, group = Tally(self.budget), [asked[place] for place in waiting]
        for part, new in parts.items():
            payer = tally if part is None else self._allowance(asked[part].caller, held[part])
            with self._withdrawing(group, fresh, known, tally, payer):
                X = rows_of(requests, [first[query] for query in new])
                drawn, cost, ended[part] = self._drawn(X, new, known, payer)
            fresh, spent = fresh | drawn, spent + cost
            if isinstance(payer, Allowance):
                tally.include(payer.caller, payer.used)
        before = len(known) - recalled  # drawn for these requests, and kept block by block
        outcomes = self._kept(fresh, known, group, tally, before)
        for place, outcome in zip(waiting, outcomes, strict=True):
            results[place] = outcome if isinstance(outcome, QuorateError) else Admitted({}, outcome)
        return spent, {place: ended.get(place if place in held else None) for place in waiting}

    @contextmanager
    def _withdrawing(
        self,
        group: Sequence[Asked],
        fresh: Mapping[Query, int],
        known: dict[Query, int],
        tally: Tally,
        payer: Tally | Allowance,
    ) -> Iterator[None]:
        """Where a draw fails, let go of the whole group: who else is in it has no part in that, and may be asked again.

        What was drawn for others before is kept, so that it is not paid for twice. Rows that fail alone are counted:
        else no quota and no rate would limit them.
        """
        try:
            yield
        except LedgerRefused:
            raise  # which would not take this either
        except Exception as error:
            if isinstance(payer, Allowance):
                tally.include(payer.caller, payer.at_risk)
            if fresh:
                self._memory.keep(fresh, known, [])
            counted = len(group) == 1 and is_about_one(error)
            self._memory.withdraw(group, tally.used({one.caller for one in group}), counted=counted)
            raise

    def _allowance(self, caller: str, held: SetAside) -> Allowance:
        assert self.ledger is not None
        return Allowance(self.ledger, self.budget, caller, held)

    def _kept(
        self, fresh: Mapping[Query, int], known: dict[Query, int], asked: Sequence[Asked], tally: Tally, drawn: int
    ) -> list[Outcome | QuorateError]:
        """Keep answers and outcomes, with what each caller has used where somebody counts it."""
        if self.ledger is None or self._memory is not self.ledger:
            return self._memory.keep(fresh, known, asked)
        used = tally.used({one.caller for one in asked})
        return self.ledger.keep(fresh, known, asked, used=used, drawn=drawn)

    def _drawn(
        self, X: Any, new: list[Query], known: dict[Query, int], payer: Tally | Allowance
    ) -> tuple[dict[Query, int], Cost, BudgetSpent | None]:
        """Draw answers block by block, each kept before the next; return the last block, the cost, and why it ended."""
        fresh, spent, start = dict[Query, int](), Cost(0.0), 0
        while start < len(new):
            if len(fresh) >= self.block or (fresh and isinstance(payer, Tally)):
                self._memory.keep(fresh, known, [])
                fresh = {}
            stop = min(len(new), start + self.block)
            answers = self._draw(payer, take_rows(X, slice(start, stop)), new[start:stop])
            if isinstance(answers, BudgetSpent):
                return fresh, spent, answers
            drawn = zip(new[start:], answers.labels.tolist(), strict=False)
            fresh |= {query: label for query, label in drawn if label != REFUSED}
            spent = spent + (answers.spent or Cost(0.0))
            start += len(answers.labels)  # the rest is asked again: answers may cost less than was set aside for them
        return fresh, spent, None

    def _draw(self, payer: Tally | Allowance, X: Any, queries: Sequence[Query]) -> Answers | BudgetSpent:
        """Draw answers to the first of these rows, or say why there are none."""
        try:
            answers: Answers = payer.draw(self.answerer, X, queries)
        except (BudgetSpent, RunEnded) as error:
            return _told(error)
        _advance(answers)
        return answers


def _advance(answers: Answers) -> None:
    if (line := LINE.get()) is not None:  # somebody watches
        line.advance(len(answers.labels))


def _told(error: QuorateError) -> BudgetSpent:
    """Return the end of a budget or of a run as callers are told of it."""
    kind = type(error) if isinstance(error, BudgetSpent) else BudgetSpent
    return kind(f"{error}. Queries answered before can be asked again")
