"""The budget: opened as (epsilon, delta), kept as one capacity at one Renyi order plus a slack share of delta.

Costs add at that order, also for mechanisms that are chosen adaptively. Refusing every cost that does not fit therefore
keeps the whole interaction within (epsilon, delta). This is a Renyi filter (Feldman and Zrnic 2021; PROOF.md, steps 2
and 3).
Admission is decided on whole quanta: a cost is rounded up to quanta, a capacity down, and no float is compared.
The terms of an open budget cannot be changed, and only a charge that the budget itself reserved can be returned. This
guards against mistakes, not against malicious code in the same process, which can do anything.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_process, process_identity
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.core.privacy.cost import Cost, best_order, float_down, float_up, to_capacity, to_epsilon
from quorate.core.progress import html_card

RENYI_QUANTA = 2**40  # in one unit of divergence
SLACK_QUANTA = 2**100  # in a probability of one: a slack of 1e-20 is still counted to ten digits
_SLACK_SHARE = 0.1  # of delta, unless the caller says otherwise


Quanta = tuple[int, int]  # of divergence, and of slack


def to_quanta(cost: Cost) -> Quanta:
    """Return the cost in whole quanta, rounded up."""
    if not isinstance(cost, Cost):  # A `Cost` has already refused negative values.
        raise InvalidInput(f"the cost must be a Cost, got {type(cost).__name__}")
    return math.ceil(Fraction(cost.renyi) * RENYI_QUANTA), math.ceil(Fraction(cost.slack) * SLACK_QUANTA)


def price_of_each(epsilon: float, *, delta: float, order: float, times: int, quanta: int = 1) -> float:
    """Return the divergence that each of this many charges may have; each is rounded up, by so many quanta at most."""
    price = to_capacity(epsilon, delta=delta, order=order) / times - quanta / RENYI_QUANTA
    if price <= 0:
        raise Infeasible(f"{times} releases leave less than one quantum for each; ask for fewer or raise epsilon")
    return price


def charged_together(*costs: Cost) -> Cost:
    """Return the charge for these costs together; the divergence of each is rounded up to quanta separately."""
    renyi = sum(to_quanta(cost)[0] for cost in costs)
    slack = sum((Fraction(cost.slack) for cost in costs), Fraction(0))
    return Cost(float_up(Fraction(renyi, RENYI_QUANTA)), float_up(slack))


def _cost(quanta: Quanta, rounded: Callable[[Fraction], float]) -> Cost:
    return Cost(rounded(Fraction(quanta[0], RENYI_QUANTA)), rounded(Fraction(quanta[1], SLACK_QUANTA)))


class Budget:
    """A privacy budget of (epsilon, delta), and the part of it that is spent.

    Parameters
    ----------
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy. With 0 the order is infinity, and costs are epsilons.
    order
        The Renyi order at which costs are charged; by default chosen for costs that grow like `renyi(order)`.
    slack
        The part of delta that is reserved for tail events; by default a tenth of delta.
    renyi
        The cost of a typical release as a function of the order, for the choice of the order.

    >>> budget = Budget(epsilon=1.0, delta=1e-6, order=22.0)
    >>> budget.spend(Cost(renyi=0.1))
    >>> budget.affordable(Cost(renyi=0.1))
    4
    >>> round(budget.spent().renyi, 9)
    0.1
    """

    __slots__ = (
        "_capacity",
        "_charges",
        "_closed",
        "_delta",
        "_described",
        "_epsilon",
        "_lock",
        "_order",
        "_process",
        "_releases",
        "_reserved",
        "_rest",
        "_slack",
        "_slack_share",
        "_spent",
        "_spent_slack",
    )

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        order: float | None = None,
        slack: float | None = None,
        renyi: Callable[[float], float] | None = None,
    ) -> None:
        self._epsilon = check_positive("epsilon", epsilon)
        self._delta = check_delta(delta)
        self._slack_share = self._delta * _SLACK_SHARE if slack is None else check_delta(slack)
        if self._slack_share > self._delta or (self._slack_share == self._delta > 0):
            raise InvalidInput(f"slack must be below delta={delta}, of which it is a part; got {slack!r}")
        # The slack is rounded up to whole quanta, so a cost of exactly this slack fits, and delta pays for it.
        self._slack = math.ceil(Fraction(self._slack_share) * SLACK_QUANTA)
        self._rest = float_down(max(Fraction(self._delta) - Fraction(self._slack, SLACK_QUANTA), Fraction(0)))
        self._order = self._chosen_order(order, renyi)
        capacity = to_capacity(self._epsilon, delta=self._rest, order=self._order)
        self._capacity = math.floor(Fraction(max(capacity, 0.0)) * RENYI_QUANTA)
        if self._capacity < 1:  # A budget of zero quanta would pay for its whole capacity repeatedly.
            raise InvalidInput(
                f"order {self._order:g} leaves nothing to spend at epsilon={epsilon}, delta={delta}; "
                "leave order out to have it chosen"
            )
        self._spent, self._spent_slack = 0, 0
        self._reserved: WeakKeyDictionary[Reservation, tuple[list[Quanta], int]] = WeakKeyDictionary()
        self._charges = self._described = 0
        self._releases: list[Mapping[str, Any]] = []
        self._closed = False
        self._lock = threading.Lock()
        self._process = process_identity()

    def _chosen_order(self, order: float | None, renyi: Callable[[float], float] | None) -> float:
        if self._delta > 0:
            if order is not None:
                return check_order(order)
            return best_order(epsilon=self._epsilon, delta=self._rest, renyi=renyi)
        if order is not None and check_order(order) != math.inf:
            raise InvalidInput(f"order must be infinity for delta = 0, got {order!r}; leave order out or allow a delta")
        return math.inf

    @property
    def epsilon(self) -> float:
        """The epsilon that the budget was opened with. Like all terms of a budget, it cannot be changed."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The delta that the budget was opened with, `slack` included."""
        return self._delta

    @property
    def order(self) -> float:
        """The Renyi order at which every cost is charged (PROOF.md, step 3)."""
        return self._order

    @property
    def slack(self) -> float:
        """The part of delta that is reserved for tail events."""
        return self._slack_share

    def capacity(self) -> Cost:
        """Return the capacity of the new budget, rounded down."""
        return _cost((self._capacity, self._slack), float_down)

    def quanta(self) -> Quanta:
        """Return the capacity of the new budget in whole quanta, for a ledger."""
        return self._capacity, self._slack

    def spent(self) -> Cost:
        """Return the total charge, rounded up."""
        with self._locked_account():
            self._refresh()
            return _cost((self._spent, self._spent_slack), float_up)

    def remaining(self) -> Cost:
        """Return the remaining budget, rounded down."""
        with self._locked_account():
            self._refresh()
            return self._remaining()

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post, at this budget's delta. Never above `epsilon`.

        It depends on what was released, such as the number of no-quorums: it bounds how well these outcomes distinguish
        neighbouring data sets if querying stops now (PROOF.md, step 8). The guarantee is `epsilon`, not this.
        """
        spent = self.spent()
        if spent == Cost(0.0):
            return 0.0
        if self.order == math.inf:
            return min(self.epsilon, spent.renyi)
        return min(self.epsilon, to_epsilon(spent.renyi, order=self.order, delta=self._rest))

    def affordable(self, *costs: Cost) -> int:
        """Return how many times these costs, together, could be paid now.

        A zero cost can be paid 2**62 times.
        """
        with self._locked_account():
            self._refresh()
            return self._affordable([to_quanta(cost) for cost in costs])

    def acquire(self, *costs: Cost, limit: int) -> int:
        """Secure these costs, together, up to `limit` times, and return how many times they can be paid.

        A budget that processes share reserves this amount for this process, which can return the unused part.
        """
        check_process("this budget", self._process)
        limit = check_count("limit", limit, least=0)
        with self._locked_account():
            return min(limit, self._acquired([to_quanta(cost) for cost in costs], limit))

    def covers(self, *counted: tuple[Cost, int]) -> bool:
        """Return whether these costs, each this many times, have been charged here already."""
        renyi = slack = 0
        for cost, times in counted:
            quanta, count = to_quanta(cost), check_count("times", times, least=0)
            renyi, slack = renyi + quanta[0] * count, slack + quanta[1] * count
        with self._locked_account():
            self._refresh()
            return not self._closed and self._spent >= renyi and self._spent_slack >= slack

    def return_unused(self, *, all: bool = False) -> None:
        """Return the unused part of what was acquired. A budget of one process has nothing to return."""

    def spend(self, cost: Cost, *, times: int = 1, releases: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Charge `cost` this many `times`, or raise `BudgetSpent` and charge nothing.

        `releases` describes what is paid, for the claim (`claims`); it may be empty if descriptions follow.
        """
        self.reserve(cost, times=times)
        if releases is not None:
            self._described += 1
            self.describe_releases(releases)
        self.return_unused()

    def describe_releases(self, releases: Sequence[Mapping[str, Any]]) -> None:
        """Add descriptions of releases that an earlier charge paid."""
        self._releases += releases

    def releases(self) -> list[Mapping[str, Any]] | None:
        """Return the descriptions of all releases that were paid; None if a charge came without any."""
        return list(self._releases) if self._described == self._charges else None

    def reserve(self, *costs: Cost, times: int = 1) -> "Reservation":
        """Charge, before anything is drawn, for up to `times` outcomes of each of these costs; all or nothing.

        A reservation that is never settled stays charged.
        """
        check_process("this budget", self._process)
        times = check_count("times", times, least=0)
        prices = [to_quanta(cost) for cost in costs]
        refusal = None
        with self._locked_account():
            if self._acquired(prices, times) < times:
                refusal = self._refusal(prices, times)
            else:
                self._charge(prices, [times] * len(prices))
                self._charges += 1
                reservation = Reservation(self)
                self._reserved[reservation] = prices, times
        if refusal is not None:
            self.return_unused()
            raise refusal
        return reservation

    def _refusal(self, prices: Sequence[Quanta], times: int) -> BudgetSpent:
        self._refresh()
        needed = _cost((times * sum(renyi for renyi, _ in prices), times * sum(slack for _, slack in prices)), float_up)
        remaining = self._remaining()
        return BudgetSpent(
            f"the budget has {remaining.renyi:g} left at order {self.order:g} and {remaining.slack:g} of slack; "
            f"this asks for {needed.renyi:g} and {needed.slack:g}"
        )

    @contextmanager
    def _locked_account(self) -> Iterator[None]:
        """Lock the account while it is read or changed."""
        with self._lock:
            yield

    def _refresh(self) -> None:
        """Read the account again, if other processes spend it too."""

    def _acquired(self, prices: Sequence[Quanta], limit: int) -> int:
        """Return how many times these prices can be paid, after trying to acquire them `limit` times."""
        return self._affordable(prices)

    def _remaining(self) -> Cost:
        return _cost((self._capacity - self._spent, self._slack - self._spent_slack), float_down)

    def _affordable(self, prices: Sequence[Quanta]) -> int:
        renyi, slack = sum(renyi for renyi, _ in prices), sum(slack for _, slack in prices)
        times = 0 if self._closed else 2**62
        if renyi:
            times = min(times, (self._capacity - self._spent) // renyi)
        if slack:
            times = min(times, (self._slack - self._spent_slack) // slack)
        return times

    def close(self) -> tuple[int, int]:
        """Close the budget and return what was spent, in quanta, for a ledger that takes over the account."""
        check_process("this budget", self._process)
        with self._locked_account():
            if self._closed:
                raise InvalidInput("this budget was already taken over by a ledger; use the budget of that ledger")
            spent = self._spent, self._spent_slack
            self._closed, self._spent, self._spent_slack = True, self._capacity, self._slack
            return spent

    def _charge(self, prices: Sequence[Quanta], counts: Sequence[int]) -> None:
        for (renyi, slack), count in zip(prices, counts, strict=True):
            self._spent += renyi * count
            self._spent_slack += slack * count

    def settle_reservation(self, reservation: "Reservation", counts: Sequence[int]) -> None:
        """Return to the budget what this reservation did not use, by the budget's own record, which is then deleted.

        The reservation's own attributes are not trusted (PROOF.md, step 3).
        """
        check_process("this reservation", self._process)
        used = [check_count("count", count, least=0) for count in counts]
        with self._locked_account():
            if reservation not in self._reserved:
                raise InvalidInput("the reservation must be an unsettled one of this budget")
            prices, times = self._reserved[reservation]
            if len(used) != len(prices):
                raise InvalidInput(f"settle must get one count for each of the {len(prices)} costs, got {len(used)}")
            if max(used, default=0) > times:
                raise InvalidInput(f"counts must be from 0 to the {times} that are reserved, got {max(used)}")
            del self._reserved[reservation]
            if not self._closed:  # A ledger that took over the account has the reservation as a charge.
                self._charge(prices, [count - times for count in used])
        self.return_unused()

    def __repr__(self) -> str:
        share = self.remaining().renyi / self.capacity().renyi
        return f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}, order={self.order:g}, left={share:.1%})"

    def _repr_html_(self) -> str:
        facts = {"epsilon": self.epsilon, "delta": self.delta, "epsilon spent so far, ex post": self.spent_epsilon()}
        return html_card("Budget", facts, bar=("left", self.remaining().renyi / self.capacity().renyi))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Budget cannot be copied or pickled: a copy would be spent a second time")


class Reservation:
    """A charge that `Budget.reserve` made before its outcomes were drawn; only that budget settles it."""

    __slots__ = ("__weakref__", "_budget")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def settle(self, *counts: int) -> None:
        """Keep the charge for this many outcomes of each cost and return the rest. May be called once."""
        self._budget.settle_reservation(self, counts)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Reservation cannot be copied or pickled: a copy could be settled a second time")
