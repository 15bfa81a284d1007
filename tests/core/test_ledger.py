"""A budget in a file: charged before anything is drawn, shared by processes, never given back by a crash."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate import Budget, BudgetSpent, Cost, InvalidInput, WrongProcess
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Ledger
from quorate.core.ledger._rules import Event
from quorate.core.ledger._store import without_password
from quorate.core.ledger.budget import is_gone, owner_name
from quorate.core.ledger.chain import canonical, digest_rows, keyed_hash, link
from quorate.core.privacy import RENYI_QUANTA, to_capacity
from quorate.core.requests import Asked
from support.forked import Forked

SPENDER = """
import sys
from pathlib import Path
from quorate import BudgetSpent, Cost
from quorate.core.ledger import Ledger
budget, granted = Ledger.open(Path(sys.argv[1]), fingerprint="m").budget(), 0
try:
    while True:
        budget.reserve(Cost(renyi=1 / 64), times=2).settle(1)
        granted += 1
except BudgetSpent:
    print(granted)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def test_a_stored_budget_is_the_budget_it_was_made_from(path):
    budget = Budget(epsilon=1.0, delta=1e-6, order=20.0, slack=1e-8)
    budget.spend(Cost(renyi=0.125, slack=1e-9))
    twin = Budget(epsilon=1.0, delta=1e-6, order=20.0, slack=1e-8)
    twin.spend(Cost(renyi=0.125, slack=1e-9))
    stored = Ledger.create(path, twin, fingerprint="m").budget()
    for made in (stored, Ledger.open(path, fingerprint="m").budget()):
        assert (made.spent(), made.remaining(), made.capacity()) == (
            budget.spent(),
            budget.remaining(),
            budget.capacity(),
        )
        assert made.spent_epsilon() == budget.spent_epsilon()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_it_does_the_same_as_a_budget_in_memory(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    plain = Budget(epsilon=1.0, delta=0.0)
    stored = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m").budget()
    for sixteenths, times, kept in steps:
        outcomes = []
        for budget in (plain, stored):
            try:
                budget.reserve(Cost(renyi=sixteenths / 16), times=times).settle(min(kept, times))
                outcomes.append("granted")
            except BudgetSpent as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert plain.spent() == stored.spent()


@pytest.mark.parametrize(("quanta", "accepted"), [(1, True), (-1, True), (2, False), (-2, False)])
def test_a_capacity_from_another_library_of_logarithms_is_kept(path, monkeypatch, quanta, accepted):
    """The capacity in the ledger counts, if the one that is computed here differs by rounding alone."""
    made = Budget(epsilon=1.0, delta=1e-6, order=20.0)
    capacity = made.quanta()
    ledger = Ledger.create(path, made, fingerprint="m")
    moved = to_capacity(1.0, delta=made._rest, order=20.0) + quanta / RENYI_QUANTA
    monkeypatch.setattr("quorate.core.privacy.budget.to_capacity", lambda *_, **__: moved)
    if accepted:
        assert ledger.budget().quanta() == capacity
    else:
        with pytest.raises(LedgerRefused, match="another capacity"):
            ledger.budget()


def test_processes_share_one_budget(path):
    """Four processes reserve two units, keep one; 64 units in all, of which the last may not find its second."""
    Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    with tempfile.TemporaryFile("w+") as said:
        running = [Forked(SPENDER, str(path), stdout=said.fileno(), stderr=2) for _ in range(4)]
        assert [process.wait(300) for process in running] == [0] * 4
        said.seek(0)
        granted = sum(map(int, said.read().split()))
    assert 58 <= granted <= 63
    assert Ledger.open(path, fingerprint="m").budget().spent().renyi == granted / 64


def test_the_account_is_moved_and_not_copied(path, tmp_path):
    budget = Budget(epsilon=1.0, delta=0.0)
    waiting = budget.reserve(Cost(renyi=0.25), times=2)
    ledger = Ledger.create(path, budget, fingerprint="m")
    waiting.settle(0)  # too late: what was set aside went over, charged
    assert ledger.budget().remaining().renyi == 0.5
    assert budget.affordable(Cost(renyi=0.01)) == 0
    with pytest.raises(BudgetSpent):
        budget.spend(Cost(renyi=0.01))
    for taken in (budget, ledger.budget()):
        with pytest.raises(InvalidInput, match=r"already taken over by a ledger|stays in the ledger"):
            Ledger.create(tmp_path / f"{id(taken)}", taken, fingerprint="m")


def test_a_ledger_that_is_exchanged_under_way_is_refused(path, tmp_path):
    """Found in review: a running model went on spending from whatever lay at its path."""
    ledger = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    (tmp_path / "b").mkdir()
    other = Ledger.create(tmp_path / "b" / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="another")
    other.close()
    budget = ledger.budget()
    budget.spend(Cost(renyi=1.0))
    ledger._store.close()
    os.replace(tmp_path / "b" / "ledger.sqlite", path)
    for use in (lambda: budget.spend(Cost(renyi=0.5)), ledger.run, lambda: ledger.admit([Asked("", [b"x"])])):
        with pytest.raises(LedgerRefused, match="holds no ledger of this model"):
            use()
    path.unlink()
    with pytest.raises(LedgerRefused, match="is missing"):
        budget.remaining()
    assert not path.exists()


def test_it_stays_where_it_is(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    budget = Ledger.create(Path("ledger.sqlite"), Budget(epsilon=1.0, delta=0.0), fingerprint="m").budget()
    monkeypatch.chdir(tmp_path / "b")
    budget.spend(Cost(renyi=0.5))
    assert budget.remaining().renyi == 0.5


def test_a_forked_child_cannot_take_the_account_over(path):
    budget = Budget(epsilon=1.0, delta=0.0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Ledger.create(path, budget, fingerprint="m")
        except WrongProcess:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert budget.remaining().renyi == 1.0


def test_it_is_for_its_owner(path):
    Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_refusals(path, tmp_path):
    Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    with pytest.raises(InvalidInput, match="exists, and a ledger is never overwritten"):
        Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    with pytest.raises(LedgerRefused, match="it belongs to another model"):
        Ledger.open(path, fingerprint="another")
    with pytest.raises(LedgerRefused, match="is missing: without its ledger"):
        Ledger.open(tmp_path / "gone", fingerprint="m")
    (tmp_path / "text").write_text("not a ledger, " * 100)
    with pytest.raises(LedgerRefused, match="is not a ledger"):
        Ledger.open(tmp_path / "text", fingerprint="m")


def test_answers_are_kept_for_their_caller(path):
    ledger = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    many = {index.to_bytes(16, "big"): index % 3 - 1 for index in range(1300)}
    ledger.keep({("a", query): label for query, label in many.items()}, {}, [])
    mine, others = ledger.admit([Asked("a", list(many)), Asked("b", list(many))])
    assert (mine.answers, others.answers) == (many, {})
    known = {}
    ledger.keep({("a", b"\0" * 16): 2}, known, [])
    assert known == {("a", b"\0" * 16): -1}  # the first answer stands


def test_hashes_have_one_reading():
    assert canonical({"b": 1, "a": [1.5, "x"]}) == '{"a":[1.5,"x"],"b":1}'
    assert keyed_hash(b"key", b"a", b"b") != keyed_hash(b"key", b"ab")
    assert digest_rows([b"a1", b"b2"]) == digest_rows([b"b2", b"a1"])
    first = link(b"key", "", 1, Event("wanted", 0.0, {}))
    assert link(b"key", first.mac, 2, Event("wanted", 1.0, {})).mac != link(b"key", "", 2, Event("wanted", 1.0, {})).mac


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://me:secret@host/quorate?password=secret&sslmode=require",
            "postgresql://me@host/quorate?sslmode=require",
        ),
        ("postgresql://me:a#b?c[d@host/quorate", "postgresql://me@host/quorate"),
        ("postgresql:///quorate", "postgresql:///quorate"),
    ],
)
def test_a_place_is_shown_without_its_password(url, shown):
    assert without_password(url) == shown


def test_an_owner_is_gone_when_its_process_is():
    assert not is_gone(owner_name(), silent=1e9)
    assert not is_gone("another host/boot/namespace/1/100", silent=10.0)
    assert is_gone("another host/boot/namespace/1/100", silent=1e9)
