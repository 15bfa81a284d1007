"""What an owner looks at: frozen descriptions, without a secret or a hash of one."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from quorate.core.ledger._approvals import Proposal
from quorate.core.ledger._rules import Phase, State
from quorate.core.ledger._shares import Key, Project, Share
from quorate.core.ledger.budget import is_gone
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import to_quanta


@dataclass(frozen=True, slots=True)
class Activity:
    """What was answered in one minute, which begins at `minute` (seconds since 1970)."""

    minute: int
    answered: int
    no_quorums: int
    repeated: int
    refused: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A caller was refused, and why."""

    at: float
    caller: str
    code: str


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What a process has out on lease, as a share of the whole budget. One that is gone returns nothing."""

    id: str
    owner: str
    share: float
    gone: bool = False


@dataclass(frozen=True, slots=True)
class LedgerView:
    """A ledger at one moment. What is out on lease counts as charged."""

    place: str
    entries: int
    head: str
    epsilon: float
    delta: float
    order: float
    capacity: Cost
    spent: Cost
    left: float
    spent_epsilon: float
    leases: tuple[LeaseView, ...]
    keys: tuple[Key, ...]
    moved: str | None
    phase: Phase | None = None  # with its count of no-quorums: for the owner alone
    projects: tuple[Project, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    chosen: bool = False  # whether the model has made its one choice, or may have, after a copy that was restored


def view_of(state: State, *, place: str, entries: int, head: str) -> LedgerView:
    """Return the view of a state."""
    budget = _At(state)
    return LedgerView(
        place=place,
        entries=entries,
        head=head,
        epsilon=state.epsilon,
        delta=state.delta,
        order=state.order,
        capacity=budget.capacity(),
        spent=budget.spent(),
        left=(state.capacity[0] - state.spent[0]) / state.capacity[0],
        spent_epsilon=budget.spent_epsilon(),
        leases=tuple(_leases(state)),
        keys=tuple(replace(key, hash="", former="") for key in state.keys.values()),
        projects=tuple(state.projects.values()),
        proposals=tuple(state.proposals.values()),
        moved=state.moved,
        phase=state.phase,
        chosen=state.choice is not None,
    )


def share_figures(share: Share, view: LedgerView) -> dict[str, float | int | None]:
    """Return limits and use of a share as JSON takes them: costs as parts of the whole budget."""
    capacity = to_quanta(view.capacity)[0]
    return {
        "quota": share.quota,
        "used": share.used,
        "per_minute": share.per_minute,
        "per_phase": share.per_phase,
        "in_phase": share.in_phase,
        "no_quorums": share.no_quorums,
        "no_quorums_met": share.met,
        "budget": None if share.cost is None else share.cost / capacity,
        "budget_spent": share.spent / capacity,
        "last_use": share.last or None,
    }


def key_figures(key: Key, view: LedgerView) -> dict[str, Any]:
    """Return what may be shown of a key: never its secret, nor the hash of it."""
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "issuer": key.issuer or None,
        "project": key.project or None,
        **share_figures(key, view),
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
    }


def _leases(state: State) -> Iterator[LeaseView]:
    for name, lease in state.leases.items():
        host, *_, process, _ = lease.owner.split("/")
        gone = is_gone(lease.owner, silent=time.time() - lease.seen)
        yield LeaseView(name, f"{host}, process {process}", lease.renyi / state.capacity[0], gone)


class _At(Budget):
    """The budget of a state, for its figures alone."""

    __slots__ = ()

    def __init__(self, state: State) -> None:
        super().__init__(epsilon=state.epsilon, delta=state.delta, order=state.order, slack=state.slack)
        self._spent, self._spent_slack = state.spent
