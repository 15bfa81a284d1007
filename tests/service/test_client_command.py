"""`quorate ask`: the same answers, written in the same way, as `quorate predict` gives to the same caller."""

import io
import json
import re
from contextlib import redirect_stdout

import pytest

from quorate.cli import main
from quorate.cli.output import write_or_print
from quorate.service import Settings
from support.guide_tables import write_visits
from support.service_client import serving


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with tables and a model whose columns are numbers and texts, a key, and the address of its server."""
    home = tmp_path_factory.mktemp("ask")
    fit = "fit subsample visits.csv --label outcome --classes ill,well --public survey.csv --out triage --epsilon 20"
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.chdir(home)
        write_visits(8000)
        assert main([*fit.split(), "--leave-out", "patient", "--queries", "200", "--teachers", "100"]) == 0
        assert main(["keys", "add", "triage", "ward"]) == 0
    (key,) = re.findall(r"qk_\S+", printed.getvalue())
    settings = Settings(models={"triage": str(home / "triage")}, port=0, pace_ms=0)
    with serving(settings, home / "log") as server:
        yield home, key, f"http://127.0.0.1:{server.port}"


@pytest.fixture
def asked(served, monkeypatch, capsys):
    home, key, address = served
    monkeypatch.chdir(home)
    monkeypatch.setenv("QUORATE_KEY", key)
    capsys.readouterr()

    def ask(*options):
        assert main(["ask", address, *options]) == 0
        return capsys.readouterr()

    return ask, key


def test_ask_writes_what_predict_writes(asked, capsys, tmp_path):
    ask, key = asked
    out = tmp_path / "answers.csv"
    options = ["new.csv", "--leave-out", "patient"]
    told = ask(*options, "--out", str(out))
    assert "queries" in told.err
    predict = ["predict", "triage", *options, "--caller", key.split("_")[1]]  # who is answered as before, for nothing
    assert main(predict) == 0
    assert out.read_text() == capsys.readouterr().out
    as_json = json.loads(ask(*options, "--json").out)
    assert main([*predict, "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    for name in ("queries", "answered", "no_quorum", "refused", "answers", "outcomes"):
        assert as_json[name] == same[name]
    assert ask("new.csv", "--row-id", "patient").out.splitlines()[0] == "patient,answer,outcome"


def test_the_key_is_read_from_a_file_that_is_nobody_elses(asked, monkeypatch, tmp_path, capsys):
    ask, key = asked
    file = tmp_path / "key"
    file.write_text(f"{key}\n")
    file.chmod(0o644)
    monkeypatch.delenv("QUORATE_KEY")
    assert main(["ask", "http://127.0.0.1:1", "new.csv", "--key-file", str(file)]) == 1
    assert "may be read by others" in capsys.readouterr().err
    file.chmod(0o600)
    assert ask("new.csv", "--leave-out", "patient", "--key-file", str(file), "--model", "triage").out
    assert main(["ask", "http://127.0.0.1:1", "new.csv", "--key-file", str(tmp_path / "none")]) == 1
    assert "none: No such file or directory" in capsys.readouterr().err


def test_what_is_wrong_is_said_in_plain_words(served, monkeypatch, capsys):
    monkeypatch.chdir(served[0])
    monkeypatch.setattr("quorate.cli.serving._PATIENCE", 0.0)
    assert main(["ask", "http://127.0.0.1:1", "new.csv", "--seconds", "0.5"]) == 1
    assert "quorate: the server does not answer yet; it is tried again for 0.5 seconds" in capsys.readouterr().err
    for options, told in (
        (
            ["http://127.0.0.1:1", "new.csv", "--seconds", "0.2"],
            "127.0.0.1 did not answer within 0.2 seconds: it could",
        ),
        (["127.0.0.1:8900", "new.csv"], "a server is named by its address"),
        (["http://127.0.0.1:1", "none.csv"], "none.csv"),
        (["http://127.0.0.1:1", "new.csv", "--leave-out", "height"], "--leave-out names 'height'"),
        (["http://127.0.0.1:1", "new.csv", "--out", "new.csv"], "it is an input of this command"),
    ):
        assert main(["ask", *options]) == 1
        error = capsys.readouterr().err
        assert told in error
        assert "Traceback" not in error


def test_labels_of_a_server_command_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    write_or_print("row,answer\n1,\x1b]0;owned\x07é\n", None)
    assert capsys.readouterr().out == "row,answer\n1,?]0;owned?é\n"
