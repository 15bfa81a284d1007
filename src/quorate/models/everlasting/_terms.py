"""The public numbers of everlasting prediction, and what each kind of unit pays. Nothing here sees a record.

Each kind of unit is charged for the phases that it touches and for nothing else (PROOF.md). With `relabel="votes"`:

    a training unit     the Quorum of phase 1
    a query             the cutoff of the phase in which it came, and the Quorum of the next phase, which it teaches
    with a pool         a pool point pays like a query above, and a query only the cutoff

With `relabel="labelboost"`, where S, D and S' are samples at the rates q_0, q_d and q_s, kappa the parameter of the
relabelling, and pre = epsilon_v + log(1 + q_s ((1 + e^(kappa/2))^2 - 1)):

    a training unit     log(1 + q_0 (e^pre - 1)), delta q_0 delta_v
    a query             epsilon_c + log(1 + q_d (4 e^pre - 1)), delta delta_c + q_d delta_v
    with a pool         a pool point pays the second without the cutoff, and a query only the cutoff
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from quorate.core.checks import check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.core.privacy import Budget, Cost, amplify, amplify_inverse, relabelling_epsilon
from quorate.core.privacy.cost import float_down, float_up

Refresh = Literal["queries", "pool"]

CUTOFF_DELTA = 0.1  # the share of delta that goes to the cutoff
_SHARES = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5)
_LEAST_EPSILON, _MOST_EPSILON = 2.0**-12, 40.0  # of a cutoff
_ROOM = 2.0**-32  # of epsilon and of delta: more than the rounding of a handful of charges to whole quanta


class Guarantee(NamedTuple):
    """The guarantee for one unit.

    >>> Guarantee(1.0, 1e-6).epsilon
    1.0
    """

    epsilon: float
    delta: float


class Boost(NamedTuple):
    """The samples of the relabelling: of the records, of the labelled set, and of the points that came in a phase."""

    kappa: float
    records: float  # q_0
    labelled: float  # q_s
    points: float  # q_d

    @property
    def relabelling(self) -> float:
        """The epsilon that a row of the labelled set pays for choosing labels of the next phase."""
        return _relabelling(self.kappa, self.labelled)


def _relabelling(kappa: float, labelled: float) -> float:
    return amplify(epsilon=relabelling_epsilon(kappa=kappa), delta=0.0, rate=labelled)[0]  # proof: step 8


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Mechanisms and guarantees; `pool` is None without a pool, and `boost` if labels are those of the votes."""

    cutoff: NoisyCutoff
    first: Quorum
    later: Quorum
    voting: Guarantee  # of one phase's Quorum alone, for a unit that teaches in it: with labelboost in all phases
    training: Guarantee
    queries: Guarantee
    pool: Guarantee | None = None
    boost: Boost | None = None

    @property
    def point(self) -> Guarantee:
        """What a point pays with `boost`, without the cutoff."""
        assert self.boost is not None
        return _point(self.boost, self.voting)

    def budget(self, phase: int) -> Budget:
        """Return the budget of one unit that teaches in this phase, with what it has already paid."""
        quorum = self.quorum(phase)
        if self.boost is not None or phase == 1:  # proof: steps 5 and 9
            epsilon, delta = self.voting if self.boost is not None else self.training
            return Budget(epsilon=epsilon, delta=delta, order=quorum.order, slack=quorum.slack)
        teaches = self.queries if self.pool is None else self.pool
        paid = self.cutoff.cost()  # proof: step 6
        slack = (Cost(0.0, quorum.slack) + Cost(0.0, paid.slack)).slack
        budget = Budget(epsilon=teaches.epsilon, delta=teaches.delta, order=quorum.order, slack=slack)
        budget.spend(paid)
        return budget

    def account_budget(self, account: Guarantee | None) -> Budget:
        """Return the account of a training unit, charged for all of phase 1, however many no-quorums it meets.

        It is the budget of phase 1, or a larger `account` that can pay for that phase again.
        """
        budget, quorum = self.budget(1), self.quorum(1)
        if account is not None:
            if self.boost is not None:
                raise InvalidInput("with relabel='labelboost' no phase can be opened again: leave account out")
            runs = max(1, int(account.delta / (2 * quorum.slack)))  # as many as half of delta pays for
            slack = quorum.slack * runs
            budget = Budget(epsilon=account.epsilon, delta=account.delta, order=quorum.order, slack=slack)
        budget.spend(quorum.opening_cost(budget.order))
        budget.spend(quorum.no_quorum_cost(budget.order), times=quorum.no_quorums)  # proof: step 18
        return budget

    def quorum(self, phase: int) -> Quorum:
        """Return the mechanism of this phase, counted from 1."""
        return self.first if phase == 1 else self.later


