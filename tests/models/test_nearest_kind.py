"""Neighbours in a folder: what units have spent survives a crash, an old copy is refused, and the owner's commands."""

import shutil
import sqlite3

import numpy as np
import pandas
import pytest
from model_contract import check_model

from quorate import InvalidInput, NeighbourClassifier, NeighbourRegressor, load, save
from quorate.cli import main
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import NoisyVector
from quorate.models.knn._unit_file import UnitFile
from quorate.models.knn._units import SEALED
from quorate.models.saving import PrivateFolder
from support.forked import run_forked

RNG = np.random.default_rng(3)
Y = RNG.integers(0, 2, size=3000)
X = RNG.normal(size=(3000, 4)) + np.where(Y, 3.0, -3.0)[:, np.newaxis]
SURE = [[3.0, 3.0, 3.0, 3.0], [-3.0, -3.0, -3.0, -3.0]]


def fitted(**settings):
    fixed = {"epsilon": 100.0, "delta": 1e-6, "radius": 0.5, "votes": 3.0, "classes": [0, 1]}
    return NeighbourClassifier(**fixed | settings).fit(X, Y)


def saved(folder, **settings):
    model = fitted(**settings)
    save(model, folder)
    model.session_.close()
    return folder


def spends(model):
    return model.session_.answerer.units.spends().tolist()


def test_it_keeps_the_contract_of_every_model(tmp_path):
    table = tmp_path / "queries.csv"
    table.write_text("a,b,c,d\n3,3,3,3\n-3,-3,-3,-3\n")
    answers = check_model(
        fitted(), tmp_path / "model", kind="neighbours", access=PrivateFolder, queries=SURE, table=table
    )
    assert answers == [1, 0]


def test_a_regressor_keeps_the_contract_too(tmp_path):
    table = tmp_path / "queries.csv"
    table.write_text("a,b,c,d\n3,3,3,3\n-3,-3,-3,-3\n")
    model = NeighbourRegressor(epsilon=100.0, share=0.2, votes=9.0, bounds=(0, 250), metric="euclidean")
    model.fit(X, np.where(Y, 200.0, 50.0), public=X[:500], public_targets=np.where(Y[:500], 200.0, 50.0))
    low, high = check_model(
        model, tmp_path / "model", kind="neighbours", access=PrivateFolder, queries=SURE, table=table
    )[::-1]
    assert abs(low - 50) < 10
    assert abs(high - 200) < 10


def test_values_are_within_the_bounds_of_the_fit_whatever_is_set_later(tmp_path):
    model = NeighbourRegressor(epsilon=100.0, radius=0.5, votes=9.0, bounds=(0, 1)).fit(X, Y)
    before = model.predict(SURE)
    save(model.set_params(bounds=(0, 1000)), tmp_path / "model")
    model.session_.close()
    again = load(tmp_path / "model")
    assert again.predict(SURE).tolist() == before.tolist()
    again.session_.close()


def test_what_a_model_keeps_of_its_units_is_no_answer(tmp_path):
    """The owner is shown how many queries were answered, and not how often records came and went."""
    model = fitted()
    save(model, tmp_path / "model")
    model.insert(X[:1], Y[:1], ids=["new"])
    model.forget(["new"])
    model.wear()
    assert model.session_.ledger.activity() == []
    model.predict(SURE)
    assert sum(minute.answered for minute in model.session_.ledger.activity()) == 2
    model.session_.close()


FORKS = """
import os, sys
from quorate import load
model = load(sys.argv[1])
model.predict([[3.0, 3.0, 3.0, 3.0]])
if (child := os.fork()) == 0:
    sys.exit(0)  # as any program ends: all that it holds is let go of
os.waitpid(child, 0)
model.predict([[-3.0, -3.0, -3.0, -3.0]])
print(model.session_.answerer.units.spends().sum(), flush=True)
os._exit(9)  # and then it is killed
"""


def test_a_fork_that_ends_takes_nothing_of_the_file_along(tmp_path):
    """To close what it has inherited, SQLite would remove the log that the parent goes on writing."""
    folder = saved(tmp_path / "model")
    status, spent, _ = run_forked(FORKS, str(folder))
    assert status == 9
    again = load(folder)
    assert sum(spends(again)) == int(spent) > 0
    again.session_.close()


def named_rows(model):
    """Return the name and the points of each unit, by its number."""
    return {number: (name, row[0].tolist()) for number, name, _, row in model.session_.answerer.units.rows()}


