"""Pairs of columns that a linear model chooses by a noisy sum of residuals. models/linear/PROOF.md, steps 2 and 4."""

import numpy as np
import pandas
import pytest

from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.models.linear import PrivateLinearRegression
from quorate.models.linear._pairs import Cells, FoundPairs, _refine, plan_pairs
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import exact_features, exact_weights
from quorate.tables.containers import open_table_or_matrix
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.combined import Interaction

PAIR_TABLE = pandas.DataFrame(
    {
        "dose": np.random.default_rng(1).uniform(0, 10, 4000),
        "sex": np.random.default_rng(2).choice(["f", "m", "x"], 4000),
        "age": np.random.default_rng(3).integers(18, 90, 4000).astype(float),
    }
)
PAIR_COLUMNS = AdditiveColumns(declared={"dose": (0, 10), "sex": ["f", "m", "x"], "age": (18, 90)}).fit(None)


def pair_sides(points, pieces=4):
    return {side.place: side for side in PAIR_COLUMNS.sides(points.mean(axis=0), pieces)}


def test_cells_of_a_pair_are_products_of_shares_by_another_method():
    points = np.asarray(PAIR_COLUMNS.transform(PAIR_TABLE))
    sides = pair_sides(points)
    [cells] = Cells([(sides[0], sides[1])], points).of(exact_features(points))
    knots = np.array(sides[0].block.cuts)
    tents = np.stack([np.interp(PAIR_TABLE.dose, knots, row) for row in np.eye(len(knots))], axis=1)
    kept = [*sides[1].block.values]
    level = PAIR_TABLE.sex.map({value: place for place, value in enumerate(kept)}).fillna(len(kept)).astype(int)
    levels = np.eye(len(kept) + 1)[level]
    expected = (tents - tents.mean(0))[:, :, None] * (levels - levels.mean(0))[:, None, :]
    assert np.abs(cells - expected.reshape(len(points), -1)).max() < 1e-6


def test_products_of_encoded_rows_are_those_of_the_interaction():
    points = np.asarray(PAIR_COLUMNS.transform(PAIR_TABLE))
    sides = pair_sides(points)
    interaction = Interaction((0, 1), sides[0].block, sides[1].block, (sides[0].codes, sides[1].codes))
    lifts = (exact_weights(sides[0].lift), exact_weights(sides[1].lift))
    found = FoundPairs((interaction,), (lifts,), np.zeros(0), np.zeros((0, 0)), 1.0, 1.0)
    products = found.of(exact_features(points))
    assert np.abs(products - interaction.spread(PAIR_COLUMNS.read(open_table_or_matrix(PAIR_TABLE)))).max() < 1e-6
    # A row's products and cells are the same to the last bit, whatever rows are beside it: proof, step 2.
    cells = Cells([(sides[0], sides[2])], points)
    every, rows = exact_features(points), [7, 3999, 12]
    assert np.array_equal(found.of(every[rows]), products[rows])
    assert np.array_equal(cells.of(every[rows])[0], cells.of(every)[0][rows])


@pytest.mark.parametrize("effects", [0.0, 1.0])
def test_a_regression_finds_the_pair_that_interacts_and_no_other(effects):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(12_000, 5))
    y = X[:, 0] + effects * np.sign(X[:, 1]) * np.sin(3 * X[:, 2]) + 0.3 * generator.normal(size=len(X))
    columns = AdditiveColumns(declared=[(-1, 1)] * 5)
    with entropy_tape(3):
        model = PrivateLinearRegression(epsilon=1.0, bounds=(-3, 3), columns=columns).fit(X[:8000], y[:8000])
    pairs = {part.places for part in model.columns_.together_}
    assert ((1, 2) in pairs) == bool(effects)
    assert model.score(X[8000:], y[8000:]) > 0.6


def test_all_pairs_are_tried_where_noise_would_leave_out_the_last_few():
    """Columns without effects of their own are ranked last, and may interact: one pair of ten was never tried."""
    noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-5, slack=0.0), entries=1000)
    private = PrivateSums(lambda rows: np.zeros((len(rows), 1)), np.zeros((8000, 1)), np.arange(8000), 8000)
    plans = [plan_pairs(columns, private, noisy) for columns in (5, 7, 12)]
    assert [plan.number for plan in plans] == [10, 21, 15]
    assert plans[0].fraction < plans[1].fraction == 0.12


def test_a_pair_with_a_column_of_few_values_keeps_all_cuts_of_the_other():
    points = np.asarray(PAIR_COLUMNS.transform(PAIR_TABLE))
    coarse, finest = pair_sides(points), pair_sides(points, 24)
    few = pair_sides(points, 1)[2]
    assert few.lift.shape[1] < coarse[0].lift.shape[1] < finest[0].lift.shape[1]
    assert _refine((coarse[0], few), finest) == (finest[0], few)
    assert _refine((coarse[0], coarse[2]), finest) == (coarse[0], coarse[2])


def test_small_tables_are_not_searched_for_pairs():
    noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=1000)
    private = PrivateSums(lambda rows: np.zeros((len(rows), 1)), np.zeros((2000, 1)), np.arange(2000), 2000)
    assert plan_pairs(12, private, noisy) is None
    assert plan_pairs(1, private, noisy) is None
