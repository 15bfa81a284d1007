"""Cuts of columns of which the ends are declared, by noisy counts of private values. PROOF.md of tables, step 7.

How far numbers may go says little about where they are. Their cells are counted as those of a learned schema are,
between the declared ends, and the categories of other columns are counted beside them. The counts are also the mean
shares of all blocks, so that a model need not measure them again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.mechanisms import NoisyVectors
from quorate.tables.cut_tree import STAGES, USUAL_PARTS, CutTree, Lines, NumberMarginal, grow_trees
from quorate.tables.cut_tree import most_cells as most_counts
from quorate.tables.features.blocks import Block, Categories, Ramps, shares_of_blocks
from quorate.tables.learned import ColumnMarginal, Purse

_LEAST_SHARE, _LARGEST_SHARE = 0.03, 0.1  # of the budget
_ENOUGH_NOISE = 0.003  # of the units: the noise of a count that is aimed at
_MOST_NOISE = 0.1  # of the units: above it, counts would say little of where numbers are
_FRACTION_SHARES = (0.02, 0.2)  # of the share: for the numbers that are not whole
_FRACTION_NOISE = 1 / 25  # of the units: enough to tell columns of whole numbers from others
_CLEAR_FRACTIONS = 4.0  # deviations of the noise
_CLEAR_GAPS = 3.0  # deviations of the noise, by which missing values stand out

Learned = dict[Any, tuple[Block, tuple[Floats, float]]]
Values = Mapping[Any, NDArray[Any]]  # what each block reads, of one row a unit
Count = Callable[[Callable[[Values], Integers], int], Integers]  # sums what a function says of the values of all units


def entries_of_cuts(blocks: Sequence[Block]) -> int:
    """Return how many entries the releases have at most."""
    categories = sum(len(block.values) + 1 for block in blocks if isinstance(block, Categories))
    return categories + len(blocks) * (STAGES * most_counts() + 1)


def choose_cut_share(vectors: NoisyVectors, blocks: Sequence[Block], units: int) -> float:
    """Return which part of the budget is spent on counts, by public numbers; 0 where they would say little."""
    variance = vectors.scale(squared_sensitivity=2 * len(blocks), fraction=1.0) ** 2 / units**2
    share = min(max(variance / _ENOUGH_NOISE**2, _LEAST_SHARE), _LARGEST_SHARE)
    return share if math.sqrt(variance / share) <= _MOST_NOISE else 0.0


def learn_cuts(
    blocks: Mapping[Any, Block],
    values: Values | Count,
    vectors: NoisyVectors,
    *,
    units: int,
    share: float,
    most_cells: int | None = None,
    most_parts: int = USUAL_PARTS,
) -> Learned:
    """Return each block with cuts among its values where its ends alone were declared, and its mean shares.

    `values` has what each block reads of one row a unit, or adds up what a function returns for these values of blocks
    of units: whole numbers. Cuts leave at most `most_cells` cells between their ends, or else at
    most `most_parts` parts of equal size.
    """
    count = values if callable(values) else partial(_count_all, values)
    purse = Purse(vectors, share)
    numbers = {name: block for name, block in blocks.items() if isinstance(block, Ramps)}
    texts = {name: block for name, block in blocks.items() if isinstance(block, Categories)}
    # A tree counts in several stages, each with its part of the noise of one count of categories.
    fractions_part = _fractions_part(vectors, len(numbers), units, share)
    rest = 1 - fractions_part
    whole = find_whole(numbers, count, purse, fractions_part)
    marginals = count_categories(texts, count, purse, rest * len(texts) / len(blocks), units=units)
    stage = rest * len(numbers) / len(blocks) / STAGES

    def draw(counts: Integers, *, squared_sensitivity: int) -> tuple[Floats, float]:
        return purse.release(counts, squared_sensitivity=squared_sensitivity, part=stage)  # proof: step 7

    trees = {
        name: CutTree(
            units,
            is_whole=whole[name] and not block.date,
            is_date=block.date,
            most_cells=most_cells,
            most_parts=most_parts,
            ends=(block.cuts[0], block.cuts[-1]),
        )
        for name, block in numbers.items()
    }
    grow_trees(list(trees.values()), lambda add, entries: count(partial(_add_lines, numbers, add), entries), draw)
    cut: dict[Any, Block] = dict(texts)
    for name, block in numbers.items():
        line = trees[name].marginal(() if block.has_ends_alone else block.cuts)
        cut[name], marginals[name] = _cut_block(block, line, units)
    shares = shares_of_blocks(cut, marginals)
    return {name: (cut[name], shares[name]) for name in blocks}


def _fractions_part(vectors: NoisyVectors, columns: int, units: int, share: float) -> float:
    if not columns:
        return 0.0
    needed = vectors.scale(squared_sensitivity=columns, fraction=share) ** 2 / (_FRACTION_NOISE * units) ** 2
    return min(max(needed, _FRACTION_SHARES[0]), _FRACTION_SHARES[1])


def _count_all(values: Values, function: Callable[[Values], Integers], _entries: int) -> Integers:
    return function(values)


def _add_lines(numbers: Mapping[Any, Ramps], add: Callable[[Lines], Integers], values: Values) -> Integers:
    """Return what a function returns for the numbers of these columns, clipped to their ends."""
    return add([np.clip(values[name], block.cuts[0], block.cuts[-1]) for name, block in numbers.items()])


def _count_fractions(lines: Lines) -> Integers:
    return np.array([np.count_nonzero(np.abs(line - np.rint(line)) > 0) for line in lines], dtype=np.int64)


def _count_codes(blocks: Mapping[Any, Categories], values: Values) -> Integers:
    counts = [np.bincount(values[name], minlength=len(block.values) + 1) for name, block in blocks.items()]
    return np.concatenate(counts).astype(np.int64)


def find_whole(numbers: Mapping[Any, Ramps], count: Count, purse: Purse, part: float) -> dict[Any, bool]:
    """Return which columns seem to hold whole numbers alone. Proof: step 7: a unit moves each count by at most 1."""
    if not numbers:
        return {}
    counts = count(partial(_add_lines, numbers, _count_fractions), len(numbers))
    noisy, scale = purse.release(counts, squared_sensitivity=len(numbers), part=part)
    return {name: bool(fractions <= _CLEAR_FRACTIONS * scale) for name, fractions in zip(numbers, noisy, strict=True)}


def count_categories(
    blocks: Mapping[Any, Categories], count: Count, purse: Purse, part: float, *, units: int
) -> dict[Any, ColumnMarginal]:
    """Return the noisy counts of all categories. Proof: step 7: a unit is in one category of each column.

    The counts of each column add up to the number of units, which is public: what noise put beyond it or took from it
    is divided evenly, so that shares among thousands of categories are shares however large the noise of the sum is.
    """
    if not blocks:
        return {}
    sizes = [len(block.values) + 1 for block in blocks.values()]
    counts = count(partial(_count_codes, blocks), sum(sizes))
    noisy, scale = purse.release(counts, squared_sensitivity=2 * len(blocks), part=part)
    parts = np.split(noisy, np.cumsum(sizes)[:-1])
    fitting = [part + (units - part.sum()) / len(part) for part in parts]
    return {name: ColumnMarginal(tuple(part.tolist()), 0.0, scale) for name, part in zip(blocks, fitting, strict=True)}


def _cut_block(block: Ramps, line: NumberMarginal, units: int) -> tuple[Ramps, ColumnMarginal]:
    """Return a block with the cuts of a marginal, and the marginal.

    Where noise hid all values, ends keep a straight line alone, and declared cuts stay as they are.
    """
    if len(line.cuts) < 2:
        missing, cells = min(max(line.missing, 0.0), float(units)), len(block.cuts) - 1
        even = ColumnMarginal((0.0, *[(units - missing) / cells] * cells, 0.0), missing, line.scale)
        return replace(block, line=None) if block.has_ends_alone else block, even
    marginal = ColumnMarginal(line.counts, max(line.missing, 0.0), line.scale, line.means)
    gaps = block.missing or marginal.missing > _CLEAR_GAPS * line.scale
    ends = (line.cuts[0], line.cuts[-1]) if len(line.cuts) > 2 else None
    return replace(block, cuts=line.cuts, line=block.line and ends, missing=gaps), marginal
