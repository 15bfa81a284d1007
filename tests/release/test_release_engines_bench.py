"""The figures of `python -m benchmarks release` that belong to engines: names without data, absent peers, Adult."""

import numpy as np
import pytest

from benchmarks.data import adult_columns, adult_split
from benchmarks.figures import BARS, data_folder
from benchmarks.peers import PEERS, peer_figures, run_peer
from benchmarks.release import adult_figures
from benchmarks.release_learning import learning_peer_figures
from quorate import Budget
from quorate.release.engines import ENGINES
from quorate.release.queries import Marginals, Rows


@pytest.fixture
def adult():
    folder = data_folder() / "adult_release"
    if not folder.is_dir():
        pytest.skip(f"the Adult tables are not here ({folder}); set QUORATE_DATA to the folder that has adult_release/")
    return folder


def test_without_data_every_figure_is_named_and_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("QUORATE_DATA", str(tmp_path))
    found = list(adult_figures(True))
    assert len(found) == len({name for name, _, _ in found}) == 32
    assert all(value is None for _, value, _ in found)
    peers = [*peer_figures(True), *learning_peer_figures(True)]
    assert all(value is None for _, value, _ in peers)
    assert {name for name, _, _ in peers} == {name for name in BARS["release"] if name.startswith("release.peer.")}


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch, capfd):
    monkeypatch.setenv("QUORATE_PEERS", "/nowhere/python")
    rows = Rows([[0, 1]], (2, 2))
    assert run_peer("smartnoise_mst", Marginals((2, 2), [(0, 1)]), rows, epsilon=1.0, limit=5.0) is None
    assert "not installed: left out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("program", "limit", "said"),
    [
        ("raise ValueError('no luck')", 300.0, "failed: ValueError: no luck"),  # however slowly Python starts
        ("import time; time.sleep(600)", 1.0, "took more than 1 s"),
    ],
)
def test_a_peer_that_fails_or_lasts_is_left_out(program, limit, said, monkeypatch, capfd):
    monkeypatch.delenv("QUORATE_PEERS", raising=False)
    monkeypatch.setitem(PEERS, "broken", ("json", program))
    rows = Rows([[0, 1]], (2, 2))
    assert run_peer("broken", Marginals((2, 2), [(0, 1)]), rows, epsilon=1.0, limit=limit) is None
    assert said in capfd.readouterr().err


def test_a_peer_that_answers_other_queries_is_left_out(monkeypatch, capfd):
    monkeypatch.delenv("QUORATE_PEERS", raising=False)
    program = "import sys, numpy as np; np.savez(sys.argv[2], answers=np.ones(9))"
    monkeypatch.setitem(PEERS, "other", ("numpy", program))
    assert run_peer("other", Marginals((2, 2), [(0, 1)]), Rows([[0, 1]], (2, 2)), epsilon=1.0, limit=300.0) is None
    assert "gave 9 answers to 4 queries" in capfd.readouterr().err


def test_adult_is_answered_well(adult):
    """Bars with ample room: the bench holds the medians against the promised ones."""
    queries, private, public = adult_split(adult, 0)
    released = ENGINES["reweighting"].run(
        queries, private, public=public, budget=Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    )
    truth = queries.answers(private) / private.records
    assert np.abs(released.answers - truth).max() < 0.0045
    assert np.abs(queries.answers(public) / public.records - truth).max() > 0.008
    assert released.details["refuted"] == 0.0


@pytest.mark.long
def test_the_far_part_of_adult_is_refuted(adult):
    sizes, codes = adult_columns(adult, "adult15", "_private")
    far = Rows(adult_columns(adult, "adult15", "_public_far")[1], sizes)
    queries = Marginals(sizes, [(0, 1), (9, 14), (5, 7), (8, 13)])
    for epsilon in (0.1, 1.0):
        budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
        released = ENGINES["reweighting"].run(queries, Rows(codes, sizes), public=far, budget=budget)
        assert released.details["refuted"] == 1.0
