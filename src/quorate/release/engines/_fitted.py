"""Fit one table to noisy marginals, with error bars: the last step of engines without public data.

The error of a fitted answer has two parts: how it varies with the noise, and its bias. The first is seen by fits to the
noisy tables with a little more noise, each from where the first fit ended. The bias is what is left of the distance
between the fit and the unbiased answers after what noise explains (the covariance penalty: Efron 2004), over many cells
of like shares. Where that is too noisy to tell, it is taken to be somewhat more than half of the variance. It is half
of it where the penalty is the best one: there, a little more of it adds as much squared bias as it takes off the
variance. But records scatter around any smooth table, and the bias is no less than what the fit cannot have followed of
that.

A smooth fit is worst where columns nearly say the same. So each table is compared with cells of like shares in the
others: where its cells are further from their unbiased answers than those are, their bars are wider by that much. In
the end, the bar of a cell is wider or narrower by what its own distance from its unbiased answer says.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from quorate.core.arrays import Floats
from quorate.release.engines._components import (
    Agreement,
    NoisyTables,
    agreeing_marginals,
    least_squares,
    weigh_components,
    without_impossible,
)
from quorate.release.engines._mixture import Mixture
from quorate.release.engines._mixture_fit import MixtureFit, PairNoise, Shrunk, fit_again, fit_mixture
from quorate.release.engines.base import Released, project_simplex
from quorate.release.queries import Marginals
from quorate.release.queries.marginals import Clique

_MOST_CODES, _MOST_CELLS = 4000, 3_000_000  # of all columns together; of tables of three columns and more
_PROBE, _PROBES, _MANY_CELLS, _FEW_PROBES = 0.5, 2, 1000, 1  # of the noise; how often it is added and taken off
_WIDER = math.hypot(1.0, _PROBE)  # the deviation of noise and a probe
_PROBE_STEPS = 180  # of a descent that begins at a fit: after fewer it has not yet followed the noise of a probe
_CHOSEN, _EMPHASISED = 1.1, 1.05  # the noise also chooses the penalty, which a probe keeps: by so much a fit moves more
_LIKES = 10.0  # probes as which the mean over cells of like shares counts for each of them
_USUAL = 0.75  # squared bias over variance: a half where the penalty is the best one, which is known up to its noise
_LEAST_RISK = 0.2  # of the variance that fits show: squared errors are not believed to be less
_TOGETHER = 2.0  # cells whose noise goes together: by so much the mean of estimates varies more
_SMALL = 1.5e-3  # of a share: a cell of 0.1% may seem to be any below it, and errs as those at it do
_LEAST_CLASS, _MOST_CLASSES = 150, 60  # cells that share one estimate of how far the fit is off
_PLAIN = 2.0  # deviations from which on the noise does not hide a cell
_BEYOND = 1e-3  # deviations: a fitted cell this close to the product of its columns has no more than they give
_SURE = 2.0  # deviations of what is not by chance


def fits_in_memory(queries: Marginals) -> bool:
    """Return whether one table can be fitted to all marginals, by the number of codes and cells."""
    larger = sum(math.prod(shape) for shape in queries.shapes if len(shape) > 2)
    return sum(queries.sizes) <= _MOST_CODES and larger <= _MOST_CELLS


def tables_to_check(sizes: tuple[int, ...], noisy: NoisyTables) -> NoisyTables:
    """Return the best linear estimates of every column and of every table that was measured."""
    columns = {column for clique in noisy for column in clique}
    cliques = sorted({(column,) for column in columns} | set(noisy), key=lambda clique: (len(clique), clique))
    wanted = Marginals(sizes, cliques)
    answers, errors = least_squares(wanted, noisy)
    ends = zip(wanted.cliques, wanted.offsets[:-1], wanted.offsets[1:], strict=True)
    return {clique: (answers[start:end], float(errors[start])) for clique, start, end in ends}


@dataclass(frozen=True)
class _Estimate:
    """Answers of some marginals, the unbiased answers, and the deviations of the unbiased answers."""

    model: Mixture
    fit: MixtureFit | None
    noise: PairNoise | None
    separate: frozenset[Clique]
    agreement: Agreement
    answers: Floats
    unbiased: Floats
    deviations: Floats


def release_tables(
    queries: Marginals,
    noisy: NoisyTables,
    engine: str,
    *notes: str,
    separate: frozenset[Clique] = frozenset(),
    records: float = math.inf,
) -> Released:
    """Return the release of noisy tables that determine all marginals: one table fitted to them.

    Where the fit is further from them than noise is, answers are believed in its place as far as they stand out. Tables
    that are `separate` are left out of the fit, and so stand out from it if they tell anything that it does not.
    `records` is how many there are: they scatter around a smooth table, and error bars allow for it.
    """
    if not fits_in_memory(queries):
        note = "too many codes for one model: noisy marginals are brought to the nearest that agree"
        unbiased, deviations = least_squares(queries, without_impossible(queries, noisy))
        answers = agreeing_marginals(queries, unbiased, deviations)
        errors = deviations if queries.mask is None else np.where(queries.mask, deviations, 0.0)
        return Released(answers, errors, None, None, engine, (*notes, note), {}, None, unbiased, deviations)
    estimate = _estimate(queries, noisy, separate)
    bars = partial(_errors, queries, noisy, estimate, records)
    details = {
        "deviation": float(estimate.deviations.max()),
        "moved": float(np.abs(estimate.answers - estimate.unbiased).max()),
        "believed": float(np.mean(list(estimate.agreement.beliefs.values()))),
    }
    if estimate.fit is not None:
        details |= {"misfit": estimate.fit.misfit, "penalty": estimate.fit.penalty}
    if isinstance(estimate.model, Shrunk):
        details["kept"] = estimate.model.mean_fraction
    model = estimate.model if estimate.fit is None else estimate.fit.mixture
    beside = (model, *least_squares(queries, without_impossible(queries, noisy)))  # also of cells that cannot occur
    return Released(estimate.answers, bars, None, None, engine, notes, details, *beside)


def _estimate(
    queries: Marginals, noisy: NoisyTables, separate: frozenset[Clique], earlier: _Estimate | None = None
) -> _Estimate:
    """Return the answers of noisy tables; with an earlier estimate, by its penalty, from where its fit is."""
    noisy = without_impossible(queries, noisy)
    unbiased, deviations = least_squares(queries, noisy)
    together = {clique: table for clique, table in noisy.items() if clique not in separate}
    fit = _fit(queries, together, None if earlier is None else earlier.fit)
    noise = None if fit is None else _pair_noise(queries, together, fit) if earlier is None else earlier.noise
    model = _independent(queries.sizes, noisy) if fit is None else fit.mixture
    if noise is not None:
        model = noise.shrink(model)
    agreement = weigh_components(queries.sizes, noisy, model)
    answers = agreement.answers(queries, noisy, model, deviations)
    if queries.mask is not None:
        unbiased, deviations = np.where(queries.mask, unbiased, 0.0), np.where(queries.mask, deviations, 0.0)
    return _Estimate(model, fit, noise, separate, agreement, answers, unbiased, deviations)


def _fit(queries: Marginals, noisy: NoisyTables, earlier: MixtureFit | None) -> MixtureFit | None:
    """Return the one table that is fitted, None where columns were measured one by one: they are independent."""
    if all(len(clique) < 2 for clique in noisy):
        return None
    checked, emphasis = partial(tables_to_check, queries.sizes), queries.importance is None
    if earlier is not None:  # the penalty is in units of the noise, which is wider by a probe
        wider = replace(earlier, penalty=earlier.penalty / _WIDER**2)
        return fit_again(wider, noisy, checked, emphasis=emphasis, steps=_PROBE_STEPS)
    return fit_mixture(queries.sizes, noisy, checked, emphasis=emphasis)


def _pair_noise(queries: Marginals, noisy: NoisyTables, fit: MixtureFit) -> PairNoise | None:
    """Return what noise does to pairs of columns, None where they stay as they are fitted.

    They are taken back where the mean error is to be small: the largest one may grow by it. Tables of three columns
    would not agree with each other.
    """
    if queries.importance is None or any(len(clique) > 2 for clique in (*queries.cliques, *noisy)):
        return None
    return PairNoise.of_fit(fit, noisy, partial(tables_to_check, queries.sizes))


def _independent(sizes: tuple[int, ...], noisy: NoisyTables) -> Mixture:
    estimates = tables_to_check(sizes, noisy)
    shares = [
        project_simplex(estimates[column,][0]) if (column,) in estimates else np.full(size, 1.0 / size)
        for column, size in enumerate(sizes)
    ]
    return Mixture(sizes, np.ones(1), np.concatenate(shares)[None, :])


def _errors(queries: Marginals, noisy: NoisyTables, estimate: _Estimate, records: float) -> Floats:
    """Return one standard deviation of the error of each fitted answer: PROOF.md, step 6."""
    answers, noise = estimate.answers, estimate.deviations**2
    probes = _PROBES if queries.count <= _MANY_CELLS else _FEW_PROBES
    sums = _probed(queries, noisy, estimate, probes)
    away = (answers - estimate.unbiased) ** 2
    squares, usual, covariances = np.zeros((3, len(answers)))
    order = np.argsort(answers, kind="stable")
    order = order if queries.mask is None else order[queries.mask[order]]
    classes = int(np.clip(len(order) // _LEAST_CLASS, 1, _MOST_CLASSES))
    floor = 0.0
    for members in reversed(np.array_split(order, classes)):
        square = noise[members]
        slope = float(sums[1, members].sum()) / max(float(sums[2, members].sum()), 1e-300)
        scatter = max(1.0 - slope, 0.0) ** 2 * float(answers[members].mean()) / records
        expected = _squares(away[members], square, sums[:, members], probes, scatter)
        squares[members] = np.where(
            answers[members] < _SMALL, np.maximum(expected, np.minimum(floor, square)), expected
        )
        if float(answers[members].max()) >= _SMALL:
            floor = float(expected.mean())
        usual[members] = float(away[members].sum()) / max(float(square.sum()), 1e-300)
        covariances[members] = slope * square
    squares = np.maximum(squares, np.minimum(_hidden(queries, noisy, answers), noise))
    squares += noise * _further(queries, estimate, usual, squares)
    squares = _given_distances(squares, covariances, noise, away)
    squares[noise == 0.0] = 0.0  # exact without a measurement
    return np.sqrt(squares)


def _hidden(queries: Marginals, noisy: NoisyTables, answers: Floats) -> Floats:
    """Return the least squared errors of cells with codes that the noise hides, and 0 elsewhere.

    Such a code may have a share of one deviation of its column, and a cell the part of it that the other columns give.
    A fit that has the code at next to nothing does not move with a probe.
    """
    estimates, squares = tables_to_check(queries.sizes, noisy), np.zeros(len(answers))
    for clique, shape, start in zip(queries.cliques, queries.shapes, queries.offsets, strict=False):
        table = answers[start : start + math.prod(shape)].reshape(shape)
        hidden = np.zeros(shape)
        for axis, column in enumerate(clique):
            _, deviation = estimates.get((column,), (None, 0.0))
            margin = table.sum(axis=axis, keepdims=True)
            share = table.sum(axis=tuple(other for other in range(len(shape)) if other != axis), keepdims=True)
            hidden += np.where(share < _PLAIN * deviation, (margin * deviation) ** 2, 0.0)
        squares[start : start + table.size] = hidden.ravel()
    return squares


def _given_distances(squares: Floats, covariances: Floats, noise: Floats, away: Floats) -> Floats:
    """Return the expected squared errors of cells whose squared distances from their unbiased answers are `away`.

    `covariances` are those of the errors of the fit and of the noise, both taken to be Gaussian. If the distances are
    what they are expected to be, the mean stays as it is.
    """
    expected = np.maximum(squares + noise - 2.0 * covariances, 1e-3 * noise)
    trust = np.clip((squares - covariances) / np.maximum(expected, 1e-300), 0.0, 1.0)
    return np.asarray(np.maximum(squares - trust**2 * expected, 0.0) + trust**2 * away)


def _probed(queries: Marginals, noisy: NoisyTables, estimate: _Estimate, probes: int) -> Floats:
    """Return sums over fits to noisier tables: of squared moves, of moves times noise and of squared noise.

    A fit that goes on descending also moves without any noise. So each probe is added, and taken off, and half of the
    difference of the two fits is what it moves.
    """
    measured = Marginals(queries.sizes, list(noisy))
    scales = _PROBE * np.repeat([deviation for _, deviation in noisy.values()], np.diff(measured.offsets))
    values = np.concatenate([table for table, _ in noisy.values()])
    chosen = _EMPHASISED if queries.importance is None else _CHOSEN
    generator = np.random.default_rng(1)
    sums = np.zeros((3, len(estimate.answers)))
    for _ in range(probes):
        probe = scales * generator.normal(size=len(scales))
        plus, minus = (
            _estimate(queries, _tables(measured, noisy, values + move), estimate.separate, estimate)
            for move in (probe, -probe)
        )
        moved, noise = chosen * (plus.answers - minus.answers) / 2.0, (plus.unbiased - minus.unbiased) / 2.0
        sums += np.stack([moved**2, moved * noise, noise**2])
    return sums


def _squares(away: Floats, square: Floats, sums: Floats, probes: int, scatter: float) -> Floats:
    """Return the expected squared errors of some cells of like shares, from sums over probes.

    `away` are the squared distances from the unbiased answers, and `square` is the variance of these. Where they say
    little, the squared bias is no less than `scatter`.
    """
    variance, moves, noise = sums
    if not square.any():  # none of them is measured: they are exact
        return square
    total = max(float(noise.sum()), 1e-300)
    unit, slope = float(square.sum()) / total, float(moves.sum()) / total  # from probes to noise; moves for their noise
    typical = max(unit * float(variance.mean()), 1e-9 * float(square.mean()))
    variances = (unit * probes * variance + _LIKES * typical) / (probes + _LIKES)
    covariance = unit * (moves - slope * noise) + slope * square  # the sum is that of `moves`, and it varies less
    bias, surely = _bias((away - square + 2.0 * covariance) / typical, max(_USUAL, scatter / typical))
    bound = square * max(1.0, typical * (1.0 + surely) / max(float(square.mean()), 1e-300))
    expected = variances + typical * bias if bias > 0 else variances * (1.0 + bias)
    return np.asarray(np.minimum(expected, bound))  # by the estimate, no worse than unbiased answers


def _further(queries: Marginals, estimate: _Estimate, usual: Floats, squares: Floats) -> Floats:
    """Return the excess of a table's squared errors over those of cells with similar shares.

    All of it is in units of the noise, and `usual` are squared distances from unbiased answers. Those of a table are
    larger by one number times the share of a cell in the noise, up to where the noise does not hide it: one for cells
    that have more than the columns by themselves would give, and one for the others. It is estimated by least squares,
    and drawn towards 0 by what chance explains (James and Stein 1961). Unless it is sure, it is drawn there once more
    where chance is large against `squares`, the squared errors of cells of like shares. Where cells of the first kind
    are biased, the fit has lost others. So that number counts for all cells, by their unbiased answer where it is the
    larger one.
    """
    deviations = np.where(estimate.deviations > 0, estimate.deviations, np.inf)
    fitted, unbiased = (
        np.clip(values / (_PLAIN * deviations), 0.0, 1.0) for values in (estimate.answers, estimate.unbiased)
    )
    excess, ratios = ((estimate.answers - estimate.unbiased) / deviations) ** 2 - usual, squares / deviations**2
    further = np.zeros(len(fitted))
    for shape, start, end in zip(queries.shapes, queries.offsets[:-1], queries.offsets[1:], strict=True):
        table = slice(start, end)
        beyond = estimate.answers[table] - _by_columns(estimate.answers[table].reshape(shape))
        exceeds = beyond > _BEYOND * np.where(estimate.deviations[table] > 0, estimate.deviations[table], 1.0)
        kinds = (fitted[table] * exceeds, np.maximum(fitted[table], unbiased[table])), (fitted[table] * ~exceeds,) * 2
        for visible, counts in kinds:
            score = float(visible @ excess[table])
            chance = math.sqrt(2.0 * _TOGETHER) * float(np.linalg.norm(visible * usual[table]))
            if score > chance:
                size = float(visible @ ratios[table]) * float(visible @ visible) / float(visible.sum())  # as a score
                shrunk = (score - chance**2 / score) * size**2 / (size**2 + chance**2)
                number = max(shrunk, score - _SURE * chance) / float(visible @ visible)
                further[table] = np.maximum(further[table], number * counts)
    return further


def _by_columns(table: Floats) -> Floats:
    """Return the table, as one row, whose columns have the same shares and know nothing of each other."""
    product = np.ones(1)
    for axis in range(table.ndim):
        shares = table.sum(axis=tuple(other for other in range(table.ndim) if other != axis))
        product = np.outer(product, shares).ravel()
    return product


def _bias(risks: Floats, usual: float) -> tuple[float, float]:
    """Return the squared bias of cells in units of their variance, and what it surely is.

    `risks` are unbiased estimates of their squared errors, in the same units. Where these say little, the bias is as
    large as is `usual`, give or take as much; where they say much, it is what they say. It is below 0 if they say that
    the variance, which is estimated from fits that jump between tables about as good, is less than what it seems.
    """
    spread = math.sqrt(_TOGETHER * float(risks.var()) / len(risks)) + 1e-12
    mean = float(risks.mean()) - 1.0
    trust = usual**2 / (usual**2 + spread**2)
    surely = mean - spread
    return max(surely, usual + trust * (mean - usual), _LEAST_RISK - 1.0), surely


def _tables(measured: Marginals, noisy: NoisyTables, values: Floats) -> NoisyTables:
    """Replace the measured tables by others, whose noise also includes the probe's."""
    parts = zip(noisy.items(), np.split(values, measured.offsets[1:-1]), strict=True)
    return {clique: (part, _WIDER * deviation) for (clique, (_, deviation)), part in parts}
