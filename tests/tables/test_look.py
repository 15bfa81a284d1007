"""`quorate look` and the sources beside CSV: an owner sees all problems at once, and no private value is refused."""

import datetime
import json
import random
import re
import shlex
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from quorate.cli import main
from quorate.core.errors import InvalidInput
from quorate.release import Columns
from quorate.tables import Category, Date, Number, Schema, Text, read_table
from quorate.tables.csv_records import Irregularities
from quorate.tables.files import TableStream, table_parts
from quorate.tables.look import find_problems, look_at

NAMES = "Größe;Pay;Weight;Smokes;Born;Visit;Ward;Note;patient;outcome"


def messy_rows(rows=600):
    draw = random.Random(1)
    for row in range(rows):
        ill = draw.random() < 0.5
        yield [
            f"{draw.randint(170, 199) if ill else draw.randint(150, 179)},5",
            draw.choice(["1.234,50 €", "987,5", "1.234", "€ 12"]),
            draw.choice(["70 kg", "81,5kg", "64"]),
            draw.choice(["TRUE", "True", "yes"] if ill else ["no", "False", "FALSE"]),
            draw.choice(["31.12.1970", "5.6.1980", "1. März 1990", "1970-12-31"]),
            draw.choice(["31/12/2024", "05/06/2024", "2024-05-01 08:30"]),
            draw.choice(["Nord", "nord", "Süd", " Süd "]),
            f'"visit {row}\nwith ""pain"" of; kind {draw.randint(1, 9)}"',
            str(row // 2),
            draw.choice(["ill", "Ill"] if ill else ["well"]),
        ]


@pytest.fixture
def messy(tmp_path):
    """A file with every trouble of real files."""
    rows = list(messy_rows())
    rows[3][0], rows[5][0], rows[7][1], rows[9][4], rows[11][2] = "unknown", "?", "", "soon", "5 lb"
    lines = [";".join(row) for row in rows]
    lines.insert(50, NAMES)
    lines.insert(100, "180,5;1,5")
    lines.insert(150, lines[0] + ";one more")
    lines.insert(160, '170,5;5;64;no;31.12.1970;05/06/2024;nord;"open;7;well')
    lines.append("Total;99.999,50;;;;;;;;")
    path = tmp_path / "messy.csv"
    path.write_bytes("\r\n".join([NAMES, *lines, ""]).encode("windows-1252"))
    return path


def test_the_command_that_look_prints_starts_what_it_has_seen(messy, tmp_path, capsys):
    out = tmp_path / "schema.json"
    main(["look", str(messy), "--label", "outcome", "--groups", "patient", "--skip-last", "1", "--out", str(out)])
    _, *words = shlex.split(capsys.readouterr().out.partition("Then: ")[2])
    out.write_text("\n".join(line for line in out.read_text().splitlines() if "read_from_private_records" not in line))
    assert main([*words, "--epsilon", "20", "--out", str(tmp_path / "start")]) == 0
    fit = (tmp_path / "start" / "commands.sh").read_text()
    assert all(text in fit for text in ("--label outcome", "--groups patient", "--skip-last 1", "--schema"))


def test_look_shows_all_troubles_of_a_file_at_once(messy, tmp_path, capsys):
    out = tmp_path / "schema.json"
    arguments = [str(messy), "--label", "outcome", "--groups", "patient", "--out", str(out)]
    assert main(["look", *arguments]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "NOT PRIVATE",
        "encoding windows-1252 (from the first line), separator semicolon, 605 records",
        "records with too few values: 1.",
        "records with too many values: 1.",
        "records that repeat the first line: 1.",
        "records at the end that look like totals: 1. Leave them out: --skip-last 1.",
        "'unknown', '?', 'Total': 3.",
        "'soon': 1.",
        "units differ (kg",
    ):
        assert text in shown, text
    assert main(["look", *arguments, "--skip-last", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["private"] is False
    assert told["file"] == {"encoding": "windows-1252", "encoding_source": "from the first line", "separator": ";"}
    uses = {column["name"]: column["use"] for column in told["columns"]}
    assert list(uses.values()) == [*["number"] * 3, "category", "date", "date", "category", "text", "groups", "label"]
    assert told["reading"] == {"decimal": ","}
    assert not any("totals" in problem["what"] for problem in told["problems"])
    assert out.stat().st_mode & 0o777 == 0o600


def test_the_schema_of_look_is_used_after_it_was_checked(messy, tmp_path, capsys):
    out = tmp_path / "schema.json"
    main(["look", str(messy), "--label", "outcome", "--groups", "patient", "--skip-last", "1", "--out", str(out)])
    text = out.read_text()
    columns = [line for line in text.splitlines() if '{"kind"' in line]
    assert all(f"    // {kind}" in text for kind in ("number: ", "category: ", "date: ", "text: "))
    assert len(columns) == 8
    fit = ["fit", "subsample", str(messy), "--schema", str(out), "--skip-last", "1", "--learner", "centroid"]
    assert main([*fit, "--out", str(tmp_path / "no")]) == 1
    assert 'then delete the line "read_from_private_records"' in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="from private records"):
        Columns.load(out)
    out.write_text(re.sub(r'\n *"read_from_private_records": true,', "", text))
    schema = Schema.load(out)
    assert schema.columns["Smokes"] == Category(["false", "true"], missing="indicator")  # True, TRUE and true
    assert schema.columns["Ward"] == Category(["Nord", "Süd"], missing="indicator")
    assert isinstance(schema.columns["Born"], Date)
    assert schema.columns["Note"] == Text()
    assert schema.label.classes == ("Ill", "well")
    assert schema.reading.decimal == ","
    table = read_table(messy, role="private", skip_last=1)
    encoded = schema.encode(table)
    assert encoded[:3, 2].tolist() == [1234.5, 12.0, 1234.0]
    assert main([*fit, "--queries", "2", "--teachers", "20", "--epsilon", "3", "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr().err
    assert "For the owner alone" in told
    assert "column 'Größe': values that are no numbers, and count as missing: 2." in told
    assert "records with too few values: 1." in told
    kept = Schema.load(tmp_path / "model" / "schema.json")
    assert kept == schema, "the rules go with the model, and comments do not"
    assert "missing;" not in (tmp_path / "model" / "schema.json").read_text()


def test_look_chooses_uses(tmp_path):
    rows = 400
    table = pa.table(
        {
            "patient_id": list(range(rows)),
            "empty": [None] * rows,
            "code": [f"x{row}" for row in range(rows)],
            "flag": [True, False] * (rows // 2),
            "when": ["12/31/2024", "05/06/2024"] * (rows // 2),
            "mark": ["a", "?"] * (rows // 2),
            "age": ["39", "40 Jahre"] * (rows // 2),
            "ward": ["1 North", "2 South"] * (rows // 2),
            "amount": pa.array([Decimal("1.234")] * rows, pa.decimal128(9, 3)),
            "target": [f"{row}.5" for row in range(rows)],
        }
    )
    look = look_at(table, label="target", leave_out=["flag"])
    uses = {column.name: column.use for column in look.columns}
    assert uses == {
        "patient_id": "left out, named like an id",
        "empty": "left out, no value",
        "code": "left out, 400 different texts",
        "flag": "left out",
        "when": "date",
        "mark": "category",
        "age": "category",
        "ward": "category",
        "amount": "number",
        "target": "label",
    }
    assert look.reading.date_order == "mdy"
    assert {column.name for column in look.columns if any("units" in note for note in column.notes)} == {"age"}
    told = [str(problem) for problem in look.problems]
    assert "column 'mark': '?' may mean missing, and is a category: 400. Change the file or the schema." in told
    assert any("too many or too few for classes: 400" in text for text in told)
    assert main(["look", str(tmp_path / "none.csv")]) == 1


def test_look_refuses_names_of_columns_at_once(messy, capsys):
    assert main(["look", str(messy), "--label", "nothing", "--groups", "nobody"]) == 1
    refusal = capsys.readouterr().err
    assert "--label names 'nothing'" in refusal
    assert "--groups names 'nobody'" in refusal


def test_problems_are_told_at_once():
    schema = Schema({"age": Number(), "sex": Category(["f", "m"])}, groups="who").with_label("ill", ["no", "yes"])
    table = pa.table(
        {"age": ["1", "x", ""], "sex": ["f", "z", None], "who": ["a", None, "b"], "ill": ["yes", "?", "no"]}
    )
    found = Irregularities(short=1, undecoded=2)
    told = [(problem.column, problem.count) for problem in find_problems(schema, table, found)]
    assert told == [(None, 1), (None, 2), ("age", 1), ("age", 1), ("sex", 1), ("sex", 1), ("ill", 1), ("who", 1)]
    wrong = pa.table({"age": [[1]], "extra": [1], "who": ["a"], "ill": ["no"]})
    with pytest.raises(InvalidInput) as refused:
        schema.encode(wrong)
    for text in ("must have the columns 'sex'", "does not know these columns", "'extra'", "'age': values must be"):
        assert text in str(refused.value)


def test_comments_of_a_schema_are_not_read(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{\n// all of it\n"columns": {\n  // "a": {},\n  "b//c": {"kind": "number"}}}\n')
    assert list(Schema.load(path).columns) == ["b//c"]
    path.write_text('{\n// all of it\n"columns": {,}}\n')
    with pytest.raises(InvalidInput, match="in line 3"):
        Schema.load(path)


# Excel and databases


def test_excel_is_read_cell_by_cell(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book, path = openpyxl.Workbook(), tmp_path / "t.xlsx"
    far = datetime.datetime(2024, 12, 31, 8, 30)
    rows = [["age", "when", "note", None], [39, far, "x", None], ["old", None, True, 5], [None, None, None, None]]
    for row in [*rows, [40.5, "31.12.2024", "12 kg", None], ["Total", None, None, None]]:
        book.active.append(row)
    book.active["B6"] = -1e9
    book.active["B6"].number_format = "yyyy-mm-dd"  # a date beyond all calendars
    book.save(path)
    for options, count in (({}, 5), ({"skip_last": 1}, 4)):
        whole = read_table(path, role="private", **options)
        assert whole.column_names == ["age", "when", "note"]
        assert whole.num_rows == count
        assert [row for part in TableStream(path, **options) for row in part.to_pylist()] == whole.to_pylist()
    assert whole.to_pylist()[1] == {"age": "old", "when": None, "note": "true"}
    assert set(whole.to_pylist()[2].values()) == {None}  # a record that misses all values moves no other
    encoded = Schema(
        {"when": Date(low="2024-01-01", high="2025-01-01", missing="indicator")}, leave_out=["age", "note"]
    )
    assert encoded.encode(whole)[:, 1].tolist() == [0, 1, 1, 0]
    assert TableStream(path).header.column_names == ["age", "when", "note"]
    empty = openpyxl.Workbook()
    empty.save(path)
    with pytest.raises(InvalidInput, match="the first sheet is empty"):
        read_table(path, role="query")


def test_duckdb_queries_are_streamed(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    place = tmp_path / "clinic.db"
    with duckdb.connect(str(place)) as made:
        made.execute(
            "CREATE TABLE visits AS SELECT range AS age, 'n' AS sex, 1.50::DECIMAL(9,2) AS pay FROM range(70000)"
        )
    address = f"duckdb:{place}?query=SELECT age, pay FROM visits WHERE age < 65000"
    whole = read_table(address, role="private")
    assert whole.num_rows == 65_000
    batches = list(TableStream(Path(address)))
    assert len(batches) > 1
    schema = Schema({"age": Number(), "pay": Number()})
    assert schema.encode(whole).tobytes() == schema.encode(pa.concat_tables(batches)).tobytes()
    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    assert read_table(f"duckdb:?query=SELECT * FROM '{tmp_path}/a.parquet'", role="query").num_rows == 2
    for wrong, message in (
        (f"duckdb:{place}?query=SELECT 'secret'::INTEGER AS a", "duckdb: the query failed"),
        (f"duckdb:{place}?query=DROP TABLE visits", "duckdb: the query must be one SELECT"),
        (f"duckdb:{tmp_path}/none.db?query=SELECT 1", "there is no such database"),
        (f"duckdb:{place}?query=SELECT 1 AS a WHERE false", "the query: the table has no rows"),
    ):
        with pytest.raises(InvalidInput, match=message) as refused:
            read_table(wrong, role="private")
        assert "secret" not in str(refused.value)
    with pytest.raises(InvalidInput, match="a cluster reads files"):
        table_parts([address])


def test_postgresql_queries_are_streamed(postgres_url):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_url) as made:
        made.execute(
            "CREATE TABLE visits (age int, day date, at timestamptz, pay numeric, who uuid, ok bool, tags int[])"
        )
        made.execute(
            "INSERT INTO visits VALUES "
            "(1, '2024-12-31', '2024-12-31 08:30+02', 1.234, gen_random_uuid(), true, '{1}'), "
            "(2, 'infinity', '294000-01-01', 'NaN', NULL, NULL, NULL)"
        )
    joined = "&" if "?" in postgres_url else "?"
    address = f"{postgres_url}{joined}query=SELECT * FROM visits ORDER BY age"
    table = read_table(address, role="private")
    assert table.column_names == ["age", "day", "at", "pay", "who", "ok", "tags"]
    schema = Schema(
        {"day": Date(low="2024-01-01", high="2025-01-01"), "at": Date(centre="2024-12-31", spread=1), "pay": Number()},
        leave_out=["age", "who", "ok", "tags"],
    )
    assert schema.encode(table)[0, 1] == pytest.approx(6.5 / 24)
    assert schema.encode(table)[0, 2] == 1.234
    assert schema.with_reading(decimal=",").encode(table)[0, 2] == 1.234
    assert [(problem.column, problem.count) for problem in find_problems(schema, table)] == [
        ("day", 1),
        ("at", 1),
        ("pay", 1),
    ]
    assert [row for part in TableStream(address) for row in part.to_pylist()] == table.to_pylist()
    for query in ("SELECT 'secret'::int", "DROP TABLE visits", "INSERT INTO visits VALUES (3)"):
        with pytest.raises(InvalidInput, match="postgresql: the query failed") as refused:
            read_table(f"{postgres_url}{joined}query={query}", role="private")
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "library", "extra"),
    [
        ("t.xlsx", "openpyxl", "excel"),
        ("duckdb:t.db?query=SELECT 1", "duckdb", "sql"),
        ("postgresql://host/db?query=SELECT 1", "psycopg", "sql"),
    ],
)
def test_what_to_install(tmp_path, monkeypatch, source, library, extra):
    monkeypatch.chdir(tmp_path)
    Path("t.xlsx").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(InvalidInput, match=rf"{library}; install it: pip install '.*\[{extra}\]'"):
        read_table(source, role="query")


def test_a_streamed_fit_tells_the_owner_all_problems_of_the_files_at_once(tmp_path, capsys):
    from quorate.cli.app import main

    for name, odd in (("a", "12a,no"), ("b", ",maybe"), ("c", "7")):
        rows = [f"{n % 90},{'no' if n % 3 else 'yes'}" for n in range(300)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,y", *rows, odd]) + "\n")
    (tmp_path / "schema.json").write_text(
        '{"columns": {"age": {"kind": "number", "low": 0, "high": 90}}, '
        '"label": {"column": "y", "classes": ["no", "yes"]}}'
    )
    words = ["fit", "subsample", str(tmp_path / "*.csv"), "--schema", str(tmp_path / "schema.json")]
    assert main([*words, "--epsilon", "2", "--queries", "20", "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr().err
    assert "For the owner alone" in told
    assert "records with too few values: 1" in told
    assert "column 'age': values that are no numbers, and count as missing: 1" in told
    assert "column 'age': missing values: 1" in told
    assert "column 'y': labels that are missing or none of the classes: 2" in told


@pytest.mark.parametrize("method", ["linear", "tested", "subsample"])
def test_the_owner_is_told_what_a_model_without_a_schema_does_not_read(method, tmp_path, capsys):
    """Linear models learn what the columns hold, and others take all of them as numbers."""
    path, rows = tmp_path / "visits.csv", range(3000)
    text = [f"{row % 90}{' Jahre' if row % 9 == 0 else ''},{'ill' if row % 90 > 45 else 'well'}" for row in rows]
    path.write_text("\n".join(["age,outcome", *text, "age,outcome", ""]))
    fit = ["fit", method, str(path), "--label", "outcome", "--classes", "ill,well", "--epsilon", "4"]
    assert main([*fit, "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr().err
    assert "column 'age': values that are no numbers, and count as missing: 334." in told
    assert "records that repeat the first line: 1." in told
    release = ["release", str(path), "--workload", "marginals:1", "--columns", str(tmp_path / "columns.json")]
    (tmp_path / "columns.json").write_text('{"age": {"cuts": [45]}, "outcome": ["ill", "well"]}')
    assert main([*release, "--out", str(tmp_path / "release")]) == 0
    assert "records that repeat the first line: 1." in capsys.readouterr().err


def test_a_problem_that_many_columns_have_takes_one_line(tmp_path, capsys):
    path, names = tmp_path / "wide.csv", [f"c{number}" for number in range(12)]
    rows = [",".join([*["" if row < 3 else str(row % 7)] * 12, str(row % 2)]) for row in range(200)]
    path.write_text("\n".join([",".join([*names, "y"]), *rows, ""]))
    fit = ["fit", "subsample", str(path), "--label", "y", "--classes", "0,1", "--epsilon", "4", "--queries", "1"]
    assert main([*fit, "--teachers", "10", "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr().err
    assert "12 columns ('c0', 'c1', " in told
    assert "'c11'): missing values: 36. Mark them: --gaps" in told
