"""Lower bounds on epsilon from what was observed in two worlds.

If a release is (epsilon, delta)-DP then P(E) <= e**epsilon Q(E) + delta for every event E, in both directions. So an
event that is frequent in one world and rare in the other bounds epsilon from below. A quarter of the plays choose the
event; the others count it. Clopper-Pearson intervals (1934) then hold with the stated confidence, if plays are
independent and identically distributed: a false claim can be missed; a true one is reported false with probability at
most 1 - confidence.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count, check_delta, check_rate
from quorate.core.errors import InvalidInput

_SHOWN = 6  # outcomes that an event names
_DENSE = 2**22  # codes that are counted without sorting
_FEW = 4096  # outcomes that are ordered one by one: of more, plays say too little about each


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of two worlds' plays; `table` holds the row that each code stands for, in increasing order."""

    first: Integers
    second: Integers
    table: NDArray[np.generic]
    name: str = "outcome"

    def orders(self, firsts: Integers, seconds: Integers) -> Iterator[Integers]:
        """Yield ranks of the codes, learnt on these plays: those likely in the first world only come first."""
        if self.table.shape[1] == 1:
            yield from self.natural_orders(firsts, seconds)
        else:
            yield _ranks(self._column_ratios(firsts, seconds))
        if np.count_nonzero(np.bincount(firsts)) <= _FEW:  # decided by the plays to choose on, like all else here
            yield _ranks(_ratios(firsts, seconds, len(self.table)))

    def natural_orders(self, firsts: Integers, seconds: Integers) -> Iterator[Integers]:
        """Give the increasing and the decreasing order: of use where outcomes are numbers."""
        up = np.arange(len(self.table))
        yield up
        yield up[::-1].copy()

    def _column_ratios(self, firsts: Integers, seconds: Integers) -> NDArray[np.float64]:
        """Return the sum over columns of the logarithm of each column's own ratio: of use where most rows are rare."""
        total = np.zeros(len(self.table))
        for column in self.table.T:
            _, inverse = np.unique(column, return_inverse=True)
            total += _ratios(inverse[firsts], inverse[seconds], int(inverse.max()) + 1)[inverse]
        return total

    def say(self, members: NDArray[np.bool_]) -> str:
        """Return the event in words."""
        inside = np.flatnonzero(members)
        rows = [_text(row) for row in self.table[inside[:_SHOWN]]]
        if inside.size == 1:
            return f"{self.name} = {rows[0]}"
        if self.table.shape[1] == 1 and len(self.table) > 2 and inside.size > 1:
            if inside[-1] == inside.size - 1:
                return f"{self.name} <= {_text(self.table[inside[-1]])}"
            if inside[0] == len(members) - inside.size:
                return f"{self.name} >= {rows[0]}"
        unlisted = f" and {inside.size - _SHOWN} more" if inside.size > _SHOWN else ""
        return f"{self.name} in {{{', '.join(rows)}{unlisted}}}"


def encode(first: object, second: object) -> Codes:
    """Return the codes of what was seen in both worlds: whole numbers of shape (plays,) or (plays, k)."""
    firsts, seconds = (_rows(name, values) for name, values in (("first", first), ("second", second)))
    if firsts.shape[1] != seconds.shape[1]:
        raise InvalidInput(
            f"both worlds must show as much a play, not {firsts.shape[1]} and {seconds.shape[1]} numbers"
        )
    rows = np.concatenate([firsts, seconds])
    joint = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        codes, size = _compact(column)
        joint, _ = _compact(joint * size + codes)
    size = int(joint.max()) + 1
    table = np.empty((size, rows.shape[1]), dtype=np.int64)
    table[joint] = rows
    return Codes(joint[: len(firsts)], joint[len(firsts) :], table)


def _rows(name: str, values: object) -> Integers:
    try:
        rows = np.asarray(values)
    except ValueError:
        raise InvalidInput(f"{name} must hold as many whole numbers in every play") from None
    if rows.dtype.kind not in "iub" or rows.ndim not in {1, 2} or rows.size == 0:
        raise InvalidInput(f"{name} must hold whole numbers, one play a row, got {rows.dtype} of shape {rows.shape}")
    if int(rows.max()) >= 2**63:
        raise InvalidInput(f"{name} must hold whole numbers below 2**63")
    return rows.astype(np.int64).reshape(len(rows), -1)


def _compact(values: Integers) -> tuple[Integers, int]:
    """Return the same values numbered from 0 without gaps, in increasing order, and how many there are."""
    smallest, largest = int(values.min()), int(values.max())
    if largest - smallest < _DENSE:
        shifted = values - smallest
        used = np.flatnonzero(np.bincount(shifted))
        numbers = np.zeros(largest - smallest + 1, dtype=np.int64)
        numbers[used] = np.arange(used.size)
        return numbers[shifted], used.size
    distinct, inverse = np.unique(values, return_inverse=True)
    return inverse, distinct.size


