"""Halfspaces."""

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.checks import check_count, set_validated
from quorate.core.hypotheses.concept import Concept, Dichotomies, Hypothesis, Labels, Points
from quorate.models.concepts.hyperplanes import ExactPoints, check_partitions, columns_within, find_partitions

_AT_ONCE = 2**24  # labels unpacked at a time
_LARGE, _TINY = 2**1000, Fraction(1, 2**600)  # between them a float has all digits, and products of some do not vanish

Level = tuple[tuple[Fraction, ...], Fraction]


@dataclass(frozen=True, kw_only=True, repr=False)
class Halfspace(Hypothesis):
    """A halfspace: label 1 if normal * x is above the offset, 0 if below; on a tie the next level decides.

    The first level is a hyperplane through points of the set that it was made for, and the next ones separate the
    points on it: on any finite set of points, this is a halfspace after a slight rotation. All comparisons are exact.
    """

    features: int
    levels: tuple[Level, ...]
    otherwise: int

    def __repr__(self) -> str:
        if not self.levels:
            return f"Halfspace(features={self.features}, otherwise={self.otherwise})"
        normal, offset = self.levels[0]
        coefficients = ", ".join(_text(value) for value in normal)
        rule = f"({coefficients}) * x > {_text(offset)}"
        return f"<Halfspace: label 1 where {rule}, and {len(self.levels) - 1} finer levels>"

    def _predict(self, points: Points) -> Any:
        labels = np.full(len(points), self.otherwise)
        undecided = np.arange(len(points))
        for level in self.levels:
            sides = _sides(level, points[undecided])
            labels[undecided[sides != 0]] = sides[sides != 0] > 0
            undecided = undecided[sides == 0]
        return labels


def _text(value: Fraction) -> str:
    """Return six digits of a number that may be larger than any float."""
    if abs(value) < _LARGE:
        return f"{float(value):.6g}"
    return f"{decimal.Context(prec=6).divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator)):.6g}"


def _sides(level: Level, points: Points) -> NDArray[np.int8]:
    """Return the sign of normal * x - offset for each point, exactly."""
    sides = np.zeros(len(points), dtype=np.int8)
    decided = np.zeros(len(points), dtype=np.bool_)
    if all(value == 0 or _TINY <= abs(value) < _LARGE for value in (*level[0], level[1])):
        normal, offset = np.array([float(value) for value in level[0]]), float(level[1])
        with np.errstate(all="ignore"):
            values, sizes = points @ normal - offset, np.abs(points) @ np.abs(normal) + abs(offset)
            decided = np.abs(values) > sizes * (2.0**-50 * (normal.size + 2)) + 1e-300
        sides[decided] = np.sign(values[decided])
    for row in np.flatnonzero(~decided):
        value = sum(a * Fraction(b) for a, b in zip(level[0], points[row].tolist(), strict=True)) - level[1]
        sides[row] = (value > 0) - (value < 0)
    return sides


@dataclass(frozen=True)
class Halfspaces(Concept):
    """All halfspaces, and the two constants.

    There are about n**features dichotomies of n points, and all are listed: this works for 500 points in the plane and
    150 in space. In more dimensions, or for more private rows, use the dichotomies of a few public points as
    candidates.

    >>> square = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> len(Halfspaces(2).dichotomies(square))  # all 16 but the two diagonals
    14
    """

    features: int

    def __post_init__(self) -> None:
        set_validated(self, features=check_count("features", self.features))

    @property
    def vc_dimension(self) -> int:
        """One more than the number of dimensions (Radon)."""
        return self.features + 1

    @property
    def dual_vc_dimension(self) -> int:
        """The number of dimensions: with more hyperplanes, some cell is empty."""
        return self.features

    def _growth(self, points: int) -> int:
        """Cover's count (1965), reached by points in general position."""
        return max(1, 2 * sum(math.comb(points - 1, size) for size in range(self.features + 1))) if points else 1

    def check_size(self, rows: int) -> None:
        """Raise an error if this many rows have too many dichotomies."""
        check_partitions(rows, self.features)

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Sides(np.unique(points, axis=0))


