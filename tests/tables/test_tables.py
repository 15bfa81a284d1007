"""Tables read and encoded, row by row, by a public schema; and errors that keep private rows to themselves."""

import gzip
import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate import InvalidInput
from quorate.tables import MISSING_TEXTS, Category, Label, Number, Reading, Schema, as_table, read_table
from quorate.tables import schema as schema_module
from quorate.tables.columns import encode_features
from quorate.tables.files import SUFFIXES
from quorate.tables.look import find_problems
from quorate.tables.persons import lasting_names, name_persons

SCHEMA = Schema(
    {
        "age": Number(centre=40, spread=10, missing="indicator"),
        "hours": Number(low=0, high=100),
        "weight": Number(),
        "work": Category(["?", "office", "field"], missing="indicator"),
        "sex": Category(["female", "male"]),
    },
    label=Label("income", ["low", "high"]),
    groups="person",
    leave_out=["name"],
)


def table(rows=4, **changed):
    columns = {
        "age": [20.0, None, 45.5, 1e9],
        "hours": [40, 0, 250, 60],
        "weight": [1.5, -2.0, 0.0, 3e40],
        "work": ["office", " ?", None, "sea"],
        "sex": ["female", " male ", "male", "other"],
        "income": ["low", "high", " high", "low"],
        "person": ["ann", "bob", "ann", "cid"],
        "name": ["a", "b", "c", "d"],
    } | changed
    return pa.table({name: values for name, values in columns.items() if values is not None}).slice(0, rows)


# Encoding


def test_encoding_by_hand():
    expected = [
        [-2, 0, -0.2, 1.5, 0, 1, 0, 0, 1, 0],
        [0, 1, -1.0, -2.0, 1, 0, 0, 0, 0, 1],
        [0.55, 0, 1.0, 0.0, 0, 0, 0, 1, 0, 1],
        [10, 0, 0.2, 1e38, 0, 0, 0, 0, 0, 0],
    ]
    encoded = SCHEMA.encode(table())
    assert encoded.dtype == np.float64
    np.testing.assert_allclose(encoded, expected, atol=1e-15)
    assert SCHEMA.feature_names == [
        *("age", "age is missing", "hours", "weight", "work=?", "work=office", "work=field", "work is missing"),
        *("sex=female", "sex=male"),
    ]
    assert SCHEMA.labels(table()).tolist() == ["low", "high", "high", "low"]
    assert SCHEMA.units(table()).tolist() == [0, 1, 0, 2]
    assert SCHEMA.units(table(person=["7", "8.0", "007", "8"])).tolist() == [0, 1, 0, 1], "as other files write them"


cells = {
    "age": st.none() | st.floats(allow_nan=True) | st.integers(-(2**70), 2**70).map(float),
    "hours": st.floats(-1e300, 1e300),
    "weight": st.floats(allow_nan=False),
    "work": st.none() | st.sampled_from(["office", " office", "?", "", "NA", "é", "field "]) | st.text(max_size=3),
    "sex": st.sampled_from(["female", "male", "other"]),
}


@given(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=12), st.integers(1, 5))
def test_a_row_is_encoded_from_itself_alone(rows, block):
    whole = pa.table({name: pa.array([row[name] for row in rows], from_pandas=False) for name in cells})
    whole = whole.set_column(3, "work", pa.array([row["work"] for row in rows], pa.string()))
    whole = whole.set_column(0, "age", pa.array([row["age"] for row in rows], pa.float64(), from_pandas=False))
    together = SCHEMA.encode(whole)
    alone = np.concatenate([SCHEMA.encode(whole.slice(place, 1)) for place in range(len(rows))])
    assert together.tobytes() == alone.tobytes()
    assert np.isfinite(together).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_module, "_BLOCK", block)
        assert SCHEMA.encode(whole).tobytes() == together.tobytes()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from(["a", "b", "1", "1.0", "01"])), min_size=1, max_size=8))
