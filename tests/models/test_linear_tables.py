"""Linear models of tables of any size: the bits of a fit in memory, wherever rows are and whatever is read again."""

import struct
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from quorate import InvalidInput
from quorate.auditing.replay import entropy_tape
from quorate.compute import blocks
from quorate.compute.blocks import RowBlocks, add_blocks, cut_people, cut_rows
from quorate.compute.ensemble import clusters, dealing
from quorate.compute.ensemble.clusters import ClusterTable, deal_table
from quorate.compute.ensemble.sources import spill_table
from quorate.core.errors import ClusterLost
from quorate.models.linear import PrivateLinearRegression, PrivateLogisticRegression, PrivatePoissonRegression
from quorate.models.linear._sums import GRID, PrivateSums
from quorate.tables import Category, Label, Number, Schema
from quorate.tables.features import AdditiveColumns
from quorate.tables.files import TableStream
from support.here import Here

ROWS = 1500
MARK = 1.0 + 2.0**-50 * 4321
KINDS = {
    "a": Number(low=-4, high=4, missing="indicator"),
    "b": Number(cuts=[0, 1, 2, 5]),
    "c": Category(["x", "y"]),
    "mark": Number(low=0, high=2),
}
REST = ["who", "ill", "part", "size"]
MODELS = {
    "two classes": (partial(PrivateLogisticRegression, epsilon=3.0), Label("ill", ["well", "ill"])),
    "three classes": (partial(PrivateLogisticRegression, epsilon=3.0), Label("part", ["q", "p", "r"])),
    "numbers": (partial(PrivateLinearRegression, epsilon=3.0, bounds=(-0.1, 0.7)), "size"),
    "counts": (partial(PrivatePoissonRegression, epsilon=3.0, largest=7.0), "size"),
}


