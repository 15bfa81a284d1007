"""An everlasting classifier that survives: its phases in a folder, one transaction for each group of requests.

    requests -> admitted -> arrived (in memory) -> points synced -> [ the ledger's entry ] -> answers leave

The entry in brackets is the only thing that counts. What was drawn and is not in it was never seen by anybody: after
a crash, or an error, the state is read from the disk again, as it was before. A group that fills the seats opens the
next phase in the same transaction. Proof: PROOF.md, steps 18 to 20.
"""

import os
import secrets
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput, LedgerRefused, QuorateError
from quorate.everlasting.classifier import EverlastingClassifier
from quorate.everlasting.folder import LOCK, hold, sync
from quorate.everlasting.phase import Phase
from quorate.everlasting.seats import Seats
from quorate.everlasting.seats_file import SeatsFile
from quorate.everlasting.teacher_files import arrays_from, arrays_of, ensemble_files, ensemble_from
from quorate.exchange import Replies, Request, firsts_of, replies_of
from quorate.ledger import Ledger
from quorate.ledger import Phase as KeptPhase
from quorate.memory import REFUSED, Admitted, Asked, Outcome
from quorate.models.codecs import skops_types
from quorate.models.folder import checked_file, digest_of, write_new
from quorate.privacy import Cost
from quorate.process import check_process, process_identity
from quorate.rows import join_rows, take_rows

__all__ = ["EverlastingSession", "Feed"]

_BLOCK = 2**16  # rows of a batch in one transaction
_NAME = "phase-"  # begins the names of all files of a phase
_NOT_TEACHERS = ("labelled.npz", "probed.npz")  # among the files of a phase


@dataclass(frozen=True, slots=True, eq=False)
class Feed(Request):
    """Points that the owner trusts, for the next phase. Nothing is told about them.

    >>> Feed(np.zeros((1, 1))).caller
    ''
    """


