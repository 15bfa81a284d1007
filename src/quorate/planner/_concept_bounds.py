"""The excess error that each method on a class of hypotheses is sure to keep, with the best settings for that bound.

Each function takes the number of records and public parameters, and returns a `MethodBound`. The settings that
minimise a bound come from a ladder, so the bound is one of settings that can be had. Derivations stand beside the
formulas, and each privacy cost is one that the predictor itself is charged.

`log_growth(m)` is the logarithm of the number of dichotomies of m points (Sauer's bound, or the class's own). The
routines on learning return upper bounds in expectation, and integrate a tail: if P(X > t) <= A exp(-b t) for all t,
then E X <= (log A + 1) / b.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from quorate.core.checks import check_count
from quorate.core.privacy import amplify_inverse, relabelling_epsilon

_KAPPAS = (0.5, 1.0, 2.0, 4.0)
_MOST_FIRST = 10**7  # queries that `universal` answers by ballots
_SHARES = (0.2, 0.25, 0.3, 0.35, 0.4)
_RATES = tuple(2.0**-power for power in range(1, 12))

LogGrowth = Callable[[int], float]

_HALVES = math.log(2) / 2


def sauer_growth(dimension: int) -> LogGrowth:
    """Return the logarithm of Sauer's bound for a class of this VC dimension."""
    dimension = check_count("vc_dimension", dimension)

    @cache
    def log_growth(points: int) -> float:
        if points <= dimension:
            return points * math.log(2)
        if dimension > 30:
            return dimension * (1 + math.log(points / dimension))  # (e m / d)^d
        return math.log(sum(math.comb(points, size) for size in range(dimension + 1)))

    return log_growth


def deviation(log_growth: LogGrowth, rows: int) -> float:
    """Return by how much the error of a hypothesis exceeds its share of mistakes on `rows` rows, over all at once.

    Symmetrisation and Massart's lemma: sqrt(2 log growth(n) / n).
    """
    return math.sqrt(2 * log_growth(rows) / rows)


def cover_deviation(log_candidates: float, rows: int) -> float:
    """Return the same for a list of candidates that does not depend on the rows: sqrt(log N / (2 n))."""
    return math.sqrt(log_candidates / (2 * rows))


def choice_excess(log_candidates: float, *, epsilon: float, rows: int) -> float:
    """Return by how much the exponential mechanism's choice has a larger share of mistakes than the best candidate."""
    return 2 / epsilon * (log_candidates + 1) / rows


def net_error(log_growth: LogGrowth, points: int) -> float:
    """Return how often two hypotheses differ that agree on so many random points, over all pairs at once.

    A pair that differs with probability t agrees on m points, whichever it is, with probability at most
    2 growth(2m)^2 2^(-t m / 2).
    """
    return min(1.0, (math.log(2) + 2 * log_growth(2 * points) + 1) / (_HALVES * points))


def consistent_error(log_growth: LogGrowth, rows: int) -> float:
    """Return the error of a hypothesis that is right on so many rows, where one of the class is right on all.

    P(some such hypothesis has error t) <= 2 growth(2n) 2^(-t n / 2) (Blumer et al. 1989).
    """
    return min(1.0, (math.log(2) + log_growth(2 * rows) + 1) / (_HALVES * rows))


@dataclass(frozen=True)
class MethodBound:
    """A bound on the expected excess error, and the settings it was found with."""

    error: float
    settings: Mapping[str, float] = field(default_factory=dict)


def _best(bounds: Iterable[MethodBound]) -> MethodBound:
    return min(bounds, key=lambda bound: bound.error, default=MethodBound(1.0))


def _ladder(largest: int) -> Iterator[int]:
    """Yield whole numbers up to `most`, each about 1.4 times the one before, and `most` itself."""
    value = 1.0
    while value < largest:
        yield math.ceil(value)
        value = max(value + 1, value * 1.4)
    if largest >= 1:
        yield largest


