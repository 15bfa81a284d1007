"""Entries for an archive: amounts, counts and names as they are, and nothing that somebody could confirm by guessing.

An entry holds hashes of what was asked and answered, so that the ledger can be verified. Whoever knows how such a hash
is made can try all queries that there are, and see which one fits. An export therefore has, in the place of each value
that is not known to be harmless, a hash of it under the ledger's key, which stays with the model: it tells nobody else
anything, and the owner can still hold an export against the ledger.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from quorate.errors import LedgerRefused
from quorate.ledger.chain import Entry, canonical
from quorate.ledger.ledger import Ledger

__all__ = ["check_export", "export_entries", "exported"]

# Amounts, counts, times, names of keys, hashes of secrets of 256 random bits, and hashes that are keyed already.
_SHOWN = {
    *("format", "fingerprint", "epsilon", "delta", "order", "slack", "capacity", "spent", "keys"),
    *("lease", "owner", "renyi", "mac", "rows", "key", "id", "to", "lost"),
    *("answered", "no_quorums", "repeated", "refused", "returned"),
    *("number", "seats", "noise", "seated", "points", "phase", "taken", "met", "closed"),
}


def export_entries(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield every entry of a ledger as it may be kept elsewhere, oldest first.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from quorate import Budget
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    ...     [line["kind"] for line in export_entries(ledger)]
    ['opened']
    """
    return (exported(entry, ledger) for entry in ledger.entries())


def exported(entry: Entry, ledger: Ledger) -> dict[str, Any]:
    """Return an entry with keyed hashes in the place of what could be guessed."""
    body = {name: value if name in _SHOWN else _sealed(ledger, entry, name) for name, value in entry.event.body.items()}
    return _line(entry) | {"body": body}


def check_export(ledger: Ledger, lines: Iterable[str]) -> int:
    """Hold an export against the ledger and return how many entries it has. The ledger may have gone on since."""
    count, entries = 0, ledger.entries()
    for line in lines:
        count += 1
        entry = next(entries, None)
        if entry is None:
            raise LedgerRefused(
                f"the export has more entries than the ledger, which ends at entry {count - 1}: the ledger was rolled "
                "back, or the export is of another"
            )
        try:
            read = json.loads(line)
        except ValueError:
            read = None
        if read not in (exported(entry, ledger), _line(entry)):  # the latter was written before exports had seals
            raise LedgerRefused(f"entry {count} of the export is not the one in the ledger: one of the two was changed")
    return count


def _line(entry: Entry) -> dict[str, Any]:
    event = entry.event
    return {"seq": entry.seq, "at": event.at, "kind": event.kind, "body": dict(event.body), "mac": entry.mac}


def _sealed(ledger: Ledger, entry: Entry, name: str) -> str:
    parts = (str(entry.seq), name, canonical({name: entry.event.body[name]}))
    return f"hmac-sha256:{ledger.export_hash(*parts)}"
