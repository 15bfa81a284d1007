"""Drawing for callers: within what is set aside of their shares, and counted for each of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from quorate.errors import BudgetSpent, ShareInUse, ShareSpent
from quorate.exchange import NO_QUORUM, Query, SetAside
from quorate.ledger.budget import LeasedBudget
from quorate.privacy import Budget
from quorate.privacy.budget import to_quanta
from quorate.rows import take_rows

if TYPE_CHECKING:
    from quorate.ledger.ledger import Ledger

__all__ = ["Allowance", "Tally"]


class Tally:
    """Draws for callers together, and counts what each has used: no-quorums, and cost in quanta of divergence."""

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget if isinstance(budget, LeasedBudget) else None  # who else pays has no keys to count for
        self._met: Counter[str] = Counter()
        self._cost: Counter[str] = Counter()

    def draw(self, answerer: Any, X: Any, queries: Sequence[Query]) -> Any:
        """Return answers to the first of these rows, as many as the budget can pay for."""
        before = 0 if self._budget is None else self._budget.paid
        answers = answerer.draw(take_rows(X, slice(answerer.affordable(len(X)))))
        if self._budget is not None:
            by_no_quorum = answerer.stops_at_last_no_quorum
            self._count(queries, answers.labels.tolist(), self._budget.paid - before, by_no_quorum=by_no_quorum)
        return answers

    def _count(self, queries: Sequence[Query], labels: Sequence[int], cost: int, *, by_no_quorum: bool) -> None:
        """Count what was drawn. Callers who were drawn for together share its cost, as the mechanism charges for it."""
        met = Counter(caller for (caller, _), label in zip(queries, labels, strict=False) if label == NO_QUORUM)
        self._met.update(met)
        if cost:
            weights = met if by_no_quorum and met else Counter(caller for caller, _ in queries[: len(labels)])
            for caller, weight in weights.items():
                self._cost[caller] += -(-cost * weight // weights.total())

    def include(self, caller: str, used: tuple[int, int]) -> None:
        """Count what one caller has used."""
        self._met[caller] += used[0]
        self._cost[caller] += used[1]

    def used(self, callers: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return no-quorums and cost of each caller."""
        return {caller: (self._met[caller], self._cost[caller]) for caller in callers}


class Allowance:
    """Draws for one request of a caller with a share: no more than is set aside, which is renewed as it is used up."""

    def __init__(self, ledger: "Ledger", budget: Budget | None, caller: str, held: SetAside) -> None:
        assert isinstance(budget, LeasedBudget)
        self.caller = caller
        self._ledger, self._budget, self._held = ledger, budget, held
        self._met = self._cost = 0

    @property
    def used(self) -> tuple[int, int]:
        """No-quorums and cost since what was set aside was last renewed."""
        return self._met, self._cost

    def draw(self, answerer: Any, X: Any, queries: Sequence[Query]) -> Any:
        """Return answers to the first of these rows; raise `ShareSpent` or `ShareInUse` where the share pays for none.

        What stops by itself at the last no-quorum that it can pay for is given all rows; anything else as many as
        could be paid for if each were to cost the most.
        """
        unit, stops, before = to_quanta(answerer.row_cost())[0], answerer.stops_at_last_no_quorum, self._budget.paid
        self._see_to(unit, len(X))
        rows = len(X) if stops else self._rows(unit, len(X))
        with self._paying(unit) if stops else nullcontext():
            answers = answerer.draw(take_rows(X, slice(answerer.affordable(rows))))
        self._met += answers.labels.tolist().count(NO_QUORUM)
        self._cost += self._budget.paid - before
        return answers

    def _see_to(self, unit: int, rows: int) -> None:
        """Set more aside where what is left would not pay for one row."""
        if self._fits(unit):
            return
        self._held = self._ledger.renew(self.caller, self._held, self.used, rows=rows, need=unit)
        self._met = self._cost = 0
        if not self._fits(unit):
            raise self._refusal()

    def _fits(self, unit: int) -> bool:
        met, cost = self._held.no_quorums, self._held.cost
        return not unit or ((met is None or self._met < met) and (cost is None or self._cost + unit <= cost))

    def _rows(self, unit: int, most: int) -> int:
        met, cost = self._held.no_quorums, self._held.cost
        by_count = most if met is None or not unit else met - self._met
        return min(most, by_count, most if cost is None or not unit else (cost - self._cost) // unit)

    def _paying(self, unit: int) -> AbstractContextManager[None]:
        """Let the budget pay for no more than is set aside."""
        met, cost = self._held.no_quorums, self._held.cost
        limits = [] if met is None else [(met - self._met) * unit]
        return self._budget.paying(min(limits if cost is None else [*limits, cost - self._cost]))

    def _refusal(self) -> BudgetSpent:
        if self._held.spent:
            return ShareSpent("the share of the budget that this key was given is spent")
        return ShareInUse("what is left of this key's share is set aside for other requests; ask again in a moment")
