"""Repair of a public support: records for cells that noisy answers show to be there and that no public record has."""

import numpy as np

from quorate.release.queries import Floats, Marginals, Rows

__all__ = ["missing_mass", "repair_support"]

_DONORS = 24  # public records that lend their other columns to a missing cell
_MOST_CELLS = 300  # missing cells that are filled


def missing_mass(queries: Marginals, support: Rows, answers: Floats, errors: Floats) -> float:
    """Return a lower bound (three deviations) on the largest share of records, over marginals, outside the support.

    >>> queries, support = Marginals((3,), [(0,)]), Rows([[0], [1]], sizes=(3,))
    >>> round(missing_mass(queries, support, np.array([0.3, 0.3, 0.4]), np.full(3, 0.01)), 2)
    0.37
    """
    empty = queries.answers(support.weighted(np.ones(support.records))) == 0
    largest = 0.0
    for start, end in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        outside = empty[start:end]
        deviation = float(np.sqrt((errors[start:end][outside] ** 2).sum()))
        largest = max(largest, float(answers[start:end][outside].sum()) - 3 * deviation)
    return largest


def repair_support(
    queries: Marginals, support: Rows, answers: Floats, errors: Floats, *, deviations: float
) -> tuple[Rows, int]:
    """Return the support with records added for missing cells whose answers stand out, and how many cells were filled.

    A missing cell's records are the public ones that agree with it in most columns, with the others overwritten. Their
    weight is what the noisy answer says and the records added before do not yet explain.

    >>> queries, support = Marginals((3, 2), [(0, 1)]), Rows([[0, 0], [1, 1]], sizes=(3, 2), weights=[0.5, 0.5])
    >>> repaired, filled = repair_support(
    ...     queries, support, np.array([0.4, 0.0, 0.0, 0.4, 0.2, 0.0]), np.full(6, 0.01), deviations=4.0)
    >>> filled, repaired.codes.tolist(), repaired.weights
    (1, [[0, 0], [1, 1], [2, 0]], array([0.4, 0.4, 0.2]))
    """
    empty = queries.answers(support.weighted(np.ones(support.records))) == 0
    wanted = np.flatnonzero(empty & (answers > deviations * errors))
    wanted = wanted[np.argsort(-answers[wanted], kind="stable")][:_MOST_CELLS]
    codes, weights = support.codes, support.weights / support.weights.sum()
    added = np.zeros(len(codes), dtype=bool)
    filled = 0
    for query in wanted:
        clique, values = queries.find(int(query))
        columns = list(queries.cliques[clique])
        agreeing = (codes[:, columns] == values).sum(axis=1)
        gap = float(answers[query]) - float(weights[added & (agreeing == len(columns))].sum())
        if gap <= deviations * float(errors[query]):
            continue  # what was added for larger cells explains this one
        donors = np.lexsort((-weights, -(agreeing * (agreeing < len(columns)))))[:_DONORS]
        fresh = codes[donors].copy()
        fresh[:, columns] = values
        share = gap * weights[donors] / weights[donors].sum()
        codes, weights = np.concatenate([codes, fresh]), np.concatenate([weights, share])
        added = np.concatenate([added, np.ones(len(fresh), dtype=bool)])
        filled += 1
    extra = float(weights[added].sum())
    kept = max(1.0 - extra, 0.1)  # the public records keep at least a tenth of the weight
    whole = np.where(added, weights * (1 - kept) / max(extra, 1e-300), weights * kept)
    return Rows(codes, support.sizes, whole).merged(), filled
