"""Compactions killed at random instants, while others answer: nothing is given back, and no answer changes."""

import os
import random
import signal
import time
import traceback

import pytest

from quorate.core.ledger import _compaction as compaction
from support.ledger_in_use import UNITS, ask, make_used, open_ledger, session_of, units_spent

KILLS = [5, pytest.param(int(os.environ.get("QUORATE_COMPACTION_KILLS", "200")), marks=pytest.mark.crash)]


def forked(work):
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:  # whatever it is, the child must not go on as a test
        traceback.print_exc()
    os._exit(1)


def compact_on(place, folder):
    """Compact again and again, until this process is killed."""
    compaction._ENTRIES, compaction._SWEPT = 7, 5
    while True:
        open_ledger(place, folder).compact()


def ask_on(place, folder, seed):
    """Ask new queries, until this process is killed."""
    generator, session = random.Random(seed), session_of(open_ledger(place, folder))
    while True:
        ask(session, generator.randrange(10**9))
        time.sleep(0.05)  # the budget lasts for all kills


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.crash)])
def test_a_compaction_that_is_killed_gives_nothing_back(store, kills, tmp_path, request):
    folder = tmp_path / "model"
    place = folder / "ledger.sqlite" if store == "sqlite" else request.getfixturevalue("postgres_url")
    make_used(place, folder)
    generator = random.Random(0)
    known = ask(session_of(open_ledger(place, folder)), *range(12))
    compacts, answers = forked(lambda: compact_on(place, folder)), forked(lambda: ask_on(place, folder, 0))
    for kill in range(kills):
        time.sleep(generator.uniform(0.01, 0.15))
        os.kill(compacts, signal.SIGKILL)
        assert os.waitpid(compacts, 0)[1] == signal.SIGKILL  # and it did not fail before
        if kill % 5 == 4:
            os.kill(answers, signal.SIGKILL)
            assert os.waitpid(answers, 0)[1] in (signal.SIGKILL, 1 << 8)  # killed, or the budget was spent
        ledger = open_ledger(place, folder)  # reads and checks all of it
        state, kept = ledger.state(), ledger.count_answers()
        assert kept * (state.capacity[0] // UNITS) <= ledger.state().spent[0] <= state.capacity[0]
        if kill % 5 == 4:
            assert ask(session_of(ledger), *range(12)) == known
            answers = forked(lambda kill=kill: ask_on(place, folder, kill + 1))
        compacts = forked(lambda: compact_on(place, folder))
    for child in (compacts, answers):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    ledger = open_ledger(place, folder)
    compacted = ledger.compact()
    assert compacted.through > 10
    assert ledger.verify().sound
    assert units_spent(place, folder) >= ledger.count_answers()
