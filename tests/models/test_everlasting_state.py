"""The state of an everlasting model on the disk: restarts, crashes, tampering, deletion, and what it may tell whom."""

import itertools
import json
import os
import sqlite3
import stat
import struct
import sys
import threading
from contextlib import closing

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from quorate import InvalidInput, PrivateClassifier
from quorate.auditing._plays import SeededNoise
from quorate.compute.ensemble import dealing
from quorate.core.errors import BudgetSpent, LedgerRefused, QuotaSpent, WrongProcess
from quorate.core.ledger import Ledger, find_ledger, move, restore
from quorate.core.ledger._moving import _copy
from quorate.core.ledger._rules import Event, Phase, apply, from_json, to_json
from quorate.core.ledger._store import SQLiteStore
from quorate.core.mechanisms import NO_QUORUM
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.core.requests import REFUSED, Request
from quorate.models.concepts import Halfspaces, Intervals, Stumps
from quorate.models.everlasting import EverlastingClassifier, Feed, Guarantee
from quorate.models.everlasting._arrivals import Seats
from quorate.models.everlasting._phase_folder import PhaseFolder
from quorate.models.everlasting.directions import MeanDirection
from quorate.models.saving import load, open_folder, reopen, save
from quorate.models.saving.folder import digest_of, open_private
from quorate.models.saving.saving import default_share
from support.everlasting_kills import BATCHES, SEATS, ask, batches, killed_at, small, what_is_wrong


@pytest.fixture
def folder(tmp_path):
    """A saved model that nobody has open."""
    classifier = small()
    made = save(classifier, tmp_path / "model")
    classifier.session_.close()
    return made


def fingerprint(folder):
    return digest_of((folder / "manifest.json").read_bytes())


def position_of(classifier):
    """Return how far a phase has come, what it has met, and its secret noises."""
    phase = classifier.session_.answerer.phase
    return classifier.progress_, phase.no_quorums, phase.noises()


def closed(classifier):
    classifier.session_.close()
    return classifier


# --- Going on --------------------------------------------------------------------------------------------------------


def _tape(monkeypatch):
    """Let all noise, and all dealing, come from one tape."""
    noise, dealt = SeededNoise(5), np.random.default_rng(6)
    for name, module in list(sys.modules.items()):
        if name.startswith("quorate.core.mechanisms") and hasattr(module, "system_noise"):
            monkeypatch.setattr(module, "system_noise", noise)
    monkeypatch.setattr(dealing, "_secret_permutation", dealt.permutation)


@pytest.mark.parametrize("settings", [{}, {"growth": 1.3, "max_phase_size": 80}, {"refresh": "pool"}])
def test_a_model_that_restarts_all_the_time_answers_as_one_in_memory(tmp_path, monkeypatch, settings):
    """One tape of noise: the same answers, seats, counts and drift, through several phases."""
    told = []
    for kept in (False, True):
        with monkeypatch.context() as patch:
            _tape(patch)
            classifier = small(**settings)
            if kept:
                save(classifier, tmp_path / "model")
            told.append([])
            for place, X in enumerate([X for seed in (1, 2) for X in batches(seed).values()]):
                feeds = settings.get("refresh") == "pool" and place % 2
                if feeds:
                    classifier.feed(X)
                answers = None if feeds else classifier.predict(X).tolist()
                told[-1].append((answers, classifier.progress_, classifier.session_.answerer.phase.no_quorums))
                if kept:
                    closed(classifier)
                    classifier = load(tmp_path / "model")
    assert told[0] == told[1]
    assert told[0][-1][1]["phase"] > (2 if "refresh" in settings else 4)


