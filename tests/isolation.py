"""Replaying a fit on neighbouring data sets with one tape of randomness, and counting whose ballots changed."""

import os

import numpy as np

TEACHERS, UNITS, FEATURES, CLASSES = 12, 96, 3, 3
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
    """Return two data sets that differ in the rows of one unit: ordinary ones, outliers, a rare class.

    With `groups` a unit has one to three rows, and the other data set may have another number of them in its place.
    """
    sizes = generator.integers(1, 4, size=UNITS) if groups else np.ones(UNITS, dtype=int)
    sets = [[_rows(generator, unit, size) for unit, size in enumerate(sizes)]]
    changed = int(generator.integers(UNITS))
    wild = generator.random() < 0.5
    size = int(generator.integers(1, 4)) if groups else 1
    others = [*sets[0]]
    X, y, names = _rows(generator, changed, size)
    if wild:
        X, y = X * 1e4, np.full(size, CLASSES - 1)
    others[changed] = X, y, names + (1000 if groups else 0)  # another person, with another name
    sets.append(others)
    return [tuple(np.concatenate(part) for part in zip(*made, strict=True)) for made in sets]


def _rows(generator, unit, size):
    X = generator.normal(size=(size, FEATURES))
    y = (X[:, 0] > 0).astype(int)  # class 2 is declared, and only a changed unit ever shows it
    return X, y, np.full(size, unit)


def changed_teachers(ballots, pair, tape, monkeypatch):
    """Return the teachers whose ballots differ between the two data sets, on the same randomness."""
    monkeypatch.setattr(os, "urandom", tape)
    found = []
    for X, y, names in pair:
        tape.rewind()
        found.append(ballots(X, y, names))
    monkeypatch.undo()
    return np.flatnonzero((found[0] != found[1]).any(axis=0))
