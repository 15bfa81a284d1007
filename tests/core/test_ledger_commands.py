"""`quorate ledger` and `quorate keys`, end to end, and what they refuse."""

import fcntl
import itertools
import json
import re
import shutil
import sqlite3

import numpy as np
import pytest

from quorate.cli import main
from quorate.core.errors import BudgetSpent
from quorate.core.ledger import find_ledger
from quorate.core.ledger._requests import answer_row
from quorate.core.ledger.chain import digest_rows
from quorate.core.requests import Request
from quorate.core.rows import query_digests
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import load, open_folder, save


def quorate(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model that answers 40 queries and no more, saved and never asked. Tests take copies."""
    folder = tmp_path_factory.mktemp("fitted") / "model"
    X, y = np.array([[0.0], [1.0]] * 2000), np.array([0, 1] * 2000)
    classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORATE_STATE", str(folder.parent / "state"))
        save(classifier.fit(X, y), folder)
    return folder


@pytest.fixture
def model(fitted, tmp_path, monkeypatch):
    """A copy that no other test spends from: the mark outside the folder is this test's own."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    return shutil.copytree(fitted, tmp_path / "model")


def ask(folder, *values):
    """Ask some queries and stop cleanly, so that what was not used is returned."""
    classifier = load(folder)
    answered = classifier.predict(np.array(values, dtype=float)[:, None]).answered
    classifier.session_.close()
    return answered


def shown(capsys, *arguments, code=0):
    capsys.readouterr()
    assert quorate(*arguments) == code
    return capsys.readouterr()


def figures(capsys, folder):
    return json.loads(shown(capsys, "ledger", "show", folder, "--json").out)


def edit(folder, statement, *values):
    """Change the ledger behind its back."""
    connection = sqlite3.connect(folder / "ledger.sqlite")
    with connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def test_show_says_what_was_spent(model, capsys):
    before = figures(capsys, model)
    assert (before["epsilon"], before["left"], before["epsilon_spent"]) == (2.0, 1.0, 0.0)
    assert before["keys"] == before["leases"] == []
    assert ask(model, 0.0, 0.25, 0.5, 0.75).all()
    after = figures(capsys, model)
    assert after["left"] == pytest.approx(0.9, abs=0.01)
    assert 0 < after["epsilon_spent"] < 2.0
    assert after["entries"] > before["entries"]
    assert after["head"] != before["head"]
    table = shown(capsys, "ledger", "show", model)
    assert table.err == ""
    assert "0 in use, 0 revoked" in table.out
    assert f"{100 * after['left']:.2f}%" in table.out


def test_verify_finds_a_ledger_sound(model, capsys):
    ask(model, 0.0, 0.25)
    said = shown(capsys, "ledger", "verify", model)
    assert said.out.startswith("sound: ")
    made = json.loads(shown(capsys, "ledger", "verify", model, "--json").out)
    assert made["sound"]
    assert made["problems"] == []
    now = figures(capsys, model)
    assert (made["entries"], made["head"]) == (now["entries"], now["head"])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE quorate_snapshot SET state = replace(state, '\"epsilon\":2.0', '\"epsilon\":9.0')",
        "DELETE FROM quorate_answer",
    ],
)
def test_verify_finds_an_edited_ledger(model, capsys, statement):
    ask(model, 0.0, 0.25)
    edit(model, statement)
    said = shown(capsys, "ledger", "verify", model, code=1)
    assert said.out == ""
    assert said.err.startswith("quorate: ")
    assert "Traceback" not in said.err
    made = json.loads(shown(capsys, "ledger", "verify", model, "--json", code=1).out)
    assert not made["sound"]
    assert made["problems"]