def test_labelboost_goes_on_with_its_labelled_set(tmp_path, monkeypatch):
    told = []
    for kept in (False, True):
        with monkeypatch.context() as patch:
            _tape(patch)
            X = np.random.default_rng(0).normal(size=(4000, 1))
            made = small(relabel="labelboost", phase_size="auto", epsilon=80.0, kappa=2.0, chunk=20, labelled=0.2)
            if kept:
                save(made, tmp_path / "model")
            told.append([])
            for start in range(0, 4000, 400):
                told[-1].append((made.predict(X[start : start + 400]).tolist(), made.progress_))
                if kept:
                    closed(made)
                    made = load(tmp_path / "model")
    assert told[0] == told[1]
    assert told[1][-1][1]["phase"] > 2


@pytest.mark.parametrize(
    "estimator",
    [Stumps(2), Intervals(), Halfspaces(2), MeanDirection(), LogisticRegression(), KNeighborsClassifier(1)],
)
def test_teachers_of_every_kind_come_back(tmp_path, estimator):
    features = 1 if isinstance(estimator, Intervals) else 2
    X = np.random.default_rng(0).normal(size=(240, features))
    settings = {"epsilon": 60.0, "delta": 1e-2, "chunk": 12, "no_quorums": 12, "phase_size": SEATS}
    classifier = EverlastingClassifier(estimator, classes=["no", "yes"], **settings).fit(
        X, np.where(X[:, 0] >= 0, "yes", "no")
    )
    save(classifier, tmp_path / "model")
    for phase in (1, 2):
        counted = classifier.session_.answerer.phase.ensemble.count(X).put_to(lambda votes: votes)
        classifier = load(closed(classifier).session_.folder.path)
        assert (classifier.session_.answerer.phase.ensemble.count(X).put_to(lambda votes: votes) == counted).all()
        classifier.predict(X[: SEATS - classifier.seats_taken_ + 1])
        assert classifier.phase_ == phase + 1
    closed(classifier)


def test_a_model_may_be_saved_in_the_middle_of_a_phase(tmp_path):
    classifier = small()
    classifier.predict(np.random.default_rng(1).normal(size=(SEATS + 10, 1)))
    before = position_of(classifier)
    save(classifier, tmp_path / "model")
    assert position_of(classifier) == before
    with pytest.raises(InvalidInput, match="has a folder already"):
        save(classifier, tmp_path / "another")
    closed(classifier)


def test_who_waits_while_a_model_is_saved_is_answered_from_its_folder(tmp_path, monkeypatch):
    classifier, told = small(), []
    begin = PhaseFolder.begin

    def wait_and_begin(folder):  # while the session is locked
        waits.start()
        begin(folder)

    waits = threading.Thread(target=lambda: told.append(classifier.predict([[2.0]]).tolist()))
    monkeypatch.setattr(PhaseFolder, "begin", wait_and_begin)
    save(classifier, tmp_path / "model")
    waits.join()
    assert told == [[1]]
    assert classifier.session_.progress["seats_taken"] == 1
    assert closed(load(closed(classifier).session_.folder.path)).seats_taken_ == 1


def test_a_model_that_is_saved_twice_at_once_goes_on_in_one_folder(tmp_path, monkeypatch):
    """Two folders with the noises of one phase would be two accounts of the same people, of which one is paid."""
    classifier, make = small(), Ledger.create

    def overtaken(*place, **options):
        monkeypatch.setattr(Ledger, "create", make)
        save(classifier, tmp_path / "first")  # by another thread, meanwhile
        return make(*place, **options)

    monkeypatch.setattr(Ledger, "create", overtaken)
    with pytest.raises(InvalidInput, match="has a folder already"):
        save(classifier, tmp_path / "second")
    assert closed(classifier).session_.folder.path == tmp_path / "first"
    with pytest.raises(InvalidInput, match="is not a model"):
        load(tmp_path / "second")
    closed(load(tmp_path / "first"))


