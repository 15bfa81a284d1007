"""Teachers on clusters: the same ballots as here, also when workers die, and no record comes to who asks."""

import json
import pickle
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.__main__ import main as run_benchmarks
from benchmarks.figures import BARS, judge
from benchmarks.scale_distributed import Marked, Mortal, cluster_figures, driven, marks_in
from quorate import InvalidInput, PrivateClassifier, SemiPrivateClassifier, load, save
from quorate.cli import main
from quorate.compute.ensemble import _engines as engines
from quorate.compute.ensemble import clusters
from quorate.compute.ensemble._engines import open_engine
from quorate.compute.ensemble.clusters import ClusterTable, ClusterTeachers
from quorate.compute.ensemble.dealing import Dealer
from quorate.compute.ensemble.electorate import Electorate
from quorate.compute.ensemble.sources import SpilledRows, spill_rows
from quorate.core.errors import ClusterLost
from quorate.models.predictors._subsample import Encoding
from quorate.tables import Label, Number, Schema
from quorate.tables.files import TableStream, table_files, table_parts
from support.here import Here

MARK = 1.0 + 2.0**-50 * 77777  # a column that all private rows have, and nothing else
SCHEMA = Schema({"a": Number(), "b": Number(), "mark": Number()}, label=Label("y", ["ill", "well"]))
PEOPLE = SCHEMA.with_groups("who")
CLASSES = np.array(["ill", "well"])
SETTINGS = {"epsilon": 4.0, "teachers": 120, "queries": 40, "aggregator": "noisy_max"}
QUERIES = np.random.default_rng(5).normal(size=(40, 3))
LEARNERS = {
    "logistic": LogisticRegression(),
    "naive bayes": GaussianNB(),
    "tree": DecisionTreeClassifier(max_depth=3),
    "random tree": DecisionTreeClassifier(splitter="random"),
    "neighbours": KNeighborsClassifier(3),
}


def table_of(rows=2000, people=300):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 2))
    y = np.where(X[:, 0] + random.normal(size=rows) > 0, "well", "ill")
    names = random.integers(people, size=rows).astype(str)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "mark": np.full(rows, MARK), "y": y, "who": names})


@pytest.fixture
def folder(tmp_path):
    """Three Parquet files of several row groups, in a folder."""
    (tmp_path / "visits").mkdir()
    table = table_of()
    for place, (start, stop) in enumerate([(0, 900), (900, 1000), (1000, 2000)]):
        part = table.slice(start, stop - start).drop_columns(["who"])
        pyarrow.parquet.write_table(part, tmp_path / "visits" / f"{place}.parquet", row_group_size=130)
    return tmp_path / "visits"


def fitted_here(source, schema, key, **fitting):
    stream, rows = TableStream(source), SpilledRows(3, memory=10**8, dealer=Dealer(key))
    read = spill_rows(stream, Encoding(schema, CLASSES), rows)
    made = read.ensemble(**{"held_out": 0, "classes": 2, **fitting})[0]
    rows.close()
    return made.electorate


def fitted_there(engine, source, schema, key, **fitting):
    table = ClusterTable(source, engine, dealer=Dealer(key))
    rows = table.dealt(Encoding(schema, CLASSES), features=3, by_person=schema.groups is not None)
    return rows.ensemble(**{"held_out": 0, "classes": 2, **fitting})[0].electorate


# ---------------------------------------------------------------- the same deal, the same teachers, the same ballots


@pytest.mark.parametrize(
    ("learner", "workers"),
    [("logistic", 1), ("logistic", 7), ("naive bayes", 2), ("tree", 5), ("random tree", 3), ("neighbours", 3)],
)
def test_teachers_are_those_of_one_process_with_the_same_key_to_the_last_bit(learner, workers, folder):
    fitting = {"estimator": LEARNERS[learner], "teachers": 120}
    there, here = (
        fitted_there(Here(workers), folder, SCHEMA, b"1" * 32, **fitting),
        fitted_here(folder, SCHEMA, b"1" * 32, **fitting),
    )
    assert isinstance(there, Electorate)
    assert (there.votes(QUERIES) == here.votes(QUERIES)).all()
    brought = there.gathered()
    assert (brought.ballots(QUERIES) == here.ballots(QUERIES)).all()
    if hasattr(here, "arrays"):
        ours, theirs = here.arrays(), brought.arrays()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)
    other = fitted_here(folder, SCHEMA, b"2" * 32, **fitting)
    assert (other.ballots(QUERIES) != here.ballots(QUERIES)).any(), "another key is another deal"


