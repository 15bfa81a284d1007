"""Keys and projects, and the share of the account that each may have. Pure functions, like the other rules.

A key is a caller. Keys may belong to a project, which has a separate share. A share limits rows, no-quorums and cost.
Shares may add up to more than the budget, because the account itself is never overdrawn. The most that a request may
use is reserved before anything is drawn for it. If its process dies, the reservation stays charged to the share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from quorate.core.errors import InvalidInput, LedgerRefused, QuotaSpent, RateLimited
from quorate.core.requests import SetAside

if TYPE_CHECKING:
    from quorate.core.ledger._rules import State

Scope = Literal["ask", "budget", "admin", "keys"]
SCOPES: tuple[Scope, ...] = ("ask", "budget", "admin", "keys")
LIMITS = ("quota", "per_minute", "per_phase", "no_quorums", "cost")
_MINUTE = 60
_PARTS = 50  # A request reserves at most this part of a share at a time, which limits the loss of a crash.


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The limits of callers, None for no limit, and their use so far.

    `quota`, `per_minute` and `per_phase` limit rows, and `cost` limits quanta of divergence.
    """

    quota: int | None = None
    per_minute: int | None = None
    per_phase: int | None = None
    no_quorums: int | None = None
    cost: int | None = None
    used: int = 0
    minute: int = 0
    in_minute: int = 0
    in_phase: int = 0
    met: int = 0
    spent: int = 0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class Key(Share):
    """An API key, with its name, its scopes and its share. Only hashes of its secrets are kept.

    After a rotation the `former` secret opens the same key until `former_until`. The key of a `subject` of an `issuer`
    of tokens has no secret: tokens of that issuer open it.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    hash: str = field(repr=False)
    created: float
    project: str = ""
    expires: float | None = None
    revoked: bool = False
    former: str = field(default="", repr=False)
    former_until: float = 0.0
    issuer: str = ""
    subject: str = ""

    def opens(self, at: float) -> bool:
        """Return whether the key is valid at this time."""
        return not self.revoked and (self.expires is None or at < self.expires)


@dataclass(frozen=True, slots=True)
class Project(Share):
    """A group of keys that use one share together."""

    name: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The reservations of a process for the callers that it answers: the no-quorums and the cost of each caller."""

    at: float
    callers: Mapping[str, tuple[int | None, int | None]]


def keys_from(documents: Any) -> dict[str, Key]:
    """Return keys by their ids, from plain JSON."""
    return {key["id"]: Key(**{**key, "scopes": tuple(key["scopes"])}) for key in documents}


def projects_from(documents: Any) -> dict[str, Project]:
    """Return projects by their names, from plain JSON."""
    return {project["name"]: Project(**project) for project in documents}


def holds_from(documents: Mapping[str, Any]) -> dict[str, Hold]:
    """Return holds by their owners, from plain JSON."""
    return {
        owner: Hold(at=hold["at"], callers={caller: (pair[0], pair[1]) for caller, pair in hold["callers"].items()})
        for owner, hold in documents.items()
    }


def _parties(state: "State", caller: str) -> "Iterator[Share]":
    """Yield the shares that a caller uses: that of its key and that of its project."""
    if (key := state.keys.get(caller)) is not None:
        yield key
        if key.project in state.projects:
            yield state.projects[key.project]


def _members(state: "State", party: Share) -> set[str]:
    if isinstance(party, Project):
        return {id for id, key in state.keys.items() if key.project == party.name}
    assert isinstance(party, Key)
    return {party.id}


def _change(state: "State", party: Share, **values: Any) -> "State":
    changed = replace(party, **values)
    if isinstance(changed, Project):
        return replace(state, projects={**state.projects, changed.name: changed})
    assert isinstance(changed, Key)
    return replace(state, keys={**state.keys, changed.id: changed})


def _of(party: Share) -> str:
    return f"the project {party.name!r}" if isinstance(party, Project) else "this key"


# --- Rows -------------------------------------------------------------------------------------------------------------


