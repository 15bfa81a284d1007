"""Releases whose unit is the person: the first record of each counts, and nothing else of them."""

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from quorate import InvalidInput
from quorate.cli import main
from quorate.core.errors import Infeasible
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.models.concepts import Threshold, Thresholds
from quorate.release import OnlineRelease, QueryRelease, Workload
from quorate.release.domain import make_domain
from quorate.release.people import first_records, loss_for_each_record

TABLE = {"sex": ["f", "m", "f", "f"], "age": [40, 50, 41, 60]}
PEOPLE = ["ann", "bob", "ann", "cy"]


@pytest.mark.parametrize("made", [dict, pd.DataFrame, pl.DataFrame, pa.table, pa.record_batch])
def test_the_first_record_of_each_person_is_kept_in_any_table(made):
    kept = first_records(made(TABLE), PEOPLE)
    assert [list(kept[name]) for name in ("sex", "age")] == [["f", "m", "f"], [40, 50, 60]] or (
        kept.to_pydict() == {"sex": ["f", "m", "f"], "age": [40, 50, 60]}
    )


def test_points_and_lists_keep_their_types():
    assert first_records(np.array([[1.0], [2.0], [3.0]]), [1, 1, 0]).tolist() == [[1.0], [3.0]]
    assert first_records([1, "2", None], [0, 1, 1]) == [1, "2"]


def _neighbours(names, seed, person, places):
    """Return owners and values of two data sets: all records of one person go, and others come wherever they like."""
    chance = np.random.default_rng(seed)
    whole = list(zip(names, chance.normal(size=len(names)).tolist(), strict=True))
    rest = [(name, value) for name, value in whole if name != person]
    for place, value in zip([0, *places], chance.normal(size=len(places) + 1).tolist(), strict=True):
        rest.insert(place, (99, value))
    return [([name for name, _ in one], np.array([value for _, value in one])) for one in (whole, rest)]


def _are_neighbours(keep, worlds):
    """Say whether the counts of two data sets are those of as many people, one of whom was replaced."""
    domain, counted = make_domain(Thresholds(), [-1.0, -0.5, 0.0, 0.5, 1.0]), []
    for owners, values in worlds:
        sealed, people = domain.seal(keep(values, owners))
        counted.append((sealed.put_to(np.copy), people))
    (one, people), (other, others) = counted
    return bool(people == others and np.abs(one - other).sum() <= 2 and np.abs(one - other).max() <= 1)


@given(
    names=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    seed=st.integers(0, 2**32 - 1),
    chosen=st.integers(0, 5),
    places=st.lists(st.integers(0, 30), max_size=8),
)
def test_replacing_a_person_moves_one_count(names, seed, chosen, places):
    assert _are_neighbours(first_records, _neighbours(names, seed, names[chosen % len(names)], places))


def _all_records(values, owners):
    return values


def _by_place_in_the_table(values, owners):
    """Keep the record of each person that a row number says: another person's records move it."""
    rows = [[row for row, name in enumerate(owners) if name == one] for one in dict.fromkeys(owners)]
    return values[[found[found[0] % len(found)] for found in rows]]


@pytest.mark.parametrize("keep", [_all_records, _by_place_in_the_table])
def test_a_rule_that_looks_at_other_people_is_caught(keep):
    worlds = [_neighbours([1, 2, 1, 2, 3, 3, 2, 1], seed, 1, [1, 1]) for seed in range(50)]
    assert not all(_are_neighbours(keep, pair) for pair in worlds)
    assert all(_are_neighbours(first_records, pair) for pair in worlds)