def test_people_are_dealt_whole_wherever_their_rows_are_read(tmp_path):
    for place in range(2):
        pyarrow.csv.write_csv(table_of().slice(1000 * place, 1000), tmp_path / f"{place}.csv")
    fitting = {"estimator": LogisticRegression(), "teachers": 60}
    engine = Here(5)
    there, here = (
        fitted_there(engine, tmp_path, PEOPLE, b"1" * 32, **fitting),
        fitted_here(tmp_path, PEOPLE, b"1" * 32, **fitting),
    )
    assert there.gathered().arrays()["scores"].tobytes() == here.arrays()["scores"].tobytes()
    rows = [one.value() for one in engine.made if one.task.items and type(one.value()).__name__ == "Rows"]
    owners = {
        (int(place), int(owner)) for part in rows for place, owner in zip(part.positions, part.owners, strict=True)
    }
    names = table_of()["who"].to_pylist()
    whose = {(names[place % 2**40 + 1000 * (place >> 40)], owner) for place, owner in owners}
    assert len(whose) == len(set(names)), "each person has one teacher"
    assert len(owners) == 2000


def test_what_dead_workers_had_is_made_again_and_is_the_same(folder):
    for learner in ("logistic", "random tree"):
        engine = Here()
        there = fitted_there(engine, folder, SCHEMA, b"1" * 32, estimator=LEARNERS[learner], teachers=120)
        before, teachers = there.votes(QUERIES), there.gathered().ballots(QUERIES)
        engine.lose()
        assert (there.votes(QUERIES) == before).all()
        engine.lost = 1  # the engine has lost even how they were made
        assert (there.votes(QUERIES) == before).all()
        assert engine.lost == 0
        assert (there.gathered().ballots(QUERIES) == teachers).all()


def test_where_the_cluster_is_gone_nothing_is_charged_and_later_it_goes_on(folder):
    engine = Here()
    made = PrivateClassifier(**SETTINGS).fit_table(folder, SCHEMA, cluster=engine)
    engine.lost = 9
    with pytest.raises(ClusterLost):
        made.predict(QUERIES)
    assert made.spent_epsilon() == 0
    engine.lost = 0
    made.predict(QUERIES)
    spent = made.spent_epsilon()
    engine.lost = 1
    made.predict(QUERIES)
    assert made.spent_epsilon() == spent > 0, "answered before"
    other = PrivateClassifier(**SETTINGS).fit_table(folder, SCHEMA, cluster=Here())
    other.session_.answerer.ensemble.electorate._engine.lost = 1
    other.predict(QUERIES)
    assert other.spent_epsilon() == spent, "charged once"
    made.session_.close()
    assert engine.closed == 1


def test_a_table_that_has_changed_is_not_dealt_again(folder):
    engine = Here()
    there = fitted_there(engine, folder, SCHEMA, b"1" * 32, estimator=LogisticRegression(), teachers=120)
    pyarrow.parquet.write_table(table_of(80).drop_columns(["who"]), folder / "1.parquet")
    engine.lose()
    with pytest.raises(InvalidInput, match=r"1\.parquet: the file has changed since the table was dealt"):
        there.votes(QUERIES)


def test_counts_that_are_not_one_ballot_of_each_teacher_are_refused(folder, monkeypatch):
    there = fitted_there(Here(), folder, SCHEMA, b"1" * 32, estimator=LogisticRegression(), teachers=120)
    monkeypatch.setattr(clusters, "_sum", lambda *counts: np.sum(counts[:-1], axis=0))
    with pytest.raises(ClusterLost, match="not one ballot of each teacher"):
        there.votes(QUERIES)


# ---------------------------------------------------------------- what comes to the process that asks


