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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.concepts.points import Points

__all__ = ["Faces", "Lines", "find_faces", "nearest"]

Values = NDArray[np.float64]
Whole = NDArray[np.int64]
Bits = NDArray[np.uint8]

_ROUNDING = 2.0**-51


class Lines:
    """Different lines, sorted by slope and then by intercept, in fractions, with floats beside them.

    >>> Lines([Fraction(1), Fraction(-1)], [Fraction(0), Fraction(2)]).crossing(0, 1)
    Fraction(1, 1)
    """

    def __init__(self, slopes: Sequence[Fraction], intercepts: Sequence[Fraction]) -> None:
        self.order = sorted(range(len(slopes)), key=lambda line: (slopes[line], intercepts[line]))
        self.slopes = [slopes[line] for line in self.order]
        self.intercepts = [intercepts[line] for line in self.order]
        steeper = [here != before for before, here in itertools.pairwise(self.slopes)]
        self.ranks = np.cumsum([0, *steeper]) if self.slopes else np.empty(0, dtype=np.int64)  # equal if parallel
        self._slope, self._slope_error = _rounded(self.slopes)
        self._intercept, self._intercept_error = _rounded(self.intercepts)

    def __len__(self) -> int:
        return len(self.slopes)

    def crossing(self, one: int, other: int) -> Fraction:
        """Return where two lines that are not parallel cross.

        >>> Lines([Fraction(0), Fraction(1)], [Fraction(3), Fraction(0)]).crossing(1, 0)
        Fraction(3, 1)
        """
        return (self.intercepts[other] - self.intercepts[one]) / (self.slopes[one] - self.slopes[other])

    def along(self, line: int) -> tuple[Whole, Whole, Values]:
        """Return the lines that cross this one, from left to right, which vertex each passes, and about where it is.

        >>> lines = Lines([Fraction(0), Fraction(1), Fraction(2)], [Fraction(0), Fraction(-1), Fraction(-2)])
        >>> lines.along(0)
        (array([1, 2]), array([0, 0]), array([1., 1.]))
        """
        others = np.flatnonzero(self.ranks != self.ranks[line])
        places, errors = self._places(line, others)
        order = np.argsort(places, kind="stable")
        others, places, errors = others[order], places[order], errors[order]
        sure = np.maximum.accumulate(places + errors)[:-1] < np.minimum.accumulate((places - errors)[::-1])[::-1][1:]
        vertices = np.concatenate([[0], np.cumsum(sure)])[: others.size]
        if sure.all():
            return others, vertices, places
        return self._settled(line, others, vertices, places)

    def _places(self, line: int, others: Whole) -> tuple[Values, Values]:
        """Return about where the others cross a line, and how far off that may be."""
        with np.errstate(all="ignore"):
            rise = self._intercept[others] - self._intercept[line]
            turn = self._slope[line] - self._slope[others]
            rise_error = self._intercept_error[others] + self._intercept_error[line] + _ROUNDING * np.abs(rise)
            turn_error = self._slope_error[others] + self._slope_error[line] + _ROUNDING * np.abs(turn)
            places = rise / turn
            errors = 2 * (rise_error + np.abs(places) * turn_error) / (np.abs(turn) - turn_error)
            errors += _ROUNDING * np.abs(places) + 1e-290
        open_ = ~(np.isfinite(places) & np.isfinite(errors) & (np.abs(turn) > 2 * turn_error))
        places[open_], errors[open_] = 0.0, np.inf
        return places, errors

    def _settled(self, line: int, others: Whole, runs: Whole, places: Values) -> tuple[Whole, Whole, Values]:
        """Sort exactly what floats leave open: within a run of neighbours, by fractions."""
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        ends = np.append(starts[1:], runs.size)
        new = np.zeros(runs.size, dtype=np.bool_)  # which begin another vertex
        new[starts] = True
        for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
            exact = sorted((self.crossing(line, int(other)), int(other)) for other in others[start:end])
            others[start:end] = [other for _, other in exact]
            places[start:end] = [nearest(place) for place, _ in exact]
            new[start + 1 : end] = [here[0] != before[0] for before, here in itertools.pairwise(exact)]
        return others, np.cumsum(new) - 1, places


class Faces(NamedTuple):
    """One row of bits for each face, 1 for each line that it lies above; about a point of it; and, asked for, exactly.

    >>> find_faces(Lines([Fraction(0)], [Fraction(0)])).bits
    array([[  0],
           [128]], dtype=uint8)
    """

    bits: Bits
    centres: Points
    exact: list[tuple[Fraction, Fraction]]


class _Table:
    """All orders along lines: for each line and each other line the vertex, and about where each vertex is."""

    def __init__(self, lines: Lines) -> None:
        count = len(lines)
        self.lines = lines
        self.vertex = np.full((count, count), -1, dtype=np.int32)
        self.place = np.full((count, count + 1), np.inf)
        self.through = np.full((count, count + 1), -1, dtype=np.int32)  # a line through each vertex
        for line in range(count):
            others, vertices, places = lines.along(line)
            self.vertex[line, others] = vertices
            self.place[line, vertices] = places
            self.through[line, vertices] = others
        found = self.place[np.isfinite(self.place)]
        width = float(np.median(np.abs(found - np.median(found)))) if found.size else 0.0
        self.step = width if 0 < width < math.inf else 1.0  # how far a point is put into a face, at most


