"""Values and files are read by declared rules, each value and each record by itself."""

import codecs
import gzip
import json
import math
import re
import sys
import zipfile
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.core.errors import InvalidInput
from quorate.tables import Category, Date, Label, Number, Reading, Schema, csv_files, csv_records, read_table
from quorate.tables.csv_files import _ENCODINGS
from quorate.tables.csv_records import Irregularities, RecordBlocks
from quorate.tables.dates import read_moments
from quorate.tables.files import TableStream
from quorate.tables.values import object_texts, read_codes, read_numbers

NAN = math.nan
NUMBERS = {  # as read with decimal="." and with decimal=","
    "5": (5, 5),
    "-5.25": (-5.25, -5.25),
    "+7": (7, 7),
    ".5": (0.5, 0.5),
    "1e3": (1000, 1000),
    "inf": (math.inf, math.inf),
    "1,234": (1234, 1.234),
    "1.234": (1.234, 1234),
    "-1.234": (-1.234, -1234),
    "0.123": (0.123, 0.123),
    "0,123": (0.123, 0.123),
    "1,5": (1.5, 1.5),
    "1.5": (1.5, 1.5),
    "1234.567": (1234.567, 1234.567),
    "1,234.5": (1234.5, 1234.5),
    "1.234,5": (1234.5, 1234.5),
    "1,234,567": (1234567, 1234567),
    "1.234.567": (1234567, 1234567),
    "1 234,5": (1234.5, 1234.5),
    "1'234.50": (1234.5, 1234.5),
    "1\u00a0234": (1234, 1234),
    "1\u202f234,5": (1234.5, 1234.5),
    "1,5e3": (1500, 1500),
    "1.234e3": (1234, 1234),
    "$5": (5, 5),
    "-$5": (-5, -5),
    "$-5": (-5, -5),
    "€ 1.234,50": (1234.5, 1234.5),
    "12 €": (12, 12),
    "5%": (5, 5),
    "5 %": (5, 5),
    "12 kg": (12, 12),
    "3.5kg": (3.5, 3.5),
    "37,2 °C": (37.2, 37.2),
    "\u22125": (-5, -5),
    "CHF 1'000": (1000, 1000),
    "TRUE": (1, 1),
    "False": (0, 0),
    "yes": (1, 1),
    "n": (0, 0),
    "Nein": (0, 0),
    "oui": (1, 1),
    "5k": (NAN, NAN),
    "3 Mio": (NAN, NAN),
    "2bn": (NAN, NAN),
    "5m": (NAN, NAN),
    "12,34,56": (NAN, NAN),
    "1,23,456": (NAN, NAN),
    "1 2": (NAN, NAN),
    "--5": (NAN, NAN),
    "5,": (NAN, NAN),
    "1..2": (NAN, NAN),
    "kg": (NAN, NAN),
    "$": (NAN, NAN),
    "٣": (NAN, NAN),
    "unknown": (NAN, NAN),
    "": (NAN, NAN),
    "NA": (NAN, NAN),
    "1_000": (NAN, NAN),
    "0x10": (NAN, NAN),
    "nan(1)": (NAN, NAN),
}
DATES = {
    "2024-12-31": "2024-12-31",
    "2024/12/31": "2024-12-31",
    "31.12.2024": "2024-12-31",
    "31/12/2024": "2024-12-31",
    "12/31/2024": "2024-12-31",
    "05/06/2024": "2024-06-05",
    "05.06.2024": "2024-06-05",
    "31 Dec 2024": "2024-12-31",
    "31-Dec-2024": "2024-12-31",
    "Dec 31, 2024": "2024-12-31",
    "31. Dezember 2024": "2024-12-31",
    "1 août 2024": "2024-08-01",
    "2024-12-31 08:30": "2024-12-31T08:30",
    "31.12.2024 8:30 PM": "2024-12-31T20:30",
    "2024-12-31T08:30+02:00": "2024-12-31T06:30",
    "2024-12-31 08:30:00+00": "2024-12-31T08:30",
    "20241231": None,
    "31/12/24": None,
    "2024-02-30": None,
    "31 ma 2024": None,
    "13/13/2024": None,
    "12:30": None,
    "": None,
    "soon": None,
    "infinity": None,
}
READINGS = (
    Reading(),
    Reading(decimal=","),
    Reading(thousands=()),
    Reading(date_order="mdy", compact_dates=True),
    Reading(missing_texts=("", "-999", "1.234"), decimal=","),
    Reading(units=("k",), signs=()),
    Reading(true_texts=(), false_texts=()),
)