def test_an_old_copy_is_refused_until_it_is_restored(model, tmp_path, capsys):
    ask(model, 0.0, 0.25)
    backup = shutil.copytree(model, tmp_path / "backup")
    ask(model, 0.5, 0.75)
    later = figures(capsys, model)
    shutil.rmtree(model)
    shutil.copytree(backup, model)
    for command in (("show",), ("verify",), ("export",)):
        said = shown(capsys, "ledger", *command, model, code=1)
        assert "quorate ledger restore" in said.err
    said = shown(capsys, "ledger", "restore", model)
    assert "is in use again" in said.err
    restored = figures(capsys, model)
    assert restored["left"] <= later["left"]
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")
    assert ask(model, 0.0, 0.25).all()  # what the copy remembers is free
    assert figures(capsys, model)["left"] == restored["left"]


def test_a_backup_is_drilled_and_restored_and_gives_nothing_back(model, tmp_path, capsys):
    backup = tmp_path / "backups" / "monday"
    serving = load(model, lease=5)  # It has a lease out while the backup is made.
    serving.predict(np.array([[0.0]]))
    assert "its ledger is sound" in shown(capsys, "ledger", "backup", model, backup).err
    serving.session_.close()
    assert {path.stat().st_mode & 0o77 for path in (backup, *backup.iterdir())} == {0}
    assert not (backup / "ledger.mark").exists()
    copy = shutil.copytree(backup, tmp_path / "copy")
    assert "ledger.mark is missing" in shown(capsys, "ledger", "verify", copy, code=1).err
    assert "never overwritten" in shown(capsys, "ledger", "backup", model, backup, code=1).err
    files = {path.name: path.read_bytes() for path in backup.iterdir()}
    at_backup = json.loads(shown(capsys, "ledger", "drill", model, backup, "--json").out)
    ask(model, 0.5, 0.75)
    later, marks = figures(capsys, model)["left"], (model / "ledger.mark").read_bytes()
    drilled = json.loads(shown(capsys, "ledger", "drill", model, backup, "--json").out)
    assert drilled["left_by_marks"] <= later
    assert drilled["left_by_marks"] < at_backup["left_by_marks"]
    assert (model / "ledger.mark").read_bytes() == marks
    assert {path.name: path.read_bytes() for path in backup.iterdir()} == files
    assert list(backup.parent.iterdir()) == [backup]
    restored = json.loads(shown(capsys, "ledger", "restore", model, "--backup", backup, "--json").out)
    assert restored["left"] == pytest.approx(drilled["left_by_marks"])
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")
    assert ask(model, 0.0).all()  # The backup remembers this answer.
    assert figures(capsys, model)["left"] == restored["left"]


def test_a_backup_on_a_new_machine_answers_nothing_new(model, tmp_path, capsys, monkeypatch):
    backup, new = tmp_path / "backup", tmp_path / "new"
    ask(model, 0.0)
    shown(capsys, "ledger", "backup", model, backup)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state of the new machine"))
    assert "--charge all" in shown(capsys, "ledger", "drill", new, backup).err
    assert "charge all" in shown(capsys, "ledger", "restore", new, "--backup", backup, code=1).err
    shown(capsys, "ledger", "restore", new, "--charge", "all")
    assert ask(new, 0.0).all()
    with pytest.raises(BudgetSpent):
        ask(new, 0.5)


@pytest.mark.parametrize("harm", ["file", "entry", "key", "another model"])
def test_a_backup_that_is_not_whole_is_not_restored(model, fitted, tmp_path, capsys, harm):
    backup = tmp_path / "backup"
    shown(capsys, "ledger", "backup", model, backup)
    before = (model / "ledger.sqlite").read_bytes()
    if harm == "file":
        (backup / "teachers.npz").write_bytes(b"")
    elif harm == "key":
        (backup / "ledger.key").write_text("00" * 32)
    elif harm == "entry":
        edit(backup, "UPDATE quorate_entry SET body = replace(body, '2', '3')")
    else:
        (backup / "manifest.json").write_text((backup / "manifest.json").read_text() + " ")
    for command in (("drill", model, backup), ("restore", model, "--backup", backup)):
        shown(capsys, "ledger", *command, code=1)
    assert (model / "ledger.sqlite").read_bytes() == before
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")


