"""What a model needs after a restart is on the disk before an answer that depends on it leaves."""

import os
import shutil

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from quorate import BudgetSpent, StudentFirstClassifier, UniversalClassifier, load, save
from quorate.core.answerers import Journal
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import LOST, Ledger, restore
from quorate.models.concepts import Thresholds
from quorate.models.saving import open_folder
from support.ledger_in_use import edit

X = np.random.default_rng(0).normal(size=(6000, 1))
Y = (X[:, 0] > 0).astype(int)
COVER = np.linspace(-3, 3, 6)[:, np.newaxis]


@pytest.fixture
def folder(tmp_path):
    """A universal model that has put 5 of its 6 ballots to the vote."""
    made = UniversalClassifier(Thresholds(), epsilon=20.0, ballots=6, teachers=60, classes=[0, 1]).fit(X, Y)
    made.predict(COVER[:3])
    save(made, tmp_path / "model")
    made.predict(COVER[3:5])
    assert not made.switched_
    made.session_.close()
    return tmp_path / "model"


def test_the_queries_asked_before_a_restart_are_part_of_the_cover(folder):
    made = load(folder)
    assert made.predict(COVER[5:]).answered.all()
    assert made.switched_  # after the sixth distinct query, by whichever process the others were asked
    again = load(folder)
    assert again.hypothesis_ == made.hypothesis_
    assert again.spent_epsilon() == made.spent_epsilon() <= 20.0


def test_a_choice_that_was_not_kept_is_not_seen(folder, monkeypatch):
    """A crash between the draw and the ledger: the answer does not leave, and the next process chooses anew."""

    def crash(ledger, choice):
        raise KeyboardInterrupt

    made = load(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_choice", crash)
        with pytest.raises(KeyboardInterrupt):
            made.predict(COVER[5:])
    made.session_.close()
    again = load(folder)
    assert not again.switched_
    assert again.predict([[2.0]]).tolist() == [1]
    assert again.switched_
    assert load(folder).hypothesis_ == again.hypothesis_


def test_two_processes_choose_one_hypothesis(folder):
    one, other = load(folder), load(folder)
    one.predict(COVER[5:])
    assert one.switched_
    assert not other.switched_
    other.predict([[0.01]])
    assert other.hypothesis_ == one.hypothesis_


def test_of_two_choices_at_once_the_first_stands(folder, monkeypatch):
    one, other = load(folder), load(folder)
    kept = Ledger.keep_choice

    def late(ledger, choice):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "keep_choice", kept)
            one.predict(COVER[5:])
        return kept(ledger, choice)

    monkeypatch.setattr(Ledger, "keep_choice", late)
    other.predict(COVER[5:], caller="other")
    assert other.hypothesis_ == one.hypothesis_


def test_an_old_copy_does_not_choose_again(folder):
    copied = folder.with_name("copy")
    shutil.copytree(folder, copied)
    load(folder).predict(COVER[5:])
    shutil.rmtree(folder)
    shutil.copytree(copied, folder)
    with pytest.raises(LedgerRefused, match="rolled back"):
        load(folder)
    restore(folder, fingerprint=open_folder(folder).fingerprint, charge="mark")
    made = load(folder)
    assert made.session_.ledger.choice() == LOST
    assert made.predict(COVER[:5]).answered.all()  # what was answered before stands
    with pytest.raises(BudgetSpent, match="the hypothesis may have been chosen after it was made"):
        made.predict([[0.8]])
    assert not made.switched_
    assert made.spent_epsilon() > made.session_.answerer.epsilon  # it may be out


def test_a_ledger_keeps_two_noises_and_one_choice(tmp_path):
    from quorate import Budget

    path = tmp_path / "ledger.sqlite"
    ledger = Ledger.create(path, Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
    ledger.keep_run(-3, 2**40)
    assert (ledger.run(), ledger.runs()) == (-3, (-3, 2**40))
    assert ledger.keep_choice("a") == ledger.keep_choice("b") == ledger.choice() == "a"
    with pytest.raises(LedgerRefused), ledger.change() as change:
        change.append("chosen", {"choice": "b"})
    ledger.close()
    assert Ledger.open(path, fingerprint="m").runs() == (-3, 2**40)
    for statement in ("UPDATE quorate_secret SET value = 8 WHERE name = 'run 2'", "DELETE FROM quorate_secret"):
        edit(path, statement)
        with pytest.raises(LedgerRefused, match="secret noise"):
            Ledger.open(path, fingerprint="m")


def test_both_runs_of_a_student_go_on_with_their_noises(tmp_path):
    student = DummyClassifier(strategy="constant", constant=0).fit([[0.0], [1.0]], [0, 1])
    made = StudentFirstClassifier(student, epsilon=8.0, delta=1e-8, teachers=200, dissents=3, no_quorums=1)
    made.fit(X, Y)
    runs = made.session_.answerer
    noises = runs.dissent_run.threshold_noise, runs.quorum_run.threshold_noise
    assert made.predict([[2.0]]).corrected.tolist() == [True]
    save(made, tmp_path / "model")
    made.session_.close()
    loaded = load(tmp_path / "model")
    again = loaded.session_.answerer
    assert (again.dissent_run.threshold_noise, again.quorum_run.threshold_noise) == noises
    opened = loaded.budget_.spent()
    assert loaded.predict([[2.0], [2.5]]).corrected.tolist() == [True, True]
    assert loaded.budget_.spent().renyi > opened.renyi
    assert loaded.corrections_[0].tolist() == [[2.0], [2.5]]
    assert loaded.corrections_[1].tolist() == [1, 1]
    answers = loaded.predict(np.linspace(1, 2, 60)[:, np.newaxis])  # the student is wrong about all of them
    assert 0 < answers.corrected.sum() < 10
    assert answers.refused > 50
    with pytest.raises(BudgetSpent, match="Ask the student itself"):
        loaded.predict([[3.0]])
    assert loaded.spent_epsilon() <= 8.0


def test_a_journal_survives_a_torn_line(tmp_path):
    path = tmp_path / "asked.jsonl"
    one, other = Journal(path), Journal(path)
    one.add([[0.1, float("inf")], [1e-300, -0.0]])
    assert other.lines() == [[0.1, float("inf")], [1e-300, -0.0]]
    with open(path, "ab") as file:
        file.write(b"[1.0, 2.")  # the disk was full, or the power gone
    assert other.lines() == [[0.1, float("inf")], [1e-300, -0.0]]
    one.add([["a", None]])
    assert other.lines() == Journal(path).lines() == [[0.1, float("inf")], [1e-300, -0.0], ["a", None]]
    assert os.stat(path).st_mode & 0o077 == 0
