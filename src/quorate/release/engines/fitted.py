"""Noisy marginals made one table, with error bars: what every engine that measures marginals without public data does.

The error of a fitted answer has two parts: the noise that is left, and what the fit takes off. The first is seen by
fitting again to tables with more noise of the same kind. The sum of both is what Stein's unbiased estimate says, from
how far the fit is from the unbiased answers; it is taken over many cells of like shares, as it is noisy itself.
"""

import math
from functools import partial

import numpy as np

from quorate.arrays import Floats
from quorate.privacy import Cost
from quorate.release.engines.components import least_squares
from quorate.release.engines.mixture import MixtureFit, NoisyTables, fit_mixture
from quorate.release.engines.released import Released, expected_largest_of, simplex_marginals
from quorate.release.queries import Marginals

__all__ = ["fit_tables", "fits_in_memory", "release_tables", "tables_to_check"]

_MOST_CODES, _MOST_CELLS = 4000, 3_000_000  # of all columns together; of tables of three columns and more
_REPEATS, _MANY_CELLS, _FEW_REPEATS, _STEPS = 6, 10_000, 3, 150  # of the fits to tables with more noise
_SPREAD = 1.3  # of the variance: fits that start where another ended move less than fits from afar
_HIDDEN = 0.3  # of what its columns say: what a cell may be beyond it, unseen
_LEAST_CLASS, _MOST_CLASSES = 150, 12  # cells that share one estimate of how far the fit is off


def fits_in_memory(queries: Marginals) -> bool:
    """Return whether one table is fitted to all marginals: not where there are too many codes or cells."""
    larger = sum(math.prod(shape) for shape in queries.shapes if len(shape) > 2)
    return sum(queries.sizes) <= _MOST_CODES and larger <= _MOST_CELLS


def tables_to_check(sizes: tuple[int, ...], noisy: NoisyTables) -> NoisyTables:
    """Return the best linear estimates of every column and of every table that was measured."""
    known = {column for clique in noisy for column in clique}
    cliques = sorted({(column,) for column in known} | set(noisy), key=lambda clique: (len(clique), clique))
    wanted = Marginals(sizes, cliques)
    answers, errors = least_squares(wanted, noisy)
    ends = zip(wanted.cliques, wanted.offsets[:-1], wanted.offsets[1:], strict=True)
    return {clique: (answers[start:end], float(errors[start])) for clique, start, end in ends}


def fit_tables(sizes: tuple[int, ...], noisy: NoisyTables, *, wary: bool = False) -> MixtureFit:
    """Return one table fitted to noisy ones; a `wary` one makes the largest error small in place of the mean."""
    return fit_mixture(sizes, noisy, partial(tables_to_check, sizes), wary=wary)


def release_tables(
    queries: Marginals, noisy: NoisyTables, spent: Cost, engine: str, *notes: str, wary: bool = False
) -> Released:
    """Return what is released of noisy tables that tell about all marginals: one table fitted to them."""
    unbiased, deviations = least_squares(queries, noisy)
    if not fits_in_memory(queries):
        note = "too many codes for one table: each marginal is projected by itself"
        return Released(simplex_marginals(queries, unbiased), deviations, None, None, spent, engine, (*notes, note))
    fit = fit_tables(queries.sizes, noisy, wary=wary)
    answers = fit.mixture.answers(queries)
    errors = _errors(queries, noisy, fit, (answers, unbiased, deviations))
    details = {
        "deviation": float(deviations.max()),
        "moved": float(np.abs(answers - unbiased).max()),
        "expected_error": min(1.0, expected_largest_of(errors)),
        "misfit": fit.misfit,
        "penalty": fit.penalty,
    }
    return Released(answers, errors, None, None, spent, engine, notes, details, fit.mixture)


def _errors(queries: Marginals, noisy: NoisyTables, fit: MixtureFit, found: tuple[Floats, Floats, Floats]) -> Floats:
    """Return one standard deviation of the error of each fitted answer."""
    answers, unbiased, deviations = found
    generator = np.random.default_rng(1)
    repeats = _REPEATS if queries.count <= _MANY_CELLS else _FEW_REPEATS
    variance, moves = np.zeros(len(answers)), np.zeros(len(answers))
    for _ in range(repeats):
        more = {
            clique: (table + deviation * generator.normal(size=len(table)), deviation)
            for clique, (table, deviation) in noisy.items()
        }
        moved = fit.again(more, steps=_STEPS).mixture.answers(queries) - answers
        variance += _SPREAD * moved**2 / repeats
        moves += moved * (least_squares(queries, more)[0] - unbiased) / repeats
    risk = (answers - unbiased) ** 2 - deviations**2 + 2.0 * moves
    slope = _bias_slope(answers, risk - variance, deviations)
    errors = np.empty(len(answers))
    classes = int(np.clip(len(answers) // _LEAST_CLASS, 1, _MOST_CLASSES))
    for members in np.array_split(np.argsort(answers, kind="stable"), classes):
        typical = max(float(variance[members].mean()), 1e-300)
        pooled = typical + slope * float(answers[members].mean())
        doubt = math.sqrt(2.0 * float((deviations[members] ** 4).mean()) / len(members))
        trust = pooled**2 / (pooled**2 + doubt**2)  # in this class's own estimate, beside that of all cells
        ratio = max(1.0, (trust * float(risk[members].mean()) + (1.0 - trust) * pooled) / typical)
        errors[members] = np.sqrt(ratio * (variance[members] + typical) / 2.0)
    errors = np.maximum(errors, _unseen(queries, noisy, fit, deviations))
    errors[deviations == 0.0] = 0.0  # what is known without a measurement
    return errors


def _unseen(queries: Marginals, noisy: NoisyTables, fit: MixtureFit, deviations: Floats) -> Floats:
    """Return how large a cell may be that noise hides, beyond what its columns say: at most the noise itself.

    Each column's share is taken at one deviation above what is fitted.
    """
    checked = tables_to_check(queries.sizes, noisy)
    known = [clique for clique in checked if len(clique) == 1]
    shares = {clique[0]: fit.mixture.table(clique) + checked[clique][1] for clique in known}
    cells = []
    for clique in queries.cliques:
        product = np.ones(1)
        for column in clique:
            product = np.multiply.outer(product, shares.get(column, np.ones(queries.sizes[column]))).ravel()
        cells.append(_HIDDEN * product)
    hidden = np.concatenate(cells)
    return np.asarray(hidden * deviations / np.maximum(np.hypot(hidden, deviations), 1e-300))


def _bias_slope(answers: Floats, excess: Floats, deviations: Floats) -> float:
    """Return the mean square of what the fit takes off, over the answer: one number for all cells.

    It is the least-squares slope of the excess of the risk, by the precision of each, and one deviation of its own.
    """
    known = deviations > 0
    weights = deviations[known] ** -4.0 * answers[known]
    scale = float(weights @ answers[known])
    if not scale > 0.0:
        return 0.0
    return max(0.0, float(weights @ excess[known]) / scale + math.sqrt(2.0 / scale))
