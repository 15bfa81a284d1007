"""`quorate fit` by a class of hypotheses: from tables to a published hypothesis or to answers."""

import csv
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from quorate import InvalidInput
from quorate.cli import main
from quorate.cli.options import ConceptName, make_concept
from quorate.models.concepts import (
    Boxes,
    Conjunctions,
    Constant,
    Finite,
    Halfspaces,
    Interval,
    Intervals,
    Stumps,
    Threshold,
    Thresholds,
)
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.documents import HYPOTHESES


def _table(path: Path, rows: int, *, seed: int, label: bool = True, person: bool = False) -> Path:
    generator = np.random.default_rng(seed)
    ages, doses = generator.integers(20, 90, size=rows), generator.normal(size=rows).round(3)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "dose", *(["ill"] if label else []), *(["person"] if person else [])])
        for row, (age, dose) in enumerate(zip(ages.tolist(), doses.tolist(), strict=True)):
            ill = "yes" if age >= 50 else "no"
            writer.writerow([age, dose, *([ill] if label else []), *([row // 2] if person else [])])
    return path


@pytest.fixture
def tables(tmp_path):
    return {
        "table": _table(tmp_path / "records.csv", 20_000, seed=0),
        "public": _table(tmp_path / "public.csv", 200, seed=1),
        "ask": _table(tmp_path / "queries.csv", 30, seed=2, label=False),
    }


def _run(tables, out, method, **options):
    """Run the command with these options; those that are None are left out."""
    given = {"label": "ill", "classes": "no,yes", "public": tables["public"], "out": out}
    given |= {"epsilon": 4.0} if method != "stable" else {}
    given |= options
    texts = [
        part
        for name, value in given.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    return main(["fit", method, str(tables["table"]), *texts, "--json"])


@pytest.mark.parametrize(
    ("method", "given", "code", "text"),
    [
        ("semi-private", {"public": None}, 1, "--public TABLE"),
        ("stable", {"report": "r.html"}, 2, "quorate fit stable does not take --report"),
        ("pure", {"concept": "thresholds"}, 1, "are on a line, and the table has 2 columns"),
        ("pure", {"label": "sick"}, 1, "--label names 'sick'"),
    ],
)
def test_refusals(method, given, code, text, tables, tmp_path, capsys):
    assert _run(tables, tmp_path / "out", method, **given) == code
    assert text in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_published_hypothesis_is_corrected_from_the_command_line(tables, tmp_path, capsys):
    """The student was trained on labels of another law: it says yes from 70 on."""
    with tables["public"].open() as file:
        rows = [(row["age"], row["dose"], "yes" if int(row["age"]) >= 70 else "no") for row in csv.DictReader(file)]
    (tmp_path / "old.csv").write_text("age,dose,ill\n" + "".join(",".join(row) + "\n" for row in rows * 20))
    old = {**tables, "table": tmp_path / "old.csv"}
    assert _run(old, tmp_path / "rule", "semi-private", epsilon=50.0) == 0
    given = ["--student", str(tmp_path / "rule"), "--label", "ill", "--classes", "no,yes", "--epsilon", "8"]
    size = ["--teachers", "200", "--dissents", "5", "--no-quorums", "2", "--delta", "1e-8", "--learner", "stump"]
    command = ["fit", "student-first", str(tables["table"]), "--out", str(tmp_path / "model"), *given, *size, "--json"]
    assert main(command) == 0
    (tmp_path / "asked.csv").write_text("age,dose\n21,0.0\n60,0.1\n88,0.1\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "asked.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"] == ["no", "yes", "yes"]
    assert main(["predict", str(tmp_path / "rule"), str(tmp_path / "asked.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"] == ["no", "no", "yes"]
    assert main([*command[:4], str(tmp_path / "other"), *given[:1], str(tmp_path / "model"), *given[2:]]) == 1
    assert "--student takes the folder of a published classifier" in " ".join(capsys.readouterr().err.split())


def test_names_of_classes():
    assert [make_concept(name, 1).features for name in get_args(ConceptName)] == [1] * 6
    assert make_concept("conjunctions", 4) == Conjunctions([2, 2, 2, 2])


def test_every_hypothesis_survives_being_written_down():
    square = [[0.0, 0.0], [0.1, 1.0], [1.0, 0.0], [2.0, 1.0]]
    seen = {"Threshold", "Constant"}
    known = [Threshold(-np.inf), Threshold(0.1, upward=False), Constant(features=2, label=1), Interval(np.inf, np.inf)]
    for concept in (Boxes(2), Halfspaces(2), Stumps(features=2), Conjunctions([3, 2])):
        known += list(concept.dichotomies(square))
    known += [*Intervals().dichotomies([0.1, 0.7]), *Thresholds().dichotomies([0.1, 0.7])]
    for hypothesis in known:
        text = json.dumps(to_plain(hypothesis), allow_nan=False)
        again = from_plain(json.loads(text), *HYPOTHESES)
        assert again == hypothesis
        seen.add(type(again).__name__)
    assert seen == {known.__name__ for known in HYPOTHESES}


def test_what_is_no_hypothesis_is_not_loaded():
    with pytest.raises(InvalidInput, match="cannot be written"):
        to_plain(next(iter(Finite([lambda X: X[:, 0] > 0], features=1).dichotomies([1.0]))))
    for document, text in (
        ({"kind": "Member", "rule": "os.system"}, "does not know"),
        ({"kind": "Threshold", "cut": 1.0}, "damaged or was changed"),
        ({"kind": "Threshold", "cut": 1.0, "upward": True, "features": 3}, "damaged or was changed"),
    ):
        with pytest.raises(InvalidInput, match=text):
            from_plain(document, *HYPOTHESES)
