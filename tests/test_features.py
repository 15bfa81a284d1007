"""Columns of additive models: from public rows or declared bounds, each row by itself, within [0, 1]."""

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import InvalidInput
from quorate.features import AdditiveColumns

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


def test_a_document_brings_the_columns_back():
    columns = AdditiveColumns().fit(FRAME)
    again = AdditiveColumns.from_document(columns.document())
    assert np.array_equal(again.transform(FRAME), columns.transform(FRAME))
    with pytest.raises(InvalidInput, match="does not know"):
        AdditiveColumns.from_document({"names": ["a"], "blocks": [{"poem": 1}]})
