"""The specification of a saved model: `check_model` takes a fitted model of any class through all of it.

the class      is in the registry by its kind and name, and says what it takes, gives and how it spends
the folder     lists every file; who may read it is as the spending says; a page states a published claim
loading        gives the same class, claim, classes and answers, bit for bit, in another process without pickle
the state      that is loaded is the one that was saved: written again it gives the same values and the same bytes
the budget     goes on: what was spent stays spent, what was answered is free, and the ledger is never left behind
serving        takes and gives the same tensors before and after, and a published model says the same
refusals       of bad queries come before anything is spent, and a model with a budget is not copied
tampering      with any file, the access or the manifest is refused, and so is a folder without its ledger
"""

import copy
import json
import pickle
from typing import get_args

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags

from quorate import BudgetSpent, InvalidInput, load, save
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import LEDGER_FILES
from quorate.core.requests import Request
from quorate.models.saving import PrivateFolder, PublishedFolder, SavedModel, class_of, open_folder, whole_spending
from quorate.models.saving.contract import Inputs, Outputs, find_class
from quorate.release.answers import parse_queries
from support.forked import run_forked

# Loads a model where nothing can be unpickled, and says what it says; then asks it by the command line.
ELSEWHERE = """
import json, pickle, sys
from pathlib import Path
from quorate import load
from quorate.cli import main
from model_contract import told
import skops.io, sklearn.linear_model, sklearn.tree
import quorate.release, quorate.models.students, quorate.models.everlasting

def refuse(*given, **named):
    raise AssertionError("a model was unpickled")

pickle.load = pickle.loads = pickle.Unpickler = refuse
print(json.dumps(told(load(Path(sys.argv[1])), json.loads(sys.argv[2]))))
sys.stdout.flush()
sys.exit(main(["predict", sys.argv[1], sys.argv[3], "--json"]))
"""


def told(model, queries):
    """Return all that a model says of itself and to these queries, as plain values."""
    classes = getattr(model, "classes_", None)
    answers = answers_of(model, queries)
    closed(model)
    return {
        "type": type(model).__name__,
        "claim": model.claim_,
        "classes": None if classes is None else classes.tolist(),
        "tensors": tensors_of(model),
        "answers": answers,
    }


def answers_of(model, queries):
    if model.outputs == "online shares":
        return [[one.query, one.answer, one.error] for one in model.ask(parse_queries(queries, model.subject))]
    if model.outputs == "released shares":
        return model.answer().to_pylist()
    return model.predict(np.array(queries)).tolist()


def tensors_of(model):
    """Return what a server would take and give, by the protocol's description of tensors."""
    pytest.importorskip("starlette", reason="the server's packages are not installed")
    from quorate.service.model import Model

    served = (Model.of_published if model.spending.published else Model.of)("m", model)
    described = served.metadata()
    return [described["inputs"], described["outputs"]]


def check_model(model, folder, *, kind, access, queries, table):
    """Save a model that is sure of its answers to `queries`, which stand in `table` too, and try all that can go wrong.

    The model is loaded in another process, without pickle, and asked there and by the command line, whose answers are
    returned.
    """
    check_class(model, kind, access)
    claim, classes, session = model.claim_, getattr(model, "classes_", None), getattr(model, "session_", None)
    folder.mkdir(mode=0o755)
    assert save(model, folder, extra={"note.txt": b"mine"}) == folder
    if access is PrivateFolder:
        with pytest.raises(InvalidInput, match="has a folder already"):
            save(model, folder.with_name("another"))
        if model.inputs == "rows" and model.session_ is not session:
            with pytest.raises((BudgetSpent, LedgerRefused, InvalidInput)):  # what was in memory answers no more
                session.ask(model.check_queries(np.array(queries)))
    expected = told(model, queries)
    assert (expected["claim"], expected["classes"]) == (claim, None if classes is None else classes.tolist())
    opened = open_folder(folder)
    assert (opened.kind, type(opened), opened.manifest["access"]) == (kind, access, access.access)
    assert class_of(opened) is type(model)
    check_files(folder, opened, claim)
    status, output, errors = run_forked(ELSEWHERE, str(folder), json.dumps(queries), str(table))
    assert status == 0, errors
    loaded, asked = (json.loads(line) for line in output.splitlines())
    assert loaded == expected
    if access is PublishedFolder and "epsilon_spent" in asked:
        assert asked["epsilon_spent"] == 0
    check_state(folder)
    check_spending(folder, opened, queries)
    check_tampering(folder, opened)
    return asked["answers"]


def check_class(model, kind, access):
    """The class stands in the registry, and says what the contract asks for."""
    found = type(model)
    assert issubclass(found, SavedModel)
    assert find_class(kind, found.__name__) is found is found.saved_as
    assert found.spending.published == (access is PublishedFolder)
    assert model.inputs in get_args(Inputs)
    assert model.outputs in get_args(Outputs)
    assert bool(found.summary) == found.spending.published
    with pytest.raises(InvalidInput, match="does not know"):
        find_class(kind, "object")

    class Mine(found):
        """A subclass of somebody else's: it would come back as another class."""

    assert Mine.saved_as is None
    assert type(found.__name__, (found,), {"kind": kind, "__module__": "mine"}).saved_as is None
    assert find_class(kind, found.__name__) is found