def test_models_of_both_kinds_are_loaded_by_their_manifest(tmp_path, folder):
    X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
    other = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
    save(other, tmp_path / "other")
    assert open_folder(folder).kind == "everlasting"
    assert isinstance(load(tmp_path / "other"), PrivateClassifier)
    assert isinstance(closed(load(folder)), EverlastingClassifier)
    with pytest.raises(InvalidInput, match="another kind, 'everlasting'"):
        load(folder, kind="classifier")
    with pytest.raises(InvalidInput, match="another kind, 'classifier'"):
        load(tmp_path / "other", kind="everlasting")
    with pytest.raises(InvalidInput, match="holds no everlasting model"):
        reopen(tmp_path / "other")
    save(small(), tmp_path / "third")


def test_one_process_asks_at_a_time(folder):
    classifier = load(folder)
    with pytest.raises(InvalidInput, match="one process at a time"):
        load(folder)
    closed(classifier)
    with pytest.raises(LedgerRefused, match="closed here"):
        classifier.predict([[1.0]])
    closed(load(folder))


def test_a_process_that_was_overtaken_answers_nothing(folder, monkeypatch):
    """Two hosts that share a ledger hold locks of their own: the ledger tells them apart."""
    from quorate.models.everlasting import _phase_folder as phase_folder

    monkeypatch.setattr(phase_folder, "_hold", lambda folder: os.open(os.devnull, os.O_RDONLY))
    first, second = load(folder), load(folder)
    assert first.predict([[2.0]]).tolist() == [1]
    with pytest.raises(LedgerRefused, match="another process has answered"):
        second.predict([[2.0]])
    assert second.predict([[2.0]]).tolist() == [1]  # it has read the state again
    assert (second.seats_taken_, find_ledger(folder, fingerprint=fingerprint(folder)).phase()[0].taken) == (2, 2)


def test_a_fork_answers_nothing(folder):
    classifier = load(folder)
    child = os.fork()
    if child == 0:
        try:
            classifier.predict([[1.0]])
        except WrongProcess:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert closed(classifier).seats_taken_ == 0


def test_what_came_since_is_the_end_of_all_that_came():
    random = np.random.default_rng(3)
    X, labels = random.normal(size=(50, 2)), random.integers(-2, 2, size=50)
    seats = Seats(50)
    for start, stop in itertools.pairwise([0, 1, 1, 17, 30, 50]):
        seats.take(X[start:stop], labels[start:stop])
    for taken in range(50):
        points, known = seats.since(taken)
        assert (points == X[taken:]).all()
        assert (known == np.maximum(labels[taken:], NO_QUORUM)).all()
    assert seats.since(50)[1].size == 0


# --- Requests --------------------------------------------------------------------------------------------------------


def test_an_id_is_answered_once_and_forgotten_with_its_phase(folder):
    session = load(folder).session_
    made = batches()
    first = ask(session, "request-0", made["request-0"])
    assert ask(session, "request-0", made["request-0"]) == first
    assert ask(session, "request-0", made["request-1"]) == "IdReused"
    assert session.progress["seats_taken"] == BATCHES[0]
    ask(session, "request-2", made["request-2"])  # opens phase 2
    assert session.progress["phase"] == 2
    assert ask(session, "request-0", made["request-0"]) == "IdReused"
    assert session.progress["seats_taken"] == BATCHES[0] + BATCHES[2] - SEATS  # and it took no seat
    session.close()
    assert find_ledger(folder, fingerprint=fingerprint(folder)).verify().sound


def test_a_repeated_query_is_a_query_and_refused_ones_keep_their_seats(folder):
    session = load(folder).session_
    same = session.arrive(np.full((SEATS - 10, 1), 2.0))
    assert set(same.tolist()) == {1}
    assert session.progress["seats_taken"] == SEATS - 10
    session.close()
    classifier = load(folder)
    cutoff = classifier.session_.answerer.phase._cutoff
    cutoff._closed = True
    assert set(classifier.session_.arrive(np.full((5, 1), 2.0)).tolist()) == {REFUSED}
    assert ask(classifier.session_, "late", np.full((3, 1), 2.0)) == [REFUSED] * 3
    assert ask(classifier.session_, "late", np.full((3, 1), 2.0)) == [REFUSED] * 3
    assert classifier.seats_taken_ == SEATS - 2
    again = load(closed(classifier).session_.folder.path)
    assert again.progress_["closed"]
    assert again.predict([[2.0]] * 2).refused == 2
    assert (again.predict([[2.0]]).refused, again.phase_) == (0, 2)
    closed(again)


