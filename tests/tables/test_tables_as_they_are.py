"""Tables as people have them: dates, ids, notes, unknown categories, columns too many, frames with texts."""

import json
import re
import warnings
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from quorate import InvalidInput, PrivateClassifier, PrivateLogisticRegression, load, save
from quorate.cli import main
from quorate.core.checks import is_named_id
from quorate.service._codec import Tensor
from quorate.service._errors import Refused
from quorate.service._inputs import SchemaInputs
from quorate.tables import Category, Date, Number, Schema, Text
from quorate.tables.look import find_problems

YEAR = Date(low="2024-01-01", high="2024-12-31")
DAYS = [date(2024, 1, 1), date(2024, 7, 1), date(2024, 12, 31)]
GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "tables.md"


def quorate(*arguments):
    return main([str(argument) for argument in arguments])


def written(path, columns):
    """Write columns of texts and numbers as CSV."""
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    "frame",
    [
        pa.table({"day": DAYS}),
        pa.table({"day": pa.array([datetime(d.year, d.month, d.day, tzinfo=UTC) for d in DAYS])}),
        pa.table({"day": [d.isoformat() for d in DAYS]}),
        pa.table({"day": ["2024-01-01T01:00+01:00", " 2024-07-01 00:00", "2024-12-31T00:00:00.000Z"]}),
        pandas.DataFrame({"day": pandas.to_datetime([d.isoformat() for d in DAYS])}),
        pandas.DataFrame({"day": pandas.to_datetime([d.isoformat() for d in DAYS]).tz_localize("UTC")}),
        polars.DataFrame({"day": DAYS}),
    ],
    ids=["date", "timestamp", "text", "times", "pandas", "zone", "polars"],
)
def test_a_date_is_the_same_number_in_every_container(frame):
    assert Schema({"day": YEAR}).encode(frame).ravel().tolist() == pytest.approx([-1.0, 182 / 182.5 - 1, 1.0])


def test_dates_beyond_their_bounds_and_missing_ones():
    table = pa.table({"day": ["1999-01-01", "2031-01-01", ""]})
    encoded = Schema({"day": Date(low="2024-01-01", high="2024-12-31", missing="indicator")}).encode(table)
    assert encoded.tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(InvalidInput, match="column 'day', row 3"):
        Schema({"day": YEAR}).encode(table, role="query")


@pytest.mark.parametrize("text", ["31/13/2024", "2024-02-31", "2024", "20240501", "soon", "2024-01-01 25:00"])
def test_what_is_no_date_is_missing_in_a_record_and_refused_in_a_query(text):
    table, schema = pa.table({"day": ["2024-01-01", text]}), Schema({"day": YEAR})
    for role in ("query", "public"):
        with pytest.raises(InvalidInput, match="column 'day', row 2 ") as no:
            schema.encode(table, role=role)
        assert text not in str(no.value).replace("2024-05-31", "")
    assert schema.encode(table).tolist() == [[-1.0], [0.0]]
    assert schema.with_gaps().encode(table).tolist() == [[-1.0, 0.0], [0.0, 1.0]]
    assert schema.encode(table.slice(0, 1)).tolist() == [[-1.0]]
    assert [(problem.column, problem.count) for problem in find_problems(schema, table)] == [("day", 1)]


@pytest.mark.parametrize("unit", ["seconds", "minutes", "hours", "days", "weeks"])
def test_a_date_in_a_document_comes_back(unit):
    schema = Schema({"day": Date(low="2024-01-01", high="2024-12-31T12:00", unit=unit), "n": Text(buckets=7)})
    document = json.loads(schema.to_json())
    assert document["columns"]["day"]["low"] == "2024-01-01"
    assert Schema.from_document(document) == schema
    assert schema.encode(pa.table({"day": DAYS[1:2], "n": ["x"]}))[0, 0] == pytest.approx(-0.00411, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "a date needs bounds"),
        ({"low": "01.01.2024", "high": "2024-12-31"}, "a date is written as 2024-05-31"),
        ({"low": "2024-12-31", "high": "2024-01-01"}, "low must be below high"),
        ({"low": "2024-01-01", "high": "2024-12-31", "unit": "years"}, "unit must be one of"),
    ],
)
def test_dates_that_cannot_be_declared(given, told):
    with pytest.raises(InvalidInput, match=told):
        Date(**given)


