"""Numbers without cuts: what is found, what it is paid with, and what is refused before anything is drawn."""

import itertools
import math
from decimal import Context, Inexact, Rounded, localcontext

import numpy as np
import pyarrow as pa
import pytest

from quorate import Account, QueryRelease, Workload
from quorate.auditing.replay import entropy_tape
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyVector, NoisyVectors
from quorate.core.privacy import Budget
from quorate.models.concepts import Thresholds
from quorate.release import Columns, GrowingRelease
from quorate.release.auto_cuts import AutoCuts, find_cuts
from quorate.tables import Category, Date, Number
from quorate.tables.cells import NumberCells
from quorate.tables.cut_tree import STAGES, keys_of_numbers, most_cells, number_of_key, shortest_decimal

VALUES = (0.0, -0.0, 1.0, 7.25, -3.0, 1e9, math.inf, -math.inf, math.nan, 5e-324)


def noisy(scale, seed):
    generator = np.random.default_rng(seed)
    return lambda counts, *, squared_sensitivity: (
        counts + np.rint(scale * generator.normal(size=len(counts))).astype(np.int64),
        scale,
    )


def tails(rows, seed):
    chance = np.random.default_rng(seed)
    gains = np.where(chance.random(rows) < 0.8, 0.0, np.round(np.exp(chance.normal(8, 1.5, rows))))
    gains[chance.random(rows) < 0.05] = 7688.0
    return {
        "gain": gains.tolist(),
        "rate": chance.random(rows).tolist(),
        "sex": chance.choice(["f", "m"], rows).tolist(),
    }


COLUMNS = Columns({"gain": Number(closed=True), "rate": Number(), "sex": Category(["f", "m"], closed=True)})


def test_keys_have_the_order_of_the_numbers_and_come_back():
    values = np.array([-math.inf, -1e300, -2.5, -5e-324, 0.0, 5e-324, 1.0, 1.5, 15024.0, 1e300, math.inf])
    keys = keys_of_numbers(np.append(values, [math.nan]))
    assert (np.diff(keys.astype(object)) > 0).all()
    assert [number_of_key(int(key)) for key in keys] == values.tolist()
    assert keys_of_numbers(np.array([-0.0])) == keys_of_numbers(np.array([0.0]))


@pytest.mark.parametrize("columns", [1, 2])
def test_a_replaced_record_moves_every_level_by_what_is_paid_for(columns):
    """All replacements of one record among values of all kinds, each level given the same draws before it."""
    others = [np.tile([0.0, 1.0, 1.0, 7.25, 1e9, 3.0, -3.0], 3) for _ in range(columns)]
    reached, values = set(), VALUES if columns == 1 else (0.0, 7.25, math.nan)
    records = list(itertools.product(values, repeat=columns))

    def count_levels(record, draws):
        """Return the vectors that are drawn, and what is paid for each; draws that are lacking are the counts."""
        vectors = []

        def draw(counts, *, squared_sensitivity):
            vectors.append((counts, squared_sensitivity))
            if len(draws) < len(vectors):
                draws.append(counts)
            return draws[len(vectors) - 1], 0.1

        find_cuts([np.append(column, value) for column, value in zip(others, record, strict=True)], draw, cells=4)
        return vectors

    for first in records:
        draws = []  # of the first data set: the second is given the same
        vectors = count_levels(first, draws)
        for second in records:
            levels = zip(vectors, count_levels(second, list(draws)), strict=True)
            for level, ((counts, paid), (other, same)) in enumerate(levels):
                moved = int(((counts - other) ** 2).sum())
                assert len(counts) == len(other) <= columns * most_cells()
                assert moved <= paid == same
                reached.add((level, moved == paid))
    assert {(level, True) for level in range(STAGES + 1)} <= reached, "no draw pays for more than a record can move"


def test_columns_that_need_no_more_stages_are_neither_counted_nor_paid_for():
    """Two whole numbers side by side are told apart by three stages; another column is counted to the end."""
    seen = []

    def draw(counts, *, squared_sensitivity):
        seen.append((len(counts), squared_sensitivity))
        return counts, 0.1

    small, wide = np.repeat([0.0, 1.0], 400), np.repeat([7_688.0, 15_024.0], 400)
    cuts = find_cuts([small, wide], draw, cells=16)
    assert [square for _, square in seen] == [2, 4, 4, 4, 2, 2, 2, 2, 2]
    assert cuts[0] == (0.0, 1.0, 2.0)
    seen.clear()
    assert find_cuts([small], draw, cells=16) == cuts[:1]
    assert [square for _, square in seen] == [1, 2, 2, 2], "no draw is made for nothing"
    numbers = np.tile(np.arange(16.0), 50)
    assert find_cuts([numbers], draw, cells=16) == [tuple(np.arange(17.0))]