class EverlastingSession:
    """The one process that asks a model in a folder. The classifier holds the phase in memory, and this keeps it.

    >>> {"ask_all", "on_idle", "close"} <= set(vars(EverlastingSession))
    True
    """

    def __init__(
        self,
        classifier: EverlastingClassifier,
        folder: Path,
        ledger: Ledger,
        *,
        trusted: Sequence[str] | None = None,
    ) -> None:
        self.ledger, self.process = ledger, process_identity()
        self.classifier, self._folder = classifier, Path(folder)
        self._trusted = set(trusted or ())  # types of estimators that files may hold
        self._lock = threading.Lock()
        self._let_go = weakref.finalize(self, os.close, hold(self._folder))
        self._kept: KeptPhase | None = None  # None: what is in memory is not what is kept
        self._file: SeatsFile | None = None
        self.progress: dict[str, Any] = {}  # of what is kept: everybody may know, and nobody sees what is undone

    # --- Asking ------------------------------------------------------------------------------------------------------

    def ask(self, X: Any, *, feeds: bool = False) -> NDArray[np.int64]:
        """Return a class number, `NO_QUORUM` or `REFUSED` for each row of a batch of any length."""
        labels = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(X), _BLOCK):
            block = take_rows(X, slice(start, start + _BLOCK))
            (reply,) = self.ask_all([Feed(block) if feeds else Request(block)])
            if not isinstance(reply, Replies):
                raise reply
            labels.append(np.where(reply.refused, REFUSED, reply.labels))
        return np.concatenate(labels)

    def ask_all(self, requests: Sequence[Request]) -> list[Replies | QuorateError]:
        """Answer requests together, in order. What is wrong with one is returned in its place.

        An id that was answered in this phase gets the same answer, and is not asked again. Nothing else is remembered:
        a repeated query is a query like any other (PROOF.md, step 13).
        """
        asked = [Asked(one.caller, [b""] * len(one.X), one.id, self._sealed(one)) for one in requests]
        firsts = firsts_of(asked)
        alone = [place for place, first in enumerate(firsts) if place == first]
        with self._lock:
            try:
                self._ready()
            except InvalidInput as error:  # of the owner's files, not of what is asked
                raise LedgerRefused(str(error)) from None
            results = dict(zip(alone, self.ledger.admit([asked[place] for place in alone]), strict=True))
            waiting = [place for place, one in results.items() if isinstance(one, Admitted) and one.outcome is None]
            if waiting:
                outcomes = self._answered([requests[place] for place in waiting], [asked[place] for place in waiting])
                results |= {place: Admitted({}, made) for place, made in zip(waiting, outcomes, strict=True)}
        return [replies_of(results[first], Cost(0.0), None) for first in firsts]

    def on_idle(self) -> None:
        """Open the next phase where all seats are taken: for a server with nothing to do."""
        with self._lock:
            check_process("this classifier", self.process)
            if self._let_go.alive and self._kept is not None and self._kept.taken == self._kept.seats:
                self._answered([], [])

    def close(self) -> None:
        """Let go of the ledger, and of the model: another process may ask it then."""
        with self._lock:
            if self._let_go.alive:
                self._kept = None
                self._let_go()
                self.ledger.close()

    @property
    def no_quorums(self) -> int:
        """How many arrivals of this phase found no quorum: for the owner alone."""
        return 0 if self._kept is None else self._kept.met

    @property
    def takes_feed(self) -> bool:
        """Whether points that the owner gives teach the next phase, rather than queries."""
        return self.classifier.terms_.pool is not None

    def _sealed(self, request: Request) -> bytes:
        """Return a digest of a request as the ledger may keep it: without the ledger's key it tells nothing."""
        made = self.ledger.sealer()
        made.update((b"feed" if isinstance(request, Feed) else b"request") + request.body)
        return made.digest()

    def _answered(self, requests: Sequence[Request], asked: Sequence[Asked]) -> list[Outcome]:
        """Let requests arrive, and keep what became of them; if anything fails, nothing has happened."""
        with self._undone():
            outcomes = self._arrived(requests)
            self._keep(asked, outcomes)
            self.progress = self.classifier.progress_
        return outcomes

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Where anything fails here, go on from the disk: memory has gone on, and the disk has not, or nobody knows."""
        try:
            yield
        except OSError as error:
            self._kept = None
            raise LedgerRefused(f"{self._folder} cannot be written: {error.strerror}; nothing is answered") from None
        except BaseException:
            self._kept = None
            raise

    def _arrived(self, requests: Sequence[Request]) -> list[Outcome]:
        classifier = self.classifier
        if not requests:
            classifier._advance()
        outcomes: list[Outcome] = []
        for feeds, some in groupby(requests, key=lambda one: isinstance(one, Feed)):
            parts = [_numbers(one.X) for one in some]
            labels = classifier._come(join_rows(parts), feeds=feeds)
            if feeds:
                labels = np.zeros_like(labels)  # nothing is told about them; proof: step 7
            ends = np.cumsum([len(part) for part in parts])
            outcomes += [one.tolist() for one in np.split(labels, ends[:-1])]
        return outcomes

    # --- Keeping -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Keep the phase of a classifier that was in memory so far, and go on with what is kept."""
        with self._lock, self._undone():
            self._open(None, [], [])
            self._ready()

    def _keep(self, asked: Sequence[Asked], outcomes: Sequence[Outcome]) -> None:
        """Put points on the disk, then one entry into the ledger: after it, and not before, answers may leave."""
        classifier, before, file = self.classifier, self._kept, self._file
        assert before is not None
        assert file is not None
        if classifier._number != before.number:
            self._kept = self._open(before, asked, outcomes)
            self._clean(self._kept)
            return
        points, labels = self._rows(before.taken)
        phase = classifier._phase
        after = replace(before, taken=classifier.seats_taken_, met=phase.met, closed=phase.closed)
        after = replace(after, points=file.digest_with(points, labels))
        self._kept = self.ledger.keep_phase(
            before, after, write=lambda: file.append(points, labels), asked=asked, outcomes=outcomes
        )

    def _open(self, before: KeptPhase | None, asked: Sequence[Asked], outcomes: Sequence[Outcome]) -> KeptPhase:
        """Write the files of the phase in memory, then the entry that opens it; files that no entry names are waste."""
        classifier, phase = self.classifier, self.classifier._phase
        made = f"{_NAME}{classifier._number}-{secrets.token_hex(4)}"
        contents = ensemble_files(phase.ensemble)
        for content in (content for name, content in contents.items() if name.endswith(".skops")):
            self._trusted.update(skops_types(content))  # from memory: this process has imported them, and uses them
        if classifier._labelled_set is not None:
            contents["labelled.npz"] = arrays_of(points=classifier._labelled_set[0], labels=classifier._labelled_set[1])
        if classifier._probed is not None:
            contents["probed.npz"] = arrays_of(first=classifier._probed[0], now=classifier._probed[1])
        for name, content in contents.items():
            write_new(self._folder / f"{made}.{name}", content, synced=True)
        file = self._seats_file(f"{made}.seats", new=True)
        file.append(*self._rows(0))
        sync(self._folder)
        after = KeptPhase(
            number=classifier._number,
            seats=classifier._size,
            noise="",
            files={f"{made}.{name}": digest_of(content) for name, content in contents.items()},
            seated=file.path.name,
            taken=classifier.seats_taken_,
            met=phase.met,
            closed=phase.closed,
            points=file.digest,
        )
        kept = self.ledger.keep_phase(before, after, noises=phase.noises(), asked=asked, outcomes=outcomes)
        self._file = file
        return kept

    def _rows(self, taken: int) -> tuple[Any, NDArray[np.int64]]:
        """Return what came after the first `taken`, as it is kept: a point that will not teach is left out."""
        points, labels = self.classifier._seats.since(taken)
        points = _numbers(points).reshape(len(labels), self.classifier.n_features_in_)
        if self.classifier.terms_.boost is None:
            points = np.where(labels[:, np.newaxis] < 0, 0.0, points)
        return points, labels

    def _seats_file(self, name: str, *, new: bool = False) -> SeatsFile:
        make = SeatsFile.create if new else SeatsFile
        return make(self._folder / name, features=self.classifier.n_features_in_, sealer=self.ledger.sealer)

    def reopen(self) -> None:
        """Open phase 1 once more, where its state is lost, and pay for all of it once more (PROOF.md, step 20)."""
        with self._lock, self._undone():
            found = self.ledger.phase()
            if found is None or found[0].number != 1 or self.classifier.terms_.boost is not None:
                raise InvalidInput(
                    "only phase 1 of votes can be paid for again: later ones were taught by queries, which have paid "
                    "all that they were promised to. Fit a new model"
                )
            kept, classifier, terms = found[0], self.classifier, self.classifier.terms_
            try:
                self._restore(*found)
            except LedgerRefused:  # what is wrong otherwise can be put right
                pass
            else:
                raise InvalidInput("nothing is lost: the phase goes on as it is")
            contents = self._contents(kept)
            teachers = {name: contents[name] for name in contents if name not in _NOT_TEACHERS}
            ensemble = ensemble_from(teachers, sorted(self._trusted))
            budget = self.ledger.budget()
            budget.spend(terms.first.run_cost(budget.order))  # on the disk before anything is drawn
            run = terms.first.open(terms.budget(1))
            classifier._begin(1, kept.seats, Phase(ensemble, run, terms.cutoff.open()))
            self._kept = self._open(kept, [], [])
            self._clean(self._kept)
            self.progress = classifier.progress_

    # --- Coming back -------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Read the phase from the disk, where it is not in memory as it is kept."""
        with self._lock:
            self._ready()

    def _ready(self) -> None:
        check_process("this classifier", self.process)
        if not self._let_go.alive:
            raise LedgerRefused("this model was closed here; load it again")
        if self._kept is None:
            found = self.ledger.phase()
            if found is None:
                raise LedgerRefused("the ledger of this model holds no phase: its first one was never opened")
            try:
                self._restore(*found)
            except OSError as error:
                raise LedgerRefused(f"{self._folder} cannot be read: {error.strerror}; nothing is answered") from None

    def _restore(self, kept: KeptPhase, noises: tuple[int, int]) -> None:
        """Go on with the phase that the ledger holds: same teachers, same secret noises, same seats, same count."""
        if kept.lost:
            raise LedgerRefused(
                f"the ledger came from a backup, and what phase {kept.number} has answered since is not known: it "
                "cannot go on (docs/OPERATIONS.md says what can be done)"
            )
        classifier, terms = self.classifier, self.classifier.terms_
        self._clean(kept)
        contents = self._contents(kept)
        labelled, probed = (contents.pop(name, None) for name in _NOT_TEACHERS)
        file = self._seats_file(kept.seated)
        points, labels = file.read(kept.taken, kept.points)
        quorum, budget = terms.quorum(kept.number), terms.budget(kept.number)
        budget.spend(quorum.opening_cost(budget.order))
        budget.spend(quorum.no_quorum_cost(budget.order), times=kept.met)
        run = quorum.resume(budget, threshold_noise=noises[0], met=kept.met)
        cutoff = terms.cutoff.resume(limit=noises[1], met=kept.met, closed=kept.closed)
        classifier._phase = Phase(ensemble_from(contents, sorted(self._trusted)), run, cutoff)
        classifier._number, classifier._size, classifier._seats = kept.number, kept.seats, Seats(kept.seats)
        if kept.taken:
            classifier._seats.take(points, labels)
        classifier._labelled_set = None
        if labelled is not None:
            arrays = arrays_from(labelled)
            classifier._labelled_set = arrays["points"], arrays["labels"]
        if probed is not None:
            arrays = arrays_from(probed)
            classifier._probed = arrays["first"], arrays["now"]
        self._kept, self._file, self.progress = kept, file, classifier.progress_

    def _contents(self, kept: KeptPhase) -> dict[str, bytes]:
        return {name.split(".", 1)[1]: checked_file(self._folder / name, digest) for name, digest in kept.files.items()}

    def _clean(self, kept: KeptPhase) -> None:
        """Remove the files of every phase but this: the points of earlier ones have taught, and are not kept."""
        named = {*kept.files, kept.seated, LOCK}
        for path in self._folder.glob(f"{_NAME}*"):
            if path.name in named:
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise LedgerRefused(f"{path} is of an earlier phase and cannot be removed: {error.strerror}") from None
        sync(self._folder)


def _numbers(X: Any) -> Any:
    return np.asarray(X, dtype=np.float64)
