"""`quorate fit` and `quorate predict`, end to end, and what they refuse before anything is spent."""

import contextlib
import csv
import io
import json
import sqlite3
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from quorate import EverlastingClassifier, PrivateClassifier
from quorate.cli import main
from quorate.cli.options import LearnerName
from quorate.core.errors import InvalidInput
from quorate.core.session import Session
from quorate.models.concepts import Thresholds
from quorate.models.saving import load, open_folder, save
from quorate.service import Settings
from quorate.service._worker import open_models
from quorate.tables import Category, Label, Number, Schema

TOWNS = np.array(["north", "south", "west"])

_WAYS_TO_OPEN = (
    load,
    lambda folder: open_folder(folder).schema(),
    lambda folder: open_models(Settings.of(folder, keys=False)),
)


def people(rows, seed):
    """Rows whose label follows from dose and town, but for a few; the ids repeat, four rows a person."""
    chance = np.random.default_rng(seed)
    dose, town = chance.normal(50, 10, rows).round(3), chance.integers(0, 3, rows)
    score = (dose - 50) / 10 + (town == 0) * 1.5 - 0.5
    return pa.table(
        {
            "dose": dose,
            "age": chance.integers(20, 90, rows),
            "town": np.char.add(" ", TOWNS[town]),
            "ill": np.where(score + chance.normal(0, 0.1, rows) > 0, "yes", "no"),
            "person": np.arange(rows) // 4,
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pyarrow.csv.write_csv(people(8000, 1), folder / "records.csv")
    pyarrow.csv.write_csv(people(400, 2).drop_columns(["person"]), folder / "public.csv")
    pyarrow.csv.write_csv(people(60, 3).drop_columns(["person", "ill"]), folder / "queries.csv")
    pyarrow.parquet.write_table(people(60, 3).drop_columns(["person"]), folder / "queries.parquet")
    pyarrow.parquet.write_table(people(4000, 4).select(["dose", "age", "ill"]), folder / "numbers.parquet")
    Schema(
        {"dose": Number(low=0, high=100), "age": Number(centre=50, spread=20), "town": Category(TOWNS.tolist())},
        label=Label("ill", ["no", "yes"]),
        leave_out=["person"],
    ).save(folder / "schema.json")
    return folder


SETTINGS = ["--epsilon", "2", "--delta", "1e-5", "--teachers", "200"]


@pytest.fixture(scope="module")
def model(data):
    """A model that answers 40 queries and no more."""
    folder = data / "model"
    arguments = [
        data / "records.csv",
        "--label",
        "ill",
        "--public",
        data / "public.csv",
        "--groups",
        "person",
        *SETTINGS,
    ]
    assert fit(*arguments, "--aggregator", "noisy_max", "--queries", "40", "--out", folder, "--json") == 0
    return folder


def quorate(*arguments):
    return main([str(argument) for argument in arguments])


def fit(*arguments):
    return quorate("fit", "subsample", *arguments)


def spent(folder):
    """What the ledger holds on the disk, not what a process remembers.

    Its rows and not its bytes: when SQLite carries rows from its log into the file depends on when it is closed. How
    many answers were given again is counted in a table of its own, and costs nothing.
    """
    with contextlib.closing(sqlite3.connect(f"{(folder / 'ledger.sqlite').as_uri()}?mode=ro", uri=True)) as ledger:
        return [line for line in ledger.iterdump() if "quorate_activity" not in line]


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def first(data, rows, name="few.csv", start=0):
    path = data / name
    lines = (data / "queries.csv").read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], *lines[1 + start : 1 + start + rows]]))
    return path


def test_fit_says_what_it_made(data, tmp_path, capsys):
    arguments = [data / "records.csv", "--schema", data / "schema.json", "--groups", "person", *SETTINGS]
    page = tmp_path / "page.html"
    assert fit(*arguments, "--out", tmp_path / "m", "--report", page, "--queries", "40", "--json") == 0
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert (made["teachers"], made["privacy_unit"], made["label"], made["classes"]) == (
        200,
        "person",
        "ill",
        ["no", "yes"],
    )
    assert made["features"] == 5
    assert made["claim"].startswith("(2, 1e-05)-differentially private")
    assert made["plan"]["epsilon"] == 2.0
    assert shown.err == ""
    assert "<html" in page.read_text()
    assert Schema.load(tmp_path / "m" / "schema.json").groups == "person"


