"""The administration of keys over HTTP, for keys of the scope "keys": add, change, rotate, revoke, extend, and who did.

Such a key comes from the command line or from a rule for tokens alone. Over HTTP only keys with the scopes "ask" and
"budget" can be made or changed, so that a stolen one cannot make itself an owner. Each change is an entry of the ledger
and names who made it. With four eyes, what gives more waits for a second key of this scope; what takes away does not.

The subject of a token has another key in each model. `_Desk` alone says who acts in which. What concerns a key of
several models is changed in all of them or in none; a revocation is done at once in the model that is named.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from quorate.core.errors import InvalidInput
from quorate.core.ledger import Key, audit_lines, key_figures, share_figures
from quorate.service._auth import Caller, token_of
from quorate.service._documents import ExtensionOrder, KeyChange, KeyOrder, Nothing, ProjectOrder, RotationOrder
from quorate.service._errors import Refused
from quorate.service._http import context_of, json_response, read_order
from quorate.service._reading import is_owner, read_budget
from quorate.service._settings import Settings
from quorate.service.model import Model

_PER_MINUTE = 60  # requests of a caller to a worker process
_SHARES = ("budget", "no_quorums", "per_phase")
_LIMITS = ("quota", "per_minute", *_SHARES)
_OPEN_SCOPES = {"ask", "budget"}  # that a key may have to be changed over HTTP
_LINES = 5000  # entries that one request for the audit trail reads
_DAY = 24 * 3600.0
_LONGEST_DAYS = 36525
_SECONDS = 10.0  # that a change may take

FindCallers = Callable[[str | None], Awaitable[Mapping[str, Caller]]]


@dataclass(frozen=True, slots=True)
class _Desk:
    """A model that a caller administers, and as whom: its caller there is the key of its own ledger."""

    model: Model
    caller: Caller

    @property
    def ledger(self) -> Any:
        if self.model.ledger is None:
            raise Refused("bad_request", "this model has no ledger, and no keys")
        return self.model.ledger

    @property
    def by(self) -> dict[str, str]:
        return {"via": "http", "id": self.caller.id, "name": self.caller.name}


class Administration:
    """The endpoints of the administration, over the models of a server."""

    def __init__(self, settings: Settings, models: Mapping[str, Model], find_callers: FindCallers) -> None:
        self._four_eyes, self._models, self._find_callers = settings.four_eyes, models, find_callers
        self._counts: dict[str, tuple[int, int]] = {}  # the minute of the last request of each caller, and its requests

    async def list_keys(self, request: Request) -> Response:
        """List keys, projects and proposals."""
        self._count(request)
        view = await read_budget(context_of(request).named_model)
        projects = [{"name": project.name} | share_figures(project, view) for project in view.projects]
        proposals = [asdict(proposal) | {"change": _shown(proposal.change)} for proposal in view.proposals]
        keys = [key_figures(key, view) for key in view.keys]
        return json_response({"keys": keys, "projects": projects, "proposals": proposals})

    async def audit(self, request: Request) -> Response:
        """Return lines of the audit trail.

        Numbers of entries show the owner alone that records came or went (models/knn/PROOF.md, step 9).
        """
        here = self._count(request)
        if here.model.hides_entries and not is_owner(here.caller):
            raise Refused(
                "forbidden", "the trail of this model is for its owner: for keys with the scopes admin and keys"
            )
        text = request.query_params.get("after", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 18):
            raise Refused("bad_request", "after must be the number of an entry")
        ledger, after = here.ledger, int(text)
        state, last = await _change(ledger.state), (await _change(ledger.view)).entries
        start = max(after, 0 if state.compaction is None else state.compaction.through)
        lines = await _change(lambda: list(audit_lines(ledger, after=after, limit=_LINES)))
        read = max([after, min(last, start + _LINES), *(line["seq"] for line in lines)])
        return json_response({"lines": lines, "after": read})

    async def add_key(self, request: Request) -> Response:
        """Make a key."""
        here, order = self._count(request), await read_order(request, KeyOrder)
        share = await _share_of(here, order, project=order.project) if "ask" in order.scopes else _limits_of(order)
        expires = None if order.expires_days is None else _at(order.expires_days)
        make = partial(here.ledger.add_key, order.name, scopes=order.scopes, project=order.project, expires=expires)
        proposal = self._proposal()
        token = await _change(partial(make, by=here.by, proposal=proposal, **share))
        return _ordered(token.split("_")[1], [here], key=token, proposal=proposal)

    async def change_key(self, request: Request) -> Response:
        """Change the share of a key."""
        here, order = self._count(request), await read_order(request, KeyChange)
        key = await _find_open(here, request.path_params["id"])
        values: dict[str, Any] = _limits_of(order) | dict.fromkeys(order.lift)
        values |= {} if order.project is None else {"project": order.project}
        values |= {} if order.expires_days is None else {"expires": _at(order.expires_days)}
        proposal = self._proposal()
        done = await _change(partial(here.ledger.change_key, key.id, by=here.by, proposal=proposal, **values))
        return _ordered(key.id, [here], proposal="" if done else proposal)

    async def rotate_key(self, request: Request) -> Response:
        """Exchange the secret of a key, in all models that it opens and the caller administers."""
        here, order = self._count(request), await read_order(request, RotationOrder)
        if not (math.isfinite(order.grace_hours) and 0 <= order.grace_hours < 24 * 366):
            raise Refused("bad_request", "grace_hours must be a number of hours from 0 up")
        key = await _find_open(here, request.path_params["id"], valid=True)
        desks, proposal, secret = [here, *await self._others(request, key)], self._proposal(), secrets.token_urlsafe(32)

        def rotate(desk: _Desk) -> str:
            told = {"secret": secret, "by": desk.by, "proposal": proposal}
            return str(desk.ledger.rotate_key(key.id, grace=3600 * order.grace_hours, **told))

        token, *_ = await _change_all(desks, rotate)
        return _ordered(key.id, desks, key=token, proposal=proposal)

    async def revoke_key(self, request: Request) -> Response:
        """Revoke a key, in all models that it opens and the caller administers."""
        here = self._count(request)
        await read_order(request, Nothing)
        key = await _find_open(here, request.path_params["id"])

        def revoke(desk: _Desk) -> None:
            desk.ledger.revoke_key(key.id, by=desk.by)

        await _change_all([here], revoke)  # at once, whether the others answer or not
        others = await self._others(request, key)
        await _change_all(others, revoke)
        return _ordered(key.id, [here, *others])

    async def extend_key(self, request: Request) -> Response:
        """Let a key open other models that the caller administers too."""
        here, order = self._count(request), await read_order(request, ExtensionOrder)
        id, mine = request.path_params["id"], await self._administered(request)
        names = [name for name in dict.fromkeys(order.models) if name != here.model.name]
        if not names or not set(names) <= mine.keys():
            raise Refused("forbidden", "models must be others that this key administers too")
        if (await _find_open(here, id, valid=True)).issuer:
            raise Refused("bad_request", "the tokens of an issuer open the models that its rules name")
        desks, proposal = [mine[name] for name in names], self._proposal()
        shares = [await _share_of(desk, order) for desk in desks]

        def extend() -> None:
            with _together([here, *desks]) as (state, *others):
                for desk, other, share in zip(desks, others, shares, strict=True):
                    if id in other.keys:
                        raise InvalidInput(f"{desk.model.name} must not have a key {id} yet")
                    desk.ledger.copy_key(state.keys[id], by=desk.by, proposal=proposal, **share)

        await _change(extend)
        return _ordered(id, [here, *desks], proposal=proposal)

    async def set_project(self, request: Request) -> Response:
        """Make a project, or change its share."""
        here, order = self._count(request), await read_order(request, ProjectOrder)
        values, proposal = _limits_of(order) | dict.fromkeys(order.lift), self._proposal()
        project = partial(here.ledger.set_project, order.name, by=here.by, proposal=proposal)
        done = await _change(partial(project, **values))
        return _ordered(order.name, [here], proposal="" if done else proposal)

    async def approve(self, request: Request) -> Response:
        """Make a change that was proposed with another key."""
        return await self._decide(request, approve=True)

    async def reject(self, request: Request) -> Response:
        """Drop a change that was proposed."""
        return await self._decide(request, approve=False)

    async def _decide(self, request: Request, *, approve: bool) -> Response:
        """Decide a proposal, in all models that have it: the caller must administer each."""
        here, id = self._count(request), request.path_params["id"]
        await read_order(request, Nothing)
        mine = await self._administered(request)
        models = [model for model in self._models.values() if model.ledger is not None and not model.refused]
        states = {model.name: await _change(model.ledger.state) for model in models}
        waiting = {name for name, state in states.items() if id in state.proposals} - {here.model.name}
        if not waiting <= mine.keys():
            raise Refused("forbidden", "this change is of other models too, and this key does not administer them all")
        if approve:
            _check_secret(id, states.values())

        def decide(desk: _Desk) -> None:
            desk.ledger.decide_proposal(id, by=desk.by, approve=approve)

        desks = [here, *(mine[name] for name in waiting)]
        await _change_all(desks, decide)
        return _ordered(id, desks)

    def _proposal(self) -> str:
        """Return the id of a proposal; an empty text where one person decides."""
        return secrets.token_hex(4) if self._four_eyes else ""

    def _count(self, request: Request) -> _Desk:
        """Count a request of a caller, and return the desk of the model that it names; refuse too many in a minute."""
        context, minute = context_of(request), int(time.monotonic() // 60)
        last, count = self._counts.get(context.caller.id, (minute, 0))
        count = count + 1 if last == minute else 1
        if count > _PER_MINUTE:
            raise Refused("rate_limited", f"this key may send {_PER_MINUTE} such requests a minute; wait and go on")
        self._counts[context.caller.id] = minute, count
        return _Desk(context.named_model, context.caller)

    async def _administered(self, request: Request) -> dict[str, _Desk]:
        """Return the models that the caller administers, and as whom."""
        callers = await self._find_callers(token_of(context_of(request).headers.get(b"authorization")))
        desks = {name: _Desk(self._models[name], caller) for name, caller in callers.items() if caller.may("keys")}
        return {name: desk for name, desk in desks.items() if desk.model.ledger is not None and not desk.model.refused}

    async def _others(self, request: Request, key: Key) -> list[_Desk]:
        """Return the other models that this very key opens, or opened by a secret before, among those of the caller."""
        named, others, hashes = context_of(request).named_model, [], {key.hash, key.former} - {""}
        for desk in (await self._administered(request)).values():
            other = (await _change(desk.ledger.state)).keys.get(key.id)
            same = other is not None and other.name == key.name and not hashes.isdisjoint({other.hash, other.former})
            if same and desk.model is not named:
                others.append(desk)
        return others


def _check_secret(id: str, states: Iterable[Any]) -> None:
    """Refuse to let a key open another model by a secret that was revoked or exchanged since that was proposed."""
    states = list(states)
    keys = [state.proposals[id].change.get("key", {}) for state in states if id in state.proposals]
    for key, state in product(keys, states):
        present = state.keys.get(key.get("id"))
        if present is not None and (present.revoked or present.hash != key["hash"]):
            raise Refused("bad_request", "this key was revoked or has another secret by now; reject the change")


async def _change(change: Callable[[], Any]) -> Any:
    """Read or change a ledger in a thread, and return the result."""
    try:
        async with asyncio.timeout(_SECONDS):
            return await asyncio.to_thread(change)
    except InvalidInput as error:  # It speaks of keys, projects and limits, which the caller may list.
        raise Refused("bad_request", str(error)) from None
    except TimeoutError:
        raise Refused("ledger_refused", cause="ledger_unanswering") from None


@contextmanager
def _together(desks: Sequence[_Desk]) -> Iterator[list[Any]]:
    """Yield the states of the ledgers of these desks, whose keys are changed in all of them, or after an error in none.

    They are locked in the order of their names, so that two administrators do not wait for each other.
    """
    with ExitStack() as stack:
        ordered = sorted(desks, key=lambda desk: desk.model.name)
        states = {desk.model.name: stack.enter_context(desk.ledger.holding_keys()) for desk in ordered}
        yield [states[desk.model.name] for desk in desks]


async def _change_all(desks: Sequence[_Desk], change: Callable[[_Desk], Any]) -> list[Any]:
    """Make a change at all these desks, or at none."""

    def make() -> list[Any]:
        with _together(desks):
            return [change(desk) for desk in desks]

    done: list[Any] = await _change(make)
    return done


async def _find_open(desk: _Desk, id: str, *, valid: bool = False) -> Key:
    """Return a key that may be changed over HTTP; with `valid`, one that was not revoked."""
    key: Key | None = (await _change(desk.ledger.state)).keys.get(id)
    if key is None:
        raise Refused("bad_request", "there is no key with this id; list the keys")
    if not set(key.scopes) <= _OPEN_SCOPES:
        raise Refused("forbidden", "a key with the scope admin or keys is changed in the model's folder alone")
    if valid and key.revoked:
        raise Refused("bad_request", "this key was revoked; make a new one")
    return key


async def _share_of(desk: _Desk, order: KeyOrder | ExtensionOrder, *, project: str = "") -> dict[str, Any]:
    """Return the limits of an order, or the default where it sets none."""
    share = _limits_of(order)
    if not order.unlimited and share.keys().isdisjoint(_SHARES):
        assert desk.model.default_share is not None
        share |= await _change(partial(desk.model.default_share, project))
    return share


def _limits_of(order: KeyOrder | KeyChange | ProjectOrder | ExtensionOrder) -> dict[str, Any]:
    return {name: value for name in _LIMITS if (value := getattr(order, name)) is not None}


def _at(days: float) -> float:
    if not 0 < days < _LONGEST_DAYS:
        raise Refused("bad_request", "expires_days must be a number of days above 0")
    return time.time() + days * _DAY


def _shown(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a proposed change without hashes."""
    hidden = ("hash", "former", "by")
    return {
        name: _shown(value) if isinstance(value, Mapping) else value
        for name, value in change.items()
        if name not in hidden
    }


def _ordered(id: str, desks: Sequence[_Desk], *, key: str = "", proposal: str = "") -> Response:
    models = [desk.model.name for desk in desks]
    document = {"id": id, "models": models, "key": key or msgspec.UNSET, "proposal": proposal or msgspec.UNSET}
    return json_response({name: value for name, value in document.items() if value is not msgspec.UNSET})
