"""What a release is worth, by simulation: figures that are near the true ones, at no cost to anybody."""

import json

import numpy as np
import pyarrow.csv
import pytest

from quorate import Account, check_model
from quorate.auditing import entropy_tape
from quorate.cli import main
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.models.concepts import Thresholds
from quorate.release import GrowingRelease, QueryRelease, Workload, learn_from, simulate_utility
from quorate.release.utility import Utility

COLUMNS = {name: {"categories": ["a", "b", "c"], "closed": True} for name in ("one", "two", "three", "coin")}


def table(rows, seed=0):
    chance = np.random.default_rng(seed)
    one = chance.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])
    two = np.where(chance.random(rows) < 0.9, one, chance.choice(["a", "b", "c"], rows))
    others = chance.choice(["a", "b", "c"], (2, rows))
    return dict(zip(COLUMNS, (one.tolist(), two.tolist(), *others.tolist()), strict=True))


@pytest.fixture(scope="module")
def release():
    return QueryRelease(Workload.marginals(2), columns=COLUMNS, epsilon=0.5).fit(table(4000))


def test_simulated_errors_are_like_true_ones(release):
    told, private = simulate_utility(release, simulations=2), table(4000)
    queries = release.domain_.queries
    truth = queries.answers(release.domain_.encode(private)) / 4000
    off = np.abs(release.released_.answers - truth)
    assert told.simulations == 2
    assert told.records == 4000
    assert 0.25 < told.mean_error / (off.sum() / 2 / len(queries.cliques)) < 4  # 54 noisy cells: never so far by chance
    assert 0.25 < told.largest_error / off.max() < 4
    assert told.synthetic_mean_error < 2 * told.mean_error + 0.002
    assert told.auc is None
    assert "area under the curve" not in told.summary()
    assert set(told.as_dict()) == {
        "simulations", "records", "mean_error", "largest_error", "synthetic_mean_error", "synthetic_largest_error"
    }  # fmt: skip


def test_a_classifier_is_as_good_as_the_target_can_be_told(release):
    told = simulate_utility(release, target="two", simulations=1)
    assert told.auc > 0.88
    assert 0.85 < told.synthetic_auc < told.auc + 0.03
    assert "A classifier of 'two'" in told.summary()
    coin = simulate_utility(release, target="coin", simulations=1)
    assert abs(coin.auc - 0.5) < 0.15  # noise of the release alone tells a little


def test_what_rank_correlations_lose_is_told_where_there_are_two_numbers():
    chance = np.random.default_rng(1)
    first = chance.normal(size=5_000)
    numbers = {"first": first, "second": first + 0.3 * chance.normal(size=5_000), "third": chance.normal(size=5_000)}
    columns = {name: {"cuts": [-1.2, -0.6, -0.2, 0.2, 0.6, 1.2]} for name in numbers}
    with entropy_tape(1):
        losses = [
            simulate_utility(
                QueryRelease(Workload.marginals(order), columns=columns, epsilon=epsilon).fit(numbers), simulations=1
            )
            for order, epsilon in ((2, 3.0), (2, 0.05), (1, 3.0))
        ]
    assert losses[0].correlation_error < 0.1 < losses[1].correlation_error
    assert "Rank correlations of two numbers are off by" in losses[0].summary()
    assert losses[2].correlation_error is None


def test_less_budget_is_worth_less(release):
    poor = QueryRelease(Workload.marginals(2), columns=COLUMNS, epsilon=0.02).fit(table(4000))
    assert simulate_utility(poor, simulations=1).mean_error > 3 * simulate_utility(release, simulations=1).mean_error


def test_nothing_is_charged_and_time_is_bounded(tmp_path):
    account = Account(tmp_path / "account", epsilon=1.0, delta=1e-6)
    release = QueryRelease(Workload.marginals(1), columns=COLUMNS, account=account).fit(table(500))
    assert account.left() == (0.0, 0.0)
    assert simulate_utility(release, simulations=50, seconds=1e-9).simulations == 1
    account.close()


