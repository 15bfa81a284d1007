"""The rules of a ledger, as pure functions from a state and an event to the next state.

A store only reads and writes the states of these functions, so that SQLite and PostgreSQL cannot differ in the events
that they allow. Amounts are whole quanta (see `quorate.core.privacy.Budget`). A lease counts as spent until it is
returned.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from quorate.core.errors import BudgetSpent, LedgerRefused
from quorate.core.ledger._approvals import APPROVAL_RULES, Proposal, proposals_from, proposals_to
from quorate.core.ledger._shares import (
    SHARE_RULES,
    Hold,
    Key,
    Project,
    Share,
    add_holds,
    begin_phase,
    charge_used,
    count_rows,
    drop_holds,
    holds_from,
    keys_from,
    projects_from,
    refund_rows,
)

FORMAT = 1  # of entries and of the stored state
_NAMES: dict[type[Share], list[tuple[str, Any]]] = {
    kind: [(part.name, part.default) for part in fields(kind)] for kind in (Key, Project)
}
LOST = "lost"  # in place of a choice, which may have been made after the restored copy


@dataclass(frozen=True, slots=True)
class Lease:
    """The quanta that a process has taken out of the account and not returned."""

    owner: str
    renyi: int
    slack: int
    seen: float


@dataclass(frozen=True, slots=True)
class Phase:
    """The progress of a phase of everlasting prediction, and hashes that prove its files.

    `met` counts its no-quorums, which only the owner sees. `noise` is a keyed hash of the secret noises. `points` is a
    keyed hash of the seated points in the file `seated`. `files` maps the other files to their plain hashes.
    """

    number: int
    seats: int
    noise: str
    files: Mapping[str, str]
    seated: str
    taken: int = 0
    met: int = 0
    closed: bool = False
    points: str = ""
    lost: bool = False  # Later events of the phase are unknown, so it cannot continue.


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction, which removed the entries up to `through` and the answers of entries up to `forgotten`.

    `parts` is the hash of the digests that replace the entries.
    """

    through: int
    forgotten: int
    parts: str


