"""Synthetic data: rows that answer the queries as released weights do, up to rounding.

All of it is post-processing of released values, without budget or noise.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.domain import Domain
from quorate.release.engines.base import Released, descend
from quorate.release.engines.weights import fit_entropy
from quorate.release.queries import BoxRanges, Marginals, Prefixes, Queries, Ranges, Rows

MOST_ROWS = 20_000_000  # of synthetic data
_ALPHAS = tuple(math.sqrt(prime) % 1.0 for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53))
_FEW = 50  # times as many cells as queries: then multipliers are fitted in place of weights
_STEPS = 100  # of the fit of weights to answers
_TARGET_STEPS = 100  # of the fit of a target to the other columns
_MOVED = 2.0  # by how much noise of one deviation moves a term of that fit, at most
_MOVES = 4000  # of rows from one cell to another, at most
_MOST_CELLS = 200_000  # of a table that are weighted one by one
_PRODUCT_ROWS = 50_000  # made up where no public rows can be weighted
_LISTED = 2_000_000  # answers up to which moves are tried: each step looks at all of them


def round_weights(queries: Queries, weights: Floats, rows: int, *, support: Rows | None = None) -> NDArray[np.int64]:
    """Distribute this many rows over the cells (or the rows of the support) by their weights.

    Systematic rounding along an order in which neighbours are alike: any stretch of it is off by less than one row, so
    that a threshold is off by half a row and an interval by one. Other queries are made of many stretches; for them a
    few rows are then moved from where too many are to where too few are, as long as the largest difference shrinks.
    """
    shares = np.clip(weights, 0.0, None)
    shares = shares / shares.sum()
    order = _order(queries, support)
    upto = np.cumsum(shares[order])
    upto[-1] = 1.0
    marks = np.floor(upto * rows + 0.5).astype(np.int64)
    counts = np.zeros(len(shares), dtype=np.int64)
    counts[order] = np.diff(marks, prepend=0)
    if isinstance(queries, Prefixes | Ranges) or queries.count > _LISTED:
        return counts
    return _move_rows(queries, shares, counts, rows, support)


def _order(queries: Queries, support: Rows | None) -> NDArray[np.int64]:
    """Return cells, or rows of the support, in an order with similar neighbours."""
    if support is not None:
        return np.lexsort(support.codes.T[::-1])
    cells = queries.cells or 0
    shape = queries.shape if isinstance(queries, BoxRanges) else queries.sizes if isinstance(queries, Marginals) else ()
    if len(shape) < 2:
        return np.arange(cells)
    indices = np.stack(np.unravel_index(np.arange(cells), shape), axis=1).astype(np.int64)
    for axis in range(1, len(shape)):  # there and back again, so that a step goes to a neighbour
        turned = indices[:, :axis].sum(axis=1) % 2 == 1
        indices[turned, axis] = shape[axis] - 1 - indices[turned, axis]
    return np.lexsort(indices.T[::-1])


def _move_rows(
    queries: Queries, shares: Floats, counts: NDArray[np.int64], rows: int, support: Rows | None
) -> NDArray[np.int64]:
    """Return the counts after moving single rows from one cell to another, as long as it helps the worst query."""
    wanted = _answers(queries, shares, support)
    best, best_counts = math.inf, counts
    counts = counts.copy()
    alive = shares > 0
    for _ in range(_MOVES):
        off = _answers(queries, counts / rows, support) - wanted
        largest = float(np.abs(off).max())
        if largest >= best:
            return best_counts
        best, best_counts = largest, counts.copy()
        if largest < 1.0 / rows:
            return best_counts
        weighed = np.where(np.abs(off) > 0.7 * largest, off, 0.0)
        pull = queries.spread(weighed, support)
        surplus = np.where(counts > 0, pull, -np.inf)
        lack = np.where(alive, pull, np.inf)
        giver, taker = int(np.argmax(surplus)), int(np.argmin(lack))
        if giver == taker:
            return best_counts
        counts[giver] -= 1
        counts[taker] += 1
    return best_counts


def _answers(queries: Queries, weights: Floats, support: Rows | None) -> Floats:
    return queries.answers(weights if support is None else support.weighted(weights))


def fit_release(domain: Domain, released: Released, records: int) -> tuple[Floats, Rows | None]:
    """Return weights that answer like the release, as near as possible to the public histogram, and their rows."""
    if released.answers is None:
        raise InvalidInput("this release has neither answers nor weights")
    queries, public = domain.queries, domain.public()
    start, support = public if isinstance(public, np.ndarray) else None, None
    if isinstance(queries, Marginals) and (queries.cells or math.inf) > _MOST_CELLS:
        support = product_support(queries, released.answers, min(_PRODUCT_ROWS, 4 * records))
        if isinstance(public, Rows):  # public rows first, then rows for missing cells
            support = Rows(np.concatenate([public.codes, support.codes]), public.sizes)
        support = support.merged() if queries.possible is None else queries.possible.filter_rows(support.merged())
        start = support.weights
    elif isinstance(public, Rows):
        cells = public.cell(range(len(public.sizes)))
        start = np.bincount(cells, public.weights, minlength=queries.cells or 0).astype(np.float64)
    return fit_weights(queries, released.answers, errors=released.errors, start=start, support=support), support


def fit_weights(
    queries: Queries,
    answers: Floats,
    *,
    errors: Floats | None = None,
    start: Floats | None = None,
    support: Rows | None = None,
) -> Floats:
    """Return weights whose answers come close to released ones, and that otherwise stay near the start."""
    size = queries.cells if support is None else support.records
    if size is None:
        raise Infeasible("the cells are too many to list; fit with public records, whose rows can be weighted")
    flat = np.full(size, 1.0 / size)
    prior = flat if start is None or start.sum() <= 0 else 0.95 * start / start.sum() + 0.05 * flat
    deviations = np.full(len(answers), 1e-3) if errors is None else np.maximum(errors, 1e-7)
    if support is None and _FEW * queries.count < size:
        return _fit_multipliers(queries, answers, deviations, prior)
    return fit_entropy(
        lambda weights: _answers(queries, weights, support),
        lambda residuals: queries.spread(residuals, support),
        targets=answers,
        precisions=1.0 / deviations**2,
        prior=prior,
        strength=1.0,
    )


def _fit_multipliers(queries: Queries, answers: Floats, deviations: Floats, prior: Floats) -> Floats:
    """Solve the problem of `fit_entropy` with one multiplier a query, which are fewer unknowns than cells.

    The weights are prior * exp(-spread(multipliers)) over their sum. The multipliers, in units of the noise, minimise
    the convex function log of that sum + multipliers @ answers + sum (deviations * multipliers)**2 / 2.
    """
    logs = np.log(prior)

    def objective(scaled: Floats) -> tuple[float, Floats]:
        multipliers = scaled / deviations
        logits = logs - queries.spread(multipliers)
        pull = float(multipliers @ answers) + 0.5 * float(scaled @ scaled)
        slope = (answers - queries.answers(special.softmax(logits))) / deviations + scaled
        return float(special.logsumexp(logits)) + pull, slope

    scaled = descend(objective, np.zeros(queries.count), steps=_STEPS)
    return np.asarray(special.softmax(logs - queries.spread(scaled / deviations)))


def draw_records(queries: Queries, released: Released, rows: int) -> Rows:
    """Draw records from the model of a release, with its answered pairs of columns."""
    model, answers, details = released.model, released.answers, released.details
    assert model is not None
    assert isinstance(queries, Marginals)
    pairs = None if answers is None else model.pairs(queries, answers)
    shrunk = "kept" in details and "target" not in details  # A target is drawn from all that the model has.
    is_mended = bool(details.get("believed") or shrunk or queries.possible is not None)  # else answers are the model's
    codes = model.draw(rows, pairs if is_mended else None, queries.possible)
    return Rows(_with_target(queries, released, codes) if "target" in details else codes, model.sizes)


def _with_target(queries: Marginals, released: Released, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return records whose target is drawn from their other columns, where measured and possible."""
    assert released.model is not None
    if released.unbiased is None or released.deviations is None:
        return codes
    target = int(released.details["target"])
    noise = _noise_beside(queries, released.deviations, target)
    if noise is None:
        return codes
    unbiased = released.unbiased if queries.mask is None else np.where(queries.mask, released.unbiased, 0.0)
    pairs = released.model.pairs(queries, unbiased)
    learned = draw_target(codes, released.model.sizes, target, pairs, noise)
    return learned if queries.possible is None else np.where(queries.possible.records(learned)[:, None], learned, codes)


