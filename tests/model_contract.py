"""What every saved model keeps to, whatever its kind: `check_model`."""

import json
import pickle

import numpy as np
import pytest

from forked import run_forked
from quorate import InvalidInput, load, save
from quorate.core.ledger.place import LEDGER_FILES
from quorate.models.saving import PrivateFolder, PublishedFolder, open_folder
from quorate.models.saving.kinds import _BY_KIND
from quorate.release.answers import parse_queries

# Loads a model where nothing can be unpickled, and says what it says; then asks it by the command line.
ELSEWHERE = """
import json, pickle, sys
from pathlib import Path
from quorate import load
from quorate.cli import main
from model_contract import told
import skops.io, sklearn.linear_model, sklearn.tree, quorate.release, quorate.models.students,
quorate.models.everlasting

def refuse(*given, **named):
    raise AssertionError("a model was unpickled")

pickle.load = pickle.loads = pickle.Unpickler = refuse
print(json.dumps(told(load(Path(sys.argv[1])), json.loads(sys.argv[2]))))
sys.stdout.flush()
sys.exit(main(["predict", sys.argv[1], sys.argv[3], "--json"]))
"""


def told(model, queries):
    """Return all that a model says of itself and to these queries, as plain values."""
    if hasattr(model, "ask"):  # an online release
        asked = model.ask(parse_queries(queries, model.subject))
        model.session_.close()
        return {
            "claim": model.claim_,
            "classes": None,
            "answers": [[one.query, one.answer, one.error] for one in asked],
        }
    if hasattr(model, "answer"):
        return {"claim": model.claim_, "classes": None, "answers": model.answer().to_pylist()}
    answers = model.predict(np.array(queries))
    if hasattr(model, "session_"):
        model.session_.close()
    classes = getattr(model, "classes_", None)
    return {
        "claim": model.claim_,
        "classes": None if classes is None else classes.tolist(),
        "answers": answers.tolist(),
    }


def check_model(model, folder, *, kind, access, queries, table):
    """Save a model that is sure of its answers to `queries`, which stand in `table` too, and try all that can go wrong.

    The model is loaded in another process, without pickle, and asked there and by the command line, whose answers are
    returned.
    """
    claim, classes = model.claim_, getattr(model, "classes_", None)
    assert save(model, folder, extra={"note.txt": b"mine"}) == folder
    expected = told(model, queries)
    assert (expected["claim"], expected["classes"]) == (claim, None if classes is None else classes.tolist())
    opened = open_folder(folder)
    assert (opened.kind, type(opened), opened.manifest["access"]) == (kind, access, access.access)
    check_files(folder, opened, claim)
    status, output, errors = run_forked(ELSEWHERE, str(folder), json.dumps(queries), str(table))
    assert status == 0, errors
    loaded, asked = (json.loads(line) for line in output.splitlines())
    assert loaded == expected
    if access is PublishedFolder and "epsilon_spent" in asked:
        assert asked["epsilon_spent"] == 0
    check_tampering(folder, opened)
    return asked["answers"]


def check_files(folder, opened, claim):
    """Every file is listed or the ledger's; who may read them is as the type of the folder says."""
    names = {path.name for path in folder.iterdir()}
    listed = set(opened.manifest["files"])
    assert listed <= names
    assert "note.txt" in listed
    if isinstance(opened, PrivateFolder):
        assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
        # of a running ledger, phase or journal
        own = {
            name
            for name in names
            if name.startswith(("phase", "units.sqlite", "ledger.sqlite-")) or name.endswith(".jsonl")
        }
        assert names - listed - own - {"manifest.json"} <= set(LEDGER_FILES)
        assert "identity" in opened.manifest
    else:
        assert names == listed | {"manifest.json"}
        assert not {name for name in names if name.startswith(("teachers", "ledger", "phase"))}
        page = (folder / "GUARANTEE.md").read_text()
        assert claim[1:] in page
        assert "Anybody." in page


def check_tampering(folder, opened):
    for name in opened.manifest["files"]:
        path = folder / name
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(InvalidInput, match=f"{name} was changed after the model was saved"):
            load(folder)
        path.unlink()
        with pytest.raises(InvalidInput, match=f"{name} is missing"):
            load(folder)
        path.write_bytes(content)
    (folder / "stray.pkl").write_bytes(pickle.dumps(print))
    closed(load(folder))  # a file that is not listed is not read
    if "schema.json" not in opened.manifest["files"]:
        (folder / "schema.json").write_text("{}")
        with pytest.raises(InvalidInput, match="not listed"):
            load(folder)
        (folder / "schema.json").unlink()
    text = (folder / "manifest.json").read_text()
    other = {"private": "published", "published": "private"}[opened.access]
    for wrong in (other, "secret"):
        (folder / "manifest.json").write_text(text.replace(f'"access": "{opened.access}"', f'"access": "{wrong}"'))
        with pytest.raises(InvalidInput, match=r"it is not loaded|does not say whether"):
            load(folder)
    for wrong in ("{", "[]", text.replace('"note.txt"', '"../note.txt"')):
        (folder / "manifest.json").write_text(wrong)
        with pytest.raises(InvalidInput, match="damaged"):
            load(folder)
    (folder / "manifest.json").write_text(text)
    assert opened.kind in _BY_KIND


def closed(model):
    if hasattr(model, "session_"):
        model.session_.close()
    return model