def test_a_backup_of_a_ledger_in_a_database_has_the_folder_alone(model, postgres_url, tmp_path, capsys):
    backup = tmp_path / "backup"
    ask(model, 0.0)
    shown(capsys, "ledger", "move", model, postgres_url)
    assert json.loads(shown(capsys, "ledger", "backup", model, backup, "--json").out)["entries"] > 0
    assert (backup / "ledger.json").exists()
    assert not (backup / "ledger.sqlite").exists()
    assert "by its own means" in shown(capsys, "ledger", "restore", model, "--backup", backup, code=1).err
    assert ask(model, 0.0).all()


def test_a_ledger_in_use_is_not_replaced(model, tmp_path, capsys, monkeypatch):
    backup = tmp_path / "backup"
    shown(capsys, "ledger", "backup", model, backup)
    with open(model / "ledger.lock") as lock, monkeypatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("QUORATE_DATABASE_SECONDS", "0.5")  # it waits for the lock in vain
        assert "stop the server" in shown(capsys, "ledger", "restore", model, "--backup", backup, code=1).err
    assert not list(model.glob(".*"))
    serving = load(model, lease=5)
    serving.predict(np.array([[0.0]]))
    assert "stop the server" in shown(capsys, "ledger", "restore", model, "--backup", backup, code=1).err
    serving.session_.close()
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")


def test_compact_lets_entries_go_and_charges_stay(model, tmp_path, capsys):
    ask(model, 0.0, 0.25)
    exported = tmp_path / "entries.jsonl"
    assert quorate("ledger", "export", model, "--out", exported) == 0
    before = figures(capsys, model)
    said = shown(capsys, "ledger", "compact", model)
    assert "0 answers forgotten" in said.err
    after = figures(capsys, model)
    assert (after["left"], after["entries"]) == (before["left"], before["entries"] + 1)
    assert ask(model, 0.0, 0.25).all()  # free
    told = json.loads(shown(capsys, "ledger", "compact", model, "--answers", "0", "--json").out)
    assert told == {"through": after["entries"], "answers_forgotten": 2}
    assert figures(capsys, model)["left"] == before["left"]
    assert ask(model, 0.0, 0.25).all()  # drawn again, and paid for again
    assert figures(capsys, model)["left"] < before["left"]
    assert shown(capsys, "ledger", "verify", model, "--export", exported).out.startswith("sound: ")
    assert "days" in shown(capsys, "ledger", "compact", model, "--answers", "-1", code=1).err


def test_export_writes_every_entry(model, tmp_path, capsys):
    ask(model, 0.0, 0.25)
    lines = [json.loads(line) for line in shown(capsys, "ledger", "export", model).out.splitlines()]
    now = figures(capsys, model)
    assert [line["seq"] for line in lines] == list(range(1, now["entries"] + 1))
    assert lines[-1]["mac"] == now["head"]
    assert lines[0]["kind"] == "opened"
    assert set(lines[0]) == {"seq", "at", "kind", "body", "mac"}
    out = tmp_path / "ledger.jsonl"
    assert f"{len(lines):,} entries written" in shown(capsys, "ledger", "export", model, "--out", out).err
    assert [json.loads(line) for line in out.read_text().splitlines()] == lines


def hashes_of(row, callers, labels=(0, 1, -1)):
    """Return every hash that a query may have left in an entry, for whoever may have asked it and was answered what."""
    (query,) = query_digests(np.array([[row]]))
    for caller, label in itertools.product(callers, labels):
        yield digest_rows([answer_row(caller, query, label)])


def test_an_export_cannot_be_guessed(model, capsys):
    for value in (0.0, 0.25, 0.5):
        ask(model, value)
    space = [value / 8 for value in range(9)]
    kept = [str(entry.event.body) for entry in find_ledger(model, fingerprint=open_folder(model).fingerprint).entries()]
    found = [value for value in space if any(guess in str(kept) for guess in hashes_of(value, [""]))]
    assert found == [0.0, 0.25, 0.5]  # the ledger itself is for the owner's eyes alone
    text = shown(capsys, "ledger", "export", model).out
    assert not any(guess in text for value in space for guess in hashes_of(value, [""]))
    sealed = [line["body"]["digest"] for line in map(json.loads, text.splitlines()) if "digest" in line["body"]]
    assert len(set(sealed)) == 3
    assert all(re.fullmatch("hmac-sha256:[0-9a-f]{64}", seal) for seal in sealed)