def _ratios(firsts: Integers, seconds: Integers, size: int) -> NDArray[np.float64]:
    """Return the logarithm of the likelihood ratio of each code, drawn towards 0 where few plays speak of it."""
    counts = np.bincount(firsts, minlength=size), np.bincount(seconds, minlength=size)
    return np.log((counts[0] + 1) / (firsts.size + 1)) - np.log((counts[1] + 1) / (seconds.size + 1))


def _ranks(scores: NDArray[np.float64]) -> Integers:
    """Return the rank of each code, the largest score first; equal scores keep the order of the codes."""
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(scores.size)
    return ranks


def _text(row: NDArray[np.generic]) -> str:
    values = [f"{value:.6g}" for value in row.tolist()]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


_PART = 4  # one play in this many helps to choose the event
_CUTS = 400  # events of one order that are compared, at most
_BINS = 4000  # steps into which real-valued scores are cut

Orders = Callable[[Integers, Integers], Iterator[Integers]]


@dataclass(frozen=True)
class Bound:
    """A lower bound: with this confidence, no claim at this delta with a smaller epsilon is true."""

    epsilon: float
    delta: float
    confidence: float
    plays: int
    event: str


def proportion_at_least(successes: Integers | Floats | int, trials: int, *, error: float) -> Floats:
    """Return what the probability is at least, wrong with probability at most `error` (Clopper and Pearson 1934)."""
    seen = np.asarray(successes, dtype=np.float64)
    bound = betaincinv(np.maximum(seen, 1), np.maximum(trials - seen + 1, 1), error)
    return np.where(seen > 0, bound * (1 - 1e-9), 0.0)  # rounded down


def proportion_at_most(successes: Integers | Floats | int, trials: int, *, error: float) -> Floats:
    """Return what the probability is at most, wrong with probability at most `error` (Clopper and Pearson 1934)."""
    seen = np.asarray(successes, dtype=np.float64)
    bound = 1 - betaincinv(np.maximum(trials - seen, 1), np.minimum(seen + 1, trials), error)
    return np.where(seen < trials, np.minimum(1.0, bound * (1 + 1e-9) + 1e-15), 1.0)  # rounded up


def epsilon_lower_bound(first: object, second: object, *, delta: float, confidence: float, splits: int = 1) -> Bound:
    """Return a lower bound on epsilon from the outcomes of independent plays in two neighbouring worlds.

    `first` and `second` hold whole numbers, one play per row: of shape (plays,) or (plays, k), where a row is all that
    was observed. With more splits, plays are divided again for each, each split is tested at a share of the error
    (Bonferroni), and the best counts.

    >>> coin = np.random.default_rng(0)
    >>> worlds = coin.random(20_000) < 0.6, coin.random(20_000) < 0.1
    >>> bound = epsilon_lower_bound(*worlds, delta=0.0, confidence=1 - 1e-9)
    >>> bool(1.5 < bound.epsilon < np.log(6)), bound.event
    (True, 'outcome = 1, seen more often in the first world')
    """
    codes = encode(first, second)
    return _bound(codes, codes.orders, delta=delta, confidence=confidence, splits=splits)


def score_lower_bound(first: object, second: object, *, delta: float, confidence: float, splits: int = 1) -> Bound:
    """Return a lower bound on epsilon from real-valued scores, such as those of a trained distinguisher.

    The events are that the score is at least, or at most, some number. The score must have been made without these
    plays.
    """
    firsts, seconds = (_scores(name, values) for name, values in (("first", first), ("second", second)))
    few = min(firsts.size, seconds.size) // 10  # these say where the steps lie, and have no other part
    steps = np.unique(np.quantile(np.concatenate([firsts[:few], seconds[:few]]), np.linspace(0, 1, _BINS)))
    firsts, seconds = firsts[few:], seconds[few:]
    codes = Codes(
        np.searchsorted(steps, firsts, side="right"),
        np.searchsorted(steps, seconds, side="right"),
        np.concatenate([[-np.inf], steps])[:, np.newaxis],
        name="score",
    )
    return _bound(codes, codes.natural_orders, delta=delta, confidence=confidence, splits=splits)


def expected_lower_bound(first: Floats, second: Floats, *, delta: float, confidence: float, plays: int) -> float:
    """Return roughly what `epsilon_lower_bound` would find for outcomes with these probabilities, to plan an attack."""
    best = 0.0
    for firsts, seconds in ((first, second), (second, first)):
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(np.where(firsts > 0, -firsts / seconds, np.inf), kind="stable")
        counted = plays - plays // _PART
        hits, misses = (np.minimum(np.cumsum(law[order]), 1.0) * counted for law in (firsts, seconds))
        epsilons = _epsilon(hits, counted, misses, counted, delta=delta, error=(1 - confidence) / 2)
        best = max(best, float(epsilons.max()))
    return best


