"""Workloads on tables: columns, names, expressions, and values that must not raise."""

import json
import math
import time
import warnings
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cover_hypotheses import read_answers
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.core.errors import Infeasible, InvalidInput
from quorate.release import QueryRelease
from quorate.release.auto_cuts import AutoCuts
from quorate.release.queries import Marginals, Matrix, Prefixes, Ranges, Rows
from quorate.release.workloads import BoundWorkload, Columns, Workload
from quorate.release.workloads._expressions import LONGEST, parse_expression
from quorate.tables import Category, Date, Number, Reading, Schema
from quorate.tables.cells import OTHER, cells_of
from quorate.tables.containers import open_column, open_columns
from quorate.tables.document import kind_from_document, kind_to_document

COLUMNS = Columns.from_dict({"sex": ["f", "m"], "age": {"cuts": [18, 65]}, "ill": ["no", "yes"]})
RECORDS = {
    "age": [5, 18, 64.5, 65, None, 1e308, 30, -2],
    "sex": ["f", "m", "m", "f", "m", "x", None, "f"],
    "ill": ["no", "yes", "no", "no", "yes", "no", "maybe", "yes"],
}


def counted(bound, table):
    return read_answers(bound, bound.queries.answers(bound.count(table)), np.arange(bound.count_queries))


def test_the_same_records_in_any_frame_have_the_same_codes():
    expected = COLUMNS.encode(RECORDS).codes
    frames = [pd.DataFrame(RECORDS), pl.DataFrame(RECORDS, strict=False), pa.table(RECORDS)]
    frames.append(pd.DataFrame(RECORDS).astype({"sex": "category"}))
    frames.append(pd.DataFrame(RECORDS).astype({"age": object}))
    frames.append(pd.DataFrame({name: [None if v is None else str(v) for v in vs] for name, vs in RECORDS.items()}))
    for frame in frames:
        np.testing.assert_array_equal(COLUMNS.encode(frame).codes, expected)
    matrix = np.array([[5.0, 1.0], [np.nan, 7.0]])
    plain = Columns({"age": Number(cuts=[18]), "kind": Category([1, 2])})
    np.testing.assert_array_equal(plain.encode(matrix).codes, [[0, 0], [2, 2]])
    np.testing.assert_array_equal(expected[:3], [[0, 0, 0], [1, 1, 1], [1, 1, 0]])


def test_a_record_that_is_no_number_is_in_the_last_cell_whatever_the_column_is():
    def codes(values, kind=None):
        return cells_of(kind or Number(cuts=[0.0])).codes(open_column(values)).tolist()

    assert codes(pa.array(["1", "x", None, "-inf", "NaN"])) == [1, 2, 2, 0, 2]
    assert codes(pa.array([True, None])) == [1, 2]
    assert codes(pa.array([None, None], type=pa.null())) == [2, 2]
    assert codes(pa.array([float("inf"), float("-inf"), float("nan")])) == [1, 0, 2]
    assert codes(pa.array([1, -1, None], pa.time32("s"))) == [1, 0, 2]
    assert codes(pa.array([1, -1, None], pa.timestamp("s"))) == [2, 2, 2]
    assert codes(pa.array(["NA", "null"]), Category(["NA"])) == [0, 1], "a declared text is no gap"


def test_a_value_is_written_alike_in_a_column_of_numbers_and_among_other_objects():
    values = [1e-7, 0.1, 1e16, 2.5e300, 5.0, -0.0, 1 / 3, 2.0**53]
    kind = cells_of(Category([*values, True]))
    plain = kind.codes(open_columns(pd.DataFrame({"a": values}), ["a"])["a"])
    mixed = kind.codes(open_columns(pd.DataFrame({"a": [*values, "text"]}), ["a"])["a"])
    np.testing.assert_array_equal(mixed[:-1], plain)
    np.testing.assert_array_equal(plain, np.arange(len(values)))
    truths = open_columns(pd.DataFrame({"a": pd.Series([True, False, None], dtype=object)}), ["a"])["a"]
    np.testing.assert_array_equal(cells_of(Number(cuts=[0.5])).codes(truths), [1, 0, 2])


