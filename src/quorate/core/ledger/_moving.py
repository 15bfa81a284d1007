"""Move a ledger from its file to a database, restore an old copy, and export entries to an archive."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quorate.core.disk import write_whole
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger._ledger import Ledger, find_ledger
from quorate.core.ledger._parts import MAC_BYTES
from quorate.core.ledger._requests import forgotten_requests
from quorate.core.ledger._rules import FORMAT, State, to_json
from quorate.core.ledger._store import LEDGER_FILE, PLACE_FILE, is_url, with_password, without_password
from quorate.core.ledger._verify import Verification, check_marks
from quorate.core.ledger._views import LedgerView
from quorate.core.ledger.budget import is_gone
from quorate.core.ledger.chain import Entry, canonical
from quorate.core.privacy.budget import Quanta


def move(folder: Path, url: str, *, fingerprint: str) -> Ledger:
    """Move a model's ledger from its file into a database: the file can spend nothing more.

    What was interrupted can be called again: the file says that the account has gone, and what it was then.
    """
    folder = Path(folder)
    if not is_url(url):
        raise InvalidInput(f"a ledger moves to a database, postgresql://..., not to {url!r}")
    if (folder / PLACE_FILE).exists():
        raise InvalidInput(f"the ledger of {folder} is in a database already")
    new = Ledger.unchecked(with_password(url), fingerprint=fingerprint, folder=folder)
    old = Ledger.unchecked(folder / LEDGER_FILE, fingerprint=fingerprint, folder=folder)
    if not new.exists():
        _copy(old, new)
    elif old.state().moved is None:
        raise InvalidInput(f"{new.place} holds another ledger of this model, which did not come from {old.place}")
    chains = [ledger.check_entries() for ledger in (new, old)]
    for mark in new.witness.readable():  # those of a move that was interrupted are of either ledger
        if not any(check_marks(chain, [mark]).sound for chain in chains):
            raise LedgerRefused(f"the ledger at {new.place} was rolled back: a mark speaks of another")
    if chains[0].problems:
        raise LedgerRefused(f"the ledger that was moved to {new.place} is refused: {'; '.join(chains[0].problems)}")
    with new.change() as change:
        change.charged = change.anew = True  # a move that was interrupted may have left the marks of the old ledger
    old.close_store()
    # A password belongs in $QUORATE_LEDGER or in a password file, not here.
    write_whole(folder / PLACE_FILE, json.dumps({"place": without_password(url)}))
    return new


def _copy(old: Ledger, new: Ledger) -> None:
    state = old.state()
    marks = [] if state.moved else list(old.witness.marks())  # an interrupted move may have made new marks
    verification = check_marks(old.check_entries(), marks)
    if verification.problems:
        raise LedgerRefused(f"the ledger at {old.place} is refused: {'; '.join(verification.problems)}")
    with old.change() as change:
        leases = change.state.leases.values()
        if any(not is_gone(lease.owner, silent=change.at - lease.seen) for lease in leases):
            raise InvalidInput("a process has some of the budget out on lease; stop the server, then move the ledger")
        for owner in list(change.state.holds) if change.state.moved is None else ():
            change.append("hold_lost", {"owner": owner})
        if change.state.moved is None:
            change.append("moved", {"to": new.place})
        state = change.state
        span, which = "FROM {} WHERE ledger = ? AND seq > ?", (change.ledger, state.forgotten)
        answers = change.statements.run("SELECT caller, query, label " + span.format("quorate_answer"), which)
        requests = change.statements.run("SELECT caller, id, body, outcome " + span.format("quorate_request"), which)
        forgotten = forgotten_requests(change)
    document = to_json(state)
    names = ["fingerprint", "epsilon", "delta", "order", "slack", "capacity", "spent", "keys", "projects"]
    names += ["answers_forgotten"] if state.answers_forgotten else []
    phase = old.phase()
    new.begin(
        {"format": FORMAT} | {name: document[name] for name in names},
        answers=answers,
        requests=requests,
        runs=old.runs(),
        choice=old.choice(),
        phase=phase,
        forgotten=forgotten,
    )


def restore(folder: Path, *, fingerprint: str, charge: str) -> LedgerView:
    """Accept an old copy of a ledger, charged with what a mark says was spent later, or with all there is.

    `charge` is "mark" (what the marks say: nothing was charged after the last one) or "all" (nothing is left).
    """
    if charge not in ("mark", "all"):
        raise InvalidInput(f"charge must be 'mark' or 'all', got {charge!r}")
    ledger = find_ledger(folder, fingerprint=fingerprint, verify=False)
    verification = ledger.check_entries()
    if verification.problems:
        raise LedgerRefused(f"an edited ledger cannot be restored: {'; '.join(verification.problems)}")
    losses = find_losses(ledger, verification, charge=charge)
    with ledger.change() as change:
        spent, lost = losses.charge(change.state)
        body = {"spent": [str(quanta) for quanta in spent], "lost": [str(quanta) for quanta in lost]}
        change.append("restored", body)
    return ledger.view()


class Losses(NamedTuple):
    """What marks say was spent after a copy was made, and what the last restore said. None charges everything."""

    ahead: Sequence[Quanta] | None
    lost: Sequence[int] | None

    def charge(self, state: State) -> tuple[list[int], list[int]]:
        """Return what is spent once the copy is restored, and what was spent in what was lost."""
        if self.ahead is None:
            return list(state.capacity), list(state.capacity)
        return _charge_marks(state, self.ahead, self.lost)


def find_losses(ledger: Ledger, verification: Verification, *, charge: str) -> Losses:
    """Return what restoring a ledger must charge; refuse a copy that cannot be restored. Nothing is written.

    Parameters
    ----------
    ledger
        The ledger that was put back.
    verification
        What the check of its entries found.
    charge
        As for `restore`.
    """
    ahead = _marks_ahead(ledger, verification, charge=charge, in_database=is_url(ledger.place))
    return Losses(ahead if charge == "mark" else None, _last_loss(ledger))


def _marks_ahead(ledger: Ledger, verification: Verification, *, charge: str, in_database: bool) -> list[Quanta]:
    """Return what was spent by the marks that the copy has not come to; refuse a copy that cannot be restored."""
    marks = ledger.witness.readable()
    if charge == "mark" and not marks:
        raise InvalidInput("no mark says what was spent after this copy was made; charge all (--charge all), or wait")
    if not in_database and any(mark.in_database for mark in marks):
        raise LedgerRefused(f"the account moved from {ledger.place} to a database: restore that, and {PLACE_FILE} here")
    return [mark.spent for mark in marks if not check_marks(verification, [mark]).sound]


def _last_loss(ledger: Ledger) -> list[int] | None:
    """Return what the last restore said was spent in what was lost, or None where nothing was ever restored."""
    bodies = [entry.event.body for entry in ledger.entries() if entry.event.kind in ("restored", "compacted")]
    losses = [body["lost"] for body in bodies if body.get("lost") is not None]
    return [int(quanta) for quanta in losses[-1]] if losses else None


def _charge_marks(state: State, ahead: Sequence[Quanta], lost: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Return what is spent once the marks are believed, and what is known to have been spent in what was lost.

    Another host may have restored the same copy before, and charged since: what its marks did not know is added.
    """
    marks = [max(pair) for pair in zip((0, 0), *ahead, strict=True)]
    counted = list(state.spent) if lost is None else lost
    added = [max(0, mark - already) for mark, already in zip(marks, counted, strict=True)]
    spent = [min(limit, now + extra) for limit, now, extra in zip(state.capacity, state.spent, added, strict=True)]
    return spent, [max(pair) for pair in zip(marks, counted, strict=True)]


# What an export shows: amounts, counts, times, names of keys, and hashes that are keyed or of 256 random bits. In the
# place of anything else stands a hash under the ledger's key, which nobody else can confirm by guessing.
_SHOWN = {
    *("format", "fingerprint", "epsilon", "delta", "order", "slack", "capacity", "spent", "keys"),
    *("lease", "owner", "renyi", "mac", "rows", "key", "id", "to", "lost"),
    *("answered", "no_quorums", "repeated", "refused", "returned"),
    *("through", "forgotten", "answers_forgotten", "head"),
    "by",
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
    event = entry.event
    body = {name: value if name in _SHOWN else _seal(ledger, entry, name) for name, value in event.body.items()}
    return {"seq": entry.seq, "at": event.at, "kind": event.kind, "body": body, "mac": entry.mac}


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


def _seal(ledger: Ledger, entry: Entry, name: str) -> str:
    parts = (str(entry.seq), name, canonical({name: entry.event.body[name]}))
    return f"hmac-sha256:{ledger.export_hash(*parts)}"
