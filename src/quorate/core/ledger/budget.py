"""A budget whose account is in a ledger.

A process leases a part of the budget, spends the lease in memory and returns the rest. A lease is recorded as spent on
the disk before any of it is used, so a crash loses the lease and never gives budget back. A lease names its process, so
that others can check whether that process still runs. Every draw is counted for its caller and stays within the
reservation of that caller's share.
"""

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from quorate.core.checks import check_count, check_process, process_identity
from quorate.core.errors import BudgetSpent, InvalidInput, LedgerRefused, ShareInUse, ShareSpent
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import Quanta, to_quanta
from quorate.core.requests import NO_QUORUM, Query, SetAside
from quorate.core.rows import take_rows

if TYPE_CHECKING:
    from quorate.core.ledger._ledger import Ledger
    from quorate.core.ledger.chain import Change

_SHARES = 50  # A lease is at most this part of the whole budget, which limits the loss of a crash.
_CAPACITY_BITS = 44  # of a capacity on which all implementations of the logarithm agree
_IDLE = 30.0  # seconds after which an unused lease is returned
_PATIENCE = {True: 2.0, False: 60.0}  # seconds to wait for other processes to return leases; a server waits 2
_PAUSE = 0.02  # seconds between two reads while waiting
# Seconds after which a process of another host or container counts as dead. An idle one has returned its lease by then.
_SILENT = 90.0