def check_state(folder):
    """A model that is loaded and written again has the same values and files, whatever its class keeps."""
    opened, model = open_folder(folder), load(folder)
    state = model.to_state()
    written = json.loads(json.dumps({**state.values}, default=lambda value: value.item()))
    assert written == {name: opened.manifest[name] for name in written}
    for name, content in state.files.items():
        assert name.endswith(".skops") or content == opened.contents[name], name  # skops writes ids of objects
    closed(model)


def check_spending(folder, opened, queries):
    """What was answered before is answered alike, at no cost; a published model says the same to a server."""
    model = load(folder)
    if isinstance(opened, PublishedFolder):
        check_served(model, queries)
        return
    ledger, remembers = model.session_.ledger, not model.spending.one_process or model.spending.hides_entries
    before = ledger.view()
    assert (before.spent.renyi, before.spent.slack) <= (before.capacity.renyi, before.capacity.slack)
    if remembers:
        answers = answers_of(model, queries)
        assert answers_of(model, queries) == answers
        assert ledger.view().spent == before.spent
    if model.inputs != "queries":
        check_refusals(model, queries)
    whole = whole_spending(opened, ledger.view())
    assert 0 <= whole.spent_epsilon <= max(whole.epsilon, 0.0)
    if hasattr(model, "spent_epsilon") and before.capacity.renyi:
        assert model.spent_epsilon() == pytest.approx(whole.spent_epsilon)
    closed(model)


def check_refusals(model, queries):
    """What is no query, and who is no caller, is refused before anything is spent; nothing with a budget is copied."""
    spent, ledger = model.session_.ledger.view().spent, model.session_.ledger
    wrong = [[[*queries[0], 1.0]], queries[0], np.empty((0, len(queries[0]))), [["text"] * len(queries[0])]]
    wrong += [] if get_tags(model).input_tags.allow_nan else [[[np.nan] * len(queries[0])]]
    for rows in wrong:
        with pytest.raises(ValueError, match=r"NaN|features|2D|sample|convert|dtype|numeric"):
            model.predict(rows)
    for caller in (None, 7, ["a"], "online"):
        for ask in (model.predict, getattr(model, "cost", model.predict)):
            with pytest.raises(InvalidInput, match="caller must"):
                ask(queries, caller=caller)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(model)
    assert not hasattr(clone(model), "session_")
    assert ledger.view().spent == spent


def check_served(model, queries):
    """A published model is served by `outputs`: the labels, values or shares are its own."""
    from quorate.service.model import Model

    if model.inputs == "queries":
        return  # test_models.py asks a release over HTTP
    served, rows = Model.of_published("m", model), np.array(queries)
    [reply] = served.session.ask_all([Request(rows)])
    names = [(name, False) for name in served.outputs.names]
    tensors = served.outputs.write(reply.labels, reply.refused, names, reply.told)
    given = {tensor.name: tensor.values for tensor in tensors}
    first = given["label"] if "label" in given else given.get("value", given.get("labels"))
    assert np.asarray(first).tolist() == model.predict(rows).tolist()


def check_files(folder, opened, claim):
    """Every file is listed or the ledger's; who may read them is as the type of the folder says."""
    names = {path.name for path in folder.iterdir()}
    listed = set(opened.manifest["files"])
    assert listed <= names
    assert "note.txt" in listed
    if isinstance(opened, PrivateFolder):
        assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
        own = {name for name in names if name.startswith((*class_of(opened).own_files, "ledger.sqlite-"))}
        assert names - listed - own - {"manifest.json"} <= set(LEDGER_FILES)
        assert "identity" in opened.manifest
    else:
        assert names == listed | {"manifest.json"}
        assert not {name for name in names if name.startswith(("teachers", "ledger", "phase"))}
        page = (folder / "GUARANTEE.md").read_text()
        assert page.splitlines()[2] == class_of(opened).summary
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
    if opened.access == "private":
        (folder / "manifest.json").write_text(f"{text} ")  # any change of its bytes
        with pytest.raises(LedgerRefused, match="belongs to another model"):
            load(folder)
        (folder / "manifest.json").write_text(text)
        (folder / "ledger.sqlite").rename(folder / "gone")
        with pytest.raises(LedgerRefused, match="without its ledger"):
            load(folder)
        (folder / "gone").rename(folder / "ledger.sqlite")
    for wrong in ("{", "[]", text.replace('"note.txt"', '"../note.txt"')):
        (folder / "manifest.json").write_text(wrong)
        with pytest.raises(InvalidInput, match="damaged"):
            load(folder)
    (folder / "manifest.json").write_text(text)


def closed(model):
    if hasattr(model, "session_"):
        model.session_.close()
    return model
