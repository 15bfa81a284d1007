"""Engines that measure once: what they put to a `NoisyVector`, and what they make of it.

The two are told apart, so that what is measured may also be measured month by month (`quorate.release.growing`).
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from quorate.core.arrays import Floats, Integers
from quorate.core.mechanisms.noisy_vector import NoisyVector, NoisyVectors
from quorate.core.privacy import Budget, Cost
from quorate.release.engines.released import Engine, Private, Public, Released, check_private, spent_since
from quorate.release.engines.strategy import Clique
from quorate.release.queries import Queries

__all__ = ["Measurement", "MeasuringEngine", "Planned", "measure_once", "measure_rest"]

Made = TypeVar("Made")
Planned = tuple[tuple[Clique, ...], tuple[float, ...]] | None  # marginals to measure, and the share of each


@dataclass(frozen=True)
class Measurement(Generic[Made]):
    """What is measured: vectors of whole numbers, linear in the records, and what is made of them with noise.

    A replaced record changes vector k by at most `squares[k]`, squared and summed up; no record adds more than
    `largest` to an entry. `finish` takes the vectors with noise, the deviation of each, the number of records and what
    was spent. `cliques` are the columns of each vector that is a marginal chosen for the workload.
    """

    squares: tuple[int, ...]
    vectors: Callable[[Private], list[Integers]]
    finish: Callable[[Sequence[Integers | Floats], Sequence[float], int, Cost], Made]
    shares: tuple[float, ...] | None = None
    largest: int = 1
    cliques: tuple[Clique, ...] = ()

    @property
    def planned(self) -> "Planned":
        """What must be known to measure the same again."""
        return (self.cliques, self.shares) if self.cliques and self.shares else None


def measure_once(
    plan: Callable[[float], Measurement[Made]], private: Private, budget: Budget, noise: Any = None
) -> Made:
    """Measure what is planned for this deviation of a share in a lone histogram, and return what is made of it."""
    alone = NoisyVector.for_budget(budget, squared_sensitivities=(2,)).scales[0]
    planned = plan(alone / private.records)
    mechanism = NoisyVector.for_budget(budget, squared_sensitivities=planned.squares, shares=planned.shares)
    before = budget.spent()
    noisy = mechanism.draw_release(planned.vectors(private), budget, noise)
    return planned.finish(noisy, mechanism.scales, private.records, spent_since(before, budget))


def measure_rest(plan: Callable[[float], Measurement[Made]], private: Private, vectors: NoisyVectors) -> Made:
    """Measure what is planned with all that is left after releases before it: ../PROOF.md, step 9."""
    planned = plan(vectors.scale(squared_sensitivity=2, fraction=1.0) / private.records)
    noisy, scales = vectors.release_rest(
        planned.vectors(private),
        squared_sensitivities=planned.squares,
        shares=planned.shares or (1.0,) * len(planned.squares),
    )
    return planned.finish(noisy, scales, private.records, vectors.spent)


class MeasuringEngine(Engine):
    """An engine that measures fixed vectors of counts once: all else is made of what was measured."""

    @abstractmethod
    def measurement(
        self, queries: Queries, public: Public, noise: float, planned: Planned = None
    ) -> Measurement[Released]:
        """Return what to measure, by public numbers: `noise` is the deviation of a share in a lone histogram.

        What was `planned` before is measured again, where several plans were possible.
        """

    def run_rest(self, queries: Queries, data: Any, vectors: NoisyVectors) -> Released:
        """Return the released answers, paid with all that is left after other releases."""
        return measure_rest(partial(self.measurement, queries, None), check_private(queries, data), vectors)

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        return measure_once(partial(self.measurement, queries, public), check_private(queries, data), budget, noise)