def find_faces(lines: Lines, *, exact: bool = False) -> Faces:
    """Return all faces: those of the far left from the bottom to the top, then the others line by line.

    With `exact` a point inside of each is given in fractions as well.

    >>> find_faces(Lines([Fraction(0), Fraction(1)], [Fraction(0), Fraction(0)])).bits.ravel().tolist()
    [0, 64, 192, 128]
    """
    if len(lines) == 0:
        return Faces(np.zeros((1, 0), dtype=np.uint8), np.zeros((1, 2)), [(Fraction(0), Fraction(0))])
    table = _Table(lines)
    left = _far_left(table)
    bits, centres, inside = [left.bits], [left.centres], list(left.exact)
    for line, vertices, steeper in _right_of_vertices(table):
        bits.append(_bits_right_of(table, line, vertices))
        centres.append(_between(table, line, vertices, steeper))
        if exact:
            inside += [_exactly_between(table, line, int(v), int(b)) for v, b in zip(vertices, steeper, strict=True)]
    return Faces(np.concatenate(bits), np.concatenate(centres), inside if exact else [])


def _right_of_vertices(table: _Table) -> Iterator[tuple[int, Whole, Whole]]:
    """Yield for each line the vertices that a steeper line passes, and the least steep of those."""
    ranks = table.lines.ranks
    for line in range(len(table.lines)):
        steeper = np.flatnonzero(ranks > ranks[line])  # in rising order of slope
        vertices, first = np.unique(table.vertex[line, steeper], return_index=True)
        if vertices.size:
            yield line, vertices.astype(np.int64), steeper[first]


def _bits_right_of(table: _Table, line: int, vertices: Whole) -> Bits:
    """Return the bits of the faces right of these vertices and above this line.

    A steeper line is above from its vertex on, a less steep one below from its vertex on.
    """
    ranks, vertex = table.lines.ranks, table.vertex[line].astype(np.int32)
    alike = ranks == ranks[line]
    vertex[alike] = np.where(np.arange(len(ranks))[alike] <= line, len(ranks) + 1, -1)  # sorted by intercept
    above = vertex[np.newaxis, :] > vertices.astype(np.int32)[:, np.newaxis]
    above ^= ranks < ranks[line]
    return np.packbits(above, axis=1)


def _between(table: _Table, line: int, vertices: Whole, steeper: Whole) -> Points:
    """Return a point of each face: before the next vertex on either line, and halfway between the lines."""
    lines, here = table.lines, table.place[line, vertices]
    beyond = np.minimum(table.place[line, vertices + 1], table.place[steeper, table.vertex[steeper, line] + 1])
    with np.errstate(all="ignore"):
        x = here + np.minimum(beyond / 2 - here / 2, table.step)
        below = lines._slope[line] * x + lines._intercept[line]
        above = lines._slope[steeper] * x + lines._intercept[steeper]
        return np.stack([x, below / 2 + above / 2], axis=1)


def _exactly_between(table: _Table, line: int, vertex: int, steeper: int) -> tuple[Fraction, Fraction]:
    lines = table.lines
    here = lines.crossing(line, steeper)
    following = [
        (line, table.through[line, vertex + 1]),
        (steeper, table.through[steeper, table.vertex[steeper, line] + 1]),
    ]
    beyond = [lines.crossing(one, int(other)) for one, other in following if other >= 0]
    x = here + min([(place - here) / 2 for place in beyond] + [Fraction(table.step)])
    heights = [lines.slopes[each] * x + lines.intercepts[each] for each in (line, steeper)]
    return x, (heights[0] + heights[1]) / 2


def _far_left(table: _Table) -> Faces:
    """Return the faces left of all vertices, from the bottom to the top."""
    lines = table.lines
    count = len(lines)
    upwards = sorted(range(count), key=lambda line: (-lines.ranks[line], line))
    above = np.zeros((count + 1, count), dtype=np.bool_)
    for place, line in enumerate(upwards):
        above[place + 1 :, line] = True
    inside = [_left_between(table, pair) for pair in itertools.pairwise([None, *upwards, None])]
    return Faces(np.packbits(above, axis=1), np.array([[nearest(x), nearest(y)] for x, y in inside]), inside)


def _left_between(table: _Table, pair: tuple[int | None, int | None]) -> tuple[Fraction, Fraction]:
    """Return a point between two neighbours on the far left, or beyond the last: before the first vertex on them."""
    lines, step = table.lines, Fraction(table.step)
    met = [(line, int(table.through[line, 0])) for line in pair if line is not None]
    x = min((lines.crossing(line, other) for line, other in met if other >= 0), default=step) - step
    below, above = (None if line is None else lines.slopes[line] * x + lines.intercepts[line] for line in pair)
    if below is not None and above is not None:
        return x, (below + above) / 2
    return x, above - step if above is not None else (below or Fraction(0)) + step


def _rounded(values: Sequence[Fraction]) -> tuple[Values, Values]:
    """Return numbers as floats, and how far off each may be: not at all where it is one."""
    floats = np.array([nearest(value) for value in values], dtype=np.float64)
    same = [
        math.isfinite(near) and value == Fraction(near) for value, near in zip(values, floats.tolist(), strict=True)
    ]
    return floats, np.where(same, 0.0, _ROUNDING * np.abs(floats) + 1e-290)


def nearest(value: Fraction) -> float:
    """Return the float nearest to a number, or infinity.

    >>> nearest(Fraction(1, 2)), nearest(Fraction(-(10**400)))
    (0.5, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