def _noise_beside(queries: Marginals, deviations: Floats, target: int) -> Floats | None:
    """Return the deviation of the pairs of each code with the target; None without a marginal of both.

    Columns without a measured pair have the pairs of the model, with the usual deviation.
    """
    by_column = {}
    largest = np.maximum.reduceat(deviations, queries.offsets[:-1])
    for clique, shape, deviation in zip(queries.cliques, queries.shapes, largest.tolist(), strict=True):
        for column, size in zip(clique, shape, strict=True):
            if target in clique and column != target:  # cells of a larger marginal are added up
                pair = size * queries.sizes[target]
                by_column[column] = deviation * math.sqrt(math.prod(shape) / pair)
    if not by_column:
        return None
    usual = float(np.median(list(by_column.values())))
    return np.repeat([by_column.get(column, usual) for column in range(len(queries.sizes))], queries.sizes)


def draw_target(
    codes: NDArray[np.int64], sizes: tuple[int, ...], target: int, pairs: Floats, deviations: Floats
) -> NDArray[np.int64]:
    """Redraw the target of records from their other columns, so that its pairs with each match the measurements.

    Of all laws of the target given the others this is the one of maximum entropy: a logistic one, with a term for each
    code of each column. `pairs` are unbiased, with noise of these deviations, one a code: a fitted table would have
    smoothed what rare codes say. Here a penalty on the terms does: noise of one deviation in a pair moves no term by
    more than 2. A model that learns from these records finds what pairs say, and nothing that the drawing of records
    has put in.
    """
    rows, block = len(codes), slice(sum(sizes[:target]), sum(sizes[: target + 1]))
    other_codes = np.delete(np.arange(sum(sizes)), block)  # the codes of the other columns
    design = encode_one_hot(np.delete(codes, target, axis=1), np.delete(sizes, target))
    shares = np.clip(pairs[other_codes, block], 0.0, None)
    code_shares = np.asarray(design.sum(axis=0)).ravel()[:, None] / rows
    wanted = code_shares * shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)  # of columns as drawn
    penalty = deviations[other_codes, None] / _MOVED

    def objective(point: Floats) -> tuple[float, Floats]:
        terms = point.reshape(wanted.shape)
        scores = design @ terms
        value = float(special.logsumexp(scores, axis=1).mean()) - float(np.vdot(terms, wanted))
        slope = design.T @ special.softmax(scores, axis=1) / rows - wanted + penalty * terms
        return value + 0.5 * float(np.vdot(penalty * terms, terms)), slope.ravel()

    terms = descend(objective, np.zeros(wanted.size), steps=_TARGET_STEPS).reshape(wanted.shape)
    upto = np.cumsum(special.softmax(design @ terms, axis=1), axis=1)
    spots = np.random.default_rng(0).random((rows, 1))
    records = codes.copy()
    records[:, target] = np.minimum((spots > upto).sum(axis=1), sizes[target] - 1)
    return records