def texts(*values):
    return pa.array(values, pa.large_string())


def same(one, other):
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_read_by_declared_rules(text):
    for reading, expected in zip((Reading(), Reading(decimal=",")), NUMBERS[text], strict=True):
        read = reading.number(text)
        assert read == expected or (math.isnan(read) and math.isnan(expected)), reading.decimal


def test_dates_are_read_by_declared_rules():
    for text, expected in DATES.items():
        read, meant = (read_moments(texts(one or "none"), "seconds")[0] for one in (text, expected))
        assert same(read, meant), text
    swapped, compact = Reading(date_order="mdy"), Reading(compact_dates=True)
    assert read_moments(texts("05/06/2024"), "days", swapped) == read_moments(texts("2024-05-06"), "days")
    for column in (texts("20241231"), pa.array([20241231]), pa.array([20241231.0])):
        assert read_moments(column, "days", compact) == read_moments(texts("2024-12-31"), "days")


def test_the_type_of_a_number_decides_before_the_decimal_mark():
    reading = Reading(decimal=",")
    for column in (object_texts([1.234, Decimal("1.234"), "1.234"]), object_texts(["x", 1.234, "1.234"])):
        assert read_numbers(column, reading)[1:].tolist() == [1.234, 1234.0]
    assert read_numbers(object_texts([1.234, "1.234"])).tolist() == [1.234, 1.234]
    assert read_codes(object_texts([1.234, Decimal("1.234"), "1.234"]), ["1.234"]).tolist() == [0, 0, 0]
    schema = Schema({"pay": Number()}).with_reading(decimal=",")
    table = pa.table({"pay": pa.array([Decimal("1.234"), Decimal("2.500"), None], pa.decimal128(9, 3))})
    assert schema.encode(table).tolist() == [[1.234], [2.5], [0.0]]


def test_a_missing_text_that_is_a_number_is_missing_in_every_container():
    schema = Schema({"age": Number(missing="indicator")}, reading=Reading(missing_texts=["", "-999"]))
    for values in (["7", "-999"], [7, -999], [7.0, -999.0]):
        assert schema.encode(pa.table({"age": values})).tolist() == [[7, 0], [0, 1]]


def test_truth_words_are_read_where_a_pair_of_them_is_declared():
    words = texts("TRUE", "yes", "Ja", "y", "1", "1.0", "False", "no", "0", "maybe", None)
    assert read_codes(words, ["no", "yes"]).tolist() == [1, 1, 1, 1, 1, 1, 0, 0, 0, 2, -1]
    assert read_codes(words, ["true", "false"]).tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, -1]
    assert read_codes(texts("TRUE", "yes"), ["no", "yes", "maybe"]).tolist() == [3, 1], "three are no pair"
    assert read_codes(texts("ja"), ["no", "yes"], Reading(true_texts=("yes",))).tolist() == [2]
    assert Schema({"a": Number()}, label=Label("b", ["no", "yes"])).labels(
        pa.table({"a": [1, 2], "b": [True, False]})
    ).tolist() == ["yes", "no"]


def test_public_words_are_categories_though_they_can_be_numbers():
    schema = Schema.from_public(
        pa.table({"smokes": ["yes", "no"], "pay": ["1.234,50 €", "7,5"], "day": ["31.12.2024", "1.1.2024"]})
    )
    assert schema.columns["smokes"] == Category(["no", "yes"])
    assert schema.columns["pay"].centre == pytest.approx(621)
    assert type(schema.columns["day"]) is Date