def sealed(model, *names):
    """Return names as a folder keeps those of the forgotten: hashes under the ledger's key."""
    hashes = [model.session_.answerer.file.seal(name).removeprefix(SEALED) for name in names]
    assert all(len(one) == 32 and one not in names for one in hashes)
    return hashes


def test_units_and_what_they_have_spent_come_back(tmp_path):
    folder = saved(tmp_path / "model", queries=500, records=3000)
    model = load(folder)
    model.predict(SURE)
    model.insert(X[:2], Y[:2], ids=["new", "newer"])
    model.forget(["0", "new"])
    model.wear()
    before, rows = spends(model), named_rows(model)
    model.session_.close()
    with pytest.raises(LedgerRefused, match="closed here"):
        model.predict([[1.0, 0.0, 0.0, 0.0]])
    again = load(folder)
    assert max(before) > 0
    assert spends(again) == before
    assert named_rows(again) == rows
    assert [name for name, _ in again.forgotten()] == sealed(again, "0", "new")
    assert again.wear().reports_left == again.terms_.reports - 2
    assert again.insert(X[:1], Y[:1]) == ["3002"]
    again.insert(X[:1], Y[:1], ids=["0"])  # who comes back has what it had
    assert spends(again)[:3002] == before
    assert again.predict(SURE).tolist() == [1, 0]
    again.session_.close()


def test_who_was_forgotten_before_the_model_was_saved_has_spent_what_it_had(tmp_path):
    """Whoever comes back has the number that it had, and not that of another who left."""
    people = ["p", "unused", "q", "gone", "worn"]
    rows, labels = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), [0, 1, 0, 1, 0]
    model = NeighbourClassifier(epsilon=100.0, radius=0.5, votes=3.0, classes=[0, 1]).fit(rows, labels, groups=people)
    for caller in "abcd":
        model.predict([[1.0, 0.0]], caller=caller)
    before = spends(model)
    assert before[4] > before[3] == 0
    model.forget(["q", "gone", "worn"])
    assert [name for name, _ in model.forgotten()] == ["q", "gone", "worn"]
    save(model, tmp_path / "model")
    model.session_.close()
    model = load(tmp_path / "model")
    assert [name for name, _ in model.forgotten()] == sealed(model, "q", "gone", "worn")
    model.insert(rows[4:], labels[4:], ids=["worn"])
    assert spends(model) == before
    assert [name for _, name, at, _ in model.session_.answerer.units.rows() if at is None] == ["p", "unused", "worn"]
    model.session_.close()


def test_a_forgotten_record_leaves_no_trace_in_the_folder(tmp_path):
    folder = tmp_path / "model"
    model = fitted()
    point = model.space_.points(X[7:8]).astype("<i2").tobytes()
    save(model, folder)
    model.session_.close()
    assert any(point in path.read_bytes() for path in folder.iterdir())
    model = load(folder)
    model.forget([7])
    assert not any(point in path.read_bytes() for path in folder.iterdir())
    model.session_.close()
    assert not any(point in path.read_bytes() for path in folder.iterdir())


KILLED_WHILE_IT_FORGETS = """
import os, sys
from quorate import load
from quorate.core.ledger import Ledger
model = load(sys.argv[1])
Ledger.keep_own = lambda self, values: os._exit(9)  # the file has the change, and its log the record
model.forget([7])
"""


def test_nor_does_one_whose_deletion_was_cut_short(tmp_path):
    """The file's log has every page that changed since the last start, also as it was before the deletion."""
    model = fitted()
    point = model.space_.points(X[:1] * [[1.0, 2.0, -3.0, 4.0]]).astype("<i2").tobytes()
    folder = save(model, tmp_path / "model")
    model.forget([7])
    model.insert(X[:1] * [[1.0, 2.0, -3.0, 4.0]], Y[:1], ids=[7])
    model.session_.close()
    status, *_ = run_forked(KILLED_WHILE_IT_FORGETS, str(folder))
    assert status == 9
    assert any(point in path.read_bytes() for path in folder.iterdir())
    again = load(folder)
    assert [name for name, _ in again.forgotten()] == sealed(again, "7")
    assert not any(point in path.read_bytes() for path in folder.iterdir())
    again.session_.close()


