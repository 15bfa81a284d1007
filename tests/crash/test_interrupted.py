"""Killed while a model is saved, or its ledger moved: what is left is refused, or whole, and never two budgets."""

import random
import time

import numpy as np
import pytest

from models import FEATURES, make_model, move_ledger
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.models.saving import load

UNITS = 50


def _spent(folder):
    """Return the units charged at the model of this folder."""
    made = load(folder)
    try:
        return round(made.budget_.spent().renyi / made.budget_.capacity().renyi * UNITS)
    finally:
        made.session_.close()


def _whole(nursery, folder, **options):
    """Return how long the job takes where nobody interrupts it."""
    began = time.monotonic()
    (process,) = nursery.start(folder, **options)
    assert nursery.wait(process) == 0
    return time.monotonic() - began


def _interrupted(nursery, folder, seconds, **options):
    (process,) = nursery.start(folder, wait=True, **options)
    time.sleep(random.random() * seconds)
    nursery.kill(process)


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.crash)])
def test_a_model_that_was_being_saved_is_whole_or_none(nursery, tmp_path, kills):
    seconds = _whole(nursery, tmp_path / "whole", job="save", units=UNITS)
    whole = 0
    for kill in range(kills):
        folder = tmp_path / f"model{kill}"
        _interrupted(nursery, folder, seconds, job="save", units=UNITS)
        try:
            assert _spent(folder) == 0
            whole += 1
        except (InvalidInput, LedgerRefused):
            if folder.exists() and any(folder.iterdir()):
                with pytest.raises(InvalidInput, match="never overwritten"):
                    make_model(folder, units=UNITS)
    print(f"{whole} of {kills} models were whole")  # noqa: T201


@pytest.mark.crash
def test_a_ledger_that_was_being_moved_can_be_moved_again(nursery, postgres_server, tmp_path):
    make_model(tmp_path / "whole", units=UNITS)
    seconds = _whole(nursery, tmp_path / "whole", job="move", url=postgres_server.database())
    query = np.zeros((1, FEATURES))
    where = []
    for kill in range(60):
        folder, url = tmp_path / f"model{kill}", postgres_server.database()
        make_model(folder, units=UNITS)
        made = load(folder)
        answer = made.predict(query).tolist()
        made.session_.close()
        _interrupted(nursery, folder, seconds, job="move", url=url)
        try:
            assert _spent(folder) == 1
            where.append("database" if (folder / "ledger.json").exists() else "file")
        except LedgerRefused:
            where.append("refused")
        if not (folder / "ledger.json").exists():
            move_ledger(folder, url)
        assert _spent(folder) == 1
        moved = load(folder)
        assert moved.predict(query).tolist() == answer
        moved.session_.close()
        (folder / "ledger.json").unlink()  # the file that was left behind pays for nothing
        with pytest.raises((LedgerRefused, InvalidInput)):
            load(folder).predict(query + 1)
    print({outcome: where.count(outcome) for outcome in set(where)})  # noqa: T201
