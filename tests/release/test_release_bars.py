"""Error bars of fitted tables: how often 95% intervals hold for cells above 0.1%, whichever error is to be small."""

from types import SimpleNamespace

import numpy as np
import pytest

from quorate import Budget
from quorate.auditing._plays import SeededNoise
from quorate.release.engines import ENGINES
from quorate.release.engines import _fitted as fitted
from quorate.release.queries import Marginals, Rows


def apart(chance, records, sizes):
    """Columns that know nothing of each other, with unequal codes."""
    powers = [np.arange(1, size + 1) ** -chance.uniform(0.2, 1.5) for size in sizes]
    return np.stack([chance.choice(len(power), records, p=power / power.sum()) for power in powers], axis=1)


def classes(chance, records, sizes):
    """Columns that are independent within each of eight classes, with few codes in each."""
    owner, columns = chance.integers(0, 8, records), []
    for size in sizes:
        upto = np.cumsum(chance.dirichlet(np.full(size, 0.3), 8), axis=1)[owner]
        columns.append(np.minimum((chance.random(records)[:, None] > upto).sum(axis=1), size - 1))
    return np.stack(columns, axis=1)


def chain(chance, records, sizes):
    """Columns each of which follows from the one before for four records of five."""
    codes = apart(chance, records, sizes)
    for column in range(1, len(sizes)):
        follows = chance.permutation(100)[codes[:, column - 1]] % sizes[column]
        codes[:, column] = np.where(chance.random(records) < 0.8, follows, codes[:, column])
    return codes


def strong_pair(chance, records, sizes):
    """The second column says what the first does for 19 records of 20."""
    codes = apart(chance, records, sizes)
    codes[:, 1] = np.where(chance.random(records) < 0.95, codes[:, 0] % sizes[1], codes[:, 1])
    return codes


def function_of_two(chance, records, sizes):
    """The third column is a function of the first two."""
    codes = apart(chance, records, sizes)
    codes[:, 2] = chance.integers(0, sizes[2], sizes[:2])[codes[:, 0], codes[:, 1]]
    return codes


def marginals(sizes, error, order=2):
    queries = Marginals.of_order(sizes, order)
    return queries if error == "largest" else Marginals(sizes, queries.cliques, [1.0] * len(queries.cliques))


def covered(kind, sizes, records, *, epsilon, error, seed, order=2, engine="residual"):
    """Of the cells above 0.1%, which lie within their 95% interval."""
    rows, queries = Rows(kind(np.random.default_rng(seed), records, sizes), sizes), marginals(sizes, error, order)
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    released = ENGINES[engine]._run(queries, rows, None, budget, SeededNoise(seed))
    truth = queries.answers(rows) / records
    return (np.abs(released.answers - truth) < 1.96 * released.errors)[truth > 0.001]


def test_bars_allow_for_the_scatter_of_records_around_independent_columns():
    """Pairs become independent, and all that records scatter is bias. Seeds are fixed: 93%, and 71% without it."""
    hits = [covered(apart, (8, 12, 5, 20, 6), 20_000, epsilon=1.0, error="mean", seed=seed) for seed in (2, 3)]
    assert 0.9 < np.mean(np.concatenate(hits)) < 0.98


def test_a_probe_is_followed_as_the_noise_was_where_the_mean_error_is_to_be_small():
    """The fit followed 0.94 of the noise, and a probe 0.97 of its own; by two short descents it was 0.68."""
    sizes, records, chance = (12, 9, 20, 5, 7, 15), 20_000, np.random.default_rng(3)
    queries, deviation = marginals(sizes, "mean"), 1e-4
    truth = queries.answers(Rows(classes(chance, records, sizes), sizes)) / records
    drawn = truth + deviation * chance.normal(size=len(truth))
    parts = np.split(drawn, queries.offsets[1:-1])
    noisy = {clique: (part, deviation) for clique, part in zip(queries.cliques, parts, strict=True)}
    found = fitted._estimate(queries, noisy, frozenset())
    _, moves, told = fitted._probed(queries, noisy, found, 1).sum(axis=1)
    noise = found.unbiased - truth
    followed = (found.answers - truth) @ noise / (noise @ noise)
    assert 0.85 < (moves / told) / followed < 1.25