ODD = st.sampled_from(
    [*NUMBERS, *DATES, " 5 ", "\x1f", "1.234\x1f", "9" * 400, "1e400", "1e-400", "-0", "nan", "-nan", "x" * 70_000]
)
VALUES = (
    ODD
    | st.text(max_size=12)
    | st.floats().map(str)
    | st.from_regex(r"[+-]?[0-9.,' ]{1,12}( ?(kg|%|€|k))?", fullmatch=True)
)


@settings(max_examples=300)
@given(values=st.lists(VALUES | st.none(), min_size=1, max_size=8), reading=st.sampled_from(READINGS))
def test_a_value_is_read_alike_alone_and_in_company(values, reading):
    column = texts(
        *[
            None if value is None or (not value.isprintable() and "\ud800" <= value <= "\udfff") else value
            for value in values
        ]
    )
    readers = (
        lambda part: read_numbers(part, reading),
        lambda part: read_moments(part, "days", reading),
        lambda part: read_codes(part, ["yes", "no"], reading),
        lambda part: read_codes(part, ["1.234", "5", "kg"], reading),
    )
    for read in readers:
        whole = read(column)
        for place in range(len(column)):
            assert same(read(column.slice(place, 1)), whole[place : place + 1]), place


@settings(max_examples=300)
@given(value=VALUES)
def test_arrow_and_the_rules_agree_on_numbers(value):
    stripped = value.strip()
    if stripped not in Reading().missing_texts:
        assert same(read_numbers(texts(value)), np.array([Reading().number(stripped)]))


