"""Exact signs of points relative to the hyperplanes that other points span, for any float coordinates."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible
from quorate.core.hypotheses.concept import Points

_AT_ONCE = 2**22  # signs held at a time

Signs = NDArray[np.int8]


def cofactors(vectors: Any, *, absolute: bool = False) -> Any:
    """Return the normals of the hyperplanes that d - 1 vectors span in d dimensions, for floats or whole numbers.

    With `absolute` nothing is subtracted: the result bounds how far rounding can carry the normal.
    """
    dimension = vectors.shape[2]
    signs = [1 if absolute or column % 2 == 0 else -1 for column in range(dimension)]
    minors = [_determinant(np.delete(vectors, column, axis=2), absolute=absolute) for column in range(dimension)]
    return np.stack([sign * minor for sign, minor in zip(signs, minors, strict=True)], axis=1)


def _determinant(matrices: Any, *, absolute: bool) -> Any:
    size = matrices.shape[2]
    if size == 0:
        return np.ones(len(matrices), dtype=matrices.dtype)
    return (matrices[:, 0] * cofactors(matrices[:, 1:], absolute=absolute)).sum(axis=1)


class ExactPoints:
    """Points whose signs relative to spanned hyperplanes are exact.

    Small whole coordinates are computed with as 64-bit integers. Others are floats with a bound on what rounding can
    do; where the bound leaves the sign open, integers of any length decide it.
    """

    def __init__(self, points: Points) -> None:
        self.points, self.dimension = points, points.shape[1]
        exact = [[Fraction(value) for value in row] for row in points.tolist()]
        self.unit = max((value.denominator for row in exact for value in row), default=1)  # a power of two
        integers = [[int(value * self.unit) for value in row] for row in exact]
        self.whole = np.array(integers, dtype=object).reshape(points.shape)
        largest = max((abs(value) for row in integers for value in row), default=0)
        fits = math.factorial(self.dimension) * (2 * largest + 1) ** self.dimension * 2 * (self.dimension + 1) < 2**62
        self._small = self.whole.astype(np.int64) if fits else None
        self._sizes = np.abs(points)
        # Scale point by point, so that an outlier slows down only its own signs. A product of d differences
        # of moderate coordinates is below 2**(600 + d): nothing overflows, and d! of them with room to spare.
        self._moderate = self._sizes.max(axis=1, initial=0) < (
            2.0 ** (600 // self.dimension) if self.dimension <= 6 else 0
        )

    def __len__(self) -> int:
        return len(self.points)

    def part(self, rows: Any, columns: list[int]) -> "ExactPoints":
        """Return some of the points, and some of their coordinates."""
        return ExactPoints(np.ascontiguousarray(self.points[rows][:, columns]))

    def normals(self, planes: Integers) -> Any:
        """Return the normals of the hyperplanes through these points, in whole numbers of any length."""
        return cofactors(self.whole[planes[:, 1:]] - self.whole[planes[:, :1]])

    def signs(self, planes: Integers) -> Signs:
        """Return for each hyperplane, given by the places of d points, the side of every point: 1, -1, or 0 on it.

        All are 0 where the d points do not span a hyperplane.
        """
        step = max(1, _AT_ONCE // max(1, len(self)))
        parts = [self._signs(planes[start : start + step]) for start in range(0, len(planes), step)]
        return np.concatenate([np.empty((0, len(self)), dtype=np.int8), *parts])

    def _signs(self, planes: Integers) -> Signs:
        if self._small is not None:
            origin = self._small[planes[:, 0]]
            normals = cofactors(self._small[planes[:, 1:]] - origin[:, np.newaxis])
            heights: Integers = normals @ self._small.T - (normals * origin).sum(axis=1, keepdims=True)
            return np.sign(heights).astype(np.int8)
        signs, decided = self._float_signs(planes)
        np.put_along_axis(decided, planes, True, axis=1)  # the points that span it lie on it
        np.put_along_axis(signs, planes, 0, axis=1)
        self._settle(planes, signs, *np.nonzero(~decided))
        return signs

    def _float_signs(self, planes: Integers) -> tuple[Signs, NDArray[np.bool_]]:
        """Return the signs computed in floats, and a mask of the certain ones."""
        planes, turned = self._from_the_nearest(planes)
        with np.errstate(all="ignore"):
            base, near = self.points[planes[:, 0]], self._sizes[planes[:, 0]]
            vectors = self.points[planes[:, 1:]] - base[:, np.newaxis]
            normals, sizes = cofactors(vectors), cofactors(np.abs(vectors), absolute=True)
            normals[turned] *= -1
            values = normals @ self.points.T
            values -= (normals * base).sum(axis=1, keepdims=True)
            # On the way to a value lie fewer than 8 d**2 differences, products and sums, each rounded by 2**-53. What
            # a product loses below the smallest float grows to at most 2**-540 on the way.
            sizes *= self.dimension**2 * 2.0**-49
            bounds = sizes @ self._sizes.T
            bounds += (sizes * near).sum(axis=1, keepdims=True) + 2.0**-500
            above, below = values > bounds, values < -bounds
        sure = self._moderate[planes].all(axis=1)[:, np.newaxis] & self._moderate
        above &= sure
        below &= sure
        signs: Signs = above.view(np.int8) - below.view(np.int8)
        return signs, above | below

    def _from_the_nearest(self, planes: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """Return planes with the point nearest to the origin first, and a mask of the planes whose sign this flips.

        Heights are measured from the first point: a distant one would cancel the digits of the differences.
        """
        nearest = self._sizes.max(axis=1, initial=0)[planes].argmin(axis=1)
        rows, exchanged = np.arange(len(planes)), planes.copy()
        exchanged[:, 0], exchanged[rows, nearest] = planes[rows, nearest], planes[:, 0]
        return exchanged, nearest != 0

    def _settle(self, planes: Integers, signs: Signs, which: Integers, targets: Integers) -> None:
        distinct, normal_numbers = np.unique(which, return_inverse=True)
        normals, base = self.normals(planes[distinct]), self.whole[planes[distinct, 0]]
        for start in range(0, which.size, _AT_ONCE // 16):
            part = slice(start, start + _AT_ONCE // 16)
            away = self.whole[targets[part]] - base[normal_numbers[part]]
            values = (normals[normal_numbers[part]] * away).sum(axis=1)
            signs[which[part], targets[part]] = (values > 0).astype(np.int8) - (values < 0).astype(np.int8)

    def spanning_columns(self) -> list[int]:
        """Return coordinates, one for each dimension of the points' span, in which the points stay distinct."""
        rows = [[Fraction(value) for value in row] for row in (self.whole - self.whole[:1]).tolist()]
        columns: list[int] = []
        for column in range(self.dimension):
            pivot = next((row for row in rows if row[column] != 0), None)
            if pivot is None:
                continue
            columns.append(column)
            rows = [
                [value - row[column] / pivot[column] * other for value, other in zip(row, pivot, strict=True)]
                for row in rows
                if row is not pivot
            ]
        return columns