def test_fit_on_paper_and_without_a_terminal(data, tmp_path, capsys):
    arguments = [data / "numbers.parquet", "--label", "ill", "--classes", "no, yes", *SETTINGS]
    assert fit(*arguments, "--out", tmp_path / "a" / "m", "--queries", "20") == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "privacy unit" in shown.err
    assert "\x1b" not in shown.err


def test_answers_as_csv_and_the_bill(data, tmp_path, capsys):
    folder = tmp_path / "m"
    arguments = [data / "records.csv", "--label", "ill", "--public", data / "public.csv", "--leave-out", "person"]
    # As many no-quorums as queries, so that none is refused, however the noise falls; about 57 of 60 are answered.
    arguments += ["--epsilon", "8", "--delta", "1e-5", "--teachers", "200", "--queries", "100", "--no-quorums", "60"]
    assert fit(*arguments, "--aggregator", "quorum", "--out", folder) == 0
    capsys.readouterr()
    out = tmp_path / "answers.csv"
    assert quorate("predict", folder, data / "queries.csv", "--out", out, "--json") == 0
    bill = json.loads(capsys.readouterr().out)
    rows = table(out.read_text())
    assert len(rows) == bill["queries"] == 60
    assert bill["answered"] == sum(row["outcome"] == "answered" for row in rows)
    assert bill["answered"] + bill["no_quorum"] == 60
    assert bill["answered"] > 30
    assert 0 < bill["epsilon_spent"] <= bill["epsilon_allowed"] == 8.0
    assert 0 <= bill["budget_left_percent"] < 100
    truth = people(60, 3)["ill"].to_pylist()
    pairs = [(row["answer"], right) for row, right in zip(rows, truth, strict=True) if row["outcome"] == "answered"]
    assert sum(answer == right for answer, right in pairs) > 0.8 * len(pairs)  # 3 are wrong
    assert all(row["answer"] == "" for row in rows if row["outcome"] == "no_quorum")
    # Printed, from another kind of file, with the label in it: the same queries, so the same answers, for nothing.
    before = spent(folder)
    assert quorate("predict", folder, data / "queries.parquet") == 0
    shown = capsys.readouterr()
    assert shown.out == out.read_text()
    assert "epsilon spent" in shown.err
    assert spent(folder) == before
    assert not list(tmp_path.glob(".*"))


def test_one_table_is_one_batch_and_three_entries_of_the_ledger_at_most(data, tmp_path, capsys, monkeypatch):
    arguments = [data / "records.csv", "--schema", data / "schema.json", *SETTINGS, "--aggregator", "noisy_max"]
    assert fit(*arguments, "--queries", "60", "--out", tmp_path / "m") == 0
    batches, ask = [], Session.ask
    monkeypatch.setattr(Session, "ask", lambda self, X, **how: batches.append(len(X)) or ask(self, X, **how))

    def entries():
        capsys.readouterr()
        assert quorate("ledger", "show", tmp_path / "m", "--json") == 0
        return json.loads(capsys.readouterr().out)["entries"]

    counts = [entries()]
    for rows in (50, 50, 51):  # asked, asked again, and with one query that is new
        assert quorate("predict", tmp_path / "m", first(data, rows)) == 0
        counts.append(entries())
    assert batches == [50, 50, 51]
    assert max(np.diff(counts)) <= 3
    assert counts[2] - counts[1] <= 1  # answered again, at no cost
    assert quorate("ledger", "verify", tmp_path / "m") == 0


