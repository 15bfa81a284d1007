"""`quorate write`: plans, texts, and a folder that goes on."""

import json

import pytest

from quorate.cli import main
from quorate.models.text import TransformersModel
from support.toy_writer import Toy


@pytest.fixture
def notes(tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text("note,ward\n" + "the soup is warm,1\nwarm soup,2\n" * 30)
    return path


def run(capsys, *arguments):
    code = main(["write", *map(str, arguments)])
    return code, capsys.readouterr()


SMALL = ("--epsilon", "3", "--batch", "20", "--tokens", "6", "--candidates", "6")


def test_a_plan_needs_no_model(notes, capsys):
    code, printed = run(capsys, notes, "--column", "note", *SMALL, "--plan")
    assert code == 0
    assert "texts of at most 6 tokens" in printed.out
    code, printed = run(capsys, notes, "--column", "note", *SMALL, "--plan", "--json")
    assert json.loads(printed.out)["batches"] == 3


def test_texts_are_written_and_the_folder_goes_on(notes, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(TransformersModel, "load", lambda path, width: Toy())
    options = (notes, "--column", "note", *SMALL, "--model", "toy", "--folder", tmp_path / "private")
    code, printed = run(capsys, *options, "--texts", "2", "--out", tmp_path / "out.csv")
    assert (code, printed.out) == (0, "")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3
    code, printed = run(capsys, *options, "--texts", "1", "--json")
    document = json.loads(printed.out)
    assert len(document["texts"]) == 1
    assert "(3, 1e-06)-differentially private" in document["claim"]
    code, printed = run(capsys, *options)  # all that the budget still pays for
    assert code == 0
    assert len(printed.out.splitlines()) > 10
    assert run(capsys, *options, "--texts", "1")[0] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--column", "other"], "--column must be"), (["--column", "note"], "--model must name")],
)
def test_a_missing_column_or_model_is_named(notes, capsys, options, said):
    code, printed = run(capsys, notes, *options, *SMALL)
    assert code == 1
    assert said in printed.err


def test_a_model_that_is_not_there_is_named(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="is not there"):
        TransformersModel.load(tmp_path / "none.gguf")
