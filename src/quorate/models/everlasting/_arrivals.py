"""The state of an everlasting classifier: the phase that is open, who sits in it, and how it teaches the next one.

A seat is taken by every arrival, answered or not. One without a released label stays empty: no other arrival moves
up into it. The points are private: they are kept for the phase that they teach, and for nothing else.
"""

import math
import os
import stat
import threading
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import Ensemble, deal_units, secret_subset
from quorate.compute.learners import Deal
from quorate.core.answerers import Prepaid
from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import release_votes
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.mechanisms import NO_QUORUM, Answers, Relabel
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.cutoff import CutoffRun
from quorate.core.privacy import Cost
from quorate.core.requests import REFUSED
from quorate.core.rows import join_rows, take_rows
from quorate.models.concepts import Concept
from quorate.models.everlasting._teaching import teach
from quorate.models.everlasting._terms import Boost, Terms


class Seats:
    """A fixed number of seats. It is private: it has no text and no copy."""

    __slots__ = ("_labels", "_points", "_seats", "_taken")

    def __init__(self, seats: int) -> None:
        self._seats, self._taken = seats, 0
        self._points: list[Any] = []
        self._labels: list[Integers] = []

    @property
    def arrivals(self) -> int:
        """How many arrivals there have been: everybody may know."""
        return self._taken

    @property
    def free(self) -> int:
        """How many seats are free."""
        return self._seats - self._taken

    def take(self, X: Any, labels: Integers) -> None:
        """Seat these arrivals in order; a label below 0 leaves the seat of its arrival empty."""
        self._points.append(X.copy() if isinstance(X, np.ndarray) else X)
        self._labels.append(np.maximum(labels, NO_QUORUM))  # refused or no quorum, both are empty; proof: step 3
        self._taken += len(labels)

    def since(self, first: int) -> tuple[Any, Integers]:
        """Return points and labels, by seat, of the arrivals after the first `taken`."""
        parts, labels, end = list[Any](), list[Integers](), self._taken
        for X, part_labels in zip(
            reversed(self._points), reversed(self._labels), strict=True
        ):  # few are new, and many are not
            if end <= first:
                break
            end -= len(part_labels)
            parts.append(take_rows(X, slice(max(0, first - end), None)))
            labels.append(part_labels[max(0, first - end) :])
        return join_rows(parts[::-1]), np.concatenate([np.empty(0, dtype=np.int64), *labels[::-1]])

    def __repr__(self) -> str:
        return "<sealed seats>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("seats hold private points and cannot be copied, pickled or stored")


def deal_seats(labels: Integers, *, teachers: int) -> Deal:
    """Deal seats to teachers by a secret permutation of seat numbers; empty seats are dealt too, and bring no row."""
    dealt, _ = deal_units(np.arange(labels.size), labels.size, teachers=teachers)  # whatever the labels; proof: step 3
    owner = np.empty(labels.size, dtype=np.int64)
    owner[dealt.rows] = np.repeat(np.arange(teachers), dealt.sizes)
    return Deal.by_assignment(np.where(labels < 0, -1, owner), teachers=teachers)


