"""Releases of large tables: where a model errs by more than the noise, the noise is all that they err by."""

import numpy as np

from quorate import Budget
from quorate.release.engines import ENGINES, Mixture
from quorate.release.engines._components import agreeing_marginals, least_squares, weigh_components
from quorate.release.queries import Marginals, Rows

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