def _times(quanta: Quanta, unit: Quanta) -> int:
    """Return how many times a unit fits."""
    return min((have // need for have, need in zip(quanta, unit, strict=True) if need), default=2**62)


def _sum(amounts: Iterable[Quanta]) -> Quanta:
    renyi = slack = 0
    for amount in amounts:
        renyi, slack = renyi + amount[0], slack + amount[1]
    return renyi, slack


class LeasedBudget(Budget):
    """A budget whose account is in a ledger. `Ledger.budget` creates it."""

    __slots__ = (
        "_at_hand",
        "_counted",
        "_lease",
        "_ledger",
        "_most",
        "_name",
        "_out",
        "_taken",
        "_used",
        "paid",
    )

    def __init__(self, ledger: "Ledger", *, lease: int) -> None:
        state = ledger.state()
        super().__init__(epsilon=state.epsilon, delta=state.delta, order=state.order, slack=state.slack)
        capacity, slack = state.capacity
        if abs(capacity - self._capacity) > 1 + (capacity >> _CAPACITY_BITS) or slack != self._slack:
            raise LedgerRefused(f"the account at {ledger.place} has another capacity than when it was opened")
        self._capacity = capacity  # Logarithms of another library may round it to the next quantum.
        self._ledger, self._lease = ledger, check_count("lease", lease, least=0)
        self._name = ledger.lease_name = secrets.token_hex(8)  # the name of its lease, which is unique
        self._at_hand: Quanta = (0, 0)
        self._counted: Quanta = (0, 0)  # the part of its lease that is recorded in the ledger and available here
        self._out = False  # whether the ledger may have a lease of ours
        self._taken = self._used = 0.0
        self.paid = 0  # quanta of divergence that were charged here, less what was settled
        self._most: int | None = None  # the most quanta that the present caller may pay

    @contextmanager
    def paying(self, limit: int | None) -> Iterator[None]:
        """Limit payments within this context to the quanta that are reserved for the present caller."""
        outer, self._most = self._most, limit
        try:
            yield
        finally:
            self._most = outer

    def close(self) -> NoReturn:
        """Refuse, since the account stays in its ledger."""
        raise InvalidInput(f"the account of this budget stays in the ledger {self._ledger.place} and cannot be closed")

    def acquire(self, *costs: Cost, limit: int) -> int:
        """Lease budget for these costs, together, up to `limit` times, and return how many times they can be paid.

        A server leases at most a hundredth of the budget at a time, which limits the loss of a crash.
        """
        if self._lease:
            unit = _sum(to_quanta(cost) for cost in costs)
            units = _times(self.quanta(), unit)
            limit = min(limit, max(1, min(max(self._lease, units // (2 * _SHARES)), units // _SHARES)))
        return super().acquire(*costs, limit=limit)

    def return_unused(self, *, all: bool = False) -> None:
        """Return unused budget if `all`, without a lease size, if it is idle, or if other processes wait."""
        check_process("this budget", self._process)
        with self._locked_account():
            if not self._out:
                return
            idle = time.monotonic() - self._used > _IDLE
            if all or idle or not self._lease or self._ledger.last_state().wanted >= self._taken:
                with self._ledger.change() as change:
                    self._return(change)
                self._out = False

    def on_idle(self) -> None:
        """Return the lease if other processes wait for it. An idle server calls this."""
        if self._out:
            self._ledger.state()
            self.return_unused()

    def _refresh(self) -> None:
        state = self._ledger.state()
        self._spent, self._spent_slack = (spent - mine for spent, mine in zip(state.spent, self._at_hand, strict=True))

    def _charge(self, prices: Sequence[Quanta], counts: Sequence[int]) -> None:
        renyi, slack = self._at_hand
        for (one_renyi, one_slack), count in zip(prices, counts, strict=True):
            renyi, slack = renyi - one_renyi * count, slack - one_slack * count
        charged = self._at_hand[0] - renyi
        self.paid += charged
        if self._most is not None:
            self._most -= charged
        self._at_hand, self._used = (renyi, slack), time.monotonic()

    def _acquired(self, prices: Sequence[Quanta], limit: int) -> int:
        unit = _sum(prices)
        if self._most is not None and unit[0]:
            limit = min(limit, self._most // unit[0])  # proof: step 12
        if _times(self._at_hand, unit) < limit and any(unit):
            self._take(unit, limit)
        payable = _times(self._at_hand, unit)
        return payable if self._most is None else min(payable, limit)

    def _take(self, unit: Quanta, limit: int) -> None:
        """Lease the cost of `limit` units or what is left; if nothing is left, wait for other processes to return."""
        end = time.monotonic() + _PATIENCE[self._lease > 0]
        while True:
            waits = False
            self._out = True  # from here on, whatever becomes of the transaction
            with self._ledger.change() as change:
                leased = self._leased(change, unit, limit)
                if not any(leased) and _times(self._at_hand, unit) == 0:
                    waits = self._wait_for(change)
            if any(leased):  # and not before: only now is it on the disk
                # Counted first: what an interrupt leaves counted and not at hand is lost, and never taken twice.
                self._counted = _sum((self._counted, leased))
                self._at_hand = _sum((self._at_hand, leased))
                self._taken, self._used = change.at, time.monotonic()
            if not waits or time.monotonic() > end:
                return
            time.sleep(_PAUSE)

    def _leased(self, change: "Change", unit: Quanta, limit: int) -> Quanta:
        """Lease what is missing for `limit` units, or as much as is left, and return the amount."""
        state = change.state
        remaining = state.capacity[0] - state.spent[0], state.capacity[1] - state.spent[1]
        unclaimed = self._unclaimed(change)
        have = _sum((self._at_hand, unclaimed))
        payable = _times(_sum((remaining, have)), unit)
        # Near the end leases are small, so that no process keeps budget that others need.
        rivals = len(state.leases.keys() - {self._name})
        share = _times(state.capacity, unit) // _SHARES
        wanted = max(min(limit, payable), min(self._lease, share, payable // (2 * (rivals + 1))))
        renyi, slack = (max(0, wanted * price - available) for price, available in zip(unit, have, strict=True))
        if renyi or slack:
            body = {"lease": self._name, "owner": owner_name(), "renyi": str(renyi), "slack": str(slack)}
            change.append("leased", body)
        if any(unclaimed):
            change.charged = True  # its mark may be missing
        return renyi + unclaimed[0], slack + unclaimed[1]

    def _unclaimed(self, change: "Change") -> Quanta:
        """Return the recorded part of our lease that never became available, because a commit or a mark failed."""
        lease = change.state.leases.get(self._name)
        if lease is None:
            self._counted = (0, 0)
            return 0, 0
        return max(0, lease.renyi - self._counted[0]), max(0, lease.slack - self._counted[1])

    def _wait_for(self, change: "Change") -> bool:
        """Ask other processes to return leases, return the own one, and return whether any may still be returned."""
        waits = False
        for name, lease in list(change.state.leases.items()):
            if name == self._name:
                continue
            if is_gone(lease.owner, silent=change.at - lease.seen):
                change.append("lost", {"lease": name})
            else:
                waits = True
        if waits:
            self._return(change)
            if change.state.wanted < max(lease.seen for lease in change.state.leases.values()):  # not asked since
                change.append("wanted", {})
        return waits

    def _return(self, change: "Change") -> None:
        """Return the available budget to the ledger. It is no longer available here, even if the write fails.

        The lease stays counted while the ledger records it, because part of it is used.
        """
        unclaimed = self._unclaimed(change)
        renyi, slack = _sum((self._at_hand, unclaimed))
        self._at_hand = (0, 0)
        lease = change.state.leases.get(self._name)
        if lease is not None:  # Without a lease, this process was taken for dead, and its budget stays spent.
            returned = {"renyi": str(min(renyi, lease.renyi)), "slack": str(min(slack, lease.slack))}
            change.append("returned", {"lease": self._name, **returned})


# --- For whom ---------------------------------------------------------------------------------------------------------


class Tally:
    """Draws for several callers together, and counts the no-quorums and the cost in quanta of each caller."""

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget if isinstance(budget, LeasedBudget) else None  # other budgets have no keys to count for
        self._met: Counter[str] = Counter()
        self._cost: Counter[str] = Counter()

    def draw(self, answerer: Any, X: Any, queries: Sequence[Query]) -> Any:
        """Return answers to the first of these rows, as many as the budget pays for."""
        paid = 0 if self._budget is None else self._budget.paid
        rows = answerer.affordable(len(X))
        try:
            answers = answerer.draw(take_rows(X, slice(rows)))
        except Exception:  # The charge of a failed draw is spent, and counts for its callers.
            self._count(Counter(caller for caller, _ in queries[:rows]), paid)
            raise
        if self._budget is not None:
            labelled = list(zip((caller for caller, _ in queries), answers.labels.tolist(), strict=False))
            met = Counter(caller for caller, label in labelled if label == NO_QUORUM)
            self._met.update(met)
            by_no_quorum = met and answerer.stops_at_last_no_quorum
            self._count(met if by_no_quorum else Counter(caller for caller, _ in labelled), paid)
        return answers

    def _count(self, weights: Counter[str], paid: int) -> None:
        """Divide a charge among the callers that were drawn for together, as the mechanism charges."""
        cost = 0 if self._budget is None else self._budget.paid - paid
        for caller, weight in weights.items() if cost else ():
            self._cost[caller] += -(-cost * weight // weights.total())

    def include(self, caller: str, used: tuple[int, int]) -> None:
        """Add to the use of one caller."""
        self._met[caller] += used[0]
        self._cost[caller] += used[1]

    def used(self, callers: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return no-quorums and cost of each caller."""
        return {caller: (self._met[caller], self._cost[caller]) for caller in callers}


class Allowance:
    """Draws for one request of a caller with a share, within a reservation that is renewed when it is used up."""

    def __init__(self, ledger: "Ledger", budget: Budget | None, caller: str, reserved: SetAside) -> None:
        assert isinstance(budget, LeasedBudget)
        self.caller = caller
        self._ledger, self._budget, self._held = ledger, budget, reserved
        self._met = self._cost = 0

    @property
    def used(self) -> tuple[int, int]:
        """The no-quorums and the cost since the reservation was last renewed."""
        return self._met, self._cost

    @property
    def at_risk(self) -> tuple[int, int]:
        """The use to charge after a failed draw: the whole reservation, since the draw may have used all of it."""
        met, cost = self._held.no_quorums, self._held.cost
        return self._met if met is None else met, self._cost if cost is None else cost

    def draw(self, answerer: Any, X: Any, queries: Sequence[Query]) -> Any:
        """Return answers to the first of these rows; raise `ShareSpent` or `ShareInUse` if the share pays for none.

        An answerer that stops at the last no-quorum that it can pay for gets all rows. Any other answerer gets as many
        rows as the reservation pays for at their largest cost.
        """
        unit, stops, paid = to_quanta(answerer.row_cost())[0], answerer.stops_at_last_no_quorum, self._budget.paid
        self._renew_reservation(unit, len(X))
        rows = len(X) if stops else self._rows(unit, len(X))
        try:
            with self._paying(unit) if stops else nullcontext():
                answers = answerer.draw(take_rows(X, slice(answerer.affordable(rows))))
        finally:
            self._cost += self._budget.paid - paid  # Includes a partial payment before the budget ended.
        self._met += answers.labels.tolist().count(NO_QUORUM)
        return answers

    def _renew_reservation(self, unit: int, rows: int) -> None:
        """Renew the reservation if the rest of it does not pay for one row."""
        if self._fits(unit):
            return
        self._held = self._ledger.renew(self.caller, self._held, self.used, rows=rows, need=unit)
        self._met = self._cost = 0
        if not self._fits(unit):
            raise self._refusal()

    def _fits(self, unit: int) -> bool:
        met, cost = self._held.no_quorums, self._held.cost
        return not unit or ((met is None or self._met < met) and (cost is None or self._cost + unit <= cost))

    def _rows(self, unit: int, limit: int) -> int:
        met, cost = self._held.no_quorums, self._held.cost
        by_count = limit if met is None or not unit else met - self._met
        return min(limit, by_count, limit if cost is None or not unit else (cost - self._cost) // unit)

    def _paying(self, unit: int) -> AbstractContextManager[None]:
        """Limit payments of the budget to the reservation."""
        met, cost = self._held.no_quorums, self._held.cost
        limits = [] if met is None else [(met - self._met) * unit]
        return self._budget.paying(min(limits if cost is None else [*limits, cost - self._cost]))

    def _refusal(self) -> BudgetSpent:
        if self._held.spent:
            return ShareSpent("the share of the budget that this key was given is spent")
        return ShareInUse("what is left of this key's share is set aside for other requests; ask again in a moment")


# --- Who holds a lease ------------------------------------------------------------------------------------------------


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _start_time(process: int) -> str:
    """Return the start time of a process; empty if there is no such process or no /proc."""
    after_name = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return "" if len(after_name) < 20 or after_name[0] in "ZX" else after_name[19]


def _runs(process: int) -> bool:
    """Return whether a process of this number exists, for systems without /proc."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _space() -> str:
    """Return the scope in which process numbers are unique: the boot of this machine, and the namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{_read('/proc/sys/kernel/random/boot_id')}/{namespace}"


def owner_name() -> str:
    """Return the name of this process."""
    return _name(process_identity())


@lru_cache(maxsize=1)
def _name(process: tuple[int, int]) -> str:
    return f"{_space()}/{process[0]}/{_start_time(process[0])}"


def is_gone(owner: str, *, silent: float, patience: float | None = None) -> bool:
    """Return whether the process of this name has ended.

    A process of this machine, boot and container is looked up. A process of another one counts as ended after it has
    been `silent` for more than `patience` seconds.
    """
    space, process, started = owner.rsplit("/", 2)
    if space == _space():
        return _start_time(int(process)) != started if started else not _runs(int(process))
    return silent > (_SILENT if patience is None else patience)
