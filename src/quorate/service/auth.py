"""Who asks, and what they may do.

A key comes as `Authorization: Bearer KEY`, or as the password of HTTP Basic, which browsers can send. It belongs to one
model: to the ledger that made it. Scopes are "ask", "budget" and "admin", which includes the other two. Where a server
runs without keys, on loopback alone, everybody who reaches it is its owner; a page of another site is not, and neither
is one that reaches loopback under a name of its own.
"""

import asyncio
import base64
import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from quorate.service.errors import Refused
from quorate.service.settings import is_loopback

CHALLENGES = ('Bearer realm="quorate"', 'Basic realm="quorate", charset="UTF-8"')  # browsers read one from each line

_KEPT_SECONDS = 1.0  # how long a key that was revoked may still be taken for one
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request: the id of its key, and its scopes."""

    id: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Return whether this caller has a scope; every caller has the scope ""."""
        return not scope or scope in self.scopes or "admin" in self.scopes


OWNER = Caller("", frozenset({"admin"}))
ANYBODY = Caller("", frozenset({"ask"}))  # of a published model


class Access:
    """The callers of some models, found by their keys.

    A token that was found is kept for a second, for whoever has that very token.
    """

    def __init__(self, *, required: bool = True) -> None:
        self._finders: dict[str, Callable[[str], Any]] = {}
        self.required, self._published = required, set[str]()
        self._known: dict[tuple[str, bytes], tuple[Caller, float]] = {}
        self._looking: dict[tuple[str, bytes], asyncio.Future[Caller | None]] = {}

    def put(self, model: str, finder: Callable[[str], Any] | None, *, published: bool = False) -> None:
        """Let a model be asked. `finder` looks a token up in its ledger; one that was `published` needs no key.

        Who was known to the model before it in this place is looked up again: this one may have other keys.
        """
        self._known = {place: known for place, known in self._known.items() if place[0] != model}
        self._finders.pop(model, None)
        self._published.discard(model)
        if finder is not None:
            self._finders[model] = finder
        if published:
            self._published.add(model)

    async def caller(self, model: str, token: str | None) -> Caller | None:
        """Return who asks this model, or None for nobody it knows."""
        if not self.required:
            return OWNER
        if model in self._published:
            return ANYBODY
        if token is None or len(token) > _LONGEST or model not in self._finders:
            return None
        place = model, hashlib.blake2b(token.encode(), digest_size=16).digest()
        known = self._known.get(place)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        looking = self._looking.get(place)
        if looking is None:  # those who come meanwhile wait for the same look
            looking = self._looking[place] = asyncio.ensure_future(self._look(place, token))
        return await asyncio.shield(looking)

    async def models(self, token: str | None) -> dict[str, Caller]:
        """Return the models that know this token, and as whom."""
        callers = {model: await self.caller(model, token) for model in list(self._finders)}
        return {model: caller for model, caller in callers.items() if caller is not None}

    @property
    def published(self) -> Collection[str]:
        """The models that anybody may ask."""
        return self._published

    async def _look(self, place: tuple[str, bytes], token: str) -> Caller | None:
        try:
            while True:
                finder = self._finders.get(place[0])
                key = None if finder is None else await asyncio.to_thread(finder, token)
                if finder is self._finders.get(place[0]):  # or else the model was exchanged meanwhile
                    break
        finally:
            del self._looking[place]
        caller = None
        if key is not None and not key.revoked:
            caller = Caller(key.id, frozenset(key.scopes))
        if caller is None:  # strangers leave nothing behind, and cannot crowd out who has a key
            self._known.pop(place, None)
        else:
            self._known[place] = caller, time.monotonic() + _KEPT_SECONDS
        return caller


def token_of(authorization: bytes | None) -> str | None:
    """Return the key in the value of an Authorization header, or None."""
    if authorization is None:
        return None
    scheme, _, value = authorization.partition(b" ")
    with contextlib.suppress(ValueError):  # no ASCII, no base64, or no UTF-8 in it
        if scheme.lower() == b"bearer":
            return value.strip().decode("ascii")
        if scheme.lower() == b"basic":
            return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
    return None


def check_site(headers: Mapping[bytes, bytes], *, keys: bool, writes: bool) -> None:
    """Refuse what a page of another site makes a browser send."""
    host = headers.get(b"host", b"")
    if not keys and host:  # a name that somebody else points to loopback would make their page ours
        name = host.decode("latin-1")
        bare = name[1:].partition("]")[0] if name.startswith("[") else name.rpartition(":")[0] or name
        if not is_loopback(bare):
            raise Refused("cross_site")
    if not writes:
        return
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != host:
        raise Refused("cross_site")
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        raise Refused("cross_site")
