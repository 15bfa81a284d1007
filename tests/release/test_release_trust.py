"""How far public data are trusted: the level and the power of the test, what far data cost, and what is said of it."""

import math

import numpy as np
import pytest
from marginal_runs import measure_marginals
from scipy.stats import ncx2

from quorate import Budget
from quorate.auditing._plays import SeededNoise
from quorate.release import QueryRelease, Workload
from quorate.release.engines import ENGINES
from quorate.release.engines._components import least_squares
from quorate.release.engines._reweighting import (
    _critical,
    _detectable_distance,
    _law_of_squares,
    _sampling_square,
    weigh_evidence,
)
from quorate.release.engines.base import check_private
from quorate.release.queries import Marginals, Rows

SIZES = (3, 2, 5, 4, 2, 3)


def survey(records, draw, *, population=0, sizes=SIZES):
    """Records of a population of four hidden kinds: `draw` says which records, and `population` of which kinds."""
    kinds = np.random.default_rng(population)
    shares, tables = kinds.dirichlet(np.full(4, 2.0)), [kinds.dirichlet(np.ones(size), 4) for size in sizes]
    chance = np.random.default_rng([population, draw])
    hidden = chance.choice(4, records, p=shares)
    columns = [(chance.random((records, 1)) > np.cumsum(table[hidden], axis=1)[:, :-1]).sum(axis=1) for table in tables]
    return Rows(np.stack(columns, axis=1), sizes)


def shuffled(rows, seed):
    """The same columns, each in an order of its own: every column is right, and no two of them hang together."""
    chance = np.random.default_rng(seed)
    return Rows(np.stack([chance.permutation(column) for column in rows.codes.T], axis=1), rows.sizes)


def measure(queries, data, epsilon, seed):
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    return measure_marginals(queries, check_private(queries, data), budget, SeededNoise(seed))


def fresh(epsilon):
    return Budget(epsilon=epsilon, delta=1e-6, slack=0.0)


def weigh_queries(queries, data, public, epsilon, seed):
    amount = public.records
    support = Rows(public.codes, public.sizes, public.weights / amount).merged()
    fair = data.records * amount / (data.records + amount)
    return weigh_evidence(queries, measure(queries, data, epsilon, seed), support, fair)


def test_the_noise_and_the_sampling_error_vary_as_it_says():
    queries = Marginals((3, 2, 2), [(0, 1), (1, 2)])
    rows = survey(500, 1, sizes=(3, 2, 2)).merged()
    cells = np.stack([np.asarray(queries.answers(Rows([code], rows.sizes))) for code in rows.codes])
    shares = rows.weights / rows.weights.sum()
    centred = cells - shares @ cells
    covariance = (centred * shares[:, np.newaxis]).T @ centred
    assert _sampling_square(queries, rows) == pytest.approx((covariance**2).sum(), rel=1e-9)
    measured = measure(queries, survey(500, 1, sizes=(3, 2, 2)), 1.0, 0)
    parts, deviations = zip(*measured.noisy.values(), strict=True)
    ends = np.cumsum([0, *map(len, parts)])
    noise = np.zeros((queries.count, queries.count))  # the covariance of the noise of all answers, unit by unit
    for place, unit in enumerate(np.eye(int(ends[-1]))):
        tables = dict(zip(measured.noisy, zip(np.split(unit, ends[1:-1]), deviations, strict=True), strict=True))
        answers = (
            least_squares(queries, tables)[0]
            - least_squares(queries, {c: (0 * t, d) for c, (t, d) in tables.items()})[0]
        )
        noise += np.outer(answers, answers) * deviations[np.searchsorted(ends, place, side="right") - 1] ** 2
    variance, widest, crossed = _law_of_squares(queries, measured, rows)
    assert variance == pytest.approx(2 * (noise**2).sum())
    assert widest == pytest.approx(np.linalg.eigvalsh(noise).max())
    assert crossed == pytest.approx((noise * covariance).sum())


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
def test_a_fair_sample_is_refuted_as_seldom_as_the_level_says(epsilon):
    queries, data = Marginals.of_order(SIZES, 2), survey(8000, 1)
    refuted = [weigh_queries(queries, data, survey(800, 2 + seed), epsilon, seed).refuted for seed in range(80)]
    assert np.mean(refuted) < 0.1  # at the level of 5%, and for these seeds