def test_callers_are_kept_apart(data, model, capsys):
    queries = first(data, 3)
    assert quorate("predict", model, queries, "--caller", "ann", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["outcomes"] == ["answered"] * 3
    assert set(made["answers"]) <= {"no", "yes"}
    assert quorate("predict", model, queries, "--caller", "ann", "--json") == 0
    assert json.loads(capsys.readouterr().out) == made
    assert quorate("predict", model, queries, "--caller", "bob", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epsilon_spent"] > made["epsilon_spent"]


def test_no_quorum(data, tmp_path, capsys):
    """One row for each teacher, whose label is its ballot: a tie. All three are answered once in 10**10 runs."""
    noise = pa.table({"x": np.zeros(200), "y": np.arange(200) % 2})
    pyarrow.parquet.write_table(noise, tmp_path / "noise.parquet")
    pyarrow.parquet.write_table(pa.table({"x": [0.1, 0.2, 0.3]}), tmp_path / "queries.parquet")
    arguments = [tmp_path / "noise.parquet", "--label", "y", "--classes", "0,1", "--teachers", "200"]
    arguments += ["--epsilon", "4", "--delta", "1e-9", "--aggregator", "quorum"]
    assert fit(*arguments, "--no-quorums", "3", "--queries", "50", "--out", tmp_path / "m") == 0
    asked = ["predict", tmp_path / "m", tmp_path / "queries.parquet", "--on-no-quorum"]
    capsys.readouterr()
    assert quorate(*asked, "raise") == 1
    shown = capsys.readouterr()
    rows = table(shown.out)
    missed = sum(row["outcome"] == "no_quorum" for row in rows)
    assert missed > 0
    assert f"{missed} of 3 queries found no quorum; they were paid for" in shown.err
    assert quorate(*asked, "abstain") == 0
    assert table(capsys.readouterr().out) == rows
    assert quorate(*asked, "random") == 0
    drawn = table(capsys.readouterr().out)
    assert {row["answer"] for row in drawn} <= {"0", "1"}
    assert [row["outcome"] for row in drawn] == [row["outcome"] for row in rows]


def test_the_end_of_the_budget(data, tmp_path, capsys):
    folder = tmp_path / "m"
    arguments = [data / "records.csv", "--schema", data / "schema.json", *SETTINGS, "--aggregator", "noisy_max"]
    assert fit(*arguments, "--queries", "10", "--out", folder) == 0
    capsys.readouterr()
    assert quorate("predict", folder, data / "queries.csv", "--out", tmp_path / "a.csv", "--json") == 1
    shown = capsys.readouterr()
    bill = json.loads(shown.out)
    answered = bill["answered"]
    assert 10 <= answered < 60
    assert bill["refused"] == 60 - answered
    assert f"{60 - answered} of 60 queries were refused: the budget cannot pay for them" in shown.err
    rows = table((tmp_path / "a.csv").read_text())
    assert [row["outcome"] for row in rows] == ["answered"] * answered + ["refused"] * (60 - answered)
    # All of a new batch is refused; what was answered before is still there.
    assert quorate("predict", folder, first(data, 5, start=50), "--json") == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["refused"] == 5
    assert "quorate: " in shown.err
    assert quorate("predict", folder, first(data, answered), "--json") == 0
    assert json.loads(capsys.readouterr().out)["answered"] == answered
    assert bill["epsilon_spent"] <= 2.0


@pytest.mark.parametrize("learner", get_args(LearnerName))
def test_every_learner_is_fitted_saved_and_asked(data, tmp_path, capsys, learner):
    arguments = [data / "numbers.parquet", "--label", "ill", "--classes", "no,yes", "--learner", learner]
    arguments += ["--teachers", "20", "--epsilon", "20", "--aggregator", "noisy_max", "--queries", "10"]
    assert fit(*arguments, "--out", tmp_path / "m") == 0, capsys.readouterr().err
    pyarrow.parquet.write_table(pa.table({"dose": [90.0, 10.0], "age": [50, 50]}), tmp_path / "queries.parquet")
    capsys.readouterr()
    assert quorate("predict", tmp_path / "m", tmp_path / "queries.parquet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["answers"] == ["yes", "no"]


def test_a_model_without_a_schema_takes_numbers(data, tmp_path, capsys):
    from quorate.models.predictors import PrivateClassifier

    X = np.random.default_rng(0).normal(size=(4000, 2))
    classifier = PrivateClassifier(epsilon=2.0, teachers=200, aggregator="noisy_max", queries=10, classes=[0, 1])
    save(classifier.fit(X, (X[:, 0] > 0).astype(int)), tmp_path / "m")
    (tmp_path / "q.csv").write_text("a,b\n3,0\n-3,0\n")
    assert quorate("predict", tmp_path / "m", tmp_path / "q.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["answers"] == [1, 0]
    before = spent(tmp_path / "m")
    for text in ("a,b\n3,x\n", "a\n3\n", "a,b,c\n3,4,5\n", "a,b\n3,\n"):
        (tmp_path / "q.csv").write_text(text)
        assert quorate("predict", tmp_path / "m", tmp_path / "q.csv") == 1
        assert "Traceback" not in capsys.readouterr().err
    assert spent(tmp_path / "m") == before


# Refusals: nothing is made, nothing is spent, and nothing of a private row is told


SECRETS = ("secret", "987654")


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (None, [], "there is no such file"),
        ("dose,ill\n", [], "the table has no rows"),
        ("dose,dose,ill\n1,1,yes\n", [], "column names must differ: 'dose' appears twice"),
        ("dose,sick\n1,1\n", [], "--label names 'ill', and there is no such column; the columns are 'dose', 'sick'"),
        ("ill\nyes\n", [], "a schema must have at least 1 column to encode"),
        ("dose,ill\n1,yes\n", ["--groups", "person"], "--groups names 'person', and there is no such column"),
        ("dose,age,ill\n1,1,yes\n", ["--schema", "schema.json"], "must have the columns 'town'"),
        (
            "dose,age,town,x,ill\n1,1,north,1,yes\n",
            ["--schema", "schema.json"],
            "of the private records: 'x'; leave them out",
        ),
        ("dose,ill\n1,yes\n", ["--schema", "nowhere.json"], "nowhere.json: there is no such file"),
        ("dose,ill\n1,yes\n", ["--public", "nowhere.csv"], "nowhere.csv: there is no such file"),
        ("dose,ill\n1,yes\n", ["--public", "public.csv"], "must have the columns 'age', 'town'"),
        ("dose,ill\n1,yes\n", ["--report", "nowhere/page.html"], "cannot be written: there is no folder"),
        ("dose,ill\n1,yes\n", ["--epsilon", "-1"], "epsilon must be a positive finite number"),
        ("dose,ill\n1,yes\n2,no\n", ["--teachers", "0"], "teachers must be a whole number of at least 1"),
        ("dose,ill\n1,yes\n2,no\n", ["--aggregator", "quorum", "--delta", "0"], "delta"),
    ],
)
def test_bad_input_of_fit(data, tmp_path, capsys, text, options, told):
    path = tmp_path / "records.csv"
    if text is not None:
        path.write_text(text)
    options = [data / option if "." in option and not option.startswith("-") else option for option in options]
    assert fit(path, "--label", "ill", "--classes", "no,yes", "--out", tmp_path / "m", *options) == 1
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""
    assert not (tmp_path / "m").exists()
    assert not any(secret in shown.err for secret in SECRETS)


ODD = {
    "label": ("1,40,north,secret,987654", []),
    "no label": ("1,40,north,,987654", []),
    "gap": (",40,north,no,987654", []),
    "text": ("secret,40,north,no,987654", []),
    "person": ("1,40,north,no,", ["--groups", "person"]),
    "schema": ("secret,,secret,yes,987654", ["--schema", "schema.json"]),
    "public": ("secret,,secret,yes,987654", ["--public", "public.csv"]),
}


@pytest.mark.parametrize("case", ODD)
def test_no_private_value_stops_a_fit_or_shows_in_what_it_says_and_publishes(data, tmp_path, capsys, case):
    line, options = ODD[case]
    options = [data / option if "." in option else option for option in options]
    columns = people(3000, 5).to_pydict()
    order = ["dose", "age", "town", "ill", "person"]
    left_out = [] if case == "schema" else ["person"] if case == "public" else ["town", "person"]
    left_out = [name for name in left_out if name not in options]
    rows = [",".join(str(columns[name][row]) for name in order) for row in range(3000)]
    told = []
    for place, first in enumerate((rows[0], line)):
        path, folder = tmp_path / f"{place}.csv", tmp_path / f"m{place}"
        path.write_text("\n".join([",".join(order), first, *rows[1:]]) + "\n")
        settings = ["--teachers", "40", "--epsilon", "4", "--aggregator", "noisy_max", "--queries", "10"]
        given = [path, "--label", "ill", "--classes", "no,yes", *options, *settings, "--out", folder, "--json"]
        given += ["--leave-out", ",".join(left_out)] if left_out else []
        assert fit(*given) == 0, capsys.readouterr().err
        shown = capsys.readouterr()
        assert not any(secret in shown.out + shown.err for secret in SECRETS)
        bill = json.loads(shown.out)
        told.append(
            ({name: value for name, value in bill.items() if name != "folder"}, (folder / "schema.json").read_text())
        )
    assert told[0][1] == told[1][1]
    assert told[0][0].keys() == told[1][0].keys()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--label", "ill"], "the classes of the label 'ill' must be declared"),
        (["--classes", "no,yes"], "name the column with the label"),
        (["--label", "ill", "--classes", "no"], "classes must be a list of at least 2"),
        (["--label", "ill", "--classes", "no,no"], "classes must differ: 'no' appears twice"),
    ],
)
def test_labels_must_be_declared(data, tmp_path, capsys, options, told):
    left_out = ["--leave-out", "ill" * ("--label" not in options)]
    assert fit(data / "numbers.parquet", *left_out, *options, "--out", tmp_path / "m") == 1
    assert told in capsys.readouterr().err


