"""The rules of a ledger, as pure functions: what it holds, what may happen to it, and what it holds then.

A store only reads and writes what these functions return, so that SQLite and PostgreSQL cannot differ in what they
allow. Amounts are whole quanta (see `quorate.core.privacy.Budget`); what is leased counts as spent until it is
returned.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from quorate.core.errors import BudgetSpent, LedgerRefused
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

FORMAT = 1  # of entries and of the state that is kept
_NAMES: dict[type[Share], list[tuple[str, Any]]] = {
    kind: [(part.name, part.default) for part in fields(kind)] for kind in (Key, Project)
}
LOST = "lost"  # in place of a choice: it may have been made after the copy that was restored


@dataclass(frozen=True, slots=True)
class Lease:
    """What a process has taken out of the account: `renyi` and `slack` quanta that it has not returned."""

    owner: str
    renyi: int
    slack: int
    seen: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of everlasting prediction: how far it has come, and hashes that prove what is kept of it elsewhere.

    `met` counts its no-quorums, and is for the owner alone. `noise` is a keyed hash of its secret noises, `points` one
    of the points in its seats, which lie in the file `seated`; `files` holds the others, with their plain hashes.
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
    lost: bool = False  # what came after this is not known any more: the phase cannot go on


@dataclass(frozen=True, slots=True)
class Compaction:
    """How far the entries are compacted: those up to `through` are gone, and answers of those up to `forgotten`.

    `parts` is the hash of what is left of them.
    """

    through: int
    forgotten: int
    parts: str


@dataclass(frozen=True, slots=True)
class State:
    """What a ledger holds: one account, what is out on lease, and who may have how much of it."""

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
    holds: Mapping[str, Hold] = field(default_factory=dict)  # set aside of shares, by who answers
    wanted: float = 0.0  # when somebody last asked for what is out on lease
    run: str | None = None  # a keyed hash of the open run's secret noise
    choice: str | None = None  # what the model has chosen once and for all, and published; `LOST` in a restored copy
    phase: Phase | None = None  # of everlasting prediction
    moved: str | None = None  # where the account went
    compaction: Compaction | None = None  # the last one
    answers_forgotten: int = 0  # how many answers were drawn and are not kept any more

    @property
    def forgotten(self) -> int:
        """The last entry whose answers are forgotten: what is still kept of them is nobody's answer."""
        return 0 if self.compaction is None else self.compaction.forgotten


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a ledger. `body` is plain JSON."""

    kind: str
    at: float
    body: Mapping[str, Any]


def apply(state: State | None, event: Event) -> State:
    """Return what the ledger holds after an event, or raise where the event is not allowed."""
    if state is None:
        if event.kind == "opened":
            return _open_account(event)
        if event.kind != "compacted":
            raise LedgerRefused(f"a ledger begins with its opening, or a compaction, not with {event.kind!r}")
        state = from_json(event.body["state"])
    if event.kind not in _RULES:
        raise LedgerRefused(f"a ledger knows no {event.kind!r}")
    if state.moved is not None and event.kind != "lost":
        raise LedgerRefused(f"the account has moved to {state.moved}; it is spent from there")
    return replace(_RULES[event.kind](state, event.body, event.at), at=event.at)


def _plain(share: Share) -> dict[str, Any]:
    """Return the values that are not the default ones: there may be hundreds of keys, written with every answer."""
    return {name: value for name, default in _NAMES[type(share)] if (value := getattr(share, name)) != default}


def to_json(state: State) -> dict[str, Any]:
    """Return the state as plain JSON."""
    document = {f.name: getattr(state, f.name) for f in fields(state)}
    document["leases"] = {
        name: {"owner": lease.owner, "renyi": str(lease.renyi), "slack": str(lease.slack), "seen": lease.seen}
        for name, lease in state.leases.items()
    }
    document["keys"] = [_plain(key) | {"scopes": list(key.scopes)} for key in state.keys.values()]
    document["projects"] = [_plain(project) for project in state.projects.values()]
    document["holds"] = {owner: {"at": hold.at, "callers": dict(hold.callers)} for owner, hold in state.holds.items()}
    # Quanta go beyond what other readers of JSON keep, and JSON has no infinity: both are written as texts.
    pairs = {name: [str(quanta) for quanta in getattr(state, name)] for name in ("capacity", "spent")}
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
        raise LedgerRefused("a ledger opens with an account that nobody could have spent like that")
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
        raise LedgerRefused("more was returned than is out on this lease")
    leases = {name: lease for name, lease in state.leases.items() if name != body["lease"]}
    return replace(state, spent=(state.spent[0] - renyi, state.spent[1] - slack), leases=leases)  # the rest was used


def _lose_lease(state: State, body: Mapping[str, Any], at: float) -> State:
    if body["lease"] not in state.leases:
        raise LedgerRefused("a lease was lost that nobody had taken")
    return replace(state, leases={name: lease for name, lease in state.leases.items() if name != body["lease"]})


def _want_leases(state: State, body: Mapping[str, Any], at: float) -> State:
    return replace(state, wanted=at)


def _open_run(state: State, body: Mapping[str, Any], at: float) -> State:
    return replace(state, run=str(body["mac"]))


def _admit(state: State, body: Mapping[str, Any], at: float) -> State:
    """Count rows, and set aside what callers with a share may need."""
    state = count_rows(state, body["rows"], at)
    return add_holds(state, str(body.get("owner", "")), body["held"], at)


def _answer(state: State, body: Mapping[str, Any], at: float) -> State:
    """Charge shares, give quota back for rows that were refused, and note that the lease is in use."""
    if body["lease"] in state.leases:
        lease = replace(state.leases[body["lease"]], seen=at)
        state = replace(state, leases={**state.leases, body["lease"]: lease})
    if "used" in body:
        state = charge_used(state, str(body.get("owner", "")), body["used"])
    return refund_rows(state, body["returned"]) if body["returned"] else state


def _move(state: State, body: Mapping[str, Any], at: float) -> State:
    return replace(state, moved=str(body["to"]))


def _restore(state: State, body: Mapping[str, Any], at: float) -> State:
    """Charge what a later witness says was spent; nothing that is out on lease comes back."""
    renyi, slack = _pair(body["spent"])
    spent = max(state.spent[0], renyi), max(state.spent[1], slack)
    if not (spent[0] <= state.capacity[0] and spent[1] <= state.capacity[1]):
        raise LedgerRefused("a witness says that more was spent than there was")
    phase = None if state.phase is None else replace(state.phase, lost=True)
    choice = LOST if state.choice is None else state.choice  # it may have been made in what was lost
    state = drop_holds(state)
    return replace(state, spent=spent, leases={}, phase=phase, choice=choice)


def _choose(state: State, body: Mapping[str, Any], at: float) -> State:
    if state.choice is not None:
        raise LedgerRefused("a model chooses once")
    return replace(state, choice=str(body["choice"]))


def _open_phase(state: State, body: Mapping[str, Any], at: float) -> State:
    """Open a phase: a later one, or the same once more, which is paid for by itself; or a lost one of another place."""
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
        raise LedgerRefused("a phase opens with a number no lower than that of the one before, and with seats")
    # The first phase in a ledger may come from another place, with what keys have asked in it.
    return replace(state if state.phase is None else begin_phase(state, body.get("rows", {})), phase=phase)


def _seat_arrivals(state: State, body: Mapping[str, Any], at: float) -> State:
    """Seat arrivals. Neither seats nor no-quorums are given back, and a phase that is closed stays so."""
    phase = state.phase
    if phase is None or phase.number != int(body["phase"]) or phase.lost:
        raise LedgerRefused("arrivals belong to the phase that is open")
    arrived = replace(
        phase,
        taken=int(body["taken"]),
        met=int(body["met"]),
        closed=bool(body["closed"]),
        points=str(body["points"]),
    )
    if not phase.taken <= arrived.taken <= arrived.seats or arrived.met < phase.met:
        raise LedgerRefused("seats that were taken, and no-quorums that were met, are never given back")
    if phase.closed and (not arrived.closed or arrived.met != phase.met):
        raise LedgerRefused("a phase that is closed stays closed until the next one")
    return replace(state, phase=arrived)


def _compact(state: State, body: Mapping[str, Any], at: float) -> State:
    """Begin anew from the account as it is: a compaction changes none of it."""
    if from_json(body["state"]) != state:  # proof: step 14
        raise LedgerRefused("a compaction begins from another account than the entries add up to")
    previous = state.compaction or Compaction(0, 0, "")
    compaction = Compaction(int(body["through"]), int(body["forgotten"]), str(body["parts"]))
    if not (previous.through < compaction.through and previous.forgotten <= compaction.forgotten <= compaction.through):
        raise LedgerRefused("a compaction goes further than the one before it")
    if compaction.forgotten > previous.forgotten and state.phase is not None:
        raise LedgerRefused("an everlasting model forgets its answers with each phase, and by nothing else")
    if int(body["answers_forgotten"]) < state.answers_forgotten:
        raise LedgerRefused("answers that were forgotten are not remembered again")
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
}
