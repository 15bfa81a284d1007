"""Dissent lets a published student's label stand until the ensemble clearly disagrees with it.

Claim (replace-one units, one ballot per unit): a run of any number of adaptively chosen queries that stops after
`no_quorums` dissents has Renyi divergence at most `renyi(order)` at every order, and no tail event is left out. A
label that stands is free; opening the run and each dissent are paid. Proof: PROOF_dissent.md.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource
from quorate.core.checks import check_count, check_delta, check_positive, check_rate, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts, Decide, Labels, check_teachers
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile
from quorate.core.mechanisms.orders import search_grid
from quorate.core.mechanisms.quorum import ONE, LookedUp, Quorum, build_table, check_table, levels_needed
from quorate.core.mechanisms.quorum import Settings as QuorumSettings
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity
from quorate.core.requests import NO_QUORUM

RATE = 0.99  # of queries, and of runs, in which what was calibrated for happens
_PASSES = (  # factors tried around the best settings so far: order, share of the opening
    ((0.7, 0.9, 1.1, 1.35, 1.7, 2.2), (0.15, 0.35, 0.6, 1.0, 1.6, 2.5)),
    ((0.8, 0.9, 1.0, 1.1, 1.22), (0.65, 0.8, 1.0, 1.25, 1.5)),
    ((0.94, 0.97, 1.0, 1.03, 1.06), (0.86, 0.93, 1.0, 1.07, 1.15)),
)


@dataclass(frozen=True)
class Settings:
    """Public parameters of a Dissent that meets a target; its margin follows from them and from the table."""

    order: float
    threshold_scale: float
    price: float


def settings_within(capacity: float, *, order: float, opening: float, dissents: int) -> Settings | None:
    """Return the settings that spend this capacity, this share of it on the opening; None where nothing is left."""
    if capacity <= 0:
        return None
    scale = math.sqrt(order / (2 * opening * capacity))
    rest = capacity - gaussian_renyi(scale=scale, order=order) - (dissents + 1) / RENYI_QUANTA  # charges are rounded up
    price = rest * (order - 1) / dissents
    return Settings(order, scale, price * (1 - 2.0**-40)) if price > 0 else None


def half_gaps_needed(candidates: list[Settings], *, standing: float = RATE) -> list[float]:
    """Return the half-gap from which each reports a dissent, where it lets the student stand at half-gap 0.

    The threshold noise is allowed for on both sides, in 99 runs of 100. Only the smallest is exact, up to rounding to
    whole levels; the search stops when no other can be smaller and leaves those at infinity.
    """
    order = np.array([settings.order for settings in candidates])
    price = np.array([settings.price for settings in candidates])
    reach = np.array([float(gaussian_tail_quantile(settings.threshold_scale, 1 - RATE)) for settings in candidates])
    start = 2 * (reach - levels_needed(order, price, miss=RATE))
    needed: list[float] = (start + 2 * levels_needed(order, price, miss=1 - standing, start=start)).tolist()
    return needed


def best_settings(*, epsilon: float, delta: float, dissents: int, standing: float = RATE) -> Settings:
    """Return the settings with the smallest such half-gap within (epsilon, delta), found on a grid refined twice."""

    def settle(order: float, opening: float) -> Settings | None:
        capacity = to_capacity(epsilon, delta=delta, order=order)  # all of delta: there is no slack
        return settings_within(capacity, order=order, opening=opening, dissents=dissents)

    centre = (best_order(epsilon=epsilon, delta=delta), 0.15)
    return search_grid(centre, _PASSES, settle, lambda tried: half_gaps_needed(tried, standing=standing))


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
            raise InvalidInput(f"margin must be at most 2**40, got {self.margin!r}")
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
        needed = check_rate("dissent_rate", dissent_rate) * ONE
        level = max(i for i, level in enumerate(self.table) if level >= needed)
        return self.margin + _reach(self.threshold_scale, run_rate) - 2 * level

    def standing_half_gap(self, *, standing: float = RATE, run_rate: float = RATE) -> int:
        """Return the largest half-gap at which the student stands at this rate, in this share of runs.

        If even the best possible ballots do not reach it, traffic alone causes dissents: for m queries on which the
        student is right, plan for m * (1 - standing) of them.
        """
        level = _level_of(self.table, standing)
        return self.margin - _reach(self.threshold_scale, run_rate) - 2 * level + 1

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
    rivals = votes[~chosen].reshape(len(votes), votes.shape[1] - 1)
    return np.concatenate([votes[chosen][:, np.newaxis], rivals], axis=1)


def _level_of(table: tuple[int, ...], standing: float) -> int:
    """Return the first level at which the student stands at this rate."""
    largest = (1 - _check_standing(standing)) * ONE
    level = next((i for i, level in enumerate(table) if level <= largest), None)
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


_SLACK = 0.1  # of delta, for the tail event of Quorum
_OPENINGS = (0.03, 0.06, 0.12, 0.2, 0.3, 0.45)  # shares of a run's capacity given to its opening
_POWER = 0.6  # what a capacity buys falls about like this power of it
_STEPS = 4


def calibrate_with_quorum(
    *, epsilon: float, delta: float, teachers: int, dissents: int, no_quorums: int
) -> tuple[Dissent, Quorum]:
    """Return a Dissent and a Quorum of one order whose whole runs fit one budget of (epsilon, delta) together.

    The split makes the larger of two numbers small: the half-gap from which a dissent is reported and the distance
    from which a query is answered, each in 99 runs of 100. Open the budget with the order of both and the slack of the
    Quorum.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    teachers, dissents = check_count("teachers", teachers), check_count("dissents", dissents)
    no_quorums = check_count("no_quorums", no_quorums)
    first, second = _split(epsilon, delta, dissents, no_quorums)
    quorum = Quorum(
        teachers=teachers,
        no_quorums=no_quorums,
        table=build_table(order=second.order, price=second.price),
        **asdict(second),
    )
    check_teachers(quorum)
    return Dissent.from_settings(first, teachers=teachers, dissents=dissents), quorum


