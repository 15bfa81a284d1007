"""Engines: answers within their noise, structure that is kept, public data used, refuted and repaired, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marginal_runs import measure_marginals

from benchmarks.release_covers import largest_answer
from quorate import Budget, BudgetSpent, Cost, Infeasible, InvalidInput
from quorate.auditing._plays import SeededNoise
from quorate.release.engines import ENGINES, choose_engine, expected_errors
from quorate.release.engines._components import consistent_marginals, plan_marginals, split_components, subsets
from quorate.release.engines._prefix import best_factor, make_factor, make_grid
from quorate.release.engines.base import check_private, expected_largest, project_simplex
from quorate.release.engines.weights import LearnedWeights, plan_rounds, start_weights
from quorate.release.queries import BoxRanges, Levels, Marginals, Matrix, Prefixes, Ranges, Rows

SIZES = (3, 4, 2)


def fresh(epsilon=1.0, delta=1e-6):
    return Budget(epsilon=epsilon, delta=delta, slack=0.0)


def population(seed, records, sizes=SIZES):
    """Records whose columns depend on each other."""
    generator = np.random.default_rng(seed)
    hidden = generator.uniform(size=records)
    columns = [np.clip((hidden * 0.8 + generator.uniform(size=records) * 0.4) * size, 0, size - 1) for size in sizes]
    return Rows(np.stack(columns, axis=1).astype(int), sizes)


CASES = [
    ("plain", Marginals.of_order(SIZES, 2), population(1, 20_000), None),
    ("residual", Marginals.of_order(SIZES, 2), population(1, 20_000), None),
    ("adaptive", Marginals.of_order(SIZES, 2), population(1, 20_000), None),
    ("levels", Levels([np.arange(30) // 5, np.arange(30)]), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("reweighting", Marginals.of_order(SIZES, 2), population(1, 20_000), population(2, 2000)),
    ("weights", Marginals.of_order(SIZES, 2), population(1, 20_000), None),
    ("weights", Prefixes(30), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("plain", Prefixes(30), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("plain", BoxRanges((5, 6)), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("plain", Matrix(np.eye(30, dtype=bool)), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("prefix", Prefixes(30), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("prefix", BoxRanges((5, 6)), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("prefix", Prefixes(10, lines=3), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("prefix", Ranges(10, lines=3), np.bincount(np.arange(20_000) % 30, minlength=30), None),
    ("prefix", Ranges(30), np.bincount(np.arange(20_000) % 30, minlength=30), None),
]


@pytest.mark.parametrize(("name", "queries", "data", "public"), CASES, ids=lambda case: str(case)[:30])
def test_answers_are_near_the_truth_and_the_budget_is_kept(name, queries, data, public):
    budget = fresh()
    released = ENGINES[name].run(queries, data, public=public, budget=budget)
    truth = queries.answers(data) / 20_000
    assert released.engine == name
    assert released.answers.shape == (queries.count,)
    assert ((released.answers >= 0) & (released.answers <= 1 + 1e-12)).all()
    assert np.abs(released.answers - truth).max() < 0.05  # far above ten deviations of any of them
    if released.errors is not None:
        assert np.abs(released.answers - truth).max() < 10 * released.errors.max()
    if released.weights is not None:
        assert released.weights.min() >= 0
        assert released.weights.sum() == pytest.approx(1.0)
        size = queries.cells if released.support is None else released.support.records
        assert released.weights.shape == (size,)
    assert released.some(queries, [0, queries.count - 1]) == pytest.approx(released.answers[[0, -1]])
    assert budget.remaining().renyi < 1e-3 * budget.capacity().renyi
    if "weights" not in name:  # whose rounds make do with whatever is left
        with pytest.raises((BudgetSpent, Infeasible)):
            ENGINES[name].run(queries, data, public=public, budget=budget)


@pytest.mark.parametrize(("name", "queries", "data", "public"), CASES, ids=lambda case: str(case)[:30])
def test_the_prediction_is_of_the_size_of_the_error(name, queries, data, public):
    expected = ENGINES[name].expected_error(queries, records=20_000, epsilon=1.0, delta=1e-6, public=public)
    truth = queries.answers(data) / 20_000
    engine, errors = ENGINES[name], []
    for seed in range(2):
        released = engine._run(queries, data, public, fresh(), SeededNoise(seed))
        errors.append(float(np.abs(released.answers - truth).max()))
    assert expected / 8 < np.mean(errors) < expected * 3


# ---------------------------------------------------------------- marginals


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4).filter(lambda sizes: max(sizes) > 1),
    seed=st.integers(0, 10**6),
)
def test_components_give_back_exact_marginals(sizes, seed):
    generator = np.random.default_rng(seed)
    queries = Marginals.of_order(sizes, 2)
    plan = plan_marginals(queries)
    whole = generator.uniform(size=queries.cells)
    measured = Marginals(sizes, plan.cliques)
    tables = np.split(measured.answers(whole), measured.offsets[1:-1])
    components = split_components(sizes, plan.cliques, plan.shares.tolist(), tables)
    assert consistent_marginals(queries, components, whole.sum()) == pytest.approx(queries.answers(whole))


def test_the_strategy_says_its_variance():
    queries = Marginals.of_order((2, 3, 4), 2)
    plan = plan_marginals(queries)
    measured = Marginals(queries.sizes, plan.cliques)
    design = np.array([measured.answers(row) for row in np.eye(queries.cells)]).T
    precision = np.repeat(plan.shares, np.diff(measured.offsets))
    wanted = np.array([queries.answers(row) for row in np.eye(queries.cells)]).T
    centred = np.eye(queries.cells) - 1.0 / queries.cells  # the total is known
    information = centred @ (design.T * precision) @ design @ centred
    exact = np.diag(wanted @ np.linalg.pinv(information) @ wanted.T)
    assert np.repeat(plan.variances, np.diff(queries.offsets)) == pytest.approx(exact, rel=1e-6)
    assert plan.shares.sum() == pytest.approx(1.0)
    equal = len(queries.cliques)
    assert plan.variances.max() < 0.9 * equal  # better than each marginal on its own


def test_least_squares_errs_as_it_says():
    queries, rows = Marginals.of_order(SIZES, 2), population(1, 5000)
    private, truth = check_private(queries, rows), queries.answers(rows) / 5000
    runs = [measure_marginals(queries, private, fresh(), SeededNoise(seed)) for seed in range(300)]
    found = np.sqrt(np.mean([(run.answers - truth) ** 2 for run in runs], axis=0))
    assert found == pytest.approx(runs[0].errors, rel=0.25)


def test_subsets_and_unsorted_cliques():
    assert subsets((2, 0)) == [(2,), (0,), (2, 0)]
    queries = Marginals(SIZES, [(1, 0), (2, 1)])
    rows = population(1, 50_000)
    released = ENGINES["residual"].run(queries, rows, budget=fresh())
    assert np.abs(released.answers - queries.answers(rows) / 50_000).max() < 0.02


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=30))
def test_the_projection_is_the_nearest_point_of_the_simplex(values):
    given_values = np.array(values)
    found = project_simplex(given_values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    away = given_values - found
    assert away[found > 0].max() - away[found > 0].min() < 1e-9  # the same is taken off wherever something is left
    assert (away[found == 0] <= away[found > 0].min() + 1e-9).all()


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(("cells", "lines"), [(1, 1), (2, 1), (3, 1), (50, 1), (500, 1), (20, 3), (1, 4)])
@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5])
def test_a_factor_is_exact_and_says_its_variance(cells, lines, exponent):
    factor = make_factor(cells, exponent, lines)
    counts = np.random.default_rng(cells).integers(0, 10**6, cells * lines)
    one = np.array([[factor.coefficients[i - j] if i >= j else 0 for j in range(cells)] for i in range(cells)])
    matrix = np.kron(np.eye(lines, dtype=int), one)
    assert (factor.measure(counts) == matrix @ counts).all()
    sums = np.cumsum(counts.reshape(lines, cells), axis=1).ravel()
    assert factor.prefixes(matrix @ counts, float(counts.sum())) == pytest.approx(sums, rel=1e-8, abs=1e-3)
    if 1 < cells * lines <= 60:
        columns = range(cells * lines)
        distances = [((matrix[:, i] - matrix[:, j]) ** 2).sum() for i in columns for j in columns]
        assert factor.squared_sensitivity == max(distances)
        errors = np.kron(np.eye(lines), np.tril(np.ones((cells, cells)))) @ np.linalg.inv(matrix)
        covariance = errors @ errors.T
        whole = covariance[cells - 1 :: cells].sum(axis=0)  # with the total of all lines, which is known
        known = covariance - np.outer(whole, whole) / whole[cells - 1 :: cells].sum()
        assert np.tile(factor.variances, lines) == pytest.approx(np.diag(known), abs=1e-9)


def test_a_line_for_each_group_errs_less_than_one_for_all():
    """Ten groups of forty cells: on one line a threshold is the difference of two prefixes of four hundred."""
    counts = np.random.default_rng(3).multinomial(20_000, np.random.default_rng(4).dirichlet(np.ones(400)))
    truth = Prefixes(40, lines=10).answers(counts) / 20_000
    apart, together = [], []
    for seed in range(5):
        released = ENGINES["prefix"]._run(Prefixes(40, lines=10), counts, None, fresh(), SeededNoise(seed))
        apart.append(np.abs(released.answers - truth).max())
        assert released.weights.sum() == pytest.approx(1.0)
        line = ENGINES["prefix"]._run(Prefixes(400), counts, None, fresh(), SeededNoise(seed)).answers
        before = np.repeat(np.concatenate([[0.0], line[39:-1:40]]), 40)
        together.append(np.abs(line - before - truth).max())
    assert np.mean(apart) < 0.85 * np.mean(together)


def test_measuring_by_transforms_is_exact_at_the_largest_counts():
    factor = best_factor(5000)
    counts = np.zeros(5000, dtype=np.int64)
    counts[::7] = 2**30 // 5000 * 7 + np.arange(len(counts[::7]))
    exact = np.convolve(factor.coefficients, counts)[:5000]
    assert (factor.measure(counts) == exact).all()
    with pytest.raises(Infeasible, match="too large to be measured"):
        factor.measure(np.full(5000, 2**40))


def test_a_bounded_sensitivity_lies_above_the_exact_one(monkeypatch):
    exact = make_factor(300, 0.5).squared_sensitivity
    monkeypatch.setattr("quorate.release.engines._prefix._EXACT_SEARCH", 10)
    assert exact <= make_factor(300, 0.5).squared_sensitivity < 1.3 * exact


def test_thresholds_are_monotone_and_few_cells_are_a_histogram():
    released = ENGINES["prefix"].run(Prefixes(200), np.ones(200, dtype=int), budget=fresh())
    assert (np.diff(released.answers) >= 0).all()
    assert released.answers[-1] == 1.0
    assert best_factor(3).coefficients.tolist()[1:] == [0, 0]
    assert best_factor(1000).coefficients[1] * 2 == best_factor(1000).coefficients[0]


def test_ranges_that_are_too_many_are_answered_from_the_weights():
    queries = Ranges(4000)
    counts = np.bincount(np.arange(10**6) % 4000, minlength=4000)
    released = ENGINES["prefix"].run(queries, counts, budget=fresh())
    assert released.answers is None
    assert largest_answer(queries, released.weights - counts / 10**6) < 0.002
    assert released.some(queries, [int(queries.number(0, 1999))]) == pytest.approx([0.5], abs=0.002)


# ---------------------------------------------------------------- boxes


@pytest.mark.parametrize("shape", [(1,), (7,), (4, 5), (3, 1, 4)])
def test_a_grid_is_exact_and_says_its_variance(shape):
    grid, queries = make_grid(shape), BoxRanges(shape)
    counts = np.random.default_rng(3).integers(0, 1000, queries.cells)
    matrix = np.array([grid.measure(row) for row in np.eye(queries.cells, dtype=np.int64)]).T
    assert (grid.measure(counts) == matrix @ counts).all()
    assert grid.estimate(matrix @ counts, float(counts.sum())) == pytest.approx(counts, abs=1e-6)
    distances = [((one - two) ** 2).sum() for one in matrix.T for two in matrix.T]
    assert grid.squared_sensitivity >= max(distances)
    wanted = np.array([queries.answers(row) for row in np.eye(queries.cells)]).T @ np.linalg.inv(matrix)
    assert grid.deviations() == pytest.approx(np.sqrt((wanted**2).sum(axis=1)), rel=1e-6)
    assert grid.largest_variance == pytest.approx((grid.deviations() ** 2).max())
    inverse = np.linalg.inv(matrix)
    covariance = inverse @ inverse.T
    pull = covariance.sum(axis=1) / covariance.sum()  # of a cell's error along the total's
    noisy = matrix @ counts + 7
    free = inverse @ noisy
    assert grid.estimate(noisy, float(counts.sum())) == pytest.approx(free - pull * (free.sum() - counts.sum()))


def test_boxes_that_are_too_many_are_answered_from_weights_without_bias():
    shape = (100, 101)
    counts = np.zeros(shape, dtype=np.int64)
    counts[20:60, 30:50] = 125
    queries = BoxRanges(shape)
    released = ENGINES["prefix"].run(queries, counts.ravel(), budget=fresh())
    assert released.answers is None
    assert released.weights.min() >= 0
    assert largest_answer(queries, released.weights - counts.ravel() / 100_000) < 0.01
    assert released.some(queries, [int(queries.number([20, 30], [59, 49]))]) == pytest.approx([1.0], abs=0.01)


# ---------------------------------------------------------------- public data


def test_far_public_data_are_refuted_and_nothing_is_lost():
    queries, rows = Marginals.of_order((5, 4), 2), population(1, 20_000, (5, 4))
    far = Rows(np.zeros((500, 2), dtype=int), (5, 4))
    released = ENGINES["reweighting"].run(queries, rows, public=far, budget=fresh())
    assert released.details["refuted"] == 1.0
    assert released.weights is None
    assert "refuted" in released.notes[0]
    truth = queries.answers(rows) / 20_000
    assert np.abs(released.answers - truth).max() < 0.01


def shifted(records, seed, missing=True):
    """Records of which one in twenty has a category of the first column that a public sample lacks."""
    rows = population(seed, records, (6, 4, 3))
    codes = rows.codes.copy()
    codes[codes[:, 0] == 5, 0] = 4
    if missing:
        codes[np.random.default_rng(seed + 1).uniform(size=records) < 0.05, 0] = 5
    return Rows(codes, (6, 4, 3))


def test_a_support_with_a_missing_category_is_repaired():
    queries = Marginals.of_order((6, 4, 3), 2)
    rows, public = shifted(50_000, 1), shifted(5000, 9, missing=False)
    assert not (public.codes[:, 0] == 5).any()
    released = ENGINES["reweighting"].run(queries, rows, public=public, budget=fresh())
    truth = queries.answers(rows) / 50_000
    assert released.details["refuted"] == 0.0
    assert released.details["repaired"] > 0
    assert np.abs(released.answers - truth).max() < 0.005  # without the repair a cell of 0.02 or more is lost
    unreachable = truth[queries.number(0, [5, 0])] + truth[queries.number(0, [5, 1])]
    assert unreachable > 0.005


def test_public_data_help_where_they_are_good():
    sizes = (6, 5, 4, 3)
    queries, rows, public = Marginals.of_order(sizes, 3), population(1, 20_000, sizes), population(2, 4000, sizes)
    truth = queries.answers(rows) / 20_000
    errors = {}
    for name in ("plain", "residual", "reweighting"):
        runs = [ENGINES[name]._run(queries, rows, public, fresh(0.2), SeededNoise(seed)) for seed in range(2)]
        errors[name] = np.mean([np.abs(run.answers - truth).max() for run in runs])
    assert errors["reweighting"] < 0.9 * errors["residual"]  # which has one table fitted to its answers
    assert errors["residual"] < 0.7 * errors["plain"]


# ---------------------------------------------------------------- multiplicative weights


@pytest.mark.parametrize(
    "queries", [Prefixes(12), Ranges(6), BoxRanges((3, 4)), Marginals((3, 4), [(0,), (1,), (0, 1)])], ids=repr
)
def test_the_lazy_correction_equals_the_dense_one(queries):
    generator = np.random.default_rng(2)
    weights = generator.uniform(0.1, 1.0, queries.cells)
    table, dense = LearnedWeights(queries, weights), weights / weights.sum()
    for _ in range(40):
        query, share = int(generator.integers(queries.count)), float(generator.uniform(0.05, 0.95))
        members = np.zeros(queries.cells, dtype=bool)
        members[queries.members(query)] = True
        if not members.all():
            now = dense[members].sum()
            dense = np.where(members, dense * share / now, dense * (1 - share) / (1 - now))
        table.correct(query, share)
        assert table.weights == pytest.approx(dense, rel=1e-9)
        assert table.answers() == pytest.approx(queries.answers(dense), rel=1e-9)


@pytest.mark.parametrize("shares", [(0.2, 0.9, 0.9), (0.9, 0.9, 0.9), (0.1, 0.1, 0.1), (0.25, 0.25, 0.25)])
def test_answers_that_contradict_each_other_never_wear_the_weights_out(shares):
    """Each pass multiplies the total by a factor: it came to nothing, or to infinity, and the answers with it."""
    queries = Matrix([[True, False, False], [True, True, False], [False, True, True]])
    table = LearnedWeights(queries, np.ones(3))
    for _ in range(3000):
        for query, share in enumerate(shares):
            table.correct(query, share)
    assert table.answers()[query] == pytest.approx(share)
    assert table.weights.sum() == pytest.approx(1.0)


def test_a_support_is_corrected_like_its_cells():
    queries, rows = Marginals.of_order((3, 4), 2), population(1, 200, (3, 4)).merged()
    on_rows = LearnedWeights(queries, rows.weights, rows)
    whole = np.bincount(rows.cell((0, 1)), rows.weights, minlength=12)
    on_cells = LearnedWeights(queries, whole)
    for query in range(queries.count):
        on_rows.correct(query, 0.1)
        on_cells.correct(query, 0.1)
        assert on_rows.answers() == pytest.approx(on_cells.answers())


def test_a_good_public_start_needs_fewer_rounds():
    generator = np.random.default_rng(1)
    law = generator.dirichlet(np.full(400, 0.5))
    counts, public = generator.multinomial(20_000, law), generator.multinomial(5000, law).astype(float)
    queries = Prefixes(400)
    truth = queries.answers(counts) / 20_000
    errors = {}
    for start in ("none", "public"):
        given_start = public if start == "public" else None
        runs = [ENGINES["weights"]._run(queries, counts, given_start, fresh(0.1), SeededNoise(s)) for s in range(4)]
        errors[start] = np.mean([np.abs(run.answers - truth).max() for run in runs])
    assert errors["public"] < 0.8 * errors["none"]
    start = start_weights(queries, public)
    assert start.min() > 0
    assert start.sum() == pytest.approx(1.0)


def test_rounds_fit_their_budget():
    for capacity in (1e-3, 0.1, 5.0):
        plan = plan_rounds(capacity, order=20.0, entropy=5.0, count=10**5, records=10**5)
        assert plan.rounds * (20 * plan.epsilon**2 / 8 + 20 / (2 * plan.scale**2)) <= capacity
    with pytest.raises(Infeasible):
        plan_rounds(1e-12, order=20.0, entropy=5.0, count=10, records=10)


# ---------------------------------------------------------------- the choice of an engine, and refusals


def test_auto_looks_at_public_numbers_alone():
    queries = Marginals.of_order(SIZES, 2)
    target = {"records": 10_000, "epsilon": 1.0, "delta": 1e-6}
    assert choose_engine(queries, **target).name == "residual"
    assert choose_engine(queries, public=population(2, 1000), **target).name == "reweighting"
    assert choose_engine(Prefixes(1000), **target).name == "prefix"
    assert choose_engine(Ranges(20_000), **target).name == "prefix"
    assert choose_engine(BoxRanges((41, 41)), **target).name == "prefix"
    assert choose_engine(Matrix(np.eye(40, dtype=bool)), **target).name in {"plain", "weights"}
    assert choose_engine(queries, engine="weights", **target).name == "weights"
    errors = expected_errors(queries, public=population(2, 1000), **target)
    assert list(errors.values()) == sorted(errors.values())
    assert set(errors) == {"adaptive", "plain", "residual", "reweighting", "weights"}
    with pytest.raises(InvalidInput, match="engine must"):
        choose_engine(queries, engine="best", **target)
    with pytest.raises(Infeasible, match="no engine can answer"):
        choose_engine(queries, records=10, epsilon=1.0, delta=0.0)


ROWS = population(1, 100)


@pytest.mark.parametrize(
    ("name", "queries", "data", "public"),
    [
        ("residual", Prefixes(3), [1, 2, 3], None),
        ("prefix", Matrix(np.eye(4, dtype=bool)), [1, 2, 3, 4], None),
        ("prefix", BoxRanges((3000, 2)), np.ones(6000, dtype=int), None),
        ("plain", Ranges(20_000), np.ones(20_000, dtype=int), None),
        ("reweighting", Marginals.of_order(SIZES, 2), ROWS, None),
        ("reweighting", Marginals.of_order(SIZES, 2), ROWS, Rows([[0]], (2,))),
        ("plain", Prefixes(3), [1, 2], None),
        ("plain", Prefixes(3), [1.0, 2.0, 3.0], None),
        ("plain", Prefixes(3), [1, -2, 3], None),
        ("plain", Prefixes(3), [0, 0, 0], None),
        ("plain", Prefixes(3), ROWS, None),
        ("plain", Marginals.of_order((2, 2), 1), ROWS, None),
        ("plain", Marginals.of_order(SIZES, 2), ROWS.weighted(np.full(100, 2.0)), None),
        ("weights", Prefixes(3), [1, 2, 3], np.zeros(3)),
        ("weights", Prefixes(3), [1, 2, 3], np.ones(4)),
    ],
)
def test_what_cannot_be_answered_is_refused_before_anything_is_spent(name, queries, data, public):
    budget = fresh()
    with pytest.raises((InvalidInput, Infeasible)):
        ENGINES[name].run(queries, data, public=public, budget=budget)
    assert budget.spent() == Cost(0.0)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_pure_privacy_is_refused(name):
    case = next(case for case in CASES if case[0] == name)
    with pytest.raises(InvalidInput, match="delta"):
        ENGINES[name].run(case[1], case[2], public=case[3], budget=Budget(epsilon=1.0, delta=0.0))


def test_private_counts_have_no_text():
    assert repr(check_private(Prefixes(2), [3, 4])) == "<private counts of 7 records>"


def test_the_expected_largest_of_many_errors():
    draws = np.abs(np.random.default_rng(1).normal(size=(400, 1000))).max(axis=1)
    assert expected_largest(1.0, 1000) == pytest.approx(draws.mean(), rel=0.1)
    assert expected_largest(2.0, 1) == pytest.approx(2 * math.sqrt(2 / math.pi), rel=0.01)


@pytest.mark.parametrize("name", ["plain", "residual", "reweighting", "weights"])
def test_a_marginal_of_one_cell_is_no_trouble(name):
    queries = Marginals((3, 4, 1), [(), (0,), (0, 1), (2,), (1, 2)])
    rows, public = population(1, 20_000, (3, 4, 1)), population(2, 2000, (3, 4, 1))
    released = ENGINES[name].run(queries, rows, public=public, budget=fresh())
    assert np.abs(released.answers - queries.answers(rows) / 20_000).max() < 0.05
    assert released.answers[0] == pytest.approx(1.0)
    assert released.details.get("refuted", 0.0) == 0.0


def test_many_cells_are_learned_in_batches(monkeypatch):
    monkeypatch.setattr("quorate.release.engines.weights._FEW_CELLS", 5)
    counts = np.bincount((np.arange(20_000) ** 2) % 30, minlength=30)
    budget = fresh()
    released = ENGINES["weights"].run(Prefixes(30), counts, budget=budget)
    assert np.abs(released.answers - np.cumsum(counts) / 20_000).max() < 0.1
    assert 0 <= budget.remaining().renyi < 1e-3 * budget.capacity().renyi


def test_marginals_of_no_column_are_plain():
    queries, rows, public = Marginals((1, 3), [()]), Rows([[0, 1]] * 50, (1, 3)), Rows([[0, 0]], (1, 3))
    chosen = choose_engine(queries, records=50, epsilon=1.0, delta=1e-6, public=public)
    assert chosen.name == "plain"
    assert chosen.run(queries, rows, public=public, budget=fresh()).answers == pytest.approx([1.0])
    for name in ("residual", "reweighting"):
        budget = fresh()
        with pytest.raises(Infeasible, match="without a measurement"):
            ENGINES[name].run(queries, rows, public=public, budget=budget)
        assert budget.spent() == Cost(0.0)


def test_a_column_of_one_code_takes_nothing_and_leaves_the_errors_as_they_are():
    chance = np.random.default_rng(0)
    codes = np.stack([np.zeros(1000, dtype=int), chance.integers(0, 3, 1000)], axis=1)
    with_, alone = Marginals((1, 3), [(0,), (1,), (0, 1)]), Marginals((3,), [(0,), (0,)])
    errors = []
    for queries, rows in ((with_, Rows(codes, (1, 3))), (alone, Rows(codes[:, 1:], (3,)))):
        errors.append(measure_marginals(queries, check_private(queries, rows), fresh()).errors)
        fitted = ENGINES["residual"].run(queries, rows, budget=fresh())
        assert (fitted.errors == 0.0).sum() == (errors[-1] == 0.0).sum()
    assert errors[0][0] == 0.0
    np.testing.assert_allclose(errors[0][1:], errors[1])


def test_auto_takes_no_engine_that_far_public_rows_would_lead_astray():
    chance = np.random.default_rng(0)
    data, far = (
        Rows((chance.random((rows, 5)) < share).astype(int), (2,) * 5) for rows, share in ((3000, 0.2), (5000, 0.8))
    )
    queries = Marginals.of_order((2,) * 5, 2)
    expected = expected_errors(queries, records=3000, epsilon=0.3, delta=1e-6, public=far)
    assert list(expected)[-1] == "weights"
    assert expected["weights"] < min(expected[name] for name in ("plain", "residual"))  # and yet it is not taken
    engine = choose_engine(queries, records=3000, epsilon=0.3, delta=1e-6, public=far)
    released = engine.run(queries, data, public=far, budget=fresh(0.3))
    assert np.abs(released.answers - queries.answers(data) / 3000).max() < 0.1  # plain errs by 0.03, weights by 0.6


def test_auto_takes_no_engine_whose_few_measurements_leave_most_of_a_table_uniform():
    """Binary columns with a cell for all else: from a uniform start, a few rounds leave a third of it in that cell."""
    chance, columns = np.random.default_rng(0), 8
    hidden = chance.integers(0, 2, (8000, 1))
    data = Rows((chance.random((8000, columns)) < np.where(hidden, 0.85, 0.3)).astype(int), (3,) * columns)
    queries = Marginals.of_order((3,) * columns, 2)
    settings = {"records": 8000, "epsilon": 0.1, "delta": 1e-6}
    assert choose_engine(queries, **settings).name == "residual"
    released = ENGINES["weights"]._run(queries, data, None, fresh(0.1), SeededNoise(1))
    largest = np.abs(released.answers - queries.answers(data) / 8000).max()
    assert largest < 1.5 * ENGINES["weights"].expected_error(queries, **settings)
    many = Marginals.of_order((3,) * 16, 2)
    assert list(expected_errors(many, records=500, epsilon=0.1, delta=1e-6))[-1] == "weights"
