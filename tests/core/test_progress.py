"""The line that shows what is under way: where it is seen, what it says, what an interrupted call leaves and says."""

import io
import re
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier

import quorate as qr
from quorate.compute.ensemble import Ensemble
from quorate.core import progress as module
from quorate.core.mechanisms import SoftMajority
from quorate.core.progress import Progress, advance, hidden_progress, progress, set_progress
from quorate.core.session import Session
from quorate.models.concepts import Thresholds
from quorate.models.linear import model as linear_model

X = np.random.default_rng(0).normal(size=(1200, 2))
Y = (X[:, 0] > 0).astype(int)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal that is written to at once, and said to be one."""
    shown = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=shown, modules=sys.modules))  # pytest has its own
    monkeypatch.setattr(module, "_WAIT", 0.0)
    monkeypatch.setattr(module, "_TICK", 0.005)
    yield shown
    set_progress(True)


@pytest.fixture
def said(terminal, monkeypatch):
    """What is said in a line, in order: each beginning, and each count."""
    events = []
    monkeypatch.setattr(Progress, "begin", lambda self, what, total: events.append((what, total)))
    monkeypatch.setattr(Progress, "advance", lambda self, number: events.append(number))
    return events


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_the_number_of_rows_of_people_is_not_said(said):
    model = DecisionTreeClassifier(max_depth=2).fit(X[:300], Y[:300])
    qr.ConformalClassifier(model, epsilon=4.0, miscoverage=0.2).fit(X, Y, groups=np.arange(1200) // 3)
    assert said == [("asking the model about held-out rows", None)]


def test_a_line_says_what_how_far_and_how_long_and_goes(terminal):
    with progress("answering", 40):
        advance(12)
        until(lambda: re.search(r"quorate: answering 12 of 40 \(\d+:\d\d\)", terminal.getvalue()))
        with progress("counting"):  # within: the same line
            until(lambda: re.search(r"quorate: counting \(\d+:\d\d\)", terminal.getvalue()))
    *_, blanks, last = terminal.getvalue().split("\r")
    assert (blanks.strip(), last) == ("", "")
    assert not any(one.name == "quorate-progress" for one in threading.enumerate())


def test_nothing_is_shown_where_nobody_watches(terminal, monkeypatch):
    def shown():
        with progress("answering"):
            time.sleep(0.02)
            return module.LINE.get() is not None

    assert shown()
    set_progress(False)
    assert not shown()
    set_progress(True)
    with hidden_progress():
        assert not shown()
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(shown()))
    thread.start()
    thread.join()
    assert elsewhere == [False]  # a server answers in threads
    monkeypatch.setattr(module.sys, "stderr", io.StringIO())
    assert not shown()
    for name, seen in (("ZMQInteractiveShell", True), ("TerminalInteractiveShell", False)):
        shell = type(name, (), {})()
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert shown() is seen


def test_a_short_call_shows_nothing(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=shown, modules=sys.modules))
    monkeypatch.setattr(module, "_WAIT", 120 * module._WAIT)  # this machine may be busy
    with progress("answering"):
        pass
    assert shown.getvalue() == ""


def test_what_is_said_depends_on_the_shape_of_the_data_alone(said):
    other = X.copy()
    other[0], labels = (99.0, -99.0), np.append(1 - Y[:1], Y[1:])
    told = []
    for rows, y in ((X, Y), (other, labels)):
        votes = qr.PrivateClassifier(epsilon=4.0, teachers=60, queries=10, aggregator="noisy_max", classes=[0, 1])
        votes.fit(rows, y).predict(X[:5])
        trees = DecisionTreeClassifier(max_depth=9)
        slow = qr.PrivateClassifier(trees, epsilon=4.0, teachers=40, queries=9, aggregator="noisy_max")
        slow.set_params(classes=[0, 1]).fit(rows, y)
        qr.PrivateLogisticRegression(classes=[0, 1]).fit(rows, y, public=X[:200])
        qr.QueryRelease(Thresholds()).fit(rows[:, 0], X[:50, 0])
        told.append(list(said))
        said.clear()
    assert told[0] == told[1]
    assert told[0][:3] == [("fitting 60 teachers", None), ("answering", 5), 5]
    assert told[0][3:44] == [("fitting teachers,", 40), *[1] * 40]
    assert told[0][44][0] == "fitting a linear model"
    assert told[0][45][0].startswith("releasing 51 queries by ")


def test_trials_of_a_search_are_not_counted(said):
    search = qr.PrivateSearchCV(
        qr.PrivateLogisticRegression(classes=[0, 1]), {"columns": [None]}, epsilon=4.0, method="composition"
    )
    search.fit(X, Y, public=X[:200])
    assert said == [("searching", None)]


def test_an_audit_says_what_it_does(said):
    qr.audit(SoftMajority(teachers=9, epsilon_per_query=1.0), plays=100)
    assert said[0] == ("attacking SoftMajority, 100 plays", None)


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["votes", "linear"])
def test_a_fit_that_is_interrupted_leaves_nothing_and_says_so(kind, monkeypatch):
    if kind == "votes":
        model = qr.PrivateClassifier(epsilon=4.0, teachers=60, queries=10, aggregator="noisy_max", classes=[0, 1])
        model.fit(X, Y)
        monkeypatch.setattr("quorate.compute.learners.teachers.Chunks.__init__", interrupted)
    else:
        model = qr.PrivateLogisticRegression(classes=[0, 1]).fit(X, Y, public=X[:200])
        monkeypatch.setattr(linear_model, "fit", interrupted)
    known = {} if kind == "votes" else {"public": X[:200]}
    with pytest.raises(KeyboardInterrupt) as stopped:
        model.fit(X, Y, **known)
    assert stopped.value.__notes__ == [module.NOTHING_SPENT]
    with pytest.raises(NotFittedError):
        model.predict(X[:2])


def test_answers_that_are_interrupted_stay_charged_and_are_free_again(monkeypatch):
    model = qr.PrivateClassifier(epsilon=4.0, teachers=60, queries=10, aggregator="noisy_max", classes=[0, 1])
    model.fit(X, Y)
    monkeypatch.setattr(Session, "block", 2)
    count, calls = Ensemble.count, []

    def third(self, rows):
        calls.append(len(rows))
        return interrupted() if len(calls) == 3 else count(self, rows)

    monkeypatch.setattr(Ensemble, "count", third)
    with pytest.raises(KeyboardInterrupt) as stopped:
        model.predict(X[:8])
    assert stopped.value.__notes__[0].startswith("Interrupted: what was charged stays charged")
    spent = model.spent_epsilon()
    assert spent > 0
    assert model.predict(X[:2]).answered.all()  # kept before the next block was drawn
    assert model.spent_epsilon() == spent