def test_a_record_of_a_column_that_is_not_counted_any_more_moves_nothing():
    small, wide = np.repeat([0.0, 1.0], 400), np.repeat([7_688.0, 15_024.0], 400)
    told, moved = [], []

    def keep(counts, *, squared_sensitivity):
        told.append((counts, squared_sensitivity))
        return counts, 0.1

    def compare(counts, *, squared_sensitivity):
        before, paid = told[len(moved)]
        moved.append((int(((counts - before) ** 2).sum()), paid, squared_sensitivity))
        return before, 0.1

    find_cuts([small, wide], keep, cells=16)
    find_cuts([np.append(small[:-1], 0.5), np.append(wide[:-1], 7_688.0)], compare, cells=16)
    assert moved[0] == (1, 2, 2)
    assert moved[-1] == (2, 2, 2), "only the column that is still counted moves"
    assert all(change <= paid == again for change, paid, again in moved)


@pytest.mark.parametrize(
    ("low", "width", "short"),
    [
        (2.08984375, 0.005, 2.09),
        (-1.5009765624999998, 0.001, -1.5),
        (0.0, 1e-300, 0.0),
        (5e-324, 1e-308, 5e-324),
        (math.inf, 1.0, math.inf),
        (1e300, 1e297, 1e300),
        (-0.001, 0.01, 0.0),
        (36.6, 0.0, 36.6),
    ],
)
def test_a_cut_is_written_with_few_decimals(low, width, short):
    found = shortest_decimal(low, width)
    assert found == short
    assert math.copysign(1.0, found) == math.copysign(1.0, short)


def test_a_cut_does_not_depend_on_the_decimals_of_the_caller():
    """An exception would come after the budget was spent."""
    with localcontext(Context(prec=3, traps=[Inexact, Rounded])):
        assert shortest_decimal(2.08984375, 1e-9) == 2.08984375


def test_cuts_of_prices_have_the_decimals_of_prices():
    prices = np.round(np.random.default_rng(5).lognormal(3, 0.8, 20_000), 2)
    prices[:3_000], prices[3_000:9_000] = 2.09, 0.0
    for seed in range(5):
        [cuts] = find_cuts([prices], noisy(20.0, seed), cells=16)
        cells = NumberCells(cuts)
        assert cells.centre(cells.code(2.09), 0.0) > 2.0, "the cell of a frequent value begins near it"
        assert cells.centre(cells.code(2.09), 1.0) < 2.2, "and the few below and above are not in it"
        assert cuts[:2] == (0.0, 5e-324), "that of 0 holds nothing else, so that 0 comes back as itself"
        assert cells.centre(1, 0.9) == 0.0
        assert all(len(f"{cut:.15g}") <= 6 for cut in cuts if cut != cuts[1])


def test_a_frequent_value_has_a_cell_of_its_own_and_the_others_about_as_many_records():
    chance = np.random.default_rng(1)
    values = np.concatenate([np.zeros(40_000), np.full(4_000, 15_024.0), chance.integers(17, 90, 40_000) * 100.0])
    [cuts] = find_cuts([values], noisy(40.0, 2), cells=16)
    counts = np.histogram(values, [-math.inf, *cuts, math.inf])[0]
    assert len(cuts) <= 17
    assert {0.0, 1.0} <= set(cuts), "zero is a cell"
    assert any(0.98 * 15_024 < cut <= 15_024 for cut in cuts), "and so is the value that stands out"
    assert counts[0] == 0
    assert counts[-1] < 4 * 40
    assert max(counts[2:-1]) < 3 * 44_000 / 14


def test_nothing_is_spread_over_the_gap_between_two_frequent_values():
    values = np.repeat([-1.5, 2.25, 1e6], 3_000)
    for seed in range(5):
        [cuts] = find_cuts([values], noisy(60.0, seed), cells=16)
        cells = NumberCells(cuts)
        for value in (-1.5, 2.25, 1e6):
            low, high = (cells.centre(cells.code(value), share) for share in (0.0, 1.0))
            assert abs(low - value) <= 0.03 * abs(value)
            assert abs(high - value) <= 0.03 * abs(value)


