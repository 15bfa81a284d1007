"""What a notebook shows: cards that are sound HTML, escape what they are given, and say what is left."""

from html.parser import HTMLParser

import numpy as np
import pytest
from test_plans import ENOUGH, SHORT

import quorate as qr
from quorate.core.progress import html_card
from quorate.models.concepts import Thresholds
from quorate.models.predictors import Predictions
from quorate.models.selection import plan_search

X = np.random.default_rng(0).normal(size=(3000, 1))
Y = (X[:, 0] > 0).astype(int)


class Text(HTMLParser):
    """The text of a document whose tags are closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.parts = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.parts.append(data)


def text(html):
    return " ".join(Text(html).parts)


def test_a_card_escapes_what_it_is_given_and_keeps_its_bar_within_bounds():
    html = html_card("<b>", {"<i>": "<script>", "many": 12345}, bar=("left & right", 1.5), lines=["a < b"])
    assert "<script>" not in html
    assert {"<b>", "<script>", "12,345", "a < b", "left & right: 100.0%"} <= set(Text(html).parts)
    assert 'aria-valuenow="100.0"' in html


def test_a_budget_shows_what_is_left():
    budget = qr.Budget(epsilon=1.0, delta=1e-6)
    assert "left: 100.0%" in text(budget._repr_html_())
    budget.spend(qr.Cost(budget.capacity().renyi / 4))
    assert "left: 75.0%" in text(budget._repr_html_())


def test_plans_and_answers_show_what_they_say():
    plan = qr.plan(teachers=1000)
    assert plan.summary() in text(plan._repr_html_())
    assert "Assumed: disagreement was not given" in text(plan._repr_html_())
    assert "Plan, not feasible" in text(qr.plan(teachers=30, epsilon=0.1)._repr_html_())
    told = Predictions.of(np.array([1, -1] * 6), classes=np.array(["<no>", "yes"]), refused=np.zeros(12, bool))
    shown = text(told._repr_html_())
    assert "answered: 50.0%" in shown
    assert "yes, no answer, yes" in shown
    assert shown.endswith(", ...")


@pytest.mark.parametrize("family", ["concept", "student", "release", "search"])
def test_other_plans_have_cards_too(family):
    makers = [lambda: plan_search(candidates=20)] if family == "search" else [SHORT[family], ENOUGH[family]]
    for plan in (make() for make in makers):
        shown = text(plan._repr_html_())
        assert plan.summary()[1:] in shown
        assert f"{plan.epsilon:g}" in shown
        assert ("not feasible" in shown) is not getattr(plan, "feasible", True)


def test_the_card_of_an_everlasting_plan_shows_how_many_find_a_quorum():
    plan = qr.plan_everlasting(Thresholds(), epsilon=8.0, delta=1e-4, records=20_000, chunks=(3, 5), phases=0)
    assert f"queries expected to find a quorum: {1 - plan.no_quorum_rate:.1%}" in text(plan._repr_html_())


@pytest.mark.parametrize(
    "model",
    [
        qr.PrivateClassifier(epsilon=2.0, teachers=50, queries=50, classes=[0, 1]),
        qr.StableClassifier(Thresholds(), gamma=0.5, classes=[0, 1]),
        qr.PrivateLogisticRegression(epsilon=2.0, classes=[0, 1]),
        qr.SemiPrivateClassifier(Thresholds(), epsilon=2.0, classes=[0, 1]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fitted_model_shows_its_guarantee(model):
    assert "The guarantee" not in model._repr_mimebundle_()["text/html"]
    public = {} if isinstance(model, qr.PrivateClassifier | qr.StableClassifier) else {"public": X[:200]}
    shown = model.fit(X, Y, **public)._repr_mimebundle_()
    assert model.claim_[1:] in shown["text/html"].replace("&#x27;", "'")
    assert ("budget left" in shown["text/html"]) is isinstance(model, qr.PrivateClassifier)
    assert shown["text/plain"] == repr(model)


def test_a_release_shows_its_guarantee_and_its_engine():
    release = qr.QueryRelease(Thresholds(), epsilon=1.0).fit(X, X[:50])
    shown = release._repr_mimebundle_()["text/html"]
    assert release.engine_ in shown
    assert "3,000" in shown
    online = qr.OnlineRelease(Thresholds(), epsilon=1.0, alpha=0.2).fit(X, X[:500])
    assert "budget left" in online._repr_mimebundle_()["text/html"]
