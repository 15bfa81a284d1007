"""Numbers by group on the command line: a plan, a release, and its folder."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from quorate.cli import main

OPTIONS = [
    "--by",
    "region,visited:month",
    "--total",
    "cost",
    "--mean",
    "age",
    "--median",
    "stay",
    "--people",
    "patient",
]


@pytest.fixture
def visits(tmp_path, monkeypatch):
    """Write a table of visits and declarations, and go to their folder."""
    chance, rows = np.random.default_rng(0), 9000
    columns = {
        "region": chance.choice(["north", "south"], rows),
        "visited": np.datetime64("2024-01-01") + chance.integers(0, 60, rows),
        "cost": chance.gamma(2.0, 100.0, rows).round(2),
        "age": chance.integers(18, 95, rows),
        "stay": chance.integers(0, 30, rows),
        "patient": chance.integers(0, 6000, rows),
    }
    with open(tmp_path / "visits.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    declared = {name: {"kind": "number", "low": 0, "high": high} for name, high in (("cost", 1000), ("age", 100))}
    (tmp_path / "columns.json").write_text(json.dumps(declared))
    monkeypatch.chdir(tmp_path)


def test_a_plan_needs_no_table(visits, capsys):
    assert main(["release", *OPTIONS, "--columns", "columns.json", "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {row["group of"] for row in plan} == {30, 100, 1000}
    assert {row["measure"] for row in plan} == {"records", "total cost", "mean age", "median stay"}
    assert main(["release", *OPTIONS, "--plan"]) == 0
    assert "half of its range" in " ".join(capsys.readouterr().out.split())


def test_a_release_is_written_and_asked(visits, capsys, tmp_path):
    assert main(["release", "visits.csv", *OPTIONS, "--columns", "columns.json", "--out", "out", "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert bill["groups"] == 4
    assert bill["privacy_unit"] == "person"
    assert "all records of one of" in bill["claim"]
    assert main(["release", "out", "--ask", "total cost"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["visited:month"] for row in rows] == ["2024-01", "2024-02", "2024-01", "2024-02", "other"]
    assert main(["release", "out", "--out", "all.parquet"]) == 0
    assert pyarrow.parquet.read_table(tmp_path / "all.parquet").num_rows == 4 * 5
    assert (tmp_path / "out" / "answers.csv").is_file()


def test_single_answers_and_excel_come_from_a_folder(visits, capsys, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    assert main(["release", "visits.csv", *OPTIONS, "--columns", "columns.json", "--out", "out"]) == 0
    capsys.readouterr()
    query = {"measure": "total cost", "region": "north"}
    assert main(["release", "out", "--ask", json.dumps(query), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["answers"]
    assert main(["release", "out", "--ask", "total cost", "--json"]) == 0
    months = [month for month in json.loads(capsys.readouterr().out)["answers"] if month["region"] == "north"]
    assert row["answer"] == pytest.approx(sum(month["answer"] for month in months))
    assert main(["release", "out", "--ask", json.dumps(query | {"region": "moon"})]) == 1
    assert "no group" in capsys.readouterr().err
    assert main(["release", "out", "--ask", "total cost", "--out", "totals.xlsx"]) == 0
    header, *rows = openpyxl.load_workbook("totals.xlsx").active.iter_rows(values_only=True)
    assert header == ("region", "visited:month", "measure", "answer", "low", "high", "note")
    assert [row[:2] for row in rows[:2]] == [("north", "2024-01"), ("north", "2024-02")]
    assert rows[0][3] == pytest.approx(months[0]["answer"])


def test_a_folder_of_files_is_one_table_and_that_of_a_release_is_none(visits, capsys):
    lines = Path("visits.csv").read_text().splitlines(keepends=True)
    Path("parts").mkdir()
    for name, part in (("a.csv", lines[1:400]), ("b.csv", lines[400:])):
        Path("parts", name).write_text("".join([lines[0], *part]))
    assert main(["release", "parts", "--by", "region", "--median", "stay", "--out", "out", "--json"]) == 0
    assert f"of {len(lines) - 1} records" in json.loads(capsys.readouterr().out)["claim"].replace(",", "")
    assert main(["release", "out", "--by", "region", "--out", "again"]) == 1
    assert "--by reads private records" in capsys.readouterr().err


def test_without_declarations_notes_say_what_was_found(visits, capsys):
    assert main(["release", "visits.csv", "--by", "region", "--mean", "cost", "--out", "out"]) == 0
    assert "bounds of cost were found with noise" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("visits.csv --by region", "--out FOLDER"),
        ("--by region --out out", "name the table"),
        ("visits.csv --by nothing --out out", "nothing"),
        ("visits.csv --by region --workload marginals:1 --out out", "--workload does nothing with --by"),
        ("visits.csv --by region --mean region --columns wrong.json --out out", "must be a Number"),
    ],
)
def test_what_cannot_be_released_is_refused(visits, capsys, tmp_path, arguments, words):
    (tmp_path / "wrong.json").write_text('{"region": ["north", "south"]}')
    assert main(["release", *arguments.split()]) == 1
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_options_of_shares_are_refused_for_numbers(visits, capsys):
    assert main(["release", "visits.csv", "--by", "region", "--out", "out", "--json"]) == 0
    assert main(["release", "out", "--counts"]) == 1
    assert "--counts" in capsys.readouterr().err
