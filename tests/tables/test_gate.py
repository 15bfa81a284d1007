"""The law of the gate: what a row becomes depends on public rules and on that row alone, bit for bit."""

import copy
import datetime as dt
import itertools
import json
import sys
import uuid
from collections import deque
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import quorate as qr
from planted.gate import CELLS, classes_of_numpy, missing_labels_as_a_class, replaced_everywhere
from quorate.core.mechanisms import NoisyVector, NoisyVectors, SparseHistogram
from quorate.models.predictors import labels as labels_module
from quorate.models.predictors.labels import class_codes, declared_classes, target_numbers
from quorate.models.students.points import labels_of
from quorate.release.people import first_records
from quorate.tables import Category, Date, FrameFormat, Number, Schema
from quorate.tables.containers import as_table, list_values, open_matrix, open_table, take_arrow_rows
from quorate.tables.features import AdditiveColumns
from quorate.tables.persons import name_persons
from support.hostile_tables import BASES, ODD, READERS, REWRITING, SOURCES, broken_cells, packed

pytestmark = pytest.mark.filterwarnings("ignore")

QUICK = 3_000


def test_one_odd_row_moves_no_other_and_nothing_of_it_is_shown(capfd, monkeypatch):
    assert len(SOURCES) >= 15
    assert len(ODD) >= 60
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    assert list(broken_cells(CELLS[:QUICK])) == []
    assert shown == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_one_odd_row_moves_no_other_in_many_cells(part):
    assert list(broken_cells(CELLS[part::8])) == []


ALONE = itertools.product(
    [reader for reader in READERS if reader != "undeclared"], ("list", "objects", "pandas objects")
)


@pytest.mark.parametrize(  # Each reader with one of the sources; the long suite has all pairs.
    ("reader", "source"),
    [
        pytest.param(*pair, marks=[] if place // 3 % 3 == place % 3 else [pytest.mark.long])
        for place, pair in enumerate(ALONE)
    ],
)
def test_a_row_is_read_in_company_as_it_is_alone(reader, source):
    whole = READERS[reader](packed(source, ODD))
    assert whole == [READERS[reader](packed(source, [value]))[0] for value in ODD]


WHOLE, TEXTS, DAYS = [1, None, 2**53 + 1, 5], ["a", None, "1", " b ", "9" * 400], ["2024-01-01", None, "2023-05-05"]
MOMENTS = pd.to_datetime(pd.Series(DAYS), utc=True).dt.tz_convert("US/Pacific")
DECIMALS = [Decimal("1.10"), None, Decimal("-0.0"), Decimal("1.234")]
TYPED = {
    **{f"pandas {kind}": pd.Series(WHOLE, dtype=kind) for kind in ("Int64", "UInt64", "Float64")},
    **{f"pandas {kind}": pd.Series(TEXTS, dtype=kind) for kind in ("string", "string[pyarrow]", "category")},
    "pandas boolean": pd.Series([True, None, False], dtype="boolean"),
    "pandas period": pd.Series(pd.PeriodIndex(["2024-01", "NaT"], freq="M")),
    "pandas periods": pd.arrays.PeriodArray(pd.PeriodIndex(["2024-01", "NaT"], freq="M")),
    "pandas interval": pd.cut(pd.Series([1, 2, None, 50]), [0, 1, 60]),
    "pandas sparse": pd.Series([1.0, 0.0, np.nan]).astype(pd.SparseDtype("float", 0)),
    "pandas zone": MOMENTS,
    "pandas zones": MOMENTS.array,
    "pandas arrow": pd.Series(pd.array(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(20, 5)))),
    "polars decimal": pl.Series(DECIMALS, dtype=pl.Decimal(20, 5)),
    "polars categorical": pl.Series(TEXTS, dtype=pl.Categorical),
    "polars enum": pl.Series(["b", None, "1"], dtype=pl.Enum(["b", "1", "hiv"])),
    "polars objects": pl.Series([1, "a", None, Decimal("0.10")], dtype=pl.Object),
    "polars long": pl.Series([1, None, 2**100], dtype=pl.Int128),
    "polars null": pl.Series([None, None]),
    **{f"arrow {kind}": pa.array(DECIMALS, kind) for kind in (pa.decimal32(7, 3), pa.decimal256(50, 20))},
    **{f"arrow {kind}": pa.array(TEXTS, kind) for kind in (pa.large_string(), pa.string_view())},
    **{f"arrow {kind}": pa.array([b"ab", None, b"\xff\xff"], kind) for kind in (pa.binary(2), pa.binary_view())},
    "arrow duration": pa.array([0, None, 2**60, -5], pa.duration("s")),
    "arrow dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([1.5, None])),
    "arrow half": pa.array(np.array([1, 0.1, np.nan], dtype="f2")),
    "arrow uuid": pa.array([uuid.UUID(int=2**127 + 15).bytes, None], pa.uuid()),
    "arrow null": pa.nulls(2),
    **{
        f"numpy {kind}": np.array([1, 100, 3]).astype(kind)
        for kind in (">i4", ">u8", ">f4", "f2", "g", "c16", "S", "T")
    },
    **{f"numpy {kind}": np.array(["2024", "NaT"], dtype=f"M8[{kind}]") for kind in ("Y", "ns")},
    "numpy masked": np.ma.array([1, 2, 3], mask=[0, 1, 0]),
}