def test_a_model_is_never_overwritten(data, model, capsys):
    before = spent(model)
    assert fit(data / "records.csv", "--schema", data / "schema.json", "--out", model) == 1
    assert "exists and is not an empty folder: what is there is never overwritten" in capsys.readouterr().err
    assert fit(data / "records.csv", "--out", data / "records.csv" / "m") == 1
    assert "is not a folder that can be written to" in capsys.readouterr().err
    assert spent(model) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fit", "psychic", "t.csv"], "psychic"),
        (["fit", "subsample", "t.csv", "--out", "m", "--learner", "direction"], "direction"),
        (["fit", "subsample", "t.csv", "--out", "m", "--teachers", "many"], "many"),
        (["fit", "pure", "t.csv", "--out", "m", "--concept", "trees"], "trees"),
        (["fit", "t.csv", "--out", "m"], "t.csv"),
        (["predict", "m", "q.csv", "--on-no-quorum", "guess"], "guess"),
    ],
)
def test_wrong_usage(arguments, told, capsys):
    assert quorate(*arguments) == 2
    assert told in capsys.readouterr().err.lower()


QUERIES = {
    "no such file": (None, "there is no such file"),
    "no rows": ("dose,age,town\n", "the table has no rows"),
    "a short line": ("dose,age,town\n1,2,north\n1,2\n", "but line 3 has 2"),
    "a missing column": ("dose,age\n1,2\n", "the queries must have the columns 'town'"),
    "an unseen column": (
        "dose,age,town,x\n1,2,north,1\n",
        "the schema does not know these columns of the queries: 'x'",
    ),
    "a missing number": ("dose,age,town\n1,2,north\n,2,north\n", "the queries, column 'dose', row 2 "),
    "a missing category": ("dose,age,town\n1,2,\n", "the queries, column 'town', row 1 "),
    "a text": ("dose,age,town\n1,2,north\n1,2,south\n1,old,west\n", "column 'age', row 3 (the first such row"),
    "infinity": ("dose,age,town\ninf,2,north\n", "column 'dose', row 1 (the first such row, counted from 1): a number"),
}