def cutoff_for(guarantee: Guarantee, *, arrivals: int, no_quorums: int, epsilon: float | None = None) -> NoisyCutoff:
    """Return the cutoff that leaves the Quorum most to work with: many no-quorums to spare, or much of epsilon.

    The distance at which a Quorum answers grows like sqrt(no-quorums)/epsilon: that is what is made small.
    """
    delta = CUTOFF_DELTA * guarantee.delta

    def cutoff_at(cutoff_epsilon: float) -> NoisyCutoff:
        return NoisyCutoff.calibrate(epsilon=cutoff_epsilon, delta=delta, no_quorums=no_quorums, arrivals=arrivals)

    if epsilon is not None:
        if check_positive("cutoff_epsilon", epsilon) >= guarantee.epsilon:
            raise Infeasible(f"cutoff_epsilon must be below the {guarantee.epsilon:g} of a query, not {epsilon!r}")
        return cutoff_at(epsilon)
    shares = (share * guarantee.epsilon for share in _SHARES)
    tried = [cutoff_at(min(share, _MOST_EPSILON)) for share in shares if share >= _LEAST_EPSILON]
    if not tried:
        raise Infeasible(
            f"epsilon must be at least {2 * _LEAST_EPSILON:.4g}, not {guarantee.epsilon!r}: a cutoff takes half of that"
        )
    return min(tried, key=lambda cutoff: math.sqrt(cutoff.most) / (guarantee.epsilon - cutoff.epsilon))


def _rest(guarantee: Guarantee, paid: Cost) -> Guarantee:
    """Return what is left for the Quorum of a unit that has paid for the cutoff, rounded down."""
    epsilon = (Fraction(guarantee.epsilon) - Fraction(paid.renyi)) * (1 - Fraction(_ROOM))
    delta = (Fraction(guarantee.delta) - Fraction(paid.slack)) * (1 - Fraction(_ROOM))
    return Guarantee(float_down(epsilon), float_down(delta))


@lru_cache(maxsize=64)
def _quorum(epsilon: float, delta: float, teachers: int, no_quorums: int) -> Quorum:
    """Return a calibrated Quorum: a description, which holds no noise. Calibrating takes seconds."""
    return Quorum.calibrate(epsilon=epsilon, delta=delta, teachers=teachers, no_quorums=no_quorums)


def votes_terms(
    *,
    teachers: int,
    arrivals: int,
    no_quorums: int,
    training: Guarantee,
    queries: Guarantee,
    refresh: Refresh,
    cutoff_epsilon: float | None = None,
) -> Terms:
    """Return terms under which released labels teach the next phase; `queries` is for whoever teaches it."""
    _check(training, queries)
    cutoff = cutoff_for(queries, arrivals=arrivals, no_quorums=no_quorums, epsilon=cutoff_epsilon)
    first = _quorum(*training, teachers, cutoff.most)  # proof: step 5
    later = _quorum(*_rest(queries, cutoff.cost()), teachers, cutoff.most)  # proof: step 6
    only_cutoff = Guarantee(cutoff.epsilon, cutoff.delta)
    pool = queries if refresh == "pool" else None
    query_guarantee = only_cutoff if refresh == "pool" else queries
    return Terms(
        cutoff=cutoff, first=first, later=later, voting=training, training=training, queries=query_guarantee, pool=pool
    )


def _check(*guarantees: Guarantee) -> None:
    for epsilon, delta in guarantees:
        check_positive("epsilon", epsilon)
        check_delta(delta, zero=False)


