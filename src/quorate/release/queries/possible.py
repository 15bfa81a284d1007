"""Which cells of a table can occur at all: what a public declaration says, by groups of columns that it ties together.

A record can occur if its codes can in every group. So everything else follows from one table of truth values a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.release.queries.rows import Rows

__all__ = ["Possible", "Truths", "clear_weights"]

Truths = NDArray[np.bool_]


@dataclass(frozen=True, repr=False, eq=False)
class Possible:
    """For each group of columns, which combinations of their codes can occur; no column is in two groups."""

    groups: tuple[tuple[tuple[int, ...], Truths], ...]

    def table(self, columns: Sequence[int], sizes: Sequence[int]) -> Truths:
        """Return which cells of the table of these columns can occur, the last running fastest."""
        whole = np.ones([sizes[column] for column in columns], dtype=np.bool_)
        for members, table in self.groups:
            if shared := [column for column in members if column in columns]:
                seen = table.any(axis=tuple(place for place, column in enumerate(members) if column not in columns))
                order = sorted(range(len(shared)), key=lambda place: columns.index(shared[place]))
                shape = [sizes[column] if column in shared else 1 for column in columns]
                whole &= np.asarray(seen).transpose(order).reshape(shape)
        return whole.ravel()

    def cliques(self, cliques: Sequence[Sequence[int]], sizes: Sequence[int]) -> Truths:
        """Return which cells of the tables of these columns can occur, one table after the other."""
        return np.concatenate([self.table(clique, sizes) for clique in cliques])

    def records(self, codes: Integers) -> Truths:
        """Return which of these records can occur."""
        held = np.ones(len(codes), dtype=np.bool_)
        for members, table in self.groups:
            held &= table[tuple(codes[:, column] for column in members)]
        return held

    def kept(self, rows: Rows) -> Rows:
        """Return the records that can occur; where none can, one that does."""
        held = self.records(rows.codes)
        if not held.any():
            return Rows(self.repaired(rows.codes[:1]), rows.sizes)
        return rows if held.all() else Rows(rows.codes[held], rows.sizes, rows.weights[held])

    def repaired(self, codes: Integers) -> Integers:
        """Return records that can all occur: a group of codes that cannot is taken from another record that can.

        Which one is drawn from a generator of a fixed seed. Where there is none, it is the first combination that can.
        """
        codes, chance = codes.copy(), np.random.default_rng(3)
        for members, table in self.groups:
            columns = np.array(members)
            held = table[tuple(codes[:, columns].T)]
            if held.all():
                continue
            if held.any():
                donors = chance.choice(np.flatnonzero(held), size=int((~held).sum()))
                codes[np.ix_(~held, columns)] = codes[np.ix_(donors, columns)]
            else:
                codes[np.ix_(~held, columns)] = np.argwhere(table)[0]
        return codes


def clear_weights(weights: Floats, held: Truths) -> Floats:
    """Return weights of cells or records without those that cannot occur; even ones where nothing else is left."""
    left = np.where(held, np.maximum(weights, 0.0), 0.0)
    total = float(left.sum())
    return np.asarray(left / total if total > 0 else held / held.sum())