def test_an_export_is_held_against_the_ledger(model, tmp_path, capsys):
    ask(model, 0.0)
    out, old = tmp_path / "ledger.jsonl", tmp_path / "old"
    shutil.copytree(model, old)
    ask(model, 0.25)
    shown(capsys, "ledger", "export", model, "--out", out)
    ask(model, 0.5)  # the ledger goes on
    assert shown(capsys, "ledger", "verify", model, "--export", out).out.startswith("sound: ")
    lines = out.read_text().splitlines()
    for changed in ([*lines[:2], lines[2].replace('"at"', '"at "'), *lines[3:]], [*lines[:2], *lines[3:]], ["{"]):
        (tmp_path / "changed.jsonl").write_text("\n".join(changed))
        told = shown(capsys, "ledger", "verify", model, "--export", tmp_path / "changed.jsonl", code=1)
        assert "of the export is not the one in the ledger" in told.err
    for name in ("ledger.sqlite", "ledger.mark"):  # an old copy, with its marks
        shutil.copy(old / name, model / name)
    shutil.rmtree(tmp_path / "state")
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (model / name).unlink(missing_ok=True)
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")
    assert "the ledger was rolled back" in shown(capsys, "ledger", "verify", model, "--export", out, code=1).err
    assert "No such file" in shown(capsys, "ledger", "verify", model, "--export", tmp_path / "none", code=1).err


def test_keys_are_made_listed_and_revoked(model, capsys):
    assert "there are no keys" in shown(capsys, "keys", "list", model).err
    said = shown(capsys, "keys", "add", model, "alice [of ward 3]", "--quota", "200", "--per-minute", "5")
    token = said.out.strip()
    assert token.startswith("qk_")
    assert "\n" not in token
    assert token not in said.err
    made = json.loads(shown(capsys, "keys", "add", model, "owner", "--scope", "ask", "--scope", "admin", "--json").out)
    assert made["key"].startswith(f"qk_{made['id']}_")
    first, second = json.loads(shown(capsys, "keys", "list", model, "--json").out)
    assert (first["name"], first["scopes"], first["quota"], first["per_minute"]) == (
        "alice [of ward 3]",
        ["ask"],
        200,
        5,
    )
    assert set(second["scopes"]) == {"ask", "admin"}
    assert "revoke" in said.err
    assert first["id"] in said.err
    table = shown(capsys, "keys", "list", model).out
    assert "alice [of" in table
    assert json.loads(shown(capsys, "keys", "revoke", model, first["id"], "--json").out) == first | {"revoked": True}
    assert "'owner' is revoked" in shown(capsys, "keys", "revoke", model, second["id"]).err
    first, second = json.loads(shown(capsys, "keys", "list", model, "--json").out)
    assert first["revoked"]
    assert second["revoked"]
    kept = b"".join(path.read_bytes() for path in model.iterdir())
    for secret in (token, made["key"]):
        assert secret.split("_", 2)[2].encode() not in kept


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["ledger", "show", "nowhere"], 1, "nowhere is not a model"),
        (["ledger", "verify", "nowhere"], 1, "nowhere is not a model"),
        (["ledger", "export", "nowhere"], 1, "nowhere is not a model"),
        (["ledger", "move", "nowhere", "postgresql://host/name"], 1, "nowhere is not a model"),
        (["ledger", "restore", "nowhere"], 1, "nowhere is not a model"),
        (["keys", "list", "nowhere"], 1, "nowhere is not a model"),
        (["ledger", "export", "{model}", "--out", "{model}"], 1, "it is a folder"),
        (["ledger", "export", "{model}", "--out", "{model}/no/such.jsonl"], 1, "there is no folder"),
        (["ledger", "move", "{model}", "mysql://host/name"], 1, "postgresql://"),
        (["keys", "revoke", "{model}", "nobody"], 1, "nobody"),
        (["keys", "add", "{model}", ""], 1, "name"),
        (["keys", "add", "{model}", "alice", "--quota", "-1"], 1, "quota"),
        (["keys", "add", "{model}", "alice", "--per-minute", "-1"], 1, "per_minute"),
        (["keys", "add", "{model}", "alice", "--scope", "rule"], 2, "rule"),
        (["keys", "add", "{model}"], 2, "name"),
        (["keys", "add", "{model}", "alice", "--quota", "many"], 2, "quota"),
        (["ledger", "shew", "{model}"], 2, "shew"),
        (["serve", "nowhere"], 1, "nowhere is not a model"),
        (["serve", "{model}", "{model}"], 1, "same name"),
        (["serve", "{model}", "--no-keys", "--host", "0.0.0.0"], 1, "loopback"),
        (["serve", "{model}", "--workers", "0"], 1, "workers"),
        (["serve", "{model}", "--port", "70000"], 1, "port"),
        (["serve"], 1, "model"),  # or --repository alone
    ],
)
def test_bad_input_is_refused(model, capsys, arguments, code, said):
    given = [argument.format(model=model) for argument in arguments]
    made = shown(capsys, *given, code=code)
    assert said.lower() in (made.err + made.out).lower()
    assert "Traceback" not in made.err


