"""A budget whose account is in a ledger. A process takes some of it out, spends that from memory, returns the rest.

What is taken out is on the disk as spent before any of it is used, so that a crash loses what was out and never gives
anything back. A lease names the process that holds it, so that another can tell whether it still runs. What is drawn is
counted for the caller it is drawn for, and stays within what is set aside of that caller's share.
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

_SHARES = 50  # a lease is at most this part of the whole budget: a crash loses no more
_CAPACITY_BITS = 44  # to which a capacity is computed alike by all libraries of logarithms
_IDLE = 30.0  # seconds after which a lease that nobody uses is returned
_PATIENCE = {True: 2.0, False: 60.0}  # seconds to wait for others to return what they have; a server asks for 2
_PAUSE = 0.02  # seconds between two looks
_SILENT = 90.0  # seconds after which a process that cannot be looked up, of another host or container, is taken for
# dead; one that has nothing to do has returned its lease long before


def _times(quanta: Quanta, unit: Quanta) -> int:
    """Return how many times a unit fits."""
    return min((have // need for have, need in zip(quanta, unit, strict=True) if need), default=2**62)


def _sum(amounts: Iterable[Quanta]) -> Quanta:
    renyi = slack = 0
    for amount in amounts:
        renyi, slack = renyi + amount[0], slack + amount[1]
    return renyi, slack


class LeasedBudget(Budget):
    """A budget whose account is in a ledger. Made by `Ledger.budget`."""

    __slots__ = (
        "_at_hand",
        "_counted",
        "_lease",
        "_ledger",
        "_most",
        "_name",
        "_out",
        "_paid",
        "_taken",
        "_used",
    )

    def __init__(self, ledger: "Ledger", *, lease: int) -> None:
        state = ledger.state()
        super().__init__(epsilon=state.epsilon, delta=state.delta, order=state.order, slack=state.slack)
        capacity, slack = state.capacity
        if abs(capacity - self._capacity) > 1 + (capacity >> _CAPACITY_BITS) or slack != self._slack:
            raise LedgerRefused(f"the account at {ledger.place} was opened with another capacity than it has now")
        self._capacity = capacity  # Logarithms of another library may round it to the next quantum.
        self._ledger, self._lease = ledger, check_count("lease", lease, least=0)
        self._name = ledger.lease_name = secrets.token_hex(8)  # of its lease, which no other budget shares
        self._at_hand: Quanta = (0, 0)
        self._counted: Quanta = (0, 0)  # of its lease: what the ledger has out for it, and came to be at hand
        self._out = False  # whether the ledger may have a lease of ours
        self._taken = self._used = 0.0
        self._paid = 0  # quanta of divergence that were charged here, less what was settled
        self._most: int | None = None  # that may be paid for who is being answered

    @property
    def paid(self) -> int:
        """How many quanta of divergence this process has paid from here: for whoever counts what a draw has cost."""
        return self._paid

    @contextmanager
    def paying(self, limit: int | None) -> Iterator[None]:
        """Pay at most so many quanta of divergence meanwhile: what is set aside for the caller who is answered."""
        outer, self._most = self._most, limit
        try:
            yield
        finally:
            self._most = outer

    def close(self) -> NoReturn:
        """Refuse: the account stays in its ledger."""
        raise InvalidInput(f"this account lives in {self._ledger.place} and stays there")

    def acquire(self, *costs: Cost, limit: int) -> int:
        """Return how many times these costs, together, can be paid from here on, and see to it.

        A server sets aside no more than a lease, or a hundredth of the budget, at a time: a crash loses no more.
        """
        if self._lease:
            unit = _sum(to_quanta(cost) for cost in costs)
            units = _times(self.quanta(), unit)
            limit = min(limit, max(1, min(max(self._lease, units // (2 * _SHARES)), units // _SHARES)))
        return super().acquire(*costs, limit=limit)

    def return_unused(self, *, all: bool = False) -> None:
        """Return what is not used: all of it, or where no lease is held, or nobody uses it, or others wait for it."""
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
        """Return what is out on lease if others wait for it. A server calls this when it has nothing to do."""
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
        self._paid += charged
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
        """Take out what `limit` units need, or as much as there is; where there is none, wait for others to return."""
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
        """Lease what is missing for `limit` units, or for as many as there are, and return how much that is."""
        state = change.state
        remaining = state.capacity[0] - state.spent[0], state.capacity[1] - state.spent[1]
        unclaimed = self._unclaimed(change)
        have = _sum((self._at_hand, unclaimed))
        payable = _times(_sum((remaining, have)), unit)
        # Near the end a lease is small, so that nobody keeps what others need.
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
        """Return what the ledger has out for us and we never had: a commit or a mark failed, or seemed to."""
        lease = change.state.leases.get(self._name)
        if lease is None:
            self._counted = (0, 0)
            return 0, 0
        return max(0, lease.renyi - self._counted[0]), max(0, lease.slack - self._counted[1])

    def _wait_for(self, change: "Change") -> bool:
        """Return whether others may still return something, after asking them to and returning what is here."""
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
        """Return what is at hand. It is gone from here whether or not that reaches the disk.

        What was counted stays counted while the ledger has the lease: some of it is used.
        """
        unclaimed = self._unclaimed(change)
        renyi, slack = _sum((self._at_hand, unclaimed))
        self._at_hand = (0, 0)
        lease = change.state.leases.get(self._name)
        if lease is not None:  # or this process was taken for dead, and what it had out stays spent
            returned = {"renyi": str(min(renyi, lease.renyi)), "slack": str(min(slack, lease.slack))}
            change.append("returned", {"lease": self._name, **returned})


# --- For whom ---------------------------------------------------------------------------------------------------------


class Tally:
    """Draws for callers together, and counts what each has used: no-quorums, and cost in quanta of divergence."""

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget if isinstance(budget, LeasedBudget) else None  # who else pays has no keys to count for
        self._met: Counter[str] = Counter()
        self._cost: Counter[str] = Counter()

    def draw(self, answerer: Any, X: Any, queries: Sequence[Query]) -> Any:
        """Return answers to the first of these rows, as many as the budget can pay for."""
        paid = 0 if self._budget is None else self._budget.paid
        rows = answerer.affordable(len(X))
        try:
            answers = answerer.draw(take_rows(X, slice(rows)))
        except Exception:  # what it charged before it failed is spent, and is somebody's
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
        """Count what was charged since. Callers who were drawn for together share it, as the mechanism charges."""
        cost = 0 if self._budget is None else self._budget.paid - paid
        for caller, weight in weights.items() if cost else ():
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

    def __init__(self, ledger: "Ledger", budget: Budget | None, caller: str, reserved: SetAside) -> None:
        assert isinstance(budget, LeasedBudget)
        self.caller = caller
        self._ledger, self._budget, self._held = ledger, budget, reserved
        self._met = self._cost = 0

    @property
    def used(self) -> tuple[int, int]:
        """No-quorums and cost since what was set aside was last renewed."""
        return self._met, self._cost

    @property
    def at_risk(self) -> tuple[int, int]:
        """The same where a draw has failed, of which nobody knows how far it came: all that is set aside."""
        met, cost = self._held.no_quorums, self._held.cost
        return self._met if met is None else met, self._cost if cost is None else cost

    def draw(self, answerer: Any, X: Any, queries: Sequence[Query]) -> Any:
        """Return answers to the first of these rows; raise `ShareSpent` or `ShareInUse` where the share pays for none.

        What stops by itself at the last no-quorum that it can pay for is given all rows; anything else as many as
        could be paid for if each were to cost the most.
        """
        unit, stops, paid = to_quanta(answerer.row_cost())[0], answerer.stops_at_last_no_quorum, self._budget.paid
        self._see_to(unit, len(X))
        rows = len(X) if stops else self._rows(unit, len(X))
        try:
            with self._paying(unit) if stops else nullcontext():
                answers = answerer.draw(take_rows(X, slice(answerer.affordable(rows))))
        finally:
            self._cost += self._budget.paid - paid  # also by who paid for a part, and then found the budget spent
        self._met += answers.labels.tolist().count(NO_QUORUM)
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

    def _rows(self, unit: int, limit: int) -> int:
        met, cost = self._held.no_quorums, self._held.cost
        by_count = limit if met is None or not unit else met - self._met
        return min(limit, by_count, limit if cost is None or not unit else (cost - self._cost) // unit)

    def _paying(self, unit: int) -> AbstractContextManager[None]:
        """Let the budget pay for no more than is set aside."""
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
    """Return when a process started, or nothing where there is none, or no such file system."""
    after_name = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return "" if len(after_name) < 20 or after_name[0] in "ZX" else after_name[19]


def _runs(process: int) -> bool:
    """Return whether there is a process of this number, where the file system does not say when it started."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _space() -> str:
    """Return what process numbers are counted in: this boot of this machine, and the namespace."""
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
    """Return whether the process of this name is dead for certain, or has been `silent` for more than so many seconds.

    A process is looked up where its numbers are counted as here: on this machine, since it started, and in the same
    container. One in another has been `silent`, or has not.
    """
    space, process, started = owner.rsplit("/", 2)
    if space == _space():
        return _start_time(int(process)) != started if started else not _runs(int(process))
    return silent > (_SILENT if patience is None else patience)