@pytest.mark.parametrize("aggregator", ["noisy_max", "quorum"])
def test_bad_queries_spend_nothing(data, tmp_path, capsys, aggregator):
    folder = tmp_path / "m"
    arguments = [data / "records.csv", "--schema", data / "schema.json", "--epsilon", "4", "--teachers", "400"]
    options = ["--aggregator", aggregator, "--queries", "10", "--no-quorums", "4", "--out", folder]
    assert fit(*arguments, *options) == 0, capsys.readouterr().err
    before = spent(folder)
    capsys.readouterr()
    path = tmp_path / "queries.csv"
    for text, told in QUERIES.values():
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        assert quorate("predict", folder, path) == 1
        shown = capsys.readouterr()
        assert told in shown.err
        assert shown.out == ""
        assert spent(folder) == before
    for out, told in ((tmp_path / "no" / "a.csv", "there is no folder"), (tmp_path, "it is a folder")):
        assert quorate("predict", folder, data / "queries.csv", "--out", out) == 1
        assert told in capsys.readouterr().err
    assert quorate("predict", folder, tmp_path / "queries.txt") == 1
    assert spent(folder) == before


def test_folders_that_are_no_models(data, model, tmp_path, capsys):
    queries = first(data, 2)
    for name, told in (("nothing", "it is not there"), ("", "it has no manifest.json")):
        assert quorate("predict", tmp_path / name, queries) == 1
        assert f"is not a model: {told}" in capsys.readouterr().err
    assert quorate("predict", queries, model) == 1
    assert "is not a model: it is a file, and a model is a folder" in capsys.readouterr().err


