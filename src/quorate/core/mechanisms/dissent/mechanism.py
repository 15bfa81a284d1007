"""Dissent lets a published student's label stand until the ensemble clearly disagrees with it.

Claim (replace-one units, one ballot per unit): a run of any number of adaptively chosen queries that stops after
`no_quorums` dissents has Renyi divergence at most `renyi(order)` at every order, and no tail event is left out. A
label that stands is free; opening the run and each dissent are paid. Proof: PROOF.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_rate, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts, Decide, Labels
from quorate.core.mechanisms.dissent.calibrate import RATE, Settings, best_settings
from quorate.core.mechanisms.distributions import gaussian_tail_quantile
from quorate.core.mechanisms.quorum.table import ONE, LookedUp, build_table, check_table, table_price
from quorate.core.mechanisms.rounding import stable_up
from quorate.core.noise import NoiseSource
from quorate.core.privacy import Cost, gaussian_renyi
from quorate.core.requests import NO_QUORUM

__all__ = ["Dissent", "half_gaps", "proposed_first"]

_WIDEST = 2**40  # a margin beyond any number of ballots


@dataclass(frozen=True, kw_only=True)
class Dissent(LookedUp):
    """A threshold mechanism: one threshold noise per run, one table look-up per query.

    Use `Dissent.calibrate`.

    Column 0 of the votes counts the ballots for the student's label, the other columns those for the other labels. An
    answer of 0 means that the student's label stands; `NO_QUORUM` (None for one query) means that the ensemble
    dissents. The half-gap of a query is half of the lead of the best other label over the student's, rounded up: 0 or
    below if no other label has more ballots.

    `margin` is the half-gap from which a dissent is certain at threshold noise 0; `no_quorums` is the number of
    dissents; `order`, `price`, `threshold_scale` and `table` are as for a Quorum.

    >>> dissent = Dissent.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, dissents=5)
    >>> dissent.distance() < 110
    True
    >>> dissent.answers([[2000, 0, 0], [1500, 500, 0], [100, 0, 1900]]).labels
    array([ 0,  0, -1])
    """

    def __post_init__(self) -> None:
        levels = tuple(check_count("a level of the table", level) for level in self.table)
        validate_fields(self, margin=check_count("margin", self.margin, least=-_WIDEST), table=levels)
        if self.margin > _WIDEST:
            raise InvalidInput(f"margin must be at most 2**40, not {self.margin!r}")
        check_table(self.table, order=self.order, price=self.price)  # proof: step 4

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, teachers: int, dissents: int, standing: float = RATE
    ) -> "Dissent":
        """Return the Dissent within (epsilon, delta) that reports dissents from the smallest half-gap on.

        If no other label has more ballots than the student's, the student stands with probability at least `standing`,
        in 99 runs of 100. The probability grows with its lead: see `standing_half_gap`.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        teachers, dissents = check_count("teachers", teachers), check_count("dissents", dissents)
        settings = best_settings(epsilon=epsilon, delta=delta, dissents=dissents, standing=_check_standing(standing))
        return cls.from_settings(settings, teachers=teachers, dissents=dissents, standing=standing)

    @classmethod
    def from_settings(cls, settings: Settings, *, teachers: int, dissents: int, standing: float = RATE) -> "Dissent":
        """Return the Dissent with these settings and the smallest margin at which the student stands at half-gap 0."""
        table = build_table(order=settings.order, price=settings.price)
        dissent = cls(
            teachers=teachers,
            no_quorums=dissents,
            order=settings.order,
            price=settings.price,
            margin=2 * _level_of(table, standing) - 1 + _reach(settings.threshold_scale, RATE),  # proof: step 6
            threshold_scale=settings.threshold_scale,
            table=table,
        )
        if dissent.standing_probability((teachers + 1) // 2) > 0.5:
            raise Infeasible(
                f"with teachers={teachers} even a unanimous ballot against the student would mostly pass unnoticed; "
                f"it takes at least {2 * dissent.distance() - 1} teachers for this target, or a larger epsilon, or "
                f"fewer dissents than {dissents}"
            )
        return dissent

    def opening_cost(self, order: float) -> Cost:
        """Return the cost of the one threshold noise of a run."""
        self._check_finite(order)
        return Cost(gaussian_renyi(scale=self.threshold_scale, order=order))  # proof: step 2

    def no_quorum_cost(self, order: float) -> Cost:
        """Return the cost of one dissent."""
        self._check_finite(order)
        price = self.price if order == self.order else stable_up(table_price(self.table, order=order))
        return Cost(price / (order - 1))  # proof: step 5

    def standing_probability(self, half_gap: int, *, threshold_noise: int = 0) -> float:
        """Return the probability that the student stands at this half-gap.

        For planning: depends on nothing private.
        """
        level = self.table_levels(np.array([half_gap], dtype=np.int64), threshold_noise)[0]
        return (ONE - self.table[int(level)]) / ONE

    def distance(self, *, dissent_rate: float = RATE, run_rate: float = RATE) -> int:
        """Return the smallest half-gap from which a dissent is reported at this rate, in this share of runs.

        A run_rate of 0.5 is threshold noise 0.
        """
        least = check_rate("dissent_rate", dissent_rate) * ONE
        level = max(i for i, level in enumerate(self.table) if level >= least)
        return self.margin + _reach(self.threshold_scale, run_rate) - 2 * level

    def standing_half_gap(self, *, standing: float = RATE, run_rate: float = RATE) -> int:
        """Return the largest half-gap at which the student stands at this rate, in this share of runs.

        If even the best possible ballots do not reach it, traffic alone causes dissents: for m queries on which the
        student is right, plan for m * (1 - standing) of them.
        """
        level = _level_of(self.table, standing)
        return self.margin - _reach(self.threshold_scale, run_rate) - 2 * level + 1

    def _check_finite(self, order: float) -> None:
        if check_order(order) == np.inf:
            raise InvalidInput("a Dissent is charged at a finite order; open the budget at one, with delta above 0")

    def table_levels(self, half_gap: Labels, threshold_noise: int) -> Labels:
        """Return the level of the table at each half-gap: level i where it is 2i - 1 or 2i short of the margin."""
        short = self.margin + threshold_noise + 1 - half_gap  # proof: step 3
        short >>= 1
        return np.clip(short, 0, len(self.table) - 1, out=short)

    def draw_decisions(self, counts: Counts, noise: NoiseSource) -> Decide:
        """Draw the noise of each query, and return the rule that gives it a label."""
        half_gap = half_gaps(counts)
        words = noise.words(len(counts))

        def decide(queries: slice, threshold_noise: int) -> Labels:
            last = self.last_words.take(self.table_levels(half_gap[queries], threshold_noise))
            return np.where(words[queries] > last, 0, NO_QUORUM)  # proof: step 1

        return decide


def half_gaps(counts: Counts) -> NDArray[np.int64]:
    """Return ceil((largest count of another label - count of the student's label) / 2) for each query.

    One ballot moves the lead by at most 2, and the half-gap by at most 1. The half-gap is at least 1 if and only if
    another label has more ballots than the student's.
    """
    lead: NDArray[np.int64] = counts[:, 1:].max(axis=1) - counts[:, 0]
    return (lead + 1) >> 1  # proof: step 0


def proposed_first(votes: Counts, proposed: NDArray[np.int64]) -> Counts:
    """Return the votes in the form that a Dissent takes: the proposed class of each query first, then the others."""
    chosen = proposed[:, np.newaxis] == np.arange(votes.shape[1])
    others = votes[~chosen].reshape(len(votes), votes.shape[1] - 1)
    return np.concatenate([votes[chosen][:, np.newaxis], others], axis=1)


def _level_of(table: tuple[int, ...], standing: float) -> int:
    """Return the first level at which the student stands at this rate."""
    most = (1 - _check_standing(standing)) * ONE
    level = next((i for i, level in enumerate(table) if level <= most), None)
    if level is None:
        raise Infeasible(f"standing={standing} is out of reach: the table ends at {1 - table[-1] / ONE}")
    return level


def _reach(scale: float, run_rate: float) -> int:
    """Return what the threshold noise does not pass, to either side alone, in this share of runs."""
    if check_rate("run_rate", run_rate) == 1:
        raise Infeasible("run_rate=1 is out of reach: Gaussian noise has no bound")
    return gaussian_tail_quantile(scale, 1 - run_rate)


def _check_standing(standing: float) -> float:
    rate = check_rate("standing", standing)
    if rate == 1:
        raise Infeasible("standing=1 is out of reach: a dissent must stay possible at every half-gap")
    return rate
