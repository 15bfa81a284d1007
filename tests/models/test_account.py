"""One account for several models: nothing is drawn that it does not pay for, and claims say so."""

import json

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from quorate import (
    Account,
    ConformalClassifier,
    GrowingRelease,
    PrivateClassifier,
    PrivateLogisticRegression,
    QueryRelease,
    StudentClassifier,
    load,
    save,
)
from quorate.cli import main
from quorate.core.errors import BudgetSpent, InvalidInput, LedgerRefused
from quorate.release import Workload
from quorate.tables.features import AdditiveColumns

TABLE = {"sex": ["f", "m"] * 200}
PLAIN = {"subject": Workload.marginals(1), "columns": {"sex": ["f", "m"]}, "engine": "plain"}


@pytest.fixture
def account(tmp_path):
    made = Account(tmp_path / "account", epsilon=1.0, delta=3e-6)
    yield made
    made.close()


def test_releases_draw_on_one_total_until_it_is_spent(account, tmp_path):
    first = QueryRelease(**PLAIN, epsilon=0.6, account=account).fit(TABLE)
    assert "with all else that is drawn on its account, (1, 3e-06)" in first.claim_
    with pytest.raises(BudgetSpent, match=r"the account has \(0.4, 2e-06\) left, and this asks for \(0.6, 1e-06\)"):
        QueryRelease(**PLAIN, epsilon=0.6, account=account).fit(TABLE)
    with pytest.raises(BudgetSpent):
        QueryRelease(**PLAIN, epsilon=0.1, delta=2.5e-6, account=account).fit(TABLE)
    second = QueryRelease(**PLAIN, epsilon=0.4, account=tmp_path / "account").fit(TABLE)
    assert account.left()[0] < 1e-9
    again = QueryRelease.load(second.publish(tmp_path / "published"))
    assert again.claim_ == second.claim_
    assert again.total_ == account.total


def test_a_claim_says_for_whom_the_total_holds(account, tmp_path):
    """On an account of records others protect a record alone: the total of a release of people is not one of people."""
    release = QueryRelease(**PLAIN, epsilon=0.5, account=account).fit(TABLE, groups=list(range(200)) * 2)
    assert "all records of one of 200 people" in release.claim_
    assert "drawn on its account, (1, 3e-06) for each record" in release.claim_
    assert QueryRelease.load(release.publish(tmp_path / "published")).claim_ == release.claim_
    people = Account(tmp_path / "people", epsilon=1.0, delta=1e-6, unit="person")
    of_people = QueryRelease(**PLAIN, epsilon=0.5, account=people).fit(TABLE, groups=list(range(200)) * 2)
    assert "drawn on its account, (1, 1e-06) for each person" in of_people.claim_
    people.close()


@pytest.mark.parametrize("parts", [3, 7, 10])
def test_equal_parts_add_up_to_the_whole(tmp_path, parts):
    account = Account(tmp_path / "account", epsilon=0.7, delta=1e-5)
    for _ in range(parts):
        epsilon, delta = account.whole(0.7 / parts, 1e-5 / parts * (1 - 1e-12))
        assert epsilon <= 0.7 / parts
        account.charge(epsilon=epsilon, delta=delta, unit="record")
    with pytest.raises(BudgetSpent):
        account.charge(epsilon=1e-6, delta=0.0, unit="record")
    account.close()


def test_all_updates_are_charged_once(account, tmp_path):
    growing = GrowingRelease(**PLAIN, updates=3, epsilon=0.6, account=account)
    assert account.left()[0] == 1.0
    growing.update("1", TABLE)
    left = account.left()
    made = growing.update("2", TABLE)
    assert account.left() == left
    assert str(account.total) in made.claim_ == growing.claim_
    folder = save(growing, tmp_path / "growing")
    growing.close()
    again = load(folder)
    assert again.claim_ == growing.claim_
    assert again.update("3", TABLE).claim_ == made.claim_
    assert account.left() == left
    again.close()
    with pytest.raises(BudgetSpent):
        GrowingRelease(**PLAIN, updates=3, epsilon=0.6, account=account).update("1", TABLE)


def test_classifiers_and_releases_share_an_account(account, tmp_path):
    X = np.random.default_rng(0).normal(size=(2000, 1))
    y = (X[:, 0] > 0).astype(int)
    classifier = account.fit(
        PrivateClassifier(epsilon=0.5, teachers=200, queries=10, classes=[0, 1], aggregator="noisy_max"), X, y
    )
    assert str(account.total) in classifier.claim_
    folder = save(classifier, tmp_path / "classifier")
    classifier.session_.close()
    again = load(folder)
    assert again.claim_ == classifier.claim_
    again.session_.close()
    with pytest.raises(BudgetSpent):
        account.fit(QueryRelease(**PLAIN, epsilon=0.6), TABLE)
    release = account.fit(QueryRelease(**PLAIN, epsilon=0.3), TABLE)
    assert str(account.total) in release.claim_
    linear = account.fit(PrivateLogisticRegression(epsilon=0.2, classes=[0, 1]), X, y, public=X[:100])
    assert str(account.total) in linear.claim_
    classifier.fit(X, y)  # on its own budget
    assert str(account.total) not in classifier.claim_
    with pytest.raises(InvalidInput, match="cannot be charged to an account"):
        account.fit(object(), X)


