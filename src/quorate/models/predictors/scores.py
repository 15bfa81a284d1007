"""How released shares of the vote become probabilities, rankings and labels: all of it free, since it is made of them.

threshold             a label is
none                  the class with the largest share
a number t            class 1 of two where its noisy share is at least t
"balanced"            the class whose share exceeds its prior most, as a ratio; of two, class 1 from its prior on
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_rate
from quorate.core.errors import InvalidInput
from quorate.core.requests import NO_QUORUM

Threshold = float | Literal["balanced"] | None


def check_threshold(threshold: Any, *, scores: bool, prior: Any) -> None:
    """Refuse a threshold that is none, or that nothing would read, or that lacks a prior to compare with."""
    if not scores:
        raise InvalidInput("threshold is for scores, the noisy shares of votes: set scores=True")
    if threshold != "balanced":
        check_rate("threshold", threshold)
    elif prior is None:
        raise InvalidInput("threshold='balanced' is at the prior: declare the shares of the classes with prior=")


class SharesOfVotes(Protocol):
    """What reads shares of the vote from answers: a `NoisyShares`, or the ballot of neighbours."""

    @property
    def classes(self) -> int:
        """How many there are."""

    def shares(self, answers: Any) -> NDArray[np.float64]:
        """Return the share of each class, one row an answer."""

    def excess(self, answers: Any) -> NDArray[np.float64]:
        """Return the share of class 1 of two, which noise may have taken beyond 0 or 1."""


@dataclass(frozen=True)
class Scoring:
    """What is read of answers that stand for shares, by the owner's threshold and prior."""

    mechanism: SharesOfVotes
    threshold: Threshold = None
    prior: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.threshold, int | float) and self.mechanism.classes > 2:
            raise InvalidInput("threshold is a number for two classes; for more it is None or 'balanced'")

    def probabilities(self, answers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the noisy share of each class; nan where there is no answer."""
        shares = np.full((len(answers), self.mechanism.classes), np.nan)
        answered = answers != NO_QUORUM
        shares[answered] = self.mechanism.shares(answers[answered])
        return shares

    def decisions(self, answers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return by how much the noisy share of class 1 exceeds the threshold; of more classes, what each is ranked by.

        A share is not cut at 0 and 1 here: below 0 the noise still ranks.
        """
        if self.mechanism.classes > 2:
            shares = self.probabilities(answers)
            return shares if self.threshold is None else shares / np.array(self.prior)
        return np.where(answers == NO_QUORUM, np.nan, self.mechanism.excess(answers) - self._level())

    def labels(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the class number of each answer; `NO_QUORUM` where there is none."""
        decided = self.decisions(answers)
        answered = answers != NO_QUORUM
        labels = np.full(len(answers), NO_QUORUM, dtype=np.int64)
        labels[answered] = decided[answered] >= 0 if decided.ndim == 1 else decided[answered].argmax(axis=1)
        return labels

    def _level(self) -> float:
        """Return the share from which on class 1 of two is answered."""
        if self.threshold == "balanced":
            assert self.prior is not None
            return self.prior[1]
        return 0.5 if self.threshold is None else float(self.threshold)
