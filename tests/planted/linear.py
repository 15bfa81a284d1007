"""Sums of clipped vectors with one mistake each, caught by a replay on neighbours with one tape of noise.

The noise is the same in both runs, so that the released sums differ by what the unit adds. The sound twin of all of
them is `PrivateSums`. One more forgets to count a release that a fit throws away; its twin is `NoisyVectors`. One
takes probabilities of several classes over all rows; its twin is `Softmax`.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught, PlantedBug, kind_bug
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.models.linear._engine import Problem, entries_of, fit
from quorate.models.linear._families import Bernoulli, Softmax
from quorate.models.linear._pairs import Cells
from quorate.models.linear._sums import GRID, SQUARED_SENSITIVITY, PrivateSums, grid_length, on_the_grid
from quorate.tables.features import AdditiveColumns

_UNITS, _COLUMNS = 60, 3


class _EveryRowClipped(PrivateSums):
    """Clips each row of a person, and not what the person adds."""

    def contributions(self, vectors: Any, firsts: Any, radius: float) -> NDArray[np.int64]:
        """Put every row on the grid and add up a person's: that is the mistake."""
        return np.asarray(np.add.reduceat(on_the_grid(vectors, radius), firsts, axis=0))


class _ClippedToTheLongest(PrivateSums):
    """Takes the clipping threshold from the private vectors themselves."""

    def contributions(self, vectors: Any, firsts: Any, radius: float) -> NDArray[np.int64]:
        """Clip to the longest vector, so that nothing is lost: that is the mistake."""
        longest = float(np.linalg.norm(vectors, axis=1).max())
        return super().contributions(vectors, firsts, longest)


class _OneColumnAtATime(PrivateSums):
    """Clips every entry, and not the length of the vector."""

    def contributions(self, vectors: Any, firsts: Any, radius: float) -> NDArray[np.int64]:
        """Put the entries on the grid one by one: the mistake, for then their squares add up."""
        columns = [super(_OneColumnAtATime, self).contributions(one, firsts, radius) for one in np.split(vectors, 3, 1)]
        return np.hstack(columns)


class _MomentOfEveryRow(PrivateSums):
    """Adds up the outer products of all rows of a person, and not their mean."""

    def moment_rows(self, rows: Any, firsts: Any, radius: float) -> NDArray[np.float64]:
        """Treat every row as a unit: that is the mistake."""
        return super().moment_rows(rows, np.arange(len(rows)), radius)


class _ScoresAroundPrivateMean(PrivateSums):
    """Centres scores on the private rows beside them, and not on made ones."""

    def moment_rows(self, rows: Any, firsts: Any, radius: float) -> NDArray[np.float64]:
        """Take the mean of these rows off, so that the scores of all move with one person: that is the mistake."""
        return super().moment_rows(rows - rows.mean(axis=0), firsts, radius)


class _MeasuredAgainForNothing(NoisyVectors):
    """Does not count the first release once there is a second: its means are thrown away where public rows are wrong.

    What was released was released, whether the fit goes on with it or not.
    """

    _first: int | None = None

    def _take_share(self, size: int, squared_sensitivity: int, fraction: float) -> float:
        """Give the first share back before the second is taken: that is the mistake."""
        if self._first is None:
            self._first = self._left
        else:
            self._left, self._first = max(self._left, self._first), 0
        return super()._take_share(size, squared_sensitivity, fraction)


class _Noted:
    """Releases of a fit, and what each tells: its squared sensitivity over its squared scale."""

    def __init__(self, noisy: NoisyVectors) -> None:
        self._noisy, self.told, self.scale, self.entries = noisy, list[float](), noisy.scale, noisy.entries

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[NDArray[np.int64], float]:
        released, scale = self._noisy.release(part, squared_sensitivity=squared_sensitivity, fraction=fraction)
        self.told.append(squared_sensitivity / scale**2)
        return released, scale