def encode_one_hot(codes: Any, sizes: Sequence[int] | NDArray[np.int64]) -> sparse.csr_array:
    """Return a column of 0 and 1 for each code of each column."""
    indices = codes + np.cumsum([0, *sizes[:-1]])
    ends = np.arange(len(indices) + 1) * len(sizes)
    return sparse.csr_array((np.ones(indices.size), indices.ravel(), ends), shape=(len(indices), int(np.sum(sizes))))


def product_support(queries: Marginals, answers: Floats, rows: int) -> Rows:
    """Return rows of independent columns with the released distributions, for a release without public rows.

    Each column distributes its shares over the rows in a separate order, which depends on their number alone.
    """
    columns = []
    for column, size in enumerate(queries.sizes):
        measured = queries.column_shares(answers, column)
        if measured is None:
            columns.append(np.zeros(rows, dtype=np.int64))
            continue
        shares = np.clip(measured, 0.2 / (size * rows) ** 0.5, None)
        upto = np.cumsum(shares / shares.sum())
        spots = (0.5 + np.arange(1, rows + 1) * _ALPHAS[column % len(_ALPHAS)] * (1 + column // len(_ALPHAS))) % 1.0
        columns.append(np.minimum(np.searchsorted(upto, spots, side="right"), size - 1))
    return Rows(np.stack(columns, axis=1), queries.sizes)
