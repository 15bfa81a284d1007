"""All ways in which a hyperplane parts a point set in two.

A parting of points by a hyperplane can be had from a hyperplane that d of the points span: move and turn the first one
until it touches. Points off that hyperplane lie as before, and those on it are parted by a hyperplane inside of it.
The other way round, a hyperplane that points span, with any parting of the points on it, gives a parting of all: turn
it a little. So all hyperplanes through d points are gone through, those with more than d points on them by recursion,
and partings that are found more than once are kept once.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible
from quorate.models.concepts.hyperplanes import ExactPoints

_MEMORY = 2**30  # bytes for signs and for the partings that are found, also more than once

Signs = NDArray[np.int8]
Bits = NDArray[np.uint8]


class Partitions(NamedTuple):
    """One row of bits for each parting, 0 on the side of the first point; and d points that span a hyperplane of it."""

    bits: Bits
    planes: Integers  # -1 where all points lie on one side


def check_partitions(points: int, dimension: int) -> None:
    """Refuse a number of points that has too many hyperplanes to go through."""
    each = points + 3 * (1 << dimension) * ((points + 7) // 8)
    partitions = math.comb(points, dimension) * each
    if partitions > _MEMORY:
        raise Infeasible(
            f"the hyperplanes through {dimension} of {points} points take {partitions / 2**30:.1f} GiB, above "
            f"{_MEMORY / 2**30:.1f}; pass fewer points"
        )


def find_partitions(points: ExactPoints) -> Partitions:
    """Return every parting of these points, which are all different, once."""
    count, dimension = len(points), points.dimension
    whole = np.zeros((1, (count + 7) // 8), dtype=np.uint8), np.full((1, dimension), -1)
    if count == 0:
        return Partitions(*whole)
    planes = np.array(list(itertools.combinations(range(count), dimension)), dtype=np.int64).reshape(-1, dimension)
    signs = points.signs(planes)
    touching = (signs == 0).sum(axis=1)
    spanned = touching < count
    spanned[~spanned] = (points.normals(planes[~spanned]) != 0).any(axis=1)
    if not spanned.any():  # all points lie in fewer dimensions
        columns = points.spanning_columns() or [0]
        inner = find_partitions(points.part(slice(None), columns))
        return Partitions(
            inner.bits, np.hstack([inner.planes, np.full((len(inner.planes), dimension - len(columns)), -1)])
        )
    simple, crowded = touching == dimension, spanned & (touching > dimension)
    parts = [whole, *_simple(planes[simple], signs[simple]), *_crowded(points, planes[crowded], signs[crowded])]
    return _once(np.concatenate([bits for bits, _ in parts]), np.concatenate([through for _, through in parts]), count)


def _simple(planes: Integers, signs: Signs) -> Iterator[tuple[Bits, Integers]]:
    """Yield partings by hyperplanes with d points on them: these may lie on any side."""
    above, rows = np.packbits(signs > 0, axis=1), np.arange(len(planes))
    for pattern in itertools.product((False, True), repeat=planes.shape[1]):
        bits = above.copy()
        for place in itertools.compress(planes.T, pattern):
            bits[rows, place >> 3] |= (128 >> (place & 7)).astype(np.uint8)
        yield bits, planes


def _crowded(points: ExactPoints, planes: Integers, signs: Signs) -> Iterator[tuple[Bits, Integers]]:
    """Yield partings by hyperplanes with more than d points on them: by a hyperplane inside of them."""
    _, first = np.unique(np.packbits(signs == 0, axis=1), axis=0, return_index=True)
    for row in first:
        on = np.flatnonzero(signs[row] == 0)
        inner = find_partitions(points.part(on, columns_within(points, planes[row])))
        below = np.unpackbits(inner.bits, axis=1, count=on.size).astype(np.bool_)
        labels = np.repeat(signs[np.newaxis, row] > 0, 2 * len(below), axis=0)
        labels[:, on] = np.concatenate([below, ~below])
        yield np.packbits(labels, axis=1), np.repeat(planes[np.newaxis, row], len(labels), axis=0)


def columns_within(points: ExactPoints, plane: Integers) -> list[int]:
    """Return the coordinates that tell points of a hyperplane apart: all but one that its normal has."""
    normal = points.normals(plane[np.newaxis])[0]
    dropped = next(column for column, value in enumerate(normal) if value != 0)
    return [column for column in range(points.dimension) if column != dropped]


def _once(bits: Bits, planes: Integers, count: int) -> Partitions:
    """Return each parting once, with the first point's side as 0."""
    every = np.packbits(np.ones(count, dtype=np.bool_))
    bits = np.where(bits[:, :1] & 128, bits ^ every, bits)
    first = first_rows(bits)
    return Partitions(bits[first], planes[first])


def first_rows(bits: Bits) -> Integers:
    """Return the place of the first of each kind of row.

    Rows are sorted by a mark of 64 bits, which is checked: should two kinds share one, rows are compared themselves.
    """
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    words, marks = padded.view(np.uint64), np.zeros(len(bits), dtype=np.uint64)
    for word in words.T:
        marks = (marks ^ word) * np.uint64(0x9E3779B97F4A7C15)
        marks ^= marks >> np.uint64(29)
        marks *= np.uint64(0xBF58476D1CE4E5B9)
        marks ^= marks >> np.uint64(32)
    _, first, kind = np.unique(marks, return_index=True, return_inverse=True)
    if not (words == words[first[kind]]).all():
        _, first = np.unique(words, axis=0, return_index=True)
    return np.sort(first)
