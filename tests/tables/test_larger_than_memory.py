"""Tables that are read once, dealt, spilled and fitted: the same teachers as in memory, and nothing left behind."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

from quorate import Infeasible, InvalidInput, PrivateClassifier
from quorate.cli import main
from quorate.compute.ensemble import Ensemble, sources
from quorate.compute.ensemble.sources import SpilledRows
from quorate.compute.learners import Deal
from quorate.core.checks import check_bytes
from quorate.models.predictors._subsample import Encoding
from quorate.tables import Label, Number, Schema
from quorate.tables.files import TableStream, table_files
from support.forked import run_forked

SCHEMA = Schema({"a": Number(), "b": Number()}, label=Label("y", ["ill", "well"]))
SETTINGS = {"epsilon": 4.0, "teachers": 60, "queries": 10, "aggregator": "noisy_max"}
LEARNERS = {
    "logistic": LogisticRegression(),
    "naive bayes": GaussianNB(),
    "stump": DecisionTreeClassifier(max_depth=1),
    "tree": DecisionTreeClassifier(max_depth=3),
    "quadratic": make_pipeline(PolynomialFeatures(include_bias=False), LogisticRegression()),
    "neighbours": KNeighborsClassifier(3),
}


def records(rows=3000, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 2))
    codes = (X[:, 0] + random.normal(size=rows) > 0).astype(np.int64)
    return X, codes


def table_of(X, codes, **more):
    return pa.table({"a": X[:, 0], "b": X[:, 1], "y": np.where(codes == 0, "ill", "well"), **more})


@pytest.fixture
def spilled():
    made = []

    def spill(X, codes, people=None, *, memory=10**6, batch=700):
        made.append(rows := SpilledRows(2, memory=memory))
        for start in range(0, len(X), batch):
            part = slice(start, start + batch)
            named = None if people is None else np.unique(people[part], return_inverse=True)
            rows.add((X[part], codes[part], None if named is None else (named[0].tolist(), named[1])))
        return rows

    yield spill
    for rows in made:
        rows.close()


def words_of(rows):
    """Return the secret word of each row, by its place in the table."""
    notes = np.concatenate([bucket.notes() for bucket in rows._files])
    words = np.empty(len(notes), dtype=np.uint64)
    words[notes[:, 2]] = notes[:, 0].view(np.uint64)
    return words


def owners_of(words, teachers, held_out=0):
    """Return by another way to whom the order of the words deals each row, units by units."""
    known = sorted(set(words.tolist()))
    seats = {word: seat for seat, word in enumerate(known)}
    left = len(known) - held_out
    ranks = [seats[word] - held_out for word in words.tolist()]
    return np.array([-1 if rank < 0 else rank * teachers // left for rank in ranks])


DEALS = [(learner, *deal) for deal in ((600, 1000), (10**9, 40)) for learner in LEARNERS]  # six rows at a time, or all


@pytest.mark.parametrize(
    ("learner", "memory", "teachers"),
    [pytest.param(*deal, marks=[pytest.mark.long] if deal[::2] == ("neighbours", 1000) else []) for deal in DEALS],
)
def test_teachers_are_those_of_the_same_deal_in_memory_to_the_last_bit(learner, memory, teachers, spilled):
    X, codes = records()
    rows = spilled(X, codes, memory=memory)
    fitting = {"estimator": LEARNERS[learner], "classes": 2}
    made, held, _ = rows.ensemble(teachers=teachers, held_out=0, **fitting)
    deal = Deal.by_assignment(owners_of(words_of(rows), teachers), teachers=teachers)
    assert set(deal.sizes) == {len(X) // teachers}
    alike = Ensemble.fit(X, codes, deal, **fitting)
    assert held.shape == (0, 2)
    queries = np.random.default_rng(1).normal(size=(200, 2))
    assert (made.electorate.ballots(queries) == alike.electorate.ballots(queries)).all()
    if learner != "neighbours":
        ours, theirs = made.electorate.arrays(), alike.electorate.arrays()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def test_people_are_dealt_whole_and_held_out_by_one_row_each(spilled):
    X, codes = records()
    people = np.random.default_rng(3).integers(500, size=len(X)).astype(str)
    rows = spilled(X, codes, people)
    assert rows.count == len(set(people))
    made, held, labels = rows.ensemble(teachers=40, held_out=30, estimator=LogisticRegression(), classes=2)
    words = words_of(rows)
    owners = owners_of(words, 40, held_out=30)
    assert len({(name, owner) for name, owner in zip(people, owners, strict=True)}) == len(set(people))
    alike = Ensemble.fit(X, codes, Deal.by_assignment(owners, teachers=40), estimator=LogisticRegression(), classes=2)
    assert made.electorate.arrays()["scores"].tobytes() == alike.electorate.arrays()["scores"].tobytes()
    firsts = {name: place for place, name in reversed(list(enumerate(people))) if owners[place] < 0}
    assert {tuple(row) for row in held.tolist()} == {tuple(X[place].tolist()) for place in firsts.values()}
    assert len(labels) == 30


@pytest.mark.parametrize("place", [0, 699, 700, 2999])
def test_neighbours_differ_in_one_teacher(place, spilled, monkeypatch):
    X, codes = records()
    moved, flipped = X.copy(), codes.copy()
    moved[place], flipped[place] = [400.0, -400.0], 1 - codes[place]
    scores = []
    for rows, labels in ((X, codes), (moved, flipped)):
        tape = np.random.default_rng(7)
        monkeypatch.setattr(os, "urandom", tape.bytes)
        made, _, _ = spilled(rows, labels).ensemble(teachers=40, held_out=0, estimator=LogisticRegression(), classes=2)
        scores.append(made.electorate.arrays()["scores"])
    assert (scores[0] != scores[1]).any(axis=(1, 2)).sum() == 1


def test_all_kinds_of_files_hold_the_same_records(tmp_path, monkeypatch):
    X, codes = records(1500)
    table = table_of(X, codes)
    parts = [table.slice(start, 500) for start in (0, 500, 1000)]
    for kind in ("parquet", "arrow", "csv", "none"):
        (tmp_path / kind).mkdir()
    for place, part in enumerate(parts):
        pyarrow.parquet.write_table(part, tmp_path / "parquet" / f"{place}.parquet", row_group_size=130)
        pyarrow.feather.write_feather(part, tmp_path / "arrow" / f"{place}.arrow", chunksize=170)
        pyarrow.csv.write_csv(part, tmp_path / "csv" / f"{place}.csv")
    (tmp_path / "parquet" / "README.txt").write_text("not a table")
    given = [
        tmp_path / "parquet",
        str(tmp_path / "parquet" / "*.parquet"),
        sorted((tmp_path / "parquet").glob("*.parquet")),
        tmp_path / "arrow",
        tmp_path / "csv",
        pyarrow.dataset.dataset(tmp_path / "csv", format="csv"),
        pyarrow.dataset.dataset(sorted(str(file) for file in (tmp_path / "parquet").glob("*.parquet"))),
    ]
    for source in given:
        assert sum(batch.num_rows for batch in TableStream(source)) == 1500
        encoded = np.concatenate([SCHEMA.encode(batch) for batch in TableStream(source)])
        assert encoded.tobytes() == X.tobytes()
        made = PrivateClassifier(**SETTINGS).fit_table(source, SCHEMA)
        assert made.teachers_ == 60
        assert made.predict([[9.0, 0.0]]).tolist() == ["well"]


def test_what_is_wrong_is_said_and_repeats_no_value(tmp_path):
    X, codes = records(200)
    file = tmp_path / "one.parquet"
    pyarrow.parquet.write_table(table_of(X, codes), file)
    fit = PrivateClassifier(**SETTINGS | {"teachers": 20}).fit_table
    cases = [
        (tmp_path / "none.parquet", SCHEMA, {}, "there is no such file"),
        (tmp_path / "*.csv", SCHEMA, {}, "there is no table"),
        ([file, file], SCHEMA, {}, "named twice"),
        (file, Schema({"a": Number()}, label=Label("y", ["ill", "well"])), {}, "does not know these columns"),
        (file, Schema({"a": Number(), "b": Number()}, leave_out=["y"]), {}, "the schema has no label"),
        (file, SCHEMA, {"memory": "1 sack"}, "memory must be a size of at least"),
        (file, SCHEMA, {"memory": 5}, "memory must be a size of at least"),
        (file, SCHEMA, {"spill": tmp_path / "nowhere"}, "rows cannot be spilled to .*nowhere: No such file"),
    ]
    for source, schema, options, text in cases:
        with pytest.raises(InvalidInput, match=text) as refused:
            fit(source, schema, **options)
        assert "'well'" not in str(refused.value), "which is a label of private records"
    (tmp_path / "broken.parquet").write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InvalidInput, match="not a readable"):
        fit(tmp_path / "broken.parquet", SCHEMA)
    pyarrow.parquet.write_table(table_of(X, codes, c=X[:, 0]), tmp_path / "two.parquet")
    with pytest.raises(InvalidInput, match="its columns are not those of the first file"):
        fit([file, tmp_path / "two.parquet"], SCHEMA)
    pyarrow.parquet.write_table(table_of(X[:0], codes[:0]), tmp_path / "empty.parquet")
    with pytest.raises(InvalidInput, match="the table has no rows"):
        fit(tmp_path / "empty.parquet", SCHEMA)
    with pytest.raises(InvalidInput, match="teachers must"):
        PrivateClassifier(**SETTINGS | {"teachers": 500}).fit_table(file, SCHEMA)


def test_a_file_is_not_named_twice_in_two_ways(tmp_path):
    X, codes = records(200)
    pyarrow.parquet.write_table(table_of(X, codes), tmp_path / "one.parquet")
    (tmp_path / "again.parquet").symlink_to(tmp_path / "one.parquet")
    (tmp_path / "linked.parquet").hardlink_to(tmp_path / "one.parquet")
    others = (tmp_path / "again.parquet", tmp_path / ".." / tmp_path.name / "one.parquet", tmp_path / "linked.parquet")
    for other in (*others, (tmp_path / "one.parquet").as_uri()):
        with pytest.raises(InvalidInput, match="named twice"):
            TableStream([tmp_path / "one.parquet", other])


def test_a_dataset_does_not_deal_a_file_twice_either(tmp_path):
    """Its own list of files was not looked at: a record in two of them was with two teachers."""
    X, codes = records(200)
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    for file in (one, other):
        pyarrow.parquet.write_table(table_of(X, codes), file, row_group_size=50)
    (tmp_path / "linked.parquet").hardlink_to(one)
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,ill\n")
    plain = pyarrow.dataset.dataset(one)
    (whole,) = plain.get_fragments()
    groups = whole.split_by_row_group()

    def of(*fragments):
        return pyarrow.dataset.FileSystemDataset(list(fragments), plain.schema, plain.format, plain.filesystem)

    twice = [
        pyarrow.dataset.dataset([str(one), str(one)]),
        pyarrow.dataset.dataset([str(one), str(tmp_path / "linked.parquet")]),
        pyarrow.dataset.dataset([plain, plain]),
        pyarrow.dataset.dataset([str(tmp_path / "a.csv")] * 2, format="csv"),
        of(groups[0], groups[0]),
        of(whole, groups[1]),
    ]
    for dataset in twice:
        with pytest.raises(InvalidInput, match="named twice"):
            TableStream(dataset)
    for dataset, rows in ((pyarrow.dataset.dataset([str(one), str(other)]), 400), (of(*groups), 200), (plain, 200)):
        assert sum(batch.num_rows for batch in TableStream(dataset)) == rows


@pytest.mark.parametrize("last", [5, 2**40])  # the latter fits into no number of 32 bits
def test_types_alone_decide_whether_a_dataset_is_read(tmp_path, last):
    for name, column in (("a", pa.array([1, 2], pa.int32())), ("b", pa.array([3, last]))):
        pyarrow.parquet.write_table(pa.table({"x": column}), tmp_path / f"{name}.parquet")
    with pytest.raises(InvalidInput, match="columns of different types: 'x'"):
        TableStream(pyarrow.dataset.dataset(tmp_path))
    assert [row["x"] for part in TableStream(tmp_path) for row in part.to_pylist()] == [1, 2, 3, last]


def test_no_value_of_a_dataset_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,ill\n")
    (tmp_path / "b.csv").write_text("a,b,y\n1,secret,well\n")
    types = pyarrow.dataset.CsvFileFormat(convert_options=pyarrow.csv.ConvertOptions(column_types={"b": pa.int64()}))
    for written in ("csv", types):
        source = pyarrow.dataset.dataset(tmp_path, format=written)
        assert pa.concat_tables(TableStream(source))["b"].to_pylist() == ["2", "secret"]
    with pytest.raises(InvalidInput, match="it has a filter"):
        TableStream(source.filter(pyarrow.dataset.field("b") > 1))


@pytest.mark.parametrize(
    "written",
    [
        lambda people: pa.array(people, pa.float64()),
        lambda people: pa.array(list(map(str, people))).cast(pa.decimal128(20, 3)),
        lambda people: pa.array([f" {person:03d}" for person in people]),
    ],
)
def test_a_person_goes_by_one_name_in_all_files(tmp_path, written):
    """People whose names are stored in different ways would have two names, and be dealt to two teachers."""
    X, codes = records(200)
    people = [place % 100 for place in range(200)]
    schema, dealt = Schema(dict(SCHEMA.columns), label=SCHEMA.label, groups="who"), []
    for file, named in (("a", pa.array(people, pa.int64())), ("b", written(people))):
        table = table_of(X, codes, who=named)
        pyarrow.parquet.write_table(table, tmp_path / f"{file}.parquet")
        names, numbers = Encoding(schema, np.array(["ill", "well"]))(table)[2]
        dealt.append((names, numbers.tolist()))
    assert dealt[0] == dealt[1] == ([str(person) for person in range(100)], people)
    fit = PrivateClassifier(**SETTINGS | {"teachers": 20}).fit_table
    assert fit(tmp_path, schema).unit_ == "person"
    with pytest.raises(InvalidInput, match="teachers must"):
        PrivateClassifier(**SETTINGS | {"teachers": 101}).fit_table(tmp_path, schema)


@pytest.mark.filterwarnings("error")
def test_a_label_that_is_no_class_goes_to_one_teacher_without_weight(tmp_path):
    X, codes = records(200)
    file, table = tmp_path / "one.parquet", table_of(X, codes)
    odd = table.set_column(table.column_names.index("y"), "y", pa.array(["dead", None, *table["y"].to_pylist()[2:]]))
    pyarrow.parquet.write_table(odd, file)
    encoded, numbers, _ = Encoding(SCHEMA, np.array(["ill", "well"]))(odd)
    assert numbers.tolist() == [-1, -1, *codes[2:].tolist()]
    assert encoded.tobytes() == X.tobytes()
    assert PrivateClassifier(**SETTINGS | {"teachers": 20}).fit_table(file, SCHEMA).teachers_ == 20


def test_a_teacher_that_does_not_fit_is_refused_before_it_is_fitted(spilled):
    rows = spilled(*records(), memory=10**4)
    with pytest.raises(Infeasible, match=r"about 1,500 rows of 2 columns.*more memory, or more teachers"):
        rows.ensemble(teachers=2, held_out=0, estimator=LogisticRegression(), classes=2)


_KILLED = """
import os, signal, sys
import numpy as np
from quorate.compute.ensemble.sources import SpilledRows
rows = SpilledRows(2, memory=10**6, folder=sys.argv[1])
rows.add((np.ones((5000, 2)), np.zeros(5000, dtype=np.int64), None))
for bucket in rows._files:
    bucket._rows.flush()
