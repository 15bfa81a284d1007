"""Declared constraints: what cannot occur has no answer and no synthetic record, at no privacy cost."""

import datetime
import itertools
import json

import numpy as np
import pyarrow.csv
import pytest

from quorate.auditing._plays import SeededNoise
from quorate.cli import main
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Budget
from quorate.release import Columns, GrowingRelease, QueryRelease, Workload
from quorate.release.domain import make_domain
from quorate.release.engines import ENGINES
from quorate.release.engines._marginals import ResidualEngine
from quorate.release.queries import Marginals, Rows
from quorate.release.workloads import BoundWorkload
from quorate.tables import Category, Date, Number

KINDS = {
    "age": Number(cuts=[15, 40, 60]),
    "marital": Category(["single", "married", "widowed"]),
    "parent": Number(cuts=[15, 40, 60, 80]),
    "wages": Number(cuts=[0, 40, 80], closed=True),
    "other": Number(cuts=[0, 20, 40], closed=True),
    "total": Number(cuts=[0, 50, 100], closed=True),
}
RULES = [
    {"age": "below 15", "marital": ["married", "widowed"]},
    "age + 15 <= parent",
    "total = wages + other",
    "if marital = 'widowed' then age >= 40",
    "wages >= 0",
    "other >= 0",
]
TIED = Columns(KINDS, constraints=RULES)
SLOW = [pytest.param(engine, marks=pytest.mark.long) for engine in ("adaptive", "reweighting")]
MARGINAL_ENGINES = ["residual", "plain", "weights", *SLOW]


def households(rows, seed=0):
    """Records that keep all rules, with some values missing."""
    chance = np.random.default_rng(seed)
    age = chance.integers(0, 80, rows)
    marital = np.where(age < 15, "single", chance.choice(["single", "married"], rows))
    marital = np.where((age >= 60) & (chance.random(rows) < 0.5), "widowed", marital)
    wages, other = chance.integers(0, 100, rows), chance.integers(0, 50, rows)
    lost = chance.random(rows) < 0.05
    return {
        "age": [None if gone else int(one) for one, gone in zip(age, lost, strict=True)],
        "marital": marital.tolist(),
        "parent": (age + 15 + chance.integers(0, 25, rows)).tolist(),
        "wages": wages.tolist(),
        "other": other.tolist(),
        "total": (wages + other).tolist(),
    }


def kept(row):
    """Whether a record keeps all rules, read off its values by another way than the one that is tested."""
    age, parent = row["age"], row["parent"]
    return (
        not (age is not None and age < 15 and row["marital"] in ("married", "widowed"))
        and not (age is not None and parent is not None and age + 15 > parent)
        and row["total"] == row["wages"] + row["other"]
        and not (row["marital"] == "widowed" and age is not None and age < 40)
        and row["wages"] >= 0
        and row["other"] >= 0
    )


@pytest.mark.parametrize("engine", MARGINAL_ENGINES)
def test_every_record_keeps_every_constraint_and_what_cannot_occur_is_answered_with_0(engine):
    public = households(500, seed=1) if engine == "reweighting" else None
    release = QueryRelease(Workload.marginals(2), columns=TIED, engine=engine, epsilon=0.5)
    release.fit(households(3000), public)
    records = release.synthetic(2000)
    assert records.num_rows == 2000
    assert all(kept(row) for row in records.to_pylist())
    young = release.answer([{"age": 10, "marital": "married"}, {"age": 50, "parent": 30}]).to_pylist()
    assert [row["answer"] for row in young] == [0.0, 0.0]
    assert all(row["error"] in (0.0, None) for row in young)
    queries = release.domain_.queries
    assert not release.released_.answers[~queries.mask].any()
    sums = np.add.reduceat(release.released_.answers, queries.offsets[:-1])
    np.testing.assert_allclose(sums, 1.0, atol=0.05)
    if release.has_error_bars:
        band = release.answer([{"age": 10, "marital": "married"}], band=0.95).to_pylist()[0]
        assert band["low"] == 0.0
        assert band["high"] == 0.0 or engine == "plain"  # which keeps no answers from before