def _minute(at: float) -> int:
    return int(at // _MINUTE) * _MINUTE


def _in_minute(party: Share, at: float) -> int:
    return party.in_minute if party.minute == _minute(at) else 0


def allow(state: "State", caller: str, rows: int, at: float, *, together: Mapping[str, int] | None = None) -> None:
    """Raise if the share of this caller does not allow this number of rows now. A caller without a key has no limit.

    `together` has the rows of other callers that are admitted in the same batch.
    """
    for party in _parties(state, caller):
        members = _members(state, party) - {caller}
        wanted = rows + sum(count for name, count in (together or {}).items() if name in members)
        if party.quota is not None and party.used + wanted > party.quota:
            raise QuotaSpent(
                f"{_of(party)} may ask {party.quota} rows in all and has {max(0, party.quota - party.used)} left; "
                "ask the owner of the data for more"
            )
        if party.per_phase is not None and party.in_phase + wanted > party.per_phase:
            raise QuotaSpent(
                f"{_of(party)} may ask {party.per_phase} rows in a phase and has "
                f"{max(0, party.per_phase - party.in_phase)} left; ask again in the next one"
            )
        if party.per_minute is not None and _in_minute(party, at) + wanted > party.per_minute:
            raise RateLimited(
                f"{_of(party)} may ask {party.per_minute} rows a minute; ask again in the next one",
                retry_after=_minute(at) + _MINUTE - at,
            )


def count_rows(state: "State", rows: Mapping[str, int], at: float) -> "State":
    """Count admitted rows."""
    for caller, count in rows.items():
        allow(state, caller, count, at)
        for party in _parties(state, caller):
            state = _change(
                state,
                party,
                used=party.used + count,
                minute=_minute(at),
                in_minute=_in_minute(party, at) + count,
                in_phase=party.in_phase + count,
                last=at,
            )
    return state


def refund_rows(state: "State", rows: Mapping[str, int]) -> "State":
    """Return quota for refused rows."""
    for caller, count in rows.items():
        for party in _parties(state, caller):
            if count < 0 or (isinstance(party, Key) and count > party.used):
                raise LedgerRefused("the returned quota must be at most the used quota")
            state = _change(state, party, used=max(0, party.used - count))
    return state


def withdraw_rows(state: "State", rows: Mapping[str, int], minute: int) -> "State":
    """Undo the count of rows that were admitted in this minute and got no answer."""
    state = refund_rows(state, rows)
    for caller, count in rows.items():
        for party in _parties(state, caller):
            fewer = max(0, party.in_minute - count) if party.minute == minute else party.in_minute
            state = _change(state, party, in_minute=fewer, in_phase=max(0, party.in_phase - count))
    return state


def begin_phase(state: "State", rows: Mapping[str, int]) -> "State":
    """Reset the row counts of a phase to the rows that were in progress when it opened."""
    for party in (*state.keys.values(), *state.projects.values()):
        if party.in_phase:
            state = _change(state, party, in_phase=0)
    for caller, count in rows.items():
        for party in _parties(state, caller):
            state = _change(state, party, in_phase=party.in_phase + count)
    return state


# --- No-quorums and cost ----------------------------------------------------------------------------------------------


def is_limited(state: "State", caller: str) -> bool:
    """Return whether a draw for this caller needs a reservation."""
    return any(party.no_quorums is not None or party.cost is not None for party in _parties(state, caller))


def hold_for(state: "State", caller: str, rows: int, reserved: Mapping[str, Any], *, need: int = 0) -> SetAside:
    """Return the reservation for new rows of a caller: at most a fiftieth of its share, but enough for one row.

    `reserved` has the earlier reservations of this transaction, and `need` is the largest cost of a row, if known.
    """
    amounts: tuple[list[int], list[int]] = ([], [])  # no-quorums and cost that each party allows
    spent = False
    for party in _parties(state, caller):
        members = _members(state, party)
        pairs = [*_held_pairs(state, members), *(pair for name, pair in reserved.items() if name in members)]
        limits = (party.no_quorums, party.met, 1, rows), (party.cost, party.spent, max(1, need), None)
        for index, (limit, had, unit, ceiling) in enumerate(limits):
            if limit is not None:
                remaining = max(0, limit - had - sum(pair[index] or 0 for pair in pairs))
                wanted = max(unit, limit // _PARTS)
                amounts[index].append(min(remaining, wanted if ceiling is None else min(ceiling, wanted)))
                spent = spent or limit - had < unit
    return SetAside(min(amounts[0], default=None), min(amounts[1], default=None), spent=spent)


def _held_pairs(state: "State", members: set[str]) -> list[tuple[int | None, int | None]]:
    """Return the reservations for these callers: the no-quorums and the cost of each."""
    return [pair for hold in state.holds.values() for name, pair in hold.callers.items() if name in members]


def add_holds(state: "State", owner: str, reserved: Mapping[str, Any], at: float) -> "State":
    """Add the reservations for a batch; charge the unsettled reservations of its owner for an earlier batch."""
    if not reserved:
        return state
    state = drop_holds(state, owner)
    added = {caller: (pair[0], pair[1]) for caller, pair in reserved.items()}
    state = replace(state, holds={**state.holds, owner: Hold(at, added)})
    for caller, pair in added.items():
        _check_room(state, caller, pair)
    return state


def _check_room(state: "State", caller: str, added: Sequence[int | None]) -> None:
    """Refuse a new reservation beyond the share. Earlier reservations may exceed a limit that was lowered since."""
    for party in _parties(state, caller):
        pairs = _held_pairs(state, _members(state, party))
        for index, (limit, had) in enumerate(((party.no_quorums, party.met), (party.cost, party.spent))):
            aside = sum(pair[index] or 0 for pair in pairs)
            if limit is not None and added[index] and had + aside > limit:  # proof: step 12
                raise LedgerRefused("a reservation must be at most the rest of the share")


def _charge(state: "State", caller: str, met: int, cost: int) -> "State":
    for party in _parties(state, caller):
        state = _change(state, party, met=party.met + met, spent=party.spent + cost)
    return state


def drop_holds(state: "State", owner: str | None = None) -> "State":
    """Charge the unsettled reservations of a process, or of all processes, since they may have been used."""
    lost = [hold for name, hold in state.holds.items() if owner in (None, name)]
    if not lost:
        return state
    state = replace(state, holds={name: hold for name, hold in state.holds.items() if owner not in (None, name)})
    for hold in lost:
        for caller, (no_quorums, cost) in hold.callers.items():
            state = _charge(state, caller, no_quorums or 0, cost or 0)
    return state


def charge_used(state: "State", owner: str, used: Mapping[str, Any]) -> "State":
    """Charge callers for their use, and release the reservations of this process for them."""
    hold = state.holds.get(owner, Hold(0.0, {}))
    for caller, amounts in used.items():
        _check_within(amounts, hold.callers.get(caller, (None, None)))
        state = _charge(state, caller, *map(int, amounts))
    if owner not in state.holds:
        return state
    return replace(state, holds={name: hold for name, hold in state.holds.items() if name != owner})


def _check_within(used: Any, aside: Any) -> None:
    for amount, limit in zip(used, aside, strict=True):
        if amount < 0 or (limit is not None and amount > limit):
            raise LedgerRefused("the use of a caller must be at most its reservation")


def _renew(state: "State", body: Mapping[str, Any], at: float) -> "State":
    """Settle one request of a caller and reserve more for it."""
    owner, caller = str(body["owner"]), str(body["caller"])
    hold = state.holds.get(owner)
    if hold is None or caller not in hold.callers:
        raise LedgerRefused("a renewal must be of a caller with a reservation")
    _check_within(body["used"], body["settled"])
    sums = [
        None if had is None else had - (settled or 0) + (added or 0)
        for had, settled, added in zip(hold.callers[caller], body["settled"], body["held"], strict=True)
    ]
    if any(amount is not None and amount < 0 for amount in sums):
        raise LedgerRefused("the settled amount must be at most the reservation")
    state = _charge(state, caller, *map(int, body["used"]))
    callers = {**hold.callers, caller: (sums[0], sums[1])}
    state = replace(state, holds={**state.holds, owner: Hold(at, callers)})
    _check_room(state, caller, body["held"])
    return state


def _withdraw(state: "State", body: Mapping[str, Any], at: float) -> "State":
    """Withdraw requests that could not be answered, and charge only the use that may have occurred."""
    state = charge_used(state, str(body["owner"]), body["used"])  # proof: step 12
    return withdraw_rows(state, body["rows"], int(body["minute"]))


def _lose_hold(state: "State", body: Mapping[str, Any], at: float) -> "State":
    if body["owner"] not in state.holds:
        raise LedgerRefused("a lost reservation must be one of this process")
    return drop_holds(state, body["owner"])


# --- Keys and projects: made, changed, rotated and revoked ------------------------------------------------------------


def _check_limits(state: "State", party: Share) -> None:
    if state.phase is None and party.per_phase is not None:
        raise InvalidInput("per_phase is for everlasting models: this one has no phases")
    if state.phase is not None and (party.no_quorums is not None or party.cost is not None):
        raise InvalidInput(
            "an everlasting model hides its answers, and a limit on no-quorums would reveal them; "
            "limit the rows that a key may ask in a phase (per_phase), which bounds its no-quorums too"
        )


def _find_key(state: "State", id: Any) -> Key:
    if id not in state.keys:
        raise InvalidInput(f"there is no key {id!r}; `quorate keys list` lists the keys")
    return state.keys[id]


def _add_key(state: "State", body: Mapping[str, Any], at: float) -> "State":
    (key,) = keys_from([body["key"]]).values()
    if key.id in state.keys:
        raise InvalidInput(f"the id of a new key must be new, got {key.id}")
    if key.issuer and (key.hash or find_subject(state, key.issuer, key.subject) is not None):
        raise InvalidInput("the key of a subject must have no secret, and be the first of this subject")
    return _with_key(state, key)


def find_subject(state: "State", issuer: str, subject: str) -> Key | None:
    """Return the key of a subject of an issuer, also one that was revoked; None without one."""
    keys = (key for key in state.keys.values() if key.issuer and (key.issuer, key.subject) == (issuer, subject))
    return next(keys, None)


def _with_key(state: "State", key: Key) -> "State":
    check_key(state, key)
    return replace(state, keys={**state.keys, key.id: key})


def check_key(state: "State", key: Key) -> None:
    """Refuse a key with scopes, a project or limits that this ledger does not have."""
    if not key.scopes or not set(key.scopes) <= set(SCOPES):
        raise InvalidInput(f"scopes must be some of {', '.join(SCOPES)}, got {', '.join(key.scopes) or 'none'}")
    if key.project and key.project not in state.projects:
        raise InvalidInput(f"there is no project {key.project!r}; `quorate keys project` makes one")
    _check_limits(state, key)


def _revoke_key(state: "State", body: Mapping[str, Any], at: float) -> "State":
    return _with_key(state, replace(_find_key(state, body["id"]), revoked=True))


def _change_key(state: "State", body: Mapping[str, Any], at: float) -> "State":
    key, values = _find_key(state, body["id"]), body["values"]
    changed = {name: value for name, value in values.items() if name in (*LIMITS, "project", "expires")}
    if "scopes" in values:
        if not key.issuer:
            raise InvalidInput("only tokens change the scopes of a key: those of the key of their subject")
        changed["scopes"] = tuple(values["scopes"])
    return _with_key(state, replace(key, **changed))


def _rotate_key(state: "State", body: Mapping[str, Any], at: float) -> "State":
    key = _find_key(state, body["id"])
    if key.issuer:
        raise InvalidInput(f"the key {key.id} has no secret to exchange: tokens of {key.issuer} open it")
    rotated = replace(key, hash=str(body["hash"]), former=key.hash, former_until=float(body["former_until"]))
    return _with_key(state, rotated)


def _set_project(state: "State", body: Mapping[str, Any], at: float) -> "State":
    """Create a project, or change its limits; its use so far stays counted."""
    project = state.projects.get(body["name"], Project(name=str(body["name"])))
    changed = replace(project, **{name: value for name, value in body["values"].items() if name in LIMITS})
    _check_limits(state, changed)
    return replace(state, projects={**state.projects, changed.name: changed})


SHARE_RULES = {
    "renewed": _renew,
    "hold_lost": _lose_hold,
    "withdrawn": _withdraw,
    "key_added": _add_key,
    "key_revoked": _revoke_key,
    "key_changed": _change_key,
    "key_rotated": _rotate_key,
    "project_set": _set_project,
}
