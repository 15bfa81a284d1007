"""`quorate release`, end to end: what it writes, what it answers, and what it refuses before anything is spent."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from quorate.cli import main
from quorate.cli.release_tables import Subject
from quorate.core.errors import InvalidInput
from quorate.models.concepts import Boxes, Halfspaces
from quorate.release import QueryRelease, Workload
from quorate.release.answers import parse_queries
from quorate.release.domain import make_domain


def people(rows, seed):
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "age": chance.normal(45, 15, rows).round(1),
            "wage": np.exp(chance.normal(7, 1, rows)).round(2),
            "sex": chance.choice(["f", "m"], rows),
            "town": chance.choice(["north", "south", "west"], rows, p=[0.6, 0.3, 0.1]),
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pyarrow.csv.write_csv(people(12_000, 1), folder / "private.csv")
    pyarrow.csv.write_csv(people(300, 2), folder / "public.csv")
    pyarrow.csv.write_csv(people(12, 3), folder / "few.csv")
    (folder / "columns.json").write_text(json.dumps({"sex": ["f", "m"], "town": ["north", "south", "west"]}))
    (folder / "expressions.txt").write_text("# two\nage >= 65 and sex = 'f'\n\ntown in ('north', 'west')\n")
    return folder


def run(capsys, *arguments):
    code = main(["release", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_marginals_from_a_table_to_a_folder_and_back(data, tmp_path, capsys):
    out = tmp_path / "release"
    ask = '{"sex": "f", "town": "north"}'
    code, printed, _ = run(
        capsys, data / "private.csv", "--public", data / "public.csv", "--workload", "marginals:2", "--epsilon", "2",
        "--out", out, "--synthetic", "500", "--ask", ask, "--json",
    )  # fmt: skip
    bill = json.loads(printed)
    assert code == 0
    assert bill["records"] == 12_000
    assert bill["epsilon_spent"] <= 2
    assert abs(bill["answers"][0]["answer"] - 0.3) < 0.05
    assert {path.name for path in out.iterdir()} == {
        "GUARANTEE.md", "answers.csv", "claim.json", "arrays.npz", "manifest.json", "synthetic.csv"
    }  # fmt: skip
    with (out / "synthetic.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 500
    assert set(rows[0]) == {"age", "wage", "sex", "town"}
    code, printed, _ = run(capsys, out, "--ask", ask, "--json")
    assert code == 0
    assert json.loads(printed)["answers"] == bill["answers"]
    code, printed, _ = run(capsys, out)
    assert code == 0
    assert printed == (out / "answers.csv").read_text()
    code, _, _ = run(capsys, out, "--out", tmp_path / "some.csv", "--ask", ask)
    assert code == 0
    assert (tmp_path / "some.csv").read_text().startswith("query,age,wage,sex,town,answer,error,low,high\n")
    code, _, _ = run(capsys, out, "--out", tmp_path / "rows.csv", "--synthetic", "40")
    assert code == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 41


@pytest.mark.parametrize(
    ("workload", "public", "ask"),
    [
        ("thresholds:wage:sex", "public.csv", '{"wage": 1000, "sex": "f"}'),
        ("thresholds:age", "public.csv", '{"age": 45}'),
        ("ranges:age", "few.csv", '{"age": [30, 60]}'),
        ("expressions:{data}/expressions.txt", None, "age>=65 and sex='f'"),
        ("boxes:age,wage", "few.csv", "30:60,:2000"),
        ("halfspaces:age,wage", "few.csv", "1,0.01>60"),
    ],
)
def test_every_workload_is_released_and_asked(data, tmp_path, capsys, workload, public, ask):
    given = [] if public is None else ["--public", data / public]
    out = tmp_path / "release"
    code, printed, error = run(
        capsys, data / "private.csv", *given, "--workload", workload.format(data=data), "--out", out, "--ask", ask,
        "--json", "--synthetic", "30",
    )  # fmt: skip
    assert code == 0, error
    bill = json.loads(printed)
    assert 0 <= bill["answers"][0]["answer"] <= 1
    code, printed, _ = run(capsys, out, "--ask", ask, "--json")
    assert code == 0
    assert json.loads(printed)["answers"] == bill["answers"]


def test_declared_columns_need_no_public_table(data, tmp_path, capsys):
    command = [data / "private.csv", "--columns", data / "columns.json", "--workload", "marginals:2", "--json"]
    code, _, error = run(capsys, *command, "--out", tmp_path / "release")
    assert code == 1
    assert "neither declared (--columns) nor public: 'age', 'wage'" in error
    assert "(--leave-out age,wage)" in error
    assert not (tmp_path / "release").exists()
    code, printed, _ = run(capsys, *command, "--leave-out", "age,wage", "--out", tmp_path / "release")
    assert code == 0
    assert json.loads(printed)["queries"] == 12


def test_a_mistyped_column_is_not_left_out_in_silence(data, tmp_path, capsys):
    command = [data / "private.csv", "--public", data / "public.csv", "--workload", "marginals:1", "--out"]
    code, _, error = run(capsys, *command, tmp_path / "release", "--leave-out", "Wage,age")
    assert code == 1
    assert "--leave-out names 'Wage', and no table has such a column; the columns are 'age', 'sex'" in error
    assert not (tmp_path / "release").exists()


def test_people_are_told_the_notes_and_what_a_delta_is_worth(data, tmp_path, capsys):
    command = [data / "private.csv", "--public", data / "public.csv", "--workload", "marginals:2"]
    code, _, error = run(capsys, *command, "--out", tmp_path / "release")
    assert code == 0
    assert "Note: public data" in error
    assert "None" not in error
    code, _, error = run(capsys, *command, "--delta", "1e-3", "--out", tmp_path / "large")
    assert code == 0
    assert "delta = 0.001 is not below one over the number of units, 12,000" in error
    code, _, error = run(capsys, *command[:1], "--columns", data / "columns.json", "--leave-out", "age,wage",
                         "--workload", "marginals:1", "--epsilon", "1e-9", "--out", tmp_path / "small")  # fmt: skip
    assert code == 1
    assert "epsilon" in error
    assert "leave engine" not in error


def test_synthetic_records_and_answers_are_written_in_the_format_of_their_name(data, tmp_path, capsys):
    out, ask = tmp_path / "release", ["--ask", '{"sex": "f"}']
    command = [data / "private.csv", "--columns", data / "columns.json", "--leave-out", "age,wage"]
    assert run(capsys, *command, "--workload", "marginals:1", "--out", out)[0] == 0
    for name, given in (("rows.parquet", ["--synthetic", 50]), ("answers.parquet", ask)):
        assert run(capsys, out, "--out", tmp_path / name, *given)[0] == 0
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").num_rows == 50
    assert pyarrow.parquet.read_table(tmp_path / "answers.parquet")["answer"][0].as_py() == pytest.approx(0.5, abs=0.1)
    for name, given in (("rows.csv.gz", ["--synthetic", 50]), ("answers.feather", ask)):
        code, _, error = run(capsys, out, "--out", tmp_path / name, *given)
        assert code == 1
        assert "tables are written as .csv, .parquet or .xlsx" in error
        assert not (tmp_path / name).exists()


def test_a_report_is_one_page_that_loads_nothing(data, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    code, _, _ = run(
        capsys, data / "private.csv", "--public", data / "public.csv", "--workload", "marginals:1",
        "--out", tmp_path / "release", "--report", page, "--json",
    )  # fmt: skip
    assert code == 0
    text = page.read_text(encoding="utf-8")
    assert "Answers against the truth (synthetic records" in text
    assert "Largest error against epsilon" in text
    for outside in ("http://", "https://", "<script", "<img", "<link"):
        assert outside not in text


def test_a_plan_reads_no_private_record(data, capsys):
    code, printed, _ = run(
        capsys, "--plan", "--records", "50000", "--public", data / "public.csv", "--workload", "marginals:2", "--json"
    )
    plan = json.loads(printed)
    assert code == 0
    assert plan["feasible"]
    assert plan["engines"][0]["error"] <= plan["engines"][-1]["error"]
    code, printed, _ = run(
        capsys, "--plan", "--records", "50", "--public", data / "few.csv", "--workload", "boxes:age,wage"
    )
    assert code == 1
    assert "This falls short" in printed


def test_online_pays_for_what_public_data_miss(data, tmp_path, capsys):
    texts = tmp_path / "queries.txt"
    texts.write_text("\n".join(json.dumps({"age": age}) for age in (30, 40, 50, 60)))
    arguments = [
        data / "private.csv", "--public", data / "public.csv", "--workload", "thresholds:age", "--online",
        "--alpha", "0.2", "--out", tmp_path / "online", "--ask", texts, "--json",
    ]  # fmt: skip
    code, printed, _ = run(capsys, *arguments)
    first = json.loads(printed)
    assert code == 0
    assert first["asked"] == 4
    assert first["refused"] == 0
    assert first["paid"] == 0  # the public table errs by far less than a tenth
    code, printed, _ = run(capsys, tmp_path / "online", "--ask", texts, "--json")
    assert code == 0
    assert json.loads(printed)["answers"] == first["answers"]


ONE = ("--workload", "marginals:1", "--public", "{public}")
KNOWN = (*ONE, "--out", "{out}")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{private}"], "--out FOLDER"),
        (["{private}", "--workload", "marginals:2"], "--out FOLDER"),
        (["{private}", "--workload", "poems:2", "--out", "{out}"], "a workload is marginals:ORDER"),
        (["{private}", "--workload", "thresholds:age", "--out", "{out}"], "columns must be declared"),
        (["{private}", "--out", "{out}", "--ask", '{{"town": "a"}}'], "release first, then ask the folder"),
        (["{private}", "--workload", "thresholds:town", "--public", "{public}", "--out", "{out}"], "column of numbers"),
        (["{private}", "--workload", "thresholds:height", "--public", "{public}", "--out", "{out}"], "height"),
        (["{private}", "--workload", "boxes:age,age", "--public", "{public}", "--out", "{out}"], "different columns"),
        (["{private}", "--workload", "halfspaces:age,wage", "--public", "{public}", "--out", "{out}"], "cells"),
        (["{private}", "--workload", "boxes:age,town", "--public", "{public}", "--out", "{out}"], "public row"),
        (["{private}", "--workload", "marginals:2", "--public", "nowhere.csv", "--out", "{out}"], "no such file"),
        (["nowhere.csv", "--workload", "marginals:2", "--public", "{public}", "--out", "{out}"], "no such file"),
        (["--workload", "marginals:2", "--public", "{public}", "--out", "{out}"], "name the table"),
        (["{private}", *ONE, "--out", "{folder}"], "not an empty folder"),
        (["{private}", *KNOWN, "--ask", "x"], "called"),
        (["{private}", *KNOWN, "--ask", "{{"], "JSON"),
        (["{private}", *KNOWN, "--epsilon", "-1"], "epsilon"),
        (["{private}", *KNOWN, "--synthetic", "0"], "synthetic"),
        (["{private}", *KNOWN, "--synthetic", "100000000"], "synthetic must be at most"),
        (["{private}", *KNOWN, "--ask", "age = below 30", "--band", "2"], "band"),
        (["{private}", "--workload", "marginals:1", "--online", "--ask", "x"], "--public"),
        (["{private}", *ONE, "--online", "--ask", "x"], "--out FOLDER"),
        (["--plan", "--workload", "marginals:1", "--public", "{public}"], "--records"),
        (["{folder}", "--ask", "x"], "is not a model"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_is_spent(data, tmp_path, capsys, monkeypatch, arguments, text):
    from quorate import Budget

    monkeypatch.setattr(Budget, "spend", lambda *rest, **named: pytest.fail("something was spent"))
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "note.txt").write_text("mine")
    places = {"private": data / "private.csv", "public": data / "public.csv", "out": tmp_path / "out", "folder": folder}
    code, _, error = run(capsys, *(argument.format(**places) for argument in arguments))
    assert code == 1
    assert text in error
    assert not (tmp_path / "out").exists()


def test_errors_about_private_tables_say_nothing_of_their_values(data, tmp_path, capsys):
    secret = tmp_path / "secret.csv"
    secret.write_text("age,wage,sex\nxyzzy-1,xyzzy-2,xyzzy-3\n")
    code, _, error = run(
        capsys, secret, "--public", data / "public.csv", "--workload", "marginals:1", "--out", tmp_path / "out"
    )
    assert code == 1
    assert "town" in error
    assert "xyzzy" not in error
    (tmp_path / "odd.csv").write_text("age,wage,sex,town\n" + "xyzzy-1,,?,xyzzy-4\n" * 50)
    code, printed, error = run(
        capsys, tmp_path / "odd.csv", "--public", data / "public.csv", "--workload", "marginals:1",
        "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    assert code == 0  # what is not declared is counted as "other"
    assert "xyzzy" not in printed + error
    for path in (tmp_path / "out").iterdir():
        assert b"xyzzy" not in path.read_bytes()


def test_queries_of_boxes_and_halfspaces():
    [box] = parse_queries(["1:2,:"], Boxes(2))
    assert box.predict([[1.5, 1e9], [3.0, 0.0]]).tolist() == [1, 0]
    [half] = parse_queries(["1,-0.5>2"], Halfspaces(2))
    assert half.predict([[3.0, 1.0], [2.0, 1.0]]).tolist() == [1, 0]
    for wrong in ("1:2", "2:1,0:1", "a:b,c:d", "1,2"):
        with pytest.raises(InvalidInput, match="a box must"):
            parse_queries([wrong], Boxes(2))
    [half] = parse_queries(["1/3, 1e-2 > 1"], Halfspaces(2))
    assert half.predict([[3.0, 0.0], [3.0, 1.0]]).tolist() == [0, 1]
    for wrong in ("0,0>1", "1>2", "1,2", "a,b>c", "1/0,1>0", "nan,1>0", "1e999999999,1>0", "1,1>1e-999999999"):
        with pytest.raises(InvalidInput, match="a halfspace must"):
            parse_queries([wrong], Halfspaces(2))
    assert Subject.parse("boxes: x , y").names == ("x", "y")


def test_no_text_of_a_query_ends_in_another_error_than_its_own():
    workload, columns = Workload.thresholds("age"), {"age": {"cuts": [18, 65]}}
    with pytest.raises(InvalidInput, match="must be a JSON object"):
        parse_queries(['{"age":' * 100_000], workload)
    domain = make_domain(workload, None, columns)
    beyond = parse_queries([f'{{"age": 1{"0" * 400}}}', '{"age": Infinity}'], workload)
    assert len(set(domain.find(beyond).tolist())) == 1, "a number beyond all floats is beyond all cuts"


def test_a_query_that_is_answered_between_two_cuts_says_so(data, tmp_path, capsys):
    """{"income": 30000} was answered as < 29978.5, and only who compared the two could see it."""
    out, table = tmp_path / "line", [data / "private.csv", "--public", data / "public.csv"]
    asked = ["--ask", '{"wage": 1000.0001}']
    code, printed, told = run(capsys, *table, "--workload", "thresholds:wage", "--out", out, *asked, "--json")
    (answer,) = json.loads(printed)["answers"]
    assert code == 0
    assert answer["asked"] == '{"wage": 1000.0001}'
    assert answer["query"].startswith("between (wage < ")
    assert f"{answer['asked']} is answered {answer['query']}, which are {answer['gap']:.3g} apart" in told
    cut = answer["query"].removeprefix("between (wage < ").partition(")")[0]
    code, printed, told = run(capsys, out, "--ask", f'{{"wage": {cut}}}')
    assert (code, told) == (0, "")
    header, row = printed.splitlines()
    assert "asked" not in header
    assert all(len(cell) < 20 for cell in row.split(",")[2:])
    release = QueryRelease.load(out)
    answers = release.answer([{"wage": float(cut)}, {"wage": 1000.0001}])
    assert answers["asked"].to_pylist() == [None, '{"wage": 1000.0001}']
    assert "asked" not in release.answer().column_names


def test_an_online_release_says_so_too(data, tmp_path, capsys):
    code, _, told = run(
        capsys, data / "private.csv", "--public", data / "public.csv", "--workload", "ranges:age", "--online",
        "--alpha", "0.2", "--ask", '{"age": [30.01, null]}', "--out", tmp_path / "line",
    )  # fmt: skip
    assert code == 0, told
    assert '{"age": [30.01, null]} is answered at the nearest cut: age >= ' in told


@pytest.mark.parametrize(
    ("workload", "suffix"),
    [
        ("thresholds:day:sex", "csv"),
        ("thresholds:day:sex", "parquet"),
        ("marginals:2", "parquet"),
        pytest.param("marginals:2", "csv", marks=pytest.mark.long),
    ],
)
def test_dates_are_released_as_dates(tmp_path, capsys, suffix, workload):
    """Half of the records are of 2024-01, the others later: the released share says so."""
    for name, rows in (("private", 8000), ("public", 200)):
        chance = np.random.default_rng(rows)
        days = np.datetime64("2024-01-01") + chance.integers(0, 31, rows) + 60 * chance.integers(0, 2, rows)
        table = pa.table({"day": pa.array(days), "sex": chance.choice(["f", "m"], rows)})
        if suffix == "csv":
            pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
        else:
            pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    (tmp_path / "columns.json").write_text(
        json.dumps({"day": {"kind": "date", "cuts": ["2024-02-01", "2024-03-01"]}, "sex": ["f", "m"]})
    )
    asked = '{"day": "2024-02-01", "sex": "f"}' if "thresholds" in workload else '{"day": "2024-01-15", "sex": "f"}'
    for known in (["--columns", tmp_path / "columns.json"], ["--public", tmp_path / f"public.{suffix}"]):
        out = tmp_path / f"out-{known[0]}"
        code, printed, _ = run(
            capsys, tmp_path / f"private.{suffix}", *known, "--workload", workload, "--epsilon", "2", "--out", out,
            "--ask", asked, "--synthetic", "20", "--report", tmp_path / f"page{known[0]}.html", "--json",
        )  # fmt: skip
        assert code == 0
        answer = json.loads(printed)["answers"][0]["answer"]
        assert 0 < answer < 0.3 if known[0] == "--public" and "marginals" in workload else abs(answer - 0.25) < 0.03
        assert (out / "synthetic.csv").read_text().splitlines()[1].count("2024-") == 1
        code, printed, _ = run(capsys, out, "--ask", asked, "--json")
        assert (code, json.loads(printed)["answers"][0]["answer"]) == (0, answer)


def test_a_growing_table_is_released_after_each_update(data, tmp_path, capsys):
    folder, first = tmp_path / "months", [data / "private.csv", "--columns", data / "columns.json"]
    first += ["--leave-out", "age,wage", "--workload", "marginals:1", "--engine", "plain"]
    ask = ["--ask", '{"sex": "f"}', "--json"]
    for wrong, told in (
        (["--updates", "2", "--out", tmp_path / "x"], "--update"),
        (["--update", "jan", "--out", tmp_path / "x"], "--updates"),
        (["--update", "jan", "--updates", "2"], "--out"),
    ):
        code, _, error = run(capsys, *first, "--growing", folder, *wrong)
        assert (code, told in error, folder.exists()) == (1, True, False)
    code, printed, _ = run(
        capsys, *first, "--growing", folder, "--updates", "2", "--update", "jan", "--out", tmp_path / "jan", *ask
    )
    assert code == 0
    assert "all 2 updates together" in json.loads(printed)["claim"]
    later = [data / "few.csv", "--leave-out", "age,wage", "--growing", folder]
    bills = []
    for out in ("feb", "again"):
        code, printed, _ = run(capsys, *later, "--update", "feb", "--out", tmp_path / out, *ask)
        assert code == 0
        bills.append(json.loads(printed))
    assert (bills[0]["update"], bills[0]["number"], bills[0]["records"]) == ("feb", 2, 12_012)
    assert bills[0]["answers"] == bills[1]["answers"]
    code, _, error = run(capsys, *later, "--update", "mar", "--out", tmp_path / "mar")
    assert (code, "all 2 declared updates" in error) == (1, True)
    code, _, error = run(capsys, *later, "--update", "mar", "--out", tmp_path / "mar", "--epsilon", "2")
    assert (code, "--epsilon does nothing" in error) == (1, True)
    code, _, error = run(capsys, folder, "--ask", '{"sex": "f"}')
    assert (code, "growing release" in error) == (1, True)
    assert QueryRelease.load(tmp_path / "feb").update_.number == 2


@pytest.mark.parametrize("ask", ['{"age": "3 to below 4"}', "age = 3 to below 4 and sex = f"])
def test_cells_that_are_not_found_yet_cannot_be_asked_by_name(data, tmp_path, capsys, ask):
    """Values can: which cell they are in is known when it is found."""
    (tmp_path / "columns.json").write_text(json.dumps({"age": {"kind": "number"}, "sex": ["f", "m"]}))
    settings = ["--workload", "marginals:2", "--columns", tmp_path / "columns.json", "--leave-out", "wage,town"]
    code, _, error = run(capsys, data / "private.csv", *settings, "--out", tmp_path / "none", "--ask", ask)
    assert code == 1
    assert "has no cuts, and its cells no names yet" in error
    assert not (tmp_path / "none").exists()
    asked = ["--ask", '{"age": 40}', "--ask", "age = other and sex = f"]
    code, printed, _ = run(capsys, data / "private.csv", *settings, "--out", tmp_path / "made", *asked, "--json")
    assert code == 0
    assert len(json.loads(printed)["answers"]) == 2


def test_a_file_is_read_as_its_options_say(data, tmp_path, capsys):
    """As `quorate fit` does: an encoding, a separator, a line of totals at the end."""
    columns = tmp_path / "columns.json"
    columns.write_text('{"town": ["K\u00f6ln", "Bonn"], "sex": ["f", "m"]}', encoding="utf-8")
    lines = ["town|sex", *["K\u00f6ln|f", "Bonn|m"] * 4000, "total|m"]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("cp850"))
    named = ["--encoding", "cp850", "--separator", "|", "--skip-last", "1"]
    asked = ["--workload", "marginals:1", "--columns", columns, "--ask", '{"town": "K\u00f6ln"}', "--json"]
    code, printed, _ = run(capsys, tmp_path / "t.csv", *asked, *named, "--epsilon", "8", "--out", tmp_path / "out")
    assert code == 0
    assert json.loads(printed)["records"] == 8000
    assert abs(json.loads(printed)["answers"][0]["answer"] - 0.5) < 0.01
    code, _, error = run(capsys, tmp_path / "out", "--skip-last", "1")
    assert (code, "--skip-last does nothing when a release is asked" in error) == (1, True)