def test_a_target_that_cannot_occur_is_not_drawn():
    release = QueryRelease(Workload.marginals(2), columns=TIED, epsilon=0.2, error="weighted", target="marital").fit(
        households(3000)
    )
    assert all(kept(row) for row in release.synthetic(3000).to_pylist())


class Recorder:
    """Noise from a seed that notes what is asked of it, and what is measured."""

    def __init__(self):
        self._noise, self.asked = SeededNoise(3), []

    def __getattr__(self, law):
        def draw(*arguments):
            drawn = getattr(self._noise, law)(*arguments)
            self.asked.append((law, [np.asarray(one).tolist() for one in arguments], np.asarray(drawn).tolist()))
            return drawn

        return draw


def drawn_by(engine, columns, monkeypatch, records=1500):
    """Return all noise that an engine draws, what it is added to, and what is charged, on the same private records."""
    bound = Workload.marginals(2).bind(columns=columns)
    recorder, measured, true = Recorder(), [], NoisyVector.draw_release
    budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)

    def draw_release(self, parts, budget, noise=None):
        measured.append((self.scales, [np.asarray(part).tolist() for part in parts]))
        return true(self, parts, budget, noise)

    monkeypatch.setattr(NoisyVector, "draw_release", draw_release)
    broken = households(records)
    broken["marital"] = ["married"] * records  # private records may break what was declared
    public = bound.count(households(200, seed=2))
    engine._run(bound.queries, bound.count(broken), public, budget, recorder)
    monkeypatch.undo()
    return recorder.asked, measured, budget.spent()


@pytest.mark.parametrize("engine", MARGINAL_ENGINES)
def test_constraints_change_nothing_that_is_drawn_measured_or_charged(engine, monkeypatch):
    """Replay with the same noise: they are post-processing, and what they cost is nothing."""
    free = drawn_by(ENGINES[engine], Columns(KINDS), monkeypatch)
    assert free[0]
    assert free == drawn_by(ENGINES[engine], TIED, monkeypatch)


class DropsWhatBreaksThem(ResidualEngine):
    """Planted: private records that break a constraint are left out, so that one record changes how many there are."""

    def _run(self, queries, data, public, budget, noise):
        data = data if queries.possible is None else queries.possible.filter_rows(data)
        return super()._run(queries, data, public, budget, noise)


def test_a_constraint_that_is_held_against_private_records_is_caught(monkeypatch):
    planted = DropsWhatBreaksThem()
    assert drawn_by(planted, Columns(KINDS), monkeypatch) != drawn_by(planted, TIED, monkeypatch)


WIDE = range(-6, 12)
SMALL = {"a": Number(cuts=[1, 2], closed=True), "b": Number(cuts=[0, 3], closed=True), "c": Number(cuts=[2, 4])}


@pytest.mark.parametrize(
    "rules",
    [
        ["a <= b"],
        ["a < b", "b < c"],
        ["c = a + b"],
        ["c = a + b", "a <= b"],
        ["a + b <= c - 2", "c < b + 1"],
        ["if c >= 4 then a = b"],
        ["a = b", "b = c", {"a": 1}],
        ["2 <= a", "b - a > 3"],
        ["a + a = c", "not (b < 0)"],
    ],
)
def test_cells_that_can_occur_are_those_that_hold_values_which_keep_it(rules):
    """By a second method: all whole numbers of a wide range, gone through one by one."""
    columns = Columns(SMALL, constraints=rules)
    tests = [compile(_python(rule), "rule", "eval") for rule in rules]
    found = np.zeros(columns.sizes, dtype=bool)
    for a, b, c in itertools.product(WIDE, WIDE, [*WIDE, None]):
        known = {"a": a, "b": b, "c": c}
        if all(_holds(test, known) for test in tests):
            codes = columns.encode({name: [value] for name, value in known.items()}).codes[0]
            found[tuple(codes)] = True
    said = columns.possible.table(range(3), columns.sizes).reshape(columns.sizes)
    np.testing.assert_array_equal(said, found)
    cells = np.argwhere(said)
    values = columns.decode(np.repeat(cells, 20, axis=0))
    np.testing.assert_array_equal(columns.encode(values).codes, np.repeat(cells, 20, axis=0))  # each in its cell
    for row in zip(*values.values(), strict=True):
        assert all(_holds(test, dict(zip("abc", row, strict=True))) for test in tests)