class _Sides(Dichotomies):
    """Both labelings of every parting of the points by a hyperplane."""

    def __init__(self, points: Points) -> None:
        self.features = points.shape[1]
        self._exact = ExactPoints(points)
        self._bits, self._planes = find_partitions(self._exact)
        self._made: dict[int, Hypothesis] = {}

    def __len__(self) -> int:
        return len(self._bits) * min(2, len(self._exact) + 1)

    def _candidate(self, index: int) -> Hypothesis:
        if index not in self._made:
            row, flipped = divmod(index, 2)
            bits = np.unpackbits(self._bits[row], count=len(self._exact))
            levels, otherwise = _levels(self._exact, bits ^ flipped, self._planes[row])
            self._made[index] = Halfspace(features=self.features, levels=tuple(levels), otherwise=otherwise)
        return self._made[index]

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        if len(self._exact) == 0:
            return np.array([np.count_nonzero(self[0].label_points(points) != labels)])
        lead, ones = self._leads(points, labels), np.count_nonzero(labels == 1)
        total = 2 * ones - len(labels)
        return np.stack([ones - lead, ones - (total - lead)], axis=1).ravel()

    def _leads(self, points: Points, labels: Labels) -> Integers:
        """Return for each parting the ones minus the zeros on its side 1."""
        defining = len(self._exact)
        distinct, numbers = np.unique(np.concatenate([self._exact.points, points]), axis=0, return_inverse=True)
        lead = np.bincount(numbers.ravel()[defining:], weights=2 * labels - 1, minlength=len(distinct))
        home = numbers.ravel()[:defining]
        away = np.setdiff1d(np.flatnonzero(lead), home)
        every = ExactPoints(np.concatenate([self._exact.points, distinct[away]])) if away.size else self._exact
        leads = np.zeros(len(self._bits))
        step = max(1, _AT_ONCE // max(1, len(every)))
        for start in range(0, len(leads), step):
            rows = np.arange(start, min(start + step, len(leads)))
            bits = np.unpackbits(self._bits[rows], axis=1, count=defining)
            leads[rows] = bits @ lead[home]  # whole numbers, so exact
            if away.size:
                leads[rows] += self._labels_of(every, rows, bits) @ lead[away]
        return leads.astype(np.int64)

    def _labels_of(self, every: ExactPoints, rows: Integers, bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the labels that partings give to points other than their defining ones."""
        defining, planes = len(self._exact), self._planes[rows]
        full = (planes >= 0).all(axis=1)
        signs = np.zeros((len(rows), len(every)), dtype=np.int8)
        signs[full] = every.signs(planes[full])
        first = (signs[:, :defining] != 0).argmax(axis=1)[:, np.newaxis]
        side = np.take_along_axis(signs, first, axis=1)  # 0 where all lie on the hyperplane: it is no level then
        alike = (side > 0) == np.take_along_axis(bits, first, axis=1)
        beyond = signs[:, defining:]
        labels: NDArray[np.uint8] = ((beyond > 0) == alike).astype(np.uint8)
        open_ = (beyond == 0) | (side == 0)
        for row in np.flatnonzero(open_.any(axis=1)):
            undecided = open_[row]
            labels[row, undecided] = self[2 * int(rows[row])].label_points(every.points[defining:][undecided])
        return labels


def _levels(points: ExactPoints, labels: Any, plane: Integers) -> tuple[list[Level], int]:
    """Return the hyperplanes that give these labels, the first through the points of `plane`, and the last constant."""
    if (labels == labels[:1]).all():
        return [], int(labels[:1].sum())
    spanned = int((plane >= 0).sum())
    if spanned < points.dimension:  # all points lie in fewer dimensions
        columns = points.spanning_columns()
        inner, otherwise = _levels(points.part(slice(None), columns), labels, plane[:spanned])
        return [_lifted(level, columns, points.dimension) for level in inner], otherwise
    signs = points.signs(plane[np.newaxis])[0]
    normal = points.normals(plane[np.newaxis])[0]
    off, on = np.flatnonzero(signs), np.flatnonzero(signs == 0)
    levels: list[Level] = []
    if off.size:
        turn = 1 if (signs[off[0]] > 0) == bool(labels[off[0]]) else -1
        levels.append(_level_through(points.points[plane[0]], turn * normal))
    if on.size == 1 or (labels[on] == labels[on[0]]).all():
        return levels, int(labels[on[0]])
    columns = columns_within(points, plane)
    part = points.part(on, columns)
    partitions = find_partitions(part)
    wanted = np.packbits(labels[on] ^ labels[on[0]])
    row = int(np.flatnonzero((partitions.bits == wanted).all(axis=1))[0])
    inner, otherwise = _levels(part, labels[on], partitions.planes[row])
    return [*levels, *(_lifted(level, columns, points.dimension) for level in inner)], otherwise


def _level_through(point: Any, normal: Any) -> Level:
    """Return the hyperplane of this normal, in whole numbers, through a point; its largest coefficient is 1 or -1."""
    unit = max(abs(int(value)) for value in normal)
    straight = tuple(Fraction(int(value), unit) for value in normal)
    through = map(Fraction, point.tolist())
    return straight, sum((a * b for a, b in zip(straight, through, strict=True)), Fraction(0))


def _lifted(level: Level, columns: list[int], dimension: int) -> Level:
    normal = [Fraction(0)] * dimension
    for column, value in zip(columns, level[0], strict=True):
        normal[column] = value
    return tuple(normal), level[1]
