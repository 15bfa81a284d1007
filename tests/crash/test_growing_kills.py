"""A growing release and its account killed at every step: no update is told twice with other noise."""

import pytest
from growing_kills import killed_at, what_is_wrong

from quorate.core.errors import LedgerRefused

STRIDES = [
    pytest.param(101, 3, marks=pytest.mark.long, id="few"),
    pytest.param(1, 300, marks=pytest.mark.crash, id="all"),
]


@pytest.mark.parametrize(("stride", "least"), STRIDES)
def test_a_kill_at_any_step(tmp_path, monkeypatch, stride, least):
    told = []
    for folder, state, said in killed_at(tmp_path, start=stride, stride=stride):
        monkeypatch.setenv("QUORATE_STATE", str(state))
        assert what_is_wrong(folder, said) == [], folder
        told.append(len(said))
    print(f"killed at {len(told) - 1} steps")  # noqa: T201  the figure, with -s or -rP
    assert len(told) > least
    assert {0, 3} <= set(told)  # some died early, and the last one came to its end


@pytest.mark.long
def test_a_build_that_tells_an_update_before_it_is_kept_is_caught(tmp_path, monkeypatch):
    ((folder, state, said),) = killed_at(tmp_path, start=10**9, most=1, plant="told_first")
    monkeypatch.setenv("QUORATE_STATE", str(state))
    assert any("told" in problem for problem in what_is_wrong(folder, said))


@pytest.mark.long
def test_a_build_whose_ledger_speaks_first_is_caught(tmp_path, monkeypatch):
    ((folder, state, said),) = killed_at(tmp_path, start=10**9, most=1, plant="ledger_first")
    monkeypatch.setenv("QUORATE_STATE", str(state))
    with pytest.raises(LedgerRefused, match="is missing"):
        what_is_wrong(folder, said)
