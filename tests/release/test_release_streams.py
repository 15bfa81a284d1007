"""Releases of tables that are read in batches."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate import GrowingRelease, QueryRelease, Workload
from quorate.core.errors import InvalidInput
from quorate.release import Columns
from quorate.release.domain import make_domain
from quorate.release.queries import Rows
from quorate.tables import Category, Number
from quorate.tables.files import TableStream

COLUMNS = Columns(
    {"age": Number(cuts=[18, 40, 65]), "sex": Category(["f", "m"]), "code": Category(map(str, range(300)))}
)


@pytest.fixture
def table(tmp_path):
    """A table of 50,000 rows, and the folder of its three files."""
    chance = np.random.default_rng(3)
    rows = pa.table(
        {
            "age": chance.normal(45, 20, 50_000),
            "sex": chance.choice(["f", "m", "?"], 50_000),
            "code": chance.integers(0, 310, 50_000).astype(str),
            "note": chance.choice(["a", "b"], 50_000),
        }
    )
    for number, (start, end) in enumerate([(0, 20_000), (20_000, 20_001), (20_001, 50_000)]):
        pq.write_table(rows.slice(start, end - start), tmp_path / f"{number}.parquet")
    return rows, TableStream(tmp_path)


@pytest.mark.parametrize(
    "workload",
    [
        Workload.marginals(2),
        Workload.thresholds("age", by="sex"),
        Workload.expressions(["age >= 18 and sex = 'f'"] + [f"code = '{code}' and age < 40" for code in range(40)]),
    ],
    ids=lambda workload: workload.kind,
)
def test_cells_of_a_stream_are_those_of_the_table(workload, table):
    rows, stream = table
    domain = make_domain(workload, None, COLUMNS)
    counted, streamed = domain.count(rows), domain.count(stream)
    if isinstance(counted, Rows):
        assert np.array_equal(counted.narrow, streamed.narrow)
        assert counted.narrow.dtype.itemsize <= 2
    else:
        assert np.array_equal(counted, streamed)


def test_a_stream_is_released_with_and_without_declared_columns(table):
    rows, stream = table
    exact = np.mean(np.array(rows["sex"].to_pylist()) == "f")
    declared = COLUMNS.select(["age", "sex"])
    for columns in (declared, Columns({**declared.kinds, "age": Number()}), None):
        release = QueryRelease(Workload.marginals(2), columns=columns, epsilon=2.0).fit(stream)
        assert release.records_ == 50_000
        [share] = release.answer([{"sex": "f"}])["answer"].to_pylist()
        assert abs(share - exact) < 0.01
    growing = GrowingRelease(Workload.marginals(2), columns=declared, updates=2, epsilon=2.0)
    assert growing.update("first", stream).records_ == 50_000


def test_people_of_a_stream_are_refused_before_anything_is_spent(table, tmp_path):
    _, stream = table
    with pytest.raises(InvalidInput, match="TableStream"):
        QueryRelease(Workload.marginals(2), columns=COLUMNS).fit(stream, groups=np.arange(50_000))


def test_blocks_of_records_are_counted_as_one(monkeypatch):
    chance = np.random.default_rng(4)
    codes = np.stack([chance.integers(0, 300, 5_000), chance.integers(0, 3, 5_000)], axis=1)
    for weights in (None, chance.random(5_000), np.ones(5_000)):
        whole = Rows(codes, (300, 3), weights)
        expected = np.bincount(codes[:, 0] * 3 + codes[:, 1], weights, minlength=900)
        assert np.allclose(whole.sum_cells([0, 1]), expected, rtol=1e-12)
        monkeypatch.setattr("quorate.release.queries.base._BLOCK", 64)
        assert np.allclose(whole.sum_cells([0, 1]), expected, rtol=1e-12)
        assert whole.codes.dtype == np.int64
        assert np.array_equal(whole.codes, codes)