class SeatsFile:
    """The file of one phase. `sealer` makes the keyed hash, which goes on from row to row."""

    def __init__(self, path: Path, *, features: int, sealer: Callable[[], Any]) -> None:
        self.path, self._sealer = path, sealer
        self._type = np.dtype([("point", "<f8", (features,)), ("label", "<i8")])
        self._hash, self._rows = sealer(), 0

    @classmethod
    def create(cls, path: Path, *, features: int, sealer: Callable[[], Any]) -> "SeatsFile":
        """Make an empty file for its owner's eyes alone."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return cls(path, features=features, sealer=sealer)

    @property
    def digest(self) -> str:
        """The keyed hash of all rows so far."""
        return str(self._hash.hexdigest())

    def digest_with(self, points: Any, labels: Integers) -> str:
        """Return what the keyed hash will be when these rows are added."""
        hashed = self._hash.copy()
        hashed.update(self._row_bytes(points, labels))
        return str(hashed.hexdigest())

    def _row_bytes(self, points: Any, labels: Integers) -> bytes:
        rows = np.empty(len(labels), dtype=self._type)
        rows["point"], rows["label"] = points, labels
        return rows.tobytes()

    def append(self, points: Any, labels: Integers) -> None:
        """Add rows, and wait until they are on the disk."""
        if len(labels) == 0:
            return
        content = self._row_bytes(points, labels)
        file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            start = self._rows * self._type.itemsize
            os.ftruncate(file, start)  # what an append that failed has left
            view = memoryview(content)
            while view:
                written = os.pwrite(file, view, start)
                view, start = view[written:], start + written
            os.fsync(file)
        finally:
            os.close(file)
        self._hash.update(content)
        self._rows += len(labels)

    def read(self, rows: int, digest: str) -> tuple[NDArray[np.float64], Integers]:
        """Return the first rows, which must be those that the ledger speaks of, and cut off what comes after them."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LedgerRefused(f"{self.path} is missing from the model") from None
        except OSError as error:
            raise InvalidInput(f"{self.path} cannot be opened: {error.strerror}") from None
        try:
            if stat.S_IMODE(os.fstat(file).st_mode) & 0o077:
                raise InvalidInput(f"{self.path} holds people's points and others may read it; chmod 600 it")
            size = rows * self._type.itemsize
            with open(os.dup(file), "rb") as readable:
                content = readable.read(size)
            self._hash, self._rows = self._sealer(), rows
            self._hash.update(content)
            if len(content) != size or self.digest != digest:
                raise LedgerRefused(
                    f"{self.path} is not the one that the ledger speaks of: it was changed or cut short"
                )
            if os.fstat(file).st_size > size:
                os.ftruncate(file, size)  # their answers never left
                os.fsync(file)
        finally:
            os.close(file)
        stored = np.frombuffer(content, dtype=self._type)
        return stored["point"].astype(np.float64), stored["label"].astype(np.int64)


def label_sample(
    concept: Concept, labelled: tuple[Floats, Integers], points: Any, *, boost: Boost, seats: int
) -> tuple[Floats, Integers]:
    """Return a sample of `seats` of the points, labelled by a hypothesis that a sample of the labelled rows chooses."""
    X, y = labelled
    chosen = secret_subset(len(points), seats)  # proof: step 10
    some = secret_subset(len(y), max(1, round(boost.labelled * len(y))))  # proof: step 8
    new = np.asarray(points, dtype=np.float64)[chosen]
    relabelled = Relabel(concept=concept, kappa=boost.kappa).relabel(X[some], y[some], unlabelled=new)
    return new, relabelled.unlabelled


_BLOCK = 2**16  # arrivals counted together


