"""A budget whose account is in a ledger. A process takes some of it out, spends that from memory, returns the rest.

What is taken out is on the disk as spent before any of it is used, so that a crash loses what was out and never gives
anything back. A lease names the process that holds it, so that another can tell whether it still runs.
"""

import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from quorate.checks import check_count, check_process, process_identity
from quorate.errors import InvalidInput, LedgerRefused
from quorate.privacy import Budget, Cost
from quorate.privacy.budget import Quanta, to_quanta

if TYPE_CHECKING:
    from quorate.ledger.chain import Change
    from quorate.ledger.ledger import Ledger

__all__ = ["LeasedBudget", "is_gone", "owner_name"]

_SHARES = 50  # a lease is at most this part of the whole budget: a crash loses no more
_IDLE = 30.0  # seconds after which a lease that nobody uses is returned
_PATIENCE = {True: 2.0, False: 60.0}  # seconds to wait for others to return what they have; a server asks for 2
_PAUSE = 0.02  # seconds between two looks
_SILENT = 600.0  # seconds after which a process of another host is taken for dead; an idle one returns its lease


def _times(quanta: Quanta, unit: Quanta) -> int:
    """Return how many times a unit fits."""
    return min((have // need for have, need in zip(quanta, unit, strict=True) if need), default=2**62)


def _sum(each: Iterable[Quanta]) -> Quanta:
    renyi = slack = 0
    for one in each:
        renyi, slack = renyi + one[0], slack + one[1]
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
        if self.quanta() != state.capacity:
            raise LedgerRefused(f"the account at {ledger.place} was opened with another capacity than it has now")
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
    def paying(self, most: int | None) -> Iterator[None]:
        """Pay at most so many quanta of divergence meanwhile: what is set aside for the caller who is answered."""
        before, self._most = self._most, most
        try:
            yield
        finally:
            self._most = before

    def close(self) -> NoReturn:
        """Refuse: the account stays in its ledger."""
        raise InvalidInput(f"this account lives in {self._ledger.place} and stays there")

    def acquire(self, *costs: Cost, most: int) -> int:
        """Return how many times these costs, together, can be paid from here on, and see to it.

        A server sets aside no more than a lease, or a hundredth of the budget, at a time: a crash loses no more.
        """
        if self._lease:
            unit = _sum(to_quanta(cost) for cost in costs)
            units = _times(self.quanta(), unit)
            most = min(most, max(1, min(max(self._lease, units // (2 * _SHARES)), units // _SHARES)))
        return super().acquire(*costs, most=most)

    def return_unused(self, *, all: bool = False) -> None:
        """Return what is not used: all of it, or where no lease is held, or nobody uses it, or others wait for it."""
        check_process("this budget", self._process)
        with self._held():
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

    def _charge(self, each: Sequence[Quanta], counts: Sequence[int]) -> None:
        renyi, slack = self._at_hand
        for (one_renyi, one_slack), count in zip(each, counts, strict=True):
            renyi, slack = renyi - one_renyi * count, slack - one_slack * count
        charged = self._at_hand[0] - renyi
        self._paid += charged
        if self._most is not None:
            self._most -= charged
        self._at_hand, self._used = (renyi, slack), time.monotonic()

    def _acquired(self, each: Sequence[Quanta], most: int) -> int:
        unit = _sum(each)
        if self._most is not None and unit[0]:
            most = min(most, self._most // unit[0])  # proof: step 12
        if _times(self._at_hand, unit) < most and any(unit):
            self._take(unit, most)
        payable = _times(self._at_hand, unit)
        return payable if self._most is None else min(payable, most)

    def _take(self, unit: Quanta, most: int) -> None:
        """Take out what `most` units need, or as much as there is; where there is none, wait for others to return."""
        end = time.monotonic() + _PATIENCE[self._lease > 0]
        while True:
            waits = False
            self._out = True  # from here on, whatever becomes of the transaction
            with self._ledger.change() as change:
                more = self._leased(change, unit, most)
                if not any(more) and _times(self._at_hand, unit) == 0:
                    waits = self._wait_for(change)
            if any(more):  # and not before: only now is it on the disk
                # Counted first: what an interrupt leaves counted and not at hand is lost, and never taken twice.
                self._counted = self._counted[0] + more[0], self._counted[1] + more[1]
                self._at_hand = self._at_hand[0] + more[0], self._at_hand[1] + more[1]
                self._taken, self._used = change.at, time.monotonic()
            if not waits or time.monotonic() > end:
                return
            time.sleep(_PAUSE)

    def _leased(self, change: "Change", unit: Quanta, most: int) -> Quanta:
        """Lease what is missing for `most` units, or for as many as there are, and return how much that is."""
        state = change.state
        left = [capacity - spent for capacity, spent in zip(state.capacity, state.spent, strict=True)]
        unclaimed = self._unclaimed(change)
        have = self._at_hand[0] + unclaimed[0], self._at_hand[1] + unclaimed[1]
        payable = _times((left[0] + have[0], left[1] + have[1]), unit)
        # Near the end a lease is small, so that nobody keeps what others need.
        others = len(state.leases.keys() - {self._name})
        share = _times(state.capacity, unit) // _SHARES
        wanted = max(min(most, payable), min(self._lease, share, payable // (2 * (others + 1))))
        renyi, slack = (max(0, wanted * one - held) for one, held in zip(unit, have, strict=True))
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
        renyi, slack = self._at_hand[0] + unclaimed[0], self._at_hand[1] + unclaimed[1]
        self._at_hand = (0, 0)
        lease = change.state.leases.get(self._name)
        if lease is not None:  # or this process was taken for dead, and what it had out stays spent
            returned = {"renyi": str(min(renyi, lease.renyi)), "slack": str(min(slack, lease.slack))}
            change.append("returned", {"lease": self._name, **returned})


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _started(process: int) -> str:
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
    return f"{_space()}/{process[0]}/{_started(process[0])}"


def is_gone(owner: str, *, silent: float) -> bool:
    """Return whether the process of this name is dead for certain, or has been `silent` for too many seconds."""
    space, process, started = owner.rsplit("/", 2)
    if space == _space():
        return _started(int(process)) != started if started else not _runs(int(process))
    return silent > _SILENT