def _measured_again(vectors: type[NoisyVectors], _plays: int, seed: int) -> Caught:
    """Fit with public rows that are wrong, so that means are measured twice, and add up what all releases tell."""
    generator = np.random.default_rng(seed)
    public, table = generator.normal(size=(200, 2)), generator.normal(3.0, 0.1, size=(500, 2))
    columns = AdditiveColumns(cuts=1).fit(public)
    family: Any = Bernoulli()
    problem = Problem(family, 1, columns.atoms(), columns.families(), start=0.5)
    targets = np.arange(500.0)[:, np.newaxis] % 2
    private = PrivateSums(lambda rows: columns.encode(table[rows]), targets, np.arange(500), 500, one_each=True)

    def opened() -> NoisyVectors:
        return vectors(Budget(epsilon=4.0, delta=1e-6, slack=0.0), entries=entries_of(problem))

    with entropy_tape(seed):
        noted: Any = _Noted(opened())
        fitted = fit(problem, private, columns.encode(public), noted)
        allowed = SQUARED_SENSITIVITY / opened().scale(squared_sensitivity=SQUARED_SENSITIVITY, fraction=1.0) ** 2
    twice = "measured twice" if not fitted.public_used else "measured once"
    evidence = (
        f"means {twice}: all releases told {sum(noted.told) / allowed:.4f} times what one of the whole budget may"
    )
    return Caught("costs added up", evidence, found=sum(noted.told) > allowed * (1 + 1e-6))


def _rows(table: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(table[places])


def _judge_moved(runs: list[tuple[PrivateSums, Any, int, float]], seed: int, subject: str = "one person") -> Caught:
    """Release the sums of two data sets, each of a width within a radius, with the same noise."""
    released = []
    for private, vectors, width, radius in runs:
        with entropy_tape(seed):
            noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=width)
            mean, _ = private.release(
                lambda features, _, vectors=vectors: vectors(features),
                entries=width,
                radius=radius,
                noisy=noisy,
                fraction=0.5,
            )
        released.append(mean * private.units * grid_length(width) / radius)
    moved = float(np.linalg.norm(released[0] - released[1]))
    evidence = f"{subject} moved the sum by {moved:.1f}, and {2 * GRID} is what the noise is for"
    return Caught("replay on neighbours", evidence, found=moved > 2 * GRID + 1e-3)


def _replayed(sums: type[PrivateSums], _plays: int, seed: int) -> Caught:
    """Release the sum of two data sets that differ in the rows of one person, with the same noise."""
    generator = np.random.default_rng(seed)
    rows = [0.5 + generator.normal(size=(2, _COLUMNS)) / 4 for _ in range(_UNITS)]
    runs = []
    for other in (np.full((40, _COLUMNS), 9.0), np.full((40, _COLUMNS), -0.5)):
        table = np.vstack([*rows[:-1], other])
        units = np.repeat(np.arange(_UNITS), [*[2] * (_UNITS - 1), 40])
        private = sums(partial(_rows, table), np.zeros((len(table), 1)), units, _UNITS)
        runs.append((private, np.asarray, _COLUMNS, 1.0))
    return _judge_moved(runs, seed)


class _SoftmaxOfTheBatch(Softmax):
    """Takes the largest linear predictor of all rows off, and not that of the row."""

    def mean(self, eta: Any) -> NDArray[np.float64]:
        """Return powers less the largest of the batch: that is the mistake, for one row then moves all others."""
        powers = np.exp2((eta - eta.max()) * np.log2(np.e))
        return np.asarray(powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-300))