def boost_terms(
    *,
    rows: int,
    chunk: int,
    no_quorum_rate: float,
    training: Guarantee,
    queries: Guarantee,
    refresh: Refresh,
    kappa: float = 1.0,
    labelled: float = 0.05,
    cutoff_epsilon: float | None = None,
) -> tuple[Terms, int, int]:
    """Return terms of LabelBoost, how many teachers there are, and how many points come in a phase.

    The rates of the samples are chosen so that both guarantees are used up and the Quorum answers at the smallest
    distance relative to its teachers. `rows` is the number of records.
    """
    _check(training, queries)
    labelled, no_quorum_rate = check_rate("labelled", labelled), check_rate("no_quorum_rate", no_quorum_rate)
    relabelling = _relabelling(kappa, labelled)
    best: tuple[float, float, float] | None = None
    for step in range(1, 200):
        voting = 0.02 * step * training.epsilon
        pre = voting + relabelling
        first = min(1.0, math.expm1(training.epsilon) / math.expm1(pre))
        second = min(1.0, math.expm1(0.93 * queries.epsilon) / (4 * math.exp(pre) - 1))
        score = voting**2 * first * second
        if best is None or score > best[0]:
            best = score, first, second
    assert best is not None
    teachers = int(rows * best[1]) // chunk
    seats = teachers * chunk
    if teachers < 1:
        raise Infeasible(f"{rows} rows are too few for a teacher of chunk={chunk}; it takes more rows")
    arrivals = math.ceil(seats / best[2])
    boost = Boost(kappa, seats / rows, max(1, int(labelled * seats)) / seats, seats / arrivals)
    no_quorums = max(1, math.ceil(no_quorum_rate * arrivals))
    cutoff = cutoff_for(queries, arrivals=arrivals, no_quorums=no_quorums, epsilon=cutoff_epsilon)
    voting_guarantee = _voting(boost, cutoff, training, queries, refresh)
    quorum = _quorum(*voting_guarantee, teachers, cutoff.most)
    return _boosted(boost, cutoff, quorum, voting_guarantee, refresh), teachers, arrivals


def _voting(boost: Boost, cutoff: NoisyCutoff, training: Guarantee, queries: Guarantee, refresh: Refresh) -> Guarantee:
    """Return the largest guarantee of one phase's votes under which both kinds of unit get theirs."""
    paid = cutoff.cost() if refresh == "queries" else Cost(0.0)
    rest = _rest(queries, paid)
    inner = amplify_inverse(epsilon=training.epsilon, delta=training.delta, rate=boost.records)
    points = amplify_inverse(epsilon=rest.epsilon, delta=rest.delta, rate=boost.points)
    pre = min(inner[0], points[0] - relabelling_epsilon(kappa=1.0, change="unlabelled"))
    epsilon, delta = (pre - boost.relabelling) * (1 - 1e-9), min(inner[1], points[1], 0.5) * (1 - 1e-9)
    if epsilon <= 0:
        raise Infeasible(
            f"relabelling at kappa={boost.kappa} of a share of {boost.labelled:g} leaves nothing for the votes at "
            "these epsilons; lower either, or allow larger epsilons"
        )
    return Guarantee(epsilon, delta)


def _point(boost: Boost, voting: Guarantee) -> Guarantee:
    """Return what a point pays that is relabelled and teaches the next phase."""
    pre = float_up(Fraction(voting.epsilon) + Fraction(boost.relabelling))
    changed = float_up(Fraction(pre) + Fraction(relabelling_epsilon(kappa=boost.kappa, change="unlabelled")))
    return Guarantee(*amplify(epsilon=changed, delta=voting.delta, rate=boost.points))  # proof: step 10


def _boosted(boost: Boost, cutoff: NoisyCutoff, quorum: Quorum, voting: Guarantee, refresh: Refresh) -> Terms:
    pre = float_up(Fraction(voting.epsilon) + Fraction(boost.relabelling))  # of a row of a phase's labelled set
    training = Guarantee(*amplify(epsilon=pre, delta=voting.delta, rate=boost.records))  # proof: step 9
    point = _point(boost, voting)
    only_cutoff = Guarantee(cutoff.epsilon, cutoff.delta)
    query = Guarantee(
        float_up(Fraction(point.epsilon) + Fraction(cutoff.epsilon)),
        float_up(Fraction(point.delta) + Fraction(cutoff.delta)),
    )
    return Terms(
        cutoff=cutoff,
        first=quorum,
        later=quorum,
        voting=voting,
        training=training,
        queries=only_cutoff if refresh == "pool" else query,
        pool=point if refresh == "pool" else None,
        boost=boost,
    )