@pytest.mark.parametrize("values", [np.arange(15.0), np.arange(-7.0, 8.0), np.arange(12) * 10.0, np.arange(12) / 2])
def test_gaps_leave_room_for_values(values):
    """Among whole numbers there is no gap between neighbours, and elsewhere gaps go before values do."""
    for seed in range(3):
        [cuts] = find_cuts([np.repeat(values, 1_500)], noisy(40.0, seed), cells=16)
        assert len(set(np.searchsorted(cuts, values, side="right"))) == len(values)


def test_numbers_at_the_ends_of_all_floats_have_cells():
    ends = np.repeat([-math.inf, -1.7e308, -5e-324, 0.0, 1.7e308, math.inf], 500)
    [cuts] = find_cuts([ends], noisy(10.0, 6), cells=16)
    assert len({int(cell) for cell in np.searchsorted(cuts, [-1.7e308, 0.0, 1.7e308], side="right")}) == 3


def test_whole_numbers_have_whole_cuts_and_others_have_not():
    chance = np.random.default_rng(3)
    whole, real = chance.integers(0, 90, 20_000).astype(float), chance.normal(36.6, 0.4, 20_000)
    ages, degrees = find_cuts([whole, real], noisy(30.0, 4), cells=10)
    assert all(cut.is_integer() for cut in ages)
    inside = [cut for cut in degrees if 36 < cut < 37.4]
    assert len(inside) >= 7
    assert not all(cut.is_integer() for cut in inside)


def test_noise_alone_makes_hardly_any_cells():
    empty = [np.full(50, math.nan), np.array([]), np.full(50, 3.0)]
    found = [find_cuts(empty, noisy(100.0, seed), cells=16) for seed in range(20)]
    assert sum(len(cuts) > 0 for columns in found for cuts in columns) <= 3  # 60 columns; one in 200 is expected to


def test_what_is_found_is_a_function_of_the_draws_alone():
    told = []

    def keep(counts, *, squared_sensitivity):
        told.append((counts + 1, 2.0))
        return told[-1]

    given = find_cuts([np.repeat([1.0, 5.0, 9.5], 400)], keep, cells=5)
    replayed = iter(told)
    assert find_cuts([np.full(1_200, -77.0)], lambda counts, *, squared_sensitivity: next(replayed), cells=5) == given


def test_a_release_finds_cuts_and_answers_by_them():
    table = tails(20_000, 0)
    release = QueryRelease(Workload.marginals(2), columns=COLUMNS, epsilon=2.0).fit(table)
    assert release.engine_ == "residual"
    assert any("cuts found with noise" in note and "gain" in note for note in release.notes_)
    cuts = release.domain_.columns.kinds["gain"].cuts
    assert cuts[:2] == (0.0, 1.0)
    [zero] = release.answer([{"gain": 0}])["answer"].to_pylist()
    assert abs(zero - np.mean(np.array(table["gain"]) == 0)) < 0.03
    synthetic = release.synthetic(5_000).to_pydict()
    assert abs(np.mean(np.array(synthetic["gain"]) == 0.0) - zero) < 0.02, "zero comes back as zero"
    assert release.budget_.affordable(release.budget_.capacity()) == 0


