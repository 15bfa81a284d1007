"""The subcommands of `quorate fit`: what each takes and refuses."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.cli import main
from quorate.cli.fit_methods import METHODS

TABLES = (
    "table label classes read-classes public schema groups leave-out texts missing-texts gaps encoding separator "
    "skip-last"
)
OUT = "out report json"
CONCEPT = f"{TABLES} {OUT} concept records-per-person"
VOTES = "teachers aggregator no-quorums disagreement n-jobs"
TAKEN = {
    "subsample": f"{TABLES} {OUT} memory spill cluster epsilon delta account learner queries holdout device {VOTES} "
    "scores threshold prior class-weight",
    "everlasting": f"{TABLES} {OUT} epsilon delta query-epsilon query-delta learner concept chunk no-quorums "
    "phase-size relabel n-jobs device",
    "neighbours": f"{TABLES} {OUT} epsilon delta records queries radius share votes kernel metric scores bounds device",
    "student-first": f"{TABLES} {OUT} epsilon delta account student learner teachers dissents no-quorums queries "
    "n-jobs device trusted",
    "agnostic": f"{CONCEPT} epsilon delta queries {VOTES}",
    "universal": f"{CONCEPT} epsilon delta alpha share {VOTES}",
    "stable": f"{CONCEPT} gamma".replace(" report", ""),
    "pure": f"{CONCEPT} epsilon queries method teachers n-jobs",
    "semi-private": f"{CONCEPT} epsilon points",
    "tested": f"{TABLES} {OUT} epsilon delta bounds test-share",
    "linear": f"{TABLES} {OUT} memory spill cluster epsilon delta account bounds largest cuts cross waves",
    "search": f"{TABLES} {OUT} epsilon delta cuts scoring held-out method",
    "conformal": f"{TABLES} {OUT} epsilon account model miscoverage largest-error per-person trusted",
}


def flat(text):
    """Return what a box says as one line, however it was broken."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("method", TAKEN)
def test_help_shows_what_a_method_takes_and_an_example(method, capsys):
    assert main(["fit", method, "--help"]) == 0
    shown = capsys.readouterr().out
    boxes = shown[shown.index("╭") :]
    assert set(re.findall(r"^│ [ *]*(?:TABLE )?--([a-z-]+)", boxes, re.M)) == set(TAKEN[method].split())
    assert f"Example: quorate fit {method} visits.csv" in flat(shown)
    assert [name for name in ("Tables", "Output") if f"─ {name} ─" in boxes] == ["Tables", "Output"]


def test_help_lists_the_methods(capsys):
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr()
    assert [method for method in TAKEN if f"│ {method} " not in shown.out] == []
    assert "Example: quorate fit linear visits.csv" in flat(shown.out)
    assert shown.err == ""


def test_a_command_starts_without_what_it_does_not_need():
    slow = {"numpy", "pyarrow", "sklearn", "quorate.cli.fit"}
    code = f"import sys; from quorate.cli import main; main(['--version']); print(sorted({slow} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n")[1] == "[]"


def test_an_option_of_another_method_is_wrong_usage(capsys, tmp_path, monkeypatch):
    """What each method takes is compared with its help above; all else is unknown to it."""
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "linear", "x.csv", "--out", "m", "--teachers", "1"]) == 2
    assert "quorate fit linear does not take --teachers." in flat(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", [method for method in TAKEN if method != "tested"])
def test_every_option_is_explained_and_has_the_default_of_its_estimator(method):
    """Type, default and help are those of the signature and the docstring: nothing is written twice."""
    parameters = inspect.signature(METHODS[method].classes()[0]).parameters
    options = {option.name: option for option in METHODS[method].options()}
    for name, option in options.items():
        assert any(parameter.help for parameter in option.annotation.__metadata__), name
        if name in parameters and name not in (*METHODS[method].defaults, *METHODS[method].extra.split()):
            assert option.default == parameters[name].default


def test_a_reference_to_another_estimator_is_read_there():
    (device,) = (option for option in METHODS["student-first"].options() if option.name == "device")
    assert "GPU" in device.annotation.__metadata__[-1].help


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("linear --bounds 0,1 --largest 9", "--bounds and --largest do not go together"),
        ("neighbours --bounds 0,1 --scores", "--bounds and --scores do not go together"),
        ("linear --bounds 0", "--bounds must be two numbers"),
        ("linear --cuts 2", "--cuts, --cross and --waves need a public table"),
        ("linear --missing-texts ?", "--texts and --missing-texts need a public table"),
        ("subsample --spill .", "--spill needs --memory"),
    ],
)
def test_options_that_do_not_go_together(arguments, told, records, capsys, monkeypatch):
    monkeypatch.chdir(records.parent)
    method, *options = arguments.split()
    label = ["--label", "dose"] if "--bounds" in options else ["--label", "ill", "--classes", "no,yes"]
    assert main(["fit", method, "records.csv", *label, *options, "--out", "m"]) == 1
    assert told in capsys.readouterr().err
    assert not (records.parent / "m").exists()


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("dose,ill\n" + "".join(f"{i % 2},{'yes' if i % 2 else 'no'}\n" for i in range(4000)))
    (tmp_path / "queries.csv").write_text("dose\n0\n1\n")
    return path


