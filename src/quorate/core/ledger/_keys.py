"""The keys of a ledger, and the shares that keys and projects have.

An API key is a public id and a secret. The secret has 256 random bits, so that a plain hash of it gives nothing away.
The id is the caller: answers and shares belong to it, and stay when the secret is exchanged for a new one.
"""

import hashlib
import hmac
import math
import os
import pwd
import secrets
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput, LedgerRefused, QuotaSpent
from quorate.core.ledger._approvals import is_wider
from quorate.core.ledger._rules import State
from quorate.core.ledger._shares import LIMITS, Key, Share, check_key, find_subject
from quorate.core.ledger.chain import Change, LedgerPart

_FRESH = 1.0  # seconds for which keys are not read again: a key that is revoked may work so long
_STALE = 600.0  # seconds for which they are known while the ledger cannot be read: metrics can be
_LONGEST = 100
_DEFAULT_PARTS = 10  # A key for which no share is given may use one of so many parts.
_LOOK_ALIKES = str.maketrans(  # Cyrillic and Greek letters, digits and signs, and the Latin letter each looks like
    "АВЕЅІЈКМНОРСТУХаеѕіјорсухԁһԛԝҮүΑΒΕΖΗΙΚΜΝΟΡΤΥΧονιρυχ0151|ıIl",
    "ABESIJKMHOPCTYXaesijopcyxdhqwYyABEZHIKMNOPTYXoviruxolsllill",
)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _checked_name(title: str, name: Any, others: Iterable[str]) -> str:
    """Return a name that nobody can mistake for one of `others`; the very same name is accepted."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InvalidInput(f"{title} must be a text of 1 to {_LONGEST} characters that says whose key it is")
    if unicodedata.normalize("NFC", name) != name or len(_alphabets(name)) > 1:
        raise InvalidInput(f"{title} must be composed text (NFC) with letters of one alphabet")
    for other in others:
        if other != name and _skeleton(other) == _skeleton(name):
            raise InvalidInput(
                f"{title} must not look like {other!a}, got {name!a}; repeat that name or choose another"
            )
    return name


def _alphabets(name: str) -> set[str]:
    """Return the alphabets of Europe from which a text has letters: those that look alike."""
    return {unicodedata.name(sign, "").partition(" ")[0] for sign in name} & {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN"}


def _skeleton(name: str) -> str:
    """Return what a reader sees of a text: width, accents, case and similar letters make no difference."""
    plain = unicodedata.normalize("NFKD", name.translate(_LOOK_ALIKES)).casefold().translate(_LOOK_ALIKES)
    return "".join(sign for sign in plain if not unicodedata.combining(sign) and not sign.isspace())


Actor = Mapping[str, str]


def local_actor() -> Actor:
    """Return who changes keys in this process: a user of the operating system."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # such as in a container
        name = str(os.getuid())
    return {"via": "command", "name": name, "host": socket.gethostname()}


def _record(change: Change, kind: str, body: dict[str, Any], by: Actor | None, *, proposal: str = "") -> None:
    """Append an entry with who makes it, or the proposal of it under an id."""
    named = {"by": dict(local_actor() if by is None else by)}
    if proposal:
        change.append("proposed", {"id": proposal, "kind": kind, "change": body | named} | named)
    else:
        change.append(kind, body | named)


def _limits(state: State, values: Mapping[str, Any]) -> dict[str, int | None]:
    """Return limits as a share keeps them; `budget`, a part of the whole, becomes a cost in quanta."""
    limits = {name: value for name, value in values.items() if name in LIMITS}
    for name, value in limits.items():
        if value is not None:
            check_count(name, value, least=0)
    if "budget" in values:
        part = values["budget"]
        if part is not None and not (isinstance(part, int | float) and math.isfinite(part) and 0 <= part <= 1):
            raise InvalidInput(f"budget must be a part of the whole, from 0 to 1, got {part!r}")
        limits["cost"] = None if part is None else math.floor(Fraction(part) * state.capacity[0])
    return limits