def test_a_row_means_the_same_in_any_file(tmp_path_factory, rows):
    """Also a row whose category looks like a number: no reader may guess a type from the other rows."""
    folder = tmp_path_factory.mktemp("files")
    schema = Schema({"x": Number(centre=1, spread=2), "kind": Category(["a", "b", "1", "01"])})
    whole = pa.table({"x": [x for x, _ in rows], "kind": [kind for _, kind in rows]})
    expected = schema.encode(whole)
    pyarrow.csv.write_csv(whole, folder / "t.csv")
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    pyarrow.parquet.write_table(whole, folder / "t.parquet")
    for suffix in (".arrow", ".feather"):
        pyarrow.feather.write_feather(whole, folder / f"t{suffix}")
    whole.to_pandas().to_excel(folder / "t.xlsx", index=False)
    digits = whole.set_column(0, "x", pa.array([float(f"{x:.16g}") for x, _ in rows]))  # as Excel files keep them
    for suffix in SUFFIXES:
        encoded = schema.encode(digits) if suffix == ".xlsx" else expected
        assert schema.encode(read_table(folder / f"t{suffix}", role="query")).tobytes() == encoded.tobytes(), suffix
    for start in range(len(rows)):
        pyarrow.csv.write_csv(whole.slice(start, 1), folder / "one.csv")
        assert (
            schema.encode(read_table(folder / "one.csv", role="query")).tobytes()
            == expected[start : start + 1].tobytes()
        )


def test_numbers_of_every_type():
    schema = Schema({"x": Number()})
    for values in (
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2], pa.uint64()),
        pa.array([1, 2], pa.float32()),
        pa.array(["1", " 2.0 "]),
        pa.array(["1", "2"], pa.string_view()),
        pa.array(["1e0", "+2"], pa.large_string()),
        pa.array(["1", "2"]).dictionary_encode(),
        pa.array(["1", "2"], pa.string()).cast(pa.decimal128(5, 2)),
    ):
        assert schema.encode(pa.table({"x": values}), role="query").tolist() == [[1.0], [2.0]]
    assert schema.encode(pa.table({"x": [True, False]})).tolist() == [[1.0], [0.0]]
    assert schema.encode(pa.table({"x": pa.array([], pa.int64())})).shape == (0, 1)


def test_categories_of_every_type():
    schema = Schema({"x": Category([1, 2.0, True])})
    assert schema.columns["x"].categories == ("1", "2", "true")
    for values in (
        pa.array([2, 1]),
        pa.array([2.0, 1.0]),
        pa.array([" 2", "1"]),
        pa.array(["2", "1"]).dictionary_encode(),
    ):
        assert schema.encode(pa.table({"x": values})).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert schema.encode(pa.table({"x": [True, False]})).tolist() == [[0, 0, 1], [0, 0, 0]]


def test_labels_keep_whole_numbers():
    schema = Schema({"x": Number()}, label=Label("y", [3, 7]))
    labels = schema.labels(pa.table({"y": ["7", " 3"]}))
    assert labels.tolist() == [7, 3]
    assert labels.dtype.kind == "i"
    assert Schema({"x": Number()}).units(table()) is None


def test_dictionaries_that_differ_between_chunks():
    chunks = [pa.array(["female"]).dictionary_encode(), pa.array(["male", "female"]).dictionary_encode()]
    schema = Schema({"sex": SCHEMA.columns["sex"]})
    assert schema.encode(pa.table({"sex": pa.chunked_array(chunks)})).tolist() == [[1, 0], [0, 1], [1, 0]]


# Frames


def test_pandas_and_polars_frames():
    frame = table().select(["age", "hours", "weight", "work", "sex"])
    expected = SCHEMA.encode(frame).tobytes()
    pandas = frame.to_pandas()
    pandas.index = [7, 3, 5, 1]
    assert SCHEMA.encode(pandas).tobytes() == expected
    assert SCHEMA.encode(pandas.set_index(pd.Index(list("abcd"), name="id"))).tobytes() == expected
    assert SCHEMA.encode(pandas.astype({"sex": "category", "hours": "Int16"})).tobytes() == expected
    polars = pl.from_arrow(frame)
    assert SCHEMA.encode(polars).tobytes() == expected
    assert SCHEMA.encode(polars.with_columns(pl.col("sex").cast(pl.Categorical))).tobytes() == expected
    assert as_table(frame.to_batches()[0]).num_rows == 4
    assert as_table(pa.record_batch({"a": [1], "b": [1]})).column_names == ["a", "b"]  # equal columns, other names
    assert as_table(pa.RecordBatchReader.from_batches(frame.schema, frame.to_batches())).num_rows == 4


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ([{"age": 1}], "must be a data frame or an Arrow table, with __arrow_c_stream__, got list"),
        (np.zeros((2, 2)), "got ndarray"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "column names must differ: 'a' appears twice"),
        (pd.DataFrame([[1, "secret"]], columns=["a", "a"]), "column names must differ: 'a' appears twice"),
        (pa.table([[1], [2]], names=["a", "a"]), "column names must differ: 'a' appears twice"),
        (pa.table([[1], [2]], names=["a", ""]), "column 2 has no name; if it is the index of a pandas frame"),
        (pd.DataFrame(), "at least 1 column"),
    ],
)
def test_frames_that_are_refused(frame, text):
    with pytest.raises(InvalidInput) as refused:
        as_table(frame)
    assert text in str(refused.value)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_column_of_several_types_is_read_value_by_value():
    """One text among numbers neither refuses the frame nor changes how the numbers are read."""
    mixed = [1, "secret", 2.5, None, True, Decimal("7.50"), ["list"], b"3", b"\xff"]
    opened = as_table(pd.DataFrame({"a": mixed}))
    assert opened.column("a").to_pylist() == ["1", "secret", "2.5", None, "true", "7.5", None, "3", "ÿ"]
    for place, value in enumerate(mixed):
        alone = as_table(pd.DataFrame({"a": pd.Series([value], dtype=object)}))
        assert alone.column("a").to_pylist() == opened.column("a").to_pylist()[place : place + 1]
    numbers = Schema({"a": Number(missing="indicator")}).encode(opened)
    assert numbers.tolist() == [[1, 0], [0, 1], [2.5, 0], [0, 1], [1, 0], [7.5, 0], [0, 1], [3, 0], [0, 1]]


