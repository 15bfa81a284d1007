"""The faces into which lines cut the plane, exactly.

Lines are y = slope x + intercept, none of them upright. A face that does not reach to the far left has one leftmost
vertex v, and there it lies between two lines through v that are neighbours by slope, on their right. So every vertex
is gone through along each line a that passes it: if b is the next steeper line through v, the face right of v between
a and b is found there, and nowhere else. The faces on the far left lie between the lines in their order there. On a
line, vertices are sorted by floats with a bound on rounding; where the bound leaves an order open, by fractions.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.hypotheses.concept import Points

Values = NDArray[np.float64]
Bits = NDArray[np.uint8]
Flags = NDArray[np.bool_]

_ROUNDING = 2.0**-51


class Lines:
    """Different lines, sorted by slope and then by intercept, in fractions, with floats beside them."""

    def __init__(self, slopes: Sequence[Fraction], intercepts: Sequence[Fraction]) -> None:
        self.order = sorted(range(len(slopes)), key=lambda line: (slopes[line], intercepts[line]))
        self.slopes = [slopes[line] for line in self.order]
        self.intercepts = [intercepts[line] for line in self.order]
        steeper = [here != previous for previous, here in itertools.pairwise(self.slopes)]
        self.ranks = np.cumsum([0, *steeper]) if self.slopes else np.empty(0, dtype=np.int64)  # equal if parallel
        self.float_slopes, self._slope_error = _to_floats(self.slopes)
        self.float_intercepts, self._intercept_error = _to_floats(self.intercepts)

    def __len__(self) -> int:
        return len(self.slopes)

    def crossing(self, line: int, other: int) -> Fraction:
        """Return the crossing of two lines that are not parallel."""
        return (self.intercepts[other] - self.intercepts[line]) / (self.slopes[line] - self.slopes[other])

    def along(self, line: int) -> tuple[Integers, Integers, Values]:
        """Return the lines that cross this one, from left to right, with their vertices and approximate positions."""
        crossings = np.flatnonzero(self.ranks != self.ranks[line])
        abscissas, errors = self._places(line, crossings)
        order = np.argsort(abscissas, kind="stable")
        crossings, abscissas, errors = crossings[order], abscissas[order], errors[order]
        sure = (
            np.maximum.accumulate(abscissas + errors)[:-1] < np.minimum.accumulate((abscissas - errors)[::-1])[::-1][1:]
        )
        vertices = np.concatenate([[0], np.cumsum(sure)])[: crossings.size]
        if sure.all():
            return crossings, vertices, abscissas
        return self._sort_exactly(line, crossings, vertices, abscissas)

    def _places(self, line: int, crossings: Integers) -> tuple[Values, Values]:
        """Return approximate crossings of the other lines with a line, and their error bounds."""
        with np.errstate(all="ignore"):
            rise = self.float_intercepts[crossings] - self.float_intercepts[line]
            turn = self.float_slopes[line] - self.float_slopes[crossings]
            rise_error = self._intercept_error[crossings] + self._intercept_error[line] + _ROUNDING * np.abs(rise)
            turn_error = self._slope_error[crossings] + self._slope_error[line] + _ROUNDING * np.abs(turn)
            abscissas = rise / turn
            errors = 2 * (rise_error + np.abs(abscissas) * turn_error) / (np.abs(turn) - turn_error)
            errors += _ROUNDING * np.abs(abscissas) + 1e-290
        open_ = ~(np.isfinite(abscissas) & np.isfinite(errors) & (np.abs(turn) > 2 * turn_error))
        abscissas[open_], errors[open_] = 0.0, np.inf
        return abscissas, errors

    def _sort_exactly(
        self, line: int, crossings: Integers, runs: Integers, abscissas: Values
    ) -> tuple[Integers, Integers, Values]:
        """Sort by fractions within each run of neighbours whose order floats leave open."""
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        ends = np.append(starts[1:], runs.size)
        new = np.zeros(runs.size, dtype=np.bool_)  # which begin another vertex
        new[starts] = True
        for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
            exact = sorted((self.crossing(line, int(other)), int(other)) for other in crossings[start:end])
            crossings[start:end] = [other for _, other in exact]
            abscissas[start:end] = [nearest(abscissa) for abscissa, _ in exact]
            new[start + 1 : end] = [here[0] != previous[0] for previous, here in itertools.pairwise(exact)]
        return crossings, np.cumsum(new) - 1, abscissas


class Faces:
    """All faces, in chains: those of the far left from the bottom to the top, then for each line those found along it.

    Along a chain a steeper line is crossed upwards once and a less steep one downwards once, so which lines a face lies
    above is known from where each line is crossed: `turns`. Sums over all faces take no more steps than there are
    faces and pairs of lines.
    """

    def __init__(self, table: "_Table") -> None:
        lines, count = table.lines, len(table.lines)
        self._ranks, self.lines = lines.ranks, count
        self.upwards = np.array(sorted(range(count), key=lambda line: (-lines.ranks[line], line)), dtype=np.int64)
        self._turns = np.zeros((count, count), dtype=np.int32)
        self.along: list[
            tuple[int, Integers, Integers]
        ] = []  # of each chain the line, the vertices and the next steeper line
        for line in range(count):
            steeper = np.flatnonzero(lines.ranks > lines.ranks[line])  # in rising order of slope
            vertices, first = np.unique(table.vertex[line, steeper], return_index=True)
            self._turns[line] = np.searchsorted(vertices, table.vertex[line])
            self.along.append((line, vertices.astype(np.int64), steeper[first]))
        sizes = [count + 1, *(vertices.size for _, vertices, _ in self.along)]
        self._starts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _compared(self) -> tuple[Flags, Flags, Flags]:
        """Return for each chain which lines are steeper, less steep, and parallel and not above it."""
        here, there = self._ranks[:, np.newaxis], self._ranks[np.newaxis, :]
        numbers = np.arange(self.lines)
        return there > here, there < here, (there == here) & (numbers[np.newaxis, :] <= numbers[:, np.newaxis])

    def above(self, line: int) -> Flags:
        """Return which faces lie above a line."""
        leftmost = np.zeros(self.lines + 1, dtype=np.bool_)
        leftmost[int(np.flatnonzero(self.upwards == line)[0]) + 1 :] = True
        sizes = np.diff(self._starts[1:])
        inner = np.arange(self._starts[1], len(self)) - np.repeat(self._starts[1:-1], sizes)
        precedes = inner < np.repeat(self._turns[:, line], sizes)
        rank, numbers = self._ranks[line], np.arange(self.lines)
        parallel = self._ranks == rank
        fixed = np.repeat(parallel & (line <= numbers), sizes)
        chain = np.where(np.repeat(self._ranks > rank, sizes), ~precedes, precedes)  # a chain steeper than the line
        return np.concatenate([leftmost, np.where(np.repeat(parallel, sizes), fixed, chain)])

    def bits(self) -> Bits:
        """Return one row of bits for each face, 1 for each line that it lies above."""
        every = [self.above(line) for line in range(self.lines)]
        return np.packbits(np.array(every, dtype=np.bool_).reshape(self.lines, len(self)).T, axis=1)

    def sums(self, weights: Values) -> Values:
        """Return for each line the sum of the weights of the faces above it."""
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        starts, ends = sums[self._starts[1:-1]], sums[self._starts[2:]]
        steeper, flatter, parallel = self._compared()
        turned = sums[self._starts[1:-1, np.newaxis] + self._turns]
        turned *= steeper.astype(np.int8) - flatter.astype(np.int8)
        above = turned.sum(axis=0) - starts @ steeper + ends @ flatter + (ends - starts) @ parallel
        above[self.upwards] += sums[self._starts[1]] - sums[1 : self.lines + 1]
        return np.asarray(above)

    def spread(self, values: Any) -> Any:
        """Return for each face the sum of the values of the lines that it lies above, for floats or 64-bit words."""
        zero = np.zeros(1, dtype=values.dtype)
        leftmost = np.concatenate([zero, np.cumsum(values[self.upwards], dtype=values.dtype)])
        steeper, flatter, parallel = self._compared()
        sizes = np.diff(self._starts[1:])
        slots = self._starts[1:-1] - self._starts[1] + np.arange(self.lines)  # one slot more for each chain
        steps = np.zeros(int(sizes.sum()) + self.lines, dtype=values.dtype)
        for line in range(self.lines):
            np.subtract.at(steps, slots[line] + self._turns[line, steeper[line]], values[steeper[line]])
            np.add.at(steps, slots[line] + self._turns[line, flatter[line]], values[flatter[line]])
            part = steps[slots[line] : slots[line] + sizes[line] + 1]
            is_counted = steeper[line] | parallel[line]
            part[:1] += values[is_counted].sum(dtype=values.dtype, keepdims=True)  # words wrap around
            np.cumsum(part, out=part)
        is_face = np.ones(steps.size, dtype=np.bool_)
        is_face[slots + sizes] = False
        return np.concatenate([leftmost, steps[is_face]])


class _Table:
    """All orders along lines: the vertex of each pair of lines, and its approximate position."""

    def __init__(self, lines: Lines) -> None:
        count = len(lines)
        self.lines = lines
        self.vertex = np.full((count, count), -1, dtype=np.int32)
        self.place = np.full((count, count + 1), np.inf)
        self.through = np.full((count, count + 1), -1, dtype=np.int32)  # a line through each vertex
        for line in range(count):
            crossings, vertices, abscissas = lines.along(line)
            self.vertex[line, crossings] = vertices
            self.place[line, vertices] = abscissas
            self.through[line, vertices] = crossings
        finite = self.place[np.isfinite(self.place)]
        with np.errstate(all="ignore"):
            width = float(np.median(np.abs(finite - np.median(finite)))) if finite.size else 0.0
        self.step = width if 0 < width < math.inf else 1.0  # largest distance of a point from the boundary of its face


def find_points(lines: Lines) -> tuple[Faces, Points]:
    """Return all faces, and an approximate point of each."""
    table = _Table(lines)
    faces = Faces(table)
    leftmost = np.array([[nearest(x), nearest(y)] for x, y in _left_points(table, faces)])
    inner = [_between(table, *chain) for chain in faces.along]
    return faces, np.concatenate([leftmost, *inner])


def find_exact_points(lines: Lines) -> tuple[Faces, list[tuple[Fraction, Fraction]]]:
    """Return all faces, and a point inside of each."""
    table = _Table(lines)
    faces = Faces(table)
    points = list(_left_points(table, faces))
    for line, vertices, steeper in faces.along:
        points += [_exactly_between(table, line, int(v), int(b)) for v, b in zip(vertices, steeper, strict=True)]
    return faces, points


def _between(table: _Table, line: int, vertices: Integers, steeper: Integers) -> Points:
    """Return a point of each face: before the next vertex on either line, and halfway between the lines."""
    lines, here = table.lines, table.place[line, vertices]
    beyond = np.minimum(table.place[line, vertices + 1], table.place[steeper, table.vertex[steeper, line] + 1])
    with np.errstate(all="ignore"):
        x = here + np.minimum(beyond / 2 - here / 2, table.step)
        below = lines.float_slopes[line] * x + lines.float_intercepts[line]
        above = lines.float_slopes[steeper] * x + lines.float_intercepts[steeper]
        return np.stack([x, below / 2 + above / 2], axis=1)


def _exactly_between(table: _Table, line: int, vertex: int, steeper: int) -> tuple[Fraction, Fraction]:
    lines = table.lines
    here = lines.crossing(line, steeper)
    following = [
        (line, table.through[line, vertex + 1]),
        (steeper, table.through[steeper, table.vertex[steeper, line] + 1]),
    ]
    beyond = [lines.crossing(first, int(other)) for first, other in following if other >= 0]
    x = here + min([(end - here) / 2 for end in beyond] + [Fraction(table.step)])
    heights = [lines.slopes[side] * x + lines.intercepts[side] for side in (line, steeper)]
    return x, (heights[0] + heights[1]) / 2


def _left_points(table: _Table, faces: Faces) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield a point of each face of the far left: before the first vertex on either of the lines around it."""
    lines, step = table.lines, Fraction(table.step)
    for pair in itertools.pairwise([None, *faces.upwards.tolist(), None]):
        met = [(line, int(table.through[line, 0])) for line in pair if line is not None]
        x = min((lines.crossing(line, other) for line, other in met if other >= 0), default=step) - step
        below, above = (None if line is None else lines.slopes[line] * x + lines.intercepts[line] for line in pair)
        if below is not None and above is not None:
            yield x, (below + above) / 2
        else:
            yield x, above - step if above is not None else (below or Fraction(0)) + step


def _to_floats(values: Sequence[Fraction]) -> tuple[Values, Values]:
    """Return numbers as floats with error bounds, which are 0 where a number is a float."""
    floats = np.array([nearest(value) for value in values], dtype=np.float64)
    same = [
        math.isfinite(near) and value == Fraction(near) for value, near in zip(values, floats.tolist(), strict=True)
    ]
    return floats, np.where(same, 0.0, _ROUNDING * np.abs(floats) + 1e-290)


def nearest(value: Fraction) -> float:
    """Return the float nearest to a number, or infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