def table_of(rows=ROWS):
    draw = np.random.default_rng(0)
    a = draw.normal(size=rows)
    return pa.table(
        {
            "a": pa.array(a, mask=draw.random(rows) < 0.1),
            "b": draw.lognormal(size=rows),
            "c": draw.choice(["x", "y", "z"], rows),
            "mark": np.full(rows, MARK),
            "who": draw.integers(0, rows // 5, rows).astype(str),
            "ill": np.where(a + draw.normal(size=rows) > 0, "ill", "well"),
            "part": draw.choice(["p", "q", "r", "?"], rows),
            "size": draw.normal(size=rows),
        }
    )


def schema_of(target, groups=None):
    label, name = (target, target.column) if isinstance(target, Label) else (None, target)
    return Schema(KINDS, label, groups, [column for column in REST if column not in (name, groups)])


@pytest.fixture(autouse=True)
def _one_key(monkeypatch):
    """Let all deals have one key, so that the tape of a fit in memory is that of a streamed one."""
    made = dealing.Dealer.__init__
    monkeypatch.setattr(dealing.Dealer, "__init__", lambda self, key=None: made(self, b"1" * 32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of several row groups; the rows of a person are in all of them."""
    path = tmp_path_factory.mktemp("visits")
    for place, (start, stop) in enumerate([(0, 700), (700, 750), (750, ROWS)]):
        pyarrow.parquet.write_table(
            table_of().slice(start, stop - start), path / f"{place}.parquet", row_group_size=130
        )
    return path


def fitted_in_memory(make, target, groups=None, columns=None):
    table, settings = table_of(), {}
    if isinstance(target, Label):
        settings["classes"] = list(target.classes)
    name = target.column if isinstance(target, Label) else target
    with entropy_tape(3):
        model = make(columns=columns or Schema(KINDS), **settings)
        return model.fit(table.select(list(KINDS)), table[name], groups=None if groups is None else table[groups])


def fitted_from_table(make, source, target, groups=None, **settings):
    label = None if isinstance(target, Label) else target
    with entropy_tape(3):
        return make().fit_table(source, schema_of(target, groups), label=label, **settings)


def are_same(one, other):
    names = ("coef_", "intercept_", "coef_deviations_")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names) and one.claim_ == other.claim_
    )


@pytest.mark.parametrize("groups", [None, "who"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_files_has_the_bits_of_one_of_the_same_rows_in_memory(name, groups, folder, tmp_path, monkeypatch):
    make, target = MODELS[name]
    here = fitted_in_memory(make, target, groups)
    assert are_same(here, fitted_from_table(make, folder, target, groups, spill=tmp_path))
    assert not [*tmp_path.iterdir()], "encoded rows have no name"
    monkeypatch.setattr(blocks, "_ROWS", 7)
    assert are_same(here, fitted_from_table(make, folder, target, groups))
    engine = Here(3)
    assert are_same(here, fitted_from_table(make, folder, target, groups, cluster=engine))
    assert engine.closed == 1
    mark = struct.pack("<d", MARK)
    assert engine.got
    assert not any(mark in one for one in engine.got), "no row comes to the process that asks"


def test_public_rows_and_columns_of_their_own_do_the_same_from_files(folder):
    make, target = MODELS["two classes"]
    public, table = table_of(300).select(list(KINDS)), table_of()
    with entropy_tape(3):
        here = make(classes=["ill", "well"]).fit(table.select(list(KINDS)), table["ill"], public=public)
    assert are_same(here, fitted_from_table(make, folder, target, public=public))
    columns = AdditiveColumns(declared={"a": (-4, 4), "b": [0, 1, 2], "c": ["x"], "mark": (0, 2)}, crosses=[("a", "c")])
    here = fitted_in_memory(make, target, columns=columns)
    assert are_same(here, fitted_from_table(partial(make, columns=columns), folder, target))


def test_csv_files_are_read_in_the_same_way(tmp_path):
    make, target = MODELS["two classes"]
    pyarrow.csv.write_csv(table_of().slice(0, 800), tmp_path / "0.csv")
    pyarrow.csv.write_csv(table_of().slice(800), tmp_path / "1.csv")
    assert are_same(fitted_in_memory(make, target), fitted_from_table(make, tmp_path, target))
    stream = TableStream(tmp_path)
    assert are_same(fitted_in_memory(make, target), fitted_from_table(make, stream, target))


def test_workers_that_die_in_any_phase_change_nothing(folder, monkeypatch):
    make, target = MODELS["two classes"]
    here = fitted_in_memory(make, target, "who")
    for phase in range(0, 18, 4):
        engine = Here(3)
        gets = 0

        def get(reference, engine=engine, phase=phase):
            nonlocal gets
            gets += 1
            if gets == 4 + phase:
                engine.lose()
                raise ClusterLost("gone")  # the engine has lost even how its results were made
            if gets % 5 == phase % 5:
                engine.lose()
            return Here.get(engine, reference)

        monkeypatch.setattr(engine, "get", get)
        assert are_same(here, fitted_from_table(make, folder, target, "who", cluster=engine))
        assert gets > 4 + phase


def test_sums_in_which_a_unit_is_counted_twice_are_refused(folder, monkeypatch):
    monkeypatch.setattr(clusters, "_sum", lambda *counts: np.sum([counts[0], *counts], axis=0))
    with pytest.raises(ClusterLost, match="not over each unit once; nothing is drawn"):
        fitted_from_table(*[MODELS["counts"][0], folder, "size"], cluster=Here(3))


def test_a_table_that_has_changed_is_not_added_up(tmp_path):
    pyarrow.parquet.write_table(table_of(), tmp_path / "0.parquet")
    engine = Here()
    table = ClusterTable(tmp_path, engine)
    encode = lambda batch: (np.zeros((batch.num_rows, 1)), np.zeros(batch.num_rows, dtype=np.int64), None)  # noqa: E731
    rows = deal_table(table, encode, None, features=1, by_person=False, together=False)
    assert rows.map_add(lambda X, firsts: np.array([len(X)]), 1).tolist() == [ROWS]
    pyarrow.parquet.write_table(table_of(80), tmp_path / "0.parquet")
    engine.lose()
    with pytest.raises(InvalidInput, match="the file has changed"):
        rows.map_add(lambda X, firsts: np.array([len(X)]), 1)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_blocks_hold_whole_units_and_every_row_once(size, monkeypatch):
    monkeypatch.setattr(blocks, "_ROWS", size)
    draw = np.random.default_rng(1)
    units = draw.integers(0, 9, size=60)
    X = np.stack([units, np.arange(60)], axis=1).astype(float)
    notes = np.stack([units * 7919, np.zeros(60, dtype=np.int64), np.arange(60)], axis=1)
    order = draw.permutation(60)
    in_memory = [(X[rows], firsts) for rows, firsts in RowBlocks(np.unique(units, return_inverse=True)[1], 9).parts()]
    for parts in (in_memory, [*cut_people(X[order], notes[order])]):
        people = [part[0] for rows, firsts in parts for part in np.split(rows[:, 0], firsts[1:])]
        assert sorted(people) == sorted(set(units.tolist())), "each person is in one block"
        assert sorted(np.vstack([rows for rows, _ in parts])[:, 1].tolist()) == [*range(60)]
        assert all((np.diff(part) > 0).all() for rows, firsts in parts for part in np.split(rows[:, 1], firsts[1:]))
    assert sum(len(firsts) for _, firsts in cut_rows(X)) == 60
    total = add_blocks(lambda rows, firsts: rows.sum(axis=0).astype(np.int64), cut_rows(X), 2)
    assert total.tolist() == X.sum(axis=0).tolist()


class _Total:
    """Stands in for the noise: what is released is the sum itself."""

    def release(self, whole, *, squared_sensitivity, fraction):
        return whole, 0.0


def sum_of(table, path, cluster=None):
    """Return the sum of the clipped rows of people of a table in files, in units of GRID."""
    for place, start in enumerate(range(0, len(table), 25)):
        pyarrow.parquet.write_table(table.slice(start, 25), path / f"{place}.parquet")
    schema = Schema({"a": Number(), "b": Number()}, groups="who")

    def encode(batch):
        return schema.encode(batch), np.zeros(batch.num_rows, dtype=np.int64), dealing.people_of(schema, batch)

    if cluster is None:
        rows = spill_table(path, encode, 2)
    else:
        rows = deal_table(path, encode, cluster, features=2, by_person=True, together=False)
    private = PrivateSums.of_blocks(rows, lambda X: (X, X[:, :1]), one_each=False)
    vectors = lambda features, targets: features  # noqa: E731
    mean, _ = private.release(vectors, entries=2, radius=1.0, noisy=_Total(), fraction=1.0)
    rows.close()
    return np.rint(mean * GRID * rows.count)


@pytest.mark.parametrize("there", [False, True])
def test_a_person_whose_rows_are_in_several_files_moves_a_sum_by_no_more_than_the_noise_is_for(
    there, tmp_path, monkeypatch
):
    monkeypatch.setattr(blocks, "_ROWS", 4)
    draw = np.random.default_rng(2)
    names = draw.integers(0, 12, size=120)
    X = draw.normal(size=(120, 2))
    moved = []
    for change, many in enumerate((0, 1, 60)):  # the same person with other rows, with one row, with many more
        other = np.where((names == 3)[:, None], 50.0 * draw.normal(size=(120, 2)), X)
        keep = (names != 3) | (np.cumsum(names == 3) <= max(many, 1)) if many else np.ones(120, dtype=bool)
        extra = np.full((many if many > 1 else 0, 2), 9e9)
        after = np.vstack([extra, other[keep]])
        whose = np.concatenate([np.full(len(extra), 3), names[keep]])
        sums = []
        for side, (rows, people) in enumerate(((X, names), (after, whose))):
            path = tmp_path / f"{change}{side}"
            path.mkdir()
            table = pa.table({"a": rows[:, 0], "b": rows[:, 1], "who": people.astype(str)})
            sums.append(sum_of(table, path, Here(2) if there else None))
        moved.append(float(np.linalg.norm(sums[1] - sums[0])))
    assert all(0 < distance <= 2 * GRID for distance in moved), moved


@pytest.mark.parametrize(
    ("settings", "given", "text"),
    [
        ({}, {"memory": "1GB", "cluster": Here()}, "memory and spill are about this machine"),
        ({}, {"schema": Schema({"a": Number()}, label=Label("ill", ["ill", "well"]))}, "does not know these columns"),
        ({}, {"schema": Schema(KINDS, leave_out=REST)}, "must declare the label with its classes"),
        (
            {},
            {"schema": Schema(KINDS | {"a": Number()}, Label("ill", ["ill", "well"]), leave_out=[*{*REST} - {"ill"}])},
            "bounds or cuts",
        ),
        ({}, {"source": "nowhere.parquet"}, "there is no such file"),
        ({"columns": "learned"}, {}, "columns that are declared or public"),
        ({"offset": "none"}, {}, "offset must be a column of X"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_public_values(settings, given, text, folder):
    source = given.pop("source", folder)
    schema = given.pop("schema", schema_of(MODELS["two classes"][1]))
    with pytest.raises(InvalidInput, match=text):
        PrivateLogisticRegression(**settings).fit_table(source, schema, **given)


def test_a_regression_of_a_table_needs_the_name_of_its_target(folder, tmp_path):
    with pytest.raises(InvalidInput, match="label must name the column to predict"):
        PrivateLinearRegression().fit_table(folder, schema_of("size"))
    pyarrow.parquet.write_table(table_of().slice(0, 0), tmp_path / "0.parquet")
    with pytest.raises(InvalidInput, match="the table has no rows"):
        PrivateLinearRegression().fit_table(tmp_path, schema_of("size"), label="size")