def test_frames_are_not_imported_before_they_are_used():
    code = "import sys, quorate.tables; print(sorted({'pandas', 'polars', 'sklearn'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


# Files


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_as_people_write_it(tmp_path):
    text = '\ufeffage, "work" ,note\r\n39, State-gov,"a, ""b"" c"\r\n\r\n 40,?,\r\n'
    read = read_table(write(tmp_path / "t.CSV", text), role="query")
    assert read.to_pylist() == [
        {"age": "39", '"work"': " State-gov", "note": 'a, "b" c'},
        {"age": " 40", '"work"': "?", "note": ""},
    ]
    one = read_table(write(tmp_path / "one.csv", "age\n1\n\n3\n"), role="query")
    assert one.num_rows == 3  # the empty line is a query without a value, and no answer may slip to another row


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a;b c\n1,5;x, y\n-2;3,4,5\n", [{"a": "1,5", "b c": "x, y"}, {"a": "-2", "b c": "3,4,5"}]),
        ("\ufeffa;b\r\n 7,25 ;1.5\r\n", [{"a": " 7,25 ", "b": "1.5"}]),
        ("a\tb\n1,5\tx;y\n", [{"a": "1,5", "b": "x;y"}]),
        ('"a;b"\n"1;2"\n', [{"a;b": "1;2"}]),
        ("a;b,c\n1;2,3\n", [{"a;b": "1;2", "c": "3"}]),  # a comma in the first line separates
    ],
)
def test_what_separates_values_is_read_off_the_first_line(tmp_path, content, rows):
    write(tmp_path / "t.csv", content)
    assert read_table(tmp_path / "t.csv", role="query").to_pylist() == rows


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("t.xls", "a\n1\n", "the suffix must be one of .csv, .csv.gz, .parquet, .arrow, .feather, .xlsx"),
        ("t.xlsx", "a\n1\n", "not a readable .xlsx file"),
        ("t", "a\n1\n", "the suffix must be one of"),
        ("t.csv", None, "there is no such file"),
        ("t.csv", "", "the file is empty; its first line must name the columns"),
        ("t.csv", 'a,"b\nc"\n1,2\n', "the first line must have the names of all columns"),
        ("t.csv", 'a,"b\nc"\n1,x\n', "the first line must have the names of all columns"),
        ("t.csv", "\n\n", "the file is empty"),
        ("t.csv", "a,b\n", "the table has no rows"),
        ("t.csv", 'a,b\n1,"x\n2,y"\n3\n', "but line 4 has 1"),
        ("t.csv", "a,b,a\n1,2,3\n", "column names must differ: 'a' appears twice"),
        ("t.csv", "a, a\n1,2\n", "column names must differ: 'a' appears twice"),
        ("t.csv", ",a\n0,2\n", "column 1 has no name"),
        ("t.csv", "a;b\n1;2\n3\n", "each line must have 2 values"),
        ("t.csv", "a,b\n1,2\n3\n4,5\n", "each line must have 2 values"),
        ("t.csv", "a,b\n1,2\n3,4,5\n", "but line 3 has 3"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16-le"), "is it utf-16? Name it: --encoding"),
        ("t.csv.gz", "a,b\n1,2\n", "not a readable .csv.gz file"),
        ("t.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 9999, mtime=0)[:-20], "not a readable .csv.gz file"),
        ("t.parquet", "a,b\n1,2\n", "not a readable .parquet file"),
        ("t.arrow", "a,b\n1,2\n", "not a readable .arrow file"),
        ("t.feather", "", "not a readable .feather file"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, text):
    if content is not None:
        write(tmp_path / name, content)
    with pytest.raises(InvalidInput) as refused:
        read_table(tmp_path / name, role="query")
    assert text in str(refused.value)
    assert str(tmp_path / name) in str(refused.value)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(InvalidInput, match="there is no such file"):
        read_table(tmp_path / "t.csv", role="query")


def test_parquet_written_by_pandas_has_no_index(tmp_path):
    pd.DataFrame({"a": [1, 2]}, index=[5, 3]).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", role="query").column_names == ["a"]
    with pytest.raises(InvalidInput, match="role must"):
        read_table(tmp_path / "t.parquet", role="secret")


# Errors of encoding

ROWS = {
    "missing number": ({"hours": [1, None, 2, None]}, "column 'hours'", "a value is missing"),
    "NaN": ({"hours": [1.0, float("nan"), 2, 2]}, "column 'hours'", "a value is missing"),
    "empty text": ({"hours": ["1", " ", "2", ""]}, "column 'hours'", "a value is missing"),
    "text": ({"hours": ["1", "secret", "2", "secret"]}, "column 'hours'", "a number is expected, not a text"),
    "missing category": ({"sex": ["male", None, "male", "male"]}, "column 'sex'", "a value is missing"),
    "NA": ({"sex": ["male", "NA", "male", "male"]}, "column 'sex'", "a value is missing"),
    "date": ({"hours": pa.array([None, 0, 1, 2], pa.timestamp("s"))}, "column 'hours'", "a number is expected"),
}
WHOLE = {
    "lists": ({"sex": [["secret"]] * 4}, "column 'sex'", "values must be numbers, texts, dates or truth values, got"),
    "missing column": ({"hours": None, "sex": None}, "must have the columns 'hours', 'sex'; the columns are 'age'", ""),
    "unseen column": ({"extra": [0] * 4}, "the schema does not know these columns of the", ""),
}


@pytest.mark.parametrize(
    ("case", "role"),
    [
        *((case, role) for case in ROWS for role in ("query", "public")),
        *((case, role) for case in WHOLE for role in ("query", "private", "public")),
    ],
)
def test_bad_rows_are_refused(case, role):
    changed, column, problem = (ROWS | WHOLE)[case]
    with pytest.raises(InvalidInput) as refused:
        SCHEMA.encode(table(**changed), role=role)
    text = str(refused.value)
    assert column in text
    assert problem in text
    assert {"query": "the queries", "private": "the private records", "public": "the public table"}[role] in text
    assert ("row 2 (the first such row, counted from 1)" in text) == (case in ROWS)
    assert "secret" not in text


@pytest.mark.parametrize("case", ROWS)
def test_no_private_value_is_refused_or_moves_another_row(case, recwarn):
    """What cannot be read is missing, whichever rows it is in, and only the owner learns how many there are."""
    changed = ROWS[case][0]
    ((name, values),) = changed.items()
    plain = list(values.to_pylist() if isinstance(values, pa.Array) else values)
    kind = values.type if isinstance(values, pa.Array) else None
    for order in ([0, 1, 2, 3], [1, 0, 2, 2], [1, 1, 1, 1], [2, 2, 2, 1]):
        given = table(**{name: pa.array([plain[place] for place in order], kind)})
        encoded = SCHEMA.encode(given)
        assert np.isfinite(encoded).all()
        alone = [SCHEMA.encode(given.slice(place, 1)) for place in range(4)]
        assert np.concatenate(alone).tobytes() == encoded.tobytes()
        wide = SCHEMA.with_gaps()
        absent = wide.encode(given)[:, wide.feature_names.index(f"{name} is missing")]
        gaps = {1, 3} if case in ("missing number", "empty text", "text") else {0, 1, 2, 3} if case == "date" else {1}
        assert absent.tolist() == [float(place in gaps) for place in order]
        found = find_problems(Schema({name: replace(SCHEMA.columns[name], missing="refuse")}), given)
        missing = [problem.count for problem in found if "missing" in problem.problem]
        assert sum(missing) == int(absent.sum())
    assert not recwarn.list


def test_problems_are_counted_by_column():
    given = table(hours=["1", "secret", "2", None], income=["low", "secret", None, "high"])
    found = [(problem.column, problem.count) for problem in find_problems(SCHEMA, given)]
    assert found == [("hours", 1), ("hours", 1), ("work", 1), ("sex", 1), ("income", 2)]
    assert [(problem.column, problem.count) for problem in find_problems(SCHEMA, table())] == [("work", 1), ("sex", 1)]


def test_row_numbers_are_right_in_later_blocks(monkeypatch):
    monkeypatch.setattr(schema_module, "_BLOCK", 2)
    with pytest.raises(InvalidInput, match="row 4 "):
        SCHEMA.encode(table(hours=["1", "2", "3", "four"]), role="query")


def test_infinite_numbers():
    rows = pa.table({"x": [1.0, float("inf"), float("-inf")]})
    schema = Schema({"x": Number(centre=0, spread=1)})
    assert schema.encode(rows).tolist() == [[1.0], [10.0], [-10.0]]
    with pytest.raises(InvalidInput, match=r"column 'x', row 2 .*: a number must be finite"):
        schema.encode(rows, role="query")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"income": None}, "must have the column 'income'; the columns are"),
        ({"income": [["secret"]] * 4}, "column 'income': values"),
    ],
)
def test_labels_that_are_refused(changed, text):
    for role in ("private", "public", "query"):
        with pytest.raises(InvalidInput) as refused:
            SCHEMA.labels(table(**changed), role=role)
        assert text in str(refused.value)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("label", "problem"),
    [("secret", "a label must be one of the classes 'low', 'high'"), (None, "a label is missing")],
)
def test_a_private_label_that_is_no_class_is_none_and_refuses_nothing(label, problem):
    given = table(income=["low", label, "high", "low"])
    assert SCHEMA.labels(given).tolist() == ["low", None, "high", "low"]
    assert SCHEMA.label_codes(given).tolist() == [0, -1, 1, 0]
    for role in ("query", "public"):
        with pytest.raises(InvalidInput) as refused:
            SCHEMA.labels(given, role=role)
        assert f"column 'income', row 2 (the first such row, counted from 1): {problem}" in str(refused.value)
        assert "secret" not in str(refused.value)