@pytest.mark.parametrize("epsilon", [0.1, 10.0])
def test_a_small_fair_sample_of_few_answers_is_not_refuted_more_often(epsilon):
    """A sample of 300 errs by more than the noise: what it could cost is little, and no reason for a sharper test.

    The test used to be sharper for any few answers, and refuted 35% to 45% of such samples.
    """
    queries = Marginals((3, 2), [(0, 1)])
    data = survey(8000, 1, sizes=(3, 2))
    refuted = [
        weigh_queries(queries, data, survey(300, 2 + seed, sizes=(3, 2)), epsilon, seed).refuted for seed in range(150)
    ]
    assert np.mean(refuted) < 0.12  # at the level of 5%, and for these seeds


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 10.0])
def test_a_table_at_the_resolution_is_refuted_as_often_as_the_power_says(epsilon):
    queries, data = Marginals.of_order(SIZES, 2), survey(8000, 1)
    truth = queries.answers(data) / 8000
    other = queries.answers(survey(200_000, 3, population=7)) / 200_000
    resolution = weigh_queries(queries, data, survey(800, 2), epsilon, 0).resolution
    blend = resolution / np.sqrt(((truth - other) ** 2).mean())  # so many are from elsewhere
    refuted = []
    for seed in range(60):
        far = round(800 * blend)
        codes = np.concatenate([survey(800 - far, 5 + seed).codes, survey(far, 5 + seed, population=7).codes])
        refuted.append(weigh_queries(queries, data, Rows(codes, SIZES), epsilon, seed).refuted)
    assert np.mean(refuted) > 0.85


LONG = [("far", 0.05, 8), ("far", 0.3, 8), ("far", 3.0, 8), ("shuffled", 0.3, 8), ("shuffled", 10.0, 8)]
CASES = [("far", 0.3, 2), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG)]


@pytest.mark.parametrize(("kind", "epsilon", "runs"), CASES)
def test_public_data_from_elsewhere_cost_next_to_nothing(kind, epsilon, runs):
    queries, data = Marginals.of_order(SIZES, 2), survey(8000, 1)
    truth = queries.answers(data) / 8000
    errors, covered = {"residual": [], "reweighting": []}, []
    for seed in range(runs):
        public = survey(800, 2 + seed, population=7) if kind == "far" else shuffled(survey(800, 2 + seed), seed)
        for name, found in errors.items():
            released = ENGINES[name]._run(queries, data, public, fresh(epsilon), SeededNoise(seed))
            off = np.abs(released.answers - truth)
            found.append((off.mean(), off.max()))
        covered.append(np.mean(off[truth > 0.001] <= 1.96 * released.errors[truth > 0.001]))
    ratios = np.mean(errors["reweighting"], axis=0) / np.mean(errors["residual"], axis=0)
    assert ratios.max() < 1.05
    assert np.mean(covered) > 0.9


def test_at_a_small_epsilon_shuffled_columns_are_allowed_for():
    """With no cell above five deviations, public data used to be trusted whole: the bars then covered 55%."""
    queries, data = Marginals.of_order((2,) * 12, 2), survey(8000, 1, population=3, sizes=(2,) * 12)
    truth = queries.answers(data) / 8000
    covered = []
    for seed in range(4):
        public = shuffled(survey(800, 2 + seed, population=3, sizes=(2,) * 12), seed)
        released = ENGINES["reweighting"]._run(queries, data, public, fresh(0.05), SeededNoise(seed))
        covered.append(np.mean(np.abs(released.answers - truth) <= 1.96 * released.errors))
    assert np.mean(covered) > 0.83