modes = {oct(os.fstat(bucket._rows.fileno()).st_mode & 0o777) for bucket in rows._files}
print(sorted(os.listdir(sys.argv[1])), sum(os.fstat(b._rows.fileno()).st_size for b in rows._files), modes, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_spilled_rows_have_no_name_and_end_with_the_process(tmp_path):
    status, said, _ = run_forked(_KILLED, str(tmp_path))
    assert (status, said.strip()) == (-signal.SIGKILL, "[] 80000 {'0o600'}")
    assert not list(tmp_path.iterdir())


def test_files_are_closed_also_where_a_fit_fails(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(sources, "_Bucket", lambda *given: opened.append(Bucket(*given)) or opened[-1])
    file = tmp_path / "one.parquet"
    X, codes = records(200)
    pyarrow.parquet.write_table(table_of(X, codes), file)
    pyarrow.parquet.write_table(table_of(X, codes, c=X[:, 0]), tmp_path / "two.parquet")
    with pytest.raises(InvalidInput, match="its columns are not those of the first file"):
        PrivateClassifier(**SETTINGS).fit_table([file, tmp_path / "two.parquet"], SCHEMA)
    assert opened
    assert all(bucket._rows.closed for bucket in opened)


Bucket = sources._Bucket


def test_a_full_disk_is_said(spilled, monkeypatch):
    rows = spilled(*records(10))
    monkeypatch.setattr(Bucket, "add", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InvalidInput, match="No space left on device"):
        rows.add((np.ones((5, 2)), np.zeros(5, dtype=np.int64), None))


def test_folders_and_patterns_name_their_files_in_order(tmp_path):
    for name in ("b.csv", "a.csv", "note.txt"):
        (tmp_path / name).write_text("x,y\n1,2\n")
    assert [file.name for file in table_files(tmp_path)] == ["a.csv", "b.csv"]
    assert [file.name for file in table_files([tmp_path / "b.csv", str(tmp_path / "a*")])] == ["b.csv", "a.csv"]
    with pytest.raises(InvalidInput, match="the suffix must"):
        table_files(tmp_path / "note.txt")
    assert Path(TableStream(tmp_path)._files[0]).name == "a.csv"


def test_a_piece_ends_between_teachers_and_holds_one_that_has_more_rows_than_room():
    owners = np.array([0, 0, 0, 1, 1, 2])
    assert [sources._cut(owners, start, 2) for start in (0, 3, 5)] == [3, 5, 6]
    assert sources._cut(owners, 0, 4) == 3
    assert sources._cut(owners, 0, 5) == 5


def test_sizes_are_read_as_people_write_them():
    assert [check_bytes("memory", size) for size in ("2GB", "1.5 mb", "70", 8)] == [2 * 10**9, 1_500_000, 70, 8]


def test_the_command_reads_several_files_a_folder_and_a_pattern_as_one_table(tmp_path, capsys):
    X, codes = records(4000)
    names = np.random.default_rng(1).integers(2000, size=4000).astype(str)
    table = table_of(X, codes, who=names)
    (tmp_path / "visits").mkdir()
    for place in range(2):
        part = table.slice(2000 * place, 2000)
        pyarrow.csv.write_csv(part, tmp_path / "visits" / f"{place}.csv")
    files = [str(tmp_path / "visits" / f"{place}.csv") for place in range(2)]
    asked = ["--label", "y", "--classes", "ill,well", "--groups", "who", "--teachers", "80", "--epsilon", "4", "--json"]
    for place, given in enumerate(([*files], [str(tmp_path / "visits")], [str(tmp_path / "visits" / "*.csv")])):
        out = str(tmp_path / f"model{place}")
        assert main(["fit", "subsample", *given, *asked, "--memory", "200MB", "--out", out]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["teachers"], told["privacy_unit"]) == (80, "person")
        assert told["plan"]["rows_per_teacher"] == len(set(names.tolist())) // 80
    for wrong, text in (
        ([*files, "--read-classes", "--label", "y"], "--read-classes reads a whole table first"),
        ([files[0], "--spill", str(tmp_path), *asked], "--spill needs --memory"),
        ([files[0], "--memory", "much", *asked], "memory must be a size"),
        ([*files, "--label", "z", "--classes", "a,b"], "--label names 'z', and there is no such column"),
    ):
        assert main(["fit", "subsample", *wrong, "--out", str(tmp_path / "none")]) == 1
        assert text in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "none").exists()
