"""How far noisy answers bear public data out: a test with a stated level and power, and the trust that follows from it.

All of it is post-processing of noisy answers y with standard deviations e, and of public shares q. If the public
records are a fair sample, the sum of (y - q)^2 - e^2 over all answers has the expectation of the sampling error alone;
public data from elsewhere add the square of their distance. PROOF.md, step 5, has the level and the power.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from quorate.core.arrays import Floats
from quorate.release.engines.components import centred, noise_spectrum
from quorate.release.engines.residual import MeasuredMarginals
from quorate.release.queries import Marginals, Rows

__all__ = ["Evidence", "posterior_errors", "prior_weight", "weigh_evidence"]

_LEVEL, _QUANTILE = 0.05, 1.6448536269514722  # of the test; of a Gaussian, for its power of 95%
_CAUTION = 0.75  # deviations of the test by which error bars allow for a distance that it did not see
_LADDER = 32  # strengths that are tried, each the root of one half of the one before
_NEGLIGIBLE = 0.01  # of the noise: among strengths that are this close in squared error the largest is taken
_WORTHWHILE = 0.9  # of the noise: where no strength errs less than that, refuted data are left out
_SAMPLED = 200  # public records from which the spread of the sampling error is estimated


@dataclass(frozen=True)
class Evidence:
    """What noisy answers say about public data.

    `strength` is the number of records as which the public ones count, and `cautious` the same for error bars.
    `refuted` is the outcome of the test. `resolution` is the distance of a public table, in root mean square over all
    answers, that the test finds with a probability of 95%.
    """

    strength: float
    cautious: float
    refuted: bool
    resolution: float


def weigh_evidence(queries: Marginals, measured: MeasuredMarginals, support: Rows, fair: float) -> Evidence:
    """Return the trust that public data deserve; `fair` is the strength that is right for a fair sample.

    A fair sample keeps its whole strength unless the test errs. Where the test refutes it, the strength is that of the
    least squared error, which noisy answers estimate without bias (Stein 1981).
    """
    noise = measured.errors**2
    shares = np.clip(queries.answers(support), 0.0, 1.0)  # weights may sum up to a last bit more than 1
    squares = (measured.answers - shares) ** 2 - noise
    scatter = shares * (1.0 - shares)
    foreseen, total = float(scatter.sum()) / fair, float(noise.sum())
    excess = float(squares.sum()) - foreseen
    noisy, widest, crossed = _law_of_squares(queries, measured, support)
    sampled = _sampling_square(queries, support) / fair**2
    deviation = math.sqrt(noisy + 4.0 * crossed / fair + 2.0 * sampled)
    # with few answers the test is sharper, so that what it does not find costs no more than some times the noise:
    # proof: step 5
    harm = deviation * (total / max(total + foreseen, 1e-300)) ** 2
    critical = min(max(total / max(harm, 1e-300) - _QUANTILE, 0.0), _critical(total + foreseen, deviation))
    found = _distance_found(critical, deviation, widest + math.sqrt(sampled))
    resolution = math.sqrt(found / queries.count)
    refuted = excess > critical * deviation
    strength = _least_risk(squares, scatter, noise, fair) if refuted else fair
    unseen = max(0.0, excess + _CAUTION * deviation)
    cautious = min(strength, float(scatter.sum()) / (foreseen + unseen)) if foreseen > 0 else strength
    return Evidence(strength, cautious, refuted, resolution)


def prior_weight(shares: Floats, errors: Floats, strength: float, amount: float) -> Floats:
    """Return by how much a noisy answer is believed where a prior of this strength is weighed against it."""
    share = np.clip(shares, 1.0 / (amount + 1), 1.0 - 1.0 / (amount + 1))
    prior = share * (1.0 - share) / strength
    return np.asarray(prior / (errors**2 + prior))


def posterior_errors(answers: Floats, errors: Floats, strength: float, amount: float) -> Floats:
    """Return one standard deviation where noise and a prior of this strength are weighed against each other."""
    return np.asarray(errors * np.sqrt(prior_weight(answers, errors, strength, amount)))


def _least_risk(squares: Floats, scatter: Floats, noise: Floats, fair: float) -> float:
    """Return the largest strength whose squared error, as far as noisy answers tell, is next to the least.

    Where even that is next to the noise itself, it is the smallest strength there is: public data that hardly help on
    average may still harm the worst answer.
    """
    strengths: list[float] = [fair / 2.0 ** (step / 2.0) for step in range(_LADDER)]
    risks = []
    for strength in strengths:
        prior = scatter / strength
        believed = prior / np.maximum(prior + noise, 1e-300)
        risks.append(float((believed**2 * noise + (1.0 - believed) ** 2 * squares).sum()))
    if min(risks) > _WORTHWHILE * float(noise.sum()):
        return strengths[-1]
    allowed = min(risks) + _NEGLIGIBLE * float(noise.sum())
    return next(strength for strength, risk in zip(strengths, risks, strict=True) if risk <= allowed)


def _distance_found(critical: float, deviation: float, widest: float) -> float:
    """Return the squared distance D that the test finds with 95%: its square, and its product with errors, both vary.

    D is critical * deviation + quantile * sqrt(deviation^2 + 4 widest D), where `widest` bounds the variance of the
    errors in any direction.
    """
    middle = critical * deviation + 2.0 * _QUANTILE**2 * widest
    return middle + math.sqrt(max(middle**2 - (critical**2 - _QUANTILE**2) * deviation**2, 0.0))


def _critical(mean: float, deviation: float) -> float:
    """Return the 95% point of a sum of squares, in deviations above its mean: that of a gamma law of both."""
    if not deviation > 0:
        return 0.0
    shape = (mean / deviation) ** 2
    return float(stats.gamma.isf(_LEVEL, shape) - shape) / math.sqrt(shape)


def _law_of_squares(queries: Marginals, measured: MeasuredMarginals, support: Rows) -> tuple[float, float, float]:
    """Return the variance of the sum of the squared noise of all answers, that of the noise in any one direction, and
    the trace of the covariance of the noise times that of one record.

    A record's own component has a length that depends on sizes alone, and the mean record's is that of the shares.
    """
    spectrum = noise_spectrum(queries, measured.noisy)
    parts = Marginals(queries.sizes, list(spectrum))
    tables = np.split(parts.answers(support) / support.weights.sum(), parts.offsets[1:-1])
    crossed = 0.0
    for part, shape, table in zip(parts.cliques, parts.shapes, tables, strict=True):
        variance, weight, _ = spectrum[part]
        own = math.prod(1.0 - 1.0 / size for size in shape)
        crossed += variance * weight * (own - float((centred(table.reshape(shape)) ** 2).sum()))
    noisy = sum(2.0 * freedom * variance**2 for variance, _, freedom in spectrum.values())
    return noisy, max((variance for variance, _, _ in spectrum.values()), default=0.0), crossed


def _sampling_square(queries: Marginals, support: Rows) -> float:
    """Return the sum of the squared covariances of one record's answers, estimated from pairs of public records."""
    some = np.unique(np.linspace(0, support.records - 1, _SAMPLED).astype(np.int64))
    shares = support.weights[some] / support.weights[some].sum()
    alike = np.zeros((some.size, some.size))
    for clique in queries.cliques:
        cells = support.cell(clique)[some]
        alike += cells[:, np.newaxis] == cells
    mean = alike @ shares
    centred = alike - mean - mean[:, np.newaxis] + shares @ mean
    pairs = np.outer(shares, shares)
    same = float((support.weights**2).sum() / support.weights.sum() ** 2)  # two draws that are one record
    own = np.diag(pairs)
    apart = pairs - np.diag(own)
    within = float(np.diag(centred) ** 2 @ own / own.sum())
    between = float((apart * centred**2).sum() / max(float(apart.sum()), 1e-300))
    return same * within + (1.0 - same) * between
