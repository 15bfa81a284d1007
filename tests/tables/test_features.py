"""Columns of additive models: from public rows, declared bounds or learned cuts, each row by itself."""

import itertools
import warnings

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.schemas import told_cuts
from quorate import InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.models.concepts import Thresholds
from quorate.models.linear import PrivateLogisticRegression
from quorate.release import Columns
from quorate.release.domain import make_domain
from quorate.tables import Category, Date, Number, Schema
from quorate.tables.features import AdditiveColumns
from quorate.tables.features.additive import cuts_for
from quorate.tables.features.blocks import Categories, Ramps, column_numbers, column_texts, shares_of_blocks
from quorate.tables.features.combined import _draw_waves
from quorate.tables.features.learned_cuts import choose_cut_share, count_categories, entries_of_cuts, learn_cuts
from quorate.tables.persons import unit_numbers

FRAME = pandas.DataFrame({
    "age": np.arange(200.0) % 70,
    "gain": np.where(np.arange(200) % 10, 0.0, np.arange(200.0)),
    "sex": np.where(np.arange(200) % 3, "f", "m"),
})  # fmt: skip


@given(st.floats(), st.text(max_size=5))
def test_every_number_is_between_0_and_1_whatever_comes(number, text):
    columns = AdditiveColumns().fit(FRAME)
    encoded = columns.transform(pandas.DataFrame({"age": [number], "gain": [-number], "sex": [text]}))
    assert encoded.min() >= 0
    assert encoded.max() <= 1


def test_a_row_is_encoded_by_itself():
    columns = AdditiveColumns().fit(FRAME)
    assert np.array_equal(columns.transform(FRAME)[7], columns.transform(FRAME[7:8])[0])


def test_a_value_that_many_share_has_cuts_of_its_own():
    gain = AdditiveColumns().fit(FRAME).blocks_[1]
    assert 0.0 in gain.cuts
    assert sum(cut > 0 for cut in gain.cuts) >= 2