def test_a_release_of_people_says_so_in_its_claim_and_its_files(tmp_path):
    chance = np.random.default_rng(0)
    owners = np.repeat(np.arange(5000), 3)
    values = chance.normal(size=15_000)
    values[1::3] = values[2::3] = 100.0  # later records of each person: not counted
    release = QueryRelease(Thresholds(), epsilon=4.0).fit(values, chance.normal(size=200), groups=owners)
    assert (release.unit_, release.records_) == ("person", 5000)
    assert "all records of one of 5000 people" in release.claim_
    assert release.answer([Threshold(50.0)])["answer"][0].as_py() < 0.2  # two thirds of the records are above
    release.publish(tmp_path / "published")
    assert "People: 5000." in (tmp_path / "published" / "GUARANTEE.md").read_text()
    again = QueryRelease.load(tmp_path / "published")
    assert (again.unit_, again.claim_) == (release.unit_, release.claim_)
    manifest = json.loads((tmp_path / "published" / "manifest.json").read_text())
    (tmp_path / "published" / "manifest.json").write_text(json.dumps({**manifest, "unit": "household"}))
    with pytest.raises(InvalidInput, match="unit in the manifest"):
        QueryRelease.load(tmp_path / "published")


@given(
    names=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    most=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    places=st.lists(st.integers(0, 30), max_size=8),
)
def test_replacing_a_person_replaces_as_many_records_as_count(names, most, seed, places):
    kept = [first_records(values, owners, most) for owners, values in _neighbours(names, seed, names[0], places)]
    one, two = ({value: list(values).count(value) for value in values} for values in kept)
    assert len(kept[0]) == len(kept[1]) == most * len(set(names))
    gone = sum(max(0, count - two.get(value, 0)) for value, count in one.items())
    assert gone <= most


