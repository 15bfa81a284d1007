"""AboveThreshold lets a proposed count stand until the private count is clearly far from it.

Claim (replace-one records, n public; a record moves the private count by at most 1): a run of any number of
adaptively chosen proposals that stops after `no_quorums` crossings has Renyi divergence at most `renyi(order)` at every
order, and no tail event is left out. A proposal that stands is free; opening the run and each crossing are paid. What
is released after a crossing is not part of this claim and is charged on its own. Proof: PROOF.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.above_threshold.calibrate import best_precision
from quorate.core.mechanisms.base import Counts
from quorate.core.mechanisms.dissent.mechanism import Dissent, _level_of, _reach
from quorate.core.mechanisms.quorum.table import build_table

__all__ = ["AboveThreshold", "distance_ballots"]

_RUNS = 0.99  # of runs in which the threshold noise stays within what was allowed for


@dataclass(frozen=True, kw_only=True)
class AboveThreshold(Dissent):
    """A Dissent for whole numbers: distances of up to `records`, encoded as ballots by `distance_ballots`.

    An answer of 0 means that the proposal stands; `NO_QUORUM` (None for one query) means that the distance has crossed
    the threshold. `no_quorums` is the number of crossings; `teachers` is twice the number of records.

    >>> above = AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=10_000, near=250, far=500)
    >>> above.answers(distance_ballots([0, 50, 8_000], records=10_000)).labels
    array([ 0,  0, -1])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teachers % 2:
            raise InvalidInput(f"teachers must be twice the number of records, not {self.teachers}")

    @classmethod
    def calibrate(  # type: ignore[override]
        cls,
        *,
        epsilon: float,
        delta: float,
        records: int,
        near: int,
        far: int,
        standing: float = 0.999,
        measurement: float | None = None,
    ) -> "AboveThreshold":
        """Return the mechanism whose crossings cost least, among those that distinguish `near` from `far`.

        A proposal at a distance of at most `near` stands at the rate `standing`; one at `far` or more is reported 99
        times in 100; both hold in 99 runs of 100. `measurement` is the scale of a noisy count that the same budget pays
        for after each crossing; `no_quorums` is how many of both it can pay for.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        records, near = check_count("records", records), check_count("near", near, least=0)
        if check_count("far", far) <= near or far > records:
            raise InvalidInput(f"far must be above near={near} and at most records={records}, not {far}")
        if check_rate("standing", standing) == 1:
            raise InvalidInput("standing must be below 1: a crossing must stay possible at every distance")
        best = best_precision(
            epsilon=epsilon, delta=delta, near=near, far=far, standing=standing, measurement=measurement
        )
        table = build_table(order=best.order, price=best.price)
        reach = _reach(best.threshold_scale, _RUNS)
        return cls(
            teachers=2 * records,
            no_quorums=best.crossings,
            order=best.order,
            price=best.price,
            margin=near + 2 * _level_of(table, standing) - 1 + reach - records,  # proof: step 3
            threshold_scale=best.threshold_scale,
            table=table,
        )

    @property
    def records(self) -> int:
        """How many records there are; a distance is at most this."""
        return self.teachers // 2

    def stands(self, distance: int, *, threshold_noise: int = 0) -> float:
        """Return the probability that a proposal at this distance stands.

        For planning: depends on nothing private.
        """
        return self.standing_probability(distance - self.records, threshold_noise=threshold_noise)


def distance_ballots(distances: Any, *, records: int) -> Counts:
    """Return distances as ballots for an AboveThreshold: d of 2n against the proposal, the others for it.

    One step of a distance moves one ballot, so the half-gap is d - n. Invalid distances are refused with one text.
    """
    far = np.asarray(distances)
    if far.ndim != 1 or far.dtype.kind not in "iu":
        raise InvalidInput(
            f"distances must be a vector of whole numbers, not of {far.dtype.name} and shape {far.shape}"
        )
    if far.size and (far.min() < 0 or far.max() > records):
        raise InvalidInput(f"distances must lie between 0 and records={records}")
    against = far.astype(np.int64)
    return np.stack([2 * records - against, against], axis=1)
