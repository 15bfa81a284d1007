"""Curves of additive models: what a column adds, how sure that is, and where it is drawn."""

import numpy as np
import pandas
import pytest

from quorate import InvalidInput, PrivateLinearRegression, PrivateLogisticRegression, load, save
from quorate.auditing.replay import entropy_tape
from quorate.cli import main
from quorate.models.linear.curves import curves_from
from quorate.report._model import plot_curves
from quorate.tables.features import AdditiveColumns


def visits(rows, seed):
    generator = np.random.default_rng(seed)
    frame = pandas.DataFrame({"age": generator.uniform(20, 80, rows), "sex": generator.choice(["f", "m"], rows)})
    eta = np.abs(frame.age - 50) / 10 - 1.5 + 0.8 * (frame.sex == "m")
    return frame, (generator.random(rows) < 1 / (1 + np.exp(-eta))).astype(int)


@pytest.fixture(scope="module")
def model():
    frame, y = visits(12_000, 0)
    with entropy_tape(1):
        return PrivateLogisticRegression(epsilon=2.0, classes=[0, 1]).fit(frame, y, public=visits(2000, 1)[0])


def test_a_curve_is_the_difference_that_a_column_makes_to_the_decision(model):
    age, sex = model.curves_
    rows = pandas.DataFrame({"age": age.values, "sex": "f"})
    assert np.allclose(np.diff(model.decision_function(rows)), np.diff(age.effects[0]))
    people = pandas.DataFrame({"age": 50.0, "sex": sex.values})
    assert np.allclose(np.diff(model.decision_function(people)), np.diff(sex.effects[0]))
    assert sex.values == ("f", "m", "another")


def test_the_truth_is_within_the_bands(model):
    age, sex = model.curves_
    true = np.abs(np.array(age.values) - 50) / 10 - 1.5
    inside = np.array(age.values[1:-1])
    off = np.array(age.effects[0]) - true
    far = np.abs(off - off.mean())[1:-1] / np.array(age.deviations[0])[1:-1]
    assert inside.min() > 20
    assert far.max() < 6  # a curve of straight pieces is not the true one either
    made = sex.effects[0][1] - sex.effects[0][0]
    assert abs(made - 0.8) < 6 * np.hypot(sex.deviations[0][0], sex.deviations[0][1])


def test_the_deviation_of_a_straight_line_is_that_of_its_coefficient():
    generator = np.random.default_rng(0)
    X, public = generator.normal(size=(3000, 2)), generator.normal(size=(500, 2))
    model = PrivateLinearRegression(bounds=(-4, 6), columns=AdditiveColumns(cuts=1)).fit(X, X[:, 0], public=public)
    for place, curve in enumerate(model.curves_):
        ends = np.array(curve.effects[0])
        assert ends[1] - ends[0] == pytest.approx(model.coef_[place])
        assert sum(curve.deviations[0]) == pytest.approx(model.coef_deviations_[place])


def test_numbers_beyond_the_public_ones_are_not_drawn(model):
    ages = visits(2000, 1)[0].age
    assert (model.curves_[0].values[0], model.curves_[0].values[-1]) == (ages.min(), ages.max())


def test_curves_come_back_from_a_folder_and_damaged_ones_do_not(model, tmp_path):
    assert load(save(model, tmp_path / "model")).curves_ == model.curves_
    with pytest.raises(InvalidInput, match="damaged"):
        curves_from([{"column": "a", "values": [1.0], "effects": [[1.0, 2.0]], "deviations": [[1.0]]}])


def test_the_columns_that_matter_most_are_drawn_first(model):
    plots = plot_curves(model.curves_)
    assert [plot.title for plot in plots] == ["What age adds", "What sex adds"]
    assert "It adds" in plots[0].description
    assert "fill" in plots[0].svg