def test_public_rows_show_what_is_a_date():
    public = {"day": ["2024-01-01", "2024-01-03", ""], "typed": DAYS, "month": ["2024-01", "2024-02", "2024-02"]}
    schema = Schema.from_public(pa.table(public))
    assert schema.columns["day"] == Date(centre="2024-01-02", spread=1.0, missing="indicator")
    assert type(schema.columns["typed"]) is Date
    assert type(schema.columns["month"]) is Category
    assert Schema.from_document(schema.to_document()) == schema
    assert schema.one_scale


def test_dates_that_are_declared_as_numbers_are_missing():
    """Of a private table names alone decide; the owner sees how many values are missing, and a query is refused."""
    rows = pa.table({"day": DAYS, "x": [1, 2, 3]})
    schema = Schema.numbers(rows)
    assert schema == Schema({"day": Number(), "x": Number()})
    assert schema.encode(rows).tolist() == [[0, 1], [0, 2], [0, 3]]
    assert [(problem.column, problem.count) for problem in find_problems(schema, rows)] == [("day", 3)]
    for role in ("query", "public"):
        with pytest.raises(InvalidInput, match=r"column 'day', row 1 .*a number is expected"):
            schema.encode(rows, role=role)


def test_sentences_become_counts_of_words():
    encoded = Schema({"note": Text(buckets=1000)}).encode(
        pa.table({"note": ["Chest pain! chest", "pain CHEST chest", ""]})
    )
    assert np.array_equal(encoded[0], encoded[1])
    assert sorted(encoded[0][encoded[0] > 0].tolist()) == pytest.approx([1 / 5**0.5, 2 / 5**0.5])
    assert not encoded[2].any()


@pytest.mark.parametrize("name", ["id", "ID", "patient_id", "Patient ID", "visitId", "uuid", "Unnamed: 0", "row.nr"])
def test_names_of_ids(name):
    assert is_named_id(name)


@pytest.mark.parametrize("name", ["age", "paid", "covid", "acid", "idle", "humid", "grid", "number_of_children"])
def test_names_of_no_ids(name):
    assert not is_named_id(name)


def test_an_id_that_becomes_a_feature_is_warned_of_by_its_name_or_by_public_values():
    with pytest.warns(UserWarning, match="column 'patient_id' looks like the id of"):
        Schema.numbers(pa.table({"patient_id": [1, 2], "age": [3, 4]}))
    public = {"ticket": range(1000, 1200), "age": [value % 90 for value in range(200)], "dose": np.arange(200) / 7}
    with pytest.warns(UserWarning, match="--leave-out ticket") as warned:
        Schema.from_public(pa.table({name: list(values) for name, values in public.items()}))
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Schema.numbers(pa.table({"patient_id": [1, 2], "age": [3, 4]}), leave_out=["patient_id"])
        Schema.numbers(
            pa.table({"ticket": list(range(500)), "age": [1] * 500})
        )  # which private values are not looked at


