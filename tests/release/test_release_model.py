"""One table fitted to noisy marginals: its slopes, its answers, its records and its error bars."""

import itertools

import numpy as np
import pytest
from marginal_runs import measure_marginals

from benchmarks.data import mean_distance
from quorate import Budget, QueryRelease, Workload
from quorate.auditing._plays import SeededNoise
from quorate.release import Columns
from quorate.release.domain import make_domain
from quorate.release.engines import ENGINES
from quorate.release.engines import _fitted as fitted
from quorate.release.engines._components import plan_marginals
from quorate.release.engines._mixture import Mixture
from quorate.release.engines._mixture_fit import Misfit, split_noise
from quorate.release.engines.base import check_private, simplex_marginals
from quorate.release.queries import Marginals, Rows
from quorate.release.synthetic import draw_target
from quorate.release.workloads.marginals import weigh_queries


def survey(seed, records, sizes, *, strength=1.0):
    """Records of columns that depend on two hidden numbers, and of unequal categories."""
    generator = np.random.default_rng(seed)
    loads = strength * generator.normal(size=(len(sizes), 2))
    hidden = generator.normal(size=(records, 2)) @ loads.T + generator.normal(size=(records, len(sizes)))
    columns = []
    for column, size in enumerate(sizes):
        cuts = np.quantile(hidden[:, column], np.cumsum(generator.dirichlet(np.full(size, 0.8)))[:-1])
        columns.append(np.searchsorted(cuts, hidden[:, column]))
    return Rows(np.stack(columns, axis=1), sizes)


def run(queries, rows, *, epsilon=1.0, seed=0, engine="residual"):
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    return ENGINES[engine]._run(queries, rows, None, budget, SeededNoise(seed))


SIZES = (2, 3, 4, 5, 6, 3, 2, 8)
PAIRS = Marginals.of_order(SIZES, 2)
ROWS = survey(5, 20_000, SIZES)
TRUTH = PAIRS.answers(ROWS) / 20_000


@pytest.mark.parametrize(
    "cliques", [[(0,), (0, 1)], [(0, 1, 2)], [(0, 1, 2, 3), (1, 3), (2,)], [(0, 1, 2), (0, 2, 3), (1, 2, 3)]]
)
def test_the_slope_of_the_misfit_is_the_slope(cliques):
    generator, sizes = np.random.default_rng(1), (2, 3, 2, 2)
    noisy = {clique: (generator.normal(size=np.prod([sizes[c] for c in clique])), 0.7) for clique in cliques}
    misfit = Misfit(sizes, noisy)
    weights, shares = generator.uniform(size=3), generator.uniform(size=(3, sum(sizes)))
    value, by_shares, by_weights = misfit.slope(weights, shares)
    mixture = Mixture(sizes, weights, shares)
    direct = sum(((mixture.table(clique) - table) ** 2).sum() / 0.49 for clique, (table, _) in noisy.items())
    assert 2 * value == pytest.approx(direct)
    step = 1e-6
    for place in itertools.product(range(3), range(sum(sizes))):
        moved = shares.copy()
        moved[place] += step
        change = (misfit.slope(weights, moved)[0] - value) / step
        assert change == pytest.approx(weights[place[0]] * by_shares[place], abs=1e-3)
    for component in range(3):
        moved = weights.copy()
        moved[component] += step
        assert (misfit.slope(moved, shares)[0] - value) / step == pytest.approx(by_weights[component], abs=1e-3)


def test_ranks_of_two_columns_count_beside_their_cells():
    generator, sizes, clique = np.random.default_rng(1), (5, 4), (0, 1)
    table = generator.dirichlet(np.ones(20))
    misfit, weights = Misfit(sizes, {clique: (table, 0.7)}), np.array([0.4, 0.6])
    shares = np.hstack([generator.dirichlet(np.ones(size), size=2) for size in sizes])
    value, by_shares, _ = misfit.slope(weights, shares)
    off = (Mixture(sizes, weights, shares).table(clique) - table).reshape(sizes)
    ranks = [
        np.cumsum(line) - line / 2 for line in (table.reshape(sizes).sum(axis=1), table.reshape(sizes).sum(axis=0))
    ]
    first, second = (line - line.mean() for line in ranks)
    together = first @ off @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert 2 * value == pytest.approx(((off**2).sum() + 8.0 * together**2) / 0.49)
    for place in itertools.product(range(2), range(9)):
        moved = shares.copy()
        moved[place] += 1e-6
        change = (misfit.slope(weights, moved)[0] - value) / 1e-6
        assert change == pytest.approx(weights[place[0]] * by_shares[place], abs=1e-5)


