"""Prediction sets and intervals: their law and coverage by brute force, the bars, groups, failures, files, commands."""

import csv
import json
import math
from fractions import Fraction

import numpy as np
import pandas
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from planted.quantile_laws import data_sets, least_coverage, worst_quantile_loss
from quorate import (
    Budget,
    BudgetSpent,
    ConformalClassifier,
    ConformalRegressor,
    Infeasible,
    InvalidInput,
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    SemiPrivateClassifier,
    StudentClassifier,
    load,
    save,
)
from quorate.auditing import entropy_tape
from quorate.auditing._choices import quantile_law
from quorate.cli import main
from quorate.core.mechanisms import PrivateQuantile
from quorate.models.saving import open_folder
from quorate.service.model import Model
from quorate.tables.features import AdditiveColumns

SMALL = [(1.0, 10, 4, 9), (3.0, 12, 5, 12), (0.5, 14, 3, 10), (6.0, 9, 6, 8), (2.0, 20, 3, 18)]
IDENTITY = LinearRegression().fit([[0.0], [1.0]], [0.0, 0.0])  # always says 0


def normal_errors(random, units):
    """Return rows and values whose errors are those of a standard normal law."""
    return random.normal(size=(units, 1)), random.normal(size=units)


def covered(width):
    return 2 * stats.norm.cdf(width) - 1


# ------------------------------------------------------------------------------------------------------- the quantile


@pytest.mark.parametrize(("epsilon", "units", "cells", "rank"), SMALL)
def test_privacy_and_coverage_hold_for_all_small_data_sets(epsilon, units, cells, rank):
    quantile = PrivateQuantile(epsilon=epsilon, cells=cells, units=units, rank=rank)
    assert 0.4 * epsilon < worst_quantile_loss(quantile) <= epsilon + 1e-9
    assert quantile.coverage() <= least_coverage(quantile) + 1e-12


def test_coverage_is_not_that_of_the_rank_itself():
    """With noise the rank alone would be a false promise, by enumeration, and the proved one is close to the truth."""
    quantile = PrivateQuantile(epsilon=6.0, cells=6, units=9, rank=9)
    assert quantile.coverage() < least_coverage(quantile) < quantile.rank / (quantile.units + 1)
    assert least_coverage(quantile) - quantile.coverage() < 0.02


def test_the_exact_quantile_is_the_one_cell_at_distance_zero():
    for counts in data_sets(7, 4):
        values = np.repeat(np.arange(4), counts)
        for rank in range(1, 8):
            quantile = PrivateQuantile(epsilon=1.0, cells=4, units=7, rank=rank)
            distances = quantile.distances(np.array(counts))
            assert np.flatnonzero(distances == 0).tolist() == [values[rank - 1]]


def test_distances_are_the_fewest_values_that_must_change():
    quantile = PrivateQuantile(epsilon=1.0, cells=3, units=4, rank=3)
    for counts in data_sets(4, 3):
        fewest = [
            min(
                int(np.abs(np.subtract(counts, other)).sum()) // 2
                for other in data_sets(4, 3)
                if np.repeat(np.arange(3), other)[2] == cell
            )
            for cell in range(3)
        ]
        assert quantile.distances(np.array(counts)).tolist() == fewest


def test_cells_are_drawn_by_their_law_and_not_by_another(false_alarm):
    quantile, counts = PrivateQuantile(epsilon=1.0, cells=5, units=9, rank=6), [2, 1, 0, 4, 2]
    drawn = np.bincount([quantile.release(counts) for _ in range(20_000)], minlength=5)
    assert stats.chisquare(drawn, quantile_law(quantile, counts) * drawn.sum()).pvalue > false_alarm
    doubled = PrivateQuantile(epsilon=2.0, cells=5, units=9, rank=6)
    assert stats.chisquare(drawn, quantile_law(doubled, counts) * drawn.sum()).pvalue < false_alarm


def test_the_rank_is_the_smallest_that_covers():
    made = PrivateQuantile.calibrate(epsilon=0.5, cells=500, units=2000, share=0.9)
    assert made.coverage() >= 0.9
    assert PrivateQuantile(epsilon=0.5, cells=500, units=2000, rank=made.rank - 1).coverage() < 0.9
    assert made.choice.rate == Fraction(1, 4)