@pytest.mark.parametrize("source", TYPED)
def test_a_value_of_any_type_is_read_in_company_as_it_is_alone(source):
    values, frame = TYPED[source], FrameFormat("polars", ("x",), ("text",))
    readers = {name: READERS[name] for name in ("number", "category, gaps", "date, own marks", "person", "words")}
    readers["frame"] = lambda table: frame.read(table, role="private")["x"].to_list()
    for read in readers.values():
        assert read({"x": values}) == [read({"x": values[row : row + 1]})[0] for row in range(len(values))]
    opened = [open_table({"x": part}) for part in (values, values[:1])]
    assert opened[0].kinds == opened[1].kinds


def test_types_of_one_value_show_it_alike():
    assert (
        name_persons(TYPED["arrow uuid"])[0]
        == name_persons([uuid.UUID(int=2**127 + 15)])[0]
        == uuid.UUID(int=2**127 + 15).hex
    )
    assert name_persons(TYPED["pandas periods"]) == name_persons(TYPED["pandas period"]) == ["2024-01-01", ""]
    assert name_persons(TYPED["pandas interval"]) == ["(0, 1]", "(1, 60]", "", "(1, 60]"]
    assert name_persons(pa.array([b"\xffSECRET", b"7.0"])) == ["ÿSECRET", "7"]
    assert name_persons(pa.array([0, 5], pa.time32("s"))) == name_persons([dt.time(), dt.time(0, 0, 5)]) == ["0", "5"]
    assert name_persons(TYPED["numpy >i4"]) == ["1", "100", "3"]
    assert open_table({"x": TYPED["pandas zones"]}).kinds == open_table({"x": MOMENTS}).kinds == {"x": "date"}


def _in_parts(last):
    """Return a column in two parts, whose dictionaries have 127 values together, or 128."""
    parts = [[f"a{n}" for n in range(100)], [*(f"b{n}" for n in range(27)), last]]
    return pa.chunked_array([pa.DictionaryArray.from_arrays(np.arange(len(p), dtype=np.int8) % 100, p) for p in parts])


def test_one_value_more_in_a_dictionary_keeps_no_rows_from_being_taken():
    rows = np.arange(128)[::-1]
    for last in ("b0", "hiv"):
        x = _in_parts(last)
        expected = x.to_pylist()[::-1]
        assert labels_of(x, rows) == expected
        for table in (pa.table({"x": x}), {"x": x}):
            taken = first_records(table, np.arange(128))
            assert list_values(open_table(taken).columns["x"]) == expected[::-1]
        assert as_table(pa.table({"x": x})).take(rows)["x"].to_pylist() == expected
        assert open_table(as_table(pa.table({"x": x}))).kinds == {"x": "text"}
    for column in (pa.array(["a", None], pa.string_view()), pa.array([1.5, None]).dictionary_encode()):
        assert take_arrow_rows(column, np.array([1, 0])).to_pylist() == column.to_pylist()[::-1]