def _split(epsilon: float, delta: float, dissents: int, no_quorums: int) -> tuple[Settings, QuorumSettings]:
    """Return the settings of both for the best share tried.

    The logarithm of the ratio of the two numbers falls almost in a line with log(share / (1 - share)), so a few steps
    of the secant method bring it close to 0.
    """
    rest, slack = delta * (1 - _SLACK), delta * _SLACK
    order = best_settings(epsilon=epsilon, delta=rest, dissents=max(dissents, no_quorums)).order
    capacity = to_capacity(epsilon, delta=rest, order=order)
    tried: list[tuple[float, float]] = []  # log odds of the share, log ratio of the two numbers
    best: tuple[float, Settings, QuorumSettings] | None = None
    odds = math.log(_dissent(capacity, order, dissents)[0] / _quorum(capacity, order, no_quorums, slack)[0]) / _POWER
    for _ in range(_STEPS):
        share = 1 / (1 + math.exp(-min(max(odds, -5.0), 5.0)))
        half_gap, first = _dissent(capacity * share, order, dissents)
        distance, second = _quorum(capacity * (1 - share), order, no_quorums, slack)
        if best is None or max(half_gap, distance) < best[0]:
            best = max(half_gap, distance), first, second
        tried.append((odds, math.log(half_gap / distance)))
        if abs(tried[-1][1]) < 0.01:
            break
        odds += tried[-1][1] / _slope(tried)
    assert best is not None
    return best[1], best[2]


def _slope(tried: list[tuple[float, float]]) -> float:
    """Return how fast the log ratio falls with the log odds, kept within reason."""
    if len(tried) < 2 or tried[-1][0] == tried[-2][0]:
        return _POWER
    fall = (tried[-2][1] - tried[-1][1]) / (tried[-1][0] - tried[-2][0])
    return min(max(fall, _POWER / 3), _POWER * 3)


def _dissent(capacity: float, order: float, dissents: int) -> tuple[float, Settings]:
    """Return the smallest half-gap that this capacity can buy, and the settings that do."""
    feasible = _affordable(capacity, order, dissents)
    needed = half_gaps_needed(feasible)
    winner = int(np.argmin(needed))
    return max(1.0, needed[winner]), feasible[winner]


def _quorum(capacity: float, order: float, no_quorums: int, slack: float) -> tuple[float, QuorumSettings]:
    """Return the smallest distance that this capacity and this slack can buy, and the settings that do."""
    feasible, start = [], []
    for settings in _affordable(capacity, order, no_quorums):  # charged as a run of Dissent is, with a slack besides
        scale = settings.threshold_scale
        margin = gaussian_tail_quantile(scale, slack)
        feasible.append(QuorumSettings(order, scale, margin, gaussian_tail(scale, margin), settings.price))
        start.append(float(margin + gaussian_tail_quantile(scale, 1 - RATE)))
    prices, first = np.array([settings.price for settings in feasible]), np.array(start)
    needed = first + 2 * levels_needed(np.full(prices.shape, order), prices, miss=1 - RATE, start=first) - 1
    winner = int(needed.argmin())
    return max(1.0, float(needed[winner])), feasible[winner]


def _affordable(capacity: float, order: float, paid: int) -> list[Settings]:
    tried = [settings_within(capacity, order=order, opening=share, dissents=paid) for share in _OPENINGS]
    feasible = [settings for settings in tried if settings is not None]
    if not feasible:
        raise Infeasible(
            f"two runs, one of them with {paid} outcomes to pay for, leave too little for each; raise epsilon"
        )
    return feasible