def test_a_change_that_is_cut_short_twice_is_the_last_of_its_process(tmp_path, monkeypatch):
    """With a number that the ledger never has, a file from before it would pass for the latest one."""
    folder = saved(tmp_path / "model")
    model = load(folder)

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(UnitFile, "_keep_sum", interrupted)
        patch.setattr(UnitFile, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.predict(SURE)
    with pytest.raises(LedgerRefused):
        model.predict(SURE)
    model.session_.close()
    again = load(folder)
    assert again.predict(SURE).tolist() == [1, 0]
    again.session_.close()


def test_units_are_charged_on_the_disk_before_noise_is_drawn(tmp_path, monkeypatch):
    folder = saved(tmp_path / "model")
    model, seen = load(folder), []

    def crash(*_arguments):
        copied = tmp_path / "seen.sqlite"
        for suffix in ("", "-wal"):
            shutil.copy(f"{folder}/units.sqlite{suffix}", f"{copied}{suffix}")
        with sqlite3.connect(copied) as connection:
            seen.append(np.frombuffer(connection.execute("SELECT amounts FROM spends").fetchone()[0], dtype="<i8"))
        raise KeyboardInterrupt

    monkeypatch.setattr(NoisyVector, "draw_release", crash)
    with pytest.raises(KeyboardInterrupt):
        model.predict(SURE)
    monkeypatch.undo()
    assert seen[0].max() > 0
    model.session_.close()
    again = load(folder)
    assert spends(again) == seen[0].tolist()  # charged, and no answer left
    again.session_.close()


def test_a_crash_between_file_and_ledger_leaves_what_was_charged(tmp_path, monkeypatch):
    folder = saved(tmp_path / "model")
    model = load(folder)

    def crash(*_arguments, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "keep_own", crash)
    with pytest.raises(KeyboardInterrupt):
        model.predict(SURE)
    monkeypatch.undo()
    with pytest.raises(LedgerRefused, match="closed here"):  # memory and disk may differ
        model.insert(X[:1], Y[:1])
    again = load(folder)
    assert max(spends(again)) > 0
    assert again.predict(SURE).tolist() == [1, 0]
    again.session_.close()


def test_an_old_copy_of_the_units_is_refused(tmp_path):
    folder = saved(tmp_path / "model")
    old = (folder / "units.sqlite").read_bytes()
    model = load(folder)
    model.predict(SURE)
    model.session_.close()
    new = (folder / "units.sqlite").read_bytes()
    (folder / "units.sqlite").write_bytes(old)
    with pytest.raises(LedgerRefused, match="older than the ledger"):
        load(folder)
    (folder / "units.sqlite").write_bytes(new)
    load(folder).session_.close()


def test_a_copy_of_the_whole_folder_that_is_put_back_is_refused(tmp_path):
    """The process was killed: nothing but the marks of its charges says how far it had come."""
    folder, copied = saved(tmp_path / "model"), tmp_path / "copy"
    shutil.copytree(folder, copied)
    asks = "import os, sys; from quorate import load; load(sys.argv[1]).predict([[3.0] * 4]); os._exit(0)"
    assert run_forked(asks, str(folder)) == (0, "", "")
    shutil.rmtree(folder)
    shutil.copytree(copied, folder)
    with pytest.raises(LedgerRefused, match="rolled back"):
        load(folder)
    assert main(["ledger", "restore", str(folder)]) == 0
    with pytest.raises(LedgerRefused, match="does not know what units have spent since"):
        load(folder)


def test_two_copies_of_the_units_do_not_answer_from_one_ledger(tmp_path):
    """As two hosts with one database would; they charge alike, so that both files have the same sum."""
    folder = saved(tmp_path / "model")
    first = load(folder)
    shutil.copy(folder / "units.sqlite", tmp_path / "copy")
    (folder / "units.sqlite").unlink()
    shutil.copy(tmp_path / "copy", folder / "units.sqlite")
    second = load(folder)
    assert second.predict(SURE, caller="somebody").tolist() == [1, 0]
    with pytest.raises(LedgerRefused, match="another copy of this model"):
        first.predict(SURE)
    assert second.predict([[3.0, 3.0, 3.0, 2.0]]).tolist() == [1]
    for model in (first, second):
        model.session_.close()


def test_two_hosts_with_one_database_do_not_both_answer(tmp_path, postgres_url, capsys):
    folder, other = saved(tmp_path / "model"), tmp_path / "other"
    assert main(["ledger", "move", str(folder), postgres_url]) == 0
    shutil.copytree(folder, other)
    first, second = load(folder), load(other)
    assert first.predict(SURE).tolist() == [1, 0]
    with pytest.raises(LedgerRefused, match="another copy of this model"):
        second.predict([[3.0, 3.0, 3.0, 2.0]])
    first.session_.close()
    with pytest.raises(LedgerRefused, match="older than the ledger"):
        load(other)
    load(folder).session_.close()
    capsys.readouterr()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE spends SET amounts = zeroblob(length(amounts))",
        "UPDATE spends SET amounts = x''",
        "DELETE FROM spends",
        "UPDATE state SET reports = 0",
        "DELETE FROM state",
        "UPDATE state SET number = number + 1",
        "UPDATE unit SET codes = x'0700000000000000' WHERE number = 3",
        "DELETE FROM unit WHERE number = 3",
        "UPDATE unit SET name = 'another' WHERE number = 3",
    ],
)
def test_a_file_that_was_edited_is_refused(tmp_path, change):
    folder = saved(tmp_path / "model")
    model = load(folder)
    model.predict(SURE)
    model.wear()
    model.session_.close()
    with sqlite3.connect(folder / "units.sqlite") as connection:
        assert connection.execute(change).rowcount == 1
    connection.close()
    with pytest.raises(LedgerRefused, match="changed by something else"):
        load(folder)


