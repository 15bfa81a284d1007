"""An everlasting model killed at every step of asking it: nobody sits twice, and no answer changes."""

import pytest

from quorate.models.saving import save
from support.everlasting_kills import killed_at, small, what_is_wrong


@pytest.mark.crash
def test_a_kill_at_any_step(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    classifier = small()
    save(classifier, tmp_path / "model")
    classifier.session_.close()
    steps = 0
    for folder, state, said in killed_at(tmp_path, start=1, stride=1):
        monkeypatch.setenv("QUORATE_STATE", str(state))
        assert what_is_wrong(folder, said) == [], folder
        steps += 1
    print(f"killed at {steps - 1} steps")  # noqa: T201  the figure, with -s or -rP
    assert steps > 200
