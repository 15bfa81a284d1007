"""Replaying a fit on neighbouring data sets with one tape of randomness, and counting whose ballots changed."""

import os

import numpy as np

TEACHERS, UNITS, FEATURES, CLASSES = 12, 96, 3, 3
NEIGHBOURS = 5  # of each data set
QUERIES = np.random.default_rng(11).normal(size=(64, FEATURES))


class Tape:
    """Stands in for the operating system's randomness: the same bytes each time it is rewound."""

    def __init__(self, seed):
        self._seed = seed
        self.rewind()

    def rewind(self):
        self._generator = np.random.default_rng(self._seed)

    def __call__(self, size):
        return self._generator.bytes(size)


def neighbours(generator, *, groups=False):
    """Return a data set, and others that each differ from it in one unit's rows: ordinary ones, outliers, a rare class.

    With `groups` a unit has one to three rows, and a neighbour may have another number of them in its place.
    """
    sizes = generator.integers(1, 4, size=UNITS) if groups else np.ones(UNITS, dtype=int)
    base = [_rows(generator, unit, size) for unit, size in enumerate(sizes)]
    sets = [base]
    for _ in range(NEIGHBOURS):
        changed = int(generator.integers(UNITS))
        size = int(generator.integers(1, 4)) if groups else 1
        X, y, names = _rows(generator, changed, size)
        if generator.random() < 0.5:
            X, y = X * 1e4, np.full(size, CLASSES - 1)
        other = X, y, names + (1000 if groups else 0)  # another person, with another name
        sets.append([*base[:changed], other, *base[changed + 1 :]])
    return [tuple(np.concatenate(part) for part in zip(*rows, strict=True)) for rows in sets]


def _rows(generator, unit, size):
    X = generator.normal(size=(size, FEATURES))
    y = (X[:, 0] > 0).astype(int)  # class 2 is declared, and only a changed unit ever shows it
    return X, y, np.full(size, unit)


def changed_teachers(ballots, sets, tape, monkeypatch):
    """Return, for each neighbour of the first data set, the teachers whose ballots differ on the same randomness."""
    monkeypatch.setattr(os, "urandom", tape)
    votes = []
    for X, y, names in sets:
        tape.rewind()
        votes.append(ballots(X, y, names))
    monkeypatch.undo()
    return [np.flatnonzero((votes[0] != other).any(axis=0)) for other in votes[1:]]