def test_a_schema_carries_its_rules():
    schema = Schema({"pay": Number()}, reading=Reading(missing_texts=["", "-"], decimal=",", units=("Stk",)))
    assert Schema.from_document(json.loads(schema.to_json())) == schema
    assert schema.to_document()["reading"] == {"decimal": ",", "units": ["Stk"]}
    assert schema.reading.missing_texts == ("", "-")
    assert schema.with_missing_texts(["?"]).reading.missing_texts == ("", "-", "?")
    assert schema.with_reading(decimal=".").reading.missing_texts == ("", "-")
    assert "reading" not in Schema({"pay": Number()}).to_document()
    for wrong, message in (
        ({"decimal": ";"}, "decimal must be one of"),
        ({"decimals": ","}, "'decimals' means nothing here"),
        ({"units": "kg"}, "units must be a list of texts"),
        ({"thousands": ["1"]}, "thousands must be single characters"),
        ({"true_texts": ["no"]}, "true or false, not both"),
        ([], "reading must be an object"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Schema.from_document({"columns": {"a": {"kind": "number"}}, "reading": wrong})


# CSV files: encodings, separators, and records that do not stand as they should.


def rows_of(path, content, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    whole = read_table(path, role="private", **options).to_pylist()
    streamed = [row for batch in TableStream(path, **options) for row in batch.to_pylist()]
    assert whole == streamed
    return whole


@pytest.mark.parametrize(
    ("encoding", "name", "shown"),
    [
        ("utf-8", "größe", None),
        ("utf-8-sig", "größe", None),
        ("utf-16", "größe", None),
        ("windows-1252", "größe", None),
        ("latin-1", "größe", None),
        ("windows-1252", "size", "windows-1252"),
        ("latin-1", "size", "latin-1"),
        ("utf-16-le", "size", "utf-16-le"),
    ],
)
def test_encodings_are_found_in_the_first_line_or_declared(tmp_path, encoding, name, shown):
    text = f"{name},word\n1,Ärger\n2,naïve\n"
    expected = [{name: "1", "word": "Ärger"}, {name: "2", "word": "naïve"}]
    assert rows_of(tmp_path / "t.csv", text.encode(encoding), encoding=shown) == expected
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
    assert read_table(tmp_path / "t.csv.gz", role="private", encoding=shown).to_pylist() == expected


def test_bytes_that_are_no_utf_8_are_read_as_windows_1252_and_counted(tmp_path):
    found = Irregularities()
    read = rows_of(tmp_path / "t.csv", b"a,b\n1,\xff\xfe\n2,\xc3\xa9\n")
    assert read == [{"a": "1", "b": "ÿþ"}, {"a": "2", "b": "é"}]
    read_table(tmp_path / "t.csv", role="private", irregularities=found)
    assert found.undecoded == 1
    for wrong in ("utf8x", "base64", "iso2022_jp", "hz", "utf-7"):
        with pytest.raises(InvalidInput, match="encoding must"):
            read_table(tmp_path / "t.csv", role="private", encoding=wrong)


@pytest.mark.parametrize("encoding", sorted(_ENCODINGS - {"utf-8-sig"}))
def test_no_byte_of_a_record_swallows_the_next(tmp_path, encoding):
    """Of encodings that have one byte for a line break; those of two or four take records of as many bytes."""
    if encoding.startswith(("utf-16", "utf-32")):
        pytest.skip("the number of bytes of a record is taken as given")
    for byte in range(0x80, 0x100):
        for odd in (bytes([byte]), bytes([byte, byte]), bytes([byte, 0x30])):
            text = b"a,b\n1,x" + odd + b"\n2,y\n"
            assert text.decode(encoding, "replace").count("\n") == 3
            assert text.decode(encoding, "replace").endswith("\n2,y\n")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found_in_the_first_line(tmp_path, separator):
    content = f"a{separator}b\n1{separator}x\n"
    assert rows_of(tmp_path / "t.csv", content) == [{"a": "1", "b": "x"}]
    assert rows_of(tmp_path / "t.csv", f"sep={separator}\r\n{content}") == [{"a": "1", "b": "x"}]
    assert rows_of(tmp_path / "t.csv", "a;b,c\n1,2;3\n", separator=",") == [{"a;b": "1", "c": "2;3"}]


def test_semicolons_say_that_a_comma_precedes_decimals(tmp_path):
    read = rows_of(tmp_path / "t.csv", "a;b\n1,234;1,234,567\n1.234;x, y\n")
    schema = Schema({"a": Number(), "b": Category(["x, y"])})
    table = read_table(tmp_path / "t.csv", role="query")
    assert read[0] == {"a": "1,2340", "b": "1,234,567"}
    for decimal in ".,":
        encoded = schema.with_reading(decimal=decimal).encode(table)
        assert encoded[0, 0] == 1.234
        assert encoded[1].tolist() == [1.234 if decimal == "." else 1234, 1]


def test_records_with_too_few_or_too_many_values(tmp_path):
    found = Irregularities()
    content = "a,b,c\n1,2,3\n4\n5,6,7,8\n\n9,,\n"
    read = rows_of(tmp_path / "t.csv", content)
    empty = {"a": "", "b": "", "c": ""}
    assert read == [{"a": "1", "b": "2", "c": "3"}, empty | {"a": "4"}, empty, empty | {"a": "9"}]
    read_table(tmp_path / "t.csv", role="private", irregularities=found)
    assert (found.short, found.long) == (1, 1)
    for role in ("public", "query"):
        with pytest.raises(InvalidInput, match="each line must"):
            read_table(tmp_path / "t.csv", role=role)


def test_line_breaks_in_quotes_and_odd_quotes(tmp_path):
    content = 'a,b\n1,"two\nlines, ""quoted"""\n2,5" pipe\n3,"open\n4,x\n5,"closed"\n"6" ,"y"z\n7,"last'
    assert [tuple(row.values()) for row in rows_of(tmp_path / "t.csv", content)] == [
        ("1", 'two\nlines, "quoted"'),
        ("2", '5" pipe'),
        ("3", '"open'),
        ("4", "x"),
        ("5", "closed"),
        ("6", '"y"z'),
        ("7", '"last'),
    ]


def test_an_open_quote_is_an_ordinary_character_after_64_kib(tmp_path):
    lines = [f"{row},{row}" for row in range(20_000)]
    content = "\n".join(["a,b", '0,"open', *lines, '1,end"'])
    read = rows_of(tmp_path / "t.csv", content)
    assert len(read) == 20_002
    assert read[0]["b"] == '"open'
    assert read[-1]["b"] == 'end"'
    shorter = "\n".join(["a,b", '0,"open', *lines[:100], '1,end"', "7,8"])
    assert len(rows_of(tmp_path / "t.csv", shorter)) == 2, "a value of several lines, as the file has it"


def test_repeated_first_lines_and_a_last_line_of_totals(tmp_path):
    content = 'a,b\n1,2\na,b\n3,4\n"a",b\na,c\nTotal,6\n'
    read = rows_of(tmp_path / "t.csv", content, skip_last=1)
    gap = {"a": None, "b": None}
    assert read == [{"a": "1", "b": "2"}, gap, {"a": "3", "b": "4"}, gap, {"a": "a", "b": "c"}]
    assert len(rows_of(tmp_path / "t.csv", content)) == 6
    with pytest.raises(InvalidInput, match="skip_last must"):
        read_table(tmp_path / "t.csv", role="query", skip_last=-1)


PIECES = st.lists(
    st.sampled_from(['"', ",", "\n", "\r\n", "\r", "a", " ", "é", '""', '","', "b,c\n"]), max_size=40
).map("".join)


def blocks_of(content, size, found=None):
    data, start = content.encode(), [0]

    def read(_):
        part = data[start[0] : start[0] + size]
        start[0] += size
        return part

    return b"".join(block.to_pybytes() for block in RecordBlocks(read, ",", 2, found or Irregularities()))


@pytest.mark.parametrize("record", [b"1,2\n", b'1,a "quoted" word\n'])
def test_blocks_of_records_lie_in_memory_that_arrow_owns(record):
    """A thread of Arrow that releases Python's memory while the interpreter shuts down aborts the process."""
    parts = iter([record * 100_000, b""])
    before = pa.total_allocated_bytes()
    blocks = list(RecordBlocks(lambda _: next(parts), ",", 2, Irregularities()))
    assert pa.total_allocated_bytes() - before >= sum(block.size for block in blocks) > 300_000


def parsed(content):
    """Return the records of a file as a plain reading of the grammar has them."""
    blocks = RecordBlocks(lambda _: b"", ",", 2, Irregularities())
    repaired, _ = blocks.repair(content.encode())
    return repaired


@settings(max_examples=500)
@given(content=PIECES, size=st.integers(1, 60))
def test_records_do_not_depend_on_where_blocks_end(content, size):
    blocks = RecordBlocks(lambda _: b"", ",", 2, Irregularities())
    assert blocks.repair(blocks_of(content, size))[0] == parsed(content)


@settings(max_examples=150)
@given(content=PIECES)
def test_arrow_reads_blocks_as_the_grammar_says(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(b"x,y\n" + content.encode())
    expected = parsed(content)
    if not expected:
        with pytest.raises(InvalidInput, match="the table has no rows"):
            read_table(path, role="private")
        return
    read = read_table(path, role="private")
    options = {"newlines_in_values": True}
    names = pyarrow.csv.ReadOptions(column_names=["x", "y"], block_size=2**20)
    typed = pyarrow.csv.ConvertOptions(
        column_types={"x": pa.large_string(), "y": pa.large_string()}, strings_can_be_null=False
    )
    plain = pyarrow.csv.read_csv(pa.BufferReader(expected), names, pyarrow.csv.ParseOptions(**options), typed)
    assert read.to_pylist() == plain.to_pylist()


CELLS = st.text(alphabet=st.sampled_from('a1,"\n\r é;\t'), max_size=6)


@settings(max_examples=100)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6),
    place=st.integers(0, 5),
    other=st.tuples(CELLS, CELLS),
)
def test_a_record_that_is_written_properly_changes_no_other(rows, place, other, tmp_path_factory):
    def written(table):
        quoted = [",".join('"' + value.replace('"', '""') + '"' for value in row) for row in table]
        path = tmp_path_factory.mktemp("csv") / "t.csv"
        path.write_text("\n".join(["x,y", *quoted]) + "\n", newline="")
        return read_table(path, role="private").to_pylist()

    place %= len(rows)
    changed = [*rows[:place], other, *rows[place + 1 :]]
    assert written(rows) == [{"x": x, "y": y} for x, y in rows]
    assert written(changed)[:place] == written(rows)[:place]
    assert written(changed)[place + 1 :] == written(rows)[place + 1 :]
    assert written([rows[place]]) == written(rows)[place : place + 1]


# --- Errors and standard error show no value --------------------------------------------------------------------------


def test_no_error_of_a_database_repeats_a_value(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "c.db")) as connection:
        connection.execute("CREATE TABLE t AS SELECT '5' AS age FROM range(3000)")
        connection.execute("INSERT INTO t VALUES ('SECRET')")
    address = f"duckdb:{tmp_path}/c.db?query=SELECT CAST(age AS INTEGER) AS age FROM t"
    relation = duckdb.sql("SELECT CAST(v AS INTEGER) AS age FROM (VALUES ('1'), ('SECRET')) t(v)")
    reads = [
        lambda: read_table(address, role="private"),
        lambda: list(TableStream(address)),
        lambda: Schema({"age": Number()}).encode(relation),
    ]
    for read in reads:
        with pytest.raises(InvalidInput) as refused:
            read()
        assert "SECRET" not in str(refused.value)


QUERIES_TO_TEXT_FILES = [
    "SELECT * FROM '{csv}'",
    "SELECT * FROM read_csv('{csv}', all_varchar=true)",  # one record of another width changes all columns
    "SELECT * FROM read_csv('{csv}', all_varchar=false)",
    "SELECT * FROM '{csv}' -- all_varchar",
    "WITH t AS (FROM '{csv}') SELECT * FROM t",
    "SELECT * FROM read_csv('{csv}', all_varchar=true) UNION ALL SELECT * FROM '{csv}'",
    "SELECT (SELECT count(*) FROM '{csv}') AS n",
    "FROM query('FROM ''{csv}''')",
    "SELECT * FROM sniff_csv('{csv}')",
    "SELECT * FROM '{json}'",
    "SELECT * FROM hidden",
]


@pytest.mark.parametrize("query", QUERIES_TO_TEXT_FILES)
def test_a_query_to_a_file_without_types_is_refused(query, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    files = {"csv": tmp_path / "t.csv", "json": tmp_path / "t.json"}
    files["csv"].write_text("id,b\n" + "007,f\n" * 50 + "x05\n")
    files["json"].write_text('{"id": 7}\n')
    with duckdb.connect(str(tmp_path / "c.db")) as connection:
        connection.execute(f"CREATE VIEW hidden AS SELECT * FROM '{files['csv']}'")
    with pytest.raises(InvalidInput, match="lets values decide columns and types"):
        read_table(f"duckdb:{tmp_path}/c.db?query={query.format(**files)}", role="private")


def test_a_query_is_one_statement_and_sees_no_variable(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "t.csv"
    path.write_text("id\n007\n")
    duckdb.sql(f"COPY (SELECT '007' AS read_csv) TO '{tmp_path}/t.parquet'")
    for query in (f"CREATE TABLE t AS SELECT * FROM '{path}'; SELECT * FROM t", "SELECT 1; SELECT 2", "SHOW TABLES; "):
        with pytest.raises(InvalidInput):
            read_table(f"duckdb:?query={query}", role="private")
    plans = pa.table({"secret": [1]})
    with pytest.raises(InvalidInput, match="the query failed"):
        read_table("duckdb:?query=SELECT * FROM plans", role="private")
    assert plans.num_rows == 1
    table = read_table(f"duckdb:?query=SELECT * FROM '{tmp_path}/t.parquet'; -- read_csv", role="private")
    assert table["read_csv"].to_pylist() == ["007"]


@pytest.mark.parametrize("company", [b"2,b", b"\xff,b", b"2", b'2,q"q', b'2,"b"'], ids=repr)
def test_a_mark_in_a_record_is_part_of_its_value(company, tmp_path):
    """Arrow drops a byte-order mark at the start of a block, and lengths of other records decide where blocks start."""
    path, mark = tmp_path / "t.csv", codecs.BOM_UTF8
    for records in ([mark + b"1,a", company], [company, mark + b"1,a"]):
        path.write_bytes(b"x,y\n" + b"".join(record + b"\n" for record in records))
        assert "\ufeff1" in read_table(path, role="private")["x"].to_pylist()
    path.write_bytes(b"x\n1\n")  # a block that is shorter than a mark
    assert read_table(path, role="private")["x"].to_pylist() == ["1"]


@pytest.mark.parametrize(
    "odd", [b"5,x,SECRET", b"5,SEC\xe9RET,1", b"SEC\xe9RET", b'5,"SEC\xe9RET', b"5,\xff\xfeSECRET"]
)
def test_no_byte_of_a_record_is_shown_on_standard_error(tmp_path, capfd, monkeypatch, odd):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    (tmp_path / "t.csv").write_bytes(b"age,sex\n" + b"1,f\n" * 3 + odd + b"\n" + b"2,m\n" * 3)
    assert read_table(tmp_path / "t.csv", role="private").num_rows == 7
    assert shown == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("is_planted", [False, True])
def test_threads_of_arrow_parse_memory_that_arrow_owns(tmp_path, monkeypatch, is_planted):
    """A thread that releases memory of Python while the interpreter shuts down aborts the process."""
    is_owned, make_reader = [], pa.BufferReader

    def open_noted(block):
        is_owned.append(block.is_mutable)  # Arrow may write to what it has allocated, and not to bytes of Python
        return make_reader(block)

    monkeypatch.setattr(pa, "BufferReader", open_noted)
    if is_planted:
        for module in (csv_files, csv_records):
            monkeypatch.setattr(module, "arrow_buffer", pa.py_buffer)
    for odd in (b"", codecs.BOM_UTF8 + b"6,male\n", b"1,x,2\n", b"5,m\xe9\n", b'"5\n6",x\n'):
        (tmp_path / "t.csv").write_bytes(b"age,sex\n" + odd + b"5,female\n" * 20_000)
        assert read_table(tmp_path / "t.csv", role="private").num_rows == 20_000 + bool(odd)
    assert len(is_owned) >= 5
    assert all(is_owned) is not is_planted
    assert any(is_owned) is not is_planted


@pytest.mark.parametrize(
    "cell", ['t="n"><v>abc', 't="d"><v>2024-99-99', 't="b"><v>x', 't="s"><v>999', 't="n" s="x"><v>1']
)
@pytest.mark.parametrize("columns", [1, 2])
def test_no_cell_of_a_workbook_stops_it(tmp_path, cell, columns):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, "x"], [2, "y"], [3, "z"]):
        book.active.append(row[:columns])
    book.save(tmp_path / "sound.xlsx")
    with zipfile.ZipFile(tmp_path / "sound.xlsx") as sound, zipfile.ZipFile(tmp_path / "odd.xlsx", "w") as odd:
        for name in sound.namelist():
            text = sound.read(name).decode()
            odd.writestr(name, re.sub(r'<c r="A3"[^>]*>.*?</c>', f'<c r="A3" {cell}</v></c>', text))
    table = read_table(tmp_path / "odd.xlsx", role="private")
    assert table["a"].to_pylist() == ["1", "", "3"]
    assert columns == 1 or table["b"].to_pylist() == ["x", "y", "z"]