def _probabilities_replayed(family: type[Softmax], _plays: int, seed: int) -> Caught:
    """Release the total probabilities of two data sets that differ in one row, with the same noise."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(_UNITS - 1, _COLUMNS))
    runs = []
    for other in (np.zeros((1, _COLUMNS)), np.full((1, _COLUMNS), 1e4)):
        table = np.vstack([rows, other])
        private = PrivateSums(partial(_rows, table), np.zeros((_UNITS, 1)), np.arange(_UNITS), _UNITS, one_each=True)
        runs.append((private, family().mean, _COLUMNS, 1.0))
    return _judge_moved(runs, seed, "one row")


class _CellsOfTheBatch(Cells):
    """Centres the shares of pieces on the rows that are looked at together."""

    def of(self, features: Any) -> list[NDArray[np.float64]]:
        """Take off the means of the batch: that is the mistake, for a person with many rows moves those of others."""
        parts = super().of(features)
        return [part - part.mean(axis=0) for part in parts]


def _cells_replayed(cells: type[Cells], _plays: int, seed: int) -> Caught:
    """Release the sum of the cells of two data sets that differ in the rows of one person, with the same noise."""
    generator = np.random.default_rng(seed)
    public, others = generator.uniform(size=(200, 2)), generator.uniform(size=(2 * _UNITS, 2))
    columns = AdditiveColumns(declared=[(0, 1)] * 2, cuts=4).fit(None)
    points = np.asarray(columns.transform(public))
    sides = columns.sides(points.mean(axis=0), 4)
    found, runs = cells([(sides[0], sides[1])], points), []
    width = found.of(points)[0].shape[1]
    for rows, value in ((1, 0.7), (800, 1.0)):
        table = np.vstack([others, np.full((rows, 2), value)])
        units = np.append(np.repeat(np.arange(_UNITS), 2), np.full(rows, _UNITS))
        encoded = np.asarray(columns.transform(table))
        private = PrivateSums(partial(_rows, encoded), np.zeros((len(table), 1)), units, _UNITS + 1)
        runs.append((private, lambda features: found.of(features)[0], width, 0.3))
    return _judge_moved(runs, seed)


class _WithoutNoise:
    """Releases exact totals: only their sensitivity is looked at."""

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[NDArray[np.int64], float]:
        return np.asarray(part), 1.0


def _moment_replayed(sums: type[PrivateSums], _plays: int, seed: int) -> Caught:
    """Release the second moment of two data sets that differ in the rows of one person, without noise."""
    generator = np.random.default_rng(seed)
    rows = [0.5 + generator.normal(size=(2, _COLUMNS)) / 4 for _ in range(_UNITS)]
    units = np.repeat(np.arange(_UNITS), [*[2] * (_UNITS - 1), 40])
    moments = []
    for other in (np.full((40, _COLUMNS), 9.0), np.tile([9.0, -9.0, 0.0], (40, 1))):
        table = np.vstack([*rows[:-1], other])
        private = sums(partial(_rows, table), np.zeros((len(table), 1)), units, _UNITS)
        noisy: Any = _WithoutNoise()
        moment, _ = private.release_moment(
            lambda features: features, width=_COLUMNS, radius=1.0, noisy=noisy, fraction=0.5
        )
        moments.append(moment * _UNITS)
    moved = float(np.linalg.norm(moments[0] - moments[1]))
    evidence = f"one person moved the second moment by {moved:.3f}, and the noise is for the root of 2"
    return Caught("replay on neighbours", evidence, found=moved > np.sqrt(2) + 1e-6)


def _bug(name: str, broken: type[PrivateSums]) -> PlantedBug:
    return kind_bug(name, "replay", broken, PrivateSums, _replayed)


LINEAR = (
    _bug("row_clipped_for_person", _EveryRowClipped),
    _bug("private_clipping", _ClippedToTheLongest),
    _bug("entrywise_clipping", _OneColumnAtATime),
    kind_bug("moment_of_every_row", "replay", _MomentOfEveryRow, PrivateSums, _moment_replayed),
    kind_bug("softmax_of_the_batch", "replay", _SoftmaxOfTheBatch, Softmax, _probabilities_replayed),
    kind_bug("cells_of_the_batch", "replay", _CellsOfTheBatch, Cells, _cells_replayed),
    kind_bug("scores_around_private_mean", "replay", _ScoresAroundPrivateMean, PrivateSums, _moment_replayed),
    kind_bug(
        "means_measured_again_for_nothing", "enumeration", _MeasuredAgainForNothing, NoisyVectors, _measured_again
    ),
)