@pytest.mark.parametrize(("cells", "epsilon"), [(2, 0.1), (10, 8.0), (1000, 0.5), (10_000, 20.0), (5, 1e-6)])
def test_the_loss_is_above_what_any_level_alone_takes(cells, epsilon):
    """The worst data put all cells below at one depth; the mean loss there is known in closed form."""
    rate = epsilon / 2
    depths = np.arange(1.0, 10_001)
    weights = (cells - 1) * np.exp(-rate * depths)
    loss = PrivateQuantile(epsilon=epsilon, cells=cells, units=10_000, rank=1).rank_loss()
    assert np.max(depths * weights / (1 + weights)) <= loss


def test_a_quantile_is_paid_for_before_it_is_drawn():
    quantile = PrivateQuantile(epsilon=0.5, cells=2, units=3, rank=2)
    budget = Budget(epsilon=1.0, delta=0.0)
    quantile.release([1, 2], budget=budget)
    quantile.release([1, 2], budget=budget)
    with pytest.raises(BudgetSpent):
        quantile.release([1, 2], budget=budget)


@pytest.mark.parametrize("counts", [[1, 2, 3], [3, 1], [-1, 4], [[1, 2]], [1.0, 2.0]])
def test_wrong_counts_are_refused_without_saying_what_they_are(counts):
    with pytest.raises(InvalidInput, match=r"counts must be (2 whole numbers|at least 0 and sum to units=3)"):
        PrivateQuantile(epsilon=0.5, cells=2, units=3, rank=2).release(counts)


def test_too_few_units_are_refused_and_the_number_that_is_named_will_do():
    with pytest.raises(Infeasible, match="give at least 199 units") as refused:
        PrivateQuantile.calibrate(epsilon=0.5, cells=500, units=100, share=0.9)
    needed = int(str(refused.value).split("at least ")[1].split()[0])
    assert PrivateQuantile.calibrate(epsilon=0.5, cells=500, units=needed, share=0.9).rank <= needed
    with pytest.raises(InvalidInput, match="rank must"):
        PrivateQuantile(epsilon=0.5, cells=2, units=3, rank=4)


# ----------------------------------------------------------------------------------------------------------- the bars


def coverages(simulations, *, seed=0, units=2000, epsilon=0.5):
    random, found = np.random.default_rng(seed), []
    for _ in range(simulations):
        X, y = normal_errors(random, units)
        found.append(ConformalRegressor(IDENTITY, epsilon, 0.1, largest_error=100.0).fit(X, y).width_)
    return covered(np.array(found))


def test_coverage_is_what_was_asked_for_and_hardly_more():
    """One simulation's coverage has a deviation below 0.01: the mean of 150 is 10 of its deviations from either end."""
    assert 0.90 <= coverages(150).mean() <= 0.92


@pytest.mark.long
def test_coverage_over_a_thousand_simulations():
    assert 0.90 <= coverages(1000, seed=1).mean() <= 0.92


def test_coverage_of_sets_holds_with_ties_and_with_a_poor_model():
    """Scores of a constant model fall into few cells: coverage may be more than was asked for, and never less."""
    random = np.random.default_rng(2)
    for shares in ([0.95, 0.05], [0.5, 0.5], [0.6, 0.25, 0.1, 0.05]):
        classes = np.arange(len(shares))
        model = DummyClassifier(strategy="prior").fit(
            np.zeros((1000, 1)), np.repeat(classes, np.multiply(shares, 1000).astype(int))
        )
        told = []
        for _ in range(60):
            y = random.choice(classes, size=2000, p=shares)
            sets = ConformalClassifier(model, 0.5, 0.1).fit(np.zeros((2000, 1)), y).predict_set([[0.0]])[0]
            told.append(np.dot(sets, shares))
        assert np.mean(told) >= 0.9