def test_codes_that_the_noise_hides_may_have_a_deviation_of_their_column():
    queries = Marginals((3, 4), [(0, 1), (0,)])
    table = np.outer([0.6, 0.395, 0.005], [0.4, 0.3, 0.2, 0.1])
    noisy = {(0,): (table.sum(axis=1), 0.01), (1,): (table.sum(axis=0), 0.01)}
    deviation = 0.01 * np.sqrt(2 / 3)  # three shares that add up to 1
    least = fitted._hidden(queries, noisy, np.concatenate([table.ravel(), table.sum(axis=1)]))
    assert least[:8] == pytest.approx(0.0)
    assert np.sqrt(least[8:12]) == pytest.approx(deviation * table.sum(axis=0))
    assert np.sqrt(least[12:]) == pytest.approx([0.0, 0.0, deviation])


def test_a_bar_is_what_the_error_is_given_the_distance_from_the_unbiased_answer():
    chance, (square, covariance, noise) = np.random.default_rng(0), (1.4, 0.5, 1.0)
    errors, drawn = chance.multivariate_normal([0, 0], [[square, covariance], [covariance, noise]], 200_000).T
    away = (errors - drawn) ** 2
    told = fitted._given_distances(*(np.full(len(away), one) for one in (square, covariance, noise)), away)
    assert np.mean(told) == pytest.approx(square, rel=0.02)
    for part in np.array_split(np.argsort(away), 10):
        assert np.mean(told[part]) == pytest.approx(np.mean(errors[part] ** 2), rel=0.05)
    assert np.sqrt(told).max() > 2 * np.sqrt(told).min()
    optimal = fitted._given_distances(*(np.full(10, one) for one in (0.6, 0.6, 1.0)), np.linspace(0, 9, 10))
    assert optimal == pytest.approx(np.full(10, 0.6))  # the distance tells nothing of the error of the best estimate


GRID = [
    (apart, (8, 12, 5, 20, 3, 6, 15), 20_000, 2),
    (classes, (12, 9, 20, 5, 7, 15), 20_000, 2),
    (classes, (30, 25, 40, 12, 6), 20_000, 2),
    (classes, (6, 5, 8, 4, 7), 2000, 2),
    (classes, (15, 20, 10, 8, 25, 6), 300_000, 2),
    (classes, (5, 4, 6, 3, 7), 20_000, 3),
    (chain, (6, 6, 9, 5, 12, 8), 50_000, 2),
    (strong_pair, (20, 20, 6, 4, 9), 20_000, 2),
    (function_of_two, (7, 8, 10, 5, 4), 30_000, 2),
    (function_of_two, (5, 4, 6, 3, 7), 20_000, 3),
]


@pytest.mark.long
@pytest.mark.parametrize("error", ["largest", "mean"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_error_bars_cover_tables_of_many_kinds(epsilon, error):
    """Each kind of table counts as one, whichever number of cells it has. Seeds are fixed.

    The lowest has about as many cells as records at a small epsilon: most of its cells above 0.1% seem smaller.
    """
    hits = [
        np.mean([np.mean(covered(*table, epsilon=epsilon, error=error, order=order, seed=seed)) for seed in range(2)])
        for *table, order in GRID
    ]
    assert 0.94 < np.mean(hits) < 0.975
    assert min(hits) > 0.8


def test_error_bars_of_independent_columns_do_not_depend_on_the_last_bits():
    """A fit may be the product of its columns: rounding must not say which cells have more than that."""
    queries, chance = Marginals((2, 8), [(0, 1)]), np.random.default_rng(4)
    answers, deviations = np.full(16, 1 / 16), np.full(16, 0.01)
    unbiased = answers + np.where(np.arange(16) % 3, 0.005, -0.04)
    wider = []
    for _ in range(4):
        product = answers * (1 + 1e-15 * chance.normal(size=16))
        found = SimpleNamespace(answers=product, unbiased=unbiased, deviations=deviations)
        wider.append(fitted._further(queries, found, np.full(16, 0.3), np.full(16, 1e-4)))
    assert wider[0].max() > 0
    for other in wider[1:]:
        assert np.allclose(other, wider[0], rtol=1e-9)