def test_a_ledger_moves_to_postgresql(model, postgres_url, capsys):
    ask(model, 0.0, 0.25)
    before = figures(capsys, model)
    said = shown(capsys, "ledger", "move", model, postgres_url)
    assert "postgresql://" in said.err
    after = figures(capsys, model)
    assert after["place"].startswith("postgresql://")
    assert after["left"] <= before["left"]
    assert after["left"] == pytest.approx(before["left"], abs=1e-9)
    assert ask(model, 0.0, 0.25).all()
    assert figures(capsys, model)["left"] == after["left"]
    assert ask(model, 0.5).all()
    assert figures(capsys, model)["left"] < after["left"]
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")
    assert quorate("ledger", "move", model, postgres_url) == 1


def test_without_marks_an_old_copy_is_charged_with_everything_or_stays_closed(model, tmp_path, capsys, monkeypatch):
    ask(model, 0.0, 0.25)
    (model / "ledger.mark").unlink()
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "new machine"))
    assert "ledger.mark is missing" in shown(capsys, "ledger", "verify", model, code=1).err
    assert "no mark says" in shown(capsys, "ledger", "restore", model, code=1).err
    assert "0.00% of the budget is left" in shown(capsys, "ledger", "restore", model, "--charge", "all").err
    assert shown(capsys, "ledger", "verify", model).out.startswith("sound: ")
    assert ask(model, 0.0, 0.25).all()  # old answers are repeated
    with pytest.raises(BudgetSpent):
        ask(model, 0.5)


def test_an_old_copy_of_a_shared_ledger_is_restored_on_every_host(
    model, postgres_server, tmp_path, capsys, monkeypatch
):
    import psycopg

    url = postgres_server.database()
    first, second = model, tmp_path / "second"

    def on(host):
        monkeypatch.setenv("QUORATE_STATE", str(tmp_path / f"state of {host.name}"))
        return host

    assert json.loads(shown(capsys, "ledger", "move", on(first), url, "--json").out)["left"] == 1.0
    shutil.copytree(first, second)
    ask(on(first), 0.0)
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        connection.execute(f"CREATE DATABASE old_copy TEMPLATE {name}")
    ask(on(second), 0.25)
    ask(on(first), 0.5)
    spent = figures(capsys, first)["left"]
    for host in (first, second):
        (host / "ledger.json").write_text(json.dumps({"place": postgres_server.url("old_copy")}))
        assert "rolled back" in shown(capsys, "ledger", "verify", on(host), code=1).err
    shown(capsys, "ledger", "restore", on(first))
    shown(capsys, "ledger", "verify", on(second), code=1)
    assert json.loads(shown(capsys, "ledger", "restore", on(second), "--json").out)["left"] <= spent
    for host in (first, second):
        assert shown(capsys, "ledger", "verify", on(host)).out.startswith("sound: ")
        assert figures(capsys, host)["left"] <= spent


