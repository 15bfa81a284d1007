"""95% intervals: made of unbiased answers and their noise, so that they hold for tables that no model fits."""

import numpy as np
import pytest

from quorate import Budget, QueryRelease, Workload
from quorate.concepts import Threshold, Thresholds
from quorate.release import Columns
from quorate.release.engines import ENGINES, interval
from quorate.release.queries import Marginals, Rows
from quorate.simulation import SeededNoise
from test_release_bars import GRID, apart, classes, function_of_two, marginals, strong_pair


def run(queries, rows, *, epsilon, seed, engine="residual", public=None):
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    return ENGINES[engine]._run(queries, rows, public, budget, SeededNoise(seed))


def held(queries, rows, released):
    """Of the cells above 0.1%, which lie within their 95% interval."""
    truth, (low, high) = queries.answers(rows) / rows.records, released.intervals(rows.records)
    return ((low <= truth) & (truth <= high))[truth > 0.001]


def test_half_a_record_makes_up_for_noise_that_is_whole():
    """The second method: every outcome of the discrete Gaussian is added up, at scales from 0.05 to 200."""
    least, bare = 1.0, 1.0
    for scale in np.geomspace(0.05, 200.0, 4001):
        outcomes = np.arange(-int(12 * scale) - 3, int(12 * scale) + 4)
        chances = np.exp(-(outcomes**2) / (2 * scale**2))
        low, high = interval(np.zeros(1), np.zeros(1), np.array([scale]), 1)
        inside = (low <= outcomes) & (outcomes <= high)
        least = min(least, chances[inside].sum() / chances.sum())
        bare = min(bare, chances[np.abs(outcomes) <= 1.96 * scale].sum() / chances.sum())
    assert least >= 0.95
    assert bare < 0.9


def test_what_is_known_has_no_width_and_every_interval_holds_its_answer():
    low, high = interval(np.array([0.5, 0.9]), np.array([0.5, 0.2]), np.array([0.0, 0.1]), 1000)
    assert low.tolist() == pytest.approx([0.5, 0.2 - 0.196 - 0.0005], abs=1e-5)
    assert high.tolist() == [0.5, 0.9]


def test_a_pair_that_noise_hides_is_covered_where_the_fit_says_that_there_is_none():
    """Seeds are fixed: 96% of the cells. Within 1.96 of their estimated errors are 59%."""
    sizes = (30, 30, 6, 4)
    rows, queries = Rows(strong_pair(np.random.default_rng(1), 5000, sizes), sizes), marginals(sizes, "mean")
    truth, pair = queries.answers(rows) / rows.records, queries.cliques.index((0, 1))
    cells = np.arange(queries.offsets[pair], queries.offsets[pair + 1])
    cells = cells[truth[cells] > 0.001]
    inside, fitted = [], []
    for seed in range(3):
        released = run(queries, rows, epsilon=0.1, seed=seed)
        low, high = released.intervals(rows.records)
        inside.append(np.mean((low <= truth)[cells] & (truth <= high)[cells]))
        fitted.append(np.mean(np.abs(released.answers - truth)[cells] <= 1.96 * released.errors[cells]))
    assert 0.93 < np.mean(inside) < 0.99
    assert np.mean(fitted) < 0.75


@pytest.mark.parametrize(
    ("engine", "error", "epsilon"),
    [("residual", "mean", 0.1), ("residual", "largest", 1.0), ("adaptive", "mean", 1.0), ("plain", "largest", 0.1)],
)
def test_intervals_hold_for_95_to_97_of_100_cells(engine, error, epsilon):
    """Seeds are fixed. Some 800 cells of four releases, whose errors go together."""
    hits = []
    for seed, kind in enumerate([apart, classes, strong_pair, function_of_two]):
        sizes = (7, 8, 10, 5, 4)
        rows = Rows(kind(np.random.default_rng(seed), 20_000, sizes), sizes)
        queries = marginals(sizes, error)
        hits.append(held(queries, rows, run(queries, rows, epsilon=epsilon, seed=seed, engine=engine)))
    assert 0.935 < np.mean(np.concatenate(hits)) < 0.98