def test_a_name_in_any_spelling_is_one_unit_before_and_after_a_restart(tmp_path):
    model = fitted()
    model.forget([7])
    assert model.insert(X[:3], Y[:3], ids=["7.0", "9000.0", " 008000"]) == ["7", "9000", "8000"]
    model.predict(SURE)
    save(model, tmp_path / "model")
    model.session_.close()
    model = load(tmp_path / "model")
    before = spends(model)
    for name in (7, "7.0", "07", 9000, "9000.0", "8000", 8000.0):
        with pytest.raises(InvalidInput, match="there already"):
            model.insert(X[:1], Y[:1], ids=[name])
    model.forget(["7.0", 9000, "+8000"])
    assert [name for name, _ in model.forgotten()] == sealed(model, "7", "9000", "8000")
    assert model.insert(X[:3], Y[:3], ids=["9000", 8000, "7.00"]) == ["9000", "8000", "7"]
    assert spends(model) == before  # each goes on with what it had spent
    model.session_.close()


def test_what_a_batch_writes_does_not_say_who_paid(tmp_path):
    """Queries near all records and near none write as many pages of the file; an insertion writes no amounts."""
    folder = saved(tmp_path / "model")
    model, statements, log = load(folder), [], folder / "units.sqlite-wal"
    connection = model.session_.answerer.file._connected_file()
    connection.set_trace_callback(statements.append)
    written, sizes = [], []
    for work in (
        lambda: model.predict([[1.0, -1.0, 1.0, -1.0]]),
        lambda: model.predict(SURE),
        lambda: model.predict([[-1.0, 1.0, -1.0, 1.0]]),
        lambda: model.insert(X[:1], Y[:1]),
    ):
        statements.clear()
        work()
        written.append([(line.split()[0], len(line)) for line in statements if "spends" in line])
        sizes.append(log.stat().st_size)
    _, near, far, inserted = written
    assert near == far
    assert [word for word, _ in near] == ["DELETE", "INSERT"]
    assert inserted == []
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 6 * 4096  # which 3,000 amounts fill
    model.session_.close()


def test_one_process_at_a_time_has_the_units(tmp_path):
    folder = saved(tmp_path / "model")
    model = load(folder)
    with pytest.raises(InvalidInput, match="one process at a time"):
        load(folder)
    status, _, errors = run_forked("import sys; from quorate import load; load(sys.argv[1])", str(folder))
    assert status != 0
    assert "one process at a time" in errors
    assert model.predict(SURE).tolist() == [1, 0]
    model.session_.close()
    (folder / "units.sqlite").rename(tmp_path / "elsewhere")
    with pytest.raises(LedgerRefused, match="missing"):
        load(folder)