def test_a_schema_that_the_manifest_does_not_list_is_refused_by_all_who_open_the_model(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(4000, 1))
    y = (X[:, 0] > 0).astype(int)
    private = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
    forever = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60, classes=[0, 1])
    queries = tmp_path / "queries.csv"
    queries.write_text("dose\n1.5\n")
    for name, classifier in (("private", private), ("everlasting", forever.fit(X, y))):
        folder = save(classifier, tmp_path / name)
        classifier.session_.close()
        Schema({"dose": Number(centre=3.0, spread=1.0)}).save(folder / "schema.json")  # 1.5 would be asked as -1.5
        for opened in _WAYS_TO_OPEN:
            with pytest.raises(InvalidInput, match="is not listed in the model's manifest, so that nothing proves it"):
                opened(folder)
        assert quorate("predict", folder, queries) == 1
        assert "take it away, or fit the model again with it" in capsys.readouterr().err
        (folder / "schema.json").unlink()
        assert quorate("predict", folder, queries) == 0
        (served,) = open_models(Settings.of(folder, keys=False))
        assert list(served.inputs.names) == ["features"]
        served.session.close()


def test_no_input_is_written_over(data, model, tmp_path, capsys):
    queries = first(data, 2)
    before = queries.read_bytes()
    assert quorate("predict", model, queries, "--out", queries) == 1
    assert "cannot be written: it is an input of this command" in capsys.readouterr().err
    assert queries.read_bytes() == before
    schema = data / "schema.json"
    assert fit(data / "records.csv", "--schema", schema, "--report", schema, "--out", tmp_path / "m") == 1
    assert "cannot be written: it is an input of this command" in capsys.readouterr().err


def test_texts_that_mean_a_missing_value(data, tmp_path, capsys):
    text = (data / "public.csv").read_text().splitlines()
    text[1] = "?" + text[1][text[1].index(",") :]
    (tmp_path / "public.csv").write_text("\n".join(text))
    arguments = [data / "records.csv", "--label", "ill", "--public", tmp_path / "public.csv", "--leave-out", "person"]
    arguments += [*SETTINGS, "--aggregator", "noisy_max", "--queries", "10", "--disagreement", "0.1"]
    assert fit(*arguments, "--out", tmp_path / "m") == 1
    assert "column 'dose' holds numbers and '?' in the public table" in capsys.readouterr().err
    assert fit(*arguments, "--missing-texts", "?", "--out", tmp_path / "m") == 0
    (tmp_path / "q.csv").write_text("dose,age,town\n?,50,north\n")
    capsys.readouterr()
    assert quorate("predict", tmp_path / "m", tmp_path / "q.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == ["answered"]


def test_unknown_categories_and_wild_numbers_are_answered(data, model, tmp_path, capsys):
    (tmp_path / "q.csv").write_text("dose,age,town\n1e300,-5,nowhere\n")
    assert quorate("predict", model, tmp_path / "q.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["answered"] == 1


def test_a_report_of_what_was_asked(tmp_path):
    records, public, asked = (tmp_path / name for name in ("records.csv", "public.csv", "asked.csv"))
    rows = "".join(f"{i % 2},{'yes' if i % 2 else 'no'}\n" for i in range(4000))
    records.write_text(f"dose,ill\n{rows}")
    public.write_text("dose,ill\n0,no\n1,yes\n")
    asked.write_text("dose\n" + "".join(f"{i / 40}\n" for i in range(40)))
    model, page = tmp_path / "model", tmp_path / "page.html"
    settings = ["--epsilon", "8", "--queries", "30", "--teachers", "150", "--aggregator", "sharp_majority"]
    assert fit(records, "--label", "ill", "--public", public, "--out", model, *settings) == 0
    assert main(["predict", str(model), str(asked), "--out", str(tmp_path / "a.csv"), "--report", str(page)]) == 1
    text = page.read_text()
    for part in (
        "Budget spent over queries",
        "Answer rate over queries",
        "sharp_majority",
        "models/predictors/PROOF.md",
    ):
        assert part in text
    outcomes = [line.split(",")[2] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]]
    assert outcomes == ["answered"] * 30 + ["refused"] * 10
    assert main(["predict", str(model), str(asked), "--report", str(tmp_path / "no" / "page.html")]) == 1
