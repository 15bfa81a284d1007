"""Engines of releases against exact answers of large tables, and the figures of their bench."""

import numpy as np
import pytest

from benchmarks.data import adult_columns, adult_split
from benchmarks.figures import BARS, data_folder
from benchmarks.peers import PEERS, peer_figures, run_peer
from benchmarks.release import adult_figures
from benchmarks.release_learning import learning_peer_figures
from quorate import Budget
from quorate.release.engines import ENGINES, Mixture
from quorate.release.engines._components import agreeing_marginals, least_squares, weigh_components
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


SIZES = (12, 12, 9, 8)


def tight_table(rows, seed=0):
    """Columns that are functions of each other: more than a mixture of so few products represents exactly."""
    chance = np.random.default_rng(seed)
    first, third = chance.integers(0, 12, rows), chance.integers(0, 9, rows)
    second = (5 * first + 3 * (third == 4)) % 12
    return Rows(np.stack([first, second, third, (first + third) % 8], axis=1), SIZES)


def noisy_tables(queries, shares, deviation, seed=1):
    chance = np.random.default_rng(seed)
    tables = np.split(shares + deviation * chance.normal(size=queries.count), queries.offsets[1:-1])
    return {clique: (table, deviation) for clique, table in zip(queries.cliques, tables, strict=True)}


def test_what_a_model_misses_is_believed_and_what_it_has_is_not():
    queries = Marginals.of_order(SIZES, 2)
    shares = queries.answers(tight_table(5000)) / 5000
    even = Mixture(SIZES, np.ones(1), np.concatenate([np.full(size, 1 / size) for size in SIZES])[None, :])
    believed = weigh_components(SIZES, noisy_tables(queries, shares, 1e-4), even).beliefs
    assert believed[0, 1] > 0.99
    assert believed[0, 3] > 0.99
    independent = queries.answers(np.full(np.prod(SIZES), 1 / np.prod(SIZES)))
    believed = weigh_components(SIZES, noisy_tables(queries, independent, 1e-4), even).beliefs
    assert max(believed.values()) < 0.5  # fixed seeds: of 10 components none stands out


def test_agreeing_marginals_agree_and_are_not_negative():
    queries = Marginals.of_order(SIZES, 2)
    shares = queries.answers(tight_table(5000)) / 5000
    unbiased, deviations = least_squares(queries, noisy_tables(queries, shares, 2e-3))
    answers = agreeing_marginals(queries, unbiased, deviations)
    assert answers.min() >= 0.0
    tables = dict(zip(queries.cliques, np.split(answers, queries.offsets[1:-1]), strict=True))
    ones = [tables[0, other].reshape(12, -1).sum(axis=1) for other in (1, 2, 3)]
    assert np.abs(ones[0] - ones[1]).max() < 5e-4  # what is left below 0 in 12 cells, each a fiftieth of its noise
    assert np.abs(ones[0] - ones[2]).max() < 5e-4
    assert np.abs(answers - shares).mean() < 0.9 * np.abs(unbiased - shares).mean()


def test_with_many_records_the_release_errs_by_its_noise_and_its_bars_cover():
    queries, private = Marginals.of_order(SIZES, 2), tight_table(400_000)
    released = ENGINES["residual"].run(queries, private, budget=Budget(epsilon=1.0, delta=1e-6, slack=0.0))
    error = np.abs(released.answers - queries.answers(private) / private.records)
    assert 0.0 <= released.details["believed"] < 0.5  # hardly any: 0.02 in 24 releases, 0.1 at most, and at times none
    assert error.max() < 7 * released.details["deviation"]  # of 600 Gaussian errors: by chance below 1e-8
    assert (error <= 1.96 * released.errors).mean() > 0.85  # 0.95 wanted


def test_records_have_the_pairs_that_were_answered_where_the_model_lacks_them():
    queries = Marginals.of_order(SIZES, 2)
    shares = queries.answers(tight_table(5000)) / 5000
    even = Mixture(SIZES, np.ones(1), np.concatenate([np.full(size, 1 / size) for size in SIZES])[None, :])
    drawn = queries.answers(Rows(even.draw(5000, even.pairs(queries, shares)), SIZES)) / 5000
    alone = queries.answers(Rows(even.draw(5000), SIZES)) / 5000
    assert np.abs(drawn - shares).sum() < 0.5 * np.abs(alone - shares).sum()
