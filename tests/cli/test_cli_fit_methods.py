"""The subcommands of `quorate fit`: what each takes and refuses, and the spelling that they had as --method."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from quorate.cli import main
from quorate.cli.commands.fit import new_spelling

TABLES = "table label classes read-classes public schema groups leave-out texts missing-texts gaps encoding skip-last"
CONCEPT = f"{TABLES} concept rows-per-person ask out json no-json"
TEACHERS = "learner teachers aggregator queries no-quorums disagreement holdout jobs device"
LARGE = "memory spill cluster"
SCORES = "scores no-scores threshold prior class-weight"
NUMBERS = "scores no-scores bounds device"
STUDENT = "student learner teachers dissents no-quorums queries jobs device"
PHASES = "learner concept chunk no-quorums growth max-phase-size refresh relabel jobs device"
TAKEN = {
    "subsample": f"{TABLES} {LARGE} epsilon delta account {TEACHERS} {SCORES} out report json no-json",
    "everlasting": f"{TABLES} epsilon delta query-epsilon {PHASES} out json no-json",
    "neighbours": f"{TABLES} epsilon delta records queries radius share votes kernel metric {NUMBERS} out json no-json",
    "student-first": f"{TABLES} epsilon delta account {STUDENT} trusted out json no-json",
    "agnostic": f"{CONCEPT} epsilon delta queries report",
    "universal": f"{CONCEPT} epsilon delta report",
    "stable": f"{CONCEPT} gamma",
    "pure": f"{CONCEPT} epsilon queries report",
    "semi-private": f"{CONCEPT} epsilon points report",
    "linear": f"{TABLES} epsilon delta account bounds largest cuts cross waves out json no-json report",
    "search": f"{TABLES} epsilon delta cuts scoring held-out tried method out json no-json",
    "conformal": f"{TABLES} epsilon account model alpha cells largest-error per-person trusted out json no-json",
}


def flat(text):
    """Return what a box says as one line, however it was broken."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("method", TAKEN)
def test_help_shows_what_a_method_takes_and_an_example(method, capsys):
    assert main(["fit", method, "--help"]) == 0
    shown = capsys.readouterr().out
    boxes = shown[shown.index("╭") :]
    assert set(re.findall(r"^│ [ *]*(?:TABLE )?--([a-z-]+)", boxes, re.M)) == set(TAKEN[method].split()) - {
        "no-json",
        "no-scores",
    }
    assert f"Example: quorate fit {method} visits.csv" in flat(shown)
    assert [name for name in ("Tables", "Output") if f"─ {name} ─" in boxes] == ["Tables", "Output"]


def test_help_lists_the_methods(capsys):
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr()
    assert [method for method in TAKEN if f"│ {method} " not in shown.out] == []
    assert "Example: quorate fit subsample visits.csv" in flat(shown.out)
    assert shown.err == ""


def test_a_command_starts_without_what_it_does_not_need():
    slow = {"numpy", "pyarrow", "sklearn", "quorate.cli.commands.fit_options"}
    code = f"import sys; from quorate.cli import main; main(['--version']); print(sorted({slow} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n")[1] == "[]"