def test_sets_are_hardly_larger_than_without_privacy():
    random = np.random.default_rng(3)
    centres = random.normal(size=(6, 4)) * 1.2
    labels = random.integers(6, size=23_000)
    X = centres[labels] + random.normal(size=(labels.size, 4))
    model = LogisticRegression(max_iter=1000).fit(X[:3000], labels[:3000])
    held, new = slice(3000, 13_000), slice(13_000, None)
    scores = np.sort(1 - model.predict_proba(X[held])[np.arange(10_000), labels[held]])
    plain = 1 - model.predict_proba(X[new]) <= scores[math.ceil(10_001 * 0.9) - 1]
    with entropy_tape(3):
        private = ConformalClassifier(model, 0.5, 0.1).fit(X[held], labels[held]).predict_set(X[new])
    assert private.sum() <= 1.1 * plain.sum()
    assert private[np.arange(10_000), labels[new]].mean() > 0.885  # four deviations below 0.9


# ----------------------------------------------------------------------------------------------------- what is scored


def test_sets_list_no_category_of_a_held_out_record(tmp_path):
    random = np.random.default_rng(5)
    city = pandas.Series(random.choice(["oslo", "rome"], size=800)).astype(object)
    X = pandas.DataFrame({"x": random.normal(size=800), "city": city.astype("category")})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(X, X["x"] > 0)
    city[7] = "Secretville"
    held = X.assign(city=city.astype("category"))
    sets = ConformalClassifier(model, epsilon=2.0, miscoverage=0.2).fit(held, held["x"] > 0)
    folder = save(sets, tmp_path / "sets")
    assert not any(b"Secretville" in path.read_bytes() for path in folder.iterdir())
    for queries in (held[:20], held[:20].astype({"city": object})):
        assert (load(folder).predict_set(queries) == sets.predict_set(held[:20])).all()


def test_a_person_counts_once_by_its_worst_or_its_first_row():
    random = np.random.default_rng(4)
    people = np.repeat(np.arange(1500), 4)
    y = random.normal(size=people.size)
    X = np.zeros((people.size, 1))
    every = ConformalRegressor(IDENTITY, 2.0, 0.1, largest_error=100.0).fit(X, y, groups=people)
    first = ConformalRegressor(IDENTITY, 2.0, 0.1, largest_error=100.0, per_person="first").fit(X, y, groups=people)
    assert every.quantile_.units == first.quantile_.units == 1500
    assert 0.87 < covered(every.width_) ** 4 < 0.95
    assert 0.87 < covered(first.width_) < 0.95
    assert "all rows of one person" in every.claim_
    assert "every row" in every.covers_
    assert "first row" in first.covers_
    said = first.covers_
    first.set_params(miscoverage=0.001, per_person="all")
    assert first.covers_ == said  # of what was fitted


def test_a_persons_row_cannot_add_up():
    """A thousand rows of one person move the counts by one unit: the median stays where the others are."""
    y = np.concatenate([np.zeros(1000), np.full(1000, 50.0)])
    people = np.concatenate([np.arange(1000), np.full(1000, 1000)])
    made = ConformalRegressor(IDENTITY, 4.0, 0.5, largest_error=100.0).fit(np.zeros((2000, 1)), y, groups=people)
    assert made.quantile_.units == 1001
    assert made.width_ < 1.0


class Fussy(ClassifierMixin, BaseEstimator):
    """Says nothing of rows above 3: it fails on a call with one of them, loudly."""

    classes_, n_features_in_ = np.array([0, 1]), 1

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X):
        if np.max(X) > 3:
            raise ValueError(f"there is a {np.max(X)}")
        return np.column_stack([1 - 0.1 * (X[:, 0] > 0), 0.1 * (X[:, 0] > 0)])

    def __sklearn_is_fitted__(self):
        return True


