"""What is left of entries that were compacted: the first bytes of their hashes, and a hash of the answers they gave.

By the first a mark, or a process that has not looked for long, still finds out whether this is its ledger. By the
second answers that are kept are proved, though the entries that gave them are gone. The entry that compacts carries a
hash of all parts, and the account carries it on.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from quorate.core.errors import LedgerRefused
from quorate.core.ledger._rules import Compaction
from quorate.core.ledger._store import Statements

MAC_BYTES = 8  # of each hash: another entry has the same by chance once in 2**64
EMPTY = hashlib.sha256(b"").hexdigest()  # of no answers
_SENT = 64  # parts written together

_TABLE = (  # SQLite keeps bytes in a column of any type
    "CREATE TABLE IF NOT EXISTS quorate_part (ledger TEXT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL, "
    "at DOUBLE PRECISION NOT NULL, answers BIGINT NOT NULL, digest TEXT NOT NULL, seal TEXT NOT NULL, "
    "macs BYTEA NOT NULL, PRIMARY KEY (ledger, last))"
)


@dataclass(frozen=True, slots=True)
class Part:
    """Entries from `first` to `last`, the last of them at a time `at`.

    `digest` is a hash of the answers and requests that they gave, `answers` how many answers these are, and `seal` a
    hash of the first bytes of the entries' hashes.
    """

    first: int
    last: int
    at: float
    answers: int
    digest: str
    seal: str

    @classmethod
    def of(cls, first: int, at: float, *, answers: int, rows: list[bytes], macs: bytes) -> "Part":
        """Return the part that begins with this entry."""
        digest = hashlib.sha256(b"".join(sorted(rows))).hexdigest()
        return cls(first, first + len(macs) // MAC_BYTES - 1, at, answers, digest, hashlib.sha256(macs).hexdigest())

    def without_answers(self) -> "Part":
        """Return the part once a phase has opened that forgets all answers before it."""
        return replace(self, digest=EMPTY)


def _hash_parts(parts: Iterable[Part]) -> str:
    return hashlib.sha256("\n".join(repr(astuple(part)) for part in parts).encode()).hexdigest()


def add_parts(statements: Statements, ledger: str, earlier: Sequence[Part], new: Sequence[tuple[Part, bytes]]) -> str:
    """Write parts behind those that were there before, and return the hash of all."""
    if not earlier:  # or else it is there: PostgreSQL asks for the right to make it also where it is
        statements.run(_TABLE)
    statements.run_many(
        "UPDATE quorate_part SET digest = ? WHERE ledger = ? AND last = ? AND digest <> ?",
        [(part.digest, ledger, part.last, part.digest) for part in earlier],
    )
    for start in range(0, len(new), _SENT):
        statements.run_many(
            "INSERT INTO quorate_part VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(ledger, *astuple(part), macs) for part, macs in new[start : start + _SENT]],
        )
    return _hash_parts([*earlier, *(part for part, _ in new)])


def _read_parts(statements: Statements, ledger: str) -> list[Part]:
    rows = statements.run(
        "SELECT first, last, at, answers, digest, seal FROM quorate_part WHERE ledger = ? ORDER BY last", (ledger,)
    )
    return [Part(*row) for row in rows]


def check_parts(statements: Statements, ledger: str, compaction: Compaction) -> list[Part]:
    """Return the parts; raise where they are not those that were compacted."""
    parts = _read_parts(statements, ledger)
    if _hash_parts(parts) != compaction.parts:
        raise LedgerRefused("what is left of compacted entries was edited")
    return parts


def part_macs(statements: Statements, ledger: str, part: Part) -> bytes:
    """Return the first bytes of the hashes of a part's entries; raise where they were edited."""
    rows = statements.run("SELECT macs FROM quorate_part WHERE ledger = ? AND last = ?", (ledger, part.last))
    macs = bytes(rows[0][0]) if rows else b""
    if hashlib.sha256(macs).hexdigest() != part.seal:
        raise LedgerRefused("what is left of compacted entries was edited")
    return macs


def fits_part(statements: Statements, ledger: str, compaction: Compaction, seq: int, mac: str) -> bool:
    """Return whether a compacted entry had this hash."""
    for part in check_parts(statements, ledger, compaction):
        if part.first <= seq <= part.last:
            start = (seq - part.first) * MAC_BYTES
            stored = part_macs(statements, ledger, part)[start : start + MAC_BYTES]
            return mac[: 2 * MAC_BYTES] == stored.hex()
    return False
