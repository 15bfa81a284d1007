"""Authentication of callers and their scopes.

A key comes as `Authorization: Bearer KEY`, or as the password of HTTP Basic, which browsers can send. It belongs to one
model: to the ledger that made it. Scopes are "ask", "budget", "admin", which includes these two, and "keys", which
changes keys and which no other scope includes. Tokens of other issuers come in the same way, and open the key of their
subject (`quorate.service._identity`). A server without keys listens on loopback only, and every local caller counts as
its owner. Requests from pages of other sites are refused, and so are requests whose Host header is not a loopback name
(DNS rebinding).
"""

import asyncio
import base64
import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quorate.core.errors import LedgerRefused
from quorate.service._errors import Refused
from quorate.service._settings import is_loopback

CHALLENGES = ('Bearer realm="quorate"', 'Basic realm="quorate", charset="UTF-8"')  # browsers read one from each line

_KEPT_SECONDS = 1.0  # how long a key that was revoked may still be taken for one
_SEARCH_SECONDS = 5.0  # that a ledger may take to look for a key
_NO_PLACE = ("subjects", "token_rule")  # causes for which a model takes a caller neither now nor later
_KEY_LIMIT, _TOKEN_LIMIT = 256, 8192  # characters of a key, and of a token of an issuer


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: the id of its key, its scopes, and the name of its holder."""

    id: str
    scopes: frozenset[str]
    name: str = ""

    def may(self, scope: str) -> bool:
        """Return whether this caller has a scope; every caller has the scope ""."""
        return not scope or scope in self.scopes or ("admin" in self.scopes and scope != "keys")


OWNER = Caller("", frozenset({"admin"}))
ANYBODY = Caller("", frozenset({"ask"}))  # of a published model


class Access:
    """The callers of some models, found by their keys; each is remembered for a second, under its very token."""

    def __init__(self, *, required: bool = True) -> None:
        self._finders: dict[str, Callable[[str], Any]] = {}
        self._decoys: dict[str, Callable[[str], Any]] = {}  # what unknown models search
        self.required, self.published = required, set[str]()  # models that anybody may ask
        self._callers: dict[tuple[str, bytes], tuple[Caller, float]] = {}  # and until when each is remembered
        self._searches: dict[tuple[str, bytes], asyncio.Future[Caller | None]] = {}

    def register(
        self,
        model: str,
        finder: Callable[[str], Any] | None,
        *,
        decoy: Callable[[str], Any] | None = None,
        published: bool = False,
    ) -> None:
        """Open a model to callers and forget cached callers of a former model of this name.

        Parameters
        ----------
        model
            The name of the model.
        finder
            Looks a token up in the model's ledger. None for a model without keys.
        decoy
            Takes the same steps and changes nothing, for unknown models; None where the finder changes nothing.
        published
            Whether the model was published and needs no key.
        """
        self._callers = {entry: caller for entry, caller in self._callers.items() if entry[0] != model}
        self._finders.pop(model, None)
        self._decoys.pop(model, None)
        self.published.discard(model)
        if finder is not None:
            self._finders[model], self._decoys[model] = finder, decoy or finder
        if published:
            self.published.add(model)

    async def caller(self, model: str, token: str | None) -> Caller | None:
        """Return the caller with this token, or None for a token that the model does not know.

        An unknown model takes the same steps, so that the time of a refusal does not show which models exist.
        """
        if not self.required:
            return OWNER
        if model in self.published:
            return ANYBODY
        if token is None or len(token) > (_TOKEN_LIMIT if is_token(token) else _KEY_LIMIT):
            return None
        entry = model, hashlib.blake2b(token.encode(), digest_size=16).digest()
        remembered = self._callers.get(entry)
        if remembered is not None and remembered[1] > time.monotonic():
            return remembered[0]
        search = self._searches.get(entry)
        if search is None:  # requests that come meanwhile wait for the same search
            search = self._searches[entry] = asyncio.ensure_future(self._search(entry, token))
        return await asyncio.shield(search)

    async def models(self, token: str | None, *, complete: bool = False) -> dict[str, Caller]:
        """Return the models that know this token, and as whom. One that takes no more callers is left out.

        So is one that cannot answer, unless `complete`.
        """
        callers: dict[str, Caller] = {}
        refusal: Refused | LedgerRefused | None = None
        for model in list(self._finders):
            try:
                caller = await self.caller(model, token)
            except (Refused, LedgerRefused) as error:
                if error.cause not in _NO_PLACE and (complete or getattr(error, "code", "") == "unauthenticated"):
                    raise
                refusal = error
            else:
                callers |= {} if caller is None else {model: caller}
        if refusal is not None and not callers:
            raise refusal
        return callers

    async def _search(self, entry: tuple[str, bytes], token: str) -> Caller | None:
        try:
            while True:
                finder = self._finders.get(entry[0])
                decoy = next(iter(self._decoys.values()), _find_nothing)  # An unknown model searches a real ledger.
                async with asyncio.timeout(_SEARCH_SECONDS):
                    key = await asyncio.to_thread(finder or decoy, token)
                if finder is self._finders.get(entry[0]):  # or else the model was exchanged meanwhile
                    break
        except TimeoutError:  # Another process holds the lock of the ledger.
            raise Refused("ledger_refused", cause="ledger_unanswering") from None
        finally:
            del self._searches[entry]
        if finder is None or key is None or key.revoked:
            self._callers.pop(entry, None)  # Unknown tokens are not cached, so they cannot evict callers with keys.
            return None
        caller = Caller(key.id, frozenset(key.scopes), key.name)
        now = time.monotonic()
        self._callers.pop(entry, None)
        self._callers[entry] = caller, now + _KEPT_SECONDS
        while self._callers[first := next(iter(self._callers))][1] <= now:  # the first lapses first
            del self._callers[first]
        return caller


def _find_nothing(token: str) -> None:
    return None


def is_token(text: str) -> bool:
    """Return whether a text can be a token of an issuer; keys of this server have no dots."""
    return text.count(".") == 2


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
    """Refuse requests that a page of another site sends through a browser.

    Parameters
    ----------
    headers
        The headers of the request, with names in lower case.
    keys
        Whether the server requires keys. Without keys the Host header must be a loopback name.
    writes
        Whether the request changes state. Then an Origin header must match the Host header.
    """
    host = headers.get(b"host", b"")
    if not keys and host:  # A foreign name that resolves to loopback would pass as same-origin.
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
