"""What a batch of queries would cost, before it is asked; and that what is said of it afterwards is true."""

import csv
import json
import threading

import numpy as np
import pytest

import quorate as qr
from quorate.cli import main
from quorate.models.concepts import Thresholds

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(4000, 1))
Y = np.where(X[:, 0] > 0, "yes", "no")
FAR = np.linspace(-3, 3, 12)[:, np.newaxis]


def fitted(**settings):
    asked = {"epsilon": 4.0, "delta": 1e-6, "teachers": 200, "queries": 10, "aggregator": "noisy_max"}
    return qr.PrivateClassifier(classes=["no", "yes"], **asked | settings).fit(X, Y)


def test_the_cost_of_queries_is_what_they_cost():
    classifier = fitted()
    quote = classifier.cost(np.concatenate([FAR[:4], FAR[:2]]))
    assert (quote.queries, quote.repeated, quote.payable, quote.refused) == (6, 2, 4, 0)
    assert quote.left == 1.0
    assert classifier.spent_epsilon() == 0.0, "nothing was asked"
    before = classifier.budget_.spent().renyi
    classifier.predict(FAR[:4])
    paid = (classifier.budget_.spent().renyi - before) / classifier.budget_.capacity().renyi
    assert quote.takes == pytest.approx(paid, rel=1e-9)
    again = classifier.cost(FAR[:5])
    assert (again.repeated, again.payable) == (4, 1)
    assert again.left == pytest.approx(1 - paid, rel=1e-9)
    assert classifier.cost(FAR[:4], caller="another").repeated == 0


def test_a_cost_counts_what_is_spent_and_says_what_may_be_refused(tmp_path):
    classifier = fitted()
    classifier.predict(FAR[:8])
    payable = classifier.cost(FAR).payable
    quote = classifier.cost(FAR)
    assert quote.refused == 4 - payable > 0
    assert f"At least {payable} new ones can be paid for" in str(quote)
    assert classifier.predict(FAR).refused == quote.refused
    qr.save(classifier, tmp_path / "model")
    loaded = qr.load(tmp_path / "model")
    assert loaded.cost(FAR).repeated == 8 + payable
    loaded.session_.close()


def test_a_cost_is_not_told_while_an_answer_is_drawn(monkeypatch):
    """What is set aside and not yet kept would be counted twice: as spent, and as still to be paid for."""
    classifier = fitted()
    drawing, go_on, told = threading.Event(), threading.Event(), threading.Event()
    draw = classifier.session_.answerer.draw

    def slow(rows):
        drawing.set()
        assert go_on.wait(60)
        return draw(rows)

    monkeypatch.setattr(classifier.session_.answerer, "draw", slow)
    asking = threading.Thread(target=classifier.predict, args=(FAR[:4],))
    costs = []
    pricing = threading.Thread(target=lambda: (costs.append(classifier.cost(FAR[:4])), told.set()))
    asking.start()
    assert drawing.wait(60)
    pricing.start()
    early = told.wait(0.3)
    go_on.set()
    asking.join()
    pricing.join()
    assert not early
    assert costs[0].repeated == 4, "what was being answered is free by then"


def test_a_model_that_has_moved_has_no_cost_but_where_it_is(tmp_path):
    classifier = fitted()
    left = classifier.session_
    qr.save(classifier, tmp_path / "model")
    with pytest.raises(qr.BudgetSpent):
        left.quote(FAR)
    assert classifier.cost(FAR[:2]).payable == 2


@pytest.mark.parametrize("aggregator", ["quorum", "stability", "between_thresholds"])
def test_the_cost_of_a_run_is_that_of_no_quorums_alone(aggregator):
    classifier = fitted(aggregator=aggregator, no_quorums=3, epsilon=20.0)
    quote = classifier.cost(FAR)
    assert (quote.payable, quote.refused) == (3, 9)
    assert 0 < quote.takes <= quote.left + 1e-9
    assert classifier.cost(FAR[:2]).takes < quote.takes or aggregator == "stability"


