"""Who did what: the entries about keys, shares and the ledger itself, as lines for other systems.

A line is an entry without hashes of secrets. Its `seal` is a hash under the ledger's key, so that an edited line shows,
also after its entry was compacted. Refusals are no entries: of them a ledger keeps the last 1,000, sealed one by one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from quorate.core.errors import LedgerRefused
from quorate.core.ledger._approvals import APPROVAL_RULES
from quorate.core.ledger.chain import Entry, canonical

if TYPE_CHECKING:
    from quorate.core.ledger._ledger import Ledger

_REFUSALS = 1000
_SHOWN: dict[str, tuple[str, ...]] = {  # Of other audited entries everything is shown but hashes of secrets.
    "opened": ("epsilon", "delta"),
    "compacted": ("through", "forgotten", "answers_forgotten"),
    "moved": ("to",),
    "restored": (),
}
_AUDITED = {*_SHOWN, *APPROVAL_RULES, "key_added", "key_changed", "key_rotated", "key_revoked", "project_set"}
_HIDDEN = ("hash", "former", "by")


def audit_lines(ledger: "Ledger", *, after: int = 0, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the audited entries after an entry as lines, oldest first, of the first `limit` entries that are there.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from quorate import Budget
    >>> from quorate.core.ledger import Ledger
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    ...     token = ledger.add_key("Ward 3", budget=0.1)
    ...     [(line["event"], line["by"]["via"] if line["by"] else None) for line in audit_lines(ledger)]
    [('opened', None), ('key_added', 'command')]
    """
    for count, entry in enumerate(ledger.entries(after + 1)):
        if limit is not None and count >= limit:
            return
        if entry.event.kind in _AUDITED:
            yield _line(ledger, entry)


def refusal_lines(ledger: "Ledger") -> Iterator[dict[str, Any]]:
    """Yield the latest refusals of callers with keys as lines, oldest first."""
    names = {key.id: key.name for key in ledger.view().keys}
    for refusal in reversed(ledger.refusals(_REFUSALS)):
        by = {"via": "key", "id": refusal.caller, "name": names.get(refusal.caller, "")}
        yield _sealed(ledger, {"event": "refused", "time": _time(refusal.at), "by": by, "code": refusal.code})


def check_audit(ledger: "Ledger", lines: Iterable[str]) -> int:
    """Hold exported lines against the ledger and return their number; raise `LedgerRefused` if one was changed.

    Of the entries that the ledger still has, none may be left out between the first and the last line.
    """
    kept, last = {line["seq"]: line for line in audit_lines(ledger)}, ledger.view().entries
    compaction = ledger.state().compaction
    gone, seqs, count = 0 if compaction is None else compaction.through, set[int](), 0
    for count, text in enumerate(lines, start=1):
        line = _read(text)
        if not _is_sealed(ledger, line):
            raise LedgerRefused(f"line {count} was changed, or is not of this ledger")
        if seq := line.get("seq", 0):
            if seq > last or (seq > gone and kept.get(seq) != line):
                raise LedgerRefused(f"line {count} is of entry {seq}, which is not in the ledger: it was rolled back")
            seqs.add(seq)
    _check_gaps(sorted(kept), seqs)
    return count


def _check_gaps(kept: Sequence[int], seqs: Set[int]) -> None:
    """Refuse lines that leave out an entry between two others."""
    first, last = min(seqs, default=0), max(seqs, default=0)
    missing = [seq for seq in kept if first < seq < last and seq not in seqs]
    if missing:
        raise LedgerRefused(f"entry {missing[0]} is in the ledger and not among the lines: one was removed")


def _is_sealed(ledger: "Ledger", line: Mapping[str, Any]) -> bool:
    return "seal" in line and _sealed(ledger, {name: line[name] for name in line if name != "seal"}) == line


def _line(ledger: "Ledger", entry: Entry) -> dict[str, Any]:
    event, capacity = entry.event, ledger.last_state().capacity[0]
    names = _SHOWN.get(event.kind, tuple(name for name in event.body if name != "by"))
    details = {name: _plain(event.body[name], capacity) for name in names if name in event.body}
    head = {"event": event.kind, "time": _time(event.at), "seq": entry.seq, "by": event.body.get("by")}
    return _sealed(ledger, head | {"details": {name: value for name, value in details.items() if name not in _HIDDEN}})


def _plain(value: Any, capacity: int) -> Any:
    """Return what an entry says without hashes, and costs as parts of the budget; of a new key, what is set."""
    if not isinstance(value, Mapping):
        return value
    plain = {name: _plain(inner, capacity) for name, inner in value.items() if name not in _HIDDEN}
    if "cost" in plain:
        cost = plain.pop("cost")
        plain["budget"] = None if cost is None else cost / capacity
    return {name: inner for name, inner in plain.items() if inner} if "created" in plain else plain


def _sealed(ledger: "Ledger", line: dict[str, Any]) -> dict[str, Any]:
    return line | {"seal": ledger.export_hash("audit", canonical(line))}


def _read(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) and isinstance(line.get("seq", 0), int) else {}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