def _scores(name: str, values: object) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or scores.size < 10 or not np.isfinite(scores).all():
        raise InvalidInput(f"{name} must be a vector of at least 10 finite scores, one a play")
    return scores


def _bound(codes: Codes, orders: Orders, *, delta: float, confidence: float, splits: int) -> Bound:
    delta, confidence = check_delta(delta), check_rate("confidence", confidence)
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie between 0 and 1, got {confidence!r}")
    splits = check_count("splits", splits)
    plays = min(codes.first.size, codes.second.size)
    if plays < 8:
        raise InvalidInput(f"a bound takes at least 8 plays of each world, not {plays}")
    error = (1 - confidence) / splits / 2  # half for each of the two proportions
    best, event = 0.0, "none told the worlds apart"
    for split in range(splits):
        firsts, seconds = (_parts(values, split) for values in (codes.first, codes.second))
        chosen = _choose(firsts[0], seconds[0], orders, delta=delta, error=error)
        if chosen is None:
            continue
        members, turned = chosen
        seen, unseen = (firsts[1], seconds[1]) if not turned else (seconds[1], firsts[1])
        hits = int(np.count_nonzero(members[seen])), int(np.count_nonzero(members[unseen]))
        epsilon = float(_epsilon(hits[0], seen.size, hits[1], unseen.size, delta=delta, error=error))
        if epsilon > best:
            best, event = (
                epsilon,
                f"{codes.say(members)}, seen more often in the {'second' if turned else 'first'} world",
            )
    return Bound(epsilon=best, delta=delta, confidence=confidence, plays=plays, event=event)


def _parts(values: Integers, split: int) -> tuple[Integers, Integers]:
    """Return the plays to choose on and the plays to count on; the deal depends on nothing that was seen."""
    dealt = values[np.random.default_rng([split, values.size]).permutation(values.size)]
    return dealt[: values.size // _PART], dealt[values.size // _PART :]


def _choose(
    firsts: Integers, seconds: Integers, orders: Orders, *, delta: float, error: float
) -> tuple[NDArray[np.bool_], bool] | None:
    """Return the event that looks best, as a mask over codes, and whether the second world sees it more often.

    Orders of the codes are learnt on one part of these plays, and where to cut them is chosen on the other: an order
    fitted to its own plays would flatter itself.
    """
    learnt = firsts[: firsts.size // 2], seconds[: seconds.size // 2]
    rest = firsts[firsts.size // 2 :], seconds[seconds.size // 2 :]
    best, chosen = 0.0, None
    for rank in orders(*learnt):
        size = int(rank.max()) + 1
        for turned, (seen, unseen) in enumerate([rest, rest[::-1]]):
            ranked = rank if not turned else size - 1 - rank
            hits = np.cumsum(np.bincount(ranked[seen], minlength=size))
            misses = np.cumsum(np.bincount(ranked[unseen], minlength=size))
            cuts = _cuts(hits, misses)
            values = _promise(hits[cuts], seen.size, misses[cuts], unseen.size, delta=delta, error=error)
            winner = int(values.argmax())
            if values[winner] > best:
                best, chosen = float(values[winner]), (ranked <= cuts[winner], bool(turned))
    return chosen


def _promise(hits: Integers, plays: int, misses: Integers, other_plays: int, *, delta: float, error: float) -> Floats:
    """Return about what an event will show in the many plays that count it, one deviation on the safe side."""
    growth = 2 * (_PART - 1)  # the events are compared on half of a part
    likely = np.maximum(hits - np.sqrt(hits), 0) * growth
    unlikely = np.minimum(misses + np.sqrt(misses + 1), other_plays) * growth
    return _epsilon(likely, plays * growth, unlikely, other_plays * growth, delta=delta, error=error)


def _cuts(hits: Integers, misses: Integers) -> Integers:
    """Return the places to cut: all codes that were seen here, or some hundreds that lie evenly among them.

    Codes that only other plays have seen must not matter: those plays count the event.
    """
    changes = np.flatnonzero(np.diff(hits + misses, prepend=0))
    if changes.size <= _CUTS:
        return changes
    seen = [np.searchsorted(counts, np.geomspace(1, counts[-1], _CUTS // 4)) for counts in (hits, misses)]
    even = [np.searchsorted(counts, np.linspace(1, counts[-1], _CUTS // 4)) for counts in (hits, misses)]
    return np.unique(np.concatenate(seen + even))


def _epsilon(
    hits: Integers | Floats | int,
    plays: int,
    misses: Integers | Floats | int,
    other_plays: int,
    *,
    delta: float,
    error: float,
) -> Floats:
    """Return log((p - delta) / q) with p at its lowest and q at its highest; 0 where that is not above 0."""
    lower = proportion_at_least(hits, plays, error=error) - delta
    upper = proportion_at_most(misses, other_plays, error=error)
    return np.log(np.maximum(lower, upper) / upper) * (1 - 1e-12)