def test_a_model_that_fails_on_a_row_says_nothing_of_that_row_alone():
    X = np.concatenate([np.zeros((1000, 1)), np.full((100, 1), 5.0)])
    made = ConformalClassifier(Fussy(), 4.0, 0.2).fit(X, np.zeros(1100, dtype=int))
    assert made.threshold_ > 0.9  # nine tenths of the rows have a score of 1, and no error left
    nobody = ConformalClassifier(Fussy(), 4.0, 0.2).fit(X + 5.0, np.zeros(1100, dtype=int))
    assert nobody.threshold_ == 0.0
    assert nobody.predict_set([[0.0]]).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_have_the_worst_score(wrong):
    y = np.zeros(1000)
    y[:10] = wrong
    X = np.zeros((1000, 1))
    assert ConformalRegressor(IDENTITY, 4.0, 0.2, largest_error=1.0).fit(X, y).width_ < 0.1
    y[:900] = wrong
    endless = ConformalRegressor(IDENTITY, 4.0, 0.2, largest_error=1.0).fit(X, y)
    assert endless.predict_interval([[0.0]]).tolist() == [[-np.inf, np.inf]]


class Silent(BaseEstimator):
    """Says no number of positive rows."""

    n_features_in_, classes_ = 1, np.array([0, 1])

    def predict(self, X):
        return np.where(X[:, 0] > 0, self.said, 0.0)

    def predict_proba(self, X):
        return np.where(X > 0, np.nan, np.full((1, 2), 0.5))


def test_where_the_model_says_no_number_the_worst_cell_covers_too():
    X, y = np.repeat([[-1.0], [1.0]], 500, axis=0), np.zeros(1000)
    sets = ConformalClassifier(Silent(), 4.0, 0.2).fit(X, y.astype(int))
    assert sets.threshold_ == 0.0
    assert sets.predict_set(X).all()
    for said in (np.nan, np.inf, -np.inf):
        model = Silent()
        model.said = said
        bands = ConformalRegressor(model, 4.0, 0.2, largest_error=1.0).fit(X, y)
        assert (bands.predict_interval(X) == [-np.inf, np.inf]).all()


@pytest.mark.parametrize("target", [1.7e308, np.inf])
@pytest.mark.filterwarnings("error")
def test_a_distance_beyond_all_numbers_is_no_warning(target):
    steep = LinearRegression().fit([[0.0], [1.0]], [0.0, -1e8])  # it says -1e308, or so, of the largest number
    X, y = np.zeros((300, 1)), np.zeros(300)
    X[7], y[7] = np.inf, target
    assert ConformalRegressor(steep, 4.0, 0.2, largest_error=1.0).fit(X, y).width_ < 0.1


def test_the_grid_is_made_of_public_numbers():
    random = np.random.default_rng(5)
    grids = [
        ConformalRegressor(IDENTITY, 1.0, 0.2, largest_error=9.0).fit(*normal_errors(random, 500)).grid_
        for _ in range(2)
    ]
    assert np.array_equal(*grids)


def test_a_model_that_says_labels_alone_has_sets_of_one_label_or_all():
    random = np.random.default_rng(6)
    X = random.normal(size=(4000, 1))
    y = np.where((X[:, 0] > 0) ^ (random.random(4000) < 0.15), "yes", "no")
    rule = SemiPrivateClassifier(epsilon=8.0, classes=["no", "yes"]).fit(X[:1000], y[:1000], public=X[:50])
    loose = ConformalClassifier(rule, 1.0, 0.3).fit(X[1000:], y[1000:])
    strict = ConformalClassifier(rule, 1.0, 0.05).fit(X[1000:], y[1000:])
    assert loose.predict_set([[-2.0], [2.0]]).tolist() == [[True, False], [False, True]]
    assert strict.predict_set([[-2.0], [2.0]]).all()


def test_a_model_of_named_columns_is_asked_by_name():
    random = np.random.default_rng(7)
    X = random.normal(size=(1500, 2))
    y = (X[:, 0] > 0).astype(int)
    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = LogisticRegression().fit(frame[:200], y[:200])
    by_name = ConformalClassifier(model, 2.0).fit(frame[200:], y[200:])
    by_place = ConformalClassifier(model, 2.0).fit(X[200:], y[200:])
    assert by_name.predict_set(frame[:50]).shape == by_place.predict_set(X[:50]).shape == (50, 2)
    with pytest.raises(InvalidInput, match="ask with one too"):
        by_name.predict_set(X[:50])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model": None}, "needs predict"),
        ({"model": LogisticRegression}, "needs predict"),
        ({"model": LinearRegression()}, "classes_ name two or more"),
        ({"per_person": "first"}, "per_person='first' requires groups"),
    ],
)
def test_what_cannot_be_is_refused_before_a_row_is_read(change, text):
    settings = {"model": DummyClassifier().fit([[0.0], [1.0]], [0, 1]), "epsilon": 1.0} | change
    with pytest.raises(InvalidInput, match=text):
        ConformalClassifier(**settings).fit(np.zeros((500, 1)), np.zeros(500, dtype=int))