CODES = [100000000000000001, 100000000000000003]
IN_A_FRAME = {
    "pandas": lambda labels: pd.DataFrame({"y": pd.array(labels, dtype="Int64")}),
    "pandas arrow": lambda labels: pd.DataFrame({"y": pd.array(labels, dtype=pd.ArrowDtype(pa.int64()))}),
    "polars": lambda labels: pl.DataFrame({"y": labels}),
    "arrow": lambda labels: pa.table({"y": labels}),
    "record batch": lambda labels: pa.record_batch({"y": pa.array(labels)}),
    "masked": lambda labels: np.ma.array([[label or 5] for label in labels], mask=[[not label] for label in labels]),
}


@pytest.mark.parametrize("source", IN_A_FRAME)
def test_one_gap_in_a_frame_of_labels_changes_no_other_label(source):
    labels = [CODES[place % 2] for place in range(6)]
    for gap in (labels[5], None):
        y = IN_A_FRAME[source]([*labels[:5], gap])
        assert class_codes(np.array(CODES), y)[:5].tolist() == [0, 1, 0, 1, 0]
        assert target_numbers(y)[:5].tolist() == [float(label) for label in labels[:5]]


def test_rows_in_a_sequence_are_read_each_by_itself():
    rows = [[np.float32(0.1), 1], np.ma.array([5.0, 2.0], mask=[True, False]), np.array([0.1, 1], dtype="f2")]
    for odd in (3.0, "x", [1], np.zeros(2)):
        expected = open_matrix([*rows, [odd, 4]])
        assert np.isnan(expected[1, 0])
        for container in (tuple, deque):
            table = container([*rows, [odd, 4]])
            assert open_matrix(table).tobytes() == expected.tobytes()
        for index, row in enumerate([*rows, [odd, 4]]):
            assert open_matrix([row])[0].tobytes() == expected[index].tobytes()


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "rows": lambda x: np.stack([*x.values()], 1),
}


@pytest.mark.parametrize("library", FRAMES)
def test_an_infinite_value_refuses_no_fit_of_an_estimator_that_takes_gaps(library):
    for odd in (np.inf, -np.inf, np.nan, 1e308):
        columns = {"a": np.arange(40.0), "b": np.r_[np.arange(39.0), odd]}
        model = qr.PrivateClassifier(DecisionTreeClassifier(), epsilon=4.0, teachers=4, queries=2, classes=[0, 1])
        assert model.fit(FRAMES[library](columns), np.arange(40) % 2).n_features_in_ == 2


SIGNALLING = {"f8": ("u8", 0x7FF0000000000001), "f4": ("u4", 0x7F800001), "f2": ("u2", 0x7C01)}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("width", SIGNALLING)
def test_a_signalling_nan_is_a_missing_value_without_a_warning(library, width):
    whole, bits = SIGNALLING[width]
    column = np.array([1, 0, 2], dtype=width)
    column.view(whole)[1] = bits
    if library == "polars" and width == "f2":
        column = column.astype("f4")
    with np.errstate(all="raise"):
        read = open_matrix(FRAMES[library]({"a": column}))[:, 0]
    assert np.isnan(read).tolist() == [False, True, False]


@pytest.mark.parametrize("unit", ["ns", "s", "D"])
def test_dates_that_are_labels_stay_dates_once_rows_are_taken(unit):
    days = np.array(["2024-01-01", "2025-01-01", "NaT", "2024-01-01"], dtype=f"M8[{unit}]")
    taken = class_codes(np.array(["2024-01-01", "2025-01-01"]), labels_of(days, np.array([3, 2, 1])))
    assert taken.tolist() == [0, -1, 1]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "reader",
    ["number", "category", "person", "label", "ramps", "levels", "number, own words", "date, months first"],
)
def test_a_value_is_the_same_in_every_container(base, reader):
    expected = READERS[reader](packed("list", BASES[base]))
    for source in SOURCES:
        table = packed(source, BASES[base])
        if table is not None:
            assert READERS[reader](table) == expected, source


