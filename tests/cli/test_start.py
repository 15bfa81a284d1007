"""First contact: `quorate start` by questions and by options, `quorate datasets`, `quorate doctor`."""

import ast
import io
import json
import os
import pty
import re
import runpy
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import quorate.cli.doctor as doctor_module
from quorate import fit, load
from quorate.cli import main
from quorate.tables import datasets, read_table


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder with the bank's tables, small enough to fit in a moment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    data = datasets.bank()
    pyarrow.csv.write_csv(data.private.slice(0, 6000), "customers.csv")
    pyarrow.csv.write_csv(data.public.slice(0, 500), "survey.csv")
    return tmp_path


def talk(command, answers, *, patience=300):
    """Run a command at a pseudo-terminal, answer each question as it comes, and return what was shown and the code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    shown, waiting, end = "", list(answers), time.monotonic() + patience
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.1)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            part = os.read(ours, 65536).decode(errors="replace")
        except OSError:  # the other side has closed
            break
        shown += part
        if waiting and waiting[0][0] in shown:
            question, answer = waiting.pop(0)
            shown = shown.replace(question, question.upper(), 1)  # it was answered
            os.write(ours, f"{answer}\n".encode())
    os.close(ours)
    code = process.wait(timeout=patience)
    assert not waiting, f"never asked: {waiting}\n{shown}"
    return shown, code


def test_five_questions_at_a_terminal(tables):
    """A wrong answer is asked again; the files that are written run."""
    command = [sys.executable, "-m", "quorate", "start", "customers.csv", "--out", "first"]
    shown, code = talk(
        command,
        [
            ("What do you need", "help"),
            ("What do you need", ""),
            ("1. Which column", "anser"),
            ("1. Which column", "answer"),
            ("2. Who is protected", ""),
            ("3. How many", "many"),
            ("3. How many", "200"),
            ("4. May a query", "perhaps"),
            ("4. May a query", "no"),
            ("5. Is there a public", "survey.csv"),
        ],
    )
    assert code == 0, shown
    assert "there is no column 'anser'" in shown
    assert "a whole number is needed" in shown
    assert "answer yes or no" in shown
    assert "PrivateLogisticRegression" in shown
    assert sorted(path.name for path in (tables / "first").iterdir()) == ["commands.sh", "questions.csv", "script.py"]
    assert "quorate fit tested customers.csv --label answer --read-classes --public survey.csv" in re.sub(
        r"\s+", " ", shown
    )


def test_tables_are_asked_for_at_a_terminal(tables):
    command = [sys.executable, "-m", "quorate", "start", "customers.csv", "--out", "first", "--run"]
    shown, code = talk(
        command,
        [
            ("What do you need", "tables"),
            ("1. Who is protected", ""),
            ("2. Numbers of which groups", "jobs"),
            ("2. Numbers of which groups", "job"),
            ("3. Totals", "balance"),
            ("4. Means", "age"),
            ("5. Medians", ""),
        ],
    )
    assert code == 0, shown
    assert "there is no column 'jobs'" in shown
    assert "Expected 95% intervals" in shown
    assert load("first/published").answer(["mean age"]).num_rows > 3


@pytest.mark.parametrize("options", [["--by", "job", "--total", "balance"], ["--goal", "tables", "--leave-out", "age"]])
def test_the_script_and_the_command_of_tables_run(options, tables, capsys):
    assert main(["start", "customers.csv", *options, "--out", "first"]) == 0
    assert main(["start", "customers.csv", *options, "--out", "second", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert main(shlex.split(said["commands"][0])[1:]) == 0
    runpy.run_path("first/script.py")
    made, scripted = load("second/published"), load("first/published")
    assert (made.claim_, made.by_ if "--by" in options else made.domain_.columns.names) == (
        scripted.claim_,
        scripted.by_ if "--by" in options else scripted.domain_.columns.names,
    )


@pytest.mark.parametrize("options", [["--label", "answer"], ["--goal", "tables"], ["--by", "job"]])
def test_the_budget_is_written_with_all_digits(options, tables, capsys):
    """Six digits of 1.2345678 are 1.23457, which is more than was allowed."""
    assert main(["start", "customers.csv", *options, "--epsilon", "1.2345678", "--delta", "1.2345678e-07"]) == 0
    script, commands = (Path("quorate-start", name).read_text() for name in ("script.py", "commands.sh"))
    for text in (script, commands):
        assert "1.2345678" in text
        assert "1.2345678e-07" in text
    assert "1.23457" not in script + commands + capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--by", "job", "--total", "balance"]])
def test_tables_are_made_with_the_columns_that_a_schema_declares(options, tables, capsys):
    declared = {"job": {"categories": ["technician", "services"]}, "balance": {"low": 0, "high": 9000, "cuts": [500]}}
    Path("schema.json").write_text(json.dumps({"columns": declared}))
    asked = ["start", "customers.csv", "--goal", "tables", *options, "--schema", "schema.json", "--out", "first"]
    assert main([*asked, "--run"]) == 0
    made = load("first/published")
    shutil.rmtree("first/published")
    runpy.run_path("first/script.py")
    scripted = load("first/published")
    if options:
        texts = {row["job"] for row in made.answer().to_pylist()}
        assert texts == {row["job"] for row in scripted.answer().to_pylist()} == {"technician", "services", "other"}
    else:
        assert made.domain_.columns.kinds == scripted.domain_.columns.kinds
        assert made.domain_.columns.kinds["balance"].cuts == (500.0,)
        assert not any("learned" in note for note in made.notes_)


def test_nothing_of_a_private_value_is_in_what_tables_leave_behind(tables, capsys):
    """Two tables of one shape, of which every value differs, lead to the same files and the same words."""
    lines = Path("customers.csv").read_text().splitlines()
    written = []
    for name in ("customers.csv", "others.csv"):
        Path("others.csv").write_text("\n".join([lines[0], *("?" for _ in lines[1:])]))
        assert main(["start", name, "--goal", "tables", "--out", f"to_{name}"]) == 0
        texts = [capsys.readouterr().out, *(path.read_text() for path in sorted(Path(f"to_{name}").iterdir()))]
        written.append([" ".join(text.replace(name, "table.csv").split()) for text in texts])
    assert written[0] == written[1]


def test_the_script_and_the_commands_run(tables, capsys):
    asked = ["start", "customers.csv", "--label", "answer", "--public", "survey.csv", "--queries", "any"]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["method"], told["feasible"], told["units"]) == ("linear", True, 6000)
    runpy.run_path("quorate-start/script.py")
    assert "differentially private" in capsys.readouterr().out
    assert (tables / "quorate-start" / "published" / "GUARANTEE.md").is_file()
    for command in told["commands"]:
        assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out.startswith("row,answer,outcome")
    assert read_table("quorate-start/questions.csv", role="query").column_names == datasets.bank().new.column_names
    for line in (tables / "quorate-start" / "script.py").read_text().splitlines():
        assert len(line) <= 120


def test_a_table_alone_is_enough_for_a_first_answer_in_the_same_command(tables, capsys):
    pyarrow.csv.write_csv(datasets.hospital().private.slice(0, 12_000), "visits.csv")
    options = ["--label", "outcome", "--groups", "person", "--queries", "20", "--epsilon", "2", "--out", "first"]
    assert main(["start", "visits.csv", *options, "--run"]) == 0
    shown = capsys.readouterr()
    assert "columns are learned from the records, within the same epsilon" in " ".join(shown.out.split())
    rows = [line for line in shown.out.splitlines() if ",answered," in line]
    assert len(rows) == 1
    model = load(tables / "first" / "model")
    assert (model.epsilon, model.unit_) == (2.0, "person")
    assert {"sex", "smoker", "ward"} <= set(model.columns_.names_)
    ast.parse((tables / "first" / "script.py").read_text())
    asked = read_table("first/questions.csv", role="query")
    assert set(asked.to_pylist()[0].values()) == {""}  # nothing of a private row


@pytest.mark.parametrize("public", [None, "wards.csv"])
def test_ids_are_left_out_and_gaps_change_nothing_that_is_written(tables, capsys, public):
    """Found by a walk as a newcomer: the commands that were written refused a table with a gap."""
    generator = np.random.default_rng(0)
    age = generator.integers(1, 99, size=6000)
    known = [str(one) if place % 7 else "NA" for place, one in enumerate(age.tolist())]
    visits = pa.table({"visit_id": np.arange(6000), "age": known, "outcome": np.where(age < 50, "home", "ward")})
    pyarrow.csv.write_csv(visits, "visits.csv")
    pyarrow.csv.write_csv(pa.table({"age": np.arange(20, 70)}), "wards.csv")  # no public row has a gap
    given = [] if public is None else ["--public", public]
    options = ["--label", "outcome", "--queries", "50", "--epsilon", "4"]
    assert main(["start", "visits.csv", *options, *given, "--run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "names are those of ids: visit_id" in shown
    assert "--leave-out visit_id" in shown
    runpy.run_path("quorate-start/script.py")
    assert "differentially private" in capsys.readouterr().out
    whole = visits.set_column(1, "age", pa.array(age.astype(str)))  # without gaps
    pyarrow.csv.write_csv(whole, "visits.csv")
    assert main(["start", "visits.csv", *options, *given, "--out", "again"]) == 0
    for name in ("script.py", "commands.sh"):
        first, second = ((tables / folder / name).read_text() for folder in ("quorate-start", "again"))
        assert first == second.replace("again/", "quorate-start/")


@pytest.mark.parametrize("public", [None, "wards.csv"])
def test_three_classes_are_planned_and_asked(tables, capsys, public):
    """Found by a walk as a newcomer: with three classes the plan had no roads, and `start` failed."""
    generator = np.random.default_rng(0)
    age, pain = generator.integers(1, 99, size=9000), generator.normal(size=9000).round(2)
    outcome = np.where(age + 10 * pain < 40, "home", np.where(age + 10 * pain < 70, "ward", "intensive"))
    visits = pa.table({"age": age, "pain": pain, "outcome": outcome})
    pyarrow.csv.write_csv(visits, "visits.csv")
    pyarrow.csv.write_csv(visits.slice(0, 300).drop_columns("outcome"), "wards.csv")
    given = [] if public is None else ["--public", public]
    assert main(["start", "visits.csv", "--label", "outcome", "--queries", "100", *given, "--run"]) == 0
    shown = capsys.readouterr().out
    assert "One linear model" in shown
    assert len([line for line in shown.splitlines() if ",answered," in line]) == (1 if public is None else 5)


def test_what_was_read_from_the_records_is_not_called_declared(tables, capsys):
    """One record may be all that shows a class: a plan, its script and its commands say where classes came from."""
    asked = ["start", "customers.csv", "--label", "answer", "--public", "survey.csv"]
    assert main([*asked, "--out", "read"]) == 0
    assert "Read from the records, and public with the model: the classes no, yes." in " ".join(
        capsys.readouterr().out.split()
    )
    assert main([*asked, "--out", "told", "--classes", "no,yes"]) == 0
    assert "Read from the records" not in capsys.readouterr().out
    for name in ("script.py", "commands.sh"):
        assert "# The classes were read from the records" in (tables / "read" / name).read_text()
        assert "were read from the records" not in (tables / "told" / name).read_text()
    runpy.run_path("read/script.py")
    assert "the label set was read from y and counts as public" in capsys.readouterr().out


def test_a_class_that_may_be_the_initial_of_another_is_pointed_out(tables, capsys):
    """Found by a walk as a newcomer: Y and yes were taken for two classes, and nothing was said."""
    text = (tables / "customers.csv").read_text()
    assert main(["start", "customers.csv", "--label", "answer", "--out", "clean"]) == 0
    assert "two classes" not in capsys.readouterr().out
    (tables / "customers.csv").write_text(text.replace('"yes"\n', '"Y"\n', 1))
    assert main(["start", "customers.csv", "--label", "answer", "--out", "mixed"]) == 0
    assert "Y and yes are two classes." in " ".join(capsys.readouterr().out.split())


def test_labels_that_differ_in_letter_case_alone_are_one_class(tables, capsys):
    lines = (tables / "customers.csv").read_text().splitlines()
    shouted = [line.upper() if number % 2 else line for number, line in enumerate(lines[1:])]
    (tables / "customers.csv").write_text("\n".join([lines[0], *shouted]) + "\n")
    assert main(["start", "customers.csv", "--label", "answer", "--out", "read"]) == 0
    assert "public with the model: the classes no, yes." in " ".join(capsys.readouterr().out.split())
    assert fit("customers.csv", "answer", epsilon=8.0, test_share=0).model.classes_.tolist() == ["no", "yes"]
    assert main(["fit", "tested", "customers.csv", "--label", "answer", "--read-classes", "--out", "m"]) == 0
    assert load("m").classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("way", ["linear", "votes"])
def test_a_model_of_classes_that_were_read_says_so_wherever_it_is_kept(way, tables, capsys):
    asked = ["start", "customers.csv", "--label", "answer", "--epsilon", "2", "--json"]
    asked += ["--public", "survey.csv", "--queries", "any"] if way == "linear" else ["--queries", "20"]
    claims = []
    for options in (["--out", "read"], ["--out", "told", "--classes", "no,yes"]):
        assert main([*asked, *options]) == 0
        fit, _ = json.loads(capsys.readouterr().out)["commands"]
        assert main(shlex.split(fit)[1:]) == 0
        claims.append(load(Path(options[1]) / "model").claim_)
        capsys.readouterr()
    assert claims[0] == f"{claims[1]}; the label set was read from y and counts as public"
    wrong = ["fit", "linear", "customers.csv", "--public", "survey.csv", "--label", "answer", "--out", "x"]
    assert main([*wrong, "--read-classes", "--classes", "no,yes"]) == 1
    assert "it takes no --classes" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "--label COLUMN"),
        (["--label", "loans"], "there is no column 'loans'"),
        (["--label", "balance"], "no label with 2 to 50 values"),
        (["--label", "answer", "--queries", "any", "--delta", "0"], "needs a delta above 0"),
        (["--label", "answer", "--queries", "0"], "queries must be a whole number of at least 1"),
        (["--label", "answer", "--public", "none.csv"], "there is no file none.csv"),
    ],
)
def test_what_cannot_be_planned_is_said_where_nobody_can_be_asked(tables, capsys, monkeypatch, options, told):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["start", "customers.csv", *options]) == 1
    assert told in capsys.readouterr().err
    assert not (tables / "quorate-start").exists()


def test_a_plan_that_is_not_feasible_writes_nothing(tables, capsys):
    pyarrow.csv.write_csv(datasets.triage().private.slice(0, 40), "few.csv")
    assert main(["start", "few.csv", "--label", "outcome", "--queries", "100000"]) == 1
    assert "cannot be learned from 40 units" in capsys.readouterr().err
    votes = ["--queries", "100000", "--delta", "0"]
    assert main(["start", "few.csv", "--label", "outcome", *votes]) == 1
    assert "needs a delta above 0" in capsys.readouterr().err
    pyarrow.csv.write_csv(datasets.triage().private.slice(40, 40), "public.csv")
    assert main(["start", "few.csv", "--label", "outcome", *votes, "--public", "public.csv"]) == 1
    assert "Nothing was written: not feasible" in " ".join(capsys.readouterr().out.split())
    assert not (tables / "quorate-start").exists()


def test_odd_names_make_a_script_that_runs(tables, capsys):
    """A label with quotes and a path with a space are texts, not code."""
    data = datasets.bank()
    odd = 'a "quoted" \\label'
    named = [odd if name == "answer" else name for name in data.private.column_names]
    pyarrow.csv.write_csv(data.private.slice(0, 4000).rename_columns(named), "my table.csv")
    assert main(["start", "my table.csv", "--label", odd, "--public", "survey.csv", "--json"]) == 0
    capsys.readouterr()
    runpy.run_path("quorate-start/script.py")
    assert "differentially private" in capsys.readouterr().out


def test_names_that_begin_with_a_dash_make_commands_that_run(tables, capsys):
    draw = np.random.default_rng(1)
    x = draw.normal(size=2000).round(2)
    table = {"-x": np.where(x > 0, 1, -1), "a": x, "-c": x, "-r": draw.choice(["u", "v"], 2000)}
    pyarrow.csv.write_csv(pa.table(table), "dashes.csv")
    asked = ["start", "dashes.csv", "--label=-x", "--classes=-1,1", "--leave-out=-c", "--queries", "any"]
    assert main([*asked, "--epsilon", "5", "--run"]) == 0
    assert "--label=-x --classes=-1,1" in capsys.readouterr().out
    assert load("quorate-start/model").columns_.names_ == ["a", "-r"]
    assert main(["start", "dashes.csv", "--by=-r", "--mean=-c", "--out", "second", "--run"]) == 0


def test_names_that_no_command_can_say_are_refused_before_anything_is_written(tables, capsys):
    pyarrow.parquet.write_table(pa.table({"a": ["2"] * 900, " id": ["3"] * 900}), "ids.parquet")
    assert main(["start", "ids.parquet", "--goal", "tables", "--epsilon", "10"]) == 1
    shown = capsys.readouterr()
    assert "--leave-out takes no commas in a name and no spaces at its ends; rename ' id'" in shown.err
    assert shown.out == ""
    assert not Path("quorate-start").exists()


def test_odd_names_make_a_script_of_tables_that_runs(tables, capsys):
    odd = 'a "quoted" \\job \N{GRINNING FACE}'
    data = datasets.bank().private.slice(0, 4000)
    names = [odd if name == "job" else name for name in data.column_names]
    pyarrow.csv.write_csv(data.rename_columns(names), "my table.csv")
    for number, options in enumerate((["--by", odd], ["--goal", "tables", "--leave-out", odd])):
        assert main(["start", "my table.csv", *options, "--out", f"out {number}"]) == 0
        runpy.run_path(f"out {number}/script.py")
    assert load("out 0/published").by_ == (odd,)


@pytest.mark.parametrize("name", ["hospital", "bank", "census", "triage"])
def test_datasets_are_the_same_every_time_and_have_their_parts(name, tmp_path, capsys):
    make = getattr(datasets, name)
    data = make()
    assert data.private.equals(make().private)
    for part in (data.public, data.new):
        if part is not None:
            assert set(part.column_names) <= set(data.private.column_names)
    if data.label is not None:
        assert set(data.private[data.label].to_pylist()) == set(data.classes) == set(data.truth.to_pylist())
        assert data.label not in data.new.column_names
        assert len(data.truth) == data.new.num_rows
    assert main(["datasets", name, "--out", str(tmp_path / name)]) == 0
    assert "Written: " in capsys.readouterr().out
    assert read_table(tmp_path / name / "private.csv", role="private").num_rows == data.private.num_rows
    assert main(["datasets", name, "--out", str(tmp_path / name)]) == 1  # nothing is overwritten


def test_the_doctor_finds_this_machine_sound(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {one["subject"]: one["verdict"] for one in told["findings"]}
    assert told["sound"]
    assert found["entropy"] == found["noise"] == found["numpy"] == "ok"
    assert {"clock", "extra report", "sync, this folder", "sync, state folder"} <= set(found)
    assert main(["doctor"]) == 0
    assert "This machine is sound." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "name", "value", "subject", "verdict"),
    [
        ("os", "urandom", bytes, "entropy", "unsound"),
        ("ssl", "RAND_status", lambda: False, "entropy", "unsound"),
        ("time", "time", lambda: 0.0, "clock", "unsound"),
        ("os", "fsync", lambda file: None, "sync, this folder", "warning"),
        ("metadata", "version", lambda name: 1 / 0, None, None),
    ],
)
def test_the_doctor_finds_what_is_wrong(capsys, tmp_path, monkeypatch, module, name, value, subject, verdict):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(doctor_module, "_file_system", lambda folder: "ext4")
    if subject is None:

        def missing(package):
            raise doctor_module.metadata.PackageNotFoundError(package)

        value, subject, verdict = missing, "opendp", "unsound"
    monkeypatch.setattr(getattr(doctor_module, module), name, value)
    code = main(["doctor", "--json"])
    found = {one["subject"]: one["verdict"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found[subject] == verdict
    assert code == (1 if verdict == "unsound" else 0)


@pytest.mark.parametrize(("kind", "told"), [("tmpfs", "a restart empties"), ("nfs4", "several hosts share")])
def test_the_doctor_warns_of_disks_that_forget_or_are_shared(capsys, tmp_path, monkeypatch, kind, told):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(doctor_module, "_file_system", lambda folder: kind)
    assert main(["doctor", "--json"]) == 0
    found = {one["subject"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["sync, this folder"]["verdict"] == "warning"
    assert told in found["sync, this folder"]["text"]


def test_columns_of_too_many_texts_are_left_out_where_a_public_table_has_them(tables, capsys):
    """They were refused, with the advice of an option that this command does not take."""
    for name in ("customers", "survey"):
        table = read_table(f"{name}.csv", role="public")
        notes = pa.array([f"note {row}" for row in range(table.num_rows)])
        pyarrow.csv.write_csv(table.append_column("note", notes), f"{name}.csv")
    asked = ["--label", "answer", "--queries", "100", "--no-abstain", "--public", "survey.csv"]
    assert main(["start", "customers.csv", *asked]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Left out: note. Each has too many different texts in the public table" in said
    assert "--leave-out note" in said
    assert "was read from the records: it is public" not in Path("quorate-start/script.py").read_text()


ODD_RECORDS = {
    "a label": "41.0,f,no",
    "no label": "41.0,f,",
    "a mark for no label": "41.0,f,NA",
    "too few values": "41.0",
    "too many values": "41.0,f,no,SECRET",
    "the first line again": "age,sex,bought",
}


@pytest.mark.parametrize("options", [["--queries", "any"], ["--queries", "20"], ["--schema", "schema.json"]])
def test_no_private_row_is_asked_as_a_query(tmp_path, monkeypatch, capsys, options):
    """The first rows of the table were the first questions: 12a among them stopped the command."""
    monkeypatch.chdir(tmp_path)
    declared = {"age": {"kind": "number", "low": 0, "high": 99}, "sex": {"kind": "category", "categories": ["f", "m"]}}
    declared["seen"] = {"kind": "date", "low": "2024-01-01", "high": "2024-12-31"}
    Path("schema.json").write_text(json.dumps({"columns": declared}))
    lines = [
        f"{20 + row % 60},{'fm'[row % 2]},2024-03-0{1 + row % 9},{'yes' if row % 60 > 30 else 'no'}"
        for row in range(3_000)
    ]
    written = []
    for first in (lines[0], "12aSECRET,f,2024-03-05,no"):
        Path("t.csv").write_text("\n".join(["age,sex,seen,bought", first, *lines[1:]]) + "\n")
        asked = ["start", "t.csv", "--label", "bought", "--classes", "no,yes", "--epsilon", "4"]
        asked += ["--out", f"out{len(written)}"]
        assert main([*asked, *options, "--run"]) == 0
        runpy.run_path(f"out{len(written)}/script.py")
        assert "SECRET" not in "".join(capsys.readouterr())
        written.append(Path(f"out{len(written)}", "questions.csv").read_text())
    assert written[0] == written[1]


def test_no_record_decides_whether_a_model_exists_or_which_classes_it_has(tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(0)
    ages = draw.normal(40, 10, 3_000)
    lines = [f"{age:.1f},{'fm'[row % 2]},{'yes' if age > 40 else 'no'}" for row, age in enumerate(ages)]
    for name, record in ODD_RECORDS.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("t.csv").write_text("\n".join(["age,sex,bought", *lines[:2_000], record, *lines[2_000:]]) + "\n")
        asked = ["start", "t.csv", "--label", "bought", "--queries", "any", "--epsilon", "4", "--out", "out"]
        assert main([*asked, "--run"]) == 0, name
        assert load("out/model").classes_.tolist() == ["no", "yes"]
        runpy.run_path("out/script.py")
        published = load("out/published")
        assert published.classes_.tolist() == ["no", "yes"]
        assert "the label set was read from y and counts as public" in published.claim_
        assert "SECRET" not in "".join(capsys.readouterr())


def test_the_private_table_is_no_public_one(tables, capsys):
    for command in (["start"], ["fit", "linear", "--out", "m"], ["release", "--workload", "marginals:1", "--out", "r"]):
        table = ["customers.csv", *([] if command[0] == "release" else ["--label", "answer"])]
        assert main([*command, *table, "--public", "./customers.csv"]) == 1
        assert "--public is the private table, customers.csv: public rows are not protected" in capsys.readouterr().err
    several = ["customers.csv", "survey.csv", "--label", "answer", "--public", "survey.csv", "--out", "m"]
    assert main(["fit", "subsample", *several]) == 1
    assert "--public is the private table, survey.csv" in capsys.readouterr().err


def test_what_a_stranger_gets_wrong_about_a_fit_is_said(tables, capsys):
    fit = ["fit", "linear", "customers.csv", "--public", "survey.csv", "--out"]
    assert main([*fit, "a", "--label", "job", "--bounds", "0,1"]) == 1
    assert "take a label that is a number, but column 'job' has no numbers in the" in capsys.readouterr().err
    assert main([*fit, "b", "--label", "answer", "--classes", "no,yes", "--delta", "0.001"]) == 0
    assert "delta = 0.001 is not below one over the number of units, 6,000" in capsys.readouterr().err
    assert main(["fit"]) == 0
    assert "Usage: quorate fit COMMAND" in capsys.readouterr().out


def test_start_takes_how_a_file_is_written_and_hands_it_on(tmp_path):
    """A file in another encoding, with a line of totals, reaches a fitted model without an edit by hand."""
    rows = [f"{20 + n % 50}|{'café' if n % 2 else 'bar'}|{'no' if n % 3 else 'yes'}" for n in range(600)]
    table, out = tmp_path / "t.csv", tmp_path / "out"
    table.write_bytes("\n".join(["age|place|y", *rows, "Total||"]).encode("utf-16"))
    words = ["start", str(table), "--label", "y", "--classes", "no,yes", "--epsilon", "2", "--out", str(out), "--run"]
    assert main([*words, "--encoding", "utf-16", "--separator", "|", "--skip-last", "1"]) == 0
    commands, script = (out / "commands.sh").read_text(), (out / "script.py").read_text()
    assert "--encoding utf-16 --separator '|' --skip-last 1" in commands
    assert 'encoding="utf-16", separator="|", skip_last=1, role="private")' in script
    runpy.run_path(out / "script.py")
    assert (out / "model").is_dir()
