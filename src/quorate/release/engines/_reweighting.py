"""The engine `reweighting`: marginals are measured once, then public records are weighted until they agree with them.

After the measurement only noisy and public numbers are used, at no further cost. A test with a stated level and power
decides the trust in public data: if the public records are a fair sample, the sum of (y - q)^2 - e^2 over all noisy
answers y with deviations e and public shares q has the expectation of the sampling error alone; public data from
elsewhere add the square of their distance. PROOF.md, step 5, has the level and the power.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse, stats
from scipy.special import ndtri

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.release.engines._components import centred, noise_spectrum, plan_marginals
from quorate.release.engines._fitted import release_tables
from quorate.release.engines._marginals import MeasuredMarginals, marginal_measurement
from quorate.release.engines.base import (
    Measurement,
    MeasuringEngine,
    Planned,
    Public,
    Released,
    expected_largest_of,
    histogram_scale,
)
from quorate.release.engines.weights import fit_entropy
from quorate.release.queries import Marginals, Rows

_LEVEL, _QUANTILE = 0.05, 1.6448536269514722  # of the test; of a Gaussian, for its power of 95%
_CAUTION = 0.75  # deviations of the test by which error bars allow for a distance that it did not see
_LADDER = 32  # strengths that are tried, each the root of one half of the one before
_NEGLIGIBLE = 0.01  # of the noise: among strengths that are this close in squared error the largest is taken
_WORTHWHILE = 0.9  # of the noise: where no strength errs less than that, refuted data are left out
_SAMPLED = 200  # public records from which the spread of the sampling error is estimated
_STANDS_OUT = 1e-3  # level of the test whether a single cell of a fit stands out from its noisy answer
_USELESS = 0.1  # share of the records outside the public support above which public data are not repaired
_FURTHER = 2.0  # times as far, in mean square, from noisy answers as is foreseen: beyond, a fit is not used
_BETTER = 0.85  # of the squared error of answers without public data: above, these are the safer choice
_DONORS = 24  # public records that lend their other columns to a missing cell
_DECIMALS = 12  # of noisy shares: cells that agree in them are filled in the order of the queries
_MOST_CELLS = 300  # missing cells that are filled


@dataclass(frozen=True)
class Evidence:
    """The evidence of noisy answers about public data.

    `strength` is the effective number of public records, and `cautious` the same for error bars.
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
    # with few answers the test is sharper, so that an undetected distance costs at most a small multiple of the noise:
    # proof: step 5
    harm = deviation * (total / max(total + foreseen, 1e-300)) ** 2
    critical = min(max(total / max(harm, 1e-300) - _QUANTILE, 0.0), _critical(total + foreseen, deviation))
    detectable = _detectable_distance(critical, deviation, widest + math.sqrt(sampled))
    resolution = math.sqrt(detectable / queries.count)
    refuted = excess > critical * deviation
    strength = _least_risk(squares, scatter, noise, fair) if refuted else fair
    unseen = max(0.0, excess + _CAUTION * deviation)
    cautious = min(strength, float(scatter.sum()) / (foreseen + unseen)) if foreseen > 0 else strength
    return Evidence(strength, cautious, refuted, resolution)


def prior_weight(shares: Floats, errors: Floats, strength: float, amount: float) -> Floats:
    """Return the weight of a noisy answer against a prior of this strength."""
    share = np.clip(shares, 1.0 / (amount + 1), 1.0 - 1.0 / (amount + 1))
    prior = share * (1.0 - share) / strength
    return np.asarray(prior / (errors**2 + prior))


def posterior_errors(answers: Floats, errors: Floats, strength: float, amount: float) -> Floats:
    """Return one standard deviation of answers that combine noise with a prior of this strength."""
    return np.asarray(errors * np.sqrt(prior_weight(answers, errors, strength, amount)))