@pytest.mark.parametrize("rows", [12, 1400])
def test_no_id_of_a_public_row_becomes_a_column(rows):
    public = pandas.DataFrame({"code": [f"p{index}" for index in range(rows)], "sex": ["f", "m"] * (rows // 2)})
    columns = AdditiveColumns().fit(public)
    assert columns.get_feature_names_out().tolist() == ["code is another", "sex=f", "sex=m", "sex is another"]


def test_rare_and_unknown_texts_share_a_column():
    columns = AdditiveColumns(rare=100).fit(FRAME[["sex"]])
    assert columns.get_feature_names_out().tolist() == ["sex=f", "sex is another"]
    assert columns.transform(pandas.DataFrame({"sex": ["m", "f", " f "]})).tolist() == [[0, 1], [1, 0], [1, 0]]


def test_numbers_beyond_the_public_ones_are_told_apart():
    columns = AdditiveColumns().fit(FRAME[["age"]])
    below, lowest = columns.transform(pandas.DataFrame({"age": [-20.0, 0.0]}))
    assert not np.array_equal(below, lowest)


def test_missing_numbers_have_a_column_where_public_rows_miss_some():
    gaps = FRAME.assign(age=np.where(np.arange(200) < 20, np.nan, FRAME["age"]))
    columns = AdditiveColumns().fit(gaps[["age"]])
    encoded = columns.transform(gaps[:1][["age"]])[0]
    assert encoded[-1] == 1
    assert not encoded[:-1].any()


def test_one_straight_line_a_column():
    X = np.random.default_rng(0).normal(size=(1000, 2))
    columns = AdditiveColumns(cuts=1).fit(X)
    assert columns.transform(X).shape == (1000, 2)


def test_0_1_columns_that_exclude_each_other_are_one_block():
    codes = np.arange(300) % 3
    X = np.hstack([np.eye(3)[codes], np.arange(300.0)[:, None]])
    columns = AdditiveColumns().fit(X)
    assert columns.joined_ == [[0, 1, 2], [3]]
    assert columns.atoms()[0].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_declared_columns_need_no_rows():
    columns = AdditiveColumns(cuts=2, declared={"age": (0, 100), "gain": [0, 1, 5000], "sex": ["f", "m"]}).fit(None)
    assert columns.transform(FRAME).shape == (200, 1 + 2 + 1 + 2 + 3)
    with pytest.raises(InvalidInput, match="declare column 'age'"):
        AdditiveColumns(declared={"age": 5}).fit(None)


@pytest.mark.parametrize("ends", [(0, 100_000), (-1, 900), (-10_000, 100_000), (17, 90), (5, 8), (-8, -5), (-3, 3)])
def test_declared_ends_are_cut_finer_towards_0(ends):
    [block] = AdditiveColumns(declared=[ends]).fit(None).blocks_
    assert (block.cuts[0], block.cuts[-1]) == block.line == ends
    assert 7 <= len(block.cuts) - 1 <= 18
    near, far = min(map(abs, ends)), max(map(abs, ends))
    if ends[0] <= 0 <= ends[1]:  # there are cuts at every scale down to 1/256
        assert 0.0 in block.cuts
        assert min(abs(cut) for cut in block.cuts if cut) <= far / 256 or near == 1
    assert max(np.diff(block.cuts)) <= (ends[1] - ends[0]) * 0.27  # and none far from the next


def test_a_document_brings_the_columns_back():
    columns = AdditiveColumns().fit(FRAME)
    again = AdditiveColumns.from_document(columns.document())
    assert np.array_equal(again.transform(FRAME), columns.transform(FRAME))
    with pytest.raises(InvalidInput, match="does not know"):
        AdditiveColumns.from_document({"names": ["a"], "blocks": [{"poem": 1}]})


@pytest.mark.filterwarnings("error")
def test_values_are_read_one_by_one_and_what_is_no_number_is_missing():
    values = np.array([1, "2.5", "Smith 1987", None, True, 1j, 10**400], dtype=object)
    assert np.array_equal(column_numbers(values), [1, 2.5, np.nan, np.nan, 1, np.nan, np.inf], equal_nan=True)
    assert np.array_equal(column_numbers(pandas.Series([1, None], dtype="Int64")), [1, np.nan], equal_nan=True)
    assert np.isnan(column_numbers(np.array(["1987-01-02"], dtype="datetime64[ns]"))).all()
    ramps = Ramps("a", (0.0, 1e-9, 1.0))
    encoded = ramps.encode([1.7e308, -1.7e308, np.inf, -np.inf, np.nan])
    assert encoded.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0], [0, 0]]
    assert np.isfinite(Ramps("a", (-1.7e308, 1.7e308)).encode([np.inf, 0.0, -np.inf])).all()


def test_a_value_in_another_spelling_is_the_category_in_its_letters_and_else_that_number():
    values = [True, 1, 1.0, "1", "true", "True", "1.00", 0]
    assert Categories("a", ("1", "true")).read(values).tolist() == [1, 0, 0, 0, 1, 1, 0, 2]


def test_what_is_masked_is_missing_whatever_stands_there():
    """NumPy's asarray drops the mask, and its own filling of objects is a question mark, which may be a category."""
    masked = np.ma.array([1, 99], mask=[False, True])
    assert column_texts(masked) == ["1", "nan"]
    np.testing.assert_array_equal(column_numbers(masked), [1.0, np.nan])
    np.testing.assert_array_equal(Ramps("a", (0.0, 100.0)).encode(masked), [[0.01], [0.0]])
    assert Categories("a", ("1", "99")).read(masked).tolist() == [0, 2]
    assert Columns({"a": Category(["1", "99", "?"])}).encode({"a": masked}).codes.ravel().tolist() == [0, 3]
    counted = make_domain(Thresholds(), [0.0, 50.0]).seal(masked)[0]
    assert counted.put_to(list) == make_domain(Thresholds(), [0.0, 50.0]).seal([1, None])[0].put_to(list)
    assert unit_numbers(3, np.ma.array([1, 99, 1], mask=[False, True, True]))[0].tolist() == [0, 1, 1]  # one unknown


def test_lists_are_written_value_by_value():
    assert column_texts([True, 2, 1e20, None]) == ["true", "2", str(10**20), "nan"]


def test_a_value_that_cannot_be_written_is_missing():
    assert column_texts(pandas.Series([1, 10**5000], dtype=object)) == ["1", "nan"]


@pytest.mark.filterwarnings("error")
def test_a_value_of_an_odd_type_is_read_alike_in_every_column_and_without_a_word():
    odd = np.array([np.complex128(1 + 2j), 2], dtype=object)
    for values in (odd, odd.astype(complex)):
        assert np.array_equal(column_numbers(values), [np.nan, 2], equal_nan=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        column_numbers(odd)
    assert said == []
    long = np.array([np.longdouble("1e4500"), "a"], dtype=object)
    assert column_texts(long)[1] == "a"
    assert Categories("c", ("a",)).read(pandas.Series(long)).tolist() == [1, 0]


def test_a_long_private_text_takes_no_room_of_others():
    values = np.array(["f"] * 19_999 + ["x" * 10**6], dtype=object)  # 80 GB in an array of texts of one length
    assert Categories("sex", ("f",)).encode(values).sum(axis=0).tolist() == [19_999, 1]


def test_a_cross_has_the_products_of_two_columns_and_comes_back_from_a_document():
    columns = AdditiveColumns(rare=1, crosses=[("age", "sex"), ("age", "gain")]).fit(FRAME)
    encoded, names = columns.transform(FRAME), columns.get_feature_names_out().tolist()
    assert encoded.shape == (200, len(names))
    assert len(columns.families()) == sum(atoms.shape[1] for atoms in columns.atoms()) == len(names)
    low = next(place for place, name in enumerate(names) if name.endswith("and sex=m"))
    assert (encoded[FRAME["sex"] == "f", low] == 0).all()
    assert encoded[FRAME["sex"] == "m", low].max() == 1
    again = AdditiveColumns.from_document(columns.document())
    assert np.array_equal(again.transform(FRAME), encoded)
    assert np.array_equal(columns.transform(FRAME[7:8])[0], encoded[7])
    assert encoded.min() >= 0
    assert encoded.max() <= 1


@pytest.mark.parametrize("pair", ["age", ("age", "age"), ("age", "height"), ("age", "sex", "gain")])
def test_a_cross_of_something_else_is_refused(pair):
    with pytest.raises(InvalidInput, match="pair of two columns"):
        AdditiveColumns(crosses=[pair]).fit(FRAME)


def test_texts_are_not_crossed():
    notes = FRAME.assign(notes=[f"word{place % 7} and{place % 3} other{place % 11}" for place in range(200)])
    with pytest.raises(InvalidInput, match="cannot be crossed"):
        AdditiveColumns(declared={"notes": "text"}, crosses=[("age", "notes")]).fit(notes)


def test_waves_are_functions_of_a_row_alone_and_come_back_from_a_document():
    columns = AdditiveColumns(rare=1, waves=40).fit(FRAME)
    encoded = columns.transform(FRAME)
    assert encoded[:, -40:].min() >= 0
    assert encoded[:, -40:].max() <= 1
    assert np.median(encoded[:, -40:].std(axis=0)) > 0.1
    assert columns.get_feature_names_out()[-1] == "wave 39"
    assert len(columns.families()) == sum(atoms.shape[1] for atoms in columns.atoms()) == encoded.shape[1]
    for first, size in ((0, 1), (7, 13), (199, 1)):
        assert np.array_equal(columns.transform(FRAME[first : first + size]), encoded[first : first + size])
    wild = FRAME.assign(
        age=np.where(np.arange(200) < 5, [*[np.nan, np.inf, -np.inf, 1e308, -1e308], *[0.0] * 195], 1.0)
    )
    assert np.isfinite(columns.transform(wild)).all()
    again = AdditiveColumns.from_document(columns.document())
    assert np.array_equal(again.transform(FRAME), encoded)


def test_products_with_the_directions_of_waves_are_exact():
    generator = np.random.default_rng(0)
    [waves] = AdditiveColumns(waves=6).fit(generator.normal(size=(100, 9))).together_
    lines = generator.random((5, 9))
    directions, _ = _draw_waves(9, 6)
    whole = np.rint(lines * 2**20)
    exactly = [
        [sum(int(v) * int(w) for v, w in zip(row, column, strict=True)) for column in directions.T] for row in whole
    ]
    assert (whole @ directions).tolist() == exactly
    assert waves.number == 6


def test_waves_need_numbers_and_are_counted_for_the_noise_at_hand():
    with pytest.raises(InvalidInput, match="column of numbers"):
        AdditiveColumns(waves=5).fit(FRAME[["sex"]])
    with pytest.raises(InvalidInput, match="waves must"):
        AdditiveColumns(waves=-1).fit(FRAME)
    few, many = (AdditiveColumns(waves="auto").fit(FRAME, units=units).together_[0].number for units in (100, 10**6))
    assert few < many == 25  # an eighth of the public rows


def test_many_columns_and_units_get_fewer_cuts_and_few_keep_theirs():
    assert cuts_for(6, 32_561) == 24
    assert cuts_for(30, 10_000) == cuts_for(50, 10_000) == 8
    assert cuts_for(100, 10**6) == 2
    assert cuts_for(300, 10**6) == 1
    X = np.random.default_rng(0).normal(size=(300, 100))
    assert AdditiveColumns().fit(X, units=10**6).transform(X).shape == (300, 200)
    assert AdditiveColumns(cuts=3).fit(X, units=10**6).transform(X).shape == (300, 300)
    assert AdditiveColumns().fit(X, units=60_000, outputs=20).transform(X).shape == (300, 200)  # of 20 classes
    flags = np.hstack([X[:, :5], X[:, 5:] > 0])
    assert AdditiveColumns().fit(flags, units=10**6).transform(flags).shape[1] > 95 + 5 * 8


def test_bounds_of_a_schema_keep_dates_and_missing_values():
    """They became two plain numbers: a date was then no number, and a gap was as the lowest value."""
    seen = Date(low="2024-01-01", high="2024-12-31")
    columns = AdditiveColumns.from_schema(Schema({"seen": seen, "age": Number(low=0, high=99, missing="indicator")}))
    rows = columns.fit(None).transform(pa.table({"seen": ["2024-01-01", "2024-12-31"], "age": [None, "40"]}))
    names = columns.get_feature_names_out().tolist()
    assert rows[:, names.index("seen")].tolist() == [0.0, 1.0]
    assert rows[:, names.index("age is missing")].tolist() == [1.0, 0.0]


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