@pytest.mark.parametrize(
    ("draw", "mean", "rare"),
    [
        (lambda chance, rows: np.exp(2.0 * chance.normal(size=rows)), 0.12, 0.15),
        (lambda chance, rows: -np.exp(1.0 + chance.normal(size=rows)), 0.08, 0.15),
        (lambda chance, rows: 1.0 + chance.pareto(1.5, rows), 0.2, 0.15),
        (lambda chance, rows: 100.0 * chance.random(rows), 0.02, 0.3),  # the last cell holds too few to be divided
    ],
    ids=["log-normal", "below 0", "pareto", "even"],
)
def test_tails_beyond_the_last_cut_are_not_cut_off(draw, mean, rare):
    """A cell as wide as its neighbour had means a third low, and a 99th percentile a quarter of the true one."""
    chance = np.random.default_rng(5)
    gains = draw(chance, 50_000)
    columns = Columns({"gain": Number(), "sex": Category(["f", "m"], closed=True)})
    table = {"gain": gains, "sex": chance.choice(["f", "m"], 50_000)}
    with entropy_tape(5):
        release = QueryRelease(Workload.marginals(2), columns=columns).fit(table)
    made = np.array(
        [value for value in release.synthetic(50_000).to_pydict()["gain"] if value is not None], dtype=float
    )
    assert made.mean() == pytest.approx(gains.mean(), rel=mean)
    far = 0.99 if gains.mean() > 0 else 0.01
    assert np.quantile(made, far) == pytest.approx(np.quantile(gains, far), rel=rare)
    is_heavy = np.log(np.quantile(np.abs(gains), 0.99) / np.quantile(np.abs(gains), 0.95)) > 0.4
    assert is_heavy == any("guessed as the tail" in note and "'gain'" in note for note in release.notes_)
    again = Columns.from_dict(release.domain_.columns.to_dict())
    assert again.decode(np.array([[3, 0]] * 50)) == release.domain_.columns.decode(np.array([[3, 0]] * 50))


def test_dates_without_cuts_are_cut_and_a_replaced_date_moves_what_is_paid_for():
    chance = np.random.default_rng(3)
    days = np.array(["2024-01-01"], dtype="datetime64[D]") + chance.integers(0, 366, 20_000)
    table = {"day": days.astype(str), "sex": chance.choice(["f", "m"], 20_000)}
    columns = Columns({"day": Date(low="2020-01-01", high="2030-01-01"), "sex": Category(["f", "m"], closed=True)})
    release = QueryRelease(Workload.marginals(2), columns=columns).fit(table)
    cuts = release.domain_.columns.kinds["day"].cuts
    assert 8 <= len(cuts) <= 17
    assert all(19_723 - 40 <= cut <= 20_089 + 60 for cut in cuts)
    made = np.array(release.synthetic(20_000).to_pydict()["day"], dtype="datetime64[D]")
    assert abs(np.mean(made < np.datetime64("2024-07-01")) - np.mean(days < np.datetime64("2024-07-01"))) < 0.03
    numbers, vectors = days.astype(float), []

    def draw(counts, *, squared_sensitivity):
        vectors.append((counts, squared_sensitivity))
        return vectors[len(vectors) - 1 - told][0], 0.1

    told = 0
    find_cuts([numbers], draw, cells=4, dates={0})
    told = len(vectors)
    find_cuts([np.append(numbers[:-1], 19_000.5)], draw, cells=4, dates={0})
    for (counts, paid), (other, same) in zip(vectors[:told], vectors[told:], strict=True):
        assert int(((counts - other) ** 2).sum()) <= paid == same


def test_noise_far_from_all_numbers_makes_no_cut():
    """Ages up to 89 had a cut at 10,000 in one release of three: noise in ten empty cells adds up."""
    ages = np.random.default_rng(0).integers(18, 90, 5_000).astype(float)
    for seed in range(60):
        [cuts] = find_cuts([ages], noisy(60.0, seed), cells=16)
        assert max(cuts) <= 256.0, (seed, cuts)


