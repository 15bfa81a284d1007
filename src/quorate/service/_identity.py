"""Bearer tokens of other issuers (OpenID Connect, OAuth 2.0), checked offline against pinned public keys.

A TOML file names the issuers, and for each a file with its public keys (a JWKS), its audience, and rules: which claims
open which models, with which scopes and share. Nothing is fetched: whoever runs the server puts new keys into the file,
which is read again when it changes. Where it cannot be read, its issuer's tokens are refused.

The first rule that names the model and fits the claims decides; nothing adds up. A subject gets a key in the ledger of
the model when it first comes, with the share of the rule. Later tokens change neither the share nor the caller. Its
scopes are those of the present token, and the ledger notes them: an administrator cannot be revoked over HTTP.
"""

import math
import os
import re
import stat
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from quorate.core.errors import InvalidInput, LedgerRefused, QuotaSpent
from quorate.core.lazy import import_extra
from quorate.core.ledger import Key
from quorate.service._auth import is_token
from quorate.service._errors import Refused

_ALGORITHMS = {  # of signatures with public keys, by the type of key; no other can be allowed
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "Ed25519": "OKP",
}
_SECRET_TYPE = "oct"  # noqa: S105  the name of a type of key
_PRIVATE = {"d", "p", "q", "k"}  # members of a JWK that only its owner may have
_RSA_BITS = 2048
_WATCH_SECONDS = 1.0  # how often it is looked whether a file of keys has changed
_SUBJECT_LENGTH = 255  # ASCII characters, by OpenID Connect
_LONGEST_LEEWAY = 300  # seconds
_LONGEST_HOURS = 24 * 31
_STRONG = {"admin", "keys"}  # scopes of whom no other caller may keep out
_NOTED_SECONDS = 3600.0  # for which scopes stay noted, so that a caller with two tokens does not fill the ledger
_NAME = re.compile(r"\w{1,32}", re.ASCII)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which models the holders of these claims may use, how, and how much each may spend.

    Claims are compared by value and type. A list in a token has one of the values; a list in the rule is of
    alternatives; a table goes into the object of that name. An empty table fits every token of the issuer.
    """

    models: tuple[str, ...]
    claims: dict[str, Any]
    scopes: tuple[str, ...] = ("ask",)
    project: str = ""
    unlimited: bool = False
    budget: float | None = None
    no_quorums: int | None = None
    per_phase: int | None = None
    quota: int | None = None
    per_minute: int | None = None

    def limits(self) -> dict[str, Any]:
        """Return the limits that the rule sets."""
        names = ("budget", "no_quorums", "per_phase", "quota", "per_minute")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def limits_spending(self) -> bool:
        """Return whether the rule says how much a subject may spend."""
        return self.unlimited or not {"budget", "no_quorums", "per_phase"}.isdisjoint(self.limits())


class IssuerRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issuer of tokens: what its tokens must say, and its rules."""

    issuer: str
    audience: str
    keys: str
    rules: tuple[Rule, ...]
    algorithms: tuple[str, ...] = ("RS256",)
    types: tuple[str, ...] = ("JWT", "at+jwt")
    subject: str = "sub"
    leeway: int = 30
    longest_hours: float = 24.0


class IdentityFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: issuers by the names that logs show, and how many subjects each model takes."""

    issuers: dict[str, IssuerRules]
    subjects: int = 200


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a token that was verified, with its claims."""

    issuer: "Issuer"
    subject: str
    claims: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What lists and logs call the subject."""
        return f"{self.issuer.name}:{self.subject}"

    def rule(self, model: str) -> Rule | None:
        """Return the first rule that gives this subject a model; None without one."""
        rules = (rule for rule in self.issuer.rules.rules if model in rule.models or "*" in rule.models)
        return next((rule for rule in rules if fits(rule.claims, self.claims)), None)


def fits(wanted: Any, claim: Any) -> bool:
    """Return whether a claim is what a rule wants. Types count: 1 is neither true nor "1".

    >>> fits({"groups": ["ward-3", "ward-4"]}, {"groups": ["staff", "ward-4"]})
    True
    >>> fits({"verified": True}, {"verified": 1})
    False
    """
    if isinstance(wanted, dict):
        return isinstance(claim, dict) and all(name in claim and fits(wanted[name], claim[name]) for name in wanted)
    if isinstance(wanted, list):
        return any(fits(value, claim) for value in wanted)
    values = claim if isinstance(claim, list) else [claim]
    return any(type(value) is type(wanted) and value == wanted for value in values)


class Issuer:
    """An issuer of tokens, with its public keys as its file has them now."""

    def __init__(self, name: str, rules: IssuerRules, folder: Path) -> None:
        self.name, self.rules, self._path = name, rules, folder / rules.keys
        self._jws, self._jwt, self._jwk, self._errors = map(_library, ("jws", "jwt", "jwk", "errors"))
        self._lock = threading.Lock()
        self._read: tuple[int, ...] = ()
        self._looked = -math.inf
        self._keys: dict[str, Any] | None = self._read_keys()  # A start with keys that cannot be read is refused.

    def verify(self, token: Any, claims: Mapping[str, Any]) -> Subject:
        """Return the subject of a token of this issuer, or raise `Refused`."""
        rules = self.rules
        header = token.headers()
        algorithm, kind = header.get("alg"), header.get("typ")
        if algorithm not in rules.algorithms:
            raise _refused("algorithm")
        if kind is not None and kind not in rules.types:
            raise _refused("type")
        try:
            genuine = self._jws.validate_compact(token, self._key(header, algorithm), algorithms=[algorithm])
        except (self._errors.JoseError, ValueError, TypeError):
            raise _refused("signature") from None
        if not genuine:
            raise _refused("signature")
        now = time.time()
        registry = self._jwt.JWTClaimsRegistry(
            now=int(now),
            leeway=rules.leeway,
            iss={"essential": True, "value": rules.issuer},
            aud={"essential": True, "value": rules.audience},
            exp={"essential": True},
        )
        try:
            registry.validate(dict(claims))
        except self._errors.ExpiredTokenError:
            raise _refused("expired") from None
        except self._errors.ClaimError:
            raise _refused("claims") from None
        if claims["exp"] > now + 3600 * rules.longest_hours + rules.leeway:
            raise _refused("lifetime")
        subject = claims.get(rules.subject)
        if not _is_subject(subject):
            raise _refused("subject")
        assert isinstance(subject, str)
        return Subject(self, subject, claims)

    def _key(self, header: Mapping[str, Any], algorithm: str) -> Any:
        """Return the public key that a token names, if it is one for this algorithm."""
        keys = self._latest_keys()
        if keys is None:
            raise _refused("keys_unreadable")
        kid = header.get("kid")
        key = keys.get(kid) if isinstance(kid, str) else next(iter(keys.values())) if len(keys) == 1 else None
        if key is None:
            raise _refused("kid")
        if key.key_type != _ALGORITHMS[algorithm] or key.get("alg", algorithm) != algorithm:
            raise _refused("algorithm")
        return key

    def _latest_keys(self) -> dict[str, Any] | None:
        with self._lock:
            if time.monotonic() > self._looked + _WATCH_SECONDS:
                self._looked = time.monotonic()
                try:
                    if self._stamp() != self._read:
                        self._keys = self._read_keys()
                except (InvalidInput, OSError):
                    self._keys, self._read = None, ()
            return self._keys

    def _stamp(self) -> tuple[int, ...]:
        status = os.stat(self._path)
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read_keys(self) -> dict[str, Any]:
        """Return the public keys in the file, by their ids."""
        try:
            stamp = self._stamp()
            document = msgspec.json.decode(_read_closed(self._path))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"{self._path} must be a JWKS of public keys: {type(error).__name__}") from None
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InvalidInput(f"{self._path} must be a JWKS of public keys, got other JSON")
        keys: dict[str, Any] = {}
        for entry in filter(_is_for_signatures, entries):
            key = self._import(entry)
            kid = entry.get("kid", "")
            if not isinstance(kid, str) or kid in keys:
                raise InvalidInput(f"{self._path} must have one public key for each kid")
            keys[kid] = key
        if not keys or ("" in keys and len(keys) > 1):
            raise InvalidInput(f"{self._path} must have public keys for signatures, several each with its kid")
        self._read = stamp
        return keys

    def _import(self, entry: dict[str, Any]) -> Any:
        if entry["kty"] == _SECRET_TYPE or not _PRIVATE.isdisjoint(entry):
            raise InvalidInput(f"{self._path} must have public keys alone; replace the secret or private ones in it")
        try:
            key = self._jwk.import_key(entry)
            bits = key.public_key.key_size if entry["kty"] == "RSA" else _RSA_BITS
        except (self._errors.JoseError, ValueError, TypeError) as error:
            raise InvalidInput(f"{self._path} has a key that cannot be read: {type(error).__name__}") from None
        if bits < _RSA_BITS:
            raise InvalidInput(f"{self._path} must have RSA keys of at least {_RSA_BITS} bits, got {bits}")
        return key


def _library(module: str) -> Any:
    return import_extra(f"joserfc.{module}", "identity", use="a server that takes tokens of issuers")


def _is_for_signatures(entry: Mapping[str, Any]) -> bool:
    """Return whether a key is of a type that is known, and not for encryption."""
    if entry.get("kty") == _SECRET_TYPE:
        return True  # which is then refused
    return entry.get("kty") in _ALGORITHMS.values() and entry.get("use", "sig") == "sig"


def _is_subject(subject: Any) -> bool:
    """Return whether a text can name a subject; other characters could look like those of another one."""
    return (
        isinstance(subject, str) and 0 < len(subject) <= _SUBJECT_LENGTH and all("!" <= sign <= "~" for sign in subject)
    )


def _refused(cause: str) -> Refused:
    """Return the refusal of a token. The client learns no more than that; the log gets the cause."""
    return Refused("unauthenticated", cause=f"token_{cause}")


class Identities:
    """The issuers of a server."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        try:
            document = tomllib.loads(_read_closed(path).decode())
            file = msgspec.convert(document, IdentityFile)
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise InvalidInput(f"{path} must be a TOML file of issuers: {error}") from None
        for name, rules in file.issuers.items():
            _check_issuer(f"{path}: the issuer {name!a}", name, rules)
        self._most = file.subjects
        issuers = [Issuer(name, rules, path.parent) for name, rules in file.issuers.items()]
        self._issuers = {issuer.rules.issuer: issuer for issuer in issuers}
        if len(self._issuers) < len(issuers) or not issuers:
            raise InvalidInput(f"{path} must have at least 1 issuer, and each once")
        self._jws = _library("jws")
        self._noted: dict[tuple[str, str], float] = {}  # when the scopes of a key of a model were noted

    def verify(self, text: str) -> Subject:
        """Return the subject of a token, or raise `Refused`."""
        try:
            token = self._jws.extract_compact(text.encode("ascii"))
            claims = msgspec.json.decode(token.payload)
        except Exception:  # whatever a library may raise about bytes that anybody can send
            raise _refused("form") from None
        issuer = claims.get("iss") if isinstance(claims, dict) else None
        if not isinstance(issuer, str) or issuer not in self._issuers:
            raise _refused("issuer")
        return self._issuers[issuer].verify(token, claims)

    def finder(self, model: Any, *, add: bool = True) -> Callable[[str], Any] | None:
        """Return what finds the key of a token of a model: one of its ledger, or that of a subject of an issuer.

        With `add=False` it changes nothing, for tokens of a model that is unknown.
        """
        if model.find_key is None:
            return None
        for rule in self._rules(model.name) if model.ledger is not None else ():
            model.ledger.check_share(rule.project, scopes=rule.scopes, **rule.limits())
        return partial(self._find, model, add=add)

    def _rules(self, model: str) -> Iterator[Rule]:
        for issuer in self._issuers.values():
            yield from (rule for rule in issuer.rules.rules if model in rule.models or "*" in rule.models)

    def _find(self, model: Any, token: str, *, add: bool = True) -> Any:
        if not is_token(token):
            return model.find_key(token)
        subject = self.verify(token)
        rule = subject.rule(model.name)
        if rule is None:
            return None
        key = model.find_subject(subject.issuer.rules.issuer, subject.subject)
        if add and model.ledger is not None:
            key = self._add(model, subject, rule) if key is None else key
            self._note_scopes(model, key, rule.scopes)
        return None if key is None or not key.opens(time.time()) else replace(key, scopes=rule.scopes)

    def _note_scopes(self, model: Any, key: Key, scopes: tuple[str, ...]) -> None:
        """Write other scopes than those of the key: of an administrator at once, others at most once in an hour."""
        entry, now = (model.name, key.id), time.monotonic()
        if key.scopes == scopes or not key.opens(time.time()):
            return
        if _STRONG & set(scopes) - set(key.scopes) or now > self._noted.get(entry, -math.inf) + _NOTED_SECONDS:
            model.ledger.set_scopes(key.id, scopes)
            self._noted[entry] = now

    def _add(self, model: Any, subject: Subject, rule: Rule) -> Key:
        share = rule.limits()
        if not rule.limits_spending():
            share |= model.default_share(rule.project)
        try:
            key: Key = model.ledger.add_subject(
                subject.name,
                issuer=subject.issuer.rules.issuer,
                subject=subject.subject,
                most=None if _STRONG & set(rule.scopes) else self._most,
                scopes=rule.scopes,
                project=rule.project,
                **share,
            )
        except QuotaSpent:
            raise Refused("forbidden", "this model takes no more callers of issuers", cause="subjects") from None
        except InvalidInput:  # such as a project whose limits were changed since the start
            raise LedgerRefused("a rule for tokens does not fit this model", cause="token_rule") from None
        return key


def _check_issuer(title: str, name: str, rules: IssuerRules) -> None:
    unknown = [algorithm for algorithm in rules.algorithms if algorithm not in _ALGORITHMS]
    if unknown or not rules.algorithms:
        raise InvalidInput(f"{title} must have algorithms of {', '.join(_ALGORITHMS)}, got {unknown or 'none'}")
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{title} must have a name of 1 to 32 letters, digits and underscores")
    for member in ("issuer", "audience", "rules"):
        if not getattr(rules, member):
            raise InvalidInput(f"{title} must have {member}, got none")
    for member, most in (("leeway", _LONGEST_LEEWAY), ("longest_hours", _LONGEST_HOURS)):
        if not 0 <= getattr(rules, member) <= most:
            raise InvalidInput(f"{title} must have {member} of 0 to {most}, got {getattr(rules, member)}")


def _read_closed(path: Path) -> bytes:
    """Return the content of a file that its owner alone may write: who writes it decides who may ask."""
    if os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidInput(f"{path} may be written by others; close it: chmod go-w {path}")
    return path.read_bytes()