def test_points_of_a_class_are_simulated_too():
    release = QueryRelease(Thresholds(), epsilon=1.0).fit(np.linspace(0, 1, 5000), np.linspace(0, 1, 50))
    told = simulate_utility(release, simulations=1)
    assert isinstance(told, Utility)
    assert 0 < told.mean_error <= told.largest_error < 0.1


def test_what_cannot_be_simulated_is_refused(release):
    with pytest.raises(InvalidInput, match="target must"):
        simulate_utility(release, target="four")
    alone = QueryRelease(Workload.marginals(1), columns={"sex": ["f", "m"]}).fit({"sex": ["f", "m"] * 50})
    with pytest.raises(InvalidInput, match="'sex' is the only column that was released"):
        simulate_utility(alone, target="sex")
    with pytest.raises(InvalidInput, match="'sex' is the only column"):
        alone.set_params(error="weighted", target="sex").fit({"sex": ["f", "m"] * 50})
    growing = GrowingRelease(Workload.marginals(1), columns=COLUMNS, updates=3)
    with pytest.raises(InvalidInput, match="an update of a growing release is not simulated"):
        simulate_utility(growing.update("one", table(300)))


def test_the_command_line_says_it_and_the_page_shows_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(pyarrow.table(table(500)), "private.csv")
    (tmp_path / "columns.json").write_text(json.dumps(COLUMNS))
    command = ["release", "private.csv", "--workload", "marginals:1", "--columns", "columns.json", "--utility"]
    assert main([*command, "--engine", "plain", "--out", "published", "--report", "page.html", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["utility"]
    assert told["records"] == 500
    assert 0 < told["mean_error"] <= 1
    page = (tmp_path / "page.html").read_text()
    assert 'id="utility"' in page
    assert f"off by {told['mean_error']:.4f} in the mean" in page


def test_a_private_test_of_what_records_teach_is_charged_to_the_account(release, tmp_path):
    account = Account(tmp_path / "account", epsilon=1.0, delta=3e-6)
    learned, private = learn_from(release, "two"), table(4000, seed=3)
    private["two"][0] = "never seen"  # no value is refused: a closed column counts it in its first cell
    rows, labels = learned.encode(private)
    with entropy_tape(1):
        told = check_model(learned, rows, labels, epsilon=0.75, account=account)
    assert told.measure("error").low < 0.1 < told.measure("error").high + 0.05
    assert "drawn on its account, (1, 3e-06)" in told.claim
    assert account.left()[0] == 0.25
    with pytest.raises(BudgetSpent, match="nothing was drawn"):
        check_model(learned, rows, labels, epsilon=0.75, account=account)
    account.close()


def test_a_classifier_knows_classes_that_records_have_not():
    same = {"one": ["a"] * 300, "two": ["a", "b", "c"] * 100}
    release = QueryRelease(Workload.marginals(2), columns={name: COLUMNS[name] for name in same}, epsilon=100.0).fit(
        same
    )
    learned = learn_from(release, "one")
    assert learned.classes_.tolist() == ["a", "b", "c"]
    rows, _ = learned.encode({"one": ["b", "a"], "two": ["a", "c"]})
    assert learned.predict(rows).tolist() == ["a", "a"]
    np.testing.assert_allclose(learned.predict_proba(rows).sum(axis=1), 1.0)


def test_the_command_line_checks_a_release_for_a_part_of_the_account(release, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    release.save("published")
    pyarrow.csv.write_csv(pyarrow.table(table(2000, seed=4)), "private.csv")
    assert main(["ledger", "account", "account", "--epsilon", "1", "--json"]) == 0
    capsys.readouterr()
    command = ["check", "published", "private.csv", "--label", "two", "--account", "account", "--epsilon", "0.5"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "drawn on its account" in told["claim"]
    assert main([*command[:-1], "0.75"]) == 1
    assert "the account has (0.5, 0) left" in capsys.readouterr().err
