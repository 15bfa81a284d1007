"""Entries for an archive: amounts, counts and names as they are, and nothing that somebody could confirm by guessing.

An entry holds hashes of what was asked and answered, so that the ledger can be verified. Whoever knows how such a hash
is made can try all queries that there are, and see which one fits. An export therefore has, in the place of each value
that is not known to be harmless, a hash of it under the ledger's key, which stays with the model: it tells nobody else
anything, and the owner can still hold an export against the ledger.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quorate.core.errors import LedgerRefused
from quorate.core.ledger._ledger import Ledger
from quorate.core.ledger._parts import MAC_BYTES
from quorate.core.ledger.chain import Entry, canonical

# Amounts, counts, times, names of keys, hashes of secrets of 256 random bits, and hashes that are keyed already.
_SHOWN = {
    *("format", "fingerprint", "epsilon", "delta", "order", "slack", "capacity", "spent", "keys"),
    *("lease", "owner", "renyi", "mac", "rows", "key", "id", "to", "lost"),
    *("answered", "no_quorums", "repeated", "refused", "returned"),
    *("through", "forgotten", "answers_forgotten", "head"),
    *("number", "seats", "noise", "seated", "points", "phase", "taken", "met", "closed"),
}


def export_entries(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield every entry that a ledger has as it may be kept elsewhere, oldest first.

    One that was compacted begins with its last compaction.

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
    body = {name: value if name in _SHOWN else _seal(ledger, entry, name) for name, value in entry.event.body.items()}
    return _line(entry) | {"body": body}


def check_export(ledger: Ledger, lines: Iterable[str]) -> int:
    """Hold an export against the ledger and return how many entries it has. The ledger may have gone on since.

    Of an entry that was compacted the ledger has the first bytes of its hash: by those it is compared.
    """
    gone, entries, count, seq = ledger.compacted_macs(), iter(ledger.entries()), 0, 0
    for line in lines:
        read = _read(line)
        seq = seq + 1 if count else _first(read)
        count += 1
        if seq * MAC_BYTES <= len(gone):
            mac = gone[(seq - 1) * MAC_BYTES : seq * MAC_BYTES].hex()
            same = read.get("seq") == seq and str(read.get("mac"))[: 2 * MAC_BYTES] == mac
        else:
            entry = next((entry for entry in entries if entry.seq >= seq), None)
            if entry is None:
                raise LedgerRefused(
                    f"the export has more entries than the ledger, which ends at entry {seq - 1}: the ledger was "
                    "rolled back, or the export is of another"
                )
            same = read == exported(entry, ledger)
        if not same:
            raise LedgerRefused(f"entry {seq} of the export is not the one in the ledger: one of the two was changed")
    return count


def _read(line: str) -> dict[str, Any]:
    try:
        read = json.loads(line)
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {}


def _first(read: Mapping[str, Any]) -> int:
    """Return the number of the first entry of an export, by its line: 1, or that of a compaction."""
    seq = read.get("seq")
    return seq if read.get("kind") == "compacted" and isinstance(seq, int) and seq > 0 else 1


def _line(entry: Entry) -> dict[str, Any]:
    event = entry.event
    return {"seq": entry.seq, "at": event.at, "kind": event.kind, "body": dict(event.body), "mac": entry.mac}


def _seal(ledger: Ledger, entry: Entry, name: str) -> str:
    parts = (str(entry.seq), name, canonical({name: entry.event.body[name]}))
    return f"hmac-sha256:{ledger.export_hash(*parts)}"
