"""Entries that hang together: each carries a keyed hash of itself and of the one before it.

The key lies beside the model and not in the ledger, so that whoever can write the ledger alone cannot change, remove
or add an entry unseen.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quorate.ledger.rules import Event

__all__ = ["Entry", "canonical", "digest_rows", "keyed_hash", "link"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a ledger in its place, with the hash that ties it to all before it."""

    seq: int
    event: Event
    mac: str


def canonical(value: Mapping[str, Any]) -> str:
    """Return the one text that a JSON object is written as."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def keyed_hash(key: bytes, *parts: bytes) -> str:
    """Return the keyed hash of these parts, in hexadecimal. No two lists of parts are hashed alike."""
    made = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()


def link(key: bytes, before: str, seq: int, event: Event) -> Entry:
    """Return the entry that follows the one whose hash is `before`."""
    parts = (before, str(seq), event.kind, repr(float(event.at)), canonical(event.body))
    return Entry(seq, event, keyed_hash(key, *(part.encode() for part in parts)))


def digest_rows(rows: list[bytes]) -> str:
    """Return the hash of a set of rows, in whatever order they come. No row may be the beginning of another."""
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()
