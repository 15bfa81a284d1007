"""Hierarchies: answers that add up, the best that noise allows, and what they look like to whoever declares them."""

import itertools
import json
import random

import numpy as np
import pytest

from quorate import InvalidInput, QueryRelease, Workload
from quorate.auditing._plays import SeededNoise
from quorate.cli import main
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Budget
from quorate.release import Columns, GrowingRelease
from quorate.release.engines import ENGINES
from quorate.release.engines._plain import add_up
from quorate.release.engines.base import check_private
from quorate.release.queries import Levels
from quorate.tables import Category
from quorate.tables.document import kind_from_document, kind_to_document
from support.exact_losses import exact_delta

COUNTIES = [f"c{number}" for number in range(12)]
PARENTS = {name: f"s{place % 4}" for place, name in enumerate(COUNTIES)} | {f"s{n}": "ne"[n % 2] for n in range(4)}
COLUMNS = Columns({"county": Category(COUNTIES, parents=PARENTS), "sex": Category(["f", "m"])})
TREE = Levels([[0] * 6, [0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2], list(range(6))])


def people(rows, seed=0):
    chance = np.random.default_rng(seed)
    return {"county": chance.choice(COUNTIES, rows), "sex": chance.choice(["f", "m"], rows)}


def test_estimates_are_least_squares_and_say_their_variances():
    """Against the solution of the normal equations, with the total as a measurement without noise."""
    chance = np.random.default_rng(0)
    noise = [np.zeros(1), *(chance.uniform(1, 3, size) for size in TREE.sizes[1:])]
    noisy = [np.ones(1), *(chance.normal(size=size) for size in TREE.sizes[1:])]
    found, variances = add_up(TREE, noisy, noise, 1.0)
    design = np.stack([TREE.answers(cell) for cell in np.eye(6)], axis=1)
    precision = np.concatenate([[1e9], *(1 / part for part in noise[1:])])
    covariance = np.linalg.inv(design.T @ (precision[:, None] * design))
    best = design @ covariance @ design.T @ (precision * np.concatenate(noisy))
    np.testing.assert_allclose(found, best, atol=1e-6)
    np.testing.assert_allclose(variances, np.diag(design @ covariance @ design.T), atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("by", [(), "sex"])
def test_answers_add_up_and_are_not_negative(epsilon, by):
    release = QueryRelease(Workload.hierarchy("county", by=by), columns=COLUMNS, epsilon=epsilon, engine="levels")
    made = release.fit(people(500)).released_.answers
    queries = release.domain_.queries
    assert made.min() >= 0.0
    for level in range(1, len(queries.sizes)):
        lower = made[queries.offsets[level] : queries.offsets[level + 1]]
        upper = made[queries.offsets[level - 1] : queries.offsets[level]]
        np.testing.assert_allclose(np.bincount(queries.parents(level), lower), upper, atol=1e-9)
    np.testing.assert_allclose(queries.answers(release.released_.weights), made, atol=1e-9)


def test_a_node_of_any_level_is_asked_by_its_name():
    release = QueryRelease(Workload.hierarchy("county", by="sex"), columns=COLUMNS, epsilon=50.0).fit(people(4000))
    table, truth = people(4000), np.array([PARENTS[name] for name in people(4000)["county"]])
    women = table["sex"] == "f"
    asked = [{"county": "s1", "sex": "f"}, {"county": "s1"}, {"sex": "f"}, {"county": "c3", "sex": "f"}]
    rows = release.answer(asked).to_pylist()
    true = [(truth == "s1") & women, truth == "s1", women, (table["county"] == "c3") & women]
    for row, one in zip(rows, true, strict=True):
        assert row["answer"] == pytest.approx(one.mean(), abs=0.02)
    assert [row["query"] for row in rows] == [
        "county = s1 and sex = f",
        "county = s1",
        "sex = f",
        "county = c3 and sex = f",
    ]
    states = release.answer([{"county": f"s{number}"} for number in range(4)])["answer"].to_pylist()
    regions = release.answer([{"county": "n"}, {"county": "e"}])["answer"].to_pylist()
    assert regions == pytest.approx([states[0] + states[2], states[1] + states[3]], abs=1e-9)
    for wrong in ({"county": "c99"}, {"town": "n"}, {}):
        with pytest.raises(InvalidInput):
            release.answer([wrong])
    assert set(release.synthetic(200)["county"].to_pylist()) <= {*COUNTIES, None}
    assert len(release.answer()) == release.domain_.queries.count


@pytest.mark.parametrize(
    ("leaves", "parents"),
    [(["a", "other"], {"a": "x", "other": "x"}), (["a", "b"], {"b": "other", "a": "x"})],
)
def test_a_node_may_be_called_as_the_undeclared_are(leaves, parents):
    columns = Columns({"kind": Category(leaves, parents=parents)})
    release = QueryRelease(Workload.hierarchy("kind"), columns=columns, epsilon=100.0)
    release.fit({"kind": [leaves[0]] * 1000 + [leaves[1]] * 2000 + ["z"] * 1000})
    [share] = release.answer([{"kind": "other"}])["answer"].to_pylist()
    assert share == pytest.approx(0.5, abs=0.01)  # of the node, and without the undeclared
    [share] = release.answer([{"kind": "not declared"}])["answer"].to_pylist()
    assert share == pytest.approx(0.25, abs=0.01)
    names = release.answer()["query"].to_pylist()
    assert "kind = not declared" in names
    assert release.answer(["kind = other"])["answer"].to_pylist()[0] == pytest.approx(0.5, abs=0.01)
    closed = Columns({"kind": Category(["a", "b"], parents={"a": "x", "b": "x"}, closed=True)})
    with pytest.raises(InvalidInput, match="no node"):
        Workload.hierarchy("kind").bind(columns=closed).find({"kind": "other"})


def test_no_replaced_record_moves_more_than_is_paid_for():
    measurement = ENGINES["levels"].measurement(TREE, None, 0.0)
    assert measurement.squares == (0, 2, 2, 2)
    for one, other in itertools.permutations(range(6), 2):
        moved = TREE.answers(np.eye(6)[one]) - TREE.answers(np.eye(6)[other])
        parts = np.split(moved, TREE.offsets[1:-1])
        assert all((part**2).sum() <= square for part, square in zip(parts, measurement.squares, strict=True))
    assert TREE.sensitivity == 6


def test_the_exact_loss_of_all_levels_keeps_the_claim():
    """By the law of the noise itself, of a record that changes every level."""
    measurement, budget = ENGINES["levels"].measurement(TREE, None, 0.0), Budget(epsilon=1.0, delta=1e-3, slack=0.0)
    mechanism = NoisyVector.for_budget(budget, squared_sensitivities=measurement.squares, shares=measurement.shares)
    moved = [(scale, shift) for scale in mechanism.scales[1:] for shift in (1, -1)]
    assert 0.5e-3 < exact_delta(moved, 1.0) <= 1e-3


def test_nor_in_any_of_many_trees_whatever_their_nodes_are_called():
    """From records to what is measured, over all replacements: some levels have one node, and some names clash."""
    chance, seen = random.Random(0), set()
    for _ in range(60):
        leaves, parents = [*"abcd"[: chance.randint(1, 3)], *(["other"] if chance.random() < 0.3 else [])], {}
        names = leaves
        for level in range(chance.randint(1, 2)):
            above = [chance.choice([*["other", "top"][level % 2 :], f"{level}x", f"{level}y"]) for _ in names]
            parents, names = parents | dict(zip(names, above, strict=True)), list(dict.fromkeys(above))
        try:
            kind = Category(leaves, parents=parents, closed=chance.random() < 0.3)
        except InvalidInput:  # a name on two levels
            continue
        columns = Columns({"kind": kind, "sex": Category(["f", "m"])})
        bound = Workload.hierarchy("kind", by=chance.choice([(), "sex"])).bind(columns=columns)
        measurement = ENGINES["levels"].measurement(bound.queries, None, 0.0)

        def measured(record, bound=bound, measurement=measurement):
            rows = {"kind": [record[0], "a"], "sex": [record[1], "m"]}
            return measurement.vectors(check_private(bound.queries, bound.count(rows)))

        made = [measured(record) for record in itertools.product([*leaves, None], ["f", "m", None])]
        for one, other in itertools.combinations(made, 2):
            moved = [int(((first - second) ** 2).sum()) for first, second in zip(one, other, strict=True)]
            assert all(move <= square for move, square in zip(moved, measurement.squares, strict=True))
            seen |= set(zip(moved, measurement.squares, strict=True))
    assert seen == {(0, 0), (0, 2), (2, 2)}


def test_siblings_that_noise_cannot_tell_apart_are_one_and_err_less():
    """240 cells of equal size at little budget: a third of the error of each by itself is left, in 8 of 8 runs."""
    tree, counts = Levels([np.zeros(240, int), np.arange(240) // 20, np.arange(240)]), np.full(240, 50)
    for seed in range(8):
        budget = Budget(epsilon=0.1, delta=1e-6, slack=0.0)
        released = ENGINES["levels"]._run(tree, counts, None, budget, SeededNoise(seed))
        cells = slice(int(tree.offsets[-2]), None)
        error = np.abs(released.answers[cells] - 1 / 240).mean()
        assert error < 0.34 * np.abs(released.unbiased[cells] - 1 / 240).mean()
        assert released.details["merged"] > 0
        assert "cannot tell apart" in released.notes[0]
    large = ENGINES["levels"]._run(
        tree, 50 * counts * (1 + np.arange(240)), None, Budget(epsilon=1.0, delta=1e-6, slack=0.0), SeededNoise(0)
    )
    assert large.details["merged"] == 0


def test_hierarchies_are_saved_and_grow(tmp_path):
    release = QueryRelease(Workload.hierarchy("county"), columns=COLUMNS).fit(people(3000))
    again = QueryRelease.load(release.publish(tmp_path / "published"))
    assert again.answer() == release.answer()
    assert again.answer([{"county": "n"}], band=0.95) == release.answer([{"county": "n"}], band=0.95)
    growing = GrowingRelease(Workload.hierarchy("county"), columns=COLUMNS, updates=3, epsilon=5.0)
    for number in range(2):
        made = growing.update(str(number), people(3000, seed=number))
    assert made.engine_ == "levels"
    assert made.answer([{"county": "n"}])["answer"].to_pylist() == pytest.approx([0.5], abs=0.05)


@pytest.mark.parametrize(
    ("parents", "match"),
    [
        ({"a": "x"}, "'b' belongs to"),
        ({"a": "x", "b": "a"}, "two levels"),
        ({"a": "x", "b": "y", "x": "w"}, "'y' belongs to"),
        ({"a": "x", "b": "x", "z": "x"}, "no category"),
        ({}, "must be an object"),
        ([1], "must be an object"),
    ],
)
def test_a_hierarchy_that_is_none_is_refused(parents, match):
    with pytest.raises(InvalidInput, match=match):
        Category(["a", "b"], parents=parents)


def test_hierarchies_are_declared_in_json_and_on_the_command_line(tmp_path, capsys):
    declared = {"county": {"categories": COUNTIES, "parents": PARENTS}}
    assert Columns.from_dict(declared).to_dict() == declared
    kind = kind_from_document("county", declared["county"])
    assert kind_to_document(kind)["parents"] == kind.parents == PARENTS
    (tmp_path / "columns.json").write_text(json.dumps(declared))
    (tmp_path / "private.csv").write_text("county\n" + "\n".join(people(2000)["county"]))
    command = ["release", str(tmp_path / "private.csv"), "--columns", str(tmp_path / "columns.json"), "--json"]
    code = main(
        [*command, "--workload", "hierarchy:county", "--out", str(tmp_path / "out"), "--ask", '{"county": "n"}']
    )
    assert code == 0
    bill = json.loads(capsys.readouterr().out)
    assert bill["engine"] == "levels"
    assert bill["answers"][0]["query"] == "county = n"
    with pytest.raises(InvalidInput, match="must be declared"):
        QueryRelease(Workload.hierarchy("county")).fit(people(10), people(10))
    with pytest.raises(InvalidInput, match="with parents"):
        QueryRelease(Workload.hierarchy("sex"), columns=COLUMNS).fit(people(10))