@pytest.mark.parametrize(
    "goal", ["--label ill --classes no,yes", "--label ill --read-classes", "--label dose --bounds 0,1"]
)
def test_a_table_alone_gives_a_model_and_its_test(goal, records, capsys, monkeypatch):
    monkeypatch.chdir(records.parent)
    fit = ["fit", "tested", "records.csv", "--epsilon", "4", *goal.split()]
    assert main([*fit, "--out", "new", "--report", "page.html", "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert (bill["units"], bill["test_units"]) == (3000, 1000)
    assert ("counts as public" in bill["claim"]) == ("--read-classes" in goal)
    if "--bounds" in goal:
        assert bill["width"] > 0
    else:
        assert bill["error"]["high"] < bill["constant_error"]["low"]
        assert bill["auc"]["low"] > 0.5
    page = Path("page.html").read_text()
    assert f"What {bill['columns'][0]} adds" in page
    assert ("right, by the private test" in page) == ("--bounds" not in goal)
    assert ("read from y, and public" in page) == ("--read-classes" in goal)
    name = bill["columns"][0]
    (records.parent / "asked.csv").write_text(f"{name}\n1\n")
    assert main(["predict", "new", "asked.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 1
    assert main([*fit, "--out", "untested", "--test-share", "0"]) == 0
    assert "It was not tested" in capsys.readouterr().err
    assert main([*fit, "--out", "other", "--gaps"]) == 1


METHOD_OPTIONS = {
    "subsample": "--teachers 150 --queries 10 --aggregator noisy_max --learner stump --epsilon 8",
    "everlasting": "--concept thresholds --chunk 5 --no-quorums 60 --epsilon 8 --delta 1e-5",
    "agnostic": "--queries 2 --epsilon 8",
    "universal": "--epsilon 8",
    "stable": "--gamma 0.2",
    "pure": "--queries 2 --epsilon 20",
    "semi-private": "--public public.csv --points 40 --epsilon 4",  # all of one dose, and a warning: 2**-39
    "neighbours": "--public public.csv --records 4000 --queries 10",
    "linear": "--public public.csv --cuts 1",
    "search": "--public public.csv --cuts 1,2",
}


@pytest.mark.parametrize("method", METHOD_OPTIONS)
def test_every_method_fits_writes_and_tells_its_claim(method, records, capsys, monkeypatch):
    monkeypatch.chdir(records.parent)
    (records.parent / "public.csv").write_bytes(records.read_bytes())
    settings = [*METHOD_OPTIONS[method].split(), "--label", "ill", "--classes", "no,yes", "--json"]
    settings += ["--report", "page.html"] if method != "stable" else []
    assert main(["fit", method, "records.csv", "--out", "new", *settings]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert {"claim", "privacy_unit", "epsilon", "delta", "label", "classes", "features"} <= set(bill)
    assert (bill["folder"], bill["method"], bill["classes"]) == ("new", method, ["no", "yes"])
    if method != "stable":
        assert bill["claim"].split(",")[0] in (records.parent / "page.html").read_text()
    assert main(["predict", "new", "queries.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 2