def ballot_error(
    teacher_error: Callable[[int], float], *, rows: int, epsilon: float, delta: float, queries: int
) -> MethodBound:
    """Return how often a private vote of teachers on disjoint chunks is wrong where some hypothesis is always right.

    Points at which more than a share f of the k teachers err have at most 1/f of their mean error. Elsewhere most lead
    by (1 - 2f) k ballots, and noise turns it over with probability at most exp(-epsilon (1/2 - f) k / m) for a
    soft majority that shares epsilon among m queries, or exp(-((1/2 - f) k)^2 / (2 s^2)) for Gaussian noise of scale s
    on one count, with m / (2 s^2) = (sqrt(L + epsilon) - sqrt(L))^2 and L = log(1/delta). The better one is taken.
    """
    rate = 0.0
    if delta > 0:
        tail = math.log(1 / delta)
        rate = (math.sqrt(tail + epsilon) - math.sqrt(tail)) ** 2 / queries  # 1 / (2 s^2)

    best, chosen = 2.0, 1
    for teachers in _ladder(rows):
        mean = teacher_error(rows // teachers)
        if mean >= best:  # and smaller chunks learn less
            break
        for share in _SHARES:
            lead = (0.5 - share) * teachers
            error = min(1.0, mean / share) + math.exp(-max(epsilon * lead / queries, lead * lead * rate))
            if error < best:
                best, chosen = error, teachers
    return MethodBound(best, {"teachers": chosen})


def subsample(records: int, *, log_growth: LogGrowth, epsilon: float, queries: int, delta: float = 0.0) -> MethodBound:
    """Teachers on chunks of the records as they are, where some hypothesis is always right.

    Without delta, a soft majority counts their ballots.
    """
    learned = lambda rows: consistent_error(log_growth, rows)  # noqa: E731
    return ballot_error(learned, rows=records, epsilon=epsilon, delta=delta, queries=queries)


def agnostic(records: int, *, log_growth: LogGrowth, epsilon: float, delta: float, queries: int) -> MethodBound:
    """A secret sample is relabelled by one hypothesis, then voted on by teachers on its chunks.

    The sample's hypothesis is off by its deviation and by what the choice loses. Teachers agree with it on their chunk;
    as it depends on the chunk, their error is that of *pairs* of hypotheses which agree there.
    """
    best = MethodBound(1.0)
    for rate in _RATES:
        sampled = int(rate * records)
        if sampled < 1:
            continue
        # What may be spent on the sample in all.
        sample_epsilon, sample_delta = amplify_inverse(epsilon=epsilon, delta=delta, rate=rate)
        noise_free = deviation(log_growth, sampled)
        for kappa in _KAPPAS:
            inner = sample_epsilon - relabelling_epsilon(kappa=kappa)
            relabelled = noise_free + choice_excess(log_growth(sampled), epsilon=kappa, rows=sampled)
            if inner <= 0 or relabelled >= best.error:
                continue
            votes = ballot_error(
                lambda rows: net_error(log_growth, rows),
                rows=sampled,
                epsilon=inner,
                delta=sample_delta,
                queries=queries,
            )
            if relabelled + votes.error < best.error:
                best = MethodBound(relabelled + votes.error, {"rate": rate, "kappa": kappa, **votes.settings})
    return best


def semi_private(records: int, *, log_growth: LogGrowth, epsilon: float, public: int) -> MethodBound:
    """One hypothesis for each dichotomy of public points, chosen by private mistakes."""

    def bounds() -> Iterator[MethodBound]:
        for points in _ladder(public):
            candidates = log_growth(points)
            chosen = choice_excess(candidates, epsilon=epsilon, rows=records)
            error = net_error(log_growth, points) + cover_deviation(candidates, records) + chosen
            yield MethodBound(error, {"points": points})

    return _best(bounds())


def universal(records: int, *, log_growth: LogGrowth, epsilon: float, delta: float) -> MethodBound:
    """The first queries are answered by `agnostic`, with half of the budget; then they are the public points."""
    ladder = list(_ladder(_MOST_FIRST))
    low, high = 0, len(ladder) - 1
    bounds = []
    while low <= high:  # more of them make a better cover and worse answers: where do the two meet?
        first = ladder[(low + high) // 2]
        hypothesis = semi_private(records, log_growth=log_growth, epsilon=epsilon / 2, public=first)
        ballots = agnostic(records, log_growth=log_growth, epsilon=epsilon / 2, delta=delta, queries=first)
        bounds.append(MethodBound(max(ballots.error, hypothesis.error), {"first_queries": first, **ballots.settings}))
        if ballots.error < hypothesis.error:
            low = (low + high) // 2 + 1
        else:
            high = (low + high) // 2 - 1
    return _best(bounds)


def stable(records: int, *, log_growth: LogGrowth, gamma: float) -> MethodBound:
    """A random subset defines the candidates, all records choose: q + (1 - q) tanh(e / 4) = gamma, q = gamma / 2."""
    subset = int(gamma / 2 * records)
    if subset < 1:
        return MethodBound(1.0)
    rate = subset / records
    choice = 4 * math.atanh((gamma - rate) / (1 - rate))
    error = (
        net_error(log_growth, subset)
        + deviation(log_growth, records)
        + choice_excess(log_growth(subset), epsilon=choice, rows=records)
    )
    return MethodBound(error, {"gamma": gamma, "subset": subset})


def pure_stable(records: int, *, log_growth: LogGrowth, epsilon: float, queries: int) -> MethodBound:
    """A stable prediction, flipped with probability a: gamma = a (e^epsilon - 1) / (1 - 2a)."""

    def bounds() -> Iterator[MethodBound]:
        odds = math.expm1(min(epsilon / queries, 700.0))
        for power in range(1, 60):
            flip = 0.45 * 0.8**power
            gamma = flip * odds / (1 - 2 * flip)
            if gamma < 0.99:
                inner = stable(records, log_growth=log_growth, gamma=gamma)
                yield MethodBound(inner.error + flip, {"flip": flip, **inner.settings})

    return _best(bounds())


def pure_relabel(records: int, *, log_growth: LogGrowth, epsilon: float, queries: int) -> MethodBound:
    """A subset's dichotomies, a choice with weights exp(-mistakes / (eta n)), soft majority, and a flip.

    With r = 1 + 1/(eta n) and epsilon = log F, F = (1 + 4 e^(3r) q / (1 - q)) e^(3 / (eta n)) says the rate q; the
    subset without one point fails to be an eta-net for pairs with probability at most a; flipping with probability
    a q / (F - 1 + 2 a q) pays for that.
    """

    def bounds() -> Iterator[MethodBound]:
        epsilon_per_query = min(epsilon / queries, 700.0)
        for power in range(1, 130):
            eta = 0.75**power
            remaining = epsilon_per_query - 3 / (eta * records)
            if remaining <= 0:
                break
            odds = math.expm1(remaining) / (4 * math.exp(3 * (1 + 1 / (eta * records))))
            rate = odds / (1 + odds)
            subset = int(rate * records)
            if subset < 2:
                continue
            misses = math.log(2) + 2 * log_growth(2 * (subset - 1)) - eta * (subset - 1) * math.log(2) / 2
            mass = math.exp(min(0.0, misses)) * rate
            flip = mass / (math.expm1(epsilon_per_query) + 2 * mass)
            votes = ballot_error(
                lambda rows: net_error(log_growth, rows),
                rows=records,
                epsilon=1 / (eta * records),
                delta=0.0,
                queries=1,
            )
            error = (
                net_error(log_growth, subset)
                + deviation(log_growth, records)
                + choice_excess(log_growth(subset), epsilon=2 / (eta * records), rows=records)
                + votes.error
                + flip
            )
            yield MethodBound(error, {"eta": eta, "subset": subset, "flip": flip, **votes.settings})

    return _best(bounds())