def test_one_gap_leaves_truth_values_of_a_schema_with_its_own_words():
    schema = Schema({"smokes": Number(missing="indicator")}).with_reading(true_texts=("ja",), false_texts=("nein",))
    first, second = (schema.encode(pd.DataFrame({"smokes": [True, False, last]})) for last in (True, None))
    assert first[:2].tolist() == second[:2].tolist() == [[1.0, 0.0], [0.0, 0.0]]


def _classes_beside_a_gap(base, gap):
    """Yield by source the classes that are read from labels, and those once one of them is missing."""
    labels = [*BASES[base], *BASES[base]]
    for source in SOURCES:
        before, after = packed(source, labels), packed(source, [*labels[:3], gap, *labels[4:]])
        if before is not None and after is not None:
            yield source, *(declared_classes(None, table["x"])[0] for table in (before, after))


@pytest.mark.parametrize("base", ["whole", "texts", "digits", "truths"])
@pytest.mark.parametrize(
    "gap",
    [None, np.nan, "", "NA", pd.NA, pd.NaT, np.datetime64("NaT"), object()],
    ids=lambda gap: f"{type(gap).__name__}_{gap}" if isinstance(gap, str) else type(gap).__name__,
)
def test_a_missing_label_changes_no_class(base, gap):
    for source, before, after in _classes_beside_a_gap(base, gap):
        if source in REWRITING and gap is not None:
            continue  # the library has made a text or a number of the gap, and others of all labels
        assert before.tolist() == after.tolist(), source
        assert before.dtype == after.dtype, source


@pytest.mark.parametrize("bug", [classes_of_numpy, missing_labels_as_a_class])
def test_planted_classes_of_missing_labels_are_caught(bug):
    with replaced_everywhere((labels_module, "_label_set", bug)):
        cells = [_classes_beside_a_gap(base, gap) for base in ("whole", "texts") for gap in (None, np.nan, "")]
        assert any(
            before.dtype != after.dtype or before.tolist() != after.tolist()
            for cell in cells
            for _, before, after in cell
        )


# --- The breaks that led to the gate, one by one ----------------------------------------------------------------------


def test_no_bytes_and_no_far_date_are_refused():
    schema = Schema({"x": Number(missing="indicator")})
    for column in (
        pa.array([b"\xffSECRET", b"5"]),
        pa.array([2**31 - 1, 5], pa.date32()),
        pa.array([2**62, 5], pa.timestamp("s")),
        pa.array([5, None], pa.time64("ns")),
    ):
        assert schema.encode(pa.table({"x": column})).shape == (2, 2)


def _truths(gap):
    """Return rows whose label is their truth value, which one gap makes objects in pandas."""
    draw = np.random.default_rng(0)
    smokes, age = draw.random(3000) < 0.5, draw.normal(0, 1, 3000)
    listed = [*map(bool, smokes[:-1]), None if gap else bool(smokes[-1])]
    return pd.DataFrame({"smokes": listed, "age": age, "ward": ["a", "b", "c"] * 1000}), smokes.astype(int)


WARDS = make_pipeline(
    ColumnTransformer(
        [("ward", make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["ward"])],
        remainder="passthrough",
    ),
    LogisticRegression(),
)


@pytest.mark.parametrize("columns", [["smokes", "age"], ["smokes", "age", "ward"]])
def test_a_gap_changes_nothing_of_what_a_published_model_is_told(columns):
    X, y = _truths(gap=False)
    model = clone(WARDS if "ward" in columns else LogisticRegression()).fit(X[columns][:500], y[:500])
    for gap in (False, True):
        rows = _truths(gap)[0][columns]
        checked = qr.check_model(model, rows, y, epsilon=4.0, delta=1e-6)
        assert checked.measure("error").estimate < 0.05
        assert "columns" not in checked.claim
        sets = qr.ConformalClassifier(model, epsilon=4.0).fit(rows, y)
        assert sets.form_.kinds == ("date", "date", "text")[: len(columns)]
        assert "columns" not in sets.claim_


