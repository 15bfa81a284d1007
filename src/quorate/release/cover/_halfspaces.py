"""The cover of halfspaces in the plane: a line for each parting of the public points, and the faces of these lines.

A line y = slope x + intercept is a point of the dual plane, and a public point is a line there: the lines that part
the public points alike are a face of those. So the faces of the public points' duals give one line for each parting
(upright ones are not needed: a very steep one parts the same), and the faces of these lines are the cells. What lies on
a line counts as below it, as if all were moved down by less than any distance: so every point lies in a face.
"""

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Points
from quorate.models.concepts import Constant, Halfspace, Halfspaces, Hypothesis
from quorate.models.concepts.hyperplanes import first_rows
from quorate.release.cover._arrangement import Faces, Lines, find_exact_points, find_points, nearest
from quorate.release.cover.base import CellCover, check_public, key_labels
from quorate.release.queries import NOTHING, Queries, Rows, Whole
from quorate.release.queries.base import check_cells, check_numbers, check_weights

_DIGITS = 2000  # of a number in a text: 1e999999999 would take all of the memory
_AT_ONCE = 2**17  # sides computed at a time: they stay in the cache

Bits = NDArray[np.uint8]
Marks = NDArray[np.uint64]


class Sides(Queries):
    """Query r is the faces above line r, and the last query is all faces. The last cell is in no query."""

    cells: int

    def __init__(self, faces: Faces) -> None:
        self._found, self._lines, self._faces = faces, faces.lines, len(faces)
        self.count, self.cells = self._lines + 1, self._faces + 1

    @property
    def sensitivity(self) -> int:
        """A record that crosses all lines, or leaves the plane from above all of them, changes that many counts."""
        return self.count

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sum of the weights above each line, and of all faces."""
        faces = check_weights(weights, self.cells)[:-1]
        return np.append(self._found.sums(faces), faces.sum())

    def members(self, query: int) -> slice | NDArray[np.int64]:
        """Return the faces above a line, or all."""
        number = int(check_numbers(query, self.count))
        return slice(0, self._faces) if number == self._lines else np.flatnonzero(self._found.above(number))

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each face the sum of the values of the lines that it lies above."""
        by_query = check_weights(values, self.count)
        return np.append(self._found.spread(by_query[:-1]) + by_query[-1], 0.0)

    def __repr__(self) -> str:
        return f"Sides({self._lines} lines, {self._faces} faces)"