class Phase:
    """Answers arrivals in order until the cutoff closes it; what comes after is refused. Threads may share it."""

    def __init__(self, ensemble: Ensemble, run: Run, cutoff: CutoffRun) -> None:
        self.ensemble, self._run, self._cutoff = ensemble, run, cutoff  # the teachers are private
        self._lock = threading.Lock()
        self._uncounted = False  # whether the run has drawn what the cutoff has not counted yet

    @property
    def no_quorums(self) -> int:
        """How many arrivals found no quorum: for the owner alone."""
        return self._cutoff.met

    @property
    def closed(self) -> bool:
        """Whether arrivals are refused until the next phase: everybody may know."""
        return self._cutoff.closed

    def noises(self) -> tuple[int, int]:
        """Return the secret noise of the threshold and the secret limit: for the owner's ledger, and for nobody."""
        return self._run.threshold_noise, self._cutoff.limit

    def end(self) -> None:
        """Answer nothing more here: somebody else goes on with the phase."""
        self._run.end()

    def ask(self, X: Any) -> Integers:
        """Return a class number, `NO_QUORUM` or `REFUSED` for each arrival.

        Outcomes are drawn for a block of arrivals and thrown away from where the phase closes: nobody sees them, and
        it is as if they had not been drawn.
        """
        labels = np.full(len(X), REFUSED, dtype=np.int64)
        start = 0
        with self._lock:  # what the run draws, the cutoff counts before anything else is drawn: proof, step 4
            if self._uncounted:  # a second interrupt came before the first one had closed the phase
                self._cutoff.close()
            while start < len(X) and not self._cutoff.closed:
                try:
                    outcomes = self._draw_outcomes(take_rows(X, slice(start, start + _BLOCK)))
                    admitted = self._cutoff.admit(outcomes == NO_QUORUM)  # before each answer; proof: step 4
                    self._uncounted = False
                except BaseException:
                    if self._uncounted:  # the run may have met what the cutoff will never know
                        self._cutoff.close()
                    raise
                labels[start : start + admitted] = outcomes[:admitted]
                start += admitted
        return labels

    def _draw_outcomes(self, X: Any) -> Integers:
        """Return outcomes of these arrivals, with one threshold noise for all of the phase (proof: step 4).

        The run ends with its last no-quorum. The cutoff has reached its limit by then, and closes at the next arrival,
        whatever it would be: so what the run does not say any more may be anything.
        """
        labels = np.full(len(X), NO_QUORUM, dtype=np.int64)
        if self._run.no_quorums_left:
            answers = release_votes(self.ensemble, X, self._answers).labels
            labels[: answers.size] = answers
        return labels

    def _answers(self, votes: Integers) -> Answers:
        """Draw answers. What fails before this, while ballots are counted, has drawn nothing."""
        self._uncounted = True
        return self._run.answers(votes)