def test_public_rows_say_what_private_columns_hold():
    X, y = _truths(gap=False)
    formats, scores = [], []
    columns = AdditiveColumns(declared={"smokes": [0, 1], "age": (-3, 3)})
    for gap in (False, True):
        rows = _truths(gap)[0][["smokes", "age"]]
        made = qr.PrivateClassifier(
            make_pipeline(LogisticRegression()), epsilon=4.0, teachers=20, queries=5, classes=[0, 1]
        )
        made.fit(rows, y, public=X[["smokes", "age"]][:50])
        formats.append(made.form_)
        assert "columns" not in made.claim_
        search = qr.PrivateSearchCV(
            qr.PrivateLogisticRegression(columns=columns, classes=[0, 1]),
            epsilon=8.0,
        ).fit(rows, y)
        scores.append(search.best_score_)
        formats.append(search.best_estimator_.form_)
    assert formats[:2] == formats[2:]
    assert min(scores) > 0.9
    alone = clone(made).fit(X[["smokes", "age"]], y)
    assert "declare a Schema to keep that private" in alone.claim_


ODD_RECORDS = ["33,a,no", ",a,no", "12a,a,no", "33,,no", "33,zzz,yes", "9e999,a,maybe"]


def _table_with(path, odd):
    base = ["age,job,y"] + [f"{20 + n % 50},{'ab'[n % 2]},{'no' if n % 3 else 'yes'}" for n in range(400)]
    path.parent.mkdir()
    path.write_text("\n".join([*base, odd]) + "\n")
    return path


def test_the_commands_that_start_writes_do_not_depend_on_private_values(tmp_path):
    from quorate.cli.app import main

    written = []
    for number, odd in enumerate(ODD_RECORDS):
        table, out = _table_with(tmp_path / f"t{number}" / "table.csv", odd), tmp_path / f"t{number}" / "out"
        assert (
            main(["start", str(table), "--label", "y", "--classes", "no,yes", "--epsilon", "2", "--out", str(out)]) == 0
        )
        texts = [(out / name).read_text().replace(f"t{number}", "t") for name in ("script.py", "commands.sh")]
        written.append([text.replace(str(tmp_path), "") for text in texts])
    assert all(texts == written[0] for texts in written)


class _Replay:
    """Keeps what all releases said, and lets later runs say the same; measures what moved against what was paid."""

    def __init__(self, monkeypatch):
        self.releases, self.place, self.over = [], None, 0.0
        real_vectors, real_lists = NoisyVectors.release, SparseHistogram.release_within.__func__

        def release(vectors, part, *, squared_sensitivity, fraction):
            drawn = real_vectors(vectors, part, squared_sensitivity=squared_sensitivity, fraction=fraction)
            counts = np.asarray(part, dtype=np.float64)
            return self._told((counts, squared_sensitivity), drawn)

        def release_within(cls, vectors, lists, **options):
            return self._told((lists, 2 * len(lists)), real_lists(cls, vectors, lists, **options))

        real_tables = NoisyVector.release

        def release_tables(vector, parts, *, budget=None):
            drawn = real_tables(vector, parts, budget=budget)
            pairs = zip(parts, vector.squared_sensitivities, drawn, strict=True)
            return [self._told((np.asarray(part, dtype=np.float64), square), noisy) for part, square, noisy in pairs]

        monkeypatch.setattr(NoisyVector, "release", release_tables)
        monkeypatch.setattr(NoisyVectors, "release", release)
        monkeypatch.setattr(SparseHistogram, "release_within", classmethod(release_within))

    def begin(self):
        self.place = None if self.place is None and not self.releases else 0

    def _told(self, asked, drawn):
        if self.place is None:
            self.releases.append((copy.deepcopy(asked), copy.deepcopy(drawn)))
            return drawn
        (before, paid), told = self.releases[self.place]
        after, pays = asked
        self.place += 1
        assert pays == paid
        if isinstance(before, list):
            moved = sum(
                (one.get(key, 0) - other.get(key, 0)) ** 2
                for one, other in zip(before, after, strict=True)
                for key in {*one, *other}
            )
        else:
            assert before.shape == after.shape
            moved = float(((before - after) ** 2).sum())
        self.over = max(self.over, moved / paid)
        return copy.deepcopy(told)


