"""One phase: teachers that do not change, one threshold noise, one cutoff."""

import threading
from typing import Any

import numpy as np

from quorate.compute.ensemble import Ensemble
from quorate.core.arrays import Integers
from quorate.core.ballots import release_votes
from quorate.core.mechanisms import NO_QUORUM, Answers
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.cutoff import CutoffRun
from quorate.core.requests import REFUSED
from quorate.core.rows import take_rows

_BLOCK = 2**16  # arrivals counted together


class Phase:
    """Answers arrivals in order until the cutoff closes it; what comes after is refused. Threads may share it."""

    def __init__(self, ensemble: Ensemble, run: Run, cutoff: CutoffRun) -> None:
        self._ensemble, self._run, self._cutoff = ensemble, run, cutoff
        self._lock = threading.Lock()
        self._uncounted = False  # whether the run has drawn what the cutoff has not counted yet

    @property
    def ensemble(self) -> Ensemble:
        """The teachers, for the owner's files. They are private."""
        return self._ensemble

    @property
    def met(self) -> int:
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
                    drawn = self._drawn(take_rows(X, slice(start, start + _BLOCK)))
                    let_in = self._cutoff.admit(drawn == NO_QUORUM)  # before each answer; proof: step 4
                    self._uncounted = False
                except BaseException:
                    if self._uncounted:  # the run may have met what the cutoff will never know
                        self._cutoff.close()
                    raise
                labels[start : start + let_in] = drawn[:let_in]
                start += let_in
        return labels

    def _drawn(self, X: Any) -> Integers:
        """Return outcomes of these arrivals, with one threshold noise for all of the phase (proof: step 4).

        The run ends with its last no-quorum. The cutoff has reached its limit by then, and closes at the next arrival,
        whatever it would be: so what the run does not say any more may be anything.
        """
        labels = np.full(len(X), NO_QUORUM, dtype=np.int64)
        if self._run.no_quorums_left:
            said = release_votes(self._ensemble, X, self._answers).labels
            labels[: said.size] = said
        return labels

    def _answers(self, votes: Integers) -> Answers:
        """Draw answers. What fails before this, while ballots are counted, has drawn nothing."""
        self._uncounted = True
        return self._run.answers(votes)