_MEMORY = 2**30  # bytes for signs and for partings, with duplicates

Bits = NDArray[np.uint8]


class Partitions(NamedTuple):
    """One row of bits for each parting, 0 on the side of the first point; and d points that span a hyperplane of it."""

    bits: Bits
    planes: Integers  # -1 where all points lie on one side


def check_partitions(points: int, dimension: int) -> None:
    """Refuse a number of points that has too many hyperplanes to go through."""
    bytes_per_plane = points + 3 * (1 << dimension) * ((points + 7) // 8)
    partitions = math.comb(points, dimension) * bytes_per_plane
    if partitions > _MEMORY:
        raise Infeasible(
            f"the hyperplanes through {dimension} of {points} points take {partitions / 2**30:.1f} GiB, above "
            f"{_MEMORY / 2**30:.1f}; pass fewer points"
        )


def find_partitions(points: ExactPoints) -> Partitions:
    """Return every parting of these points, which are all different, once."""
    count, dimension = len(points), points.dimension
    one_sided = np.zeros((1, (count + 7) // 8), dtype=np.uint8), np.full((1, dimension), -1)
    if count == 0:
        return Partitions(*one_sided)
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
    parts = [one_sided, *_simple(planes[simple], signs[simple]), *_crowded(points, planes[crowded], signs[crowded])]
    return _once(np.concatenate([bits for bits, _ in parts]), np.concatenate([through for _, through in parts]), count)


def _simple(planes: Integers, signs: Signs) -> Iterator[tuple[Bits, Integers]]:
    """Yield partings by hyperplanes with exactly d points on them, which may fall on either side."""
    above, rows = np.packbits(signs > 0, axis=1), np.arange(len(planes))
    for pattern in itertools.product((False, True), repeat=planes.shape[1]):
        bits = above.copy()
        for corner in itertools.compress(planes.T, pattern):
            bits[rows, corner >> 3] |= (128 >> (corner & 7)).astype(np.uint8)
        yield bits, planes


def _crowded(points: ExactPoints, planes: Integers, signs: Signs) -> Iterator[tuple[Bits, Integers]]:
    """Yield partings by hyperplanes with more than d points on them; a lower-dimensional hyperplane parts these."""
    _, first = np.unique(np.packbits(signs == 0, axis=1), axis=0, return_index=True)
    for row in first:
        on = np.flatnonzero(signs[row] == 0)
        inner = find_partitions(points.part(on, columns_within(points, planes[row])))
        below = np.unpackbits(inner.bits, axis=1, count=on.size).astype(np.bool_)
        labels = np.repeat(signs[np.newaxis, row] > 0, 2 * len(below), axis=0)
        labels[:, on] = np.concatenate([below, ~below])
        yield np.packbits(labels, axis=1), np.repeat(planes[np.newaxis, row], len(labels), axis=0)


def columns_within(points: ExactPoints, plane: Integers) -> list[int]:
    """Return coordinates in which points of a hyperplane stay distinct: all but one where its normal is not zero."""
    normal = points.normals(plane[np.newaxis])[0]
    dropped = next(column for column, value in enumerate(normal) if value != 0)
    return [column for column in range(points.dimension) if column != dropped]


def _once(bits: Bits, planes: Integers, count: int) -> Partitions:
    """Return the distinct partings, with the first point's side as 0."""
    every = np.packbits(np.ones(count, dtype=np.bool_))
    bits = np.where(bits[:, :1] & 128, bits ^ every, bits)
    first = first_rows(bits)
    return Partitions(bits[first], planes[first])


def first_rows(bits: Bits) -> Integers:
    """Return the index of the first occurrence of each distinct row.

    Rows are sorted by a 64-bit hash, which is checked: if two distinct rows collide, the rows themselves are compared.
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