def test_columns_of_json_groups_and_an_account_work(tmp_path):
    table = tails(3_000, 2)
    account = Account(tmp_path / "account", epsilon=1.0, delta=1e-5)
    document = {"gain": {"kind": "number"}, "sex": ["f", "m"]}
    asked = QueryRelease(Workload.marginals(1, bins=4), columns=document, epsilon=0.7, account=account)
    release = asked.fit(table, groups=np.arange(3_000) // 2)
    assert release.records_ == 1_500
    assert release.domain_.columns.sizes[0] <= 4 + 2 + 1
    assert account.left()[0] < 0.31
    account.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: QueryRelease(Workload.marginals(2), columns=COLUMNS, engine="adaptive"), "needs the cuts of 'gain'"),
        (lambda: QueryRelease(Workload.thresholds("gain"), columns=COLUMNS), "column 'gain': a release needs the cuts"),
        (
            lambda: QueryRelease(
                Workload.marginals(1), columns=Columns(COLUMNS.kinds, constraints=["gain >= 0"]), engine="residual"
            ),
            "'gain' of a constraint must have declared cuts",
        ),
        (lambda: QueryRelease(Workload.marginals(2), columns=COLUMNS, epsilon=1e-12), "cannot answer"),
        (lambda: QueryRelease(Workload.marginals(2), columns=COLUMNS, epsilon=1e5), "smaller epsilon"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_drawn(make, text, monkeypatch):
    monkeypatch.setattr(NoisyVector, "draw_release", lambda *given: pytest.fail("something was drawn"))
    with pytest.raises(Exception, match=text):
        make().fit(tails(500, 3))


def test_releases_that_cut_nothing_refuse_numbers_without_cuts():
    with pytest.raises(InvalidInput, match="column 'gain': a release needs the cuts"):
        GrowingRelease(Workload.marginals(1), columns=COLUMNS, updates=3).update("a", tails(500, 3))
    with pytest.raises(InvalidInput, match="public points"):
        QueryRelease(Thresholds(), columns=COLUMNS).fit([1.0])
    assert repr(COLUMNS) == "Columns(gain, rate, sex; not cut: gain, rate)"


def test_a_column_that_is_no_number_at_all_raises_nothing():
    table = {"gain": ["a", None, "7"] * 200, "rate": [None] * 600, "sex": ["f"] * 600}
    release = QueryRelease(Workload.marginals(2), columns=COLUMNS).fit(table)
    assert release.synthetic(10).num_rows == 10


def table_of_nothing_known(rows, seed=0):
    chance = np.random.default_rng(seed)
    old = chance.random(rows) < 0.4
    return {
        "age": np.where(old, chance.integers(60, 90, rows), chance.integers(18, 60, rows)).tolist(),
        "ward": np.where(chance.random(rows) < np.where(old, 0.8, 0.2), "east", "west").tolist(),
        "since": [f"2024-{month:02}-01" for month in chance.integers(1, 13, rows).tolist()],
        "patient": [f"P{number}" for number in range(rows)],
        "note": ["came in by night and left in the morning"] * rows,
    }


def test_a_table_of_which_nothing_is_declared_is_learned_and_released():
    table = table_of_nothing_known(20_000)
    release = QueryRelease(Workload.marginals(2), epsilon=1.0, delta=1e-6).fit(table)
    kinds = release.domain_.columns.kinds
    assert [type(kinds[name]).__name__ for name in kinds] == ["Number", "Category", "Date"]
    assert kinds["ward"].categories == ("east", "west")
    assert any("left out: 'patient', 'note'" in note for note in release.notes_)
    assert release.budget_.remaining().renyi == 0.0
    made = release.synthetic(20_000)
    old = np.array(made["age"].to_pylist(), dtype=np.float64) >= 60  # a few are missing, by the noise
    east = np.array(made["ward"].to_pylist()) == "east"
    assert abs(old.mean() - 0.4) < 0.03
    assert abs(east[old].mean() - 0.8) < 0.05
    assert abs(east[~old].mean() - 0.2) < 0.05
    [answer] = release.answer([{"ward": "east", "age": 30}])["answer"].to_pylist()
    assert 0.0 <= answer < 0.05


def test_hidden_columns_that_are_needed_are_kept():
    """The noise hides names; they are kept where a model is to predict them, or where too few columns are left."""
    table = {name: values for name, values in table_of_nothing_known(5_000).items() if name in ("age", "patient")}
    pairs = QueryRelease(Workload.marginals(2), epsilon=1.0, delta=1e-6).fit(table)
    assert pairs.domain_.columns.names == ("age", "patient")
    predicted = QueryRelease(Workload.marginals(1), epsilon=1.0, delta=1e-6, error="weighted", target="patient")
    assert "patient" in predicted.fit(table).domain_.columns.names


@pytest.mark.parametrize(
    ("names", "order", "settings"),
    [
        (("age", "patient", "note"), 2, {"error_weights": {"note": 3.0}}),
        (("age", "patient", "note"), 2, {"error_weights": {("patient", "note"): 3.0}}),
        (("patient", "note"), 1, {"target": "patient"}),
        (("patient", "note"), 1, {"target": "note"}),
        (("age", "note"), 1, {"target": "age"}),
        (("note", "age"), 2, {"target": "age", "error_weights": {("age", "note"): 2.0}}),
    ],
)
def test_nothing_that_weights_name_is_refused_once_the_noise_has_hidden_it(names, order, settings):
    table = {name: table_of_nothing_known(5_000)[name] for name in names}
    release = QueryRelease(Workload.marginals(order), epsilon=1.0, delta=1e-6, error="weighted", **settings).fit(table)
    kept = release.domain_.columns.names
    assert kept == tuple(name for name in names if name in kept)  # in the order of the table
    assert "kept without content" in release.notes_[-1]


def test_what_cannot_be_learned_is_refused_before_an_account_is_charged(tmp_path):
    account = Account(tmp_path / "account", epsilon=1.0, delta=1e-6)
    release = QueryRelease(Workload.marginals(2), epsilon=0.01, delta=1e-7, account=account)
    with pytest.raises(Infeasible, match="cannot be learned from 200 units"):
        release.fit(table_of_nothing_known(200))
    assert account.left() == (1.0, 1e-6)


def test_the_rest_of_the_vectors_is_divided_by_shares():
    parts, squares, shares = [np.array([10]), np.array([20, 30]), np.array([4])], (2, 2, 2), (0.5, 0.3, 0.2)
    alone = NoisyVector.calibrate(epsilon=1.0, delta=1e-6, squared_sensitivities=squares, shares=shares)
    vectors = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=6)
    drawn, scales = vectors.release_rest(parts, squared_sensitivities=squares, shares=shares)
    assert [len(part) for part in drawn] == [1, 2, 1]
    assert scales == pytest.approx(alone.scales, rel=1e-6)
    assert (np.array(scales) >= np.array(alone.scales) * (1 - 1e-9)).all()
    with pytest.raises(Exception, match="nothing is left"):
        vectors.release(np.array([1]), squared_sensitivity=2, fraction=1.0)


