"""The report pages: they load nothing, escape everything, fit a telephone, and leave out what they were not given."""

import dataclasses
import functools
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from benchmarks.charts import CHARTS
from benchmarks.gallery import GALLERY
from benchmarks.pictures import PICTURES, draw_pictures, plot_belief, plot_crossover, plot_neighbours
from quorate import InvalidInput, QueryRelease, Workload
from quorate.auditing import Verdict
from quorate.models.evaluation.measures import Bin, Interval, Measure, ModelCheck
from quorate.models.linear.curves import Curve
from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report
from quorate.report._pages import _MECHANISMS, _RESTS_ON, figure, write_page
from quorate.report.release import PairTable, ReleaseReport, _dependent_pairs
from quorate.report.trust import AuditReport, CheckReport

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>]]>-->$\\frac{$ \U0001f600 \u202e"


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
        curves=(
            Curve(f"age {text}", (18.0, 40.0, 90.0), ((-1.0, 0.1, 0.8),), ((0.2, 0.05, 0.3),)),
            Curve(text, ("f", text, "none of them"), ((0.2, -0.3, 0.0),), ((0.02, 0.03, 0.5),)),
        ),
        proofs={f"quorate/core/privacy/PROOF.md{text}": text},
        software={text: text},
        notes=(text,),
    )


def full_release(text="clinic", **changed):
    """Return the same for the page of a release."""
    claim = Claim(epsilon=1.0, delta=1e-6, unit=f"record {text}", neighbours=text)
    answers = [
        {"query": text, "answer": 0.5, "error": 0.004, "low": 0.492, "high": 0.508},
        {"query": "age < 20", "answer": 0.25, "error": None, "low": None, "high": None},
    ]
    made = {"title": f"Release {text}", "claim": claim, "cards": {text: text}, "bill": {text: text, "epsilon": 1.0}}
    made |= {"engines": [(text, 0.1), ("plain", 0.002)], "engine": text, "source": text}
    made |= {"truth": [(0.1, 0.2, 0.1, 0.3), (0.2, 0.2, 0.2, 0.2)], "errors": [(0.9, 0.1, 0.1), (1.0, 0.08, 0.1)]}
    made |= {"answers": answers, "answers_left_out": 7}
    made |= {"shares": [(text, [(text, 0.75), ("home", 0.25)], False)]}
    made |= {"pairs": [PairTable(text, text, [text, "home"], [text, "other"], [[0.5, 0.25], [0.25, -0.01]])]}
    made |= {"proofs": {text: text}, "software": {text: text}, "notes": [text]}
    return ReleaseReport(**(made | changed))


def full_audit(text="clinic"):
    """Return the same for the page of an audit."""
    sound = Verdict(
        target=text,
        claim=(1.0, 0.0),
        lower_bound=0.5,
        attack=text,
        plays=10,
        confidence=0.9,
        not_tested=text,
        exact=0.75,
    )
    verdicts = (sound, dataclasses.replace(sound, claim=(0.0, 0.0), lower_bound=2.0, exact=2.5))
    replays = [(text, text, False)]
    return AuditReport(title=f"Audit {text}", verdicts=verdicts, software={text: text}, replays=replays)


def full_check(text="clinic"):
    """Return the same for the page of a private test."""
    interval = Interval(0.25, 0.2, 0.31)
    found = ModelCheck(
        claim=f"private {text}",
        epsilon=1.0,
        delta=1e-6,
        unit=f"person {text}",
        units=5000,
        confidence=0.95,
        scales=(6.0, 6.0),
        measures=(Measure("error", "all", interval), Measure(f"recall of {text}", text, interval)),
        calibration=(Bin("all", 0.2, 0.4, interval), Bin("all", 0.5, 0.7, interval), Bin(text, 0.5, 0.7, interval)),
        counts=(),
    )
    return CheckReport(check=found, title=f"Check {text}", software={text: text}, proofs={text: text})


UNBROKEN = HOSTILE + 6 * "a_word_without_a_space"
PAGES = {
    "check": lambda text: full_check(text).render(),
    "model": lambda text: full(text).render(),
    "release": lambda text: full_release(text).render(),
    "audit": lambda text: full_audit(text).render(),
}
PLACES = {"check": 8, "model": 12, "release": 15, "audit": 12}  # that take a text; the words of plots among them


@functools.cache
def rendered(name, text):
    return PAGES[name](text)


@pytest.fixture(scope="module")
def whole():
    return rendered("model", "clinic")


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
@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing(name, text):
    page = Page(rendered(name, text))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "src"
        if name.endswith("href"):
            assert value.startswith("#"), (tag, value)
        assert "://" not in value
        assert "javascript:" not in value
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