def test_intervals_hold_whatever_the_public_records_are():
    """Seeds are fixed. Public columns that were shuffled agree with every column, and with no pair."""
    sizes = (7, 8, 10, 5)
    codes = strong_pair(np.random.default_rng(0), 21_000, sizes)
    queries, rows, chance = Marginals.of_order(sizes, 2), Rows(codes[1000:], sizes), np.random.default_rng(1)
    shuffled = np.stack([chance.permutation(column) for column in codes[:1000].T], axis=1)
    for public in (codes[:1000], shuffled):
        hits = [
            held(
                queries,
                rows,
                run(queries, rows, epsilon=0.1, seed=seed, engine="reweighting", public=Rows(public, sizes)),
            )
            for seed in range(2)
        ]
        assert 0.93 < np.mean(np.concatenate(hits)) < 0.985


def test_sums_of_cells_have_intervals_that_hold():
    """Real noise: 12 releases of 9 sums each. Fewer than 90 of 108 have a chance below 1e-5 if 95% hold."""
    chance = np.random.default_rng(0)
    table = {
        name: chance.choice(list("abcdefgh")[:size], 3000).tolist() for name, size in (("x", 4), ("y", 3), ("z", 2))
    }
    declared = Columns.from_dict({"x": list("abcd"), "y": list("abc"), "z": list("ab")})
    asked = [{name: code} for name, codes in (("x", "abcd"), ("y", "abc"), ("z", "ab")) for code in codes]
    truth = [np.mean([value == code for value in table[name]]) for one in asked for name, code in one.items()]
    inside = 0
    for _ in range(12):
        rows = QueryRelease(Workload.marginals(2), columns=declared, epsilon=0.5).fit(table).answer(asked).to_pylist()
        inside += sum(row["low"] <= true <= row["high"] for row, true in zip(rows, truth, strict=True))
    assert inside >= 90


def test_thresholds_of_both_directions_have_intervals_and_bands_that_hold():
    """A downward threshold is the whole less a prefix. Real noise: 1 in 10,000 alarms if 95% of 400 hold."""
    chance = np.random.default_rng(0)
    private, public = chance.normal(size=4000), chance.normal(size=50)
    asked = [Threshold(cut, upward=up) for cut in (-1.0, -0.3, 0.2, 0.9, 1.5) for up in (True, False)]
    inside = 0
    for _ in range(40):
        release = QueryRelease(Thresholds(both_directions=True), epsilon=0.5).fit(private, public)
        numbers = release.domain_.find(asked)
        sealed, records = release.domain_.seal(private)  # simulated records: their truth is no secret
        counts = sealed.put_to(release.domain_.queries.answers) / records
        plus, minus = (np.where(part < 0, 0.0, counts[np.maximum(part, 0)]) for part in release.domain_.parts(numbers))
        truth, bars, band = plus - minus, release.bars(numbers), release.bars(numbers, band=0.95)
        inside += int(((bars["low"] <= truth + 1e-12) & (truth <= bars["high"] + 1e-12)).sum())
        assert (band["low"] <= bars["low"] + 1e-12).all()
        assert (band["high"] >= bars["high"] - 1e-12).all()
    assert inside >= 360


@pytest.mark.long
@pytest.mark.parametrize("engine", ["residual", "adaptive", "plain"])
@pytest.mark.parametrize("error", ["largest", "mean"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_intervals_cover_tables_of_every_kind(epsilon, error, engine):
    """Seeds are fixed. Each table by itself, where it has cells enough to tell."""
    hits = []
    for kind, sizes, records, order in GRID:
        rows, queries = Rows(kind(np.random.default_rng(0), records, sizes), sizes), marginals(sizes, error, order)
        each = [held(queries, rows, run(queries, rows, epsilon=epsilon, seed=seed, engine=engine)) for seed in range(2)]
        hits.append(np.mean(np.concatenate(each)))
    assert 0.945 < np.mean(hits) < 0.97
    assert min(hits) > 0.925
    assert max(hits) < 0.985
