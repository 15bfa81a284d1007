"""A phase on disk, and the session that answers from it or from memory: an arrival is kept before its answer leaves.

What an entry of the ledger names has happened; anything else has not (PROOF.md, steps 18 to 20).

arrived (in memory) -> points synced -> [ the ledger's entry ] -> answers leave
"""

import fcntl
import os
import secrets
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.batch import Batch
from quorate.core.checks import check_process
from quorate.core.disk import sync_path, write_new
from quorate.core.errors import InvalidInput, LedgerRefused, QuorateError
from quorate.core.ledger import Ledger
from quorate.core.ledger import Phase as KeptPhase
from quorate.core.requests import REFUSED, Admitted, Asked, KeptAnswers, Outcome, Query, Replies, Request, outcome_of
from quorate.core.rows import take_rows
from quorate.core.session import Session
from quorate.models.everlasting._arrivals import Arrivals, Phase, Seats, SeatsFile
from quorate.models.everlasting._teaching import ensemble_files, ensemble_from
from quorate.models.saving.codecs import arrays_from, arrays_of, reaching_settings, skops_types
from quorate.models.saving.folder import checked_file, digest_of

_LOCK = "phase.lock"
_NAME = "phase-"  # begins the names of all files of a phase
_NOT_TEACHERS = ("labelled.npz", "probed.npz")  # among the files of a phase