def test_no_row_and_no_label_comes_to_the_driver(folder):
    engine, mark = Here(), struct.pack("<d", MARK)
    made = PrivateClassifier(**SETTINGS).fit_table(folder, SCHEMA, cluster=engine)
    made.predict(QUERIES)
    assert engine.got
    assert not any(mark in one or b"well" in one for one in engine.got)
    kinds = {type(pickle.loads(one)).__name__ for one in engine.got}
    assert kinds == {"dict", "tuple", "list", "int", "ndarray"}  # versions, the files, units, failures, ballots
    rows = next(one for one in engine.made if type(one.value()).__name__ == "_Range")
    engine.get(rows)
    assert mark in engine.got[-1], "it would have been seen"


def test_what_is_on_a_cluster_shows_nothing_of_itself(folder):
    engine = Here()
    made = PrivateClassifier(**SETTINGS).fit_table(folder, SCHEMA, cluster=engine)
    made.predict(QUERIES)
    shown = [repr(one.value()) for one in engine.made] + [repr(one.task.arguments) for one in engine.made]
    shown += [repr(one.task.function) for one in engine.made]
    private = [f"{value:.8f}"[:-2] for value in [*table_of()["a"].to_pylist(), *QUERIES.ravel().tolist()]]
    assert any(private[0] in repr(np.array([value])) for value in table_of()["a"].to_pylist()), "it would be seen"
    assert not any(value in text for text in shown for value in private)
    assert repr(Dealer(b"secret" * 6)) == "<the key of a deal>"


def test_errors_of_workers_are_told_and_repeat_no_value(folder, tmp_path):
    fit = PrivateClassifier(**SETTINGS).fit_table
    cases = [
        (folder / "none.parquet", SCHEMA, "there is no such file"),
        (folder, Schema({"a": Number()}, label=Label("y", ["ill", "well"])), "does not know these columns"),
    ]
    for source, schema, text in cases:
        engine = Here()
        with pytest.raises(InvalidInput, match=text) as refused:
            fit(source, schema, cluster=engine)
        assert "'well'" not in str(refused.value)
        assert engine.closed == 1
    fit(folder, SCHEMA.with_label("y", ["ill", "dead"]), cluster=Here())  # no label of a record is a reason to refuse
    with pytest.raises(InvalidInput, match="teachers must"):
        PrivateClassifier(**SETTINGS | {"teachers": 5000}).fit_table(folder, SCHEMA, cluster=Here())


@pytest.mark.parametrize(
    ("settings", "given", "text"),
    [
        ({}, {"memory": "1GB"}, "memory is about this machine"),
        ({}, {"spill": "."}, "spill is about this machine"),
        ({"n_jobs": 2}, {}, "n_jobs is about this machine"),
        ({"backend": "loky"}, {}, "backend is about this machine"),
        ({"holdout": 0.1}, {}, "holdout needs rows in this process"),
    ],
)
def test_settings_of_this_machine_are_refused(settings, given, text, folder):
    with pytest.raises(InvalidInput, match=text):
        PrivateClassifier(**SETTINGS | settings).fit_table(folder, SCHEMA, cluster=Here(), **given)


class Loud(Here):
    """Prints on standard output as Ray does, from a thread of its own, and from a process."""

    def get(self, reference):
        speaker = threading.Thread(target=print, args=["(raylet) a worker died"])
        speaker.start()
        speaker.join()
        subprocess.run([sys.executable, "-c", "print('a worker speaks')"], check=True)
        return super().get(reference)


