"""The administration of keys over HTTP, for keys of the scope "keys": add, change, rotate, revoke, extend, and who did.

Such a key comes from the command line or from a rule for tokens alone. Over HTTP only keys with the scopes "ask" and
"budget" can be made or changed, so that a stolen one cannot make itself an owner. Each change is an entry of the ledger
and names who made it. With four eyes, what gives more waits for a second key of this scope; what takes away does not.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
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
        model = self._count(request)
        if model.hides_entries and not is_owner(context_of(request).caller):
            raise Refused(
                "forbidden", "the trail of this model is for its owner: for keys with the scopes admin and keys"
            )
        text = request.query_params.get("after", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 18):
            raise Refused("bad_request", "after must be the number of an entry")
        ledger, after = _ledger(model), int(text)
        state, last = await _change(ledger.state), (await _change(ledger.view)).entries
        start = max(after, 0 if state.compaction is None else state.compaction.through)
        lines = await _change(lambda: list(audit_lines(ledger, after=after, limit=_LINES)))
        read = max([after, min(last, start + _LINES), *(line["seq"] for line in lines)])
        return json_response({"lines": lines, "after": read})

    async def add_key(self, request: Request) -> Response:
        """Make a key."""
        model, order = self._count(request), await read_order(request, KeyOrder)
        share = _limits_of(order)
        if not order.unlimited and share.keys().isdisjoint(_SHARES) and "ask" in order.scopes:
            assert model.default_share is not None
            share |= await _change(partial(model.default_share, order.project))
        expires = None if order.expires_days is None else _at(order.expires_days)
        make = partial(_ledger(model).add_key, order.name, scopes=order.scopes, project=order.project, expires=expires)
        proposal = self._proposal()
        token = await _change(partial(make, by=_actor(request), proposal=proposal, **share))
        return _ordered(token.split("_")[1], [model.name], key=token, proposal=proposal)

    async def change_key(self, request: Request) -> Response:
        """Change the share of a key."""
        model, order = self._count(request), await read_order(request, KeyChange)
        key = await _find_open(model, request.path_params["id"])
        values: dict[str, Any] = _limits_of(order) | dict.fromkeys(order.lift)
        values |= {} if order.project is None else {"project": order.project}
        values |= {} if order.expires_days is None else {"expires": _at(order.expires_days)}
        proposal = self._proposal()
        done = await _change(
            partial(_ledger(model).change_key, key.id, by=_actor(request), proposal=proposal, **values)
        )
        return _ordered(key.id, [model.name], proposal="" if done else proposal)

    async def rotate_key(self, request: Request) -> Response:
        """Exchange the secret of a key, in all models that it opens and the caller administers."""
        model, order = self._count(request), await read_order(request, RotationOrder)
        if not (math.isfinite(order.grace_hours) and 0 <= order.grace_hours < 24 * 366):
            raise Refused("bad_request", "grace_hours must be a number of hours from 0 up")
        key = await _find_open(model, request.path_params["id"])
        others, proposal = await self._others(request, key), self._proposal()
        rotate = partial(_ledger(model).rotate_key, key.id, grace=3600 * order.grace_hours)
        token = await _change(partial(rotate, by=_actor(request), proposal=proposal))
        if not proposal:  # The others follow once it is approved.
            await self._copy(request, model, key.id, others)
        return _ordered(key.id, [model.name, *(other.name for other in others)], key=token, proposal=proposal)

    async def revoke_key(self, request: Request) -> Response:
        """Revoke a key, in all models that it opens and the caller administers."""
        model = self._count(request)
        await read_order(request, Nothing)
        key = await _find_open(model, request.path_params["id"])
        others = [model, *await self._others(request, key)]
        for other in others:
            await _change(partial(_ledger(other).revoke_key, key.id, by=_actor(request)))
        return _ordered(key.id, [other.name for other in others])

    async def extend_key(self, request: Request) -> Response:
        """Let a key open other models that the caller administers too."""
        model, order = self._count(request), await read_order(request, ExtensionOrder)
        key, mine = await _find_open(model, request.path_params["id"]), await self._administered(request)
        names = [name for name in dict.fromkeys(order.models) if name != model.name]
        if not names or not set(names) <= mine.keys():
            raise Refused("forbidden", "models must be others that this key administers too")
        if key.issuer:
            raise Refused("bad_request", "the tokens of an issuer open the models that its rules name")
        proposal = self._proposal()
        for other in (mine[name] for name in names):
            share = _limits_of(order)
            if not order.unlimited and share.keys().isdisjoint(_SHARES):
                assert other.default_share is not None
                share |= await _change(partial(other.default_share, ""))
            copy = partial(_ledger(other).copy_key, key, by=_actor(request), proposal=proposal)
            await _change(partial(copy, **share))
        return _ordered(key.id, [model.name, *names], proposal=proposal)

    async def set_project(self, request: Request) -> Response:
        """Make a project, or change its share."""
        model, order = self._count(request), await read_order(request, ProjectOrder)
        values, proposal = _limits_of(order) | dict.fromkeys(order.lift), self._proposal()
        project = partial(_ledger(model).set_project, order.name, by=_actor(request), proposal=proposal)
        done = await _change(partial(project, **values))
        return _ordered(order.name, [model.name], proposal="" if done else proposal)

    async def approve(self, request: Request) -> Response:
        """Make a change that was proposed with another key."""
        return await self._decide(request, approve=True)

    async def reject(self, request: Request) -> Response:
        """Drop a change that was proposed."""
        return await self._decide(request, approve=False)

    async def _decide(self, request: Request, *, approve: bool) -> Response:
        """Decide a proposal, in all models that have it and that the caller administers."""
        model, id = self._count(request), request.path_params["id"]
        await read_order(request, Nothing)
        others = []
        for other in (await self._administered(request)).values():
            if other is model or id in (await _change(_ledger(other).state)).proposals:
                decide = partial(_ledger(other).decide_proposal, id, by=_actor(request), approve=approve)
                await _change(decide)
                others.append(other.name)
        return _ordered(id, others)

    def _proposal(self) -> str:
        """Return the id of a proposal; an empty text where one person decides."""
        return secrets.token_hex(4) if self._four_eyes else ""

    def _count(self, request: Request) -> Model:
        """Count a request of a caller, and return the model that it names; refuse too many in a minute."""
        context, minute = context_of(request), int(time.monotonic() // 60)
        last, count = self._counts.get(context.caller.id, (minute, 0))
        count = count + 1 if last == minute else 1
        if count > _PER_MINUTE:
            raise Refused("rate_limited", f"this key may send {_PER_MINUTE} such requests a minute; wait and go on")
        self._counts[context.caller.id] = minute, count
        return context.named_model

    async def _administered(self, request: Request) -> dict[str, Model]:
        """Return the models that the caller administers."""
        callers = await self._find_callers(token_of(context_of(request).headers.get(b"authorization")))
        mine = [name for name, caller in callers.items() if caller.may("keys")]
        return {name: self._models[name] for name in mine if not self._models[name].refused}

    async def _others(self, request: Request, key: Key) -> list[Model]:
        """Return the other models that this very key opens, among those that the caller administers."""
        named, others = context_of(request).named_model, []
        for model in (await self._administered(request)).values():
            other = (await _change(_ledger(model).state)).keys.get(key.id)
            same = other is not None and other.hash and (other.hash, other.name) == (key.hash, key.name)
            if same and model is not named:
                others.append(model)
        return others

    async def _copy(self, request: Request, model: Model, id: str, others: list[Model]) -> None:
        key = (await _change(_ledger(model).state)).keys[id]
        for other in others:
            await _change(partial(_ledger(other).copy_key, key, by=_actor(request)))


def _ledger(model: Model) -> Any:
    if model.ledger is None:
        raise Refused("bad_request", "this model has no ledger, and no keys")
    return model.ledger


async def _change(change: Callable[[], Any]) -> Any:
    """Read or change a ledger in a thread, and return the result."""
    try:
        async with asyncio.timeout(_SECONDS):
            return await asyncio.to_thread(change)
    except InvalidInput as error:  # It speaks of keys, projects and limits, which the caller may list.
        raise Refused("bad_request", str(error)) from None
    except TimeoutError:
        raise Refused("ledger_refused", cause="ledger_unanswering") from None


async def _find_open(model: Model, id: str) -> Key:
    """Return a key that may be changed over HTTP."""
    key: Key | None = (await _change(_ledger(model).state)).keys.get(id)
    if key is None:
        raise Refused("bad_request", "there is no key with this id; list the keys")
    if not set(key.scopes) <= _OPEN_SCOPES:
        raise Refused("forbidden", "a key with the scope admin or keys is changed in the model's folder alone")
    return key


def _actor(request: Request) -> dict[str, str]:
    caller = context_of(request).caller
    return {"via": "http", "id": caller.id, "name": caller.name}


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


def _ordered(id: str, models: list[str], *, key: str = "", proposal: str = "") -> Response:
    document = {"id": id, "models": models, "key": key or msgspec.UNSET, "proposal": proposal or msgspec.UNSET}
    return json_response({name: value for name, value in document.items() if value is not msgspec.UNSET})
