"""Changes of keys that wait for a second person. Pure functions, like the other rules.

A proposal holds the entry that it becomes. Whoever approves it must hold another key of this ledger than whoever made
it, and both must be valid and have the scope "keys". A proposal that nobody approves within a day is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from quorate.core.errors import InvalidInput
from quorate.core.ledger._shares import LIMITS, SHARE_RULES, Key, Share

if TYPE_CHECKING:
    from quorate.core.ledger._rules import State

_VALID_SECONDS = 86_400.0
_MOST = 20  # proposals at a time, because every answer writes them
_KINDS = ("key_added", "key_rotated", "key_changed", "project_set")


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry that waits for a second person: its `kind`, its `change`, and who proposed it."""

    id: str
    at: float
    by: Mapping[str, str]
    kind: str
    change: Mapping[str, Any]


def proposals_from(documents: Any) -> dict[str, Proposal]:
    """Return proposals by their ids, from plain JSON."""
    return {proposal["id"]: Proposal(**proposal) for proposal in documents}


def proposals_to(proposals: Mapping[str, Proposal]) -> list[dict[str, Any]]:
    """Return proposals as plain JSON."""
    names = [field.name for field in fields(Proposal)]
    return [{name: getattr(proposal, name) for name in names} for proposal in proposals.values()]


def is_wider(before: Share, after: Share) -> bool:
    """Return whether a share allows more than before, in anything."""
    pairs = [(getattr(before, name), getattr(after, name)) for name in LIMITS]
    if isinstance(before, Key) and isinstance(after, Key):
        if after.project != before.project:
            return True
        pairs.append((before.expires, after.expires))
    return any(had is not None and (has is None or has > had) for had, has in pairs)


def _propose(state: "State", body: Mapping[str, Any], at: float) -> "State":
    proposal = Proposal(str(body["id"]), at, body["by"], str(body["kind"]), body["change"])
    waiting = {id: other for id, other in state.proposals.items() if at < other.at + _VALID_SECONDS}
    if proposal.kind not in _KINDS or proposal.id in waiting:
        raise InvalidInput("a proposal must be of a change of keys, with an id of its own")
    if len(waiting) >= _MOST:
        raise InvalidInput(f"{_MOST} changes wait for approval already; approve or reject some")
    SHARE_RULES[proposal.kind](state, proposal.change, at)  # refuses now what could not be done later
    return replace(state, proposals={**waiting, proposal.id: proposal})


def _find(state: "State", id: Any, at: float) -> Proposal:
    proposal = state.proposals.get(id)
    if proposal is None or at >= proposal.at + _VALID_SECONDS:
        raise InvalidInput("there is no such proposal, or it has expired; propose the change again")
    return proposal


def _without(state: "State", proposal: Proposal) -> "State":
    return replace(state, proposals={id: other for id, other in state.proposals.items() if id != proposal.id})


def _administers(state: "State", id: str, at: float) -> bool:
    key = state.keys.get(id)
    return key is not None and key.opens(at) and "keys" in key.scopes


def _approve(state: "State", body: Mapping[str, Any], at: float) -> "State":
    """Make the change that was proposed, if another person says so."""
    proposal = _find(state, body["id"], at)
    proposer, approver = proposal.by.get("id", ""), body["by"].get("id", "")
    if not approver or approver == proposer:
        raise InvalidInput("a change must be approved with another key than it was proposed with")
    if not _administers(state, approver, at):
        raise InvalidInput("a change must be approved with a valid key of this ledger that has the scope keys")
    if not _administers(state, proposer, at):
        raise InvalidInput("the key that this change was proposed with is no longer valid; reject the change")
    return SHARE_RULES[proposal.kind](_without(state, proposal), proposal.change, at)


def _reject(state: "State", body: Mapping[str, Any], at: float) -> "State":
    return _without(state, _find(state, body["id"], at))


APPROVAL_RULES = {"proposed": _propose, "approved": _approve, "rejected": _reject}
