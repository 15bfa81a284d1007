"""How far a mixture of products is from noisy tables, and the slope of that.

Pairs are compared as one matrix of all codes by all codes. Tables of three columns and more are compared in groups: all
that differ in their last two columns alone are one matrix, since many small products take longer than a few large ones.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.release.engines.strategy import Clique

__all__ = ["Misfit", "NoisyTables", "pairwise"]

NoisyTables = Mapping[Clique, tuple[Floats, float]]  # by sorted columns: shares, and the deviation of their noise

_STANDS_OUT, _MOST_WEIGHT = 2.5, 10.0  # deviations of an answer; the factor of its weight


def pairwise(left: Floats, right: Floats) -> Floats:
    """Return the products of each entry of a row with each of the same row of another, the second running fastest."""
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


@dataclass(frozen=True)
class _Group:
    """Tables of the same first columns: codes of the first by those of the last but one, and by those of the last."""

    first: Clique
    middle: Integers
    last: Integers
    places: dict[Clique, tuple[slice, slice, slice]]
    target: Floats
    weight: Floats


class Misfit:
    """The squared distance of a mixture from noisy tables in units of their noise, and its slope."""

    def __init__(self, sizes: Sequence[int], noisy: NoisyTables) -> None:
        self.sizes = tuple(sizes)
        ends = np.cumsum([0, *sizes])
        self.blocks = [slice(int(start), int(end)) for start, end in itertools.pairwise(ends)]
        self.codes = int(ends[-1])
        self.one, self.one_weight = np.zeros(self.codes), np.zeros(self.codes)
        self.two = np.zeros((self.codes, self.codes))
        self.two_weight = np.zeros((self.codes, self.codes))
        self.cells = sum(len(table) for table, _ in noisy.values())
        larger: dict[Clique, list[Clique]] = {}
        for clique, (table, deviation) in noisy.items():
            where = tuple(self.blocks[column] for column in clique)
            if len(clique) == 1:
                self.one[where], self.one_weight[where] = table, deviation**-2.0
            elif len(clique) == 2:
                shape = [self.sizes[column] for column in clique]
                self.two[where], self.two_weight[where] = table.reshape(shape), deviation**-2.0
            else:
                larger.setdefault(clique[:-2], []).append(clique)
        self.groups = [self._group(first, cliques, noisy) for first, cliques in larger.items()]

    def _group(self, first: Clique, cliques: list[Clique], noisy: NoisyTables) -> _Group:
        middle, last = (
            {column: slice(0) for column in sorted({clique[end] for clique in cliques})} for end in (-2, -1)
        )
        for slices in (middle, last):
            upto = 0
            for column in slices:
                slices[column] = slice(upto, upto := upto + self.sizes[column])
        codes = [np.concatenate([np.r_[self.blocks[column]] for column in slices]) for slices in (middle, last)]
        target = np.zeros((math.prod(self.sizes[column] for column in first), len(codes[0]), len(codes[1])))
        weight = np.zeros_like(target)
        places = {clique: (slice(None), middle[clique[-2]], last[clique[-1]]) for clique in cliques}
        for clique, place in places.items():
            table, deviation = noisy[clique]
            target[place], weight[place] = table.reshape(target[place].shape), deviation**-2.0
        return _Group(first, codes[0], codes[1], places, target, weight)

    def emphasised(self, checked: NoisyTables, fitted: Callable[[Clique], Floats]) -> "Misfit":
        """Return the same with more weight on cells of which a fit is further from the best estimate than noise
        explains.
        """
        heavier = Misfit(self.sizes, {})
        heavier.cells = self.cells
        heavier.one, heavier.one_weight = self.one.copy(), self.one_weight.copy()
        heavier.two, heavier.two_weight = self.two, self.two_weight.copy()
        heavier.groups = [replace(group, weight=group.weight.copy()) for group in self.groups]
        weights = {clique: group.weight[place] for group in heavier.groups for clique, place in group.places.items()}
        for clique, (table, deviation) in checked.items():
            off = np.abs(fitted(clique) - table) / max(deviation, 1e-12)
            factor = np.clip((off / _STANDS_OUT) ** 2, 1.0, _MOST_WEIGHT)
            where = tuple(self.blocks[column] for column in clique)
            if len(clique) == 1:
                added = np.where(off > _STANDS_OUT, factor / max(deviation, 1e-12) ** 2, 0.0)
                total = heavier.one_weight[where] + added
                mean = heavier.one[where] * heavier.one_weight[where] + table * added
                heavier.one[where] = np.where(total > 0, mean / np.maximum(total, 1e-300), 0.0)
                heavier.one_weight[where] = total
            elif len(clique) == 2:
                heavier.two_weight[where] *= factor.reshape(heavier.two_weight[where].shape)
            elif clique in weights:
                weights[clique] *= factor.reshape(weights[clique].shape)  # a view: the group's own
        return heavier

    def slope(self, weights: Floats, shares: Floats) -> tuple[float, Floats, Floats]:
        """Return half the misfit, its slope by the shares over the weight of their component, and by the weights."""
        owned = weights[:, None] * shares
        off_one, off_two = owned.sum(axis=0) - self.one, owned.T @ shares - self.two
        pull_one, pull_two = self.one_weight * off_one, self.two_weight * off_two
        value = float(pull_one @ off_one) + float(np.vdot(pull_two, off_two))
        by_pairs = shares @ (pull_two + pull_two.T)
        by_shares = by_pairs + pull_one
        by_weights = 0.5 * (shares * by_pairs).sum(axis=1) + shares @ pull_one
        for group in self.groups:
            value += self._larger(group, weights, shares, by_shares, by_weights)
        return 0.5 * value, by_shares, by_weights

    def _larger(self, group: _Group, weights: Floats, shares: Floats, by_shares: Floats, by_weights: Floats) -> float:
        """Add the slopes of a group of tables, and return their misfit."""
        firsts = [shares[:, self.blocks[column]] for column in group.first]
        middle, last = shares[:, group.middle], shares[:, group.last]
        products = list(itertools.accumulate(firsts, pairwise))
        product = pairwise(products[-1], middle)
        target, weight = (table.reshape(product.shape[1], -1) for table in (group.target, group.weight))
        off = (weights[:, None] * product).T @ last - target
        pull = weight * off
        by_last = product @ pull
        by_shares[:, group.last] += by_last
        by_weights += (by_last * last).sum(axis=1)
        cube = (last @ pull.T).reshape(len(weights), -1, middle.shape[1])
        by_shares[:, group.middle] += (products[-1][:, None, :] @ cube)[:, 0]
        back = (cube @ middle[:, :, None])[:, :, 0]
        for place in range(len(firsts) - 1, 0, -1):
            cube = back.reshape(len(weights), -1, firsts[place].shape[1])
            by_shares[:, self.blocks[group.first[place]]] += np.einsum("kij,ki->kj", cube, products[place - 1])
            back = np.einsum("kij,kj->ki", cube, firsts[place])
        by_shares[:, self.blocks[group.first[0]]] += back
        return float(np.vdot(pull, off))
