"""Releases of tables that are read in batches."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate import GrowingRelease, QueryRelease, Workload
from quorate.auditing.replay import entropy_tape
from quorate.compute.ensemble import clusters
from quorate.compute.ensemble.clusters import ClusterTable
from quorate.core.errors import ClusterLost, Infeasible, InvalidInput
from quorate.release import Columns
from quorate.release.domain import make_domain
from quorate.release.queries import Rows
from quorate.release.queries.base import TableCounts
from quorate.tables import Category, Number
from quorate.tables.files import TableStream
from support.here import Here


def columns_with(codes):
    """Return the declared columns, with this many of the table's 310 codes listed."""
    listed = {"sex": Category(["f", "m"]), "code": Category(map(str, range(codes)))}
    return Columns({"age": Number(cuts=[18, 40, 65])} | listed)


COLUMNS = columns_with(300)


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


WORKLOADS = [
    Workload.marginals(2),
    Workload.thresholds("age", by="sex"),
    Workload.expressions(["age >= 18 and sex = 'f'", "code = '7' and age < 40"]),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.kind)
def test_a_release_is_the_same_wherever_its_records_are_counted(workload, table, tmp_path, monkeypatch):
    rows, stream = table
    columns = columns_with(30)  # noise is drawn for every cell, four times
    engine = Here(3)
    answers = []
    for private in (rows, stream, ClusterTable(tmp_path, engine)):
        with entropy_tape(3):
            release = QueryRelease(workload, columns=columns, epsilon=2.0).fit(private)
        assert release.records_ == 50_000
        answers.append(release.answer())
    assert answers[0].equals(answers[1])
    assert answers[0].equals(answers[2])
    sizes = [pickle.loads(one) for one in engine.got]
    assert all(not isinstance(one, np.ndarray) or one.size < 10_000 for one in sizes), "no record came here"
    gets = engine.get

    def get(reference):
        monkeypatch.setattr(engine, "get", gets)
        engine.lose()
        raise ClusterLost("gone")

    there = ClusterTable(tmp_path, engine)
    monkeypatch.setattr(engine, "get", get)
    with entropy_tape(3):
        assert QueryRelease(workload, columns=columns, epsilon=2.0).fit(there).answer().equals(answers[0])


def test_a_sum_over_parts_that_lacks_one_is_refused(table, tmp_path, monkeypatch):
    there = ClusterTable(tmp_path, Here())
    monkeypatch.setattr(clusters, "_sum", lambda *counts: np.sum(counts[:-1], axis=0))
    with pytest.raises(ClusterLost, match="not over each part once; nothing is drawn"):
        QueryRelease(Workload.marginals(2), columns=COLUMNS).fit(there)
    with pytest.raises(InvalidInput, match="a cluster counts columns that are declared"):
        QueryRelease(Workload.marginals(2)).fit(there)


def test_tables_that_were_counted_say_what_their_columns_say():
    codes = np.random.default_rng(5).integers(0, [3, 4, 5], size=(500, 3))
    rows = Rows(codes, (3, 4, 5))
    counted = TableCounts(
        (3, 4, 5), {members: rows.sum_cells(members).astype(np.int64) for members in [(0, 1), (2, 1), (0, 2)]}
    )
    assert counted.records == 500
    for members in [(0,), (1,), (2,), (1, 0), (0, 1), (1, 2), (2, 0), ()]:
        assert np.array_equal(counted.sum_cells(members), rows.sum_cells(members))
    with pytest.raises(Infeasible, match="counted for tables of fewer columns"):
        counted.sum_cells((0, 1, 2))


def test_tables_of_very_many_cells_are_counted_from_codes(table, monkeypatch):
    rows, stream = table
    monkeypatch.setattr("quorate.release.workloads._bound._MOST_COUNTED", 100)
    domain = make_domain(Workload.marginals(2), None, COLUMNS)
    sealed, records = domain.seal_parts(stream)
    assert records == 50_000
    assert sealed.put_to(lambda counted: np.array_equal(counted.narrow, domain.count(rows).narrow))
    with pytest.raises(Infeasible, match="above the 100 that a cluster counts"):
        domain.seal_parts(object())
