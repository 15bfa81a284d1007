"""95% intervals: made of unbiased answers and their noise, so that they hold for tables that no model fits."""

import csv

import numpy as np
import pytest
from test_release_bars import GRID, apart, classes, function_of_two, marginals, strong_pair

from quorate import Budget, QueryRelease, Workload
from quorate.auditing import entropy_tape
from quorate.auditing._plays import SeededNoise
from quorate.models.concepts import Threshold, Thresholds
from quorate.release import Columns
from quorate.release.domain import make_domain
from quorate.release.engines import ENGINES
from quorate.release.engines._components import least_squares, without_impossible
from quorate.release.engines._fitted import release_tables
from quorate.release.engines.base import around, half_interval
from quorate.release.queries import Marginals, Rows


def run(queries, rows, *, epsilon, seed, engine="residual", public=None):
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    return ENGINES[engine]._run(queries, rows, public, budget, SeededNoise(seed))


def held(queries, rows, released):
    """Of the cells above 0.1%, which lie within their 95% interval."""
    truth, (low, high) = queries.answers(rows) / rows.records, released.intervals(queries, rows.records)
    return ((low <= truth) & (truth <= high))[truth > 0.001]


def test_half_a_record_makes_up_for_noise_that_is_whole():
    """The second method: every outcome of the discrete Gaussian is added up, where an interval loses its last one."""
    least = 1.0
    for wide in range(1, 400):
        scale = (wide - 0.5) / 1.959963984540054 * (1.0 - 1e-12)
        outcomes = np.arange(-int(12 * scale) - 3, int(12 * scale) + 4)
        chances = np.exp(-(outcomes**2) / (2 * scale**2))
        inside = np.abs(outcomes) <= half_interval(np.array([scale]), 1.0)
        least = min(least, chances[inside].sum() / chances.sum())
    assert least >= 0.95
    chances = np.exp(-(np.arange(-9, 10) ** 2) / 2)
    assert chances[8:11].sum() / chances.sum() < 0.9  # within 1.96 deviations, at a scale of 1


def test_what_is_known_has_no_width_and_every_interval_holds_its_answer():
    unbiased, deviations = np.array([0.5, 0.2, 1.0 - 1e-16]), np.array([0.0, 0.1, 0.0])
    low, high = around(np.array([0.5, 0.9, 1.0 - 1e-16]), unbiased, half_interval(deviations, 1000))
    assert low.tolist() == pytest.approx([0.5, 0.2 - 0.196 - 0.0005, 1.0], abs=1e-5)
    assert high.tolist() == [0.5, 0.9, 1.0]


def test_a_sum_with_cells_that_cannot_occur_is_the_answer_of_the_smaller_marginal():
    """The third column says whether the first two differ, and that is declared: other cells of a slab err the same way.

    Without the cells that cannot occur, the sum would vary by up to a quarter more than its cells say.
    """
    sizes, chance = {"a": 2, "b": 2, "c": 2, "d": 2, "e": 3}, np.random.default_rng(0)
    rules = [{"a": str(a), "b": str(b), "c": str(1 - (a ^ b))} for a in (0, 1) for b in (0, 1)]
    columns = {name: {"categories": list("012"[:size]), "closed": True} for name, size in sizes.items()}
    declared = Columns.from_dict({"columns": columns, "constraints": rules})
    queries = make_domain(Workload.marginals(4), None, declared).queries
    noisy = {
        clique: (chance.normal(0.1, deviation, end - start), deviation)
        for clique, start, end, deviation in zip(
            queries.cliques, queries.offsets[:-1], queries.offsets[1:], (0.01, 0.02, 0.04, 0.03, 0.05), strict=True
        )
    }
    released = release_tables(queries, noisy, "residual")
    smaller = Marginals(queries.sizes, [(3,)])
    answers, deviations = least_squares(smaller, without_impossible(queries, noisy))
    for place, clique in enumerate(queries.cliques):
        if 3 not in clique:
            continue
        shape, cells = queries.shapes[place], slice(queries.offsets[place], queries.offsets[place + 1])
        others = tuple(axis for axis, column in enumerate(clique) if column != 3)
        assert released.unbiased[cells].reshape(shape).sum(axis=others) == pytest.approx(answers)
        assert (np.sqrt((released.deviations[cells] ** 2).reshape(shape).sum(axis=others)) >= deviations).all()
    low, high = released.intervals(queries, 1000)
    assert not low[~queries.mask].any()
    assert not high[~queries.mask].any()