def test_a_stream_of_records_is_read_once(tmp_path):
    """A second reading would find no record, after all of the budget and of the account is spent."""
    table = pa.table(tails(3_000, 4))
    columns = Columns({"rate": Number(), "sex": Category(["f", "m"])})
    asked = QueryRelease(Workload.marginals(2), columns=columns, epsilon=4.0)
    release = asked.fit(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=500)))
    assert release.records_ == 3_000
    assert release.domain_.columns.kinds["rate"].cuts


def test_closed_numbers_of_which_noise_hides_all_are_released_and_not_refused():
    """With no cut they would have one cell each, and nothing would be left to measure after the draws."""
    columns = Columns({"first": Number(closed=True), "second": Number(closed=True)})
    table = {name: [7.0] * 5 for name in columns.names}
    with entropy_tape(0):  # of 300 releases, noise makes a cell in one
        release = QueryRelease(Workload.marginals(2), columns=columns, epsilon=0.1).fit(table)
    assert release.domain_.columns.sizes == (2, 2)
    assert any("synthetic ones say nothing: 'first', 'second'" in note for note in release.notes_)
    assert release.synthetic(10).num_rows == 10


@pytest.mark.parametrize("order", [1, 2, 5])
def test_entries_are_enough_for_all_marginals_that_may_be_measured(order):
    kinds = {f"flag{place}": Category(["f", "m"], closed=True) for place in range(4)} | {"rate": Number()}
    cuts = AutoCuts.of(Workload.marginals(order, bins=3), Columns(kinds), None)
    sizes = cuts.widest.sizes
    every = [clique for most in range(1, order + 1) for clique in itertools.combinations(sizes, most)]
    vectors = cuts.open(Budget(epsilon=1.0, delta=1e-6, slack=0.0), 1000)
    assert vectors.entries == sum(map(math.prod, every)) + 1 + STAGES * most_cells()


def test_as_many_entries_as_a_high_order_may_take_are_paid_for():
    kinds = {f"flag{place}": Category(["f", "m"], closed=True) for place in range(15)} | {"rate": Number()}
    cuts = AutoCuts.of(Workload.marginals(16, bins=2), Columns(kinds), None)
    assert cuts.open(Budget(epsilon=1.0, delta=1e-6, slack=0.0), 1000).entries >= 3**15 * 6 - 1


def test_columns_that_are_no_columns_are_refused_in_words():
    with pytest.raises(InvalidInput, match="columns must"):
        QueryRelease(Workload.marginals(1), columns="columns.json").fit(tails(10, 5))


def test_columns_without_cuts_are_compared_and_written_down(tmp_path):
    COLUMNS.save(tmp_path / "columns.json")
    assert Columns.load(tmp_path / "columns.json") == COLUMNS
    assert COLUMNS.with_cuts({"gain": [0]}) != COLUMNS
    assert Columns(COLUMNS.kinds | {"rate": Number(closed=True)}) != COLUMNS
