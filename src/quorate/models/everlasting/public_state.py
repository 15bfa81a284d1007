"""The public state of an everlasting classifier: none of it depends on the number of no-quorums."""

from typing import TYPE_CHECKING, Any

from quorate.core.privacy.claims import LABELS_READ, Claim, replaced
from quorate.models.everlasting.terms import Guarantee, Terms

if TYPE_CHECKING:
    from quorate.models.everlasting.session import EverlastingSession


class PublicState:
    """The part of a fitted `EverlastingClassifier` that is public (PROOF.md, steps 14 and 23)."""

    terms_: Terms
    unit_: str
    declared_: bool
    account_: Guarantee | None
    session_: "EverlastingSession"

    @property
    def phase_(self) -> int:
        """The number of the phase, from 1."""
        return self.session_.answerer.number

    @property
    def seats_taken_(self) -> int:
        """The number of arrivals in this phase."""
        return self.session_.answerer.seats.taken

    @property
    def drift_(self) -> float | None:
        """The share of the probe that phase 1 and this phase answered differently; None without a probe."""
        return self.session_.answerer.drift

    @property
    def progress_(self) -> dict[str, Any]:
        """How far the phase has come, and the drift."""
        return self.session_.answerer.progress

    @property
    def claim_(self) -> str:
        """The guarantees, in one sentence each."""
        training = self.account_ or self.terms_.training
        queries, pool = self.terms_.queries, self.terms_.pool
        claims = [
            Claim(training.epsilon, training.delta, unit=replaced(self.unit_), what="all answers are"),
            Claim(queries.epsilon, queries.delta, unit="one query", what="All answers but its own are"),
        ]
        if pool is not None:
            claims.append(Claim(pool.epsilon, pool.delta, unit="one point of the pool", what="All answers are"))
        text = ". ".join([*map(str, claims), *([] if self.declared_ else [LABELS_READ.capitalize()])])
        return f"{text}."