@pytest.mark.parametrize("method", TAKEN)
def test_an_option_of_another_method_is_wrong_usage(method, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    others = {name for names in TAKEN.values() for name in names.split()} - set(TAKEN[method].split())
    asked = {"student-first": ["--student", "rule"], "conformal": ["--model", "rule"]}.get(method, [])
    assert others
    for name in sorted(others):
        assert main(["fit", method, "x.csv", "--out", "m", *asked, f"--{name}", "1"]) == 2
        assert f"quorate fit {method} does not take --{name}." in flat(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.csv --out m", "subsample x.csv --out m"),
        ("--out m --label stable x.csv", "subsample --out m --label stable x.csv"),
        ("x.csv --method subsample --out m", "subsample x.csv --out m"),
        ("x.csv --out m --method=pure --ask q.csv", "pure x.csv --out m --ask q.csv"),
        ("--method everlasting --growth 2 'my visits.csv'", "everlasting --growth 2 'my visits.csv'"),
        ("--method semi-private --help", "semi-private --help"),
    ],
)
def test_the_old_spelling_is_read_as_the_new_one_which_is_printed(old, new, capsys):
    assert new_spelling(["fit", *shlex.split(old)]) == ["fit", *shlex.split(new)]
    shown = capsys.readouterr()
    assert shown.err == f"quorate: each method of fit is now a subcommand: quorate fit {new}\n"
    assert shown.out == ""
    assert new_spelling(["fit", *shlex.split(new)]) == ["fit", *shlex.split(new)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ("--growth 1.1", "subsample"),
        ("--query-epsilon 0.1", "subsample"),
        ("--method everlasting --teachers 9", "everlasting"),
        ("--method everlasting --report r.html", "everlasting"),
        ("--method stable --epsilon 0.5 --ask q.csv", "stable"),
        ("--method pure --delta 0.1 --ask q.csv", "pure"),
    ],
)
def test_the_old_spelling_refuses_what_the_method_does_not_take(options, method, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "x.csv", "--out", "m", *options.split()]) == 2
    option = next(part for part in options.split() if part.startswith("--") and part != "--method")
    assert f"quorate fit {method} does not take {option}." in flat(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("dose,ill\n" + "".join(f"{i % 2},{'yes' if i % 2 else 'no'}\n" for i in range(4000)))
    (tmp_path / "queries.csv").write_text("dose\n0\n1\n")
    return path


METHODS = {
    "subsample": "--teachers 150 --queries 10 --aggregator noisy_max --learner stump --epsilon 8",
    "everlasting": "--concept thresholds --chunk 5 --no-quorums 60 --epsilon 8 --delta 1e-5",
    "agnostic": "--ask queries.csv --epsilon 8",
    "universal": "--ask queries.csv --epsilon 8",
    "stable": "--ask queries.csv --gamma 0.2",
    "pure": "--ask queries.csv --epsilon 20",
    "semi-private": "--public public.csv --points 40 --epsilon 4",  # all of one dose, and a warning: 2**-39
}


@pytest.mark.parametrize("method", METHODS)
def test_both_spellings_make_the_same_model(method, records, capsys, monkeypatch):
    """Everything that a bill says but what was drawn: the answers, and what they cost."""
    monkeypatch.chdir(records.parent)
    (records.parent / "public.csv").write_bytes(records.read_bytes())
    settings = [*METHODS[method].split(), "--label", "ill", "--classes", "no,yes", "--json"]
    old = [] if method == "subsample" else ["--method", method]
    bills, said, files = [], [], []
    for arguments in ([method, "records.csv", "--out", "new"], ["records.csv", "--out", "old", *old]):
        code = main(["fit", *arguments, *settings])
        shown = capsys.readouterr()
        bills.append(json.loads(shown.out))
        said.append(shown.err)
        files.append(sorted(path.suffix for path in (records.parent / bills[-1]["folder"]).iterdir()))
        assert code == (1 if bills[-1].get("refused") else 0)
    assert said[0] == ""
    told = shlex.join(["quorate", "fit", method, "records.csv", "--out", "old", *settings])
    assert said[1] == f"quorate: each method of fit is now a subcommand: {told}\n"
    assert [bill["folder"] for bill in bills] == ["new", "old"]
    drawn = {"answered", "no_quorum", "refused", "epsilon_spent", "hypothesis", "candidates", "excess", "folder"}
    same = [{name: value for name, value in bill.items() if name not in drawn} for bill in bills]
    assert same[0] == same[1]
    assert files[0] == files[1]


def test_an_option_that_was_renamed_is_taken_under_its_old_name(capsys):
    told = new_spelling(["fit", "everlasting", "visits.csv", "--most-seats", "9", "--growth", "2"])
    assert told == ["fit", "everlasting", "visits.csv", "--max-phase-size", "9", "--growth", "2"]
    assert "--most-seats is called --max-phase-size now" in capsys.readouterr().err