def test_other_refusals():
    X, y = np.zeros((500, 1)), np.zeros(500)
    with pytest.raises(InvalidInput, match="largest_error"):
        ConformalRegressor(IDENTITY).fit(X, y)
    with pytest.raises(InvalidInput, match="must have 1 features like the model, got 2"):
        ConformalRegressor(IDENTITY, largest_error=1.0).fit(np.zeros((500, 2)), y)
    private = PrivateClassifier(epsilon=2.0, teachers=20, queries=10, aggregator="noisy_max", classes=[0, 1])
    private.fit(np.arange(200.0)[:, np.newaxis], np.arange(200) % 2)
    with pytest.raises(InvalidInput, match="give a published model"):
        ConformalClassifier(private).fit(X, np.zeros(500, dtype=int))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [7, None, np.nan, "a diagnosis", 1j, [0]], ids=str)
def test_a_label_that_the_model_does_not_know_is_the_least_likely_and_moves_nothing_else(odd):
    X = np.linspace(-3, 3, 600)[:, np.newaxis]
    y = (X[:, 0] > 0).astype(int)
    model, fitted = LogisticRegression().fit(X, y), []
    for label in (odd, "another"):
        with entropy_tape(2):
            made = ConformalClassifier(model).fit(X, [label, *y[1:].tolist()])
            fitted.append(made.predict_set(X).tolist())
    assert fitted[0] == fitted[1]
    unknown = ConformalClassifier(model, epsilon=9.0).fit(X, np.full(600, 7))
    assert unknown.predict_set(X).all()


# ------------------------------------------------------------------------------------------- saved, served, commanded


def a_classifier():
    random = np.random.default_rng(8)
    X = random.normal(size=(2000, 1))
    y = np.where(X[:, 0] + random.normal(size=2000) > 0, "yes", "no")
    return ConformalClassifier(LogisticRegression().fit(X[:500], y[:500]), 2.0).fit(X[500:], y[500:])


def a_regressor():
    return ConformalRegressor(IDENTITY, 2.0, largest_error=100.0).fit(*normal_errors(np.random.default_rng(9), 1500))


def test_sets_over_a_model_of_named_columns_take_what_the_model_takes():
    random = np.random.default_rng(3)
    X = pandas.DataFrame({"ward": random.choice([100, 200], size=600), "b": random.normal(size=600)})
    columns = AdditiveColumns(declared={"ward": ["100", "200"], "b": (-3, 3)})
    model = PrivateLogisticRegression(epsilon=9.0, classes=[0, 1], columns=columns).fit(X, (X.b > 0).astype(int))
    sets = ConformalClassifier(model, 4.0, 0.2).fit(X, (X.b > 0).astype(int))
    assert np.array_equal(sets.predict(X[:50]), model.predict(X[:50]))  # categories that are written as numbers


def test_a_cell_that_is_none_of_the_grid_is_refused(tmp_path):
    folder = save(a_regressor(), tmp_path / "bands")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"cell": manifest["quantile"]["cells"]}))
    with pytest.raises(InvalidInput, match="outside the grid"):
        load(folder)