@dataclass(frozen=True, slots=True)
class State:
    """The state of a ledger: the account, its leases, and the shares of callers."""

    fingerprint: str
    epsilon: float
    delta: float
    order: float
    slack: float
    capacity: tuple[int, int]
    spent: tuple[int, int]
    at: float
    leases: Mapping[str, Lease] = field(default_factory=dict)
    keys: Mapping[str, Key] = field(default_factory=dict)
    projects: Mapping[str, Project] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)  # reservations of shares, by the process that answers
    wanted: float = 0.0  # when a process last asked others to return their leases
    run: str | None = None  # a keyed hash of the open run's secret noise
    choice: str | None = None  # the published choice of the model, which is final; `LOST` in a restored copy
    phase: Phase | None = None  # of everlasting prediction
    moved: str | None = None  # the ledger to which the account moved
    compaction: Compaction | None = None  # the last one
    answers_forgotten: int = 0  # the number of answers that were drawn and are no longer kept
    proposals: Mapping[str, Proposal] = field(default_factory=dict)  # changes of keys that wait for a second person

    @property
    def forgotten(self) -> int:
        """The last entry whose answers are forgotten; remaining rows of such answers are ignored."""
        return 0 if self.compaction is None else self.compaction.forgotten


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a ledger. `body` is plain JSON."""

    kind: str
    at: float
    body: Mapping[str, Any]


def apply(state: State | None, event: Event) -> State:
    """Return the state of the ledger after an event; refuse an event that the rules do not allow."""
    if state is None:
        if event.kind == "opened":
            return _open_account(event)
        if event.kind != "compacted":
            raise LedgerRefused(f"the first entry must be an opening or a compaction, got {event.kind!r}")
        state = from_json(event.body["state"])
    if event.kind not in _RULES:
        raise LedgerRefused(f"the kind of an entry must be one of this version, got {event.kind!r}")
    if state.moved is not None and event.kind != "lost":
        raise LedgerRefused(f"the account has moved to {state.moved}; it is spent from there")
    return replace(_RULES[event.kind](state, event.body, event.at), at=event.at)


def _plain(share: Share) -> dict[str, Any]:
    """Return the values that differ from the defaults; every answer rewrites all keys, and there may be hundreds."""
    return {name: value for name, default in _NAMES[type(share)] if (value := getattr(share, name)) != default}


def to_json(state: State) -> dict[str, Any]:
    """Return the state as plain JSON."""
    document = {f.name: getattr(state, f.name) for f in fields(state) if f.name != "proposals"}
    document["leases"] = {
        name: {"owner": lease.owner, "renyi": str(lease.renyi), "slack": str(lease.slack), "seen": lease.seen}
        for name, lease in state.leases.items()
    }
    document["keys"] = [_plain(key) | {"scopes": list(key.scopes)} for key in state.keys.values()]
    document["projects"] = [_plain(project) for project in state.projects.values()]
    document["holds"] = {owner: {"at": hold.at, "callers": dict(hold.callers)} for owner, hold in state.holds.items()}
    # Quanta exceed the integers of other JSON readers, and JSON has no infinity, so both are written as texts.
    pairs = {name: [str(quanta) for quanta in getattr(state, name)] for name in ("capacity", "spent")}
    # Without proposals, the version before this one can read the state.
    document |= {"proposals": proposals_to(state.proposals)} if state.proposals else {}
    document["phase"] = None if state.phase is None else asdict(state.phase) | {"files": dict(state.phase.files)}
    document["compaction"] = None if state.compaction is None else asdict(state.compaction)
    return document | pairs | {"order": repr(state.order)}


_READ: dict[str, Callable[[Any], Any]] = {"keys": keys_from, "projects": projects_from, "holds": holds_from}


def from_json(document: Mapping[str, Any]) -> State:
    """Return the state that `to_json` wrote."""
    leases = {
        name: Lease(**{**lease, "renyi": int(lease["renyi"]), "slack": int(lease["slack"])})
        for name, lease in document["leases"].items()
    }
    state: dict[str, Any] = {name: _pair(document[name]) for name in ("capacity", "spent")}
    state |= {"order": float(document["order"]), "leases": leases}
    state |= {name: read(document[name]) for name, read in _READ.items()}
    state["proposals"] = proposals_from(document["proposals"]) if "proposals" in document else {}
    state["phase"] = Phase(**document["phase"]) if document.get("phase") else None
    state["compaction"] = Compaction(**document["compaction"]) if document.get("compaction") else None
    return State(**{**document, **state})


def _pair(values: Any) -> tuple[int, int]:
    renyi, slack = values
    return int(renyi), int(slack)


def _open_account(event: Event) -> State:
    body = event.body
    if body.get("format", FORMAT) != FORMAT:
        raise LedgerRefused(f"the ledger has format {body['format']}; this version reads {FORMAT}")
    state = State(
        fingerprint=str(body["fingerprint"]),
        epsilon=float(body["epsilon"]),
        delta=float(body["delta"]),
        order=float(body["order"]),
        slack=float(body["slack"]),
        capacity=_pair(body["capacity"]),
        spent=_pair(body["spent"]),
        at=event.at,
        keys=keys_from(body["keys"]) if body["keys"] else {},
        projects=projects_from(body["projects"]) if body.get("projects") else {},
        answers_forgotten=int(body.get("answers_forgotten", 0)),
    )
    if not all(0 <= spent <= capacity for spent, capacity in zip(state.spent, state.capacity, strict=True)):
        raise LedgerRefused("the opening must have an account that is spent by at most its capacity")
    return state


def _lease(state: State, body: Mapping[str, Any], at: float) -> State:
    renyi, slack = int(body["renyi"]), int(body["slack"])
    if renyi < 0 or slack < 0:
        raise LedgerRefused("a lease cannot be negative")
    remaining = state.capacity[0] - state.spent[0], state.capacity[1] - state.spent[1]
    if renyi > remaining[0] or slack > remaining[1]:
        raise BudgetSpent(
            f"the account has {remaining[0]} and {remaining[1]} quanta left; this asks for {renyi} and {slack}"
        )
    current = state.leases.get(body["lease"], Lease(owner=str(body["owner"]), renyi=0, slack=0, seen=at))
    lease = replace(current, renyi=current.renyi + renyi, slack=current.slack + slack, seen=at)
    spent = state.spent[0] + renyi, state.spent[1] + slack
    return replace(state, spent=spent, leases={**state.leases, body["lease"]: lease})


def _return_lease(state: State, body: Mapping[str, Any], at: float) -> State:
    renyi, slack = int(body["renyi"]), int(body["slack"])
    lease = state.leases.get(body["lease"])
    if lease is None or not (0 <= renyi <= lease.renyi and 0 <= slack <= lease.slack):
        raise LedgerRefused("the returned amount must be at most the lease")
    leases = {name: lease for name, lease in state.leases.items() if name != body["lease"]}
    return replace(state, spent=(state.spent[0] - renyi, state.spent[1] - slack), leases=leases)  # the rest was used


def _lose_lease(state: State, body: Mapping[str, Any], at: float) -> State:
    if body["lease"] not in state.leases:
        raise LedgerRefused("a lost lease must be a lease of the account")
    return replace(state, leases={name: lease for name, lease in state.leases.items() if name != body["lease"]})


def _want_leases(state: State, body: Mapping[str, Any], at: float) -> State:
    return replace(state, wanted=at)


def _open_run(state: State, body: Mapping[str, Any], at: float) -> State:
    return replace(state, run=str(body["mac"]))


def _admit(state: State, body: Mapping[str, Any], at: float) -> State:
    """Count rows, and reserve the shares that callers may need."""
    state = count_rows(state, body["rows"], at)
    return add_holds(state, str(body.get("owner", "")), body["held"], at)


def _answer(state: State, body: Mapping[str, Any], at: float) -> State:
    """Charge shares, return quota for refused rows, and record that the lease is in use."""
    if body["lease"] in state.leases:
        lease = replace(state.leases[body["lease"]], seen=at)
        state = replace(state, leases={**state.leases, body["lease"]: lease})
    if "used" in body:
        state = charge_used(state, str(body.get("owner", "")), body["used"])
    return refund_rows(state, body["returned"]) if body["returned"] else state


def _move(state: State, body: Mapping[str, Any], at: float) -> State:
    return replace(state, moved=str(body["to"]))


def _restore(state: State, body: Mapping[str, Any], at: float) -> State:
    """Charge the spending that a later mark proves. Leases are not returned."""
    renyi, slack = _pair(body["spent"])
    spent = max(state.spent[0], renyi), max(state.spent[1], slack)
    if not (spent[0] <= state.capacity[0] and spent[1] <= state.capacity[1]):
        raise LedgerRefused("the spending of a mark must be at most the capacity")
    phase = None if state.phase is None else replace(state.phase, lost=True)
    choice = LOST if state.choice is None else state.choice  # it may have been made in a lost entry
    state = drop_holds(state)
    return replace(state, spent=spent, leases={}, phase=phase, choice=choice)


def _choose(state: State, body: Mapping[str, Any], at: float) -> State:
    if state.choice is not None:
        raise LedgerRefused("the choice of a model must be its first")
    return replace(state, choice=str(body["choice"]))


def _open_phase(state: State, body: Mapping[str, Any], at: float) -> State:
    """Open a later phase, the same phase again at a new charge, or a lost phase of another ledger."""
    phase = Phase(
        number=int(body["number"]),
        seats=int(body["seats"]),
        noise=str(body["noise"]),
        files={str(name): str(digest) for name, digest in body["files"].items()},
        seated=str(body["seated"]),
        points=str(body["points"]),
        lost=bool(body.get("lost", False)),
    )
    if phase.number < (1 if state.phase is None else state.phase.number) or phase.seats < 1:
        raise LedgerRefused("a phase must have seats and a number that is not below that of the previous phase")
    # The first phase of a ledger may come from another ledger, with the rows that keys have asked in it.
    return replace(state if state.phase is None else begin_phase(state, body.get("rows", {})), phase=phase)


def _seat_arrivals(state: State, body: Mapping[str, Any], at: float) -> State:
    """Seat arrivals. Seats and no-quorums are never returned, and a closed phase stays closed."""
    phase = state.phase
    if phase is None or phase.number != int(body["phase"]) or phase.lost:
        raise LedgerRefused("arrivals must be of the open phase")
    arrived = replace(
        phase,
        taken=int(body["taken"]),
        met=int(body["met"]),
        closed=bool(body["closed"]),
        points=str(body["points"]),
    )
    if not phase.taken <= arrived.taken <= arrived.seats or arrived.met < phase.met:
        raise LedgerRefused("the numbers of taken seats and of no-quorums must not decrease")
    if phase.closed and (not arrived.closed or arrived.met != phase.met):
        raise LedgerRefused("a closed phase must stay closed until the next phase")
    return replace(state, phase=arrived)


def _compact(state: State, body: Mapping[str, Any], at: float) -> State:
    """Continue from the state of a compaction, which must equal the present state."""
    if from_json(body["state"]) != state:  # proof: step 14
        raise LedgerRefused("a compaction must have the account that the entries add up to")
    previous = state.compaction or Compaction(0, 0, "")
    compaction = Compaction(int(body["through"]), int(body["forgotten"]), str(body["parts"]))
    if not (previous.through < compaction.through and previous.forgotten <= compaction.forgotten <= compaction.through):
        raise LedgerRefused("a compaction must go further than the previous one")
    if compaction.forgotten > previous.forgotten and state.phase is not None:
        raise LedgerRefused("a compaction of an everlasting model must not forget answers; each phase does")
    if int(body["answers_forgotten"]) < state.answers_forgotten:
        raise LedgerRefused("the number of forgotten answers must not decrease")
    return replace(state, compaction=compaction, answers_forgotten=int(body["answers_forgotten"]))


_RULES = {
    "compacted": _compact,
    "leased": _lease,
    "returned": _return_lease,
    "lost": _lose_lease,
    "wanted": _want_leases,
    "run": _open_run,
    "chosen": _choose,
    "admitted": _admit,
    "answered": _answer,
    "moved": _move,
    "restored": _restore,
    "phase": _open_phase,
    "arrived": _seat_arrivals,
    **SHARE_RULES,
    **APPROVAL_RULES,
}