class PhaseFolder:
    """The `Memory` of an everlasting session: the state in memory is the one that the ledger keeps, or it is read anew.

    Queries are not remembered: a repeated one is a query like any other (PROOF.md, step 13). An id is, in its phase.
    """

    def __init__(
        self, arrivals: Arrivals, path: Path, ledger: Ledger, *, features: int, trusted: Sequence[str] | None
    ) -> None:
        self.path, self.ledger = Path(path), ledger
        self.progress: dict[str, Any] = {}  # of what is kept: nobody sees what may be undone
        self.kept: KeptPhase | None = None  # None: what is in memory is not what is kept
        self._arrivals, self._features = arrivals, features
        self._trusted = set(trusted or ())  # types of estimators that files may hold
        self._file: SeatsFile | None = None
        self._going_on = False  # whether memory may be ahead of the disk
        self._let_go = weakref.finalize(self, os.close, _hold(self.path))

    @property
    def is_open(self) -> bool:
        """Whether this process holds the folder."""
        return self._let_go.alive

    @property
    def in_step(self) -> bool:
        """Whether what is in memory is what is kept."""
        return self.kept is not None and not self._going_on

    def close(self) -> None:
        """Let go of the ledger and of the folder: another process may ask it then."""
        if self.is_open:
            self.kept = None
            self._let_go()
            self.ledger.close()

    # --- As a memory -------------------------------------------------------------------------------------------------

    def recall(self, caller: str, queries: Iterable[bytes]) -> Mapping[Query, int]:
        """Return nothing: a repeated query is a query like any other."""
        return {}

    def admit(self, requests: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Return what is known of these requests, by their ids alone."""
        try:
            self.restore()
        except InvalidInput as error:  # of the owner's files, not of what is asked
            raise LedgerRefused(str(error)) from None
        return self.ledger.admit([self._seal_request(request) for request in requests])

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        """Put points on the disk, then one entry into the ledger: after it, and not before, answers may leave."""
        labels.update(answers)
        outcomes = [outcome_of(request, labels) for request in requests]
        sealed = [self._seal_request(request) for request in requests]
        arrivals, previous, file = self._arrivals, self.kept, self._file
        assert previous is not None
        assert file is not None
        if arrivals.number != previous.number:
            self.kept = self._open(previous, sealed, outcomes)
            self._clean(self.kept)
        else:
            rows = self._rows(previous.taken)
            self.kept = self.ledger.keep_phase(
                previous,
                replace(previous, points=file.digest_with(*rows), **_count(arrivals)),
                write=lambda: file.append(*rows),
                asked=sealed,
                outcomes=outcomes,
            )
        self.progress = arrivals.progress
        return list(outcomes)

    def withdraw(self, requests: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Undo the admission of requests that have not arrived: nothing of them was kept."""
        self.ledger.withdraw([self._seal_request(request) for request in requests], used, counted=counted)

    def _seal_request(self, request: Asked) -> Asked:
        """Return a request as the ledger may keep it: without its key, what was asked cannot be guessed."""
        seal = self.ledger.sealer()
        seal.update(request.body)
        return replace(request, queries=[b""] * len(request.queries), body=seal.digest())

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Where anything fails here, go on from the disk: memory has gone on, and the disk has not, or nobody knows.

        An interrupt that comes while another is handled finds that marked: nothing below has to run for it.
        """
        self._going_on = True
        try:
            yield
            self._going_on = False
        except OSError as error:
            self.kept = None
            raise LedgerRefused(f"{self.path} cannot be written: {error.strerror}; nothing is answered") from None
        except BaseException:
            self.kept = None
            raise

    # --- Writing -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Keep the phase that was in memory alone so far, and go on with what is kept."""
        with self.undone():
            self._open(None, [], [])
            self.restore()

    def _open(self, previous: KeptPhase | None, requests: Sequence[Asked], outcomes: Sequence[Outcome]) -> KeptPhase:
        """Write the files of the phase in memory, then the entry that opens it; files that no entry names are waste."""
        arrivals = self._arrivals
        name = f"{_NAME}{arrivals.number}-{secrets.token_hex(4)}"
        contents = ensemble_files(arrivals.phase.ensemble)
        for content in (content for file, content in contents.items() if file.endswith(".skops")):
            # from memory: this process has imported them, and uses them
            self._trusted.update(skops_types(content), reaching_settings(arrivals.phase.ensemble.electorate))
        if arrivals.labelled is not None:
            contents["labelled.npz"] = arrays_of(points=arrivals.labelled[0], labels=arrivals.labelled[1])
        if arrivals.probed is not None:
            contents["probed.npz"] = arrays_of(first=arrivals.probed[0], now=arrivals.probed[1])
        for part, content in contents.items():
            write_new(self.path / f"{name}.{part}", content, synced=True)
        file = self._seats_file(f"{name}.seats", new=True)
        file.append(*self._rows(0))
        sync_path(self.path)
        opened = KeptPhase(
            number=arrivals.number,
            seats=arrivals.size,
            noise="",
            files={f"{name}.{part}": digest_of(content) for part, content in contents.items()},
            seated=file.path.name,
            points=file.digest,
            **_count(arrivals),
        )
        noises = arrivals.phase.noises()
        phase = self.ledger.keep_phase(previous, opened, noises=noises, asked=requests, outcomes=outcomes)
        self._file = file
        return phase

    def _rows(self, first: int) -> tuple[Any, NDArray[np.int64]]:
        """Return what came after the first `taken`, as it is kept: a point that will not teach is left out."""
        points, labels = self._arrivals.seats.since(first)
        points = np.asarray(points, dtype=np.float64).reshape(len(labels), self._features)
        if self._arrivals.terms.boost is None:
            points = np.where(labels[:, np.newaxis] < 0, 0.0, points)
        return points, labels

    def _seats_file(self, name: str, *, new: bool = False) -> SeatsFile:
        make = SeatsFile.create if new else SeatsFile
        return make(self.path / name, features=self._features, sealer=self.ledger.sealer)

    # --- Reading -----------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Read the phase from the disk, where what is in memory is not what is kept."""
        if not self.is_open:
            raise LedgerRefused("this model was closed here; load it again")
        if self.in_step:
            return
        stored = self.ledger.phase()
        if stored is None:
            raise LedgerRefused("the ledger of this model holds no phase: its first one was never opened")
        try:
            self._restore(*stored)
        except OSError as error:
            raise LedgerRefused(f"{self.path} cannot be read: {error.strerror}; nothing is answered") from None

    def _restore(self, stored: KeptPhase, noises: tuple[int, int]) -> None:
        """Go on with the phase that the ledger holds: same teachers, same secret noises, same seats, same count."""
        if stored.lost:
            raise LedgerRefused(
                f"the ledger came from a backup, and what phase {stored.number} has answered since is not known: it "
                "cannot go on (docs/howto/serve-everlasting.md says what can be done)"
            )
        arrivals, terms = self._arrivals, self._arrivals.terms
        self._clean(stored)
        contents = self._contents(stored)
        labelled, probed = (contents.pop(name, None) for name in _NOT_TEACHERS)
        file = self._seats_file(stored.seated)
        points, labels = file.read(stored.taken, stored.points)
        quorum, budget = terms.quorum(stored.number), terms.budget(stored.number)
        budget.spend(quorum.opening_cost(budget.order))
        budget.spend(quorum.no_quorum_cost(budget.order), times=stored.met)
        run = quorum.resume(budget, threshold_noise=noises[0], met=stored.met)
        cutoff = terms.cutoff.resume(limit=noises[1], met=stored.met, closed=stored.closed)
        arrivals.phase = Phase(ensemble_from(contents, sorted(self._trusted)), run, cutoff)
        arrivals.number, arrivals.size, arrivals.seats = stored.number, stored.seats, Seats(stored.seats)
        if stored.taken:
            arrivals.seats.take(points, labels)
        arrivals.labelled = None
        if labelled is not None:
            arrays = arrays_from(labelled)
            arrivals.labelled = arrays["points"], arrays["labels"]
        if probed is not None:
            arrays = arrays_from(probed)
            arrivals.probed = arrays["first"], arrays["now"]
        self.kept, self._file, self.progress = stored, file, arrivals.progress
        self._going_on = False

    def reopen(self) -> None:
        """Open phase 1 once more, where its state is lost, and pay for all of it once more (PROOF.md, step 20)."""
        stored, arrivals, terms = self.ledger.phase(), self._arrivals, self._arrivals.terms
        if stored is None or stored[0].number != 1 or terms.boost is not None:
            raise InvalidInput(
                "only phase 1 of votes can be paid for again: later ones were taught by queries, which have paid "
                "all that they were promised to. Fit a new model"
            )
        try:
            self._restore(*stored)
        except LedgerRefused:  # what is wrong otherwise can be put right
            pass
        else:
            raise InvalidInput("nothing is lost: the phase goes on as it is")
        with self.undone():
            contents = self._contents(stored[0])
            teachers = {name: content for name, content in contents.items() if name not in _NOT_TEACHERS}
            ensemble = ensemble_from(teachers, sorted(self._trusted))
            budget = self.ledger.budget()
            budget.spend(terms.first.run_cost(budget.order))  # on the disk before anything is drawn
            arrivals.begin(1, stored[0].seats, Phase(ensemble, terms.first.open(terms.budget(1)), terms.cutoff.open()))
            self.kept = self._open(stored[0], [], [])
            self._clean(self.kept)

    def _contents(self, stored: KeptPhase) -> dict[str, bytes]:
        return {name.split(".", 1)[1]: checked_file(self.path / name, digest) for name, digest in stored.files.items()}

    def _clean(self, stored: KeptPhase) -> None:
        """Remove the files of every phase but this: the points of earlier ones have taught, and are not kept."""
        names = {*stored.files, stored.seated, _LOCK}
        for path in self.path.glob(f"{_NAME}*"):
            if path.name in names:
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise LedgerRefused(f"{path} is of an earlier phase and cannot be removed: {error.strerror}") from None
        sync_path(self.path)


def _count(arrivals: Arrivals) -> dict[str, Any]:
    """Return what an entry says of a phase besides its files."""
    return {"taken": arrivals.seats.arrivals, "met": arrivals.phase.no_quorums, "closed": arrivals.phase.closed}


def _hold(folder: Path) -> int:
    """Return the open lock file of a model that no other process has open. It is let go when it is closed."""
    try:
        file = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be locked: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise InvalidInput(
            f"{folder} is open elsewhere, and an everlasting model is asked by one process at a time; ask its server, "
            "or stop it first"
        ) from None
    return file


_BLOCK = 2**16  # rows of a batch in one transaction


@dataclass(frozen=True, slots=True, eq=False)
class Feed(Request):
    """Points that the owner trusts, for the next phase. Nothing about them is returned."""


class _NoAnswers(KeptAnswers):
    """A memory in this process that knows ids and no queries (PROOF.md, step 13)."""

    def takes_rows(self, X: Any) -> bool:
        return False  # each row arrives by itself

    def keep(
        self, answers: Mapping[Query, int], labels: dict[Query, int], requests: Sequence[Asked]
    ) -> list[Outcome | QuorateError]:
        labels.update(answers)
        return super().keep({}, labels, requests)


class EverlastingSession(Session):
    """A session whose queries teach, in memory until `keep_in` moves it to a folder, which one process holds."""

    answerer: Arrivals
    block = sys.maxsize  # requests that are answered together are kept together, or not at all; proof: step 19

    def __init__(self, arrivals: Arrivals, folder: PhaseFolder | None = None) -> None:
        super().__init__(
            arrivals, None, ledger=None if folder is None else folder.ledger, memory=folder or _NoAnswers()
        )
        self.folder, self._numbers = folder, count()

    @property
    def progress(self) -> dict[str, Any]:
        """How far the phase has come, as far as it is stored. This is public."""
        return self.answerer.progress if self.folder is None else self.folder.progress

    @property
    def no_quorums(self) -> int:
        """How many arrivals of this phase found no quorum, only for the owner."""
        if self.folder is None:
            return self.answerer.phase.no_quorums
        return 0 if self.folder.kept is None else self.folder.kept.met

    @property
    def takes_feed(self) -> bool:
        """Whether points that the owner gives teach the next phase, rather than queries."""
        return self.answerer.terms.pool is not None

    def arrive(self, X: Any, *, feeds: bool = False, caller: str = "") -> NDArray[np.int64]:
        """Return a class number, `NO_QUORUM` or `REFUSED` for each row of a batch of any length."""
        labels = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(X), _BLOCK):
            block = take_rows(X, slice(start, start + _BLOCK))
            (reply,) = self.ask_all([Feed(block) if feeds else Request(block, caller)])
            if not isinstance(reply, Replies):
                raise reply
            labels.append(np.where(reply.refused, REFUSED, reply.labels))
        return np.concatenate(labels)

    def on_idle(self) -> None:
        """Open the next phase if all seats are taken; an idle server calls this."""
        check_process("this model", self.process)
        with self._lock:
            folder = self.folder
            stored = folder.kept if folder is not None and folder.in_step else None
            if folder is not None and stored is not None and stored.taken == stored.seats:
                with folder.undone():
                    self.answerer.advance()
                    folder.keep({}, {}, [])

    def check_unkept(self) -> None:
        """Refuse a session that has a folder: a phase continues in one place."""
        if self.ledger is not None:
            raise InvalidInput("this classifier has a folder already, and one phase in it; load it from there")

    def keep_in(self, path: Path, ledger: Ledger, *, features: int) -> None:
        """Move from memory to a folder: same phase, same seats, same noise.

        Waiting callers are answered from there.
        """
        with self._lock:
            self.check_unkept()  # another thread may have saved it meanwhile; proof: step 18
            folder = PhaseFolder(self.answerer, path, ledger, features=features, trusted=None)
            self.folder, self.ledger, self._memory = folder, ledger, folder
            self.answerer.move(ledger)  # from here on nothing is answered in memory, whatever happens next
            folder.begin()

    def close(self) -> None:
        """Close the ledger and the folder, so that another process may use the model."""
        with self._lock:
            if self.folder is not None:
                self.folder.close()

    def _describe_request(self, request: Request) -> Asked:
        """Return a request without a trace of its queries: each row has a name of its own."""
        body = (b"feed" if isinstance(request, Feed) else b"request") + request.body
        first = next(self._numbers) << 32
        keys = [(first + row).to_bytes(8) for row in range(len(request.X))]
        return Asked(request.caller, keys, request.id, body)

    def _guard(self, batch: Batch) -> AbstractContextManager[None]:
        requests = [batch.requests[index] for index in batch.waiting]
        self.answerer.arriving = [(len(request.X), isinstance(request, Feed)) for request in requests]
        return nullcontext() if self.folder is None else self.folder.undone()