def test_a_long_double_beyond_all_floats_warns_nobody():
    """Found in review: NumPy's warning of an overflow told that some record has one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Columns({"a": Number(cuts=[0])}).encode({"a": np.array(["-1", "1e4000", "1"], dtype=np.longdouble)})
    assert found.codes.ravel().tolist() == [0, 1, 1]


@pytest.mark.parametrize("odd", ["x", None, pd.Timestamp("2024-01-01T00:00:00.000000001")])
@pytest.mark.parametrize("written", [lambda column: column, lambda column: column.astype("string")])
def test_no_record_takes_the_moments_of_others_away(written, odd):
    """Where one moment has nanoseconds pandas writes them of all, and so does a column of objects of each that has."""
    others = [pd.Timestamp("2024-01-31T08:30:00.123456789"), pd.Timestamp("2024-12-31")]
    column = written(pd.Series([*others, odd]))
    assert DATED.encode(pd.DataFrame({"day": column})).codes.ravel().tolist()[:2] == [0, 2]
    assert DATED.encode({"day": [*others, odd]}).codes.ravel().tolist()[:2] == [0, 2]


@pytest.mark.parametrize(
    ("declared", "column", "codes"),
    [
        (["1.0", "2.0"], pa.array(["1", "2.00", "3"]), [0, 1, 2]),
        (["1.0", "2.0"], pa.array([1, 2, None]), [0, 1, 2]),
        (["1", "2"], pa.array(["1.0", "+1", " 2 "]), [0, 0, 1]),
        (["False", "True"], pa.array([True, False, None]), [1, 0, 2]),
        (["false", "true"], pa.array(["True", "FALSE", "t"]), [1, 0, 2]),
        (["1", "1.0"], pa.array(["1", "1.0", "1.00"]), [0, 1, 0]),
        (["01", "x"], pa.array(["1", "01", "1.0"]), [0, 0, 0]),
        (["01", "1"], pa.array(["1", "01", "1.0"]), [1, 0, 1]),
        (["North", "south"], pa.array(["north", "SOUTH", "nort"]), [0, 1, 2]),
        (["a", "A"], pa.array(["a", "A", "x"]), [0, 1, 2]),
    ],
)
def test_a_code_or_a_truth_value_is_found_as_another_file_writes_it(declared, column, codes):
    """A public table whose column has a gap is written with 1.0, and private records with 1: all would be "other"."""
    assert cells_of(Category(declared)).codes(open_column(column)).tolist() == codes


def test_a_category_that_is_called_other_is_not_what_is_not_declared():
    release = QueryRelease(Workload.marginals(1), columns={"race": ["a", "other"]}, epsilon=100.0)
    release.fit({"race": ["a"] * 1000 + ["other"] * 2000 + ["z"] * 1000})
    told = dict(zip(release.answer()["query"].to_pylist(), release.answer()["answer"].to_pylist(), strict=True))
    assert {name: round(share, 2) for name, share in told.items()} == {
        "race = a": 0.25,
        "race = other": 0.5,
        "race = not declared": 0.25,
    }
    asked = release.answer(["race = other", {"race": "other"}, {"race": "not declared"}])["answer"].to_pylist()
    assert [round(share, 2) for share in asked] == [0.5, 0.5, 0.25]
    assert cells_of(Category(["other", "not declared"])).name(2) == "(not declared)"


def test_columns_that_are_called_like_those_of_answers_are_in_the_text_of_a_query():
    columns = {"query": ["yes", "no"], "answer": ["x", "y"], "low": {"cuts": [0]}}
    release = QueryRelease(Workload.marginals(2), columns=columns)
    release.fit({"query": ["yes", "no"] * 50, "answer": ["x"] * 100, "low": [1] * 100})
    answers = release.answer()
    assert answers.column_names == ["query", "answer", "error", "low", "high"]
    assert answers["query"][0].as_py() == "query = yes and answer = x"
    assert len(set(answers["query"].to_pylist())) == len(answers)
    assert Workload.marginals(1).bind(columns={"a": ["", "x"]}).describe()[0]["query"] == "a = "
    by_name = release.answer(["query = no and answer = x"])
    assert by_name == release.answer([{"query": "no", "answer": "x"}])


def test_columns_with_numbers_for_names_and_dates_one_by_one():
    frame = pd.DataFrame({0: ["f", "m"], 1: [1, 2]})
    assert Columns.from_public(frame, bins=2, codes=True).encode(frame).codes.tolist() == [[0, 0], [1, 1]]
    dates = list(np.array(["2019-12-31", "2020-01-01"], dtype="datetime64[ns]"))
    assert Columns({"a": Date(cuts=["2020-01-01"])}).encode({"a": dates}).codes.ravel().tolist() == [0, 1]


def test_columns_from_public_rows():
    public = pd.DataFrame({"sex": ["f", "m", "f"], "age": [30.0, 50.0, np.nan], "ok": [True, False, True]})
    columns = Columns.from_public(public)
    assert columns.kinds == {
        "sex": Category(["f", "m"]),
        "age": Number(cuts=[40.0]),
        "ok": Category(["false", "true"]),
    }
    assert Columns.from_dict(json.loads(json.dumps(columns.to_dict()))) == columns
    declared = Columns.from_public(public, declared={"sex": ["f", "m", "x"]})
    assert declared.cells["sex"].size == 4
    binned = Columns.from_public({"age": np.arange(1000)}, bins=10).cells["age"]
    assert binned.size == 11
    np.testing.assert_allclose(np.diff(binned.values), 100, atol=1)
    few = Columns.from_public({"age": [1, 2, 2, 3]}, bins=10).kinds["age"]
    assert few == Number(cuts=[2.0, 3.0], spans=[[1, 2], [2, 3], [3, 4]])  # whole numbers are cut at whole numbers


def test_few_whole_numbers_are_codes_and_stay_whole():
    public = {"SEX": [1, 2, 2, 1, 2] * 5, "KIDS": [0, 1, 2, 3, 10] * 5, "AGE": list(range(20, 45))}
    bound = Workload.marginals(1, bins=5).bind(public=public)
    assert bound.columns.kinds["SEX"] == Category(["1", "2"])
    assert bound.columns.kinds["KIDS"] == Category(["0", "1", "2", "3", "10"])
    assert [row["query"] for row in bound.describe()[:3]] == ["SEX = 1", "SEX = 2", "SEX = other"]
    assert bound.find({"SEX": 2}) == bound.find({"SEX": "2"}) == 1
    assert bound.encode({**public, "SEX": np.array([1.0, 2.0, np.nan, 7.0, 1.0] * 5)}).codes[:5, 0].tolist() == [
        0,
        1,
        2,
        2,
        0,
    ]
    ages = bound.columns.cells["AGE"]
    assert ages.values == (25.0, 30.0, 35.0, 40.0)
    assert all(isinstance(ages.centre(code), int) and ages.code(ages.centre(code)) == code for code in range(5))
    line = Workload.thresholds("KIDS", by="SEX").bind(public=public)
    assert line.columns.kinds == {"SEX": Category(["1", "2"]), "KIDS": Number(cuts=[1, 2, 3, 7])}
    told = Workload.expressions(["KIDS >= 2"]).bind(public=public)  # numbers can be compared
    assert told.describe()[0]["query"] == "KIDS >= 2"
    mixed = Columns.from_public({"grade": ["10", "K", "2", "1"] * 5}, bins=10, codes=True)
    assert mixed.kinds["grade"] == Category(["1", "2", "10", "K"])


def test_a_cell_without_an_end_is_as_wide_as_the_one_beside_it():
    """A long tail on one side says nothing about the other: gains from 0 have no synthetic loss of thousands."""
    gains = cells_of(Number(cuts=[0, 10, 30, 90_000]))
    assert -10 <= gains.centre(0, 0.01) < 0
    assert 90_000 <= gains.centre(4, 0.99) < 90_000 + 89_970
    alone = cells_of(Number(cuts=[5]))
    assert (alone.centre(0, 0.0), alone.centre(1, 0.5)) == (3, 6)


def test_a_text_among_numbers_and_many_categories_are_no_trouble():
    wages = [str(wage) for wage in range(500)]
    assert len(Columns.from_public({"wage": [*wages, "top secret"]}, bins=10).kinds["wage"].cuts) == 9
    towns = [f"town {number % 3000}" for number in range(9000)]
    kind = Columns.from_public({"town": towns}).kinds["town"]
    assert len(kind.categories) == 3000
    with pytest.raises(InvalidInput, match="3000 different texts"):  # each once: they name people
        Columns.from_public({"town": towns[:3000]})
    many = Columns({"town": Category([f"town {number}" for number in range(20_000)])})
    began = time.process_time()
    assert [many.code("town", f"town {number}") for number in range(20_000)] == list(range(20_000))
    assert time.process_time() - began < 5  # looking through the list for each would take half a minute


def test_a_closed_column_has_no_cell_for_all_else_and_no_value_raises():
    document = {"sex": {"categories": ["f", "m"], "closed": True}, "age": {"cuts": [18.0, 65.0], "closed": True}}
    columns = Columns.from_dict(document)
    assert columns.sizes == (2, 3)
    assert columns.to_dict() == document
    assert columns.encode({"sex": ["m", "x", None], "age": [70, None, "?"]}).codes.tolist() == [[1, 2], [0, 0], [0, 0]]
    assert columns.decode(np.array([[1, 2]])) == {"sex": ["m"], "age": [88]}
    with pytest.raises(InvalidInput, match="'other' is not among the declared categories"):
        columns.code("sex", "other")
    bound = Workload.thresholds("age", by="sex").bind(columns=columns)
    assert bound.count_queries == 6
    assert bound.count({"sex": ["f", "m", "m"], "age": [1, 20, 70]}).tolist() == [1, 0, 0, 0, 1, 1]
    ranges = Workload.ranges("age").bind(columns=columns)
    assert ranges.describe(ranges.find({"age": (18, None)}))[0]["query"] == "age >= 18"
    dates = Columns.from_dict({"day": {"kind": "date", "cuts": ["2024-02-01"], "unit": "days", "closed": True}})
    assert dates.sizes == (2,)
    assert Columns.from_dict(dates.to_dict()) == dates
    kind = Category(["f", "m"], closed=True)
    assert kind_from_document("sex", kind_to_document(kind)) == kind
    with pytest.raises(InvalidInput, match="closed must"):
        Category(["f", "m"], closed="yes")


def test_columns_that_are_not_declared_are_read_off_public_rows_or_named_in_a_note():
    public = {"sex": ["f", "m"], "age": [30.0, 50.0]}
    bound = Workload.marginals(1).bind(public=public, columns={"sex": ["f", "m", "x"]})
    assert bound.columns.names == ("sex", "age")
    assert bound.columns.kinds["sex"] == Category(["f", "m", "x"])
    private = {"sex": ["f", "m"] * 100, "age": [30.0, 50.0] * 100, "name": ["ann", "bob"] * 100}
    release = QueryRelease(Workload.marginals(1), columns={"sex": ["f", "m"]}).fit(private)
    assert release.notes_[-1] == "columns that are neither declared nor public, and left out: 'age', 'name'"
    whole = QueryRelease(Workload.marginals(1), columns={"sex": ["f", "m"]}).fit({"sex": private["sex"]})
    assert not any("left out" in note for note in whole.notes_)


@pytest.mark.parametrize(
    ("public", "text"),
    [
        ({"a": [None, None]}, "has no value in the public table"),
        ({"a": [str(i) + "x" for i in range(300)]}, "300 different texts"),
        (pa.table({"a": [[0]]}), "column 'a': values must be numbers, texts, dates or truth values, got list"),
        (pa.table({"a": pa.array([None], type=pa.timestamp("s"))}), "has no value in the public table"),
        ([[1, 2]], "must have names"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "appears twice"),
    ],
)
def test_bad_public_tables_are_refused(public, text):
    with pytest.raises(InvalidInput, match=text):
        Columns.from_public(public)


def test_one_schema_declares_columns_for_learners_and_for_releases(tmp_path):
    schema = Schema({"age": Number(low=0, high=100, cuts=[18, 65]), "sex": Category(["f", "m"], missing="indicator")})
    schema.save(tmp_path / "schema.json")
    columns = Columns.load(tmp_path / "schema.json")
    assert (
        columns
        == Columns(schema.columns)
        == Columns.from_dict({"age": {"cuts": [18, 65], "low": 0, "high": 100}, "sex": ["f", "m"]})
    )
    age = {"cuts": [18.0, 65.0], "low": 0.0, "high": 100.0}
    assert columns.to_dict() == {"age": age, "sex": {"categories": ["f", "m"]}}
    short = Schema.from_document({"columns": {"age": {"cuts": [18, 65]}, "sex": ["f", "m"]}})
    assert short.columns == {"age": Number(cuts=[18, 65]), "sex": Category(["f", "m"])}
    named = Columns.from_dict({"columns": {"categories": ["a", "b"]}})
    assert named.names == ("columns",), "a column may have this name"
    with pytest.raises(InvalidInput, match="column 'age': a release needs the cuts of a number"):
        Workload.marginals(1).bind(columns=Columns({"age": Number(low=0, high=100)}))


def test_a_date_is_asked_for_its_own_cuts():
    with pytest.raises(InvalidInput, match=r"column 'day': a release needs the cuts of a date: .*Date\(cuts="):
        Workload.marginals(1).bind(columns=Columns({"day": Date(low="2024-01-01", high="2024-12-31")}))


def test_a_public_column_named_like_an_id_is_warned_of():
    public = {"patient_id": [1, 2, 3], "sex": ["f", "m", "f"]}
    with pytest.warns(UserWarning, match=r"'patient_id' looks like the id .* and is released, at the cost of all"):
        Workload.marginals(1).bind(public)
    Workload.marginals(1).bind(public, {"patient_id": {"cuts": [2]}})  # who declares it means it


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "at least one column"),
        ({"a": []}, "column 'a': categories must be a list of at least 1"),
        ({"a": ["x", "x "]}, "'x' appears twice"),
        ({"a": {"cuts": [2, 1]}}, "each larger than the one before"),
        ({"a": {"cuts": [1, float("nan")]}}, "finite numbers"),
        ({"a": {"cuts": ["1"]}}, "rising numbers"),
        ({"a": {"cats": []}}, "expected"),
        ({"a": {"cuts": [1], "cats": []}}, "'cats' means nothing here"),
        ({"a": 3}, "expected"),
    ],
)
def test_bad_declarations_are_refused(document, text):
    with pytest.raises(InvalidInput, match=text):
        Columns.from_dict(document)


def test_marginals_count_what_their_names_say():
    bound = Workload.marginals(2).bind(columns=COLUMNS)
    assert isinstance(bound.queries, Marginals)
    answers, codes = counted(bound, RECORDS), COLUMNS.encode(RECORDS).codes
    for number, (name, answer) in enumerate(zip(bound.describe(), answers, strict=True)):
        expected = np.ones(len(codes), dtype=bool)
        for place, column in enumerate(COLUMNS.names):
            if name[column]:
                expected &= [COLUMNS.cells[column].name(code) == name[column] for code in codes[:, place]]
        assert answer == expected.sum()
        asked = {column: name[column] for column in COLUMNS.names if name[column]}
        assert bound.find(asked) == number
    assert bound.find({"age": 30, "sex": "f"}) == bound.find({"sex": "f", "age": "18 to below 65"})
    assert set(bound.describe()[0]) == {"query", *COLUMNS.names}
    with pytest.raises(InvalidInput, match="with values of at most 2 columns"):
        bound.find({"sex": "f"})
    with pytest.raises(InvalidInput, match="number from 0 to"):
        bound.describe([10**6])


def test_age_thresholds_by_sex():
    bound = Workload.thresholds("age", by="sex").bind(columns=COLUMNS)
    assert isinstance(bound.queries, Prefixes)
    answers = counted(bound, RECORDS)
    for name, answer in zip(bound.describe(), answers, strict=True):
        limit = {"below 18": 18, "below 65": 65, "any number": math.inf}[name["age"]]
        group = [sex if sex in ("f", "m") else OTHER for sex in RECORDS["sex"]]
        inside = [age is not None and age < limit for age in RECORDS["age"]]
        assert answer == sum(i and g == name["sex"] for i, g in zip(inside, group, strict=True)), name
    assert bound.describe(bound.find({"age": 60, "sex": "m"}))[0]["query"] == "age < 65 and sex = m"
    assert bound.find({"age": -math.inf, "sex": "m"}) == -1
    with pytest.raises(InvalidInput, match="'x' is not among the declared"):
        bound.find({"age": 60, "sex": "x"})
    with pytest.raises(InvalidInput, match="says sex, age"):
        bound.find({"age": 60})


@pytest.mark.parametrize("by", [(), ("sex",), ("sex", "ill")])
def test_ranges_by_groups(by):
    bound = Workload.ranges("age", by=by).bind(columns=COLUMNS)
    assert isinstance(bound.queries, Ranges)
    codes = {name: COLUMNS.select([name]).encode(RECORDS).codes[:, 0] for name in COLUMNS.names}
    answers = counted(bound, RECORDS)
    ends = [-math.inf, 18, 65, math.inf]
    for number, (name, answer) in enumerate(zip(bound.describe(), answers, strict=True)):
        match = np.ones(8, dtype=bool)
        for group in by:
            match &= [COLUMNS.cells[group].name(code) == name[group] for code in codes[group]]
        found = [
            (low, high)
            for low in ends
            for high in ends
            if low < high and bound.find({**{g: name[g] for g in by}, "age": (low, high)}) == number
        ]
        assert len(found) == 1
        low, high = found[0]
        match &= [age is not None and low <= age < high for age in RECORDS["age"]]
        assert answer == match.sum()
    with pytest.raises(InvalidInput, match="two ends"):
        bound.find({**dict.fromkeys(by, "other"), "age": 3})
    with pytest.raises(InvalidInput, match="no cut of the column lies between"):
        bound.find({**dict.fromkeys(by, "other"), "age": (17, 19)})


def test_thresholds_of_a_real_column_are_cut_between_all_public_values():
    public = {"age": np.random.default_rng(0).normal(size=500), "sex": ["f", "m"] * 250}
    bound = Workload.thresholds("age", by="sex").bind(public=public)
    assert bound.sizes == (3, 501)
    assert Workload.thresholds("age", bins=20).bind(public=public).sizes == (21,)
    assert Workload.thresholds("age").bind(public=public, columns={"age": {"cuts": [0]}}).sizes == (3,)


@pytest.mark.parametrize("workload", ["marginals:2", "thresholds:age:sex", "ranges:age"])
def test_what_is_written_down_comes_back(workload, tmp_path):
    bound = Workload.parse(workload).bind(columns=COLUMNS)
    again = BoundWorkload.from_dict(json.loads(json.dumps(bound.to_dict())))
    assert again.describe() == bound.describe()
    np.testing.assert_array_equal(counted(again, RECORDS), counted(bound, RECORDS))
    path = tmp_path / "queries.txt"
    path.write_text("# comment\nage > 3\n\nsex = 'f'\n", encoding="utf-8")
    assert Workload.parse(f"expressions:{path}").texts == ("age > 3", "sex = 'f'")
    assert Workload.from_dict(Workload.parse(workload).to_dict()) == Workload.parse(workload)


@pytest.mark.parametrize(
    "text", ["marginals", "marginals:x", "thresholds:", "means:age", "expressions:", "expressions:/nowhere/at/all"]
)
def test_words_that_are_no_workload_are_refused(text):
    with pytest.raises(InvalidInput, match=r"a workload is marginals:ORDER|no such file"):
        Workload.parse(text)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"kind": "means"}, "one of marginals"),
        ({"kind": "marginals"}, "missing a required argument: 'order'"),
        ({"kind": "marginals", "order": 2, "seed": 1}, "unexpected keyword argument 'seed'"),
        ({"kind": "marginals", "order": 0}, "at least 1"),
        ([], "one of marginals"),
    ],
)
def test_bad_documents_are_refused(document, text):
    with pytest.raises(InvalidInput, match=text):
        Workload.from_dict(document)


def test_expressions_say_what_python_would():
    table = {"age": [1, 18, 18.5, 30, 65, 66, None, math.inf], "sex": ["f", "m", "x", None, "f", "m", "f", "it's"]}
    cases = {
        "age < 18": lambda a, s: a is not None and a < 18,
        "age <= 18": lambda a, s: a is not None and a <= 18,
        "18 < age": lambda a, s: a is not None and a > 18,
        "AGE > 1 or age >= 65": None,
        "age = 18": lambda a, s: a == 18,
        "age != 18": lambda a, s: a != 18,
        "age <> 18 and sex == 'f'": lambda a, s: a != 18 and s == "f",
        "age between 18 and 65": lambda a, s: a is not None and 18 <= a <= 65,
        "age not between 18 and 65": lambda a, s: not (a is not None and 18 <= a <= 65),
        "sex in ('f', 'it''s')": lambda a, s: s in ("f", "it's"),
        "sex NOT IN ('f')": lambda a, s: s != "f",
        "not (age > 1 and (sex = 'f' or sex = 'm'))": lambda a, s: not (a is not None and a > 1 and s in ("f", "m")),
        "age in (1, 30, 7)": lambda a, s: a in (1, 30, 7),
        "\"age\" > -1e3 and `sex` = 'm'": lambda a, s: a is not None and s == "m",
        "sex = 'f' and age > 1 or age < 2": lambda a, s: a is not None and ((s == "f" and a > 1) or a < 2),
    }
    cases.pop("AGE > 1 or age >= 65")
    bound = Workload.expressions(list(cases)).bind()
    assert isinstance(bound.queries, Matrix)
    for (text, expected), answer in zip(cases.items(), counted(bound, table), strict=True):
        assert answer == sum(bool(expected(a, s)) for a, s in zip(table["age"], table["sex"], strict=True)), text
    assert [row["query"] for row in bound.describe()] == list(cases)
    assert bound.find("(AGE<18)".lower()) == 0
    with pytest.raises(InvalidInput, match="not among those"):
        bound.find("age < 19")


PARTS = st.deferred(
    lambda: st.one_of(
        st.tuples(
            st.sampled_from(["x", "y"]), st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), st.integers(-2, 2)
        ).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        st.tuples(PARTS, st.sampled_from(["and", "or"]), PARTS).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        PARTS.map(lambda part: f"not {part}"),
    )
)


@settings(max_examples=100, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=5))
def test_random_expressions_against_python(texts, records):
    table = {"x": np.array([x for x, _ in records], dtype=float), "y": np.array([y for _, y in records], dtype=float)}
    bound = Workload.expressions(texts).bind(columns={"x": {"cuts": []}, "y": {"cuts": []}})
    for text, answer in zip(texts, counted(bound, table), strict=True):
        code = text.replace("!=", "~").replace("=", "==").replace("<==", "<=").replace(">==", ">=").replace("~", "!=")
        assert answer == sum(bool(eval(code, {}, {"x": x, "y": y})) for x, y in records), text
        parse_expression(text)


def test_expressions_over_too_many_cells_become_columns(monkeypatch):
    texts = [f"c{i} > {i} and c{(i + 1) % 12} <= 3" for i in range(12)]
    table = {f"c{i}": np.random.default_rng(i).normal(scale=6, size=200) for i in range(12)}
    bound = Workload.expressions(texts).bind()
    assert isinstance(bound.queries, Marginals)
    assert isinstance(bound.count(table), Rows)
    expected = [((table[f"c{i}"] > i) & (table[f"c{(i + 1) % 12}"] <= 3)).sum() for i in range(12)]
    np.testing.assert_array_equal(counted(bound, table), expected)
    assert bound.decode(np.eye(12, dtype=int)[:1])[texts[0]] == [True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at character 1: a column, a bracket or not is expected, not the end"),
        ("age", "at character 4: a comparison such as"),
        ("age < ", "at character 7: a number or a text in single quotes is expected"),
        ("age < 'x'", "texts are compared by =, != and in, not by <"),
        ("age = female", "at character 7: a number or a text in single quotes is expected, not 'female'"),
        ("age < 3 age > 2", "at character 9: and, or, or the end is expected, not 'age'"),
        ("(age < 3", "at character 9: a closing bracket is expected"),
        ("age in 3", "an opening bracket is expected after in"),
        ("age in (3", "a comma or a closing bracket is expected"),
        ("age between 3 or 5", "and is expected between the two ends"),
        ("age between 'a' and 'b'", "a number is expected"),
        ("age not < 3", "in or between is expected after not"),
        ("3 < 4", "a column is expected"),
        ("age < 3; import os", "at character 8: ';' cannot be read here"),
        ("__import__('os').system('true')", "'.' cannot be read"),
        ("age.real < 3", "'.' cannot be read"),
        ("age < 1e999", "must be finite"),
        ("age < 3x", "cannot be read|is expected"),
        ("(" * 60 + "a<1" + ")" * 60, "at most 50 brackets"),
        ("not " * 60 + "a<1", "at most 50 brackets"),
        (" or ".join(["a<1"] * 1001), "at most 1000 comparisons"),
        ("a<1 or " * LONGEST, "may have 10000 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, problem):
    with pytest.raises(InvalidInput, match=problem):
        parse_expression(text)
    with pytest.raises(InvalidInput, match="expression 2"):
        Workload.expressions(["a < 1", text]).bind()


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["sex = 'x'"], "expression 1: column 'sex': 'x' is not among the declared categories 'f', 'm'"),
        (["age < 3", "height < 2"], "expression 2: column 'height' is not declared"),
        (["sex < 3"], "holds categories: compare it by"),
        (["age = 'old'"], "holds numbers, and is compared with a text"),
    ],
)
def test_expressions_must_fit_what_is_declared(texts, problem):
    with pytest.raises(InvalidInput, match=problem):
        Workload.expressions(texts).bind(columns=COLUMNS)


def test_an_expression_that_mixes_numbers_and_texts_needs_a_declaration():
    with pytest.raises(InvalidInput, match="with numbers and with texts"):
        Workload.expressions(["a = 1 or a = 'x'"]).bind()
    bound = Workload.expressions(["a = 1 or a = 'x'"]).bind(columns={"a": ["1", "x", "y"]})
    np.testing.assert_array_equal(counted(bound, {"a": ["1", "x", "y", 1.0]}), [3])


def test_what_is_refused_before_anything_is_counted():
    with pytest.raises(InvalidInput, match="must have the columns 'age', 'ill'; its columns are 'sex'"):
        Workload.marginals(1).bind(columns=COLUMNS).count(
            pd.DataFrame({"sex": ["secret"], "ill": ["no"]}).drop(columns="ill")
        )
    with pytest.raises(InvalidInput, match="columns must"):
        Workload.marginals(1).bind()
    with pytest.raises(InvalidInput, match="marginals of 4 columns need as many columns, not 3"):
        Workload.marginals(4).bind(columns=COLUMNS)
    with pytest.raises(InvalidInput, match="of a column of numbers or dates, which 'sex' is not"):
        Workload.thresholds("sex").bind(columns=COLUMNS)
    with pytest.raises(InvalidInput, match="'height' is not declared"):
        Workload.thresholds("height").bind(columns=COLUMNS)
    wide = Columns({"age": Number(cuts=range(100_000)), "by": Category(range(1000))})
    with pytest.raises(Infeasible, match=r"have 1\d+ cells, above"):
        Workload.ranges("age", by="by").bind(columns=wide)
    many = Columns({f"c{i}": Category(range(20)) for i in range(100)})
    with pytest.raises(Infeasible, match=r"all marginals of 6 of these 100 columns are \d+ queries"):
        Workload.marginals(6).bind(columns=many)
    with pytest.raises(InvalidInput, match="one column for each of 'sex', 'age', 'ill'"):
        COLUMNS.encode(np.zeros((3, 2)))


def test_decoded_values_lie_in_their_cells():
    columns = Columns(
        {"sex": Category(["f", "m"]), "age": Number(cuts=[18, 65]), "one": Number(cuts=[1e300]), "any": Number(cuts=[])}
    )
    codes = np.array([[0, 0, 0, 0], [1, 1, 1, 0], [0, 2, 1, 0], [2, 3, 2, 1]])
    np.testing.assert_array_equal(columns.encode(columns.decode(codes)).codes, codes)
    bound = Workload.marginals(1).bind(columns=columns)
    np.testing.assert_array_equal(bound.cell_codes([0, 1]), [[0, 0, 0, 0], [0, 0, 0, 1]])


# --------------------------------------------------------------------------------------------------------------- dates


DATED = Columns({"day": Date(cuts=["2024-02-01", "2024-03-01"])})


def test_no_value_of_a_column_of_dates_raises_and_numbers_are_no_dates():
    odd = ["31.13.2024", "2024-02-30", "", "nobody", "19000", 7, 1e300, object(), "\ud800", [1]]
    assert DATED.encode({"day": odd}).codes.ravel().tolist() == [3] * len(odd)
    assert DATED.encode(pa.table({"day": [19_000, 20_000]})).codes.ravel().tolist() == [3, 3]
    numbers = Columns({"day": Number(cuts=[1])})
    assert numbers.encode(pa.table({"day": pa.array([date(2024, 1, 1)])})).codes.tolist() == [[2]]  # nor dates numbers


def test_dates_are_named_asked_and_written_as_dates():
    assert Columns.from_dict(DATED.to_dict()) == DATED
    assert DATED.to_dict() == {"day": {"kind": "date", "cuts": ["2024-02-01", "2024-03-01"], "unit": "days"}}
    cells = DATED.cells["day"]
    names = ["below 2024-02-01", "2024-02-01 to below 2024-03-01", "2024-03-01 and above", "other"]
    assert [cells.name(code) for code in range(4)] == names
    assert [cells.code(name) for name in names] == [0, 1, 2, 3]
    assert cells.code("2024-02-10") == cells.code(date(2024, 2, 10)) == 1
    assert DATED.encode({"day": DATED.decode(np.arange(4))["day"]}).codes.ravel().tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidInput, match="a date, or the name of a cell"):
        DATED.code("day", "in spring")
    ranges = Workload.ranges("day").bind(columns=DATED)
    number = ranges.find({"day": ("2024-02-01", None)})
    assert ranges.describe(number)[0]["query"] == "day >= 2024-02-01"
    assert ranges.between([{"day": ("2024-02-01", None)}]) == [None]
    assert ranges.between([{"day": ("2024-02-02", None)}]) != [None]
    with pytest.raises(InvalidInput, match="an end must"):
        ranges.find({"day": ("in spring", None)})
    with pytest.raises(InvalidInput, match="holds dates"):
        Workload.expressions(["day = '2024-02-01'"]).bind(columns=DATED)


def test_public_dates_are_cut_at_whole_days_or_between_times():
    days = Columns.from_public({"day": ["2024-01-01", "2024-01-02", "2024-01-05", ""]}).kinds["day"]
    assert (days.unit, Columns({"day": days}).to_dict()["day"]["cuts"]) == ("days", ["2024-01-02", "2024-01-04"])
    times = Columns.from_public({"day": ["2024-01-01T08:00", "2024-01-01T08:00:10"]}).kinds["day"]
    assert (times.unit, Columns({"day": times}).to_dict()["day"]["cuts"]) == ("seconds", ["2024-01-01T08:00:05"])
    binned = Columns.from_public(pa.table({"day": pa.array([date(2024, 1, day) for day in range(1, 31)])}), bins=3)
    assert binned.sizes == (4,)
    mixed = Columns.from_public({"day": ["2024-01-01", "never"]}).kinds["day"]
    assert isinstance(mixed, Category)
    texts = Workload.expressions(["day = '2024-01-01'"]).bind(public={"day": ["2024-01-01", "2024-01-02"]})
    assert texts.count_queries == 1


def test_a_query_reads_a_value_as_a_record_would_be_read():
    columns = Columns(
        {"health": Category(["1.0", "2.0"]), "car": Category(["False", "True"]), "age": Number(cuts=[18])}
    )
    assert [columns.code("health", value) for value in (1, 2.0, "2", "2.0", None)] == [0, 1, 1, 1, 2]
    assert [columns.code("car", value) for value in (False, True, "true", None)] == [0, 1, 1, 2]
    assert columns.code("age", None) == 2, "a missing value counts in the last cell"
    for value in (3, "x", ""):
        with pytest.raises(InvalidInput, match=r"column 'health': .* is not among the declared categories"):
            columns.code("health", value)
    closed = Columns({"sex": Category(["f", "m"], closed=True), "age": Number(cuts=[18], closed=True)})
    for name in ("sex", "age"):
        with pytest.raises(InvalidInput, match=f"column '{name}'"):
            closed.code(name, None)


def test_a_cell_of_one_value_is_called_by_it():
    above = math.nextafter(40.0, math.inf)
    cells = Columns({"hours": Number(cuts=[0.0, 5e-324, 35.5, 40.0, above])}).cells["hours"]
    names = ["below 0", "exactly 0", "above 0 to below 35.5", "35.5 to below 40", "exactly 40", "above 40", "other"]
    assert [cells.name(code) for code in range(cells.size)] == names
    assert [cells.code(name) for name in names] == list(range(cells.size))
    assert Columns({"gain": Number(cuts=[5e-324])}).cells["gain"].name(0) == "0 and below"


def test_synthetic_numbers_keep_declared_bounds_and_have_few_decimals():
    columns = Columns(
        {
            "age": Number(low=0, high=100, cuts=[18, 65]),
            "pay": Number(low=0.0, high=90.0, cuts=[1.25, 10.5]),
            "day": Date(low="2024-01-01", high="2024-12-31", cuts=["2024-03-01", "2024-03-05"]),
        }
    )
    codes = np.repeat([[0, 0, 0], [1, 1, 1], [2, 2, 2]], 300, axis=0)
    made = columns.decode(codes)
    assert (columns.encode(made).codes == codes).all()
    assert (min(made["age"]), max(made["age"])) == (0, 99)
    assert min(made["pay"]) < 0.1
    assert 0.0 <= min(made["pay"]) < max(made["pay"]) <= 90.0
    assert all(value == round(value, 3) for value in made["pay"])
    assert (min(made["day"]), max(made["day"])) == ("2024-01-01", "2024-12-30")
    assert Columns.from_dict(columns.to_dict()) == columns
    uncut = Columns({"age": Number(low=0, high=100)})
    assert Columns.from_dict(uncut.to_dict()).with_cuts({"age": [18.0]}).cells["age"].bounds == (0.0, 100.0)


def test_synthetic_numbers_lie_where_public_ones_do():
    chance = np.random.default_rng(0)
    gains = np.where(chance.random(2000) < 0.9, 0.0, 100 * chance.pareto(1.5, 2000).round(2) + 5)
    public = {
        "gains": gains.tolist(),
        "rate": chance.choice([0.5, 1.0, 2.5], 2000).tolist(),
        "age": chance.integers(0, 90, 2000).tolist(),
        "day": chance.choice(["2024-01-01", "2024-02-01", "2024-02-02"], 2000).tolist(),
        "same": [30] * 2000,
    }
    columns = Columns.from_public(public, bins=10)
    rows = columns.encode(public)
    made = columns.decode(rows.codes)
    assert (columns.encode(made).codes == rows.codes).all()
    assert [value == 0 for value in made["gains"]] == [value == 0 for value in public["gains"]]
    assert np.median([value for value in made["gains"] if value]) == pytest.approx(np.median(gains[gains > 0]), rel=0.1)
    assert max(made["gains"]) < gains.max(), "a heavy tail is not spread up to its largest value"
    assert made["rate"] == public["rate"]
    assert made["day"] == public["day"]
    assert made["same"] == public["same"]
    assert min(made["age"]) == 0
    assert max(made["age"]) == 89
    assert Columns.from_dict(columns.to_dict()) == columns
    both = Schema.from_document(Schema(columns.kinds).to_document())
    assert Columns(both.columns) == columns


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([[0, 1]], "one for each cell"),
        ([[0, 1], [5]], "one for each cell"),
        ("ab", "one for each cell"),
        ([[0, 6], [5, 9]], "within its cell"),
        ([[1, 0], [5, 9]], "within its cell"),
        ([[5, 5], [5, 9]], "within its cell"),
        ([[0, 1], [5, math.inf]], "finite"),
    ],
)
def test_spans_that_are_none_of_the_cells_are_refused(spans, says):
    with pytest.raises(InvalidInput, match=says):
        Number(cuts=[5], spans=spans)
    with pytest.raises(InvalidInput, match="one for each cell"):
        Number(spans=[[0, 1]])


def test_a_budget_that_is_too_small_is_said_to_be():
    release = QueryRelease(Workload.marginals(1), columns=Columns({"a": Number()}), epsilon=1e-9)
    with pytest.raises(Infeasible, match=r"at epsilon = 1e-09 and delta = 1e-06; raise epsilon, or ask fewer$"):
        release.fit({"a": list(range(1000))})


def test_a_schema_with_reading_rules_is_read_by_them():
    schema = Schema(
        {"price": Number(cuts=[2.0, 1000.0]), "kind": Category(["a", "b"])}, reading=Reading(missing_texts=["?"])
    )
    schema = schema.with_reading(decimal=",")
    table = {"price": ["1,234", "1.234", "?"], "kind": ["a", "b", "?"]}
    read = Columns.from_declaration(schema)
    assert read.encode(table).codes.tolist() == [[0, 0], [2, 1], [3, 2]]
    again = Columns.from_dict(json.loads(json.dumps(read.to_dict())))
    assert again == read
    assert again.reading == schema.reading
    for columns in (read.select(["price"]), read.with_cuts({"price": [2.0, 1000.0]})):
        assert columns.reading == schema.reading
    bound = Workload.thresholds("price", by=["kind"]).bind(columns=schema)
    assert bound.encode(table).codes.tolist() == [[0, 0], [1, 2], [2, 3]]
    by_public = Workload.thresholds("price", by=["kind"]).bind(public=table, columns=schema)
    assert by_public.encode(table).codes.tolist() == [[0, 0], [1, 2], [2, 3]]
    asked = Workload.expressions(["price < 2"]).bind(columns=schema)
    assert asked.encode(table).codes[:, 0].tolist() == [0, 1, 2]
    assert Columns(schema.columns).encode(table).codes[0, 0] == 2, "by the default rules it is a thousand"
    uncut = AutoCuts.of(Workload.marginals(1), Schema({"price": Number()}).with_reading(decimal=","), None)
    assert uncut.widest.reading.decimal == ","


def test_a_schema_may_hold_columns_that_a_release_leaves_out(tmp_path):
    """A date with bounds alone, fine for a model, stopped a release that left it out."""
    path = tmp_path / "schema.json"
    Schema({"sex": Category(["f", "m"]), "seen": Date(low="2024-01-01", high="2024-12-31")}).save(path)
    assert Columns.load(path).uncut == ("seen",)
    with pytest.raises(InvalidInput, match="needs the cuts of a date"):
        Workload.thresholds("seen").bind(columns=Columns.load(path))
    assert Columns.load(path, leave_out=["seen"]).names == ("sex",)
