"""What a ledger notes for its owner to look at: answers by the minute, and refusals. No entry proves them."""

from collections.abc import Iterable

from quorate.core.ledger.store import Store
from quorate.core.ledger.views import Activity, Refusal

__all__ = ["Notes"]

_REFUSALS = 1000  # kept


class Notes:
    """The part of a `Ledger` that notes what happened."""

    _store: Store
    _id: str

    def activity(self, since: float = 0.0) -> list[Activity]:
        """Return what was answered in each minute since a time, oldest first."""
        with self._store.transaction(self._id) as statements:
            rows = statements.run(
                "SELECT minute, answered, no_quorums, repeated, refused FROM quorate_activity "
                "WHERE ledger = ? AND minute >= ? ORDER BY minute",
                (self._id, int(since)),
            )
        return [Activity(*row) for row in rows]

    def note_refusals(self, refusals: Iterable[Refusal]) -> None:
        """Note that callers were refused, for the owner to see; the oldest notes are dropped."""
        with self._store.transaction(self._id) as statements:
            statements.run_many(
                "INSERT INTO quorate_refusal VALUES (?, ?, ?, ?)",
                [(self._id, one.at, one.caller, one.code) for one in refusals],
            )
            statements.run(
                "DELETE FROM quorate_refusal WHERE ledger = ? AND at < (SELECT min(at) FROM (SELECT at FROM "
                "quorate_refusal WHERE ledger = ? ORDER BY at DESC LIMIT ?) AS latest)",
                (self._id, self._id, _REFUSALS),
            )

    def refusals(self, limit: int = 20) -> list[Refusal]:
        """Return the latest refusals, newest first."""
        with self._store.transaction(self._id) as statements:
            rows = statements.run(
                "SELECT at, caller, code FROM quorate_refusal WHERE ledger = ? ORDER BY at DESC LIMIT ?",
                (self._id, int(limit)),
            )
        return [Refusal(*row) for row in rows]
