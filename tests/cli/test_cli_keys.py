"""`quorate keys` over several models, and the trail of who changed what."""

import json
import os
import pwd
import shutil

import numpy as np
import pytest

from quorate.cli import main
from quorate.core.ledger import find_ledger
from quorate.core.ledger._rules import to_json
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import open_folder, save


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    home = tmp_path_factory.mktemp("fitted")
    X, y = np.array([[0.0], [1.0]] * 2000), np.array([0, 1] * 2000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORATE_STATE", str(home / "state"))
        for name in ("triage", "icu"):
            made = PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
            save(made.fit(X, y), home / name)
    return home


@pytest.fixture
def models(fitted, tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    return [shutil.copytree(fitted / name, tmp_path / name) for name in ("triage", "icu")]


@pytest.fixture
def run(capsys):
    def run(*words, code=0):
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        return capsys.readouterr()

    return run


def opens(models, token):
    """Return which models a token opens."""
    ledgers = [find_ledger(model, fingerprint=open_folder(model).fingerprint) for model in models]
    return [ledger.find_key(token) is not None for ledger in ledgers]


def test_a_key_of_an_organisation_is_rotated_and_revoked_everywhere(models, run):
    triage, icu = models
    first = run("keys", "add", triage, "City clinic", "--budget", 0.3).out.strip()
    id = first.split("_")[1]
    assert opens(models, first) == [True, False]
    run("keys", "extend", triage, id, icu, "--budget", 0.02)
    assert opens(models, first) == [True, True]
    shares = [json.loads(run("keys", "list", model, "--json").out)[0]["budget"] for model in models]
    assert shares == [pytest.approx(0.3), pytest.approx(0.02)]
    second = run("keys", "rotate", triage, id, "--also", icu).out.strip()
    assert (opens(models, first), opens(models, second)) == ([False, False], [True, True])
    third = run("keys", "rotate", triage, id).out.strip()
    assert (opens(models, second), opens(models, third)) == ([False, True], [True, False])
    run("keys", "extend", triage, id, icu, "--budget", 1.0)  # what is there gets the secret, and keeps its share
    assert opens(models, third) == [True, True]
    assert json.loads(run("keys", "list", icu, "--json").out)[0]["budget"] == pytest.approx(0.02)
    run("keys", "revoke", triage, id, "--also", icu)
    assert opens(models, third) == [False, False]


def test_a_key_is_extended_with_a_share_and_to_something(models, run):
    triage, icu = models
    id = run("keys", "add", triage, "City clinic", "--unlimited").out.split("_")[1]
    run("keys", "extend", triage, id, icu)
    assert json.loads(run("keys", "list", icu, "--json").out)[0]["budget"] == pytest.approx(0.1)
    assert "other models" in run("keys", "extend", triage, id, code=1).err
    assert "must have a key 'nobody'" in run("keys", "extend", triage, "nobody", icu, code=1).err
    other = run("keys", "add", triage, "Ward 3").out.split("_")[1]
    assert "has no key" in run("keys", "revoke", triage, other, "--also", icu, code=1).err
    assert json.loads(run("keys", "list", triage, "--json").out)[1]["revoked"]  # in the first model it is done


def test_the_log_names_the_user_and_is_checked(models, run, tmp_path):
    triage, _ = models
    run("keys", "add", triage, "Ms Rossi", "--scope", "keys")
    id = run("keys", "add", triage, "Ward 3", "--budget", 0.2).out.split("_")[1]
    run("keys", "change", triage, id, "--quota", 5, "--lift", "budget")
    lines = [json.loads(line) for line in run("keys", "log", triage).out.splitlines()]
    user = pwd.getpwuid(os.getuid()).pw_name
    assert [line["event"] for line in lines] == ["opened", "key_added", "key_added", "key_changed"]
    assert {(line["by"]["via"], line["by"]["name"]) for line in lines[1:]} == {("command", user)}
    assert lines[1]["details"]["key"].keys() == {"id", "name", "scopes", "created"}  # it may not ask, and has no share
    assert lines[3]["details"] == {"id": id, "values": {"quota": 5, "budget": None}}
    out = tmp_path / "lines.jsonl"
    assert "4 lines" in run("keys", "log", triage, "--out", out).err
    assert "4 lines" in run("keys", "log", triage, "--check", out).err
    assert "exists" in run("keys", "log", triage, "--out", out, code=1).err
    assert len(run("keys", "log", triage, "--after", lines[2]["seq"]).out.splitlines()) == 1
    out.write_text(out.read_text().replace("Ward 3", "Ward 4"))
    assert "line 3 was changed" in run("keys", "log", triage, "--check", out, code=1).err


def test_a_ledger_without_subjects_and_proposals_is_one_that_the_version_before_reads(models, run):
    triage, _ = models
    run("keys", "add", triage, "Ward 3")
    ledger = find_ledger(triage, fingerprint=open_folder(triage).fingerprint)
    added = next(entry.event.body["key"] for entry in ledger.entries() if entry.event.kind == "key_added")
    document = to_json(ledger.state())
    for names in (added, document["keys"][0], document):
        assert names.keys().isdisjoint({"issuer", "subject", "proposals"})
