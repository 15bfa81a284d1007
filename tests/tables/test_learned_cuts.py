"""Cuts of columns whose ends are declared: what is found, and what a replaced row can move."""

import itertools

import numpy as np
import pandas
import pytest

from planted.schemas import told_cuts
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.models.linear import PrivateLogisticRegression
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.blocks import Categories, shares_of_blocks
from quorate.tables.features.learned_cuts import choose_cut_share, count_categories, entries_of_cuts, learn_cuts


def test_a_replaced_row_moves_no_release_of_cuts_by_more_than_is_paid():
    """All neighbouring tables of two rows over values of every kind, both told the first's draws."""
    values = [*itertools.product(["", "-1", "2.5", "8"], ["oak", "ash"])]
    reached = set()
    for row, other in itertools.permutations(values, 2):
        tables = [{"x": [one[0], "3"], "y": [one[1], "oak"]} for one in (row, other)]
        first, asked = told_cuts(tables[0], None)
        second, again = told_cuts(tables[1], [part for part, _ in asked.asked])
        assert first == second, "what is learned depends on what was drawn alone"
        for (part, square), (moved, same) in zip(asked.asked, again.asked, strict=True):
            change = int(((part - moved) ** 2).sum())
            assert change <= square == same
            reached.add(change == square)
    assert True in reached


def test_cuts_lie_among_the_values_and_their_shares_are_those_of_the_rows():
    generator = np.random.default_rng(0)
    amounts, grades = generator.lognormal(3, 1, 20_000), generator.integers(0, 4, 20_000).astype(float)
    amounts[:4000] = np.nan
    columns = AdditiveColumns(declared={"amount": (0, 1e6), "grade": (0, 10), "town": ["a", "b"]})
    blocks = columns.uncut()
    towns = generator.choice(["a", "b", "c"], 20_000)
    rows = dict(zip(blocks, (amounts, grades, towns), strict=True))
    values = {name: block.read(rows[name]) for name, block in blocks.items()}
    vectors = NoisyVectors(Budget(epsilon=1.0, delta=1e-6), entries=entries_of_cuts(list(blocks.values())))
    share = choose_cut_share(vectors, list(blocks.values()), 20_000)
    assert 0.03 <= share <= 0.1
    fitted = columns.with_learned(learn_cuts(blocks, values, vectors, units=20_000, share=share)).fit(None)
    amount, grade, _ = fitted.blocks_
    inside = [np.mean(amounts[4000:] < cut) for cut in amount.cuts]
    assert amount.missing
    assert len(amount.cuts) > 8
    assert np.abs(np.diff(inside)).max() < 0.2, "no two neighbouring cuts have more than a fifth of the rows between"
    assert set(grade.cuts) >= {0.0, 1.0, 2.0, 3.0}
    shares, noise = fitted.known_shares()
    assert noise < 0.01
    assert np.allclose(shares[-3:], [np.mean(towns == town) for town in "abc"], atol=0.03)


def test_cuts_are_learned_where_ends_alone_are_declared_and_enough_units_are_there():
    assert AdditiveColumns(declared=[(0, 1)]).uncut()
    assert not AdditiveColumns(declared=[[0, 0.5, 1]]).uncut()
    assert not AdditiveColumns(declared=[(0, 1)], cuts=3).uncut()
    assert not AdditiveColumns(declared=[(0, 1), "text"]).uncut()
    blocks = list(AdditiveColumns(declared=[(0, 1)] * 20).uncut().values())
    vectors = NoisyVectors(Budget(epsilon=1.0, delta=1e-6), entries=entries_of_cuts(blocks))
    assert choose_cut_share(vectors, blocks, 100) == 0.0


def test_entries_are_left_for_every_step_over_many_declared_categories(monkeypatch):
    """What a fit may release is counted before its first release: it is not refused between two of them."""
    kinds, left = [f"kind {number}" for number in range(3000)], []

    def stop(problem, private, points, noisy):
        left.append((noisy.entries, sum(values.shape[1] for values in problem.atoms)))
        raise InterruptedError

    monkeypatch.setattr("quorate.models.linear.model.fit", stop)
    columns = AdditiveColumns(declared={"amount": (0, 1), "kind": kinds})
    rows = pandas.DataFrame({"amount": np.linspace(0, 1, 3000), "kind": kinds})
    with pytest.raises(InterruptedError):
        PrivateLogisticRegression(classes=[0, 1], columns=columns).fit(rows, np.arange(3000) % 2)
    [(entries, features)] = left
    assert entries >= 9 * (features + 4), "two means as shares, six steps, and what follows them"


@pytest.mark.parametrize("draw", [-5000, 0, 5000])
def test_counts_of_categories_add_up_to_the_units_whatever_the_noise(draw):
    """A model failed on its own column when the noise of thousands of counts outweighed the people in them."""

    class Purse:
        def release(self, counts, *, squared_sensitivity, part):
            return counts + float(draw), 5000.0

    blocks = {"kind": Categories("kind", ("a", "b", "c"))}

    def count(function, entries):
        return function({"kind": np.array([0, 0, 1, 3])})

    marginals = count_categories(blocks, count, Purse(), 1.0, units=4)
    assert sum(marginals["kind"].counts) == pytest.approx(4)
    [(shares, _)] = shares_of_blocks(blocks, marginals).values()
    assert shares == pytest.approx([0.5, 0.25, 0, 0.25])
