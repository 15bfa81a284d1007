"""Columns of tables, crosses of two and waves of several, with one mistake each, caught by replays on neighbours."""

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from planted.bug import Caught, kind_bug, replaced
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.linear._sums import GRID, PrivateSums, grid_length
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.blocks import Ramps, column_numbers, spread_ramps
from quorate.tables.features.combined import FourierFeatures

_ROWS, _PEOPLE, _WAVES = 200, 60, 8


class _CrossesThatMatter(PrivateLogisticRegression):
    """Crosses the two columns whose product goes with the labels most, as additive models find their interactions."""

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None, sample_weight: Any = None) -> Any:
        """Choose the pair by the private rows: that is the mistake, for which pair it is stands in the model."""
        signs = np.where(np.asarray(y) == 1, 1.0, -1.0)
        strength = {pair: abs(float(X[:, pair[0]] * X[:, pair[1]] @ signs)) for pair in combinations(range(3), 2)}
        self.columns.set_params(crosses=[max(strength, key=strength.__getitem__)])
        return super().fit(X, y, groups=groups, public=public)


class _WavesOfTheBatch(FourierFeatures):
    """Centres a column on the rows that are encoded together."""

    def spread(self, read: Any) -> NDArray[np.float64]:
        """Take off the mean of the batch: that is the mistake, for a person with many rows moves those of others."""
        values = [column_numbers(read[place]) for place in self.places]
        centred = spread_ramps(self.lines, np.stack(values, axis=1))
        middle = [low + (high - low) * mean for (low, high), mean in zip(self._ends, centred.mean(axis=0), strict=True)]
        moved = {place: value - one for place, value, one in zip(self.places, values, middle, strict=True)}
        return super().spread([moved.get(place, column) for place, column in enumerate(read)])

    @property
    def _ends(self) -> list[tuple[float, float]]:
        return [(line.cuts[0], line.cuts[-1]) for line in self.lines]


class _FloatsOfArrow(PrivateLogisticRegression):
    """Lets one missing value make floats of the whole numbers of an Arrow column."""

    def _private_rows(self, X: Any, known: Any, wide: bool) -> Any:
        """Let Arrow make a frame of the table: the mistake, for long numbers of all others are cut short."""
        return super()._private_rows(X.to_pandas(), known, wide)


def _of_arrow(model_type: type[PrivateLogisticRegression], _plays: int, seed: int) -> Caught:
    """Take out the number of one record in a column of long ones, and compare the first sums that are released."""
    long, released = 2**53 + 1, list[NDArray[np.int64]]()
    original, columns = NoisyVectors.release, AdditiveColumns(declared={"code": [str(long), "7"]})

    def note(self: NoisyVectors, part: Any, **settings: Any) -> Any:
        released.append(np.array(part))
        return original(self, part, **settings)

    with replaced(NoisyVectors, "release", note):
        for first in (7, None):
            table = pa.table({"code": pa.array([first] + [long] * (_ROWS - 1))})
            model_type(epsilon=1.0, classes=[0, 1], columns=columns).fit(table, np.arange(_ROWS) % 2)
    one, other = released[0], released[len(released) // 2]
    moved = float(np.linalg.norm(one - other))
    evidence = f"one missing number moved the sum by {moved:.1f}, and {2 * GRID} is what the noise is for"
    return Caught("missing number", evidence, found=moved > 2 * GRID)


def _crossed(model_type: type[PrivateLogisticRegression], _plays: int, seed: int) -> Caught:
    """Fit on two data sets that differ in one row, with the same noise, and compare which columns are crossed."""
    generator = np.random.default_rng(seed)
    public, private = generator.normal(size=(2, _ROWS, 3))
    y, crosses = np.arange(_ROWS) % 2, []
    for row in ((99.0, 99.0, 0.0), (99.0, 0.0, 99.0)):
        private[1] = row
        with entropy_tape(seed):
            columns = AdditiveColumns(cuts=1, crosses=[(0, 1)])
            model = model_type(epsilon=4.0, classes=[0, 1], columns=columns).fit(private, y, public=public)
        crosses.append(model.columns_.document()["crosses"])
    said = "the same columns are" if crosses[0] == crosses[1] else "one person's row decides which columns are"
    return Caught("replay on neighbours", f"{said} crossed in the published model", found=crosses[0] != crosses[1])


def _waved(kind: type[FourierFeatures], _plays: int, seed: int) -> Caught:
    """Release the sum of the waves of two data sets that differ in the rows of one person, with the same noise."""
    generator = np.random.default_rng(seed)
    others, released = generator.uniform(size=(2 * _PEOPLE, 2)), []
    waves = kind((0, 1), tuple(Ramps(name, (0.0, 1.0)) for name in "ab"), _WAVES)
    for rows, value in ((1, 0.7), (800, 1.0)):
        table = np.vstack([others, np.full((rows, 2), value)])
        units = np.append(np.repeat(np.arange(_PEOPLE), 2), np.full(rows, _PEOPLE))

        def encode(places: NDArray[np.int64], table: NDArray[np.float64] = table) -> NDArray[np.float64]:
            return waves.spread([table[places, column] for column in (0, 1)])

        private = PrivateSums(encode, np.zeros((len(table), 1)), units, _PEOPLE + 1)
        with entropy_tape(seed):
            noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=_WAVES)
            mean, _ = private.release(
                lambda features, _: features, entries=_WAVES, radius=_WAVES**0.5, noisy=noisy, fraction=0.5
            )
        released.append(mean * (_PEOPLE + 1) * grid_length(_WAVES) / _WAVES**0.5)
    moved = float(np.linalg.norm(released[0] - released[1]))
    evidence = f"one person moved the sum by {moved:.1f}, and {2 * GRID} is what the noise is for"
    return Caught("replay on neighbours", evidence, found=moved > 2 * GRID + 1e-3)


COLUMNS = (
    kind_bug("arrow_numbers_cut_short", "replay", _FloatsOfArrow, PrivateLogisticRegression, _of_arrow),
    kind_bug("crosses_of_private_rows", "replay", _CrossesThatMatter, PrivateLogisticRegression, _crossed),
    kind_bug("waves_of_the_batch", "replay", _WavesOfTheBatch, FourierFeatures, _waved),
)