def _python(rule):
    """Return a rule as Python says it."""
    if isinstance(rule, dict):
        return "not (" + " and ".join(f"1 <= {name} < 2" for name in rule) + ")"  # the cell of 1 has cuts 1 and 2
    condition, _, rest = rule.rpartition(" then ")
    said = rest.replace(" = ", " == ")
    return f"not ({condition.removeprefix('if ')}) or {said}" if condition else said


def _holds(test, known):
    missing = [name for name in test.co_names if known[name] is None]  # what is missing breaks nothing
    return bool(missing) or eval(test, {}, known)


def test_sums_of_numbers_that_are_not_whole_are_exact():
    kinds = {name: Number(cuts=[0.1, 0.25, 0.7, 1.3], closed=True) for name in ("a", "b", "c", "total")}
    columns = Columns(kinds, constraints=["total = a + b + c", "a <= b"])
    cells = np.argwhere(columns.possible.groups[0][1])
    values = columns.decode(np.repeat(cells, 3, axis=0))
    rows = list(zip(*values.values(), strict=True))
    assert len(rows) == 3 * len(cells) > 100
    assert all(a + b + c == c + b + a == total and a <= b for a, b, c, total in rows)
    np.testing.assert_array_equal(columns.encode(values).codes, np.repeat(cells, 3, axis=0))


def test_dates_have_an_order():
    days = {"born": Date(cuts=["1950-01-01", "1980-01-01"]), "wed": Date(cuts=["1960-01-01", "1980-01-01"])}
    columns = Columns(days, constraints=["born < wed"])
    values = columns.decode(np.repeat(np.argwhere(columns.possible.groups[0][1]), 10, axis=0))
    pairs = [pair for pair in zip(*values.values(), strict=True) if None not in pair]
    assert pairs
    assert all(datetime.date.fromisoformat(born) < datetime.date.fromisoformat(wed) for born, wed in pairs)