def test_served_outputs_have_sets_and_intervals():
    sets, bands = a_classifier(), a_regressor()
    queries = np.array([[3.0], [0.0], [-3.0]])
    served = Model.of_published("sets", sets)
    (reply,) = served.session.ask_all([_request(queries)])
    chosen = served.outputs.choose(None, binary=False)
    told = {one.name: one.values for one in served.outputs.write(reply.labels, reply.refused, chosen, reply.told)}
    assert told["label"] == sets.predict(queries).tolist()
    assert [json.loads(text) for text in told["set"]] == [["yes"], ["no", "yes"], ["no"]]
    assert [one.name for one in served.outputs.tensors] == ["label", "index", "outcome", "set"]
    served = Model.of_published("bands", bands)
    (reply,) = served.session.ask_all([_request(queries)])
    chosen = served.outputs.choose(None, binary=True)
    told = {one.name: one.values for one in served.outputs.write(reply.labels, reply.refused, chosen, reply.told)}
    assert np.column_stack([told["low"], told["high"]]) == pytest.approx(bands.predict_interval(queries))
    assert told["value"].tolist() == [0.0] * 3


def test_an_interval_without_ends_is_served_as_finite_numbers():
    y = np.full(1000, np.inf)
    served = Model.of_published(
        "bands", ConformalRegressor(IDENTITY, 4.0, 0.2, largest_error=1.0).fit(np.zeros((1000, 1)), y)
    )
    (reply,) = served.session.ask_all([_request(np.zeros((1, 1)))])
    assert np.isfinite(reply.told).all()


def _request(X):
    from quorate.core.requests import Request

    return Request(X, "")


def write_table(path, rows, seed):
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "z", "y"])
        for x, z, noise in random.normal(size=(rows, 3)):
            writer.writerow([x, z, "ill" if x + z + noise / 2 > 0 else "well"])
    return path


def write_costs(path, rows, seed):
    """Write a table of ages, wards and costs; a few costs are no numbers."""
    random = np.random.default_rng(seed)
    age, ward = random.uniform(20, 80, rows), random.choice(["east", "west"], rows)
    cost = (2 * age + 30 * (ward == "west") + random.normal(0, 5, rows)).round(2).astype(object)
    cost[:3] = ["", "none", "inf"]
    pandas.DataFrame({"age": age.round(1), "ward": ward, "cost": cost}).to_csv(path, index=False)
    return path


