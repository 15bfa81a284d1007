"""Releases of the records that meet conditions, releases from SQL, and their page."""

import json
import subprocess
import sys

import numpy as np
import pytest

from quorate import InvalidInput
from quorate.auditing import verify_claim
from quorate.auditing.replay import entropy_tape
from quorate.cli import main
from quorate.release import GroupRelease
from quorate.release.numbers._conditions import Condition
from quorate.release.numbers._sql import read_sql
from quorate.report import write_report
from quorate.report.groups import GroupReport
from quorate.tables import Category, Date, Number
from quorate.tables.containers import open_column
from quorate.tables.reading import DEFAULT_READING

COLUMNS = {"cost": Number(low=0, high=1000, closed=True), "region": Category(["north", "south"], closed=True)}


def visits(rows=6000, seed=1):
    chance = np.random.default_rng(seed)
    return {
        "region": chance.choice(["north", "south"], rows),
        "age": chance.integers(0, 90, rows).astype(float),
        "cost": chance.gamma(2.0, 100.0, rows),
        "day": np.datetime64("2024-01-01") + chance.integers(0, 366, rows),
        "patient": chance.integers(0, rows // 2, rows),
    }


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        (("v", "=", "a"), [0]),
        (("v", "=", 7), [2, 3]),
        (("v", "!=", "a"), [1, 2, 3, 5]),
        (("v", ">=", 7), [2, 3]),
        (("v", "<", 7.5), [2, 3]),
        (("v", "in", ["a", 7]), [0, 2, 3]),
        (("v", "not in", ["a", 7]), [1, 5]),
        (("v", "missing"), [4]),
        (("v", "present"), [0, 1, 2, 3, 5]),
        (("v", "<", "2024-05-02"), [5]),
        (("v", ">", "2024-05-01"), []),
    ],
)
def test_conditions_are_met_as_in_sql(condition, met):
    column = open_column(["a", "b", "7", 7.0, None, "2024-05-01"])
    flags = Condition.parse(condition).is_met(column, DEFAULT_READING)
    assert np.flatnonzero(flags).tolist() == met


def test_a_condition_is_told_with_all_digits():
    assert str(Condition.parse(("cost", ">=", 1234567.25))) == "cost >= 1234567.25"
    assert str(Condition.parse(("cost", "in", [5, "x"]))) == "cost in 5 x"


@pytest.mark.parametrize(
    "condition",
    ["age > 3", ("age",), ("age", ">"), ("age", "~", 3), ("age", ">", None), (3, "=", 3), ("age", "<", "x")],
)
def test_what_is_no_condition_is_refused(condition):
    with pytest.raises(InvalidInput):
        GroupRelease("region", where=[condition]).fit(visits(50))


@pytest.mark.parametrize("groups", [None, "patient"])
def test_records_that_meet_the_conditions_count(groups):
    table = visits()
    where = [("age", ">=", 18), ("day", "<", "2024-07-01")]
    release = GroupRelease("region", totals="cost", columns=COLUMNS, where=where, epsilon=20.0)
    rows = release.fit(table, groups).answer().to_pylist()
    meets = (table["age"] >= 18) & (table["day"] < np.datetime64("2024-07-01"))
    if groups is not None:  # the first record that meets them, of each person
        _, first = np.unique(np.where(meets, table["patient"], -1), return_index=True)
        meets = meets & np.isin(np.arange(len(meets)), first)
    for row in rows:
        mine = meets & (table["region"] == row["region"])
        truth = mine.sum() if row["measure"] == "records" else np.minimum(table["cost"][mine], 1000).sum()
        assert abs(row["answer"] / truth - 1) < 0.02
    assert any("age >= 18" in note for note in release.notes_)


def test_how_many_records_meet_the_conditions_stays_private():
    claims, units = set(), set()
    columns = COLUMNS | {"cost": Number(low=0, high=1000, cuts=[100, 200])}
    for age in (5.0, 50.0):
        table = visits(400) | {"age": np.full(400, age)}
        with entropy_tape(3):
            release = GroupRelease("region", medians="cost", columns=columns, where=[("age", ">=", 18)]).fit(table)
        claims.add(release.claim_)
        units.add((release.units_, release.published_.scale, release.published_.probes.scales))
    assert len(claims) == len(units) == 1


