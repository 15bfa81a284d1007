"""The ledger of one model: its account, what is out on lease, its keys, its answers; read, checked and changed here.

A charge is on the disk, and its mark beside it, before anything is drawn for it. Every entry is tied to the ones before
it by a keyed hash, and whoever opens the ledger reads and checks all of them.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorate.core.errors import InvalidInput, LedgerRefused, QuorateError
from quorate.core.ledger._compaction import Compacting
from quorate.core.ledger._keys import KeyRing
from quorate.core.ledger._phases import Phases, take_over_phase
from quorate.core.ledger._postgres import PostgresStore, check_driver
from quorate.core.ledger._requests import admit, forget_requests, keep, recall, set_aside, take_over, withdraw
from quorate.core.ledger._rules import FORMAT, State
from quorate.core.ledger._store import SQLiteStore, Store, folder_of, is_url, locate_ledger, make_key, read_key
from quorate.core.ledger._verify import RUNS, Verification, check_chain, check_marks, read_entries, run_noises
from quorate.core.ledger._views import Activity, LedgerView, Refusal, view_of
from quorate.core.ledger.budget import LeasedBudget, is_gone, owner_name
from quorate.core.ledger.chain import Change, Entry, Head, Witness, keyed_hash
from quorate.core.privacy import Budget
from quorate.core.requests import NO_QUORUM, OWN_CALLER, Admitted, Asked, Outcome, Query, SetAside

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
                [(self._id, refusal.at, refusal.caller, refusal.code) for refusal in refusals],
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


_ID = 16
_HELD = 30.0  # seconds that an id is left to a process that cannot be looked up
_PROBE = "probe"  # the name of a row that proves that the ledger can be written


class Ledger(Notes, Phases, KeyRing, Compacting):
    """What a model has spent and may spend, kept so that no crash, copy or restart gives any of it back.

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
        self._id = fingerprint[:_ID]  # what its rows carry; the opening entry has all of it
        self._seen = Head()
        self.witness = Witness(folder, fingerprint, key, in_database=is_url(store.place))
        self._session = secrets.token_hex(8)  # tells two users of one process apart
        self.lease_name = ""  # of the budget that pays here
        self._admitted = 0.0  # when requests were last let in
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
        """Make the ledger for a budget, and take the account over: the budget given can spend nothing more.

        `folder` is where its key and its mark lie: beside the file unless given.
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
        spent = [str(quanta) for quanta in budget.close()]  # a move: from here on only the ledger can spend
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
        """Write the first entry, and what came with the account from another place."""
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
                take_over_phase(change, *phase)
            if answers or requests:
                take_over(change, answers, requests)
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
        """Open a ledger that nobody has read yet: to move it, to restore it, or to say what is wrong with it."""
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
        """Return whether the place holds a ledger of this model."""
        with self._store.transaction(self._id) as statements:
            return bool(statements.run("SELECT seq FROM quorate_snapshot WHERE ledger = ?", (self._id,)))

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Open one transaction on the ledger. It is on the disk when this ends, and with it the mark of a charge."""
        change: Change | None = None

        def mark_commit() -> None:
            assert change is not None
            if change.appended or change.charged:
                self.witness.write(change.mark(), near=not change.charged, anew=change.anew)
            change.committed(self._seen)

        with self._store.transaction(self._id, mark_commit) as statements:
            change = Change.read(statements, self._id, self._key, self._seen)
            yield change
            if change.charged and not change.anew:  # two copies in use at once: one of them finds the other's mark
                for mark in self.witness.marks():
                    change.check(mark)
            change.write()

    def state(self) -> State:
        """Return what the ledger holds now."""
        with self.change() as change:
            return change.state

    def probe(self) -> None:
        """Write something of no meaning, and sync it; raise `LedgerRefused` where that cannot be done."""
        self._store.check_room()
        with self.change() as change:
            change.statements.run(
                "INSERT INTO quorate_secret VALUES (?, ?, 1) ON CONFLICT (ledger, name) DO UPDATE SET "
                "value = quorate_secret.value + 1",
                (self._id, _PROBE),
            )

    def last_state(self) -> State:
        """Return what the ledger held when this process last looked."""
        return self._seen.state or self.state()

    def budget(self, *, lease: int = 0) -> LeasedBudget:
        """Return the budget kept here. With a `lease` this process takes out so many answers' worth at a time."""
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
        """Return the secret noise of the open run, or None where none is open."""
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
        """Keep what a model has chosen, once and for all, and return what stands: another process may have been first.

        It must not have left this process before. What was chosen earlier is never replaced.
        """
        with self.change() as change:
            if change.state.choice is None:
                change.append("chosen", {"choice": choice})
            assert change.state.choice is not None
            return change.state.choice

    def choice(self) -> str | None:
        """Return what was chosen, as far as this process has seen the ledger, or None. `LOST` stands in an old copy."""
        return self.last_state().choice

    def count_answers(self) -> int:
        """Return how many answers were ever kept: as many as were drawn and may have left."""
        with self.change() as change:
            statement = "SELECT count(*) FROM quorate_answer WHERE ledger = ? AND seq > ?"
            count = change.statements.run(statement, (self._id, change.state.forgotten))[0][0]
            return int(count) + change.state.answers_forgotten

    def recall(self, caller: str, queries: Iterable[bytes]) -> dict[Query, int]:
        """Return the answers that this caller was given to these queries. Nothing is counted."""
        with self.change() as change:
            return recall(change, {caller: queries})

    def admit(self, requests: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Look requests up and take their ids, before anything is drawn for them."""
        with self.change() as change:
            self._admitted = change.at
            return admit(change, requests, owner=self._owner(), is_gone=_is_gone)

    def withdraw(self, requests: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Undo the admission of requests of which nothing leaves: their ids are free, and rows need not be `counted`.

        `used` says what may have been used of callers' shares; the rest of what was set aside for them is let go.
        """
        with self.change() as change:
            withdraw(change, requests, used, owner=self._owner(), admitted=self._admitted, counted=counted)

    def keep(
        self,
        answers: Mapping[Query, int],
        labels: dict[Query, int],
        requests: Sequence[Asked],
        *,
        used: Mapping[str, Sequence[int]] | None = None,
        kept_before: int = 0,
    ) -> list[Outcome | QuorateError]:
        """Keep answers and outcomes, before they leave.

        `used` says of callers how many no-quorums they met, and at what cost; it ends what was set aside for them.
        `kept_before` answers of these requests were drawn for them and kept before: they are no repetitions.
        """
        with self.change() as change:
            return keep(
                change,
                answers,
                labels,
                requests,
                owner=self._owner(),
                lease=self.lease_name,
                no_quorum=NO_QUORUM,
                used=used,
                kept_before=kept_before,
            )

    def keep_own(self, values: Mapping[bytes, int]) -> None:
        """Keep what a model goes on from, each value under a name of its own, and mark it as a charge is marked.

        Nothing is replaced: where one of these names is taken, another copy of the model is in use, or was.
        """
        with self.change() as change:
            if recall(change, {OWN_CALLER: values}):
                raise LedgerRefused(
                    "another copy of this model has gone on from here: one of the two gives budget back"
                )
            answers = {(OWN_CALLER, name): value for name, value in values.items()}
            keep(change, answers, {}, [], owner=self._owner(), lease=self.lease_name, no_quorum=NO_QUORUM, used=None)
            change.charged = True  # an old copy must not go on from before

    def renew(self, caller: str, reserved: SetAside, used: Sequence[int], *, rows: int, need: int) -> SetAside:
        """Charge a caller with what a request has used so far, and set more aside for so many rows that are left."""
        with self.change() as change:
            settled = [reserved.no_quorums, reserved.cost]
            body = {"owner": self._owner(), "caller": caller, "settled": settled, "used": list(used)}
            change.append("renewed", body | {"held": [None, None]})
            renewed = set_aside(change, caller, rows, reserved={}, owner=self._owner(), is_gone=_is_gone, need=need)
            none = {"settled": [None, None], "used": [0, 0]}
            change.append("renewed", body | none | {"held": [renewed.no_quorums, renewed.cost]})
            return renewed

    def _owner(self) -> str:
        return f"{self._session}@{owner_name()}"

    def view(self) -> LedgerView:
        """Return what the owner may want to look at."""
        state = self.state()
        return view_of(state, place=self.place, entries=self._seen.seq, head=self._seen.mac)

    def verify(self) -> Verification:
        """Read the whole ledger and say what is wrong with it."""
        marks, unmarked = [self._seen.mark()], tuple[str, ...]()
        try:
            marks += self.witness.marks()  # before the rest: the ledger may go on while it is read
        except LedgerRefused as error:
            unmarked = (str(error),)
        try:
            verification = check_marks(self.check_entries(), marks)
        except LedgerRefused as error:
            verification = Verification(entries=0, head="", problems=(str(error),))
        return replace(verification, problems=verification.problems + unmarked)

    def check_entries(self) -> Verification:
        """Read all entries and say what is wrong with them, whatever the marks say."""
        return check_chain(self._store, self._id, self._key, self._run_mac)

    def export_hash(self, *parts: str) -> str:
        """Return a hash under the ledger's key, for what an export must not say in clear."""
        return keyed_hash(self._key, b"export", *(part.encode() for part in parts))

    def entries(self, start: int = 1) -> Iterator[Entry]:
        """Yield the entries, oldest first: those since the last compaction, which is the first of them."""
        compaction = self.state().compaction
        gone = 0 if compaction is None else compaction.through
        return read_entries(self._store, self._id, max(start, gone + 1))

    def close(self) -> None:
        """Leave a mark of how far the ledger has come, and let go of it. The next use opens it again."""
        with self.change() as change:
            change.charged = True
        self.close_store()

    def close_store(self) -> None:
        """Let go of the file or the connection. The next use opens it again."""
        self._store.close()


def _is_gone(owner: str, silent: float) -> bool:
    """Return whether who holds an id is dead, or cannot be looked up and has held it for as long as an idle lease.

    One that lives nevertheless sends nothing: whoever keeps an outcome first wins (PROOF.md, step 8).
    """
    return is_gone(owner.partition("@")[2], silent=silent, patience=_HELD)


def find_ledger(folder: Path, *, fingerprint: str, verify: bool = True) -> Ledger:
    """Open the ledger of the model in this folder; with `verify`, read and check all of it."""
    folder = Path(folder)
    open_ledger = Ledger.open if verify else Ledger.unchecked
    return open_ledger(locate_ledger(folder), fingerprint=fingerprint, folder=folder)
