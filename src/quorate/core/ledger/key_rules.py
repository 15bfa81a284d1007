"""The rules of keys and projects: made, changed, rotated and revoked. Pure functions, like the other rules."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from quorate.core.errors import InvalidInput
from quorate.core.ledger.shares import LIMITS, Key, Project, Share, keys_from

if TYPE_CHECKING:
    from quorate.core.ledger.rules import State

Scope = Literal["ask", "budget", "admin"]
SCOPES: tuple[Scope, ...] = ("ask", "budget", "admin")


def _check_limits(state: "State", party: Share) -> None:
    if state.phase is None and party.per_phase is not None:
        raise InvalidInput("per_phase is for everlasting models: this one has no phases")
    if state.phase is not None and (party.no_quorums is not None or party.cost is not None):
        raise InvalidInput(
            "an everlasting model hides what its queries were answered, and a limit that counts no-quorums would tell; "
            "limit the rows that a key may ask in a phase (per_phase), which bounds its no-quorums too"
        )


def _known_key(state: "State", id: Any) -> Key:
    if id not in state.keys:
        raise InvalidInput(f"there is no key {id!r}; `quorate keys list` names them")
    return state.keys[id]


def _key_added(state: "State", body: Mapping[str, Any], at: float) -> "State":
    (key,) = keys_from([body["key"]]).values()
    if key.id in state.keys:
        raise InvalidInput(f"there is a key {key.id} already")
    if not key.scopes or not set(key.scopes) <= set(SCOPES):
        raise InvalidInput(f"scopes must be some of {', '.join(SCOPES)}, not {', '.join(key.scopes) or 'none'}")
    return _with_key(state, key)


def _with_key(state: "State", key: Key) -> "State":
    if key.project and key.project not in state.projects:
        raise InvalidInput(f"there is no project {key.project!r}; `quorate keys project` makes one")
    _check_limits(state, key)
    return replace(state, keys={**state.keys, key.id: key})


def _key_revoked(state: "State", body: Mapping[str, Any], at: float) -> "State":
    return _with_key(state, replace(_known_key(state, body["id"]), revoked=True))


def _key_changed(state: "State", body: Mapping[str, Any], at: float) -> "State":
    values = {name: value for name, value in body["values"].items() if name in (*LIMITS, "project", "expires")}
    return _with_key(state, replace(_known_key(state, body["id"]), **values))


def _key_rotated(state: "State", body: Mapping[str, Any], at: float) -> "State":
    key = _known_key(state, body["id"])
    rotated = replace(key, hash=str(body["hash"]), former=key.hash, former_until=float(body["former_until"]))
    return _with_key(state, rotated)


def _project_set(state: "State", body: Mapping[str, Any], at: float) -> "State":
    """Make a project, or change its limits; what it has used stays counted."""
    before = state.projects.get(body["name"], Project(name=str(body["name"])))
    after = replace(before, **{name: value for name, value in body["values"].items() if name in LIMITS})
    _check_limits(state, after)
    return replace(state, projects={**state.projects, after.name: after})


KEY_RULES = {
    "key_added": _key_added,
    "key_revoked": _key_revoked,
    "key_changed": _key_changed,
    "key_rotated": _key_rotated,
    "project_set": _project_set,
}