def test_requests_of_one_group_and_feeding(tmp_path):
    classifier = small(refresh="pool")
    save(classifier, tmp_path / "model")
    session = classifier.session_
    X = np.full((4, 1), 2.0)
    group = [Request(X, id="a", body=b"1"), Feed(X, id="f", body=b"2"), Request(X, id="a", body=b"1"), Request(X)]
    replies = session.ask_all(group)
    assert [reply.labels.tolist() for reply in replies] == [[1] * 4, [0] * 4, [1] * 4, [1] * 4]
    assert session.progress["seats_taken"] == 4  # queries take none
    session.ask_all([Feed(X, id="f", body=b"2")])
    assert session.progress["seats_taken"] == 4  # an id is fed once
    assert session.takes_feed
    session.close()


def test_an_idle_server_opens_the_next_phase(folder):
    session = load(folder).session_
    session.on_idle()
    assert session.progress["phase"] == 1
    session.arrive(np.random.default_rng(1).normal(size=(SEATS, 1)))
    session.on_idle()
    assert (session.progress["phase"], session.progress["seats_taken"]) == (2, 0)
    session.close()
    session.on_idle()
    assert closed(load(folder)).phase_ == 2


# --- Crashes ---------------------------------------------------------------------------------------------------------


def test_a_kill_seats_nobody_twice_and_changes_no_answer(tmp_path, monkeypatch):
    """At every 23rd step; `make crash` has all of them."""
    classifier = small()
    save(classifier, tmp_path / "model")
    closed(classifier)
    told = []
    for folder, state, said in killed_at(tmp_path, start=23, stride=23):
        monkeypatch.setenv("QUORATE_STATE", str(state))
        assert what_is_wrong(folder, said) == [], folder
        told.append(len(said))
    assert len(told) > 8
    assert len(set(told)) > 3  # some died early, and some late


def test_a_build_that_writes_points_after_the_entry_is_caught(tmp_path, monkeypatch):
    classifier = small()
    save(classifier, tmp_path / "model")
    closed(classifier)
    ((folder, state, said),) = killed_at(tmp_path, start=10**9, stride=1, most=1, plant="points_last")
    monkeypatch.setenv("QUORATE_STATE", str(state))
    with pytest.raises(LedgerRefused, match="is not the one that the ledger speaks of"):
        what_is_wrong(folder, said)


def test_an_error_while_writing_leaves_nothing_behind(folder, monkeypatch):
    classifier = load(folder)
    classifier.predict([[2.0]])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(LedgerRefused, match=r"cannot be written|No space"):
            classifier.predict([[1.0]] * 5)
    assert classifier.session_.progress["seats_taken"] == 1  # what was undone is not shown
    assert classifier.predict([[2.0]]).tolist() == [1]
    assert classifier.seats_taken_ == 2
    assert closed(load(closed(classifier).session_.folder.path)).seats_taken_ == 2


# --- Tampering -------------------------------------------------------------------------------------------------------


def _used(folder):
    classifier = load(folder)
    ask(classifier.session_, "request-0", batches()["request-0"])
    return closed(classifier)


def _write(path, change):
    content = bytearray(path.read_bytes())
    path.write_bytes(bytes(change(content)))


