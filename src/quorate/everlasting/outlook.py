"""The plan of an everlasting prediction: what to run, and what to expect of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quorate.mechanisms.cutoff import NoisyCutoff

__all__ = ["ChunkOutlook", "EverlastingPlan", "PhaseOutlook"]


@dataclass(frozen=True, kw_only=True)
class ChunkOutlook:
    """What one chunk size is expected to give; `no_quorums` is what the classifier is to be given."""

    chunk: int
    no_quorums: int
    no_quorum_rate: float
    error: float


@dataclass(frozen=True, kw_only=True)
class PhaseOutlook:
    """What came of one phase that was played on public or simulated points."""

    no_quorum_rate: float
    refused: int
    error: float


@dataclass(frozen=True, kw_only=True)
class EverlastingPlan:
    """What to run, and what to expect. Made by `plan_everlasting` from public numbers alone.

    `no_quorum_rate` and `error` (of the answers) are those of the first phase, predicted; `phases` holds what came of
    those that were played. `feasible` says whether all of them kept within `target`, and none refused a query.

    >>> chosen = {"chunk": 4, "no_quorums": 400, "no_quorum_rate": 0.0151, "error": 0.0}
    >>> plan = EverlastingPlan(records=20_000, teachers=5000, epsilon=2.0, delta=1e-6, distance=500, target=0.02,
    ...     cutoff=NoisyCutoff(epsilon=0.1, allowed=500, spread=162), feasible=True, candidates=(), phases=(), **chosen)
    >>> plan.settings()
    {'epsilon': 2.0, 'delta': 1e-06, 'chunk': 4, 'no_quorums': 400}
    >>> print(plan.summary())
    20,000 records make 5,000 teachers of 4. About 1.51% of queries are expected to find no quorum, and 0.00% of ...
    """

    records: int
    teachers: int
    chunk: int
    epsilon: float
    delta: float
    no_quorums: int
    cutoff: NoisyCutoff
    distance: int
    no_quorum_rate: float
    error: float
    target: float
    feasible: bool
    candidates: tuple[ChunkOutlook, ...]
    phases: tuple[PhaseOutlook, ...]

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of an `EverlastingClassifier` that follows the plan."""
        return {"epsilon": self.epsilon, "delta": self.delta, "chunk": self.chunk, "no_quorums": self.no_quorums}

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        cutoff: Mapping[str, Any] = {name: getattr(self.cutoff, name) for name in ("epsilon", "allowed", "spread")}
        return plain | {
            "cutoff": dict(cutoff),
            "candidates": [asdict(one) for one in self.candidates],
            "phases": [asdict(one) for one in self.phases],
        }

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        parts = [
            f"{self.records:,} records make {self.teachers:,} teachers of {self.chunk}.",
            f"About {self.no_quorum_rate:.2%} of queries are expected to find no quorum, and {self.error:.2%} of the "
            f"answers to be wrong; a phase of {self.records:,} queries may have {self.no_quorums:,} no-quorums.",
            f"Records and queries both keep epsilon = {self.epsilon:g}, delta = {self.delta:g}: a query pays "
            f"{self.cutoff.epsilon:g} of it for the cutoff.",
        ]
        if self.phases:
            refused = sum(one.refused for one in self.phases)
            parts.append(
                f"In {len(self.phases)} phases played on such points up to "
                f"{max(one.no_quorum_rate for one in self.phases):.2%} found no quorum, up to "
                f"{max(one.error for one in self.phases):.2%} of the answers were wrong, and {refused:,} queries were "
                "refused."
            )
        if not self.feasible:
            parts.append(f"This falls short of what was asked for: {self.target:.2%} without quorum, and no refusals.")
        return " ".join(parts)