def test_rows_without_a_person_belong_to_one_unknown_person():
    given = table(person=["ann", "", None, " ann "])
    assert SCHEMA.units(given).tolist() == [0, 1, 1, 0]
    assert SCHEMA.people(given) == ["ann", "", "", "ann"]


def test_units_that_are_refused():
    with pytest.raises(InvalidInput, match="the private records must have the column 'person'"):
        SCHEMA.units(table(person=None))
    with pytest.raises(InvalidInput, match="the schema has no label"):
        Schema({"x": Number()}).labels(table())


# Schemas


def test_a_schema_survives_its_file(tmp_path):
    SCHEMA.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == SCHEMA
    told = Schema.load(write(tmp_path / "short.json", '{"columns": {"age": {"kind": "number"}}}'))
    assert told == Schema({"age": Number()})
    assert told.reading.missing_texts == MISSING_TEXTS


finite = st.floats(-1e9, 1e9)
kinds = (
    st.builds(Number, centre=finite, spread=st.floats(1e-9, 1e9), missing=st.sampled_from(["refuse", "indicator"]))
    | finite.map(lambda low: Number(low=low, high=low + 5))
    | st.lists(finite, unique=True).map(lambda cuts: Number(cuts=sorted(cuts)))
    | st.lists(st.text(max_size=4).map(str.strip), min_size=1, max_size=4, unique=True).map(Category)
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), kinds, min_size=1, max_size=4))
def test_any_schema_survives_its_document(columns):
    schema = Schema(columns, reading=Reading(missing_texts=["?"]))
    assert Schema.from_document(json.loads(json.dumps(schema.to_document()))) == schema
    none = pa.array([], pa.float64())
    widths = [encode_features(kind, none, name, role="query").shape[1] for name, kind in columns.items()]
    assert len(schema.feature_names) == sum(widths)


