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

__all__ = ["fits_in_memory", "release_tables", "tables_to_check"]

_MOST_CODES, _MOST_CELLS = 4000, 3_000_000  # of all columns together; of tables of three columns and more
_REPEATS, _MANY_CELLS, _FEW_REPEATS, _STEPS = 6, 10_000, 3, 150  # of the fits to tables with more noise
_SPREAD = 1.3  # of the variance: fits that start where another ended move less than fits from afar
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


def release_tables(queries: Marginals, noisy: NoisyTables, spent: Cost, engine: str, *notes: str) -> Released:
    """Return what is released of noisy tables that tell about all marginals: one table fitted to them."""
    unbiased, deviations = least_squares(queries, noisy)
    if not fits_in_memory(queries):
        note = "too many codes for one table: each marginal is projected by itself"
        return Released(simplex_marginals(queries, unbiased), deviations, None, None, spent, engine, (*notes, note))
    fit = fit_mixture(
        queries.sizes, noisy, partial(tables_to_check, queries.sizes), emphasis=queries.importance is None
    )
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
    errors = np.empty(len(answers))
    classes = int(np.clip(len(answers) // _LEAST_CLASS, 1, _MOST_CLASSES))
    for members in np.array_split(np.argsort(answers, kind="stable"), classes):
        typical = float(variance[members].mean())
        ratio = max(1.0, float(risk[members].mean()) / max(typical, 1e-300))
        errors[members] = np.sqrt(ratio * (variance[members] + typical) / 2.0)
    errors[deviations == 0.0] = 0.0  # what is known without a measurement
    return errors
