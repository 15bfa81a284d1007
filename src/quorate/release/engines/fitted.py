"""Noisy marginals made one table, with error bars: what every engine that measures marginals without public data does.

The error of a fitted answer has two parts: the noise that is left, and what the fit takes off. Both are seen by doing
all of it again, from the choice of the penalty on, to the released tables with fresh noise of the same kind (where the
cells are few, to the noisy ones in turn). What the released tables lack of the truth is added by the covariance penalty
(Efron 2004): how far the fit is from the unbiased answers, less what noise explains; it is taken over many cells of
like shares, as it is noisy itself.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from quorate.arrays import Floats
from quorate.privacy import Cost
from quorate.release.engines.agreement import Agreement, agreeing_marginals, weigh_components
from quorate.release.engines.components import least_squares
from quorate.release.engines.mixture import Mixture, NoisyTables, fit_mixture
from quorate.release.engines.released import Released, expected_largest_of, project_simplex
from quorate.release.queries import Marginals

__all__ = ["fits_in_memory", "release_tables", "tables_to_check"]

_MOST_CODES, _MOST_CELLS = 4000, 3_000_000  # of all columns together; of tables of three columns and more
_REPEATS, _MANY_CELLS, _FEW_REPEATS = 4, 10_000, 1  # of all of it, to see the error
_LIKES = 3.0  # repeats as which the mean over cells of like shares counts for each of them
_SPREAD = 1.5  # of the variance, chosen on simulated tables and on Adult: released tables are smoother than the truth
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


@dataclass(frozen=True)
class _Estimate:
    """Answers of some marginals, with the unbiased ones beside them and the deviations of these."""

    model: Mixture
    agreement: Agreement
    answers: Floats
    unbiased: Floats
    deviations: Floats
    details: dict[str, float]


def release_tables(queries: Marginals, noisy: NoisyTables, spent: Cost, engine: str, *notes: str) -> Released:
    """Return what is released of noisy tables that tell about all marginals: one table fitted to them.

    Where the fit is further from them than noise is, answers are believed in its place as far as they stand out.
    """
    if not fits_in_memory(queries):
        note = "too many codes for one model: noisy marginals are brought to the nearest that agree"
        unbiased, deviations = least_squares(queries, noisy)
        answers = agreeing_marginals(queries, unbiased, deviations)
        told, parts = (*notes, note), (unbiased, deviations)
        return Released(answers, deviations, None, None, spent, engine, told, {}, None, *parts)
    found = _estimate(queries, noisy)
    errors = _errors(queries, noisy, found)
    details = {
        "deviation": float(found.deviations.max()),
        "moved": float(np.abs(found.answers - found.unbiased).max()),
        "expected_error": min(1.0, expected_largest_of(errors)),
        **found.details,
        "believed": float(np.mean(list(found.agreement.beliefs.values()))),
    }
    beside = (found.model, found.unbiased, found.deviations)
    return Released(found.answers, errors, None, None, spent, engine, notes, details, *beside)


def _estimate(queries: Marginals, noisy: NoisyTables) -> _Estimate:
    unbiased, deviations = least_squares(queries, noisy)
    model, details = _model(queries, noisy)
    agreement = weigh_components(queries.sizes, noisy, model)
    answers = agreement.answers(queries, noisy, model, deviations)
    return _Estimate(model, agreement, answers, unbiased, deviations, details)


def _model(queries: Marginals, noisy: NoisyTables) -> tuple[Mixture, dict[str, float]]:
    """Return the mixture that is fitted, and what is told of the fit: columns measured one by one are independent."""
    sizes, checked = queries.sizes, partial(tables_to_check, queries.sizes)
    if any(len(clique) > 1 for clique in noisy):
        fit = fit_mixture(sizes, noisy, checked, emphasis=queries.importance is None)
        return fit.mixture, {"misfit": fit.misfit, "penalty": fit.penalty}
    known = checked(noisy)
    shares = [
        project_simplex(known[column,][0]) if (column,) in known else np.full(size, 1.0 / size)
        for column, size in enumerate(sizes)
    ]
    return Mixture(sizes, np.ones(1), np.concatenate(shares)[None, :]), {}


def _errors(queries: Marginals, noisy: NoisyTables, found: _Estimate) -> Floats:
    """Return one standard deviation of the error of each fitted answer."""
    answers, deviations = found.answers, found.deviations
    measured = Marginals(queries.sizes, list(noisy))
    scales = np.repeat([deviation for _, deviation in noisy.values()], np.diff(measured.offsets))
    released = found.agreement.answers(measured, noisy, found.model, scales)
    start = least_squares(queries, _tables(measured, noisy, released))[0]
    drawn = np.concatenate([table for table, _ in noisy.values()])
    bases = (
        (released, start),
        (drawn, found.unbiased),
    )  # in turn: the first is smoother than the truth, not the second
    generator = np.random.default_rng(1)
    repeats = _REPEATS if queries.count <= _MANY_CELLS else _FEW_REPEATS
    variance, moves = np.zeros(len(answers)), np.zeros(len(answers))
    for turn in range(repeats):
        tables, before = bases[turn % 2]
        again = _estimate(queries, _tables(measured, noisy, tables + scales * generator.normal(size=len(scales))))
        variance += _SPREAD * (again.answers - answers) ** 2 / repeats
        moves += (again.answers - answers) * (again.unbiased - before) / repeats
    risk = (answers - found.unbiased) ** 2 - deviations**2 + 2.0 * moves
    errors = np.empty(len(answers))
    classes = int(np.clip(len(answers) // _LEAST_CLASS, 1, _MOST_CLASSES))
    for members in np.array_split(np.argsort(answers, kind="stable"), classes):
        typical = float(variance[members].mean())
        ratio = max(1.0, float(risk[members].mean()) / max(typical, 1e-300))
        errors[members] = np.sqrt(ratio * (repeats * variance[members] + _LIKES * typical) / (repeats + _LIKES))
    errors[deviations == 0.0] = 0.0  # what is known without a measurement
    return errors


def _tables(measured: Marginals, noisy: NoisyTables, values: Floats) -> NoisyTables:
    """Return other tables in the place of those measured, of the same deviations."""
    parts = zip(noisy.items(), np.split(values, measured.offsets[1:-1]), strict=True)
    return {clique: (part, deviation) for (clique, (_, deviation)), part in parts}