class HalfspaceCover(CellCover):
    """The cover of halfspaces: queries above each line, of all cells, below each line, and of the lines themselves."""

    queries: Sides
    kind = Halfspace

    def __init__(self, concept: Halfspaces, public: Any) -> None:
        if concept.features != 2:
            raise Infeasible(f"halfspaces must have 2 dimensions, got {concept.features}")
        points = check_public(concept, public)
        self._public = np.unique(points, axis=0)
        check_points(len(self._public))
        self.lines, self._numbers = _parting_lines(self._public)
        faces, self._centres = find_points(self.lines)
        self._normals, self._offsets = _scale_lines(self.lines)
        self._words, marks = _mark_faces(faces)
        self._faces = np.argsort(marks)
        self._marks = marks[self._faces]
        self.has_differences = len(self.lines) > 0  # the query below a line is all points minus those above it
        super().__init__(concept, points, Sides(faces))

    def _locate(self, points: Points) -> Any:
        faces = [self._faces[np.searchsorted(self._marks, self._mark(bits))] for bits in self._sides(points)]
        return np.concatenate([np.empty(0, dtype=np.int64), *faces])

    def _mark(self, bits: Bits) -> Marks:
        """Return the sum of the words of the lines that a point lies above, eight lines at a time."""
        marks = np.zeros(len(bits), dtype=np.uint64)
        for column, words in zip(bits.T, self._words, strict=True):
            marks += words[column]
        return marks

    def _sides(self, points: Points) -> Iterator[Bits]:
        """Yield which lines the points lie above, block by block."""
        step = max(1, _AT_ONCE // max(1, len(self.lines)))
        for start in range(0, len(points), step):
            part = points[start : start + step]
            with np.errstate(all="ignore"):
                values = part @ self._normals
                values -= self._offsets
                # A value is rounded by less than 2**-51 of the sizes that it is made of; slopes and offsets, too.
                bounds = (np.abs(part).sum(axis=1) + np.abs(self._offsets).max(initial=0)) * 2.0**-49 + 1e-290
                above = values > 0
                sure = np.abs(values, out=values) > bounds[:, np.newaxis]
            for row, line in [] if sure.all() else zip(*np.nonzero(~sure), strict=True):
                x, y = (Fraction(value) for value in part[row].tolist())
                above[row, line] = y > self.lines.slopes[line] * x + self.lines.intercepts[line]
            yield np.packbits(above, axis=1)

    def _number(self, hypothesis: Any) -> int:
        if isinstance(hypothesis, Constant):
            return len(self.lines) if hypothesis.label else NOTHING
        return self._numbers[key_labels(hypothesis.label_points(self._public))]

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the side of a line that a query is, or all and the side that is taken away."""
        plus, lines = np.asarray(numbers, dtype=np.int64), len(self.lines)
        turned = plus > lines
        return np.where(turned, lines, plus), np.where(turned, plus - lines - 1, NOTHING)

    def centres(self) -> Points:
        """Return a point of each face, to within rounding: a face may be too small to hold a float."""
        return np.concatenate([self._centres, np.full((1, 2), np.nan)])


def check_points(points: int) -> None:
    """Refuse a number of public points whose lines may have too many faces."""
    lines = points * (points - 1) // 2
    check_cells(1 + lines + lines * (lines - 1) // 2, f"halfspaces on {points} public points")


def _parting_lines(public: Points) -> tuple[Lines, dict[bytes, int]]:
    """Return one line for each parting of the points, and the query number of each dichotomy."""
    exact = [(Fraction(x), Fraction(y)) for x, y in public.tolist()]
    duals = Lines([-x for x, _ in exact], [y for _, y in exact])
    faces, inside = find_exact_points(duals)
    sorted_labels = 1 - np.unpackbits(faces.bits(), axis=1, count=len(public))  # a dual point below is a line below
    labels = np.empty_like(sorted_labels)
    labels[:, duals.order] = sorted_labels
    some = np.flatnonzero(labels.any(axis=1) & ~labels.all(axis=1))
    chosen = some[first_rows(np.packbits(labels[some] ^ labels[some, :1], axis=1))] if some.size else some
    parting = [_short(inside[face], exact, labels[face]) for face in chosen]
    lines = Lines([slope for slope, _ in parting], [intercept for _, intercept in parting])
    numbers = {key_labels(np.zeros(len(public))): NOTHING, key_labels(np.ones(len(public))): len(lines)}
    for number, position in enumerate(lines.order):
        numbers[key_labels(labels[chosen[position]])] = number
        numbers[key_labels(1 - labels[chosen[position]])] = len(lines) + 1 + number
    return lines, numbers


def _short(line: tuple[Fraction, Fraction], points: Any, labels: Any) -> tuple[Fraction, Fraction]:
    """Return the line with its numbers rounded to floats if it still parts the points alike."""
    try:
        short = Fraction(float(line[0])), Fraction(float(line[1]))
    except OverflowError:
        return line
    for (x, y), label in zip(points, labels, strict=True):
        height = y - short[0] * x - short[1]
        if height == 0 or (height > 0) != bool(label):
            return line
    return short


def _scale_lines(lines: Lines) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return normals, one a column, and offsets of the lines, as floats, with each normal scaled to entries up to 1."""
    normals, offsets = np.empty((2, len(lines))), np.empty(len(lines))
    for line, (slope, intercept) in enumerate(zip(lines.slopes, lines.intercepts, strict=True)):
        unit = max(abs(slope), Fraction(1))
        normals[:, line] = nearest(-slope / unit), nearest(1 / unit)
        offsets[line] = nearest(intercept / unit)
    return normals, offsets


def _mark_faces(faces: Faces) -> tuple[Marks, Marks]:
    """Return the sums of the words of eight lines for each byte, and a mark for each face: all marks differ.

    The mark of a face is the sum of the words of the lines that it lies above. Words are fixed numbers that look like
    random ones; if two faces share a mark, other words are tried.
    """
    for attempt in range(64):
        words = _mix_bits(np.arange(faces.lines, dtype=np.uint64) + np.uint64(attempt << 32))
        marks = faces.spread(words)
        if np.unique(marks).size == marks.size:
            break
    padded = np.zeros(-(-faces.lines // 8) * 8, dtype=np.uint64)
    padded[: faces.lines] = words
    bytes_ = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1).astype(np.uint64)
    return (bytes_[np.newaxis] * padded.reshape(-1, 1, 8)).sum(axis=2, dtype=np.uint64), marks


def _mix_bits(numbers: Marks) -> Marks:
    """Return words that look random, one for each number (Steele, Lea and Flood 2014)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def parse_halfspace(text: str, features: int) -> Hypothesis:
    """Return the halfspace that a text such as "a,b>c" says."""
    normal, _, offset = text.partition(">")
    try:
        level = tuple(_read_fraction(value) for value in normal.split(",")), _read_fraction(offset)
    except (ValueError, ArithmeticError):
        level = (), Fraction(0)
    if len(level[0]) != features or not any(level[0]):
        raise InvalidInput(f"a halfspace must have {features} coefficients and an offset, such as a,b>c, got {text!r}")
    return Halfspace(features=features, levels=(level,), otherwise=0)


def _read_fraction(text: str) -> Fraction:
    """Parse a number exactly, if it has few enough digits."""
    if "/" in text:
        return Fraction(text.strip())
    number = Decimal(text.strip())
    if not number.is_finite() or len(number.as_tuple().digits) + abs(number.adjusted()) > _DIGITS:
        raise ValueError
    return Fraction(number)
