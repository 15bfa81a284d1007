"""The ledger of one model: its account, leases, keys and answers.

A charge and its mark are on the disk before anything is drawn for it. A keyed hash chains every entry to the earlier
ones, and opening the ledger verifies the whole chain.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger._compaction import Compacting
from quorate.core.ledger._keys import KeyRing
from quorate.core.ledger._phases import Phases, import_phase
from quorate.core.ledger._postgres import PostgresStore, check_driver
from quorate.core.ledger._requests import Requests, forget_requests, import_answers
from quorate.core.ledger._rules import FORMAT, State
from quorate.core.ledger._store import SQLiteStore, Store, folder_of, is_url, locate_ledger, make_key, read_key
from quorate.core.ledger._verify import RUNS, Verification, check_chain, check_marks, read_entries, run_noises
from quorate.core.ledger._views import Activity, LedgerView, Refusal, view_of
from quorate.core.ledger.budget import LeasedBudget, owner_name
from quorate.core.ledger.chain import Change, Entry, Head, LedgerPart, Witness, keyed_hash
from quorate.core.privacy import Budget

_KEPT_REFUSALS = 1000


class Notes(LedgerPart):
    """The part of a `Ledger` that records its activity."""

    def activity(self, since: float = 0.0) -> list[Activity]:
        """Return the activity of each minute since a time, oldest first."""
        with self._store.transaction(self._id) as statements:
            rows = statements.run(
                "SELECT minute, answered, no_quorums, repeated, refused FROM quorate_activity "
                "WHERE ledger = ? AND minute >= ? ORDER BY minute",
                (self._id, int(since)),
            )
        return [Activity(*row) for row in rows]

    def note_refusals(self, refusals: Iterable[Refusal]) -> None:
        """Record refusals of callers for the owner, and drop the oldest records."""
        with self._store.transaction(self._id) as statements:
            statements.run_many(
                "INSERT INTO quorate_refusal VALUES (?, ?, ?, ?)",
                [(self._id, refusal.at, refusal.caller, refusal.code) for refusal in refusals],
            )
            statements.run(
                "DELETE FROM quorate_refusal WHERE ledger = ? AND at < (SELECT min(at) FROM (SELECT at FROM "
                "quorate_refusal WHERE ledger = ? ORDER BY at DESC LIMIT ?) AS latest)",
                (self._id, self._id, _KEPT_REFUSALS),
            )

    def refusals(self, limit: int = 20) -> list[Refusal]:
        """Return the latest refusals, newest first."""
        with self._store.transaction(self._id) as statements:
            rows = statements.run(
                "SELECT at, caller, code FROM quorate_refusal WHERE ledger = ? ORDER BY at DESC LIMIT ?",
                (self._id, int(limit)),
            )
        return [Refusal(*row) for row in rows]


_ID = 16
_PROBE = "probe"  # the name of a row that proves that the ledger can be written


class Ledger(Notes, Requests, Phases, KeyRing, Compacting):
    """The stored account of a model. No crash, copy or restart gives back any budget that was spent.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "ledger.sqlite"
    >>> ledger = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="model 1")
    >>> from quorate.core.privacy import Cost
    >>> ledger.budget().spend(Cost(renyi=0.25))
    >>> Ledger.open(path, fingerprint="model 1").budget().remaining().renyi
    0.75
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, *, fingerprint: str, folder: Path, key: bytes) -> None:
        self._store, self._key = store, key
        self._id = fingerprint[:_ID]  # The id of its rows; the opening entry has the whole fingerprint.
        self._seen = Head()
        self.witness = Witness(folder, fingerprint, key, in_database=is_url(store.place))
        self._session = secrets.token_hex(8)  # distinguishes two ledgers of one process
        self.lease_name = ""  # of the budget that pays here
        self._admitted = 0.0  # when requests were last admitted
        self.place = store.place

    @classmethod
    def create(
        cls,
        place: str | Path,
        budget: Budget,
        *,
        fingerprint: str,
        folder: Path | None = None,
    ) -> "Ledger":
        """Create the ledger of a budget and take over its account; the budget object can spend nothing more.

        `folder` holds the key and the mark, by default the folder of the file.
        """
        folder = folder_of(place, folder)
        if is_url(place):
            check_driver()
        store: Store = PostgresStore(str(place)) if is_url(place) else SQLiteStore.create(Path(place))
        ledger = cls(store, fingerprint=fingerprint, folder=folder, key=make_key(folder))
        opened = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "order": repr(budget.order),
            "slack": budget.slack,
            "capacity": [str(quanta) for quanta in budget.quanta()],
            "keys": [],
        }
        spent = [str(quanta) for quanta in budget.close()]  # The account moves: from now on only the ledger can spend.
        ledger.begin(opened | {"spent": spent})
        return ledger

    def begin(
        self,
        opened: Mapping[str, Any],
        *,
        answers: Sequence[Any] = (),
        requests: Sequence[Any] = (),
        runs: Sequence[int] = (),
        choice: str | None = None,
        phase: Any = None,
        forgotten: Sequence[Sequence[str]] = (),
    ) -> None:
        """Write the first entry, and the state of an account that moves here from another ledger."""
        change: Change | None = None

        def mark_commit() -> None:
            assert change is not None
            self.witness.write(change.mark(), anew=True)
            change.committed(self._seen)

        with self._store.transaction(self._id, mark_commit) as statements:
            if statements.run("SELECT seq FROM quorate_snapshot WHERE ledger = ?", (self._id,)):
                raise InvalidInput(f"{self.place} holds a ledger of this model already; it is never overwritten")
            change = Change(statements, self._id, self._key, self._seen)
            change.append("opened", dict(opened))
            if runs:
                self._keep_runs(change, runs)
            if choice is not None:
                change.append("chosen", {"choice": choice})
            if phase is not None:
                import_phase(change, *phase)
            if answers or requests:
                import_answers(change, answers, requests)
            forget_requests(change, forgotten)
            change.write()

    @classmethod
    def open(cls, place: str | Path, *, fingerprint: str, folder: Path | None = None) -> "Ledger":
        """Open a ledger that belongs to the model of this fingerprint, after reading and checking all of it."""
        ledger = cls.unchecked(place, fingerprint=fingerprint, folder=folder)
        verification = ledger.verify()
        if verification.problems:
            ledger.close_store()
            raise LedgerRefused(f"the ledger at {ledger.place} is refused: {'; '.join(verification.problems)}")
        if ledger.state().fingerprint != fingerprint:
            ledger.close_store()
            raise LedgerRefused(f"the ledger at {ledger.place} belongs to another model")
        return ledger

    @classmethod
    def unchecked(cls, place: str | Path, *, fingerprint: str, folder: Path | None = None) -> "Ledger":
        """Open a ledger without verifying it: to move it, to restore it, or to report its problems."""
        folder = folder_of(place, folder)
        if is_url(place):
            check_driver()
            store: Store = PostgresStore(str(place))
        else:
            store = SQLiteStore(Path(place))
            if not Path(place).is_file():
                raise LedgerRefused(
                    f"{store.place} is missing: without its ledger a model has no budget and answers nothing"
                )
        return cls(store, fingerprint=fingerprint, folder=folder, key=read_key(folder))

    def exists(self) -> bool:
        """Return whether the store holds a ledger of this model."""
        with self._store.transaction(self._id) as statements:
            return bool(statements.run("SELECT seq FROM quorate_snapshot WHERE ledger = ?", (self._id,)))

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Open a transaction. At its end the change is on the disk, together with the mark of a charge."""
        change: Change | None = None

        def mark_commit() -> None:
            assert change is not None
            if change.appended or change.charged:
                self.witness.write(change.mark(), near=not change.charged, anew=change.anew)
            change.committed(self._seen)

        with self._store.transaction(self._id, mark_commit) as statements:
            change = Change.read(statements, self._id, self._key, self._seen)
            yield change
            if change.charged and not change.anew:  # If two copies are in use, one finds the other's mark.
                self.witness.check_outside(self._seen.mark())
                for mark in self.witness.marks():
                    change.check(mark)
            change.write()

    def state(self) -> State:
        """Return the present state of the ledger."""
        with self.change() as change:
            return change.state

    def check_outside(self) -> bool:
        """Raise `LedgerRefused` if no mark can be kept outside the model's folder; return whether one was there."""
        with self.change():
            had_mark = self.witness.has_outside()
            self.witness.check_outside(self._seen.mark())
            return had_mark

    def probe(self) -> None:
        """Write a row without meaning and sync it; raise `LedgerRefused` if that fails."""
        self._store.check_room()
        with self.change() as change:
            change.statements.run(
                "INSERT INTO quorate_secret VALUES (?, ?, 1) ON CONFLICT (ledger, name) DO UPDATE SET "
                "value = quorate_secret.value + 1",
                (self._id, _PROBE),
            )

    def last_state(self) -> State:
        """Return the state that this process last read."""
        return self._seen.state or self.state()

    def budget(self, *, lease: int = 0) -> LeasedBudget:
        """Return the budget of this account; the process takes out the cost of `lease` answers at a time."""
        return LeasedBudget(self, lease=lease)

    def keep_run(self, threshold_noise: int, *further_noises: int) -> None:
        """Keep the secret noise of an open run, or the noises of several that share the account."""
        with self.change() as change:
            self._keep_runs(change, [int(noise) for noise in (threshold_noise, *further_noises)])

    def _keep_runs(self, change: Change, noises: Sequence[int]) -> None:
        change.append("run", {"mac": self._run_mac(*noises)})
        change.statements.run_many(
            "INSERT INTO quorate_secret VALUES (?, ?, ?) ON CONFLICT (ledger, name) DO UPDATE SET "
            "value = excluded.value",
            [(self._id, name, noise) for name, noise in zip(RUNS, noises, strict=False)],
        )

    def run(self) -> int | None:
        """Return the secret noise of the open run, or None without one."""
        return next(iter(self.runs()), None)

    def runs(self) -> tuple[int, ...]:
        """Return the secret noises of the open runs, in the order in which they were kept."""
        with self.change() as change:
            noises = run_noises(change.statements, self._id)
            if change.state.run != (self._run_mac(*noises) if noises else None):
                raise LedgerRefused(f"the run's secret noise in {self.place} was edited")
        return noises

    def _run_mac(self, *noises: int) -> str:
        return keyed_hash(self._key, b"run", self._id.encode(), *(str(noise).encode() for noise in noises))

    def keep_choice(self, choice: str) -> str:
        """Record the choice of a model and return the recorded one, which may be that of another process.

        The choice must not have been released before. A recorded choice is never replaced.
        """
        with self.change() as change:
            if change.state.choice is None:
                change.append("chosen", {"choice": choice})
            assert change.state.choice is not None
            return change.state.choice

    def choice(self) -> str | None:
        """Return the recorded choice that this process last read, None without one, `LOST` after an old copy."""
        return self.last_state().choice

    def count_answers(self) -> int:
        """Return the number of answers ever kept, which bounds the number released."""
        with self.change() as change:
            statement = "SELECT count(*) FROM quorate_answer WHERE ledger = ? AND seq > ?"
            count = change.statements.run(statement, (self._id, change.state.forgotten))[0][0]
            return int(count) + change.state.answers_forgotten

    def _owner(self) -> str:
        return f"{self._session}@{owner_name()}"

    def view(self) -> LedgerView:
        """Return the figures that the owner sees."""
        state = self.state()
        return view_of(state, place=self.place, entries=self._seen.seq, head=self._seen.mac)

    def verify(self) -> Verification:
        """Read the whole ledger and report its problems."""
        marks, unmarked = [self._seen.mark()], tuple[str, ...]()
        try:
            marks += self.witness.marks()  # Marks are read first, because the ledger may advance while it is read.
        except LedgerRefused as error:
            unmarked = (str(error),)
        try:
            verification = check_marks(self.check_entries(), marks)
        except LedgerRefused as error:
            verification = Verification(entries=0, head="", problems=(str(error),))
        return replace(verification, problems=verification.problems + unmarked)

    def check_entries(self) -> Verification:
        """Read all entries and report their problems, without comparing them with the marks."""
        return check_chain(self._store, self._id, self._key, self._run_mac)

    def export_hash(self, *parts: str) -> str:
        """Return a hash under the ledger's key, for values that an export must not reveal."""
        return keyed_hash(self._key, b"export", *(part.encode() for part in parts))

    def entries(self, start: int = 1) -> Iterator[Entry]:
        """Yield the entries, oldest first, starting with the last compaction."""
        compaction = self.state().compaction
        gone = 0 if compaction is None else compaction.through
        return read_entries(self._store, self._id, max(start, gone + 1))

    def close(self) -> None:
        """Write a mark of the last entry and close the store. The next use opens it again."""
        with self.change() as change:
            change.charged = self.witness.keeps_outside(self._seen.mark())
        self.close_store()

    def close_store(self) -> None:
        """Close the file or the connection. The next use opens it again."""
        self._store.close()


def find_ledger(folder: Path, *, fingerprint: str, verify: bool = True) -> Ledger:
    """Open the ledger of the model in this folder; with `verify`, read and check all of it."""
    folder = Path(folder)
    open_ledger = Ledger.open if verify else Ledger.unchecked
    return open_ledger(locate_ledger(folder), fingerprint=fingerprint, folder=folder)
