"""How much is sampled, how it is relabelled, and what that leaves to what is run on it: all from public numbers.

A secret sample of the units is relabelled and an (epsilon, delta)-DP mechanism is run on it. Relabelling adds a term
to its epsilon, and sampling shrinks the sum: PROOF_CONCEPTS.md, steps 2 and 3.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.privacy import amplify, amplify_inverse, relabelling_epsilon
from quorate.core.privacy.cost import float_down, float_up
from quorate.models.concepts import Concept

_KAPPAS = (0.25, 0.5, 1.0, 2.0, 4.0)
_RATES = tuple(0.9 * 0.93**step for step in range(90))
_BALLOTS = 250  # teachers that a run of epsilon 1 takes, about: it weighs chunks against samples
_LEAST_INNER = 0.05  # of epsilon, for what is run on the sample
_PAPER_SHARE = 56  # Algorithm 3 of Nandi and Bassily (2020) samples epsilon * n / 56
_BETA = 0.05
_DOWN = 1 - Fraction(1, 10**12)  # covers the rounding of both directions of `amplify`


@dataclass(frozen=True, kw_only=True)
class RelabelledSample:
    """`sampled` of `units` are taken, without replacement and secretly, and relabelled with parameter `kappa`.

    `epsilon` and `delta` are what may be run on the relabelled sample.
    """

    units: int
    sampled: int
    kappa: float
    epsilon: float
    delta: float
    rows: int = 1

    @property
    def rate(self) -> float:
        """The share of units that is sampled, rounded up."""
        return float_up(Fraction(self.sampled, self.units))

    def total(self, inner: float) -> tuple[float, float]:
        """Return (epsilon, delta) of all that is released when what runs on the sample has spent `inner` of epsilon."""
        term = relabelling_epsilon(kappa=self.kappa, rows=self.rows)  # proof: step 2
        sample_epsilon = float_up(Fraction(inner) + Fraction(term))
        return amplify(epsilon=sample_epsilon, delta=self.delta, rate=self.rate)  # proof: step 3

    def spent(self, inner: float) -> float:
        """Return the epsilon of `total`, or 0 where nothing was run on the sample."""
        return 0.0 if inner == 0 else self.total(inner)[0]


def _inner(
    epsilon: float, delta: float, *, units: int, sampled: int, kappa: float, rows: int
) -> RelabelledSample | None:
    """Return what may be run on this sample under (epsilon, delta), or None where that is next to nothing."""
    rate = float_up(Fraction(sampled, units))
    sample_epsilon, inside = amplify_inverse(epsilon=epsilon, delta=delta, rate=rate)
    remaining = Fraction(sample_epsilon) - Fraction(relabelling_epsilon(kappa=kappa, rows=rows))
    if remaining < Fraction(_LEAST_INNER):
        return None
    sample = RelabelledSample(
        units=units,
        sampled=sampled,
        kappa=kappa,
        epsilon=float_down(remaining * _DOWN),
        delta=min(inside * float(_DOWN), 0.1),
        rows=rows,
    )
    total = sample.total(sample.epsilon)
    assert total[0] <= epsilon
    assert total[1] <= delta
    return sample


def plan_sample(
    concept: Concept,
    *,
    units: int,
    epsilon: float,
    delta: float,
    rate: float | None = None,
    kappa: float | None = None,
    rows: int = 1,
) -> RelabelledSample:
    """Return the sample with the smallest error to be expected, unless `rate` and `kappa` say what to take.

    The error is that of a sample of its size, plus what relabelling loses, plus that of teachers on their chunks: a
    rule of thumb that decides on accuracy alone. The guarantee holds whatever is chosen.
    """
    units, rows = check_count("units", units), check_count("rows", rows)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    largest = concept.largest_set(units * rows) // rows
    rates = _RATES if rate is None else (check_rate("rate", rate),)
    kappas = _KAPPAS if kappa is None else (check_positive("kappa", kappa),)
    sizes = {min(largest, int(share * units)) for share in rates} - {0}
    samples = [
        sample
        for sampled in sizes
        for parameter in kappas
        if (sample := _inner(epsilon, delta, units=units, sampled=sampled, kappa=parameter, rows=rows)) is not None
    ]
    if not samples:
        raise Infeasible(
            f"no sample of {units} units leaves an epsilon to run on it at epsilon={epsilon:g}, with a unit of up to "
            f"{rows} rows that are relabelled; raise epsilon, or take a smaller rate or kappa, or fewer rows a person"
        )
    return min(samples, key=lambda sample: _error(concept, sample))


def _error(concept: Concept, sample: RelabelledSample) -> float:
    """Return about how much worse than the best hypothesis the answers will be."""
    dimension, rows = max(1, concept.vc_dimension), sample.sampled
    relabelling = 2 / sample.kappa * math.log(concept.growth(rows * sample.rows) / _BETA) / rows
    chunks = dimension * _BALLOTS / sample.epsilon / rows
    return math.sqrt((dimension + math.log(1 / _BETA)) / rows) + relabelling + chunks


def paper_no_quorums(*, queries: int, alpha: float, beta: float) -> int:
    """Return the cut-off T of Algorithm 3 of Nandi and Bassily (2020), rounded up."""
    queries, alpha, beta = check_count("queries", queries), check_rate("alpha", alpha), check_rate("beta", beta)
    mean = queries * alpha
    return math.ceil(max(1.0, mean / 8 + math.sqrt(3 * mean * math.log(queries / beta)) / 4))


def paper_inner(*, units: int, epsilon: float, delta: float, queries: int, alpha: float) -> RelabelledSample:
    """Return the sample of Algorithm 3 of Nandi and Bassily (2020) with its epsilon and delta, as printed.

    The printed factor log(2/delta), which pays for sampling with replacement, is kept although it is not needed here.
    """
    units, queries = check_count("units", units), check_count("queries", queries)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    if epsilon > 1:
        raise InvalidInput(f"the paper's constants are for epsilon up to 1, not {epsilon:g}; use calibration='tight'")
    alpha = check_rate("alpha", alpha)
    sampled = int(Fraction(epsilon) / _PAPER_SHARE * units)
    if sampled < 1:
        raise Infeasible(f"the paper samples epsilon / {_PAPER_SHARE} of the units, and {units} are too few for one")
    inner = min(1.0, alpha * max(1.0, math.sqrt(queries * alpha)))
    sample = RelabelledSample(
        units=units,
        sampled=sampled,
        kappa=1.0,
        epsilon=inner / math.log(2 / delta),
        delta=delta / (2 * math.exp(inner) * math.log(2 / delta)),
    )
    total = sample.total(sample.epsilon)
    if total[0] > epsilon or total[1] > delta:
        raise Infeasible(f"the paper's constants do not keep epsilon={epsilon:g}, delta={delta:g}; use 'tight'")
    return sample