def test_columns_that_rise_together_stay_together_under_a_strong_penalty(monkeypatch):
    generator, size = np.random.default_rng(2), 12
    base = generator.normal(size=(30_000, 1))
    numbers = base + 0.4 * generator.normal(size=(30_000, 8))
    ranks = numbers.argsort(axis=0).argsort(axis=0)
    rows = Rows(ranks * size // 30_000, (size,) * 8)
    queries = Marginals.of_order(rows.sizes, 2)
    moved = {}
    for weight in (0.0, 8.0):
        monkeypatch.setattr("quorate.release.engines._mixture_fit._RANK_WEIGHT", weight)
        released = run(queries, rows, epsilon=0.1)
        codes = released.model.draw(30_000)
        found, true = (np.corrcoef(table.T) for table in (codes, rows.codes))
        moved[weight] = np.abs(found - true).max()
    assert moved[8.0] < 0.8 * moved[0.0], moved


def test_noise_is_split_into_two_that_know_nothing_of_each_other():
    noise = np.random.default_rng(3).normal(size=200_000)  # the table itself is 0, and its noise has deviation 1
    (one, first), (two, second) = (part[(0,)] for part in split_noise({(0,): (noise, 1.0)}))
    assert one.std() == pytest.approx(first, rel=0.02)
    assert two.std() == pytest.approx(second, rel=0.02)
    assert abs(np.mean(one * two)) < 6 * first * second / np.sqrt(len(noise))  # alarms by chance in 2e-9 of the seeds
    assert first**-2 + second**-2 == pytest.approx(1.0)  # and together they tell all


def test_tables_never_contradict_each_other():
    released = run(PAIRS, ROWS, epsilon=0.2)
    seen = {}
    for clique, part in zip(PAIRS.cliques, np.split(released.answers, PAIRS.offsets[1:-1]), strict=True):
        assert part.min() >= 0
        assert part.sum() == pytest.approx(1.0)
        table = part.reshape([SIZES[column] for column in clique])
        for axis, column in enumerate(clique):
            seen.setdefault(column, []).append(table.sum(axis=1 - axis))
    for shares in seen.values():
        assert np.ptp(shares, axis=0).max() < 1e-9


@pytest.mark.parametrize(("epsilon", "bar"), [(1.0, 0.9), (0.1, 0.8)])
def test_the_fit_errs_less_than_each_marginal_projected_by_itself(epsilon, bar):
    released = run(PAIRS, ROWS, epsilon=epsilon)
    measured = measure_marginals(
        PAIRS, check_private(PAIRS, ROWS), Budget(epsilon=epsilon, delta=1e-6, slack=0.0), SeededNoise(0)
    )
    alone = simplex_marginals(PAIRS, measured.answers)
    assert mean_distance(PAIRS, released.answers, TRUTH) < bar * mean_distance(PAIRS, alone, TRUTH)
    assert np.abs(released.answers - TRUTH).max() < 1.1 * np.abs(alone - TRUTH).max()


def covered(queries, rows, **settings):
    """Of the cells above 0.1%, which lie within their 95% interval."""
    truth, released = queries.answers(rows) / rows.records, run(queries, rows, **settings)
    large = truth > 0.001
    return np.abs(released.answers - truth)[large] < 1.96 * released.errors[large]


def test_error_bars_cover():
    assert 0.91 < np.mean(covered(PAIRS, ROWS, epsilon=0.3)) < 0.99  # of one release, whose errors go together


def with_a_twin(rows, seed):
    """The same records, with a copy of the first column, its codes shuffled, beside it."""
    codes, sizes = rows.codes, rows.sizes
    twin = np.random.default_rng(seed).permutation(sizes[0])[codes[:, 0]]
    return Rows(np.column_stack([codes[:, 0], twin, codes[:, 1:]]), (sizes[0], *sizes))


def test_error_bars_cover_a_pair_of_columns_that_say_the_same():
    """The seed is fixed: 19 of 20 cells. By the cells of like shares alone it was 10 of them."""
    rows = with_a_twin(survey(1, 20_000, (20, 4, 5, 3, 6)), seed=1)
    queries = Marginals.of_order(rows.sizes, 2)
    released, truth = run(queries, rows, seed=1), queries.answers(rows) / rows.records
    pair = slice(0, 400)
    assert queries.cliques[0] == (0, 1)
    inside = np.abs(released.answers - truth) < 1.96 * released.errors
    assert np.mean(inside[pair][truth[pair] > 0.001]) > 0.85
    assert 0.92 < np.mean(inside[truth > 0.001]) < 0.99


def test_bars_are_wider_by_the_bias_of_a_table_and_hardly_where_there_is_none():
    """Seeds are fixed. The bias of half of a table's cells is found from distances alone; other tables have none."""
    queries, generator = Marginals.of_order((10,) * 6, 2), np.random.default_rng(4)
    shares = np.where(generator.uniform(size=queries.count) < 0.5, 0.01, 0.0)
    biased = np.where(np.arange(queries.count) < 100, 2.0, 0.0) * (shares > 0)
    deviations, squares = np.full(queries.count, 0.001), np.full(queries.count, 0.36e-6)
    further = []
    for _ in range(20):
        off = deviations * (0.6 * generator.normal(size=queries.count) + biased)
        found = fitted._Estimate(None, None, None, frozenset(), None, shares, shares + off, deviations)
        further.append(fitted._further(queries, found, np.full(queries.count, 0.36), squares))
    mean = np.mean(further, axis=0)
    assert np.mean(mean[biased > 0]) == pytest.approx(4.0, rel=0.1)
    assert np.mean(mean[:100][shares[:100] == 0]) < 1.0  # cells that the fit may have lost
    assert np.mean(mean[100:]) < 0.02


def test_the_bound_adds_the_noise_and_what_the_fit_moves():
    columns = Columns.from_dict({"a": ["x", "y"], "b": ["u", "v", "w"]})
    table = {"a": ["x", "y"] * 5000, "b": ["u", "v", "w", "u"] * 2500}
    release = QueryRelease(Workload.marginals(2), columns=columns, engine="residual").fit(table)
    details = release.released_.details
    assert release.engine_error_bound(0.05) > details["deviation"] + details["moved"]


def test_error_bars_are_computed_when_they_are_first_asked_for(monkeypatch, tmp_path):
    made = []
    computed = fitted._errors
    monkeypatch.setattr(fitted, "_errors", lambda *given: made.append(given) or computed(*given))
    columns = Columns.from_dict({"a": ["x", "y"], "b": ["u", "v", "w"]})
    table = {"a": ["x", "y"] * 5000, "b": ["u", "v", "w", "u"] * 2500}
    release = QueryRelease(Workload.marginals(2), columns=columns, engine="residual").fit(table)
    release.synthetic(100)
    release.engine_error_bound(0.05)
    assert not made
    folder = release.save(tmp_path / "saved")  # which writes them
    assert len(made) == 1
    errors = release.released_.errors
    again = QueryRelease.load(folder)
    assert np.array_equal(again.released_.errors, errors)
    assert again.expected_error_ == release.expected_error_
    assert again.answer() == release.answer()
    assert len(made) == 1
    assert np.array_equal(computed(*made[0]), errors)  # whoever asks, and whenever


def test_records_are_those_of_the_model():
    released = run(PAIRS, ROWS)
    drawn = Rows(released.model.draw(20_000), SIZES)
    off = np.abs(PAIRS.answers(drawn) / 20_000 - released.answers).max()
    own = np.abs(released.answers - TRUTH).max()
    assert off < 0.3 * own
    assert (released.model.draw(500) == released.model.draw(500)).all()


@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
def test_any_number_of_records_is_drawn(rows):
    generator = np.random.default_rng(0)
    shares = np.concatenate([generator.dirichlet(np.ones(size), size=4) for size in (2, 1, 5)], axis=1)
    codes = Mixture((2, 1, 5), np.full(4, 0.25), shares).draw(rows)
    assert codes.shape == (rows, 3)
    assert codes.min() >= 0
    assert (codes.max(axis=0) < (2, 1, 5)).all()


def test_a_target_is_drawn_from_the_other_columns_with_the_pairs_that_were_released():
    """A target that two columns decide together by their sum, in records whose own target is noise."""
    generator, sizes, records = np.random.default_rng(0), (4, 5, 2), 20_000
    codes = np.stack([generator.integers(0, size, records) for size in sizes], axis=1)
    real = codes.copy()
    real[:, 2] = generator.random(records) < 1 / (1 + np.exp(3.5 - real[:, 0] - real[:, 1]))
    pairs = Mixture(sizes, np.ones(1), np.concatenate([np.full(size, 1 / size) for size in sizes])[None, :]).pairs(
        queries := Marginals.of_order(sizes, 2), queries.answers(Rows(real, sizes)) / records
    )
    drawn = draw_target(codes, sizes, 2, pairs, np.full(sum(sizes), 1e-4))
    assert (drawn[:, :2] == codes[:, :2]).all()
    off = np.abs(queries.answers(Rows(drawn, sizes)) - queries.answers(Rows(real, sizes))) / records
    assert off.max() < 0.01  # two samples of 20,000; the records that were given are off by 0.1
    both = (drawn[:, 0] == 3) & (drawn[:, 1] == 4)
    assert drawn[both, 2].mean() == pytest.approx(
        1 / (1 + np.exp(-3.5)), abs=0.05
    )  # by pairs alone: what they add up to


@pytest.mark.parametrize(
    "sizes", [(3, 4, 5, 6, 2), (8, 8, 8, 8), (13, 9, 5, 16, 7, 15, 2, 12, 10, 2), (5,) * 6 + (20,)]
)
def test_pairs_with_a_target_get_about_a_quarter_of_the_budget(sizes):
    columns = {f"q{place}": [f"a{code}" for code in range(size)] for place, size in enumerate(sizes)}
    domain = make_domain(Workload.marginals(2), None, Columns.from_dict(columns))
    target = len(sizes) - 1
    plan = plan_marginals(weigh_queries(domain, "weighted", None, f"q{target}"), 1e-4)
    assert 0.15 < plan.shares[[target in clique for clique in plan.cliques]].sum() / plan.shares.sum() < 0.5


def test_noise_in_pairs_moves_a_target_only_so_far():
    generator = np.random.default_rng(0)
    sizes, rows = (40, 2), 10_000
    codes = np.stack([np.minimum(generator.geometric(0.3, rows) - 1, 39), generator.integers(0, 2, rows)], axis=1)
    even = np.zeros((42, 42))  # the target goes with nothing
    even[:40, 40:] = np.bincount(codes[:, 0], minlength=40)[:, None] / (2 * rows)
    noisy = even + 0.002 * generator.normal(size=even.shape)
    loose, held = (draw_target(codes, sizes, 1, noisy, np.full(42, deviation)) for deviation in (1e-9, 0.002))
    rare = codes[:, 0] > 9  # 3% of the records: what is told of them is noise
    assert abs(loose[rare, 1].mean() - 0.5) > 2 * abs(held[rare, 1].mean() - 0.5)
    assert abs(held[rare, 1].mean() - 0.5) < 0.2


def test_a_target_without_any_pair_stays_as_the_table_has_it():
    columns = Columns.from_dict({"a": ["x", "y"], "b": ["u", "v", "w"]})
    table = {"a": ["x", "y"] * 5000, "b": ["u", "v", "w", "u"] * 2500}
    release = QueryRelease(Workload.marginals(1), columns=columns, engine="residual", error="weighted", target="b")
    records = release.fit(table).synthetic(4000).to_pydict()
    assert np.mean([b == "u" for b in records["b"]]) == pytest.approx(0.5, abs=0.05)


def test_records_for_a_model_of_a_target_are_saved_and_loaded(tmp_path):
    columns = Columns.from_dict({"a": ["x", "y"], "b": ["u", "v", "w"], "c": ["no", "yes"]})
    table = {"a": ["x", "y"] * 5000, "b": ["u", "v", "w", "u"] * 2500, "c": ["no", "yes", "yes", "yes"] * 2500}
    release = QueryRelease(Workload.marginals(2), columns=columns, error="weighted", target="c").fit(table)
    assert release.engine_ == "residual"  # one table is fitted where the mean error is to be small
    records = release.synthetic(4000).to_pydict()
    told = [c for a, b, c in zip(records["a"], records["b"], records["c"], strict=True) if (a, b) == ("x", "u")]
    assert np.mean([c == "no" for c in told]) > 0.6  # all of them in truth: of 1,000 records, and noise is small
    release.save(tmp_path / "model")
    assert QueryRelease.load(tmp_path / "model").synthetic(100) == release.synthetic(100)
