"""What everybody may know of an everlasting classifier: none of it moves with the number of no-quorums."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.everlasting.phase import Phase
from quorate.everlasting.seats import Seats
from quorate.everlasting.terms import Terms
from quorate.privacy.claims import LABELS_READ, Claim, replaced

__all__ = ["Shown"]

Integers = NDArray[np.int64]


class Shown:
    """The part of an `EverlastingClassifier` that is public once it is fitted (PROOF.md, steps 14 and 23).

    >>> sorted(name for name in vars(Shown) if name.endswith("_") and not name.startswith("_"))
    ['claim_', 'drift_', 'phase_', 'progress_', 'seats_taken_']
    """

    terms_: Terms
    unit_: str
    declared_: bool
    _phase: Phase
    _number: int
    _size: int
    _seats: Seats
    _probe: Any
    _probed: tuple[Integers, Integers] | None

    @property
    def phase_(self) -> int:
        """The number of the phase, from 1: everybody may know.

        >>> hasattr(Shown(), "phase_")
        False
        """
        return self._number

    @property
    def seats_taken_(self) -> int:
        """How many have arrived in this phase: everybody may know.

        >>> hasattr(Shown(), "seats_taken_")
        False
        """
        return self._seats.taken

    @property
    def drift_(self) -> float | None:
        """The share of the probe whose answers differ from those of phase 1, where both have one: everybody may know.

        None where there is no probe, or nothing to compare.

        >>> hasattr(Shown(), "drift_")
        False
        """
        if self._probed is None:
            return None
        first, now = self._probed
        both = (first >= 0) & (now >= 0)
        return float(np.mean(first[both] != now[both])) if both.any() else None

    @property
    def progress_(self) -> dict[str, Any]:
        """How far the phase has come, and the drift: everybody may know. It does not move with the no-quorums.

        >>> hasattr(Shown(), "progress_")
        False
        """
        return {
            "phase": self._number,
            "seats": self._size,
            "seats_taken": self._seats.taken,
            "closed": self._phase.closed,
            "probe": 0 if self._probe is None else len(self._probe),
            "drift": self.drift_,
        }

    @property
    def claim_(self) -> str:
        """The guarantees, in one sentence each.

        >>> hasattr(Shown(), "claim_")
        False
        """
        training = self.__dict__.get("account_") or self.terms_.training
        queries, pool = self.terms_.queries, self.terms_.pool
        claims = [
            Claim(training.epsilon, training.delta, unit=replaced(self.unit_), what="all answers are"),
            Claim(queries.epsilon, queries.delta, unit="one query", what="All answers but its own are"),
        ]
        if pool is not None:
            claims.append(Claim(pool.epsilon, pool.delta, unit="one point of the pool", what="All answers are"))
        text = ". ".join([*map(str, claims), *([] if self.declared_ else [LABELS_READ.capitalize()])])
        return f"{text}."