def test_from_a_table_to_served_intervals_on_the_command_line(tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    write_costs(tmp_path / "a.csv", 6000, 1)
    write_costs(tmp_path / "b.csv", 2000, 2)
    public = pandas.read_csv(write_costs(tmp_path / "p.csv", 500, 3)).drop(columns="cost")
    public.to_csv(tmp_path / "p.csv", index=False)
    bill = run_json("fit linear a.csv --label cost --bounds 0,250 --public p.csv --epsilon 2 --out line")
    assert bill["label"] == "cost"
    assert "classes" not in bill
    fit = "fit conformal b.csv --model line --label cost --out bands"
    assert main(fit.split()) == 1
    assert "largest_error must be a public upper bound" in capsys.readouterr().err
    bill = run_json(f"{fit} --largest-error 1000")
    assert (bill["label"], bill["units"], bill["delta"]) == ("cost", 2000, 0.0)
    assert 7 < bill["width"] < 16  # 1.645 * 5 is what the noise of the costs alone asks for
    (tmp_path / "q.csv").write_text("age,ward,cost\n50,west,9\n30,east,\n")
    assert main(["predict", "bands", "q.csv"]) == 0
    header, *lines = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["row", "answer", "outcome", "low", "high"]
    assert all(float(line[3]) < truth < float(line[4]) for line, truth in zip(lines, (130, 60), strict=True))
    served = Model.of_published("bands", load("bands"), schema=open_folder("bands").schema())
    assert [tensor.name for tensor in served.inputs.tensors] == ["age", "ward"]
    assert [tensor.name for tensor in served.outputs.tensors] == ["value", "low", "high"]


@pytest.mark.parametrize("frames", [False, True])
def test_a_regression_saved_from_python_has_intervals_by_the_command_line(frames, tmp_path, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    table = pandas.read_csv(write_costs(tmp_path / "a.csv", 4000, 1))
    rows = table[["age", "ward"]] if frames else table[["age"]].to_numpy()
    model = PrivateLinearRegression(epsilon=4.0, bounds=(0, 250)).fit(rows, table["cost"], public=rows[:400])
    save(model, "line")
    held = pandas.read_csv(write_costs(tmp_path / "b.csv", 2000, 2))[["cost", "ward", "age"]]
    held.insert(0, "patient", np.arange(2000) // 2)
    held.to_csv("b.csv", index=False)
    fit = "fit conformal b.csv --model line --label cost --groups patient --largest-error 1e3 --out bands"
    bill = run_json(fit if frames else f"{fit} --leave-out ward")
    assert (bill["units"], bill["privacy_unit"]) == (1000, "person")
    assert 8 < bill["width"] < (25 if frames else 60)
    (tmp_path / "q.csv").write_text("age,ward\n50,west\n" if frames else "age\n50\n")
    answered = run_json("predict bands q.csv")
    assert answered["lows"][0] < 130 < answered["highs"][0]


@pytest.mark.parametrize("kind", ["linear", "scikit-learn"])
@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("odd", ["secret", "1e999"])
def test_no_value_of_a_private_file_is_refused_where_the_model_has_no_schema(
    kind, frames, odd, tmp_path, monkeypatch, run_json
):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(4)
    X = pandas.DataFrame(random.normal(size=(600, 2)), columns=["a", "b"])
    y = (X.a > 0).astype(int)
    rows = X if frames else X.to_numpy()
    if kind == "linear":
        save(PrivateLogisticRegression(epsilon=9.0, classes=[0, 1]).fit(rows, y, public=rows), "rule")
    else:
        student = StudentClassifier(LogisticRegression(), epsilon=9.0, classes=[0, 1], teachers=50)
        save(student.fit(rows, y, public=rows[:40]), "rule")
    held = X.assign(yes=y).astype(object)
    held.loc[7, "a"] = odd
    held.to_csv("held.csv", index=False)
    assert run_json("check rule held.csv --label yes")["units"] == 600


def test_sets_of_several_labels_are_refused():
    X = np.random.default_rng(5).normal(size=(900, 2))
    model = PrivateLogisticRegression(epsilon=4.0).fit(X, (X > 0).astype(int), public=X[:300])
    with pytest.raises(InvalidInput, match="a fitted classifier of one label"):
        ConformalClassifier(model).fit(X, X[:, 0] > 0)


class Rule(ClassifierMixin, BaseEstimator):
    """A published rule of a type that nobody knows."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[(np.asarray(X)[:, 0] > 0).astype(int)]

    def call_rows(self):
        return 256


def test_types_that_are_named_are_trusted_by_every_command_that_asks_a_published_model(tmp_path, capsys, monkeypatch):
    random = np.random.default_rng(6)
    X = random.normal(size=(600, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    student = StudentClassifier(student=Rule(), epsilon=20.0, teachers=100, queries=20, aggregator="noisy_max")
    name = f"{Rule.__module__}.Rule"
    save(student.set_params(classes=["no", "yes"]).fit(X, y, public=X[:30]), tmp_path / "rule", trusted=[name])
    table = pandas.DataFrame(X, columns=["a", "b"]).assign(y=y)
    table.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    rows = "t.csv --label y --classes no,yes"
    commands = (
        f"fit conformal {rows} --model rule --out sets",
        f"fit student-first {rows} --student rule --teachers 400 --dissents 3 --epsilon 4 --out corrected",
        f"check rule {rows}",
    )
    for command in commands:
        assert main(command.split()) == 1
        assert "Rule" in capsys.readouterr().err
        assert main([*command.split(), "--trusted", name]) == 0
    for folder in ("sets", "corrected"):
        load(folder, trusted=[name])


def test_the_command_line_refuses_what_is_not_published(tmp_path, capsys):
    classifier = PrivateClassifier(epsilon=2.0, teachers=20, queries=10, aggregator="noisy_max", classes=[0, 1])
    save(classifier.fit(np.arange(200.0)[:, np.newaxis], np.arange(200) % 2), tmp_path / "private")
    held = write_table(tmp_path / "b.csv", 100, 3)
    told = ["fit", "conformal", held, "--model", tmp_path / "private", "--label", "y", "--out", tmp_path / "sets"]
    assert main([str(part) for part in told]) == 1
    assert "--model takes the folder of a published classifier" in " ".join(capsys.readouterr().err.split())