def write_rows(path, header, rows):
    path.write_text(f"{header}\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))


def test_the_commands_of_the_owner(tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    ill = np.where(Y, "yes", "no")
    write_rows(tmp_path / "records.csv", "a,b,who,ill", [(*X[i, :2], f"p{i}", ill[i]) for i in range(3000)])
    write_rows(tmp_path / "public.csv", "a,b,ill", [(*X[i, :2] + 1e-3, ill[i]) for i in range(300)])
    (tmp_path / "new.csv").write_text("a,b,who,ill\n3,3,q1,yes\n3,3,q1,yes\n-3,-3,q2,no\n")
    (tmp_path / "queries.csv").write_text("a,b\n3,3\n-3,-3\n")
    bill = run_json(
        "fit neighbours records.csv --label ill --groups who --public public.csv --records 3000 --epsilon 8 --out model"
    )
    assert bill["privacy_unit"] == "person"
    assert bill["expected_right"] > 0.9
    assert bill["replaced_epsilon"] > 8
    assert run_json("neighbours insert model new.csv") == {"inserted": 2, "names": ["q1", "q2"]}
    assert main(["neighbours", "insert", "model", "new.csv"]) == 1
    assert "there already" in capsys.readouterr().err
    (tmp_path / "totals.csv").write_bytes("a;b;who;ill\n3;3;q\u00e9;yes\ntotal;;;\n".encode("utf-16"))
    inserted = run_json("neighbours insert model totals.csv --encoding utf-16 --separator ; --skip-last 1")
    assert inserted == {"inserted": 1, "names": ["q\u00e9"]}
    assert run_json("neighbours forget model q1,p7") == {"forgotten": 2}
    names = [entry["name"] for entry in run_json("neighbours forgotten model")["forgotten"]]
    assert len(set(names)) == 2
    assert not {"p7", "q1"} & set(names)  # hashes, which nobody without the folder's key can try names on
    assert main(["neighbours", "forgotten", "model"]) == 0
    assert capsys.readouterr().out.startswith(f"{names[0]}\t20")
    assert run_json("neighbours wear model")["reports_left"] == 15
    answered = run_json("predict model queries.csv")
    assert (answered["answers"], answered["budget_left_percent"]) == (["yes", "no"], 0)
    assert run_json("predict model queries.csv --dry-run")["may_be_refused"] == 0
    assert main(["neighbours", "forget", "public.csv", "p1"]) == 1
    assert "is not a model" in capsys.readouterr().err


def test_the_command_that_inserts_takes_no_number_that_a_float_has_cut_short(tmp_path, capsys, monkeypatch, run_json):
    """It would be a second name, with a budget of its own, for whom the fit knows by the whole number."""
    monkeypatch.chdir(tmp_path)
    frame = pandas.DataFrame(X[:200, :2], columns=["a", "b"]).assign(ill=Y[:200])
    frame.to_parquet("public.parquet")
    frame.assign(who=2**24 + 1 + np.arange(200)).to_parquet("records.parquet")
    fit = "fit neighbours records.parquet --label ill --groups who --public public.parquet --radius 0.5 --votes 3"
    run_json(f"{fit} --out model")
    for number in (2**24 + 1, 7):  # refused by the type of the column alone
        frame[:1].assign(who=np.array([number], dtype=np.float32)).to_parquet("late.parquet")
        assert main(["neighbours", "insert", "model", "late.parquet"]) == 1
        assert "must not be 16- or 32-bit floats" in capsys.readouterr().err
    for who, name in ((np.array([7.5]), "7.5"), (pandas.Categorical([2.0**53]), str(2**53)), (np.array([7.0]), "7")):
        frame[:1].assign(who=who).to_parquet("late.parquet")
        assert run_json("neighbours insert model late.parquet")["names"] == [name]


def test_a_plan_and_a_regressor_by_the_command_line(tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    write_rows(
        tmp_path / "records.csv", "a,b,who,cost", [(*X[i, :2], f"p{i}", 100 + 20 * X[i, 0]) for i in range(3000)]
    )
    write_rows(tmp_path / "public.csv", "a,b,cost", [(*X[i, :2], 100 + 20 * X[i, 0]) for i in range(400)])
    (tmp_path / "new.csv").write_text("a,b,who,cost\n3,3,q1,oops\n")
    (tmp_path / "queries.csv").write_text("a,b\n3,3\n-3,-3\n")
    command = "neighbours plan public.csv --label cost --bounds 0,200 --records 3000 --queries 50 --epsilon 8"
    plan = run_json(command)
    assert plan["feasible"]
    assert 0 < plan["error"] < 60
    assert main(command.split()) == 0
    assert "off by" in capsys.readouterr().out
    fit = "fit neighbours records.csv --label cost --groups who --public public.csv --bounds 0,200 --records 3000"
    bill = run_json(f"{fit} --queries 50 --epsilon 8 --out model")
    assert bill["expected_error"] == pytest.approx(plan["error"], rel=0.2)
    assert run_json("neighbours insert model new.csv") == {"inserted": 1, "names": ["q1"]}
    high, low = run_json("predict model queries.csv")["answers"]
    assert high - low > 40
    assert main([*fit.split(), "--scores", "--out", "other"]) == 1
    assert "--bounds and --scores do not go together" in capsys.readouterr().err
