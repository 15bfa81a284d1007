"""A head start: log odds of a public model as the offset of a private logistic regression."""

import numpy as np
import pandas
import pytest

from quorate import InvalidInput, load, save
from quorate.auditing.replay import entropy_tape
from quorate.models.linear import PrivateLogisticRegression
from quorate.tables.features import AdditiveColumns

COLUMNS = 6


def table(rows, seed=0):
    """Return columns, log odds by a public model that knows something else besides, and labels."""
    generator = np.random.default_rng(seed)
    X, hidden = generator.normal(size=(rows, COLUMNS)), generator.normal(size=rows)
    slopes = np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0])
    y = generator.random(rows) < 1 / (1 + np.exp(-(X @ slopes + 1.5 * hidden)))
    return X, 1.5 * hidden + generator.normal(size=rows) / 2, y.astype(int)


def with_odds(X, odds):
    return np.column_stack([X, odds])


FITS = 4


def accuracies(odds_of, *, epsilon, rows=6000):
    """Return mean accuracies with an offset and without one, and that of the offset at its best threshold."""
    X, odds, y = table(rows + 4800)
    matrix = with_odds(X, odds_of(odds))
    private, judged, public = slice(0, rows), slice(rows, rows + 4000), slice(rows + 4000, None)

    def accuracy(Z, **options):
        fits = [PrivateLogisticRegression(epsilon=epsilon, classes=[0, 1], **options) for _ in range(FITS)]
        return np.mean([fit.fit(Z[private], y[private], public=Z[public]).score(Z[judged], y[judged]) for fit in fits])

    cuts = np.quantile(odds_of(odds)[judged], np.linspace(0.02, 0.98, 49))
    alone = max(((matrix[judged, -1] > cut) == y[judged]).mean() for cut in cuts)
    with entropy_tape(3):
        return accuracy(matrix, offset=COLUMNS), accuracy(X), alone


def test_an_offset_that_knows_something_else_is_better_than_either_alone():
    headed, plain, alone = accuracies(lambda odds: odds, epsilon=1.0)
    assert headed > max(plain, alone) + 0.05


OFFSETS = {
    "useless": lambda odds: np.random.default_rng(5).normal(size=len(odds)) * 2,
    "opposite": lambda odds: -odds,
    "doubled and shifted": lambda odds: 2 * odds + 1.5,
    "missing": lambda odds: np.full(len(odds), np.nan),
}


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("name", OFFSETS)
def test_an_offset_costs_at_most_half_a_point_whatever_it_says(name, epsilon):
    headed, plain, alone = accuracies(OFFSETS[name], epsilon=epsilon)
    assert headed >= max(plain, alone) - 0.005


def test_where_the_noise_hides_every_correction_the_calibrated_offset_is_left():
    X, odds, y = table(3000)
    model = PrivateLogisticRegression(epsilon=0.05, classes=[0, 1], offset=COLUMNS)
    with entropy_tape(3):
        model.fit(with_odds(np.zeros_like(X), odds), y, public=with_odds(X[:500] * 0, odds[:500]))
    assert model.score(with_odds(np.zeros_like(X), odds), y) >= ((odds > 0) == y).mean() - 0.01


def test_a_column_of_a_frame_is_named_and_saved(tmp_path):
    X, odds, y = table(3000)
    frame = pandas.DataFrame(X, columns=[f"x{index}" for index in range(COLUMNS)]).assign(odds=odds)
    declared = dict.fromkeys(frame.columns[:-1], (-3, 3))
    model = PrivateLogisticRegression(classes=[0, 1], offset="odds", columns=AdditiveColumns(declared=declared))
    model.fit(frame, y)
    save(model, tmp_path / "model")
    assert (load(tmp_path / "model").predict(frame) == model.predict(frame)).all()
    assert model.score(frame, y) > 0.75


def test_a_function_is_asked_row_by_row_and_its_failures_are_missing_log_odds(tmp_path):
    X, odds, y = table(500)
    matrix = with_odds(X, odds)
    seen = []

    def log_odds(row):
        seen.append(row.shape)
        if row[0] > 1:
            raise ValueError("private")
        return row[-1]

    model = PrivateLogisticRegression(epsilon=5.0, classes=[0, 1], offset=log_odds).fit(matrix, y, public=matrix[:100])
    assert set(seen) == {(COLUMNS + 1,)}
    assert (model.predict(matrix)[:7] == model.predict(matrix[:7])).all()
    with pytest.raises(InvalidInput, match="not saved"):
        save(model, tmp_path / "model")


def test_an_offset_that_nobody_has_stays_a_straight_line_of_log_odds():
    """Cuts of the other columns are learned; the noise hides the offset, whose weights stay in place."""
    X, _, y = table(2000)
    columns = AdditiveColumns(declared=[(-3, 3)] * COLUMNS)
    with entropy_tape(3):
        model = PrivateLogisticRegression(classes=[0, 1], columns=columns, offset=lambda _: np.nan).fit(X, y)
    offset = model.columns_.blocks_[-1]
    assert offset.line == (-10.0, 10.0)
    assert len(offset.cuts) == 6
    shares, _ = model.columns_.known_shares()
    assert np.isclose(shares[-7:].sum(), 1.0), "each row is at one cut or has no log odds"


def test_offsets_that_are_no_column_or_have_several_classes_are_refused():
    X, odds, y = table(800)
    matrix = with_odds(X, odds)
    with pytest.raises(InvalidInput, match="offset must be a column of X"):
        PrivateLogisticRegression(classes=[0, 1], offset="odds").fit(matrix, y, public=matrix)
    learning = PrivateLogisticRegression(epsilon=99.0, classes=[0, 1], offset=COLUMNS + 1, columns="learned")
    with pytest.raises(InvalidInput, match="offset must be a column of X"):
        learning.fit(matrix, y)
    assert not hasattr(learning, "schema_"), "it is refused before anything is released"
    with pytest.raises(InvalidInput, match="one of two classes"):
        PrivateLogisticRegression(classes=range(3), offset=0).fit(matrix, y, public=matrix)
    with pytest.raises(InvalidInput, match="dense matrix"):
        PrivateLogisticRegression(classes=[0, 1], offset=len).fit(pandas.DataFrame(matrix), y)