def test_records_of_a_person_count_as_evenly_as_their_number_allows():
    assert sorted(first_records([1, 2, 3, 4, 5], ["ann", "bob", "ann", "ann", "cy"], 2)) == [1, 2, 2, 3, 5, 5]
    assert sorted(first_records([1, 2, 3], ["ann", "ann", "bob"], 4)) == [1, 1, 2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(("epsilon", "delta", "most"), [(1.0, 1e-6, 4), (0.1, 1e-9, 12), (8.0, 1e-5, 3)])
def test_what_each_record_pays_is_enough_for_a_person(epsilon, delta, most):
    """The exact loss of Gaussian noise where `most` records move from one cell to another."""
    each = loss_for_each_record(epsilon, delta, most)
    mechanism = NoisyVector.calibrate(epsilon=each[0], delta=each[1], squared_sensitivities=(2,))
    distance = most * math.sqrt(2) / mechanism.scales[0]
    exact = norm.cdf(distance / 2 - epsilon / distance) - math.exp(epsilon) * norm.cdf(
        -distance / 2 - epsilon / distance
    )
    assert exact <= delta
    assert exact > 1e-3 * delta  # and not much is given away
    assert loss_for_each_record(epsilon, delta, 1) == (epsilon, delta)


def test_no_epsilon_ends_in_an_error_of_arithmetic():
    assert loss_for_each_record(3000.0, 1e-6, 1) == (3000.0, 1e-6)
    assert loss_for_each_record(700.0, 1e-6, 5)[1] > 0
    with pytest.raises(Infeasible, match="several records of a person"):
        loss_for_each_record(3000.0, 1e-6, 5)


def test_several_records_of_a_person_are_averaged_at_the_price_of_one(tmp_path):
    chance = np.random.default_rng(0)
    owners = np.repeat(np.arange(4000), 6)
    visits = {"kind": chance.choice(["a", "b"], 24_000, p=[0.3, 0.7]).tolist()}
    visits["kind"][::6] = ["a"] * 4000  # the first of everybody: five others are as likely b
    release = QueryRelease(Workload.marginals(1), columns={"kind": ["a", "b"]}, records_per_person=6)
    release.fit(visits, groups=owners)
    [share] = release.answer([{"kind": "a"}])["answer"].to_pylist()
    assert abs(share - (1 + 5 * 0.3) / 6) < 0.05
    first = QueryRelease(Workload.marginals(1), columns={"kind": ["a", "b"]}).fit(visits, groups=owners)
    noise = [one.released_.details["deviation"] for one in (release, first)]  # the same every time
    assert noise[0] < 1.2 * noise[1]
    assert release.records_ == first.records_ == 4000
    assert "all records of one of 4000 people; up to 6 records of each person count" in release.claim_
    assert (release.budget_.epsilon, release.budget_.delta) == (1.0, 1e-6)
    assert release.budget_.remaining().renyi == 0.0
    again = QueryRelease.load(release.save(tmp_path / "release"))
    assert (again.claim_, again.records_per_person) == (release.claim_, 6)
    with pytest.raises(InvalidInput, match="groups= says whose they are"):
        release.fit(visits)


def test_an_online_release_counts_people():
    owners, values = np.repeat(np.arange(4000), 2), np.tile([0.0, 9.0], 4000)
    online = OnlineRelease(Thresholds(), alpha=0.2).fit(values, [-1.0, 1.0, 2.0], groups=owners)
    assert (online.unit_, online.records_) == ("person", 4000)
    assert "all records of one person" in online.claim_
    assert online.session_.answerer.counts.put_to(max) == 4000  # all of them at 0.0, and nobody at 9.0


def test_groups_that_do_not_fit_are_refused_before_anything_is_spent():
    release = QueryRelease(Workload.marginals(1), columns={"sex": ["f", "m"]})
    with pytest.raises(InvalidInput, match="groups must"):
        release.fit(TABLE, groups=PEOPLE[:3])
    with pytest.raises(InvalidInput, match="as many values in each column"):
        release.fit({"sex": ["f"], "age": [1, 2]}, groups=["ann"])
    with pytest.raises(InvalidInput, match="a table or a list of records"):
        release.fit(3.0, groups=["ann"])
    assert not hasattr(release, "budget_")


@pytest.mark.filterwarnings("error")
def test_records_that_name_nobody_are_those_of_one_unknown_person():
    release = QueryRelease(Workload.marginals(1), columns={"sex": ["f", "m"]}, engine="plain")
    for nobody in (None, float("nan"), "", pd.NaT, b"\xff", [1]):
        assert first_records([10, 20, 30, 40], ["ann", nobody, "bob", nobody]) == [10, 20, 30]
        assert release.fit(TABLE, groups=["ann", nobody, nobody, "cy"]).records_ == 3


def test_the_command_protects_people(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(1)
    lines = [f"p{row // 2},{'fm'[chance.integers(2)]},{chance.integers(18, 90)}" for row in range(8000)]
    (tmp_path / "visits.csv").write_text("\n".join(["person,sex,age", *lines]))
    (tmp_path / "survey.csv").write_text("\n".join(["person,sex,age", *lines[:300]]))
    command = ["release", "visits.csv", "--public", "survey.csv", "--groups", "person", "--json"]
    assert main([*command, "--workload", "marginals:1", "--out", "published", "--report", "page.html"]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert (bill["privacy_unit"], bill["records"]) == ("person", 4000)
    assert "all records of one person replaced" in (tmp_path / "page.html").read_text()
    assert "person" not in (tmp_path / "published" / "answers.csv").read_text()
    asked = ["--online", "--alpha", "0.2", "--out", "online", "--ask", '{"age": 40}']
    assert main([*command, "--workload", "thresholds:age", *asked]) == 0
    assert json.loads(capsys.readouterr().out)["privacy_unit"] == "person"
    assert main([*command[:4], "--groups", "name", "--workload", "marginals:1", "--out", "other"]) == 1
    assert "--groups names 'name'" in capsys.readouterr().err
    (tmp_path / "visits.csv").write_text("\n".join(["person,sex,age", *lines, " ,f,30", ",m,31"]))
    assert main([*command, "--workload", "marginals:1", "--out", "unnamed"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 4001  # they are one person, the unknown one
    (tmp_path / "visits.csv").write_text("\n".join(["person,sex,age", *lines, " p7 ,f,30"]))
    assert main([*command, "--workload", "marginals:1", "--out", "other"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 4000  # blanks around a name are none of it
