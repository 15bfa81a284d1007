"""The report page: it loads nothing, escapes everything, and leaves out what it was not given."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from quorate import InvalidInput
from quorate.report import Accuracy, Agreement, Claim, ReportData, proofs_for, software_versions, write_report
from quorate.report.page import render_report

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>]]>-->$\\frac{$ \U0001f600 \u202e"
CHROMIUM = "/usr/bin/chromium"


def full(text="clinic"):
    """Return data for every section, with `text` in every place that takes one."""
    candidates = [
        {"aggregator": f"quorum {text}", "teachers": 4000, "answered": 0.97, "right": 0.93},
        {"aggregator": "noisy_max", "teachers": 2000, "answered": 1.0, "right": 0.91},
        {"aggregator": "stability", "teachers": 2000, "answered": None, "right": None},
    ]
    return ReportData(
        title=f"Report {text}",
        claim=Claim(epsilon=1.0, delta=1e-6, unit=f"person {text}", neighbours=text, labels=text),
        plan={
            "aggregator": f"quorum {text}",
            "teachers": 4000,
            "rows_per_teacher": 30.5,
            "answered": 0.97,
            "candidates": candidates,
            "published": {text: 3.0},
            "assumptions": [text],
            "no_quorums": None,
        },
        results={"queries asked": 2000, text: text},
        spending=((0, 0.2), (1000, 0.5), (2000, np.float64(0.6))),
        answer_rate=((1000, 0.95), (2000, 1.0)),
        label_counts={text: 1200, "home": 700},
        accuracy=Accuracy(points=((0.5, 0.9, 0.4), (1.0, 0.94, 0.97)), source=f"simulated {text}"),
        agreement=Agreement.of([0.5, 0.93, 1.0], source=f"pilot {text}"),
        proofs={f"quorate/privacy/PROOF.md{text}": text},
        software={text: text},
        notes=(text,),
    )


@pytest.fixture(scope="module")
def whole():
    return render_report(full())


class Page(HTMLParser):
    """Collects what a browser would act on, and the text it would show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.ids, self.shown = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.shown.append(data)


@pytest.mark.parametrize("text", ["clinic", HOSTILE])
def test_the_page_loads_nothing(text):
    page = Page(render_report(full(text)))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "src"
        if name.endswith("href"):
            assert value.startswith("#"), (tag, value)
        assert "://" not in value
        assert "javascript:" not in value
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_style_sheets_load_nothing(whole):
    text = whole
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", text))


def test_hostile_text_is_shown_and_not_obeyed():
    text = render_report(full(HOSTILE))
    assert "<script" not in text
    assert "<img" not in text
    page = Page(text)
    shown = "".join(page.shown)
    assert shown.count(HOSTILE) >= 12  # every place that takes a text, the plots' words among them


def test_every_plot_has_words_and_ids_of_its_own(whole):
    text = whole
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        page = Page(drawing)
        assert ("svg", "role", "img") in page.attributes
        named = next(value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-labelledby"))
        assert len(named.split()) == 2
        assert set(named.split()) <= set(page.ids)
        for tag in ("title", "desc"):
            words = re.search(rf"<{tag}[^>]*>([^<]+)</{tag}>", drawing)
            assert words is not None
            assert len(words[1]) > 10
        for target in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', drawing):
            assert "".join(target) in page.ids
    ids = Page(text).ids
    assert len(ids) == len(set(ids))


def test_plots_have_axes_with_names_and_follow_the_colours_of_the_page(whole):
    text = whole
    for label in ("queries asked", "epsilon spent", "answered, % of the batch", "share of the plurality, %", "epsilon"):
        assert re.search(rf"<text[^>]*>{re.escape(label)}</text>", text), label
    assert "#0072b2" not in "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_the_same_data_give_the_same_page(whole):
    assert render_report(full()) == whole


SECTIONS = {
    "plan": ('id="plan"',),
    "spending": ('id="figure-spending"',),
    "answer_rate": ('id="figure-answer-rate"',),
    "label_counts": ("Labels of the released answers",),
    "accuracy": ('id="figure-accuracy"',),
    "agreement": ('id="figure-agreement"',),
    "proofs": ('id="proofs"',),
    "software": ('id="software"',),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_missing_section_is_left_out(whole, name):
    part = render_report(dataclasses.replace(full(), **{name: None}))
    for mark in SECTIONS[name]:
        assert mark in whole
        assert mark not in part


def test_a_page_with_the_claim_alone():
    page = render_report(ReportData(title="Bare", claim=Claim(epsilon=2.0, delta=0.0)))
    assert "<svg" not in page
    assert "None" not in page
    for mark in ('id="plan"', 'id="results"', 'id="public"', 'id="notes"', 'id="proofs"', 'id="software"'):
        assert mark not in page


def test_the_data_as_json_are_the_same():
    data = json.loads(json.dumps(full().as_dict(), allow_nan=False))
    assert data["spending"][-1] == [2000, 0.6]
    assert data["claim"]["unit"] == "person clinic"
    assert sum(data["agreement"]["counts"]) == 3
    assert data["plan"]["no_quorums"] is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Claim(epsilon=float("nan"), delta=0.0),
        lambda: Claim(epsilon=1.0, delta=1.0),
        lambda: Accuracy(points=((1.0, 1.2, 0.5),), source="simulated"),
        lambda: Agreement.of([1.01], source="simulated"),
        lambda: ReportData(title="t", claim=Claim(epsilon=1.0, delta=0.0), spending=()),
        lambda: ReportData(title="t", claim=Claim(epsilon=1.0, delta=0.0), answer_rate=((100, float("nan")),)),
    ],
)
def test_impossible_figures_are_refused(make):
    with pytest.raises(InvalidInput):
        make()


def test_writing(tmp_path):
    path = write_report(full(), tmp_path / "page.html")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(InvalidInput, match="does not exist"):
        write_report(full(), tmp_path / "nowhere" / "page.html")
    with pytest.raises(InvalidInput, match="is a folder"):
        write_report(full(), tmp_path)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InvalidInput, match=re.escape("pip install 'quorate[report]'")):
        render_report(full())


def test_proofs_and_versions_are_those_installed():
    from importlib.resources import files

    for name in proofs_for("quorum"):
        assert (files("quorate") / name.removeprefix("quorate/")).is_file()
    assert list(proofs_for("no such aggregator")) == list(proofs_for())
    assert "no-such-package" not in software_versions(["no-such-package"])


@pytest.mark.skipif(shutil.which(CHROMIUM) is None, reason="chromium is not installed, so the page was not loaded")
def test_a_browser_loads_the_page_without_complaint(tmp_path):
    path = write_report(full(HOSTILE), tmp_path / "page.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--enable-logging=stderr", "--log-level=0", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Report" in done.stdout
    assert done.stdout.count("<svg") == 5
    assert "CONSOLE" not in done.stderr, done.stderr
