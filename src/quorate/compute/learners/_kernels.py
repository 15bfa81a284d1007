"""Kernels of a GPU, in Triton: one counts ballots without writing a score to memory, one fits a teacher a program.

`_gpu.py` prepares what they read. PROOF.md, steps 18 and 19, says why both are exact in the sense of the CPU's path.
"""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # nothing here is called then: no backend is `fused`
    triton = tl = None


def _compiled(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


@_compiled
def _product(tables, queries, rows, query, zero, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, UNROLLED: tl.constexpr):
    """Return the product of these rows of a table and these queries: sums of doubles that are all exact.

    `zero` is 0. The compiler must not know it, or it adds a second product to the first term by term (proof: step 18).
    """
    deep = tl.arange(0, 16)
    total = tl.full((rows.shape[0], query.shape[0]), zero, tl.float64)
    if UNROLLED:
        for start in tl.static_range(0, WHOLE, 16):
            row_block = tl.load(tables + rows[:, None] * COLUMNS + (start + deep)[None, :])
            query_block = tl.load(queries + query[None, :] * COLUMNS + (start + deep)[:, None])
            total = tl.dot(row_block, query_block, total, out_dtype=tl.float64)  # proof: step 18
    else:
        for start in range(0, WHOLE, 16):
            row_block = tl.load(tables + rows[:, None] * COLUMNS + (start + deep)[None, :])
            query_block = tl.load(queries + query[None, :] * COLUMNS + (start + deep)[:, None])
            total = tl.dot(row_block, query_block, total, out_dtype=tl.float64)  # proof: step 18
    for column in tl.static_range(WHOLE, COLUMNS):  # too few for a tensor core
        row_block = tl.load(tables + rows * COLUMNS + column)
        query_block = tl.load(queries + query * COLUMNS + column)
        total = total + row_block[:, None] * query_block[None, :]
    return total


@_compiled
def _scores(
    tables, queries, rows, query, zero, table, batch, POWERS: tl.constexpr, SLICES: tl.constexpr, COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr, UNROLLED: tl.constexpr,
):  # fmt: skip
    """Return the sum of products of slices, in the order of `linear.py`: each is exact, and the sum is rounded."""
    total = _product(tables, queries, rows, query, zero, COLUMNS, WHOLE, UNROLLED)
    for pair in tl.static_range(1, POWERS * SLICES * SLICES):
        if pair // SLICES % SLICES + pair % SLICES < SLICES:
            table_slice, query_slice = tables, queries
            for _ in tl.static_range(pair // (SLICES * SLICES) * SLICES + pair // SLICES % SLICES):
                table_slice = table_slice + table  # one by one: a multiple might not fit into 32 bits
            for _ in tl.static_range(pair // (SLICES * SLICES) * SLICES + pair % SLICES):
                query_slice = query_slice + batch
            total = total + _product(table_slice, query_slice, rows, query, zero, COLUMNS, WHOLE, UNROLLED)
    return total


@_compiled
def count_votes(
    tables, bars, queries, totals, teachers, padded, query_count, zero, table, batch, SEVERAL: tl.constexpr,
    POWERS: tl.constexpr, SLICES: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, UNROLLED: tl.constexpr,
    HIGH: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Add to `totals` (labels from 1 on, queries) how many of `SPAN` teachers vote for each label on `WIDE` queries.

    `tables` is (slices, scores, padded teachers, columns), `queries` (slices, padded queries, columns). Padding votes
    for class 0. `table` and `batch` are the sizes of one slice of each.
    """
    query = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    first = tl.program_id(1) * SPAN
    last = tl.minimum(first + SPAN, teachers)
    if SEVERAL == 1:
        votes = tl.zeros((HIGH, WIDE), tl.int32)
        for top in range(first, last, HIGH):
            teacher = top + tl.arange(0, HIGH)
            scores = _scores(
                tables, queries, teacher, query, zero, table, batch, POWERS, SLICES, COLUMNS, WHOLE, UNROLLED
            )  # fmt: skip
            votes += (scores > tl.load(bars + teacher)[:, None]).to(tl.int32)
        tl.atomic_add(totals + query, tl.sum(votes, axis=0), mask=query < query_count, sem="relaxed")
    else:
        field = tl.arange(0, 16)
        for top in range(first, last, HIGH):
            teacher = top + tl.arange(0, HIGH)
            winner = tl.zeros((HIGH, WIDE), tl.int32)
            best = tl.full((HIGH, WIDE), float("-inf"), tl.float64)
            label_tables, bar = tables, bars + teacher
            for label in range(SEVERAL):
                scores = _scores(
                    label_tables, queries, teacher, query, zero, table, batch, POWERS, SLICES, COLUMNS, WHOLE, UNROLLED
                )  # fmt: skip
                scores = scores - tl.load(bar)[:, None]
                winner = tl.where(scores > best, label, winner)  # the lowest of equals: proof, step 5
                best = tl.maximum(best, scores)
                label_tables, bar = label_tables + padded * COLUMNS, bar + padded
            for group in tl.static_range(1, SEVERAL, 10):  # ten counts of up to 63 in one number
                inside = (winner >= group) & (winner < group + 10)
                ballots = inside.to(tl.int64) << tl.where(inside, 6 * (winner - group), 0).to(tl.int64)
                packed = tl.sum(ballots, axis=0)
                counts = ((packed[None, :] >> (6 * field[:, None]).to(tl.int64)) & 63).to(tl.int32)
                row = group - 1 + field
                in_range = ((field < 10) & (row < SEVERAL - 1))[:, None] & (query < query_count)[None, :]
                tl.atomic_add(
                    totals + row[:, None] * query_count + query[None, :], counts, mask=in_range, sem="relaxed"
                )


@_compiled
def _loss(scores, target, weight):
    tail = tl.log(1.0 + tl.exp(-tl.abs(scores)))
    return tl.sum(weight * (tail + tl.maximum(scores, 0.0) - target * scores), axis=0)


@_compiled
def _solved(matrix, right, COLUMNS: tl.constexpr, USED: tl.constexpr):
    """Return the solution of a positive definite system: each row in turn is taken out of all others."""
    line = tl.arange(0, COLUMNS)
    for pivot in range(USED):
        here = line == pivot
        row = tl.sum(tl.where(here[:, None], matrix, 0.0), axis=0)
        column = tl.sum(tl.where(here[None, :], matrix, 0.0), axis=1)
        factor = tl.where(here, 0.0, column / tl.sum(tl.where(here, row, 0.0), axis=0))
        matrix = matrix - factor[:, None] * row[None, :]
        right = right - factor * tl.sum(tl.where(here, right, 0.0), axis=0)
    return right / tl.sum(tl.where(line[:, None] == line[None, :], matrix, 0.0), axis=1)


@_compiled
def fit_two_classes(
    alike, X, y, rows, starts, sizes, upper, weights, fitted, FEATURES: tl.constexpr, INTERCEPT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, HALVINGS: tl.constexpr, STILL: tl.constexpr,
):  # fmt: skip
    """Fit one teacher, by Newton's method as in `_losses.py`, from its own rows alone: a program reads no others.

    `alike` names the teachers to be fitted. One's rows are `rows[start : start + size]`; `upper` is the class that its
    score stands for, `weights` what a row of the other class and of this one weighs. `ROWS` and `COLUMNS` are powers of
    2, large enough for its rows and scores.
    """
    teacher = tl.load(alike + tl.program_id(0))
    start, size = tl.load(starts + teacher), tl.load(sizes + teacher)
    seat, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    filled, feature, diagonal = seat < size, column < FEATURES, column[:, None] == column[None, :]
    row = tl.load(rows + start + seat, mask=filled, other=0)
    target = (tl.load(y + row, mask=filled, other=-1) == tl.load(upper + teacher)).to(tl.float64)
    weight = tl.where(target > 0, tl.load(weights + 2 * teacher + 1), tl.load(weights + 2 * teacher))
    weight = tl.where(filled, weight, 0.0)
    cells = filled[:, None] & feature[None, :]
    design = tl.load(X + row[:, None] * FEATURES + column[None, :], mask=cells, other=0.0)
    mean = tl.zeros((COLUMNS,), tl.float64)
    if INTERCEPT:
        mean = tl.sum(design, axis=0) / size.to(tl.float64)
        design = tl.where(cells, design - mean[None, :], 0.0)
        design = tl.where(filled[:, None] & (column == FEATURES)[None, :], 1.0, design)
    penalty = tl.where(feature, 1.0, 0.0).to(tl.float64)
    used: tl.constexpr = FEATURES + INTERCEPT
    solution, scores = tl.zeros((COLUMNS,), tl.float64), tl.zeros((ROWS,), tl.float64)
    value = _loss(scores, target, weight)
    steps_left = STEPS
    while steps_left > 0:
        small = tl.exp(-tl.abs(scores))
        chance = tl.where(scores >= 0, 1.0, small) / (1.0 + small)
        curvature = weight * small / ((1.0 + small) * (1.0 + small))
        gradient = tl.sum(design * (weight * (chance - target))[:, None], axis=0) + penalty * solution
        hessian = tl.dot(tl.trans(design * curvature[:, None]), design, out_dtype=tl.float64)
        hessian = tl.where(diagonal, (hessian + penalty[:, None]) * (1.0 + 1e-12) + 1e-300, hessian)
        hessian = tl.where(diagonal & (column >= used)[:, None], 1.0, hessian)
        direction = -_solved(hessian, gradient, COLUMNS, used)
        change = tl.sum(design * direction[None, :], axis=1)
        slope = 1e-4 * tl.sum(gradient * direction, axis=0)
        still = 0.5 * tl.sum(penalty * solution * solution, axis=0)
        linear = tl.sum(penalty * solution * direction, axis=0)
        square = 0.5 * tl.sum(penalty * direction * direction, axis=0)
        step, halvings, bound = 1.0 + 0.0 * value, 1, value + 1e-12 * tl.abs(value)
        lowered_value = _loss(scores + change, target, weight) + still + linear + square
        while (lowered_value > bound + step * slope) & (halvings < HALVINGS):
            step = 0.5 * step
            lowered_value = _loss(scores + step * change, target, weight) + still + step * (linear + step * square)
            halvings += 1
        lowered = lowered_value <= bound + step * slope  # not where it is no number
        solution = tl.where(lowered, solution + step * direction, solution)
        scores = tl.where(lowered, scores + step * change, scores)
        value = tl.where(lowered, lowered_value, value)
        moved = tl.max(tl.abs(step * change), axis=0)
        steps_left = tl.where(lowered & (moved > STILL), steps_left - 1, 0)
    tl.store(fitted + teacher * (FEATURES + 1) + column, solution, mask=feature)
    level = tl.sum(tl.where(column == FEATURES, solution, 0.0) - mean * solution, axis=0)
    tl.store(fitted + teacher * (FEATURES + 1) + FEATURES, level)
