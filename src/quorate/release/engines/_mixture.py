"""A mixture of products as the model of a whole table: every marginal is read off it, and records are drawn from it.

All of it is post-processing: records are drawn by a generator of a fixed seed.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.release.queries import Marginals, Possible

_MOST_MENDED, _SWEEPS = 1_000_000, 3  # records whose pairs are mended, and how often
_AGAIN = 30  # redraws of impossible records


def pairwise(first: Floats, second: Floats) -> Floats:
    """Return the products of each entry of a row with each of the same row of another, the second running fastest."""
    return np.asarray((first[:, :, None] * second[:, None, :]).reshape(len(first), -1))


@dataclass(frozen=True, repr=False)
class Mixture:
    """Components of independent columns: `shares[k]` has the distributions of all columns, one after the other."""

    sizes: tuple[int, ...]
    weights: Floats
    shares: Floats

    def table(self, columns: Sequence[int]) -> Floats:
        """Return the marginal of some columns, the last running fastest."""
        *first, last = columns
        product = self.weights[:, None]
        for column in first:
            product = pairwise(product, self._block(column))
        return np.asarray(product.T @ self._block(last)).ravel()

    def answers(self, queries: Marginals) -> Floats:
        """Return all marginals, one after the other."""
        return np.concatenate([self.table(clique) if clique else np.ones(1) for clique in queries.cliques])

    def pairs(self, queries: Marginals, answers: Floats) -> Floats:
        """Return the shares of all codes by all codes: as released, and those of the mixture where none was."""
        shares = (self.weights[:, None] * self.shares).T @ self.shares
        starts = np.cumsum([0, *self.sizes])
        tables = zip(np.split(answers, queries.offsets[1:-1]), queries.shapes, queries.cliques, strict=True)
        for table, shape, clique in tables:
            for first, second in itertools.combinations(range(len(clique)), 2):
                gone = tuple(axis for axis in range(len(clique)) if axis not in (first, second))
                rows, columns = (slice(starts[clique[axis]], starts[clique[axis] + 1]) for axis in (first, second))
                shares[rows, columns] = table.reshape(shape).sum(axis=gone)
                shares[columns, rows] = shares[rows, columns].T
        return np.asarray(shares)

    def draw(self, rows: int, pairs: Floats | None = None, possible: Possible | None = None) -> Integers:
        """Return the codes of this many records, the same in every call.

        Each component has its share of the records, and each column of it the shares of its codes, up to one record
        each. Which codes meet in a record is drawn, and then mended until the pairs of columns have their shares too:
        those of the mixture, or others that are given. With `possible`, records that cannot occur are drawn again until
        all can.
        """
        generator = np.random.default_rng(0)
        owned = _round_shares(self.weights[None, :], np.array([rows]), generator)[0]
        owner = np.repeat(np.arange(len(owned)), owned)
        codes = np.empty((rows, len(self.sizes)), dtype=np.int64)
        for column, size in enumerate(self.sizes):
            counts = _round_shares(self._block(column), owned, generator)
            values = np.repeat(np.tile(np.arange(size), len(owned)), counts.ravel())
            codes[:, column] = values[np.lexsort((generator.random(rows), owner))]
        if possible is not None:
            blocks = [self._block(column) for column in range(len(self.sizes))]
            _draw_again(codes, owner, possible, (self.weights, blocks), generator)
            codes = possible.repair_codes(codes)
            if pairs is not None and len(self.sizes) > 1:
                chosen = _rake_records(codes, self.sizes, pairs)
                codes, owner = codes[chosen], owner[chosen]
        if rows <= _MOST_MENDED and len(self.sizes) > 1:
            wanted = (self.weights[:, None] * self.shares).T @ self.shares if pairs is None else pairs
            starts = np.cumsum([0, *self.sizes[:-1]])
            allowed = None if possible is None else lambda indices: possible.records(indices - starts)
            indices = _mend_pairs(codes + starts, owner, rows * wanted, generator, allowed)
            if pairs is not None:  # swaps within a component cannot mend these pairs
                indices = _mend_pairs(indices, np.zeros_like(owner), rows * wanted, generator, allowed)
            codes = indices - starts
        return codes

    def _block(self, column: int) -> Floats:
        start = sum(self.sizes[:column])
        return self.shares[:, start : start + self.sizes[column]]


def _draw_again(
    codes: Integers,
    owner: Integers,
    possible: Possible,
    mixture: tuple[Floats, list[Floats]],
    generator: np.random.Generator,
) -> None:
    """Replace impossible records by new draws from the whole mixture, a few times."""
    weights, blocks = mixture
    for _ in range(_AGAIN):
        indices = np.flatnonzero(~possible.records(codes))
        if not indices.size:
            return
        owner[indices] = generator.choice(len(weights), size=len(indices), p=weights / weights.sum())
        for column, block in enumerate(blocks):
            upto = np.cumsum(block, axis=1)
            spots = generator.random(len(indices)) * upto[owner[indices], -1]
            within = (spots[:, None] >= upto[owner[indices]]).sum(axis=1)
            codes[indices, column] = np.minimum(within, block.shape[1] - 1)


def _round_shares(shares: Floats, totals: Integers, generator: np.random.Generator) -> Integers:
    """Return counts that add up to the total of each row, each within 1 of its share: systematic rounding."""
    upto = np.cumsum(shares, axis=1)
    upto = upto / upto[:, -1:]
    marks = np.floor(upto * totals[:, None] + generator.random((len(totals), 1))).astype(np.int64)
    marks = np.minimum(marks, totals[:, None])
    marks[:, -1] = totals
    return np.diff(marks, prepend=0, axis=1)


def _rake_records(codes: Integers, sizes: tuple[int, ...], pairs: Floats) -> Integers:
    """Resample these records so that each column has its shares, by iterated scaling."""
    weights = np.full(len(codes), 1.0 / len(codes))
    starts = np.cumsum([0, *sizes])
    for sweep in range(_SWEEPS * len(sizes)):
        column = sweep % len(sizes)
        block = slice(starts[column], starts[column + 1])
        wanted = (pairs[block].sum(axis=1) - pairs[block, block].sum(axis=1)) / (len(sizes) - 1)
        now = np.bincount(codes[:, column], weights, minlength=sizes[column])
        weights *= np.divide(wanted, now, out=np.ones_like(now), where=now > 0)[codes[:, column]]
    order = np.lexsort(codes.T[::-1])  # equal records become neighbours
    marks = (np.arange(len(codes)) + 0.5) / len(codes)
    upto = np.cumsum(weights[order]) / weights.sum()
    return np.asarray(order[np.minimum(np.searchsorted(upto, marks), len(codes) - 1)])


def _mend_pairs(
    indices: Integers,
    owner: Integers,
    wanted: Floats,
    generator: np.random.Generator,
    allowed: Callable[[Integers], NDArray[np.bool_]] | None = None,
) -> Integers:
    """Return records whose counts of pairs are nearer to those wanted: records of a component swap codes of a column.

    `indices` has a code's index among the codes of all columns. A swap leaves the counts of every column as they are,
    and is made only where both records are `allowed` after it.
    """
    rows, columns = indices.shape
    excess = -np.array(wanted)
    for column in range(columns):
        np.add.at(excess, (np.repeat(indices[:, column], columns), indices.ravel()), 1.0)
    for sweep in range(_SWEEPS * columns):
        column = sweep % columns
        order = np.lexsort(np.stack([generator.random(rows), owner]))
        first, second = order[:-1:2], order[1::2]
        pairs = (owner[first] == owner[second]) & (indices[first, column] != indices[second, column])
        codes = len(np.unique(indices[:, column]))
        count = max(1, int(pairs.sum()) // int(np.clip(20 * codes * (codes - 1), 40, 400)))
        for givers, takers in zip(
            np.array_split(first[pairs], count), np.array_split(second[pairs], count), strict=True
        ):
            _swap(indices, excess, givers, takers, column=column, allowed=allowed)
    return indices


def _swap(
    indices: Integers,
    excess: Floats,
    givers: Integers,
    takers: Integers,
    *,
    column: int,
    allowed: Callable[[Integers], NDArray[np.bool_]] | None,
) -> None:
    """Swap codes of a column between records of two lists, if that brings pairs nearer to what is wanted.

    Of swaps of the same two codes only the best is made: many at once would overshoot.
    """
    rest = np.delete(np.arange(indices.shape[1]), column)
    here, there = indices[givers, column][:, None], indices[takers, column][:, None]
    giver_codes, taker_codes = indices[np.ix_(givers, rest)], indices[np.ix_(takers, rest)]
    gain = (
        excess[here, giver_codes]
        - excess[there, giver_codes]
        + excess[there, taker_codes]
        - excess[here, taker_codes]
        - 2.0
    )
    gains = (gain * (giver_codes != taker_codes)).sum(axis=1)
    best = np.argsort(-gains, kind="stable")
    best = best[gains[best] > 0]
    if allowed is not None:
        swapped = indices[givers[best]], indices[takers[best]]
        swapped[0][:, column], swapped[1][:, column] = there[best, 0], here[best, 0]
        best = best[allowed(swapped[0]) & allowed(swapped[1])]
    swaps = best[np.unique(here[best, 0] * len(excess) + there[best, 0], return_index=True)[1]]
    givers, takers, giver_codes, taker_codes = givers[swaps], takers[swaps], giver_codes[swaps], taker_codes[swaps]
    here, there = here[swaps], there[swaps]
    for code, others_code, step in (
        (here, giver_codes, -1),
        (there, giver_codes, 1),
        (there, taker_codes, -1),
        (here, taker_codes, 1),
    ):
        where = np.broadcast_to(code, others_code.shape)
        np.add.at(excess, (where, others_code), step)
        np.add.at(excess, (others_code, where), step)
    indices[givers, column], indices[takers, column] = there.ravel(), here.ravel()
