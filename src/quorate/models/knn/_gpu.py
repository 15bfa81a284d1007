"""Counting with PyTorch, on a GPU: the counts and the charges of `Units`, to the last bit (PROOF.md, step 10).

Records lie on the device, queries go there, and counts and what units have spent come back. The work depends on sizes
alone, as it does on the CPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from quorate.compute.learners.backends import Array, Backend
from quorate.core.arrays import Floats, Integers
from quorate.models.knn._kernel import Batch, Block, Kernel

_SCORES = 2**23  # of queries and records, worked on at once


@dataclass(frozen=True, eq=False)
class _Records:
    """The rows of a block on the device; `units` has the place of each row's unit among the `owners` of the block."""

    factors: Array
    codes: Array
    owners: Array
    units: Array


class DeviceCounter:
    """Counts votes and charges units as `Units` does, with arrays on a device of PyTorch."""

    def __init__(self, backend: Backend, kernel: Kernel, *, capacity: int, table: Integers, persons: bool) -> None:
        self._put, self._take = backend.put, backend.take
        self._kernel, self._capacity, self._persons = kernel, capacity, persons
        self._table, self._prices = self._put(table.astype(np.float64)), self._put((table**2).sum(axis=1))
        self._placed: WeakKeyDictionary[Block, tuple[int, _Records]] = WeakKeyDictionary()

    def count(self, blocks: Iterable[Block], batch: Batch, spent: Integers) -> Floats:
        """Return the counts of votes on all queries, and charge the units: `spent` changes in its place."""
        amounts, counts = self._put(spent), self._put(np.zeros((len(batch.radii), self._table.shape[1])))
        queries = self._put(batch.factors).double()
        scales = self._put((np.float32(self._kernel.top) / batch.radii)[:, np.newaxis])
        for block in blocks:
            records = self._records(block)
            for part in batch.parts(len(records.codes), queries=_SCORES, scores=_SCORES):
                weights = self._weights(queries[part], records, scales[part])
                voted = self._of_persons if self._persons else self._of_rows
                counts[part] += voted(weights, records, amounts, batch.together)
        spent[:] = self._take(amounts)
        return np.asarray(self._take(counts))

    def _records(self, block: Block) -> _Records:
        """Return the rows of a block, sent again where they have changed since they were sent."""
        changes, records = self._placed.get(block, (-1, None))
        if records is None or changes != block.changes:  # proof: step 10
            rows = slice(0, block.taken)
            firsts = np.diff(block.owners[rows], prepend=-1) != 0 if self._persons else np.ones(block.taken, dtype=bool)
            arrays = block.factors[:, rows], block.codes[rows], block.owners[rows][firsts], np.cumsum(firsts) - 1
            records = _Records(*(self._put(array) for array in arrays))
            self._placed[block] = block.changes, records
        return records

    def _weights(self, queries: Array, records: _Records, scales: Array) -> Array:
        """Return weights as 32-bit floats: `Kernel.weigh` of products of doubles, which no setting makes inexact."""
        short = (queries @ records.factors.double()).float()  # proof: step 10
        if self._kernel.shape == "flat":
            return short.clamp_(0, 1).mul_(self._kernel.top)
        return short.mul_(scales).floor_().clamp_(0, self._kernel.top)

    def _of_rows(self, weights: Array, records: _Records, amounts: Array, together: int) -> Array:
        """Return the counts of units of one row each, and charge them."""
        groups = weights.view(-1, together, weights.shape[1])
        squares = groups.square().sum(dim=1).long() * self._prices[records.codes]
        groups *= self._charge(squares, records.owners, amounts)[:, None]
        return weights.double() @ self._table[records.codes]

    def _of_persons(self, weights: Array, records: _Records, amounts: Array, together: int) -> Array:
        """Return the counts of units that vote with the nearest of several rows; of equals, with the last code."""
        import torch  # noqa: PLC0415

        kinds = len(self._table)
        coded = weights.mul_(kinds).add_(records.codes)
        strongest = coded.new_zeros((len(coded), len(records.owners)))
        strongest.scatter_reduce_(1, records.units.expand(len(coded), -1), coded, "amax")
        coded = strongest.long()  # CUDA divides floats by multiplying with a rounded reciprocal; proof: step 10
        tops, codes = coded // kinds, coded % kinds
        squares = (tops.square() * self._prices[codes]).view(-1, together, tops.shape[1]).sum(dim=1)
        fits = self._charge(squares, records.owners, amounts)
        tops = (tops.view(-1, together, tops.shape[1]) * fits[:, None]).view(tops.shape).double()
        return torch.stack([(tops * added[codes]).sum(dim=1) for added in self._table.T], dim=1)

    def _charge(self, squares: Array, owners: Array, amounts: Array) -> Array:
        """Charge units for groups of queries, and return which of them fit: from the first that does not on, none."""
        spent, sums = amounts[owners], squares.cumsum(dim=0)
        fits = sums <= self._capacity - spent  # proof: step 3
        amounts[owners] = (spent + sums[-1]).where(fits[-1], spent.new_tensor(self._capacity + 1))
        return fits
