"""`quorate.fit`: one call from a table to a model that was tested privately."""

import functools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import quorate as qr
from quorate import Infeasible, InvalidInput
from quorate.auditing.replay import entropy_tape
from quorate.models.fitting import _test_units
from quorate.tables import Number, Schema

ROWS = 12_000


def clinic(rows=ROWS, *, seed=0):
    """A messy table: an id, a person, gaps, texts, a number that matters and one that does not."""
    draw = np.random.default_rng(seed)
    age, site = draw.uniform(18, 80, rows), draw.choice(["north", "south", "east"], rows)
    ill = age + 15 * (site == "east") + draw.normal(0, 8, rows) > 55
    frame = pd.DataFrame({"id": range(rows), "age": age, "site": site, "shoe": draw.normal(42, 3, rows)})
    frame.loc[::50, "age"] = np.nan
    return frame.assign(person=draw.integers(rows // 3, size=rows), ill=np.where(ill, "yes", "no"))


def test_a_table_alone_becomes_a_tested_model_that_can_be_published(tmp_path):
    table = clinic()
    fitted = qr.fit(table, "ill", epsilon=2.0, classes=["no", "yes"], leave_out=["person"], test_share=0.1)
    assert fitted.columns == ("age", "site", "shoe")
    assert (fitted.units, fitted.test_units) == (0.9 * ROWS, 0.1 * ROWS)
    error, (answer, constant) = fitted.check.measure("error"), fitted.constant_error()
    assert error.high < constant.low  # seven standard deviations apart
    assert answer in ("no", "yes")
    assert "Its labels are better than a constant answer." in fitted.summary()
    assert fitted.claim.startswith("the model and its test together are (2, 1e-06)-differentially private")
    fresh = clinic(3000, seed=1)
    assert (fitted.predict(fresh) == fresh["ill"]).mean() > 0.8
    assert fitted.predict_proba(fresh).shape == (3000, 2)
    loaded = qr.load(fitted.save(tmp_path / "model"))
    assert (loaded.predict(fresh[list(fitted.columns)]) == fitted.predict(fresh)).all()
    assert (tmp_path / "model" / "summary.txt").read_text() == fitted.summary()


def test_a_file_is_read_by_its_path_and_numbers_are_tested_by_intervals(tmp_path):
    table = clinic()
    path = tmp_path / "clinic.csv"
    table.assign(cost=3 * table["age"].fillna(50) + table["shoe"]).to_csv(path, index=False)
    fitted = qr.fit(str(path), "cost", bounds=(0, 400), leave_out=["person", "ill"], epsilon=4.0)
    assert fitted.check is None
    assert fitted.intervals.width_ < 60  # a constant answer needs 79
    assert "90% of new values lie within" in fitted.summary()
    with pytest.raises(InvalidInput, match="no probabilities"):
        fitted.predict_proba(path)
    with pytest.raises(InvalidInput, match="only a classifier"):
        fitted.constant_error()


def test_neither_pandas_nor_polars_is_needed(no_frame_library, tmp_path):
    table = pa.Table.from_pandas(clinic())
    fitted = qr.fit(table, "ill", epsilon=2.0, classes=["no", "yes"], leave_out=["person"])
    assert fitted.check.measure("error").high < 0.5
    loaded = qr.load(fitted.save(tmp_path / "model"))
    assert loaded.predict(table.select(fitted.columns)).tolist() == fitted.predict(table).tolist()


def test_people_are_never_on_both_sides_of_the_split():
    table = clinic(6000)
    fitted = qr.fit(table, "ill", epsilon=4.0, classes=["no", "yes"], groups="person")
    assert fitted.units + fitted.test_units == table["person"].nunique()
    assert fitted.check.unit == "person"
    assert "all rows of one person" in fitted.claim


def test_intervals_are_claimed_for_the_rows_that_they_were_tested_on():
    table = clinic(6000).drop(columns="ill")
    fitted = qr.fit(table, "shoe", epsilon=4.0, bounds=(20, 70), groups="person")
    assert "person's first row" in fitted.intervals.covers_


@pytest.mark.parametrize("known", ["schema", "public"])
def test_columns_may_be_declared_or_read_off_a_public_table(known):
    table, public = clinic()[["age", "shoe", "ill"]], clinic(500, seed=2)[["age", "shoe", "ill"]]
    columns = Schema({"age": Number(low=18, high=80), "shoe": Number(low=30, high=55)}).with_gaps()
    fitted = qr.fit(table, "ill", classes=["no", "yes"], **{known: columns if known == "schema" else public})
    assert "Its labels are better than a constant answer." in fitted.summary()


def test_numbers_of_a_public_file_are_numbers(tmp_path):
    """A CSV file has no types: taken as texts, every number that is frequent in it would be a category."""
    table, public = clinic()[["age", "site", "ill"]], tmp_path / "public.csv"
    clinic(500, seed=2)[["age", "site"]].to_csv(public, index=False)
    fitted = qr.fit(table, "ill", classes=["no", "yes"], public=str(public))
    assert fitted.model.form_.kinds == ("number", "text")
    assert "Its labels are better than a constant answer." in fitted.summary()


def test_noise_alone_is_not_said_to_be_better_than_a_constant():
    draw = np.random.default_rng(3)
    table = {"x": draw.normal(size=3000), "y": np.where(draw.random(3000) < 0.9, "a", "b")}
    for seed in range(5):  # on tapes: an interval of 95% is twice off in three fits of a thousand
        with entropy_tape(seed):
            assert "Its labels are better" not in qr.fit(table, "y", epsilon=1.0, classes=["a", "b"]).summary()


@pytest.mark.parametrize(("count", "tested"), [(200, 50), (4000, 1000), (30_000, 5000), (10**6, 10**5)])
def test_how_many_units_are_tested_on_depends_on_their_number_alone(count, tested):
    assert _test_units(count, "auto") == tested


def test_without_a_test_all_units_are_fitted_on():
    fitted = qr.fit(clinic(3000), "ill", classes=["no", "yes"], test_share=0)
    assert (fitted.units, fitted.test_units, fitted.check) == (3000, 0, None)
    assert "It was not tested" in fitted.summary()


def test_the_split_and_its_size_do_not_depend_on_values():
    table = clinic(2000)
    other = table.copy()
    other.loc[7, ["age", "site", "shoe", "ill"]] = [np.inf, None, -1e300, "perhaps"]
    sizes = []
    for rows in (table, other):
        with entropy_tape(5):
            fitted = qr.fit(rows, "ill", epsilon=3.0, classes=["no", "yes"])
        sizes.append((fitted.units, fitted.test_units, fitted.columns, fitted.claim))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("named", "problem", "words"),
    [
        ({"label": "illness"}, InvalidInput, "there is no column 'illness'"),
        ({"groups": "who"}, InvalidInput, "there is no column 'who'"),
        ({"classes": ["no", "yes"], "bounds": (0, 1)}, InvalidInput, "declare one of them"),
        ({"public": clinic(50), "schema": Schema({"age": Number(low=0, high=1)})}, InvalidInput, "give one of them"),
        ({"leave_out": ["age", "site", "shoe", "person"]}, InvalidInput, "no column is left"),
        ({"test_share": 0.01}, Infeasible, "test_share=0"),
        ({"test_share": 1.5}, InvalidInput, "test_share"),
        ({"epsilon": -1.0}, InvalidInput, "epsilon"),
    ],
)
def test_refusals_say_what_to_change(named, problem, words):
    with pytest.raises(problem, match=words):
        qr.fit(clinic(2000), **{"label": "ill"} | named)


def test_a_query_without_a_column_of_the_model_is_refused():
    fitted = qr.fit(clinic(2000), "ill", epsilon=3.0, classes=["no", "yes"])
    with pytest.raises(InvalidInput, match="needs the columns site"):
        fitted.predict({"age": [30], "shoe": [40], "person": [1]})


def test_classes_that_are_read_are_those_of_the_whole_table_whatever_the_split(monkeypatch):
    labels = np.where(np.arange(400) % 2 == 0, "no", "yes").tolist()
    schema = Schema({"age": Number(low=0, high=1)})
    for step in (1, -1):  # the rare class is dealt to those that are fitted on, or to those that are tested on
        dealt = functools.partial(lambda step, count: np.arange(count)[::step], step)
        monkeypatch.setattr("quorate.compute.ensemble.dealing._secret_permutation", dealt)
        table = {"age": np.linspace(0, 1, 400), "ill": ["perhaps", *labels[1:]]}
        fitted = qr.fit(table, "ill", epsilon=5.0, schema=schema, test_share=0.25)
        assert fitted.model.classes_.tolist() == ["no", "perhaps", "yes"]
    assert fitted.claim.endswith("; the label set was read from y and counts as public")
    assert "label set" not in qr.fit(table, "ill", schema=schema, classes=["no", "perhaps", "yes"]).claim