def test_a_schema_from_a_public_table():
    public = pa.table(
        {
            "age": [30, 50, None],
            "code": ["1", "3", " 2"],
            "work": ["b", " a", "?"],
            "gap": ["x", "NA", "y"],
            "same": [7, 7, 7],
            "flag": [True, True, True],
            "income": ["low", "high", "low"],
            "person": [1, 2, 3],
            "name": ["u", "v", "w"],
        }
    )
    schema = Schema.from_public(public, label="income", groups="person", leave_out=["name"])
    assert schema.columns == {
        "age": Number(centre=40, spread=10, missing="indicator"),
        "code": Number(centre=2, spread=float(np.std([1, 2, 3]))),
        "work": Category(["?", "a", "b"]),
        "gap": Category(["x", "y"], missing="indicator"),
        "same": Number(centre=7, spread=1),
        "flag": Category(["false", "true"]),
    }
    assert schema.label == Label("income", ["high", "low"])
    assert (schema.groups, schema.leave_out) == ("person", ("name",))
    told = Schema.from_public(
        public, label="ill", classes=["no", "yes"], leave_out=["name"], reading=Reading(missing_texts=["?"])
    )
    assert told.label.classes == ("no", "yes")
    assert told.columns["work"] == Category(["a", "b"], missing="indicator")
    assert told.columns["gap"] == Category(["NA", "x", "y"])


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"a": [1, 2]}, {"label": "y"}, "the classes of the label 'y' must be declared"),
        ({"a": [1, 2], "y": [1, 1]}, {"label": "y"}, "classes must be a list of at least 2, not of 1"),
        ({"a": [None, None]}, {}, "column 'a' has no value in the public table"),
        ({"a": [float("inf"), 1]}, {}, "column 'a' holds numbers that are infinite or too large"),
        ({"a": [1e308, 1e308]}, {}, "column 'a' holds numbers that are infinite or too large"),
        ({"a": pa.array([[1], [2]])}, {}, "column 'a' is of type list<item: int64>: only numbers, dates"),
        ({"a": [f"n{i}" for i in range(300)]}, {}, "in the public table, column"),
        (
            {"my id": [f"n{i}" for i in range(300)], "b": [1] * 300, "c": [f"{i}/12/1999" for i in range(300)]},
            {},
            "column 'my id' has 300 different texts, 'c' has 300 different texts, and at most 256 can be taken for "
            "categories: leave them out (leave_out=, --leave-out 'my id,c'), take them for sentences (texts=, --texts)"
            ", or declare them in a schema",
        ),
        ({"a": ["1", "?", "2"]}, {}, "column 'a' holds numbers and '?' in the public table: if that means a missing"),
        ({"y": [1, 2]}, {"label": "y"}, "a schema must have at least 1 column to encode"),
        ({"a": [1], "Y ": [1]}, {"label": "y", "classes": [0, 1]}, "label names 'y', and there"),
        ({"a": [1, 2]}, {"leave_out": "a"}, "leave_out must be a list of texts, not 'a'"),
        ({"a": [1, 2]}, {"label": "a", "classes": "ab"}, "classes must be a list"),
    ],
)
def test_public_tables_that_are_refused(columns, options, text):
    with pytest.raises(InvalidInput) as refused:
        Schema.from_public(pa.table(columns), **options)
    assert text in str(refused.value)