def test_other_classifiers_say_what_queries_cost_too():
    codes = (Y == "yes").astype(int)
    pure = qr.PureClassifier(Thresholds(), epsilon=3.0, queries=5, classes=[0, 1]).fit(X, codes)
    assert (pure.cost(FAR).payable, pure.cost(FAR).refused) == (5, 7)
    stable = qr.StableClassifier(Thresholds(), gamma=0.1, classes=[0, 1]).fit(X, codes)
    assert (stable.cost(FAR).payable, stable.cost(FAR).takes) == (12, 0.0)
    universal = qr.UniversalClassifier(Thresholds(), epsilon=4.0, ballots=5, teachers=100, classes=[0, 1])
    universal.fit(X, codes)
    first = universal.cost(FAR)
    assert first.payable == 12
    universal.predict(FAR)
    assert universal.switched_
    assert universal.cost(FAR + 0.01).takes == 0.0 < first.takes
    student = qr.SemiPrivateClassifier(Thresholds(), epsilon=4.0, classes=[0, 1]).fit(X, codes, public=FAR)
    first = qr.StudentFirstClassifier(student, epsilon=8.0, delta=1e-5, teachers=200, dissents=4, no_quorums=2)
    quote = first.fit(X, codes).cost(FAR)
    assert (quote.payable, quote.refused) == (4, 8)


@pytest.fixture
def model(tmp_path):
    qr.save(fitted(), tmp_path / "model")
    return tmp_path / "model"


def queries(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["patient", "x"], *([f"p{place}", row] for place, row in enumerate(rows))])
    return path


def test_a_dry_run_asks_nothing_and_says_what_it_would_cost(model, tmp_path, capsys):
    table = queries(tmp_path / "new.csv", range(12))
    asked = ["predict", str(model), str(table), "--row-id", "patient"]
    code = main([*asked, "--dry-run", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (1 if said["may_be_refused"] else 0)
    assert said["queries"] == 12 == said["payable"] + said["may_be_refused"]
    assert said["budget_left_percent"] == 100.0
    main([*asked, "--json"])
    assert json.loads(capsys.readouterr().out)["refused"] == said["may_be_refused"]
    assert main([*asked, "--dry-run"]) == code
    shown = capsys.readouterr()
    assert "A dry run: nothing was asked" in shown.out
    assert f"{said['payable']} free repetitions" in shown.err
    assert main([*asked, "--dry-run", "--out", "x.csv"]) == 1
    assert "leave --out and --report out" in capsys.readouterr().err


def test_a_warning_counts_what_is_spent_already(model, tmp_path, capsys):
    """It compared the queries of this command alone with those planned for."""
    for rows, warned in ((range(6), False), (range(6, 12), True)):
        main(["predict", str(model), str(queries(tmp_path / "new.csv", rows)), "--row-id", "patient"])
        assert ("may be refused" in capsys.readouterr().err) is warned


def test_answers_have_a_row_key_and_few_digits(model, tmp_path, capsys):
    table = queries(tmp_path / "new.csv", [-3, 3])
    main(["predict", str(model), str(table), "--row-id", "patient"])
    assert capsys.readouterr().out.splitlines() == ["patient,answer,outcome", "p0,no,answered", "p1,yes,answered"]
    assert main(["predict", str(model), str(table), "--row-id", "ward"]) == 1
    assert "--row-id names 'ward', and the queries have no such column" in capsys.readouterr().err
    qr.save(fitted(scores=True, aggregator="auto"), tmp_path / "scores")
    (tmp_path / "plain.csv").write_text("x\n-3\n3\n")
    main(["predict", str(tmp_path / "scores"), str(tmp_path / "plain.csv")])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header == "row,answer,outcome,score_no,score_yes"
    assert (first[:4], second[:5]) == ("1,no", "2,yes")
    assert all(len(cell) <= 9 for cell in first.split(",")[3:])


def test_distinct_rows_are_not_counted_as_repeated(model):
    """A batch that is drawn in several blocks counted all but the last of them as answered again."""
    loaded = qr.load(model)
    loaded.session_.block = 3
    loaded.predict(np.concatenate([FAR[:8], FAR[:1]]))
    counted = loaded.session_.ledger.activity()
    assert sum(one.answered + one.no_quorums for one in counted) == 8
    assert sum(one.repeated for one in counted) == 1
    loaded.predict(FAR[:8])
    assert sum(one.repeated for one in loaded.session_.ledger.activity()) == 9
    loaded.session_.close()
