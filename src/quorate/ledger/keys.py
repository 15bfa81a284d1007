"""API keys: a public id and a secret. The secret has 256 random bits, so that a plain hash of it gives nothing away."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.ledger.rules import Key, State

__all__ = ["Keys", "token_of"]

_FRESH = 1.0  # seconds for which keys are not read again: a key that is revoked may work so long
_LONGEST = 100


def token_of(
    name: str, scopes: Sequence[str], quota: int | None, per_minute: int | None, *, created: float
) -> tuple[str, dict[str, Any]]:
    """Return a new token, and the key as a ledger keeps it."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InvalidInput(f"name must be a text of 1 to {_LONGEST} characters that says whose key it is")
    for what, limit in (("quota", quota), ("per_minute", per_minute)):
        if limit is not None:
            check_count(what, limit, least=0)
    made, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    key = Key(
        id=made,
        name=name,
        scopes=tuple(dict.fromkeys(scopes)),
        hash=_hash(secret),
        created=created,
        quota=quota,
        per_minute=per_minute,
    )
    return f"qk_{made}_{secret}", asdict(key) | {"scopes": list(key.scopes)}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Keys:
    """The keys of a ledger as this process last read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: State | None = None
        self._read = 0.0

    def find(self, token: str, state: Callable[[], State]) -> Key | None:
        """Return the key of a token, or None."""
        parts = token.split("_", 2)
        if len(parts) != 3 or parts[0] != "qk":
            return None
        with self._lock:
            if self._state is None or time.monotonic() - self._read > _FRESH:
                self._state, self._read = state(), time.monotonic()
            key = self._state.keys.get(parts[1])
        held = key.hash if key is not None else ""
        if not hmac.compare_digest(_hash(parts[2]), held) or key is None or key.revoked:
            return None
        return key

    def read(self, state: Callable[[], State]) -> None:
        """Read the keys now, so that for a while `find` need not."""
        read = state()
        with self._lock:
            self._state, self._read = read, time.monotonic()

    def forget(self) -> None:
        """Read the keys again at the next use."""
        with self._lock:
            self._state = None