def _published(folder):
    """Return the content of a published folder, but for the time at which it was written."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    return {key: value for key, value in manifest.items() if key not in ("created", "made", "saved")}, files


@pytest.mark.parametrize("tested", [False, True])
def test_what_start_fits_and_publishes_depends_on_releases_alone(tested, tmp_path, monkeypatch, capsys):
    """Neighbours that are told the same noisy values get the same folder, byte for byte, and move what is paid for.

    The odd record is dealt to those that the model is tested on, or to those that it is fitted on.
    """
    from quorate.cli.app import main

    dealing = "quorate.compute.ensemble.dealing._secret_permutation"  # the odd record is the last of the table
    monkeypatch.setattr(dealing, lambda count: np.roll(np.arange(count), 1 if tested else 0))
    replay, published = _Replay(monkeypatch), []
    for number, odd in enumerate(ODD_RECORDS[:: 2 if tested else 1]):
        table, out = _table_with(tmp_path / f"t{number}" / "table.csv", odd), tmp_path / f"t{number}" / "out"
        replay.begin()
        words = ["start", str(table), "--label", "y", "--classes", "no,yes", "--epsilon", "2", "--run"]
        assert main([*words, "--out", str(out)]) == 0
        published.append(_published(out / "model"))
        assert replay.place in (None, len(replay.releases))
    assert len(replay.releases) > 3
    assert all(folder == published[0] for folder in published)
    assert replay.over <= 1 + 1e-9


PANDAS_TYPES = {
    "period": pd.Series(pd.period_range("2024-05", periods=3, freq="M")),
    "interval": pd.Series(pd.interval_range(0, 3)),
    "sparse": pd.Series([1.0, 2.0, 3.0], dtype="Sparse[float64]"),
    "spans": pd.Series([1, 999, -1500], dtype="timedelta64[ns]"),
    "long spans": pd.Series(pd.to_timedelta(["1.0000015s", "3 days", "-2h"])),
    "moments": pd.Series(np.array(["2024-05-01", "1999-12-31T23:59:59.999999", "1970-01-01"], dtype="datetime64[ns]")),
    "zoned": pd.Series(pd.to_datetime(["2024-05-01", "1999-12-31", "1970-01-01"]).tz_localize("Asia/Tokyo")),
    "whole": pd.Series([1, 2, 3], dtype="Int64"),
    "truths": pd.Series([True, False, True], dtype="boolean"),
    "texts": pd.Series(["a", "b", "7"], dtype="string"),
    "arrow": pd.Series([1, 2, 3], dtype=pd.ArrowDtype(pa.int32())),
}


@pytest.mark.parametrize("name", PANDAS_TYPES)
def test_a_column_of_a_pandas_type_reads_as_the_same_objects(name):
    """One odd value makes a column of objects of any type: the others must read as they did."""
    typed, objects = PANDAS_TYPES[name], PANDAS_TYPES[name].astype(object)
    for kind in (
        Number(low=0, high=1e-6),
        Number(),
        Date(unit="seconds", low="1970-01-01", high="2030-01-01"),
        Category(["a", "b"]),
    ):
        encoded = [Schema({"x": kind}).encode(pd.DataFrame({"x": column})) for column in (typed, objects)]
        np.testing.assert_array_equal(*encoded)
    assert name_persons(typed) == name_persons(objects)