def test_what_a_cluster_prints_does_not_spoil_the_json_of_a_command(folder, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(clusters, "open_engine", lambda cluster: Loud())
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    fit = ["fit", "subsample", str(folder), "--schema", str(tmp_path / "schema.json"), "--cluster", "ray", "--json"]
    fit += ["--epsilon", "4", "--teachers", "120", "--queries", "40", "--out", str(tmp_path / "model")]
    assert main(fit) == 0
    out, errors = capfd.readouterr()
    assert json.loads(out)["teachers"] == 120
    assert "(raylet) a worker died" in errors
    assert "a worker speaks" in errors


def test_what_a_bench_starts_does_not_spoil_its_json(monkeypatch, capfd):
    def loud(name, *, quick):
        engine = Loud()
        yield "scale.stream.seconds_over_in_memory", float(engine.get(engine.call(len, [7]))), "ratio"

    monkeypatch.setattr("benchmarks.__main__.measure", loud)
    assert run_benchmarks(["scale", "--quick", "--json"]) == 0
    out, errors = capfd.readouterr()
    assert json.loads(out)["figures"][0]["value"] == 1.0
    assert "(raylet) a worker died" in errors


def test_clusters_that_cannot_be_are_refused(folder, monkeypatch):
    for cluster, text in (("tpc://head", "cluster must be"), ("local:0", "at least 1"), (7, "or a distributed.Client")):
        with pytest.raises(InvalidInput, match=text):
            open_engine(cluster)
    with pytest.raises(InvalidInput, match="named by its files"):
        ClusterTable(pyarrow.dataset.dataset(folder), Here())
    monkeypatch.setattr(engines, "versions", lambda: {"numpy": "1.0"})
    engine = Here()
    engine.call = lambda function, *arguments: Here.call(engine, lambda: {"numpy": "2.0"})
    with pytest.raises(InvalidInput, match=r"workers of the cluster have .*2\.0.*this process has .*1\.0"):
        open_engine(engine)
    assert engine.closed == 1
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"this cluster needs ray; install it: pip install '.*\[ray\]'"):
        open_engine("ray://head:10001")


# ---------------------------------------------------------------- folders, servers, addresses, the command line