def _least_risk(squares: Floats, scatter: Floats, noise: Floats, fair: float) -> float:
    """Return the largest strength whose estimated squared error is close to the least.

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


def _detectable_distance(critical: float, deviation: float, widest: float) -> float:
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
        length = math.prod(1.0 - 1.0 / size for size in shape)
        crossed += variance * weight * (length - float((centred(table.reshape(shape)) ** 2).sum()))
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
    same = float((support.weights**2).sum() / support.weights.sum() ** 2)  # probability that two draws are one record
    diagonal = np.diag(pairs)
    off_diagonal = pairs - np.diag(diagonal)
    within = float(np.diag(centred) ** 2 @ diagonal / diagonal.sum())
    between = float((off_diagonal * centred**2).sum() / max(float(off_diagonal.sum()), 1e-300))
    return same * within + (1.0 - same) * between


class ReweightingEngine(MeasuringEngine):
    """Marginals measured as the residual engine does, and public records weighted to agree with them."""

    name, answered, needs_public_rows = "reweighting", (Marginals,), True

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        """Return the expected largest error if public and private records come from one population."""
        assert isinstance(public, Rows)
        if not public.weights.sum() > 0:
            return math.inf
        scale = histogram_scale(epsilon, delta) / records
        deviations = scale * np.sqrt(plan_marginals(queries, scale).variances)
        errors = np.repeat(deviations, np.diff(queries.offsets))
        amount = float(public.weights.sum())
        return expected_largest_of(
            posterior_errors(queries.answers(public) / amount, errors, _trust(records, amount), amount)
        )

    def _measure(self, queries: Any, public: Public, noise: float, planned: Planned) -> Measurement:
        if not isinstance(public, Rows) or public.sizes != queries.sizes or not public.weights.sum() > 0:
            raise InvalidInput("reweighting requires public Rows over the marginals' columns; use engine='residual'")

        def weighted(measured: MeasuredMarginals, records: int) -> Released:
            return reweight(queries, measured, public, records)

        return marginal_measurement(queries, noise, weighted, planned)


def _trust(records: int, amount: float) -> float:
    """Return the strength that is right for a public sample of the private population.

    A share p differs between samples of n and of m records by a variance of p (1 - p) (1/n + 1/m), and the strength of
    the prior is p (1 - p) over that variance.
    """
    return records * amount / (records + amount)


def reweight(queries: Marginals, measured: MeasuredMarginals, public: Rows, records: int) -> Released:
    """Combine noisy answers with public records, as far as the answers support them.

    Where cells stand out that no public record has, the support is repaired first. Then public data get the trust that
    `weigh_evidence` finds, and weights on their records are fitted to what was measured. The answers are those of the
    weights, or those of a table that knows nothing of public data: whichever are expected to err less.
    """
    amount = float(public.weights.sum())
    support = Rows(public.codes, public.sizes, public.weights / amount).merged()
    support = Rows(support.codes[support.weights > 0], support.sizes, support.weights[support.weights > 0])
    support = support if queries.possible is None else queries.possible.filter_rows(support)
    missing = missing_mass(queries, support, measured.answers, measured.errors)
    if missing > _USELESS:
        note = f"public data refuted: at least {missing:.0%} of the records lie outside of its support"
        return _without(queries, measured, support, note, records, refuted=1.0, strength=0.0, repaired=0.0)
    limit = _limit(queries.count)
    repaired_support, repaired = repair_support(queries, support, measured.answers, measured.errors, deviations=limit)
    if repaired:
        support = repaired_support
    evidence = weigh_evidence(queries, measured, support, _trust(records, amount))
    details = {"strength": evidence.strength, "repaired": float(repaired)}
    weights = _fit(measured, support, evidence.strength)
    answers = queries.answers(support.weighted(weights))
    errors = posterior_errors(answers, measured.errors, evidence.cautious, amount)
    mask = np.ones(len(errors)) if queries.mask is None else queries.mask.astype(np.float64)
    errors = mask * errors  # impossible cells are exactly 0
    note = (
        "public data refuted: they differ from the noisy answers by more than sampling explains"
        if evidence.refuted
        else "public data agree with the noisy answers, which say more than they do"
    )
    alone = _without(queries, measured, support, note, records, refuted=float(evidence.refuted), **details)
    expected = errors if alone.errors is None else alone.errors
    stands = _stands(measured, answers, evidence.strength, amount)
    if not stands or float(errors @ errors) > _BETTER * float(expected @ expected):
        return alone
    cells = "1 missing cell" if repaired == 1 else f"{repaired} missing cells"
    note = (
        f"public data used with a strength of {evidence.strength:,.0f} records; {cells} repaired; a difference below "
        f"{evidence.resolution:.2g} an answer, on average, could not have been seen"
    )
    details |= {"refuted": 0.0, "expected_error": min(1.0, expected_largest_of(errors))}
    return Released(
        answers,
        errors,
        weights,
        support,
        ReweightingEngine.name,
        (note,),
        details,
        unbiased=measured.answers,
        deviations=measured.errors,
    )


def _without(
    queries: Marginals, measured: MeasuredMarginals, support: Rows, note: str, records: int, **details: float
) -> Released:
    """Return the release from noisy answers alone, with the column that refuted the public records most."""
    if details["refuted"]:
        details["refuted_column"] = float(furthest_column(queries, measured, support))
    released = release_tables(queries, measured.noisy, ReweightingEngine.name, note, records=records)
    return replace(released, details={**released.details, **details})


def furthest_column(queries: Marginals, measured: MeasuredMarginals, support: Rows) -> int:
    """Return the column in whose marginals public shares are furthest from noisy answers, in units of their noise."""
    away = (measured.answers - queries.answers(support) / support.weights.sum()) / np.maximum(measured.errors, 1e-12)
    excess = np.add.reduceat(away**2 - 1.0, queries.offsets[:-1])
    by_column = np.zeros(len(queries.sizes))
    for clique, cells, square in zip(queries.cliques, np.diff(queries.offsets), excess, strict=True):
        by_column[list(clique)] += square / math.sqrt(2.0 * cells)
    return int(np.argmax(by_column))


def _fit(measured: MeasuredMarginals, support: Rows, strength: float) -> Floats:
    """Fit weights on the support to the measurements, as near to the public weights as possible."""
    design = _design(measured, support)
    across = design.T.tocsr()
    return fit_entropy(
        lambda values: design @ values,
        lambda values: across @ values,
        targets=np.concatenate([table for table, _ in measured.noisy.values()]),
        precisions=np.concatenate(
            [np.full(len(table), deviation**-2.0) for table, deviation in measured.noisy.values()]
        ),
        prior=support.weights,
        strength=strength,
    )


def _stands(measured: MeasuredMarginals, fitted: Floats, strength: float, amount: float) -> bool:
    """Return whether a fit is as near to its noisy answers as a prior of this strength predicts.

    Answers that believe noisy ones by b lie (1 - b) e^2 from them, in mean square: all of them together may lie twice
    as far, and no one of them further than noise alone would let it.
    """
    is_noisy = measured.errors > 0  # a marginal of one cell is known exactly, and has no noise to be compared with
    away, errors = np.abs(measured.answers - fitted)[is_noisy], measured.errors[is_noisy]
    if not away.size:
        return True
    foreseen = float((1.0 - prior_weight(fitted[is_noisy], errors, strength, amount)) @ errors**2)
    return bool((away <= _limit(away.size) * errors).all()) and float(away @ away) <= _FURTHER * foreseen


def _limit(count: int) -> float:
    """Return a bound that the largest of this many standardised errors rarely exceeds."""
    return -float(ndtri(_STANDS_OUT / (2 * count)))


def _design(measured: MeasuredMarginals, support: Rows) -> sparse.csr_array:
    """Return the sparse matrix from weights on the support to the measured marginals."""
    starts = np.cumsum([0, *(len(table) for table, _ in measured.noisy.values())])
    cells = [support.cell(clique) + start for clique, start in zip(measured.noisy, starts[:-1], strict=True)]
    columns = np.tile(np.arange(support.records), len(cells))
    return sparse.csr_array(
        (np.ones(columns.size), (np.concatenate(cells), columns)), shape=(int(starts[-1]), support.records)
    )


def missing_mass(queries: Marginals, support: Rows, answers: Floats, errors: Floats) -> float:
    """Return a lower bound (at level 1e-3) on the largest share of records, over marginals, outside the support."""
    empty = queries.answers(support.weighted(np.ones(support.records))) == 0
    largest, deviations = 0.0, _limit(len(queries.cliques))
    for start, end in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        outside = empty[start:end]
        deviation = float(np.sqrt((errors[start:end][outside] ** 2).sum()))
        largest = max(largest, float(answers[start:end][outside].sum()) - deviations * deviation)
    return largest


def repair_support(
    queries: Marginals, support: Rows, answers: Floats, errors: Floats, *, deviations: float
) -> tuple[Rows, int]:
    """Return the support with records added for missing cells whose answers stand out, and how many cells were filled.

    A missing cell's records are the public ones that agree with it in most columns, with the others overwritten. Their
    weight is what the noisy answer says and the records added before do not yet explain.
    """
    empty = queries.answers(support.weighted(np.ones(support.records))) == 0
    wanted = np.flatnonzero(empty & (answers > deviations * errors))
    wanted = wanted[np.argsort(-np.round(answers[wanted], _DECIMALS), kind="stable")][:_MOST_CELLS]
    codes, weights = support.codes, support.weights / support.weights.sum()
    added = np.zeros(len(codes), dtype=bool)
    filled = 0
    for query in wanted:
        clique, values = queries.find(int(query))
        columns = list(queries.cliques[clique])
        agreeing = (codes[:, columns] == values).sum(axis=1)
        gap = float(answers[query]) - float(weights[added & (agreeing == len(columns))].sum())
        if gap <= deviations * float(errors[query]):
            continue  # records added for larger cells explain this cell
        donors = np.lexsort((-weights, -(agreeing * (agreeing < len(columns)))))[:_DONORS]
        new_codes = codes[donors].copy()
        new_codes[:, columns] = values
        share = gap * weights[donors] / weights[donors].sum()
        codes, weights = np.concatenate([codes, new_codes]), np.concatenate([weights, share])
        added = np.concatenate([added, np.ones(len(new_codes), dtype=bool)])
        filled += 1
    extra = float(weights[added].sum())
    public_share = max(1.0 - extra, 0.1)  # the public records keep at least a tenth of the weight
    normalised = np.where(added, weights * (1 - public_share) / max(extra, 1e-300), weights * public_share)
    repaired = Rows(codes, support.sizes, normalised).merged()
    return repaired if queries.possible is None else queries.possible.filter_rows(repaired), filled