@pytest.mark.parametrize("name", PAGES)
def test_style_sheets_load_nothing(name):
    text = rendered(name, "clinic")
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", text))


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_is_shown_and_not_obeyed(name):
    text = rendered(name, HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    page = Page(text)
    shown = "".join(page.shown)
    assert shown.count(HOSTILE) >= PLACES[name]


def test_pages_share_one_head_and_one_style():
    heads = [rendered(name, "clinic").split("<title>")[0] for name in PAGES]
    assert len(set(heads)) == 1
    first = [re.search(r"<style>(.*?)@media print", rendered(name, "clinic"), flags=re.DOTALL)[1] for name in PAGES]
    assert len(set(first)) == 1


@pytest.mark.parametrize("name", ["model", "release"])
def test_every_plot_has_words_and_ids_of_its_own(name):
    text = rendered(name, "clinic")
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(drawings) == {"model": 6, "release": 4}[name]
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
    for label in ("queries asked", "epsilon spent", "answered, % of the batch", "% of queries (grey: another label)"):
        assert re.search(rf"<text[^>]*>{re.escape(label)}</text>", text), label
    assert "#0072b2" not in "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


@pytest.mark.parametrize("name", PAGES)
def test_the_same_data_give_the_same_page(name):
    assert PAGES[name]("clinic") == rendered(name, "clinic")


def test_the_answers_of_a_release_have_the_decimals_that_their_errors_are_worth():
    shown = re.findall(r'<td class="number" data-name="(\w+)">([^<]*)</td>', full_release().render())
    assert shown[:4] == [("answer", "0.5000"), ("error", "0.0040"), ("low", "0.4920"), ("high", "0.5080")]
    assert shown[4:] == [("answer", "0.2500"), ("error", ""), ("low", ""), ("high", "")]


def test_a_release_shows_its_columns_and_where_it_has_none_its_answers():
    places = [(f"place {place}", 0.05) for place in range(20)]
    page = full_release(shares=[("region", places, False), ("age", places, True)]).render()
    assert "Shares by region" in page
    assert "place 10 5.0%, 9 others 45.0%." in page
    assert "place 18 5.0%, place 19 5.0%." in page, "numbers are not lumped together"
    assert page.index('id="figure-column-0"') < page.index('id="claim"') < page.index('id="answers"')
    assert 'id="figure-answers"' not in page
    page = full_release(shares=()).render()
    assert "From 0.25 (age &lt; 20) to 0.5 (clinic); 7 more were released." in page


def test_a_release_shows_the_pair_of_columns_that_depend_on_each_other():
    chance = np.random.default_rng(0)
    sex, age = chance.choice(["f", "m"], 5000), chance.integers(20, 80, 5000)
    retired = np.where(age > 60, "yes", "no")
    columns = {"sex": ["f", "m"], "age": {"cuts": [40, 60]}, "retired": ["no", "yes"]}
    release = QueryRelease(Workload.marginals(2), columns=columns, epsilon=2.0)
    first = _dependent_pairs(release.fit({"sex": sex, "age": age, "retired": retired}))[0]
    assert {first.rows, first.columns} == {"age", "retired"}
    assert abs(sum(map(sum, first.shares)) - 1) < 0.01
    assert max(shade for _, cells in first.lines() for _, shade in cells) == 5


def test_figures_are_written_for_people():
    assert [figure(value) for value in (43331.5, 12345, 0.41237, 1e-06, None)] == [
        "43,332",
        "12,345",
        "0.4124",
        "1e-6",
        "",
    ]


def test_a_release_compares_engines_where_there_are_several():
    assert 'id="figure-engines"' in full_release().render()
    assert 'id="figure-engines"' not in full_release(engines=[("plain", 0.1)]).render()


@pytest.mark.parametrize(
    ("crossover", "words"),
    [
        ([(10, 0.1, 0.2, 0.3), (100, 0.1, 0.05, 0.2)], "never do as well"),
        ([(10, 0.1, 0.2, 0.3), (100, 0.1, 0.05, 0.05)], "between 10 and 100 public records"),
        ([(10, 0.1, 0.2, 0.05), (100, 0.1, 0.05, 0.05)], "however few"),
    ],
)
def test_where_public_data_alone_do_better(crossover, words):
    assert words in plot_crossover(crossover, "simulated").description


def test_a_claim_of_epsilon_0_that_is_false_is_said():
    page = full_audit().render()
    assert "1 of 2 claims are false" in page
    assert "over 1,000% of the claim, which is false" in page
    assert re.findall(r'class="shown( false)?" style="width: ([^"]*)"', page) == [(" false", "100.0%"), ("", "50.0%")]
    assert re.findall(r'class="exact" style="left: ([^"]*)"', page) == ["100.0%", "75.0%"]


SECTIONS = {
    "plan": ('id="plan"',),
    "spending": ('id="figure-spending"',),
    "answer_rate": ('id="figure-answer-rate"',),
    "label_counts": ("Labels of the released answers",),
    "proofs": ('id="proofs"',),
    "software": ('id="software"',),
}


@pytest.mark.parametrize("missing", [list(SECTIONS)[::2], list(SECTIONS)[1::2]], ids=["even", "odd"])
def test_missing_sections_are_left_out_and_the_others_stay(whole, missing):
    part = dataclasses.replace(full(), **dict.fromkeys(missing)).render()
    for name, marks in SECTIONS.items():
        assert all(mark in whole and (mark in part) == (name not in missing) for mark in marks), name


def test_a_page_with_the_claim_alone():
    page = ReportData(title="Bare", claim=Claim(epsilon=2.0, delta=0.0)).render()
    assert "<svg" not in page
    assert "None" not in page
    for mark in ('id="plan"', 'id="results"', 'id="public"', 'id="notes"', 'id="proofs"', 'id="software"'):
        assert mark not in page


def test_the_data_as_json_are_the_same():
    data = json.loads(json.dumps(full().as_dict(), allow_nan=False))
    assert data["spending"][-1] == [2000, 0.6]
    assert data["claim"]["unit"] == "person clinic"
    assert data["plan"]["no_quorums"] is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Claim(epsilon=float("nan"), delta=0.0),
        lambda: Claim(epsilon=1.0, delta=1.0),
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
    with pytest.raises(InvalidInput, match=r"pip install '.*\[report\]'"):
        full().render()


def test_proofs_and_versions_are_those_installed():
    from importlib.resources import files

    for name in {path for subject in (*_MECHANISMS, *_RESTS_ON) for path in proofs_for(subject)}:
        assert (files("quorate") / name.removeprefix("quorate/")).is_file()
    assert list(proofs_for("no such aggregator")) == list(proofs_for())
    assert "no-such-package" not in software_versions(["no-such-package"])


@pytest.mark.parametrize(
    ("width", "text"),
    [(1280, "clinic"), (360, UNBROKEN), pytest.param(1280, UNBROKEN, marks=pytest.mark.long)],
    ids=["wide", "narrow and hostile", "wide and hostile"],
)
@pytest.mark.parametrize("name", PAGES)
def test_a_browser_shows_the_whole_page_and_asks_for_nothing(browser, tmp_path, name, width, text):
    path = write_page(rendered(name, text), tmp_path / "page.html")
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    inside = "all => all.every(one => one.getBoundingClientRect().right <= innerWidth + 1)"
    assert page.eval_on_selector_all("main *:not(svg *)", inside)
    page.close()


@pytest.mark.long
def test_the_pictures_of_the_guides_stand_alone(tmp_path):
    paths = draw_pictures(tmp_path, ["howto/release"])
    assert sorted(path.name for path in paths) == ["public-size.svg", "stumps.svg"]
    for path in paths:
        svg = path.read_text(encoding="utf-8")
        assert 'xmlns="http://www.w3.org/2000/svg"' in svg
        assert "var(--" not in svg


def test_the_pictures_of_the_concepts_say_what_they_show():
    assert "at most 1.65 times as high" in plot_neighbours(0.5).description
    assert "epsilon 1 to 0.73" in plot_belief().description


@pytest.mark.long
def test_the_pictures_of_the_concepts_are_all_drawn(tmp_path):
    drawn = draw_pictures(tmp_path, ["concepts"])
    assert [path.name for path in drawn] == ["neighbours.svg", "belief.svg", "quorum.svg", "wear.svg", "search.svg"]
    for path in drawn:
        text = path.read_text()
        assert text.startswith("<svg role=")
        assert "var(--blue)" in text


def test_every_picture_is_in_the_documentation():
    docs = Path(__file__).parents[2] / "docs"
    assert all((docs / name).is_file() for name in PICTURES)
    assert all(f":file: gallery/{name}.svg" in (docs / "gallery.md").read_text() for name in GALLERY)


def test_the_charts_of_the_benchmarks_say_what_their_tables_say(tmp_path):
    """Each stands in the documentation as it is drawn from the tables of today."""
    docs = Path(__file__).parents[2] / "docs"
    for path in draw_pictures(tmp_path, ["benchmarks/"]):
        words = re.findall(r"<desc.*?</desc>", path.read_text())
        assert words == re.findall(r"<desc.*?</desc>", (docs / path.relative_to(tmp_path)).read_text())
        assert f":file: {path.name}" in (docs / "benchmarks" / "index.md").read_text()
    assert "DP-EBM, bounds given: 0.888, 0.871, 0.871" in CHARTS["linear-bank"]().description


def test_the_pictures_of_the_gallery_are_drawn_from_its_code(tmp_path):
    drawn = draw_pictures(tmp_path, ["gallery/quorum", "gallery/intervals"])
    assert [path.name for path in drawn] == ["quorum.svg", "intervals.svg"]
    assert all("var(--blue)" in path.read_text() for path in drawn)
    assert re.search(r">1[5-9]\d of 200 new values lie in their intervals", drawn[1].read_text())