FILES = {
    "a point": (".seats", lambda b: b[:3] + bytes([b[3] ^ 1]) + b[4:], "is not the one that the ledger speaks of"),
    "a label": (".seats", lambda b: b[:8] + bytes([b[8] ^ 1]) + b[9:], "is not the one that the ledger speaks of"),
    "fewer seats": (".seats", lambda b: b[:-16], "is not the one that the ledger speaks of"),
    "two seats swapped": (".seats", lambda b: b[16:32] + b[:16] + b[32:], "is not the one that the ledger speaks of"),
    "a teacher": ("teachers.npz", lambda b: b[:-1] + b"0", "was changed"),
    "the estimator": ("estimator.skops", lambda b: b + b"0", "was changed"),
    "the manifest": ("manifest.json", lambda b: b.replace(b'"chunk": 6', b'"chunk": 7'), "another model"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_were_changed_are_refused(folder, name):
    _used(folder)
    ending, change, text = FILES[name]
    (path,) = [path for path in folder.iterdir() if path.name.endswith(ending)]
    _write(path, change)
    with pytest.raises((InvalidInput, LedgerRefused), match=text):
        load(folder)


def test_files_that_are_missing_or_open_to_others_are_refused(folder):
    _used(folder)
    (seats,) = folder.glob("*.seats")
    seats.chmod(0o640)
    with pytest.raises(InvalidInput, match="others may read it"):
        load(folder)
    with pytest.raises(InvalidInput, match="others may read it"):  # nothing is lost that would be paid for again
        reopen(folder)
    seats.unlink()
    with pytest.raises(LedgerRefused, match="is missing from the model"):
        load(folder)


EDITS = {
    "the threshold": "UPDATE quorate_secret SET value = value + 1 WHERE name = 'threshold'",
    "the limit": "UPDATE quorate_secret SET value = value + 1 WHERE name = 'limit'",
    "no limit": "DELETE FROM quorate_secret WHERE name = 'limit'",
    "the count": "UPDATE quorate_entry SET body = replace(body, '\"met\":', '\"met\":1') WHERE kind = 'arrived'",
    "the last entry": "DELETE FROM quorate_entry WHERE seq = (SELECT max(seq) FROM quorate_entry)",
    "an outcome": "UPDATE quorate_request SET outcome = x'00'",
    "an answer removed": "DELETE FROM quorate_request",
}


@pytest.mark.parametrize("name", EDITS)
def test_a_ledger_that_was_edited_is_refused(folder, name):
    _used(folder)
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        connection.execute(EDITS[name])
        connection.commit()
    with pytest.raises(LedgerRefused):
        load(folder)


def test_the_whole_folder_put_back_is_refused_and_a_restored_ledger_does_not_go_on(folder, tmp_path):
    """An old copy would count no-quorums anew, under the same secret limit."""
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    _used(folder)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    with pytest.raises(LedgerRefused, match="rolled back"):
        load(folder)
    restore(folder, fingerprint=fingerprint(folder), charge="mark")
    with pytest.raises(LedgerRefused, match="cannot go on"):
        load(folder)
    with pytest.raises(BudgetSpent):  # the account has paid for phase 1, and has no more
        reopen(folder)


def test_a_lost_phase_is_opened_again_where_the_account_pays(tmp_path):
    account = Guarantee(200.0, 0.05)
    X = np.random.default_rng(0).normal(size=(360, 1))
    classifier = small().fit(X, (X[:, 0] >= 0).astype(int), probe=[[2.0]])
    folder = save(classifier, tmp_path / "model", account=account)
    assert "(200, 0.05)-differentially private under replacement of one row" in classifier.claim_
    ask(classifier.session_, "a", np.full((5, 1), 2.0))
    paid = classifier.session_.ledger.state().spent
    closed(classifier)
    with pytest.raises(InvalidInput, match="nothing is lost"):
        reopen(folder)
    (seats,) = folder.glob("*.seats")
    seats.unlink()
    with pytest.raises(LedgerRefused, match="is missing"):
        load(folder)
    from quorate.cli.app import main

    assert main(["ledger", "reopen", str(folder)]) == 0
    classifier = load(folder)
    assert (classifier.phase_, classifier.seats_taken_, classifier.claim_.count("(200, 0.05)")) == (1, 0, 1)
    twice = classifier.session_.ledger.state().spent
    assert all(abs(new - 2 * old) <= 2**10 for new, old in zip(twice, paid, strict=True))
    assert ask(classifier.session_, "a", np.full((5, 1), 2.0)) == "IdReused"
    classifier.predict(np.full((SEATS + 1, 1), 2.0))
    closed(classifier)
    (seats,) = folder.glob("*.seats")
    seats.unlink()
    with pytest.raises(InvalidInput, match="only phase 1"):
        reopen(folder)


def test_rules_of_phases():
    opened = {"number": 2, "seats": 5, "noise": "n", "files": {"a": "b"}, "seated": "s", "points": "p"}
    account = {"epsilon": 1.0, "delta": 0.0, "order": float("inf"), "slack": 0.0, "capacity": [9, 0], "spent": [0, 0]}
    state = apply(None, Event("opened", 0.0, account | {"fingerprint": "m", "keys": []}))
    arrived = {"phase": 2, "taken": 3, "met": 1, "closed": False, "points": "q"}
    with pytest.raises(LedgerRefused, match="the open phase"):
        apply(state, Event("arrived", 1.0, arrived))
    state = apply(apply(state, Event("phase", 1.0, opened)), Event("arrived", 2.0, arrived))
    assert state.phase == Phase(2, 5, "n", {"a": "b"}, "s", taken=3, met=1, points="q")
    assert from_json(json.loads(json.dumps(to_json(state)))) == state
    wrong = [{"taken": 2}, {"taken": 6}, {"met": 0}, {"phase": 3}]
    for change in wrong:
        with pytest.raises(LedgerRefused):
            apply(state, Event("arrived", 3.0, arrived | change))
    shut = apply(state, Event("arrived", 3.0, arrived | {"closed": True}))
    for change in ({"closed": False}, {"closed": True, "met": 2}):
        with pytest.raises(LedgerRefused, match="stay closed"):
            apply(shut, Event("arrived", 4.0, arrived | change))
    with pytest.raises(LedgerRefused, match="not below"):
        apply(state, Event("phase", 4.0, opened | {"number": 1}))
    lost = apply(state, Event("restored", 5.0, {"spent": [0, 0]}))
    with pytest.raises(LedgerRefused, match="the open phase"):
        apply(lost, Event("arrived", 6.0, arrived))


def test_a_cutoff_goes_on_where_it_was():
    cutoff = NoisyCutoff(epsilon=5.0, allowed=3, spread=3)
    assert cutoff.resume(limit=4, met=4, closed=False).admit([True] * 5) == 0
    assert cutoff.resume(limit=4, met=0, closed=True).admit([False]) == 0
    with pytest.raises(InvalidInput, match="of a phase of this cutoff"):
        cutoff.resume(limit=7, met=0, closed=False)


# --- What is kept, and where -----------------------------------------------------------------------------------------

CANARY = 7.123456789123456


def _everything(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_points_lie_in_the_seats_alone_and_go_with_their_phase(tmp_path, caplog, capfd):
    """No part of a query is in the ledger, in a log or in an error; nor anywhere, when what it taught is over."""
    classifier = small()
    folder = save(classifier, tmp_path / "model")
    session = classifier.session_
    X = np.full((3, 1), CANARY)
    ask(session, "a", X)
    ask(session, "b", X)
    forms = [struct.pack("<d", CANARY), struct.pack(">d", CANARY), repr(CANARY).encode()[:12]]
    forms += [digest_of(X.tobytes()).encode(), bytes.fromhex(digest_of(X.tobytes()))]
    holding = {name for name, content in _everything(folder).items() if any(form in content for form in forms)}
    assert {name.rpartition(".")[2] for name in holding} == {"seats"}
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    session.arrive(np.full((SEATS - 5, 1), -3.0))
    assert session.progress["phase"] == 2
    holding = [name for name, content in _everything(folder).items() if any(form in content for form in forms)]
    assert all(".teachers." in name for name in holding)  # a cut may be a point's own value
    session.arrive(np.full((SEATS, 1), -3.0))
    assert session.progress["phase"] == 3
    for name, content in _everything(folder).items():
        assert not any(form in content for form in forms), name
    said = capfd.readouterr()
    assert repr(CANARY)[:8] not in said.out + said.err + caplog.text
    session.close()


def test_a_point_that_does_not_teach_is_not_kept(folder):
    classifier = load(folder)
    classifier.session_.answerer.phase._cutoff._closed = True
    classifier.predict([[CANARY]])
    closed(classifier)
    (seats,) = folder.glob("*.seats")
    assert seats.read_bytes() == struct.pack("<dq", 0.0, NO_QUORUM)


def test_the_account_pays_for_the_whole_phase_at_once_and_never_moves(folder):
    ledger = find_ledger(folder, fingerprint=fingerprint(folder))
    before = ledger.state().spent
    assert ledger.view().left < 1e-6
    session = load(folder).session_
    for name, X in batches().items():
        ask(session, name, X)
    assert session.ledger.state().spent == before
    assert session.progress["phase"] > 2
    session.close()


def test_the_probe_is_asked_when_a_phase_opens_and_takes_no_seat(tmp_path):
    X = np.random.default_rng(0).normal(size=(360, 1))
    probe = np.array([[-3.0], [-2.0], [2.0], [3.0]])
    classifier = small().fit(X, (X[:, 0] >= 0).astype(int), probe=probe)
    assert (classifier.progress_["drift"], classifier.seats_taken_, classifier.progress_["probe"]) == (0.0, 0, 4)
    save(classifier, tmp_path / "model")
    classifier = load(closed(classifier).session_.folder.path)
    assert classifier.session_.answerer.probed[0].tolist() == [0, 0, 1, 1]
    classifier.predict(np.where(np.arange(SEATS + 1)[:, np.newaxis] % 2, 2.0, -2.0))
    assert (classifier.phase_, classifier.seats_taken_, classifier.progress_["drift"]) == (2, 1, 0.0)
    classifier.session_.answerer.probed = np.array([0, 0, 1, 1]), np.array([0, NO_QUORUM, 0, 1])
    assert classifier.progress_["drift"] == pytest.approx(1 / 3)
    assert small().progress_["drift"] is None
    closed(classifier)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def test_a_ledger_in_postgres_keeps_phases_too(folder, postgres_url):
    classifier = load(folder)
    made = batches()
    for name in ("request-0", "request-2"):
        ask(classifier.session_, name, made[name])
    before = position_of(classifier)
    closed(classifier)
    move(folder, postgres_url, fingerprint=fingerprint(folder)).close()
    classifier = load(folder)
    assert position_of(classifier) == before
    assert ask(classifier.session_, "request-0", made["request-0"]) == "IdReused"
    kept = ask(classifier.session_, "request-2", made["request-2"])
    assert classifier.seats_taken_ == BATCHES[0] + BATCHES[2] - SEATS  # it was answered before the move
    assert ask(classifier.session_, "request-3", made["request-3"]) != kept
    assert classifier.phase_ == 3
    assert ask(classifier.session_, "request-2", made["request-2"]) == "IdReused"
    closed(classifier)
    ledger = find_ledger(folder, fingerprint=fingerprint(folder))
    assert ledger.verify().sound
    closed(load(folder))


def test_a_lost_phase_is_lost_in_another_place_too(folder, tmp_path):
    """A move does not wash an old copy clean: its count would be too small there as here."""
    ledger = find_ledger(folder, fingerprint=fingerprint(folder))
    ledger.close()
    restore(folder, fingerprint=fingerprint(folder), charge="mark")
    old = Ledger.unchecked(folder / "ledger.sqlite", fingerprint=fingerprint(folder), folder=folder)
    SQLiteStore.create(tmp_path / "elsewhere.sqlite").close()
    new = Ledger.unchecked(tmp_path / "elsewhere.sqlite", fingerprint=fingerprint(folder), folder=folder)
    assert old.phase()[0].lost
    _copy(old, new)
    assert new.phase()[0].lost
    assert new.phase()[0].number == 1
    assert new.verify().sound


# --- The command line ------------------------------------------------------------------------------------------------


def test_the_command_line_asks_and_the_owner_sees_the_count(folder, tmp_path, capsys):
    from quorate.cli.app import main

    (tmp_path / "queries.csv").write_text("x\n2.5\n-2.5\n")
    assert main(["predict", str(folder), str(tmp_path / "queries.csv"), "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert (bill["answers"], bill["outcomes"]) == ([1, 0], ["answered"] * 2)
    assert (bill["phase"], bill["seats_taken"], bill["seats"]) == (1, 2, SEATS)
    assert main(["predict", str(folder), str(tmp_path / "queries.csv"), "--out", str(tmp_path / "answers.csv")]) == 0
    assert (tmp_path / "answers.csv").read_text() == "row,answer,outcome\n1,1,answered\n2,0,answered\n"
    assert main(["predict", str(folder), str(tmp_path / "queries.csv"), "--on-no-quorum", "random"]) == 1
    assert "must be abstain or raise" in capsys.readouterr().err
    assert main(["ledger", "show", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["phase"], shown["seats_taken"], shown["no_quorums"], shown["closed"]) == (1, 4, 0, False)
    assert main(["ledger", "verify", str(folder)]) == 0


def test_a_key_takes_a_tenth_of_what_closes_a_phase_unless_something_else_is_said(folder, capsys):
    from quorate.cli.app import main

    for name, *options in (["plain"], ["more", "--per-phase", "3"], ["all", "--unlimited"]):
        assert main(["keys", "add", str(folder), name, *options]) == 0
    assert "seats of each phase (--per-phase)" in capsys.readouterr().err
    assert main(["keys", "list", str(folder), "--json"]) == 0
    limits = {key["name"]: key["per_phase"] for key in json.loads(capsys.readouterr().out)}
    allowed = json.loads((folder / "manifest.json").read_text())["terms"]["cutoff"]["allowed"]
    assert allowed < SEATS
    assert limits == {"plain": max(1, allowed // 10), "more": 3, "all": None}


def test_no_key_of_ten_closes_a_phase_for_the_others(tmp_path):
    """Each asks on the boundary alone, as often as its default share allows."""
    classifier = small(no_quorums=60, phase_size=600)
    save(classifier, tmp_path / "model")
    session, ledger = classifier.session_, classifier.session_.ledger
    session.answerer.phase._draw_outcomes = lambda X: np.full(len(X), NO_QUORUM)
    share = default_share(open_private(tmp_path / "model"), ledger)
    keys = [ledger.find_key(ledger.add_key(f"key {number}", **share)).id for number in range(10)]
    rows = np.zeros((share["per_phase"], 1))
    assert share["per_phase"] >= 6
    for key in keys:
        (replies,) = session.ask_all([Request(rows, key)])
        assert not replies.refused.any()
        (refusal,) = session.ask_all([Request(rows[:1], key)])
        assert isinstance(refusal, QuotaSpent)
    assert session.no_quorums == 10 * share["per_phase"]
    assert not session.progress["closed"]
    session.ask_all([Request(np.zeros((100, 1)), ledger.find_key(ledger.add_key("unlimited")).id)])
    assert session.progress["closed"]  # as one key could without a share
    session.close()