class _Known:
    """The keys as this process last read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: State | None = None
        self._read = 0.0

    def find(self, token: str, state: Callable[[], State]) -> Key | None:
        """Return the key of a token, or None."""
        parts = token.split("_", 2)
        if len(parts) != 3 or parts[0] != "qk":
            return None
        key = self.latest(state).keys.get(parts[1])
        at, digest = time.time(), _hash(parts[2])
        fits = hmac.compare_digest(digest, key.hash if key is not None else "")
        former = key.former if key is not None and at < key.former_until else ""
        fits = hmac.compare_digest(digest, former) or fits
        return key if fits and key is not None and key.opens(at) else None

    def latest(self, state: Callable[[], State]) -> State:
        """Return what was read lately. Where the ledger cannot be read nothing is answered, and old keys will do."""
        with self._lock:
            age = time.monotonic() - self._read
            if self._state is None or age > _FRESH:
                try:
                    self._state, self._read = state(), time.monotonic()
                except LedgerRefused:
                    if self._state is None or age > _STALE:
                        raise
            return self._state

    def read(self, state: Callable[[], State]) -> None:
        """Read the keys now, so that for a while `find` need not."""
        read = state()
        with self._lock:
            self._state, self._read = read, time.monotonic()

    def forget(self) -> None:
        """Read the keys again at the next use."""
        with self._lock:
            self._state = None


class KeyRing(LedgerPart):
    """The part of a `Ledger` that keeps keys and projects.

    Limits are `quota`, `per_minute` and `per_phase` (rows), `no_quorums`, and `budget`, a part of the whole budget from
    0 to 1. None is no limit.
    """

    @cached_property
    def _key_cache(self) -> _Known:
        return _Known()

    @cached_property
    def _held(self) -> threading.local:
        return threading.local()  # with the `change` of a thread in `holding_keys`

    @contextmanager
    def _key_change(self) -> Iterator[Change]:
        """Open a transaction on keys, or go on in that of `holding_keys`."""
        if (held := getattr(self._held, "change", None)) is not None:
            yield held
            return
        with self.change() as change:
            yield change
        self._key_cache.forget()

    @contextmanager
    def holding_keys(self) -> Iterator[State]:
        """Yield the state, and let this thread change keys: all is written at the end, or nothing after an error.

        So keys of several ledgers are changed in all of them or in none. Nothing else may be asked of the ledger.
        """
        with self._key_change() as change:
            self._held.change = change
            try:
                yield change.state
            finally:
                self._held.change = None

    def add_key(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("ask",),
        project: str = "",
        expires: float | None = None,
        by: Actor | None = None,
        proposal: str = "",
        **limits: Any,
    ) -> str:
        """Make an API key and return its token, which is shown this once: only a hash of it is kept.

        The entry names who made it: `by`, or the user of this process. With the id of a new `proposal` the key waits
        for the approval of a second person; so it is with other changes that give more than before.
        """
        key_id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        with self._key_change() as change:
            key = Key(
                id=key_id,
                name=_checked_name("name", name, (key.name for key in change.state.keys.values())),
                scopes=tuple(dict.fromkeys(scopes)),
                hash=_hash(secret),
                created=change.at,
                project=project,
                expires=expires,
                **_limits(change.state, _known_limits(limits)),  # type: ignore[arg-type]
            )
            _record(change, "key_added", _added(key), by, proposal=proposal)
        return f"qk_{key_id}_{secret}"

    def copy_key(self, key: Key, *, by: Actor | None = None, proposal: str = "", **limits: Any) -> None:
        """Let the key of another ledger open this one too, by the same secret, with a share here.

        Where it is here already, its secret and its revocation are copied, and its share stays. One that was revoked
        is not added.
        """
        with self._key_change() as change:
            present = change.state.keys.get(key.id)
            if present is None and key.revoked:
                raise InvalidInput(f"the key {key.id} must not be revoked; make a new key")
            if present is None:
                names = (other.name for other in change.state.keys.values())
                copied = Key(
                    id=key.id,
                    name=_checked_name("name", key.name, names),
                    scopes=key.scopes,
                    hash=key.hash,
                    created=change.at,
                    expires=key.expires,
                    **_limits(change.state, _known_limits(limits)),  # type: ignore[arg-type]
                )
                _record(change, "key_added", _added(copied), by, proposal=proposal)
            elif (present.name, present.issuer) != (key.name, ""):
                raise InvalidInput(f"the key {key.id} must be the same in both ledgers, got {present.name!a} in one")
            elif present.hash != key.hash:
                body = {"id": key.id, "hash": key.hash, "former_until": key.former_until}
                _record(change, "key_rotated", body, by, proposal=proposal)
            if present is not None and key.revoked and not present.revoked:
                _record(change, "key_revoked", {"id": key.id}, by)

    def check_share(self, project: str, *, scopes: Sequence[str], **limits: Any) -> None:
        """Refuse a share that no key of this ledger can have."""
        state = self.state()
        values: dict[str, Any] = _limits(state, _known_limits(limits))
        check_key(state, Key(id="", name="", scopes=tuple(scopes), hash="", created=0.0, project=project, **values))

    def add_subject(
        self,
        name: str,
        *,
        issuer: str,
        subject: str,
        most: int | None,
        scopes: Sequence[str],
        project: str = "",
        **limits: Any,
    ) -> Key:
        """Return the key of a subject of an issuer of tokens; make it, with this share, unless it is there.

        The share of a key that is there stays. At most `most` subjects have keys, because every answer writes all keys.
        None is for those who administer the model: others must not keep them out.
        """
        with self._key_change() as change:
            present = find_subject(change.state, issuer, subject)
            if present is not None:
                return present
            if most is not None and sum(bool(key.issuer) for key in change.state.keys.values()) >= most:
                raise QuotaSpent(f"{most} subjects of issuers have keys of this model, and it takes no more")
            key = Key(
                id=secrets.token_hex(4),
                name=name,
                scopes=tuple(scopes),
                hash="",
                created=change.at,
                project=project,
                issuer=issuer,
                subject=subject,
                **_limits(change.state, _known_limits(limits)),  # type: ignore[arg-type]
            )
            _record(change, "key_added", _added(key), {"via": "token", "id": key.id, "name": name})
        return key

    def set_scopes(self, id: str, scopes: Sequence[str]) -> None:
        """Note the scopes of a subject's latest token, so that others see whether it administers the model."""
        with self._key_change() as change:
            key = change.state.keys[id]
            if key.scopes != tuple(scopes):
                body = {"id": id, "values": {"scopes": list(scopes)}}
                _record(change, "key_changed", body, {"via": "token", "id": id, "name": key.name})

    def default_share(self, project: str = "", *, phase_no_quorums: int | None = None) -> dict[str, Any]:
        """Return the limit of a key for which none is given: a tenth of the budget, or of what closes a phase.

        A phase closes when its seats are taken, or after `phase_no_quorums` no-quorums. Rows bound both, and a limit
        on no-quorums themselves would reveal them. A project that has such a limit leaves it to its keys to share.
        """
        state = self.state()
        party = state.projects.get(project, Share())
        if state.phase is not None:
            rows = min(state.phase.seats, state.phase.seats if phase_no_quorums is None else phase_no_quorums)
            return {} if party.per_phase is not None else {"per_phase": max(1, rows // _DEFAULT_PARTS)}
        return {} if (party.cost, party.no_quorums) != (None, None) else {"budget": 1 / _DEFAULT_PARTS}

    def change_key(self, id: str, *, by: Actor | None = None, proposal: str = "", **values: Any) -> bool:
        """Change limits of a key, its `project`, or when it `expires`. What it has used stays counted.

        Return whether the change was made, and not proposed.
        """
        with self._key_change() as change:
            changes: dict[str, Any] = {name: values.pop(name) for name in ("project", "expires") if name in values}
            changes |= _limits(change.state, _known_limits(values))
            key = change.state.keys.get(id)
            waits = proposal if key is not None and is_wider(key, replace(key, **changes)) else ""
            _record(change, "key_changed", {"id": id, "values": changes}, by, proposal=waits)
        return not waits

    def rotate_key(
        self, id: str, *, grace: float = 0.0, secret: str = "", by: Actor | None = None, proposal: str = ""
    ) -> str:
        """Return a new token of the same caller, which keeps its share and its answers.

        The one before opens the key for `grace` more seconds. `secret` is a new one that other ledgers get too.
        """
        secret = secret or secrets.token_urlsafe(32)
        with self._key_change() as change:
            body = {"id": id, "hash": _hash(secret), "former_until": change.at + grace}
            _record(change, "key_rotated", body, by, proposal=proposal)
        return f"qk_{id}_{secret}"

    def revoke_key(self, id: str, *, by: Actor | None = None) -> None:
        """Let a key open nothing more."""
        with self._key_change() as change:
            _record(change, "key_revoked", {"id": id}, by)

    def set_project(self, name: str, *, by: Actor | None = None, proposal: str = "", **limits: Any) -> bool:
        """Make a project, or change its limits: a share that its keys have together.

        Return whether that was done, and not proposed.
        """
        with self._key_change() as change:
            values = _limits(change.state, _known_limits(limits))
            project = _checked_name("project", name, change.state.projects)
            share = change.state.projects.get(project)
            waits = proposal if share is not None and is_wider(share, replace(share, **values)) else ""  # type: ignore[arg-type]
            _record(change, "project_set", {"name": project, "values": values}, by, proposal=waits)
        return not waits

    def decide_proposal(self, id: str, *, by: Actor, approve: bool) -> None:
        """Make a proposed change of keys, or drop it."""
        with self._key_change() as change:
            change.append("approved" if approve else "rejected", {"id": id, "by": dict(by)})

    def find_key(self, token: str) -> Key | None:
        """Return the key of this token, or None where there is none, or it was revoked, or has expired."""
        return self._key_cache.find(token, self.state)

    def find_subject(self, issuer: str, subject: str) -> Key | None:
        """Return the key of a subject of an issuer of tokens, also one that was revoked; None without one."""
        return find_subject(self._key_cache.latest(self.state), issuer, subject)

    def read_keys(self) -> None:
        """Read the keys again. A server does so by its own clock, so that no caller waits less because of another."""
        self._key_cache.read(self.state)


def _added(key: Key) -> dict[str, Any]:
    document = asdict(key) | {"scopes": list(key.scopes)}
    # Without a subject, an entry is one that the version before this one can replay.
    return {"key": {name: value for name, value in document.items() if value or name not in ("issuer", "subject")}}


def _known_limits(limits: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = limits.keys() - {*LIMITS, "budget"} | limits.keys() & {"cost"}
    if unknown:
        raise InvalidInput(f"a share has no limit {sorted(unknown)[0]!r}")
    return limits