def test_the_schema_that_the_guide_shows_is_one():
    (document,) = re.findall(r"```json\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    schema = Schema.from_document(json.loads(document))
    assert schema.columns["admitted"] == Date(low="2020-01-01", high="2025-12-31")
    assert (schema.groups, schema.label.column) == ("patient", "outcome")
    assert Schema.from_document(schema.to_document()) == schema


RANDOM = np.random.default_rng(0)
LATE = RANDOM.integers(0, 2, size=3000)


def clinic(rows, wards):
    late = LATE[:rows]
    days = [date(2024, 1 + 6 * int(one), 1 + place % 28).isoformat() for place, one in enumerate(late)]
    return {
        "visit_id": range(rows),
        "day": days,
        "ward": [wards[place % len(wards)] for place in range(rows)],
        "note": np.where(late == 1, "strong pain", "all well today").tolist(),
        "outcome": np.where(late == 1, "ill", "well").tolist(),
    }


PLAIN = ("--epsilon", 8, "--queries", 100, "--teachers", 60, "--aggregator", "noisy_max", "--learner", "centroid")


@pytest.fixture
def tables(tmp_path):
    written(tmp_path / "visits.csv", clinic(3000, ["a", "b"]))
    written(tmp_path / "survey.csv", clinic(200, ["a", "b"]))
    queries = clinic(40, ["a", "b", "z"])
    written(tmp_path / "new.csv", {name: queries[name] for name in ("visit_id", "day", "ward", "note")})
    return tmp_path


def test_dates_notes_ids_and_unknown_wards_from_the_command_line(tables, capsys):
    fit = ("fit", "subsample", tables / "visits.csv", "--label", "outcome", "--public", tables / "survey.csv", *PLAIN)
    assert quorate(*fit, "--leave-out", "note", "--out", tables / "with-id") == 0
    assert "column 'visit_id' looks like" in capsys.readouterr().err
    assert quorate(*fit, "--leave-out", "visit_id", "--texts", "note", "--out", tables / "m") == 0
    assert "looks like" not in capsys.readouterr().err
    kinds = json.loads((tables / "m" / "schema.json").read_text())["columns"]
    assert {name: kind["kind"] for name, kind in kinds.items()} == {"day": "date", "ward": "category", "note": "text"}
    ask = ("predict", tables / "m", tables / "new.csv", "--json")
    assert quorate(*ask, "--unknown", "refuse") == 1
    assert "column 'ward', row 3" in capsys.readouterr().err
    assert quorate(*ask) == 0
    said = capsys.readouterr()
    bill = json.loads(said.out)
    assert bill["unknown_categories"] == {"ward": 13}
    assert "13 of 40 queries have a category in column 'ward'" in said.err
    expected = ["ill" if late else "well" for late in LATE[:40]]
    assert np.mean([one == other for one, other in zip(bill["answers"], expected, strict=True)]) > 0.7


def test_columns_of_queries_that_the_model_does_not_know_can_be_left_out(tables, capsys):
    told = ("--label", "outcome", "--public", tables / "survey.csv", "--leave-out", "visit_id,note", *PLAIN)
    assert quorate("fit", "subsample", tables / "visits.csv", *told, "--out", tables / "m") == 0
    more = (tables / "new.csv").read_text().replace("visit_id", "ticket")
    (tables / "more.csv").write_text(more)
    assert quorate("predict", tables / "m", tables / "more.csv") == 1
    assert "--leave-out ticket" in capsys.readouterr().err
    assert quorate("predict", tables / "m", tables / "more.csv", "--leave-out", "ticket", "--json") == 0
    assert quorate("predict", tables / "m", tables / "more.csv", "--leave-out", "tickets") == 1


def test_a_release_leaves_columns_out(tables, capsys):
    told = (
        "--public",
        tables / "survey.csv",
        "--workload",
        "marginals:1",
        "--leave-out",
        "visit_id,day,note",
        "--json",
    )
    assert quorate("release", tables / "visits.csv", *told, "--out", tables / "released") == 0
    answers = (tables / "released" / "answers.csv").read_text()
    assert "ward" in answers
    assert "visit_id" not in answers


def test_a_server_takes_dates_as_texts_and_refuses_what_its_schema_refuses():
    inputs = SchemaInputs(Schema({"day": YEAR, "ward": Category(["a"], unknown="refuse")}))
    assert [one.datatype for one in inputs.tensors] == ["BYTES", "BYTES"]
    day, ward = Tensor("day", "BYTES", [1], ["2024-12-31"]), Tensor("ward", "BYTES", [1], ["a"])
    assert inputs.queries({"day": day, "ward": ward}).tolist() == [[1.0, 1.0]]
    with pytest.raises(Refused) as refused:
        inputs.queries({"day": day, "ward": Tensor("ward", "BYTES", [1], ["z"])})
    assert "column 'ward', row 1" in refused.value.sentence
    assert refused.value.unknown == {"ward": 1}


def test_a_server_counts_categories_that_a_model_does_not_know():
    schema = Schema({"age": Number(low=0, high=9), "ward": Category(["a", "b"], missing="indicator")})
    inputs = SchemaInputs(schema)
    ages = Tensor("age", "FP64", [4], np.arange(4.0))
    X = inputs.queries({"age": ages, "ward": Tensor("ward", "BYTES", [4], ["a", "z", "", "y"])})
    assert (
        inputs.count_unknown(X) == {"ward": 2} == schema.count_unknown(pa.table({"age": [1.0] * 2, "ward": ["z", "y"]}))
    )


@pytest.mark.parametrize("library", [pandas, polars], ids=["pandas", "polars"])
def test_a_model_with_text_columns_that_was_saved_in_python_is_asked_from_the_command_line(library, tmp_path, capsys):
    size = 1200
    ward = RANDOM.choice(["north", "south"], size=size)
    frame = library.DataFrame({"ward": ward, "age": RANDOM.normal(50, 10, size), "smokes": RANDOM.random(size) < 0.5})
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["ward"]), (SimpleImputer(), ["age"]), remainder="passthrough"
    )
    made = PrivateClassifier(
        make_pipeline(encoder, LogisticRegression()), epsilon=40.0, teachers=10, queries=20, aggregator="noisy_max"
    )
    folder = save(made.fit(frame, np.where(ward == "north", "ill", "well")), tmp_path / "model")
    queries = tmp_path / "new.csv"
    queries.write_text("more,age,ward,smokes\n1,51.5,north,True\n2,,south,false\n")
    assert quorate("predict", folder, queries, "--json") == 0
    assert json.loads(capsys.readouterr().out)["answers"] == ["ill", "well"]
    pyarrow.parquet.write_table(
        pa.table({"age": [51.5], "ward": ["south"], "smokes": [True]}), tmp_path / "typed.parquet"
    )
    assert quorate("predict", folder, tmp_path / "typed.parquet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["answers"] == ["well"]
    spent = load(folder).spent_epsilon()
    wrong = {
        "age,ward\n1,north\n": "must have the columns 'smokes'",
        "age,ward,smokes\nold,north,True\n": "column 'age', row 1",
    }
    for text, told in wrong.items():
        queries.write_text(text)
        assert quorate("predict", folder, queries) == 1
        assert told in capsys.readouterr().err
    assert load(folder).spent_epsilon() == spent


@pytest.mark.parametrize(
    ("value", "kind", "features"),
    [
        (1_577_836_800_123_456_789, pa.timestamp("ns"), [-1.0, 0.0]),
        (4_611_686_018_427_387_904, pa.timestamp("s"), [0.0, 1.0]),
        (4_611_686_018_427_387_904, pa.timestamp("ms", "Europe/Berlin"), [0.0, 1.0]),
        (2**63 - 1, pa.timestamp("us"), [0.0, 1.0]),
        (2**63 - 1, pa.date64(), [0.0, 1.0]),
        (-2_147_483_648, pa.date32(), [0.0, 1.0]),
    ],
    ids=str,
)
def test_no_date_of_a_record_is_refused_by_arrow_which_would_repeat_it(value, kind, features):
    """A moment beyond all calendars is missing, and the dates beside it are read as without it."""
    counted = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    schema, column = Schema({"seen": YEAR}).with_gaps(), pa.array([value, 0], counted).view(kind)
    assert schema.encode(pa.table({"seen": column})).tolist() == [features, [-1.0, 0.0]]
    assert schema.encode(pa.table({"seen": column[1:]})).tolist() == [[-1.0, 0.0]]


def test_ids_are_warned_of_and_gaps_lead_to_an_imputer_in_python():
    """Found by a walk as a newcomer: data frames in Python had neither the warning nor the way out."""
    pandas = pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame({"visit_id": np.arange(600), "age": generator.normal(size=600)})
    labels = (frame["age"] > 0).astype(int)
    with pytest.warns(UserWarning, match="'visit_id' looks like the id of a row"):
        PrivateLogisticRegression(epsilon=9.0, classes=[0, 1]).fit(frame, labels, public=frame[:200])
    with pytest.warns(UserWarning, match="'visit_id' looks like the id of a row"):
        PrivateClassifier(epsilon=9.0, teachers=20, queries=5, classes=[0, 1]).fit(frame, labels)
    gaps = frame[["age"]].mask(labels > 0)
    made = PrivateClassifier(epsilon=9.0, teachers=20, queries=5, classes=[0, 1]).fit(gaps, labels)  # not refused
    with pytest.raises(ValueError, match=r"values are missing.*make_pipeline\(SimpleImputer"):
        made.predict(gaps[labels > 0])
    assert made.spent_epsilon() == 0