def test_fair_samples_are_not_refuted_by_much_budget_and_more_of_it_never_loses():
    """Weights on a thousand public rows cannot repeat two thousand exact answers, which proves nothing against them."""
    sizes = (4, 9, 2, 12, 3, 7)
    queries, data, public = Marginals.of_order(sizes, 2), survey(30_000, 1, sizes=sizes), survey(3000, 2, sizes=sizes)
    truth, before = queries.answers(data) / 30_000, np.inf
    for epsilon in (0.1, 10.0):
        runs = [
            ENGINES[name]._run(queries, data, public, fresh(epsilon), SeededNoise(1))
            for name in ("residual", "reweighting")
        ]
        alone, both = (np.abs(run.answers - truth).mean() for run in runs)
        assert runs[1].details["refuted"] == 0.0
        assert both < 1.02 * alone
        assert both < before
        before = both


def _table(rows):
    return {f"q{column}": [f"a{code}" for code in codes] for column, codes in enumerate(rows.codes.T.tolist())}


def test_the_expected_error_is_that_of_what_was_released(tmp_path):
    data, far = survey(8000, 1), survey(2000, 2, population=7)
    release = QueryRelease(Workload.marginals(2), epsilon=0.2).fit(_table(data), _table(far))
    foreseen = ENGINES["reweighting"].expected_error(
        release.domain_.queries, records=8000, epsilon=0.2, delta=1e-6, public=release.domain_.public()
    )
    assert release.released_.details["refuted"] == 1.0
    assert release.expected_error_ == release.released_.expected_error(foreseen)
    assert "refuted" in release.notes_[0]
    assert release.expected_error_ != foreseen  # which took the public records for a fair sample
    folder = release.publish(tmp_path / "published")
    said = (folder / "GUARANTEE.md").read_text()
    assert f"Largest error of the engine: {release.expected_error_:.4g} expected" in said
    assert release.notes_[0] in said
    assert QueryRelease.load(folder).expected_error_ == release.expected_error_


@pytest.mark.parametrize(
    ("freedom", "cost"), [(4, 3.14), (10, 1.86), (22, 1.5), (42, 1.007), (43, 0.992), (100, 0.586), (400, 0.263)]
)
def test_what_the_test_of_public_data_misses_is_what_the_proof_says(freedom, cost):
    """Noise that is the same in all directions: the statistic is a noncentral chi-square, whose law is exact."""
    deviation = math.sqrt(2 * freedom)
    critical = min(max(math.sqrt(freedom / 2) - 1.645, 0.0), _critical(freedom, deviation))
    found = _detectable_distance(critical, deviation, 1.0)
    assert found / freedom == pytest.approx(cost, rel=0.005)
    assert ncx2.cdf(freedom + critical * deviation, freedom, found) < 0.05
    without = (critical + 1.645) * deviation  # the product with errors left out
    assert ncx2.cdf(freedom + critical * deviation, freedom, without) > 0.08


def test_the_column_that_refutes_public_records_is_named():
    chance = np.random.default_rng(0)
    private = {name: chance.choice(["a", "b", "c"], 20_000) for name in ("ward", "sex", "job")}
    public = {name: chance.choice(["a", "b", "c"], 2_000) for name in ("ward", "sex")}
    public["job"] = chance.choice(["a", "b", "c"], 2_000, p=[0.7, 0.2, 0.1])
    release = QueryRelease(Workload.marginals(2), engine="reweighting").fit(private, public)
    assert any("refuted" in note for note in release.notes_)
    assert "column 'job' differs most from the public records" in release.notes_
    fair = QueryRelease(Workload.marginals(2), engine="reweighting").fit(
        private, {n: v[:2_000] for n, v in private.items()}
    )
    assert not any("differs most" in note for note in fair.notes_)