def test_tables_of_numbers_need_no_schema(tmp_path):
    rows = pa.table({"a": [1.0, 200.0], "b": [True, False], "y": ["u", "v"], "who": ["x", "y"]})
    schema = Schema.numbers(rows, label="y", classes=["u", "v"], groups="who")
    assert schema.columns == {"a": Number(), "b": Number()}
    assert schema.encode(rows).tolist() == [[1, 1], [200, 0]]
    read = read_table(write(tmp_path / "t.csv", "a,b\n1,2\n3, 4\n"), role="query")
    assert Schema.numbers(read).columns == {"a": Number(), "b": Number()}
    # Other rows under the same header give the same schema.
    assert Schema.numbers(read_table(write(tmp_path / "t.csv", "a,b\n9,9\n"), role="query")) == Schema.numbers(read)
    with pytest.raises(InvalidInput, match="the classes of the label 'y' must be declared"):
        Schema.numbers(rows, label="y")


@pytest.mark.parametrize("values", [["7", "secret"], pa.array([1, 2], pa.date32()), [7, 8], [None, None]], ids=str)
def test_a_schema_of_numbers_looks_at_names_alone(values):
    """Neither a value nor a type of the private table decides what is made of its columns."""
    given = pa.table({"sex": values})
    assert Schema.numbers(given) == Schema({"sex": Number()})
    encoded = Schema.numbers(given).with_gaps().encode(given)
    assert encoded.tolist() == [[7, 0], [8, 0]] if values == [7, 8] else encoded[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON: Expecting property name enclosed in double quotes in line 1"),
        ("[1]", "a schema must be a JSON object; for example"),
        (b"\xff", "texts must be encoded as UTF-8"),
        ("{}", 'a schema needs "columns"'),
        ('{"columns": {}}', "a schema must have at least 1 column to encode"),
        ('{"colums": {}}', "'colums' means nothing"),
        ('{"columns": {"a": 1}}', "column 'a': expected an object such as"),
        (
            '{"columns": {"a": {}}}',
            'column \'a\': kind must be "number", "date", "category", "text" or "embedded", not None',
        ),
        ('{"columns": {"a": {"kind": "number", "center": 1}}}', "column 'a': 'center' means"),
        ('{"columns": {"a": {"kind": "number", "centre": 1}}}', "column 'a': a number needs both of centre and spread"),
        ('{"columns": {"a": {"kind": "number", "low": 1}}}', "column 'a': a number needs"),
        (
            '{"columns": {"a": {"kind": "number", "low": 1, "high": 2, "centre": 1, "spread": 1}}}',
            "is scaled by centre and spread or by low and high, not by both",
        ),
        ('{"columns": {"a": {"kind": "number", "low": 2, "high": 2}}}', "low must be below high, not 2 and 2"),
        ('{"columns": {"a": {"kind": "number", "low": "0", "high": 2}}}', "low must be a finite number, not '0'"),
        ('{"columns": {"a": {"kind": "number", "centre": NaN, "spread": 2}}}', "centre must be a finite"),
        ('{"columns": {"a": {"kind": "number", "centre": 0, "spread": 0}}}', "spread must be a positive finite number"),
        ('{"columns": {"a": {"kind": "number", "missing": "zero"}}}', "missing must be one of"),
        ('{"columns": {"a": {"kind": "category"}}}', "column 'a': kind 'category' requires 'categories'"),
        ('{"columns": {"a": {"kind": "category", "categories": []}}}', "categories must be a list"),
        ('{"columns": {"a": {"kind": "category", "categories": "ab"}}}', "categories must be a list"),
        ('{"columns": {"a": {"kind": "category", "categories": ["x", " x"]}}}', "categories must differ"),
        ('{"columns": {"a": {"kind": "category", "categories": [1, "1"]}}}', "categories must differ"),
        ('{"columns": {"a": {"kind": "category", "categories": [null]}}}', "categories must be texts or numbers"),
        ('{"columns": {"a": {"kind": "number"}, "a": {"kind": "number"}}}', "'a' appears twice in one object"),
        ('{"columns": {"a": {"kind": "number"}}, "label": "y"}', 'label must be an object such as {"column": "income"'),
        (
            '{"columns": {"a": {"kind": "number"}}, "label": {"column": "y", "classes": ["u"]}}',
            "classes must be a list of at least 2",
        ),
        ('{"columns": {"a": {"kind": "number"}}, "label": {"column": 1, "classes": [1, 2]}}', "must be a column name"),
        ('{"columns": {"a": {"kind": "number"}}, "groups": 3}', "groups must be a column name, not 3"),
        ('{"columns": {"a": {"kind": "number"}}, "groups": "a"}', "column 'a' has two uses"),
        ('{"columns": {"a": {"kind": "number"}}, "leave_out": "b"}', "leave_out must be a list of texts, not 'b'"),
    ],
)
def test_schema_files_that_are_refused(tmp_path, text, told):
    path = write(tmp_path / "schema.json", text)
    with pytest.raises(InvalidInput) as refused:
        Schema.load(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


def test_the_label_and_the_groups_can_be_said_later():
    schema = Schema({"a": Number(), "y": Number(), "who": Number()}, leave_out=["b"])
    made = schema.with_label("y", ["u", "v"]).with_groups("who")
    assert list(made.columns) == ["a"]
    assert (made.label, made.groups) == (Label("y", ["u", "v"]), "who")
    assert made.with_label("y") == made
    assert schema.with_label("b", [0, 1]).leave_out == ()
    with pytest.raises(InvalidInput, match="the classes of the label 'z' must be declared"):
        made.with_label("z")


def test_more_texts_may_mean_a_missing_value():
    rows = pa.table({"a": ["1", "?", "3"]})
    assert Schema.from_public(rows, reading=Reading(missing_texts=["?"])).columns == {
        "a": Number(centre=2, spread=1, missing="indicator")
    }
    schema = Schema({"a": Number(missing="indicator")}).with_missing_texts(["?"])
    assert schema.encode(rows).tolist() == [[1, 0], [0, 1], [3, 0]]
    assert schema.without(["b"]).leave_out == ("b",)


@pytest.mark.parametrize("columns", [{"a": "number"}, {1: Number()}])
def test_columns_that_are_none(columns):
    with pytest.raises(InvalidInput, match="columns must"):
        Schema(columns)


def test_encoding_takes_bounded_memory():
    """Beyond the table and the matrix, a block or two: not a copy of the table."""
    rows = 400_000
    whole = pa.table({"x": np.arange(rows, dtype=np.float64), "kind": pa.array(["a", "b"] * (rows // 2))})
    schema = Schema({"x": Number(centre=0, spread=1), "kind": Category(["a", "b"])})
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    default = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        encoded = schema.encode(whole)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)
    assert encoded[-1].tolist() == [10.0, 0.0, 1.0]
    assert peak < encoded.nbytes + 16 * 2**20
    assert pool.max_memory() < 16 * 2**20


def test_a_private_table_without_a_header_is_not_repeated(tmp_path):
    with pytest.raises(InvalidInput, match="the first line must name the columns, and has a number in it") as caught:
        read_table(write(tmp_path / "t.csv", "39,52000.5,yes\n40,1.5,no\n"), role="private")
    assert "52000" not in str(caught.value)


def test_short_floats_are_no_lasting_names_in_any_container():
    short = np.array([7, 9], dtype=np.float32)
    stored = pd.Series(short)
    arrow = stored.astype(pd.ArrowDtype(pa.float32()))
    for column in (short, stored, arrow, stored.astype("category"), arrow.astype("category"), memoryview(short)):
        with pytest.raises(InvalidInput, match="must not be 16- or 32-bit floats"):
            lasting_names(column)
    assert lasting_names(stored.astype(np.float64).astype("category")) == ["7", "9"]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(12, 2)], ids=str)
def test_lasting_names_are_refused_by_the_type_of_their_column_alone(kind):
    """Floats of few bits have lost digits that the next data may have:

    a person would have a second name, and budget.
    """
    people = pa.array([7, None, 7, 9], pa.int8()).cast(kind)
    for column in (people, *([] if pa.types.is_float16(kind) else [people.dictionary_encode()])):  # Arrow has none
        assert SCHEMA.people(table(person=column)) == ["7", "", "7", "9"]
        assert SCHEMA.units(table(person=column)).tolist() == [0, 1, 0, 2]
        if kind in (pa.float16(), pa.float32()):
            with pytest.raises(InvalidInput, match="must not be 16- or 32-bit floats"):
                SCHEMA.people(table(person=column), lasting=True)
        else:
            assert SCHEMA.people(table(person=column), lasting=True) == ["7", "", "7", "9"]


@given(number=st.integers(-(2**70), 2**70), digits=st.integers(0, 3))
def test_a_number_is_one_person_in_every_type_that_may_hold_it(number, digits):
    """A whole number, its digits, a decimal and the float that a library makes of it are one name, however long."""
    spellings = [
        number,
        str(number),
        f" {number:+d}.{'0' * digits} ",
        Decimal(number),
        float(number),
        repr(float(number)),
    ]
    assert len(set(name_persons(spellings))) == 1
    in_columns = [pa.array([float(number)]), pa.array([str(number)])]
    in_columns += [pa.array([number])] if abs(number) < 2**63 else []
    assert len({name for column in in_columns for name in name_persons(column)}) == 1


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_one_person_however_a_program_writes_it(number):
    """Programs differ in whether an exponent has a sign, how many digits it has, and whether a 0 precedes a point."""
    shortest = Decimal(repr(number))
    _, digits, exponent = shortest.as_tuple()
    plain = f"{'-' * (number < 0)}{''.join(map(str, digits))}e{exponent}"  # of Rust and JavaScript
    spellings = [number, repr(number), repr(number).upper(), shortest, str(shortest), f"{shortest:f}", plain]
    spellings.append(f"{shortest:f}".replace("0.", ".", 1) if 0 < number < 1 else number)
    assert len(set(name_persons(spellings))) == len(set(name_persons([pa.scalar(number).as_py(), repr(number)]))) == 1


@pytest.mark.parametrize("spellings", [[True, "True", "TRUE", "true"], ["Ann Lee", " Ann  Lee", "Ann\u00a0Lee\t"]])
def test_a_name_is_one_with_any_blanks_and_truth_values_in_any_letters(spellings):
    assert len(set(name_persons(spellings))) == 1