def test_a_model_without_delta_is_charged_its_epsilon(account):
    X = np.random.default_rng(0).normal(size=(600, 1))
    y, model = (X[:, 0] > 0).astype(int), DecisionTreeClassifier().fit([[-1.0], [1.0]], [0, 1])
    sets = account.fit(ConformalClassifier(model, epsilon=0.25), X, y)
    assert str(account.total) in sets.claim_
    assert account.left() == (0.75, 3e-6)


def test_an_account_takes_no_model_that_protects_less_than_a_record(account):
    """A student of mode="label-private" shows features of half of the records: nothing of it is charged or fitted."""
    student = StudentClassifier(epsilon=0.5, mode="label-private", classes=[0, 1])
    with pytest.raises(InvalidInput, match="features of half"):
        account.fit(student, np.zeros((40, 1)), np.zeros(40, dtype=int))
    assert account.left()[0] == 1.0
    assert not hasattr(student, "claim_")


def test_what_is_refused_for_other_reasons_is_not_charged(account):
    with pytest.raises(InvalidInput):
        QueryRelease(**PLAIN, epsilon=0.5, account=account).fit({"town": ["a"]})
    with pytest.raises(InvalidInput):
        QueryRelease(**PLAIN, epsilon=0.5, account=account, records_per_person=2).fit(TABLE)
    assert account.left()[0] == 1.0


@pytest.mark.parametrize("kind", ["release", "linear"])
def test_an_interrupted_fit_says_that_the_account_stays_charged(kind, account, monkeypatch):
    """It said that nothing was spent, which is true of a model with a budget of its own."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    left = account.left()[0]
    model, records = QueryRelease(**PLAIN, epsilon=0.5), (TABLE,)
    if kind == "linear":
        model = PrivateLogisticRegression(epsilon=0.5, classes=[0, 1], columns=AdditiveColumns(declared=[(0, 1)]))
        records = ([[0.0], [1.0]] * 50, [0, 1] * 50)
    monkeypatch.setattr("quorate.models.linear.model.fit", interrupted)
    monkeypatch.setattr("quorate.release._release.release_counts", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        account.fit(model, *records)
    [told] = stopped.value.__notes__
    assert "stays charged" in told
    assert account.left()[0] == left - 0.5


def test_an_account_of_people_takes_no_release_of_records(tmp_path):
    account = Account(tmp_path / "account", epsilon=2.0, unit="person")
    with pytest.raises(InvalidInput, match="protects persons"):
        QueryRelease(**PLAIN, account=account).fit(TABLE)
    QueryRelease(**PLAIN, account=account).fit(TABLE, groups=np.arange(400) // 2)
    assert account.left()[0] == pytest.approx(1.0)
    account.close()


def test_an_account_stays_as_it_was_opened(account, tmp_path):
    for settings in ({"epsilon": 2.0}, {"epsilon": 1.0, "delta": 1e-5}, {"unit": "person"}):
        with pytest.raises(InvalidInput, match="these values or with none"):
            Account(tmp_path / "account", **settings)
    with pytest.raises(InvalidInput, match="no account yet"):
        Account(tmp_path / "other")
    with pytest.raises(InvalidInput, match="unit"):
        Account(tmp_path / "other", epsilon=1.0, unit="house")
    release = QueryRelease(**PLAIN, epsilon=0.5, account=account).fit(TABLE)
    release.publish(tmp_path / "published")
    with pytest.raises(InvalidInput, match="must be an account"):
        Account(tmp_path / "published")
    manifest = tmp_path / "account" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"epsilon": 1.0', '"epsilon": 9.0'))
    with pytest.raises(LedgerRefused):
        Account(tmp_path / "account")


def test_the_command_line_draws_on_an_account(tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.csv").write_text("sex\n" + "f\nm\n" * 200)
    (tmp_path / "columns.json").write_text(json.dumps({"sex": ["f", "m"]}))
    run_json("ledger account people --epsilon 1.5 --delta 2e-6")
    command = "release private.csv --columns columns.json --workload marginals:1 --engine plain --account people"
    claim = run_json(f"{command} --out one --report page.html")["claim"]
    assert "drawn on its account, (1.5, 2e-06)" in claim
    assert main([*command.split(), "--out", "two"]) == 1
    assert "the account has (0.5, 1e-06) left" in capsys.readouterr().err
    assert run_json("ledger account people")["epsilon_left"] == 0.5
    assert main(["ledger", "verify", "people"]) == 0


def test_a_model_that_the_command_line_fits_draws_on_an_account(tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.csv").write_text("x,y\n" + "0.1,no\n0.9,yes\n" * 300)
    (tmp_path / "schema.json").write_text(json.dumps({"columns": {"x": {"kind": "number", "low": 0, "high": 1}}}))
    run_json("ledger account people --epsilon 1.5 --delta 2e-6")
    table = "private.csv --label y --classes no,yes --schema schema.json --account people"
    assert main(f"fit subsample {table} --memory 1GB --out streamed".split()) == 1
    assert "--account takes a table that is read whole" in capsys.readouterr().err
    claim = run_json(f"fit subsample {table} --queries 10 --out one")["claim"]
    assert "drawn on its account, (1.5, 2e-06)" in claim
    assert load("one").claim_ == claim
    assert "drawn on its account" in run_json(f"fit linear {table} --epsilon 0.4 --out two")["claim"]
    assert main(f"fit linear {table} --epsilon 0.4 --out three".split()) == 1
    assert "the account has (0.1, 0) left" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
