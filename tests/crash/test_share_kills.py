"""Shares under fire: callers with shares, worker processes that are killed, both stores. Each share is exact."""

import os
import random
import signal
import time
import traceback

import numpy as np
import pytest

from quorate import Budget
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Votes
from quorate.core.errors import ShareSpent
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import NO_QUORUM, Quorum
from quorate.core.requests import Request
from quorate.core.session import Session

pytestmark = pytest.mark.crash

TEACHERS = 400


class Split:
    """Ballots that never find a quorum."""

    def __init__(self, X):
        self._votes = np.full((len(X), 2), TEACHERS // 2)

    def put_to(self, release):
        return release(self._votes)


def session_of(ledger, quorum):
    ensemble = Ensemble(EstimatorTeachers([(None, 0)] * TEACHERS, classes=2))
    ensemble.count = Split
    return Session(Votes(ensemble, quorum), ledger.budget(lease=3), ledger=ledger)


def ask_on(reopened, quorum, callers, seed):
    """Ask as one caller after the other, until this process is killed."""
    generator, session = random.Random(seed), session_of(reopened(), quorum)
    while True:
        chosen = generator.sample(callers, 8)
        session.ask_all([Request(np.array([[generator.random()], [generator.random()]]), caller) for caller in chosen])


def started(reopened, quorum, callers, seed):
    child = os.fork()
    if child:
        return child
    try:
        ask_on(reopened, quorum, callers, seed)
    except BaseException:  # whatever it is, the child must not go on as a test
        traceback.print_exc()
    os._exit(1)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_each_share_is_exact_whoever_is_killed(store, tmp_path, request):
    place = tmp_path / "ledger.sqlite" if store == "sqlite" else request.getfixturevalue("postgres_url")
    shares = [1 + number % 7 for number in range(64)]
    quorum = Quorum.calibrate(epsilon=200.0, delta=1e-5, teachers=TEACHERS, no_quorums=sum(shares) + 400)
    budget = Budget(epsilon=200.0, delta=1e-5, order=quorum.order, slack=quorum.slack)
    noise = quorum.open(budget).end()
    ledger = Ledger.create(place, budget, fingerprint="m", folder=tmp_path)
    ledger.keep_run(noise)
    callers = {ledger.add_key(f"{n}", no_quorums=share).split("_")[1]: share for n, share in enumerate(shares)}

    def reopened():
        return Ledger.open(place, fingerprint="m", folder=tmp_path)

    workers = {started(reopened, quorum, list(callers), number): number for number in range(4)}
    generator, kills = random.Random(0), int(os.environ.get("QUORATE_SHARE_KILLS", "12"))
    for kill in range(kills):
        time.sleep(generator.uniform(0.2, 0.6))
        child = generator.choice(list(workers))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL  # and it did not fail before
        del workers[child]
        workers[started(reopened, quorum, list(callers), 100 + kill)] = kill
    for child in workers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    session = session_of(reopened(), quorum)
    for caller in callers:  # what is left of each
        asked = [Request(np.array([[10.0 + n]]), caller) for n in range(9)]
        assert isinstance([session.ask_all([one])[0] for one in asked][-1], ShareSpent)
    session.close()
    with ledger.change() as change:
        statement = "SELECT caller, count(*) FROM quorate_answer WHERE label = ? GROUP BY caller"
        told = dict(change.statements.run(statement, (NO_QUORUM,)))
    keys = {key.id: key for key in reopened().view().keys}
    assert {caller: keys[caller].met for caller in callers} == callers
    assert all(told.get(caller, 0) <= share for caller, share in callers.items())
    assert sum(callers.values()) - sum(told.values()) <= 8 * (kills + 4)  # one was set aside for each of 8 callers
    assert ledger.verify().sound