def test_sql_gives_the_release_that_settings_give():
    query = """
        SELECT region, date_trunc('month', day), count(*), sum(cost), avg(cost), median(cost), approx_quantile(cost, .9)
        FROM visits WHERE age BETWEEN 18 AND 65 AND region NOT IN ('west') AND 3 < cost AND day IS NOT NULL
        GROUP BY region, date_trunc('month', day)
    """
    release = GroupRelease.from_sql(query, epsilon=2.0)
    assert (release.by, release.totals, release.means) == (["region", "day:month"], ["cost"], ["cost"])
    assert release.quantiles == {"cost": [0.5, 0.9]}
    wanted = [
        ("age", ">=", 18.0),
        ("age", "<=", 65.0),
        ("region", "not in", ["west"]),
        ("cost", ">", 3.0),
        ("day", "present"),
    ]
    assert release.where == wanted
    assert release.fit(visits()).answer().num_rows > 0
    with pytest.raises(InvalidInput, match="people"):
        GroupRelease.from_sql("SELECT count(DISTINCT patient) FROM visits")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DROP TABLE t", "one SELECT"),
        ("SELECT sum(a) FROM t; SELECT 1", "one SELECT"),
        ("((", "no SQL"),
        ("SELECT 1", "one table"),
        ("SELECT sum(a) FROM t, s", "JOINS"),
        ("SELECT sum(a) FROM t JOIN s ON t.x = s.x", "JOINS"),
        ("SELECT sum(a) FROM (SELECT * FROM t)", "one table"),
        ("SELECT sum(a) FROM t TABLESAMPLE 10%", "one table"),
        ("WITH x AS (SELECT 1) SELECT sum(a) FROM x", "WITH"),
        ("SELECT DISTINCT a FROM t GROUP BY a", "DISTINCT"),
        ("SELECT a, sum(b) FROM t GROUP BY a HAVING sum(b) > 3", "HAVING"),
        ("SELECT a, sum(b) FROM t GROUP BY a ORDER BY a", "ORDER"),
        ("SELECT a, sum(b) FROM t GROUP BY a LIMIT 3", "LIMIT"),
        ("SELECT a FROM t", "GROUP BY does not name"),
        ("SELECT sum(a) FROM t GROUP BY ROLLUP (b)", "ROLLUP"),
        ("SELECT sum(a + b) FROM t", "a \\+ b"),
        ("SELECT sum(DISTINCT a) FROM t", "DISTINCT"),
        ("SELECT sum(a) FILTER (WHERE b > 1) FROM t", "FILTER"),
        ("SELECT sum(a) OVER () FROM t", "OVER"),
        ("SELECT sum(a) AS total FROM t", "AS total"),
        ("SELECT stddev(a) FROM t", "STDDEV"),
        ("SELECT count(a) FROM t", "COUNT"),
        ("SELECT sum(a) FROM t WHERE a > 1 OR b > 2", "OR"),
        ("SELECT sum(a) FROM t WHERE a + 1 > 2", "a \\+ 1"),
        ("SELECT sum(a) FROM t WHERE a LIKE 'x%'", "LIKE"),
        ("SELECT sum(a) FROM t WHERE a IN (SELECT 1)", "SELECT 1"),
        ("SELECT sum(a) FROM t WHERE NOT a = 3", "a = 3"),
    ],
)
def test_all_other_sql_is_refused_with_the_reason(query, words):
    with pytest.raises(InvalidInput, match=words):
        read_sql(query)


def test_the_command_takes_sql_and_writes_a_page(tmp_path, capsys):
    lines = ["region,cost,visited,patient"]
    lines += [f"{'north' if row % 3 else 'south'},{row % 50},2024-0{1 + row % 4}-10,{row // 2}" for row in range(9000)]
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    query = (
        "SELECT date_trunc('month', visited), region, count(DISTINCT patient), sum(cost) FROM visits "
        "WHERE cost >= 5 GROUP BY region, date_trunc('month', visited)"
    )
    paths = [str(tmp_path / name) for name in ("visits.csv", "out", "page.html")]
    assert main(["release", paths[0], "--sql", query, "--out", paths[1], "--report", paths[2], "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert bill["privacy_unit"] == "person"
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert "records count where cost &gt;= 5" in page
    assert main(["release", paths[0], "--sql", query, "--by", "region", "--out", str(tmp_path / "two")]) != 0


def test_a_page_shows_hostile_names_as_text(tmp_path):
    table = {"region": ["<script>alert(1)</script>"] * 3000 + ["b"] * 3000, "cost": [1.0] * 6000}
    release = GroupRelease("region", means="cost", columns={"cost": Number(low=0, high=2)}).fit(table)
    page = write_report(GroupReport(release=release), tmp_path / "page.html").read_text()
    assert "<script>" not in page
    assert "PROOF_laplace_sums.md" in page
    assert "PROOF_noisy_vector.md" not in page, "this release has Laplace noise"


def test_a_page_has_a_row_for_each_group_and_a_map_of_what_is_too_noisy(tmp_path):
    chance = np.random.default_rng(0)
    table = {
        "region": chance.choice(["north", "small"], 20_000, p=[0.99, 0.01]),
        "day": np.datetime64("2024-01-01") + chance.integers(0, 60, 20_000),
        "cost": chance.gamma(2.0, 100.0, 20_000),
    }
    columns = {"region": Category(["north", "small"], closed=True), "cost": Number(low=0, high=1000)}
    columns["day"] = Date(low="2024-01-01", high="2024-02-29")
    with entropy_tape(1):  # a small group has a total that can be read by chance
        release = GroupRelease(["region", "day:month"], totals="cost", medians="cost", columns=columns).fit(table)
    page = write_report(GroupReport(release=release), tmp_path / "page.html").read_text()
    start = page.index('id="noise"')
    noise, rest = page[start : page.index('id="answers"')], page[page.index('id="answers"') :]
    north, small = (next(row for row in noise.split("<tr>") if f">{name}<" in row) for name in ("north", "small"))
    assert north.count('<td class="shade-5">3</td>') == 2
    assert small.count('<td class="shade-5">3</td>') == 0
    assert rest.count("<tr>") == 1 + len(release.published_.keys)
    assert ">(" in rest, "noisy numbers are in brackets"
    single = GroupRelease("region", columns=columns).fit(table)
    assert 'id="noise"' not in write_report(GroupReport(release=single), tmp_path / "single.html").read_text()


def test_a_program_that_shares_no_code_verifies_the_claim_of_declared_and_of_found_groups(tmp_path):
    measures = {"totals": "cost", "medians": "age", "quantiles": {"age": [0.9]}}
    GroupRelease("region", **measures, columns=COLUMNS).fit(visits()).save(tmp_path / "declared")
    GroupRelease("region", **measures).fit(visits()).save(tmp_path / "undeclared")
    program = [sys.executable, "-I", "-S", verify_claim.__file__]
    codes = [
        subprocess.run([*program, tmp_path / name], check=False, capture_output=True).returncode
        for name in ("declared", "undeclared")
    ]
    assert codes == [0, 0]