def test_numbers_of_several_orders_and_totals_that_are_entangled_are_found():
    kinds = {name: Number(cuts=[0, 10, 20, 30], closed=True) for name in "abcde"}
    rules = ["a + b = c", "b + d = c + e", "a <= d", "e < b", "d < c"]
    columns = Columns(kinds, constraints=rules)
    cells = np.argwhere(columns.possible.groups[0][1])
    values = columns.decode(np.repeat(cells, 5, axis=0))
    for a, b, c, d, e in zip(*values.values(), strict=True):
        assert a + b == c
        assert b + d == c + e
        assert a <= d
        assert e < b
        assert d < c


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (["age < 20 or marital = 'single'"], "constraint 1: column 'age' has a cell, '15 to below 40', of which some"),
        (["height > 3"], "constraint 1: column 'height' is not declared; the columns are age, marital"),
        ([{"height": "tall", "age": 20}], "constraint 1: column 'height' is not declared"),
        ([{"age": 20, "marital": "divorced"}], "constraint 1: column 'marital': 'divorced' is not among the declared"),
        (["marital = 'divorced'"], "constraint 1: column 'marital': 'divorced' is not among the declared"),
        (["marital < 3"], "column 'marital' holds categories: compare it by ="),
        (["age = 'x'"], "column 'age' holds numbers, and is compared with a text"),
        (["wages > 0", "age < marital"], "constraint 1: column 'wages' has a cell"),
        (["age < marital"], "constraint 1: column 'marital' holds categories: numbers are compared"),
        (["age != parent"], "compared by <, <=, >, >= and =, not by !="),
        (["age + age > 3"], "at least two columns of numbers"),
        (["age + <= parent"], "a column or a number is expected, not '<='"),
        (["if age >= 40 parent > age"], "and, or, or then is expected"),
        (["age <"], "constraint 1: at character"),
        ([{}], "constraint 1: a combination that cannot occur names columns and cells"),
        ([3], "constraint 1: an expression must be a text, not int"),
        ("age < parent", "constraints must be a list"),
        (["age + 0.5 = parent"], "0.5 is no number that columns can be off by exactly"),
        (["age < parent", "parent < wages", "wages < age"], "leave no record at all: no cells of age, parent, wages"),
        ([{"marital": ["single", "married", "widowed", "other"]}], "the constraints leave no"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_spent(rules, problem, monkeypatch):
    kinds = {**KINDS, "age": Number(cuts=[15, 40, 60], closed=True), "parent": Number(cuts=[15, 40], closed=True)}
    monkeypatch.setattr(BoundWorkload, "seal", None)
    with pytest.raises(InvalidInput, match=problem):
        QueryRelease(Workload.marginals(1), columns=Columns(kinds, constraints=rules)).fit(households(20))


def test_tables_that_are_too_large_to_be_looked_through_are_refused():
    kinds = {name: Number(cuts=list(range(60)), closed=True) for name in "abcd"}
    with pytest.raises(Infeasible, match="orders and totals tie together"):
        assert Columns(kinds, constraints=["a < b", "b < c", "c < d"]).possible
    more = Columns({**kinds, "e": Number(cuts=list(range(60)))}, constraints=[dict.fromkeys("abcde", 3)])
    with pytest.raises(Infeasible, match=r"constraints tie together \d+ cells of a, b, c, d, e"):
        assert more.possible
    with pytest.raises(InvalidInput, match="keep no constraints"):
        Workload.expressions(["a < 3"]).bind(columns=Columns(kinds, constraints=["a < b"]))


def test_columns_with_constraints_are_written_read_and_chosen():
    document = json.loads(json.dumps(TIED.to_dict()))
    assert Columns.from_dict(document) == TIED
    assert set(document) == {"columns", "constraints"}
    assert TIED.select(["age", "marital"]).constraints == (RULES[0], RULES[3])
    assert "constraints" not in Columns(KINDS).to_dict()
    partial = {"columns": {"age": {"cuts": [15, 40, 60]}}, "constraints": [RULES[0]]}
    public = {"age": [10, 50], "marital": ["single", "married"]}
    known = Columns.from_public(public, declared=Columns.from_dict(partial))
    with pytest.raises(InvalidInput, match="'widowed' is not among the declared"):
        assert known.possible


def test_other_workloads_keep_them_in_their_records():
    for workload in (Workload.thresholds("age", by="marital"), Workload.ranges("age", by="marital")):
        release = QueryRelease(workload, columns=TIED).fit(households(2000))
        rows = release.synthetic(500).to_pylist()
        assert not any(row["marital"] in ("married", "widowed") and row["age"] and row["age"] < 15 for row in rows)


def test_a_folder_and_a_growing_release_carry_them(tmp_path):
    growing = GrowingRelease(Workload.marginals(2), columns=TIED, updates=3)
    release = growing.update("one", households(1500))
    release.save(tmp_path / "published")
    again = QueryRelease.load(tmp_path / "published")
    assert again.domain_.columns == TIED
    assert again.synthetic(300) == release.synthetic(300)
    assert all(kept(row) for row in again.synthetic(300).to_pylist())
    assert again.answer() == release.answer()


def test_the_command_line_reads_them_with_the_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(pyarrow.table(households(1500)), "private.csv")
    TIED.save("columns.json")
    command = ["release", "private.csv", "--workload", "marginals:2", "--columns", "columns.json", "--out"]
    assert main([*command, "published", "--synthetic", "500"]) == 0
    rows = pyarrow.csv.read_csv("published/synthetic.csv").to_pylist()
    assert len(rows) == 500
    assert all(kept(row) for row in rows)
    wrong = TIED.to_dict() | {"constraints": [{"age": "below 15", "marital": "divorced"}]}
    (tmp_path / "columns.json").write_text(json.dumps(wrong))
    assert main([*command, "again"]) == 1
    assert "constraint 1: column 'marital': 'divorced' is not among" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_records_that_cannot_occur_are_taken_out_of_supports():
    possible = TIED.possible
    rows = Rows(np.zeros((3, 6), dtype=np.int64), TIED.sizes)
    [one] = possible.filter_rows(rows).codes  # none of them can occur: one that does stands for all
    assert possible.records(one[None]).all()
    assert Marginals(TIED.sizes, [(1, 0)], possible=possible).mask.reshape(4, 5)[:3, 0].tolist() == [True, False, False]
    domain = make_domain(Workload.marginals(2), None, Columns(KINDS))
    assert domain.mask_possible(3, rows) is None