@pytest.mark.parametrize("given", ["public", "schema"])
def test_the_report_of_the_command_line_has_the_columns_of_the_table(tmp_path, capsys, given):
    frame, y = visits(3000, 0)
    frame.assign(ill=np.where(y, "yes", "no")).to_csv(tmp_path / "private.csv", index=False)
    visits(500, 1)[0].to_csv(tmp_path / "public.csv", index=False)
    columns = '{"age": {"kind": "number", "low": 0, "high": 100}, "sex": ["f", "m"]}'
    (tmp_path / "schema.json").write_text('{"columns": ' + columns + "}")
    known = ["--public", f"{tmp_path}/public.csv"] if given == "public" else ["--schema", f"{tmp_path}/schema.json"]
    out = ["--out", f"{tmp_path}/model", "--report", f"{tmp_path}/page.html", "--cuts", "4", "--json"]
    fit = ["fit", "linear", f"{tmp_path}/private.csv", "--label", "ill", "--classes", "no,yes", *known, *out]
    assert main(fit) == 0, capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    assert "What each column adds" in page
    assert "models/linear/PROOF.md" in page
    assert "To the log odds of &#39;yes&#39;, compared" in page
    shown = ["age", "f", "m", "40", "60"] if given == "public" else ["age", "What sex=f adds"]
    assert all(f">{text}<" in page for text in shown)


def test_a_report_names_dates_as_dates_and_marks_by_their_own_columns(tmp_path, capsys):
    """Marks of two columns that no public row has together are one group; dates were days after 1970."""
    generator = np.random.default_rng(0)
    for name, rows in (("private", 2000), ("public", 300)):
        table = {
            "day": np.datetime64("2023-01-01") + generator.integers(0, 700, rows),
            "ward": ["north"] * rows,
            "clinic": [7] * rows,  # a constant number was joined with these marks, and stopped the command
            "grade": generator.choice(["high", "low"], rows),
            "ill": generator.choice(["no", "yes"], rows),
        }
        pandas.DataFrame(table).to_csv(tmp_path / f"{name}.csv", index=False)
    out = ["--out", f"{tmp_path}/model", "--report", f"{tmp_path}/page.html", "--gaps"]
    known = ["--label", "ill", "--public", f"{tmp_path}/public.csv"]
    assert main(["fit", "linear", f"{tmp_path}/private.csv", *known, *out]) == 0, capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    assert "What ward and clinic and grade adds" in page
    assert ">grade=high<" in page
    assert "at 2023-" in page or "at 2024-" in page


def test_a_cross_tells_what_two_columns_say_only_together(tmp_path):
    generator = np.random.default_rng(0)
    X = pandas.DataFrame({"dose": generator.uniform(0, 10, 6000), "sex": generator.choice(["f", "m"], 6000)})
    y = ((X.dose > 5) ^ (X.sex == "m")).astype(int)
    scores = []
    for crosses in ((), [("dose", "sex")], None):
        with entropy_tape(1):
            model = PrivateLogisticRegression(classes=[0, 1], columns=AdditiveColumns(crosses=crosses))
            scores.append(model.fit(X[:5000], y[:5000], public=X[5000:]).score(X, y))
    assert scores[0] < 0.6
    assert scores[1] > 0.85
    assert scores[2] > 0.85  # the fit found the pair itself
    assert [part.places for part in model.columns_.together_] == [(0, 1)]
    assert np.array_equal(load(save(model, tmp_path / "model")).predict(X), model.predict(X))


def test_the_command_line_crosses_columns_of_the_table(tmp_path, capsys):
    frame, y = visits(2000, 0)
    frame.assign(ill=np.where(y, "yes", "no")).to_csv(tmp_path / "private.csv", index=False)
    visits(500, 1)[0].to_csv(tmp_path / "public.csv", index=False)
    fit = ["fit", "linear", f"{tmp_path}/private.csv", "--label", "ill", "--classes", "no,yes"]
    fit += ["--public", f"{tmp_path}/public.csv", "--cross"]
    assert main([*fit, "age:sex", "--out", f"{tmp_path}/model", "--json"]) == 0
    names = load(tmp_path / "model").columns_.get_feature_names_out().tolist()
    assert sum(" and " in name for name in names) == 4  # two pieces for each sex
    assert main([*fit, "age:ward", "--out", f"{tmp_path}/other"]) == 1
    assert "--cross must be pairs" in capsys.readouterr().err


@pytest.mark.long
def test_waves_tell_what_numbers_say_only_together(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(9000, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    scores = []
    for waves in (0, 40):
        with entropy_tape(1):
            model = PrivateLogisticRegression(classes=[0, 1], columns=AdditiveColumns(waves=waves, crosses=()))
            scores.append(model.fit(X[:8000], y[:8000], public=X[8000:]).score(X, y))
    assert scores[0] < 0.6
    assert scores[1] > 0.8
    assert np.array_equal(load(save(model, tmp_path / "model")).predict(X), model.predict(X))