def test_a_model_of_a_cluster_is_saved_with_its_teachers_and_goes_on_anywhere(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    for learner in ("logistic", "random tree"):
        made = PrivateClassifier(LEARNERS[learner], **SETTINGS | {"teachers": 60})
        made.fit_table(folder, SCHEMA, cluster=Here())
        there = made.session_.answerer.ensemble.electorate
        path = save(made, tmp_path / learner)
        first = made.predict(QUERIES[:10]).tolist()
        made.session_.close()
        loaded = load(path)
        here = loaded.session_.answerer.ensemble.electorate
        assert (here.votes(QUERIES) == there.votes(QUERIES)).all()
        assert loaded.predict(QUERIES[:10]).tolist() == first
        loaded.place_teachers(engine := Here())
        placed = loaded.session_.answerer.ensemble.electorate
        assert isinstance(placed, ClusterTeachers)
        assert (placed.votes(QUERIES) == there.votes(QUERIES)).all()
        engine.lost = 1
        assert (placed.votes(QUERIES) == there.votes(QUERIES)).all()
        loaded.session_.close()
        assert engine.closed == 1
    with pytest.raises(InvalidInput, match="stand elsewhere already"):
        ClusterTeachers.placed(there, Here())


def test_addresses_name_parquet_files(folder, tmp_path):
    files = table_files([f"file://{folder}"])
    assert [Path(file).name for file in files] == ["0.parquet", "1.parquet", "2.parquet"]
    assert table_files([Path(f"file://{folder}/1.parquet")]) == [f"file://{folder}/1.parquet"], "a path loses a slash"
    assert table_files(f"file://{folder}/[01]*") == files[:2]
    plain, reached = TableStream(folder), TableStream([f"file://{folder}"])
    assert pa.concat_tables(plain) == pa.concat_tables(reached)
    assert [place for place, _ in plain.placed()] == [place for place, _ in reached.placed()]
    fitting = {"estimator": LogisticRegression(), "teachers": 120}
    there = fitted_there(Here(), f"file://{folder}", SCHEMA, b"1" * 32, **fitting)
    assert (there.votes(QUERIES) == fitted_here(folder, SCHEMA, b"1" * 32, **fitting).votes(QUERIES)).all()
    (tmp_path / "one.csv").write_text("a\n1\n")
    for address, text in (
        (f"file://{tmp_path}/one.csv", "only Parquet files can be read"),
        (f"file://{tmp_path}/nowhere", "there is no such file or folder"),
        ("gopher://host/visits", "pyarrow knows no such address"),
        (f"file://{tmp_path}", "there is no table"),
    ):
        with pytest.raises(InvalidInput, match=text):
            table_files(address)


def test_rows_have_the_same_places_in_parts_and_in_a_stream(folder):
    whole = {place + row: value for place, table in TableStream(folder).placed() for row, value in rows_of(table)}
    parts = table_parts(table_files(folder))
    assert len(parts) == 7 + 1 + 8
    apart = {
        place + row: value
        for part in reversed(parts)
        for place, table in part.batches(["a", "b", "mark", "y"])
        for row, value in rows_of(table)
    }
    assert apart == whole
    assert len(whole) == 2000


def rows_of(table):
    return enumerate(table["a"].to_pylist())


def test_the_command_fits_on_a_cluster(folder, tmp_path, capsys, monkeypatch):
    engine = Here()
    monkeypatch.setattr(engines, "DaskEngine", lambda cluster: engine)
    asked = ["--label", "y", "--classes", "ill,well", "--teachers", "80", "--epsilon", "4", "--json"]
    out = tmp_path / "model"
    assert main(["fit", "subsample", str(folder), *asked, "--cluster", "tcp://head:8786", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["teachers"] == 80
    assert engine.closed >= 1
    for wrong, text in (
        (["--memory", "1GB", "--cluster", "local"], "memory is about this machine"),
        (["--cluster", "nowhere"], "cluster must be"),
        (["--leave-out", "z", "--cluster", "local"], "--leave-out names 'z', and there is no such column"),
    ):
        assert main(["fit", "subsample", str(folder), *asked, *wrong, "--out", str(tmp_path / "none")]) == 1
        assert text in capsys.readouterr().err.replace("\n", " ")


def test_a_server_counts_on_a_cluster(folder, tmp_path, monkeypatch):
    pytest.importorskip("msgspec", reason="the service is not installed")
    from quorate.service._settings import Settings
    from quorate.service._worker import Folders, _check_placed

    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    engine = Here()
    monkeypatch.setattr(engines, "DaskEngine", lambda cluster: engine)
    made = PrivateClassifier(**SETTINGS).fit_table(folder, SCHEMA)
    path = save(made, tmp_path / "visits-model")
    made.session_.close()
    model = Folders(Settings.of(path, cluster="tcp://head:8786")).open("visits-model")
    assert len(engine.got) == 1, "versions"
    model.session.ask(QUERIES)
    assert len(engine.got) > 1, "counts"
    model.session.close()
    assert engine.closed == 1
    rule = SemiPrivateClassifier(classes=["ill", "well"]).fit([[0.0], [1.0]], ["ill", "well"], public=[[0.5]])
    with pytest.raises(InvalidInput, match="SemiPrivateClassifier, which is not counted on a cluster"):
        _check_placed(path, rule)


# ---------------------------------------------------------------- real clusters


@pytest.mark.parametrize(
    ("name", "package"),
    [pytest.param("dask", "distributed", marks=pytest.mark.long), pytest.param("ray", "ray", marks=pytest.mark.long)],
)
def test_a_real_cluster_survives_kills_and_shows_no_row_to_its_driver(name, package, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed")
    table, mark = Marked.written(tmp_path, rows=4000, teachers=100)
    expected = table.local_votes(Mortal(), table.queries())
    seen = driven(name, 2, table, mark, kills=True)
    assert not {"fit", "predict"} & {path.name for path in tmp_path.iterdir()}, "two workers were killed"
    assert (seen.first == expected).all()
    assert (seen.second == expected).all()
    assert seen.marks == 0


_HOLDS_ROWS = "import sys, pyarrow.parquet as pq; table = pq.read_table(sys.argv[1]); print(flush=True); input()"


def test_rows_are_found_in_the_memory_of_a_process_that_has_them(tmp_path):
    table, mark = Marked.written(tmp_path, rows=4000, teachers=200)
    command = [sys.executable, "-c", _HOLDS_ROWS, str(table.folder / "0.parquet")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = marks_in(process.pid, mark)
        process.communicate(b"\n")
    assert found >= 1000


@pytest.mark.long
def test_both_engines_hold_their_bars_with_four_workers():
    figures = [figure for figure in cluster_figures(quick=True) if figure[1] is not None]
    assert figures
    assert all(judge(figure, BARS["scale"][figure[0]])["holds"] for figure in figures), figures