def test_sums_of_what_cannot_occur_are_known():
    rules = [{"x": "a", "y": "a"}, {"x": "a", "y": "b"}]
    declared = Columns.from_dict({"columns": {"x": ["a", "b"], "y": ["a", "b"]}, "constraints": rules})
    release = QueryRelease(Workload.marginals(2), columns=declared).fit({"x": ["b"] * 500, "y": ["a", "b"] * 250})
    never, whole = release.answer([{"x": "a", "y": "a"}, {"y": "a"}]).to_pylist()
    assert (never["answer"], never["low"], never["high"]) == (0.0, 0.0, 0.0)
    assert whole["low"] < whole["answer"] < whole["high"]


def test_the_table_of_a_folder_rounds_ends_outwards(tmp_path):
    """Noise of a record among millions: six digits would miss the truth."""
    private = np.random.default_rng(0).normal(size=2_000_003)
    release = QueryRelease(Thresholds(), epsilon=8.0).fit(private, np.linspace(-2, 2, 5))
    release.publish(tmp_path / "folder")
    with (tmp_path / "folder" / "answers.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    for row, bar in zip(written, release.answer().to_pylist(), strict=True):
        assert float(row["low"]) <= bar["low"] <= bar["high"] <= float(row["high"])
        assert float(row["high"]) - float(row["low"]) < bar["high"] - bar["low"] + 1e-8


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
        low, high = released.intervals(queries, rows.records)
        inside.append(np.mean((low <= truth)[cells] & (truth <= high)[cells]))
        fitted.append(np.mean(np.abs(released.answers - truth)[cells] <= 1.96 * released.errors[cells]))
    assert 0.93 < np.mean(inside) < 0.99
    assert np.mean(fitted) < 0.75


@pytest.mark.parametrize(
    ("engine", "error", "epsilon"),
    [
        ("residual", "mean", 0.1),
        ("adaptive", "mean", 1.0),
        ("plain", "largest", 0.1),
        pytest.param("residual", "largest", 1.0, marks=pytest.mark.long),
    ],
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
    """Eight releases of 9 sums each, on one tape. Fewer than 60 of 72 have a chance below 1e-3 if 95% hold."""
    chance = np.random.default_rng(0)
    table = {
        name: chance.choice(list("abcdefgh")[:size], 3000).tolist() for name, size in (("x", 4), ("y", 3), ("z", 2))
    }
    declared = Columns.from_dict({"x": list("abcd"), "y": list("abc"), "z": list("ab")})
    asked = [{name: code} for name, codes in (("x", "abcd"), ("y", "abc"), ("z", "ab")) for code in codes]
    truth = [np.mean([value == code for value in table[name]]) for one in asked for name, code in one.items()]
    inside = 0
    for seed in range(8):
        with entropy_tape(seed):
            release = QueryRelease(Workload.marginals(2), columns=declared, epsilon=0.5).fit(table)
        rows = release.answer(asked).to_pylist()
        inside += sum(row["low"] <= true <= row["high"] for row, true in zip(rows, truth, strict=True))
    assert inside >= 60


def test_thresholds_of_both_directions_have_intervals_and_bands_that_hold():
    """A downward threshold is the whole less a prefix. On one tape: one in 10,000 fails if 95% of 400 hold."""
    chance = np.random.default_rng(0)
    private, public = chance.normal(size=4000), chance.normal(size=50)
    asked = [Threshold(cut, upward=up) for cut in (-1.0, -0.3, 0.2, 0.9, 1.5) for up in (True, False)]
    inside = 0
    for seed in range(40):
        with entropy_tape(seed):
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