def _limits_of(capsys, model):
    keys = json.loads(shown(capsys, "keys", "list", model, "--json").out)
    return {key["name"]: (key["budget"] and round(key["budget"], 9), key["no_quorums"]) for key in keys}


def test_a_key_has_a_tenth_of_the_budget_unless_something_else_is_said(model, capsys):
    shown(capsys, "keys", "project", model, "ward", "--budget", "0.5")
    shown(capsys, "keys", "project", model, "open", "--quota", "5")
    told = {
        name: shown(capsys, "keys", "add", model, name, *options).err
        for name, options in {
            "plain": [],
            "admin": ["--scope", "admin"],
            "quota": ["--quota", "5"],
            "half": ["--budget", "0.5"],
            "counted": ["--no-quorums", "3"],
            "ward": ["--project", "ward"],
            "open": ["--project", "open"],
            "all": ["--unlimited"],
            "reader": ["--scope", "budget"],
        }.items()
    }
    tenth, none = (0.1, None), (None, None)
    assert _limits_of(capsys, model) == {
        "plain": tenth,
        "admin": tenth,
        "quota": tenth,
        "half": (0.5, None),
        "counted": (None, 3),
        "ward": none,
        "open": tenth,
        "all": none,
        "reader": none,
    }
    assert "may use 0.1 of the budget (--budget)" in told["plain"]
    assert "may use the whole budget" in told["all"]
    assert "may use the share of its project" in told["ward"]
    assert "may use" not in told["reader"]
    assert "leave one out" in shown(capsys, "keys", "add", model, "b", "--unlimited", "--budget", "0.5", code=1).err


def test_a_key_without_a_stated_share_cannot_use_up_the_budget(model, capsys):
    token = json.loads(shown(capsys, "keys", "add", model, "a", "--json").out)["key"]
    classifier = load(model)
    try:
        requests = [Request(np.array([[float(row)]]), caller=token.split("_")[1]) for row in range(40)]
        replies = [classifier.session_.ask_all([request])[0] for request in requests]
    finally:
        classifier.session_.close()
    assert sum(not isinstance(reply, Exception) for reply in replies) == 4  # a tenth of 40
    assert figures(capsys, model)["left"] >= 0.9


def test_shares_are_given_changed_and_shown(model, capsys):
    project = json.loads(shown(capsys, "keys", "project", model, "ward", "--budget", "0.25", "--json").out)
    assert (project["name"], project["budget_spent"]) == ("ward", 0)
    assert project["budget"] == pytest.approx(0.25)
    made = json.loads(
        shown(
            capsys, "keys", "add", model, "a", "--project", "ward", "--no-quorums", "7", "--expires", "2", "--json"
        ).out
    )
    (key,) = json.loads(shown(capsys, "keys", "list", model, "--json").out)
    assert (key["project"], key["no_quorums"], key["no_quorums_met"], key["last_use"]) == ("ward", 7, 0, None)
    assert "0 of 7" in shown(capsys, "keys", "list", model).out
    changed = ("keys", "change", model, made["id"], "--no-quorums", "9", "--lift", "quota", "--project", "", "--json")
    key = json.loads(shown(capsys, *changed).out)
    assert (key["project"], key["no_quorums"]) == (None, 9)
    again = json.loads(shown(capsys, "keys", "rotate", model, made["id"], "--json").out)
    assert again["id"] == made["id"]
    assert again["key"] != made["key"]
    shown(capsys, "keys", "change", model, made["id"], "--lift", "colour", code=2)
    for wrong in (("--budget", "2"), ("--no-quorums", "-1"), ("--per-phase", "1")):
        shown(capsys, "keys", "change", model, made["id"], *wrong, code=1)
