"""Where numbers are cut, found with noise: cells of about as many records each, frequent values in cells of their own.

The floats in their order are the leaves of a public tree: the sign and the exponent of a number choose a first node,
and a few bits of its mantissa at a time the next ones. Each level counts the records in the children of the nodes that
noise has shown to hold some. What is made of the noisy counts is post-processing.

A record is in at most one node of a level, so replacing it moves the counts of a column by at most 1 in two places:
PROOF.md, step 9.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.tables.ordered_floats import NEXT_TO_0, Keys, keys_of_numbers, number_of_key, shortest_decimal

__all__ = ["LEVELS", "Draw", "NumberTree", "entries_of_level", "find_cuts"]

_FIRST, _STEP, LEVELS = 12, 5, 3  # bits of a float: sign and exponent, then some of the mantissa by each level
_CLEAR = 3.0  # deviations of the noise: one empty node in a thousand seems to hold more
_CLEAR_AT_FIRST = 5.0  # of runs of nodes of the first level: an empty one in more than three million seems to
_LEAST = 1.0  # of a cell: marginals measure it later with less noise, and one that is empty costs little
_BLURRED = 0.5  # what is lost of a record that is spread over a gap: one that joins another value loses its own
_RUNS = (1, 2, 4, 8, 16)  # powers of two that are looked at together
_MOST_NODES = 256  # of a column whose children are counted: no more have cells of their own
_LEAST_NORMAL = 2.0**-1022  # numbers closer to 0 are taken for it


class Draw(Protocol):
    """A paid release: it adds noise to a vector that a record moves by so much, and returns its deviation too."""

    def __call__(self, counts: Integers, *, squared_sensitivity: int) -> tuple[Integers, float]:
        """Return the counts with noise, and its scale."""


def entries_of_level() -> int:
    """Return how many counts of a column a level has at most: they are public."""
    return max((1 << _FIRST) + 1, _MOST_NODES << _STEP)


def find_cuts(values: Sequence[Floats], draw: Draw, *, cells: int) -> list[tuple[float, ...]]:
    """Return the cuts of each column of private numbers: between them at most so many cells, and one beyond each end.

    All that depends on the numbers comes from `draw`, at most once a level: where no column has nodes left to split,
    nothing more is drawn. Values that are no number are in no node.
    """
    columns = [keys_of_numbers(column) for column in values]
    trees = [NumberTree(cells) for _ in values]
    broken = np.array([int((column != np.floor(column)).sum()) for column in map(_finite, values)], dtype=np.int64)
    for level in range(LEVELS):
        parts = [tree.count(keys) for tree, keys in zip(trees, columns, strict=True)]
        square = sum(tree.square for tree in trees)  # proof: step 9
        if not square:
            break
        noisy, scale = draw(np.concatenate([*parts, broken if level == 0 else broken[:0]]), squared_sensitivity=square)
        *told, last = np.split(np.asarray(noisy, dtype=np.float64), np.cumsum([len(part) for part in parts]))
        for place, (tree, part) in enumerate(zip(trees, told, strict=True)):
            if level == 0:
                tree.whole = last[place] <= _CLEAR * scale
            tree.take(part, scale)
    return [tree.cuts() for tree in trees]


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _widths(ends: Sequence[int], *, whole: bool) -> Floats:
    """Return how far the numbers of these keys are apart, or the whole numbers from them on.

    Those beyond all floats are taken for the last ones.
    """
    last = 0.25 * np.finfo(np.float64).max
    numbers = np.array([number_of_key(min(key, 2**64 - 1)) for key in ends])
    beyond = np.where(np.array([key >= 2**63 for key in ends]), last, -last)
    plain = np.clip(np.where(np.isnan(numbers), beyond, numbers), -last, last)
    widths: Floats = np.maximum(np.diff(np.ceil(plain) if whole else plain), NEXT_TO_0)
    return widths


def _found_first(noisy: Floats, scale: float) -> NDArray[np.bool_]:
    """Return the nodes of the first level that are split: of runs of powers of two that hold records for sure.

    A column with a long tail may have too few records in each node to tell one from noise, and many in all.
    """
    found = np.zeros(len(noisy), dtype=np.bool_)
    for run in _RUNS:
        sums = np.where(found, 0.0, noisy).reshape(-1, run).sum(axis=1)  # of what shorter runs have not found
        found |= np.repeat(sums > _CLEAR_AT_FIRST * scale * math.sqrt(run), run) & (noisy > scale)
    return found


@dataclass
class NumberTree:
    """Nodes of one column that are counted next, and the leaves found so far: noisy and public things alone."""

    cells: int
    nodes: Keys = field(default_factory=lambda: np.arange(2**_FIRST, dtype=np.uint64))
    bits: int = _FIRST
    held: Floats | None = None  # by the parents of the nodes
    leaves: list[tuple[int, int, float]] = field(default_factory=list)  # first key, the key after the last, records
    scale: float = 0.0
    whole: bool = False

    @property
    def square(self) -> int:
        """By how much a replaced record moves what is counted next, squared: two nodes, and first who is not whole.

        A column without nodes is not counted.
        """
        return 3 if self.held is None else 2 if len(self.nodes) else 0

    def count(self, keys: Keys) -> Integers:
        """Return how many of the private keys are in each node."""
        prefixes = keys >> np.uint64(64 - self.bits)
        places = np.minimum(np.searchsorted(self.nodes, prefixes), max(len(self.nodes) - 1, 0))
        inside = self.nodes[places] == prefixes if len(self.nodes) else np.zeros(len(keys), dtype=np.bool_)
        return np.bincount(places[inside], minlength=len(self.nodes)).astype(np.int64)

    def take(self, noisy: Floats, scale: float) -> None:
        """Keep what stands out of the noise as nodes to be split, and the rest of each parent as leaves."""
        if not len(noisy):  # all is leaves, and of the scale that they were counted with
            return
        self.scale = scale
        clear = _found_first(noisy, scale) if self.held is None else noisy > _CLEAR * scale
        last = self.bits == _FIRST + (LEVELS - 1) * _STEP
        if not last and clear.sum() > _MOST_NODES:
            clear = noisy >= np.sort(noisy)[-_MOST_NODES]
            clear &= np.cumsum(clear) <= _MOST_NODES
        counts = np.where(clear, noisy, 0.0)
        if self.held is not None:  # children that do not stand out share what their parent has beside the others
            each = counts.reshape(len(self.held), 1 << _STEP)
            seeming = np.where(each > 0.0, 0.0, np.maximum(noisy.reshape(each.shape), 0.0))
            rest = np.maximum(self.held - each.sum(axis=1), 0.0) / np.maximum(seeming.sum(axis=1), 1e-300)
            counts = (each + seeming * rest[:, None]).ravel()
        split = np.zeros(len(noisy), dtype=np.bool_)
        if not last:
            split[clear] = ~self._single(self.nodes[clear])
        leaves = ~split
        width = 2 ** (64 - self.bits)
        firsts = [int(node) * width for node in self.nodes[leaves & (counts > 0.0)]]
        told = zip(firsts, counts[leaves & (counts > 0.0)].tolist(), strict=True)
        self.leaves += [(first, first + width, count) for first, count in told]
        if not last:
            self.held, self.bits = noisy[split], self.bits + _STEP
            below = (self.nodes[split] << np.uint64(_STEP))[:, None] + np.arange(2**_STEP, dtype=np.uint64)
            self.nodes = below.ravel()

    def _single(self, nodes: Keys) -> NDArray[np.bool_]:
        """Return which nodes have room for one whole number at most, in a column of such: they are not split."""
        if not self.whole:
            return np.zeros(len(nodes), dtype=np.bool_)
        firsts = [number_of_key(int(node) << (64 - self.bits)) for node in nodes]
        lasts = [number_of_key(((int(node) + 1) << (64 - self.bits)) - 1) for node in nodes]
        with np.errstate(invalid="ignore"):
            return np.asarray(np.floor(lasts) - np.ceil(firsts) < 1.0)  # False for what is no number

    def cuts(self) -> tuple[float, ...]:
        """Return the ends of the cells: the smallest one joins the smaller of its neighbours until they are few.

        So few records lie beyond the ends that noise may have made them. Ends are moved to numbers of few decimals, by
        less than the leaves beside them: what people write down has few, and a cell begins with the first of these.
        """
        firsts, counts, end = self._line()
        beyond = [np.cumsum(line) <= _CLEAR * self.scale for line in (counts, counts[::-1])]  # too few to be told
        kept = ~(beyond[0] | beyond[1][::-1])
        if kept.any():
            last = int(np.flatnonzero(kept)[-1])
            end = int(firsts[last + 1]) if last + 1 < len(firsts) else end
        firsts, counts = firsts[kept], counts[kept]
        widths = _widths([*firsts.tolist(), end], whole=self.whole)
        room = np.minimum(np.append(widths, np.inf), np.append(np.inf, widths))
        while len(counts) > 1:
            losses = self._losses(counts, widths)
            place, after = np.unravel_index(int(np.argmin(losses)), losses.shape)
            if len(counts) <= self.cells and losses[place, after] >= _LEAST * self.scale:
                break
            into = int(place) if after else int(place) - 1
            counts[into] += counts[into + 1]
            widths[into] += widths[into + 1]
            counts, widths = np.delete(counts, into + 1), np.delete(widths, into + 1)
            firsts, room = np.delete(firsts, into + 1), np.delete(room, into + 1)
        keys = [*firsts.tolist(), *([end] if len(counts) else [])]
        ends = np.array([number_of_key(min(key, 2**64 - 1)) for key in keys])
        ends = np.where((ends > 0.0) & (ends <= _LEAST_NORMAL), NEXT_TO_0, ends)
        if self.whole:
            ends = np.ceil(ends) + 0.0
        else:
            pairs = zip(ends.tolist(), room.tolist(), strict=False)
            ends = np.array([shortest_decimal(low, width) for low, width in pairs])
        return tuple(np.unique(ends[np.isfinite(ends)]).tolist())

    def _losses(self, counts: Floats, widths: Floats) -> Floats:
        """Return what is lost if each cell joins the one before it, and the one after it.

        That is its own records, or half of those of the neighbour that would be spread over it if these are more: as
        many as it has of the width. So a frequent value is not joined to the few around it, nor to an empty gap, before
        others are that hold half as much. Of two neighbours the smaller is taken by a trifle.
        """
        beside = np.stack([np.append(np.inf, counts[:-1]), np.append(counts[1:], np.inf)], axis=1)
        wide = np.stack([np.append(1.0, widths[:-1]), np.append(widths[1:], 1.0)], axis=1)
        own = counts[:, None] + 1e-9 * np.minimum(beside, counts.sum())
        spread = beside * (widths[:, None] / (widths[:, None] + wide))
        losses: Floats = np.maximum(_BLURRED * spread, own)
        losses[np.isinf(beside)] = np.inf
        return losses

    def _line(self) -> tuple[Keys, Floats, int]:
        """Return where the leaves begin, with the gaps between them, how many records each has, and where they end."""
        firsts: list[int] = []
        counts: list[float] = []
        end = 0
        for first, after, count in sorted(self.leaves):
            if firsts and first > end:
                firsts.append(end)
                counts.append(0.0)
            firsts.append(first)
            counts.append(count)
            end = after
        return np.array(firsts, dtype=np.uint64), np.array(counts, dtype=np.float64), end
