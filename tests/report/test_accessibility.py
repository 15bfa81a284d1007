"""Pages in a real browser: sound for keyboard and screen reader (axe-core), 400 pixels wide, dark, on one A4 page."""

import dataclasses
import functools
import re

import pytest
from test_pages import AT, LeaseView, Refusal, key, ledger, minute, model
from test_report import full, rendered

from quorate.report._pages import write_page
from quorate.service._openapi import openapi_document
from quorate.service._settings import Settings
from quorate.service.pages import dashboard_page, docs_page

VIEWS = ((1280, "light"), (400, "dark"))


def served(name):
    """Return a model with something in every section of the dashboard."""
    keys = [key(f"Ward {place}", id=f"id{place}", quota=200, used=50 * place) for place in range(4)]
    leases = [LeaseView(id="l1", owner="host, process 1", share=0.1)]
    view = ledger(0.634, keys=[*keys, key("old", id="gone", revoked=True)], leases=leases)
    activity = [minute(ago, 20 + ago % 7, ago % 3, ago % 5) for ago in range(0, 1400, 9)]
    return model(name, view=view, activity=activity, refusals=[Refusal(at=AT, caller="id1", code="quota_spent")])


def clinic():
    """Return the page of a job like the demo's: a whole plan, a dozen results, notes of several lines."""
    line = "teachers that learn from 26 columns lose accuracy to small chunks as simulated ones do"
    plan = {
        "aggregator": "quorum",
        "teachers": 5042,
        "rows_per_teacher": 23,
        "queries": 10_000,
        "classes": 2,
        "no_quorums": 408,
        "order": 24.77,
        "slack": 6.187e-8,
        "noise": {"threshold_scale": 16.55, "margin": 87, "price": 0.03187, "order": 24.77},
        "answered": 0.977,
        "agreement": 1.0,
        "right": 0.977,
        "answer_rate": 0.5,
        "feasible": True,
        "published": [{"citation": "Somebody 2018", "sentence": f"{line}; {line}"}],
        "assumptions": ["disagreement differs from query to query like a Beta law of concentration 4", line],
        "on_no_quorum": "abstain",
        "lasts": 1.0,
        "disagreement": 0.0638,
        "basis": "given",
    }
    names = ["sharp majority", "noisy max", "confident max", "soft majority"]
    plan["candidates"] = [{"aggregator": name, "answered": 1.0, "right": 0.99} for name in names]
    results = {f"the same model, later visits, {place}": "94.00%" for place in range(12)}
    notes = (f"{line}: {line}.", f"{line}. {line}.", f"{line}. {line}. {line}.")
    return dataclasses.replace(full(), plan=plan, results=results, notes=notes, curves=None).render()


PAGES = {
    "check": lambda: rendered("check", "clinic"),
    "model": lambda: rendered("model", "clinic"),
    "release": lambda: rendered("release", "clinic"),
    "audit": lambda: rendered("audit", "clinic"),
    "dashboard": lambda: dashboard_page([served("triage")], at=AT),
    "dashboards": lambda: dashboard_page([model("triage"), model("ward")], at=AT),
    "clinic": clinic,
    "api": lambda: docs_page(openapi_document(Settings(models={"m": "m"}))),
}
SHEETS = {"check": 1, "clinic": 1, "model": 1, "release": 2, "audit": 1, "dashboard": 1, "dashboards": 2}


@functools.cache
def page_of(name):
    return PAGES[name]()


def open_page(browser, path):
    """Return a page without its policy against scripts, so that axe-core can be run in it."""
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(path.as_uri())
    return page


def show(page, width, colours):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=colours)


def violations(page, axe):
    """Return what axe-core finds wrong: each rule with the first element that breaks it."""
    page.evaluate(axe)
    found = page.evaluate("axe.run({exclude: [['svg > g']]})")[
        "violations"
    ]  # what is drawn has words that stand for it
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == "api" else [])  # which is long: 12 s
        for name in PAGES
        if name != "clinic"  # which has the sections of "model"
    ],
)
def test_a_page_is_sound_for_keyboard_and_screen_reader_and_does_not_scroll_sideways(browser, axe, tmp_path, name):
    page = open_page(browser, write_page(page_of(name), tmp_path / "page.html"))
    for width, colours in VIEWS:
        show(page, width, colours)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page, axe) == []
    page.context.close()


def test_what_is_wrong_is_found(browser, axe, tmp_path):
    bad = '<!DOCTYPE html><html><title>t</title><meta http-equiv="refresh" content="30"><main><h1>Budget</h1>'
    bad += '<img src="data:,"><p style="color:#ccc;background:#fff">pale</p></main></html>'
    page = open_page(browser, write_page(bad, tmp_path / "page.html"))
    assert {rule for rule, _ in violations(page, axe)} >= {
        "color-contrast",
        "html-has-lang",
        "image-alt",
        "meta-refresh",
    }
    page.context.close()


def sheets(browser, path):
    """Return on how many A4 pages a page is printed."""
    page = browser.new_page()
    page.goto(path.as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    return len(re.findall(rb"/Type\s*/Page\b", printed))


@pytest.mark.parametrize("name", SHEETS)
def test_a_summary_is_printed_on_one_page_and_what_is_long_follows(browser, tmp_path, name):
    """A release has its table of answers on a second page; models on one dashboard have a page each."""
    assert sheets(browser, write_page(page_of(name), tmp_path / "page.html")) == SHEETS[name]


def test_a_dashboard_reloads_only_where_its_reader_asks_for_it():
    page, live = dashboard_page([served("triage")], at=AT), dashboard_page([served("triage")], at=AT, live=True)
    assert "http-equiv" not in page
    assert '<a href="/?live">reload every 30 seconds</a>' in page
    assert '<meta http-equiv="refresh" content="30">' in live
    assert '<a href="/">stop reloading</a>' in live


def test_pictures_stand_before_tables():
    for page in (dataclasses.replace(full(), curves=None).render(), page_of("release"), page_of("check")):
        assert page.index("<svg") < page.index("<table")