class Arrivals(Prepaid):
    """The answerer of an everlasting session: every query arrives in a phase, and may teach the next one.

    A phase is paid for when it opens, and no share may count its no-quorums. A closed one refuses each query by itself.

    `settings` are the parameters of the fit: what is set later changes nothing (PROOF.md, step 1). `arriving`
    says of what `draw` is given next how many rows each request has, and whether they are points that the owner feeds.
    """

    def __init__(self, terms: Terms, estimator: Any, *, classes: int, settings: Mapping[str, Any], probe: Any) -> None:
        self.terms, self.estimator, self.classes, self.settings, self.probe = terms, estimator, classes, settings, probe
        self.phase: Phase
        self.seats: Seats
        self.number = self.size = 0
        self.labelled: tuple[Any, Integers] | None = None  # the labelled set of LabelBoost
        self.probed: tuple[Integers, Integers] | None = None  # what the probe was answered in phase 1, and in this one
        self.arriving: list[tuple[int, bool]] = []

    # --- Phases ------------------------------------------------------------------------------------------------------

    def teach(
        self, number: int, X: Any, codes: Integers, deal: Deal, *, units: int, size: int, labelled: Any = None
    ) -> None:
        """Teach the teachers of a phase, draw its secret noises (one threshold, one limit), and begin it."""
        ensemble = teach(
            self.estimator,
            X,
            codes,
            deal,
            classes=self.classes,
            units=units,
            first=number == 1,
            n_jobs=self.settings["n_jobs"],
            backend=self.settings["backend"],
            device=self.settings.get("device", "auto"),  # which no folder keeps
        )
        run = self.terms.quorum(number).open(self.terms.budget(number))  # proof: steps 5 and 6
        self.begin(number, size, Phase(ensemble, run, self.terms.cutoff.open()), labelled)

    def boost(self, number: int, X: Any, codes: Integers, *, size: int) -> None:
        """Begin a phase of LabelBoost. Its labelled set is kept: a sample of it labels the next one."""
        deal = deal_seats(codes, teachers=len(codes) // self.settings["chunk"])
        self.teach(number, X, codes, deal, units=len(codes), size=size, labelled=(X, codes))

    def begin(self, number: int, size: int, phase: Phase, labelled: Any = None) -> None:
        """Begin a phase in which nobody sits yet, and ask the probe."""
        seats = Seats(size)  # who sat before goes here, and not earlier: whatever is interrupted before has not begun
        self.phase, self.number, self.size, self.seats, self.labelled = phase, number, size, seats, labelled
        if self.probe is not None:
            answers = phase.ask(self.probe)  # proof: step 22
            self.probed = (answers if self.probed is None else self.probed[0]), answers

    def advance(self) -> None:
        """Begin the next phase where all seats are taken: a matter of how many arrived, and of nothing else."""
        if self.seats.free:
            return
        points, labels = self.seats.since(0)
        if self.terms.boost is not None:
            assert self.labelled is not None
            rows = len(self.labelled[1])
            new = label_sample(self.estimator, self.labelled, points, boost=self.terms.boost, seats=rows)
            self.boost(self.number + 1, *new, size=self.size)
            return
        deal = deal_seats(labels, teachers=self.terms.first.teachers)  # proof: step 3
        self.teach(self.number + 1, points, labels, deal, units=labels.size, size=self.next_size())

    def next_size(self) -> int:
        """Return how many arrivals the next phase has."""
        grown: int = math.ceil(self.settings["growth"] * self.size)
        limit: int | None = self.settings["max_phase_size"]
        return grown if limit is None else max(self.size, min(grown, limit))

    def arrive(self, X: Any, *, feeds: bool = False) -> Integers:
        """Return a class number, `NO_QUORUM` or `REFUSED` for each row, through as many phases as they fill.

        Queries are put to the vote. Of those and of points that are fed, one kind takes seats and teaches.
        """
        seated = feeds or self.terms.pool is None
        is_voted = not feeds or self.terms.boost is None  # proof: steps 7 and 11
        labels, start = np.full(len(X), NO_QUORUM, dtype=np.int64), 0
        while start < len(X):
            self.advance()
            stop = min(len(X), start + self.seats.free) if seated else len(X)
            block = take_rows(X, slice(start, stop))
            if is_voted:
                labels[start:stop] = self.phase.ask(block)
            if seated:
                self.seats.take(block, labels[start:stop])
            start = stop
        return labels

    @property
    def drift(self) -> float | None:
        """The share of the probe that phase 1 and this phase answered differently, of what both answered."""
        if self.probed is None:
            return None
        first, now = self.probed
        answered = (first >= 0) & (now >= 0)
        return float(np.mean(first[answered] != now[answered])) if answered.any() else None

    @property
    def progress(self) -> dict[str, Any]:
        """How far the phase has come: everybody may know. It does not move with the no-quorums (PROOF.md, step 14)."""
        return {
            "phase": self.number,
            "seats": self.size,
            "seats_taken": self.seats.arrivals,
            "closed": self.phase.closed,
            "probe": 0 if self.probe is None else len(self.probe),
            "drift": self.drift,
        }

    # --- As an answerer ----------------------------------------------------------------------------------------------

    @property
    def ensemble(self) -> Any:
        """The teachers of the phase: for the owner alone."""
        return self.phase.ensemble

    def open(self, budget: Any, ledger: Any) -> None:
        """Charge nothing: the account paid for phase 1 when it opened, and arrivals pay for the others."""

    def draw(self, X: Any) -> Answers:
        """Let these rows arrive, in order. Nothing is told about those that are fed."""
        labels, start = [np.empty(0, dtype=np.int64)], 0
        for feeds, requests in groupby(self.arriving, key=lambda request: request[1]):
            stop = start + sum(rows for rows, _ in requests)
            outcomes = self.arrive(take_rows(X, slice(start, stop)), feeds=feeds)
            labels.append(np.zeros_like(outcomes) if feeds else outcomes)  # proof: step 7
            start = stop
        return Answers(labels=np.concatenate(labels), spent=Cost(0.0))  # proof: step 14

    def move(self, ledger: Any) -> None:
        """Answer nothing more from memory: the folder goes on with the phase."""
        self.phase.end()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("the state of a phase holds private points and secret noise: it is not copied or pickled")
